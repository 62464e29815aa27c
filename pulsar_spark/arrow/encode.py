# SPDX-License-Identifier: Apache-2.0
"""RecordBatches -> messages, a column at a time.

A message is in a batch as :mod:`pulsar_spark.wire.entries` says, its metadata as
protobuf writes it, fields in ascending order::

    size(4) [0A n pair]* [12 n key] 18 n [28 time] [30 01] [3A n key] [48 01] payload

What is between the columns' own bytes follows from their sizes, so it comes out of
tables. One join of all the parts then lays message after message into a single buffer,
so that the payload of any batch is a slice of it.

For values of 100 bytes in CPython 3.11: 0.1 us each alone, 0.2 us with key and event
time. Numbers are scalars of pyarrow: others it converts slowly, looking for numpy.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import ValueEncoder
from pulsar_spark.arrow.values.raw import RawEncoder
from pulsar_spark.columns import (
    KEY,
    PARTITION,
    TOMBSTONE,
    TOPIC,
    VALUE,
    WRITE,
    ColumnType,
)
from pulsar_spark.errors import BadRowError
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.loops.sends import Messages
from pulsar_spark.message_id import encode_varint

#: Large, because no RecordBatch overflows its offsets. It is as fast as the other.
_BINARY = pa.large_binary()

_EMPTY = pa.scalar(b"", _BINARY)
_ABSENT = pa.scalar(None, _BINARY)


def _int(number: int | None) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())


_NO_INT = _int(None)
_AT_ONCE = _int(-1)
_ZERO = _int(0)
_SIXTEEN = _int(16)
_FALSE = pa.scalar(False)

_IS_BASE64 = pa.scalar(b"\x30\x01", _BINARY)
_IS_NULL = pa.scalar(b"\x48\x01", _BINARY)
_IS_NULL_KEY = pa.scalar(b"\x50\x01", _BINARY)

#: The first and the last time in ms whose varint has six bytes: 1971 and 2109.
_SIX_BYTES = _int(1 << 35), _int((1 << 42) - 1)

#: Spreads the bits of such a time over six bytes: 42, 28 + 14, 3 x 14, 6 x 7 of them.
#: The bits of the mask are moved up, which is to add them, multiplied.
_SPREAD = (
    (_int(0x0000_03FF_F000_0000), _int((1 << 4) - 1)),
    (_int(0x0FFF_C000_0FFF_C000), _int((1 << 2) - 1)),
    (_int(0x3F80_3F80_3F80_3F80), _int((1 << 1) - 1)),
)

#: The top bit in all but the last one of the six, and the tag in front.
_FRAME_OF_SIX = _int(0x0080_8080_8080_0000 | 0x28 << 8)

#: What numbers below become is kept in tables. So many have a varint of two bytes.
_TABLE_SIZE = 1 << 14


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a RecordBatch as messages, in the same order.

    Attributes:
        messages: Each row as the payload of a batch holds it.
        keys: Partition keys as they are sent and hashed; None without ``__key``.
        keys_are_base64: Whether keys are bytes, which are sent in base64.
        ordering_keys: None without ``__orderingKey``.
        deliver_at_ms: Since 1970; None without ``__deliverAtTime``.
        topics: As they came; None without ``__topic``.
        partitions: None without ``__partition``.
        entry_hashes: The entry bucket hash of each row's key; None where entries do
            not say them.
    """

    messages: pa.LargeBinaryArray
    keys: pa.LargeStringArray | None = None
    keys_are_base64: bool = False
    ordering_keys: pa.LargeBinaryArray | None = None
    deliver_at_ms: pa.Int64Array | None = None
    topics: pa.StringArray | pa.LargeStringArray | None = None
    partitions: pa.Int32Array | None = None
    entry_hashes: pa.UInt16Array | None = None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def offsets(self) -> memoryview:
        """Return the offset of each message in ``data``, and the end of ``data``."""
        return _offsets(self.messages)

    @property
    def data(self) -> memoryview:
        """Return the messages back to back.

        Rows ``a`` (inclusive) to ``b`` (exclusive) are
        ``data[offsets[a] : offsets[b]]``.
        """
        return memoryview(self.messages.buffers()[2] or b"").cast("B")

    @cached_property
    def packed(self) -> Messages:
        """Return the rows as input for entries, times and hashes included."""
        times = None
        given = self.deliver_at_ms
        if given is not None and given.null_count < len(given):
            times = _numbers(given.fill_null(_AT_ONCE), "q")
        hashes = None
        if self.entry_hashes is not None:
            hashes = _numbers(self.entry_hashes, "H")
        return Messages(self.data, self.offsets, times, hashes)

    def take(self, rows: pa.Array) -> EncodedRows:
        """Return the rows with the given numbers, in the given order."""
        columns = {
            name: column.take(rows)
            for name, column in vars(self).items()
            if isinstance(column, pa.Array)
        }
        return replace(self, **columns)


