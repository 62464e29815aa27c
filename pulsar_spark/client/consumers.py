# SPDX-License-Identifier: Apache-2.0
"""Consumers of many topic partitions that advance through the same steps.

A step sends one request for each of them and then waits for all the replies, so that a
thousand partitions cost one round trip, and not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import gather, send_all, tell_all
from pulsar_spark.errors import (
    AskAgainError,
    BrokerError,
    PulsarSparkError,
    TransportError,
)
from pulsar_spark.message_id import EARLIEST, LATEST, TopicPositions
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import (
    InitialPosition,
    ReplyT,
    Request,
    SubscribeRequest,
)
from pulsar_spark.wire.protocol import Delivery
from pulsar_spark.wire.refusals import lacks_ledgers
from spark_topics.client.retry import ASKED_TOGETHER


class TopicConsumer:
    """A consumer of a topic partition, with its inbox. Builds requests about itself.

    It takes nothing unless a subclass says otherwise.

    Attributes:
        is_open: Whether the broker still has it, as far as we know.
    """

    # A plan may have a hundred thousand of them.
    __slots__ = ("connection", "consumer_id", "is_open", "topic")

    def __init__(self, topic: str, connection: Connection) -> None:
        self.topic = topic
        self.connection = connection
        self.consumer_id = 0
        self.is_open = True

    def subscribe(self, how: SubscribeRequest) -> Request[pb.CommandSuccess]:
        """Build SUBSCRIBE with a new consumer id."""
        self.connection.detach(self.consumer_id)
        self.is_open = True
        self.consumer_id = self.connection.attach(self)
        return commands.subscribe(
            self.topic,
            self.consumer_id,
            how,
            survives_migration=self.connection.supports_scalable_topics,
        )

    def seek(self, time_ms: int) -> Request[pb.CommandSuccess]:
        """Build SEEK to a publish time."""
        return commands.seek_to_publish_time(self.consumer_id, time_ms)

    def get_last(self) -> Request[TopicPositions]:
        """Build GET_LAST_MESSAGE_ID."""
        return commands.get_last_message_id(self.consumer_id)

    def close(self) -> Request[pb.CommandSuccess]:
        """Build CLOSE_CONSUMER."""
        return commands.close_consumer(self.consumer_id)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing: nothing is asked for, so nothing comes."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """Note the end: the next request fails, or subscribes again after a seek."""
        self.is_open = False


C = TypeVar("C", bound=TopicConsumer)
_SetT = TypeVar("_SetT", bound="ConsumerSet[Any]")


class ConsumerSet(Generic[C]):
    """Independent consumers, by topic partition.

    As a context manager it closes them at the end.

    Args:
        pool: The cluster's connections.
        make: Makes a consumer of a topic partition on a connection.
        waits_for_end: Whether `close` waits until brokers have closed the consumers.
            Only those whose subscription someone else may want next need that, for a
            round trip.

    Attributes:
        members: The consumers that have not failed.
        failures: Why the others have failed; anyone who reads it clears it.
        without_ledgers: The members that `subscribe` has put at the end of a topic
            partition without any ledger. Brokers cannot seek there.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        make: Callable[[str, Connection], C],
        *,
        waits_for_end: bool = True,
    ) -> None:
        self._pool = pool
        self._make = make
        self._waits_for_end = waits_for_end
        self._timeout_s = pool.options.operation_timeout_s
        self._lookup = TopicLookup(pool)
        self.members: dict[str, C] = {}
        self.failures: dict[str, PulsarSparkError] = {}
        self.without_ledgers: set[str] = set()

    def __enter__(self: _SetT) -> _SetT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(
        self,
        names: Iterable[str],
        topic_of: Callable[[str], str] | None = None,
        *,
        known: Mapping[str, Connection] | None = None,
    ) -> None:
        """Create consumers, each on the broker that serves its topic.

        Args:
            names: Names of the consumers: topic partitions, unless ``topic_of`` is
                given.
            topic_of: Returns the topic partition that a name means, where several
                consumers share one.
            known: Connections to the brokers that serve topic partitions now, which
                saves to look these up.
        """
        topics = {name: topic_of(name) if topic_of else name for name in names}
        distinct = dict.fromkeys(topics.values())
        connections: dict[str, Connection | PulsarSparkError] = {
            topic: connection
            for topic, connection in (known or {}).items()
            if topic in distinct and connection.is_open
        }
        unknown = [topic for topic in distinct if topic not in connections]
        if unknown:
            connections |= self._pool.get_all(self._lookup.likely_brokers(unknown))
        for name, topic in topics.items():
            connection = connections[topic]
            if isinstance(connection, Connection):
                self.members[name] = self._make(name, connection)
            else:
                self.failures[name] = connection

    def step(
        self,
        request: Callable[[C], Request[ReplyT]],
        topics: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, ReplyT]:
        """Send a request for each member, then wait for all the replies.

        Members whose request fails are dropped.

        Args:
            request: Builds it.
            topics: The members to send it for, None for all; names of others are
                ignored.
            timeout_s: Longest time without any reply; None for that of an operation.
            meanwhile: Called after all requests were sent.

        Returns:
            The reply to each member.
        """
        return self._replies(
            self.ask(request, topics, timeout_s=timeout_s, meanwhile=meanwhile)
        )

    def _replies(
        self, answers: Mapping[str, ReplyT | PulsarSparkError]
    ) -> dict[str, ReplyT]:
        """Return the replies among the answers, and drop the other members."""
        replies: dict[str, ReplyT] = {}
        for name, answer in answers.items():
            if isinstance(answer, PulsarSparkError):
                self.drop(name, answer)
            else:
                replies[name] = answer
        return replies

    def subscribe(
        self,
        how: Callable[[C], SubscribeRequest],
        topics: Iterable[str] | None = None,
    ) -> dict[str, pb.CommandSuccess]:
        """Subscribe readers, as a step, also to topic partitions that have no ledger.

        A terminated topic partition without rows has no ledger once a broker has loaded
        it again. The broker refuses readers that begin at its beginning, see
        ``wire.refusals.lacks_ledgers``. The end is the same place there.

        Args:
            how: Returns how a member is to subscribe.
            topics: The members, as of ``step``.

        Returns:
            The reply to each member.
        """
        answers = self.ask(lambda member: member.subscribe(how(member)), topics)
        refused = [
            name
            for name, answer in answers.items()
            if lacks_ledgers(answer) and _begins(how(self.members[name]))
        ]
        if refused:
            empty = self.without_rows(refused)
            self.without_ledgers.update(empty)
            answers |= self.ask(
                lambda member: member.subscribe(_at_end(how(member))), empty
            )
        return self._replies(answers)

    def reader_name(self) -> str:
        """Return a new name for a subscription that is not durable."""
        return self._pool.reader_name()

    def without_rows(self, names: Iterable[str]) -> list[str]:
        """Return those members whose topic partitions have no row."""
        topics = {name: self.members[name].topic for name in names}
        ends = positions_at_end(self._pool, topics.values())
        return [
            name
            for name, topic in topics.items()
            if isinstance(end := ends[topic], TopicPositions) and end.last is None
        ]

    def ask(
        self,
        request: Callable[[C], Request[ReplyT]],
        topics: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, ReplyT | PulsarSparkError]:
        """Do as ``step``, but return errors among the replies and drop no member."""
        asked_topics = self.members if topics is None else topics
        asked = [topic for topic in asked_topics if topic in self.members]
        answers: dict[str, ReplyT | PulsarSparkError] = {}
        for first in range(0, len(asked), ASKED_TOGETHER) or (0,):
            members = {
                topic: self.members[topic]
                for topic in asked[first : first + ASKED_TOGETHER]
            }
            sent = send_all(
                {topic: member.connection for topic, member in members.items()},
                {topic: request(member) for topic, member in members.items()},
            )
            if first + ASKED_TOGETHER >= len(asked):
                meanwhile()
            replies = gather(sent, timeout_s or self._timeout_s)
            self._pool.forget_brokers(
                members[topic].topic
                for topic, reply in replies.items()
                if isinstance(reply, PulsarSparkError)
            )
            answers |= replies
        return answers

    def drop(self, topic: str, error: PulsarSparkError) -> None:
        """Give a member up."""
        member = self.members.pop(topic)
        # Without this a slow SUBSCRIBE could come true after all, for nobody.
        member.connection.tell(member.close())
        member.connection.detach(member.consumer_id)
        if isinstance(error, (BrokerError, TransportError, AskAgainError)):
            error = error.about(member.topic)
        self.failures[topic] = error

    def close(self) -> None:
        """Close all members; whether the broker answers makes no difference."""
        if self._waits_for_end:
            timeout_s = min(self._timeout_s, self._pool.options.patience.close_s)
            self.ask(lambda member: member.close(), timeout_s=timeout_s)
        else:
            tell_all(
                {name: member.connection for name, member in self.members.items()},
                {name: member.close() for name, member in self.members.items()},
            )
        for member in self.members.values():
            member.connection.detach(member.consumer_id)
        self.members.clear()

    def take_failures(self) -> Mapping[str, PulsarSparkError]:
        """Return what has failed since the last time."""
        failures, self.failures = self.failures, {}
        return failures


def positions_at_end(
    pool: ConnectionPool, topics: Iterable[str]
) -> dict[str, TopicPositions | PulsarSparkError]:
    """Return the positions of a reader at the end of each topic partition.

    A topic partition that cannot be asked now has an error instead.

    Args:
        pool: The cluster's connections.
        topics: Full names.
    """
    with ConsumerSet(pool, TopicConsumer, waits_for_end=False) as readers:
        readers.connect(topics)
        readers.step(
            lambda reader: reader.subscribe(
                SubscribeRequest(pool.reader_name(), start=LATEST)
            )
        )
        replies = readers.step(lambda reader: reader.get_last())
        return {**readers.take_failures(), **replies}


def _begins(how: SubscribeRequest) -> bool:
    """Return whether a reader begins at the beginning of its topic partition."""
    if how.start is None:
        return how.initial_position is InitialPosition.EARLIEST
    return how.start == EARLIEST


def _at_end(how: SubscribeRequest) -> SubscribeRequest:
    """Return how to read from the end instead of the beginning."""
    if how.start is None:
        return replace(how, initial_position=InitialPosition.LATEST)
    return replace(how, start=LATEST)
