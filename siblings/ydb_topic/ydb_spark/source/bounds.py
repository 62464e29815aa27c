# SPDX-License-Identifier: Apache-2.0
"""Start and end offsets of a query's partitions, from options."""

from __future__ import annotations

from spark_topics.options.offsets import Edge, Offsets
from spark_topics.statistics import warn_once
from ydb_spark.client.channel import Channel
from ydb_spark.client.range_reader import RangeReader
from ydb_spark.client.topics import PartitionInfo, TopicInfo
from ydb_spark.errors import DataLossError, OptionError, ReadTimeoutError
from ydb_spark.options.read import ReadOptions
from ydb_spark.system import SYSTEM

logger = SYSTEM.logger("source")

#: The least credit: the server sends one message for it, however large.
_ONE_MESSAGE = 1


def starting(
    channel: Channel, options: ReadOptions, topic: TopicInfo
) -> dict[int, int]:
    """Return the offset of the first message wanted, by partition.

    Args:
        channel: Where to look for a time.
        options: How to read.
        topic: As it is described now, with its offsets.

    Raises:
        OptionError: Offsets name partitions that are not there.
        DataLossError: An offset is no longer there, or not yet.
        YdbError: The server does not say where a time is.
    """
    time_ms = options.starting_time_ms
    if time_ms is not None:
        return {
            number: _first_since(channel, options, info, time_ms)
            for number, info in topic.partitions.items()
        }
    assert options.starting is not None
    _require_known(options.starting, topic, "startingOffsets", options.topic)
    for number in _dropped(options.starting, topic):
        position = options.starting.of(number)
        if (
            isinstance(position, int)
            and position != options.ending.of(number)  # where nothing is wanted
            and not _has_begun_child(options.starting, number, topic)
        ):
            _report_dropped("startingOffsets", options, number, position)
    starts = {}
    for number, info in topic.partitions.items():
        position = options.starting.of(number)
        if isinstance(position, Edge):
            position = info.start if position is Edge.EARLIEST else info.end
        elif not info.start <= position <= info.end:
            _report(
                f"startingOffsets: {options.topic}/{number} has no offset {position}:"
                f" it has {info.start} to {info.end}. failOnDataLoss=false begins at"
                " the next one that is there.",
                options,
                number,
                position,
                info.start,
            )
            position = min(max(position, info.start), info.end)
        starts[number] = position
    return starts


def ending(options: ReadOptions, topic: TopicInfo) -> dict[int, int]:
    """Return the offset after the last message wanted, by partition.

    Raises:
        OptionError: Offsets name partitions that are not there.
        DataLossError: A partition does not reach that far, or all up to there is gone.
    """
    _require_known(options.ending, topic, "endingOffsets", options.topic)
    for number in _dropped(options.ending, topic):
        position = options.ending.of(number)
        if isinstance(position, int) and position and _is_whole(options, number):
            _report_dropped("endingOffsets", options, number, position)
    ends = {}
    for number, info in topic.partitions.items():
        position = options.ending.of(number)
        if isinstance(position, Edge):
            position = info.end
        elif position > info.end:
            _report(
                f"endingOffsets: {options.topic}/{number} ends before {info.end}, not"
                f" {position}. A batch read waits for nothing: end earlier, or set"
                " failOnDataLoss=false to read what there is.",
                options,
                number,
                position,
                info.end,
            )
            position = info.end
        elif 0 < position <= info.start and _is_whole(options, number):
            _report(
                f"endingOffsets: {options.topic}/{number} has no message before"
                f" {position} any more: it begins at {info.start}. End later, or set"
                " failOnDataLoss=false to read what there is.",
                options,
                number,
                position,
                info.start,
            )
        ends[number] = position
    return ends


def _is_whole(options: ReadOptions, number: int) -> bool:
    """Return whether a read begins with the first message of a partition.

    A start at a time says nothing of what was stored up to an end.
    """
    return options.starting is None or options.starting.of(number) is Edge.EARLIEST


def _dropped(offsets: Offsets[int], topic: TopicInfo) -> list[int]:
    """Return the partitions named that the server has dropped.

    It drops those that were split or merged when retention has emptied them.
    """
    named = offsets.by_partition.keys()
    return sorted(named & (_parents(topic) - topic.partitions.keys()))


def _parents(topic: TopicInfo) -> set[int]:
    """Return the partitions that were split or merged into others of a topic."""
    return {parent for info in topic.partitions.values() for parent in info.parents}


def _has_begun_child(offsets: Offsets[int], number: int, topic: TopicInfo) -> bool:
    """Return whether a child of a partition starts behind its first message.

    Then whoever noted the start had come to the end of the partition.
    """
    starts = [
        offsets.of(child)
        for child, info in topic.partitions.items()
        if number in info.parents
    ]
    return any(isinstance(start, int) and start > 0 for start in starts)


def _report_dropped(
    name: str, options: ReadOptions, number: int, position: int
) -> None:
    _report(
        f"{name}: {options.topic}/{number} is gone: it was split or merged, and"
        f" retention has taken its messages. {position} was named there."
        " failOnDataLoss=false reads the partitions that it became.",
        options,
        number,
        position,
        None,
    )


def _report(
    text: str, options: ReadOptions, number: int, wanted: int, available: int | None
) -> None:
    """Raise that rows are not there, or warn of that where the query goes on."""
    if options.fail_on_data_loss:
        raise DataLossError(
            text,
            topic_partition=f"{options.topic}/{number}",
            wanted=str(wanted),
            available="" if available is None else str(available),
        )
    warn_once(logger, f"Going on with what there is. {text}")


def _first_since(
    channel: Channel, options: ReadOptions, info: PartitionInfo, time_ms: int
) -> int:
    """Return the offset of the first message that was stored then or later.

    No call says it, but a session that reads from a time begins with that message. One
    that finds none waits for the next, so the last message is looked at before.
    """
    try:
        last = _first(channel, options, info, info.end - 1, None)
        if last is not None and last[1] < time_ms:
            return info.end
        first = _first(channel, options, info, info.start, time_ms)
    except ReadTimeoutError as error:
        raise error.saying(
            f"{error.message} startingTime cannot be found where a partition ends in"
            " offsets without messages: say startingOffsets."
        ) from None
    return info.end if first is None else first[0]


def _first(
    channel: Channel,
    options: ReadOptions,
    info: PartitionInfo,
    start: int,
    time_ms: int | None,
) -> tuple[int, int] | None:
    """Return the offset and time of the first message at or after a position.

    Args:
        channel: Where.
        options: How to read.
        info: Which partition.
        start: The first offset that it may have.
        time_ms: The first time that it may have; None for any.

    Returns:
        None where there is none up to the end as it was described.
    """
    reader = RangeReader(
        channel,
        options.topic,
        info.number,
        max(start, info.start),
        info.end,
        credit_bytes=_ONE_MESSAGE,
        timeout_s=options.poll_timeout_s,
        is_strict=False,
        read_from_ms=time_ms,
    )
    messages = reader.batches()
    try:
        for parts in messages:
            for part in parts:
                written_at_ms = part.batch.written_at.ToMilliseconds()
                if time_ms is None or written_at_ms >= time_ms:
                    return part.messages[0].offset, written_at_ms
    finally:
        messages.close()
    return None


def _require_known(
    offsets: Offsets[int], topic: TopicInfo, name: str, path: str
) -> None:
    known = topic.partitions.keys() | _parents(topic)
    unknown = sorted(set(offsets.by_partition) - known)
    if unknown:
        raise OptionError(
            f"{name} names partitions {unknown}, which {path} does not have: it has"
            f" {sorted(topic.partitions)}."
        )
