# SPDX-License-Identifier: Apache-2.0
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

from pulsar_spark.errors import QueryConflictError
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink import commit_protocol
from pulsar_spark.sink.commit_log import (
    Began,
    Committed,
    Opened,
    Partial,
    Prepared,
    dump_marker,
    dump_probe,
)
from pulsar_spark.sink.commit_protocol import (
    Append,
    CommitProgress,
    Confirm,
    CutLog,
    End,
    ForgetMarkers,
    KeepMarkers,
    LastMarker,
    ReadLog,
)
from tests.support.commit_model import (
    EMPTY,
    BrokenError,
    Explorer,
    Model,
    behind_a_scalable_topic,
)

if TYPE_CHECKING:
    from pulsar_spark.sink.commit_log import Record, Term
    from pulsar_spark.sink.commit_protocol import Effect, Recovered


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log and markers are shortened at every opportunity."""
    monkeypatch.setattr(commit_protocol, "CUT_LOG_AFTER", 0)
    monkeypatch.setattr(commit_protocol, "FORGET_MARKERS_EVERY", 1)


def explore(kinds: str, switches: int, topics: str = "ordinary") -> Explorer:
    """Sees everything; one fault of these kinds may strike, none if there are none."""
    model = Model(
        2,
        frozenset(kinds.split()) - {"refused"},
        is_scalable=topics == "scalable",
        is_superuser="refused" not in kinds,
        names_entries=topics != "unnamed",
    )
    explorer = Explorer(model)
    explorer.explore(
        int(bool(kinds)),
        switches,
        may_be_restored="acknowledgement" in kinds,
        first=behind_a_scalable_topic() if topics == "both" else EMPTY,
    )
    return explorer


#: A minute or two. Without switches, the same faults are among those that are left.
LONG = [pytest.mark.slow, pytest.mark.matrix]


@pytest.mark.parametrize(
    ("topics", "kinds", "switches", "least"),
    [
        ("ordinary", "", 1, 1_500),
        pytest.param("ordinary", "", 2, 20_000, marks=pytest.mark.matrix),
        ("ordinary", "expiry", 0, 200),
        pytest.param("ordinary", "expiry", 1, 20_000, marks=pytest.mark.matrix),
        ("ordinary", "reply", 1, 7_000),
        pytest.param("ordinary", "twice error", 1, 90_000, marks=LONG),
        ("ordinary", "twice error speculation", 0, 200),
        pytest.param("ordinary", "speculation", 1, 100_000, marks=LONG),
        ("ordinary", "acknowledgement", 1, 2_000),
        ("scalable", "reply", 1, 1_500),
        ("scalable", "expiry", 1, 7_000),
        pytest.param("scalable", "speculation", 1, 20_000, marks=LONG),
        ("scalable", "expiry twice error speculation acknowledgement", 0, 200),
        ("both", "reply", 1, 500),
        ("ordinary", "unload", 0, 200),
        ("ordinary", "unload refused", 0, 200),
        ("ordinary", "unload", 1, 7_000),
        ("ordinary", "unload refused", 1, 7_000),
    ],
    ids=lambda one: str(one).replace(" ", "-"),
)
def test_every_step(
    topics: str,
    kinds: str,
    switches: int,
    least: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each row once, a micro-batch whole before the next one, and no false alarm."""
    explorer = explore(kinds, switches, topics)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(explorer.seen):,} worlds, {len(explorer.ends):,} restarts:"
            f" {topics} topics, {kinds or 'no fault'}, {switches} switches\n"
        )
    assert len(explorer.seen) >= least


PLACE, BEGAN = (1, 0), (2, 0)


def recover(
    *log: tuple[Term, Record], **results: Any
) -> tuple[list[Effect], Recovered]:
    """What a driver does that finds this log, and what it finds out.

    Other effects have the results that their names say.
    """
    steps = commit_protocol.recover("run")
    results["ReadLog"] = log
    effects = [next(steps)]
    try:
        while True:
            effects.append(steps.send(results.get(type(effects[-1]).__name__)))
    except StopIteration as end:
        return effects, end.value


def test_markers_are_kept_before_there_is_one() -> None:
    """Also behind a commit, which may have gone to a scalable topic without any."""
    began = BEGAN, Began("run")
    effects, found = recover(began)
    assert effects == [Append(Began("run")), ReadLog(), KeepMarkers()]
    assert (found.progress.committed, found.progress.partial) == (-1, -1)
    effects, found = recover((PLACE, Committed(0, "q", PLACE, PLACE)), began)
    assert effects[2] == KeepMarkers()
    assert (found.progress.committed, found.progress.partial) == (0, -1)


