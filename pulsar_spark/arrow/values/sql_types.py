# SPDX-License-Identifier: Apache-2.0
"""Names of types, as users of Spark know them: of columns and of AVRO."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.schemas.avro import AvroType, Kind, Logical
from spark_topics.text import shorten

_KINDS = pa.types

_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (_KINDS.is_boolean, "BOOLEAN"),
    (_KINDS.is_int8, "TINYINT"),
    (_KINDS.is_int16, "SMALLINT"),
    (_KINDS.is_int32, "INT"),
    (_KINDS.is_int64, "BIGINT"),
    (_KINDS.is_float32, "FLOAT"),
    (_KINDS.is_float64, "DOUBLE"),
    (_KINDS.is_string, "STRING"),
    (_KINDS.is_large_string, "STRING"),
    (_KINDS.is_binary, "BINARY"),
    (_KINDS.is_large_binary, "BINARY"),
    (_KINDS.is_date, "DATE"),
    (_KINDS.is_time, "TIME"),
    (_KINDS.is_duration, "INTERVAL DAY TO SECOND"),
    (_KINDS.is_null, "VOID"),
)


def sql_type(type_: pa.DataType) -> str:
    """Return the name of a column's type in Spark's SQL."""
    if _KINDS.is_timestamp(type_):
        return "TIMESTAMP_NTZ" if type_.tz is None else "TIMESTAMP"
    if _KINDS.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if _KINDS.is_struct(type_):
        return f"STRUCT<{', '.join(f'{f.name}: {sql_type(f.type)}' for f in type_)}>"
    if _KINDS.is_map(type_):
        return f"MAP<{sql_type(type_.key_type)}, {sql_type(type_.item_type)}>"
    if _KINDS.is_list(type_) or _KINDS.is_large_list(type_):
        return f"ARRAY<{sql_type(type_.value_type)}>"
    return next((name for is_it, name in _NAMES if is_it(type_)), str(type_))


#: What a column is that the user did not choose, by its name.
_TYPES = {
    sql_type(type_): type_
    for type_ in (
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        TIMESTAMP,
    )
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")


def tree_of(type_: pa.DataType) -> Any:
    """Return the type of a column as JSON, which has no places of NULLs."""
    if _KINDS.is_struct(type_):
        return {"STRUCT": [[field.name, tree_of(field.type)] for field in type_]}
    if _KINDS.is_map(type_):
        return {"MAP": [tree_of(type_.key_type), tree_of(type_.item_type)]}
    if _KINDS.is_list(type_):
        return {"ARRAY": tree_of(type_.value_type)}
    return sql_type(type_)


def type_of(tree: Any) -> pa.DataType:
    """Return the type of what ``tree_of`` has made.

    Raises:
        ValueError: It has not made this.
    """
    match tree:
        case {"STRUCT": [*fields]} if all(map(_is_field, fields)):
            return pa.struct([(name, type_of(part)) for name, part in fields])
        case {"MAP": [key, item]}:
            return pa.map_(type_of(key), type_of(item))
        case {"ARRAY": item}:
            return pa.list_(type_of(item))
        case str() if tree in _TYPES:
            return _TYPES[tree]
        case str() if decimal := _DECIMAL.fullmatch(tree):
            return pa.decimal128(*map(int, decimal.groups()))
    raise ValueError(f"{shorten(tree)} is no type of a column")


def _is_field(tree: Any) -> bool:
    return isinstance(tree, list) and len(tree) == 2 and isinstance(tree[0], str)


#: SQL's types of AVRO's, without and with a logical type.
_PLAIN = {
    Kind.NULL: "VOID",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INT",
    Kind.LONG: "BIGINT",
    Kind.FLOAT: "FLOAT",
    Kind.DOUBLE: "DOUBLE",
    Kind.BYTES: "BINARY",
    Kind.STRING: "STRING",
    Kind.FIXED: "BINARY",
    Kind.ENUM: "STRING",
    Kind.RECORD: "STRUCT",
    Kind.MAP: "MAP",
    Kind.ARRAY: "ARRAY",
}
_LOGICAL = {
    Logical.DATE: "DATE",
    Logical.TIME_MILLIS: "TIME",
    Logical.TIME_MICROS: "TIME",
    Logical.TIMESTAMP_MILLIS: "TIMESTAMP",
    Logical.TIMESTAMP_MICROS: "TIMESTAMP",
    Logical.TIMESTAMP_NANOS: "TIMESTAMP",
    Logical.LOCAL_TIMESTAMP_MILLIS: "TIMESTAMP_NTZ",
    Logical.LOCAL_TIMESTAMP_MICROS: "TIMESTAMP_NTZ",
    Logical.LOCAL_TIMESTAMP_NANOS: "TIMESTAMP_NTZ",
}

#: How deep the fields of records are named: one may be a part of itself.
_MAX_DEPTH = 3


def sql_type_of_field(type_: AvroType, depth: int = 0) -> str:
    """Return the type in Spark's SQL of a column that fits a field best."""
    if type_.kind is Kind.UNION:
        names = [
            sql_type_of_field(part, depth)
            for part in type_.branches
            if part.kind is not Kind.NULL
        ]
        return " or ".join(names) or "VOID"
    if type_.logical is Logical.DECIMAL:
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if type_.logical in _LOGICAL:
        return _LOGICAL[type_.logical]
    if type_.kind is Kind.RECORD:
        if depth == _MAX_DEPTH:
            return "STRUCT<...>"
        fields = [
            f"{part.name}: {sql_type_of_field(part.type, depth + 1)}"
            for part in type_.fields
        ]
        return f"STRUCT<{', '.join(fields)}>"
    if type_.items is not None:
        items = sql_type_of_field(type_.items, depth)
        return f"MAP<STRING, {items}>" if type_.kind is Kind.MAP else f"ARRAY<{items}>"
    return _PLAIN[type_.kind]


