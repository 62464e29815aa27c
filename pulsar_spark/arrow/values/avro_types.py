# SPDX-License-Identifier: Apache-2.0
"""AVRO's types as columns, for values in AVRO, and in JSON with AVRO's schemas.

The mapping is that of the Scala connector, so that a job reads the same columns. It has
no columns for local timestamps and times of day, which are numbers here as there; a
user's own schema may ask for more, see ``arrow.values``.
"""

from __future__ import annotations

import pyarrow as pa

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.arrow.values.together import distinct, with_unit
from pulsar_spark.columns import VALUE
from pulsar_spark.schemas.avro import AvroType, Kind, Logical, nullable
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.resolution import UNITS

#: Spark's longest decimal.
_MAX_PRECISION = 38

#: More than any query has, those within others counted.
_MAX_COLUMNS = 10_000

_PRIMITIVES = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.STRING: pa.string(),
    Kind.FIXED: pa.binary(),
    Kind.ENUM: pa.string(),
}

_LOGICAL = {
    Logical.DATE: pa.date32(),
    Logical.TIMESTAMP_MILLIS: TIMESTAMP,
    Logical.TIMESTAMP_MICROS: TIMESTAMP,
}

#: Unions that are one wider number.
_WIDER = {
    frozenset({Kind.INT, Kind.LONG}): pa.int64(),
    frozenset({Kind.FLOAT, Kind.DOUBLE}): pa.float64(),
}


def columns_of(root: AvroType) -> pa.Schema:
    """Return the columns of values with this schema: fields of a record, or ``value``.

    All of them are nullable, as a message may have no value.

    Raises:
        InvalidSchemaError: A type has no column, or is a part of itself, or there are
            two fields whose names are equal but for their case, or far too many.
    """
    _check_count(root)
    if root.kind is Kind.RECORD:
        fields = [
            _field(child.name, child.type, child.name, (root,)) for child in root.fields
        ]
        distinct(field.name for field in fields)
    else:
        fields = [_field(VALUE, root, VALUE, ())]
    return pa.schema([field.with_nullable(True) for field in fields])


def column_type(type_: AvroType) -> pa.DataType:
    """Return the type of a column that holds this type.

    Raises:
        InvalidSchemaError: As ``columns_of`` does.
    """
    _check_count(type_)
    return _field("", type_, VALUE, ()).type


def _check_count(type_: AvroType) -> None:
    if _count(type_, {}) > _MAX_COLUMNS:
        raise InvalidSchemaError(
            f"it has more than {_MAX_COLUMNS:,} fields, those within others counted"
        )


def _count(type_: AvroType, known: dict[int, int]) -> int:
    """Count the types in a type; a record counts at each use.

    Where a record is a part of itself it counts as one; that is refused later.
    """
    if id(type_) not in known:
        known[id(type_)] = 1
        parts = [*type_.branches, *(part.type for part in type_.fields)]
        if type_.items is not None:
            parts.append(type_.items)
        known[id(type_)] = 1 + sum(_count(part, known) for part in parts)
    return known[id(type_)]


def _field(
    name: str, type_: AvroType, where: str, within: tuple[AvroType, ...]
) -> pa.Field:
    type_, is_nullable = nullable(type_)
    field = pa.field(name, _without_null(type_, where, within), is_nullable)
    logical = type_.logical
    if logical in UNITS and logical not in _LOGICAL:
        return with_unit(field, logical.value)
    return field


def _without_null(
    type_: AvroType, where: str, within: tuple[AvroType, ...]
) -> pa.DataType:
    if type_.kind in (Kind.UNION, Kind.RECORD, Kind.ARRAY, Kind.MAP):
        return _nested(type_, where, within)
    if type_.kind is Kind.NULL:
        raise InvalidSchemaError(f"`{where}` is always null, which no column can be")
    if type_.logical is Logical.DECIMAL:
        if type_.precision > _MAX_PRECISION:
            raise InvalidSchemaError(
                f"`{where}` is a decimal of {type_.precision} digits, and Spark's have "
                f"{_MAX_PRECISION} at most. From AVRO `.schema(...)` reads such a "
                "field as BINARY: the unscaled number, highest byte first"
            )
        return pa.decimal128(type_.precision, type_.scale)
    if type_.logical in _LOGICAL:
        return _LOGICAL[type_.logical]
    return _PRIMITIVES[type_.kind]


def _nested(type_: AvroType, where: str, within: tuple[AvroType, ...]) -> pa.DataType:
    if type_.kind is Kind.UNION:
        return _union(type_, where, within)
    if type_.kind is Kind.RECORD:
        if type_ in within:
            raise InvalidSchemaError(
                f"`{where}` holds the record {type_.name} again, which is a part of "
                "itself. `.schema(...)` says how deep to read, as in `next STRUCT<id: "
                "INT, next: STRUCT<id: INT>>`"
            )
        inner = (*within, type_)
        distinct((field.name for field in type_.fields), where)
        return pa.struct(
            [
                _field(field.name, field.type, f"{where}.{field.name}", inner)
                for field in type_.fields
            ]
        )
    assert type_.items is not None
    if type_.kind is Kind.ARRAY:
        return pa.list_(_field("element", type_.items, f"{where}[]", within))
    return pa.map_(
        pa.field("key", pa.string(), nullable=False),
        _field("value", type_.items, f"{where}{{}}", within),
    )


def _union(type_: AvroType, where: str, within: tuple[AvroType, ...]) -> pa.DataType:
    wider = _WIDER.get(frozenset(branch.kind for branch in type_.branches))
    if wider is not None and not any(branch.logical for branch in type_.branches):
        return wider
    members = [
        _field(f"member{index}", branch, f"{where}.member{index}", within)
        for index, branch in enumerate(type_.branches)
    ]
    return pa.struct([branch.with_nullable(True) for branch in members])
