"""Times, ratios and the one table that a run of the benchmarks prints.

Machines differ, and one machine differs from minute to minute. So whatever is compared
is taken in turns, in one run: each repeat measures the limit and the thing itself, and
a ratio is the median of the repeats' own ratios.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

#: Measures once; returns seconds.
Measure = Callable[[], float]

_HEADERS = (
    "hop",
    "what",
    "rows/s",
    "best",
    "MB/s",
    "us/row",
    "limit",
    "its rows/s",
    "ratio",
)


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        hop: The part of the path.
        what: What was measured.
        rows: How many rows each repeat handled.
        size_bytes: Bytes of all their values.
        seconds: How long each repeat took.
        limit: What it is held against, "" for nothing.
        limit_seconds: How long the limit took for as many rows, repeat by repeat.
        target: The least ratio that is good enough, None where none was agreed.
    """

    hop: str
    what: str
    rows: int
    size_bytes: int
    seconds: list[float]
    limit: str = ""
    limit_seconds: list[float] | None = None
    target: float | None = None

    @property
    def rows_per_s(self) -> float:
        """Median."""
        return self.rows / median(self.seconds)

    @property
    def ratio(self) -> float | None:
        """Throughput by that of the limit: the median of the repeats."""
        if self.limit_seconds is None:
            return None
        pairs = zip(self.limit_seconds, self.seconds, strict=True)
        return median(limit / own for limit, own in pairs)

    def cells(self) -> tuple[str, ...]:
        """The texts of its line."""
        middle = median(self.seconds)
        return (
            self.hop,
            self.what,
            _number(self.rows / middle),
            _number(self.rows / min(self.seconds)),
            _number(self.size_bytes / middle / 1e6),
            f"{middle / self.rows * 1e6:.2f}",
            self.limit,
            _number(self.rows / median(self.limit_seconds))
            if self.limit_seconds
            else "",
            self._ratio_text(),
        )

    def _ratio_text(self) -> str:
        ratio = self.ratio
        if ratio is None:
            return ""
        if self.target is None:
            return f"{ratio:.2f}"
        word = "ok" if ratio >= self.target else "MISSED"
        return f"{ratio:.2f} (>= {self.target}: {word})"

    def as_json(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "rows_per_s": self.rows_per_s, "ratio": self.ratio}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(cases: list[Case]) -> str:
    """The cases as an aligned Markdown table, to be read here and pasted elsewhere."""
    rows = [_HEADERS, *(case.cells() for case in cases)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADERS))]
    left = {0, 1, 6}  # words to the left, numbers to the right

    def line(cells: tuple[str, ...]) -> str:
        padded = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    ruler = "|".join(
        "-" * (width + 2) if i in left else "-" * (width + 1) + ":"
        for i, width in enumerate(widths)
    )
    return "\n".join([line(_HEADERS), f"|{ruler}|", *(line(row) for row in rows[1:])])


def in_turns(
    measures: Mapping[str, Measure], repeats: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Measures all of them in turns; seconds of each, repeat by repeat.

    Args:
        measures: What to measure, by name.
        repeats: How often each.
        warm_up: Whether one more round goes before and does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for repeat in range(-1 if warm_up else 0, repeats):
        for name, measure in measures.items():
            gc.collect()
            taken = measure()
            if repeat >= 0:
                seconds[name].append(taken)
    return seconds


def cpu(work: Callable[[], object]) -> Measure:
    """Measures the processor's time: others on the machine hardly change it."""

    def measure() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return measure


def wall(work: Callable[[], object]) -> Measure:
    """Measures the clock's time."""

    def measure() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return measure


def summed(*seconds: list[float]) -> list[float]:
    """Repeat by repeat, the time of several things done one after the other."""
    return [sum(parts) for parts in zip(*seconds, strict=True)]
