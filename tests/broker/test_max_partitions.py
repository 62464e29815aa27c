# SPDX-License-Identifier: Apache-2.0
"""Topic partitions that one task reads together: every row once, each in its order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import In

from pulsar_spark import PulsarDataSource
from pulsar_spark.spark.lag import lag_of
from tests.broker.test_no_traces import await_settled, cursors
from tests.support import official, reading
from tests.support.streaming import Query, publish_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.source.plan.read_task import ReadTask
    from pulsar_spark.testing.admin import Admin

PARTITIONS = 7

HINTS: list[dict[str, str]] = [
    {"maxPartitions": "1"},
    {"maxPartitions": "3"},
    {"maxPartitions": "3", "minPartitions": "3"},
    {"maxPartitions": "9", "minPartitions": "9"},
    {"maxPartitions": "2", "maxRecordsPerPartition": "12"},
]


@pytest.fixture
def numbered(service_url: str, admin: Admin, topic: str) -> str:
    """Partitions with no row, and with 5, 10, 15... of them, in two ledgers each."""
    admin.create_partitioned(topic, PARTITIONS)
    for part in range(1, PARTITIONS):
        for half in (range(part * 3), range(part * 3, part * 5)):
            publish_numbers(service_url, topic, [part], half, batch=2)
            admin.unload(f"{topic}-partition-{part}")
    return topic


EXACT = {part: list(range(part * 5)) for part in range(1, PARTITIONS)}


def tasks_of(parts: list[Any]) -> list[ReadTask]:
    """What input partitions read."""
    return [part.value for part in parts]


def test_batch_reads(service_url: str, admin: Admin, numbered: str) -> None:
    """All hints read the same rows, in as many tasks as they say, and leave nothing."""
    names = [f"{numbered}-partition-{i}" for i in range(PARTITIONS)]
    before = [cursors(admin, name) for name in names]
    rows = reading.read(service_url, {"topic": numbered})
    assert len(rows) == sum(map(len, EXACT.values()))
    middle = {name: rows[7].position for name in names if name == rows[7].topic}
    for hint in HINTS:
        reader = reading.reader_of(service_url, {"topic": numbered, **hint})
        parts = reader.partitions()
        if "maxRecordsPerPartition" not in hint:
            assert len(parts) == int(hint["maxPartitions"]), hint
        found = [reading.rows_of(reader, part) for part in parts]
        assert [row for some in found for row in some] == rows, hint
        assert "12" not in hint.values() or max(map(len, found)) <= 12
        assert all(task.brokers for task in tasks_of(parts))
        options = {"topic": numbered, "startingOffsets": json.dumps(middle), **hint}
        assert reading.read(service_url, options) == rows[:5] + rows[7:], hint
    for name, cursor in zip(names, before, strict=True):
        await_settled(admin, name, cursor)


def test_pruned_plans(service_url: str, numbered: str) -> None:
    """What is not wanted is left out before the rest is put together."""
    options = {"topic": numbered, "filterPushdown": "true", "maxPartitions": "2"}
    reader: Any = reading.reader_of(service_url, options)
    reader.pushFilters([In(("__partition",), (2, 4, 6))])
    tasks = tasks_of(reader.partitions())
    assert [[one.partition for one in task.ranges] for task in tasks] == [[2, 4], [6]]


def test_micro_batches(service_url: str, numbered: str) -> None:
    """They are divided in the same way each time, within the limits of a stream."""
    options = {
        "service.url": service_url,
        "topic": numbered,
        "metadataColumns": reading.COLUMNS,
        "startingOffsets": "earliest",
        "ackOnCommit": "false",
        "maxRowsPerTrigger": "40",
    }

    def reader_of(**hint: str) -> Any:
        source = PulsarDataSource(options | hint)
        return source.streamReader(source.schema())

    whole = reader_of()
    offset = whole.initialOffset()
    for _ in range(2):
        start = offset
        offset = whole.latestOffset(start, whole.getDefaultReadLimit())
        parts = whole.partitions(start, offset)
        rows = [r for part in parts for r in reading.rows_of(whole, part)]
        assert 30 <= len(rows) <= 50
        for hint in HINTS:
            planned = []
            for _ in range(2):
                reader = reader_of(**hint)
                parts = reader.partitions(start, offset)
                planned.append(tasks_of(parts))
                reader.stop()
            assert planned[0] == planned[1]
            again = [row for part in parts for row in reading.rows_of(reader, part)]
            assert again == rows, hint
    whole.stop()


def test_through_spark(spark: SparkSession, service_url: str, numbered: str) -> None:
    """Spark has so many tasks, and all rows."""
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "topic": numbered})
        .option("maxPartitions", 2)
        .option("metadataColumns", "__partition")
        .load()
    )
    assert frame.rdd.getNumPartitions() == 2
    found: dict[int, list[int]] = {}
    for row in frame.collect():
        found.setdefault(row["__partition"], []).append(int(row["value"]))
    assert found == EXACT


@pytest.mark.parametrize("limit", [pytest.param("", marks=pytest.mark.matrix), "25"])
def test_streams_through_spark(
    spark: SparkSession, service_url: str, numbered: str, tmp_path: Path, limit: str
) -> None:
    """Each row once, in order; restarts, limits and the lag are as without."""
    options = {
        "service.url": service_url,
        "topic": numbered,
        "startingOffsets": "earliest",
        "maxPartitions": "2",
        "deleteSubscriptionOnStop": "true",
        **({"maxRowsPerTrigger": limit} if limit else {}),
    }
    query = Query(tmp_path / "query", options, available_now=True)
    first = query.start(spark)
    assert first.awaitTermination(240)
    assert query.rows() == EXACT
    assert len(query.committed) > 3 or not limit
    progress = first.lastProgress
    (lag,) = lag_of(progress)
    assert lag.backlog_entries == 0
    assert len(lag.partitions) == PARTITIONS
    parts = range(PARTITIONS)
    for part in parts:
        publish_numbers(
            service_url, numbered, [part], range(part * 5, part * 5 + 3), batch=2
        )
    query.run(spark)
    assert query.rows() == {part: list(range(part * 5 + 3)) for part in parts}


def test_nonsense(service_url: str, topic: str) -> None:
    """Fewer at most than at least cannot be."""
    official.produce(service_url, topic, [b"a"])
    options = {"topic": topic, "minPartitions": "3", "maxPartitions": "2"}
    with pytest.raises(Exception, match="maxPartitions must not be below minPart"):
        reading.plan(service_url, options)
