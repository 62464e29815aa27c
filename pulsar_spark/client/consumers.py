"""Consumers of many topic partitions that go through the same steps together.

A step sends one request for each of them and then waits for all the replies, so that a
thousand partitions cost one round trip, and not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import Request, TopicLookup, gather, send_all
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import BrokerError, PulsarSparkError, TransportError
from pulsar_spark.wire import commands
from pulsar_spark.wire.protocol import Delivery


class TopicConsumer:
    """A consumer of one topic partition and its inbox. Builds requests about itself.

    It takes nothing unless a subclass says otherwise.

    Attributes:
        is_open: Whether the broker still has it, as far as we know.
    """

    def __init__(self, topic: str, connection: Connection) -> None:
        self.topic = topic
        self.connection = connection
        self.consumer_id = 0
        self.is_open = True

    def subscribe(self, subscription: str, *, durable: bool, **where: Any) -> Request:
        """SUBSCRIBE, by a new consumer id; ``where`` as ``commands.subscribe``."""
        self.connection.detach(self.consumer_id)
        self.is_open = True
        self.consumer_id = self.connection.attach(self)
        return partial(
            commands.subscribe,
            topic=self.topic,
            subscription=subscription,
            consumer_id=self.consumer_id,
            durable=durable,
            **where,
        )

    def seek(self, time_ms: int) -> Request:
        """SEEK to a publish time."""
        return partial(
            commands.seek_to_publish_time, self.consumer_id, publish_time_ms=time_ms
        )

    def get_last(self) -> Request:
        """GET_LAST_MESSAGE_ID."""
        return partial(commands.get_last_message_id, self.consumer_id)

    def close(self) -> Request:
        """CLOSE_CONSUMER."""
        return partial(commands.close_consumer, self.consumer_id)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing is asked for, so nothing comes."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """The next request on it will fail, or, after a seek, is a new subscribe."""
        self.is_open = False


C = TypeVar("C", bound=TopicConsumer)


class ConsumerGroup(Generic[C]):
    """Some consumers, by topic partition.

    Args:
        pool: The cluster's connections.
        make: Makes a consumer of a topic partition on a connection.

    Attributes:
        members: The consumers that have not failed.
        failures: Why others have; whoever reads it clears it.
    """

    def __init__(
        self, pool: ConnectionPool, make: Callable[[str, Connection], C]
    ) -> None:
        self._pool = pool
        self._make = make
        self._timeout_s = pool.options.operation_timeout_s
        self._lookup = TopicLookup(pool)
        self.members: dict[str, C] = {}
        self.failures: dict[str, PulsarSparkError] = {}

    def connect(self, topics: Iterable[str]) -> None:
        """Makes consumers of these, each on the broker that serves its topic."""
        found = self._pool.get_all(self._lookup.brokers(topics))
        for topic, connection in found.items():
            if isinstance(connection, Connection):
                self.members[topic] = self._make(topic, connection)
            else:
                self.failures[topic] = connection

    def step(
        self,
        what: str,
        request: Callable[[C], Request],
        topics: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Sends a request for each member, then waits for all the replies.

        Whose request fails is no longer a member.

        Args:
            what: Name of the request, for messages.
            request: Builds it.
            topics: Only for those of these that are members.

        Returns:
            The reply to each member.
        """
        replies = self.ask(what, request, topics)
        for topic, reply in replies.items():
            if isinstance(reply, PulsarSparkError):
                self.drop(topic, reply)
        return {t: reply for t, reply in replies.items() if t in self.members}

    def ask(
        self,
        what: str,
        request: Callable[[C], Request],
        topics: Iterable[str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """As ``step``, but gives errors among the replies, and nobody drops out."""
        requests = {}
        for topic in list(self.members) if topics is None else topics:
            if (member := self.members.get(topic)) is not None:
                requests[topic] = member.connection, request(member)
        return gather(send_all(requests), timeout_s or self._timeout_s, what)

    def drop(self, topic: str, error: PulsarSparkError) -> None:
        """Gives a member up."""
        member = self.members.pop(topic)
        # Without this a slow SUBSCRIBE could come true after all, for nobody.
        member.connection.tell(member.close())
        member.connection.detach(member.consumer_id)
        if isinstance(error, BrokerError):
            error = error.about(topic)
        elif isinstance(error, TransportError):
            error = TransportError(f"{topic}: {error.message}", broker=error.broker)
        self.failures[topic] = error

    def close(self, timeout_s: float | None = None) -> None:
        """Closes all members; whether the broker answers makes no difference."""
        self.ask("CLOSE_CONSUMER", lambda member: member.close(), timeout_s=timeout_s)
        for member in self.members.values():
            member.connection.detach(member.consumer_id)
        self.members.clear()

    def take_failures(self) -> Mapping[str, PulsarSparkError]:
        """What has failed since the last time."""
        failures, self.failures = self.failures, {}
        return failures
