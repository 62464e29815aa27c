# SPDX-License-Identifier: Apache-2.0
"""Notice rows that a broker skips before a read reaches their position.

The TTL of a namespace applies to readers, too. Every few minutes the broker moves each
reader past the messages that are older, and delivers from there on. All of them may
still be stored::

    stored     7:0  7:1  7:2  7:3  7:4  7:5
    delivered  7:0  7:1                 7:5     its place: 7:4

Transactions leave gaps as well, and so do other entries that brokers do not deliver.
But a reader acknowledges nothing: its place stays before the first entry that it was
sent, unless the broker moves it. So a gap is read once more, by another reader, in
three cases only: the reader was moved; the reader that has seen the gap is gone; or the
gap is before a reader's first entry, where a broker counts what it does not deliver as
acknowledged.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.client.entry_reader import EntryReader
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.message_id import MessageId
from pulsar_spark.source.missing.silence import Silence
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.wire.entries import EntryRun, StoredEntry

_Position = tuple[int, int]


class Gap(NamedTuple):
    """Entries that did not come.

    Attributes:
        first: The first one; it need not exist.
        end: The one that came instead.
    """

    first: _Position
    end: _Position


class Gaps:
    """What did not come of a topic partition.

    Args:
        pool: The cluster's connections.
        reader: Reads it.
    """

    def __init__(self, pool: ConnectionPool, reader: EntryReader) -> None:
        self._pool = pool
        self._reader = reader
        self._reconnects = 0
        self._sent: _Position | None = None  # the first entry since then
        self._behind: list[Gap] = []  # that entry
        self._unsure: list[Gap] = []  # of readers that are gone, or before that entry
        self._looked_at = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Return whether something did not come and may be stored."""
        return bool(self._behind or self._unsure)

    @property
    def is_due(self) -> bool:
        """Return whether the next look is due."""
        if not self.is_open:
            return False
        pause_s = self._pool.options.patience.gaps_s
        return time.monotonic() - self._looked_at >= pause_s

    def note(self, wanted: _Position, arrived: StoredEntry | EntryRun) -> None:
        """Note what did not come.

        Args:
            wanted: The first position that should have come next.
            arrived: What did.
        """
        self._see()
        gaps = list(gaps_in(wanted, arrived))
        if self._sent is None:
            self._sent = arrived.position
            before = [gap for gap in gaps if gap.end <= self._sent]
            self._unsure += before
            gaps = gaps[len(before) :]
        self._behind += gaps

    def look(self, *, is_alone: bool) -> MessageId | None:
        """Return the first entry that was passed over and is stored; None for none.

        The gaps are forgotten that this is now known of.

        Args:
            is_alone: As for `ConnectionPool.that_answers`; then the reader is closed.

        Raises:
            ReadTimeoutError: The topic partition cannot be reached for too long, or
                delivers nothing.
            PulsarSparkError: The broker refuses for good.
        """
        self._looked_at = time.monotonic()
        if self._behind:
            self._unsure += self._passed_over()
        self._behind.clear()
        unsure, self._unsure = self._unsure, []
        if not unsure:
            return None
        if is_alone:
            self._reader.close()
        with self._pool.that_answers(is_alone=is_alone) as pool:
            return self._read_again(pool, unsure)

    def _passed_over(self) -> list[Gap]:
        """Return the gaps that a move of the reader may have made."""
        positions = self._reader.positions()
        self._see()
        if positions is None or self._sent is None:
            return self._behind
        place = positions.before.position
        if place < self._sent:
            return []
        return [gap for gap in self._behind if gap.first <= place]

    def _see(self) -> None:
        """Note whether the reader came back: a new cursor says nothing of the past."""
        if self._reconnects != self._reader.reconnects:
            self._reconnects = self._reader.reconnects
            self._sent = None
            self._unsure += self._behind
            self._behind.clear()

    def _read_again(self, pool: ConnectionPool, gaps: list[Gap]) -> MessageId | None:
        topic = self._reader.topic_partition
        start, end = MessageId(*gaps[0].first), MessageId(*gaps[-1].end)
        range_ = TopicRange(topic, start, end)
        left = deque(gaps)
        with EntryReader(pool, topic, start, self._reader.settings) as reader:
            for entry in _stored(pool, range_, reader):
                while left and left[0].end <= entry:
                    left.popleft()
                if left and left[0].first <= entry:
                    return MessageId(*entry)
        return None


def _stored(
    pool: ConnectionPool, range_: TopicRange, reader: EntryReader
) -> Iterator[_Position]:
    """Yield where entries are that are delivered, up to the end of a range.

    Or to the end of what there is of it: retention may have taken the rest, see
    ``trail``.
    """
    silence = Silence(pool, range_, reader)
    while reader.position is None or reader.position < range_.end.position:
        with contextlib.suppress(CorruptEntryError):  # told where it is handed on
            if (came := reader.receive(pool.options.patience.silence_s)) is not None:
                yield came.position
                silence.end()
            elif silence.is_final():
                return


def gaps_in(wanted: _Position, arrived: StoredEntry | EntryRun) -> Iterator[Gap]:
    """Yield the gaps in front of an arrived entry or run, and inside a run, in order.

    Args:
        wanted: The first position that should have come.
        arrived: What did.
    """
    if wanted < arrived.position:
        yield Gap(wanted, arrived.position)
    if isinstance(arrived, EntryRun):
        yield from _between(arrived.deliveries, arrived.first, arrived.last - 1)


def _between(known: Deliveries, first: int, last: int) -> Iterator[Gap]:
    """Yield the gaps between two entries of a run, whose positions only grow."""
    before, after = known.position(first), known.position(last)
    if after == (before[0], before[1] + last - first):
        return
    if last - first == 1:
        yield Gap((before[0], before[1] + 1), after)
        return
    middle = (first + last) // 2
    yield from _between(known, first, middle)
    yield from _between(known, middle, last)
