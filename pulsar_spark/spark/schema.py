# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic as Spark types, for reads and for writes. Driver side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.columns import COLUMNS, READ, TOPIC, VALUE, WRITE, ColumnType
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import WriteOptions

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)

#: Names with a meaning of their own, in reads or in writes.
_KNOWN = frozenset(column.name for column in COLUMNS)

#: What a schema of Pulsar's can have in it, but for what holds other types.
_WRITABLE: tuple[type[DataType], ...] = (
    *_INTEGERS,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    TimestampNTZType,
    TimestampType,
    # Spark 4.0 does not have it.
    *(filter(None, [getattr(types, "TimeType", None)])),
)


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


def write_columns(schema: StructType, options: WriteOptions) -> pa.Schema:
    """Return the columns of rows that are to be written, as Arrow has them.

    Raises:
        SchemaError: There is no value, or what says the topic is missing; a column is
            unknown, comes twice or has a type that cannot be written. Lists all
            problems.
    """
    names = schema.fieldNames()
    problems = []
    if not any(name == VALUE or name not in _KNOWN for name in names):
        problems.append(f"there is no column `{VALUE}`, nor another one for the value")
    if options.topic is None and TOPIC not in names:
        problems.append(
            f"nothing says the topic: set the option `topic`, or add `{TOPIC}`"
        )
    for field in schema.fields:
        if problem := _problem(field, options.schema_type):
            problems.append(problem)
    problems += _repetitions(schema)
    if problems:
        raise SchemaError(
            f"These rows cannot be written to Pulsar: {'; '.join(problems)}. Columns "
            f"with a meaning of their own are {', '.join(WRITE)}: others are fields of "
            "the value."
        )
    return to_arrow_schema(schema, timezone="UTC")


def _problem(field: StructField, schema_type: str) -> str:
    """Return why a column cannot be written, "" if it can."""
    name = field.name
    is_typo = name.startswith("__") and schema_type == "auto"
    is_value = name == VALUE or name not in WRITE
    if name not in WRITE and (name in _KNOWN or is_typo or schema_type == "bytes"):
        return f"`{name}` cannot be written (drop it before)"
    if is_value and schema_type != "bytes":
        return _unwritable(field.dataType, name)
    types = WRITE[name].types
    if any(_CHECKS[type_](field.dataType) for type_ in types):
        return ""
    return (
        f"`{name}` is {field.dataType.simpleString()}, not "
        f"{' or '.join(type_.simple_string for type_ in types)} (cast it before)"
    )


def _unwritable(type_: DataType, where: str) -> str:
    """Return which part of a type no schema has, "" where all can be written."""
    if isinstance(type_, StructType):
        names = type_.fieldNames()
        if len(set(names)) < len(names):
            return f"`{where}` has two fields of one name"
        parts = [(one.dataType, f"{where}.{one.name}") for one in type_.fields]
    elif isinstance(type_, ArrayType):
        parts = [(type_.elementType, f"{where}[]")]
    elif isinstance(type_, MapType):
        if not isinstance(type_.keyType, StringType):
            return f"`{where}` is a map whose keys are no text (cast it before)"
        parts = [(type_.valueType, f"{where}{{}}")]
    elif isinstance(type_, _WRITABLE):
        return ""
    else:
        return (
            f"`{where}` is {type_.simpleString()}, which no schema of Pulsar's has "
            "(cast it before)"
        )
    return next(filter(None, (_unwritable(one, path) for one, path in parts)), "")


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
