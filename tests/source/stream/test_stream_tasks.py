# SPDX-License-Identifier: Apache-2.0
"""Tasks of micro-batches over a scripted broker."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.errors import (
    CheckpointError,
)
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    at,
    id_of,
    text,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    single,
)

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "2"}],
    ids=str,
)
@pytest.mark.parametrize("name", [P0, P1])
def test_what_is_left_out_leaves_tasks_alone(
    two: ScriptedBroker, queries: Any, options: dict[str, str], name: str
) -> None:
    """The others have the same numbers and the same ranges, however divided."""
    two.append(P0, *[single(b"a")] * 4)
    query = queries(**options)
    start = query.planner.initial()
    end = query.planner.latest(start)
    tasks = query.planner.ranges(start, end)
    query.kill()
    there = LastRead(LEDGER, 1)
    moved = replace(
        end,
        last_read={**end.last_read, name: there},
        start_after={**end.start_after, name: there},
        left_out={name: (end.start_after[name], end.last_read[name])},
    )
    moved = read_offset(json.loads(text(moved)))
    again = query.planner.ranges(start, moved)
    assert len(again) == len(tasks) > 1
    for old, new in zip(tasks, again, strict=True):
        is_out = old.ranges[0].topic_partition == name
        assert new.ranges == (() if is_out else old.ranges)
        assert str(new)
    following = query.planner.latest(moved)
    assert following.left_out == {}
    assert query.ranges(moved, following)[0].start == id_of(2)


def test_what_is_left_out_of_a_task_with_others(
    two: ScriptedBroker, queries: Any
) -> None:
    """Their rows would get other numbers, so the plan is refused."""
    query = queries(maxPartitions="1")
    start = query.planner.initial()
    end = query.planner.latest(start)
    span = (end.start_after[P0], end.last_read[P0])
    moved = replace(end, left_out={P0: span})
    with pytest.raises(CheckpointError, match=r"one task reads .*--renumber"):
        query.planner.ranges(start, moved)


def test_what_is_left_out_and_is_gone(two: ScriptedBroker, queries: Any) -> None:
    """What depended on its size cannot be told again; what did not is the same."""
    query = queries(minPartitions="4")
    start = query.planner.initial()
    end = query.planner.latest(start)
    span = (LastRead(LEDGER - 1, 3), end.last_read[P0])
    moved = replace(end, left_out={P0: span})
    with pytest.raises(CheckpointError, match="no longer stored"):
        query.planner.ranges(start, moved)
    query.kill()
    query.options.pop("minPartitions")
    tasks = query.planner.ranges(start, moved)
    assert [len(task.ranges) for task in tasks] == [0, 1]


def test_ranges_say_what_is_stored(scripted: ScriptedBroker, queries: Any) -> None:
    """A task that finds the ledger of its start gone can tell whether it had it."""
    scripted.add_topic(BASE, [single(b"a")] * 3)
    scripted.roll(BASE)
    scripted.append(BASE, *[single(b"b")] * 2)
    end = StreamOffset("s", {BASE: at(1, 8)})
    for read, is_known in ((1, True), (2, False)):
        query = queries()
        start = StreamOffset("s", {BASE: at(read)})
        (range_,) = query.ranges(start, end)
        assert range_ == TopicRange(BASE, id_of(read + 1), id_of(1, 8), is_known)
        query.stop()
