"""Batch reads: the plan is made on the driver, the rows are read on executors."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_spark.arrow.decode import RecordBatchBuilder, new_table
from pulsar_spark.arrow.memory import release_unused
from pulsar_spark.client.planner import plan_batch
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.range_reader import RangeReader, RangeSettings
from pulsar_spark.client.reader import ReaderSettings
from pulsar_spark.options import ReadOptions
from pulsar_spark.plan import Pruning, TopicRange
from pulsar_spark.spark.schema import checked_arrow_schema
from pulsar_spark.spark.statistics import Kind, TaskStatistics, Totals
from pulsar_spark.wire.messages import KERNEL


class PulsarInputPartition(InputPartition):
    """The part of a query that one task reads: a range of one topic partition."""

    value: TopicRange

    def __init__(self, value: TopicRange) -> None:
        super().__init__(value)


class PulsarReader(DataSourceReader):
    """Reads topics once, from fixed starts to fixed ends.

    Args:
        options: What to read.
        schema: The columns wanted.

    Raises:
        SchemaError: A topic has no such columns.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked_arrow_schema(schema)
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """One input partition for each topic partition that has rows. On the driver.

        Or several, with ``minPartitions`` or ``maxRecordsPerPartition``.

        Raises:
            PulsarSparkError: As ``client.planner.plan_batch`` does.
        """
        pool = shared_pool(self._options.client)
        ranges = plan_batch(pool, self._options, self._pruning)
        return [PulsarInputPartition(range_) for range_ in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one input partition, in order. On an executor.

        Raises:
            PulsarSparkError: As ``client.range_reader.RangeReader.entries`` does.
        """
        return read_range(partition.value, self._options, self._schema)


def read_range(
    range_: TopicRange | None,
    options: ReadOptions,
    schema: pa.Schema,
    *,
    is_protected: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range as RecordBatches of ``schema``, in order.

    Each has at most ``rowsPerArrowBatch`` rows and ``bytesPerArrowBatch`` bytes of
    messages, or is a single larger message.

    Args:
        range_: What to read; None for the one partition that Spark makes of an empty
            plan.
        options: How to read it.
        schema: The columns wanted.
        is_protected: Whether a durable subscription keeps the range from retention.
    """
    if range_ is None:
        return
    settings = range_settings(options, is_protected=is_protected)
    pool = shared_pool(options.client)
    ranged = RangeReader(pool, range_, settings, new_table(schema), release_unused)

    def refresh(totals: Totals) -> None:
        totals.broker_s = ranged.reader.waited_s
        totals.reconnects = ranged.reader.reconnects

    interval_s = options.client.stats_interval_s
    stats = TaskStatistics(_READING, range_.topic_partition, interval_s, refresh)
    builder = RecordBatchBuilder(
        schema,
        range_.topic_partition,
        range_.partition,
        max_rows=options.rows_per_arrow_batch,
        max_bytes=options.bytes_per_arrow_batch,
    )
    try:
        for record_batch in _record_batches(ranged, builder, stats):
            handed_over = time.monotonic()
            yield record_batch
            stats.totals.spark_s += time.monotonic() - handed_over
    finally:
        stats.end()


_READING = Kind("read", "decoding", f"; kernel: {KERNEL}")


def _record_batches(
    ranged: RangeReader, builder: RecordBatchBuilder, stats: TaskStatistics
) -> Iterator[pa.RecordBatch]:
    for entry in ranged.entries():
        stats.count(len(entry), entry.size_bytes)
        yield from builder.add(entry)
    if builder.rows:
        yield builder.finish()


def range_settings(
    options: ReadOptions, *, is_protected: bool = False
) -> RangeSettings:
    """What the options say about reading a range."""
    return RangeSettings(
        reader=ReaderSettings(
            subscription_prefix=options.reader_subscription_prefix,
            consumer_name=options.reader_name or "",
            receiver_queue_messages=options.receiver_queue_size,
            read_compacted=options.read_compacted,
            poll_timeout_s=options.poll_timeout_s,
        ),
        fail_on_data_loss=options.fail_on_data_loss,
        is_protected=is_protected,
        max_pending_chunked_messages=options.max_pending_chunked_message,
        expire_chunks_ms=int(options.expire_incomplete_chunk_s * 1000),
        # So that a RecordBatch is a table, and nothing of it has to be put together.
        table_rows=options.rows_per_arrow_batch,
        table_bytes=options.bytes_per_arrow_batch,
    )
