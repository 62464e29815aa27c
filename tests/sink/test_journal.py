# SPDX-License-Identifier: Apache-2.0
"""A topic as a small log, with brokers that do what a test tells them to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    CommitLogError,
    CorruptEntryError,
    MessageTooLargeError,
    PulsarSparkError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.sink.journal import Journal
from pulsar_spark.wire.compression import CompressionType, compress
from spark_topics.client.retry import Retry
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    client_options,
    cut,
    let_go,
    message_frame,
    refuse,
    refuse_entry,
    silence,
    single,
    then_moves,
    usual,
    usual_then_cut,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.wire import pulsar_api_pb2 as pb
    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/spark-commits-q"


@pytest.fixture
def journal(pool: ConnectionPool) -> Journal:
    """A journal whose topic does not exist yet."""
    return Journal(pool, TOPIC)


@pytest.fixture
def impatient(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[Journal]:
    """Gives up after a fifth of a second."""
    options = client_options(
        scripted.address, operation_timeout_s=0.2, keep_alive_interval_s=5.0
    )
    pool = ConnectionPool(options)
    yield Journal(pool, TOPIC)
    pool.close()


def messages(journal: Journal) -> list[bytes]:
    """What it holds, without the places."""
    return [message for _, message in journal.read()]


class TestAppend:
    def test_each_message_is_an_entry(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """In order, created with the first, and nothing stays attached."""
        for number in range(5):
            journal.append(b"%d" % number)
        assert [e.payload for e in scripted.topics[TOPIC]] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        wait_until(lambda: not scripted.producers, "the end of producers")
        assert scripted.connections == 1

    @pytest.mark.parametrize(
        "fault",
        [cut, usual_then_cut, let_go],
        ids=lambda fault: fault.__name__,
    )
    def test_faults(
        self, scripted: ScriptedBroker, journal: Journal, fault: Action
    ) -> None:
        """It is there afterwards, at least once."""
        scripted.script("SEND", fault)
        scripted.script("PRODUCER", refuse("ServiceNotReady"), cut, usual)
        scripted.script("LOOKUP", refuse("ServiceNotReady"), cut)
        journal.append(b"a")
        journal.append(b"b")
        stored = [entry.payload for entry in scripted.topics[TOPIC]]
        assert stored in ([b"a", b"b"], [b"a", b"a", b"b"])

    def test_a_topic_that_cannot_be_created(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The broker's word, with the topic."""
        scripted.creates_topics = False
        with pytest.raises(TopicNotFoundError, match=TOPIC):
            journal.append(b"a")

    def test_a_refusal(self, scripted: ScriptedBroker, journal: Journal) -> None:
        """It is raised, and nothing stays attached."""
        scripted.script("SEND", refuse_entry("AuthorizationError"))
        with pytest.raises(AuthError, match=TOPIC):
            journal.append(b"a")
        wait_until(lambda: not scripted.producers, "the end of producers")

    def test_a_message_that_is_too_large(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """Nothing is sent."""
        scripted.max_message_size = 1000
        with pytest.raises(MessageTooLargeError):
            journal.append(b"x" * 1000)
        assert scripted.requests["SEND"] == 0
        wait_until(lambda: not scripted.producers, "the end of producers")


class TestRead:
    def test_everything_with_its_place(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """In order; reading forgets nothing, and leaves nobody attached."""
        for number in range(3):
            journal.append(b"%d" % number)
        expected = [(MessageId(LEDGER, n), b"%d" % n) for n in range(3)]
        assert journal.read() == expected
        assert journal.read() == expected
        wait_until(lambda: not scripted.consumers, "the end of consumers")

    def test_more_than_is_asked_for_at_a_time(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """It asks again until the last one that was there."""
        scripted.add_topic(TOPIC, [single(b"%d" % n) for n in range(2500)])
        assert messages(journal) == [b"%d" % n for n in range(2500)]
        assert scripted.requests["FLOW"] == 3

    def test_a_journal_that_does_not_exist(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """It is created, empty, with the subscription that keeps what will come."""
        assert journal.read() == []
        journal.append(b"a")
        scripted.roll(TOPIC)
        assert [s.name for s in scripted.durable(TOPIC)] == ["spark-pulsar-commits"]
        assert messages(journal) == [b"a"]

    @pytest.mark.parametrize("codec", list(CompressionType))
    def test_messages_with_a_codec(
        self, scripted: ScriptedBroker, journal: Journal, codec: CompressionType
    ) -> None:
        """Earlier versions wrote markers with the codec of the rows."""
        message = b'[1,"a query",7,3]'
        entry = single(
            bytes(compress(codec, message)),
            compression=int(codec),
            uncompressed_size=len(message),
        )
        scripted.add_topic(TOPIC, [entry, single(b"plain")])
        assert messages(journal) == [message, b"plain"]

    def test_a_damaged_message(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The error names it and its topic."""
        entry = single(b"no lz4", compression=1, uncompressed_size=100)
        scripted.add_topic(TOPIC, [entry])
        with pytest.raises(CorruptEntryError, match=rf"{LEDGER}:0 of {TOPIC}"):
            journal.read()

    def test_keeping_is_reading_nothing(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The subscription is there, and no entry was asked for."""
        journal.keep()
        assert [s.name for s in scripted.durable(TOPIC)] == ["spark-pulsar-commits"]
        assert scripted.requests["FLOW"] == 0

    def test_one_that_cannot_be_created(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The broker's word, with the topic."""
        scripted.creates_topics = False
        with pytest.raises(TopicNotFoundError, match=TOPIC):
            journal.read()

    def test_one_that_is_never_there(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """Whatever its producer said: once is enough."""
        scripted.always("SUBSCRIBE", refuse("TopicNotFound"))
        with pytest.raises(TopicNotFoundError, match=TOPIC):
            journal.read()
        assert scripted.requests["SUBSCRIBE"] == 2

    @pytest.mark.parametrize(
        ("command", "actions"),
        [
            ("LOOKUP", [refuse("ServiceNotReady"), cut]),
            ("SUBSCRIBE", [refuse("ConsumerBusy"), cut, usual_then_cut]),
            ("GET_LAST_MESSAGE_ID", [refuse("MetadataError"), cut]),
            ("FLOW", [cut, usual_then_cut]),
        ],
    )
    def test_faults(
        self,
        scripted: ScriptedBroker,
        journal: Journal,
        command: str,
        actions: list[Action],
    ) -> None:
        """It starts over, and gives each message once."""
        for number in range(5):
            journal.append(b"%d" % number)
        scripted.script(command, *actions)
        assert messages(journal) == [b"%d" % n for n in range(5)]

    def test_a_broker_that_keeps_what_it_has(
        self, scripted: ScriptedBroker, impatient: Journal
    ) -> None:
        """The error names the topic and the time."""
        impatient.append(b"a")
        scripted.always("FLOW", silence)
        with pytest.raises(PulsarSparkError, match=rf"{TOPIC}.*0\.2 s"):
            impatient.read()

    def test_it_lets_go_before_it_waits(
        self,
        scripted: ScriptedBroker,
        impatient: Journal,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Another driver may read meanwhile: the subscription has one consumer."""
        impatient.append(b"a")
        scripted.script("FLOW", silence)
        closed = []

        def pause(retry: Retry, error: PulsarSparkError) -> None:
            wait_until(lambda: scripted.requests["CLOSE_CONSUMER"] == 1)
            closed.append(error)
            patient = replace(impatient._options, operation_timeout_s=60.0)
            impatient._options = patient  # the next try is answered

        monkeypatch.setattr(Retry, "pause", pause)
        assert messages(impatient) == [b"a"]
        assert len(closed) == 1

    @pytest.mark.parametrize("answers", [1, 2])
    def test_a_broker_that_gives_it_away(
        self, scripted: ScriptedBroker, journal: Journal, answers: int
    ) -> None:
        """It says that nothing is there, which is not taken for what was decided."""
        journal.append(b"decided")
        scripted.closing.add(TOPIC)
        scripted.script("GET_LAST_MESSAGE_ID", *[usual] * (answers - 1), then_moves)
        assert messages(journal) == [b"decided"]

    def test_somebody_else_reads_it(
        self, scripted: ScriptedBroker, impatient: Journal
    ) -> None:
        """That is waited for, and then an error with the broker's code."""
        impatient.append(b"a")
        scripted.script("SUBSCRIBE", refuse("ConsumerBusy"))
        assert messages(impatient) == [b"a"]
        scripted.always("SUBSCRIBE", refuse("ConsumerBusy"))
        with pytest.raises(BrokerError, match=TOPIC) as caught:
            impatient.read()
        assert caught.value.code == "ConsumerBusy"


class TestForget:
    def test_what_is_forgotten_is_not_read_again(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """Up to and including a place; what came later stays."""
        for number in range(5):
            journal.append(b"%d" % number)
        journal.forget(journal.read()[2][0])
        assert messages(journal) == [b"3", b"4"]
        journal.append(b"5")
        assert messages(journal) == [b"3", b"4", b"5"]

    def test_all_of_it(self, scripted: ScriptedBroker, journal: Journal) -> None:
        """Nothing is left; twice is once; what comes later is read."""
        for number in range(5):
            journal.append(b"%d" % number)
        last = journal.read()[-1][0]
        assert journal.last() == last
        journal.forget(last)
        assert messages(journal) == []
        assert journal.last() is None
        journal.forget(last)
        journal.append(b"5")
        assert messages(journal) == [b"5"]

    def test_what_is_not_forgotten_is_not_trimmed(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The subscription holds it, over ledgers that are closed."""
        journal.keep()
        for number in range(3):
            journal.append(b"%d" % number)
            scripted.roll(TOPIC)
        (subscription,) = scripted.durable(TOPIC)
        assert subscription.mark_delete < scripted.positions(TOPIC)[0]
        journal.forget(journal.read()[0][0])
        assert subscription.mark_delete == scripted.positions(TOPIC)[0]
        assert messages(journal) == [b"1", b"2"]

    @pytest.mark.parametrize(
        "actions", [[cut], [usual_then_cut], [refuse("ServiceNotReady")]]
    )
    def test_faults(
        self, scripted: ScriptedBroker, journal: Journal, actions: list[Action]
    ) -> None:
        """It is asked for again; forgetting twice is forgetting once."""
        for number in range(3):
            journal.append(b"%d" % number)
        last = journal.read()[1][0]
        scripted.script("ACK", *actions)
        journal.forget(last)
        assert messages(journal) == [b"2"]

    def test_an_acknowledgement_that_is_refused(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The error comes through."""
        journal.append(b"a")
        scripted.always("ACK", refuse("AuthorizationError"))
        with pytest.raises(AuthError, match=TOPIC):
            journal.forget(MessageId(LEDGER, 0))


class TestTooMuch:
    """Somebody else may write to the topic, and a broker may send what it likes."""

    @pytest.fixture
    def small(self, scripted: ScriptedBroker) -> Iterator[Journal]:
        """Has a megabyte of memory."""
        options = client_options(scripted.address, memory_limit_bytes=1 << 20)
        pool = ConnectionPool(options)
        yield Journal(pool, TOPIC)
        pool.close()

    def test_as_much_as_memory_holds(
        self, scripted: ScriptedBroker, small: Journal
    ) -> None:
        """Is read."""
        scripted.add_topic(TOPIC, [single(b"." * 10_000)] * 90)
        assert len(small.read()) == 90

    def test_more_than_memory_holds(
        self, scripted: ScriptedBroker, small: Journal
    ) -> None:
        """Is an error that names the topic and the option."""
        scripted.add_topic(TOPIC, [single(b"." * 10_000)] * 120)
        with pytest.raises(CommitLogError, match=f"{TOPIC}.*memoryLimitBytes"):
            small.read()

    def test_the_same_message_for_ever(
        self, scripted: ScriptedBroker, small: Journal
    ) -> None:
        """Also if each of them is small."""
        scripted.add_topic(TOPIC, [single(b"a"), single(b"b")])

        def repeat(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            frame = message_frame(c.flow.consumer_id, scripted.topics[TOPIC][0])
            session.send_bytes(frame * c.flow.messagePermits)

        scripted.always("FLOW", repeat)
        with pytest.raises(CommitLogError, match="no log of ours"):
            small.read()
        assert scripted.permits[TOPIC] <= 3000


class TestLook:
    def test_leaves_no_trace(self, scripted: ScriptedBroker, journal: Journal) -> None:
        """All that is stored, also what was forgotten, beside one who reads it."""
        with pytest.raises(TopicNotFoundError):
            journal.look()
        assert TOPIC not in scripted.topics
        scripted.add_topic(TOPIC)
        assert journal.look() == []
        scripted.append(
            TOPIC, *(single(b"%d" % n, publish_time=1000 + n) for n in range(3))
        )
        assert not scripted.durable(TOPIC)
        journal.forget(MessageId(LEDGER, 0))
        before = [s.mark_delete for s in scripted.durable(TOPIC)]
        assert journal.look() == [
            (MessageId(LEDGER, n), b"%d" % n, 1000 + n) for n in range(3)
        ]
        assert [s.mark_delete for s in scripted.durable(TOPIC)] == before


class TestHeld:
    """What is attached ahead."""

    def test_the_entry_that_was_appended_is_enough(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """Nothing is asked for the end, and the subscription is let go at once."""
        journal.append(b"a")
        before = scripted.requests.copy()
        with journal:
            journal.attach()
            last = journal.append(b"b")
            assert [message for _, message in journal.read(last)] == [b"a", b"b"]
            wait_until(lambda: not scripted.consumers, "the end of consumers")
            assert scripted.producers
            journal.append(b"c")
        wait_until(lambda: not scripted.producers, "the end of producers")
        asked = scripted.requests - before
        assert (asked["PRODUCER"], asked["SUBSCRIBE"]) == (1, 1)
        assert asked["GET_LAST_MESSAGE_ID"] == 0

    @pytest.mark.parametrize("deduplicates", [False, True])
    def test_each_message_is_stored(
        self, scripted: ScriptedBroker, journal: Journal, deduplicates: bool
    ) -> None:
        """A broker that deduplicates sees that none is a copy of the last."""
        scripted.deduplicates = deduplicates
        with journal:
            places = [journal.append(b"%d" % number) for number in range(5)]
        assert places == [MessageId(LEDGER, n) for n in range(5)]
        assert messages(journal) == [b"%d" % number for number in range(5)]

    def test_another_forgets_it_first(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """After a lost connection: what is not there any more is not waited for."""
        other_pool = ConnectionPool(client_options(scripted.address))
        with journal:
            journal.attach()
            last = journal.append(b"a")
            assert last is not None
            for session in list(scripted.sessions):
                scripted.hang_up(session)
            wait_until(lambda: not scripted.consumers, "the end of consumers")
            Journal(other_pool, TOPIC).forget(last)
            assert journal.read(last) == []
            assert journal.append(b"b") is not None
            assert messages(journal) == [b"b"]
        other_pool.close()

    def test_the_topic_moves_meanwhile(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """Where the producer was is no place to subscribe any more: it is looked up."""
        with journal:
            journal.append(b"a")
            scripted.script("SUBSCRIBE", refuse("ServiceNotReady"))
            before = scripted.requests["LOOKUP"]
            assert messages(journal) == [b"a"]
            assert scripted.requests["LOOKUP"] > before
            journal.append(b"b")
        assert messages(journal) == [b"a", b"b"]

    def test_another_reads_it_now(
        self, scripted: ScriptedBroker, journal: Journal
    ) -> None:
        """The reading that follows waits until the subscription is free."""
        other_pool = ConnectionPool(client_options(scripted.address))
        with Journal(other_pool, TOPIC) as other:
            other.attach()
            with journal:
                journal.attach()  # in vain
                journal.append(b"a")
                other.release()
                assert messages(journal) == [b"a"]
        other_pool.close()
