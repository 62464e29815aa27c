# SPDX-License-Identifier: Apache-2.0
"""Parsers of option values.

Each parser reads one text, and is given the option's name for errors. None knows a
protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from spark_topics.errors import OptionError, foreign_text
from spark_topics.options.spec import Parse
from spark_topics.text import is_unicode, load_object

_T = TypeVar("_T")

#: The largest numbers that other connectors, whose numbers are Java's, accept.
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

# Units of durations, and a day, in seconds.
MILLI = 1e-3
MICRO = 1e-6
NANO = 1e-9
DAY_S = 24 * 60 * 60


def plain_text(text: str, option: str) -> str:
    """Parse any text, without surrounding spaces."""
    return text.strip()


def _short(text: str) -> str:
    """Return a text that is no value, so short that no long secret is whole."""
    return foreign_text(text, 40)


def boolean(text: str, option: str) -> bool:
    """Read ``true`` or ``false``."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{option} must be true or false, not {_short(text)!r}.")
    return word == "true"


def integer(minimum: int, maximum: int) -> Parse[int]:
    """Return a parser of whole numbers within limits."""

    def parse(text: str, option: str) -> int:
        # At most 19 digits: longer ones are out of every range, and slow to read.
        number = text.strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,19}", number):
            raise OptionError(f"{option} must be a whole number, not {_short(text)!r}.")
        return _in_range(int(number), minimum, maximum, option)

    return parse


def size(minimum: int, maximum: int) -> Parse[int]:
    """Return a parser of numbers of bytes, plain or with the suffix k, m, g or t."""

    def parse(text: str, option: str) -> int:
        match = re.fullmatch(
            r"([0-9]{1,19})\s*([kmgt]?)(?:i?b)?", text.strip(), re.ASCII | re.IGNORECASE
        )
        if match is None:
            raise OptionError(
                f"{option} must be a number of bytes such as 4194304, 4096k or 4m,"
                f" not {_short(text)!r}."
            )
        shift = 10 * ("kmgt".index(match[2].lower()) + 1) if match[2] else 0
        return _in_range(int(match[1]) << shift, minimum, maximum, option)

    return parse


def limit(parse: Parse[int], unlimited: _T) -> Parse[int | _T]:
    """Return a parser of limits, for which 0 means none, as in Java.

    Args:
        parse: Reads any other number.
        unlimited: What 0 becomes.
    """

    def parse_limit(text: str, option: str) -> int | _T:
        return unlimited if text.strip() == "0" else parse(text, option)

    return parse_limit


def _in_range(number: int, minimum: int, maximum: int, option: str) -> int:
    if not minimum <= number <= maximum:
        raise OptionError(
            f"{option} must be between {minimum} and {maximum}, not {number}."
        )
    return number


def seconds(unit: float, maximum_s: int, minimum: int = 1) -> Parse[float]:
    """Return a parser of durations in units of `unit` seconds; values are seconds."""
    parse_integer = integer(minimum, round(maximum_s / unit))

    def parse(text: str, option: str) -> float:
        # Divided, not multiplied: 120000 ms are 120.0 s exactly.
        return parse_integer(text, option) / round(1 / unit)

    return parse


_DAY_MS = DAY_S * 1000
_UNITS_MS = {
    name: unit_ms
    for names, unit_ms in (
        ("ms millisecond milliseconds", 1),
        ("s second seconds", 1000),
        ("m min minute minutes", 60 * 1000),
        ("h hour hours", 60 * 60 * 1000),
        ("d day days", _DAY_MS),
    )
    for name in names.split()
}


def duration(max_days: int) -> Parse[float]:
    """Return a parser of durations with a unit, as Spark writes durations; seconds.

    A number without a unit is in milliseconds, as in Spark's Kafka source.
    """

    def parse(text: str, option: str) -> float:
        match = re.fullmatch(
            r"([0-9]{1,19})\s*([a-z]*)", text.strip().lower(), re.ASCII
        )
        unit_ms = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit_ms is None:
            raise OptionError(
                f"{option} must be a duration such as 500ms, 30s, 15m, 2h or 1d, not"
                f" {_short(text)!r}."
            )
        total_ms = int(match[1]) * unit_ms
        if total_ms > max_days * _DAY_MS:
            raise OptionError(
                f"{option} must be at most {max_days}d, not {_short(text)!r}."
            )
        return total_ms / 1000

    return parse


def word(*words: str) -> Parse[str]:
    """Return a parser of words in any case; the value is spelt as it is here."""
    return choice({word: word for word in words})


def choice(
    words: Mapping[str, _T], others: Mapping[str, _T] | None = None
) -> Parse[_T]:
    """Return a parser of words in any case.

    Args:
        words: What each word means.
        others: Further words, which errors do not name.
    """
    choices = {
        word.lower(): value for word, value in {**words, **(others or {})}.items()
    }
    *first, last = words
    names = f"{', '.join(first)} or {last}"

    def parse(text: str, option: str) -> _T:
        try:
            return choices[text.strip().lower()]
        except KeyError:
            raise OptionError(
                f"{option} must be {names}, not {_short(text)!r}."
            ) from None

    return parse


def properties(text: str, option: str) -> tuple[tuple[str, str], ...]:
    """Read names and values from a JSON object of strings.

    The text is never repeated in an error.
    """
    pairs = load_object(text)
    if not (
        pairs is not None
        and all(isinstance(value, str) for _, value in pairs)
        and is_unicode("".join(name + value for name, value in pairs))
    ):
        raise OptionError(
            f'{option} must be a JSON object of strings such as {{"team": "billing"}}.'
        )
    if len(dict(pairs)) < len(pairs):
        raise OptionError(f"{option} names a property twice.")
    return tuple(pairs)


def nearest(key: str, names: Mapping[str, str]) -> str:
    """Return a question after the most similar name, "" where none is similar.

    Args:
        key: What was written, in lower case.
        names: The names as they are compared, and as they are spelt.
    """
    import difflib  # no other call of a query needs it

    near = difflib.get_close_matches(key, names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""
