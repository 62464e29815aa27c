# SPDX-License-Identifier: Apache-2.0
"""AVRO's values to columns, without an object for a value.

A plan is a tree of readers, one for each type of the writer's schema. A reader takes
the bytes of its type at a place, appends what they say to the column that it was made
for, and returns the place behind them; one that skips has no column. Readers of the
branches of a union share a column::

    ReadRecord --+-- ReadLong -----------------> LongColumn    id
                 +-- ReadUnion --+-- ReadNull -> BytesColumn   name
                 |               +-- ReadBytes -----^
                 +-- SkipBytes
                 +-- ReadConstant -------------> FixedColumn   score, a new field

Columns are laid out as Arrow has them, but for one byte a row that says whether it is
NULL, which Arrow has as bits.

A value has its own borders, and never makes the others wrong: what is read of one that
turns out to be damaged is taken back, and its row is NULL. No length is believed beyond
the bytes that are there. Items may take ``ITEMS_PER_BYTE`` times 32 bytes of memory for
each byte of the value, and 8 MiB in any case; those that take no bytes, which AVRO
allows, only the former. So what is allocated is bounded by the bytes of the values and
the number of columns.

This file runs as it is, and is compiled as ``messages.py`` is, together with
``avro.pxd``, which gives the types.

Source: "Binary encoding" of the Apache Avro specification 1.11.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence
from typing import Any

from spark_topics.loops.memory import new_bytes

#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: Whether the functions in C of avro.pxd are there.
_IS_COMPILED = KERNEL == "compiled"

#: What can be wrong with a value, as a part of a sentence.
REASONS = (
    "",
    "ends too early",
    "has a number of more bytes than it may have",
    "has a number that its column cannot hold",
    "has a length below zero",
    "has text that is not UTF-8",
    "has a union or an enum with a number that its schema does not have",
    "has a value that the schema of the query does not allow",
    "has far more items than bytes",
    "is nested too deeply",
    "has a boolean that is neither 0 nor 1",
    "makes a column of more than 2 GiB",
)
(
    _,
    ENDS,
    TOO_LONG,
    NO_ROOM,
    NEGATIVE,
    NOT_UTF8,
    NO_BRANCH,
    NOT_ALLOWED,
    TOO_MANY,
    TOO_DEEP,
    NO_BOOLEAN,
    TOO_LARGE,
) = range(len(REASONS))

# The same numbers, in C.
_ENDS = ENDS
_TOO_LONG = TOO_LONG
_NO_ROOM = NO_ROOM
_NEGATIVE = NEGATIVE
_NOT_UTF8 = NOT_UTF8
_NO_BRANCH = NO_BRANCH
_NOT_ALLOWED = NOT_ALLOWED
_TOO_MANY = TOO_MANY
_TOO_DEEP = TOO_DEEP
_NO_BOOLEAN = NO_BOOLEAN
_TOO_LARGE = TOO_LARGE

#: Items that a value may have for each of its bytes, those that any may have, and those
#: that any may have if they take bytes. Each is 32 bytes of memory, or counts as more.
ITEMS_PER_BYTE = 8
MIN_ITEMS = 16
MIN_FILLED_ITEMS = 8 * 2**20 // 32
_ITEMS_PER_BYTE = ITEMS_PER_BYTE
_MIN_ITEMS = MIN_ITEMS
_MIN_FILLED_ITEMS = MIN_FILLED_ITEMS

#: Records in records that are skipped: only a record that is a part of itself has more.
#: Python's own stack has an end before.
_MAX_DEPTH = 1000 if _IS_COMPILED else 100

#: The most bytes, and the most items, of a column of Arrow.
_MAX_INT32 = 2**31 - 1

#: Up to this many keys of a map are compared one by one; more are put into a set.
_MAX_COMPARED = 16

#: The most bytes that a column reserves because it had as many before.
_MAX_ADVANCE = 8 * 1024 * 1024

#: Bytes of a value of the types of columns, by their names in ``struct``.
_WIDTHS = {"B": 1, "i": 4, "q": 8}


class Source:
    """The bytes of values, and the end of the current value.

    Attributes:
        data: The bytes.
        begin, end: Where the value begins and ends in them.
        next: The place behind the number that was read last, -1 if it is none.
        items: How many items the value's arrays and maps had so far, as they count;
            each that takes bytes is one.
        filled: How many those that take bytes were, as they count.
        depth: How many records the reader is in that are skipped.
        error: What is wrong with the value, one of ``REASONS``.
        field: In which field of the root that is; -1 for none.
    """

    def __init__(self) -> None:
        self.data: memoryview | bytes = b""
        self.begin = self.end = self.next = self.depth = self.error = 0
        self.items = self.filled = 0
        self.field = -1

    def load(self, data: memoryview | bytes) -> None:
        """Take the bytes of further values."""
        # Python is faster with bytes than with a view.
        self.data = data if _IS_COMPILED else bytes(data)

    def number(self, offset: int) -> int:
        """Read an int or a long; sets ``next``."""
        if offset < self.end:
            byte = self.data[offset]
            if byte < 0x80:
                self.next = offset + 1
                return byte >> 1 ^ -(byte & 1)
        return self._long_number(offset)

    def _long_number(self, offset: int) -> int:
        """Read a number of more than a byte."""
        value = shift = 0
        if self.end - offset > 1 and self.data[offset] > 0x7F > self.data[offset + 1]:
            value = self.data[offset] & 0x7F | self.data[offset + 1] << 7
            self.next = offset + 2
            return value >> 1 ^ -(value & 1)
        while offset < self.end and shift < 64:
            byte = self.data[offset]
            offset += 1
            if shift == 63 and byte > 1:  # more than 64 bits
                shift = 64
                break
            # Not |=: in C it would be the type of a byte that is shifted.
            value = value | (byte & 0x7F) << shift
            if byte < 0x80:
                self.next = offset
                return value >> 1 ^ -(value & 1)
            shift += 7
        self.next = self.fail(_TOO_LONG if shift > 63 else _ENDS)
        return 0

    def fail(self, error: int) -> int:
        """Record what is wrong with the value; return -1."""
        self.error = error
        return -1


# -- columns ---------------------------------------------------------------------------


class Column:
    """A column that grows by the row.

    Attributes:
        rows: How many there are.
        nulls: A byte for each: 1 if it is NULL. It is longer; the rest is 0.
        has_nulls: Whether there may be any.
    """

    def __init__(self) -> None:
        self.rows = self._room = 0
        self.has_nulls = False
        self.nulls = _column("B", 0)

    def start(self, rows: int) -> None:
        """Clear the column, and allocate room for rows."""
        self.rows = self._room = 0
        self.has_nulls = False
        self._clear()
        self.reserve(rows)

    def reserve(self, rows: int) -> None:
        """Make room: nothing may be appended without."""
        if rows > self._room:
            room = max(rows, 2 * self._room)
            self.nulls = _longer(self.nulls, "B", room, self.rows)
            self._resize(room)
            self._room = room

    def append_null(self) -> None:
        """Append NULL, without a check that NULL is allowed."""
        self._append_nothing()
        self.nulls[self.rows] = 1
        self.has_nulls = True
        self.rows += 1

    def cut(self, rows: int) -> None:
        """Drop all rows but the first ``rows``."""
        if self.has_nulls:
            for row in range(rows, self.rows):
                self.nulls[row] = 0
        self.rows = rows

    def _clear(self) -> None:
        """Let go of the rows."""

    def _resize(self, room: int) -> None:
        """Make room next to ``nulls``."""

    def _append_nothing(self) -> None:
        """Fill a row of NULL."""


class LongColumn(Column):
    """Numbers of 64 bits.

    Attributes:
        values: The numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values = _column("q", 0)

    def _resize(self, room: int) -> None:
        self.values = _longer(self.values, "q", room, self.rows)

    def _append_nothing(self) -> None:
        self.values[self.rows] = 0


