"""Which rows to read of which topic partition: pure, no broker is asked here."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.offsets import OffsetsSpec, Position
from pulsar_spark.topics import TopicName

logger = logging.getLogger("pulsar_spark.plan")

T = TypeVar("T")

#: How many names an error lists before it only counts the rest.
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """What a broker says of one topic partition and a reader of it.

    Attributes:
        before: The entry right before the first one that the reader would get. It need
            not exist; ``ledger:-1`` is the beginning of a ledger, and EARLIEST stands
            for a topic partition that does not exist yet.
        last: The last message that can be delivered now, None where there is none. A
            batch index of -1 stands for the whole entry.
    """

    before: MessageId
    last: MessageId | None

    @property
    def first(self) -> MessageId:
        """The first place where an entry for the reader may be, inclusive."""
        return MessageId(self.before.ledger_id, self.before.entry_id + 1)

    @property
    def is_empty(self) -> bool:
        """Whether the reader would get nothing now."""
        return self.last is None or self.last.position <= self.before.position


@dataclass(frozen=True)
class TopicRange:
    """The rows to read of one topic partition, both ends inclusive.

    Attributes:
        topic_partition: Full name.
        start: First message; a batch index of -1 stands for the whole entry. EARLIEST
            only for compacted topics, which may begin before their first entry.
        end: Last message; likewise.
        is_start_known: Whether the entry of ``start`` was there when the range was
            planned, though it may be one that nobody may see.
        begins_at: The first message of the whole read, where the read may begin in the
            midst of a chunked one: no part of the topic was asked for by its place.
            None where that is not known.
    """

    topic_partition: str
    start: MessageId
    end: MessageId
    is_start_known: bool = False
    begins_at: MessageId | None = field(default=None, compare=False)

    @property
    def partition(self) -> int:
        """Its number, -1 where the topic is not partitioned."""
        index = TopicName.parse(self.topic_partition).partition_index
        return -1 if index is None else index

    @property
    def is_empty(self) -> bool:
        """Whether no message can be in it."""
        return is_after(self.start, self.end)


@dataclass(frozen=True)
class ColumnTest:
    """A comparison of a column with a value, as SQL makes it of texts and numbers.

    Attributes:
        column: ``__topic`` or ``__partition``.
        name: One of the keys of ``COMPARISONS``.
        value: What to compare with; for ``in`` a tuple.
        is_negated: Whether rows are wanted for which it does not hold.
    """

    column: str
    name: str
    value: Any
    is_negated: bool = False

    def holds(self, found: str | int) -> bool:
        """Whether rows with this in the column can be wanted."""
        return COMPARISONS[self.name](found, self.value) is not self.is_negated


#: How a column is compared with a value.
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "in": lambda found, values: found in values,
    "startswith": lambda found, value: found.startswith(value),
    "endswith": lambda found, value: found.endswith(value),
    "contains": lambda found, value: value in found,
}


@dataclass(frozen=True)
class Pruning:
    """What a query does not want, so that it need not be read.

    Attributes:
        tests: What is true of the topic partition of each wanted row.
        published_from_ms: No wanted row was published before, in ms since 1970.
        published_to_ms: No wanted row was published after.
    """

    tests: tuple[ColumnTest, ...] = ()
    published_from_ms: int | None = None
    published_to_ms: int | None = None

    def keeps(self, range_: TopicRange) -> bool:
        """Whether rows of a topic partition can be wanted."""
        found: dict[str, str | int] = {"__topic": range_.topic_partition}
        # Where the topic has no partitions it is NULL, of which there is no telling.
        if range_.partition >= 0:
            found["__partition"] = range_.partition
        return all(
            test.holds(found[test.column])
            for test in self.tests
            if test.column in found
        )


def is_after(start: MessageId, end: MessageId) -> bool:
    """Whether the first message of ``start`` comes after the last one of ``end``."""
    if start.position != end.position:
        return start.position > end.position
    return 0 <= end.batch_index < start.batch_index


def assign_offsets(
    spec: OffsetsSpec, topic_partitions: Sequence[TopicName], *, option: str
) -> dict[str, Position]:
    """The position of each topic partition, by full name.

    Args:
        spec: The positions as the user gave them.
        topic_partitions: What is read.
        option: The option's name, for messages.

    Raises:
        OptionError: ``spec`` names a topic that is not read, or gives one message id to
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
    """The time of each topic partition that has one, by full name.

    Raises:
        OptionError: ``times_ms`` names a topic that is not read.
    """
    assigned = _assign(times_ms, default_ms, topic_partitions, option)
    return {name: time for name, time in assigned.items() if time is not None}


