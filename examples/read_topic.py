# SPDX-License-Identifier: Apache-2.0
"""Read a whole topic.

python examples/read_topic.py my-topic [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col


def main(topic: str, service_url: str) -> None:
    """Show the schema, the first rows and the number of rows."""
    spark = SparkSession.builder.appName("read a topic").getOrCreate()

    rows = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .load()
    )

    rows.printSchema()
    rows.select(
        col("value").cast("string"),
        col("__key").cast("string"),
        "__publishTime",
        "__eventTime",
    ).show(5, truncate=40)
    print(f"{rows.count()} rows in {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:2], *(sys.argv[2:] or [url]))
