# SPDX-License-Identifier: Apache-2.0
"""The loop of a writing task: RecordBatches -> stored entries. On executors.

::

    RecordBatch -> RowEncoder -> rows by topic -> Router -> runs of a topic partition
                                    (grouping)                         |
    stored entries <- Producers <- frames <- Target <------------------+
"""

from __future__ import annotations

import logging
import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile

import pyarrow as pa

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.arrow.routing import (
    EntryBuckets,
    Router,
    SegmentRouter,
    entry_hashes,
    partition_runs,
)
from pulsar_spark.arrow.values import ValueEncoder
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.client.producing.producers import (
    Producers,
    ProducerSettings,
    Resend,
    TopicProducer,
)
from pulsar_spark.client.requests import together
from pulsar_spark.client.segment_tail import has_ended_at, stored_ids
from pulsar_spark.encryption.encryptor import encryptors
from pulsar_spark.errors import (
    AskAgainError,
    BadRowError,
    BrokerError,
    InDoubtError,
    MessageTooLargeError,
    PulsarSparkError,
    TopicNotFoundError,
    TransactionLostError,
)
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink.grouping import (
    groups_by_key,
    rows_by_topic,
    take_numbers,
    up_to_large_rows,
    with_keys_as_bytes,
)
from pulsar_spark.sink.kept_rows import Kept, KeptRows
from pulsar_spark.sink.numbering import producer_name, require_numbers
from pulsar_spark.sink.schemas import ByTopicEncoder, TopicSchemas
from pulsar_spark.sink.target import Target
from pulsar_spark.sink.targets import find_targets, require_kind, require_ordinary
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.system import query_log, warn_once
from pulsar_spark.topics import TopicName, is_segment, topic_of
from pulsar_spark.wire.commands import ProducerAccessMode
from pulsar_spark.wire.layout import KeyRule, Layout
from pulsar_spark.wire.outgoing import SENT_TOGETHER_BYTES, max_entry_bytes
from pulsar_spark.wire.refusals import is_of_ended_transaction
from spark_topics.sink.write import Task
from spark_topics.statistics import Kind, TaskStatistics, Totals

logger = logging.getLogger("pulsar_spark.sink")

#: Run length for idempotent writes. Fixed, because routing must not change when options
#: do between a write and its replay.
_IDEMPOTENT_RUN = 1000

_RESEND = {
    DeliveryGuarantee.NONE: Resend.NEVER,
    DeliveryGuarantee.AT_LEAST_ONCE: Resend.ALWAYS,
    DeliveryGuarantee.IDEMPOTENT: Resend.ALWAYS,  # the broker drops what it has
    DeliveryGuarantee.EXACTLY_ONCE: Resend.IF_DEDUPLICATED,
}

#: Guarantees for which a write follows a topic that is migrated to another cluster:
#: the new cluster knows no duplicates and no transactions of the old cluster.
_FOLLOWING = frozenset({DeliveryGuarantee.NONE, DeliveryGuarantee.AT_LEAST_ONCE})

_ACCESS_MODES = {
    "Shared": ProducerAccessMode.SHARED,
    "Exclusive": ProducerAccessMode.EXCLUSIVE,
    "WaitForExclusive": ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
    "ExclusiveWithFencing": ProducerAccessMode.EXCLUSIVE_WITH_FENCING,
}


_WRITING = Kind("written", "encoding and sending", logger=query_log)


@dataclass(frozen=True)
class WriteSummary:
    """What a task wrote.

    Attributes:
        rows: Rows that are stored now.
        size_bytes: Bytes of the entries that hold them.
        duplicate_rows: Rows that the broker had already.
        took_s: How long that took, in seconds.
        reconnects: How often a connection had to be made again.
        topic_partitions: To how many topic partitions.
        entries: In a transaction, an entry of each of them, by full name, and of the
            topic of markers; None where no receipt named an entry.
    """

    rows: int = 0
    size_bytes: int = 0
    duplicate_rows: int = 0
    took_s: float = field(default=0.0, compare=False)
    reconnects: int = 0
    topic_partitions: int = 0
    entries: Mapping[str, MessageId | None] = field(default_factory=dict)


