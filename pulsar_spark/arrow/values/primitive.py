# SPDX-License-Identifier: Apache-2.0
"""Values of Pulsar's primitive schemas: numbers, texts, bytes, days and times.

All but texts and bytes have a fixed size, in big-endian order, as Java writes them::

    INSTANT          seconds(8) nanoseconds(4)
    LOCAL_DATE_TIME  days(8) nanoseconds of the day(8)

The values of a run lie back to back, so they are one buffer of numbers, which are
swapped together; a value of another size is replaced by zeros before.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.arrow.values import Decoded, ValueSettings
from pulsar_spark.arrow.values.together import with_unit
from pulsar_spark.columns import VALUE
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType

_MS_PER_DAY = 86_400_000
_NS_PER_DAY = _MS_PER_DAY * 1_000_000
_MIN_32, _MAX_32 = -(2**31), 2**31 - 1
_MIN_64, _MAX_64 = -(2**63), 2**63 - 1

#: Up to so many values, each is looked at; of more, the halves.
_FEW = 64

_TYPES = {
    SchemaType.NONE: pa.binary(),  # BYTES, as a part of a KEY_VALUE
    SchemaType.STRING: pa.string(),
    SchemaType.BOOLEAN: pa.bool_(),
    SchemaType.INT8: pa.int8(),
    SchemaType.INT16: pa.int16(),
    SchemaType.INT32: pa.int32(),
    SchemaType.INT64: pa.int64(),
    SchemaType.FLOAT: pa.float32(),
    SchemaType.DOUBLE: pa.float64(),
    SchemaType.DATE: pa.date32(),
    SchemaType.TIME: pa.int64(),
    SchemaType.TIMESTAMP: TIMESTAMP,
    SchemaType.INSTANT: TIMESTAMP,
    SchemaType.LOCAL_DATE: pa.date32(),
    SchemaType.LOCAL_TIME: pa.int64(),
    SchemaType.LOCAL_DATE_TIME: pa.timestamp("us"),
}

#: Times of the day, which are numbers of a unit of their own.
_TIMES = (SchemaType.TIME, SchemaType.LOCAL_TIME)

#: What else a user may ask for, without a change of what a value says.
_ALSO = {
    SchemaType.NONE: (pa.large_binary(),),
    SchemaType.STRING: (pa.large_string(), pa.binary(), pa.large_binary()),
    SchemaType.TIME: (pa.time64("us"), pa.time64("ns")),
    SchemaType.LOCAL_TIME: (pa.time64("us"), pa.time64("ns")),
}

#: Numbers, from those that may be read as others to these.
_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.int64(): (),
    pa.float32(): (pa.float64(),),
    pa.float64(): (),
}
_NUMBERS = {
    SchemaType.INT8,
    SchemaType.INT16,
    SchemaType.INT32,
    SchemaType.INT64,
    SchemaType.FLOAT,
    SchemaType.DOUBLE,
}


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the column ``value``, in the type that the schema maps to.

    Raises:
        InvalidSchemaError: The schema is not primitive.
    """
    kind = _kind(info)
    field = pa.field(VALUE, _TYPES[kind])
    return pa.schema([with_unit(field, kind.name) if kind in _TIMES else field])


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> PrimitiveDecoder:
    """Return what makes the column of values that were written with ``writer``.

    Raises:
        InvalidSchemaError: The column cannot be made of ``reader``'s values, or these
            not of ``writer``'s.
    """
    kind, wanted_kind = _kind(writer), _kind(reader)
    if kind is not wanted_kind and not (
        {kind, wanted_kind} <= _NUMBERS and _TYPES[wanted_kind] in _WIDER[_TYPES[kind]]
    ):
        raise InvalidSchemaError(f"{kind.name} cannot be read as {wanted_kind.name}")
    for field in wanted:
        if field.name != VALUE:
            raise InvalidSchemaError(
                f"values of {wanted_kind.name} are the column `{VALUE}`; there is no "
                f"`{field.name}`"
            )
        _check_type(wanted_kind, field.type)
    return PrimitiveDecoder(kind, wanted, settings.time_zone)


