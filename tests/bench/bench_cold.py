"""A Spark process of its own that reads a topic once: a query's first minute.

python -m tests.bench.bench_cold <service URL> <topic>
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from pulsar_spark import PulsarDataSource
from tests.bench.bench_spark import read_options, to_noop
from tests.bench.cluster import ROOT, Cluster, Topic, note, spark_session
from tests.bench.report import SECONDS, Case


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
    ]


def cold_read(cluster: Cluster, topic: Topic) -> tuple[float, float]:
    """Seconds from the start of a process to the end of its read, and of the read."""
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", __name__, cluster.service_url, topic.name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=600,
    )
    ended, seconds = json.loads(result.stdout.splitlines()[-1])
    return ended - began, seconds


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
