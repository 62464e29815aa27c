"""Messages -> RecordBatches, a column at a time and an entry at a time.

Each column knows how to read its values off one :class:`Entry`. A builder collects
these values over many entries and turns them into one RecordBatch; a column that nobody
asked for costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.schema import COLUMN_TYPES, TIMESTAMP
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.offsets import MessageId, encode_message_id, encode_varint
from pulsar_spark.wire.entries import Entry

#: The values of one column for the messages of one entry.
Values = Sequence[Any]

#: What a column needs read off the messages of a batch, see ``wire.entries.FIELDS``.
_FIELDS = {
    "__key": "partition_key",
    "__orderingKey": "ordering_key",
    "__eventTime": "event_time",
    "__sequenceId": "sequence_id",
    "__messageProperties": "properties",
}

#: Milliseconds since 1970 that still fit into a timestamp of microseconds.
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


class RecordBatchBuilder:
    """Collects entries of one topic partition and gives them back as RecordBatches.

    Args:
        schema: The columns wanted, in order; see ``arrow_schema``.
        topic_partition: Full name of the topic partition, the value of ``__topic``.
        partition: Its number, the value of ``__partition``; -1 where the topic is not
            partitioned.
        max_rows: No RecordBatch has more rows than this.
        max_bytes: No RecordBatch has more bytes of messages than this, except for one
            that holds a single larger message.
    """

    def __init__(
        self,
        schema: pa.Schema,
        topic_partition: str,
        partition: int,
        *,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self.schema = schema
        self._topic_partition = topic_partition
        self._columns = [
            _column(name, topic_partition, partition) for name in schema.names
        ]
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._size_bytes = 0
        self._entries: list[tuple[int, tuple[int, int]]] = []  # first row, position
        for column in self._columns:
            column.clear()

    @property
    def fields(self) -> frozenset[str]:
        """What entries must bring, see ``wire.entries.decode_entry``."""
        return frozenset(_FIELDS[name] for name in self.schema.names if name in _FIELDS)

    @property
    def rows(self) -> int:
        """Rows collected and not given back yet."""
        return self._rows

    def add(self, entry: Entry) -> Iterator[pa.RecordBatch]:
        """Takes an entry; yields the RecordBatches that are full because of it.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        for piece in self._pieces(entry):
            if self._rows and not self._has_room_for(piece):
                yield self.finish()
            self._append(piece)

    def finish(self) -> pa.RecordBatch:
        """Everything collected so far, as one RecordBatch; the builder is empty then.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        arrays = []
        for column, field in zip(self._columns, self.schema, strict=True):
            try:
                arrays.append(column.array(self._rows))
            except (pa.ArrowException, OverflowError) as error:
                raise self._misfit(field, column, error) from None
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _append(self, entry: Entry) -> None:
        self._entries.append((self._rows, entry.position))
        self._rows += len(entry)
        self._size_bytes += entry.size_bytes
        for column in self._columns:
            column.append(entry)

    def _has_room_for(self, entry: Entry) -> bool:
        return (
            self._rows + len(entry) <= self._max_rows
            and self._size_bytes + entry.size_bytes <= self._max_bytes
        )

    def _pieces(self, entry: Entry) -> Iterable[Entry]:
        """The entry itself, or its parts where it is too large for a RecordBatch."""
        if len(entry) <= self._max_rows and (
            entry.size_bytes <= self._max_bytes or len(entry) <= 1
        ):
            return (entry,) if len(entry) else ()
        middle = len(entry) // 2
        return (
            *self._pieces(entry.cut(0, middle)),
            *self._pieces(entry.cut(middle, len(entry))),
        )

    def _misfit(
        self, field: pa.Field, column: _Column, error: Exception
    ) -> CorruptEntryError:
        row = column.first_misfit()
        index = bisect_right(self._entries, row, key=lambda first: first[0]) - 1
        return CorruptEntryError(
            f"its {field.name} does not fit {field.type} ({error}). Leave that column "
            "out with `metadataColumns`.",
            topic_partition=self._topic_partition,
            message_id=str(MessageId(*self._entries[index][1])),
        )


class _Column:
    """Collects plain Python values; one conversion to Arrow at the end."""

    def __init__(self, type_: pa.DataType, values: Callable[[Entry], Values]) -> None:
        self._type = type_
        self._read = values
        self._values: list[Any] = []

    def clear(self) -> None:
        self._values = []

    def append(self, entry: Entry) -> None:
        self._values.extend(self._read(entry))

    def array(self, rows: int) -> pa.Array:
        del rows
        return pa.array(self._values, self._type)

    def first_misfit(self) -> int:
        """The row of the first value that made :meth:`array` fail."""
        for row, value in enumerate(self._values):
            try:
                pa.array([value], self._type)
            except (pa.ArrowException, OverflowError):
                return row
        return 0


class _ConstantColumn(_Column):
    """The same value in each row of the reader."""

    def __init__(self, type_: pa.DataType, value: Any) -> None:
        super().__init__(type_, lambda entry: ())
        self._scalar = pa.scalar(value, type_)

    def array(self, rows: int) -> pa.Array:
        return pa.repeat(self._scalar, rows)


class _TimestampColumn(_Column):
    """Milliseconds since 1970, as Pulsar keeps them, to Spark's microseconds."""

    def array(self, rows: int) -> pa.Array:
        del rows
        return pa.array(self._values, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)

    def first_misfit(self) -> int:
        return next(
            row
            for row, value in enumerate(self._values)
            if value is not None and abs(value) > _MAX_TIMESTAMP_MS
        )


