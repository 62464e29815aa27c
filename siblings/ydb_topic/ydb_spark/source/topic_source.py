# SPDX-License-Identifier: Apache-2.0
"""The topic that a query's options name. Travels to executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_topics.source.parts import RangeSize, count_parts, cut_numbers
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from spark_topics.source.turns import read_turns
from spark_topics.statistics import Kind, TaskStatistics
from ydb_spark.arrow.messages import MessageColumns
from ydb_spark.client.channel import Channel, shared_channel
from ydb_spark.client.range_reader import RangeReader
from ydb_spark.client.topics import describe_topic
from ydb_spark.options.read import ReadOptions
from ydb_spark.source.bounds import ending, starting
from ydb_spark.source.topic_cluster import Range, TopicCluster
from ydb_spark.system import SYSTEM

_READING = Kind("read", "decoding", logger=SYSTEM.logger("spark"))


@dataclass(frozen=True)
class TopicSource:
    """See the module.

    Attributes:
        options: How to read.
    """

    options: ReadOptions

    @property
    def limits(self) -> StreamLimits:
        """Return the limits of a stream's micro-batches."""
        return StreamLimits(self.options.max_rows, self.options.max_bytes)

    @property
    def must_stop(self) -> bool:
        """Return whether a finished stream must clean up: never."""
        return False

    def plan(self) -> Sequence[Range]:
        """Return what the tasks of a batch read are to read. On the driver.

        Raises:
            OptionError: Offsets do not fit the topic.
            DataLossError: A start is no longer there.
            YdbError: There is no such topic, or no answer.
        """
        options = self.options
        channel = self._channel()
        topic = describe_topic(channel, options.topic, with_offsets=True)
        starts, ends = starting(channel, options, topic), ending(options, topic)
        ranges = [
            Range(number, starts[number], ends[number], topic.created)
            for number in sorted(topic.partitions)
            if starts[number] < ends[number]
        ]
        return cut(ranges, options.min_partitions)

    def plan_stream(self) -> StreamPlanner[Any, Any, Range]:
        """Return what plans the micro-batches of a stream. On the driver."""
        options = self.options
        cluster = TopicCluster(self._channel(), options)
        topics = TopicSet(
            cluster,
            discovery_interval_s=options.discovery_interval_s,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return StreamPlanner(cluster, topics, BatchEnds(cluster, self.limits))

    def read(
        self, task: Range | None, schema: pa.Schema, *, streaming: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, in order. On an executor.

        Args:
            task: One of those planned; None for the task of an empty plan.
            schema: The columns wanted.
            streaming: Whether it is one of a stream.

        Raises:
            DataLossError: Messages are gone.
            CorruptMessageError: A body cannot be decoded.
            YdbError: The server does not answer, or refuses.
        """
        if task is None:
            return iter(())
        turn = _Turn(self._channel(), self.options, task, schema)
        return read_turns(
            iter([turn]),
            _READING,
            f"{self.options.topic}/{task.partition}",
            self.options.stats_interval_s,
        )

    def _channel(self) -> Channel:
        return shared_channel(self.options.connection)


class _Turn:
    """A range that is being converted to RecordBatches."""

    def __init__(
        self, channel: Channel, options: ReadOptions, task: Range, schema: pa.Schema
    ) -> None:
        self._reader = RangeReader(
            channel,
            options.topic,
            task.partition,
            task.start,
            task.end,
            credit_bytes=options.read_buffer_bytes,
            timeout_s=options.poll_timeout_s,
            is_strict=options.fail_on_data_loss,
            created=task.created,
        )
        self._messages = self._reader.batches()
        self._columns = MessageColumns(schema, options.topic, task.partition)

    @property
    def waited_s(self) -> float:
        """Return how long messages were waited for, in seconds."""
        return self._reader.waited_s

    @property
    def reconnects(self) -> int:
        """Return how often a stream was opened again."""
        return self._reader.reconnects

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in order."""
        for parts in self._messages:
            stats.count(size_bytes=sum(part.batch.ByteSize() for part in parts))
            for made in self._columns.take(parts):
                stats.count(made.num_rows)
                yield made
        if self._columns.rows:
            made = self._columns.finish()
            stats.count(made.num_rows)
            yield made

    def close(self) -> None:
        """End the stream at any point of the range."""
        self._messages.close()


def cut(ranges: Sequence[Range], min_partitions: int | None) -> list[Range]:
    """Cut ranges so that there are as many as wanted."""
    sizes = [RangeSize(range_.end - range_.start) for range_ in ranges]
    parts = count_parts(sizes, min_partitions=min_partitions, max_records=None)
    return [
        replace(range_, start=start, end=end)
        for range_, count in zip(ranges, parts, strict=True)
        for start, end in cut_numbers(range_.start, range_.end, count)
    ]
