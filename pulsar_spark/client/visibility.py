"""Whether an entry that was written in a transaction can be read.

A coordinator says the same of a transaction that was committed and of one that was
aborted: it knows neither any more. The topic does know. A reader that begins at an
entry of the transaction gets it, where it was committed; where it was aborted the
broker passes over it, which the reader's own place shows::

    reader from 7:3, 7:3 of a transaction     its place (mark-delete)    delivered
    open, or behind another that is open      7:2                        nothing
    committed                                 7:2                        7:3
    aborted                                   7:3 or later               7:4, if any
    7:3 was removed by retention              11:-1, before any permit

Readers are not durable: nothing of them stays behind.
"""

from __future__ import annotations

import enum
import itertools
import threading
import uuid
from collections.abc import Sequence

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerGroup, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import read_positions
from pulsar_spark.client.retry import Retry
from pulsar_spark.errors import PulsarSparkError, ReadTimeoutError
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.protocol import Delivery

#: How long a delivery is waited for before the place is looked at, in seconds.
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
    pool: ConnectionPool, topic_partition: str, place: MessageId, retry: Retry
) -> Visibility:
    """Find out what became of an entry of a transaction that is over.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        place: Of the entry.
        retry: How long to try, and to wait for transactions that hold it back.

    Raises:
        PulsarSparkError: It cannot be found out in that time.
    """
    while True:
        group = ConsumerGroup(pool, _Reader)
        try:
            return _ask(group, topic_partition, place, retry)
        except PulsarSparkError as error:
            retry.pause(error)
        finally:
            group.close()


class _Reader(TopicConsumer):
    """Keeps what is delivered."""

    def __init__(self, topic: str, connection: Connection) -> None:
        super().__init__(topic, connection)
        self.first: tuple[int, int] | None = None
        self.news = threading.Condition()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.news:
            if self.first is None:
                self.first = deliveries[0].ledger_id, deliveries[0].entry_id
            self.news.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        with self.news:
            super().closed(error)
            self.news.notify_all()


def _ask(
    group: ConsumerGroup[_Reader], topic: str, place: MessageId, retry: Retry
) -> Visibility:
    name = f"spark-pulsar-proof-{uuid.uuid4()}"
    group.connect([topic])
    group.step(
        "SUBSCRIBE", lambda reader: reader.subscribe(name, durable=False, start=place)
    )
    if _mark_delete(group) >= place.position:
        return Visibility.REMOVED
    reader = group.members[topic]
    reader.connection.grant(reader.consumer_id, 1)
    for tick in itertools.count(1):
        with reader.news:
            reader.news.wait_for(lambda: reader.first or not reader.is_open, _TICK_S)
            first = reader.first
        if first is not None:
            is_it = first == place.position
            return Visibility.VISIBLE if is_it else Visibility.ABORTED
        if _mark_delete(group) >= place.position:
            return Visibility.ABORTED
        if retry.remaining_s == 0 and tick >= _TICKS:
            break
    raise _held_back(topic, place)


def _mark_delete(group: ConsumerGroup[_Reader]) -> tuple[int, int]:
    answers = group.step("GET_LAST_MESSAGE_ID", lambda reader: reader.get_last())
    for error in group.take_failures().values():
        raise error
    (answer,) = answers.values()
    return read_positions(answer).before.position


def _held_back(topic: str, place: MessageId) -> ReadTimeoutError:
    return ReadTimeoutError(
        f"{topic}: readers do not get to {place}, because a transaction that began "
        "before is still open. `pulsar-admin transactions slow-transactions` shows it.",
        topic_partition=topic,
    )
