# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_topics.source.stream import batch_ends as module
from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.cluster import NextEntry, Unread, Waiting
from tests.spark_topics.numbers import Offset
from tests.spark_topics.source.stream.number_cluster import NumberCluster
from tests.support.fixtures import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

A, B = "ab"


class Peeking(NumberCluster):
    """Says of the next entries that they have ten rows each."""

    def peek(
        self,
        news: Mapping[str, Unread[Offset]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[Offset]]]:
        """One entry of each."""
        size = EntrySize(10, 100)
        for name in news:
            on_seen(name, size)
        return {
            name: [NextEntry(Offset(unread.after + 1), size)]
            for name, unread in news.items()
        }


class Guessing(NumberCluster):
    """Cannot count."""

    def backlog(self, news: Mapping[str, Unread[Offset]]) -> dict[str, Waiting]:
        """There may be many more."""
        return {name: Waiting(2, is_all=False) for name in news}


def unread(after: int, last: int) -> Unread[Offset]:
    """What is to be read."""
    return Unread(Offset(after), Offset(last))


def decide(
    ends: BatchEnds[Offset],
    news: Mapping[str, Unread[Offset]],
    later: Mapping[str, Unread[Offset]] | None = None,
    *,
    unlimited: bool = False,
    may_wait: bool = True,
) -> dict[str, Offset]:
    """A decision."""
    return ends.decide(news, later or {}, unlimited=unlimited, may_wait=may_wait)


@pytest.mark.parametrize(
    ("limits", "unlimited"), [({}, False), ({"max_rows": 1, "min_rows": 99}, True)]
)
def test_without_limits(limits: dict[str, Any], unlimited: bool) -> None:
    """All there is; nothing is counted."""
    ends = BatchEnds(NumberCluster(), StreamLimits(max_delay_s=9, **limits))
    news = {A: unread(2, 8), B: unread(-1, 0)}
    assert decide(ends, news, unlimited=unlimited) == {A: 8, B: 0}
    assert ends.backlogs == {}
    assert decide(ends, {}, unlimited=unlimited) == {}


@pytest.mark.parametrize("limits", [{}, {"max_rows": 4}])
def test_what_comes_later_is_counted(limits: dict[str, int]) -> None:
    """It has no end in this micro-batch, and nobody has looked how old it is."""
    ends = BatchEnds(NumberCluster(), StreamLimits(**limits), age_interval_s=60)
    later = {B: unread(2, 8)}
    assert decide(ends, {A: unread(-1, 3)}, later) == {A: 3}
    assert (ends.backlogs.get(A, 0), ends.backlogs[B]) == (0, 6)
    assert ends.age_ms(B) is None
    assert decide(ends, {}, later) == {}
    assert ends.backlogs == {B: 6}
    assert ends.age_ms(A) == 0
    decide(ends, {})
    assert ends.age_ms(B) == 0


def test_limits_are_shared_out() -> None:
    """Who has nothing in this micro-batch has no end in it."""
    ends = BatchEnds(NumberCluster(), StreamLimits(max_rows=1))
    news = {A: unread(0, 9), B: unread(0, 9)}
    first = decide(ends, news)
    assert len(first) == 1
    assert set(first.values()) == {1}
    assert sorted(ends.backlogs.values()) == [8, 9]
    second = decide(ends, {name: unread(first.get(name, 0), 9) for name in news})
    assert first.keys() | second.keys() == {A, B}
    assert decide(ends, {}) == {}
    assert ends.backlogs == {}


def test_sizes_that_were_seen_count() -> None:
    """Of the entries ahead exactly, and of others as an average."""
    ends = BatchEnds(Peeking(), StreamLimits(max_rows=35))
    assert decide(ends, {A: unread(0, 9)}) == {A: 3}
    assert ends.backlogs == {A: 6}


def test_a_count_that_is_not_certain_is_not_all() -> None:
    """What is computed is taken, and no more."""
    ends = BatchEnds(Guessing(), StreamLimits(max_rows=5))
    assert decide(ends, {A: unread(0, 9)}) == {A: 2}


def test_a_minimum_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since the last micro-batch, no longer than the delay, where more may come."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    ends = BatchEnds(NumberCluster(), StreamLimits(min_rows=10, max_delay_s=60))
    few, enough = {A: unread(0, 9)}, {A: unread(0, 10)}
    assert decide(ends, few) == {}
    assert ends.backlogs == {A: 9}
    assert decide(ends, enough) == {A: 10}
    assert decide(ends, few, may_wait=False) == {A: 9}
    clock.now += 60
    assert decide(ends, few) == {A: 9}
    ends.batch_planned()
    assert decide(ends, few) == {}
    # Rows that come later can come no sooner than those that would wait for them.
    assert decide(ends, few, {B: unread(0, 0)}) == {}
    assert decide(ends, few, {B: unread(0, 1)}) == {A: 9}
    assert ends.backlogs == {A: 0, B: 1}
