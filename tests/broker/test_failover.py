# SPDX-License-Identifier: Apache-2.0
"""Two clusters, the first of which is killed.

Two real brokers that know nothing of each other: what is in the one is what was written
there. The one that was killed is started again in the end, for what it had stored.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import official
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

TOPIC = "persistent://public/default/rows"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """Two clusters, blue and green, with a topic alike."""
    blue, green = (
        EmbeddedBroker(tmp_path / name, {"clusterName": name})
        for name in ("blue", "green")
    )
    with blue, green:
        for one in (blue, green):
            admin = Admin(one.admin_url)
            admin.set_retention("public/default", minutes=-1, size_mb=-1)
            admin.create_partitioned(TOPIC, 2)
        yield blue, green


def options(blue: EmbeddedBroker, green: EmbeddedBroker) -> dict[str, str]:
    """Where a job writes to."""
    others = {"secondary": [green.service_url], "failoverDelayMs": 1000}
    return {
        "service.url": blue.service_url,
        "pulsar.client.serviceUrlProvider": json.dumps(others),
        "topic": TOPIC,
    }


def stored(broker: EmbeddedBroker) -> set[int]:
    """The numbers in the topic of a cluster."""
    rows = official.read_back(broker.service_url, TOPIC, partitions=2)
    return {int(row.value or b"") for row in rows}


def kill(broker: EmbeddedBroker) -> None:
    """Kills a broker, and with it its cluster."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)


def start_again(broker: EmbeddedBroker) -> None:
    """Starts a broker that was killed, with what it has stored."""
    broker.stop()
    broker.start()


def test_each_operation_begins_at_the_cluster_that_answers(
    clusters: tuple[EmbeddedBroker, EmbeddedBroker],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """A write, a read and a stream that writes, before and after the first one is lost.

    The query is stopped in the middle of a micro-batch, and repeats that micro-batch at
    the second cluster, so that no row is in neither.
    """
    blue, green = clusters
    given = options(blue, green)
    write(spark, given, range(100))
    assert read(spark, given) == set(range(100))
    query = start_stream(spark, given, tmp_path)
    try:
        await_true(
            lambda: max(stored(blue), default=0) >= 10**6 + 500, "rows", pause=0.3
        )
        kill(blue)
    finally:
        query.stop()
    assert not stored(green)

    write(spark, given, range(1000, 1100))
    assert read(spark, given) == set(range(1000, 1100))
    query = start_stream(spark, given, tmp_path)
    try:
        await_true(lambda: max(stored(green)) >= 10**6 + 2000, "rows there", pause=0.3)
        assert query.isActive, str(query.exception())
    finally:
        query.stop()
    start_again(blue)
    done = committed(tmp_path / "checkpoint")
    assert done
    assert stored(blue) | stored(green) >= set(range(10**6, 10**6 + done))
    write(spark, given, range(2000, 2100))
    assert stored(blue) >= set(range(2000, 2100)), "the first one is asked first"


def write(spark: SparkSession, given: dict[str, str], numbers: range) -> None:
    """Writes numbers as a batch."""
    rows = spark.range(numbers.start, numbers.stop).selectExpr(
        "CAST(id AS STRING) AS value"
    )
    rows.write.format("pulsar").mode("append").options(**given).save()


def read(spark: SparkSession, given: dict[str, str]) -> set[int]:
    """The numbers that a batch read returns."""
    rows = spark.read.format("pulsar").options(**given).load()
    return {int(bytes(row.value)) for row in rows.select("value").collect()}


#: Rows of a second, of what a stream writes.
RATE = 400


def start_stream(spark: SparkSession, given: dict[str, str], folder: Path) -> Any:
    """Writes numbers, as many in each second."""
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", RATE)
        .option("numPartitions", 2)
        .load()
        .selectExpr("CAST(value + 1000000 AS STRING) AS value")
        .writeStream.format("pulsar")
        .options(**given)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def committed(checkpoint: Path) -> int:
    """How many numbers are in the micro-batches that Spark has committed."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    seconds = (checkpoint / "offsets" / str(last)).read_text().splitlines()[-1]
    return RATE * int(seconds)
