# SPDX-License-Identifier: Apache-2.0
"""What tasks did, in lines that a user sees without setting up logging.

``spark_topics.logs`` says where they can be seen.

A task that lasts has a line each interval, and one at its end if it took ten seconds.
Shorter ones, such as those of most micro-batches, are added up: their process has one
line for all of them, and no more often than that.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: A task of so many seconds has a line of its own: a process has six a minute at most,
#: and a job that somebody waits for is not over before anything is said.
_LASTS_S = 10.0


@dataclass
class Totals:
    """Totals of a task, or of several tasks.

    Attributes:
        rows: Rows read or written.
        size_bytes: Bytes of their entries.
        total_s: How long it took, in seconds.
        broker_s: Of that, waiting for brokers.
        spark_s: Of that, waiting for Spark: to take rows, or to give some.
        duplicate_rows: Rows that the broker had already.
        discarded_rows: Rows that were left out, as the options say.
        reconnects: How often a connection had to be made again.
    """

    rows: int = 0
    size_bytes: int = 0
    total_s: float = 0.0
    broker_s: float = 0.0
    spark_s: float = 0.0
    duplicate_rows: int = 0
    discarded_rows: int = 0
    reconnects: int = 0

    def add(self, other: Totals) -> None:
        """Count another task."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Kind:
    """The words of log lines for a kind of task.

    Attributes:
        did: What they do with rows.
        works: What they do while they wait for nothing.
        note: What else there is to say of them.
        discarded: What is left out of them, where something is.
        logger: Where their lines go.
    """

    did: str
    works: str
    note: str = ""
    discarded: str = "rows"
    logger: logging.Logger = field(kw_only=True)

    def text(self, totals: Totals) -> str:
        """Return the figures as text for users."""
        works_s = max(0.0, totals.total_s - totals.broker_s - totals.spark_s)
        duplicates = f"; {totals.duplicate_rows} rows were there already"
        discarded = f"; {totals.discarded_rows} {self.discarded} left out"
        return (
            f"{totals.rows} rows, {totals.size_bytes} bytes {self.did} in "
            f"{totals.total_s:.1f} s: {totals.broker_s:.1f} s waiting for the broker, "
            f"{totals.spark_s:.1f} s for Spark, {works_s:.1f} s {self.works}"
            f"{duplicates if totals.duplicate_rows else ''}"
            f"{discarded if totals.discarded_rows else ''}"
            f"; {totals.reconnects} reconnects{self.note}"
        )


class TaskStatistics:
    """The log lines of a task.

    Args:
        kind: The action.
        name: What the task is called.
        interval_s: Time between two lines; 0 for none.
        refresh: Called before a line, to bring the totals up to date.

    Attributes:
        totals: What the task did so far; the total time is filled in here.
    """

    def __init__(
        self,
        kind: Kind,
        name: str,
        interval_s: float,
        refresh: Callable[[Totals], None],
    ) -> None:
        self.totals = Totals()
        self._kind = kind
        self._name = name
        self._interval_s = interval_s or math.inf
        self._refresh = refresh
        self._began = time.monotonic()
        self._next_line = self._began + self._interval_s

    def count(self, rows: int = 0, size_bytes: int = 0) -> None:
        """Add to the totals, and log a line at each interval."""
        self.totals.rows += rows
        self.totals.size_bytes += size_bytes
        if time.monotonic() >= self._next_line:
            self._next_line = self._now() + self._interval_s
            self._log(logging.INFO)

    @property
    def elapsed_s(self) -> float:
        """Return the time since the task began, in seconds."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """Log the last line; short tasks share a line."""
        now = self._now()
        is_told = self._interval_s < math.inf
        if is_told and self.totals.total_s >= min(self._interval_s, _LASTS_S):
            self._log(logging.INFO)
            return
        self._log(logging.DEBUG)
        if is_told:
            short = _short_tasks.setdefault(self._kind, _ShortTasks(self._began))
            short.add(self.totals)
            if now - short.began >= self._interval_s:
                del _short_tasks[self._kind]
                name = f"{short.tasks} tasks within {now - short.began:.1f} s"
                self._line(logging.INFO, name, short.totals)

    def _now(self) -> float:
        now = time.monotonic()
        self._refresh(self.totals)
        self.totals.total_s = now - self._began
        return now

    def _log(self, level: int) -> None:
        self._line(level, self._name, self.totals)

    def _line(self, level: int, name: str, totals: Totals) -> None:
        logger = self._kind.logger
        logger.log(level, "%s: %s", name, self._kind.text(totals))


class _ShortTasks:
    """Tasks of this process without a line of their own since ``began``."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.tasks = 0
        self.totals = Totals()

    def add(self, totals: Totals) -> None:
        self.tasks += 1
        self.totals.add(totals)


#: A worker of Spark runs one task after the other.
_short_tasks: dict[Kind, _ShortTasks] = {}


def log_summary(logger: logging.Logger, text: str, interval_s: float) -> None:
    """Log a line about a whole write. On the driver.

    Args:
        logger: The destination.
        text: The line.
        interval_s: As for tasks: 0 for no line.
    """
    logger.log(logging.INFO if interval_s else logging.DEBUG, "%s", text)


def warn_once(logger: logging.Logger, text: str) -> None:
    """Log a warning once a process.

    Args:
        logger: The destination.
        text: The line.
    """
    if text not in _warnings:
        _warnings.add(text)
        logger.warning("%s", text)


_warnings: set[str] = set()
