# SPDX-License-Identifier: Apache-2.0
"""Writes, from checks to commit. What Spark calls, without Spark.

The driver makes a write and prepares it. Each task gets a copy and runs its rows. The
driver commits, or aborts, by another copy, which may be in another process: a write
holds its options and what was found out, and no connections.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from pulsar_spark.arrow.row_digests import HAS_DIGESTS, digest_of
from pulsar_spark.client.failover import choose_cluster
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.client.requests import together
from pulsar_spark.client.segment_tail import last_stored_ids
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.columns import TOPIC, VALUE
from pulsar_spark.encryption.encryptor import Encryptor, encryptors
from pulsar_spark.errors import (
    BadRowError,
    IdempotenceError,
    InDoubtError,
    OptionError,
    PulsarSparkError,
    QueryConflictError,
    ScalableTopicError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink.batch_commit import BatchCommit
from pulsar_spark.sink.commit_log import Part
from pulsar_spark.sink.exactly_once import (
    CommitProgress,
    CommitProtocol,
    marker,
    markers_topic,
)
from pulsar_spark.sink.journal import Journal
from pulsar_spark.sink.kept_batches import KeptBatches
from pulsar_spark.sink.numbering import last_micro_batches
from pulsar_spark.sink.probes import prepare_for_transactions, require_deduplication
from pulsar_spark.sink.schemas import TopicSchemas
from pulsar_spark.sink.tally import NO_ROWS, Tally
from pulsar_spark.sink.targets import find_targets
from pulsar_spark.sink.task import TaskWriter, WriteSummary
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.system import log_summary, warn_once
from pulsar_spark.topics import COMMIT_LOG_PREFIX, TopicName, is_segment, topic_of
from pulsar_spark.wire.layout import Layout
from spark_topics.sink.write import Task

logger = logging.getLogger("pulsar_spark.sink")

#: What it means where a write does not begin at the cluster of ``service.url``.
_BEGINS_THERE = (
    "Rows go there. If that lasts, set `service.url` to it: each batch asks that first."
)

#: Said where a log of commits changes hands.
_OTHER_QUERY = (
    "The log of commits %s was used by the query %s, and is used by the query %s now."
    " That is so after a new checkpoint. Two queries that are both in use need an"
    " `idempotenceId` each: under the same one each ends what the other has begun."
)

#: The only column that rows of bytes need.
_BYTES = pa.schema([(VALUE, pa.binary())])


@dataclass(frozen=True)
class TaskResult:
    """A task's report to the driver after writing its rows.

    Attributes:
        task: Which one.
        written: The rows and bytes written.
        txn: The transaction it wrote in; None for none.
        progress: The commit progress that an exactly-once stream's task used.
        tally: Of the rows that it was given, of such a stream.
        write_began_s: When the driver began the write, by its own clock, in seconds
            since 1970: what commits may be another process.
    """

    task: Task
    written: WriteSummary
    txn: TxnId | None = None
    progress: CommitProgress | None = None
    tally: Tally = NO_ROWS
    write_began_s: float = field(default=0.0, compare=False)


class _Write:
    """What writes of both kinds do.

    Args:
        options: How to write.
        columns: The columns of the rows.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = _BYTES) -> None:
        self._options = options
        self._columns = columns
        self._began_s = time.time()
        self._schemas: dict[TopicName, SchemaInfo | None] = {}
        # One of the few names that brokers remember of a topic: none for each write.
        self._probe_name = f"{options.idempotence_id or 'spark-pulsar'}-probe"
        self._targets: dict[TopicName, list[str]] = {}
        self._coordinators = 0
        # Topic partitions of the time before a migration, sealed segments now.
        self._migrated: list[str] = []
        # Also where a scalable topic has it written in transactions.
        self._is_idempotent = options.guarantee is DeliveryGuarantee.IDEMPOTENT

    def prepare(self) -> None:
        """Check that the write can be done, once, before any task. On the driver.

        A topic that does not exist may be created by this. Where there are several
        clusters, the first that answers is chosen, for the tasks as well.

        Raises:
            SchemaError: The rows do not fit the topic's schema, and no version of it.
            PulsarSparkError: The topic does not exist, or cannot be written to as
                wanted.
        """
        self._encryptors()  # a key that cannot be used ends this before any task
        client = choose_cluster(self._options.client, _BEGINS_THERE)
        self._options = replace(self._options, client=client)
        calls: list[Callable[[], None]] = [partial(self._find_topic, self._pool)]
        if self._is_transactional:
            calls.insert(0, self._require_transactions)
        together(*calls)
        if self._is_idempotent and self._is_scalable:
            self._require_transactions()
            exactly_once = DeliveryGuarantee.EXACTLY_ONCE
            self._options = replace(self._options, guarantee=exactly_once)

    def _find_topic(self, pool: ConnectionPool) -> None:
        """Look up the topic of the options, and settle its schema."""
        options = self._options
        if options.topic is not None:
            lookup = TopicLookup(pool)
            self._targets = find_targets(
                lookup, [options.topic], auto_creation=options.topic_auto_creation
            )
            if layout := lookup.layouts.get(options.topic.scalable_name):
                self._migrated = [
                    segment.name
                    for segment in layout.segments
                    if not is_segment(segment.name)
                ]
            schemas = TopicSchemas(pool, options, self._columns)
            schemas.choose([options.topic])
            schemas.register(options.topic, self._targets[options.topic][0])
            self._schemas = schemas.chosen
            if self._is_idempotent and not self._is_scalable:
                self._require_deduplication(self._targets[options.topic][0])

    @property
    def _pool(self) -> ConnectionPool:
        return shared_pool(self._options.client)

    @property
    def _is_scalable(self) -> bool:
        """Return whether the topic of the options is scalable."""
        return any(map(is_segment, chain.from_iterable(self._targets.values())))

    @property
    def _is_transactional(self) -> bool:
        return self._options.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def _waits(self) -> bool:
        """Return whether tasks will wait for topics with an exclusive producer."""
        return self._options.access_mode == "WaitForExclusive"

    @property
    def _schema(self) -> SchemaInfo | None:
        """Return the schema of rows for a single topic; None for none."""
        topic = self._options.topic
        return None if topic is None else self._schemas.get(topic)

    def _require_transactions(self) -> None:
        pool = self._pool
        transactions = TransactionClient(pool, patience_s=pool.write_patience_s)
        transactions.require()
        self._coordinators = transactions.count()

    def _prepare_for_transactions(self, *further: str) -> None:
        if self._is_scalable:
            return  # brokers of segments need none of it
        names = list(chain.from_iterable(self._targets.values()))
        prepare_for_transactions(
            self._pool,
            [*names, *further],
            waits=self._waits,
            typed=names,
            schema=self._schema,
            new_encryption=self._encryptors(),
        )

    def _require_deduplication(self, topic_partition: str) -> None:
        require_deduplication(
            self._pool,
            topic_partition,
            self._probe_name,
            waits=self._waits,
            schema=self._schema,
            new_encryption=self._encryptors(),
        )

    def _encryptors(self) -> Callable[[], Encryptor] | None:
        return encryptors(self._options.encryption, warn_once)

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows of a task. On an executor.

        Raises:
            PulsarSparkError: As ``sink.task.TaskWriter.write`` does.
        """
        if self._is_transactional:
            return self._run_in_transaction(task, batches)
        options = replace(self._options, idempotence_id=self._identity(task))
        checks = self._checks_of_topics()
        writer = TaskWriter(
            options, task, self._targets, check_topics=checks, schemas=self._schemas
        )
        return self._result(task, writer.write(batches))

    def _result(
        self, task: Task, written: WriteSummary, txn: TxnId | None = None
    ) -> TaskResult:
        return TaskResult(task, written, txn, write_began_s=self._began_s)

    def _identity(self, task: Task) -> str | None:
        """Return the id by which brokers drop duplicates of the write."""
        return self._options.idempotence_id

    def _checks_of_topics(self) -> Callable[[list[str]], None]:
        """Return a check of topics named by rows, which the driver cannot know."""
        is_needed = self._is_idempotent
        checked = {topic_of(name) for names in self._targets.values() for name in names}

        def check(topics: list[str]) -> None:
            for topic in topics:
                if is_needed and topic_of(topic) not in checked:
                    self._require_deduplication(topic)
                    checked.add(topic_of(topic))

        return check

    def _run_in_transaction(
        self, task: Task, batches: Iterator[pa.RecordBatch]
    ) -> TaskResult:
        # A task without rows needs no transaction.
        with_rows = (batch for batch in batches if batch.num_rows)
        first = next(with_rows, None)
        if first is None:
            return self._result(task, WriteSummary())
        rows = chain([first], with_rows)
        if not self._goes_to_scalable_topics(first):
            return self._write_in_transaction(task, rows, is_scalable=False)
        retry = self._pool.retry(self._options.transaction_timeout_ms / 1000)
        kept = KeptBatches(rows)
        try:
            while True:
                try:
                    return self._write_in_transaction(task, kept, is_scalable=True)
                except InDoubtError as error:
                    logger.info("task %d writes its rows again: %s", task.number, error)
                    retry.pause(error.saying(error.message, retriable=True))
                kept = kept.again()
        finally:
            kept.close()

    def _goes_to_scalable_topics(self, rows: pa.RecordBatch) -> bool:
        """Return whether the topic of the options, or of the first row, is scalable."""
        if self._options.topic is not None or TOPIC not in rows.schema.names:
            return self._is_scalable
        name = rows.column(TOPIC)[0].as_py()
        try:
            topic = TopicName.parse(name or "").base.full_name
        except OptionError:
            return False  # the row is refused in its turn
        with contextlib.suppress(PulsarSparkError):  # the lookup waits for brokers
            if not self._pool.service().supports_scalable_topics:
                return False
        content = TopicLookup(self._pool).topics([topic])[topic]
        return isinstance(content, Layout)

    def _write_in_transaction(
        self, task: Task, batches: Iterable[pa.RecordBatch], *, is_scalable: bool
    ) -> TaskResult:
        with contextlib.ExitStack() as stack:
            transaction, announce = self._begin(task, stack, is_scalable=is_scalable)
            try:
                writer = TaskWriter(
                    self._options,
                    task,
                    self._targets,
                    transaction=transaction,
                    check_topics=self._checks_of_topics(),
                    schemas=self._schemas,
                    marker=None if is_scalable else self._marker(task),
                    announce=announce,
                )
                written = writer.write(batches)
            except BaseException:
                transaction.abort()
                raise
        return self._result(task, written, transaction.txn)

    def _begin(
        self, task: Task, stack: contextlib.ExitStack, *, is_scalable: bool
    ) -> tuple[TaskTransaction, Callable[[], None] | None]:
        """Begin the transaction of a task.

        Args:
            task: Which one.
            stack: Ends with the task.
            is_scalable: Whether it is to write to scalable topics.

        Returns:
            The transaction, and what tells the driver of it; None for nothing.
        """
        return self._new_transaction(is_scalable=is_scalable), None

    def _new_transaction(self, *, is_scalable: bool) -> TaskTransaction:
        return TaskTransaction.begin(
            self._pool,
            self._options.transaction_timeout_ms,
            self._coordinators,
            is_scalable=is_scalable,
        )

    def _marker(self, task: Task) -> tuple[str, bytes] | None:
        """Return what will prove a task's commit, as topic and message; None: none."""
        return None

    def _log_summary(self, what: str, results: Sequence[TaskResult]) -> None:
        """Log a line for the whole write at its end."""
        log_summary(
            f"{what}: {summary_of(results, time.time())}",
            self._options.client.stats_interval_s,
        )


