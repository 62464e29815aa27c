# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import BrokerError, TopicNotFoundError, TransportError
from pulsar_spark.message_id import EARLIEST, MessageId
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    client_options,
    cut,
    late,
    refuse,
    silence,
    single,
    then_moves,
    usual,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t"


@pytest.fixture
def positions(pool: ConnectionPool) -> PositionLookup:
    """Questions to the scripted broker."""
    return PositionLookup(pool)


@pytest.fixture
def impatient(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[PositionLookup]:
    """Waits a tenth of a second for answers, and tries for half a second."""
    options = client_options(
        scripted.address, operation_timeout_s=0.1, lookup_timeout_s=0.5
    )
    pool = ConnectionPool(options)
    yield PositionLookup(pool)
    pool.close()


def test_both_ends(scripted: ScriptedBroker, positions: PositionLookup) -> None:
    """Where the first entry is, and what the last message is."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b"]), batch([b"c", b"d", b"e"])])
    found = positions.from_message_ids({TOPIC: EARLIEST})[TOPIC]
    assert found.first == MessageId(LEDGER, 0)
    assert found.last is not None
    assert (found.last.position, found.last.batch_index) == ((LEDGER, 1), 2)
    assert not found.is_empty


def test_an_empty_topic(scripted: ScriptedBroker, positions: PositionLookup) -> None:
    """It has no last message."""
    scripted.add_topic(TOPIC)
    found = positions.from_message_ids({TOPIC: EARLIEST})[TOPIC]
    assert found.last is None
    assert found.is_empty


def test_probes_leave_nothing_and_take_nothing(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """They are not durable, create no topic, ask for no message, and are closed."""
    scripted.add_topic(TOPIC, [single(b"a")])
    positions.from_message_ids({TOPIC: EARLIEST})
    (body,) = scripted.bodies["SUBSCRIBE"]
    assert body.durable is False
    assert body.force_topic_creation is False
    assert body.subscription.startswith("spark-pulsar-")
    assert scripted.requests["FLOW"] == 0
    wait_until(lambda: scripted.consumers == [])


def test_by_time(scripted: ScriptedBroker, positions: PositionLookup) -> None:
    """The first entry published then or later."""
    entries = [single(b"", publish_time=time_ms) for time_ms in (100, 200, 300)]
    scripted.add_topic(TOPIC, entries)
    found = positions.from_times({TOPIC: 150})[TOPIC]
    assert found.first == MessageId(LEDGER, 1)
    assert positions.from_times({TOPIC: 999})[TOPIC].is_empty
    wait_until(lambda: scripted.consumers == [])


def test_a_topic_without_ledgers(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """It is empty, whatever is asked; brokers would cut the connection at a seek."""
    other = TOPIC + "-other"
    scripted.add_topic(TOPIC)
    scripted.add_topic(other, [single(b"a", publish_time=5)])
    scripted.without_ledgers.add(TOPIC)
    for answers in (
        positions.from_message_ids({TOPIC: EARLIEST, other: EARLIEST}),
        positions.from_times({TOPIC: 3, other: 3}),
    ):
        assert answers[TOPIC].is_empty
        assert answers[other].first == MessageId(LEDGER, 0)
    assert scripted.requests["SEEK"] == 2


def test_a_busy_broker_is_asked_again(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """Topics that move, brokers that are overloaded, cut connections: all pass."""
    scripted.add_topic(TOPIC, [single(b"a")])
    scripted.script("LOOKUP", refuse("TooManyRequests"))
    scripted.script("SUBSCRIBE", refuse("ServiceNotReady"), cut)
    scripted.script("GET_LAST_MESSAGE_ID", refuse("MetadataError"))
    assert not positions.from_message_ids({TOPIC: EARLIEST})[TOPIC].is_empty
    assert scripted.requests["SUBSCRIBE"] == 4


def test_a_missing_topic_is_final(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """It is named, and asked for once."""
    with pytest.raises(TopicNotFoundError, match=TOPIC):
        positions.from_message_ids({TOPIC: EARLIEST})
    assert scripted.requests["SUBSCRIBE"] == 1


@pytest.mark.usefixtures("clock")
def test_trouble_that_lasts_names_the_topic(
    scripted: ScriptedBroker, impatient: PositionLookup
) -> None:
    """After `lookupTimeoutMs` the last reason is the error."""
    scripted.add_topic(TOPIC)
    scripted.always("SUBSCRIBE", refuse("ConsumerBusy", "taken"))
    with pytest.raises(BrokerError, match=f"{TOPIC}.*taken"):
        impatient.from_message_ids({TOPIC: EARLIEST})
    assert scripted.requests["SUBSCRIBE"] > 2


def test_a_late_subscribe_is_closed(
    scripted: ScriptedBroker, impatient: PositionLookup
) -> None:
    """An answer after the time is up must not leave a consumer at the broker."""
    answer = threading.Event()
    scripted.add_topic(TOPIC)
    scripted.script("SUBSCRIBE", late(answer))
    assert impatient.from_message_ids({TOPIC: EARLIEST})[TOPIC].is_empty
    ids = [body.consumer_id for body in scripted.bodies["SUBSCRIBE"]]
    wait_until(
        lambda: (
            {body.consumer_id for body in scripted.bodies["CLOSE_CONSUMER"]} >= set(ids)
        )
    )
    answer.set()


def test_a_broker_that_does_not_answer(
    scripted: ScriptedBroker, impatient: PositionLookup
) -> None:
    """The error names the topic, the request and the broker."""
    scripted.add_topic(TOPIC)
    scripted.always("GET_LAST_MESSAGE_ID", silence)
    with pytest.raises(TransportError, match=f"{TOPIC}.*GET_LAST_MESSAGE_ID"):
        impatient.from_message_ids({TOPIC: EARLIEST})


def test_a_broker_that_forgets_a_question(
    scripted: ScriptedBroker, unhurried: Clock
) -> None:
    """It is asked again, though an operation may take as long as all of it."""
    scripted.add_topic(TOPIC, [single(b"a")])
    scripted.script("GET_LAST_MESSAGE_ID", silence, silence, usual)
    options = client_options(
        scripted.address, operation_timeout_s=1.5, lookup_timeout_s=1.5
    )
    with ConnectionPool(options) as pool:
        lookup = PositionLookup(pool)
        found = lookup.from_message_ids({TOPIC: EARLIEST})[TOPIC]
    assert found.last is not None


def test_a_broker_that_forgets_a_seek_is_noticed(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """Two probes disagree, so both are asked again."""
    scripted.add_topic(TOPIC, [single(b"", publish_time=t) for t in (100, 200)])
    forget = [True]

    def on_seek(broker: ScriptedBroker, session: object, command: object) -> None:
        broker.answer(session, command)  # type: ignore[arg-type]
        if forget:
            forget.clear()
            broker._places.clear()

    scripted.always("SEEK", on_seek)
    found = positions.from_times({TOPIC: 150})[TOPIC]
    assert found.first == MessageId(LEDGER, 1)
    assert scripted.requests["SEEK"] == 4


def moves_after(scripted: ScriptedBroker, answers: int) -> None:
    """Let a topic be given away until so many questions for its end were answered."""
    scripted.closing.add(TOPIC)
    scripted.script("GET_LAST_MESSAGE_ID", *[usual] * (answers - 1), then_moves)


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_a_topic_that_is_being_given_away(
    scripted: ScriptedBroker, positions: PositionLookup, answers: int
) -> None:
    """Its broker says that nothing is there: it is asked again."""
    scripted.add_topic(TOPIC, [single(b"a"), single(b"b")])
    moves_after(scripted, answers)
    found = positions.from_message_ids({TOPIC: EARLIEST})[TOPIC]
    assert (found.first, found.last) == (MessageId(LEDGER, 0), MessageId(LEDGER, 1))


@pytest.mark.parametrize("answers", [1, 2, 3])
@pytest.mark.parametrize(("time_ms", "first"), [(150, 1), (999, 2)])
def test_by_time_while_it_is_given_away(
    scripted: ScriptedBroker,
    positions: PositionLookup,
    answers: int,
    time_ms: int,
    first: int,
) -> None:
    """Nothing is that late only where there is something earlier."""
    entries = [single(b"", publish_time=at_ms) for at_ms in (100, 200)]
    scripted.add_topic(TOPIC, entries)
    moves_after(scripted, answers)
    found = positions.from_times({TOPIC: time_ms})[TOPIC]
    assert (found.first, found.is_empty) == (MessageId(LEDGER, first), first == 2)


def test_by_time_where_the_later_probe_is_forgotten_too(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """One probe is told that nothing is there, the other one begins at the end."""
    entries = [single(b"", publish_time=at_ms) for at_ms in (100, 200)]
    scripted.add_topic(TOPIC, entries)

    def forget(broker: ScriptedBroker, session: Any, command: Any) -> None:
        usual(broker, session, command)
        broker._places.clear()

    scripted.script("SEEK", usual, forget, usual)
    moves_after(scripted, 1)
    found = positions.from_times({TOPIC: 150})[TOPIC]
    assert found.first == MessageId(LEDGER, 1)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("when", ["GET_LAST_MESSAGE_ID", "SUBSCRIBE", "SEEK"])
def test_by_time_while_rows_arrive(
    scripted: ScriptedBroker, positions: PositionLookup, when: str, rows: int
) -> None:
    """A time that nothing has reached is behind all of these, one before is found."""
    scripted.add_topic(TOPIC, [single(b"a", publish_time=100)] * rows)

    def busy(broker: ScriptedBroker, session: Any, command: Any) -> None:
        broker.append(TOPIC, single(b"b", publish_time=200))
        usual(broker, session, command)

    scripted.always(when, busy)
    found = positions.from_times({TOPIC: 999})[TOPIC]
    assert found.is_empty
    assert found.before.entry_id >= rows - 1
    found = positions.from_times({TOPIC: 150})[TOPIC]
    assert found.first == MessageId(LEDGER, rows)
    assert not found.is_empty


def test_by_time_where_times_are_out_of_order(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """A search finds another entry each time; none of them is at the end."""
    scripted.add_topic(TOPIC, [single(b"", publish_time=at_ms) for at_ms in range(9)])

    def differs(by_ms: int) -> Callable[[ScriptedBroker, Any, Any], None]:
        def seek(broker: ScriptedBroker, session: Any, command: Any) -> None:
            command.seek.message_publish_time += by_ms
            usual(broker, session, command)

        return seek

    scripted.script("SEEK", differs(0), differs(1), differs(2))
    found = positions.from_times({TOPIC: 3})[TOPIC]
    assert (found.first, found.is_empty) == (MessageId(LEDGER, 3), False)


def test_what_is_stored_and_never_delivered(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """As where all was aborted. It is certain once it was said often enough."""
    scripted.add_topic(TOPIC, [single(b"a")])
    scripted.closing.add(TOPIC)
    assert positions.from_message_ids({TOPIC: EARLIEST})[TOPIC].is_empty
    assert scripted.requests["GET_LAST_MESSAGE_ID"] == 6


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_seek_that_is_refused_is_repeated(
    scripted: ScriptedBroker, positions: PositionLookup, refusals: int
) -> None:
    """Whichever of the two that are to agree it is."""
    entries = [single(b"", publish_time=time_ms) for time_ms in (100, 200)]
    scripted.add_topic(TOPIC, entries)
    refused = [refuse("ServiceNotReady")] * refusals
    scripted.script("SEEK", *([usual] if refusals == 1 else []), *refused)
    assert positions.from_times({TOPIC: 150})[TOPIC].first == MessageId(LEDGER, 1)
    assert scripted.requests["SEEK"] == 4


def test_topics_that_do_not_exist(
    scripted: ScriptedBroker, positions: PositionLookup
) -> None:
    """They are left out where that is wanted, and an error otherwise."""
    scripted.add_topic(TOPIC)
    starts = dict.fromkeys((TOPIC, f"{TOPIC}-other"), EARLIEST)
    assert list(positions.from_message_ids(starts, absent_ok=True)) == [TOPIC]
    with pytest.raises(TopicNotFoundError, match="other"):
        positions.from_message_ids(starts)
