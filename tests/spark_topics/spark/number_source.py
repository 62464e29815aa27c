# SPDX-License-Identifier: Apache-2.0
"""A messaging system in a folder, for Spark: ``format("numbers")``.

A topic partition is a file of numbers, 8 bytes each, which never gets shorter. It has
what a messaging system has to bring, and nothing else::

    options    where it is, how far to go          ReadOptions, WriteOptions
    source     plan, plan_stream, read             NumberSource
    cluster    what the plan of a stream asks      FolderCluster
    write      run, commit, abort                  NumberWrite
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from spark_topics.columns import ColumnType, Read, Write
from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.spec import Scope, option, specs_of
from spark_topics.options.values import MAX_LONG, boolean, integer, plain_text
from spark_topics.sink.write import Task
from spark_topics.source.grouping import group
from spark_topics.source.parts import RangeSize, count_parts, cut_numbers
from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.checkpoint import Span
from spark_topics.source.stream.cluster import PartitionStatus
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from spark_topics.source.turns import read_turns
from spark_topics.spark.datasource import TopicDataSource
from spark_topics.spark.reader import BatchReader
from spark_topics.spark.schema import read_schema, spark_schema, write_schema
from spark_topics.statistics import Kind, TaskStatistics
from tests.spark_topics.numbers import (
    NUMBERS,
    ClusterOfNumbers,
    NumberOffset,
    Offset,
)

READ = {
    "number": Read(ColumnType.BIGINT, never_null=True),
    "__topic": Read(ColumnType.STRING, never_null=True),
    "__offset": Read(ColumnType.BIGINT, never_null=True),
}
WRITE = {"number": Write(1, (ColumnType.BIGINT,), "The number.")}

_SIZE = 8


@dataclass(frozen=True)
class ReadOptions:
    """What to read or to write, and how."""

    checkpoint: str | None = option(
        "checkpointLocation", None, plain_text, Scope.STREAM_WRITE, "Spark's own."
    )
    folder: str = option("folder", "", plain_text, Scope.CLIENT, "Where it is.")
    fail_on_data_loss: bool = option(
        "failOnDataLoss", "true", boolean, Scope.READ, "Whether gaps are errors."
    )
    min_partitions: int | None = option(
        "minPartitions", None, integer(1, 1000), Scope.BATCH, "Parts, at least."
    )
    max_partitions: int | None = option(
        "maxPartitions", None, integer(1, 1000), Scope.BATCH, "Tasks, at most."
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger", None, integer(1, MAX_LONG), Scope.STREAM, "Rows, at most."
    )


KNOWN = KnownOptions(specs_of(ReadOptions), NUMBERS)


def options_of(given: Mapping[str, str], use: Scope) -> ReadOptions:
    """Read Spark's options."""
    found = Given(given, KNOWN, use)
    if "folder" not in found:
        found.problems.append("folder is required.")
    options = found.fill(ReadOptions)
    found.finish(quiet=True)
    return options


class Folder:
    """The system itself: topics are folders, partitions are files in them."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def partitions(self) -> list[str]:
        """Return the names of all topic partitions, such as ``orders/0``."""
        files = self.path.glob("*/[0-9]*")
        return sorted(f"{file.parent.name}/{file.name}" for file in files)

    def count(self, name: str) -> int:
        """Return how many numbers there are."""
        return os.path.getsize(self.path / name) // _SIZE

    def read(self, name: str, first: int, end: int) -> pa.Array:
        """Return the numbers from the first to before the end."""
        with (self.path / name).open("rb") as file:
            file.seek(first * _SIZE)
            data = file.read((end - first) * _SIZE)
        return pa.Array.from_buffers(
            pa.int64(), end - first, [None, pa.py_buffer(data)]
        )

    def append(self, name: str, numbers: Sequence[int]) -> None:
        """Store numbers."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(
                b"".join(n.to_bytes(_SIZE, "little", signed=True) for n in numbers)
            )


@dataclass(frozen=True)
class Range:
    """Numbers of one topic partition."""

    name: str
    first: int
    end: int


