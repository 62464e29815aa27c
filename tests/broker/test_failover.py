# SPDX-License-Identifier: Apache-2.0
"""Two clusters, the first of which is killed while jobs that may go on are at work.

Two real brokers that know nothing of each other: what is in the one is what was written
there. The one that was killed is started again in the end, for what it had stored.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import official
from tests.support.admin import Admin
from tests.support.embedded_broker import EmbeddedBroker
from tests.support.session import environment
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

TOPIC = "persistent://public/default/rows"

#: Writes rows, the last ones when a file is there, and reads the topic then.
JOB = """
import os, sys, time
from pyspark.sql import SparkSession

url, others, topic, may_end = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    .config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    .getOrCreate()
)
options = {
    "service.url": url, "pulsar.client.serviceUrlProvider": others, "topic": topic
}

def slowly(number):
    time.sleep(0.001)
    until = time.monotonic() + 120
    while number % 4000 >= 3000 and not os.path.exists(may_end):
        assert time.monotonic() < until, f"there is no {may_end}"
        time.sleep(0.01)
    # Spark hands rows on when there are 64 KiB of them.
    return (str(number).ljust(500),)

numbers = spark.sparkContext.range(0, 8000, 1, 2).map(slowly)
rows = spark.createDataFrame(numbers, "value STRING")
rows.write.format("pulsar").mode("append").options(**options).save()
for row in spark.read.format("pulsar").options(**options).load().collect():
    print(bytes(row.value).decode())
spark.stop()
"""


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


def test_rows_are_in_one_or_the_other(
    clusters: tuple[EmbeddedBroker, EmbeddedBroker],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """A batch write goes on at the second cluster, and a read begins there.

    Then a stream that writes does likewise; it is at the first one before. No row that
    was to be written is in neither.
    """
    blue, green = clusters
    given = options(blue, green)
    script, may_end = tmp_path / "job.py", tmp_path / "may-end"
    script.write_text(JOB)
    with subprocess.Popen(
        [sys.executable, script, *given.values(), may_end],
        env=environment(),
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as job:
        await_true(
            lambda: len(stored(blue)) > 500 or job.poll() is not None, "rows", pause=0.3
        )
        kill(blue)
        may_end.touch()
        read, said = job.communicate(timeout=120)
    assert job.returncode == 0, said
    there = stored(green)
    assert {int(line) for line in read.split()} == there, "the second one was read"
    told = f"{blue.service_url} cannot be reached for 1 s: {green.service_url} is used"
    assert f"{told} instead. Topics are copied there with a delay" in said
    assert f"{told} instead. Rows without a receipt go there" in said
    start_again(blue)
    here = stored(blue)
    assert 500 < len(here) < 8000
    assert here | there == set(range(8000))

    query = start_stream(spark, given, tmp_path)
    try:
        await_true(
            lambda: max(stored(blue), default=0) >= 10**6 + 500, "rows", pause=0.3
        )
        kill(blue)
        await_true(lambda: max(stored(green)) >= 10**6 + 2000, "rows there", pause=0.3)
        assert query.isActive, str(query.exception())
    finally:
        query.stop()
    start_again(blue)
    done = committed(tmp_path / "checkpoint")
    assert done
    assert stored(blue) | stored(green) >= set(range(10**6, 10**6 + done))


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
