# SPDX-License-Identifier: Apache-2.0
"""The driver of the soak: one stream from topic to topic, exactly once.

Its argument is a JSON object: ``folder``, ``master``, ``read`` and ``write`` (options).
It does what the file ``order`` says, and says in ``state`` what it does: ``run`` has
the query run, and started again on its checkpoint whenever it fails; ``rest`` has it
stopped. How a query failed becomes a line of the file ``failures``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.session import SHORT_LIVED, start_spark
from tests.support.streaming import end_with_parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How often it looks for an order, in seconds.
LOOK_S = 0.2

#: Of Spark. Executors are killed, and links cut, more often than tasks fail elsewhere.
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED["spark.driver.extraJavaOptions"],
    "spark.cores.max": "2",
    "spark.task.maxFailures": "8",
    "spark.locality.wait": "0",
}


def main(text: str) -> None:
    """Follow orders until the process that gives them ends."""
    job = json.loads(text)
    folder = Path(job["folder"])
    may_go = end_with_parent()
    spark = start_spark(Path.cwd(), CONF, master=job["master"])
    may_go.wait()
    query: StreamingQuery | None = None
    while True:
        order = (folder / "order").read_text()
        if query is not None and not query.isActive:
            note_failure(folder, str(query.exception()))
            query = None
        if order == "run" and query is None:
            query = start(spark, job, folder)
        elif order == "rest" and query is not None:
            query.stop()
            query = None
        say(folder / "state", order)
        time.sleep(LOOK_S)


def start(spark: SparkSession, job: dict[str, Any], folder: Path) -> StreamingQuery:
    """Start the query, or go on with it."""
    return (
        spark.readStream.format("pulsar")
        .options(**job["read"])
        .load()
        .selectExpr("value", "__key")
        .writeStream.format("pulsar")
        .options(**job["write"])
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def note_failure(folder: Path, text: str) -> None:
    """Write down how a query has failed."""
    condition = re.search(r"PULSAR_[A-Z_]+", text)
    failure = {
        "at": time.time(),
        "condition": condition[0] if condition else first_line(text),
        "text": text,
    }
    with (folder / "failures").open("a") as file:
        file.write(json.dumps(failure) + "\n")


def first_line(text: str) -> str:
    """What a failure of Spark's begins with."""
    found = re.search(r"\[([A-Z_.]+)\]", text)
    return found[1] if found else text.strip().split("\n", 1)[0][:100]


def say(path: Path, text: str) -> None:
    """Write a file at once."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
