# SPDX-License-Identifier: Apache-2.0
"""Values of KEY_VALUE schemas as the columns ``key`` and ``value``.

Each is made as the schema of that part says: a record is a STRUCT. Where the encoding
is INLINE, a payload holds both, with sizes in big-endian order, of which -1 is null::

    size(4) key  size(4) value

If it is SEPARATED, keys are those of the messages, also where the value is null. An
empty part is empty for texts and bytes. Where the writer's schema encodes a record in
no bytes, as protobuf does with a message of defaults, an empty part is that record. For
all other types an empty part is NULL.
"""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import Decoded, ValueSettings, VersionDecoder
from pulsar_spark.columns import VALUE
from pulsar_spark.schemas.avro import Kind, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value

KEY = "key"

_DOES_NOT_SPLIT = (
    "it does not split into a key and a value; most likely its producer is SEPARATED, "
    "and the schema was registered as INLINE"
)


_JSON_NULL = r"\A[ \t\r\n]*null[ \t\r\n]*\z"


class KeyValue:
    """The kind of schema that has a key and a value; see ``SchemaKind``.

    Args:
        columns_of_part: Say which columns a part has, as ``SchemaKind.columns_of``.
        part_decoder: Plan how a part is decoded, as ``SchemaKind.decoder``.
    """

    def __init__(
        self,
        columns_of_part: Callable[[SchemaInfo], pa.Schema],
        part_decoder: Callable[
            [SchemaInfo, SchemaInfo, pa.Schema, ValueSettings], VersionDecoder
        ],
    ) -> None:
        self._columns_of_part = columns_of_part
        self._part_decoder = part_decoder

    def columns_of(self, info: SchemaInfo) -> pa.Schema:
        """Return the columns ``key`` and ``value``.

        Raises:
            InvalidSchemaError: The schema, or one of its parts, cannot be read.
        """
        parts = parse_key_value(info)
        columns = []
        for name, part in ((KEY, parts.key), (VALUE, parts.value)):
            with _naming(name):
                columns.append(self._column(name, part))
        return pa.schema(columns)

    def decoder(
        self,
        writer: SchemaInfo,
        reader: SchemaInfo,
        wanted: pa.Schema,
        settings: ValueSettings,
    ) -> KeyValueDecoder:
        """Return the decoder of values written with ``writer`` into the wanted columns.

        Raises:
            InvalidSchemaError: They cannot be made.
        """
        theirs, own = parse_key_value(writer), parse_key_value(reader)
        both = {KEY: (theirs.key, own.key), VALUE: (theirs.value, own.value)}
        parts = {}
        for field in wanted:
            if field.name not in both:
                raise InvalidSchemaError(f"there is no field `{field.name}`")
            with _naming(field.name):
                parts[field.name] = self._part(*both[field.name], field, settings)
        return KeyValueDecoder(parts, theirs.is_separated)

    def _column(self, name: str, info: SchemaInfo) -> pa.Field:
        columns = self._columns_of_part(info)
        if _is_record(info):
            return pa.field(name, pa.struct(list(columns)))
        return columns.field(0).with_name(name)

    def _part(
        self,
        writer: SchemaInfo,
        reader: SchemaInfo,
        field: pa.Field,
        settings: ValueSettings,
    ) -> _Part:
        """Plan how what was written with ``writer`` becomes the column.

        Raises:
            InvalidSchemaError: It cannot.
        """
        is_record = _is_record(reader)
        if is_record and not pa.types.is_struct(field.type):
            raise InvalidSchemaError(f"a record cannot be of type {field.type}")
        fields = list(field.type) if is_record else [pa.field(VALUE, field.type)]
        if not all(number.nullable for number in fields):
            raise InvalidSchemaError("a record's fields may be null")
        made = self._part_decoder(writer, reader, pa.schema(fields), settings)
        is_json = writer.type == SchemaType.JSON
        reads_empty = _may_be_empty(writer)
        return _Part(field.name, field.type, made, is_record, is_json, reads_empty)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the part, key or value, in errors about its schema."""
    try:
        yield
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"in its {name}, {error}") from None


def _is_record(info: SchemaInfo) -> bool:
    """Return whether a schema's columns are fields, so that a part is a STRUCT."""
    if info.type in (SchemaType.AVRO, SchemaType.JSON):
        return parse_avro(info.data).kind is Kind.RECORD
    return info.type == SchemaType.PROTOBUF_NATIVE