def summary_of(results: Sequence[TaskResult], now_s: float) -> str:
    """Return the totals of a write as a line.

    Args:
        results: What its tasks tell.
        now_s: When it ended, by the clock of ``TaskResult.write_began_s``.
    """
    written = [result.written for result in results]
    rows = sum(task.rows for task in written)
    text = f"{rows} rows, {sum(task.size_bytes for task in written)} bytes"
    text += f" by {len(written)} tasks"
    if results:
        took_s = max(0.0, now_s - min(result.write_began_s for result in results))
        slowest = max(results, key=lambda result: result.written.took_s)
        # A clock that was set back makes no division by zero.
        text += (
            f" in {took_s:.1f} s, {rows / max(took_s, 1e-3):.0f} rows/s;"
            f" the slowest was task {slowest.task.number},"
            f" {slowest.written.took_s:.1f} s"
        )
    return (
        f"{text}; {sum(task.duplicate_rows for task in written)} rows were there"
        f" already; {sum(task.reconnects for task in written)} reconnects"
    )


class _LoggedWrite(_Write):
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

    def _recover(self) -> None:
        """Carry out an earlier driver's decision, and abort undecided transactions."""
        self._progress = self._protocol(self._pool.write_patience_s).recover()
        is_new = not self._progress.query_id
        if is_new and self._is_idempotent and self._migrated:
            ids = last_micro_batches(last_stored_ids(self._pool, self._migrated))
            chosen = self._options.idempotence_id or ""
            self._before = {i: last for i, last in ids.items() if i.startswith(chosen)}

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
            is_in_doubt = task.batch_id > 0
        else:
            last = self._before.get(self._identity(task) or "", -1)
            is_in_doubt = task.batch_id <= last
        if is_in_doubt:
            topic = self._options.topic
            assert topic is not None
            raise ScalableTopicError(
                topic.full_name,
                topic.scalable_name,
                f"The topic {topic.common_name} was migrated to a scalable one, and "
                f"had rows of micro-batch {task.batch_id} of this write before, or may "
                "have had: to write them now could store them twice. Set a new "
                "`idempotenceId`, under which all rows of this micro-batch are "
                "written, also those that are there.",
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
        if txns := _transactions(results):
            protocol = self._protocol(self._pool.write_patience_s)
            entries = {
                result.task.number: result.written.entry
                for result in results
                if result.txn is not None and result.txn.is_scalable
            }
            protocol.commit(batch_id, txns, progress, tasks, rows, entries)

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

    def _checks_of_topics(self) -> Callable[[list[str]], None]:
        """Return a check of topics named by rows, which the driver cannot know."""
        if not self._has_log:
            return super()._checks_of_topics()
        own = {self._log_topic, markers_topic(self._log_topic)}

        def check(topics: list[str]) -> None:
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
            self._options.subscription_prefix,
            patience_s=patience_s,
            has_markers=not self._is_scalable,
        )

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


