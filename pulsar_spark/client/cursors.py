"""The subscription of a streaming query, as its driver holds it.

One consumer for each topic partition, kept for as long as the query runs. They carry
the query's acknowledgements, say where the topics end, and now and then let the driver
look at the next few entries; the rows themselves are read by executors. The
subscription protects what was not acknowledged from retention, and nothing is
acknowledged that is a part of a message still to be read, see ``client.chunk_guard``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pulsar_spark.admission import EntrySize
from pulsar_spark.client.chunk_guard import ChunkGuard
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerGroup, TopicConsumer
from pulsar_spark.client.lookup import Request, TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import read_positions
from pulsar_spark.client.retry import Retry, ask_all
from pulsar_spark.errors import (
    BrokerError,
    CorruptEntryError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.stream_offsets import position_after
from pulsar_spark.wire import commands
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.permits import as_broker_counts
from pulsar_spark.wire.protocol import Delivery

logger = logging.getLogger("pulsar_spark.client")

#: Permits for a look at the next entries: they bring this many entries at most.
_LOOK_PERMITS = 4

#: Entries that wait to be looked at, at most. Brokers read a hundred at a time.
_MOST_AHEAD = 1000

#: Longest wait for entries to look at, in seconds. Limits are worse without, no more.
_LOOK_TIMEOUT_S = 2.0

#: Longest wait for the answer to an acknowledgement, in seconds. Brokers give none
#: while a topic moves.
_ACK_TIMEOUT_S = 1.0

#: Tries of an acknowledgement before it is left to the next micro-batch.
_ACK_TRIES = 3

#: How long a broker may take to forget a subscription that was not durable, in seconds.
_FORGET_S = 0.1

#: Longest wait for the broker's word when a query stops, in seconds.
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a topic partition and the query's cursor stand.

    Attributes:
        cursor: The last position that the cursor is done with.
        last: The last message that can be delivered, None where there is none.
        is_kept: Whether the cursor has been there, and has protected all, since the
            position that was acknowledged last.
    """

    cursor: MessageId
    last: MessageId | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class SeenEntry:
    """An entry that the driver has looked at.

    Attributes:
        position: ``(ledger_id, entry_id)``.
        first_index: The first message of it that is not acknowledged.
        size: Rows and stored bytes.
        is_chunk: Whether it is a piece of a message.
    """

    position: tuple[int, int]
    first_index: int
    size: EntrySize
    is_chunk: bool = False


