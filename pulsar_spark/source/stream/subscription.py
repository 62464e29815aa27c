# SPDX-License-Identifier: Apache-2.0
"""The subscription of a streaming query, on the driver.

One consumer for each topic partition, kept for as long as the query runs. They carry
the query's acknowledgements, say where the topics end, and now and then let the driver
look at the next few entries; the rows themselves are read by executors. The
subscription protects what was not acknowledged from retention, and nothing is
acknowledged that is a part of a message still to be read, see ``chunk_guard``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.peek import entry_of
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    AskAgainError,
    BrokerError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TopicMigratedError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.source.stream.chunk_guard import ChunkGuard
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition, Request, SubscribeRequest
from pulsar_spark.wire.permits import as_broker_counts
from pulsar_spark.wire.protocol import Delivery
from pulsar_spark.wire.refusals import (
    has_durable_namesake,
    has_passing_namesake,
    is_of_another_type,
    lacks_ledgers,
)
from spark_topics.client.retry import ask_all
from spark_topics.source.stream.admission import EntrySize
from spark_topics.text import list_names

logger = logging.getLogger("pulsar_spark.source")

#: Permits for a look at the next entries: they bring this many entries at most.
_LOOK_PERMITS = 4

#: Entries that wait to be looked at, at most. Brokers read a hundred at a time.
_MOST_AHEAD = 1000

#: Tries of an acknowledgement before it is left to the next micro-batch.
_ACK_TRIES = 3


@dataclass(frozen=True, slots=True)
class CursorStatus:
    """Where a topic partition and the query's cursor stand.

    Attributes:
        cursor: The last position that the cursor is done with.
        last: The last message that can be delivered, None where there is none.
        is_kept: Whether the cursor has existed, and has protected all, since the
            position that was acknowledged last.
    """

    cursor: LastRead
    last: MessageId | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class PeekedEntry:
    """An entry that the driver has looked at.

    Attributes:
        position: ``(ledger_id, entry_id)``.
        first_index: The first message of it that is not acknowledged.
        size: Rows and stored bytes.
        is_chunk: Whether it is a piece of a message.
        published_ms: When it was published, in milliseconds since 1970; None where that
            cannot be read.
    """

    position: tuple[int, int]
    first_index: int
    size: EntrySize
    is_chunk: bool = False
    published_ms: int | None = None


class Subscription:
    """The consumers of a subscription, by topic partition.

    Args:
        pool: The cluster's connections.
        how: How to subscribe. A subscription that is not durable leaves no trace,
            protects nothing, and has no properties, but is otherwise as good.
        is_new: Whether the name cannot have been used before.
        must_exist: Whether a missing subscription is an error.
        patience_s: Longest time without any answer from the cluster.
        guard: Says how far may be acknowledged; None for all that was read. Only
            durable ones ask it.

    Attributes:
        skipping: Topic partitions whose cursor is ahead of rows still to read, so that
            the consumers there neither count nor see these. It is for others to say.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        how: SubscribeRequest,
        *,
        is_new: bool,
        must_exist: bool = False,
        patience_s: float,
        guard: ChunkGuard | None = None,
    ) -> None:
        self.subscription = how.subscription
        self.skipping: Collection[str] = ()
        self._pool = pool
        self._how = how
        self._durable = how.durable
        self._is_new = is_new
        self._must_exist = must_exist
        self._may_lack_ledgers: Collection[str] = ()  # as the last visit said
        self._without_ledgers: set[str] = set()
        self._patience_s = patience_s
        self._guard = guard
        self._lookup = TopicLookup(pool, patience_s=patience_s)
        self._arrived = threading.Condition()
        self._group = ConsumerSet(pool, self._make)
        # Where the durable subscription may be: it was asked for, now or before.
        self._subscribed: set[str] = set()
        # Where this object may have created the subscription.
        self._created: set[str] = set()
        # Those of them that ``confirm`` has not been called for yet.
        self._unchecked: set[str] = set()
        # Those with an open message that holds the acknowledgement back.
        self._held: set[str] = set()
        # Those that are on another cluster now, and have nothing left here.
        self._migrated: dict[str, TopicMigratedError] = {}
        self._warned_behind: set[str] = set()
        self._warned_busy: set[str] = set()

    def _make(self, topic: str, connection: Connection) -> _Member:
        return _Member(topic, connection, self._arrived)

    def visit(
        self, read: Mapping[str, LastRead], may_lack_ledgers: Collection[str] = ()
    ) -> dict[str, CursorStatus | None]:
        """Acknowledge what was read and return how far there is to go.

        Consumers that are missing, because they are new or were lost, are made first.
        Parts of a message that is not finished stay unacknowledged. If the broker does
        not accept an acknowledgement, a warning is logged and it is tried again at the
        next visit.

        Args:
            read: The last position read of each topic partition.
            may_lack_ledgers: Those that may be empty, where a durable subscription must
                not begin at the beginning: see ``wire.refusals.lacks_ledgers``.

        Returns:
            For each topic partition, its status; None for a deleted topic partition.

        Raises:
            TopicMigratedError: Nothing is left, and what comes next is elsewhere.
            BrokerError: Another consumer has the subscription, and keeps it.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        retry = self._pool.patience(self._patience_s)
        self._migrated.clear()
        self._may_lack_ledgers = may_lack_ledgers
        statuses = ask_all(read, lambda topics: self._round(topics, read), retry)
        # What is left here can still be read; what comes next is on another cluster.
        if self._migrated and all(_is_done(statuses[t], read[t]) for t in read):
            topic, error = min(self._migrated.items())
            raise error.saying(
                f"{topic}: the topic was migrated to another cluster, "
                f"{error.service_url or error.service_url_tls}. All that there was "
                "here has been read. Positions mean nothing there: set `service.url` "
                "to it, and begin with a new checkpoint and `startingOffsets` earliest."
            )
        return statuses

    def acknowledge(self, read: Mapping[str, LastRead]) -> None:
        """Acknowledge what was read where that can be done at once."""
        self._acknowledge(read, [t for t in read if t in self._group.members])

    def waiting(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of entries after each cursor, where brokers tell."""
        return self._waiting(self._group, topics)

    def unread(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of entries to be read, where brokers and cursors tell."""
        return self.waiting(t for t in topics if t not in self.skipping)

    def waiting_after(self, read: Mapping[str, LastRead]) -> dict[str, int]:
        """Return the number of entries after each position, where brokers tell.

        Args:
            read: A position of each topic partition that is not at the cursor.
        """
        if not read:
            return {}
        with self._readers(read) as group:
            return self._waiting(group, read)

    @staticmethod
    def _waiting(group: ConsumerSet[_Member], topics: Iterable[str]) -> dict[str, int]:
        members = group.members
        replies = group.ask(
            lambda member: member.stats(),
            # A broker asked about a consumer it does not have closes the connection.
            [t for t in topics if t in members and members[t].is_open],
        )
        return {
            topic: commands.to_signed(reply.msgBacklog)
            for topic, reply in replies.items()
            if not isinstance(reply, PulsarSparkError)
        }

    def look(
        self,
        read: Mapping[str, LastRead],
        on_seen: Callable[[str, EntrySize], None] = lambda _topic, _size: None,
        *,
        is_one_enough: bool = False,
    ) -> dict[str, tuple[PeekedEntry, ...]]:
        """Return the next few entries after the given positions, until a time-out.

        Args:
            read: The position of each topic partition.
            on_seen: Called with each entry that had not come before: the name of its
                topic partition, and its size.
            is_one_enough: Whether more than one entry of each would be too many, and
                none if it takes further consumers.
        """
        held = {
            topic: after
            for topic, after in read.items()
            if topic in self._held or topic in self.skipping
        }
        at_once = {t: after for t, after in read.items() if t not in held}
        if is_one_enough:
            return self._look(self._group, at_once, on_seen, 1)
        return {
            **self._look(self._group, at_once, on_seen),
            **self.look_from(held, on_seen),
        }

    def look_from(
        self,
        read: Mapping[str, LastRead],
        on_seen: Callable[[str, EntrySize], None] = lambda _topic, _size: None,
    ) -> dict[str, tuple[PeekedEntry, ...]]:
        """Return the next few entries after positions that are not at the cursor.

        The subscription would first send all entries in between, or has passed them.

        Args:
            read: Such a position of each topic partition.
            on_seen: As for `look`.
        """
        if not read or self._guard is None:
            return {}
        with self._readers(read) as group:
            return self._look(group, read, on_seen)

    @contextlib.contextmanager
    def _readers(self, read: Mapping[str, LastRead]) -> Iterator[ConsumerSet[_Member]]:
        """Subscribe consumers that are at the given positions, for a while."""
        with ConsumerSet(self._pool, self._make, waits_for_end=False) as group:
            group.connect(read)
            group.step(
                lambda member: member.subscribe(
                    SubscribeRequest(
                        self._pool.reader_name(),
                        start=read[member.topic].next(),
                        consumer=self._how.consumer,
                    )
                ),
            )
            yield group

    def _look(
        self,
        group: ConsumerSet[_Member],
        read: Mapping[str, LastRead],
        on_seen: Callable[[str, EntrySize], None],
        permits: int = _LOOK_PERMITS,
    ) -> dict[str, tuple[PeekedEntry, ...]]:
        """Return the entries after the given positions, through the given consumers."""
        members = {
            topic: (group.members[topic], after)
            for topic, after in read.items()
            if topic in group.members
        }
        with self._arrived:
            for member, after in members.values():
                member.pass_by(after)
        deadline = time.monotonic() + self._pool.options.patience.look_s
        while (left_s := deadline - time.monotonic()) > 0:
            wanting = [m for m, _ in members.values() if m.is_open and not m.ahead]
            if not wanting:
                break
            for member in wanting:
                member.ask_for_entries(permits)
            with self._arrived:
                self._arrived.wait_for(partial(_have_come, wanting), left_s)
                for member, after in members.values():
                    member.pass_by(after)
        entries = {}
        for topic, (member, _) in members.items():
            for entry in member.take_unreported():
                on_seen(topic, entry.size)
                if entry.is_chunk and self._guard is not None:
                    self._guard.note_chunk(topic)
            with self._arrived:
                entries[topic] = member.ahead
        return entries

    def may_be_on(self, topics: Iterable[str]) -> None:
        """Remember topics on which an earlier run may have left the subscription."""
        self._subscribed.update(topics)

    def close(self) -> None:
        """Close all consumers; a durable subscription stays."""
        self._group.close()

    def confirm(self) -> None:
        """Record that no row was lost before the subscription existed."""
        self._unchecked.clear()

    def take_back(self) -> None:
        """Delete the subscription if it was created since ``confirm``.

        Otherwise it would look, next time, as if it had protected everything.
        """
        self._delete(self._unchecked)

    def delete(self) -> None:
        """Delete the subscription wherever an earlier run may have left one; close."""
        self._delete(self._subscribed)
        self.close()

    def _delete(self, topics: Iterable[str]) -> None:
        left = set(topics)

        def ask(names: list[str]) -> dict[str, PulsarSparkError | None]:
            answers = self._delete_round(names)
            left.difference_update(name for name in names if answers[name] is None)
            return answers

        try:
            ask_all(
                list(left), ask, self._pool.retry(self._pool.options.patience.delete_s)
            )
        except PulsarSparkError as error:
            logger.warning(
                "The subscription %s could not be deleted from %s: %s",
                self.subscription,
                list_names(sorted(left)),
                error,
            )

    def _delete_round(self, topics: list[str]) -> dict[str, PulsarSparkError | None]:
        """Try once to delete; subscribe again where the topic has moved."""
        lost = self._take_lost(topics)
        self._group.connect(lost)
        self._subscribe_durable(lost)
        replies = self._group.ask(lambda member: member.unsubscribe(), topics)
        answers: dict[str, PulsarSparkError | None] = dict.fromkeys(topics)
        for topic, reply in {**replies, **self._group.take_failures()}.items():
            if not isinstance(reply, (pb.CommandSuccess, TopicNotFoundError)):
                answers[topic] = reply
        return answers

    # -- one round of a visit ----------------------------------------------------------

    def _round(
        self, topics: list[str], read: Mapping[str, LastRead]
    ) -> dict[str, CursorStatus | None | PulsarSparkError]:
        members = self._group.members
        self._open(self._take_lost(topics), read)
        standings: dict[str, CursorStatus] = {}
        behind = topics
        for _ in range(_ACK_TRIES):
            replies: dict[str, TopicPositions] = {}
            # Brokers take both in this order. Where one answers before it is done with
            # the first, that is asked for, and looked at, once more.
            ask = partial(self._ask_last, behind, replies)
            to_acknowledge = self._acknowledge(read, behind, meanwhile=ask)
            for topic, positions in replies.items():
                is_kept = self._durable and topic not in self._unchecked
                cursor = LastRead.of(positions.before)
                if cursor == read[topic]:
                    cursor = read[topic]  # one object is enough for both
                standings[topic] = CursorStatus(cursor, positions.last, is_kept)
            behind = [
                topic
                for topic in replies
                if topic not in to_acknowledge
                or _is_behind(standings[topic].cursor, to_acknowledge[topic])
            ]
            if not behind:
                break
            for topic in behind:
                members[topic].acknowledged = None
        self._warn_behind(
            {
                topic: to_acknowledge[topic]
                for topic in behind
                if topic in members and topic in to_acknowledge
            }
        )
        answers: dict[str, CursorStatus | None | PulsarSparkError] = {**standings}
        for topic, error in self._group.take_failures().items():
            if isinstance(error, TopicMigratedError):
                self._migrated[topic] = error
                end = MessageId(*read[topic].position)
                answers[topic] = CursorStatus(read[topic], end, is_kept=True)
            else:
                answers[topic] = self._explain(topic, error)
        return answers | self._absent(answers)

    def _take_lost(self, topics: Iterable[str]) -> list[str]:
        """Drop closed consumers; return the topics that have no open consumer."""
        members = self._group.members
        for topic in topics:
            if topic in members and not members[topic].is_open:
                del members[topic]
        return [topic for topic in topics if topic not in members]

    def _open(self, topics: list[str], read: Mapping[str, LastRead]) -> None:
        """Subscribe to the given topic partitions."""
        if not topics:
            return
        self._group.connect(topics)
        if not self._durable:
            self._group.subscribe(
                lambda member: replace(
                    self._how,
                    start=read[member.topic].next(),
                    subscription_properties=(),
                    replicate_subscription_state=False,
                ),
                topics,
            )
            return
        # A name made up for this query cannot exist where it has not subscribed.
        doubtful = [
            topic
            for topic in topics
            if not self._is_new
            or topic in self._created
            or topic in self._may_lack_ledgers
        ]
        absent = self._find_absent(doubtful)
        made = {*topics} - {*doubtful} | {*absent}
        self._created |= made
        self._unchecked |= made
        self._subscribe_durable(topics)
        if absent:
            self._check_durable(absent)

    def _subscribe_durable(self, topics: list[str]) -> None:
        self._subscribed.update(topics)
        # Protects all until the acknowledgement that follows: never too little.
        protecting = replace(self._how, initial_position=InitialPosition.EARLIEST)
        self._group.step(
            lambda member: member.subscribe(
                self._how if member.topic in self._without_ledgers else protecting
            ),
            topics,
        )

    def _find_absent(self, topics: list[str]) -> list[str]:
        """Return the topic partitions where the subscription does not exist.

        A durable and a non-durable subscription cannot share a name, so a broker
        refuses the latter where the former exists: a question that changes nothing.
        """
        if not topics:
            return []
        absent = []
        refused = []
        for topic, reply in self._group.ask(self._ask_existing, topics).items():
            if lacks_ledgers(reply):
                refused.append(topic)
            elif isinstance(reply, PulsarSparkError):
                if not has_durable_namesake(reply):
                    self._group.drop(topic, reply)
            else:
                absent.append(topic)
        if absent:
            absent = list(self._group.step(lambda member: member.close(), absent))
            # Brokers answer before they have forgotten the name.
            time.sleep(self._pool.options.patience.forget_s)
        absent += self._find_without_ledgers(refused)
        if self._must_exist:
            for topic in absent:
                missing = OptionError(
                    f"{topic} has no subscription {self.subscription}, where the query "
                    "should start. Correct `predefinedSubscription`, or set "
                    "`startingOffsets` to earliest or latest."
                )
                self._group.drop(topic, missing)
        return absent

    def _find_without_ledgers(self, topics: list[str]) -> list[str]:
        """Return the topic partitions that have no ledger; drop the others."""
        if not topics:
            return []
        empty = self._group.without_rows(topics)
        self._without_ledgers.update(empty)
        for topic in {*topics} - {*empty}:
            again = AskAgainError("The broker gave no reason for a refusal.")
            self._group.drop(topic, again)
        return empty

    def _check_durable(self, topics: list[str]) -> None:
        """Drop consumers whose subscription is not durable, to be made again.

        A broker that has not forgotten the non-durable question may make the durable
        subscription that follows it non-durable, too; rarely, and silently.
        """
        with ConsumerSet(self._pool, TopicConsumer) as probes:
            probes.connect(topics)
            for topic, reply in probes.ask(self._ask_existing).items():
                if topic in self._group.members and not has_durable_namesake(reply):
                    again = AskAgainError(
                        "The broker created the subscription as non-durable; trying "
                        "again."
                    )
                    self._group.drop(topic, again)

    def _ask_existing(self, consumer: TopicConsumer) -> Request[pb.CommandSuccess]:
        return consumer.subscribe(SubscribeRequest(self.subscription, start=EARLIEST))

    # -- acknowledgements --------------------------------------------------------------

    def _ask_last(self, topics: list[str], replies: dict[str, TopicPositions]) -> None:
        """Add what brokers say of cursors and ends to the replies."""
        replies.update(self._group.step(lambda member: member.get_last(), topics))

    def _acknowledge(
        self,
        read: Mapping[str, LastRead],
        topics: Iterable[str],
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, MessageId]:
        """Acknowledge what was read, as far as no open message begins there.

        Args:
            read: The last position read of each topic partition.
            topics: Those to acknowledge.
            meanwhile: Called after all acknowledgements were sent.

        Returns:
            How far each topic partition is to be acknowledged, whether or not it was
            now; those for which that is unknown for now are left out.
        """
        members = self._group.members
        to_acknowledge = {
            topic: read[topic].whole_entry
            for topic in topics
            if topic in members and members[topic].is_open
        }
        done = {
            topic: members[topic].acknowledged or EARLIEST for topic in to_acknowledge
        }
        due = {
            topic: position
            for topic, position in to_acknowledge.items()
            if position.entry_id >= 0 and position.position > done[topic].position
        }
        if self._guard is not None and self._durable:
            connections = {topic: members[topic].connection for topic in due}
            limits = self._guard.limit(due, done, connections)
            for topic in due:
                self._held.discard(topic)
                if topic not in limits:
                    del to_acknowledge[topic]
                elif limits[topic] != due[topic]:
                    to_acknowledge[topic] = limits[topic]
                    self._held.add(topic)
            due = {
                topic: limit
                for topic, limit in limits.items()
                if limit.position > done[topic].position
            }
        replies = self._group.ask(
            lambda member: member.acknowledge(due[member.topic]),
            due,
            timeout_s=self._pool.options.patience.acknowledge_s,
            meanwhile=meanwhile,
        )
        for topic, reply in replies.items():
            if isinstance(reply, PulsarSparkError):
                logger.debug("%s: acknowledgement failed: %s", topic, reply)
            elif topic in members:  # not dropped meanwhile
                members[topic].acknowledged = due[topic]
        return to_acknowledge

    def _warn_behind(self, read: Mapping[str, MessageId]) -> None:
        # Once for each topic partition, or the log would be full of them.
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
        if has_passing_namesake(error):
            # Our own question, most likely: a busy broker takes longer to forget it.
            return error.saying(error.message, retriable=True)
        if not isinstance(error, BrokerError) or error.code != "ConsumerBusy":
            return error
        if is_of_another_type(error):
            return error.saying(
                f"{topic}: the subscription {self.subscription} is shared by its "
                "consumers (Shared, Key_Shared or Failover). A query needs one of its "
                "own: it acknowledges everything up to a position. Stop the other "
                "consumers, or choose another `predefinedSubscription`.",
                retriable=False,
            )
        if topic not in self._warned_busy:
            self._warned_busy.add(topic)
            logger.warning(
                "%s: another consumer has the subscription %s; waiting for it to go.",
                topic,
                self.subscription,
            )
        return error.saying(
            f"{topic}: another consumer has the subscription {self.subscription}, and "
            "did not let go of it in time. Is this query running twice, or does "
            "another program use the subscription? Stop that, or choose another "
            "`predefinedSubscription`."
        )

    def _absent(
        self, answers: Mapping[str, CursorStatus | None | PulsarSparkError]
    ) -> dict[str, CursorStatus | None]:
        """Return the status of topic partitions that do not exist, yet or any more."""
        absent = [t for t, a in answers.items() if isinstance(a, TopicNotFoundError)]
        if not absent:
            return {}
        counted = self._lookup.counted_partitions(absent)
        not_yet = CursorStatus(NOTHING_READ, None, is_kept=True)
        return {topic: not_yet if topic in counted else None for topic in absent}


def _is_done(status: CursorStatus | None, read: LastRead) -> bool:
    """Return whether nothing is left to read."""
    return status is None or status.last is None or read.has_read(status.last)


class _Member(TopicConsumer):
    """A consumer of the subscription.

    Attributes:
        acknowledged: The last position that was acknowledged through it.
        ahead: Entries that were looked at and not yet passed by.
    """

    __slots__ = ("_arrived", "_permits", "_unreported", "acknowledged", "ahead")

    def __init__(
        self, topic: str, connection: Connection, arrived: threading.Condition
    ) -> None:
        super().__init__(topic, connection)
        self.acknowledged: MessageId | None = None
        # No lists: few of a hundred thousand have any.
        self.ahead: tuple[PeekedEntry, ...] = ()
        self._unreported: tuple[PeekedEntry, ...] = ()
        self._permits = 0  # what the broker may still send, in messages
        self._arrived = arrived

    def acknowledge(self, position: MessageId) -> Request[pb.CommandAckResponse]:
        """Build a cumulative ACK that is answered."""
        return commands.ack_cumulative(self.consumer_id, position)

    def stats(self) -> Request[pb.CommandConsumerStatsResponse]:
        """Build CONSUMER_STATS."""
        return commands.consumer_stats(self.consumer_id)

    def unsubscribe(self) -> Request[pb.CommandSuccess]:
        """Build UNSUBSCRIBE."""
        return commands.unsubscribe(self.consumer_id)

    def ask_for_entries(self, permits: int) -> None:
        """Grant permits for a few entries, unless permits are left."""
        with self._arrived:
            if self._permits > 0:
                return
            missing = permits - self._permits
            self._permits = permits
        # A broken connection shows in the next visit.
        with contextlib.suppress(PulsarSparkError):
            self.connection.grant(self.consumer_id, missing)

    def pass_by(self, after: LastRead) -> None:
        """Forget entries up to a position. Call with the condition held."""
        passed = 0
        for entry in self.ahead:
            if not self._is_passed(entry, after):
                break
            passed += 1
        self.ahead = self.ahead[passed:]

    @staticmethod
    def _is_passed(entry: PeekedEntry, after: LastRead) -> bool:
        if entry.position == after.position:
            return after.batch_index < 0
        return entry.position < after.position

    def take_unreported(self) -> tuple[PeekedEntry, ...]:
        """Return the entries that came since the last call."""
        with self._arrived:
            entries, self._unreported = self._unreported, ()
        return entries

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Note entries and their sizes."""
        seen = [_see(delivery) for delivery in deliveries]
        with self._arrived:
            for _, charge in seen:
                self._permits = as_broker_counts(self._permits - charge)
            entries = tuple(entry for entry, _ in seen)
            self.ahead += entries
            self._unreported += entries
            self._arrived.notify_all()
            if max(len(self.ahead), len(self._unreported)) > _MOST_AHEAD:
                raise ProtocolError(
                    f"{self.topic}: more than {_MOST_AHEAD} entries came where a few "
                    "had been asked for."
                )

    def closed(self, error: PulsarSparkError | None) -> None:
        """Wake threads that wait for entries; the next visit makes a new consumer."""
        super().closed(error)
        with self._arrived:
            self._arrived.notify_all()


def _have_come(members: Iterable[_Member]) -> bool:
    return all(member.ahead or not member.is_open for member in members)


def _see(delivery: Delivery) -> tuple[PeekedEntry, int]:
    """Return an entry's position and size, and the number of permits used up."""
    size_bytes = len(delivery.headers_and_payload)
    rows: float = 1
    charge = 1
    first_index = 0
    is_chunk = False
    published_ms = None
    stored = entry_of(delivery)
    if stored is not None:
        charge = stored.charged_messages
        rows = stored.likely_rows
        is_chunk = stored.is_chunk
        published_ms = stored.metadata.publish_time
    if delivery.ack_set:
        pending = sum(
            commands.to_unsigned(word) << (64 * index)
            for index, word in enumerate(delivery.ack_set)
        )
        charge = pending.bit_count()
        first_index = (pending & -pending).bit_length() - 1 if pending else 0
    entry = PeekedEntry(
        (delivery.ledger_id, delivery.entry_id),
        first_index,
        EntrySize(rows, size_bytes),
        is_chunk,
        published_ms,
    )
    return entry, charge


def _is_behind(cursor: LastRead, position: MessageId) -> bool:
    """Return whether an acknowledgement is missing; a ledger's beginning needs none."""
    return position.entry_id >= 0 and cursor.position < position.position
