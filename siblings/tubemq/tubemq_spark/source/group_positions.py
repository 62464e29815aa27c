# SPDX-License-Identifier: Apache-2.0
"""Positions of a consumer group on brokers, for TubeMQ's own tools.

A query goes on by the offsets in its checkpoint, and reads nothing of this. But the
tools of TubeMQ show how far a group is, and its lag. So a broker is told what a
micro-batch has read when Spark has committed it: by registering there, since it keeps
the offset of a registration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.masters import new_client_id
from tubemq_spark.errors import TubeMQError
from tubemq_spark.source.discovery import Found
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("source")

#: A broker that could not be told is left alone for so long, in seconds: queries must
#: not wait for what is only looked at.
_REST_S = 30.0


class GroupPositions:
    """Moves the positions of a group. For one thread.

    Args:
        pool: Of connections.
        group: Name of the group.
    """

    def __init__(self, pool: BrokerPool, group: str) -> None:
        self._pool = pool
        self._group = group
        self._stored: dict[Partition, int] = {}
        self._next_try_s: dict[str, float] = {}  # by ``host:port``
        self._has_warned = False

    def store(self, ends: Mapping[Partition, int], found: Found) -> None:
        """Move the group to some offsets; what fails is warned about, once.

        Args:
            ends: Where the group goes on in each partition.
            found: The brokers of all of these.
        """
        by_broker: dict[str, list[Partition]] = {}
        for partition, end in ends.items():
            if self._stored.get(partition) != end:
                server = found.brokers[partition]
                by_broker.setdefault(server, []).append(partition)
        for server, partitions in by_broker.items():
            if time.monotonic() < self._next_try_s.get(server, 0.0):
                continue
            try:
                register_all(
                    self._pool,
                    server,
                    new_client_id(self._group),
                    [self._group],
                    partitions,
                    offsets=ends,
                    token=found.token,
                )
            except TubeMQError as error:
                self._next_try_s[server] = time.monotonic() + _REST_S
                self._warn(server, error)
            else:
                self._stored.update({member: ends[member] for member in partitions})

    def _warn(self, server: str, error: TubeMQError) -> None:
        level = logger.debug if self._has_warned else logger.warning
        self._has_warned = True
        level(
            "The broker %s was not told how far the group %s is, so that its tools "
            "show less. No row is concerned. %s",
            server,
            self._group,
            error,
        )
