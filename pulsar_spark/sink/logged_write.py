# SPDX-License-Identifier: Apache-2.0
"""Writes whose commits are kept in a log, see ``sink.exactly_once``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa

from pulsar_spark.arrow.row_digests import HAS_DIGESTS, digest_of
from pulsar_spark.client.requests import together
from pulsar_spark.client.segment_tail import last_stored_ids
from pulsar_spark.client.transactions import coordinator_topics
from pulsar_spark.errors import (
    BadRowError,
    IdempotenceError,
    PulsarSparkError,
    QueryConflictError,
    ScalableTopicError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import WriteOptions
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink.base_write import BaseWrite, TaskResult
from pulsar_spark.sink.exactly_once import (
    CommitProgress,
    CommitProtocol,
    marker,
    markers_topic,
)
from pulsar_spark.sink.journal import Journal
from pulsar_spark.sink.numbering import last_micro_batches
from pulsar_spark.sink.tally import NO_ROWS, Tally
from pulsar_spark.sink.task import WriteSummary
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.topics import COMMIT_LOG_PREFIX, topic_of
from spark_topics.sink.write import Task

logger = logging.getLogger("pulsar_spark.sink")

#: Said where a log of commits changes hands.
_OTHER_QUERY = (
    "The log of commits %s was used by the query %s, and is used by the query %s now."
    " That is so after a new checkpoint. Two queries that are both in use need an"
    " `idempotenceId` each: under the same one each ends what the other has begun."
)

#: What to do where old partitions have rows of a micro-batch, or cannot be read.
_WITHOUT_LOOK = (
    "`deliveryGuarantee=exactly-once` (in a batch write without `idempotenceId`) does "
    "not look at the partitions from before the migration: all rows are written then, "
    "also those that are there."
)


class LoggedWrite(BaseWrite):
    """A write whose commits may be kept in a log: see ``sink.exactly_once``.

    Args:
        options: How to write.
        columns: The columns of the rows.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema) -> None:
        super().__init__(options, columns)
        self._progress: CommitProgress | None = None
        # The last micro-batch of each idempotent write before the topic was migrated,
        # by its id; None where that was not looked up.
        self._before: dict[str, int] | None = None

    @property
    def _has_log(self) -> bool:
        """Return whether the write keeps a log of its commits."""
        raise NotImplementedError

    def _query_id(self, task: Task) -> str:
        """Return whose micro-batches the log counts."""
        raise NotImplementedError

    def _recover(self, is_done: Future[bool] | None = None) -> None:
        """Carry out an earlier driver's decision, and abort undecided transactions.

        Args:
            is_done: Set to whether that decision is carried out, once there is none.
        """
        set_done = partial(_set, is_done or Future())
        try:
            protocol = self._protocol(self._pool.write_patience_s)
            self._progress = protocol.recover(partial(set_done, value=True))
        finally:
            set_done(value=False)
        is_new = not self._progress.query_id
        if is_new and self._is_idempotent and self._migrated:
            self._before = self._find_before()

    def _find_before(self) -> dict[str, int]:
        """Read who wrote to the topic before a migration.

        Raises:
            PulsarSparkError: The old partitions cannot be read, or not in time.
        """
        try:
            return last_micro_batches(last_stored_ids(self._pool, self._migrated))
        except PulsarSparkError as error:
            raise error.saying(f"{error.message} {_WITHOUT_LOOK}") from None

    def _require_none_before(self, task: Task, progress: CommitProgress) -> None:
        """Check that no row of a micro-batch was stored before a migration.

        Raises:
            ScalableTopicError: Some may have been.
        """
        if not (self._is_idempotent and self._migrated):
            return
        if progress.committed >= 0 or progress.partial >= 0:
            return  # the log knows the query
        if self._before is None:
            # The log is of other queries, as after a new checkpoint.
            self._before = self._find_before() if task.batch_id > 0 else {}
        # A stream was known by its query alone before it had an `idempotenceId`.
        names = {self._identity(task) or "", task.query_id}
        last = max(self._before.get(name, -1) for name in names)
        if task.batch_id <= last:
            topic = self._options.topic
            assert topic is not None
            raise ScalableTopicError(
                topic.full_name,
                topic.scalable_name,
                f"The topic {topic.common_name} was migrated to a scalable one, and "
                f"had rows of micro-batch {task.batch_id} of this write before: to "
                f"write them now would store them twice. {_WITHOUT_LOOK}",
            )

    def _commit(self, results: Sequence[TaskResult], tasks: int, batch_id: int) -> None:
        progresses = {result.progress for result in results}
        if not progresses:  # there are no tasks
            return
        (progress,) = progresses
        assert progress is not None
        rows = {result.task.number: result.tally for result in results}
        with self._conflicts():
            # Also where every task took its rows for visible, and so wrote none.
            progress.require_same_cut(batch_id, tasks)
            progress.require_same_rows(batch_id, sum(rows.values(), NO_ROWS))
        if progress.before:
            logger.warning(
                _OTHER_QUERY, *(self._log_topic, progress.before), progress.query_id
            )
        if txns := transactions_of(results):
            protocol = self._protocol(self._pool.write_patience_s)
            written = {
                result.task.number: result.written.entries
                for result in results
                if result.txn is not None
            }
            protocol.commit(batch_id, txns, progress, tasks, rows, written)

    def _abort(self, results: Sequence[TaskResult], what: str) -> None:
        """Abort what is undecided, as far as that is possible now.

        Args:
            results: What some of the tasks tell.
            what: What failed, for a warning.
        """
        progresses = (result.progress for result in results)
        try:
            self._protocol().abort(next(progresses, None))
        except PulsarSparkError as error:
            # Raising here would hide why the write failed.
            logger.warning("Could not abort the writes of %s yet: %s", what, error)

    @contextlib.contextmanager
    def _conflicts(self) -> Iterator[None]:
        """Say of other rows what an idempotent write says of such."""
        try:
            yield
        except QueryConflictError as error:
            if not self._is_idempotent or error.batch_ids is None:
                raise
            options = self._options
            assert options.topic is not None
            raise IdempotenceError(
                self._log_id, options.topic.full_name, error.batch_ids
            ) from None

    def _checks_of_topics(self) -> Callable[[list[str], SchemaInfo | None], None]:
        """Return a check of topics named by rows, which the driver cannot know."""
        if not self._has_log:
            return super()._checks_of_topics()
        own = set(self._topics_of_log)

        def check(topics: list[str], schema: SchemaInfo | None) -> None:
            for topic in topics:
                if own & {topic, topic_of(topic)}:
                    raise BadRowError(
                        f"`__topic` of a row names {topic}, where this stream keeps "
                        f"its log of commits, {self._log_topic}, or the markers beside "
                        "it. Leave such rows out, or let commitTopic name another one."
                    )

        return check

    def _run_in_transaction(
        self, task: Task, batches: Iterator[pa.RecordBatch]
    ) -> TaskResult:
        if not self._has_log:
            return super()._run_in_transaction(task, batches)
        assert self._progress is not None
        progress = self._progress.of(self._query_id(task))
        self._require_none_before(task, progress)
        tallied = _Tallied(batches)
        with self._conflicts():
            if progress.has(task.batch_id, task.number):
                rows = sum(batch.num_rows for batch in tallied)
                progress.require_same_part(task.batch_id, task.number, tallied.tally)
                done = self._result(task, WriteSummary(duplicate_rows=rows))
            else:
                done = super()._run_in_transaction(task, iter(tallied))
        return replace(done, progress=progress.without_parts(), tally=tallied.tally)

    def _begin(
        self, task: Task, stack: contextlib.ExitStack, *, is_scalable: bool
    ) -> tuple[TaskTransaction, Callable[[], None] | None]:
        if not self._has_log:
            return super()._begin(task, stack, is_scalable=is_scalable)
        assert self._progress is not None
        term = self._progress.term
        log = stack.enter_context(Journal(self._pool, self._log_topic))
        _, transaction = together(
            log.attach_writer, partial(self._new_transaction, is_scalable=is_scalable)
        )
        assert transaction is not None

        def announce() -> None:
            transaction.announce(log, task.batch_id, task.number, term)
            log.release()

        return transaction, announce

    def _marker(self, task: Task) -> tuple[str, bytes] | None:
        if not self._has_log:
            return super()._marker(task)
        proof = marker(self._query_id(task), task.batch_id, task.number)
        return markers_topic(self._log_topic), proof

    def _protocol(self, patience_s: float | None = None) -> CommitProtocol:
        return CommitProtocol(
            self._pool,
            self._log_topic,
            patience_s=patience_s,
            has_markers=not self._is_scalable,
        )

    @property
    def _topics_of_log(self) -> list[str]:
        """Return the log of commits and its markers; none where there is no log."""
        if not self._has_log:
            return []
        return [self._log_topic, markers_topic(self._log_topic)]

    def _note_brokers(self) -> None:
        """Keep the brokers that tasks and the commit need not look up again."""
        names = [*coordinator_topics(self._coordinators), *self._topics_of_log]
        names += chain.from_iterable(self._targets.values())
        self._brokers = self._pool.likely_brokers(names)

    @property
    def _log_id(self) -> str:
        """Return the id that the log is found by."""
        return self._options.idempotence_id or self._options.checkpoint_id or ""

    @property
    def _log_topic(self) -> str:
        options = self._options
        if options.commit_topic is not None:
            return options.commit_topic.full_name
        assert options.topic is not None
        namespace = options.topic.namespace_name
        name = f"{COMMIT_LOG_PREFIX}{self._log_id}"
        if self._is_idempotent:
            # The same id may be used for several topics.
            name = f"{name}-{options.topic.local_name}"
        return f"persistent://{namespace}/{name}"


class _Tallied:
    """RecordBatches that are counted while they are consumed.

    Args:
        batches: The rows of a task.

    Attributes:
        tally: Of those that were taken so far.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.tally = NO_ROWS

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            rows = batch.num_rows
            digest = digest_of(batch.columns, rows) if HAS_DIGESTS else None
            self.tally += Tally(rows, digest)
            yield batch


def _set(future: Future[bool], *, value: bool) -> None:
    """Set the result of a future without a result."""
    if not future.done():
        future.set_result(value)


def transactions_of(results: Iterable[TaskResult]) -> dict[int, TxnId]:
    """Return the transactions by the numbers of their tasks."""
    return {r.task.number: r.txn for r in results if r.txn is not None}
