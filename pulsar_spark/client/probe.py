# SPDX-License-Identifier: Apache-2.0
"""Find out what a topic partition stores, by the place of a new consumer.

As the last message of a topic a broker names the last one that it would deliver now. So
it says that nothing is stored while it hands the topic over to another broker, or has
not recovered its transactions yet. The place at which a consumer begins comes from the
ledgers alone::

    begins at    its place   where 7:0 to 7:9 and 9:0 to 9:4 are stored
    earliest     7:-1        the entry before the first one
    latest       9:4         the last one

Retention removes whole ledgers, the oldest first: all between the two is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.wire.commands import SubscribeRequest
from pulsar_spark.wire.protocol import Delivery


class Probe:
    """Subscribes to a topic partition, and takes nothing. A context manager.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
    """

    def __init__(self, pool: ConnectionPool, topic_partition: str) -> None:
        self._topic_partition = topic_partition
        self._pool = pool
        self._consumers = ConsumerSet(pool, Listener)

    def __enter__(self) -> Probe:
        self._consumers.connect([self._topic_partition])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumers.close()

    def begin(self, start: MessageId) -> tuple[int, int] | None:
        """Begin again, at an entry that need not exist; return what `place` does."""
        for consumer in self._consumers.members.values():
            if consumer.consumer_id:
                consumer.connection.tell(consumer.close())
        self._consumers.step(
            lambda consumer: consumer.subscribe(
                SubscribeRequest(self._pool.reader_name(), start=start)
            )
        )
        return self.place()

    def place(self) -> tuple[int, int] | None:
        """Return the last entry before the probe, None if unknown now.

        Raises:
            TopicNotFoundError: The topic partition is no longer there.
            PulsarSparkError: The broker refuses for good.
        """
        replies = self._consumers.step(lambda consumer: consumer.get_last())
        if (reply := replies.get(self._topic_partition)) is not None:
            return reply.before.position
        for failure in self._consumers.failures.values():
            if not failure.retriable:
                raise failure
        return None

    def grant(self, permits: int) -> None:
        """Let the broker send messages."""
        for consumer in self._consumers.members.values():
            consumer.connection.grant(consumer.consumer_id, permits)

    def hears(self, timeout_s: float) -> bool:
        """Wait for a delivery; return whether any came."""
        listeners = self._consumers.members.values()
        return any(consumer.heard.wait(timeout_s) for consumer in listeners)


def is_stored(
    pool: ConnectionPool,
    topic_partition: str,
    entry: MessageId,
) -> bool | None:
    """Return whether an entry that was stored still is; None where that is not known.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        entry: Which one.

    Raises:
        TopicNotFoundError: The topic partition is no longer there.
        PulsarSparkError: The broker refuses for good.
    """
    with Probe(pool, topic_partition) as probe:
        # The latter last: retention may come in between, and moves the former only.
        last, before = probe.begin(LATEST), probe.begin(EARLIEST)
    if last is None or before is None:
        return None
    return before < entry.position <= last


class Listener(TopicConsumer):
    """Notes whether something came.

    Attributes:
        heard: Whether it did.
        first: The first entry that came: ``(ledger_id, entry_id)``.
    """

    def __init__(self, topic: str, connection: Connection) -> None:
        super().__init__(topic, connection)
        self.heard = threading.Event()
        self.first: tuple[int, int] | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Note that something came."""
        if self.first is None:
            self.first = deliveries[0].ledger_id, deliveries[0].entry_id
        self.heard.set()
