# SPDX-License-Identifier: Apache-2.0
"""Keep a query from acknowledging chunks of messages that are not finished.

A chunked message is a row of the micro-batch that has its last chunk. Where an earlier
micro-batch ends between its chunks::

    entry     ...  41      42      43   |   44      45    ...
    holds          x       a 0/3   y    |   a 1/3   a 2/3
                                        └ end of a micro-batch

acknowledging all up to 43 would let the broker remove 42, once its ledger is closed,
before the message is read. So before the driver acknowledges an end, it looks at what
is stored right before it. If a message is open there, the acknowledgement stops at the
last earlier end at which it was not, here the one before 41.

Looking costs the driver time, so it is bounded: a visit looks at the last entry of up
to 64 topic partitions, in turn, and at up to 32 entries of each topic partition whose
topic has shown a chunk before. A message that is open for longer than
``expireTimeOfIncompleteChunkedMessageMillis``, or has no chunk among these entries,
holds nothing back. A row that is lost for that reason is an error, see
``source.range_reader``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.client import peek
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.peek import Peeker, entry_of
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import AskAgainError, PulsarSparkError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.topics import topic_of
from pulsar_spark.wire.protocol import Delivery

#: Entries before an end that are looked at where a topic is known to have chunks.
_WINDOW = 32

#: Topic partitions of other topics that are looked at in one visit, in turn.
_LOOKS = 64

#: Rounds of questions in one visit: one for the ends, the others for entries before
#: them, one for each earlier ledger.
_ROUNDS = 8

#: How long readers that need permits wait for the entries of others, in seconds.
_STEP_S = 0.1


class ChunkGuard:
    """Says how far each topic partition may be acknowledged.

    Args:
        pool: The cluster's connections.
        expire_s: How long an open message holds an acknowledgement back, in seconds; 0
            for ever.

    Attributes:
        chunked: The topics, without the suffix of a partition, that have shown a chunk.
    """

    def __init__(self, pool: ConnectionPool, *, expire_s: float) -> None:
        self.chunked: set[str] = set()
        self._pool = pool
        self._expire_s = expire_s
        self._histories: dict[str, _History] = {}  # of those looked at last time
        self._turn = 0

    def note_chunk(self, topic_partition: str) -> None:
        """Remember that a topic has chunks."""
        self.chunked.add(topic_of(topic_partition))

    def limit(
        self,
        due: Mapping[str, MessageId],
        done: Mapping[str, MessageId],
        connections: Mapping[str, Connection] = MappingProxyType({}),
    ) -> dict[str, MessageId]:
        """Return how far each topic partition that is due may be acknowledged.

        Args:
            due: The entry, by topic partition, up to which all was read.
            done: The entry up to which it was acknowledged before, as far as is known.
            connections: To the brokers that serve them, as far as is known.

        Returns:
            For each topic partition its due entry or an earlier one, EARLIEST for none
            at all; those that could not be looked at now are left out.
        """
        unseen = {
            name: end
            for name, end in due.items()
            if name not in self._histories or self._histories[name].end != end
        }
        windows = {
            name: _Window(due[name], done[name], self._size(name))
            for name in self._chosen(unseen)
        }
        histories = self._look(windows, due, done, connections)
        limits = {}
        now_s = time.monotonic()
        for name, end in due.items():
            if name in histories:
                seen = histories[name]
                if seen is None:
                    continue
                self._histories.setdefault(name, _History()).add(end, seen, now_s)
            elif name in unseen:
                self._histories.pop(name, None)
                limits[name] = end
                continue
            limits[name] = self._histories[name].limit(
                now_s - self._expire_s, self._expire_s > 0
            )
        return limits

    def _chosen(self, names: Iterable[str]) -> list[str]:
        """Choose topics to look at: all topics with chunks, other topics in turn."""
        chosen: list[str] = []
        without_chunks: list[str] = []
        for name in names:
            is_chunked = self.chunked and topic_of(name) in self.chunked
            (chosen if is_chunked else without_chunks).append(name)
        turn = self._turn % len(without_chunks) if without_chunks else 0
        self._turn += min(_LOOKS, len(without_chunks))
        return chosen + (without_chunks[turn:] + without_chunks[:turn])[:_LOOKS]

    def _look(
        self,
        windows: dict[str, _Window],
        due: Mapping[str, MessageId],
        done: Mapping[str, MessageId],
        connections: Mapping[str, Connection],
    ) -> dict[str, frozenset[str] | None]:
        """Return the messages that are open at some ends; None if unknown for now."""
        failed: set[str] = set()
        for _ in range(_ROUNDS):
            asked = {
                name: section
                for name, window in windows.items()
                if name not in failed and (section := window.next_section())
            }
            if not asked:
                break
            for name, answer in self._round(asked, connections).items():
                if isinstance(answer, PulsarSparkError):
                    failed.add(name)
                    continue
                window = windows[name]
                window.learn(asked[name], answer)
                if window.size < _WINDOW and window.has_chunks:
                    self.note_chunk(name)
                    windows[name] = _Window(due[name], done[name], _WINDOW)
        return {
            name: None if name in failed else window.open_messages()
            for name, window in windows.items()
        }

    def _size(self, name: str) -> int:
        return _WINDOW if topic_of(name) in self.chunked else 1

    def _round(
        self, asked: Mapping[str, _Section], connections: Mapping[str, Connection]
    ) -> dict[str, _Reader | PulsarSparkError]:
        """Return a reader for each section, after all have read concurrently."""
        arrived = threading.Condition()
        with ConsumerSet(
            self._pool,
            lambda topic, to: _Reader(topic, to, asked[topic], arrived),
            waits_for_end=False,
        ) as readers:
            readers.connect(asked, known=connections)
            readers.step(lambda reader: reader.attach(self._pool.reader_name()))
            wanting = list(readers.members.values())
            # Entries come right behind the answers.
            peek.ask_positions(readers, meanwhile=partial(_ask_all, wanting))
            _read_all(
                list(readers.members.values()),
                arrived,
                self._pool.options.patience.look_s,
            )
            for name, reader in list(readers.members.items()):
                if not reader.is_open and not reader.is_done:
                    # What it has not seen may be a part of an open message.
                    broken = AskAgainError("The reader was closed while it looked.")
                    readers.drop(name, broken)
            answers: dict[str, _Reader | PulsarSparkError] = dict(readers.members)
        return {**answers, **readers.take_failures()}


class _Section(NamedTuple):
    """Entries of a ledger, both ends inclusive."""

    ledger_id: int
    first: int
    last: int


class _Piece(NamedTuple):
    """A chunk: its message, and whether the chunk is the last of the message."""

    uuid: str
    is_last: bool


class _Window:
    """The last entries before an end, in reverse order."""

    def __init__(self, end: MessageId, done: MessageId, size: int) -> None:
        self.size = size
        self._done = done
        self._left = size
        self._next: MessageId | None = end
        self._pieces: list[_Piece] = []  # in order

    @property
    def has_chunks(self) -> bool:
        """Return whether an entry of the window is a chunk."""
        return bool(self._pieces)

    def next_section(self) -> _Section | None:
        """Return what to look at next, None if nothing is left."""
        end = self._next
        if end is None or end.position <= self._done.position or self._left <= 0:
            return None
        first = max(0, end.entry_id - self._left + 1)
        if self._done.ledger_id == end.ledger_id:
            first = max(first, self._done.entry_id + 1)
        return _Section(end.ledger_id, first, end.entry_id)

    def learn(self, section: _Section, reader: _Reader) -> None:
        """Record what was found in a section."""
        self._pieces = reader.pieces + self._pieces
        self._left -= section.last - section.first + 1
        before = reader.positions.before
        is_earlier = EARLIEST.position < before.position and before.entry_id >= 0
        in_another = before.ledger_id < section.ledger_id
        self._next = before if is_earlier and in_another else None

    def open_messages(self) -> frozenset[str]:
        """Return the messages with chunks in the window that lack their last chunk."""
        still_open = {}
        for piece in self._pieces:
            still_open[piece.uuid] = not piece.is_last
        return frozenset(uuid for uuid, is_open in still_open.items() if is_open)


@dataclass
class _History:
    """The ends of a topic partition, since the last end without an open message.

    Attributes:
        looks: Each end with the messages that were open there, in order.
        since_s: When each message that is open now was first seen open.
    """

    looks: list[tuple[MessageId, frozenset[str]]] = field(default_factory=list)
    since_s: dict[str, float] = field(default_factory=dict)

    @property
    def end(self) -> MessageId | None:
        """Return the last end."""
        return self.looks[-1][0] if self.looks else None

    def add(self, end: MessageId, open_messages: frozenset[str], now_s: float) -> None:
        """Add the messages that were open at the next end."""
        if self.looks and end.position < self.looks[-1][0].position:
            self.clear()  # the topic was created again
        self.looks.append((end, open_messages))
        self.since_s = {name: self.since_s.get(name, now_s) for name in open_messages}

    def limit(self, expired_s: float, expires: bool) -> MessageId:
        """Return the last end at which nothing was open that still is."""
        waited_for = {
            name
            for name, since_s in self.since_s.items()
            if not (expires and since_s <= expired_s)
        }
        for index in reversed(range(len(self.looks))):
            end, open_messages = self.looks[index]
            if not open_messages & waited_for:
                del self.looks[:index]
                return end
        return EARLIEST

    def clear(self) -> None:
        """Forget everything."""
        self.looks.clear()
        self.since_s.clear()


class _Reader(Peeker):
    """Reads a section of a topic partition.

    Attributes:
        pieces: The chunks that came, in order.
    """

    def __init__(
        self,
        topic: str,
        connection: Connection,
        section: _Section,
        arrived: threading.Condition,
    ) -> None:
        start = MessageId(section.ledger_id, section.first)
        super().__init__(topic, connection, start, arrived)
        self.pieces: list[_Piece] = []
        self._section = section
        self._reached = (section.ledger_id, section.first - 1)
        self._permits = 0  # what the broker may still send, in messages

    @property
    def reached(self) -> tuple[int, int]:
        """Return the last arrived position, or the position before the section."""
        return self._reached

    @property
    def is_done(self) -> bool:
        """Return whether every stored entry of the section has arrived."""
        last = self.positions.last
        end = self._section.ledger_id, self._section.last
        return last is None or self._reached >= min(last.position, end)

    @property
    def is_waiting(self) -> bool:
        """Return whether entries of the section are still to come."""
        return self.is_open and not self.is_done

    @property
    def has_news(self) -> bool:
        """Return whether there is anything to do but to wait."""
        return self._permits <= 0 or not self.is_waiting

    def ask_for_entries(self) -> None:
        """Let the broker send the missing entries, as if no entry were a batch."""
        with self._arrived:
            if self._permits > 0:
                return
            reached = max(self._reached[1], self._section.first - 1)
            missing = max(1, self._section.last - reached) - self._permits
            self._permits += missing
        self.grant(missing)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Note the chunks."""
        for delivery in deliveries:
            stored = entry_of(delivery)
            position = delivery.ledger_id, delivery.entry_id
            with self._arrived:
                self._permits -= 1 if stored is None else stored.charged_messages
                end = self._section.ledger_id, self._section.last
                if stored is not None and stored.is_chunk and position <= end:
                    metadata = stored.metadata
                    is_last = metadata.chunk_id == metadata.num_chunks_from_msg - 1
                    self.pieces.append(_Piece(metadata.uuid, is_last))
                self._reached = max(self._reached, position)
        with self._arrived:
            self._arrived.notify_all()


def _read_all(
    readers: Iterable[_Reader], arrived: threading.Condition, silence_s: float
) -> None:
    """Wait until all have read their sections, or nothing comes for so long."""
    heard_s = time.monotonic()
    seen: list[tuple[int, int]] = []
    while waiting := [reader for reader in readers if reader.is_waiting]:
        reached = [reader.reached for reader in waiting]
        if reached != seen:
            seen, heard_s = reached, time.monotonic()
        elif time.monotonic() - heard_s >= silence_s:
            break
        _ask_all(waiting)
        with arrived:
            arrived.wait_for(partial(_all_have_news, waiting), _STEP_S)


def _ask_all(readers: Iterable[_Reader]) -> None:
    for reader in readers:
        reader.ask_for_entries()


def _all_have_news(readers: Iterable[_Reader]) -> bool:
    return all(reader.has_news for reader in readers)
