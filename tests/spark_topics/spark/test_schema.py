# SPDX-License-Identifier: Apache-2.0
"""Columns that are asked for, and rows that are to be written."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from spark_topics.columns import ColumnType, Read, Write
from spark_topics.spark.schema import read_schema, spark_schema, write_schema
from tests.spark_topics.numbers import NUMBERS, SchemaError

READ = {
    "value": Read(ColumnType.BINARY),
    "__topic": Read(ColumnType.STRING, never_null=True),
    "__time": Read(ColumnType.TIMESTAMP),
    "__tags": Read(ColumnType.STRING_MAP),
}
WRITE = {
    "value": Write(1, (ColumnType.BINARY, ColumnType.STRING), "The value."),
    "__topic": Write(2, (ColumnType.STRING,), "Where to."),
    "__tags": Write(3, (ColumnType.STRING_MAP,), "Tags."),
}


TYPES = {
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "MAP": MapType(StringType(), IntegerType()),
    "STRICT": MapType(StringType(), StringType(), valueContainsNull=False),
}


def schema(text: str) -> StructType:
    """Columns much as SQL has them, without Spark's parser, which is in the JVM."""
    made = StructType()
    for column in filter(None, text.split(", ")):
        name, type_, *not_null = column.split()
        made.add(name, TYPES[type_], nullable=not not_null)
    return made


def test_what_a_read_gives_can_be_asked_for() -> None:
    """All of it, in any order; types are those that Spark expects."""
    names = ["__time", "value", "__tags", "__topic"]
    found = read_schema(spark_schema(names, READ), READ, NUMBERS)
    assert found.names == names
    assert found.field("__time").type == pa.timestamp("us", tz="UTC")
    assert read_schema(schema("__topic STRING NOT NULL"), READ, NUMBERS) == pa.schema(
        [pa.field("__topic", pa.string(), nullable=False)]
    )


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("other INT", "there is no column `other`"),
        ("value STRING", "`value` is binary, not string"),
        ("value BINARY NOT NULL", "`value` may be NULL"),
        ("__tags STRICT", "`__tags` may have NULL in it"),
        ("value BINARY, value BINARY", "`value` comes twice"),
        ("", "it has no column"),
    ],
)
def test_columns_that_there_are_not(columns: str, problem: str) -> None:
    """The error names what there is."""
    with pytest.raises(SchemaError, match=rf"{problem}.*columns value, __topic"):
        read_schema(schema(columns), READ, NUMBERS)


def test_what_was_read_can_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """Columns that only a read has are left out, with one warning."""
    rows = spark_schema(list(READ), READ)
    read_only = {"__time": READ["__time"]}
    with caplog.at_level(logging.WARNING, "numbers_spark.spark"):
        for _ in range(2):
            found = write_schema(
                rows, WRITE, NUMBERS, required=["value"], read_only=read_only
            )
    assert found.names == ["value", "__topic", "__tags"]
    assert len(caplog.messages) == 1
    assert "__time" in caplog.messages[0]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("__topic STRING", "there is no column `value`"),
        ("value BINARY, other INT", "`other` cannot be written"),
        ("value INT", "`value` is int, not binary or string"),
        ("value BINARY, __tags MAP", "`__tags` is map<string,int>, not"),
        ("value BINARY, value STRING", "`value` comes twice"),
        ("value BINARY, __time STRING", "`__time` cannot be written"),
    ],
)
def test_rows_that_cannot_be_written(columns: str, problem: str) -> None:
    """The error names what can."""
    with pytest.raises(SchemaError, match=rf"{problem}.*written is value, __topic"):
        write_schema(
            schema(columns),
            WRITE,
            NUMBERS,
            required=["value"],
            read_only={"__time": READ["__time"]},
        )
