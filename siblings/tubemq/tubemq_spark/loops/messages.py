# SPDX-License-Identifier: Apache-2.0
"""The loops over the messages of a get: from a reply to bytes of columns.

A reply is a GetMessageResponseB2C, of which most is messages::

    [08 n] [10 n] [1A n text]  22 n message  22 n message ...  [28 n] ...
                                    |  08 id  10 checksum  1A n stored  20 flag  |

No object is made for a message: a pass over the reply notes where everything lies, and
each column that is wanted gathers its bytes from there, right where Arrow expects them.

Only what servers write is read here. What is written in another way, which may be as
good, is for protobuf to read; see ``wire/gets.py``.

This file runs as it is. Where a C compiler is available, Cython compiles it together
with ``messages.pxd``, which gives the types. So what is written here keeps to what C
can do: every index is checked against its end before it is used, and no number exceeds
64 bits.

Source: "Protocol Buffers encoding"; InLong 2.4, Message and MessageFlagUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark_topics.loops import memory
from spark_topics.loops.memory import new_bytes

#: Which form of this file runs: "compiled" or "python".
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: Of a message's flag: it has attributes.
HAS_ATTRIBUTES = 1

#: What a checksum keeps of a CRC-32: all but its highest bit.
CHECKSUM_MASK = 0x7FFF_FFFF

# The same numbers, in C: messages.pxd hides these from Python.
_HAS_ATTRIBUTES = HAS_ATTRIBUTES
_CHECKSUM_MASK = CHECKSUM_MASK

#: Attributes that belong to the system.
_MSG_TYPE, _MSG_TIME = b"$msgType$", b"$msgTime$"
_SYSTEM_BYTES = 9

#: Up to this many attributes of a message, names are compared one by one; those of more
#: are looked up in a set.
_MAX_COMPARED = 16

#: Bytes of a value of the types of columns, by their names in ``struct``.
_WIDTHS = {"B": 1, "i": 4, "I": 4, "q": 8, "Q": 8}

_MASK_32 = 0xFFFF_FFFF
_SIGN_64 = 1 << 63


class OddReplyError(ValueError):
    """A reply deviates from the form that servers write."""


class Message(NamedTuple):
    """A single message, for code where speed does not matter.

    Attributes:
        message_id: Its id.
        checksum: What its checksum should be, as a uint32.
        flag: Whether it has attributes, in bit 0; a uint32.
        stored: Its stored bytes.
    """

    message_id: int
    checksum: int
    flag: int
    stored: bytes


class MessageTable:
    """The messages of a get, as views into the bytes of a reply.

    Places are from the reply's begin on. Columns may be longer than there are messages;
    the rest of them means nothing.

    Args:
        data: The reply. It must not change.

    Attributes:
        head: The reply without its messages.
        count: How many messages there are; `keep` makes them fewer.
        ids: Of each message: int64.
        bodies: For each where its stored bytes begin and end: int32.
        values: Its value, once there was a `split`.
        has_attributes: Whether the flag of any message says so.
        types, times: Its type and time, -1 for none, after a `split` that
            looked at attributes; as all below, where any has some.
        pair_ends: For each the number of other attributes before it, and after the last
            one the number of all: int32.
        pairs: The number of all.
        names, texts: For each of these attributes where its name and its text begin and
            end.

    Raises:
        OddReplyError: It is for protobuf to read, or to refuse.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._bytes = data
        self.count = self.pairs = 0
        self.has_attributes = False
        self._room = self._pair_room = 0
        self.ids = _column("Q", 0)
        self._checksums = self._flags = _column("I", 0)
        self.bodies = self.values = self.types = self.times = _column("i", 0)
        self.pair_ends = self.names = self.texts = self.bodies
        self._seen: set[bytes] = set()
        self._seen_from = -1
        self._position = 0
        self.head = self._scan(len(data))

    def __len__(self) -> int:
        """Return how many messages there are."""
        return self.count

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages in order."""
        return map(self.__getitem__, range(self.count))

    def keep(self, count: int) -> None:
        """Leave out all messages but the first ``count``."""
        self.count = min(self.count, count)

    def message_id(self, number: int) -> int:
        """Return the id of a message."""
        identifier = int(self.ids[number])
        return identifier if identifier < _SIGN_64 else identifier - 2 * _SIGN_64

    def __getitem__(self, number: int) -> Message:
        """Return a message by its number, from 0."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        stored = self.data[self.bodies[2 * number] : self.bodies[2 * number + 1]]
        return Message(
            self.message_id(number),
            self._checksums[number],
            self._flags[number],
            bytes(stored),
        )

    def size_bytes(self) -> int:
        """Return how many bytes are stored for the messages."""
        total = 0
        for number in range(self.count):
            total += self.bodies[2 * number + 1] - self.bodies[2 * number]
        return total

    def first_damaged(self, crc32: Callable[[memoryview], int]) -> int:
        """Return the first message whose checksum is wrong, -1 where none is.

        Args:
            crc32: Returns the CRC-32 of bytes.
        """
        bodies, data = self.bodies, self.data
        for number in range(self.count):
            checksum: int = crc32(data[bodies[2 * number] : bodies[2 * number + 1]])
            if checksum & _CHECKSUM_MASK != self._checksums[number]:
                return number
        return -1

    # -- the reply ---------------------------------------------------------------------

    def _scan(self, end: int) -> bytes:
        """Find the messages; return the fields between messages."""
        data = self._bytes
        further = []
        begin = position = 0
        while position < end:
            start = position
            tag = data[position]
            position += 1
            if tag >= 0x80:  # fields from 16 on: there are none yet
                if position == end or not 0 < data[position] < 0x80:
                    raise OddReplyError
                tag = tag & 0x7F | data[position] << 7
                position += 1
            self._position = position
            size = self._skip(tag, end)
            if tag == 0x22:
                if begin < start:
                    further.append(bytes(self.data[begin:start]))
                begin = self._position
                self._read_message(begin - size, begin)
            position = self._position
        if begin < end:
            further.append(bytes(self.data[begin:end]))
        return b"".join(further)

    def _skip(self, tag: int, end: int) -> int:
        """Skip a field's value; return its number or length."""
        kind = tag & 7
        if tag < 8 or kind == 3 or kind == 4 or kind > 5:  # groups, or what is nothing
            raise OddReplyError
        if kind == 0:
            return self._varint(end)
        size = 8
        if kind == 5:
            size = 4
        elif kind == 2:
            size = self._varint(end)
        if size > end - self._position:
            raise OddReplyError
        self._position += size
        return size

    def _varint(self, end: int) -> int:
        """Read a varint of up to 64 bits at ``_position``, and advance."""
        data, position = self._bytes, self._position
        value = shift = 0
        while position < end:
            byte = data[position]
            position += 1
            if shift == 63 and byte > 1:
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = position
                return value
            shift += 7
        raise OddReplyError

    def _read_message(self, position: int, end: int) -> None:
        if self.count == self._room:
            self._make_room()
        data = self._bytes
        message_id = checksum = flag = 0
        start = stop = position
        while position < end:
            tag = data[position]
            self._position = position + 1
            if tag >= 0x80:
                raise OddReplyError
            value = self._skip(tag, end)
            position = self._position
            if tag == 0x08:
                message_id = value
            elif tag == 0x10:
                checksum = value & _MASK_32
            elif tag == 0x20:
                flag = value & _MASK_32
            elif tag == 0x1A:
                start, stop = position - value, position
        number = self.count
        self.ids[number] = message_id
        self._checksums[number] = checksum
        self._flags[number] = flag
        self.bodies[2 * number] = start
        self.bodies[2 * number + 1] = stop
        if flag & _HAS_ATTRIBUTES:
            self.has_attributes = True
        self.count = number + 1
        self._position = end

    def _make_room(self) -> None:
        used, room = self.count, max(64, 2 * self.count)
        self.ids = _longer(self.ids, "Q", room, used)
        self._checksums = _longer(self._checksums, "I", room, used)
        self._flags = _longer(self._flags, "I", room, used)
        self.bodies = _longer(self.bodies, "i", 2 * room, 2 * used)
        self._room = room  # last: there may be no memory for it

    # -- stored bytes ------------------------------------------------------------------

    def split(self, wants_attributes: bool) -> int:
        """Find the values of messages, and what their attributes are.

        Returns:
            The first message whose attributes cannot be read, -1 where there is none.
        """
        if not self.has_attributes:
            self.values = self.bodies
            return -1
        data, bodies, flags = self._bytes, self.bodies, self._flags
        self.values = values = _column("i", 2 * self.count)
        self.types = types = _column("i", 2 * self.count)
        self.times = times = _column("i", 2 * self.count)
        self.pair_ends = pair_ends = _column("i", self.count + 1)
        self.pairs = 0
        self._seen_from = -1
        for number in range(self.count):
            start, end = bodies[2 * number], bodies[2 * number + 1]
            types[2 * number] = types[2 * number + 1] = -1
            times[2 * number] = times[2 * number + 1] = -1
            if flags[number] & _HAS_ATTRIBUTES:
                if end - start < 4:
                    return number
                size = data[start]  # by itself: C would shift into the sign
                size = (
                    size << 24
                    | data[start + 1] << 16
                    | data[start + 2] << 8
                    | data[start + 3]
                )
                start += 4
                if size > end - start:  # an int32 below 0 is more, too
                    return number
                if wants_attributes and not self._read_attributes(
                    number, start, start + size
                ):
                    return number
                start += size
            values[2 * number] = start
            values[2 * number + 1] = end
            pair_ends[number + 1] = self.pairs
        return -1

    def _read_attributes(self, number: int, start: int, end: int) -> bool:
        """Read ``k=v,k=v``; return whether that is text."""
        data = self._bytes
        if not memory.is_text(data, start, end - start):
            return False
        first, position = self.pairs, start
        while position < end:
            name, name_end = position, -1
            while position < end and data[position] != 0x2C:
                if name_end < 0 and data[position] == 0x3D:
                    name_end = position
                position += 1
            stop = position  # of the pair
            position += 1
            if stop == name:
                continue
            text = name_end + 1
            if name_end < 0:
                name_end = text = stop
            bounds = self._of_system(name, name_end)
            if bounds is None:
                if self._is_new_name(first, name, name_end):
                    self._add_pair(name, name_end, text, stop)
            elif bounds[2 * number] < 0:  # of equal names the first one holds
                bounds[2 * number] = text
                bounds[2 * number + 1] = stop
        return True

    def _of_system(self, name: int, name_end: int) -> memoryview | None:
        """Return the column of a system attribute, None for other attributes."""
        data = self._bytes
        if name_end - name == _SYSTEM_BYTES and data[name] == 0x24:
            if _is_same(data, name, _MSG_TYPE, 0, _SYSTEM_BYTES):
                return self.types
            if _is_same(data, name, _MSG_TIME, 0, _SYSTEM_BYTES):
                return self.times
        return None

    def _add_pair(self, name: int, name_end: int, text: int, text_end: int) -> None:
        pair = self.pairs
        if pair == self._pair_room:
            room = max(64, 2 * pair)
            self.names = _longer(self.names, "i", 2 * room, 2 * pair)
            self.texts = _longer(self.texts, "i", 2 * room, 2 * pair)
            self._pair_room = room
        self.names[2 * pair] = name
        self.names[2 * pair + 1] = name_end
        self.texts[2 * pair] = text
        self.texts[2 * pair + 1] = text_end
        self.pairs = pair + 1

    def _is_new_name(self, first: int, start: int, end: int) -> bool:
        """Return whether no attribute from the ``first`` on has this name."""
        data, names = self._bytes, self.names
        if self.pairs - first < _MAX_COMPARED:
            for pair in range(first, self.pairs):
                begin = names[2 * pair]
                if names[2 * pair + 1] - begin == end - start and _is_same(
                    data, start, data, begin, end - start
                ):
                    return False
            return True
        if self._seen_from != first:
            self._seen = set()
            for pair in range(first, self.pairs):
                begin, stop = names[2 * pair], names[2 * pair + 1]
                self._seen.add(bytes(self.data[begin:stop]))
            self._seen_from = first
        name = bytes(self.data[start:end])
        if name in self._seen:
            return False
        self._seen.add(name)
        return True


