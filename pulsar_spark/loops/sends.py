# SPDX-License-Identifier: Apache-2.0
"""The loops over entries in a write: SEND frames, and their receipts.

Rows come as the messages of a batch, back to back; what comes out is ready for the
socket. Either a row is a message of an entry::

    size(4) SingleMessageMetadata payload  size(4) SingleMessageMetadata payload  ...
    '------------------------------ payload of the entry -----------------------------'

or it is an entry on its own, what its own metadata says moved to the entry's::

    size(4) [0A n pair]* [12 n key] 18 n [28 t] [30 1] [3A n order] [48 1] [50 1]
            [22 n pair]* [32 n key]    [60 t] [88 1 1] [92 1 n order] [C8 1 1] [F0 1 1]

An entry of either kind may have [6A n key]* [7A n nonce] behind the time, which say how
its payload is encrypted, and [82 1 n version], with what schema payloads were written.
An entry of several rows may end with [88 2 low 90 2 high]: the hashes of its keys, for
the entry buckets of a scalable topic. All are laid out here byte by byte. A row that
does not fit, or is not as ``arrow.encode`` writes it, is left to the caller, who can
cut it into chunks or say what is wrong with it.

This file runs as it is, and is compiled as ``messages.py`` is, together with
``sends.pxd``, which gives the types.

Source: CommandSend, CommandSendReceipt, MessageMetadata and SingleMessageMetadata in
PulsarApi.proto; "Protocol Buffers encoding" for their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulsar_spark.checksums import crc32c
from spark_topics.loops import memory


class SendFrame(NamedTuple):
    """A SEND, ready for the socket.

    Attributes:
        sequence_id: What its receipt names; of a batch the lowest.
        highest_sequence_id: Of a batch the highest; what a refusal names.
        rows: Messages that its receipt completes: 0 for all but the last of a
            message's chunks.
        data: The frame.
    """

    sequence_id: int
    highest_sequence_id: int
    rows: int
    data: bytes


class Receipt(NamedTuple):
    """An entry of a producer is stored.

    Attributes:
        producer_id: Whose.
        sequence_id: Which one; of a batch the lowest.
        ledger_id, entry_id: The place in the store. -1:-1 says that the broker had it
            already and dropped this one.
    """

    producer_id: int
    sequence_id: int
    ledger_id: int
    entry_id: int


class OddRow(NamedTuple):
    """A row that is left to the caller.

    Attributes:
        message: Its metadata and its payload, as a batch holds them.
        sequence_id: Its own.
        delivery_time: In ms since 1970, -1 for at once.
    """

    message: memoryview
    sequence_id: int
    delivery_time: int


#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: Makes a tuple with names without asking for the names.
_new = tuple.__new__

#: All that is written of an entry before its payload, but for names, keys and
#: properties, takes less.
_FIXED_BYTES = 256

#: A receipt takes less.
_MAX_RECEIPT_BYTES = 128

_TWO_TO_64 = 1 << 64
_MAX_INT64 = (1 << 63) - 1


class Cursor:
    """A place in bytes, from which numbers are read.

    Args:
        data: The bytes.

    Attributes:
        data: As given.
        offset: The place. Below 0 if what was read is no number; nothing is read there.
    """

    def __init__(self, data: memoryview | bytes) -> None:
        self.data = data
        self.offset = 0

    def number(self, end: int) -> int:
        """Read a varint that ends before ``end``; return 0 for any other bytes."""
        value = shift = 0
        offset = self.offset
        while offset < end and shift < 64:
            byte = self.data[offset]
            offset += 1
            if shift == 63 and byte > 1:  # more than 64 bits
                break
            # Not |=: in C it would be the type of a byte that is shifted.
            value = value | (byte & 0x7F) << shift
            if byte < 0x80:
                self.offset = offset
                return value
            shift += 7
        self.offset = -1
        return 0

    def field(self, tag: int, end: int) -> int:
        """Read a number that has this tag; else the place is below 0."""
        if self.offset < 0 or self.offset >= end or self.data[self.offset] != tag:
            self.offset = -1
            return 0
        self.offset += 1
        return self.number(end)


class Messages:
    """Rows as the messages of a batch, back to back.

    Args:
        data: Row ``n`` is ``data[offsets[n] : offsets[n + 1]]``.
        offsets: int64s, one more than there are rows.
        delivery_times: When each row is to be delivered, in ms since 1970, -1 for at
            once: int64s. None where no row says it.
        hashes: The entry bucket hash of each row's key: uint16s. None where entries do
            not say them.
    """

    def __init__(
        self,
        data: memoryview,
        offsets: memoryview,
        delivery_times: memoryview | None = None,
        hashes: memoryview | None = None,
    ) -> None:
        assert offsets[len(offsets) - 1] <= len(data), "rows end where there is nothing"
        self.view = data
        self.cursor = Cursor(data)
        self.offsets = offsets
        self.has_delivery_times = delivery_times is not None
        if delivery_times is not None:
            self.delivery_times = delivery_times
        self.has_hashes = hashes is not None
        if hashes is not None:
            self.hashes = hashes


class Packer:
    """Puts the rows of a topic partition into entries, and entries into frames.

    Entries of several rows are closed by the number of their rows or bytes, never by
    the clock or by where a call ended: so the same rows are cut alike whenever they are
    written again.

    Args:
        producer_id: Of the producer.
        producer_name: As the broker knows it.
        max_entry_bytes: Most bytes of an entry's metadata and payload.
        max_rows: Most rows of an entry.
        max_bytes: Most bytes of messages in an entry of several rows.
        max_alone_bytes: Most bytes of the payload of a row that is an entry on its own.
        txn: Transaction that the entries are part of, its most and its least bits.
        codec: Number of the codec of payloads, 0 for none.
        compress: Compresses a payload.
        now_ms: The publish time of an entry, in ms since 1970.
        first_number: What is added to numbers of rows to make sequence ids; None where
            these just go up, from ``next_sequence_id``.
        schema_version: Of the schema that payloads were written with; empty for none.
        encrypt: Encrypts a payload, compressed or not: returns the fields of metadata
            that say how, and the encrypted payload. None if it stays as it is.

    Attributes:
        next_sequence_id: See above.
        rows: Rows that no entry holds yet.
        odd_row: The row after those in the frames, if it fits into no entry or is not
            laid out as expected. It counts as taken; no row after it is.
    """

    def __init__(
        self,
        *,
        producer_id: int,
        producer_name: str,
        max_entry_bytes: int,
        max_rows: int,
        max_bytes: int,
        max_alone_bytes: int,
        txn: tuple[int, int] | None,
        codec: int,
        compress: Callable[[memoryview | bytes], bytes],
        now_ms: Callable[[], int],
        first_number: int | None = None,
        schema_version: bytes = b"",
        encrypt: Callable[[bytes | memoryview], tuple[bytes, bytes]] | None = None,
    ) -> None:
        self.next_sequence_id = 0
        self.rows = 0
        self._max_entry_bytes = max_entry_bytes
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_alone_bytes = max_alone_bytes
        self._codec = codec
        self._compress = compress
        self._now_ms = now_ms
        self._encrypt = encrypt
        self._encryption = b""  # of the entry at hand
        self.odd_row: OddRow | None = None
        self._is_numbered = first_number is not None
        self._first_number = first_number or 0
        self._parts: list[bytes | memoryview] = []
        self._size_bytes = 0
        self._first_row = self._last_row = 0
        self._lowest_hash = self._highest_hash = -1  # of the rows at hand
        # -- what is the same in all entries
        name = producer_name.encode()
        self._room = _FIXED_BYTES + len(name) + len(schema_version)
        self._head = memoryview(bytearray(self._room))
        self._view = self._head
        self._txn_of_command = self._txn_of_metadata = b""
        if txn is not None:
            self._txn_of_command = self._numbers(b"\x20", txn[1], b"\x28", txn[0])
            self._txn_of_metadata = self._numbers(
                b"\xb0\x01", txn[1], b"\xb8\x01", txn[0]
            )
        self._name = self._numbers(b"\x0a", len(name)) + name
        self._schema = b""
        if schema_version:
            size = len(schema_version)
            self._schema = self._numbers(b"\x82\x01", size) + schema_version
        # Where the sizes of the frame and of its command go; type and the size of send.
        begin = bytes(8) + b"\x08\x06\x32\x00" + self._numbers(b"\x08", producer_id)
        self._begin_bytes = self._copy(0, begin, 0, len(begin))

    def add(
        self,
        rows: Messages,
        numbers: Sequence[int],
        begin: int,
        end: int,
        frames: list[SendFrame],
        most_bytes: int,
    ) -> int:
        """Take rows that may share an entry; append completed frames.

        Args:
            rows: Some rows.
            numbers: The number of each of them, ascending.
            begin: The first of them to take.
            end: The first one not to take.
            frames: Where frames go.
            most_bytes: No row is taken once frames of this many bytes were appended.

        Returns:
            The first row that was not taken.
        """
        offsets = rows.offsets
        size_bytes = 0
        self.odd_row = None
        while begin < end:
            # As many as have room. There is one more offset than there are rows.
            stop = min(begin + self._max_rows - self.rows, end)
            limit = offsets[begin] + self._max_bytes - self._size_bytes
            stop = self._last_below(offsets, limit, begin, stop)
            if not self.rows:
                stop = max(stop, begin + 1)  # a row that is too large goes alone
                if self._is_numbered:
                    self._first_row = numbers[begin]
            if stop > begin:
                part = rows.view[offsets[begin] : offsets[stop]]
                self._parts.append(part)
                self._size_bytes += offsets[stop] - offsets[begin]
                self.rows += stop - begin
                if self._is_numbered:
                    self._last_row = numbers[stop - 1]
                if rows.has_hashes:
                    self._widen(rows, begin, stop)
                begin = stop
            # A full entry of numbered rows waits: `mark_last` may have to change it.
            if begin < end or (self.rows == self._max_rows and not self._is_numbered):
                size_bytes += self.finish(frames)
                if size_bytes >= most_bytes or self.odd_row is not None:
                    break
        # What is left must not keep all of these rows in memory.
        if self._parts:
            self._parts.append(bytes(self._parts.pop()))
        return begin

    def add_alone(
        self,
        rows: Messages,
        numbers: Sequence[int],
        begin: int,
        end: int,
        frames: list[SendFrame],
        most_bytes: int,
    ) -> int:
        """Take rows, each of which is an entry; else as ``add``."""
        offsets = rows.offsets
        size_bytes = 0
        delivery_time = -1
        self.odd_row = None
        while begin < end and size_bytes < most_bytes:
            sequence_id = self._first_number
            if self._is_numbered:
                sequence_id += numbers[begin]
            else:
                sequence_id = self.next_sequence_id
                self.next_sequence_id = sequence_id + 1
            if rows.has_delivery_times:
                delivery_time = rows.delivery_times[begin]
            start, stop = offsets[begin], offsets[begin + 1]
            begin += 1
            frame = self._alone(rows, start, stop, sequence_id, delivery_time)
            if frame is None:
                self.odd_row = _new(
                    OddRow, (rows.view[start:stop], sequence_id, delivery_time)
                )
                break
            size_bytes += len(frame[3])
            frames.append(frame)
        return begin

    def mark_last(self, bits: int) -> None:
        """Change bits of the number of the last row, unless a frame holds the row.

        Args:
            bits: Those to change.
        """
        if self.rows == 1:
            self._first_row ^= bits
        self._last_row ^= bits

    def finish(self, frames: list[SendFrame]) -> int:
        """Append the frame of the rows that no entry holds yet, if there are any.

        Returns:
            How many bytes it has; 0 where there is none.
        """
        rows = self.rows
        self.odd_row = None
        if not rows:
            return 0
        payload = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self.rows = self._size_bytes = 0
        if self._is_numbered:
            lowest = self._first_number + self._first_row
            highest = self._first_number + self._last_row
        else:
            lowest = self.next_sequence_id
            highest = lowest + rows - 1
            self.next_sequence_id = highest + 1
        frame = self._together(payload, rows, lowest, highest)
        self._lowest_hash = self._highest_hash = -1
        if frame is None:
            assert rows == 1, "a batch has room for keys"
            self.odd_row = _new(OddRow, (memoryview(payload), lowest, -1))
            return 0
        frames.append(frame)
        return len(frame[3])

    def _widen(self, rows: Messages, begin: int, end: int) -> None:
        """Take the hashes of rows into the range that their entry says."""
        hashes = rows.hashes
        lowest, highest = self._lowest_hash, self._highest_hash
        if lowest < 0:
            lowest = highest = hashes[begin]
        for row in range(begin, end):
            number = hashes[row]
            if number < lowest:
                lowest = number
            elif number > highest:
                highest = number
        self._lowest_hash, self._highest_hash = lowest, highest

    # -- one entry -------------------------------------------------------------------

    def _together(
        self, payload: bytes | memoryview, rows: int, lowest: int, highest: int
    ) -> SendFrame | None:
        """Return the frame of messages that share an entry; None if too large.

        The entry says which keys its first message has: brokers choose a consumer by
        them.
        """
        first = Cursor(payload)
        fields = self._fields(first, 0, len(payload))
        if not fields:
            return None
        body = payload
        if self._codec:
            body = self._compress(payload)
        if rows == 1 and len(body) > self._max_alone_bytes:
            return None
        if self._encrypt is not None:
            self._encryption, body = self._encrypt(body)
        self._make_room(self._head_bytes + len(self._encryption))
        offset = self._command(lowest, highest, rows)
        metadata_at = offset + 10
        offset = self._describe(metadata_at, lowest)
        if self._key_size >= 0:
            offset = self._sized(offset, 0x32, 0, first, self._key_at, self._key_size)
        if self._codec:
            offset = self._put(offset, 0x40, self._codec)
            offset = self._put(offset, 0x48, len(payload))
        offset = self._put(offset, 0x58, rows)
        offset = self._keys(offset, first)
        offset = self._end(offset, highest)
        if self._lowest_hash >= 0:
            offset = self._put_longer(offset, 0x88, self._lowest_hash)
            offset = self._put_longer(offset, 0x90, self._highest_hash)
        return self._frame(metadata_at, offset, body, lowest, highest, rows)

    def _alone(
        self, rows: Messages, start: int, end: int, sequence_id: int, delivery_time: int
    ) -> SendFrame | None:
        """Return the frame of a single message; None if too large, or unusual."""
        source = rows.cursor
        if not self._fields(source, start, end):
            return None
        size = end - self._payload_at
        payload = rows.view[self._payload_at : end]
        body: bytes | memoryview = payload
        # The C++ client, and those built on it, take compressed nothing for damage.
        is_compressed = self._codec != 0 and size > 0
        if is_compressed:
            body = self._compress(payload)
        if len(body) > self._max_alone_bytes:
            return None
        if self._encrypt is not None:
            self._encryption, body = self._encrypt(body)
        self._make_room(self._head_bytes + len(self._encryption))
        offset = self._command(sequence_id, sequence_id, 0)
        metadata_at = offset + 10
        offset = self._describe(metadata_at, sequence_id)
        offset = self._properties(offset, source)
        if self._key_size >= 0:
            offset = self._sized(offset, 0x32, 0, source, self._key_at, self._key_size)
        if is_compressed:
            offset = self._put(offset, 0x40, self._codec)
        if is_compressed or self._is_null:
            # Without a size compaction counts the metadata, and takes it for a value.
            offset = self._put(offset, 0x48, size)
        if self._has_event_time:
            offset = self._put(offset, 0x60, self._event_time)
        offset = self._keys(offset, source)
        if delivery_time >= 0:
            offset = self._put_long(offset, 0x98, delivery_time)
        offset = self._nulls(self._end(offset, sequence_id))
        return self._frame(metadata_at, offset, body, sequence_id, sequence_id, 1)

    def _fields(  # noqa: C901 - a call in here costs more than what it would do
        self, source: Cursor, start: int, end: int
    ) -> bool:
        """Find the fields of a message; return whether the form is ours."""
        data = source.data
        self._properties_at = self._properties_end = start + 4
        self._key_at = self._order_at = 0
        self._key_size = self._order_size = -1
        self._has_event_time = self._is_base64 = self._is_null = False
        self._has_null_key = False
        self._event_time = 0
        if end - start < 4:
            return False
        size = data[start]  # by itself: C would shift into the sign
        size = (
            size << 24 | data[start + 1] << 16 | data[start + 2] << 8 | data[start + 3]
        )
        if size > end - start - 4:
            return False
        self._head_bytes = size
        head_end = start + 4 + size
        self._payload_at = head_end
        source.offset = start + 4
        last_tag = 0
        while source.offset < head_end:
            tag = data[source.offset]
            if tag < last_tag or (tag == last_tag and tag != 0x0A):
                return False
            last_tag = tag
            source.offset += 1
            value = source.number(head_end)
            if source.offset < 0:
                return False
            if tag == 0x0A or tag == 0x12 or tag == 0x3A:
                if value > head_end - source.offset:
                    return False
                if tag == 0x12:
                    self._key_at = source.offset
                    self._key_size = value
                elif tag == 0x3A:
                    self._order_at = source.offset
                    self._order_size = value
                source.offset += value
                if tag == 0x0A:
                    self._properties_end = source.offset
            elif tag == 0x28:
                self._event_time = value
                self._has_event_time = True
            elif tag == 0x30 and value == 1:
                self._is_base64 = True
            elif tag == 0x48 and value == 1:
                self._is_null = True
            elif tag == 0x50 and value == 1:
                self._has_null_key = True
            elif tag != 0x18:  # whose value follows from where the message ends
                return False
        return True

    # -- parts of a frame, written to ``_head``; each returns where it ends -----------

    def _command(self, lowest: int, highest: int, rows: int) -> int:
        """Write CommandSend; ``rows`` of a batch, else 0."""
        offset = self._put(self._begin_bytes, 0x10, lowest)
        if rows:
            offset = self._put(offset, 0x18, rows)
        if len(self._txn_of_command):
            offset = self._copy(
                offset, self._txn_of_command, 0, len(self._txn_of_command)
            )
        offset = self._put(offset, 0x30, highest)
        self._head[11] = offset - 12
        self._put_size(4, offset - 8)
        self._head[offset] = 0x0E
        self._head[offset + 1] = 0x01
        return offset

    def _describe(self, offset: int, lowest: int) -> int:
        """Write the fields in front of the rows' fields."""
        offset = self._copy(offset, self._name, 0, len(self._name))
        offset = self._put(offset, 0x10, lowest)
        return self._put(offset, 0x18, self._now_ms())

    def _properties(self, offset: int, source: Cursor) -> int:
        end = self._properties_end
        source.offset = self._properties_at
        while source.offset < end:
            start = source.offset + 1
            source.offset = start
            size = source.number(end)
            source.offset += size
            self._head[offset] = 0x22
            offset = self._copy(offset + 1, source.data, start, source.offset - start)
        return offset

    def _keys(self, offset: int, source: Cursor) -> int:
        """Write the fields of encryption, the schema version, and fields about keys."""
        if len(self._encryption):
            offset = self._copy(offset, self._encryption, 0, len(self._encryption))
        if len(self._schema):
            offset = self._copy(offset, self._schema, 0, len(self._schema))
        if self._is_base64:
            offset = self._put_long(offset, 0x88, 1)
        if self._order_size >= 0:
            offset = self._sized(
                offset, 0x92, 1, source, self._order_at, self._order_size
            )
        return offset

    def _nulls(self, offset: int) -> int:
        if self._is_null:
            offset = self._put_long(offset, 0xC8, 1)
        if self._has_null_key:
            offset = self._put_long(offset, 0xF0, 1)
        return offset

    def _end(self, offset: int, highest: int) -> int:
        """Write the fields behind the rows' fields."""
        if len(self._txn_of_metadata):
            offset = self._copy(
                offset, self._txn_of_metadata, 0, len(self._txn_of_metadata)
            )
        return self._put_long(offset, 0xC0, highest)

    def _frame(
        self,
        metadata_at: int,
        offset: int,
        body: bytes | memoryview,
        lowest: int,
        highest: int,
        rows: int,
    ) -> SendFrame | None:
        """Complete a frame whose metadata end here; None if too large."""
        size = len(body)
        metadata_bytes = offset - metadata_at
        if metadata_bytes + size > self._max_entry_bytes:
            return None
        self._put_size(0, offset - 4 + size)
        self._put_size(metadata_at - 4, metadata_bytes)
        checksum = crc32c(body, crc32c(self._view[metadata_at - 4 : offset]))
        self._put_size(metadata_at - 8, checksum)
        data = b"".join((self._view[:offset], body))
        return _new(SendFrame, (lowest, highest, rows, data))

    def _make_room(self, size: int) -> None:
        """Make room for the fields of a message."""
        fixed = len(self._name) + len(self._schema) + _FIXED_BYTES
        if size + fixed > self._room:
            self._room = 2 * size + fixed
            begin = bytes(self._view[: self._begin_bytes])
            self._view = memoryview(bytearray(self._room))
            self._head = self._view
            self._copy(0, begin, 0, len(begin))

    def _numbers(self, *parts: bytes | int) -> bytes:
        """Return numbers, each behind its tag."""
        end = 0
        for part in parts:
            if isinstance(part, bytes):
                end = self._copy(end, part, 0, len(part))
            else:
                end = self._varint(end, part)
        return bytes(self._view[:end])

    def _sized(
        self, offset: int, tag: int, more: int, source: Cursor, start: int, size: int
    ) -> int:
        """Write a field of bytes; ``more`` is the tag's second byte, 0 for none."""
        self._head[offset] = tag
        offset += 1
        if more:
            self._head[offset] = more
            offset += 1
        return self._copy(self._varint(offset, size), source.data, start, size)

    def _put(self, offset: int, tag: int, number: int) -> int:
        self._head[offset] = tag
        return self._varint(offset + 1, number)

    def _put_long(self, offset: int, tag: int, number: int) -> int:
        """Write a field from 16 to 31, whose tag has a second byte of 1."""
        self._head[offset] = tag
        self._head[offset + 1] = 1
        return self._varint(offset + 2, number)

    def _put_longer(self, offset: int, tag: int, number: int) -> int:
        """Write a field from 32 to 47, whose tag has a second byte of 2."""
        self._head[offset] = tag
        self._head[offset + 1] = 2
        return self._varint(offset + 2, number)

    def _varint(self, offset: int, number: int) -> int:
        while number >= 0x80:
            self._head[offset] = number & 0x7F | 0x80
            number >>= 7
            offset += 1
        self._head[offset] = number
        return offset + 1

    def _put_size(self, offset: int, size: int) -> None:
        self._head[offset] = size >> 24
        self._head[offset + 1] = size >> 16 & 0xFF
        self._head[offset + 2] = size >> 8 & 0xFF
        self._head[offset + 3] = size & 0xFF

    def _copy(
        self, offset: int, data: bytes | memoryview, start: int, size: int
    ) -> int:
        memory.copy(self._head, offset, data, start, size)
        return offset + size

    def _last_below(
        self, offsets: memoryview, limit: int, first: int, last: int
    ) -> int:
        """Return the last place from ``first`` to ``last`` not above a limit."""
        while first < last:
            middle = (first + last + 1) // 2
            if offsets[middle] > limit:
                last = middle - 1
            else:
                first = middle
        return first


