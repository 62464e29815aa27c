# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import consumers
from pulsar_spark.client.consumers import (
    ConsumerSet,
    TopicConsumer,
)
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import BrokerError, TopicNotFoundError, TransportError
from pulsar_spark.message_id import EARLIEST, TopicPositions
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition, Request, SubscribeRequest
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    client_options,
    cut,
    late,
    refuse,
    silence,
    single,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fixtures import Clock

BASE = "persistent://public/default/t"
TOPICS = [f"{BASE}-partition-{index}" for index in range(3)]

Group = ConsumerSet[TopicConsumer]


@pytest.fixture
def group(scripted: ScriptedBroker, pool: ConnectionPool) -> Group:
    """Consumers-to-be of three topic partitions."""
    for topic in TOPICS:
        scripted.add_topic(topic, [single(b"a")])
    return ConsumerSet(pool, TopicConsumer)


@pytest.fixture
def impatient(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[Group]:
    """The same, but they wait a tenth of a second for answers."""
    for topic in TOPICS:
        scripted.add_topic(topic, [single(b"a")])
    pool = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.1))
    yield ConsumerSet(pool, TopicConsumer)
    pool.close()


def subscribe(consumer: TopicConsumer) -> Request[pb.CommandSuccess]:
    """The first step of all."""
    return consumer.subscribe(SubscribeRequest("s"))


def last(consumer: TopicConsumer) -> Request[TopicPositions]:
    """Another step."""
    return consumer.get_last()


def test_each_member_gets_its_reply(scripted: ScriptedBroker, group: Group) -> None:
    """By topic partition; nothing is left when they are closed."""
    scripted.append(TOPICS[1], single(b"b"))
    group.connect(TOPICS)
    assert sorted(group.step(subscribe)) == TOPICS
    replies = group.step(last)
    entries = {topic: reply.last.entry_id for topic, reply in replies.items()}
    assert entries == dict(zip(TOPICS, (0, 1, 0), strict=True))
    assert len(scripted.consumers) == 3
    group.close()
    assert group.members == {}
    assert scripted.consumers == []
    assert group.take_failures() == {}


def test_a_failing_member_does_not_disturb_the_others(
    scripted: ScriptedBroker, group: Group
) -> None:
    """It drops out with its reason; its topic is named, once."""
    scripted.script("SUBSCRIBE", *[refuse("TopicNotFound", "gone")])
    group.connect(TOPICS)
    assert sorted(group.step(subscribe)) == TOPICS[1:]
    assert sorted(group.step(last)) == TOPICS[1:]
    failures = group.take_failures()
    assert list(failures) == TOPICS[:1]
    error = failures[TOPICS[0]]
    assert isinstance(error, TopicNotFoundError)
    assert error.message.startswith(f"{TOPICS[0]}: ")
    assert error.message.count(TOPICS[0]) == 1
    assert group.take_failures() == {}
    group.close()