def gather(
    data: memoryview,
    bounds: Sequence[int],
    count: int,
    allocate: Callable[[int], memoryview] = new_bytes,
) -> tuple[int, memoryview | None, memoryview, memoryview]:
    """Return a column of bytes in Arrow's layout.

    Args:
        data: Holds the bytes.
        bounds: For each row where its bytes begin and end, -1 if it is null.
        count: How many rows.
        allocate: Returns a buffer of that many bytes.

    Returns:
        How many rows are null, which are not, where the bytes of each begin, and the
        bytes.
    """
    nulls = end = 0
    for row in range(count):
        if bounds[2 * row] < 0:
            nulls += 1
        end += bounds[2 * row + 1] - bounds[2 * row]
    gathered = allocate(end)
    offsets = allocate(4 * (count + 1)).cast("i")
    valid = new_bytes((count + 7) // 8 if nulls else 0)
    end = offsets[0] = 0
    for row in range(count):
        start = bounds[2 * row]
        size = bounds[2 * row + 1] - start
        if nulls and start >= 0:
            valid[row // 8] |= 1 << row % 8
        memory.copy(gathered, end, data, start, size)
        end += size
        offsets[row + 1] = end
    return nulls, valid if nulls else None, offsets, gathered


def progression(
    first: int,
    step: int,
    count: int,
    allocate: Callable[[int], memoryview] = new_bytes,
) -> memoryview:
    """Return ``count`` numbers from ``first`` on, each ``step`` more: int64."""
    numbers = allocate(8 * count).cast("q")
    for row in range(count):
        numbers[row] = first + row * step
    return numbers


def _is_same(
    one: memoryview | bytes,
    start: int,
    other: memoryview | bytes,
    begin: int,
    size: int,
) -> bool:
    for index in range(size):  # noqa: SIM110 - in C, too
        if one[start + index] != other[begin + index]:
            return False
    return True


def _column(type_: str, length: int) -> memoryview:
    return new_bytes(_WIDTHS[type_] * length).cast(type_)  # type: ignore[call-overload, no-any-return]


def _longer(column: memoryview, type_: str, length: int, used: int) -> memoryview:
    """Return a longer column with the first ``used`` items copied."""
    longer = _column(type_, length)
    longer[:used] = memoryview(column)[:used]
    return longer
