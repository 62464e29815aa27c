# SPDX-License-Identifier: Apache-2.0
"""The log line about a plan of a batch read, from what the plan knows already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.topics import topic_of
from spark_topics.text import counted, list_names


def summary_of(tasks: Sequence[ReadTask]) -> str:
    """Return how much a batch read reads, and from where to where.

    No broker is asked. So of a range across ledgers only the entries of the last one
    count, and the line says "at least".

    Args:
        tasks: All tasks of the read.
    """
    ranges = [range_ for task in tasks for range_ in task.ranges]
    if not ranges:
        return "plan: no topic partition has rows to read"
    names = {range_.topic_partition for range_ in ranges}
    topics = sorted({topic_of(name) for name in names})
    counts = [_entries(range_) for range_ in ranges]
    least = "" if all(is_all for _, is_all in counts) else "at least "
    return (
        f"plan: {counted(len(names), 'topic partition')} of {list_names(topics)}, "
        f"{least}{counted(sum(entries for entries, _ in counts), 'entry')}, "
        f"{counted(len(tasks), 'task')}; {list_names(_spans(ranges))}"
    )


class _Span(NamedTuple):
    """The first and the last range of a topic partition."""

    first: TopicRange
    last: TopicRange

    def __str__(self) -> str:
        start = self.first.start
        return (
            f"{self.first.topic_partition} from "
            f"{start if start.ledger_id >= 0 else 'earliest'} to {self.last.end}"
        )


def _spans(ranges: Iterable[TopicRange]) -> list[_Span]:
    """Return where each topic partition is read; its ranges are in order."""
    ends: dict[str, TopicRange] = {}
    starts: dict[str, TopicRange] = {}
    for range_ in ranges:
        starts.setdefault(range_.topic_partition, range_)
        ends[range_.topic_partition] = range_
    return [_Span(first, ends[name]) for name, first in starts.items()]


def _entries(range_: TopicRange) -> tuple[int, bool]:
    """Return how many entries there are at least, and whether those are all."""
    start, end = range_.start, range_.end
    if start.ledger_id != end.ledger_id:
        return end.entry_id + 1, False
    return end.entry_id - max(start.entry_id, 0) + 1, True
