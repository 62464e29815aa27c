# SPDX-License-Identifier: Apache-2.0
"""Plans over a thousand topic partitions of three brokers that are 10 ms away.

The brokers share the machine, and load all topics at once: the clock shows them, too.
What is ours are the round trips, counted, and the processor's time of this process.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.pulsar_source import PulsarSource
from spark_topics.spark.stream_reader import StreamReader
from tests.bench.cluster import note
from tests.bench.delayed_link import DelayedLink
from tests.bench.publish import publish
from tests.bench.report import MICROSECONDS, SECONDS, Case
from tests.bench.samples import NONE, topic_batches
from tests.support.broker_cluster import BrokerCluster
from tests.support.round_trips import round_trips

_PARTITIONS = 1000
_DELAY_MS = 10

#: Ten round trips, and a tenth of a millisecond of the processor for each partition.
_TARGET_S = 10 * 2 * _DELAY_MS / 1000 + _PARTITIONS * 1e-4
_TARGET_US = 100.0

_COLUMNS = arrow_schema(("value",))

_numbers = itertools.count(1)


@dataclass
class _Step:
    """What was measured of a step.

    Attributes:
        seconds: By the clock, repeat by repeat.
        cpu_s: By the processor's.
        round_trips: One after the other, of the first run.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    round_trips: int = 0


def run(rows: int, repeats: int) -> list[Case]:
    """One row of the result is one topic partition that was planned."""
    count = min(rows, _PARTITIONS)
    links = [DelayedLink() for _ in range(3)]
    steps: dict[str, _Step] = {}
    with contextlib.ExitStack() as stack:
        for link in links:
            stack.enter_context(link)
        cluster = stack.enter_context(BrokerCluster(links=links))
        topic = _topic(cluster, count)
        for link in links:
            link.delay(_DELAY_MS)
        for number in range(max(repeats, 3) + 1):
            note(f"plans of {count} partitions, {number}")
            for name, work in _works(cluster, topic, count):
                _measure(steps.setdefault(name, _Step()), work, number)
    return [case for name, step in steps.items() for case in _cases(name, step, count)]


def _topic(cluster: BrokerCluster, count: int) -> str:
    namespace = f"public/far-{uuid.uuid4().hex[:8]}"
    cluster.admin.create_namespace(namespace, keep=True)
    topic = f"persistent://{namespace}/rows"
    cluster.admin.create_partitioned(topic, count)
    names = [f"{topic}-partition-{number}" for number in range(count)]
    cluster.spread(list({cluster.admin.bundle(name): name for name in names}.values()))
    publish(cluster.service_url.split(",")[0], names, topic_batches(100, 1, NONE), 1)
    return topic


def _works(
    cluster: BrokerCluster, topic: str, count: int
) -> list[tuple[str, Callable[[], object]]]:
    """The steps of a new process each: a batch read's, and a query's, in order."""
    given = {
        "service.url": cluster.linked_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "deleteSubscriptionOnStop": "true",
        # No connection of this process was opened with it.
        "pulsar.client.operationTimeoutMs": str(60_000 + next(_numbers)),
    }
    batch = PulsarSource(
        parse_read_options({**given, "deleteSubscriptionOnStop": "false"}), _COLUMNS
    )
    streamed = parse_read_options(given, streaming=True)
    reader = StreamReader(PulsarSource(streamed, _COLUMNS), _COLUMNS)
    offsets: list[dict[str, Any]] = []

    def plan_batch() -> None:
        assert len(batch.plan()) == count

    def begin() -> None:
        offsets.append(reader.initialOffset())

    def plan() -> None:
        offsets.append(reader.latestOffset(offsets[-1], ReadAllAvailable()))
        if len(offsets) == 2:  # the later ones have nothing to read
            assert len(reader.partitions(*offsets)) == count
        reader.commit(offsets[-1])

    return [
        ("a batch", plan_batch),
        ("a stream's start", begin),
        ("its first micro-batch", plan),
        ("its second one", plan),
        ("a later one", plan),
        ("", reader.stop),
    ]


def _measure(step: _Step, work: Callable[[], object], number: int) -> None:
    """Count round trips the first time, and measure each later one."""
    if not number:
        with round_trips() as count:
            work()
        step.round_trips = count.depth
        return
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    step.cpu_s.append(time.process_time() - cpu_began)
    step.seconds.append(time.perf_counter() - began)


def _cases(name: str, step: _Step, count: int) -> list[Case]:
    if not name:
        return []
    what = f"plan of {name}, {_DELAY_MS} ms each way, {step.round_trips} round trips"
    return [
        Case("far", what, count, 0, step.seconds, target=_TARGET_S, figure=SECONDS),
        Case(
            "far",
            f"{what}, processor",
            count,
            0,
            step.cpu_s,
            target=_TARGET_US,
            figure=MICROSECONDS,
        ),
    ]
