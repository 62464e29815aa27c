# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from spark_topics.source.turns import read_turns
from spark_topics.statistics import Kind, TaskStatistics
from tubemq_spark.arrow.decode import Decoder
from tubemq_spark.client.brokers import shared_pool
from tubemq_spark.loops.messages import KERNEL
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.system import SYSTEM

_READING = Kind(
    "read", "decoding", f"; kernel: {KERNEL}", logger=SYSTEM.logger("spark")
)


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
    turn = _Turn(
        RangeReader(shared_pool(options.client), task, options),
        Decoder(schema, task.range.partition, options.filters or ()),
    )
    yield from read_turns(iter([turn]), _READING, str(task), options.stats_interval_s)


class _Turn(NamedTuple):
    """The range of a task."""

    reader: RangeReader
    decoder: Decoder

    @property
    def waited_s(self) -> float:
        return self.reader.waited_s

    @property
    def reconnects(self) -> int:
        return self.reader.reconnects

    def close(self) -> None:
        self.reader.close()

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        for piece in self.reader.pieces():
            batch = self.decoder.decode(*piece)
            stats.count(batch.num_rows, piece.messages.size_bytes())
            if batch.num_rows:
                yield batch
