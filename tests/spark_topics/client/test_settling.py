# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.client.settling`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from spark_topics.client import settling
from spark_topics.client.settling import rested, settled
from spark_topics.errors import OptionError
from tests.support.fixtures import FileClock

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_not_there(tmp_path: Path) -> None:
    """It is no file that is being written: the error comes at once."""
    tries = []

    def read() -> None:
        tries.append(1)
        raise OptionError("There is none.")

    for wait in (settled, rested):
        with pytest.raises(OptionError):
            wait([str(tmp_path / "absent")], read)
    assert len(tries) == 2


def test_a_file_that_is_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up after a while."""
    clock = FileClock()
    monkeypatch.setattr(settling, "time", clock)
    file = tmp_path / "file"
    file.touch()

    def read() -> None:
        raise OptionError("It is empty.")

    with pytest.raises(OptionError):
        settled([str(file)], read)
    assert sum(clock.pauses) == pytest.approx(5.0, abs=0.3)


def test_half_of_one_and_half_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read before the file rests."""
    file = tmp_path / "file"
    file.write_text("newold")
    clock = FileClock(then=lambda: file.write_text("newnew"))
    monkeypatch.setattr(settling, "time", clock)
    assert rested([str(file)], file.read_text) == "newnew"
    assert len(clock.pauses) > 1, "it has just been written"


def test_a_file_that_never_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as it is, after a while."""
    file = tmp_path / "file"
    file.write_text("any")

    class Writer(FileClock):
        """The file is written in each pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(file, (self.now, self.now))

    clock = Writer()
    monkeypatch.setattr(settling, "time", clock)
    assert rested([str(file)], file.read_text) == "any"
    assert sum(clock.pauses) == pytest.approx(5.0, abs=0.3)