def _kind(info: SchemaInfo) -> SchemaType:
    kind = SchemaType(info.type) if info.type in _TYPES else None
    if kind is None:
        raise InvalidSchemaError(f"{info.type_name} is no primitive type")
    return kind


def _check_type(kind: SchemaType, wanted: pa.DataType) -> None:
    """Raise if the values cannot be of the type that the user asks for."""
    type_ = _TYPES[kind]
    if wanted == type_ or wanted in _ALSO.get(kind, ()):
        return
    if kind in _NUMBERS and (
        wanted in _WIDER[type_]
        or (pa.types.is_signed_integer(type_) and pa.types.is_signed_integer(wanted))
    ):
        return
    raise InvalidSchemaError(f"values of {kind.name} cannot be of the type {wanted}")


class PrimitiveDecoder:
    """Makes the column of a primitive schema; see ``VersionDecoder``.

    Args:
        kind: The type of the schema that the values were written with.
        wanted: The column, or none.
        time_zone: In which a moment has its day and its time of day.
    """

    def __init__(self, kind: SchemaType, wanted: pa.Schema, time_zone: str) -> None:
        self._kind = kind
        self._columns = len(wanted)
        self._type = wanted.field(0).type if self._columns else _TYPES[kind]
        self._time_zone = time_zone
        self._fixed = _FIXED.get(kind)

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the column.

        Bad are values of another size, out of the column's range, and texts that are
        not UTF-8. A value without bytes is NULL as a null value is, but for texts and
        bytes.
        """
        del keys
        if not len(values):
            return self._decoded(pa.array([], self._type))
        if self._fixed is not None:
            return self._numbers(values, *self._fixed)
        if self._kind is SchemaType.NONE:
            return self._decoded(values)
        return self._texts(values)

    def _texts(self, values: pa.BinaryArray) -> Decoded:
        try:
            return self._decoded(values.cast(pa.string()))
        except pa.ArrowInvalid:
            bad = list(_not_texts(values, 0))
        is_bad = bytearray(len(values))
        for row in bad:
            is_bad[row] = 1
        valid = pc.equal(_array(pa.uint8(), is_bad), 0)
        texts = pc.if_else(valid, values, pa.scalar(None, values.type))
        return self._decoded(texts.cast(pa.string()), bad, "it is not UTF-8")

    def _numbers(self, values: pa.BinaryArray, size: int, read: _Reader) -> Decoded:
        sizes = pc.binary_length(values)
        valid = _of_size(values, sizes, size)
        if valid is not None:
            values = pc.if_else(valid, values, pa.scalar(bytes(size)))
        column, fits = read(_bytes_of(values, size), self._type, self._time_zone)
        if valid is None and fits is None:
            return self._decoded(column)
        kept = _both(valid, fits)
        column = pc.if_else(kept, column, pa.scalar(None, column.type))
        is_bad = pc.and_(pc.invert(kept), pc.greater(sizes, 0).fill_null(False))
        bad = pc.indices_nonzero(is_bad).to_pylist()
        if not bad:
            return self._decoded(column)
        first = sizes[bad[0]].as_py()
        reason = f"its {self._kind.name} is out of range of {self._type}"
        if first != size:
            reason = f"it has {first:,} bytes, and {self._kind.name} has {size}"
        return self._decoded(column, bad, reason)

    def _decoded(
        self, column: pa.Array, bad: Sequence[int] = (), reason: str = ""
    ) -> Decoded:
        if column.type != self._type:
            column = column.cast(self._type)
        return Decoded((column,) * self._columns, bad, reason)


# -- values of one size ----------------------------------------------------------------


class _Read(NamedTuple):
    """A column, and which of its rows are in range; None for all rows."""

    column: pa.Array
    fits: pa.BooleanArray | None = None


#: Reads values that lie back to back: for a column of this type, in this time zone.
_Reader = Callable[[memoryview, pa.DataType, str], _Read]


def _of_size(
    values: pa.BinaryArray, sizes: pa.Int32Array, size: int
) -> pa.BooleanArray | None:
    """Return which values have ``size`` bytes; None if all have."""
    if not values.null_count:
        least_most = pc.min_max(sizes).as_py()
        if least_most == {"min": size, "max": size}:
            return None
    return pc.equal(sizes, size).fill_null(False)


def _bytes_of(values: pa.BinaryArray, size: int) -> memoryview:
    """Return the bytes of values that all have this size."""
    _, offsets, data = values.buffers()
    (start,) = struct.unpack_from("=i", offsets, 4 * values.offset)
    return memoryview(data)[start : start + size * len(values)]


def _both(
    one: pa.BooleanArray | None, other: pa.BooleanArray | None
) -> pa.BooleanArray:
    if one is None or other is None:
        return other if one is None else one
    return pc.and_(one, other)


def _array(type_: pa.DataType, data: Any) -> pa.Array:
    """Return memory as an array of numbers."""
    rows = len(memoryview(data).cast("B")) * 8 // type_.bit_width
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(data)])


def _swapped(code: str, data: memoryview) -> array[int]:
    """Return big-endian numbers in the byte order of this machine."""
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _held(numbers: pa.Array, least: int, most: int) -> _Read:
    """Return the numbers, 0 for numbers out of the bounds."""
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] >= least and extremes["max"] <= most:
        return _Read(numbers)
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    return _Read(pc.if_else(fits, numbers, pa.scalar(0, numbers.type)), fits)


def _number(code: str, type_: pa.DataType) -> _Reader:
    """Return what reads numbers; narrower columns may have no room for some."""

    def read(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
        del time_zone
        numbers = _array(type_, _swapped(code, data))
        if wanted.bit_width < type_.bit_width:
            half = 2 ** (wanted.bit_width - 1)
            return _held(numbers, -half, half - 1)
        return _Read(numbers)

    return read


def _booleans(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    # True is any byte but 0, for Java.
    del wanted, time_zone
    return _Read(pc.not_equal(_array(pa.uint8(), data), pa.scalar(0, pa.uint8())))


def _dates(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del wanted
    moments = _array(pa.int64(), _swapped("q", data))
    # A day less: zones are some hours away.
    least, most = (_MIN_32 + 1) * _MS_PER_DAY, (_MAX_32 - 1) * _MS_PER_DAY
    held, fits = _held(moments, least, most)
    return _Read(held.cast(pa.timestamp("ms", time_zone)).cast(pa.date32()), fits)


def _times(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    moments = _array(pa.int64(), _swapped("q", data))
    if not pa.types.is_time(wanted):
        return _Read(moments)
    bound = _MAX_32 * _MS_PER_DAY
    held, fits = _held(moments, -bound, bound)
    return _Read(held.cast(pa.timestamp("ms", time_zone)).cast(wanted), fits)


def _timestamps(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del wanted, time_zone
    moments = _array(pa.int64(), _swapped("q", data))
    held, fits = _held(moments, _MIN_64 // 1000 + 1, _MAX_64 // 1000)
    return _Read(pc.multiply(held, _int64(1000)).cast(TIMESTAMP), fits)


def _instants(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del wanted, time_zone
    words = _array(pa.int32(), _swapped("i", data))
    rows = len(words) // 3
    seconds = words.take(_halves(rows))
    return _moments(
        pa.Array.from_buffers(pa.int64(), rows, seconds.buffers()),
        1_000_000,
        words.take(_places(2, 3, rows)).cast(pa.int64()),
        999_999_999,
        TIMESTAMP,
    )


def _local_dates(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del wanted, time_zone
    held, fits = _held(_array(pa.int64(), _swapped("q", data)), _MIN_32, _MAX_32)
    return _Read(held.cast(pa.int32()).cast(pa.date32()), fits)


def _local_times(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del time_zone
    held, fits = _held(_array(pa.int64(), _swapped("q", data)), 0, _NS_PER_DAY - 1)
    if not pa.types.is_time(wanted):
        return _Read(held, fits)
    # Down to the microsecond, which is what Spark has.
    micros = _micros(held).cast(pa.time64("us"))
    return _Read(micros.cast(wanted), fits)


def _local_date_times(data: memoryview, wanted: pa.DataType, time_zone: str) -> _Read:
    del wanted, time_zone
    words = _array(pa.int64(), _swapped("q", data))
    rows = len(words) // 2
    days, nanoseconds = (words.take(_places(index, 2, rows)) for index in (0, 1))
    return _moments(
        days, 1_000_000 * 86_400, nanoseconds, _NS_PER_DAY - 1, pa.timestamp("us")
    )


def _moments(
    numbers: pa.Int64Array,
    unit_us: int,
    nanoseconds: pa.Int64Array,
    most_nanoseconds: int,
    type_: pa.DataType,
) -> _Read:
    """Return moments, down to the microsecond, from units and nanoseconds beyond."""
    least, most = _MIN_64 // unit_us, _MAX_64 // unit_us
    units, are_held = _held(numbers, least, most)
    rest, rest_fits = _held(nanoseconds, 0, most_nanoseconds)
    micros = _micros(rest)
    fits = None
    if are_held is not None or rest_fits is not None:
        fits = _both(are_held, rest_fits)
    # Of the first and the last unit only a part fits. What is beyond 64 bits on the way
    # there is so no more at the end.
    extremes = pc.min_max(units).as_py()
    if extremes["min"] == least or extremes["max"] == most:
        is_early = pc.and_(pc.equal(units, least), pc.less(micros, _MIN_64 % unit_us))
        is_late = pc.and_(pc.equal(units, most), pc.greater(micros, _MAX_64 % unit_us))
        fits = _both(fits, pc.invert(pc.or_(is_early, is_late)))
    moments = pc.add(pc.multiply(units, _int64(unit_us)), micros)
    return _Read(moments.cast(type_), fits)


#: Of ``_places`` and ``_halves``, the longest of each that was needed.
_indices: dict[tuple[int, int], pa.Int32Array] = {}


def _places(first: int, step: int, count: int) -> pa.Int32Array:
    """Return the places of every third word, or so: faster than a slice with a step."""
    indices = _indices.get((first, step))
    if indices is None or len(indices) < count:
        indices = pa.array(range(first, first + step * count, step), pa.int32())
        _indices[first, step] = indices
    return indices.slice(0, count)


def _halves(count: int) -> pa.Int32Array:
    """Return the indexes of the first two of every three words, in number order."""
    indices = _indices.get((0, 0))
    if indices is None or len(indices) < 2 * count:
        high, low = (1, 0) if sys.byteorder == "little" else (0, 1)
        indices = pa.array(
            [3 * row + word for row in range(count) for word in (high, low)], pa.int32()
        )
        _indices[0, 0] = indices
    return indices.slice(0, 2 * count)


def _micros(nanoseconds: pa.Int64Array) -> pa.Int64Array:
    """Return nanoseconds from 0 on as microseconds."""
    return pc.divide(nanoseconds, _int64(1000))


def _int64(number: int) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())  # of a number of Python's, it takes longer


#: Sizes of the types that have one, and what reads their values.
_FIXED: dict[SchemaType, tuple[int, _Reader]] = {
    SchemaType.BOOLEAN: (1, _booleans),
    SchemaType.INT8: (1, _number("b", pa.int8())),
    SchemaType.INT16: (2, _number("h", pa.int16())),
    SchemaType.INT32: (4, _number("i", pa.int32())),
    SchemaType.INT64: (8, _number("q", pa.int64())),
    SchemaType.FLOAT: (4, _number("f", pa.float32())),
    SchemaType.DOUBLE: (8, _number("d", pa.float64())),
    SchemaType.DATE: (8, _dates),
    SchemaType.TIME: (8, _times),
    SchemaType.TIMESTAMP: (8, _timestamps),
    SchemaType.INSTANT: (12, _instants),
    SchemaType.LOCAL_DATE: (8, _local_dates),
    SchemaType.LOCAL_TIME: (8, _local_times),
    SchemaType.LOCAL_DATE_TIME: (16, _local_date_times),
}


# -- texts -----------------------------------------------------------------------------


def _not_texts(values: pa.BinaryArray, first: int) -> Iterator[int]:
    """Yield the rows that are not UTF-8; ``first`` is the number of the first row."""
    try:
        values.cast(pa.string())
        return
    except pa.ArrowInvalid:
        pass
    if len(values) > _FEW:
        middle = len(values) // 2
        yield from _not_texts(values.slice(0, middle), first)
        yield from _not_texts(values.slice(middle), first + middle)
        return
    for row, value in enumerate(values.to_pylist(), first):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            yield row
