# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a batch read: asked of the cluster, all partitions at once."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spark_topics.source.parts import RangeSize, count_parts
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.discovery import find_edges, find_partitions
from tubemq_spark.source.ranges import (
    PartitionRange,
    check_named,
    chosen_end,
    chosen_start,
    split,
)
from tubemq_spark.wire.messages import Token


@dataclass(frozen=True)
class ReadTask:
    """The ranges of a task, sent to an executor.

    Attributes:
        range: The offsets.
        group: Name of the consumer group.
        token: What the broker may ask for.
        part: Which of the tasks of its partition it is, from 0.
        parts: How many of these there are.
    """

    range: PartitionRange
    group: str
    token: Token | None
    part: int = 0
    parts: int = 1

    def __str__(self) -> str:
        own = self.range
        return f"{own.partition} [{own.start}, {own.end})"


def batch_group(options: ReadOptions) -> str:
    """Return the consumer group of a read: the user's, or a new group."""
    return options.group or f"spark-{uuid.uuid4().hex[:8]}"


def plan_batch(pool: BrokerPool, options: ReadOptions) -> list[ReadTask]:
    """Return what each task of a batch reads.

    Raises:
        TubeMQError: Options do not fit the topics, rows are gone, or the cluster does
            not answer, or refuses.
    """
    group = batch_group(options)
    with Masters(options.client) as masters:
        partitions = find_partitions(masters, options, group, wait=True)
    existing = partitions.brokers.keys() | partitions.closed
    check_named(options.starting, "startingOffsets", existing)
    check_named(options.ending, "endingOffsets", existing)
    edges = find_edges(pool, partitions, partitions.brokers, options, group)
    ranges = []
    for partition in sorted(partitions.brokers):
        start = chosen_start(
            partition,
            options.starting,
            edges[partition],
            fail_on_data_loss=options.fail_on_data_loss,
        )
        end = chosen_end(
            partition,
            options.starting,
            options.ending,
            edges[partition],
            fail_on_data_loss=options.fail_on_data_loss,
        )
        if start < end:
            ranges.append(
                PartitionRange(
                    partition,
                    start,
                    end,
                    partitions.brokers[partition],
                    partition in partitions.dense,
                )
            )
    return tasks_of(
        split_ranges(ranges, options.min_partitions), group, partitions.token
    )


def tasks_of(
    ranges: Sequence[PartitionRange], group: str, token: Token | None
) -> list[ReadTask]:
    """Return tasks for ranges; several tasks may share a partition.

    Args:
        ranges: One for each task.
        group: Name of the consumer group.
        token: What brokers may ask for.
    """
    parts = Counter(range_.partition for range_ in ranges)
    number = {partition: itertools.count() for partition in parts}
    return [
        ReadTask(
            range_,
            group,
            token,
            next(number[range_.partition]),
            parts[range_.partition],
        )
        for range_ in ranges
    ]


def split_ranges(
    ranges: Sequence[PartitionRange], min_partitions: int | None
) -> list[PartitionRange]:
    """Cut the largest ranges until there are enough."""
    parts = count_parts(
        [RangeSize(range_.entries) for range_ in ranges],
        min_partitions=min_partitions,
        max_records=None,
    )
    return [
        part
        for range_, count in zip(ranges, parts, strict=True)
        for part in split(range_, count)
    ]
