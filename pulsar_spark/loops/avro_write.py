# SPDX-License-Identifier: Apache-2.0
"""Columns -> AVRO, a row at a time, out of the columns' own buffers.

What a row is made of is a tree of parts, each with the buffers of one column. A value
follows those before it, with nothing in between::

    record   field field ...
    union    branch value                  branch: its number as a long
    long     zig-zag varint                also int, enum and what they stand for
    bytes    long bytes                    also string
    array    long item item ... 00         map the same, of key value key value ...
    fixed    the bytes; float and double are fixed, as this machine has them

This file runs as it is, and is compiled as ``messages.py`` is, together with
``avro_write.pxd``, which gives the types.

Source: "Binary Encoding" of the Apache Avro specification 1.11.
"""

from __future__ import annotations

from array import array

#: Kinds of parts, for others and for what is compiled.
RECORD = _RECORD = 0
LONG = _LONG = 1
FIXED = _FIXED = 2
BYTES = _BYTES = 3
BOOLEAN = _BOOLEAN = 4
DECIMAL_FIXED = 5
DECIMAL_BYTES = _DECIMAL_BYTES = 6
ARRAY = _ARRAY = 7
MAP = _MAP = 8
CONSTANT = _CONSTANT = 9

#: The number that stands for one that its schema cannot hold, see ``Part.size``.
UNFIT = _UNFIT = -(1 << 63)

#: Most bytes of a long.
_LONG_ROOM = 10

#: Bytes of a decimal of Arrow's.
_DECIMAL = 16

#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: Whether the functions in C of avro_write.pxd are there.
_IS_COMPILED = KERNEL == "compiled"

_NO_BYTES = memoryview(b"")
_NO_NUMBERS = _NO_BYTES.cast("q")


class UnfitValueError(ValueError):
    """A row holds a value that the schema cannot hold.

    Attributes:
        row: Which one, from 0.
        where: The path of names to it.
        text: What is wrong with it, the end of a sentence about it.
    """

    def __init__(self, row: int, where: str, text: str) -> None:
        super().__init__(f"`{where}` {text}")
        self.row = row
        self.where = where
        self.text = text


class Part:
    """A column, or a part of a column, in the form from which values are written.

    Args:
        kind: How it is written, see above.
        where: The path of names to it, for errors.
        null_branch: Number of the branch for NULL; -1 where NULL is impossible.
        value_branch: Number of the branch for all else; -1 where there is no union.
        size: Bytes of a FIXED; the size that a BYTES must have, -1 for any. Of a LONG:
            0 where UNFIT marks a number that cannot be written, -1 where UNFIT is a
            number like any other.
        children: Fields of a record; the item of an array; key and item of a map.
        validity: Bits that say which rows are not NULL; none where all are.
        first_bit: Index of the first row's bit there, and in the bits of a BOOLEAN.
        numbers: The numbers of a LONG, from the first row on.
        offsets: Where each row of a BYTES, an ARRAY or a MAP begins in its data or its
            items, from the first row on, and where the last one ends.
        data: The whole data of a BYTES or the bits of a BOOLEAN; of other kinds, the
            data from the first row on; the bytes of a CONSTANT.
    """

    def __init__(
        self,
        kind: int,
        where: str,
        *,
        null_branch: int = -1,
        value_branch: int = -1,
        size: int = -1,
        children: list[Part] | None = None,
        validity: memoryview | None = None,
        first_bit: int = 0,
        numbers: memoryview = _NO_NUMBERS,
        offsets: memoryview = _NO_NUMBERS,
        data: memoryview = _NO_BYTES,
    ) -> None:
        self.kind = kind
        self.where = where
        self.null_branch = null_branch
        self.value_branch = value_branch
        self.size = size
        self.children = children or []
        self.has_validity = validity is not None
        self.validity = _NO_BYTES if validity is None else validity
        self.first_bit = first_bit
        self.numbers = numbers
        self.offsets = offsets
        self.data = data
        self.data_bytes = len(data)