def _numbers(numbers: pa.Array, code: Literal["H", "q"]) -> memoryview:
    """Return numbers without NULL as a view, without a Python object for each.

    Args:
        numbers: Of an integer type.
        code: The type by the letter that ``struct`` has for it.
    """
    view = memoryview(numbers.buffers()[1]).cast(code)
    return view[numbers.offset : numbers.offset + len(numbers)]


def _offsets(array: pa.LargeBinaryArray) -> memoryview:
    if not len(array):  # there may be no buffer then
        return memoryview(bytes(8)).cast("q")
    offsets = memoryview(array.buffers()[1]).cast("q")
    return offsets[array.offset : array.offset + len(array) + 1]


class RowEncoder:
    """Turns RecordBatches of a schema into messages.

    Args:
        schema: The columns that make the value, and any others of ``columns.WRITE`` in
            any order. Strings and binaries may be of the large types, timestamps are in
            microseconds.
        values: Makes the value; of bytes or text unless told otherwise.
        max_size_bytes: Limit of a value, and of all else of a message. Brokers accept
            far less.
    """

    def __init__(
        self,
        schema: pa.Schema,
        values: ValueEncoder | None = None,
        max_size_bytes: int = 2**30,
    ) -> None:
        self._max_size_bytes = max_size_bytes
        self._values = RawEncoder() if values is None else values
        assert set(self._values.columns) <= set(schema.names), schema
        if values is None:
            type_ = schema.field(VALUE).type
            assert _is_binary(type_) or _is_text(type_), schema
        for field in schema:
            if field.name not in self._values.columns:
                assert field.name not in (VALUE, TOMBSTONE), "not of this encoder"
                types = WRITE[field.name].types
                assert any(_TYPE_CHECKS[check](field.type) for check in types), field
        self.schema = schema

    def encode(self, batch: pa.RecordBatch, first_row: int = 0) -> EncodedRows:
        """Encode all rows.

        A NULL value makes a message that says so (a tombstone); NULL in another column
        leaves its field out. Of times, what is finer than a millisecond is dropped.

        Args:
            batch: The rows.
            first_row: The number of the first of them in the task, for errors.

        Raises:
            BadRowError: A value that its schema does not have, a time before 1970, a
                NULL within properties, text that is not UTF-8 in a key or in
                properties, a partition that is no number of 32 bits, or a size above 1
                GiB.
        """
        columns = dict(zip(self.schema.names, batch.columns, strict=True))
        try:
            encoded = self._values.encode(
                [columns[name] for name in self._values.columns]
            )
        except UnfitValueError as error:
            row = f"Row {first_row + error.row}" if error.row >= 0 else "A row"
            raise BadRowError(f"{row} of a task: {error}.") from None
        value = encoded.values
        rows = _Rows(value, columns, encoded.keys, self._max_size_bytes)
        parts = [part for write in _FIELDS for part in write(rows)]
        sizes = _made(rows.checked(_total(parts)), _metadata_size)
        messages = _join(sizes, *parts, value)
        return EncodedRows(
            messages,
            rows.keys,
            rows.keys_are_base64,
            rows.ordering_keys,
            _milliseconds("__deliverAtTime", columns.get("__deliverAtTime")),
            columns.get(TOPIC),
            _partitions(columns.get(PARTITION)),
        )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "us")


