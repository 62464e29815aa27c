# SPDX-License-Identifier: Apache-2.0
"""Connections to brokers, and the requests of consumers."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tubemq_spark.client.connection import Call, Connection, connect
from tubemq_spark.client.refusals import refusal
from tubemq_spark.client.tokens import Tokens
from tubemq_spark.errors import AuthError, ProtocolError, TubeMQError
from tubemq_spark.loops.messages import MessageTable
from tubemq_spark.options.client import ClientOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.wire import codes, messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.gets import Got, read_got
from tubemq_spark.wire.messages import FLUSHED, Token
from tubemq_spark.wire.metadata import (
    Broker,
    Partition,
    decode_failure,
    encode_partition_info,
)
from tubemq_spark.wire.protocol import check

#: Registrations that are under way at a time: a broker answers all of these in the time
#: that it is given for one.
_TOGETHER = 500

#: Longest pause that a broker may ask for; it asks again.
_MAX_PAUSE_S = 10.0


_AnswerT = TypeVar("_AnswerT")


class BrokerPool:
    """The connections of this process, shared by broker.

    Args:
        options: How they are opened, and how long to wait.

    Attributes:
        tokens: What brokers have refused, and what masters gave instead.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.tokens = Tokens(options)
        self._options = options
        self._connections: dict[str, Connection] = {}
        self._lock = threading.Lock()

    def connection(self, server: str) -> Connection:
        """Return an open connection to ``host:port``.

        Raises:
            TransportError: It cannot be reached.
        """
        with self._lock:
            connection_ = self._connections.get(server)
            if connection_ is None or not connection_.is_open:
                connection_ = connect(
                    server,
                    connect_timeout_s=self._options.connect_timeout_s,
                    timeout_s=self._options.rpc_timeout_s,
                    tls=self._options.tls,
                )
                self._connections[server] = connection_
            return connection_

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def forget_parent(self) -> None:
        """Begin again in a forked child: sockets and threads are the parent's."""
        self._lock = threading.Lock()
        for connection in self._connections.values():
            connection.forget_parent()
        self._connections = {}
        self.tokens = Tokens(self._options)


_pools: dict[ClientOptions, BrokerPool] = {}
_pools_lock = threading.Lock()


def shared_pool(options: ClientOptions) -> BrokerPool:
    """Return the connections of this process for some options."""
    with _pools_lock:
        return _pools.setdefault(options, BrokerPool(options))


def _forget_parent() -> None:
    global _pools_lock
    _pools_lock = threading.Lock()
    for pool in _pools.values():
        pool.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)


class Registered(NamedTuple):
    """What a broker says to a registration.

    Attributes:
        offset: Where the next get starts; not always if it was asked to.
        end: The offset after the last message that counts as there.
    """

    offset: int
    end: int


class Fetched(NamedTuple):
    """What a get brought.

    Attributes:
        code: Of the get: that of success, 404 for nothing at the moment, or 452 for
            too much.
        start: The start, None if it brought nothing.
        messages: The fetched messages, perhaps nothing.
        end: Where the next one starts.
        pause_s: How long the broker wants us to wait.
    """

    code: int
    start: int | None
    messages: MessageTable
    end: int
    pause_s: float = 0.0


class _Asked(NamedTuple):
    """A get in flight, with the commit that follows."""

    got: Call[memoryview]
    committed: Call[pb.CommitOffsetResponseB2C]


