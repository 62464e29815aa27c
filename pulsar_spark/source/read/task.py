# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task: ranges of topic partitions become RecordBatches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.decode import Mode, RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.client.entry_reader import ReaderSettings
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.loops.messages import KERNEL
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.consumer_settings import consumer_settings
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.plan.value_columns import value_columns
from pulsar_spark.source.read.kernel_notice import warn_of_slow_kernel
from pulsar_spark.source.read.opener import Opener
from pulsar_spark.source.read.range_reader import RangeReader, RangeSettings
from pulsar_spark.source.read.value_decoders import ValueDecoders
from pulsar_spark.system import query_log
from pulsar_spark.topics import topic_column
from spark_topics.arrow.memory import release_unused
from spark_topics.source.turns import read_turns
from spark_topics.statistics import Kind, TaskStatistics, Totals


def read_task(
    task: ReadTask | None,
    options: ReadOptions,
    schema: pa.Schema,
    *,
    is_protected: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as RecordBatches of ``schema``, range by range.

    Each has at most ``rowsPerArrowBatch`` rows and ``bytesPerArrowBatch`` bytes of
    messages, or is a single larger message. The rows of a range are in order.

    Args:
        task: What to read; None for the one partition that Spark makes of an empty
            plan.
        options: How to read it.
        schema: The columns wanted.
        is_protected: Whether a durable subscription keeps the ranges from retention.
    """
    if task is None:
        return
    warn_of_slow_kernel()
    settings = range_settings(options, is_protected=is_protected)
    pool = shared_pool(options.client)
    decoders = None
    if task.schema is not None:
        value_fields = value_columns(schema, options)
        decoders = ValueDecoders(
            task.schema, task.own_schemas, value_fields, options, pool
        )
    opener = Opener(options.decryption, gives_bytes=task.schema is None)
    corrupt_record = options.corrupt_record_column
    if corrupt_record not in schema.names:
        corrupt_record = ""

    def turn(range_: TopicRange) -> _Turn:
        builder = RecordBatchBuilder(
            schema,
            COLUMN_SOURCES,
            range_.topic_partition,
            range_.partition,
            max_rows=options.rows_per_arrow_batch,
            max_bytes=options.bytes_per_arrow_batch,
            values=(None if decoders is None else decoders.of(range_.topic_partition)),
            mode=Mode(options.mode),
            corrupt_record=corrupt_record,
            topic=topic_column(range_.topic_partition),
        )
        served_by = task.brokers.get(range_.topic_partition)
        table = builder.new_table()
        reader = RangeReader(
            pool, range_, settings, table, release_unused, served_by, opener
        )
        reader.begin()
        return _Turn(builder, reader)

    def refresh(totals: Totals) -> None:
        totals.discarded_rows = opener.discarded

    turns = map(turn, task.ranges)
    interval_s = options.client.stats_interval_s
    try:
        yield from read_turns(turns, _READING, str(task), interval_s, refresh)
    finally:
        if decoders is not None:
            decoders.close()


_READING = Kind(
    "read",
    "decoding",
    f"; kernel: {KERNEL}",
    "encrypted messages",
    logger=query_log,
)


class _Turn(NamedTuple):
    """The reader of a range, and the builder of its RecordBatches."""

    builder: RecordBatchBuilder
    reader: RangeReader

    @property
    def waited_s(self) -> float:
        return self.reader.reader.waited_s

    @property
    def reconnects(self) -> int:
        return self.reader.reader.reconnects

    def close(self) -> None:
        self.reader.close()

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        for entry in self.reader.runs():
            stats.count(len(entry), entry.size_bytes)
            yield from self.builder.add(entry)
        if self.builder.rows:
            yield self.builder.finish()


def range_settings(
    options: ReadOptions, *, is_protected: bool = False
) -> RangeSettings:
    """Return what the options say about reading a range."""
    return RangeSettings(
        reader=ReaderSettings(
            consumer_name=options.reader_name or "",
            consumer=consumer_settings(options),
            receiver_queue_messages=options.receiver_queue_size,
            poll_timeout_s=options.poll_timeout_s,
        ),
        fail_on_data_loss=options.fail_on_data_loss,
        is_protected=is_protected,
        max_pending_chunked_messages=options.max_pending_chunked_message,
        expire_chunks_ms=int(options.expire_incomplete_chunk_s * 1000),
        # So that a RecordBatch is one table, and nothing has to be concatenated.
        table_rows=options.rows_per_arrow_batch,
        table_bytes=options.bytes_per_arrow_batch,
    )
