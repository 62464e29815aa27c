# SPDX-License-Identifier: Apache-2.0
"""What the raw publisher does when a broker closes it, or says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pulsar_spark.testing.admin import Admin
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.entries import message
from tests.support.official import read_back
from tests.support.raw_publisher import ProducerClosedError, RawPublisher
from tests.support.scripted_broker import (
    Action,
    ScriptedBroker,
    Session,
    refuse,
    silence,
    then_moves,
    unheard,
    usual,
)
from tests.support.waiting import join, wait_until

TOPIC = "persistent://public/default/raw"


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker with one topic."""
    with ScriptedBroker() as broker:
        broker.add_topic(TOPIC)
        yield broker


def values(broker: ScriptedBroker) -> list[bytes]:
    """What is stored."""
    return [entry.payload for entry in broker.topics[TOPIC]]


def closes(stores: bool) -> Callable[..., None]:
    """Closes the producer on a SEND, with or without storing the entry."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        if stores:
            send, session.send = session.send, lambda **_: None  # type: ignore[method-assign]
            broker.answer(session, c)
            session.send = send  # type: ignore[method-assign]
        broker.close_producers()

    return action


@pytest.mark.parametrize("is_alone", [False, True])
def test_closed_between_two_entries(scripted: ScriptedBroker, is_alone: bool) -> None:
    """It attaches again, and each entry is stored once."""
    with RawPublisher(scripted.url, TOPIC, is_alone=is_alone) as publisher:
        publisher.send(*message(b"a"))
        scripted.close_producers()
        wait_until(lambda: "close_producer" in publisher.arrived(), "the close")
        publisher.send(*message(b"b"))
    assert values(scripted) == [b"a", b"b"]
    assert scripted.requests["PRODUCER"] == 2


@pytest.mark.parametrize("stores", [False, True])
def test_closed_with_an_entry_on_its_way(
    scripted: ScriptedBroker, stores: bool
) -> None:
    """Who is alone finds out whether it was stored."""
    scripted.script("SEND", closes(stores))
    with RawPublisher(scripted.url, TOPIC, is_alone=True) as publisher:
        first = publisher.send(*message(b"a"))
        assert first == scripted.positions(TOPIC)[0]
        publisher.send(*message(b"b"))
    assert values(scripted) == [b"a", b"b"]
    assert scripted.requests["SEND"] == (2 if stores else 3)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("SUBSCRIBE", refuse("ServiceNotReady")),
        ("GET_LAST_MESSAGE_ID", refuse("MetadataError")),
        ("GET_LAST_MESSAGE_ID", then_moves),
    ],
)
def test_a_topic_that_moves_on_while_it_is_asked(
    scripted: ScriptedBroker, stores: bool, command: str, answer: Action
) -> None:
    """Whether an entry was stored is asked until a broker serves the topic."""
    with RawPublisher(scripted.url, TOPIC, is_alone=True) as publisher:
        publisher.send(*message(b"a"))
        scripted.script("SEND", closes(stores))
        scripted.script(command, answer)
        if answer is then_moves:
            scripted.closing.add(TOPIC)
        publisher.send(*message(b"b"))
        publisher.send(*message(b"c"))
    assert values(scripted) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("dropped_or_stored", [silence, unheard])
def test_an_entry_without_a_receipt(
    scripted: ScriptedBroker, dropped_or_stored: Action
) -> None:
    """Who is alone finds out as well; brokers drop entries while a topic moves."""
    scripted.script("SEND", usual, dropped_or_stored)
    with RawPublisher(scripted.url, TOPIC, is_alone=True, silence_s=0.1) as publisher:
        for value in (b"a", b"b", b"c"):
            publisher.send(*message(value))
    assert values(scripted) == [b"a", b"b", b"c"]


def test_closed_with_an_entry_on_its_way_beside_others(
    scripted: ScriptedBroker,
) -> None:
    """Nobody can know what became of it: an error that says so."""
    scripted.script("SEND", closes(False))
    with (
        RawPublisher(scripted.url, TOPIC) as publisher,
        pytest.raises(
            ProducerClosedError, match=f"entry 0 of {TOPIC} is stored is not"
        ),
    ):
        publisher.send(*message(b"a"))


def test_a_broker_that_only_probes(scripted: ScriptedBroker) -> None:
    """Probes are answered, and do not make it wait on."""
    scripted.script("SEND", silence)
    over = threading.Event()

    def probe() -> None:
        while not over.wait(0.05):
            scripted.ping()

    thread = threading.Thread(target=probe)
    with RawPublisher(scripted.url, TOPIC, timeout_s=2.0) as publisher:
        thread.start()
        try:
            with pytest.raises(TimeoutError, match="no send_receipt in time"):
                publisher.send(*message(b"a"))
        finally:
            over.set()
            join(thread, "the probes")
    wait_until(lambda: scripted.requests["PONG"] > 1)


def test_a_probe_between_two_entries(scripted: ScriptedBroker) -> None:
    """It is answered, and nothing else is waited for."""
    with RawPublisher(scripted.url, TOPIC, is_alone=True, timeout_s=60) as publisher:
        publisher.send(*message(b"a"))
        scripted.ping()
        wait_until(publisher.has_news)
        publisher.send(*message(b"b"))
    assert values(scripted) == [b"a", b"b"]


def test_a_connection_that_ends(scripted: ScriptedBroker) -> None:
    """The error says what did not come."""
    with RawPublisher(scripted.url, TOPIC) as publisher:
        scripted.script("SEND", lambda broker, session, _: broker.hang_up(session))
        with pytest.raises(ConnectionError, match="no send_receipt came"):
            publisher.send(*message(b"a"))


def test_a_topic_that_is_unloaded_all_the_time(
    topic: str, service_url: str, admin: Admin
) -> None:
    """Each entry is stored once, in order."""
    over = threading.Event()
    unloads: list[int] = []

    def unload() -> None:
        while not over.wait(0.05):
            if len(sent) >= 20 * len(unloads):
                admin.unload(topic)
                unloads.append(len(sent))

    sent: list[bytes] = []
    thread = threading.Thread(target=unload)
    with RawPublisher(service_url, topic, is_alone=True) as publisher:
        thread.start()
        try:
            while len(unloads) < 6:
                assert thread.is_alive(), "unloading failed"
                sent.append(str(len(sent)).encode())
                publisher.send(*message(sent[-1]))
        finally:
            over.set()
            join(thread, "unloading")
    assert [row.value for row in read_back(service_url, topic)] == sent
