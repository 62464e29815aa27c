# SPDX-License-Identifier: Apache-2.0
"""A Pulsar cluster, as the planner of a stream sees the cluster.

The query's subscription keeps what was not read, and its consumers say where the topics
end. It is created once its name is in Spark's checkpoint. Until then, and where
nothing is to be acknowledged, consumers that leave no trace do the same::

    starts        readers that ask, or the predefined subscription as it is
    visit         consumers that are not durable     until an end is recorded
    visit, ack    the subscription                   from then on, see ``recorded``

Whether the next rows are gone is found out in ``losses``; how far may be acknowledged,
in ``chunk_guard``.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from typing import Any

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.registrations import Registrations
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import (
    AskAgainError,
    DataLossError,
    PulsarSparkError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import topic_tree
from pulsar_spark.source.plan.discovery import (
    existing_topic_partitions,
    find_topic_partitions,
)
from pulsar_spark.source.plan.ranges import TopicRange, assign_offsets
from pulsar_spark.source.plan.read_task import ReadTask, read_tasks
from pulsar_spark.source.plan.starts import find_starts, times_for
from pulsar_spark.source.plan.survey import divide
from pulsar_spark.source.stream.checkpoint import SchemaPin, StreamOffset
from pulsar_spark.source.stream.chunk_guard import ChunkGuard
from pulsar_spark.source.stream.held_rows import HeldRows
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.losses import LossCheck
from pulsar_spark.source.stream.made_by import made_by
from pulsar_spark.source.stream.pulsar_offsets import (
    not_divided_alike,
    read_offset,
    still_where_it_began,
    topic_ranges,
    without,
)
from pulsar_spark.source.stream.segments import Segments
from pulsar_spark.source.stream.stream_ends import StreamEnds
from pulsar_spark.source.stream.stream_schema import StreamSchema
from pulsar_spark.source.stream.subscription import (
    CursorStatus,
    PeekedEntry,
    Subscription,
)
from pulsar_spark.system import PULSAR
from pulsar_spark.topics import TopicName, is_segment, topic_of
from pulsar_spark.wire.commands import SubscribeRequest
from spark_topics.client.retry import ask_all
from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.checkpoint import Span
from spark_topics.source.stream.cluster import (
    NextEntry,
    PartitionStatus,
    Share,
    Unread,
    Waiting,
)
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet

logger = logging.getLogger("pulsar_spark.source")

#: Topic partitions whose next entries are looked at for one micro-batch, in turn; the
#: others go by averages.
_LOOKS = 64

#: Ledgers that a micro-batch with a limit spans at most in a topic partition, but for
#: what is only known by averages: each costs the plan a reader.
_LEDGERS = 32

#: No ledger has this many entries: a reader placed there is after its ledger's last.
_NO_ENTRY = 2**31


def stream_planner(
    pool: ConnectionPool, options: ReadOptions, schema: StreamSchema | None = None
) -> StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]:
    """Return the planner of a stream.

    Args:
        pool: The cluster's connections.
        options: What to read.
        schema: What values become; None for bytes.
    """
    cluster = PulsarCluster(pool, options, schema)
    topics = TopicSet(
        cluster,
        discovery_interval_s=options.partition_discovery_interval_s,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    age_interval_s = options.lag_age_interval_s or None
    ends = BatchEnds(cluster, stream_limits(options), age_interval_s)
    return _PulsarPlanner(cluster, topics, ends)


class _PulsarPlanner(StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]):
    """Adds what open transactions hold back."""

    _cluster: PulsarCluster

    def note(self, start: StreamOffset[LastRead]) -> str:
        """Name the subscription that keeps unread rows."""
        if not self._cluster.acknowledges:
            return ""
        return f"subscription {start.subscription}"

    def latest(
        self,
        start: StreamOffset[LastRead],
        *,
        unlimited: bool = False,
        is_committed: bool = True,
    ) -> StreamOffset[LastRead]:
        """Look for new segments each time, see `StreamPlanner`."""
        self._cluster.segments.drained = start.drained
        if self._cluster.segments.layouts:
            self._topics.discover_soon()
        return super().latest(start, unlimited=unlimited, is_committed=is_committed)

    def ranges(
        self, start: StreamOffset[LastRead], end: StreamOffset[LastRead]
    ) -> Sequence[ReadTask]:
        """Know which segments may be gone, see `StreamPlanner`."""
        self._cluster.segments.drained = end.drained
        return super().ranges(start, end)

    def _note_ends(
        self,
        start: StreamOffset[LastRead],
        last_read: Mapping[str, LastRead],
        statuses: Mapping[str, PartitionStatus[LastRead]],
    ) -> bool:
        self._cluster.check_unseen(start)
        self._cluster.drain(last_read, statuses)
        # Also a segment that the broker has deleted: after a restart nothing would tell
        # that the query had read all of it.
        drained = self._cluster.segments.drained & last_read.keys()
        return not drained <= start.drained

    def fix_target(self) -> None:
        """Limit the stream to the rows stored now, see `StreamPlanner`."""
        self._cluster.held_rows.is_last_run = True
        super().fix_target()

    def progress(self) -> dict[str, Any] | None:
        """Add ``heldBack``: the last stored entry where rows are held back."""
        progress = super().progress()
        stored = self._cluster.held_rows.stored
        if progress is None or not stored:
            return progress
        tree = self._cluster.tree({name: str(last) for name, last in stored.items()})
        return {**progress, "heldBack": tree}


def stream_limits(options: ReadOptions) -> StreamLimits:
    """Return how large the options want micro-batches to be."""
    return StreamLimits(
        max_rows=options.max_rows_per_trigger,
        max_bytes=options.max_bytes_per_trigger,
        min_rows=options.min_rows_per_trigger,
        max_delay_s=options.max_trigger_delay_s,
    )


class PulsarCluster:
    """The requests of a streaming query to a Pulsar cluster, see ``cluster.Cluster``.

    Args:
        pool: The cluster's connections.
        options: What to read.
        schema: What values become; None for bytes.

    Attributes:
        held_rows: Knows where open transactions hold back rows.
        segments: Knows the segments of scalable topics.
    """

    system = PULSAR
    earliest = NOTHING_READ

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        schema: StreamSchema | None = None,
    ) -> None:
        self._pool = pool
        self._schema = schema
        self._options = options
        self._lookup = TopicLookup(pool, patience_s=options.patience_s)
        self._positions = self._position_lookup(options.patience_s)
        self._stream_ends = StreamEnds(options, self._positions)
        self._guard = ChunkGuard(pool, expire_s=options.expire_incomplete_chunk_s)
        self._losses = LossCheck(
            self._positions, fail_on_data_loss=options.fail_on_data_loss
        )
        self.held_rows = HeldRows(pool, self._positions)
        self.segments = Segments(
            self._lookup.layouts,
            in_order=options.order_by_key,
            settling_s=options.client.patience.settling_s,
        )
        self._registrations: Registrations | None = None  # once the name is recorded
        # The registration that has protected each segment, or all of a topic, from the
        # last visit on.
        self._protected: dict[str, int | None] = {}
        self._ends: dict[str, LastRead] = {}  # as they were seen last
        self._made_up: str | None = None  # the name in the start of a new query
        self._name: str | None = None  # the subscription's, once it is recorded
        self._consumers: Subscription | None = None
        self._turn = 0  # of those whose next entries are looked at
        self._whole_topics = {
            topic.common_name
            for topic in options.topics
            if topic.partition_index is None
        }

    def _position_lookup(self, patience_s: float | None = None) -> PositionLookup:
        return PositionLookup(
            self._pool,
            read_compacted=self._options.read_compacted,
            patience_s=patience_s,
        )

    @property
    def acknowledges(self) -> bool:
        """Return whether a subscription in the cluster follows the query."""
        return self._options.ack_on_commit

    # -- offsets -----------------------------------------------------------------------

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `topic_tree`."""
        return topic_tree(values)

    def read_offset(self, tree: Mapping[str, Any]) -> StreamOffset[LastRead]:
        """Read an offset of a checkpoint: ours, or the Scala connector's."""
        return read_offset(tree)

    def next_offset(
        self,
        start: StreamOffset[LastRead] | None,
        last_read: Mapping[str, LastRead],
        start_after: Mapping[str, LastRead],
        kept: Mapping[str, LastRead],
    ) -> StreamOffset[LastRead]:
        """Add the subscription's name, topics with chunks, and first positions."""
        if start is None:
            self._made_up = self._new_name()
            if self._schema is not None:
                self._schema.begin()
            return StreamOffset(self._made_up, last_read, start_after, schema=self._pin)
        over = {name for name in last_read if self.segments.is_over(name)}
        last_read = {name: last_read[name] for name in last_read if name not in over}
        return StreamOffset(
            self._name or start.subscription or self._new_name(),
            last_read,
            start_after,
            frozenset(self._guard.chunked),
            still_where_it_began(start, {**last_read, **kept}, start_after),
            self._pin,
            kept,
            drained=self.segments.drained & last_read.keys(),
        )

    @property
    def _pin(self) -> SchemaPin | None:
        return None if self._schema is None else self._schema.pin

    def recorded(self, offset: StreamOffset[LastRead]) -> bool:
        """Learn the subscription's name, the schema, and which topics have chunks."""
        if self._schema is not None:
            self._schema.go_on(offset.schema)
        self._guard.chunked |= offset.chunked
        name = self._options.predefined_subscription or offset.subscription
        # A checkpoint of the Scala connector has no name, the next end will. With a
        # name in no offset, each run that ends earlier would leave a subscription.
        if self._name is not None or not name:
            return False
        self._name = name
        if self._options.ack_on_commit:
            if self._consumers is not None:
                self._consumers.close()
            self._consumers = self._subscription(name, durable=True)
            self._registrations = Registrations(self._pool, name)
            if self._options.delete_subscription_on_stop and name != self._made_up:
                self._consumers.may_be_on(filter(self.is_wanted, offset.last_read))
        return True

    def _new_name(self) -> str:
        options = self._options
        return (
            options.predefined_subscription
            or f"{options.client.subscription_prefix}-{uuid.uuid4()}"
        )

    # -- starts ------------------------------------------------------------------------

    def starts(self) -> dict[str, LastRead]:
        """Return where a new query starts: by the options, or by the subscription."""
        # Less patient than a query that has begun: a wrong address is to show soon.
        topics = find_topic_partitions(TopicLookup(self._pool), self._options)
        if self._options.start_at_subscription:
            return self._subscription_starts(topics)
        return self._configured_starts(topics)

    def _configured_starts(self, topics: list[TopicName]) -> dict[str, LastRead]:
        """Return what ``startingOffsets`` and ``startingTime`` say."""
        options = self._options
        offsets = assign_offsets(
            options.starting_offsets, topics, option="startingOffsets"
        )
        # Only to refuse names that are not read, while somebody looks.
        assign_offsets(options.ending_offsets, topics, option="endingOffsets")
        times_for(options.ending_times, topics, "endingTime")
        lookup = self._position_lookup()
        starts = find_starts(lookup, options, topics, offsets)
        return {
            topic.full_name: LastRead.before(starts[topic.full_name].first)
            for topic in topics
        }

    def _subscription_starts(self, topics: list[TopicName]) -> dict[str, LastRead]:
        """Return the position of the predefined subscription, exact to the message."""
        consumers = self._subscription(self._new_name(), durable=True, must_exist=True)
        try:
            return ask_all(
                [topic.full_name for topic in topics],
                partial(_cursors, consumers),
                self._pool.patience(self._options.poll_timeout_s),
            )
        finally:
            consumers.close()

    # -- topic partitions --------------------------------------------------------------

    def partitions(self, *, wait: bool = False) -> list[str]:
        """Return the full names of the topic partitions to read that exist."""
        topics = None
        if wait:
            # A new query will say what is missing. One that has read it has lost it.
            with contextlib.suppress(TopicNotFoundError):
                topics = find_topic_partitions(self._lookup, self._options)
        if topics is None:
            topics = existing_topic_partitions(self._lookup, self._options)
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

    def topic_of(self, name: str) -> str:
        """Return the name without the suffix of a partition."""
        return topic_of(name)

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[LastRead]]:
        """Ask by readers placed at the beginning."""
        stored = self._positions.from_message_ids(
            dict.fromkeys(names, EARLIEST), absent_ok=True
        )
        lasts = {name: positions.last for name, positions in stored.items()}
        self._note_ends(lasts)
        afters = {name: LastRead.of(found.before) for name, found in stored.items()}
        return {
            name: PartitionStatus(
                afters[name], None if last is None else LastRead.of(last)
            )
            for name, last in self._stream_ends.cut(lasts, afters).items()
        }

    @contextlib.contextmanager
    def visit(
        self, begins: Mapping[str, LastRead]
    ) -> Iterator[dict[str, PartitionStatus[LastRead] | None]]:
        """Visit the consumers; delete what a visit that fails has subscribed to."""
        consumers = self._watch()
        over = self._over(begins)
        try:
            by_topic = consumers.visit(
                {name: read for name, read in begins.items() if name not in over}
            )
            over |= {
                name
                for name, status in by_topic.items()
                if status is None and self._may_be_gone(name)
            }
            present = {
                name: status for name, status in by_topic.items() if status is not None
            }
            self._protected.update({name: self._registration(name) for name in present})
            afters = dict(begins)
            if not self._options.read_compacted:
                afters |= self._losses.resume(begins, present)
            lasts = self._stream_ends.cut(self._lasts(present, afters), afters)
            statuses = {
                name: None if status is None else _status(afters[name], lasts[name])
                for name, status in by_topic.items()
            }
            statuses |= {name: PartitionStatus(begins[name], None) for name in over}
            # Compaction says nothing of what is stored.
            if not self._options.read_compacted:
                self.held_rows.look(
                    {n: status for n, status in statuses.items() if n not in over},
                    consumers.waiting,
                )
            later = self.segments.waiting(n for n in statuses if statuses[n])
            yield {
                # Of segments that came and went, offsets tell those that were seen.
                name: status
                and replace(
                    status, comes_later=name in later, is_named=is_segment(name)
                )
                for name, status in statuses.items()
            }
        except PulsarSparkError:
            consumers.take_back()
            raise
        consumers.confirm()

    # -- segments of scalable topics ---------------------------------------------------

    def _over(self, begins: Mapping[str, LastRead]) -> set[str]:
        """Protect the segments to read; return the drained and deleted segments."""
        if any(map(is_segment, begins)) and not self.segments.layouts:
            existing_topic_partitions(self._lookup, self._options)
        if self._registrations is not None:
            self._registrations.add(self.segments.layouts)
        return {name for name in begins if self.segments.is_over(name)}

    def _may_be_gone(self, name: str) -> bool:
        """Return whether a segment may be deleted without loss.

        A broker deletes no segment in which a registered subscription has a backlog,
        and what is acknowledged was read.
        """
        if name in self.segments.drained:
            return True
        if self.segments.is_absent(name) and self._is_protected(name, name):
            self.segments.drained |= {name}
            return True
        return False

    def _is_protected(self, key: str, name: str) -> bool:
        """Return whether a registration has lasted since the last visit."""
        registration = self._registration(name)
        return registration is not None and registration == self._protected.get(key)

    def _registration(self, name: str) -> int | None:
        layout = self.segments.layout_of(name)
        if layout is None or self._registrations is None:
            return None
        return self._registrations.current(layout.topic)

    def drain(
        self,
        last_read: Mapping[str, LastRead],
        statuses: Mapping[str, PartitionStatus[LastRead]],
    ) -> None:
        """Note which segments a micro-batch reads to their end.

        Args:
            last_read: The end of the micro-batch.
            statuses: What there is to read.
        """
        ends = {
            name: last_read[name]
            for name in self.segments.ending(last_read)
            if (last := statuses[name].last) is None or not last_read[name] < last
        }
        self.segments.await_ends(ends)
        try:
            # Compaction says nothing of what is stored.
            is_exact = not self._options.read_compacted
            drained = self.held_rows.all_read(ends) if is_exact else set(ends)
        except PulsarSparkError as error:
            logger.debug("It is not known whether segments are drained: %s", error)
        else:
            self.segments.drained |= drained

    def check_unseen(self, start: StreamOffset[LastRead]) -> None:
        """Report segments that were deleted before the query has seen them.

        A registered subscription keeps the broker from that.

        Raises:
            DataLossError: There are some, and that is an error.
        """
        unseen = self.segments.unseen({**start.last_read, **start.kept})
        for layout in self.segments.layouts:
            topic, ids = layout.topic, unseen.get(layout.topic)
            is_protected = self._is_protected(topic, topic)
            self._protected[topic] = self._registration(topic)
            if not ids or is_protected:
                continue
            message = (
                f"{topic} had the segments {', '.join(map(str, ids))}, which were "
                "deleted before the query has read any of them. The subscription of a "
                "running query keeps the broker from that (`ackOnCommit`); while the "
                "query is stopped, only retention does."
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{message} Set `failOnDataLoss` to false to go on without them.",
                    topic_partition=topic,
                    wanted=str(ids[0]),
                    available="",
                )
            logger.warning("[PULSAR_DATA_LOSS] %s Going on without them.", message)

    def _lasts(
        self, found: Mapping[str, CursorStatus], afters: Mapping[str, LastRead]
    ) -> dict[str, MessageId | None]:
        """Return the last message of each topic; ask again if messages vanished.

        Brokers say that there is none while a topic moves, and a query that is to read
        what is stored would end.
        """
        lasts = {name: positions.last for name, positions in found.items()}
        lasts |= self._segment_ends(lasts)
        doubtful = [
            name
            for name, last in lasts.items()
            if last is None and afters[name] < self._ends.get(name, NOTHING_READ)
        ]
        if doubtful:
            asked = self._positions.from_message_ids(
                dict.fromkeys(doubtful, EARLIEST), absent_ok=True
            )
            lasts |= {name: positions.last for name, positions in asked.items()}
        self._note_ends(lasts)
        return lasts

    def _segment_ends(
        self, said: Mapping[str, MessageId | None]
    ) -> dict[str, MessageId | None]:
        """Return the ends of segments that have entries behind the query's cursor."""
        segments = [name for name in said if is_segment(name)]
        waiting = self._watch().waiting(segments)
        return readable_ends(
            self._pool,
            {name: said[name] for name in segments if waiting.get(name, 1) > 0},
        )

    def _note_ends(self, lasts: Mapping[str, MessageId | None]) -> None:
        for name, last in lasts.items():
            if last is None:
                self._ends.pop(name, None)
            else:
                self._ends[name] = LastRead.of(last)

    def _watch(self) -> Subscription:
        """Return the query's consumers; non-durable before the first commit."""
        if self._consumers is None:
            # The query's own name is for the durable ones: the two kinds cannot share.
            name = self._pool.reader_name()
            self._consumers = self._subscription(name, durable=False)
        return self._consumers

    def _subscription(
        self, name: str, *, durable: bool, must_exist: bool = False
    ) -> Subscription:
        options = self._options
        how = SubscribeRequest(
            name,
            durable=durable,
            read_compacted=options.read_compacted,
            properties=options.consumer_properties,
            subscription_properties=tuple(
                {**made_by(), **dict(options.subscription_properties)}.items()
            ),
            replicate_subscription_state=options.replicate_subscription_state,
        )
        is_made_up = name == self._made_up and options.predefined_subscription is None
        return Subscription(
            self._pool,
            how,
            is_new=is_made_up,
            must_exist=must_exist,
            may_lack_ledgers=lambda name: name not in self._ends,
            patience_s=options.poll_timeout_s,
            guard=self._guard,
        )

    # -- how far a micro-batch goes ----------------------------------------------------

    def backlog(self, news: Mapping[str, Unread[LastRead]]) -> dict[str, Waiting]:
        """Count rows within a ledger; across ledgers ask brokers, or estimate."""
        elsewhere = [name for name, unread in news.items() if _crosses(unread)]
        counted = self._watch().waiting(elsewhere) if elsewhere else {}
        waiting = {}
        for name, unread in news.items():
            after, last = unread.after, unread.last
            if not _crosses(unread):
                entries = last.entry_id - after.entry_id + (after.batch_index >= 0)
            else:
                entries = max(1, counted.get(name, last.entry_id + 1))
            is_all = not _crosses(unread) or name in counted
            waiting[name] = Waiting(entries, is_all)
        return waiting

    def peek(
        self,
        news: Mapping[str, Unread[LastRead]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[LastRead]]]:
        """Look at the next entries of some topic partitions.

        Where the next entry lies in another ledger, its number cannot be computed.
        """
        crossing = {
            name: None  # a set, in order
            for name, unread in news.items()
            if _crosses(unread) and not is_one_enough
        }
        within_ledger = [name for name in news if name not in crossing]
        turn = self._turn % len(within_ledger) if within_ledger else 0
        self._turn += _LOOKS
        chosen = [*crossing, *(within_ledger[turn:] + within_ledger[:turn])[:_LOOKS]]
        peeked = self._watch().look(
            {name: news[name].after for name in chosen},
            on_seen,
            is_one_enough=is_one_enough,
        )
        return {name: _next_entries(entries) for name, entries in peeked.items()}

    def ends(self, shares: Mapping[str, Share[LastRead]]) -> dict[str, LastRead]:
        """Compute ends; ask brokers where an end may be behind its ledger's last.

        A cursor that is set to such an id counts the backlog wrong. Where the ledger
        has fewer entries than the share, look what comes after it, ledger by ledger.
        """
        ends: dict[str, LastRead] = {}
        for _ in range(_LEDGERS):
            short = self._up_to_ledgers(shares, ends)
            if not short:
                break
            ahead = self._watch().look_from({n: ends[n] for n in short})
            shares = {
                name: Share(
                    Unread(ends[name], shares[name].unread.last),
                    entries,
                    _next_entries(ahead[name]),
                )
                for name, entries in short.items()
                if ahead.get(name)
            }
        # Ends of shares are whole entries; that of the stream may be inside of one.
        return {name: self._stream_ends.within(name, end) for name, end in ends.items()}

    def _up_to_ledgers(
        self, shares: Mapping[str, Share[LastRead]], ends: dict[str, LastRead]
    ) -> dict[str, int]:
        """Write down the ends of shares, each at most the end of its ledger.

        Returns:
            How many entries a few of those that a ledger has cut short may have yet.
        """
        computed = {name: _end(share) for name, share in shares.items()}
        ends.update(computed)
        unsure = {
            name: end.next()
            for name, end in computed.items()
            if end.ledger_id != shares[name].unread.last.ledger_id
        }
        short: dict[str, int] = {}
        # The next visit says what it means that one is gone.
        firsts = self._positions.from_message_ids(unsure, absent_ok=True)
        for name, positions in firsts.items():
            after, before = shares[name].unread.after, positions.before
            if after.position < before.position < computed[name].position:
                ends[name] = LastRead.of(before)
                missing = computed[name].entry_id - before.entry_id
                if before.ledger_id == computed[name].ledger_id and len(short) < _LOOKS:
                    short[name] = missing
        return short

    def ranges(self, spans: Sequence[Span[LastRead]]) -> list[ReadTask]:
        """Return ranges of message ids, divided as the options say."""
        ranges = self._with_known_starts(topic_ranges(spans))
        parts = divide(self._pool, self._options, ranges)
        left_out = {span.topic_partition for span in spans if span.is_left_out}
        if left_out:
            if parts != [(range_,) for range_ in ranges]:
                self._require_stored(ranges, left_out)
            parts = without(parts, left_out)
        tasks = read_tasks(self._pool, parts)
        if self._schema is None:
            return tasks
        return [task.with_schema(self._schema.schema) for task in tasks]

    def _require_stored(
        self, ranges: Iterable[TopicRange], left_out: Collection[str]
    ) -> None:
        """Check that left-out rows still count as at the first division.

        Raises:
            CheckpointError: Some of it is no longer stored.
        """
        starts = {
            range_.topic_partition: range_.start
            for range_ in ranges
            if range_.topic_partition in left_out
        }
        stored = self._positions.from_message_ids(starts, absent_ok=True)
        for name, start in starts.items():
            positions = stored.get(name)
            if positions is None or positions.before.position >= start.position:
                raise not_divided_alike(
                    f"what it was to read of {name}, from {start} on, is no longer"
                    " stored, and `minPartitions`, `maxPartitions` or"
                    " `maxRecordsPerPartition` divide it by what is stored"
                )

    def _with_known_starts(self, ranges: list[TopicRange]) -> list[TopicRange]:
        """Mark the ranges whose start is stored now, where an executor must know.

        A ledger that was read to its end may be gone when its task runs, one with rows
        still to read may not. So brokers are asked about ranges that begin and end in
        different ledgers, unless nothing protects them.
        """
        options = self._options
        if options.read_compacted or not options.ack_on_commit:
            return ranges
        asked = {
            range_.topic_partition: MessageId(range_.start.ledger_id, _NO_ENTRY)
            for range_ in ranges
            if 0 <= range_.start.ledger_id < range_.end.ledger_id
        }
        stored = self._positions.from_message_ids(asked, absent_ok=True)
        return [
            replace(range_, is_start_known=True)
            if (positions := stored.get(range_.topic_partition)) is not None
            and positions.before.ledger_id == range_.start.ledger_id
            and positions.before.position >= range_.start.position
            else range_
            for range_ in ranges
        ]

    # -- the end -----------------------------------------------------------------------

    def acknowledge(self, read: Mapping[str, LastRead]) -> None:
        """Acknowledge on the subscription, if the query has subscribed."""
        if self._name is not None and self._consumers is not None:
            self._consumers.acknowledge(read)

    def close(self) -> None:
        """Close the consumers; delete the subscription if the options say so."""
        consumers, self._consumers = self._consumers, None
        if consumers is None:
            return
        if self._options.delete_subscription_on_stop:
            consumers.delete()
            if self._registrations is not None:
                self._registrations.end()
        else:
            consumers.close()


