# SPDX-License-Identifier: Apache-2.0
"""Writes, from checks to commit. What Spark calls, without Spark.

The driver makes a write and prepares it. Each task gets a copy and runs its rows. The
driver commits, or aborts, by another copy, which may be in another process: a write
holds its options and what was found out, and no connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pulsar_spark.client.requests import together
from pulsar_spark.errors import OptionError
from pulsar_spark.options import WriteOptions
from pulsar_spark.sink.base_write import BYTES, TaskResult
from pulsar_spark.sink.batch_commit import BatchCommit
from pulsar_spark.sink.commit_log import Part
from pulsar_spark.sink.exactly_once import markers_topic
from pulsar_spark.sink.logged_write import LoggedWrite, transactions_of
from spark_topics.sink.write import Task


class BatchWrite(LoggedWrite):
    """The write of a batch query.

    Args:
        options: How to write.
        columns: The columns of the rows.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = BYTES) -> None:
        super().__init__(options, columns)
        self._is_repeatable = options.idempotence_id is not None
        if options.idempotence_id is None:
            made_up = f"spark-pulsar-{uuid.uuid4()}"
            self._options = replace(options, idempotence_id=made_up)

    @property
    def _has_log(self) -> bool:
        # Which is so where a scalable topic has idempotent rows.
        return self._is_transactional and self._is_repeatable

    def _query_id(self, task: Task) -> str:
        # The id alone tells writes apart, also in ``foreachBatch``.
        return self._options.idempotence_id or ""

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows of a task. On an executor.

        Raises:
            OptionError: The write would be taken for that of another micro-batch.
            PulsarSparkError: As ``sink.task.TaskWriter.write`` does.
        """
        problem = task.mistakable(self._options.idempotence_id)
        if self._is_repeatable and problem:
            raise OptionError(problem)
        return super().run(task, batches)

    def prepare(self) -> None:
        """Check that the write can be done. Errors as for writes of both kinds."""
        super().prepare()
        if self._has_log:
            self._recover()
        elif self._is_transactional:
            self._prepare_for_transactions()
        self._note_brokers()

    def commit(self, results: Sequence[TaskResult]) -> None:
        """Make what was written visible. On the driver.

        Raises:
            PulsarSparkError: As ``sink.batch_commit.BatchCommit.commit`` does, or
                ``sink.exactly_once.CommitProtocol.commit``.
        """
        if self._has_log:
            batch_id = max((result.task.batch_id for result in results), default=0)
            self._commit(results, len(results), batch_id)
        else:
            self._batch_commit().commit(
                {
                    result.task.number: Part(result.txn, result.written.entries)
                    for result in results
                    if result.txn is not None
                }
            )
        self._log_summary("write", results)

    def abort(self, results: Sequence[TaskResult]) -> None:
        """Take back what was not committed of a write that failed. On the driver."""
        self._log_summary("failed write", results)
        if self._has_log:
            self._abort(results, "the write")
        else:
            self._batch_commit().abort(transactions_of(results).values())

    def _batch_commit(self) -> BatchCommit:
        return BatchCommit(self._pool, self._options.transaction_timeout_ms)


class StreamWrite(LoggedWrite):
    """The write of a micro-batch.

    Args:
        options: How to write.
        columns: The columns of the rows.

    Raises:
        OptionError: An exactly-once stream has no topic for its log of commits, or only
            the one that its rows go to.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = BYTES) -> None:
        super().__init__(options, columns)
        if self._is_transactional:
            self._check_log()

    @property
    def _has_log(self) -> bool:
        return self._is_transactional

    def _query_id(self, task: Task) -> str:
        return task.query_id

    def _check_log(self) -> None:
        options = self._options
        if options.topic is None and options.commit_topic is None:
            raise OptionError(
                "An exactly-once stream whose rows name their topics needs "
                "commitTopic, the full name of a topic for its log of commits: "
                "without the option topic there is none to put it beside."
            )
        if options.topic is None:
            return
        log = self._log_topic
        if options.topic.base.full_name in self._topics_of_log:
            raise OptionError(
                f"Rows cannot go to {options.topic.base.full_name}: it is where this "
                f"stream keeps its log of commits, {log}, or the markers beside it. "
                "Let commitTopic name another one."
            )

    def prepare(self) -> None:
        """Check that the write can be done. Errors as for writes of both kinds.

        Raises:
            OptionError: Nothing identifies an idempotent stream to a scalable topic.
        """
        super().prepare()
        if self._has_log and not self._log_id:
            raise OptionError(
                f"{self._options.topic} is a scalable topic: an idempotent stream to "
                "such a topic needs idempotenceId, or"
                ' .option("checkpointLocation", ...) on the stream itself: a restart '
                "finds its log of commits by it."
            )

    def begin_micro_batch(self) -> None:
        """Carry out an earlier driver's decision, and abort undecided transactions.

        This is the driver's step 3 of ``sink.exactly_once``. It is for the copy that
        goes to the tasks, before they get it; again it does nothing.

        Raises:
            PulsarSparkError: As ``sink.exactly_once.CommitProtocol.recover`` does.
        """
        if self._has_log and self._progress is None:
            is_done: Future[bool] = Future()
            together(
                partial(self._recover, is_done),
                # Not before: that has brokers drop what a commit has left out.
                partial(self._prepare_topics, is_done.result),
            )
            self._note_brokers()

    def _prepare_topics(self, may_begin: Callable[[], bool]) -> None:
        self._prepare_for_transactions(
            markers_topic(self._log_topic), may_begin=may_begin
        )

    def commit(self, results: Sequence[TaskResult], tasks: int, batch_id: int) -> None:
        """Make what was written visible. On the driver.

        Args:
            results: What the tasks tell.
            tasks: How many there were.
            batch_id: The micro-batch.

        Raises:
            PulsarSparkError: As ``sink.exactly_once.CommitProtocol.commit`` does.
        """
        # The results tell of a log: what commits has not looked the topic up.
        if any(result.progress is not None for result in results):
            self._commit(results, tasks, batch_id)
        self._log_summary(f"micro-batch {batch_id}", results)

    def abort(self, results: Sequence[TaskResult], batch_id: int) -> None:
        """Take back what was written of a micro-batch that failed. On the driver.

        As far as that is possible now: the next run ends what stays open.
        """
        self._log_summary(f"failed micro-batch {batch_id}", results)
        tells_of_log = any(result.progress is not None for result in results)
        if self._has_log or tells_of_log:
            self._abort(results, f"micro-batch {batch_id}")

    def _identity(self, task: Task) -> str:
        # A new checkpoint counts its micro-batches from 0 again, and is a new query. So
        # under an id that was used before, nothing of it is taken for what is there.
        chosen = self._options.idempotence_id
        return task.query_id if chosen is None else f"{chosen}-{task.query_id}"
