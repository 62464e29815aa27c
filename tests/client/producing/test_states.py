# SPDX-License-Identifier: Apache-2.0
"""The states of a producer, one change after the other, without any broker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.producing import states as module
from pulsar_spark.client.producing.states import (
    Attached,
    Attaching,
    Attachment,
    Broken,
    New,
    Shared,
    TopicProducer,
    Trouble,
)
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    PulsarSparkError,
    TransportError,
)
from pulsar_spark.loops.sends import Receipt, SendFrame
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.protocol import SendRefused
from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t"


class Broker:
    """As much of a connection as a producer asks for."""

    broker = "one:6650"
    max_message_size_bytes = 1 << 20


CONNECTION = cast("Connection", Broker())
CLUSTER = ("broker:6650",)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that producers see."""
    one = Clock()
    monkeypatch.setattr(module, "time", one)
    return one


@pytest.fixture
def shared() -> Shared:
    """What producers share."""
    return Shared()


@pytest.fixture
def producer(shared: Shared) -> TopicProducer:
    """A new producer."""
    return TopicProducer(TOPIC, "", shared)


def success(last_sequence_id: int = -1, **further: Any) -> pb.CommandProducerSuccess:
    """PRODUCER_SUCCESS."""
    return pb.CommandProducerSuccess(
        producer_name="made-up", last_sequence_id=last_sequence_id, **further
    )


def attach(producer: TopicProducer) -> Attachment:
    """The whole way to ATTACHED."""
    attachment = producer.attach(CONNECTION, CLUSTER)
    producer.attached(success())
    assert isinstance(producer.state, Attached)
    return attachment


def sent(producer: TopicProducer, shared: Shared, *numbers: int) -> None:
    """Entries of two rows and ten bytes each."""
    for number in numbers:
        producer.in_flight.pending.append(SendFrame(number, number, 2, bytes(10)))
        shared.in_flight_bytes += 10


def receipt(number: int, entry_id: int = 0) -> Receipt:
    """A receipt of entry 7:entry_id."""
    return Receipt(0, number, 7, entry_id)


def refusal(code: str, number: int = 0) -> tuple[SendRefused, BrokerError]:
    """A refusal, as a connection passes it on."""
    error = BrokerError("no", code=code, broker="one:6650")
    error.retriable = code == "PersistenceError"
    return SendRefused(0, number, code, "no"), error


def ways_to_break(attachment: Attachment) -> dict[str, Any]:
    """What ends an attachment."""
    return {
        "the broker closes it": lambda: attachment.closed(None),
        "the connection breaks": lambda: attachment.closed(TransportError("cut")),
        "no receipts": lambda: attachment.fell_silent(3.0),
        "refused for now": lambda: attachment.refused(*refusal("PersistenceError")),
        "damaged": lambda: attachment.refused(*refusal("ChecksumError")),
        "a receipt too high": lambda: attachment.receipts([receipt(5)]),
    }


@pytest.mark.parametrize("how", ways_to_break(cast("Attachment", None)))
def test_the_way_around(shared: Shared, producer: TopicProducer, how: str) -> None:
    """Every state but the first is come by again."""
    assert isinstance(producer.state, New)
    assert producer.connection is None
    attachment = producer.attach(CONNECTION, CLUSTER)
    assert isinstance(producer.state, Attaching)
    producer.attached(success(41, topic_epoch=3))
    assert isinstance(producer.state, Attached)
    assert (producer.registration.name, producer.registration.last_sequence_id) == (
        "made-up",
        41,
    )
    sent(producer, shared, 0)
    ways_to_break(attachment)[how]()
    assert isinstance(producer.state, Broken)
    assert list(shared.broken) == [producer]
    assert shared.fatal is None
    producer.attach(CONNECTION, CLUSTER)
    assert isinstance(producer.state, Attaching)
    assert not shared.broken
    producer.attached(success(77))
    assert isinstance(producer.state, Attached)
    assert (producer.registration.epoch, producer.registration.topic_epoch) == (2, 3)
    assert producer.registration.last_sequence_id == 41, "what was known at first stays"


