"""Producers of the topic partitions that one task writes to.

What was sent is kept until its receipt comes. When a connection breaks, or a topic
moves, its producer attaches again and sends what is left, the same bytes in the same
order. All of that happens in the task's own thread, inside of the calls below; reading
threads only note what became of an entry.

Bytes in flight are bounded for all producers of a task together.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pulsar_spark.client.connection import Connection, new_producer_id
from pulsar_spark.client.lookup import TopicLookup, gather
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.retry import Retry, ask_all
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    PulsarSparkError,
    SendTimeoutError,
    TransportError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode, TxnId
from pulsar_spark.wire.outgoing import EntryEncoder, SendFrame
from pulsar_spark.wire.protocol import Receipt, SendRefused

logger = logging.getLogger("pulsar_spark.client")

#: How long a broker that cannot be reached, or a topic that nobody serves, is tried at
#: least: long enough for a broker to be started again.
_PATIENCE_S = 120.0

#: Into how many silences the send timeout is divided: after each but the last, the
#: producer attaches anew.
_SILENCES = 2

#: An attachment that lasted this long, in seconds, worked: what ends it is news.
_STEADY_S = 10.0

#: How often a waiting task looks at the clock, in seconds.
_TICK_S = 0.5

#: How long a close may wait for the broker's word, in seconds.
_CLOSE_TIMEOUT_S = 5.0

#: How long a task waits for its turn where others have a topic for themselves, in
#: seconds. These are most often tasks of the same write: each ends in its own time.
_TURN_S = 600.0

#: How long a place in a queue is kept before it is exchanged for one at its end, in
#: seconds. A topic that moves, or is loaded anew, has a new queue, and brokers (4.0.7)
#: say nothing to those that stand in the old one.
_PLACE_S = 60.0

#: Refusals of an entry that attaching anew may cure, although the code is a final one:
#: the bytes we keep are right, so they were damaged on their way.
_DAMAGED = "ChecksumError"
_MAX_DAMAGED = 3  # times in a row

#: Somebody else holds the producer's name.
_BUSY = "ProducerBusy"

#: Somebody has the topic for himself, or it is not free for us to have it so.
_FENCED = "ProducerFenced"

_QUOTA = (
    "The rows that its subscriptions have not acknowledged have reached the backlog "
    "quota: let these catch up, or raise the quota."
)

#: What to do about a refusal, by its code.
_CURES = {
    _FENCED: (
        "Only one producer at a time writes to a topic partition unless all of them "
        "set `pulsar.producer.accessMode` to Shared: end the other one, or wait for it "
        "by WaitForExclusive; and let a single task write."
    ),
    "TopicTerminatedError": "It takes no more rows, ever: write to another topic.",
    "ProducerBlockedQuotaExceededError": _QUOTA,
    "ProducerBlockedQuotaExceededException": _QUOTA,
}


class Resend(enum.Enum):
    """What to do with entries whose receipt a broken connection may have swallowed."""

    #: Send them again: a row may be stored twice, none is lost.
    ALWAYS = "always"
    #: Send them again where the broker finds duplicates, else give up.
    IF_DEDUPLICATED = "if deduplicated"
    #: Drop them.
    NEVER = "never"


@dataclass(frozen=True)
class ProducerSettings:
    """How the producers of a task attach and send.

    Attributes:
        name: Name of the producers, one for each topic partition; "" for names that
            brokers make up.
        access_mode: Whom they share their topics with.
        properties: Shown in the topics' statistics.
        window_bytes: Bytes that may be in flight.
        send_timeout_s: Longest silence of a broker that has entries to answer for, 0
            for no limit.
        resend: What to do after a connection broke.
        transactional: Whether they send in a transaction.
        waits: Whether they try for as long as a turn may take to come where others have
            a topic for themselves.
        before_resend: Called before entries are sent again; raises where it is too
            late.
    """

    name: str = ""
    access_mode: ProducerAccessMode = ProducerAccessMode.SHARED
    properties: Mapping[str, str] = field(default_factory=dict)
    window_bytes: int = 64 << 20
    send_timeout_s: float = 30.0
    resend: Resend = Resend.ALWAYS
    transactional: bool = False
    waits: bool = False
    before_resend: Callable[[], None] = lambda: None


class TopicProducer:
    """The producer of one topic partition. Made by :class:`Producers`.

    Attributes:
        topic: Full name of the topic partition.
        producer_id: Unique in the process.
        name: As the broker knows it.
        last_sequence_id: The highest that the broker knew of under this name when the
            producer attached first; -1 for none, or where it does not deduplicate.
        max_message_size_bytes: The broker's limit for an entry.
        stored_rows, stored_bytes: What receipts have come for; bytes are of frames.
        duplicate_rows: Rows that the broker had already, and dropped.
        last_stored: Where the last entry is whose receipt named a place.
    """

    def __init__(self, topic: str, name: str) -> None:
        self.topic = topic
        self.producer_id = new_producer_id()
        self.name = name
        self.last_sequence_id = -1
        self.max_message_size_bytes = 0
        self.stored_rows = 0
        self.stored_bytes = 0
        self.duplicate_rows = 0
        self.last_stored: MessageId | None = None
        self.attachment: _Attachment | None = None
        self.pending: deque[SendFrame] = deque()
        self.topic_epoch: int | None = None
        self.epoch = 0
        self.is_attached = False
        self.queued_at: float | None = None  # since then it waits for its turn
        self.last_heard = 0.0  # when it attached, or its last receipt came
        # Since its last receipt:
        self.waited_s = 0.0  # in vain, by attachments that have ended
        self.silences = 0  # how often it attached anew for want of receipts
        self.tries = 0  # how often it attached anew at all
        self.damages = 0  # how often for an entry that arrived damaged
        self.damaged: dict[int, BrokerError] = {}  # which, since it attached

    @property
    def connection(self) -> Connection | None:
        """Where it is attached, or was to be; None before that."""
        return None if self.attachment is None else self.attachment.connection

    def plain_entry(
        self,
        message: bytes,
        *,
        metadata: pb.MessageMetadata | None = None,
        txn: TxnId | None = None,
    ) -> SendFrame:
        """Make an entry of one message, the bytes as they are: no codec, no chunks.

        Args:
            message: The bytes.
            metadata: What to say of it; completed here.
            txn: Transaction that it is part of.

        Raises:
            MessageTooLargeError: It does not fit into an entry.
        """
        encoder = EntryEncoder(
            self.producer_id, self.name, self.max_message_size_bytes, txn=txn
        )
        (frame,) = encoder.single(
            metadata or pb.MessageMetadata(),
            message,
            self.last_sequence_id + 1,
            time.time_ns() // 1_000_000,
        )
        return frame


class _Attachment:
    """A producer's time on one connection: where its reading thread calls.

    Each attachment is told of its own end only: a thread may still be about to speak of
    a connection that the producer has left, and nothing of that may harm the next one.
    """

    def __init__(
        self, producer: TopicProducer, connection: Connection, shared: _Shared
    ) -> None:
        self.connection = connection
        self._producer = producer
        self._shared = shared

    def receipt(self, receipt: Receipt) -> None:
        """The oldest entry in flight is stored."""
        producer, shared = self._producer, self._shared
        with shared.changed:
            pending = producer.pending
            if producer.attachment is not self or not pending:
                return
            if receipt.sequence_id > pending[0].sequence_id:
                self._broke(
                    self._lost(
                        f"acknowledged entry {receipt.sequence_id} before "
                        f"{pending[0].sequence_id}"
                    )
                )
            elif receipt.sequence_id == pending[0].sequence_id:
                self._stored(pending.popleft(), receipt)
            # A lower one is of an entry that was sent twice.
            shared.changed.notify_all()

    def _stored(self, frame: SendFrame, receipt: Receipt) -> None:
        producer, shared = self._producer, self._shared
        producer.last_heard = time.monotonic()
        producer.waited_s = 0.0
        producer.silences = producer.tries = producer.damages = 0
        shared.in_flight_bytes -= len(frame.data)
        if receipt.entry_id < 0:
            producer.duplicate_rows += frame.rows
        else:
            producer.last_stored = MessageId(receipt.ledger_id, receipt.entry_id)
            producer.stored_rows += frame.rows
            producer.stored_bytes += len(frame.data)

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """An entry is not stored, and those behind it may not be either."""
        producer, shared = self._producer, self._shared
        with shared.changed:
            if producer.attachment is not self:
                return
            error = _explained(error.about(producer.topic), producer.name)
            if refusal.code == _DAMAGED:
                producer.damages += producer not in shared.broken
                producer.damaged[refusal.sequence_id] = copy.copy(error)
                error.retriable = producer.damages <= _MAX_DAMAGED
            if error.retriable:
                self._broke(error)
            else:
                shared.fatal = shared.fatal or error
            shared.changed.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        """The broker let go of it, or the connection broke."""
        with self._shared.changed:
            if self._producer.attachment is self:
                self._broke(error or self._lost("let go of the producer"))
                self._shared.changed.notify_all()

    def fell_silent(self, silent_s: float) -> None:
        """No receipt came for that long. From the task's thread."""
        self.closed(self._lost(f"has acknowledged nothing for {silent_s:.3g} s"))

    def _broke(self, error: PulsarSparkError) -> None:
        # What comes behind the first reason is mostly its consequence.
        self._shared.broken.setdefault(self._producer, error)

    def _lost(self, what: str) -> TransportError:
        broker = self.connection.broker
        return TransportError(
            f"{self._producer.topic}: the broker {broker} {what}.", broker=broker
        )


