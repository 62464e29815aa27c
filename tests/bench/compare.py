# SPDX-License-Identifier: Apache-2.0
"""Two runs beside each other: whether the benchmarks say the same again.

python -m tests.bench.compare old.json new.json

Ends with 1 where a figure with a target differs by more than a tenth.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.report import Case, Document, aligned

_TOLERANCE = 0.1


def compare(old: Document, new: Document) -> tuple[str, list[str]]:
    """Each line that both have, and the names of those that differ too much."""
    before = {_name(case): case for case in old.cases}
    rows, apart = [], []
    for case in new.cases:
        name = _name(case)
        if name not in before:
            continue
        was = before[name]
        change = _change(was.reached, case.reached)
        if case.target is not None and abs(change - 1) > _TOLERANCE:
            apart.append(", ".join(filter(None, name)))
        speed = _change(was.rows_per_s, case.rows_per_s)
        texts = was.reached_text(), case.reached_text()
        shown = f"{change:.2f}" if case.reached is not None else ""
        rows.append((*name, *texts, shown, f"{speed:.2f}"))
    headers = ("hop", "what", "limit", "old", "new", "new/old", "rows/s, new/old")
    return aligned(headers, rows, {"hop", "what", "limit"}), apart


def _name(case: Case) -> tuple[str, str, str]:
    return case.hop, case.what, case.limit


def _change(old: float | None, new: float | None) -> float:
    if old is None or new is None:
        return 1
    return new / old if old else float("inf")


def main(old: str, new: str) -> None:
    """Prints the table and what is too far apart."""
    text, apart = compare(Document.read(Path(old)), Document.read(Path(new)))
    print(text)
    if apart:
        sys.exit(f"\nMore than {_TOLERANCE:.0%} apart:\n" + "\n".join(apart))


if __name__ == "__main__":
    main(*sys.argv[1:])
