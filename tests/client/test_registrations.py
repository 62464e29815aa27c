# SPDX-License-Identifier: Apache-2.0
"""Registrations of a subscription at scalable topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client import registrations as module
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.client.registrations import Registrations
from pulsar_spark.errors import BrokerError
from pulsar_spark.options.authentication import AuthenticationOptions, Token
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.layout import Layout
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    cut,
    refuse,
    usual,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "topic://public/default/t"
SUBSCRIBE, UNSUBSCRIBE = "SCALABLE_TOPIC_SUBSCRIBE", "SCALABLE_TOPIC_UNSUBSCRIBE"


@pytest.fixture
def registrations(pool: ConnectionPool) -> Registrations:
    """Of a subscription."""
    return Registrations(pool, "mine")


def layouts(scripted: ScriptedBroker, *topics: str) -> list[Layout]:
    """Topics that this broker manages."""
    return [Layout(topic, 0, (), (scripted.url, "")) for topic in topics or (TOPIC,)]


def test_a_topic_is_asked_once(
    scripted: ScriptedBroker, registrations: Registrations
) -> None:
    """As long as the connection lasts, the registration does."""
    assert registrations.current(TOPIC) is None
    registrations.add(layouts(scripted))
    number = registrations.current(TOPIC)
    other = "topic://public/default/u"
    registrations.add(layouts(scripted, TOPIC, other))
    assert registrations.current(TOPIC) == number != registrations.current(other)
    bodies = scripted.bodies[SUBSCRIBE]
    assert [body.topic for body in bodies] == [TOPIC, other]
    assert {body.subscription for body in bodies} == {"mine"}
    assert len({body.consumer_id for body in bodies}) == 2


def test_a_connection_that_broke(
    scripted: ScriptedBroker, registrations: Registrations
) -> None:
    """What was protected may be gone: it is another registration."""
    registrations.add(layouts(scripted))
    before = registrations.current(TOPIC)
    scripted.cut()
    wait_until(lambda: registrations.current(TOPIC) is None)
    registrations.add(layouts(scripted))
    assert registrations.current(TOPIC) not in (None, before)


class TestIdleConnections:
    """``connectionMaxIdleSeconds`` closes no connection that a registration is on."""

    def test_its_connection_stays(self, scripted: ScriptedBroker) -> None:
        """Until the end: a plan that comes late finds the same registration."""
        options = client_options(scripted.address, connection_max_idle_s=0.1)
        with ConnectionPool(options) as pool, ScriptedBroker() as other:
            registrations = Registrations(pool, "mine")
            registrations.add(layouts(scripted))
            before = registrations.current(TOPIC)
            younger = pool.get(BrokerAddress(other.address))
            wait_until(lambda: not younger.is_open)
            registrations.add(layouts(scripted))
            assert registrations.current(TOPIC) is before is not None
            registrations.end()
            assert scripted.requests[UNSUBSCRIBE] == 1

    @pytest.mark.parametrize("end", [Registrations.end, Registrations.close])
    def test_after_the_end(
        self,
        end: Callable[[Registrations], None],
        scripted: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
    ) -> None:
        """Nothing needs the connection any more."""
        registrations.add(layouts(scripted))
        connection = pool.service()
        assert not connection.is_idle
        end(registrations)
        assert registrations.current(TOPIC) is None
        assert connection.is_idle

    def test_after_a_refusal(
        self,
        scripted: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
    ) -> None:
        """Nothing was ever there."""
        scripted.script(SUBSCRIBE, refuse("AuthorizationError"))
        with pytest.raises(BrokerError):
            registrations.add(layouts(scripted))
        assert pool.service().is_idle

    @pytest.mark.parametrize("is_registered", [True, False])
    def test_after_an_interrupt(
        self,
        scripted: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
        monkeypatch: pytest.MonkeyPatch,
        is_registered: bool,
    ) -> None:
        """Neither a registration that was not answered nor one that was to end."""

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        ask = partial(registrations.add, layouts(scripted))
        if is_registered:
            ask()
            ask = registrations.end
        monkeypatch.setattr(module, "fan_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask()
        assert pool.service().is_idle

    def test_after_another_broker_became_the_controller(
        self,
        scripted: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
    ) -> None:
        """The connection to the broker before is not needed."""
        registrations.add(layouts(scripted))
        with ScriptedBroker() as other:
            registrations.add(layouts(other))
            assert pool.service().is_idle
            assert not pool.get(BrokerAddress(other.address)).is_idle


def test_the_broker_lets_go(
    scripted: ScriptedBroker, registrations: Registrations
) -> None:
    """It is another registration, though the connection lasts."""
    registrations.add(layouts(scripted))
    before = registrations.current(TOPIC)
    (body,), (session,) = scripted.bodies[SUBSCRIBE], scripted.sessions
    close = pb.CommandCloseConsumer(consumer_id=body.consumer_id, request_id=2**64 - 1)
    session.send(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=close)
    wait_until(lambda: registrations.current(TOPIC) is None)
    registrations.add(layouts(scripted))
    assert registrations.current(TOPIC) not in (None, before)
    assert scripted.connections == 1


def test_a_topic_without_a_controller(
    scripted: ScriptedBroker, registrations: Registrations
) -> None:
    """Any broker is asked."""
    registrations.add([Layout(TOPIC, 0, ())])
    assert registrations.current(TOPIC) is not None


class TestControllers:
    @pytest.fixture
    def other(self) -> Iterator[ScriptedBroker]:
        """Another broker, which may become the controller."""
        with ScriptedBroker() as broker:
            yield broker

    @pytest.mark.parametrize("is_known", [True, False])
    def test_another_is_elected_meanwhile(
        self,
        scripted: ScriptedBroker,
        other: ScriptedBroker,
        registrations: Registrations,
        *,
        is_known: bool,
    ) -> None:
        """The layout is asked for again; without a controller, any broker is asked."""
        refusal = refuse("UnknownError", "This broker is not the leader for topic")
        scripted.scalable = {TOPIC: TOPIC}
        scripted.controller = other.url if is_known else ""
        scripted.script(SUBSCRIBE, refusal, *[] if is_known else [refusal])
        registrations.add(layouts(scripted))
        assert registrations.current(TOPIC) is not None
        assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == (1 if is_known else 2)
        assert scripted.requests[SUBSCRIBE] == (1 if is_known else 3)
        assert other.requests[SUBSCRIBE] == is_known

    def test_there_is_none_for_long(
        self,
        scripted: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A warning, once; each further call tries once, until it is registered."""
        patience.of_pool(pool, controller_s=0.2)
        scripted.scalable = {}
        scripted.always(SUBSCRIBE, refuse("UnknownError", "no leader"))
        registrations.add(layouts(scripted))
        assert registrations.current(TOPIC) is None
        (record,) = caplog.records
        assert f"mine is not registered at {TOPIC}: " in record.getMessage()
        assert "no leader" in record.getMessage()
        tries = scripted.requests[SUBSCRIBE]
        registrations.add(layouts(scripted))
        assert scripted.requests[SUBSCRIBE] == tries + 1
        scripted.always(SUBSCRIBE, usual)
        registrations.add(layouts(scripted))
        assert registrations.current(TOPIC) is not None
        assert len(caplog.records) == 1

    def test_it_moves_while_the_old_broker_lives(
        self,
        scripted: ScriptedBroker,
        other: ScriptedBroker,
        registrations: Registrations,
    ) -> None:
        """The new controller is told: it would wait for a minute, and forget."""
        registrations.add(layouts(scripted))
        before = registrations.current(TOPIC)
        registrations.add(layouts(other))
        assert registrations.current(TOPIC) not in (None, before)
        assert other.requests[SUBSCRIBE] == scripted.requests[SUBSCRIBE] == 1
        registrations.end()
        assert other.requests[UNSUBSCRIBE] == 1

    def test_it_moves_to_a_broker_that_does_not_know_of_it(
        self,
        scripted: ScriptedBroker,
        other: ScriptedBroker,
        registrations: Registrations,
        pool: ConnectionPool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Nothing is protected then, which is told; no further plan waits for it."""
        patience.of_pool(pool, controller_s=0.2)
        scripted.scalable = {TOPIC: TOPIC}
        scripted.controller = other.url
        registrations.add(layouts(scripted))
        other.always(SUBSCRIBE, refuse("UnknownError", "no leader"))
        registrations.add(layouts(other))
        assert registrations.current(TOPIC) is None
        tries = other.requests[SUBSCRIBE]
        registrations.add(layouts(other))
        assert other.requests[SUBSCRIBE] == tries + 1
        assert len(caplog.records) == 1
        registrations.add(layouts(scripted))
        assert registrations.current(TOPIC) is not None

    def test_a_broker_that_was_asked_becomes_the_controller(
        self,
        scripted: ScriptedBroker,
        other: ScriptedBroker,
        registrations: Registrations,
    ) -> None:
        """It is the same registration, until the controller is another one."""
        nobody = Layout(TOPIC, 0, ())
        registrations.add([nobody])
        number = registrations.current(TOPIC)
        for layout in (nobody, *layouts(scripted), nobody, *layouts(scripted)):
            registrations.add([layout])
            assert registrations.current(TOPIC) == number
        registrations.add(layouts(other))
        assert registrations.current(TOPIC) != number


def test_a_controller_that_is_the_credential(scripted: ScriptedBroker) -> None:
    """The resolver is not asked for its name: any broker is asked."""
    secret = "a-token-of-the-test"
    options = client_options(
        scripted.address,
        authentication=AuthenticationOptions("token", Token(Secret(secret))),
    )
    with ConnectionPool(options) as pool:
        pool.service()
        registrations = Registrations(pool, "mine")
        registrations.add([Layout(TOPIC, 0, (), (f"pulsar://{secret}:6650", ""))])
        assert registrations.current(TOPIC) is not None


def test_a_refusal(scripted: ScriptedBroker, registrations: Registrations) -> None:
    """It ends the query: nothing would be protected."""
    scripted.script(SUBSCRIBE, refuse("AuthorizationError"))
    with pytest.raises(BrokerError):
        registrations.add(layouts(scripted))
    assert registrations.current(TOPIC) is None


def test_the_end(
    scripted: ScriptedBroker,
    registrations: Registrations,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The subscription is deleted; where a broker cannot, the way to do it is told."""
    registrations.add(layouts(scripted))
    registrations.end()
    assert scripted.requests[UNSUBSCRIBE] == 1
    registrations.end()
    assert scripted.requests[UNSUBSCRIBE] == 1
    assert not caplog.records
    registrations.add(layouts(scripted))
    scripted.script(UNSUBSCRIBE, cut)
    registrations.end()
    assert "mine stays registered at topic://public/default/t" in caplog.text
