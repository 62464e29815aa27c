# SPDX-License-Identifier: Apache-2.0
"""Producers, with brokers that do what a test tells them to."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import producers as module
from pulsar_spark.client.producing import states as producer_state
from pulsar_spark.client.producing.producers import (
    Producers,
    ProducerSettings,
    Resend,
)
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    InDoubtError,
    SchemaError,
    SendTimeoutError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.loops.sends import Receipt
from pulsar_spark.options.client import ClientOptions
from pulsar_spark.options.service_url import ServiceUrl
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode
from pulsar_spark.wire.outgoing import EntryEncoder
from pulsar_spark.wire.protocol import SendRefused
from tests.client.producing.sending import (
    NEVER_S,
    OTHER,
    TICK_S,
    TOPIC,
    frames,
    send,
    store,
    values,
)
from tests.support import patience
from tests.support.scripted_broker import (
    PATIENCE_S,
    Action,
    ScriptedBroker,
    Session,
    acknowledge,
    client_options,
    cut,
    late,
    let_go,
    redirect,
    refuse,
    refuse_entry,
    silence,
    twice,
    unheard,
    usual,
    usual_then_cut,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock


def first_ones(stored: Sequence[bytes]) -> list[bytes]:
    """What is stored, without what was there before."""
    return list(dict.fromkeys(stored))


def deaf(action: Action) -> Action:
    """Acts, and is deaf to whatever else this attachment sends."""

    def then(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        action(broker, session, c)
        session.producers[c.send.producer_id] = None

    return then


class Held:
    """Keeps SENDs, until a test lets the broker have them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[ScriptedBroker, Session, pb.BaseCommand]] = []
        self.most = 0

    def __call__(
        self, broker: ScriptedBroker, session: Session, command: pb.BaseCommand
    ) -> None:
        """Keeps one."""
        self.waiting.append((broker, session, command))
        self.most = max(self.most, len(self.waiting))

    def release(self, count: int) -> None:
        """Lets the broker have the oldest."""
        for _ in range(count):
            usual(*self.waiting.pop(0))


