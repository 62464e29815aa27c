# SPDX-License-Identifier: Apache-2.0
"""Reads and writes over links with latency, beside the same work on loopback.

Through Spark, with default options, over ``delayed_link.c``.
"""

from __future__ import annotations

import itertools
import uuid
from functools import partial

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.bench.cluster import Cluster, Topic, spark_session
from tests.bench.delayed_link import DelayedLink
from tests.bench.report import Case, Measure, in_turns, wall

#: 4.0.7 stores the entries of transactions in a topic partition one after the other.
_RELEASE = "4.2.4"

#: Milliseconds each way, and what of loopback's speed is to be reached: read, written.
DELAYS = {1: (0.95, 0.95), 10: (0.9, 0.85), 50: (0.7, None)}

#: The guarantees of writes, and how the table calls these.
_WRITES = {"at-least-once": "write", "exactly-once": "write, exactly-once"}

#: Of at-least-once, by milliseconds each way.
_EXACTLY_ONCE = {0: 0.85, 10: 0.85}

#: Messages of an entry, and how the table calls them.
_ENTRIES = {None: "850 an entry", 20: "20 an entry"}


def run(rows: int, repeats: int) -> list[Case]:
    """Rows of 100 bytes in two partitions, read, and written with two guarantees."""
    link = DelayedLink()
    with (
        link,
        EmbeddedBroker(
            version=_RELEASE, link=link, is_short_lived=False, log_level="warn"
        ) as broker,
        spark_session() as spark,
    ):
        namespace = f"public/far-{uuid.uuid4().hex[:8]}"
        cluster = Cluster(broker.service_url, broker.admin_url, namespace)
        cluster.admin.create_namespace(namespace, keep=True)
        numbers = itertools.count()

        def read(topic: Topic) -> None:
            reader = spark.read.format("pulsar").option("service.url", link.url)
            frame = reader.option("topic", topic.name).load()
            frame.write.format("noop").mode("overwrite").save()

        def write(value_rows: int, guarantee: str) -> None:
            topic = f"persistent://{namespace}/written-{next(numbers)}"
            cluster.admin.create_partitioned(topic, 2)
            values = spark.range(value_rows).selectExpr(
                "CAST(RPAD(CAST(id AS STRING), 100, 'x') AS BINARY) AS value"
            )
            writer = values.repartition(2).write.format("pulsar").mode("append")
            writer = writer.option("deliveryGuarantee", guarantee)
            writer.option("service.url", link.url).option("topic", topic).save()

        works: dict[str, tuple[int, Measure]] = {}
        for entry_rows, name in _ENTRIES.items():
            topic = cluster.topic(rows, 100, entry_rows=entry_rows)
            works[f"read, {name}"] = topic.rows, wall(partial(read, topic))
        for guarantee, name in _WRITES.items():
            works[name] = rows, wall(partial(write, rows, guarantee))
        measures: dict[str, Measure] = {}
        for delay in (0, *DELAYS):
            for name, (_, measure) in works.items():
                measures[f"{name}, {delay} ms"] = partial(_over, link, delay, measure)
        seconds = in_turns(measures, repeats)
    of_loopback = [
        Case(
            "far",
            f"{name}, {delay} ms each way",
            count,
            count * 100,
            seconds[f"{name}, {delay} ms"],
            "loopback",
            seconds[f"{name}, 0 ms"],
            targets[name in _WRITES.values()],
        )
        for name, (count, _) in works.items()
        for delay, targets in DELAYS.items()
    ]
    at_least_once, exactly_once = _WRITES.values()
    return of_loopback + [
        Case(
            "far",
            f"{exactly_once}, {delay} ms each way",
            rows,
            rows * 100,
            seconds[f"{exactly_once}, {delay} ms"],
            "at-least-once",
            seconds[f"{at_least_once}, {delay} ms"],
            target,
        )
        for delay, target in _EXACTLY_ONCE.items()
    ]


def _over(link: DelayedLink, delay_ms: int, measure: Measure) -> float:
    link.delay(delay_ms)
    return measure()
