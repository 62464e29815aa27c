"""The commit protocol, explored: every step of two drivers, and every fault at each.

Two drivers of one query, two tasks, two micro-batches. Between any two steps the other
driver may go on, all may die, and a fault may strike; from every world that is seen the
query is started again, at once and when all transactions have expired. Bounded are only
the faults of one play, and how often one driver stops and the other one goes on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import commit_protocol
from pulsar_spark.commit_log import Began, Partial, Prepared
from pulsar_spark.commit_protocol import (
    Append,
    CutLog,
    ForgetMarkers,
    LastMarker,
    ReadLog,
)
from tests.support.commit_model import BrokenError, Explorer, Model

if TYPE_CHECKING:
    from pulsar_spark.commit_log import Term


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log and markers are shortened at every opportunity."""
    monkeypatch.setattr(commit_protocol, "CUT_LOG_AFTER", 0)
    monkeypatch.setattr(commit_protocol, "FORGET_MARKERS_EVERY", 1)


def explore(kinds: str, switches: int) -> Explorer:
    """Sees everything; one fault of these kinds may strike, none if there are none."""
    explorer = Explorer(Model(2, frozenset(kinds.split())))
    may_be_restored = "acknowledgement" in kinds
    explorer.explore(int(bool(kinds)), switches, may_be_restored=may_be_restored)
    return explorer


@pytest.mark.parametrize(
    ("kinds", "switches", "least"),
    [
        ("", 2, 20_000),
        ("expiry", 1, 20_000),
        ("reply", 1, 7_000),
        pytest.param("twice error", 1, 90_000, marks=pytest.mark.slow),
        ("twice error speculation", 0, 200),
        pytest.param("speculation", 1, 100_000, marks=pytest.mark.slow),
        ("acknowledgement", 1, 2_000),
    ],
    ids=lambda one: str(one).replace(" ", "-"),
)
def test_every_step(
    kinds: str, switches: int, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each row once, a micro-batch whole before the next one, and no false alarm."""
    explorer = explore(kinds, switches)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(explorer.seen):,} worlds, {len(explorer.ends):,} restarts:"
            f" {kinds or 'no fault'}, {switches} switches\n"
        )
    assert len(explorer.seen) >= least


def test_a_micro_batch_of_which_nothing_became_visible() -> None:
    """It is written anew, into as many tasks as one likes."""
    place, began = (1, 0), (2, 0)
    lost = Partial(1, "q", frozenset(), 4, place, place)
    steps: Any = commit_protocol.recover("run")
    result: Any = None
    try:
        while True:
            effect = steps.send(result)
            is_read = isinstance(effect, ReadLog)
            log = [(place, lost), (began, Began("run"))]
            result = log if is_read else None
    except StopIteration as end:
        progress = end.value.progress
    assert (progress.committed, progress.tasks) == (0, 4)
    assert not any(progress.has(1, part) for part in range(4))
    txns = {0: (0, 1), 1: (0, 2)}
    decision = next(commit_protocol.commit(1, txns, progress, 2))
    assert decision == Append(Prepared(1, txns, "q", "run", 2, began))


def forget_whatever_is_last(term: Term) -> Any:
    """Markers are forgotten without a look at who has begun meanwhile."""
    last = yield LastMarker()
    if last is not None:
        yield ForgetMarkers(last)


def cut_whatever_is_there(term: Term) -> Any:
    """The log is cut at its end, though a later driver may have decided there."""
    entries = yield ReadLog()
    if entries:
        yield CutLog(entries[-1][0])


@pytest.mark.parametrize(
    ("name", "broken", "kinds", "finding"),
    [
        ("_forget_markers", forget_whatever_is_last, "expiry", "twice"),
        ("_forget_markers", cut_whatever_is_there, "", "twice|missing|no other"),
    ],
    ids=["markers-of-later-drivers", "cuts-too-much"],
)
def test_the_model_itself(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Any,
    kinds: str,
    finding: str,
) -> None:
    """It finds what goes wrong when a precaution is left out."""
    monkeypatch.setattr(commit_protocol, name, broken)
    with pytest.raises(BrokenError, match=finding):
        explore(kinds, 2)
