# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    AuthError,
    CheckpointError,
    DataLossError,
    OptionError,
    PulsarSparkError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream import chunk_guard as guard_module
from pulsar_spark.source.stream import pulsar_cluster
from pulsar_spark.source.stream import subscription as subscription_module
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_cluster import PulsarCluster, stream_planner
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.client import retry
from spark_topics.source.stream import batch_ends, idle_rest, planner, topic_set
from spark_topics.source.stream.planner import StreamPlanner
from tests.support import scripted_broker as broker_module
from tests.support.reading import ranges_of
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    Subscription,
    batch,
    client_options,
    cut,
    late,
    refuse,
    silence,
    single,
    usual,
    wait_until,
)
from tests.support.scripted_fixtures import Clock as PausingClock

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = "persistent://public/default/t"
P0, P1, P2 = (f"{BASE}-partition-{index}" for index in range(3))

#: From the third entry on.
STARTS = f'{{"t":{{"0":"{LEDGER}:2","1":"{LEDGER}:2"}}}}'

CRASHES = (
    "before it is logged",
    "after it is logged",
    "before it is committed",
    "after it is committed",
)

Row = tuple[str, int, int, int]
Offset = StreamOffset[LastRead]
Planner = StreamPlanner[LastRead, StreamOffset[LastRead], TopicRange]


