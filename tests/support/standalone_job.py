# SPDX-License-Identifier: Apache-2.0
"""A driver on a standalone cluster, as a user would write it. It sees no checkout.

Arguments: the master's URL, and a JSON object::

    {"service_url": ..., "folder": ...,
     "read": topic,                     counts its rows into <folder>/read
     "write": topic,                    writes the numbers 0 to <rows> to it
     "copy": [topic, topic],            a stream from one to the other, exactly once
     "gate": number}                    a task that comes to this row waits for its end

What there is of these is done in this order.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(master: str, text: str) -> None:
    """Does what it is told."""
    job = json.loads(text)
    small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", small)
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", small)
        .config("spark.sql.shuffle.partitions", "2")
        # No task before both workers are there; then each goes to the one that is free.
        .config("spark.cores.max", "2")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "240s")
        .config("spark.locality.wait", "0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    folder = Path(job["folder"])
    if topic := job.get("read"):
        (folder / "read").write_text(json.dumps(read(spark, job, topic)))
    if topic := job.get("write"):
        write(spark, job, topic)
    if topics := job.get("copy"):
        copy(spark, job, *topics)
    spark.stop()


def read(spark: SparkSession, job: dict[str, Any], topic: str) -> dict[str, Any]:
    """All rows of a topic, and where the tasks that read them have run."""
    here = udf(where)
    rows = (
        spark.read.format("pulsar")
        .option("service.url", job["service_url"])
        .option("topic", topic)
        .option("metadataColumns", "__partition")
        .option("pulsar.client.statsIntervalSeconds", "1")
        .load()
        .selectExpr("__partition AS part", "CAST(value AS STRING) AS number")
        .withColumn("where", here(col("number")))
        .collect()
    )
    places = [json.loads(place) for place in {row["where"] for row in rows}]
    return {
        "rows": [f"{row['part']}:{row['number']}" for row in rows],
        "folders": sorted({place["folder"] for place in places}),
        "packages": sorted({place["package"] for place in places}),
    }


def where(_: str) -> str:
    """Of a task: the folder of its executor, and where the package was found."""
    import pulsar_spark

    return json.dumps({"folder": os.getcwd(), "package": pulsar_spark.__file__})


def write(spark: SparkSession, job: dict[str, Any], topic: str) -> None:
    """Numbers, by two tasks."""
    (
        spark.range(0, job["rows"], 1, 2)
        .selectExpr("CAST(id AS STRING) AS value", "CAST(id % 7 AS STRING) AS __key")
        .write.format("pulsar")
        .mode("append")
        .option("service.url", job["service_url"])
        .option("topic", topic)
        .save()
    )


def copy(spark: SparkSession, job: dict[str, Any], source: str, sink: str) -> None:
    """What there is in one topic into another, each row exactly once."""
    checkpoint = str(Path(job["folder"]) / "checkpoint")
    rows = (
        spark.readStream.format("pulsar")
        .option("service.url", job["service_url"])
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", str(job["rows_per_trigger"]))
        .option("pulsar.client.statsIntervalSeconds", "1")
        .option("metadataColumns", "__partition")
        .load()
        .selectExpr("__partition AS part", "CAST(value AS STRING) AS number")
    )
    query = (
        through_gate(rows, job)
        .selectExpr("concat(part, ':', number) AS value", "CAST(part AS STRING) __key")
        .writeStream.format("pulsar")
        .option("service.url", job["service_url"])
        .option("topic", sink)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def through_gate(rows: DataFrame, job: dict[str, Any]) -> DataFrame:
    """The same rows, but the task that first comes to one of them goes no further."""
    if "gate" not in job:
        return rows
    number, gate = str(job["gate"]), Path(job["folder"]) / "gate"

    def wait(value: str) -> str:
        if value == number:
            try:
                with gate.open("x") as file:
                    file.write(os.getcwd())
            except FileExistsError:
                return value
            time.sleep(3600)
        return value

    return rows.withColumn("number", udf(wait)(col("number")))


if __name__ == "__main__":
    main(*sys.argv[1:])