class Cursors:
    """The consumers of one subscription, by topic partition.

    Args:
        pool: The cluster's connections.
        subscription: Its name.
        durable: Whether it outlives the query. If not it leaves no trace and protects
            nothing, but serves otherwise as well.
        is_new: Whether nobody can have used the name before.
        must_exist: Whether it is an error if it is not there.
        read_compacted: Whether the query reads compacted topics.
        patience_s: Longest time without any answer from the cluster.
        on_seen: Told the size of each entry that is looked at, and its topic partition.
        guard: Says how far may be acknowledged; None for all that was read. Only
            durable ones ask it.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        subscription: str,
        *,
        durable: bool,
        is_new: bool,
        must_exist: bool = False,
        read_compacted: bool = False,
        patience_s: float,
        on_seen: Callable[[str, EntrySize], None] = lambda _topic, _size: None,
        guard: ChunkGuard | None = None,
    ) -> None:
        self.subscription = subscription
        self._pool = pool
        self._options = pool.options
        self._durable = durable
        self._is_new = is_new
        self._must_exist = must_exist
        self._read_compacted = read_compacted
        self._patience_s = patience_s
        self._on_seen = on_seen
        self._guard = guard
        self._lookup = TopicLookup(pool)
        self._arrived = threading.Condition()
        self._group = ConsumerGroup(pool, self._make)
        # Where the subscription was not there before us, and may be now.
        self._created: set[str] = set()
        # Those of them about which nobody has said yet that nothing is lost.
        self._unchecked: set[str] = set()
        # Those with an open message that holds the acknowledgement back.
        self._held: set[str] = set()
        self._warned_behind: set[str] = set()
        self._warned_busy: set[str] = set()

    def _make(self, topic: str, connection: Connection) -> _Cursor:
        return _Cursor(topic, connection, self._arrived)

    def visit(self, read: Mapping[str, MessageId]) -> dict[str, Standing | None]:
        """Acknowledges what was read and says how far there is to go.

        Consumers that are missing, because they are new or were lost, are made first.
        What is a part of a message that is not finished stays unacknowledged. An
        acknowledgement that the broker does not take is warned about and tried again at
        the next visit.

        Args:
            read: The last position read of each topic partition.

        Returns:
            For each topic partition, where it stands; None where it is gone.

        Raises:
            BrokerError: Somebody else has the subscription, and keeps it.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        retry = Retry(self._options, self._patience_s)
        return ask_all(read, lambda topics: self._round(topics, read), retry)

    def acknowledge(self, read: Mapping[str, MessageId]) -> None:
        """Acknowledges what was read where that can be done at once."""
        self._acknowledge(read, [t for t in read if t in self._group.members])

    def waiting(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of entries that come after the cursor, where brokers tell."""
        members = self._group.members
        replies = self._group.ask(
            "CONSUMER_STATS",
            lambda cursor: cursor.stats(),
            # Asking about a consumer that it does not have makes a broker hang up.
            [t for t in topics if t in members and members[t].is_open],
        )
        return {
            topic: commands.to_signed(reply.msgBacklog)
            for topic, reply in replies.items()
            if not isinstance(reply, PulsarSparkError)
        }

    def look(self, read: Mapping[str, MessageId]) -> dict[str, tuple[SeenEntry, ...]]:
        """The next entries after these positions: one or a few, none if none come."""
        held = {topic: after for topic, after in read.items() if topic in self._held}
        at_once = {t: after for t, after in read.items() if t not in held}
        return {**self._look(self._group, at_once), **self._look_ahead(held)}

    def _look_ahead(
        self, read: Mapping[str, MessageId]
    ) -> dict[str, tuple[SeenEntry, ...]]:
        """The next entries where the query is further than its acknowledgement.

        Any number of entries may be between, which the broker would send first.
        """
        if not read or self._guard is None:
            return {}
        prefix = self._guard.subscription_prefix
        group = ConsumerGroup(self._pool, self._make)
        group.connect(read)
        group.step(
            "SUBSCRIBE",
            lambda cursor: cursor.subscribe(
                f"{prefix}-{uuid.uuid4()}",
                durable=False,
                start=position_after(read[cursor.topic]),
                read_compacted=self._read_compacted,
            ),
        )
        found = self._look(group, read)
        group.close(_CLOSE_TIMEOUT_S)
        return found

    def _look(
        self, group: ConsumerGroup[_Cursor], read: Mapping[str, MessageId]
    ) -> dict[str, tuple[SeenEntry, ...]]:
        """What comes after these positions through these consumers."""
        cursors = {
            topic: (group.members[topic], after)
            for topic, after in read.items()
            if topic in group.members
        }
        with self._arrived:
            for cursor, after in cursors.values():
                cursor.pass_by(after)
        deadline = time.monotonic() + _LOOK_TIMEOUT_S
        while (left_s := deadline - time.monotonic()) > 0:
            wanting = [c for c, _ in cursors.values() if c.is_open and not c.ahead]
            if not wanting:
                break
            for cursor in wanting:
                cursor.ask_for_entries(_LOOK_PERMITS)
            with self._arrived:
                self._arrived.wait_for(partial(_have_come, wanting), left_s)
                for cursor, after in cursors.values():
                    cursor.pass_by(after)
        found = {}
        for topic, (cursor, _) in cursors.items():
            for entry in cursor.take_unreported():
                self._on_seen(topic, entry.size)
                if entry.is_chunk and self._guard is not None:
                    self._guard.note_chunk(topic)
            with self._arrived:
                found[topic] = tuple(cursor.ahead)
        return found

    def close(self) -> None:
        """Lets go of all of them; a durable subscription stays."""
        self._group.close(_CLOSE_TIMEOUT_S)

    def confirm(self) -> None:
        """Nothing was lost while the subscription was not there: from now on it is."""
        self._unchecked.clear()

    def take_back(self) -> None:
        """Deletes the subscription where it came into being since ``confirm``.

        Otherwise it would look, next time, as if it had protected everything.
        """
        self._delete(self._unchecked)

    def delete(self) -> None:
        """Deletes the subscription wherever it is held, and lets go."""
        self._delete(self._group.members)
        self.close()

    def _delete(self, topics: Iterable[str]) -> None:
        replies = self._group.ask(
            "UNSUBSCRIBE", lambda cursor: cursor.unsubscribe(), list(topics)
        )
        for topic, reply in replies.items():
            if isinstance(reply, PulsarSparkError):
                logger.warning(
                    "The subscription %s of %s could not be deleted: %s",
                    self.subscription,
                    topic,
                    reply,
                )

    # -- one round of a visit ----------------------------------------------------------

    def _round(
        self, topics: list[str], read: Mapping[str, MessageId]
    ) -> dict[str, Standing | None | PulsarSparkError]:
        members = self._group.members
        for topic in topics:
            if topic in members and not members[topic].is_open:
                del members[topic]
        self._open([t for t in topics if t not in members], read)
        standings: dict[str, Standing] = {}
        behind = topics
        for _ in range(_ACK_TRIES):
            wanted = self._acknowledge(read, behind)
            replies = self._group.step(
                "GET_LAST_MESSAGE_ID", lambda cursor: cursor.get_last(), behind
            )
            for topic, reply in replies.items():
                found = read_positions(reply)
                is_kept = self._durable and topic not in self._unchecked
                standings[topic] = Standing(found.before, found.last, is_kept)
            behind = [
                topic
                for topic in replies
                if topic not in wanted
                or _is_behind(standings[topic].cursor, wanted[topic])
            ]
            if not behind:
                break
            for topic in behind:
                members[topic].acknowledged = None
        self._warn_behind(
            {
                topic: wanted[topic]
                for topic in behind
                if topic in members and topic in wanted
            }
        )
        answers: dict[str, Standing | None | PulsarSparkError] = {**standings}
        failures = self._group.take_failures()
        answers.update({t: self._explain(t, error) for t, error in failures.items()})
        return answers | self._absent(answers)

    def _open(self, topics: list[str], read: Mapping[str, MessageId]) -> None:
        """Subscribes to these."""
        if not topics:
            return
        self._group.connect(topics)
        name = self.subscription
        if not self._durable:
            self._group.step(
                "SUBSCRIBE",
                lambda cursor: cursor.subscribe(
                    name,
                    durable=False,
                    start=position_after(read[cursor.topic]),
                    read_compacted=self._read_compacted,
                ),
                topics,
            )
            return
        # A name of our own cannot be there where we have not been.
        doubtful = [t for t in topics if not self._is_new or t in self._created]
        absent = self._find_absent(doubtful)
        made = {*topics} - {*doubtful} | {*absent}
        self._created |= made
        self._unchecked |= made
        self._group.step(
            "SUBSCRIBE",
            lambda cursor: cursor.subscribe(
                name,
                durable=True,
                # Everything, until the acknowledgement that follows: never too little.
                initial_position=InitialPosition.EARLIEST,
                read_compacted=self._read_compacted,
            ),
            topics,
        )
        if absent:
            self._check_durable(absent)

    def _find_absent(self, topics: list[str]) -> list[str]:
        """Learns where the subscription is there already, and returns the others.

        A durable and a non-durable subscription cannot have one name, so a broker
        refuses the latter where the former is: a question that changes nothing.
        """
        if not topics:
            return []
        replies = self._group.ask("SUBSCRIBE", self._ask_existing, topics)
        absent = []
        for topic, reply in replies.items():
            if _is_durable_there(reply):
                continue
            if isinstance(reply, PulsarSparkError):
                self._group.drop(topic, reply)
            else:
                absent.append(topic)
        if absent:
            absent = list(
                self._group.step(
                    "CLOSE_CONSUMER", lambda cursor: cursor.close(), absent
                )
            )
            # Brokers answer before they have forgotten the name.
            time.sleep(_FORGET_S)
        if self._must_exist:
            for topic in absent:
                missing = OptionError(
                    f"{topic} has no subscription {self.subscription}, where the query "
                    "should start. Correct `predefinedSubscription`, or set "
                    "`startingOffsets` to earliest or latest."
                )
                self._group.drop(topic, missing)
        return absent

    def _check_durable(self, topics: list[str]) -> None:
        """Gives up those that are not what they should be, to be made again.

        A broker that has not forgotten the question takes the answer to it, the durable
        subscription, for one that is not durable either; rarely, and without a word.
        """
        probes = ConsumerGroup(self._pool, TopicConsumer)
        probes.connect(topics)
        for topic, reply in probes.ask("SUBSCRIBE", self._ask_existing).items():
            if topic in self._group.members and not _is_durable_there(reply):
                again = TransportError("The broker has mistaken a subscription.")
                self._group.drop(topic, again)
        probes.close()

    def _ask_existing(self, consumer: TopicConsumer) -> Request:
        return consumer.subscribe(self.subscription, durable=False)

    # -- acknowledgements --------------------------------------------------------------

    def _acknowledge(
        self, read: Mapping[str, MessageId], topics: Iterable[str]
    ) -> dict[str, MessageId]:
        """Acknowledges what was read, as far as no open message begins there.

        Returns:
            How far each topic partition is to be acknowledged, whether or not it was
            now; nothing for those of which that cannot be told now.
        """
        members = self._group.members
        wanted = {
            topic: _whole_entry(read[topic])
            for topic in topics
            if topic in members and members[topic].is_open
        }
        done = {topic: members[topic].acknowledged or EARLIEST for topic in wanted}
        due = {
            topic: position
            for topic, position in wanted.items()
            if position.entry_id >= 0 and position.position > done[topic].position
        }
        if self._guard is not None and self._durable:
            limits = self._guard.limit(due, done)
            for topic in due:
                self._held.discard(topic)
                if topic not in limits:
                    del wanted[topic]
                elif limits[topic] != due[topic]:
                    wanted[topic] = limits[topic]
                    self._held.add(topic)
            due = {
                topic: limit
                for topic, limit in limits.items()
                if limit.position > done[topic].position
            }
        replies = self._group.ask(
            "ACK",
            lambda cursor: cursor.acknowledge(due[cursor.topic]),
            due,
            timeout_s=_ACK_TIMEOUT_S,
        )
        for topic, reply in replies.items():
            if isinstance(reply, PulsarSparkError):
                logger.debug("%s: acknowledgement failed: %s", topic, reply)
            else:
                members[topic].acknowledged = due[topic]
        return wanted

    def _warn_behind(self, read: Mapping[str, MessageId]) -> None:
        # Once for each topic partition: its log would be full of them otherwise.
        for topic in read.keys() - self._warned_behind:
            self._warned_behind.add(topic)
            logger.warning(
                "%s: the broker does not take the acknowledgement up to %s on the "
                "subscription %s. The query goes on; it is tried again with each "
                "micro-batch.",
                topic,
                read[topic],
                self.subscription,
            )

    # -- errors ------------------------------------------------------------------------

    def _explain(self, topic: str, error: PulsarSparkError) -> PulsarSparkError:
        if not isinstance(error, BrokerError) or error.code != "ConsumerBusy":
            return error
        if "different type" in error.server_message:
            busy = BrokerError(
                f"{topic}: the subscription {self.subscription} is shared by its "
                "consumers (Shared, Key_Shared or Failover). A query needs one of its "
                "own: it acknowledges everything up to a position. Stop the other "
                "consumers, or choose another `predefinedSubscription`.",
                code=error.code,
                server_message=error.server_message,
                broker=error.broker,
            )
            busy.retriable = False
            return busy
        if topic not in self._warned_busy:
            self._warned_busy.add(topic)
            logger.warning(
                "%s: another consumer has the subscription %s; waiting for it to go.",
                topic,
                self.subscription,
            )
        return BrokerError(
            f"{topic}: another consumer has the subscription {self.subscription}, and "
            "did not let go of it in time. Is this query running twice, or does "
            "another program use the subscription? Stop that, or choose another "
            "`predefinedSubscription`.",
            code=error.code,
            server_message=error.server_message,
            broker=error.broker,
        )

    def _absent(
        self, answers: Mapping[str, Standing | None | PulsarSparkError]
    ) -> dict[str, Standing | None]:
        """What to say of topic partitions that do not exist: not yet, or no more."""
        absent = [t for t, a in answers.items() if isinstance(a, TopicNotFoundError)]
        if not absent:
            return {}
        counted = self._lookup.counted_partitions(absent)
        not_yet = Standing(EARLIEST, None, is_kept=True)
        return {topic: not_yet if topic in counted else None for topic in absent}


class _Cursor(TopicConsumer):
    """One of the consumers.

    Attributes:
        acknowledged: The last position that was acknowledged through it.
        ahead: Entries that were looked at and not yet passed by.
    """

    def __init__(
        self, topic: str, connection: Connection, arrived: threading.Condition
    ) -> None:
        super().__init__(topic, connection)
        self.acknowledged: MessageId | None = None
        self.ahead: deque[SeenEntry] = deque()
        self._unreported: list[SeenEntry] = []
        self._permits = 0  # what the broker may still send, in messages
        self._arrived = arrived

    def acknowledge(self, position: MessageId) -> Request:
        """Builds a cumulative ACK that is answered."""
        return partial(commands.ack_cumulative, self.consumer_id, position)

    def stats(self) -> Request:
        """Builds CONSUMER_STATS."""
        return partial(commands.consumer_stats, self.consumer_id)

    def unsubscribe(self) -> Request:
        """Builds UNSUBSCRIBE."""
        return partial(commands.unsubscribe, self.consumer_id)

    def ask_for_entries(self, permits: int) -> None:
        """Lets the broker send a few entries, unless it may already."""
        with self._arrived:
            if self._permits > 0:
                return
            missing = permits - self._permits
            self._permits = permits
        # A broken connection shows in the next visit.
        with contextlib.suppress(PulsarSparkError):
            self.connection.grant(self.consumer_id, missing)

    def pass_by(self, after: MessageId) -> None:
        """Forgets entries up to a position. Holding the condition."""
        while self.ahead and self._is_passed(self.ahead[0], after):
            self.ahead.popleft()

    @staticmethod
    def _is_passed(entry: SeenEntry, after: MessageId) -> bool:
        if entry.position == after.position:
            return after.batch_index < 0
        return entry.position < after.position

    def take_unreported(self) -> list[SeenEntry]:
        """The entries that came since the last call."""
        with self._arrived:
            entries, self._unreported = self._unreported, []
        return entries

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Notes entries and their sizes."""
        seen = [_see(delivery) for delivery in deliveries]
        with self._arrived:
            for entry, charge in seen:
                self._permits = as_broker_counts(self._permits - charge)
                self.ahead.append(entry)
                self._unreported.append(entry)
            self._arrived.notify_all()
            if max(len(self.ahead), len(self._unreported)) > _MOST_AHEAD:
                raise ProtocolError(
                    f"{self.topic}: more than {_MOST_AHEAD} entries came where a few "
                    "had been asked for."
                )

    def closed(self, error: PulsarSparkError | None) -> None:
        """The next visit makes another one."""
        super().closed(error)
        with self._arrived:
            self._arrived.notify_all()


def _have_come(cursors: Iterable[_Cursor]) -> bool:
    return all(cursor.ahead or not cursor.is_open for cursor in cursors)


def _is_durable_there(reply: Any) -> bool:
    """Whether a broker refused a name because a durable subscription has it."""
    return (
        isinstance(reply, BrokerError)
        and reply.code == "NotAllowedError"
        and reply.server_message.startswith("Durable")
    )


def _see(delivery: Delivery) -> tuple[SeenEntry, int]:
    """An entry's place and size, and the permits that the broker took for it."""
    size_bytes = len(delivery.headers_and_payload)
    rows: float = 1
    charge = 1
    first_index = 0
    is_chunk = False
    try:
        stored = read_stored_entry(
            delivery.ledger_id, delivery.entry_id, delivery.headers_and_payload
        )
    except CorruptEntryError:
        pass  # whoever reads the row will say so
    else:
        charge = stored.charged_messages
        rows = stored.likely_rows
        is_chunk = stored.is_chunk
    if delivery.ack_set:
        pending = sum(
            commands.to_unsigned(word) << (64 * at)
            for at, word in enumerate(delivery.ack_set)
        )
        charge = pending.bit_count()
        first_index = (pending & -pending).bit_length() - 1 if pending else 0
    entry = SeenEntry(
        (delivery.ledger_id, delivery.entry_id),
        first_index,
        EntrySize(rows, size_bytes),
        is_chunk,
    )
    return entry, charge


def _whole_entry(read: MessageId) -> MessageId:
    """What can be acknowledged: the last entry that was read to its end."""
    entry_id = read.entry_id - (1 if read.batch_index >= 0 else 0)
    return MessageId(read.ledger_id, entry_id)


def _is_behind(cursor: MessageId, position: MessageId) -> bool:
    """Whether an acknowledgement is missing; the beginning of a ledger needs none."""
    return position.entry_id >= 0 and cursor.position < position.position
