# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_spark.testing.jars import DEFAULT_VERSION
from tests.matrix import __main__ as runner
from tests.matrix.cells import CELLS, Found, Result, markdown, read, write
from tests.packaging.environments import ROOT

GOOD = Result(
    *("4.0.7", "4.1.4", "3.11.7", "compiled", "2026-11-23", 61.5),
    (
        Found("test_read", "passed", 2.0, 500),
        Found("test_limits", "passed", 1.0, 0, {"limits": "[PULSAR_OPTION] no"}),
    ),
)
BAD = replace(
    GOOD, pulsar="2.10.5", found=(*GOOD.found, Found("test_kills", "failed", 9.0))
)


def test_cells() -> None:
    """The default broker meets each Spark and each Python, each broker the newest."""
    beside = [cell for cell in CELLS if cell.pulsar == DEFAULT_VERSION]
    assert {c.spark for c in beside} == {"4.0.*", "4.1.*", "4.2.*", "4.3.*"}
    assert {c.python for c in beside} == {"3.10", "3.11", "3.12", "3.13"}
    newest = {c.pulsar for c in CELLS if c.spark == "4.3.*"}
    assert newest == {"2.10.5", "3.0.7", "4.0.7", "4.2.4", "5.0.0-M1", "5.0.1"}


def test_sources() -> None:
    """A wheel is made anew when a module of any package changes, and by no build."""
    found = {file.relative_to(ROOT) for file in runner.sources()}
    for package in ("pulsar_spark", "spark_topics"):
        assert Path(package, "__init__.py") in found
    assert Path("pulsar_spark/loops/avro.pxd") in found
    assert not {file.suffix for file in found} & {".so", ".pyc", ".c"}


def test_saved_and_read(tmp_path: Path) -> None:
    """What was saved is what is read."""
    write(tmp_path / "all.json", [GOOD, BAD])
    assert read(tmp_path / "all.json") == [GOOD, BAD]


def test_table() -> None:
    """Failures are counted, what lacks is named, the oldest releases come first."""
    lines = markdown([GOOD, BAD]).splitlines()
    same = "4.1.4 | 3.11.7 | compiled"
    assert lines[2:4] == [
        f"| 2.10.5 | {same} | 2 exact, 1 failed | 500 | limits | 2026-11-23 |",
        f"| 4.0.7 | {same} | 2 exact | 500 | limits | 2026-11-23 |",
    ]
    assert lines[-1] == "| limits | [PULSAR_OPTION] no |"


def test_saving_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer patch takes the place of an older one; other cells stay."""
    monkeypatch.setattr(runner, "SAVED", tmp_path / "saved.json")
    later = replace(GOOD, spark="4.1.5", date="2026-12-01")
    for one in (GOOD, BAD, later):
        runner.save(one)
    assert read(runner.SAVED) == [BAD, later]


def test_some_scenarios_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran again counts; what did not stays."""
    monkeypatch.setattr(runner, "SAVED", tmp_path / "saved.json")
    runner.save(BAD)
    again = Found("test_kills", "passed", 5.0, 700)
    runner.save(replace(BAD, found=(again,)))
    (kept,) = read(runner.SAVED)
    assert kept.found == (*GOOD.found, again)


def test_no_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not begun is named, and is no failure."""
    pythons = {"3.10": Path("a"), "3.11": Path("b"), "3.12": Path("c")}
    monkeypatch.setattr(runner, "chosen_pythons", lambda: pythons)
    assert runner.main(["--until", "0"]) == 0
    out = capsys.readouterr().out
    for cell in CELLS:
        why = "no such Python here" if cell.python == "3.13" else "for want of time"
        assert f"{cell}: left out" in out
        assert why in out
