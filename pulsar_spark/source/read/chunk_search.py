# SPDX-License-Identifier: Apache-2.0
"""Look for the chunks of a message whose last chunk is in a range.

All chunks have the same publish time, so a second reader begins there. If clocks
mislead it, a third one begins at the topic's beginning::

    stored      7:0 u#0   7:1 v   7:2 u#1   7:3 w   7:4 u#2
    range                                   |-----------| u is one of its rows
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import CorruptEntryError, ReadTimeoutError
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.wire.chunks import ChunkAssembler
from pulsar_spark.wire.entries import StoredEntry

#: How much earlier than its publish time the first chunk of a message is looked for, in
#: seconds: the clocks of producers, brokers and this machine differ.
_LOOK_BACK_S = 60


@dataclass
class Found:
    """What a search for the chunks of a message has found.

    Attributes:
        begin: The first position at which an entry could be.
        whole: The message, if it was put together.
        was_whole: Whether a message of its uuid was, with an earlier last chunk, and no
            other has begun since.
        has_first: Whether there was a first chunk.
        has_others: Whether there was anything else of the same producer.
        is_closed: Whether one of the chunks is encrypted, and no key opens it.
        damaged: Names the first entry that may have been one of the chunks, as far as
            anybody can tell.
    """

    begin: tuple[int, int] = EARLIEST.position
    whole: StoredEntry | None = None
    was_whole: bool = False
    has_first: bool = False
    has_others: bool = False
    is_closed: bool = False
    damaged: CorruptEntryError | None = None

    def come_back(self, start: MessageId, at: TopicPositions) -> None:
        """Forget what was seen of a topic that begins later than that by now."""
        if EARLIEST.position < start.position <= at.before.position:
            self.begin = at.first.position
            self.has_first = self.has_others = False


class ChunkSearch:
    """Looks for chunks of a topic partition.

    Args:
        pool: Whose options say how to connect.
        topic_partition: Full name.
        settings: How to read.
        assembler: Makes what puts messages together.
        open_one: Opens an entry that is encrypted; returns None where no key does.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        topic_partition: str,
        settings: ReaderSettings,
        *,
        assembler: Callable[[], ChunkAssembler],
        open_one: Callable[[StoredEntry], StoredEntry | None],
    ) -> None:
        self._pool = pool
        self._topic_partition = topic_partition
        self._settings = settings
        self._assembler = assembler
        self._open_one = open_one

    def find(self, last: StoredEntry) -> Found:
        """Look for a chunked message; return the chunks that are stored.

        Args:
            last: Its last chunk.

        Raises:
            ReadTimeoutError: Nothing came for ``poll_timeout_s``.
            PulsarSparkError: The broker refuses for good.
        """
        age_s = time.time() - last.metadata.publish_time / 1000
        search = self._collect(last, max(1, math.ceil(age_s) + _LOOK_BACK_S))
        if search.was_whole or search.is_closed or search.has_first:
            return search  # there are no others to be found before it
        return self._collect(last, None)

    def _collect(self, last: StoredEntry, rollback_s: int | None) -> Found:
        """Look for the chunks up to ``last`` and put their message together.

        Args:
            last: The last chunk.
            rollback_s: Where to begin, in seconds before now; None: at the beginning.
        """
        # Compaction ignores chunking: of each key it keeps the last chunk only.
        settings = replace(
            self._settings,
            consumer=replace(self._settings.consumer, read_compacted=False),
        )
        chunks = self._assembler()
        search = Found()
        with (
            # Over separate connections: while the first reader's inbox is full, its
            # connection is not read, so a second reader would get no answers.
            ConnectionPool(self._pool.options) as pool,
            EntryReader(
                pool,
                self._topic_partition,
                EARLIEST,
                settings,
                on_start=search.come_back,
                rollback_s=rollback_s,
            ) as reader,
        ):
            while (positions := reader.positions()) is None:
                pass  # it reconnects by itself, or raises
            search.begin = positions.first.position
            if positions.before.position >= last.position:
                return search
            while not search.is_closed and (
                reader.position is None or reader.position < last.position
            ):
                try:
                    stored = self._receive(reader, last)
                except CorruptEntryError as error:
                    # Nobody knows whether it is one of the chunks: the message tells.
                    search.damaged = search.damaged or error
                else:
                    self._take(stored, last, chunks, search)
        return search

    def _receive(self, reader: EntryReader, last: StoredEntry) -> StoredEntry:
        """Return the next entry, or raise where none comes in time."""
        stored = reader.receive(self._settings.poll_timeout_s)
        if stored is None:
            raise ReadTimeoutError(
                f"{self._topic_partition} delivered nothing for "
                f"{self._settings.poll_timeout_s:g} s (`pollTimeoutMs`) while the "
                "earlier chunks of the message that ends at "
                f"{MessageId(*last.position)} were looked for.",
                topic_partition=self._topic_partition,
            )
        return stored

    def _take(
        self,
        stored: StoredEntry,
        last: StoredEntry,
        chunks: ChunkAssembler,
        found: Found,
    ) -> None:
        """Note what an entry says about the message that ends with ``last``."""
        if not stored.is_chunk or stored.metadata.uuid != last.metadata.uuid:
            producer = stored.metadata.producer_name
            found.has_others |= producer == last.metadata.producer_name
            return
        is_first = stored.metadata.chunk_id == 0
        found.has_first |= is_first
        opened = self._open_one(stored)
        if opened is None or not opened.is_chunk:
            found.is_closed = True
            return
        whole = chunks.add(opened)
        if isinstance(whole, StoredEntry):
            # A resend may store the last chunk once more: that is no message.
            found.whole = whole if whole.position == last.position else None
            found.was_whole = True
        elif is_first:
            found.was_whole = False
            found.damaged = None  # that was before the message
