# SPDX-License-Identifier: Apache-2.0
"""Raw bytes of the process, as the loops read and write them.

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
    """Return the little-endian number of up to 8 bytes at ``at``."""
    return int.from_bytes(data[at : at + size], "little")


def word(data: memoryview | bytes, at: int) -> int:
    """Return the little-endian number of 8 bytes at ``at``."""
    return int.from_bytes(data[at : at + 8], "little")


def is_text(data: memoryview | bytes, at: int, size: int) -> bool:
    """Return whether ``size`` bytes from ``at`` on are UTF-8."""
    try:
        str(data[at : at + size], "utf-8")
    except UnicodeDecodeError:
        return False
    return True
