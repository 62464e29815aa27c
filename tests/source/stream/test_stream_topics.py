# SPDX-License-Identifier: Apache-2.0
"""Topic partitions of streams over a scripted broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.errors import (
    DataLossError,
    PulsarSparkError,
)
from pulsar_spark.message_id import EARLIEST
from pulsar_spark.options.patience import USUAL
from pulsar_spark.source.stream import subscription as subscription_module
from pulsar_spark.source.stream.checkpoint import StreamOffset
from spark_topics.client import retry
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    P2,
    all_rows,
    at,
    stored,
)
from tests.support.fixtures import Clock as PausingClock
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    refuse,
    single,
)

pytestmark = pytest.mark.usefixtures("short_waits")

COMPACTED = {"pulsar.reader.readCompacted": "true"}


class TestTheTopicMoves:
    """A broker closes a topic, and is not ready for it again for a while."""

    REFUSALS = 40

    @pytest.mark.parametrize("command", ["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"])
    def test_under_a_running_query(
        self, two: ScriptedBroker, queries: Any, command: str
    ) -> None:
        """It waits, acknowledges what it has read, and goes on."""
        query = queries()
        query.drain()
        for name in (P0, P1):
            two.append(name, single(b"b"))
        two.script(command, *[refuse("ServiceNotReady")] * self.REFUSALS)
        two.close_consumers()
        query.drain()
        assert all_rows(query) == stored(two)
        assert [s.mark_delete for s in two.durable(P0)] == [(LEDGER, 5)]

    @pytest.mark.parametrize("command", ["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"])
    def test_under_one_that_starts(
        self, two: ScriptedBroker, queries: Any, command: str
    ) -> None:
        """And under one that fixes what there is to read."""
        two.script(command, *[refuse("ServiceNotReady")] * self.REFUSALS)
        query = queries()
        query.planner.fix_target()
        query.drain()
        assert all_rows(query) == stored(two)

    def test_that_are_said_to_be_empty_meanwhile(
        self, two: ScriptedBroker, queries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A query that reads what is stored is not over: it asks again."""
        query = queries(maxRowsPerTrigger="2")
        query.planner.fix_target()
        visit = subscription_module.Subscription.visit

        def nothing(*given: Any) -> Any:
            found = visit(*given)
            return {name: at and replace(at, last=None) for name, at in found.items()}

        monkeypatch.setattr(subscription_module.Subscription, "visit", nothing)
        query.drain()
        assert all_rows(query) == stored(two)
        asked = two.requests["SUBSCRIBE"]
        assert not query.trigger()
        assert two.requests["SUBSCRIBE"] == asked

    @pytest.mark.parametrize(
        ("command", "change"),
        [
            ("PARTITIONED_METADATA", "rows"),
            ("SUBSCRIBE", "a partition"),
            ("SUBSCRIBE", "a ledger"),
            ("SUBSCRIBE", "parts"),
        ],
    )
    def test_for_longer_than_a_lookup_may_take(
        self, two: ScriptedBroker, queries: Any, command: str, change: str
    ) -> None:
        """Whatever the driver asks, it goes on asking for as long as tasks do."""
        query = queries(**({"minPartitions": "9"} if change == "parts" else {}))
        query.limits["lookup_timeout_s"] = 0.2
        query.drain()
        if change == "a partition":
            two.partitions[BASE] = 3
            two.add_topic(f"{BASE}-partition-2", [single(b"c")])
        elif change == "a ledger":
            two.append(P0, single(b"b"))
            query.drain()
            two.append(P0, single(b"b"))
            two.roll(P0)
        for name in (P0, P1):
            two.append(name, *[single(b"b")] * 3)
        # Of parts several are asked for at once.
        refusals = self.REFUSALS * (10 if change == "parts" else 1)
        two.script(command, *[refuse("ServiceNotReady")] * refusals)
        query.drain()
        assert all_rows(query) == stored(two)

    def test_for_longer_than_it_waits(
        self, two: ScriptedBroker, queries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says what the broker said, for how long, and what to raise."""
        monkeypatch.setattr(retry, "time", PausingClock())
        query = queries(pollTimeoutMs="300")
        query.drain()
        two.always("SUBSCRIBE", refuse("ServiceNotReady", "recovering"))
        two.close_consumers()
        with pytest.raises(
            PulsarSparkError, match=r"recovering.* 0\.3 s.*pollTimeoutMs"
        ):
            query.trigger()


class TestRestart:
    """A query goes on with further topics, or with other ones of the same name."""

    def test_a_compacted_topic_joins(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """It begins where a new query does: before what is stored."""
        query = queries(**COMPACTED)
        for name in (BASE, f"{BASE}u"):
            scripted.add_topic(name, [single(b"a")] * 5)
            scripted.roll(name)
            scripted.append(name, single(b"b"))
            scripted.trim(name)
        start = query.begin()
        end = query.planner.latest(start)
        assert [r.start for r in query.ranges(start, end)] == [EARLIEST]
        query.kill()
        query.options["topics"] = "t,tu"
        del query.options["topic"]
        (range_,) = query.ranges(end, query.planner.latest(end))
        assert (range_.topic_partition, range_.start) == (f"{BASE}u", EARLIEST)

    @pytest.mark.parametrize("fails", ["true", "false"])
    def test_a_compacted_topic_that_never_was_so_long(
        self, scripted: ScriptedBroker, queries: Any, fails: str
    ) -> None:
        """A loss, as without compaction, and read from its first row on."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries(**COMPACTED, failOnDataLoss=fails)
        start = StreamOffset("s", {BASE: at(3, 900)})
        if fails == "true":
            with pytest.raises(DataLossError, match="never reached"):
                query.planner.latest(start)
            return
        (range_,) = query.ranges(start, query.planner.latest(start))
        assert range_.start == EARLIEST

    def test_a_misspelt_topic(
        self, scripted: ScriptedBroker, queries: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning: it may yet be created."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries(topics="t,tt")
        del query.options["topic"]
        start = StreamOffset("s", {BASE: at(1)})
        for _ in range(2):
            query.planner.latest(start)
        (warned,) = [r for r in caplog.records if f"{BASE}t does not" in r.getMessage()]
        assert warned.levelname == "WARNING"


class TestAvailableNow:
    def test_what_came_later_is_not_read(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """New rows, new partitions; limits hold, and it comes to an end."""
        query = queries(maxRowsPerTrigger="3")
        query.planner.fix_target()
        wanted = stored(two)
        query.trigger()
        two.append(P0, *[single(b"b")] * 4)
        two.partitions[BASE] = 3
        two.add_topic(P2, [single(b"b")])
        query.drain()
        assert all_rows(query) == wanted
        assert max(len(rows) for rows in query.rows) <= 3
        # The last batch is acknowledged, too: Spark has asked once more after it.
        assert [s.mark_delete for s in two.durable(P0)] == [(LEDGER, 4)]

    def test_a_minimum_does_not_hold_it_up(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """There is nothing to wait for."""
        query = queries(minRowsPerTrigger="1000")
        query.planner.fix_target()
        query.drain()
        assert all_rows(query) == stored(two)

    def test_a_restart_goes_on_with_what_there_is_then(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """The next run has its own target."""
        query = queries(maxRowsPerTrigger="4")
        query.planner.fix_target()
        query.trigger()
        query.trigger("before it is committed")
        two.append(P0, single(b"b"))
        query.planner.fix_target()
        wanted = stored(two)
        two.append(P1, single(b"c"))
        query.drain()
        assert all_rows(query) == wanted

    @pytest.mark.parametrize("is_moved", [False, True])
    def test_rows_that_are_held_back(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        is_moved: bool,
    ) -> None:
        """The last run warns of them, wherever others have put the cursor."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        query = queries()
        query.limits["patience"] = replace(USUAL, hidden_s=0.1, look_s=0.1)
        query.drain()
        query.kill()
        scripted.hold_back(BASE)
        scripted.append(BASE, single(b"b"))
        if is_moved:
            (subscription,) = scripted.durable(BASE)
            subscription.mark_delete = scripted.positions(BASE)[-1]
        query.planner.fix_target()
        query.drain()
        (warning,) = (m for m in caplog.messages if "open transaction" in m)
        assert "This run ends without these rows" in warning

    def test_an_empty_topic(self, scripted: ScriptedBroker, queries: Any) -> None:
        """It ends at once."""
        scripted.add_topic(BASE)
        query = queries()
        query.planner.fix_target()
        scripted.append(BASE, single(b"a"))
        query.drain()
        assert all_rows(query) == []
