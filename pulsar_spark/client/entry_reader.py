# SPDX-License-Identifier: Apache-2.0
"""The entries of a topic partition from a start on, across broker faults.

A reader subscribes without leaving a trace (not durable), grants permits as entries are
taken, and when the connection breaks or the topic moves it comes back right after the
last entry it handed on: none is lost, none comes twice.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pending import Pending
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import (
    BrokerError,
    CorruptEntryError,
    PulsarSparkError,
    ReadTimeoutError,
    TransportError,
)
from pulsar_spark.loops import deliveries, messages
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.topics import topic_of
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import (
    ConsumerSettings,
    ReplyT,
    Request,
    SubscribeRequest,
)
from pulsar_spark.wire.entries import EntryRun, StoredEntry, read_stored_entry
from pulsar_spark.wire.permits import Permits
from pulsar_spark.wire.protocol import Delivery, delivery_of

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

#: Unpacks entries of some, from a number on and behind a position (None: wherever they
#: are); None where the first one is not to be unpacked so.
Unpack = Callable[[Deliveries, int, "tuple[int, int] | None"], "EntryRun | None"]

#: Shortest time over which the speed of a read is measured, in seconds. Within a round
#: trip nothing shows: permits come back after a round trip.
_PACE_S = 0.02

#: Entries in a row that were handed on before. Coming back brings one.
_MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How to read.

    Attributes:
        consumer_name: Name the broker shows for the consumer, "" for a generated one.
        receiver_queue_messages: Most messages under way or waiting to be taken; None
            for as many as the link and the memory limit allow.
        poll_timeout_s: Longest time without an entry, reconnecting included.
        consumer: The fields of SUBSCRIBE that options set.
        in_bulk: Whether ordinary entries are taken in bulk: where the loops over them
            are not compiled, that takes longer than one entry after the other.
    """

    consumer_name: str
    receiver_queue_messages: int | None
    poll_timeout_s: float
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    in_bulk: bool = deliveries.KERNEL == messages.KERNEL == "compiled"