@dataclass(frozen=True)
class NumberSource:
    """What a query reads, see ``source.Source``."""

    options: ReadOptions

    @property
    def limits(self) -> StreamLimits:
        """As the options say."""
        return StreamLimits(max_rows=self.options.max_rows)

    @property
    def must_stop(self) -> bool:
        """Nothing is kept for a query."""
        return False

    def plan(self) -> list[tuple[Range, ...]]:
        """All there is, in as many parts as the options say."""
        folder = Folder(self.options.folder)
        whole = [(name, folder.count(name)) for name in folder.partitions()]
        sizes = [RangeSize(count) for _, count in whole]
        parts = count_parts(
            sizes, min_partitions=self.options.min_partitions, max_records=None
        )
        ranges = [
            Range(name, first, end)
            for (name, count), number in zip(whole, parts, strict=True)
            for first, end in cut_numbers(0, count, number)
        ]
        return group(
            ranges,
            [RangeSize(one.end - one.first) for one in ranges],
            max_partitions=self.options.max_partitions,
            max_records=None,
        )

    def plan_stream(self) -> StreamPlanner[Offset, NumberOffset, tuple[Range, ...]]:
        """The planner over what is in the folder."""
        cluster = FolderCluster(Folder(self.options.folder))
        topics = TopicSet(
            cluster,
            discovery_interval_s=0,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return StreamPlanner(cluster, topics, BatchEnds(cluster, self.limits))

    def read(
        self, task: tuple[Range, ...] | None, schema: pa.Schema, *, streaming: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        folder = Folder(self.options.folder)
        turns = (NumberTurn(folder, range_, schema) for range_ in task or ())
        return read_turns(turns, _READING, "numbers", 60.0)


_READING = Kind("read", "copying", logger=NUMBERS.logger("spark"))


class NumberTurn:
    """A range being read, a few rows at a time."""

    waited_s = 0.0
    reconnects = 0

    def __init__(self, folder: Folder, range_: Range, schema: pa.Schema) -> None:
        self._folder, self._range, self._schema = folder, range_, schema

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        for first in range(self._range.first, self._range.end, 100):
            end = min(first + 100, self._range.end)
            numbers = self._folder.read(self._range.name, first, end)
            stats.count(len(numbers), len(numbers) * _SIZE)
            columns = {
                "number": numbers,
                "__topic": pa.array([self._range.name] * len(numbers)),
                "__offset": pa.array(range(first, end), pa.int64()),
            }
            arrays = [columns[name] for name in self._schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def close(self) -> None:
        """Nothing is held."""


class FolderCluster(ClusterOfNumbers):
    """What the plan of a stream asks, see ``cluster.Cluster``."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def starts(self) -> dict[str, Offset]:
        """A query starts with the first number."""
        return dict.fromkeys(self._folder.partitions(), self.earliest)

    def partitions(self, *, wait: bool = False) -> list[str]:
        """All there are."""
        return self._folder.partitions()

    def topic_of(self, name: str) -> str:
        """The folder."""
        return name.partition("/")[0]

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[Offset]]:
        """From the first number to the last."""
        there = set(self._folder.partitions())
        return {n: self._status(n, self.earliest) for n in names if n in there}

    @contextlib.contextmanager
    def visit(
        self, begins: Mapping[str, Offset]
    ) -> Iterator[dict[str, PartitionStatus[Offset] | None]]:
        """From where the query stands to the last number."""
        there = set(self._folder.partitions())
        yield {
            name: self._status(name, after) if name in there else None
            for name, after in begins.items()
        }

    def _status(self, name: str, after: Offset) -> PartitionStatus[Offset]:
        count = self._folder.count(name)
        return PartitionStatus(after, Offset(count - 1) if count else None)

    def ranges(self, spans: Sequence[Span[Offset]]) -> list[tuple[Range, ...]]:
        """A task for each topic partition."""
        return [
            (Range(span.topic_partition, span.after + 1, span.last + 1),)
            for span in spans
        ]

    def acknowledge(self, read: Mapping[str, Offset]) -> None:
        """Nobody asks."""


@dataclass(frozen=True)
class NumberWrite:
    """A write, all of whose rows become visible at its commit; see ``sink.write``."""

    options: ReadOptions

    def prepare(self) -> None:
        """Nothing is needed."""

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> list[int]:
        """What is to be stored."""
        return [n for batch in batches for n in batch.column("number").to_pylist()]

    def commit(self, results: Sequence[list[int]]) -> None:
        """Store it, in order."""
        numbers = sorted(n for result in results for n in result)
        Folder(self.options.folder).append("written/0", numbers)

    def abort(self, results: Sequence[list[int]]) -> None:
        """Nothing was stored."""


@dataclass(frozen=True)
class NumberStreamWrite(NumberWrite):
    """The same for each micro-batch, once."""

    def begin_micro_batch(self) -> None:
        """There is nothing to do before it."""

    def commit(  # type: ignore[override]
        self, results: Sequence[list[int]], tasks: int, batch_id: int
    ) -> None:
        """Store it, unless that was done."""
        done = Path(self.options.folder) / f"batch-{batch_id}"
        if not done.exists():
            super().commit(results)
            done.touch()

    def abort(  # type: ignore[override]
        self, results: Sequence[list[int]], batch_id: int
    ) -> None:
        """Nothing was stored."""


class NumberDataSource(TopicDataSource):
    """``format("numbers")``."""

    system = NUMBERS

    @classmethod
    def name(cls) -> str:
        """For ``format(...)``."""
        return "numbers"

    def schema(self) -> StructType:
        """All columns."""
        return spark_schema(list(READ), READ)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch query."""
        options = options_of(self.options, Scope.BATCH)
        return BatchReader(NumberSource(options), read_schema(schema, READ, NUMBERS))

    def stream_read(
        self, schema: StructType
    ) -> tuple[NumberSource, pa.Schema, dict[str, int | None]]:
        """Of a stream."""
        options = options_of(self.options, Scope.STREAM)
        columns = read_schema(schema, READ, NUMBERS)
        limits = {"maxRowsPerTrigger": options.max_rows}
        return NumberSource(options), columns, limits

    def batch_write(self, schema: StructType) -> tuple[NumberWrite, pa.Schema]:
        """Of a batch query."""
        options = options_of(self.options, Scope.BATCH_WRITE)
        return NumberWrite(options), self._columns(schema)

    def stream_write(self, schema: StructType) -> tuple[NumberStreamWrite, pa.Schema]:
        """Of a stream."""
        options = options_of(self.options, Scope.STREAM_WRITE)
        return NumberStreamWrite(options), self._columns(schema)

    def _columns(self, schema: StructType) -> pa.Schema:
        others = {name: read for name, read in READ.items() if name not in WRITE}
        return write_schema(
            schema, WRITE, NUMBERS, required=["number"], read_only=others
        )
