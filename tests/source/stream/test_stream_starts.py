# SPDX-License-Identifier: Apache-2.0
"""Where new streams over a scripted broker start."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.errors import (
    DataLossError,
    OptionError,
    PulsarSparkError,
)
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    STARTS,
    Query,
    all_rows,
    at,
    stored,
)
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    Session,
    Subscription,
    batch,
    cut,
    late,
    refuse,
    single,
    usual,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


class TestStart:
    def test_nobody_answers(self, two: ScriptedBroker, queries: Any) -> None:
        """It gives up as a lookup does, long before a query that has begun would."""
        query = queries(pollTimeoutMs="3600000")
        query.limits = {"lookup_timeout_s": 0.3}
        two.always("PARTITIONED_METADATA", refuse("ServiceNotReady"))
        with pytest.raises(PulsarSparkError, match=r"0\.3 s.*client.lookupTimeoutMs"):
            query.planner.initial()

    def test_it_is_looked_up_once(self, two: ScriptedBroker, queries: Any) -> None:
        """Spark asks several times, while rows come in."""
        planner = queries(startingOffsets="latest").planner
        first = planner.initial()
        two.append(P0, single(b"b"))
        assert planner.initial() is first
        assert dict(first.last_read) == {P0: at(4), P1: at(4)}
        assert first.start_after == first.last_read
        assert first.subscription.startswith("spark-pulsar-")

    @pytest.mark.parametrize("fails", [True, False])
    def test_in_a_deleted_topic(
        self, scripted: ScriptedBroker, queries: Any, fails: bool
    ) -> None:
        """Its rows are lost, as to a query that has read some of them."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        query = queries(
            topicsPattern="[a-z]",
            startingOffsets=f'{{"t":"{LEDGER}:1","u":"{LEDGER}:2"}}',
            failOnDataLoss=str(fails),
        )
        del query.options["topic"]
        if fails:
            with pytest.raises(DataLossError, match="default/u is gone"):
                query.planner.initial()
        else:
            assert dict(query.planner.initial().last_read) == {BASE: at(0)}

    def test_of_a_predefined_subscription(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Its name is the query's."""
        initial = queries(predefinedSubscription="mine").planner.initial()
        assert initial.subscription == "mine"

    @pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}])
    @pytest.mark.parametrize(("start", "skipped"), [("0:2", 2), ("1:1", 4), ("1:2", 5)])
    def test_inside_of_a_batch(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        start: str,
        skipped: int,
        limits: dict[str, str],
    ) -> None:
        """To the message, also where that is in the last entry."""
        scripted.add_topic(BASE, [batch([b"a", b"b", b"c"])] * 2)
        query = queries(startingOffsets=f'{{"t":"{LEDGER}:{start}"}}', **limits)
        query.drain()
        assert all_rows(query) == stored(scripted)[skipped:]
        (subscription,) = scripted.durable(BASE)
        assert subscription.mark_delete == (LEDGER, 1)

    def test_nothing_is_left_before_spark_has_recorded_anything(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """A query that dies before its first batch leaves no subscription."""
        durable_acks = []

        def spy(broker: ScriptedBroker, session: Any, command: Any) -> None:
            consumer = session.consumers[command.ack.consumer_id]
            durable_acks.append(consumer.subscription.durable)
            broker.answer(session, command)

        two.always("ACK", spy)
        query = queries(maxRowsPerTrigger="2", startingOffsets=STARTS)
        start = query.planner.initial()
        end = query.planner.latest(start)
        query.planner.latest(start)
        query.planner.commit(start)
        assert not any(body.durable for body in two.bodies["SUBSCRIBE"])
        assert True not in durable_acks
        query.planner.ranges(start, end)
        assert True in durable_acks
        assert {s.name for s in two.durable(P0)} == {start.subscription}
        # Not a row further than what was wanted from the beginning.
        assert {s.mark_delete for s in two.durable(P0)} == {(LEDGER, 1)}

    def test_without_acknowledgements_nothing_is_ever_left(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """`ackOnCommit` false: no durable subscription at all."""
        query = queries(ackOnCommit="false", maxRowsPerTrigger="3")
        query.drain()
        assert all_rows(query) == stored(two)
        assert not any(body.durable for body in two.bodies["SUBSCRIBE"])
        query.stop()
        wait_until(lambda: two.subscriptions == {})


class TestStartAtSubscription:
    @pytest.fixture
    def mine(self, two: ScriptedBroker) -> Subscription:
        """A subscription of both partitions; that of the second has read all."""
        for name, entry_id in ((P0, 1), (P1, 4)):
            one = Subscription(name, "mine", True, (LEDGER, entry_id))
            two.subscriptions[name, "mine"] = one
        return two.subscriptions[P0, "mine"]

    def query(self, queries: Any) -> Query:
        """Starts where it stands."""
        query: Query = queries(
            startingOffsets="subscription", predefinedSubscription="mine"
        )
        return query

    def test_where_it_stands(
        self, two: ScriptedBroker, queries: Any, mine: Subscription
    ) -> None:
        """What it has acknowledged is not read, and it is not moved by asking."""
        query = self.query(queries)
        assert dict(query.planner.initial().last_read) == {P0: at(1), P1: at(4)}
        assert mine.mark_delete == (LEDGER, 1)
        assert mine.consumer is None
        query.drain()
        rows = [(P0, LEDGER, n, 0) for n in (2, 3, 4)]
        assert all_rows(query) == rows
        query.kill()
        two.append(P1, single(b"later"))
        query.drain()
        assert all_rows(query) == [*rows, (P1, LEDGER, 5, 0)]
        query.planner.latest(query.begin())  # which acknowledges
        assert [one.name for one in two.durable(P0)] == ["mine"]

    def test_inside_of_a_batch(
        self, two: ScriptedBroker, queries: Any, mine: Subscription
    ) -> None:
        """Messages that were acknowledged one by one from the first on are done."""
        two.topics[P0] = [
            replace(batch([b"a", b"b", b"c"]), position=place)
            for place in two.positions(P0)
        ]
        mine.ack_sets[LEDGER, 2] = [0b110]
        initial = self.query(queries).planner.initial()
        assert initial.last_read[P0] == at(2, batch_index=0)

    @pytest.mark.parametrize("trouble", ["a cut", "a move", "a slow broker"])
    def test_inside_of_a_batch_and_trouble(
        self,
        two: ScriptedBroker,
        queries: Any,
        mine: Subscription,
        monkeypatch: pytest.MonkeyPatch,
        trouble: str,
    ) -> None:
        """No start is guessed: what was acknowledged would be read again."""
        patience.usual(monkeypatch, look_s=0.1)
        in_time = threading.Event()

        def move(broker: ScriptedBroker, session: Session, command: Any) -> None:
            broker.close_consumers()

        def look_again(broker: ScriptedBroker, session: Session, command: Any) -> None:
            in_time.set()
            broker.answer(session, command)

        actions = {"a cut": cut, "a move": move, "a slow broker": late(in_time)}
        two.script("FLOW", actions[trouble])
        if trouble == "a slow broker":
            two.script("GET_LAST_MESSAGE_ID", *[usual] * 2, look_again)
        try:
            self.test_inside_of_a_batch(two, queries, mine)
        finally:
            in_time.set()

    @pytest.mark.parametrize("cursor", [(7, 4), (8, -1)])
    def test_what_was_acknowledged_is_removed(
        self, scripted: ScriptedBroker, queries: Any, cursor: tuple[int, int]
    ) -> None:
        """Some brokers leave the cursor in the ledger that is gone."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        scripted.roll(BASE)
        scripted.append(BASE, *[single(b"b")] * 3)
        scripted.trim(BASE)
        scripted.subscriptions[BASE, "s"] = Subscription(BASE, "s", True, cursor)
        query = queries(startingOffsets="subscription", predefinedSubscription="s")
        query.drain()
        assert all_rows(query) == stored(scripted)

    def test_only_what_waits_is_looked_at(
        self, two: ScriptedBroker, queries: Any, mine: Subscription
    ) -> None:
        """A partition that was read to its end has nothing to show."""
        self.query(queries).planner.initial()
        assert list(two.permits) == [P0]

    def test_that_is_not_there(self, two: ScriptedBroker, queries: Any) -> None:
        """It is not created."""
        with pytest.raises(OptionError, match="mine"):
            self.query(queries).planner.initial()
        assert two.durable(P0) == []