class FixedColumn(Column):
    """Values with a fixed number of bytes.

    Args:
        width: That number.

    Attributes:
        data: The bytes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.data = _column("B", 0)

    def _resize(self, room: int) -> None:
        used = self.rows * self.width
        self.data = _longer(self.data, "B", room * self.width, used)

    def _append_nothing(self) -> None:
        # What was taken back left its bytes.
        start = self.rows * self.width
        for offset in range(start, start + self.width):
            self.data[offset] = 0


class BytesColumn(Column):
    """Bytes, or text.

    Args:
        most: The number of bytes that all rows may have.

    Attributes:
        data: Those of all rows, back to back.
        offsets: Where those of each row begin, and the last ones end.
    """

    def __init__(self, most: int = _MAX_INT32) -> None:
        super().__init__()
        self._most = most
        self.data = _column("B", 0)
        self.offsets = _column("i", 1)
        self.data_room = 0

    def _clear(self) -> None:
        # As many as the last time, which are likely to come again.
        self.data_room = min(self.data_room, _MAX_ADVANCE)
        self.data = _column("B", self.data_room)
        self.offsets = _column("i", 1)

    def _resize(self, room: int) -> None:
        self.offsets = _longer(self.offsets, "i", room + 1, self.rows + 1)

    def _append_nothing(self) -> None:
        self.offsets[self.rows + 1] = self.offsets[self.rows]

    def make_room(self, size: int) -> bool:
        """Make room for bytes; return whether a column can have as many."""
        if size > self._most:
            return False
        room = min(max(size, 2 * self.data_room, 1024), self._most)
        self.data = _longer(self.data, "B", room, self.offsets[self.rows])
        self.data_room = room
        return True


class StructColumn(Column):
    """Structs: a column for each of their fields.

    Attributes:
        children: These.
    """

    def __init__(self, children: list[Column]) -> None:
        super().__init__()
        self.children = children

    def start(self, rows: int) -> None:
        """Clear the column, and its fields."""
        for child in self.children:
            child.start(0)
        Column.start(self, rows)

    def _resize(self, room: int) -> None:
        for child in self.children:
            child.reserve(room)

    def _append_nothing(self) -> None:
        for child in self.children:
            child.append_null()

    def cut(self, rows: int) -> None:
        """Drop all rows but the first ``rows``, here and in the fields."""
        for child in self.children:
            child.cut(rows)
        Column.cut(self, rows)


class ListColumn(Column):
    """Lists, or maps as lists of keys and values.

    Args:
        items: The column of what is in the lists.
        most: The number of items that all rows may have.

    Attributes:
        items: What is in them, back to back.
        offsets: Where the items of each row begin, and the last ones end.
        has_twins: Whether a map may have a key twice.
        most: As given.
    """

    def __init__(self, items: Column, most: int = _MAX_INT32) -> None:
        super().__init__()
        self.items = items
        self.most = most
        self.offsets = _column("i", 1)
        self.has_twins = False

    def _clear(self) -> None:
        self.items.start(0)
        self.offsets = _column("i", 1)
        self.has_twins = False

    def _resize(self, room: int) -> None:
        self.offsets = _longer(self.offsets, "i", room + 1, self.rows + 1)

    def _append_nothing(self) -> None:
        self.offsets[self.rows + 1] = self.offsets[self.rows]

    def cut(self, rows: int) -> None:
        """Take back rows, and items that no row has."""
        self.items.cut(self.offsets[rows])
        Column.cut(self, rows)


# -- readers ---------------------------------------------------------------------------


class Reader:
    """Reads values of a type.

    Attributes:
        smallest: The least bytes that such a value has.
    """

    def __init__(self, smallest: int = 0) -> None:
        self.smallest = smallest

    def read(self, source: Source, offset: int) -> int:
        """Read a value.

        Args:
            source: Has its bytes.
            offset: Where they begin.

        Returns:
            Where they end; -1 after ``source.fail``. Then some rows may have been
            appended to some columns.
        """
        return offset


class Fail(Reader):
    """Reads a type that has no place in the column.

    Args:
        error: One of ``REASONS``.
    """

    def __init__(self, error: int = NOT_ALLOWED) -> None:
        super().__init__()
        self._error = error

    def read(self, source: Source, offset: int) -> int:
        """Fail."""
        return source.fail(self._error)


class ReadNull(Reader):
    """Reads null, or what was not written."""

    def __init__(self, column: Column) -> None:
        super().__init__()
        self._column = column

    def read(self, source: Source, offset: int) -> int:
        """Append NULL."""
        self._column.append_null()
        return offset


class ReadLong(Reader):
    """Reads a long, unchanged."""

    def __init__(self, column: LongColumn) -> None:
        super().__init__(1)
        self._column = column

    def read(self, source: Source, offset: int) -> int:
        """Append a number."""
        column = self._column
        value = source.number(offset)
        offset = source.next
        if offset < 0:
            return -1
        row = column.rows
        column.values[row] = value
        column.rows = row + 1
        return offset


class ReadNumber(Reader):
    """Reads an int or a long that has limits, or is in another unit.

    Args:
        column: The destination.
        most_bytes: That the number may have.
        minimum, maximum: The allowed range, as it was written.
        factor: The multiplier.
        divisor: The divisor, rounded down.
    """

    def __init__(
        self,
        column: LongColumn,
        most_bytes: int,
        minimum: int,
        maximum: int,
        factor: int = 1,
        divisor: int = 1,
    ) -> None:
        super().__init__(1)
        self._column = column
        self._most_bytes = most_bytes
        self._minimum = minimum
        self._maximum = maximum
        self._factor = factor
        self._divisor = divisor

    def read(self, source: Source, offset: int) -> int:
        """Append a number."""
        column = self._column
        value = source.number(offset)
        if source.next - offset > self._most_bytes:
            return source.fail(_TOO_LONG)
        offset = source.next
        if offset < 0:
            return -1
        if value < self._minimum or value > self._maximum:
            return source.fail(_NO_ROOM)
        value = value * self._factor
        if self._divisor > 1:
            if value < 0:  # C rounds towards zero
                value = -(-(value + 1) // self._divisor) - 1
            else:
                value = value // self._divisor
        row = column.rows
        column.values[row] = value
        column.rows = row + 1
        return offset


class ReadNumberAsFloat(Reader):
    """Reads an int or a long as a float or a double.

    Args:
        column: Has 4 bytes a value for a float, 8 for a double.
        most_bytes: That the number may have.
        minimum, maximum: The allowed range.
    """

    def __init__(
        self, column: FixedColumn, most_bytes: int, minimum: int, maximum: int
    ) -> None:
        super().__init__(1)
        self._column = column
        self._most_bytes = most_bytes
        self._minimum = minimum
        self._maximum = maximum

    def read(self, source: Source, offset: int) -> int:
        """Append a number."""
        value = source.number(offset)
        if source.next - offset > self._most_bytes:
            return source.fail(_TOO_LONG)
        if source.next < 0:
            return -1
        if value < self._minimum or value > self._maximum:
            return source.fail(_NO_ROOM)
        put_float(self._column, value)
        return source.next


class ReadFloatAsDouble(Reader):
    """Reads a float as a double."""

    def __init__(self, column: FixedColumn) -> None:
        super().__init__(4)
        self._column = column

    def read(self, source: Source, offset: int) -> int:
        """Append a number."""
        if source.end - offset < 4:
            return source.fail(_ENDS)
        if _IS_COMPILED:
            value = _float_at(source, offset)  # type: ignore[name-defined]  # noqa: F821
        else:
            (value,) = struct.unpack_from("<f", source.data, offset)
        put_float(self._column, value)
        return offset + 4


class ReadWidth(Reader):
    """Reads a float or a double, unchanged."""

    def __init__(self, column: FixedColumn) -> None:
        super().__init__(column.width)
        self._column = column

    def read(self, source: Source, offset: int) -> int:
        """Append a number."""
        column = self._column
        end = offset + column.width
        if end > source.end:
            return source.fail(_ENDS)
        start = column.rows * column.width
        if _IS_COMPILED:
            _copy_fixed(column, start, source, offset)  # type: ignore[name-defined]  # noqa: F821
        else:
            _copy(column, start, source, offset, column.width)
        column.rows += 1
        return end


class ReadBoolean(Reader):
    """Reads a boolean."""

    def __init__(self, column: FixedColumn) -> None:
        super().__init__(1)
        self._column = column

    def read(self, source: Source, offset: int) -> int:
        """Append 0 or 1."""
        column = self._column
        if offset >= source.end:
            return source.fail(_ENDS)
        if source.data[offset] > 1:
            return source.fail(_NO_BOOLEAN)
        column.data[column.rows] = source.data[offset]
        column.rows += 1
        return offset + 1


class ReadBytes(Reader):
    """Reads bytes or a string.

    Args:
        column: Where they go.
        is_text: Whether they must be UTF-8.
    """

    def __init__(self, column: BytesColumn, is_text: bool) -> None:
        super().__init__(1)
        self._column = column
        self._is_text = is_text

    def read(self, source: Source, offset: int) -> int:
        """Append the bytes."""
        column = self._column
        size = source.number(offset)
        offset = source.next
        if offset < 0:
            return -1
        if size < 0:
            return source.fail(_NEGATIVE)
        if size > source.end - offset:
            return source.fail(_ENDS)
        row = column.rows
        begin = column.offsets[row]
        end = begin + size
        if end > column.data_room and not column.make_room(end):
            return source.fail(_TOO_LARGE)
        if _IS_COMPILED:
            if self._is_text and not _is_utf8(source, offset, size):  # type: ignore[name-defined]  # noqa: F821
                return source.fail(_NOT_UTF8)
            _copy_bytes(column, begin, source, offset, size)  # type: ignore[name-defined]  # noqa: F821
        else:
            if self._is_text and not _is_text(source, offset, size):
                return source.fail(_NOT_UTF8)
            _copy(column, begin, source, offset, size)
        column.offsets[row + 1] = end
        column.rows = row + 1
        return offset + size


class ReadFixed(Reader):
    """Reads a fixed as bytes."""

    def __init__(self, column: BytesColumn, size: int) -> None:
        super().__init__(size)
        self._column = column
        self._size = size

    def read(self, source: Source, offset: int) -> int:
        """Append the bytes."""
        if self._size > source.end - offset:
            return source.fail(_ENDS)
        if not put_bytes(self._column, source, offset, self._size):
            return source.fail(_TOO_LARGE)
        return offset + self._size


class ReadEnum(Reader):
    """Reads an enum as text.

    Args:
        column: The destination.
        symbols: The text of each of the writer's symbols, None if it has none.
    """

    def __init__(self, column: BytesColumn, symbols: Sequence[bytes | None]) -> None:
        super().__init__(1)
        self._column = column
        self._count = len(symbols)
        self._texts = Source()
        self._texts.load(b"".join(symbol or b"" for symbol in symbols))
        self._ends = _column("i", self._count + 1)
        self._is_known = _column("B", self._count)
        for offset, symbol in enumerate(symbols):
            self._ends[offset + 1] = self._ends[offset] + len(symbol or b"")
            self._is_known[offset] = symbol is not None

    def read(self, source: Source, offset: int) -> int:
        """Append the text of a symbol."""
        index = source.number(offset)
        if source.next < 0:
            return -1
        if index < 0 or index >= self._count:
            return source.fail(_NO_BRANCH)
        if not self._is_known[index]:
            return source.fail(_NOT_ALLOWED)
        start = self._ends[index]
        size = self._ends[index + 1] - start
        if not put_bytes(self._column, self._texts, start, size):
            return source.fail(_TOO_LARGE)
        return source.next


class ReadDecimal(Reader):
    """Reads a decimal of bytes or of a fixed: big endian, in two's complement.

    Args:
        column: Has 16 bytes a value.
        size: Bytes of the fixed, -1 for bytes.
        precision: Digits that it may have in the column.
        shift: Zeros that are appended to them, below 0 that are taken away.
    """

    def __init__(
        self, column: FixedColumn, size: int, precision: int, shift: int
    ) -> None:
        super().__init__(1 if size < 0 else size)
        self._column = column
        self._size = size
        self._factor = 10 ** max(shift, 0)
        self._divisor = 10 ** max(-shift, 0)
        self._limit = 10**precision
        # More digits than any number of 8 bytes has are no limit to it.
        self._has_small_limit = precision < 19
        self._small_limit = 10 ** min(precision, 18)
        self._is_simple = shift == 0

    def read(self, source: Source, offset: int) -> int:  # noqa: C901 - as in messages.py
        """Append a number."""
        size = self._size
        if size < 0:
            size = source.number(offset)
            offset = source.next
            if offset < 0:
                return -1
            if size < 0:
                return source.fail(_NEGATIVE)
        if size > source.end - offset:
            return source.fail(_ENDS)
        if size == 0:  # no number
            return source.fail(_NO_ROOM)
        end = offset + size
        if size <= 8 and self._is_simple:
            value = source.data[offset]
            if value >= 0x80:
                value -= 0x100
            while offset + 1 < end:
                offset += 1
                value = value * 0x100 + source.data[offset]
            if self._has_small_limit and not (
                -self._small_limit < value < self._small_limit
            ):
                return source.fail(_NO_ROOM)
            put_decimal(self._column, value)
            return end
        number = _integer(source.data, offset, end) * self._factor
        if number % self._divisor:
            return source.fail(_NO_ROOM)
        number //= self._divisor
        if not -self._limit < number < self._limit:
            return source.fail(_NO_ROOM)
        put_large_decimal(self._column, number)
        return end


class ReadUnion(Reader):
    """Reads a union: the number of the branch, and the value of the branch.

    Args:
        branches: A reader for each branch.
    """

    def __init__(self, branches: list[Reader]) -> None:
        super().__init__(1)
        self._branches = branches
        self._count = len(branches)

    def read(self, source: Source, offset: int) -> int:
        """Read the branch."""
        index = source.number(offset)
        offset = source.next
        if offset < 0:
            return -1
        if index < 0 or index >= self._count:
            return source.fail(_NO_BRANCH)
        if _IS_COMPILED:
            return _read(self._branches, index, source, offset)  # type: ignore[name-defined, no-any-return]  # noqa: F821
        return self._branches[index].read(source, offset)


class ReadMember(Reader):
    """Reads a value as a struct that has a field for each member of a union.

    Args:
        column: The structs.
        reader: Fills the field of this type, or none.
        others: The other fields.
    """

    def __init__(
        self, column: StructColumn, reader: Reader, others: list[Column]
    ) -> None:
        super().__init__(reader.smallest)
        self._column = column
        self._reader = reader
        self._others = others

    def read(self, source: Source, offset: int) -> int:
        """Append a struct with a single field that is not NULL."""
        offset = self._reader.read(source, offset)
        if offset < 0:  # another number means the same to readers of JSON
            return offset
        for other in self._others:
            other.append_null()
        self._column.rows += 1
        return offset


class ReadRecord(Reader):
    """Reads a record, or an item of a map.

    Args:
        column: The structs.
        readers: What fills the fields in the order in which they were written, or skips
            what they have not; then what fills those that were not.
    """

    def __init__(self, column: StructColumn, readers: list[Reader]) -> None:
        super().__init__(sum(reader.smallest for reader in readers))
        self._column = column
        self._readers = readers
        self._count = len(readers)

    def read(self, source: Source, offset: int) -> int:
        """Append a struct."""
        for number in range(self._count):
            if _IS_COMPILED:
                offset = _read(self._readers, number, source, offset)  # type: ignore[name-defined]  # noqa: F821
            else:
                offset = self._readers[number].read(source, offset)
            if offset < 0:
                source.field = number  # the root has the last word
                return -1
        self._column.rows += 1
        return offset


class ReadItems(Reader):
    """Reads an array, or a map.

    ::

        [count items]* 00        a count below zero has the bytes of the items behind it

    Args:
        column: The lists.
        reader: Of an item.
        keys: Of a map its keys: those that come twice are looked for.
        weight: For how many items one counts, as it takes more memory than most.
    """

    def __init__(
        self,
        column: ListColumn,
        reader: Reader,
        keys: BytesColumn | None = None,
        weight: int = 1,
    ) -> None:
        super().__init__(1)
        self._weight = weight
        self._column = column
        self._reader = reader
        self._keys = keys

    def read(self, source: Source, offset: int) -> int:  # noqa: C901 - as above
        """Append a list."""
        column = self._column
        items = column.items
        reader = self._reader
        row = column.rows
        while True:
            count = source.number(offset)
            offset = source.next
            if offset < 0:
                return -1
            if count == 0:
                break
            if count < 0:
                size = source.number(offset)
                offset = source.next
                if offset < 0:
                    return -1
                if size < 0:
                    return source.fail(_NEGATIVE)
            count = _take_items(source, count, offset, reader.smallest, self._weight)
            if count < 0:
                return -1
            if items.rows + count > column.most:
                return source.fail(_TOO_LARGE)
            items.reserve(items.rows + count)
            while count > 0:
                offset = reader.read(source, offset)
                if offset < 0:
                    return -1
                count -= 1
        if self._keys is not None and not column.has_twins:
            column.has_twins = has_twins(self._keys, column.offsets[row])
        column.offsets[row + 1] = items.rows
        column.rows = row + 1
        return offset


class ReadConstant(Reader):
    """Reads nothing, and appends a constant to each row.

    Args:
        reader: Of what is appended.
        data: That, as AVRO writes it.
    """

    def __init__(self, reader: Reader, data: bytes) -> None:
        super().__init__()
        self._reader = reader
        self._source = Source()
        self._source.load(data)
        self._source.end = len(data)

    def read(self, source: Source, offset: int) -> int:
        """Append the constant."""
        # The planner has bounded them.
        self._source.items = self._source.filled = -_MAX_INT32
        if self._reader.read(self._source, 0) < 0:
            return source.fail(self._source.error)
        return offset


class SkipNumber(Reader):
    """Skips an int, a long, or an enum."""

    def __init__(self) -> None:
        super().__init__(1)

    def read(self, source: Source, offset: int) -> int:
        """Skip the value."""
        source.number(offset)
        return source.next


class SkipWidth(Reader):
    """Skips a value with a fixed number of bytes."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._width = width

    def read(self, source: Source, offset: int) -> int:
        """Skip the value."""
        if self._width > source.end - offset:
            return source.fail(_ENDS)
        return offset + self._width


