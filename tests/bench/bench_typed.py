# SPDX-License-Identifier: Apache-2.0
"""Whole reads by Spark of topics with a schema, beside their values as bytes.

A record has five columns for Spark to take where bytes are one, so what Spark takes of
ready RecordBatches stands beside it, too: as many columns, as many bytes.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from pulsar_spark import PulsarDataSource
from tests.bench import records
from tests.bench.bench_spark import ready, to_noop
from tests.bench.cluster import Cluster, Topic, note
from tests.bench.drain import drain
from tests.bench.ingest import ReadyBatches, ReadyRecords
from tests.bench.report import Case, Measure, in_turns, summed, wall
from tests.bench.samples import batches_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Messages of an entry, as official clients batch them unless told otherwise.
_ENTRY_ROWS = 1000

#: The agreed ratio to the read as bytes, by the kind of schema.
_TARGETS = {"AVRO": 0.9, "JSON": 0.6}

#: The same of kinds whose columns no ready source has.
_FURTHER_TARGETS = {"JSON, map and union": 0.6, "JSON, 1 in 500 unusual": 0.6}

#: The same as bytes: as the user asks for it, and as the ready ones are called.
_RAW = "value BINARY"
_BYTES = "value only"


def run(cluster: Cluster, spark: SparkSession, rows: int, repeats: int) -> list[Case]:
    """Records in AVRO and in JSON."""
    spark.dataSource.register(PulsarDataSource)
    spark.dataSource.register(ReadyBatches)
    spark.dataSource.register(ReadyRecords)
    cases = []
    for kind in _TARGETS:
        cases += _cases(cluster, spark, kind, rows, repeats)
    for kind in _FURTHER_TARGETS:
        cases.append(_beside_bytes(cluster, spark, kind, rows, repeats))
    return cases


def topic_of_records(cluster: Cluster, kind: str, rows: int) -> Topic:
    """A topic of about so many records in AVRO or in JSON."""
    batches = batches_of(
        records.values(8 * _ENTRY_ROWS, kind), _ENTRY_ROWS, schema_version=bytes(8)
    )
    name = re.sub(r"\W+", "-", kind.lower())
    return cluster.topic_of(name, batches, rows, records.SCHEMAS[kind])


def read_records(
    cluster: Cluster, spark: SparkSession, topic: Topic, columns: str = ""
) -> DataFrame:
    """The whole topic: the columns of its schema, or others."""
    reader = spark.read.format("pulsar").options(
        **{"service.url": cluster.service_url, "topic": topic.name},
        metadataColumns="none",
    )
    return (reader.schema(columns) if columns else reader).load()


def _cases(
    cluster: Cluster, spark: SparkSession, kind: str, rows: int, repeats: int
) -> list[Case]:
    topic = _checked_topic(cluster, spark, kind, rows)
    load = partial(read_records, cluster, spark, topic)
    columns_ready = spark.read.format(ReadyRecords.name()).options(
        rows=str(topic.rows), partitions=str(topic.partitions)
    )
    measures: dict[str, Measure] = {
        "drain": partial(drain, cluster.service_url, cluster.plan(topic)),
        "ingest": wall(partial(to_noop, columns_ready.load)),
        "ingest bytes": wall(partial(to_noop, partial(ready, spark, topic, _BYTES))),
        "bytes": wall(partial(to_noop, partial(load, _RAW))),
        "columns": wall(partial(to_noop, load)),
    }
    seconds = in_turns(measures, repeats)
    seconds["bound"] = summed(seconds["drain"], seconds["ingest"])
    seconds["bound of bytes"] = summed(seconds["drain"], seconds["ingest bytes"])

    def case(
        what: str, key: str, limit: str, of: str, target: float | None = None
    ) -> Case:
        return Case(
            "typed",
            f"{kind}, {what}",
            topic.rows,
            topic.value_bytes,
            seconds[key],
            limit,
            seconds[of],
            target,
        )

    return [
        case("5 columns", "columns", "as `value` bytes", "bytes", _TARGETS[kind]),
        case("5 columns", "columns", "bound", "bound"),
        case("`value` bytes", "bytes", "bound", "bound of bytes"),
        case("bound of 5 columns", "bound", "that of bytes", "bound of bytes"),
    ]


def _beside_bytes(
    cluster: Cluster, spark: SparkSession, kind: str, rows: int, repeats: int
) -> Case:
    topic = _checked_topic(cluster, spark, kind, rows)
    load = partial(read_records, cluster, spark, topic)
    seconds = in_turns(
        {
            "bytes": wall(partial(to_noop, partial(load, _RAW))),
            "columns": wall(partial(to_noop, load)),
        },
        repeats,
    )
    return Case(
        "typed",
        kind,
        topic.rows,
        topic.value_bytes,
        seconds["columns"],
        "as `value` bytes",
        seconds["bytes"],
        _FURTHER_TARGETS[kind],
    )


def _checked_topic(
    cluster: Cluster, spark: SparkSession, kind: str, rows: int
) -> Topic:
    """A topic of records, each of which is read with its columns."""
    topic = topic_of_records(cluster, kind, rows)
    counted = read_records(cluster, spark, topic).selectExpr("count(id)").head()
    assert counted is not None
    assert counted[0] == topic.rows, f"{counted[0]} rows of {topic.rows}"
    note(f"Spark reads records in {kind}")
    return topic
