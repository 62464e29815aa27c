# SPDX-License-Identifier: Apache-2.0
"""Entries to store: messages -> MessageMetadata and payload -> SEND frames.

The reverse of ``wire.entries``. A frame is built once and sent as often as it takes:
what a broker compares to find duplicates is in it, in the command and in the metadata::

    | totalSize cmdSize | CommandSend | 0x0e01 crc | mdSize MessageMetadata | payload |
                         sequence ids ------------------ the same

Source: "Pulsar binary protocol specification", section "Producer"; CommandSend and
MessageMetadata in PulsarApi.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pulsar_spark.errors import MessageTooLargeError
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import CompressionType, compress
from pulsar_spark.wire.frames import encode_payload_frame

#: Room that is left below the broker's limit. It is for what the broker and its storage
#: put around an entry: a cluster whose bookies take exactly as much as its brokers
#: neither stores an entry of just that size, nor refuses it.
ENTRY_HEADROOM_BYTES = 64 * 1024

#: Frames of so many bytes are made and sent together, with one call of the system. That
#: there is one costs as much as to copy some ten kilobytes, and it wakes the broker.
SENT_TOGETHER_BYTES = 64 * 1024


def max_entry_bytes(max_message_size_bytes: int) -> int:
    """Return the most bytes of metadata and payload, where a broker has this limit."""
    # Half of it where the limit is tiny.
    limit = max_message_size_bytes
    return max(limit - ENTRY_HEADROOM_BYTES, limit // 2)


class Encryption(Protocol):
    """Encrypts a producer's payloads: whole entries, and each chunk separately."""

    @property
    def overhead_bytes(self) -> int:
        """Return the bytes that encryption adds to an entry's metadata and payload."""

    def encrypt(self, payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return what metadata say of the encryption, and the encrypted payload.

        Args:
            payload: Compressed already, if it is to be.

        Returns:
            Fields of MessageMetadata, and the payload.
        """


@dataclass(frozen=True)
class EntryEncoder:
    """Builds the frames of a producer.

    Attributes:
        producer_id: Of the producer.
        producer_name: As the broker knows it.
        max_message_size_bytes: The broker's limit for metadata and payload of an entry.
        compression: Of payloads.
        txn: Transaction that the entries are part of.
        chunk_bytes: Most bytes of a message in one entry, if it may be cut into
            several; 0 if it may not.
        schema_version: Of the schema that payloads were written with; empty for none.
        encryption: Of payloads; None where they stay as they are.
    """

    producer_id: int
    producer_name: str
    max_message_size_bytes: int
    compression: CompressionType = CompressionType.NONE
    txn: TxnId | None = None
    chunk_bytes: int = 0
    schema_version: bytes = b""
    encryption: Encryption | None = None

    @property
    def max_entry_bytes(self) -> int:
        """Return the largest metadata and payload of an entry: more is never sent."""
        return max_entry_bytes(self.max_message_size_bytes)

    @property
    def overhead_bytes(self) -> int:
        """Return by how much encryption makes an entry larger."""
        return 0 if self.encryption is None else self.encryption.overhead_bytes

    def single(
        self,
        metadata: pb.MessageMetadata,
        payload: bytes | memoryview,
        sequence_id: int,
        publish_time_ms: int,
    ) -> Iterator[SendFrame]:
        """Yield the frame of an unbatched message, or the frames of its chunks.

        Args:
            metadata: Key, properties and the like; completed here.
            payload: The message.
            sequence_id: Its own.
            publish_time_ms: Its own.

        Raises:
            MessageTooLargeError: It does not fit into an entry, and must not be cut.
        """
        body = self._compress(metadata, payload)
        if metadata.null_value:
            # Without a size compaction counts the metadata, and takes it for a value.
            metadata.uncompressed_size = 0
        self._describe(metadata, sequence_id, publish_time_ms)
        overhead_bytes = metadata.ByteSize() + self.overhead_bytes
        room = self.max_entry_bytes - overhead_bytes
        if self.chunk_bytes and room > 0:
            room = min(room, self.chunk_bytes)
        if len(body) <= room:
            yield self._frame(metadata, body, 1)
            return
        # Each chunk describes itself by some numbers and the uuid besides.
        uuid_bytes = len(self._uuid(sequence_id).encode())
        piece_bytes = room - uuid_bytes - _CHUNK_FIELDS_BYTES
        if not self.chunk_bytes or piece_bytes <= 0:
            raise MessageTooLargeError(
                size_bytes=overhead_bytes + len(body),
                limit_bytes=self.max_entry_bytes,
                chunk_bytes=self.chunk_bytes,
            )
        yield from self._chunks(metadata, body, piece_bytes)

    def _chunks(
        self, metadata: pb.MessageMetadata, body: bytes | memoryview, piece_bytes: int
    ) -> Iterator[SendFrame]:
        view = memoryview(body)
        count = -(-len(view) // piece_bytes)
        metadata.uuid = self._uuid(metadata.sequence_id)
        metadata.num_chunks_from_msg = count
        metadata.total_chunk_msg_size = len(view)
        for chunk_id in range(count):
            metadata.chunk_id = chunk_id
            piece = view[chunk_id * piece_bytes : (chunk_id + 1) * piece_bytes]
            yield self._frame(metadata, piece, int(chunk_id == count - 1))

    def _uuid(self, sequence_id: int) -> str:
        return f"{self.producer_name}-{sequence_id}"

    def _compress(
        self, metadata: pb.MessageMetadata, payload: bytes | memoryview
    ) -> bytes | memoryview:
        # The C++ client, and those built on it, take compressed nothing for damage.
        if self.compression is CompressionType.NONE or not payload:
            return payload
        metadata.compression = self.compression
        metadata.uncompressed_size = len(payload)
        return compress(self.compression, payload)

    def _describe(
        self,
        metadata: pb.MessageMetadata,
        sequence_id: int,
        publish_time_ms: int,
    ) -> None:
        metadata.producer_name = self.producer_name
        metadata.sequence_id = metadata.highest_sequence_id = sequence_id
        metadata.publish_time = publish_time_ms
        if self.schema_version:
            metadata.schema_version = self.schema_version
        if self.txn is not None:
            metadata.txnid_most_bits = self.txn.most
            metadata.txnid_least_bits = self.txn.least

    def _frame(
        self, metadata: pb.MessageMetadata, body: bytes | memoryview, rows: int
    ) -> SendFrame:
        if self.encryption is not None:
            fields, body = self.encryption.encrypt(body)
            metadata.ClearField("encryption_keys")  # of the chunk before
            metadata.MergeFromString(fields)
        number = metadata.sequence_id
        send = pb.CommandSend(
            producer_id=self.producer_id,
            sequence_id=number,
            highest_sequence_id=number,
        )
        if metadata.HasField("chunk_id"):
            send.is_chunk = True
        if self.txn is not None:
            # In both: a broker counts by the one, and hides by the other.
            send.txnid_most_bits = self.txn.most
            send.txnid_least_bits = self.txn.least
        command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send)
        data = encode_payload_frame(
            command.SerializeToString(), metadata.SerializeToString(), body
        )
        return SendFrame(number, number, rows, data)


#: uuid's own tag and length, chunk_id, num_chunks_from_msg, total_chunk_msg_size: at
#: most five bytes a number and two a tag.
_CHUNK_FIELDS_BYTES = 4 * 2 + 4 * 5


def as_single(message: memoryview) -> tuple[pb.MessageMetadata, memoryview]:
    """Turn a message of a batch into an entry of a single message.

    Args:
        message: ``size(4) SingleMessageMetadata payload``.

    Returns:
        What is said of the message, and its payload.
    """
    (size,) = _SIZE.unpack_from(message)
    single = pb.SingleMessageMetadata.FromString(bytes(message[4 : 4 + size]))
    metadata = pb.MessageMetadata(properties=single.properties)
    for name in _COMMON_FIELDS:
        if single.HasField(name):
            setattr(metadata, name, getattr(single, name))
    return metadata, message[4 + size :]


_SIZE = struct.Struct(">I")

#: What both kinds of metadata call by one name, properties apart.
_COMMON_FIELDS: tuple[Any, ...] = (
    "partition_key",
    "partition_key_b64_encoded",
    "ordering_key",
    "event_time",
    "null_value",
    "null_partition_key",
)
