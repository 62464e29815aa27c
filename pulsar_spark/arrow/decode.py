"""Messages -> RecordBatches, a column at a time and an entry at a time.

A builder collects entries, and each column turns what they hold into one Arrow array: a
value for all messages of an entry is repeated; what each message has of its own lies in
a :class:`MessageTable` as Arrow wants it, and is not copied where all entries of a
RecordBatch share one table. A column that nobody asked for costs nothing.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.message_ids import append_message_ids
from pulsar_spark.arrow.schema import COLUMN_TYPES, STRING_MAP, TIMESTAMP
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.entries import Entry
from pulsar_spark.wire.messages import (
    HAS_EVENT_TIME,
    HAS_KEY,
    HAS_ORDERING_KEY,
    IS_NULL,
    KEY_IS_BASE64,
    MessageTable,
    Texts,
)

#: The values of one column for the messages of one entry.
Values = Sequence[Any]

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
            that holds a single larger message. Long names of producers and clusters
            that its rows repeat are counted, too.
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
        self._collecting = [c for c in self._columns if c.collects]
        self._names = [_NAMES[name] for name in schema.names if name in _NAMES]
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._size_bytes = 0
        self._entries: list[tuple[int, tuple[int, int]]] = []  # first row, position
        self._messages = _Messages()
        for column in self._columns:
            column.clear()

    @property
    def rows(self) -> int:
        """Rows collected and not given back yet."""
        return self._rows

    def add(self, entry: Entry) -> Iterator[pa.RecordBatch]:
        """Takes an entry; yields the RecordBatches that are full because of it.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        repeated = self._repeated_bytes(entry)
        for piece in self._pieces(entry, repeated):
            size_bytes = piece.size_bytes + repeated * len(piece)
            if self._rows and not self._has_room_for(len(piece), size_bytes):
                yield self.finish()
            self._append(piece, size_bytes)
            if self._rows >= self._max_rows or self._size_bytes >= self._max_bytes:
                yield self.finish()  # now: what comes next may be as large

    def finish(self) -> pa.RecordBatch:
        """Everything collected so far, as one RecordBatch; the builder is empty then.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        arrays = []
        for column, field in zip(self._columns, self.schema, strict=True):
            try:
                arrays.append(column.array(self._rows, self._messages))
            except _MISFITS as error:
                raise self._misfit(field, column, error) from None
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _append(self, entry: Entry, size_bytes: int) -> None:
        self._entries.append((self._rows, entry.position))
        self._rows += len(entry)
        self._size_bytes += size_bytes
        self._messages.append(entry)
        for column in self._collecting:
            column.append(entry)

    def _has_room_for(self, rows: int, size_bytes: int) -> bool:
        return (
            self._rows + rows <= self._max_rows
            and self._size_bytes + size_bytes <= self._max_bytes
        )

    def _repeated_bytes(self, entry: Entry) -> int:
        """What each row of an entry repeats of it, beyond what nobody notices."""
        if not self._names:
            return 0
        size_bytes = sum(len(read(entry) or "") for read in self._names)
        return max(0, size_bytes - _SHORT_NAMES_BYTES)

    def _pieces(self, entry: Entry, repeated: int) -> Iterator[Entry]:
        """The entry itself, or its parts where it is too large for a RecordBatch."""
        size_bytes = entry.size_bytes + repeated * len(entry)
        if len(entry) <= 1 or (
            len(entry) <= self._max_rows and size_bytes <= self._max_bytes
        ):
            if len(entry):
                yield entry
            return
        middle = len(entry) // 2
        yield from self._pieces(entry.cut(0, middle), repeated)
        yield from self._pieces(entry.cut(middle, len(entry)), repeated)

    def _misfit(
        self, field: pa.Field, column: _Column, error: Exception
    ) -> CorruptEntryError:
        row = column.first_misfit(self._messages)
        index = bisect_right(self._entries, row, key=lambda first: first[0]) - 1
        return CorruptEntryError(
            f"its {field.name} does not fit {field.type} ({error}). Leave that column "
            "out with `metadataColumns`.",
            topic_partition=self._topic_partition,
            message_id=str(MessageId(*self._entries[index][1])),
        )


#: What a value raises that does not fit its column. Not each error of Arrow's: where
#: memory is short, or a user interrupts, no message is to blame.
_MISFITS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.lib.ArrowCapacityError,
    OverflowError,
    binascii.Error,
)


def new_table(schema: pa.Schema) -> MessageTable:
    """A table with what the columns of a schema need, in memory of Arrow's."""
    return MessageTable(
        [_TEXTS[name] for name in schema.names if name in _TEXTS], _allocate
    )


