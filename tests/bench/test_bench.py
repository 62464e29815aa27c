# SPDX-License-Identifier: Apache-2.0
"""The benchmarks still run. No figure is judged here."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench import (
    bench_decode,
    bench_encode,
    bench_far_plans,
    bench_latency,
    bench_live,
    bench_offsets,
    bench_partition,
    bench_planning,
    bench_protobuf,
    bench_recover,
    bench_sink,
    bench_small,
    bench_spark,
    bench_stream,
    bench_tls,
    bench_typed,
    bench_values,
    bench_write,
)
from tests.bench.__main__ import save
from tests.bench.cluster import ROOT, Cluster
from tests.bench.report import (
    Case,
    Document,
)
from tests.bench.rivals.costs import Cost, table, us_of_a_row
from tests.bench.rivals.programs import CpuTimes, Program, on_core
from tests.bench.simulated import TOPIC, simulated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin


@pytest.fixture
def cluster(service_url: str, admin: Admin, namespace: str) -> Cluster:
    """As the benchmarks have it, in a namespace that the fixture removes."""
    return Cluster(service_url, admin.admin_url, namespace)


#: In the name of a plan that was measured.
_COUNT = re.compile(r"(\d+) round trips")

READ = Case("spark", "100 B & more", 100, 0, [2.0], "bound", [1.0], 0.85)


@pytest.mark.matrix
def test_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case makes frames of all rows; the benchmark itself counts them."""
    monkeypatch.setattr(bench_encode, "ROWS", 200)
    monkeypatch.setattr(bench_sink, "ROWS", 200)
    cases = bench_encode.run(1) + bench_sink.run_frames(1)
    assert {case.hop for case in cases} == {"encode"}


@pytest.mark.soak
def test_tls() -> None:
    """Both directions are measured beside ssl sockets and beside TCP."""
    cases = bench_tls.run(1, 2 << 20)
    assert {case.hop for case in cases} == {"tls"}
    limits = [case.limit for case in cases]
    assert limits == ["ssl sockets alone", "plain TCP"] * 2


@pytest.mark.matrix
def test_values() -> None:
    """All values can be read; the benchmark itself looks at that."""
    cases = bench_values.run(1, 1)
    assert {case.hop for case in cases} == {"values"}
    assert len([case for case in cases if case.target]) == 2
    cases = bench_values.run_writes(1, 1)
    assert {case.hop for case in cases} == {"encode"}
    assert [case.target for case in cases] == [0.33, None, None, None]


def test_protobuf() -> None:
    """All values can be read; the benchmark itself looks at that."""
    cases = bench_protobuf.run(1, 1)
    assert {case.hop for case in cases} == {"values"}
    assert len([case for case in cases if case.target]) == 1


@pytest.mark.matrix
def test_decoding() -> None:
    """The messages of the targets, and those of a fixed size."""
    cases = bench_decode.run(1, 8)
    assert [case.target for case in cases] == [0.2, 0.35, None, None, None, None]


@pytest.mark.soak
def test_entries_of_few_messages() -> None:
    """The benchmark itself counts the rows; two sizes of entries have a target."""
    cases = bench_live.run(1, 6_400)
    assert [case.target for case in cases if case.target] == [6.0, 0.55]


def test_planning_without_a_broker() -> None:
    """What a planner asks is answered by brokers that are simulated."""
    cases = bench_planning.run_simulated(20, 1)
    assert [case.rows for case in cases] == [20] * 4


def test_a_stream_keeps_little_of_a_topic_partition() -> None:
    """So that a hundred thousand fit into the memory of the driver's Python."""
    kept: list[int] = []

    def note() -> None:
        gc.collect()
        kept.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        for count in (10, 1000):
            with simulated(count) as service_url:
                options = {
                    "service.url": service_url,
                    "topic": TOPIC,
                    "startingOffsets": "earliest",
                }
                bench_planning.plan_stream(options, count, note)
    finally:
        tracemalloc.stop()
    assert kept[-1] - kept[3] < 1000 * 1500


@pytest.mark.soak
@pytest.mark.slow
def test_hops_with_a_broker(cluster: Cluster) -> None:
    """Publishing, the null drain, one partition and planning, on a few rows."""
    cases = bench_partition.run(cluster, 2000, 1)
    cases += bench_planning.run(cluster, [1, 3], 1)
    cases += bench_stream.run_planning(cluster, [1, 3], 1)
    cases += bench_sink.run_producer(cluster, 2000, 1)
    cases += bench_write.run(cluster, 2000, 1)
    cases += bench_recover.run(cluster, 200, 20, 1)
    assert all(case.rows_per_s > 0 for case in cases)


@pytest.mark.soak
def test_micro_batches(cluster: Cluster, spark: SparkSession) -> None:
    """The benchmark itself counts the rows of each."""
    cases = bench_stream.run_batches(cluster, spark, 1, 1)
    assert len(cases) == 2


@pytest.mark.soak
def test_offsets(spark: SparkSession) -> None:
    """Each figure is that of a micro-batch beside one with a small offset."""
    cases = bench_offsets.run(spark, 1, count=2_000, batches=2)
    assert len(cases) == 2 * 3
    assert all(case.limit_seconds and case.reached is not None for case in cases)


def test_latency(cluster: Cluster, spark: SparkSession) -> None:
    """A line for each percentile; the benchmark itself waits for the rows."""
    cases = bench_latency.run(cluster, spark, 0.2, warm_up_batches=1)
    assert len(cases) == 4
    assert all(0 <= case.seconds[0] < 120 for case in cases)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100)])
