# SPDX-License-Identifier: Apache-2.0
"""TubeMQ's topics for Spark's readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask

# A process of Spark plans batches, plans a stream, or reads.
if TYPE_CHECKING:
    from spark_topics.source.stream.batch_ends import StreamLimits
    from spark_topics.source.stream.planner import StreamPlanner
    from tubemq_spark.source.stream import Position, TubeMQOffset


@dataclass(frozen=True)
class TubeMQSource:
    """What a query reads. See `spark_topics.source.source.Source`.

    Attributes:
        options: What to read, and how.
    """

    options: ReadOptions

    @property
    def limits(self) -> StreamLimits:
        """Return how large micro-batches are."""
        from tubemq_spark.source.stream import stream_limits

        return stream_limits(self.options)

    @property
    def must_stop(self) -> bool:
        """Return False: a query leaves nothing to delete."""
        return False

    def plan(self) -> Sequence[ReadTask]:
        """Return what each task reads."""
        from tubemq_spark.client.brokers import shared_pool
        from tubemq_spark.source.batch_plan import plan_batch

        return plan_batch(shared_pool(self.options.client), self.options)

    def plan_stream(self) -> StreamPlanner[Position, TubeMQOffset, ReadTask]:
        """Return the planner of a stream."""
        from tubemq_spark.client.brokers import shared_pool
        from tubemq_spark.source.stream import stream_planner

        return stream_planner(shared_pool(self.options.client), self.options)

    def read(
        self, task: ReadTask | None, schema: pa.Schema, *, streaming: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        from tubemq_spark.source.task import read_task

        return read_task(task, self.options, schema)
