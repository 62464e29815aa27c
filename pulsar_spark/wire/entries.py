"""One stored entry <-> the messages in it: batches, singles, chunks, compaction.

An entry is what one SEND stored and one MESSAGE delivers. Its metadata says which of
three forms the payload has::

    num_messages_in_batch absent:   payload                            one message
    num_messages_in_batch present:  [size(4) SingleMessageMetadata payload] x n
    num_chunks_from_msg > 1:        a piece of one message, see chunks.py

Presence decides, not the value: clients do send batches of one. Compression covers the
whole payload of a batch, or of a message after its chunks were put together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import decompress
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES, split_entry

if TYPE_CHECKING:
    from pulsar_spark.offsets import MessageId

    #: What describes one message: its own metadata in a batch, else the entry's. Both
    #: have the fields partition_key, ordering_key, event_time, sequence_id, properties.
    MessageFields = pb.SingleMessageMetadata | pb.MessageMetadata

_read_size = struct.Struct(">I").unpack_from


@dataclass(slots=True)
class Entry:
    """The messages of one entry, column by column.

    Attributes:
        ledger_id, entry_id: Where the entry is stored; for a chunked message, where its
            last chunk is.
        metadata: The entry's own metadata (of the first chunk for a chunked message).
        batch_size: Messages the entry was written with; 0 where it is not a batch.
        batch_indexes: For each message kept, its place in the batch as written;
            ``(0,)`` where the entry is not a batch.
        fields: For each message kept, the metadata that describes it.
        payloads: For each message kept, its bytes, or None for a null value.
        size_bytes: Uncompressed size of the messages, metadata of a batch included.
        broker_metadata: What the broker stamped on the entry, where it exposes that.
        redelivery_count: How often the broker had delivered it before.
        first_chunk: ``(ledger_id, entry_id)`` of the first chunk of a chunked message.
    """

    ledger_id: int
    entry_id: int
    metadata: pb.MessageMetadata
    batch_size: int
    batch_indexes: Sequence[int]
    fields: Sequence[MessageFields]
    payloads: Sequence[bytes | None]
    size_bytes: int
    broker_metadata: pb.BrokerEntryMetadata | None = None
    redelivery_count: int = 0
    first_chunk: tuple[int, int] | None = None

    @property
    def position(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    def __len__(self) -> int:
        return len(self.payloads)

    def between(self, start: MessageId | None, end: MessageId | None) -> Entry:
        """Keeps the messages from ``start`` to ``end``, both inclusive.

        Args:
            start: Only its batch index matters, and only where it names this very
                entry; -1 stands for the whole entry. None keeps the head.
            end: Likewise for the tail. A later entry than ``end`` is cut off entirely,
                as is an earlier one than ``start``.
        """
        low, high = 0, None
        if start is not None:
            if self.position < start.position:
                return self.cut(0, 0)
            if self.position == start.position and start.batch_index > 0:
                low = start.batch_index
        if end is not None:
            if self.position > end.position:
                return self.cut(0, 0)
            if self.position == end.position and end.batch_index >= 0:
                high = end.batch_index
        if low == 0 and (high is None or high >= max(self.batch_size - 1, 0)):
            return self
        return self.cut(*self._slice(low, high))

    def _slice(self, low: int, high: int | None) -> tuple[int, int]:
        """The part of the kept messages whose batch indexes are in ``low..high``."""
        indexes = self.batch_indexes
        first = sum(index < low for index in indexes)
        last = sum(high is None or index <= high for index in indexes)
        return first, max(first, last)

    def cut(self, first: int, last: int) -> Entry:
        """The kept messages ``first`` (inclusive) to ``last`` (exclusive)."""
        payloads = self.payloads[first:last]
        return Entry(
            self.ledger_id,
            self.entry_id,
            self.metadata,
            self.batch_size,
            self.batch_indexes[first:last],
            self.fields[first:last],
            payloads,
            sum(len(payload) for payload in payloads if payload),
            self.broker_metadata,
            self.redelivery_count,
            self.first_chunk,
        )


@dataclass(slots=True)
class StoredEntry:
    """An entry whose metadata is read and whose payload is still as it was stored.

    Attributes:
        ledger_id, entry_id: Where it is stored.
        metadata: Its MessageMetadata.
        payload: Its bytes as transmitted: possibly compressed, possibly one chunk.
        broker_metadata: What the broker stamped on it, where it exposes that.
        redelivery_count: How often the broker had delivered it before.
        first_chunk: ``(ledger_id, entry_id)`` of the first chunk of a chunked message
            that was put together, else None.
    """

    ledger_id: int
    entry_id: int
    metadata: pb.MessageMetadata
    payload: memoryview | bytes
    broker_metadata: pb.BrokerEntryMetadata | None = None
    redelivery_count: int = 0
    first_chunk: tuple[int, int] | None = None

    @property
    def position(self) -> tuple[int, int]:
        """``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    @property
    def is_marker(self) -> bool:
        """Whether it is the broker's own note on a transaction or on replication."""
        return self.metadata.HasField("marker_type")

    @property
    def is_chunk(self) -> bool:
        """Whether it holds only a piece of a message."""
        return self.metadata.num_chunks_from_msg > 1

    @property
    def charged_messages(self) -> int:
        """The Flow permits that the broker takes for it."""
        if self.metadata.HasField("num_messages_in_batch"):
            return max(1, self.metadata.num_messages_in_batch)
        return 1


