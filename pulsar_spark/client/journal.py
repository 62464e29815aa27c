"""A topic as a small log: messages appended, read from its beginning, and forgotten.

Its durable subscription is what keeps it: everything behind the subscription's place is
there, everything before may be trimmed. Each call connects anew, because the driver's
calls come from different processes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerGroup, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producers import Producers, ProducerSettings
from pulsar_spark.client.retry import Retry
from pulsar_spark.errors import (
    CheckpointError,
    CorruptEntryError,
    PulsarSparkError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire import commands
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.compression import decompress
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.protocol import Delivery

T = TypeVar("T")

#: Messages asked for at a time.
_PERMITS = 1000

#: What a message takes in memory beside its bytes, about.
_ENTRY_BYTES = 600

#: The subscription that keeps a journal.
_SUBSCRIPTION = "spark-commits"


class Journal:
    """A topic without partitions that some processes append to, and one reads.

    Args:
        pool: The cluster's connections.
        topic: Full name. It is created with its first message, or its first reading,
            where the broker's policy allows that.
    """

    def __init__(self, pool: ConnectionPool, topic: str) -> None:
        self.topic = topic
        self._pool = pool
        self._options = pool.options

    def append(self, message: bytes) -> None:
        """Appends a message; returns when it is stored.

        After a broken connection it may be there twice.

        Raises:
            PulsarSparkError: The topic cannot be written to.
        """
        with self._producers() as producers:
            producer = producers.get(self.topic)
            producers.send(producer, producer.plain_entry(message))
            producers.flush()

    def read(self) -> list[tuple[MessageId, bytes]]:
        """Everything that was not forgotten, in order, with the places.

        Raises:
            BrokerError: With the code ``ConsumerBusy`` if another process reads it.
            PulsarSparkError: The topic cannot be read.
        """
        return self._reading(lambda group: _read(group, self.topic, self._patience_s))

    def keep(self) -> None:
        """Makes sure that nothing is trimmed that was not forgotten, from here on.

        Reading does that as well.

        Raises:
            PulsarSparkError: As ``read``.
        """
        self._reading(lambda group: None)

    def forget(self, last: MessageId) -> None:
        """Lets go of everything up to and including ``last``.

        Raises:
            PulsarSparkError: As ``read``.
        """
        self._reading(lambda group: _acknowledge(group, last))

    def last(self) -> MessageId | None:
        """The place of the last message that can be read now, None for none.

        Raises:
            PulsarSparkError: As ``read``.
        """
        return self._reading(lambda group: _last(group, self.topic))

    @property
    def _patience_s(self) -> float:
        return self._options.operation_timeout_s

    @contextlib.contextmanager
    def _producers(self) -> Iterator[Producers]:
        producers = Producers(self._pool, ProducerSettings())
        try:
            producers.open([self.topic])
            yield producers
        finally:
            producers.close()

    def _consumer(self, topic: str, connection: Connection) -> _Consumer:
        return _Consumer(topic, connection, self._options.memory_limit_bytes)

    def _reading(self, act: Callable[[ConsumerGroup[_Consumer]], T]) -> T:
        """Subscribes, acts and lets go; all of it again if something breaks."""
        retry = Retry(self._options, self._patience_s)
        is_created = False
        while True:
            group = ConsumerGroup(self._pool, self._consumer)
            try:
                group.connect([self.topic])
                group.step("SUBSCRIBE", _subscribe)
                _check(group)
                result = act(group)
                _check(group)
                return result
            except PulsarSparkError as error:
                if isinstance(error, TopicNotFoundError) and not is_created:
                    is_created = True
                    with self._producers():
                        continue  # it is there now
                retry.pause(error)
            finally:
                group.close()


class _Consumer(TopicConsumer):
    """Collects what is delivered, as long as it is no more than a journal has.

    Attributes:
        arrived_bytes: What all of it takes, also what was dropped.
        is_too_much: Whether some was dropped.
    """

    def __init__(self, topic: str, connection: Connection, limit_bytes: int) -> None:
        super().__init__(topic, connection)
        self.deliveries: list[Delivery] = []
        self.arrived = threading.Condition()
        self.arrived_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def is_too_much(self) -> bool:
        return self.arrived_bytes > self._limit_bytes

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.arrived:
            self.arrived_bytes += sum(
                _ENTRY_BYTES + len(one.headers_and_payload) for one in deliveries
            )
            if not self.is_too_much:
                self.deliveries.extend(deliveries)
            self.arrived.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        with self.arrived:
            super().closed(error)
            self.arrived.notify_all()


def _subscribe(consumer: _Consumer) -> Callable[..., bytes]:
    return consumer.subscribe(
        _SUBSCRIPTION, durable=True, initial_position=InitialPosition.EARLIEST
    )


def _check(group: ConsumerGroup[Any]) -> None:
    for error in group.take_failures().values():
        raise error


def _acknowledge(group: ConsumerGroup[_Consumer], last: MessageId) -> None:
    group.step(
        "ACK", lambda one: partial(commands.ack_cumulative, one.consumer_id, last)
    )


def _last(group: ConsumerGroup[_Consumer], topic: str) -> MessageId | None:
    """The last message that can be delivered, None where all of it is done with."""
    answers = group.step("GET_LAST_MESSAGE_ID", lambda one: one.get_last())
    _check(group)
    last = commands.from_message_id_data(answers[topic].last_message_id)
    done = commands.from_message_id_data(answers[topic].consumer_mark_delete_position)
    return last if _place(last) > _place(done) else None


def _place(message_id: MessageId) -> tuple[int, int]:
    return message_id.ledger_id, message_id.entry_id


def _read(
    group: ConsumerGroup[_Consumer], topic: str, patience_s: float
) -> list[tuple[MessageId, bytes]]:
    last = _last(group, topic)
    if last is None:
        return []
    consumer = group.members[topic]
    messages: list[tuple[MessageId, bytes]] = []
    permits = 0
    while not messages or _place(messages[-1][0]) < _place(last):
        if permits <= 0:
            consumer.connection.grant(consumer.consumer_id, _PERMITS)
            permits = _PERMITS
        with consumer.arrived:
            some = consumer.arrived.wait_for(
                lambda: (
                    consumer.deliveries or not consumer.is_open or consumer.is_too_much
                ),
                patience_s,
            )
            deliveries, consumer.deliveries = consumer.deliveries, []
        if consumer.is_too_much:
            raise CheckpointError(
                f"{topic} holds more than {consumer.arrived_bytes:,} bytes that were "
                "not forgotten, which is no log of ours. If it is, raise "
                "`pulsar.client.memoryLimitBytes`."
            )
        if not some or not consumer.is_open:
            raise _silent(topic, patience_s)
        permits -= len(deliveries)
        messages += [_message(one, topic) for one in deliveries]
    return messages


def _message(one: Delivery, topic: str) -> tuple[MessageId, bytes]:
    """A message with its place. Ours are plain; earlier versions compressed some."""
    place = MessageId(one.ledger_id, one.entry_id)
    try:
        stored = read_stored_entry(one.ledger_id, one.entry_id, one.headers_and_payload)
        payload = decompress(
            stored.metadata.compression,
            stored.payload,
            stored.metadata.uncompressed_size,
            DEFAULT_MAX_MESSAGE_SIZE_BYTES,
        )
    except CorruptEntryError as error:
        raise CorruptEntryError(
            error.reason, topic_partition=topic, message_id=str(place)
        ) from None
    return place, bytes(payload)


def _silent(topic: str, patience_s: float) -> ReadTimeoutError:
    error = ReadTimeoutError(
        f"{topic}: the broker did not deliver within {patience_s:g} s what it says is "
        "there.",
        topic_partition=topic,
    )
    error.retriable = True
    return error
