# SPDX-License-Identifier: Apache-2.0
"""Spark with real servers: what is written is read, exactly, by batches and streams.

``make test`` runs one test of these: several could be dealt to several processes, each
of which would start servers of its own. The others belong to ``make soak``, which runs
this folder in one process.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from siblings.tubemq.tests.real.servers import (
    FLUSH_S,
    PATIENCE_S,
    PATIENT,
    await_stored,
    client_of,
    read,
    stored,
    write,
)
from siblings.tubemq.tests.support.servers import TubeMQ
from tests.support import docs
from tests.support.waiting import await_true, join
from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.masters import Masters, Producer, new_client_id
from tubemq_spark.errors import TubeMQError
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.metadata import Partition

PAGE = Path(__file__).parents[2] / "README.md"
pytestmark = pytest.mark.slow

#: The offset of a registration that goes on where its group is.
AS_STORED = -1


def rows(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    return spark.range(first, first + count).select(
        f.col("id").cast("string").alias("value"),
        f.when(f.col("id") % 3 == 0, "A")
        .when(f.col("id") % 3 == 1, "B")
        .alias("__msgType"),
        f.create_map(f.lit("id"), f.col("id").cast("string")).alias("__attributes"),
    )


def test_what_is_written_is_read(spark: SparkSession, tube: TubeMQ):
    # Each row says where to: by its topic, and its partition, a hash, or nothing.
    placed = spark.range(90).selectExpr(
        "cast(id as string) as value",
        "'placed' as __topic",
        "if(id < 45, 1, null) as __broker",
        "if(id < 45, 10000, null) as __partition",
        "id % 5 as key",
    )
    others = rows(spark, 1000).withColumn("__topic", f.lit("rows"))
    both = others.unionByName(placed, allowMissingColumns=True)
    write(both, tube, None, partitionKey="key")
    unflushed = read(spark, tube, "placed", readUnflushed="true").collect()
    assert sorted(int(row.value) for row in unflushed) == list(range(90))
    at = {int(row.value): row["__partition"] for row in unflushed}
    assert {at[n] for n in range(45)} == {10000}
    for key in range(5):
        assert len({at[n] for n in range(45, 90) if n % 5 == key}) == 1

    await_stored(tube, "rows", 1000)
    frame = read(spark, tube, "rows", minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    found = frame.collect()
    assert sorted(int(row.value) for row in found) == list(range(1000))
    for row in found:
        number = int(row.value)
        assert row["__msgType"] == ["A", "B", None][number % 3]
        assert row["__attributes"] == {"id": str(number)}
        assert (row["__topic"], row["__broker"]) == ("rows", 1)
    assert {row["__partition"] for row in found} == {0, 10000, 20000}

    filtered = read(spark, tube, "rows", **{"stream.id": "A"}).select("value")
    assert {int(row.value) for row in filtered.collect()} == set(range(0, 1000, 3))

    offsets = {"rows": {"1:0": 28 * 10, "1:10000": "latest", "1:20000": "latest"}}
    end = {"rows": {"1:0": 28 * 25}}
    some = (
        spark.read.schema("value BINARY, __offset BIGINT")
        .format("tubemq")
        .option("master.rpc", tube.masters)
        .options(**PATIENT)
        .options(
            topic="rows",
            startingOffsets=json.dumps(offsets),
            endingOffsets=json.dumps(end),
        )
        .load()
        .collect()
    )
    assert [row["__offset"] for row in some] == [28 * n for n in range(10, 25)]


@pytest.mark.soak
def test_a_batch_leaves_the_position_of_its_group(spark: SparkSession, tube: TubeMQ):
    """An application that reads by the same name goes on where it was."""
    write(rows(spark, 300), tube, "grouped")
    await_stored(tube, "grouped", 300)
    application, place = "tests-grouped", 40 * ENTRY_BYTES
    options = ReadOptions(client_of(tube), ("grouped",), group=application)
    pool = BrokerPool(options.client)
    (task,) = plan_batch(pool, options)

    def registered(offset: int) -> int:
        partition = task.range.partition
        answers = register_all(
            pool,
            task.range.broker,
            new_client_id(application),
            [application],
            [partition],
            offsets={partition: offset},
        )
        return answers[partition].offset

    registered(place)
    whole = read(spark, tube, "grouped", minPartitions="3")
    assert sorted(int(row.value) for row in whole.collect()) == list(range(300))
    (first,) = read(
        spark,
        tube,
        "grouped",
        endingOffsets=json.dumps({"grouped": {"1:0": ENTRY_BYTES}}),
    ).collect()
    assert int(first.value) in (0, 150)  # of one of two tasks
    assert registered(AS_STORED) == place
    pool.close()


@pytest.mark.soak
@pytest.mark.parametrize("topic", ["shared", "mixed"])
def test_random_ranges_of_shared_stores_are_exact(tube: TubeMQ, topic: str):
    chance = random.Random(3)
    options = ReadOptions(client_of(tube), (topic,), group=f"tests-{topic}")
    pool = BrokerPool(options.client)
    truth: dict[Partition, dict[int, bytes]] = {}
    with Masters(options.client) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(PATIENCE_S)
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
            message.stored
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
            .options(**PATIENT)
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
        assert query.awaitTermination(PATIENCE_S)
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
    join(thread, "the restart", 2 * PATIENCE_S)
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


@pytest.mark.soak
def test_a_stream_writes_each_row_over_a_restart_of_the_query(
    spark: SparkSession, tube: TubeMQ, tmp_path: Path
):
    """At least once: the query is stopped between two files, or within one."""
    folder = tmp_path / "rows"
    folder.mkdir()

    def give(number: int) -> None:
        lines = "".join(f"{number * 100 + n}\n" for n in range(100))
        written = tmp_path / f"{number}.txt"
        written.write_text(lines)
        written.rename(folder / written.name)  # Spark sees it whole

    def start(**trigger: Any) -> Any:
        writer = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(folder))
            .selectExpr("value", "'typed' as __msgType")
            .writeStream.format("tubemq")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("master.rpc", tube.masters)
            .options(topic="sunk", **PATIENT)
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    for number in range(4):
        give(number)
    query = start()
    try:
        await_true(
            lambda: query.exception() is not None or len(query.recentProgress) >= 2,
            "the second micro-batch",
            PATIENCE_S,
        )
        assert query.exception() is None
    finally:
        query.stop()
    for number in range(4, 6):
        give(number)
    query = start(availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    assert query.exception() is None

    def found() -> Counter[int]:
        rows_now = read(spark, tube, "sunk", **{"stream.id": "typed"}).collect()
        return Counter(int(row.value) for row in rows_now)

    await_true(lambda: set(found()) >= set(range(600)), "all rows", FLUSH_S)
    counts = found()
    assert set(counts) == set(range(600))
    # What is written twice is of the micro-batch in which the query was stopped.
    assert len({number // 100 for number, count in counts.items() if count > 1}) <= 1


@pytest.mark.soak
def test_a_batch_over_a_killed_broker_is_exact(
    spark: SparkSession, tube: TubeMQ, tmp_path: Path
):
    """Tasks of Spark are held in the middle of a read until the broker is back."""
    count, size = 600, 200_000  # 40 MB a partition: far more than buffers hold
    padding = "." * size
    big = spark.range(count).select(
        f.concat_ws(" ", f.col("id").cast("string"), f.lit(padding)).alias("value")
    )
    write(big, tube, "killed")
    await_stored(tube, "killed", count)
    begun, go = tmp_path / "begun", tmp_path / "go"

    def hold(rows: Iterator[Row]) -> Iterator[tuple[int, int]]:
        for row in rows:
            if not go.exists():
                begun.touch()
                await_true(go.exists, "the restart", 2 * PATIENCE_S)
            yield int(row.value.split()[0]), len(row.value)

    options = ReadOptions(client_of(tube), ("killed",), group="tests-killed-here")
    pool = BrokerPool(options.client)
    restarted: list[bool] = []
    failed = threading.Event()

    def restart() -> None:
        await_true(
            lambda: begun.exists() or failed.is_set(), "the first rows", PATIENCE_S
        )
        if failed.is_set():
            return
        tube.stop_broker(kill=True)
        tube.start_broker()
        restarted.append(True)
        go.touch()

    # One more, in this process, of which is known that it was cut off.
    mine = RangeReader(pool, plan_batch(pool, options)[0], options)
    pieces = mine.pieces()
    values = [one.stored for one in next(pieces).messages]
    thread = threading.Thread(target=restart)
    thread.start()
    try:
        frame = read(spark, tube, "killed").select("value")
        found = Counter(frame.rdd.mapPartitions(hold).collect())
    except BaseException:
        failed.set()
        raise
    finally:
        join(thread, "the restart", 2 * PATIENCE_S)
    assert restarted
    assert set(found.values()) == {1}
    assert found.keys() == {(n, len(str(n)) + 1 + size) for n in range(count)}

    for piece in pieces:
        values += [one.stored for one in piece.messages]
    assert mine.reconnects >= 1
    numbers = [int(value.split()[0]) for value in values]
    pool.close()
    of_partition = [
        int(row.value[:10].split()[0])
        for row in read(spark, tube, "killed").where("__partition = 0").collect()
    ]
    assert numbers == of_partition


@pytest.mark.soak
def test_the_page_runs(spark: SparkSession, tube: TubeMQ, tmp_path: Path):
    """What README.md shows does what it says."""
    names: dict[str, Any] = {"spark": spark}
    for snippet in docs.snippets_of(PAGE, "Reading and writing"):
        code = snippet.replace("master-1:8715,master-2:8715", tube.masters)
        exec(code.replace("/data/", f"{tmp_path}/"), names)  # noqa: S102
        if "query" not in names:
            assert names["frame"].count() == 0  # planned before there were rows
    query = names["query"]
    try:

        def copied() -> bool:
            assert query.exception() is None
            found = read(spark, tube, "demo_copy", **{"stream.id": "number"})
            return {int(row.value) for row in found.collect()} == set(range(1000))

        await_true(copied, "the copy", 2 * FLUSH_S)
    finally:
        query.stop()
    assert names["frame"].count() == 0
    assert read(spark, tube, "demo").count() == 1000
