# SPDX-License-Identifier: Apache-2.0
"""Plans the micro-batches of a stream. Runs on the driver, for as long as the query.

The life of a micro-batch, from what Spark asks to what the cluster is asked::

    Spark               StreamPlanner                        the messaging system
    ------------------------------------------------------------------------------
    initialOffset       initial         a new query          Cluster  starts
    latestOffset(a)     latest(a)
                          IdleRest      was all quiet?
                                        a is recorded        Cluster  recorded
                          TopicSet      new ones, old ones   Topics   partitions, edges
                                        acknowledge a, see   Topics   visit
                                        what is new
                          BatchEnds     limits               Entries  backlog, peek,
                                                                      ends
      writes b down     -> b            what else to keep    Cluster  next_offset
    partitions(a, b)    ranges(a, b)    b is recorded        Cluster  recorded
                                        keep what is unread  Topics   visit
      tasks read                        what tasks read      Cluster  ranges
      commits b
    commit(b)           commit(b)       at once, if it can   Cluster  acknowledge
    latestOffset(b)     latest(b)       ...

Spark keeps the truth, in its checkpoint: how far each micro-batch goes. What is
acknowledged follows it, never ahead: what a committed batch has read, so that the
backlog drains, and nothing else, so that retention keeps what a restart needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from spark_topics.source.stream.batch_ends import BatchEnds
from spark_topics.source.stream.checkpoint import OffsetT, batch_spans
from spark_topics.source.stream.cluster import Cluster, PartitionStatus, Unread
from spark_topics.source.stream.idle_rest import IdleRest
from spark_topics.source.stream.position import P
from spark_topics.source.stream.topic_set import TopicSet
from spark_topics.text import counted, list_names

R = TypeVar("R")


class StreamPlanner(Generic[P, OffsetT, R]):
    """Plans a stream: its start, the ends of micro-batches, and their ranges.

    Args:
        cluster: What the query has in the messaging system.
        topics: Its topic partitions.
        ends: How far its micro-batches go.
    """

    def __init__(
        self,
        cluster: Cluster[P, OffsetT, R],
        topics: TopicSet[P],
        ends: BatchEnds[P],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._ends = ends
        self._rest = IdleRest()
        self._initial: OffsetT | None = None
        # The offset that was read last, and its text, which is far smaller than its
        # tree: Spark hands each end back several times until the next one follows.
        self._read: tuple[str, OffsetT] | None = None
        self._latest: dict[str, P] = {}  # where the topic partitions end
        self._is_told = False  # where the query begins

    def offset(self, tree: Mapping[str, Any]) -> OffsetT:
        """Read an offset that Spark hands back.

        Raises:
            CheckpointError: It is not one of ours.
        """
        text = json.dumps(tree)
        if self._read is None or self._read[0] != text:
            self._read = text, self._cluster.read_offset(tree)
        return self._read[1]

    def initial(self) -> OffsetT:
        """Return the start of a new query, looked up once and then kept.

        Raises:
            OptionError: Offsets or times do not fit the topics.
            TopicNotFoundError: A topic does not exist.
            DataLossError: A start is no longer there, and ``failOnDataLoss`` is set.
            TopicsError: The cluster does not answer, or refuses.
        """
        if self._initial is None:
            starts = self._cluster.starts()
            self._initial = self._cluster.next_offset(None, starts, starts, {})
        return self._initial

    def fix_target(self) -> None:
        """Limit the stream to the entries stored now.

        Raises:
            TopicsError: The cluster does not answer, or refuses.
        """
        self._topics.fix()

    def latest(
        self,
        start: OffsetT,
        *,
        unlimited: bool = False,
        is_committed: bool = True,
    ) -> OffsetT:
        """Return how far the next micro-batch goes; ``start`` where nothing is new.

        What is before ``start`` was committed by Spark, so it is acknowledged, unless
        it is the start of the query, which is recorded nowhere yet.

        Args:
            start: The end of the last micro-batch.
            unlimited: Whether to ignore the limits.
            is_committed: Whether ``start`` is known to be committed. A query that goes
                on acknowledges nothing before its first micro-batch otherwise.

        Raises:
            DataLossError: Rows are gone, or the options no longer name what was read,
                and ``failOnDataLoss`` is set.
            TopicsError: The cluster does not answer, or refuses.
        """
        began_s = time.monotonic()
        self._tell(start)
        if self._rest.covers(start):
            return start
        kept = self._topics.kept(start)
        if self._is_past_initial(start) and is_committed:
            self._cluster.recorded(start)
        begins = self._topics.begins(start)
        statuses = self._topics.visit(begins)
        ends = self._ends.decide(
            _unread(statuses, comes_later=False),
            _unread(statuses, comes_later=True),
            unlimited=unlimited,
            may_wait=not self._topics.is_fixed,
        )
        self._latest = {
            name: status.after if status.last is None else status.last
            for name, status in statuses.items()
        }
        moved = self._topics.moved(start, statuses)
        last_read = {}
        for name, status in statuses.items():
            position = ends[name] if name in ends else start.position(name)
            if name not in ends and (
                name in moved or (position is None and status.is_named)
            ):
                position = status.after
            if position is not None:
                last_read[name] = position
        is_news = self._note_ends(start, last_read, statuses)
        if last_read == start.last_read and kept == start.kept and not is_news:
            self._rest.begin(start, time.monotonic() - began_s)
            return start
        self._ends.batch_planned()
        # The start of the query is in no offset but the ends that follow from it.
        start_after = {}
        if start.is_start_of_query:
            start_after = {
                n: read_to for n, read_to in start.last_read.items() if n in last_read
            }
        for name in last_read:
            status = statuses[name]
            is_begun = name in ends or name in moved or status.is_named
            if is_begun and status.after != start.last_read.get(name):
                start_after[name] = status.after
        return self._cluster.next_offset(start, last_read, start_after, kept)

    def _is_past_initial(self, start: OffsetT) -> bool:
        """Return whether the query has begun; then forget where, as Spark does."""
        if start == self._initial:
            return False
        self._initial = None
        return True

    def _note_ends(
        self,
        start: OffsetT,
        last_read: Mapping[str, P],
        statuses: Mapping[str, PartitionStatus[P]],
    ) -> bool:
        """Learn how far a micro-batch goes; return whether that has to be recorded.

        Args:
            start: The end of the last micro-batch.
            last_read: The position in each topic partition at the end.
            statuses: What there is to read of them.
        """
        return False

    def ranges(self, start: OffsetT, end: OffsetT) -> Sequence[R]:
        """Return what the micro-batch between two offsets reads.

        The rows depend on the offsets alone; into which parts they are split may
        depend on what is stored, too.

        Spark has recorded ``end``. So this is when the query may leave something in
        the cluster, and no earlier: one that dies before that leaves nothing.

        Raises:
            DataLossError: Rows are gone, or the options no longer name what was read,
                and ``failOnDataLoss`` is set.
            TopicsError: The cluster does not answer, or refuses.
        """
        leaving = self._topics.leaving(end)
        earliest = self._topics.earliest
        spans = batch_spans(start, end, earliest)
        if self._cluster.recorded(end):
            has_rows = {span.topic_partition for span in spans}
            self._topics.visit(
                {
                    name: end.begin(start, name, earliest)
                    for name in end.last_read
                    if name not in leaving or name in has_rows
                }
            )
        return self._cluster.ranges(spans)

    def commit(self, end: OffsetT) -> None:
        """Acknowledge what Spark has committed, where that was not done yet."""
        self._cluster.acknowledge(end.last_read)

    def progress(self) -> dict[str, Any] | None:
        """Return the topics' ends, and the backlog that the last plan left.

        Returns:
            ``latest`` (positions), ``backlogEntries`` (numbers of stored entries),
            ``backlogBytes`` (about, as stored, where that is known) and ``ageMs``
            (since the first entry was published that was unread before the plan, where
            that is known), all by topic and partition number; None before the first
            plan.
        """
        if not self._latest:
            return None
        ends = self._ends
        backlogs = {name: ends.backlogs.get(name, 0) for name in self._latest}
        return {
            "v": 1,
            "latest": self._cluster.tree(
                {name: str(position) for name, position in self._latest.items()}
            ),
            "backlogEntries": self._cluster.tree(backlogs),
            "backlogBytes": self._cluster.tree(
                {
                    name: size_bytes
                    for name, count in backlogs.items()
                    if (size_bytes := ends.bytes_of(name, count)) is not None
                }
            ),
            "ageMs": self._cluster.tree(
                {
                    name: age_ms
                    for name in self._latest
                    if (age_ms := ends.age_ms(name)) is not None
                }
            ),
        }

    def note(self, start: OffsetT) -> str:
        """Return what else there is to say of a query that begins at an offset."""
        return ""

    def _tell(self, start: OffsetT) -> None:
        """Log where the query begins, once in this process."""
        if self._is_told:
            return
        self._is_told = True
        places = [
            f"{name} after "
            + ("the beginning" if read == self._topics.earliest else str(read))
            for name, read in start.last_read.items()
        ]
        note = self.note(start)
        self._topics.system.logger("spark").info(
            "stream: %s with %s: %s%s",
            "begins" if start.is_start_of_query else "goes on",
            counted(len(places), "topic partition"),
            list_names(places) or "none yet",
            f"; {note}" if note else "",
        )

    def stop(self) -> None:
        """Let go of the cluster."""
        self._cluster.close()


def _unread(
    statuses: Mapping[str, PartitionStatus[P]], *, comes_later: bool
) -> dict[str, Unread[P]]:
    """Return what there is to read, now or in a later micro-batch."""
    return {
        name: unread
        for name, status in statuses.items()
        if status.comes_later is comes_later and (unread := status.unread) is not None
    }
