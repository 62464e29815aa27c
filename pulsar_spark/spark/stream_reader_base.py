# SPDX-License-Identifier: Apache-2.0
"""Streams: the driver plans micro-batches, executors read their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.options import ReadOptions
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.source.read_task import ReadTask
from pulsar_spark.spark.reader import PulsarInputPartition
from pulsar_spark.spark.schema import checked_arrow_schema
from spark_topics.process import Termination
from spark_topics.source.source import Source

if TYPE_CHECKING:
    from pulsar_spark.source.query_schema import QuerySchema
    from spark_topics.source.stream.planner import StreamPlanner


class StreamReaderBase(DataSourceStreamReader):
    """What all of Spark's releases ask of a stream, but for how far it goes.

    Spark makes one on the driver, which it asks for offsets for as long as the query
    runs, and others only to send their ``read`` to executors.

    Args:
        options: What to read.
        schema: The columns wanted.
        found: The schema of the topics that these are the columns of; None where the
            user chose them.

    Raises:
        SchemaError: No topic has such columns.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        found: QuerySchema | None = None,
    ) -> None:
        self._schema = checked_arrow_schema(schema, options)
        self._source: Source[ReadTask] = PulsarSource(options, self._schema, found)
        self._planner: StreamPlanner[Any, Any, ReadTask] | None = None
        self._termination = Termination()

    # Offsets are dicts, see ``source.stream.checkpoint``; errors are those of
    # the methods of StreamPlanner that are called.

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts."""
        offset: dict[str, Any] = self._plan().initial().to_json()
        return offset

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        """Return one input partition for each topic partition that has rows.

        Or more, with ``minPartitions`` or ``maxRecordsPerPartition``, or fewer, with
        ``maxPartitions``.
        """
        planner = self._plan()
        tasks = planner.ranges(planner.offset(start), planner.offset(end))
        return [PulsarInputPartition(task) for task in tasks]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Acknowledge what Spark has committed."""
        planner = self._plan()
        planner.commit(planner.offset(end))

    def stop(self) -> None:
        """Let go of the brokers."""
        if self._planner is not None:
            self._planner.stop()
        self._termination.complete()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one input partition, in order. On an executor.

        Raises:
            PulsarSparkError: As ``source.range_reader.RangeReader.entries`` does.
        """
        return self._source.read(partition.value, self._schema, streaming=True)

    def _plan(self) -> StreamPlanner[Any, Any, ReadTask]:
        if self._planner is None:
            self._planner = self._source.plan_stream()
            if self._source.must_stop:
                self._termination.expect()
        return self._planner
