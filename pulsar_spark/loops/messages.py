# SPDX-License-Identifier: Apache-2.0
"""The loop over the messages of a batch: from a batch to columns of messages.

A batch holds messages back to back, and each begins with its own metadata::

    size(4) SingleMessageMetadata payload  size(4) SingleMessageMetadata payload  ...
            |   [0A n pair]*  [12 n key]  18 n  [28 time]  ...    |

No object is made for a message: its numbers and its bytes are written right where Arrow
expects them, in columns that grow by the batch. First a pass over the metadata finds
where everything lies, then each column that is wanted gathers its bytes.

This file runs as it is. Where a C compiler is available, Cython compiles it together
with ``messages.pxd``, which gives the types, and the loop is a hundred times faster;
see ``KERNEL``. So what is written here keeps to what C can do: every index is checked
against its end before it is used, and no number exceeds 64 bits.

Source: SingleMessageMetadata and KeyValue in PulsarApi.proto; "Protocol Buffers
encoding" for their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops import fact
from spark_topics.loops import memory
from spark_topics.loops.memory import new_bytes

#: Which form of this file runs: "compiled" or "python".
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

# What ``MessageTable.flags`` says of a message.
HAS_KEY = 1
KEY_IS_BASE64 = 2
HAS_ORDERING_KEY = 4
HAS_EVENT_TIME = 8
IS_NULL = 16  # its value is

# The same numbers, in C: messages.pxd hides these from Python.
_HAS_KEY = HAS_KEY
_KEY_IS_BASE64 = KEY_IS_BASE64
_HAS_ORDERING_KEY = HAS_ORDERING_KEY
_HAS_EVENT_TIME = HAS_EVENT_TIME
_IS_NULL = IS_NULL

#: The columns of bytes that a table can have.
BINARY_COLUMNS = ("values", "keys", "ordering_keys", "properties")

#: The least that a message takes: its size, and metadata with nothing but payload_size.
MIN_MESSAGE_BYTES = 6
_MIN_MESSAGE_BYTES = MIN_MESSAGE_BYTES

#: Keys of encryption of one entry that are looked at.
MOST_ENCRYPTION_KEYS = 100
_MOST_ENCRYPTION_KEYS = MOST_ENCRYPTION_KEYS

#: Up to this many properties of a message, names are compared one by one; the names of
#: more are looked up in a dict.
_MAX_COMPARED = 16

#: More than any batch has of messages, of bytes, and of properties.
NO_LIMIT = 2**31 - 1

#: The most bytes that a new column reserves because the one before it had as many.
_MAX_ADVANCE = 8 * 1024 * 1024

#: Bytes of a value of the types of columns, by their names in ``struct``.
_WIDTHS = {"B": 1, "i": 4, "q": 8, "Q": 8}

_MAX_VARINT_BYTES = 5  # of an int32 from 0 on
_MAX_ID_BYTES = 36  # of a message id, but for its partition
_MASK_32 = 0xFFFF_FFFF
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF


class BinaryColumn:
    """A column of bytes, in Arrow's layout.

    Row ``n`` is ``data[offsets[n]:offsets[n + 1]]``. Both buffers are longer than the
    rows need; the rest means nothing. Rows may be viewed for as long as anyone likes:
    what is added follows them in the same buffers, or goes into new, larger ones.

    Args:
        allocate: Returns a buffer of that many bytes.
        rows, size_bytes: Capacity to begin with.
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

    def empty_like(self, rows: int) -> BinaryColumn:
        """Return an empty column with capacity for ``rows`` rows of average size."""
        size_bytes = min(_with_headroom(self.offsets[rows]), _MAX_ADVANCE)
        return BinaryColumn(self._allocate, _with_headroom(rows), size_bytes)

    def append(
        self,
        rows: int,
        payload: memoryview | bytes,
        bounds: Sequence[int],
        count: int,
    ) -> None:
        """Append rows. The column may hold at most 2**31 - 1 bytes.

        Args:
            rows: Rows that the column has; any after them are overwritten.
            payload: Holds the bytes of the new rows.
            bounds: For each new row where its bytes begin and end in ``payload``.
            count: Number of new rows.
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
            memory.copy(data, end, payload, start, size)
            end += size
            offsets[rows + number + 1] = end

    def append_numbered(
        self,
        rows: int,
        head: bytes,
        numbers: Sequence[int],
        first: int,
        last: int,
        tail: bytes,
    ) -> None:
        """Append rows of a head, a number as a varint, and a tail.

        Args:
            rows: Rows that the column has; any after them are overwritten.
            head: Begins each new row.
            numbers: int32s from 0 on, of which each makes a row.
            first: The first of them to use.
            last: The first one not to use.
            tail: Ends each new row.
        """
        head_size, tail_size = len(head), len(tail)
        self._make_row_room(rows, last - first)
        data, offsets = self.data, self.offsets
        end = offsets[rows]
        most = (last - first) * (head_size + _MAX_VARINT_BYTES + tail_size)
        if most > self._room - end:
            room = max(end + most, 2 * self._room)
            data = _longer(self._allocate, data, "B", room, end)
            self.data, self._room = data, room
        for row in range(last - first):
            memory.copy(data, end, head, 0, head_size)
            end += head_size
            value = numbers[first + row]
            while value >= 0x80:
                data[end] = value & 0x7F | 0x80
                value >>= 7
                end += 1
            data[end] = value
            end += 1
            memory.copy(data, end, tail, 0, tail_size)
            end += tail_size
            offsets[rows + row + 1] = end

    def append_ids(
        self,
        rows: int,
        facts: Sequence[int],
        first: int,
        last: int,
        partition: bytes,
        numbers: Sequence[int],
        row: int,
    ) -> None:
        """Append the message ids of entries, as Java writes ids.

        ``08 ledger  10 entry [18 partition] [20 batch_index]  30 batch_size``

        Args:
            rows: Rows that the column has; any after them are overwritten.
            facts: ``Deliveries.facts``, whose entries are in a table.
            first: The first entry to append.
            last: The entry after the last one to append.
            partition: Field 18 of the ids, empty for none.
            numbers: The table's ``batch_indexes``.
            row: The table's first row of these entries.
        """
        if last == first:
            return
        count = facts[(last - 1) * fact.PER_ENTRY + fact.LAST_ROW] - row
        part_size = len(partition)
        self._make_row_room(rows, count)
        data, offsets = self.data, self.offsets
        end = offsets[rows]
        most = count * (_MAX_ID_BYTES + part_size)
        if most > self._room - end:
            room = max(end + most, 2 * self._room)
            data = _longer(self._allocate, data, "B", room, end)
            self.data, self._room = data, room
        for entry in range(first, last):
            offset = entry * fact.PER_ENTRY
            last_row = facts[offset + fact.LAST_ROW]
            batch_size = facts[offset + fact.COUNT]
            head = end
            head_size = 0
            while row < last_row:
                if head_size == 0:
                    data[end] = 0x08
                    end = _put_varint(data, end + 1, facts[offset + fact.LEDGER_ID])
                    data[end] = 0x10
                    end = _put_varint(data, end + 1, facts[offset + fact.ENTRY_ID])
                    memory.copy(data, end, partition, 0, part_size)
                    end += part_size
                    head_size = end - head
                else:
                    memory.copy(data, end, data, head, head_size)
                    end += head_size
                if batch_size > 0:
                    data[end] = 0x20
                    end = _put_varint(data, end + 1, numbers[row])
                data[end] = 0x30
                end = _put_varint(data, end + 1, batch_size)
                row += 1
                rows += 1
                offsets[rows] = end

    def _make_row_room(self, rows: int, count: int) -> None:
        """Make room for ``count`` more rows."""
        if rows + count > self._rows_room:
            room = max(rows + count, 2 * self._rows_room, 16)
            self.offsets = _longer(
                self._allocate, self.offsets, "i", room + 1, rows + 1
            )
            self._rows_room = room  # last: there may be no memory for it


class MessageTable:
    """Messages of any number of entries, column by column.

    All columns are longer than there are messages; the rest of them means nothing.

    Args:
        binary_columns: Which of ``BINARY_COLUMNS`` are wanted.
        allocate: Returns a buffer of that many bytes.

    Attributes:
        rows: How many messages there are.
        values, keys, ordering_keys: These bytes of each message, empty if it has
            none; None if the column is not wanted.
        event_times: ms since 1970, 0 for none: uint64.
        sequence_ids: uint64.
        batch_indexes: The place of each message in its batch as written: int32.
        flags: What each message has, see ``HAS_KEY`` and the like: uint8.
        any_flags, all_flags: What some message has, and what every one has.
        ends: Where each message would begin if all of them lay back to back with their
            metadata, and where the last one would end: int64.
        pair_ends: For each message the number of properties of all messages before it,
            and after the last one the number of all: int32.
        pairs: The number of all.
        pair_keys, pair_values: The texts of the properties; None if they are not
            wanted. A name that a message repeats comes once: in its first place, with
            its last value.
        max_head_bytes: The most bytes of metadata that a message may have.
        max_pairs: The most properties that a message may have.
        next_position: Where the first message that was not taken begins in its batch.
        is_full: Whether entries were left because the table had no room for them.
    """

    def __init__(
        self,
        binary_columns: Collection[str] = BINARY_COLUMNS,
        allocate: Callable[[int], memoryview] = new_bytes,
    ) -> None:
        self._allocate = allocate
        self.max_head_bytes = self.max_pairs = NO_LIMIT
        self._make_columns(0)
        self.values = BinaryColumn(allocate) if "values" in binary_columns else None
        self.keys = BinaryColumn(allocate) if "keys" in binary_columns else None
        self.ordering_keys = (
            BinaryColumn(allocate) if "ordering_keys" in binary_columns else None
        )
        self.pair_keys = (
            BinaryColumn(allocate) if "properties" in binary_columns else None
        )
        self.pair_values = (
            BinaryColumn(allocate) if "properties" in binary_columns else None
        )

    def empty_like(self) -> MessageTable:
        """Return an empty table with equal columns and similar capacity."""
        table = MessageTable((), self._allocate)
        table.max_head_bytes, table.max_pairs = self.max_head_bytes, self.max_pairs
        table._make_columns(_with_headroom(self.rows))
        table.values = _empty_like(self.values, self.rows)
        table.keys = _empty_like(self.keys, self.rows)
        table.ordering_keys = _empty_like(self.ordering_keys, self.rows)
        table.pair_keys = _empty_like(self.pair_keys, self.pairs)
        table.pair_values = _empty_like(self.pair_values, self.pairs)
        return table

    def size_bytes(self, first_row: int, last_row: int) -> int:
        """Return the size of messages with metadata; ``last_row`` is exclusive."""
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
        self._position = self.next_position = 0
        self.is_full = False
        self._names: dict[bytes, int] = {}
        self._names_from = -1

    def append_batch(  # noqa: C901 - a call in here costs more than what it would do
        self,
        payload: memoryview | bytes,
        count: int,
        retained: Sequence[int] | None,
        event_time: int,
        sequence_id: int,
        sequence_step: int,
        number: int = 0,
        position: int = 0,
        most_rows: int = NO_LIMIT,
        most_bytes: int = NO_LIMIT,
    ) -> int:
        """Append messages of a batch, without messages that compaction removed.

        All of them, or as many as the table may take: another call then goes on where
        this one ended. An empty table always takes the first message.

        Args:
            payload: The batch, uncompressed.
            count: Messages in it, at most one for each ``MIN_MESSAGE_BYTES``.
            retained: Their places in the batch as written, None where all are there.
            event_time: The event time of messages without one of their own.
            sequence_id: The sequence id of the batch's first message.
            sequence_step: 1 if messages without a sequence id of their own count up
                from that one, 0 if they all have that one.
            number: The first message to take.
            position: The beginning.
            most_rows: Messages that may be taken, at least 1.
            most_bytes: Bytes of messages that may be taken.

        Returns:
            The first message that was not taken, which begins at ``next_position``;
            ``count`` where there is none.

        Raises:
            CorruptEntryError: It is not such a batch, or a message has more metadata
                than it may have. The table is as it was.
        """
        size = len(payload)
        self._make_room(min(count - number, most_rows))
        self._names_from = -1
        # Not attributes: their own loop would look these up for each message.
        value_bounds, flags_column = self._value_bounds, self.flags
        key_bounds, ordering_key_bounds = self._key_bounds, self._ordering_key_bounds
        event_times, sequence_ids = self.event_times, self.sequence_ids
        batch_indexes = self.batch_indexes
        ends, pair_ends = self.ends, self.pair_ends
        row, taken, end_before = self.rows, 0, self.ends[self.rows]
        pairs = pairs_before = 0  # of this batch
        any_flags, all_flags = self.any_flags, self.all_flags
        max_pairs = self.max_pairs
        begin = start = position
        while number < count and taken < most_rows:
            # -- head: the size of the metadata
            start = position
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
            if head_bytes > self.max_head_bytes:
                raise CorruptEntryError(
                    _too_much(number, count, head_bytes, self.max_head_bytes)
                )
            head_end = position + head_bytes
            key_start = key_end = ordering_key_start = ordering_key_end = position
            has_size = is_removed = is_base64 = is_null = False
            has_key = has_ordering_key = has_sequence_id = False
            own_time = own_sequence_id = payload_size = 0
            pairs = pairs_before
            # -- fields of the metadata: tag, then a number or bytes
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
                        if pairs == pairs_before or self._is_new_name(
                            payload, pairs_before, pairs
                        ):
                            pairs += 1
                            if pairs - pairs_before > max_pairs:
                                raise CorruptEntryError(
                                    _too_many_pairs(number, count, max_pairs)
                                )
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
            # -- bounds: the value after the metadata, and the next message after that
            if payload_size > size - head_end:  # an int32 below 0 is more, too
                raise CorruptEntryError(_past_the_end(number, count))
            if not has_size:
                raise CorruptEntryError(
                    f"message {number} in its batch does not say how large it is."
                )
            position = head_end + payload_size
            if is_removed and payload_size == 0:
                number += 1
                continue
            if row > 0 and (position - begin > most_bytes or pairs > max_pairs):
                position = start  # for another table
                break
            # -- flags, and what the entry says for messages that do not
            flags = 0
            if has_key:
                flags |= _HAS_KEY
                if is_base64:
                    flags |= _KEY_IS_BASE64
            if has_ordering_key:
                flags |= _HAS_ORDERING_KEY
            if own_time == 0:
                own_time = event_time
            if own_time != 0:
                flags |= _HAS_EVENT_TIME
            index = number if retained is None else retained[number]
            if not has_sequence_id:
                own_sequence_id = sequence_id + sequence_step * index
            if is_null and payload_size == 0:
                flags |= _IS_NULL
            # -- the row: where its bytes lie, and its numbers
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
            number += 1
            pairs_before = pairs
            ends[row] = end_before + position - begin
            pair_ends[row] = self.pairs + pairs
        if number == count and position != size:
            raise CorruptEntryError(
                f"{size - position} bytes follow the last of the {count} messages in "
                "its batch."
            )
        self._append_bytes(payload, payload, taken, pairs_before)
        self.rows, self.pairs = row, self.pairs + pairs_before
        self.any_flags, self.all_flags = any_flags, all_flags
        self.next_position = position
        return number

    def append_entries(  # noqa: C901 - as above
        self,
        data: memoryview | bytes,
        facts: Sequence[int],
        first: int,
        last: int,
        most_rows: int,
        most_bytes: int,
        checksum: Callable[[memoryview], int],
        unpack: Callable[[int, memoryview, int], bytes | memoryview | None],
    ) -> int:
        """Append the messages of entries, up to the first that cannot be taken here.

        Because it is damaged, or larger than a table, or because the table is full.

        Args:
            data: ``Deliveries.data``.
            facts: ``Deliveries.facts``. Where an entry's rows end is written there.
            first: The first entry.
            last: The first one not to take.
            most_rows: Messages that the table may have in all.
            most_bytes: Bytes of messages that it may have.
            checksum: Returns the CRC-32C of bytes.
            unpack: Returns a payload, by its codec, its bytes and its size, as it was
                before compression; None if it is damaged.

        Returns:
            The first entry that was not taken; ``is_full`` says whether that is
            because the table has no room for it.
        """
        self.is_full = False
        view = memoryview(data)
        for entry in range(first, last):
            offset = entry * fact.PER_ENTRY
            count = facts[offset + fact.COUNT]
            start, end = facts[offset + fact.PAYLOAD], facts[offset + fact.END]
            codec, size = facts[offset + fact.CODEC], end - start
            if codec != 0:
                size = facts[offset + fact.UNPACKED_BYTES]
            if count > size // _MIN_MESSAGE_BYTES:
                return entry
            row = self.rows
            rows = max(1, count)
            if count == 0:
                size += 4 + facts[offset + fact.HEAD_BYTES]
            if rows > most_rows or size > most_bytes:
                return entry
            if row > 0 and (
                row + rows > most_rows or self.ends[row] + size > most_bytes
            ):
                self.is_full = True
                return entry
            checked = view[facts[offset + fact.CHECKED] : end]
            if checksum(checked) != facts[offset + fact.CHECKSUM]:
                return entry
            if codec == 0 and count > 0:
                if not self._append_all(data[start:end], facts, offset):
                    return entry
            elif codec == 0:
                if not self._append_single(data, data, start, end, facts, offset):
                    return entry
            else:
                unpacked_bytes = facts[offset + fact.UNPACKED_BYTES]
                unpacked = unpack(codec, view[start:end], unpacked_bytes)
                if unpacked is None:
                    return entry
                if count > 0:
                    if not self._append_all(unpacked, facts, offset):
                        return entry
                elif not self._append_single(
                    data, unpacked, 0, len(unpacked), facts, offset
                ):
                    return entry
            facts[offset + fact.LAST_ROW] = self.rows  # type: ignore[index]
        return last

    def _append_all(
        self, payload: memoryview | bytes, facts: Sequence[int], offset: int
    ) -> bool:
        """Append a whole batch; return whether the payload is a batch that fits."""
        count, rows, pairs = facts[offset + fact.COUNT], self.rows, self.pairs
        any_flags, all_flags = self.any_flags, self.all_flags
        try:
            taken = self.append_batch(
                payload,
                count,
                None,
                facts[offset + fact.EVENT_TIME],
                facts[offset + fact.SEQUENCE_ID],
                facts[offset + fact.SEQUENCE_STEP],
            )
        except CorruptEntryError:
            return False
        if taken < count:  # it has too many properties for that
            self.rows, self.pairs = rows, pairs
            self.any_flags, self.all_flags = any_flags, all_flags
        return taken == count

    def _append_single(
        self,
        data: memoryview | bytes,
        payload: memoryview | bytes,
        start: int,
        end: int,
        facts: Sequence[int],
        offset: int,
    ) -> bool:
        """Append a message outside a batch; return whether the message is small enough.

        Args:
            data: Holds its metadata.
            payload: Holds its value.
            start: Where that begins.
            end: The end.
            facts: What is known of entries.
            offset: Where that of this entry begins.
        """
        if facts[offset + fact.HEAD_BYTES] > self.max_head_bytes:
            return False
        metadata, metadata_end = (
            facts[offset + fact.METADATA],
            facts[offset + fact.PAYLOAD],
        )
        pairs = self._read_pairs(data, metadata, metadata_end)
        if pairs > self.max_pairs:
            return False
        self._make_room(1)
        flags, marks = 0, facts[offset + fact.MARKS]
        self._value_bounds[0], self._value_bounds[1] = start, end
        self._key_bounds[0] = self._key_bounds[1] = 0
        self._ordering_key_bounds[0] = self._ordering_key_bounds[1] = 0
        if facts[offset + fact.KEY] >= 0:
            flags |= _HAS_KEY
            if marks & fact.KEY_IS_ENCODED:
                flags |= _KEY_IS_BASE64
            self._key_bounds[0] = facts[offset + fact.KEY]
            self._key_bounds[1] = facts[offset + fact.KEY_END]
        if facts[offset + fact.ORDERING_KEY] >= 0:
            flags |= _HAS_ORDERING_KEY
            self._ordering_key_bounds[0] = facts[offset + fact.ORDERING_KEY]
            self._ordering_key_bounds[1] = facts[offset + fact.ORDERING_KEY_END]
        if facts[offset + fact.EVENT_TIME] != 0:
            flags |= _HAS_EVENT_TIME
        if marks & fact.VALUE_IS_NULL and start == end:
            flags |= _IS_NULL
        row = self.rows
        self.event_times[row] = facts[offset + fact.EVENT_TIME]
        self.sequence_ids[row] = facts[offset + fact.SEQUENCE_ID]
        self.batch_indexes[row] = 0
        self.flags[row] = flags
        size = 4 + facts[offset + fact.HEAD_BYTES] + end - start
        self.ends[row + 1] = self.ends[row] + size
        self.pair_ends[row + 1] = self.pairs + pairs
        self._append_bytes(payload, data, 1, pairs)
        self.rows, self.pairs = row + 1, self.pairs + pairs
        self.any_flags |= flags
        self.all_flags &= flags
        return True

    def _read_pairs(self, data: memoryview | bytes, start: int, end: int) -> int:
        """Read the properties of a MessageMetadata; return how many there are.

        It is well-formed: a `Scanner` has read it.
        """
        self._names_from = -1
        pairs = 0
        position = start
        while position < end:
            self._position = position
            tag = self._varint(data, end, 0, 1)
            size = self._varint(data, end, 0, 1)
            position = self._position
            if tag & 7 != 2:
                continue
            if tag == 0x22:
                self._read_pair(data, position, position + size, pairs, 0, 1)
                if pairs == 0 or self._is_new_name(data, 0, pairs):
                    pairs += 1
            position += size
        return pairs

    def _append_bytes(
        self,
        payload: memoryview | bytes,
        heads: memoryview | bytes,
        count: int,
        pairs: int,
    ) -> None:
        """Append the bytes of ``count`` messages, which have ``pairs`` properties.

        Args:
            payload: Holds their values.
            heads: Holds their keys and properties.
            count: How many messages.
            pairs: How many properties.
        """
        if self.values is not None:
            self.values.append(self.rows, payload, self._value_bounds, count)
        if self.keys is not None:
            self.keys.append(self.rows, heads, self._key_bounds, count)
        if self.ordering_keys is not None:
            bounds = self._ordering_key_bounds
            self.ordering_keys.append(self.rows, heads, bounds, count)
        if self.pair_keys is not None and self.pair_values is not None:
            self.pair_keys.append(self.pairs, heads, self._pair_key_bounds, pairs)
            self.pair_values.append(self.pairs, heads, self._pair_value_bounds, pairs)

    def _read_pair(
        self,
        payload: memoryview | bytes,
        start: int,
        end: int,
        pair: int,
        number: int,
        count: int,
    ) -> None:
        """Read a KeyValue: ``0A n key 12 n value``."""
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

    def _is_new_name(self, payload: memoryview | bytes, first: int, pair: int) -> bool:
        """Return whether no earlier pair, from ``first`` on, has the name of ``pair``.

        Otherwise that pair gets the value of this one.
        """
        bounds = self._pair_key_bounds
        start, end = bounds[2 * pair], bounds[2 * pair + 1]
        pair_of_name = pair
        if pair - first < _MAX_COMPARED:
            for other in range(first, pair):
                begin = bounds[2 * other]
                if bounds[2 * other + 1] - begin == end - start:
                    same = 0
                    while (
                        same < end - start
                        and payload[begin + same] == payload[start + same]
                    ):
                        same += 1
                    if same == end - start:
                        pair_of_name = other
                        break
        else:
            if self._names_from != first:
                self._names = {}
                for other in range(first, pair):
                    name = memory.part(
                        payload, bounds[2 * other], bounds[2 * other + 1]
                    )
                    self._names[name] = other
                self._names_from = first
            pair_of_name = self._names.setdefault(
                memory.part(payload, start, end), pair
            )
        if pair_of_name == pair:
            return True
        values = self._pair_value_bounds
        values[2 * pair_of_name] = values[2 * pair]
        values[2 * pair_of_name + 1] = values[2 * pair + 1]
        return False

    def _varint(
        self, payload: memoryview | bytes, end: int, number: int, count: int
    ) -> int:
        """Read the 64-bit number at ``_position``, and advance ``_position``."""
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
        """Make room for a batch of ``count`` messages."""
        # Room is noted last: there may be no memory for it.
        if count > self._batch_room:
            values = _column(new_bytes, "i", 2 * count)
            keys = _column(new_bytes, "i", 2 * count)
            ordering_keys = _column(new_bytes, "i", 2 * count)
            self._value_bounds, self._key_bounds = values, keys
            self._ordering_key_bounds, self._batch_room = ordering_keys, count
        used = self.rows
        if used + count > self._room:
            rows = max(used + count, 2 * self._room, 16)
            new = self._allocate
            self.event_times = _longer(new, self.event_times, "Q", rows, used)
            self.sequence_ids = _longer(new, self.sequence_ids, "Q", rows, used)
            self.batch_indexes = _longer(new, self.batch_indexes, "i", rows, used)
            self.flags = _longer(new, self.flags, "B", rows, used)
            self.ends = _longer(new, self.ends, "q", rows + 1, used + 1)
            self.pair_ends = _longer(new, self.pair_ends, "i", rows + 1, used + 1)
            self._room = rows

    def _make_pair_room(self, pairs: int) -> None:
        room = max(pairs, 2 * self._pair_room, 16)
        used, new = pairs - 1, new_bytes
        keys = _longer(new, self._pair_key_bounds, "i", 2 * room, 2 * used)
        values = _longer(new, self._pair_value_bounds, "i", 2 * room, 2 * used)
        self._pair_key_bounds, self._pair_value_bounds = keys, values
        self._pair_room = room


def split_metadata(  # noqa: C901 - as above
    data: memoryview | bytes,
) -> tuple[bytes, bytes]:
    """Read the fields of MessageMetadata, without a Python object for each field.

    Returns:
        All of it but the properties, the clusters to replicate to, and keys of
        encryption after as many as are looked at; and the properties, as
        SingleMessageMetadata has them.

    Raises:
        CorruptEntryError: It is not metadata.
    """
    size = len(data)
    fields, properties = new_bytes(size), new_bytes(size)
    others_end = properties_end = position = keys = 0
    while position < size:
        start = position
        tag = length = shift = 0
        byte = 0x80
        while byte >= 0x80:
            if position == size or shift > 63:
                raise CorruptEntryError(_DAMAGED)
            byte = data[position]
            position += 1
            tag |= (byte & 0x7F) << shift
            shift += 7
        kind = tag & 7
        content = position
        if kind == 0 or kind == 2:
            byte = 0x80
            shift = 0
            while byte >= 0x80:
                if position == size or shift > 63:
                    raise CorruptEntryError(_DAMAGED)
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            if kind == 0:
                length = 0
        elif kind == 1 or kind == 5:
            length = 8 if kind == 1 else 4
        else:  # groups
            raise CorruptEntryError(_DAMAGED)
        if length > size - position:
            raise CorruptEntryError(_DAMAGED)
        position += length
        if tag == 0x22:  # properties
            properties[properties_end] = 0x0A
            properties_end += 1
            length = position - content
            memory.copy(properties, properties_end, data, content, length)
            properties_end += length
        elif tag == 0x3A or (tag == 0x6A and keys == _MOST_ENCRYPTION_KEYS):
            continue  # replicate_to, encryption_keys
        else:
            keys += tag == 0x6A
            length = position - start
            memory.copy(fields, others_end, data, start, length)
            others_end += length
    return (
        bytes(memoryview(fields)[:others_end]),
        bytes(memoryview(properties)[:properties_end]),
    )


def lz4_size(data: memoryview | bytes) -> int:
    """Return the decompressed size of an LZ4 block; -1 where the block ends too early.

    A block is sequences of ``token [more literals] literals offset(2) [more match]``,
    the last one of which ends with its literals.
    """
    size = len(data)
    position = total = 0
    while position < size:
        token = data[position]
        position += 1
        length = token >> 4
        if length == 15:
            byte = 255
            while byte == 255:
                if position == size:
                    return -1
                byte = data[position]
                position += 1
                length += byte
        if length > size - position:
            return -1
        position += length
        total += length
        if position == size:
            return total
        position += 2
        length = token & 15
        if length == 15:
            byte = 255
            while byte == 255:
                if position >= size:
                    return -1
                byte = data[position]
                position += 1
                length += byte
        total += length + 4
    return -1


def _put_varint(data: memoryview, position: int, value: int) -> int:
    """Write a number; return the end of the number."""
    while value >= 0x80:
        data[position] = value & 0x7F | 0x80
        value >>= 7
        position += 1
    data[position] = value
    return position + 1


def _empty_like(column: BinaryColumn | None, rows: int) -> BinaryColumn | None:
    return None if column is None else column.empty_like(rows)


def _with_headroom(size: int) -> int:
    """Return ``size`` plus one eighth, as capacity for a similar table."""
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
    """Return a longer column that begins with ``column``'s first ``used`` items."""
    longer = _column(allocate, type_, length)
    longer[:used] = memoryview(column)[:used]
    return longer


def _past_the_end(number: int, count: int) -> str:
    return f"message {number} of {count} in its batch runs past the end of the entry."


def _damaged(number: int, count: int) -> str:
    return f"the metadata of message {number} of {count} in its batch is damaged."


def _too_much(number: int, count: int, size: int, most: int) -> str:
    return (
        f"the metadata of message {number} of {count} in its batch, its keys and "
        f"properties, has {size} bytes, more than the {most} allowed. Raise "
        "`pulsar.client.memoryLimitBytes`."
    )


def _too_many_pairs(number: int, count: int, most: int) -> str:
    return (
        f"message {number} of {count} in its batch has more than the {most} properties "
        "allowed. Raise `pulsar.client.memoryLimitBytes`."
    )


_DAMAGED = "its metadata is damaged."
