# SPDX-License-Identifier: Apache-2.0
"""The columns of queries and writes, against those of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tubemq_spark.errors import SchemaError
from tubemq_spark.options import ClientOptions, WriteOptions
from tubemq_spark.spark.schema import default_schema, read_columns, write_columns

CLIENT = ClientOptions(masters=("master:8715",))


TYPES = {
    "BIGINT": LongType(),
    "BINARY": BinaryType(),
    "DOUBLE": DoubleType(),
    "INT": IntegerType(),
    "MAP": MapType(StringType(), StringType()),
    "STRING": StringType(),
}


def columns(names: str) -> StructType:
    """The columns of rows, each with its type, as SQL has them."""
    pairs = [one.split() for one in names.split(",")]
    return StructType([StructField(name, TYPES[type_]) for name, type_ in pairs])


def written(names: str, **options: object) -> pa.Schema:
    """What is written of such rows, to one topic."""
    given = {"topic": "demo", **options}
    return write_columns(columns(names), WriteOptions(CLIENT, **given))


def refusal(names: str, **options: object) -> str:
    """Why such rows cannot be written."""
    with pytest.raises(SchemaError) as caught:
        written(names, **options)
    return caught.value.message


def test_columns_of_a_read():
    """All but the offset, which has to be asked for."""
    assert default_schema().fieldNames() == [
        "value",
        "__topic",
        "__broker",
        "__partition",
        "__msgType",
        "__msgTime",
        "__attributes",
        "__messageId",
    ]


def test_a_query_chooses():
    """Some of them, in its order, the offset included."""
    found = read_columns(columns("__offset BIGINT, value BINARY"))
    assert found.names == ["__offset", "value"]


def test_a_query_wants_what_there_is_not():
    """It is told which column."""
    with pytest.raises(SchemaError, match="__time"):
        read_columns(columns("value BINARY, __time BIGINT"))


@pytest.mark.parametrize("value", ["STRING", "BINARY"])
def test_what_can_be_written(value: str):
    """A value is enough; with it goes what messages have besides."""
    assert written(f"value {value}").names == ["value"]
    more = (
        f"value {value}, __topic STRING, __broker INT, __partition INT, "
        "__msgType STRING, __msgTime STRING, __attributes MAP"
    )
    assert len(written(more)) == 7


def test_what_a_read_gives_can_be_written():
    """But for what each message gets anew."""
    found = write_columns(default_schema(), WriteOptions(CLIENT))
    assert found.names == [n for n in default_schema().names if n != "__messageId"]


@pytest.mark.parametrize("kind", ["STRING", "BINARY", "BIGINT"])
def test_a_column_chooses_the_partition(kind: str):
    """It is one that the option names, and goes along to the tasks."""
    found = written(f"value STRING, customer {kind}", partition_key="customer")
    assert found.names == ["value", "customer"]


@pytest.mark.parametrize(
    ("names", "options", "part"),
    [
        ("key STRING", {}, "there is no column `value`"),
        ("value INT", {}, "value"),
        ("value STRING, customer STRING", {}, "`customer` cannot be written"),
        ("value STRING, customer DOUBLE", {"partition_key": "customer"}, "customer"),
        *(
            (f"value STRING, {name} BIGINT", {"partition_key": name}, "another name")
            for name in ("__offset", "__messageId")
        ),
        ("value STRING, __broker INT", {}, "there is no column `__partition`"),
        ("value STRING", {"topic": None}, "Set the option `topic`"),
        (
            "value STRING, size INT",
            {"partition_key": "customer"},
            "the column `customer`, which is not there: the rows have value, size.",
        ),
    ],
)
def test_what_cannot_be_written(names: str, options: dict[str, object], part: str):
    """The message names the column, or the option."""
    assert part in refusal(names, **options)
