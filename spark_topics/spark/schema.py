# SPDX-License-Identifier: Apache-2.0
"""Columns of a table of columns as Spark types, for reads and for writes. Driver side.

For topics whose values are bytes, or columns of their own that are always the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_topics.arrow.types import ARROW_TYPES
from spark_topics.columns import ColumnType, Read, Write
from spark_topics.statistics import warn_once
from spark_topics.system import System

INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def spark_schema(names: Sequence[str], columns: Mapping[str, Read]) -> StructType:
    """Return the Spark schema of a read; all columns are nullable.

    Args:
        names: The columns wanted, in order.
        columns: What there is.
    """
    fields = [pa.field(name, ARROW_TYPES[columns[name].type]) for name in names]
    return struct_type(pa.schema(fields))


def struct_type(schema: pa.Schema) -> StructType:
    """Return Spark's type of the rows of an Arrow schema.

    Timestamps without a time zone become TIMESTAMP_NTZ on each release of Spark.
    """
    # Before 4.2, Spark takes them for instants unless it is told.
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def read_schema(
    schema: StructType, columns: Mapping[str, Read], system: System
) -> pa.Schema:
    """Return the Arrow schema in which Spark expects the RecordBatches of a read.

    Args:
        schema: Any choice of columns in any order.
        columns: What there is.
        system: Whose topics they are.

    Raises:
        SchemaError: A column is unknown, has another type, comes twice, or is declared
            NOT NULL though messages may lack it; or there is none. Lists all problems;
            of the system's own class.
    """
    problems = [] if schema.fields else ["it has no column"]
    for field in schema.fields:
        column = columns.get(field.name)
        if column is None:
            problems.append(f"there is no column `{field.name}`")
            continue
        type_name = field.dataType.simpleString()
        if type_name != column.type.simple_string:
            problems.append(
                f"`{field.name}` is {column.type.simple_string}, not {type_name} (cast"
                " it after reading)"
            )
        elif problem := null_problem(field, ARROW_TYPES[column.type]):
            problems.append(problem)
        if not (field.nullable or column.never_null):
            problems.append(f"`{field.name}` may be NULL, so it cannot be NOT NULL")
    problems += repetitions(schema)
    if problems:
        raise system.schema_error(
            f"The schema asked for does not fit topics of {system.name}: "
            f"{'; '.join(problems)}. They have the columns {', '.join(columns)}."
        )
    return pa.schema(
        [
            pa.field(field.name, ARROW_TYPES[columns[field.name].type], field.nullable)
            for field in schema.fields
        ]
    )


def write_schema(
    schema: StructType,
    columns: Mapping[str, Write],
    system: System,
    *,
    required: Collection[str] = (),
    read_only: Mapping[str, Read] | None = None,
) -> pa.Schema:
    """Return the Arrow columns of the rows to write.

    Args:
        schema: The columns of the rows.
        columns: What can be written.
        system: Where to.
        required: Columns that there must be.
        read_only: What a read gives and a write cannot take: it is left out, with a
            warning, so that what a read gives can be written as it is.

    Raises:
        SchemaError: A column is missing, unknown, comes twice, or has a type that
            cannot be written. Lists all problems; of the system's own class.
    """
    skipped = read_only or {}
    left_out = [
        field_.name
        for field_ in schema.fields
        if field_.name in skipped
        and field_.dataType.simpleString() == skipped[field_.name].type.simple_string
    ]
    schema = StructType(
        [field_ for field_ in schema.fields if field_.name not in left_out]
    )
    names = schema.fieldNames()
    problems = [
        f"there is no column `{name}`" for name in required if name not in names
    ]
    for field in schema.fields:
        column = columns.get(field.name)
        if column is None:
            problems.append(f"`{field.name}` cannot be written (drop it before)")
        elif problem := type_problem(field.name, field.dataType, column.types):
            problems.append(problem)
    problems += repetitions(schema)
    if problems:
        raise system.schema_error(
            f"These rows cannot be written to {system.name}: {'; '.join(problems)}. "
            f"What can be written is {', '.join(columns)}."
        )
    if left_out:
        warn_once(
            system.logger("spark"),
            "Read-only columns are ignored in a write: "
            f"{', '.join(left_out)}. Each message gets values of its own.",
        )
    return to_arrow(schema)


def type_problem(name: str, found: DataType, types: Sequence[ColumnType]) -> str:
    """Return why a column cannot have a type, "" if the type fits.

    Args:
        name: Of the column.
        found: Its type.
        types: Those that it may have.
    """
    if any(_CHECKS[type_](found) for type_ in types):
        return ""
    return (
        f"`{name}` is {found.simpleString()}, not "
        f"{' or '.join(type_.simple_string for type_ in types)} (cast it before)"
    )


def null_problem(field: StructField, type_: pa.DataType) -> str:
    """Return why a column's parts cannot be NOT NULL, "" where they may be NULL.

    Args:
        field: The column, of the right type but for that.
        type_: The type in a read, whose parts may be NULL.
    """
    if to_arrow(StructType([field])).field(0).type == type_:
        return ""
    return f"`{field.name}` may have NULL in it, so nothing in it can be NOT NULL"


def repetitions(schema: StructType) -> list[str]:
    """Return a problem for each column that comes twice."""
    names = schema.fieldNames()
    return [
        f"`{name}` comes twice" for name in sorted(set(names)) if names.count(name) > 1
    ]


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow columns of a Spark schema, times in UTC."""
    # Spark 4.1 knows no other zone.
    zone: dict[str, Any] = {}
    if "timezone" in _TO_ARROW.parameters:
        zone["timezone"] = "UTC"
    return to_arrow_schema(schema, **zone)


_TO_ARROW = inspect.signature(to_arrow_schema)


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda found: isinstance(found, types)


def _is_map(value: type[DataType]) -> Callable[[DataType], bool]:
    return lambda found: (
        isinstance(found, MapType)
        and isinstance(found.keyType, StringType)
        and isinstance(found.valueType, value)
    )


#: Which of Spark's types a column of a write may have for each of ours.
_CHECKS: dict[ColumnType, Callable[[DataType], bool]] = {
    ColumnType.BINARY: _is(BinaryType),
    ColumnType.STRING: _is(StringType),
    ColumnType.BOOLEAN: _is(BooleanType),
    ColumnType.INT: _is(*INTEGERS),
    ColumnType.BIGINT: _is(*INTEGERS),
    ColumnType.TIMESTAMP: _is(TimestampType),
    ColumnType.STRING_MAP: _is_map(StringType),
    ColumnType.BINARY_MAP: _is_map(BinaryType),
}
