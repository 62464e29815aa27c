"""One connection to a broker: a transport, a ClientProtocol, and a thread that reads.

The thread is what keeps a connection alive while Spark is slow to take rows: it answers
the broker's probes, completes requests, and hands entries to their consumers' inboxes.
It never waits for a consumer, with one exception that :class:`Inbox` explains.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Protocol

from pulsar_spark._version import __version__
from pulsar_spark.client.buffers import BufferPool
from pulsar_spark.client.transport import Transport, open_transport
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
    foreign_text,
)
from pulsar_spark.options import ClientOptions
from pulsar_spark.wire import commands
from pulsar_spark.wire.protocol import (
    AuthChallenged,
    ClientProtocol,
    Connected,
    ConsumerClosed,
    Delivery,
    Event,
    ProducerClosed,
    Queued,
    Receipt,
    Refusal,
    Reply,
    SendRefused,
)

logger = logging.getLogger("pulsar_spark.client")

_buffers = BufferPool()
os.register_at_fork(after_in_child=_buffers.start_anew)

#: How often the reading thread looks at the clock when nothing arrives, in seconds.
_TICK_S = 1.0

#: Where the handshake waits among the requests, whose own ids start at 1.
_CONNECT = 0

#: Requests that go out with one call of the system: some ten kilobytes.
_REQUESTS_TOGETHER = 256

#: Entries that may come beyond those asked for: brokers read some at a time.
_OVERSHOOT = 1000

#: Answers to probes that wait while a frame goes out slowly. One would do.
_ANSWERS_KEPT = 4

_AUTH_CODES = frozenset({"AuthenticationError", "AuthorizationError"})


class Inbox(Protocol):
    """Where a connection puts what arrives for one consumer.

    Both calls come from the reading thread and must return at once. ``deliver`` alone
    may block it, and only where memory would run over; the broker's probes then wait.
    """

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Some entries arrived, in order."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """No more will arrive: the broker let go (None), or the connection broke."""


class Outbox(Protocol):
    """What a connection tells a producer. Calls come from the reading thread."""

    def receipt(self, receipt: Receipt) -> None:
        """An entry is stored."""

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """An entry is not stored; ``error`` says the same."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """No more will be taken: the broker let go (None), or the connection broke.

        What a broker had taken before it let go, it may still acknowledge.
        """


#: Producer ids are unique in the process, so that a frame that was built for one
#: connection can be sent again on another.
_producer_ids = itertools.count(1)


class _Request(Future[Any]):
    """A request under way.

    Attributes:
        request_id: Its number.
        answer: The class of the reply to it, None where there is none.
    """

    def __init__(self, request_id: int, answer: type[Any] | None) -> None:
        super().__init__()
        self.request_id = request_id
        self.answer = answer


class Connection:
    """A connection to one broker, shared by everything in this process that needs it.

    Args:
        address: ``host:port`` to connect to.
        options: Time limits.
        proxied_broker: ``host:port`` of the broker meant, where ``address`` is a proxy.

    Raises:
        TransportError: It cannot be reached, or the handshake is not over in time.
        ProtocolError: What answered is not a Pulsar broker.
        AuthError: It does not want us.
        BrokerError: It refused for another reason.
    """

    def __init__(
        self, address: str, options: ClientOptions, *, proxied_broker: str | None = None
    ) -> None:
        self.address = address
        self.broker = proxied_broker or address
        self._keep_alive_s = options.keep_alive_interval_s
        connected = _Request(_CONNECT, None)
        self._requests: dict[int, _Request] = {_CONNECT: connected}
        self._inboxes: dict[int, Inbox] = {}
        self._due: dict[int, int] = {}  # entries that may come, for each inbox
        self._outboxes: dict[int, Outbox] = {}
        self._request_ids = itertools.count(1)
        self._consumer_ids = itertools.count(1)
        self._lock = threading.Lock()  # guards the four maps and _error
        self._send_lock = threading.Lock()  # frames must not interleave
        self._answers: deque[bytes] = deque()  # to the broker's probes, still to send
        self._error: PulsarSparkError | None = None
        self._protocol = ClientProtocol(
            commands.connect(
                client_version=f"pulsar-spark-{__version__}",
                proxy_to_broker_url=proxied_broker or "",
            ),
            _buffers.take,
            options.memory_limit_bytes,
        )
        self._transport: Transport = open_transport(
            address, options.connection_timeout_s
        )
        self._thread = threading.Thread(
            target=self._run, name=f"pulsar-{self.broker}", daemon=True
        )
        self._thread.start()
        try:
            answer = self.wait(connected, options.connection_timeout_s, "CONNECT")
        except BaseException as error:  # an interrupt must not leave the thread behind
            self.close()
            if not isinstance(error, TransportError):
                raise
            raise TransportError(
                f"{error.message} Is this the binary port of a Pulsar broker (usually "
                "6650), and is the broker up?",
                broker=self.broker,
            ) from error
        self.max_message_size_bytes = answer.max_message_size_bytes
        self.server_version = foreign_text(answer.server_version)

    def __repr__(self) -> str:
        return f"Connection({self.broker!r})"

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._error is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for it: no request, no consumer, no producer."""
        with self._lock:
            return not (self._requests or self._inboxes or self._outboxes)

    def request(self, build: Callable[..., bytes]) -> Future[Any]:
        """Sends a request without waiting for its reply; many may be under way.

        Args:
            build: Makes the frame, given the keyword ``request_id``.

        Returns:
            A future of the reply's message. It raises a BrokerError for a refusal and a
            TransportError if the connection breaks first. It is running where the
            broker has taken the request, but lets it wait for its turn.
        """
        (future,) = self.request_all([build])
        return future

    def request_all(self, builds: Sequence[Callable[..., bytes]]) -> list[Future[Any]]:
        """Sends many requests, each as ``request`` does, with few calls of the system.

        One call for each of ten thousand would take longer than everything else: it
        wakes the broker, and then the reading thread, for a few bytes.
        """
        futures: list[Future[Any]] = []
        for first in range(0, len(builds), _REQUESTS_TOGETHER):
            requests: dict[int, _Request] = {}
            frames = []
            for build in builds[first : first + _REQUESTS_TOGETHER]:
                request_id = next(self._request_ids)
                frame = build(request_id=request_id)
                frames.append(frame)
                requests[request_id] = _Request(request_id, commands.answer_to(frame))
            futures += requests.values()
            with self._lock:
                error = self._error
                if error is None:
                    self._requests |= requests
            if error is not None:
                for future in requests.values():
                    future.set_exception(copy.copy(error))
                continue
            try:
                self.send(b"".join(frames))
            except PulsarSparkError as failure:
                self._fail(failure)
        return futures

    def tell(self, build: Callable[..., bytes]) -> None:
        """Sends a request whose reply nobody waits for; not at all where it cannot.

        Args:
            build: Makes the frame, given the keyword ``request_id``.
        """
        with contextlib.suppress(PulsarSparkError):
            self.send(build(request_id=next(self._request_ids)))

    def wait(self, future: Future[Any], timeout_s: float, what: str) -> Any:
        """The reply, within ``timeout_s`` seconds.

        Raises:
            TransportError: No reply in time; ``what`` names the request.
            BrokerError: A refusal.
        """
        wait([future], max(0.0, timeout_s))
        if not future.done():
            raise self.give_up(future, what, timeout_s)
        return future.result()

    def give_up(
        self, future: Future[Any], what: str, timeout_s: float
    ) -> TransportError:
        """The error to raise when the reply to ``what`` did not come in time.

        A reply that comes later meets nobody, unless the broker has said that the
        request is queued (``future.running()``).
        """
        if isinstance(future, _Request):
            with self._lock:
                if not future.running():
                    self._requests.pop(future.request_id, None)
        return TransportError(
            f"The broker {self.broker} did not answer {what} within {timeout_s:g} s.",
            broker=self.broker,
        )

    def send(self, frame: bytes) -> None:
        """Sends a frame that has no reply.

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

    def grant(self, consumer_id: int, permits: int) -> None:
        """Lets the broker send a consumer this many more messages.

        Raises:
            PulsarSparkError: As ``send``.
        """
        with self._lock:
            if consumer_id in self._due:
                self._due[consumer_id] += permits
        self.send(commands.flow(consumer_id, permits))

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

    def attach(self, inbox: Inbox) -> int:
        """Registers a consumer before it subscribes; returns its consumer id."""
        consumer_id = next(self._consumer_ids)
        with self._lock:
            error = self._error
            self._inboxes[consumer_id] = inbox
            self._due[consumer_id] = _OVERSHOOT
        if error is not None:
            inbox.closed(copy.copy(error))
        return consumer_id

    def detach(self, consumer_id: int) -> None:
        """Forgets a consumer; entries that still arrive for it are dropped."""
        with self._lock:
            self._inboxes.pop(consumer_id, None)
            self._due.pop(consumer_id, None)

    def attach_producer(self, producer_id: int, outbox: Outbox) -> None:
        """Registers a producer before PRODUCER is sent."""
        with self._lock:
            error = self._error
            self._outboxes[producer_id] = outbox
        if error is not None:
            outbox.closed(copy.copy(error))

    def detach_producer(self, producer_id: int) -> None:
        """Forgets a producer; what still arrives for it is dropped."""
        with self._lock:
            self._outboxes.pop(producer_id, None)

    def close(self, reason: PulsarSparkError | None = None) -> None:
        """Ends the connection; everything that waits for it gets an error.

        Args:
            reason: The error; by default a TransportError that says no more than that.
        """
        closed = TransportError(
            f"The connection to the broker {self.broker} was closed by this side.",
            broker=self.broker,
        )
        self._fail(reason or closed)

    def forget(self) -> None:
        """In a forked child: frees the socket, which goes on being the parent's."""
        self._transport.close()

    # What follows runs in the reading thread.

    def _run(self) -> None:
        try:
            self._flush()
            self._receive()
        except ProtocolError as error:
            self._fail(ProtocolError(f"Broker {self.broker}: {error.message}"))
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
        probed = False
        while self._error is None:
            size = self._transport.receive(self._protocol.buffer(), _TICK_S)
            now = time.monotonic()
            if size:
                self._dispatch_all(self._protocol.received(size))
                self._flush()
                # Not `now`: a full inbox may have kept us, which is not their silence.
                last_heard, probed = time.monotonic(), False
            elif now - last_heard > 2 * self._keep_alive_s:
                raise TransportError(
                    f"The broker {self.broker} has been silent for "
                    f"{now - last_heard:.0f} s and did not answer a probe.",
                    broker=self.broker,
                )
            elif now - last_heard > self._keep_alive_s and not probed:
                self._answers.append(commands.ping())
                self._send_answers()
                probed = True

    def _flush(self) -> None:
        data = self._protocol.data_to_send()
        if data and len(self._answers) < _ANSWERS_KEPT:
            self._answers.append(data)
            self._send_answers()

    def _dispatch_all(self, events: Iterable[Event]) -> None:
        # Entries that came together go on together: waking a task for each one of many
        # small entries would cost more than decoding it.
        deliveries: list[Delivery] = []
        for event in events:
            if isinstance(event, Delivery):
                if deliveries and deliveries[0].consumer_id != event.consumer_id:
                    self._deliver(deliveries)
                    deliveries = []
                deliveries.append(event)
            else:
                self._deliver(deliveries)
                deliveries = []
                self._dispatch(event)
        self._deliver(deliveries)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        consumer_id = deliveries[0].consumer_id
        with self._lock:
            inbox = self._inboxes.get(consumer_id)
            if inbox is not None:
                self._due[consumer_id] -= len(deliveries)
                if self._due[consumer_id] < 0:
                    raise ProtocolError(
                        f"Consumer {consumer_id} was sent {_OVERSHOOT} entries more "
                        "than it had asked for."
                    )
        if inbox is not None:
            inbox.deliver(deliveries)

    def _dispatch(self, event: Event) -> None:
        match event:
            case Reply():
                self._replied(event)
            case Queued():
                self._queued(event)
            case Refusal():
                self._refused(event)
            case ConsumerClosed():
                with self._lock:
                    inbox = self._inboxes.pop(event.consumer_id, None)
                    self._due.pop(event.consumer_id, None)
                if inbox is not None:
                    inbox.closed(None)
            case Receipt() | SendRefused() | ProducerClosed():
                self._tell_producer(event)
            case Connected():
                future = self._take(_CONNECT)
                if future is not None:
                    future.set_result(event)
            case AuthChallenged():
                raise AuthError(
                    f"The broker {self.broker} asks for "
                    f"{foreign_text(event.method) or 'some'} authentication, which "
                    "this version does not support.",
                    code="AuthenticationError",
                    broker=self.broker,
                )

    def _replied(self, reply: Reply) -> None:
        with self._lock:
            request = self._requests.get(reply.request_id)
            if request is None:
                return
            if request.answer is not type(reply.body):
                # It stays with those that wait, and learns of the end as they do.
                raise ProtocolError(
                    f"Request {reply.request_id} was answered by "
                    f"{type(reply.body).__name__}, which is the reply to another kind "
                    "of request."
                )
            del self._requests[reply.request_id]
        request.set_result(reply.body)

    def _queued(self, event: Queued) -> None:
        with self._lock:
            future = self._requests.get(event.request_id)
            if future is not None and not future.running():
                future.set_running_or_notify_cancel()

    def _tell_producer(self, event: Receipt | SendRefused | ProducerClosed) -> None:
        outbox = self._outboxes.get(event.producer_id)
        if outbox is None:
            return
        if isinstance(event, Receipt):
            outbox.receipt(event)
        elif isinstance(event, SendRefused):
            outbox.refused(event, refusal_error(event, self.broker))
        else:  # receipts of what was on its way may still follow
            outbox.closed(None)

    def _refused(self, refusal: Refusal) -> None:
        error = refusal_error(refusal, self.broker)
        if refusal.request_id is None:
            raise error
        future = self._take(refusal.request_id)
        if future is not None:
            future.set_exception(error)

    def _take(self, request_id: int) -> _Request | None:
        with self._lock:
            return self._requests.pop(request_id, None)

    def _fail(self, error: PulsarSparkError) -> None:
        """Ends the connection once; everything that waits learns why."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            futures = list(self._requests.values())
            boxes: list[Inbox | Outbox] = [
                *self._inboxes.values(),
                *self._outboxes.values(),
            ]
            self._requests.clear()
            self._inboxes.clear()
            self._due.clear()
            self._outboxes.clear()
        logger.debug("%r: %s", self, error)
        self._transport.shutdown()  # the reading thread, which comes back now, closes
        # Each gets an exception of its own: they are raised in different threads.
        for future in futures:
            future.set_exception(copy.copy(error))
        for box in boxes:
            box.closed(copy.copy(error))


def new_producer_id() -> int:
    """A producer id that no connection of this process has seen."""
    return next(_producer_ids)


def refusal_error(refusal: Refusal | SendRefused, broker: str) -> BrokerError:
    """What the broker refused, as the error to raise."""
    kind = BrokerError
    if refusal.code == "TopicNotFound":
        kind = TopicNotFoundError
    elif refusal.code in _AUTH_CODES:
        kind = AuthError
    sentence = foreign_text(refusal.message)
    return kind(
        f"The broker {broker} answered {refusal.code}: {sentence}",
        code=refusal.code,
        server_message=sentence,
        broker=broker,
    )
