# SPDX-License-Identifier: Apache-2.0
"""Copy a topic into Parquet files, without messages whose key came a short time before.

python examples/drop_duplicates.py my-topic folder [pulsar://host:6650]

A producer that sends again after a crash leaves such messages. So each message has to
have a key of its own, such as the number of an order. Spark remembers the keys that it
read in the last ten minutes in its state, also across restarts, and those of a run that
goes on. Messages without a key all stay.
"""

from __future__ import annotations

import os
import sys

import pulsar_spark


def main(topic: str, folder: str, service_url: str) -> None:
    """Copy the stored messages; the next run goes on from the checkpoint."""
    spark = pulsar_spark.session()
    messages = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    keyless = "CASE WHEN __key IS NULL THEN __messageId END"
    query = (
        messages.selectExpr(
            "*",
            "CAST(__key AS STRING) AS key",
            f"{keyless} AS keyless",
            # By publish time a message could be too old, and be left out.
            "current_timestamp() AS read_time",
        )
        .withWatermark("read_time", "10 minutes")
        .dropDuplicatesWithinWatermark(["key", "keyless"])
        .drop("keyless", "read_time")
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{spark.read.parquet(f'{folder}/rows').count()} different rows of {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
