# SPDX-License-Identifier: Apache-2.0
"""What rivals reached: saved, and as the table of docs/speed.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from pathlib import Path
from statistics import median

from tests.bench.report import aligned
from tests.bench.rivals.costs import Cost

_HEADERS = (
    "reader",
    "rows/s",
    "MB/s",
    "rows/s of a busy core",
    "first rows",
    "p50",
    "p99",
    "lost",
    "repeated",
    "query failed",
)


@dataclass
class Result:
    """What a rival did.

    Attributes:
        name: With its versions.
        rows: Of each read.
        size_bytes: Of the values of a read.
        seconds: That each read took.
        cpu_s: Processor time of its processes during each read.
        first_rows_s: From the start of each Spark job to its first rows on the screen.
        latencies_ms: From the call that sends a row to its delivery, before the kill:
            the percentiles 50 and 99.
        lost: Rows of the topic that never came.
        repeated: Deliveries of rows beyond those that the topic has.
        restarts: How often its query failed and was started again from its checkpoint.
        failure: Why it could not run, "" where it did.
    """

    name: str
    rows: int = 0
    size_bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    first_rows_s: list[float] = field(default_factory=list)
    latencies_ms: tuple[float, float] = (0.0, 0.0)
    lost: int = 0
    repeated: int = 0
    restarts: int = 0
    failure: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the texts of its line."""
        speed = ["", "", ""]
        if self.seconds:
            seconds = median(self.seconds)
            speed = [
                f"{self.rows / seconds:,.0f}",
                f"{self.size_bytes / seconds / 1e6:.1f}",
                f"{self.rows / median(self.cpu_s):,.0f}",
            ]
        first_rows = f"{median(self.first_rows_s):.1f} s" if self.first_rows_s else ""
        stream = ["", "", "", "", self.failure]
        if not self.failure:
            stream = [
                *(f"{latency:,.0f} ms" for latency in self.latencies_ms),
                f"{self.lost:,}",
                f"{self.repeated:,}",
                f"{self.restarts}",
            ]
        return (self.name, *speed, first_rows, *stream)


def markdown(file: Path) -> str:
    """Return what docs/speed.md shows of a saved run."""
    run = json.loads(file.read_text())
    facts = ", ".join(f"{key} {value}" for key, value in run["machine"].items())
    results = [Result(**values) for values in run["results"]]
    return f"One run: {facts}.\n\n{table(results)}\n"


def table(results: Sequence[Result]) -> str:
    """Return the aligned Markdown table of some results."""
    lines = [result.cells() for result in results]
    # No jobs were cold where a run measured none.
    filled = [any(column) for column in zip(*lines, strict=True)]
    headers, *shown = (tuple(compress(line, filled)) for line in [_HEADERS, *lines])
    return aligned(headers, shown, {"reader"})


def save(
    machine: Mapping[str, str], results: Sequence[Result | Cost], file: Path
) -> None:
    """Save a run, every repeat of it; the folder is made where it is missing."""
    run = {"machine": dict(machine), "results": [asdict(result) for result in results]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run, indent=1) + "\n")
