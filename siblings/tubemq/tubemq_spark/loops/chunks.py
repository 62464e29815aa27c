# SPDX-License-Identifier: Apache-2.0
"""The loop that joins the chunks of a frame.

::

    | length 4 | bytes | length 4 | bytes | ...

A frame of many bytes has a chunk for each 8192 of them, and they come cut anywhere.

This file runs as it is; see ``messages.py`` for what compiles it.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_topics.loops import memory
from spark_topics.loops.memory import new_bytes

#: Which form of this file runs, as ``messages.KERNEL``.
KERNEL = "python" if __file__.endswith((".py", ".pyc")) else "compiled"

#: What a chunk holds at most where servers and clients cut.
CHUNK_BYTES = 8192

#: Room for more than is small is made by so much, or by what came if that is more.
BUFFER_BYTES = 1024 * 1024
_SMALL_BYTES = 64 * 1024

# The same numbers, in C: chunks.pxd hides these from Python.
_CHUNK_BYTES, _BUFFER_BYTES = CHUNK_BYTES, BUFFER_BYTES

_LENGTH_BYTES = 4


class ChunkJoiner:
    """Joins the chunks of frames.

    Args:
        max_bytes: Most bytes that the chunks of a frame may hold together, below 2**31.
        allocate: Returns a buffer of that many bytes, mostly `BUFFER_BYTES`.

    Attributes:
        chunks_left: How many chunks of the frame have not come as a whole; 0 between
            frames.
        size: How many bytes of it have come.
        length: What the last chunk said of its length, an int32, and then how much of
            it has not come.
    """

    def __init__(
        self, max_bytes: int, allocate: Callable[[int], memoryview] = new_bytes
    ) -> None:
        self._max_bytes = max_bytes
        self._allocate = allocate
        self.chunks_left = self.size = self.length = 0
        self._digits = 0  # of the length that have come
        self._data = self._bytes = new_bytes(0)
        self._room = 0

    def begin(self, chunks: int) -> None:
        """Begin a frame with this number of chunks, at least 1."""
        self.chunks_left = chunks
        self._digits = self.length = 0

    def take(self, data: memoryview, offset: int) -> int:
        """Take what has come from a place on, up to the frame's end.

        Returns:
            The place behind; -1 where a chunk is too long, as ``length`` tells.
        """
        end = len(data)
        while self.chunks_left > 0 and offset < end:
            if self._digits < _LENGTH_BYTES:
                self.length = self.length << 8 | data[offset]
                self._digits += 1
                offset += 1
                if self._digits < _LENGTH_BYTES:
                    continue
                if self.length > self._max_bytes - self.size:  # below 0 is more, too
                    return -1
            step = min(self.length, end - offset)
            if step > self._room - self.size:
                self._make_room(step)
            memory.copy(self._bytes, self.size, data, offset, step)
            self.size += step
            offset += step
            self.length -= step
            if self.length == 0:
                self.chunks_left -= 1
                self._digits = 0
        return offset

    def joined(self) -> memoryview:
        """Return the completed frame, and forget the frame."""
        joined = self._data[: self.size]
        self._release()
        return joined

    def _make_room(self, step: int) -> None:
        """Make room for received bytes and, within limits, for bytes to come."""
        room = step
        if self._room > 0:
            room = max(self.size + step, 2 * self._room)
        else:
            announced = self.length
            if self.chunks_left > 1:
                announced = self.chunks_left * _CHUNK_BYTES
            if announced > _SMALL_BYTES:
                announced = _BUFFER_BYTES
            room = max(step, announced)
        data = self._allocate(room)
        data[: self.size] = self._data[: self.size]
        self._data = self._bytes = data
        self._room = room

    def _release(self) -> None:
        self._data = self._bytes = new_bytes(0)
        self._room = self.size = 0
