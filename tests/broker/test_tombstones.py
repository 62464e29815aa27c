# SPDX-License-Identifier: Apache-2.0
"""Null values of typed topics: seen, written, copied, compacted."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark import PulsarDataSource
from tests.support import official, reading, writes

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


def changes(*, beside: bool = True, **columns: Any) -> pa.RecordBatch:
    """The rows of the history, with what they are written with beside the value."""
    if beside:
        columns["__key"] = [key for key, _ in HISTORY]
    columns["__tombstone"] = [number is None for _, number in HISTORY]
    return pa.record_batch(columns)


#: What a record has in each row.
RECORDS = {
    "id": pa.array([number for _, number in HISTORY], pa.int64()),
    "name": [key for key, _ in HISTORY],
}

#: What is stored of the history.
STORED = [(key, number is None) for key, number in HISTORY]


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
def test_records(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    topics: tuple[str, str],
    tmp_path: Path,
    kind: str,
) -> None:
    """Compaction removes a key that a row deletes, in a topic and in its copies.

    The fields of such a row are NULL, which the schema does not allow in a record.
    """
    source, copy = topics
    streamed = f"persistent://{namespace}/streamed"
    admin.create_topic(streamed)
    admin.add_schema(source, kind, STRICT)
    given = {"service.url": service_url, "topic": source}
    writes.save(PulsarDataSource(given), changes(**RECORDS))
    assert stored(service_url, source) == STORED
    rows = reading.read_columns(service_url, {**given, "metadataColumns": BESIDE})
    found = [(row["id"], row["__tombstone"]) for row in rows]
    assert found == [(number, number is None) for _, number in HISTORY]
    frame = load(spark, service_url, source, metadataColumns=BESIDE)
    keyed = frame.withColumn("__key", frame["__key"].cast("string"))
    save(keyed, service_url, copy, schemaTopic=source)
    into = {"service.url": service_url, "topic": streamed, "schemaTopic": source}
    stream(spark, source, into, tmp_path)
    for topic in (source, copy, streamed):
        assert stored(service_url, topic) == STORED
        admin.compact(topic)
        left = stored(service_url, topic, compacted=True)
        assert left == [("kept", False), ("back", False)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
@pytest.mark.parametrize("encoding", ["SEPARATED", "INLINE"])
def test_pairs(
    service_url: str,
    admin: Admin,
    namespace: str,
    topics: tuple[str, str],
    encoding: str,
    guarantee: str,
) -> None:
    """A key outside the value stays; a pair within the value is NULL as a whole."""
    given = {"service.url": service_url, "topic": topics[1]}
    if guarantee == "idempotent":
        admin.set_deduplication(namespace, enabled=True)
    rows = changes(
        beside=encoding == "INLINE",
        key=[key for key, _ in HISTORY],
        value=pa.array([{"a": 7}] * len(HISTORY), pa.struct({"a": pa.int32()})),
    )
    options = {
        "schemaType": "key_value",
        "keyValueEncodingType": encoding,
        "deliveryGuarantee": guarantee,
    }
    writes.save(PulsarDataSource({**given, **options}), rows)
    wanted = STORED
    if encoding == "SEPARATED":  # bytes, which are sent as base64
        wanted = [(base64.b64encode(k.encode()).decode(), none) for k, none in wanted]
    assert stored(service_url, topics[1]) == wanted
    found = reading.read_columns(
        service_url, {**given, "metadataColumns": "__tombstone"}
    )
    assert [(row["key"], row["value"], row["__tombstone"]) for row in found] == [
        (
            key if encoding == "SEPARATED" or number else None,
            {"a": 7} if number else None,
            number is None,
        )
        for key, number in HISTORY
    ]


@pytest.mark.parametrize(
    "value", ["7", 7, b"7"], ids=lambda value: type(value).__name__
)
def test_single_columns(
    service_url: str, topics: tuple[str, str], value: str | int | bytes
) -> None:
    """A value beside ``__tombstone`` is not looked at."""
    rows = changes(value=[value] * len(HISTORY))
    given = {"service.url": service_url, "topic": topics[1]}
    writes.save(PulsarDataSource(given), rows)
    assert stored(service_url, topics[1]) == STORED


def test_bytes_without_a_version(
    spark: SparkSession, service_url: str, admin: Admin, topics: tuple[str, str]
) -> None:
    """Bytes are copied with null values of a producer that knows no schema."""
    source, target = topics
    admin.add_schema(source, "AVRO", STRICT)
    rows = changes(**RECORDS)
    kept = rows.filter(pa.array([not one for _, one in STORED]))
    given = {"service.url": service_url, "topic": source}
    writes.save(PulsarDataSource(given), kept)
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
