# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.plan.summary`: the line about a plan."""

from __future__ import annotations

import pytest

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.plan.summary import summary_of

ORDERS = "persistent://public/default/orders"


def part(number: int, start: MessageId, end: MessageId) -> TopicRange:
    """A range of a partition of orders."""
    return TopicRange(f"{ORDERS}-partition-{number}", start, end)


FIRST = part(0, MessageId(7, 5), MessageId(7, 9, 3))
SECOND = part(1, MessageId(8, 0), MessageId(8, 0))


@pytest.mark.parametrize(
    ("tasks", "amount", "spans"),
    [
        (
            [ReadTask((SECOND,))],
            "1 topic partition of {}, 1 entry, 1 task",
            ["-partition-1 from 8:0 to 8:0"],
        ),
        (
            [ReadTask((FIRST,)), ReadTask((SECOND,))],
            "2 topic partitions of {}, 6 entries, 2 tasks",
            ["-partition-0 from 7:5 to 7:9:3", "-partition-1 from 8:0 to 8:0"],
        ),
        (
            [
                ReadTask((part(0, MessageId(7, 0), MessageId(7, 1999)),)),
                ReadTask((part(0, MessageId(7, 2000), MessageId(9, 4)),)),
            ],
            "1 topic partition of {}, at least 2,005 entries, 2 tasks",
            ["-partition-0 from 7:0 to 9:4"],
        ),
        (
            [ReadTask((part(0, EARLIEST, MessageId(7, 4)),))],
            "1 topic partition of {}, at least 5 entries, 1 task",
            ["-partition-0 from earliest to 7:4"],
        ),
    ],
)
def test_a_plan(tasks: list[ReadTask], amount: str, spans: list[str]) -> None:
    """How much, in how many tasks, and from where to where."""
    places = ", ".join(ORDERS + span for span in spans)
    assert summary_of(tasks) == f"plan: {amount.format(ORDERS)}; {places}"


@pytest.mark.parametrize("tasks", [[], [ReadTask(())]])
def test_an_empty_plan(tasks: list[ReadTask]) -> None:
    """A topic without rows is no error, and worth a line."""
    assert summary_of(tasks) == "plan: no topic partition has rows to read"


def test_a_plan_of_thousands() -> None:
    """The line stays one that a person can read."""
    ranges = [part(n, MessageId(n, 0), MessageId(n, 9)) for n in range(3000)]
    line = summary_of([ReadTask((range_,)) for range_ in ranges])
    assert line.startswith(f"plan: 3,000 topic partitions of {ORDERS}, 30,000 entries")
    assert line.endswith("and 2995 more")
    assert len(line) < 700
