# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.client.settling`."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    """It is not read, as nobody knows what is in it, and is named."""
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("any")
    other.write_text("any")

    class Writer(FileClock):
        """The file is written in each pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(file, (self.now, self.now))

    clock = Writer()
    monkeypatch.setattr(settling, "time", clock)
    with pytest.raises(TimeoutError, match=f"^{file}$"):
        rested([str(other), str(file)], file.read_text)
    assert sum(clock.pauses) == pytest.approx(5.0, abs=0.3)


class InPlace(FileClock):
    """A file is written part by part, whoever reads.

    Args:
        file: The file.
        gaps: How long each step takes, in seconds; the last one makes the file whole.
        ahead_s: How far the clock is ahead of the file server's.
    """

    def __init__(self, file: Path, gaps: Sequence[float], ahead_s: float) -> None:
        super().__init__(ahead_s)
        self._file = file
        self._gaps = list(gaps)
        self._due = math.inf

    def begin(self) -> None:
        """The writer begins."""
        self._write("half")

    def _write(self, text: str) -> None:
        self._file.write_text(text)
        # Without this, two in a moment would have one time.
        os.utime(self._file, (self.now, self.now - len(self._gaps) / 1000))
        self._due = self.now + self._gaps.pop(0) if self._gaps else math.inf

    def sleep(self, seconds: float) -> None:
        """What is due in the meantime is written."""
        end = self.now + seconds
        while self._due <= end:
            self.now = self._due
            self._write("half" if self._gaps else "new")
        super().sleep(end - self.now)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    gaps=st.lists(st.floats(0.0, 0.45), min_size=1, max_size=14),
    ahead_s=st.floats(-5.0, 5.0),
    at_read=st.integers(0, 2),
)
def test_no_half_is_read(
    tmp_path: Path, gaps: list[float], ahead_s: float, at_read: int
) -> None:
    """Whatever clocks say, and if the writer begins between the look and the read."""
    file = tmp_path / "file"
    file.write_text("old")
    clock = InPlace(file, gaps, ahead_s)
    reads = 0

    def read() -> str:
        nonlocal reads
        reads += 1
        if reads == at_read:
            clock.begin()
        return file.read_text()

    if not at_read:
        clock.begin()
    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(TimeoutError):
        patched.setattr(settling, "time", clock)
        assert rested([str(file)], read) in ("old", "new")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(gaps=st.lists(st.floats(0.0, 4.5), min_size=1, max_size=9))
def test_no_half_is_an_error_of_the_file(tmp_path: Path, gaps: list[float]) -> None:
    """A writer who comes back to the file is waited for, or is said to be slow."""
    file = tmp_path / "file"
    clock = InPlace(file, gaps, 0.0)
    clock.begin()

    def read() -> str:
        text = file.read_text()
        if text == "half":
            raise OptionError("It is damaged.")
        return text

    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(TimeoutError):
        patched.setattr(settling, "time", clock)
        assert rested([str(file)], read) == "new"


def test_a_file_that_is_replaced_by_another_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone for a moment, and waited for."""
    file = tmp_path / "file"
    monkeypatch.setattr(settling, "time", FileClock(then=lambda: file.write_text("a")))

    def read() -> str:
        try:
            return file.read_text()
        except OSError:
            raise OptionError("There is none.") from None

    assert rested([str(file)], read) == "a"


@pytest.mark.parametrize(("wait", "pauses_s"), [(settled, 0.0), (rested, 2.0)])
def test_what_is_not_there_in_a_folder_that_changes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait: Callable[[list[str], Callable[[], str]], str],
    pauses_s: float,
) -> None:
    """It is soon given up, as in /tmp others come and go all the time."""

    class Others(FileClock):
        """The folder changes in each pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(tmp_path, (self.now, self.now))

    def read() -> str:
        raise OptionError("There is none.")

    clock = Others()
    monkeypatch.setattr(settling, "time", clock)
    with pytest.raises(OptionError):
        wait([str(tmp_path / "absent")], read)
    assert sum(clock.pauses) == pytest.approx(pauses_s, abs=0.3)


def test_what_never_rests_and_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it can be used: it is no error of who reads."""
    file = tmp_path / "file"
    file.write_text("half")

    class Writer(FileClock):
        """The file is written in each pause from the fifth on."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.pauses) > 4:
                os.utime(file, (self.now, self.now))

    def read() -> str:
        raise OptionError("It is damaged.")

    monkeypatch.setattr(settling, "time", Writer())
    with pytest.raises(TimeoutError):
        rested([str(file)], read)


def test_a_file_with_another_inode_number_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems make them up; the file rests all the same."""
    file = tmp_path / "file"
    file.write_text("a")
    number = itertools.count()

    def stat(path: str) -> SimpleNamespace:
        real = os.stat(path)
        facts = {name: getattr(real, name) for name in dir(real) if name[:3] == "st_"}
        return SimpleNamespace(**facts | {"st_ino": next(number)})

    looks = SimpleNamespace(stat=stat, lstat=stat, path=os.path)
    monkeypatch.setattr(settling, "os", looks)
    assert rested([str(file)], file.read_text) == "a"
