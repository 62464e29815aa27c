# SPDX-License-Identifier: Apache-2.0
r"""Streaming queries from a topic, in a Spark of their own, which a test may kill.

    python -m siblings.tubemq.tests.real.job \
        '{"folder": "", "options": {}, "sink": null}'

Each goes to JSON files, which take a micro-batch once, or to another topic. What it
leaves is read by ``tests.support.streaming.Query``. While there is a file ``hold`` in
its folder, the tasks of a query stop at their next row: ``held`` says so.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.support.session import start_spark
from tests.support.streaming import end_with_parent

#: Tasks are tried four times: Python workers are killed.
MASTER = "local[2,4]"


def start(spark: SparkSession, given: dict[str, Any]) -> Any:
    """Start a query, or go on with it."""
    folder = Path(given["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    hold, held = folder / "hold", folder / "held"

    @f.udf("bigint")
    def number(value: bytes) -> int:
        if hold.exists():
            held.touch()
            while hold.exists():
                time.sleep(0.02)
        return int(value.split(b" ", 1)[0])

    rows = (
        spark.readStream.format("tubemq")
        .options(**given["options"])
        .load()
        .select(f.col("__partition").alias("part"), number("value").alias("number"))
    )
    sink = given["sink"]
    if sink is None:
        writer = rows.writeStream.format("json").option("path", str(folder / "rows"))
    else:
        text = rows.select(f.col("number").cast("string").alias("value"))
        writer = text.writeStream.format("tubemq").options(**sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def main(*specifications: str) -> None:
    """Run queries until they end."""
    may_go = end_with_parent()
    small = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    spark = start_spark(Path.cwd(), small, master=MASTER)
    may_go.wait()
    for query in [start(spark, json.loads(one)) for one in specifications]:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
