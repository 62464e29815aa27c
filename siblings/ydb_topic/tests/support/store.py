# SPDX-License-Identifier: Apache-2.0
"""What the double of YDB's topic service keeps: topics, partitions, producers.

Written from YDB's documents and published protocol files, not from ``ydb_spark``. One
lock guards everything; whoever waits for rows waits on `Store.changed`.
"""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from siblings.ydb_topic.tests.support.refusal import UNAVAILABLE, RefusalError

RAW, GZIP, LZOP, ZSTD = 1, 2, 3, 4


@dataclass(frozen=True)
class Stored:
    """One message of a partition.

    Times are milliseconds since 1970, as the server keeps them.
    """

    offset: int
    seq_no: int
    data: bytes
    codec: int = RAW
    producer_id: str = ""
    message_group_id: str = ""
    created_at_ms: int = 0
    written_at_ms: int = 0
    uncompressed_size: int = 0
    metadata_items: tuple[tuple[str, bytes], ...] = ()
    session_meta: tuple[tuple[str, str], ...] = ()


@dataclass
class Partition:
    """One partition: messages with rising offsets, and the numbers of its producers.

    Attributes:
        number: Its id.
        messages: What it still has.
        start: First offset that is retained.
        end: Offset of the next message.
        last_seq_no: The highest number of each producer.
        is_active: False after a split or merge.
        bounds: Range of keys, ``[from, to)``; empty for open.
    """

    number: int
    messages: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    last_seq_no: dict[str, int] = field(default_factory=dict)
    is_active: bool = True
    parents: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    bounds: tuple[bytes, bytes] = (b"", b"")


@dataclass
class Topic:
    """One topic.

    Attributes:
        path: Its full path.
        partitions: By number.
        codecs: Those allowed; none for any.
        consumers: Committed offsets by partition, by name of the consumer.
        bindings: The partition of each producer, for good.
        created: Differs from that of a topic of the same name before.
    """

    path: str
    partitions: dict[int, Partition] = field(default_factory=dict)
    codecs: tuple[int, ...] = (RAW, GZIP)
    consumers: dict[str, dict[int, int]] = field(default_factory=dict)
    bindings: dict[str, int] = field(default_factory=dict)
    unnamed: int = 0
    created: int = field(default_factory=itertools.count(1).__next__)

    @property
    def active(self) -> list[Partition]:
        """Return the partitions that take messages."""
        return [p for p in self.partitions.values() if p.is_active]

    def last_seq_no(self, number: int, producer: str) -> int:
        """Return the highest number of a producer, its parents' included."""
        partition = self.partitions[number]
        known = [partition.last_seq_no.get(producer, 0)]
        known += [
            self.last_seq_no(parent, producer)
            for parent in partition.parents
            if parent in self.partitions
        ]
        return max(known)

    def choose(self, producer: str) -> int:
        """Return where the server sends a producer; it is bound from then on."""
        if not producer:
            self.unnamed += 1
            return self.active[self.unnamed % len(self.active)].number
        number = self.bindings.get(producer)
        if number is None:
            active = self.active
            number = active[zlib.crc32(producer.encode()) % len(active)].number
        while not self.partitions[number].is_active:
            children = self.partitions[number].children
            number = children[zlib.crc32(producer.encode()) % len(children)]
        self.bindings[producer] = number
        return number

    def append(
        self,
        number: int,
        producer: str,
        messages: Iterable[Stored],
    ) -> list[int | None]:
        """Store messages; return the offset of each, None where it was there already.

        With a producer only what is above its highest number is stored.
        """
        partition = self.partitions[number]
        offsets: list[int | None] = []
        for message in messages:
            if producer:
                if message.seq_no <= self.last_seq_no(number, producer):
                    offsets.append(None)
                    continue
                partition.last_seq_no[producer] = message.seq_no
            values = {**vars(message), "offset": partition.end}
            partition.messages.append(Stored(**values))
            offsets.append(partition.end)
            partition.end += 1
        return offsets