@pytest.fixture(autouse=True)
def _short_waits(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The scripted broker forgets at once, and what it sends is waited for.

    And a query that is asked once looks, also where it has looked in vain for long, as
    on a busy machine; unless time passes as a test says.
    """
    monkeypatch.setattr(subscription_module, "_FORGET_S", 0.0)
    monkeypatch.setattr(subscription_module, "_ACK_TIMEOUT_S", 60.0)
    monkeypatch.setattr(subscription_module, "_LOOK_TIMEOUT_S", 60.0)
    monkeypatch.setattr(guard_module, "_TIMEOUT_S", 60.0)
    if "clock" not in request.fixturenames:
        monkeypatch.setattr(idle_rest, "_LONG_PLAN_S", math.inf)


class Query:
    """A streaming query as Spark runs it: a checkpoint, and processes that come and go.

    Attributes:
        log: The end of each micro-batch that was begun.
        rows: What each micro-batch that was committed has read.
        planner: The process that runs now.
        limits: Options of its client.
    """

    def __init__(self, broker: ScriptedBroker, **options: str) -> None:
        self.broker = broker
        self.options = {"topic": "t", "partitionDiscoveryIntervalMs": "0", **options}
        self.log: list[dict[str, Any]] = []
        self.rows: list[list[Row]] = []
        self.limits: dict[str, float] = {}
        self._pool: ConnectionPool | None = None
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The process that runs, started if need be."""
        if self._planner is None:
            given_ = {"service.url": self.broker.url, **self.options}
            client = client_options(self.broker.address, **self.limits)
            self._pool = ConnectionPool(client)
            options = replace(parse_read_options(given_, streaming=True), client=client)
            self._planner = stream_planner(self._pool, options)
        return self._planner

    def kill(self) -> None:
        """Ends the process without a word to anybody."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._planner = None

    def stop(self) -> None:
        """Ends the process in order."""
        self.planner.stop()
        self.kill()

    def begin(self) -> Offset:
        """Where the next micro-batch begins."""
        done = len(self.rows)
        if done:
            return read_offset(self.log[done - 1])
        # Spark has it as JSON, too.
        return read_offset(self.planner.initial().to_json())

    def trigger(self, crash: str = "", *, unlimited: bool = False) -> bool:
        """Runs a micro-batch as far as ``crash`` says; whether there was one."""
        batch_id = len(self.rows)
        start = self.begin()
        if len(self.log) == batch_id:
            end = self.planner.latest(start, unlimited=unlimited)
            if batch_id and end is start:
                return False
            assert text(end) != text(start) or end is start
            if crash == "before it is logged":
                self.kill()
                return True
            self.log.append(json.loads(text(end)))
            if batch_id:
                self.planner.commit(start)
        if crash == "after it is logged":
            self.kill()
            return True
        end = read_offset(self.log[batch_id])
        rows = [row for one in self.ranges(start, end) for row in self.read(one)]
        if crash == "before it is committed":
            self.kill()
            return True
        self.rows.append(rows)
        if crash == "after it is committed":
            self.kill()
        return True

    def ranges(self, start: Offset, end: Offset) -> list[TopicRange]:
        """What its tasks read."""
        return ranges_of(self.planner.ranges(start, end))

    def drain(self) -> None:
        """Runs micro-batches until nothing is new."""
        while self.trigger():
            pass

    def read(self, range_: TopicRange) -> Iterator[Row]:
        """The messages of a range, as an executor gets them."""
        first = (*range_.start.position, max(range_.start.batch_index, 0))
        last_index = range_.end.batch_index
        last = (*range_.end.position, last_index if last_index >= 0 else 10**9)
        for entry in self.broker.topics.get(range_.topic_partition, ()):
            for index in range(entry.messages):
                if first <= (*entry.place, index) <= last:
                    yield (range_.topic_partition, *entry.place, index)


def text(offset: Offset) -> str:
    """An offset as Spark compares it."""
    return json.dumps(offset.to_json())


def stored(broker: ScriptedBroker) -> list[Row]:
    """All messages there are, in order."""
    return [
        (name, *entry.place, index)
        for name in sorted(broker.topics)
        for entry in broker.topics[name]
        for index in range(entry.messages)
    ]


def all_rows(query: Query) -> list[Row]:
    """What was read, in order within each topic partition."""
    return sorted((row for rows in query.rows for row in rows), key=lambda row: row[0])


@pytest.fixture
def two(scripted: ScriptedBroker) -> ScriptedBroker:
    """A topic of two partitions, with 5 entries each."""
    scripted.partitions[BASE] = 2
    for name in (P0, P1):
        scripted.add_topic(name, [single(b"a")] * 5)
    return scripted


@pytest.fixture
def queries(scripted: ScriptedBroker) -> Iterator[Any]:
    """Makes queries that end with the test."""
    made: list[Query] = []

    def one(**options: str) -> Query:
        made.append(Query(scripted, **{"startingOffsets": "earliest", **options}))
        return made[-1]

    yield one
    for query in made:
        query.kill()


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def delaying(self, seconds: float) -> Action:
        """An answer that takes this long by this clock."""

        def action(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            self.now += seconds
            usual(broker, session, command)

        return action

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now

    def time(self) -> float:
        """As ``time.time``."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The planner's."""
    one = Clock()
    for module in (planner, topic_set, batch_ends, idle_rest):
        monkeypatch.setattr(module, "time", one)
    return one


def at(entry_id: int, ledger_id: int = LEDGER, batch_index: int = -1) -> LastRead:
    """A position."""
    return LastRead(ledger_id, entry_id, batch_index)


def id_of(entry_id: int, ledger_id: int = LEDGER) -> MessageId:
    """A first or a last message, inclusive."""
    return MessageId(ledger_id, entry_id)


def offset_at(subscription: str = "s", **positions: LastRead) -> Offset:
    """An offset by P0 and P1."""
    names = {"p0": P0, "p1": P1}
    return StreamOffset(subscription, {names[k]: v for k, v in positions.items()})


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
        monkeypatch.setattr(subscription_module, "_LOOK_TIMEOUT_S", 0.1)
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
        look = ("LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID", "FLOW", "CLOSE_CONSUMER")
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


class TestUnreached:
    """Places that the topic has never come to: it is not the one that was read."""

    @pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}])
    @pytest.mark.parametrize(
        "read", [at(41, 900000), at(-1, 900000), at(5), at(2, 900000, 1)]
    )
    def test_it_is_an_error_that_names_both(
        self,
        two: ScriptedBroker,
        queries: Any,
        read: LastRead,
        limits: dict[str, str],
    ) -> None:
        """Each time, and nothing is left behind; new rows change nothing."""
        query = queries(**limits)
        start = StreamOffset("s", {P0: at(4), P1: read})
        for _ in range(2):
            with pytest.raises(DataLossError) as caught:
                query.planner.latest(start)
            assert caught.value.topic_partition == P1
            for text_ in (str(read), "7:4", "checkpoint", "startingOffsets"):
                assert text_ in caught.value.message
            query.kill()
            wait_until(lambda: two.durable(P1) == [], "the end of the subscription")

    def test_a_start_with_a_slip(self, two: ScriptedBroker, queries: Any) -> None:
        """They are checked before anything is recorded."""
        query = queries(startingOffsets=f'{{"t":{{"0":"{LEDGER}:44"}}}}')
        with pytest.raises(DataLossError, match=r"7:43.*ends at 7:4.*startingOffsets"):
            query.trigger()
        assert two.durable(P0) == []

    @pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}])
    def test_it_goes_on_with_what_there_is(
        self,
        two: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        limits: dict[str, str],
    ) -> None:
        """With `failOnDataLoss` false: one warning, and all rows of the topic."""
        query = queries(failOnDataLoss="false", **limits)
        start = StreamOffset("s", {P0: at(4), P1: at(41, 900000)})
        seen: list[Row] = []
        for _ in range(3):
            while (end := query.planner.latest(start)) is not start:
                for range_ in query.ranges(start, end):
                    seen += query.read(range_)
                start = read_offset(end.to_json())
            query.kill()
            two.append(P1, single(b"b"))
        assert seen == [(P1, LEDGER, n, 0) for n in range(7)]
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == 1

    def test_what_was_read_and_removed_was_reached(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """Nothing is left that could be read, and nothing is wrong."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries()
        query.drain()
        scripted.roll(BASE)
        scripted.trim(BASE)
        query.kill()
        for _ in range(3):
            assert not query.trigger()
        asked = scripted.requests["SUBSCRIBE"]
        assert not query.trigger()
        assert scripted.requests["SUBSCRIBE"] == asked  # once is enough
        scripted.append(BASE, single(b"b"))
        query.drain()
        assert len(all_rows(query)) == 6

    def test_what_a_broker_shows_later_was_reached(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """While it recovers transactions, less can be read than was read before."""

        def earlier(broker: ScriptedBroker, session: Session, command: Any) -> None:
            consumer = session.consumers[command.getLastMessageId.consumer_id]
            kept = broker.topics[consumer.topic]
            broker.topics[consumer.topic] = kept[:2]
            usual(broker, session, command)
            broker.topics[consumer.topic] = kept

        query = queries()
        query.drain()
        query.kill()
        two.script("GET_LAST_MESSAGE_ID", earlier, earlier)
        assert not query.trigger()
        two.append(P0, single(b"b"))
        query.drain()
        assert all_rows(query) == stored(two)


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


def piece(uuid: str, index: int, count: int = 2) -> Any:
    """A chunk."""
    return single(
        b"x",
        uuid=uuid,
        chunk_id=index,
        num_chunks_from_msg=count,
        total_chunk_msg_size=count,
    )


class TestChunks:
    """The acknowledgement stops where a message begins that is not finished."""

    @pytest.fixture
    def query(self, scripted: ScriptedBroker, queries: Any) -> Query:
        """It reads one topic."""
        scripted.add_topic(BASE, [single(b"a")])
        one: Query = queries()
        one.drain()
        return one

    def acknowledged(self, query: Query, *entries: Any) -> tuple[int, int]:
        """Where the cursor stands once these have come, and are read."""
        query.broker.append(BASE, *entries)
        query.drain()
        (subscription,) = query.broker.durable(BASE)
        return subscription.mark_delete

    def test_not_into_an_open_message(self, query: Query) -> None:
        """But up to the last end before it."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 5)

    def test_open_messages_in_a_chain(self, query: Query) -> None:
        """It follows one micro-batch behind, where one is always open."""
        assert self.acknowledged(query, piece("0", 0)) == (LEDGER, 0)
        for n in range(1, 20):
            entries = piece(f"{n}", 0), piece(f"{n - 1}", 1)
            assert self.acknowledged(query, *entries) == (LEDGER, 2 * n - 1)

    def test_the_first_chunks_of_a_topic(self, query: Query) -> None:
        """One at an end makes it look further back; its own message may be whole."""
        entries = piece("u", 0), piece("v", 0), piece("v", 1)
        assert self.acknowledged(query, *entries) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    def test_chunks_behind_the_end_do_not_count(self, query: Query) -> None:
        """They may come with what is looked at, and belong to a later micro-batch."""
        assert self.acknowledged(query, piece("u", 0), piece("u", 1)) == (LEDGER, 2)
        rows = batch([b"b"] * 50)
        query.broker.append(BASE, rows, piece("v", 0), single(b"b"))
        query.trigger()
        query.broker.append(BASE, piece("v", 1))
        query.planner.latest(query.begin())
        assert query.broker.durable(BASE)[0].mark_delete == (LEDGER, 2)
        assert self.acknowledged(query) == (LEDGER, 6)

    def test_across_ledgers(self, query: Query) -> None:
        """The chunks may be at the end of a ledger, and rows in the next."""
        assert self.acknowledged(query, piece("u", 0, 3)) == (LEDGER, 0)
        for ledger_id in (8, 9):
            assert query.broker.roll(BASE) == ledger_id
            assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1, 3)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 2, 3)) == (9, 2)

    @pytest.mark.parametrize("end", ["killed", "stopped"])
    def test_after_a_restart(self, query: Query, end: str) -> None:
        """The checkpoint says that the topic has such messages."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("v", 0), single(b"b")) == (LEDGER, 0)
        assert query.log[-1]["chunked"] == [BASE]
        query.kill() if end == "killed" else query.stop()
        assert self.acknowledged(query) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("v", 1)) == (LEDGER, 6)

    @pytest.mark.parametrize("end", ["killed", "still there"])
    def test_a_topic_that_is_said_to_be_empty(self, query: Query, end: str) -> None:
        """For now: the query is ahead of its cursor, and its topic was ever so long."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        if end == "killed":
            query.kill()
        query.broker.closing.add(BASE)
        for _ in range(3):
            assert not query.trigger()
        asked = query.broker.requests["SUBSCRIBE"]
        assert not query.trigger()
        assert query.broker.requests["SUBSCRIBE"] == asked  # once is enough
        query.broker.closing.clear()
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    @pytest.mark.parametrize("crash", CRASHES)
    def test_after_a_crash(self, query: Query, crash: str) -> None:
        """Also where the process that comes next has a micro-batch to run again."""
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        query.broker.append(BASE, single(b"b"))
        query.trigger(crash)
        assert self.acknowledged(query) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    @pytest.mark.parametrize("limit", ["1", "2", "3"])
    def test_with_limits(
        self, scripted: ScriptedBroker, queries: Any, limit: str
    ) -> None:
        """Ends are wherever rows are enough; what the driver looks at tells, too."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        scripted.append(BASE, *[piece(n, 0) for n in "uv"], single(b"b"))
        query = queries(maxRowsPerTrigger=limit)
        assert self.acknowledged(query) <= (LEDGER, 2)
        assert self.acknowledged(query, piece("v", 1)) <= (LEDGER, 2)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 7)
        assert all_rows(query) == stored(scripted)

    def test_limits_far_ahead_of_an_open_message(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next entries are looked at there, not those since the message began."""
        query.stop()
        query.options["maxRowsPerTrigger"] = "40"
        monkeypatch.setattr(guard_module._History, "limit", lambda *_: id_of(0))
        monkeypatch.setattr(guard_module, "_WINDOW", 1)
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        done = len(query.rows)
        granted = query.broker.permits[BASE]
        assert self.acknowledged(query, *[single(b"b")] * 200) == (LEDGER, 0)
        batches = len(query.rows) - done
        assert all_rows(query) == stored(query.broker)
        each = subscription_module._LOOK_PERMITS + guard_module._WINDOW
        assert query.broker.permits[BASE] - granted <= (batches + 1) * each

    @pytest.mark.parametrize("where", ["the guard", "a look ahead"])
    def test_an_interrupt(
        self, query: Query, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        """It leaves no reader behind, but for the subscription's own."""
        query.stop()
        query.options["maxRowsPerTrigger"] = "1"
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        query.broker.append(BASE, *[single(b"b")] * 3)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        if where == "the guard":
            monkeypatch.setattr(guard_module, "_read_all", interrupted)
        else:
            monkeypatch.setattr(subscription_module._Member, "pass_by", interrupted)
        with pytest.raises(KeyboardInterrupt):
            query.drain()
        kinds = [one.subscription.durable for one in query.broker.consumers]
        assert kinds == [True]

    def test_available_now(self, query: Query) -> None:
        """A run leaves an open message to the next one."""
        query.broker.append(BASE, piece("u", 0))
        query.stop()
        for _ in range(2):
            query.planner.fix_target()
            assert self.acknowledged(query) == (LEDGER, 0)
            query.stop()
        query.broker.append(BASE, piece("u", 1))
        query.planner.fix_target()
        assert self.acknowledged(query) == (LEDGER, 2)

    @pytest.mark.parametrize("expires", [True, False])
    def test_a_message_that_is_never_finished(
        self, query: Query, monkeypatch: pytest.MonkeyPatch, expires: bool
    ) -> None:
        """It holds the acknowledgement for as long as the option says."""
        query.stop()
        expiry = "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis"
        query.options[expiry] = "60000" if expires else "0"
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        clock.now += 59
        assert self.acknowledged(query, piece("v", 0)) == (LEDGER, 0)
        clock.now += 2
        assert self.acknowledged(query) == (LEDGER, 1 if expires else 0)
        clock.now += 1e6
        assert self.acknowledged(query) == (LEDGER, 2 if expires else 0)

    def test_one_that_was_never_finished_and_many_rows(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is not looked for behind more entries than that."""
        monkeypatch.setattr(guard_module, "_WINDOW", 4)
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        for n in range(2, 5):
            assert self.acknowledged(query, single(b"b")) == (LEDGER, 0), n
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 5)

    def test_batches_cost_more_permits(self, query: Query) -> None:
        """They are granted until all that is looked at has come."""
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, piece("u", 0), *rows) == (LEDGER, 6)
        assert self.acknowledged(query, piece("v", 0), *rows, piece("w", 0)) == (
            LEDGER,
            6,
        )

    def test_a_damaged_entry_is_no_chunk(self, query: Query) -> None:
        """Whoever reads it says so."""
        bad = replace(single(b"b"), is_damaged=True)
        assert self.acknowledged(query, piece("u", 0), bad, bad) == (LEDGER, 3)
        assert self.acknowledged(query, piece("v", 0)) == (LEDGER, 3)
        assert self.acknowledged(query, bad) == (LEDGER, 3)

    def test_a_look_that_fails_is_repeated(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """Nothing is acknowledged unseen, and nobody is told of a refusal."""

        def only_readers(broker: ScriptedBroker, session: Session, c: Any) -> None:
            refused = usual if c.subscribe.durable else refuse("ServiceNotReady")
            refused(broker, session, c)

        scripted.append(BASE, single(b"b"))
        query.trigger()
        scripted.always("SUBSCRIBE", only_readers)
        assert not query.trigger()
        assert scripted.durable(BASE)[0].mark_delete == (LEDGER, 0)
        scripted.always("SUBSCRIBE", usual)
        assert self.acknowledged(query) == (LEDGER, 1)

    @pytest.mark.parametrize("how", ["the topic moves", "the connection breaks"])
    def test_a_look_that_breaks_off_is_repeated(self, query: Query, how: str) -> None:
        """A reader that has not read its entries does not say that nothing is open."""
        broken: list[pb.CommandFlow] = []

        def break_off(broker: ScriptedBroker, session: Session, c: Any) -> None:
            broken.append(c.flow)
            if how == "the topic moves":
                broker.close_consumers(BASE)
            else:
                session.cut()

        query.broker.script("FLOW", break_off)
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert len(broken) == 1
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 3)

    def test_entries_that_come_slowly(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are waited for as long as some come."""
        monkeypatch.setattr(broker_module, "_READ_ENTRIES", 1)
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        query.broker.always("FLOW", clock.delaying(guard_module._TIMEOUT_S - 0.1))
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, *rows, piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 7)

    def test_entries_that_come_before_anybody_waits(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They were heard, too."""
        monkeypatch.setattr(broker_module, "_READ_ENTRIES", 1)
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        query.broker.always("FLOW", clock.delaying(guard_module._TIMEOUT_S - 0.1))
        ask = guard_module._Reader.ask_for_entries

        def ask_and_let_come(reader: Any) -> None:
            before = reader.reached
            ask(reader)
            wait_until(lambda: reader.reached != before or not reader.is_waiting)

        monkeypatch.setattr(guard_module._Reader, "ask_for_entries", ask_and_let_come)
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, *rows, piece("u", 0)) == (LEDGER, 0)

    def test_a_topic_partition_that_delivers_nothing(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It does not keep others from being looked at."""
        monkeypatch.setattr(broker_module, "_READ_ENTRIES", 1)
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        ask = guard_module._Reader.ask_for_entries
        others: list[Any] = []

        def ask_once_more(reader: Any) -> None:
            if reader.topic == P1:
                others.append(reader)
            elif others:
                others.clear()
            else:  # nobody else is waited for
                clock.now += guard_module._TIMEOUT_S / 4
            ask(reader)

        monkeypatch.setattr(guard_module._Reader, "ask_for_entries", ask_once_more)
        scripted.partitions[BASE] = 2
        for name in (P0, P1):
            scripted.add_topic(name, [single(b"a"), piece("w", 0), piece("w", 1)])
        query = queries()
        query.drain()

        def nothing_of_the_first(broker: Any, session: Session, c: Any) -> None:
            consumer = session.consumers[c.flow.consumer_id]
            if consumer.topic != P0:
                usual(broker, session, c)

        scripted.always("FLOW", nothing_of_the_first)
        scripted.append(P0, single(b"b"))
        scripted.append(P1, *[batch([b"b"] * 50)] * 5, piece("u", 0))
        query.drain()
        stand = {name: scripted.durable(name)[0].mark_delete for name in (P0, P1)}
        assert stand == {P0: (LEDGER, 3), P1: (LEDGER, 2)}

    def test_ends_at_which_nothing_is_delivered(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What does not come is not waited for long."""
        monkeypatch.setattr(guard_module, "_TIMEOUT_S", 0.1)
        query.broker.append(BASE, single(b"b"))
        query.trigger()
        query.broker.always("FLOW", silence)
        assert self.acknowledged(query) == (LEDGER, 1)

    def test_many_topic_partitions(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Some are looked at in one visit, in turn; and all once one has chunks."""
        monkeypatch.setattr(guard_module, "_LOOKS", 2)
        scripted.partitions[BASE] = 6
        names = [f"{BASE}-partition-{index}" for index in range(6)]
        for name in names:
            scripted.add_topic(name, [single(b"a")])
        query = queries(lagAgeIntervalMs="0")
        query.drain()
        assert len(scripted.permits) == 2
        for name in names:
            scripted.append(name, single(b"b"))
        query.drain()
        assert len(scripted.permits) == 4
        for name in names:
            scripted.append(name, piece("u", 0))
        query.drain()
        held = {name for name in names if scripted.durable(name)[0].mark_delete[1] < 2}
        assert len(held) == 2
        for name in names:
            scripted.append(name, piece("v", 0))
        query.drain()
        stand = {name: scripted.durable(name)[0].mark_delete[1] for name in names}
        assert stand == {name: 1 if name in held else 2 for name in names}


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
        self, scripted: ScriptedBroker, queries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A look costs permits and memory, so only some have one at a time."""
        monkeypatch.setattr(pulsar_cluster, "_LOOKS", 3)
        scripted.partitions[BASE] = 5
        for index in range(5):
            scripted.add_topic(f"{BASE}-partition-{index}", [single(b"a")] * 9)
        query = queries(maxRowsPerTrigger="1")
        start = query.begin()
        for looked_at in (3, 5):
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


class TestLoss:
    #: Whether the subscription was there, where it stands, how many of the topic's
    #: ledgers (7: entries 0 to 4, 8: likewise) are removed, up to where the query has
    #: read; what it reads next, or None where that is a loss.
    CASES = (
        # Nothing was removed: rows are read by id, wherever the cursor is.
        (True, (7, 2), 0, at(2), (7, 3)),
        (True, (8, 1), 0, at(2), (7, 3)),
        (True, (7, 0), 0, at(2), (7, 3)),
        (True, (8, -1), 0, at(4), (8, 0)),
        (False, None, 0, at(2), (7, 3)),
        (False, None, 0, at(4), (8, 0)),
        # The ledger was read to its end, so brokers may remove it.
        (True, (7, 4), 1, at(4), (8, 0)),
        (True, (8, -1), 1, at(4), (8, 0)),
        (True, (7, 4), 1, at(2, 8), (8, 3)),
        # So it looks where 4.2.4 has expired it to its end: docs/guarantees.md says so.
        (True, (8, -1), 1, at(2), (8, 0)),
        # Rows to come went with it.
        (True, (7, 4), 1, at(2), None),
        (True, (8, 1), 1, at(2), None),
        (True, (8, 1), 1, at(4), None),
        (False, None, 1, at(2), None),
        # Nobody can tell whether 7:4 was the last one.
        (False, None, 1, at(4), None),
        (False, None, 1, at(2, 8), (8, 3)),
    )

    def prepare(
        self,
        broker: ScriptedBroker,
        is_there: bool,
        cursor: tuple[int, int] | None,
        trimmed: int,
    ) -> None:
        """A topic and a subscription in such a state."""
        broker.add_topic(BASE, [single(b"a")] * 5)
        assert broker.roll(BASE) == 8
        broker.append(BASE, *[single(b"a")] * 5)
        broker.trim(BASE, ledgers=trimmed)
        if is_there:
            assert cursor is not None
            broker.subscriptions[BASE, "s"] = Subscription(BASE, "s", True, cursor)

    @pytest.mark.parametrize("fail", ["true", "false"])
    @pytest.mark.parametrize(("is_there", "cursor", "trimmed", "read", "next_"), CASES)
    def test_after_a_restart(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        fail: str,
        is_there: bool,
        cursor: tuple[int, int] | None,
        trimmed: int,
        read: LastRead,
        next_: tuple[int, int] | None,
    ) -> None:
        """Lost is what the topic does not reach back to, unless it was all read."""
        self.prepare(scripted, is_there, cursor, trimmed)
        query = queries(failOnDataLoss=fail)
        start = StreamOffset("s", {BASE: read})
        if next_ is None and fail == "true":
            for _ in range(2):
                with pytest.raises(DataLossError) as caught:
                    query.planner.latest(start)
                assert caught.value.topic_partition == BASE
                assert "failOnDataLoss" in caught.value.message
                # Failing does not make it look as if it had been there.
                query.kill()
                assert bool(scripted.durable(BASE)) == is_there
            return
        end = query.planner.latest(start)
        (range_,) = query.ranges(start, end)
        first, *_, last = query.read(range_)
        assert first == (BASE, *(next_ or (8, 0)), 0)
        assert last == (BASE, 8, 4, 0)
        for _ in range(2):
            assert query.planner.latest(end) is end
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == (next_ is None)

    def test_the_end_says_where_it_goes_on(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """So the batch is the same after a crash."""
        self.prepare(scripted, True, (8, 1), 1)
        query = queries(failOnDataLoss="false")
        start = StreamOffset("s", {BASE: at(2)})
        end = read_offset(query.planner.latest(start).to_json())
        assert end.start_after == {BASE: at(-1, 8)}
        query.kill()
        wanted = [TopicRange(BASE, id_of(0, 8), id_of(4, 8))]
        assert query.ranges(start, end) == wanted

    def test_ledgers_removed_while_it_runs(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """After all of them were read: no loss, and nothing is read twice."""
        query = queries()
        for _ in range(4):
            query.drain()
            wanted = stored(two)
            for name in (P0, P1):
                two.roll(name)
                two.trim(name)
                two.append(name, *[single(b"b")] * 2)
            two.close_consumers()
        assert wanted
        query.drain()
        assert sorted(query.rows[-1]) == stored(two)
        assert sum(map(len, query.rows)) == 10 + 4 * 4

    def test_expiry_while_it_runs(self, scripted: ScriptedBroker, queries: Any) -> None:
        """Rows that the query has seen ahead of it, and that go with their ledger."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries(maxRowsPerTrigger="2")
        query.trigger()
        query.trigger()
        scripted.roll(BASE)
        scripted.append(BASE, single(b"b"))
        scripted.trim(BASE)
        assert scripted.durable(BASE)[0].mark_delete == (8, -1)
        with pytest.raises(DataLossError, match="7:4"):
            query.trigger()
        # The subscription was there before: it is not deleted.
        assert len(scripted.durable(BASE)) == 1

    def test_expiry_beyond_the_target_of_a_run(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """The run would not read those rows, but the next one would."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries()
        query.planner.fix_target()
        query.drain()
        scripted.append(BASE, *[single(b"b")] * 2)
        assert not query.trigger()
        scripted.roll(BASE)
        scripted.append(BASE, single(b"c"))
        scripted.trim(BASE)
        with pytest.raises(DataLossError, match="7:5"):
            query.trigger()

    def test_a_compacted_topic_reaches_back_further(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """What was removed is still there in its compacted form."""
        self.prepare(scripted, True, (8, 1), 1)
        query = queries(**{"pulsar.reader.readCompacted": "true"})
        start = StreamOffset("s", {BASE: at(2)})
        (range_,) = query.ranges(start, query.planner.latest(start))
        assert range_.start == id_of(3)


class TestGone:
    @pytest.fixture
    def query(self, scripted: ScriptedBroker, queries: Any) -> Query:
        """It has read two topics."""
        for name in ("a", "b"):
            scripted.add_topic(
                f"persistent://public/default/{name}", [single(b"a")] * 3
            )
        one: Query = queries(topics="a,b", failOnDataLoss="false")
        del one.options["topic"]
        one.drain()
        return one

    A, B = (f"persistent://public/default/{name}" for name in "ab")

    @pytest.mark.parametrize("interval_ms", ["0", "3600000"])
    def test_it_leaves_with_one_warning(
        self,
        scripted: ScriptedBroker,
        query: Query,
        caplog: pytest.LogCaptureFixture,
        interval_ms: str,
    ) -> None:
        """The other goes on, whether topics are looked for meanwhile or not."""
        query.kill()
        query.options["partitionDiscoveryIntervalMs"] = interval_ms
        assert not query.trigger()
        scripted.delete_topic(self.A)
        for _ in range(3):
            scripted.append(self.B, single(b"b"))
            query.drain()
            assert len(query.rows[-1]) == 1
        assert list(query.begin().last_read) == [self.B]
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == 1
        assert self.A in warned[0].getMessage()

    def test_while_the_target_is_fixed(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """`availableNow` goes on without it, too."""
        query.kill()
        scripted.append(self.B, *[single(b"b")] * 3)
        query.options["maxRowsPerTrigger"] = "1"
        query.planner.fix_target()
        scripted.delete_topic(self.A)
        query.drain()
        assert [row[0] for row in all_rows(query)] == [self.A] * 3 + [self.B] * 6

    def test_it_is_an_error_that_names_it(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """With `failOnDataLoss`, every time."""
        query.kill()
        query.options["failOnDataLoss"] = "true"
        scripted.delete_topic(self.A)
        for _ in range(2):
            with pytest.raises(DataLossError, match=self.A):
                query.trigger()
            query.kill()

    def test_it_is_read_anew_when_it_comes_back(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """From its first row on."""
        scripted.delete_topic(self.A)
        query.drain()
        scripted.add_topic(self.A, [single(b"b")] * 2)
        query.drain()
        assert query.rows[-1] == [
            (self.A, *place, 0) for place in scripted.positions(self.A)
        ]

    def test_it_comes_back_between_two_looks(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """What was in it is lost, which is known by its new ledgers."""
        scripted.delete_topic(self.A)
        scripted.add_topic(self.A, [single(b"b")] * 2)
        query.drain()
        assert query.rows[-1] == [
            (self.A, *place, 0) for place in scripted.positions(self.A)
        ]

    @pytest.mark.parametrize("fails", [True, False])
    def test_while_a_micro_batch_is_planned(
        self,
        scripted: ScriptedBroker,
        query: Query,
        monkeypatch: pytest.MonkeyPatch,
        fails: bool,
    ) -> None:
        """Right before the driver asks where its next ledger ends."""
        query.kill()
        query.options["failOnDataLoss"] = str(fails)
        query.options["maxRowsPerTrigger"] = "2"
        for topic in (self.A, self.B):
            scripted.append(topic, *[single(b"b")] * 3)
            scripted.roll(topic)
            scripted.append(topic, single(b"c"))
        query.trigger()
        ends = PulsarCluster.ends

        def gone(cluster: PulsarCluster, shares: Any) -> Any:
            if self.A in scripted.topics:
                scripted.delete_topic(self.A)
            return ends(cluster, shares)

        monkeypatch.setattr(PulsarCluster, "ends", gone)
        query.trigger()
        assert self.A not in scripted.topics
        if fails:
            with pytest.raises(DataLossError, match=self.A):
                query.drain()
            return
        query.drain()
        last = [row for rows in query.rows for row in rows if row[0] == self.B]
        assert last[-4:] == stored(scripted)[-4:]

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize("when", ["it is found", "the target is fixed"])
    def test_before_the_first_question_about_it(
        self, scripted: ScriptedBroker, query: Query, fails: bool, when: str
    ) -> None:
        """A new topic that goes while the driver asks where it begins."""
        query.kill()
        query.options["failOnDataLoss"] = str(fails)
        query.options["topics"] = "a,b,c"
        scripted.append(self.B, single(b"b"))
        late_one = "persistent://public/default/c"
        scripted.add_topic(late_one, [single(b"c")])

        def gone(broker: ScriptedBroker, session: Session, command: Any) -> None:
            if late_one in broker.topics:
                broker.delete_topic(late_one)
            usual(broker, session, command)

        scripted.script("LOOKUP", *[gone] * 3)
        if when != "it is found":
            if fails:
                with pytest.raises(DataLossError, match=late_one):
                    query.planner.fix_target()
                return
            query.planner.fix_target()
        if fails:
            with pytest.raises(DataLossError, match=late_one):
                query.drain()
            return
        query.drain()
        assert query.rows[-1] == [(self.B, LEDGER, 3, 0)]


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
