# SPDX-License-Identifier: Apache-2.0
"""The loop over values in protobuf: from payloads to columns, field by field.

A payload is fields back to back, in any order; one that is not repeated counts in its
last place, and messages in several places are one::

    tag(varint) number(varint)   tag bytes(4 or 8)   tag size(varint) bytes   ...
    tag = number of the field << 3 | how it is written

No object is made for a value: what a plan wants (see :mod:`protobuf_op`) is written
right where Arrow expects it, in the row of the columns that the field has. Bytes and
texts are only noted, and gathered when all values have been read. All columns that
have the same rows are a level: the values themselves are one, and so are the items of
each list and each map. A message within a message has columns on the same level. As one
row is read at a time, the items of one list lie together.

A value that is not well-formed is a bad row: what it has left in the columns is taken
back, and the next one is read. The loop knows where each value ends, so that none can
harm another.

Like ``messages.py`` this file runs as it is, and is compiled where a C compiler is at
hand, with the types in ``protobuf_values.pxd``.

Source: "Protocol Buffers encoding"; what the official runtime accepts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_spark.loops import protobuf_op as op
from spark_topics.loops import memory
from spark_topics.loops.memory import new_bytes

#: Which form of this file runs: "compiled" or "python".
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: How deep messages and groups may be nested: as the official runtimes have it.
MAX_DEPTH = 100

#: What the items of lists may take in memory: so many bytes for each byte of the value,
#: and so many in any case. Empty messages are the reason: each has two bytes in a
#: payload, and a row of all columns.
MAX_BYTES_PER_BYTE = 256
MAX_FREE_BYTES = 8 * 2**20

_MAX_DEPTH = MAX_DEPTH
_MAX_BYTES_PER_BYTE = MAX_BYTES_PER_BYTE
_MAX_FREE_BYTES = MAX_FREE_BYTES
_MASK_32 = 0xFFFF_FFFF
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF
_SIGN_32 = 0x8000_0000

#: Items of a new level.
_FIRST_ROOM = 64

#: Bytes of a row, by how a column holds it.
_ROW_BYTES = (0, 1, 4, 8, 8, 4)


class Column:
    """The rows of a column.

    Args:
        storage: How it holds them, such as ``protobuf_op.WORD``.
        has_presence: Whether it notes which rows there are.
        inner: Of a struct: the columns in it.
        below: Of a list: the level of its items.

    Attributes:
        weight: The cost of clearing a row, in addition to the memory of the row.
        small, words, longs: The rows, in the one that fits ``storage``; all but PLACE
            and LIST as Arrow has them. Longer than there are rows.
        valid: With ``has_presence`` 1 for each row that there is, 0 for the others.
    """

    def __init__(
        self,
        storage: int,
        has_presence: bool,
        inner: list[Column],
        below: Level | None,
    ) -> None:
        self.storage = storage
        self.has_presence = has_presence
        self.inner = inner
        self.below = below
        self.weight: int = 8 + sum(column.weight for column in inner)
        self.small = self.valid = new_bytes(0)
        self.words = new_bytes(4).cast("I")
        self.longs = new_bytes(0).cast("Q")

    def make_room(self, room: int, rows: int) -> None:
        """Make room for ``room`` rows, of which ``rows`` exist; new rows are 0."""
        if self.storage == op.SMALL:
            self.small = _longer(self.small, "B", room, rows)
        elif self.storage == op.WORD:
            self.words = _longer(self.words, "I", room, rows)
        elif self.storage == op.LIST:
            self.words = _longer(self.words, "I", room + 1, rows + 1)
        elif self.storage != op.NOTHING:
            self.longs = _longer(self.longs, "Q", room, rows)
        if self.has_presence:
            self.valid = _longer(self.valid, "B", room, rows)

    def clear(self, row: int) -> None:
        """Take back what the last row, ``row``, has."""
        if self.storage == op.SMALL:
            self.small[row] = 0
        elif self.storage == op.WORD:
            self.words[row] = 0
        elif self.storage == op.LIST:
            assert self.below is not None
            self.below.cut(self.words[row])
        elif self.storage != op.NOTHING:
            self.longs[row] = 0
        if self.has_presence:
            self.valid[row] = 0
        for column in self.inner:
            column.clear(row)

    def _set(self, row: int, value: int) -> None:
        """Write 64 bits, or as many as there is place for."""
        if self.storage == op.WORD:
            self.words[row] = value & _MASK_32
        elif self.storage == op.SMALL:
            self.small[row] = value & 0xFF
        else:
            self.longs[row] = value
        if self.has_presence:
            self.valid[row] = 1


class Level:
    """Columns with equal numbers of rows.

    Attributes:
        columns: All of them, also those within structs.
        lists: Those of them that are lists.
        rows: How many rows there are.
        row_bytes: What one takes in memory.
    """

    def __init__(self) -> None:
        self.columns: list[Column] = []
        self.lists: list[Column] = []
        self.rows = 0
        self.row_bytes = 1  # no item is for free
        self._room = 0

    def add_column(self, column: Column, further_bytes: int) -> None:
        """Add a column, and the bytes that a row takes elsewhere."""
        self.columns.append(column)
        if column.storage == op.LIST:
            self.lists.append(column)
        own = _ROW_BYTES[column.storage] + int(column.has_presence)
        self.row_bytes += own + further_bytes

    def make_room(self, room: int) -> None:
        """Make room for ``room`` rows."""
        for column in self.columns:
            column.make_room(room, self.rows)
        self._room = room

    def add_row(self) -> int:
        """Return a new row."""
        row = self.rows
        if row == self._room:
            self.make_room(max(2 * row, _FIRST_ROOM))
        self.rows = row + 1
        return row

    def end_row(self, row: int) -> None:
        """Note where the lists of the last row end."""
        for number in range(len(self.lists)):
            column = self.lists[number]
            assert column.below is not None
            column.words[row + 1] = column.below.rows

    def cut(self, rows: int) -> None:
        """Keep the first ``rows`` rows."""
        while self.rows > rows:
            self.rows -= 1
            row = self.rows
            for number in range(len(self.columns)):
                column = self.columns[number]
                # A row that is not ended has no end of its lists yet: last ones first.
                column.clear(row)


class Table:
    """Values of a run, as columns.

    Args:
        fields: The plan: fields of messages, as ``protobuf_op`` says.
        root_fields: How many of these, the first ones, are of the values themselves.
        columns: All columns. No struct is before what is in it.
        levels: Their levels, that of the values first.

    Attributes:
        valid: 1 for each value that is neither null nor bad.
        bad: The rows of bad ones.
        fault: What is wrong with the first of these, such as ``op.ENDS_EARLY``.
        fault_column: The place of the column that this is about, or -1.
    """

    def __init__(
        self,
        fields: memoryview,
        root_fields: int,
        columns: list[Column],
        levels: list[Level],
    ) -> None:
        self._fields = fields
        self._root_fields = root_fields
        self.columns = columns
        self.levels = levels
        self.valid = new_bytes(0)
        self.bad: list[int] = []
        self.fault = 0
        self.fault_column = -1
        self._position = 0
        self._fault = 0
        self._fault_column = -1
        self._bytes = 0

    def read(
        self,
        data: memoryview,
        offsets: Sequence[int],
        validity: memoryview,
        first: int,
        count: int,
    ) -> None:
        """Read values; once.

        Args:
            data: Holds their bytes.
            offsets: Where each value begins there, and the one after the last.
            validity: A bit for each that is not null; empty if none is.
            first: Place of the first of them in ``offsets`` and ``validity``.
            count: How many values there are.
        """
        top = self.levels[0]
        top.make_room(count)
        self.valid = new_bytes(count)
        valid = self.valid
        has_nulls = len(validity) > 0
        for number in range(count):
            place = first + number
            row = top.add_row()
            if not has_nulls or validity[place >> 3] >> (place & 7) & 1:
                start = offsets[place]
                end = offsets[place + 1]
                self._bytes = max((end - start) * _MAX_BYTES_PER_BYTE, _MAX_FREE_BYTES)
                if (
                    self._message(
                        data, start, end, 0, self._root_fields, row, _MAX_DEPTH, 0
                    )
                    < 0
                ):
                    top.cut(row)
                    top.add_row()
                    self._note_bad(row)
                else:
                    valid[row] = 1
            top.end_row(row)

    def texts(
        self, data: memoryview, column: Column, rows: int
    ) -> tuple[memoryview, memoryview]:
        """Return offsets and bytes of a column of PLACEs, in Arrow's layout.

        Args:
            data: That of ``read``.
            column: The column.
            rows: How many rows of it to take.
        """
        places = column.longs
        offsets = new_bytes(4 * (rows + 1)).cast("I")
        total = 0
        for row in range(rows):
            total += places[row] & _MASK_32
            offsets[row + 1] = total
        texts = new_bytes(total)
        offset = 0
        for row in range(rows):
            start = places[row] >> 32
            size = places[row] & _MASK_32
            memory.copy(texts, offset, data, start, size)
            offset += size
        return offsets, texts

    def _note_bad(self, row: int) -> None:
        if not self.bad:
            self.fault = self._fault
            self.fault_column = self._fault_column
        self.bad.append(row)

    def _fail(self, fault: int, column: int = -1) -> int:
        """Record a fault; return -1, which means no position."""
        self._fault = fault
        self._fault_column = column
        return -1

    def _message(  # noqa: C901 - a call in here costs more than what it would do
        self,
        data: memoryview,
        position: int,
        end: int,
        first: int,
        last: int,
        row: int,
        depth: int,
        group: int,
    ) -> int:
        """Read a message into a row.

        Args:
            data: Holds it.
            position: The beginning.
            end: If it must end; for a group, before which.
            first: The first of its fields in the plan.
            last: The one that follows its last.
            row: That of its columns.
            depth: How much deeper messages may be nested.
            group: For a group the number that ends it, 0 for any other message.

        Returns:
            If it ended, or -1.
        """
        fields = self._fields
        offset = first
        while position < end:
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag = self._varint(data, position - 1, end)
                if self._position < 0:
                    return -1
                if self._position - position > 4 or tag > _MASK_32:
                    return self._fail(op.BAD_TAG)
                position = self._position
            number = tag >> 3
            wire = tag & 7
            if number == 0:
                return self._fail(op.BAD_TAG)
            if wire == 4:
                return position if number == group else self._fail(op.BAD_TAG)
            # Most writers keep to the order of numbers: it is the same again or the
            # next.
            if offset == last or fields[offset * op.PER_FIELD + op.NUMBER] != number:
                if offset < last:
                    offset += 1
                if (
                    offset == last
                    or fields[offset * op.PER_FIELD + op.NUMBER] != number
                ):
                    offset = self._find(first, last, number)
            if offset == last or fields[offset * op.PER_FIELD + op.NUMBER] != number:
                position = self._skip(data, position, end, wire, number, depth)
                if position < 0:
                    return -1
                continue
            base = offset * op.PER_FIELD
            kind = fields[base + op.KIND]
            if kind <= op.SINT64:
                if wire == 0:
                    value = data[position] if position < end else 0x80
                    if value < 0x80:
                        position += 1
                    else:
                        value = self._varint(data, position, end)
                        position = self._position
                        if position < 0:
                            return -1
                    if not self._number(base, kind, value, row):
                        return -1
                    continue
            elif kind <= op.FIXED32:
                if wire == (1 if kind == op.FIXED64 else 5):
                    size = 8 if wire == 1 else 4
                    if size > end - position:
                        return self._fail(op.ENDS_EARLY)
                    value = memory.number(data, position, size)
                    position += size
                    if not self._number(base, kind, value, row):
                        return -1
                    continue
            elif kind <= op.MESSAGE:
                if wire == 2:
                    value = data[position] if position < end else 0x80
                    if value < 0x80:
                        position += 1
                    else:
                        value = self._varint(data, position, end)
                        position = self._position
                        if position < 0:
                            return -1
                    if value > end - position:
                        return self._fail(op.ENDS_EARLY)
                    size = value
                    if kind == op.MESSAGE:
                        if (
                            self._nested(
                                data, position, position + size, base, row, depth, 0
                            )
                            < 0
                        ):
                            return -1
                    elif not self._place(data, position, size, base, kind, row):
                        return -1
                    position += size
                    continue
            elif wire == 3:
                position = self._nested(data, position, end, base, row, depth, number)
                if position < 0:
                    return -1
                continue
            if wire == 2 and kind <= op.FIXED32 and fields[base + op.REPEATED]:
                position = self._packed(data, position, end, base, kind)
            else:
                position = self._skip(data, position, end, wire, number, depth)
            if position < 0:
                return -1
        return position if group == 0 else self._fail(op.ENDS_EARLY)

    def _find(self, first: int, last: int, number: int) -> int:
        """Return the first field whose number is ``number`` or higher."""
        while first < last:
            middle = (first + last) >> 1
            if self._fields[middle * op.PER_FIELD + op.NUMBER] < number:
                first = middle + 1
            else:
                last = middle
        return first

    def _varint(self, data: memoryview, position: int, end: int) -> int:
        """Return a varint modulo 2**64; ``_position`` is its end, or -1."""
        value = 0
        shift = 0
        while True:
            if position >= end:
                self._position = self._fail(op.ENDS_EARLY)
                return 0
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift == 70:
                self._position = self._fail(op.BAD_VARINT)
                return 0
        self._position = position
        return value & _MASK_64

    def _size(self, data: memoryview, position: int, end: int) -> int:
        """Return a size that ends before ``end``, or -1; advance ``_position``."""
        value = self._varint(data, position, end)
        if self._position < 0:
            return -1
        if value > end - self._position:
            return self._fail(op.ENDS_EARLY)
        return value

    def _number(self, base: int, kind: int, value: int, row: int) -> bool:
        """Write a number; return whether the column has place for a number.

        Args:
            base: Where its field begins in the plan.
            kind: Which it is.
            value: As it was written.
            row: That of the message.
        """
        if kind == op.BOOL:
            value = 1 if value else 0
        elif kind == op.INT32 or kind == op.SFIXED32:
            value = ((value & _MASK_32) ^ _SIGN_32) - _SIGN_32 & _MASK_64
        elif kind == op.UINT32:
            value &= _MASK_32
        elif kind == op.SINT32 or kind == op.SINT64:
            if kind == op.SINT32:
                value &= _MASK_32
            value = (value >> 1) ^ (0 - (value & 1) & _MASK_64)
        if self._fields[base + op.CHECKED]:
            low = self._fields[base + op.LOW]
            if (value - low) & _MASK_64 > self._fields[base + op.SPAN]:
                self._fail(op.OUT_OF_RANGE, self._fields[base + op.COLUMN])
                return False
        return self._write(base, value, row)

    def _place(
        self,
        data: memoryview,
        position: int,
        size: int,
        base: int,
        kind: int,
        row: int,
    ) -> bool:
        """Note the place of bytes or a text; return whether the place is allowed."""
        column = self._fields[base + op.COLUMN]
        if (
            kind == op.STRING
            and column >= 0
            and not memory.is_text(data, position, size)
        ):
            self._fail(op.NOT_TEXT, column)
            return False
        value = position
        return self._write(base, value << 32 | size, row)

    def _write(self, base: int, value: int, row: int) -> bool:
        """Write a value; for a repeated field, write an item of the list."""
        place = self._fields[base + op.COLUMN]
        if self._fields[base + op.CASE] >= 0:
            self._choose(base, row)
            if self._bytes < 0:
                self._fail(op.TOO_LARGE, place)
                return False
        if place < 0:
            return True
        column = self.columns[place]
        if self._fields[base + op.REPEATED]:
            level = column.below
            assert level is not None
            self._bytes -= level.row_bytes
            if self._bytes < 0:
                self._fail(op.TOO_LARGE, place)
                return False
            row = level.add_row()
            column = level.columns[0]
        column._set(row, value)
        return True

    def _choose(self, base: int, row: int) -> None:
        """Note which field of a oneof a row has; clear the previous field."""
        place = self._fields[base + op.COLUMN]
        case = self.columns[self._fields[base + op.CASE]]
        before = case.words[row]
        case.words[row] = place + 1
        if before > 0 and before != place + 1:
            column = self.columns[before - 1]
            self._bytes -= column.weight
            column.clear(row)

    def _nested(
        self,
        data: memoryview,
        position: int,
        end: int,
        base: int,
        row: int,
        depth: int,
        group: int,
    ) -> int:
        """Read a message within another message; return its end, or -1."""
        place = self._fields[base + op.COLUMN]
        if self._fields[base + op.CASE] >= 0:
            self._choose(base, row)
            if self._bytes < 0:
                return self._fail(op.TOO_LARGE, place)
        if place < 0:
            if group == 0:
                return end
            return self._skip(data, position, end, 3, group, depth)
        if depth == 0:
            return self._fail(op.TOO_DEEP, place)
        column = self.columns[place]
        first = self._fields[base + op.FIRST]
        last = self._fields[base + op.LAST]
        if not self._fields[base + op.REPEATED]:
            if column.has_presence:
                column.valid[row] = 1
            return self._message(
                data, position, end, first, last, row, depth - 1, group
            )
        level = column.below
        assert level is not None
        self._bytes -= level.row_bytes
        if self._bytes < 0:
            return self._fail(op.TOO_LARGE, place)
        item = level.add_row()
        position = self._message(
            data, position, end, first, last, item, depth - 1, group
        )
        level.end_row(item)
        return position

    def _packed(
        self, data: memoryview, position: int, end: int, base: int, kind: int
    ) -> int:
        """Read packed numbers, all items of a list."""
        size = self._size(data, position, end)
        if size < 0:
            return -1
        position = self._position
        end = position + size
        width = 0 if kind <= op.SINT64 else 8 if kind == op.FIXED64 else 4
        if width > 0 and size % width:
            return self._fail(op.ENDS_EARLY)
        while position < end:
            if width > 0:
                value = memory.number(data, position, width)
                position += width
            else:
                value = self._varint(data, position, end)
                position = self._position
                if position < 0:
                    return -1
            if not self._number(base, kind, value, 0):
                return -1
        return position

    def _skip(
        self,
        data: memoryview,
        position: int,
        end: int,
        wire: int,
        number: int,
        depth: int,
    ) -> int:
        """Return where a field ends that is not wanted, or -1."""
        if wire == 0:
            self._varint(data, position, end)
            return self._position
        if wire == 2:
            size = self._size(data, position, end)
            return -1 if size < 0 else self._position + size
        if wire == 1 or wire == 5:
            size = 8 if wire == 1 else 4
            return (
                position + size if size <= end - position else self._fail(op.ENDS_EARLY)
            )
        if wire != 3:
            return self._fail(op.BAD_TAG)
        if depth == 0:
            return self._fail(op.TOO_DEEP)
        # A group, of which nothing is wanted.
        return self._message(data, position, end, 0, 0, 0, depth - 1, number)


def _longer(column: memoryview, type_: str, length: int, used: int) -> memoryview:
    """Return a longer column that begins with ``column``'s first ``used`` items."""
    width = 1 if type_ == "B" else 4 if type_ == "I" else 8
    longer = new_bytes(width * length).cast(type_)  # type: ignore[call-overload]
    longer[:used] = memoryview(column)[:used]
    return longer  # type: ignore[no-any-return]
