# SPDX-License-Identifier: Apache-2.0
"""Find out whether an entry that was written in a transaction can be read.

A coordinator gives the same answer about a committed transaction and an aborted one: it
knows neither any more. The topic does know. A reader that begins at an entry of the
transaction receives it if the transaction was committed; if it was aborted, the broker
skips it, and the reader's mark-delete position shows that::

    reader from 7:3, 7:3 of a transaction     mark-delete position       delivered
    open, or after another that is open       7:2                        nothing
    committed                                 7:2                        7:3
    aborted                                   7:3 or later               7:4, if any
    7:3 was removed by retention              11:-1, before any permit
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.peek import Peeker, ask_positions, begin
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import PulsarSparkError, ReadTimeoutError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import Retry

#: How long a delivery is waited for before the position is looked at, in seconds.
_TICK_S = 0.1

#: How often, before readers are closed and begin again: brokers take a moment.
_TICKS = 20

#: So many entries are looked at together.
_TOGETHER = 1_000


class Place(NamedTuple):
    """Where a transaction wrote.

    Attributes:
        txn: The transaction.
        topic_partition: Full name.
    """

    txn: TxnId
    topic_partition: str


class Visibility(enum.Enum):
    """What became of an entry."""

    #: It can be read: its transaction was committed.
    VISIBLE = "visible"
    #: Readers never get it: its transaction was aborted.
    ABORTED = "aborted"
    #: It is not stored any more.
    REMOVED = "removed"


def find_out(
    pool: ConnectionPool,
    entries: Mapping[Place, MessageId],
    retry: Retry,
    *,
    one_tells: bool = False,
) -> dict[Place, Visibility | PulsarSparkError]:
    """Find out the states of entries of transactions that are over, all together.

    Args:
        pool: The cluster's connections.
        entries: The message id of an entry at each place.
        retry: How long to try, and to wait for transactions that hold entries back.
        one_tells: Whether the search for a transaction ends at a visible entry.

    Returns:
        What became of each; an error where it cannot be found out in that time.
    """
    states: dict[Place, Visibility | PulsarSparkError] = {}
    pending = list(entries)
    while pending:
        for first in range(0, len(pending), _TOGETHER):
            chunk = pending[first : first + _TOGETHER]
            states |= _look(pool, {place: entries[place] for place in chunk})
        again: dict[Place, PulsarSparkError] = {}
        for place in pending:
            state = states[place]
            if isinstance(state, PulsarSparkError) and state.retriable:
                again[place] = state
        if one_tells:
            visible = {p.txn for p, s in states.items() if s is Visibility.VISIBLE}
            again = {p: error for p, error in again.items() if p.txn not in visible}
        pending = list(again)
        if pending:
            try:
                retry.pause(again[pending[0]])
            except PulsarSparkError:
                break
    return states


class _Reader(Peeker):
    """Keeps where the first entry is that comes."""

    def __init__(
        self,
        place: Place,
        connection: Connection,
        entry: MessageId,
        arrived: threading.Condition,
    ) -> None:
        super().__init__(place.topic_partition, connection, entry, arrived)
        self.place = place
        self.entry = entry
        self.first: tuple[int, int] | None = None

    @property
    def is_beyond(self) -> bool:
        """Return whether the broker has passed over the entry."""
        return self.positions.before.position >= self.entry.position

    @property
    def state(self) -> Visibility:
        """Return the state of the entry asked for, by the entry that came."""
        is_it = self.first == self.entry.position
        return Visibility.VISIBLE if is_it else Visibility.ABORTED

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        with self._arrived:
            if self.first is None:
                self.first = deliveries[0].ledger_id, deliveries[0].entry_id
            self._arrived.notify_all()


def _look(
    pool: ConnectionPool, entries: Mapping[Place, MessageId]
) -> dict[Place, Visibility | PulsarSparkError]:
    """Read once from each entry on."""
    places = {f"{number}": place for number, place in enumerate(entries)}
    arrived = threading.Condition()

    def make(name: str, to: Connection) -> _Reader:
        return _Reader(places[name], to, entries[places[name]], arrived)

    states: dict[Place, Visibility | PulsarSparkError] = {}
    with ConsumerSet(pool, make) as readers:
        readers.connect(places, lambda name: places[name].topic_partition)
        begin(readers)
        pending: dict[str, _Reader] = {}
        for name, reader in readers.members.items():
            if reader.is_beyond:
                states[reader.place] = Visibility.REMOVED
            else:
                pending[name] = reader
                reader.grant(1)
        for _ in range(_TICKS):
            if pending:
                pending = _ask(readers, pending, arrived, states)
        for reader in pending.values():
            states[reader.place] = _held_back(reader.topic, reader.entry)
        for name, error in readers.take_failures().items():
            states[places[name]] = error
    return states


def _is_told(reader: _Reader) -> bool:
    return reader.first is not None or not reader.is_open


def _ask(
    readers: ConsumerSet[_Reader],
    pending: Mapping[str, _Reader],
    arrived: threading.Condition,
    states: dict[Place, Visibility | PulsarSparkError],
) -> dict[str, _Reader]:
    """Wait a moment, note known states, and return the readers without a state."""
    with arrived:
        arrived.wait_for(lambda: all(map(_is_told, pending.values())), _TICK_S)
    asked = {name: reader for name, reader in pending.items() if reader.first is None}
    states.update({r.place: r.state for n, r in pending.items() if n not in asked})
    ask_positions(readers, asked)
    left: dict[str, _Reader] = {}
    for name, reader in asked.items():
        if reader.is_beyond:
            states[reader.place] = Visibility.ABORTED
        elif name in readers.members:
            left[name] = reader
    return left


def _held_back(topic: str, entry: MessageId) -> ReadTimeoutError:
    return ReadTimeoutError(
        f"{topic}: readers do not get to {entry}, because a transaction that began "
        "before is still open. `pulsar-admin transactions slow-transactions` shows it.",
        topic_partition=topic,
        retriable=True,
    )
