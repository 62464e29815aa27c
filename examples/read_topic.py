# SPDX-License-Identifier: Apache-2.0
"""Read a whole topic.

python examples/read_topic.py my-topic [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql.functions import col

import pulsar_spark


def main(topic: str, service_url: str) -> None:
    """Show the schema, the first rows and the number of rows."""
    spark = pulsar_spark.session()

    rows = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .load()
    )

    rows.printSchema()
    # Bytes are text in most topics. With a schema there are columns instead.
    text = ("value", "__key")
    shown = [col(n).cast("string") if n in text else col(n) for n in rows.columns]
    rows.select(shown).drop("__messageId", "__topic").show(5, truncate=40)
    print(f"{rows.count()} rows in {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:2], *(sys.argv[2:] or [url]))