def _may_be_empty(info: SchemaInfo) -> bool:
    """Return whether a schema encodes some record in no bytes at all."""
    if info.type == SchemaType.AVRO:
        schema = parse_avro(info.data)
        takes_bytes = any(field.type.kind is not Kind.NULL for field in schema.fields)
        return schema.kind is Kind.RECORD and not takes_bytes
    return info.type == SchemaType.PROTOBUF_NATIVE


class _Part(NamedTuple):
    """How a key, or a value, becomes a column.

    Attributes:
        name: Of the column.
        type: Its type.
        decoder: Makes the column, or the fields of a STRUCT column.
        is_record: Whether the column is a STRUCT.
        is_json: Whether the part is written in JSON, also as ``null``.
        reads_empty: Whether a record may have been written in no bytes.
    """

    name: str
    type: pa.DataType
    decoder: VersionDecoder
    is_record: bool
    is_json: bool
    reads_empty: bool

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return the only column."""
        decoded = self.decoder.decode(values, None)
        reason = f"in its {self.name}, {decoded.reason}" if decoded.bad else ""
        columns = decoded.columns
        if self.is_record:
            least = 0 if self.reads_empty else 1
            present = pc.greater_equal(pc.binary_length(values), least)
            if self.is_json:
                is_null = pc.match_substring_regex(values, _JSON_NULL)
                present = pc.and_not(present, is_null)
            columns = [_struct(self.type, columns, present.fill_null(False))]
        return Decoded(columns, decoded.bad, reason)


def _struct(
    type_: pa.StructType, columns: Sequence[pa.Array], present: pa.BooleanArray
) -> pa.StructArray:
    return pa.Array.from_buffers(
        type_, len(present), [present.buffers()[1]], children=list(columns)
    )


def _without(bad: Sequence[int], rows: int) -> pa.Int32Array:
    """Return the row numbers from 0, with NULL in place of bad rows."""
    is_bad = bytearray(rows)
    for row in bad:
        is_bad[row] = 1
    numbers = _array(pa.int32(), array("i", range(rows)))
    kept = pc.equal(_array(pa.uint8(), is_bad), 0)
    return pc.if_else(kept, numbers, pa.scalar(None, pa.int32()))


def _array(type_: pa.DataType, data: bytes | bytearray | array[int]) -> pa.Array:
    rows = memoryview(data).nbytes * 8 // type_.bit_width
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(data)])


class KeyValueDecoder:
    """Makes the columns of a KEY_VALUE schema; see ``VersionDecoder``.

    Args:
        parts: The parts that are wanted, by their names, in the order of columns.
        is_separated: Whether keys are those of the messages.

    Attributes:
        needs_keys: Whether it has to be given these.
    """

    def __init__(self, parts: dict[str, _Part], is_separated: bool) -> None:
        self._parts = parts
        self._is_separated = is_separated
        self.needs_keys = is_separated and KEY in parts

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns; a row with a bad part is bad."""
        assert keys is not None or not self.needs_keys
        split = Split(keys, values) if self._is_separated else split_inline(values)
        bad = dict.fromkeys(split.bad, _DOES_NOT_SPLIT)
        columns: list[pa.Array] = []
        for name, part in self._parts.items():
            decoded = part.decode(split.keys if name == KEY else split.values)
            columns += decoded.columns
            for row in decoded.bad:
                # What is told is the reason of the first; the others have some.
                bad.setdefault(row, decoded.reason)
        if not bad:
            return Decoded(columns)
        rows = sorted(bad)
        places = _without(rows, len(values))
        return Decoded(
            [columnber.take(places) for columnber in columns], rows, bad[rows[0]]
        )


# -- INLINE ----------------------------------------------------------------------------

_NOTHING = pa.scalar(2 * b"\xff\xff\xff\xff")  # no key, no value


# Of the type of offsets: Arrow takes a number of Python's for a wider one.
_ZERO, _FOUR, _NULL = (pa.scalar(number, pa.int32()) for number in (0, 4, -1))


class Split(NamedTuple):
    """Keys and values.

    Attributes:
        keys: NULL for a null key; None if no one asked for keys.
        values: NULL for a null value.
        bad: Rows that hold no key and value; they are NULL.
    """

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    bad: Sequence[int] = ()


