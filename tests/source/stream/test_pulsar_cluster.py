# SPDX-License-Identifier: Apache-2.0
"""Micro-batches over a scripted broker: starts, ends, limits, crashes."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import (
    AuthError,
    CheckpointError,
    DataLossError,
    OptionError,
    PulsarSparkError,
)
from pulsar_spark.message_id import EARLIEST
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream import subscription as subscription_module
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from spark_topics.client import retry
from tests.source.stream.queries import (
    BASE,
    CRASHES,
    P0,
    P1,
    P2,
    STARTS,
    Clock,
    Query,
    Row,
    all_rows,
    at,
    id_of,
    stored,
    text,
)
from tests.support import patience
from tests.support.fixtures import Clock as PausingClock
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
        assert all_rows(query) == [(P0, LEDGER, n, 0) for n in (2, 3, 4)]

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


class TestBatches:
    def test_the_very_start_where_nothing_is_new(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """The same object, so that Spark gets the same text."""
        query = queries()
        query.drain()
        start = query.begin()
        assert query.planner.latest(start) is start
        two.append(P1, single(b"b"))
        end = query.planner.latest(start)
        assert end is not start
        assert end.last_read == {P0: at(4), P1: at(5)}
        assert end.start_after == {}

    def test_all_rows_once_in_one_batch(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Without limits one batch takes all there is."""
        query = queries()
        query.drain()
        assert [len(rows) for rows in query.rows] == [10]
        assert all_rows(query) == stored(two)

    @pytest.mark.parametrize("begun", [False, True])
    def test_the_first_batch_again(
        self, two: ScriptedBroker, queries: Any, begun: bool
    ) -> None:
        """After a crash the start is another one; the batch is the same."""
        query = queries(startingOffsets="latest")
        start = query.planner.initial()
        two.append(P0, single(b"b"))
        end = query.planner.latest(start)
        wanted = [TopicRange(P0, id_of(5), id_of(5))]
        if begun:
            assert query.ranges(start, end) == wanted
        query.kill()
        two.append(P0, single(b"c"))
        two.append(P1, single(b"c"))
        again = query.planner.initial()
        assert again.last_read[P0] == at(6)
        assert again.subscription != end.subscription
        end = read_offset(end.to_json())
        assert query.ranges(again, end) == wanted
        assert {s.name for s in two.durable(P0)} == {end.subscription}
        following = query.planner.latest(end)
        assert following.subscription == end.subscription
        assert following.last_read == {P0: at(6), P1: at(5)}
        assert following.start_after == {}
        assert [len(two.durable(name)) for name in (P0, P1)] == [1, 1]

    def test_an_empty_first_batch(self, scripted: ScriptedBroker, queries: Any) -> None:
        """Spark records it; what comes later follows from it, in any process."""
        scripted.partitions[BASE] = 2
        for name in (P0, P1):
            scripted.add_topic(name)
        query = queries(startingOffsets="latest")
        query.trigger()
        assert query.rows == [[]]
        assert not query.trigger()
        scripted.append(P0, single(b"a"))
        query.kill()
        query.drain()
        scripted.append(P1, single(b"b"))
        query.drain()
        assert all_rows(query) == stored(scripted)
        assert [len(scripted.durable(name)) for name in (P0, P1)] == [1, 1]
        assert len({offset["subscription"] for offset in query.log}) == 1

    def test_new_partitions_begin_at_their_first_row(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """And the end says so, so that a crash changes nothing."""
        query = queries(startingOffsets="latest")
        query.trigger()
        two.append(P0, single(b"b"))
        query.drain()
        two.partitions[BASE] = 3
        two.add_topic(P2, [single(b"a")] * 3)
        query.trigger("after it is logged")
        assert query.log[-1]["startAfter"] == {BASE: {"2": f"{LEDGER}:-1"}}
        query.trigger()
        assert query.rows[-1] == [(P2, LEDGER, n, 0) for n in range(3)]
        two.append(P2, single(b"b"))
        query.trigger()
        assert query.rows[-1] == [(P2, LEDGER, 3, 0)]
        assert "startAfter" not in query.log[-1]

    def test_what_a_micro_batch_asks(self, two: ScriptedBroker, queries: Any) -> None:
        """Two requests of each topic partition; others to look at its last entry."""
        query = queries(partitionDiscoveryIntervalMs="3600000")
        query.trigger()
        look = ("SUBSCRIBE", "GET_LAST_MESSAGE_ID", "FLOW", "CLOSE_CONSUMER")
        for _ in range(3):
            for name in (P0, P1):
                two.append(name, single(b"b"))
            before = two.requests.copy()
            query.trigger()
            asked = two.requests - before
            assert asked == Counter(look * 2 + ("ACK", "GET_LAST_MESSAGE_ID") * 2)

    @pytest.mark.parametrize("crash", CRASHES[1:3])
    def test_partitions_that_come_during_a_replay(
        self, two: ScriptedBroker, queries: Any, crash: str
    ) -> None:
        """The micro-batch that runs again has none of them, the next one all."""
        query = queries()
        query.drain()
        for name in (P0, P1):
            two.append(name, single(b"b"))
        query.trigger(crash)
        two.partitions[BASE] = 3
        two.add_topic(P2, [single(b"a")] * 3)
        query.trigger()
        assert query.rows[-1] == [(P0, LEDGER, 5, 0), (P1, LEDGER, 5, 0)]
        query.drain()
        assert query.rows[-1] == [(P2, LEDGER, n, 0) for n in range(3)]
        assert all_rows(query) == stored(two)
        assert [len(two.durable(name)) for name in (P0, P1, P2)] == [1, 1, 1]

    def test_a_new_partition_without_rows(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It is part of no offset yet, nor of any batch, until it has some."""
        query = queries()
        query.drain()
        two.partitions[BASE] = 3
        assert not query.trigger()
        two.add_topic(P2)
        assert not query.trigger()
        two.append(P2, single(b"a"))
        query.drain()
        assert all_rows(query) == stored(two)

    def test_discovery_has_an_interval(
        self, two: ScriptedBroker, queries: Any, clock: Clock
    ) -> None:
        """Brokers are asked about the topics once in it."""
        query = queries(partitionDiscoveryIntervalMs="10000")
        query.drain()
        asked = two.requests["PARTITIONED_METADATA"]
        two.partitions[BASE] = 3
        two.add_topic(P2, [single(b"a")])
        clock.now += 9.9
        assert not query.trigger()
        assert two.requests["PARTITIONED_METADATA"] == asked
        clock.now += 0.2
        assert query.trigger()
        assert two.requests["PARTITIONED_METADATA"] == asked + 1
        assert all_rows(query) == stored(two)

    def test_a_long_plan_is_followed_by_a_rest(
        self, two: ScriptedBroker, queries: Any, clock: Clock
    ) -> None:
        """Where nothing is new; rows that come meanwhile are read after it."""
        query = queries()
        query.drain()
        two.script("GET_LAST_MESSAGE_ID", clock.delaying(0.1))
        assert not query.trigger()
        asked = two.requests["GET_LAST_MESSAGE_ID"]
        two.append(P0, single(b"new"))
        clock.now += 0.3
        assert not query.trigger()
        assert two.requests["GET_LAST_MESSAGE_ID"] == asked
        clock.now += 0.2
        assert query.trigger()
        assert all_rows(query) == stored(two)

    def test_a_rest_has_a_limit(
        self, two: ScriptedBroker, queries: Any, clock: Clock
    ) -> None:
        """A plan that took a minute, for a broker that was away, holds up nothing."""
        query = queries()
        query.drain()
        two.script("GET_LAST_MESSAGE_ID", clock.delaying(60))
        assert not query.trigger()
        two.append(P0, single(b"new"))
        clock.now += 1.1
        assert query.trigger()
        assert all_rows(query) == stored(two)

    def test_a_partition_that_is_not_asked_for_any_more(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It leaves; the other goes on, and so does the first when it returns."""
        query = queries(failOnDataLoss="false")
        query.drain()
        query.kill()
        del query.options["topic"]
        query.options["topics"] = "t-partition-1"
        two.append(P0, single(b"b"))
        two.append(P1, single(b"b"))
        query.drain()
        assert query.rows[-1] == [(P1, LEDGER, 5, 0)]
        assert list(query.begin().last_read) == [P1]
        assert dict(query.begin().kept) == {P0: at(4)}
        # Its subscription stays, where the last batch with it left off.
        (left,), (held,) = two.durable(P0), two.durable(P1)
        assert left.name == held.name
        assert (left.mark_delete, left.consumer) == ((LEDGER, 4), None)
        query.kill()
        del query.options["topics"]
        query.options |= {"topic": "t", "failOnDataLoss": "true"}
        query.drain()
        assert query.rows[-1] == [(P0, LEDGER, 5, 0)]
        assert all_rows(query) == stored(two)

    def test_what_leaves_is_an_error(self, two: ScriptedBroker, queries: Any) -> None:
        """Each time, until it is named again or `failOnDataLoss` is false."""
        query = queries()
        query.drain()
        query.kill()
        query.options["topic"] = P1
        for _ in range(2):
            with pytest.raises(DataLossError, match=P0) as caught:
                query.drain()
            assert caught.value.topic_partition == P0
            query.kill()
        query.options["topic"] = "t"
        two.append(P0, single(b"b"))
        query.drain()
        assert all_rows(query) == stored(two)

    def test_acknowledged_is_what_spark_has_committed(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """After a batch only what was before it; its own rows with the next look."""
        query = queries()
        query.trigger()
        assert [s.mark_delete for s in two.durable(P0)] == [(LEDGER, -1)]
        assert not query.trigger()
        assert [s.mark_delete for s in two.durable(P0)] == [(LEDGER, 4)]

    def test_a_commit_acknowledges_at_once(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Where Spark says so before it asks for the next batch."""
        query = queries()
        query.trigger()
        query.planner.commit(query.begin())
        assert [s.mark_delete for s in two.durable(P0)] == [(LEDGER, 4)]

    def test_a_checkpoint_of_the_scala_connector(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It knows no subscription: the query gets one, and keeps it."""
        query = queries()
        start = StreamOffset("", {P0: at(2), P1: at(4)})
        end = query.planner.latest(start)
        assert end.subscription.startswith("spark-pulsar-")
        assert query.ranges(start, end) == [TopicRange(P0, id_of(3), id_of(4))]
        assert {s.name for s in two.durable(P0)} == {end.subscription}
        assert {s.mark_delete for s in two.durable(P0)} == {(LEDGER, 2)}

    def test_runs_without_rows_from_such_a_checkpoint_leave_nothing(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """No offset would have the subscription's name, so each run had another."""
        query = queries()
        start = StreamOffset("", {P0: at(4), P1: at(4)})
        for _ in range(3):
            query.planner.fix_target()
            assert query.planner.latest(start) is start
            query.planner.commit(start)
            query.stop()
        two.append(P0, single(b"b"))
        end = query.planner.latest(start)  # and it dies before that is recorded
        query.kill()
        wait_until(lambda: two.subscriptions == {}, "readers that leave nothing")
        assert not any(body.durable for body in two.bodies["SUBSCRIBE"])
        assert query.ranges(start, end) == [TopicRange(P0, id_of(5), id_of(5))]
        assert [s.name for s in two.durable(P0)] == [end.subscription]

    def test_a_batch_that_such_a_checkpoint_has_begun(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It is read as it is; the subscription comes with the next end."""
        query = queries()
        start, end = StreamOffset("", {P0: at(2)}), StreamOffset("", {P0: at(4)})
        assert query.ranges(start, end) == [TopicRange(P0, id_of(3), id_of(4))]
        assert two.durable(P0) == []
        following = query.planner.latest(end)
        assert following.subscription.startswith("spark-pulsar-")
        query.planner.ranges(end, following)
        assert [s.name for s in two.durable(P0)] == [following.subscription]

    @pytest.mark.parametrize(
        "options",
        [{}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "2"}],
        ids=str,
    )
    @pytest.mark.parametrize("name", [P0, P1])
    def test_what_is_left_out_leaves_tasks_alone(
        self, two: ScriptedBroker, queries: Any, options: dict[str, str], name: str
    ) -> None:
        """The others have the same numbers and the same ranges, however divided."""
        two.append(P0, *[single(b"a")] * 4)
        query = queries(**options)
        start = query.planner.initial()
        end = query.planner.latest(start)
        tasks = query.planner.ranges(start, end)
        query.kill()
        there = LastRead(LEDGER, 1)
        moved = replace(
            end,
            last_read={**end.last_read, name: there},
            start_after={**end.start_after, name: there},
            left_out={name: (end.start_after[name], end.last_read[name])},
        )
        moved = read_offset(json.loads(text(moved)))
        again = query.planner.ranges(start, moved)
        assert len(again) == len(tasks) > 1
        for old, new in zip(tasks, again, strict=True):
            is_out = old.ranges[0].topic_partition == name
            assert new.ranges == (() if is_out else old.ranges)
            assert str(new)
        following = query.planner.latest(moved)
        assert following.left_out == {}
        assert query.ranges(moved, following)[0].start == id_of(2)

    def test_what_is_left_out_of_a_task_with_others(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Their rows would get other numbers, so the plan is refused."""
        query = queries(maxPartitions="1")
        start = query.planner.initial()
        end = query.planner.latest(start)
        span = (end.start_after[P0], end.last_read[P0])
        moved = replace(end, left_out={P0: span})
        with pytest.raises(CheckpointError, match=r"one task reads .*--renumber"):
            query.planner.ranges(start, moved)

    def test_what_is_left_out_and_is_gone(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """What depended on its size cannot be told again; what did not is the same."""
        query = queries(minPartitions="4")
        start = query.planner.initial()
        end = query.planner.latest(start)
        span = (LastRead(LEDGER - 1, 3), end.last_read[P0])
        moved = replace(end, left_out={P0: span})
        with pytest.raises(CheckpointError, match="no longer stored"):
            query.planner.ranges(start, moved)
        query.kill()
        query.options.pop("minPartitions")
        tasks = query.planner.ranges(start, moved)
        assert [len(task.ranges) for task in tasks] == [0, 1]

    def test_ranges_say_what_is_stored(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """A task that finds the ledger of its start gone can tell whether it had it."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        scripted.roll(BASE)
        scripted.append(BASE, *[single(b"b")] * 2)
        end = StreamOffset("s", {BASE: at(1, 8)})
        for read, is_known in ((1, True), (2, False)):
            query = queries()
            start = StreamOffset("s", {BASE: at(read)})
            (range_,) = query.ranges(start, end)
            assert range_ == TopicRange(BASE, id_of(read + 1), id_of(1, 8), is_known)
            query.stop()


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


class TestLimits:
    @pytest.fixture
    def ledgers(self, scripted: ScriptedBroker) -> ScriptedBroker:
        """Two partitions with ledgers of different lengths; entries of two rows.

        Entries that nobody has looked at count as the average does, so a limit is exact
        only where all are of one size.
        """
        scripted.partitions[BASE] = 2
        for name, lengths in ((P0, (5, 1, 3, 7)), (P1, (5, 2, 2))):
            scripted.add_topic(name)
            for length in lengths:
                scripted.append(name, *[batch([b"a", b"b"])] * length)
                scripted.roll(name)
        return scripted

    @pytest.mark.parametrize("limit", [1, 2, 5, 9, 1000])
    def test_rows(self, ledgers: ScriptedBroker, queries: Any, limit: int) -> None:
        """No batch has more, but for an entry alone that has; none is empty."""
        query = queries(maxRowsPerTrigger=str(limit))
        query.drain()
        assert all_rows(query) == stored(ledgers)
        sizes = [len(rows) for rows in query.rows]
        assert max(sizes) <= max(limit, 2)
        assert min(sizes) >= 1
        assert len(sizes) <= 2 * len(stored(ledgers)) // limit + 2

    @pytest.mark.parametrize(("size_bytes", "together"), [(1000, 2), (4000, 1)])
    def test_bytes(
        self, two: ScriptedBroker, queries: Any, size_bytes: int, together: int
    ) -> None:
        """As stored; an entry that is larger than the limit comes alone."""
        for name in (P0, P1):
            two.add_topic(name, [single(b"." * size_bytes)] * 6)
        query = queries(maxBytesPerTrigger="2500")
        query.drain()
        assert all_rows(query) == stored(two)
        assert [len(rows) for rows in query.rows] == [together] * (12 // together)

    def test_many_partitions_are_looked_at_in_turn(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """A look costs permits and memory, so only some have one at a time."""
        scripted.partitions[BASE] = 100
        for index in range(100):
            scripted.add_topic(f"{BASE}-partition-{index}", [single(b"a")] * 9)
        query = queries(maxRowsPerTrigger="1")
        start = query.begin()
        for looked_at in (64, 100):
            query.planner.latest(start)
            assert len(scripted.permits) == looked_at

    @pytest.mark.parametrize("limit", [1, 4, 12, 15, 20])
    def test_ends_are_entries(
        self, ledgers: ScriptedBroker, queries: Any, limit: int
    ) -> None:
        """Not a number behind the end of a ledger, which brokers count wrongly."""
        query = queries(maxRowsPerTrigger=str(limit))
        query.drain()
        for tree in query.log:
            offset = read_offset(tree)
            for name, last in offset.last_read.items():
                assert last.position in [*ledgers.positions(name), (LEDGER, -1)]

    def test_once_is_without_limits(
        self, ledgers: ScriptedBroker, queries: Any
    ) -> None:
        """Trigger.Once takes all there is."""
        query = queries(maxRowsPerTrigger="1000", minRowsPerTrigger="1000")
        query.trigger(unlimited=True)
        assert sorted(query.rows[0]) == stored(ledgers)
        limited = queries(maxRowsPerTrigger="1")
        limited.trigger(unlimited=True)
        assert sorted(limited.rows[0]) == stored(ledgers)

    def test_a_minimum_is_waited_for(
        self, two: ScriptedBroker, queries: Any, clock: Clock
    ) -> None:
        """Until it is there, or for the delay since the last batch."""
        query = queries(minRowsPerTrigger="12", maxTriggerDelay="60s")
        query.trigger()
        assert query.rows == [[]]  # the first batch, which Spark wants at once
        assert not query.trigger()
        two.append(P0, single(b"b"))
        assert not query.trigger()
        two.append(P1, single(b"b"))
        assert query.trigger()
        assert len(query.rows[-1]) == 12
        two.append(P0, single(b"c"))
        clock.now += 59
        assert not query.trigger()
        clock.now += 2
        assert query.trigger()
        assert all_rows(query) == stored(two)

    def test_a_broker_that_does_not_count(
        self, ledgers: ScriptedBroker, queries: Any
    ) -> None:
        """Without its statistics the limit still holds."""
        ledgers.always("CONSUMER_STATS", refuse("MetadataError"))
        query = queries(maxRowsPerTrigger="4")
        query.drain()
        assert all_rows(query) == stored(ledgers)
        assert max(len(rows) for rows in query.rows) <= 4

    def test_nobody_starves(self, two: ScriptedBroker, queries: Any) -> None:
        """A limit of one row goes round."""
        query = queries(maxRowsPerTrigger="1")
        for _ in range(4):
            query.trigger()
        assert {row[0] for rows in query.rows for row in rows} == {P0, P1}


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

    def test_an_empty_topic(self, scripted: ScriptedBroker, queries: Any) -> None:
        """It ends at once."""
        scripted.add_topic(BASE)
        query = queries()
        query.planner.fix_target()
        scripted.append(BASE, single(b"a"))
        query.drain()
        assert all_rows(query) == []


class TestProgress:
    def test_before_the_first_plan(self, queries: Any) -> None:
        """There is nothing to say."""
        assert queries().planner.progress() is None

    def test_where_topics_end_and_what_is_left(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """By topic and partition number."""
        query = queries(maxRowsPerTrigger="4")
        left = []
        while query.trigger():
            progress = query.planner.progress()
            assert progress is not None
            assert progress["latest"] == {BASE: {"0": "7:4", "1": "7:4"}}
            left.append(sum(progress["backlogEntries"][BASE].values()))
        assert left == [6, 2, 0]
        progress = query.planner.progress()
        assert progress is not None
        assert progress["v"] == 1
        assert progress["backlogEntries"] == {BASE: {"0": 0, "1": 0}}

    def test_without_rows(self, scripted: ScriptedBroker, queries: Any) -> None:
        """It ends where it begins."""
        scripted.add_topic(BASE)
        query = queries()
        query.trigger()
        assert query.planner.progress() == {
            "v": 1,
            "latest": {BASE: f"{LEDGER}:-1"},
            "backlogEntries": {BASE: 0},
            "backlogBytes": {BASE: 0},
            "ageMs": {BASE: 0},
        }

    @pytest.mark.parametrize("limit", [None, "2"])
    def test_how_old_what_is_unread_is(
        self, scripted: ScriptedBroker, queries: Any, clock: Clock, limit: str | None
    ) -> None:
        """The first unread entry's age; without limits looked at now and then."""
        scripted.add_topic(BASE, [single(b"a", publish_time=400_000)] * 3)
        limits = {} if limit is None else {"maxRowsPerTrigger": limit}
        query = queries(**limits)

        def ages() -> object:
            assert query.trigger()
            return query.planner.progress()["ageMs"]

        assert ages() == {BASE: 600_000}
        left = query.planner.progress()["backlogBytes"][BASE]
        assert left == 0 if limit is None else 0 < left < 1024
        query.drain()
        assert not query.trigger()
        assert query.planner.progress()["ageMs"] == {BASE: 0}
        scripted.append(BASE, single(b"b", publish_time=1_000_000))
        clock.now += 5
        # Without limits the last look was five seconds ago, and is no more of use.
        assert ages() == ({} if limit is None else {BASE: 5_000})
        scripted.append(BASE, single(b"b", publish_time=1_000_000))
        clock.now += 5.1
        assert ages() == {BASE: 10_100}
        # Of who published a clock that is ahead.
        scripted.append(BASE, single(b"b", publish_time=9_000_000))
        clock.now += 10.1
        assert ages() == {BASE: 0}

    def test_no_ages(self, two: ScriptedBroker, queries: Any) -> None:
        """Whoever does not want them causes no look."""
        query = queries(lagAgeIntervalMs="0", ackOnCommit="false")
        query.drain()
        assert not two.permits
        assert query.planner.progress()["ageMs"] == {}


class TestStop:
    def test_the_subscription_stays(self, two: ScriptedBroker, queries: Any) -> None:
        """Without a consumer; a second stop does nothing."""
        query = queries()
        query.drain()
        query.planner.stop()
        query.planner.stop()
        assert two.consumers == []
        assert [len(two.durable(name)) for name in (P0, P1)] == [1, 1]

    def test_it_is_deleted_if_that_is_wanted(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Of all topic partitions."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_is_deleted_by_a_restart_that_cannot_plan(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It was made by the run before, which was killed; others' stay."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.kill()
        two.script("PARTITIONED_METADATA", refuse("AuthorizationError"))
        with pytest.raises(AuthError):
            query.trigger()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_stays_where_the_options_no_longer_name_the_topic(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Whoever reads the others leaves it alone, also when it is deleted there."""
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        query.drain()
        query.kill()
        query.options["topic"] = P0
        query.trigger()
        query.planner.stop()
        assert [len(two.durable(name)) for name in (P0, P1)] == [0, 1]

    def test_it_stays_where_the_pattern_no_longer_matches(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """The same by `topicsPattern`."""
        names = [f"persistent://public/default/{letter}" for letter in "abc"]
        for name in names:
            scripted.add_topic(name, [single(b"a")])
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        del query.options["topic"]
        query.options["topicsPattern"] = "public/default/[ab]"
        query.drain()
        assert all_rows(query) == [(name, LEDGER, 0, 0) for name in names[:2]]
        query.kill()
        query.options["topicsPattern"] = "public/default/[ac]"
        query.trigger()
        query.planner.stop()
        assert [len(scripted.durable(name)) for name in names] == [0, 1, 0]

    def test_before_anything_was_asked(self, two: ScriptedBroker, queries: Any) -> None:
        """There is nothing to let go of."""
        queries().planner.stop()
        assert two.connections == 0


steps = st.one_of(
    st.tuples(
        st.just("publish"),
        st.integers(0, 3),
        st.lists(st.integers(1, 4), min_size=1, max_size=5),
    ),
    st.tuples(st.just("trigger"), st.sampled_from(("", "", *CRASHES))),
    st.tuples(st.just("roll"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("trim"), st.integers(0, 3)),
    st.sampled_from([("add partition",), ("unload",), ("cut",), ("available now",)]),
)


class Model:
    """A topic that lives, a query that reads it, and what has to be true of both."""

    def __init__(self, broker: ScriptedBroker, options: dict[str, str]) -> None:
        self.broker = broker
        self.query = Query(broker, **options)
        self.published: list[Row] = []
        self.names: list[str] = []
        self.add_partition()

    @property
    def starts(self) -> dict[str, LastRead]:
        """Where the query has begun, if Spark has recorded that."""
        if not self.query.log:
            return {}
        return dict(read_offset(self.query.log[0]).start_after)

    def step(self, what: str, *given_: Any) -> None:
        """One thing happens."""
        getattr(self, what.replace(" ", "_"))(*given_)
        self.check()

    def add_partition(self) -> None:
        """The topic grows."""
        self.names.append(f"{BASE}-partition-{len(self.names)}")
        self.broker.add_topic(self.names[-1])
        self.broker.partitions[BASE] = len(self.names)

    def publish(self, number: int, sizes: list[int]) -> None:
        """Batches of such sizes come."""
        name = self.names[number % len(self.names)]
        known = len(self.broker.topics[name])
        self.broker.append(name, *[batch([b"a"] * size) for size in sizes])
        for entry in self.broker.topics[name][known:]:
            rows = [(name, *entry.place, index) for index in range(entry.messages)]
            self.published += rows

    def trigger(self, crash: str) -> None:
        """The query runs a micro-batch, or a part of it."""
        self.query.trigger(crash)

    def roll(self, number: int, advance: bool) -> None:
        """A new ledger; brokers may move cursors that are done with the last one."""
        name = self.names[number % len(self.names)]
        positions = self.broker.positions(name)
        if not positions and not self.broker.durable(name):
            # Whether a ledger that is gone had rows is what a subscription is for.
            return
        ledger_id = self.broker.roll(name)
        for subscription in self.broker.durable(name):
            if advance and positions and subscription.mark_delete == positions[-1]:
                subscription.mark_delete = (ledger_id, -1)

    def trim(self, number: int) -> None:
        """Retention: only what the subscription is done with."""
        name = self.names[number % len(self.names)]
        ledgers = self.broker._ledgers[name]
        for subscription in self.broker.durable(name):
            done = [
                ledger_id
                for ledger_id in ledgers[:-1]
                if all(
                    place <= subscription.mark_delete
                    for place in self.broker.positions(name)
                    if place[0] <= ledger_id
                )
            ]
            self.broker.trim(name, ledgers=len(done))

    def unload(self) -> None:
        """The broker lets go of the topic."""
        self.broker.close_consumers()

    def cut(self) -> None:
        """All connections break."""
        self.broker.cut()

    def available_now(self) -> None:
        """A run of the query that reads what there is, and ends."""
        self.query.kill()
        self.query.planner.fix_target()
        self.query.drain()
        self.query.stop()

    def check(self) -> None:
        """Nothing is acknowledged that Spark has not recorded as read."""
        read = self.starts if not self.query.rows else self.query.begin().last_read
        names = {offset["subscription"] for offset in self.query.log}
        for name in self.names:
            for subscription in self.broker.durable(name):
                assert subscription.name in names
                limit = read.get(name, EARLIEST).position
                unread = [p for p in self.broker.positions(name) if p > limit]
                assert all(subscription.mark_delete < place for place in unread)

    def finish(self) -> None:
        """All was read once, in order."""
        self.query.drain()
        self.check()
        wanted = [
            row
            for row in sorted(self.published)
            if row[1:3] > self.starts.get(row[0], EARLIEST).position
        ]
        assert all_rows(self.query) == wanted
        self.query.drain()
        for name in self.names:
            assert len(self.broker.durable(name)) == 1
            waiting = self.broker.durable(name)[0].mark_delete
            assert all(place <= waiting for place in self.broker.positions(name))


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    options=st.fixed_dictionaries(
        {"startingOffsets": st.sampled_from(["earliest", "latest"])},
        optional={
            "maxRowsPerTrigger": st.sampled_from(["1", "3", "8"]),
            "maxBytesPerTrigger": st.sampled_from(["60", "200"]),
        },
    ),
    script=st.lists(steps, min_size=4, max_size=25),
)
def test_every_row_once_whatever_happens(
    options: dict[str, str], script: list[tuple[Any, ...]]
) -> None:
    """Publishing, limits, crashes, new partitions, ledgers that come and go."""
    with ScriptedBroker() as broker:
        model = Model(broker, options)
        try:
            for step in script:
                model.step(*step)
            model.finish()
        finally:
            model.query.kill()


def test_errors_reach_spark(two: ScriptedBroker, queries: Any) -> None:
    """A broker that refuses for good ends the query."""
    two.always("SUBSCRIBE", refuse("AuthorizationError"))
    with pytest.raises(PulsarSparkError, match="AuthorizationError"):
        queries().planner.initial()
