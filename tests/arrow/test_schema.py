# SPDX-License-Identifier: Apache-2.0
"""The columns, in Arrow: exactly what Spark expects for our Spark schema."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.options import parse_read_options

#: The columns of a topic without a schema, with the types of docs/columns.md.
PROMISED = {
    "value": "binary",
    "__key": "binary",
    "__topic": "string",
    "__messageId": "binary",
    "__publishTime": "timestamp",
    "__eventTime": "timestamp",
    "__messageProperties": "map<string,string>",
    "__partition": "int",
    "__orderingKey": "binary",
    "__producerName": "string",
    "__sequenceId": "bigint",
    "__schemaVersion": "bigint",
    "__redeliveryCount": "int",
    "__brokerPublishTime": "timestamp",
    "__index": "bigint",
    "__position": "struct<ledgerId:bigint,entryId:bigint,batchIndex:int>",
    "__replicatedFrom": "string",
    "__deliverAtTime": "timestamp",
    "__tombstone": "boolean",
}


def test_columns():
    """The columns have their order: the value, the Scala connector's, the others."""
    assert list(COLUMN_TYPES) == list(PROMISED)
    assert arrow_schema(list(COLUMN_TYPES)).names == list(PROMISED)


@pytest.mark.parametrize("names", [["value"], ["__key", "value"], list(COLUMN_TYPES)])
def test_choice(names: list[str]):
    """A choice of columns keeps its own order; all may be null."""
    schema = arrow_schema(names)
    assert schema.names == names
    assert all(field.nullable for field in schema)
    assert [field.type for field in schema] == [COLUMN_TYPES[name] for name in names]


def test_unknown_column():
    """A column that does not exist is our own mistake here."""
    with pytest.raises(KeyError):
        arrow_schema(["__nothing"])


def of_spark(schema: Any) -> pa.Schema:
    """The Arrow schema that Spark makes of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark 4.1 knows no other zone.
    known = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(
        schema, **({"timezone": "UTC"} if "timezone" in known else {})
    )


OPTIONS = parse_read_options({"service.url": "pulsar://h:1", "topic": "t"})


class TestBesideSpark:
    """Needs pyspark, but starts nothing."""

    pytest.importorskip("pyspark")

    def test_types(self):
        """In Spark the columns have the promised types."""
        from pulsar_spark.spark.schema import spark_schema

        fields = spark_schema(list(COLUMN_TYPES)).fields
        assert {f.name: f.dataType.simpleString() for f in fields} == PROMISED

    def test_spark_expects_the_same(self):
        """Spark turns our Spark schema into our Arrow schema, nullability included."""
        from pulsar_spark.spark.schema import checked_arrow_schema, spark_schema

        for names in (list(COLUMN_TYPES), list(reversed(COLUMN_TYPES)), ["value"]):
            spark = spark_schema(names)
            expected = of_spark(spark)
            for ours in (arrow_schema(names), checked_arrow_schema(spark, OPTIONS)):
                assert ours.equals(expected, check_metadata=False)
                for mine, its in zip(ours, expected, strict=True):
                    assert mine.nullable == its.nullable
                    assert str(mine.type) == str(its.type)

    def test_not_null(self):
        """NOT NULL is kept where a column never is null."""
        from pyspark.sql.types import StructType

        from pulsar_spark.spark.schema import checked_arrow_schema, spark_schema

        known = spark_schema(["__topic", "value", "__messageProperties"])
        for name in ("__topic", "__messageProperties"):
            known[name].nullable = False
        ours = checked_arrow_schema(StructType(known.fields), OPTIONS)
        assert ours.equals(of_spark(known))
        assert [field.nullable for field in ours] == [False, True, False]


def test_timestamps_are_in_utc():
    """Spark takes microseconds in UTC, whatever the session's zone is."""
    assert COLUMN_TYPES["__publishTime"] == pa.timestamp("us", tz="UTC")
