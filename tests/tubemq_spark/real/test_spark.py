# SPDX-License-Identifier: Apache-2.0
"""Spark with real servers: what is written is read, exactly, by batches and streams."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.support.tubemq_servers import TubeMQ
from tests.support.waiting import await_true, join
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import TubeMQError
from tubemq_spark.options import ClientOptions, ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.metadata import Partition

#: Until what was written counts as there: brokers flush every few seconds.
FLUSH_S = 90.0


def client_of(tube: TubeMQ) -> ClientOptions:
    return ClientOptions(masters=(tube.masters,))


def read(spark: SparkSession, tube: TubeMQ, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("tubemq").option("master.rpc", tube.masters)
    return reader.options(topic=topic, group=f"tests-{topic}", **options).load()


def write(frame: DataFrame, tube: TubeMQ, topic: str, **options: str) -> None:
    writer = frame.write.format("tubemq").option("master.rpc", tube.masters)
    writer.options(topic=topic, **options).mode("append").save()


def stored(tube: TubeMQ, topic: str, *, unflushed: bool = False) -> int:
    """How many offsets a batch would read of all partitions, by its plan."""
    options = ReadOptions(
        client_of(tube),
        (topic,),
        group=f"tests-count-{topic}",
        read_unflushed=unflushed,
    )
    pool = BrokerPool(options.client)
    try:
        return sum(task.range.entries for task in plan_batch(pool, options))
    finally:
        pool.close()


def await_stored(tube: TubeMQ, topic: str, count: int) -> None:
    await_true(lambda: stored(tube, topic) >= count, f"the flush of {topic}", FLUSH_S)


def rows(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    return spark.range(first, first + count).select(
        f.col("id").cast("string").alias("value"),
        f.when(f.col("id") % 3 == 0, "A")
        .when(f.col("id") % 3 == 1, "B")
        .alias("__msgType"),
        f.create_map(f.lit("id"), f.col("id").cast("string")).alias("__attributes"),
    )


def test_what_is_written_is_read(spark: SparkSession, tube: TubeMQ):
    write(rows(spark, 1000), tube, "rows")
    await_stored(tube, "rows", 1000)
    found = read(spark, tube, "rows").collect()
    assert sorted(int(row.value) for row in found) == list(range(1000))
    for row in found:
        number = int(row.value)
        assert row["__msgType"] == ["A", "B", None][number % 3]
        assert row["__attributes"] == {"id": str(number)}
        assert (row["__topic"], row["__broker"]) == ("rows", 1)
    assert {row["__partition"] for row in found} == {0, 10000, 20000}

    filtered = read(spark, tube, "rows", **{"stream.id": "A"}).select("value")
    assert {int(row.value) for row in filtered.collect()} == set(range(0, 1000, 3))

    parts = read(spark, tube, "rows", minPartitions="7")
    assert parts.rdd.getNumPartitions() >= 7
    assert parts.select("value").distinct().count() == 1000

    offsets = {"rows": {"1:0": 28 * 10, "1:10000": "latest", "1:20000": "latest"}}
    end = {"rows": {"1:0": 28 * 25}}
    some = (
        spark.read.schema("value BINARY, __offset BIGINT")
        .format("tubemq")
        .option("master.rpc", tube.masters)
        .options(
            topic="rows",
            startingOffsets=json.dumps(offsets),
            endingOffsets=json.dumps(end),
        )
        .load()
        .collect()
    )
    assert [row["__offset"] for row in some] == [28 * n for n in range(10, 25)]


@pytest.mark.parametrize("topic", ["shared", "mixed"])
def test_random_ranges_of_shared_stores_are_exact(tube: TubeMQ, topic: str):
    chance = random.Random(3)
    options = ReadOptions(client_of(tube), (topic,), group=f"tests-{topic}")
    pool = BrokerPool(options.client)
    truth: dict[Partition, dict[int, bytes]] = {}
    with Masters(options.client) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(60)
        partitions = view.topics[topic].partitions
        connection = pool.connection(view.brokers[1])
        for begin in range(0, 3000, 300):
            batch = [
                (chance.choice(partitions), b"%d" % n)
                for n in range(begin, begin + 300)
            ]
            calls = connection.call_all(
                [
                    messages.send(
                        producer.client_id,
                        topic,
                        partition.partition_id,
                        encode_body(Body(value)),
                        token=view.token,
                    )
                    for partition, value in batch
                ]
            )
            for call, (partition, value) in zip(calls, batch, strict=True):
                reply = connection.reply(call)
                assert reply.errCode == 200
                truth.setdefault(partition, {})[reply.appendOffset] = value
        producer.close()
    of_store = {one.store for one in partitions}
    per_store = len(partitions) // len(of_store)
    await_stored(tube, topic, 3000 * per_store)
    plan = {task.range.partition: task for task in plan_batch(pool, options)}
    for _ in range(40):
        partition = chance.choice(partitions)
        whole = plan[partition].range
        start, end = sorted(
            chance.sample(range(0, whole.end + ENTRY_BYTES, ENTRY_BYTES), 2)
        )
        part = PartitionRange(partition, start, end, whole.broker, whole.is_dense)
        task = ReadTask(part, plan[partition].group, plan[partition].token)
        got = [
            message.payLoadData
            for piece in RangeReader(pool, task, options).pieces()
            for message in piece.messages
        ]
        assert got == [
            value
            for offset, value in sorted(truth[partition].items())
            if start <= offset < end
        ]
    pool.close()


@pytest.mark.soak
def test_a_stream_goes_on_where_it_stopped_over_a_killed_broker(
    spark: SparkSession, tube: TubeMQ, tmp_path: Path
):
    """Each flushed row once, over restarts of the query and of the broker."""
    seen: Counter[int] = Counter()
    sizes: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        found = [int(row.value) for row in batch.select("value").collect()]
        seen.update(found)
        sizes.append(len(found))

    def run() -> Any:
        query = (
            spark.readStream.format("tubemq")
            .option("master.rpc", tube.masters)
            .options(
                topic="streamed",
                startingOffsets="earliest",
                maxRowsPerTrigger="150",
                group="tests-streamed",
            )
            .load()
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(keep)
            .start()
        )
        assert query.awaitTermination(180)
        return query

    write(rows(spark, 400), tube, "streamed")
    await_stored(tube, "streamed", 400)
    query = run()
    assert sorted(seen) == list(range(400))
    assert max(sizes) <= 150
    offset = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert set(offset["lastRead"]["streamed"]) == {"1:0", "1:10000"}

    tube.stop_broker(kill=True)
    tube.start_broker()
    write(rows(spark, 300, first=400), tube, "streamed")
    await_stored(tube, "streamed", 700)
    run()
    assert sorted(seen) == list(range(700))
    assert set(seen.values()) == {1}


@pytest.mark.soak
def test_a_write_over_a_restart_of_the_broker_loses_nothing(
    spark: SparkSession, tube: TubeMQ
):
    """At least once: the broker is stopped in order while rows are written."""
    restarted: list[int] = []

    def restart() -> None:
        await_true(lambda: stored_or_none(tube) > 0, "the first rows", FLUSH_S)
        before = stored_or_none(tube)
        tube.stop_broker()
        tube.start_broker()
        restarted.append(before)

    thread = threading.Thread(target=restart)
    thread.start()
    # Slowly, so that it is under way when the broker stops.
    slow = rows(spark, 20_000).repartition(2)
    write(slow, tube, "written", **{"max.in.flight": "1"})
    join(thread, "the restart", 180)
    assert restarted
    assert restarted[0] < 20_000
    await_stored(tube, "written", 20_000)
    found = Counter(
        int(row.value) for row in read(spark, tube, "written").select("value").collect()
    )
    assert sorted(found) == list(range(20_000))


def stored_or_none(tube: TubeMQ) -> int:
    try:
        return stored(tube, "written", unflushed=True)
    except TubeMQError:
        return 0
