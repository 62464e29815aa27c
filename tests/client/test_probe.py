# SPDX-License-Identifier: Apache-2.0
"""Whether an entry is still stored, as the place of a consumer says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.probe import is_stored
from pulsar_spark.errors import AuthError, PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import MessageId
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    refuse,
    single,
    usual,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool

TOPIC = "persistent://public/default/t"


@pytest.fixture
def ledgers(scripted: ScriptedBroker) -> ScriptedBroker:
    """A topic of two ledgers with three entries each."""
    scripted.add_topic(TOPIC, [single(b"a")] * 3)
    scripted.roll(TOPIC)
    scripted.append(TOPIC, *[single(b"b")] * 3)
    return scripted


@pytest.mark.parametrize("is_closing", [False, True])
@pytest.mark.parametrize("is_trimmed", [False, True])
def test_by_the_ledgers(
    ledgers: ScriptedBroker, pool: ConnectionPool, is_trimmed: bool, is_closing: bool
) -> None:
    """Also where the broker says that nothing is there, as it gives the topic away."""
    places = ledgers.positions(TOPIC)
    if is_trimmed:
        ledgers.trim(TOPIC)
    if is_closing:
        ledgers.closing.add(TOPIC)
    last = places[-1]
    behind = MessageId(last[0], last[1] + 1)
    expected = [not is_trimmed] * 3 + [True] * 3
    found = [is_stored(pool, TOPIC, MessageId(*place)) for place in places]
    assert found == expected
    assert is_stored(pool, TOPIC, behind) is False
    wait_until(lambda: not ledgers.consumers, "the end of the probes")


def test_an_empty_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Has nothing."""
    scripted.add_topic(TOPIC)
    assert is_stored(pool, TOPIC, MessageId(LEDGER, 0)) is False


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("LOOKUP", [refuse("ServiceNotReady")]),
        ("SUBSCRIBE", [usual, refuse("ServiceNotReady")]),
        ("GET_LAST_MESSAGE_ID", [refuse("ServiceNotReady")]),
    ],
)
def test_a_broker_that_does_not_say(
    ledgers: ScriptedBroker,
    pool: ConnectionPool,
    command: str,
    actions: list[Action],
) -> None:
    """For now it is not known, which is neither; who asks again later is told."""
    ledgers.script(command, *actions)
    assert is_stored(pool, TOPIC, MessageId(LEDGER, 1)) is None
    assert is_stored(pool, TOPIC, MessageId(LEDGER, 1)) is True


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("LOOKUP", "TopicNotFound", TopicNotFoundError),
        ("SUBSCRIBE", "AuthorizationError", AuthError),
    ],
)
def test_a_broker_that_refuses(
    ledgers: ScriptedBroker,
    pool: ConnectionPool,
    command: str,
    code: str,
    error: type[PulsarSparkError],
) -> None:
    """Nobody asks again what is refused for good."""
    ledgers.script(command, refuse(code))
    with pytest.raises(error):
        is_stored(pool, TOPIC, MessageId(LEDGER, 1))
