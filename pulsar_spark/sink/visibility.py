# SPDX-License-Identifier: Apache-2.0
"""Find out whether an entry that was written in a transaction can be read.

A coordinator gives the same answer about a committed transaction and an aborted one: it
knows neither any more. The topic does know. A reader that begins at an entry of the
transaction receives it if the transaction was committed; if it was aborted, the broker
skips it, and the reader's mark-delete position shows that::

    reader from 7:3, 7:3 of a transaction     mark-delete position       delivered
    open, or after another that is open       7:2                        nothing
    committed                                 7:2                        7:3
    aborted                                   7:3 or later               7:4, if any
    7:3 was removed by retention              11:-1, before any permit
"""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Sequence

from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.peek import Peeker, ask_positions, begin
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import PulsarSparkError, ReadTimeoutError
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import Retry

#: How long a delivery is waited for before the position is looked at, in seconds.
_TICK_S = 0.1

#: How often at least, also when there is no time left: brokers take a moment.
_TICKS = 20


class Visibility(enum.Enum):
    """What became of an entry."""

    #: It can be read: its transaction was committed.
    VISIBLE = "visible"
    #: Readers never get it: its transaction was aborted.
    ABORTED = "aborted"
    #: It is not stored any more.
    REMOVED = "removed"


def find_out(
    pool: ConnectionPool, topic_partition: str, entry: MessageId, retry: Retry
) -> Visibility:
    """Find out what became of an entry of a transaction that is over.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        entry: Its message id.
        retry: How long to try, and to wait for transactions that hold it back.

    Raises:
        PulsarSparkError: It cannot be found out in that time.
    """
    arrived = threading.Condition()
    while True:
        readers: ConsumerSet[_Reader] = ConsumerSet(
            pool, lambda topic, to: _Reader(topic, to, entry, arrived)
        )
        try:
            with readers:
                return _ask(readers, topic_partition, entry, arrived, retry)
        except PulsarSparkError as error:
            retry.pause(error)


class _Reader(Peeker):
    """Keeps where the first entry is that comes."""

    first: tuple[int, int] | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self._arrived:
            if self.first is None:
                self.first = deliveries[0].ledger_id, deliveries[0].entry_id
            self._arrived.notify_all()


def _ask(
    readers: ConsumerSet[_Reader],
    topic: str,
    entry: MessageId,
    arrived: threading.Condition,
    retry: Retry,
) -> Visibility:
    readers.connect([topic])
    begin(readers)
    if _mark_delete(readers) >= entry.position:
        return Visibility.REMOVED
    reader = readers.members[topic]
    reader.grant(1)
    for tick in itertools.count(1):
        with arrived:
            arrived.wait_for(lambda: reader.first or not reader.is_open, _TICK_S)
            first = reader.first
        if first is not None:
            is_it = first == entry.position
            return Visibility.VISIBLE if is_it else Visibility.ABORTED
        ask_positions(readers)
        if _mark_delete(readers) >= entry.position:
            return Visibility.ABORTED
        if retry.remaining_s == 0 and tick >= _TICKS:
            break
    raise _held_back(topic, entry)


def _mark_delete(readers: ConsumerSet[_Reader]) -> tuple[int, int]:
    for error in readers.take_failures().values():
        raise error
    (reader,) = readers.members.values()
    return reader.positions.before.position


def _held_back(topic: str, entry: MessageId) -> ReadTimeoutError:
    return ReadTimeoutError(
        f"{topic}: readers do not get to {entry}, because a transaction that began "
        "before is still open. `pulsar-admin transactions slow-transactions` shows it.",
        topic_partition=topic,
    )
