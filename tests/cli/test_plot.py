# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.plot`: the pictures of the command lag."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.support.checkpoints import offset, write_checkpoint
from tests.support.event_logs import progress_event

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    """Nothing is asked of a broker here, and Matplotlib keeps files of fonts open."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The checkpoint of a query."""
    return write_checkpoint(tmp_path / "c", {0: [offset({T: "7:1"})]}, 0)


def events(path: Path) -> Path:
    """An event log of a query that falls behind, is restarted, and catches up."""
    lines = []
    for number in range(120):
        backlog = {
            f"{T}-partition-{n}": max(0, 900 - abs(number - 50) * (10 + n))
            for n in range(8)
        }
        run_id = "run-1" if number < 70 else "run-2"
        rows = 4000 if number < 70 else 9000
        after_s = number * 30 + (1200 if number >= 70 else 0)
        lines.append(
            progress_event(
                number, backlog, after_s=after_s, run_id=run_id, rows=rows, name="a$b_c"
            )
        )
    path.write_text("\n".join(lines))
    return path


def test_a_picture(tmp_path: Path, folder: Path, run: Run) -> None:
    """In the form that the file's name asks for; the worst topic partitions named."""
    log = events(tmp_path / "events")
    picture = tmp_path / "lag.svg"
    code, printed = run("lag", folder, "--event-log", log, "--plot", picture)
    assert (code, "120 micro-batches" in printed) == (0, True)
    text = picture.read_text()
    ET.fromstring(text)
    assert "Lag of a$b_c" in text
    assert "all 8 topic partitions" in text
    assert "t-partition-0" in text
    assert "t-partition-7" not in text
    png = tmp_path / "lag.png"
    assert run("lag", folder, "--event-log", log, "--plot", png)[0] == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_pictures_that_cannot_be_drawn(
    tmp_path: Path, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own error: the form, the place, the query, the extra."""
    log = events(tmp_path / "events")
    command = ("lag", folder, "--event-log", log, "--plot")
    code, printed = run(*command, tmp_path / "lag.doc")
    assert (code, "doc" in printed) == (2, True)
    code, printed = run(*command, tmp_path / "missing" / "lag.png")
    assert (code, "cannot be written" in printed) == (2, True)
    (folder / "metadata").write_text('{"id": "another"}')
    code, printed = run(*command, tmp_path / "lag.png")
    assert (code, "no micro-batch of the query another" in printed) == (2, True)
    monkeypatch.delitem(sys.modules, "pulsar_spark.cli.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, printed = run(*command, tmp_path / "lag.png")
    assert (code, "pip install matplotlib" in printed) == (2, True)