def difference(column: pa.DataType, type_: AvroType, where: str) -> str:
    """Return how a column differs from its field, and the cast that cures.

    Args:
        column: The column's type.
        type_: The field's.
        where: The path of names to it.

    Returns:
        A part of a sentence.
    """
    text = f"`{where}` is {sql_type(column)}, and the schema has {meaning(type_)}"
    if type_.kind is Kind.UNION:
        return f"{text}: write a column of one of these types"
    return text + cure(column, sql_type_of_field(type_), where)


def meaning(type_: AvroType) -> str:
    """Return the SQL type of a field, and AVRO's where that says more."""
    is_time = type_.logical not in (None, Logical.DECIMAL)
    sql = sql_type_of_field(type_)
    if is_time or (type_.kind in (Kind.ENUM, Kind.FIXED) and type_.logical is None):
        return f"{sql} ({type_} in AVRO)"
    return sql


def cure(column: pa.DataType, wanted: str, where: str) -> str:
    """Return what to write in place of a column, as the end of a sentence.

    Args:
        column: The column's type.
        wanted: The type that fits, by its name in Spark's SQL.
        where: The path of names to it.

    Returns:
        The text; "" where no expression is known.
    """
    name = "..." if "[" in where or "{" in where else where
    expression = _expression(column, wanted, name)
    return f": write {expression}" if expression else ""


def _expression(column: pa.DataType, wanted: str, name: str) -> str:
    is_number = wanted in ("INT", "BIGINT")
    if _KINDS.is_nested(column) or wanted.startswith(("STRUCT", "MAP", "ARRAY")):
        return ""
    if _KINDS.is_timestamp(column) and is_number:
        moment = name if column.tz is not None else f"CAST({name} AS TIMESTAMP)"
        units = f"unix_millis({moment}) or unix_micros({moment})"
        return f"{units}, whichever unit the field counts in"
    if _KINDS.is_date(column) and is_number:
        return f"unix_date({name}), if the field counts days"
    if _KINDS.is_integer(column) and wanted.startswith("TIMESTAMP"):
        moments = [f"timestamp_millis({name})", f"timestamp_micros({name})"]
        if wanted == "TIMESTAMP_NTZ":
            moments = [f"CAST({text} AS TIMESTAMP_NTZ)" for text in moments]
        return f"{' or '.join(moments)}, whichever unit the number counts in"
    if _KINDS.is_integer(column) and wanted == "DATE":
        return f"date_from_unix_date({name}), if the number is days"
    if wanted == "TIME" and not _KINDS.is_string(column):
        return "a TIME, or the number of the field's own unit"
    if wanted == "BINARY" and not _KINDS.is_string(column):
        return ""
    return f"CAST({name} AS {wanted})"
