# SPDX-License-Identifier: Apache-2.0
"""How many round trips each step takes, counted, for few and many topic partitions.

docs/speed.md shows the table.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client import pool as pool_module
from pulsar_spark.options import parse_read_options, parse_write_options
from pulsar_spark.sink import probes
from pulsar_spark.sink.driver import BatchWrite, StreamWrite
from pulsar_spark.sink.task import TaskWriter
from pulsar_spark.source.pulsar_source import PulsarSource, load_schema
from spark_topics.sink.write import Task
from spark_topics.spark.stream_reader import StreamReader
from tests.support.official import client
from tests.support.round_trips import round_trips

if TYPE_CHECKING:
    import pulsar

    from pulsar_spark.testing.admin import Admin

ROWS = pa.record_batch({"value": [b"v"] * 2000})

COLUMNS = pa.schema([*arrow_schema(("__key", "__topic")), ("value", pa.binary())])

_numbers = itertools.count(1)


def fresh(service_url: str, topic: str, **others: str) -> dict[str, str]:
    """Options that no connection of this process was opened with."""
    timeout = str(60_000 + next(_numbers))
    given = {"service.url": service_url, "topic": topic, **others}
    return {**given, "pulsar.client.operationTimeoutMs": timeout}


@pytest.fixture(params=[1, 100])
def partitions(request: pytest.FixtureRequest) -> int:
    """Number of topic partitions."""
    return int(request.param)


@pytest.fixture
def filled(admin: Admin, service_url: str, topic: str, partitions: int) -> str:
    """A topic with rows in each partition."""
    admin.create_partitioned(topic, partitions)
    with client(service_url) as producers:
        send(producers, topic, partitions, 3)
    return topic


def send(producers: pulsar.Client, topic: str, partitions: int, rows: int) -> None:
    """An entry of so many rows to each partition."""
    for number in range(partitions):
        producer = producers.create_producer(
            f"{topic}-partition-{number}",
            batching_enabled=True,
            batching_max_publish_delay_ms=60_000,
        )
        for _ in range(rows):
            producer.send_async(b"v", lambda *_: None)
        producer.flush()
        producer.close()


def counted(work: Callable[[], Any]) -> tuple[int, Any]:
    """The round trips of some work, and its result."""
    with round_trips() as count:
        result = work()
    return count.depth, result


def test_batch(service_url: str, filled: str) -> None:
    """From ``load()`` to the rows: three processes, each with a new connection."""
    load, schema = counted(
        lambda: load_schema(parse_read_options(fresh(service_url, filled)))
    )
    plan, tasks = counted(
        lambda: PulsarSource(
            parse_read_options(fresh(service_url, filled)), COLUMNS, schema
        ).plan()
    )
    source = PulsarSource(
        parse_read_options(fresh(service_url, filled)), COLUMNS, schema
    )
    task, rows = counted(
        lambda: sum(
            len(batch) for batch in source.read(tasks[0], COLUMNS, streaming=False)
        )
    )
    assert rows == 3
    assert (load, plan, task) == (2, 5, 3)


def test_stream(service_url: str, filled: str, partitions: int) -> None:
    """The start, the first micro-batch with its subscription, and a later one."""
    given = fresh(service_url, filled, startingOffsets="earliest")
    options = parse_read_options(given, streaming=True)
    columns = arrow_schema(("__key",))
    reader = StreamReader(PulsarSource(options, columns), columns)
    with client(service_url) as producers, contextlib.ExitStack() as stack:
        stack.callback(reader.stop)
        start, first = counted(reader.initialOffset)
        counts = []
        for _ in range(4):
            plan, end = counted(partial(reader.latestOffset, first, ReadAllAvailable()))
            ranges, tasks = counted(partial(reader.partitions, first, end))
            assert len(tasks) == partitions
            commit, _ = counted(partial(reader.commit, first))
            counts.append((plan, ranges, commit))
            first = end
            send(producers, filled, partitions, 1)
    assert start == 6
    assert counts[0] == (4, 3, 0)
    assert least(counts[1:]) == (3, 0, 0)


def test_write(service_url: str, filled: str, partitions: int) -> None:
    """A task, from its first row to the last receipt, and a later one of its process.

    With a lookup of the schema, which the driver spares tasks that write one topic.
    """
    options = parse_write_options(fresh(service_url, filled), streaming=False)
    names = [f"{filled}-partition-{number}" for number in range(partitions)]
    assert options.topic is not None
    counts = []
    for _ in range(2):
        writer = TaskWriter(options, Task(0), {options.topic: names})
        write, _ = counted(partial(writer.write, [ROWS]))
        counts.append(write)
    assert counts == [5, 3]


@pytest.fixture
def new_process() -> Callable[[], None]:
    """Forgets what this process knows, as if the next step ran in another process."""

    def forget() -> None:
        for pool in list(pool_module._pools.values()):
            pool.close()
        pool_module._pools.clear()
        probes._ready.clear()

    return forget


EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}


def test_exactly_once(
    service_url: str, filled: str, new_process: Callable[[], None]
) -> None:
    """A batch write: its preparation, a task, its commit."""
    counts = []
    for _ in range(3):
        given = fresh(service_url, filled, **EXACTLY_ONCE)
        write = BatchWrite(parse_write_options(given, streaming=False))
        prepare, _ = counted(write.prepare)
        new_process()
        task, result = counted(partial(write.run, Task(0), iter([ROWS])))
        new_process()
        commit, _ = counted(partial(write.commit, [result]))
        new_process()
        counts.append((prepare, task, commit))
    assert least(counts) == (11, 6, 5)


def test_exactly_once_stream(
    service_url: str, filled: str, new_process: Callable[[], None]
) -> None:
    """A micro-batch in the same way; the first one creates log and markers."""
    query = str(uuid.uuid4())
    given = fresh(service_url, filled, idempotenceId=query, **EXACTLY_ONCE)
    counts = []
    for batch_id in range(4):
        write = StreamWrite(parse_write_options(given, streaming=True))

        def begin(write: StreamWrite = write) -> None:
            write.prepare()
            write.begin_micro_batch()

        began, _ = counted(begin)
        new_process()
        task, result = counted(
            partial(write.run, Task(0, 0, batch_id, query), iter([ROWS]))
        )
        new_process()
        commit, _ = counted(partial(write.commit, [result], 1, batch_id))
        new_process()
        counts.append((began, task, commit))
    assert least(counts[1:]) == (11, 6, 9)


def least(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The least of each step."""
    return tuple(map(min, zip(*counts, strict=True)))
