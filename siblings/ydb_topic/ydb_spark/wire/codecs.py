# SPDX-License-Identifier: Apache-2.0
"""Codecs of message bodies, which are encoded separately. The server never opens one.

::

    0             none was named (other protocols): the body as it is
    1 raw         the body as it is
    2 gzip        one member, or several
    3 lzop        not known here
    4 zstd        one frame, or several
    10000-19999   of users: not known here
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

from ydb_spark.errors import CorruptMessageError

UNSPECIFIED, RAW, GZIP, LZOP, ZSTD = 0, 1, 2, 3, 4

CODECS = {"raw": RAW, "gzip": GZIP, "zstd": ZSTD}

_NAMES = {number: name for name, number in CODECS.items()} | {LZOP: "lzop"}

#: No server takes a message that is larger encoded; a body that grows beyond it when it
#: is decoded is an attack on memory.
MAX_BODY_BYTES = 128 << 20

_GZIP_WINDOW = 16 + zlib.MAX_WBITS

#: Bodies are decoded in pieces of this size.
_PIECE_BYTES = 64 << 10


def codec_name(number: int) -> str:
    """Return what a codec is called in messages."""
    return _NAMES.get(number, f"codec {number}")


def encoder(codec: int) -> Callable[[bytes], bytes] | None:
    """Return the encoder of bodies; None for raw bodies."""
    if codec == RAW:
        return None
    if codec == GZIP:
        return _gzip
    assert codec == ZSTD
    compress = pa.Codec("zstd").compress
    return lambda body: bytes(compress(body, asbytes=True))


def _gzip(body: bytes) -> bytes:
    deflate = zlib.compressobj(level=6, wbits=_GZIP_WINDOW)
    return deflate.compress(body) + deflate.flush()


def decode(codec: int, body: bytes, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the plain body of a message.

    Args:
        codec: Its number, of the batch it came in.
        body: As it came.
        limit_bytes: It must not become larger.

    Raises:
        CorruptMessageError: The codec is not known here, or the body not of that codec,
            or too large.
    """
    if codec in (UNSPECIFIED, RAW):
        return body
    if codec in (GZIP, ZSTD):
        return _plain(codec_name(codec), body, limit_bytes)
    raise CorruptMessageError(
        f"its body is encoded by {codec_name(codec)}, which cannot be decoded here:"
        " raw, gzip and zstd can"
    )


def _plain(name: str, body: bytes, limit_bytes: int) -> bytes:
    if not body:
        raise CorruptMessageError(f"its body is no {name}: it is empty")
    plain = bytearray()
    # Arrow's own read allocates all that it may come to, and where it fails it keeps
    # that for ever.
    piece = bytearray(_PIECE_BYTES)
    try:
        with pa.input_stream(pa.BufferReader(body), compression=name) as stream:
            while size_bytes := stream.readinto(piece):
                plain += memoryview(piece)[:size_bytes]
                if len(plain) > limit_bytes:
                    raise _too_large(limit_bytes)
    except (OSError, ValueError) as error:
        raise CorruptMessageError(f"its body is no {name}: {error}") from None
    return bytes(plain)


def _too_large(limit_bytes: int) -> CorruptMessageError:
    return CorruptMessageError(f"its body is larger than {limit_bytes} bytes")
