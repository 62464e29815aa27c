# SPDX-License-Identifier: Apache-2.0
"""Columns -> values in JSON, a column at a time.

What the official clients of Java and Python both read: NULL is written, not left out;
bytes are base64; decimals are numbers with all their digits; dates and times are
integers in the unit of the schema; NaN and the infinities are strings, as Java has
them.

Each column becomes a column of texts, and those of a record are joined row by row.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.arrow.values.avro_encoder import is_record
from pulsar_spark.arrow.values.avro_parts import check_text, in_unit, plan, record_plan
from pulsar_spark.arrow.values.avro_text import is_bytes, is_text
from pulsar_spark.loops.avro_write import UNFIT, UnfitValueError
from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    Kind,
    Logical,
    nullable,
)
from pulsar_spark.schemas.info import InvalidSchemaError

#: Makes the JSON text of each row; NULL stays NULL.
_Texts = Callable[[pa.Array], pa.LargeStringArray]

_TEXT = pa.large_string()
_KINDS = pa.types
_NULL = pa.scalar("null", _TEXT)
_NOTHING = pa.scalar("", _TEXT)
_QUOTE = pa.scalar('"', _TEXT)

#: What a string of JSON does not hold as it is.
_ESCAPED = r'["\\\x00-\x1f]'


class JsonEncoder:
    """Makes values of columns, which are the fields of a record as in ``AvroEncoder``.

    Args:
        root: The schema.
        schema: The columns.

    Raises:
        InvalidSchemaError: The columns do not fit the schema.
    """

    def __init__(self, root: AvroType, schema: pa.Schema) -> None:
        self.columns = tuple(schema.names)
        if root.kind is not Kind.RECORD:
            raise InvalidSchemaError(f"the schema is {root} and no record")
        fields = list(schema)
        self._texts: Callable[[Sequence[pa.Array]], pa.LargeStringArray]
        if is_record(fields):
            plan(root, fields[0].type, fields[0].name)  # for what does not fit
            texts = _plan(root, fields[0].type, fields[0].name)
            self._texts = lambda columns: texts(columns[0])
        else:
            record_plan(root, fields)
            self._texts = _record(root, fields, "")

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value of each row.

        Raises:
            UnfitValueError: A row does not fit the schema.
        """
        return EncodedValues(self._texts(columns).cast(pa.large_binary()))


def _record(
    type_: AvroType, fields: Sequence[pa.Field], where: str
) -> Callable[[Sequence[pa.Array]], pa.LargeStringArray]:
    """Return what joins fields that all rows have; others have their defaults."""
    types = {field.name: field.type for field in type_.fields}
    members: list[tuple[pa.Scalar, _Texts, bool, str]] = []
    for at, field in enumerate(fields):
        path = f"{where}.{field.name}" if where else field.name
        name = json.dumps(field.name, ensure_ascii=False)
        before = pa.scalar(f"{',' if at else '{'}{name}:", _TEXT)
        _, is_nullable = nullable(types[field.name])
        texts = _plan(types[field.name], field.type, path)
        members.append((before, texts, is_nullable, path))
    names = {field.name for field in fields}
    ends = [
        f"{json.dumps(one.name)}:{_default(one)}"
        for one in type_.fields
        if one.name not in names
    ]
    comma = "," if ends else ""
    begin = f"{comma}{','.join(ends)}" if members else f"{{{','.join(ends)}"
    end = pa.scalar(f"{begin}}}", _TEXT)

    def join(columns: Sequence[pa.Array]) -> pa.LargeStringArray:
        parts: list[pa.Array | pa.Scalar] = []
        for column, (before, texts, is_nullable, path) in zip(
            columns, members, strict=True
        ):
            if column.null_count and not is_nullable:
                raise UnfitValueError(
                    pc.index(column.is_null(), pa.scalar(True)).as_py(),
                    path,
                    "is NULL, which its schema does not have",
                )
            parts += [before, _or_null(texts(column))]
        return pc.binary_join_element_wise(*parts, end, _NOTHING)

    return join


def _default(field: AvroField) -> str:
    if field.default is NO_DEFAULT:
        return "null"
    if isinstance(field.default, str) and nullable(field.type)[0].kind in _BYTES:
        data = field.default.encode("latin-1")
        return f'"{binascii.b2a_base64(data, newline=False).decode()}"'
    return json.dumps(field.default)


_BYTES = (Kind.BYTES, Kind.FIXED)


