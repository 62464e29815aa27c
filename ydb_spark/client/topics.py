# SPDX-License-Identifier: Apache-2.0
"""What a topic is made of, and how far a consumer is in it."""

from __future__ import annotations

from dataclasses import dataclass

from ydb_spark.client.channel import Channel
from ydb_spark.wire.stubs import pb


@dataclass(frozen=True)
class PartitionInfo:
    """One partition of a topic.

    Attributes:
        number: Its id.
        is_active: Whether it takes messages: not after a split or merge.
        parents: What it came of.
        children: What it became.
        start: First offset that is retained; 0 where nobody asked.
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
        write_bytes_per_second: Quota of a partition; 0 where it is not known.
    """

    partitions: dict[int, PartitionInfo]
    codecs: tuple[int, ...]
    write_bytes_per_second: int

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
    result = channel.call(
        "DescribeTopic", request, f"Describing {path}", pb.DescribeTopicResult()
    )
    return TopicInfo(
        {
            p.partition_id: PartitionInfo(
                p.partition_id,
                p.active,
                tuple(p.parent_partition_ids),
                tuple(p.child_partition_ids),
                p.partition_stats.partition_offsets.start,
                p.partition_stats.partition_offsets.end,
                p.partition_stats.store_size_bytes,
                bytes(p.key_range.from_bound),
            )
            for p in result.partitions
        },
        tuple(result.supported_codecs.codecs),
        result.partition_write_speed_bytes_per_second,
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