def read_receipts(  # noqa: C901 - as above
    data: memoryview | bytes,
) -> tuple[list[Receipt], int]:
    """Read the SEND_RECEIPTs at the beginning of the bytes, while they are usual.

    ::

        size(4) size(4) 08 07 3A n [08 producer 10 sequence 1A n [08 ledger 10 entry
            [18 partition]] [20 highest]]

    Returns:
        The receipts, and the place of the first byte after them.
    """
    receipts: list[Receipt] = []
    source = Cursor(data)
    total = len(data)
    begin = 0
    while total - begin > 12:
        if data[begin] or data[begin + 1] or data[begin + 2]:
            break
        size = data[begin + 3]
        end = begin + 4 + size
        if size < 12 or end > total or size > _MAX_RECEIPT_BYTES:
            break
        if data[begin + 4] or data[begin + 5] or data[begin + 6]:
            break
        if data[begin + 7] != size - 4:
            break
        if data[begin + 8] != 0x08 or data[begin + 9] != 0x07:
            break
        if data[begin + 10] != 0x3A or data[begin + 11] != size - 8:
            break
        source.offset = begin + 12
        producer_id = source.field(0x08, end)
        sequence_id = source.field(0x10, end)
        place_end = source.field(0x1A, end)
        if source.offset < 0 or place_end > end - source.offset:
            break
        place_end += source.offset
        ledger_id = source.field(0x08, place_end)
        entry_id = source.field(0x10, place_end)
        if 0 <= source.offset < place_end:
            source.field(0x18, place_end)
        if source.offset != place_end:
            break
        if source.offset < end:
            source.field(0x20, end)
        if source.offset != end:
            break
        receipts.append(
            _new(
                Receipt,
                (producer_id, sequence_id, _signed(ledger_id), _signed(entry_id)),
            )
        )
        begin = end
    return receipts, begin


def _signed(number: int) -> int:
    return number if number <= _MAX_INT64 else number - _TWO_TO_64