class Store:
    """All topics of one database.

    Args:
        database: Its path; topics may be named relative to it.

    Attributes:
        changed: The lock, and what is told of each change.
        topics: By full path.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        self.changed = threading.Condition(threading.RLock())
        self.topics: dict[str, Topic] = {}

    def full_path(self, path: str) -> str:
        """Return a path with the database before it."""
        if path == self.database or path.startswith(self.database + "/"):
            return path
        return f"{self.database}/{path.lstrip('/')}"

    def find(self, path: str) -> Topic | None:
        """Return a topic; None where there is none."""
        return self.topics.get(self.full_path(path))

    def require(self, topic: Topic) -> None:
        """End the stream of a topic that was dropped, made anew or not."""
        if self.topics.get(topic.path) is not topic:
            raise RefusalError(UNAVAILABLE, "the tablet of the partition is gone")

    def create(
        self,
        path: str,
        partitions: int = 1,
        codecs: Sequence[int] = (RAW, GZIP),
        consumers: Iterable[str] = (),
    ) -> Topic:
        """Make a topic."""
        with self.changed:
            topic = Topic(self.full_path(path), codecs=tuple(codecs))
            topic.partitions = {
                number: Partition(number, bounds=_bounds(number, partitions))
                for number in range(partitions)
            }
            topic.consumers = {name: {} for name in consumers}
            self.topics[topic.path] = topic
            self.changed.notify_all()
            return topic

    def drop(self, path: str) -> None:
        """Drop a topic, with what is in it."""
        with self.changed:
            del self.topics[self._known(path).path]
            self.changed.notify_all()

    def put(self, path: str, number: int, *bodies: bytes, **values: object) -> None:
        """Store messages that no producer wrote, such as other protocols leave."""
        with self.changed:
            topic = self._known(path)
            for body in bodies:
                message = Stored(
                    **{  # type: ignore[arg-type]
                        "offset": 0,
                        "seq_no": 0,
                        "data": body,
                        "written_at_ms": now_ms(),
                        **values,
                    }
                )
                topic.append(number, "", [message])
            self.changed.notify_all()

    def stored(self, path: str, number: int | None = None) -> list[Stored]:
        """Return the messages of a partition, or of all of them."""
        with self.changed:
            return [
                message
                for partition in self._known(path).partitions.values()
                if number in (None, partition.number)
                for message in partition.messages
            ]

    def split(self, path: str, number: int) -> tuple[int, int]:
        """Split a partition in two; return their numbers."""
        with self.changed:
            topic = self._known(path)
            parent = topic.partitions[number]
            low, high = parent.bounds
            middle = _middle(low, high)
            first = max(topic.partitions) + 1
            for child, bounds in ((first, (low, middle)), (first + 1, (middle, high))):
                topic.partitions[child] = Partition(
                    child, parents=[number], bounds=bounds
                )
                parent.children.append(child)
            parent.is_active = False
            self.changed.notify_all()
            return first, first + 1

    def merge(self, path: str, left: int, right: int) -> int:
        """Merge two neighbours; return the number of what they became."""
        with self.changed:
            topic = self._known(path)
            child = max(topic.partitions) + 1
            low, high = topic.partitions[left], topic.partitions[right]
            topic.partitions[child] = Partition(
                child,
                parents=[left, right],
                bounds=(low.bounds[0], high.bounds[1]),
            )
            for parent in (low, high):
                parent.children.append(child)
                parent.is_active = False
            self.changed.notify_all()
            return child

    def alter(self, path: str, partitions: int) -> None:
        """Give a topic more partitions."""
        with self.changed:
            topic = self._known(path)
            for number in range(len(topic.partitions), partitions):
                topic.partitions[number] = Partition(number)
            self.changed.notify_all()

    def expire(self, path: str, number: int, start: int) -> None:
        """Forget messages below an offset, as retention does."""
        with self.changed:
            partition = self._known(path).partitions[number]
            partition.messages = [m for m in partition.messages if m.offset >= start]
            partition.start = start
            self.changed.notify_all()

    def drop_partition(self, path: str, number: int) -> None:
        """Drop a partition, as the server does with one that is inactive and empty."""
        with self.changed:
            del self._known(path).partitions[number]
            self.changed.notify_all()

    def skip(self, path: str, number: int, offsets: int) -> None:
        """Leave a gap in the offsets of a partition."""
        with self.changed:
            self._known(path).partitions[number].end += offsets
            self.changed.notify_all()

    def _known(self, path: str) -> Topic:
        topic = self.find(path)
        assert topic is not None, path
        return topic


def now_ms() -> int:
    """Return the server's time."""
    return time.time_ns() // 1_000_000


def meta(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a session as a stored message has it."""
    return tuple(sorted(values.items()))


def _bounds(number: int, partitions: int) -> tuple[bytes, bytes]:
    """Return the range of hashes of one of as many partitions, 8 bytes big-endian."""

    def border(at: int) -> bytes:
        return ((at << 64) // partitions).to_bytes(8, "big")

    return (
        border(number) if number else b"",
        border(number + 1) if number + 1 < partitions else b"",
    )


def _middle(low: bytes, high: bytes) -> bytes:
    first = int.from_bytes(low.ljust(8, b"\0"), "big")
    last = int.from_bytes(high, "big") if high else 1 << 64
    return ((first + last) // 2).to_bytes(8, "big")
