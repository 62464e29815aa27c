# SPDX-License-Identifier: Apache-2.0
"""Sends the messages of one task, many at a time, until all are acknowledged.

Messages are sent again after whatever may pass: a broker that restarts, a connection
that breaks, a reply that does not come. TubeMQ finds no duplicates, so that a message
whose reply was lost is then stored twice. Nothing is lost, as far as an acknowledgement
goes: brokers write to disk some seconds later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.connection import Call, Connection
from tubemq_spark.client.masters import ClusterView, Masters, Producer
from tubemq_spark.errors import (
    BadRowError,
    MessageTooLargeError,
    ServerError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.options import WriteOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.wire import codes, messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.metadata import Partition

#: Where a master names no limit.
_DEFAULT_MAX_BYTES = 1024 * 1024

#: Requests that go out with one call of the system.
_TOGETHER = 64

#: Tokens turn over every few minutes, and masters forget who is silent.
_REFRESH_S = 60.0

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 2.0


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
    call: Call[pb.SendMessageResponseB2P] | None = None
    connection: Connection | None = None


class Sender:
    """Sends messages to any number of topics. For one thread; to be closed.

    Args:
        pool: Of connections to brokers.
        options: How to write.
        turn: Where partitions begin to take turns: another one in each task.

    Attributes:
        sent: So far.
    """

    def __init__(self, pool: BrokerPool, options: WriteOptions, turn: int = 0) -> None:
        self.sent = Sent()
        self._pool = pool
        self._options = options
        self._turn = turn
        self._masters = Masters(options.client)
        self._producer: Producer | None = None
        self._topics: list[str] = []
        self._view = ClusterView({}, {}, None)
        self._seen_at = 0.0
        self._partitions: dict[str, tuple[Partition, ...]] = {}
        self._unsent: list[_Message] = []
        self._in_flight: deque[_Message] = deque()
        self._in_flight_bytes = 0
        self._retry = Retry(
            _FIRST_PAUSE_S, _MAX_PAUSE_S, options.send_timeout_s, "send.timeout"
        )

    def send(self, rows: Iterable[Row]) -> None:
        """Send messages; they need not be acknowledged yet.

        Raises:
            BadRowError: A row names a partition that its topic does not have.
            MessageTooLargeError: A row is larger than a message may be.
            TubeMQError: One cannot be sent within ``send.timeout``.
        """
        for row in rows:
            message = _Message(row, self._route(row))
            self._unsent.append(message)
            self._in_flight_bytes += len(row.stored.data)
            if len(self._unsent) >= _TOGETHER or self._is_full:
                self._flush()
            while self._is_full and self._in_flight:
                self._settle()

    def finish(self) -> Sent:
        """Wait until everything is acknowledged.

        Raises:
            TubeMQError: It is not within ``send.timeout``.
        """
        self._flush()
        while self._in_flight:
            self._settle()
        return self.sent

    def close(self) -> None:
        """Let go of the masters. What is not acknowledged may be stored or not."""
        try:
            if self._producer is not None:
                self._producer.close()
        except TubeMQError:
            pass  # it expires by itself
        finally:
            self._masters.close()

    @property
    def _is_full(self) -> bool:
        return (
            len(self._in_flight) + len(self._unsent) > self._options.max_in_flight
            or self._in_flight_bytes > self._options.max_in_flight_bytes
        )

    # -- where to ----------------------------------------------------------------------

    def _route(self, row: Row) -> Partition:
        if row.topic not in self._partitions:
            self._topics.append(row.topic)
            self._look()
        partitions = self._partitions[row.topic]
        limit = self._view.topics[row.topic].max_message_bytes or _DEFAULT_MAX_BYTES
        size = len(row.stored.data)
        if size > limit:
            raise MessageTooLargeError(
                f"A row for the topic {row.topic} has {size} bytes with its attributes,"
                f" and messages may have {limit}. Raise the topic's `maxMsgSizeInMB`, "
                "or write smaller values.",
                size_bytes=size,
                limit_bytes=limit,
            )
        if row.partition is not None:
            return _named(row.partition, partitions, row.topic)
        if row.key is not None:
            return partitions[row.key % len(partitions)]
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def _look(self) -> None:
        """Ask the master for partitions, brokers and a fresh token.

        Raises:
            TopicNotPublishableError: A topic is not open for writing.
            TubeMQError: The masters do not answer, or refuse.
        """
        if self._producer is None:
            self._producer = Producer(self._masters, self._topics)
        self._producer.topics = self._topics
        if all(topic in self._partitions for topic in self._topics):
            view = self._producer.view()
        else:
            view = self._producer.wait_for(self._options.client.operation_timeout_s)
        # What is left out now is most likely on a broker that restarts.
        self._view = ClusterView(
            {**self._view.brokers, **view.brokers},
            {**self._view.topics, **view.topics},
            view.token or self._view.token,
        )
        for topic, metadata in view.topics.items():
            if metadata.partitions:
                known = self._partitions.get(topic, ())
                self._partitions[topic] = tuple(sorted({*known, *metadata.partitions}))
        self._seen_at = time.monotonic()

    # -- there and back ----------------------------------------------------------------

    def _flush(self) -> None:
        if self._unsent and time.monotonic() - self._seen_at > _REFRESH_S:
            try:
                self._look()
            except TransportError:  # brokers take messages all the same
                self._seen_at = time.monotonic()
        unsent, self._unsent = self._unsent, []
        self._start(unsent)
        self._in_flight += unsent

    def _start(self, some: list[_Message]) -> None:
        """Send messages; what cannot be sent is found out when it is settled."""
        assert self._producer is not None or not some
        by_server: dict[str, list[_Message]] = {}
        for message in some:
            server = self._view.brokers[message.partition.broker_id]
            by_server.setdefault(server, []).append(message)
        for server, mine in by_server.items():
            try:
                connection = self._pool.connection(server)
            except TubeMQError as error:
                for message in mine:
                    message.call, message.connection = _failed(error), None
                continue
            calls = connection.call_all([self._request(one) for one in mine])
            for message, call in zip(mine, calls, strict=True):
                message.call, message.connection = call, connection

    def _request(
        self, message: _Message
    ) -> messages.Request[pb.SendMessageResponseB2P]:
        row = message.row
        assert self._producer is not None
        return messages.send(
            self._producer.client_id,
            message.partition.topic,
            message.partition.partition_id,
            row.stored,
            msg_type=row.msg_type,
            msg_time=row.msg_time,
            token=self._view.token,
        )

    def _settle(self) -> None:
        """Wait for the first message in flight; send it again where that may help."""
        message = self._in_flight[0]
        try:
            self._await(message)
        except TubeMQError as error:
            self._again(error)
            return
        self._retry.restart()
        self._in_flight.popleft()
        self._in_flight_bytes -= len(message.row.stored.data)
        self.sent.messages += 1
        self.sent.size_bytes += len(message.row.stored.data)

    def _await(self, message: _Message) -> None:
        call = message.call
        assert call is not None
        if message.connection is None:
            call.result()
            return
        reply = message.connection.reply(call)
        message.connection.check(reply, call.request, subject=str(message.partition))

    def _again(self, error: TubeMQError) -> None:
        """Wait, and send all again that did not go well, in their order."""
        first = self._in_flight[0]
        if not _may_pass(error, first.tries):
            raise error
        self._retry.pause(error.saying(error.message, retriable=True))
        if isinstance(error, ServerError) and error.code in (
            codes.CERTIFICATE_FAILURE,
            codes.FORBIDDEN,
        ):
            self._look()
        # Those behind it have had the same fate, most likely, or will be acknowledged.
        failed = [one for one in self._in_flight if one is first or _is_lost(one)]
        for one in failed:
            one.tries += 1
        self.sent.resent += len(failed)
        for group in _groups(failed):
            self._start(group)


def _failed(error: TubeMQError) -> Call[Any]:
    call: Call[Any] = Call(messages.close_producer(""), 0.0)
    call.set_exception(error)
    return call


def _is_lost(message: _Message) -> bool:
    """Return whether a message has failed already, and may pass."""
    call = message.call
    if call is None or not call.done():
        return False
    error = call.exception()
    if error is not None:
        return isinstance(error, TubeMQError) and error.retriable
    code = call.result().errCode
    return code in codes.RETRIABLE or code == codes.CERTIFICATE_FAILURE


def _may_pass(error: TubeMQError, tries: int) -> bool:
    if isinstance(error, ServerError) and error.code in (
        codes.CERTIFICATE_FAILURE,  # with a fresh token
        codes.FORBIDDEN,  # with fresh metadata, or a checksum damaged on its way
    ):
        return tries < 2
    return error.retriable


def _groups(some: list[_Message]) -> Iterator[list[_Message]]:
    for begin in range(0, len(some), _TOGETHER):
        yield some[begin : begin + _TOGETHER]


def _named(
    wanted: tuple[int | None, int], partitions: Iterable[Partition], topic: str
) -> Partition:
    broker_id, partition_id = wanted
    for one in partitions:
        if one.partition_id == partition_id and broker_id in (None, one.broker_id):
            return one
    raise BadRowError(
        f"The topic {topic} has no partition {partition_id}"
        + (f" on broker {broker_id}." if broker_id is not None else ".")
    )
