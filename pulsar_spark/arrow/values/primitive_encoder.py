# SPDX-License-Identifier: Apache-2.0
"""A column as values of a primitive schema, as the Java client writes them.

::

    INT8 ... INT64, FLOAT, DOUBLE   big-endian         BOOLEAN          00 or 01
    STRING                          UTF-8              LOCAL_DATE       day(8)
    DATE, TIMESTAMP                 ms since 1970(8)   LOCAL_TIME       ns of the day(8)
    TIME                            ms of the day(8)   LOCAL_DATE_TIME  day(8) ns(8)
    INSTANT                         s(8) ns(4)
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.arrow.values.avro_parts import (
    check_text,
    in_unit,
    is_exact_double,
    is_exact_float,
)
from pulsar_spark.arrow.values.avro_text import is_text
from pulsar_spark.arrow.values.sql_types import cure, sql_type
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, UnfitColumnsError

_KINDS = pa.types
_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000
_DAY_MS = 86_400_000


class PrimitiveEncoder:
    """Makes values of a single column; NULL is a null value.

    Args:
        info: The schema.
        schema: The column.
        time_zone: In which a moment of the schema DATE has its day, and of TIME its
            time of day.

    Raises:
        UnfitColumnsError: There are more columns, or it has another type.
    """

    def __init__(
        self, info: SchemaInfo, schema: pa.Schema, time_zone: str = "UTC"
    ) -> None:
        if len(schema) != 1:
            raise UnfitColumnsError(
                f"the schema is {info.type_name}, which is a single column"
            )
        (field,) = schema
        kind = SchemaType(info.type)
        primitive = _PRIMITIVES[kind]
        if not primitive.accepts(field.type):
            sql_names = _SQL[kind]
            raise UnfitColumnsError(
                f"`{field.name}` is {sql_type(field.type)}, and the schema"
                f" {info.type_name}, which is {sql_names} in Spark"
                + cure(field.type, sql_names, field.name)
            )
        self.columns = (field.name,)
        self._encode = primitive.encode
        if time_zone != "UTC":
            if kind is SchemaType.DATE:
                self._encode = lambda days: _midnights_in(days, time_zone)
            elif kind is SchemaType.TIME and _KINDS.is_time(field.type):
                self._encode = lambda times: _times_in(times, time_zone)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value of each row.

        Raises:
            UnfitValueError: Text is not UTF-8.
        """
        (values,) = columns
        if values.type == pa.string() or values.type == pa.large_string():
            check_text(values, self.columns[0])
        return EncodedValues(self._encode(values))


def primitive_of(type_: pa.DataType) -> SchemaType | None:
    """Return the schema that a single column of this type gets; None for none.

    Of dates and times those that hold all of Spark's.
    """
    for kind in _BY_CHOICE:
        if _PRIMITIVES[kind].is_natural(type_):
            return kind
    return None


class _Primitive(NamedTuple):
    is_natural: Callable[[pa.DataType], bool]
    accepts: Callable[[pa.DataType], bool]
    encode: Callable[[pa.Array], pa.LargeBinaryArray]


def _swapped(to: pa.DataType, code: str) -> Callable[[pa.Array], pa.LargeBinaryArray]:
    return lambda values: _numbers(values.cast(to), code)


def _numbers(values: pa.Array, code: str) -> pa.LargeBinaryArray:
    """Return numbers as bytes, the highest first."""
    size = values.type.bit_width // 8
    numbers = _array(values, code)
    _to_big_endian(numbers)
    return _fixed(values, numbers, size)


def _array(values: pa.Array, code: str) -> array[int]:
    size = values.type.bit_width // 8
    view = memoryview(values.buffers()[1] or b"").cast("B")
    begin = values.offset * size
    numbers = array(code)
    numbers.frombytes(view[begin : begin + len(values) * size])
    return numbers


def _to_big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()


