# SPDX-License-Identifier: Apache-2.0
"""Entries as producers make them: a message, a batch, chunks, by protobuf itself.

Each is its MessageMetadata and its payload; `decode_entry` is the way back. What a
producer adds (its name, a sequence id, a publish time) is left to whoever stores it.
``tests/wire/builders.py`` makes the bytes without protobuf, to hold the package
against.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pulsar_spark.wire import entries
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import compress
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES

Properties = Mapping[str, str] | Iterable[tuple[str, str]]
Entry = tuple[pb.MessageMetadata, bytes]


def message(
    value: bytes | None,
    *,
    key: str | bytes | None = None,
    properties: Properties = (),
    compression: int = 0,
    **fields: Any,
) -> Entry:
    """Return an entry that is one message, not a batch.

    Args:
        value: None for a null value.
        key: Bytes travel as base64, as the Java client's ``keyBytes`` does.
        properties: Key-value pairs.
        compression: A CompressionType.
        **fields: Further fields of MessageMetadata.
    """
    metadata = pb.MessageMetadata(**fields)
    _describe(metadata, value, key, properties)
    return metadata, _compressed(metadata, value or b"", compression)


def member(
    value: bytes | None,
    *,
    key: str | bytes | None = None,
    properties: Properties = (),
    **fields: Any,
) -> bytes:
    """Return a message as a batch holds it; arguments as for :func:`message`."""
    single = pb.SingleMessageMetadata(payload_size=len(value or b""), **fields)
    _describe(single, value, key, properties)
    described = single.SerializeToString()
    return struct.pack(">I", len(described)) + described + (value or b"")


def batch(members: Sequence[bytes], *, compression: int = 0, **fields: Any) -> Entry:
    """Return an entry that is a batch of what :func:`member` returned."""
    payload = b"".join(members)
    metadata = pb.MessageMetadata(num_messages_in_batch=len(members), **fields)
    return metadata, _compressed(metadata, payload, compression)


def members_of(payload: bytes) -> Iterator[tuple[pb.SingleMessageMetadata, bytes]]:
    """Yield what is said of each message of a batch, and its value."""
    offset = 0
    while offset < len(payload):
        (size,) = struct.unpack_from(">I", payload, offset)
        value_at = offset + 4 + size
        single = pb.SingleMessageMetadata.FromString(payload[offset + 4 : value_at])
        offset = value_at + single.payload_size
        yield single, payload[value_at:offset]


def chunks(value: bytes, pieces: int, uuid: str, **fields: Any) -> list[Entry]:
    """Return the entries of a chunked message, in order; send whichever, whenever.

    All of them carry the publish time of this call, as a producer's do.
    """
    size = -(-len(value) // pieces)
    fields.setdefault("publish_time", time.time_ns() // 1_000_000)
    return [
        (
            pb.MessageMetadata(
                uuid=uuid,
                chunk_id=i,
                num_chunks_from_msg=pieces,
                total_chunk_msg_size=len(value),
                **fields,
            ),
            value[i * size : (i + 1) * size],
        )
        for i in range(pieces)
    ]


def decode_entry(
    stored: entries.StoredEntry, *, max_bytes: int = DEFAULT_MAX_MESSAGE_SIZE_BYTES
) -> entries.Entry:
    """Return a stored entry whole, however large."""
    (entry,) = entries.EntryDecoder(max_bytes).pieces(stored)
    return entry


def _describe(
    metadata: pb.MessageMetadata | pb.SingleMessageMetadata,
    value: bytes | None,
    key: str | bytes | None,
    properties: Properties,
) -> None:
    if value is None:
        metadata.null_value = True
    if isinstance(key, bytes):
        metadata.partition_key = base64.b64encode(key).decode()
        metadata.partition_key_b64_encoded = True
    elif key is not None:
        metadata.partition_key = key
    pairs = properties.items() if isinstance(properties, Mapping) else properties
    for name, text in pairs:
        metadata.properties.add(key=name, value=text)


def _compressed(
    metadata: pb.MessageMetadata, payload: bytes, compression: int
) -> bytes:
    if not compression:
        return payload
    metadata.compression = compression
    metadata.uncompressed_size = len(payload)
    return bytes(compress(compression, payload))
