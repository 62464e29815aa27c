# SPDX-License-Identifier: Apache-2.0
"""What it costs to begin and to end a range, and a thousand topic partitions.

The first in this process: tasks that have one entry to read, one after the other, and
one task that reads all those ranges. The second through Spark: a stream reads what
there is of many topic partitions with few entries, and as many entries of two.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pulsar_spark import PulsarDataSource
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.read.task import read_task
from tests.bench.bench_decode import COLUMNS
from tests.bench.bench_memory import peak_mib
from tests.bench.cluster import Cluster, Topic, note, spark_session
from tests.bench.ingest import ReadyBatches
from tests.bench.publish import publish
from tests.bench.report import MIB, MILLISECONDS, Case, Measure, in_turns, wall
from tests.bench.samples import make_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Topic partitions that are read one by one.
_TASKS = 100

#: What beginning and ending may take, in ms: three round trips and some Python.
_TARGET_MS = 3.0

#: Entries of one message in each of many topic partitions.
_ENTRIES = 300

#: How many tasks are to read those, and what the rate may lose by their number.
_MAX_PARTITIONS = "16"
_TARGET_RATIO = 0.7
_TARGET_MIB = 256


def run(cluster: Cluster, partitions: int, repeats: int) -> Iterator[Case]:
    """One row of the result is one task, then one row."""
    yield from _begin_and_end(cluster, repeats)
    yield from _many_partitions(cluster, partitions, repeats)


def _begin_and_end(cluster: Cluster, repeats: int) -> Iterator[Case]:
    topic = _fill(cluster, _TASKS, 1)
    options = cluster.options(topic)
    pool = shared_pool(options.client)
    schema = arrow_schema(("value",))
    tasks = plan_batch(pool, options)

    def read(*tasks: ReadTask, connects: bool = False) -> None:
        for task in tasks:
            if connects:
                pool.close()
            assert sum(map(len, read_task(task, options, schema))) == len(task.ranges)

    brokers = {name: one for task in tasks for name, one in task.brokers.items()}
    together = ReadTask(tuple(r for task in tasks for r in task.ranges), brokers)
    measures: dict[str, Measure] = {
        "a task of one entry": wall(partial(read, *tasks)),
        "a task of one entry that connects": wall(partial(read, *tasks, connects=True)),
        f"a range of a task of {_TASKS}": wall(partial(read, together)),
        "a task of one entry that looks up": wall(
            partial(read, *(ReadTask(task.ranges) for task in tasks))
        ),
    }
    for what, seconds in in_turns(measures, repeats).items():
        yield Case(
            "tasks", what, _TASKS, 0, seconds, target=_TARGET_MS, figure=MILLISECONDS
        )


def _many_partitions(cluster: Cluster, partitions: int, repeats: int) -> Iterator[Case]:
    many = _fill(cluster, partitions, _ENTRIES)
    few = _fill(cluster, 2, partitions * _ENTRIES // 2)
    with spark_session() as spark:
        spark.dataSource.register(PulsarDataSource)
        spark.dataSource.register(ReadyBatches)
        together = {"maxPartitions": _MAX_PARTITIONS}
        seconds = in_turns(
            {
                "few": _available_now(cluster, spark, few),
                "together": _available_now(cluster, spark, many, together),
                "each": _available_now(cluster, spark, many),
                "nothing": _available_now(cluster, spark, many, source=ReadyBatches),
            },
            repeats,
        )
        mib = peak_mib()
    limit = "2 topic partitions"
    of = f"{partitions:,} topic partitions of {_ENTRIES} entries"
    put = f"maxPartitions={_MAX_PARTITIONS}"
    size_bytes = many.value_bytes
    yield Case("tasks", f"availableNow, {limit}", few.rows, size_bytes, seconds["few"])
    for name, what, target in (
        ("together", f"availableNow, {of}, {put}", _TARGET_RATIO),
        ("each", f"availableNow, {of}, a task each", None),
        ("nothing", "availableNow, as many tasks with nothing to do", None),
    ):
        yield Case(
            "tasks",
            what,
            many.rows,
            many.value_bytes,
            seconds[name],
            limit,
            seconds["few"],
            target,
        )
    yield Case(
        "tasks",
        f"worker reading {of}",
        many.rows,
        many.value_bytes,
        seconds["together"],
        target=_TARGET_MIB,
        figure=MIB,
        mib=[mib],
    )


def _fill(cluster: Cluster, partitions: int, entries: int) -> Topic:
    """Write entries of one message of 100 bytes to each partition of a new topic."""
    name = f"persistent://{cluster.namespace}/tasks-p{partitions}-e{entries}"
    note(f"writing {entries:,} entries to each of {partitions:,} partitions")
    cluster.admin.create_partitioned(name, partitions)
    names = [f"{name}-partition-{i}" for i in range(partitions)]
    publish(cluster.service_url, names, make_batches(8, 100, rows=1), entries)
    return Topic(name, partitions, partitions * entries, 100)


def _available_now(
    cluster: Cluster,
    spark: SparkSession,
    topic: Topic,
    further: dict[str, str] | None = None,
    source: type[DataSource] = PulsarDataSource,
) -> Callable[[], float]:
    """Seconds of the micro-batches of a query over all there is, plans included.

    Without what comes before and after them, such as deleting the subscription.
    """
    options: dict[str, Any] = {
        "service.url": cluster.service_url,
        "topic": topic.name,
        "startingOffsets": "earliest",
        "deleteSubscriptionOnStop": "true",
        **(further or {}),
    }
    if source is ReadyBatches:
        options = {
            "columns": ",".join(COLUMNS["six columns"]),
            "size": topic.size_bytes,
            "rows": topic.rows,
            "partitions": topic.partitions,
            "batches": 1,
        }

    def measure() -> float:
        with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
            stream = spark.readStream.format(source.name()).options(**options).load()
            query = (
                stream.writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = query.recentProgress
        assert sum(batch["numInputRows"] for batch in progress) == topic.rows
        parts = progress[0]["durationMs"]
        took_ms = [batch["durationMs"]["triggerExecution"] for batch in progress]
        seconds = float(sum(took_ms)) / 1e3
        note(f"{topic.partitions} partitions: {seconds:.1f} s, of that in ms {parts}")
        return seconds

    return measure
