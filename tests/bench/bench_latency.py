# SPDX-License-Identifier: Apache-2.0
"""From a producer's call to the row in ``foreachBatch``: what a stream takes at least.

Messages are sent one by one at a steady pace, each with the time of the call as its
event time. A query collects the rows of each micro-batch, and notes when it has them.
Producer and query have the same clock. What Spark itself needs for a micro-batch is
most of it: Python sources have no real-time mode.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import pulsar

from pulsar_spark import PulsarDataSource
from tests.bench.bench_stream import new_topic
from tests.bench.cluster import Cluster, note
from tests.bench.report import SECONDS, Case
from tests.support.official import QUIET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How often a micro-batch begins, by how this is called; "" for as soon as it can.
_TRIGGERS = {"at once": "0 seconds", "each second": "1 second"}

#: Of a micro-batch that begins at once, half of its rows wait for one that runs; both
#: are to take no longer than a user's patience at a dashboard.
_TARGETS_S = {("at once", 50): 1.0}

_PERCENTILES = (50, 99)
_PER_S = 50
_PARTITIONS = 2

#: Longest time for these, and for the rows that are still to come at the end.
_PATIENCE_S = 120.0


def run(
    cluster: Cluster,
    spark: SparkSession,
    seconds: float = 20.0,
    warm_up_batches: int = 5,
) -> list[Case]:
    """A line for each trigger and percentile; one row of the result is one message.

    The first micro-batches do not count: they start workers.
    """
    spark.dataSource.register(PulsarDataSource)
    cases = []
    for name, trigger in _TRIGGERS.items():
        note(f"latency of micro-batches {name}")
        latencies = sorted(
            _latencies(cluster, spark, trigger, seconds, warm_up_batches)
        )
        cases += [
            Case(
                "latency",
                f"publish to foreachBatch, {name}, {_PER_S} messages/s, p{percent}",
                1,
                0,
                [percentile(latencies, percent)],
                target=_TARGETS_S.get((name, percent)),
                figure=SECONDS,
            )
            for percent in _PERCENTILES
        ]
    return cases


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many of a hundred do not exceed."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def _latencies(
    cluster: Cluster,
    spark: SparkSession,
    trigger: str,
    seconds: float,
    warm_up_batches: int,
) -> list[float]:
    """Return the seconds that each message took, without those that warm up."""
    topic = new_topic(cluster, _PARTITIONS)
    found: list[tuple[int, float]] = []  # when sent, in milliseconds, and what it took
    batches: list[int] = []

    def take(rows: DataFrame, batch_id: int) -> None:
        sent = [row[0] for row in rows.collect()]
        now_s = time.time()
        found.extend((at_ms, now_s - at_ms / 1e3) for at_ms in sent)
        batches.append(batch_id)

    options = {
        "service.url": cluster.service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "deleteSubscriptionOnStop": "true",
    }
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
        rows = spark.readStream.format("pulsar").options(**options).load()
        query = (
            rows.selectExpr("unix_millis(__eventTime)")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", folder)
            .trigger(processingTime=trigger)
            .start()
        )
        client = pulsar.Client(cluster.service_url, logger=QUIET)
        try:
            producer = _producer(client, topic)
            deadline = time.monotonic() + _PATIENCE_S
            while len(batches) < warm_up_batches:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, "the first micro-batches"
                _publish(producer, 1)
            count = ceil(seconds * _PER_S)
            first_ms = _publish(producer, count)
            deadline = time.monotonic() + _PATIENCE_S
            taken_s: list[float] = []
            while len(taken_s) < count:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, f"{len(taken_s)} rows of {count}"
                time.sleep(0.1)
                taken_s = [s for at_ms, s in found if at_ms >= first_ms]
        finally:
            client.close()
            query.stop()
    return taken_s


def _producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(
        topic,
        batching_enabled=False,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )


def _publish(producer: pulsar.Producer, count: int) -> int:
    """Send messages at the pace, each with the time of its call; return the first."""
    began = time.monotonic()
    first_ms = 0
    for number in range(count):
        at_ms = round(time.time() * 1e3)
        first_ms = first_ms or at_ms
        producer.send_async(b"x" * 100, lambda *_: None, event_timestamp=at_ms)
        time.sleep(max(0.0, began + (number + 1) / _PER_S - time.monotonic()))
    producer.flush()
    return first_ms
