# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import logging
import random
import re

import pytest

from spark_topics.client import retry as retries
from spark_topics.client.retry import LongWait, Retry, ask_all
from spark_topics.errors import TopicsError, TransportError
from tests.support.fixtures import Clock


class ServerError(TopicsError):
    """What a server answers, with its reason."""

    def __init__(self, message: str, *, code: str, retriable: bool) -> None:
        super().__init__(message, retriable=retriable)
        self.code = code


FINAL = ServerError("no", code="NotAllowed", retriable=False)
BUSY = ServerError("later", code="TooManyRequests", retriable=True)


def retry(timeout_s: float = 100.0) -> Retry:
    """Pauses of 1 s to 8 s."""
    return Retry(1.0, 8.0, timeout_s)


def test_pauses_double_up_to_the_longest(clock: Clock) -> None:
    """With jitter: half to all of it."""
    one = retry()
    for limit in (1, 2, 4, 8, 8, 8):
        before = sum(clock.pauses)
        one.pause(BUSY)
        pause = sum(clock.pauses) - before  # a warning may cut it in two
        assert limit / 2 <= pause <= limit * 1.001


def test_jobs_that_seed_come_back_apart(clock: Clock) -> None:
    """And what they draw next does not depend on our pauses."""
    for _ in range(3):
        random.seed(1)
        retry().pause(BUSY)
        drawn = random.random()
        random.seed(1)
        assert drawn == random.random()
    assert len(set(clock.pauses)) == 3


def test_it_ends_at_the_deadline(clock: Clock) -> None:
    """The last pause is cut, then the error itself is raised."""
    one = retry(10.0)
    while one.remaining_s:
        one.pause(BUSY)
    with pytest.raises(ServerError, match="later"):
        one.pause(BUSY)
    assert sum(clock.pauses) == pytest.approx(10.0)
    assert one.remaining_s == 0


def test_its_option_is_named(clock: Clock) -> None:
    """The error at the end keeps its facts, and says for how long it was tried."""
    one = Retry(1.0, 8.0, 10.0, "pollTimeoutMs")
    while one.remaining_s:
        one.pause(BUSY)
    with pytest.raises(ServerError, match=r"later\. It .* 10 s.*`pollTimeoutMs`") as at:
        one.pause(BUSY)
    assert at.value.code == BUSY.code
    with pytest.raises(ServerError) as final:
        one.pause(FINAL)
    assert final.value is FINAL


def test_a_final_error_is_raised_at_once(clock: Clock) -> None:
    """No pause for what another try cannot mend."""
    with pytest.raises(ServerError, match="no"):
        retry().pause(FINAL)
    assert clock.pauses == []


def test_progress_begins_anew(clock: Clock) -> None:
    """Restart brings back the whole budget and the shortest pause."""
    one = retry(10.0)
    for _ in range(4):
        one.pause(BUSY)
    one.restart()
    assert one.remaining_s == 10.0
    one.pause(BUSY)
    assert clock.pauses[-1] <= 1.0


def test_only_what_failed_is_asked_again(clock: Clock) -> None:
    """Answers are kept; questions that failed for now are repeated together."""
    rounds: list[list[str]] = []

    def ask(keys: list[str]) -> dict[str, int | TopicsError]:
        rounds.append(keys)
        return {
            key: TransportError("cut") if key > "a" and len(rounds) < 3 else len(rounds)
            for key in keys
        }

    assert ask_all("abc", ask, retry()) == {"a": 1, "b": 3, "c": 3}
    assert rounds == [["a", "b", "c"], ["b", "c"], ["b", "c"]]


