# SPDX-License-Identifier: Apache-2.0
"""What is shared, through Spark, for a messaging system that is not Pulsar."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark_topics.numbers import OptionError, SchemaError
from tests.spark_topics.spark.number_source import Folder, NumberDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 120


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> SparkSession:
    """Spark that knows the format."""
    spark.dataSource.register(NumberDataSource)
    return spark


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Two partitions of one topic, and another topic."""
    made = Folder(str(tmp_path / "numbers"))
    made.append("orders/0", range(250))
    made.append("orders/1", range(1000, 1100))
    made.append("refunds/0", [-1])
    return made


ALL = sorted([*range(250), *range(1000, 1100), -1])


def read(spark: SparkSession, folder: Folder, **options: Any) -> DataFrame:
    """A batch read."""
    return spark.read.format("numbers").options(folder=folder.path, **options).load()


def written(folder: Folder) -> list[int]:
    """What was stored, in order of storing."""
    if "written/0" not in folder.partitions():
        return []
    found: list[int] = folder.read(
        "written/0", 0, folder.count("written/0")
    ).to_pylist()
    return found


class Stream:
    """A query from one folder to another."""

    def __init__(self, spark: SparkSession, folder: Folder, target: Path) -> None:
        self._spark, self._folder = spark, folder
        self.target = Folder(str(target / "target"))
        self._checkpoint = target / "checkpoint"

    def run(self, **options: Any) -> StreamingQuery:
        """Read what there is, and end."""
        query = (
            self._spark.readStream.format("numbers")
            .options(folder=self._folder.path, **options)
            .load()
            .writeStream.format("numbers")
            .option("folder", str(self.target.path))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(WAIT_S), "the query has not ended"
        finally:
            query.stop()
        return query

    def offsets(self) -> list[dict[str, Any]]:
        """The ends of all micro-batches, as the checkpoint has them."""
        files = (self._checkpoint / "offsets").glob("[0-9]*")
        by_number = sorted(files, key=lambda file: int(file.name))
        return [json.loads(f.read_text().splitlines()[-1]) for f in by_number]


class TestBatch:
    """Reads and writes of batch queries."""

    @pytest.mark.parametrize(
        ("options", "tasks"),
        [({}, 3), ({"minPartitions": 7}, 7), ({"maxPartitions": 2}, 2)],
    )
    def test_all_rows_in_as_many_tasks_as_wanted(
        self, numbers: SparkSession, folder: Folder, options: Any, tasks: int
    ) -> None:
        """Each row once, with its position."""
        frame = read(numbers, folder, **options)
        assert frame.rdd.getNumPartitions() == tasks
        rows = frame.collect()
        assert sorted(row.number for row in rows) == ALL
        assert {(row["__topic"], row["__offset"]) for row in rows} == {
            (name, n) for name in folder.partitions() for n in range(folder.count(name))
        }

    def test_columns_that_are_chosen(
        self, numbers: SparkSession, folder: Folder
    ) -> None:
        """In any order; others are an error of the system's own."""
        reader = numbers.read.format("numbers").option("folder", str(folder.path))
        frame = reader.schema("__offset BIGINT, number BIGINT").load()
        assert frame.count() == len(ALL)
        assert frame.columns == ["__offset", "number"]
        with pytest.raises(Exception, match=r"NUMBERS_SCHEMA.*no column `other`"):
            reader.schema("other BIGINT").load().collect()

    def test_a_write(
        self, numbers: SparkSession, folder: Folder, tmp_path: Path
    ) -> None:
        """What a read gives can be written as it is."""
        target = Folder(str(tmp_path / "target"))
        frame = read(numbers, folder).filter("number >= 0")
        frame.write.format("numbers").mode("append").save(folder=str(target.path))
        assert written(target) == ALL[1:]

    def test_wrong_options(self, numbers: SparkSession) -> None:
        """All problems, in the system's own error."""
        reader = numbers.read.format("numbers").options(minPartitions="x", folders="y")
        with pytest.raises(
            Exception,
            match=r"NUMBERS_OPTION.*whole number.*Did you mean folder.*is required",
        ):
            reader.load().collect()


class TestStream:
    """Streams, into a sink that stores each micro-batch once."""

    def test_limits_and_a_restart(
        self, numbers: SparkSession, folder: Folder, tmp_path: Path
    ) -> None:
        """Micro-batches have as many rows as they may; the next run goes on."""
        stream = Stream(numbers, folder, tmp_path)
        query = stream.run(maxRowsPerTrigger=100)
        assert [p["numInputRows"] for p in query.recentProgress] == [100, 100, 100, 51]
        assert sorted(written(stream.target)) == ALL
        assert stream.offsets()[-1] == {
            "v": 1,
            "lastRead": {"orders": {"0": "249", "1": "99"}, "refunds": {"0": "0"}},
        }
        folder.append("orders/1", [7])
        folder.append("orders/2", [8, 9])
        stream.run(maxRowsPerTrigger=100)
        assert written(stream.target)[len(ALL) :] == [7, 8, 9]
        assert stream.offsets()[-1]["startAfter"] == {"orders": {"2": "-1"}}

    def test_the_progress_tells_what_is_left(
        self, numbers: SparkSession, folder: Folder, tmp_path: Path
    ) -> None:
        """Where topics end, and how many rows wait."""
        query = Stream(numbers, folder, tmp_path).run(maxRowsPerTrigger=300)
        first = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
        assert first["latest"]["orders"] == {"0": "249", "1": "99"}
        left = first["backlogEntries"]
        assert sum(left["orders"].values()) + left["refunds"]["0"] == len(ALL) - 300

    def test_a_checkpoint_of_another_version(
        self, numbers: SparkSession, folder: Folder, tmp_path: Path
    ) -> None:
        """It is refused, in the system's own error."""
        stream = Stream(numbers, folder, tmp_path)
        stream.run()
        file = tmp_path / "checkpoint" / "offsets" / "0"
        (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink(missing_ok=True)
        text = file.read_text()
        assert '"v": 1' in text
        file.write_text(text.replace('"v": 1', '"v": 2'))
        with pytest.raises(Exception, match=r"NUMBERS_CHECKPOINT.*numbers-spark reads"):
            stream.run()


def test_errors_are_the_systems_own(folder: Folder) -> None:
    """They can be caught where no Spark is in between."""
    with pytest.raises(OptionError, match="folder is required"):
        NumberDataSource({}).reader(NumberDataSource({}).schema())
    source = NumberDataSource({"folder": str(folder.path)})
    schema = source.schema()
    schema.add("number", "long")
    with pytest.raises(SchemaError, match="`number` comes twice"):
        source.reader(schema)
    assert "pulsar_spark" not in NumberDataSource.__module__


def test_it_stands_on_nothing_of_pulsar() -> None:
    """Whoever imports what is shared imports no package of a messaging system."""
    import subprocess

    code = (
        "import sys; import tests.spark_topics.spark.number_source;"
        " print(sorted(m for m in sys.modules if m.startswith('pulsar_spark')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
        text=True,
        timeout=120,
    )
    assert found.stdout.strip() == "[]"
