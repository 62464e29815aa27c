# SPDX-License-Identifier: Apache-2.0
"""This package on its Spark, as a program of ``programs``.

Beside what others do, "ready" reads RecordBatches that are made already, and "drop"
drops the rows instead of writing them: what Spark alone takes to hand rows over.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from pulsar_spark import PulsarDataSource
from tests.bench.bench_sink import save
from tests.bench.bench_spark import ready, to_noop
from tests.bench.cluster import Topic
from tests.bench.egress import DropBatches
from tests.bench.ingest import ReadyBatches
from tests.support.session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def main() -> None:
    """Obey the commands of standard input until it ends."""
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
        settings = {"spark.driver.memory": "2g"}
        spark = start_spark(folder, settings, is_short_lived=False)
        for source in (PulsarDataSource, ReadyBatches, DropBatches):
            spark.dataSource.register(source)
        frame: DataFrame | None = None
        stream: _Stream | None = None
        for line in sys.stdin:
            name, *words = line.rstrip("\n").split("\t")
            began = time.perf_counter()
            answer: float | None = None
            options = dict(zip(("service.url", "topic"), words, strict=False))
            if name == "rows":
                count, partitions = map(int, words[:2])
                frame = spark.range(0, count, 1, partitions).selectExpr(*words[2:])
                frame = frame.cache()
                answer = frame.count()
            elif name == "write":
                assert frame is not None
                save(frame, "pulsar", options)
            elif name == "drop":
                assert frame is not None
                save(frame, DropBatches.name(), {})
            elif name == "count":
                answer = spark.read.format("pulsar").options(**options).load().count()
            elif name == "read":
                options |= dict(word.split("=", 1) for word in words[3:])
                rows = spark.read.format("pulsar").options(**options).load()
                rows = rows.selectExpr(*words[2].split(","))
                rows.write.format("noop").mode("overwrite").save()
            elif name == "ready":
                count, partitions, size_bytes = map(int, words[1:])
                topic = Topic("", partitions, count, size_bytes)
                to_noop(partial(ready, spark, topic, words[0]))
            elif name == "stream":
                stream = _Stream(spark, folder, *words)
            else:
                assert name == "stop", name
                assert stream is not None
                answer = stream.stop()
            seconds = time.perf_counter() - began
            print("reply", seconds if answer is None else answer, flush=True)
        spark.stop()


class _Stream:
    """A query that is started again from its checkpoint when it fails.

    Args:
        spark: Runs it.
        folder: For its checkpoint.
        url: Service URL.
        topic: To read from its earliest row.
        file: For a line of each row.
    """

    def __init__(
        self, spark: SparkSession, folder: str, url: str, topic: str, file: str
    ) -> None:
        self._frame = (
            spark.readStream.format("pulsar")
            .option("service.url", url)
            .option("topic", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("cast(value as string)")
        )
        self._checkpoint = f"{folder}/checkpoint"
        self._file = file
        self._restarts = 0
        self._is_stopping = threading.Event()
        self._query: StreamingQuery = self._start()
        self._thread = threading.Thread(target=self._keep_running, daemon=True)
        self._thread.start()

    def _start(self) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", self._checkpoint).start()

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        values = [row[0].split(" ") for row in rows.collect()]
        now_ms = round(time.time() * 1e3)
        with open(self._file, "a") as file:
            file.writelines(f"{v[0]} {v[1]} {now_ms}\n" for v in values)

    def _keep_running(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._query.awaitTermination()
            except Exception as error:  # each failure counts
                print("the query failed:", error, file=sys.stderr)
            if not self._is_stopping.wait(1.0):
                self._restarts += 1
                self._query = self._start()

    def stop(self) -> int:
        """Stop the query; return how often it was started again."""
        self._is_stopping.set()
        self._query.stop()
        self._thread.join(30)
        return self._restarts


if __name__ == "__main__":
    main()
