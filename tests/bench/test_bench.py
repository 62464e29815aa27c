"""The benchmarks still run, and their arithmetic is right. No figure is judged here."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.bench import (
    bench_encode,
    bench_partition,
    bench_planning,
    bench_sink,
    bench_spark,
    bench_stream,
)
from tests.bench.cluster import Cluster
from tests.bench.report import Case, in_turns, summed, table
from tests.bench.samples import make_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.admin import Admin


@pytest.fixture
def cluster(service_url: str, admin: Admin, namespace: str) -> Cluster:
    """As the benchmarks have it, in a namespace that the fixture removes."""
    return Cluster(service_url, admin.admin_url, namespace)


def test_ratio_is_the_median_of_the_repeats() -> None:
    """Each repeat is compared with the limit of the same repeat."""
    case = Case("hop", "what", 100, 0, [2.0, 4.0, 30.0], "limit", [1.0, 1.0, 3.0], 0.5)
    assert case.ratio == 0.25
    assert case.rows_per_s == 25
    assert "0.25 (>= 0.5: MISSED)" in table([case])


def test_in_turns() -> None:
    """What is compared alternates, and the warm-up does not count."""
    order: list[str] = []
    clock = itertools.count()

    def measure(name: str) -> float:
        order.append(name)
        return next(clock)

    seconds = in_turns({"a": lambda: measure("a"), "b": lambda: measure("b")}, 2)
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [2, 4], "b": [3, 5]}
    assert summed(*seconds.values()) == [5, 9]


def test_samples_are_the_same_each_time() -> None:
    """A fixed seed, so that two runs measure the same bytes."""
    first, second = make_batches(2, 100), make_batches(2, 100)
    assert [b.payload for b in first] == [b.payload for b in second]
    assert first[0].payload != first[1].payload


def test_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case makes frames of all rows; the benchmark itself counts them."""
    monkeypatch.setattr(bench_encode, "ROWS", 200)
    monkeypatch.setattr(bench_sink, "ROWS", 200)
    cases = bench_encode.run(1) + bench_sink.run_frames(1)
    assert {case.hop for case in cases} == {"encode"}


def test_hops_with_a_broker(cluster: Cluster) -> None:
    """Publishing, the null drain, one partition and planning, on a few rows."""
    cases = bench_partition.run(cluster, 2000, 1)
    cases += bench_planning.run(cluster, [1, 3], 1)
    cases += bench_stream.run_planning(cluster, [1, 3], 1)
    cases += bench_sink.run_producer(cluster, 2000, 1)
    assert all(case.rows_per_s > 0 for case in cases)


def test_micro_batches(cluster: Cluster, spark: SparkSession) -> None:
    """The benchmark itself counts the rows of each."""
    cases = bench_stream.run_batches(cluster, spark, 1, 1)
    assert len(cases) == 2


@pytest.mark.slow
def test_micro_batches_written(cluster: Cluster, spark: SparkSession) -> None:
    """With each guarantee, and with none of a sink at all."""
    cases = bench_sink.run_batches(cluster, spark, 1, 1)
    assert len(cases) == 5


@pytest.mark.slow
def test_whole_read(cluster: Cluster, spark: SparkSession) -> None:
    """Every size once; the benchmark itself counts the rows."""
    cases = bench_spark.run(cluster, spark, 2000, 1)
    assert {case.hop for case in cases} == {"spark"}


@pytest.mark.slow
def test_whole_write(cluster: Cluster, spark: SparkSession) -> None:
    """Every size and guarantee once; the benchmark itself counts the rows."""
    cases = bench_sink.run_writes(cluster, spark, 2000, 1)
    assert [case.ratio is not None for case in cases] == [
        *(False, False, True, True, True, True),
        *(False, False, True),
    ]
