# SPDX-License-Identifier: Apache-2.0
"""Registrations of a subscription at scalable topics, see ``wire.layout``.

A broker deletes a sealed segment when retention is over and no subscription of the
topic has a backlog in it. A cursor on the segment alone is no subscription of the
topic: without a registration the rows go at the next look, however many are unread.

SCALABLE_TOPIC_SUBSCRIBE registers a subscription. On 5.0.1 the registration lasts until
SCALABLE_TOPIC_UNSUBSCRIBE or the admin REST ends it. 5.0.0-M1 ends the registration a
minute after the connection that asked, and UNSUBSCRIBE works on that connection alone.
So a registration is a consumer of the connection, which is not closed as idle. Each
segment is read by an ordinary consumer of that subscription.

A topic's controller takes registrations: the broker that the brokers elected. When the
controller ends, another broker is elected, and waits a minute for the registrations
that it does not know. Layouts name the controller, until its session in the metadata
store ends also after it was killed.

Source: PIP-460; 5.0.0-M1 and 5.0.1 by trial.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import TopicConsumer
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.wire import commands
from pulsar_spark.wire.layout import Layout
from spark_topics.client.retry import ask_all

logger = logging.getLogger("pulsar_spark.client")

#: How long the end of a registration may wait for the broker's word, in seconds.
_END_TIMEOUT_S = 5.0


class Registrations:
    """Where a subscription is registered. For one thread only.

    Args:
        pool: The cluster's connections.
        subscription: The subscription's name.
    """

    def __init__(self, pool: ConnectionPool, subscription: str) -> None:
        self._pool = pool
        self._subscription = subscription
        self._lookup = TopicLookup(pool)
        # Topics whose controllers take no registration now.
        self._missing: set[str] = set()
        self._registered: dict[str, TopicConsumer] = {}  # by topic
        # The URL of the controller that has the registration, by topic.
        self._controllers: dict[str, str] = {}

    def current(self, topic: str) -> TopicConsumer | None:
        """Return the current registration at a topic, None without any.

        As long as it stays the same object, no segment was deleted in which the
        subscription had a backlog.
        """
        registered = self._registered.get(topic)
        return registered if registered is not None and registered.is_open else None

    def add(self, layouts: Iterable[Layout]) -> None:
        """Register the subscription where no registration lasts.

        That is also where another broker has become the topic's controller. Where no
        controller takes the registration for some time, a warning says so, and each
        further call tries once: who goes on reads rows before they can be deleted.

        Args:
            layouts: The topics, as they were seen last.

        Raises:
            PulsarSparkError: The cluster refuses for good.
        """
        new: dict[str, Layout] = {}
        for layout in layouts:
            if self._has_moved(layout):
                self._forget(layout.topic)
            if self.current(layout.topic) is None:
                new[layout.topic] = layout
        if not new:
            return
        refused: set[str] = set()
        is_missing = new.keys() <= self._missing
        patience_s = 0.0 if is_missing else self._pool.options.patience.controller_s
        try:
            ask_all(
                new,
                lambda topics: self._register(topics, new, refused),
                self._pool.retry(patience_s),
            )
        except PulsarSparkError as error:
            if not error.retriable:
                raise
            self._tell_missing(new, error)

    def _tell_missing(self, topics: Iterable[str], error: PulsarSparkError) -> None:
        """Warn of topics without a registration, each once until there is one."""
        missing = {topic for topic in topics if self.current(topic) is None}
        for topic in sorted(missing - self._missing):
            logger.warning(
                "The subscription %s is not registered at %s: %s Until that is so, "
                "brokers may delete sealed segments that were not read, unless "
                "retention keeps these. It is tried again at each plan.",
                self._subscription,
                topic,
                error,
            )
        self._missing = missing

    def _has_moved(self, layout: Layout) -> bool:
        controller = self._controller_of(layout)
        if not controller:
            return False
        # Where a topic has no controller, the broker that is asked becomes that.
        return self._controllers.setdefault(layout.topic, controller) != controller

    def _register(
        self, topics: Iterable[str], layouts: dict[str, Layout], refused: set[str]
    ) -> dict[str, None | PulsarSparkError]:
        """Ask the controllers once.

        Args:
            topics: The topics to register at.
            layouts: Their layouts. Those of topics that an earlier try did not reach
                are asked for again, and replaced.
            refused: The topics that a try did not reach.
        """
        if again := refused.intersection(topics):
            seen = self._lookup.topics(again)
            layouts.update({t: x for t, x in seen.items() if isinstance(x, Layout)})
        urls = {topic: self._controller_of(layouts[topic]) for topic in topics}
        # Where no broker manages a topic any broker will do.
        connections = {
            topic: self._pool.try_get(self._lookup.broker_address(url))
            for topic, url in urls.items()
        }
        consumers = {
            topic: TopicConsumer(topic, connection)
            for topic, connection in connections.items()
            if isinstance(connection, Connection)
        }
        for consumer in consumers.values():
            consumer.consumer_id = consumer.connection.attach(consumer)
        requests = {
            topic: commands.scalable_topic_subscribe(
                topic, self._subscription, consumer.consumer_id, self._subscription
            )
            for topic, consumer in consumers.items()
        }
        try:
            timeout_s = self._pool.options.operation_timeout_s
            answers = fan_out(connections, requests, timeout_s)
        except BaseException:  # such as an interrupt
            for consumer in consumers.values():
                _detach(consumer)
            raise
        results: dict[str, None | PulsarSparkError] = {}
        for topic, answer in answers.items():
            if isinstance(answer, PulsarSparkError):
                if topic in consumers:
                    _detach(consumers[topic])
                refused.add(topic)
                results[topic] = answer
            else:
                self._registered[topic] = consumers[topic]
                self._missing.discard(topic)
                self._controllers.pop(topic, None)
                if urls[topic]:
                    self._controllers[topic] = urls[topic]
                results[topic] = None
        return results

    def _controller_of(self, layout: Layout) -> str:
        """Return the URL of the broker that manages a topic, "" where none does."""
        return layout.controllers[self._pool.options.service_url.uses_tls]

    def _forget(self, topic: str) -> None:
        registered = self._registered.pop(topic, None)
        if registered is not None:
            _detach(registered)

    def close(self) -> None:
        """Let connections be idle. Brokers of 5.0.0-M1 then end the registrations."""
        for topic in list(self._registered):
            self._forget(topic)

    def end(self) -> None:
        """End all registrations. Brokers of 5.0.0-M1 keep these for a minute."""
        registered = self._registered
        requests = {
            topic: commands.scalable_topic_unsubscribe(consumer.consumer_id)
            for topic, consumer in registered.items()
        }
        connections = {
            topic: consumer.connection for topic, consumer in registered.items()
        }
        try:
            answers = fan_out(connections, requests, _END_TIMEOUT_S)
        finally:
            self.close()
        for topic, answer in answers.items():
            if isinstance(answer, PulsarSparkError):
                logger.warning(
                    "The subscription %s stays registered at %s, which keeps its "
                    "segments for it: %s Delete it by the admin REST of scalable "
                    "topics, DELETE .../subscriptions/%s.",
                    self._subscription,
                    topic,
                    answer,
                    self._subscription,
                )


def _detach(consumer: TopicConsumer) -> None:
    consumer.connection.detach(consumer.consumer_id)
