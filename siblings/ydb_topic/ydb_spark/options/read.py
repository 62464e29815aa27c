# SPDX-License-Identifier: Apache-2.0
"""How to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.offsets import (
    Edge,
    Offsets,
    offsets_parser,
    range_problems,
)
from spark_topics.options.spec import Parse, Scope, option
from spark_topics.options.times import parse_time
from spark_topics.options.values import (
    MAX_LONG,
    boolean,
    integer,
    plain_text,
    seconds,
    size,
)
from spark_topics.text import shorten
from ydb_spark.errors import OptionError
from ydb_spark.options.topic import TopicOptions, topic_options

_DAY_S = 24 * 60 * 60
_MILLI = 0.001

#: A partition as JSON names it: no sign, no leading zero.
PARTITION = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)

_EXAMPLE = 'Write earliest, latest, or JSON such as {"0": 100, "1": "latest"}.'


def _partitions(name: str, value: object) -> Iterator[tuple[int, object]]:
    if PARTITION.fullmatch(name) is None:
        raise ValueError(f"{shorten(name)} is no partition, which is a number")
    yield int(name), value


def _problem(offset: int) -> str | None:
    return None if 0 <= offset <= MAX_LONG else "offsets are 0 to 2^63 - 1"


def _offsets(unnamed: Edge) -> Parse[Offsets[int]]:
    return offsets_parser(_partitions, _problem, _EXAMPLE, unnamed)


def _time(text: str, name: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise OptionError(
            f"{name}: {error}. It is milliseconds since 1970, or ISO-8601 such as"
            " 2024-05-06T07:08:09Z."
        ) from None


@dataclass(frozen=True)
class ReadOptions(TopicOptions):
    """How to read.

    Attributes:
        starting: Where a query begins; None if it begins at a time.
        starting_time_ms: What is read was stored then or later, in milliseconds since
            1970; None where a query begins at offsets.
        ending: Where a batch read ends.
        fail_on_data_loss: Whether messages that are gone are an error.
        max_rows: Rows of a micro-batch, at most.
        max_bytes: Stored bytes of a micro-batch, at most, about.
        min_partitions: Tasks wanted.
        read_buffer_bytes: How much the server may send ahead, to each task.
        poll_timeout_s: How long to go on without a message, in seconds.
        consumer: Whose progress is published; None for no one's.
        discovery_interval_s: How often to look for new partitions, in seconds.
    """

    starting: Offsets[int] | None = option(
        "startingOffsets",
        None,
        _offsets(Edge.EARLIEST),
        Scope.READ,
        "`earliest`, `latest`, or JSON of offsets by partition. Partitions that JSON"
        " does not name begin at `earliest`. By default a batch read begins at"
        " `earliest`, a stream at `latest`.",
    )
    starting_time_ms: int | None = option(
        "startingTime",
        None,
        _time,
        Scope.READ,
        "Instead of `startingOffsets`: begin in each partition at the first message"
        " that the server stored then or later. Milliseconds since 1970, or ISO-8601"
        " (UTC unless it names a zone).",
    )
    ending: Offsets[int] = option(
        "endingOffsets",
        "latest",
        _offsets(Edge.LATEST),
        Scope.BATCH,
        "`latest`, or JSON of offsets by partition, each the one after the last.",
        in_streams="a stream ends when it is stopped",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        "true",
        boolean,
        Scope.READ,
        "Whether an offset without a message is an error. In compacted topics there are"
        " such. Also whether a stream may not leave a topic that its checkpoint has.",
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger",
        None,
        integer(1, (1 << 63) - 1),
        Scope.STREAM,
        "Rows of a micro-batch, at most.",
        "maxOffsetsPerTrigger",
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        None,
        size(1, (1 << 63) - 1),
        Scope.STREAM,
        "Stored bytes of a micro-batch, at most, by the average of each partition.",
    )
    min_partitions: int | None = option(
        "minPartitions",
        None,
        integer(1, 100_000),
        Scope.READ,
        "Tasks wanted: partitions are cut by offset where there are fewer.",
    )
    read_buffer_bytes: int = option(
        "readBufferBytes",
        "8388608",
        size(1, 1 << 30),
        Scope.READ,
        "How many bytes the server may send ahead, to each task.",
    )
    poll_timeout_s: float = option(
        "pollTimeoutMs",
        "120000",
        seconds(_MILLI, _DAY_S),
        Scope.READ,
        "How long a task goes on without a message, in milliseconds.",
    )
    consumer: str | None = option(
        "consumer",
        None,
        plain_text,
        Scope.STREAM,
        "A consumer of the topic whose committed offsets follow the stream, for others"
        " to see and for retention. Nothing is read by it.",
    )
    discovery_interval_s: float = option(
        "partitionDiscoveryIntervalMs",
        "60000",
        seconds(_MILLI, _DAY_S, minimum=0),
        Scope.STREAM,
        "How often a stream looks for new partitions, in milliseconds.",
    )


def parse_read_options(
    options: Mapping[str, str],
    known: KnownOptions,
    *,
    streaming: bool,
    quiet: bool = False,
) -> ReadOptions:
    """Read the options of a read.

    Args:
        options: As Spark hands them over.
        known: All options there are.
        streaming: Whether it is a stream's.
        quiet: Whether to say nothing of what is ignored.

    Raises:
        OptionError: With every problem found.
    """
    checked = Given(options, known, Scope.STREAM if streaming else Scope.BATCH)
    values = topic_options(checked)
    parsed = checked.fill(ReadOptions, **values)
    if parsed.starting_time_ms is not None:
        if parsed.starting is not None:
            checked.problems.append(
                "startingOffsets and startingTime exclude each other: both say where to"
                " begin."
            )
    elif parsed.starting is None:
        edge = Edge.LATEST if streaming else Edge.EARLIEST
        parsed = checked.fill(ReadOptions, **values, starting=Offsets(edge))
    if not streaming and parsed.starting is not None:
        checked.problems += range_problems(parsed.starting, parsed.ending)
    checked.finish(quiet=quiet)
    return parsed
