# SPDX-License-Identifier: Apache-2.0
"""Readers that look at a few stored entries and leave no trace.

They are not durable: they acknowledge nothing, keep nothing from being trimmed, and
brokers forget them when they are closed. They serve the survey of ledgers, the guard of
chunked messages, and the question whether a row is visible.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.errors import CorruptEntryError, PulsarSparkError
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import Request, SubscribeRequest
from pulsar_spark.wire.entries import StoredEntry, read_stored_entry
from pulsar_spark.wire.protocol import Delivery


class Peeker(TopicConsumer):
    """A reader of the entries from some message id on. Subclasses say what to keep.

    Args:
        topic: Full name of the topic partition.
        connection: To its broker.
        start: The beginning, inclusive.
        arrived: Notified when the reader is closed; ``deliver`` has to notify it, too.

    Attributes:
        positions: If it is and where its topic partition ends, as the broker
            said last; see ``ask_positions``.
    """

    def __init__(
        self,
        topic: str,
        connection: Connection,
        start: MessageId,
        arrived: threading.Condition,
    ) -> None:
        super().__init__(topic, connection)
        self.positions = TopicPositions(EARLIEST, None)
        self._start = start
        self._arrived = arrived

    def attach(self, name: str) -> Request[pb.CommandSuccess]:
        """Build SUBSCRIBE. Never of the compacted form, which has no dense numbers.

        Args:
            name: Name of the subscription.
        """
        return self.subscribe(SubscribeRequest(name, start=self._start))

    def grant(self, permits: int) -> None:
        """Let the broker send entries. A broken connection closes its readers."""
        with contextlib.suppress(PulsarSparkError):
            self.connection.grant(self.consumer_id, permits)

    # What follows is called by the connection's reading thread.

    def closed(self, error: PulsarSparkError | None) -> None:
        """Notify who waits for entries that no more will come."""
        with self._arrived:
            super().closed(error)
            self._arrived.notify_all()


P = TypeVar("P", bound=Peeker)


def begin(peekers: ConsumerSet[P]) -> None:
    """Subscribe all members, and ask for their positions.

    Members whose request fails are dropped.

    Args:
        peekers: Connected already.
    """
    peekers.step(lambda peeker: peeker.attach(peekers.reader_name()))
    ask_positions(peekers)


def ask_positions(
    peekers: ConsumerSet[P],
    names: Iterable[str] | None = None,
    *,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Ask for the cursor of each member, and the end of the topic partition.

    Members whose request fails are dropped.

    Args:
        peekers: Subscribed already.
        names: The members to ask about, None for all.
        meanwhile: Called after all questions were sent.
    """
    replies = peekers.step(lambda peeker: peeker.get_last(), names, meanwhile=meanwhile)
    for name, reply in replies.items():
        peekers.members[name].positions = reply


def entry_of(delivery: Delivery) -> StoredEntry | None:
    """Return the entry; None if damaged, which the reader of rows reports."""
    try:
        return read_stored_entry(
            delivery.ledger_id, delivery.entry_id, delivery.headers_and_payload
        )
    except CorruptEntryError:
        return None
