# SPDX-License-Identifier: Apache-2.0
"""A reading task: its rows, its line of statistics, and what it leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from siblings.tubemq.tests.scripted_server import BROKER_ID, ENTRY, ScriptedServer, cut
from spark_topics import statistics
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import shared_pool
from tubemq_spark.loops.messages import KERNEL
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.source.task import read_task
from tubemq_spark.wire.metadata import Partition

VALUE = pa.schema([("value", pa.binary())])


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Twenty messages of one byte and more."""
    with ScriptedServer({"t": [1]}, per_get=5) as found:
        for number in range(20):
            found.append("t", 0, b"%d" % number)
        yield found
        shared_pool(found.options).close()


def task_of(server: ScriptedServer) -> ReadTask:
    partition = Partition("t", BROKER_ID, 0)
    range_ = PartitionRange(partition, 0, 20 * ENTRY, server.address, True)
    return ReadTask(range_, "g", None)


def test_a_task_says_what_it_did(
    server: ScriptedServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """Its line at level DEBUG; no other task of this process is added to it."""
    monkeypatch.setattr(statistics, "_short_tasks", {})
    server.script("get", cut)
    with caplog.at_level(logging.DEBUG, "tubemq_spark"):
        batches = read_task(task_of(server), ReadOptions(server.options, ("t",)), VALUE)
        values = [v for batch in batches for v in batch.column("value").to_pylist()]
    assert values == [b"%d" % number for number in range(20)]
    (line,) = [
        one.getMessage() for one in caplog.records if one.name == "tubemq_spark.spark"
    ]
    assert line.startswith("t/1:0 [0, 560): 20 rows, 30 bytes read in ")
    assert line.endswith(f"; 1 reconnects; kernel: {KERNEL}")


def test_a_task_that_is_given_up_lets_go_of_its_partition(server: ScriptedServer):
    """As when Spark wants no more rows, of LIMIT."""
    batches = read_task(task_of(server), ReadOptions(server.options, ("t",)), VALUE)
    assert next(batches).num_rows == 5
    assert server.owners
    batches.close()  # type: ignore[attr-defined]
    await_true(lambda: not server.owners, "the end of the registration")


def test_the_task_of_an_empty_plan_has_no_rows(server: ScriptedServer):
    assert not [*read_task(None, ReadOptions(server.options, ("t",)), VALUE)]
