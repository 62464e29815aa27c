# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    BrokerError,
    OptionError,
    TopicMigratedError,
)
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.subscription import CursorStatus, Subscription
from pulsar_spark.wire.commands import ConsumerSettings, SubscribeRequest
from spark_topics.client import retry
from spark_topics.source.stream.admission import EntrySize
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    StoredFrame,
    batch,
    client_options,
    cut,
    late,
    message_frame,
    migrated,
    refuse,
    silence,
    single,
    usual,
    usual_then_cut,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pulsar_spark.wire import pulsar_api_pb2 as pb
    from tests.support.fixtures import Clock

BASE = "persistent://public/default/t"
TOPIC = f"{BASE}-partition-0"
NAME = "spark-pulsar-1"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch, unhurried: Clock) -> None:
    """The scripted broker answers, or never; what it refuses is tried for long."""
    monkeypatch.setattr(retry, "time", time)
    patience.usual(monkeypatch, delete_s=60.0, forget_s=0.0, acknowledge_s=0.1)


@pytest.fixture
def pools() -> Iterator[list[ConnectionPool]]:
    """The connections of subscriptions, in the order in which these were made."""
    pools: list[ConnectionPool] = []
    yield pools
    for pool in pools:
        pool.close()


@pytest.fixture
def make(
    scripted: ScriptedBroker, pools: list[ConnectionPool]
) -> Callable[..., Subscription]:
    """Make the subscription of a query; it ends with the test."""

    def one(*, limits: dict[str, Any] | None = None, **given: Any) -> Subscription:
        pool = ConnectionPool(client_options(scripted.address, **(limits or {})))
        pools.append(pool)
        own = {"is_new": False, "patience_s": 60.0}
        names = {field.name for field in fields(SubscribeRequest)}
        own |= {name: given[name] for name in given if name not in names}
        said = {name: given[name] for name in given if name in names}
        how = SubscribeRequest(NAME, **{"durable": True, **said})
        return Subscription(pool, how, **own)

    return one


@pytest.fixture
def topic(scripted: ScriptedBroker) -> str:
    """A topic partition of 10 entries."""
    scripted.partitions[BASE] = 1
    scripted.add_topic(TOPIC, [single(b"a")] * 10)
    return TOPIC


def at(entry_id: int, batch_index: int = -1) -> LastRead:
    """A place in the first ledger."""
    return LastRead(LEDGER, entry_id, batch_index)


def visit(
    cursors: Subscription, read: LastRead, may_lack_ledgers: Collection[str] = ()
) -> CursorStatus:
    """A visit of the one topic partition."""
    standing = cursors.visit({TOPIC: read}, may_lack_ledgers)[TOPIC]
    assert standing is not None
    return standing


def visited(cursors: Subscription, read: LastRead) -> Subscription:
    """The same, after a visit of the one topic partition."""
    visit(cursors, read)
    return cursors


def lose_consumers(scripted: ScriptedBroker, how: str = "close_consumers") -> None:
    """The broker lets go of all consumers, or cuts their connections."""
    getattr(scripted, how)()
    wait_until(lambda: not scripted.consumers)


