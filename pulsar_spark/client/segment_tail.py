# SPDX-License-Identifier: Apache-2.0
"""What a sealed segment has of a producer, where receipts are missing.

A broker that seals a segment closes its producers, and answers nothing more, also not
for entries that are stored. Nobody can attach to ask. So the end of the segment is
read: its entries name their producers, and have their sequence ids.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.peek import entry_of
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.segment_ends import stored_ends
from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.wire.commands import SubscribeRequest
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import ask_all

logger = logging.getLogger("pulsar_spark.client")

#: How long a broker may take to deliver the end of a segment, in seconds.
_DELIVERY_S = 10.0

#: Beginning of the names of readers.
_PREFIX = "spark-pulsar-tail"

#: Entries that a broker may send before more are asked for.
_PERMITS = 1000


def last_stored_id(
    pool: ConnectionPool, segment: str, producer_name: str, after: MessageId | None
) -> int:
    """Return the highest sequence id of a producer's whole messages; -1 for none.

    Behind an open transaction nothing can be read. Brokers of 5.0.0-M1 do not deliver
    either, until they load the segment again, entries that they stored while they
    sealed it. Neither is waited for long.

    Args:
        pool: The cluster's connections.
        segment: Full name of a sealed segment.
        producer_name: As brokers know the producer.
        after: An entry; only what follows it is looked at. None for all.

    Raises:
        PulsarSparkError: The segment cannot be read.
    """
    patience_s = pool.write_patience_s

    def read(segments: list[str]) -> dict[str, int | PulsarSparkError]:
        return {name: _read(pool, name, producer_name, after) for name in segments}

    return ask_all([segment], read, pool.retry(patience_s))[segment]


def has_ended_at(pool: ConnectionPool, segment: str, entry: MessageId | None) -> bool:
    """Return whether nothing follows an entry of a sealed segment, as far as is known.

    Args:
        pool: The cluster's connections.
        segment: Full name of a sealed segment.
        entry: An entry of it; None for a place before the first one.
    """
    end = stored_ends(pool, _PREFIX, [segment])[segment]
    if isinstance(end, PulsarSparkError):
        return False
    return end[1] < 0 if entry is None else end == entry.position


def _read(
    pool: ConnectionPool, segment: str, producer_name: str, after: MessageId | None
) -> int | PulsarSparkError:
    end = stored_ends(pool, _PREFIX, [segment])[segment]
    if isinstance(end, PulsarSparkError):
        return end
    start = EARLIEST if after is None else MessageId(*after.position)
    reader_name = f"{_PREFIX}-{uuid.uuid4()}"
    with ConsumerSet(
        pool,
        lambda name, connection: _Tail(name, connection, producer_name),
        waits_for_end=False,
    ) as readers:
        readers.connect([segment])
        readers.step(
            lambda reader: reader.subscribe(SubscribeRequest(reader_name, start=start))
        )
        if failures := readers.take_failures():
            return failures[segment]
        tail = readers.members[segment]
        tail.listen(end)
        if not tail.is_done.wait(_DELIVERY_S):
            # A row that is stored there and not delivered is stored twice by this.
            logger.warning(
                "%s: the entries up to %s do not come. Rows that may be among them are "
                "written once more.",
                segment,
                MessageId(*end),
            )
        return tail.error or tail.last_id


class _Tail(TopicConsumer):
    """A reader that keeps the last sequence id of a producer.

    Attributes:
        is_done: Set when the end was read, or the connection broke.
        last_id: The highest sequence id so far; -1 for none.
        error: Why the end was not read.
    """

    def __init__(self, topic: str, connection: Connection, producer_name: str) -> None:
        super().__init__(topic, connection)
        self.is_done = threading.Event()
        self.last_id = -1
        self.error: PulsarSparkError | None = None
        self._producer_name = producer_name
        self._end = (-1, -1)
        self._permits = 0

    def listen(self, end: tuple[int, int]) -> None:
        """Ask for all entries up to the end."""
        self._end = end
        if end[1] < 0:
            self.is_done.set()
            return
        self._grant()

    def _grant(self) -> None:
        self._permits += _PERMITS
        self.connection.grant(self.consumer_id, _PERMITS)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Look at the producer's entries."""
        place = -1, -1
        for delivery in deliveries:
            place = delivery.ledger_id, delivery.entry_id
            entry = entry_of(delivery)
            if entry is None:
                continue
            metadata = entry.metadata
            self._permits -= max(1, metadata.num_messages_in_batch)
            is_whole = metadata.chunk_id + 1 >= metadata.num_chunks_from_msg
            if metadata.producer_name == self._producer_name and is_whole:
                last_id = max(metadata.sequence_id, metadata.highest_sequence_id)
                self.last_id = max(self.last_id, last_id)
        if place >= self._end:
            self.is_done.set()
        elif self._permits <= _PERMITS // 2:
            self._grant()

    def closed(self, error: PulsarSparkError | None) -> None:
        """Note that the end will not come."""
        super().closed(error)
        self.error = error or TransportError(f"{self.topic}: the reader was closed.")
        self.is_done.set()
