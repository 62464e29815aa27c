# SPDX-License-Identifier: Apache-2.0
"""Bytes of the process itself, and what the loops do to them.

Compiled modules have the functions that ``memory.pxd`` has, too, from there, in C: a
slice of memory costs more there than what most loops do with it.
"""

from __future__ import annotations


def new_bytes(size: int) -> memoryview:
    """Return ``size`` bytes of new memory."""
    return memoryview(bytearray(size))


def copy(
    data: memoryview, at: int, source: memoryview | bytes, start: int, size: int
) -> None:
    """Copy ``size`` bytes, from ``start`` on, to ``at`` and what follows."""
    data[at : at + size] = source[start : start + size]


def part(data: memoryview | bytes, start: int, end: int) -> bytes:
    """Return the bytes from ``start`` to ``end``."""
    return bytes(data[start:end])


def number(data: memoryview | bytes, at: int, size: int) -> int:
    """Return the number of up to 8 bytes that begins at ``at``, least one first."""
    return int.from_bytes(data[at : at + size], "little")


def word(data: memoryview | bytes, at: int) -> int:
    """Return the number of the 8 bytes that begin at ``at``, least one first."""
    return int.from_bytes(data[at : at + 8], "little")


def is_text(data: memoryview | bytes, at: int, size: int) -> bool:
    """Return whether ``size`` bytes from ``at`` on are UTF-8."""
    try:
        str(data[at : at + size], "utf-8")
    except UnicodeDecodeError:
        return False
    return True
