# SPDX-License-Identifier: Apache-2.0
"""Routing of rows: to a partition, to a group, or by the server's choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ydb_spark.arrow.hashing import partition_of
from ydb_spark.arrow.rows import Row
from ydb_spark.client.channel import Channel
from ydb_spark.client.topics import TopicInfo, describe_topic
from ydb_spark.errors import (
    BadRowError,
    DataLossError,
    InactivePartitionError,
    OptionError,
    ServerError,
    TakenOverError,
    YdbError,
)
from ydb_spark.options.write import Partitioning, WriteOptions
from ydb_spark.system import SYSTEM
from ydb_spark.wire.codecs import codec_name
from ydb_spark.wire.writes import MAX_PRODUCER_BYTES

logger = SYSTEM.logger("sink")

_T = TypeVar("_T")

#: A partition, a group, or what the server chooses.
Place: TypeAlias = int | str | None


class Places:
    """The partitions of a topic, for a task that writes.

    Args:
        channel: Makes the channel.
        options: How to write.
    """

    def __init__(self, channel: Callable[[], Channel], options: WriteOptions) -> None:
        self._make_channel = channel
        self._channel: Channel | None = None
        self._options = options
        self._topic: TopicInfo | None = None
        self._created: str | None = None

    @property
    def channel(self) -> Channel:
        """Return the way to the server; made for the first row."""
        if self._channel is None:
            self._channel = self._make_channel()
        return self._channel

    @property
    def created(self) -> str:
        """Return the creation stamp of the topic that was found first."""
        return self._created or ""

    def of(self, row: Row) -> Place:
        """Return where a row goes.

        Raises:
            BadRowError: It does not say, or what no row can.
            YdbError: There is no such topic any more, or no answer.
        """
        how = self._options.partitioning
        if how is Partitioning.SERVER:
            return None
        if how is Partitioning.MESSAGE_GROUP_ID:
            return _group(row)
        if how is Partitioning.PARTITION_ID:
            return _told(row.partition, row, "partition_id", how)
        key = _told(row.key, row, "key", how)
        active = self.topic().active
        return active[partition_of(key, len(active))].number

    def topic(self) -> TopicInfo:
        """Return the topic as found first, or after a partition's refusal.

        Raises:
            OptionError: Keys would move.
            YdbError: There is no such topic any more, or no answer.
        """
        if self._topic is None:
            description = self._describe()
            require_fixed_size(description, self._options)
            self._topic = description
            if self._created is None:
                self._created = description.created
        return self._topic

    def require_open(self, place: Place) -> None:
        """Check that a partition takes rows.

        Raises:
            BadRowError: The topic does not have it.
            InactivePartitionError: It was split or merged.
            YdbError: There is no such topic any more, or no answer.
        """
        self.topic()
        problem = self._inactive(place) if isinstance(place, int) else None
        if problem is not None:
            raise problem

    def require_same_topic(self) -> None:
        """Check that the topic is still the topic found first.

        Raises:
            DataLossError: It was dropped and made again since then.
            YdbError: There is none of its name any more, or no answer.
        """
        require_one_topic(self._options.topic, {self.created, self._describe().created})

    def explain(self, error: YdbError, place: Place) -> YdbError:
        """Return why a place does not take rows, if that is for good."""
        if isinstance(place, str) and isinstance(error, TakenOverError):
            return _two_of_a_group(error)
        if not isinstance(place, int) or not isinstance(error, ServerError):
            return error
        if error.status not in ("OVERLOADED", "UNAVAILABLE"):
            return error
        self._topic = None
        try:
            return self._inactive(place) or error
        except YdbError as unknown:
            logger.debug("%s", unknown)
            return error

    def _describe(self) -> TopicInfo:
        return describe_topic(self.channel, self._options.topic, with_offsets=False)

    def _inactive(self, partition: int) -> YdbError | None:
        """Return the problem of a partition that rows name; None without a problem."""
        partitions = self.topic().partitions
        info = partitions.get(partition)
        path = self._options.topic
        if info is None:
            return BadRowError(
                f"Rows name partition {partition}, which {path} does not have: it has"
                f" {sorted(partitions)}."
            )
        if info.is_active:
            return None
        return InactivePartitionError(
            f"Partition {partition} of {path} takes no more rows: it was split or"
            f" merged, and became {list(info.children)}. Name these in partition_id,"
            " or let the server choose: partitioning=server.",
            status="OVERLOADED",
        )


def require_codec(codecs: tuple[int, ...], options: WriteOptions) -> None:
    """Check that a topic allows the codec.

    Raises:
        OptionError: It does not.
    """
    if codecs and options.codec not in codecs:
        allowed = ", ".join(codec_name(codec) for codec in codecs)
        raise OptionError(
            f"{options.topic} does not allow codec={codec_name(options.codec)}: it"
            f" allows {allowed}. ALTER TOPIC ... SET (supported_codecs = ...) adds one."
        )


def require_fixed_size(topic: TopicInfo, options: WriteOptions) -> None:
    """Check that the number of partitions is fixed, for routing by key.

    Raises:
        OptionError: Partitions were split or merged, so that keys would move.
    """
    if options.partitioning is Partitioning.KEY and any(
        not p.is_active or p.parents for p in topic.partitions.values()
    ):
        raise OptionError(
            f"partitioning=key is for topics with a fixed number of partitions, and"
            f" those of {options.topic} were split or merged: keys would move. Use"
            " partitioning=server, or compute partition_id."
        )


def require_one_topic(path: str, created: set[str]) -> None:
    """Check that all rows of a write are in the same topic.

    Args:
        path: Of the topic.
        created: What tells those that were found from others of that name; "" where
            the server does not say.

    Raises:
        DataLossError: They are in more.
    """
    stamps = sorted(created - {""})
    if len(stamps) > 1:
        raise DataLossError(
            f"{path} was dropped and made anew while it was written to, and rows that"
            " were stored before are gone with it. Run the write again; a stream does"
            " so when it is started again.",
            topic_partition=path,
            wanted=stamps[0],
            available=stamps[-1],
        )


def _told(value: _T | None, row: Row, column: str, how: Partitioning) -> _T:
    """Return the routing value of a row.

    Raises:
        BadRowError: It has none.
    """
    if value is None:
        raise BadRowError(
            f"Row {row.number} of its task has no {column}, which"
            f" partitioning={how.value} needs: it is null."
        )
    return value


def _group(row: Row) -> str:
    """Return the group of a row.

    Raises:
        BadRowError: It has none, or none that the server takes.
    """
    if not row.group:
        raise BadRowError(
            f"Row {row.number} of its task has no message_group_id, which"
            " partitioning=message_group_id needs: it is null or empty."
        )
    size = len(row.group.encode())
    if size > MAX_PRODUCER_BYTES:
        raise BadRowError(
            f"Row {row.number} of its task has {size} bytes of message_group_id. No"
            f" group can have more than {MAX_PRODUCER_BYTES}."
        )
    return row.group


def _two_of_a_group(error: TakenOverError) -> TakenOverError:
    """Return the error for a group with another writer."""
    text = error.message.partition(" Another attempt of this task")[0]
    return error.saying(
        f"{text} Somebody else writes to this message group now. Let one task have all"
        ' rows of a group, by df.repartition("message_group_id"), set'
        " spark.speculation=false, and let no other program write to it meanwhile."
    )