def _or_null(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return texts.fill_null(_NULL) if texts.null_count else texts


def _plan(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    """Return what turns a column into texts. That it fits has been looked at."""
    type_, _ = nullable(type_)
    if type_.kind is Kind.UNION:
        type_ = next(one for one in type_.branches if _fits(one, column, where))
    if _KINDS.is_struct(column):
        return _struct(type_, column, where)
    if _KINDS.is_map(column):
        return _map(type_, column, where)
    if _KINDS.is_list(column) or _KINDS.is_large_list(column):
        return _list(type_, column, where)
    if is_text(column):
        return lambda array: _strings(array, where)
    if is_bytes(column):
        return _base64
    if _KINDS.is_floating(column):
        return _floats
    if _KINDS.is_boolean(column) or _KINDS.is_decimal(column):
        return lambda array: array.cast(pa.string()).cast(_TEXT)
    return _integers(type_, column, where)


def _fits(type_: AvroType, column: pa.DataType, where: str) -> bool:
    try:
        plan(type_, column, where)
    except InvalidSchemaError:
        return False
    return True


#: Logical types by their unit; all others count microseconds.
_MILLIS = {
    Logical.TIMESTAMP_MILLIS,
    Logical.LOCAL_TIMESTAMP_MILLIS,
    Logical.TIME_MILLIS,
}
_NANOS = {Logical.TIMESTAMP_NANOS, Logical.LOCAL_TIMESTAMP_NANOS}


def _integers(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    divisor, factor, raw = 1, 1, pa.int64()
    if _KINDS.is_time(column):
        divisor = 1_000_000 if type_.logical in _MILLIS else 1_000
    elif _KINDS.is_timestamp(column):
        divisor = 1_000 if type_.logical in _MILLIS else 1
        factor = 1_000 if type_.logical in _NANOS else 1
    elif _KINDS.is_date(column):
        raw = pa.int32()

    def texts(array: pa.Array) -> pa.LargeStringArray:
        if _KINDS.is_time(column):
            array = array.cast(pa.time64("ns"))
        numbers = in_unit(array.cast(raw), divisor, factor)
        if factor > 1:
            is_unfit = pc.equal(numbers, pa.scalar(UNFIT, pa.int64()))
            if (row := pc.index(is_unfit, pa.scalar(True)).as_py()) >= 0:
                raise UnfitValueError(row, where, "is no number of nanoseconds")
        return numbers.cast(_TEXT)

    return texts


def _floats(array: pa.Array) -> pa.LargeStringArray:
    texts = array.cast(_TEXT)
    is_odd = pc.invert(pc.is_finite(array)).fill_null(pa.scalar(False))
    if not is_odd.true_count:
        return texts
    names = pc.if_else(
        pc.is_nan(array),
        pa.scalar('"NaN"', _TEXT),
        pc.if_else(
            pc.greater(array, pa.scalar(0, array.type)),
            pa.scalar('"Infinity"', _TEXT),
            pa.scalar('"-Infinity"', _TEXT),
        ),
    )
    return pc.if_else(is_odd, names, texts)


def _strings(array: pa.Array, where: str) -> pa.LargeStringArray:
    check_text(array, where)
    array = array.cast(_TEXT)
    has_more = pc.match_substring_regex(array, _ESCAPED).fill_null(pa.scalar(False))
    plain = pc.binary_join_element_wise(_QUOTE, array, _QUOTE, _NOTHING)
    if not has_more.true_count:
        return plain
    escaped = [
        json.dumps(text, ensure_ascii=False)
        for text in array.filter(has_more).to_pylist()
    ]
    return pc.replace_with_mask(plain, has_more, pa.array(escaped, _TEXT))


def _base64(array: pa.Array) -> pa.LargeStringArray:
    return pa.array(
        [
            None
            if one is None
            else f'"{binascii.b2a_base64(one, newline=False).decode()}"'
            for one in array.to_pylist()
        ],
        _TEXT,
    )


def _struct(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    join = _record(type_, list(column), where)

    def texts(array: pa.StructArray) -> pa.LargeStringArray:
        if not array.null_count:
            return join([array.field(at) for at in range(column.num_fields)])
        # A NULL may lie above anything: only what is there is looked at.
        is_there = array.is_valid()
        some = array.filter(is_there)
        found = join([some.field(at) for at in range(column.num_fields)])
        nothing = pa.nulls(len(array), _TEXT)
        return pc.replace_with_mask(nothing, is_there, found)

    return texts


def _list(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    assert type_.items is not None
    items = _plan(type_.items, column.value_type, f"{where}[]")
    _, is_nullable = nullable(type_.items)

    def texts(array: pa.Array) -> pa.LargeStringArray:
        inner = array.flatten()
        _check_items(inner, f"{where}[]", is_nullable=is_nullable)
        return _joined(array, _or_null(items(inner)), "[", "]")

    return texts


def _map(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    assert type_.items is not None
    items = _plan(type_.items, column.item_type, f"{where}{{}}")
    _, is_nullable = nullable(type_.items)

    def texts(array: pa.MapArray) -> pa.LargeStringArray:
        pairs = _as_list(array).flatten()
        keys, inner = pairs.field(0), pairs.field(1)
        _check_items(inner, f"{where}{{}}", is_nullable=is_nullable)
        found = pc.binary_join_element_wise(
            _strings(keys, f"{where}{{}}"),
            pa.scalar(":", _TEXT),
            _or_null(items(inner)),
            _NOTHING,
        )
        return _joined(array, found, "{", "}")

    return texts


def _check_items(items: pa.Array, where: str, *, is_nullable: bool) -> None:
    if items.null_count and not is_nullable:
        raise UnfitValueError(-1, where, "is NULL, which its schema does not have")


def _as_list(array: pa.MapArray) -> pa.ListArray:
    """Return maps as the lists of pairs that they are."""
    pair = pa.struct([array.type.key_field, array.type.item_field])
    return array.cast(pa.list_(pair))


def _joined(
    array: pa.Array, items: pa.LargeStringArray, begin: str, end: str
) -> pa.LargeStringArray:
    """Return the items of each list as one text; NULL where there is no list."""
    lists = _as_list(array) if _KINDS.is_map(array.type) else array
    zero = pa.scalar(0, pa.int64())
    sizes = pc.list_value_length(lists).cast(pa.int64()).fill_null(zero)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    texts = pc.binary_join(
        pa.LargeListArray.from_arrays(offsets, items), pa.scalar(",", _TEXT)
    )
    found = pc.binary_join_element_wise(
        pa.scalar(begin, _TEXT), texts, pa.scalar(end, _TEXT), _NOTHING
    )
    if not array.null_count:
        return found
    return pc.if_else(array.is_valid(), found, pa.scalar(None, _TEXT))
