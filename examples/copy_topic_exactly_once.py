# SPDX-License-Identifier: Apache-2.0
"""Copy a topic into another one, each row exactly once, also if this is killed.

python examples/copy_topic_exactly_once.py from to checkpoint-folder [pulsar://host:6650]

Run it as often as you like: each run goes on where the last one ended.
"""

from __future__ import annotations

import os
import sys

import pulsar_spark

METADATA = ["__key", "__eventTime", "__messageProperties", "__tombstone"]


def main(source: str, target: str, checkpoint: str, service_url: str) -> None:
    """Copy the stored rows in micro-batches, and end. The source must exist."""
    spark = pulsar_spark.session()
    rows = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "10000")
        .option("metadataColumns", ",".join(METADATA))
        .load()
    )
    # A copy of columns has their schema, too; bytes, as of PROTOBUF, have none there.
    is_typed = rows.drop(*METADATA).dtypes != [("value", "binary")]
    schema = {"schemaTopic": source} if is_typed else {}
    query = (
        rows.withColumn("__key", rows["__key"].cast("string"))  # our keys are text
        .writeStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .options(**schema)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(f"{copied} new rows copied to {target}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
