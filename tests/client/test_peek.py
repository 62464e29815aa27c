# SPDX-License-Identifier: Apache-2.0
"""Readers that leave no trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.peek import Peeker, ask_positions, begin
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.protocol import Delivery
from tests.support.scripted_broker import (
    LEDGER,
    PATIENCE_S,
    ScriptedBroker,
    refuse,
    single,
)

TOPICS = [f"persistent://public/default/t-partition-{n}" for n in range(2)]


class Entries(Peeker):
    """Keeps which entries came."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.entry_ids: list[int] = []

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Note them."""
        with self._arrived:
            self.entry_ids += [one.entry_id for one in deliveries]
            self._arrived.notify_all()


def peeks_at(
    pool: ConnectionPool, start: MessageId, arrived: threading.Condition
) -> ConsumerSet[Entries]:
    """Peeks of both topic partitions, subscribed."""
    peeks = ConsumerSet(pool, lambda topic, to: Entries(topic, to, start, arrived))
    peeks.connect(TOPICS)
    begin(peeks)
    return peeks


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker with two topic partitions of four entries."""
    with ScriptedBroker() as broker:
        for topic in TOPICS:
            broker.add_topic(topic, [single(b"a")] * 4)
        yield broker


def test_it_reads_from_its_start_and_leaves_nothing(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Both at once, as far as they were asked to."""
    arrived = threading.Condition()
    with peeks_at(pool, MessageId(LEDGER, 1), arrived) as peeks:
        assert not any(map(scripted.durable, TOPICS))
        names = {body.subscription for body in scripted.bodies["SUBSCRIBE"]}
        assert len(names) == 2
        assert {name[:13] for name in names} == {"spark-pulsar-"}
        for peek in peeks.members.values():
            peek.grant(2)
        with arrived:
            both = list(peeks.members.values())
            assert arrived.wait_for(
                lambda: all(len(peek.entry_ids) == 2 for peek in both), PATIENCE_S
            )
        assert [peek.entry_ids for peek in both] == [[1, 2], [1, 2]]
    assert not scripted.subscriptions


def test_where_it_stands(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """What is before it, and the last entry there is."""
    with peeks_at(pool, MessageId(LEDGER, 2), threading.Condition()) as peeks:
        for peek in peeks.members.values():
            assert peek.positions.before.position == (LEDGER, 1)
            assert peek.positions.last is not None
            assert peek.positions.last.position == (LEDGER, 3)


def test_its_end_is_told(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """A wait for entries ends with the connection."""
    arrived = threading.Condition()
    with peeks_at(pool, MessageId(LEDGER, 0), arrived) as peeks:
        both = list(peeks.members.values())
        scripted.cut()
        with arrived:
            assert arrived.wait_for(
                lambda: not any(peek.is_open for peek in both), PATIENCE_S
            )


def test_positions_that_cannot_be_had(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The others are asked all the same."""
    with peeks_at(pool, MessageId(LEDGER, 0), threading.Condition()) as peeks:
        scripted.script("GET_LAST_MESSAGE_ID", refuse("MetadataError"))
        ask_positions(peeks)
        assert len(peeks.members) == 1
        assert len(peeks.take_failures()) == 1
