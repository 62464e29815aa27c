# SPDX-License-Identifier: Apache-2.0
"""The documentation's tables of schemas, made by the code that makes the columns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.arrow.values import kinds
from pulsar_spark.schemas.info import SchemaInfo, SchemaType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructField

_RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
_KEY_VALUE = {"key.schema.type": "STRING", "value.schema.type": "INT32"}

#: What a type without a definition of its own does not need.
_EXAMPLES = {
    SchemaType.AVRO: SchemaInfo(SchemaType.AVRO, json.dumps(_RECORD).encode()),
    SchemaType.JSON: SchemaInfo(SchemaType.JSON, json.dumps(_RECORD).encode()),
    SchemaType.PROTOBUF: SchemaInfo(SchemaType.PROTOBUF, json.dumps(_RECORD).encode()),
    SchemaType.KEY_VALUE: SchemaInfo(SchemaType.KEY_VALUE, bytes(8), _KEY_VALUE),
}
_NOTES = {
    SchemaType.JSON: "its fields, here `id` and `name`",
    SchemaType.AVRO: "its fields, likewise",
    SchemaType.KEY_VALUE: "its parts, here STRING and INT32",
    SchemaType.PROTOBUF: "bytes as they are",
    SchemaType.TIME: "milliseconds of the day",
    SchemaType.LOCAL_TIME: "nanoseconds of the day",
    SchemaType.INSTANT: "rounded down to the microsecond",
    SchemaType.LOCAL_DATE_TIME: "likewise",
}


def schemas() -> str:
    """Return what columns the types of schemas have as a Markdown table."""
    rows = []
    for type_ in SchemaType:
        if type_ in (SchemaType.NONE, SchemaType.PROTOBUF_NATIVE):
            continue
        columns = kinds.columns_of(_EXAMPLES.get(type_, SchemaInfo(type_)))
        rows.append((type_.name, _columns(columns), _NOTES.get(type_, "")))
    rows.append(("PROTOBUF_NATIVE", "the fields of its message", ""))
    return _table(("schema", "columns", ""), rows)


def _logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


_FIXED = {"type": "fixed", "name": "F", "size": 9}

#: Types of AVRO by the words for them.
_TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "int `date`": _logical("int", "date"),
    "int `time-millis`": _logical("int", "time-millis"),
    "long": "long",
    "long `timestamp-millis`, `timestamp-micros`": _logical("long", "timestamp-micros"),
    "long `time-micros`": _logical("long", "time-micros"),
    "long `local-timestamp-millis`, `-micros`": _logical(
        "long", "local-timestamp-micros"
    ),
    "float": "float",
    "double": "double",
    "string, also `uuid`": "string",
    "enum": {"type": "enum", "name": "E", "symbols": ["A"]},
    "bytes": "bytes",
    "fixed": _FIXED,
    "bytes, fixed `decimal(10, 2)`": _logical(
        "bytes", "decimal", precision=10, scale=2
    ),
    "record": _RECORD,
    "array of int": {"type": "array", "items": "int"},
    "map of int": {"type": "map", "values": "int"},
    "[null, int]": ["null", "int"],
    "[int, long]": ["int", "long"],
    "[float, double]": ["float", "double"],
    "any other union, such as [int, string]": ["int", "string"],
}


def avro_types() -> str:
    """Return what columns AVRO's types become as a Markdown table."""
    rows = []
    for words, tree in _TYPES.items():
        text = {"type": "record", "name": "T", "fields": [{"name": "f", "type": tree}]}
        info = SchemaInfo(SchemaType.AVRO, json.dumps(text).encode())
        (field,) = from_arrow_schema(kinds.columns_of(info))
        rows.append((words, f"`{_ddl(field)}`"))
    return _table(("type", "column"), rows)


def _columns(schema: Any) -> str:
    return ", ".join(
        f"`{field.name}` {_ddl(field)}" for field in from_arrow_schema(schema)
    )


def _ddl(field: StructField) -> str:
    """Return the type in SQL: only names of types are in capitals."""
    text = field.dataType.simpleString()
    return re.sub(r"\w+(?!\w*:)", lambda match: match[0].upper(), text)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)
