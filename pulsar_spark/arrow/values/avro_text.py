# SPDX-License-Identifier: Apache-2.0
"""Columns as AVRO's schema text, for topics that get their schema from a write.

Names are those of the Scala connector, so that a job which moves over goes on with the
schema that it registered. Every field is ``["null", T]`` with the default null, the
only form that may be added and dropped again under Pulsar's default compatibility. That
Spark's plan says NOT NULL is not taken over: it says so of ``lit()``, ``count()`` and
``range()``, too. (Spark's file sources make all columns nullable as well.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.values.sql_types import sql_type
from pulsar_spark.schemas.info import InvalidSchemaError
from spark_topics.text import same_but_for_case

ROOT = "topLevelRecord"

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_KINDS = pa.types

_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (_KINDS.is_boolean, "boolean"),
    (_KINDS.is_int8, "int"),
    (_KINDS.is_int16, "int"),
    (_KINDS.is_int32, "int"),
    (_KINDS.is_int64, "long"),
    (_KINDS.is_float32, "float"),
    (_KINDS.is_float64, "double"),
    (_KINDS.is_string, "string"),
    (_KINDS.is_large_string, "string"),
    (_KINDS.is_binary, "bytes"),
    (_KINDS.is_large_binary, "bytes"),
    (_KINDS.is_date32, {"type": "int", "logicalType": "date"}),
    (_KINDS.is_time64, {"type": "long", "logicalType": "time-micros"}),
)


def record_text(columns: pa.Schema | pa.StructType, name: str = ROOT) -> bytes:
    """Return the AVRO text of a record whose fields are the given columns.

    Args:
        columns: Names and types.
        name: Of the record.

    Raises:
        InvalidSchemaError: A column has a type that AVRO has not, or a name that it
            does not allow, or that differs from another one's by its case only.
    """
    return json.dumps(
        _record(list(columns), name, "", ""), separators=(",", ":")
    ).encode()


def check_case(names: Iterable[str], where: str = "") -> None:
    """Refuse names that only Spark's setting ``caseSensitive`` tells apart.

    Args:
        names: The fields of one record.
        where: The path of names to the record, for errors.

    Raises:
        InvalidSchemaError: There are two.
    """
    inside = f"{where}." if where else ""
    if twins := same_but_for_case(names):
        first, second = twins
        raise InvalidSchemaError(
            f"`{inside}{first}` and `{inside}{second}` differ by their case only, "
            "which a read with Spark would not tell apart"
        )


def _record(
    fields: list[pa.Field], name: str, namespace: str, where: str
) -> dict[str, Any]:
    check_case((field.name for field in fields), where)
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace:
        record["namespace"] = namespace
    inside = f"{namespace}.{name}" if namespace else name
    record["fields"] = [new_field(child, inside, where) for child in fields]
    return record


def new_field(field: pa.Field, namespace: str, where: str) -> dict[str, Any]:
    """Return the definition of a nullable field for a column.

    Args:
        field: The column.
        namespace: Of the named types within it.
        where: The path of names to the record that it is a field of, for errors.

    Raises:
        InvalidSchemaError: As ``record_text`` does.
    """
    path = f"{where}.{field.name}" if where else field.name
    if not _NAME.fullmatch(field.name):
        raise InvalidSchemaError(
            f"`{path}` is no name that a schema can have: these are of letters, digits "
            "and _, and do not begin with a digit"
        )
    return {
        "name": field.name,
        "type": _nullable(field.type, field.name, namespace, path),
        "default": None,
    }


def _nullable(type_: pa.DataType, name: str, namespace: str, where: str) -> list[Any]:
    return ["null", _type(type_, name, namespace, where)]


def _type(type_: pa.DataType, name: str, namespace: str, where: str) -> Any:
    for is_it, simple in _SIMPLE:
        if is_it(type_):
            return simple
    if _KINDS.is_timestamp(type_):
        form = "local-timestamp-micros" if type_.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": form}
    if _KINDS.is_decimal128(type_):
        return {
            "type": "fixed",
            "name": f"{namespace}.{name}.fixed",
            "size": _size_of(type_.precision),
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if _KINDS.is_struct(type_):
        return _record(list(type_), name, namespace, where)
    if _KINDS.is_list(type_) or _KINDS.is_large_list(type_):
        items = _nullable(type_.value_type, name, namespace, f"{where}[]")
        return {"type": "array", "items": items}
    if _KINDS.is_map(type_) and is_text(type_.key_type):
        items = _nullable(type_.item_type, name, namespace, f"{where}{{}}")
        return {"type": "map", "values": items}
    if _KINDS.is_map(type_):
        raise InvalidSchemaError(
            f"`{where}` is a map whose keys are no text, which AVRO's and JSON's are"
        )
    raise InvalidSchemaError(
        f"`{where}` has the type {sql_type(type_)}, which no schema has"
    )


def is_text(type_: pa.DataType) -> bool:
    """Return whether a column holds text."""
    return bool(_KINDS.is_string(type_) or _KINDS.is_large_string(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a column holds bytes."""
    return bool(_KINDS.is_binary(type_) or _KINDS.is_large_binary(type_))


def _size_of(precision: int) -> int:
    """Return the fewest bytes that hold all numbers of ``precision`` digits."""
    size = 1
    while 10**precision > 1 << (8 * size - 1):
        size += 1
    return size
