# SPDX-License-Identifier: Apache-2.0
"""How to write."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.spec import Scope, option
from spark_topics.options.values import (
    choice,
    plain_text,
    properties,
    seconds,
    size,
)
from ydb_spark.errors import OptionError
from ydb_spark.options.topic import TopicOptions, topic_options
from ydb_spark.wire.codecs import CODECS
from ydb_spark.wire.writes import MAX_PRODUCER_BYTES

_DAY_S = 24 * 60 * 60
_MILLI = 0.001

#: Room behind an id for a query's id, and the numbers of a task and a partition.
_MAX_ID_BYTES = MAX_PRODUCER_BYTES - 100

_EXACTLY_ONCE = "exactly-once"


class DeliveryGuarantee(enum.Enum):
    """What holds for rows when tasks are repeated."""

    AT_LEAST_ONCE = "at-least-once"
    #: Where a repetition has the same rows in the same order, each is stored once.
    IDEMPOTENT = "idempotent"


class Partitioning(enum.Enum):
    """Which partition a row goes to."""

    SERVER = "server"
    PARTITION_ID = "partition_id"
    KEY = "key"
    MESSAGE_GROUP_ID = "message_group_id"

    @property
    def required_column(self) -> str | None:
        """Return the column that decides the partition; None without such a column."""
        return None if self is Partitioning.SERVER else self.value


def _guarantee(text: str, name: str) -> DeliveryGuarantee:
    if text.strip().lower() == _EXACTLY_ONCE:
        raise OptionError(
            f"{name} cannot be {_EXACTLY_ONCE}: a transaction of YDB lives as long as"
            " the session that began it, which no process of Spark outlives a"
            " micro-batch with; and one a task would show the rows task by task, as"
            " idempotent does. Use idempotent: a repetition of the same rows in the"
            " same order is dropped by the server."
        )
    return choice({g.value: g for g in DeliveryGuarantee})(text, name)


def _id(text: str, name: str) -> str:
    value = plain_text(text, name)
    size_bytes = len(value.encode())
    if size_bytes > _MAX_ID_BYTES:
        raise OptionError(
            f"{name} has {size_bytes} bytes of UTF-8, and may have {_MAX_ID_BYTES}."
        )
    return value


@dataclass(frozen=True)
class WriteOptions(TopicOptions):
    """How to write.

    Attributes:
        guarantee: What holds for rows when tasks are repeated.
        idempotence_id: Begins the ids of producers; None for one of the query.
        codec: Number of the codec.
        partitioning: Which partition a row goes to.
        session_meta: What comes with each batch that a reader gets.
        max_request_bytes: A request is sent when it has as much.
        max_inflight_bytes: Most that a task has sent without an answer.
        send_timeout_s: How long to wait for an answer, in seconds.
    """

    guarantee: DeliveryGuarantee = option(
        "deliveryGuarantee",
        "at-least-once",
        _guarantee,
        Scope.WRITE,
        "`at-least-once`, or `idempotent`: what a repeated task has written before is"
        " not stored again, if it has the same rows in the same order.",
    )
    idempotence_id: str | None = option(
        "idempotenceId",
        None,
        _id,
        Scope.WRITE,
        "Begins the ids of producers of an `idempotent` write. Without it a stream"
        " takes the id of its query, a batch query one that is made up.",
    )
    codec: int = option(
        "codec",
        "raw",
        choice(CODECS),
        Scope.WRITE,
        "`raw`, `gzip` or `zstd`: how each body is encoded. The topic must allow it.",
    )
    partitioning: Partitioning = option(
        "partitioning",
        "server",
        choice({p.value: p for p in Partitioning}),
        Scope.WRITE,
        "`server`: one partition a task, which the server chooses; `partition_id`: by"
        " that column; `key`: by the hash of the column `key`, as Kafka's clients do;"
        " `message_group_id`: by that column, each group where the server puts it.",
    )
    session_meta: tuple[tuple[str, str], ...] = option(
        "writeSessionMeta",
        "{}",
        properties,
        Scope.WRITE,
        "JSON object of strings that readers get with each batch.",
    )
    max_request_bytes: int = option(
        "maxRequestBytes",
        "524288",
        size(1, 32 << 20),
        Scope.WRITE,
        "A request is sent when it has as many bytes.",
    )
    max_inflight_bytes: int = option(
        "maxInflightBytes",
        "8388608",
        size(1, 1 << 30),
        Scope.WRITE,
        "Most bytes that a task has sent and no answer has come to.",
    )
    send_timeout_s: float = option(
        "sendTimeoutMs",
        "120000",
        seconds(_MILLI, _DAY_S),
        Scope.WRITE,
        "How long to wait for an answer, and to try again without one, in"
        " milliseconds.",
    )


def parse_write_options(
    options: Mapping[str, str], known: KnownOptions, *, streaming: bool
) -> WriteOptions:
    """Read the options of a write.

    Args:
        options: As Spark hands them over.
        known: All options there are.
        streaming: Whether it is a stream's.

    Raises:
        OptionError: With every problem found.
    """
    scope = Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE
    checked = Given(options, known, scope)
    values = topic_options(checked)
    parsed = checked.fill(WriteOptions, **values)
    is_idempotent = parsed.guarantee is DeliveryGuarantee.IDEMPOTENT
    if is_idempotent and parsed.partitioning is Partitioning.KEY:
        checked.problems.append(
            "partitioning=key and deliveryGuarantee=idempotent exclude each other: when"
            " a topic has got more partitions, a repetition would go elsewhere and be"
            " stored again. Use partitioning=server, or compute partition_id."
        )
    if is_idempotent and parsed.partitioning is Partitioning.MESSAGE_GROUP_ID:
        checked.problems.append(
            "partitioning=message_group_id and deliveryGuarantee=idempotent exclude"
            " each other: the server knows a repetition by the numbers of a group, and"
            " these belong to whoever writes to it. Use partitioning=server."
        )
    if not is_idempotent:
        checked.has_no_effect("idempotenceId")
    checked.finish(quiet=False)
    return parsed
