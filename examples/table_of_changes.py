# SPDX-License-Identifier: Apache-2.0
"""Show the present rows of a table from the topic of its Debezium changes.

python examples/table_of_changes.py my-topic [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql.functions import expr

import pulsar_spark


def main(topic: str, service_url: str) -> None:
    """Keep the last change of each key, without the deleted keys."""
    spark = pulsar_spark.session()

    changes = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("metadataColumns", "__position")  # which change was the last one
        .load()
    )

    changes.printSchema()
    table = (
        changes.filter("value IS NOT NULL")  # a tombstone only says it once more
        .groupBy("key")
        .agg(expr("max_by(value.after, __position)").alias("row"))
        .filter("row IS NOT NULL")
        .select("row.*")
    )
    table.show()
    print(f"{table.count()} rows by {changes.count()} messages of {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:2], *(sys.argv[2:] or [url]))
