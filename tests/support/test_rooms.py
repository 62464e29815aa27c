# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from tests.support.rooms import rooms, table


def report(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return a report of files: their statements and branches, each all and run."""
    return {
        "files": {
            f"pulsar_spark/{name.replace('__', '/')}.py": {
                "summary": {
                    "num_statements": lines,
                    "covered_lines": lines_run,
                    "num_branches": branches,
                    "covered_branches": taken,
                },
                "missing_lines": list(range(1, lines - lines_run + 1)),
                "missing_branches": [[9, 11]] * (branches - taken),
            }
            for name, (lines, lines_run, branches, taken) in files.items()
        }
    }


def test_packages_are_summed_up_and_judged() -> None:
    """Only those that have a limit are held to it; subpackages count with theirs."""
    found = rooms(
        report(
            wire__frames=(10, 9, 50, 48),
            wire__x__deep=(10, 10, 50, 50),
            client__pool=(10, 10, 100, 96),
            spark__lag=(10, 5, 10, 0),
            errors=(4, 4, 0, 0),
        )
    )
    assert [room.name for room in found] == ["client", "spark", "wire", "(the rest)"]
    assert [room.name for room in found if room.is_low] == ["client"]
    assert found[2].missing == {"wire/frames.py": "1, 9->11, 9->11"}
    assert "| wire | 20 | 95.0 % | 100 | 98.0 % |" in table(found)
    assert "| all | 44 | 86.4 % | 210 | 92.4 % |" in table(found)