#: So much is taken from the system and given back to it, while Arrow's own memory pool
#: keeps what it had.
_LARGE_BYTES = 8 * 1024 * 1024


def _allocate(size: int) -> memoryview:
    pool = pa.system_memory_pool() if size >= _LARGE_BYTES else None
    return memoryview(pa.allocate_buffer(size, memory_pool=pool)).cast("B")


class _Run(NamedTuple):
    """Rows of a table, the last one exclusive."""

    table: MessageTable
    first: int
    last: int


class _Messages:
    """The messages of the entries collected, as runs of rows of their tables."""

    def __init__(self, runs: Iterable[_Run] = ()) -> None:
        self.runs = list(runs)
        self._flags: pa.UInt8Array | None = None

    def append(self, entry: Entry) -> None:
        """Takes those of one more entry."""
        run = _Run(entry.table, entry.first_row, entry.last_row)
        if self.runs:
            table, first, last = self.runs[-1]
            if table is run.table and last == run.first:
                self.runs.pop()
                run = _Run(table, first, run.last)
        self.runs.append(run)

    def numbers(self, column: str, type_: pa.DataType) -> pa.Array:
        """A column of their tables that has a number for each message."""
        return _joined(
            [
                pa.Array.from_buffers(
                    type_,
                    run.last - run.first,
                    [None, _buffer(getattr(run.table, column), run.last)],
                    offset=run.first,
                )
                for run in self.runs
            ]
        )

    def texts(self, column: str) -> pa.BinaryArray:
        """A column of their tables that has bytes for each message."""
        return _joined(
            [
                _bytes(getattr(run.table, column), run.first, run.last)
                for run in self.runs
            ]
        )

    def have(self, flag: int) -> pa.BooleanArray:
        """For each message whether it has the flag."""
        if self._flags is None:
            self._flags = self.numbers("flags", pa.uint8())
        found = pc.bit_wise_and(self._flags, pa.scalar(flag, pa.uint8()))
        return pc.not_equal(found, _NO_FLAG)

    def any_has(self, flag: int) -> bool:
        """Whether one of them may have it: one of their tables does."""
        return any(run.table.any_flags & flag for run in self.runs)

    def all_have(self, flag: int) -> bool:
        """Whether all of their tables have it throughout."""
        return all(run.table.all_flags & flag for run in self.runs)


class _Column:
    """Collects plain Python values; one conversion to Arrow at the end."""

    #: Whether it wants to be told of each entry.
    collects = True

    def __init__(self, type_: pa.DataType, read: Callable[[Entry], Any]) -> None:
        self._type = type_
        self._read = read
        self._values: Any = []

    def clear(self) -> None:
        self._values = []

    def append(self, entry: Entry) -> None:
        self._values.extend(self._read(entry))

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        del rows, messages
        return _arrow(self._values, self._type)

    def first_misfit(self, messages: _Messages) -> int:
        """The row of the first value that made :meth:`array` fail."""
        del messages
        for number, value in enumerate(self._values):
            try:
                _arrow([value], self._type)
            except _MISFITS:
                return number
        return 0


