# SPDX-License-Identifier: Apache-2.0
"""Times, ratios and the one table that a run of the benchmarks prints.

Machines differ, and one machine differs from minute to minute. So whatever is compared
is taken in turns, in one run: each repeat measures the limit and the thing itself, and
a ratio is the median of the repeats' own ratios.

A run is saved as a document: {"machine": {name: text}, "cases": [one dict a case]}.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

#: Measures once; returns seconds.
Measure = Callable[[], float]

_HEADERS = (
    "hop",
    "what",
    "rows/s",
    "MB/s",
    "us/row",
    "limit",
    "its rows/s",
    "reached",
    "target",
)
_LEFT = {"hop", "what", "limit"}  # words to the left, numbers to the right

#: What a target can be about. A ratio is to be that large at least, each of the others
#: that large at most.
RATIO = "ratio"
MICROSECONDS = "us"  # a row
MILLISECONDS = "ms"  # a row
MORE_MS = "ms more"  # a row, than the limit
SECONDS = "s"
MIB = "MiB"


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        hop: The part of the path.
        what: What was measured; with hop and limit it names the line from run to run.
        rows: How many rows each repeat handled.
        size_bytes: Bytes of all their values.
        seconds: How long each repeat took.
        limit: What it is held against, "" for nothing.
        limit_seconds: How long the limit took for as many rows, repeat by repeat.
        target: How much ``figure`` must reach, None where nothing was agreed.
        figure: What counts here: RATIO, MICROSECONDS, MILLISECONDS, MORE_MS, SECONDS or
            MIB.
        mib: Of memory, repeat by repeat.
    """

    hop: str
    what: str
    rows: int
    size_bytes: int
    seconds: list[float]
    limit: str = ""
    limit_seconds: list[float] | None = None
    target: float | None = None
    figure: str = RATIO
    mib: list[float] | None = None

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

    @property
    def reached(self) -> float | None:
        """The figure that counts, None for a ratio to nothing."""
        if self.figure == RATIO:
            return self.ratio
        if self.figure == MICROSECONDS:
            return median(self.seconds) / self.rows * 1e6
        if self.figure == MILLISECONDS:
            return median(self.seconds) / self.rows * 1e3
        if self.figure == SECONDS:
            return median(self.seconds)
        if self.figure == MIB:
            return median(self.mib or [0])
        assert self.limit_seconds is not None
        pairs = zip(self.seconds, self.limit_seconds, strict=True)
        return median(own - limit for own, limit in pairs) / self.rows * 1e3

    @property
    def is_met(self) -> bool | None:
        """Whether the target is; None where there is none."""
        if self.target is None or self.reached is None:
            return None
        if self.figure == RATIO:
            return self.reached >= self.target
        return self.reached <= self.target

    def cells(self) -> tuple[str, ...]:
        """The texts of its line."""
        middle = median(self.seconds)
        return (
            self.hop,
            self.what,
            _number(self.rows / middle),
            _number(self.size_bytes / middle / 1e6),
            f"{middle / self.rows * 1e6:.2f}",
            self.limit,
            _number(self.rows / median(self.limit_seconds))
            if self.limit_seconds
            else "",
            self.reached_text(),
            self.target_text(),
        )

    def reached_text(self) -> str:
        """Such as "0.87" or "+31 ms"."""
        if self.reached is None:
            return ""
        if self.figure == MORE_MS:
            return f"{self.reached:+.0f} ms"
        if self.figure == MIB:
            return f"{self.reached:.0f} MiB"
        return f"{self.reached:.2f} {self.figure.replace(RATIO, '')}".strip()

    def target_text(self) -> str:
        """Such as ">= 0.85: ok" or "<= 50 ms: MISSED"."""
        if self.target is None:
            return ""
        sign, unit = "<=", f" {self.figure.removesuffix(' more')}"
        if self.figure == RATIO:
            sign, unit = ">=", ""
        return f"{sign} {self.target:g}{unit}: {'ok' if self.is_met else 'MISSED'}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as documents have it."""
        return {
            **asdict(self),
            "rows_per_s": self.rows_per_s,
            "reached": self.reached,
            "is_met": self.is_met,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Case:
        """The case of ``as_json``."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class Document:
    """A run.

    Attributes:
        machine: What it ran on, by name.
        cases: What was measured, in order.
    """

    machine: Mapping[str, str]
    cases: list[Case]

    @classmethod
    def read(cls, file: Path) -> Document:
        """The run that a file holds.

        Raises:
            OSError: The file cannot be read.
        """
        content = json.loads(file.read_text())
        return cls(content["machine"], [*map(Case.from_json, content["cases"])])

    def write(self, file: Path) -> None:
        """Saves it, every repeat of it; the folder is made where it is missing."""
        content = {
            "machine": dict(self.machine),
            "cases": [case.as_json() for case in self.cases],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1) + "\n")

    def markdown(self) -> str:
        """Return what docs/speed.md shows of it: the lines that have a target."""
        facts = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        cases = [case for case in self.cases if case.target is not None]
        return f"One run: {facts}.\n\n{table(cases)}\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(cases: Iterable[Case]) -> str:
    """The cases as an aligned Markdown table, to be read here and pasted elsewhere."""
    return aligned(_HEADERS, [case.cells() for case in cases], _LEFT)


def aligned(
    headers: tuple[str, ...], rows: Iterable[tuple[str, ...]], left: set[str]
) -> str:
    """An aligned Markdown table; the columns named in ``left`` are aligned there."""
    lines = [headers, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]

    def text(cells: tuple[str, ...]) -> str:
        padded = (
            cell.ljust(width) if header in left else cell.rjust(width)
            for header, cell, width in zip(headers, cells, widths, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    ruler = "|".join(
        "-" * (width + 2) if header in left else "-" * (width + 1) + ":"
        for header, width in zip(headers, widths, strict=True)
    )
    return "\n".join([text(headers), f"|{ruler}|", *map(text, lines[1:])])


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