class AvroWriter:
    """Writes values back to back.

    Args:
        room: For how many bytes there is room at first; there is always more.
    """

    def __init__(self, room: int = 1 << 12) -> None:
        self._room = max(room, _LONG_ROOM)
        self._bytes = bytearray(self._room)
        self._out = memoryview(self._bytes)
        self._at = 0
        self._row = 0

    def write(
        self, part: Part, rows: int, nulls: memoryview | None = None
    ) -> tuple[memoryview, array[int]]:
        """Write the first rows. For a single call. Once.

        Args:
            part: What they are made of.
            rows: How many there are.
            nulls: A byte for each, not 0 where nothing is to be written.

        Returns:
            The values, and where each of them begins, as int64s: one more than there
            are rows.

        Raises:
            UnfitValueError: A row cannot be written.
        """
        offsets = array("q", bytes(8 * (rows + 1)))
        ends = memoryview(offsets)
        skips = nulls is not None
        skipped = _NO_BYTES if nulls is None else nulls
        for row in range(rows):
            if not (skips and skipped[row]):
                self._row = row
                self._write(part, row)
            ends[row + 1] = self._at
        return memoryview(self._bytes)[: self._at], offsets

    def _write(self, part: Part, row: int) -> None:
        """Write a row of a part."""
        bit = part.first_bit + row
        if not part.has_validity or part.validity[bit >> 3] >> (bit & 7) & 1:
            self._value(part, row)
        elif part.null_branch >= 0:
            self._long(part.null_branch)
        else:
            raise UnfitValueError(
                self._row, part.where, "is NULL, which its schema does not have"
            )

    def _value(  # noqa: C901 - a call in here costs more than what it would do
        self, part: Part, row: int
    ) -> None:
        """Write a row of a part that is not NULL."""
        if part.value_branch >= 0:
            self._long(part.value_branch)
        kind = part.kind
        if kind == _LONG:
            number = part.numbers[row]
            if number == _UNFIT and part.size >= 0:
                raise UnfitValueError(
                    self._row, part.where, "does not fit the type that its schema has"
                )
            self._long(number)
        elif kind == _BYTES:
            begin = part.offsets[row]
            size = part.offsets[row + 1] - begin
            if part.size < 0:
                self._long(size)
            elif size != part.size:
                raise UnfitValueError(
                    self._row, part.where, f"has {size} bytes, not {part.size}"
                )
            self._copy(part, begin, size)
        elif kind == _FIXED:
            self._copy(part, row * part.size, part.size)
        elif kind == _BOOLEAN:
            bit = part.first_bit + row
            self._byte(part.data[bit >> 3] >> (bit & 7) & 1)
        elif kind == _RECORD:
            for child in part.children:
                self._write(child, row)
        elif kind == _CONSTANT:
            self._copy(part, 0, part.data_bytes)
        elif kind in (_ARRAY, _MAP):
            self._items(part, row)
        else:
            self._decimal(part, row)

    def _items(self, part: Part, row: int) -> None:
        begin = part.offsets[row]
        end = part.offsets[row + 1]
        first = part.children[0]
        if end > begin:
            self._long(end - begin)
        if part.kind == _MAP:
            second = part.children[1]
            for item in range(begin, end):
                self._write(first, item)
                self._write(second, item)
        else:
            for item in range(begin, end):
                self._write(first, item)
        self._byte(0)

    def _decimal(self, part: Part, row: int) -> None:
        """Write the last bytes of a little-endian number in big-endian order.

        All that is cut off must be its sign: in a fixed because its schema has room for
        the digits, in bytes because no more is cut off.
        """
        begin = row * _DECIMAL
        size = part.size
        sign = 0xFF if part.data[begin + _DECIMAL - 1] & 0x80 else 0
        if part.kind == _DECIMAL_BYTES:
            size = _DECIMAL
            while (
                size > 1
                and part.data[begin + size - 1] == sign
                and (part.data[begin + size - 2] ^ sign) < 0x80
            ):
                size -= 1
            self._long(size)
        for offset in range(size - 1, -1, -1):
            self._byte(part.data[begin + offset] if offset < _DECIMAL else sign)

    # -- bytes -------------------------------------------------------------------------

    def _long(self, number: int) -> None:
        if self._room - self._at < _LONG_ROOM:
            self._grow(_LONG_ROOM)
        left = _zigzag(number)
        offset = self._at
        while left >= 0x80:
            self._out[offset] = left & 0x7F | 0x80
            left = left >> 7
            offset += 1
        self._out[offset] = left
        self._at = offset + 1

    def _byte(self, byte: int) -> None:
        if self._room == self._at:
            self._grow(1)
        self._out[self._at] = byte
        self._at += 1

    def _copy(self, part: Part, begin: int, size: int) -> None:
        """Write bytes of the part's data."""
        if self._room - self._at < size:
            self._grow(size)
        if _IS_COMPILED:
            _copy_bytes(self, part, begin, size)  # type: ignore[name-defined]  # noqa: F821
        else:
            _copy_slice(self, part, begin, size)
        self._at += size

    def _grow(self, size: int) -> None:
        """Make room for ``size`` more bytes, at least doubling the room."""
        self._room = 2 * self._room + size
        # What was given out of the old one stays as it is.
        larger = bytearray(self._room)
        larger[: self._at] = memoryview(self._bytes)[: self._at]
        self._bytes = larger
        self._out = memoryview(larger)


def _copy_slice(writer: AvroWriter, part: Part, begin: int, size: int) -> None:
    # A function that has a slice of memory anywhere is slower in C each time.
    offset = writer._at
    writer._out[offset : offset + size] = part.data[begin : begin + size]


def _zigzag(number: int) -> int:
    """Return a number with the sign in the lowest bit."""
    if _IS_COMPILED:
        return _folded(number)  # type: ignore[name-defined, no-any-return]  # noqa: F821
    return number << 1 if number >= 0 else -(number << 1) - 1
