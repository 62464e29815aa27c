# SPDX-License-Identifier: Apache-2.0
"""Cut ranges into parts, so that several tasks read a topic partition: pure.

What is stored is dense: a ledger that ends with entry n has the entries 0 to n. So a
range is a few runs of entries, and a cut is arithmetic once the ledgers are known::

    range    7:5 ......................... 13:2     of ledgers 7, 11 and 13
    runs     7:5-7:7   11:0-11:4   13:0-13:2        3 + 5 + 3 entries
    2 parts  7:5 ........ 11:1   11:2 .... 13:2     5 + 6 entries

Markers of transactions and rows that readers never see count as entries here, so a part
may hold fewer rows than its size says, or none. Parts are disjoint and in order, and
together they are the range, even if the runs are wrong.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from pulsar_spark.message_id import MessageId
from pulsar_spark.source.plan.ranges import TopicRange

#: ``(ledger_id, entry_id)``.
Place = tuple[int, int]


class Run(NamedTuple):
    """Entries of a ledger, both ends inclusive."""

    ledger_id: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        """Return how many there are."""
        return self.last - self.first + 1


class LedgerSurvey:
    """Finds the ledgers of a range by asking for the last entry before some positions.

    Listing the ledgers of a topic needs admin rights, but a broker says which entry is
    right before any position, existing or not; before entry 0 of any ledger id it is
    the last of its ledger. Between two known ledgers many positions are asked about at
    once: ids are numbered cluster-wide, so most of those between are of other topics.

    Args:
        range_: The range.
    """

    def __init__(self, range_: TopicRange) -> None:
        self._start, end = range_.start.position, range_.end.position
        self._lasts: dict[int, int] = {}  # the last entry in the range, by ledger
        self._open: list[Place] = []
        # Ids, of ledgers or not, below which nothing is left to find.
        self._floors = {max(0, self._start[0])}
        if self._start[0] == end[0]:
            self._lasts[end[0]] = end[1]
        else:
            self._open.append((end[0], end[1] + 1))

    @property
    def gaps(self) -> int:
        """Return how many positions may have missing ledgers before them."""
        return len(self._open)

    def questions(self, extra: int) -> list[Place]:
        """Return positions to ask about; ``learn`` needs the answer to each position.

        Args:
            extra: How many more than necessary may be asked for each gap.
        """
        places = dict.fromkeys(self._open)
        floors = sorted(self._floors)
        for ledger_id, _ in self._open:
            lower = floors[max(0, bisect_left(floors, ledger_id) - 1)]
            step = (ledger_id - lower) / (extra + 1)
            between = {lower + math.ceil(step * i) for i in range(1, extra + 1)}
            places.update(
                dict.fromkeys((k, 0) for k in sorted(between) if lower < k < ledger_id)
            )
        return list(places)

    def learn(self, answers: dict[Place, Place]) -> None:
        """Learn the last entry before each position asked about."""
        self._open = []
        self._floors.update(ledger_id for ledger_id, _ in answers)
        for asked, before in sorted(answers.items()):
            ledger_id, last = before
            # The beginning of another ledger means that nothing is before.
            if last < 0 or not self._start <= before < asked:
                continue
            if ledger_id not in self._lasts:
                if ledger_id > self._start[0] and (ledger_id, 0) not in answers:
                    self._open.append((ledger_id, 0))
                self._lasts[ledger_id] = last
                self._floors.add(ledger_id)

    def runs(self) -> list[Run]:
        """Return the range's entries, in order; complete once there are no gaps."""
        runs = []
        for ledger_id, last in sorted(self._lasts.items()):
            first = self._start[1] if ledger_id == self._start[0] else 0
            runs.append(Run(ledger_id, max(0, first), last))
        return [run for run in runs if run.entries > 0]


def places_of(runs: Sequence[Run], indexes: Iterable[int]) -> list[Place]:
    """Return the positions of the entries with the given indexes in the runs."""
    ends = list(accumulate(run.entries for run in runs))
    places = []
    for index in indexes:
        run_index = bisect_right(ends, index)
        places.append(
            (
                runs[run_index].ledger_id,
                runs[run_index].last + 1 + index - ends[run_index],
            )
        )
    return places


def cut(range_: TopicRange, runs: Sequence[Run], parts: int) -> list[TopicRange]:
    """Cut a range into parts whose numbers of entries differ by at most 1.

    The first and the last keep the exact start and end of the range.

    Args:
        range_: The range.
        runs: Its entries.
        parts: At least 1, and no more than there are entries.
    """
    if parts == 1:
        return [range_]
    entries = sum(run.entries for run in runs)
    return cut_before(range_, runs, *(entries * i // parts for i in range(1, parts)))


def cut_before(range_: TopicRange, runs: Sequence[Run], *cuts: int) -> list[TopicRange]:
    """Cut a range before the entries with the given indexes, above 0."""
    ends = places_of(runs, (index - 1 for index in cuts))
    starts = [MessageId(*place) for place in places_of(runs, cuts)]
    return [
        replace(
            range_,
            start=start,
            end=end,
            is_start_known=range_.is_start_known or start is not range_.start,
        )
        for start, end in zip(
            [range_.start, *starts],
            [*(MessageId(*place) for place in ends), range_.end],
            strict=True,
        )
    ]