def _assign(
    named: Mapping[str, T],
    default: T,
    topic_partitions: Sequence[TopicName],
    option: str,
) -> dict[str, T]:
    """What a name says counts for it and its partitions; the longer name wins."""
    assigned = {topic.full_name: default for topic in topic_partitions}
    partitions: dict[str, list[str]] = {}
    for topic in topic_partitions:
        if topic.partition_index is not None:
            partitions.setdefault(topic.base.full_name, []).append(topic.full_name)
    for name, value in sorted(named.items(), key=lambda item: item[0] in assigned):
        if name in assigned:
            assigned[name] = value
        elif name not in partitions:
            raise OptionError(_unknown_topic(option, name, list(assigned)))
        elif isinstance(value, MessageId):
            partition = TopicName.parse(name).partition(max(value.partition, 0))
            if value.partition < 0 or partition.full_name not in assigned:
                raise OptionError(
                    f"`{option}` gives one message id to {name}, which has "
                    f"{len(partitions[name])} partitions. Name the partition: "
                    f'{{"{name}":{{"0":"{value}"}}}}.'
                )
            assigned[partition.full_name] = value
        else:
            assigned.update(dict.fromkeys(partitions[name], value))
    return assigned


def _unknown_topic(option: str, name: str, known: list[str]) -> str:
    return (
        f"`{option}` names {name}, which is not among the topics that are read: "
        f"{list_names(known)}."
    )


def list_names(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def start_of(position: Position) -> MessageId:
    """Where a reader must be placed to learn what is there for this start."""
    return position if isinstance(position, MessageId) else EARLIEST


def check_start(
    topic_partition: str,
    wanted: MessageId,
    found: TopicPositions,
    *,
    fail_on_data_loss: bool,
    is_protected: bool = False,
) -> MessageId:
    """The start to read from, given what the broker has.

    A gap in the numbers of entries is no loss: transactions, compaction and replication
    leave those. Only what lies before the first place that the topic reaches back to is
    gone.

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
    # A chunked message is there if its first chunk is; nothing is there where the topic
    # partition does not exist.
    begin = (wanted.first_chunk or wanted).position
    if wanted.ledger_id < 0 or EARLIEST.position < found.before.position < begin:
        return wanted
    if is_protected and _is_later_ledger(wanted, found.before):
        return found.first
    available = "" if found.is_empty else str(found.first)
    message = (
        f"{topic_partition} no longer has {wanted}, where the read should start; "
        + (f"the first one available is {available}" if available else "it is empty")
        + ". Retention or expiry removed what was before."
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{message} Set `failOnDataLoss` to false to go on with what there is.",
            topic_partition=topic_partition,
            wanted=str(wanted),
            available=available,
        )
    logger.warning("[PULSAR_DATA_LOSS] %s Going on with what there is.", message)
    return found.first


def _is_later_ledger(wanted: MessageId, before: MessageId) -> bool:
    return before.entry_id < 0 and before.ledger_id > wanted.ledger_id


def range_between(
    topic_partition: str,
    start: MessageId,
    end: MessageId | None,
    last: MessageId | None,
) -> TopicRange | None:
    """The range to read, or None where there is nothing in it.

    Args:
        topic_partition: Full name.
        start: First message, inclusive.
        end: Last message, inclusive; None for whatever is last now.
        last: The last message there is, None where there is none. The range never
            reaches beyond it.
    """
    if last is None:
        return None
    end = last if end is None else min(end, last, key=_end_key)
    range_ = TopicRange(topic_partition, start, end)
    return None if range_.is_empty else range_


def _end_key(end: MessageId) -> tuple[int, int, float]:
    """Orders last messages; a whole entry reaches further than any message in it."""
    batch_index = end.batch_index if end.batch_index >= 0 else math.inf
    return (*end.position, batch_index)