def test_a_refusal_of_the_producer(shared: Shared, producer: TopicProducer) -> None:
    """While it is opened it is new again; later, broken with that as the reason."""
    producer.attach(CONNECTION, CLUSTER)
    producer.not_attached()
    assert isinstance(producer.state, New)
    attach(producer).closed(None)
    producer.attach(CONNECTION, CLUSTER)
    producer.not_attached()
    assert not shared.broken
    reason = TransportError("still loading")
    producer.broke(reason)
    assert isinstance(producer.state, Broken)
    assert shared.broken == {producer: reason}


def test_a_goodbye_before_the_answer_is_looked_at(
    shared: Shared, producer: TopicProducer
) -> None:
    """PRODUCER_SUCCESS counts, and the producer stays broken."""
    attachment = producer.attach(CONNECTION, CLUSTER)
    attachment.closed(None)
    producer.attached(success())
    assert isinstance(producer.state, Broken)
    assert producer.registration.epoch == 1
    assert producer in shared.broken


def test_the_first_reason_counts(shared: Shared, producer: TopicProducer) -> None:
    """What follows is mostly its consequence."""
    attachment = attach(producer)
    first = TransportError("first")
    attachment.closed(first)
    attachment.closed(TransportError("second"))
    attachment.fell_silent(1.0)
    assert shared.broken == {producer: first}


def test_an_attachment_that_was_left(shared: Shared, producer: TopicProducer) -> None:
    """Nothing that it says has an effect."""
    old = attach(producer)
    old.closed(None)
    attach(producer)
    sent(producer, shared, 0)
    old.receipts([receipt(0)])
    old.refused(*refusal("NotAllowedError"))
    old.closed(None)
    assert isinstance(producer.state, Attached)
    assert len(producer.in_flight.pending) == 1
    assert shared.fatal is None


def test_a_final_refusal(shared: Shared, producer: TopicProducer) -> None:
    """It is for all producers, not for this one to be attached again."""
    attachment = attach(producer)
    attachment.refused(*refusal("InvalidTxnStatus"))
    assert isinstance(shared.fatal, PulsarSparkError)
    assert isinstance(producer.state, Attached)
    first = shared.fatal
    attachment.refused(*refusal("NotAllowedError"))
    assert shared.fatal is first


