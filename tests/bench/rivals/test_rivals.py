# SPDX-License-Identifier: Apache-2.0
"""The comparison still runs, and its table says what happened. No figure is judged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.rivals import programs
from tests.bench.rivals.__main__ import Rival, rivals, run
from tests.bench.rivals.programs import Program, class_path_of
from tests.bench.rivals.results import Result, markdown, save, table


class TestProgram:
    def test_replies(self, folder: Path) -> None:
        """Lines that are no reply are passed over."""
        code = "for line in iter(input, ''): print('so'); print('reply', len(line))"
        with Program([sys.executable, "-uc", code], "echo") as program:
            assert program.ask("a", 1) == 3
            assert program.ask("abc") == 3

    def test_one_that_ends(self, folder: Path) -> None:
        """The error is the first line of its log that tells of one."""
        code = "import sys; sys.exit('one\\nFirstError: no\\nSecondError: no')"
        failure = pytest.raises(RuntimeError, match=r"^FirstError: no \(more in ")
        with Program([sys.executable, "-c", code], "ends") as program, failure:
            program.ask("read")

    def test_processor_time_of_children(self, folder: Path) -> None:
        """It counts with that of the program, whether they run or have ended."""
        work = "sum(range(10**7))"
        code = (
            "import subprocess, sys\n"
            f"subprocess.run([sys.executable, '-c', {work!r}])\n"
            "print('reply 0'); input()"
        )
        with Program([sys.executable, "-uc", code], "parent") as program:
            program.ask("")
            assert program.cpu_s >= 0.05


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for logs."""
    monkeypatch.setattr(programs, "FOLDER", tmp_path)
    return tmp_path


def test_a_table(tmp_path: Path) -> None:
    """A saved run is shown; one that could not run says why."""
    fast = Result(
        "fast",
        rows=1_000_000,
        size_bytes=100_000_000,
        seconds=[1.0, 2.0, 3.0],
        cpu_s=[1.0, 1.0, 4.0],
        latencies_ms=(5.0, 2100.0),
        repeated=7,
    )
    absent = Result("absent", failure="no such artifact")
    save({"python": "3.11"}, [fast, absent], tmp_path / "run.json")
    text = markdown(tmp_path / "run.json")
    assert text.startswith("One run: python 3.11.\n")
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table([fast, absent]).splitlines()
    ]
    assert lines[2][:5] == ["fast", "500,000", "50.0", "1,000,000", "5 ms"]
    assert lines[2][5:] == ["2,100 ms", "0", "7", "0"]
    assert lines[3][0] == "absent"
    assert lines[3][-1] == "no such artifact"
    assert table([fast, absent]) in text


@pytest.mark.matrix
def test_all_of_it() -> None:
    """Ours and the official Python client read all, and lose nothing."""
    chosen = [
        rival for rival in rivals() if rival.name.startswith(("pulsar", "official P"))
    ]
    broken = Rival("broken", "pulsar", lambda _, __: class_path_of(["no:such:1"]))
    results = run([*chosen, broken], rows=2_000, repeats=1, seconds=1)
    assert [result.failure for result in results[:2]] == ["", ""]
    assert [result.lost for result in results[:2]] == [0, 0]
    assert [result.rows for result in results[:2]] == [2_000, 2_000]
    assert results[0].cpu_s[0] > 0  # the client may need less than a tick of the clock
    assert results[2].failure
