# SPDX-License-Identifier: Apache-2.0
"""Show the latest message of each key, without keys that were deleted.

python examples/latest_state.py my-topic [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions

import pulsar_spark


def main(topic: str, service_url: str) -> None:
    """Works for topics with and without a schema, compacted or not.

    The messages of a key have to be in one topic partition. A topic that got more of
    them may have keys in two, and the state shown of such a key may be an older one.
    """
    spark = pulsar_spark.session()
    rows = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("metadataColumns", "__key,__position,__tombstone")
        .load()
    )
    fields = [name for name in rows.columns if not name.startswith("__")]
    newest = functions.max_by(functions.struct(*fields, "__tombstone"), "__position")
    latest = (
        rows.filter("__key IS NOT NULL")
        .groupBy(functions.col("__key").cast("string").alias("key"))
        .agg(newest.alias("newest"))
        .filter("NOT newest.__tombstone")
        .select("key", *(f"newest.{name}" for name in fields))
    )
    latest.orderBy("key").show()
    print(f"{latest.count()} keys of {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:2], *(sys.argv[2:] or [url]))
