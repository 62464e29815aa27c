# SPDX-License-Identifier: Apache-2.0
"""The topic partitions of a stream: which there are, and what there is to read.

A visit goes one way through what may come between a query and its rows::

    segments        protect them; those drained and deleted are over
    subscription    acknowledge what was read, see where cursors and topics end
    losses          are the next rows gone?
    stream_ends     nothing is read behind these
    held_rows       does an open transaction hold rows back?
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.discovery import (
    existing_topic_partitions,
    find_topic_partitions,
    look_for_topic_partitions,
)
from pulsar_spark.source.stream.held_rows import HeldRows
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.losses import LossCheck
from pulsar_spark.source.stream.query_subscription import QuerySubscription
from pulsar_spark.source.stream.segments import Segments
from pulsar_spark.source.stream.stream_ends import StreamEnds
from pulsar_spark.source.stream.stream_schema import StreamSchema
from pulsar_spark.source.stream.subscription import CursorStatus
from pulsar_spark.system import PULSAR
from pulsar_spark.topics import TopicName, is_segment
from spark_topics.client.retry import ask_all
from spark_topics.source.stream.cluster import PartitionStatus

logger = logging.getLogger("pulsar_spark.source")


class _Searched(NamedTuple):
    """A search for the end of a segment.

    Attributes:
        cursor: Where the topic partition and the cursor stood.
        waiting: How many entries followed the cursor.
        end: The last readable entry.
        until_s: How long this counts where nothing has changed, by the monotonic clock.
    """

    cursor: CursorStatus
    waiting: int
    end: MessageId
    until_s: float


class StreamTopics:
    """The topic partitions of a streaming query, see ``cluster.Topics``.

    Args:
        pool: The cluster's connections.
        options: What to read.
        schema: What values become; None for bytes.
        subscription: Says where the topics end.

    Attributes:
        positions: Asks brokers what is stored.
        stream_ends: Where the stream ends.
        held_rows: Knows where open transactions hold back rows.
        segments: Knows the segments of scalable topics.
    """

    system = PULSAR
    earliest = NOTHING_READ

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        schema: StreamSchema | None,
        subscription: QuerySubscription,
    ) -> None:
        self._pool = pool
        self._options = options
        self._schema = schema
        self._subscription = subscription
        self.positions = PositionLookup(
            pool, read_compacted=options.read_compacted, patience_s=options.patience_s
        )
        self.stream_ends = StreamEnds(options, self.positions)
        self._lookup = TopicLookup(pool, patience_s=options.patience_s)
        # Compacted topics are asked, too, how far they were ever written.
        self._losses = LossCheck(
            pool,
            PositionLookup(pool, patience_s=options.patience_s),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self.held_rows = HeldRows(pool, self.positions)
        self.segments = Segments(
            self._lookup.layouts,
            in_order=options.order_by_key,
            settling_s=options.client.patience.settling_s,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._ends: dict[str, LastRead] = {}  # as they were seen last
        self._searched: dict[str, _Searched] = {}
        # Sealed segments with rows behind the end of the stream: never drained.
        self._cut_short: set[str] = set()
        self._is_warned = False  # of topics that do not exist
        self._whole_topics = {
            topic.common_name
            for topic in options.topics
            if topic.partition_index is None
        }

    def partitions(self, *, wait: bool = False) -> list[str]:
        """Return the full names of the topic partitions to read that exist."""
        topics = None
        if wait:
            # A new query will say what is missing. One that has read it has lost it.
            with contextlib.suppress(TopicNotFoundError):
                topics = find_topic_partitions(self._lookup, self._options)
        if topics is None:
            topics, absence = look_for_topic_partitions(self._lookup, self._options)
            if absence and not self._is_warned:
                self._is_warned = True
                logger.warning("%s The query reads it once it is there.", absence)
        names = [topic.full_name for topic in topics]
        if self._schema is not None:
            self._schema.look(names)
        return names

    def is_wanted(self, name: str) -> bool:
        """Return whether the options name the topic, or their pattern matches."""
        if self._options.topics_pattern is not None:
            return self._options.topics_pattern.matches(name)
        topic = TopicName.parse(name)
        return topic in self._options.topics or topic.common_name in self._whole_topics

    @property
    def unprotected(self) -> Set[str]:
        """Return the topic partitions whose next rows retention may take."""
        return self._losses.unprotected

    def check_ends(self, read: Iterable[str]) -> None:
        """Refuse ends of topics that the query does not read.

        Args:
            read: Full names of all that the query reads, or has read.

        Raises:
            OptionError: There is one.
        """
        self.stream_ends.check(read, self.is_wanted, self.segments.was_there)

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[LastRead]]:
        """Ask by readers placed at the beginning."""
        stored = self.positions.from_message_ids(
            dict.fromkeys(names, EARLIEST), absent_ok=True
        )
        lasts = {name: positions.last for name, positions in stored.items()}
        self._note_ends(lasts)
        afters = {name: LastRead.of(edge.before) for name, edge in stored.items()}
        if self._options.read_compacted:
            # Compacted topics reach back further than what is stored.
            afters = dict.fromkeys(stored, NOTHING_READ)
        return {
            name: PartitionStatus(afters[name], self._end(name, afters[name], last))
            for name, last in self.stream_ends.cut(lasts, afters).items()
        }

    @contextlib.contextmanager
    def visit(
        self, begins: Mapping[str, LastRead]
    ) -> Iterator[dict[str, PartitionStatus[LastRead] | None]]:
        """Visit the consumers; delete what a visit that fails has subscribed to."""
        if any(map(is_segment, begins)) and not self.segments.layouts:
            existing_topic_partitions(self._lookup, self._options)
        consumers = self._subscription.consumers
        self.segments.protect(self._subscription.registrations)
        read = begins
        if any(map(self.segments.is_over, self.segments.drained)):
            read = {
                name: begin
                for name, begin in begins.items()
                if not self.segments.is_over(name)
            }
        try:
            cursors = consumers.visit(read, read.keys() - self._ends.keys())
            yield self._statuses(begins, cursors)
        except PulsarSparkError:
            consumers.take_back()
            raise
        consumers.confirm()

    def _statuses(
        self,
        begins: Mapping[str, LastRead],
        cursors: Mapping[str, CursorStatus | None],
    ) -> dict[str, PartitionStatus[LastRead] | None]:
        """Return what there is to read, by what a visit says of the cursors."""
        present = {name: cursor for name, cursor in cursors.items() if cursor}
        over = {
            name
            for name in begins.keys() - present.keys()
            if name not in cursors or self.segments.may_be_gone(name)
        }
        self.segments.note_visit(present)
        afters = begins
        # Compaction says nothing of what is stored.
        is_exact = not self._options.read_compacted
        if is_exact:
            if resumed := self._losses.resume(begins, present, self._ends):
                afters = {**begins, **resumed}
            self._subscription.consumers.skipping = self._losses.unprotected
        else:
            if unreached := self._losses.unreached(begins, present):
                afters = {**begins, **dict.fromkeys(unreached, NOTHING_READ)}
            self._subscription.consumers.skipping = self._skipping(present, afters)
        stored = self._lasts(present, afters)
        self.segments.reopen(
            name
            for name in self.segments.drained & stored.keys()
            if (last := stored[name]) is not None and not afters[name].has_read(last)
        )
        lasts = self.stream_ends.cut(stored, afters)
        done: set[str] = set()
        if self.stream_ends.has_any:
            done = {
                name
                for name, last in lasts.items()
                if self.stream_ends.is_at_end(name, afters[name], last)
            }
        later = self.segments.waiting(present.keys() | over, done)
        statuses = {
            name: PartitionStatus(
                afters[name],
                self._end(name, afters[name], lasts.get(name)),
                comes_later=name in later,
                # Of segments that came and went, offsets tell those that were seen.
                is_named=is_segment(name),
            )
            for name in (*present, *over)
        }
        if is_exact:
            # What follows the end of the stream is nothing that the query waits for.
            seen = statuses
            if left_out := over | done:
                seen = {n: s for n, s in statuses.items() if n not in left_out}
            self.held_rows.look(seen, self._subscription.consumers.unread)
        gone = [name for name in cursors if name not in statuses]
        return {**statuses, **dict.fromkeys(gone)}

    def _skipping(
        self, cursors: Mapping[str, CursorStatus], afters: Mapping[str, LastRead]
    ) -> set[str]:
        """Return the compacted topic partitions with entries before their cursors.

        A broker moves a cursor that is done with a ledger to the beginning of the next
        one. That skips nothing where all was read that the last visit saw. Of segments
        a visit may see too little.
        """
        return {
            name
            for name, status in cursors.items()
            if status.cursor.position >= afters[name].next().position
            and (
                status.cursor.entry_id >= 0
                or is_segment(name)
                or name not in self._ends
                or afters[name] < self._ends[name]
            )
        }

    def _lasts(
        self, cursors: Mapping[str, CursorStatus], afters: Mapping[str, LastRead]
    ) -> dict[str, MessageId | None]:
        """Return the last message of each topic; ask again if messages vanished.

        Brokers say that there is none while a topic moves, and a query that is to read
        what is stored would end.
        """
        lasts = {name: cursor.last for name, cursor in cursors.items()}
        lasts |= self._segment_ends(cursors, afters)
        doubtful = [
            name
            for name, last in lasts.items()
            if last is None and afters[name] < self._ends.get(name, NOTHING_READ)
        ]
        if doubtful:
            asked = self.positions.from_message_ids(
                dict.fromkeys(doubtful, EARLIEST), absent_ok=True
            )
            lasts |= {name: positions.last for name, positions in asked.items()}
        self._note_ends(lasts)
        return lasts

    def _segment_ends(
        self, cursors: Mapping[str, CursorStatus], afters: Mapping[str, LastRead]
    ) -> dict[str, MessageId | None]:
        """Return the ends of segments that have entries behind the query's cursor.

        An end that cannot be found out now is left to the next look, if there is one.
        What is stored behind the end of the stream is not looked for.
        """
        segments = list(filter(is_segment, cursors))
        lasts = {name: cursors[name].last for name in segments}
        ends = {
            name: lasts[name] and afters[name].message_id
            for name in segments
            if self.stream_ends.is_past(name, afters[name])
        }
        consumers = self._subscription.consumers
        waiting = consumers.waiting(segments)
        is_last_run = self.held_rows.is_last_run
        now_s = time.monotonic()
        if not is_last_run:
            ends |= {
                name: searched.end
                for name, searched in self._searched.items()
                if now_s < searched.until_s
                and cursors.get(name) == searched.cursor
                and waiting.get(name) == searched.waiting
            }

        def ask(names: list[str]) -> dict[str, MessageId | None | PulsarSparkError]:
            ends = readable_ends(
                self._pool,
                {name: lasts[name] for name in names},
                read_compacted=self._options.read_compacted,
            )
            for name, end in ends.items():
                if isinstance(end, MessageId):
                    self._note_search(name, cursors[name], waiting.get(name), end)
                elif isinstance(end, TopicNotFoundError) or (
                    isinstance(end, PulsarSparkError)
                    and end.retriable
                    and not is_last_run
                ):
                    logger.debug("It is not known where a segment ends: %s", end)
                    ends[name] = lasts[name]
            return ends

        names = [
            name
            for name in segments
            if name not in ends
            and (name in consumers.skipping or waiting.get(name, 1) > 0)
        ]
        patience = self._pool.patience(self._options.patience_s)
        return {**ends, **ask_all(names, ask, patience)}

    def _note_search(
        self, name: str, cursor: CursorStatus, waiting: int | None, end: MessageId
    ) -> None:
        """Remember for a while where a compacted segment ends.

        Behind that end may be entries that compaction has removed. They never come, and
        each search waits for them.
        """
        if self._options.read_compacted and waiting is not None:
            until_s = time.monotonic() + self._pool.options.patience.quiet_s
            self._searched[name] = _Searched(cursor, waiting, end, until_s)

    def _note_ends(self, lasts: Mapping[str, MessageId | None]) -> None:
        for name, last in lasts.items():
            if last is None:
                self._ends.pop(name, None)
            else:
                self._ends[name] = LastRead.of(last)

    def _end(
        self, name: str, after: LastRead, last: MessageId | None
    ) -> LastRead | None:
        """Return the end of a topic partition that was read up to a position."""
        if last is None:
            return None
        if last.batch_index < 0 and last.position == after.position:
            # A message outside of a batch was read, whatever batch index was named.
            return after
        end, seen = LastRead.of(last), self._ends.get(name)
        # Who keeps the ends of very many keeps one object of each.
        return seen if seen == end else end

    def drain(
        self,
        last_read: Mapping[str, LastRead],
        statuses: Mapping[str, PartitionStatus[LastRead]],
    ) -> None:
        """Note which segments a micro-batch reads to their end.

        Args:
            last_read: The end of the micro-batch.
            statuses: What there is to read.

        Raises:
            PulsarSparkError: The cluster does not answer, and this is the last run.
        """
        ends = {
            name: last_read[name]
            for name in self.segments.ending(last_read)
            if name not in self._cut_short
            and ((last := statuses[name].last) is None or not last_read[name] < last)
        }
        self.segments.await_ends(ends)
        try:
            # Compaction says nothing of what is stored.
            is_exact = not self._options.read_compacted
            drained = self.held_rows.all_read(ends) if is_exact else set(ends)
        except PulsarSparkError as error:
            if self.held_rows.is_last_run:
                raise  # segments that follow would be left out
            logger.debug("It is not known whether segments are drained: %s", error)
        else:
            self.segments.drained |= drained
            self._cut_short.update(
                name
                for name in ends.keys() - drained
                if self.stream_ends.is_past(name, ends[name])
            )
