# SPDX-License-Identifier: Apache-2.0
"""Descriptions of topics, and committed offsets of consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ydb_spark.client.channel import Channel
from ydb_spark.errors import ProtocolError, TransportError
from ydb_spark.sdk import pb


@dataclass(frozen=True)
class PartitionInfo:
    """A partition of a topic.

    Attributes:
        number: Its id.
        is_active: Whether it takes messages: not after a split or merge.
        parents: The partitions that it was split or merged from.
        children: The partitions that it was split or merged into.
        start: First offset that is retained; 0 if it was not asked for.
        end: Offset of the next message.
        size_bytes: Size of what is stored, estimated.
        from_bound: Where its range of keys begins; b"" for the lowest.
    """

    number: int
    is_active: bool
    parents: tuple[int, ...]
    children: tuple[int, ...]
    start: int = 0
    end: int = 0
    size_bytes: int = 0
    from_bound: bytes = b""


@dataclass(frozen=True)
class TopicInfo:
    """A topic.

    Attributes:
        partitions: All that are there, by number.
        codecs: Those that it takes; none for any.
        consumers: Their names.
        created: What tells it from one of the same name before; "" where the server
            does not say.
    """

    partitions: dict[int, PartitionInfo]
    codecs: tuple[int, ...]
    consumers: tuple[str, ...] = ()
    created: str = ""

    def is_another(self, created: str) -> bool:
        """Return whether a topic of this name is known to be another one.

        Args:
            created: What tells that one.
        """
        return bool(created and self.created) and created != self.created

    @property
    def active(self) -> list[PartitionInfo]:
        """Return the partitions that take messages, by number."""
        return [p for _, p in sorted(self.partitions.items()) if p.is_active]


def describe_topic(channel: Channel, path: str, *, with_offsets: bool) -> TopicInfo:
    """Ask what a topic is made of.

    Args:
        channel: Where.
        path: Of the topic.
        with_offsets: Whether to ask each partition for its offsets, too.

    Raises:
        YdbError: There is no such topic, or no right to see it, or no answer.
    """
    request = pb.DescribeTopicRequest(path=path, include_stats=with_offsets)
    pauses = channel.pauses()
    while True:
        result = channel.call(
            "DescribeTopic", request, f"Describing {path}", pb.DescribeTopicResult()
        )
        if not result.partitions:
            raise ProtocolError(f"Describing {path}: the answer has no partitions.")
        untold = _untold(result) if with_offsets else []
        if not untold:
            return _topic_info(result)
        pauses.pause(
            TransportError(
                f"Describing {path}: the server does not say how far partitions"
                f" {untold} go. It leaves out those that it cannot reach just now."
            )
        )


def _untold(result: Any) -> list[int]:
    """Return the partitions whose offsets are missing: 0 would say that all is read."""
    return [
        p.partition_id for p in result.partitions if not p.HasField("partition_stats")
    ]


def _topic_info(result: Any) -> TopicInfo:
    created = getattr(result, "self").created_at  # noqa: B009
    is_told = created.plan_step or created.tx_id
    return TopicInfo(
        {p.partition_id: _partition_info(p) for p in result.partitions},
        tuple(result.supported_codecs.codecs),
        tuple(consumer.name for consumer in result.consumers),
        f"{created.plan_step}:{created.tx_id}" if is_told else "",
    )


def _partition_info(p: Any) -> PartitionInfo:
    offsets = p.partition_stats.partition_offsets
    return PartitionInfo(
        p.partition_id,
        p.active,
        tuple(p.parent_partition_ids),
        tuple(p.child_partition_ids),
        offsets.start,
        offsets.end,
        p.partition_stats.store_size_bytes,
        bytes(p.key_range.from_bound),
    )


def commit_offset(
    channel: Channel, path: str, partition: int, consumer: str, offset: int
) -> None:
    """Say that a consumer has read a partition up to an offset.

    Raises:
        YdbError: It is refused.
    """
    request = pb.CommitOffsetRequest(
        path=path, partition_id=partition, consumer=consumer, offset=offset
    )
    subject = f"Committing {offset} of {path}/{partition} for {consumer}"
    channel.call("CommitOffset", request, subject, pb.CommitOffsetResult())
