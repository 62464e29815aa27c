# SPDX-License-Identifier: Apache-2.0
"""Options of writing."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_topics.options.of_spark import OF_SPARK
from spark_topics.options.spec import Scope, option, set_by, specs_of
from spark_topics.options.values import boolean, integer, plain_text, size
from tubemq_spark.options.client import (
    CLIENT_SPECS,
    IGNORED,
    MASTERS,
    REFUSED,
    TOPIC,
    ClientOptions,
    milliseconds,
    refused,
)


@dataclass(frozen=True)
class WriteOptions:
    """Where to write, and how.

    Attributes:
        client: How servers are reached.
        topic: Name of the topic, none where rows name theirs.
        partition_key: Column whose hash chooses the partition; None for turns.
        max_in_flight: Most messages sent and not acknowledged.
        max_in_flight_bytes: Most bytes of them.
        send_timeout_s: How long a message is sent again before the write fails.
        max_retries: How often; None for no limit but that.
        confirm_flush: Whether a task ends only when brokers have its messages on disk.
    """

    client: ClientOptions
    topic: tuple[str, ...] = field(default=(), metadata=set_by(TOPIC))
    partition_key: str | None = option(
        "partitionKey",
        None,
        plain_text,
        Scope.WRITE,
        "A column whose hash chooses the partition; without it partitions take turns.",
    )
    max_in_flight: int = option(
        "max.in.flight",
        "500",
        integer(1, 100_000),
        Scope.WRITE,
        "Most messages of a task that are sent and not acknowledged.",
    )
    max_in_flight_bytes: int = option(
        "max.in.flight.bytes",
        "16m",
        size(1024, 2**31),
        Scope.WRITE,
        "Most bytes of them.",
    )
    send_timeout_s: float = option(
        "send.timeout",
        "120000",
        milliseconds(1000, 86_400),
        Scope.WRITE,
        "How long a message is sent again before the write fails, in milliseconds.",
    )
    max_retries: int | None = option(
        "max.retries",
        None,
        integer(0, 1_000_000),
        Scope.WRITE,
        "How often a message is sent again at most; without it only `send.timeout` "
        "counts, so that a broker may restart.",
    )
    confirm_flush: bool = option(
        "confirm.flush",
        "false",
        boolean,
        Scope.WRITE,
        "Whether to wait until brokers have messages on their disks, and to send again "
        "what one that died had in memory: seconds to a minute a task.",
    )


WRITE_SPECS = (
    MASTERS,
    *specs_of(WriteOptions),
    *CLIENT_SPECS,
    *OF_SPARK,
    *IGNORED,
    *REFUSED,
    refused(
        "exactlyOnce",
        "TubeMQ has neither transactions nor deduplication: a write is at least once.",
        "idempotent",
        scope=Scope.WRITE,
    ),
)
