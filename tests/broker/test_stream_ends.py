# SPDX-License-Identifier: Apache-2.0
"""Streams with ``endingOffsets`` and ``endingTime``, on a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import end_offsets
from tests.broker.test_stream_faults import restless as restless
from tests.support import official
from tests.support.driven_query import Query
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

PATIENCE_S = 120


class Rounds:
    """A query that is started again and again from its checkpoint, without Spark."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._options = query.options

    @property
    def sizes(self) -> list[int]:
        """How many rows each micro-batch of the last round had."""
        return self._query.sizes

    def run(self, **options: str) -> list[int]:
        """Run it to its end, and return all numbers of this round."""
        self._query.rows.clear()
        self._query.sizes.clear()
        self._query.options = self._options | options
        self._query.run()
        return [number for found in self._query.rows.values() for number in found]


class SparkRounds:
    """As above, with Spark.

    Attributes:
        rows: The numbers that each micro-batch of the last round had.
    """

    def __init__(
        self, spark: SparkSession, url: str, topic: str, checkpoint: Path
    ) -> None:
        self.rows: list[list[int]] = []
        self._spark = spark
        self._options = {"service.url": url, "topic": topic}
        self._checkpoint = checkpoint

    def start(self, trigger: dict[str, Any], **options: str) -> Any:
        """Start it."""
        self.rows = []

        def take(frame: DataFrame, _: int) -> None:
            self.rows.append([int(row["value"].decode()) for row in frame.collect()])

        given = {**self._options, "startingOffsets": "earliest", **options}
        rows = self._spark.readStream.format("pulsar").options(**given).load()
        writer = rows.writeStream.foreachBatch(take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self._checkpoint)).start()

    def run(self, **options: str) -> list[int]:
        """Run it to its end, and return all numbers of this round."""
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(PATIENCE_S)
        return [number for batch in self.rows for number in batch]


@pytest.fixture
def rounds(service_url: str, topic: str) -> Rounds:
    """A query of the topic."""
    return Rounds(Query(service_url, topic=topic))


@pytest.fixture
def spark_rounds(
    spark: SparkSession, service_url: str, topic: str, tmp_path: Path
) -> SparkRounds:
    """A query of the topic, with Spark."""
    return SparkRounds(spark, service_url, topic, tmp_path / "checkpoint")


@pytest.fixture
def send(service_url: str, topic: str) -> Callable[..., None]:
    """Send numbers, in batches of some size, perhaps to a partition."""

    def send_numbers(first: int, last: int, batch: int = 10, name: str = topic) -> None:
        values = [b"%d" % number for number in range(first, last)]
        official.produce(service_url, name, values, batch=batch)

    return send_numbers


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.matrix), 10])
def test_ends_that_move_on(
    rounds: Rounds,
    send: Callable[..., None],
    service_url: str,
    topic: str,
    batch: int,
) -> None:
    """Each row is in one round, with ends in the middle of batches, and limits."""
    send(0, 100, batch)
    ids = [row.position for row in official.read_back(service_url, topic)]
    read = 0
    for last in (34, 71):
        ending = json.dumps({topic: ids[last]})
        assert rounds.run(endingOffsets=ending, maxRowsPerTrigger="20") == [
            *range(read, last + 1)
        ]
        assert batch > 1 or max(rounds.sizes, default=0) <= 20
        read = last + 1
    # An end that was passed is one where nothing is left.
    assert rounds.run(endingOffsets=json.dumps({topic: ids[34]})) == []
    assert rounds.run() == [*range(read, 100)]


def test_an_end_for_each_partition(
    rounds: Rounds,
    send: Callable[..., None],
    service_url: str,
    admin: Admin,
    topic: str,
) -> None:
    """Also where a partition is empty, or has no end."""
    admin.create_partitioned(topic, 3)
    for partition in range(2):
        first = 100 * partition
        send(first, first + 30, name=f"{topic}-partition-{partition}")
    ends = json.loads(end_offsets({"service.url": service_url, "topic": topic}).ending)
    for partition in range(3):
        first = 100 * partition + 30
        send(first, first + 5, name=f"{topic}-partition-{partition}")
    assert sorted(rounds.run(endingOffsets=json.dumps(ends))) == [
        *range(30),
        *range(100, 130),
    ]
    assert ends.pop("*") == "earliest"
    ((name, partitions),) = ends.items()
    del partitions["2"]
    assert rounds.run(endingOffsets=json.dumps({name: partitions})) == [
        *range(230, 235)
    ]
    assert sorted(rounds.run()) == [*range(30, 35), *range(130, 135)]


def test_a_partition_that_comes_later(
    rounds: Rounds,
    send: Callable[..., None],
    service_url: str,
    admin: Admin,
    topic: str,
) -> None:
    """It is behind the ends that were asked for before."""
    admin.create_partitioned(topic, 1)
    send(0, 30)
    ends = end_offsets({"service.url": service_url, "topic": topic})
    admin.update_partitions(topic, 2)
    send(30, 50, name=f"{topic}-partition-1")
    assert sorted(rounds.run(endingOffsets=ends.ending)) == [*range(30)]
    assert sorted(rounds.run(endingOffsets=ends.ending)) == []
    assert sorted(rounds.run()) == [*range(30, 50)]


def test_a_time(spark_rounds: SparkRounds, send: Callable[..., None]) -> None:
    """Up to the entry before the first one that was published later."""
    send(0, 50)
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    send(50, 80)
    assert spark_rounds.run(endingTime=str(between_ms)) == [*range(50)]
    assert spark_rounds.run() == [*range(50, 80)]


def test_a_time_that_is_yet_to_come(
    service_url: str, topic: str, send: Callable[..., None]
) -> None:
    """A query that runs on has what is published until then, and nothing later."""
    send(0, 20)
    end_ms = int(time.time() * 1000) + 3000
    with Query(service_url, topic=topic, endingTime=str(end_ms)) as query:
        query.drain()
        assert query.rows == {topic: [*range(20)]}
        send(20, 40)
        in_time = 40 if time.time() * 1000 < end_ms else 20
        await_true(lambda: time.time() * 1000 > end_ms, "the time")
        send(40, 60)
        await_true(
            lambda: not query.trigger() and len(query.rows[topic]) >= in_time,
            "what came in time",
        )
        assert query.rows[topic][:in_time] == [*range(in_time)]
        assert 40 not in query.rows[topic]
    del query.options["endingTime"]
    query.run()
    assert query.rows == {topic: [*range(60)]}


def test_a_running_query_stays_at_its_end(
    spark_rounds: SparkRounds,
    send: Callable[..., None],
    service_url: str,
    topic: str,
) -> None:
    """It goes on without rows, whatever comes."""
    send(0, 30)
    ends = end_offsets({"service.url": service_url, "topic": topic})
    trigger = {"processingTime": "0 seconds"}
    query = spark_rounds.start(trigger, endingOffsets=ends.ending)
    try:
        query.processAllAvailable()
        send(30, 60)
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert [number for batch in spark_rounds.rows for number in batch] == [*range(30)]
