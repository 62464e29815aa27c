# SPDX-License-Identifier: Apache-2.0
"""The unread part of topic partitions after given positions, and the age of rows.

A reader that is not durable is placed there: its broker counts the entries after it,
and sends the first one, whose publish time is the age of what was not read. It
acknowledges nothing and is forgotten as it closes; a query that runs does not notice.

How many bytes that is, only the admin REST tells: from the sizes of ledgers, by the
average entry in the one in which the position is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_spark.cli.admin import Admin, LedgerSize
from pulsar_spark.cli.arguments import Cluster
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.peek import Peeker, begin, entry_of
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.held_back import passes_over
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.stream_ends import StreamEnds
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import commands
from pulsar_spark.wire.entries import StoredEntry
from pulsar_spark.wire.layout import Layout
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import ask_all

#: Longest wait for the first unread entries, in seconds: one that an open transaction
#: holds back does not come.
_FIRST_S = 5.0


@dataclass(frozen=True)
class Backlog:
    """The unread part of a topic partition.

    Attributes:
        entries: Stored entries; None where the topic partition is gone.
        size_bytes: What they take as stored, about; None where that is not known.
        oldest_ms: Publish time of the first unread row, in milliseconds since 1970;
            None where there is none that can be read.
        last: The last message that can be read, None for none.
    """

    entries: int | None
    size_bytes: int | None = None
    oldest_ms: int | None = None
    last: MessageId | None = None

    def age_s(self, now_s: float | None = None) -> float | None:
        """Return for how long the first unread row has been there, in seconds."""
        if self.oldest_ms is None:
            return None
        return max(
            0.0, (time.time() if now_s is None else now_s) - self.oldest_ms / 1e3
        )


def with_new_segments(
    cluster: Cluster, read: Mapping[str, LastRead]
) -> dict[str, LastRead]:
    """Add the segments that splits, merges and migrations brought since the last plan.

    A stream has read nothing of these segments.

    Args:
        cluster: Is asked.
        read: The positions of the stream, by full name.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    bases = {TopicName.parse(name).base.full_name for name in read}
    if not cluster.pool.service().supports_scalable_topics:
        return dict(read)
    contents = TopicLookup(cluster.pool).topics(bases)
    layouts = (layout for layout in contents.values() if isinstance(layout, Layout))
    names = [segment.name for layout in layouts for segment in layout.segments]
    return {**read, **{name: NOTHING_READ for name in names if name not in read}}


def backlogs(cluster: Cluster, read: Mapping[str, LastRead]) -> dict[str, Backlog]:
    """Return the unread parts after positions, by full name.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    pool = cluster.pool
    first_s = min(_FIRST_S, pool.options.operation_timeout_s)

    def ask(names: list[str]) -> dict[str, Backlog | PulsarSparkError]:
        arrived = threading.Condition()

        def make(topic: str, connection: Connection) -> _First:
            return _First(topic, connection, read[topic], arrived)

        with ConsumerSet(pool, make) as group:
            group.connect(names)
            begin(group)
            said = {
                name: member.positions.last for name, member in group.members.items()
            }
            for name, last in readable_ends(pool, said).items():
                member = group.members[name]
                if isinstance(last, PulsarSparkError):
                    group.drop(name, last)
                else:
                    member.positions = replace(member.positions, last=last)
            counts = group.step(lambda one: commands.consumer_stats(one.consumer_id))
            waiting = []
            for name, reply in counts.items():
                member = group.members[name]
                member.entries = max(0, commands.to_signed(reply.msgBacklog))
                if member.entries and not member.positions.is_empty:
                    waiting.append(member)
            _await_first(waiting, arrived, first_s)
            backlogs_: dict[str, Backlog | PulsarSparkError] = {
                name: member.backlog() for name, member in group.members.items()
            }
            for name, error in group.take_failures().items():
                is_gone = isinstance(error, TopicNotFoundError)
                backlogs_[name] = Backlog(None) if is_gone else error
            return backlogs_

    backlogs_ = ask_all(read, ask, pool.patience())
    if cluster.admin is not None:
        return _with_sizes(cluster.admin, read, backlogs_)
    return backlogs_


def within_ends(
    cluster: Cluster,
    options: ReadOptions | None,
    read: Mapping[str, LastRead],
    found: Mapping[str, Backlog],
) -> dict[str, Backlog]:
    """Return the unread parts without rows behind the ends of the stream.

    Args:
        cluster: Is asked.
        options: Name the ends; None for a stream without.
        read: Positions, by full name.
        found: What is unread after these.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if options is None:
        return dict(found)
    lasts = {name: b.last for name, b in found.items() if b.entries is not None}
    cut = StreamEnds(options, PositionLookup(cluster.pool)).cut(lasts, read)
    ends = {n: end for n, end in cut.items() if end is not None and end != lasts[n]}
    # Brokers count entries, and the end may be in the middle of a batch.
    behind = {name: LastRead(*end.position) for name, end in ends.items()}
    within = dict(found)
    for name, rest in backlogs(cluster, behind).items():
        whole, end = found[name], ends[name]
        if read[name] < LastRead.of(end):
            entries = max(1, (whole.entries or 0) - (rest.entries or 0))
            size_bytes = None
            if whole.size_bytes is not None and rest.size_bytes is not None:
                size_bytes = max(0, whole.size_bytes - rest.size_bytes)
            within[name] = Backlog(entries, size_bytes, whole.oldest_ms, end)
        else:
            size_bytes = None if whole.size_bytes is None else 0
            within[name] = Backlog(0, size_bytes, None, end)
    return within


