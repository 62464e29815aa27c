# SPDX-License-Identifier: Apache-2.0
"""Conversion of stored entries to messages: batches, singles, chunks, compaction.

An entry is what one SEND stored and one MESSAGE delivers. Its metadata says which of
three forms the payload has::

    num_messages_in_batch absent:   payload                            one message
    num_messages_in_batch present:  [size(4) SingleMessageMetadata payload] x n
    num_chunks_from_msg > 1:        a piece of one message, see chunks.py

Presence decides, not the value: clients do send batches of one. Compression covers the
whole payload of a batch, or of a message after its chunks were put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from pulsar_spark.checksums import crc32c
from pulsar_spark.errors import CorruptEntryError, foreign_text
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.loops.fact import (
    BROKER_METADATA,
    BROKER_METADATA_END,
    COUNT,
    LAST_ROW,
    METADATA,
    PAYLOAD,
    REDELIVERY_COUNT,
)
from pulsar_spark.loops.messages import (
    IS_NULL,
    MIN_MESSAGE_BYTES,
    NO_LIMIT,
    MessageTable,
    split_metadata,
)
from pulsar_spark.message_id import encode_varint
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import decompress
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES, split_entry
from spark_topics.protobuf import UNREADABLE

if TYPE_CHECKING:
    from pulsar_spark.message_id import MessageId

#: Metadata of an entry that is larger than this is taken apart before it is parsed:
#: protobuf takes 28 times the bytes of properties that are empty.
_LARGE_METADATA_BYTES = 16 * 1024

#: The part of a reader's limit that the keys and properties of one message may have,
#: which some columns hold four times, and what each may have under any limit: as much
#: as an entry that brokers take unless told otherwise.
_HEAD_SHARE = 4
_LEAST_HEAD_BYTES = DEFAULT_MAX_MESSAGE_SIZE_BYTES + 64 * 1024

#: Bytes of a limit for each property of a message, about what one takes until it is in
#: a RecordBatch, and how many there may be under any limit.
_PAIR_BYTES = 256
_LEAST_PAIRS = 1 << 16

#: The most that a codec makes of one byte: ZSTD's blocks of one byte repeated.
_MAX_EXPANSION = 1 << 15


@dataclass(slots=True)
class Entry:
    """The messages of an entry: rows of a table.

    Attributes:
        ledger_id, entry_id: Where the entry is stored; for a chunked message, where its
            last chunk is.
        metadata: The entry's own metadata (of the last chunk for a chunked message).
        batch_size: Messages the entry was written with; 0 if it is not a batch.
        table: Where its messages are, among those of other entries.
        first_row, last_row: Which of the table's rows are its own, the last one
            exclusive.
        broker_metadata: What the broker stamped on the entry, if it exposes that.
        redelivery_count: How often the broker had delivered it before.
        first_chunk: ``(ledger_id, entry_id)`` of the first chunk of a chunked message.
    """

    ledger_id: int
    entry_id: int
    metadata: pb.MessageMetadata
    batch_size: int
    table: MessageTable
    first_row: int
    last_row: int
    broker_metadata: pb.BrokerEntryMetadata | None = None
    redelivery_count: int = 0
    first_chunk: tuple[int, int] | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Return ``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    def __len__(self) -> int:
        return self.last_row - self.first_row

    @property
    def batch_indexes(self) -> Sequence[int]:
        """Return each message's index in the batch as written; 0 outside a batch."""
        return list(self.table.batch_indexes[self.first_row : self.last_row])

    @property
    def payloads(self) -> list[bytes | None]:
        """Return the bytes of each message, or None for a null value.

        Of a table that has values.
        """
        values, flags = self.table.values, self.table.flags
        assert values is not None
        data, offsets = values.data, values.offsets
        return [
            None
            if flags[row] & IS_NULL
            else bytes(data[offsets[row] : offsets[row + 1]])
            for row in range(self.first_row, self.last_row)
        ]

    @property
    def schema_version(self) -> bytes:
        """Return the schema version of the values as sent; empty if none was sent."""
        return self.metadata.schema_version

    @property
    def size_bytes(self) -> int:
        """Return the uncompressed size of the messages, their metadata included."""
        return self.table.size_bytes(self.first_row, self.last_row)

    def between(self, start: MessageId, end: MessageId) -> Entry:
        """Keep the messages from ``start`` to ``end``, both inclusive.

        A batch index of -1 means the whole entry, and so does any other one where
        the entry is not a batch. Of an earlier entry than ``start``, or a later one
        than ``end``, nothing is kept.
        """
        if not start.position <= self.position <= end.position:
            return self.cut(0, 0)
        if not self.batch_size:
            return self
        first, last = 0, len(self)
        if self.position == start.position and start.batch_index > 0:
            first = sum(index < start.batch_index for index in self.batch_indexes)
        if self.position == end.position and end.batch_index >= 0:
            last = sum(index <= end.batch_index for index in self.batch_indexes)
        return self if (first, last) == (0, len(self)) else self.cut(first, last)

    def cut(self, first: int, last: int) -> Entry:
        """Return the kept messages ``first`` (inclusive) to ``last`` (exclusive)."""
        rows = self.first_row + first, self.first_row + max(first, last)
        return replace(self, first_row=rows[0], last_row=rows[1])


