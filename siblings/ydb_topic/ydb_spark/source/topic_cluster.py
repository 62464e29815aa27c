# SPDX-License-Identifier: Apache-2.0
"""A topic, seen by the planner of a stream.

Positions are offsets of the message that was read last. A partition that was split or
merged keeps its messages and has no more; its children are partitions of their own, and
a micro-batch begins them only when all of their parents have been planned to the end,
so that a producer's messages before the split are read before its later messages.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from spark_topics.errors import foreign_text
from spark_topics.source.parts import RangeSize, count_parts, cut_numbers
from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.checkpoint import (
    SLASHED,
    OffsetForm,
    Span,
    StreamOffset,
    read_positions,
)
from spark_topics.source.stream.cluster import (
    NextEntry,
    PartitionStatus,
    Share,
    Unread,
    Waiting,
)
from spark_topics.source.stream.topic_set import require_named
from ydb_spark.client.channel import Channel
from ydb_spark.client.topics import TopicInfo, commit_offset, describe_topic
from ydb_spark.errors import DataLossError, OptionError, YdbError
from ydb_spark.options.read import PARTITION, ReadOptions
from ydb_spark.source.bounds import starting
from ydb_spark.system import SYSTEM

logger = logging.getLogger("ydb_spark.source")


class Offset(int):
    """The offset of the message that was read last; -1 for none."""

    def next(self) -> int:
        """Return the next offset."""
        return self + 1


_OFFSET = re.compile(r"-1|0|[1-9][0-9]{0,18}", re.ASCII)


def _parse(text: str) -> Offset:
    if _OFFSET.fullmatch(text) is None:
        raise ValueError(f"{text[:100]!r} is not an offset")
    return Offset(text)


@dataclass(frozen=True)
class TopicOffset(StreamOffset[Offset]):
    """The progress of a stream, in the checkpoint.

    Attributes:
        created: What tells a topic from one of the same name before, by the name of
            the topic; without those of which it is not known.
        ended: The last offsets of partitions that take no more messages. The server
            drops such a partition when retention has emptied it: then this tells
            whether all of it was read.
    """

    form = OffsetForm(SYSTEM, SLASHED, _parse)

    created: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, Offset] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the offset in the form that Spark stores."""
        tree = super().to_json()
        if self.created:
            tree["created"] = dict(sorted(self.created.items()))
        if self.ended:
            tree["ended"] = self._tree(self.ended)
        return tree

    @classmethod
    def fields_of(cls, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an offset in JSON."""
        fields, created = super().fields_of(tree), tree.get("created", {})
        fields["ended"] = read_positions(tree.get("ended", {}), SLASHED.flatten, _parse)
        for positions in fields.values():
            for name in positions:
                if PARTITION.fullmatch(SLASHED.split(name)[1] or "") is None:
                    raise ValueError(f"{name[:100]!r} is no partition, such as t/0")
        if isinstance(created, str):  # of the one topic, as older offsets have it
            topics = {SLASHED.split(name)[0] for name in fields["last_read"]}
            created = dict.fromkeys(topics, created)
        if not isinstance(created, Mapping):
            raise ValueError("the times of creation are not an object by topic")
        return {
            **fields,
            "created": {topic: str(offset) for topic, offset in created.items()},
        }


@dataclass(frozen=True)
class Range:
    """What a task reads.

    Attributes:
        partition: Which partition.
        start: Offset of the first message.
        end: Offset after the last.
        created: What tells the topic from another of its name; "" where that is not
            known.
    """

    partition: int
    start: int
    end: int
    created: str = ""


class TopicCluster:
    """A topic of YDB, seen by the planner of a stream.

    Each method that asks the server describes the topic once.

    Args:
        channel: The connection to the cluster.
        options: How to read.
    """

    system = SYSTEM
    earliest = Offset(-1)

    def __init__(self, channel: Channel, options: ReadOptions) -> None:
        self._channel = channel
        self._options = options
        self._topic = options.within_database(options.topic)
        self._recorded: Mapping[str, Offset] = {}  # what Spark has written down
        self._bytes_per_message: dict[str, float] = {}
        self._committed: dict[str, int] = {}
        self._read_of = ""  # the topic that the offset is of that was handed in last
        self._described: TopicInfo | None = None
        # Last offsets of partitions that take no more messages.
        self._ended: dict[str, Offset] = {}
        self._is_of_another = False

    # -- Offsets

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of partitions as JSON: by topic, then by partition."""
        return SLASHED.tree(values)

    def read_offset(self, tree: Mapping[str, Any]) -> TopicOffset:
        """Read an offset of the checkpoint.

        Raises:
            CheckpointError: It is not one of ours.
        """
        offset = self._respelled(TopicOffset.from_json(tree))
        self._read_of = offset.created.get(self._topic, "")
        self._ended |= offset.ended
        return offset

    def _respelled(self, offset: TopicOffset) -> TopicOffset:
        """Return an offset with the names that topics have here.

        The options of another run may have spelled the path of a topic otherwise.
        """

        def renamed(positions: Mapping[str, Offset]) -> dict[str, Offset]:
            names = {name: SLASHED.split(name) for name in positions}
            return {
                SLASHED.join(self._options.within_database(topic), partition): (
                    positions[name]
                )
                for name, (topic, partition) in names.items()
            }

        return replace(
            offset,
            last_read=renamed(offset.last_read),
            start_after=renamed(offset.start_after),
            kept=renamed(offset.kept),
            ended=renamed(offset.ended),
            created={
                self._options.within_database(topic): created
                for topic, created in offset.created.items()
            },
        )

    def next_offset(
        self,
        start: TopicOffset | None,
        last_read: Mapping[str, Offset],
        start_after: Mapping[str, Offset],
        kept: Mapping[str, Offset],
    ) -> TopicOffset:
        """Return the end of a micro-batch."""
        created = {} if start is None else dict(start.created)
        if self._described is not None and self._described.created:
            created[self._topic] = self._described.created
        if start is None:
            self._read_of = created.get(self._topic, "")
        ended = {
            name: last
            for name, last in self._ended.items()
            if name in last_read or name in kept
        }
        return TopicOffset(
            last_read, start_after, kept=kept, created=created, ended=ended
        )

    def recorded(self, offset: TopicOffset) -> bool:
        """Remember what may be committed for the consumer; nothing else is kept."""
        self._recorded = offset.last_read
        return False

    # -- Partitions

    def starts(self) -> dict[str, Offset]:
        """Return the positions after which a new query starts.

        Raises:
            OptionError: Offsets do not fit the topic.
            DataLossError: A start is no longer there.
            YdbError: There is no such topic, or no answer.
        """
        starts = starting(self._channel, self._options, self._describe())
        return {self._name(n): Offset(start - 1) for n, start in starts.items()}

    def partitions(self, *, wait: bool = False) -> list[str]:
        """Return the existing partitions, including split partitions."""
        return [self._name(number) for number in sorted(self._describe().partitions)]

    def is_wanted(self, name: str) -> bool:
        """Return whether the options include the partition."""
        return SLASHED.split(name)[0] == self._topic

    def topic_of(self, name: str) -> str:
        """Return the key of average sizes: the partition's own name."""
        return name

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[Offset]]:
        """Return the first and last offsets; deleted partitions are left out.

        A child of a split or merge begins with its first message: where retention has
        taken that, a visit reports the loss.
        """
        topic = self._describe()
        statuses = {}
        for name in names:
            info = topic.partitions.get(_number(name))
            if info is not None:
                after = self.earliest if info.parents else Offset(info.start - 1)
                statuses[name] = PartitionStatus(after, Offset(info.end - 1))
        return statuses

    @contextmanager
    def visit(
        self, begins: Mapping[str, Offset]
    ) -> Iterator[Mapping[str, PartitionStatus[Offset] | None]]:
        """Commit what was read, for the consumer, and see what there is to read.

        Raises:
            DataLossError: Messages are gone, and ``failOnDataLoss`` is set.
        """
        statuses = self._statuses(begins)
        if not self._is_of_another:
            recorded = self._recorded
            self.acknowledge(
                {
                    name: begin
                    for name, begin in begins.items()
                    if begin <= recorded.get(name, self.earliest)
                }
            )
        yield statuses

    # -- How far a micro-batch goes

    def backlog(self, news: Mapping[str, Unread[Offset]]) -> dict[str, Waiting]:
        """Return how many messages wait: as many as offsets."""
        return {
            name: Waiting(unread.last - unread.after, is_all=True)
            for name, unread in news.items()
        }

    def peek(
        self,
        news: Mapping[str, Unread[Offset]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[Offset]]]:
        """Tell the average size of messages: a server says no more before a read."""
        for name in news:
            size = self._bytes_per_message.get(name)
            if size is not None:
                on_seen(name, EntrySize(1.0, int(size)))
        return {}

    def ends(self, shares: Mapping[str, Share[Offset]]) -> dict[str, Offset]:
        """Return the end of each share, at most the share's last message."""
        return {
            name: share.unread.last
            if share.entries is None
            else min(share.unread.last, Offset(share.unread.after + share.entries))
            for name, share in shares.items()
        }

    def ranges(self, spans: Sequence[Span[Offset]]) -> Sequence[Range]:
        """Return the ranges of a micro-batch's tasks; each call gives equal rows.

        Raises:
            DataLossError: This process plans its first one, and the topic is another
                than that which the micro-batch is of.
        """
        if self._described is None:
            self._is_another(self._describe())
        require_named(self, [span.topic_partition for span in spans])
        sizes = [RangeSize(span.last - span.after) for span in spans]
        parts = count_parts(
            sizes, min_partitions=self._options.min_partitions, max_records=None
        )
        return [
            Range(_number(span.topic_partition), start, end, self._read_of)
            for span, count in zip(spans, parts, strict=True)
            for start, end in cut_numbers(span.after + 1, span.last + 1, count)
        ]

    # -- The end

    def acknowledge(self, read: Mapping[str, Offset]) -> None:
        """Commit the read offsets for the consumer, if options name a consumer.

        What cannot be committed is logged: the checkpoint alone counts for the query.
        """
        consumer = self._options.consumer
        if consumer is None:
            return
        for name, last in filter(lambda item: self.is_wanted(item[0]), read.items()):
            offset = last.next()
            if offset <= self._committed.get(name, 0):
                continue
            number = _number(name)
            try:
                commit_offset(
                    self._channel, self._options.topic, number, consumer, offset
                )
            except YdbError as error:
                logger.warning("%s", error)
                if error.retriable:
                    return  # the others would be waited for as long
            self._committed[name] = offset

    def close(self) -> None:
        """Do nothing: the channel belongs to the process."""

    # -- What was asked

    def _describe(self) -> TopicInfo:
        topic = describe_topic(self._channel, self._options.topic, with_offsets=True)
        self._bytes_per_message = {
            self._name(number): info.size_bytes / (info.end - info.start)
            for number, info in topic.partitions.items()
            if info.end > info.start
        }
        if self._described is None:
            self._require_consumer(topic)
        self._described = topic
        for number, info in topic.partitions.items():
            if info.is_active:
                self._ended.pop(self._name(number), None)
            else:
                self._ended[self._name(number)] = Offset(info.end - 1)
        return topic

    def _require_consumer(self, topic: TopicInfo) -> None:
        consumer = self._options.consumer
        if consumer is not None and consumer not in topic.consumers:
            consumers = ", ".join(map(foreign_text, topic.consumers)) or "none"
            raise OptionError(
                f"consumer: {self._options.topic} has none of the name"
                f" {foreign_text(consumer)}. It has: {consumers}. ALTER TOPIC ... ADD"
                " CONSUMER makes one; without the option nothing is committed."
            )

    def _is_another(self, topic: TopicInfo) -> bool:
        """Return whether the topic was dropped and made again since the offset in hand.

        Raises:
            DataLossError: It was, and ``failOnDataLoss`` is set.
        """
        before, now = self._read_of, topic.created
        if not topic.is_another(before):
            return False
        path = self._options.topic
        problem = (
            f"{path} was dropped and made anew: the checkpoint is of another topic of"
            " that name, whose messages are gone."
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{problem} failOnDataLoss=false reads this one from its beginning.",
                topic_partition=path,
                wanted=before,
                available=now,
            )
        logger.warning("%s This one is read from its beginning.", problem)
        return True

    def _name(self, number: int) -> str:
        return f"{self._topic}/{number}"

    def _statuses(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        topic = self._describe()
        self._is_of_another = self._is_another(topic)
        if self._is_of_another:
            self._committed.clear()
        offsets: dict[str, Offset] = {}
        for name, after in begins.items():
            info = topic.partitions.get(_number(name))
            if info is not None:
                first, last = info.start - 1, info.end - 1
                if self._is_of_another:
                    after = Offset(first)
                elif after < first or last < after:
                    after = self._moved(name, after, first, last)
                offsets[name] = after
        unread = self._unread(topic, offsets)
        return {
            name: self._status(topic, name, offsets[name], unread)
            if name in offsets
            else None
            for name in begins
            if name in offsets or not self._is_over(name, begins[name])
        }

    def _is_over(self, name: str, begin: Offset) -> bool:
        """Return whether a partition that is gone was read to its end.

        The server drops one that was split or merged when retention has emptied it.
        """
        last = self._ended.get(name)
        return last is not None and begin >= last

    def _status(
        self, topic: TopicInfo, name: str, after: Offset, unread: set[int]
    ) -> PartitionStatus[Offset]:
        info = topic.partitions[_number(name)]
        is_due = unread.isdisjoint(info.parents)
        # Offsets tell its first row from the next plan on, also where rows come later.
        return PartitionStatus(
            after, Offset(info.end - 1), comes_later=not is_due, is_named=True
        )

    def _unread(self, topic: TopicInfo, found: Mapping[str, Offset]) -> set[int]:
        """Return the partitions with unread messages, and their descendants.

        One that was split before anybody wrote to it is read only when its parent is:
        what came before its children's messages is there.
        """
        unread = {
            _number(name)
            for name, after in found.items()
            if after < topic.partitions[_number(name)].end - 1
        }
        while True:
            heirs = {
                number
                for number, info in topic.partitions.items()
                if number not in unread and not unread.isdisjoint(info.parents)
            }
            if not heirs:
                return unread
            unread |= heirs

    def _moved(self, name: str, after: Offset, first: int, last: int) -> Offset:
        """Return where to go on where the position is not there any more."""
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{name} has no offset {after.next()} any more: it has {first + 1} to"
                f" {last + 1}. Retention has taken messages that were not read, or the"
                " topic was made anew. failOnDataLoss=false goes on with what is"
                " there.",
                topic_partition=name,
                wanted=str(after.next()),
                available=str(first + 1),
            )
        logger.warning("%s: messages from %d on are gone", name, after.next())
        # Offsets that have fallen are of another topic, all of it new.
        return Offset(first)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])
