# SPDX-License-Identifier: Apache-2.0
"""Which offsets to read of each partition, and in how many parts; pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from spark_topics.options.offsets import Edge, Offsets
from spark_topics.source.parts import cut_numbers
from spark_topics.statistics import warn_once
from tubemq_spark.errors import DataLossError, OptionError
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("source")


@dataclass(frozen=True)
class Edges:
    """Where a partition begins and ends at a time.

    Attributes:
        begin: Offset of the first message that there is.
        end: Offset after the last one.
    """

    begin: int
    end: int


@dataclass(frozen=True)
class PartitionRange:
    """A range of offsets in a partition, and where to read.

    Attributes:
        partition: Which one.
        start: First offset.
        end: Offset after the last one.
        broker: ``host:port`` of its broker.
        is_dense: Whether the store has no other partition: then each offset of the
            range is a message of it.
    """

    partition: Partition
    start: int
    end: int
    broker: str
    is_dense: bool

    @property
    def entries(self) -> int:
        """Return the number of index entries in the range."""
        return (self.end - self.start) // ENTRY_BYTES


def dense_partitions(partitions: Iterable[Partition]) -> set[Partition]:
    """Return the partitions that are alone in their store."""
    by_store: dict[object, list[Partition]] = {}
    for partition in partitions:
        by_store.setdefault(partition.store, []).append(partition)
    return {group_[0] for group_ in by_store.values() if len(group_) == 1}


def chosen_start(
    partition: Partition,
    starting: Offsets[Partition],
    edges: Edges,
    *,
    fail_on_data_loss: bool,
) -> int:
    """Return the first offset to read of a partition.

    Raises:
        DataLossError: It is gone, or never was.
    """
    position = starting.of(partition)
    if position is Edge.EARLIEST:
        return edges.begin
    if position is Edge.LATEST:
        return edges.end
    assert isinstance(position, int)
    if edges.begin <= position <= edges.end:
        return position
    report(loss(partition, position, edges), fail_on_data_loss=fail_on_data_loss)
    return min(max(position, edges.begin), edges.end)


def chosen_end(
    partition: Partition,
    starting: Offsets[Partition],
    ending: Offsets[Partition],
    edges: Edges,
    *,
    fail_on_data_loss: bool,
) -> int:
    """Return the offset behind the last to read in a partition.

    Raises:
        DataLossError: The partition does not reach that far, or all up to there is
            gone, which is wanted from the first message on.
    """
    position = ending.of(partition)
    if position is Edge.LATEST:
        return edges.end
    if position is Edge.EARLIEST:
        return edges.begin
    assert isinstance(position, int)
    is_gone = 0 < position <= edges.begin and starting.of(partition) is Edge.EARLIEST
    if is_gone or position > edges.end:
        report(loss(partition, position, edges), fail_on_data_loss=fail_on_data_loss)
    return min(position, edges.end)


def loss(partition: Partition, wanted: int, edges: Edges) -> DataLossError:
    """Return what to raise where an offset is not within a partition."""
    is_before = wanted <= edges.begin
    side = "begins" if is_before else "ends"
    place = edges.begin if is_before else edges.end
    why = (
        "Retention has deleted what was before."
        if is_before
        else "Its log was rolled back when a broker died, or the topic was made anew, "
        "or the messages are not on the broker's disk yet."
    )
    return DataLossError(
        f"The offset {wanted} of {partition} was asked for, and the partition {side} "
        f"at {place}. {why} Start elsewhere, or set `failOnDataLoss` to false to go on "
        "with what there is.",
        topic_partition=str(partition),
        wanted=str(wanted),
        available=str(edges.begin),
    )


def report(error: DataLossError, *, fail_on_data_loss: bool) -> None:
    """Raise an error, or warn once a process if the query may go on."""
    if fail_on_data_loss:
        raise error
    warn_once(logger, f"Going on with what there is. {error.message}")


def check_named(
    offsets: Offsets[Partition], name: str, existing: Container[Partition]
) -> None:
    """See that JSON offsets name partitions that exist.

    Raises:
        OptionError: One does not.
    """
    unknown = sorted(
        partition for partition in offsets.by_partition if partition not in existing
    )
    if unknown:
        raise OptionError(
            f"{name} names {', '.join(map(str, unknown[:10]))}, which does not exist."
        )


def split(range_: PartitionRange, parts: int) -> list[PartitionRange]:
    """Cut a range into parts of about equal size.

    Args:
        range_: Of as many messages at least.
        parts: At least 1.
    """
    begin = range_.start // ENTRY_BYTES
    return [
        replace(range_, start=first * ENTRY_BYTES, end=end * ENTRY_BYTES)
        for first, end in cut_numbers(begin, begin + range_.entries, parts)
    ]
