# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tubemq_spark.arrow.decode import Decoder
from tubemq_spark.client.brokers import shared_pool
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.range_reader import RangeReader


def read_task(
    task: ReadTask | None, options: ReadOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in order.

    Args:
        task: None for the task of an empty plan.
        options: How to read.
        schema: The columns wanted.

    Raises:
        TubeMQError: As `RangeReader.pieces` and `Decoder.decode`.
    """
    if task is None:
        return
    reader = RangeReader(shared_pool(options.client), task, options)
    decoder = Decoder(schema, task.range.partition, options.filters or ())
    for piece in reader.pieces():
        batch = decoder.decode(piece.messages, piece.first_offset)
        if batch.num_rows:
            yield batch