class SkipBytes(Reader):
    """Skips bytes, or a string."""

    def __init__(self) -> None:
        super().__init__(1)

    def read(self, source: Source, offset: int) -> int:
        """Skip the bytes."""
        size = source.number(offset)
        if source.next < 0:
            return -1
        if size < 0:
            return source.fail(_NEGATIVE)
        if size > source.end - source.next:
            return source.fail(_ENDS)
        return source.next + size


class SkipRecord(Reader):
    """Skips a record, which may be a part of itself.

    Attributes:
        readers: Skip the fields; to be filled in, and ``smallest`` with them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Reader] = []

    def read(self, source: Source, offset: int) -> int:
        """Skip the record."""
        if source.depth >= _MAX_DEPTH:
            return source.fail(_TOO_DEEP)
        source.depth += 1
        for reader in self.readers:
            offset = reader.read(source, offset)
            if offset < 0:
                return -1
        source.depth -= 1
        return offset


class SkipItems(Reader):
    """Skips an array, or a map: at once where the bytes of the items are given."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(1)
        self._reader = reader

    def read(self, source: Source, offset: int) -> int:
        """Skip the items."""
        reader = self._reader
        while True:
            count = source.number(offset)
            offset = source.next
            if offset < 0 or count == 0:
                return offset
            if count < 0:
                size = source.number(offset)
                offset = source.next
                if offset < 0:
                    return -1
                if size < 0:
                    return source.fail(_NEGATIVE)
                if size > source.end - offset:
                    return source.fail(_ENDS)
                offset += size
                continue
            count = _take_items(source, count, offset, reader.smallest, 1)
            if count < 0:
                return -1
            while count > 0:
                offset = reader.read(source, offset)
                if offset < 0:
                    return -1
                count -= 1


