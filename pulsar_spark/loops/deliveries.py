# SPDX-License-Identifier: Apache-2.0
"""The loop over frames: read the ordinary frames of a received buffer in a single pass.

An entry of a live topic often has one message. Then a read costs what an entry costs,
and in Python that is some ninety calls. So a scanner walks over the frames of a buffer
and writes what it reads into one table of numbers, a row for each entry::

    | frame | frame | frame | frame | fra      data: the ordinary ones, back to back
    '------ ordinary ------'| PING  |          facts: some numbers for each of them

A frame is ordinary if it is a MESSAGE for a consumer that wants entries this way, has a
checksum, and has metadata with no other fields than most entries have: no chunk, no
marker, nothing encrypted, nothing that two parsers could read differently. Any other
frame ends the walk and takes the path of a `Frame`, which also says what is wrong with
it. So nothing in here raises an error about what a broker sent; and nothing in here may
accept what that path would refuse, or read it differently.

Checksums are compared later, by anyone who unpacks the entries.

Like ``messages.py``, whose module docstring has the rules, this file runs as it is, and
is compiled with the types of ``deliveries.pxd`` where a C compiler is available. Only
then is it used: as Python it is slower than the path of a `Frame`.

Source: see ``wire/frames.py`` and, for the fields, proto/pulsar_api.proto.
"""

from __future__ import annotations

from collections.abc import Collection

from pulsar_spark.loops import fact

#: Which form of this file runs: "compiled" or "python".
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: Limits of one walk: as much as a reader takes from its queue at a time.
_MOST_BYTES = 256 * 1024
_MOST_ENTRIES = 1024

#: A MESSAGE without acknowledged messages is far smaller.
_MOST_COMMAND_BYTES = 128

#: Larger metadata, and larger unpacked payloads, have rules of their own, see
#: ``wire/entries.py`` and ``source/range_reader.py``.
_MOST_METADATA_BYTES = 16 * 1024
_MOST_UNPACKED_BYTES = 5 * 1024 * 1024

#: The most bytes of an entry's texts that each row may repeat without being counted.
_MOST_TEXT_BYTES = 256

_MAX_INT32 = 2**31 - 1


class Deliveries:
    """Ordinary entries for a consumer that arrived together, in order.

    Args:
        consumer_id: Whose.
        data: Their frames, one after the other.
        facts: ``fact.PER_ENTRY`` numbers for each entry: int64.
        count: How many entries.

    Attributes:
        consumer_id, data, facts: The same.
    """

    def __init__(
        self, consumer_id: int, data: bytes, facts: memoryview, count: int
    ) -> None:
        self.consumer_id = consumer_id
        self.data = data
        self.facts = facts
        self._count = count

    def __len__(self) -> int:
        return self._count

    def fact(self, number: int, which: int) -> int:
        """Return a fact of an entry."""
        return self.facts[number * fact.PER_ENTRY + which]

    def position(self, number: int) -> tuple[int, int]:
        """Return ``(ledger_id, entry_id)`` of an entry."""
        offset = number * fact.PER_ENTRY
        return self.facts[offset + fact.LEDGER_ID], self.facts[offset + fact.ENTRY_ID]

    def following(
        self, first: int, after: tuple[int, int], end: tuple[int, int]
    ) -> int:
        """Return the first entry that does not follow its predecessor, or the end.

        Args:
            first: The first entry to look at.
            after: The position that it must be behind.
            end: The position that all of them must be before.
        """
        facts = self.facts
        ledger_before, entry_before = after
        end_ledger, end_entry = end
        for number in range(first, self._count):
            offset = number * fact.PER_ENTRY
            ledger_id, entry_id = (
                facts[offset + fact.LEDGER_ID],
                facts[offset + fact.ENTRY_ID],
            )
            if ledger_id < ledger_before or ledger_id > end_ledger:
                return number
            if ledger_id == ledger_before and entry_id <= entry_before:
                return number
            if ledger_id == end_ledger and entry_id >= end_entry:
                return number
            ledger_before, entry_before = ledger_id, entry_id
        return self._count

    def charged_messages(self, first: int, last: int) -> int:
        """Return the Flow permits that the broker takes for entries."""
        charged = 0
        for number in range(first, last):
            charged += max(1, self.facts[number * fact.PER_ENTRY + fact.COUNT])
        return charged

    def charged_bytes(self, first: int, last: int) -> int:
        """Return the bytes of entries, without the commands in front."""
        charged = 0
        for number in range(first, last):
            offset = number * fact.PER_ENTRY
            charged += self.facts[offset + fact.END] - self.facts[offset + fact.START]
        return charged

    def column(self, which: int, first: int, last: int, plus: int = 0) -> memoryview:
        """Return a fact of several entries, ``plus`` added to each: bytes of int64."""
        column = _numbers(last - first)
        for number in range(last - first):
            offset = (first + number) * fact.PER_ENTRY
            column[number] = self.facts[offset + which] + plus
        return memoryview(column).cast("B")

    def repeated(self, which: int, first: int, last: int, first_row: int) -> memoryview:
        """Return a fact of several entries, repeated for each row: bytes of int64.

        Args:
            which: Which fact.
            first: The first entry.
            last: The first entry not to look at.
            first_row: The row of the table that is the first one's.
        """
        facts = self.facts
        rows = 0
        if last > first:
            rows = facts[(last - 1) * fact.PER_ENTRY + fact.LAST_ROW] - first_row
        column = _numbers(rows)
        row = 0
        for number in range(first, last):
            offset = number * fact.PER_ENTRY
            value = facts[offset + which]
            last_row = facts[offset + fact.LAST_ROW] - first_row
            while row < last_row:
                column[row] = value
                row += 1
        return memoryview(column).cast("B")


