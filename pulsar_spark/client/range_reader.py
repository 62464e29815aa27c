"""The messages of one range of a topic partition: decoded, cut to the range, complete.

Ends by itself: at the end of the range, or where the broker says that nothing before
that end is left to deliver. Silence alone never ends a read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.reader import EntryReader, ReaderSettings
from pulsar_spark.errors import (
    CorruptEntryError,
    DataLossError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.offsets import MessageId
from pulsar_spark.plan import TopicPositions, TopicRange, check_start
from pulsar_spark.wire.chunks import (
    DEFAULT_EXPIRE_MS,
    DEFAULT_MAX_PENDING,
    ChunkAssembler,
    MissingChunks,
)
from pulsar_spark.wire.entries import FIELDS, Entry, StoredEntry, decode_entry

logger = logging.getLogger("pulsar_spark.client")

#: Silence after which the broker is asked whether anything is left, in seconds.
_PATIENCE_S = 0.5

#: How much earlier than its publish time the first chunk of a message is looked for, in
#: seconds: the clocks of producers, brokers and this machine differ.
_LOOK_BACK_S = 60


@dataclass(frozen=True, slots=True)
class RangeSettings:
    """How to read a range.

    Attributes:
        reader: How to read its entries.
        fail_on_data_loss: Whether rows that are gone end the read with an error.
        max_pending_chunked_messages: Chunked messages collected at a time.
        expire_chunks_ms: Age at which an incomplete one is put aside.
    """

    reader: ReaderSettings
    fail_on_data_loss: bool = True
    max_pending_chunked_messages: int = DEFAULT_MAX_PENDING
    expire_chunks_ms: int = DEFAULT_EXPIRE_MS


class RangeReader:
    """Reads one range.

    Args:
        pool: The cluster's connections.
        range_: What to read.
        settings: How to read it.
        fields: What is wanted beside payloads, see ``wire.entries.decode_entry``.

    Attributes:
        reader: The entries underneath, with their counters.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        range_: TopicRange,
        settings: RangeSettings,
        fields: frozenset[str] = FIELDS,
    ) -> None:
        self._pool = pool
        self._range = range_
        self._settings = settings
        self._fields = fields
        self._max_bytes = pool.options.memory_limit_bytes
        self._chunks = self._assembler()
        self.reader = EntryReader(
            pool,
            range_.topic_partition,
            range_.start,
            settings.reader,
            on_start=self._check_start,
        )

    def entries(self) -> Iterator[Entry]:
        """Yields the entries of the range in order, cut to it; none of them is empty.

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
                entry = self._decode(stored)
                if entry is None:
                    continue
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
            elif self._is_exhausted():
                return
            elif time.monotonic() - heard > self._settings.reader.poll_timeout_s:
                raise ReadTimeoutError(
                    f"{self._range.topic_partition} delivered nothing for "
                    f"{self._settings.reader.poll_timeout_s:g} s (`pollTimeoutMs`), "
                    f"though there are rows up to {self._range.end}. Look at the "
                    "broker's log, or raise `pollTimeoutMs`.",
                    topic_partition=self._range.topic_partition,
                )

    def _is_exhausted(self) -> bool:
        """Whether the broker has nothing more for us before the end of the range."""
        positions = self.reader.positions()
        if positions is None:
            return False
        taken = self.reader.position
        if positions.last is not None:
            last = positions.last.position
            if last > taken if taken else last >= self._range.start.position:
                return False
        if not self._settings.reader.read_compacted:
            self._lose(
                f"the topic now ends at {positions.last or 'its beginning, empty'}"
            )
        return True

    def _check_start(self, start: MessageId, found: TopicPositions) -> None:
        if not self._settings.reader.read_compacted:
            check_start(
                self._range.topic_partition,
                start,
                found,
                fail_on_data_loss=self._settings.fail_on_data_loss,
            )

    def _lose(self, what: str) -> None:
        """Rows up to the end of the range will not come any more."""
        taken = MessageId(*self.reader.position) if self.reader.position else None
        message = (
            f"{self._range.topic_partition} should have rows up to {self._range.end}, "
            f"but {what}. "
            + (f"The last entry read was {taken}." if taken else "Nothing was read.")
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{message} Set `failOnDataLoss` to false to go on with what there is.",
                topic_partition=self._range.topic_partition,
                wanted=str(self._range.end),
                available=str(taken or ""),
            )
        logger.warning("[PULSAR_DATA_LOSS] %s Going on with what there is.", message)

    def _decode(self, stored: StoredEntry) -> Entry | None:
        """The messages of an entry; None for a chunk that completes nothing."""
        try:
            if stored.is_chunk and not stored.is_marker:
                whole = self._chunks.add(stored)
                if isinstance(whole, MissingChunks):
                    whole = self._look_back(whole.last)
                if whole is None:
                    return None
                stored = whole
            return decode_entry(stored, fields=self._fields, max_bytes=self._max_bytes)
        except CorruptEntryError as error:
            raise CorruptEntryError(
                error.reason,
                topic_partition=self._range.topic_partition,
                message_id=str(MessageId(*stored.position)),
            ) from None

    def _assembler(self) -> ChunkAssembler:
        return ChunkAssembler(
            self._max_bytes,
            self._settings.max_pending_chunked_messages,
            self._settings.expire_chunks_ms,
        )

    def _look_back(self, last: StoredEntry) -> StoredEntry | None:
        """Fetches a chunked message whose earlier chunks were not collected.

        They lie before the range, or were put aside for others. All chunks carry one
        publish time, so that is where a second reader begins.
        """
        if last.position < self._range.start.position:
            return None
        age_s = time.time() - last.metadata.publish_time / 1000
        # Over connections of its own: where the first reader's inbox is full, its
        # connection is not read, so no answer for a second reader would come.
        pool = ConnectionPool(self._pool.options)
        reader = EntryReader(
            pool,
            self._range.topic_partition,
            self._range.start,
            self._settings.reader,
            rollback_s=max(1, math.ceil(age_s) + _LOOK_BACK_S),
        )
        chunks = self._assembler()
        whole: StoredEntry | MissingChunks | None = None
        try:
            while reader.position is None or reader.position < last.position:
                stored = reader.receive(self._settings.reader.poll_timeout_s)
                if stored is None:
                    break
                if stored.is_chunk and stored.metadata.uuid == last.metadata.uuid:
                    whole = chunks.add(stored)
        finally:
            reader.close()
            pool.close()
        if isinstance(whole, StoredEntry):
            return whole
        logger.warning(
            "%s: the chunked message that ends at %s is incomplete: its first chunks "
            "do not exist, so its producer never finished it or they were removed.",
            self._range.topic_partition,
            MessageId(*last.position),
        )
        return None