class Consumer:
    """A consumer of a partition on a connection. For one thread, but for `beat`.

    Args:
        connection: To the partition's broker.
        client_id: Its own: the same one elsewhere would move this one's position.
        group: Whose positions it uses.
        partition: One that the master has named.
        filters: Message types to deliver; none for all.
        token: Where the cluster wants one.
        renew: Returns what to show instead of a token that the broker refuses, None
            for nothing.

    Attributes:
        used_at: When the broker was last asked for something that keeps the
            registration, on the monotonic clock.
    """

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        group: str,
        partition: Partition,
        *,
        filters: Sequence[str] = (),
        token: Token | None = None,
        renew: Callable[[Token | None], Token | None] = lambda _: None,
    ) -> None:
        self.used_at = time.monotonic()
        self._connection = connection
        self._who = (client_id, group, partition.topic, partition.partition_id)
        self._partition = partition
        self._filters = filters
        self._token = token
        self._renew = renew
        self._priority = FLUSHED
        self._pair = messages.get(*self._who), messages.commit(*self._who)
        self._asked: deque[_Asked] = deque()

    def register(self, offset: int, priority: int = FLUSHED) -> Registered:
        """Become the reader of the partition from an offset on, once more perhaps.

        Raises:
            PartitionOccupiedError: Another client of the group reads it.
            ServerError: The broker refuses.
            TransportError: It does not answer.
        """
        return self._renewing(lambda: self._register(offset, priority))

    def _register(self, offset: int, priority: int) -> Registered:
        request = messages.register(
            *self._who,
            offset,
            priority=priority,
            filters=self._filters,
            token=self._token,
        )
        self._priority = priority
        self._asked.clear()  # a broker goes through a connection's requests in order
        self.used_at = time.monotonic()
        subject = str(self._partition)
        reply = self._connection.ask(request, subject=subject)
        return _registered(reply, subject)

    def prefetch(self, gets: int = 1) -> None:
        """Keep the given number of gets in flight; `fetch` returns their replies.

        They are sent some at a time, when half of them are left.
        """
        if len(self._asked) > gets // 2:
            return
        self.used_at = time.monotonic()
        # A commit tells where the get before it ended, which nothing else does.
        calls = self._connection.call_all([*self._pair] * (gets - len(self._asked)))
        self._asked += map(_Asked, calls[::2], calls[1::2])

    def fetch(self) -> Fetched:
        """Return what comes next. After an error, register again.

        Raises:
            ServerError: The registration is gone, or the broker refuses.
            TransportError: It does not answer.
        """
        self.prefetch()
        asked = self._asked.popleft()
        got, brought = self._read(asked)
        committed = self._connection.reply(asked.committed)
        subject = str(self._partition)
        self._connection.check(
            got,
            asked.got.request,
            subject=subject,
            accepting=frozenset({codes.NOT_FOUND, codes.SERVER_CONSUME_SPEED_LIMIT}),
        )
        try:
            self._connection.check(committed, asked.committed.request, subject=subject)
        except TubeMQError as error:
            raise error.saying(error.message, retriable=True) from None
        is_success = got.errCode == codes.SUCCESS
        return Fetched(
            got.errCode,
            _offset(got.currOffset, subject) if is_success else None,
            brought,
            _offset(committed.currOffset, subject),
            min(max(0, got.minLimitTime) / 1000, _MAX_PAUSE_S),
        )

    def _read(self, asked: _Asked) -> Got:
        reply = self._connection.reply(asked.got)
        try:
            got = read_got(reply)
            check(got.head, asked.got.request)
        except ProtocolError as error:
            raise self._connection.give_up(error) from None
        return got

    def beat(self) -> None:
        """Keep the registration where nothing is fetched for a while.

        Raises:
            PartitionOccupiedError: Another one has taken the partition over.
            ServerError: The registration is gone, or the broker refuses.
            TransportError: It does not answer.
        """
        self._renewing(self._beat)

    def _beat(self) -> None:
        client_id, group, topic, partition_id = self._who
        broker = Broker(self._partition.broker_id, self._connection.server)
        request = messages.heartbeat(
            client_id,
            group,
            [encode_partition_info(broker, self._partition)],
            priority=self._priority,
            token=self._token,
        )
        self.used_at = time.monotonic()
        subject = str(self._partition)
        reply = self._connection.ask(request, subject=subject)
        for failure in map(decode_failure, reply.failureInfo):
            if (failure.topic, failure.partition_id) == (topic, partition_id):
                raise refusal(
                    failure.code,
                    "the registration is not there any more",
                    call=request.name,
                    server=self._connection.server,
                    subject=subject,
                )

    def _renewing(self, ask: Callable[[], _AnswerT]) -> _AnswerT:
        """Send a request; repeat with a newer token if the token is refused."""
        try:
            return ask()
        except AuthError:
            fresh = self._renew(self._token)
            if fresh is None:
                raise
            self._token = fresh
        return ask()

    def unregister(self, connection: Connection | None = None) -> bool:
        """Let go of the partition, and return whether the broker could be told.

        Args:
            connection: Another one to its broker, where its own is broken.
        """
        connection = connection or self._connection
        if connection.is_open:
            client_id, group, topic, partition_id = self._who
            connection.call(
                messages.unregister(client_id, group, topic, partition_id, self._token)
            )
        return connection.is_open


