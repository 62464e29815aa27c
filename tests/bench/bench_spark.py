# SPDX-License-Identifier: Apache-2.0
"""A whole read by Spark into its ``noop`` sink, beside what broker and Spark allow.

The bound is what is left when our own part costs nothing: the time to drain the topic
and the time Spark needs for ready RecordBatches, one after the other, because broker,
JVM and Python share the machine. Of compressed entries the time to decompress them, and
nothing else, comes between the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pulsar_spark import PulsarDataSource
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import decompress
from tests.bench.bench_decode import COLUMNS
from tests.bench.cluster import Cluster, Topic, note
from tests.bench.drain import drain
from tests.bench.ingest import ReadyBatches
from tests.bench.report import Case, Measure, in_turns, summed, wall
from tests.bench.samples import NONE, topic_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ONE = "drain by one"
_UNPACK = "decompression"

#: How often a row of a topic of one partition is hashed, some microseconds in all.
_HASHES = 8


@dataclass(frozen=True)
class _Size:
    """Messages of one size.

    Attributes:
        size_bytes: Of each value.
        name: What the table calls it.
        fewer: By how much fewer of them are read than of the smallest.
        columns: Choices of columns to read.
        codec: How its entries are compressed, a CompressionType of the protocol.
        to_bound: The agreed ratio to the bound.
        to_drain: The agreed ratio to the null drain of the same entries by one
            consumer.
        to_unpacked: The agreed ratio to the bound with decompression.
    """

    size_bytes: int
    name: str
    fewer: int
    columns: tuple[str, ...] = ("six columns",)
    codec: int = NONE
    to_bound: float | None = None
    to_drain: float | None = None
    to_unpacked: float | None = None


_SIZES = (
    _Size(100, "100 B", 1, ("six columns", "value only"), to_bound=0.85),
    *(
        _Size(size_bytes, name, fewer, to_drain=0.9)
        for size_bytes, name, fewer in ((1024, "1 KiB", 5), (10240, "10 KiB", 50))
    ),
    *(
        _Size(size_bytes, f"{name} {of_codec}", fewer, codec=codec, to_unpacked=0.9)
        for size_bytes, name, fewer in ((1024, "1 KiB", 5), (10240, "10 KiB", 50))
        for of_codec, codec in (("LZ4", pb.LZ4), ("ZSTD", pb.ZSTD))
    ),
)


def run(cluster: Cluster, spark: SparkSession, rows: int, repeats: int) -> list[Case]:
    """Each size of messages, with the columns to be read of it."""
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(ReadyBatches)
    cases = []
    for size in _SIZES:
        topic = cluster.topic(rows // size.fewer, size.size_bytes, codec=size.codec)
        note(f"Spark reads {size.name}")
        seconds = in_turns(_measures(cluster, spark, topic, size), repeats)
        cases += _cases(size, topic, seconds)
    return [*cases, _split_case(cluster, spark, rows, repeats)]


def _split_case(cluster: Cluster, spark: SparkSession, rows: int, repeats: int) -> Case:
    """What a topic of one partition gains by ``minPartitions``.

    Each row is hashed a few times, as a query would have something to do.
    """
    topic = cluster.topic(rows // 2, _SIZES[0].size_bytes, 1)
    note("Spark reads a topic of one partition")
    work = "value"
    for _ in range(_HASHES):
        work = f"sha2({work}, 512)"

    def load(**options: str) -> DataFrame:
        return read(cluster, spark, topic, "value only", **options).selectExpr(work)

    found = load(minPartitions="2").count()  # a warm-up, too
    assert found == topic.rows, f"{found} rows of {topic.rows}"
    seconds = in_turns(
        {
            "whole": wall(partial(to_noop, load)),
            "split": wall(partial(to_noop, partial(load, minPartitions="2"))),
        },
        repeats,
    )
    return Case(
        "spark",
        f"100 B, hashed {_HASHES} times, 1 partition, minPartitions=2",
        topic.rows,
        topic.value_bytes,
        seconds["split"],
        "without minPartitions",
        seconds["whole"],
        target=1.0,
    )


def _cases(size: _Size, topic: Topic, seconds: dict[str, list[float]]) -> list[Case]:
    def case(what: str, key: str, **limit: Any) -> Case:
        return Case(
            "spark",
            f"{size.name}, {what}",
            topic.rows,
            topic.value_bytes,
            seconds[key],
            **limit,
        )

    cases = [case("null drain", "drain")]
    for name in size.columns:
        cases += [
            case(f"{name}, ready batches", f"ingest {name}"),
            case(
                name,
                name,
                limit="bound",
                limit_seconds=summed(seconds["drain"], seconds[f"ingest {name}"]),
                target=size.to_bound,
            ),
        ]
    if _ONE in seconds:
        cases += [
            case("null drain by one", _ONE),
            case(
                "six columns",
                "six columns",
                limit="null drain by one",
                limit_seconds=seconds[_ONE],
                target=size.to_drain,
            ),
        ]
    if _UNPACK in seconds:
        alone = summed(seconds["drain"], seconds[_UNPACK])
        cases += [
            case("decompression", _UNPACK),
            case(
                "six columns",
                "six columns",
                limit="bound and decompression",
                limit_seconds=summed(alone, seconds["ingest six columns"]),
                target=size.to_unpacked,
            ),
        ]
    return cases


def _measures(
    cluster: Cluster, spark: SparkSession, topic: Topic, size: _Size
) -> dict[str, Measure]:
    ranges = cluster.plan(topic)
    frame = read(cluster, spark, topic, "six columns")
    counted = frame.count()  # a warm-up, too
    assert counted == topic.rows, f"{counted} rows of {topic.rows}"
    measures: dict[str, Measure] = {
        "drain": partial(drain, cluster.service_url, ranges),
    }
    if size.to_drain is not None:
        # As if it took one topic partition after the other.
        measures[_ONE] = lambda: drain(cluster.service_url, ranges[:1]) * len(ranges)
    if size.to_unpacked is not None:
        measures[_UNPACK] = wall(partial(_unpack, topic, size.codec))
    for name in size.columns:
        # Loaded anew each time: a frame keeps its plan, and planning is to be counted.
        handed = partial(ready, spark, topic, name)
        measures[f"ingest {name}"] = wall(partial(to_noop, handed))
        load = partial(read, cluster, spark, topic, name)
        measures[name] = wall(partial(to_noop, load))
    return measures


def _unpack(topic: Topic, codec: int) -> None:
    """Decompress as many entries as a topic partition has, of which each has a core."""
    batches = topic_batches(topic.size_bytes, codec=codec)
    count = topic.rows // topic.partitions // batches[0].rows
    for batch in itertools.islice(itertools.cycle(batches), count):
        size_bytes = batch.metadata.uncompressed_size
        decompress(codec, batch.payload, size_bytes, size_bytes)


def read(
    cluster: Cluster, spark: SparkSession, topic: Topic, columns: str, **options: str
) -> DataFrame:
    """The whole topic, with one of the choices of columns."""
    needed = read_options(cluster.service_url, topic.name, columns)
    return spark.read.format("pulsar").options(**needed, **options).load()


def read_options(service_url: str, topic: str, columns: str) -> dict[str, str]:
    """The options that read one of the choices of columns."""
    metadata_columns = ",".join(COLUMNS[columns][1:]) or "none"
    return {
        "service.url": service_url,
        "topic": topic,
        "metadataColumns": metadata_columns,
    }


def ready(spark: SparkSession, topic: Topic, columns: str) -> DataFrame:
    """The same rows without a broker: Spark alone."""
    return (
        spark.read.format(ReadyBatches.name())
        .option("columns", ",".join(COLUMNS[columns]))
        .option("size", topic.size_bytes)
        .option("rows", topic.rows)
        .option("partitions", topic.partitions)
        .load()
    )


def to_noop(load: Callable[[], DataFrame]) -> None:
    """Plans and reads all of it, for nothing."""
    load().write.format("noop").mode("overwrite").save()
