# SPDX-License-Identifier: Apache-2.0
"""What an offset of many topic partitions costs Spark: a source with nothing else."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.bench.cluster import note
from tests.bench.report import MORE_MS, Case

_TOPIC = "persistent://public/default/t"
_PATIENCE_S = 600.0


class Offsets(DataSource):
    """One row for each micro-batch, in which each position moves on.

    Options: ``count`` of topic partitions, ``batches``, whether it tells its ``lag``,
    and a ``file`` for the processor's time of the process that plans.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "offsets-alone"

    def schema(self) -> str:
        """Of no interest."""
        return "value BINARY"

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Plans on the driver."""
        return _Reader(self.options)


class _Reader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._count, self._batches = int(options["count"]), int(options["batches"])
        self._tells_lag = options["lag"] == "true"
        self._file = options["file"]
        self._batch = 0

    def _offset(self) -> dict[str, Any]:
        """As this package writes it, with ledgers of seven digits."""
        read = {str(n): f"{1_000_000 + n}:{self._batch}" for n in range(self._count)}
        return {"v": 1, "subscription": "s", "lastRead": {_TOPIC: read}}

    def initialOffset(self) -> dict[str, Any]:
        return self._offset()

    def getDefaultReadLimit(self) -> ReadAllAvailable:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        with open(self._file, "a") as file:
            file.write(f"{time.process_time()}\n")
        if self._batch == self._batches:
            return start
        self._batch += 1
        return self._offset()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if not self._tells_lag:
            return None
        lags = {_TOPIC: {str(n): 0 for n in range(self._count)}}
        latest = self._offset()["lastRead"]
        return {"latest": latest, "backlogEntries": lags, "ageMs": lags}

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: object) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"x"])})


def run(
    spark: SparkSession, repeats: int, count: int = 100_000, batches: int = 8
) -> list[Case]:
    """Milliseconds that a micro-batch takes more than with an offset of a few bytes."""
    spark.dataSource.register(Offsets)
    kinds = {"": (1, False), "offset": (count, False), "offset and lag": (count, True)}
    times: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    for turn in range(repeats + 1):  # the first warms the JVM up
        for kind, (partitions, tells_lag) in kinds.items():
            note(f"{partitions:,} topic partitions {kind}")
            taken = _seconds(spark, partitions, batches, tells_lag=tells_lag)
            if turn:
                times[kind].append(taken)
    return [
        Case(
            "offsets",
            f"{kind} of {count:,} topic partitions, {what}",
            *(1, 0, [taken[index] for taken in times[kind]], "a small offset"),
            [taken[index] for taken in times[""]],
            figure=MORE_MS,
        )
        for kind in list(kinds)[1:]
        for index, what in enumerate(("JVM", "Python that plans", "the clock"))
    ]


def _seconds(
    spark: SparkSession, count: int, batches: int, *, tells_lag: bool
) -> tuple[float, float, float]:
    """Seconds of a micro-batch: of the processor in JVM and Python, and the clock's."""
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
        file = Path(folder, "planner")
        options = {"count": count, "batches": batches, "lag": tells_lag, "file": file}
        texts = {name: str(value).lower() for name, value in options.items()}
        texts["file"] = str(file)
        frame = spark.readStream.format(Offsets.name()).options(**texts).load()
        before_s = _jvm_s(spark)
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while (last := query.lastProgress) is None or last["batchId"] < batches - 1:
                assert time.monotonic() < deadline, "the query is not done"
                assert query.exception() is None, query.exception()
                time.sleep(0.1)
            jvm_s = (_jvm_s(spark) - before_s) / batches
            progress = query.recentProgress
        finally:
            query.stop()
        planner = [float(line) for line in file.read_text().split()][: batches + 1]
    python_s = (planner[-1] - planner[0]) / (len(planner) - 1)
    clock_ms = median(each["durationMs"]["triggerExecution"] for each in progress)
    return jvm_s, python_s, clock_ms / 1e3


def _jvm_s(spark: SparkSession) -> float:
    """Seconds of the processor that Spark's JVM has taken."""
    gateway: Any = spark.sparkContext._gateway
    stat = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2]
    return sum(map(int, stat.split()[11:13])) / os.sysconf("SC_CLK_TCK")
