# SPDX-License-Identifier: Apache-2.0
"""Write rows to a topic, keys and properties included.

python examples/write_topic.py my-topic [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

import pulsar_spark


def main(topic: str, service_url: str) -> None:
    """Write a thousand orders. A topic that does not exist is left to the broker."""
    spark = pulsar_spark.session()
    orders = spark.range(1000).selectExpr(
        "to_json(struct(id, id % 7 AS customer)) AS value",
        "CONCAT('customer-', id % 7) AS __key",  # one customer's orders stay in order
        "current_timestamp() AS __eventTime",
        "map('source', 'example') AS __messageProperties",
    )
    (
        orders.write.format("pulsar")
        .mode("append")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("pulsar.producer.compressionType", "ZSTD")
        .save()
    )
    print(f"1000 orders written to {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(sys.argv[1], *(sys.argv[2:] or [url]))
