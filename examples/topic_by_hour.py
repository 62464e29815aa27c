# SPDX-License-Identifier: Apache-2.0
"""Copy a topic into a table that has a folder for each hour of publish time.

python examples/topic_by_hour.py my-topic folder [parquet|delta]

PULSAR_SERVICE_URL names the broker. ``delta`` needs the package delta-spark, and its
jar on the class path of Spark.
"""

from __future__ import annotations

import os
import sys

import pulsar_spark

URL = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")


def main(topic: str, folder: str, table_format: str = "parquet") -> None:
    """Copy the stored messages; the next run goes on from the checkpoint."""
    spark = pulsar_spark.session()
    messages = (
        spark.readStream.format("pulsar")
        .option("service.url", URL)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "1000000")
        .load()
    )
    by_hour = messages.selectExpr(
        "*", "DATE(__publishTime) AS day", "HOUR(__publishTime) AS hour"
    )
    query = (
        by_hour.writeStream.format(table_format)
        .partitionBy("day", "hour")
        .option("path", f"{folder}/table")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # processingTime="1 minute" goes on for ever
        .start()
    )
    query.awaitTermination()
    table = spark.read.format(table_format).load(f"{folder}/table")
    table.groupBy("day", "hour").count().orderBy("day", "hour").show()


if __name__ == "__main__":
    main(*sys.argv[1:])