class Plan:
    """How values of a schema become columns.

    Args:
        reader: Of the root.
        column: Its column. Of a record these are structs, whose fields are the columns.
        skipped: Bytes before each value.
        reads_empty: Whether a value without bytes is one; otherwise it is NULL.

    Attributes:
        source: Says after ``run`` what is wrong with the first bad row.
    """

    def __init__(
        self,
        reader: Reader,
        column: StructColumn,
        skipped: int = 0,
        reads_empty: bool = False,
    ) -> None:
        self.source = Source()
        self._reader = reader
        self._column = column
        self._skipped = skipped
        self._reads_empty = reads_empty

    def run(
        self,
        data: memoryview | bytes,
        offsets: memoryview,
        nulls: memoryview | None = None,
    ) -> list[int]:
        """Fill the columns with rows of values.

        Args:
            data: Row ``n`` is ``data[offsets[n] : offsets[n + 1]]``.
            offsets: int32s, one more than there are rows.
            nulls: A byte for each row: 1 if it is NULL. None where none is.

        Returns:
            The bad rows, which are NULL.
        """
        source, column, reader = self.source, self._column, self._reader
        rows = len(offsets) - 1
        source.load(data)
        column.start(rows)
        bad: list[int] = []
        source.field = field = -1
        error = 0
        end = offsets[0]
        for row in range(rows):
            offset = end
            end = offsets[row + 1]
            if offset == end and not self._reads_empty:
                column.append_null()
                continue
            if nulls is not None and nulls[row]:
                column.append_null()
                continue
            source.begin = offset
            source.end = end
            source.items = source.filled = source.depth = 0
            if end - offset < self._skipped:
                offset = source.fail(_ENDS)
            else:
                offset = reader.read(source, offset + self._skipped)
            if offset < 0:
                if not bad:
                    error, field = source.error, source.field
                source.field = -1
                bad.append(row)
                column.cut(row)
                column.append_null()
        source.error, source.field = error, field
        source.load(b"")
        return bad


