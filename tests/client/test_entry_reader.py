# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import entry_reader as module
from pulsar_spark.client.entry_reader import EntryReader
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import (
    CorruptEntryError,
    DataLossError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions, TxnId
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.permits import Learnt, Permits
from pulsar_spark.wire.protocol import Delivery
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    client_options,
    cut,
    garbage,
    late,
    message_frame,
    numbered,
    refuse,
    silence,
    single,
    usual,
)
from tests.support.settings import reader_settings
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_spark.wire.entries import StoredEntry
    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t"
MIB = 1 << 20


@pytest.fixture
def start(scripted: ScriptedBroker) -> Iterator[Callable[..., EntryReader]]:
    """Makes a reader of TOPIC; it ends with the test."""
    made: list[tuple[EntryReader, ConnectionPool]] = []

    def make(
        limits: dict[str, Any] | None = None,
        start: MessageId = EARLIEST,
        on_start: Any = None,
        **settings: Any,
    ) -> EntryReader:
        pool = ConnectionPool(client_options(scripted.address, **(limits or {})))
        given = reader_settings(**settings)
        reader = EntryReader(pool, TOPIC, start, given, on_start=on_start)
        made.append((reader, pool))
        return reader

    yield make
    for reader, pool in made:
        reader.close()
        pool.close()


def take(reader: EntryReader, count: int) -> list[int]:
    """The entry ids of the next entries."""
    return [next_of(reader).entry_id for _ in range(count)]


def next_of(reader: EntryReader) -> StoredEntry:
    """The next entry; there must be one."""
    stored = reader.receive(60)
    assert stored is not None
    return stored


def queued_bytes(reader: EntryReader) -> int:
    """What waits to be taken."""
    assert reader._consumer is not None
    return reader._consumer._queued_bytes


def last_start(scripted: ScriptedBroker) -> tuple[int, int]:
    """Where the last SUBSCRIBE asked to start."""
    body = scripted.bodies["SUBSCRIBE"][-1]
    return commands.from_message_id_data(body.start_message_id).position


