# SPDX-License-Identifier: Apache-2.0
"""Reads stay exact whatever happens to connections, topics, brokers and workers.

Every row carries its number, so a row that is lost, doubled or out of order shows. The
link's speed is limited, so that a read lasts long enough to be hit.
"""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.source.read.task import range_settings
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support.entries import batch, member
from tests.support.raw_publisher import RawPublisher
from tests.support.reading import ranges_of
from tests.support.session import environment, start_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from tests.support.link_proxy import LinkProxy

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
ROWS = 400_000
ROWS_EACH = ROWS // PARTITIONS
ROWS_A_BATCH = 250
PADDING = b"." * 92  # with the number, values of 100 bytes

#: About 11 MB in each partition: a read of all takes seven seconds or so at this pace.
BYTES_PER_S = 6_000_000
#: Bounds a failure; says nothing about how long a read should take.
PATIENCE_S = 240.0

OPTIONS = {
    "metadataColumns": "__partition",
    "rowsPerArrowBatch": "500",
    "pulsar.reader.receiverQueueSize": "1000",
    "pulsar.client.maxBackoffIntervalNanos": "500000000",
    "pulsar.client.connectionTimeoutMs": "2000",
    "pollTimeoutMs": "60000",
}


@pytest.fixture(scope="module")
def rows(admin: Admin, service_url: str) -> Iterator[str]:
    """A partitioned topic of 400,000 rows, numbered in each partition from 0."""
    namespace = f"public/faults-{uuid.uuid4().hex[:8]}"
    admin.create_namespace(namespace, keep=True)
    topic = f"persistent://{namespace}/rows"
    admin.create_partitioned(topic, PARTITIONS)
    entries = [
        batch(
            [
                member(n.to_bytes(8, "big") + PADDING)
                for n in range(at, at + ROWS_A_BATCH)
            ]
        )
        for at in range(0, ROWS_EACH, ROWS_A_BATCH)
    ]

    def write(index: int) -> None:
        with RawPublisher(service_url, f"{topic}-partition-{index}") as publisher:
            for metadata, payload in entries:
                publisher.send(metadata, payload)

    with ThreadPoolExecutor(PARTITIONS) as writers:
        list(writers.map(write, range(PARTITIONS)))
    yield topic
    admin.delete(topic, partitioned=True)


