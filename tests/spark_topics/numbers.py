# SPDX-License-Identifier: Apache-2.0
"""A third messaging system, as small as can be: what it hands in to what is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_topics import errors
from spark_topics.source.stream.checkpoint import (
    OffsetForm,
    PartitionNames,
    StreamOffset,
)
from spark_topics.source.stream.cluster import NextEntry, Share, Unread, Waiting
from spark_topics.system import System

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_topics.source.stream.admission import EntrySize


class NumbersError(errors.TopicsError):
    """Root of its errors."""

    condition = "NUMBERS"


class OptionError(NumbersError, errors.OptionError):
    """Options that cannot work."""

    condition = "NUMBERS_OPTION"


class SchemaError(NumbersError, errors.SchemaError):
    """Columns that it does not have."""

    condition = "NUMBERS_SCHEMA"


class CheckpointError(NumbersError, errors.CheckpointError):
    """Offsets that are not its own."""

    condition = "NUMBERS_CHECKPOINT"


class DataLossError(NumbersError, errors.DataLossError):
    """Rows that are gone."""

    condition = "NUMBERS_DATA_LOSS"


class TransportError(NumbersError, errors.TransportError):
    """Nobody is there."""

    condition = "NUMBERS_CONNECTION"


class TlsError(TransportError, errors.TlsError):
    """Nobody who can be trusted is there."""

    condition = "NUMBERS_TLS"


NUMBERS = System(
    name="Numbers",
    distribution="numbers-spark",
    package="numbers_spark",
    option_error=OptionError,
    schema_error=SchemaError,
    checkpoint_error=CheckpointError,
    data_loss_error=DataLossError,
    transport_error=TransportError,
    tls_error=TlsError,
)


class Offset(int):
    """The number of the entry that was read last."""

    def next(self) -> int:
        """The first one to read."""
        return self + 1


def split(name: str) -> tuple[str, str | None]:
    """Return topic and partition of ``topic/partition``."""
    topic, slash, partition = name.partition("/")
    return topic, partition if slash else None


def join(topic: str, partition: str | None) -> str:
    """Return the name of a topic partition."""
    return topic if partition is None else f"{topic}/{partition}"


NAMES = PartitionNames(split, join)


class NumberOffset(StreamOffset[Offset]):
    """How far numbers have been read."""

    form = OffsetForm(NUMBERS, NAMES, Offset)


class ClusterOfNumbers:
    """What clusters have alike: each number is an entry, and a row.

    See ``cluster.Cluster``.
    """

    system = NUMBERS
    earliest = Offset(-1)

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """By topic and partition."""
        return NAMES.tree(values)

    def read_offset(self, tree: Mapping[str, Any]) -> NumberOffset:
        """Numbers as text."""
        return NumberOffset.from_json(tree)

    def next_offset(
        self,
        start: NumberOffset | None,
        last_read: Mapping[str, Offset],
        start_after: Mapping[str, Offset],
        kept: Mapping[str, Offset],
    ) -> NumberOffset:
        """There is nothing to add."""
        return NumberOffset(last_read, start_after, kept=kept)

    def recorded(self, offset: NumberOffset) -> bool:
        """Nothing is kept for the query."""
        return False

    def is_wanted(self, name: str) -> bool:
        """Every one."""
        return True

    def backlog(self, news: Mapping[str, Unread[Offset]]) -> dict[str, Waiting]:
        """A difference."""
        return {n: Waiting(new.last - new.after, True) for n, new in news.items()}

    def peek(
        self,
        news: Mapping[str, Unread[Offset]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[Offset]]]:
        """All are of one size."""
        return {}

    def ends(self, shares: Mapping[str, Share[Offset]]) -> dict[str, Offset]:
        """A sum."""
        return {
            name: share.unread.last
            if share.entries is None
            else Offset(min(share.unread.after + share.entries, share.unread.last))
            for name, share in shares.items()
        }

    def close(self) -> None:
        """Nothing is held."""
