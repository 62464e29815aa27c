# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of any system: a clock, and nothing that is left open."""

from __future__ import annotations

import itertools
import os
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from spark_topics.client import retry, settling
from spark_topics.source.stream import idle_rest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now

    def time(self) -> float:
        """As ``time.time``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``, but at once."""
        self.pauses.append(seconds)
        self.now += seconds


class FileClock(Clock):
    """The time by which files are young or old.

    Args:
        age_s: How old files are that a test makes now.
        then: What happens in the first pause.
    """

    def __init__(
        self, age_s: float = 0.0, then: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self.now = time.time() + age_s
        self._then = then

    def sleep(self, seconds: float) -> None:
        """As `Clock.sleep`; before the first pause ends, something else happens."""
        super().sleep(seconds)
        if len(self.pauses) == 1:
            self._then()


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is asked by hand is asked once, so it must look each time.

    Otherwise it says "nothing new" for a while after it has looked in vain for long, as
    it may on a busy machine. Here that while is over whenever the query is asked.
    """
    later = itertools.count(0.0, 3600.0)
    monkeypatch.setattr(idle_rest, "time", SimpleNamespace(monotonic=later.__next__))


@pytest.fixture
def files_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews the files that a test has just made: they look a day old."""
    monkeypatch.setattr(settling, "time", FileClock(24 * 3600.0))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that retries see."""
    one = Clock()
    monkeypatch.setattr(retry, "time", one)
    return one


def open_files() -> int:
    """Number of files and sockets that this process has open."""
    return len(os.listdir("/dev/fd"))


def client_threads() -> set[threading.Thread]:
    """The threads that connections read with."""
    return {t for t in threading.enumerate() if t.name.startswith("pulsar-")}


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does to connections, their threads and sockets end with them."""
    files, threads = open_files(), client_threads()  # of tests before, with a broker
    yield
    wait_until(lambda: client_threads() <= threads, "the end of reading threads")
    wait_until(lambda: open_files() <= files, "the end of sockets")
