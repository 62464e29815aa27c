# SPDX-License-Identifier: Apache-2.0
"""Whole reads by Spark of topics whose entries hold few messages, as live ones do.

Producers that flush often, key-based batching and many partitions make such entries.
Broker and reader pay by the entry then, and not by the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pulsar_spark import PulsarDataSource
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.bench.bench_spark import read, ready, to_noop
from tests.bench.cluster import Cluster, Topic, note
from tests.bench.drain import drain
from tests.bench.ingest import ReadyBatches
from tests.bench.report import Case, Measure, in_turns, summed, wall
from tests.bench.samples import NONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE_BYTES = 100
_COLUMNS = "six columns"

#: What a codec may cost of the rate without one.
_CODEC_TARGET = 0.7

_CODECS = {"LZ4": pb.LZ4, "ZSTD": pb.ZSTD}


@dataclass(frozen=True)
class EntrySize:
    """Entries of one size.

    Attributes:
        rows: Messages of each.
        fewer: By how much fewer rows are read than of the largest.
        target: The agreed ratio to the bound; of single messages to the null drain, for
            the broker is what holds everybody back.
        codecs: With which codecs they are read, too.
        to_peer: What must be reached of the Scala connector, six columns.
    """

    rows: int
    fewer: int
    target: float
    codecs: tuple[str, ...] = ()
    to_peer: float = 2.2

    @property
    def name(self) -> str:
        """What the table calls them."""
        return f"{self.rows} x {SIZE_BYTES} B an entry"

    def topic(self, cluster: Cluster, rows: int, codec: int = NONE) -> Topic:
        """A topic of such entries, of as many rows as this size has."""
        return cluster.topic(
            rows // self.fewer, SIZE_BYTES, codec=codec, entry_rows=self.rows
        )


SIZES = (
    EntrySize(1, 5, 0.9, to_peer=1.0),
    EntrySize(5, 5, 0.85, to_peer=1.4),
    EntrySize(20, 2, 0.8, codecs=("LZ4", "ZSTD")),
    EntrySize(100, 1, 0.85),
)


def run(cluster: Cluster, spark: SparkSession, rows: int, repeats: int) -> list[Case]:
    """Each size of entries, beside what broker and Spark allow."""
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(ReadyBatches)
    cases = []
    for size in SIZES:
        note(f"Spark reads {size.name}")
        cases += _cases(cluster, spark, size, rows, repeats)
    return cases


def _cases(
    cluster: Cluster, spark: SparkSession, size: EntrySize, rows: int, repeats: int
) -> list[Case]:
    topics = {"": size.topic(cluster, rows)}
    topics |= {name: size.topic(cluster, rows, _CODECS[name]) for name in size.codecs}
    measures: dict[str, Measure] = {
        "drain": partial(drain, cluster.service_url, cluster.plan(topics[""])),
        "ingest": wall(partial(to_noop, partial(ready, spark, topics[""], _COLUMNS))),
    }
    for name, topic in topics.items():
        counted = read(cluster, spark, topic, _COLUMNS).count()
        assert counted == topic.rows, f"{counted} rows of {topic.rows}"
        load = partial(read, cluster, spark, topic, _COLUMNS)
        measures[name] = wall(partial(to_noop, load))
    seconds = in_turns(measures, repeats)

    def case(
        what: str,
        key: str,
        limit: str = "",
        of: list[float] | None = None,
        target: float | None = None,
    ) -> Case:
        topic = topics.get(key, topics[""])
        return Case(
            "small",
            f"{size.name}, {what}",
            topic.rows,
            topic.value_bytes,
            seconds[key],
            limit,
            of,
            target,
        )

    limit, of = "bound", summed(seconds["drain"], seconds["ingest"])
    if size.rows == 1:
        limit, of = "null drain", seconds["drain"]
    return [
        case("null drain", "drain"),
        case(_COLUMNS, "", limit, of, target=size.target),
        *(
            case(
                f"{name}, {_COLUMNS}",
                name,
                "uncompressed",
                seconds[""],
                target=_CODEC_TARGET,
            )
            for name in size.codecs
        ),
    ]
