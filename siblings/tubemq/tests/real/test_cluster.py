# SPDX-License-Identifier: Apache-2.0
"""Three masters and two brokers: each of them goes, and reads and writes go on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.testing.processes import BrokerStartError
from siblings.tubemq.tests.real.servers import (
    FLUSH_S,
    PATIENCE_S,
    PATIENT,
    await_stored,
    client_of,
    group_offset,
    send,
    stored,
    values_of,
)
from siblings.tubemq.tests.support.servers import TubeMQ
from tests.support.waiting import await_true, join
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import TransportError
from tubemq_spark.options import ReadOptions, WriteOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender, Sent
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.wire.attributes import Stored

pytestmark = [pytest.mark.slow, pytest.mark.soak]


class Writer:
    """Writes numbers one after the other until it is told to stop."""

    def __init__(self, tube: TubeMQ, topic: str) -> None:
        client = client_of(tube)
        self._options = WriteOptions(
            client=client, topic=(topic,), send_timeout_s=PATIENCE_S
        )
        self._pool = BrokerPool(client)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0
        self.sent: Sent | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        join(self._thread, "the writer", 2 * PATIENCE_S)
        self._pool.close()

    def await_more(self, rows: int = 100) -> None:
        """Wait until it has written more than it had."""
        wanted = self.count + rows
        await_true(
            lambda: self.count >= wanted or self.error is not None, "rows", PATIENCE_S
        )
        assert self.error is None

    def _run(self) -> None:
        sender = Sender(self._pool, self._options)
        topic = self._options.topic[0]
        try:
            while not self._stop.wait(0.005):
                value = Stored(b"%d" % self.count, 0)
                sender.send([Row(topic, value, None, None, None, None)])
                sender.finish()
                self.count += 1
            self.sent = sender.finish()
        except BaseException as error:
            self.error = error
        finally:
            sender.close()


@contextmanager
def following(
    spark: SparkSession, tube: TubeMQ, topic: str, folder: Path
) -> Iterator[tuple[Any, Counter[int]]]:
    """Run a stream, and count the rows that it has brought."""
    seen: Counter[int] = Counter()

    def keep(batch: DataFrame, _: int) -> None:
        seen.update(int(row.value) for row in batch.select("value").collect())

    query = (
        spark.readStream.format("tubemq")
        .option("master.rpc", tube.masters)
        .options(**PATIENT)
        .options(
            topic=topic,
            startingOffsets="earliest",
            group=f"tests-{topic}",
            partitionDiscoveryInterval="1000",
        )
        .load()
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(keep)
        .start()
    )
    try:
        yield query, seen
    finally:
        query.stop()


def await_rows(query: Any, seen: Counter[int], count: int) -> None:
    def came() -> bool:
        assert query.exception() is None
        return len(seen) >= count

    await_true(came, f"{count} rows of the stream", FLUSH_S)


def test_topics_are_on_both_brokers(tube_cluster: TubeMQ):
    """Partition ids repeat on each; without one of them a batch would be less."""
    send(tube_cluster, "spread", (b"%d" % n for n in range(400)), confirm_flush=True)
    assert sorted(map(int, values_of(tube_cluster, "spread"))) == list(range(400))
    options = ReadOptions(client_of(tube_cluster), ("spread",), group="tests-down")
    pool = BrokerPool(options.client)
    assert places(plan_batch(pool, options)) == {
        *("spread/1:0", "spread/1:10000", "spread/2:0", "spread/2:10000"),
    }

    tube_cluster.stop_broker("broker2")
    with Masters(options.client) as masters:

        def is_closed() -> bool:
            return bool(masters.readable("tests-x", ["spread"]).topics["spread"].closed)

        await_true(is_closed, "the master's notice of it", PATIENCE_S)
    send(tube_cluster, "spread", (b"%d" % n for n in range(400, 500)))
    hasty = replace(options.client, operation_timeout_s=1.0)
    lost = "spread/2:0, spread/2:10000 cannot be read now"
    with pytest.raises(TransportError, match=lost):
        plan_batch(pool, replace(options, client=hasty))
    some = plan_batch(pool, replace(options, client=hasty, fail_on_data_loss=False))
    assert places(some) == {"spread/1:0", "spread/1:10000"}
    tube_cluster.start_broker("broker2")
    pool.close()
    await_stored(tube_cluster, "spread", 500)
    assert sorted(map(int, values_of(tube_cluster, "spread"))) == list(range(500))


def places(tasks: Iterable[ReadTask]) -> set[str]:
    return {str(task.range.partition) for task in tasks}


def test_a_write_goes_on_by_a_broker_that_was_started_after_it(tube_cluster: TubeMQ):
    """Which the master names to producers half a minute later."""
    tube_cluster.stop_broker("broker2")
    await_true(
        lambda: named(tube_cluster, "moved") == {1}, "the master's notice", PATIENCE_S
    )
    with Writer(tube_cluster, "moved") as writer:
        writer.await_more()
        tube_cluster.start_broker("broker2")
        tube_cluster.stop_broker("broker1")
        writer.await_more()
        tube_cluster.start_broker("broker1")
    assert writer.error is None
    assert writer.sent is not None
    await_stored(tube_cluster, "moved", writer.count)
    found = list(map(int, values_of(tube_cluster, "moved")))
    assert set(found) == set(range(writer.count))
    assert len(found) <= writer.count + writer.sent.resent


def test_a_broker_that_is_closed_to_writers_is_drained(tube_cluster: TubeMQ):
    """A write that runs leaves that broker alone, and comes back to it."""

    def open_to_writers(*, is_open: bool) -> None:
        tube_cluster.admin(
            "admin_set_broker_read_or_write",
            modify=True,
            brokerId=2,
            acceptPublish=str(is_open).lower(),
            acceptSubscribe="true",
        )
        brokers = {1, 2} if is_open else {1}
        await_true(
            lambda: named(tube_cluster, "drained") == brokers, "the master", PATIENCE_S
        )

    def gets_some() -> bool:
        before = entries_on(tube_cluster, "drained", 2)
        writer.await_more()
        return entries_on(tube_cluster, "drained", 2) > before

    with Writer(tube_cluster, "drained") as writer:
        await_true(gets_some, "rows on broker 2", PATIENCE_S)
        open_to_writers(is_open=False)
        await_true(lambda: not gets_some(), "the end of rows on broker 2", PATIENCE_S)
        assert not gets_some()
        open_to_writers(is_open=True)
        await_true(gets_some, "rows on broker 2 again", PATIENCE_S)
    assert writer.error is None
    assert writer.sent is not None
    await_stored(tube_cluster, "drained", writer.count)
    written = Counter(map(int, values_of(tube_cluster, "drained")))
    assert set(written) == set(range(writer.count))
    assert written.total() <= writer.count + writer.sent.resent


def entries_on(tube: TubeMQ, topic: str, broker_id: int) -> int:
    """Return how many messages of a topic a broker has, in its memory, too."""
    options = ReadOptions(
        client_of(tube), (topic,), group=f"tests-count-{topic}", read_unflushed=True
    )
    pool = BrokerPool(options.client)
    try:
        return sum(
            task.range.entries
            for task in plan_batch(pool, options)
            if task.range.partition.broker_id == broker_id
        )
    finally:
        pool.close()


def named(tube: TubeMQ, topic: str) -> set[int]:
    """Return the brokers of a topic that the master names to producers."""
    with Masters(client_of(tube)) as masters:
        producer = Producer(masters, [topic])
        topics = producer.view().topics
        producer.close()
    return {one.broker_id for one in topics[topic].partitions} if topics else set()


def test_streams_and_writes_go_on_over_masters_and_brokers_that_die(
    spark: SparkSession, tube_cluster: TubeMQ, tmp_path: Path
):
    with following(spark, tube_cluster, "followed", tmp_path) as (query, seen):
        with Writer(tube_cluster, "followed") as writer:
            writer.await_more()
            active = tube_cluster.active_master()
            tube_cluster.stop_master(active, kill=True)
            writer.await_more()
            await_rows(query, seen, writer.count)
            await_true(
                lambda: serves(tube_cluster) != active, "another master", PATIENCE_S
            )
            # All that is unflushed of one that is killed is gone; in order it is not.
            tube_cluster.stop_broker("broker1")
            writer.await_more()
            tube_cluster.start_broker("broker1")
            writer.await_more()
            tube_cluster.start_master(active)
            writer.await_more()
        assert writer.error is None
        await_rows(query, seen, writer.count)
        # What is seen twice was stored twice: its reply was lost.
        assert writer.sent is not None
        await_true(
            lambda: seen.total() >= stored(tube_cluster, "followed"), "all of it"
        )
        assert seen.total() <= writer.count + writer.sent.resent
        progress = json.loads(query.lastProgress["sources"][0]["endOffset"])
        assert set(progress["lastRead"]["followed"]) == {
            *("1:0", "1:10000", "2:0", "2:10000"),
        }
        lag = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        assert set(lag["backlogEntries"]["followed"]) == set(
            progress["lastRead"]["followed"]
        )

        def told() -> bool:
            read_to = json.loads(query.lastProgress["sources"][0]["endOffset"])
            return all(
                group_offset(tube_cluster, "followed", name) == int(offset)
                for name, offset in read_to["lastRead"]["followed"].items()
            )

        await_true(told, "the group's positions on the brokers", PATIENCE_S)


def serves(tube: TubeMQ) -> str:
    try:
        return tube.active_master()
    except BrokerStartError:
        return ""


@pytest.mark.parametrize(
    ("stores", "partitions"),
    [pytest.param(2, 1, id="stores"), pytest.param(1, 2, id="partitions")],
)
def test_partitions_that_are_added_are_found(
    spark: SparkSession,
    tube_cluster: TubeMQ,
    tmp_path: Path,
    stores: int,
    partitions: int,
):
    """While producers write and the stream runs."""
    topic = f"grown_{stores}x{partitions}"
    with following(spark, tube_cluster, topic, tmp_path) as (query, seen):
        with Writer(tube_cluster, topic) as writer:
            writer.await_more()
            for number in (1, 2):
                tube_cluster.admin(
                    "admin_modify_topic_info",
                    modify=True,
                    brokerId=number,
                    topicName=topic,
                    numTopicStores=stores,
                    numPartitions=partitions,
                )
                tube_cluster.reload_broker(f"broker{number}")
            ids = {s * 10000 + p for s in range(stores) for p in range(partitions)}
            wanted = {f"{broker}:{id_}" for broker in (1, 2) for id_ in ids}
            # A broker that has just started learns of it a minute later.
            await_true(
                lambda: written(tube_cluster, topic) == wanted,
                "new partitions",
                PATIENCE_S,
            )
            writer.await_more(1000)
        assert writer.error is None
        await_rows(query, seen, writer.count)

        def are_found() -> bool:
            offset = json.loads(query.lastProgress["sources"][0]["endOffset"])
            return set(offset["lastRead"][topic]) == wanted

        await_true(are_found, "the new partitions in the stream's offset", FLUSH_S)


def written(tube: TubeMQ, topic: str) -> set[str]:
    """Return the partitions that have messages, such as ``1:10000``."""
    options = ReadOptions(client_of(tube), (topic,), group="tests-ids")
    pool = BrokerPool(options.client)
    try:
        tasks = plan_batch(pool, options)
    except TransportError:
        return set()
    finally:
        pool.close()
    return {name.rpartition("/")[2] for name in places(tasks)}
