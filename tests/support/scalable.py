# SPDX-License-Identifier: Apache-2.0
"""Scalable topics of a broker of Pulsar 5, as operators and writers handle them."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.options.client import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.testing.jars import resolve_classpath
from pulsar_spark.testing.processes import SHORT_LIVED, java
from pulsar_spark.wire.layout import Layout
from tests.support.jvm import compile_java

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from pulsar_spark.testing.embedded_broker import EmbeddedBroker
    from tests.support.broker_cluster import BrokerCluster, ClusterBroker

#: The release that these tests start: the newest of 5.0.
PULSAR_5 = "5.0.1"

CLIENT = Path(__file__).with_name("ScalableClient.java")
CLIENT_POM = Path(__file__).with_name("client-5-pom.xml")


def official_client(classes: Path) -> list[str]:
    """Compiles the official client's program; returns the command that runs it.

    Args:
        classes: A folder for its classes.
    """
    jars = resolve_classpath(PULSAR_5, pom=CLIENT_POM, progress=None)
    compile_java(CLIENT, jars, classes)
    path = os.pathsep.join((jars, str(classes)))
    return [java(), *SHORT_LIVED, "-Xmx256m", "-cp", path, CLIENT.stem]


class ScalableTopic:
    """A scalable topic of ``public/default``, and its segments.

    Args:
        broker: Has it, or a cluster.
        name: Its name in the namespace.
        segments: How many to create it with; 0 where it exists.
    """

    def __init__(
        self,
        broker: EmbeddedBroker | BrokerCluster | ClusterBroker,
        name: str,
        segments: int = 0,
    ) -> None:
        self.name = f"topic://public/default/{name}"
        self._broker = broker
        self._path = f"/admin/v2/scalable/public/default/{name}"
        self._pool = ConnectionPool(
            ClientOptions(
                service_url=parse_service_url(broker.service_url, "service.url")
            )
        )
        if segments:
            assert self.ask("PUT", f"?numInitialSegments={segments}") == 204

    def ask(self, method: str, what: str = "") -> int:
        """Makes a call of the admin REST; returns the HTTP status."""
        return self._ask(method, self._broker.admin_url + self._path + what)

    def _ask(self, method: str, url: str) -> int:
        body = b"" if method == "POST" else None
        request = urllib.request.Request(url, body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.TEMPORARY_REDIRECT:  # to the topic's controller
                return self._ask(method, error.headers["Location"])
            return error.code

    def split(self, segment_id: int) -> None:
        """Splits a segment into two."""
        assert self.ask("POST", f"/split/{segment_id}") == 204

    def merge(self, left: int, right: int) -> None:
        """Makes one segment of two neighbours."""
        assert self.ask("POST", f"/merge/{left}/{right}") == 204

    def divide(self, chosen: random.Random, most: int = 4) -> str:
        """Splits a segment, or merges two where there are more; returns which."""
        active = sorted(self.layout.active, key=lambda one: one.hash_start)
        if len(active) <= most:
            self.split(chosen.choice(active).segment_id)
            return "splits"
        index = chosen.randrange(len(active) - 1)
        left, right = active[index : index + 2]
        self.merge(left.segment_id, right.segment_id)
        return "merges"

    @property
    def layout(self) -> Layout:
        """The layout of now."""
        layout = TopicLookup(self._pool).topics([self.name])[self.name]
        assert isinstance(layout, Layout)
        return layout

    @property
    def subscriptions(self) -> dict[str, Any]:
        """The registered subscriptions."""
        stats = f"{self._broker.admin_url}{self._path}/stats"
        with urllib.request.urlopen(stats) as answer:
            found: dict[str, Any] = json.load(answer)["subscriptions"]
        return found

    def put(self, segment_id: int, values: Iterable[str]) -> None:
        """Stores a row for each value in a segment, whatever its keys would be."""
        name = self.layout.names[segment_id]
        with Producers(self._pool, ProducerSettings()) as producers:
            producers.open([name])
            producer = producers.get(name)
            for value in values:
                producers.send(producer, producer.plain_entry(value.encode()))
            producers.flush()

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()
