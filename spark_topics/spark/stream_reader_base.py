# SPDX-License-Identifier: Apache-2.0
"""Streams: the driver plans micro-batches, executors read their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_topics.errors import TopicsError
from spark_topics.process import Termination, planning
from spark_topics.source.source import Source
from spark_topics.source.tasks import Tasks
from spark_topics.spark.plain_errors import PlainErrors
from spark_topics.spark.reader import TaskPartition

if TYPE_CHECKING:
    from spark_topics.source.stream.planner import StreamPlanner


class StreamReaderBase(PlainErrors, DataSourceStreamReader):
    """The base of stream readers for all releases of Spark.

    Spark makes one on the driver, which it asks for offsets for as long as the query
    runs, and others only to send their ``read`` to executors.

    Args:
        source: What to read.
        schema: The columns wanted.
    """

    def __init__(self, source: Source[Any], schema: pa.Schema) -> None:
        self._schema = schema
        self._source = source
        self._planner: StreamPlanner[Any, Any, Any] | None = None
        self._termination = Termination()

    # Offsets are dicts, see ``source.stream.checkpoint``; errors are those of
    # the methods of StreamPlanner that are called.

    @planning()
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts."""
        offset: dict[str, Any] = self._plan().initial().to_json()
        return offset

    @planning()
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return an input partition for each task of the micro-batch."""
        planner = self._plan()
        tasks = planner.ranges(planner.offset(start), planner.offset(end))
        return Tasks(TaskPartition, tasks)

    @planning()
    def commit(self, end: Mapping[str, Any]) -> None:
        """Acknowledge what Spark has committed."""
        planner = self._plan()
        planner.commit(planner.offset(end))

    def stop(self) -> None:
        """Let go of the cluster."""
        if self._planner is not None:
            self._termination.stop(self._planner.stop)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input partition, in order. On an executor.

        Raises:
            TopicsError: As ``Source.read`` does.
        """
        return self._source.read(partition.value, self._schema, streaming=True)

    def _plan(self) -> StreamPlanner[Any, Any, Any]:
        if self._planner is None:
            self._planner = self._source.plan_stream()
            if self._source.must_stop:
                self._termination.expect()
        return self._planner


class FailedStreamReader(PlainErrors, DataSourceStreamReader):
    """Raises why there is no reader, whatever Spark asks for first.

    Args:
        error: Why.
    """

    def __init__(self, error: TopicsError) -> None:
        self._error = error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = _fail
    partitions = commit = read = _fail