def _fixed(like: pa.Array, data: array[int], size: int) -> pa.LargeBinaryArray:
    """Return values of a fixed size, NULL where ``like`` is NULL."""
    validity = like.is_valid().buffers()[1] if like.null_count else None
    type_ = pa.binary(size)
    buffers = [validity, pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(like), buffers).cast(pa.large_binary())


def _booleans(values: pa.Array) -> pa.LargeBinaryArray:
    return _numbers(values.cast(pa.int8()), "b")


def _text(values: pa.Array) -> pa.LargeBinaryArray:
    return values.cast(pa.large_binary())


def _millis(values: pa.Array) -> pa.LargeBinaryArray:
    return _numbers(in_unit(values, 1000), "q")


def _millis_of_day(values: pa.Array) -> pa.LargeBinaryArray:
    if _KINDS.is_time(values.type):
        values = in_unit(values.cast(pa.time64("ns")), 1_000_000)
    return _numbers(values.cast(pa.int64()), "q")


def _times_in(values: pa.Array, time_zone: str) -> pa.LargeBinaryArray:
    """Return the moment of each time of day in a zone, on 1970-01-01."""
    millis = in_unit(values.cast(pa.time64("ns")), 1_000_000)
    moments = pc.assume_timezone(millis.cast(pa.timestamp("ms")), time_zone)
    return _numbers(moments.cast(pa.int64()), "q")


def _nanos_of_day(values: pa.Array) -> pa.LargeBinaryArray:
    if _KINDS.is_time(values.type):
        values = values.cast(pa.time64("ns"))
    return _numbers(values.cast(pa.int64()), "q")


def _days(values: pa.Array) -> pa.LargeBinaryArray:
    return _numbers(values.cast(pa.int32()).cast(pa.int64()), "q")


def _midnights(values: pa.Array) -> pa.LargeBinaryArray:
    days = values.cast(pa.int32()).cast(pa.int64())
    return _numbers(pc.multiply(days, pa.scalar(_DAY_MS, pa.int64())), "q")


def _midnights_in(values: pa.Array, time_zone: str) -> pa.LargeBinaryArray:
    """Return the first moment of each day in a zone, whose clock may skip midnight."""
    moments = pc.assume_timezone(
        values.cast(pa.int32()).cast(pa.date32()).cast(pa.timestamp("ms")),
        time_zone,
        ambiguous="earliest",
        nonexistent="latest",
    )
    return _numbers(moments.cast(pa.int64()), "q")


