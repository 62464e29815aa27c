# SPDX-License-Identifier: Apache-2.0
"""What users do with scalable topics: further scenarios of cells with Pulsar 5."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.matrix.check_cell import (
    GUARANTEES,
    run_to_the_end,
    sink_options,
    source_options,
)
from tests.support.scalable import ScalableTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture
def topics(broker: EmbeddedBroker) -> Iterator[list[ScalableTopic]]:
    """Two topics of two segments each."""
    number = time.monotonic_ns()
    with (
        closing(ScalableTopic(broker, f"source-{number}", segments=2)) as source,
        closing(ScalableTopic(broker, f"sink-{number}", segments=2)) as sink,
    ):
        yield [source, sink]


def divide(topic: ScalableTopic) -> None:
    """Splits a segment, and merges one of its children with its neighbour."""
    active = sorted(topic.layout.active, key=lambda one: one.hash_start)
    topic.split(active[0].segment_id)
    children = sorted(topic.layout.active, key=lambda one: one.hash_start)
    topic.merge(children[1].segment_id, children[2].segment_id)


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Rows with one of a few keys each."""
    return spark.range(first, end, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "CONCAT('k', id % 11) AS __key"
    )


def rows_of(count: int) -> Counter[tuple[bytes, bytes]]:
    """So many of these rows, as stored."""
    return Counter((b"k%d" % (n % 11), b"%d" % n) for n in range(count))


def stored(
    spark: SparkSession, service_url: str, topic: str, **options: str
) -> Counter[tuple[bytes, bytes]]:
    """What is in a topic."""
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "topic": topic, **options})
        .option("metadataColumns", "__key")
        .load()
    )
    return Counter(
        (bytes(row["__key"]), bytes(row["value"])) for row in frame.collect()
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_scalable_batch_write(
    spark: SparkSession,
    service_url: str,
    topics: list[ScalableTopic],
    guarantee: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Each row is stored once; reads have sealed and active segments, split as well."""
    _, sink = topics
    options = sink_options(service_url, sink.name, guarantee)
    for first in (0, 1500):
        rows = numbers(spark, first, first + 1500)
        rows.write.format("pulsar").mode("append").options(**options).save()
        divide(sink)
    for split in ({}, {"minPartitions": "9"}):
        assert stored(spark, service_url, sink.name, **split) == rows_of(3000)
    record_property("rows", 3000)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_scalable_stream_write(
    spark: SparkSession,
    service_url: str,
    topics: list[ScalableTopic],
    guarantee: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """A stream from topic to topic goes on after a restart, while both are divided."""
    source, sink = topics
    checkpoint = str(tmp_path / "checkpoint")
    for first in (0, 600, 1200):
        options = sink_options(service_url, source.name, "at-least-once")
        rows = numbers(spark, first, first + 600)
        rows.write.format("pulsar").mode("append").options(**options).save()
        query = (
            spark.readStream.format("pulsar")
            .options(**source_options(service_url, source.name, 200))
            .option("metadataColumns", "__key")
            .load()
            .selectExpr("value", "STRING(__key) AS __key")
            .writeStream.format("pulsar")
            .options(**sink_options(service_url, sink.name, guarantee))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        run_to_the_end(query)
        assert stored(spark, service_url, sink.name) == rows_of(first + 600)
        divide(source)
        divide(sink)
    record_property("rows", 1800)


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_scalable_typed_values(
    spark: SparkSession,
    service_url: str,
    topics: list[ScalableTopic],
    kind: str,
    record_property: Callable[[str, object], None],
) -> None:
    """The schema is that of the topic, for all its segments."""
    _, sink = topics
    rows = spark.range(300).selectExpr("id", "concat('name ', id) AS name")
    where = {"service.url": service_url, "topic": sink.name}
    for _ in range(2):
        writer = rows.write.format("pulsar").mode("append").options(**where)
        writer.option("schemaType", kind).save()
        divide(sink)
    found = spark.read.format("pulsar").options(**where).load()
    expected = sorted(2 * list(map(str, rows.collect())))
    assert sorted(map(str, found.select("id", "name").collect())) == expected
    record_property("rows", 600)


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_scalable_migration(
    spark: SparkSession,
    broker: EmbeddedBroker,
    service_url: str,
    guarantee: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Writes and reads go on by the old name."""
    local_name = f"old-{time.monotonic_ns()}"
    old_name = f"persistent://public/default/{local_name}"
    rows = numbers(spark, 0, 500)
    options = sink_options(service_url, old_name, "at-least-once")
    rows.write.format("pulsar").mode("append").options(**options).save()
    with closing(ScalableTopic(broker, local_name)) as moved:
        assert moved.ask("POST", "/migrate") == 204
        options = sink_options(service_url, old_name, guarantee)
        rows = numbers(spark, 500, 1000)
        rows.write.format("pulsar").mode("append").options(**options).save()
        assert stored(spark, service_url, old_name) == rows_of(1000)
        assert stored(spark, service_url, moved.name) == rows_of(1000)
    record_property("rows", 1000)