class TestDelivery:
    def test_entries_come_in_order(self, scripted: ScriptedBroker, start: Any) -> None:
        """All of them, once; then nothing until there is more."""
        scripted.add_topic(TOPIC, numbered(50, 10))
        reader = start()
        assert take(reader, 50) == list(range(50))
        assert reader.receive(0.05) is None
        assert reader.position == (LEDGER, 49)
        scripted.append(TOPIC, single(b"more"))
        assert take(reader, 1) == [50]
        assert reader.reconnects == 0

    def test_the_subscription_leaves_no_trace(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Not durable, creates no topic, and is closed."""
        scripted.add_topic(TOPIC, [single(b"a")])
        reader = start()
        take(reader, 1)
        reader.close()
        (body,) = scripted.bodies["SUBSCRIBE"]
        assert body.durable is False
        assert body.force_topic_creation is False
        wait_until(lambda: scripted.consumers == [])
        assert scripted.requests["CLOSE_CONSUMER"] == 1

    @pytest.mark.parametrize("queue", [1, 2, 7, 1000])
    @pytest.mark.parametrize("per_batch", [1, 3, 100, 2500])
    def test_permits_never_stall(
        self, scripted: ScriptedBroker, start: Any, queue: int, per_batch: int
    ) -> None:
        """Whatever the size of batches beside `receiverQueueSize`."""
        scripted.add_topic(TOPIC, numbered(40, per_batch))
        reader = start(receiver_queue_messages=queue)
        assert take(reader, 40) == list(range(40))

    @pytest.mark.parametrize(
        ("round_trip_s", "queue", "most"),
        [
            (0.1, None, 25_000),
            (0.0001, None, 10_000),
            (math.inf, None, 10_000),
            (0.1, 300, 300),
        ],
    )
    def test_the_window_follows_the_link(
        self,
        scripted: ScriptedBroker,
        start: Any,
        monkeypatch: pytest.MonkeyPatch,
        round_trip_s: float,
        queue: int | None,
        most: int,
    ) -> None:
        """By the speed of the reader and the shortest round trip of its connection."""
        scripted.add_topic(TOPIC, numbered(5, 10))
        reader = start(receiver_queue_messages=queue)
        take(reader, 5)
        monkeypatch.setattr(
            type(reader._consumer), "round_trip_s", round_trip_s, raising=False
        )
        reader._paced = 0.0, 0
        times = iter([1000.0, 1000.01, 1001.0, 1002.0])
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=times.__next__))
        for arrived in (0, 0, 100_000, 50_000):
            reader._permits._arrived += arrived
            reader._look_at_pace()
        assert reader._permits.most_messages == most

    def test_permits_never_stall_when_sizes_change(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Batches of many and of one, of small and of large messages, mixed."""
        sizes = [(1, 10), (2000, 10), (1, 2 * MIB), (50, 1000), (1, 0), (300, 5000)]
        entries = [
            entry
            for count, size in sizes * 4
            for entry in numbered(1, count, size_bytes=size)
        ]
        scripted.add_topic(TOPIC, entries)
        reader = start({"memory_limit_bytes": 4 * MIB}, receiver_queue_messages=3)
        assert take(reader, len(entries)) == list(range(len(entries)))

    def test_a_damaged_entry_is_named(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """What comes before it is still handed on."""
        good = single(b"value")
        bad = StoredFrame(good.metadata, good.payload, 1, is_damaged=True)
        scripted.add_topic(TOPIC, [good, good, bad, good])
        reader = start()
        assert take(reader, 2) == [0, 1]
        with pytest.raises(CorruptEntryError, match=f"{LEDGER}:2 of {TOPIC}") as caught:
            reader.receive(60)
        assert "checksum" in str(caught.value)
        assert caught.value.message_id == f"{LEDGER}:2"


class TestMemory:
    LIMIT = 8 * MIB

    @pytest.fixture
    def reader(self, scripted: ScriptedBroker, start: Any) -> EntryReader:
        """Has learnt of small messages; then large ones are on the way."""
        small = [single(b"." * 100)] * 3000
        scripted.add_topic(TOPIC, small + numbered(64, 1, MIB))
        reader: EntryReader = start(
            {"memory_limit_bytes": self.LIMIT}, receiver_queue_messages=2000
        )
        take(reader, 2900)
        return reader

    def test_the_queue_is_bounded_by_bytes(
        self, scripted: ScriptedBroker, reader: EntryReader
    ) -> None:
        """When sizes jump from 100 B to 1 MiB, the socket is left unread for a while.

        What was granted for small messages cannot be called back. Half of the limit may
        wait, and what one look at the socket brings; the rest stays with the broker.
        """
        limit = self.LIMIT // 2
        wait_until(lambda: queued_bytes(reader) >= limit, "a full queue")
        sent = -1
        while sent != (sent := scripted.consumers[0].next_entry):
            threading.Event().wait(0.2)  # until the broker gets stuck
        assert queued_bytes(reader) <= limit + 2 * MIB
        assert sent < 3064, "the broker could send everything"
        assert scripted.permits[TOPIC] > 3000
        assert take(reader, 164) == list(range(2900, 3064))
        assert reader.reconnects == 0

    def test_a_full_queue_lets_go_of_its_connection(
        self, scripted: ScriptedBroker, reader: EntryReader
    ) -> None:
        """Who closes the reader frees the thread that waits for room."""
        connection = reader._pool.service()
        wait_until(lambda: queued_bytes(reader) >= self.LIMIT // 2)
        reader.close()
        connection.ask(commands.lookup(TOPIC), 60)
        assert scripted.consumers == []

    def test_a_full_queue_does_not_keep_an_answer_back(
        self, scripted: ScriptedBroker, reader: EntryReader
    ) -> None:
        """What waits is still handed on, and what had no room comes again."""
        wait_until(lambda: queued_bytes(reader) >= self.LIMIT // 2)
        assert reader.positions() is not None
        assert take(reader, 164) == list(range(2900, 3064))
        assert reader.reconnects == 1

    def test_a_flood_behind_a_start_that_has_to_be_asked_about(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Another partition's messages were small, and these are large."""
        new_ledger = [
            replace(entry, position=(LEDGER + 1, number))
            for number, entry in enumerate(numbered(32, 1, MIB))
        ]
        scripted.add_topic(TOPIC, [single(b"read before"), *new_ledger])
        reader: EntryReader = start(
            {"memory_limit_bytes": self.LIMIT},
            MessageId(LEDGER, 1),
            lambda _wanted, _found: None,
        )
        reader._permits = Permits(1000, self.LIMIT // 4, Learnt(1000, 100.0))
        assert take(reader, 32) == list(range(32))

    def test_a_full_queue_does_not_outlive_its_connection(
        self, scripted: ScriptedBroker, reader: EntryReader
    ) -> None:
        """A close from elsewhere ends the thread; the reader comes back by itself."""
        wait_until(lambda: queued_bytes(reader) >= self.LIMIT // 2)
        reader._pool.close()
        assert take(reader, 164) == list(range(2900, 3064))
        assert reader.reconnects == 1

    def test_entries_count_with_what_they_hold(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """An entry of a few bytes takes hundreds, and what came in its frame."""
        scripted.add_topic(TOPIC)
        reader: EntryReader = start({"memory_limit_bytes": 1 << 20})
        assert reader.receive(0.01) is None
        consumer = reader._consumer
        assert consumer is not None
        empty = Delivery(1, LEDGER, 0, 0, (), memoryview(b""))
        padded = Delivery(1, LEDGER, 0, 0, (), memoryview(bytes(50_000))[:0])
        acked = Delivery(1, LEDGER, 0, 0, (1,) * 10_000, memoryview(b""))
        consumer.deliver([empty] * 10)
        assert 5_000 <= queued_bytes(reader) <= 10_000
        consumer.deliver([padded])
        assert 55_000 <= queued_bytes(reader) <= 65_000
        consumer.deliver([acked])
        assert 400_000 <= queued_bytes(reader) <= 500_000
        while reader._consumer and consumer._queue:
            consumer.take(0)
        assert queued_bytes(reader) == 0

    def test_entries_of_one_buffer_count_it_once(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Large ones are not copied: each holds all that was read with it."""
        scripted.add_topic(TOPIC)
        reader: EntryReader = start()
        assert reader.receive(0.01) is None
        consumer = reader._consumer
        assert consumer is not None
        for _ in range(2):
            buffer = memoryview(bytearray(500_000)).toreadonly()
            some = [
                Delivery(1, LEDGER, 0, 0, (), buffer[n : n + 70_000])
                for n in range(0, 210_000, 70_000)
            ]
            consumer.deliver(some[:1])
            consumer.deliver(some[1:])
        assert 1_000_000 <= queued_bytes(reader) <= 1_010_000

    def test_a_flood_of_empty_entries_is_held_up(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """The socket is left unread, so the rest stays with the broker."""
        scripted.add_topic(TOPIC, [single(b"")] * 20_000)
        reader: EntryReader = start(
            {"memory_limit_bytes": 2 << 20}, receiver_queue_messages=20_000
        )
        take(reader, 1)
        assert reader._consumer is not None
        reader._consumer.grant(20_000)
        wait_until(lambda: queued_bytes(reader) >= 1 << 20, "a full queue")
        assert len(reader._consumer._queue) < 15_000
        assert take(reader, 19_999) == list(range(1, 20_000))


class TestComingBack:
    @pytest.mark.parametrize("how", ["close_consumers", "cut"])
    def test_it_resumes_right_after_the_last_entry(
        self, scripted: ScriptedBroker, start: Any, how: str
    ) -> None:
        """The broker sends the last entry again, whole: it is dropped."""
        scripted.add_topic(TOPIC, numbered(10, 5))
        reader = start(receiver_queue_messages=5)
        assert take(reader, 4) == [0, 1, 2, 3]
        getattr(scripted, how)()
        assert take(reader, 6) == [4, 5, 6, 7, 8, 9]
        assert reader.reconnects == 1
        assert last_start(scripted)[0] == LEDGER
        assert last_start(scripted)[1] >= 3

    def test_again_and_again(self, scripted: ScriptedBroker, start: Any) -> None:
        """Each entry once, whatever breaks in between."""
        scripted.add_topic(TOPIC, numbered(60, 5))
        reader = start(receiver_queue_messages=5)
        seen = []
        for turn in range(20):
            seen += take(reader, 3)
            (scripted.cut if turn % 2 else scripted.close_consumers)()
        assert seen == list(range(60))
        assert reader.reconnects > 5

    def test_before_the_first_entry(self, scripted: ScriptedBroker, start: Any) -> None:
        """Nothing was handed on yet, so it starts where it should have."""
        scripted.add_topic(TOPIC, numbered(10, 5))
        scripted.script("FLOW", cut)
        reader = start(start=MessageId(LEDGER, 6))
        assert take(reader, 4) == [6, 7, 8, 9]
        assert last_start(scripted) == (LEDGER, 6)

    @pytest.mark.parametrize("command", ["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"])
    @pytest.mark.parametrize(
        "action",
        [
            refuse("ServiceNotReady"),
            refuse("ConsumerBusy"),
            refuse("UnknownError"),
            cut,
        ],
    )
    def test_trouble_on_the_way_back(
        self, scripted: ScriptedBroker, start: Any, command: str, action: Any
    ) -> None:
        """Each step may fail for a while; nothing is left at the broker of it."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        scripted.script(command, action, action)
        # That start is no entry's, so the broker is asked about it.
        nowhere = MessageId(LEDGER, -1)
        reader = start(start=nowhere, on_start=lambda _wanted, _found: None)
        assert take(reader, 4) == [0, 1, 2, 3]
        assert scripted.requests[command] > 2
        wait_until(lambda: len(scripted.consumers) == 1)

    def test_what_an_old_connection_brought_is_not_granted_again(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Reader and broker agree on the permits, also after a question came between.

        A broker that has more than the reader knows of sends more than memory is for.
        """
        scripted.add_topic(TOPIC, numbered(40, 10))
        reader = start()
        take(reader, 3)
        scripted.cut()
        wait_until(lambda: reader.positions() is not None)
        assert take(reader, 37) == list(range(3, 40))
        assert reader.receive(0.01) is None
        wait_until(lambda: len(scripted.consumers) == 1, "the end of the old one")
        (consumer,) = scripted.consumers
        wait_until(lambda: consumer.balance == reader._permits.balance)

    def test_a_topic_that_is_gone_is_final(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """The error names it."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        reader = start()
        take(reader, 4)
        del scripted.topics[TOPIC]
        scripted.close_consumers()
        with pytest.raises(TopicNotFoundError, match=TOPIC):
            reader.receive(60)

    @pytest.mark.usefixtures("clock")
    def test_an_outage_that_lasts(self, scripted: ScriptedBroker, start: Any) -> None:
        """After `pollTimeoutMs` the error names topic, option and last reason."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        reader = start(poll_timeout_s=0.3)
        take(reader, 4)
        scripted.stop_listening()
        scripted.cut()
        with pytest.raises(ReadTimeoutError, match=f"{TOPIC}.*pollTimeoutMs") as caught:
            reader.receive(60)
        assert "refused" in str(caught.value)

    def test_a_pause_of_ours_is_no_outage(
        self, scripted: ScriptedBroker, start: Any, clock: Clock
    ) -> None:
        """The time Spark spent on rows does not count against `pollTimeoutMs`."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        reader = start(poll_timeout_s=0.3)
        take(reader, 2)
        clock.now += 0.5
        scripted.cut()
        scripted.script("LOOKUP", refuse("ServiceNotReady"))
        assert take(reader, 2) == [2, 3]

    def test_a_late_subscribe_leaves_nothing(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """One that was given up is closed before the next is tried."""
        answer = threading.Event()
        scripted.add_topic(TOPIC, numbered(2, 1))
        scripted.script("SUBSCRIBE", late(answer))
        reader = start({"operation_timeout_s": 0.1})
        assert take(reader, 2) == [0, 1]
        answer.set()
        first = scripted.bodies["SUBSCRIBE"][0].consumer_id
        assert first in {b.consumer_id for b in scripted.bodies["CLOSE_CONSUMER"]}

    def test_a_start_that_will_not_do(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """What the callback raises comes out, and the consumer goes."""
        scripted.add_topic(TOPIC, [replace(single(b"a"), position=(LEDGER, 2))])
        asked = []

        def refuse_start(wanted: MessageId, found: Any) -> None:
            asked.append((wanted, found.last))
            raise DataLossError("gone", topic_partition=TOPIC, wanted="", available="")

        reader = start(start=MessageId(LEDGER, 1), on_start=refuse_start)
        with pytest.raises(DataLossError, match="gone"):
            reader.receive(60)
        assert asked[0][0] == MessageId(LEDGER, 1)
        wait_until(lambda: not scripted.consumers)

    @pytest.mark.parametrize(
        ("wanted", "asks", "checks"),
        [
            (EARLIEST, 0, 0),  # wherever that is
            (MessageId(LEDGER, 2), 0, 0),
            (MessageId(LEDGER, 2, batch_index=2), 0, 0),
            (MessageId(LEDGER, 9), 1, 0),  # nothing comes, and nothing is gone
            (MessageId(LEDGER, 0), 2, 1),  # what comes first is another
            # Its last chunk proves nothing about the first.
            (MessageId(LEDGER, 2, first_chunk=MessageId(LEDGER, 0)), 1, 1),
        ],
    )
    def test_the_first_entry_proves_the_start(
        self,
        scripted: ScriptedBroker,
        start: Any,
        monkeypatch: pytest.MonkeyPatch,
        wanted: MessageId,
        asks: int,
        checks: int,
    ) -> None:
        """The broker is only asked about a start that may be gone."""
        patience.usual(monkeypatch, proof_s=0.1 if asks else 60)
        entries = [replace(single(b"a"), position=(LEDGER, n)) for n in (2, 3)]
        scripted.add_topic(TOPIC, entries)
        checked: list[MessageId] = []
        reader = start(start=wanted, on_start=lambda at, _found: checked.append(at))
        reader.receive(0.1)
        assert checked == [wanted] * checks
        assert scripted.requests["GET_LAST_MESSAGE_ID"] == asks

    def test_a_start_at_aborted_entries(
        self, scripted: ScriptedBroker, start: Any
    ) -> None:
        """Brokers pass over them as if they were read: they are not gone."""
        txn = TxnId(0, 1)
        bits = {"txnid_most_bits": txn.most, "txnid_least_bits": txn.least}
        gone = [single(b"gone", **bits), single(b"gone", **bits)]
        scripted.add_topic(TOPIC, [*gone, single(b"b")])
        scripted.aborted.add(txn)
        found: list[TopicPositions] = []
        reader = start(
            start=MessageId(LEDGER, 0), on_start=lambda _at, at: found.append(at)
        )
        assert take(reader, 1) == [2]
        assert [positions.before.position for positions in found] == [(LEDGER, -1)]
        wait_until(lambda: len(scripted.consumers) == 1)


class TestThePlannedBroker:
    """A broker that the driver knows saves the lookup, wherever it still is right."""

    @pytest.fixture
    def planned(self, scripted: ScriptedBroker) -> Iterator[Callable[..., EntryReader]]:
        """Makes a reader that is told who serves the topic."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        made: list[EntryReader] = []
        with ConnectionPool(client_options(scripted.address)) as pool:

            def make(address: str, proxied: str | None = None) -> EntryReader:
                served_by = BrokerAddress(address, proxied)
                reader = EntryReader(
                    pool,
                    TOPIC,
                    MessageId(LEDGER, 0),
                    reader_settings(),
                    served_by=served_by,
                )
                made.append(reader)
                return reader

            yield make
            for reader in made:
                reader.close()

    def test_no_lookup(self, scripted: ScriptedBroker, planned: Any) -> None:
        """Nothing else is asked: connect, subscribe, read."""
        assert take(planned(scripted.address), 4) == [0, 1, 2, 3]
        assert set(scripted.requests) == {"CONNECT", "SUBSCRIBE", "FLOW"}

    def test_through_a_proxy(self, scripted: ScriptedBroker, planned: Any) -> None:
        """The connection is the proxy's, and names the broker."""
        assert take(planned(scripted.address, "inner:6650"), 1) == [0]
        assert scripted.bodies["CONNECT"][0].proxy_to_broker_url == "inner:6650"
        assert scripted.requests["LOOKUP"] == 0

    def test_begun_early(self, scripted: ScriptedBroker, planned: Any) -> None:
        """It subscribes, but asks for no entry before its turn."""
        reader = planned(scripted.address)
        reader.begin()
        reader.begin()
        wait_until(lambda: scripted.consumers)
        assert scripted.requests["FLOW"] == 0
        assert take(reader, 4) == [0, 1, 2, 3]
        assert scripted.requests["SUBSCRIBE"] == 1

    def test_begun_for_nothing(self, scripted: ScriptedBroker, planned: Any) -> None:
        """One that is closed before its turn leaves nothing; it may be late, too."""
        event = threading.Event()
        scripted.script("SUBSCRIBE", usual, late(event))
        for _ in range(2):
            reader = planned(scripted.address)
            reader.begin()
            wait_until(lambda: scripted.consumers or scripted.requests["SUBSCRIBE"] > 1)
            reader.close()
            event.set()
        wait_until(lambda: scripted.requests["CLOSE_CONSUMER"] == 2)

    @pytest.mark.parametrize(
        "action", [*map(refuse, ("ServiceNotReady", "TopicNotFound")), cut, silence]
    )
    def test_it_serves_the_topic_no_more(
        self, scripted: ScriptedBroker, planned: Any, action: Any
    ) -> None:
        """Whatever it says, or whether it says anything: a lookup is next, at once."""
        with ScriptedBroker() as other:
            other.always("SUBSCRIBE", action)
            reader = planned(other.address)
            patient = reader._pool.options
            reader._pool.options = replace(patient, operation_timeout_s=0.2)
            reader.begin()
            reader._pool.options = patient
            assert take(reader, 4) == [0, 1, 2, 3]
        assert other.requests["SUBSCRIBE"] == 1
        assert scripted.requests["LOOKUP"] == 1
        assert reader.reconnects == 0

    def test_it_is_none_any_more(self, scripted: ScriptedBroker, planned: Any) -> None:
        """Something else answers there."""
        with ScriptedBroker() as other:
            other.always("CONNECT", garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
            assert take(planned(other.address), 4) == [0, 1, 2, 3]

    def test_it_is_gone(self, scripted: ScriptedBroker, planned: Any) -> None:
        """Nobody is there. The next task of the process does not even try."""
        other = ScriptedBroker()
        other.close()
        assert take(planned(other.address), 4) == [0, 1, 2, 3]
        with ScriptedBroker() as back:
            reader = planned(other.address)
            reader._pool._unreachable = {BrokerAddress(back.address)}
            reader._served_by = BrokerAddress(back.address)
            assert take(reader, 1) == [0]
            assert back.connections == 0

    def test_the_topic_moves_before_its_turn(
        self, scripted: ScriptedBroker, planned: Any
    ) -> None:
        """What was subscribed early is subscribed again."""
        reader = planned(scripted.address)
        reader.begin()
        wait_until(lambda: scripted.consumers)
        scripted.close_consumers(TOPIC)
        assert take(reader, 4) == [0, 1, 2, 3]
        assert scripted.requests["LOOKUP"] == 1


class TestRepeatedEntries:
    """A broker that sends what it has sent before, without end."""

    @pytest.fixture
    def stuck(self, scripted: ScriptedBroker) -> ScriptedBroker:
        """Answers each FLOW with the same entry, as often as was asked."""
        scripted.add_topic(TOPIC, numbered(2, 1))

        def repeat(broker: ScriptedBroker, session: Any, c: pb.BaseCommand) -> None:
            entry = scripted.topics[TOPIC][0]
            frame = message_frame(c.flow.consumer_id, entry)
            session.send_bytes(frame * c.flow.messagePermits)

        scripted.always("FLOW", repeat)
        return scripted

    def test_they_do_not_hold_a_task(self, stuck: ScriptedBroker, start: Any) -> None:
        """`pollTimeoutMs` counts from the last new one; the error says what came."""
        reader = start(poll_timeout_s=1.0)
        assert take(reader, 1) == [0]
        with pytest.raises(ReadTimeoutError, match=r"pollTimeoutMs.*had sent before"):
            reader.receive(3600)
        assert reader.reconnects  # how often, on a machine with other work, varies

    def test_they_do_not_hold_a_call(self, stuck: ScriptedBroker, start: Any) -> None:
        """Nothing new within its time is nothing."""
        reader = start(poll_timeout_s=3600.0)
        assert take(reader, 1) == [0]
        done = threading.Event()
        outcome: list[Any] = []

        def receive() -> None:
            outcome.append(reader.receive(0.2))
            done.set()

        threading.Thread(target=receive, daemon=True).start()
        assert done.wait(60), "held by entries that came before"
        assert outcome == [None]

    def test_a_few_are_usual(self, scripted: ScriptedBroker, start: Any) -> None:
        """What comes behind them is read, on the same connection."""
        scripted.add_topic(TOPIC, numbered(1, 1))
        reader = start(receiver_queue_messages=2000)
        assert take(reader, 1) == [0]
        again = scripted.topics[TOPIC][0]
        scripted.append(TOPIC, *[again] * 900, single(b"new"))
        assert take(reader, 1) == [1]
        assert reader.reconnects == 0


def test_closing_does_not_wait_for_the_broker(
    scripted: ScriptedBroker, start: Any
) -> None:
    """Nothing depends on its word."""
    scripted.add_topic(TOPIC, numbered(1, 1))
    scripted.always("CLOSE_CONSUMER", silence)
    reader = start({"operation_timeout_s": 3600.0})
    take(reader, 1)
    done = threading.Event()

    def close() -> None:
        reader.close()
        reader.close()
        done.set()

    threading.Thread(target=close, daemon=True).start()
    assert done.wait(60), "waits for an answer"
    wait_until(lambda: scripted.requests["CLOSE_CONSUMER"] == 1)


def test_positions_of_the_topic_now(scripted: ScriptedBroker, start: Any) -> None:
    """The last message there is; None where the broker cannot say just now."""
    scripted.add_topic(TOPIC, numbered(3, 2))
    reader = start()
    take(reader, 3)
    assert reader.positions().last.position == (LEDGER, 2)
    scripted.script("GET_LAST_MESSAGE_ID", refuse("ServiceNotReady"))
    assert reader.positions() is None
    assert reader.positions().last.position == (LEDGER, 2)