def held_back(
    cluster: Cluster, read: Mapping[str, LastRead], found: Mapping[str, Backlog]
) -> dict[str, MessageId]:
    """Return the last stored entry where an open transaction holds back rows.

    Args:
        cluster: Is asked.
        read: Positions, by full name.
        found: What is unread after these.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    unread = [name for name, backlog in found.items() if backlog.entries]
    lookup = PositionLookup(cluster.pool)
    ends = lookup.from_message_ids(dict.fromkeys(unread, LATEST), absent_ok=True)
    stored, delivered = {}, {}
    for name, end in ends.items():
        last = max(read[name], LastRead.of(found[name].last or EARLIEST))
        if end.before.position > last.position:
            stored[name], delivered[name] = end.before, last.message_id
    passed = passes_over(cluster.pool, delivered, stored)
    return {name: stored[name] for name in passed if not passed[name]}


def _await_first(
    members: Sequence[_First], arrived: threading.Condition, timeout_s: float
) -> None:
    """Wait until all members have their first unread entries, or time is up."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        with arrived:
            asking = [
                member for member in members if not (member.is_done or member.is_asked)
            ]
            for member in asking:
                member.is_asked = True
        for member in asking:
            member.grant(member.permits)
        with arrived:
            if all(member.is_done for member in members):
                return
            if all(member.is_done or member.is_asked for member in members):
                arrived.wait(left_s)


class _First(Peeker):
    """Takes the first entry that has an unread row.

    Attributes:
        entries: After the position, as its broker counts.
        is_done: Whether it has it, or nothing more will come.
        is_asked: Whether the broker is to send an entry.
        permits: Permits for a further entry: brokers count messages.
    """

    def __init__(
        self,
        topic: str,
        connection: Connection,
        read: LastRead,
        arrived: threading.Condition,
    ) -> None:
        super().__init__(topic, connection, read.next(), arrived)
        self._read = read
        self.entries = 0
        self.is_done = False
        self.is_asked = False
        self.permits = 1
        self._oldest_ms: int | None = None
        self._passed = 0  # entries that the broker counts and that were read

    def backlog(self) -> Backlog:
        """Return the backlog as counted so far."""
        with self._arrived:
            entries = max(0, self.entries - self._passed)
            oldest_ms = self._oldest_ms if entries else None
            return Backlog(entries, None, oldest_ms, self.positions.last)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take the first entry that has an unread row."""
        with self._arrived:
            for delivery in deliveries:
                if not self.is_done:
                    self._take(delivery)
            self.is_asked = False
            self._arrived.notify_all()

    def _take(self, delivery: Delivery) -> None:
        entry = entry_of(delivery)
        if entry is not None and self._was_read(delivery, entry):
            self._passed += 1
            self.permits = max(1, entry.metadata.num_messages_in_batch)
            self.is_done = self.entries <= self._passed
            return
        self.is_done = True
        if entry is not None:
            self._oldest_ms = entry.metadata.publish_time

    def _was_read(self, delivery: Delivery, entry: StoredEntry) -> bool:
        """Return whether the position is that of the last message of this batch."""
        if (delivery.ledger_id, delivery.entry_id) != self._read.position:
            return False
        messages = max(1, entry.metadata.num_messages_in_batch)
        return self._read.batch_index + 1 >= messages

    def closed(self, error: PulsarSparkError | None) -> None:
        """Note that nothing more will come."""
        with self._arrived:
            self.is_done = True
            super().closed(error)


def _with_sizes(
    admin: Admin, read: Mapping[str, LastRead], found: Mapping[str, Backlog]
) -> dict[str, Backlog]:
    sized = dict(found)
    for name, ledgers in admin.ledgers(found).items():
        if (
            not isinstance(ledgers, PulsarSparkError)
            and found[name].entries is not None
        ):
            backlog = found[name]
            size_bytes = (
                bytes_after(read[name].position, ledgers) if backlog.entries else 0
            )
            sized[name] = Backlog(
                backlog.entries, size_bytes, backlog.oldest_ms, backlog.last
            )
    return sized


def bytes_after(position: tuple[int, int], ledgers: Sequence[LedgerSize]) -> int:
    """Return the bytes after a position, by the average entry of the ledger."""
    total = 0
    for ledger in ledgers:
        if ledger.ledger_id > position[0]:
            total += ledger.size_bytes
        elif ledger.ledger_id == position[0] and ledger.entries:
            left = max(0, ledger.entries - (position[1] + 1))
            total += ledger.size_bytes * left // ledger.entries
    return total
