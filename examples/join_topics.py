# SPDX-License-Identifier: Apache-2.0
"""Join the messages of two topics that have the same key and come within an hour.

python examples/join_topics.py orders payments folder [pulsar://host:6650]

Messages ten minutes older than what earlier runs read of both topics are left out.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, functions

import pulsar_spark


def main(left: str, right: str, folder: str, service_url: str) -> None:
    """Write the pairs as Parquet; the next run goes on from the checkpoint."""
    spark = pulsar_spark.session()

    def messages(topic: str, name: str) -> DataFrame:
        rows = (
            spark.readStream.format("pulsar")
            .option("service.url", service_url)
            .option("topic", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        fields = [column for column in rows.columns if not column.startswith("__")]
        return rows.select(
            functions.col("__key").cast("string").alias(f"{name}_key"),
            functions.struct(*fields).alias(name),
            functions.col("__publishTime").alias(f"{name}_time"),
        ).withWatermark(f"{name}_time", "10 minutes")  # how late a message may be

    pairs = messages(left, "left").join(
        messages(right, "right"),
        functions.expr(
            "left_key = right_key AND right_time BETWEEN"
            " left_time - INTERVAL 1 HOUR AND left_time + INTERVAL 1 HOUR"
        ),
    )
    query = (
        pairs.selectExpr("left_key AS key", "left", "right", "left_time", "right_time")
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.read.parquet(f"{folder}/rows").orderBy("key").show(truncate=False)


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
