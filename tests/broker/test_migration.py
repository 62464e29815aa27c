# SPDX-License-Identifier: Apache-2.0
"""A cluster whose administrator migrates it to another one, while jobs run.

Two real brokers of two clusters. From the call on, the first one takes nothing new, and
says where to go to; what it has can still be read there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.broker.test_failover import RATE, committed
from tests.support import official, reading
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.soak

TOPIC = "persistent://public/default/rows"
QUICK = {"pulsar.client.maxBackoffIntervalNanos": "500000000"}


@pytest.fixture
def clusters() -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """Two clusters, blue and green."""
    settings = {"clusterMigrationCheckDurationSeconds": "1"}
    blue, green = (
        EmbeddedBroker(settings={"clusterName": name, **settings})
        for name in ("blue", "green")
    )
    with blue, green:
        for one in (blue, green):
            admin = Admin(one.admin_url)
            admin.set_retention("public/default", minutes=-1, size_mb=-1)
            admin.set_deduplication("public/default", enabled=True)
        yield blue, green


def migrate(blue: EmbeddedBroker, green: EmbeddedBroker) -> None:
    """Marks the first cluster as migrated to the second."""
    Admin(blue.admin_url).migrate("blue", green.admin_url, green.service_url)


def write(spark: SparkSession, url: str, rows: range, **options: str) -> None:
    """Writes numbers, in two tasks."""
    frame = spark.range(rows.start, rows.stop, 1, 2)
    frame.selectExpr("CAST(id AS STRING) AS value").write.format("pulsar").mode(
        "append"
    ).options(**{"service.url": url, "topic": TOPIC, **QUICK, **options}).save()


def stored(broker: EmbeddedBroker) -> Counter[int]:
    """The numbers in the topic of a cluster."""
    rows = official.read_back(broker.service_url, TOPIC, partitions=2)
    return Counter(int(row.value or b"") for row in rows)


def test_a_cluster_is_migrated(
    clusters: tuple[EmbeddedBroker, EmbeddedBroker],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """A write goes along; a stream reads all that is left, and ends with an error.

    So does a write that promises not to repeat anything, before it has sent a row.
    """
    blue, green = clusters
    for one in clusters:
        Admin(one.admin_url).create_partitioned(TOPIC, 2)
    write(spark, blue.service_url, range(1000))
    query = start_stream(spark, blue.service_url, tmp_path)
    try:
        await_true(lambda: read(spark, tmp_path) == Counter(range(1000)), "a batch")
        migrate(blue, green)
        # Writes that are under way meanwhile may fence a topic of 4.0.7 for good.
        await_true(lambda: has_ended(blue), "the migration")
        write(spark, blue.service_url, range(1000, 2000))
        await_true(lambda: not query.isActive, "the end of the stream")
    finally:
        query.stop()
    there = stored(green)
    assert there == Counter(range(1000, 2000))
    assert read(spark, tmp_path) == Counter(range(1000)), "all that was left was read"
    assert "PULSAR_TOPIC_MIGRATED" in str(query.exception())
    assert green.service_url in str(query.exception())
    for guarantee in ("idempotent", "exactly-once"):
        with pytest.raises(PySparkException, match="PULSAR_TOPIC_MIGRATED"):
            write(spark, blue.service_url, range(5), deliveryGuarantee=guarantee)
    assert stored(green) == there


#: Rows of a second, of what writes while its cluster is migrated.


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_rows_are_on_their_way(
    clusters: tuple[EmbeddedBroker, EmbeddedBroker],
    spark: SparkSession,
    tmp_path: Path,
    guarantee: str,
) -> None:
    """One stream writes meanwhile, and another one reads: each row is somewhere.

    The one that reads has all that is left. What promises at least once goes along;
    what promises exactly once ends, and repeats nothing.
    """
    blue, green = clusters
    for one in clusters:
        Admin(one.admin_url).create_partitioned(TOPIC, 2)
    reader = start_stream(spark, blue.service_url, tmp_path / "blue")
    writer = start_writing(spark, blue.service_url, tmp_path, guarantee)
    try:
        await_true(lambda: len(left_in(blue)) > 5 * RATE, "rows")
        migrate(blue, green)
        await_true(
            lambda: not writer.isActive or len(stored(green)) > 5 * RATE,
            "the end of the write, or its move",
            300,
        )
        said, went_along = str(writer.exception()), writer.isActive
        if guarantee == "exactly-once":
            # It does not end: 4.0.7 counts the mark of the last commit as unread.
            await_true(lambda: read(spark, tmp_path / "blue") == left_in(blue), "rows")
        else:
            await_true(lambda: not reader.isActive, "the end of the read")
            assert "PULSAR_TOPIC_MIGRATED" in str(reader.exception())
    finally:
        writer.stop()
        reader.stop()
    here, there = left_in(blue), stored(green)
    done = committed(tmp_path / guarantee)
    both = here + there
    assert read(spark, tmp_path / "blue") == here, "all that was left was read, once"
    assert set(range(done)) <= set(both), "nothing that was committed is lost"
    if guarantee == "exactly-once":
        assert not went_along
        assert "PULSAR_TOPIC_MIGRATED" in said
        assert green.service_url in said
        assert not there
        assert here == Counter(range(len(here)))
    else:
        assert went_along
        assert there


def left_in(broker: EmbeddedBroker) -> Counter[int]:
    """The numbers in the topic of a cluster that is migrated: it sends others away."""
    rows = reading.read(broker.service_url, {"topic": TOPIC})
    return Counter(int(row.value or b"") for row in rows)


def start_writing(spark: SparkSession, url: str, folder: Path, guarantee: str) -> Any:
    """Writes numbers, as many in each second."""
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", RATE)
        .option("numPartitions", 2)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("pulsar")
        .options(**{"service.url": url, "topic": TOPIC, **QUICK})
        .option("deliveryGuarantee", guarantee)
        .option("checkpointLocation", str(folder / guarantee))
        .start()
    )


def has_ended(broker: EmbeddedBroker) -> bool:
    """Whether the topic of a cluster takes nothing more."""
    admin = Admin(broker.admin_url)
    parts = (f"{TOPIC}-partition-{part}" for part in range(2))
    return all(admin.internal_stats(part)["state"] == "Terminated" for part in parts)


def start_stream(spark: SparkSession, url: str, folder: Path) -> Any:
    """Reads the topic into files."""
    return (
        spark.readStream.format("pulsar")
        .options(**{"service.url": url, "topic": TOPIC, **QUICK})
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number")
        .writeStream.format("json")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def read(spark: SparkSession, folder: Path) -> Counter[int]:
    """What the stream has written."""
    path = folder / "rows"
    if not (path / "_spark_metadata").exists():
        return Counter()
    frame = spark.read.schema("number BIGINT").json(str(path))
    return Counter(frame.toArrow()["number"].to_pylist())
