"""What one task does with its rows: encodes, routes, cuts and sends them. Executors."""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.batches import Batch, BatchCutter
from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.arrow.routing import Router, partition_runs
from pulsar_spark.client.exactly_once import TaskTransaction
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.client.producers import (
    Producers,
    ProducerSettings,
    Resend,
    TopicProducer,
)
from pulsar_spark.client.retry import Retry
from pulsar_spark.client.targets import find_targets
from pulsar_spark.errors import (
    BadRowError,
    BrokerError,
    IdempotenceError,
    MessageTooLargeError,
    OptionError,
    PulsarSparkError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.spark.statistics import Kind, TaskStatistics, Totals
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.commands import ProducerAccessMode, TxnId
from pulsar_spark.wire.compression import CompressionType
from pulsar_spark.wire.outgoing import (
    EntryEncoder,
    SendFrame,
    max_entry_bytes,
    unbatched,
)

logger = logging.getLogger("pulsar_spark.spark")

#: Rows of one task and micro-batch are numbered from here on, micro-batches apart: the
#: 2^32 rows are more than a task can hold.
_ROWS_OF_A_BATCH = 1 << 32

#: Where a replay must find rows where they went the first time, no option that may have
#: changed meanwhile has a say.
_IDEMPOTENT_RUN = 1000

#: A task that has not sent for longer asks whether its transaction is still open.
_CONFIRMED_S = 1.0

_RESEND = {
    DeliveryGuarantee.NONE: Resend.NEVER,
    DeliveryGuarantee.AT_LEAST_ONCE: Resend.ALWAYS,
    DeliveryGuarantee.IDEMPOTENT: Resend.ALWAYS,  # the broker drops what it has
    DeliveryGuarantee.EXACTLY_ONCE: Resend.IF_DEDUPLICATED,
}

_ACCESS_MODES = {
    "Shared": ProducerAccessMode.SHARED,
    "Exclusive": ProducerAccessMode.EXCLUSIVE,
    "WaitForExclusive": ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
    "ExclusiveWithFencing": ProducerAccessMode.EXCLUSIVE_WITH_FENCING,
}


_WRITING = Kind("written", "encoding and sending")


@dataclass(frozen=True)
class Task:
    """Which task of a write this is.

    Attributes:
        number: Of the input partition, from 0.
        attempt: How often it had been tried.
        batch_id: The micro-batch; 0 in a batch query.
        query_id: The stream; "" in a batch query.
    """

    number: int
    attempt: int = 0
    batch_id: int = 0
    query_id: str = ""


@dataclass(frozen=True)
class Written:
    """What a task wrote.

    Attributes:
        rows: Rows that are stored now.
        size_bytes: Bytes of the entries that hold them.
        duplicate_rows: Rows that the broker had already.
        topic_partitions: To how many topic partitions.
        entry: One of them, and the place of an entry there; the place is None where no
            receipt named one.
    """

    rows: int = 0
    size_bytes: int = 0
    duplicate_rows: int = 0
    topic_partitions: int = 0
    entry: tuple[str, MessageId | None] = ("", None)


class TaskWriter:
    """Writes the rows of one task.

    Args:
        options: How to write.
        task: Which task this is.
        targets: Topic partitions of topics that are known already.
        transaction: The transaction to write in, None for none.
        check_topics: Called with the topic partitions that come into play, before
            anything is sent to them; may refuse.
        marker: A topic and the message to send there behind all rows.
    """

    def __init__(
        self,
        options: WriteOptions,
        task: Task,
        targets: Mapping[TopicName, Sequence[str]],
        *,
        transaction: TaskTransaction | None = None,
        check_topics: Callable[[list[str]], None] = lambda topics: None,
        marker: tuple[str, bytes] | None = None,
    ) -> None:
        self._options = options
        self._task = task
        self._transaction = transaction
        self._check_topics = check_topics
        self._marker = marker
        self._known = dict(targets)
        self._pool = _pool(options)
        self._lookup = TopicLookup(self._pool)
        self._settings = _settings(options, task, transaction)
        self._producers = Producers(self._pool, self._settings)
        self._topics: dict[TopicName, _Topic] = {}
        self._targets: dict[str, _Target] = {}  # by name of the topic partition
        self._encoder: RowEncoder | None = None
        self._rows = 0  # taken so far
        self._statistics = TaskStatistics(
            _WRITING,
            f"task {task.number}",
            options.client.stats_interval_s,
            self._refresh,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Sends all rows; returns when they are stored, unless nothing is guaranteed.

        Raises:
            BadRowError: A row that cannot be written.
            MessageTooLargeError: A row that no entry can hold.
            TransactionLostError: The transaction is over.
            PulsarSparkError: As ``client.producers.Producers.send`` and ``open``.
        """
        try:
            for batch in self._promptly(batches):
                self._add(batch)
            self._cut_rest()
            if self._marker is not None:
                self._mark(*self._marker)
            if self._options.guarantee is not DeliveryGuarantee.NONE:
                self._producers.flush()
            if self._transaction is not None:
                self._transaction.confirm()
            return self._written()
        except BrokerError as error:
            raise self._explained(error) from error.__cause__
        finally:
            self._statistics.end()
            self._producers.close()
            if self._pool is not shared_pool(self._options.client):
                self._pool.close()

    def _explained(self, error: BrokerError) -> BrokerError:
        """What is behind a refusal: nothing is taken for a transaction that is over."""
        if self._transaction is not None:
            try:
                self._transaction.confirm()
            except TransactionLostError as lost:
                return lost
            except PulsarSparkError as unknown:
                logger.debug("%s", unknown)
        return error

    def _promptly(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; where one keeps us waiting, the rows before it go out first."""
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
            self._end_batch(target)

    def _mark(self, topic: str, message: bytes) -> None:
        # No option that is about rows has a say: all tasks share the topic, and who
        # reads the message knows of no options. Twice does no harm, so that it may be
        # sent again without any doubt.
        settings = replace(
            self._settings,
            access_mode=ProducerAccessMode.SHARED,
            resend=Resend.ALWAYS,
        )
        producers = Producers(shared_pool(self._options.client), settings)
        assert self._transaction is not None
        try:
            self._transaction.extend([topic])
            producers.open([topic])
            producer = producers.get(topic)
            entry = producer.plain_entry(message, txn=self._transaction.txn)
            producers.send(producer, entry)
            producers.flush()
        finally:
            producers.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._options.key_encoding == "bytes":
            batch = _with_bytes_as_keys(batch)
        if self._encoder is None:
            self._encoder = RowEncoder(batch.schema)
        for rows in self._up_to_large_ones(self._encoder.encode(batch)):
            self._add_rows(rows)

    def _add_rows(self, rows: EncodedRows) -> None:
        first_row, self._rows = self._rows, self._rows + len(rows)
        numbers: Sequence[int] = range(first_row, self._rows)
        by_topic: dict[TopicName, pa.Int64Array | None]
        if self._options.topic is not None:
            by_topic = {self._options.topic: None}
        else:
            by_topic = _by_topic(rows, first_row)
        self._find(by_topic)
        for topic, indices in by_topic.items():
            if indices is None:
                self._add_to_topic(self._topics[topic], rows, numbers)
            else:
                self._add_to_topic(
                    self._topics[topic], rows.take(indices), _chosen(numbers, indices)
                )

    def _up_to_large_ones(self, rows: EncodedRows) -> Iterator[EncodedRows]:
        """The rows, cut behind each that might not fit into an entry.

        Rows go out by topic partition. Of those behind one that raises none may be out,
        so such a row is sent before those behind it are looked at.
        """
        sizes = pc.binary_length(rows.messages)
        # Its metadata is not counted here: half an entry is far more than that.
        limit = pa.scalar(self._max_entry_bytes // 2, sizes.type)
        large = pc.indices_nonzero(pc.greater(sizes, limit)).to_pylist()
        if not large:
            yield rows
            return
        begin = 0
        for end in [row + 1 for row in large]:
            yield rows.take(pa.array(range(begin, end), pa.int64()))
            self._cut_rest()
            begin = end
        if begin < len(rows):
            yield rows.take(pa.array(range(begin, len(rows)), pa.int64()))

    @cached_property
    def _max_entry_bytes(self) -> int:
        retry = Retry(self._options.client, self._options.client.operation_timeout_s)
        while True:
            try:
                service = self._pool.service()
            except PulsarSparkError as error:
                retry.pause(error)
            else:
                return max_entry_bytes(service.max_message_size_bytes)

    def _find(self, topics: Iterable[TopicName]) -> None:
        """Finds out about topics before a row goes to any of them."""
        new = [topic for topic in topics if topic not in self._topics]
        absent = [topic for topic in new if topic not in self._known]
        if absent:
            self._known |= find_targets(
                self._lookup, absent, auto_creation=self._options.topic_auto_creation
            )
        for topic in new:
            self._topics[topic] = _Topic(self._known[topic], self._options, self._task)

    def _add_to_topic(
        self, topic: _Topic, rows: EncodedRows, numbers: Sequence[int]
    ) -> None:
        partitions = topic.router.route(rows, topic.rows)
        topic.rows += len(rows)
        groups, count = partitions, 1
        if self._options.key_based_batching:
            groups, count = _with_keys(partitions, rows)
        indices, runs = partition_runs(groups)
        if indices is not None:
            rows = rows.take(indices)
            numbers = _chosen(numbers, indices)
        self._open(topic, sorted({group // count for group, _, _ in runs}))
        for group, start, end in runs:
            target = topic.targets[group // count]
            self._add_run(target, rows, numbers, start, end)
            if self._options.key_based_batching:
                self._end_batch(target)

    def _add_run(
        self,
        target: _Target,
        rows: EncodedRows,
        numbers: Sequence[int],
        start: int,
        end: int,
    ) -> None:
        # All rows are sent, also those that the broker has: what it knows of may only
        # be on its way to storage, and could still fail. But no entry holds some that
        # it has and some that it has not, or it would drop all of them.
        known = bisect.bisect_right(numbers, target.known_row, start, end)
        for begin, stop, is_alone in (
            *_pieces(rows, start, known, self._options),
            *_pieces(rows, known, end, self._options),
        ):
            if is_alone or (begin == known and target.known_row >= 0):
                self._end_batch(target)
            if is_alone:
                self._send(target, target.single(rows, begin, numbers[begin]))
            else:
                for batch in target.cutter.add(rows, numbers, begin, stop):
                    self._send(target, target.frames(batch))
        if known < end:
            target.known_row = -1

    def _end_batch(self, target: _Target) -> None:
        for batch in target.cutter.finish():
            self._send(target, target.frames(batch))

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
            self._check_topics(absent)
            self._targets |= zip(absent, self._attach(absent), strict=True)
        topic.targets |= {p: self._targets[topic.names[p]] for p in new}

    def _attach(self, topic_partitions: list[str]) -> list[_Target]:
        txn = None
        if self._transaction is not None:
            self._transaction.extend(topic_partitions)
            txn = self._transaction.txn
        self._producers.open(topic_partitions)
        return [
            _Target(self._producers.get(name), self._options, self._task, txn)
            for name in topic_partitions
        ]

    def _send(self, target: _Target, frames: Iterable[SendFrame]) -> None:
        try:
            for frame in frames:
                if self._transaction is not None:
                    self._transaction.confirm(max_age_s=_CONFIRMED_S)
                self._producers.send(target.producer, frame)
        except MessageTooLargeError as error:
            raise MessageTooLargeError(
                size_bytes=error.size_bytes,
                limit_bytes=error.limit_bytes,
                topic_partition=target.producer.topic,
            ) from None

    def _refresh(self, totals: Totals) -> None:
        producers = list(self._producers.all)
        totals.rows = sum(p.stored_rows for p in producers)
        totals.size_bytes = sum(p.stored_bytes for p in producers)
        totals.duplicate_rows = sum(p.duplicate_rows for p in producers)
        totals.broker_s = self._producers.waited_s
        totals.reconnects = self._producers.reconnects

    def _written(self) -> Written:
        producers = list(self._producers.all)
        written = Written(
            rows=sum(p.stored_rows for p in producers),
            size_bytes=sum(p.stored_bytes for p in producers),
            duplicate_rows=sum(p.duplicate_rows for p in producers),
            topic_partitions=len(producers),
            entry=max(
                ((p.topic, p.last_stored) for p in producers),
                key=lambda entry: entry[1] is not None,
                default=("", None),
            ),
        )
        if self._options.guarantee is DeliveryGuarantee.NONE:
            written = replace(written, rows=self._rows)  # as far as we know
        return written


class _Topic:
    """A topic that rows go to.

    Attributes:
        names: Full names of its topic partitions.
        targets: Those that are open, by number.
        rows: Rows of the task that went to it so far.
    """

    def __init__(self, names: Sequence[str], options: WriteOptions, task: Task) -> None:
        self.names = names
        self.targets: dict[int, _Target] = {}
        self.rows = 0
        self.router = Router(
            len(names),
            options.hashing_scheme,
            options.message_routing_mode,
            first=task.number,
            run_length=_run_length(options),
        )


class _Target:
    """A topic partition that rows go to: cuts them and numbers the entries.

    Attributes:
        producer: Sends them.
        cutter: Collects rows for the next entry.
        known_row: Number of the last row that the broker has heard of, -1 for none.
    """

    def __init__(
        self,
        producer: TopicProducer,
        options: WriteOptions,
        task: Task,
        transaction: TxnId | None,
    ) -> None:
        self.producer = producer
        limit = producer.max_message_size_bytes
        self._encoder = EntryEncoder(
            producer.producer_id,
            producer.name,
            limit,
            CompressionType[options.compression_type],
            transaction,
            _chunk_bytes(options, limit),
        )
        # The first row's keys stand in the entry's metadata, too, and what cannot be
        # compressed grows a little: a batch of several rows must fit all the same.
        self.cutter = BatchCutter(
            options.batching_max_messages if options.batching_enabled else 1,
            min(options.batching_max_bytes, self._encoder.max_entry_bytes // 3),
        )
        self._base: int | None = None
        self.known_row = -1
        self._next_sequence_id = producer.last_sequence_id + 1
        if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
            self._base = task.batch_id * _ROWS_OF_A_BATCH
            self.known_row = producer.last_sequence_id - self._base
            if self.known_row >= _ROWS_OF_A_BATCH:
                raise IdempotenceError(
                    options.idempotence_id or "",
                    producer.topic,
                    (task.batch_id, producer.last_sequence_id // _ROWS_OF_A_BATCH),
                )
        elif options.initial_sequence_id is not None:
            self._next_sequence_id = options.initial_sequence_id + 1

    def frames(self, batch: Batch) -> Iterator[SendFrame]:
        """The frame of a batch; several where its one row has to be cut."""
        ids = self._sequence_ids(batch.rows, batch.first_row, batch.last_row)
        frame = self._encoder.batch(
            batch.payload,
            batch.rows,
            ids,
            _now_ms(),
            partition_key=batch.partition_key,
            key_is_base64=batch.key_is_base64,
            ordering_key=batch.ordering_key,
        )
        if frame is not None:
            yield frame
        else:  # a row that is larger than any batch
            metadata, payload = unbatched(memoryview(batch.payload))
            yield from self._encoder.single(metadata, payload, ids[0], _now_ms())

    def single(self, rows: EncodedRows, at: int, number: int) -> Iterator[SendFrame]:
        """The frames of a row that is not batched."""
        metadata, payload = rows.alone(at)
        sequence_id, _ = self._sequence_ids(1, number, number)
        yield from self._encoder.single(metadata, payload, sequence_id, _now_ms())

    def _sequence_ids(self, rows: int, first: int, last: int) -> tuple[int, int]:
        if self._base is not None:
            return self._base + first, self._base + last
        lowest = self._next_sequence_id
        self._next_sequence_id += rows
        return lowest, self._next_sequence_id - 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _pool(options: WriteOptions) -> ConnectionPool:
    if _ACCESS_MODES[options.access_mode] is ProducerAccessMode.SHARED:
        return shared_pool(options.client)
    # A producer that is fenced learns it when the broker cuts its connection.
    return ConnectionPool(options.client)


def _settings(
    options: WriteOptions, task: Task, transaction: TaskTransaction | None
) -> ProducerSettings:
    name = options.producer_name or ""
    if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
        name = f"{options.idempotence_id}-{task.number}"
    settings = ProducerSettings(
        name=name,
        access_mode=_ACCESS_MODES[options.access_mode],
        properties=dict(options.producer_properties),
        window_bytes=options.client.memory_limit_bytes,
        send_timeout_s=options.send_timeout_s,
        resend=_RESEND[options.guarantee],
        transactional=transaction is not None,
    )
    if transaction is None:
        return settings
    return replace(settings, before_resend=transaction.confirm)


def _run_length(options: WriteOptions) -> int:
    """Rows without keys that go to one topic partition, before the next one's turn."""
    if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
        return _IDEMPOTENT_RUN
    return options.batching_max_messages


def _chunk_bytes(options: WriteOptions, limit_bytes: int) -> int:
    if not options.chunking_enabled:
        return 0
    wanted = options.chunk_max_message_size
    return wanted if wanted > 0 else limit_bytes


def _with_bytes_as_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; keys that are text are the bytes of that text."""
    at = batch.schema.get_field_index("__key")
    if at < 0:
        return batch
    columns = batch.columns
    columns[at] = columns[at].cast(pa.binary())
    schema = batch.schema.set(at, pa.field("__key", pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _by_topic(
    rows: EncodedRows, first_row: int
) -> dict[TopicName, pa.Int64Array | None]:
    """Each topic with the indices of its rows, None for all of them."""
    assert rows.topics is not None
    if rows.topics.null_count:
        is_null = rows.topics.is_null()
        row = first_row + pc.index(is_null, pa.scalar(True)).as_py()
        raise BadRowError(
            f"Row {row} of a task has no topic: its column `__topic` is NULL. Fill it, "
            "leave such rows out, or set the option `topic`, which holds for all rows."
        )
    names = rows.topics.dictionary_encode()
    topics = [_topic_name(name) for name in names.dictionary.to_pylist()]
    # One topic may be named in several ways.
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    if len(numbers) == 1:
        return {topics[0]: None}
    of_names = pa.array([numbers[topic] for topic in topics], pa.int32())
    of_rows = of_names.take(names.indices)
    found: dict[TopicName, pa.Int64Array | None] = {}
    for topic, number in numbers.items():
        is_its_own = pc.equal(of_rows, pa.scalar(number, pa.int32()))
        found[topic] = pc.indices_nonzero(is_its_own).cast(pa.int64())
    return found


def _topic_name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except OptionError as error:
        raise BadRowError(f"`__topic` of a row: {error.message}") from None


# Numbers are scalars of pyarrow: others it converts slowly, see ``arrow.encode``.


def _chosen(numbers: Sequence[int], indices: pa.Int64Array) -> Sequence[int]:
    """The numbers of some rows."""
    if isinstance(numbers, range):
        return _view(pc.add(indices, pa.scalar(numbers.start, pa.int64())))
    every = pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]
    )
    return _view(every.take(indices))


def _view(numbers: pa.Int64Array) -> Sequence[int]:
    """The numbers, without an object for each."""
    view = memoryview(numbers.buffers()[1]).cast("q")
    return view[numbers.offset : numbers.offset + len(numbers)]


def _with_keys(partitions: pa.Array, rows: EncodedRows) -> tuple[pa.Array, int]:
    """Topic partition and key as one number, and what the former was multiplied by."""
    key_columns = [
        column.cast(pa.binary())
        for column in (rows.ordering_keys, rows.keys)
        if column is not None
    ]
    if not key_columns:
        return partitions, 1
    keys = pc.fill_null(pc.coalesce(*key_columns), b"").dictionary_encode()
    count = len(keys.dictionary)
    factor = pa.scalar(count, pa.int64())
    numbers = pc.multiply(partitions.cast(pa.int64()), factor)
    return pc.add(numbers, keys.indices.cast(pa.int64())), count


def _pieces(
    rows: EncodedRows, start: int, end: int, options: WriteOptions
) -> Iterator[tuple[int, int, bool]]:
    """Rows that may share an entry, and those that must be alone in theirs."""
    if not options.batching_enabled:
        yield from ((row, row + 1, True) for row in range(start, end))
        return
    delayed: Iterable[int] = ()
    if rows.deliver_at_ms is not None:
        valid = rows.deliver_at_ms.slice(start, end - start).is_valid()
        delayed = [start + row for row in pc.indices_nonzero(valid).to_pylist()]
    for row in delayed:
        if start < row:
            yield start, row, False
        yield row, row + 1, True
        start = row + 1
    if start < end:
        yield start, end, False
