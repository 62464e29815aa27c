# SPDX-License-Identifier: Apache-2.0
"""Tokens of JSON -> what Arrow makes arrays of, for scalars of AVRO's types.

What producers write differs by their client, and all of it is read:

========================  ==========================================================
a column of               is made of
========================  ==========================================================
whole numbers             a number without a fraction: ``1``, ``1.0``, ``1e3``
floats                    a number; ``NaN`` and ``Infinity``, also in quotes, as Java
                          has them
decimals                  a number, also in quotes, without more digits than the scale
texts                     a text; a number as it is written, as Java does BigDecimals
enums                     a symbol; a number as it is written: Python's value of one
bytes                     a text: base64, or the text's own bytes, as the user says
days, moments, times      a whole number in the unit of the schema; a number with a
                          fraction for a moment: seconds, as Java has Instants; an
                          array of year, month and so on, as Java has LocalDates;
                          ISO 8601
========================  ==========================================================

Numbers arrive as :class:`Number`, so that no digit is lost.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal, Inexact, InvalidOperation, localcontext
from typing import Any

from pulsar_spark.schemas.avro import Logical
from spark_topics.text import shorten


class BadTokenError(ValueError):
    """A token is not what the schema says; the text is a part of a sentence."""


class Number(str):
    """A number in JSON's spelling; also NaN, Infinity and -Infinity."""

    __slots__ = ()


#: Makes a Python value that Arrow takes of a token that is not null.
Reader = Callable[[Any], Any]


