# SPDX-License-Identifier: Apache-2.0
"""A stream's planner on TubeMQ: offsets, limits, losses, and brokers that restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.tubemq_spark.scripted_server import ENTRY, ScriptedServer, refuse
from tubemq_spark.errors import CheckpointError, DataLossError
from tubemq_spark.options import Offsets, ReadOptions, Start
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.stream import TubeMQOffset, stream_planner


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1, 1]}) as server:
        for number in range(10):
            server.append("t", 0, b"%d" % number)
        yield server


def planner(server: ScriptedServer, **options: Any) -> Any:
    chosen = ReadOptions(
        server.options, ("t",), starting=Offsets(Start.EARLIEST), group="g"
    )
    return stream_planner(server.pool, replace(chosen, **options))


def ranges(planner: Any, start: Any, end: Any) -> list[tuple[str, int, int]]:
    return [
        (str(task.range.partition), task.range.start, task.range.end)
        for task in planner.ranges(start, end)
    ]


def test_a_stream_reads_all_and_then_what_is_new(server: ScriptedServer):
    stream = planner(server)
    first = stream.initial()
    end = stream.latest(first)
    assert ranges(stream, first, end) == [("t/1:0", 0, 10 * ENTRY)]
    assert stream.latest(end) is end
    server.append("t", 10000, b"new")
    stream = planner(server)
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/1:10000", 0, ENTRY)]
    stream.stop()


def test_offsets_survive_the_checkpoint(server: ScriptedServer):
    stream = planner(server)
    end = stream.latest(stream.initial())
    tree = json.loads(json.dumps(end.to_json()))
    assert tree["lastRead"] == {"t": {"1:0": "280", "1:10000": "0"}}
    again = planner(server)
    assert again.offset(tree) == end
    # The first end says where the query began: the same range after a crash.
    assert ranges(again, again.initial(), again.offset(tree)) == [("t/1:0", 0, 280)]


def test_limits_count_offsets(server: ScriptedServer):
    stream = planner(server, max_rows=4)
    at = stream.initial()
    sizes = []
    while (end := stream.latest(at)) is not at:
        sizes += [(e - s) // ENTRY for _, s, e in ranges(stream, at, end)]
        at = end
    assert sum(sizes) == 10
    assert max(sizes) <= 4


def test_latest_is_resolved_once_and_for_all(server: ScriptedServer):
    stream = planner(server, starting=Offsets(Start.LATEST))
    first = stream.initial()
    server.append("t", 0, b"new")
    end = stream.latest(first)
    assert ranges(stream, first, end) == [("t/1:0", 280, 308)]


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_retention_took_are_a_loss(server: ScriptedServer, fails: bool):
    stream = planner(server, fail_on_data_loss=fails)
    first = stream.initial()
    server.stores["t", 0].begin = 6
    if fails:
        with pytest.raises(DataLossError, match="begins at 168"):
            stream.latest(first)
    else:
        end = stream.latest(first)
        assert ranges(stream, first, end) == [("t/1:0", 6 * ENTRY, 10 * ENTRY)]


def test_a_log_that_was_rolled_back_is_a_loss(server: ScriptedServer):
    stream = planner(server)
    end = stream.latest(stream.initial())
    server.stores["t", 0].flushed = 5
    with pytest.raises(DataLossError, match="ends at 140"):
        planner(server).latest(end)


def test_partitions_that_a_master_leaves_out_are_not_gone(server: ScriptedServer):
    stream = planner(server, discovery_interval_s=0.0)
    end = stream.latest(stream.initial())
    server.layout["t"] = [1]
    server.append("t", 10000, b"new")
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/1:10000", 0, ENTRY)]


def test_a_broker_that_starts_is_waited_for(server: ScriptedServer):
    server.script("register", refuse(503), refuse(503))
    stream = planner(server)
    assert stream.latest(stream.initial()).last_read["t/1:0"] == 280


@pytest.mark.parametrize(
    "tree",
    [
        {"v": 1},
        {"v": 1, "lastRead": {"t": {"1:0": "x"}}},
        {"v": 1, "lastRead": {"t": {"one": "0"}}},
        {"v": 1, "lastRead": {"t": "0"}},
        7,
    ],
)
def test_what_is_not_ours_is_not_read(tree: Any):
    with pytest.raises(CheckpointError, match="not one of a TubeMQ stream"):
        TubeMQOffset.from_json(tree)


def test_the_plan_of_a_batch(server: ScriptedServer):
    options = ReadOptions(server.options, ("t",), group="g", min_partitions=4)
    tasks = plan_batch(server.pool, options)
    assert [(one.range.start, one.range.end) for one in tasks] == [
        (0, 56),
        (56, 140),
        (140, 196),
        (196, 280),
    ]
    # Of planners, which readers must not be in the way of.
    assert {body.groupName for body in server.seen["register"]} == {"g-plan"}
