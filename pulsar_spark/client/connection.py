# SPDX-License-Identifier: Apache-2.0
"""A connection to a broker: a transport, a ClientProtocol, a reading thread.

The thread is what keeps a connection alive while Spark is slow to take rows: it answers
the broker's probes, completes requests, and hands entries to their consumers' inboxes.
It never waits for a consumer, with one exception that :class:`Inbox` explains.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from pulsar_spark._version import __version__
from pulsar_spark.client import access
from pulsar_spark.client.credentials import (
    CredentialProvider,
    obtain,
    without_secret,
)
from pulsar_spark.client.pending import Pending, await_ends
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TlsError,
    TopicMigratedError,
    TopicNotFoundError,
    TransportError,
    foreign_text,
)
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.loops.requests import Reply
from pulsar_spark.loops.sends import Receipt
from pulsar_spark.wire import commands
from pulsar_spark.wire.commands import ReplyT, Request
from pulsar_spark.wire.outgoing import SENT_TOGETHER_BYTES
from pulsar_spark.wire.protocol import (
    AuthChallenged,
    ClientProtocol,
    Connected,
    ConsumerClosed,
    Delivery,
    Event,
    ProducerClosed,
    Queued,
    Refusal,
    SendRefused,
    TopicMigrated,
)
from pulsar_spark.wire.refusals import has_too_many_consumers
from spark_topics.client.transport import Transport

T = TypeVar("T")

logger = logging.getLogger("pulsar_spark.client")

#: Where the handshake waits among the requests, whose own ids start at 1.
_CONNECT = 0

#: Requests that go out with one call of the system: some ten kilobytes.
_REQUESTS_TOGETHER = 256

#: Entries that may come beyond those asked for: brokers read some at a time.
_OVERSHOOT = 1000

#: Answers to probes that wait while a frame goes out slowly. One would do.
_ANSWERS_KEPT = 4

#: What brokers show of us.
CLIENT_VERSION = f"pulsar-spark-{__version__}"

#: The fields of events in which a broker writes what it likes.
_TEXTS = ("message", "method", "server_version", "service_url", "service_url_tls")

_AUTH_CODES = frozenset({access.AUTHENTICATION, access.AUTHORIZATION})


class Inbox(Protocol):
    """Receives the entries of a consumer from a connection.

    Both calls come from the reading thread and must return at once. ``deliver`` alone
    may block it, and only where memory would run over; the broker's probes then wait.
    """

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take some entries that arrived, in order.

        Who attached itself ``in_bulk`` gets Deliveries among them.
        """

    def closed(self, error: PulsarSparkError | None) -> None:
        """Learn that no more will arrive.

        Args:
            error: Why the connection broke; None: the broker let go of the consumer.
        """


