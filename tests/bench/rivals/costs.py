# SPDX-License-Identifier: Apache-2.0
"""Processor time of a row, of each reader and writer: saved, and as a table of docs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.bench.report import aligned
from tests.bench.rivals.programs import CpuTimes

_PARTS = ("", "JVM", "Python")
_HEADERS = (
    "values",
    "processes",
    *(" ".join(("read", part)).strip() for part in _PARTS),
    *(" ".join(("write", part)).strip() for part in _PARTS),
)


@dataclass
class Cost:
    """Microseconds of the processor's time of a row.

    Attributes:
        values: Size of the values.
        name: Of the processes.
        read_us: Of JVMs and of other processes, repeat by repeat.
        write_us: As for reads.
        failure: Why the processes could not run, "" where they did.
    """

    values: str
    name: str
    read_us: list[tuple[float, float]] = field(default_factory=list)
    write_us: list[tuple[float, float]] = field(default_factory=list)
    failure: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the texts of a line of the table."""
        texts = [*_medians(self.read_us), *_medians(self.write_us)]
        if self.failure:
            texts[-1] = self.failure
        return (self.values, self.name, *texts)


def us_of_a_row(few: CpuTimes, many: CpuTimes, more_rows: int) -> tuple[float, float]:
    """Return the processor time of a row, without the start of its job.

    Args:
        few: Of a job.
        many: Of a job with more rows.
        more_rows: How many more.

    Returns:
        Microseconds of JVMs, and of other processes.
    """
    jvm_us, python_us = (
        (of_many - of_few) / more_rows * 1e6
        for of_few, of_many in zip(few, many, strict=True)
    )
    return jvm_us, python_us


def _medians(repeats: Sequence[tuple[float, float]]) -> Sequence[str]:
    """Return the cells of the whole, of JVMs, and of other processes."""
    if not repeats:
        return "", "", ""
    jvm, python = zip(*repeats, strict=True)
    each = map(sum, repeats), jvm, python
    return [f"{value:.2f}" if (value := median(part)) >= 0.005 else "" for part in each]


def markdown(file: Path) -> str:
    """Return what docs/speed.md shows of a saved run."""
    run = json.loads(file.read_text())
    facts = ", ".join(f"{key} {value}" for key, value in run["machine"].items())
    costs = [Cost(**values) for values in run["results"]]
    return f"One run: {facts}.\n\n{table(costs)}\n"


def table(costs: Sequence[Cost]) -> str:
    """Return the aligned Markdown table of some costs."""
    return aligned(_HEADERS, [cost.cells() for cost in costs], {"values", "processes"})
