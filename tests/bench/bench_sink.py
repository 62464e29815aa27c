# SPDX-License-Identifier: Apache-2.0
"""The sink: RecordBatches to frames, one producer, whole writes, micro-batches.

The bound of a write is what is left when our own part costs nothing: the time Spark
needs to hand RecordBatches over, and the time the broker needs for ready entries, one
after the other, because broker, JVM and Python share the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from crc32c import crc32c

from pulsar_spark import PulsarDataSource
from pulsar_spark.arrow.encode import RowEncoder
from pulsar_spark.arrow.routing import Router, partition_runs
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.loops.sends import Packer, SendFrame
from tests.bench import bench_stream
from tests.bench.bench_encode import COLUMNS, ROWS, record_batch
from tests.bench.cluster import Cluster, note
from tests.bench.egress import DropBatches
from tests.bench.ingest import ReadyBatches
from tests.bench.publish import (
    PRODUCER_ID,
    Producer,
    broker_of,
    client_options,
    publish_at_once,
)
from tests.bench.report import (
    MICROSECONDS,
    MORE_MS,
    RATIO,
    Case,
    Measure,
    cpu,
    in_turns,
    summed,
    wall,
)
from tests.bench.samples import Batch, make_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: RecordBatches of each repeat.
_BATCHES = 20

_MAX_MESSAGE_BYTES = 5 << 20

_PARTITIONS = 2

#: The default, and the other ones beside it.
_AT_LEAST_ONCE = "at-least-once"
_OTHERS = ("none", "idempotent", "exactly-once")

#: What exactly-once must reach of at-least-once.
_EXACTLY_ONCE_TARGET = 0.85

#: Microseconds of the processor that a row with a key may take to frames.
_FRAMES_TARGET = 0.35

# -- frames ----------------------------------------------------------------------------


def run_frames(repeats: int) -> list[Case]:
    """Beside what has to be done in any case: values copied once, and a checksum."""
    cases = []
    for columns, partitions in (
        ("value only", 1),
        ("+ key", 1),
        ("+ event time", 1),
        ("+ event time", 2),
    ):
        is_target = columns == "+ key"
        batches = [
            record_batch(number, 100).select(COLUMNS[columns]) for number in range(4)
        ]
        values = [_values(batch) for batch in batches]
        seconds = in_turns(
            {
                "copy": cpu(partial(_copies, values)),
                "frames": cpu(partial(_frames, batches, partitions)),
            },
            max(repeats, 5),
        )
        topic_partitions = f"{partitions} partition{'s' * (partitions > 1)}"
        cases.append(
            Case(
                "encode",
                f"100 B to frames, {columns}, {topic_partitions}",
                ROWS * _BATCHES,
                ROWS * _BATCHES * 100,
                seconds["frames"],
                "a copy and its CRC-32C",
                seconds["copy"],
                _FRAMES_TARGET if is_target else None,
                figure=MICROSECONDS if is_target else RATIO,
            )
        )
    return cases


def _values(batch: pa.RecordBatch) -> memoryview:
    return memoryview(batch.column("value").buffers()[2])


def _copies(values: list[memoryview]) -> None:
    for number in range(_BATCHES):
        crc32c(bytes(values[number % len(values)]))


def _frames(batches: list[pa.RecordBatch], partitions: int) -> None:
    """As ``sink.task`` does it."""
    encoder = RowEncoder(batches[0].schema)
    router = Router(
        partitions,
        "JavaStringHash",
        "RoundRobinPartition",
        first=0,
        run_length=1000,
    )
    packers = [_packer() for _ in range(partitions)]
    count = 0
    for number in range(_BATCHES):
        rows = encoder.encode(batches[number % len(batches)])
        indices, runs = partition_runs(router.route(rows, number * ROWS))
        if indices is not None:
            rows = rows.take(indices)
        numbers = range(number * ROWS, (number + 1) * ROWS)
        for partition, start, end in runs:
            frames: list[SendFrame] = []
            packers[partition].add(rows.packed, numbers, start, end, frames, ROWS**3)
            count += sum(frame.rows for frame in frames)
    count += sum(packer.rows for packer in packers)
    assert count == _BATCHES * ROWS


def _packer() -> Packer:
    """Of the default options."""
    return Packer(
        producer_id=PRODUCER_ID,
        producer_name="bench",
        max_entry_bytes=_MAX_MESSAGE_BYTES,
        max_rows=1000,
        max_bytes=128 * 1024,
        max_alone_bytes=_MAX_MESSAGE_BYTES,
        txn=None,
        codec=0,
        compress=bytes,
        now_ms=lambda: 0,
    )


# -- one producer ----------------------------------------------------------------------


def run_producer(cluster: Cluster, rows: int, repeats: int) -> list[Case]:
    """Ready frames of 1000 rows, by our producer and by a bare socket."""
    rows = min(rows, 500_000)  # all of their frames are kept
    with cluster.further_namespace() as namespace:
        topic = new_topic(cluster, namespace, 1)
        batches = make_batches(8, 100, rows=min(rows, 1000))
        note("one producer")
        seconds = in_turns(
            {
                "bare": partial(_bare, cluster, topic, batches, rows),
                "ours": partial(_ours, cluster, topic, batches, rows),
            },
            repeats,
        )
    return [
        Case("producer", "100 B, bare socket", rows, rows * 100, seconds["bare"]),
        Case(
            "producer",
            "100 B, ready frames",
            rows,
            rows * 100,
            seconds["ours"],
            "bare socket",
            seconds["bare"],
        ),
    ]


def _bare(cluster: Cluster, topic: str, batches: list[Batch], rows: int) -> float:
    (broker,) = broker_of(cluster.service_url, [topic]).values()
    with Producer(broker, topic) as producer:
        frames = _ready_frames(batches, rows, PRODUCER_ID)
        began = time.perf_counter()
        for frame in frames:
            producer.put(frame.data)
        producer.flush()
        return time.perf_counter() - began


def _ours(cluster: Cluster, topic: str, batches: list[Batch], rows: int) -> float:
    pool = ConnectionPool(client_options(cluster.service_url))
    producers = Producers(pool, ProducerSettings())
    try:
        producers.open([topic])
        producer = producers.get(topic)
        frames = _ready_frames(batches, rows, producer.producer_id)
        began = time.perf_counter()
        for frame in frames:
            producers.send(producer, frame)
        producers.flush()
        seconds = time.perf_counter() - began
        assert producer.stored.rows >= rows
    finally:
        producers.close()
        pool.close()
    return seconds


def _ready_frames(batches: list[Batch], rows: int, producer_id: int) -> list[SendFrame]:
    frames: list[SendFrame] = []
    for first in range(0, rows, batches[0].rows):
        batch = batches[len(frames) % len(batches)]
        last = first + batch.rows - 1
        data = batch.send(producer_id, first)
        frames.append(SendFrame(first, last, batch.rows, data))
    return frames


# -- whole writes ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Size:
    """Rows of one size.

    Attributes:
        size_bytes: Of each value.
        name: What the table calls it.
        fewer: By how much fewer of them are written than of the smallest.
        others: Guarantees besides the default one.
        target: The agreed ratio to the bound.
    """

    size_bytes: int
    name: str
    fewer: int
    others: tuple[str, ...] = ()
    target: float | None = None


_SIZES = (
    _Size(100, "100 B", 1, others=_OTHERS, target=0.9),
    _Size(1024, "1 KiB", 5),
)


def run_writes(
    cluster: Cluster, spark: SparkSession, rows: int, repeats: int
) -> list[Case]:
    """Two input partitions to two topic partitions; each guarantee at 100 bytes."""
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(DropBatches)
    cases = []
    for size in _SIZES:
        with _targets(cluster, (_AT_LEAST_ONCE, *size.others)) as targets:
            cases += _write_cases(
                cluster, spark, size, targets, rows // size.fewer, repeats
            )
    return cases


def _write_cases(
    cluster: Cluster,
    spark: SparkSession,
    size: _Size,
    targets: dict[str, str],
    rows: int,
    repeats: int,
) -> list[Case]:
    note(f"Spark writes {size.name}")
    frame = rows_to_write(spark, rows, size.size_bytes).cache()
    try:
        assert frame.count() == rows
        topic = targets[_AT_LEAST_ONCE]
        partitions = [f"{topic}-partition-{i}" for i in range(_PARTITIONS)]
        each = rows // _PARTITIONS
        measures: dict[str, Measure] = {
            "raw": partial(
                publish_at_once, cluster.service_url, partitions, size.size_bytes, each
            ),
            "egress": wall(partial(save, frame, DropBatches.name(), {})),
        }
        for guarantee, target in targets.items():
            options = sink_options(cluster, target, guarantee)
            measures[guarantee] = wall(partial(save, frame, "pulsar", options))
        measures[_AT_LEAST_ONCE]()
        stored = _count(cluster, spark, topic)
        assert stored == rows, f"{stored} rows of {rows}"
        seconds = in_turns(measures, repeats)
    finally:
        frame.unpersist(blocking=True)

    def case(what: str, key: str, limit: str = "", **of_limit: Any) -> Case:
        return Case(
            "sink",
            f"{size.name}, {what}",
            rows,
            rows * size.size_bytes,
            seconds[key],
            limit,
            **of_limit,
        )

    return [
        case("raw publish", "raw"),
        case("dropped batches", "egress"),
        case(
            _AT_LEAST_ONCE,
            _AT_LEAST_ONCE,
            "bound",
            limit_seconds=summed(seconds["raw"], seconds["egress"]),
            target=size.target,
        ),
        *(
            case(
                other,
                other,
                _AT_LEAST_ONCE,
                limit_seconds=seconds[_AT_LEAST_ONCE],
                target=_EXACTLY_ONCE_TARGET if other == "exactly-once" else None,
            )
            for other in size.others
        ),
    ]


def row_expressions(size_bytes: int) -> list[str]:
    """In SQL, the columns of a row to write, out of its ``id``."""
    times = -(-size_bytes // 128)  # a digest has 128 characters
    text = f"repeat(sha2(cast(id AS string), 512), {times})"
    return [
        f"cast(substring({text}, 1, {size_bytes}) AS binary) AS value",
        "concat('key-', cast(id % 10000 AS string)) AS __key",
        "timestamp_millis(id + 1760000000000) AS __eventTime",
    ]


def rows_to_write(spark: SparkSession, rows: int, size_bytes: int) -> DataFrame:
    """So many, in two input partitions."""
    ids = spark.range(0, rows, 1, _PARTITIONS)
    return ids.selectExpr(*row_expressions(size_bytes))


def save(frame: DataFrame, sink: str, options: dict[str, Any]) -> None:
    """Writes all rows of it."""
    frame.write.format(sink).mode("append").options(**options).save()


def _count(cluster: Cluster, spark: SparkSession, topic: str) -> int:
    read = spark.read.format("pulsar").option("service.url", cluster.service_url)
    return read.option("topic", topic).load().count()


def sink_options(
    cluster: Cluster, topic: str, guarantee: str = _AT_LEAST_ONCE
) -> dict[str, Any]:
    """The options that write to a topic."""
    return {
        "service.url": cluster.service_url,
        "topic": topic,
        "deliveryGuarantee": guarantee,
    }


# -- micro-batches ---------------------------------------------------------------------

#: From the sink's plan to its commit, with the tasks in between.
_PHASE = "addBatch"


def run_batches(
    cluster: Cluster, spark: SparkSession, batches: int, repeats: int
) -> list[Case]:
    """One row of the result is one micro-batch of ten rows from two input partitions.

    The source has nothing to do, and so has the sink that the others are held against.
    Spark's own logs are left out: they take as long as the disk is busy.
    """
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(DropBatches)
    spark.dataSource.register(ReadyBatches)
    note("Spark writes micro-batches")
    source = ReadyBatches.name(), bench_stream.ready_rows(batches)
    nothing = "a sink with nothing to do"
    with _targets(cluster, (_AT_LEAST_ONCE, *_OTHERS)) as targets:
        measures = {
            nothing: bench_stream.batch_measure(
                spark, *source, DropBatches.name(), phase=_PHASE
            )
        }
        for guarantee, topic in targets.items():
            options = sink_options(cluster, topic, guarantee)
            measures[guarantee] = bench_stream.batch_measure(
                spark, *source, "pulsar", options, phase=_PHASE
            )
        seconds = in_turns(measures, repeats)
    idle = seconds[nothing]
    return [
        Case("sink", f"micro-batch, {nothing}", 1, 0, idle),
        *(
            Case(
                "sink",
                f"micro-batch, {guarantee}",
                1,
                0,
                seconds[guarantee],
                nothing,
                idle,
                figure=MORE_MS,
            )
            for guarantee in targets
        ),
    ]


_numbers = itertools.count()


@contextlib.contextmanager
def _targets(cluster: Cluster, guarantees: Iterable[str]) -> Iterator[dict[str, str]]:
    """A topic for each guarantee."""
    with (
        cluster.further_namespace() as plain,
        cluster.further_namespace(deduplication=True) as deduplicating,
    ):
        namespaces = {"idempotent": deduplicating}
        yield {
            one: new_topic(cluster, namespaces.get(one, plain), _PARTITIONS)
            for one in guarantees
        }


def new_topic(cluster: Cluster, namespace: str, partitions: int) -> str:
    """An empty one, by its full name."""
    topic = f"persistent://{namespace}/sink-{next(_numbers)}"
    if partitions > 1:
        cluster.admin.create_partitioned(topic, partitions)
    else:
        cluster.admin.create_topic(topic)
    return topic
