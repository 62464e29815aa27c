# SPDX-License-Identifier: Apache-2.0
"""How many entries of each topic partition a micro-batch reads: pure arithmetic.

An entry, one message or a producer's batch of them, is what is stored; it is never
split. A limit counts over all partitions. Each is owed its share, in proportion to the
entries that wait for it; what an entry is charged is its exact size where that is
known, and its topic's average elsewhere::

    share = min(1, max_rows / rows waiting, max_bytes / bytes waiting)
    due   = credit + share * entries          of a partition, in entries

Whole entries that are due come first, then one of each partition: the earliest deadline
first, those owed nothing last, so that none gets an entry ahead of its share. What
remains, because sizes differ or do not fit, is shared out again among those whose next
entry still fits, until there are none.

Credit is what a partition was owed and did not get, to be settled next time: one entry
at most, and one more each time that it got none. So partitions take turns when shares
are fractions, and an entry that is too large to come after others becomes the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: Entries that an average remembers: the mean of the first, then 1/32 for each new one.
_MEMORY_ENTRIES = 32

#: An entry's size before any was seen. A small batch is full of small messages.
_FIRST_ROWS = 1.0
_FIRST_BYTES = 1024.0

#: An average is no smaller, or a limit would let in any number of entries: the rows of
#: a chunk of a message of 1,000 chunks, and one byte. Both are our choice.
_LEAST_ROWS = 1 / 1000
_LEAST_BYTES = 1.0

#: By how much rounding may pass a limit: the n chunks of a message are to sum up to 1.
_ROUNDING = 1e-6


class EntrySize(NamedTuple):
    """The cost of an entry against the limits.

    Attributes:
        rows: Its messages; one chunk of a message of n chunks counts 1/n.
        size_bytes: As stored, at least 0.
    """

    rows: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unread entries of a topic partition.

    Attributes:
        topic: Its average counts for the entries that were not looked at.
        entries: How many wait, at least 1; an estimate.
        ahead: Exact sizes of the first of them, in order. Those beyond ``entries``
            do not count.
    """

    topic: str
    entries: int
    ahead: tuple[EntrySize, ...] = ()


class Admission:
    """Shares the limits of a micro-batch among topic partitions.

    The same calls in the same order have the same answers.
    """

    def __init__(self, *, max_rows: int | None, max_bytes: int | None) -> None:
        """Start with no sizes known and nothing owed.

        Args:
            max_rows: Rows in a micro-batch, at least 1; None for no limit.
            max_bytes: Bytes in a micro-batch, at least 1; None for no limit.
        """
        self._max_rows = math.inf if max_rows is None else max_rows
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._overall = _Average()
        self._averages: dict[str, _Average] = {}  # by topic
        self._credits: dict[str, float] = {}  # entries, by partition

    def observe(self, topic: str, size: EntrySize) -> None:
        """Update the topic's average by a further entry."""
        self._overall.add(size)
        self._averages.setdefault(topic, _Average()).add(size)

    def entry_bytes(self, topic: str) -> float | None:
        """Return the average bytes of an entry of the topic, or of all.

        Returns:
            None where no entry of any topic was seen.
        """
        if not self._averages:
            return None
        return self._averages.get(topic, self._overall).size_bytes

    def rows(self, backlogs: Mapping[str, Backlog]) -> float:
        """Return how many rows wait, estimated where sizes are not known."""
        return sum(lane.rows for lane in self._lanes(backlogs).values())

    def admit(self, backlogs: Mapping[str, Backlog]) -> dict[str, int]:
        """Decide the size of a micro-batch, and charge the entries.

        The charge exceeds a limit only if the first entry alone does; and no
        partition's next entry would still fit.

        Args:
            backlogs: What waits, by partition. The order decides between equals.

        Returns:
            Entries to take of each partition, 0 for none this time; keys as given. At
            least one entry in total, unless nothing waits.
        """
        lanes = self._lanes(backlogs)
        room = _Room(self._max_rows, self._max_bytes)
        waiting = [lane for lane in lanes.values() if lane.waits]
        while waiting:
            share = room.share(waiting)
            for lane in waiting:
                lane.due += share * lane.left
            for whole in (True, False):
                waiting.sort(key=_Lane.turn)
                for lane in waiting:
                    lane.take(int(lane.due) if whole else 1, room)
                waiting = [lane for lane in waiting if lane.waits]
        self._settle(lanes)
        return {name: lane.taken for name, lane in lanes.items()}

    def _lanes(self, backlogs: Mapping[str, Backlog]) -> dict[str, _Lane]:
        return {
            name: _Lane(
                backlog,
                self._averages.get(backlog.topic, self._overall),
                self._credits.get(name, 0.0),
            )
            for name, backlog in backlogs.items()
        }

    def _settle(self, lanes: Mapping[str, _Lane]) -> None:
        # Partitions owe each other: credits sum up to nothing. So the share that counts
        # is what the batch came to, however wrong the first estimate was.
        taken = sum(lane.taken - lane.credit for lane in lanes.values())
        share = taken / max(1, sum(lane.entries for lane in lanes.values()))
        self._credits = {
            name: lane.settled(share) for name, lane in lanes.items() if lane.left > 0
        }


