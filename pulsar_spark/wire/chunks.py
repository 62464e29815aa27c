# SPDX-License-Identifier: Apache-2.0
"""Assemble chunked messages.

A producer that may chunk stores one message as several entries of one topic partition::

    entry   ...   41      42     43      44      45     46   ...
    holds        a 0/3   b 0/2   a 1/3   (batch)  b 1/2  a 2/3
                                                   │      └ message a: id 46, first 41
                                                   └ message b: id 45, first 42

All chunks carry the same ``uuid``; ``chunk_id`` counts from 0 to
``num_chunks_from_msg - 1``. The id of the message is that of its last chunk, which is
therefore its position in the topic. Chunks of several messages interleave, a producer
that died leaves a message without an end, and a resend may repeat chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire.entries import StoredEntry


@dataclass(frozen=True, slots=True)
class MissingChunks:
    """The last chunk of a message arrived, but earlier chunks are missing.

    The others precede the position where reading began, or were dropped to save memory,
    or do not exist, because a producer died before it finished its message.

    Attributes:
        last: The last chunk.
    """

    last: StoredEntry


@dataclass(slots=True)
class _OpenSet:
    first: tuple[int, int]
    publish_time_ms: int
    count: int  # of chunks, as each of them says
    total_bytes: int  # likewise
    chunks: int = 0  # collected so far
    # A copy: a chunk's payload is a view of its frame, which may be far larger.
    payload: bytearray = field(default_factory=bytearray)


class ChunkAssembler:
    """Collects chunks by ``uuid`` and returns each message once complete.

    Holds at most ``max_pending`` open messages of ``max_bytes`` together. Older ones
    are dropped for newer ones; when the last chunk of such a message does arrive, it is
    reported as ``MissingChunks``, so that nothing is lost in silence.

    Args:
        max_bytes: Bytes of all open messages together, and of any single one.
        max_pending: Open messages kept at once.
        expire_ms: An open message this much older, by publish time, than the newest
            chunk is dropped; 0 for never.
    """

    def __init__(self, max_bytes: int, *, max_pending: int, expire_ms: int) -> None:
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._expire_ms = expire_ms
        self._open: dict[str, _OpenSet] = {}  # oldest first
        self._size_bytes = 0

    @property
    def pending(self) -> int:
        """Return how many messages are open."""
        return len(self._open)

    def add(self, chunk: StoredEntry) -> StoredEntry | MissingChunks | None:
        """Add the next chunk of the topic partition.

        Returns:
            The whole message, still compressed, at the position of its last chunk;
            or MissingChunks; or None while chunks are still to come.

        Raises:
            CorruptEntryError: The chunk contradicts itself, or belongs to a message
                larger than ``max_bytes`` that ends here.
        """
        metadata = chunk.metadata
        count, index = metadata.num_chunks_from_msg, metadata.chunk_id
        if not 0 <= index < count:
            raise CorruptEntryError(f"it is chunk {index} of only {count}.")
        is_last = index == count - 1
        if metadata.total_chunk_msg_size > self._max_bytes:
            if is_last:
                raise CorruptEntryError(self._too_large(metadata.total_chunk_msg_size))
            return None
        if index == 0:
            self._drop(metadata.uuid)
            self._open[metadata.uuid] = _OpenSet(
                chunk.position,
                metadata.publish_time,
                count,
                metadata.total_chunk_msg_size,
            )
        message = self._open.get(metadata.uuid)
        if message is None or index > message.chunks:
            # A gap: what was collected is of no use, whatever follows.
            self._drop(metadata.uuid)
            return MissingChunks(chunk) if is_last else None
        if (message.count, message.total_bytes) != (
            count,
            metadata.total_chunk_msg_size,
        ):
            raise CorruptEntryError(
                f"it is a chunk of {count} with {metadata.total_chunk_msg_size} bytes, "
                f"while the first one is of {message.count} with {message.total_bytes}."
            )
        if index < message.chunks:
            return None  # stored twice by a resend
        self._append(message, chunk)
        if is_last:
            return self._complete(metadata.uuid, chunk)
        self._make_room(metadata.publish_time)
        return None

    def put_aside(self, size_bytes: int) -> None:
        """Drop open messages, oldest first, until `size_bytes` more would fit."""
        while self._open and self._size_bytes + size_bytes > self._max_bytes:
            self._drop(next(iter(self._open)))

    def _append(self, open_set: _OpenSet, chunk: StoredEntry) -> None:
        if len(open_set.payload) + len(chunk.payload) > open_set.total_bytes:
            raise CorruptEntryError(
                f"its chunks hold more than the {open_set.total_bytes} bytes that they "
                "promise."
            )
        open_set.chunks += 1
        open_set.payload += chunk.payload
        self._size_bytes += len(chunk.payload)

    def _complete(self, uuid: str, last: StoredEntry) -> StoredEntry:
        open_set = self._open[uuid]
        self._drop(uuid)
        if len(open_set.payload) != open_set.total_bytes:
            raise CorruptEntryError(
                f"its chunks hold {len(open_set.payload)} bytes, not the "
                f"{open_set.total_bytes} that they promise."
            )
        return replace(
            last, payload=memoryview(open_set.payload), first_chunk=open_set.first
        )

    def _make_room(self, now_ms: int) -> None:
        # The last one is what just arrived: it fits, whatever else has to go.
        for uuid, open_set in list(self._open.items())[:-1]:
            age_ms = now_ms - open_set.publish_time_ms
            expired = 0 < self._expire_ms < age_ms
            full = (
                len(self._open) > self._max_pending
                or self._size_bytes > self._max_bytes
            )
            if not expired and not full:
                return
            self._drop(uuid)

    def _drop(self, uuid: str) -> None:
        open_set = self._open.pop(uuid, None)
        if open_set is not None:
            self._size_bytes -= len(open_set.payload)

    def _too_large(self, total: int) -> str:
        return (
            f"it is a chunked message of {total} bytes, more than the "
            f"{self._max_bytes} bytes allowed for one. Raise "
            "`pulsar.client.memoryLimitBytes`."
        )
