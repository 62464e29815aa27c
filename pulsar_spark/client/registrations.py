# SPDX-License-Identifier: Apache-2.0
"""Registrations of a subscription at scalable topics, see ``wire.layout``.

A broker deletes a sealed segment when retention is over and no subscription of the
topic has a backlog in it. A cursor on the segment alone is no subscription of the
topic: without a registration the rows go at the next look, however many are unread.

The registration is by SCALABLE_TOPIC_SUBSCRIBE, and lasts for as long as the connection
that asked, and a minute more. Each segment is read by an ordinary consumer of that
subscription. Only the admin REST registers a subscription for good.

Source: PIP-460; 5.0.0-M1 and 5.0.1 by trial.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import broker_address
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
        # The consumer's id and connection, by topic.
        self._consumers: dict[str, tuple[int, Connection]] = {}

    def current(self, topic: str) -> int | None:
        """Return the number of the current registration at a topic, None without any.

        As long as the number stays the same, no segment was deleted in which the
        subscription had a backlog.
        """
        consumer_id, connection = self._consumers.get(topic, (None, None))
        return consumer_id if connection is not None and connection.is_open else None

    def add(self, layouts: Iterable[Layout]) -> None:
        """Register the subscription at topics where no registration lasts.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        new = {
            layout.topic: layout
            for layout in layouts
            if self.current(layout.topic) is None
        }
        if new:
            ask_all(
                new,
                lambda topics: self._register({topic: new[topic] for topic in topics}),
                self._pool.patience(),
            )

    def _register(
        self, layouts: Mapping[str, Layout]
    ) -> dict[str, None | PulsarSparkError]:
        connections = {
            topic: self._controller(layout) for topic, layout in layouts.items()
        }
        ids = {topic: next(_consumer_ids) for topic in layouts}
        answers = fan_out(
            connections,
            {
                topic: commands.scalable_topic_subscribe(
                    topic, self._subscription, ids[topic], self._subscription
                )
                for topic in layouts
            },
            self._pool.options.operation_timeout_s,
        )
        results: dict[str, None | PulsarSparkError] = {}
        for topic, answer in answers.items():
            connection = connections[topic]
            if isinstance(answer, PulsarSparkError):
                results[topic] = answer
            elif isinstance(connection, Connection):
                self._consumers[topic] = ids[topic], connection
                results[topic] = None
        return results

    def _controller(self, layout: Layout) -> Connection | PulsarSparkError:
        """Return a connection to the broker that manages a topic."""
        uses_tls = self._pool.options.service_url.uses_tls
        address = broker_address(layout.controllers[uses_tls])
        try:
            return self._pool.service() if address is None else self._pool.get(address)
        except PulsarSparkError as error:
            return error

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
