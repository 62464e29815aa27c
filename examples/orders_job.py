# SPDX-License-Identifier: Apache-2.0
"""Write the totals of orders by country as Parquet. Its test: test_orders_job.py.

python examples/orders_job.py public/default/orders totals [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession, functions

import pulsar_spark


def totals(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the sum of ``cents`` of each country in a topic with a schema."""
    orders = spark.read.format("pulsar").options(**options).load()
    return orders.groupBy("country").agg(functions.sum("cents").alias("cents"))


def main(topic: str, folder: str, service_url: str) -> None:
    """Write the totals of a topic into a folder."""
    spark = pulsar_spark.session()
    options = {"service.url": service_url, "topic": topic}
    totals(spark, options).write.mode("overwrite").parquet(folder)
    spark.read.parquet(folder).orderBy("country").show()


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
