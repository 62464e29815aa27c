# SPDX-License-Identifier: Apache-2.0
"""Where a query begins and ends in each partition, as its options say."""

from __future__ import annotations

from ydb_spark.client.topics import TopicInfo
from ydb_spark.errors import DataLossError, OptionError
from ydb_spark.options.read import Offsets, ReadOptions


def starting(options: ReadOptions, topic: TopicInfo) -> dict[int, int]:
    """Return the offset of the first message wanted, by partition.

    Raises:
        OptionError: Offsets name partitions that are not there.
        DataLossError: An offset is no longer there, or not yet.
    """
    assert options.starting is not None
    _require_known(options.starting, topic, "startingOffsets", options.topic)
    starts = {}
    for number, info in topic.partitions.items():
        wanted = options.starting.by_partition.get(number)
        if wanted is None:
            is_earliest = options.starting.word == "earliest"
            wanted = info.start if is_earliest else info.end
        elif not info.start <= wanted <= info.end:
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"startingOffsets: {options.topic}/{number} has no offset {wanted}:"
                    f" it has {info.start} to {info.end}. failOnDataLoss=false begins"
                    " at the next one that is there.",
                    topic_partition=f"{options.topic}/{number}",
                    wanted=str(wanted),
                    available=str(info.start),
                )
            wanted = min(max(wanted, info.start), info.end)
        starts[number] = wanted
    return starts


def ending(options: ReadOptions, topic: TopicInfo) -> dict[int, int]:
    """Return the offset after the last message wanted, by partition.

    Raises:
        OptionError: Offsets name partitions that are not there, or are beyond them.
    """
    _require_known(options.ending, topic, "endingOffsets", options.topic)
    ends = {}
    for number, info in topic.partitions.items():
        wanted = options.ending.by_partition.get(number, info.end)
        if wanted > info.end:
            raise OptionError(
                f"endingOffsets: {options.topic}/{number} ends before {info.end}, not"
                f" {wanted}. A batch read waits for nothing."
            )
        ends[number] = wanted
    return ends


def _require_known(offsets: Offsets, topic: TopicInfo, name: str, path: str) -> None:
    unknown = sorted(set(offsets.by_partition) - set(topic.partitions))
    if unknown:
        raise OptionError(
            f"{name} names partitions {unknown}, which {path} does not have: it has"
            f" {sorted(topic.partitions)}."
        )
