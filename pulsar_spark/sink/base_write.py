# SPDX-License-Identifier: Apache-2.0
"""The part of a write that batch queries and micro-batches share: checks and tasks."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from pulsar_spark.client.failover import choose_cluster
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool, shared_pool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.requests import together
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.columns import TOPIC, VALUE
from pulsar_spark.encryption.encryptor import Encryptor, encryptors
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    PulsarSparkError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink.exactly_once import (
    CommitProgress,
)
from pulsar_spark.sink.grouping import topics_of
from pulsar_spark.sink.kept_batches import KeptBatches
from pulsar_spark.sink.probes import prepare_for_transactions, require_deduplication
from pulsar_spark.sink.schemas import TopicSchemas
from pulsar_spark.sink.tally import NO_ROWS, Tally
from pulsar_spark.sink.targets import find_targets
from pulsar_spark.sink.task import TaskWriter, WriteSummary
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.system import log_summary, warn_once
from pulsar_spark.topics import TopicName, is_segment, topic_of
from pulsar_spark.wire.commands import ProducerAccessMode
from pulsar_spark.wire.layout import Layout
from spark_topics.sink.write import Task

logger = logging.getLogger("pulsar_spark.sink")

#: What it means where a write does not begin at the cluster of ``service.url``.
_BEGINS_THERE = (
    "Rows go there. If that lasts, set `service.url` to it: each batch asks that first."
)

#: The only column that rows of bytes need.
BYTES = pa.schema([(VALUE, pa.binary())])


@dataclass(frozen=True)
class TaskResult:
    """A task's report to the driver after writing the rows.

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


class BaseWrite:
    """What writes of both kinds do.

    Args:
        options: How to write.
        columns: The columns of the rows.
    """

    def __init__(self, options: WriteOptions, columns: pa.Schema = BYTES) -> None:
        self._options = options
        self._columns = columns
        self._began_s = time.time()
        self._schemas: dict[TopicName, SchemaInfo | None] = {}
        # One of the few names that brokers remember of a topic: none for each write.
        self._probe_name = f"{options.idempotence_id or 'spark-pulsar'}-probe"
        self._targets: dict[TopicName, list[str]] = {}
        self._coordinators = 0
        # Of topic partitions and coordinators, as the driver found them.
        self._brokers: dict[str, BrokerAddress] = {}
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
        schemas = TopicSchemas(self._pool, self._options, self._columns)
        calls: list[Callable[[], None]] = [partial(self._find_topic, schemas)]
        if self._is_transactional:
            calls.insert(0, self._require_transactions)
        together(*calls)
        if self._is_idempotent and self._is_scalable:
            self._require_transactions()
            exactly_once = DeliveryGuarantee.EXACTLY_ONCE
            self._options = replace(self._options, guarantee=exactly_once)
        self._try_topic(schemas)

    def _find_topic(self, schemas: TopicSchemas) -> None:
        """Look up the topic of the options, and choose the schema of rows."""
        options = self._options
        if options.topic is not None:
            lookup = TopicLookup(schemas.pool)
            self._targets = find_targets(
                lookup, [options.topic], auto_creation=options.topic_auto_creation
            )
            if layout := lookup.layouts.get(options.topic.scalable_name):
                self._migrated = [
                    segment.name
                    for segment in layout.segments
                    if not is_segment(segment.name)
                ]
            schemas.choose([options.topic])

    def _try_topic(self, schemas: TopicSchemas) -> None:
        """Check what only a producer can find out of the topic of the options.

        A write that is refused before fences no producer.
        """
        options = self._options
        if options.topic is not None:
            if options.access_mode == "ExclusiveWithFencing":
                self._fence_others(schemas)
            first = self._targets[options.topic][0]
            schemas.register(options.topic, first)
            self._schemas = schemas.chosen
            if self._is_idempotent and not self._is_scalable:
                self._require_deduplication(first, self._schema)

    def _fence_others(self, schemas: TopicSchemas) -> None:
        """End an exclusive producer of a topic, which would admit no other producer.

        Tasks will do so, but the driver tries the topic out before them, as Shared.
        """
        settings = ProducerSettings(
            access_mode=ProducerAccessMode.EXCLUSIVE_WITH_FENCING,
            follows_migration=True,
            new_encryption=self._encryptors(),
        )
        pool = ConnectionPool(self._options.client)  # a broker may cut its connections
        with contextlib.closing(pool), Producers(pool, settings) as producers:
            for topic, names in self._targets.items():
                try:
                    producers.open(names, schemas.chosen[topic])
                except BrokerError as error:
                    raise schemas.explained(topic, error) from error.__cause__

    @property
    def _pool(self) -> ConnectionPool:
        """Return the connections of this process, which know the driver's brokers."""
        pool = shared_pool(self._options.client)
        if self._brokers:
            pool.suggest_brokers(self._brokers)
        return pool

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

    def _prepare_for_transactions(
        self, *further: str, may_begin: Callable[[], bool] = lambda: True
    ) -> None:
        if self._is_scalable:
            return  # brokers of segments need none of it
        names = list(chain.from_iterable(self._targets.values()))
        prepare_for_transactions(
            self._pool,
            [*names, *further],
            may_begin=may_begin,
            waits=self._waits,
            typed=names,
            schema=self._schema,
            new_encryption=self._encryptors(),
        )

    def _require_deduplication(
        self, topic_partition: str, schema: SchemaInfo | None
    ) -> None:
        require_deduplication(
            self._pool,
            topic_partition,
            self._probe_name,
            waits=self._waits,
            schema=schema,
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

    def _checks_of_topics(self) -> Callable[[list[str], SchemaInfo | None], None]:
        """Return a check of topics named by rows, which the driver cannot know."""
        is_needed = self._is_idempotent
        checked = {topic_of(name) for names in self._targets.values() for name in names}

        def check(topics: list[str], schema: SchemaInfo | None) -> None:
            for topic in topics:
                if is_needed and topic_of(topic) not in checked:
                    self._require_deduplication(topic, schema)
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
        """Return whether the topic of the options, or of the first row, is scalable.

        Raises:
            BadRowError: The first row names no topic, or something else.
        """
        if self._options.topic is not None or TOPIC not in rows.schema.names:
            return self._is_scalable
        (named,) = topics_of(rows.column(TOPIC).slice(0, 1), 0)
        topic = named.base.full_name
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
        """Log a line for the whole write at the end."""
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