def _split(values: pa.Array, unit_us: int) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Return whole units, rounded down, and the nanoseconds that are left."""
    us = values.cast(pa.int64())
    units = in_unit(us, unit_us)
    left = pc.subtract(us, pc.multiply(units, pa.scalar(unit_us, pa.int64())))
    return units, pc.multiply(left, pa.scalar(1000, pa.int64()))


def _instants(values: pa.Array) -> pa.LargeBinaryArray:
    seconds, nanos = _split(values, _SECOND_US)
    high, low = _halves(seconds)
    return _interleaved(values, [high, low, _array(nanos.cast(pa.int32()), "i")])


def _halves(numbers: pa.Int64Array) -> tuple[array[int], array[int]]:
    halves = array("i")
    halves.frombytes(_array(numbers, "q").tobytes())
    first, second = halves[0::2], halves[1::2]
    return (second, first) if sys.byteorder == "little" else (first, second)


def _dates_and_times(values: pa.Array) -> pa.LargeBinaryArray:
    days, nanos = _split(values, _DAY_US)
    return _interleaved(values, [_array(days, "q"), _array(nanos, "q")])


def _interleaved(like: pa.Array, parts: list[array[int]]) -> pa.LargeBinaryArray:
    """Return the concatenated parts of each row."""
    first = parts[0]
    joined = array(first.typecode, bytes(len(first) * first.itemsize * len(parts)))
    for index, part in enumerate(parts):
        joined[index :: len(parts)] = part
    _to_big_endian(joined)
    return _fixed(like, joined, first.itemsize * len(parts))


def _up_to(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda type_: (
        bool(_KINDS.is_signed_integer(type_)) and type_.bit_width <= bits
    )


def _never(type_: pa.DataType) -> bool:
    del type_
    return False


def _is_instant(type_: pa.DataType) -> bool:
    return bool(_KINDS.is_timestamp(type_)) and type_.tz is not None


def _is_local(type_: pa.DataType) -> bool:
    return bool(_KINDS.is_timestamp(type_)) and type_.tz is None


def _is_time_of_day(type_: pa.DataType) -> bool:
    return bool(_KINDS.is_time64(type_))


def _is_time_or_number(type_: pa.DataType) -> bool:
    return _is_time_of_day(type_) or bool(_KINDS.is_int64(type_))


#: What each takes for its own, what besides, and how it is written.
_PRIMITIVES: dict[SchemaType, _Primitive] = {
    SchemaType.BOOLEAN: _Primitive(_KINDS.is_boolean, _KINDS.is_boolean, _booleans),
    SchemaType.INT8: _Primitive(_KINDS.is_int8, _up_to(8), _swapped(pa.int8(), "b")),
    SchemaType.INT16: _Primitive(
        _KINDS.is_int16, _up_to(16), _swapped(pa.int16(), "h")
    ),
    SchemaType.INT32: _Primitive(
        _KINDS.is_int32, _up_to(32), _swapped(pa.int32(), "i")
    ),
    SchemaType.INT64: _Primitive(
        _KINDS.is_int64, _up_to(64), _swapped(pa.int64(), "q")
    ),
    SchemaType.FLOAT: _Primitive(
        _KINDS.is_float32, is_exact_float, _swapped(pa.float32(), "f")
    ),
    SchemaType.DOUBLE: _Primitive(
        _KINDS.is_float64, is_exact_double, _swapped(pa.float64(), "d")
    ),
    SchemaType.STRING: _Primitive(is_text, is_text, _text),
    SchemaType.INSTANT: _Primitive(_is_instant, _is_instant, _instants),
    SchemaType.TIMESTAMP: _Primitive(_never, _is_instant, _millis),
    SchemaType.DATE: _Primitive(_never, _KINDS.is_date32, _midnights),
    SchemaType.TIME: _Primitive(_never, _is_time_or_number, _millis_of_day),
    SchemaType.LOCAL_DATE: _Primitive(_KINDS.is_date32, _KINDS.is_date32, _days),
    SchemaType.LOCAL_TIME: _Primitive(
        _is_time_of_day, _is_time_or_number, _nanos_of_day
    ),
    SchemaType.LOCAL_DATE_TIME: _Primitive(_is_local, _is_local, _dates_and_times),
}
_BY_CHOICE = tuple(_PRIMITIVES)

#: SQL's types that fit, for errors.
_SQL = {
    SchemaType.BOOLEAN: "BOOLEAN",
    SchemaType.INT8: "TINYINT",
    SchemaType.INT16: "SMALLINT",
    SchemaType.INT32: "INT",
    SchemaType.INT64: "BIGINT",
    SchemaType.FLOAT: "FLOAT",
    SchemaType.DOUBLE: "DOUBLE",
    SchemaType.STRING: "STRING",
    SchemaType.INSTANT: "TIMESTAMP",
    SchemaType.TIMESTAMP: "TIMESTAMP",
    SchemaType.DATE: "DATE",
    SchemaType.TIME: "TIME",
    SchemaType.LOCAL_DATE: "DATE",
    SchemaType.LOCAL_TIME: "TIME",
    SchemaType.LOCAL_DATE_TIME: "TIMESTAMP_NTZ",
}


def size_bytes(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the size of each value in four bytes, -1 for NULL."""
    sizes = pc.binary_length(values).fill_null(pa.scalar(-1, pa.int64()))
    return _numbers(sizes.cast(pa.int32()), "i")
