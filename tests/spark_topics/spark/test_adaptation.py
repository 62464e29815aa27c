# SPDX-License-Identifier: Apache-2.0
"""What Spark calls, called in this process: by each of its releases."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import datasource
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from spark_topics.source.stream.batch_ends import StreamLimits
from spark_topics.spark.row_stream_writer import RowStreamWriter
from spark_topics.spark.unlimited_stream_reader import UnlimitedStreamReader
from spark_topics.spark.writer import TaskCommit
from tests.spark_topics.numbers import OptionError
from tests.spark_topics.spark.number_source import (
    Folder,
    NumberDataSource,
    NumberSource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Two partitions of one topic."""
    made = Folder(str(tmp_path / "numbers"))
    made.append("orders/0", range(150))
    made.append("orders/1", range(1000, 1050))
    return made


@pytest.fixture
def _as_in_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's interface without what came later."""
    reader = datasource.DataSourceStreamReader
    for name in ("getDefaultReadLimit", "reportLatestOffset"):
        monkeypatch.delattr(reader, name)
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")


def source(folder: Folder, **options: str) -> NumberDataSource:
    """As Spark makes it."""
    return NumberDataSource({"folder": str(folder.path), **options})


def travelled(value: Any) -> Any:
    """On another node."""
    return pickle.loads(cloudpickle.dumps(value))  # noqa: S301 - our own bytes


def numbers(reader: Any, partitions: Iterable[InputPartition]) -> list[int]:
    """What tasks read."""
    there = travelled(reader)
    return [
        number
        for partition in partitions
        for batch in there.read(travelled(partition))
        for number in batch["number"].to_pylist()
    ]


def test_a_batch_read(folder: Folder) -> None:
    """A list of input partitions; an empty plan has one of None, without rows."""
    made = source(folder, minPartitions="5")
    reader = made.reader(made.schema())
    partitions = reader.partitions()
    assert type(partitions) is list
    assert len(partitions) == 5
    assert numbers(reader, partitions) == [*range(150), *range(1000, 1050)]
    assert numbers(reader, [InputPartition(None)]) == []


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"max_bytes": 5}, ReadMaxBytes(5)),
        ({"min_rows": 7}, ReadMinRows(7)),
        ({"max_rows": 3, "max_bytes": 5, "min_rows": 7}, ReadMaxRows(3)),
        ({}, ReadAllAvailable()),
    ],
)
def test_the_limit_that_spark_knows(
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    wanted: ReadLimit,
) -> None:
    """It knows one; the first of those that are set."""
    monkeypatch.setattr(NumberSource, "limits", StreamLimits(**limits))
    made = source(folder)
    reader: Any = made.streamReader(made.schema())
    found = reader.getDefaultReadLimit()
    assert (type(found), vars(found)) == (type(wanted), vars(wanted))


def test_a_stream_that_is_stopped_before_it_began(folder: Folder) -> None:
    """Spark stops it, too, where it failed before it asked for anything."""
    made = source(folder)
    made.streamReader(made.schema()).stop()


def test_a_stream_within_its_limit(folder: Folder) -> None:
    """Until it has all that there was when it began."""
    made = source(folder, maxRowsPerTrigger="80")
    reader: Any = made.streamReader(made.schema())
    reader.prepareForTriggerAvailableNow()
    folder.append("orders/1", [7])
    limit, at, sizes = reader.getDefaultReadLimit(), reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        sizes.append(len(numbers(reader, reader.partitions(at, end))))
        reader.commit(end)
        at = end
    assert sizes == [80, 80, 40]
    assert reader.latestOffset(at, limit) is at
    assert reader.reportLatestOffset()["backlogEntries"] == {"orders": {"0": 0, "1": 0}}
    reader.stop()


@pytest.mark.usefixtures("_as_in_4_0")
def test_a_stream_of_an_old_release(folder: Folder) -> None:
    """It takes all that there is, and goes on where Spark says that it stood."""
    made = source(folder)
    reader: Any = made.streamReader(made.schema())
    assert isinstance(reader, UnlimitedStreamReader)
    start, end = reader.initialOffset(), reader.latestOffset()
    assert len(numbers(reader, reader.partitions(start, end))) == 200
    folder.append("orders/0", [7])
    again: Any = made.streamReader(made.schema())
    assert again.partitions(end, end) == []
    assert numbers(again, again.partitions(end, again.latestOffset())) == [7]
    with pytest.raises(OptionError, match="`maxRowsPerTrigger` cannot be kept"):
        source(folder, maxRowsPerTrigger="80").streamReader(made.schema())


@pytest.mark.usefixtures("_as_in_4_0")
def test_a_stream_without_a_reader(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's program for sources stops a reader at each error: so it has one."""
    program = "pyspark.sql.streaming.python_streaming_source_runner"
    main: Any = SimpleNamespace(__spec__=SimpleNamespace(name=program))
    monkeypatch.setitem(sys.modules, "__main__", main)
    made = source(folder, maxRowsPerTrigger="80")
    reader: Any = made.streamReader(made.schema())
    for ask in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        reader.getDefaultReadLimit,
        lambda: reader.partitions({}, {}),
        lambda: reader.commit({}),
    ):
        with pytest.raises(OptionError, match="`maxRowsPerTrigger` cannot be kept"):
            ask()
    reader.stop()


def test_a_writer_brings_what_tasks_tell(folder: Folder, tmp_path: Path) -> None:
    """To the commit; a task that failed tells nothing."""
    target = Folder(str(tmp_path / "target"))
    made = source(target)
    writer: Any = made.writer(made.schema(), overwrite=False)
    told: list[Any] = [TaskCommit([3]), None, TaskCommit([1, 2])]
    travelled(writer).commit([travelled(one) for one in told])
    assert target.read("written/0", 0, 3).to_pylist() == [1, 2, 3]
    writer.abort(told)
    assert target.count("written/0") == 3


@pytest.mark.usefixtures("_as_in_4_0")
def test_a_writer_of_an_old_release(tmp_path: Path) -> None:
    """It is handed rows."""
    made = source(Folder(str(tmp_path / "target")))
    writer = made.streamWriter(made.schema(), overwrite=False)
    assert isinstance(writer, RowStreamWriter)