# -- helpers ---------------------------------------------------------------------------


def _take_items(
    source: Source, count: int, offset: int, smallest: int, weight: int
) -> int:
    """Return the number of items of a block; -1 if the value is too short for them.

    Args:
        source: Has them.
        count: How many it says, below 0 where the size follows.
        offset: Where they begin.
        smallest: The least bytes of one.
        weight: For how many items one counts.
    """
    most = (source.end - source.begin) * _ITEMS_PER_BYTE
    if smallest > 0:
        most = max(most, _MIN_FILLED_ITEMS) - source.filled
    else:
        most = max(most, _MIN_ITEMS * weight) - source.items
    most = most // weight
    if count > most or count < -most:
        return source.fail(_TOO_MANY)
    if count < 0:
        count = -count
    if count * smallest > source.end - offset:
        return source.fail(_ENDS)
    if smallest > 0:
        source.items += count
        source.filled += count * weight
    else:
        source.items += count * weight
    return count


def has_twins(keys: BytesColumn, first: int) -> bool:
    """Return whether two keys are equal, from the key ``first`` on."""
    count = keys.rows - first
    if count < 2:
        return False
    if _IS_COMPILED and count <= _MAX_COMPARED:
        return _are_some_same(keys, first)  # type: ignore[name-defined, no-any-return]  # noqa: F821
    bounds = memoryview(keys.offsets)[first : keys.rows + 1].tolist()
    base = bounds[0]
    data = bytes(keys.data[base : keys.offsets[keys.rows]])
    distinct = {
        data[start - base : end - base] for start, end in itertools.pairwise(bounds)
    }
    return len(distinct) < count


