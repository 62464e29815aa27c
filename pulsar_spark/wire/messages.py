"""The one loop that goes message by message: from a batch to columns of messages.

A batch holds messages back to back, and each begins with its own metadata::

    size(4) SingleMessageMetadata payload  size(4) SingleMessageMetadata payload  ...
            |   [0A n pair]*  [12 n key]  18 n  [28 time]  ...    |

No object is made for a message: its numbers and its bytes are written right where Arrow
expects them, in columns that grow by the batch. First a pass over the metadata finds
where everything lies, then each column that is wanted gathers its bytes.

This file runs as it is. Where a C compiler is at hand, Cython compiles it together with
``messages.pxd``, which gives the types, and the loop is a hundred times faster; see
``KERNEL``. So what is written here keeps to what C can do: every index is checked
against its end before it is used, and no number exceeds 64 bits.

Source: SingleMessageMetadata and KeyValue in PulsarApi.proto; "Protocol Buffers
encoding" for their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pulsar_spark.errors import CorruptEntryError

#: Which form of this file runs: "compiled" or "python".
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

# What ``MessageTable.flags`` says of a message.
HAS_KEY = 1
KEY_IS_BASE64 = 2
HAS_ORDERING_KEY = 4
HAS_EVENT_TIME = 8
IS_NULL = 16  # its value is
MAY_REPEAT_PROPERTIES = 32  # a name comes twice, or there are too many to tell

#: The columns of bytes that a table can have.
TEXTS = ("values", "keys", "ordering_keys", "properties")

#: The least that a message takes: its size, and metadata with nothing but payload_size.
MIN_MESSAGE_BYTES = 6

#: So many properties of a message are compared with each other.
_MAX_COMPARED = 16

#: Bytes of a value of the types of columns, by their names in ``struct``.
_WIDTHS = {"B": 1, "i": 4, "q": 8, "Q": 8}

#: Whether the ``_memcpy`` of messages.pxd is there. A slice does the same, but in C it
#: costs more than all the rest of a message.
_IS_COMPILED = KERNEL == "compiled"
_MAX_VARINT_BYTES = 5  # of an int32 from 0 on
_MASK_32 = 0xFFFF_FFFF
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF


def new_bytes(size: int) -> memoryview:
    """Room for so many bytes."""
    return memoryview(bytearray(size))


class Texts:
    """A column of bytes, as Arrow lays it out.

    Row ``n`` is ``data[offsets[n]:offsets[n + 1]]``. Both columns are longer than that;
    what is behind means nothing. Rows may be viewed for as long as anybody likes: what
    is added goes behind them, or they stay as they are while it goes elsewhere.

    Args:
        allocate: Gives room for so many bytes.
        rows, size_bytes: To make room for at once.
    """

    def __init__(
        self, allocate: Callable[[int], memoryview], rows: int = 0, size_bytes: int = 0
    ) -> None:
        self._allocate = allocate
        self._room = size_bytes
        self.data = allocate(size_bytes)
        self._rows_room = rows
        self.offsets = _column(allocate, "i", rows + 1)
        self.offsets[0] = 0

    def another(self, rows: int) -> Texts:
        """An empty one with room for as much as so many rows of this one have."""
        return Texts(self._allocate, _and_more(rows), _and_more(self.offsets[rows]))

    def gather(
        self,
        rows: int,
        payload: memoryview | bytes,
        bounds: Sequence[int],
        count: int,
    ) -> None:
        """Takes rows; all of them together have at most 2**31 - 1 bytes.

        Args:
            rows: How many are kept of those that are there.
            payload: What has the bytes of the new ones.
            bounds: For each of them where it begins and ends there.
            count: How many.
        """
        self._make_row_room(rows, count)
        data, offsets, room = self.data, self.offsets, self._room
        end = offsets[rows]
        for number in range(count):
            start = bounds[2 * number]
            size = bounds[2 * number + 1] - start
            if size > room - end:
                room = max(end + size, 2 * room, 1024)
                data = _longer(self._allocate, data, "B", room, end)
                self.data, self._room = data, room
            if _IS_COMPILED:
                _memcpy(data, end, payload, start, size)  # type: ignore[name-defined]  # noqa: F821
            else:
                data[end : end + size] = payload[start : start + size]
            end += size
            offsets[rows + number + 1] = end

    def number(
        self,
        rows: int,
        head: bytes,
        numbers: Sequence[int],
        first: int,
        last: int,
        tail: bytes,
    ) -> None:
        """Takes rows that are a head, a number as a varint, and a tail.

        Args:
            rows: How many are kept of those that are there.
            head: The same in each of the new ones.
            numbers: int32s from 0 on.
            first: The first of them that makes a row.
            last: The first one behind these.
            tail: The same in each of the new ones.
        """
        head_size, tail_size = len(head), len(tail)
        self._make_row_room(rows, last - first)
        data, offsets = self.data, self.offsets
        end = offsets[rows]
        most = (last - first) * (head_size + _MAX_VARINT_BYTES + tail_size)
        if most > self._room - end:
            self._room = max(end + most, 2 * self._room)
            data = _longer(self._allocate, data, "B", self._room, end)
            self.data = data
        for row in range(last - first):
            if _IS_COMPILED:
                _memcpy(data, end, head, 0, head_size)  # type: ignore[name-defined]  # noqa: F821
            else:
                data[end : end + head_size] = head
            end += head_size
            value = numbers[first + row]
            while value >= 0x80:
                data[end] = value & 0x7F | 0x80
                value >>= 7
                end += 1
            data[end] = value
            end += 1
            if _IS_COMPILED:
                _memcpy(data, end, tail, 0, tail_size)  # type: ignore[name-defined]  # noqa: F821
            else:
                data[end : end + tail_size] = tail
            end += tail_size
            offsets[rows + row + 1] = end

    def _make_row_room(self, rows: int, count: int) -> None:
        """For so many rows behind those that are kept."""
        if rows + count > self._rows_room:
            self._rows_room = max(rows + count, 2 * self._rows_room, 16)
            self.offsets = _longer(
                self._allocate, self.offsets, "i", self._rows_room + 1, rows + 1
            )


class MessageTable:
    """Messages of any number of entries, column by column.

    All columns are longer than there are messages; what is behind means nothing.

    Args:
        texts: Which of ``TEXTS`` are wanted.
        allocate: Gives room for so many bytes.

    Attributes:
        rows: How many messages there are.
        values, keys, ordering_keys: What each of them has of these, of no length for
            none; None where that is not wanted.
        event_times: ms since 1970, 0 for none: uint64.
        sequence_ids: uint64.
        batch_indexes: The place of each message in its batch as written: int32.
        flags: What is there, see ``HAS_KEY`` and the like: uint8.
        any_flags, all_flags: What some message has, and what every one has.
        ends: Where each message begins, were all of them laid back to back with their
            metadata, and at last where they end: int64.
        pair_ends: How many properties the messages before each one have, and at last
            how many all of them have: int32.
        pairs: How many that are.
        pair_keys, pair_values: Their texts; None where they are not wanted.
    """

    def __init__(
        self,
        texts: Collection[str] = TEXTS,
        allocate: Callable[[int], memoryview] = new_bytes,
    ) -> None:
        self._allocate = allocate
        self._make_columns(0)
        self.values = Texts(allocate) if "values" in texts else None
        self.keys = Texts(allocate) if "keys" in texts else None
        self.ordering_keys = Texts(allocate) if "ordering_keys" in texts else None
        self.pair_keys = Texts(allocate) if "properties" in texts else None
        self.pair_values = Texts(allocate) if "properties" in texts else None

    def another(self) -> MessageTable:
        """An empty one of the same kind, with room for as much as this one has."""
        table = MessageTable((), self._allocate)
        table._make_columns(_and_more(self.rows))
        table.values = _another(self.values, self.rows)
        table.keys = _another(self.keys, self.rows)
        table.ordering_keys = _another(self.ordering_keys, self.rows)
        table.pair_keys = _another(self.pair_keys, self.pairs)
        table.pair_values = _another(self.pair_values, self.pairs)
        return table

    def size_bytes(self, first_row: int, last_row: int) -> int:
        """Of these messages, the last one exclusive, with their metadata."""
        return self.ends[last_row] - self.ends[first_row]

    def _make_columns(self, rows: int) -> None:
        self.rows = self.pairs = 0
        self.any_flags = 0
        self.all_flags = 0xFF
        self._room = rows
        self.event_times = _column(self._allocate, "Q", rows)
        self.sequence_ids = _column(self._allocate, "Q", rows)
        self.batch_indexes = _column(self._allocate, "i", rows)
        self.flags = _column(self._allocate, "B", rows)
        self.ends = _column(self._allocate, "q", rows + 1)
        self.pair_ends = _column(self._allocate, "i", rows + 1)
        self.ends[0] = self.pair_ends[0] = 0
        # Where each message of the batch that is being taken has its bytes.
        self._batch_room = self._pair_room = 0
        nothing = _column(new_bytes, "i", 0)
        self._value_bounds = self._key_bounds = self._ordering_key_bounds = nothing
        self._pair_key_bounds = self._pair_value_bounds = nothing
        self._position = 0

    def append_batch(  # noqa: C901 - a call in here costs more than what it would do
        self,
        payload: memoryview | bytes,
        count: int,
        retained: Sequence[int] | None,
        event_time: int,
        sequence_id: int,
        sequence_step: int,
    ) -> None:
        """Takes the messages of a batch, those that compaction removed left out.

        Args:
            payload: The batch, uncompressed.
            count: Messages in it, at most one for each ``MIN_MESSAGE_BYTES``.
            retained: Their places in the batch as written, None where all are there.
            event_time: Of messages that have none of their own.
            sequence_id: Of the batch's first message.
            sequence_step: 1 where messages without an id of their own count on from it,
                0 where that one has to do for all of them.

        Raises:
            CorruptEntryError: It is not such a batch. The table is as it was.
        """
        size = len(payload)
        self._make_room(count)
        # Not attributes: their own loop would look these up for each message.
        value_bounds, flags_column = self._value_bounds, self.flags
        key_bounds, ordering_key_bounds = self._key_bounds, self._ordering_key_bounds
        event_times, sequence_ids = self.event_times, self.sequence_ids
        batch_indexes = self.batch_indexes
        ends, pair_ends = self.ends, self.pair_ends
        row, taken, end_before = self.rows, 0, self.ends[self.rows]
        pairs = pairs_before = 0  # of this batch
        any_flags, all_flags = self.any_flags, self.all_flags
        position = 0
        for number in range(count):
            if size - position < 4:
                raise CorruptEntryError(_past_the_end(number, count))
            head_bytes = payload[position]  # by itself: C would shift into the sign
            head_bytes = (
                head_bytes << 24
                | payload[position + 1] << 16
                | payload[position + 2] << 8
                | payload[position + 3]
            )
            position += 4
            if head_bytes > size - position:
                raise CorruptEntryError(_past_the_end(number, count))
            head_end = position + head_bytes
            key_start = key_end = ordering_key_start = ordering_key_end = position
            has_size = is_removed = is_base64 = is_null = False
            has_key = has_ordering_key = has_sequence_id = may_repeat = False
            own_time = own_sequence_id = payload_size = 0
            pairs = pairs_before
            while position < head_end:
                tag = payload[position]
                position += 1
                if tag >= 0x80:
                    self._position = position - 1
                    tag = self._varint(payload, head_end, number, count)
                    position = self._position
                kind = tag & 7
                if tag < 8 or tag > _MASK_32:  # of field 0, or of none there can be
                    raise CorruptEntryError(_damaged(number, count))
                if kind == 0 or kind == 2:
                    if position >= head_end:
                        raise CorruptEntryError(_damaged(number, count))
                    value = payload[position]
                    position += 1
                    if value >= 0x80:
                        self._position = position - 1
                        value = self._varint(payload, head_end, number, count)
                        position = self._position
                if kind == 0:
                    if tag == 0x18:  # payload_size, an int32
                        payload_size = value & _MASK_32
                        has_size = True
                    elif tag == 0x28:  # event_time
                        own_time = value
                    elif tag == 0x40:  # sequence_id
                        own_sequence_id = value
                        has_sequence_id = True
                    elif tag == 0x30:  # partition_key_b64_encoded
                        is_base64 = value != 0
                    elif tag == 0x48:  # null_value
                        is_null = value != 0
                    elif tag == 0x20:  # compacted_out
                        is_removed = value != 0
                elif kind == 2:
                    if value > head_end - position:
                        raise CorruptEntryError(_damaged(number, count))
                    end = position + value
                    if tag == 0x12:  # partition_key
                        key_start, key_end = position, end
                        has_key = True
                    elif tag == 0x0A:  # properties
                        self._read_pair(payload, position, end, pairs, number, count)
                        if pairs > pairs_before and not may_repeat:
                            may_repeat = (
                                pairs - pairs_before >= _MAX_COMPARED
                                or self._is_repeated(payload, pairs_before, pairs)
                            )
                        pairs += 1
                    elif tag == 0x3A:  # ordering_key
                        ordering_key_start, ordering_key_end = position, end
                        has_ordering_key = True
                    position = end
                elif kind == 1 or kind == 5:  # 64 and 32 bits, which no field has
                    step = 8 if kind == 1 else 4
                    if step > head_end - position:
                        raise CorruptEntryError(_damaged(number, count))
                    position += step
                else:  # groups, which nobody sends, or what there is not
                    raise CorruptEntryError(_damaged(number, count))
            if payload_size > size - head_end:  # an int32 below 0 is more, too
                raise CorruptEntryError(_past_the_end(number, count))
            if not has_size:
                raise CorruptEntryError(
                    f"message {number} in its batch does not say how large it is."
                )
            position = head_end + payload_size
            if is_removed and payload_size == 0:
                continue
            flags = 0
            if has_key:
                flags |= 1
                if is_base64:
                    flags |= 2
            if has_ordering_key:
                flags |= 4
            if own_time == 0:
                own_time = event_time
            if own_time != 0:
                flags |= 8
            index = number if retained is None else retained[number]
            if not has_sequence_id:
                own_sequence_id = sequence_id + sequence_step * index
            if is_null and payload_size == 0:
                flags |= 16
            if may_repeat:
                flags |= 32
            value_bounds[2 * taken] = head_end
            value_bounds[2 * taken + 1] = position
            key_bounds[2 * taken] = key_start
            key_bounds[2 * taken + 1] = key_end
            ordering_key_bounds[2 * taken] = ordering_key_start
            ordering_key_bounds[2 * taken + 1] = ordering_key_end
            event_times[row] = own_time
            sequence_ids[row] = own_sequence_id & _MASK_64
            batch_indexes[row] = index
            flags_column[row] = flags
            any_flags |= flags
            all_flags &= flags
            row += 1
            taken += 1
            pairs_before = pairs
            ends[row] = end_before + position
            pair_ends[row] = self.pairs + pairs
        if position != size:
            raise CorruptEntryError(
                f"{size - position} bytes follow the last of the {count} messages in "
                "its batch."
            )
        self._gather(payload, taken, pairs_before)
        self.rows, self.pairs = row, self.pairs + pairs_before
        self.any_flags, self.all_flags = any_flags, all_flags

    def _gather(self, payload: memoryview | bytes, count: int, pairs: int) -> None:
        """The bytes of so many messages with so many properties."""
        if self.values is not None:
            self.values.gather(self.rows, payload, self._value_bounds, count)
        if self.keys is not None:
            self.keys.gather(self.rows, payload, self._key_bounds, count)
        if self.ordering_keys is not None:
            bounds = self._ordering_key_bounds
            self.ordering_keys.gather(self.rows, payload, bounds, count)
        if self.pair_keys is not None and self.pair_values is not None:
            self.pair_keys.gather(self.pairs, payload, self._pair_key_bounds, pairs)
            self.pair_values.gather(self.pairs, payload, self._pair_value_bounds, pairs)

    def _read_pair(
        self,
        payload: memoryview | bytes,
        start: int,
        end: int,
        pair: int,
        number: int,
        count: int,
    ) -> None:
        """Reads a KeyValue: ``0A n key 12 n value``."""
        if pair >= self._pair_room:
            self._make_pair_room(pair + 1)
        position = start
        key_start = key_end = value_start = value_end = start
        while position < end:
            self._position = position
            tag = self._varint(payload, end, number, count)
            kind = tag & 7
            if tag < 8 or tag > _MASK_32:
                raise CorruptEntryError(_damaged(number, count))
            if kind == 0 or kind == 2:
                size = self._varint(payload, end, number, count)
                position = self._position
                if kind == 0:
                    continue
            elif kind == 1 or kind == 5:
                size = 8 if kind == 1 else 4
                position = self._position
            else:
                raise CorruptEntryError(_damaged(number, count))
            if size > end - position:
                raise CorruptEntryError(_damaged(number, count))
            if tag == 0x0A:
                key_start, key_end = position, position + size
            elif tag == 0x12:
                value_start, value_end = position, position + size
            position += size
        self._pair_key_bounds[2 * pair] = key_start
        self._pair_key_bounds[2 * pair + 1] = key_end
        self._pair_value_bounds[2 * pair] = value_start
        self._pair_value_bounds[2 * pair + 1] = value_end

    def _is_repeated(self, payload: memoryview | bytes, first: int, pair: int) -> bool:
        """Whether one of the pairs from ``first`` on has the name of this later one."""
        bounds = self._pair_key_bounds
        start = bounds[2 * pair]
        size = bounds[2 * pair + 1] - start
        for other in range(first, pair):
            begin = bounds[2 * other]
            if bounds[2 * other + 1] - begin == size:
                same = 0
                while same < size and payload[begin + same] == payload[start + same]:
                    same += 1
                if same == size:
                    return True
        return False

    def _varint(
        self, payload: memoryview | bytes, end: int, number: int, count: int
    ) -> int:
        """The number of 64 bits at ``_position``, which moves behind it."""
        position = self._position
        value = shift = 0
        while position < end and shift < 70:
            byte = payload[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = position
                return value & _MASK_64
            shift += 7
        raise CorruptEntryError(_damaged(number, count))

    def _make_room(self, count: int) -> None:
        """For a batch of so many messages."""
        if count > self._batch_room:
            self._batch_room = count
            self._value_bounds = _column(new_bytes, "i", 2 * count)
            self._key_bounds = _column(new_bytes, "i", 2 * count)
            self._ordering_key_bounds = _column(new_bytes, "i", 2 * count)
        used = self.rows
        if used + count > self._room:
            self._room = rows = max(used + count, 2 * self._room, 16)
            new = self._allocate
            self.event_times = _longer(new, self.event_times, "Q", rows, used)
            self.sequence_ids = _longer(new, self.sequence_ids, "Q", rows, used)
            self.batch_indexes = _longer(new, self.batch_indexes, "i", rows, used)
            self.flags = _longer(new, self.flags, "B", rows, used)
            self.ends = _longer(new, self.ends, "q", rows + 1, used + 1)
            self.pair_ends = _longer(new, self.pair_ends, "i", rows + 1, used + 1)

    def _make_pair_room(self, pairs: int) -> None:
        self._pair_room = room = max(pairs, 2 * self._pair_room, 16)
        used, new = pairs - 1, new_bytes
        self._pair_key_bounds = _longer(
            new, self._pair_key_bounds, "i", 2 * room, 2 * used
        )
        self._pair_value_bounds = _longer(
            new, self._pair_value_bounds, "i", 2 * room, 2 * used
        )


def _another(texts: Texts | None, rows: int) -> Texts | None:
    return None if texts is None else texts.another(rows)


def _and_more(size: int) -> int:
    """Room for as much again, and for the little by which that may be more."""
    return size + size // 8


def _column(
    allocate: Callable[[int], memoryview], type_: str, length: int
) -> memoryview:
    column: memoryview = allocate(_WIDTHS[type_] * length)
    return column.cast(type_)  # type: ignore[call-overload, no-any-return]


def _longer(
    allocate: Callable[[int], memoryview],
    column: memoryview,
    type_: str,
    length: int,
    used: int,
) -> memoryview:
    """A longer column that begins as this one does."""
    longer = _column(allocate, type_, length)
    longer[:used] = memoryview(column)[:used]
    return longer


def _past_the_end(number: int, count: int) -> str:
    return f"message {number} of {count} in its batch runs past the end of the entry."


def _damaged(number: int, count: int) -> str:
    return f"the metadata of message {number} of {count} in its batch is damaged."
