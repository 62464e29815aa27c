# SPDX-License-Identifier: Apache-2.0
"""Micro-batches over a scripted broker: starts, ends, limits, crashes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import (
    DataLossError,
    PulsarSparkError,
)
from pulsar_spark.message_id import EARLIEST
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from tests.source.stream.queries import (
    BASE,
    CRASHES,
    P0,
    P1,
    P2,
    Clock,
    Query,
    Row,
    all_rows,
    at,
    id_of,
    stored,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    refuse,
    single,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


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
