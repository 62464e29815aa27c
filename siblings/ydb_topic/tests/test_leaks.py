# SPDX-License-Identifier: Apache-2.0
"""Spark's workers run many tasks: none leaves a thread, a stream or a channel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from siblings.ydb_topic.tests.sink.tables import OPTIONS, bodies, table
from siblings.ydb_topic.tests.support.service import TopicService
from spark_topics.options.offsets import Edge, Offsets
from tests.support.waiting import await_true
from ydb_spark.client import channel as channels
from ydb_spark.client.channel import close_shared, shared_channel
from ydb_spark.errors import BadRowError
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import ReadOptions
from ydb_spark.sink.task import TaskWriter
from ydb_spark.source.topic_cluster import Range
from ydb_spark.source.topic_source import TopicSource

SCHEMA = pa.schema([("data", pa.binary())])
TASKS = 12
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    close_shared()  # what another test has left
    yield
    close_shared()


def clients() -> list[str]:
    """Names of this process's threads, those of the double left out."""
    return sorted(
        thread.name
        for thread in threading.enumerate()
        if not thread.name.startswith("ThreadPoolExecutor")
    )


def run_tasks(connection: ConnectionOptions, number: int) -> None:
    """A task that writes, one that fails, one that reads, one that stops half-way."""
    options = replace(OPTIONS, connection=connection)

    def writer(id_: str | None) -> TaskWriter:
        return TaskWriter(lambda: shared_channel(connection), options, number, id_=id_)

    assert writer(f"id {number}").write([table(bodies(5))]).written == 5
    with pytest.raises(BadRowError):
        writer(None).write([table([b"a"]), table([None])])
    source = TopicSource(
        ReadOptions(
            connection, "t", starting=Offsets(Edge.EARLIEST), read_buffer_bytes=1
        )
    )
    assert sum(b.num_rows for b in source.read(Range(0, 0, 5), SCHEMA, streaming=False))
    unfinished = source.read(Range(0, 0, 100), SCHEMA, streaming=False)
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]


def test_many_tasks(service: TopicService, connection: ConnectionOptions):
    """After many there are as many threads as after one; at the end there are none."""
    service.store.put("t", 0, *bodies(100))
    begun = clients()

    def settle(names: list[str]) -> None:
        await_true(lambda: len(clients()) <= len(names), f"only {names}", PATIENCE_S)

    def end() -> None:
        streams = "the end of streams"
        await_true(lambda: not service.writers | service.readers, streams, PATIENCE_S)

    run_tasks(connection, 0)
    end()
    await_true(
        lambda: not any("Stream" in name for name in clients()),
        "the end of threads",
        PATIENCE_S,
    )
    after_one = clients()
    for number in range(1, TASKS):
        run_tasks(connection, number)
    end()
    settle(after_one)
    assert len(channels._shared) == 1
    close_shared()
    assert not channels._shared
    settle(begun)