def _is_map_of_text(type_: pa.DataType) -> bool:
    is_map = bool(pa.types.is_map(type_))
    return is_map and _is_text(type_.key_type) and _is_text(type_.item_type)


#: Which of Arrow's types a column may have for each of ours.
_TYPE_CHECKS: dict[ColumnType, Callable[[pa.DataType], bool]] = {
    ColumnType.BINARY: _is_binary,
    ColumnType.STRING: _is_text,
    ColumnType.INT: pa.types.is_integer,
    ColumnType.BIGINT: pa.types.is_integer,
    ColumnType.TIMESTAMP: _is_time,
    ColumnType.STRING_MAP: _is_map_of_text,
}


# -- columns ---------------------------------------------------------------------------


def _cast(column: pa.Array | None, type_: pa.DataType) -> pa.Array | None:
    return None if column is None else column.cast(type_)


def _partition_keys(
    column: pa.Array | None,
) -> tuple[pa.LargeStringArray | None, bool]:
    """Return the text of each key, and whether the texts are base64."""
    if column is not None and _is_binary(column.type):
        texts = [
            None if key is None else binascii.b2a_base64(key, newline=False)
            for key in column.to_pylist()
        ]
        return pa.array(texts, _BINARY).cast(pa.large_string()), True
    if column is not None:
        _check_utf8("__key", column)
    return _cast(column, pa.large_string()), False


def _check_utf8(name: str, texts: pa.Array) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        for text in texts.cast(_BINARY).to_pylist():
            try:
                str(text or b"", "utf-8")
            except UnicodeDecodeError:
                raise BadRowError(
                    f"{name} holds {text[:100]!r}, which is not text in UTF-8. Bytes "
                    "can be written as `value`, `__key` or `__orderingKey` of type "
                    "BINARY."
                ) from None
        raise


def _milliseconds(name: str, column: pa.Array | None) -> pa.Int64Array | None:
    """Since 1970, rounded down; integers are that already."""
    if column is None:
        return None
    units = column.cast(pa.int64())
    first = pc.min(units).as_py()
    is_ms = pa.types.is_integer(column.type)
    if first is not None and first < 0:
        time = pa.scalar(first, pa.timestamp("ms" if is_ms else "us"))
        raise BadRowError(
            f"{name} is {time.cast(pa.string())}, but Pulsar's times begin in 1970."
            " Write NULL for none."
        )
    return units if is_ms else pc.divide(units, _int(1000))


def _partitions(column: pa.Array | None) -> pa.Int32Array | None:
    try:
        return _cast(column, pa.int32())
    except pa.ArrowInvalid as error:
        raise BadRowError(f"__partition is no number of 32 bits ({error}).") from None


def _properties(rows: _Rows) -> pa.LargeBinaryArray | None:
    """Encode the repeated field ``properties`` of each row; empty without any."""
    column = rows.columns.get("__messageProperties")
    if column is None:
        return None
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first == last:
        return None
    keys = column.keys.slice(first, last - first)
    items = column.items.slice(first, last - first)
    if keys.null_count or items.null_count:
        _check_pairs(column)
    _check_utf8("__messageProperties", keys)
    _check_utf8("__messageProperties", items)
    parts = [
        *rows.field(_key, keys.cast(_BINARY)),
        *rows.field(_value, items.cast(_BINARY)),
    ]
    pairs = _join(_made(rows.checked(_total(parts)), _properties_size), *parts)
    # The pairs of a row lie side by side: its bytes are theirs, cut less often.
    cuts = pa.Array.from_buffers(
        pa.int64(), len(pairs) + 1, [None, pairs.buffers()[1]], offset=pairs.offset
    )
    ends = cuts.take(pc.subtract(offsets, pa.scalar(first, offsets.type)))
    joined = pa.Array.from_buffers(
        _BINARY, len(column), [None, ends.buffers()[1], pairs.buffers()[2]]
    )
    # A map that is NULL may hold pairs all the same.
    if not column.null_count:
        return joined
    return pc.if_else(column.is_valid(), joined, _ABSENT)


