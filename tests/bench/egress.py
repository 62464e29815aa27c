# SPDX-License-Identifier: Apache-2.0
"""A Python data source that drops RecordBatches: what Spark itself needs to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class DropBatches(DataSource):
    """Takes any columns."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "bench-drop-batches"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Drops the rows of a batch query."""
        return _BatchWriter()

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Drops the rows of a micro-batch."""
        return _StreamWriter()


class _BatchWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batchId: int
    ) -> None:
        pass

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batchId: int
    ) -> None:
        pass


def _drop(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()
