"""Writes: checked on the driver, done on executors, finished on the driver.

Spark pickles a writer once for all tasks of a batch query or of a micro-batch, and runs
``commit`` or ``abort`` on another copy of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pulsar_spark.client.batch_commit import BatchCommit, Part
from pulsar_spark.client.deduplication import require_deduplication
from pulsar_spark.client.exactly_once import (
    CommitProtocol,
    Progress,
    TaskTransaction,
    marker,
    markers_topic,
)
from pulsar_spark.client.first_transaction import prepare_for_transactions
from pulsar_spark.client.journal import Journal
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.client.targets import find_targets
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import OptionError
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.spark.statistics import log_summary
from pulsar_spark.spark.task_writer import Task, TaskWriter, Written
from pulsar_spark.spark.write_schema import check_write_schema
from pulsar_spark.topics import COMMIT_LOG_PREFIX, TopicName
from pulsar_spark.wire.commands import TxnId

#: Where Spark tells a task of a stream which query and micro-batch it is part of. A
#: batch write inside of ``foreachBatch`` is told, too.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task tells the driver when it has written its rows.

    Attributes:
        task: Which one.
        written: What it wrote.
        txn: The transaction it wrote in; None for none.
        progress: What it went by, of an exactly-once stream.
    """

    task: Task
    written: Written
    txn: TxnId | None = None
    progress: Progress | None = None


class _Writer:
    """What writers of both kinds do.

    Args:
        options: How to write.
        schema: The columns of the rows.

    Raises:
        SchemaError: There are columns that cannot be written.
        PulsarSparkError: The topic does not exist, or cannot be written to as wanted.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, options)
        self._options = options
        # One of the few names that brokers remember of a topic: none for each write.
        self._probe_name = f"{options.idempotence_id or 'spark-pulsar'}-probe"
        self._targets: dict[TopicName, list[str]] = {}
        if options.topic is not None:
            self._targets = find_targets(
                TopicLookup(shared_pool(options.client)),
                [options.topic],
                auto_creation=options.topic_auto_creation,
            )
            if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
                self._require_deduplication(self._targets[options.topic][0])

    @property
    def _pool(self) -> ConnectionPool:
        return shared_pool(self._options.client)

    @property
    def _is_transactional(self) -> bool:
        return self._options.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def _waits(self) -> bool:
        """Whether its tasks will wait for topics that others have for themselves."""
        return self._options.access_mode == "WaitForExclusive"

    def _prepare_for_transactions(self, *further: str) -> None:
        known = chain.from_iterable(self._targets.values())
        prepare_for_transactions(self._pool, [*known, *further], waits=self._waits)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Writes the rows of one task. On an executor.

        Raises:
            PulsarSparkError: As ``task_writer.TaskWriter.write`` does.
        """
        context = TaskContext.get()
        assert context is not None
        batch_id = context.getLocalProperty(_BATCH_ID)
        task = Task(
            number=context.partitionId(),
            attempt=context.attemptNumber(),
            batch_id=int(batch_id) if batch_id else 0,
            query_id=context.getLocalProperty(_QUERY_ID) or "",
        )
        if self._is_transactional:
            return self._write_in_transaction(task, iterator)
        options = replace(self._options, idempotence_id=self._identity(task))
        checks = self._checks_of_topics()
        writer = TaskWriter(options, task, self._targets, check_topics=checks)
        return TaskCommit(task, writer.write(iterator))

    def _identity(self, task: Task) -> str | None:
        """What the write is known by to brokers that drop what they have."""
        return self._options.idempotence_id

    def _require_deduplication(self, topic_partition: str) -> None:
        require_deduplication(
            self._pool, topic_partition, self._probe_name, waits=self._waits
        )

    def _checks_of_topics(self) -> Callable[[list[str]], None]:
        """For rows that name their topics: the driver could not know these."""
        is_needed = self._options.guarantee is DeliveryGuarantee.IDEMPOTENT
        checked = {base_of(name) for names in self._targets.values() for name in names}

        def check(topics: list[str]) -> None:
            for topic in topics:
                if is_needed and base_of(topic) not in checked:
                    self._require_deduplication(topic)
                    checked.add(base_of(topic))

        return check

    def _write_in_transaction(
        self, task: Task, iterator: Iterator[pa.RecordBatch]
    ) -> TaskCommit:
        # A task without rows needs no transaction.
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return TaskCommit(task, Written())
        timeout_ms = self._options.transaction_timeout_ms
        transaction = TaskTransaction(self._pool, timeout_ms)
        try:
            writer = TaskWriter(
                self._options,
                task,
                self._targets,
                transaction=transaction,
                marker=self._announce(transaction, task),
            )
            written = writer.write(chain([first], batches))
        except BaseException:
            transaction.abort()
            raise
        return TaskCommit(task, written, transaction.txn)

    def _announce(
        self, transaction: TaskTransaction, task: Task
    ) -> tuple[str, bytes] | None:
        """Writes the transaction down, where that is done; what is to prove its end."""
        return None

    def _summary(
        self, what: str, messages: Sequence[WriterCommitMessage | None]
    ) -> None:
        """One line in the driver's log for each write."""
        written = [m.written for m in messages if isinstance(m, TaskCommit)]
        log_summary(
            f"{what}: {sum(w.rows for w in written)} rows, "
            f"{sum(w.size_bytes for w in written)} bytes by {len(written)} tasks; "
            f"{sum(w.duplicate_rows for w in written)} rows were there already",
            self._options.client.stats_interval_s,
        )


class PulsarBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes the rows of a batch query. Arguments and errors as for ``_Writer``."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.idempotence_id is None:
            made_up = f"spark-pulsar-{uuid.uuid4()}"
            self._options = replace(options, idempotence_id=made_up)
        if self._is_transactional:
            TransactionClient(self._pool).require()
            self._prepare_for_transactions()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes what was written visible. On the driver.

        Raises:
            PulsarSparkError: As ``client.batch_commit.BatchCommit.commit`` does.
        """
        self._batch_commit().commit(
            {
                message.task.number: Part(message.txn, *message.written.entry)
                for message in messages
                if isinstance(message, TaskCommit) and message.txn is not None
            }
        )
        self._summary("write", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write failed: takes back what was not committed. On the driver."""
        self._summary("failed write", messages)
        self._batch_commit().abort(_transactions(messages).values())

    def _batch_commit(self) -> BatchCommit:
        return BatchCommit(self._pool, self._options.transaction_timeout_ms)


class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the rows of a micro-batch. Arguments and errors as for ``_Writer``."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._progress: Progress | None = None
        if self._is_transactional:
            if options.topic is None and options.commit_topic is None:
                raise OptionError(
                    "An exactly-once stream whose rows name their topics needs "
                    "commitTopic, the full name of a topic for its log of commits: "
                    "without the option topic there is none to put it beside."
                )
            TransactionClient(self._pool).require()

    def __getstate__(self) -> dict[str, Any]:
        """What goes to the tasks. On the driver, before a micro-batch.

        Spark makes writers for ``commit`` and ``abort`` besides, behind the
        micro-batch: only one that is sent to tasks may abort what it finds open.
        """
        if self._is_transactional and self._progress is None:
            self._prepare_for_transactions(markers_topic(self._log_topic))
            self._progress = self._protocol().recover()
        return self.__dict__

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Makes what was written visible. On the driver.

        Raises:
            PulsarSparkError: As ``client.exactly_once.CommitProtocol.commit`` does.
        """
        if self._is_transactional:
            self._commit(messages, batchId)
        self._summary(f"micro-batch {batchId}", messages)

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int
    ) -> None:
        told = {m.progress for m in messages if isinstance(m, TaskCommit)}
        if not told:  # there are no tasks
            return
        (progress,) = told
        assert progress is not None
        # Also where every task took its rows for visible, and so wrote none.
        progress.require_same_cut(batch_id, len(messages))
        if txns := _transactions(messages):
            self._protocol().commit(batch_id, txns, progress, len(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The micro-batch failed: takes back what was written. On the driver.

        Raises:
            PulsarSparkError: As ``client.exactly_once.CommitProtocol.abort`` does.
        """
        self._summary(f"failed micro-batch {batchId}", messages)
        if self._is_transactional:
            told = (m.progress for m in messages if isinstance(m, TaskCommit))
            self._protocol().abort(next(told, None))

    def _identity(self, task: Task) -> str:
        # A new checkpoint counts its micro-batches from 0 again, and is a new query. So
        # under an id that was used before, nothing of it is taken for what is there.
        given = self._options.idempotence_id
        return task.query_id if given is None else f"{given}-{task.query_id}"

    def _write_in_transaction(
        self, task: Task, iterator: Iterator[pa.RecordBatch]
    ) -> TaskCommit:
        assert self._progress is not None
        progress = self._progress.of(task.query_id)
        if progress.has(task.batch_id, task.number):
            rows = sum(batch.num_rows for batch in iterator)
            done = TaskCommit(task, Written(duplicate_rows=rows))
        else:
            done = super()._write_in_transaction(task, iterator)
        # The parts may be many, and are not the driver's business any more.
        return replace(done, progress=replace(progress, parts=frozenset()))

    def _announce(
        self, transaction: TaskTransaction, task: Task
    ) -> tuple[str, bytes] | None:
        log = Journal(self._pool, self._log_topic)
        assert self._progress is not None
        term = self._progress.term
        transaction.announce(log, task.batch_id, task.number, term)
        proof = marker(task.query_id, task.batch_id, task.number)
        return markers_topic(self._log_topic), proof

    def _protocol(self) -> CommitProtocol:
        return CommitProtocol(self._pool, self._log_topic)

    @property
    def _log_topic(self) -> str:
        options = self._options
        if options.commit_topic is not None:
            return options.commit_topic.full_name
        assert options.topic is not None
        namespace = options.topic.namespace_name
        return f"persistent://{namespace}/{COMMIT_LOG_PREFIX}{options.idempotence_id}"


def base_of(topic_partition: str) -> str:
    """Full name of the topic of a topic partition."""
    return TopicName.parse(topic_partition).base.full_name


def _transactions(
    messages: Sequence[WriterCommitMessage | None],
) -> dict[int, TxnId]:
    """The transaction of each task that has one, by the task's number."""
    return {
        message.task.number: message.txn
        for message in messages
        if isinstance(message, TaskCommit) and message.txn is not None
    }
