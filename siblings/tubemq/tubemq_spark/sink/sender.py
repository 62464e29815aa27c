# SPDX-License-Identifier: Apache-2.0
"""Sends a task's messages, many in flight, until all are acknowledged.

Messages are sent again after whatever may pass: a broker that restarts, a connection
that breaks, a reply that does not come. TubeMQ finds no duplicates, so that a message
whose reply was lost is then stored twice. Nothing is lost, as far as an acknowledgement
goes: brokers write to disk some seconds later. With ``confirm.flush`` a task waits for
that, and sends again what a broker that died had in memory.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.connection import Call, Connection
from tubemq_spark.errors import (
    CallTimeoutError,
    ServerError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.options import WriteOptions
from tubemq_spark.sink.confirmation import Stored, Unconfirmed
from tubemq_spark.sink.routes import Routes
from tubemq_spark.sink.rows import Row
from tubemq_spark.wire import codes, messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.metadata import Partition

#: Requests that go out with one call of the system.
_TOGETHER = 64

#: What a broker is left to take in the time of a call at least, however slow it is.
_LEAST_IN_FLIGHT_BYTES = 256 * 1024

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 2.0

#: How often a broker is asked whether messages are on its disk, in seconds.
_FIRST_LOOK_S, _MAX_LOOK_S = 0.2, 2.0


#: These may pass with a fresh token, or with fresh metadata; a damaged checksum, too.
_LOOK_AGAIN = (codes.CERTIFICATE_FAILURE, codes.FORBIDDEN)


@dataclass
class Sent:
    """What a task has written.

    Attributes:
        messages: Acknowledged.
        size_bytes: Of them, attributes included.
        resent: How often one was sent again.
    """

    messages: int = 0
    size_bytes: int = 0
    resent: int = 0


@dataclass(eq=False)
class _Message:
    row: Row
    partition: Partition
    tries: int = 0
    most_bytes: int = 0  # that were in flight when it was sent
    call: Call[pb.SendMessageResponseB2P] | None = None
    connection: Connection | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.row.stored.data)


class Sender:
    """Sends messages to any number of topics. For one thread; to be closed.

    Args:
        pool: Of connections to brokers.
        options: How to write.
        turn: Where partitions begin to take turns: another one in each task.
        most_unconfirmed_bytes: How much is kept of messages that may be in a broker's
            memory alone.

    Attributes:
        sent: So far.
    """

    def __init__(
        self,
        pool: BrokerPool,
        options: WriteOptions,
        turn: int = 0,
        *,
        most_unconfirmed_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.sent = Sent()
        self._pool = pool
        self._options = options
        self._routes = Routes(options, turn)
        self._unsent: list[_Message] = []
        self._in_flight: deque[_Message] = deque()
        self._in_flight_bytes = 0
        self._most_bytes = options.max_in_flight_bytes
        self._unconfirmed: Unconfirmed[_Message] = Unconfirmed()
        self._most_unconfirmed_bytes = most_unconfirmed_bytes
        self._retry = Retry(
            _FIRST_PAUSE_S, _MAX_PAUSE_S, options.send_timeout_s, "send.timeout"
        )
        self._left_at = time.monotonic()

    def send(self, rows: Iterable[Row]) -> None:
        """Send messages without waiting for acknowledgements.

        Raises:
            BadRowError: A row names a partition that its topic does not have.
            MessageTooLargeError: A row is larger than a message may be.
            TubeMQError: One cannot be sent within ``send.timeout``.
        """
        with self._on_our_time():
            for row in rows:
                message = _Message(row, self._routes.choose(row))
                self._unsent.append(message)
                self._in_flight_bytes += message.size_bytes
                if len(self._unsent) >= _TOGETHER or self._is_full:
                    self._flush()
                if self._is_full:
                    self._make_room()
                if self._unconfirmed.size_bytes > self._most_unconfirmed_bytes:
                    self._confirm(self._most_unconfirmed_bytes // 2)

    def finish(self) -> Sent:
        """Wait until everything is acknowledged, and on disk if that is wanted.

        Raises:
            TubeMQError: It is not within ``send.timeout``.
        """
        with self._on_our_time():
            self._flush()
            self._settle_all()
            self._confirm(0)
        return self.sent

    def close(self) -> None:
        """Let go of the masters. What is not acknowledged may be stored or not."""
        self._routes.close()

    @contextmanager
    def _on_our_time(self) -> Iterator[None]:
        """Leave out of ``send.timeout`` what Spark has spent since the last call."""
        self._retry.extend(time.monotonic() - self._left_at)
        try:
            yield
        finally:
            self._left_at = time.monotonic()

    @property
    def _is_full(self) -> bool:
        return (
            len(self._in_flight) + len(self._unsent) >= self._options.max_in_flight
            or self._in_flight_bytes > self._most_bytes
        )

    def _make_room(self) -> None:
        """Settle messages until there is room to send several together."""
        most = self._options.max_in_flight
        most -= min(_TOGETHER, (most + 1) // 2)
        most_bytes = self._most_bytes // 2
        while self._in_flight and (
            len(self._in_flight) > most or self._in_flight_bytes > most_bytes
        ):
            self._settle()

    # -- there and back ----------------------------------------------------------------

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._routes.refresh():
            for message in unsent:
                message.partition = self._routes.still(message.row, message.partition)
        self._start(unsent)
        self._in_flight += unsent

    def _start(self, some: list[_Message]) -> None:
        """Send messages; failures appear when a message is settled."""
        by_server: dict[str, list[_Message]] = {}
        for message in some:
            message.most_bytes = min(self._most_bytes, self._in_flight_bytes)
            try:
                server = self._routes.server(message.partition)
            except TubeMQError as error:
                message.call, message.connection = _failed(error), None
                continue
            by_server.setdefault(server, []).append(message)
        for server, mine in by_server.items():
            try:
                connection = self._pool.connection(server)
            except TubeMQError as error:
                for message in mine:
                    message.call, message.connection = _failed(error), None
                continue
            calls = connection.call_all([self._request(row) for row in mine])
            for message, call in zip(mine, calls, strict=True):
                message.call, message.connection = call, connection

    def _request(
        self, message: _Message
    ) -> messages.Request[pb.SendMessageResponseB2P]:
        row = message.row
        return messages.send(
            self._routes.client_id,
            message.partition.topic,
            message.partition.partition_id,
            row.stored,
            msg_type=row.msg_type,
            msg_time=row.msg_time,
            token=self._routes.token,
        )

    def _settle_all(self) -> None:
        while self._in_flight:
            self._settle()

    def _settle(self) -> None:
        """Wait for the oldest message in flight; resend if that may help."""
        message = self._in_flight[0]
        try:
            reply = self._await(message)
        except TubeMQError as error:
            self._again(error)
            return
        self._retry.restart()
        self._routes.unblock(message.partition)
        self._in_flight.popleft()
        self._in_flight_bytes -= message.size_bytes
        self.sent.messages += 1
        self.sent.size_bytes += message.size_bytes
        if self._options.confirm_flush:
            self._unconfirmed.add(_stored(message, reply))

    def _await(self, message: _Message) -> pb.SendMessageResponseB2P:
        call = message.call
        assert call is not None
        if message.connection is None:
            return call.result()
        reply = message.connection.reply(call)
        message.connection.check(reply, call.request, subject=str(message.partition))
        return reply

    def _again(self, error: TubeMQError) -> None:
        """Wait, and send all again that did not go well, in their order."""
        first = self._in_flight[0]
        if not _may_pass(error, first.tries):
            raise error
        limit = self._options.max_retries
        if limit is not None and first.tries >= limit:
            raise error.saying(
                f"{error.message.rstrip('. ')}. It was sent {first.tries + 1} times: "
                "raise `max.retries`, or leave it out."
            )
        if _is_of_broker(error):
            self._routes.block(first.partition)
        self._retry.pause(error.saying(error.message, retriable=True))
        if isinstance(error, ServerError) and error.code in _LOOK_AGAIN:
            self._routes.look()
        elif not self._routes.has_way(first.row, first.partition):
            self._routes.search()
        if _is_too_much(error, first):
            least = min(self._most_bytes, _LEAST_IN_FLIGHT_BYTES)
            half = max(least, first.most_bytes // 2)
            self._most_bytes = min(self._most_bytes, half)
        # Those behind it have had the same fate, most likely, or will be acknowledged.
        failed = [row for row in self._in_flight if row is first or _is_lost(row)]
        self._resend(_first_of(failed, self._most_bytes))

    def _resend(self, some: list[_Message]) -> None:
        for row in some:
            row.tries += 1
            row.partition = self._routes.elsewhere(row.row, row.partition)
        self.sent.resent += len(some)
        for group in _groups(some):
            self._start(group)

    # -- on disk -----------------------------------------------------------------------

    def _confirm(self, limit_bytes: int) -> None:
        """Wait until there is no more than this that may be in memory alone."""
        waiting = self._unconfirmed
        retry = Retry(
            _FIRST_LOOK_S, _MAX_LOOK_S, self._options.send_timeout_s, "send.timeout"
        )
        while waiting.size_bytes > limit_bytes:
            before = waiting.size_bytes
            error = self._look_at_disks()
            if waiting.size_bytes < before:
                retry.restart()
            self._send_lost()
            if waiting.size_bytes > limit_bytes:
                retry.pause(error)

    def _look_at_disks(self) -> TubeMQError:
        """Drop confirmed messages; return why the others are unconfirmed."""
        try:
            self._unconfirmed.look(self._routes.token)
        except ServerError as error:
            if error.code != codes.CERTIFICATE_FAILURE:
                return error
            self._routes.look()
            return error.saying(error.message, retriable=True)
        return TransportError(
            f"Brokers have {self._unconfirmed.size_bytes} bytes of messages in memory "
            "that are to be on their disks."
        )

    def _send_lost(self) -> None:
        """Send again what a broker had in memory that has died, or has cut us off."""
        lost = self._unconfirmed.lost()
        for message in lost:
            self.sent.messages -= 1
            self.sent.size_bytes -= message.size_bytes
            self._in_flight_bytes += message.size_bytes
        self._resend(lost)
        self._in_flight += lost
        self._settle_all()


def _stored(message: _Message, reply: pb.SendMessageResponseB2P) -> Stored[_Message]:
    assert message.connection is not None
    if not reply.HasField("appendOffset"):
        raise ServerError(
            f"The broker {message.connection.server} does not tell where it stores "
            "messages, so that `confirm.flush` cannot be kept: leave it out, or "
            "upgrade the broker.",
            broker=message.connection.server,
        )
    return Stored(
        message,
        message.size_bytes,
        message.partition,
        reply.appendOffset,
        message.connection,
    )


def _failed(error: TubeMQError) -> Call[Any]:
    call: Call[Any] = Call(messages.close_producer(""), 0.0)
    call.set_exception(error)
    return call


def _is_lost(message: _Message) -> bool:
    """Return whether a message has failed, with an error that may pass."""
    call = message.call
    if call is None or not call.done():
        return False
    error = call.exception()
    if error is not None:
        return isinstance(error, TubeMQError) and error.retriable
    code = call.result().errCode
    return code in codes.RETRIABLE or code == codes.CERTIFICATE_FAILURE


def _may_pass(error: TubeMQError, tries: int) -> bool:
    if isinstance(error, ServerError) and error.code in _LOOK_AGAIN:
        return tries < 2
    return error.retriable


def _is_of_broker(error: TubeMQError) -> bool:
    """Return whether another broker may take the message in the meantime."""
    if isinstance(error, ServerError):
        # An exception of a server that stops has no code.
        return error.code in (0, codes.SERVICE_UNAVAILABLE)
    return isinstance(error, TransportError)


def _is_too_much(error: TubeMQError, message: _Message) -> bool:
    """Return whether a broker is alive but too slow for a message.

    So much was sent before it. To send all again would only make that more.
    """
    connection = message.connection
    is_answering = connection is not None and connection.is_open
    return is_answering and isinstance(error, CallTimeoutError)


def _first_of(some: list[_Message], size_bytes: int) -> list[_Message]:
    """Return the first messages within the limit, at least the first."""
    ends = itertools.accumulate(row.size_bytes for row in some)
    count = sum(1 for _ in itertools.takewhile(lambda end: end <= size_bytes, ends))
    return some[: max(1, count)]


def _groups(some: list[_Message]) -> Iterator[list[_Message]]:
    for begin in range(0, len(some), _TOGETHER):
        yield some[begin : begin + _TOGETHER]
