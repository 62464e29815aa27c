# SPDX-License-Identifier: Apache-2.0
"""Whether a topic has reached a position that compaction may have removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.errors import ReadTimeoutError
from pulsar_spark.source.missing.compaction import reaches
from pulsar_spark.wire.commands import ConsumerSettings
from tests.support.ranged import TOPIC, place
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    numbered,
    silence,
    then_moves,
    usual,
)
from tests.support.settings import reader_settings

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool

SETTINGS = reader_settings(consumer=ConsumerSettings(read_compacted=True))


def trimmed(broker: ScriptedBroker, session: Any, command: Any) -> None:
    """Answers as where retention has taken what compaction has kept.

    The topic of the broker is what is left of it then, the compacted one.
    """
    consumer = session.consumers[command.getLastMessageId.consumer_id]
    consumer.subscription.mark_delete = (LEDGER + 1, -1)
    usual(broker, session, command)


def then_closing(broker: ScriptedBroker, session: Any, command: Any) -> None:
    """Does so; then it gives the topic away."""
    trimmed(broker, session, command)
    broker.closing.add(TOPIC)


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_it_is_being_given_away(
    scripted: ScriptedBroker, pool: ConnectionPool, answers: int
) -> None:
    """Its broker says that nothing is there: it is asked again."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    given_away = [*[usual] * (answers - 1), then_moves]
    scripted.script("GET_LAST_MESSAGE_ID", then_closing, *given_away)
    assert reaches(pool, TOPIC, place(2), SETTINGS)


@pytest.mark.parametrize(("end", "found"), [(place(2), True), (place(-1), False)])
def test_what_compaction_has_kept(
    scripted: ScriptedBroker, pool: ConnectionPool, end: Any, *, found: bool
) -> None:
    """It begins up to the end, or is another topic's."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    scripted.script("GET_LAST_MESSAGE_ID", trimmed)
    assert reaches(pool, TOPIC, end, SETTINGS) == found


def test_what_is_kept_does_not_come(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A slow broker has lost nothing."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    scripted.script("GET_LAST_MESSAGE_ID", trimmed)
    scripted.script("FLOW", *[silence] * 10)
    settings = reader_settings(
        consumer=ConsumerSettings(read_compacted=True), poll_timeout_s=0.5
    )
    with pytest.raises(ReadTimeoutError, match=r"0.5 s \(`pollTimeoutMs`\), though"):
        reaches(pool, TOPIC, place(2), settings)


def test_nothing_is_kept(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Then the topic with this end is gone, as often as it is asked about."""
    scripted.add_topic(TOPIC, numbered(3, 1))

    def then_empty(broker: ScriptedBroker, session: Any, command: Any) -> None:
        trimmed(broker, session, command)
        broker.roll(TOPIC)
        broker.trim(TOPIC)

    scripted.script("GET_LAST_MESSAGE_ID", then_empty)
    assert not reaches(pool, TOPIC, place(2), SETTINGS)
