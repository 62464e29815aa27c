# SPDX-License-Identifier: Apache-2.0
"""A Python data source that hands over RecordBatches made before: Spark's own limit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.options import ClientOptions, ReadOptions, ServiceUrl
from pulsar_spark.spark.schema import spark_schema
from tests.bench import records
from tests.bench.samples import make_batches
from tests.support.entries import decode_entry

_TOPIC = "persistent://public/default/bench-partition-0"
_DEFAULTS = ReadOptions(ClientOptions(ServiceUrl("pulsar", ())))


class ReadyBatches(DataSource):
    """Options: ``columns``, ``size`` of a value, ``rows``, ``partitions``.

    As a stream it has so many ``rows`` in each of so many ``batches``.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "bench-ready-batches"

    def schema(self) -> StructType:
        """As a topic with these columns has it."""
        return spark_schema(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> _Reader:
        """Hands over."""
        return _Reader(
            functools.partial(
                ready_batch,
                tuple(self.options["columns"].split(",")),
                int(self.options["size"]),
            ),
            int(self.options["rows"]),
            int(self.options["partitions"]),
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Hands over the same again and again."""
        return _StreamReader(self.reader(schema), int(self.options["batches"]))


class ReadyRecords(DataSource):
    """Options: ``rows``, ``partitions``. Rows of ``records``, as AVRO has them."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "bench-ready-records"

    def schema(self) -> str:
        """As a topic of such records has it."""
        return records.COLUMNS

    def reader(self, schema: StructType) -> _Reader:
        """Hands over."""
        options = self.options
        return _Reader(ready_records, int(options["rows"]), int(options["partitions"]))


class _Reader(DataSourceReader):
    def __init__(
        self, ready: Callable[[], pa.RecordBatch], rows: int, partitions: int
    ) -> None:
        self._ready = ready
        self._rows = rows
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(i) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._ready()
        left = self._rows // self._partitions
        while left >= len(batch):
            yield batch
            left -= len(batch)
        if left:
            yield batch.slice(0, left)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, reader: _Reader, batches: int) -> None:
        self._reader = reader
        self._batches = batches

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": min(start["batch"] + 1, self._batches)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


@functools.cache
def ready_records() -> pa.RecordBatch:
    """As many rows as a RecordBatch of our reader has."""
    rows = records.rows(_DEFAULTS.rows_per_arrow_batch)
    return pa.RecordBatch.from_pylist(rows, records.ARROW)


@functools.cache
def ready_batch(columns: tuple[str, ...], size_bytes: int) -> pa.RecordBatch:
    """A full RecordBatch as our reader makes it; kept by the Python worker."""
    builder = RecordBatchBuilder(
        arrow_schema(columns),
        COLUMN_SOURCES,
        _TOPIC,
        0,
        max_rows=_DEFAULTS.rows_per_arrow_batch,
        max_bytes=_DEFAULTS.bytes_per_arrow_batch,
    )
    batches = make_batches(8, size_bytes)
    number = 0
    while True:
        stored = batches[number % len(batches)].stored(number)
        for full in builder.add(decode_entry(stored)):
            return full
        number += 1
