# SPDX-License-Identifier: Apache-2.0
"""Notice ledgers that retention removes before a read reaches their entries.

A reader keeps nothing from retention. If a ledger is removed that it has not read to
its end, the broker goes on with the first ledger left, and does not say so::

    stored    7:0 .. 7:999   11:0 .. 11:99   12:0 .. 12:9
    read      7:0 .. 7:33                    12:0 .. 12:9     7 and 11 went before
    read      7:0 .. 7:999   11:0 .. 11:99   12:0 .. 12:9     7 and 11 went afterwards

Retention removes the oldest ledgers first. So while the ledger that the reader has left
is stored, so are all that follow it, and nothing was skipped. Once it is removed, that
cannot be told any more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.probe import Probe
from pulsar_spark.message_id import EARLIEST, MessageId

#: Seconds between two looks at what is stored, where ledgers are short.
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Gap:
    """Entries that may have been passed over.

    Attributes:
        left: The last entry that was read of a ledger which is gone.
        first: The first place of what is stored now.
    """

    left: MessageId
    first: MessageId


class Trail:
    """The ledgers of a topic partition that a read has left.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
    """

    def __init__(self, pool: ConnectionPool, topic_partition: str) -> None:
        self._pool = pool
        self._topic_partition = topic_partition
        self._left: tuple[int, int] | None = None
        self._looked_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Return whether a ledger was left and may be gone since."""
        return self._left is not None

    @property
    def is_due(self) -> bool:
        """Return whether the next look is due."""
        return self.is_open and time.monotonic() - self._looked_at >= _PAUSE_S

    def leave(self, position: tuple[int, int]) -> None:
        """Note the last entry that was read of a ledger."""
        if self._left is None:
            self._left = position

    def look(self, *, is_alone: bool) -> Gap | None:
        """Look whether the first ledger left behind is stored; forget a ledger that is.

        It stays open where that cannot be told now.

        Args:
            is_alone: As for `ConnectionPool.that_answers`.
        """
        assert self._left is not None
        self._looked_at = time.monotonic()
        with (
            self._pool.that_answers(is_alone=is_alone) as pool,
            Probe(pool, self._topic_partition) as probe,
        ):
            place = probe.begin(EARLIEST)
        if place is None:
            return None
        left, self._left = self._left, None
        if place[0] <= left[0]:
            return None
        return Gap(MessageId(*left), MessageId(place[0], place[1] + 1))
