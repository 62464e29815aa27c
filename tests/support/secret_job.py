# SPDX-License-Identifier: Apache-2.0
"""A job with secrets in its options that prints whatever Spark and we can print.

It reads one JSON object from its input, so that no secret is among its arguments::

    {"folder": ..., "master": ..., "source": topic, "sink": topic, "sql": {...},
     "right": {"read": {...}, "write": {...}, "stream": {...}}, "wrong": likewise}

Those in braces are options; the master is Spark's.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.session import start_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

#: Pages of the UI, below its address and below its API.
PAGES = ("jobs/", "stages/", "SQL/", "environment/", "StreamingQuery/")
CALLS = ("sql?details=true&planDescription=true", "environment", "stages?details=true")


def main() -> None:
    """Succeed at a batch read, a batch write and a stream, then fail at each."""
    job = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.INFO)
    folder = Path(job["folder"])
    (folder / "events").mkdir()
    spark = start_spark(
        folder,
        {
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.executor.syncLogLevel.enabled": "true",
            "spark.executor.memory": "512m",
        },
        master=job["master"],
        log_level="DEBUG",
    )
    for name in ("right", "wrong"):
        for act in (read, write, stream):
            options = job[name][act.__name__]
            attempt(act, spark, job, options, folder / f"{name}-checkpoint")
    spark.sparkContext.setLogLevel("INFO")  # DEBUG shows the text of each statement
    sql(spark, job)
    show_pages(spark)
    spark.stop()


def attempt(act: Callable[..., None], *arguments: Any) -> None:
    """Do it, and print how it failed, in every form."""
    try:
        act(*arguments)
    except Exception as error:
        show("FAILED", act.__name__, error, repr(error), error.__context__)
        traceback.print_exc()
    else:
        show("DONE", act.__name__)


def show(*what: Any) -> None:
    """Print it."""
    sys.stdout.write(" ".join(map(str, what)) + "\n")


def read(
    spark: SparkSession, job: dict[str, Any], options: dict[str, str], _: Path
) -> None:
    """A batch read, and its plans."""
    rows = spark.read.format("pulsar").options(**options).option("topic", job["source"])
    frame = rows.load()
    show(frame, repr(frame), frame._jdf.queryExecution().toString())
    for mode in ("extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    show(frame._jdf.queryExecution().logical().toJSON())
    show(frame._jdf.queryExecution().executedPlan().toJSON())
    show("rows:", frame.count())


def write(
    spark: SparkSession, job: dict[str, Any], options: dict[str, str], _: Path
) -> None:
    """A batch write."""
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("pulsar").mode("append").options(**options)
    show(writer)
    writer.option("topic", job["sink"]).save()


def stream(
    spark: SparkSession, job: dict[str, Any], options: dict[str, str], place: Path
) -> None:
    """A stream from topic to topic, its plans and its progress."""
    frame = (
        spark.readStream.format("pulsar")
        .options(**options)
        .option("topic", job["source"])
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
    )
    frame.explain(True)
    query = (
        frame.writeStream.format("pulsar")
        .options(**options)
        .option("topic", job["sink"])
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(300)
    finally:
        query.explain(True)
        show(query.status, query.exception())
        show(*(one.json for one in query.recentProgress))


def sql(spark: SparkSession, job: dict[str, Any]) -> None:
    """A view, whose text holds the options."""
    given = job["sql"] | {"topic": job["source"]}
    texts = ", ".join(f"`{name}` r'{value}'" for name, value in given.items())
    spark.sql(f"CREATE TEMPORARY VIEW orders USING pulsar OPTIONS ({texts})")
    spark.sql("SELECT count(*) FROM orders").show()
    spark.sql("EXPLAIN EXTENDED SELECT * FROM orders").show(truncate=False)


def show_pages(spark: SparkSession) -> None:
    """Print what the UI shows."""
    url = spark.sparkContext.uiWebUrl
    api = f"api/v1/applications/{spark.sparkContext.applicationId}/"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    executions = [f"SQL/execution/?id={number}" for number in range(6)]
    for page in (*PAGES, *executions, *(api + call for call in CALLS)):
        try:
            with opener.open(f"{url}/{page}", timeout=60) as answer:
                show("PAGE", page, answer.read().decode())
        except OSError as error:  # some have no such execution
            show("NO PAGE", page, error)


if __name__ == "__main__":
    main()
