# SPDX-License-Identifier: Apache-2.0
"""Which acknowledged messages are on a broker's disk.

An acknowledgement says that a message is in the broker's memory. It is on the disk when
the flushed end of its store has passed its offset::

    store   | m  m  m  m  m  m | m  m  m
            '---- on disk -----'-- in memory: gone if the process dies,
                               |   and other messages get their offsets
                           flushed end

An offset means a message only while the process that assigned it lives. So a
message counts as confirmed if the flushed end was told on the same connection as its
acknowledgement. If that connection has broken, its fate is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tubemq_spark.client.brokers import register_on
from tubemq_spark.client.connection import Connection
from tubemq_spark.client.masters import new_client_id
from tubemq_spark.errors import PartitionOccupiedError, TransportError
from tubemq_spark.wire.messages import FLUSHED, Token
from tubemq_spark.wire.metadata import Partition, Store

M = TypeVar("M")

#: Few names, as brokers keep them for 20 days; several, as tasks ask at the same time.
GROUPS = ("spark-flush", *(f"spark-flush-{number}" for number in range(1, 8)))


@dataclass(frozen=True, slots=True)
class Stored(Generic[M]):
    """A message that a broker has acknowledged.

    Attributes:
        message: As it may have to be sent again.
        size_bytes: Of it.
        partition: The place.
        offset: The offset in that partition.
        connection: On which it was acknowledged.
    """

    message: M
    size_bytes: int
    partition: Partition
    offset: int
    connection: Connection


class Unconfirmed(Generic[M]):
    """Messages that are acknowledged, and perhaps not on a disk. For one thread.

    Attributes:
        size_bytes: Of all of them.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._by_store: dict[tuple[Connection, Store], deque[Stored[M]]] = {}
        self._client_id = new_client_id("spark-flush")

    def __bool__(self) -> bool:
        return bool(self._by_store)

    def add(self, stored: Stored[M]) -> None:
        """Remember a message."""
        key = (stored.connection, stored.partition.store)
        self._by_store.setdefault(key, deque()).append(stored)
        self.size_bytes += stored.size_bytes

    def lost(self) -> list[M]:
        """Take out the messages of which nothing more can be known."""
        broken = [key for key in self._by_store if not key[0].is_open]
        return [entry.message for key in broken for entry in self._drop(key)]

    def look(self, token: Token | None) -> None:
        """Ask all brokers for their flushed offsets, and drop confirmed messages.

        Raises:
            ServerError: A broker refuses.
        """
        for connection in {connection for connection, _ in self._by_store}:
            firsts = {
                waiting[0].partition: store
                for (where, store), waiting in self._by_store.items()
                if where is connection
            }
            try:
                ends = register_on(
                    connection,
                    self._client_id,
                    GROUPS,
                    list(firsts),
                    priority=FLUSHED,
                    token=token,
                )
            except (TransportError, PartitionOccupiedError):
                continue  # it is asked again, or has lost its messages
            for partition, answer in ends.items():
                self._confirm((connection, firsts[partition]), answer.end)

    def _confirm(self, key: tuple[Connection, Store], end: int) -> None:
        # Sends of several tries may be acknowledged in another order.
        waiting = self._by_store[key]
        left = deque(entry for entry in waiting if entry.offset >= end)
        self.size_bytes -= sum(
            entry.size_bytes for entry in waiting if entry.offset < end
        )
        if left:
            self._by_store[key] = left
        else:
            del self._by_store[key]

    def _drop(self, key: tuple[Connection, Store]) -> Iterable[Stored[M]]:
        dropped = self._by_store.pop(key)
        self.size_bytes -= sum(entry.size_bytes for entry in dropped)
        return dropped
