# SPDX-License-Identifier: Apache-2.0
"""Memory of Python workers that read and write: little of it, however many the rows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pulsar_spark import PulsarDataSource
from tests.bench.bench_sink import new_topic, rows_to_write, save, sink_options
from tests.bench.bench_spark import read, to_noop
from tests.bench.cluster import Cluster, note, spark_session
from tests.bench.report import MIB, Case, wall

_SIZE_BYTES = 100
_PARTITIONS = 2

#: Of the most that one worker may have at any time.
_TARGET_MIB = 256

#: More rows may need so much more: "flat".
_GROWTH_TARGET_MIB = 25.6


#: Does it with so many rows; seconds and MiB.
_Once = Callable[[Cluster, int], tuple[float, float]]


def run(cluster: Cluster, few_rows: int, many_rows: int) -> list[Case]:
    """Few rows and many, with workers of their own, and what the many take more."""
    cases = []
    for what, once in (("reading", _read), ("writing", _write)):
        few = _case(cluster, what, once, few_rows)
        many = _case(cluster, what, once, many_rows)
        assert few.mib is not None
        assert many.mib is not None
        cases += [
            few,
            many,
            replace(
                many,
                what=f"worker {what}, growth to {many_rows:,} rows",
                target=_GROWTH_TARGET_MIB,
                mib=[many.mib[0] - few.mib[0]],
            ),
        ]
    return cases


def _case(cluster: Cluster, what: str, once: _Once, rows: int) -> Case:
    note(f"memory of workers {what} {rows:,} rows")
    seconds, mib = once(cluster, rows)
    return Case(
        "memory",
        f"worker {what} {rows:,} rows",
        rows,
        rows * _SIZE_BYTES,
        [seconds],
        target=_TARGET_MIB,
        figure=MIB,
        mib=[mib],
    )


def _read(cluster: Cluster, rows: int) -> tuple[float, float]:
    topic = cluster.topic(rows, _SIZE_BYTES, _PARTITIONS)
    with spark_session() as spark:
        spark.dataSource.register(PulsarDataSource)
        load = partial(read, cluster, spark, topic, "six columns")
        return wall(partial(to_noop, load))(), peak_mib()


def _write(cluster: Cluster, rows: int) -> tuple[float, float]:
    with cluster.further_namespace() as namespace, spark_session() as spark:
        spark.dataSource.register(PulsarDataSource)
        options = sink_options(cluster, new_topic(cluster, namespace, _PARTITIONS))
        frame = rows_to_write(spark, rows, _SIZE_BYTES)
        return wall(partial(save, frame, "pulsar", options))(), peak_mib()


def peak_mib() -> float:
    """The most that any of Spark's Python workers has had resident, ever.

    They still run: Spark keeps them for the next task.
    """
    peaks = [
        int(found[1])
        for process in _descendants(os.getpid())
        if b"pyspark.daemon" in (process / "cmdline").read_bytes()
        and (found := _PEAK.search((process / "status").read_text()))
    ]
    assert peaks, "no Python worker is there any more"
    return max(peaks) / 1024


_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def _descendants(process_id: int) -> list[Path]:
    """The folders in ``/proc`` of all processes below this one."""
    found = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [Path("/proc", child), *_descendants(int(child))]
    return found