class Scanner:
    """Walks over frames.

    Attributes:
        consumer_id: Whose the entries of the last walk are.
        stop: The end.
    """

    def __init__(self) -> None:
        self.consumer_id = self.stop = 0
        self._room = self._position = 0
        self._facts = _numbers(0)

    def scan(
        self,
        data: memoryview | bytes,
        start: int,
        end: int,
        most_frame_bytes: int,
        wanted: Collection[int],
    ) -> int:
        """Walk over frames while the frames are ordinary, and for a single consumer.

        Args:
            data: A buffer.
            start: Where a frame begins.
            end: Where the buffer ends.
            most_frame_bytes: The largest frame to take, its totalSize field included.
            wanted: The consumers whose entries to take.

        Returns:
            The number of ordinary entries; `facts` has what they say.
        """
        position = start
        count = 0
        while count < _MOST_ENTRIES and end - position >= 8:
            frame_bytes = self._size(data, position) + 4
            if (
                frame_bytes < 8
                or frame_bytes > end - position
                or frame_bytes > most_frame_bytes
                or (count > 0 and position + frame_bytes - start > _MOST_BYTES)
            ):
                break
            frame_end = position + frame_bytes
            command_bytes = self._size(data, position + 4)
            if command_bytes > min(frame_bytes - 8, _MOST_COMMAND_BYTES):
                break
            offset = count * fact.PER_ENTRY
            if count == self._room:
                self._make_room()
            command_end = position + 8 + command_bytes
            consumer_id = self._read_command(data, position + 8, command_end, offset)
            if consumer_id < 0:
                break
            if count == 0:
                if consumer_id not in wanted:
                    break
                self.consumer_id = consumer_id
            elif consumer_id != self.consumer_id:
                break
            if not self._read_entry(data, command_end, frame_end, start, offset):
                break
            position = frame_end
            count += 1
        self.stop = position
        return count

    def facts(self, count: int) -> memoryview:
        """Return a copy of the facts of the last walk's first ``count`` entries."""
        copy = _numbers(count * fact.PER_ENTRY)
        copy[:] = self._facts[: count * fact.PER_ENTRY]
        return memoryview(copy)

    def _make_room(self) -> None:
        room = min(max(16, 4 * self._room), _MOST_ENTRIES)
        longer = _numbers(room * fact.PER_ENTRY)
        longer[: self._room * fact.PER_ENTRY] = self._facts
        self._facts, self._room = longer, room

    def _read_command(  # noqa: C901 - a call in here costs more than what it would do
        self, data: memoryview | bytes, start: int, end: int, offset: int
    ) -> int:
        """Read BaseCommand; return the consumer's id, -1 for an unusual command.

        ``08 09 4A n | 08 consumer  12 n | 08 ledger  10 entry  18 partition |  18 n |``
        """
        if end - start < 4 or data[start] != 0x08 or data[start + 1] != 0x09:
            return -1
        # A command of up to 128 bytes: its size is one byte.
        if data[start + 2] != 0x4A or data[start + 3] != end - start - 4:
            return -1
        facts = self._facts
        consumer_id = ledger_id = entry_id = -1
        redelivery_count = 0
        position = start + 4
        id_end = position  # of the message id, where this is inside of it
        while position < end:
            tag = data[position]
            self._position = position + 1
            if position < id_end:
                if tag == 0x18:  # partition, ten bytes where it is -1
                    value = 0
                    if not self._skip_varint(data, id_end):
                        return -1
                else:
                    value = self._varint(data, id_end)
                if tag == 0x08:
                    ledger_id = value
                elif tag == 0x10:
                    entry_id = value
                elif tag != 0x18:
                    return -1
            else:
                value = self._varint(data, end)
                if tag == 0x08:
                    consumer_id = value
                elif tag == 0x18 and value <= _MAX_INT32:
                    redelivery_count = value
                elif tag == 0x12 and ledger_id < 0 and value <= end - self._position:
                    id_end = self._position + value
                else:
                    return -1
            if value < 0:
                return -1
            position = self._position
            if position == id_end and (ledger_id < 0 or entry_id < 0):
                return -1  # or a second id could fill in what the first one lacks
        if ledger_id < 0 or entry_id < 0:
            return -1
        facts[offset + fact.LEDGER_ID] = ledger_id
        facts[offset + fact.ENTRY_ID] = entry_id
        facts[offset + fact.REDELIVERY_COUNT] = redelivery_count
        return consumer_id

    def _read_entry(
        self,
        data: memoryview | bytes,
        position: int,
        end: int,
        origin: int,
        offset: int,
    ) -> bool:
        """Read headers and MessageMetadata; return whether both are ordinary.

        Args:
            data: The buffer.
            position: Where they begin.
            end: Where the entry ends.
            origin: The place in the buffer from which on places count.
            offset: Where its facts go.
        """
        facts = self._facts
        facts[offset + fact.START] = position - origin
        facts[offset + fact.BROKER_METADATA] = facts[
            offset + fact.BROKER_METADATA_END
        ] = -1
        if end - position < 10 or data[position] != 0x0E:
            return False
        if data[position + 1] == 0x02:
            size = self._size(data, position + 2)
            position += 6
            if size > end - position:
                return False
            if not self._is_broker_metadata(data, position, position + size):
                return False
            facts[offset + fact.BROKER_METADATA] = position - origin
            position += size
            facts[offset + fact.BROKER_METADATA_END] = position - origin
            if end - position < 10 or data[position] != 0x0E:
                return False
        if data[position + 1] != 0x01:
            return False
        facts[offset + fact.CHECKSUM] = self._size(data, position + 2)
        facts[offset + fact.CHECKED] = position + 6 - origin
        size = self._size(data, position + 6)
        position += 10
        if size > min(end - position, _MOST_METADATA_BYTES):
            return False
        facts[offset + fact.METADATA] = position - origin
        facts[offset + fact.PAYLOAD] = position + size - origin
        facts[offset + fact.END] = end - origin
        return self._read_metadata(data, position, position + size, origin, offset)

    def _read_metadata(  # noqa: C901 - as above
        self, data: memoryview | bytes, start: int, end: int, origin: int, offset: int
    ) -> bool:
        """Read MessageMetadata; return whether the metadata is ordinary."""
        facts = self._facts
        count = codec = unpacked_bytes = publish_time = event_time = 0
        sequence_id = highest_sequence_id = marks = head_bytes = 0
        key = ordering_key = version = -1
        key_end = ordering_key_end = version_end = -1
        name_bytes = cluster_bytes = 0
        position = start
        while position < end:
            # -- the tag, and its number or the size of its bytes
            tag = data[position]
            position += 1
            if tag >= 0x80:
                if position == end or data[position] >= 0x80:
                    return False
                tag = tag & 0x7F | data[position] << 7
                position += 1
            if tag < 8 or (tag & 7 != 0 and tag & 7 != 2):
                return False
            if position < end and data[position] < 0x80:
                value = data[position]
                position += 1
            else:
                self._position = position
                value = self._varint(data, end)
                if value < 0:
                    return False
                position = self._position
            # -- numbers
            if tag & 7 == 0:
                if tag == 0x10:
                    sequence_id = value
                elif tag == 0x18:
                    publish_time = value
                elif tag == 0x58:  # num_messages_in_batch
                    if value == 0 or value > _MAX_INT32:
                        return False
                    count = value
                elif tag == 0x60:
                    event_time = value
                elif tag == 0xC0:
                    highest_sequence_id = value
                elif tag == 0x40:  # compression
                    if value > _MAX_INT32:
                        return False
                    codec = value
                elif tag == 0x48:
                    if value > _MOST_UNPACKED_BYTES:
                        return False
                    unpacked_bytes = value
                elif tag == 0x88:  # partition_key_b64_encoded
                    marks = marks & fact.VALUE_IS_NULL
                    if value != 0:
                        marks = marks | fact.KEY_IS_ENCODED
                elif tag == 0xC8:  # null_value
                    marks = marks & fact.KEY_IS_ENCODED
                    if value != 0:
                        marks = marks | fact.VALUE_IS_NULL
                # But deliver_at_time, both of txnid, null_partition_key, and what is
                # not known here.
                elif tag < 0x100 and tag not in (0x98, 0xB0, 0xB8, 0xF0):
                    return False
                continue
            # -- bytes
            if value > end - position:
                return False
            if tag == 0x82:
                version, version_end = position, position + value
            elif tag == 0x7A or tag >= 0x100:
                pass  # encryption_param, and what is not known here
            elif tag == 0x92:
                ordering_key, ordering_key_end = position, position + value
            elif tag == 0x22:
                size = self._pair_bytes(data, position, position + value)
                if size < 0:
                    return False
                head_bytes += 1 + self._varint_bytes(size) + size
            elif not self._is_text(data, position, position + value):
                return False
            elif tag == 0x0A:
                name_bytes = value
            elif tag == 0x2A:  # replicated_from
                cluster_bytes = value
            elif tag == 0x32:
                key, key_end = position, position + value
            elif tag != 0x3A and tag != 0x72:  # replicate_to, encryption_algo
                return False
            position += value
        if name_bytes + cluster_bytes > _MOST_TEXT_BYTES:
            return False
        # -- what the metadata of a single message would take in a batch
        size = unpacked_bytes if codec != 0 else facts[offset + fact.END] + origin - end
        head_bytes += 1 + self._varint_bytes(size)
        head_bytes += 1 + self._varint_bytes(sequence_id)
        if key >= 0:
            head_bytes += 1 + self._varint_bytes(key_end - key) + key_end - key
            key, key_end = key - origin, key_end - origin
        if ordering_key >= 0:
            size = ordering_key_end - ordering_key
            head_bytes += 1 + self._varint_bytes(size) + size
            ordering_key -= origin
            ordering_key_end -= origin
        if version >= 0:
            version, version_end = version - origin, version_end - origin
        if event_time != 0:
            head_bytes += 1 + self._varint_bytes(event_time)
        if marks & fact.KEY_IS_ENCODED:
            head_bytes += 2
        if marks & fact.VALUE_IS_NULL:
            head_bytes += 2
        facts[offset + fact.COUNT] = count
        facts[offset + fact.CODEC] = codec
        facts[offset + fact.UNPACKED_BYTES] = unpacked_bytes
        facts[offset + fact.PUBLISH_TIME] = publish_time
        facts[offset + fact.EVENT_TIME] = event_time
        facts[offset + fact.SEQUENCE_ID] = sequence_id
        # Where the ids of a batch have gaps, its first one has to do for all of them.
        has_no_gaps = highest_sequence_id - sequence_id == count - 1
        facts[offset + fact.SEQUENCE_STEP] = int(has_no_gaps)
        facts[offset + fact.KEY] = key
        facts[offset + fact.KEY_END] = key_end
        facts[offset + fact.ORDERING_KEY] = ordering_key
        facts[offset + fact.ORDERING_KEY_END] = ordering_key_end
        facts[offset + fact.MARKS] = marks
        facts[offset + fact.HEAD_BYTES] = head_bytes
        facts[offset + fact.SCHEMA_VERSION] = version
        facts[offset + fact.SCHEMA_VERSION_END] = version_end
        facts[offset + fact.LAST_ROW] = -1
        return True

    def _is_broker_metadata(
        self, data: memoryview | bytes, start: int, end: int
    ) -> bool:
        """Return whether this is a BrokerEntryMetadata: ``08 timestamp  10 index``."""
        position = start
        while position < end:
            if data[position] != 0x08 and data[position] != 0x10:
                return False
            self._position = position + 1
            if self._varint(data, end) < 0:
                return False
            position = self._position
        return True

    def _pair_bytes(self, data: memoryview | bytes, start: int, end: int) -> int:
        """Return the size of a KeyValue in protobuf, -1 if not ordinary.

        ``0A n key 12 n value``
        """
        size = 0
        has_key = has_value = False
        position = start
        while position < end:
            tag = data[position]
            if (tag != 0x0A or has_key) and (tag != 0x12 or has_value):
                return -1
            has_key = has_key or tag == 0x0A
            has_value = has_value or tag == 0x12
            self._position = position + 1
            length = self._varint(data, end)
            position = self._position
            if length < 0 or length > end - position:
                return -1
            if not self._is_text(data, position, position + length):
                return -1
            position += length
            size += 1 + self._varint_bytes(length) + length
        return size

    def _is_text(self, data: memoryview | bytes, start: int, end: int) -> bool:
        """Return whether bytes are UTF-8, about which runtimes of protobuf disagree."""
        for position in range(start, end):
            if data[position] >= 0x80:
                try:
                    bytes(data[start:end]).decode()
                except UnicodeDecodeError:
                    return False
                return True
        return True

    def _varint(self, data: memoryview | bytes, end: int) -> int:
        """Read the varint at ``_position``, and advance ``_position``.

        Returns:
            The number; -1 if there is none, or one of more than 63 bits.
        """
        position = self._position
        value = shift = 0
        while position < end and shift < 63:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = position
                return value
            shift += 7
        return -1

    def _skip_varint(self, data: memoryview | bytes, end: int) -> bool:
        """Move ``_position`` past a 64-bit number; return whether a number came."""
        position = self._position
        for place in range(10):
            if position + place >= end:
                return False
            byte = data[position + place]
            if byte < 0x80:
                self._position = position + place + 1
                return place < 9 or byte < 2
        return False

    def _varint_bytes(self, value: int) -> int:
        """Return how many bytes a number takes."""
        size = 1
        while value >= 0x80:
            value >>= 7
            size += 1
        return size

    def _size(self, data: memoryview | bytes, position: int) -> int:
        """Return the number in four bytes."""
        size = data[position]  # by itself: C would shift into the sign
        return (
            size << 24
            | data[position + 1] << 16
            | data[position + 2] << 8
            | data[position + 3]
        )


def _numbers(count: int) -> memoryview:
    """Return ``count`` numbers of 64 bits, all 0."""
    numbers: memoryview = memoryview(bytearray(8 * count))
    return numbers.cast("q")
