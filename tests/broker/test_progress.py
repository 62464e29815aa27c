# SPDX-License-Identifier: Apache-2.0
"""How far a batch read or write is, as the user's own process shows it."""

from __future__ import annotations

import io
import logging
import re
import threading
from typing import TYPE_CHECKING

import pytest

import pulsar_spark
from tests.spark.test_progress import Terminal
from tests.support import official
from tests.support.slow_rows import slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

RUNNING = re.compile(r"pulsar-spark: stage \d+: (\d) of 4 tasks \((\d+)%\), (\d+) rows")
OVER = re.compile(
    r"pulsar-spark: stage \d+: 4 tasks, 400 rows in [\d.]+ s, [\d,]+ rows/s\n"
)


@pytest.fixture
def rows(spark: SparkSession, admin: Admin, service_url: str, topic: str) -> DataFrame:
    """Four hundred, in four topic partitions."""
    admin.create_partitioned(topic, 4)
    for partition in range(4):
        name = f"{topic}-partition-{partition}"
        official.produce(service_url, name, [b"v"] * 100, batch=10)
    options = {"service.url": service_url, "topic": topic}
    return slow(spark.read.format("pulsar").options(**options).load())


def threads() -> list[threading.Thread]:
    """Those that show progress."""
    return [one for one in threading.enumerate() if "progress" in one.name]


def drop(rows: DataFrame) -> None:
    """Read all rows, in one stage."""
    rows.write.format("noop").mode("overwrite").save()


def test_on_a_terminal(spark: SparkSession, rows: DataFrame) -> None:
    """One line, drawn anew, that stays with what the read came to."""
    out = Terminal()
    with pulsar_spark.progress(spark, file=out):
        assert len(threads()) == 1
        drop(rows)
    assert not threads()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    *drawn, last = out.getvalue().split("\r\x1b[K")
    assert drawn
    assert OVER.fullmatch(last)
    shown = [match for match in map(RUNNING.match, drawn) if match]
    assert len(shown) == len(drawn)
    for match in shown:
        done, share, read = map(int, match.groups())
        assert share == 25 * done
        assert read <= 400
    drop(rows)
    assert out.getvalue().endswith(last), "a job behind the block was shown"


def test_of_a_write_without_a_terminal(
    rows: DataFrame,
    service_url: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing, unless it is asked for: then lines that stay; a user's group stays."""
    context = rows.sparkSession.sparkContext
    writer = rows.select("value").write.format("pulsar").mode("append")
    writer = writer.options(**{"service.url": service_url, "topic": f"{topic}-copy"})
    out = io.StringIO()
    with pulsar_spark.progress(file=out):
        writer.save()
    assert out.getvalue() == ""
    monkeypatch.setenv("PULSAR_SPARK_PROGRESS", "always")
    context.setJobGroup("mine", "of a user")
    try:
        with pulsar_spark.progress(file=out):
            writer.save()
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    *running, last = out.getvalue().splitlines(keepends=True)
    assert OVER.fullmatch(last)
    assert all(RUNNING.match(line) for line in running)
    monkeypatch.setenv("PULSAR_SPARK_PROGRESS", "never")
    silenced = Terminal()
    with pulsar_spark.progress(file=silenced):
        assert not threads()
    assert silenced.getvalue() == ""


def test_a_job_that_fails(spark: SparkSession, topic: str, service_url: str) -> None:
    """Its error is the user's, and nothing is left of the line."""
    out = Terminal()
    official.produce(service_url, topic, [b"v"] * 10)
    options = {"service.url": service_url, "topic": topic}
    rows = spark.read.format("pulsar").options(**options).load()
    with (
        pytest.raises(Exception, match="no number"),
        pulsar_spark.progress(spark, file=out),
    ):
        drop(rows.selectExpr("raise_error('no number') AS one"))
    assert not threads()
    *_, last = out.getvalue().split("\r\x1b[K")
    assert last == "" or last.endswith("\n")


def test_a_session_of_a_server(caplog: pytest.LogCaptureFixture) -> None:
    """Spark Connect has a line of its own, and no jobs here."""
    caplog.set_level(logging.WARNING)
    out = Terminal()
    with pulsar_spark.progress(object(), file=out):  # type: ignore[arg-type]
        assert not threads()
    assert out.getvalue() == ""
    assert "Spark Connect draws" in caplog.text
