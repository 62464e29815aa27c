# SPDX-License-Identifier: Apache-2.0
"""Plan a batch read: ask the cluster for positions, and fix the ranges to read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import OptionError, TopicNotFoundError
from pulsar_spark.message_id import (
    BEFORE_ALL,
    EARLIEST,
    MessageId,
    TopicPositions,
    entry_after,
    message_after,
)
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import Position
from pulsar_spark.source.plan.discovery import find_topic_partitions
from pulsar_spark.source.plan.explicit_ends import End, reach_ends
from pulsar_spark.source.plan.gone import without_gone
from pulsar_spark.source.plan.pruning import Pruning
from pulsar_spark.source.plan.ranges import (
    TopicRange,
    assign_offsets,
    is_after,
    last_messages,
    range_between,
)
from pulsar_spark.source.plan.read_task import ReadTask, read_tasks
from pulsar_spark.source.plan.starts import find_starts, times_for
from pulsar_spark.source.plan.survey import divide
from pulsar_spark.topics import TopicName, is_segment
from spark_topics.options.offsets import Edge

logger = logging.getLogger("pulsar_spark.source")


def plan_batch(
    pool: ConnectionPool, options: ReadOptions, pruning: Pruning | None = None
) -> list[ReadTask]:
    """Return a task for each topic partition that has rows, in the order of the topics.

    Options may ask for more or fewer, see ``source.survey``. Both ends are fixed here,
    once; rows that arrive later are not included.

    Args:
        pool: The cluster's connections.
        options: What to read.
        pruning: What of that is not wanted.

    Raises:
        OptionError: Offsets or times do not fit the topics.
        TopicNotFoundError: A topic does not exist.
        DataLossError: A start, or the topic partition or segment that it is in, is no
            longer there, and ``failOnDataLoss`` is set.
        EndNotReachedError: An end was not reached, and ``failOnUnreachedEnd`` is set.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    attempt = 1
    while True:
        try:
            ranges = _BatchPlanner(pool, options).plan(pruning or Pruning())
            return read_tasks(pool, divide(pool, options, ranges))
        except TopicNotFoundError as error:
            # Brokers delete sealed segments that are read, also in the midst of a plan:
            # the next layout has none of these.
            if attempt == _ATTEMPTS or not is_segment(error.subject):
                raise
            logger.info("The segments are asked for once more: %s", error)
            attempt += 1


#: Plans of a read whose segments keep disappearing.
_ATTEMPTS = 3


