# SPDX-License-Identifier: Apache-2.0
"""Read all topics that match a pattern, and of each row only some columns.

python examples/read_pattern_with_metadata.py 'public/default/.*' [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions as f

import pulsar_spark


def main(pattern: str, service_url: str) -> None:
    """Show how much each producer wrote to each topic partition."""
    spark = pulsar_spark.session()

    # The schema names the columns wanted; the others are not even built. Without it,
    # .option("metadataColumns", "__topic,...") says what comes beside `value`.
    rows = (
        spark.read.format("pulsar")
        .schema(
            "__topic STRING, __producerName STRING, __publishTime TIMESTAMP,"
            " value BINARY"
        )
        .option("service.url", service_url)
        .option("topicsPattern", pattern)
        .load()
    )

    (
        rows.groupBy("__topic", "__producerName")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.length("value")).alias("bytes"),
            f.max("__publishTime").alias("newest"),
        )
        .orderBy("__topic", "__producerName")
        .show(100, truncate=False)
    )


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:2], *(sys.argv[2:] or [url]))
