# SPDX-License-Identifier: Apache-2.0
"""Options of reading."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_topics.options.offsets import Edge, Offsets
from spark_topics.options.spec import OptionSpec, Scope, option, set_by, specs_of
from spark_topics.options.values import boolean, integer, seconds, size
from tubemq_spark.errors import OptionError
from tubemq_spark.options.client import (
    CLIENT_SPECS,
    IGNORED,
    MASTERS,
    REFUSED,
    TOPIC,
    ClientOptions,
    group,
    milliseconds,
    refused,
    topics,
)
from tubemq_spark.options.offsets import offsets_of
from tubemq_spark.wire.metadata import Partition

#: As brokers limit them.
_MAX_FILTERS, _MAX_FILTER = 500, 256

TOPICS = OptionSpec("topics", None, topics, Scope.READ, "Several topics, by comma.")


def filters(text: str, name: str) -> tuple[str, ...]:
    """Read message types, by comma."""
    texts = tuple(
        dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    )
    if not texts or len(texts) > _MAX_FILTERS or max(map(len, texts)) > _MAX_FILTER:
        raise OptionError(
            f"{name} must be one to {_MAX_FILTERS} message types by comma, of "
            f"{_MAX_FILTER} characters at most."
        )
    return texts


def from_max(text: str, name: str) -> Offsets[Partition]:
    """Read Flink's word for latest and earliest."""
    return Offsets(Edge.LATEST if boolean(text, name) else Edge.EARLIEST)


STARTING = OptionSpec(
    "startingOffsets",
    None,
    offsets_of(Edge.EARLIEST),
    Scope.READ,
    "Where to start: `earliest` (default of a batch), `latest` (of a stream), or"
    ' JSON such as `{"demo":{"1:0":56}}`. Partitions that JSON does not name start at'
    " `earliest`.",
)
FROM_MAX = OptionSpec(
    "bootstrap.from.max",
    None,
    from_max,
    Scope.READ,
    "`true` for `startingOffsets` `latest`, `false` for `earliest`.",
)


@dataclass(frozen=True)
class ReadOptions:
    """What to read, and how.

    Attributes:
        client: How servers are reached.
        topics: Names of the topics.
        group: Of consumers; None for a new one.
        filters: Message types to read; none for all.
        starting: Where to start.
        ending: Where a batch ends.
        fail_on_data_loss: Whether rows that are gone are an error.
        read_unflushed: Whether to read what brokers have in memory alone.
        max_rows: Most rows of a micro-batch, None for no limit.
        max_bytes: Most bytes of a micro-batch, about; None for no limit.
        min_partitions: Into how many input partitions to split at least.
        not_found_pause_s: How long to wait where there is nothing at the moment.
        read_timeout_s: Longest silence of a partition that has more.
        discovery_interval_s: How often a stream looks for new partitions.
        stats_interval_s: Time between two lines about a task, in seconds; 0 for none.
    """

    client: ClientOptions
    topics: tuple[str, ...] = field(default=(), metadata=set_by(TOPIC, TOPICS))
    starting: Offsets[Partition] = field(
        default_factory=lambda: Offsets(Edge.EARLIEST),
        metadata=set_by(STARTING, FROM_MAX),
    )
    ending: Offsets[Partition] = option(
        "endingOffsets",
        "latest",
        offsets_of(Edge.LATEST),
        Scope.BATCH,
        "Where a batch ends: `latest` or JSON as in `startingOffsets`.",
        in_streams="a stream has no end",
    )
    group: str | None = option(
        "consume.group",
        None,
        group,
        Scope.READ,
        "The consumer group; without it a new one for each run. Give each query its "
        "own.",
        "group",
    )
    filters: tuple[str, ...] | None = option(
        "stream.id",
        None,
        filters,
        Scope.READ,
        "Message types to read, by comma; filtered on the broker.",
        "filterAttrs",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        "true",
        boolean,
        Scope.READ,
        "Whether rows that are gone fail the query, and topics that a stream has read"
        " and the options no longer name. Else the query goes on without them.",
    )
    read_unflushed: bool = option(
        "readUnflushed",
        "false",
        boolean,
        Scope.READ,
        "Whether to read what is in a broker's memory alone: sooner, but a broker that "
        "dies takes it along, and rows that were read are not in the topic.",
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger",
        None,
        integer(1, 2**53),
        Scope.STREAM,
        "Most rows of a micro-batch; fewer where partitions share a store.",
        "maxOffsetsPerTrigger",
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger",
        None,
        size(1, 2**53),
        Scope.STREAM,
        "Most bytes of a micro-batch, about: the next messages are looked at, further "
        "ones count by the average of their topic.",
    )
    min_partitions: int | None = option(
        "minPartitions",
        None,
        integer(1, 100_000),
        Scope.READ,
        "At least so many input partitions, where there are rows enough.",
    )
    not_found_pause_s: float = option(
        "message.not.found.wait.period",
        "200",
        milliseconds(1, 60),
        Scope.READ,
        "How long to wait where a broker has nothing at the moment, in milliseconds.",
    )
    read_timeout_s: float = option(
        "read.timeout",
        "120000",
        milliseconds(1000, 86_400),
        Scope.READ,
        "Longest silence of a partition that has more to read, in milliseconds.",
    )
    discovery_interval_s: float = option(
        "partitionDiscoveryInterval",
        "60000",
        milliseconds(1000, 86_400),
        Scope.STREAM,
        "How often a stream looks for new partitions, in milliseconds.",
    )
    stats_interval_s: float = option(
        "statsIntervalSeconds",
        "60",
        seconds(1, 86_400, minimum=0),
        Scope.READ,
        "Time between two lines about a task in the executor's log; `0` for none.",
    )


#: What reads of other formats have.
TIMES = refused(
    "startingTime",
    "Brokers do not know when they stored a message: name offsets by "
    "`startingOffsets` and `endingOffsets`, and filter by `__msgTime`.",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTime",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    scope=Scope.READ,
)

READ_SPECS = (
    MASTERS,
    *specs_of(ReadOptions),
    *CLIENT_SPECS,
    *IGNORED,
    *REFUSED,
    TIMES,
)
