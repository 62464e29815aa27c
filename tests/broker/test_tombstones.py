# SPDX-License-Identifier: Apache-2.0
"""Null values of typed topics: seen, written, copied, compacted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import official

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

#: A record whose fields are never NULL.
STRICT = (
    '{"type":"record","name":"R","fields":'
    '[{"name":"id","type":"long"},{"name":"name","type":"string"}]}'
)

#: What a copy needs beside the value.
BESIDE = "__key,__tombstone"

#: Keys with ids, in the order of rows; NULL is a tombstone.
HISTORY = [("kept", 1), ("buried", 2), ("buried", None), ("back", None), ("back", 3)]


@pytest.fixture
def topics(admin: Admin, namespace: str) -> tuple[str, str]:
    """A source and its copy."""
    names = f"persistent://{namespace}/rows", f"persistent://{namespace}/copy"
    for name in names:
        admin.create_topic(name)
    return names


def load(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """The rows of a topic."""
    reader = spark.read.format("pulsar").options(**options)
    return reader.option("service.url", url).option("topic", topic).load()


def save(frame: DataFrame, url: str, topic: str, **options: str) -> None:
    """Write rows."""
    writer = frame.write.format("pulsar").mode("append").options(**options)
    writer.option("service.url", url).option("topic", topic).save()


def changes(spark: SparkSession, *columns: str) -> DataFrame:
    """The rows of the history."""
    return (
        spark.createDataFrame(HISTORY, "k STRING, id BIGINT")
        .coalesce(1)
        .selectExpr(*columns, "k AS __key", "id IS NULL AS __tombstone")
    )


def stored(url: str, topic: str, *, compacted: bool = False) -> list[tuple[Any, bool]]:
    """Keys and whether values are null, as the official client reads them.

    A compacted read of that client has an empty row for each message that is gone.
    """
    rows = official.read_back(url, topic, compacted=compacted)
    return [((row.key or b"").decode(), row.value is None) for row in rows if row.key]


def stream(spark: SparkSession, source: str, into: dict[str, str], path: Path) -> None:
    """Copy a topic as a stream, each row exactly once."""
    url = into["service.url"]
    frame = (
        spark.readStream.format("pulsar")
        .option("service.url", url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("metadataColumns", BESIDE)
        .load()
    )
    query = (
        frame.withColumn("__key", frame["__key"].cast("string"))
        .writeStream.format("pulsar")
        .options(**into)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_records(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topics: tuple[str, str],
    tmp_path: Path,
    kind: str,
    mode: str,
) -> None:
    """Compaction removes a key that a row deletes, in a topic and in its copy.

    The fields of such a row are NULL, which the schema does not allow in a record.
    """
    source, target = topics
    admin.add_schema(source, kind, STRICT)
    save(changes(spark, "id", "k AS name"), service_url, source)
    wanted = [(key, number is None) for key, number in HISTORY]
    assert stored(service_url, source) == wanted
    frame = load(spark, service_url, source, metadataColumns=BESIDE)
    found = [(row["id"], row["__tombstone"]) for row in frame.collect()]
    assert found == [(number, number is None) for _, number in HISTORY]
    if mode == "batch":
        keyed = frame.withColumn("__key", frame["__key"].cast("string"))
        save(keyed, service_url, target, schemaTopic=source)
    else:
        into = {"service.url": service_url, "topic": target, "schemaTopic": source}
        stream(spark, source, into, tmp_path)
    assert stored(service_url, target) == wanted
    for topic in topics:
        admin.compact(topic)
        left = stored(service_url, topic, compacted=True)
        assert left == [("kept", False), ("back", False)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
@pytest.mark.parametrize("encoding", ["SEPARATED", "INLINE"])
def test_pairs(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    topics: tuple[str, str],
    encoding: str,
    guarantee: str,
) -> None:
    """A key outside the value stays; a pair within the value is NULL as a whole."""
    _, topic = topics
    if guarantee == "idempotent":
        admin.set_deduplication(namespace, enabled=True)
    rows = changes(spark, "k AS key", "STRUCT(7 AS a) AS value")
    if encoding == "SEPARATED":
        rows = rows.drop("__key")
    options = {"deliveryGuarantee": guarantee, "keyValueEncodingType": encoding}
    save(rows, service_url, topic, schemaType="key_value", **options)
    wanted = [(key, number is None) for key, number in HISTORY]
    if encoding == "SEPARATED":  # bytes, which are sent as base64
        wanted = [(base64.b64encode(k.encode()).decode(), none) for k, none in wanted]
    assert stored(service_url, topic) == wanted
    columns = "key STRING, value STRUCT<a: INT>, __tombstone BOOLEAN"
    reader = spark.read.format("pulsar").schema(columns)
    frame = reader.option("service.url", service_url).option("topic", topic).load()
    assert [(row[0], row[1] and row[1][0], row[2]) for row in frame.collect()] == [
        (
            key if encoding == "SEPARATED" or number else None,
            7 if number else None,
            number is None,
        )
        for key, number in HISTORY
    ]


@pytest.mark.parametrize("column", ["'7'", "7L", "CAST('7' AS BINARY)"])
def test_single_columns(
    spark: SparkSession, service_url: str, topics: tuple[str, str], column: str
) -> None:
    """A value beside ``__tombstone`` is not looked at."""
    _, topic = topics
    save(changes(spark, f"{column} AS value"), service_url, topic)
    wanted = [(key, number is None) for key, number in HISTORY]
    assert stored(service_url, topic) == wanted


def test_bytes_without_a_version(
    spark: SparkSession, service_url: str, admin: Admin, topics: tuple[str, str]
) -> None:
    """Bytes are copied with null values of a producer that knows no schema."""
    source, target = topics
    admin.add_schema(source, "AVRO", STRICT)
    rows = changes(spark, "id", "k AS name")
    save(rows.where("NOT __tombstone"), service_url, source)
    official.produce(service_url, source, [official.Message(None, key="buried")])
    frame = load(
        spark,
        service_url,
        source,
        allowDifferentTopicSchemas="true",
        metadataColumns=f"{BESIDE},__schemaVersion",
    )
    keyed = frame.withColumn("__key", frame["__key"].cast("string"))
    save(keyed, service_url, target, schemaTopic=source)
    assert stored(service_url, target) == stored(service_url, source)
    assert stored(service_url, target)[-1] == ("buried", True)