def load(text: str) -> Any:
    """Read JSON; for a repeated name the last value counts.

    Raises:
        BadTokenError: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(
            text, parse_float=Number, parse_int=Number, parse_constant=Number
        )
    except RecursionError:
        raise BadTokenError("it is nested too deeply") from None
    except ValueError as error:
        raise BadTokenError(f"it is not JSON: {error}") from None


def bad(token: Any, what: str) -> BadTokenError:
    """Return the error of a token that is not that."""
    shown = str(token) if isinstance(token, Number) else token
    return BadTokenError(f"{_shortened(shown)} is not {what}")


def _shortened(shown: Any) -> str:
    if isinstance(shown, str):
        return shorten(shown[:100], 40)
    if isinstance(shown, bool):
        return str(shown).lower()
    return "an array" if isinstance(shown, list) else "an object"


def boolean(token: Any) -> Any:
    """Read true and false."""
    if isinstance(token, bool):
        return token
    raise bad(token, "a boolean")


def integer(least: int, most: int) -> Reader:
    """Return the reader of whole numbers from ``least`` to ``most``."""

    def read(token: Any) -> Any:
        number = _whole(token)
        if number is None:
            raise bad(token, "a whole number")
        if not least <= number <= most:
            raise bad(token, f"between {least:,} and {most:,}")
        return number

    return read


def _whole(token: Any) -> int | None:
    """Return a whole number; None if the token is none, or 40 characters long."""
    if not isinstance(token, Number) or len(token) >= 40:
        return None
    try:
        return int(token)
    except ValueError:  # a fraction, an exponent, or NaN
        number = _finite(token)
    if number is None or number != number.to_integral_value():
        return None
    return int(number)


def _finite(token: Number) -> Decimal | None:
    """Return the number if finite, and neither very large nor very small."""
    try:
        number = Decimal(token)
    except InvalidOperation:  # an exponent of more than 18 digits
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 40 else None


def floating(token: Any) -> Any:
    """Read numbers, and the names NaN, Infinity and -Infinity."""
    if isinstance(token, Number) or token in ("NaN", "Infinity", "-Infinity"):
        return float(token)
    raise bad(token, "a number")


def text(token: Any) -> Any:
    """Read texts; numbers are texts of their digits."""
    if not isinstance(token, str):
        raise bad(token, "a text")
    try:
        token.encode()
    except UnicodeEncodeError:
        raise bad(token, "a text: half of a surrogate pair has no meaning") from None
    return str(token)


def binary(codec: str, size: int = -1) -> Reader:
    """Return what reads bytes.

    Args:
        codec: How a text says them: ``base64``, ``utf8``, or ``latin1``, as AVRO's
            default values do.
        size: How many there must be; -1 for any number.
    """

    def read(token: Any) -> Any:
        if not isinstance(token, str) or isinstance(token, Number):
            raise bad(token, "a text of bytes")
        try:
            data = unpack(token, codec)
        except ValueError:
            raise bad(token, f"in {codec}") from None
        if size not in (-1, len(data)):
            raise bad(token, f"{size} bytes")
        return data

    return read


def unpack(token: str, codec: str) -> bytes:
    """Return the bytes that a text says.

    Raises:
        ValueError: It says none.
    """
    if codec == "base64":
        return base64.b64decode(token, validate=True)
    return token.encode("latin-1" if codec == "latin1" else "utf-8")


def exact(unscaled: int, scale: int) -> Decimal:
    """Return a decimal with all digits, where ``scaleb`` would round."""
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def decimal(precision: int, scale: int, codec: str) -> Reader:
    """Return the reader of decimals with ``precision`` digits and a ``scale``."""

    def read(token: Any) -> Any:
        if codec == "latin1" and type(token) is str:
            unscaled = int.from_bytes(unpack(token, codec), "big", signed=True)
            return exact(unscaled, scale)
        if not isinstance(token, str) or not _DECIMAL.fullmatch(token):
            raise bad(token, "a decimal")
        # Of a number as long as its value, no digit more is ever needed.
        with localcontext() as context:
            context.prec = max(len(token), precision) + 1
            number = Decimal(token)
            if number and number.adjusted() >= precision - scale:
                raise bad(token, f"a decimal of {precision} digits")
            try:
                context.traps[Inexact] = True
                return number.quantize(Decimal(1).scaleb(-scale))
            except (InvalidOperation, Inexact):
                raise bad(token, f"a decimal with {scale} digits") from None

    return read


# -- days, moments, times --------------------------------------------------------------

_US = 1000
_SECOND = 10**9
_DAY = 86_400 * _SECOND

#: Nanoseconds of the unit in which numbers of a logical type are.
UNITS = {
    Logical.DATE: _DAY,
    Logical.TIME_MILLIS: 10**6,
    Logical.TIME_MICROS: _US,
    Logical.TIMESTAMP_MILLIS: 10**6,
    Logical.TIMESTAMP_MICROS: _US,
    Logical.TIMESTAMP_NANOS: 1,
    Logical.LOCAL_TIMESTAMP_MILLIS: 10**6,
    Logical.LOCAL_TIMESTAMP_MICROS: _US,
    Logical.LOCAL_TIMESTAMP_NANOS: 1,
}
TIMES = (Logical.TIME_MILLIS, Logical.TIME_MICROS)


def family(logical: Logical) -> str:
    """Return the kind of a logical type, such as ``date`` or ``timestamp``."""
    return logical.value.rpartition("-")[0] or logical.value


def temporal(logical: Logical, unit: int, least: int, most: int) -> Reader:
    """Return what reads days, moments or times as whole numbers.

    Args:
        logical: As what they were written.
        unit: Nanoseconds of what the numbers count.
        least: The smallest number that has room.
        most: The largest one.
    """
    parts = _time_of_parts if logical in TIMES else _moment_of_parts
    iso = _time_of_iso if logical in TIMES else _moment_of_iso
    own_unit = UNITS[logical]
    is_moment = logical is not Logical.DATE and logical not in TIMES

    def nanoseconds(token: Any) -> int | None:
        if isinstance(token, list):
            return parts([_whole(part) for part in token])
        if not isinstance(token, Number):
            return iso(token) if isinstance(token, str) else None
        if is_moment and not token.lstrip("-").isdigit():
            is_of_java = _SECONDS_OF_JAVA.fullmatch(token) is not None
            return _scaled(token, _SECOND if is_of_java else own_unit)
        number = _whole(token)
        return None if number is None else number * own_unit

    def read(token: Any) -> Any:
        count = nanoseconds(token)
        if count is None:
            raise bad(token, f"a {logical.value}")
        if not least <= count // unit <= most:
            raise bad(token, f"a {logical.value} that its column has room for")
        return count // unit

    return read


#: How Java's client writes an Instant: always with nine digits after the point.
_SECONDS_OF_JAVA = re.compile(r"-?[0-9]+\.[0-9]{9}")


def _scaled(token: Number, unit: int) -> int | None:
    """Return a number with a fraction or an exponent as nanoseconds, downwards.

    Args:
        token: The number; one of 40 characters or more is none.
        unit: Nanoseconds of what the number counts.
    """
    number = _finite(token) if len(token) < 40 else None
    if number is None:
        return None
    with localcontext() as context:
        context.prec = 100
        return int((number * unit).to_integral_value(ROUND_FLOOR))


def _moment_of_parts(parts: list[int | None]) -> int | None:
    """Return the moment of [year, month, day, hour, minute, second, nanosecond]."""
    if not 3 <= len(parts) <= 7 or len(parts) == 4 or None in parts:
        return None
    year, month, day = (number or 0 for number in parts[:3])
    time = _time_of_parts(parts[3:]) if parts[3:] else 0
    days = _days(year, month, day)
    return None if days is None or time is None else days * _DAY + time


def _time_of_parts(parts: list[int | None]) -> int | None:
    """Return the time of the day of [hour, minute, second, nanosecond]."""
    if not 2 <= len(parts) <= 4 or None in parts:
        return None
    hour, minute, second, below = (*(number or 0 for number in parts), 0, 0)[:4]
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    if not 0 <= below < _SECOND:
        return None
    return (hour * 3600 + minute * 60 + second) * _SECOND + below


def _days(year: int, month: int, day: int) -> int | None:
    """Return the number of a day, 0 for 1970-01-01."""
    if abs(year) > 10**9:
        return None
    # Python's years end at 9999; 400 of them always have as many days.
    cycles, rest = divmod(year, 400)
    try:
        ordinal = dt.date(rest + 400, month, day).toordinal()
    except (ValueError, OverflowError):
        return None
    return ordinal - dt.date(1970, 1, 1).toordinal() + (cycles - 1) * 146_097


def far_moment(number: int, unit: str) -> str:
    """Return a moment in ISO 8601 whose year does not have four digits.

    Args:
        number: How many units it is from 1970 on.
        unit: ``ms``, ``us`` or ``ns``.
    """
    digits = {"ms": 3, "us": 6, "ns": 9}[unit]
    seconds, below = divmod(number, 10**digits)
    days, second = divmod(seconds, 86_400)
    # Python's years end at 9999; 400 of them always have as many days.
    cycles, rest = divmod(days + dt.date(1970, 1, 1).toordinal() - 1, 146_097)
    date = dt.date.fromordinal(rest + 1)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return (
        f"{date.year + 400 * cycles:+05d}-{date.month:02d}-{date.day:02d}"
        f"T{hour:02d}:{minute:02d}:{second:02d}.{below:0{digits}d}"
    )


_ISO_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9})\d*)?)?"
_TIME = re.compile(_ISO_TIME, re.ASCII)
_MOMENT = re.compile(
    rf"([+-]?\d{{4,9}})-(\d\d)-(\d\d)(?:[T ]{_ISO_TIME}"
    r"(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


def _moment_of_iso(token: str) -> int | None:
    match = _MOMENT.fullmatch(token)
    if match is None:
        return None
    *moment, below, zone = match.groups()
    parts = [int(number) for number in moment if number is not None]
    if below is not None:
        parts.append(int(below.ljust(9, "0")))
    nanoseconds = _moment_of_parts([*parts])
    if nanoseconds is None or zone in (None, "Z"):
        return nanoseconds
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    offset = (hours * 3600 + minutes * 60) * _SECOND
    return nanoseconds + (offset if zone[0] == "-" else -offset)


def _time_of_iso(token: str) -> int | None:
    match = _TIME.fullmatch(token)
    if match is None:
        return None
    *time, below = match.groups()
    parts = [int(number) for number in time if number is not None]
    if below is not None:
        parts.append(int(below.ljust(9, "0")))
    return _time_of_parts([*parts])
