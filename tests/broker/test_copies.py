# SPDX-License-Identifier: Apache-2.0
"""Rows that are read are written as they are: copies of topics with their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import official
from tests.support.official import Message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.admin import Admin

#: Only a write says these, or nobody: they are another's in a copy.
NEW = ("__topic", "__messageId", "__publishTime")

MESSAGES = [
    Message(
        f"value {i}".encode() if i % 7 else b"",
        key=None if i % 5 == 0 else f"key-{i % 11}",
        properties={"n": str(i), "ü": "é"} if i % 3 else {},
        event_time_ms=None if i % 4 == 0 else 1_760_000_000_000 + i,
        ordering_key=None if i % 2 else f"o{i}",
    )
    for i in range(200)
]


@pytest.fixture
def topics(admin: Admin, namespace: str) -> tuple[str, str]:
    """A source and its copy, which has the same partitions."""
    names = f"persistent://{namespace}/rows", f"persistent://{namespace}/copy"
    for name in names:
        admin.create_partitioned(name, 3)
    return names


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """All rows of a topic."""
    reader = spark.read.format("pulsar").options(**options)
    return reader.option("service.url", url).option("topic", topic).load()


def rows_of(frame: DataFrame, leave_out: Iterable[str] = NEW) -> list[Any]:
    """The rows of a topic but for what is new in a copy, in an order of their own."""
    return sorted(map(repr, frame.drop(*leave_out).collect()))


@pytest.mark.parametrize("columns", ["default", "all"])
def test_a_batch(
    spark: SparkSession, service_url: str, topics: tuple[str, str], columns: str
) -> None:
    """What a read gives is written, but for columns that only a read has."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    chosen = {"metadataColumns": "all"} if columns == "all" else {}
    frame = read(spark, service_url, source, **chosen)
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": copy}
    ).save()
    before, after = (
        rows_of(read(spark, service_url, name, metadataColumns=ONLY_WRITTEN))
        for name in topics
    )
    assert len(after) == len(MESSAGES)
    if columns == "all":
        assert after == before  # the partition of each row among them
    else:
        without = "__partition", "__orderingKey", "__deliverAtTime"
        before, after = (
            rows_of(
                read(spark, service_url, name, metadataColumns=ONLY_WRITTEN), without
            )
            for name in topics
        )
        assert after == before


#: What a write takes, but for the topic.
ONLY_WRITTEN = (
    "__key,__eventTime,__messageProperties,__partition,__orderingKey,__deliverAtTime"
)


def test_a_stream(
    spark: SparkSession, service_url: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    """From load() to start() with nothing between."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    query = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    before, after = (rows_of(read(spark, service_url, name)) for name in topics)
    assert after == before
    assert len(after) == len(MESSAGES)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "KEY_VALUE"])
def test_a_typed_topic(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topics: tuple[str, str],
    kind: str,
) -> None:
    """Its columns are written by the schema of the copy, which has the same one."""
    source, copy = topics
    if kind == "KEY_VALUE":
        frame = spark.range(50).selectExpr(
            "STRUCT(id AS k) AS key", "STRUCT(id AS v, STRING(id) AS s) AS value"
        )
    else:
        frame = spark.range(50).selectExpr("id", "STRING(id) AS s", "id / 3 AS third")
    target = {"service.url": service_url, "schemaType": kind.lower()}
    frame.write.format("pulsar").mode("append").options(**target, topic=source).save()
    nothing = frame.where("false")
    nothing.write.format("pulsar").mode("append").options(**target, topic=copy).save()
    rows = read(spark, service_url, source)
    plain = {"service.url": service_url, "topic": copy}
    rows.write.format("pulsar").mode("append").options(**plain).save()
    assert rows_of(read(spark, service_url, copy)) == rows_of(rows)
    assert rows.count() == 50
    assert admin.schema(copy)["type"] == kind
    assert admin.schema_versions(copy) == 1


def test_a_typed_topic_into_a_new_one(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """Without a schema there, it gets one of the columns: types and rows are kept."""
    source, copy = topics
    frame = spark.range(50).selectExpr("id", "STRING(id) AS s", "id / 3 AS third")
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": source}
    ).save()
    rows = read(spark, service_url, source)
    rows.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": copy}
    ).save()
    found = read(spark, service_url, copy)
    assert found.schema == rows.schema
    assert rows_of(found) == rows_of(rows)


def test_event_times_in_milliseconds(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """A column of BIGINT, as the Scala connector takes it, too."""
    source, _ = topics
    frame = spark.range(1, 20).selectExpr(
        "STRING(id) AS value", "1760000000000 + id AS __eventTime"
    )
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": source}
    ).save()
    stored = official.read_back(service_url, source, partitions=3)
    assert sorted((int(row.value or b""), row.event_time_ms) for row in stored) == [
        (i, 1_760_000_000_000 + i) for i in range(1, 20)
    ]


def test_a_copy_without_limits(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """Zeros of Java's client, and one set of options for both directions."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    shared = {
        "service.url": service_url,
        "pulsar.client.memoryLimitBytes": "0",
        "pulsar.producer.batchingMaxMessages": "0",
        "pulsar.producer.batchingMaxBytes": "0",
        "pulsar.reader.maxPendingChunkedMessage": "0",
        "startingOffsets": "earliest",
        "deliveryGuarantee": "at-least-once",
    }
    frame = spark.read.format("pulsar").options(**shared, topic=source).load()
    frame.write.format("pulsar").mode("append").options(**shared, topic=copy).save()
    assert rows_of(read(spark, service_url, copy)) == rows_of(frame)
