# SPDX-License-Identifier: Apache-2.0
"""TubeMQ's part in planning a stream.

A position is the offset at which reading goes on. The offsets in the checkpoint are all
that counts, and brokers keep messages for a time, anyone who has read them. They are
told how far a group is that has a name, for those who look at it there.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_topics.client.retry import Retry
from spark_topics.options.offsets import Edge, Offsets
from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.checkpoint import (
    SLASHED,
    OffsetForm,
    Span,
    StreamOffset,
)
from spark_topics.source.stream.cluster import (
    NextEntry,
    PartitionStatus,
    Share,
    Unread,
    Waiting,
)
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet, require_named
from spark_topics.statistics import warn_once
from spark_topics.system import System
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters
from tubemq_spark.errors import TransportError
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import (
    ENTRY_BYTES,
    MAX_OFFSET,
    PARTITION,
)
from tubemq_spark.source.batch_plan import ReadTask, split_ranges, tasks_of
from tubemq_spark.source.discovery import Found, find_edges, find_partitions
from tubemq_spark.source.group_positions import GroupPositions
from tubemq_spark.source.ranges import (
    Edges,
    PartitionRange,
    check_named,
    chosen_start,
    loss,
)
from tubemq_spark.source.sizes import Part, Sizes
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("source")


class Position(int):
    """The offset at which the reading of a partition goes on."""

    def next(self) -> int:
        """Return the next offset to read."""
        return int(self)


def _parse(text: str) -> Position:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text!r} is not an offset")
    if int(text) % ENTRY_BYTES or int(text) > MAX_OFFSET:
        raise ValueError(f"{text} is not a multiple of {ENTRY_BYTES}, or too large")
    return Position(text)


def partition_of(name: str) -> Partition:
    """Return the partition of a name such as ``demo/1:10000``.

    Raises:
        ValueError: It is no such name.
    """
    topic, _, ids = name.partition("/")
    match = PARTITION.fullmatch(ids)
    if match is None:
        raise ValueError(f"{name[:100]!r} is no partition, such as demo/1:10000")
    return Partition(topic, int(match[1]), int(match[2]))


class TubeMQOffset(StreamOffset[Position]):
    """How far a stream has read: offsets by topic and ``broker:partition``."""

    form = OffsetForm(SYSTEM, SLASHED, _parse)

    @classmethod
    def fields_of(cls, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields; names must be partition names."""
        fields = super().fields_of(tree)
        for positions in fields.values():
            for name in positions:
                partition_of(name)
        return fields


