# SPDX-License-Identifier: Apache-2.0
"""Copy what fits a topic's schema to files, and the rest to a topic of dead letters.

python examples/dead_letters.py my-topic dead-topic folder [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame

import pulsar_spark

BAD = "_corrupt_record"


def main(topic: str, dead_topic: str, folder: str, service_url: str) -> None:
    """Read the stored messages; the next run goes on from the checkpoint."""
    spark = pulsar_spark.session()
    messages = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("mode", "PERMISSIVE")  # a bad value is in _corrupt_record, as it came
        .option("metadataColumns", "__key,__topic,__position")
        .load()
    )

    def split(rows: DataFrame, batch_id: int) -> None:
        rows = rows.persist()
        good = rows.filter(f"{BAD} IS NULL").drop(BAD)
        # A micro-batch that runs again replaces its files; its dead letters come twice.
        good.write.mode("overwrite").parquet(f"{folder}/rows/batch={batch_id}")
        place = pulsar_spark.position_text("__position")
        dead = rows.filter(f"{BAD} IS NOT NULL").withColumn("position", place)
        dead = dead.selectExpr(
            f"{BAD} AS value",
            "__key",  # as bytes: such messages may have any key
            "map('topic', __topic, 'position', position) AS __messageProperties",
        )
        writer = dead.write.format("pulsar").mode("append")
        writer.option("service.url", service_url).option("topic", dead_topic).save()
        rows.unpersist()

    writer = messages.writeStream.foreachBatch(split).trigger(availableNow=True)
    writer.option(
        "checkpointLocation", f"{folder}/checkpoint"
    ).start().awaitTermination()
    print(f"{spark.read.parquet(f'{folder}/rows').count()} rows of {topic} fit")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