class TaskWriter:
    """Writes the rows of a task, a single time. Opens nothing before that.

    Args:
        options: How to write.
        task: Which task this is.
        targets: Topic partitions of topics that are known already.
        transaction: The transaction to write in, None for none.
        check_topics: Called with the topic partitions that come into play, and the
            schema of their rows, before anything is sent to them; may refuse.
        schemas: Of topics that are known already, None for none.
        marker: A topic and the message to send there after all rows.
        announce: Called before the first row is sent, while topics are attached; None
            for nothing.
    """

    def __init__(
        self,
        options: WriteOptions,
        task: Task,
        targets: Mapping[TopicName, Sequence[str]],
        *,
        transaction: TaskTransaction | None = None,
        check_topics: Callable[[list[str], SchemaInfo | None], None] = (
            lambda topics, schema: None
        ),
        schemas: Mapping[TopicName, SchemaInfo | None] | None = None,
        marker: tuple[str, bytes] | None = None,
        announce: Callable[[], None] | None = None,
    ) -> None:
        self._options = options
        self._task = task
        self._transaction = transaction
        self._check_topics = check_topics
        self._marker = marker
        self._announce = announce
        self._known_schemas = dict(schemas or {})
        self._schemas: TopicSchemas | None = None
        # Segments change: they are looked up when the first row comes.
        self._known = {
            topic: names
            for topic, names in targets.items()
            if not any(map(is_segment, names))
        }
        self._began = {t: n for t, n in targets.items() if t not in self._known}
        self._pool = _new_pool(options)
        self._settings = _settings(options, task, transaction)
        self._producers = Producers(self._pool, self._settings)
        # Options of rows do not apply to markers: all tasks share their topic, and its
        # readers know no options. A repeated marker is harmless: it may be resent.
        self._markers = Producers(
            shared_pool(options.client),
            replace(
                self._settings,
                access_mode=ProducerAccessMode.SHARED,
                resend=Resend.ALWAYS,
                new_encryption=None,
            ),
        )
        self._topics: dict[TopicName, _Topic] = {}
        self._targets: dict[str, Target] = {}  # by name of the topic partition
        self._kept: dict[str, KeptRows] = {}  # by name of the segment
        self._unsent: list[tuple[TopicProducer, list[SendFrame]]] = []
        self._unsent_bytes = 0
        self._encoder: RowEncoder | None = None
        self._rows = 0  # taken so far
        self._statistics = TaskStatistics(
            _WRITING,
            f"task {task.number}",
            options.client.stats_interval_s,
            self._refresh,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows; return once stored, unless nothing is guaranteed.

        Raises:
            BadRowError: A row that cannot be written.
            MessageTooLargeError: A row that no entry can hold.
            TransactionLostError: The transaction is over.
            PulsarSparkError: As ``client.producers.Producers.send`` and ``open``.
        """
        try:
            for batch in self._promptly(batches):
                self._add(batch)
                self._follow_splits()
            for target in self._targets.values():
                target.end()
            self._cut_rest()
            if self._marker is not None:
                self._mark(*self._marker)
            if self._options.guarantee is not DeliveryGuarantee.NONE:
                self._producers.flush()
                self._markers.flush()
            while self._follow_splits():
                self._cut_rest()
                self._producers.flush()
            if self._transaction is not None:
                self._transaction.confirm()
            return self._summary()
        except BrokerError as error:
            raise self._explained(error) from error.__cause__
        finally:
            self._statistics.end()
            self._producers.close()
            self._markers.close()
            if self._pool is not shared_pool(self._options.client):
                self._pool.close()

    def _explained(self, error: BrokerError) -> PulsarSparkError:
        """Return the reason of a refusal, such as the end of the transaction."""
        for topic, target in self._topics.items():
            if self._schemas and error.subject in target.names:
                explained = self._schemas.explained(topic, error)
                if explained is not error:
                    return explained
        if self._transaction is not None:
            if is_of_ended_transaction(error):
                return self._transaction.lost(error)
            try:
                self._transaction.confirm()
            except TransactionLostError as lost:
                return lost
            except PulsarSparkError as unknown:
                logger.debug("%s", unknown)
        return error

    def _promptly(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; while a batch is slow, send the rows before."""
        # Where a replay must be cut alike, only the rows may decide.
        is_timed = self._options.guarantee is not DeliveryGuarantee.IDEMPOTENT
        asked = time.monotonic()
        for batch in batches:
            waited_s = time.monotonic() - asked
            self._statistics.totals.spark_s += waited_s
            self._statistics.count()
            if is_timed and waited_s > self._options.batching_max_publish_delay_s:
                self._cut_rest()
            yield batch
            asked = time.monotonic()

    def _cut_rest(self) -> None:
        for target in self._targets.values():
            self._send(target, target.finish())
        self._send_rest()

    def _mark(self, topic: str, message: bytes) -> None:
        assert self._transaction is not None
        producer = self._markers.get(topic)
        entry = producer.plain_entry(message, txn=self._transaction.txn)
        self._markers.send(producer, entry)

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._options.key_encoding == "bytes":
            batch = with_keys_as_bytes(batch)
        if self._encoder is None:
            self._encoder = RowEncoder(batch.schema, self._value_encoder(batch.schema))
        rows = self._encoder.encode(batch, self._rows)
        # Rows go out by topic partition, and none after one that no entry can hold may
        # be out when that raises. So a row that might be too large goes out before the
        # next. Its metadata is not counted here: half an entry is far more than that.
        for part, ends_large in up_to_large_rows(rows, self._max_entry_bytes // 2):
            self._add_rows(part)
            if ends_large:
                self._cut_rest()
        self._send_rest()

    def _value_encoder(self, columns: pa.Schema) -> ValueEncoder:
        self._schemas = TopicSchemas(self._pool, self._options, columns)
        self._schemas.chosen.update(self._known_schemas)
        if self._options.topic is None:
            return ByTopicEncoder(self._schemas, columns, self._find)
        if self._options.topic not in self._known_schemas:
            self._schemas.choose([self._options.topic])
        return self._schemas.encoder(self._options.topic)

    def _add_rows(self, rows: EncodedRows) -> None:
        first_row, self._rows = self._rows, self._rows + len(rows)
        if self._options.guarantee is DeliveryGuarantee.IDEMPOTENT:
            require_numbers(self._rows)
        numbers: Sequence[int] = range(first_row, self._rows)
        by_topic: dict[TopicName, pa.Int64Array | None]
        if self._options.topic is not None:
            by_topic = {self._options.topic: None}
        else:
            by_topic = rows_by_topic(rows, first_row)
        self._find(by_topic)
        for topic, indices in by_topic.items():
            parts = (rows, numbers)
            if indices is not None:
                parts = (rows.take(indices), take_numbers(numbers, indices))
            try:
                self._add_to_topic(self._topics[topic], *parts)
            except BadRowError as error:
                raise error.about(topic.full_name) from None

    @cached_property
    def _max_entry_bytes(self) -> int:
        retry = self._pool.retry(self._options.client.operation_timeout_s)
        while True:
            try:
                service = self._pool.service()
            except PulsarSparkError as error:
                retry.pause(error)
            else:
                return max_entry_bytes(service.max_message_size_bytes)

    def _follow_splits(self) -> bool:
        """Send rows that sealed segments lack to the segments that follow.

        Returns:
            Whether there are any, so that not all rows may be stored yet.
        """
        sealed = {
            topic_of(name)
            for name, target in self._targets.items()
            if target.producer.left is not None
        }
        for topic in self._topics.values():
            if topic.layout is not None and topic.layout.topic in sealed:
                self._follow(topic, topic.layout.topic)
        return bool(sealed)

    def _follow(self, topic: _Topic, name: str) -> None:
        """Go on with the active segments of a topic, first with rows that others lack.

        Args:
            topic: The topic.
            name: The full name of the scalable topic.
        """
        of_topic = {n: t for n, t in self._targets.items() if topic_of(n) == name}
        ended = {n for n, t in of_topic.items() if t.producer.left is not None}
        layout = self._layout_without(name, ended)
        active = {segment.name for segment in layout.active}
        left: list[tuple[EncodedRows, Sequence[int]]] = []
        # Parents have lower ids, and older rows of a key, than their children.
        for segment in sorted(of_topic.keys() - active, key=TopicName.parse):
            target = self._targets.pop(segment)
            if target.producer.left is None:
                target.producer.end()
            kept = self._kept.pop(segment, KeptRows())
            left += kept.left(self._rows_stored(target.producer))
        topic.follow(layout, self._targets)
        for rows, numbers in left:
            self._add_to_topic(topic, rows, numbers)

    def _keep(self, producer: TopicProducer, kept: Kept) -> None:
        """Keep rows for a segment; other topic partitions do not end."""
        if is_segment(producer.topic):
            seen_rows = producer.stored.seen_rows
            self._kept.setdefault(producer.topic, KeptRows()).keep(kept, seen_rows)

    def _rows_stored(self, producer: TopicProducer) -> int:
        """Return the number of sent rows that a sealed segment has stored."""
        left, name = producer.left, producer.registration.name
        # Earlier tasks may have written under a chosen name, with the same ids; and
        # any other task, where the user gives the first id.
        is_known = not self._options.producer_name or (
            self._options.initial_sequence_id is None
            and producer.stored.last_message is not None
        )
        if left and self._transaction is not None:
            self._require_nothing_stored(producer, left)
        elif left and name and is_known:
            try:
                stored = stored_ids(
                    self._pool,
                    producer.topic,
                    name,
                    producer.stored.last_message,
                    {frame.highest_sequence_id for frame in left},
                )
            except TopicNotFoundError:
                stored = set()  # deleted, with whatever it had
            producer.stored.take_without_receipts(
                list(takewhile(lambda frame: frame.highest_sequence_id in stored, left))
            )
        return producer.stored.seen_rows

    def _require_nothing_stored(
        self, producer: TopicProducer, left: Sequence[SendFrame]
    ) -> None:
        """Require that a sealed segment has nothing without a receipt.

        Raises:
            InDoubtError: It may have. Rows of an open transaction cannot be read.
        """
        if has_ended_at(self._pool, producer.topic, producer.stored.last_message):
            return
        rows = sum(frame.rows for frame in left)
        raise InDoubtError(
            f"{rows} rows of a transaction were on their way when the segment was "
            "sealed.",
            topic_partition=producer.topic,
            rows=rows,
        )

    def _layout_without(self, topic: str, sealed: Collection[str]) -> Layout:
        """Wait for the layout in which segments are sealed, and return it."""
        lookup = TopicLookup(self._pool)
        retry = self._pool.retry(self._pool.write_patience_s)
        while True:
            content = lookup.topics([topic])[topic]
            if not isinstance(content, Layout):
                raise TopicNotFoundError(
                    f"The topic {topic} was deleted while rows were written to it.",
                    code="TopicNotFound",
                )
            active = {segment.name for segment in content.active}
            if active and not active & set(sealed):
                return content
            retry.pause(
                AskAgainError(f"{topic}: the segments after a split are unknown")
            )

    def _find(self, topics: Iterable[TopicName]) -> None:
        """Look up topics before rows go there."""
        new = [topic for topic in topics if topic not in self._topics]
        absent = [topic for topic in new if topic not in self._known]
        lookup = TopicLookup(self._pool)
        if absent:
            self._known |= find_targets(
                lookup, absent, auto_creation=self._options.topic_auto_creation
            )
        for topic in new:
            require_ordinary(self._known[topic], self._options.guarantee)
            if self._transaction is not None:
                require_kind(self._known[topic], self._transaction.txn)
        assert self._schemas is not None
        unknown = [topic for topic in new if topic not in self._schemas.chosen]
        if unknown:
            self._schemas.choose(unknown)
        for topic in new:
            self._topics[topic] = _Topic(
                topic,
                self._known[topic],
                self._options,
                self._task,
                self._schemas.chosen[topic],
                lookup.layouts.get(topic.scalable_name),
                self._began.get(topic, ()),
            )

    def _add_to_topic(
        self, topic: _Topic, rows: EncodedRows, numbers: Sequence[int]
    ) -> None:
        partitions = topic.router.route(rows, topic.rows)
        topic.rows += len(rows)
        groups, count = partitions, 1
        if topic.buckets is not None:
            rows = replace(rows, entry_hashes=entry_hashes(rows))
        if self._options.key_based_batching:
            groups, count = groups_by_key(partitions, rows)
        elif topic.buckets is not None:
            groups, count = topic.buckets.groups(partitions, rows.entry_hashes)
        is_whole = self._options.key_based_batching or count > 1
        indices, runs = partition_runs(groups)
        if indices is not None:
            rows = rows.take(indices)
            numbers = take_numbers(numbers, indices)
        self._open(topic, sorted({group // count for group, _, _ in runs}))
        for group, start, end in runs:
            target = topic.targets[group // count]
            self._keep(target.producer, Kept(rows, numbers, start, end))
            self._send(target, target.add(rows, numbers, start, end, is_whole=is_whole))

    def _open(self, topic: _Topic, partitions: list[int]) -> None:
        new = [p for p in partitions if p not in topic.targets]
        if not new:
            return
        names = [topic.names[partition] for partition in new]
        absent = [name for name in names if name not in self._targets]
        if absent != names and self._options.guarantee is DeliveryGuarantee.IDEMPOTENT:
            raise BadRowError(
                f"Some rows name a topic, and others a partition of it, one of {names}:"
                " they would not be numbered in order. With"
                " `deliveryGuarantee=idempotent` name the topic alone, and its"
                " partitions in the column `__partition`."
            )
        if absent:
            self._check_topics(absent, topic.schema)
            attached = self._attach(absent, topic.schema)
            self._targets |= zip(absent, attached, strict=True)
        topic.targets |= {p: self._targets[topic.names[p]] for p in new}

    def _attach(
        self, topic_partitions: list[str], schema: SchemaInfo | None
    ) -> list[Target]:
        transaction, extended = self._transaction, list(topic_partitions)
        # All of it comes before the first entry, and nothing of it waits for the rest.
        calls: list[Callable[[], None]] = [
            partial(self._producers.open, topic_partitions, schema)
        ]
        if not self._targets:
            if self._announce is not None:
                calls.insert(0, self._announce)
            if self._marker is not None:
                marker_topic, _ = self._marker
                extended.append(marker_topic)
                calls.insert(0, partial(self._markers.open, [marker_topic]))
        if transaction is not None:
            calls.insert(0, partial(transaction.extend, extended))
        together(*calls)
        txn = None if transaction is None else transaction.txn
        return [
            Target(
                self._producers.get(name),
                self._options,
                batch_id=self._task.batch_id,
                txn=txn,
            )
            for name in topic_partitions
        ]

    def _send(self, target: Target, frames: Iterable[list[SendFrame]]) -> None:
        """Send frames, at once or with further frames: see ``_send_rest``."""
        try:
            for batch in frames:
                self._unsent.append((target.producer, batch))
                for frame in batch:
                    self._unsent_bytes += len(frame.data)
                if self._unsent_bytes >= SENT_TOGETHER_BYTES:
                    self._send_rest()
        except MessageTooLargeError as error:
            self._send_rest()
            raise MessageTooLargeError(
                size_bytes=error.size_bytes,
                limit_bytes=error.limit_bytes,
                chunk_bytes=error.chunk_bytes,
                topic_partition=target.producer.topic,
            ) from None

    def _send_rest(self) -> None:
        """Send what has not been sent, before anything is waited for."""
        if self._unsent:
            unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
            self._producers.send_all(unsent)

    def _refresh(self, totals: Totals) -> None:
        producers = list(self._producers.all)
        totals.rows = sum(p.stored.rows for p in producers)
        totals.size_bytes = sum(p.stored.size_bytes for p in producers)
        totals.duplicate_rows = sum(p.stored.duplicate_rows for p in producers)
        totals.broker_s = self._producers.waited_s
        totals.reconnects = self._producers.reconnects

    def _summary(self) -> WriteSummary:
        producers = list(self._producers.all)
        summary = WriteSummary(
            rows=sum(p.stored.rows for p in producers),
            size_bytes=sum(p.stored.size_bytes for p in producers),
            duplicate_rows=sum(p.stored.duplicate_rows for p in producers),
            took_s=self._statistics.elapsed_s,
            reconnects=self._producers.reconnects,
            topic_partitions=len(producers),
        )
        if self._transaction is not None:
            everywhere = [*self._markers.all, *producers]
            entries = {p.topic: p.stored.last_message for p in everywhere}
            summary = replace(summary, entries=entries)
        if self._options.guarantee is DeliveryGuarantee.NONE:
            summary = replace(summary, rows=self._rows)  # as far as we know
        return summary


class _Topic:
    """A topic that rows go to.

    Attributes:
        names: Full names of its topic partitions.
        targets: Those that are open, by number.
        rows: Rows of the task that went to it so far.
        schema: What they are written with; None for none.
        layout: Of a scalable topic, whose active segments are the topic partitions.
        buckets: The entry buckets of these; None where entries may have any keys.
    """

    def __init__(
        self,
        topic: TopicName,
        names: Sequence[str],
        options: WriteOptions,
        task: Task,
        schema: SchemaInfo | None,
        layout: Layout | None = None,
        began: Iterable[str] = (),
    ) -> None:
        self.names = names
        self.schema = schema
        self.layout = layout
        self.buckets: EntryBuckets | None = None
        self.targets: dict[int, Target] = {}
        self.rows = 0
        self._options = options
        self._first = task.number
        # Ids of segments that rows may name: all that were active during the write.
        self._ids = {TopicName.parse(name).partition_index or 0 for name in began}
        if layout is not None:
            self.follow(layout, {})
            return
        self.router = Router(
            len(names),
            options.hashing_scheme,
            options.message_routing_mode,
            first=task.number,
            run_length=_run_length(options),
            number=topic.partition_index,
        )

    def follow(self, layout: Layout, targets: Mapping[str, Target]) -> None:
        """Go on with the active segments of a layout.

        Args:
            layout: The layout.
            targets: Those of them that are open, by name.
        """
        self.layout = layout
        self.names = [segment.name for segment in layout.active]
        active = {segment.segment_id for segment in layout.active}
        self._ids |= active
        self.targets = {
            index: targets[name]
            for index, name in enumerate(self.names)
            if name in targets
        }
        self.router = SegmentRouter(
            layout.topic,
            [(s.segment_id, s.hash_start, s.hash_end) for s in layout.active],
            sealed=self._ids - active,
            hash_shift=None if layout.key_rule is None else layout.key_rule.value,
            first=self._first,
            run_length=_run_length(self._options),
        )
        self.buckets = None
        if layout.key_rule is KeyRule.HIGH_BITS:
            self.buckets = EntryBuckets([s.bucket_splits for s in layout.active])


def _new_pool(options: WriteOptions) -> ConnectionPool:
    """Return the connections of a task; its own for an access mode but Shared."""
    if _ACCESS_MODES[options.access_mode] is ProducerAccessMode.SHARED:
        return shared_pool(options.client)
    # A broker that fences a producer closes the whole connection.
    return ConnectionPool(options.client)


def _settings(
    options: WriteOptions, task: Task, transaction: TaskTransaction | None
) -> ProducerSettings:
    name = options.producer_name or ""
    if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
        name = producer_name(options.idempotence_id or "", task.number, task.batch_id)
    settings = ProducerSettings(
        name=name,
        access_mode=_ACCESS_MODES[options.access_mode],
        properties=dict(options.producer_properties),
        send_timeout_s=options.send_timeout_s,
        repeats_ids=options.initial_sequence_id is not None,
        resend=_RESEND[options.guarantee],
        follows_migration=options.guarantee in _FOLLOWING,
        transactional=transaction is not None,
        new_encryption=encryptors(options.encryption, warn_once),
    )
    if transaction is None:
        return settings
    return replace(
        settings,
        before_send=partial(
            transaction.confirm, max_age_s=options.client.patience.confirmed_s
        ),
        before_resend=transaction.confirm,
    )


def _run_length(options: WriteOptions) -> int:
    """Return how many rows without a key stay on a topic partition."""
    if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
        return _IDEMPOTENT_RUN
    return options.batching_max_messages
