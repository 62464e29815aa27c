# SPDX-License-Identifier: Apache-2.0
"""Registrations of a subscription at scalable topics, see ``wire.layout``.

A broker deletes a sealed segment when retention is over and no subscription of the
topic has a backlog in it. A cursor on the segment alone is no subscription of the
topic: without a registration the rows go at the next look, however many are unread.

SCALABLE_TOPIC_SUBSCRIBE registers a subscription. On 5.0.1 the registration lasts until
SCALABLE_TOPIC_UNSUBSCRIBE or the admin REST ends it. 5.0.0-M1 ends the registration a
minute after the connection that asked. Each segment is read by an ordinary consumer of
that subscription.

A topic's controller takes registrations: the broker that the brokers elected. When the
controller ends, another broker is elected, and waits a minute for the registrations
that it does not know. Layouts name the controller, until its session in the metadata
store ends also after it was killed.

Source: PIP-460; 5.0.0-M1 and 5.0.1 by trial.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup, broker_address
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.wire import commands
from pulsar_spark.wire.layout import Layout
from spark_topics.client.retry import ask_all

logger = logging.getLogger("pulsar_spark.client")

#: How long the end of a registration may wait for the broker's word, in seconds.
_END_TIMEOUT_S = 5.0

#: No connection has so many consumers that get entries: ids are unique on it.
_consumer_ids = itertools.count(1 << 32)


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
        # The consumer's id and connection, by topic.
        self._consumers: dict[str, tuple[int, Connection]] = {}
        # The URL of the controller that has the registration, by topic.
        self._controllers: dict[str, str] = {}

    def current(self, topic: str) -> int | None:
        """Return the number of the current registration at a topic, None without any.

        As long as the number stays the same, no segment was deleted in which the
        subscription had a backlog.
        """
        consumer_id, connection = self._consumers.get(topic, (None, None))
        return consumer_id if connection is not None and connection.is_open else None

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
                self._consumers.pop(layout.topic, None)
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
            topic: self._pool.try_get(broker_address(url))
            for topic, url in urls.items()
        }
        ids = {topic: next(_consumer_ids) for topic in urls}
        answers = fan_out(
            connections,
            {
                topic: commands.scalable_topic_subscribe(
                    topic, self._subscription, ids[topic], self._subscription
                )
                for topic in urls
            },
            self._pool.options.operation_timeout_s,
        )
        results: dict[str, None | PulsarSparkError] = {}
        for topic, answer in answers.items():
            connection = connections[topic]
            if isinstance(answer, PulsarSparkError):
                refused.add(topic)
                results[topic] = answer
            elif isinstance(connection, Connection):
                self._consumers[topic] = ids[topic], connection
                self._missing.discard(topic)
                self._controllers.pop(topic, None)
                if urls[topic]:
                    self._controllers[topic] = urls[topic]
                results[topic] = None
        return results

    def _controller_of(self, layout: Layout) -> str:
        """Return the URL of the broker that manages a topic, "" where none does."""
        return layout.controllers[self._pool.options.service_url.uses_tls]

    def end(self) -> None:
        """End all registrations. Brokers of 5.0.0-M1 keep these for a minute."""
        connections = {topic: conn for topic, (_, conn) in self._consumers.items()}
        requests = {
            topic: commands.scalable_topic_unsubscribe(consumer_id)
            for topic, (consumer_id, _) in self._consumers.items()
        }
        self._consumers.clear()
        for topic, answer in fan_out(connections, requests, _END_TIMEOUT_S).items():
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
