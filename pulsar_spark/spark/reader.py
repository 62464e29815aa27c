# SPDX-License-Identifier: Apache-2.0
"""Batch reads: the plan is made on the driver, the rows are read on executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.options import ReadOptions
from pulsar_spark.source.pruning import Pruning
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.source.read_task import ReadTask
from pulsar_spark.spark.schema import checked_arrow_schema

if TYPE_CHECKING:
    from pulsar_spark.source.query_schema import QuerySchema


class PulsarInputPartition(InputPartition):
    """The part of a query that one task reads."""

    value: ReadTask

    def __init__(self, value: ReadTask) -> None:
        super().__init__(value)


class PulsarReader(DataSourceReader):
    """Read topics once, from fixed starts to fixed ends.

    Args:
        options: What to read.
        schema: The columns wanted.
        found: The schema of the topics that these are the columns of; None where the
            user chose them.

    Raises:
        SchemaError: No topic has such columns.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        found: QuerySchema | None = None,
    ) -> None:
        self._schema = checked_arrow_schema(schema, options)
        self._source = PulsarSource(options, self._schema, found)
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """Return one input partition for each topic partition that has rows.

        On the driver. Or more, with ``minPartitions`` or ``maxRecordsPerPartition``, or
        fewer, with ``maxPartitions``.

        Raises:
            PulsarSparkError: As ``source.batch_plan.plan_batch`` does.
        """
        tasks = self._source.plan(self._pruning)
        return [PulsarInputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one input partition, in order. On an executor.

        Raises:
            PulsarSparkError: As ``source.range_reader.RangeReader.entries`` does.
        """
        return self._source.read(partition.value, self._schema, streaming=False)
