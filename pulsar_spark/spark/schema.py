# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic as Spark types, for reads and for writes. Driver side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.columns import READ, TOPIC, VALUE, WRITE, ColumnType
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import WriteOptions

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the Spark schema with these columns."""
    return from_arrow_schema(arrow_schema(columns))


def checked_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark expects its RecordBatches.

    Args:
        schema: Any choice of a topic's columns in any order.

    Raises:
        SchemaError: A column does not exist, has another type, comes twice, or is
            declared NOT NULL though messages may lack it; or there is no column at all.
            Lists all problems.
    """
    known = spark_schema(list(COLUMN_TYPES))
    problems = [] if schema.fields else ["it has no column"]
    for field in schema.fields:
        if field.name not in COLUMN_TYPES:
            problems.append(f"there is no column `{field.name}`")
        elif field.dataType != known[field.name].dataType:
            problems.append(
                f"`{field.name}` is {known[field.name].dataType.simpleString()}, not "
                f"{field.dataType.simpleString()} (cast it after reading)"
            )
        elif not field.nullable and not READ[field.name].never_null:
            problems.append(f"`{field.name}` may be NULL, so it cannot be NOT NULL")
    problems += _repetitions(schema)
    if problems:
        raise SchemaError(
            f"The schema asked for does not fit a Pulsar topic: {'; '.join(problems)}. "
            f"Choose among the columns {', '.join(COLUMN_TYPES)}."
        )
    return pa.schema(
        [pa.field(f.name, COLUMN_TYPES[f.name], f.nullable) for f in schema.fields]
    )


def check_write_schema(schema: StructType, options: WriteOptions) -> None:
    """Return if rows of this schema can be written.

    Raises:
        SchemaError: ``value`` is missing, or what says the topic is; a column is
            unknown, comes twice or has a wrong type. Lists all problems.
    """
    names = schema.fieldNames()
    problems = []
    if VALUE not in names:
        problems.append(f"there is no column `{VALUE}`")
    if options.topic is None and TOPIC not in names:
        problems.append(
            f"nothing says the topic: set the option `topic`, or add `{TOPIC}`"
        )
    for field in schema.fields:
        if field.name not in WRITE:
            problems.append(f"`{field.name}` cannot be written (drop it before)")
            continue
        types = WRITE[field.name].types
        if not any(_CHECKS[type_](field.dataType) for type_ in types):
            problems.append(
                f"`{field.name}` is {field.dataType.simpleString()}, not "
                f"{' or '.join(type_.simple_string for type_ in types)} (cast it "
                "before)"
            )
    problems += _repetitions(schema)
    if problems:
        raise SchemaError(
            f"These rows cannot be written to Pulsar: {'; '.join(problems)}. Columns "
            f"that can be written are {', '.join(WRITE)}."
        )


def _repetitions(schema: StructType) -> list[str]:
    names = schema.fieldNames()
    return [
        f"`{name}` comes twice" for name in sorted(set(names)) if names.count(name) > 1
    ]


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda found: isinstance(found, types)


def _is_string_map(found: DataType) -> bool:
    return (
        isinstance(found, MapType)
        and isinstance(found.keyType, StringType)
        and isinstance(found.valueType, StringType)
    )


#: Which of Spark's types a column of a write may have for each of ours.
_CHECKS: dict[ColumnType, Callable[[DataType], bool]] = {
    ColumnType.BINARY: _is(BinaryType),
    ColumnType.STRING: _is(StringType),
    ColumnType.INT: _is(*_INTEGERS),
    ColumnType.BIGINT: _is(*_INTEGERS),
    ColumnType.TIMESTAMP: _is(TimestampType),
    ColumnType.STRING_MAP: _is_string_map,
}
