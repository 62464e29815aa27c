# SPDX-License-Identifier: Apache-2.0
"""Batch reads: the plan is made on the driver, the rows are read on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_topics.process import planning
from spark_topics.source.source import Source
from spark_topics.spark.plain_errors import PlainErrors


class TaskPartition(InputPartition):
    """A task of a query, as an input partition.

    Attributes:
        value: What the source has planned for it.
    """


class BatchReader(PlainErrors, DataSourceReader):
    """Read topics once, from fixed starts to fixed ends.

    Args:
        source: What to read.
        schema: The columns wanted.
    """

    def __init__(self, source: Source[Any], schema: pa.Schema) -> None:
        self._schema = schema
        self._source = source

    @planning()
    def partitions(self) -> list[InputPartition]:
        """Return an input partition for each task of the plan. On the driver.

        Raises:
            TopicsError: As ``Source.plan`` does.
        """
        return [TaskPartition(task) for task in self.tasks()]

    def tasks(self) -> Sequence[Any]:
        """Return what tasks are to read."""
        return self._source.plan()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input partition, in order. On an executor.

        Args:
            partition: Where a plan is empty, Spark 4.0 and 4.1 make a task of None, and
                later releases make a task of an input partition of None.

        Raises:
            TopicsError: As ``Source.read`` does.
        """
        task = None if partition is None else partition.value
        return self._source.read(task, self._schema, streaming=False)
