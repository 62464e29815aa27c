# SPDX-License-Identifier: Apache-2.0
"""Codecs of a payload, under the wire's names and numbers, both directions.

======  ===  ======================================================================
codec   no.  form on the wire
======  ===  ======================================================================
NONE    0    the payload itself
LZ4     1    raw block: no frame, no size in front
ZLIB    2    zlib stream; Java flushes it but leaves out its trailer
ZSTD    3    standard frame
SNAPPY  4    raw block that starts with its uncompressed length as a varint
======  ===  ======================================================================

No size is trusted: the metadata's uncompressed_size is checked against the caller's
limit before memory is reserved, and the size of the result against uncompressed_size
afterwards.

Source: CompressionType in PulsarApi.proto; the forms were seen on the wire.
"""

from __future__ import annotations

import functools
import zlib
from enum import IntEnum
from typing import Protocol, cast

import lz4.block

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops.messages import KERNEL, lz4_size
from pulsar_spark.wire.zstd import contexts


class CompressionType(IntEnum):
    """Numbers of the codecs in MessageMetadata.compression."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


# Small entries come in such numbers that looking these up in the enum would show.
_CODECS = {int(codec): codec for codec in CompressionType}
_LZ4, _ZLIB, _ZSTD = CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD

#: lz4 takes sizes as a C int and no block format goes further.
_MAX_SIZE_BYTES = 2**31 - 1

#: A payload that is larger is not held twice while it is decompressed, as lz4 and zlib
#: do, which are faster with small ones.
_LARGE_BYTES = 4 * 1024 * 1024

#: What zlib is given, and what is taken from it, at a time.
_INPUT_BYTES = 64 * 1024
_OUTPUT_BYTES = 1024 * 1024


class _ArrowCodec(Protocol):
    """What we use of a pyarrow.Codec."""

    def compress(self, buf: bytes | memoryview, asbytes: bool) -> bytes: ...

    def decompress(
        self, buf: bytes | memoryview, decompressed_size: int, asbytes: bool
    ) -> bytes: ...


@functools.cache
def _arrow_codec(name: str) -> _ArrowCodec:
    # Imported late: most topics need none of these, and the import is slow.
    import pyarrow as pa

    return cast("_ArrowCodec", pa.Codec(name))


def decompress(
    kind: int, data: bytes | memoryview, uncompressed_size: int, max_bytes: int
) -> bytes | memoryview:
    """Return the decompressed payload.

    Args:
        kind: MessageMetadata.compression, a CompressionType or any other number.
        data: The payload as it was transmitted, but decrypted.
        uncompressed_size: MessageMetadata.uncompressed_size, in bytes. Without
            compression it may be missing and is not looked at.
        max_bytes: Largest uncompressed payload to reserve memory for.

    Returns:
        Exactly uncompressed_size bytes; for NONE `data` itself.

    Raises:
        CorruptEntryError: The codec is unknown, the payload is damaged or has another
            size than its metadata says, or it is larger than max_bytes.
    """
    if kind == 0:
        return data
    codec = _CODECS.get(kind)
    if codec is None:
        raise CorruptEntryError(
            f"its payload is compressed with codec number {kind}, which this version "
            "of pulsar_spark does not know."
        )
    if uncompressed_size > min(max_bytes, _MAX_SIZE_BYTES):
        raise CorruptEntryError(
            f"its payload needs {uncompressed_size} bytes when decompressed, more than "
            f"the {max_bytes} bytes that are allowed. If its size is right, raise "
            "pulsar.client.memoryLimitBytes."
        )
    result = _decompress(codec, data, uncompressed_size)
    if len(result) != uncompressed_size:
        raise CorruptEntryError(_wrong_size(codec, uncompressed_size))
    return result


def _decompress(
    codec: CompressionType, data: bytes | memoryview, uncompressed_size: int
) -> bytes | memoryview:
    is_large = uncompressed_size > _LARGE_BYTES
    try:
        if codec is _LZ4 and is_large and KERNEL == "compiled":
            # As with Snappy: Arrow does not say how much it found.
            if lz4_size(data) != uncompressed_size:
                raise CorruptEntryError(_wrong_size(codec, uncompressed_size))
            return _arrow_codec("lz4_raw").decompress(data, uncompressed_size, True)
        if codec is _LZ4:
            unpacked: bytes = lz4.block.decompress(
                data, uncompressed_size=uncompressed_size
            )
            return unpacked
        if codec is _ZLIB and is_large:
            return _inflate(data, uncompressed_size)
        if codec is _ZLIB:
            # One byte more than wanted tells a longer result, at no cost; and 0 would
            # mean "no limit". An object, unlike zlib.decompress, needs no trailer.
            return zlib.decompressobj().decompress(data, uncompressed_size + 1)
        if codec is _ZSTD:
            return _unpack_zstd(data, uncompressed_size)
        assert codec is CompressionType.SNAPPY, codec
        if _snappy_size(data) != uncompressed_size:
            raise CorruptEntryError(_wrong_size(codec, uncompressed_size))
        return _arrow_codec("snappy").decompress(data, uncompressed_size, True)
    except (lz4.block.LZ4BlockError, zlib.error, OSError, ValueError) as error:
        # pyarrow's errors are OSError and ValueError.
        raise CorruptEntryError(
            f"its payload cannot be decompressed with {codec.name} to the "
            f"{uncompressed_size} bytes that its metadata says: {error}."
        ) from None


def _unpack_zstd(data: bytes | memoryview, size: int) -> bytes:
    if (zstd := contexts()) is not None:
        payload = zstd.decompress(data, size)
        if payload is not None:
            return payload
    # Arrow makes room for exactly this size and refuses any other result.
    return _arrow_codec("zstd").decompress(data, size, True)


def _inflate(data: bytes | memoryview, size: int) -> memoryview:
    """Return what zlib makes of the data, but no more than a byte above this size."""
    inflater = zlib.decompressobj()
    result = bytearray(size + 1)
    filled = 0
    rest = b""
    places = iter(range(0, len(data), _INPUT_BYTES))
    while filled <= size:
        if not rest and (place := next(places, None)) is not None:
            rest = bytes(data[place : place + _INPUT_BYTES])
            is_last = False
        else:
            is_last = not rest
        piece = inflater.decompress(rest, min(_OUTPUT_BYTES, size + 1 - filled))
        result[filled : filled + len(piece)] = piece
        filled += len(piece)
        rest = inflater.unconsumed_tail
        if is_last and not piece:
            break
    return memoryview(result)[:filled]


def _wrong_size(codec: CompressionType, uncompressed_size: int) -> str:
    return (
        f"its payload, decompressed with {codec.name}, does not have the "
        f"{uncompressed_size} bytes that its metadata says."
    )


def _snappy_size(data: bytes | memoryview) -> int:
    """Return the uncompressed length that a Snappy block starts with, -1 for none.

    Arrow accepts a block that is shorter than promised, and leaves whatever was in
    memory after it.
    """
    size = 0
    for place, byte in enumerate(bytes(data[:5])):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    return -1


def compress(kind: int, data: bytes | memoryview) -> bytes:
    """Return the compressed payload, in the form that other clients read.

    Args:
        kind: A CompressionType.
        data: The payload; its length goes to MessageMetadata.uncompressed_size.

    Raises:
        ValueError: There is no such codec.
    """
    codec = CompressionType(kind)
    if codec == CompressionType.LZ4:
        return bytes(lz4.block.compress(data, store_size=False))
    if codec == CompressionType.ZLIB:
        return zlib.compress(data)
    if codec == CompressionType.ZSTD:
        if (zstd := contexts()) is not None:
            frame = zstd.compress(data)
            if frame is not None:
                return frame
        return _arrow_codec("zstd").compress(data, True)
    if codec == CompressionType.SNAPPY:
        return _arrow_codec("snappy").compress(data, True)
    assert codec is CompressionType.NONE, codec
    return bytes(data)