def _offset(offset: int, subject: str) -> int:
    """Return an offset of a broker, checked for its range.

    Raises:
        ProtocolError: It is between two messages, or before all.
    """
    if offset < 0 or offset % ENTRY_BYTES:
        raise ProtocolError(
            f"A broker says that {subject} is at offset {offset}: offsets are "
            f"multiples of {ENTRY_BYTES}."
        )
    return offset


def _registered(reply: pb.RegisterResponseB2C, subject: str) -> Registered:
    return Registered(
        _offset(reply.currOffset, subject), _offset(reply.maxOffset, subject)
    )


def register_all(
    pool: BrokerPool,
    server: str,
    client_id: str,
    groups: Sequence[str],
    partitions: Sequence[Partition],
    *,
    offsets: Mapping[Partition, int] | None = None,
    priority: int = FLUSHED,
    token: Token | None = None,
) -> dict[Partition, Registered]:
    """Return where some partitions of a broker begin and end.

    As `register_on`; a token that the broker finds too old is replaced by asking a
    master, once.

    Args:
        pool: Of connections.
        server: ``host:port`` of the broker.
        client_id: As there, as for the others.
        groups: Of planners.
        partitions: All on this broker.
        offsets: To register at.
        priority: What counts as there.
        token: Where the cluster wants one.

    Raises:
        TubeMQError: As `register_on`, or the masters refuse.
    """

    def register(token: Token | None) -> dict[Partition, Registered]:
        return register_on(
            pool.connection(server),
            client_id,
            groups,
            partitions,
            offsets=offsets,
            priority=priority,
            token=token,
        )

    token = pool.tokens.newest(token)
    try:
        return register(token)
    except AuthError:
        fresh = pool.tokens.renewed(token, groups[0], partitions[0].topic)
        if fresh is None:
            raise
    return register(fresh)


def register_on(
    connection: Connection,
    client_id: str,
    groups: Sequence[str],
    partitions: Sequence[Partition],
    *,
    offsets: Mapping[Partition, int] | None = None,
    priority: int = FLUSHED,
    token: Token | None = None,
) -> dict[Partition, Registered]:
    """Return where some partitions of a broker begin and end.

    They are registered and let go, many at once. That also stores where the group is:
    brokers keep the offset of a registration.

    Args:
        connection: To the broker.
        client_id: Whose registrations these are.
        groups: Not of readers; the first that no one else uses at the moment is taken.
        partitions: All on this broker.
        offsets: To register at; the first there is where nothing is said.
        priority: What counts as there.
        token: Where the cluster wants one.

    Raises:
        AuthError: It is too old, or there is none.
        PartitionOccupiedError: Others of all these groups have a partition.
        ServerError: The broker refuses.
        TransportError: It does not answer.
    """
    registered: dict[Partition, Registered] = {}
    for begin in range(0, len(partitions), _TOGETHER):
        group = partitions[begin : begin + _TOGETHER]
        registered |= _register_some(
            connection, client_id, groups, group, offsets or {}, priority, token
        )
    return registered


def _register_some(
    connection: Connection,
    client_id: str,
    groups: Sequence[str],
    partitions: Sequence[Partition],
    offsets: Mapping[Partition, int],
    priority: int,
    token: Token | None,
) -> dict[Partition, Registered]:
    registered: dict[Partition, Registered] = {}
    for number, group in enumerate(groups):
        pending = [asked for asked in partitions if asked not in registered]
        requests = [
            messages.register(
                client_id,
                group,
                asked.topic,
                asked.partition_id,
                offsets.get(asked, 0),
                priority=priority,
                token=token,
            )
            for asked in pending
        ]
        calls = connection.call_all(requests)
        is_last = number == len(groups) - 1
        try:
            for partition, request, call in zip(pending, requests, calls, strict=True):
                reply = connection.reply(call)
                if reply.errCode == codes.PARTITION_OCCUPIED and not is_last:
                    continue
                connection.check(reply, request, subject=str(partition))
                registered[partition] = _registered(reply, str(partition))
        finally:
            # Of those, too, that nobody waited for: others' are not touched by it.
            connection.call_all(
                [
                    messages.unregister(
                        client_id, group, asked.topic, asked.partition_id, token
                    )
                    for asked in pending
                ]
            )
        if len(registered) == len(partitions):
            break
    return registered