class BatchWrite(_LoggedWrite):
    """The write of a batch query.

    Args:
        options: How to write.
        columns: The columns of the rows.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = _BYTES) -> None:
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

    def prepare(self) -> None:
        """Check that the write can be done. Errors as for writes of both kinds."""
        super().prepare()
        if self._has_log:
            self._recover()
        elif self._is_transactional:
            self._prepare_for_transactions()

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
                    result.task.number: Part(result.txn, *result.written.entry)
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
            self._batch_commit().abort(_transactions(results).values())

    def _batch_commit(self) -> BatchCommit:
        return BatchCommit(self._pool, self._options.transaction_timeout_ms)


class StreamWrite(_LoggedWrite):
    """The write of a micro-batch.

    Args:
        options: How to write.
        columns: The columns of the rows.

    Raises:
        OptionError: An exactly-once stream has no topic for its log of commits, or only
            the one that its rows go to.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = _BYTES) -> None:
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
        if options.topic.base.full_name in (log, markers_topic(log)):
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
            together(self._recover, self._prepare_topics)

    def _prepare_topics(self) -> None:
        self._prepare_for_transactions(markers_topic(self._log_topic))

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


def _transactions(results: Iterable[TaskResult]) -> dict[int, TxnId]:
    """Return the transactions by the numbers of their tasks."""
    return {r.task.number: r.txn for r in results if r.txn is not None}