@dataclass(frozen=True)
class EntryRun:
    """Whole entries that were unpacked together, and without an object for each.

    Attributes:
        deliveries: What is known of them.
        first, last: Which of those they are, the last one exclusive.
        table: Where their messages are, one entry's after the other's.
        first_row: The first of these.
    """

    deliveries: Deliveries
    first: int
    last: int
    table: MessageTable
    first_row: int

    @property
    def position(self) -> tuple[int, int]:
        """Return ``(ledger_id, entry_id)`` of the first entry."""
        return self.deliveries.position(self.first)

    @property
    def last_row(self) -> int:
        """Return the table's row after the last entry."""
        return self.end_of(self.last - 1)

    def end_of(self, number: int) -> int:
        """Return the table's row after an entry."""
        return self.deliveries.fact(number, LAST_ROW)

    def __len__(self) -> int:
        return self.last_row - self.first_row

    @property
    def size_bytes(self) -> int:
        """Return the uncompressed size of the messages, their metadata included."""
        return self.table.size_bytes(self.first_row, self.last_row)

    def part(self, first: int, last: int) -> EntryRun:
        """Return a slice of entries, at least an entry; ``last`` is exclusive."""
        return EntryRun(self.deliveries, first, last, self.table, self._row_of(first))

    def entry(self, number: int) -> Entry:
        """Return an entry as a separate object."""
        deliveries, data = self.deliveries, memoryview(self.deliveries.data)
        place, end = deliveries.fact(number, METADATA), deliveries.fact(number, PAYLOAD)
        stamp = deliveries.fact(number, BROKER_METADATA)
        stamp_end = deliveries.fact(number, BROKER_METADATA_END)
        return Entry(
            *deliveries.position(number),
            pb.MessageMetadata.FromString(bytes(data[place:end])),
            deliveries.fact(number, COUNT),
            self.table,
            self._row_of(number),
            self.end_of(number),
            pb.BrokerEntryMetadata.FromString(bytes(data[stamp:stamp_end]))
            if stamp >= 0
            else None,
            deliveries.fact(number, REDELIVERY_COUNT),
        )

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Return the entries with messages, as separate objects.

        Slow: for what is seldom asked for.
        """
        return [
            self.entry(number)
            for number in range(self.first, self.last)
            if self._row_of(number) < self.end_of(number)
        ]

    def _row_of(self, number: int) -> int:
        return self.first_row if number == self.first else self.end_of(number - 1)


@dataclass(slots=True)
class StoredEntry:
    """An entry with parsed metadata, and the payload as stored.

    Attributes:
        ledger_id, entry_id: The place in the store.
        metadata: Its MessageMetadata.
        payload: Its bytes as transmitted: possibly compressed, possibly one chunk.
        broker_metadata: What the broker stamped on it, if it exposes that.
        redelivery_count: How often the broker had delivered it before.
        first_chunk: ``(ledger_id, entry_id)`` of the first chunk of a chunked message
            that was put together, else None.
        properties: Where its MessageMetadata is large, the properties in it, which
            ``metadata`` lacks then: fields of SingleMessageMetadata.
    """

    ledger_id: int
    entry_id: int
    metadata: pb.MessageMetadata
    payload: memoryview | bytes
    broker_metadata: pb.BrokerEntryMetadata | None = None
    redelivery_count: int = 0
    first_chunk: tuple[int, int] | None = None
    properties: bytes = b""

    @property
    def position(self) -> tuple[int, int]:
        """Return ``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    @property
    def is_marker(self) -> bool:
        """Return whether the entry is a marker of transactions or replication."""
        return self.metadata.HasField("marker_type")

    @property
    def is_chunk(self) -> bool:
        """Return whether the entry holds a chunk of a message."""
        return self.metadata.num_chunks_from_msg > 1

    @property
    def is_encrypted(self) -> bool:
        """Return whether the payload is encrypted."""
        return bool(self.metadata.encryption_keys)

    def decrypted(self, payload: bytes) -> StoredEntry:
        """Return the entry with the decrypted payload."""
        metadata = pb.MessageMetadata()
        metadata.CopyFrom(self.metadata)
        metadata.ClearField("encryption_keys")
        return replace(self, metadata=metadata, payload=payload)

    def as_bytes(self) -> StoredEntry:
        """Return the entry as a single message with the payload as stored."""
        metadata = pb.MessageMetadata()
        metadata.CopyFrom(self.metadata)
        for name in _OF_THE_PAYLOAD:
            metadata.ClearField(name)
        return replace(self, metadata=metadata)

    @property
    def charged_messages(self) -> int:
        """Return the Flow permits that the broker charges for the entry.

        A broker believes the metadata, whatever number it has, also below 1.
        """
        if self.metadata.HasField("num_messages_in_batch"):
            return self.metadata.num_messages_in_batch
        return 1

    @property
    def likely_rows(self) -> float:
        """Return the expected rows by the metadata; a chunk counts 1/n.

        At least one, and no more than its bytes can hold.
        """
        if self.is_chunk:
            return 1 / self.metadata.num_chunks_from_msg
        size_bytes = len(self.payload)
        if self.metadata.compression:
            unpacked = self.metadata.uncompressed_size
            size_bytes = min(unpacked, size_bytes * _MAX_EXPANSION)
        most = size_bytes // MIN_MESSAGE_BYTES
        return max(1, min(self.charged_messages, most))