def acks(scripted: ScriptedBroker) -> list[tuple[int, int]]:
    """The positions that were acknowledged so far."""
    bodies: list[pb.CommandAck] = scripted.bodies["ACK"]
    return [(b.message_id[0].ledgerId, b.message_id[0].entryId) for b in bodies]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned about so far."""
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


@contextmanager
def held(scripted: ScriptedBroker, name: str = NAME) -> Iterator[Subscription]:
    """Somebody else who has the subscription."""
    pool = ConnectionPool(client_options(scripted.address))
    how = SubscribeRequest(name, durable=True)
    other = Subscription(pool, how, is_new=True, patience_s=60.0)
    other.visit({TOPIC: NOTHING_READ})
    yield other
    pool.close()


@pytest.fixture
def existing(scripted: ScriptedBroker, topic: str) -> str:
    """The topic, with a durable subscription that nobody has now."""
    with held(scripted) as other:
        other.close()
    return topic


class TestSubscribing:
    @pytest.mark.parametrize("is_new", [True, False])
    def test_a_durable_one_begins_at_the_beginning_and_is_moved_at_once(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        is_new: bool,
    ) -> None:
        """So it never protects too little."""
        standing = visit(make(is_new=is_new), at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), False)
        assert standing.last is not None
        assert standing.last.position == (LEDGER, 9)
        (subscription,) = scripted.durable(topic)
        assert (subscription.name, subscription.mark_delete) == (NAME, (LEDGER, 4))
        (body,) = [b for b in scripted.bodies["SUBSCRIBE"] if b.durable]
        assert body.initialPosition == body.Earliest
        assert not body.force_topic_creation
        assert not body.HasField("start_message_id")

    def test_a_new_name_is_not_asked_about(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """It cannot be there: one SUBSCRIBE."""
        visit(make(is_new=True), at(4))
        assert scripted.requests["SUBSCRIBE"] == 1

    def test_one_that_is_not_durable_starts_where_the_query_is(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """And leaves nothing."""
        cursors = make(durable=False)
        standing = visit(cursors, at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), False)
        (body,) = scripted.bodies["SUBSCRIBE"]
        assert not body.durable
        assert (body.start_message_id.ledgerId, body.start_message_id.entryId) == (7, 5)
        assert scripted.durable(topic) == []
        cursors.close()
        assert scripted.subscriptions == {}

    def test_one_that_was_there_is_kept(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], existing: str
    ) -> None:
        """The question about it changes nothing, and costs no consumer."""
        cursors = make()
        assert visit(cursors, NOTHING_READ).is_kept
        assert len(scripted.consumers) == 1
        assert scripted.requests["ACK"] == 0
        cursors.close()
        assert [s.consumer for s in scripted.durable(existing)] == [None]

    def test_one_that_must_be_there(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Its absence is an error that says what to do, and it is not created."""
        with pytest.raises(OptionError, match=rf"{TOPIC}.*{NAME}.*predefinedSubscr"):
            make(must_exist=True).visit({topic: NOTHING_READ})
        assert scripted.subscriptions == {}

    def test_one_that_must_be_there_is_there(
        self, make: Callable[..., Subscription], existing: str
    ) -> None:
        """Where it stands is where the query starts."""
        assert visit(make(must_exist=True), NOTHING_READ).cursor == at(-1)

    def test_one_that_must_be_there_and_a_cut_while_asking(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """It is asked about again."""
        scripted.script("CLOSE_CONSUMER", cut)
        with pytest.raises(OptionError, match="predefinedSubscription"):
            make(must_exist=True).visit({topic: NOTHING_READ})

    def test_one_that_was_mistaken_for_another_kind_is_made_again(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """A broker may answer SUBSCRIBE with what it has not yet forgotten."""

        def as_not_durable(broker: ScriptedBroker, session: Any, command: Any) -> None:
            command.subscribe.durable = False
            broker.answer(session, command)

        scripted.script("SUBSCRIBE", usual, as_not_durable)
        assert visit(make(), at(4)).cursor == at(4)
        assert [s.mark_delete for s in scripted.durable(topic)] == [(LEDGER, 4)]
        assert len(scripted.consumers) == 1

    def test_one_that_is_not_forgotten_yet(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """A busy broker goes on refusing it because of the question about it."""
        sentence = "NonDurable subscription with the same name already exists."
        question = [usual, refuse("NotAllowedError", sentence)]
        scripted.script("SUBSCRIBE", *question, *question)
        assert visit(make(), at(4)).cursor == at(4)
        (subscription,) = scripted.durable(topic)
        assert subscription.mark_delete == (LEDGER, 4)

    @pytest.mark.parametrize("durable", [True, False])
    def test_many_cost_no_more_round_trips(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], durable: bool
    ) -> None:
        """Each step is asked of all at once."""
        names = [f"{BASE}-partition-{index}" for index in range(20)]
        for name in names:
            scripted.add_topic(name, [single(b"a")] * 2)
        steps = ("LOOKUP", "SUBSCRIBE", "ACK", "GET_LAST_MESSAGE_ID")
        scripted.answer_together(20, *steps)
        cursors = make(durable=durable, is_new=True)
        found = cursors.visit(dict.fromkeys(names, at(0)))
        assert {standing and standing.cursor for standing in found.values()} == {at(0)}
        for step in steps:
            assert scripted.requests[step] == scripted.deepest[step] == 20


class TestAcknowledging:
    def test_each_position_once_and_only_forward(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """What did not change costs nothing; a smaller one is never sent."""
        cursors = make()
        for entry_id in (2, 2, 5, 5, 3, 5, 6):
            visit(cursors, at(entry_id))
            cursors.acknowledge({topic: at(entry_id)})
        assert acks(scripted) == [(LEDGER, n) for n in (2, 5, 6)]
        assert [s.mark_delete for s in scripted.durable(topic)] == [(LEDGER, 6)]
        assert scripted.requests["GET_LAST_MESSAGE_ID"] == 7

    def test_the_start_of_a_topic_is_not_acknowledged(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """There is nothing to it."""
        cursors = make()
        for read in (NOTHING_READ, at(-1), at(0, 3)):
            visit(cursors, read)
        assert acks(scripted) == []
        assert warnings(caplog) == []

    def test_the_start_of_a_later_ledger(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """No entry is named, so nothing is acknowledged; that is no failure."""
        later = scripted.roll(topic)
        scripted.append(topic, batch([b"a", b"b"]))
        cursors = make()
        for read in (LastRead(later, -1), LastRead(later, 0, 0)):
            visit(cursors, read)
        assert acks(scripted) == []
        assert warnings(caplog) == []
        assert scripted.requests["GET_LAST_MESSAGE_ID"] == 2

    def test_a_batch_counts_when_it_was_read_to_its_end(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Until then the entry before it is what is done with."""
        cursors = visited(make(), at(4, 1))
        visit(cursors, at(4))
        assert acks(scripted) == [(LEDGER, 3), (LEDGER, 4)]

    @pytest.mark.parametrize("lose", ["cut", "close_consumers"])
    def test_repeated_after_a_reconnect(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        lose: str,
    ) -> None:
        """A broker may have lost the last one when it let go of the topic."""
        cursors = visited(make(), at(4))
        cursors.confirm()
        lose_consumers(scripted, lose)
        scripted.durable(topic)[0].mark_delete = (LEDGER, 1)
        standing = visit(cursors, at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), True)
        assert acks(scripted) == [(LEDGER, 4), (LEDGER, 4)]

    @pytest.mark.parametrize("trouble", [silence, "error"])
    def test_one_that_fails_once_is_tried_again(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        trouble: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """In the same visit; nobody is told."""
        scripted.script("ACK", ack_error if trouble == "error" else trouble)
        assert visit(make(), at(4)).cursor == at(4)
        assert acks(scripted) == [(LEDGER, 4)] * 2
        assert warnings(caplog) == []

    @pytest.mark.parametrize("trouble", [silence, "error", "not followed"])
    def test_one_that_goes_on_failing_is_warned_about_once(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        trouble: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The visits succeed, and each tries again."""
        named = {"error": ack_error, "not followed": ack_in_vain}
        scripted.always("ACK", named.get(trouble, trouble))
        cursors = make()
        for tries in (3, 6):
            assert visit(cursors, at(4)).cursor == at(-1)
            assert acks(scripted) == [(LEDGER, 4)] * tries
        (warning,) = warnings(caplog)
        assert TOPIC in warning
        assert "7:4" in warning
        assert NAME in warning
        scripted.always("ACK", usual)
        assert visit(cursors, at(4)).cursor == at(4)

    def test_one_failure_does_not_hold_up_others(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Only who is behind is asked again."""
        other = f"{BASE}-partition-1"
        scripted.add_topic(other, [single(b"a")] * 10)
        scripted.script("ACK", silence)
        found = make().visit({topic: at(4), other: at(5)})
        assert [s and s.cursor.entry_id for s in found.values()] == [4, 5]
        assert acks(scripted) == [(LEDGER, 4), (LEDGER, 5), (LEDGER, 4)]

    def test_acknowledging_between_visits(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Where there is a consumer; a lost one waits for the next visit."""
        cursors = make()
        cursors.acknowledge({topic: at(4)})
        assert acks(scripted) == []
        visit(cursors, at(4))
        cursors.acknowledge({topic: at(5)})
        assert acks(scripted)[-1] == (LEDGER, 5)
        scripted.cut()
        wait_until(lambda: not scripted.sessions)
        cursors.acknowledge({topic: at(6)})
        visit(cursors, at(6))
        assert acks(scripted) == [(LEDGER, n) for n in (4, 5, 6)]


def ack_error(broker: ScriptedBroker, session: Any, command: Any) -> None:
    """Answers ACK with an error."""
    command.ack.message_id[0].ledgerId = LEDGER + 1000
    broker.answer(session, command)
    command.ack.message_id[0].ledgerId = LEDGER


def ack_in_vain(broker: ScriptedBroker, session: Any, command: Any) -> None:
    """Answers ACK as if nothing were wrong, and does nothing."""
    (entry_id, command.ack.message_id[0].entryId) = (
        command.ack.message_id[0].entryId,
        0,
    )
    subscription = session.consumers[command.ack.consumer_id].subscription
    before = subscription.mark_delete
    subscription.mark_delete = (LEDGER, 0)
    broker.answer(session, command)
    subscription.mark_delete = before
    command.ack.message_id[0].entryId = entry_id


class TestTrouble:
    #: The requests of a first visit, in order.
    STEPS = (
        ("LOOKUP", 0),
        ("SUBSCRIBE", 0),  # the question
        ("CLOSE_CONSUMER", 0),
        ("SUBSCRIBE", 1),
        ("SUBSCRIBE", 2),  # the check
        ("ACK", 0),
        ("GET_LAST_MESSAGE_ID", 0),
    )

    @pytest.mark.parametrize("action", [cut, usual_then_cut])
    @pytest.mark.parametrize("step", STEPS)
    def test_a_cut_anywhere(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        step: tuple[str, int],
        action: Action,
    ) -> None:
        """The visit goes on, and knows that the subscription has kept nothing."""
        name, before = step
        scripted.script(name, *[usual] * before, action)
        standing = visit(make(), at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), False)
        assert [s.mark_delete for s in scripted.durable(topic)] == [(LEDGER, 4)]
        assert len(scripted.consumers) == 1

    @pytest.mark.parametrize("action", [cut, usual_then_cut])
    @pytest.mark.parametrize("step", ["LOOKUP", "SUBSCRIBE", "ACK"])
    def test_a_cut_when_a_kept_one_is_opened(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        existing: str,
        step: str,
        action: Action,
    ) -> None:
        """It is still known to have kept everything."""
        scripted.script(step, action)
        standing = visit(make(), at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), True)

    def test_one_of_our_making_is_kept_once_that_is_confirmed(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Until then what was before it may be gone, however often it is lost."""
        cursors = make(is_new=True)
        for is_kept in (False, True):
            for _ in range(2):
                assert visit(cursors, at(4)).is_kept == is_kept
                lose_consumers(scripted)
            cursors.confirm()

    def test_what_is_not_confirmed_can_be_taken_back(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], existing: str
    ) -> None:
        """Only where the subscription was not there before, and is since then."""
        one, two = (f"{BASE}-partition-{index}" for index in (1, 2))
        scripted.add_topic(one, [single(b"a")])
        cursors = make()
        for read in ({existing: at(4)}, {one: at(-1)}):
            cursors.visit(read)
        cursors.confirm()
        scripted.add_topic(two, [single(b"a")])
        cursors.visit({existing: at(4), one: at(-1), two: at(-1)})
        cursors.take_back()
        left = [len(scripted.durable(name)) for name in (existing, one, two)]
        assert left == [1, 1, 0]
        standing = cursors.visit({two: at(-1)})[two]
        assert standing is not None
        assert not standing.is_kept

    def test_one_that_was_deleted_meanwhile(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """It is made again, and known to have kept nothing."""
        cursors = visited(make(is_new=True), at(4))
        cursors.confirm()
        lose_consumers(scripted)
        scripted.subscriptions.clear()
        standing = visit(cursors, at(4))
        assert (standing.cursor, standing.is_kept) == (at(4), False)

    def test_somebody_else_has_it_for_a_while(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It is waited for, with one warning."""
        cursors = make()
        with held(scripted) as other:
            release = threading.Event()

            def let_go(broker: ScriptedBroker, session: Any, command: Any) -> None:
                broker.answer(session, command)
                release.set()

            def close_other() -> None:
                if release.wait(60):
                    other.close()

            scripted.script("SUBSCRIBE", usual, usual, usual, usual, usual, let_go)
            scripted.start_thread(close_other)
            assert visit(cursors, at(4)).cursor == at(4)
        (warning,) = warnings(caplog)
        assert TOPIC in warning
        assert NAME in warning
        assert "waiting" in warning

    def test_somebody_else_keeps_it(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """The error says what may be going on, and their place is not touched."""
        with held(scripted), pytest.raises(BrokerError) as caught:
            make(patience_s=0.3).visit({topic: at(4)})
        message = caught.value.message
        assert TOPIC in message
        assert "running twice" in message
        assert "predefinedSubscription" in message
        assert caught.value.code == "ConsumerBusy"
        assert acks(scripted) == []

    def test_a_shared_subscription_is_final(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Waiting would not help: one try."""
        busy = refuse("ConsumerBusy", "Subscription is of different type")
        scripted.always("SUBSCRIBE", busy)
        with pytest.raises(BrokerError, match="Shared, Key_Shared or Failover"):
            make(is_new=True).visit({topic: at(4)})
        assert scripted.requests["SUBSCRIBE"] == 1

    def test_a_partition_that_is_only_counted(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """It stands before everything; it is not tried again and again."""
        scripted.partitions[BASE] = 2
        missing = f"{BASE}-partition-1"
        found = make().visit({topic: at(4), missing: NOTHING_READ})
        assert found[missing] == CursorStatus(NOTHING_READ, None, is_kept=True)
        asked = [b.topic for b in scripted.bodies["SUBSCRIBE"]]
        assert asked.count(missing) == 1
        assert scripted.requests["PARTITIONED_METADATA"] == 1

    def test_one_that_is_gone(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """The others are not held up; when it is there again it is met anew."""
        other = "persistent://public/default/plain"
        scripted.add_topic(other, [single(b"a")])
        cursors = make(is_new=True)
        read = {topic: at(4), other: at(0)}
        assert None not in cursors.visit(read).values()
        cursors.confirm()
        scripted.delete_topic(other)
        found = cursors.visit(read)
        assert found[other] is None
        assert found[topic] is not None
        scripted.add_topic(other, [single(b"b")])
        again = cursors.visit({**read, other: NOTHING_READ})[other]
        assert again is not None
        assert not again.is_kept
        assert again.cursor.ledger_id > LEDGER

    def test_silence_is_outlasted(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """A SUBSCRIBE that takes too long is closed, and asked again."""
        answer = threading.Event()
        scripted.script("SUBSCRIBE", late(answer))
        cursors = make(is_new=True, limits={"operation_timeout_s": 0.2})
        assert visit(cursors, at(4)).cursor == at(4)
        assert scripted.bodies["SUBSCRIBE"][0].consumer_id in {
            body.consumer_id for body in scripted.bodies["CLOSE_CONSUMER"]
        }
        answer.set()


class TestEnding:
    def test_deleting(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """The subscription is gone, and so are the consumers."""
        cursors = visited(make(), at(4))
        cursors.delete()
        assert scripted.subscriptions == {}
        assert scripted.consumers == []

    @pytest.mark.parametrize("is_cut", [True, False])
    def test_deleting_where_the_consumer_was_lost(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        is_cut: bool,
    ) -> None:
        """The topic has moved since the last visit, or the connection was cut."""
        other = f"{BASE}-partition-1"
        scripted.add_topic(other, [single(b"a")])
        cursors = make()
        cursors.visit({topic: at(4), other: at(0)})
        cursors.confirm()
        if is_cut:
            scripted.cut()
        else:
            scripted.close_consumers(topic)
        wait_until(lambda: not cursors._group.members[topic].is_open)
        cursors.delete()
        assert scripted.subscriptions == {}
        assert scripted.consumers == []

    @pytest.mark.parametrize(
        "action", [cut, usual_then_cut, refuse("ServiceNotReady", "it moves")]
    )
    @pytest.mark.parametrize("step", ["LOOKUP", "SUBSCRIBE", "UNSUBSCRIBE"])
    def test_trouble_while_it_is_deleted(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
        step: str,
        action: Action,
    ) -> None:
        """It is tried again, for as long as a broker may take to let go of it."""
        cursors = visited(make(), at(4))
        scripted.close_consumers()
        wait_until(lambda: not cursors._group.members[topic].is_open)
        scripted.script(step, action)
        cursors.delete()
        assert scripted.durable(topic) == []
        assert warnings(caplog) == []

    def test_deleting_where_the_topic_is_gone(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """So is the subscription."""
        cursors = visited(make(), at(4))
        scripted.delete_topic(topic)
        cursors.delete()
        assert warnings(caplog) == []

    def test_one_that_cannot_be_deleted(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        topic: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """That is a warning: the query has ended anyway."""
        patience.usual(monkeypatch, delete_s=0.2)
        cursors = visited(make(), at(4))
        scripted.always("UNSUBSCRIBE", refuse("PersistenceError", "disk"))
        cursors.delete()
        (warning,) = warnings(caplog)
        assert TOPIC in warning
        assert NAME in warning
        assert "disk" in warning
        assert scripted.consumers == []


class TestWaiting:
    def test_entries_after_the_cursor(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """Over all ledgers."""
        scripted.roll(topic)
        scripted.append(topic, *[batch([b"a", b"b"])] * 3)
        cursors = visited(make(), at(4))
        assert cursors.waiting([topic, "persistent://public/default/other"]) == {
            topic: 8
        }

    def test_a_lost_consumer_is_not_asked(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], topic: str
    ) -> None:
        """A broker would cut the connection, and all the others with it."""
        cursors = visited(make(), at(4))
        scripted.close_consumers()
        scripted.ping()
        wait_until(lambda: scripted.requests["PONG"])
        assert cursors.waiting([topic]) == {}
        assert scripted.requests["CONSUMER_STATS"] == 0


@pytest.fixture
def watch(
    make: Callable[..., Subscription], monkeypatch: pytest.MonkeyPatch
) -> tuple[Subscription, list[tuple[str, EntrySize]]]:
    """A subscription that looks, and what it says it has seen."""
    patience.usual(monkeypatch, look_s=60.0)
    seen: list[tuple[str, EntrySize]] = []
    subscription = make()
    look_ = subscription.look
    monkeypatch.setattr(
        subscription,
        "look",
        lambda read: look_(read, lambda topic, size: seen.append((topic, size))),
    )
    return subscription, seen


Watch = tuple[Subscription, list[tuple[str, EntrySize]]]


def look(cursors: Subscription, after: LastRead) -> list[int]:
    """Numbers of the entries that come next."""
    return [entry.position[1] for entry in cursors.look({TOPIC: after})[TOPIC]]


class TestLooking:
    def test_the_next_few(
        self, scripted: ScriptedBroker, topic: str, watch: Watch
    ) -> None:
        """Each is reported once, with its rows and bytes as stored."""
        cursors, seen = watch
        visit(cursors, at(4))
        found = look(cursors, at(4))
        assert found == list(range(5, 5 + len(found)))
        assert 1 <= len(found) <= 4
        wait_until(lambda: look(cursors, at(4)) == [5, 6, 7, 8])
        assert [name for name, _ in seen] == [topic] * 4
        assert {size.rows for _, size in seen} == {1}
        stored = scripted.topics[topic][5]
        size_bytes = stored.metadata.ByteSize() + len(stored.payload)
        assert all(size.size_bytes >= size_bytes for _, size in seen)

    def test_permits(self, scripted: ScriptedBroker, topic: str, watch: Watch) -> None:
        """Only what is missing to four is asked for, and only when all has come."""
        cursors, _ = watch
        visit(cursors, NOTHING_READ)
        wait_until(lambda: look(cursors, NOTHING_READ) == [0, 1, 2, 3])
        for read in (at(0), at(1), at(2)):
            visit(cursors, read)
            look(cursors, read)
        assert scripted.requests["FLOW"] == 1
        visit(cursors, at(3))
        look(cursors, at(3))
        assert scripted.requests["FLOW"] == 2
        assert [b.messagePermits for b in scripted.bodies["FLOW"]] == [4, 4]

    def test_permits_after_a_large_batch(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription], watch: Watch
    ) -> None:
        """What it cost beyond the four is paid back, and four more are asked for."""
        scripted.add_topic(TOPIC, [batch([b"a"] * 10)] * 12)
        cursors, seen = watch
        visit(cursors, NOTHING_READ)
        for entry_id in range(12):
            left = list(range(entry_id, entry_id // 4 * 4 + 4))
            read = at(entry_id - 1)
            wait_until(lambda read=read, left=left: look(cursors, read) == left)
            assert max(c.balance for c in scripted.consumers) <= 4
            visit(cursors, at(entry_id))
        granted = [body.messagePermits for body in scripted.bodies["FLOW"]]
        assert granted[0] == 4
        # One read of four permits brings four entries: 40 messages.
        assert granted[1:] == [40, 40]
        assert [size.rows for _, size in seen] == [10] * 12

    def test_many_more_entries_than_were_asked_for(
        self, scripted: ScriptedBroker, watch: Watch
    ) -> None:
        """They would fill the driver's memory: such a connection is given up."""
        scripted.partitions[BASE] = 1
        scripted.add_topic(TOPIC, [batch([b"a"] * 9000), batch([b"a"] * 9000)])
        cursors, _ = watch
        visit(cursors, NOTHING_READ)
        wait_until(lambda: look(cursors, NOTHING_READ) == [0, 1])
        visit(cursors, at(1))
        cursor = cursors._group.members[TOPIC]

        def flood(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            for entry_id in range(2, 5000):
                entry = replace(single(b""), position=(LEDGER, entry_id))
                session.send_bytes(message_frame(c.flow.consumer_id, entry))

        scripted.script("FLOW", flood)
        look(cursors, at(1))
        wait_until(lambda: not cursor.is_open, "the end of the connection")
        assert len(cursor.ahead) < 5000
        assert visit(cursors, at(1)).cursor == at(1)  # the query goes on

    @pytest.mark.parametrize("messages", [2**31 - 1, 0, -3])
    def test_entries_that_lie_about_their_messages(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        watch: Watch,
        messages: int,
    ) -> None:
        """They are passed by, and count no more rows than their bytes can hold."""
        lie = batch([b"a"])
        lie.metadata.num_messages_in_batch = messages
        lie = StoredFrame(lie.metadata, lie.payload, messages)
        scripted.add_topic(TOPIC, [single(b"a"), *[lie] * 9, *[single(b"b")] * 3])
        cursors, seen = watch
        visit(cursors, NOTHING_READ)
        for entry_id in range(13):
            assert look(cursors, at(entry_id - 1))[0] == entry_id
            visit(cursors, at(entry_id))
        assert {size.rows for _, size in seen} == {1}

    def test_nothing_is_asked_for_while_permits_are_out(
        self,
        scripted: ScriptedBroker,
        topic: str,
        watch: Watch,
        pools: list[ConnectionPool],
    ) -> None:
        """An empty topic costs one FLOW, and the wait, and then gives nothing."""
        cursors, seen = watch
        patience.of_pool(pools[0], look_s=0.05)
        visit(cursors, at(9))
        for _ in range(3):
            assert look(cursors, at(9)) == []
        wait_until(lambda: scripted.requests["FLOW"])
        assert scripted.requests["FLOW"] == 1
        patience.of_pool(pools[0], look_s=60.0)
        scripted.append(topic, single(b"late"))
        assert look(cursors, at(9)) == [10]
        assert scripted.requests["FLOW"] == 1
        assert len(seen) == 1

    def test_entries_that_were_read_are_passed_by(
        self, scripted: ScriptedBroker, topic: str, watch: Watch
    ) -> None:
        """Even where the broker begins far before: in steps of four."""
        cursors, seen = watch
        visit(cursors, NOTHING_READ)
        wait_until(lambda: look(cursors, NOTHING_READ) == [0, 1, 2, 3])
        assert look(cursors, at(7))[0] == 8
        assert len(seen) >= 9
        assert all(b.messagePermits <= 4 for b in scripted.bodies["FLOW"])

    def test_a_batch_that_is_half_read_comes_next(
        self, scripted: ScriptedBroker, watch: Watch
    ) -> None:
        """Its other half is still to come."""
        scripted.add_topic(TOPIC, [batch([b"a", b"b"])] * 3)
        cursors, _ = watch
        visit(cursors, at(1, 0))
        assert look(cursors, at(1, 0))[0] == 1
        visit(cursors, at(1))
        assert look(cursors, at(1)) == [2]

    @pytest.mark.parametrize("lose", ["cut", "close_consumers"])
    def test_after_a_reconnect_it_begins_anew(
        self, scripted: ScriptedBroker, topic: str, watch: Watch, lose: str
    ) -> None:
        """What came before is forgotten, permits too; and nothing comes twice."""
        cursors, _ = watch
        visit(cursors, at(3))
        wait_until(lambda: look(cursors, at(3)) == [4, 5, 6, 7])
        lose_consumers(scripted, lose)
        visit(cursors, at(3))
        wait_until(lambda: look(cursors, at(3)) == [4, 5, 6, 7])
        assert [b.messagePermits for b in scripted.bodies["FLOW"]] == [4, 4]

    def test_a_lost_consumer_is_not_waited_for(
        self, scripted: ScriptedBroker, topic: str, watch: Watch
    ) -> None:
        """It has nothing; the next visit makes another."""
        cursors, _ = watch
        visit(cursors, at(3))
        scripted.script("FLOW", cut)
        assert look(cursors, at(3)) == []
        assert look(cursors, at(3)) == []
        visit(cursors, at(3))
        assert look(cursors, at(3))[0] == 4

    def test_no_consumer_at_all(self, watch: Watch) -> None:
        """Then there is no answer about it."""
        cursors, _ = watch
        assert cursors.look({TOPIC: NOTHING_READ}) == {}

    def test_messages_that_were_acknowledged_one_by_one(
        self, scripted: ScriptedBroker, existing: str, watch: Watch
    ) -> None:
        """Brokers charge for the others, and the first of these is known."""
        scripted.add_topic(TOPIC, [batch([b"a"] * 70)] * 3)
        words = [0, 0b11_1000]  # of the words the first is all done: 67, 68 and 69 left
        (subscription,) = scripted.durable(existing)
        subscription.mark_delete = (scripted.positions(TOPIC)[0][0], -1)
        subscription.ack_sets[scripted.positions(TOPIC)[0]] = words
        cursors, _ = watch
        visit(cursors, NOTHING_READ)
        first = cursors.look({TOPIC: NOTHING_READ})[TOPIC][0]
        assert first.first_index == 67
        assert first.size.rows == 70
        wait_until(lambda: len(look(cursors, NOTHING_READ)) == 3)
        (consumer,) = scripted.consumers
        (member,) = cursors._group.members.values()
        assert member._permits == consumer.balance == 4 - 3 - 70 - 70

    def test_a_negative_word(
        self, scripted: ScriptedBroker, existing: str, watch: Watch
    ) -> None:
        """Words are signed: the last bit of one is a message like any other."""
        scripted.add_topic(TOPIC, [batch([b"a"] * 64)])
        (subscription,) = scripted.durable(existing)
        subscription.mark_delete = (scripted.positions(TOPIC)[0][0], -1)
        subscription.ack_sets[scripted.positions(TOPIC)[0]] = [-(2**63)]
        cursors, _ = watch
        visit(cursors, NOTHING_READ)
        assert cursors.look({TOPIC: NOTHING_READ})[TOPIC][0].first_index == 63
        (member,) = cursors._group.members.values()
        assert member._permits == 3

    def test_chunks_count_as_parts_of_a_message(
        self, scripted: ScriptedBroker, watch: Watch
    ) -> None:
        """One of four is a quarter of a row, and costs one permit."""
        chunk = single(b"x", num_chunks_from_msg=4, chunk_id=0, uuid="u")
        scripted.add_topic(TOPIC, [chunk] * 8)
        cursors, seen = watch
        visit(cursors, NOTHING_READ)
        wait_until(lambda: len(look(cursors, NOTHING_READ)) == 4)
        assert [size.rows for _, size in seen] == [0.25] * 4
        assert [c.balance for c in scripted.consumers] == [0]

    def test_corrupt_entries_are_left_to_who_reads_them(
        self, scripted: ScriptedBroker, watch: Watch
    ) -> None:
        """They count as one row."""
        good = single(b"a")
        bad = StoredFrame(good.metadata, good.payload, 1, is_damaged=True)
        scripted.add_topic(TOPIC, [bad, replace(good), bad])
        cursors, seen = watch
        visit(cursors, NOTHING_READ)
        wait_until(lambda: look(cursors, NOTHING_READ) == [0, 1, 2])
        assert [size.rows for _, size in seen] == [1, 1, 1]

    def test_several_topics_at_once(
        self, scripted: ScriptedBroker, topic: str, watch: Watch
    ) -> None:
        """All are asked before any has answered."""
        other = f"{BASE}-partition-1"
        scripted.add_topic(other, [single(b"a")] * 2)
        scripted.answer_together(2, "FLOW")
        cursors, seen = watch
        cursors.visit({topic: NOTHING_READ, other: NOTHING_READ})
        found = cursors.look({topic: NOTHING_READ, other: NOTHING_READ})
        assert all(found.values())
        assert {name for name, _ in seen} == {topic, other}


class TestWhatBrokersShow:
    @pytest.mark.parametrize("durable", [True, False])
    def test_properties_are_passed_on(
        self,
        durable: bool,
        make: Callable[..., Subscription],
        topic: str,
        scripted: ScriptedBroker,
    ) -> None:
        """Those of the consumer always, those of the subscription where it stays."""
        cursors = make(
            durable=durable,
            is_new=True,
            consumer=ConsumerSettings(properties=(("team", "a"),)),
            subscription_properties=(("owner", "b"), ("cost", "7")),
            replicate_subscription_state=True,
        )
        visit(cursors, at(3))
        (body,) = scripted.bodies["SUBSCRIBE"]
        assert [(p.key, p.value) for p in body.metadata] == [("team", "a")]
        kept = [(p.key, p.value) for p in body.subscription_properties]
        assert kept == ([("owner", "b"), ("cost", "7")] if durable else [])
        assert body.replicate_subscription_state == durable


class TestMigration:
    """A topic that was migrated is read to its end here, and no further."""

    def test_the_end_of_it_is_the_end_of_the_query(
        self, make: Callable[..., Subscription], topic: str, scripted: ScriptedBroker
    ) -> None:
        """The broker says so when all is acknowledged; the error tells what to do."""
        cursors = visited(make(), at(9))
        scripted.script("SUBSCRIBE", *[migrated("pulsar://green:6650")] * 5)
        lose_consumers(scripted)
        with pytest.raises(TopicMigratedError) as caught:
            visit(cursors, at(9))
        assert "All that there was here has been read" in str(caught.value)
        assert caught.value.service_url == "pulsar://green:6650"

    def test_others_are_read_to_their_ends_before(
        self, make: Callable[..., Subscription], topic: str, scripted: ScriptedBroker
    ) -> None:
        """One that is migrated has nothing new; the other one has, and goes first."""
        other = f"{BASE}-partition-1"
        scripted.add_topic(other, [single(b"a")] * 10)
        scripted.script("SUBSCRIBE", *[_migrated_one(topic)] * 9)
        cursors = make(is_new=True)
        for end in (3, 9):
            read = {topic: at(9), other: at(end)}
            if end == 9:
                with pytest.raises(TopicMigratedError):
                    cursors.visit(read)
            else:
                found = cursors.visit(read)
                assert found[topic] is not None
                assert found[topic].last == at(9).message_id
                assert found[other] is not None
                assert found[other].last == at(9).message_id


def _migrated_one(topic: str) -> Action:
    """Answers SUBSCRIBE to one of the topics as if it were migrated."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        is_it = c.subscribe.topic == topic
        (migrated("pulsar://green:6650") if is_it else usual)(broker, session, c)

    return action


class TestWithoutLedgers:
    """A terminated topic partition without rows, loaded again.

    A durable subscription that was refused there has no answer any more.
    """

    @pytest.fixture(autouse=True)
    def _empty(self, scripted: ScriptedBroker, topic: str) -> None:
        scripted.topics[topic].clear()
        scripted.without_ledgers.add(topic)

    @pytest.mark.parametrize("is_new", [True, False])
    def test_it_begins_at_the_end(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Subscription],
        *,
        is_new: bool,
    ) -> None:
        """The query is the same before and after a restart."""
        cursors = make(is_new=is_new)
        assert visit(cursors, NOTHING_READ, [TOPIC]).last is None
        assert scripted.subscriptions[TOPIC, NAME].durable
        again = make()
        cursors.close()
        assert visit(again, NOTHING_READ).last is None

    def test_where_it_may_have_rows(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription]
    ) -> None:
        """The subscription would not protect these: it is asked again."""
        scripted.append(TOPIC, single(b"a"))

        def load(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            broker.without_ledgers.clear()
            usual(broker, session, c)

        scripted.script("SUBSCRIBE", usual, usual, load)
        assert visit(make(), NOTHING_READ).last is not None
        kept = scripted.subscriptions[TOPIC, NAME]
        assert kept.durable
        assert kept.mark_delete < (LEDGER, 0)

    def test_a_subscription_that_is_there(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription]
    ) -> None:
        """It was made before the broker loaded the topic partition again."""
        scripted.without_ledgers.clear()
        make_first = make()
        visit(make_first, NOTHING_READ)
        make_first.close()
        scripted.without_ledgers.add(TOPIC)
        assert visit(make(), NOTHING_READ).last is None

    def test_topics_with_rows_cost_no_question(
        self, scripted: ScriptedBroker, make: Callable[..., Subscription]
    ) -> None:
        """A new query asks nothing where rows were seen."""
        scripted.without_ledgers.clear()
        visit(make(is_new=True), NOTHING_READ)
        assert scripted.requests["SUBSCRIBE"] == 1
