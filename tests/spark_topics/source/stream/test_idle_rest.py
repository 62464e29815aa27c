# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from spark_topics.source.stream import idle_rest as module
from spark_topics.source.stream.idle_rest import IdleRest
from tests.support.fixtures import Clock


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of rests."""
    one = Clock()
    monkeypatch.setattr(module, "time", one)
    return one


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.1, 0.4), (0.25, 1.0), (60, 1.0)])
def test_a_rest_is_as_long_as_the_plan_was(
    time: Clock, took_s: float, rest_s: float
) -> None:
    """Four times as long, up to a second."""
    rest = IdleRest()
    rest.begin("a", took_s)
    time.now += rest_s - 0.01
    assert rest.covers("a")
    time.now += 0.02
    assert not rest.covers("a")


def test_no_rest_after_a_short_plan(time: Clock) -> None:
    """Asking again costs little."""
    rest = IdleRest()
    rest.begin("a", 0.05)
    assert not rest.covers("a")


def test_only_the_same_plan_rests(time: Clock) -> None:
    """From another offset there may be something to read."""
    rest = IdleRest()
    assert not rest.covers("a")
    rest.begin("a", 60)
    assert not rest.covers("b")
    assert rest.covers("a")