#: What metadata say of how the payload is to be taken apart.
_OF_THE_PAYLOAD: tuple[Any, ...] = (
    "encryption_keys",
    "compression",
    "uncompressed_size",
    "num_messages_in_batch",
    "compacted_batch_indexes",
    "uuid",
    "chunk_id",
    "num_chunks_from_msg",
    "total_chunk_msg_size",
)


def read_stored_entry(
    ledger_id: int,
    entry_id: int,
    headers_and_payload: memoryview,
    *,
    redelivery_count: int = 0,
) -> StoredEntry:
    """Check the checksum of an entry and parse its metadata.

    Args:
        ledger_id: From the MESSAGE command.
        entry_id: In the same way.
        headers_and_payload: Everything after that command in its frame.
        redelivery_count: From the MESSAGE command.

    Raises:
        CorruptEntryError: The checksum is wrong, or the metadata is not metadata.
    """
    parts = split_entry(headers_and_payload)
    described: memoryview | bytes = parts.metadata
    properties = b""
    if len(described) > _LARGE_METADATA_BYTES:
        described, properties = split_metadata(described)
    try:
        metadata = pb.MessageMetadata.FromString(bytes(described))
        broker_metadata = (
            None
            if parts.broker_entry_metadata is None
            else pb.BrokerEntryMetadata.FromString(bytes(parts.broker_entry_metadata))
        )
    except UNREADABLE as error:
        raise CorruptEntryError(f"its metadata is damaged ({error}).") from None
    return StoredEntry(
        ledger_id,
        entry_id,
        metadata,
        parts.payload,
        broker_metadata,
        redelivery_count,
        properties=properties,
    )


