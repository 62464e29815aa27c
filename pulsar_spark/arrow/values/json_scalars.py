# SPDX-License-Identifier: Apache-2.0
"""How scalars in JSON become Arrow: which types go together, and in which units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import json_tokens as tokens
from pulsar_spark.arrow.values.avro_types import column_type
from pulsar_spark.arrow.values.json_tokens import BadTokenError, Reader
from pulsar_spark.schemas.avro import AvroType, Kind, Logical
from pulsar_spark.schemas.info import InvalidSchemaError
from spark_topics.text import is_unicode

#: Makes the column's array of the parser's.
Finish = Callable[[pa.Array], pa.Array]


class UnusualError(ValueError):
    """The parser's array is not enough to make a column."""


@dataclass(frozen=True)
class Node:
    """How values of a type become Arrow.

    Attributes:
        type: The type that is made.
        read: Makes a Python value of a token, which is not null.
        parsed: The type as which Arrow's parser reads it; None if it cannot.
        finish: Makes an array of ``type`` of one of ``parsed``; raises
            ``UnusualError`` or ``pa.ArrowInvalid`` where ``read`` has to decide.
    """

    type: pa.DataType
    read: Reader
    parsed: pa.DataType | None = None
    finish: Finish = lambda array: array


#: As what AVRO reads each type beside itself, but for a text that is an enum.
_READ_AS = {
    Kind.INT: (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.LONG: (Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.FLOAT: (Kind.FLOAT, Kind.DOUBLE),
    Kind.STRING: (Kind.STRING, Kind.BYTES),
    Kind.BYTES: (Kind.BYTES, Kind.STRING),
}


def scalar(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    """Return how scalars become Arrow; see ``json_plan.plan``."""
    if reader.kind not in _READ_AS.get(writer.kind, (writer.kind,)):
        raise InvalidSchemaError(
            f"at `{where}` there is {writer}, which cannot be read as {reader}"
        )
    if not _may_be(reader, wanted):
        raise InvalidSchemaError(f"at `{where}` {reader} cannot be of type {wanted}")
    kinds = pa.types
    if kinds.is_boolean(wanted):
        return Node(wanted, tokens.boolean, pa.bool_())
    if kinds.is_decimal(wanted):
        return _decimal(writer, wanted, codec, where)
    logical = writer.logical
    if logical not in tokens.UNITS:
        logical = reader.logical  # a number has the unit that its reader says
    if logical in tokens.UNITS and not kinds.is_floating(wanted):
        assert logical is not None
        return _temporal(logical, reader, wanted, where)
    if kinds.is_floating(wanted):
        return Node(
            wanted, tokens.floating, pa.float64(), lambda array: array.cast(wanted)
        )
    if kinds.is_integer(wanted):
        least, most = _bounds(wanted)
        return Node(wanted, tokens.integer(least, most), wanted)
    if writer.kind is Kind.ENUM:
        return _enum(writer, reader, wanted)
    return _text_or_bytes(writer, wanted, codec)


def _enum(writer: AvroType, reader: AvroType, wanted: pa.DataType) -> Node:
    """Return how enums become texts; numbers are positions, as in Python's client."""
    symbols = {
        symbol: symbol if symbol in reader.symbols else reader.default_symbol
        for symbol in writer.symbols
        if is_unicode(symbol)
    }
    usual = pa.array([own for own in symbols.values() if own in symbols], pa.string())

    def read(token: Any) -> Any:
        if isinstance(token, tokens.Number):
            return str(token)
        number = symbols.get(token) if isinstance(token, str) else None
        if not number:
            raise tokens.bad(token, "a symbol of its enum")
        return number

    def finish(array: pa.Array) -> pa.Array:
        if pc.is_in(array.drop_null(), usual).false_count:
            raise UnusualError
        return array.cast(wanted)

    return Node(wanted, read, pa.string(), finish)


def _decimal(
    writer: AvroType, wanted: pa.Decimal128Type, codec: str, where: str
) -> Node:
    if writer.logical is not Logical.DECIMAL or writer.scale > wanted.scale:
        raise InvalidSchemaError(f"at `{where}` {writer} cannot be read as {wanted}")
    read = tokens.decimal(wanted.precision, wanted.scale, codec)
    return Node(wanted, read, wanted, _checked)


def _checked(array: pa.Decimal128Array) -> pa.Array:
    """Return decimals; raise for a decimal with too many digits."""
    array.validate(full=True)
    return array


def _text_or_bytes(writer: AvroType, wanted: pa.DataType, codec: str) -> Node:
    is_text = pa.types.is_string(wanted) or pa.types.is_large_string(wanted)
    if writer.kind is Kind.STRING:
        read = tokens.text if is_text else lambda token: tokens.text(token).encode()
        return Node(wanted, read, pa.string(), lambda array: array.cast(wanted))
    size = writer.size if writer.kind is Kind.FIXED else -1
    read_bytes = tokens.binary(codec, size)
    if is_text:
        return Node(wanted, lambda token: _decoded(read_bytes(token)))

    def finish(array: pa.Array) -> pa.Array:
        try:
            values = [
                None if data is None else read_bytes(data) for data in array.to_pylist()
            ]
        except BadTokenError:
            raise UnusualError from None
        return pa.array(values, wanted)

    return Node(wanted, read_bytes, pa.string(), finish)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadTokenError("its bytes are not UTF-8") from None


def _bounds(type_: pa.DataType) -> tuple[int, int]:
    half = 2 ** (type_.bit_width - 1)
    return -half, half - 1


_DAY_US = 86_400_000_000


def _temporal(
    logical: Logical, reader: AvroType, wanted: pa.DataType, where: str
) -> Node:
    """Return how days, moments and times become the wanted type, by their units."""
    asked = reader.logical if reader.logical in tokens.UNITS else logical
    assert asked is not None
    if tokens.family(asked) != tokens.family(logical):
        raise InvalidSchemaError(
            f"at `{where}` there is {logical.value}, which cannot be read as "
            f"{asked.value}"
        )
    unit, (least, most) = tokens.UNITS[asked], _bounds(wanted)
    if pa.types.is_time(wanted):
        unit, least, most = 1000, 0, _DAY_US - 1
    elif pa.types.is_timestamp(wanted):
        unit = 1000
    number = pa.int64()
    own_unit = tokens.UNITS[logical]

    def finish(array: pa.Array) -> pa.Array:
        array = _rescaled(array.cast(number), own_unit, unit)
        extremes = pc.min_max(array).as_py()
        if (
            extremes["min"] is not None
            and not least <= extremes["min"] <= extremes["max"]
        ):
            raise UnusualError
        if extremes["max"] is not None and extremes["max"] > most:
            raise UnusualError
        if wanted == pa.date32():
            array = array.cast(pa.int32())
        if wanted == pa.time64("ns"):
            array = array.cast(pa.time64("us"))
        return array.cast(wanted)

    read = tokens.temporal(logical, unit, least, most)
    if wanted == pa.time64("ns"):
        return Node(wanted, lambda token: read(token) * 1000, number, finish)
    return Node(wanted, read, number, finish)


def _rescaled(numbers: pa.Int64Array, own_unit: int, unit: int) -> pa.Int64Array:
    """Convert numbers between units, rounding down."""
    if own_unit >= unit:
        if own_unit == unit:
            return numbers
        return pc.multiply_checked(numbers, own_unit // unit)
    ratio = unit // own_unit
    converted = pc.divide(numbers, ratio)
    is_less = pc.less(numbers, pc.multiply(converted, ratio))
    return pc.if_else(is_less, pc.subtract(converted, 1), converted)


# -- what a user may ask for -----------------------------------------------------------


def _may_be(type_: AvroType, wanted: pa.DataType) -> bool:
    """Return whether a user may ask for the type where a schema has ``type_``."""
    own, kinds = column_type(type_), pa.types
    if wanted == own:
        return True
    if kinds.is_decimal(own):
        return bool(
            kinds.is_decimal128(wanted)
            and wanted.scale == own.scale
            and wanted.precision >= own.precision
        )
    if type_.logical in _ASKED_FOR and wanted in _ASKED_FOR[type_.logical]:
        return True
    if kinds.is_signed_integer(own) and type_.logical in (None, *_ASKED_FOR):
        is_float = own == pa.int32() and wanted == pa.float64()
        return is_float or bool(kinds.is_signed_integer(wanted))
    return (own, wanted) in _LARGER


_LOCAL = (pa.timestamp("us"),)
_TIME = (pa.time64("us"), pa.time64("ns"))
_ASKED_FOR = {
    Logical.TIME_MILLIS: _TIME,
    Logical.TIME_MICROS: _TIME,
    Logical.LOCAL_TIMESTAMP_MILLIS: _LOCAL,
    Logical.LOCAL_TIMESTAMP_MICROS: _LOCAL,
    Logical.LOCAL_TIMESTAMP_NANOS: _LOCAL,
    Logical.TIMESTAMP_NANOS: (pa.timestamp("us", tz="UTC"),),
}
_LARGER = {
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
}
