# SPDX-License-Identifier: Apache-2.0
"""Frames of the TubeMQ protocol, both directions.

Every integer is big-endian. A frame is a list of chunks, whose joint bytes are what is
said::

    | token 4 | serialNo 4 | listSize 4 | length 4 | bytes | length 4 | bytes | ...
    '- 0xff7ff4fe                       '---- listSize chunks ----'

Servers and the official clients cut at 8192 bytes. Where the chunks are cut has no
meaning, so that any cut is read. A frame that breaks these rules is answered by
silence, or makes a server deaf for the rest of the connection: `encode_frame` cannot
write one.

Source: InLong 2.4, RpcConstants and what its servers were seen to do.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tubemq_spark.errors import ProtocolError

TOKEN = 0xFF7FF4FE

#: What a chunk holds at most where we write it.
CHUNK_BYTES = 8192

#: Chunks of a frame, as servers and the Java client limit them: (20 + 8) MiB.
MAX_CHUNKS = 3584

#: What the chunks of a frame may hold together: that, and some room for other cuts.
MAX_FRAME_BYTES = MAX_CHUNKS * CHUNK_BYTES + 64 * 1024

_HEADER = struct.Struct(">IiI")
_LENGTH = struct.Struct(">i")
_MAX_SERIAL = 2**31 - 1


class Frame(NamedTuple):
    """One frame.

    Attributes:
        serial: Number by which a reply belongs to its request.
        payload: The joint bytes of its chunks.
    """

    serial: int
    payload: bytes


def encode_frame(serial: int, payload: bytes) -> bytes:
    """Return a frame.

    Args:
        serial: From 0 to 2**31 - 1.
        payload: At least one byte, at most `MAX_CHUNKS` * `CHUNK_BYTES`.

    Raises:
        ValueError: What a server would answer by silence.
    """
    size = len(payload)
    if not 0 < size <= MAX_CHUNKS * CHUNK_BYTES:
        raise ValueError(f"A frame cannot hold {size} bytes.")
    if not 0 <= serial <= _MAX_SERIAL:
        raise ValueError(f"{serial} cannot be a serial number.")
    if size <= CHUNK_BYTES:
        return _HEADER.pack(TOKEN, serial, 1) + _LENGTH.pack(size) + payload
    cuts = range(0, size, CHUNK_BYTES)
    parts = [_HEADER.pack(TOKEN, serial, len(cuts))]
    for begin in cuts:
        chunk = payload[begin : begin + CHUNK_BYTES]
        parts += (_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


class FrameReader:
    """Splits a stream of bytes into frames.

    Give it bytes with `receive_data`, and call `next_frame` until it answers None. It
    holds what has come of one frame, and no memory for what was only announced.

    Args:
        max_frame_bytes: Most bytes that the chunks of a frame may hold together.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._data = bytearray()
        self._at = 0  # what is before is read
        self._serial = 0
        self._chunks_left = 0  # of the frame being read; 0 between frames
        self._bytes_left: int | None = None  # of its chunk; None before that's size
        self._payload = bytearray()
        self._failure = ""

    def receive_data(self, data: bytes | memoryview) -> None:
        """Take a copy of the next bytes, however many."""
        if not self._failure:
            del self._data[: self._at]
            self._at = 0
            self._data += data

    def next_frame(self) -> Frame | None:
        """Return the next frame, None if more bytes are needed.

        Raises:
            ProtocolError: This is not the protocol, or a size is impossible. Every
                later call raises the same.
        """
        if self._failure:
            raise ProtocolError(self._failure)
        if not self._chunks_left and not self._read_header():
            return None
        while self._chunks_left:
            if not self._read_chunk():
                return None
        payload, self._payload = bytes(self._payload), bytearray()
        return Frame(self._serial, payload)

    def _read_header(self) -> bool:
        if len(self._data) - self._at < _HEADER.size:
            self._check_token()
            return False
        token, serial, chunks = _HEADER.unpack_from(self._data, self._at)
        if token != TOKEN:
            raise self._fail(
                f"A frame begins with 0x{token:08x} instead of 0x{TOKEN:08x}."
            )
        if not 0 < chunks <= MAX_CHUNKS:
            raise self._fail(f"A frame has {chunks} chunks; {MAX_CHUNKS} are allowed.")
        self._at += _HEADER.size
        self._serial, self._chunks_left = serial, chunks
        return True

    def _check_token(self) -> None:
        """See by the first bytes that it is another protocol: no more may come."""
        begin = bytes(self._data[self._at : self._at + 4])
        if not TOKEN.to_bytes(4, "big").startswith(begin):
            raise self._fail(f"A frame begins with 0x{begin.hex()}.")

    def _read_chunk(self) -> bool:
        """Take what has come of a chunk, and return whether that was all of it."""
        if self._bytes_left is None:
            if len(self._data) - self._at < _LENGTH.size:
                return False
            self._bytes_left = self._read_length()
        end = min(self._at + self._bytes_left, len(self._data))
        with memoryview(self._data) as data:
            self._payload += data[self._at : end]
        self._bytes_left -= end - self._at
        self._at = end
        if self._bytes_left:
            return False
        self._bytes_left = None
        self._chunks_left -= 1
        return True

    def _read_length(self) -> int:
        (size,) = _LENGTH.unpack_from(self._data, self._at)
        if size < 0 or len(self._payload) + size > self._max_frame_bytes:
            raise self._fail(
                f"A frame has a chunk of {size} bytes after {len(self._payload)} "
                f"others; {self._max_frame_bytes} in all are allowed."
            )
        self._at += _LENGTH.size
        return int(size)

    def _fail(self, what: str) -> ProtocolError:
        self._failure = (
            f"{what} The stream of bytes is damaged, or what answered is not a TubeMQ "
            "server's RPC port."
        )
        self._data, self._payload = bytearray(), bytearray()
        return ProtocolError(self._failure)
