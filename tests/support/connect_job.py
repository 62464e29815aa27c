# SPDX-License-Identifier: Apache-2.0
"""A program on Spark Connect, as a user would write it. It sees no checkout.

Arguments: the service URL, a source and a sink, and a folder. It reads the source,
writes its rows to the sink, and has a stream write them there once more; the values
that the read gave go to ``<folder>/read``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(service_url: str, source: str, sink: str, folder: str) -> None:
    """Reads, writes, and streams."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    rows = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("metadataColumns", "__partition")
        .load()
        .selectExpr("concat(__partition, ':', CAST(value AS STRING)) AS value")
    )
    values = [row["value"] for row in rows.collect()]
    kind = type(spark).__module__
    Path(folder, "read").write_text(json.dumps({"session": kind, "values": values}))
    # Formats that a program makes known are the same; one helper is for both sessions.
    import pulsar_spark

    again = pulsar_spark.use(spark).read.format("pulsar-py")
    options = {"service.url": service_url, "topic": source}
    assert again.options(**options).load().count() == len(values)
    (
        rows.write.format("pulsar")
        .mode("append")
        .option("service.url", service_url)
        .option("topic", sink)
        .save()
    )
    query = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("metadataColumns", "__partition")
        .load()
        .selectExpr("concat('stream ', __partition, ':', CAST(value AS STRING)) value")
        .writeStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", sink)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(Path(folder, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