def test_a_driver_gives_way_to_another() -> None:
    """Its own beginning is not in the log, but that of another is."""
    steps = commit_protocol.recover("run")
    assert [next(steps), steps.send(None)] == [Append(Began("run")), ReadLog()]
    with pytest.raises(QueryConflictError, match="work while a micro-batch was"):
        steps.send([(PLACE, Began("another"))])


def test_a_driver_that_finds_nothing_begins_once_more() -> None:
    """Nothing had kept the log before it was read; and it tries no third time."""
    steps = commit_protocol.recover("run")
    tried = [next(steps), *map(steps.send, [None, [], None])]
    assert tried == [Append(Began("run")), ReadLog()] * 2
    with pytest.raises(QueryConflictError, match="went to work"):
        steps.send([])


def test_a_decision_that_somebody_cut_away() -> None:
    """Whoever did that is done with it; nothing of it may be committed then."""
    progress = CommitProgress("q", "run", term=PLACE)
    txns = {0: TxnId(0, 1)}
    steps = commit_protocol.commit(7, txns, progress, 1)
    assert next(steps) == Confirm((txns[0],))
    assert isinstance(steps.send([]), Append)
    assert steps.send(None) == ReadLog()
    with pytest.raises(QueryConflictError, match="work while micro-batch 7 was"):
        steps.send([(BEGAN, Began("another", BEGAN))])


def test_what_became_visible_before_the_decision_counts() -> None:
    """A micro-batch that is decided for the second time decides on the rest only."""
    txns, probe = {0: TxnId(0, 1), 1: TxnId(0, 2)}, dump_probe("run")
    _, found = recover(
        (PLACE, Began("before", PLACE)),
        ((1, 1), Prepared(4, txns, "q", "before", 6, PLACE)),
        (BEGAN, Began("run", BEGAN)),
        End=[txns[1]],
        Probe=probe,
        ReadMarkers=[*(dump_marker("q", 4, part) for part in (0, 5)), probe],
    )
    assert (found.progress.committed, found.progress.partial) == (3, 4)
    assert found.progress.parts == {0, 5}
    assert found.lost == (1,)


def test_whoever_does_not_know_its_driver_aborts_what_those_before_wrote() -> None:
    """Also where the last one began right behind the one before it."""
    first, second = (1, 0), (1, 1)
    log = [
        (first, Began("one", first)),
        (second, Began("two", second)),
        ((1, 2), Opened(0, 0, TxnId(0, 1), first)),
        ((1, 3), Opened(0, 0, TxnId(0, 2), second)),
    ]
    steps = commit_protocol.abort(None)
    assert next(steps) == ReadLog()
    assert steps.send(log) == End((TxnId(0, 1),), commits=False)


def test_a_micro_batch_of_which_nothing_became_visible() -> None:
    """It is written anew, into as many tasks as one likes."""
    lost = Partial(1, "q", frozenset(), 4, PLACE, PLACE)
    _, found = recover((PLACE, lost), (BEGAN, Began("run")))
    progress = found.progress
    assert (progress.committed, progress.partial, progress.tasks) == (0, -1, 4)
    assert not any(progress.has(1, part) for part in range(4))
    txns = {0: TxnId(0, 1), 1: TxnId(0, 2)}
    steps = commit_protocol.commit(1, txns, progress, 2)
    assert next(steps) == Confirm((txns[0], txns[1]))
    assert steps.send([]) == Append(Prepared(1, txns, "q", "run", 2, BEGAN))


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
    ("name", "broken", "kinds", "topics", "finding"),
    [
        pytest.param(
            *("_forget_markers", forget_whatever_is_last),
            *("expiry", "unnamed", "twice"),  # else entries tell what markers do not
            marks=pytest.mark.matrix,
        ),
        *[
            ("_forget_markers", cut_whatever_is_there, "", topics, finding)
            for topics in ("ordinary", "unnamed")
            for finding in ("twice|missing|no other",)
        ],
    ],
    ids=["markers-of-later-drivers", "cuts-too-much", "cuts-without-entries"],
)
def test_the_model_itself(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Any,
    kinds: str,
    topics: str,
    finding: str,
) -> None:
    """It finds what goes wrong when a precaution is left out."""
    monkeypatch.setattr(commit_protocol, name, broken)
    with pytest.raises(BrokenError, match=finding):
        explore(kinds, 2, topics)
