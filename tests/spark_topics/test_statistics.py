# SPDX-License-Identifier: Apache-2.0
"""Lines about tasks: when there is one, and what it says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from spark_topics import statistics
from spark_topics.statistics import Kind, TaskStatistics, Totals, log_summary
from tests.support.fixtures import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGER = logging.getLogger("numbers_spark.spark")
KIND = Kind("read", "decoding", "; kernel: x", "encrypted messages", logger=LOGGER)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that tasks see, in a process that had none."""
    one = Clock()
    monkeypatch.setattr(statistics, "time", one)
    monkeypatch.setattr(statistics, "_short_tasks", {})
    return one


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Gives the lines at INFO since the last time."""
    caplog.set_level(logging.DEBUG, "numbers_spark.spark")

    def taken() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO]
        caplog.clear()
        return found

    return taken


def task(interval_s: float = 60.0, **totals: float) -> TaskStatistics:
    """A task that has done this when it is asked."""

    def refresh(found: Totals) -> None:
        vars(found).update(totals)

    return TaskStatistics(KIND, "t", interval_s, refresh)


def test_a_task_that_lasts(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """A line each interval, and one at its end; each of all that was done so far."""
    one = task(broker_s=2.0, reconnects=1)
    for _ in range(59):
        clock.now += 1
        one.count(10, 100)
    assert lines() == []
    clock.now += 1
    one.totals.spark_s = 5.0
    one.count(10, 100)
    one.count(10, 100)
    rest = (
        "2.0 s waiting for the broker, 5.0 s for Spark, 53.0 s decoding; 1 reconnects; "
        "kernel: x"
    )
    assert lines() == [f"t: 600 rows, 6000 bytes read in 60.0 s: {rest}"]
    clock.now += 1000
    one.count()
    assert len(lines()) == 1
    clock.now += 1
    one.end()
    (line,) = lines()
    assert line.startswith("t: 610 rows, 6100 bytes read in 1061.0 s: ")


def test_short_tasks_share_a_line(
    clock: Clock, lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """A micro-batch each 100 ms does not flood the log: a line each interval."""
    found = []
    for _ in range(960):
        one = task(broker_s=0.0625, duplicate_rows=1)
        clock.now += 0.125
        one.count(3, 30)
        assert not caplog.records
        one.end()
        assert "t: 3 rows, 30 bytes read in 0.1 s" in caplog.text  # for who wants all
        found += lines()
    assert len(found) == 2
    assert found[0] == (
        "480 tasks within 60.0 s: 1440 rows, 14400 bytes read in 60.0 s: 30.0 s waiting"
        " for the broker, 0.0 s for Spark, 30.0 s decoding; 480 rows were there already"
        "; 0 reconnects; kernel: x"
    )
    assert found[1].startswith("480 tasks within 60.0 s: ")


def test_a_task_of_ten_seconds(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """Whoever waits for a job of half a minute sees what its tasks did."""
    for lasts_s, own_lines in ((9.9, 0), (10.0, 1)):
        one = task()
        clock.now += lasts_s
        one.count(3)
        one.end()
        assert len(lines()) == own_lines
    one = task(interval_s=1.0)
    clock.now += 1.0
    one.end()
    assert len(lines()) == 1


def test_after_a_rest(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """What short tasks did before a rest has its line with the next one."""
    task().end()
    clock.now += 3600
    assert lines() == []
    one = task()
    one.count(7)
    one.end()
    (line,) = lines()
    assert line.startswith("2 tasks within 3600.0 s: 7 rows")


def test_no_lines(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """An interval of 0 stands for none, of whole writes neither."""
    for _ in range(3):
        one = task(interval_s=0)
        clock.now += 1e6
        one.count(1)
        one.end()
    log_summary(LOGGER, "write: 3 rows", 0)
    assert lines() == []
    log_summary(LOGGER, "write: 3 rows", 60)
    assert lines() == ["write: 3 rows"]


def test_what_was_left_out_is_told(
    clock: Clock, lines: Callable[[], list[str]]
) -> None:
    """Of encrypted messages that no key opens; where there was none, nothing."""
    for left_out, told in ((0, False), (7, True)):
        one = task(60.0, discarded_rows=left_out)
        clock.now += 61
        one.end()
        (line,) = lines()
        assert ("7 encrypted messages left out" in line) == told