def test_percentiles(percent: int, value: int) -> None:
    """Of a hundred values; of one, that one."""
    assert bench_latency.percentile(range(1, 101), percent) == value
    assert bench_latency.percentile([7.0], percent) == 7.0


@pytest.mark.soak
@pytest.mark.slow
def test_micro_batches_written(cluster: Cluster, spark: SparkSession) -> None:
    """With each guarantee, and with none of a sink at all."""
    cases = bench_sink.run_batches(cluster, spark, 1, 1)
    assert len(cases) == 5


@pytest.mark.soak
@pytest.mark.slow
def test_memory(cluster: Cluster) -> None:
    """Of the workers alone, each time of new ones."""
    # In a process of its own: it stops the Spark that it finds.
    given = cluster.service_url, cluster.admin.admin_url, cluster.namespace
    command = [sys.executable, "-c", _MEMORY, *given]
    subprocess.run(command, cwd=ROOT, check=True, timeout=900)


_MEMORY = """
import sys
from tests.bench import bench_memory
from tests.bench.__main__ import save
from tests.bench.cluster import ROOT, Cluster

cases = bench_memory.run(Cluster(*sys.argv[1:]), 1000, 2000)
assert len(cases) == 6
assert all(case.is_met for case in cases), cases
"""


@pytest.mark.soak
@pytest.mark.slow
def test_links_with_latency() -> None:
    """Every delay once, with Spark and a broker of its own."""
    code = "from tests.bench import bench_far; print(len(bench_far.run(2000, 1)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, check=True, timeout=900, stdout=subprocess.PIPE
    )
    assert done.stdout.split()[-1] == b"14"


@pytest.mark.soak
@pytest.mark.slow
def test_plans_over_far_brokers() -> None:
    """Each step, with no more round trips one after the other than ten."""
    cases = bench_far_plans.run(6, 1)
    counts = [int(count) for case in cases for count in _COUNT.findall(case.what)]
    assert len(counts) == 10
    assert 0 < max(counts) <= 10


@pytest.mark.soak
@pytest.mark.slow
def test_whole_read(cluster: Cluster, spark: SparkSession) -> None:
    """Every size once; the benchmark itself counts the rows."""
    cases = bench_spark.run(cluster, spark, 2000, 1)
    assert {case.hop for case in cases} == {"spark"}


@pytest.mark.matrix
@pytest.mark.slow
def test_reads_of_records(cluster: Cluster, spark: SparkSession) -> None:
    """Each kind once; the benchmark itself counts the rows."""
    cases = bench_typed.run(cluster, spark, 20_000, 1)
    assert {case.hop for case in cases} == {"typed"}
    targets = [case.target for case in cases if case.target]
    assert targets == [0.9, 0.6, 0.6, 0.6]


@pytest.mark.soak
@pytest.mark.slow
def test_reads_of_small_entries(cluster: Cluster, spark: SparkSession) -> None:
    """Every size and codec once; the benchmark itself counts the rows."""
    cases = bench_small.run(cluster, spark, 2000, 1)
    limits = [case.limit for case in cases if case.limit]
    assert limits == ["null drain", *["bound"] * 2, *["uncompressed"] * 2, "bound"]


@pytest.mark.matrix
@pytest.mark.slow
def test_whole_write(cluster: Cluster, spark: SparkSession) -> None:
    """Every size and guarantee once; the benchmark itself counts the rows."""
    cases = bench_sink.run_writes(cluster, spark, 2000, 1)
    assert [case.ratio is not None for case in cases] == [
        *(False, False, True, True, True, True),
        *(False, False, True),
    ]


def test_nothing_measured_is_nothing_saved(tmp_path: Path) -> None:
    """An earlier document stays as it was."""
    (tmp_path / "bench.json").write_text("as it was")
    save({}, [], tmp_path)
    assert (tmp_path / "bench.json").read_text() == "as it was"
    save({}, [READ], tmp_path)
    assert Document.read(tmp_path / "bench.json").cases == [READ]


def test_cost_of_a_row() -> None:
    """What both jobs take to start is left out."""
    few, many = CpuTimes(jvm_s=3.0, python_s=2.0), CpuTimes(jvm_s=6.0, python_s=3.0)
    assert us_of_a_row(few, many, 1_000_000) == (3.0, 1.0)


def test_table_of_costs() -> None:
    """Medians of the repeats; a part that takes nothing, and a failure, are words."""
    costs = [
        Cost("100 B", "ours", [(1.0, 0.5), (3.0, 0.2), (2.0, 0.1)], [(1.0, 0.25)]),
        Cost("100 B", "Java", [(0.5, 0.0)], failure="no such jar"),
    ]
    lines = [line.strip("| ").split("|") for line in table(costs).splitlines()[2:]]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["100 B", "ours", "2.10", "2.00", "0.20", "1.25", "1.00", "0.25"],
        ["100 B", "Java", "0.50", "0.50", "", "", "", "no such jar"],
    ]


def test_processes_on_a_core() -> None:
    """Children of the block have that core alone; afterwards all are free again."""
    cores = os.sched_getaffinity(0)
    show = "import os; print(*os.sched_getaffinity(0))"
    with on_core(max(cores)):
        shown = subprocess.check_output([sys.executable, "-c", show], text=True)
    assert shown.split() == [str(max(cores))]
    assert os.sched_getaffinity(0) == cores


def test_processor_time_of_a_program() -> None:
    """What a child took that has ended is counted, as Python's."""
    with Program([sys.executable, "-c", _BUSY_CHILD], "test") as program:
        program.ask("work")
        times = program.cpu_times
    assert times.jvm_s == 0.0
    assert times.python_s > 0.2


_BUSY_CHILD = """
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 0.3: pass"
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", busy], check=True)
    print("reply 0", flush=True)
"""
