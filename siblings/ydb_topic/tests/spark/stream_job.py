# SPDX-License-Identifier: Apache-2.0
"""A stream from one topic to another, to be killed: it goes on where it was.

Arguments: the folder, the URL, the topic to read and the topic to write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.session import start_spark
from ydb_spark import YdbTopicDataSource


def main(folder: str, url: str, source: str, sink: str) -> None:
    """Copy until there is no more."""
    spark = start_spark(Path(folder), {}, master="local[2, 8]")
    spark.dataSource.register(YdbTopicDataSource)
    rows = (
        spark.readStream.format("ydb_topic")
        .option("url", url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "300")
        .option("partitionDiscoveryIntervalMs", "0")
        .load()
    )
    query = (
        rows.select("data")
        .writeStream.format("ydb_topic")
        .option("url", url)
        .option("topic", sink)
        .option("deliveryGuarantee", "idempotent")
        .option("maxRequestBytes", "500")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