class Fragile:
    """Connections that break where too much is under way, and nothing of it is stored.

    Receipts come when nothing has been sent for a while: then less was.

    Args:
        most_bytes: What a connection carries.
    """

    def __init__(self, most_bytes: int) -> None:
        self.broken = 0
        self._most_bytes = most_bytes
        self._under_way: dict[Session, list[tuple[ScriptedBroker, Any]]] = {}
        self._lock = threading.Lock()

    def __call__(
        self, broker: ScriptedBroker, session: Session, command: pb.BaseCommand
    ) -> None:
        """Keeps an entry, or breaks the connection under it."""
        with self._lock:
            some = self._under_way.setdefault(session, [])
            some.append((broker, command))
            sizes = (len(broker._payloads[id(one.send)]) for _, one in some)
            is_too_much = sum(sizes) > self._most_bytes
            if is_too_much:
                self.broken += 1
                del self._under_way[session]
        if is_too_much:
            broker.hang_up(session)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Lets what is under way arrive, from time to time."""
        over = threading.Event()
        thread = threading.Thread(target=self._answer, args=[over])
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _answer(self, over: threading.Event) -> None:
        seen = 0
        while not over.wait(0.02):
            with self._lock:
                count = sum(map(len, self._under_way.values()))
                arrived = self._under_way if count == seen else {}
                self._under_way = {} if arrived else self._under_way
            seen = 0 if arrived else count
            for session, some in arrived.items():
                for broker, command in some:
                    usual(broker, session, command)


class TestSending:
    def test_entries_are_stored_and_counted(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """In order, once each; receipts count rows and bytes."""
        producer = producers.get(TOPIC)
        sent = frames(producer, *[b"%d" % n for n in range(50)])
        for frame in sent:
            producers.send(producer, frame)
        producers.flush()
        assert values(scripted) == [b"%d" % n for n in range(50)]
        assert producer.stored.rows == 50
        assert producer.stored.size_bytes == sum(len(frame.data) for frame in sent)
        assert producer.stored.duplicate_rows == 0
        assert producers.reconnects == 0
        assert scripted.connections == 1

    def test_nothing_waits_for_a_receipt(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Entries go out one behind the other."""
        scripted.answer_together(20, "SEND")
        store(producers, *[b"x"] * 20)
        assert scripted.deepest["SEND"] == 20

    def test_the_window_bounds_what_is_in_flight(
        self,
        scripted: ScriptedBroker,
        narrow: Callable[[int], ConnectionPool],
        make: Callable[..., Producers],
        attach: Callable[..., Producers],
    ) -> None:
        """Three entries fit; the next waits for a receipt; flush waits for all."""
        held = Held()
        scripted.always("SEND", held)
        probe = make()
        probe.open([TOPIC])
        size = len(frames(probe.get(TOPIC), b"0123")[0].data)
        producers = attach(narrow(4 * size - 1), send_timeout_s=NEVER_S)

        def run() -> None:
            store(producers, *[b"%04d" % n for n in range(12)])

        with ThreadPoolExecutor(1) as executor:
            over = executor.submit(run)
            for done in range(12):
                wait_until(lambda done=done: len(held.waiting) == min(3, 12 - done))
                assert not over.done()
                held.release(1)
            over.result(60)
        assert held.most == 3
        assert values(scripted) == [b"%04d" % n for n in range(12)]

    def test_an_entry_larger_than_the_window_goes_alone(
        self,
        scripted: ScriptedBroker,
        narrow: Callable[[int], ConnectionPool],
        attach: Callable[..., Producers],
    ) -> None:
        """It waits until nothing else is in flight."""
        held = Held()
        scripted.always("SEND", held)
        producers = attach(narrow(1000), send_timeout_s=NEVER_S)
        large = b"x" * 5000

        def run() -> None:
            store(producers, b"small", large, b"small again")

        with ThreadPoolExecutor(1) as executor:
            over = executor.submit(run)
            for _ in range(3):
                wait_until(lambda: held.waiting)
                held.release(1)
            over.result(60)
        assert held.most == 1
        assert values(scripted) == [b"small", large, b"small again"]

    def test_each_chunk_has_its_receipt(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Chunks have one number; the last one's receipt completes the row."""
        held = Held()
        scripted.always("SEND", held)
        producer = producers.get(TOPIC)
        encoder = EntryEncoder(
            producer.producer_id, producer.registration.name, 200_000, chunk_bytes=300
        )
        chunks = list(encoder.single(pb.MessageMetadata(), b"y" * 1000, 0, 1))
        assert len(chunks) > 3
        for frame in chunks:
            producers.send(producer, frame)
        wait_until(lambda: len(held.waiting) == len(chunks))
        held.release(len(chunks) - 1)
        wait_until(lambda: len(producer.in_flight.pending) == 1)
        assert producer.stored.rows == 0
        held.release(1)
        producers.flush()
        assert producer.stored.rows == 1
        assert b"".join(values(scripted)) == b"y" * 1000

    @pytest.mark.parametrize("is_followed", [True, False])
    def test_all_of_a_row_in_chunks_was_stored_and_no_receipt_came(
        self, scripted: ScriptedBroker, producers: Producers, is_followed: bool
    ) -> None:
        """The next row's ledger tells that it is whole. At the end nothing does."""
        scripted.deduplicates = True
        producer = producers.get(TOPIC)
        store(producers, b"a")
        encoder = EntryEncoder(
            producer.producer_id, producer.registration.name, 200_000, chunk_bytes=300
        )
        *chunks, last = encoder.single(pb.MessageMetadata(), b"y" * 1000, 1, 1)
        for frame in chunks:
            producers.send(producer, frame)
        producers.flush()
        scripted.script("SEND", usual_then_cut)
        producers.send(producer, last)
        wait_until(lambda: not isinstance(producer.state, producer_state.Attached))
        if is_followed:
            send(producers, b"b", first=2)
            producers.flush()
        else:
            with pytest.raises(InDoubtError, match="whether the row is whole"):
                producers.flush()
        assert b"".join(values(scripted)) == b"a" + b"y" * 1000 + b"b" * is_followed
        assert producer.stored.duplicate_rows == 1

    def test_what_the_broker_had_is_counted_apart(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """-1:-1 in a receipt: not stored again, and as good as a receipt."""
        scripted.deduplicates = True
        for already in (False, True):
            producers = attach(name="n")
            producer = producers.get(TOPIC)
            assert producer.registration.last_sequence_id == (1 if already else -1)
            store(producers, b"a", b"b")
            assert producer.stored.rows == (0 if already else 2)
            assert producer.stored.duplicate_rows == (2 if already else 0)
            producers.close()
        assert values(scripted) == [b"a", b"b"]


class TestReceipts:
    def test_a_second_receipt_changes_nothing(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Each entry counts once."""
        scripted.always("SEND", twice)
        store(producers, b"a", b"b", b"c")
        assert values(scripted) == [b"a", b"b", b"c"]
        assert producers.get(TOPIC).stored.rows == 3
        assert producers.reconnects == 0

    def test_a_second_receipt_of_a_chunk_is_not_that_of_the_next(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Both have one number, but a place of their own."""
        scripted.script("SEND", twice, let_go)
        producer = producers.get(TOPIC)
        encoder = EntryEncoder(
            producer.producer_id, producer.registration.name, 200_000, chunk_bytes=300
        )
        message = bytes(number % 251 for number in range(1000))
        for frame in encoder.single(pb.MessageMetadata(), message, 0, 1):
            producers.send(producer, frame)
        producers.flush()
        assert b"".join(values(scripted)) == message

    def test_a_receipt_too_high_means_one_was_lost(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """The producer attaches anew, and sends all that is not acknowledged."""
        scripted.script("SEND", usual, unheard, usual)
        store(producers, b"a", b"b", b"c")
        assert values(scripted)[:3] == [b"a", b"b", b"c"]
        assert values(scripted)[3:] in ([b"b", b"c"], [b"b"])
        assert producers.reconnects == 1

    def test_a_receipt_of_what_was_never_sent(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """It does not stand for an entry that was."""
        scripted.script("SEND", acknowledge(77))
        store(producers, b"a")
        assert values(scripted) == [b"a"]
        assert producers.reconnects == 1

    def test_a_receipt_with_nothing_in_flight(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """It is of no account."""
        attachment = producers.get(TOPIC).attachment
        assert attachment is not None
        attachment.receipts([Receipt(0, 5, 7, 0)])
        store(producers, b"a")
        assert producers.get(TOPIC).stored.rows == 1
        assert producers.reconnects == 0


class TestRefusals:
    def test_a_damaged_entry_is_sent_again(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Three times in a row may be chance; receipts begin a new row."""
        damaged = deaf(refuse_entry("ChecksumError"))
        scripted.script("SEND", damaged, damaged, damaged, usual)
        store(producers, b"a")
        scripted.script("SEND", damaged, damaged, damaged, usual)
        store(producers, b"b", first=1)
        assert values(scripted) == [b"a", b"b"]
        assert producers.reconnects == 6

    def test_an_entry_that_is_damaged_each_time(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """After the third time again it is an error that names the topic."""
        scripted.always("SEND", refuse_entry("ChecksumError"))
        send(producers, b"a")
        with pytest.raises(BrokerError, match=f"{TOPIC}.*ChecksumError"):
            producers.flush()
        assert scripted.requests["SEND"] == 4

    def test_a_damaged_entry_that_was_overtaken(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """A broker that deduplicates takes it for stored: an error, not a lost row."""
        scripted.deduplicates = True
        scripted.answer_together(2, "SEND")
        scripted.script("SEND", refuse_entry("ChecksumError"), usual)
        send(producers, b"a", b"b")
        with pytest.raises(BrokerError, match="ChecksumError"):
            producers.flush()
        assert values(scripted) == [b"b"]

    def test_a_damaged_chunk_that_was_overtaken(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """The receipts of those after it, by the same number, are not its own."""
        producer = producers.get(TOPIC)
        encoder = EntryEncoder(
            producer.producer_id, producer.registration.name, 200_000, chunk_bytes=300
        )
        message = bytes(number % 251 for number in range(1000))
        chunks = list(encoder.single(pb.MessageMetadata(), message, 0, 1))
        held = Held()
        scripted.script("SEND", *[held] * len(chunks))
        for frame in chunks:
            producers.send(producer, frame)
        wait_until(lambda: len(held.waiting) == len(chunks))
        refuse_entry("ChecksumError")(*held.waiting.pop(0))
        held.release(len(chunks) - 1)
        producers.flush()
        assert b"".join(values(scripted)[-len(chunks) :]) == message

    @pytest.mark.parametrize("damaged", [False, True])
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("NotAllowedError", BrokerError),
            ("AuthorizationError", AuthError),
            ("InvalidTxnStatus", BrokerError),
        ],
    )
    def test_final_ones(
        self,
        scripted: ScriptedBroker,
        producers: Producers,
        code: str,
        kind: type[BrokerError],
        damaged: bool,
    ) -> None:
        """They are raised at once, with the topic, whatever was before them."""
        if damaged:
            scripted.script("SEND", deaf(refuse_entry("ChecksumError")))
        scripted.script("SEND", refuse_entry(code, "no, thanks"))
        send(producers, b"a")
        with pytest.raises(kind, match=f"{TOPIC}.*{code}.*no, thanks") as caught:
            producers.flush()
        assert isinstance(caught.value, BrokerError)
        assert caught.value.code == code
        assert scripted.requests["SEND"] == 1 + damaged

    @pytest.mark.parametrize("code", ["PersistenceError", "UnknownError"])
    def test_passing_ones(
        self, scripted: ScriptedBroker, producers: Producers, code: str
    ) -> None:
        """The producer attaches anew, and sends the same bytes in the same order."""
        scripted.script("SEND", usual, deaf(refuse_entry(code)))
        store(producers, *[b"%d" % n for n in range(10)])
        assert values(scripted) == [b"%d" % n for n in range(10)]
        assert producers.reconnects == 1
        assert producers.get(TOPIC).stored.rows == 10

    @pytest.mark.usefixtures("own_clock")
    def test_a_passing_one_that_does_not_pass(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """Tries are spaced out, and end; the last refusal is the error."""
        patience.of_pool(pool, write_s=0.5)
        producers = attach(send_timeout_s=0.0)
        scripted.always("SEND", refuse_entry("PersistenceError"))
        send(producers, b"a")
        with pytest.raises(BrokerError, match=f"{TOPIC}.*PersistenceError"):
            producers.flush()
        # 10, 20, 40, 50, 50 ... ms, half of it at least.
        assert 3 <= scripted.requests["SEND"] <= 30

    def test_a_passing_one_that_takes_its_time(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """What is tried for as long as the send timeout is over, whatever it met."""
        now_s = [1000.0]
        clock = SimpleNamespace(monotonic=lambda: now_s[0])
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(producer_state, "time", clock)
        sent = threading.Semaphore()  # the first one is
        transmit = Producers._transmit

        def counted(producers: Producers, entries: Any) -> None:
            transmit(producers, entries)
            sent.release()

        def slow(b: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            assert sent.acquire(timeout=PATIENCE_S), "nothing was sent again"
            now_s[0] += 100
            refuse_entry("PersistenceError")(b, session, c)

        producers = attach(send_timeout_s=600.0)
        scripted.always("SEND", slow)
        monkeypatch.setattr(Producers, "_transmit", counted)
        send(producers, b"a")
        with pytest.raises(BrokerError, match=f"{TOPIC}.*PersistenceError"):
            producers.flush()
        assert scripted.requests["SEND"] == 6

    def test_refusals_of_others_are_not_ours(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """What arrives for an attachment that has ended has no effect."""
        producer = producers.get(TOPIC)
        old = producer.attachment
        assert old is not None
        scripted.close_producers()
        store(producers, b"a")
        reconnects = producers.reconnects
        assert reconnects <= 1  # the news may come behind the entry
        if not reconnects:
            wait_until(lambda: producers._shared.broken)
        store(producers, b"b", first=1)
        assert producer.attachment is not old
        held = Held()
        scripted.script("SEND", held)
        send(producers, b"c", first=2)
        wait_until(lambda: held.waiting)
        refusal = SendRefused(producer.producer_id, 2, "NotAllowedError", "late")
        old.refused(refusal, BrokerError("late", code="NotAllowedError"))
        old.closed(None)
        old.receipts([Receipt(producer.producer_id, 99, 7, 0)])
        old.receipts([Receipt(producer.producer_id, 2, 7, 0)])
        assert len(producer.in_flight.pending) == 1
        held.release(1)
        producers.flush()
        assert first_ones(values(scripted)) == [b"a", b"b", b"c"]
        assert producers.reconnects == 1


def test_the_wait_for_producers_counts(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The line of a task that no broker let attach says what took so long."""
    scripted.script("PRODUCER", refuse("ServiceNotReady"))
    with Producers(pool, ProducerSettings()) as producers:
        assert producers.waited_s == 0
        producers.open([TOPIC])
        assert producers.waited_s > 0


class TestRememberedBrokers:
    def test_no_lookup_is_waited_for(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """PRODUCER goes to the broker of the last lookup, beside another lookup."""
        with Producers(pool, ProducerSettings()) as producers:
            producers.open([TOPIC])
        answer = threading.Event()
        scripted.script("LOOKUP", late(answer))
        with (
            ThreadPoolExecutor(1) as executor,
            Producers(pool, ProducerSettings()) as producers,
        ):
            opened = executor.submit(producers.open, [TOPIC])
            wait_until(lambda: scripted.requests["PRODUCER"] == 2)
            answer.set()
            opened.result(60)
            store(producers, b"a")
        assert values(scripted) == [b"a"]
        assert (scripted.requests["LOOKUP"], scripted.requests["PRODUCER"]) == (2, 2)

    @pytest.mark.parametrize("action", [silence, refuse("ServiceNotReady"), usual])
    def test_a_topic_that_moved_meanwhile(
        self, scripted: ScriptedBroker, pool: ConnectionPool, action: Action
    ) -> None:
        """Whatever the old broker answers, nothing waits for that."""
        with Producers(pool, ProducerSettings()) as producers:
            producers.open([TOPIC])
        with ScriptedBroker() as other:
            scripted.script("PRODUCER", action)
            scripted.script("LOOKUP", redirect(other.url))
            with Producers(pool, ProducerSettings()) as producers:
                producers.open([TOPIC])
                store(producers, b"a")
            assert values(other) == [b"a"]
            assert values(scripted) == []
            wait_until(lambda: scripted.requests["CLOSE_PRODUCER"] == 2)
            pool.close()

    def test_a_topic_that_moved_after_its_lookup(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Brokers say nothing then: so it is looked up again."""
        patience.of_pool(pool, unheard_s=0.05)
        with ScriptedBroker() as other:
            scripted.script("PRODUCER", silence)
            scripted.script("LOOKUP", usual, redirect(other.url))
            with Producers(pool, ProducerSettings()) as producers:
                producers.open([TOPIC])
                store(producers, b"a")
            assert values(other) == [b"a"]
            wait_until(lambda: scripted.requests["CLOSE_PRODUCER"] == 1)
            pool.close()

    @pytest.mark.parametrize("remembered", [True, False])
    def test_a_topic_that_came_back(
        self, scripted: ScriptedBroker, pool: ConnectionPool, remembered: bool
    ) -> None:
        """The lookup names the same broker, which has not heard the first PRODUCER."""
        patience.of_pool(pool, unheard_s=0.05)
        if remembered:
            with Producers(pool, ProducerSettings()) as producers:
                producers.open([TOPIC])
            wait_until(lambda: scripted.requests["CLOSE_PRODUCER"] == 1)
        scripted.script("PRODUCER", silence, silence)
        closed = scripted.requests["CLOSE_PRODUCER"]
        with Producers(pool, ProducerSettings()) as producers:
            producers.open([TOPIC])
            assert scripted.requests["CLOSE_PRODUCER"] == closed + 2
            store(producers, b"a")
        assert values(scripted) == [b"a"]
        wait_until(lambda: pool.service().is_idle, "the end of all requests")

    def test_a_lookup_that_fails(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """It is asked again."""
        with Producers(pool, ProducerSettings()) as producers:
            producers.open([TOPIC])
        scripted.script("LOOKUP", refuse("TooManyRequests"))
        with Producers(pool, ProducerSettings()) as producers:
            producers.open([TOPIC])
            store(producers, b"a")
        assert values(scripted) == [b"a"]


class TestReattaching:
    @pytest.mark.parametrize(
        "fault", [let_go, cut, usual_then_cut, deaf(unheard)], ids=lambda f: f.__name__
    )
    def test_what_is_in_flight_is_sent_again(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        own_clock: Clock,
        fault: Action,
    ) -> None:
        """The topic moved, or the connection broke, before or after storing."""
        producers = attach(send_timeout_s=1.0)
        scripted.script("SEND", usual, usual, fault)
        expected = [b"%d" % n for n in range(10)]
        send(producers, *expected)
        if fault not in (let_go, cut, usual_then_cut):
            wait_until(lambda: producers.get(TOPIC).stored.rows == 2)
            own_clock.now += 0.6
        producers.flush()
        assert first_ones(values(scripted)) == expected
        assert producers.reconnects == 1
        producer = producers.get(TOPIC)
        assert producer.stored.rows == 10

    def test_receipts_that_follow_the_brokers_goodbye_count(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """What it stored before it let go is not sent again."""
        held = Held()
        scripted.script("SEND", held, held)
        scripted.script("CLOSE_PRODUCER", usual)
        send(producers, b"a", b"b")
        wait_until(lambda: len(held.waiting) == 2)
        broker, session, first = held.waiting[0]
        attached = dict(session.producers)
        scripted.close_producers()
        wait_until(lambda: producers._shared.broken)
        session.producers.update(attached)
        usual(broker, session, first)
        wait_until(lambda: len(producers.get(TOPIC).in_flight.pending) == 1)
        producers.flush()
        assert values(scripted) == [b"a", b"b"]

    def test_a_connection_that_is_cut_in_a_frame(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Wherever that is, what is in flight goes again on the next one."""
        scripted.budgets.extend([700, 3000, 4001, 5500])
        producers = attach(send_timeout_s=NEVER_S)
        expected = [b"%03d" % n * 100 for n in range(40)]
        store(producers, *expected)
        assert not scripted.budgets
        assert first_ones(values(scripted)) == expected

    @pytest.mark.parametrize("topics", [1, 5])
    def test_connections_that_break_under_what_is_in_flight(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        pool: ConnectionPool,
        topics: int,
    ) -> None:
        """Each of them carries a little, with receipts for it, until all is there."""
        patience.of_pool(pool, write_s=PATIENCE_S)
        fragile = Fragile(40_000)
        scripted.always("SEND", fragile)
        producers = make(send_timeout_s=PATIENCE_S)
        names = [f"{TOPIC}{number}" for number in range(topics)]
        producers.open(names)
        expected = [b"%05d" % n * 1000 for n in range(60 // topics)]
        producers.send_all(
            (producers.get(name), frames(producers.get(name), *expected))
            for name in names
        )
        with fragile.answering():
            producers.flush()
        assert fragile.broken > 2
        for name in names:
            assert first_ones(values(scripted, name)) == expected

    def test_half_a_frame_is_the_end_of_a_connection(
        self,
        scripted: ScriptedBroker,
        producers: Producers,
        pool: ConnectionPool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Nobody else sends anything behind what could not be sent whole."""
        connection = producers.get(TOPIC).connection
        assert connection is not None
        transport = connection._transport
        whole = transport.send

        def half(data: bytes) -> None:
            whole(data[: len(data) // 2])
            raise TransportError("scripted: took too long")

        monkeypatch.setattr(transport, "send", half)
        send(producers, b"a")
        assert not connection.is_open
        producers.flush()
        assert values(scripted) == [b"a"]
        assert producers.get(TOPIC).connection is not connection

    def test_a_topic_that_moved(
        self, scripted: ScriptedBroker, producers: Producers, pool: ConnectionPool
    ) -> None:
        """It is looked up, redirects followed, and the rest goes to its new broker."""
        store(producers, b"a")
        with ScriptedBroker() as second, ScriptedBroker() as third:
            scripted.script("LOOKUP", redirect(second.url))
            second.script("LOOKUP", redirect(third.url, authoritative=True))
            scripted.script("SEND", let_go)
            store(producers, b"b", b"c", first=1)
            assert values(scripted) == [b"a"]
            assert values(third) == [b"b", b"c"]
            assert third.bodies["PRODUCER"][0].producer_name == "scripted-0"
            pool.close()

    @pytest.mark.usefixtures("unhurried")
    def test_a_broker_that_comes_back(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """It is tried for a while, also longer than an operation may take."""
        pool = ConnectionPool(
            client_options(
                scripted.address, operation_timeout_s=0.05, connection_timeout_s=0.05
            )
        )
        producers = attach(pool, send_timeout_s=NEVER_S)
        scripted.script("SEND", cut)
        scripted.script("CONNECT", *[silence] * 3, *[refuse("ServiceNotReady")] * 3)
        store(producers, b"a", b"b")
        assert first_ones(values(scripted)) == [b"a", b"b"]
        producers.close()
        pool.close()

    def test_a_broker_that_is_away_is_waited_for(
        self, scripted: ScriptedBroker, own_clock: Clock, producers: Producers
    ) -> None:
        """Pauses between tries are not the task's own work."""
        scripted.script("SEND", let_go)
        scripted.script("PRODUCER", *[refuse("ServiceNotReady")] * 5)
        store(producers, b"a")
        assert len(own_clock.pauses) == 5
        assert producers.waited_s == pytest.approx(sum(own_clock.pauses))

    def test_a_broker_that_stays_away(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """It is given up in the end, with what the last try met."""
        patience.of_pool(pool, write_s=0.2)
        producers = attach(send_timeout_s=0.1)
        scripted.stop_listening()
        scripted.cut()
        wait_until(lambda: producers._shared.broken)
        with pytest.raises(TransportError, match=scripted.address):
            send(producers, b"a")

    @pytest.mark.parametrize("attached", [False, True])
    def test_how_long_a_topic_that_cannot_be_opened_is_tried(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        own_clock: Clock,
        *,
        attached: bool,
    ) -> None:
        """As docs/guarantees.md says: a minute, and two where it was attached before.

        With the options as they are, and pauses that take no time.
        """
        at = ClientOptions(ServiceUrl("pulsar", (scripted.address,)))
        with ConnectionPool(at) as pool:
            producers = make(pool, send_timeout_s=30.0)
            if attached:
                producers.open([TOPIC])
                scripted.script("SEND", let_go)
                send(producers, b"a")
            scripted.always("PRODUCER", refuse("ServiceNotReady"))
            act = producers.flush if attached else lambda: producers.open([TOPIC])
            with pytest.raises(BrokerError, match="ServiceNotReady"):
                act()
            producers.close()
        tried_s = sum(own_clock.pauses)
        longest_s = max(own_clock.pauses)
        limit_s = 120 if attached else 60
        assert limit_s - 0.1 < tried_s <= limit_s + longest_s

    def test_a_broker_that_stays_away_beside_one_that_comes_and_goes(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """What another topic partition meets gives it no more time."""
        patience.of_pool(pool, write_s=0.2)
        producers = make(send_timeout_s=0.1)
        producers.open([TOPIC, OTHER])

        def attach(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            if command.producer.topic == OTHER:
                refuse("ServiceNotReady")(broker, session, command)
                return
            usual(broker, session, command)

        def store(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            usual(broker, session, command)
            broker.close_producers(TOPIC)

        scripted.always("PRODUCER", attach)
        scripted.always("SEND", store)
        scripted.close_producers(TOPIC)
        scripted.close_producers(OTHER)
        wait_until(lambda: len(producers._shared.broken) == 2)
        one, other = producers.get(TOPIC), producers.get(OTHER)
        rows = [b"a"] * 2000
        with pytest.raises(BrokerError, match=f"{OTHER}.*ServiceNotReady"):
            producers.send_all(
                [(one, frames(one, *rows)), (other, frames(other, b"b"))]
            )
        assert scripted.requests["PRODUCER"] < 2000

    def test_an_idle_producer_may_be_closed_for_ever(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """One that waits for nothing fails at nothing, however often it moves."""
        patience.of_pool(pool, write_s=0.0)
        producers = attach(send_timeout_s=0.0)
        for number in range(10):
            scripted.close_producers()
            wait_until(lambda: producers._shared.broken)
            producers.flush()
            assert producers.reconnects == number
            send(producers, b"%d" % number, first=number)
            producers.flush()
            assert producers.reconnects == number + 1
        assert values(scripted) == [b"%d" % number for number in range(10)]

    def test_an_idle_producer_that_is_closed_each_time_costs_nothing(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """Others go on meanwhile, and it attaches when it has something to send."""
        producers = make(send_timeout_s=NEVER_S)
        producers.open([TOPIC, OTHER])

        def attach(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            usual(broker, session, command)
            broker.close_producers(OTHER)

        scripted.always("PRODUCER", attach)
        scripted.close_producers(OTHER)
        wait_until(lambda: producers._shared.broken)
        stored = threading.Event()
        scripted.script("SEND", late(stored))
        send(producers, b"a")
        with ThreadPoolExecutor(1) as executor:
            flushed = executor.submit(producers.flush)
            with pytest.raises(FutureTimeoutError):
                flushed.result(10 * TICK_S)  # it looks around that often
            stored.set()
            flushed.result(PATIENCE_S)
        assert scripted.requests["PRODUCER"] == 2
        scripted.always("PRODUCER", usual)
        other = producers.get(OTHER)
        producers.send(other, *frames(other, b"b"))
        producers.flush()
        assert scripted.requests["PRODUCER"] == 3
        assert values(scripted, OTHER) == [b"b"]

    def test_one_that_waits_for_room_is_closed_each_time(
        self,
        scripted: ScriptedBroker,
        narrow: Callable[[int], ConnectionPool],
        make: Callable[..., Producers],
        own_clock: Clock,
    ) -> None:
        """It attaches again with pauses, and is given up in the end."""
        narrow_pool = narrow(1)
        patience.of_pool(narrow_pool, write_s=1.0)
        producers = make(narrow_pool, send_timeout_s=0.0)
        producers.open([TOPIC, OTHER])

        def attach(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            usual(broker, session, command)
            broker.close_producers(OTHER)

        scripted.always("PRODUCER", attach)
        scripted.script("SEND", silence)
        send(producers, b"a")
        scripted.close_producers(OTHER)
        wait_until(lambda: producers._shared.broken)
        other = producers.get(OTHER)
        with pytest.raises(TransportError, match=f"{OTHER}.*let go"):
            producers.send(other, *frames(other, b"b"))
        assert producers.reconnects <= len(own_clock.pauses) + 1

    def test_attachments_follow_each_other(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Same id, same name though the broker made it up, and one epoch more."""
        scripted.script("SEND", let_go, cut)
        store(producers, b"a")
        bodies = scripted.bodies["PRODUCER"]
        assert [body.producer_name for body in bodies] == ["", *["scripted-0"] * 2]
        assert [body.epoch for body in bodies] == [0, 1, 2]
        assert not any(body.user_provided_producer_name for body in bodies)
        assert len({body.producer_id for body in bodies}) == 1

    def test_a_name_of_ones_own(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """It is said to be one."""
        producers = attach(name="mine")
        scripted.close_producers()
        store(producers, b"a")
        for body in scripted.bodies["PRODUCER"]:
            assert body.producer_name == "mine"
            assert body.user_provided_producer_name

    def test_the_epoch_of_an_exclusive_topic_is_sent_back(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """So that who was fenced off meanwhile stays off."""
        producers = attach(access_mode=ProducerAccessMode.EXCLUSIVE)
        scripted.script("SEND", let_go)
        store(producers, b"a")
        first, second = scripted.bodies["PRODUCER"]
        assert not first.HasField("topic_epoch")
        assert second.topic_epoch == 1
        scripted.topic_epochs[TOPIC] = 2  # somebody else has it
        scripted.script("SEND", cut)
        send(producers, b"b", first=1)
        with pytest.raises(BrokerError, match=f"{TOPIC}.*ProducerFenced"):
            producers.flush()

    def test_shared_topics_have_none(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Nothing is made up."""
        scripted.script("SEND", let_go)
        store(producers, b"a")
        for body in scripted.bodies["PRODUCER"]:
            assert not body.HasField("topic_epoch")

    @pytest.mark.usefixtures("unhurried")
    def test_a_goodbye_without_an_answer_ends_the_connection(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """What was sent there must not come true once the next attachment began."""
        pool = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.1))
        producers = attach(pool, send_timeout_s=NEVER_S)
        old = producers.get(TOPIC).connection
        assert old is not None
        scripted.script("SEND", refuse_entry("UnknownError"))
        scripted.script("CLOSE_PRODUCER", silence)
        store(producers, b"a")
        assert not old.is_open
        assert values(scripted) == [b"a"]
        producers.close()
        pool.close()

    def test_what_a_fence_says_before_resending(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Its refusal is final, and nothing is sent again."""
        error = BrokerError("expired", code="TransactionNotFound")

        def refuse_all() -> None:
            raise error

        producers = attach(before_resend=refuse_all)
        scripted.script("SEND", cut)
        send(producers, b"a")
        with pytest.raises(BrokerError, match="expired"):
            producers.flush()
        assert scripted.requests["SEND"] == 1


class TestSilence:
    #: More than half of the limit, after which it attaches anew.
    LIMIT_S, WHILE_S = 0.4, 0.25

    def test_silence_is_broken_by_attaching_anew(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        own_clock: Clock,
    ) -> None:
        """The old attachment is ended first; then everything goes again."""
        producers = attach(send_timeout_s=self.LIMIT_S)
        scripted.script("SEND", usual, silence, silence)
        send(producers, b"a", b"b", b"c")
        wait_until(lambda: producers.get(TOPIC).stored.rows == 1)
        own_clock.now += self.WHILE_S
        producers.flush()
        assert values(scripted) == [b"a", b"b", b"c"]
        assert scripted.requests["CLOSE_PRODUCER"] == 1
        assert producers.reconnects == 1

    def test_a_silent_broker_is_given_up(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        own_clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The error names the topic, the broker, the rows, the limit and the option."""
        check = Producers._check_silence

        def check_later(producers: Producers) -> None:
            own_clock.now += self.WHILE_S / 10
            check(producers)

        monkeypatch.setattr(Producers, "_check_silence", check_later)
        producers = attach(send_timeout_s=self.LIMIT_S)
        scripted.always("SEND", silence)
        send(producers, b"a", b"b")
        with pytest.raises(SendTimeoutError) as caught:
            producers.flush()
        for part in (TOPIC, scripted.address, "2 rows", "0.4 s", "sendTimeoutMs"):
            assert part in str(caught.value)
        assert caught.value.topic_partition == TOPIC
        producers.close()  # it has had all of them by then
        assert scripted.requests["SEND"] == 4

    def test_receipts_of_others_do_not_hide_it(
        self,
        scripted: ScriptedBroker,
        narrow: Callable[[int], ConnectionPool],
        make: Callable[..., Producers],
        own_clock: Clock,
    ) -> None:
        """Each topic has a clock of its own."""
        producers = make(narrow(300), send_timeout_s=self.LIMIT_S)
        producers.open([TOPIC, OTHER])
        silent = producers.get(TOPIC).producer_id

        def by_topic(b: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            if c.send.producer_id != silent:
                usual(b, session, c)

        def send_for_ever() -> None:
            other = producers.get(OTHER)
            for number in itertools.count():
                producers.send(other, *frames(other, b"x" * 100, first=number))
                own_clock.now += self.WHILE_S / 10

        scripted.always("SEND", by_topic)
        send(producers, b"a")
        with pytest.raises(SendTimeoutError, match=TOPIC):
            send_for_ever()
        assert len(values(scripted, OTHER)) > 2

    def test_a_slow_broker_is_waited_for(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        own_clock: Clock,
    ) -> None:
        """As long as it stores something, the rest has time."""
        held = Held()
        scripted.always("SEND", held)
        producers = attach(send_timeout_s=1.0)
        send(producers, *[b"%d" % n for n in range(10)])
        wait_until(lambda: len(held.waiting) == 10)
        with ThreadPoolExecutor(1) as executor:
            over = executor.submit(producers.flush)
            for stored in range(10):
                assert not over.done()
                own_clock.now += 0.3
                held.release(1)
                wait_until(
                    lambda stored=stored: producers.get(TOPIC).stored.rows == stored + 1
                )
            over.result(60)
        assert values(scripted) == [b"%d" % n for n in range(10)]
        assert producers.reconnects == 0

    def test_no_limit(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """With 0 a receipt may take as long as it likes."""
        released = threading.Event()
        producers = attach(send_timeout_s=0.0)
        scripted.script("SEND", late(released))
        send(producers, b"a")
        with ThreadPoolExecutor(1) as executor:
            over = executor.submit(producers.flush)
            for _ in range(20):
                producers._check_silence()
            assert not over.done()
            released.set()
            over.result(60)
        assert producers.reconnects == 0


class TestResend:
    def test_never(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """What was in flight is dropped, what comes later is sent."""
        producers = attach(resend=Resend.NEVER, send_timeout_s=NEVER_S)
        scripted.script("SEND", usual, cut)
        store(producers, b"a")
        store(producers, b"b", first=1)
        store(producers, b"c", first=2)
        assert values(scripted) == [b"a", b"c"]
        assert producers.get(TOPIC).stored.rows == 2

    def test_in_doubt(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Nothing is sent twice to a broker that would store it twice."""
        producers = attach(resend=Resend.IF_DEDUPLICATED, send_timeout_s=NEVER_S)
        scripted.script("SEND", usual, usual_then_cut)

        def write() -> None:
            send(producers, b"a", b"b", b"c")  # the last one may meet it already
            producers.flush()

        with pytest.raises(InDoubtError, match=f"{TOPIC}: . rows.*connec") as caught:
            write()
        assert caught.value.rows in (1, 2, 3)  # receipts, too, may be lost
        assert values(scripted) == [b"a", b"b"]
        with pytest.raises(InDoubtError):  # from now on
            send(producers, b"d", first=3)

    def test_nothing_in_flight_is_no_doubt(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """A producer that waits for no receipt comes back, and goes on."""
        producers = attach(resend=Resend.IF_DEDUPLICATED)
        store(producers, b"a")
        scripted.cut()
        wait_until(lambda: producers._shared.broken)
        store(producers, b"b", first=1)
        assert values(scripted) == [b"a", b"b"]

    def test_what_was_never_sent_is_no_doubt(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """It only waited for a producer that was broken already."""
        producers = attach(resend=Resend.IF_DEDUPLICATED)
        for number in range(20):
            scripted.close_producers()
            wait_until(lambda: producers._shared.broken)
            store(producers, b"%d" % number, first=number)
        assert values(scripted) == [b"%d" % n for n in range(20)]

    def test_a_broker_that_deduplicates_leaves_no_doubt(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """It gets everything again, and keeps what it has not."""
        scripted.deduplicates = True
        producers = attach(resend=Resend.IF_DEDUPLICATED, send_timeout_s=NEVER_S)
        scripted.script("SEND", usual, usual, usual_then_cut)
        expected = [b"%d" % n for n in range(10)]
        store(producers, *expected)
        assert values(scripted) == expected

    def test_nor_where_it_has_the_very_first_entry_only(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Number 0 is a number: a broker that knows it deduplicates."""
        scripted.deduplicates = True
        producers = attach(resend=Resend.IF_DEDUPLICATED, send_timeout_s=NEVER_S)
        scripted.script("SEND", usual_then_cut)
        store(producers, b"a")
        assert values(scripted) == [b"a"]

    def test_what_was_known_at_first_stays(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """What a producer sent itself is not what the broker knew before."""
        scripted.deduplicates = True
        producers = attach(send_timeout_s=NEVER_S)
        store(producers, b"a", b"b")
        scripted.close_producers()
        wait_until(lambda: producers._shared.broken)
        store(producers, b"c", first=2)
        assert len(scripted.bodies["PRODUCER"]) == 2
        assert producers.get(TOPIC).registration.last_sequence_id == -1


@pytest.mark.usefixtures("unhurried")
class TestClosing:
    def test_names_are_free_afterwards(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """The answer is awaited; who comes next need not wait."""
        for _ in range(10):
            producers = attach(name="mine")
            producers.close()
        assert scripted.requests["PRODUCER"] == 10

    def test_entries_in_flight_are_stored_first(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Who does not flush still gives the broker time to take what was sent."""
        producers = attach()
        send(producers, *[b"x"] * 100)
        producers.close()
        assert len(values(scripted)) == 100

    def test_a_broker_that_does_not_answer(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """Closing ends nevertheless, and is over with a broken connection, too."""
        patience.of_pool(pool, close_s=0.1)
        producers = attach()
        scripted.always("SEND", silence)
        scripted.script("CLOSE_PRODUCER", silence)
        send(producers, b"a")
        producers.close()
        assert not producers.all
        producers.close()
        scripted.cut()
        producers.close()

    def test_after_a_cut(self, scripted: ScriptedBroker, producers: Producers) -> None:
        """There is nobody to say goodbye to."""
        send(producers, b"a")
        scripted.cut()
        wait_until(lambda: producers._shared.broken)
        producers.close()
        assert not producers.all
        wait_until(lambda: not scripted.sessions, "the end of the connection")
        assert scripted.requests["CLOSE_PRODUCER"] == 0
        assert scripted.requests["PRODUCER"] == 1


class TestFinalErrors:
    def test_they_come_out_of_every_call(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Once an entry is refused for good, nothing else is sent or promised."""
        scripted.script("SEND", refuse_entry("NotAllowedError"))
        send(producers, b"a")
        for call in (
            producers.flush,
            producers.flush,
            lambda: send(producers, b"b", first=1),
            lambda: producers.open([OTHER]),
        ):
            with pytest.raises(BrokerError, match="NotAllowedError"):
                call()
        assert scripted.requests["SEND"] == 1
        assert scripted.requests["PRODUCER"] == 1
        producers.close()
        wait_until(lambda: not scripted.producers, "the end of producers")

    def test_also_those_of_a_call(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """A send timeout is not forgotten by a receipt that comes after all."""
        held = Held()
        scripted.always("SEND", held)
        producers = attach(send_timeout_s=0.2)
        send(producers, b"a")
        with pytest.raises(SendTimeoutError):
            producers.flush()
        scripted.always("SEND", usual)
        with pytest.raises(SendTimeoutError):
            producers.flush()
        with pytest.raises(SendTimeoutError):
            send(producers, b"b", first=1)

    def test_final_while_attaching_anew(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """A topic that is gone or forbidden meanwhile."""
        scripted.script("SEND", let_go)
        scripted.script("PRODUCER", refuse("TopicNotFound"))
        send(producers, b"a")
        for _ in range(2):
            with pytest.raises(TopicNotFoundError, match=TOPIC):
                producers.flush()
        assert scripted.requests["PRODUCER"] == 2


# -- any faults at all -----------------------------------------------------------------


def attached(action: Action) -> Action:
    """Only for producers that are; what others send is dropped as usual."""

    def maybe(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        is_attached = session.producers.get(c.send.producer_id) is not None
        (action if is_attached else usual)(broker, session, c)

    return maybe


FAULTS: dict[str, Action] = {
    "usual": usual,
    "twice": attached(twice),
    "unheard": attached(unheard),
    "cut": cut,
    "usual then cut": attached(usual_then_cut),
    "let go": attached(let_go),
    "unheard and deaf": attached(deaf(unheard)),
    "refused and deaf": attached(deaf(refuse_entry("PersistenceError"))),
    "wrong receipt and deaf": attached(deaf(acknowledge(1 << 40))),
    "silent and deaf": attached(deaf(silence)),
}

#: Of attaching, and of looking up.
TROUBLE: dict[str, Action] = {
    "usual": usual,
    "refused": refuse("ServiceNotReady"),
    "cut": cut,
    "usual then cut": usual_then_cut,
}


@st.composite
def sends(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """Values of different sizes for two topics; each one is there once."""
    sizes = draw(
        st.lists(
            st.tuples(st.sampled_from([TOPIC, OTHER]), st.sampled_from([4, 300, 4000])),
            min_size=1,
            max_size=30,
        )
    )
    return [
        (topic, b"%03d" % number + b"." * size)
        for number, (topic, size) in enumerate(sizes)
    ]


class TestAnyFaults:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Attaches anew after a fifth of a second, but does not give up so soon."""
        patience.usual(monkeypatch, silences=300)

    def test_one_breaks_alone_while_others_send_again(self) -> None:
        """What it had under way is not waited for by those on the same connection."""
        with ScriptedBroker() as broker:
            broker.budgets.extend([3444, 4391, 321])
            options = client_options(broker.address, memory_limit_bytes=5000)
            pool = ConnectionPool(options)
            producers = Producers(
                pool, ProducerSettings(name="mine", send_timeout_s=60.0)
            )
            sizes = [4000, 300, 4, 300, 300, 4000]
            topics = [OTHER, OTHER, OTHER, TOPIC, OTHER, TOPIC]
            faults = ["usual then cut", "unheard", "unheard", "wrong receipt and deaf"]
            try:
                producers.open([TOPIC, OTHER])
                broker.script("SEND", *[FAULTS[fault] for fault in faults])
                broker.script("PRODUCER", cut, cut, usual_then_cut)
                broker.script("LOOKUP", usual_then_cut)
                for number, (topic, size) in enumerate(zip(topics, sizes, strict=True)):
                    producer = producers.get(topic)
                    for frame in frames(producer, b"." * size, first=number):
                        producers.send(producer, frame)
                producers.flush()
                assert producers._shared.in_flight_bytes == 0
            finally:
                producers.close()
                pool.close()

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.function_scoped_fixture,
        ],
    )
    @given(
        what=sends(),
        faults=st.lists(st.sampled_from(sorted(FAULTS)), max_size=12),
        attaching=st.lists(st.sampled_from(sorted(TROUBLE)), max_size=4),
        looking_up=st.lists(st.sampled_from(sorted(TROUBLE)), max_size=3),
        budgets=st.lists(st.integers(300, 9000), max_size=3),
        deduplicates=st.booleans(),
        window_bytes=st.sampled_from([1, 5000, 1 << 20]),
        name=st.sampled_from(["", "mine"]),
    )
    def test_every_entry_is_stored_and_in_order(
        self,
        what: list[tuple[str, bytes]],
        faults: list[str],
        attaching: list[str],
        looking_up: list[str],
        budgets: list[int],
        deduplicates: bool,
        window_bytes: int,
        name: str,
    ) -> None:
        """At least once; exactly once where the broker deduplicates."""
        with ScriptedBroker() as broker:
            broker.deduplicates = deduplicates
            broker.budgets.extend(budgets)
            pool = ConnectionPool(
                client_options(broker.address, memory_limit_bytes=window_bytes)
            )
            producers = Producers(
                pool, ProducerSettings(name=name, send_timeout_s=60.0)
            )
            try:
                producers.open([TOPIC, OTHER])
                broker.script("SEND", *[FAULTS[fault] for fault in faults])
                broker.script("PRODUCER", *[TROUBLE[one] for one in attaching])
                broker.script("LOOKUP", *[TROUBLE[one] for one in looking_up])
                for number, (topic, value) in enumerate(what):
                    producer = producers.get(topic)
                    for frame in frames(producer, value, first=number):
                        producers.send(producer, frame)
                producers.flush()
                in_flight = producers._shared.in_flight_bytes
                done = [producers.get(topic) for topic in (TOPIC, OTHER)]
            finally:
                producers.close()
                pool.close()
            for topic in (TOPIC, OTHER):
                expected = [value for target, value in what if target == topic]
                stored = values(broker, topic)
                assert first_ones(stored) == expected
                if deduplicates:
                    assert stored == expected
            assert in_flight == 0
            assert sum(p.stored.rows + p.stored.duplicate_rows for p in done) == len(
                what
            )


class TestSchemas:
    """Who announces a schema says its version in all that is sent."""

    TEXT = SchemaInfo(SchemaType.STRING)
    OLD = bytes(7) + b"\0"
    NEW = bytes(7) + b"\1"

    @pytest.fixture
    def typed(self, make: Callable[..., Producers]) -> Producers:
        """Attached with a schema."""
        producers = make(send_timeout_s=NEVER_S)
        producers.open([TOPIC, OTHER], self.TEXT)
        return producers

    def test_one_version(self, scripted: ScriptedBroker, typed: Producers) -> None:
        """It is registered once, for all partitions, and kept on other connections."""
        assert [one.registration.schema_version for one in typed.all] == [self.OLD] * 2
        assert len(scripted.schemas["persistent://public/default/t"]) == 1
        producer = typed.get(TOPIC)
        assert producer.encoder().schema_version == self.OLD
        scripted.script("SEND", cut)
        typed.send(producer, producer.plain_entry(b"a"))
        typed.flush()
        assert typed.reconnects
        (entry,) = scripted.topics[TOPIC]
        assert entry.metadata.schema_version == self.OLD
        assert producer.registration.schema_version == self.OLD

    def test_none(self, producers: Producers) -> None:
        """Without a schema nothing says a version."""
        assert producers.get(TOPIC).encoder().schema_version == b""
        frame = producers.get(TOPIC).plain_entry(b"a")
        assert self.OLD not in frame.data

    def test_schemas_that_were_deleted(
        self, scripted: ScriptedBroker, typed: Producers
    ) -> None:
        """What has no receipt says a version that means nothing any more."""
        producer = typed.get(TOPIC)
        scripted.script("SEND", deaf(let_go))
        typed.send(producer, producer.plain_entry(b"a"))
        scripted.delete_schema(TOPIC)
        with pytest.raises(SchemaError, match=f"{TOPIC}.*schemas were deleted"):
            typed.flush()

    def test_a_schema_that_is_refused(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """It is not tried again, though one of the codes is most often transient."""
        avro = "org.apache.avro.AvroTypeException: Invalid default for field a"
        for code, text in (("IncompatibleSchema", "no"), ("UnknownError", avro)):
            before = scripted.requests["PRODUCER"]
            scripted.always("PRODUCER", refuse(code, text))
            with pytest.raises(BrokerError, match=text):
                make().open([TOPIC], self.TEXT)
            assert scripted.requests["PRODUCER"] == before + 1
