# SPDX-License-Identifier: Apache-2.0
"""What a soak has found: printed, saved as JSON, and shown in docs/soak.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.soak.processes import DRIVER_JVM, EXECUTOR_JVM

#: Samples of a process below which nothing is said about its growth: two minutes.
FEW = 24

#: What a process may hold more at the end of the calm part than at its beginning: this
#: share of what it had, or so many MiB. A JVM takes its heap as it goes.
GROWTH = 0.05
GROWTH_MIB = 8.0
JVM_GROWTH = 0.25
JVM_GROWTH_MIB = 96.0


@dataclass(frozen=True)
class Spread:
    """Some figures, in seconds.

    Attributes:
        count: How many.
        p50: Half of them are not larger.
        p99: 99 of 100 are not.
        largest: None is.
    """

    count: int
    p50: float
    p99: float
    largest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Those of some values; of none, all 0."""
        found = sorted(values)
        if not found:
            return cls(0, 0.0, 0.0, 0.0)

        def at(share: float) -> float:
            return round(found[max(0, math.ceil(share * len(found)) - 1)], 3)

        return cls(len(found), at(0.5), at(0.99), at(1))

    def cells(self) -> list[str]:
        """As text."""
        return [f"{self.p50:.2f}", f"{self.p99:.2f}", f"{self.largest:.2f}"]


@dataclass(frozen=True)
class Growth:
    """How the memory of processes of a kind went.

    Attributes:
        kind: Of which.
        count: How many there were in all.
        parts_mib: Median of what they held in each sixth of the soak; 0 for none.
        early_mib: Median in the second quarter of the calm part, of the one that grew
            most; 0 where none lived long enough.
        late_mib: The same in its last quarter.
    """

    kind: str
    count: int
    parts_mib: list[float]
    early_mib: float = 0.0
    late_mib: float = 0.0

    @property
    def is_judged(self) -> bool:
        """Whether a process lived long enough to tell."""
        return self.early_mib > 0

    @property
    def is_flat(self) -> bool:
        """Whether it did not grow."""
        is_jvm = self.kind in (DRIVER_JVM, EXECUTOR_JVM)
        share, mib = (JVM_GROWTH, JVM_GROWTH_MIB) if is_jvm else (GROWTH, GROWTH_MIB)
        return self.late_mib - self.early_mib <= max(mib, share * self.early_mib)


def growth_of(lives: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """What the process that grew most held early and late; 0 and 0 for none to tell.

    Args:
        lives: Times and MiB of each.
    """
    found = []
    for life in lives:
        if len(life) >= FEW:
            quarter = len(life) // 4
            early = median(mib for _, mib in life[quarter : 2 * quarter])
            late = median(mib for _, mib in life[-quarter:])
            found.append((late - early, early, late))
    if not found:
        return 0.0, 0.0
    _, early, late = max(found)
    return round(early, 1), round(late, 1)


@dataclass(frozen=True)
class Left:
    """What there is while the query rests, after its first rest and at the end.

    Attributes:
        what: Threads, files, connections, ...
        before: At the first rest.
        after: At the end.
    """

    what: str
    before: float
    after: float


@dataclass
class Report:
    """All of it.

    Attributes:
        about: Date, versions, machine, seed, minutes.
        rows: Counts of rows, by name.
        faults: Of each kind: how long until it was got over.
        latency: From when a row was made to when it was seen in the sink.
        stream: Counts of micro-batches, drivers, tokens, ...
        failures: How often the query failed, by condition.
        left: What was left, before and after.
        memory: How it went.
        notes: What else is worth telling.
    """

    about: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    faults: dict[str, Spread] = field(default_factory=dict)
    latency: Spread = field(default_factory=lambda: Spread.of([]))
    stream: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    memory: list[Growth] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Save it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Report:
        """The one that was saved."""
        found: dict[str, Any] = json.loads(path.read_text())
        return cls(
            **{
                **found,
                "faults": {k: Spread(**v) for k, v in found["faults"].items()},
                "latency": Spread(**found["latency"]),
                "left": [Left(**one) for one in found["left"]],
                "memory": [Growth(**one) for one in found["memory"]],
            }
        )

    def markdown(self) -> str:
        """The report as tables."""
        seconds = ["p50", "p99", "longest"]
        faults = [
            [kind, str(one.count), *one.cells()]
            for kind, one in sorted(self.faults.items())
        ]
        parts = [f"{n}/6" for n in range(1, 7)]
        return "\n\n".join(
            [
                _table(["run", ""], [list(pair) for pair in self.about.items()]),
                _table(["rows", ""], _counts(self.rows)),
                _table(
                    ["seconds", "", *seconds],
                    [
                        [
                            "a row, until it is seen in the sink",
                            f"{self.latency.count:,}",
                            *self.latency.cells(),
                        ]
                    ],
                ),
                _table(
                    ["fault", "times", *(f"recovery {x}, s" for x in seconds)], faults
                ),
                _table(["stream", ""], _counts(self.stream)),
                *(
                    [_table(["the query failed with", "times"], _counts(self.failures))]
                    if self.failures
                    else []
                ),
                _table(
                    ["left while the query rests", "before", "after"],
                    [
                        [one.what, f"{one.before:g}", f"{one.after:g}"]
                        for one in self.left
                    ],
                ),
                _table(
                    ["memory, MiB", "processes", *parts, "calm: early", "late"],
                    [
                        [
                            one.kind,
                            str(one.count),
                            *(f"{mib:.0f}" if mib else "" for mib in one.parts_mib),
                            *(
                                [f"{one.early_mib:.1f}", f"{one.late_mib:.1f}"]
                                if one.is_judged
                                else ["too short", "to tell"]
                            ),
                        ]
                        for one in self.memory
                    ],
                ),
                *self.notes,
            ]
        )


def _counts(counts: dict[str, int]) -> list[list[str]]:
    return [[name, f"{count:,}"] for name, count in counts.items()]


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |".replace("  ", " ") for row in rows)
