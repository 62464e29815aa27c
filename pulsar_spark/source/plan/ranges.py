# SPDX-License-Identifier: Apache-2.0
"""Which rows to read of which topic partition: pure, no broker is asked here."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.options.offsets import OffsetsSpec, Position, id_of_a_whole_topic
from pulsar_spark.topics import TopicName
from spark_topics.text import list_names

logger = logging.getLogger("pulsar_spark.source")

_T = TypeVar("_T")


@dataclass(frozen=True)
class TopicRange:
    """The rows to read from a topic partition, both ends inclusive.

    Attributes:
        topic_partition: Full name.
        start: First message; a batch index of -1 means the whole entry. EARLIEST
            only for compacted topics, which may begin before their first entry.
        end: Last message; in the same way.
        is_start_known: Whether the entry of ``start`` was stored when the range was
            planned, visible to readers or not; or must have been, since the cursor of
            the subscription is ahead.
        begins_at: The first message of the whole read, where the read may begin in the
            middle of a chunked one: no part of the topic was asked for by position.
            None if not known.
    """

    topic_partition: str
    start: MessageId
    end: MessageId
    is_start_known: bool = False
    begins_at: MessageId | None = field(default=None, compare=False)

    @property
    def partition(self) -> int:
        """Return the partition number, -1 if the topic is not partitioned."""
        index = TopicName.parse(self.topic_partition).partition_index
        return -1 if index is None else index

    @property
    def is_empty(self) -> bool:
        """Return whether no message can be in the range."""
        return is_after(self.start, self.end)


def is_after(start: MessageId, end: MessageId) -> bool:
    """Return whether the first message of ``start`` is after the last of ``end``."""
    if start.position != end.position:
        return start.position > end.position
    return 0 <= end.batch_index < start.batch_index


def assign_offsets(
    spec: OffsetsSpec, topic_partitions: Sequence[TopicName], *, option: str
) -> dict[str, Position]:
    """Return the position of each topic partition, by full name.

    Args:
        spec: The positions that the user set.
        topic_partitions: What is read.
        option: The option's name, for messages.

    Raises:
        OptionError: ``spec`` names a topic that is not read, or has one message id for
            a topic of several partitions.
    """
    return _assign(spec.topics, spec.default, topic_partitions, option)


def assign_times(
    times_ms: Mapping[str, int],
    default_ms: int | None,
    topic_partitions: Sequence[TopicName],
    *,
    option: str,
) -> dict[str, int]:
    """Return the time of each topic partition that has a time, by full name.

    Raises:
        OptionError: ``times_ms`` names a topic that is not read.
    """
    assigned = _assign(times_ms, default_ms, topic_partitions, option)
    return {name: time for name, time in assigned.items() if time is not None}


def _assign(
    named: Mapping[str, _T],
    default: _T,
    topic_partitions: Sequence[TopicName],
    option: str,
) -> dict[str, _T]:
    """Assign the values of named topics to their partitions; the longer name wins."""
    assigned = {topic.full_name: default for topic in topic_partitions}
    partitions: dict[str, list[str]] = {}
    for topic in topic_partitions:
        if topic.is_scalable or topic.partition_index is not None:
            partitions.setdefault(topic.common_name, []).append(topic.full_name)
    for name, value in sorted(named.items(), key=lambda item: item[0] in assigned):
        topic = TopicName.parse(name)
        is_whole = topic.partition_index is None
        members = partitions.get(topic.common_name, ()) if is_whole else ()
        if name in assigned:
            assigned[name] = value
        elif not members:
            raise unknown_topic(option, name, list(assigned))
        elif isinstance(value, MessageId):
            partition = topic.partition(max(value.partition, 0))
            if value.partition < 0 or partition.full_name not in assigned:
                raise id_of_a_whole_topic(option, name, value, len(members))
            assigned[partition.full_name] = value
        if not isinstance(value, MessageId):
            assigned.update(dict.fromkeys(members, value))
    return assigned


def unknown_topic(option: str, name: str, known: Sequence[str]) -> OptionError:
    """Return the error for a name in an option that is not read.

    Args:
        option: The option's name.
        name: Full name of a topic or topic partition.
        known: The topic partitions that are read.
    """
    return OptionError(
        f"`{option}` names {name}, which is not among the topics that are read: "
        f"{list_names(known)}."
    )


def start_of(position: Position) -> MessageId:
    """Return the position at which to place a reader to find the first stored row.

    "12:-1", the beginning of a ledger, is the place of its first entry.
    """
    if not isinstance(position, MessageId):
        return EARLIEST
    if position.ledger_id >= 0 and position.entry_id < 0:
        return replace(position, entry_id=0)
    return position


def last_messages(ends: Mapping[str, Position]) -> dict[str, MessageId]:
    """Return the ends that name a message. No word does, nor a place like "12:-1"."""
    return {
        name: end
        for name, end in ends.items()
        if isinstance(end, MessageId) and end.entry_id >= 0
    }


def check_start(
    topic_partition: str,
    wanted: MessageId,
    found: TopicPositions,
    *,
    fail_on_data_loss: bool,
    is_protected: bool = False,
) -> MessageId:
    """Return the start to read from, for what the broker has.

    A gap in entry ids is no loss: transactions, compaction and replication leave gaps.
    Only what is before the first position that the topic reaches back to is gone.

    Args:
        topic_partition: Full name.
        wanted: The start, inclusive.
        found: What the broker says of a reader placed there.
        fail_on_data_loss: Whether a loss is an error or a warning.
        is_protected: Whether a durable subscription has kept all from ``wanted`` on.
            Then a ledger that is gone as a whole had been read to its end.

    Raises:
        DataLossError: ``wanted`` is gone.
    """
    # A chunked message is stored if its first chunk is; nothing is stored where the
    # topic partition does not exist.
    begin = (wanted.first_chunk or wanted).position
    if wanted.ledger_id < 0 or EARLIEST.position < found.before.position < begin:
        return wanted
    if is_protected and _is_later_ledger(wanted, found.before):
        return found.first
    available = "" if found.is_empty else str(found.first)
    report_loss(
        f"{topic_partition} no longer has {wanted}, where the read should start; "
        + (f"the first one available is {available}" if available else "it is empty")
        + ". Retention or expiry removed what was before.",
        topic_partition=topic_partition,
        wanted=str(wanted),
        available=available,
        fail_on_data_loss=fail_on_data_loss,
    )
    return found.first


def check_end(
    topic_partition: str,
    end: MessageId,
    before: MessageId,
    *,
    fail_on_data_loss: bool,
) -> None:
    """Report an end where all rows up to the end are gone.

    Args:
        topic_partition: Full name.
        end: The last message wanted, inclusive.
        before: The entry right before the first one that is stored.
        fail_on_data_loss: Whether a loss is an error or a warning.

    Raises:
        DataLossError: The topic partition begins behind the end.
    """
    if before.position < end.position:
        return
    first = TopicPositions(before, None).first
    report_loss(
        f"{topic_partition} no longer has {end}, where the read should end, nor any "
        f"row before: it begins at {first}. Retention removed these rows, or the "
        "topic was deleted and created again.",
        topic_partition=topic_partition,
        wanted=str(end),
        available=str(first),
        fail_on_data_loss=fail_on_data_loss,
    )


def report_loss(
    message: str,
    *,
    topic_partition: str,
    wanted: str,
    available: str,
    fail_on_data_loss: bool,
    going_on: str = "with what there is",
) -> None:
    """Raise or warn, as the user wants it, where rows are gone.

    Args:
        message: What is gone, and why.
        topic_partition: Full name.
        wanted: The position that is gone.
        available: The position that there is; "" for none.
        fail_on_data_loss: Whether a loss is an error or a warning.
        going_on: How a read goes on without these rows.

    Raises:
        DataLossError: A loss is an error.
    """
    if fail_on_data_loss:
        raise DataLossError(
            f"{message} Set `failOnDataLoss` to false to go on {going_on}.",
            topic_partition=topic_partition,
            wanted=wanted,
            available=available,
        )
    logger.warning("[PULSAR_DATA_LOSS] %s Going on %s.", message, going_on)


def _is_later_ledger(wanted: MessageId, before: MessageId) -> bool:
    return before.entry_id < 0 and before.ledger_id > wanted.ledger_id


def range_between(
    topic_partition: str,
    start: MessageId,
    end: MessageId | None,
    last: MessageId | None,
) -> TopicRange | None:
    """Return the range to read; None for an empty range.

    Args:
        topic_partition: Full name.
        start: First message, inclusive.
        end: Last message, inclusive; None for the one that is last now.
        last: The last message stored, None if there is none. The range never goes
            beyond it.
    """
    if last is None:
        return None
    end = last if end is None else min(end, last, key=_end_key)
    range_ = TopicRange(topic_partition, start, end)
    return None if range_.is_empty else range_


def _end_key(end: MessageId) -> tuple[int, int, float]:
    """Return a sort key: a whole entry sorts behind every message inside that entry."""
    batch_index = end.batch_index if end.batch_index >= 0 else math.inf
    return (*end.position, batch_index)
