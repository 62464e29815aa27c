# SPDX-License-Identifier: Apache-2.0
"""Filters that prune the plan of a batch read: less is read, and no row is missed."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from tests.support import official, reading
from tests.support.entries import message
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

SETTING = "spark.sql.python.filterPushdown.enabled"
T0 = 1_700_000_000_000
TIME = ("__publishTime",)


@pytest.fixture
def allowed(spark: SparkSession) -> Iterator[None]:
    """Spark's own setting is on."""
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


def load(spark: SparkSession, service_url: str, topic: str, pushing: str) -> DataFrame:
    """A frame for one query."""
    return (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("metadataColumns", "__topic,__partition,__publishTime")
        .option("filterPushdown", pushing)
        .load()
    )


@pytest.mark.usefixtures("allowed")
def test_through_spark(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Only what can pass is planned; what passes is what would without pushdown."""
    admin.create_partitioned(topic, 3)
    for index in range(3):
        values = [b"%d" % i for i in range(10 + index)]
        official.produce(service_url, f"{topic}-partition-{index}", values)
    for condition, tasks, rows in (
        ("__partition IN (0, 2)", 2, 22),
        (f"__topic > '{topic}-partition-0' AND value = '3'", 2, 2),
        ("__publishTime > '2020-01-01' AND __partition = 1", 1, 11),
        ("__publishTime > '2120-01-01' OR __partition = 1", 3, 11),
    ):
        frame = load(spark, service_url, topic, "true")
        found = frame.filter(condition)
        assert found.rdd.getNumPartitions() == tasks, condition
        assert found.count() == rows, condition


@pytest.mark.usefixtures("allowed")
def test_a_pruned_plan_stays_with_its_frame(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """What docs/reading.md warns of: Spark takes it for later queries of a load."""
    admin.create_partitioned(topic, 3)
    for index in range(3):
        official.produce(service_url, f"{topic}-partition-{index}", [b"v"] * 10)
    frame = load(spark, service_url, topic, "true")
    assert frame.filter("__partition = 1").count() == 10
    assert frame.count() == 10, "docs/reading.md is wrong: Spark plans again"
    frame = load(spark, service_url, topic, "true")
    one, two = (frame.filter(f"__partition = {number}") for number in (1, 2))
    assert one.union(two).count() == 10, "docs/reading.md is wrong: a plan for each"


@pytest.mark.usefixtures("allowed")
def test_a_plan_without_pruning_is_made_again_for_a_filter(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """What docs/guarantees.md warns of: later queries get that plan, too."""
    official.produce(service_url, topic, [b"v"] * 10)
    frame = load(spark, service_url, topic, "false")
    assert frame.count() == 10
    official.produce(service_url, topic, [b"v"])
    assert frame.count() == 10
    assert frame.filter("__topic IS NOT NULL").count() == 11, "docs are wrong"
    assert frame.count() == 11


def test_without_the_setting_of_spark(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """One error that names the setting, not rows without pruning."""
    official.produce(service_url, topic, [b"a"])
    frame = load(spark, service_url, topic, "true")
    with pytest.raises(PySparkException, match=rf"{SETTING}.*Set it to true"):
        frame.count()


@pytest.mark.parametrize("seed", range(3))
def test_publish_times_out_of_order(service_url: str, topic: str, seed: int) -> None:
    """No row of the wanted time is missed, though producers' clocks differ."""
    rng = random.Random(seed)
    within_s, step_s = 20, 5
    with RawPublisher(service_url, topic) as publisher:
        for i in range(60):
            wrong_s = rng.uniform(-within_s, within_s)
            time_ms = T0 + int((i * step_s + wrong_s) * 1000)
            publisher.send(*message(b"%d" % i, publish_time=time_ms))
    rows = reading.read(service_url, {"topic": topic})
    pruned = 0
    for _ in range(25):
        low, high = sorted(T0 + rng.randrange(300_000) for _ in range(2))
        reader = reading.reader_of(
            service_url,
            {"topic": topic, "filterPushdown": f"true,{within_s}s"},
        )
        reader.pushFilters(  # type: ignore[attr-defined]
            [GreaterThanOrEqual(TIME, at(low)), LessThan(TIME, at(high))]
        )
        read = [
            r for part in reader.partitions() for r in reading.rows_of(reader, part)
        ]
        wanted = [row for row in rows if low <= row.publish_time_ms < high]
        assert [row for row in read if low <= row.publish_time_ms < high] == wanted
        pruned += len(rows) - len(read)
    assert pruned > 100


def at(time_ms: int) -> datetime:
    """A time as Spark hands it over."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return epoch + timedelta(milliseconds=time_ms)


def test_times_are_read_with_a_margin(service_url: str, topic: str) -> None:
    """An entry may be stored minutes before or after its publish time."""
    official.produce(service_url, topic, [b"a"])
    now = datetime.now(timezone.utc)
    for minutes, planned in ((9, 1), (11, 0)):
        reader = reading.reader_of(
            service_url, {"topic": topic, "filterPushdown": "true"}
        )
        reader.pushFilters(  # type: ignore[attr-defined]
            [GreaterThanOrEqual(TIME, now + timedelta(minutes=minutes))]
        )
        assert len(reader.partitions()) == planned