class _Shared:
    """What a task's thread and reading threads share, under one lock."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.in_flight_bytes = 0
        self.broken: dict[TopicProducer, PulsarSparkError] = {}
        self.fatal: PulsarSparkError | None = None


class Producers:
    """The producers of one task, by topic partition. For one thread only.

    Args:
        pool: The cluster's connections. Producers with exclusive access need a pool of
            their own: a broker that fences one cuts the whole connection.
        settings: How to attach and send.

    Attributes:
        reconnects: How often a producer had to attach again.
        waited_s: How long it waited for receipts, in seconds.
    """

    def __init__(self, pool: ConnectionPool, settings: ProducerSettings) -> None:
        self._pool = pool
        self._options = pool.options
        self._settings = settings
        self._lookup = TopicLookup(pool)
        self._shared = _Shared()
        self._producers: dict[str, TopicProducer] = {}
        self._retry = Retry(
            pool.options, max(_PATIENCE_S, settings.send_timeout_s or _PATIENCE_S)
        )
        self._looked = 0.0  # when silence was last looked for
        self.reconnects = 0
        self.waited_s = 0.0

    @property
    def all(self) -> Iterable[TopicProducer]:
        """The producers that are attached."""
        return self._producers.values()

    def open(self, topics: Iterable[str]) -> None:
        """Attaches to topic partitions, all at once; those that are open stay so.

        Raises:
            PulsarSparkError: One of them refuses for good, or for too long. As with
                every error of a call, it is final: the others raise it from then on.
        """
        with self._final_errors():
            self._open(topics)

    def _open(self, topics: Iterable[str]) -> None:
        new = {
            topic: TopicProducer(topic, self._settings.name)
            for topic in topics
            if topic not in self._producers
        }
        if new:
            self._producers |= new  # so that a close finds those that did attach
            retry = self._opening_retry()
            ask_all(
                new,
                lambda some: self._attach([new[topic] for topic in some], retry),
                retry,
            )

    def _opening_retry(self) -> Retry:
        # A name may be held by a task that was killed, for as long as a broker takes to
        # find out that nobody is there.
        longest_s = max(
            self._options.operation_timeout_s, 2 * self._options.keep_alive_interval_s
        )
        return Retry(self._options, longest_s)

    def get(self, topic: str) -> TopicProducer:
        """The producer of a topic partition that was opened."""
        return self._producers[topic]

    def send(self, producer: TopicProducer, frame: SendFrame) -> None:
        """Sends an entry, after waiting for room in the window.

        Raises:
            PulsarSparkError: An entry was refused for good, or a broker is silent or
                cannot be reached for too long.
        """
        size = len(frame.data)
        shared = self._shared
        limit = max(self._settings.window_bytes - size, 0)

        def fits() -> bool:
            if shared.in_flight_bytes > limit:
                return False
            if not producer.pending:
                producer.last_heard = time.monotonic()
            # At once: whatever breaks from here on knows of it.
            producer.pending.append(frame)
            shared.in_flight_bytes += size
            return True

        self._await(fits)
        self._transmit(producer, [frame])

    def _transmit(self, producer: TopicProducer, frames: Iterable[SendFrame]) -> None:
        attachment = producer.attachment
        assert attachment is not None
        try:
            for frame in frames:
                attachment.connection.send(frame.data)
        except PulsarSparkError as error:
            attachment.closed(error)

    def flush(self) -> None:
        """Waits until every entry is stored.

        Raises:
            PulsarSparkError: As ``send``.
        """
        self._await(lambda: self._shared.in_flight_bytes == 0)

    def close(self) -> None:
        """Detaches. Entries in flight are given up, unless they were flushed.

        The broker's answer is awaited for a while: it has then dealt with all of them,
        and the names are free.
        """
        self._ask_to_close(self._producers.values(), _CLOSE_TIMEOUT_S)
        for producer in self._producers.values():
            if producer.connection is not None:
                producer.connection.detach_producer(producer.producer_id)
        self._producers.clear()

    # -- waiting, and what has to be done meanwhile --------------------------------

    @contextlib.contextmanager
    def _final_errors(self) -> Iterator[None]:
        shared = self._shared
        try:
            if shared.fatal is not None:
                raise shared.fatal
            yield
        except PulsarSparkError as error:
            with shared.changed:
                shared.fatal = shared.fatal or error
            raise

    def _await(self, is_true: Callable[[], bool]) -> None:
        """Waits for a condition; asks it under the lock, while nothing is broken."""
        shared = self._shared
        with self._final_errors():
            while True:
                with shared.changed:
                    if shared.fatal is not None:
                        raise shared.fatal
                    if not shared.broken:
                        if is_true():
                            return
                        began = time.monotonic()
                        shared.changed.wait(_TICK_S)
                        self.waited_s += time.monotonic() - began
                if shared.broken:
                    self._mend()
                else:
                    self._check_silence()

    def _mend(self) -> None:
        """Attaches broken producers again and sends what is in flight."""
        shared = self._shared
        while True:
            with shared.changed:
                if shared.fatal is not None:
                    raise shared.fatal
                broken = dict(shared.broken)
                news = [self._count(producer) for producer in broken]
            if not broken:
                return
            self._check_patience(broken)
            reason = next(iter(broken.values()))
            if any(news):
                self._retry.restart()
            else:
                self._retry.pause(reason)
            logger.info("attaching %d producers again after: %s", len(broken), reason)
            self.reconnects += len(broken)
            self._reattach(broken)

    def _count(self, producer: TopicProducer) -> bool:
        """Counts a try; whether it is the first since something went well."""
        lasted_s = 0.0
        if producer.is_attached:
            lasted_s = time.monotonic() - producer.last_heard
            producer.is_attached = False
        is_news = not producer.tries or lasted_s > _STEADY_S
        producer.tries += 1
        if producer.pending:
            producer.waited_s += lasted_s
        return is_news

    def _check_patience(self, broken: Mapping[TopicProducer, PulsarSparkError]) -> None:
        """Gives up on those that attach all right, but never get a receipt."""
        limit_s = self._settings.send_timeout_s
        for producer, error in broken.items():
            if limit_s and producer.waited_s >= limit_s:
                raise error

    def _reattach(self, broken: Mapping[TopicProducer, PulsarSparkError]) -> None:
        # The old attachment, where it still is one, must end before the new one begins:
        # then receipts of what it stored come first.
        self._end_attachments(broken)
        by_topic = {producer.topic: producer for producer in broken}
        self._settings.before_resend()
        for topic, answer in self._attach(broken, self._retry).items():
            producer = by_topic[topic]
            if not isinstance(answer, PulsarSparkError):
                self._check_damaged(producer, answer.last_sequence_id)
                self._check_doubt(producer, answer.last_sequence_id, broken[producer])
                self._resend(producer)
            elif answer.retriable:
                with self._shared.changed:
                    self._shared.broken[producer] = answer
            else:
                raise answer

    def _end_attachments(self, producers: Iterable[TopicProducer]) -> None:
        timeout_s = self._options.operation_timeout_s
        for connection, answer in self._ask_to_close(producers, timeout_s):
            if isinstance(answer, TransportError):
                # Then nothing of what was sent there may come true behind our back.
                connection.close(answer)

    def _ask_to_close(
        self, producers: Iterable[TopicProducer], timeout_s: float
    ) -> list[tuple[Connection, Any]]:
        """Sends CLOSE_PRODUCER for those attached; a reply or an error for each."""
        sent = {}
        for producer in producers:
            connection = producer.connection
            if connection is not None and connection.is_open:
                build = partial(commands.close_producer, producer.producer_id)
                sent[producer.topic] = connection, connection.request(build)
        answers = gather(sent, timeout_s, "CLOSE_PRODUCER")
        return [(sent[topic][0], answer) for topic, answer in answers.items()]

    def _check_damaged(self, producer: TopicProducer, last_sequence_id: int) -> None:
        """Raises for an entry that a broker which deduplicates will never take.

        It arrived damaged, and what came behind it is stored.
        """
        damaged, producer.damaged = producer.damaged, {}
        for sequence_id, error in damaged.items():
            if sequence_id <= last_sequence_id:
                raise error

    def _check_doubt(
        self, producer: TopicProducer, last_sequence_id: int, error: PulsarSparkError
    ) -> None:
        with self._shared.changed:
            rows = sum(frame.rows for frame in producer.pending)
            in_doubt = bool(producer.pending) and last_sequence_id < 0
        if in_doubt and self._settings.resend is Resend.IF_DEDUPLICATED:
            raise InDoubtError(error.message, topic_partition=producer.topic, rows=rows)

    def _resend(self, producer: TopicProducer) -> None:
        with self._shared.changed:
            frames = list(producer.pending)
            if not frames:
                producer.tries = 0  # there is nothing that could prove it otherwise
        if frames and self._settings.resend is Resend.NEVER:
            self._drop(producer)
        else:
            self._transmit(producer, frames)
        with self._shared.changed:
            # What took long here, and for the producers before, was not their silence.
            producer.last_heard = time.monotonic()

    def _drop(self, producer: TopicProducer) -> None:
        with self._shared.changed:
            rows = sum(frame.rows for frame in producer.pending)
            size = sum(len(frame.data) for frame in producer.pending)
            producer.pending.clear()
            producer.waited_s = 0.0
            producer.silences = producer.tries = producer.damages = 0
            self._shared.in_flight_bytes -= size
        logger.warning("%s: %d rows in flight were dropped", producer.topic, rows)

    def _check_silence(self) -> None:
        """Attaches anew where receipts stay away, and gives up in the end.

        A broker drops entries without a word while a topic moves.
        """
        limit_s = self._settings.send_timeout_s
        now = time.monotonic()
        if not limit_s or now - self._looked < min(_TICK_S, limit_s / _SILENCES):
            return
        self._looked = now
        for producer in self._producers.values():
            with self._shared.changed:
                silent_s = now - producer.last_heard
                is_over = (
                    producer.silences >= _SILENCES - 1
                    and producer.waited_s + silent_s >= limit_s
                )
                is_due = silent_s >= limit_s / _SILENCES or is_over
                if not producer.pending or not is_due:
                    continue
                rows = sum(frame.rows for frame in producer.pending)
                producer.silences += 1
            attachment = producer.attachment
            assert attachment is not None
            if is_over:
                raise SendTimeoutError(
                    f"{producer.topic}: the broker {attachment.connection.broker} has "
                    f"acknowledged nothing for {limit_s:g} s, though {rows} rows are "
                    "on their way to it. Raise `pulsar.producer.sendTimeoutMs` if it "
                    "is only slow.",
                    topic_partition=producer.topic,
                )
            attachment.fell_silent(silent_s)

    # -- attaching -----------------------------------------------------------------

    def _attach(
        self, producers: Iterable[TopicProducer], retry: Retry
    ) -> dict[str, Any | PulsarSparkError]:
        """Sends PRODUCER for each; gives PRODUCER_SUCCESS or an error, by topic.

        Where a broker lets some wait for their turn, they do for a while, and ``retry``
        begins anew behind that: they, and those whose connection breaks meanwhile, are
        to queue up again.
        """
        by_topic = {producer.topic: producer for producer in producers}
        connections = self._pool.get_all(self._lookup.brokers(by_topic))
        sent: dict[str, Any] = {}
        for topic, connection in connections.items():
            if isinstance(connection, Connection):
                sent[topic] = connection, self._request(by_topic[topic], connection)
            else:
                sent[topic] = connection
        answers = gather(sent, self._options.operation_timeout_s, "PRODUCER")
        until = time.monotonic() + _PLACE_S
        while queued := [topic for topic in sent if _is_queued(sent[topic])]:
            turn_s = self._turn_s([by_topic[topic] for topic in queued])
            left_s = min(turn_s, until - time.monotonic())
            if left_s <= 0:
                break
            step_s = min(left_s, self._options.operation_timeout_s)
            answers = gather(sent, step_s, "PRODUCER")
            retry.restart()
        for topic in queued:
            answers[topic] = self._left_queue(by_topic[topic])
        for topic, answer in answers.items():
            producer, connection = by_topic[topic], connections[topic]
            if not isinstance(answer, PulsarSparkError):
                self._attached(producer, answer)
            elif isinstance(connection, Connection):
                answers[topic] = self._not_attached(producer, connection, answer)
                is_waiting = self._settings.waits and _is_taken(answer)
                if is_waiting and self._turn_s([producer]) > 0:
                    retry.restart()
        return answers

    def _turn_s(self, queued: Iterable[TopicProducer]) -> float:
        """How long all of these may still wait for their turn, in seconds."""
        now = time.monotonic()
        since = []
        for producer in queued:
            if producer.queued_at is None:
                producer.queued_at = now
                logger.info("%s: waiting for exclusive access", producer.topic)
            since.append(producer.queued_at)
        return min(since) + _TURN_S - now

    def _left_queue(self, producer: TopicProducer) -> BrokerError:
        """Give up a place in the queue; whether for another one, the error says."""
        connection = producer.connection
        assert connection is not None
        connection.tell(partial(commands.close_producer, producer.producer_id))
        error = BrokerError(
            f"Others have had the topic for themselves for {_TURN_S:g} s, and it was "
            "not this task's turn (`pulsar.producer.accessMode`): end them, or let a "
            "single task at a time write to a topic partition. Tasks that write to "
            "several may be waiting for each other.",
            code="WaitForExclusive",
            broker=connection.broker,
        )
        error.retriable = self._turn_s([producer]) > 0
        return error

    def _request(self, producer: TopicProducer, connection: Connection) -> Any:
        settings = self._settings
        attachment = _Attachment(producer, connection, self._shared)
        with self._shared.changed:
            old, producer.attachment = producer.attachment, attachment
            self._shared.broken.pop(producer, None)
        if old is not None:
            old.connection.detach_producer(producer.producer_id)
        connection.attach_producer(producer.producer_id, attachment)
        return connection.request(
            partial(
                commands.producer,
                topic=producer.topic,
                producer_id=producer.producer_id,
                producer_name=producer.name,
                user_provided_producer_name=bool(settings.name),
                epoch=producer.epoch,
                access_mode=settings.access_mode,
                topic_epoch=producer.topic_epoch,
                txn_enabled=settings.transactional,
                properties=settings.properties,
            )
        )

    def _attached(self, producer: TopicProducer, answer: Any) -> None:
        assert producer.connection is not None
        if not producer.epoch:
            producer.last_sequence_id = answer.last_sequence_id
        producer.epoch += 1
        producer.is_attached = True
        producer.queued_at = None
        producer.last_heard = time.monotonic()
        producer.name = answer.producer_name
        producer.max_message_size_bytes = producer.connection.max_message_size_bytes
        if answer.HasField("topic_epoch"):
            producer.topic_epoch = answer.topic_epoch

    def _not_attached(
        self, producer: TopicProducer, connection: Connection, error: PulsarSparkError
    ) -> PulsarSparkError:
        # Without this a slow PRODUCER could come true after all, for nobody.
        if isinstance(error, TransportError):
            connection.tell(partial(commands.close_producer, producer.producer_id))
        connection.detach_producer(producer.producer_id)
        with self._shared.changed:
            producer.attachment = None
            self._shared.broken.pop(producer, None)
        if isinstance(error, BrokerError):
            return _explained(error.about(producer.topic), producer.name)
        return error


def _is_queued(pending: Any) -> bool:
    """Whether the broker has said that it will answer when it is our turn."""
    return isinstance(pending, tuple) and pending[1].running()


def _is_taken(error: PulsarSparkError) -> bool:
    """Whether somebody has the topic for himself."""
    if not isinstance(error, BrokerError) or error.code != _BUSY:
        return False
    return "exclusive producer" in error.server_message


def _explained(error: BrokerError, name: str) -> BrokerError:
    """The same with what to do about it, where we know."""
    cure = _CURES.get(error.code)
    if _is_taken(error):
        cure = _CURES[_FENCED]
    elif error.code == _BUSY:
        cure = (
            f"The name {name!r} is held by another producer of this topic: end the job "
            "that uses it, or choose another `idempotenceId` or "
            "`pulsar.producer.producerName`. A name of your own serves one task at a "
            "time."
        )
    if cure is None:
        return error
    explained = BrokerError(
        f"{error.message.rstrip('. ')}. {cure}",
        code=error.code,
        server_message=error.server_message,
        broker=error.broker,
    )
    # A name, or a topic, may come free before the task's patience ends.
    explained.retriable = error.retriable or error.code == _BUSY
    return explained
