"""The entries of one topic partition from a start on, whatever happens to the broker.

A reader subscribes without leaving a trace (not durable), grants permits as entries are
taken, and when the connection breaks or the topic moves it comes back right after the
last entry it handed on: none is lost, none comes twice.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import read_positions
from pulsar_spark.client.retry import Retry
from pulsar_spark.errors import (
    BrokerError,
    CorruptEntryError,
    PulsarSparkError,
    ReadTimeoutError,
    TransportError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.plan import TopicPositions
from pulsar_spark.wire import commands
from pulsar_spark.wire.entries import StoredEntry, read_stored_entry
from pulsar_spark.wire.permits import Permits
from pulsar_spark.wire.protocol import Delivery

logger = logging.getLogger("pulsar_spark.client")

#: The part of ``memoryLimitBytes`` that permits aim at, and the part at which reading
#: from the socket stops until entries are taken. The rest is for chunked messages.
_WINDOW_SHARE = 4
_QUEUE_SHARE = 2

#: Taken from the queue at a time: enough that locking does not show, little enough that
#: permits are given back smoothly.
_TAKEN_BYTES = 256 * 1024

#: What an entry that waits takes beside its bytes, and each word of its ack_set: about.
_ENTRY_BYTES = 600
_WORD_BYTES = 40

#: Entries in a row that were handed on before. Coming back brings one.
_MOST_REPEATS = 1000

#: How long a close may wait for the broker's word, in seconds. Nothing depends on it.
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How to read.

    Attributes:
        subscription_prefix: Beginning of the name the broker shows for the reader.
        consumer_name: Name the broker shows for the consumer, "" for a generated one.
        receiver_queue_messages: Most messages under way or waiting to be taken.
        read_compacted: Whether to read the compacted topic.
        poll_timeout_s: Longest time without an entry, reconnecting included.
    """

    subscription_prefix: str
    consumer_name: str = ""
    receiver_queue_messages: int = 10_000
    read_compacted: bool = False
    poll_timeout_s: float = 120.0


