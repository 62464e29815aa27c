# SPDX-License-Identifier: Apache-2.0
"""The characters of JSON as bytes, and functions over many bytes at once.

Compiled modules have the same from ``json_text.pxd``, in C; a test compares the
characters of both. Memory is reached through what has it, as in ``avro.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_topics.loops import memory

if TYPE_CHECKING:
    from pulsar_spark.loops import avro

TAB = ord("\t")
LINE_FEED = ord("\n")
RETURN = ord("\r")
SPACE = ord(" ")
QUOTE = ord('"')
PLUS = ord("+")
COMMA = ord(",")
MINUS = ord("-")
POINT = ord(".")
SLASH = ord("/")
ZERO = ord("0")
NINE = ord("9")
COLON = ord(":")
EQUALS = ord("=")
UPPER_A = ord("A")
UPPER_I = ord("I")
UPPER_N = ord("N")
UPPER_T = ord("T")
UPPER_Z = ord("Z")
OPEN_ARRAY = ord("[")
BACKSLASH = ord("\\")
CLOSE_ARRAY = ord("]")
LOWER_A = ord("a")
LOWER_B = ord("b")
LOWER_E = ord("e")
LOWER_F = ord("f")
LOWER_N = ord("n")
LOWER_R = ord("r")
LOWER_T = ord("t")
LOWER_U = ord("u")
LOWER_Z = ord("z")
OPEN_OBJECT = ord("{")
CLOSE_OBJECT = ord("}")


def text_end(source: avro.Source, offset: int) -> int:
    """Return the place of the next quote, backslash or control character.

    Without any, that is the end of the value.
    """
    while offset < source.end:
        byte = source.data[offset]
        if byte in (QUOTE, BACKSLASH) or byte < SPACE:
            break
        offset += 1
    return offset


def is_same(
    names: avro.Source, start: int, source: avro.Source, offset: int, size: int
) -> bool:
    """Return whether ``size`` bytes of two sources are equal."""
    name = memory.part(names.data, start, start + size)
    return name == memory.part(source.data, offset, offset + size)


def scaled(digits: int, power: int) -> float:
    """Return ``digits`` times a power of ten, from -22 to 22."""
    if power < 0:
        return float(digits) / 10.0**-power
    return float(digits) * 10.0**power


def as_float(source: avro.Source, offset: int, end: int) -> float:
    """Return the double that is nearest to a number of less than 64 characters."""
    return float(memory.part(source.data, offset, end))


def rows_of(columns: list[avro.Column], number: int) -> int:
    """Return how many rows a column has."""
    return columns[number].rows


def read_with(
    readers: list[avro.Reader], number: int, source: avro.Source, offset: int
) -> int:
    """Let a reader of a list read a token."""
    return readers[number].read(source, offset)
