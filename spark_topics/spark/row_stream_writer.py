# SPDX-License-Identifier: Apache-2.0
"""Writers of streams that receive rows, for Spark 4.0."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import Row, StructType

from spark_topics.sink.write import StreamWrite
from spark_topics.spark.writer import MicroBatchWriter, TaskCommit

#: Rows of a batch, at most. Spark's own batch of 10,000 is in memory already, as rows:
#: this is what is there twice.
_BATCH_ROWS = 1000


class RowStreamWriter(MicroBatchWriter, DataSourceStreamWriter):
    """Writes the rows of a micro-batch. To be prepared before Spark gets it.

    Args:
        write: How to write.
        columns: The columns that are written.
        schema: All columns of the rows.
    """

    def __init__(
        self, write: StreamWrite[Any], columns: pa.Schema, schema: StructType
    ) -> None:
        super().__init__(write, columns)
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> TaskCommit:
        """Write the rows of a task. On an executor."""
        return self.run(batches_of(iterator, self._schema))


def batches_of(
    rows: Iterator[Row], schema: StructType, batch_rows: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow's batches, in order.

    Args:
        rows: As Spark hands them to a writer, which makes them as they are asked for.
        schema: Their columns.
        batch_rows: Rows of a batch, at most.
    """
    with _utc():
        while chunk := list(islice(rows, batch_rows)):
            table = LocalDataToArrowConversion.convert(
                chunk, schema, use_large_var_types=False
            )
            yield from table.to_batches()


@contextmanager
def _utc() -> Iterator[None]:
    """Set this process, which runs a single task, to UTC for a while.

    Spark's rows have times of the process's zone, and do not tell the two hours apart
    that a clock shows twice when it is set back. UTC has no such hours.
    """
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