def put_bytes(column: BytesColumn, source: Source, offset: int, size: int) -> bool:
    """Append bytes; return whether the column can have as many."""
    row = column.rows
    begin = column.offsets[row]
    end = begin + size
    if end > column.data_room and not column.make_room(end):
        return False
    if _IS_COMPILED:
        _copy_bytes(column, begin, source, offset, size)  # type: ignore[name-defined]  # noqa: F821
    else:
        _copy(column, begin, source, offset, size)
    column.offsets[row + 1] = end
    column.rows = row + 1
    return True


def put_float(column: FixedColumn, value: float) -> None:
    """Append a float or a double, as the column has."""
    start = column.rows * column.width
    if _IS_COMPILED:
        _store_float(column, start, value)  # type: ignore[name-defined]  # noqa: F821
    else:
        if column.width == 4:
            value = ctypes.c_float(value).value  # infinite where it is too large
        struct.pack_into("<f" if column.width == 4 else "<d", column.data, start, value)
    column.rows += 1


def put_decimal(column: FixedColumn, value: int) -> None:
    """Append a number of up to 64 bits: little endian, in 128."""
    start = column.rows * column.width
    for offset in range(start, start + 8):
        column.data[offset] = value & 0xFF
        value >>= 8
    for offset in range(start + 8, start + 16):
        column.data[offset] = value & 0xFF  # of the sign
    column.rows += 1


