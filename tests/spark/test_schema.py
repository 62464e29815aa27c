# SPDX-License-Identifier: Apache-2.0
"""Which columns are accepted for writing, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from pulsar_spark.arrow.values.encoders import new_schema
from pulsar_spark.columns import COLUMNS, METADATA_COLUMNS_ALL, WRITE
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import WriteOptions, parse_write_options
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.sink.schemas import value_columns
from pulsar_spark.source.plan.query_schema import QuerySchema, value_columns_of
from pulsar_spark.spark.schema import spark_schema, write_columns
from spark_topics import statistics

TYPES: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "BIGINT": LongType(),
    "DATE": DateType(),
    "DOUBLE": DoubleType(),
    "INT": IntegerType(),
    "MAP<INT,STRING>": MapType(IntegerType(), StringType()),
    "MAP<STRING,INT>": MapType(StringType(), IntegerType()),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
    "SMALLINT": ShortType(),
    "STRING": StringType(),
    "STRUCT<>": StructType([]),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "TINYINT": ByteType(),
    "VOID": NullType(),
}


def schema_of(columns: str) -> StructType:
    """Columns as in DDL, without asking Spark, which would have to run."""
    pairs = [column.split() for column in columns.split(", ")]
    return StructType([StructField(name, TYPES[type_]) for name, type_ in pairs])


def options(**given: str) -> WriteOptions:
    """Options of a batch write; ``topic="-"`` leaves the topic out."""
    named = {"service.url": "pulsar://127.0.0.1:1", "topic": "t", **given}
    if named["topic"] == "-":
        del named["topic"]
    return parse_write_options(named, streaming=False)


def problems(schema: str, **given: str) -> str:
    """What is wrong with rows of this schema."""
    with pytest.raises(SchemaError) as caught:
        write_columns(schema_of(schema), options(**given))
    return caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        "value BINARY",
        "value STRING",
        "__key STRING, value BINARY",
        "value BINARY, __key BINARY, __orderingKey STRING",
        "value BINARY, __eventTime TIMESTAMP, __deliverAtTime TIMESTAMP",
        "value BINARY, __eventTime BIGINT",
        "value BINARY, __messageProperties MAP<STRING,STRING>",
        "value BINARY, __partition TINYINT, __topic STRING",
        "value BINARY, __partition SMALLINT",
        "value BINARY, __partition INT",
        "value BINARY, __partition BIGINT",
    ],
)
def test_what_can_be_written(schema: str):
    """Each column with each of its types, in any order."""
    write_columns(schema_of(schema), options())


def test_columns_of_a_read(caplog: pytest.LogCaptureFixture):
    """What only a read has is left out, whatever values are, with one warning."""
    statistics._warnings.clear()
    schema = spark_schema(("value", *METADATA_COLUMNS_ALL))
    for _ in range(2):
        for schema_type in "auto", "bytes", "avro":
            columns = write_columns(schema, options(schemaType=schema_type))
            assert set(columns.names) == set(WRITE)
    (record,) = caplog.records
    named = record.getMessage().rpartition(": ")[2].split(", ")
    assert {*named, *WRITE} == {"value", *METADATA_COLUMNS_ALL}
    assert not {*named} & {*WRITE}


def test_bytes_with_the_schema_of_another_topic():
    """The version that each was written with stays beside them, or is asked for."""
    to = options(schemaTopic="s")
    schema = spark_schema(("value", *METADATA_COLUMNS_ALL))
    assert "__schemaVersion" in write_columns(schema, to).names
    assert "__schemaVersion" not in write_columns(schema, options()).names
    typed = schema_of("id BIGINT, value BINARY, __schemaVersion BIGINT")
    assert write_columns(typed, to).names == ["id", "value"]
    text = problems("value BINARY, __key BINARY", schemaTopic="s")
    assert "need `__schemaVersion` beside them" in text


@pytest.mark.parametrize("name", ["__KEY", "__eventtime", "__MessageProperties"])
def test_spelling(name: str):
    """Spark's SQL does not tell cases apart: what is meant is named."""
    spelt = next(column for column in WRITE if column.lower() == name.lower())
    text = problems(f"value BINARY, {name} BINARY")
    assert f"`{name}` is spelt `{spelt}` (rename it before)" in text
    assert "`VALUE` is spelt `value`" in problems("VALUE BINARY", schemaType="bytes")


@pytest.mark.parametrize("given", [{"schemaType": "json"}, {"schemaTopic": "s"}, {}])
def test_a_misspelt_column_is_no_field(given: dict[str, str]):
    """Also not where options say what the value is."""
    text = problems("id INT, __KEY STRING, __eventtime STRING", **given)
    assert "`__KEY` is spelt `__key` (rename it before)" in text
    assert "`__eventtime` is spelt `__eventTime` (rename it before)" in text


_NAMES = st.sampled_from([*(column.name for column in COLUMNS), "__op", "_a", "b"])