def test_the_end_of_a_topic(
    shared: Shared, producer: TopicProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is believed when the broker goes on saying so for a while."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    for _ in range(3):
        attachment = attach(producer)
        attachment.refused(*refusal("TopicTerminatedError"))
        attachment.refused(*refusal("TopicTerminatedError", 1))
        assert isinstance(producer.state, Broken)
        clock.now += 2
    assert shared.fatal is None
    attach(producer).refused(*refusal("TopicTerminatedError"))
    assert "write to another topic" in str(shared.fatal)


def test_entries_that_arrive_damaged(shared: Shared, producer: TopicProducer) -> None:
    """Three times in a row are borne; of each time only the first refusal counts."""
    for _ in range(3):
        attachment = attach(producer)
        attachment.refused(*refusal("ChecksumError"))
        attachment.refused(*refusal("ChecksumError", 1))
        assert isinstance(producer.state, Broken)
    assert shared.fatal is None
    attach(producer).refused(*refusal("ChecksumError"))
    assert shared.fatal is not None


def test_a_damaged_entry_that_will_never_be_taken(producer: TopicProducer) -> None:
    """A broker that deduplicates has a later entry. The producer says so once."""
    attach(producer).refused(*refusal("ChecksumError", 3))
    producer.not_attached()
    producer.broke(TransportError("away"))
    producer.check_damaged(2)
    attach(producer).refused(*refusal("ChecksumError", 3))
    with pytest.raises(BrokerError):
        producer.check_damaged(3)
    producer.check_damaged(3)


def test_a_topic_epoch_is_of_a_cluster(producer: TopicProducer) -> None:
    """Another cluster never gave the producer one."""
    attach(producer)
    producer.attached(success(topic_epoch=4))
    assert producer.registration.topic_epoch_in(CLUSTER) == 4
    assert producer.registration.topic_epoch_in(("elsewhere:6650",)) is None
    producer.attach(CONNECTION, ("elsewhere:6650",))
    producer.attached(success())
    assert producer.registration.topic_epoch is None


# -- receipts, and the trouble that they end -------------------------------------------


def test_a_receipt_ends_all_trouble(shared: Shared, producer: TopicProducer) -> None:
    """Of every kind at once."""
    attachment = attach(producer)
    producer.trouble = Trouble(waited_s=5.0, silences=1, tries=2, damages=3)
    sent(producer, shared, 0, 1)
    attachment.receipts([receipt(0, 4)])
    assert producer.trouble == Trouble()
    assert (producer.stored.rows, producer.stored.size_bytes) == (2, 10)
    assert producer.stored.last_message == MessageId(7, 4)
    assert shared.in_flight_bytes == 10
    attachment.receipts([receipt(0, 4)])  # of an entry that was sent twice
    assert producer.in_flight.rows == 2
    attachment.receipts([receipt(1, -1)])
    assert (producer.stored.rows, producer.stored.duplicate_rows) == (2, 2)
    assert producer.stored.last_message == MessageId(7, 4)
    assert shared.in_flight_bytes == 0


def test_receipts_that_come_together(shared: Shared, producer: TopicProducer) -> None:
    """Each counts, as if it had come by itself, also before and behind a wrong one."""
    attachment = attach(producer)
    sent(producer, shared, 0, 1, 2)
    wrong, old = receipt(7, 9), receipt(0, 4)
    attachment.receipts([receipt(0, 4), old, receipt(1, 5), wrong, receipt(2, 6)])
    assert (producer.stored.rows, producer.stored.size_bytes) == (6, 30)
    assert producer.stored.last_message == MessageId(7, 6)
    assert shared.in_flight_bytes == 0
    assert isinstance(producer.state, Broken)
    assert "acknowledged entry 7 before 2" in str(shared.broken[producer])
    attachment.receipts([receipt(3)])
    assert producer.stored.rows == 6


def test_receipts_of_a_transaction_may_change_places(clock: Clock) -> None:
    """Each entry counts when all before it are stored; a wrong id is still wrong."""
    shared = Shared(is_transactional=True)
    producer = TopicProducer(TOPIC, "", shared)
    attachment = attach(producer)
    sent(producer, shared, 0, 1, 2, 3, 4)
    attachment.receipts([receipt(1, 5)])
    attachment.receipts([receipt(3, 7), receipt(3, 7)])
    assert producer.stored.rows == 0
    assert isinstance(producer.state, Attached)
    attachment.receipts([receipt(0, 4)])
    assert (producer.stored.rows, producer.stored.last_message) == (4, MessageId(7, 5))
    attachment.receipts([receipt(2, 6)])
    assert (producer.stored.rows, producer.stored.last_message) == (8, MessageId(7, 7))
    assert shared.in_flight_bytes == 10
    attachment.receipts([receipt(9, 9)])
    assert isinstance(producer.state, Broken)
    assert "acknowledged entry 9 before 4" in str(shared.broken[producer])


def test_an_early_receipt_of_a_chunk_is_of_no_use(clock: Clock) -> None:
    """Nothing tells which of the chunks is stored."""
    shared = Shared(is_transactional=True)
    producer = TopicProducer(TOPIC, "", shared)
    attachment = attach(producer)
    sent(producer, shared, 0)
    row_in_chunks(producer, 1)
    attachment.receipts([receipt(1, 5)])
    assert isinstance(producer.state, Broken)


def row_in_chunks(producer: TopicProducer, number: int) -> None:
    """Three chunks of a row."""
    for rows in (0, 0, 1):
        producer.in_flight.pending.append(SendFrame(number, number, rows, bytes(10)))


#: Ledgers of a row in chunks that is sent again; before the last one was of ledger 7.
HAD, HERE, ELSEWHERE = -1, 7, 8


def receipts_of_row(*ledger_ids: int) -> list[Receipt]:
    """Its receipts, in order; each entry has a place of its own."""
    return [
        Receipt(0, 1, ledger_id, -1 if ledger_id == HAD else entry_id)
        for entry_id, ledger_id in enumerate(ledger_ids)
    ]


@pytest.mark.parametrize(
    ("ledger_ids", "in_doubt"),
    [
        ([HERE, HERE, HAD], False),
        ([HAD, HERE, HERE], False),  # it is ahead of what is yet to be stored
        ([HAD, HAD, HAD], True),
        ([ELSEWHERE, ELSEWHERE, HAD], True),
        ([HAD, ELSEWHERE, ELSEWHERE], True),
        ([ELSEWHERE, ELSEWHERE, ELSEWHERE], False),
        ([HERE, HERE, HERE], False),
    ],
)
def test_a_chunk_that_the_broker_had(
    shared: Shared, producer: TopicProducer, ledger_ids: list[int], in_doubt: bool
) -> None:
    """It is believed where the topic was not loaded anew between: its ledger tells."""
    attachment = attach(producer)
    sent(producer, shared, 0)
    attachment.receipts([receipt(0)])
    row_in_chunks(producer, 1)
    attachment.closed(None)
    attachment = attach(producer)
    for one in receipts_of_row(*ledger_ids):
        attachment.receipts([one])
    assert not producer.in_flight.pending
    # Nothing follows: a flush fails where no receipt names a ledger.
    is_unsettled = producer.chunks.are_unsettled
    assert (isinstance(shared.fatal, InDoubtError) or is_unsettled) is in_doubt


@pytest.mark.parametrize(("ledger_id", "in_doubt"), [(7, False), (8, True)])
def test_a_row_of_which_the_broker_had_all(
    shared: Shared, producer: TopicProducer, ledger_id: int, in_doubt: bool
) -> None:
    """The next new row tells, also where nothing is in flight for a while."""
    attachment = attach(producer)
    sent(producer, shared, 0)
    attachment.receipts([receipt(0)])
    row_in_chunks(producer, 1)
    attachment.closed(None)
    attachment = attach(producer)
    attachment.receipts(receipts_of_row(HAD, HAD, HAD))
    assert shared.fatal is None
    assert producer.chunks.are_unsettled
    sent(producer, shared, 2)
    attachment.receipts([Receipt(2, 2, ledger_id, 9)])
    assert isinstance(shared.fatal, InDoubtError) is in_doubt
    assert producer.chunks.are_unsettled is in_doubt


@pytest.mark.parametrize(("ledger_id", "in_doubt"), [(7, False), (8, True)])
def test_what_follows_a_chunk_that_the_broker_had(
    shared: Shared, producer: TopicProducer, ledger_id: int, in_doubt: bool
) -> None:
    """It tells as well, where the other chunks had their receipts before."""
    attachment = attach(producer)
    row_in_chunks(producer, 1)
    sent(producer, shared, 2)
    attachment.receipts(receipts_of_row(HERE, HERE))
    attachment.closed(None)
    attachment = attach(producer)
    attachment.receipts(receipts_of_row(HAD))
    assert shared.fatal is None
    attachment.receipts([Receipt(0, 2, ledger_id, 9)])
    assert isinstance(shared.fatal, InDoubtError) is in_doubt


def test_a_topic_that_was_loaded_anew_before_the_last_time(
    shared: Shared, producer: TopicProducer
) -> None:
    """What was seen of that counts as long as a row of then has no receipt."""
    attachment = attach(producer)
    sent(producer, shared, 0)
    attachment.receipts([receipt(0)])
    row_in_chunks(producer, 1)
    attachment.closed(None)
    attachment = attach(producer)
    attachment.receipts(receipts_of_row(ELSEWHERE))
    attachment.closed(TransportError("cut"))
    attachment = attach(producer)
    attachment.receipts(receipts_of_row(ELSEWHERE, HAD))
    assert isinstance(shared.fatal, InDoubtError)


def test_entries_that_the_broker_had(shared: Shared, producer: TopicProducer) -> None:
    """Each of them has a number of its own: nothing is in doubt."""
    attachment = attach(producer)
    sent(producer, shared, 0, 1)
    attachment.receipts([receipt(0, -1), receipt(1, -1)])
    assert producer.stored.duplicate_rows == 4
    assert shared.fatal is None


@pytest.mark.parametrize(("awaited_bytes", "wakes"), [(20, True), (19, False)])
def test_who_is_woken(
    shared: Shared,
    producer: TopicProducer,
    monkeypatch: pytest.MonkeyPatch,
    awaited_bytes: int,
    wakes: bool,
) -> None:
    """A task that waits for room goes on when there is enough, and not before."""
    attachment = attach(producer)
    sent(producer, shared, 0, 1, 2)
    shared.awaited_bytes = awaited_bytes
    woken: list[bool] = []
    monkeypatch.setattr(shared.changed, "notify_all", lambda: woken.append(True))
    attachment.receipts([receipt(0)])
    assert woken == [True] * wakes


def test_entries_that_are_dropped(shared: Shared, producer: TopicProducer) -> None:
    """They are in flight no more, and trouble about them is over."""
    attach(producer)
    sent(producer, shared, 0, 1)
    producer.trouble = Trouble(1.0, 1, 1, 1)
    assert producer.drop_in_flight() == 4
    assert not producer.in_flight.pending
    assert shared.in_flight_bytes == 0
    assert producer.trouble == Trouble()


def test_tries_are_counted(
    shared: Shared, producer: TopicProducer, clock: Clock
) -> None:
    """The first one is a new problem, and so is the end of what lasted."""
    attach(producer)
    sent(producer, shared, 0)
    clock.now += 1
    assert producer.count_try()
    assert producer.trouble == Trouble(waited_s=1.0, tries=1)
    clock.now += 100
    assert not producer.count_try(), "it was not attached meanwhile"
    assert producer.trouble.waited_s == 1.0
    attach(producer)
    clock.now += 2
    assert not producer.count_try()
    assert producer.trouble == Trouble(waited_s=3.0, tries=3)
    attach(producer)
    clock.now += 11
    assert producer.count_try()
    assert producer.trouble.waited_s == 14.0


def test_nothing_in_flight_waits_in_vain(producer: TopicProducer, clock: Clock) -> None:
    """An idle producer may be closed again and again."""
    for _ in range(3):
        attach(producer)
        clock.now += 50
        producer.count_try()
    assert producer.trouble == Trouble(tries=3)


def test_a_late_receipt_does_not_prolong_an_attachment(
    shared: Shared, producer: TopicProducer, clock: Clock
) -> None:
    """It comes for what was stored before the end, which was counted."""
    attachment = attach(producer)
    sent(producer, shared, 0, 1)
    attachment.closed(None)
    producer.count_try()
    attachment.receipts([receipt(0)])
    assert producer.trouble == Trouble()
    clock.now += 30
    producer.count_try()
    assert producer.trouble == Trouble(tries=1)


def test_entries_are_the_producers_own(producer: TopicProducer) -> None:
    """By its id, its name and the limit of its broker."""
    attach(producer)
    encoder = producer.encoder(chunk_bytes=7)
    assert encoder.producer_id == producer.producer_id
    assert encoder.producer_name == "made-up"
    assert encoder.max_message_size_bytes == 1 << 20
    assert encoder.chunk_bytes == 7
    frame = producer.plain_entry(b"x")
    assert (frame.sequence_id, frame.rows) == (0, 1)
