# SPDX-License-Identifier: Apache-2.0
"""A Spark process of its own that reads a topic once: a query's first minute.

python -m tests.bench.bench_cold <service URL> <topic>
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from pulsar_spark import PulsarDataSource
from tests.bench import cold_job
from tests.bench.bench_spark import read_options, to_noop
from tests.bench.cluster import ROOT, Cluster, Topic, note, spark_session
from tests.bench.report import MORE_MS, SECONDS, Case, in_turns

#: What the first rows may take longer than those of a source with nothing to do, in ms.
_MORE_TARGET_MS = 1500


def run(cluster: Cluster, rows: int, repeats: int) -> list[Case]:
    """100 bytes, six columns: from the start of the process, and of the read."""
    topic = cluster.topic(rows, 100)
    note("fresh processes read 100 B")
    both = [cold_read(cluster, topic) for _ in range(repeats)]
    whole, reading = ([*seconds] for seconds in zip(*both, strict=True))
    return [
        Case(
            "cold",
            f"100 B, six columns, {what}",
            topic.rows,
            topic.value_bytes,
            seconds,
            figure=SECONDS,
        )
        for what, seconds in (("from its process on", whole), ("its read", reading))
    ] + _first_rows(cluster, topic, repeats)


def _first_rows(cluster: Cluster, topic: Topic, repeats: int) -> list[Case]:
    """From the start of a job to its first rows on the screen; one row is one job."""
    note("fresh processes show their first rows")
    limit = "a source with nothing to do"
    seconds = in_turns(
        {
            "nothing": lambda: _job_seconds("nothing"),
            "ours": lambda: _job_seconds(cluster.service_url, topic.name),
        },
        repeats,
    )
    return [
        Case("cold", limit, 1, 0, seconds["nothing"], figure=SECONDS),
        Case(
            "cold",
            f"the first {cold_job.ROWS:,} rows on screen",
            1,
            0,
            seconds["ours"],
            limit,
            seconds["nothing"],
            _MORE_TARGET_MS,
            figure=MORE_MS,
        ),
    ]


def _job_seconds(*arguments: str) -> float:
    began = time.monotonic()
    _, ended = _last_line(cold_job.__name__, *arguments).split()
    return float(ended) - began


def cold_read(cluster: Cluster, topic: Topic) -> tuple[float, float]:
    """Seconds from the start of a process to the end of its read, and of the read."""
    began = time.monotonic()
    line = _last_line(__name__, cluster.service_url, topic.name)
    ended, seconds = json.loads(line)
    return ended - began, seconds


def _last_line(module: str, *arguments: str) -> str:
    """What a process prints last."""
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=600,
    )
    return result.stdout.splitlines()[-1]


def _main(service_url: str, topic: str) -> None:
    options = read_options(service_url, topic, "six columns")
    with spark_session() as spark:
        spark.dataSource.register(PulsarDataSource)
        began = time.monotonic()
        to_noop(spark.read.format("pulsar").options(**options).load)
        ended = time.monotonic()  # the clock is the system's
        print(json.dumps([ended, ended - began]), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
