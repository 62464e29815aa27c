# SPDX-License-Identifier: Apache-2.0
"""The broker of a run of tests, and new topics for each test."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import DEFAULT_VERSION
from pulsar_spark.testing.processes import BrokerStartError


@dataclass(frozen=True)
class PulsarBroker:
    """A broker that runs, with a namespace for the topics of tests.

    The namespace keeps all messages, also those that no subscription asks for.

    Attributes:
        service_url: ``pulsar://host:port``.
        admin_url: ``http://host:port``.
        namespace: ``tenant/namespace`` of new topics.
    """

    service_url: str
    admin_url: str
    namespace: str

    @property
    def admin(self) -> Admin:
        """Return the admin REST of the broker."""
        return Admin(self.admin_url)

    def new_topic(self, name: str = "topic", *, partitions: int = 0) -> str:
        """Create an empty topic with a new name, and return the full name.

        Args:
            name: Beginning of the name.
            partitions: Number of partitions, 0 for a topic without partitions.

        Raises:
            AdminError: The broker refuses.
        """
        beginning = re.sub(r"[^\w.=-]+", "-", name)
        topic = f"persistent://{self.namespace}/{beginning}-{uuid.uuid4().hex[:8]}"
        if partitions:
            self.admin.create_partitioned(topic, partitions)
        else:
            self.admin.create_topic(topic)
        return topic

    def options(self, topic: str, **others: str) -> dict[str, str]:
        """Return options for ``spark.read``, ``df.write`` and their streams.

        Args:
            topic: Full name of a topic.
            others: Further options, by name.
        """
        return {"service.url": self.service_url, "topic": topic, **others}


@contextlib.contextmanager
def running_broker(
    version: str = DEFAULT_VERSION, settings: Mapping[str, str] | None = None
) -> Iterator[PulsarBroker]:
    """Yield a broker that runs within the block.

    With the environment variables ``PULSAR_SERVICE_URL`` and ``PULSAR_ADMIN_URL`` that
    broker is used, and the namespace is removed at the end. Otherwise an embedded
    broker is started, and its data are removed at the end.

    Args:
        version: Pulsar release of an embedded broker.
        settings: Settings of an embedded broker, see `EmbeddedBroker`.

    Raises:
        BrokerStartError: The embedded broker does not come up, or only the first of
            the two variables is set.
        AdminError: The broker refuses to create the namespace.
    """
    service_url = os.environ.get("PULSAR_SERVICE_URL", "")
    admin_url = os.environ.get("PULSAR_ADMIN_URL", "")
    if service_url:
        if not admin_url:
            raise BrokerStartError(
                "PULSAR_SERVICE_URL needs PULSAR_ADMIN_URL beside it, such as"
                " http://localhost:8080."
            )
        namespace = _new_namespace(admin_url)
        try:
            yield PulsarBroker(service_url, admin_url, namespace)
        finally:
            Admin(admin_url).remove_namespace(namespace)
        return
    with EmbeddedBroker(settings=settings, version=version) as broker:
        namespace = _new_namespace(broker.admin_url)
        yield PulsarBroker(broker.service_url, broker.admin_url, namespace)


def _new_namespace(admin_url: str) -> str:
    name = f"public/test-{uuid.uuid4().hex[:12]}"
    Admin(admin_url).create_namespace(name, keep=True)
    return name
