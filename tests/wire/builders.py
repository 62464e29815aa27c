# SPDX-License-Identifier: Apache-2.0
"""Frames and entries as a broker would send them, written without our own code.

Protobuf fields are laid out byte by byte here, so that neither the generated classes
nor ``pulsar_spark.wire`` take part in making what they are to read. Only the checksum
is the library's, which ``test_frames.py`` holds to the published check value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import lz4.block
import pyarrow as pa
from crc32c import crc32c

U64_MAX = 2**64 - 1

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
CODECS = (NONE, LZ4, ZLIB, ZSTD, SNAPPY)

#: Types of BaseCommand, each the number of its body's field, too.
CONNECTED, MESSAGE, SUCCESS, ERROR, CLOSE_CONSUMER = 3, 9, 13, 14, 16
PING, PONG, AUTH_CHALLENGE = 18, 19, 36


def varint(number: int) -> bytes:
    """A number as protobuf writes it; negative ones take ten bytes."""
    number &= U64_MAX
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def proto(*fields: tuple[int, int | bytes | str | None]) -> bytes:
    """A protobuf message of numbers, bytes and texts; fields of None are left out."""
    out = b""
    for number, value in fields:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif value is not None:
            out += varint(number << 3) + varint(value)
    return out


def command(kind: int, *body: tuple[int, int | bytes | str | None]) -> bytes:
    """A BaseCommand."""
    return proto((1, kind), (kind, proto(*body)))


def frame(base_command: bytes, behind: bytes = b"") -> bytes:
    """A frame, with what follows the command in it."""
    sizes = struct.pack(">II", 4 + len(base_command) + len(behind), len(base_command))
    return sizes + base_command + behind


def connected(max_message_size: int | None = None, version: str = "Pulsar") -> bytes:
    """CONNECTED, framed."""
    return frame(command(CONNECTED, (1, version), (2, 21), (3, max_message_size)))


def message(
    entry: bytes, *, ledger_id: int = 7, entry_id: int = 3, consumer_id: int = 1
) -> bytes:
    """MESSAGE with an entry behind it, framed."""
    place = proto((1, ledger_id), (2, entry_id))
    return frame(command(MESSAGE, (1, consumer_id), (2, place)), entry)


def with_headers(
    metadata: bytes,
    payload: bytes,
    *,
    checksum: bool = True,
    broker_metadata: bytes | None = None,
) -> bytes:
    """Headers and payload of an entry."""
    rest = struct.pack(">I", len(metadata)) + metadata + payload
    if checksum:
        rest = struct.pack(">HI", 0x0E01, crc32c(rest)) + rest
    if broker_metadata is not None:
        size = len(broker_metadata)
        rest = struct.pack(">HI", 0x0E02, size) + broker_metadata + rest
    return rest


def compress(codec: int, data: bytes) -> bytes:
    """The forms of the wire; ZLIB as Java writes it."""
    if codec == LZ4:
        return bytes(lz4.block.compress(data, store_size=False))
    if codec == ZLIB:
        packer = zlib.compressobj()
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    if codec in (ZSTD, SNAPPY):
        name = "zstd" if codec == ZSTD else "snappy"
        return bytes(pa.compress(data, name, asbytes=True))
    return data


@dataclass(frozen=True)
class Sent:
    """One message, as an application hands it to a producer.

    Attributes:
        payload: None for a null value.
        key: Text; bytes for one that is sent in base64.
        removed: Whether compaction took it away.
    """

    payload: bytes | None = b"payload"
    key: str | bytes | None = None
    ordering_key: bytes | None = None
    event_time: int | None = None
    sequence_id: int | None = None
    properties: Sequence[tuple[str, str]] = ()
    removed: bool = False

    @property
    def wire_key(self) -> str | None:
        """The key as it travels."""
        if isinstance(self.key, bytes):
            import base64

            return base64.b64encode(self.key).decode()
        return self.key

    @property
    def wire_payload(self) -> bytes:
        """The payload as it travels."""
        return b"" if self.payload is None or self.removed else self.payload


def _properties(
    number: int, pairs: Iterable[tuple[str, str]]
) -> list[tuple[int, bytes]]:
    return [(number, proto((1, key), (2, value))) for key, value in pairs]


def single_metadata(sent: Sent, payload_size: int | None = None) -> bytes:
    """SingleMessageMetadata of a message in a batch."""
    size = len(sent.wire_payload) if payload_size is None else payload_size
    return proto(
        *_properties(1, sent.properties),
        (2, sent.wire_key),
        (3, size),
        (4, 1 if sent.removed else None),
        (5, sent.event_time),
        (6, 1 if isinstance(sent.key, bytes) else None),
        (7, sent.ordering_key),
        (8, sent.sequence_id),
        (9, 1 if sent.payload is None else None),
    )


def batch_payload(messages: Iterable[Sent]) -> bytes:
    """The messages of a batch, not compressed."""
    out = b""
    for sent in messages:
        head = single_metadata(sent)
        out += struct.pack(">I", len(head)) + head + sent.wire_payload
    return out


@dataclass(frozen=True)
class Outer:
    """What the entry itself says, whatever its messages are."""

    producer_name: str | bytes = "producer"
    sequence_id: int = 5
    publish_time: int = 1_700_000_000_000
    event_time: int | None = None
    key: str | None = None
    codec: int = NONE
    extra: tuple[tuple[int, int | bytes | str], ...] = field(default=())

    def metadata(self, *more: tuple[int, int | bytes | str | None]) -> bytes:
        """MessageMetadata."""
        return proto(
            (1, self.producer_name),
            (2, self.sequence_id),
            (3, self.publish_time),
            *more,
            *self.extra,
        )

    def _sized(self, payload: bytes) -> tuple[tuple[int, int | None], ...]:
        codec = self.codec or None
        return (8, codec), (9, len(payload) if codec else None)


def batch(messages: Sequence[Sent], outer: Outer = Outer(), **headers: object) -> bytes:
    """An entry that is a batch."""
    payload = batch_payload(messages)
    metadata = outer.metadata(
        (6, outer.key),
        *outer._sized(payload),
        (11, len(messages)),
        (12, outer.event_time),
    )
    return with_headers(metadata, compress(outer.codec, payload), **headers)


def single(sent: Sent, outer: Outer = Outer(), **headers: object) -> bytes:
    """An entry that is one message."""
    payload = sent.wire_payload
    metadata = outer.metadata(
        *_properties(4, sent.properties),
        (6, sent.wire_key),
        *outer._sized(payload),
        (12, sent.event_time),
        (17, 1 if isinstance(sent.key, bytes) else None),
        (18, sent.ordering_key),
        (25, 1 if sent.payload is None else None),
    )
    return with_headers(metadata, compress(outer.codec, payload), **headers)


def chunk(
    piece: bytes,
    index: int,
    count: int,
    total: int,
    *,
    uuid: str | bytes = "u",
    outer: Outer = Outer(),
    uncompressed_size: int | None = None,
) -> bytes:
    """An entry that is a piece of a message; ``piece`` is compressed already."""
    metadata = outer.metadata(
        (8, outer.codec or None),
        (9, uncompressed_size),
        (26, uuid),
        (27, count),
        (28, total),
        (29, index),
    )
    return with_headers(metadata, piece)


def sized(head: bytes, size: int | None = None) -> bytes:
    """Metadata of a message in a batch, with its size or a lie about it in front."""
    return struct.pack(">I", len(head) if size is None else size) + head
