# SPDX-License-Identifier: Apache-2.0
"""Writes lose nothing whatever happens to connections, topics, brokers and workers.

Every row carries its number, so a row that is lost, doubled or out of order shows. Each
write goes to two topics at once: one that stores all it gets, and one whose broker
finds duplicates. The first may hold rows twice, the second must not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.targets import find_targets
from pulsar_spark.sink.task import TaskWriter
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from spark_topics.sink.write import Task
from tests.broker.test_faults import (
    PARTITIONS,
    failed_tasks,
    kill_workers_of,
    numbers,
    unloading,
    wait_until,
)
from tests.support.link_proxy import LinkProxy
from tests.support.reading import read
from tests.support.session import environment, start_spark
from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession


ROOT = Path(__file__).parents[2]
ROWS = 100_000
TASKS = 4
ROWS_A_TASK = ROWS // TASKS
PADDING = "." * 92  # with the number, values of 100 bytes

#: A write of all, 5 MB by each of two workers, takes three seconds or so at this pace.
BYTES_PER_S = 2_000_000
PATIENCE_S = 240.0

OPTIONS = {
    "deliveryGuarantee": "at-least-once",
    "pulsar.producer.batchingMaxMessages": "200",
    "pulsar.client.memoryLimitBytes": "2000000",
    "pulsar.client.maxBackoffIntervalNanos": "500000000",
    "pulsar.client.connectionTimeoutMs": "2000",
}


def make_topics(admin: Admin) -> list[str]:
    """A topic of four partitions that stores all it gets, and one without duplicates.

    Each in a namespace of its own, and they stay: when a topic is deleted, those that
    are made next in its namespace may be closed again half a minute later, because the
    broker cannot read there which transactions were aborted.
    """
    topics = []
    for deduplication in (False, True):
        namespace = f"public/writes-{uuid.uuid4().hex[:8]}"
        admin.create_namespace(namespace, keep=True)
        admin.set_deduplication(namespace, deduplication)
        topics.append(f"persistent://{namespace}/rows")
        admin.create_partitioned(topics[-1], PARTITIONS)
    return topics


@pytest.fixture
def topics(admin: Admin) -> list[str]:
    """Where to write to: without deduplication, and with."""
    return make_topics(admin)


def rows(spark: SparkSession, topics: list[str]) -> DataFrame:
    """Numbered rows; even ones for the first topic, odd ones for the second."""
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        f"concat(unhex(lpad(hex(id), 16, '0')), CAST('{PADDING}' AS BINARY)) AS value",
        f"IF(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS __topic",
    )


def write(spark: SparkSession, url: str, topics: list[str], **further: str) -> None:
    """Writes all rows, in four tasks of which two run at a time."""
    (
        rows(spark, topics)
        .write.format("pulsar")
        .mode("append")
        .options(**{"service.url": url, **OPTIONS, **further})
        .save()
    )


def check(spark: SparkSession, url: str, topics: list[str]) -> None:
    """Every row is there, in order where it came first; once with deduplication."""
    for parity, topic in enumerate(topics):
        found = numbers(spark, url, topic)
        came = [number for some in found.values() for number in some]
        assert set(came) == set(range(parity, ROWS, 2)), "rows are missing"
        for some in found.values():
            first = list(dict.fromkeys(some))
            for task in range(TASKS):
                of_task = [n for n in first if n // ROWS_A_TASK == task]
                assert of_task == sorted(of_task), "rows are out of order"
        twice = len(came) - ROWS // 2
        kind = "found" if parity else "not found"
        sys.stdout.write(f"{twice} rows twice where duplicates are {kind}\n")
        assert not (parity and twice), f"{twice} rows twice in spite of deduplication"


def write_during(
    fault: Callable[[], None],
    spark: SparkSession,
    link: LinkProxy,
    topics: list[str],
    **further: str,
) -> None:
    """Writes all rows; once the write is well under way, something happens to it."""
    began = link.counters.up_bytes
    over = threading.Event()

    def run() -> None:
        wait_until(lambda: over.is_set() or link.counters.up_bytes > began + 2_500_000)
        assert not over.is_set(), "the write ended before that"
        fault()

    with ThreadPoolExecutor(1) as executor:
        meanwhile = executor.submit(run)
        try:
            write(spark, link.url, topics, **further)
        finally:
            over.set()
        meanwhile.result(PATIENCE_S)


class TestThroughSpark:
    def test_the_topics_are_unloaded_every_second(
        self,
        topics: list[str],
        link: LinkProxy,
        admin: Admin,
        spark: SparkSession,
        service_url: str,
    ) -> None:
        """Nothing is missing, without a task retried."""
        link.slow(BYTES_PER_S // 8)
        with unloading(admin, link, *topics):
            write(spark, link.url, topics)
        check(spark, service_url, topics)

    def test_connections_are_cut_at_random_bytes(
        self,
        topics: list[str],
        link: LinkProxy,
        spark: SparkSession,
        service_url: str,
    ) -> None:
        """Nothing is missing, over dozens of connections."""
        cut = link.counters.cut
        link.cut_every((100_000, 1_200_000), seed=5)
        write(spark, link.url, topics)
        link.pass_through()
        assert link.counters.cut >= cut + 8
        check(spark, service_url, topics)

    def test_the_link_stalls_for_longer_than_the_keep_alive(
        self,
        topics: list[str],
        link: LinkProxy,
        spark: SparkSession,
        service_url: str,
    ) -> None:
        """The connections that fell silent are given up, and the write goes on."""
        link.slow(BYTES_PER_S)
        alive = {"pulsar.client.keepAliveIntervalSeconds": "2"}

        def stall() -> None:
            accepted = link.counters.accepted
            link.stall()
            try:
                # It cannot know of the end of the stall before it has given up.
                wait_until(lambda: link.counters.accepted > accepted)
            finally:
                link.pass_through()

        write_during(stall, spark, link, topics, **alive)
        check(spark, service_url, topics)

    @pytest.mark.slow
    @pytest.mark.soak
    def test_the_broker_is_killed_and_started_again(self, spark: SparkSession) -> None:
        """In mid-write, on the same ports: the same tasks go on."""
        # Without transactions: a broker that comes back with them may take a minute to
        # find out which of its topics' entries can be read.
        settings = {"transactionCoordinatorEnabled": "false"}
        with LinkProxy() as link, EmbeddedBroker(link=link, settings=settings) as own:
            topics = make_topics(Admin(own.admin_url))
            link.slow(BYTES_PER_S)
            write_during(lambda: own.restart(kill=True), spark, link, topics)
            check(spark, own.service_url, topics)

    def test_the_broker_is_stopped_and_continued(
        self,
        topics: list[str],
        link: LinkProxy,
        broker: EmbeddedBroker,
        spark: SparkSession,
    ) -> None:
        """A broker that does nothing for a while is waited for."""
        link.slow(BYTES_PER_S)
        timeout = {"pulsar.producer.sendTimeoutMs": "8000"}

        def stop() -> None:
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            # Longer than half of the send timeout: producers want to attach anew.
            over = threading.Timer(5.0, os.kill, (broker.pid, signal.SIGCONT))
            over.start()
            join(over, "the timer that lets the broker go on")

        write_during(stop, spark, link, topics, **timeout)
        check(spark, broker.service_url, topics)

    @pytest.mark.slow
    @pytest.mark.soak
    def test_a_python_worker_is_killed(
        self,
        topics: list[str],
        link: LinkProxy,
        spark: SparkSession,
        service_url: str,
        tmp_path: Path,
    ) -> None:
        """Spark tries its task again; nothing is missing, and some rows are twice.

        Here also with deduplication: a task that is tried again has other numbers.
        """
        link.slow(BYTES_PER_S)
        began = link.counters.up_bytes
        command = [sys.executable, __file__, link.url, json.dumps(topics), tmp_path]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment(), cwd=tmp_path
        ) as job:
            try:
                wait_until(lambda: link.counters.up_bytes > began + 2_500_000)
                killed = kill_workers_of(job.pid)
                link.pass_through()
                output, _ = job.communicate(timeout=2 * PATIENCE_S)
            finally:
                job.kill()
        assert 1 <= json.loads(output.splitlines()[-1])["failed_tasks"] <= len(killed)
        for parity, topic in enumerate(topics):
            found = numbers(spark, service_url, topic)
            came = [number for some in found.values() for number in some]
            assert set(came) == set(range(parity, ROWS, 2))


class TestOneTask:
    def test_a_slow_broker_fills_no_memory(
        self, topics: list[str], link: LinkProxy, service_url: str
    ) -> None:
        """A task takes no more rows than its window, and what the sockets hold."""
        options = parse_write_options(
            {"service.url": link.url, "topic": topics[0], **OPTIONS}, streaming=False
        )
        taken = 0
        batch = pa.record_batch({"value": [b"." * 1000] * 100})

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal taken
            for _ in range(600):
                taken += 100_000
                yield batch

        assert options.topic is not None
        targets = find_targets(
            TopicLookup(shared_pool(options.client)),
            [options.topic],
            auto_creation=False,
        )
        writer = TaskWriter(options, Task(0), targets)
        link.slow(3_000_000)
        sent, most = link.counters.up_bytes, 0
        with ThreadPoolExecutor(1) as executor:
            job = executor.submit(writer.write, batches())
            while not job.done() and link.counters.up_bytes < sent + 12_000_000:
                held = taken  # before what has gone up by then: that goes on
                most = max(most, held - (link.counters.up_bytes - sent))
                time.sleep(0.001)  # the task shares this interpreter
            link.pass_through()
            written = job.result(PATIENCE_S)
        assert (written.rows, taken) == (60_000, 60_000_000)
        # The window is 2 MB; loopback sockets hold some more, in both directions.
        # Without a window it would be nearly all of the 48 MB that are left.
        assert 0 < most < 14_000_000

    @pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
    def test_chunks_over_connections_that_are_cut(
        self, topics: list[str], link: LinkProxy, service_url: str, codec: str
    ) -> None:
        """Rows are whole, in order, and there once with deduplication.

        Chunks of a row have one sequence id, and some of them come twice, also with
        deduplication. So the official client, which gives such rows up, is not asked.
        """
        given = {
            "service.url": link.url,
            **OPTIONS,
            # Less than any connection carries: each of them brings receipts.
            "pulsar.client.memoryLimitBytes": str(1 << 20),
            "pulsar.producer.chunkingEnabled": "true",
            "pulsar.producer.chunkMaxMessageSize": "20000",
            "pulsar.producer.compressionType": codec,
        }
        rows = [b"%04d" % n + os.urandom(70_000) for n in range(150)]
        for topic in (f"{topic}-partition-0" for topic in topics):
            options = parse_write_options({**given, "topic": topic}, streaming=False)
            assert options.topic is not None
            writer = TaskWriter(options, Task(0), {options.topic: [topic]})
            cut = link.counters.cut

            def batches() -> Iterator[pa.RecordBatch]:
                yield pa.record_batch({"value": rows[:130]})
                # A cut that takes the receipts of the last rows with it leaves these
                # in doubt: no entry follows that tells whether they are whole.
                link.pass_through()
                yield pa.record_batch({"value": rows[130:]})

            link.cut_every((1_100_000, 2_500_000), seed=3)
            writer.write(batches())
            assert link.counters.cut > cut
            is_deduplicated = not topic.startswith(topics[0])
            values = [row.value for row in read(service_url, {"topic": topic})]
            assert list(dict.fromkeys(values)) == rows
            assert values == rows or not is_deduplicated


def main(url: str, topics: str, folder: str) -> None:
    """A Spark of its own, which tries a task four times."""
    spark = start_spark(folder, master="local[2,4]", log_level="OFF")
    failed = failed_tasks(spark, lambda: write(spark, url, json.loads(topics)))
    sys.stdout.write(json.dumps({"failed_tasks": failed}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
