# SPDX-License-Identifier: Apache-2.0
"""Digests of rows, a column at a time, out of the columns' own buffers.

Each row has 64 bits, to which the cells of one column after the other are added::

    digest' = mixed(digest ^ cell)        of a NULL: mixed(digest ^ NULL)
    cell    = fixed width                 its bytes, by words of 8, then its size
            = bytes                       the same
            = list, map                   the digests of its items, then their number

This file runs as it is, and is compiled as ``messages.py`` is, together with
``digests.pxd``, which gives the types.
"""

from __future__ import annotations

from spark_topics.loops import memory

#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

_MASK = (1 << 64) - 1
_NULL = 0x6E756C6C6E756C6C
_FACTOR = 0x9E3779B97F4A7C15


def _mixed(number: int) -> int:
    """Return 64 bits, each of which depends on many of the number's."""
    number = (number * _FACTOR) & _MASK
    return number ^ number >> 32


def _digest_of(data: memoryview, offset: int, size: int, digest: int) -> int:
    """Return a digest to which the bytes of a cell are added."""
    end = offset + size
    if size >= 16:
        # Two at a time: a processor multiplies one while it waits for the other.
        second = digest ^ _FACTOR
        while end - offset >= 16:
            digest = _mixed(digest ^ memory.word(data, offset))
            second = _mixed(second ^ memory.word(data, offset + 8))
            offset += 16
        digest = _mixed(digest ^ (second >> 1))
    if end - offset >= 8:
        digest = _mixed(digest ^ memory.word(data, offset))
        offset += 8
    if end > offset:
        digest = _mixed(digest ^ memory.number(data, offset, end - offset))
    return _mixed(digest ^ size)


def add_fixed(
    digests: memoryview,
    validity: memoryview,
    first_bit: int,
    data: memoryview,
    width: int,
) -> None:
    """Add a column of cells that have as many bytes each.

    Args:
        digests: Of the rows, 64 bits each; they are changed.
        validity: Bits that say which rows are not NULL; none where all are.
        first_bit: Index of the first row's bit there.
        data: The data, from the first row on; none where the width is 0.
        width: Bytes of a cell; 0 to add only which rows are NULL.
    """
    has_validity = len(validity) > 0
    for row in range(len(digests)):
        bit = first_bit + row
        if has_validity and not validity[bit >> 3] >> (bit & 7) & 1:
            digests[row] = _mixed(digests[row] ^ _NULL)
        else:
            digests[row] = _digest_of(data, row * width, width, digests[row])


def add_bytes(
    digests: memoryview,
    validity: memoryview,
    first_bit: int,
    offsets: memoryview,
    data: memoryview,
) -> None:
    """Add a column of cells of bytes.

    Args:
        digests: Of the rows; they are changed.
        validity: As of ``add_fixed``.
        first_bit: As of ``add_fixed``.
        offsets: Where each cell begins in the data, and where the last one ends.
        data: The whole data.
    """
    has_validity = len(validity) > 0
    for row in range(len(digests)):
        bit = first_bit + row
        if has_validity and not validity[bit >> 3] >> (bit & 7) & 1:
            digests[row] = _mixed(digests[row] ^ _NULL)
        else:
            begin = offsets[row]
            size = offsets[row + 1] - begin
            digests[row] = _digest_of(data, begin, size, digests[row])


def add_items(
    digests: memoryview,
    validity: memoryview,
    first_bit: int,
    offsets: memoryview,
    items: memoryview,
) -> None:
    """Add a column of lists.

    Args:
        digests: Of the rows; they are changed.
        validity: As of ``add_fixed``.
        first_bit: As of ``add_fixed``.
        offsets: Where each list begins among the items, and where the last one ends.
        items: The digest of each item.
    """
    has_validity = len(validity) > 0
    for row in range(len(digests)):
        bit = first_bit + row
        if has_validity and not validity[bit >> 3] >> (bit & 7) & 1:
            digests[row] = _mixed(digests[row] ^ _NULL)
            continue
        digest = digests[row]
        for item in range(offsets[row], offsets[row + 1]):
            digest = _mixed(digest ^ items[item])
        digests[row] = _mixed(digest ^ (offsets[row + 1] - offsets[row]))


def total(digests: memoryview) -> int:
    """Return the sum of the digests of rows, which their order does not change."""
    digest = 0
    for row in range(len(digests)):
        digest = (digest + _mixed(digests[row])) & _MASK
    return digest
