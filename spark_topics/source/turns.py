# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task: range after range becomes RecordBatches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from spark_topics.statistics import Kind, TaskStatistics, Totals

if TYPE_CHECKING:
    import pyarrow as pa


class Turn(Protocol):
    """A range of a task; reading begins at construction."""

    @property
    def waited_s(self) -> float:
        """Return the time spent waiting for servers, in seconds."""

    @property
    def reconnects(self) -> int:
        """Return how often a connection had to be made again."""

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range, in order.

        Args:
            stats: Where to count what was read, as it comes.
        """

    def close(self) -> None:
        """Close the reader at any point of the range."""


def read_turns(
    turns: Iterator[Turn],
    kind: Kind,
    name: str,
    interval_s: float,
    refresh: Callable[[Totals], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, range by range, and log statistics.

    While one range is read, the next one begins, so that a task of many small ranges
    does not wait for that with each of them.

    Args:
        turns: Makes the turns.
        kind: What the task does.
        name: The name.
        interval_s: Time between two lines of statistics; 0 for none.
        refresh: Called before a line, to add figures of the messaging system's own.
    """
    open_turns = _Turns(turns)

    def refresh_all(totals: Totals) -> None:
        open_turns.refresh(totals)
        refresh(totals)

    stats = TaskStatistics(kind, name, interval_s, refresh_all)
    try:
        for record_batch in open_turns.record_batches(stats):
            handed_over = time.monotonic()
            yield record_batch
            stats.totals.spark_s += time.monotonic() - handed_over
    finally:
        open_turns.close()
        stats.end()


class _Turns:
    """The ranges of a task; the next range starts while the current is read.

    Args:
        turns: Makes the turns.
    """

    def __init__(self, turns: Iterator[Turn]) -> None:
        self._turns = turns
        self._open: deque[Turn] = deque()
        self._waited_s = 0.0  # of those that are over
        self._reconnects = 0

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ranges, in order."""
        self._open.extend(islice(self._turns, 1))
        while self._open:
            self._open.extend(islice(self._turns, 1))
            yield from self._open[0].record_batches(stats)
            over = self._open.popleft()
            self._waited_s += over.waited_s
            self._reconnects += over.reconnects

    def refresh(self, totals: Totals) -> None:
        """Bring the figures of a task up to date."""
        totals.broker_s = self._waited_s + sum(turn.waited_s for turn in self._open)
        totals.reconnects = self._reconnects + sum(
            turn.reconnects for turn in self._open
        )

    def close(self) -> None:
        """Let go of the servers, wherever this is."""
        for turn in self._open:
            turn.close()
