# SPDX-License-Identifier: Apache-2.0
"""Copy a topic into Parquet files, and go on where the last run ended.

python examples/stream_topic.py my-topic folder [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pulsar_spark


def main(topic: str, folder: str, service_url: str) -> None:
    """Read the stored rows in micro-batches, and end.

    Without the trigger it would go on for ever.
    """
    spark = pulsar_spark.session()
    rows = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "10000")
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    new = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(f"{new} new rows of {topic}")
    if Path(folder, "rows").exists():
        print(f"{spark.read.parquet(f'{folder}/rows').count()} rows in {folder}/rows")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