class EntryReader:
    """Reads the entries of one topic partition in order.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        start: The first entry wanted; its batch index does not matter here.
        settings: How to read.
        on_start: Called after each subscribing with the start that was asked for and
            what the broker says of it; may raise.
        rollback_s: Instead of at ``start``, begin this many seconds before now.

    Attributes:
        reconnects: How often it had to come back.
        waited_s: How long it waited for entries, in seconds.
        trouble: Why it had to come back, if that was since the last entry, else "".
    """

    def __init__(
        self,
        pool: ConnectionPool,
        topic_partition: str,
        start: MessageId,
        settings: ReaderSettings,
        *,
        on_start: Callable[[MessageId, TopicPositions], None] | None = None,
        rollback_s: int | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.reconnects = 0
        self.waited_s = 0.0
        self.trouble = ""
        self._pool = pool
        self._lookup = TopicLookup(pool)
        self._start = start
        self._settings = settings
        self._on_start = on_start
        self._rollback_s = rollback_s
        self._subscription = f"{settings.subscription_prefix}-{uuid.uuid4()}"
        self._permits = Permits(
            settings.receiver_queue_messages,
            pool.options.memory_limit_bytes // _WINDOW_SHARE,
        )
        self._retry = Retry(pool.options, settings.poll_timeout_s)
        self._consumer: _Consumer | None = None
        self._taken: deque[Delivery] = deque()
        self._charged_messages = self._charged_bytes = 0  # not refunded yet
        self._last: tuple[int, int] | None = None
        self._is_waiting = False  # since the last entry came
        self._repeats = 0  # entries that had come before, while it waited

    @property
    def position(self) -> tuple[int, int] | None:
        """``(ledger_id, entry_id)`` of the last entry handed on."""
        return self._last

    def receive(self, timeout_s: float) -> StoredEntry | None:
        """The next entry, or None if there is none within ``timeout_s`` seconds.

        Comes back after broken connections by itself, for as long as
        ``poll_timeout_s``.

        Raises:
            CorruptEntryError: The entry is damaged; names it.
            ReadTimeoutError: The topic partition cannot be reached for too long.
            PulsarSparkError: The broker refuses for good.
        """
        deadline = 0.0
        while True:
            if not self._taken:
                deadline = deadline or time.monotonic() + timeout_s
                if not self._refill(deadline):
                    return None
            stored = self._read(self._taken.popleft())
            if self._last is None or stored.position > self._last:
                self._last = stored.position
                if self._is_waiting:
                    self._is_waiting = False
                    self._repeats = 0
                    self.trouble = ""
                return stored
            self._repeated()

    def positions(self) -> TopicPositions | None:
        """What the broker says of the topic now, None if it cannot be asked now."""
        try:
            consumer = self._connected()
            return read_positions(consumer.ask(commands.get_last_message_id))
        except PulsarSparkError as error:
            self._lost(error)
            return None

    def close(self) -> None:
        """Ends the reader; the broker forgets it."""
        self._on_start = None  # who made this one goes at once, with all that it holds
        self._taken.clear()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(PulsarSparkError):
                consumer.close()

    def _repeated(self) -> None:
        """Counts an entry that was handed on before, and gives up on a flood of them.

        What it has brought is no progress: the patience for the next entry goes on.
        """
        self._repeats += 1
        if self._repeats < _MOST_REPEATS:
            return
        self._repeats = 0
        self._taken.clear()
        self._lost(
            TransportError(
                f"{self.topic_partition}: the broker sent {_MOST_REPEATS} entries in a "
                "row that it had sent before."
            )
        )

    def _refill(self, deadline: float) -> bool:
        """Takes what has arrived, or waits for it; whether there is anything."""
        self._refund()
        began = time.monotonic()
        if not self._is_waiting:
            # From now, not from the last entry: Spark may have been busy with its rows.
            self._retry.restart()
            self._is_waiting = True
        while not self._taken:
            try:
                consumer = self._connected()
                self._taken = consumer.take(deadline - time.monotonic())
            except PulsarSparkError as error:
                self._lost(error)
                continue
            if not self._taken:
                break
        self.waited_s += time.monotonic() - began
        return bool(self._taken)

    def _lost(self, error: PulsarSparkError) -> None:
        """Lets go of a broken consumer and waits a little before the next try."""
        self.trouble = error.message
        if self._consumer is not None:
            logger.debug("%s: lost the reader: %s", self.topic_partition, error)
            self._consumer.abandon()
            self._consumer = None
            self.reconnects += 1
        try:
            self._retry.pause(error)
        except PulsarSparkError:
            if not error.retriable:
                raise
            raise ReadTimeoutError(
                f"{self.topic_partition} could not be read for "
                f"{self._settings.poll_timeout_s:g} s (`pollTimeoutMs`). The last "
                f"reason: {error.message}",
                topic_partition=self.topic_partition,
            ) from error

    def _read(self, delivery: Delivery) -> StoredEntry:
        try:
            stored = read_stored_entry(
                delivery.ledger_id,
                delivery.entry_id,
                delivery.headers_and_payload,
                redelivery_count=delivery.redelivery_count,
            )
        except CorruptEntryError as error:
            raise CorruptEntryError(
                error.reason,
                topic_partition=self.topic_partition,
                message_id=f"{delivery.ledger_id}:{delivery.entry_id}",
            ) from None
        self._charged_messages += stored.charged_messages
        self._charged_bytes += len(delivery.headers_and_payload)
        return stored

    def _refund(self) -> None:
        """Grants permits anew for the entries taken since the last time."""
        # Arrived and taken in one: what waits in the queue still counts as granted.
        messages, size_bytes = self._charged_messages, self._charged_bytes
        self._charged_messages = self._charged_bytes = 0
        if size_bytes:
            self._permits.entry_arrived(messages, size_bytes)
            self._permits.messages_taken(messages, size_bytes)
        grant = self._permits.next_grant() if self._consumer is not None else 0
        if grant and self._consumer is not None:
            # If the connection is broken, the next take() says so.
            with contextlib.suppress(PulsarSparkError):
                self._consumer.grant(grant)

    def _connected(self) -> _Consumer:
        """The consumer, subscribed again where it was lost."""
        if self._consumer is None:
            self._consumer = self._subscribe()
        return self._consumer

    def _subscribe(self) -> _Consumer:
        topic = self.topic_partition
        address = self._lookup.brokers([topic])[topic]
        if isinstance(address, PulsarSparkError):
            raise address
        consumer = _Consumer(
            self._pool.get(address),
            self._pool.options.operation_timeout_s,
            self._pool.options.memory_limit_bytes // _QUEUE_SHARE,
        )
        start = self._start if self._last is None else MessageId(*self._last)
        by_time = self._rollback_s is not None and self._last is None
        try:
            consumer.ask(
                partial(
                    commands.subscribe,
                    topic=topic,
                    subscription=self._subscription,
                    durable=False,
                    start=EARLIEST if by_time else start,
                    read_compacted=self._settings.read_compacted,
                    consumer_name=self._settings.consumer_name,
                    start_message_rollback_duration_s=(
                        self._rollback_s if by_time else None
                    ),
                )
            )
            positions = read_positions(consumer.ask(commands.get_last_message_id))
            if self._on_start is not None and not by_time:
                self._on_start(start, positions)
            self._permits.reset()
            self._charged_messages = self._charged_bytes = 0
            self._taken.clear()  # what was not handed on comes again
            consumer.grant(self._permits.initial_grant())
        except BrokerError as error:
            consumer.abandon()
            raise error.about(topic) from error
        except PulsarSparkError:
            consumer.abandon()
            raise
        return consumer


class _Consumer:
    """One subscribing on one connection, and its inbox.

    Args:
        connection: To the broker that serves the topic partition.
        timeout_s: Longest wait for a reply.
        max_queued_bytes: When this much waits to be taken, the connection stops reading
            from its socket. Permits normally keep well below; only a topic whose
            messages suddenly become much larger gets here.
    """

    def __init__(
        self, connection: Connection, timeout_s: float, max_queued_bytes: int
    ) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._max_queued_bytes = max_queued_bytes
        self._changed = threading.Condition()
        self._queue: deque[Delivery] = deque()
        self._charges: deque[int] = deque()  # what each of them holds, in bytes
        self._queued_bytes = 0
        self._error: PulsarSparkError | None = None
        self._consumer_id = connection.attach(self)

    def ask(self, build: Callable[..., bytes]) -> Any:
        """Sends a request about this consumer and waits for its reply."""
        name = getattr(build, "func", build).__name__.upper()
        return self._connection.wait(self._request(build), self._timeout_s, name)

    def grant(self, permits: int) -> None:
        """Lets the broker send this many more messages."""
        self._connection.grant(self._consumer_id, permits)

    def take(self, timeout_s: float) -> deque[Delivery]:
        """The next deliveries, none if there are none in time; raises if closed."""
        with self._changed:
            if not self._queue and self._error is None:
                self._changed.wait_for(
                    lambda: self._queue or self._error is not None, max(0.0, timeout_s)
                )
            if not self._queue and self._error is not None:
                raise self._error
            taken: deque[Delivery] = deque()
            taken_bytes = 0
            while self._queue and taken_bytes < _TAKEN_BYTES:
                taken.append(self._queue.popleft())
                taken_bytes += self._charges.popleft()
            self._queued_bytes -= taken_bytes
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Tells the broker, and waits for a moment until it has forgotten us."""
        self.abandon_queue()
        future = self._request(commands.close_consumer)
        self._connection.detach(self._consumer_id)
        self._connection.wait(future, _CLOSE_TIMEOUT_S, "CLOSE_CONSUMER")

    def abandon(self) -> None:
        """Lets go without waiting. A late SUBSCRIBE must not come true for nobody."""
        self.abandon_queue()
        self._connection.detach(self._consumer_id)
        self._connection.tell(
            partial(commands.close_consumer, consumer_id=self._consumer_id)
        )

    def abandon_queue(self) -> None:
        """Drops what was not taken, and what still comes."""
        self.closed(None)
        with self._changed:
            self._queue.clear()
            self._charges.clear()

    def _request(self, build: Callable[..., bytes]) -> Future[Any]:
        return self._connection.request(partial(build, consumer_id=self._consumer_id))

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Queues entries; waits where too much waits already."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._queued_bytes < self._max_queued_bytes
                    or self._error is not None
                )
            )
            if self._error is None:
                last = self._queue[-1].headers_and_payload.obj if self._queue else None
                charges = _charges(deliveries, last)
                self._queue.extend(deliveries)
                self._charges.extend(charges)
                self._queued_bytes += sum(charges)
                self._changed.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        """No more will come. What is queued can still be taken."""
        with self._changed:
            if self._error is None:
                self._error = error or TransportError(
                    f"The broker {self._connection.broker} closed the reader: the "
                    "topic moves or was deleted.",
                    broker=self._connection.broker,
                )
            self._changed.notify_all()


def _charges(deliveries: Iterable[Delivery], last: object) -> list[int]:
    """What deliveries hold in memory, in bytes.

    A large entry holds the buffer that it was read into, and whatever else came in it.
    The first one in a buffer is charged for it.

    Args:
        deliveries: Some, in order.
        last: The buffer of the one before them.
    """
    charges = []
    for delivery in deliveries:
        charge = _ENTRY_BYTES
        buffer: Any = delivery.headers_and_payload.obj
        if buffer is not last:
            charge += len(buffer)
            last = buffer
        if delivery.ack_set:
            charge += _WORD_BYTES * len(delivery.ack_set)
        charges.append(charge)
    return charges
