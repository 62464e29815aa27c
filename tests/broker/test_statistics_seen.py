# SPDX-License-Identifier: Apache-2.0
"""What somebody sees who runs ``python job.py`` and has set up no logging."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import official
from tests.support.session import environment

if TYPE_CHECKING:
    from pathlib import Path

#: Reads, the last of them a while after the first, and writes: without statistics, with
#: those of the default, and of each second; then a stream from topic to topic.
JOB = """
import sys, time
import pulsar_spark
from tests.support.slow_rows import slow
from pyspark.sql import SparkSession

url, topic = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    .getOrCreate()
)
for options in {"pulsar.client.statsIntervalSeconds": "0"}, {}:
    frame = spark.read.format("pulsar").options(**options)
    rows = frame.option("service.url", url).option("topic", topic).load()
    assert rows.count() == 100
    writer = rows.select("value").write.format("pulsar").mode("append")
    writer = writer.option("service.url", url).option("topic", f"{topic}-copy")
    writer.options(**options).save()
options = {"service.url": url, "pulsar.client.statsIntervalSeconds": "1"}
rows = spark.read.format("pulsar").options(**options, topic=topic).load()
first = time.monotonic()
while time.monotonic() < first + 2:
    assert rows.count() == 100
assert rows.count() == 100
stream = spark.readStream.format("pulsar").option("startingOffsets", "earliest")
stream = stream.options(**options, topic=topic).load().select("value")
writer = stream.writeStream.format("pulsar").options(**options, topic=f"{topic}-copy")
writer = writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
writer.start().awaitTermination()
with pulsar_spark.progress(spark, show=True):
    slow(rows).write.format("noop").mode("overwrite").save()
spark.stop()
"""

FIGURES = (
    r"\d+ bytes read in .* s: .* s waiting for the broker, .* s for Spark, .* s "
    r"decoding; 0 reconnects; kernel: \w+"
)
TIME = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"
TASKS = re.compile(
    rf"{TIME} INFO pulsar_spark.spark: (\d+) tasks within .* s: (\d+) rows, {FIGURES}"
)
TASK = re.compile(
    rf"{TIME} INFO pulsar_spark.spark: persistent:.*: \d+ rows, {FIGURES}"
)
WRITE = re.compile(
    rf"{TIME} INFO pulsar_spark.spark: (write|micro-batch 0): 100 rows, \d+ bytes by 1 "
    r"tasks in \d+\.\d s, \d+ rows/s; the slowest was task 0, \d+\.\d s; 0 rows were "
    "there already; 0 reconnects"
)
#: Of tasks that write; the driver's line has the rows.
WRITING = re.compile(rf"{TIME} INFO pulsar_spark.spark: .* bytes written in .* s: .*")

#: Where reads go: of a batch read that asked for lines, and of the stream.
PLAN = re.compile(
    rf"{TIME} INFO pulsar_spark.spark: plan: 1 topic partition of persistent:\S+, "
    r"10 entries, 1 task; persistent:\S+ from \d+:0 to \d+:9:9"
)
START = re.compile(
    rf"{TIME} INFO pulsar_spark.spark: stream: begins with 1 topic partition: "
    r"persistent:\S+ after \d+:-1; subscription spark-pulsar-\S+"
)
#: The first write makes the copy's topic.
CREATED = re.compile(
    rf"{TIME} WARN pulsar_spark.sink: The topic \S+ does not exist: it is created .*"
)


@pytest.mark.matrix
def test_a_plain_job(service_url: str, topic: str, tmp_path: Path) -> None:
    """Lines about tasks no more often than asked for, and one about each write.

    Spark passes the standard error of its workers on to that of the program.
    """
    official.produce(service_url, topic, [b"v"] * 100, batch=10)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = subprocess.run(
        [sys.executable, str(job), service_url, topic],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""
    shown = [line for line in done.stderr.splitlines() if "pulsar_spark" in line]
    # One of two batch writes asked for none.
    writes = [match[1] for match in map(WRITE.fullmatch, shown) if match]
    assert writes == ["write", "micro-batch 0"], shown
    sums = [match for match in map(TASKS.fullmatch, shown) if match]
    assert all(
        int(rows) == 100 * int(tasks) for tasks, rows in (s.groups() for s in sums)
    )
    # On a slow machine a task may last for a second, and have lines of its own.
    own = [line for line in shown if TASK.fullmatch(line)]
    assert sums or own, shown
    writing = [line for line in shown if WRITING.fullmatch(line)]
    # Spark's own bar is there by default, until somebody asks for ours.
    *_, last = done.stderr.split("pulsar-spark: stage")
    assert re.match(r" \d+: 1 tasks, 100 rows in .* s", last), done.stderr[-3000:]
    assert "[Stage" not in last
    plans, starts, created = (
        [line for line in shown if pattern.fullmatch(line)]
        for pattern in (PLAN, START, CREATED)
    )
    # The first of three reads asked for no line.
    assert (len(plans), len(starts), len(created)) == (2, 1, 1), shown
    others = len(plans) + len(starts) + len(created)
    tasks = len(writing) + len(sums) + len(own)
    assert len(shown) == len(writes) + tasks + others, shown