class _Average:
    """Averages of rows and bytes per entry, weighted towards recent entries."""

    def __init__(self) -> None:
        self._count = 0
        self.rows = _FIRST_ROWS
        self.size_bytes = _FIRST_BYTES

    def add(self, size: EntrySize) -> None:
        self._count = min(self._count + 1, _MEMORY_ENTRIES)
        rows = self.rows + (size.rows - self.rows) / self._count
        size_bytes = self.size_bytes + (size.size_bytes - self.size_bytes) / self._count
        self.rows = max(rows, _LEAST_ROWS)
        self.size_bytes = max(size_bytes, _LEAST_BYTES)


class _Room:
    """The unused part of the limits in a micro-batch."""

    def __init__(self, max_rows: float, max_bytes: float) -> None:
        self._rows = max_rows + _ROUNDING
        self._bytes = max_bytes + _ROUNDING
        self._untouched = True

    def share(self, lanes: Iterable[_Lane]) -> float:
        """Return which part of all that waits there is room for, at most 1."""
        rows = sum(lane.rows for lane in lanes)
        size_bytes = sum(lane.size_bytes for lane in lanes)
        # Less than nothing is left where an entry was taken that fits no limit.
        rows_left, bytes_left = max(self._rows, 0.0), max(self._bytes, 0.0)
        by_rows = rows_left / rows if rows > rows_left else 1.0
        by_bytes = bytes_left / size_bytes if size_bytes > bytes_left else 1.0
        return min(by_rows, by_bytes)

    def take(self, rows: float, size_bytes: float, wanted: int) -> int:
        """Charge entries of equal size; return how many fit, at least the first."""
        count = wanted
        for left, each in (self._rows, rows), (self._bytes, size_bytes):
            if count * each > left:
                count = int(left / each) if left > 0 else 0
        if self._untouched:
            count = max(1, count)
        self._untouched = False
        self._rows -= count * rows
        self._bytes -= count * size_bytes
        return count


class _Lane:
    """A partition in a micro-batch; ``rows`` and ``size_bytes`` remain to be taken."""

    def __init__(self, backlog: Backlog, average: _Average, credit: float) -> None:
        self.entries = backlog.entries
        self.credit = credit
        self.due = credit
        self.taken = 0
        self.waits = backlog.entries > 0  # and the next one may still fit
        self._ahead = backlog.ahead[: backlog.entries]
        self._each = average.rows, average.size_bytes
        unknown = backlog.entries - len(self._ahead)
        self.rows = unknown * average.rows
        self.size_bytes = unknown * average.size_bytes
        for size in self._ahead:
            self.rows += size.rows
            self.size_bytes += size.size_bytes

    @property
    def left(self) -> int:
        return self.entries - self.taken

    def turn(self) -> tuple[bool, float]:
        """Return the sort key: by deadline, partitions without debt last."""
        return self.due <= 0, (1 - self.due) / self.entries

    def take(self, wanted: int, room: _Room) -> None:
        """Take up to ``wanted`` entries, within the room."""
        wanted = min(wanted, self.left)
        while wanted > 0 and self.waits:
            is_ahead = self.taken < len(self._ahead)
            rows, size_bytes = self._ahead[self.taken] if is_ahead else self._each
            count = 1 if is_ahead else wanted
            fitting = room.take(rows, size_bytes, count)
            self.taken += fitting
            self.due -= fitting
            self.rows -= fitting * rows
            self.size_bytes -= fitting * size_bytes
            wanted -= fitting
            self.waits = fitting == count and self.left > 0

    def settled(self, share: float) -> float:
        """Return the credit for next time, after a batch of this share."""
        # Room that others could not use is free, as far as it exceeds one entry.
        most = 1.0 if self.taken else 1.0 + max(0.0, self.credit)
        return max(-1.0, min(self.credit + share * self.entries - self.taken, most))