class EntryReader:
    """Reads the entries of a topic partition in order.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        start: The first entry wanted; its batch index does not matter here.
        settings: How to read.
        on_start: Called after a subscribing with the start that was asked for and what
            the broker says of it, unless it is clear that nothing is gone; may raise.
            Nothing is where the start is EARLIEST.
        rollback_s: Instead of at ``start``, begin this many seconds before now.
        served_by: The broker that served it when the read was planned. Tried first,
            without a lookup; where that fails, whatever the reason, one follows.

    Attributes:
        settings: How it reads.
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
        served_by: BrokerAddress | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.reconnects = 0
        self.waited_s = 0.0
        self.trouble = ""
        self._pool = pool
        self._lookup = TopicLookup(pool)
        self._start = start
        self.settings = settings
        self._on_start = on_start
        self._rollback_s = rollback_s
        self._served_by = served_by
        self._begun: _Opening | None = None
        # Partitions of a topic have messages alike. A window that has to grow with each
        # costs several round trips, more than all else where there are few entries.
        self._topic = topic_of(topic_partition)
        self._permits = Permits(
            settings.receiver_queue_messages,
            pool.options.memory_limit_bytes // _WINDOW_SHARE,
            pool.learnt(self._topic),
        )
        self._retry = pool.retry(settings.poll_timeout_s)
        self._consumer: _Consumer | None = None
        self._taken: deque[Delivery | Deliveries] = deque()
        self._next = 0  # entry of the first of these, where that is Deliveries
        self._charged_messages = self._charged_bytes = 0  # not refunded yet
        self._paced = 0.0, 0  # when the speed was looked at, and what had arrived
        self._last: tuple[int, int] | None = None
        self._is_waiting = False  # since the last entry came
        self._repeats = 0  # entries that had come before, while it waited

    def __enter__(self) -> EntryReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> tuple[int, int] | None:
        """Return ``(ledger_id, entry_id)`` of the last entry handed on."""
        return self._last

    def begin(self) -> None:
        """Send SUBSCRIBE to the broker that the plan names, and wait for no answer.

        No entry comes before `receive`. Nothing is done where no broker is named, or
        where the last visit did not reach the position.
        """
        address, self._served_by = self._served_by, None
        if address is None or self._pool.is_unreachable(address):
            return
        began = time.monotonic()
        try:
            self._begun = self._open(address)
        except PulsarSparkError as error:
            logger.debug("%s: not at %s: %s", self.topic_partition, address, error)
        self.waited_s += time.monotonic() - began

    def receive(self, timeout_s: float) -> StoredEntry | None:
        """Return the next entry, or None if none comes within ``timeout_s`` seconds.

        Comes back after broken connections on its own, for as long as
        ``poll_timeout_s``.

        Raises:
            CorruptEntryError: The entry is damaged; names it.
            ReadTimeoutError: The topic partition cannot be reached for too long.
            PulsarSparkError: The broker refuses for good.
        """
        received = self.receive_run(timeout_s, lambda *_: None)
        assert not isinstance(received, EntryRun)
        return received

    def receive_run(
        self, timeout_s: float, unpack: Unpack
    ) -> EntryRun | StoredEntry | None:
        """Return the next entries that ``unpack`` takes together, or a single entry.

        Args:
            timeout_s: As of ``receive``, and so are the errors.
            unpack: Unpacks what is ordinary of the entries that came.
        """
        deadline = 0.0
        while True:
            if not self._taken:
                deadline = deadline or time.monotonic() + timeout_s
                if not self._refill(deadline):
                    return None
            arrived = self._taken[0]
            if isinstance(arrived, Deliveries):
                run = unpack(arrived, self._next, self._last)
                if run is not None:
                    self._charged_messages += arrived.charged_messages(
                        run.first, run.last
                    )
                    self._charged_bytes += arrived.charged_bytes(run.first, run.last)
                    self._go_on(arrived, run.last)
                    self._hand_on(arrived.position(run.last - 1))
                    return run
                delivery = delivery_of(arrived, self._next)
                self._go_on(arrived, self._next + 1)
            else:
                delivery = arrived
                self._taken.popleft()
            stored = self._read(delivery)
            if self._last is None or stored.position > self._last:
                self._hand_on(stored.position)
                return stored
            self._repeated()

    def _go_on(self, arrived: Deliveries, number: int) -> None:
        """Advance to an entry that arrived, or past all arrived entries."""
        self._next = number
        if number == len(arrived):
            self._taken.popleft()
            self._next = 0

    def _hand_on(self, position: tuple[int, int]) -> None:
        self._last = position
        if self._is_waiting:
            self._is_waiting = False
            self._repeats = 0
            self.trouble = ""

    def _drop_taken(self) -> None:
        self._taken.clear()
        self._next = 0

    def positions(self) -> TopicPositions | None:
        """Return the topic's positions, None if the broker cannot be asked now."""
        try:
            consumer = self._connected()
            return consumer.positions()
        except PulsarSparkError as error:
            self._lost(error)
            return None

    def come_back(self, why: str) -> None:
        """Subscribe again behind the last entry handed on."""
        self._drop_taken()
        self._lost(TransportError(f"{self.topic_partition}: {why}"))

    def close(self) -> None:
        """End the reader; the broker is told if the connection lives."""
        self._on_start = None  # who made this one goes at once, with all that it holds
        self._served_by = None
        self._charge()
        if (learnt := self._permits.learnt) is not None:
            self._pool.learn(self._topic, learnt)
        self._drop_taken()
        begun, self._begun = self._begun, None
        consumer, self._consumer = self._consumer, None
        for member in (consumer, begun and begun.consumer):
            if member is not None:
                member.abandon()

    def _repeated(self) -> None:
        """Count a repeated entry, and give up after too many.

        What it has brought is no progress: the patience for the next entry goes on.
        """
        self._repeats += 1
        if self._repeats < _MOST_REPEATS:
            return
        self._repeats = 0
        self.come_back(
            f"the broker sent {_MOST_REPEATS} entries in a row that it had sent before."
        )

    def _refill(self, deadline: float) -> bool:
        """Take arrived entries, or wait; return whether there are any."""
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
        """Let go of a broken consumer and wait a little before the next try."""
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
                f"{self.settings.poll_timeout_s:g} s (`pollTimeoutMs`). The last "
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
            # What the broker has charged is in there. Most often it is one message.
            self._charged_messages += 1
            self._charged_bytes += len(delivery.headers_and_payload)
            raise CorruptEntryError(
                error.reason,
                topic_partition=self.topic_partition,
                message_id=f"{delivery.ledger_id}:{delivery.entry_id}",
            ) from None
        self._charged_messages += stored.charged_messages
        self._charged_bytes += len(delivery.headers_and_payload)
        return stored

    def _refund(self) -> None:
        """Grant permits for the entries taken since the last time."""
        self._charge()
        self._look_at_pace()
        grant = self._permits.next_grant() if self._consumer is not None else 0
        if grant and self._consumer is not None:
            # If the connection is broken, the next take() says so.
            with contextlib.suppress(PulsarSparkError):
                self._consumer.grant(grant)

    def _look_at_pace(self) -> None:
        """Widen the window where the link holds more than the window, see `Permits`."""
        if self._consumer is None:
            return
        round_trip_s = self._consumer.round_trip_s
        now, arrived = time.monotonic(), self._permits.arrived
        began, before = self._paced
        elapsed_s = now - began
        if elapsed_s < max(_PACE_S, 2 * round_trip_s):
            return
        self._paced = now, arrived
        if before and math.isfinite(round_trip_s):
            self._permits.widen((arrived - before) / elapsed_s, round_trip_s)

    def _charge(self) -> None:
        """Account for the entries taken since the last time."""
        # Arrived and taken in one: what waits in the queue still counts as granted.
        messages, size_bytes = self._charged_messages, self._charged_bytes
        self._charged_messages = self._charged_bytes = 0
        if size_bytes:
            self._permits.entry_arrived(messages, size_bytes)
            self._permits.messages_taken(messages, size_bytes)

    def _connected(self) -> _Consumer:
        """Return the consumer, subscribed again after a loss."""
        if self._consumer is None:
            self._consumer = self._subscribe()
        return self._consumer

    def _subscribe(self) -> _Consumer:
        opening = self._begun_well() or self._looked_up()
        start = opening.start
        if self._on_start is None or start is None or start == EARLIEST:
            return self._granted(opening)  # there is nothing that could be gone
        if start.first_chunk is None:
            consumer = self._granted(opening)
            if self._has(consumer, start):
                return consumer
            consumer.abandon()
            opening = self._looked_up()
        # Before FLOW: a broker that passes over markers and aborted entries counts them
        # as read, and then says that the first position is behind them.
        with self._else_abandoned(opening.consumer):
            self._on_start(start, opening.consumer.positions())
        return self._granted(opening)

    def _granted(self, opening: _Opening) -> _Consumer:
        """Grant the first permits.

        A broker that has not finished SUBSCRIBE drops FLOW without a word, so this
        cannot be done any earlier.
        """
        with self._else_abandoned(opening.consumer):
            self._permits.reset()
            self._charged_messages = self._charged_bytes = 0
            self._drop_taken()  # what was not handed on comes again
            opening.consumer.grant(self._permits.initial_grant())
        return opening.consumer

    def _has(self, consumer: _Consumer, start: MessageId) -> bool:
        """Return whether nothing from ``start`` on is gone, as far as is seen.

        The first entry proves it, if it is the one at the start. The broker is asked
        if the entry is another, or does not come in time.
        """
        if consumer.begins_at(start, self._pool.options.patience.proof_s):
            return True
        with self._else_abandoned(consumer):
            before = consumer.positions().before.position
        return EARLIEST.position < before < start.position

    def _begun_well(self) -> _Opening | None:
        """Return the opening of a successful `begin`; None after a failure."""
        self.begin()
        begun, self._begun = self._begun, None
        if begun is not None:
            try:
                self._finish(begun)
            except PulsarSparkError as error:
                logger.debug("%s: moved: %s", self.topic_partition, error)
                return None
        return begun

    def _looked_up(self) -> _Opening:
        """Subscribe at the broker that serves the topic partition now."""
        topic = self.topic_partition
        address = self._lookup.brokers([topic])[topic]
        if isinstance(address, PulsarSparkError):
            raise address
        opening = self._open(address)
        self._finish(opening)
        return opening

    def _open(self, address: BrokerAddress) -> _Opening:
        """Send SUBSCRIBE, which `_finish` waits for."""
        consumer = _Consumer(
            self._pool.get(address),
            self._pool.options.operation_timeout_s,
            self._pool.options.memory_limit_bytes // _QUEUE_SHARE,
            in_bulk=self.settings.in_bulk,
        )
        start = self._start if self._last is None else MessageId(*self._last)
        by_time = self._rollback_s is not None and self._last is None
        how = SubscribeRequest(
            # A new name each time: a broker takes a while to forget the last consumer.
            self._pool.reader_name(),
            start=EARLIEST if by_time else start,
            consumer=self.settings.consumer,
            consumer_name=self.settings.consumer_name,
            rollback_s=self._rollback_s if by_time else None,
        )
        request = commands.subscribe(
            self.topic_partition,
            consumer.consumer_id,
            how,
            survives_migration=consumer.survives_migration,
        )
        return _Opening(consumer, None if by_time else start, consumer.request(request))

    def _finish(self, opening: _Opening) -> None:
        with self._else_abandoned(opening.consumer):
            opening.consumer.wait(opening.subscribed)

    @contextlib.contextmanager
    def _else_abandoned(self, consumer: _Consumer) -> Iterator[None]:
        """Abandon a consumer if the block fails."""
        try:
            yield
        except BrokerError as error:
            consumer.abandon()
            raise error.about(self.topic_partition) from error
        except PulsarSparkError:
            consumer.abandon()
            raise


