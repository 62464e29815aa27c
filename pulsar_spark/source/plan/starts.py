# SPDX-License-Identifier: Apache-2.0
"""Where a new read begins: the options' starts as positions in topic partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, TopicPositions
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import Position, TimesSpec
from pulsar_spark.source.plan.ranges import (
    assign_times,
    check_end,
    check_start,
    is_after,
    start_of,
)
from pulsar_spark.topics import TopicName, is_segment
from spark_topics.options.offsets import Edge
from spark_topics.text import list_names


class Start(NamedTuple):
    """Where to begin in a topic partition.

    Attributes:
        first: The first message, inclusive.
        found: What the broker says of a reader placed there.
    """

    first: MessageId
    found: TopicPositions


def find_starts(
    lookup: PositionLookup,
    options: ReadOptions,
    topics: Sequence[TopicName],
    offsets: Mapping[str, Position],
    ends: Mapping[str, MessageId],
) -> dict[str, Start]:
    """Return the start of each topic partition, by full name.

    Args:
        lookup: Asks the cluster.
        options: Starting times, which come before offsets, and what to do about losses.
        topics: The topic partitions.
        offsets: The starting offset of each, by full name.
        ends: The last message wanted of those that are to be read up to a message.

    Raises:
        OptionError: Nothing was published since a starting time, and that is not
            allowed; or the times name a topic that is not read.
        DataLossError: A start is no longer there, or all rows up to an end are gone,
            and ``failOnDataLoss`` is set.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    times = times_for(options.starting_times, topics, "startingTime")
    by_time = lookup.from_times(times)
    _check_times(by_time, options)
    starts = {
        name: Start(positions.first, positions) for name, positions in by_time.items()
    }
    offsets = {
        name: position for name, position in offsets.items() if name not in times
    }
    # "latest" is after the last message that can be delivered: messages of an open
    # transaction come after that, and will be new when it commits.
    named = {
        name: EARLIEST if offset is Edge.LATEST else start_of(offset)
        for name, offset in offsets.items()
    }
    stored = lookup.from_message_ids(named)
    begins = {
        name: offset
        for name, offset in offsets.items()
        if isinstance(offset, MessageId) and not options.read_compacted
    }
    not_lost = without_loss(lookup, begins, stored)
    for name, positions in stored.items():
        first = positions.first
        if name not in not_lost:
            first = _first(name, named[name], positions, options)
        if offsets[name] is Edge.LATEST and positions.last is not None:
            first = MessageId(positions.last.ledger_id, positions.last.entry_id + 1)
        starts[name] = Start(first, positions)
    if not options.read_compacted:
        # A start that is gone was reported, and its end is behind it.
        asked = {
            name: end
            for name, end in ends.items()
            if name not in begins or name in not_lost
        }
        _check_ends(lookup, options, starts, offsets, asked)
    return starts


def without_loss(
    lookup: PositionLookup,
    begins: Mapping[str, MessageId],
    found: Mapping[str, TopicPositions],
) -> set[str]:
    """Return the topic partitions whose ledger is gone with no row that was wanted.

    A topic knows its last row after that row was removed, until the topic is opened
    again or has a further row::

        wanted   last known   first stored
        7:3      7:2          14:0           nothing had come after 7:2
        7:3      7:4          14:0           7:3 and 7:4 are lost
        7:3      14:-1        14:0           no broker can tell: a loss

    A position such as 12:-1 is of a ledger without a row. A broker removes an empty
    ledger when it opens the topic again. Where no broker can tell, the ledger had none.

    Args:
        lookup: Asks the cluster.
        begins: The first position wanted, by the full name of its topic partition.
        found: What the broker says of a reader that is placed right behind such a
            position, or at the beginning of the topic.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    gone = {
        name: found[name].before.position
        for name, begin in begins.items()
        if name in found
        and 0 <= begin.ledger_id < found[name].before.ledger_id
        and found[name].before.entry_id < 0
    }
    lasts = lookup.from_message_ids(dict.fromkeys(gone, LATEST), absent_ok=True)
    return {
        name
        for name, last in lasts.items()
        if last.before.position < begins[name].position
        or (
            begins[name].entry_id < 0
            and not begins[name].position < last.before.position < gone[name]
        )
    }


def _check_ends(
    lookup: PositionLookup,
    options: ReadOptions,
    starts: Mapping[str, Start],
    offsets: Mapping[str, Position],
    ends: Mapping[str, MessageId],
) -> None:
    """Report ends before which a topic partition has no row left."""
    doubtful = {}
    for name, end in ends.items():
        start = offsets.get(name)
        is_passed = isinstance(start, MessageId) and is_after(start, end)
        if start is Edge.LATEST or is_passed:
            continue
        if starts[name].found.before.position >= end.position:
            doubtful[name] = end
    # A start at a time may be behind an end that is still stored.
    stored = lookup.from_message_ids(dict.fromkeys(doubtful, EARLIEST))
    for name, end in doubtful.items():
        check_end(
            name,
            end,
            stored[name].before,
            fail_on_data_loss=options.fail_on_data_loss,
        )


def times_for(
    spec: TimesSpec | None, topics: Sequence[TopicName], option: str
) -> dict[str, int]:
    """Return the time of each topic partition that the option names, in ms since 1970.

    Raises:
        OptionError: It names a topic that is not read.
    """
    if spec is None:
        return {}
    return assign_times(spec.topics, spec.default_ms, topics, option=option)


def _first(
    name: str, wanted: MessageId, found: TopicPositions, options: ReadOptions
) -> MessageId:
    if options.read_compacted:
        # A compacted topic reaches back further than what is stored.
        return wanted
    if wanted == EARLIEST:
        return found.first
    return check_start(name, wanted, found, fail_on_data_loss=options.fail_on_data_loss)


def _check_times(found: Mapping[str, TopicPositions], options: ReadOptions) -> None:
    if options.starting_time_strategy != "error":
        return
    segments = map(TopicName.parse, filter(is_segment, found))
    scalable = {segment.scalable_name for segment in segments}

    def whole(name: str) -> str:
        """Return the topic of a segment: a sealed one gets no later rows."""
        topic = TopicName.parse(name).scalable_name
        return topic if topic in scalable else name

    current = {whole(name) for name, place in found.items() if not place.is_empty}
    if late := sorted({*map(whole, found)} - current):
        raise OptionError(
            f"Nothing was published at or after `startingTime` in {list_names(late)}. "
            "Choose an earlier time, or set `startingTimeStrategy` to latest to read "
            "only what comes from now on."
        )
