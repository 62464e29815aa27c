"""Streams: the driver plans micro-batches, executors read their rows."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.stream_planner import StreamPlanner
from pulsar_spark.options import ReadOptions
from pulsar_spark.spark.reader import PulsarInputPartition, read_range
from pulsar_spark.spark.schema import checked_arrow_schema
from pulsar_spark.stream_offsets import StreamOffset

#: The program that Spark runs on the driver for each source of a stream.
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream.

    Spark makes one on the driver, which it asks for offsets for as long as the query
    runs, and others only to send their ``read`` to executors.

    Args:
        options: What to read.
        schema: The columns wanted.

    Raises:
        SchemaError: A topic has no such columns.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked_arrow_schema(schema)
        self._planner: StreamPlanner | None = None
        self._is_terminated = False

    # Offsets are dicts of the form that ``stream_offsets`` describes. Errors are those
    # of the methods of StreamPlanner that are called.

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        return self._plan().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options set; Spark may overrule it by ReadAllAvailable.

        Spark knows only one at a time, so ``latestOffset`` minds all of them itself.
        """
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_rows_per_trigger is not None:
            return ReadMinRows(options.min_rows_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        offset = StreamOffset.from_json(start)
        end = self._plan().latest(offset, unlimited=isinstance(limit, ReadAllAvailable))
        # The very text where nothing is new: Spark compares texts.
        return start if end is offset else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the topics end, and what is left of them: for the query's progress."""
        return self._plan().progress()

    def prepareForTriggerAvailableNow(self) -> None:
        """Makes what there is now all that the query reads."""
        self._plan().fix_target()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        """One input partition for each topic partition that has rows in the batch.

        Or several, with ``minPartitions`` or ``maxRecordsPerPartition``.
        """
        ranges = self._plan().ranges(
            StreamOffset.from_json(start), StreamOffset.from_json(end)
        )
        return [PulsarInputPartition(range_) for range_ in ranges]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Acknowledges what Spark has committed."""
        self._plan().commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Lets go of the brokers."""
        if self._planner is not None:
            self._planner.stop()
        if self._is_terminated:
            # As Spark meant it to: nobody reads what it would have to say.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one input partition, in order. On an executor.

        Raises:
            PulsarSparkError: As ``client.range_reader.RangeReader.entries`` does.
        """
        return read_range(
            partition.value,
            self._options,
            self._schema,
            is_protected=self._options.ack_on_commit,
        )

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            pool = shared_pool(self._options.client)
            self._planner = StreamPlanner(pool, self._options)
            if self._options.delete_subscription_on_stop and _is_in_runner():
                signal.signal(signal.SIGTERM, self._terminate)
        return self._planner

    def _terminate(self, *_: object) -> None:
        """Leaves what is going on, so that ``stop`` comes next.

        Spark ends the source of a stopped query by this signal, and not otherwise.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._is_terminated = True
        sys.exit()


def _is_in_runner() -> bool:
    """Whether this process is Spark's, and does nothing but drive one reader."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    return (
        getattr(program, "name", None) == _RUNNER
        and threading.current_thread() is threading.main_thread()
    )