def split_inline(payloads: pa.BinaryArray) -> Split:
    """Split payloads into keys and values; null and empty payloads give NULLs."""
    if not len(payloads):
        return Split(payloads, payloads)
    sizes = pc.binary_length(payloads)
    present = pc.greater(sizes, 0).fill_null(False)
    fits = pc.greater_equal(sizes, 8).fill_null(False)
    if not pc.all(fits).as_py():
        payloads = pc.if_else(fits, payloads, _NOTHING)
        sizes = pc.binary_length(payloads)
    key_sizes = _numbers(pc.binary_slice(payloads, 0, 4))
    key_fits = _between(key_sizes, pc.subtract(sizes, 8))
    if not pc.all(key_fits).as_py():
        fits = pc.and_(fits, key_fits)
        payloads = pc.if_else(key_fits, payloads, _NOTHING)
        sizes = pc.binary_length(payloads)
        key_sizes = pc.if_else(key_fits, key_sizes, _NULL)
    four = _in_four(payloads, pc.max_element_wise(key_sizes, _ZERO))
    value_sizes = _numbers(four.filter(_every(four, 2)))
    left = pc.binary_length(four.filter(_every(four, 3)))
    value_fits = pc.equal(pc.max_element_wise(value_sizes, _ZERO), left)
    value_fits = pc.and_(value_fits, pc.greater_equal(value_sizes, -1))
    fits = pc.and_(fits, value_fits)
    bad: Sequence[int] = ()
    if not pc.all(pc.or_(fits, pc.invert(present))).as_py():
        bad = pc.indices_nonzero(pc.and_not(present, fits)).to_pylist()
    return Split(
        _null_at(four.filter(_every(four, 1)), pc.and_(fits, _is_there(key_sizes))),
        _null_at(four.filter(_every(four, 3)), pc.and_(fits, _is_there(value_sizes))),
        bad,
    )


def _numbers(sizes: pa.BinaryArray) -> pa.Int32Array:
    """Return sizes of 4 bytes, back to back, as numbers."""
    _, _, data = sizes.buffers()
    numbers = _ints(memoryview(data)[: 4 * len(sizes)])
    if sys.byteorder == "little":
        numbers.byteswap()
    return _array(pa.int32(), numbers)


def _between(sizes: pa.Int32Array, most: pa.Int32Array) -> pa.BooleanArray:
    return pc.and_(pc.greater_equal(sizes, -1), pc.less_equal(sizes, most))


def _is_there(sizes: pa.Int32Array) -> pa.BooleanArray:
    return pc.greater_equal(sizes, 0)


def _in_four(payloads: pa.BinaryArray, key_sizes: pa.Int32Array) -> pa.BinaryArray:
    """Split each payload into four: size, key, size and value. Copy no bytes."""
    rows = len(payloads)
    _, offsets, data = payloads.buffers()
    ends = _ints(memoryview(offsets)[4 * payloads.offset :][: 4 * rows + 4])
    key_starts = pc.add(_array(pa.int32(), ends).slice(0, rows), _FOUR)
    key_ends = pc.add(key_starts, key_sizes)
    value_starts = pc.add(key_ends, _FOUR)
    borders = array("i", bytes(16 * rows + 4))
    borders[0::4] = ends
    for place, numbers in enumerate((key_starts, key_ends, value_starts), 1):
        borders[place::4] = _ints(memoryview(numbers.buffers()[1])[: 4 * rows])
    buffers = [None, pa.py_buffer(borders), data]
    return pa.Array.from_buffers(pa.binary(), 4 * rows, buffers)


def _ints(data: memoryview) -> array[int]:
    numbers = array("i")
    numbers.frombytes(data)
    return numbers


def _every(four: pa.BinaryArray, place: int) -> pa.BooleanArray:
    """Return the filter that takes a place out of each four bytes."""
    bits = bytes([0x11 << place]) * (len(four) // 8 + 1)
    return pa.Array.from_buffers(pa.bool_(), len(four), [None, pa.py_buffer(bits)])


def _null_at(values: pa.BinaryArray, valid: pa.BooleanArray) -> pa.BinaryArray:
    if pc.all(valid).as_py():
        return values
    return pc.if_else(valid, values, pa.scalar(None, values.type))