class Outbox(Protocol):
    """What a connection tells a producer. Calls come from the reading thread."""

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """Learn that some entries are stored."""

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """Learn that an entry was refused; ``error`` explains the refusal."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """Learn that no more will be taken.

        What a broker had taken before it let go, it may still acknowledge.

        Args:
            error: Why the connection broke; None: the broker let go of the producer.
        """


#: Producer ids are unique in the process, so that a frame that was built for one
#: connection can be sent again on another.
_producer_ids = itertools.count(1)


class Connection:
    """A connection to a broker, shared by the whole process.

    Nothing is sent or read before `start`; `client.connect` does all of it in one call.

    Args:
        transport: To the broker.
        protocol: What its bytes mean; begins with the handshake.
        broker: ``host:port`` of the broker, for messages.
        keep_alive_s: Seconds of silence after which the broker is probed; after as many
            without an answer it is given up.
        credentials: Answer what the broker asks in between; None: nothing does.
        shown: What the handshake proves by: errors do not repeat it.
        credentials_timeout_s: Longest wait for such an answer.
        max_idle_s: Seconds after which it ends if nothing needs it; none from 0 down.
        tick_s: How often the reading thread looks at the clock when nothing arrives.

    Attributes:
        broker: The same.
        max_message_size_bytes: The broker's limit for an entry.
        supports_scalable_topics: Whether the broker knows the scalable topics of
            Pulsar 5.
        server_version: What the broker says that it is.
        round_trip_s: Shortest time from a request to its reply, in seconds.
    """

    def __init__(
        self,
        transport: Transport,
        protocol: ClientProtocol,
        *,
        broker: str,
        keep_alive_s: float,
        credentials: CredentialProvider | None = None,
        shown: bytes | None = None,
        credentials_timeout_s: float = 30.0,
        max_idle_s: float = 0.0,
        tick_s: float = 1.0,
    ) -> None:
        self.broker = broker
        self.max_message_size_bytes = 0
        self.supports_scalable_topics = False
        self.server_version = ""
        self.round_trip_s = math.inf
        self._transport = transport
        self._protocol = protocol
        self._keep_alive_s = keep_alive_s
        self._credentials = credentials
        self._shown = b"", shown or b""  # the last two: challenges renew them
        self._credentials_timeout_s = credentials_timeout_s
        self._is_answering = False  # a challenge, in a thread of its own
        self._max_idle_s = max_idle_s
        self._tick_s = tick_s
        self._used_at = time.monotonic()
        self._requests: dict[int, Pending[Any]] = {}  # those under way
        self._asked: dict[int, list[Pending[Any]]] = {}  # of them, by consumer
        self._inboxes: dict[int, Inbox] = {}
        # Entries that may come, for each inbox that was granted some, or got some.
        self._due: dict[int, int] = {}
        self._outboxes: dict[int, Outbox] = {}
        self._request_ids = itertools.count(1)
        self._consumer_ids = itertools.count(1)
        # Guards the five maps and _error. Ctrl-C in a wait for the condition would give
        # a plain lock back that another thread holds.
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._send_lock = threading.Lock()  # frames must not interleave
        self._answers: deque[bytes] = deque()  # to the broker's probes, still to send
        self._error: PulsarSparkError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"pulsar-{self.broker}", daemon=True
        )

    def start(self, timeout_s: float) -> None:
        """Begin to read, and wait for the end of the handshake.

        Raises:
            TransportError: It is not over within ``timeout_s`` seconds.
            TlsError: The broker does not take our certificate.
            ProtocolError: What answered is not a Pulsar broker.
            AuthError: The broker does not want us.
            BrokerError: It refused for another reason.
        """
        connected = Pending(self, _CONNECT, Connected)
        self._requests[_CONNECT] = connected
        try:
            self._thread.start()
            answer = self.wait(connected, timeout_s)
        except BaseException as error:  # an interrupt must not leave the thread behind
            self.close()
            if not isinstance(error, TransportError) or isinstance(error, TlsError):
                raise
            raise TransportError(
                f"{error.message} Is this the binary port of a Pulsar broker (usually "
                "6650), and is the broker up?",
                broker=self.broker,
            ) from error
        self.max_message_size_bytes = answer.max_message_size_bytes
        self.supports_scalable_topics = answer.supports_scalable_topics
        self.server_version = foreign_text(answer.server_version)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection({self.broker!r})"

    @property
    def is_open(self) -> bool:
        """Return whether requests can still be sent."""
        return self._error is None

    @property
    def ended(self) -> threading.Condition:
        """Return the condition that is notified when requests have ended."""
        return self._ended

    @property
    def is_idle(self) -> bool:
        """Return whether the connection has no requests, consumers or producers."""
        with self._lock:
            return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return not (self._requests or self._inboxes or self._outboxes)

    def wanted(self) -> bool:
        """Return whether the connection is usable, and restart the idle time if so."""
        with self._lock:
            self._used_at = time.monotonic()
            return self._error is None

    def request(self, request: Request[ReplyT]) -> Pending[ReplyT]:
        """Send a request without waiting for the reply."""
        (pending,) = self.request_all([request])
        return pending

    def request_all(self, requests: Sequence[Request[ReplyT]]) -> list[Pending[ReplyT]]:
        """Send many requests, each as ``request`` does, with few calls of the system.

        One call for each of ten thousand would take longer than everything else: it
        wakes the broker, and then the reading thread, for a few bytes.
        """
        sent: list[Pending[ReplyT]] = []
        for first in range(0, len(requests), _REQUESTS_TOGETHER):
            pending_replies: dict[int, Pending[ReplyT]] = {}
            frames = []
            for request in requests[first : first + _REQUESTS_TOGETHER]:
                request_id = next(self._request_ids)
                frames.append(request.encode(request_id))
                pending_replies[request_id] = Pending(
                    self, request_id, request.reply_type, request
                )
            sent += pending_replies.values()
            with self._lock:
                error = self._error
                if error is None:
                    self._requests |= pending_replies
                    self._note_asked(pending_replies.values())
            if error is not None:
                self._fail_all(pending_replies.values(), error)
                continue
            try:
                self.send(b"".join(frames))
            except PulsarSparkError as failure:
                self._fail(failure)
        return sent

    def _note_asked(self, requests: Iterable[Pending[Any]]) -> None:
        """Keep requests that no answer follows once their consumers are closed."""
        for request in requests:
            if (consumer_id := request.consumer_id) is not None:
                self._asked.setdefault(consumer_id, []).append(request)

    def tell(self, request: Request[Any]) -> None:
        """Send a request without a reply, unless the connection is unusable."""
        self.tell_all([request])

    def tell_all(self, requests: Iterable[Request[Any]]) -> None:
        """Send many requests as ``tell`` does, with few calls of the system."""
        frames = [request.encode(next(self._request_ids)) for request in requests]
        with contextlib.suppress(PulsarSparkError):
            self.send_all(frames)

    def ask(self, request: Request[ReplyT], timeout_s: float) -> ReplyT:
        """Send a request and return the reply, as ``request`` and ``wait`` do."""
        return self.wait(self.request(request), timeout_s)

    def wait(self, pending: Pending[T], timeout_s: float) -> T:
        """Return the reply to a request, within ``timeout_s`` seconds.

        Raises:
            TransportError: No reply in time.
            BrokerError: A refusal.
        """
        if await_ends([pending], timeout_s):
            raise self.give_up(pending, timeout_s)
        return pending.result()

    def give_up(self, pending: Pending[Any], timeout_s: float) -> TransportError:
        """Return the error to raise when a reply did not come within ``timeout_s``.

        A reply that comes later is dropped, unless the broker has said that the request
        is queued.
        """
        with self._lock:
            if not pending.is_queued:
                self._end(pending.request_id)
        return TransportError(
            f"The broker {self.broker} did not answer {pending.name} within "
            f"{timeout_s:g} s.",
            broker=self.broker,
        )

    def drop(self, pending: Pending[Any]) -> None:
        """Wait for a reply no longer: the request was sent again, or elsewhere."""
        self._take(pending.request_id)

    def send(self, frame: bytes) -> None:
        """Send a frame that has no reply.

        Raises:
            PulsarSparkError: The connection has ended; says why.
        """
        if self._error is not None:
            raise copy.copy(self._error)
        try:
            with self._send_lock:
                self._transport.send(frame)
            self._send_answers()
        except PulsarSparkError as error:
            self._fail(error)  # half a frame may be out: nothing can follow it
            raise
        except BaseException:  # the same, when Ctrl-C or the end of a task comes
            self._fail(
                TransportError(
                    f"The connection to the broker {self.broker} was interrupted while "
                    "it sent.",
                    broker=self.broker,
                )
            )
            raise

    def send_all(self, frames: Sequence[bytes]) -> None:
        """Send many frames as ``send`` does, with few calls of the system.

        Raises:
            PulsarSparkError: As ``send``.
        """
        if len(frames) == 1:  # often a large one, which need not be copied
            self.send(frames[0])
            return
        together: list[bytes] = []
        size_bytes = 0
        for frame in frames:
            if together and size_bytes + len(frame) > SENT_TOGETHER_BYTES:
                self.send(b"".join(together))
                together, size_bytes = [], 0
            together.append(frame)
            size_bytes += len(frame)
        self.send(b"".join(together))

    def grant(self, consumer_id: int, permits: int) -> None:
        """Let the broker send a consumer this many more messages.

        Raises:
            PulsarSparkError: As ``send``.
        """
        with self._lock:
            if consumer_id in self._inboxes:
                self._add_due(consumer_id, permits)
        self.send(commands.flow(consumer_id, permits))

    def _add_due(self, consumer_id: int, entries: int) -> int:
        """Change how many entries may come for an inbox, and return the number."""
        due = self._due[consumer_id] = self._due.get(consumer_id, _OVERSHOOT) + entries
        return due

    def _send_answers(self) -> None:
        # And our own probes. Never waits for a sender: the reading thread must go on
        # reading, or a broker that is slow to take entries could not tell of those that
        # it has stored.
        while self._answers and self._send_lock.acquire(blocking=False):
            try:
                while self._answers:
                    self._transport.send(self._answers.popleft())
            finally:
                self._send_lock.release()

    def attach(self, inbox: Inbox, *, in_bulk: bool = False) -> int:
        """Register a consumer before SUBSCRIBE, and return the consumer id.

        Args:
            inbox: Where its entries go.
            in_bulk: Whether it takes those that are ordinary as Deliveries.
        """
        consumer_id = next(self._consumer_ids)
        with self._lock:
            error = self._error
            self._inboxes[consumer_id] = inbox
            if in_bulk:
                self._protocol.in_bulk.add(consumer_id)
        if error is not None:
            inbox.closed(copy.copy(error))
        return consumer_id

    def detach(self, consumer_id: int) -> None:
        """Forget a consumer; later entries for the consumer are dropped."""
        with self._lock:
            self._inboxes.pop(consumer_id, None)
            self._due.pop(consumer_id, None)
            self._asked.pop(consumer_id, None)
            self._protocol.in_bulk.discard(consumer_id)

    def attach_producer(self, producer_id: int, outbox: Outbox) -> None:
        """Register a producer before PRODUCER is sent."""
        with self._lock:
            error = self._error
            self._outboxes[producer_id] = outbox
        if error is not None:
            outbox.closed(copy.copy(error))

    def detach_producer(self, producer_id: int) -> None:
        """Forget a producer; later events for the producer are dropped."""
        with self._lock:
            self._outboxes.pop(producer_id, None)

    def close(self, reason: PulsarSparkError | None = None) -> None:
        """End the connection; everything that waits gets an error.

        Args:
            reason: The error; by default a TransportError that says no more than that.
        """
        closed = TransportError(
            f"The connection to the broker {self.broker} was closed by this side.",
            broker=self.broker,
        )
        self._fail(reason or closed)
        if self._thread.ident is None:  # it was never started, and so closes nothing
            self._transport.close()

    def forget(self) -> None:
        """Free, in a forked child, the socket, which goes on being the parent's."""
        self._transport.close()

    # What follows runs in the reading thread.

    def _run(self) -> None:
        try:
            self._flush()
            self._receive()
        except ProtocolError as error:
            self._fail(error.about(f"Broker {self.broker}"))
        except PulsarSparkError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("%r: unexpected failure", self)
            self._fail(
                ProtocolError(f"Reading from the broker {self.broker}: {error!r}")
            )
        finally:
            with self._send_lock:
                self._transport.close()

    def _receive(self) -> None:
        last_heard = time.monotonic()
        probed: float | None = None
        while self._error is None:
            size = self._transport.receive(self._protocol.buffer(), self._tick_s)
            now = time.monotonic()
            if not size and self._rests(now):
                return
            if size:
                self._dispatch_all(self._protocol.received(size))
                self._flush()
                # Not `now`: a full inbox may have kept us, which is not their silence.
                last_heard, probed = time.monotonic(), None
            elif probed is None and now - last_heard > self._keep_alive_s:
                self._answers.append(commands.ping())
                self._send_answers()
                probed = now
            # From the probe on: before it, a machine that slept may have kept us.
            elif probed is not None and now - probed > self._keep_alive_s:
                raise TransportError(
                    f"The broker {self.broker} has been silent for "
                    f"{now - last_heard:.0f} s and did not answer a probe.",
                    broker=self.broker,
                )

    def _rests(self, now: float) -> bool:
        """End a connection that was idle for too long; return whether that was so."""
        with self._lock:
            if not self._is_idle:
                self._used_at = now
            if not 0 < self._max_idle_s <= now - self._used_at:
                return False
            # In one step with the look at it: nobody begins to use it in between.
            self._error = self._error or TransportError(
                f"The connection to the broker {self.broker} was closed after being"
                f" idle for {self._max_idle_s:g} s"
                " (`pulsar.client.connectionMaxIdleSeconds`).",
                broker=self.broker,
            )
        logger.debug("%r: %s", self, self._error)
        self._transport.shutdown()
        return True

    def _flush(self) -> None:
        data = self._protocol.data_to_send()
        if data and len(self._answers) < _ANSWERS_KEPT:
            self._answers.append(data)
            self._send_answers()

    def _dispatch_all(self, events: Iterable[Event]) -> None:
        # Entries that came together go on together, and so do receipts and replies:
        # waking a task for each of many would cost more than decoding it. Each kind
        # goes on before the next kind follows: the answer to CLOSE_PRODUCER means that
        # all receipts were told.
        deliveries: list[Delivery | Deliveries] = []
        receipts: list[Receipt] = []
        replies: list[Reply] = []
        try:
            for event in events:
                if replies and not isinstance(event, Reply):
                    self._replied(replies)
                    replies = []
                if isinstance(event, Receipt):
                    receipts.append(event)
                elif isinstance(event, (Delivery, Deliveries)):
                    if deliveries and deliveries[0].consumer_id != event.consumer_id:
                        self._deliver(deliveries)
                        deliveries = []
                    deliveries.append(event)
                else:
                    self._deliver(deliveries)
                    self._tell_stored(receipts)
                    deliveries, receipts = [], []
                    if isinstance(event, Reply):
                        replies.append(event)
                    else:
                        self._dispatch(event)
            self._deliver(deliveries)
        finally:  # what is stored is stored, though nonsense may have followed
            self._tell_stored(receipts)
            self._replied(replies)

    def _deliver(self, deliveries: list[Delivery | Deliveries]) -> None:
        if not deliveries:
            return
        consumer_id = deliveries[0].consumer_id
        entries = sum(len(d) if isinstance(d, Deliveries) else 1 for d in deliveries)
        with self._lock:
            inbox = self._inboxes.get(consumer_id)
            if inbox is not None and self._add_due(consumer_id, -entries) < 0:
                raise ProtocolError(
                    f"Consumer {consumer_id} was sent {_OVERSHOOT} entries more than "
                    "it had asked for."
                )
        if inbox is not None:
            # Deliveries come only where the inbox takes them.
            inbox.deliver(cast("Sequence[Delivery]", deliveries))

    def _cleared(self, event: Event) -> Event:
        """Return an event without the credentials that the broker's texts repeat."""
        texts = {
            name: self.without_secrets(getattr(event, name))
            for name in _TEXTS
            if hasattr(event, name)
        }
        return replace(cast("Any", event), **texts) if texts else event

    def _dispatch(self, told: Event) -> None:
        match event := self._cleared(told):
            case Queued():
                self._queued(event)
            case Refusal():
                self._refused(event)
            case ConsumerClosed():
                self._consumer_closed(event.consumer_id)
            case SendRefused() | ProducerClosed():
                self._tell_producer(event)
            case TopicMigrated():
                self._migrated(event)
            case Connected():
                self._replied([Reply(_CONNECT, event)])
            case AuthChallenged():
                self._challenged(event)

    def _consumer_closed(self, consumer_id: int) -> None:
        with self._lock:
            inbox = self._inboxes.get(consumer_id)
            asked = list(self._asked.get(consumer_id, []))
        self.detach(consumer_id)
        if inbox is not None:
            inbox.closed(None)
        for request in asked:
            if self._take(request.request_id) is not None:
                error = TransportError(
                    f"The broker {self.broker} let go of the consumer before "
                    f"{request.name} was answered.",
                    broker=self.broker,
                )
                self._fail_all([request], error)

    def _migrated(self, event: TopicMigrated) -> None:
        """Answer a pending request to attach; no reply follows a migration."""
        with self._lock:
            waiting = [
                request
                for request in self._requests.values()
                if request.attaches == event.attached
            ]
            for request in waiting:
                del self._requests[request.request_id]
        for request in waiting:
            self._fail_all([request], migration_error(event, self.broker))

    def _challenged(self, challenge: AuthChallenged) -> None:
        credentials = self._credentials
        # Masked as the method of the challenge: a password may be just this word.
        own = "" if credentials is None else self.without_secrets(credentials.method)
        if credentials is None or challenge.method not in ("", own):
            why = "but the credentials are for "
            why += "none" if credentials is None else credentials.method
            raise AuthError(
                f"The broker {self.broker} asks for "
                f"{foreign_text(challenge.method) or 'some'} authentication, {why}. "
                "Correct `pulsar.client.authPluginClassName`.",
                code=access.AUTHENTICATION,
                broker=self.broker,
            )
        # A fresh credential is on its way, or the broker does not read what was sent.
        if self._is_answering or len(self._answers) >= _ANSWERS_KEPT:
            return
        self._is_answering = True
        # Not here: until it is had, entries and receipts, probes and ends go on.
        threading.Thread(
            target=self._answer,
            args=(credentials, challenge.data),
            name=f"pulsar-answer-{self.broker}",
            daemon=True,
        ).start()

    def _answer(self, credentials: CredentialProvider, challenge: bytes) -> None:
        try:
            data = obtain(
                lambda: credentials.answer(challenge),
                self.broker,
                self._credentials_timeout_s,
            )
            self._shown = (self._shown[-1], data)
            self._answers.append(
                commands.auth_response(
                    CLIENT_VERSION, auth_method_name=credentials.method, auth_data=data
                )
            )
            self._is_answering = False
            self._send_answers()
        except PulsarSparkError as error:
            self._fail(error)

    def _replied(self, replies: Sequence[Reply]) -> None:
        if not replies:
            return
        now_s = time.monotonic()
        with self._lock:
            for request_id, body in replies:
                request = self._requests.get(request_id)
                if request is None:
                    continue
                if request.reply_type is not type(body):
                    # It stays with those that wait, and learns of the end as they do.
                    raise ProtocolError(
                        f"Request {request_id} was answered by {type(body).__name__}, "
                        "which is the reply to another kind of request."
                    )
                self._end(request_id)
                self.round_trip_s = min(self.round_trip_s, now_s - request.sent_at)
                request.set_result(body)
            self._ended.notify_all()

    def _queued(self, event: Queued) -> None:
        with self._lock:
            request = self._requests.get(event.request_id)
            if request is not None:
                request.is_queued = True

    def _tell_stored(self, receipts: Sequence[Receipt]) -> None:
        by_producer: dict[int, list[Receipt]] = {}
        for receipt in receipts:
            by_producer.setdefault(receipt[0], []).append(receipt)
        for producer_id, receipts_of_producer in by_producer.items():
            outbox = self._outboxes.get(producer_id)
            if outbox is not None:
                outbox.receipts(receipts_of_producer)

    def _tell_producer(self, event: SendRefused | ProducerClosed) -> None:
        outbox = self._outboxes.get(event.producer_id)
        if outbox is None:
            return
        if isinstance(event, SendRefused):
            error = self._refusal_error(event)
            outbox.refused(event, error)
        else:  # receipts of what was on its way may still follow
            outbox.closed(None)

    def _refused(self, refusal: Refusal) -> None:
        if refusal.request_id is None:
            error = self._refusal_error(refusal)
            if error.code == access.AUTHENTICATION and _CONNECT not in self._requests:
                # What was good at first is not now: a new connection asks for another.
                error = error.saying(error.message, retriable=True)
            raise error
        request = self._take(refusal.request_id)
        if request is not None:
            error = self._refusal_error(
                refusal, request=request.name, subject=request.subject
            )
            self._fail_all([request], error)

    def _refusal_error(
        self, refusal: Refusal | SendRefused, **about: str
    ) -> BrokerError:
        return refusal_error(refusal, self.broker, self._credentials, **about)

    def without_secrets(self, text: str) -> str:
        """Return a broker's text without the credentials shown to the broker."""
        for credential in self._shown:
            text = without_secret(text, credential)
        return text

    def _take(self, request_id: int) -> Pending[Any] | None:
        with self._lock:
            return self._end(request_id)

    def _end(self, request_id: int) -> Pending[Any] | None:
        """Forget a request; with the lock."""
        request = self._requests.pop(request_id, None)
        if request is not None and (consumer_id := request.consumer_id) is not None:
            asked = self._asked.get(consumer_id, [])
            if request in asked:  # a consumer that was detached has none
                asked.remove(request)
            if not asked:
                self._asked.pop(consumer_id, None)
        return request

    def _fail_all(
        self, requests: Iterable[Pending[Any]], error: PulsarSparkError
    ) -> None:
        """End requests that were forgotten already."""
        with self._lock:
            for request in requests:
                # An exception of its own: they are raised in different threads.
                request.set_exception(copy.copy(error))
            self._ended.notify_all()

    def _fail(self, error: PulsarSparkError) -> None:
        """End the connection once; everything that waits learns why."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            requests = list(self._requests.values())
            boxes: list[Inbox | Outbox] = [
                *self._inboxes.values(),
                *self._outboxes.values(),
            ]
            self._requests.clear()
            self._asked.clear()
            self._inboxes.clear()
            self._due.clear()
            self._outboxes.clear()
        logger.debug("%r: %s", self, error)
        self._transport.shutdown()  # the reading thread, which comes back now, closes
        self._fail_all(requests, error)
        for box in boxes:
            box.closed(copy.copy(error))


def new_producer_id() -> int:
    """Return a producer id that no connection of this process has seen."""
    return next(_producer_ids)


def migration_error(event: TopicMigrated, broker: str) -> TopicMigratedError:
    """Return where the topic went, as the error to raise."""
    url = foreign_text(event.service_url)
    url_tls = foreign_text(event.service_url_tls)
    # What stands before an "@" may be a secret.
    shown = (
        "at a URL with a user" if "@" in address else address
        for address in (url, url_tls)
    )
    where = " or ".join(filter(None, shown)) or "it does not say which"
    return TopicMigratedError(
        f"The broker {broker} says that the topic was migrated to another cluster, "
        f"{where}. Message ids differ there, so that no read can go on there by "
        "itself: set `service.url` to it, and read from `earliest`.",
        broker=broker,
        service_url=url,
        service_url_tls=url_tls,
    )


def refusal_error(
    refusal: Refusal | SendRefused,
    broker: str,
    credentials: CredentialProvider | None = None,
    *,
    request: str = "",
    subject: str = "",
) -> BrokerError:
    """Return what the broker refused, as the error to raise.

    Args:
        refusal: The text.
        broker: ``host:port`` of it.
        credentials: The credentials shown.
        request: The protocol's name of the refused request, "" for the connection.
        subject: The topic or the namespace that this is about, "" for none.
    """
    kind = BrokerError
    sentence = foreign_text(refusal.message)
    text = f"The broker {broker} answered {refusal.code}: {sentence}"
    retriable = None
    if has_too_many_consumers(sentence):
        text = (
            f"{text.rstrip('. ')}. Raise `maxConsumers`, or the limit of each"
            " subscription: a stream has two consumers on each topic partition that it"
            " reads, a batch read has one for each task"
        )
    elif refusal.code == "TopicNotFound":
        kind = TopicNotFoundError
    elif refusal.code == access.AUTHORIZATION and access.is_undecided(sentence):
        kind = AuthError
        retriable = True  # it may find out the next time
    elif refusal.code in _AUTH_CODES:
        kind = AuthError
        cure = access.cure(refusal.code, sentence, credentials, request, subject)
        text = f"{text.rstrip('. ')}. {cure}"
    return kind(
        text,
        code=refusal.code,
        server_message=sentence,
        broker=broker,
        retriable=retriable,
    )