def test_a_consumer_that_is_closed_before_its_answer(
    scripted: ScriptedBroker, group: Group
) -> None:
    """A topic partition that moves is asked about again: no answer would follow."""

    def closed(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        silence(broker, session, c)
        broker.close_consumers(TOPICS[0])

    group.connect(TOPICS)
    group.step(subscribe)
    for _ in range(3):
        group.step(last)
    connection = group.members[TOPICS[0]].connection
    assert not connection._asked, "all were answered"
    scripted.script("GET_LAST_MESSAGE_ID", closed)
    assert sorted(group.step(last)) == TOPICS[1:]
    error = group.take_failures()[TOPICS[0]]
    assert isinstance(error, TransportError)
    assert "let go of the consumer before GET_LAST_MESSAGE_ID" in error.message
    group.close()
    assert not connection._asked


def test_brokers_are_remembered(
    scripted: ScriptedBroker, pool: ConnectionPool, group: Group
) -> None:
    """Until one of them refuses: then its topic partition is looked up again."""
    lookups = []
    for refused in (0, 1, 0):
        scripted.script("SUBSCRIBE", *[refuse("ServiceNotReady")] * refused)
        with ConsumerSet(pool, TopicConsumer) as consumers:
            consumers.connect(TOPICS)
            assert len(consumers.step(subscribe)) == len(TOPICS) - refused
        lookups.append([body.topic for body in scripted.bodies["LOOKUP"]])
    assert lookups == [TOPICS, TOPICS, [*TOPICS, TOPICS[0]]]


def test_errors_can_be_had_without_dropping_out(
    scripted: ScriptedBroker, group: Group
) -> None:
    """``ask`` gives them among the replies."""
    group.connect(TOPICS)
    group.step(subscribe)
    scripted.script("GET_LAST_MESSAGE_ID", refuse("MetadataError"))
    replies = group.ask(last)
    assert isinstance(replies[TOPICS[0]], BrokerError)
    assert sorted(group.members) == TOPICS
    assert group.failures == {}
    group.close()


def test_a_step_for_some(scripted: ScriptedBroker, group: Group) -> None:
    """Only members are asked, and only those that are named."""
    group.connect(TOPICS[:2])
    group.step(subscribe)
    replies = group.step(last, [TOPICS[1], TOPICS[2]])
    assert list(replies) == [TOPICS[1]]
    assert scripted.requests["GET_LAST_MESSAGE_ID"] == 1
    group.close()


def test_all_are_asked_before_any_answer_is_needed(
    scripted: ScriptedBroker, impatient: Group
) -> None:
    """A broker that says nothing to the first one hears the others all the same."""
    scripted.answer_together(3, "LOOKUP", "SUBSCRIBE", "CLOSE_CONSUMER")
    impatient.connect(TOPICS)
    impatient.step(subscribe)
    scripted.script("GET_LAST_MESSAGE_ID", silence)
    replies = impatient.step(last)
    assert sorted(replies) == TOPICS[1:]
    error = impatient.take_failures()[TOPICS[0]]
    assert isinstance(error, TransportError)
    assert error.message.startswith(f"{TOPICS[0]}: ")
    assert "GET_LAST_MESSAGE_ID" in error.message
    assert error.retriable
    impatient.close()
    assert scripted.deepest["SUBSCRIBE"] == scripted.deepest["LOOKUP"] == 3


def test_many_are_asked_some_at_a_time(
    scripted: ScriptedBroker, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets its reply, and the other work comes when all have been sent."""
    monkeypatch.setattr(consumers, "ASKED_TOGETHER", 2)
    group.connect(TOPICS)
    assert sorted(group.step(subscribe)) == TOPICS
    built: list[str] = []
    others: list[list[str]] = []

    def counted(
        consumer: TopicConsumer,
    ) -> Request[TopicPositions]:
        built.append(consumer.topic)
        return consumer.get_last()

    replies = group.ask(counted, meanwhile=lambda: others.append(list(built)))
    assert sorted(replies) == TOPICS
    assert not any(isinstance(reply, Exception) for reply in replies.values())
    assert others == [built]
    assert group.ask(counted, [], meanwhile=lambda: others.append([])) == {}
    assert others == [built, []]


def test_a_late_subscribe_is_closed(scripted: ScriptedBroker, impatient: Group) -> None:
    """An answer after the time is up must not leave a consumer at the broker."""
    answer = threading.Event()
    scripted.script("SUBSCRIBE", late(answer))
    impatient.connect(TOPICS)
    assert sorted(impatient.step(subscribe)) == TOPICS[1:]
    sent = [body.consumer_id for body in scripted.bodies["SUBSCRIBE"]]
    wait_until(lambda: scripted.requests["CLOSE_CONSUMER"])
    (closed,) = [body.consumer_id for body in scripted.bodies["CLOSE_CONSUMER"]]
    assert closed == sent[0]
    answer.set()
    impatient.close()


def test_a_cut_connection_fails_all_of_its_members(
    scripted: ScriptedBroker, group: Group
) -> None:
    """Each with a reason of its own, which may be tried again."""
    group.connect(TOPICS)
    group.step(subscribe)
    scripted.script("GET_LAST_MESSAGE_ID", cut)
    assert group.step(last) == {}
    failures = group.take_failures()
    assert sorted(failures) == TOPICS
    assert all(error.retriable for error in failures.values())
    assert all(topic in error.message for topic, error in failures.items())
    assert group.members == {}


def test_a_broker_that_cannot_be_reached(
    scripted: ScriptedBroker, group: Group
) -> None:
    """Its topics fail when they are connected; the others do not."""
    with ScriptedBroker() as other:
        nowhere = other.address

    def elsewhere(broker: ScriptedBroker, session: Any, command: Any) -> None:
        own, broker.url = broker.url, f"pulsar://{nowhere}"
        broker.answer(session, command)
        broker.url = own

    scripted.script("LOOKUP", elsewhere)
    group.connect(TOPICS)
    assert sorted(group.members) == TOPICS[1:]
    assert isinstance(group.take_failures()[TOPICS[0]], TransportError)
    group.close()


def test_one_that_the_broker_closed_knows(
    scripted: ScriptedBroker, group: Group
) -> None:
    """It is not open any more, until it subscribes anew, by another id."""
    group.connect(TOPICS[:1])
    group.step(subscribe)
    (member,) = group.members.values()
    assert member.is_open
    scripted.close_consumers()
    wait_until(lambda: not member.is_open)
    before = member.consumer_id
    group.step(subscribe)
    assert member.is_open
    assert member.consumer_id != before
    assert len(scripted.consumers) == 1
    group.close()


def open_and(
    group: Group, request: Callable[[TopicConsumer], Request[pb.CommandSuccess]]
) -> None:
    """Take the first step, then another."""
    group.connect(TOPICS)
    group.step(subscribe)
    group.step(request)


def test_an_error_leaves_no_consumer(scripted: ScriptedBroker, group: Group) -> None:
    """The end of a ``with`` closes them, whatever ended it."""

    def interrupted(consumer: TopicConsumer) -> Request[pb.CommandSuccess]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), group:
        open_and(group, interrupted)
    assert scripted.consumers == []
    assert group.members == {}


def test_closing_does_not_depend_on_an_answer(
    scripted: ScriptedBroker, impatient: Group
) -> None:
    """Refused or unheard: the group is empty, and no reason is kept."""
    impatient.connect(TOPICS)
    impatient.step(subscribe)
    scripted.script("CLOSE_CONSUMER", refuse("MetadataError"), silence)
    impatient.close()
    assert impatient.members == {}
    assert impatient.take_failures() == {}


class TestWithoutLedgers:
    """A terminated topic partition without rows, loaded again."""

    @pytest.fixture(autouse=True)
    def _empty(self, scripted: ScriptedBroker, group: Group) -> None:
        scripted.topics[TOPICS[1]].clear()
        scripted.without_ledgers.add(TOPICS[1])
        group.connect(TOPICS)

    @pytest.mark.parametrize(
        "how",
        [
            SubscribeRequest("s", start=EARLIEST),
            SubscribeRequest("s", initial_position=InitialPosition.EARLIEST),
        ],
    )
    def test_readers_are_at_its_end(self, group: Group, how: SubscribeRequest) -> None:
        """Those of others are at the beginning."""
        assert sorted(group.subscribe(lambda _: how)) == TOPICS
        replies = group.step(last)
        assert [replies[topic].is_empty for topic in TOPICS] == [
            False,
            True,
            False,
        ]

    def test_only_if_there_is_no_row(
        self, scripted: ScriptedBroker, group: Group
    ) -> None:
        """A refusal without a reason may have another cause: no row is left out."""
        scripted.append(TOPICS[1], single(b"b"))
        how = SubscribeRequest("s", start=EARLIEST)
        assert sorted(group.subscribe(lambda _: how)) == [TOPICS[0], TOPICS[2]]
        error = group.take_failures()[TOPICS[1]]
        assert isinstance(error, BrokerError)
        assert error.retriable

    def test_other_refusals(self, scripted: ScriptedBroker, group: Group) -> None:
        """They are errors, and nobody subscribes at the end."""
        scripted.script("SUBSCRIBE", refuse("UnknownError", "a reason"))
        how = SubscribeRequest("s", start=EARLIEST)
        group.subscribe(lambda _: how, [TOPICS[0]])
        assert list(group.take_failures()) == [TOPICS[0]]
        assert scripted.requests["SUBSCRIBE"] == 1