class _BatchPlanner:
    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._pool = pool
        self._options = options
        self._topic_lookup = TopicLookup(pool)
        self._positions = PositionLookup(
            pool,
            read_compacted=options.read_compacted,
        )

    def plan(self, pruning: Pruning) -> list[TopicRange]:
        topics = find_topic_partitions(self._topic_lookup, self._options)
        layouts = self._topic_lookup.layouts
        self._options = without_gone(self._options, topics, layouts)
        offsets = assign_offsets(
            self._options.starting_offsets, topics, option="startingOffsets"
        )
        times = times_for(self._options.starting_times, topics, "startingTime")
        ends = self._ends(topics)
        # Where a read ends before its start nothing is wanted, so that nothing is lost.
        for name in _check_order(offsets, ends):
            del offsets[name], ends[name]
        topics = [topic for topic in topics if topic.full_name in offsets]
        # A time says nothing of what was stored up to there.
        lasts_wanted = last_messages(
            {n: end.last for n, end in ends.items() if end.option == "endingOffsets"}
        )
        starts = find_starts(
            self._positions, self._options, topics, offsets, lasts_wanted
        )
        kept_topics = [
            topic
            for topic in topics
            if pruning.keeps(topic) and ends.get(topic.full_name) != _AT_THE_BEGINNING
        ]
        lasts = reach_ends(
            self._pool,
            self._options,
            {topic.full_name: starts[topic.full_name] for topic in kept_topics},
            ends,
        )
        ranges = []
        for topic in kept_topics:
            name = topic.full_name
            first = starts[name].first
            end = ends[name].last if name in ends else None
            range_ = range_between(name, first, end, lasts[name])
            if range_ is None:
                continue
            if name in times or not isinstance(offsets[name], MessageId):
                range_ = replace(range_, begins_at=first)
            ranges.append(range_)
        return self._narrowed(ranges, pruning)

    def _narrowed(self, ranges: list[TopicRange], pruning: Pruning) -> list[TopicRange]:
        """Return the ranges narrowed to where rows of the wanted publish times can be.

        Entries are in the order in which they were stored, not published, and brokers
        seek by bisection. If every publish time is within w of the store time, an entry
        published before t was stored before t + w, and so were all entries before it;
        these were published before t + 2w. So a seek to t, wherever it ends, skips
        nothing published at t + 2w or later. The same holds from the other end.
        """
        pushdown = self._options.filter_pushdown
        if pushdown is None or self._options.read_compacted:
            return ranges
        margin_ms = math.ceil(2000 * pushdown.clocks_within_s)
        names = [range_.topic_partition for range_ in ranges]
        firsts: dict[str, TopicPositions] = {}
        ends: dict[str, TopicPositions] = {}
        if pruning.published_from_ms is not None:
            at_ms = max(0, pruning.published_from_ms - margin_ms)
            firsts = self._positions.from_times(dict.fromkeys(names, at_ms))
        if pruning.published_to_ms is not None:
            at_ms = max(0, pruning.published_to_ms + margin_ms + 1)
            ends = self._positions.from_times(dict.fromkeys(names, at_ms))
        narrowed = []
        for range_ in ranges:
            start, end = range_.start, range_.end
            first = firsts.get(range_.topic_partition)
            if first is not None and first.first.position > start.position:
                start = first.first
            last = ends.get(range_.topic_partition)
            if last is not None and last.before.position < end.position:
                end = last.before
            cut_range = replace(range_, start=start, end=end)
            if not cut_range.is_empty:
                narrowed.append(cut_range)
        return narrowed

    def _ends(self, topics: list[TopicName]) -> dict[str, End]:
        """Return the end of each topic partition that is not read to its last row."""
        options = self._options
        times = times_for(options.ending_times, topics, "endingTime")
        # What was published at that very time belongs to the read: the end is before
        # the first entry of the next millisecond. Before a time that is yet to come, it
        # is the last entry of the topic.
        following = {name: time_ms + 1 for name, time_ms in times.items()}
        ends = {
            name: End(positions.before, "endingTime")
            for name, positions in self._positions.from_times(following).items()
        }
        offsets = assign_offsets(options.ending_offsets, topics, option="endingOffsets")
        for name, offset in offsets.items():
            if name in times:
                continue
            if isinstance(offset, MessageId) and offset.position > BEFORE_ALL.position:
                ends[name] = End(offset, "endingOffsets")
            elif offset is not Edge.LATEST:
                ends[name] = _AT_THE_BEGINNING
        return ends


#: The end of a topic partition of which nothing is read.
_AT_THE_BEGINNING = End(EARLIEST, "endingOffsets")


def _check_order(offsets: Mapping[str, Position], ends: Mapping[str, End]) -> set[str]:
    """Return the topic partitions where the start follows right after the end.

    Raises:
        OptionError: One starts further behind.
    """
    passed = set()
    for name, end in ends.items():
        start = offsets[name]
        # A topic partition of which nothing is to be read has no end to compare with.
        if (
            end == _AT_THE_BEGINNING
            or not isinstance(start, MessageId)
            or not is_after(start, end.last)
        ):
            continue
        # A read that goes on where the last one ended may find nothing new.
        if not _is_right_after(start, end.last):
            raise OptionError(
                f"The read of {name} would end at {end.last}, before it starts at "
                f"{start}. Correct `startingOffsets` or `endingOffsets`."
            )
        passed.add(name)
    return passed


def _is_right_after(start: MessageId, end: MessageId) -> bool:
    """Return whether a start follows an end, or the whole entry of the end."""
    return (start.position, start.batch_index) in {
        (following.position, following.batch_index)
        for following in (message_after(end), entry_after(end))
    }
