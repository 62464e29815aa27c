# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of TubeMQ, beside the null drain, a synchronous sender and Java.

The first two measure one partition in this process, against one process that drops what
comes; the third a whole topic by Spark, against as many processes as it has tasks.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from siblings.tubemq.tests.bench.drain import drain
from siblings.tubemq.tests.support.java import JavaClient
from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from spark_topics.sink.write import Task
from tests.bench.cluster import note
from tests.bench.report import MICROSECONDS, Case, Measure, cpu, in_turns, wall
from tests.support.waiting import await_true
from tubemq_spark import TubeMQDataSource
from tubemq_spark.arrow.decode import TYPES, Decoder
from tubemq_spark.client.brokers import shared_pool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.options import ClientOptions, ReadOptions, WriteOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.sink.write import TubeMQWrite
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.task import read_task
from tubemq_spark.wire import messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.checksums import checksum, crc32
from tubemq_spark.wire.gets import read_got
from tubemq_spark.wire.metadata import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What a read must reach of the drain, and the sink of a synchronous sender.
_TO_DRAIN = 0.8
_TO_SYNCHRONOUS = 5.0

_PARTITIONS = 2
_FLUSH_S = 300.0
_BATCH_ROWS = 1000

#: Messages that one synchronous sender is measured by: it is slow.
_SYNCHRONOUS_ROWS = 5000

#: As servers have them by default, where tests have small ones.
_SETTINGS = {
    "maxSegmentSize": str(1024 * 1024 * 1024),
    "maxIndexSegmentSize": str(22020096),
}

COLUMNS = {
    "value only": ("value",),
    "all columns": tuple(TYPES),
}


@dataclass(frozen=True)
class _Kind:
    """Messages of one kind.

    Attributes:
        name: What the table calls them.
        size_bytes: Of each value.
        fewer: By how much fewer of them are read than of the smallest.
        has_attributes: Whether each has a type, a time and an attribute of its own.
    """

    name: str
    size_bytes: int
    fewer: int = 1
    has_attributes: bool = False

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return f"bench_{self.size_bytes}_{int(self.has_attributes)}"


KINDS = (
    _Kind("100 B", 100),
    _Kind("100 B with attributes", 100, 1, True),
    _Kind("1 KiB", 1024, 2),
    _Kind("10 KiB", 10240, 10),
)
_SINK, _SYNCHRONOUS = "bench_sink", "bench_synchronous"


