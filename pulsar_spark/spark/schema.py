# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic as Spark types, for reads and for writes. Driver side."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.columns import (
    COLUMNS,
    METADATA_COLUMNS_ALL,
    READ,
    READ_ONLY,
    SCHEMA_VERSION,
    TOMBSTONE,
    TOPIC,
    VALUE,
    WRITE,
    renamed_from_kafka,
    spelling,
)
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import ReadOptions, WriteOptions
from pulsar_spark.system import warn_once
from spark_topics.spark.schema import (
    INTEGERS,
    null_problem,
    repetitions,
    struct_type,
    to_arrow,
    type_problem,
)

#: Names with a meaning of their own, in reads or in writes.
_KNOWN = frozenset(column.name for column in COLUMNS)

#: What a schema of Pulsar's can have in it, but for what holds other types.
_WRITABLE: tuple[type[DataType], ...] = (
    *INTEGERS,
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
    """Return the Spark schema of topics without a schema."""
    return struct_type(arrow_schema(columns))


def schema_of_values(values: pa.Schema | None, options: ReadOptions) -> StructType:
    """Return the columns of a query that the user did not choose.

    Args:
        values: Those of the topics' schema; None without one.
        options: Which others to add.

    Raises:
        SchemaError: A column of values is called like that of bad values, or Spark does
            not tell the names apart.
    """
    other_names = list(options.metadata_columns)
    if options.allow_different_topic_schemas and SCHEMA_VERSION not in other_names:
        other_names.append(SCHEMA_VERSION)
    if values is None:
        return spark_schema((VALUE, *other_names))
    fields = [*values, *arrow_schema(other_names)]
    corrupt_record = options.corrupt_record_column
    is_permissive = options.mode == "PERMISSIVE"
    for name in values.names:
        is_twin = is_permissive and name.casefold() == corrupt_record.casefold()
        if is_twin or name == corrupt_record:
            raise SchemaError(
                f"`{name}` is a field of the topic's schema, and `{corrupt_record}` is "
                "the column of bad values: give that another name with "
                "`columnNameOfCorruptRecord`."
            )
    if is_permissive:
        fields.append(pa.field(corrupt_record, pa.binary()))
    return struct_type(pa.schema(fields))


def checked_arrow_schema(schema: StructType, options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema that Spark expects of RecordBatches.

    Whether values have the columns that are none of every topic's is checked when the
    topics are asked, see ``source.query_schema``.

    Args:
        schema: Any choice of columns in any order.
        options: What to read.

    Raises:
        SchemaError: A column has another type than every topic gives it, comes twice,
            or is declared NOT NULL though messages may lack it; or there is no column
            at all. Lists all problems.
    """
    known_types = spark_schema(METADATA_COLUMNS_ALL)
    corrupt_record = options.corrupt_record_column
    problems = [] if schema.fields else ["it has no column"]
    for field in schema.fields:
        if field.name == corrupt_record:
            if not isinstance(field.dataType, (BinaryType, StringType)):
                problems.append(
                    f"`{field.name}` is binary or string, not "
                    f"{field.dataType.simpleString()} (it is the column of bad values: "
                    "for a field of the name, give that another name with "
                    "`columnNameOfCorruptRecord`)"
                )
        elif problem := _problem_of_type(field, known_types):
            problems.append(problem)
        if not (field.nullable or _never_null(field.name)):
            problems.append(f"`{field.name}` may be NULL, so it cannot be NOT NULL")
    problems += repetitions(schema)
    problems += filter(
        None, (_twins(item.dataType, item.name) for item in schema.fields)
    )
    names = set(schema.fieldNames())
    if corrupt_record in names and not names - {corrupt_record, *METADATA_COLUMNS_ALL}:
        problems.append(
            f"`{corrupt_record}` is NULL without a column of the value: ask for one"
        )
    if problems:
        raise SchemaError(
            f"The schema asked for does not fit a Pulsar topic: {'; '.join(problems)}. "
            f"Beside those of its values a topic has the columns "
            f"{', '.join(METADATA_COLUMNS_ALL)}."
        )
    return pa.schema(
        [
            pa.field(field.name, COLUMN_TYPES[field.name], field.nullable)
            if field.name in METADATA_COLUMNS_ALL
            else to_arrow(StructType([field])).field(0)
            for field in schema.fields
        ]
    )


def _problem_of_type(field: StructField, known_types: StructType) -> str:
    """Return why a read cannot have a column, "" for no reason."""
    type_name = field.dataType.simpleString()
    if field.name in METADATA_COLUMNS_ALL:
        type_here = known_types[field.name].dataType.simpleString()
        if type_name != type_here:
            return (
                f"`{field.name}` is {type_here}, not {type_name} (cast it after"
                " reading)"
            )
        return null_problem(field, COLUMN_TYPES[field.name])
    try:
        to_arrow(StructType([field]))
    except PySparkTypeError:
        return (
            f"`{field.name}` is {type_name}, which no schema of Pulsar's has (ask for "
            "another type, and cast it after reading)"
        )
    return ""


def _never_null(name: str) -> bool:
    return name in READ and READ[name].never_null


def write_columns(schema: StructType, options: WriteOptions) -> pa.Schema:
    """Return the Arrow columns of the rows to write.

    Those that only a read has are left out, with a warning: so what a read gives can be
    written as it is.

    Raises:
        SchemaError: There is no value, or what says the topic is missing; a column is
            unknown, comes twice or has a type that cannot be written. Lists all
            problems.
    """
    left_out = [
        item.name
        for item in schema.fields
        if item.name in READ_ONLY
        and item.dataType.simpleString() == READ[item.name].type.simple_string
    ]
    problems = []
    copies_bytes = options.schema_topic is not None and _is_bytes(schema, left_out)
    if copies_bytes:
        if SCHEMA_VERSION in left_out:
            left_out.remove(SCHEMA_VERSION)
        else:
            problems.append(
                f"with schemaTopic the bytes in `{VALUE}` need `{SCHEMA_VERSION}` "
                f"beside them, which a read has with `metadataColumns={SCHEMA_VERSION}`"
            )
    schema = StructType([item for item in schema.fields if item.name not in left_out])
    names = schema.fieldNames()
    is_told = options.schema_type != "auto" or options.schema_topic is not None
    other_names = (
        n for n in names if n not in _KNOWN and not _is_typo(n, is_told=is_told)
    )
    if VALUE not in names and not any(other_names):
        beside = f" (`{TOMBSTONE}` needs the topic's columns beside it, as NULLs)"
        problems.append(
            f"there is no column `{VALUE}`, nor another one for the value"
            + beside * (TOMBSTONE in names)
        )
    if options.topic is None and TOPIC not in names:
        problems.append(
            f"nothing says the topic: set the option `topic`, or add `{TOPIC}`"
            + (
                f" (rename Kafka's columns: {renamed_from_kafka(names)})"
                if "topic" in map(str.casefold, names)
                else ""
            )
        )
    for field in schema.fields:
        if copies_bytes and field.name == SCHEMA_VERSION:
            continue
        if problem := _problem(field, options.schema_type, is_told=is_told):
            problems.append(problem)
    problems += repetitions(schema)
    if problems:
        raise SchemaError(
            f"These rows cannot be written to Pulsar: {'; '.join(problems)}. Columns "
            f"with a meaning of their own are {', '.join(WRITE)}: others are fields of "
            "the value."
        )
    if left_out:
        warn_once(
            "These columns of a read are not written, because a broker or a producer"
            f" says them anew of each message: {', '.join(left_out)}"
        )
    return to_arrow(schema)


def _is_bytes(schema: StructType, left_out: Sequence[str]) -> bool:
    """Return whether the value is ``value`` alone, as bytes."""
    values = [
        field
        for field in schema.fields
        if field.name == VALUE or not (field.name in WRITE or field.name in left_out)
    ]
    return [(field.name, field.dataType) for field in values] == [(VALUE, BinaryType())]


def _problem(field: StructField, schema_type: str, *, is_told: bool) -> str:
    """Return why a column cannot be written, "" if writable."""
    name = field.name
    is_typo = _is_typo(name, is_told=is_told)
    is_value = name == VALUE or name not in WRITE
    if name not in WRITE and (name in _KNOWN or is_typo or schema_type == "bytes"):
        if spelt := spelling(name):
            return f"`{name}` is spelt `{spelt}` (rename it before)"
        cure = "drop it before"
        if is_typo:
            cure += ", or set schemaType if it is a field of the value"
        return f"`{name}` cannot be written ({cure})"
    if is_value and schema_type != "bytes":
        return _unwritable(field.dataType, name)
    return type_problem(name, field.dataType, WRITE[name].types)


def _is_typo(name: str, *, is_told: bool) -> bool:
    """Return whether a name looks like a misspelled special column.

    Args:
        name: The name.
        is_told: Whether options say what the value is. Such a value may have fields
            like Debezium's ``__op``, and none that a read would take for a column.
    """
    return name.startswith("__") and (not is_told or spelling(name) != "")


def _unwritable(type_: DataType, where: str) -> str:
    """Return which part of a type no schema has, "" where all can be written."""
    if isinstance(type_, StructType):
        if twins := _twins(type_, where):
            return twins
    elif isinstance(type_, MapType):
        if not isinstance(type_.keyType, StringType):
            return f"`{where}` is a map whose keys are no text (cast it before)"
    elif not isinstance(type_, (ArrayType, *_WRITABLE)):
        return (
            f"`{where}` is {type_.simpleString()}, which no schema of Pulsar's has "
            "(cast it before)"
        )
    parts = (_unwritable(part, path) for part, path in _parts(type_, where))
    return next(filter(None, parts), "")


def _parts(type_: DataType, where: str) -> list[tuple[DataType, str]]:
    """Return the nested types of a type, with their paths."""
    if isinstance(type_, StructType):
        return [(field.dataType, f"{where}.{field.name}") for field in type_.fields]
    if isinstance(type_, ArrayType):
        return [(type_.elementType, f"{where}[]")]
    if isinstance(type_, MapType):
        return [(type_.valueType, f"{where}{{}}")]
    return []


def _twins(type_: DataType, where: str) -> str:
    """Return the path of two equally named fields in a type, "" for none."""
    if isinstance(type_, StructType):
        names = type_.fieldNames()
        if len(set(names)) < len(names):
            return f"`{where}` has two fields of one name"
    parts = (_twins(part, path) for part, path in _parts(type_, where))
    return next(filter(None, parts), "")
