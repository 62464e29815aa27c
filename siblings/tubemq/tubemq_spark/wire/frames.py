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
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spark_topics.loops.memory import new_bytes
from tubemq_spark.errors import ProtocolError
from tubemq_spark.loops.chunks import CHUNK_BYTES, ChunkJoiner

TOKEN = 0xFF7FF4FE

#: Chunks of a frame, as servers and the Java client limit them: (20 + 8) MiB.
MAX_CHUNKS = 3584

#: What the chunks of a frame may hold together: that, and some room for other cuts.
MAX_FRAME_BYTES = MAX_CHUNKS * CHUNK_BYTES + 64 * 1024

_HEADER = struct.Struct(">IiI")
_LENGTH = struct.Struct(">i")
_MAX_SERIAL = 2**31 - 1


class Frame(NamedTuple):
    """A frame: its serial number and its payload.

    Attributes:
        serial: Number by which a reply belongs to its request.
        payload: The joint bytes of its chunks.
    """

    serial: int
    payload: bytes | memoryview


def encode_frame(serial: int, payload: bytes | memoryview) -> bytes:
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
        return b"".join((_HEADER.pack(TOKEN, serial, 1), _LENGTH.pack(size), payload))
    cuts = range(0, size, CHUNK_BYTES)
    parts: list[bytes | memoryview] = [_HEADER.pack(TOKEN, serial, len(cuts))]
    for begin in cuts:
        chunk = payload[begin : begin + CHUNK_BYTES]
        parts += (_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


class FrameReader:
    """Splits a stream of bytes into frames.

    Give it bytes with `receive_data`, and call `next_frame` until it answers None. It
    holds what has come of one frame, and for what was only announced no more memory
    than a buffer.

    Args:
        max_frame_bytes: Most bytes that the chunks of a frame may hold together.
        new_buffer: Returns a buffer of that many bytes, mostly `BUFFER_BYTES`.
    """

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        new_buffer: Callable[[int], memoryview] = new_bytes,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._rest = b""  # of what came: the begin of a header
        self._serial = 0  # of the frame being read
        self._chunks = ChunkJoiner(max_frame_bytes, new_buffer)
        self._frames: deque[Frame] = deque()  # that are whole
        self._failure = ""

    def receive_data(self, data: bytes | memoryview) -> None:
        """Take the next bytes, however many. What is kept of them is copied."""
        if self._failure:
            return
        if self._rest:
            data = self._rest + bytes(data)
        with memoryview(data) as view:
            position = 0
            while step := self._read(view, position):
                position += step
            self._rest = bytes(view[position:])

    def next_frame(self) -> Frame | None:
        """Return the next frame, None if more bytes are needed.

        Raises:
            ProtocolError: This is not the protocol, or a size is impossible. Every
                later call raises the same.
        """
        if self._frames:
            return self._frames.popleft()
        if self._failure:
            raise ProtocolError(self._failure)
        return None

    def _read(self, data: memoryview, at: int) -> int:
        """Read on at a place, and return how many bytes; 0 where there are too few."""
        chunks = self._chunks
        if not chunks.chunks_left:
            return self._read_header(data, at)
        end = chunks.take(data, at)
        if end < 0:
            return self._fail(
                f"A frame has a chunk of {_signed(chunks.length)} bytes after "
                f"{chunks.size} others; {self._max_frame_bytes} in all are allowed."
            )
        if not chunks.chunks_left:
            self._frames.append(Frame(self._serial, chunks.joined()))
        return end - at

    def _read_header(self, data: memoryview, at: int) -> int:
        if len(data) - at < _HEADER.size:
            # By the first bytes it may be seen that it is another protocol, of which
            # no more may come.
            begin = bytes(data[at : at + 4])
            if not TOKEN.to_bytes(4, "big").startswith(begin):
                self._fail(f"A frame begins with 0x{begin.hex()}.")
            return 0
        token, serial, chunks = _HEADER.unpack_from(data, at)
        if token != TOKEN:
            return self._fail(
                f"A frame begins with 0x{token:08x} instead of 0x{TOKEN:08x}."
            )
        if not 0 < chunks <= MAX_CHUNKS:
            return self._fail(f"A frame has {chunks} chunks; {MAX_CHUNKS} are allowed.")
        self._serial = serial
        self._chunks.begin(chunks)
        return _HEADER.size

    def _fail(self, what: str) -> int:
        """Read nothing any more."""
        self._failure = (
            f"{what} The stream of bytes is damaged, or what answered is not a TubeMQ "
            "server's RPC port."
        )
        self._chunks = ChunkJoiner(0)
        return 0


def _signed(length: int) -> int:
    return length if length < 2**31 else length - 2**32
