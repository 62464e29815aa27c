# SPDX-License-Identifier: Apache-2.0
"""What a streaming query has in a Pulsar cluster, and the planner of the query.

A micro-batch comes by these, in this order::

    pulsar_cluster        the name and the schema in the checkpoint count from now on
    stream_topics         which topics there are, what was read, what is to be read
      query_subscription  the consumers that know it
    entries_ahead         how far the micro-batch goes
    pulsar_cluster        what the next offset keeps
    stream_tasks          what tasks read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import topic_tree
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.stream.checkpoint import SchemaPin, StreamOffset
from pulsar_spark.source.stream.entries_ahead import EntriesAhead
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset, still_where_it_began
from pulsar_spark.source.stream.query_subscription import QuerySubscription
from pulsar_spark.source.stream.stream_schema import StreamSchema
from pulsar_spark.source.stream.stream_starts import stream_starts
from pulsar_spark.source.stream.stream_tasks import stream_tasks
from pulsar_spark.source.stream.stream_topics import StreamTopics
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.checkpoint import Span, batch_spans
from spark_topics.source.stream.cluster import PartitionStatus
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from spark_topics.source.tasks import Tasks


def stream_planner(
    pool: ConnectionPool, options: ReadOptions, schema: StreamSchema | None = None
) -> StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]:
    """Return the planner of a stream.

    Args:
        pool: The cluster's connections.
        options: What to read.
        schema: What values become; None for bytes.
    """
    return _planner(PulsarCluster(pool, options, schema), options)


def first_tasks(pool: ConnectionPool, options: ReadOptions) -> list[ReadTask]:
    """Return what the tasks of the first micro-batch of a new stream would read.

    Limits do not count. The stream leaves nothing in the cluster.

    Raises:
        PulsarSparkError: As the stream would.
    """
    options = replace(options, delete_subscription_on_stop=False)
    cluster = PulsarCluster(pool, options, None)
    planner = _planner(cluster, options)
    try:
        start = planner.initial()
        end = planner.latest(start, unlimited=True)
        # The planner itself would subscribe, for an end that Spark has recorded.
        return list(cluster.ranges(batch_spans(start, end, NOTHING_READ)))
    finally:
        planner.stop()


def _planner(cluster: PulsarCluster, options: ReadOptions) -> _PulsarPlanner:
    topics = TopicSet(
        cluster.topics,
        discovery_interval_s=options.partition_discovery_interval_s,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    age_interval_s = options.lag_age_interval_s or None
    ends = BatchEnds(cluster.entries, stream_limits(options), age_interval_s)
    return _PulsarPlanner(cluster, topics, ends)


class _PulsarPlanner(StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]):
    """Adds segments of scalable topics, and what open transactions hold back."""

    _cluster: PulsarCluster

    def note(self, start: StreamOffset[LastRead]) -> str:
        """Name the subscription that keeps unread rows."""
        if not self._cluster.acknowledges:
            return ""
        return f"subscription {self._cluster.subscription_after(start)}"

    def latest(
        self,
        start: StreamOffset[LastRead],
        *,
        unlimited: bool = False,
        is_committed: bool = True,
    ) -> StreamOffset[LastRead]:
        """Look for new segments each time, see `StreamPlanner`."""
        segments = self._cluster.topics.segments
        segments.drained = start.drained
        if segments.layouts:
            self._topics.discover_soon()
        return super().latest(start, unlimited=unlimited, is_committed=is_committed)

    def _note_ends(
        self,
        start: StreamOffset[LastRead],
        last_read: Mapping[str, LastRead],
        statuses: Mapping[str, PartitionStatus[LastRead]],
    ) -> bool:
        topics = self._cluster.topics
        topics.check_ends(chain(start.last_read, start.kept, statuses))
        topics.segments.check_unseen(chain(start.last_read, start.kept))
        topics.stream_ends.check_begins(
            {
                name: status.after
                for name, status in statuses.items()
                if start.position(name) is None
            }
        )
        topics.drain(last_read, statuses)
        # Also a segment that the broker has deleted: after a restart nothing would tell
        # that the query had read all of it.
        drained = topics.segments.drained & last_read.keys()
        return drained != start.drained & last_read.keys()

    def fix_target(self) -> None:
        """Limit the stream to the rows stored now, see `StreamPlanner`."""
        self._cluster.topics.held_rows.is_last_run = True
        super().fix_target()

    def progress(self) -> dict[str, Any] | None:
        """Add ``heldBack``: the last stored entry where rows are held back."""
        progress = super().progress()
        stored = self._cluster.topics.held_rows.stored
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
    """What a streaming query has in a Pulsar cluster, see ``cluster.Cluster``.

    Args:
        pool: The cluster's connections.
        options: What to read.
        schema: What values become; None for bytes.

    Attributes:
        topics: The query's topic partitions.
        entries: What the query has yet to read.
    """

    tree = staticmethod(topic_tree)
    read_offset = staticmethod(read_offset)

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        schema: StreamSchema | None,
    ) -> None:
        self._pool = pool
        self._options = options
        self._schema = schema
        self._subscription = QuerySubscription(pool, options)
        self.topics = StreamTopics(pool, options, schema, self._subscription)
        self.entries = EntriesAhead(
            self._subscription,
            self.topics.positions,
            self.topics.stream_ends,
            read_compacted=options.read_compacted,
        )

    @property
    def acknowledges(self) -> bool:
        """Return whether a subscription in the cluster follows the query."""
        return self._options.ack_on_commit

    def subscription_after(self, start: StreamOffset[LastRead]) -> str:
        """Return the name of the subscription of a query that begins at an offset."""
        return self._subscription.name_after(start)

    def starts(self) -> dict[str, LastRead]:
        """Return where a new query starts: by the options, or by the subscription."""
        return stream_starts(self._pool, self._options, self._subscription)

    def recorded(self, offset: StreamOffset[LastRead]) -> bool:
        """Learn the schema, the segments that may be gone, and the subscription."""
        self.topics.segments.drained = offset.drained
        if self._schema is not None:
            self._schema.go_on(offset.schema)
        return self._subscription.recorded(offset, self.topics.is_wanted)

    def next_offset(
        self,
        start: StreamOffset[LastRead] | None,
        last_read: Mapping[str, LastRead],
        start_after: Mapping[str, LastRead],
        kept: Mapping[str, LastRead],
    ) -> StreamOffset[LastRead]:
        """Add the subscription's name, topics with chunks, and first positions."""
        if start is None:
            name = self._subscription.begin()
            if self._schema is not None:
                self._schema.begin()
            begin = StreamOffset(name, last_read, start_after, schema=self._pin)
            return self._subscription.signed(begin, None)
        segments = self.topics.segments
        last_read = {
            n: last for n, last in last_read.items() if not segments.is_over(n)
        }
        end = StreamOffset(
            start.subscription,
            last_read,
            start_after,
            self._subscription.chunked,
            still_where_it_began(start, {**last_read, **kept}, start_after),
            self._pin,
            kept,
            drained=segments.drained & (last_read.keys() | kept.keys()),
        )
        return self._subscription.signed(end, start)

    @property
    def _pin(self) -> SchemaPin | None:
        return None if self._schema is None else self._schema.pin

    def ranges(self, spans: Sequence[Span[LastRead]]) -> Sequence[ReadTask]:
        """Return ranges of message ids, divided as the options say."""
        tasks = stream_tasks(
            self._pool,
            self._options,
            self.topics.positions,
            spans,
            self.topics.unprotected,
        )
        if self._schema is None:
            return tasks
        schema = self._schema.schema
        return Tasks(lambda task: task.with_schema(schema), tasks)

    def acknowledge(self, read: Mapping[str, LastRead]) -> None:
        """Acknowledge on the subscription, if the query has subscribed."""
        self._subscription.acknowledge(read)

    def close(self) -> None:
        """Close the consumers; delete the subscription if the options say so."""
        self._subscription.close()