def _cursors(
    consumers: Subscription, names: list[str]
) -> dict[str, LastRead | PulsarSparkError]:
    """Return the position of the subscription in each topic, where known now."""
    statuses = consumers.visit(dict.fromkeys(names, NOTHING_READ))
    present = {name: status for name, status in statuses.items() if status is not None}
    cursors: dict[str, LastRead | PulsarSparkError] = {
        name: status.cursor for name, status in present.items()
    }
    waiting = {
        name: status.cursor
        for name, status in present.items()
        if _status(status.cursor, status.last).unread is not None
    }
    ahead = consumers.look(waiting)
    for name in waiting:
        if not ahead.get(name):
            # Whatever of it was acknowledged would be read again.
            cursors[name] = AskAgainError(
                f"{name}: the entry at which the subscription {consumers.subscription} "
                "stands did not come, so that it is not known where in it to start."
            )
        elif (index := ahead[name][0].first_index) > 0:
            cursors[name] = LastRead(*ahead[name][0].position, index - 1)
    return cursors


def _status(after: LastRead, last: MessageId | None) -> PartitionStatus[LastRead]:
    if last is None:
        return PartitionStatus(after, None)
    if last.batch_index < 0 and last.position == after.position:
        # A message outside of a batch was read, whatever batch index was named.
        return PartitionStatus(after, after)
    return PartitionStatus(after, LastRead.of(last))


def _next_entries(peeked: Iterable[PeekedEntry]) -> list[NextEntry[LastRead]]:
    return [
        NextEntry(LastRead(*entry.position), entry.size, entry.published_ms)
        for entry in peeked
    ]


def _crosses(unread: Unread[LastRead]) -> bool:
    """Return whether the unread rows begin and end in different ledgers."""
    return unread.after.ledger_id != unread.last.ledger_id


def _end(share: Share[LastRead]) -> LastRead:
    """Return the last entry of a share, as far as entry ids alone tell.

    Entry ids may have gaps, and a ledger may end before that many entries.
    """
    after, last, ahead = share.unread.after, share.unread.last, share.ahead
    whole = LastRead(*last.position)
    if share.entries is None:
        return whole
    if share.entries <= len(ahead):
        end = ahead[share.entries - 1].position
    elif ahead or not _crosses(share.unread):
        ledger_id, entry_id = (ahead[-1].position if ahead else after).position
        end = LastRead(ledger_id, entry_id + share.entries - len(ahead))
    else:
        # Where the next entry is cannot be told. Most often it begins the last ledger;
        # if there are others before that, the micro-batch is larger.
        end = LastRead(last.ledger_id, share.entries - 1)
    return min(end, whole)
