# SPDX-License-Identifier: Apache-2.0
"""Which reader and which writer of a stream there is for this Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_topics.process import only_ends_micro_batches, plans_write
from spark_topics.sink.write import StreamWrite
from spark_topics.source.source import Source
from spark_topics.system import System


def limits_micro_batches() -> bool:
    """Return whether Spark lets sources limit micro-batches, as since 4.2."""
    return hasattr(DataSourceStreamReader, "getDefaultReadLimit")


def stream_reader(
    source: Source[Any],
    schema: pa.Schema,
    limits: Mapping[str, object],
    system: System,
) -> DataSourceStreamReader:
    """Return the reader of a streaming query.

    Args:
        source: What to read.
        schema: The columns wanted.
        limits: Options that limit micro-batches, by name; None for those not set.
        system: Whose error it is where the limits cannot be kept.

    Raises:
        OptionError: There are limits, and this Spark, older than 4.2, knows none; of
            the system's own class.
    """
    if limits_micro_batches():
        from spark_topics.spark.stream_reader import StreamReader

        return StreamReader(source, schema)
    from spark_topics.spark.unlimited_stream_reader import (
        UnlimitedStreamReader,
        problem_of_limits,
    )

    if problem := problem_of_limits(limits):
        raise system.option_error(problem)
    return UnlimitedStreamReader(source, schema)


def stream_writer(
    write: StreamWrite[Any], columns: pa.Schema, schema: StructType
) -> DataSourceStreamWriter:
    """Return the writer of a streaming query, prepared unless only for a commit.

    Args:
        write: How to write.
        columns: The columns that are written.
        schema: All columns of the rows.

    Raises:
        TopicsError: As ``StreamWrite.prepare`` and ``begin_micro_batch`` do.
    """
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        from spark_topics.spark.stream_writer import StreamWriter

        writer: Any = StreamWriter(write, columns)
    else:
        from spark_topics.spark.row_stream_writer import RowStreamWriter

        writer = RowStreamWriter(write, columns, schema)
    # A commit needs none of it. Where it fails, an abort would fail, too, and Spark
    # would tell of that instead of why the micro-batch has failed.
    if not only_ends_micro_batches():
        writer.prepare()
    # The next step is to pickle the writer, which takes this step where this process is
    # another. What fails there PySpark calls an object that cannot be serialized.
    if plans_write():
        write.begin_micro_batch()
    return writer  # type: ignore[no-any-return]
