# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import OptionError, ProtocolError, TopicNotFoundError
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.discovery import find_topic_partitions
from pulsar_spark.topics import TopicName, compile_topics_pattern
from tests.support.scripted_broker import ScriptedBroker, client_options
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock

SPACE = "persistent://public/default/"


def find(pool: ConnectionPool, *topics: str, **options: Any) -> list[str]:
    """What a read of these topics covers."""
    if "pattern" in options:
        options["topics_pattern"] = compile_topics_pattern(
            options.pop("pattern"), option="topicsPattern"
        )
    given = ReadOptions(
        client=pool.options,
        topics=tuple(TopicName.parse(topic) for topic in topics),
        **options,
    )
    found = find_topic_partitions(TopicLookup(pool), given)
    return [topic.full_name.removeprefix(SPACE) for topic in found]


@pytest.fixture
def scripted(scripted: ScriptedBroker) -> ScriptedBroker:
    """With a topic, and one of three partitions of which one has been used."""
    scripted.add_topic(f"{SPACE}plain")
    scripted.partitions[f"{SPACE}parts"] = 3
    scripted.add_topic(f"{SPACE}parts-partition-1")
    return scripted


def test_partitions_are_counted_not_listed(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Those nobody has used yet are there, too."""
    assert find(pool, "parts", "plain") == [
        "parts-partition-0",
        "parts-partition-1",
        "parts-partition-2",
        "plain",
    ]


def test_one_partition(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """A partition that is named is itself, and read once where it is named twice."""
    assert find(pool, "parts-partition-1") == ["parts-partition-1"]
    assert len(find(pool, "parts-partition-1", "parts")) == 3


def test_a_pattern(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It matches topics; all their partitions belong to it."""
    assert len(find(pool, pattern="public/default/p.*")) == 4
    assert find(pool, pattern="public/default/pl.*") == ["plain"]


def test_more_partitions_than_a_driver_holds(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Many topics of many partitions are counted together before one is named."""
    names = [f"many{number}" for number in range(11)]
    for name in names:
        scripted.partitions[f"{SPACE}{name}"] = 100_000
    with pytest.raises(ProtocolError, match="counts 1,100,000 topic partitions"):
        find(pool, *names)


class TestPatternsThatTakeForEver:
    """Names are what others choose; some expressions try all ways to divide one."""

    PATTERN = r"public/default/(\w+\s?)+end"

    @pytest.fixture
    def hurried(
        self, scripted: ScriptedBroker, unhurried: Clock
    ) -> Iterator[ConnectionPool]:
        """Looks for topics for a fifth of a second only."""
        scripted.add_topic(f"{SPACE}{'a' * 60}!")
        one = ConnectionPool(client_options(scripted.address, lookup_timeout_s=0.2))
        yield one
        one.close()

    def test_they_are_refused(self, hurried: ConnectionPool) -> None:
        """The error says what to change; the alarm clock is as it was before."""
        usual = signal.getsignal(signal.SIGALRM)
        due_s, interval_s = signal.getitimer(signal.ITIMER_REAL)  # that of the tests
        with pytest.raises(OptionError, match="repetition inside of a repetition"):
            find(hurried, pattern=self.PATTERN)
        assert signal.getsignal(signal.SIGALRM) is usual
        left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
        assert left_s <= due_s
        assert (left_s > 0, again_s) == (due_s > 0, interval_s)

    def test_others_are_not(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Neither in the main thread nor elsewhere, where there is no alarm."""
        with ThreadPoolExecutor(1) as executor:
            there = executor.submit(find, pool, pattern="public/default/(pl|x)+.*")
            assert there.result(60) == ["plain"]
        assert find(pool, pattern="public/default/(pl|x)+.*") == ["plain"]


def test_missing_topics_are_named_together(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The error names them, and how to wait for them."""
    with pytest.raises(TopicNotFoundError, match="waitingForNonExistedTopic") as caught:
        find(pool, "plain", "gone", "lost")
    assert f"{SPACE}gone, {SPACE}lost" in str(caught.value)


def test_a_pattern_that_matches_nothing(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The error shows the pattern and the namespace."""
    with pytest.raises(TopicNotFoundError, match=r"public/default.*zzz"):
        find(pool, pattern="public/default/zzz.*")


def test_a_topic_is_waited_for(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It is found once it is there."""
    found: list[str] = []

    def wait() -> None:
        found.extend(find(pool, "late", waiting_for_non_existed_topic=True))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: scripted.requests["PARTITIONED_METADATA"] >= 2)
    scripted.add_topic(f"{SPACE}late")
    thread.join(60)
    assert found == ["late"]


def test_but_not_for_ever(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """`topicWaitTimeoutMs` ends it: the error says how long, and to raise that."""
    began = time.monotonic()
    waited = r"late does not exist\. .* for 0\.1 s: .* `topicWaitTimeoutMs`"
    with pytest.raises(TopicNotFoundError, match=waited) as caught:
        find(
            pool,
            "late",
            waiting_for_non_existed_topic=True,
            topic_wait_timeout_s=0.1,
        )
    assert time.monotonic() - began >= 0.1
    assert "waitingForNonExistedTopic" not in str(caught.value)
    assert client_options().lookup_timeout_s > 0.1