def read_stored_entry(
    ledger_id: int,
    entry_id: int,
    headers_and_payload: memoryview,
    *,
    redelivery_count: int = 0,
) -> StoredEntry:
    """Checks an entry's checksum and reads its metadata.

    Args:
        ledger_id, entry_id: From the MESSAGE command.
        headers_and_payload: Everything after that command in its frame.
        redelivery_count: From the MESSAGE command.

    Raises:
        CorruptEntryError: The checksum is wrong, or the metadata is not metadata.
    """
    parts = split_entry(headers_and_payload)
    try:
        metadata = pb.MessageMetadata.FromString(bytes(parts.metadata))
        broker_metadata = (
            None
            if parts.broker_entry_metadata is None
            else pb.BrokerEntryMetadata.FromString(bytes(parts.broker_entry_metadata))
        )
    except DecodeError as error:
        raise CorruptEntryError(f"its metadata is damaged ({error}).") from None
    return StoredEntry(
        ledger_id,
        entry_id,
        metadata,
        parts.payload,
        broker_metadata,
        redelivery_count,
    )


def decode_entry(
    stored: StoredEntry,
    *,
    max_bytes: int = DEFAULT_MAX_MESSAGE_SIZE_BYTES,
) -> Entry:
    """Unpacks an entry into its messages; a marker has none.

    Args:
        stored: A whole entry, or a message put together from its chunks.
        max_bytes: The largest uncompressed payload to make room for.

    Raises:
        CorruptEntryError: The payload is encrypted, cannot be decompressed, is larger
            than ``max_bytes``, or is not the batch that its metadata promises.
    """
    metadata = stored.metadata
    if stored.is_marker:
        return _entry(stored, 0, (), (), (), 0)
    if metadata.encryption_keys:
        name = metadata.encryption_keys[0].key
        raise CorruptEntryError(
            f"it is encrypted with the key {name!r}, and this version of pulsar_spark "
            "cannot decrypt. Read a topic that is not encrypted."
        )
    payload = bytes(stored.payload)
    if metadata.compression:
        payload = bytes(
            decompress(
                metadata.compression, payload, metadata.uncompressed_size, max_bytes
            )
        )
    if metadata.HasField("num_messages_in_batch"):
        return _decode_batch(stored, payload)
    value = None if metadata.null_value and not payload else payload
    return _entry(stored, 0, (0,), (metadata,), (value,), len(payload))


def _entry(
    stored: StoredEntry,
    batch_size: int,
    batch_indexes: Sequence[int],
    fields: Sequence[MessageFields],
    payloads: Sequence[bytes | None],
    size_bytes: int,
) -> Entry:
    return Entry(
        stored.ledger_id,
        stored.entry_id,
        stored.metadata,
        batch_size,
        batch_indexes,
        fields,
        payloads,
        size_bytes,
        stored.broker_metadata,
        stored.redelivery_count,
        stored.first_chunk,
    )


def _decode_batch(stored: StoredEntry, payload: bytes) -> Entry:
    """Splits a batch. Removed messages of a compacted batch keep their index."""
    metadata = stored.metadata
    batch_size = metadata.num_messages_in_batch
    # Brokers newer than 4.0 may store only what compaction retained, and say which.
    retained = list(metadata.compacted_batch_indexes)
    count = len(retained) or batch_size
    fields, payloads = _split_batch(payload, count)
    indexes: Sequence[int] = retained or range(batch_size)
    if None not in payloads:
        return _entry(stored, batch_size, indexes, fields, payloads, len(payload))
    kept = [i for i, single in enumerate(fields) if not single.compacted_out]
    return _entry(
        stored,
        batch_size,
        [indexes[i] for i in kept],
        [fields[i] for i in kept],
        [_value(fields[i], payloads[i]) for i in kept],
        len(payload),
    )


def _value(single: pb.SingleMessageMetadata, payload: bytes | None) -> bytes | None:
    if payload is not None:
        return payload
    return None if single.null_value else b""


def _split_batch(
    payload: bytes, count: int
) -> tuple[list[pb.SingleMessageMetadata], list[bytes | None]]:
    """Walks ``[size(4) SingleMessageMetadata payload] x count``.

    The hot loop of reading: about 0.8 us a message of 100 bytes. An empty payload comes
    back as None, so that whoever cares (null, empty or removed) looks only at those.
    """
    size = len(payload)
    if not 0 <= count <= size // 4:
        raise CorruptEntryError(
            f"its metadata promises a batch of {count} messages in {size} bytes."
        )
    parse = pb.SingleMessageMetadata.FromString
    fields: list[pb.SingleMessageMetadata] = []
    payloads: list[bytes | None] = []
    position = 0
    try:
        for _ in range(count):
            start = position + 4
            end = start + _read_size(payload, position)[0]
            single = parse(payload[start:end])
            length = single.payload_size
            position = end + length
            if length < 0 or position > size:
                raise CorruptEntryError(_past_the_end(len(fields), count))
            fields.append(single)
            payloads.append(payload[end:position] if length else None)
    except struct.error:
        raise CorruptEntryError(_past_the_end(len(fields), count)) from None
    except DecodeError as error:
        raise CorruptEntryError(
            f"the metadata of message {len(fields)} of {count} in its batch is damaged "
            f"({error})."
        ) from None
    if position != size:
        raise CorruptEntryError(
            f"{size - position} bytes follow the last of the {count} messages in its "
            "batch."
        )
    return fields, payloads


def _past_the_end(index: int, count: int) -> str:
    return f"message {index} of {count} in its batch runs past the end of the entry."