class _PropertiesColumn(_Column):
    """Key-value pairs, laid out as Arrow wants a map: offsets, all keys, all values.

    Never null: a message without properties has an empty map. Where a producer sent a
    key twice, its last value counts, as in the official clients.
    """

    def clear(self) -> None:
        self._offsets = [0]
        self._keys: list[str | bytes] = []
        self._items: list[str | bytes] = []

    def append(self, entry: Entry) -> None:
        offsets, keys = self._offsets, self._keys
        for properties in entry.fields["properties"]:
            if properties:
                keys.extend(properties)
                self._items.extend(properties.values())
            offsets.append(len(keys))

    def array(self, rows: int) -> pa.Array:
        del rows
        return pa.MapArray.from_arrays(
            pa.array(self._offsets, pa.int32()),
            pa.array(self._keys, pa.string()),
            pa.array(self._items, pa.string()),
            self._type,
        )

    def first_misfit(self) -> int:
        # Text that is not UTF-8 is bytes, see ``wire.entries.FIELDS``.
        for texts in (self._keys, self._items):
            for place, text in enumerate(texts):
                if not isinstance(text, str):
                    return bisect_right(self._offsets, place) - 1
        return 0


def _column(name: str, topic_partition: str, partition: int) -> _Column:
    type_ = COLUMN_TYPES[name]
    if name == "__topic":
        return _ConstantColumn(type_, topic_partition)
    if name == "__partition":
        return _ConstantColumn(type_, partition if partition >= 0 else None)
    if name == "__messageProperties":
        return _PropertiesColumn(type_, lambda entry: ())
    if name == "__messageId":
        return _Column(type_, partial(_message_ids, partition))
    kind = _TimestampColumn if type_ == TIMESTAMP else _Column
    return kind(type_, _READERS[name])