def _arrow(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values as Arrow; times are in milliseconds, as Pulsar keeps them."""
    if type_ == TIMESTAMP:
        return pa.array(values, _PULSAR_TIME).cast(TIMESTAMP)
    return pa.array(values, type_)


class _MessageColumn(_Column):
    """A value of its own for each message, made for all messages in one go."""

    collects = False

    def __init__(
        self, type_: pa.DataType, make: Callable[[_Messages], pa.Array]
    ) -> None:
        super().__init__(type_, lambda entry: ())
        self._make = make

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        return self._make(messages) if rows else pa.array([], self._type)

    def first_misfit(self, messages: _Messages) -> int:
        number = 0
        for run in messages.runs:
            for row in range(run.first, run.last):
                try:
                    self._make(_Messages([_Run(run.table, row, row + 1)]))
                except _MISFITS:
                    return number
                number += 1
        return 0


class _EntryColumn(_Column):
    """One value an entry, the same for each of its messages."""

    def clear(self) -> None:
        super().clear()
        self._ends: list[int] = []

    def append(self, entry: Entry) -> None:
        self._values.append(self._read(entry))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(entry))

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        del messages
        if not rows:
            return pa.array([], self._type)
        # The ends as a plain list: pyarrow 15 takes no array of them.
        values = _arrow(self._values, self._type)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, values))

    def first_misfit(self, messages: _Messages) -> int:
        number = super().first_misfit(messages)
        return self._ends[number - 1] if number else 0


class _PublishTimeColumn(_Column):
    """The same, faster: every entry has one, and nearly every reader wants it."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_, lambda entry: ())

    def clear(self) -> None:
        self._values = array("Q")

    def append(self, entry: Entry) -> None:
        self._values += array("Q", (entry.metadata.publish_time,)) * len(entry)

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        del messages
        buffers = [None, pa.py_buffer(self._values)]
        return _times(pa.Array.from_buffers(pa.uint64(), rows, buffers))


class _ConstantColumn(_Column):
    """The same value in each row of the reader."""

    collects = False

    def __init__(self, type_: pa.DataType, value: Any) -> None:
        super().__init__(type_, lambda entry: ())
        self._scalar = pa.scalar(value, type_)
        self._repeated = pa.repeat(self._scalar, 0)

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        del messages
        if rows > len(self._repeated):  # kept: most RecordBatches are of one size
            self._repeated = pa.repeat(self._scalar, rows)
        return self._repeated.slice(0, rows)


class _MessageIdColumn(_Column):
    """The ids, written by the kernel as well."""

    def __init__(self, type_: pa.DataType, partition: int) -> None:
        super().__init__(type_, lambda entry: ())
        self._partition = partition
        self._rows = 0
        self._ids = Texts(_allocate)

    def clear(self) -> None:
        self._ids = self._ids.another(self._rows)
        self._rows = 0

    def append(self, entry: Entry) -> None:
        append_message_ids(self._ids, self._rows, self._partition, entry)
        self._rows += len(entry)

    def array(self, rows: int, messages: _Messages) -> pa.Array:
        del messages
        return _bytes(self._ids, 0, rows)


# -- what each message has of its own --------------------------------------------------


def _payloads(messages: _Messages) -> pa.BinaryArray:
    payloads = messages.texts("values")
    if not messages.any_has(IS_NULL):
        return payloads
    return _with_nulls(payloads, pc.invert(messages.have(IS_NULL)))


def _keys(messages: _Messages) -> pa.BinaryArray:
    """As bytes; those that were sent as base64, because they are bytes, decoded."""
    keys = messages.texts("keys")
    if messages.any_has(KEY_IS_BASE64):
        is_base64 = messages.have(KEY_IS_BASE64).to_pylist()
        keys = pa.array(
            [
                base64.b64decode(key, validate=True) if is_encoded else key
                for key, is_encoded in zip(keys.to_pylist(), is_base64, strict=True)
            ],
            pa.binary(),
        )
    return _null_without(HAS_KEY, keys, messages)


def _ordering_keys(messages: _Messages) -> pa.BinaryArray:
    keys = messages.texts("ordering_keys")
    return _null_without(HAS_ORDERING_KEY, keys, messages)


def _event_times(messages: _Messages) -> pa.TimestampArray:
    times = _times(messages.numbers("event_times", pa.uint64()))
    if messages.all_have(HAS_EVENT_TIME):
        return times
    return pc.if_else(messages.have(HAS_EVENT_TIME), times, _NO_TIME)


def _times(milliseconds: pa.UInt64Array) -> pa.TimestampArray:
    """Times as Pulsar keeps them, as Spark does."""
    return milliseconds.cast(pa.int64()).cast(_PULSAR_TIME).cast(TIMESTAMP)


def _sequence_ids(messages: _Messages) -> pa.Int64Array:
    # Of an unsigned number the signed one of the same bits: what BIGINT can hold.
    return messages.numbers("sequence_ids", pa.int64())


def _properties(messages: _Messages) -> pa.MapArray:
    """Never null: a message without properties has an empty map."""
    return _joined([_properties_of(run) for run in messages.runs])


def _properties_of(run: _Run) -> pa.MapArray:
    table = run.table
    rows = run.last - run.first
    if not table.pairs:
        offsets = pa.repeat(_ZERO, rows + 1)
        return pa.MapArray.from_arrays(offsets, _NO_TEXT, _NO_TEXT, STRING_MAP)
    first, last = table.pair_ends[run.first], table.pair_ends[run.last]
    keys, items = (
        # Cast, not declared to be: so that it is seen where it is not UTF-8.
        _bytes(texts, first, last).cast(pa.string())
        for texts in (table.pair_keys, table.pair_values)
    )
    ends = pa.Array.from_buffers(
        pa.int32(),
        rows + 1,
        [None, _buffer(table.pair_ends, run.last + 1)],
        offset=run.first,
    )
    offsets = pc.subtract(ends, pa.scalar(first, pa.int32()))
    return pa.MapArray.from_arrays(offsets, keys, items, STRING_MAP)


def _bytes(texts: Texts | None, first: int, last: int) -> pa.BinaryArray:
    """The rows ``first`` to ``last``, the last one exclusive."""
    assert texts is not None, "the table was made for other columns"
    offsets = _buffer(texts.offsets, last + 1)
    data = _buffer(texts.data, texts.offsets[last])
    return pa.Array.from_buffers(
        pa.binary(), last - first, [None, offsets, data], offset=first
    )


def _buffer(column: Sequence[int], length: int) -> pa.Buffer:
    """The beginning of a column of a table, not copied."""
    return pa.py_buffer(memoryview(column)[:length])  # type: ignore[arg-type]


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _null_without(
    flag: int, values: pa.BinaryArray, messages: _Messages
) -> pa.BinaryArray:
    """The values, those null whose messages do not have the flag."""
    if messages.all_have(flag):
        return values
    return _with_nulls(values, messages.have(flag))


def _with_nulls(values: pa.BinaryArray, valid: pa.BooleanArray) -> pa.BinaryArray:
    _, offsets, data = values.buffers()
    if values.offset:  # of all buffers alike
        offsets = offsets.slice(4 * values.offset)
    return pa.Array.from_buffers(
        values.type, len(values), [valid.buffers()[1], offsets, data]
    )


_NO_FLAG = pa.scalar(0, pa.uint8())
_NO_TIME = pa.scalar(None, TIMESTAMP)
_NO_TEXT = pa.array([], pa.string())
_ZERO = pa.scalar(0, pa.int32())


# -- all columns -----------------------------------------------------------------------


def _column(name: str, topic_partition: str, partition: int) -> _Column:
    type_ = COLUMN_TYPES[name]
    if name == "__topic":
        return _ConstantColumn(type_, topic_partition)
    if name == "__partition":
        return _ConstantColumn(type_, partition if partition >= 0 else None)
    if name == "__messageId":
        return _MessageIdColumn(type_, partition)
    if name == "__publishTime":
        return _PublishTimeColumn(type_)
    if name in _ENTRY_READERS:
        return _EntryColumn(type_, _ENTRY_READERS[name])
    if name in _MAKERS:
        return _MessageColumn(type_, _MAKERS[name])
    return _Column(type_, _indexes)


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
_MAKERS: dict[str, Callable[[_Messages], pa.Array]] = {
    "value": _payloads,
    "__key": _keys,
    "__eventTime": _event_times,
    "__messageProperties": _properties,
    "__orderingKey": _ordering_keys,
    "__sequenceId": _sequence_ids,
}

#: The columns of a table that these are made of.
_TEXTS = {
    "value": "values",
    "__key": "keys",
    "__orderingKey": "ordering_keys",
    "__messageProperties": "properties",
}

#: Those of one value for all messages of an entry that a producer can make long.
_NAMES: dict[str, Callable[[Entry], Any]] = {
    "__producerName": lambda entry: entry.metadata.producer_name,
    "__replicatedFrom": lambda entry: entry.metadata.replicated_from or None,
}

#: What each row may have of them without being counted.
_SHORT_NAMES_BYTES = 256

#: Columns with one value for all messages of an entry.
_ENTRY_READERS: dict[str, Callable[[Entry], Any]] = {
    **_NAMES,
    "__schemaVersion": _schema_version,
    "__redeliveryCount": lambda entry: entry.redelivery_count,
    "__brokerPublishTime": _broker_publish_time,
    "__deliverAtTime": lambda entry: entry.metadata.deliver_at_time or None,
}
