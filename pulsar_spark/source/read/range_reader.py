# SPDX-License-Identifier: Apache-2.0
"""The messages of a range: decoded, cut to the range, complete.

A read ends at the end of the range, or when the broker says that nothing before that
end is left to deliver. Silence alone never ends a read.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.client.probe import is_stored
from pulsar_spark.errors import (
    CorruptEntryError,
    EncryptionError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.loops.messages import MessageTable
from pulsar_spark.message_id import MessageId, TopicPositions
from pulsar_spark.options.encryption import DecryptionOptions
from pulsar_spark.source.missing import compaction
from pulsar_spark.source.missing.gaps import Gaps
from pulsar_spark.source.missing.left_ledgers import Trail
from pulsar_spark.source.missing.silence import Silence
from pulsar_spark.source.plan.ranges import TopicRange, check_start, report_loss
from pulsar_spark.source.read.chunk_search import ChunkSearch, Found
from pulsar_spark.source.read.opener import Opener
from pulsar_spark.wire.chunks import ChunkAssembler, MissingChunks
from pulsar_spark.wire.entries import Entry, EntryDecoder, EntryRun, StoredEntry
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES

logger = logging.getLogger("pulsar_spark.source")

#: A message larger than ``memoryLimitBytes`` divided by this is in memory up to three
#: times, the one before it included: unused memory is released first.
_LARGE_SHARE = 4


@dataclass(frozen=True, slots=True)
class RangeSettings:
    """How to read a range.

    Attributes:
        reader: How to read its entries.
        fail_on_data_loss: Whether rows that are gone end the read with an error.
        is_protected: Whether a durable subscription keeps the range from retention.
        max_pending_chunked_messages: Chunked messages collected at a time.
        expire_chunks_ms: Age at which an incomplete message is put aside.
        table_rows, table_bytes: Messages, and bytes of them, that a table holds.
    """

    reader: ReaderSettings
    fail_on_data_loss: bool
    is_protected: bool
    max_pending_chunked_messages: int
    expire_chunks_ms: int
    table_rows: int
    table_bytes: int


class RangeReader:
    """Reads a range.

    Args:
        pool: The cluster's connections.
        range_: What to read.
        settings: How to read it.
        table: Where the first messages go, see ``EntryDecoder``.
        release_unused: Called before a large message is unpacked: returns memory that
            is only kept for later to the system.
        served_by: See ``EntryReader``.
        opener: Opens what is encrypted; without it that fails.

    Attributes:
        reader: The reader of the entries, with its counters.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        range_: TopicRange,
        settings: RangeSettings,
        table: MessageTable | None = None,
        release_unused: Callable[[], None] = lambda: None,
        served_by: BrokerAddress | None = None,
        opener: Opener | None = None,
    ) -> None:
        self._pool = pool
        self._opener = opener or Opener(DecryptionOptions())
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
        self._has_lost = False
        self._begin = range_.start.first_chunk or range_.start
        self.reader = EntryReader(
            pool,
            range_.topic_partition,
            range_.start,
            settings.reader,
            # A compacted topic reaches back further than what is stored.
            on_start=None
            if settings.reader.consumer.read_compacted
            else self._check_start,
            served_by=served_by,
        )
        self._trail = Trail(pool, range_.topic_partition)
        self._gaps = Gaps(pool, self.reader)

    def begin(self) -> None:
        """See ``EntryReader.begin``."""
        self.reader.begin()

    def close(self) -> None:
        """End the read at any point."""
        self.reader.close()

    def entries(self) -> Iterator[Entry]:
        """Yield the entries in order, cut to the range, without empty entries.

        An entry that is too large for a table comes in pieces.

        Raises:
            DataLossError: Rows of the range are no longer there, and
                ``fail_on_data_loss`` is set.
            ReadTimeoutError: Nothing came for ``poll_timeout_s`` though rows are due.
            CorruptEntryError: An entry is damaged; the error names it.
            EncryptionError: No key opens an entry; the error names it.
            OptionError: A private key cannot be read on this node.
            PulsarSparkError: The broker refuses for good.
        """
        with contextlib.closing(self.runs()) as runs:
            for entry in runs:
                if isinstance(entry, EntryRun):
                    yield from entry.entries
                else:
                    yield entry

    def runs(self) -> Generator[Entry | EntryRun, None, None]:
        """Yield the same as `entries`; entries unpacked together are a run."""
        start, end = self._range.start, self._range.end
        try:
            for stored in self._stored_entries():
                if isinstance(stored, EntryRun):
                    if len(stored):
                        yield stored
                    continue
                for entry in self._decoded(stored):
                    if not start.position < entry.position < end.position:
                        entry = entry.between(start, end)
                    if len(entry):
                        yield entry
            self._settle()
        except TopicNotFoundError as error:
            self._lose(f"the topic was deleted while it was read ({error.message})")
        finally:
            self.reader.close()

    def _unpack(
        self, arrived: Deliveries, first: int, after: tuple[int, int] | None
    ) -> EntryRun | None:
        """Unpack entries whose rows are all in the range; None if there is none.

        Nor if it has to be looked at for another reason.
        """
        if self._opener.is_required:
            return None  # these entries are not encrypted
        start, end = self._range.start.position, self._range.end.position
        after = start if after is None else max(start, after)
        last = arrived.following(first, after, end)
        return self._decoder.take(arrived, first, last) if last > first else None

    def _stored_entries(self) -> Iterator[StoredEntry | EntryRun]:
        """Yield the stored entries from the start to the end, both inclusive."""
        end = self._range.end.position
        silence = Silence(self._pool, self._range, self.reader)
        silence_s = self._pool.options.patience.silence_s
        while self.reader.position is None or self.reader.position < end:
            before = self.reader.position
            stored = self.reader.receive_run(silence_s, self._unpack)
            if stored is None:
                if silence.is_final():
                    if silence.lost:
                        self._lose(silence.lost)
                    return
                continue
            is_behind = isinstance(stored, StoredEntry) and stored.position > end
            if is_behind and self._has_no_end():
                return
            self._follow(before, stored)
            if is_behind:
                return
            yield stored
            silence.end()

    def _came_from(self, stored: StoredEntry | EntryRun) -> tuple[int, int]:
        """Return the place behind which all should have come: the start, once checked.

        A protected ledger that may have been read to its end before is not one to miss.
        Nor is there a ledger to miss before the first row of a topic partition, such as
        one that no one had created when the micro-batch before was planned.
        """
        begin = self._begin.position
        is_checked = not self._settings.is_protected or self._range.is_start_known
        return begin if is_checked and begin[0] >= 0 else stored.position

    def _follow(
        self, before: tuple[int, int] | None, stored: StoredEntry | EntryRun
    ) -> None:
        """Check that no entry is missing between a position and the next arrived entry.

        Compaction takes entries and ledgers, too, of which the compacted topic has what
        is wanted.

        Args:
            before: The last position that was read; None at the beginning.
            stored: What came.
        """
        if self._settings.reader.consumer.read_compacted:
            return
        expected = (before[0], before[1] + 1) if before else self._begin.position
        self._gaps.note(expected, stored)
        if self._gaps.is_due:
            self._look_at_gaps(is_alone=False)
        before, now = before or self._came_from(stored), self.reader.position
        if now is not None and now[0] != before[0]:
            self._trail.leave(before)
            if self._trail.is_due:
                self._looks_at_trail(is_alone=False)

    def _look_at_gaps(self, *, is_alone: bool) -> None:
        """Report what the broker has passed over of the range."""
        passed = self._gaps.look(is_alone=is_alone)
        if passed is not None and passed.position <= self._range.end.position:
            self._report_loss(
                f"{self._range.topic_partition} has {passed}, which the broker did not "
                "deliver: it moved the reader behind it, as the TTL of a namespace "
                "makes it do with whatever is older. Run the task again, or lengthen "
                "the TTL.",
                wanted=str(passed),
                available="",
            )

    def _settle(self) -> None:
        """Find the unknown reasons of gaps and of ledgers left behind."""
        if self._gaps.is_open:
            self._look_at_gaps(is_alone=True)
        if not self._trail.is_open:
            return
        self.reader.close()  # what it holds up would hold up the answer
        deadline = time.monotonic() + self._settings.reader.poll_timeout_s
        while True:
            if self._looks_at_trail(is_alone=True):
                return
            if time.monotonic() > deadline:
                raise ReadTimeoutError(
                    f"{self._range.topic_partition} was read up to {self._range.end}, "
                    "but the broker did not say within "
                    f"{self._settings.reader.poll_timeout_s:g} s (`pollTimeoutMs`) "
                    "what it has stored, so retention may have taken rows meanwhile.",
                    topic_partition=self._range.topic_partition,
                )
            time.sleep(self._pool.options.patience.silence_s)

    def _looks_at_trail(self, *, is_alone: bool) -> bool:
        """Report what retention took; return whether that is known now."""
        gap = self._trail.look(is_alone=is_alone)
        if gap is not None:
            self._report_loss(
                f"{self._range.topic_partition} now begins at {gap.first}: retention "
                f"or expiry took a ledger while it was read. Rows behind {gap.left} "
                "may be gone.",
                wanted=str(MessageId(gap.left.ledger_id, gap.left.entry_id + 1)),
                available=str(gap.first),
            )
        return not self._trail.is_open

    def _has_no_end(self) -> bool:
        """Report the end as lost if the entry that came next did not follow the end.

        Return whether it is. That entry may be another topic's, or the first that
        retention has left.
        """
        self.reader.close()  # what it holds up would hold up the answer
        if self._has_lost:
            return True  # and has said so
        settings, name = self._settings.reader, self._range.topic_partition
        end = self._range.end
        if settings.consumer.read_compacted:
            if not compaction.reaches(self._pool, name, end, settings):
                self._lose(
                    "the topic begins behind that: it was deleted and created again"
                )
        elif end.entry_id >= 0 and is_stored(self._pool, name, end) is False:
            self._lose("it was removed meanwhile, and maybe others before it")
        return self._has_lost

    def _check_start(self, start: MessageId, found: TopicPositions) -> None:
        # A topic that begins after the range proves nothing: all of it may be gone.
        reaches = found.before.position <= self._range.end.position
        # Nor was a ledger read to its end that is known to have had the start.
        reaches = reaches and not self._range.is_start_known
        is_protected = self._settings.is_protected and reaches
        first = check_start(
            self._range.topic_partition,
            start,
            found,
            fail_on_data_loss=self._settings.fail_on_data_loss,
            is_protected=is_protected,
        )
        self._has_lost |= first != start and not is_protected
        self._begin = first.first_chunk or first

    def _lose(self, what: str) -> None:
        """Report that rows up to the end of the range will not come any more."""
        position = self.reader.position
        taken = (
            MessageId(*position)
            if position and position <= self._range.end.position
            else None
        )
        message = (
            f"{self._range.topic_partition} should have rows up to {self._range.end}, "
            f"but {what}. "
            + (f"The last entry read was {taken}." if taken else "Nothing was read.")
        )
        self._report_loss(
            message, wanted=str(self._range.end), available=str(taken or "")
        )

    def _report_loss(self, message: str, *, wanted: str, available: str) -> None:
        report_loss(
            message,
            topic_partition=self._range.topic_partition,
            wanted=wanted,
            available=available,
            fail_on_data_loss=self._settings.fail_on_data_loss,
        )
        self._has_lost = True

    def _decoded(self, stored: StoredEntry) -> Iterator[Entry]:
        """Yield an entry's messages in pieces; none for a chunk that completes none."""
        position = stored.position
        try:
            yield from self._pieces(stored)
        except (CorruptEntryError, EncryptionError) as error:
            if position < self._range.start.position:
                return  # it is only stored between the first row's chunks
            if error.message_id:
                raise  # it is about another entry, where chunks were looked for
            raise CorruptEntryError(
                error.reason,
                topic_partition=self._range.topic_partition,
                message_id=str(MessageId(*position)),
            ) from None

    def _pieces(self, stored: StoredEntry) -> Iterator[Entry]:
        opened = self._opened(stored)
        if opened is None:
            return iter(())
        stored = opened
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

    def _opened(self, stored: StoredEntry) -> StoredEntry | None:
        """Return a decrypted entry; None for an entry that is left out."""
        if stored.is_marker:
            return stored
        return self._opener.open(stored, self._range.topic_partition)

    def _leave_room(self, size_bytes: int) -> None:
        """Keep the chunks in memory, and a large message, within the memory limit."""
        if size_bytes > DEFAULT_MAX_MESSAGE_SIZE_BYTES:
            self._chunks.put_aside(size_bytes)
            if size_bytes > self._max_bytes // _LARGE_SHARE:
                self._release_unused()

    def _assembler(self) -> ChunkAssembler:
        return ChunkAssembler(
            self._max_bytes,
            max_pending=self._settings.max_pending_chunked_messages,
            expire_ms=self._settings.expire_chunks_ms,
        )

    def _look_back(self, last: StoredEntry) -> StoredEntry | None:
        """Fetch a chunked message whose earlier chunks were not collected.

        They are before the range, or were put aside for others.
        """
        if last.position < self._range.start.position:
            return None
        search = ChunkSearch(
            self._pool,
            self._range.topic_partition,
            self._settings.reader,
            assembler=self._assembler,
            open_one=self._opened,
        ).find(last)
        if search.whole is not None or search.was_whole:
            return search.whole
        if search.is_closed:
            self._opener.discard(last)
            return None
        if search.damaged is not None:
            raise search.damaged
        if not search.has_first and self._had_first(last, search):
            self._lose_chunks(last, search)
            return None
        logger.warning(
            "%s: the chunked message that ends at %s is incomplete: some of its chunks "
            "do not exist, so its producer never finished it or they were removed.",
            self._range.topic_partition,
            MessageId(*last.position),
        )
        return None

    def _had_first(self, last: StoredEntry, found: Found) -> bool:
        """Return whether the first chunk, now missing, was stored once.

        A producer sends the chunks of a message one right after the other. So if the
        topic still has something else of that producer before the last chunk, it
        reaches back to before the first one, which was then never stored. And if a read
        begins where the topic begins, a message that began earlier is no part of it.
        All else counts as a loss: there is no way to tell.
        """
        begins_at = self._range.begins_at
        is_outside = begins_at is not None and begins_at.position == found.begin
        is_compacted = self._settings.reader.consumer.read_compacted
        return not (found.has_others or is_outside or is_compacted)

    def _lose_chunks(self, last: StoredEntry, found: Found) -> None:
        end, begin = MessageId(*last.position), MessageId(*found.begin)
        self._report_loss(
            f"{self._range.topic_partition} has the last chunk of a message, {end}, "
            f"but no longer the first one: it begins at {begin}. Retention or expiry "
            "removed what was before.",
            wanted=str(end),
            available=str(begin),
        )
