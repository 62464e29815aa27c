# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pulsar_spark import PulsarDataSource
from pulsar_spark.source.plan.pruning import Pruning
from pulsar_spark.spark.pushdown import PulsarPushdownReader, pruning_of
from pulsar_spark.spark.schema import spark_schema
from pulsar_spark.topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

T = "persistent://public/default/t"
PARTITION, TOPIC, TIME = ("__partition",), ("__topic",), ("__publishTime",)
UTC = timezone.utc
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def kept(*filters: Filter) -> list[int]:
    """Those of three partitions, and of a topic without any (-1), that are read.

    The latter has NULL for the number, so filters on that do not prune it.
    """
    pruning = pruning_of(filters)
    names = {-1: T} | {i: f"{T}-partition-{i}" for i in range(3)}
    return [
        number for number, name in names.items() if pruning.keeps(TopicName.parse(name))
    ]


@pytest.mark.parametrize(
    ("filter_", "numbers"),
    [
        (EqualTo(PARTITION, 1), [-1, 1]),
        (EqualNullSafe(PARTITION, 1), [-1, 1]),
        (EqualTo(PARTITION, 9), [-1]),
        (Not(EqualNullSafe(PARTITION, -1)), [-1, 0, 1, 2]),
        (Not(EqualTo(PARTITION, 1)), [-1, 0, 2]),
        (LessThan(PARTITION, 1), [-1, 0]),
        (LessThanOrEqual(PARTITION, 1), [-1, 0, 1]),
        (GreaterThan(PARTITION, 1), [-1, 2]),
        (GreaterThanOrEqual(PARTITION, 1), [-1, 1, 2]),
        (Not(GreaterThan(PARTITION, 1)), [-1, 0, 1]),
        (In(PARTITION, (0, 2, 7)), [-1, 0, 2]),
        (In(PARTITION, (0, None)), [-1, 0]),
        (Not(In(PARTITION, (0, 2))), [-1, 1]),
        (EqualTo(TOPIC, T), [-1]),
        (EqualTo(TOPIC, f"{T}-partition-2"), [2]),
        (Not(EqualTo(TOPIC, T)), [0, 1, 2]),
        (In(TOPIC, (T, f"{T}-partition-0")), [-1, 0]),
        (GreaterThan(TOPIC, f"{T}-partition-0"), [1, 2]),
        (LessThan(TOPIC, f"{T}-partition-1"), [-1, 0]),
        (StringStartsWith(TOPIC, f"{T}-"), [0, 1, 2]),
        (StringEndsWith(TOPIC, "-1"), [1]),
        (StringContains(TOPIC, "partition"), [0, 1, 2]),
        (Not(StringContains(TOPIC, "partition")), [-1]),
    ],
)
def test_partitions_and_topics(filter_: Filter, numbers: list[int]) -> None:
    """A topic partition is read if its rows can pass."""
    assert kept(filter_) == numbers
    assert kept(filter_, filter_) == numbers


@pytest.mark.parametrize(
    "filter_",
    [
        IsNotNull(TOPIC),
        EqualTo(("value",), b"x"),
        EqualTo(("__key",), "x"),
        EqualTo(("__partition", "x"), 1),
        EqualTo(PARTITION, None),
        EqualTo(PARTITION, "1"),
        EqualTo(PARTITION, True),
        LessThan(TOPIC, 3),
        StringStartsWith(PARTITION, "1"),
        Not(IsNotNull(TOPIC)),
        Not(EqualTo(TIME, NOON)),
        EqualTo(TIME, NOON.replace(tzinfo=None)),
        EqualTo(TIME, None),
        In(TIME, ()),
        In(TIME, (None,)),
    ],
)
def test_what_is_not_understood(filter_: Filter) -> None:
    """Prunes nothing: Spark evaluates it."""
    assert pruning_of([filter_]) == Pruning()


def test_all_filters_count() -> None:
    """They are joined by AND."""
    some = [GreaterThan(PARTITION, 0), Not(StringEndsWith(TOPIC, "-2"))]
    assert kept(*some) == [-1, 1]
    assert kept(*some, EqualTo(("value",), b"")) == [-1, 1]


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([GreaterThan(TIME, NOON)], (0, None)),
        ([GreaterThanOrEqual(TIME, NOON)], (0, None)),
        ([LessThan(TIME, NOON)], (None, 0)),
        ([LessThanOrEqual(TIME, NOON)], (None, 0)),
        ([EqualTo(TIME, NOON)], (0, 0)),
        ([In(TIME, (NOON, NOON + timedelta(seconds=1), None))], (0, 1000)),
        (
            [GreaterThan(TIME, NOON), GreaterThan(TIME, NOON + timedelta(seconds=2))],
            (2000, None),
        ),
        (
            [LessThan(TIME, NOON), LessThan(TIME, NOON + timedelta(seconds=2))],
            (None, 0),
        ),
        ([EqualTo(TIME, NOON + timedelta(microseconds=1))], (0, 1)),
        ([EqualTo(TIME, NOON.astimezone(timezone(timedelta(hours=5))))], (0, 0)),
    ],
)
def test_publish_times(
    filters: list[Filter], bounds: tuple[int | None, int | None]
) -> None:
    """Bounds are whole milliseconds, rounded away from what is wanted."""
    low, high = (None if ms is None else NOON_MS + ms for ms in bounds)
    assert pruning_of(filters) == Pruning((), low, high)


@pytest.fixture
def reader_of() -> Callable[..., Any]:
    """Makes a batch reader with these options."""

    def make(**options: str) -> Any:
        given = {"service.url": "pulsar://h", "topic": "t", **options}
        return PulsarDataSource(given).reader(spark_schema(["value"]))

    return make


def test_only_who_asks_for_it_pushes(reader_of: Callable[..., Any]) -> None:
    """Spark refuses whoever defines pushFilters, unless a setting allows it."""
    for usual in (reader_of(), reader_of(filterPushdown="false")):
        assert type(usual).pushFilters is DataSourceReader.pushFilters
    asked = reader_of(filterPushdown="true")
    assert type(asked) is PulsarPushdownReader


def test_spark_evaluates_all_filters(reader_of: Callable[..., Any]) -> None:
    """None is taken off Spark's hands."""
    reader = reader_of(filterPushdown="true")
    filters = [EqualTo(PARTITION, 1), EqualTo(("value",), b""), GreaterThan(TIME, NOON)]
    assert list(reader.pushFilters(filters)) == filters


def test_a_pruned_plan_is_warned_about(
    reader_of: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Each time, as Spark keeps it for later queries; one that is whole is not."""
    reader = reader_of(filterPushdown="true")
    reader.pushFilters([StringContains(("value",), "x")])
    assert not caplog.records
    for _ in range(2):
        reader.pushFilters([EqualTo(PARTITION, 1)])
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "every query of it" in caplog.text
