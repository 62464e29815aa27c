# SPDX-License-Identifier: Apache-2.0
"""What the planning of a stream asks of a messaging system.

The planner knows topic partitions by name, whatever the name is, and positions by their
order, and nothing else of the system that has them. Three parts are asked::

    Topics      which topic partitions there are, and where each begins and ends
    Entries     how far a micro-batch goes in each
    Cluster     what the checkpoint keeps, what tasks read, and the query's end

Whoever implements them gets streams with discovery, limits, ``availableNow``,
checkpoints and reports of data loss. One class may be all three, as in
``tests/spark_topics/source/stream/number_cluster.py``, whose positions are numbers.
Every method that asks raises a TopicsError where the system does not answer, or
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.checkpoint import OffsetT, Span
from spark_topics.source.stream.position import P
from spark_topics.system import System

#: What a task reads.
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PartitionStatus(Generic[P]):
    """What there is to read of a topic partition.

    Attributes:
        after: Reading goes on after this position.
        last: The last message that can be read now, None where there is none.
        comes_later: Whether its rows come in a later micro-batch.
        is_named: Whether offsets name it before any of its rows is read. From then on a
            deletion is a loss.
    """

    after: P
    last: P | None
    comes_later: bool = False
    is_named: bool = False

    @property
    def unread(self) -> Unread[P] | None:
        """Return the unread part, None if everything is read."""
        if self.last is None or not self.after < self.last:
            return None
        return Unread(self.after, self.last)


@dataclass(frozen=True, slots=True)
class Unread(Generic[P]):
    """The messages of a topic partition that are to be read.

    Attributes:
        after: Where they begin, exclusive.
        last: The last of them.
    """

    after: P
    last: P


@dataclass(frozen=True, slots=True)
class NextEntry(Generic[P]):
    """An upcoming entry with its cost against the limits.

    Attributes:
        position: The position of a query that has read it.
        size: Rows and stored bytes.
        published_ms: When it was published, in milliseconds since 1970; None where that
            is not known.
    """

    position: P
    size: EntrySize
    published_ms: int | None = None


class Waiting(NamedTuple):
    """How much of a topic partition is to be read.

    Attributes:
        entries: Their number, at least 1; an estimate.
        is_all: Whether that many are all there are, as far as is known.
    """

    entries: int
    is_all: bool


@dataclass(frozen=True, slots=True)
class Share(Generic[P]):
    """What a micro-batch reads of a topic partition.

    Attributes:
        unread: What there is.
        entries: How many entries it reads, at least 1; None for all there is.
        ahead: The first of them, as far as they are known.
    """

    unread: Unread[P]
    entries: int | None
    ahead: Sequence[NextEntry[P]] = ()


class Topics(Protocol[P]):
    """The topic partitions of a streaming query, and where they begin and end."""

    @property
    def system(self) -> System:
        """Return the system in whose name to warn and to raise."""

    @property
    def earliest(self) -> P:
        """Return the position before everything."""

    def partitions(self, *, wait: bool = False) -> list[str]:
        """Return the topic partitions to read that exist now.

        Args:
            wait: Whether to wait for those that do not exist, where options say so.
        """

    def is_wanted(self, name: str) -> bool:
        """Return whether the options, which may have changed, name the partition.

        Args:
            name: Of a topic partition that the query has read, now or in another run.
        """

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[P]]:
        """Return the first and last positions; deleted partitions are left out."""

    def visit(
        self, begins: Mapping[str, P]
    ) -> AbstractContextManager[Mapping[str, PartitionStatus[P] | None]]:
        """Acknowledge what was read and see what there is to read.

        If the block that follows fails, what the visit has begun to keep for the query
        is released: it would look as if it had been kept all the time.

        Args:
            begins: The position that each topic partition was read up to.

        Returns:
            The status of each, None if it is gone; without those that are over: they
            were read to their end. Where rows are gone, or never existed, reading goes
            on elsewhere than asked for.

        Raises:
            DataLossError: Rows are gone, and ``failOnDataLoss`` is set.
        """


class Entries(Protocol[P]):
    """The entries that a streaming query has yet to read."""

    def topic_of(self, name: str) -> str:
        """Return the topic of a partition; entries of a topic have similar sizes."""

    def backlog(self, news: Mapping[str, Unread[P]]) -> dict[str, Waiting]:
        """Return how many entries wait in each topic partition."""

    def peek(
        self,
        news: Mapping[str, Unread[P]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[P]]]:
        """Return the next entries of some topic partitions, where that costs little.

        Args:
            news: What there is to read in each.
            on_seen: Called with each entry that was not seen before: the name of its
                topic partition, and its size.
            is_one_enough: Whether the very next entry of each is all that is wanted.
        """

    def ends(self, shares: Mapping[str, Share[P]]) -> dict[str, P]:
        """Return the end of each share, at most the share's last message."""


class Cluster(Protocol[P, OffsetT, R_co]):
    """What a streaming query has in a messaging system, from its start to its end."""

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of topic partitions as JSON: by topic, then by partition."""

    def read_offset(self, tree: Mapping[str, Any]) -> OffsetT:
        """Read an offset of the checkpoint.

        Raises:
            CheckpointError: It is not one of ours.
        """

    def next_offset(
        self,
        start: OffsetT | None,
        last_read: Mapping[str, P],
        start_after: Mapping[str, P],
        kept: Mapping[str, P],
    ) -> OffsetT:
        """Return the end of a micro-batch, with all facts that a restart needs.

        Args:
            start: Start of the micro-batch; None for the start of the query.
            last_read: As in Offset.
            start_after: As in Offset.
            kept: As in Offset.
        """

    def recorded(self, offset: OffsetT) -> bool:
        """Learn from an offset that Spark has written down.

        Only from now on may the query leave anything in the cluster: an offset that is
        in no checkpoint is forgotten with this process.

        Returns:
            Whether to visit the topic partitions before anything else, so that what
            the query has yet to read is kept for it.
        """

    def starts(self) -> dict[str, P]:
        """Return the positions after which a new query starts, by the options.

        Raises:
            OptionError: Options do not fit the topics.
            TopicNotFoundError: A topic does not exist.
            DataLossError: A start is no longer there, and ``failOnDataLoss`` is set.
        """

    def ranges(self, spans: Sequence[Span[P]]) -> Sequence[R_co]:
        """Return the ranges of a micro-batch's tasks; each call gives equal rows."""

    def acknowledge(self, read: Mapping[str, P]) -> None:
        """Acknowledge what Spark has committed, where that can be done at once."""

    def close(self) -> None:
        """Release everything held for the query."""
