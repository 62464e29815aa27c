"""The messages of one range of a topic partition: decoded, cut to the range, complete.

Ends by itself: at the end of the range, or where the broker says that nothing before
that end is left to deliver. Silence alone never ends a read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.reader import EntryReader, ReaderSettings
from pulsar_spark.errors import (
    CorruptEntryError,
    DataLossError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.plan import TopicPositions, TopicRange, check_start
from pulsar_spark.wire.chunks import (
    DEFAULT_EXPIRE_MS,
    DEFAULT_MAX_PENDING,
    ChunkAssembler,
    MissingChunks,
)
from pulsar_spark.wire.entries import (
    DEFAULT_TABLE_BYTES,
    DEFAULT_TABLE_ROWS,
    Entry,
    EntryDecoder,
    StoredEntry,
)
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.messages import MessageTable

logger = logging.getLogger("pulsar_spark.client")

#: Silence after which the broker is asked whether anything is left, in seconds.
_PATIENCE_S = 0.5

#: How often in a row it must say that nothing is, without the topic moving in between:
#: a broker that just took one over may know less of it for a moment, until it has read
#: up on transactions.
_CERTAIN_AFTER = 3

#: How much earlier than its publish time the first chunk of a message is looked for, in
#: seconds: the clocks of producers, brokers and this machine differ.
_LOOK_BACK_S = 60

#: A message larger than this part of ``memoryLimitBytes`` is there up to three times,
#: the one before it included: no memory is to lie idle beside that.
_LARGE_SHARE = 4


@dataclass(frozen=True, slots=True)
class RangeSettings:
    """How to read a range.

    Attributes:
        reader: How to read its entries.
        fail_on_data_loss: Whether rows that are gone end the read with an error.
        is_protected: Whether a durable subscription keeps the range from retention.
        max_pending_chunked_messages: Chunked messages collected at a time.
        expire_chunks_ms: Age at which an incomplete one is put aside.
        table_rows, table_bytes: Messages, and bytes of them, that a table holds.
    """

    reader: ReaderSettings
    fail_on_data_loss: bool = True
    is_protected: bool = False
    max_pending_chunked_messages: int = DEFAULT_MAX_PENDING
    expire_chunks_ms: int = DEFAULT_EXPIRE_MS
    table_rows: int = DEFAULT_TABLE_ROWS
    table_bytes: int = DEFAULT_TABLE_BYTES


class RangeReader:
    """Reads one range.

    Args:
        pool: The cluster's connections.
        range_: What to read.
        settings: How to read it.
        table: Where the first messages go, see ``EntryDecoder``.
        release_unused: Called before a large message is unpacked: gives memory that is
            only kept for later back to the system.

    Attributes:
        reader: The entries underneath, with their counters.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        range_: TopicRange,
        settings: RangeSettings,
        table: MessageTable | None = None,
        release_unused: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._range = range_
        self._settings = settings
        self._release_unused = release_unused
        self._max_bytes = pool.options.memory_limit_bytes
        self._chunks = self._assembler()
        self._decoder = EntryDecoder(
            self._max_bytes,
            table,
            table_rows=settings.table_rows,
            table_bytes=settings.table_bytes,
        )
        self._known_end: MessageId | None = None
        self.reader = EntryReader(
            pool,
            range_.topic_partition,
            range_.start,
            settings.reader,
            on_start=self._check_start,
        )

    def entries(self) -> Iterator[Entry]:
        """Yields the entries of the range in order, cut to it; none of them is empty.

        One that is too large for a table comes in pieces.

        Raises:
            DataLossError: Rows of the range are no longer there, and
                ``fail_on_data_loss`` is set.
            ReadTimeoutError: Nothing came for ``poll_timeout_s`` though rows are due.
            CorruptEntryError: An entry is damaged; names it.
            PulsarSparkError: The broker refuses for good.
        """
        start, end = self._range.start, self._range.end
        try:
            for stored in self._stored_entries():
                for entry in self._decoded(stored):
                    if not start.position < entry.position < end.position:
                        entry = entry.between(start, end)
                    if len(entry):
                        yield entry
        finally:
            self.reader.close()

    def _stored_entries(self) -> Iterator[StoredEntry]:
        """What is stored from the start on, up to and including the end's entry."""
        end = self._range.end.position
        heard = time.monotonic()
        exhausted = moves = 0
        while self.reader.position is None or self.reader.position < end:
            try:
                stored = self.reader.receive(_PATIENCE_S)
            except TopicNotFoundError as error:
                self._lose(f"the topic was deleted while it was read ({error.message})")
                return
            if stored is not None:
                if stored.position > end:
                    return
                yield stored
                heard = time.monotonic()
                exhausted = 0
                continue
            if moves != self.reader.reconnects:
                exhausted, moves = 0, self.reader.reconnects
            exhausted = exhausted + 1 if self._is_exhausted() else 0
            if exhausted == _CERTAIN_AFTER:
                self._ended_early()
                return
            if time.monotonic() - heard > self._settings.reader.poll_timeout_s:
                trouble = self.reader.trouble
                raise ReadTimeoutError(
                    f"{self._range.topic_partition} delivered nothing for "
                    f"{self._settings.reader.poll_timeout_s:g} s (`pollTimeoutMs`), "
                    f"though there are rows up to {self._range.end}. Look at the "
                    "broker's log, or raise `pollTimeoutMs`."
                    + (f" The last reason: {trouble}" if trouble else ""),
                    topic_partition=self._range.topic_partition,
                )

    def _is_exhausted(self) -> bool:
        """Whether the broker says that nothing is left for us."""
        positions = self.reader.positions()
        if positions is None:
            return False
        self._known_end = positions.last
        if positions.last is None:
            return True
        taken = self.reader.position
        if taken is None:
            return positions.last.position < self._range.start.position
        return positions.last.position <= taken

    def _ended_early(self) -> None:
        """The end of the range will not come: compaction took it, or it is lost."""
        if not self._settings.reader.read_compacted:
            self._lose(f"the topic now ends at {self._known_end or 'its beginning'}")

    def _check_start(self, start: MessageId, found: TopicPositions) -> None:
        if not self._settings.reader.read_compacted:
            # What begins behind the range proves nothing: all of it may be gone.
            reaches = found.first.position <= self._range.end.position
            # Nor is a ledger read to its end that is known to have had the start.
            reaches = reaches and not self._range.is_start_known
            check_start(
                self._range.topic_partition,
                start,
                found,
                fail_on_data_loss=self._settings.fail_on_data_loss,
                is_protected=self._settings.is_protected and reaches,
            )

    def _lose(self, what: str) -> None:
        """Rows up to the end of the range will not come any more."""
        taken = MessageId(*self.reader.position) if self.reader.position else None
        message = (
            f"{self._range.topic_partition} should have rows up to {self._range.end}, "
            f"but {what}. "
            + (f"The last entry read was {taken}." if taken else "Nothing was read.")
        )
        self._report_loss(
            message, wanted=str(self._range.end), available=str(taken or "")
        )

    def _report_loss(self, message: str, *, wanted: str, available: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{message} Set `failOnDataLoss` to false to go on with what there is.",
                topic_partition=self._range.topic_partition,
                wanted=wanted,
                available=available,
            )
        logger.warning("[PULSAR_DATA_LOSS] %s Going on with what there is.", message)

    def _decoded(self, stored: StoredEntry) -> Iterator[Entry]:
        """The messages of an entry, in pieces; none of a chunk that completes none."""
        position = stored.position
        try:
            yield from self._pieces(stored)
        except CorruptEntryError as error:
            if position < self._range.start.position:
                return  # it only lies between the first row's chunks
            raise CorruptEntryError(
                error.reason,
                topic_partition=self._range.topic_partition,
                message_id=str(MessageId(*position)),
            ) from None

    def _pieces(self, stored: StoredEntry) -> Iterator[Entry]:
        if stored.is_chunk and not stored.is_marker:
            whole = self._chunks.add(stored)
            if isinstance(whole, MissingChunks):
                self._leave_room(whole.last.metadata.total_chunk_msg_size)
                whole = self._look_back(whole.last)
            if whole is None:
                return iter(())
            stored = whole
        self._leave_room(max(len(stored.payload), stored.metadata.uncompressed_size))
        return self._decoder.pieces(stored)

    def _leave_room(self, size_bytes: int) -> None:
        """What is put together, and one large message, are within the limit."""
        if size_bytes > DEFAULT_MAX_MESSAGE_SIZE_BYTES:
            self._chunks.put_aside(size_bytes)
            if size_bytes > self._max_bytes // _LARGE_SHARE:
                self._release_unused()

    def _assembler(self) -> ChunkAssembler:
        return ChunkAssembler(
            self._max_bytes,
            self._settings.max_pending_chunked_messages,
            self._settings.expire_chunks_ms,
        )

    def _look_back(self, last: StoredEntry) -> StoredEntry | None:
        """Fetches a chunked message whose earlier chunks were not collected.

        They lie before the range, or were put aside for others. All chunks carry one
        publish time, so that is where a second reader begins. Clocks may lead it
        astray; then a third one begins at the beginning.
        """
        if last.position < self._range.start.position:
            return None
        age_s = time.time() - last.metadata.publish_time / 1000
        for rollback_s in (max(1, math.ceil(age_s) + _LOOK_BACK_S), None):
            found = self._collect(last, rollback_s)
            if found.whole is not None or found.was_whole:
                return found.whole
            if found.has_first:
                break  # there are no others to be found before it
        if not found.has_first and self._had_first(last, found):
            self._lose_chunks(last, found)
            return None
        logger.warning(
            "%s: the chunked message that ends at %s is incomplete: some of its chunks "
            "do not exist, so its producer never finished it or they were removed.",
            self._range.topic_partition,
            MessageId(*last.position),
        )
        return None

    def _had_first(self, last: StoredEntry, found: _Search) -> bool:
        """Whether the first chunk of a message that has none was there, once.

        A producer sends the chunks of a message one right after the other. So where the
        topic still has something else of that producer before the last chunk, it
        reaches back to before the first one, which was then never stored. And what
        began before the topic does, where a read begins with the topic, is no part of
        that read. All else is taken for a loss: nobody could tell.
        """
        begins_at = self._range.begins_at
        is_outside = begins_at is not None and begins_at.position == found.begin
        is_compacted = self._settings.reader.read_compacted
        return not (found.has_others or is_outside or is_compacted)

    def _lose_chunks(self, last: StoredEntry, found: _Search) -> None:
        end, begin = MessageId(*last.position), MessageId(*found.begin)
        self._report_loss(
            f"{self._range.topic_partition} has the last chunk of a message, {end}, "
            f"but no longer the first one: it begins at {begin}. Retention or expiry "
            "removed what was before.",
            wanted=str(end),
            available=str(begin),
        )

    def _collect(self, last: StoredEntry, rollback_s: int | None) -> _Search:
        """Puts together what the chunks up to ``last`` give.

        Args:
            last: The last chunk.
            rollback_s: Where to begin, in seconds before now; None: at the beginning.
        """
        # Over connections of its own: where the first reader's inbox is full, its
        # connection is not read, so no answer for a second reader would come.
        pool = ConnectionPool(self._pool.options)
        # Compaction knows no chunks: it keeps the last one that has a key.
        settings = replace(self._settings.reader, read_compacted=False)
        reader = EntryReader(
            pool, self._range.topic_partition, EARLIEST, settings, rollback_s=rollback_s
        )
        chunks = self._assembler()
        found = _Search()
        try:
            while (positions := reader.positions()) is None:
                pass  # it comes back by itself, or raises
            found.begin = positions.first.position
            if positions.before.position >= last.position:
                return found
            while reader.position is None or reader.position < last.position:
                stored = reader.receive(settings.poll_timeout_s)
                if stored is None:
                    raise ReadTimeoutError(
                        f"{self._range.topic_partition} delivered nothing for "
                        f"{settings.poll_timeout_s:g} s (`pollTimeoutMs`) while the "
                        "earlier chunks of the message that ends at "
                        f"{MessageId(*last.position)} were looked for.",
                        topic_partition=self._range.topic_partition,
                    )
                if not stored.is_chunk or stored.metadata.uuid != last.metadata.uuid:
                    producer = stored.metadata.producer_name
                    found.has_others |= producer == last.metadata.producer_name
                    continue
                is_first = stored.metadata.chunk_id == 0
                found.has_first |= is_first
                whole = chunks.add(stored)
                if isinstance(whole, StoredEntry):
                    # A resend may store the last chunk once more: that is no message.
                    is_it = whole.position == last.position
                    found.whole = whole if is_it else None
                    found.was_whole = True
                elif is_first:
                    found.was_whole = False
        finally:
            reader.close()
            pool.close()
        return found


@dataclass
class _Search:
    """What a search for the chunks of a message has found.

    Attributes:
        begin: The first place where an entry could be.
        whole: The message, where it was put together.
        was_whole: Whether one of its name was, with an earlier last chunk, and no other
            has begun since.
        has_first: Whether there was a first chunk.
        has_others: Whether there was anything else of the same producer.
    """

    begin: tuple[int, int] = EARLIEST.position
    whole: StoredEntry | None = None
    was_whole: bool = False
    has_first: bool = False
    has_others: bool = False