def _check_pairs(column: pa.MapArray) -> None:
    for pairs in column.to_pylist():
        for key, item in pairs or ():
            if key is None or item is None:
                raise BadRowError(
                    f"__messageProperties has {item!r} at {key!r}, but a property of a "
                    "message is never NULL. Leave it out of the map."
                )


# -- parts of a message ----------------------------------------------------------------


class _Rows:
    """Rows to be encoded; what several parts of a message need is made once.

    Attributes:
        values: The value of each row.
        columns: The columns by name.
        keys: Partition keys as text; None without any.
        keys_are_base64: Whether they are bytes in base64.
        keys_may_be_null: Whether NULL is a null key, and not the absence of any.
        ordering_keys: None without any.
        max_size_bytes: The limit of each size.
    """

    def __init__(
        self,
        values: pa.LargeBinaryArray,
        columns: Mapping[str, pa.Array],
        keys: pa.LargeBinaryArray | None,
        max_size_bytes: int,
    ) -> None:
        self.max_size_bytes = max_size_bytes
        self.values = values
        self.columns = columns
        own_keys = columns.get(KEY) if keys is None else keys
        self.keys, self.keys_are_base64 = _partition_keys(own_keys)
        self.keys_may_be_null = keys is not None
        self.ordering_keys = _cast(columns.get("__orderingKey"), _BINARY)

    def checked(self, sizes: pa.Int64Array) -> pa.Int64Array:
        """Return sizes, none of which is above the limit.

        Raises:
            BadRowError: A size is.
        """
        largest = pc.max(sizes).as_py() or 0
        if largest > self.max_size_bytes:
            raise BadRowError(
                f"A row has {largest} bytes in one place, more than any broker takes."
            )
        return sizes

    def field(
        self, prefix: Callable[[int], bytes], data: pa.LargeBinaryArray
    ) -> list[pa.Array]:
        """Encode a field of bytes or text; a NULL gets no bytes."""
        return [_made(self.checked(pc.binary_length(data)), prefix), data]


def _properties_fields(rows: _Rows) -> list[pa.Array]:
    pairs = _properties(rows)
    return [] if pairs is None else [pairs]


def _key_fields(rows: _Rows) -> list[pa.Array]:
    if rows.keys is None:
        return []
    return rows.field(_partition_key, rows.keys.cast(_BINARY))


def _size_and_time_fields(rows: _Rows) -> list[pa.Array]:
    event_ms = _milliseconds("__eventTime", rows.columns.get("__eventTime"))
    return _payload_size_and_event_time(rows.checked(_sizes(rows.values)), event_ms)


def _is_base64_fields(rows: _Rows) -> list[pa.Array]:
    if rows.keys is None or not rows.keys_are_base64:
        return []
    return [_where(rows.keys.is_valid(), _IS_BASE64)]


def _ordering_key_fields(rows: _Rows) -> list[pa.Array]:
    if rows.ordering_keys is None:
        return []
    return rows.field(_ordering_key, rows.ordering_keys)


def _is_null_fields(rows: _Rows) -> list[pa.Array]:
    if not rows.values.null_count:
        return []
    return [_where(rows.values.is_null(), _IS_NULL)]


def _is_null_key_fields(rows: _Rows) -> list[pa.Array]:
    if not rows.keys_may_be_null or rows.keys is None or not rows.keys.null_count:
        return []
    return [_where(rows.keys.is_null(), _IS_NULL_KEY)]


#: What writes the fields of SingleMessageMetadata, in the order of their numbers.
_FIELDS: tuple[Callable[[_Rows], list[pa.Array]], ...] = (
    _properties_fields,
    _key_fields,
    _size_and_time_fields,
    _is_base64_fields,
    _ordering_key_fields,
    _is_null_fields,
    _is_null_key_fields,
)


# Encoders of single fields: tag plus varint.


def _metadata_size(size: int) -> bytes:
    return size.to_bytes(4, "big")


