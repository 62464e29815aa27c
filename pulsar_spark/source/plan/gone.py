# SPDX-License-Identifier: Apache-2.0
"""Positions in options that are of topic partitions which are gone by now: pure.

A program writes down where to go on, and up to where. It comes back when a sealed
segment of its scalable topic, or a topic of its pattern, has been deleted. Whether rows
are lost depends on the two places::

    start       end
    latest      any      it has read all there was: nothing is lost
    12:3        12:2     nothing was wanted
    12:3        12:9     the rows from there on are lost
    (first row) 12:9     the rows up to there are lost
    (first row) 0:-1     there was none
    12:3        0:-1     no broker can tell what had come since: a loss

Any other name that is not read is a mistake, see ``ranges``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_spark.message_id import MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import OffsetsSpec, Position
from pulsar_spark.source.plan.ranges import is_after, report_loss
from pulsar_spark.topics import TopicName, is_segment
from pulsar_spark.wire.layout import Layout
from spark_topics.options.offsets import Edge


def without_gone(
    options: ReadOptions, topics: Sequence[TopicName], layouts: Mapping[str, Layout]
) -> ReadOptions:
    """Return the options without positions of topic partitions that are gone.

    Args:
        options: What to read.
        topics: The topic partitions that there are.
        layouts: The layout of each scalable topic among them, by its full name.

    Raises:
        DataLossError: Rows that come after a start are gone, and ``failOnDataLoss`` is
            set.
    """
    if not layouts and options.topics_pattern is None:
        return options
    starts, ends = options.starting_offsets.topics, options.ending_offsets.topics
    # Where nothing else is read, a misspelt end lifts no end.
    is_bounded = options.ending_offsets.default is Edge.EARLIEST
    names = {topic.full_name for topic in topics}
    topic_names = {topic.common_name for topic in topics}
    gone = []
    for name, position in {**ends, **starts}.items():
        if name in names:
            continue
        topic = TopicName.parse(name)
        if topic.common_name in topic_names:
            is_gone = _is_deleted_segment(topic, position, layouts)
        else:
            is_gone = (is_bounded or name in starts) and _matches(options, name)
        if is_gone:
            gone.append(name)
    for name in gone:
        start, end = _start_of(options.starting_offsets, name), ends.get(name)
        if isinstance(end, MessageId) and end.entry_id >= 0:
            if _wants(start, end):
                _report_end(name, end, fail_on_data_loss=options.fail_on_data_loss)
        elif name in starts and _has_lost(name, starts[name], end):
            _report(name, starts[name], fail_on_data_loss=options.fail_on_data_loss)
    return replace(
        options,
        starting_offsets=_without(options.starting_offsets, gone),
        ending_offsets=_without(options.ending_offsets, gone),
    )


def _is_deleted_segment(
    topic: TopicName, position: Position, layouts: Mapping[str, Layout]
) -> bool:
    """Return whether a name is of a segment that its topic has had.

    The name may be that of a topic or partition from before the topic was migrated.
    """
    layout = layouts.get(topic.scalable_name)
    number = topic.partition_index
    if number is None and isinstance(position, MessageId) and not topic.is_scalable:
        number = max(position.partition, 0)
    if layout is None or number is None or number in layout.names:
        return False
    return layout.is_over(topic.full_name)


def _matches(options: ReadOptions, name: str) -> bool:
    return options.topics_pattern is not None and options.topics_pattern.matches(name)


def _start_of(spec: OffsetsSpec, name: str) -> Position:
    """Return the start of a deleted topic partition, or a word for the topic."""
    topic = TopicName.parse(name)
    whole = (topic.base.full_name, topic.common_name, topic.scalable_name)
    words = [spec.topics[n] for n in whole if isinstance(spec.topics.get(n), Edge)]
    return spec.topics.get(name, words[0] if words else spec.default)


def _wants(start: Position, end: MessageId) -> bool:
    """Return whether a read up to a message wanted rows."""
    if isinstance(start, MessageId):
        return not is_after(start, end)
    return start is Edge.EARLIEST


def _has_lost(name: str, start: Position, end: Position | None) -> bool:
    """Return whether rows may be lost of what has no message as the end."""
    if isinstance(start, MessageId):
        return True
    # As in streams, a topic of which nothing was read yet may go.
    is_unread = start is Edge.EARLIEST and is_segment(name)
    return is_unread and not isinstance(end, MessageId)


def _report(name: str, start: Position, *, fail_on_data_loss: bool) -> None:
    place = start.value if isinstance(start, Edge) else str(start)
    _report_loss(
        f"{name} is gone, where `startingOffsets` begins at {place}: it was deleted,"
        " and rows that came after that place with it.",
        name,
        place,
        fail_on_data_loss=fail_on_data_loss,
    )


def _report_end(name: str, end: MessageId, *, fail_on_data_loss: bool) -> None:
    _report_loss(
        f"{name} is gone, where `endingOffsets` ends at {end}: it was deleted, and "
        "the rows up to that place with it. (Or the name is misspelt.)",
        name,
        str(end),
        fail_on_data_loss=fail_on_data_loss,
    )


def _report_loss(
    message: str, name: str, place: str, *, fail_on_data_loss: bool
) -> None:
    report_loss(
        f"{message} Retention that is longer than the time between two reads keeps "
        "what is not read yet.",
        topic_partition=name,
        wanted=place,
        available="",
        fail_on_data_loss=fail_on_data_loss,
        going_on="without it in this read",
    )


def _without(offsets: OffsetsSpec, gone: Sequence[str]) -> OffsetsSpec:
    topics = {n: p for n, p in offsets.topics.items() if n not in gone}
    return replace(offsets, topics=topics)
