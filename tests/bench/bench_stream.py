# SPDX-License-Identifier: Apache-2.0
"""Micro-batches: the time to plan one by the number of topic partitions, and the whole.

The plan is measured as a query makes it: ``latestOffset`` and ``partitions``, with a
row to read in each topic partition, and the last micro-batch to acknowledge. Whole
micro-batches are compared with those of a source that has nothing to do.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pulsar
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_spark import PulsarDataSource
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.pulsar_source import PulsarSource
from spark_topics.spark.stream_reader import StreamReader
from tests.bench.cluster import Cluster, note
from tests.bench.ingest import ReadyBatches
from tests.bench.report import MORE_MS, SECONDS, Case, in_turns
from tests.support.official import QUIET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Requests that must follow each other: acknowledgement and last message id.
_ROUND_TRIPS = 2

_ROWS = 10
_PARTITIONS = 2

#: What planning so many partitions may take, warm.
_PLAN_TARGETS_S = {1000: 0.5}

#: What a micro-batch may take longer than that of a source with nothing to do.
_MORE_TARGET_MS = 50

#: The first micro-batches of a run start workers and make the subscription.
_WARM_UP_BATCHES = 3


def run_planning(cluster: Cluster, counts: list[int], repeats: int) -> list[Case]:
    """One row of the result is one topic partition that was planned."""
    return [_plan_case(cluster, count, max(repeats, 5)) for count in counts]


def _plan_case(cluster: Cluster, count: int, repeats: int) -> Case:
    topic = new_topic(cluster, count)
    note(f"planning micro-batches over {count} partitions")
    options = parse_read_options(
        {
            "service.url": cluster.service_url,
            "topic": topic,
            "startingOffsets": "earliest",
            "partitionDiscoveryIntervalMs": "3600000",
        },
        streaming=True,
    )
    columns = arrow_schema(("value",))
    reader = StreamReader(PulsarSource(options, columns), columns)
    lookup = TopicLookup(shared_pool(options.client))
    names = [f"{topic}-partition-{i}" for i in range(count)]
    offset = reader.initialOffset()
    # The first micro-batch makes the subscription, the next one its first
    # acknowledgement, for which a broker opens a ledger: once in a query's life.
    client = pulsar.Client(cluster.service_url, logger=QUIET)
    try:
        producer = _producer(client, topic)

        def plan() -> float:
            nonlocal offset
            for _ in range(count):
                producer.send_async(b"x" * 100, _ignore)
            producer.flush()
            began = time.perf_counter()
            end = reader.latestOffset(offset, ReadAllAvailable())
            assert len(reader.partitions(offset, end)) == count
            seconds = time.perf_counter() - began
            reader.commit(offset)
            offset = end
            return seconds

        def ask() -> float:
            began = time.perf_counter()
            for _ in range(_ROUND_TRIPS):
                lookup.brokers(names)
            return time.perf_counter() - began

        for _ in range(2):
            plan()
        seconds = in_turns({"ask": ask, "plan": plan}, repeats)
    finally:
        client.close()
        reader.stop()
    return Case(
        "stream",
        f"plan {count:,} partitions",
        count,
        0,
        seconds["plan"],
        f"{_ROUND_TRIPS} lookups of each",
        seconds["ask"],
        _PLAN_TARGETS_S.get(count),
        figure=SECONDS,
    )


def run_batches(
    cluster: Cluster, spark: SparkSession, batches: int, repeats: int
) -> list[Case]:
    """One row of the result is one micro-batch of ten rows."""
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(ReadyBatches)
    topic = new_topic(cluster, _PARTITIONS)
    count = batches + _WARM_UP_BATCHES
    client = pulsar.Client(cluster.service_url, logger=QUIET)
    try:
        producer = _producer(client, topic)
        for _ in range(count * _ROWS):
            producer.send_async(b"x" * 100, _ignore)
        producer.flush()
    finally:
        client.close()
    note("Spark runs micro-batches")
    ours = {
        "service.url": cluster.service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": _ROWS,
        "metadataColumns": "none",
        "deleteSubscriptionOnStop": "true",
    }
    nothing = ready_rows(batches)
    seconds = in_turns(
        {
            "nothing": batch_measure(spark, ReadyBatches.name(), nothing),
            "ours": batch_measure(spark, "pulsar", ours),
        },
        repeats,
        warm_up=False,
    )
    limit = "a source with nothing to do"
    return [
        Case("stream", limit, 1, 0, seconds["nothing"]),
        Case(
            "stream",
            f"a micro-batch of {_ROWS} rows",
            1,
            0,
            seconds["ours"],
            limit,
            seconds["nothing"],
            _MORE_TARGET_MS,
            figure=MORE_MS,
        ),
    ]


def ready_rows(batches: int) -> dict[str, Any]:
    """Options of ReadyBatches for so many micro-batches behind those that warm up."""
    return {
        "columns": "value",
        "size": 100,
        "rows": _ROWS,
        "partitions": _PARTITIONS,
        "batches": batches + _WARM_UP_BATCHES,
    }


def batch_measure(
    spark: SparkSession,
    source: str,
    options: dict[str, Any],
    sink: str = "noop",
    sink_options: Mapping[str, Any] = MappingProxyType({}),
    phase: str = "triggerExecution",
) -> Callable[[], float]:
    """The usual time of a micro-batch in one run of a query over all there is.

    Or that of one phase of it, by its name in Spark's progress reports.
    """

    def measure() -> float:
        with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
            stream = spark.readStream.format(source).options(**options).load()
            query = (
                stream.writeStream.format(sink)
                .options(**sink_options)
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = query.recentProgress[_WARM_UP_BATCHES:]
        assert progress
        assert all(batch["numInputRows"] == _ROWS for batch in progress)
        times_ms = [float(batch["durationMs"][phase]) for batch in progress]
        return median(times_ms) / 1e3

    return measure


_numbers = itertools.count()


def new_topic(cluster: Cluster, partitions: int) -> str:
    """Make a topic that nobody used before, and return its full name."""
    name = f"stream-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
    topic = f"persistent://{cluster.namespace}/{name}"
    cluster.admin.create_partitioned(topic, partitions)
    return topic


def _producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    """Sends each message by itself, to the partitions in turn."""
    return client.create_producer(
        topic,
        batching_enabled=False,
        block_if_queue_full=True,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )


def _ignore(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
    """Takes a receipt: ``flush`` has waited for it."""