class TubeMQCluster:
    """The topics of a streaming query.

    Args:
        pool: Of connections to brokers.
        options: What to read.
    """

    earliest = Position(0)

    def __init__(self, pool: BrokerPool, options: ReadOptions) -> None:
        self._pool = pool
        self._options = options
        self._group = options.group or f"spark-{uuid.uuid4().hex[:8]}"
        self._masters = Masters(options.client)
        self._found: Found | None = None
        self._given_up: set[Partition] = set()  # waited for long enough, in vain
        self._sizes = Sizes(pool, options, self._group)
        # A name that nobody has chosen is one that nobody looks for.
        self._group_positions = (
            GroupPositions(pool, options.group) if options.group else None
        )

    @property
    def system(self) -> System:
        """Return the messaging system of the stream."""
        return SYSTEM

    # -- offsets -----------------------------------------------------------------------

    def read_offset(self, tree: Mapping[str, Any]) -> TubeMQOffset:
        """See `Cluster`."""
        return TubeMQOffset.from_json(tree)

    def next_offset(
        self,
        start: TubeMQOffset | None,
        last_read: Mapping[str, Position],
        start_after: Mapping[str, Position],
        kept: Mapping[str, Position],
    ) -> TubeMQOffset:
        """See `Cluster`."""
        return TubeMQOffset(last_read, start_after, kept=kept)

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `Cluster`."""
        return TubeMQOffset.form.names.tree(values)

    def recorded(self, offset: TubeMQOffset) -> bool:
        """Do nothing: the query leaves nothing in the cluster."""
        return False

    # -- partitions --------------------------------------------------------------------

    def starts(self) -> dict[str, Position]:
        """See `Cluster`."""
        # Those that are found later are read from their first row on: where that is not
        # what the options say, they must be there now.
        discovery = self._discover(
            wait=self._options.starting != Offsets(Edge.EARLIEST),
        )
        existing = discovery.brokers.keys() | discovery.closed
        check_named(self._options.starting, "startingOffsets", existing)
        if discovery.closed and self._options.starting != Offsets(Edge.EARLIEST):
            logger.warning(
                "What cannot be read now is read from its first message on when it is "
                "back, whatever startingOffsets says."
            )
        edges = self._edges(discovery.brokers)
        return {
            str(partition): Position(
                chosen_start(
                    partition,
                    self._options.starting,
                    edges[partition],
                    fail_on_data_loss=self._options.fail_on_data_loss,
                )
            )
            for partition in sorted(discovery.brokers)
        }

    def partitions(self, *, wait: bool = False) -> list[str]:
        """Return all partitions that were ever seen.

        Those of a broker that restarts are left out by the master for a while.

        Args:
            wait: Whether to wait for these: what is found is all that is read.
        """
        discovery = self._discover(wait=wait)
        return [str(partition) for partition in sorted(discovery.brokers)]

    def is_wanted(self, name: str) -> bool:
        """See `Cluster`."""
        return partition_of(name).topic in self._options.topics

    def topic_of(self, name: str) -> str:
        """See `Cluster`."""
        return partition_of(name).topic

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[Position]]:
        """See `Cluster`."""
        partitions = {name: partition_of(name) for name in names}
        edges = self._edges(partitions.values())
        return {
            name: _status(edges[partition].begin, edges[partition])
            for name, partition in partitions.items()
        }

    @contextlib.contextmanager
    def visit(
        self, begins: Mapping[str, Position]
    ) -> Iterator[Mapping[str, PartitionStatus[Position] | None]]:
        """Look at what there is to read. Nothing is acknowledged."""
        partitions = {name: partition_of(name) for name in begins}
        edges = self._edges_of_open(set(partitions.values()))
        ahead = [
            partition
            for name, partition in partitions.items()
            if partition in edges and edges[partition].end < begins[name]
        ]
        in_memory = self._edges(ahead, read_unflushed=True)
        yield {
            name: self._status_from(
                begins[name], partition, edges[partition], in_memory.get(partition)
            )
            if partition in edges
            else self._status_without(begins[name], partition)
            for name, partition in partitions.items()
        }

    def _status_without(
        self, begin: Position, partition: Partition
    ) -> PartitionStatus[Position]:
        """Return the status of a partition that cannot be looked at.

        A partition that the master does not name may be on a broker that has not told a
        new master of itself yet. The checkpoint keeps its offset, too.
        """
        assert self._found is not None
        is_closed = partition in self._found.closed
        problem = (
            f"{partition} cannot be read now, says the master."
            if is_closed
            else f"The master does not name the partition {partition}."
        )
        warn_once(
            logger, f"{problem} Going on without. The checkpoint keeps its offset."
        )
        return PartitionStatus(begin, None, is_named=True)

    def _status_from(
        self, begin: int, partition: Partition, edges: Edges, in_memory: Edges | None
    ) -> PartitionStatus[Position]:
        """Return what there is to read of a partition.

        Args:
            begin: Where to go on.
            partition: Which one.
            edges: Where it begins and ends.
            in_memory: The same with what is in the broker's memory alone, where the
                query is ahead of the end: another run may have read that.
        """
        if edges.begin <= begin <= edges.end:
            return _status(begin, edges)
        if in_memory is not None and edges.begin <= begin <= in_memory.end:
            return PartitionStatus(Position(begin), None, is_named=True)
        error = loss(partition, begin, edges)
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s", error)
        return _status(self._go_on(begin, edges), edges)

    def _go_on(self, begin: int, edges: Edges) -> int:
        """Return where to go on in a partition that lacks the offset to begin at."""
        if begin < edges.begin:
            return edges.begin
        # A log loses its end where a broker dies that had it in memory. What was read
        # from the disk is not undone: then it is another log, all of it new.
        return edges.end if self._options.read_unflushed else edges.begin

    def _discover(self, *, wait: bool = False) -> Found:
        discovery = find_partitions(
            self._masters, self._options, self._group, wait=wait
        )
        if self._found is not None:
            discovery = Found(
                {**self._found.brokers, **discovery.brokers},
                self._dense(discovery),
                discovery.token,
                discovery.closed,
            )
        self._found = discovery
        return discovery

    def _dense(self, found: Found) -> frozenset[Partition]:
        """Return partitions that were, and still are, alone in their store."""
        assert self._found is not None
        unseen = self._found.dense - found.brokers.keys()
        return found.dense | unseen

    def _edges(
        self, partitions: Iterable[Partition], *, read_unflushed: bool | None = None
    ) -> dict[Partition, Edges]:
        names = list(partitions)
        if not names:
            return {}
        options = self._options
        if read_unflushed is not None:
            options = replace(options, read_unflushed=read_unflushed)
        discovery = self._known(names)
        return find_edges(self._pool, discovery, names, options, self._group)

    def _edges_of_open(self, wanted: set[Partition]) -> dict[Partition, Edges]:
        """Return the edges of partitions, without those that the query goes on without.

        Raises:
            TransportError: A broker does not answer, and the master does not say that
                its partitions are closed, or options do not let the query go on.
        """
        if not wanted:
            return {}
        present = wanted.difference(self._await(wanted))
        assert self._found is not None
        closed = self._found.closed & self._given_up
        try:
            return self._edges(present - closed)
        except TransportError:
            closed = self._discover().closed
            if self._options.fail_on_data_loss or not closed & present:
                raise
        self._given_up |= closed & present
        return self._edges(present - closed)

    def _known(self, wanted: Sequence[Partition]) -> Found:
        """Wait until each of some partitions is known; return what was found.

        Raises:
            TransportError: The master does not name one within ``operation.timeout``.
        """
        self._await(wanted, may_give_up=False)
        assert self._found is not None
        return self._found

    def _await(
        self, wanted: Iterable[Partition], *, may_give_up: bool | None = None
    ) -> list[Partition]:
        """Wait until each of some partitions is known.

        Partitions of a checkpoint may be on a broker that is restarting.

        Args:
            wanted: The partitions.
            may_give_up: Whether to go on without some; by default where options say so.

        Returns:
            Those that the query goes on without: each is waited for once.

        Raises:
            TransportError: The master does not name one within ``operation.timeout``.
        """
        if may_give_up is None:
            may_give_up = not self._options.fail_on_data_loss
        retry = Retry(0.5, 5.0, self._options.client.operation_timeout_s)
        partitions = list(wanted)
        discovery = self._found or self._discover()
        while missing := [
            partition for partition in partitions if partition not in discovery.brokers
        ]:
            if may_give_up and (
                not retry.remaining_s or self._given_up.issuperset(missing)
            ):
                break
            retry.pause(
                TransportError(
                    f"The master does not name the partition {missing[0]}, which the "
                    "query has read from: its broker is down or starts, or the topic "
                    "was made anew with fewer partitions.",
                )
            )
            discovery = self._discover()
        self._given_up.update(missing)
        return missing

    # -- how far a micro-batch goes ----------------------------------------------------

    def backlog(self, news: Mapping[str, Unread[Position]]) -> dict[str, Waiting]:
        """Return index entries: where partitions share a store, also of the others."""
        return {
            name: Waiting(max(1, (unread.last - unread.after) // ENTRY_BYTES), True)
            for name, unread in news.items()
        }

    def peek(
        self,
        news: Mapping[str, Unread[Position]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[Position]]]:
        """See `Cluster`: messages are fetched only for a limit in bytes."""
        if self._options.max_bytes is None:
            return {}
        parts = {
            partition_of(name): Part(int(unread.after), int(unread.last))
            for name, unread in news.items()
        }
        discovery = self._known(list(parts))
        seen = self._sizes.peek(
            parts, discovery, lambda one, size: on_seen(str(one), size)
        )
        return {
            str(partition): [
                NextEntry(Position(parts[partition].start + n * ENTRY_BYTES), size)
                for n, size in enumerate(sizes, 1)
            ]
            for partition, sizes in seen.items()
        }

    def ends(self, shares: Mapping[str, Share[Position]]) -> dict[str, Position]:
        """See `Cluster`."""
        return {name: _end(share) for name, share in shares.items()}

    def ranges(self, spans: Sequence[Span[Position]]) -> Sequence[ReadTask]:
        """See `Cluster`."""
        require_named(self, [span.topic_partition for span in spans])
        discovery = self._known([partition_of(span.topic_partition) for span in spans])
        ranges = []
        for span in spans:
            partition = partition_of(span.topic_partition)
            ranges.append(
                PartitionRange(
                    partition,
                    int(span.after),
                    int(span.last),
                    discovery.brokers[partition],
                    partition in discovery.dense,
                )
            )
        parts = split_ranges(ranges, self._options.min_partitions)
        return tasks_of(parts, self._group, discovery.token)

    # -- the end -----------------------------------------------------------------------

    def acknowledge(self, read: Mapping[str, Position]) -> None:
        """Store the group's positions for TubeMQ's tools; queries do not read them."""
        if self._group_positions is not None and self._found is not None:
            ends = {partition_of(name): int(offset) for name, offset in read.items()}
            present = {
                partition: offset
                for partition, offset in ends.items()
                if partition in self._found.brokers
            }
            self._group_positions.store(present, self._found)

    def close(self) -> None:
        """Let go of the masters."""
        self._masters.close()


def _status(begin: int, edges: Edges) -> PartitionStatus[Position]:
    last = Position(edges.end) if edges.end > begin else None
    # Offsets tell its first row from the next plan on, also where limits leave it out.
    return PartitionStatus(Position(begin), last, is_named=True)


def _end(share: Share[Position]) -> Position:
    unread = share.unread
    if share.entries is None:
        return unread.last
    return min(unread.last, Position(unread.after + share.entries * ENTRY_BYTES))


def stream_limits(options: ReadOptions) -> StreamLimits:
    """Return how large micro-batches are."""
    return StreamLimits(max_rows=options.max_rows, max_bytes=options.max_bytes)


def stream_planner(
    pool: BrokerPool, options: ReadOptions
) -> StreamPlanner[Position, TubeMQOffset, ReadTask]:
    """Return the planner of a stream."""
    cluster = TubeMQCluster(pool, options)
    topics = TopicSet(
        cluster,
        discovery_interval_s=options.discovery_interval_s,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return StreamPlanner(cluster, topics, BatchEnds(cluster, stream_limits(options)))