class Reading:
    """A read of all partitions in threads of this process, over one connection.

    Args:
        url: Service URL.
        topic: What to read.
        further: Options beside ``OPTIONS``.

    Attributes:
        taken: How many rows came so far.
        begun: Of how many partitions some came.
        readers: One for each partition.
    """

    def __init__(self, url: str, topic: str, further: dict[str, str]) -> None:
        given = {"service.url": url, "topic": topic, **OPTIONS, **further}
        options = parse_read_options(given)
        self._pool = ConnectionPool(options.client)
        settings = range_settings(options)
        self.readers = [
            RangeReader(self._pool, range_, settings)
            for range_ in ranges_of(plan_batch(self._pool, options))
        ]
        self.taken = 0
        self.begun = 0
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(PARTITIONS)
        self._results = [self._executor.submit(self._read, r) for r in self.readers]

    def _read(self, reader: RangeReader) -> int:
        expected = 0
        for entry in reader.entries():
            for payload in entry.payloads:
                assert payload is not None
                number = int.from_bytes(payload[:8], "big")
                assert number == expected, f"{number} came where {expected} is due"
                expected += 1
            with self._lock:
                self.taken += len(entry)
                self.begun += expected == len(entry)
        return expected

    @property
    def is_over(self) -> bool:
        """Whether all partitions are read, or failed."""
        return all(result.done() for result in self._results)

    @property
    def reconnects(self) -> int:
        """Of all readers."""
        return sum(reader.reader.reconnects for reader in self.readers)

    def result(self) -> list[int]:
        """The number of rows of each partition, in order and complete so far."""
        return [result.result(PATIENCE_S) for result in self._results]

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._executor.shutdown()


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until something is so; fails the test if that never happens."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def unloading(
    admin: Admin,
    link: LinkProxy,
    *topics: str,
    until: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Unloads all partitions every second, and three times at least while data flows.

    After those, and when ``until`` is so, the link is as fast as it can be: before, it
    need only be so slow that they come in time.
    """
    counters = link.counters
    over = threading.Event()

    def run() -> int:
        hits = 0
        while not over.wait(1.0):
            began = counters.up_bytes + counters.down_bytes
            for topic in topics:
                for index in range(PARTITIONS):
                    admin.unload(f"{topic}-partition-{index}")
            over.wait(0.1)
            hits += counters.up_bytes + counters.down_bytes > began + 20_000
            if hits >= 3 and until():
                link.pass_through()
        return hits

    with ThreadPoolExecutor(1) as executor:
        thread = executor.submit(run)
        try:
            yield
        finally:
            over.set()
        assert thread.result(PATIENCE_S) >= 3


class TestInProcess:
    def test_the_topic_is_unloaded_every_second(
        self, rows: str, link: LinkProxy, admin: Admin
    ) -> None:
        """Every row once, in order; each reader came back several times."""
        link.slow(BYTES_PER_S // 2)
        with Reading(link.url, rows, {}) as reading:

            def several() -> bool:
                each = [reader.reader.reconnects for reader in reading.readers]
                return min(each) >= 1 and sum(each) >= 2 * PARTITIONS

            with unloading(admin, link, rows, until=several):
                assert reading.result() == [ROWS_EACH] * PARTITIONS
            assert several()

    def test_connections_are_cut_at_random_bytes(
        self, rows: str, link: LinkProxy
    ) -> None:
        """Every row once, in order, over dozens of connections."""
        with Reading(link.url, rows, {}) as reading:
            link.cut_every((100_000, 1_500_000), seed=7)
            assert reading.result() == [ROWS_EACH] * PARTITIONS
            assert link.counters.cut >= 10
            assert reading.reconnects >= 10

    def test_the_link_stalls_for_longer_than_the_keep_alive(
        self, rows: str, link: LinkProxy
    ) -> None:
        """The connection that fell silent is given up, and the read goes on."""
        link.slow(BYTES_PER_S)
        alive = {"pulsar.client.keepAliveIntervalSeconds": "1"}
        with Reading(link.url, rows, alive) as reading:
            wait_until(lambda: reading.begun == PARTITIONS)  # on the connection
            accepted = link.counters.accepted
            link.stall()
            # It cannot know of the end of the stall before it has given up.
            wait_until(lambda: link.counters.accepted > accepted)
            assert not reading.is_over
            link.pass_through()
            assert reading.result() == [ROWS_EACH] * PARTITIONS
            assert all(reader.reader.reconnects >= 1 for reader in reading.readers)


def numbers(
    spark: SparkSession, url: str, topic: str, **further: str
) -> dict[int, list[int]]:
    """The numbers that Spark reads of each partition, in the order they came."""
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": url, "topic": topic, **OPTIONS, **further})
        .load()
        .selectExpr(
            "__partition AS part",
            "CAST(conv(hex(substring(value, 1, 8)), 16, 10) AS BIGINT) AS number",
        )
    )
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    table = frame.toArrow()
    for part, number in zip(
        table["part"].to_pylist(), table["number"].to_pylist(), strict=True
    ):
        found[part].append(number)
    return found


EXACT = {index: list(range(ROWS_EACH)) for index in range(PARTITIONS)}


class TestThroughSpark:
    def test_the_topic_is_unloaded_every_second(
        self, rows: str, link: LinkProxy, admin: Admin, spark: SparkSession
    ) -> None:
        """Every row once, in order within its partition, without a task retried."""
        link.slow(BYTES_PER_S // 6)
        with unloading(admin, link, rows):
            found = numbers(spark, link.url, rows)
        assert found == EXACT

    def test_connections_are_cut_at_random_bytes(
        self, rows: str, link: LinkProxy, spark: SparkSession
    ) -> None:
        """Every row once, in order within its partition, without a task retried."""
        cut = link.counters.cut
        link.cut_every((200_000, 2_000_000), seed=11)
        assert numbers(spark, link.url, rows) == EXACT
        assert link.counters.cut >= cut + 10

    def test_the_broker_is_killed_and_started_again(
        self,
        rows: str,
        link: LinkProxy,
        broker: EmbeddedBroker,
        spark: SparkSession,
    ) -> None:
        """In mid-read, on the same ports: the same tasks go on."""
        link.slow(BYTES_PER_S)
        began = link.counters.down_bytes
        with ThreadPoolExecutor(1) as executor:
            reading = executor.submit(numbers, spark, link.url, rows)
            wait_until(
                lambda: reading.done() or link.counters.down_bytes > began + 8_000_000
            )
            assert not reading.done(), reading.result()
            # It may be done when this is: a broker serves before it counts as healthy.
            broker.restart(kill=True)
            assert reading.result(PATIENCE_S) == EXACT

    @pytest.mark.parametrize(
        "most", [PARTITIONS, pytest.param(1, marks=pytest.mark.soak)]
    )
    def test_python_workers_are_killed(
        self, rows: str, link: LinkProxy, tmp_path: Path, most: int
    ) -> None:
        """Spark tries their tasks again, from the start; the rows are exact.

        Also those of a task that reads all topic partitions.
        """
        link.slow(BYTES_PER_S)
        began = link.counters.down_bytes
        command = [sys.executable, __file__, link.url, rows, str(tmp_path), str(most)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment(), cwd=tmp_path
        ) as job:
            try:
                wait_until(lambda: link.counters.down_bytes > began + 8_000_000)
                killed = kill_workers_of(job.pid)
                link.pass_through()
                output, _ = job.communicate(timeout=2 * PATIENCE_S)
            finally:
                job.kill()
        report = json.loads(output.splitlines()[-1])
        assert report["exact"]
        # Idle workers, which Spark keeps for later, were among the killed.
        assert 1 <= report["failed_tasks"] <= len(killed)


def kill_workers_of(job: int) -> list[int]:
    """Kills the Python workers that Spark started below a process."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,command="],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    processes = {}
    for line in listing.splitlines():
        pid, parent, command = line.split(None, 2)
        processes[int(pid)] = (int(parent), command)

    def is_below(pid: int) -> bool:
        while pid in processes and pid != job:
            pid = processes[pid][0]
        return pid == job

    daemons = {pid for pid, (_, c) in processes.items() if "pyspark.daemon" in c}
    workers = [p for p in daemons if processes[p][0] in daemons and is_below(p)]
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    return workers


def failed_tasks(spark: SparkSession, work: Callable[[], object]) -> int:
    """Does some work, and returns how many tasks of it failed."""
    spark.sparkContext.setJobGroup("work", "work")
    work()
    tracker = spark.sparkContext.statusTracker()
    infos: list[Any] = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup("work")
        for stage in tracker.getJobInfo(job).stageIds  # type: ignore[union-attr]
    ]
    return sum(info.numFailedTasks for info in infos)


def main(url: str, topic: str, folder: str, most: str) -> None:
    """A Spark of its own, which tries a task four times."""
    spark = start_spark(folder, master="local[2,4]", log_level="OFF")
    found: dict[int, list[int]] = {}
    failed = failed_tasks(
        spark, lambda: found.update(numbers(spark, url, topic, maxPartitions=most))
    )
    report = {"exact": found == EXACT, "failed_tasks": failed}
    sys.stdout.write(json.dumps(report) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
