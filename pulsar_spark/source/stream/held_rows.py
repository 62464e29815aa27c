# SPDX-License-Identifier: Apache-2.0
"""Notice that an open transaction holds back rows from a stream.

A broker says of such a topic partition that its last row has been read, see
``source.held_back``. So one in which nothing is new is asked about now and then, in
three steps, each only where the one before leaves a doubt::

    entries after the cursor?                none in most: nothing is held back
    the last entry that is stored            known to be none that readers get?
    is all up to it passed over?             no: rows are held back
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.source.plan.held_back import nothing_follows, passes_over
from pulsar_spark.source.stream.last_read import LastRead
from spark_topics.source.stream.cluster import PartitionStatus

logger = logging.getLogger("pulsar_spark.source")


class HeldRows:
    """Keeps the topic partitions of a stream in which rows are held back.

    Args:
        pool: The cluster's connections.
        positions: Asks brokers where topic partitions end.

    Attributes:
        stored: The last stored entry of each, by full name, as it was seen last.
        is_last_run: Whether the query ends when nothing is new. Then topic partitions
            are asked about as soon as nothing is new.
    """

    def __init__(self, pool: ConnectionPool, positions: PositionLookup) -> None:
        self._pool = pool
        self._positions = positions
        self.stored: dict[str, MessageId] = {}
        self.is_last_run = False
        # Where the query stands, and when to ask next by the monotonic clock.
        self._quiet: dict[str, tuple[LastRead, float]] = {}
        self._passed: dict[str, MessageId] = {}  # up to where all is passed over

    def look(
        self,
        statuses: Mapping[str, PartitionStatus[LastRead]],
        waiting: Callable[[Sequence[str]], Mapping[str, int]],
    ) -> None:
        """Ask about topics without news for a while; warn once if rows are held back.

        Args:
            statuses: What a visit has found.
            waiting: Says how many entries are to be read, where that is known.
        """
        due = self._due(statuses)
        if not due:
            return
        try:
            held = self._held(due, waiting(list(due)))
        except PulsarSparkError as error:
            # No query ends because a warning may be due. The last look is told of.
            level = logging.WARNING if self.is_last_run else logging.DEBUG
            logger.log(level, "It is not known whether rows are held back: %s", error)
            return
        for name in due:
            was_held = name in self.stored
            self.stored.pop(name, None)
            if name in held:
                self.stored[name] = held[name]
                if not was_held:
                    self._warn(name, due[name], held[name])

    def all_read(self, afters: Mapping[str, LastRead]) -> set[str]:
        """Return the topic partitions in which no row is stored after a position.

        A row of an open transaction is one; of an aborted one it is none.

        Args:
            afters: The position of each.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        places = {name: after.message_id for name, after in afters.items()}
        return nothing_follows(self._pool, self._positions, places)

    def _due(
        self, statuses: Mapping[str, PartitionStatus[LastRead]]
    ) -> dict[str, MessageId]:
        """Return the query's position in each topic that is due for a question."""
        for name in self._quiet.keys() - statuses.keys():
            self._forget(name)
        due = {}
        quiet_s = self._pool.options.patience.quiet_s
        now_s = time.monotonic()
        for name, status in statuses.items():
            if status.unread is not None:
                self._forget(name)
                continue
            after, next_s = self._quiet.get(name, (None, 0.0))
            if after != status.after:
                self._forget(name)
                next_s = now_s if self.is_last_run else now_s + quiet_s
                self._quiet[name] = status.after, next_s
            if now_s >= next_s:
                due[name] = status.after.message_id
                self._quiet[name] = status.after, now_s + quiet_s
        return due

    def _forget(self, name: str) -> None:
        self._quiet.pop(name, None)
        self.stored.pop(name, None)

    def _held(
        self, afters: Mapping[str, MessageId], waiting: Mapping[str, int]
    ) -> dict[str, MessageId]:
        """Return the last stored entry of each topic whose rows are held back."""
        doubtful = [name for name in afters if waiting.get(name, 1) > 0]
        latest = self._positions.from_message_ids(
            dict.fromkeys(doubtful, LATEST), absent_ok=True
        )
        stored = {
            name: entry.before
            for name, entry in latest.items()
            if entry.before.position > afters[name].position
            and entry.before != self._passed.get(name)
        }
        delivered = {name: afters[name] for name in stored}
        passed = passes_over(self._pool, delivered, stored, self._positions.retry())
        self._passed.update({name: stored[name] for name in passed if passed[name]})
        # A broker that is slow to deliver names the rows all the same.
        again = self._positions.from_message_ids(
            {name: EARLIEST for name in passed if not passed[name]}, absent_ok=True
        )
        return {
            name: stored[name]
            for name, entry in again.items()
            if entry.last is None or entry.last.position <= afters[name].position
        }

    def _warn(self, name: str, after: MessageId, stored: MessageId) -> None:
        place = f"after {after}" if after.ledger_id >= 0 else "from its first row on"
        logger.warning(
            "%s: an open transaction holds back what is stored %s, up to %s. %s "
            "`pulsar-spark transactions` finds the transaction and can end it.",
            name,
            place,
            stored,
            "This run ends without these rows; the next one reads them when the "
            "transaction has ended."
            if self.is_last_run
            else "The query reads it when the transaction has ended.",
        )
