"""Messages -> RecordBatches, a column at a time and an entry at a time.

Each column knows how to read its values off one :class:`Entry`. A builder collects
these values over many entries and turns them into one RecordBatch; a column that nobody
asked for costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.schema import COLUMN_TYPES, TIMESTAMP
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.message_id import MessageId, encode_message_id, encode_varint
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

#: How Pulsar keeps times.
_PULSAR_TIME = pa.timestamp("ms", tz="UTC")


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

    def __init__(self, type_: pa.DataType, read: Callable[[Entry], Any]) -> None:
        self._type = type_
        self._read = read
        self._values: list[Any] = []

    def clear(self) -> None:
        self._values = []

    def append(self, entry: Entry) -> None:
        self._values.extend(self._read(entry))

    def array(self, rows: int) -> pa.Array:
        del rows
        return _arrow(self._values, self._type)

    def first_misfit(self) -> int:
        """The row of the first value that made :meth:`array` fail."""
        return _first_misfit(self._values, self._type)


def _arrow(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values as Arrow; times are in milliseconds, as Pulsar keeps them."""
    if type_ == TIMESTAMP:
        return pa.array(values, _PULSAR_TIME).cast(TIMESTAMP)
    return pa.array(values, type_)


def _first_misfit(values: Sequence[Any], type_: pa.DataType) -> int:
    for number, value in enumerate(values):
        try:
            _arrow([value], type_)
        except (pa.ArrowException, OverflowError):
            return number
    return 0


class _EntryColumn(_Column):
    """One value an entry, the same for each of its messages."""

    def clear(self) -> None:
        super().clear()
        self._ends: list[int] = []

    def append(self, entry: Entry) -> None:
        self._values.append(self._read(entry))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(entry))

    def array(self, rows: int) -> pa.Array:
        if not rows:
            return pa.array([], self._type)
        # The ends as a plain list: pyarrow 15 takes no array of them.
        values = _arrow(self._values, self._type)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, values))

    def first_misfit(self) -> int:
        number = super().first_misfit()
        return self._ends[number - 1] if number else 0


class _ConstantColumn(_Column):
    """The same value in each row of the reader."""

    def __init__(self, type_: pa.DataType, value: Any) -> None:
        super().__init__(type_, lambda entry: ())
        self._scalar = pa.scalar(value, type_)

    def array(self, rows: int) -> pa.Array:
        return pa.repeat(self._scalar, rows)


class _MessageIdColumn(_Column):
    """What the Java client's ``MessageId.toByteArray()`` gives for each message.

    ::

        ledger entry [partition] | batch_index   | batch_size
        head, one an entry       | one an index  | tail, one an entry

    The ids of a whole batch are one join and a few ranges of offsets.
    """

    def __init__(self, type_: pa.DataType, partition: int) -> None:
        super().__init__(type_, lambda entry: ())
        self._partition = partition

    def clear(self) -> None:
        self._offsets = [0]
        self._data: list[bytes] = []

    def append(self, entry: Entry) -> None:
        size = entry.batch_size
        if len(entry) == size <= _INDEXES_KEPT:
            head, tail = _id_head(self._partition, entry), _id_tail(size)
            self._data.append(head + (tail + head).join(_id_indexes(size)) + tail)
            self._append_offsets(len(head) + len(tail), size)
            return
        ids = _message_ids(self._partition, entry)
        self._data += ids
        ends = accumulate(map(len, ids), initial=self._offsets.pop())
        self._offsets += ends

    def _append_offsets(self, size_bytes: int, count: int) -> None:
        end = self._offsets[-1]
        for first, last, index_bytes in ((0, 128, 2), (128, _INDEXES_KEPT, 3)):
            part = min(count, last) - first
            if part > 0:
                step = size_bytes + index_bytes
                self._offsets += range(end + step, end + part * step + 1, step)
                end += part * step

    def array(self, rows: int) -> pa.Array:
        offsets = pa.array(self._offsets, pa.int32()).buffers()[1]
        data = pa.py_buffer(b"".join(self._data))
        return pa.Array.from_buffers(self._type, rows, [None, offsets, data])

    def first_misfit(self) -> int:
        return 0


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
        keys, append = self._keys, self._offsets.append
        end = len(keys)
        for properties in entry.fields["properties"]:
            if properties:
                keys.extend(properties)
                self._items.extend(properties.values())
                end = len(keys)
            append(end)

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
        return _MessageIdColumn(type_, partition)
    if name in _ENTRY_READERS:
        return _EntryColumn(type_, _ENTRY_READERS[name])
    return _Column(type_, _READERS[name])


