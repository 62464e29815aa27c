# SPDX-License-Identifier: Apache-2.0
"""Writes: the driver's steps before and after the tasks, and a task's work."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_topics.sink.write import Task
from spark_topics.statistics import log_summary
from ydb_spark.client.channel import Channel, shared_channel
from ydb_spark.client.topics import describe_topic
from ydb_spark.errors import OptionError
from ydb_spark.options.write import DeliveryGuarantee, WriteOptions
from ydb_spark.sink.places import (
    require_codec,
    require_fixed_size,
    require_one_topic,
)
from ydb_spark.sink.task import TaskWriter, WriteSummary
from ydb_spark.system import SYSTEM


@dataclass(frozen=True)
class TaskResult:
    """A task's report to the driver after writing its rows.

    Attributes:
        task: Which one.
        written: The rows and bytes written.
    """

    task: Task
    written: WriteSummary


class _Write:
    """What writes of both kinds do. Travels to tasks by pickle.

    Args:
        options: How to write.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def prepare(self) -> None:
        """Check that the write can be done. On the driver.

        Raises:
            YdbError: There is no such topic, or it does not take what is to be written.
        """
        options = self._options
        topic = describe_topic(self._channel(), options.topic, with_offsets=False)
        require_codec(topic.codecs, options)
        require_fixed_size(topic, options)

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows of a task. On an executor.

        Raises:
            YdbError: As ``sink.task.TaskWriter.write``.
        """
        writer = TaskWriter(
            self._channel,
            self._options,
            task.number,
            batch_id=task.batch_id,
            id_=self._identity(task) if self._is_idempotent else None,
        )
        return TaskResult(task, writer.write(batches))

    @property
    def _is_idempotent(self) -> bool:
        return self._options.guarantee is DeliveryGuarantee.IDEMPOTENT

    def _identity(self, task: Task) -> str:
        """Return what begins the names of this write's producers."""
        raise NotImplementedError

    def _channel(self) -> Channel:
        return shared_channel(self._options.connection)

    def _end(self, what: str, results: Sequence[TaskResult]) -> None:
        """Log the totals, and check that all rows are in the same topic.

        Raises:
            DataLossError: The topic was dropped and made again between two tasks.
        """
        self._log(what, results)
        skipped = sum(r.written.skipped for r in results if not r.task.attempt)
        if skipped:
            SYSTEM.logger("sink").warning(
                "First attempts of the tasks of %s skipped %d rows, whose numbers the"
                " server had. That is right if just these rows were written before, by"
                " a run that was cut off or by an earlier attempt of the stage. If not,"
                " they were taken for others and are not in %s: use each idempotenceId"
                " for one job, and end the id with the number of the micro-batch in"
                " foreachBatch.",
                what,
                skipped,
                self._options.topic,
            )
        created = {result.written.created for result in results}
        require_one_topic(self._options.topic, created)

    def _log(self, what: str, results: Sequence[TaskResult]) -> None:
        written = [result.written for result in results]
        quota_s = sum(w.quota_wait_s for w in written)
        log_summary(
            SYSTEM.logger("spark"),
            f"{what}: {sum(w.rows for w in written)} rows,"
            f" {sum(w.size_bytes for w in written)} bytes by {len(written)} tasks:"
            f" {sum(w.written for w in written)} written,"
            f" {sum(w.skipped for w in written)} skipped,"
            f" {sum(w.written_in_tx for w in written)} written in a transaction;"
            f" quotas held them back for {quota_s:.1f} s",
            self._options.stats_interval_s,
        )


class BatchWrite(_Write):
    """The write of a batch query: tasks may be repeated, the write may not.

    Args:
        options: How to write.
    """

    def __init__(self, options: WriteOptions) -> None:
        made_up = f"spark-{uuid.uuid4()}"
        id_ = options.idempotence_id
        # Of another run of the same job nothing is told but by the one who names it.
        super().__init__(replace(options, idempotence_id=id_ or made_up))
        self._given_id = id_

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows of a task. On an executor.

        Raises:
            OptionError: The write would be taken for that of another micro-batch.
            YdbError: As ``sink.task.TaskWriter.write``.
        """
        problem = task.mistakable(self._given_id)
        if self._is_idempotent and problem:
            raise OptionError(problem)
        return super().run(task, batches)

    def commit(self, results: Sequence[TaskResult]) -> None:
        """Say what was written. On the driver.

        Raises:
            DataLossError: The topic was dropped and made again between two tasks.
        """
        self._end("write", results)

    def abort(self, results: Sequence[TaskResult]) -> None:
        """Log the rows of a failed write, which stay stored. On the driver."""
        self._log("failed write", results)

    def _identity(self, task: Task) -> str:
        assert self._options.idempotence_id is not None
        return self._options.idempotence_id


class StreamWrite(_Write):
    """The write of a micro-batch.

    Args:
        options: How to write.
    """

    def begin_micro_batch(self) -> None:
        """Do nothing: written rows are visible at once."""

    def commit(self, results: Sequence[TaskResult], tasks: int, batch_id: int) -> None:
        """Say what was written. On the driver.

        Raises:
            DataLossError: The topic was dropped and made again between two tasks.
        """
        self._end(f"micro-batch {batch_id}", results)

    def abort(self, results: Sequence[TaskResult], batch_id: int) -> None:
        """Say what was written of a micro-batch that failed. On the driver."""
        self._log(f"failed micro-batch {batch_id}", results)

    def _identity(self, task: Task) -> str:
        # A new checkpoint counts its micro-batches from 0 again, and is a new query. So
        # under an id that was used before, nothing of it is taken for what is there.
        chosen = self._options.idempotence_id
        return task.query_id if chosen is None else f"{chosen}-{task.query_id}"