def test_many_are_asked_about_some_at_a_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in each round, before any is repeated."""
    monkeypatch.setattr(retries, "ASKED_TOGETHER", 2)
    asked = []

    def ask(keys: list[str]) -> dict[str, int | TopicsError]:
        asked.append(keys)
        is_first = len(asked) <= 3
        return {key: BUSY if key in "be" and is_first else ord(key) for key in keys}

    assert ask_all("abcde", ask, retry()) == {key: ord(key) for key in "abcde"}
    assert asked == [["a", "b"], ["c", "d"], ["e"], ["b", "e"]]
    assert len(clock.pauses) == 1


def test_any_answer_brings_back_the_patience(clock: Clock) -> None:
    """Thousands of topics that a broker loads one by one take longer than one does."""
    one = retry(2.0)
    rounds = 0

    def ask(keys: list[str]) -> dict[str, int | TopicsError]:
        nonlocal rounds
        rounds += 1
        return {key: BUSY if key != keys[0] else rounds for key in keys}

    keys = [f"t{number}" for number in range(20)]
    assert ask_all(keys, ask, one) == {key: n + 1 for n, key in enumerate(keys)}
    assert sum(clock.pauses) > 5 * 2.0
    assert max(clock.pauses) <= 1.0  # each the first after progress


def test_without_an_answer_the_patience_ends(clock: Clock) -> None:
    """The error is that of a question."""
    with pytest.raises(ServerError, match="later"):
        ask_all("abc", lambda keys: dict.fromkeys(keys, BUSY), retry(10.0))
    assert sum(clock.pauses) == pytest.approx(10.0)


def test_pauses_differ(clock: Clock) -> None:
    """Tasks that failed together must not come back together."""
    for _ in range(20):
        retry().pause(BUSY)
    assert len(set(clock.pauses)) > 10
    assert min(clock.pauses) < 0.75 < max(clock.pauses)


def test_one_final_error_ends_it(clock: Clock) -> None:
    """Whatever the others are."""
    answers: dict[str, int | TopicsError] = {"a": 1, "b": BUSY, "c": FINAL}
    with pytest.raises(ServerError, match="no"):
        ask_all(answers, lambda keys: answers, retry())
    assert clock.pauses == []


def test_nothing_to_ask_asks_nothing() -> None:
    """No round trip for no question."""
    assert ask_all([], lambda keys: pytest.fail("asked"), retry()) == {}


class TestLongWait:
    """A wait that lasts is told, and a short one is not."""

    def test_of_a_retry(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        """After 5 s, then each 30 s, with the error, the rest and the option."""
        retry = Retry(1.0, 1.0, 100.0, "pollTimeoutMs")
        told: list[float] = []
        while retry.remaining_s:
            retry.pause(BUSY)
            if len(caplog.records) > len(told):
                told.append(100 - retry.remaining_s)
        assert len(told) == 4
        assert 5 <= told[0] <= 6
        assert all(29 <= b - a <= 31 for a, b in itertools.pairwise(told))
        first = caplog.messages[0]
        assert re.fullmatch(
            r"\[TOPICS\] later\. Waited for [56] s so far; 9[45] s are left"
            r" \(`pollTimeoutMs`\)\.",
            first,
        )
        assert {record.levelno for record in caplog.records} == {logging.WARNING}

    def test_within_a_long_pause(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No pause is so long that its warning is late."""
        retry = Retry(60.0, 60.0, 100.0)
        retry.pause(BUSY)
        first = caplog.messages[0]
        assert first.endswith("later. Waited for 5 s so far; 95 s are left.")

    def test_progress_ends_it(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each answer begins the wait anew."""
        retry = Retry(1.0, 1.0, 100.0)
        for _ in range(50):
            retry.pause(BUSY)
            retry.restart()
        assert not caplog.records

    def test_without_a_limit(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The line says so, to the logger that was given."""
        wait = LongWait(logging.getLogger("numbers_spark.client"))
        for _ in range(70):
            clock.now += 1
            wait.tell("No receipt", None)
        assert caplog.messages == [
            f"No receipt. Waited for {seconds} s so far; without a limit."
            for seconds in (5, 35, 65)
        ]
        assert {record.name for record in caplog.records} == {"numbers_spark.client"}