class EntryDecoder:
    """Unpacks the entries of a topic partition into tables.

    Args:
        max_bytes: The largest uncompressed payload to make room for. How large the
            metadata of messages may be depends on it, too.
        table: The first table; the others are of its kind.
        table_rows: Messages after which a new one begins.
        table_bytes: Bytes of messages after which a new one begins.
        max_table_bytes: No table holds more: places in a table's columns of bytes are
            numbers of 32 bits.
    """

    def __init__(
        self,
        max_bytes: int = DEFAULT_MAX_MESSAGE_SIZE_BYTES,
        table: MessageTable | None = None,
        *,
        table_rows: int = NO_LIMIT,
        table_bytes: int = NO_LIMIT,
        max_table_bytes: int = NO_LIMIT,
    ) -> None:
        self._max_bytes = max_bytes
        self._table = MessageTable() if table is None else table
        head_bytes = max(max_bytes // _HEAD_SHARE, _LEAST_HEAD_BYTES)
        self._table.max_head_bytes = min(head_bytes, NO_LIMIT)
        self._table.max_pairs = min(
            max(max_bytes // _PAIR_BYTES, _LEAST_PAIRS), NO_LIMIT
        )
        self._table_rows = min(table_rows, NO_LIMIT)
        self._max_table_bytes = max_table_bytes
        self._table_bytes = min(table_bytes, max_table_bytes)

    def pieces(self, stored: StoredEntry) -> Iterator[Entry]:
        """Unpack an entry into messages, at most a table's worth at a time.

        Yields at least one piece, which is empty if the entry has no messages.

        Args:
            stored: A whole entry, or a message put together from its chunks. The
                latter's compressed payload is let go once it is unpacked, unless the
                caller keeps it.

        Raises:
            CorruptEntryError: The payload is encrypted, cannot be decompressed, is
                larger than ``max_bytes``, or is not the batch that its metadata
                promises; or a message has too much metadata. Pieces that were
                yielded before then belong to a bad entry.
        """
        metadata = stored.metadata
        if stored.is_marker:
            yield self._entry(stored, self._table.rows)
            return
        if metadata.encryption_keys:
            name = foreign_text(str(metadata.encryption_keys[0].key))
            raise CorruptEntryError(f"it is encrypted with the key {name!r}.")
        payload: bytes | memoryview = stored.payload
        if stored.first_chunk is not None:  # it may be large
            stored = replace(stored, payload=b"")
        if metadata.compression:
            payload = decompress(
                metadata.compression,
                payload,
                metadata.uncompressed_size,
                self._max_bytes,
            )
        if not metadata.HasField("num_messages_in_batch"):
            head = _head_of_single(stored, len(payload))
            payload = b"".join((len(head).to_bytes(4, "big"), head, payload))
            table = self._table_for(1, len(payload))
            first_row = table.rows
            table.append_batch(payload, 1, None, 0, 0, 0)
            del payload  # while the rows are used
            yield self._entry(stored, first_row)
            return
        yield from self._batch(stored, payload)

    def take(self, deliveries: Deliveries, first: int, last: int) -> EntryRun | None:
        """Unpack as many entries together as fit into a table.

        Up to the first that needs `pieces`, because it is damaged or too large.

        Args:
            deliveries: What came.
            first: The first entry.
            last: The first one not to take.

        Returns:
            The entries, at least one; None where the first one is for `pieces`.
        """
        table = self._table
        first_row = table.rows
        end = self._append(deliveries, first, last)
        if end == first and table.is_full:
            table = self._table = table.empty_like()
            first_row = 0
            end = self._append(deliveries, first, last)
        if end == first:
            return None
        return EntryRun(deliveries, first, end, table, first_row)

    def _append(self, deliveries: Deliveries, first: int, last: int) -> int:
        return self._table.append_entries(
            deliveries.data,
            deliveries.facts,
            first,
            last,
            self._table_rows,
            self._table_bytes,
            crc32c,
            self._unpack,
        )

    def _unpack(
        self, codec: int, payload: memoryview, size: int
    ) -> bytes | memoryview | None:
        try:
            return decompress(codec, payload, size, self._max_bytes)
        except CorruptEntryError:
            return None  # pieces() says why

    def _batch(
        self, stored: StoredEntry, payload: bytes | memoryview
    ) -> Iterator[Entry]:
        metadata = stored.metadata
        retained = _retained(metadata)
        promised = metadata.num_messages_in_batch
        count = promised if retained is None else len(retained)
        if promised < 0 or count > len(payload) // MIN_MESSAGE_BYTES:
            raise CorruptEntryError(
                f"its metadata promises a batch of {promised} messages in "
                f"{len(payload)} bytes."
            )
        first, last = metadata.sequence_id, metadata.highest_sequence_id
        # Where the ids of a batch have gaps, its first one has to do for all of them.
        has_no_gaps = last == first + promised - 1
        table = self._table_for(count, len(payload))
        number = position = 0
        while True:
            first_row = table.rows
            number = table.append_batch(
                payload,
                count,
                retained,
                metadata.event_time,
                first,
                int(has_no_gaps),
                number,
                position,
                self._table_rows,  # of an empty table; behind others it fits
                self._table_bytes,
            )
            position = table.next_position
            yield self._entry(stored, first_row, promised)
            if number == count:
                return
            table = self._table = table.empty_like()

    def _table_for(self, rows: int, size_bytes: int) -> MessageTable:
        """Return the current table, or a new table if the entry would not fit."""
        if size_bytes > self._max_table_bytes:
            raise CorruptEntryError(
                f"it has {size_bytes} bytes, more than a row can have: "
                f"{self._max_table_bytes}."
            )
        table = self._table
        if table.rows and (
            table.rows + rows > self._table_rows
            or table.size_bytes(0, table.rows) + size_bytes > self._table_bytes
        ):
            self._table = table.empty_like()
        return self._table

    def _entry(self, stored: StoredEntry, first_row: int, batch_size: int = 0) -> Entry:
        return Entry(
            stored.ledger_id,
            stored.entry_id,
            stored.metadata,
            batch_size,
            self._table,
            first_row,
            self._table.rows,
            stored.broker_metadata,
            stored.redelivery_count,
            stored.first_chunk,
        )


def _head_of_single(stored: StoredEntry, payload_size: int) -> bytes:
    """Return the SingleMessageMetadata of a message that is not in a batch.

    Put together by hand, because protobuf refuses to write text that is not UTF-8,
    while it does read it.
    """
    metadata = stored.metadata
    parts = [stored.properties]
    for pair in metadata.properties:
        parts += _field(0x0A, pair.SerializeToString())
    if metadata.HasField("partition_key"):
        parts += _field(0x12, _utf8(metadata.partition_key))
    parts += b"\x18", encode_varint(payload_size)
    if metadata.event_time:
        parts += b"\x28", encode_varint(metadata.event_time)
    if metadata.partition_key_b64_encoded:
        parts.append(b"\x30\x01")
    if metadata.HasField("ordering_key"):
        parts += _field(0x3A, metadata.ordering_key)
    parts += b"\x40", encode_varint(metadata.sequence_id)
    if metadata.null_value:
        parts.append(b"\x48\x01")
    return b"".join(parts)


def _field(tag: int, data: bytes) -> tuple[bytes, bytes, bytes]:
    return bytes((tag,)), encode_varint(len(data)), data


def _utf8(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _retained(metadata: pb.MessageMetadata) -> Sequence[int] | None:
    """Return the messages of a batch that the payload retains; None for all."""
    # Brokers newer than 4.0 may store only what compaction retained, and say which.
    retained = metadata.compacted_batch_indexes
    if not retained:
        return None
    count = metadata.num_messages_in_batch
    edges = chain((-1,), retained, (count,))
    if any(first >= second for first, second in pairwise(edges)):
        raise CorruptEntryError(
            f"its metadata names {len(retained)} messages that compaction retained, "
            f"but not in ascending order within a batch of {count}."
        )
    return retained
