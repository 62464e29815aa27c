"""Planning a read: the time of ``partitions()``, by the number of topic partitions."""

from __future__ import annotations

from statistics import median

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.spark.reader import PulsarReader
from pulsar_spark.spark.schema import spark_schema
from tests.bench.cluster import Cluster
from tests.bench.report import Case, in_turns, wall

#: Requests that must follow each other: number of partitions, lookup, SUBSCRIBE, last
#: message id, CLOSE_CONSUMER.
_ROUND_TRIPS = 5


def run(cluster: Cluster, counts: list[int], repeats: int) -> list[Case]:
    """One row of the result is one topic partition that was planned."""
    cases = []
    for count in counts:
        topic = cluster.topic(count, 100, partitions=count)
        options = cluster.options(topic)
        reader = PulsarReader(options, spark_schema(("value",)))
        lookup = TopicLookup(shared_pool(options.client))

        def plan(reader: PulsarReader = reader, count: int = count) -> None:
            assert len(reader.partitions()) == count

        def ask(
            lookup: TopicLookup = lookup, name: str = topic.name, count: int = count
        ) -> None:
            names = [f"{name}-partition-{i}" for i in range(count)]
            for _ in range(_ROUND_TRIPS):
                lookup.brokers(names)

        seconds = in_turns({"ask": wall(ask), "plan": wall(plan)}, max(repeats, 5))
        cases.append(
            Case(
                "planning",
                f"{count} partitions, {median(seconds['plan']) * 1e3:.0f} ms",
                count,
                0,
                seconds["plan"],
                f"{_ROUND_TRIPS} lookups of each",
                seconds["ask"],
            )
        )
    return cases