def _message_ids(partition: int, entry: Entry) -> Values:
    """What the Java client's ``MessageId.toByteArray()`` gives for each message.

    ::

        ledger entry [partition] | batch_index   | batch_size
        head, one an entry       | one an index  | tail, one an entry
    """
    if entry.first_chunk:
        first = MessageId(*entry.first_chunk, partition=partition)
        last = MessageId(*entry.position, partition=partition, first_chunk=first)
        return [encode_message_id(last, java=True)] * len(entry)
    head = (
        _encoded_ledger(entry.ledger_id)
        + b"\x10"
        + encode_varint(entry.entry_id)
        + _encoded_part(partition=partition)
    )
    tail = _encoded_part(batch_size=entry.batch_size)
    if not entry.batch_size:
        return [head + tail] * len(entry)
    if entry.batch_size <= _INDEXES_KEPT:
        indexes = _encoded_indexes(entry.batch_size)
        if len(entry) == entry.batch_size:
            return [head + index + tail for index in indexes[: entry.batch_size]]
        return [head + indexes[index] + tail for index in entry.batch_indexes]
    # Only its metadata says how large a compacted batch was: not to be trusted.
    return [
        head + b"\x20" + encode_varint(index) + tail for index in entry.batch_indexes
    ]


@lru_cache(maxsize=16)
def _encoded_ledger(ledger_id: int) -> bytes:
    return b"\x08" + encode_varint(ledger_id)


@lru_cache(maxsize=4096)
def _encoded_part(**field: Any) -> bytes:
    """One field of a message id alone, to be appended to those before it."""
    with_field = encode_message_id(MessageId(0, 0, **field), java="batch_size" in field)
    return with_field[len(encode_message_id(MessageId(0, 0))) :]


#: Of larger batches nothing is kept. Clients make batches of up to 1000 messages,
#: unless they are told otherwise.
_INDEXES_KEPT = 10_000

_known_indexes: list[bytes] = []


def _encoded_indexes(count: int) -> list[bytes]:
    """The field ``batch_index`` for 0 to at least ``count - 1``, encoded."""
    missing = range(len(_known_indexes), count)
    _known_indexes.extend(_encoded_part(batch_index=index) for index in missing)
    return _known_indexes


def _publish_times(entry: Entry) -> Values:
    return [entry.metadata.publish_time] * len(entry)


def _producer_names(entry: Entry) -> Values:
    return [entry.metadata.producer_name] * len(entry)


def _sequence_ids(entry: Entry) -> Values:
    return [_signed(number) for number in entry.fields["sequence_id"]]


def _signed(number: int) -> int:
    """An unsigned 64-bit number as the signed one that Spark's BIGINT can hold."""
    return number - 2**64 if number >= 2**63 else number


def _schema_versions(entry: Entry) -> Values:
    # The default registry counts in 8 bytes; old data may carry 64, the first 8 count.
    version = entry.metadata.schema_version[:8]
    return [int.from_bytes(version, "big", signed=True) if version else None] * len(
        entry
    )


def _redelivery_counts(entry: Entry) -> Values:
    return [entry.redelivery_count] * len(entry)


def _broker_publish_times(entry: Entry) -> Values:
    broker = entry.broker_metadata
    known = broker is not None and broker.HasField("broker_timestamp")
    return [broker.broker_timestamp if broker and known else None] * len(entry)


def _indexes(entry: Entry) -> Values:
    broker = entry.broker_metadata
    if broker is None or not broker.HasField("index"):
        return [None] * len(entry)
    # The broker numbers the last message of the entry.
    first = broker.index - max(entry.batch_size, 1) + 1
    return [first + index for index in entry.batch_indexes]


def _replicated_from(entry: Entry) -> Values:
    return [entry.metadata.replicated_from or None] * len(entry)


def _deliver_at_times(entry: Entry) -> Values:
    return [entry.metadata.deliver_at_time or None] * len(entry)


_READERS: dict[str, Callable[[Entry], Values]] = {
    "value": lambda entry: entry.payloads,
    "__key": lambda entry: entry.fields["partition_key"],
    "__publishTime": _publish_times,
    "__eventTime": lambda entry: entry.fields["event_time"],
    "__orderingKey": lambda entry: entry.fields["ordering_key"],
    "__producerName": _producer_names,
    "__sequenceId": _sequence_ids,
    "__schemaVersion": _schema_versions,
    "__redeliveryCount": _redelivery_counts,
    "__brokerPublishTime": _broker_publish_times,
    "__index": _indexes,
    "__replicatedFrom": _replicated_from,
    "__deliverAtTime": _deliver_at_times,
}
