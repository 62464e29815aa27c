# SPDX-License-Identifier: Apache-2.0
"""A process gets whole files, and whole folders whose files share a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.by_file import FOLDERS, make_scheduler, unit_of

pytest.importorskip("xdist")

FILES = [f"{folder}test_{i}.py" for folder in (FOLDERS[0], "tests/a/") for i in "123"]
TESTS = [f"{file}::test[{number}]" for file in FILES for number in range(5)]


class Process:
    """One of several; it notes what it is given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        """Take further tests."""
        self.given += indices

    def shutdown(self) -> None:
        """Take no more."""
        self.shutting_down = True


def test_units_stay_in_one_process() -> None:
    """And are begun at both ends."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["2*popen"], option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler = make_scheduler(config, None)
    processes = [Process("one"), Process("two")]
    for process in processes:
        scheduler.add_node(process)
    for process in processes:
        scheduler.add_node_collection(process, TESTS)
    scheduler.schedule()
    done = {process.gateway.id: 0 for process in processes}
    while not all(
        one.shutting_down and done[one.gateway.id] == len(one.given)
        for one in processes
    ):
        for process in processes:
            at = done[process.gateway.id]
            if at < len(process.given):
                done[process.gateway.id] += 1
                scheduler.mark_test_complete(process, process.given[at])
    given = [[TESTS[index] for index in process.given] for process in processes]
    assert sorted(given[0] + given[1]) == sorted(TESTS)
    units = [list(dict.fromkeys(map(unit_of, tests))) for tests in given]
    assert units == [[FOLDERS[0]], FILES[:2:-1]]
    assert given == [
        [t for unit in own for t in TESTS if unit_of(t) == unit] for own in units
    ]
