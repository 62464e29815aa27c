"""Where topic partitions begin and end, for many of them at once.

A reader that never takes a message is enough to learn both: the broker answers
GET_LAST_MESSAGE_ID with the last message that can be delivered and with the reader's
own place. Such readers are not durable, so nothing of them stays behind.

Seen on 4.0.7, for a topic whose ledger 7 (8 entries) is followed by ledger 11::

    reader from    its place (mark-delete)
    earliest       7:-1     the entry before the first one stored
    7:3            7:2      the entry before the one asked for
    11:0           7:7
    7:3, ledger 7 trimmed   11:-1    not before 7:3, so 7:3 is gone
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup, gather
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.retry import Retry, ask_all
from pulsar_spark.errors import (
    BrokerError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.plan import TopicPositions
from pulsar_spark.wire import commands
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.protocol import Delivery

#: Makes a frame, given the request id.
_Request = Callable[..., bytes]


class PositionLookup:
    """Finds positions.

    Args:
        pool: The cluster's connections.
        subscription_prefix: Beginning of the names of the readers.
        read_compacted: Whether the readers are to see the compacted topic.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        subscription_prefix: str,
        read_compacted: bool = False,
    ) -> None:
        self._pool = pool
        self._options = pool.options
        self._lookup = TopicLookup(pool)
        self._prefix = subscription_prefix
        self._read_compacted = read_compacted

    def from_message_ids(
        self, starts: Mapping[str, MessageId]
    ) -> dict[str, TopicPositions]:
        """The positions of readers that start at these messages, inclusive.

        A partition that its topic counts but that does not exist yet is empty, and
        nothing comes before it: EARLIEST.

        Args:
            starts: Start of each topic partition, by full name.

        Raises:
            TopicNotFoundError: A topic partition does not exist.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        return ask_all(
            starts, lambda topics: self._round(topics, starts), self._retry()
        )

    def from_times(self, times_ms: Mapping[str, int]) -> dict[str, TopicPositions]:
        """The positions of readers that start at the first entry of that time or later.

        The entry counts as a whole, with the time of its first message, or with the
        broker's time where brokers keep that.

        Args:
            times_ms: Milliseconds since 1970 for each topic partition, by full name.

        Raises:
            As :meth:`from_message_ids`.
        """
        return ask_all(
            times_ms, lambda topics: self._time_round(topics, times_ms), self._retry()
        )

    def _time_round(
        self, topics: list[str], times_ms: Mapping[str, int]
    ) -> dict[str, TopicPositions | PulsarSparkError]:
        """Asks twice, because a broker may forget a reader's place after its seek.

        A reader that was forgotten (the topic moved in between) begins at its initial
        position instead. Two that would begin at opposite ends cannot agree by mistake.
        """
        earliest, latest = (
            self._round(
                topics, dict.fromkeys(topics, EARLIEST), _TimeSeek(times_ms, initial)
            )
            for initial in (InitialPosition.EARLIEST, InitialPosition.LATEST)
        )
        return {topic: _agreed(earliest[topic], latest[topic]) for topic in topics}

    def _retry(self) -> Retry:
        return Retry(self._options, self._options.lookup_timeout_s)

    def _round(
        self,
        topics: list[str],
        starts: Mapping[str, MessageId],
        seek: _TimeSeek | None = None,
    ) -> dict[str, TopicPositions | PulsarSparkError]:
        """Asks about the topics once, each step for all of them together."""
        probes = _Probes(self._options.operation_timeout_s)
        for topic, address in self._lookup.brokers(topics).items():
            if isinstance(address, PulsarSparkError):
                probes.answers[topic] = address
                continue
            try:
                connection = self._pool.get(address)
            except PulsarSparkError as error:
                probes.answers[topic] = error
            else:
                probes.open[topic] = _Probe(
                    topic, connection, f"{self._prefix}-{uuid.uuid4()}"
                )
        probes.step(
            "SUBSCRIBE",
            lambda probe: probe.subscribe(
                start=starts[probe.topic], read_compacted=self._read_compacted
            ),
        )
        if seek is not None:
            probes.step("SEEK", lambda probe: probe.seek(seek.times_ms[probe.topic]))
            # The broker closes a reader that has sought but keeps its place for who
            # subscribes by the same name without saying where to start.
            probes.step(
                "SUBSCRIBE",
                lambda probe: probe.subscribe(initial_position=seek.initial_position),
            )
        last = probes.step("GET_LAST_MESSAGE_ID", lambda probe: probe.get_last())
        probes.step("CLOSE_CONSUMER", lambda probe: probe.close())
        probes.detach()
        for topic, reply in last.items():
            probes.answers.setdefault(topic, read_positions(reply))
        return probes.answers | self._never_written(probes.answers)

    def _never_written(
        self, answers: Mapping[str, TopicPositions | PulsarSparkError]
    ) -> dict[str, TopicPositions]:
        """The positions of partitions that do not exist yet."""
        missing = [
            topic
            for topic, answer in answers.items()
            if isinstance(answer, TopicNotFoundError)
        ]
        counted = self._lookup.counted_partitions(missing)
        return {topic: TopicPositions(EARLIEST, None) for topic in counted}


@dataclass(frozen=True)
class _TimeSeek:
    """Where to seek to, and where a reader begins whose place was forgotten."""

    times_ms: Mapping[str, int]
    initial_position: InitialPosition


def _agreed(
    earliest: TopicPositions | PulsarSparkError,
    latest: TopicPositions | PulsarSparkError,
) -> TopicPositions | PulsarSparkError:
    for positions in (earliest, latest):
        if isinstance(positions, PulsarSparkError):
            return positions
    assert isinstance(earliest, TopicPositions)
    assert isinstance(latest, TopicPositions)
    if earliest.before == latest.before or (earliest.is_empty and latest.is_empty):
        return latest
    return TransportError("The topic moved to another broker during a seek.")


def read_positions(reply: Any) -> TopicPositions:
    """What a CommandGetLastMessageIdResponse says."""
    last = commands.from_message_id_data(reply.last_message_id)
    before = commands.from_message_id_data(reply.consumer_mark_delete_position)
    # An empty or fully trimmed topic answers -1:-1; a ledger that holds nothing that
    # can be delivered answers with its entry -1.
    return TopicPositions(before, last if last.entry_id >= 0 else None)


class _Probe:
    """A reader that takes nothing, its own inbox. Builds requests about itself."""

    def __init__(self, topic: str, connection: Connection, subscription: str) -> None:
        self.topic = topic
        self.connection = connection
        self.consumer_id = 0
        self._subscription = subscription

    def subscribe(self, **where: Any) -> _Request:
        self.connection.detach(self.consumer_id)
        self.consumer_id = self.connection.attach(self)
        return partial(
            commands.subscribe,
            topic=self.topic,
            subscription=self._subscription,
            consumer_id=self.consumer_id,
            durable=False,
            **where,
        )

    def seek(self, time_ms: int) -> _Request:
        return partial(
            commands.seek_to_publish_time, self.consumer_id, publish_time_ms=time_ms
        )

    def get_last(self) -> _Request:
        return partial(commands.get_last_message_id, self.consumer_id)

    def close(self) -> _Request:
        return partial(commands.close_consumer, self.consumer_id)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing is asked for, so nothing comes."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """The next request on it will fail, or, after a seek, is a new subscribe."""


class _Probes:
    """Many probes that go through the same steps together.

    Attributes:
        open: The probes that have not failed, by topic partition.
        answers: Errors of those that have.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.open: dict[str, _Probe] = {}
        self.answers: dict[str, TopicPositions | PulsarSparkError] = {}

    def step(self, what: str, request: Callable[[_Probe], _Request]) -> dict[str, Any]:
        """Sends a request for each open probe, then waits for all the replies."""
        sent = {
            topic: (probe.connection, probe.connection.request(request(probe)))
            for topic, probe in self.open.items()
        }
        replies = gather(sent, self._timeout_s, what)
        for topic, reply in replies.items():
            if isinstance(reply, PulsarSparkError):
                self._failed(topic, reply)
        return {topic: replies[topic] for topic in self.open}

    def _failed(self, topic: str, error: PulsarSparkError) -> None:
        probe = self.open.pop(topic)
        # Without this a slow SUBSCRIBE could come true after all, for nobody.
        probe.connection.request(probe.close())
        probe.connection.detach(probe.consumer_id)
        if isinstance(error, BrokerError):
            error = error.about(topic)
        elif isinstance(error, TransportError):
            error = TransportError(f"{topic}: {error.message}", broker=error.broker)
        self.answers[topic] = error

    def detach(self) -> None:
        """Lets go of all the probes."""
        for probe in self.open.values():
            probe.connection.detach(probe.consumer_id)