def run_decode(rows: int, repeats: int) -> Iterator[Case]:
    """Replies of gets become RecordBatches, without a server: the processor's time."""
    for kind in KINDS[:3]:
        some = _reply(kind, _BATCH_ROWS)
        for name, wanted in COLUMNS.items():
            decoder = Decoder(_schema(wanted), Partition("t", 1, 0))
            decode = partial(_decode, some, decoder, rows // _BATCH_ROWS)
            (seconds,) = in_turns({name: cpu(decode)}, repeats).values()
            yield Case(
                "tubemq-decode",
                f"{kind.name}, {name}",
                rows // _BATCH_ROWS * _BATCH_ROWS,
                rows * kind.size_bytes,
                seconds,
                figure=MICROSECONDS,
            )


def _reply(kind: _Kind, rows: int) -> bytes:
    reply = pb.GetMessageResponseB2C(success=True, errCode=200, errMsg="OK!")
    for row in _batch(kind, 0, rows).to_pylist():
        stored = encode_body(
            Body(
                row["value"],
                row.get("__msgType"),
                row.get("__msgTime"),
                dict(row.get("__attributes", ())),
            )
        )
        reply.messages.add(
            messageId=2**60,
            checkSum=checksum(stored.data),
            payLoadData=stored.data,
            flag=stored.flag,
        )
    return reply.SerializeToString()


def _decode(data: bytes, decoder: Decoder, times: int) -> None:
    for _ in range(times):
        some = read_got(memoryview(data)).messages
        assert some.first_damaged(crc32) < 0
        decoder.decode(some, 0)


def run(spark: SparkSession, rows: int, repeats: int) -> Iterator[Case]:
    """Reads and writes through a master and a broker of our own."""
    topics = [kind.topic for kind in KINDS] + [_SINK, _SYNCHRONOUS]
    with contextlib.ExitStack() as stack:
        note("starting TubeMQ")
        tube = stack.enter_context(
            TubeMQ(
                [Topic(name, stores=_PARTITIONS) for name in topics],
                _SETTINGS,
                is_short_lived=False,
            )
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tubemq-java-"))
        java = JavaClient(Path(folder), tube.masters, ("-Xmx1g",))
        yield from _writes(tube, rows // 10, repeats)
        spark.dataSource.register(TubeMQDataSource)
        for kind in KINDS:
            tasks = _fill(tube, kind, rows // kind.fewer)
            yield from _reads(tube, java, spark, kind, tasks, repeats)


# -- reads -----------------------------------------------------------------------------


def _reads(
    tube: TubeMQ,
    java: JavaClient,
    spark: SparkSession,
    kind: _Kind,
    tasks: Sequence[ReadTask],
    repeats: int,
) -> Iterator[Case]:
    note(f"TubeMQ: reads of {kind.name}")
    options = _read_options(tube, kind)
    ranges = [task.range for task in tasks]
    ends = {one.partition.partition_id: one.end for one in ranges}
    measures: dict[str, Measure] = {
        "drain": partial(drain, ranges[:1]),
        **{
            name: wall(partial(_read, tasks[0], options, wanted))
            for name, wanted in COLUMNS.items()
        },
        "drain all": partial(drain, ranges),
        "spark": wall(partial(_to_noop, spark, tube, kind)),
        "java": partial(_drain_by_java, java, kind, ends),
    }
    seconds = in_turns(measures, repeats)
    yield from read_cases(kind, [one.entries for one in ranges], seconds)


def read_cases(
    kind: _Kind, entries: Sequence[int], seconds: dict[str, list[float]]
) -> Iterator[Case]:
    """What was measured of reads, as lines.

    Args:
        kind: Of which messages.
        entries: Of each partition; the first one is read by itself.
        seconds: By what was measured.
    """

    def case(
        key: str, what: str, rows: int, limit: str = "", by: str = "", **more: float
    ) -> Case:
        return Case(
            "tubemq",
            f"{kind.name}, {what}",
            rows,
            rows * kind.size_bytes,
            seconds[key],
            limit,
            seconds[by] if by else None,
            **more,
        )

    one, every = entries[0], sum(entries)
    yield case("drain", "null drain of a partition", one)
    for name in COLUMNS:
        yield case(
            name, f"a partition, {name}", one, "null drain", "drain", target=_TO_DRAIN
        )
    yield case("drain all", f"null drain of {len(entries)}", every)
    yield case("java", f"Java client, {len(entries)} threads", every)
    for limit, by in (("null drain", "drain all"), ("Java client", "java")):
        yield case("spark", "Spark, all columns", every, limit, by)


def _read(task: ReadTask, options: ReadOptions, wanted: Sequence[str]) -> None:
    found = sum(len(batch) for batch in read_task(task, options, _schema(wanted)))
    assert found == task.range.entries, f"{found} rows of {task.range.entries}"


def _drain_by_java(java: JavaClient, kind: _Kind, ends: dict[int, int]) -> float:
    rows, seconds = java.drain(kind.topic, f"java{uuid.uuid4().hex}", ends)
    assert rows == sum(ends.values()) // ENTRY_BYTES, rows
    return seconds


def _to_noop(spark: SparkSession, tube: TubeMQ, kind: _Kind) -> None:
    reader = spark.read.format("tubemq").option("master.rpc", tube.masters)
    frame = reader.options(topic=kind.topic, group="bench-spark").load()
    frame.write.format("noop").mode("overwrite").save()


def _schema(wanted: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in wanted])


def _read_options(tube: TubeMQ, kind: _Kind) -> ReadOptions:
    return ReadOptions(
        ClientOptions(masters=(tube.masters,)), (kind.topic,), group="bench"
    )


def _fill(tube: TubeMQ, kind: _Kind, rows: int) -> list[ReadTask]:
    """Write a topic and wait until it is flushed; return what its tasks read."""
    note(f"TubeMQ: writing {rows:,} rows of {kind.name}")
    _write(tube, kind.topic, [_batch(kind, 0, _BATCH_ROWS)] * (rows // _BATCH_ROWS))
    options = _read_options(tube, kind)
    pool = shared_pool(options.client)

    def is_flushed() -> bool:
        plan = plan_batch(pool, options)
        return sum(task.range.entries for task in plan) >= rows // _BATCH_ROWS * (
            _BATCH_ROWS
        )

    await_true(is_flushed, "the flush", _FLUSH_S)
    return plan_batch(pool, options)


def _batch(kind: _Kind, first: int, rows: int) -> pa.RecordBatch:
    value = b"." * (kind.size_bytes - 8)
    columns: dict[str, pa.Array] = {
        "value": pa.array([b"%08d" % (first + n) + value for n in range(rows)])
    }
    if kind.has_attributes:
        columns["__msgType"] = pa.array([f"type{n % 10}" for n in range(rows)])
        columns["__msgTime"] = pa.array(["202611230815"] * rows)
        columns["__attributes"] = pa.array(
            [[("number", str(n))] for n in range(rows)], TYPES["__attributes"]
        )
    return pa.RecordBatch.from_pydict(columns)


# -- writes ----------------------------------------------------------------------------


def _writes(tube: TubeMQ, rows: int, repeats: int) -> Iterator[Case]:
    note("TubeMQ: writes")
    kind = KINDS[0]
    batch = _batch(kind, 0, _BATCH_ROWS)
    rows = rows // _BATCH_ROWS * _BATCH_ROWS
    write = partial(_write, tube, _SINK, [batch] * (rows // _BATCH_ROWS))
    few = min(rows, _SYNCHRONOUS_ROWS)
    alone = partial(_write_alone, tube, batch, few)
    seconds = in_turns(
        {"alone": lambda: alone() * rows / few, "sink": wall(write), "cpu": cpu(write)},
        repeats,
    )
    yield Case(
        "tubemq",
        f"{kind.name}, one task of the sink",
        rows,
        rows * kind.size_bytes,
        seconds["sink"],
        "one after the other",
        seconds["alone"],
        _TO_SYNCHRONOUS,
    )
    yield Case(
        "tubemq",
        f"{kind.name}, one task of the sink, processor",
        rows,
        rows * kind.size_bytes,
        seconds["cpu"],
        figure=MICROSECONDS,
    )


def _write(tube: TubeMQ, topic: str, batches: Sequence[pa.RecordBatch]) -> None:
    options = WriteOptions(ClientOptions(masters=(tube.masters,)), (topic,))
    sent = TubeMQWrite(options).run(Task(0), iter(batches))
    assert sent.messages == sum(map(len, batches)), sent


def _write_alone(tube: TubeMQ, batch: pa.RecordBatch, rows: int) -> float:
    """Send messages, each when the one before is stored; return the seconds."""
    client = ClientOptions(masters=(tube.masters,))
    values = batch.column("value").to_pylist()
    with Masters(client) as masters:
        producer = Producer(masters, (_SYNCHRONOUS,))
        view = producer.wait_for(client.operation_timeout_s)
        (partition, *_) = view.topics[_SYNCHRONOUS].partitions
        connection = shared_pool(client).connection(view.brokers[partition.broker_id])
        began = time.perf_counter()
        for number in range(rows):
            connection.ask(
                messages.send(
                    producer.client_id,
                    partition.topic,
                    partition.partition_id,
                    encode_body(Body(values[number % len(values)])),
                    token=view.token,
                )
            )
        seconds = time.perf_counter() - began
        producer.close()
    return seconds
