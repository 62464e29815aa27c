# SPDX-License-Identifier: Apache-2.0
"""Spark's writers, over the writes of ``sink.write``.

Spark pickles a writer once for all tasks of a batch query or of a micro-batch, and runs
``commit`` or ``abort`` on another copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_topics.sink.write import BatchWrite, StreamWrite, Task
from spark_topics.spark.plain_errors import PlainErrors

#: Where Spark tells a task of a stream which query and micro-batch it is part of. A
#: batch write inside of ``foreachBatch`` is told, too.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

#: A setting that Spark makes false in the session of a stream, and that is not for
#: users. Also tasks of another thread's write, or of Spark Connect's, are told it.
_IN_STREAMS = "spark.sql.requireAllClusterKeysForDistribution"


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What Spark carries from a task to the driver.

    Attributes:
        result: What the task tells.
    """

    result: Any


class BatchWriter(PlainErrors, DataSourceArrowWriter):
    """Writes the rows of a batch query. To be prepared before Spark gets it.

    Args:
        write: How to write.
        columns: The columns that are written; rows may have others.
    """

    def __init__(self, write: BatchWrite[Any], columns: pa.Schema) -> None:
        self._columns = columns
        self._write = write

    def prepare(self) -> None:
        """Check that the write can be done. On the driver.

        Raises:
            TopicsError: As ``BatchWrite.prepare`` does.
        """
        self._write.prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task. On an executor.

        Raises:
            TopicsError: As ``BatchWrite.run`` does.
        """
        batches = _chosen(iterator, self._columns)
        return TaskCommit(self._write.run(_this_task(), batches))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make what was written visible. On the driver.

        Raises:
            TopicsError: As ``BatchWrite.commit`` does.
        """
        self._write.commit(_results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take back what was not committed of a write that failed. On the driver."""
        self._write.abort(_results(messages))


class MicroBatchWriter(PlainErrors):
    """Writes the rows of a micro-batch. To be prepared before Spark gets it.

    What Spark calls ``write``, and with what, is for its own writers to say.

    Args:
        write: How to write.
        columns: The columns that are written; rows may have others.
    """

    def __init__(self, write: StreamWrite[Any], columns: pa.Schema) -> None:
        self._columns = columns
        self._write = write

    def prepare(self) -> None:
        """Check that the write can be done. On the driver.

        Raises:
            TopicsError: As ``StreamWrite.prepare`` does.
        """
        self._write.prepare()

    def __getstate__(self) -> dict[str, Any]:
        self._begin_micro_batch()
        return self.__dict__

    def _begin_micro_batch(self) -> None:
        """Take the driver's step before a micro-batch, as the tasks get their copy.

        That is when Spark pickles this writer: it asks for nothing else on the driver
        between two micro-batches. It makes other writers to run ``commit`` and
        ``abort``. These are not pickled, and must not abort what they find open. In the
        process that is known to pickle, ``choice.stream_writer`` has taken the step.

        Raises:
            TopicsError: As ``StreamWrite.begin_micro_batch`` does.
        """
        self._write.begin_micro_batch()

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task. On an executor.

        Raises:
            TopicsError: As ``StreamWrite.run`` does.
        """
        chosen = _chosen(batches, self._columns)
        return TaskCommit(self._write.run(_this_task(), chosen))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make what was written visible. On the driver.

        Raises:
            TopicsError: As ``StreamWrite.commit`` does.
        """
        self._write.commit(_results(messages), len(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Take back what was written of a micro-batch that failed. On the driver."""
        self._write.abort(_results(messages), batchId)


def _chosen(
    batches: Iterator[pa.RecordBatch], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows without the columns that are not written."""
    for batch in batches:
        has_more = len(batch.schema.names) > len(columns.names)
        yield batch.select(columns.names) if has_more else batch


def _this_task() -> Task:
    """Return which task runs here."""
    context = TaskContext.get()
    assert context is not None
    batch_id = context.getLocalProperty(_BATCH_ID)
    return Task(
        number=context.partitionId(),
        attempt=context.attemptNumber(),
        batch_id=int(batch_id) if batch_id else 0,
        query_id=context.getLocalProperty(_QUERY_ID) or "",
        lacks_batch_id=not batch_id
        and context.getLocalProperty(_IN_STREAMS) == "false",
    )


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[Any]:
    """Return what the tasks tell that have finished."""
    return [message.result for message in messages if isinstance(message, TaskCommit)]
