# SPDX-License-Identifier: Apache-2.0
"""What the hops with a broker need: the broker, filled topics, a Spark session."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_spark.client.pool import shared_pool
from pulsar_spark.options import ReadOptions, parse_read_options
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.bench.publish import publish
from tests.bench.samples import NONE, Batch, topic_batches
from tests.support.reading import ranges_of
from tests.support.session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Topic:
    """A filled topic.

    Attributes:
        name: Full name.
        partitions: How many it has.
        rows: In all partitions together.
        size_bytes: Of each value.
    """

    name: str
    partitions: int
    rows: int
    size_bytes: int

    @property
    def value_bytes(self) -> int:
        """Of all values together."""
        return self.rows * self.size_bytes


class Cluster:
    """A broker and a namespace on it that is ours alone."""

    def __init__(self, service_url: str, admin_url: str, namespace: str) -> None:
        self.service_url = service_url
        self.admin = Admin(admin_url)
        self.namespace = namespace
        self._topics: dict[tuple[object, ...], Topic] = {}

    def options(self, topic: Topic, **further: str) -> ReadOptions:
        """The options that read a topic."""
        return parse_read_options(
            {"service.url": self.service_url, "topic": topic.name, **further}
        )

    def plan(self, topic: Topic) -> list[TopicRange]:
        """What a read of the whole topic reads."""
        options = self.options(topic)
        return ranges_of(plan_batch(shared_pool(options.client), options))

    def topic(
        self,
        rows: int,
        size_bytes: int,
        partitions: int = 2,
        codec: int = NONE,
        entry_rows: int | None = None,
    ) -> Topic:
        """A topic with about so many rows; filled once a run.

        Args:
            rows: In all partitions together.
            size_bytes: Of each value.
            partitions: How many it has.
            codec: How entries are compressed, a CompressionType of the protocol.
            entry_rows: Messages of an entry; None for what official clients would send.
        """
        key = rows, size_bytes, partitions, codec, entry_rows
        if key not in self._topics:
            parts = f"b{size_bytes}-p{partitions}-r{rows}-c{codec}-e{entry_rows}"
            name = f"persistent://{self.namespace}/{parts}"
            note(
                f"writing {rows:,} rows of {size_bytes} bytes, {partitions} partitions"
            )
            self.admin.create_partitioned(name, partitions)
            each = publish(
                self.service_url,
                [f"{name}-partition-{i}" for i in range(partitions)],
                topic_batches(size_bytes, entry_rows, codec),
                rows // partitions,
            )
            self._topics[key] = Topic(name, partitions, each * partitions, size_bytes)
        return self._topics[key]

    def topic_of(
        self,
        name: str,
        batches: list[Batch],
        rows: int,
        schema: SchemaInfo,
        partitions: int = 2,
    ) -> Topic:
        """A topic with a schema and about so many rows; filled once a run.

        Args:
            name: What tells it from others.
            batches: Published in turns, all of one size; they name the first version.
            rows: In all partitions together.
            schema: Its schema.
            partitions: How many it has.
        """
        key = name, rows, partitions
        if key not in self._topics:
            full = f"persistent://{self.namespace}/{name}-r{rows}"
            note(f"writing {rows:,} rows of {name}, {partitions} partitions")
            self.admin.create_partitioned(full, partitions)
            text = schema.data.decode()
            self.admin.add_schema(full, schema.type_name, text)
            each = publish(
                self.service_url,
                [f"{full}-partition-{i}" for i in range(partitions)],
                batches,
                rows // partitions,
            )
            size_bytes = sum(batch.value_bytes for batch in batches)
            size_bytes //= sum(batch.rows for batch in batches)
            self._topics[key] = Topic(full, partitions, each * partitions, size_bytes)
        return self._topics[key]

    def remove(self) -> None:
        """Deletes the topics and the namespace."""
        self.admin.remove_namespace(self.namespace)

    @contextlib.contextmanager
    def further_namespace(self, *, deduplication: bool = False) -> Iterator[str]:
        """One that goes with all that was written to it, which is much.

        Args:
            deduplication: Whether the broker drops duplicates there.
        """
        name = f"{self.namespace}-{uuid.uuid4().hex[:6]}"
        self.admin.create_namespace(name, keep=True)
        try:
            if deduplication:
                self.admin.set_deduplication(name, True)
            yield name
        finally:
            self.admin.remove_namespace(name)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """The broker of ``PULSAR_SERVICE_URL`` and ``PULSAR_ADMIN_URL``, or an own one."""
    namespace = f"public/bench-{uuid.uuid4().hex[:8]}"
    service_url = os.environ.get("PULSAR_SERVICE_URL", "")
    if service_url:
        admin_url = os.environ.get("PULSAR_ADMIN_URL", "")
        if not admin_url:
            sys.exit("PULSAR_SERVICE_URL needs PULSAR_ADMIN_URL beside it")
        found = Cluster(service_url, admin_url, namespace)
        found.admin.create_namespace(namespace, keep=True)
        try:
            yield found
        finally:
            found.remove()
        return
    note("starting a broker")
    with EmbeddedBroker(is_short_lived=False, log_level="warn") as broker:
        found = Cluster(broker.service_url, broker.admin_url, namespace)
        found.admin.create_namespace(namespace, keep=True)
        yield found


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Local Spark with two task slots, quiet."""
    note("starting Spark")
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
        session = start_spark(folder, is_short_lived=False)
        try:
            yield session
        finally:
            session.stop()


def note(text: str) -> None:
    """A line about what goes on, away from the results."""
    sys.stderr.write(f"[bench] {text}\n")
    sys.stderr.flush()
