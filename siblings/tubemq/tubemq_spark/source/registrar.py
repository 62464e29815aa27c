# SPDX-License-Identifier: Apache-2.0
"""Registration of readers at partitions, repeated after faults.

One (group, partition) has one owner. A task that died keeps its partition until the
broker's time-out, so that a name means several groups, and the first that is free
is taken.

Every registration has a client id that it owns. Where a connection broke, or an answer
did not come, the broker may still have requests of the old one available: with the same
id they would move the position of the new one, unseen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tubemq_spark.client.brokers import BrokerPool, Consumer, Registered
from tubemq_spark.client.connection import Connection
from tubemq_spark.client.masters import new_client_id
from tubemq_spark.errors import PartitionOccupiedError
from tubemq_spark.options.patience import Patience
from tubemq_spark.source.discovery import group_slots, planners_of, readers_of
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.messages import Token
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("source")


class Registrar:
    """Registers the reader of a partition. For one thread.

    Args:
        pool: Of connections.
        broker: ``host:port`` of the partition's broker.
        partition: Which one.
        group: For whom it reads: the reader's own group is one of `readers_of` it.
        priority: What counts as there.
        filters: Message types to deliver; none for all.
        token: Where the cluster wants one.
        part: Which of the readers of the partition this is, from 0; see `group_slots`.
        parts: How many of them there are at the same time.
        patience: How long to wait for others to let go.

    Attributes:
        waited_s: How long it waited for others to let go, in seconds.
    """

    def __init__(
        self,
        pool: BrokerPool,
        broker: str,
        partition: Partition,
        group: str,
        *,
        priority: int,
        filters: Sequence[str] = (),
        token: Token | None = None,
        part: int = 0,
        parts: int = 1,
        patience: Patience,
    ) -> None:
        self.waited_s = 0.0
        self._pool = pool
        self._broker = broker
        self._partition = partition
        self._priority = priority
        self._filters = filters
        self._token = token
        self._group = group
        self._groups = group_slots(readers_of(group), part, parts)
        self._patience = patience
        self._has_said_occupied = False
        self._left: list[Consumer] = []  # the broker may still know them

    def register(self, offset: int) -> tuple[Consumer, Registered]:
        """Register as the partition's reader.

        Args:
            offset: Where to begin; the broker answers if it really begins.

        Raises:
            PartitionOccupiedError: Each of the groups has another reader of it, which
                stays.
            ServerError: The broker refuses.
            TransportError: It does not answer.
        """
        wait_s = self._patience.occupied_s
        pause_s = self._patience.occupied_pause_s
        deadline = time.monotonic() + wait_s
        while True:
            try:
                return self._register(offset)
            except PartitionOccupiedError as error:
                if time.monotonic() > deadline:
                    raise
                if not self._has_said_occupied:
                    self._has_said_occupied = True
                    logger.warning(
                        "Waiting up to %g s for other readers: %s", wait_s, error
                    )
                time.sleep(pause_s)
                self.waited_s += pause_s

    def let_go(self, consumer: Consumer) -> None:
        """End a registration, now or together with the next."""
        if not consumer.unregister():
            self._left.append(consumer)

    def _register(self, offset: int) -> tuple[Consumer, Registered]:
        connection = self._pool.connection(self._broker)
        self._left = [
            registration
            for registration in self._left
            if not registration.unregister(connection)
        ]
        for group in self._groups[:-1]:
            try:
                return self._register_in(group, connection, offset)
            except PartitionOccupiedError:
                pass
        return self._register_in(self._groups[-1], connection, offset)

    def _register_in(
        self, group: str, connection: Connection, offset: int
    ) -> tuple[Consumer, Registered]:
        consumer = Consumer(
            connection,
            new_client_id(group),
            group,
            self._partition,
            filters=self._filters,
            token=self._pool.tokens.newest(self._token),
            renew=self._renewed,
        )
        try:
            answer = consumer.register(offset, self._priority)
        except PartitionOccupiedError:
            raise
        except BaseException:
            self.let_go(consumer)  # it may have been done all the same
            raise
        self._groups = [group, *(other for other in self._groups if other != group)]
        return consumer, answer

    def _renewed(self, token: Token | None) -> Token | None:
        topic = self._partition.topic
        return self._pool.tokens.renewed(token, planners_of(self._group), topic)
