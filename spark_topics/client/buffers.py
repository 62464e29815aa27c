# SPDX-License-Identifier: Apache-2.0
"""Receive buffers, reused after the last view of a buffer is gone.

Memory that is new to a process costs more than what is read into it: the system hands
it out page by page, each of them filled with zeros first.
"""

from __future__ import annotations

import threading

#: Buffers kept: what is under way, and what waits to be decoded.
_KEPT = 32


class BufferPool:
    """Buffers of equal size, shared by the connections of a process.

    For all of them together, because a Python worker that has read from hundreds of
    brokers keeps the connections, but should not keep memory for each.

    Args:
        size_bytes: Of each buffer.
        kept: How many of them are kept for later.
    """

    def __init__(self, size_bytes: int, kept: int = _KEPT) -> None:
        self._size_bytes = size_bytes
        self._kept = kept
        self._buffers: list[bytearray] = []
        self._lock = threading.Lock()  # connections have a thread each

    def take(self, size: int) -> memoryview:
        """Return a buffer of ``size`` bytes that nothing else uses while it is viewed.

        Of another size than the pool's it is always new.
        """
        if size != self._size_bytes:
            return memoryview(bytearray(size))
        with self._lock:
            # Always in the same order: so those in use are few, and still in the cache.
            for buffer in self._buffers:
                if _is_unviewed(buffer):
                    return memoryview(buffer)
            buffer = bytearray(size)
            if len(self._buffers) < self._kept:
                self._buffers.append(buffer)
            return memoryview(buffer)

    def start_anew(self) -> None:
        """Forget, in a forked child, the parent's buffers and who held the lock."""
        self._lock = threading.Lock()
        self._buffers = []


def _is_unviewed(buffer: bytearray) -> bool:
    """Return whether neither the buffer nor a part of the buffer is viewed."""
    try:
        buffer.append(buffer.pop())  # its size cannot change while there is one
    except BufferError:
        return False
    return True
