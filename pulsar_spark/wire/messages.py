"""The one loop that goes message by message: where everything in a batch lies.

A batch holds messages back to back, and each begins with its own metadata::

    size(4) SingleMessageMetadata payload  size(4) SingleMessageMetadata payload  ...
            |   [0A n pair]*  [12 n key]  18 n  [28 time]  ...    |

Nothing is copied here, and no object is made for a message: the loop fills columns of
numbers, from which Arrow then gathers the bytes of a column in one go.

This file runs as it is. Where a C compiler is at hand, Cython compiles it together with
``messages.pxd``, which gives the types, and the loop is a hundred times faster; see
``KERNEL``. So what is written here keeps to what C can do: every index is checked
against its end before it is used, and no number exceeds 64 bits.

Source: SingleMessageMetadata and KeyValue in PulsarApi.proto; "Protocol Buffers
encoding" for their bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

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

#: The least that a message takes: its size, and metadata with nothing but payload_size.
MIN_MESSAGE_BYTES = 6

#: So many properties of a message are compared with each other.
_MAX_COMPARED = 16

_MASK_32 = 0xFFFF_FFFF
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF


class MessageTable:
    """Messages of any number of entries, column by column.

    Places are offsets into the payloads of these entries laid back to back; those of a
    column ascend, so that each column's bounds are the offsets of an Arrow array in
    which every other element is a value. What a message does not have is of no length.

    Attributes:
        rows: How many messages there are. All columns are longer; what is behind means
            nothing.
        value_bounds, key_bounds, ordering_key_bounds: For each message, where that
            begins and ends: int32.
        event_times: ms since 1970, 0 for none: uint64.
        sequence_ids: uint64.
        batch_indexes: The place of each message in its batch as written: int32.
        flags: What is there, see ``HAS_KEY`` and the like: uint8.
        any_flags, all_flags: What some message has, and what every one has.
        pair_ends: How many properties the messages before each one have, so that the
            first is 0 and there is one more than there are messages: int32.
        pairs: How many properties there are.
        pair_key_bounds, pair_value_bounds: Where the texts of each begin and end:
            int32.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.any_flags = 0
        self.all_flags = 0xFF
        self.value_bounds = array("i")
        self.key_bounds = array("i")
        self.ordering_key_bounds = array("i")
        self.event_times = array("Q")
        self.sequence_ids = array("Q")
        self.batch_indexes = array("i")
        self.flags = array("B")
        self.pair_ends = array("i", [0])
        self.pairs = 0
        self.pair_key_bounds = array("i")
        self.pair_value_bounds = array("i")
        self._room = 0
        self._pair_room = 0
        self._position = 0

    def append_batch(  # noqa: C901 - a call in here costs more than what it would do
        self,
        payload: memoryview | bytes,
        base: int,
        count: int,
        retained: Sequence[int] | None,
        event_time: int,
        sequence_id: int,
        sequence_step: int,
    ) -> None:
        """Takes the messages of a batch, those that compaction removed left out.

        Args:
            payload: The batch, uncompressed.
            base: Bytes of the payloads before it.
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
        self._make_room(self.rows + count)
        # Not attributes: their own loop would look these up for each message.
        value_bounds, flags_column = self.value_bounds, self.flags
        key_bounds, ordering_key_bounds = self.key_bounds, self.ordering_key_bounds
        event_times, sequence_ids = self.event_times, self.sequence_ids
        batch_indexes, pair_ends = self.batch_indexes, self.pair_ends
        row, pairs = self.rows, self.pairs
        pairs_before = pairs
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
                        self._read_pair(
                            payload, base, position, end, pairs, number, count
                        )
                        if pairs > pairs_before and not may_repeat:
                            may_repeat = (
                                pairs - pairs_before >= _MAX_COMPARED
                                or self._is_repeated(payload, base, pairs_before, pairs)
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
            value_bounds[2 * row] = base + head_end
            value_bounds[2 * row + 1] = base + position
            key_bounds[2 * row] = base + key_start
            key_bounds[2 * row + 1] = base + key_end
            ordering_key_bounds[2 * row] = base + ordering_key_start
            ordering_key_bounds[2 * row + 1] = base + ordering_key_end
            event_times[row] = own_time
            sequence_ids[row] = own_sequence_id & _MASK_64
            batch_indexes[row] = index
            flags_column[row] = flags
            any_flags |= flags
            all_flags &= flags
            row += 1
            pairs_before = pairs
            pair_ends[row] = pairs
        if position != size:
            raise CorruptEntryError(
                f"{size - position} bytes follow the last of the {count} messages in "
                "its batch."
            )
        self.rows, self.pairs = row, pairs_before
        self.any_flags, self.all_flags = any_flags, all_flags

    def _read_pair(
        self,
        payload: memoryview | bytes,
        base: int,
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
        self.pair_key_bounds[2 * pair] = base + key_start
        self.pair_key_bounds[2 * pair + 1] = base + key_end
        self.pair_value_bounds[2 * pair] = base + value_start
        self.pair_value_bounds[2 * pair + 1] = base + value_end

    def _is_repeated(
        self, payload: memoryview | bytes, base: int, first: int, pair: int
    ) -> bool:
        """Whether one of the pairs from ``first`` on has the name of this later one."""
        bounds = self.pair_key_bounds
        start = bounds[2 * pair] - base
        size = bounds[2 * pair + 1] - base - start
        for other in range(first, pair):
            begin = bounds[2 * other] - base
            if bounds[2 * other + 1] - base - begin == size:
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

    def _make_room(self, rows: int) -> None:
        if rows <= self._room:
            return
        self._room = rows = max(rows, 2 * self._room, 16)
        self.value_bounds = _longer(self.value_bounds, "i", 2 * rows)
        self.key_bounds = _longer(self.key_bounds, "i", 2 * rows)
        self.ordering_key_bounds = _longer(self.ordering_key_bounds, "i", 2 * rows)
        self.event_times = _longer(self.event_times, "Q", rows)
        self.sequence_ids = _longer(self.sequence_ids, "Q", rows)
        self.batch_indexes = _longer(self.batch_indexes, "i", rows)
        self.flags = _longer(self.flags, "B", rows)
        self.pair_ends = _longer(self.pair_ends, "i", rows + 1)

    def _make_pair_room(self, pairs: int) -> None:
        self._pair_room = pairs = max(pairs, 2 * self._pair_room, 16)
        self.pair_key_bounds = _longer(self.pair_key_bounds, "i", 2 * pairs)
        self.pair_value_bounds = _longer(self.pair_value_bounds, "i", 2 * pairs)


def _longer(column: Sequence[int], type_: str, length: int) -> array[int]:
    """A copy with zeros behind."""
    longer = array(type_, memoryview(column).tobytes())  # type: ignore[arg-type]
    longer.frombytes(bytes((length - len(longer)) * longer.itemsize))
    return longer


def _past_the_end(number: int, count: int) -> str:
    return f"message {number} of {count} in its batch runs past the end of the entry."


def _damaged(number: int, count: int) -> str:
    return f"the metadata of message {number} of {count} in its batch is damaged."