def _varint_after(tag: int) -> Callable[[int], bytes]:
    return lambda number: bytes((tag,)) + encode_varint(number)


# Of SingleMessageMetadata.
_properties_size = _varint_after(0x0A)
_partition_key = _varint_after(0x12)
_payload_size = _varint_after(0x18)
_event_time = _varint_after(0x28)
_ordering_key = _varint_after(0x3A)

# Of KeyValue.
_key = _varint_after(0x0A)
_value = _varint_after(0x12)


def _payload_size_begun(size: int) -> bytes:
    return _payload_size(size)[:-1]


def _payload_size_end(size: int) -> int:
    return _payload_size(size)[-1]


def _payload_size_and_event_time(
    sizes: pa.Int64Array, event_ms: pa.Int64Array | None
) -> list[pa.Array]:
    """Encode two fields, of which the second nearly always has seven bytes.

    With the last one of the first field these are a number of 64 bits, which arithmetic
    can make::

        18 n n | n 28 t t t t t t

    A time that takes more bytes or less, or is absent, follows the whole first field.
    """
    if event_ms is None:
        return [_made(sizes, _payload_size)]
    first, last = _SIX_BYTES
    fits = pc.and_(pc.greater_equal(event_ms, first), pc.less_equal(event_ms, last))
    fits = fits.fill_null(_FALSE)
    begun = _made(sizes, _payload_size_begun)
    words = _words(_made(sizes, _payload_size_end, pa.int64()), event_ms)
    if not fits.false_count:
        return [begun, words]
    otherwise = pc.if_else(fits, _NO_INT, event_ms)
    return [
        pc.if_else(fits, begun, _made(sizes, _payload_size)),
        pc.if_else(fits, words, _made(otherwise, _event_time)),
    ]


def _words(first_bytes: pa.Int64Array, event_ms: pa.Int64Array) -> pa.LargeBinaryArray:
    word = event_ms
    for mask, factor in _SPREAD:
        word = pc.add(word, pc.multiply(pc.bit_wise_and(word, mask), factor))
    word = pc.add(pc.shift_left(word, _SIXTEEN), _FRAME_OF_SIX)
    word = pc.add(word, first_bytes)
    # Arrow's machines are little-endian, as varints are.
    return pa.Array.from_buffers(
        pa.binary(8), len(word), [None, word.buffers()[1]], offset=word.offset
    ).cast(_BINARY)


def _where(mask: pa.BooleanArray, field: pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    return pc.if_else(mask, field, _ABSENT)


def _made(
    numbers: pa.Int64Array, make: Callable[[int], Any], type_: pa.DataType = _BINARY
) -> pa.Array:
    """Apply ``make`` to each distinct number; NULL stays NULL."""
    largest = pc.max(numbers).as_py() or 0
    if largest < _TABLE_SIZE:
        # No larger than it has to be: to fill it is slow.
        return _table(make, type_, largest.bit_length()).take(numbers)
    is_large = pc.greater_equal(numbers, _int(_TABLE_SIZE))
    small = _made(pc.if_else(is_large, _NO_INT, numbers), make, type_)
    large = [make(number) for number in numbers.filter(is_large).to_pylist()]
    return pc.replace_with_mask(small, is_large, pa.array(large, type_))


@lru_cache(maxsize=256)
def _table(make: Callable[[int], Any], type_: pa.DataType, bits: int) -> pa.Array:
    return pa.array([make(number) for number in range(1 << bits)], type_)


def _total(parts: list[pa.LargeBinaryArray]) -> pa.Int64Array:
    """Return the size of all parts in bytes, row by row."""
    return reduce(pc.add, map(_sizes, parts))


def _sizes(data: pa.LargeBinaryArray) -> pa.Int64Array:
    """Return the size of each row in bytes, 0 for NULL."""
    sizes = pc.binary_length(data)
    return sizes.fill_null(_ZERO) if sizes.null_count else sizes


def _join(*parts: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Concatenate the parts of each row; NULL adds nothing."""
    return pc.binary_join_element_wise(
        *parts, _EMPTY, null_handling="replace", null_replacement=""
    )
