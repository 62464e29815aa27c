# SPDX-License-Identifier: Apache-2.0
"""Batch reads of Pulsar's topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.pruning import Pruning
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.spark.schema import checked_arrow_schema
from spark_topics.spark.reader import BatchReader

if TYPE_CHECKING:
    from pulsar_spark.source.plan.query_schema import QuerySchema


class PulsarReader(BatchReader):
    """Read topics once, from fixed starts to fixed ends.

    Args:
        options: What to read.
        schema: The columns wanted.
        found: The schema of the topics that these are the columns of; None where the
            user chose them.

    Raises:
        SchemaError: No topic has such columns.
    """

    _source: PulsarSource

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        found: QuerySchema | None = None,
    ) -> None:
        columns = checked_arrow_schema(schema, options)
        super().__init__(PulsarSource(options, columns, found), columns)
        self._pruning = Pruning()

    def tasks(self) -> Sequence[ReadTask]:
        """Return a task for each topic partition with rows.

        Or more, with ``minPartitions`` or ``maxRecordsPerPartition``, or fewer, with
        ``maxPartitions``.

        Raises:
            PulsarSparkError: As ``source.batch_plan.plan_batch`` does.
        """
        return self._source.plan(self._pruning)
