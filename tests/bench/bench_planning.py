# SPDX-License-Identifier: Apache-2.0
"""Planning: the time of ``partitions()``, by the number of topic partitions.

A broker plans along with us: it opens a reader for each topic partition. For more of
them than it can take there are simulated brokers, which answer at once, and of which
a stream is planned, too, as a query does it: its start, its first micro-batch, which
makes the subscription, and later ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.spark.batch import PulsarReader
from pulsar_spark.spark.schema import spark_schema
from spark_topics.spark.stream_reader import StreamReader
from tests.bench.cluster import Cluster, note
from tests.bench.report import SECONDS, Case, in_turns, wall
from tests.bench.simulated import TOPIC, simulated

#: Requests that must follow each other: number of partitions, lookup, SUBSCRIBE, last
#: message id, CLOSE_CONSUMER.
_ROUND_TRIPS = 5

#: Simulated topic partitions: so many times what the largest real topic has, up to a
#: most. And the brokers that they are spread over.
_TIMES = 100
_MOST = 10_000
_BROKERS = 10

#: What planning ``_MOST`` may take.
_TARGET_S = 5.0


def run(cluster: Cluster, counts: list[int], repeats: int) -> list[Case]:
    """One row of the result is one topic partition that was planned."""
    repeats = max(repeats, 5)
    cases = [_real_case(cluster, count, repeats) for count in counts]
    return cases + run_simulated(min(_TIMES * max(counts), _MOST), repeats)


def _real_case(cluster: Cluster, count: int, repeats: int) -> Case:
    topic = cluster.topic(count, 100, partitions=count)
    options = cluster.options(topic)
    reader = PulsarReader(options, spark_schema(("value",)))
    lookup = TopicLookup(shared_pool(options.client))
    names = [f"{topic.name}-partition-{i}" for i in range(count)]

    def plan() -> None:
        assert len(reader.partitions()) == count

    def ask() -> None:
        for _ in range(_ROUND_TRIPS):
            lookup.brokers(names)

    seconds = in_turns({"ask": wall(ask), "plan": wall(plan)}, repeats)
    return Case(
        "planning",
        f"{count:,} partitions",
        count,
        0,
        seconds["plan"],
        f"{_ROUND_TRIPS} lookups of each",
        seconds["ask"],
        figure=SECONDS,
    )


def run_simulated(count: int, repeats: int) -> list[Case]:
    """As `run`, of topic partitions that exist only in name."""
    note(f"planning {count} simulated partitions")
    with simulated(count, _BROKERS) as service_url:
        options = {
            "service.url": service_url,
            "topic": TOPIC,
            "startingOffsets": "earliest",
        }
        reader = PulsarReader(parse_read_options(options), spark_schema(("value",)))

        def plan() -> None:
            assert len(reader.partitions()) == count

        batch = in_turns({"plan": wall(plan)}, repeats)["plan"]
        streams = [plan_stream(options, count) for _ in range(repeats)]
    return [
        Case(
            "planning",
            f"{count:,} simulated partitions, {what}",
            count,
            0,
            seconds,
            target=_TARGET_S,
            figure=SECONDS,
        )
        for what, seconds in (
            ("a batch", batch),
            ("a stream's start", [times[0] for times in streams]),
            ("its first micro-batch", [times[1] for times in streams]),
            ("its later ones", [median(times[2:]) for times in streams]),
        )
    ]


def plan_stream(
    options: dict[str, str],
    count: int,
    between: Callable[[], None] = lambda: None,
) -> list[float]:
    """Seconds for the start of a new query, then for each of its micro-batches.

    Offsets are handed over as Spark does: as texts, which are read each time.

    Args:
        options: Of the query.
        count: How many topic partitions it reads.
        between: Called after each micro-batch.
    """
    columns = arrow_schema(("value",))
    source = PulsarSource(parse_read_options(options, streaming=True), columns)
    reader = StreamReader(source, columns)
    times: list[float] = []
    start = end = ""

    def begin() -> None:
        nonlocal start
        start = json.dumps(reader.initialOffset())

    def plan() -> None:
        nonlocal end
        end = json.dumps(reader.latestOffset(json.loads(start), ReadAllAvailable()))
        tasks = reader.partitions(json.loads(start), json.loads(end))
        assert sum(1 for _ in tasks) == count

    try:
        times.append(wall(begin)())
        for number in range(4):
            if number:
                reader.commit(json.loads(start))
            times.append(wall(plan)())
            start = end
            between()
    finally:
        reader.stop()
    return times
