# SPDX-License-Identifier: Apache-2.0
"""Attaching the producers of a task, at first and again.

A producer is looked up, and attached by PRODUCER. The broker may let the producer queue
for exclusive access, or say where an administrator migrated the topic, or that the
segment is sealed. All of this happens in the task's own thread.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pending import Pending
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.client.producing.refusals import TERMINATED, explained
from pulsar_spark.client.producing.states import TopicProducer
from pulsar_spark.client.requests import (
    gather,
    gather_unheard,
    send_all,
    unanswered,
)
from pulsar_spark.errors import (
    AskAgainError,
    BrokerError,
    PulsarSparkError,
    TopicMigratedError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.topics import is_segment, topic_of
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode, Request
from pulsar_spark.wire.layout import Layout
from pulsar_spark.wire.outgoing import Encryption
from pulsar_spark.wire.refusals import has_exclusive_producer
from spark_topics.client.retry import Retry

logger = logging.getLogger("pulsar_spark.client")

#: Replies to PRODUCER that are to come, or why nothing was sent, by topic partition.
_Replies = dict[str, Pending[pb.CommandProducerSuccess] | PulsarSparkError]


class Resend(enum.Enum):
    """What to do with entries whose receipt a broken connection may have swallowed."""

    #: Send them again: a row may be stored twice, none is lost.
    ALWAYS = "always"
    #: Send them again where the broker finds duplicates, else give up.
    IF_DEDUPLICATED = "if deduplicated"
    #: Drop them.
    NEVER = "never"


@dataclass(frozen=True)
class ProducerSettings:
    """How the producers of a task attach and send.

    Attributes:
        name: Name of the producers, one for each topic partition; "" for names that
            brokers make up.
        access_mode: Whom they share their topics with.
        properties: Shown in the topics' statistics.
        send_timeout_s: Longest silence of a broker that has entries to answer for, 0
            for no limit; None: as long as the answer to a request may take.
        repeats_ids: Whether another producer of this name may give other rows the same
            sequence ids.
        resend: What to do after a connection broke.
        transactional: Whether they send in a transaction.
        follows_migration: Whether they go along with a topic that is migrated to
            another cluster: that knows nothing of transactions and duplicates of here.
        waits: Whether they try for as long as a turn may take to come where others have
            a topic to themselves.
        before_send: Called before entries are sent, and before each wait for room;
            raises if it is too late.
        before_resend: The same where they are sent again.
        new_encryption: Makes what encrypts the payloads of one producer; None where
            they stay as they are.
    """

    name: str = ""
    access_mode: ProducerAccessMode = ProducerAccessMode.SHARED
    properties: Mapping[str, str] = field(default_factory=dict)
    send_timeout_s: float | None = None
    repeats_ids: bool = False
    resend: Resend = Resend.ALWAYS
    transactional: bool = False
    follows_migration: bool = False
    waits: bool = False
    before_send: Callable[[], None] = lambda: None
    before_resend: Callable[[], None] = lambda: None
    new_encryption: Callable[[], Encryption] | None = None


class Attacher:
    """Attaches the producers of a task. For one thread only.

    Args:
        pool: The cluster's connections.
        settings: How to attach.
    """

    def __init__(self, pool: ConnectionPool, settings: ProducerSettings) -> None:
        self._pool = pool
        self._options = pool.options
        self._patience = pool.options.patience
        self._settings = settings
        # Hosts of the new cluster, by topic that was migrated.
        self._migrated: dict[str, tuple[str, ...]] = {}

    def attach(
        self, producers: Iterable[TopicProducer], retry: Retry
    ) -> dict[str, pb.CommandProducerSuccess | None | PulsarSparkError]:
        """Send PRODUCER for each; return PRODUCER_SUCCESS or an error, by topic.

        None is for a segment that is sealed by now: its producer has ended.
        Producers that a broker lets wait for their turn wait for a while. ``retry``
        starts over after that, so that they, and those whose connection breaks
        in the meantime, can queue up again.
        """
        by_topic = {producer.topic: producer for producer in producers}
        connections, sent = self._send(by_topic)

        def send_again(silent: list[str], silence_s: float) -> None:
            is_long = silence_s > self._patience.unheard_s
            self._send_unheard(by_topic, connections, sent, silent, again=is_long)

        answers = gather_unheard(
            sent,
            self._options.operation_timeout_s,
            self._patience.unheard_s,
            send_again,
        )
        until = time.monotonic() + self._patience.place_s
        while queued := [topic for topic in sent if _is_queued(sent[topic])]:
            turn_s = self._turn_s([by_topic[topic] for topic in queued])
            left_s = min(turn_s, until - time.monotonic())
            if left_s <= 0:
                break
            step_s = min(left_s, self._options.operation_timeout_s)
            answers = gather(sent, step_s)
            retry.restart()
        for topic in queued:
            if isinstance(reply := sent[topic], Pending):
                reply.connection.drop(reply)  # no answer follows CLOSE_PRODUCER
            answers[topic] = self._left_queue(by_topic[topic])
        for topic, answer in answers.items():
            producer, connection = by_topic[topic], connections[topic]
            if not isinstance(answer, PulsarSparkError):
                producer.attached(answer)
            elif isinstance(connection, Connection):
                answers[topic] = self._not_attached(producer, connection, answer)
                is_waiting = self._settings.waits and has_exclusive_producer(answer)
                if is_waiting and self._turn_s([producer]) > 0:
                    retry.restart()
        # The next PRODUCER waits for its lookup.
        self._pool.forget_brokers(
            topic
            for topic, answer in answers.items()
            if isinstance(answer, PulsarSparkError)
        )
        sealed = self._end_sealed(by_topic, answers)
        return {
            topic: None if topic in sealed else answer
            for topic, answer in answers.items()
        }

    def _send(
        self, producers: Mapping[str, TopicProducer]
    ) -> tuple[dict[str, Connection | PulsarSparkError], _Replies]:
        """Send PRODUCER to the brokers that serve the topic partitions.

        Returns:
            The connections, and the replies to come, by topic.
        """
        connections, sent = self._send_early(producers)
        serving = self._pool.get_all(self._brokers(producers))
        moved = {
            topic: connection
            for topic, connection in serving.items()
            if connection != connections.get(topic)
        }
        early = {topic: sent[topic] for topic in connections.keys() - moved}
        self._send_again(producers, connections, sent, moved)
        if silent := unanswered(early, self._patience.early_s):
            self._send_unheard(producers, connections, sent, silent, again=True)
        return connections, sent

    def _send_to(
        self,
        producers: Mapping[str, TopicProducer],
        connections: Mapping[str, Connection | PulsarSparkError],
    ) -> _Replies:
        """Send PRODUCER where there is a connection; return the replies to come."""
        requests = {
            topic: self._request(producers[topic], connection)
            for topic, connection in connections.items()
            if isinstance(connection, Connection)
        }
        return send_all(connections, requests)

    def _send_early(
        self, producers: Mapping[str, TopicProducer]
    ) -> tuple[dict[str, Connection | PulsarSparkError], _Replies]:
        """Send PRODUCER to the brokers that most likely still serve topic partitions.

        The topic partitions have to be looked up all the same: brokers (4.0.7, 4.2.4)
        leave PRODUCER unanswered where they do not serve the topic any more.

        Returns:
            The connections, and the replies to come, by topic.
        """
        new = [
            topic
            for topic, producer in producers.items()
            if producer.connection is None and topic not in self._migrated
        ]
        opened = self._pool.get_all(self._pool.likely_brokers(new))
        connections: dict[str, Connection | PulsarSparkError] = {
            topic: connection
            for topic, connection in opened.items()
            if isinstance(connection, Connection)
        }
        return connections, self._send_to(producers, connections)

    def _send_unheard(
        self,
        producers: Mapping[str, TopicProducer],
        connections: dict[str, Connection | PulsarSparkError],
        sent: _Replies,
        silent: Collection[str],
        *,
        again: bool,
    ) -> None:
        """Look topic partitions up, and send PRODUCER again where brokers say nothing.

        A broker (4.0.7, 4.2.4) never answers PRODUCER that comes before the broker
        serves the topic partition, or after. By now another broker may serve the topic
        partition, or the same broker again. A broker that is only slow gives the first
        PRODUCER up.

        Args:
            producers: By topic partition.
            connections: Where PRODUCER went to; changed.
            sent: The replies to come; changed.
            silent: The topic partitions without an answer.
            again: Whether PRODUCER goes to the same broker, too, which may be slow.
        """
        serving = self._pool.get_all(self._brokers(silent))
        still_silent = unanswered({topic: sent[topic] for topic in silent}, 0)
        reached = {
            topic: connection
            for topic in still_silent
            if isinstance(connection := serving[topic], Connection)
            and (again or connection != connections[topic])
        }
        self._send_again(producers, connections, sent, reached)

    def _send_again(
        self,
        producers: Mapping[str, TopicProducer],
        connections: dict[str, Connection | PulsarSparkError],
        sent: _Replies,
        serving: Mapping[str, Connection | PulsarSparkError],
    ) -> None:
        """Take PRODUCER back, and send another to the brokers that serve now.

        Args:
            producers: By topic partition.
            connections: Where PRODUCER went to; changed.
            sent: The replies to come; changed.
            serving: Connections to those brokers, or why there are none.
        """
        for topic in serving:
            reply, connection = sent.get(topic), connections.get(topic)
            if isinstance(reply, Pending) and isinstance(connection, Connection):
                connection.drop(reply)
                self._give_up(producers[topic], connection, is_unanswered=True)
        connections.update(serving)
        sent |= self._send_to(producers, serving)

    def _give_up(
        self, producer: TopicProducer, connection: Connection, *, is_unanswered: bool
    ) -> None:
        """Give up an attachment that did not come about."""
        # Without this a slow PRODUCER could come true after all, and stay.
        if is_unanswered:
            connection.tell(commands.close_producer(producer.producer_id))
        connection.detach_producer(producer.producer_id)
        producer.not_attached()

    def _brokers(
        self, topics: Collection[str]
    ) -> Mapping[str, BrokerAddress | PulsarSparkError]:
        """Return the broker of each topic partition, or the reason for none."""
        migrated = {
            topic: self._pool.any_of(self._migrated[topic])
            for topic in topics
            if topic in self._migrated
        }
        return TopicLookup(self._pool).brokers(topics, migrated)

    def _cluster(self, topic: str) -> tuple[str, ...]:
        """Return the hosts of the cluster where a topic partition is now."""
        here = self._options.service_url.hosts
        return self._migrated.get(topic, here)

    def _turn_s(self, queued: Iterable[TopicProducer]) -> float:
        """Return the remaining wait of queued producers, in seconds."""
        now = time.monotonic()
        since = []
        for producer in queued:
            trouble = producer.trouble
            if trouble.queued_at is None:
                trouble.queued_at = now
                logger.info("%s: waiting for exclusive access", producer.topic)
            since.append(trouble.queued_at)
        return min(since) + self._patience.turn_s - now

    def _left_queue(self, producer: TopicProducer) -> BrokerError:
        """Leave the queue. The error says whether to join another one."""
        connection = producer.connection
        assert connection is not None
        connection.tell(commands.close_producer(producer.producer_id))
        turn_s = self._patience.turn_s
        return BrokerError(
            f"Others have had the topic for themselves for {turn_s:g} s, and it was "
            "not this task's turn (`pulsar.producer.accessMode`): end them, or let a "
            "single task at a time write to a topic partition. Tasks that write to "
            "several may be waiting for each other.",
            code="WaitForExclusive",
            broker=connection.broker,
            retriable=self._turn_s([producer]) > 0,
        )

    def _request(
        self, producer: TopicProducer, connection: Connection
    ) -> Request[pb.CommandProducerSuccess]:
        settings = self._settings
        old, registration = producer.connection, producer.registration
        cluster = self._cluster(producer.topic)
        attachment = producer.attach(connection, cluster)
        if old is not None:
            old.detach_producer(producer.producer_id)
        connection.attach_producer(producer.producer_id, attachment)
        return commands.producer(
            topic=producer.topic,
            producer_id=producer.producer_id,
            producer_name=registration.name,
            user_provided_producer_name=bool(settings.name),
            epoch=registration.epoch,
            access_mode=settings.access_mode,
            topic_epoch=registration.topic_epoch_in(cluster),
            txn_enabled=settings.transactional,
            properties=settings.properties,
            schema=producer.schema,
            encrypted=settings.new_encryption is not None,
        )

    def _not_attached(
        self, producer: TopicProducer, connection: Connection, error: PulsarSparkError
    ) -> PulsarSparkError:
        is_unanswered = isinstance(error, TransportError)
        self._give_up(producer, connection, is_unanswered=is_unanswered)
        if isinstance(error, TopicMigratedError):
            return self._follow(producer, error)
        if not isinstance(error, BrokerError):
            return error
        error = explained(error.about(producer.topic), producer.registration.name)
        return producer.doubted_end(error) if error.code == TERMINATED else error

    def _follow(
        self, producer: TopicProducer, error: TopicMigratedError
    ) -> PulsarSparkError:
        """Note where a topic went; the error says whether to attach there."""
        topic = producer.topic
        if not self._settings.follows_migration:
            return error.saying(
                f"{topic}: the topic was migrated to another cluster, "
                f"{error.service_url or error.service_url_tls}. It knows nothing of "
                "what was written here, so rows could be there twice: set "
                "`service.url` to it, and begin with a new checkpoint or another "
                "`idempotenceId`. Only `deliveryGuarantee` none and at-least-once "
                "follow by themselves."
            )
        hosts = self._pool.migrated_hosts(error)
        if isinstance(hosts, PulsarSparkError):
            return hosts.about(topic)
        target = ",".join(hosts)
        if self._migrated.get(topic) != hosts:
            self._migrated[topic] = hosts
            logger.warning(
                "%s was migrated to another cluster, %s: rows go there from now on. "
                "Set `service.url` to it before this one ends.",
                topic,
                target,
            )
        return AskAgainError(f"{topic} moves on to another cluster, {target}.")

    def _end_sealed(
        self,
        producers: Mapping[str, TopicProducer],
        answers: Mapping[str, pb.CommandProducerSuccess | PulsarSparkError],
    ) -> set[str]:
        """End the producers of sealed and deleted segments; return the segments.

        Most often brokers say so. 5.0.0-M1 may go on to say of a sealed segment that it
        is not there for now, until it is loaded again; the layout tells.
        """
        refused = {
            name: answer
            for name, answer in answers.items()
            if is_segment(name) and isinstance(answer, PulsarSparkError)
        }
        ended = {name for name, answer in refused.items() if _says_sealed(answer)}
        away = {n for n, answer in refused.items() if answer.retriable} - ended
        if away:
            lookup = TopicLookup(self._pool, patience_s=0)
            with contextlib.suppress(PulsarSparkError):
                topics = lookup.topics(set(map(topic_of, away)))
                for name in away:
                    layout = topics[topic_of(name)]
                    if isinstance(layout, Layout) and layout.is_over(name):
                        ended.add(name)
        for name in ended:
            producers[name].end()
        return ended


def _says_sealed(answer: PulsarSparkError) -> bool:
    """Return whether a broker refuses a segment as sealed or deleted.

    Brokers create the segments of a layout before the layout names them.
    """
    return isinstance(answer, TopicNotFoundError) or (
        isinstance(answer, BrokerError) and answer.code == TERMINATED
    )


def _is_queued(pending: Pending[Any] | PulsarSparkError) -> bool:
    """Return whether the broker queued the request and will answer later."""
    return isinstance(pending, Pending) and pending.is_queued
