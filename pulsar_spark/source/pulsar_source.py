# SPDX-License-Identifier: Apache-2.0
"""What Spark's readers ask of a source, answered by Pulsar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.discovery import at_one_cluster
from pulsar_spark.source.plan.pruning import Pruning
from pulsar_spark.source.plan.read_task import ReadTask, topics_of
from pulsar_spark.system import log_summary

# A process of Spark plans batches, plans a stream, or reads: what it needs for one of
# these it imports then, because each query waits for several new processes.
if TYPE_CHECKING:
    from pulsar_spark.source.plan.query_schema import QuerySchema
    from pulsar_spark.source.stream.checkpoint import StreamOffset
    from pulsar_spark.source.stream.last_read import LastRead
    from spark_topics.source.stream.batch_ends import StreamLimits
    from spark_topics.source.stream.planner import StreamPlanner


def load_schema(options: ReadOptions) -> QuerySchema:
    """Return the schema of the topics, of the first cluster that answers.

    Raises:
        PulsarSparkError: As ``source.query_schema.find_schema`` does.
    """
    from pulsar_spark.source.plan.query_schema import find_schema

    chosen = at_one_cluster(options)
    schema = find_schema(shared_pool(chosen.client), chosen)
    if chosen is options:
        return schema
    return replace(schema, service_url=chosen.client.service_url)


@dataclass(frozen=True)
class PulsarSource:
    """The source of a query, over the shared connections of the process.

    See ``source.Source``.

    Attributes:
        options: What to read, and how.
        columns: The query's columns; None for those of the value as bytes.
        found: The schema of the topics when the query was loaded, whose columns these
            are; None where the user chose them.
    """

    options: ReadOptions
    columns: pa.Schema | None = None
    found: QuerySchema | None = None

    @property
    def limits(self) -> StreamLimits:
        """Return the limits of micro-batches, as the options say."""
        from pulsar_spark.source.stream.pulsar_cluster import stream_limits

        return stream_limits(self.options)

    @property
    def must_stop(self) -> bool:
        """Return whether a subscription is to be deleted."""
        return self.options.delete_subscription_on_stop

    def plan(self, pruning: Pruning | None = None) -> list[ReadTask]:
        """Return what each task reads; together, all rows that are not pruned.

        All tasks read from the first cluster that answers.
        """
        chosen = at_one_cluster(self.options)
        pool = shared_pool(chosen.client)
        if chosen is self.options:
            return self._told(self._plan(pool, pruning, self.found))
        # Each cluster numbers its own versions. Of a schema from another cluster only
        # the columns count, as if the user had chosen them.
        url = chosen.client.service_url
        is_same = self.found is not None and self.found.service_url == url
        tasks = self._plan(pool, pruning, self.found if is_same else None)
        return self._told([replace(task, service_url=url) for task in tasks])

    def _told(self, tasks: list[ReadTask]) -> list[ReadTask]:
        from pulsar_spark.source.plan.summary import summary_of

        log_summary(summary_of(tasks), self.options.client.stats_interval_s)
        return tasks

    def _plan(
        self,
        pool: ConnectionPool,
        pruning: Pruning | None,
        found: QuerySchema | None,
    ) -> list[ReadTask]:
        from pulsar_spark.source.plan.batch_plan import plan_batch

        tasks = plan_batch(pool, self.options, pruning)
        if self.columns is None:
            return tasks
        from pulsar_spark.source.plan.query_schema import (
            reader_schema,
            settled_schema,
            with_later_topics,
        )

        # What is wrong with the topics themselves is said before.
        schema = settled_schema(pool, self.options, found)
        if found is not None:
            topics = topics_of(tasks)
            schema = with_later_topics(pool, self.options, schema, topics)
        schema = reader_schema(
            schema, self.columns, self.options, is_given=found is None
        )
        return [task.with_schema(schema) for task in tasks]

    def plan_stream(self) -> StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]:
        """Return the planner of a stream."""
        from pulsar_spark.source.stream.pulsar_cluster import stream_planner

        pool = shared_pool(self.options.client)
        if self.columns is None:
            return stream_planner(pool, self.options)
        from pulsar_spark.source.stream.stream_schema import StreamSchema

        schema = StreamSchema(pool, self.options, self.columns, self.found)
        return stream_planner(pool, self.options, schema)

    def read(
        self, task: ReadTask | None, schema: pa.Schema, *, streaming: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; the subscription of a stream keeps unread rows."""
        from pulsar_spark.source.read.task import read_task

        options = self.options
        if task is not None and task.service_url is not None:
            client = replace(options.client, service_url=task.service_url)
            options = replace(options, client=client)
        is_protected = streaming and options.ack_on_commit
        return read_task(task, options, schema, is_protected=is_protected)
