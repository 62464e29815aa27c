# SPDX-License-Identifier: Apache-2.0
"""How much of each package the tests run, from the report of ``coverage json``.

    python -m tests.support.rooms build/coverage/report.json --save

prints a table, and fails where a package that has a limit is below it. ``--save`` puts
the figures into ``docs/coverage.json``, of which ``make generate-docs`` makes the table
in docs/architecture.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from tests.support.products import PRODUCTS

PACKAGE = "pulsar_spark"

#: The other packages; their rooms are named after them, too.
OTHERS = tuple(name for name in PRODUCTS if name != PACKAGE)
SAVED = Path(__file__).parents[2] / "docs" / "coverage.json"

#: Packages of which this share of the branches must be run, in percent.
LIMIT = 97.0
LIMITED = (
    "loops",
    "wire",
    "arrow",
    "options",
    "source",
    "sink",
    "client",
    "spark_topics",
)

#: What the modules of the package itself are called in the table.
TOP = "(the rest)"


@dataclass
class Room:
    """What was run of one package.

    Attributes:
        name: Of the package below ``pulsar_spark``, or of one that it stands on.
        lines: How many statements there are.
        lines_run: How many of them were run.
        branches: How many ways there are out of conditions and loops.
        branches_run: How many of them were taken.
        missing: Lines and branches that were not, by file.
    """

    name: str
    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def lines_percent(self) -> float:
        """Share of the lines."""
        return _percent(self.lines_run, self.lines)

    @property
    def branches_percent(self) -> float:
        """Share of the branches."""
        return _percent(self.branches_run, self.branches)

    @property
    def is_low(self) -> bool:
        """Whether it has a limit and is below it."""
        return self.name in LIMITED and self.branches_percent < LIMIT

    def add(self, name: str, found: dict[str, Any]) -> None:
        """Add what the report says about a file."""
        summary = found["summary"]
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_run += summary["covered_branches"]
        missing = [str(line) for line in found["missing_lines"]]
        missing += [
            f"{start}->{end if end > 0 else 'exit'}"
            for start, end in found["missing_branches"]
            if start not in found["missing_lines"]
        ]
        if missing:
            self.missing[name] = ", ".join(missing)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def rooms(report: dict[str, Any]) -> list[Room]:
    """Return the packages of a report, by name, the modules outside them last."""
    found: dict[str, Room] = defaultdict(lambda: Room(""))
    for name, one in report["files"].items():
        parts = PurePath(name).parts
        package = next((one for one in (PACKAGE, *OTHERS) if one in parts), None)
        if package is None:
            continue
        inside = parts[parts.index(package) + 1 :]
        if package != PACKAGE:
            inside = (package, *inside)
        called = inside[0] if len(inside) > 1 else TOP
        room = found[called]
        room.name = called
        room.add("/".join(inside), one)
    return sorted(found.values(), key=lambda room: (room.name == TOP, room.name))


def saved() -> list[Room]:
    """Return the packages of the run that was kept."""
    return [Room(**one) for one in json.loads(SAVED.read_text())]


def table(found: list[Room]) -> str:
    """Return the packages as a table in Markdown."""
    lines = [
        "| package | lines | run | branches | taken |",
        "|---|---:|---:|---:|---:|",
    ]
    total = Room("all")
    for room in found:
        for name in ("lines", "lines_run", "branches", "branches_run"):
            setattr(total, name, getattr(total, name) + getattr(room, name))
    lines += [
        f"| {room.name} | {room.lines:,} | {room.lines_percent:.1f} % "
        f"| {room.branches:,} | {room.branches_percent:.1f} % |"
        for room in [*found, total]
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table; exit with 1 where a package is below its limit."""
    parser = argparse.ArgumentParser(description="Coverage of each package")
    parser.add_argument("report", type=Path)
    parser.add_argument("--save", action="store_true", help="into docs/")
    parser.add_argument("--missing", action="store_true", help="name what was not run")
    given = parser.parse_args()
    found = rooms(json.loads(given.report.read_text()))
    text = table(found)
    sys.stdout.write(text)
    low = [room for room in found if room.is_low]
    for room in found if given.missing else low:
        for name, missing in room.missing.items():
            sys.stdout.write(f"not run: {name}: {missing}\n")
    if given.save:
        figures = [
            {key: value for key, value in asdict(room).items() if key != "missing"}
            for room in found
        ]
        SAVED.write_text(json.dumps(figures, indent=1) + "\n")
    for room in low:
        sys.stdout.write(
            f"{room.name}: {room.branches_percent:.1f} % of the branches, "
            f"less than {LIMIT:g} %\n"
        )
    sys.exit(bool(low))


if __name__ == "__main__":
    main()
