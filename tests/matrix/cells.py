# SPDX-License-Identifier: Apache-2.0
"""Which releases are tried together, and how what was found is kept and shown.

Not each with each: every broker with the newest Spark, every Spark and every Python
with the broker that all other tests have, and the oldest and the newest of all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pulsar_spark.testing.jars import DEFAULT_VERSION

#: Variables that tell a cell which release of the broker to start, and where the result
#: goes.
BROKER = "PULSAR_SPARK_MATRIX_BROKER"
RESULT = "PULSAR_SPARK_MATRIX_RESULT"

#: The newest patch of each is taken, but for the very first that is allowed.
OLDEST_SPARK = "4.0.0"


@dataclass(frozen=True)
class Cell:
    """What runs together.

    Attributes:
        pulsar: Release of the broker.
        spark: Release of PySpark, ``4.1.*`` for its newest patch.
        python: Such as ``3.11``.
    """

    pulsar: str
    spark: str
    python: str

    def __str__(self) -> str:
        return f"Pulsar {self.pulsar}, Spark {self.spark}, Python {self.python}"


#: How the names of scenarios begin that are about scalable topics.
SCALABLE = "test_scalable_"

CELLS = (
    Cell(DEFAULT_VERSION, "4.0.*", "3.11"),
    Cell(DEFAULT_VERSION, "4.1.*", "3.11"),
    Cell("2.10.5", "4.3.*", "3.11"),
    Cell("3.0.7", "4.3.*", "3.11"),
    Cell(DEFAULT_VERSION, "4.2.*", "3.10"),  # the newest Spark that takes this Python
    Cell("2.10.5", OLDEST_SPARK, "3.10"),
    Cell(DEFAULT_VERSION, "4.3.*", "3.12"),
    Cell("5.0.0-M1", "4.3.*", "3.11"),
    Cell("5.0.1", "4.3.*", "3.11"),
    Cell("4.2.4", "4.3.*", "3.13"),
    Cell(DEFAULT_VERSION, "4.3.*", "3.13"),
    Cell(DEFAULT_VERSION, "4.3.*", "3.11"),
    Cell("4.2.4", "4.3.*", "3.11"),
)


@dataclass(frozen=True)
class Found:
    """What one scenario came to in a cell.

    Attributes:
        scenario: Its name.
        outcome: ``passed``, ``failed``, or why it did not run.
        seconds: How long it took.
        rows: How many were compared.
        lacks: What these releases cannot do, and what says so.
    """

    scenario: str
    outcome: str
    seconds: float = 0.0
    rows: int = 0
    lacks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a cell came to.

    Attributes:
        pulsar: As the broker says.
        spark: As PySpark says.
        python: With its patch.
        kernel: ``compiled``, or ``python``.
        date: In UTC.
        seconds: Of all scenarios, with the start of broker and Spark.
        found: Of each scenario.
    """

    pulsar: str
    spark: str
    python: str
    kernel: str
    date: str
    seconds: float
    found: tuple[Found, ...]

    @property
    def rows(self) -> int:
        """How many rows were compared."""
        return sum(one.rows for one in self.found)

    @property
    def lacks(self) -> dict[str, str]:
        """What these releases cannot do, and what says so."""
        return {
            name: evidence for one in self.found for name, evidence in one.lacks.items()
        }


def read(file: Path) -> list[Result]:
    """Return the results that a run has saved."""
    return [
        Result(**{**one, "found": tuple(Found(**found) for found in one["found"])})
        for one in json.loads(file.read_text())
    ]


def write(file: Path, results: list[Result]) -> None:
    """Save the results of a run."""
    plain = [asdict(result) for result in results]
    file.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n")


def markdown(results: list[Result]) -> str:
    """Return the tables of docs/compatibility.md."""
    lines = [
        "| Pulsar | Spark | Python | kernel | scenarios | rows | lacks | run on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [row for one in sorted(results, key=_by_release) for row in _rows(one)]
    for one in rows:
        outcomes = Counter(found.outcome for found in one.found)
        outcomes["exact"] = outcomes.pop("passed", 0)
        cells = (
            one.pulsar,
            one.spark,
            one.python,
            one.kernel,
            ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())),
            f"{one.rows:,}",
            "; ".join(sorted(one.lacks)) or "nothing",
            one.date,
        )
        lines.append(f"| {' | '.join(cells)} |")
    lacks = {name: evidence for one in results for name, evidence in one.lacks.items()}
    lines += ["", "| what is lacking | what says so |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in sorted(lacks.items())]
    return "\n".join(lines)


def _rows(result: Result) -> list[Result]:
    """Return a result for each row of the table: scalable topics have their own."""
    scalable = [one for one in result.found if one.scenario.startswith(SCALABLE)]
    ordinary = [one for one in result.found if one not in scalable]
    rows = [replace(result, found=tuple(ordinary))]
    if scalable:
        name = f"{result.pulsar}, scalable topics"
        rows.append(replace(result, pulsar=name, found=tuple(scalable)))
    return rows


def _by_release(result: Result) -> tuple[list[int], ...]:
    texts = (result.pulsar, result.spark, result.python)
    return tuple([int(n) for n in re.findall(r"\d+", text)[:3]] for text in texts)