class _Opening(NamedTuple):
    """A consumer whose SUBSCRIBE is under way.

    Attributes:
        consumer: The consumer.
        start: The start that was asked for, None for a time.
        subscribed: The broker's answer.
    """

    consumer: _Consumer
    start: MessageId | None
    subscribed: Pending[pb.CommandSuccess]


class _Consumer:
    """A subscription on a connection, with its inbox.

    Args:
        connection: To the broker that serves the topic partition.
        timeout_s: Longest wait for a reply.
        max_queued_bytes: When this much waits to be taken, the connection stops reading
            from its socket. Permits normally keep well below; only a topic whose
            messages suddenly become much larger gets here.
        in_bulk: As ``ReaderSettings`` has it.

    Attributes:
        consumer_id: Its number on the connection.
        survives_migration: As ``commands.subscribe`` has it.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_s: float,
        max_queued_bytes: int,
        *,
        in_bulk: bool,
    ) -> None:
        self._connection = connection
        self.survives_migration = connection.supports_scalable_topics
        self._timeout_s = timeout_s
        self._max_queued_bytes = max_queued_bytes
        self._changed = threading.Condition()
        self._queue: deque[Delivery | Deliveries] = deque()
        self._charges: deque[int] = deque()  # what each of them holds, in bytes
        self._queued_bytes = 0
        self._is_asking = False  # and what comes stands before the answer
        self._error: PulsarSparkError | None = None
        self.consumer_id = connection.attach(self, in_bulk=in_bulk)

    @property
    def round_trip_s(self) -> float:
        """Return the shortest time from a request to its reply, in seconds."""
        return self._connection.round_trip_s

    def request(self, request: Request[ReplyT]) -> Pending[ReplyT]:
        """Send a request; `wait` returns the reply."""
        return self._connection.request(request)

    def wait(self, pending: Pending[ReplyT]) -> ReplyT:
        """Return the reply to a request."""
        return self._connection.wait(pending, self._timeout_s)

    def positions(self) -> TopicPositions:
        """Return the positions of the consumer and its topic partition.

        Entries for which there is no room do not keep the answer back: this consumer
        ends with those that are queued, and the others come to the next one.
        """
        with self._changed:
            self._is_asking = True
            self._changed.notify_all()
        try:
            asked = self.request(commands.get_last_message_id(self.consumer_id))
            return self.wait(asked)
        finally:
            self._is_asking = False

    def grant(self, permits: int) -> None:
        """Let the broker send this many more messages."""
        self._connection.grant(self.consumer_id, permits)

    def take(self, timeout_s: float) -> deque[Delivery | Deliveries]:
        """Return the next deliveries, none if none come in time; raise if closed."""
        with self._changed:
            if not self._queue and self._error is None:
                self._changed.wait_for(
                    lambda: self._queue or self._error is not None, max(0.0, timeout_s)
                )
            if not self._queue and self._error is not None:
                raise self._error
            taken: deque[Delivery | Deliveries] = deque()
            taken_bytes = 0
            while self._queue and taken_bytes < _TAKEN_BYTES:
                taken.append(self._queue.popleft())
                taken_bytes += self._charges.popleft()
            self._queued_bytes -= taken_bytes
            self._changed.notify_all()
            return taken

    def begins_at(self, start: MessageId, timeout_s: float) -> bool:
        """Return whether the first entry to arrive is at ``start``.

        If it is not, or does not come in time, that proves nothing: markers, for one,
        never come.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._queue or self._error is not None, timeout_s
            )
            if not self._queue:
                return False
            first = self._queue[0]
            if isinstance(first, Deliveries):
                return first.position(0) == start.position
            return (first.ledger_id, first.entry_id) == start.position

    def abandon(self) -> None:
        """Let go without waiting; the broker is told.

        Also while SUBSCRIBE is under way: a late one must not leave a consumer there.
        """
        self.abandon_queue()
        self._connection.detach(self.consumer_id)
        self._connection.tell(commands.close_consumer(self.consumer_id))

    def abandon_queue(self) -> None:
        """Drop what was not taken, and what still comes."""
        self.closed(None)
        with self._changed:
            self._queue.clear()
            self._charges.clear()

    @property
    def _has_room(self) -> bool:
        return self._queued_bytes < self._max_queued_bytes

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery | Deliveries]) -> None:
        """Queue entries; wait where too much waits already."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_room or self._is_asking or self._error is not None
            )
            if self._error is None and not self._has_room:
                self._error = TransportError(
                    f"The broker {self._connection.broker} sent more entries than "
                    "there is room for, when it was asked something.",
                    broker=self._connection.broker,
                )
            if self._error is None:
                last = _buffer(self._queue[-1]) if self._queue else None
                charges = _charges(deliveries, last)
                self._queue.extend(deliveries)
                self._charges.extend(charges)
                self._queued_bytes += sum(charges)
                self._changed.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        """Note that no more will come. What is queued can still be taken."""
        with self._changed:
            if self._error is None:
                self._error = error or TransportError(
                    f"The broker {self._connection.broker} closed the reader: the "
                    "topic moves or was deleted.",
                    broker=self._connection.broker,
                )
            self._changed.notify_all()


def _charges(deliveries: Iterable[Delivery | Deliveries], last: object) -> list[int]:
    """Return what deliveries hold in memory, in bytes.

    A large entry holds the buffer that it was read into, and whatever else came in it.
    The first one in a buffer is charged for it.

    Args:
        deliveries: Some, in order.
        last: The buffer of the one before them.
    """
    charges = []
    for delivery in deliveries:
        is_one = isinstance(delivery, Delivery)
        charge = _ENTRY_BYTES if is_one else _ENTRY_BYTES * len(delivery)
        buffer = _buffer(delivery)
        if buffer is not last:
            charge += len(buffer)
            last = buffer
        if isinstance(delivery, Delivery) and delivery.ack_set:
            charge += _WORD_BYTES * len(delivery.ack_set)
        charges.append(charge)
    return charges


def _buffer(delivery: Delivery | Deliveries) -> Any:
    """Return what holds the bytes of an entry, or of some."""
    if isinstance(delivery, Deliveries):
        return delivery.data
    return delivery.headers_and_payload.obj