def put_large_decimal(column: FixedColumn, number: int) -> None:
    """Append a number of up to 128 bits."""
    start = column.rows * column.width
    data = number.to_bytes(16, "little", signed=True)
    for offset in range(16):
        column.data[start + offset] = data[offset]
    column.rows += 1


def _integer(data: memoryview | bytes, offset: int, end: int) -> int:
    """Return a number of any size."""
    part = bytes(memoryview(data)[offset:end])
    return int.from_bytes(part, "big", signed=True)


# What is done in C where it is compiled. Not where it is used: a function that has a
# slice of memory anywhere is slower in C, each time that it is called.


def _copy(
    column: BytesColumn | FixedColumn,
    begin: int,
    source: Source,
    offset: int,
    size: int,
) -> None:
    column.data[begin : begin + size] = source.data[offset : offset + size]


def _is_text(source: Source, offset: int, size: int) -> bool:
    """Return whether bytes are UTF-8."""
    part = bytes(source.data[offset : offset + size])
    if part.isascii():
        return True
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _column(type_: str, length: int) -> Any:
    return new_bytes(_WIDTHS[type_] * length).cast(type_)  # type: ignore[call-overload]


def _longer(column: Any, type_: str, length: int, used: int) -> Any:
    """Return a longer column that begins with ``column``'s first ``used`` items."""
    longer = _column(type_, length)
    longer[:used] = memoryview(column)[:used]
    return longer