@given(
    names=st.lists(
        st.tuples(_NAMES, st.sampled_from([str, str.upper, str.lower, str.title])),
        max_size=4,
    ),
    schema_type=st.sampled_from(["auto", "avro", "json"]),
)
def test_a_topic_of_written_rows_can_be_read(
    names: list[tuple[str, Callable[[str], str]]], schema_type: str
):
    """Whatever columns a write takes, no read refuses the topic that they make."""
    fields = [StructField(spell(name), StringType()) for name, spell in names]
    numbers = [StructField(name, IntegerType()) for name in ("id", "n")]
    schema = StructType([*numbers, *fields])
    try:
        columns = write_columns(schema, options(schemaType=schema_type))
        written = value_columns(columns)
        info = new_schema(written, schema_type, "INLINE")
    except (SchemaError, InvalidSchemaError):
        return
    assert info is not None
    read_columns = value_columns_of(QuerySchema("t", info))
    assert read_columns is not None
    assert read_columns.names == written.names


def test_fields_that_look_like_special_columns():
    """Debezium's are written where an option says what the value is; others, told."""
    schema = schema_of("id INT, __op STRING")
    for told in ({"schemaType": "avro"}, {"schemaTopic": "s"}):
        assert write_columns(schema, options(**told)).names == ["id", "__op"]
    text = problems("id INT, __op STRING")
    assert (
        "`__op` cannot be written (drop it before, or set schemaType if it is a field"
        in text
    )


def test_the_topic_column_of_kafka():
    """Who names topics as for Kafka learns what the column is called here."""
    text = problems("value BINARY, topic STRING", topic="-")
    assert "add `__topic` (rename Kafka's columns: " in text
    assert "topic to __topic" in text


def test_topics_of_rows():
    """Without the option the column says the topic."""
    schema = schema_of("value BINARY, __topic STRING")
    write_columns(schema, options(topic="-"))
    text = problems("value BINARY", topic="-")
    assert "set the option `topic`, or add `__topic`" in text


def test_no_value():
    """One column at least is part of it."""
    assert "no column `value`" in problems("__key STRING")


@pytest.mark.parametrize(
    ("column", "parts"),
    [
        (
            "__keys STRING",
            ("`__keys` cannot be written (drop it before, or",),
        ),
        ("__messageId STRING", ("`__messageId` cannot be written",)),
        ("__publishTime BIGINT", ("`__publishTime` cannot be written",)),
        ("__producerName INT", ("`__producerName` cannot be written (drop",)),
        ("__sequenceId STRING", ("`__sequenceId` cannot be written (drop it",)),
        ("__key INT", ("`__key` is int, not string or binary (cast it before)",)),
        ("__orderingKey BIGINT", ("`__orderingKey` is bigint, not binary or string",)),
        ("__eventTime DOUBLE", ("`__eventTime` is double, not timestamp or bigint",)),
        ("__eventTime TIMESTAMP_NTZ", ("is timestamp_ntz, not timestamp or bigint",)),
        ("__deliverAtTime DATE", ("`__deliverAtTime` is date, not timestamp",)),
        ("__partition STRING", ("`__partition` is string, not int",)),
        ("__topic BINARY", ("`__topic` is binary, not string",)),
        (
            "__messageProperties MAP<STRING,INT>",
            ("is map<string,int>, not map<string,string>",),
        ),
        ("__messageProperties MAP<INT,STRING>", ("not map<string,string>",)),
        ("__messageProperties STRING", ("is string, not map<string,string>",)),
        ("__key MAP<STRING,STRING>", ("is map<string,string>, not string or",)),
        ("value STRING", ("`value` comes twice",)),
    ],
)
def test_what_cannot(column: str, parts: tuple[str, ...]):
    """The column is named, with what to do, and all that can be written."""
    text = problems(f"value BINARY, {column}")
    for part in (*parts, "value, __key, __orderingKey, __eventTime"):
        assert part in text
    assert text.count(";") == 0


def test_a_value_of_another_type():
    """As bytes, numbers are not written as whatever text they have."""
    text = problems("value INT", schemaType="bytes")
    assert "`value` is int, not binary or string" in text
    assert "`value` is struct<>" in problems("value STRUCT<>", schemaType="bytes")
    assert "`a` cannot be written" in problems("value INT, a INT", schemaType="bytes")


def test_columns_of_the_value():
    """All others are parts of the value, whatever their types."""
    columns = write_columns(schema_of("a INT, value STRING, __key STRING"), options())
    assert columns.names == ["a", "value", "__key"]
    named = options(schemaType="avro")
    assert write_columns(schema_of("__op STRING"), named).names == ["__op"]


@pytest.mark.parametrize(
    ("type_", "part"),
    [
        (DayTimeIntervalType(), "`a` is interval day to second"),
        (YearMonthIntervalType(), "`a` is interval year to month"),
        (VariantType(), "`a` is variant"),
        (NullType(), "`a` is void"),
        (MapType(IntegerType(), StringType()), "`a` is a map whose keys are no text"),
        (ArrayType(VariantType()), "`a[]` is variant"),
        (MapType(StringType(), NullType()), "`a{}` is void"),
        (StructType().add("b", NullType()), "`a.b` is void"),
        (StructType().add("b", IntegerType()).add("b", IntegerType()), "of one name"),
    ],
)
def test_types_that_no_schema_has(type_: DataType, part: str):
    """Each is named, however deep it is."""
    with pytest.raises(SchemaError) as caught:
        write_columns(StructType().add("a", type_), options())
    assert part in caught.value.message


def test_all_problems_at_once():
    """Nobody has to mend them one run at a time."""
    text = problems("__a INT, b VOID, __key INT, __key INT", topic="-")
    for part in ("`__topic`", "`__a`", "`b` is void", "`__key` is", "comes twice"):
        assert part in text
