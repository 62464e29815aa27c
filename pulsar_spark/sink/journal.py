# SPDX-License-Identifier: Apache-2.0
"""A topic as a small log: messages are appended, read from the start, forgotten.

Its durable subscription is what keeps it: everything after the subscription's
mark-delete position is there, everything before may be trimmed. A call attaches for
itself; inside of ``with journal:`` the producer stays, and ``attach`` subscribes ahead
of the next reading, which saves most of the round trips::

    attach()          LOOKUP --> PRODUCER, SUBSCRIBE
    append(), read()  SEND --> its receipt, and the entry itself

The subscription is exclusive, so it is let go after each reading: a process that is
stopped, or waits for something else, must not keep the next one from its work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.requests import together
from pulsar_spark.errors import (
    CommitLogError,
    CorruptEntryError,
    PulsarSparkError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition, Request, SubscribeRequest
from pulsar_spark.wire.compression import decompress
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.protocol import Delivery

T = TypeVar("T")

#: Messages asked for at a time.
_PERMITS = 1000

#: What a message takes in memory beside its bytes, about.
_ENTRY_BYTES = 400

#: How the name of the subscription ends that keeps a journal.
_SUBSCRIPTION = "-commits"


class Stored(NamedTuple):
    """A message of a journal.

    Attributes:
        message_id: The place.
        payload: The message.
        publish_time_ms: When it was appended, by its writer's clock.
    """

    message_id: MessageId
    payload: bytes
    publish_time_ms: int


class Journal:
    """An unpartitioned topic with several appending processes and a reader.

    Args:
        pool: The cluster's connections.
        topic: Full name. It is created with its first message, or its first reading,
            where the broker's policy allows that.
        patience_s: How long to go on without any answer, in seconds; by default
            ``operation_timeout_s``.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        topic: str,
        *,
        patience_s: float | None = None,
    ) -> None:
        self.topic = topic
        self._subscription = f"{pool.options.subscription_prefix}{_SUBSCRIPTION}"
        self._pool = pool
        self._options = pool.options
        usual_s = self._options.operation_timeout_s
        self._patience_s = usual_s if patience_s is None else patience_s
        self._positions = PositionLookup(pool)
        self._is_held = False
        self._writer: Producers | None = None
        self._reader: ConsumerSet[_Consumer] | None = None
        # What was subscribed when the last message was appended.
        self._witness: ConsumerSet[_Consumer] | None = None

    def __enter__(self) -> Journal:
        self._is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        self.release()

    def release(self) -> None:
        """Let go of what is attached."""
        self._release_writer()
        self._release_reader()

    def attach(self) -> None:
        """Attach for appending and the next reading. For a journal that is held.

        What fails is tried again by the call that needs it.
        """
        assert self._is_held

        def subscribe() -> None:
            with contextlib.suppress(PulsarSparkError):
                self._grant(self._subscribed())

        together(subscribe, self.attach_writer)

    def attach_writer(self) -> None:
        """Do as ``attach``, but for appending alone."""
        assert self._is_held
        with contextlib.suppress(PulsarSparkError):
            self._producers()

    def append(self, message: bytes) -> MessageId | None:
        """Append a message; return once stored.

        After a broken connection it may be there twice.

        Returns:
            Its message id; None where no receipt named that.

        Raises:
            PulsarSparkError: The topic cannot be written to.
        """
        try:
            producers = self._producers()
            producer = producers.get(self.topic)
            self._witness, before = self._reader, producer.stored.last_message
            producers.send(producer, producer.plain_entry(message))
            producers.flush()
            # A receipt for what was there already, and was sent again, names no place.
            stored = producer.stored.last_message
            return None if stored == before else stored
        except BaseException:
            self._release_writer()  # whose error is final
            raise
        finally:
            self._release_unless_held()

    def read(self, up_to: MessageId | None = None) -> list[tuple[MessageId, bytes]]:
        """Return everything that was not forgotten, in order, with the message ids.

        Args:
            up_to: The id of the last message that this journal has appended: what came
                later may be missing. Where no other process can have forgotten the
                message, this saves to ask for the last one.

        Raises:
            BrokerError: With the code ``ConsumerBusy`` if another process reads it.
            PulsarSparkError: The topic cannot be read.
        """

        def act(group: ConsumerSet[_Consumer]) -> list[Stored]:
            return self._read(group, up_to if group is self._witness else None)

        messages = self._reading(act)
        return [(message.message_id, message.payload) for message in messages]

    def look(self) -> list[Stored]:
        """Return everything that is still stored, in order, and leave no trace.

        That may be more than ``read`` returns: what was forgotten is not removed at
        once. It does not disturb another reader of the journal.

        Raises:
            TopicNotFoundError: There is no such topic.
            PulsarSparkError: It cannot be read.
        """
        retry = self._pool.retry(self._patience_s)
        name = self._pool.reader_name()
        while True:
            try:
                with ConsumerSet(self._pool, self._consumer) as group:
                    group.connect([self.topic])
                    group.step(
                        lambda consumer: consumer.subscribe(
                            SubscribeRequest(name, start=EARLIEST)
                        )
                    )
                    _check(group)
                    return self._read(group)
            except PulsarSparkError as error:
                retry.pause(error)

    def keep(self) -> None:
        """Create the subscription, so that brokers keep unforgotten messages.

        Reading does that as well.

        Raises:
            PulsarSparkError: As ``read``.
        """
        self._reading(lambda group: None)

    def forget(self, last: MessageId) -> None:
        """Let go of everything up to and including ``last``.

        Raises:
            PulsarSparkError: As ``read``.
        """
        self._reading(lambda group: _acknowledge(group, last))

    def last(self) -> MessageId | None:
        """Return the id of the last message that can be read now, None for none.

        Raises:
            PulsarSparkError: As ``read``.
        """
        return self._reading(self._last)

    def _producers(self) -> Producers:
        """Return what appends, attached; its error is final."""
        if self._writer is None:
            self._writer = Producers(self._pool, ProducerSettings())
        try:
            self._writer.open([self.topic])
        except BaseException:
            self._release_writer()
            raise
        return self._writer

    def _consumer(self, topic: str, connection: Connection) -> _Consumer:
        return _Consumer(topic, connection, self._options.memory_limit_bytes)

    def _subscribe(self, consumer: _Consumer) -> Request[pb.CommandSuccess]:
        return consumer.subscribe(
            SubscribeRequest(
                self._subscription,
                durable=True,
                initial_position=InitialPosition.EARLIEST,
            )
        )

    def _reading(self, act: Callable[[ConsumerSet[_Consumer]], T]) -> T:
        """Subscribe, act and close; repeat everything after a failure."""
        retry = self._pool.retry(self._patience_s)
        is_created = False
        try:
            while True:
                try:
                    group = self._subscribed()
                    result = act(group)
                    _check(group)
                    return result
                except PulsarSparkError as error:
                    # The producer's broker may have given the topic away: look it up.
                    self.release()
                    if isinstance(error, TopicNotFoundError) and not is_created:
                        is_created = True
                        self._producers()
                        continue  # it is there now
                    retry.pause(error)
        finally:
            self._release_reader()
            self._release_unless_held()

    def _subscribed(self) -> ConsumerSet[_Consumer]:
        """Return what reads, subscribed."""
        if self._reader is None:
            # A process that subscribes before a broker is done with the end of the last
            # subscription is refused, and asks again.
            group = ConsumerSet(self._pool, self._consumer, waits_for_end=False)
            try:
                group.connect([self.topic], known=self._known_connections())
                _check(group)
                group.step(self._subscribe)
                _check(group)
            except BaseException:
                group.close()
                raise
            self._reader = group
        return self._reader

    def _known_connections(self) -> dict[str, Connection]:
        """Return the connection of the producer, by topic, if there is any."""
        producers = [] if self._writer is None else self._writer.all
        return {
            producer.topic: producer.connection
            for producer in producers
            if producer.connection is not None
        }

    def _release_unless_held(self) -> None:
        if not self._is_held:
            self.release()

    def _release_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _release_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _last(
        self,
        group: ConsumerSet[_Consumer],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> MessageId | None:
        """Return the last message that can be delivered, None if all is forgotten."""
        answers = group.step(lambda one: one.get_last(), meanwhile=meanwhile)
        _check(group)
        positions = answers[self.topic]
        if positions.last is None:
            # A broker says so of a topic that it gives away, too.
            stored = self._positions.from_message_ids({self.topic: EARLIEST})
            positions = TopicPositions(positions.before, stored[self.topic].last)
        return None if positions.is_empty else positions.last

    def _grant(self, group: ConsumerSet[_Consumer]) -> None:
        """Ask for messages, if none that were asked for are still to come."""
        consumer = group.members[self.topic]
        if consumer.permits <= 0:
            consumer.permits += _PERMITS
            consumer.connection.grant(consumer.consumer_id, _PERMITS)

    def _read(
        self, group: ConsumerSet[_Consumer], up_to: MessageId | None = None
    ) -> list[Stored]:
        """Return the messages of a consumer, as far as one; None: as the last now."""
        grant = partial(self._grant, group)
        # Messages come right behind the answer.
        last = self._last(group, grant) if up_to is None else up_to
        if last is None:
            return []
        topic, silence_s = self.topic, self._options.operation_timeout_s
        consumer = group.members[topic]
        messages: list[Stored] = []
        while not messages or messages[-1].message_id.position < last.position:
            self._grant(group)
            with consumer.arrived:
                arrived = consumer.arrived.wait_for(
                    lambda: (
                        consumer.deliveries
                        or not consumer.is_open
                        or consumer.is_too_much
                    ),
                    silence_s,
                )
                deliveries, consumer.deliveries = consumer.deliveries, []
            if consumer.is_too_much:
                raise CommitLogError(
                    f"{topic} holds more than {consumer.arrived_bytes:,} bytes that "
                    "were not forgotten, which is no log of ours. If it is, raise "
                    "`pulsar.client.memoryLimitBytes`."
                )
            if not arrived or not consumer.is_open:
                raise _silent(topic, silence_s)
            consumer.permits -= len(deliveries)
            messages += [_message(delivery, topic) for delivery in deliveries]
        return messages


class _Consumer(TopicConsumer):
    """Collects deliveries, up to the limit of a journal.

    Attributes:
        permits: How many messages were asked for and not taken yet.
        arrived_bytes: What all of it takes, also what was dropped.
        is_too_much: Whether some was dropped.
    """

    def __init__(self, topic: str, connection: Connection, limit_bytes: int) -> None:
        super().__init__(topic, connection)
        self.deliveries: list[Delivery] = []
        self.permits = 0
        self.arrived = threading.Condition()
        self.arrived_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def is_too_much(self) -> bool:
        return self.arrived_bytes > self._limit_bytes

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self.arrived:
            self.arrived_bytes += sum(
                _ENTRY_BYTES + len(delivery.headers_and_payload)
                for delivery in deliveries
            )
            if not self.is_too_much:
                self.deliveries.extend(deliveries)
            self.arrived.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        with self.arrived:
            super().closed(error)
            self.arrived.notify_all()


def _check(group: ConsumerSet[Any]) -> None:
    for error in group.take_failures().values():
        raise error


def _acknowledge(group: ConsumerSet[_Consumer], last: MessageId) -> None:
    group.step(lambda one: commands.ack_cumulative(one.consumer_id, last))


def _message(one: Delivery, topic: str) -> Stored:
    """Return a message with its message id.

    Messages of this release are uncompressed; those of earlier releases may not be.
    """
    message_id = MessageId(one.ledger_id, one.entry_id)
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
            error.reason, topic_partition=topic, message_id=str(message_id)
        ) from None
    return Stored(message_id, bytes(payload), stored.metadata.publish_time)


def _silent(topic: str, silence_s: float) -> ReadTimeoutError:
    return ReadTimeoutError(
        f"{topic}: the broker did not deliver within {silence_s:g} s what it says is "
        "there.",
        topic_partition=topic,
        retriable=True,
    )
