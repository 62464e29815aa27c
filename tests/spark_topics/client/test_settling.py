# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.client.settling`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from spark_topics.client import settling
from spark_topics.client.settling import rested, settled
from spark_topics.errors import OptionError

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
    monkeypatch.setattr(settling, "_SETTLED_S", 0.3)
    file = tmp_path / "file"
    file.touch()

    def read() -> None:
        raise OptionError("It is empty.")

    with pytest.raises(OptionError):
        settled([str(file)], read)


def test_half_of_one_and_half_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read before the file rests; one that never does is read as it is."""
    monkeypatch.setattr(settling, "_SETTLED_S", 60.0)
    file = tmp_path / "file"
    file.write_text("newold")
    timer = threading.Timer(0.3, file.write_text, ("newnew",))
    timer.start()
    assert rested([str(file)], file.read_text) == "newnew"
    timer.join(60)
    monkeypatch.setattr(settling, "_SETTLED_S", 0.3)
    monkeypatch.setattr(settling, "_RESTING_S", 3600.0)
    assert rested([str(file)], file.read_text) == "newnew"
