# SPDX-License-Identifier: Apache-2.0
"""The official Java client as a second opinion, both ways."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from siblings.tubemq.tests.real.servers import await_stored, client_of, read, write
from siblings.tubemq.tests.support.java import JavaClient, JavaMessage
from siblings.tubemq.tests.support.servers import TubeMQ
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import plan_batch

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(scope="module")
def java(tube: TubeMQ, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    """The client of these servers."""
    return JavaClient(tmp_path_factory.mktemp("java"), tube.masters)


def ends_of(tube: TubeMQ, topic: str) -> dict[int, int]:
    """Where its partitions end, as far as they are flushed."""
    options = ReadOptions(client_of(tube), (topic,), group=f"ends-{topic}")
    pool = BrokerPool(options.client)
    try:
        ranges = [task.range for task in plan_batch(pool, options)]
    finally:
        pool.close()
    return {one.partition.partition_id: one.end for one in ranges}


def as_message(row: Row) -> JavaMessage:
    return JavaMessage(
        row["__partition"],
        -1,
        row["__msgType"],
        row["__msgTime"],
        row["__attributes"],
        bytes(row["value"]),
    )


def in_order(messages: Any) -> list[JavaMessage]:
    """All of a partition stay in their order."""
    return sorted(messages, key=lambda one: one.partition_id)


@pytest.mark.parametrize(("topic", "stores"), [("java_dense", 3), ("java_shared", 1)])
def test_what_java_writes_is_read(
    spark: SparkSession, tube: TubeMQ, java: JavaClient, topic: str, stores: int
):
    """Each message, in order, with value, type, time, attributes and partition."""
    count = 400
    wrote = java.write(topic, count)
    assert len({one.partition_id for one in wrote}) == 3
    assert len({one.partition_id // 10_000 for one in wrote}) == stores
    await_stored(tube, topic, count * 3 // stores)
    stored = in_order(one._replace(offset=-1) for one in wrote)
    rows = read(spark, tube, topic, failOnDataLoss="true").collect()
    assert in_order(map(as_message, rows)) == stored
    for types in ("Aa", "A,B"):
        rows = read(spark, tube, topic, **{"stream.id": types}).collect()
        wanted = [one for one in stored if one.msg_type in types.split(",")]
        assert wanted
        assert in_order(map(as_message, rows)) == wanted
    if stores == 3:
        columns = "value BINARY, __partition INT, __offset BIGINT"
        rows = read(spark, tube, topic, schema=columns).collect()
        assert Counter((row["__partition"], row["__offset"]) for row in rows) == (
            Counter((one.partition_id, one.offset) for one in wrote)
        )
    # And by the client that wrote it.
    assert in_order(java.read(topic, f"java-{topic}", ends_of(tube, topic))) == stored


def test_what_is_written_is_read_by_java(
    spark: SparkSession, tube: TubeMQ, java: JavaClient
):
    """Checksums, which it drops messages by, types, by which it filters, and values."""
    count = 600
    number = f.col("id")
    kind = number % 5
    frame = spark.range(count).select(
        f.when(kind == 3, f.lit(b""))
        .when(kind == 4, f.unhex(f.repeat(f.lit("00ff80"), 30_000)))
        .otherwise(number.cast("string").cast("binary"))
        .alias("value"),
        f.when(kind == 1, "Aa").when(kind >= 2, "BB").alias("__msgType"),
        f.when(kind == 2, "202611230815").alias("__msgTime"),
        f.when(
            kind >= 2,
            f.create_map(
                f.lit("id"), number.cast("string"), f.lit("größe"), f.lit("ä b")
            ),
        ).alias("__attributes"),
    )
    write(frame, tube, "java_sunk")
    await_stored(tube, "java_sunk", count)
    ends = ends_of(tube, "java_sunk")
    expected = []
    for row in frame.collect():
        attributes = tuple(sorted((row["__attributes"] or {}).items()))
        value = bytes(row["value"])
        expected.append((row["__msgType"], row["__msgTime"], attributes, value))

    def found(messages: list[JavaMessage]) -> Counter[Any]:
        return Counter(
            (one.msg_type, one.msg_time, tuple(sorted(one.attributes.items())), one[5])
            for one in messages
        )

    assert found(java.read("java_sunk", "java-sunk", ends)) == Counter(expected)
    for types in ("Aa", "BB"):
        wanted = Counter(one for one in expected if one[0] == types)
        assert found(java.read("java_sunk", f"java-sunk-{types}", ends, types)) == (
            wanted
        )
