# SPDX-License-Identifier: Apache-2.0
"""How scalars in JSON become Arrow: which types go together, and in which units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.values import json_tokens as tokens
from pulsar_spark.arrow.values.avro_plan import last_below
from pulsar_spark.arrow.values.avro_types import column_type
from pulsar_spark.arrow.values.json_tokens import BadTokenError, Reader
from pulsar_spark.loops import avro
from pulsar_spark.loops import json_values as kernel
from pulsar_spark.schemas.avro import AvroType, Kind, Logical
from pulsar_spark.schemas.info import InvalidSchemaError
from spark_topics.text import is_unicode

#: Makes the compiled reader of a column's tokens that are not null.
Fill = Callable[[Any], avro.Reader]


def _leave(column: avro.Column) -> avro.Reader:
    """Leave tokens to the reader of single values."""
    del column
    return avro.Fail()


@dataclass(frozen=True)
class Node:
    """How values of a type become Arrow.

    Attributes:
        type: The type that is made.
        read: Makes a Python value of a token, which is not null.
        fill: Makes the kernel's reader into a column of ``type``, which reads some of
            these tokens, and leaves the others to ``read``.
    """

    type: pa.DataType
    read: Reader
    fill: Fill = _leave


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
        return Node(wanted, tokens.boolean, kernel.ReadBoolean)
    if kinds.is_decimal(wanted):
        return _decimal(writer, wanted, codec, where)
    logical = writer.logical
    if logical not in tokens.UNITS:
        logical = reader.logical  # a number has the unit that its reader says
    if logical in tokens.UNITS and not kinds.is_floating(wanted):
        assert logical is not None
        return _temporal(logical, reader, wanted, where)
    if kinds.is_floating(wanted):
        return Node(wanted, tokens.floating, kernel.ReadFloat)
    if kinds.is_integer(wanted):
        least, most = _bounds(wanted)
        return Node(
            wanted,
            tokens.integer(least, most),
            lambda column: kernel.ReadWhole(column, least, most),
        )
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
    usual = frozenset(own.encode() for own in symbols.values() if own in symbols)

    def read(token: Any) -> Any:
        if isinstance(token, tokens.Number):
            return str(token)
        number = symbols.get(token) if isinstance(token, str) else None
        if not number:
            raise tokens.bad(token, "a symbol of its enum")
        return number

    return Node(wanted, read, lambda column: kernel.ReadSymbol(column, usual))


def _decimal(
    writer: AvroType, wanted: pa.Decimal128Type, codec: str, where: str
) -> Node:
    if writer.logical is not Logical.DECIMAL:
        raise InvalidSchemaError(f"at `{where}` {writer} cannot be read as {wanted}")
    precision, scale = wanted.precision, wanted.scale
    is_number = codec != "latin1"  # there a text has the bytes of a number
    return Node(
        wanted,
        tokens.decimal(precision, scale, codec),
        lambda column: kernel.ReadDecimal(column, precision, scale, is_number),
    )


def _text_or_bytes(writer: AvroType, wanted: pa.DataType, codec: str) -> Node:
    is_text = pa.types.is_string(wanted) or pa.types.is_large_string(wanted)
    if writer.kind is Kind.STRING:
        read = tokens.text if is_text else lambda token: tokens.text(token).encode()
        return Node(wanted, read, lambda column: kernel.ReadText(column, True))
    size = writer.size if writer.kind is Kind.FIXED else -1
    read_bytes = tokens.binary(codec, size)
    if is_text:
        return Node(wanted, lambda token: _decoded(read_bytes(token)))
    if codec == "base64":
        return Node(wanted, read_bytes, lambda column: kernel.ReadBase64(column, size))
    if size >= 0:
        return Node(wanted, read_bytes)
    is_ascii = codec == "latin1"
    return Node(
        wanted, read_bytes, lambda column: kernel.ReadText(column, False, is_ascii)
    )


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
    if (asked in tokens.TIMES) is not (logical in tokens.TIMES):
        raise InvalidSchemaError(
            f"at `{where}` there is {logical.value}, which cannot be read as "
            f"{asked.value}"
        )
    unit, (least, most) = tokens.UNITS[asked], _bounds(wanted)
    if pa.types.is_time(wanted):
        unit, least, most = 1000, 0, _DAY_US - 1
    elif pa.types.is_timestamp(wanted):
        unit = 1000
    own_unit = tokens.UNITS[logical]
    by = Fraction(own_unit, unit)
    # The limits as the writer would have them: least <= number * by < most + 1.
    low = max(-(2**63), -(-least * by.denominator // by.numerator))
    high = min(2**63 - 1, last_below((most + 1) / by))

    def fill(column: avro.LongColumn) -> avro.Reader:
        whole = kernel.ReadWhole(column, low, high, by.numerator, by.denominator)
        is_time, is_date = logical in tokens.TIMES, logical is Logical.DATE
        has_seconds = not (is_time or is_date)
        return kernel.ReadMoment(column, whole, is_time, has_seconds, unit, least, most)

    read = tokens.temporal(logical, unit, least, most)
    if wanted == pa.time64("ns"):  # the column is of microseconds until the end
        return Node(wanted, lambda token: read(token) * 1000, fill)
    return Node(wanted, read, fill)


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
