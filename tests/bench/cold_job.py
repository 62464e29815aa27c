# SPDX-License-Identifier: Apache-2.0
"""A job as a user runs it: ``show`` of the first rows, and the clock when they are out.

python -m tests.bench.cold_job nothing
python -m tests.bench.cold_job <service URL> <topic>

The first shows what Spark takes for any Python source: it has as many rows in memory,
and imports nothing of ours, nor does this module.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tests.support.session import start_spark

ROWS = 1000


class NothingToDo(DataSource):
    """So many rows of 100 bytes, of two input partitions."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "nothing-to-do"

    def schema(self) -> str:
        """As a topic has it where no metadata column is asked for."""
        return "value BINARY"

    def reader(self, schema: object) -> DataSourceReader:
        """Has them all."""
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        return iter([(b"x" * 100,)] * ROWS)


def main(where: str, topic: str = "") -> None:
    """Show the rows, and when they were out: the clock is the system's."""
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-bench-") as folder:
        spark = start_spark(folder, is_short_lived=False)
        if where == "nothing":
            spark.dataSource.register(NothingToDo)
            frame = spark.read.format("nothing-to-do").load()
        else:
            options = {"service.url": where, "topic": topic, "metadataColumns": "none"}
            frame = spark.read.format("pulsar").options(**options).load()
        frame.limit(ROWS).show(ROWS)
        print("reply", time.monotonic(), flush=True)
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
