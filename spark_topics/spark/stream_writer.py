# SPDX-License-Identifier: Apache-2.0
"""Writers of streams that receive RecordBatches, for Spark since 4.1."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from spark_topics.spark.writer import MicroBatchWriter, TaskCommit


class StreamWriter(MicroBatchWriter, DataSourceStreamArrowWriter):
    """Writes the rows of a micro-batch. Arguments and errors are those of the base."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task. On an executor."""
        return self.run(iterator)
