# SPDX-License-Identifier: Apache-2.0
"""Write the rows of Parquet files to a topic, and put rows aside that are too large.

python examples/refused_rows.py rows-folder my-topic refused-folder [pulsar://host:6650]

A single row that a broker would refuse fails a whole write. Rows up to 5 MB fit into an
entry; ``chunkingEnabled`` writes larger rows, too.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import functions

import pulsar_spark

MOST_BYTES = 5_000_000


def main(folder: str, topic: str, refused: str, service_url: str) -> None:
    """Write ``value`` as bytes, or the columns as JSON with a schema."""
    spark = pulsar_spark.session()
    rows = spark.read.parquet(folder)
    fields = [name for name in rows.columns if not name.startswith("__")]
    is_bytes = fields == ["value"]
    value = "value" if is_bytes else functions.to_json(functions.struct(*fields))
    # NULL has no length: such a row is a tombstone, and fits.
    size = functions.coalesce(functions.octet_length(value), functions.lit(0))
    fits = size <= MOST_BYTES
    schema = {} if is_bytes else {"schemaType": "json"}
    (
        rows.filter(fits)
        .write.format("pulsar")
        .mode("append")
        .option("service.url", service_url)
        .option("topic", topic)
        .options(**schema)
        .save()
    )
    rows.filter(~fits).write.mode("overwrite").parquet(refused)
    print(f"{spark.read.parquet(refused).count()} rows are too large for {topic}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
