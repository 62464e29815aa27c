# SPDX-License-Identifier: Apache-2.0
"""Connections to brokers, and what consumers ask of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tubemq_spark.client.connection import Connection, connect
from tubemq_spark.errors import TubeMQError
from tubemq_spark.options.client import ClientOptions
from tubemq_spark.wire import codes, messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.messages import FLUSHED, Token
from tubemq_spark.wire.metadata import Partition


class BrokerPool:
    """The connections of this process, one to each broker.

    Args:
        options: How long to wait.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._connections: dict[str, Connection] = {}
        self._lock = threading.Lock()

    def connection(self, server: str) -> Connection:
        """Return an open connection to ``host:port``.

        Raises:
            TransportError: It cannot be reached.
        """
        with self._lock:
            found = self._connections.get(server)
            if found is None or not found.is_open:
                found = connect(
                    server,
                    connect_timeout_s=self._options.connect_timeout_s,
                    timeout_s=self._options.rpc_timeout_s,
                )
                self._connections[server] = found
            return found

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def forget_parent(self) -> None:
        """Begin anew in a forked child: sockets and threads are the parent's."""
        self._lock = threading.Lock()
        for connection in self._connections.values():
            connection.forget_parent()
        self._connections = {}


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
        offset: Where the next get starts; not always where it was asked to.
        end: The offset after the last message that counts as there.
    """

    offset: int
    end: int


class Fetched(NamedTuple):
    """What a get brought.

    Attributes:
        code: Of the get: that of success, 404 for nothing at the moment, or 452 for
            too much.
        start: Where it started, None where it brought nothing.
        messages: What it brought, perhaps nothing.
        end: Where the next one starts.
        pause_s: How long the broker wants us to wait.
    """

    code: int
    start: int | None
    messages: Sequence[pb.TransferedMessage]
    end: int
    pause_s: float = 0.0


class Consumer:
    """Who reads one partition on one connection. For one thread.

    Args:
        connection: To the partition's broker.
        client_id: Its own: the same one elsewhere would move this one's position.
        group: Whose positions it uses.
        partition: One that the master has named.
        filters: Message types to deliver; none for all.
        token: Where the cluster wants one.
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
    ) -> None:
        self._connection = connection
        self._who = (client_id, group, partition.topic, partition.partition_id)
        self._partition = partition
        self._filters = filters
        self._token = token

    def register(self, offset: int, priority: int = FLUSHED) -> Registered:
        """Become the reader of the partition from an offset on, once more perhaps.

        Raises:
            PartitionOccupiedError: Somebody else of the group reads it.
            ServerError: The broker refuses.
            TransportError: It does not answer.
        """
        request = messages.register(
            *self._who,
            offset,
            priority=priority,
            filters=self._filters,
            token=self._token,
        )
        reply = self._connection.ask(request, subject=str(self._partition))
        return Registered(reply.currOffset, reply.maxOffset)

    def fetch(self) -> Fetched:
        """Return what comes next. After an error, register again.

        Raises:
            ServerError: The registration is gone, or the broker refuses.
            TransportError: It does not answer.
        """
        # The commit tells where the get ended, which nothing else does.
        get, commit = messages.get(*self._who), messages.commit(*self._who)
        get_call, commit_call = self._connection.call_all([get, commit])
        got = self._connection.reply(get_call)
        committed = self._connection.reply(commit_call)
        subject = str(self._partition)
        self._connection.check(
            got,
            get,
            subject=subject,
            accepting=frozenset({codes.NOT_FOUND, codes.SERVER_CONSUME_SPEED_LIMIT}),
        )
        try:
            self._connection.check(committed, commit, subject=subject)
        except TubeMQError as error:
            raise error.saying(error.message, retriable=True) from None
        return Fetched(
            got.errCode,
            got.currOffset if got.errCode == codes.SUCCESS else None,
            got.messages,
            committed.currOffset,
            max(0, got.minLimitTime) / 1000,
        )

    def unregister(self) -> None:
        """Let go of the partition, as far as the broker can be told."""
        if self._connection.is_open:
            client_id, group, topic, partition_id = self._who
            self._connection.call(
                messages.unregister(client_id, group, topic, partition_id, self._token)
            )


def register_all(
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

    They are registered and let go, all at once. That also stores where the group is:
    brokers keep the offset of a registration.

    Args:
        connection: To the broker.
        client_id: Whose registrations these are.
        groups: Not of readers; the first that nobody else uses at the moment is taken.
        partitions: All on this broker.
        offsets: To register at; the first there is where nothing is said.
        priority: What counts as there.
        token: Where the cluster wants one.

    Raises:
        PartitionOccupiedError: Others of all these groups have a partition.
        ServerError: The broker refuses.
        TransportError: It does not answer.
    """
    found: dict[Partition, Registered] = {}
    for number, group in enumerate(groups):
        pending = [one for one in partitions if one not in found]
        requests = [
            messages.register(
                client_id,
                group,
                one.topic,
                one.partition_id,
                (offsets or {}).get(one, 0),
                priority=priority,
                token=token,
            )
            for one in pending
        ]
        calls = connection.call_all(requests)
        is_last = number == len(groups) - 1
        try:
            for partition, request, call in zip(pending, requests, calls, strict=True):
                reply = connection.reply(call)
                if reply.errCode == codes.PARTITION_OCCUPIED and not is_last:
                    continue
                connection.check(reply, request, subject=str(partition))
                found[partition] = Registered(reply.currOffset, reply.maxOffset)
        finally:
            # Of those, too, that nobody waited for: others' are not touched by it.
            connection.call_all(
                [
                    messages.unregister(
                        client_id, group, one.topic, one.partition_id, token
                    )
                    for one in pending
                ]
            )
        if len(found) == len(partitions):
            break
    return found
