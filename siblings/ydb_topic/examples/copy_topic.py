# SPDX-License-Identifier: Apache-2.0
"""Write rows to a YDB topic, and copy it into another one, each row once.

python siblings/ydb_topic/examples/copy_topic.py from to checkpoint-folder [grpc://host:2136/database]

Both topics must exist. Where a token is needed, YDB_TOKEN_FILE names the file that has
it, on each node. Each run writes a hundred rows more, and copies what is not copied.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

ROWS = 100


def main(source: str, target: str, checkpoint: str, url: str) -> None:
    """Write, copy what is there now, and read the copy."""
    spark = SparkSession.builder.appName("copy a topic of YDB").getOrCreate()
    ydb = {"url": url}
    if "YDB_TOKEN_FILE" in os.environ:
        ydb["auth.token"] = "file:" + os.environ["YDB_TOKEN_FILE"]

    orders = spark.range(ROWS).selectExpr(
        "to_json(struct(id, id * 10 AS price)) AS data",
        "map('origin', cast('example' AS binary)) AS metadata_items",
    )
    orders.write.format("ydb_topic").options(**ydb, topic=source).mode("append").save()

    rows = (
        spark.readStream.format("ydb_topic")
        .options(**ydb, topic=source, startingOffsets="earliest")
        .load()
    )
    query = (
        rows.select("data", "created_at", "metadata_items")
        .writeStream.format("ydb_topic")
        .options(**ydb, topic=target, deliveryGuarantee="idempotent")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = sum(batch["numInputRows"] for batch in query.recentProgress)
    count = spark.read.format("ydb_topic").options(**ydb, topic=target).load().count()
    print(f"{copied} new rows copied to {target}, which has {count}")


if __name__ == "__main__":
    url = os.environ.get("YDB_ENDPOINT", "grpc://localhost:2136/local")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