def _message_ids(partition: int, entry: Entry) -> list[bytes]:
    """Ids of the messages of any entry, each by itself."""
    if entry.first_chunk:
        first = MessageId(*entry.first_chunk, partition=partition)
        last = MessageId(*entry.position, partition=partition, first_chunk=first)
        return [encode_message_id(last, java=True)] * len(entry)
    head, tail = _id_head(partition, entry), _id_tail(entry.batch_size)
    if not entry.batch_size:
        return [head + tail] * len(entry)
    return [
        head + b"\x20" + encode_varint(index) + tail for index in entry.batch_indexes
    ]


def _id_head(partition: int, entry: Entry) -> bytes:
    return (
        _encoded_ledger(entry.ledger_id)
        + b"\x10"
        + encode_varint(entry.entry_id)
        + _encoded_part(partition=partition)
    )


def _id_tail(batch_size: int) -> bytes:
    return _encoded_part(batch_size=batch_size)


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


def _id_indexes(count: int) -> list[bytes]:
    """The field ``batch_index`` for 0 to ``count - 1``, encoded."""
    missing = range(len(_known_indexes), count)
    _known_indexes.extend(b"\x20" + encode_varint(index) for index in missing)
    return _known_indexes[:count]


def _sequence_ids(entry: Entry) -> Values:
    return [_signed(number) for number in entry.fields["sequence_id"]]


def _signed(number: int) -> int:
    """An unsigned 64-bit number as the signed one that Spark's BIGINT can hold."""
    return number - 2**64 if number >= 2**63 else number


def _schema_version(entry: Entry) -> int | None:
    # The default registry counts in 8 bytes; old data may carry 64, the first 8 count.
    version = entry.metadata.schema_version[:8]
    return int.from_bytes(version, "big", signed=True) if version else None


def _broker_publish_time(entry: Entry) -> int | None:
    broker = entry.broker_metadata
    if broker is None or not broker.HasField("broker_timestamp"):
        return None
    return broker.broker_timestamp


def _indexes(entry: Entry) -> Values:
    broker = entry.broker_metadata
    if broker is None or not broker.HasField("index"):
        return [None] * len(entry)
    # The broker numbers the last message of the entry.
    first = broker.index - max(entry.batch_size, 1) + 1
    return [first + index for index in entry.batch_indexes]


#: Columns with a value of its own for each message.
_READERS: dict[str, Callable[[Entry], Values]] = {
    "value": lambda entry: entry.payloads,
    "__key": lambda entry: entry.fields["partition_key"],
    "__eventTime": lambda entry: entry.fields["event_time"],
    "__orderingKey": lambda entry: entry.fields["ordering_key"],
    "__sequenceId": _sequence_ids,
    "__index": _indexes,
}

#: Columns with one value for all messages of an entry.
_ENTRY_READERS: dict[str, Callable[[Entry], Any]] = {
    "__publishTime": lambda entry: entry.metadata.publish_time,
    "__producerName": lambda entry: entry.metadata.producer_name,
    "__schemaVersion": _schema_version,
    "__redeliveryCount": lambda entry: entry.redelivery_count,
    "__brokerPublishTime": _broker_publish_time,
    "__replicatedFrom": lambda entry: entry.metadata.replicated_from or None,
    "__deliverAtTime": lambda entry: entry.metadata.deliver_at_time or None,
}
