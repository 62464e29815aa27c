# SPDX-License-Identifier: Apache-2.0
"""Follow a topic, and print after each micro-batch how far behind it the query is.

python examples/streaming_lag.py my-topic checkpoint-folder [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys
import threading

import pulsar_spark
from pulsar_spark import PulsarLagListener, StreamLag


def main(topic: str, checkpoint: str, service_url: str) -> None:
    """Read until the query has caught up with the topic."""
    spark = pulsar_spark.session()
    caught_up = threading.Event()

    def on_lag(lag: StreamLag) -> None:
        # lag.metrics() and lag.labels() are made for a metric system.
        print(lag)
        if lag.backlog_entries == 0:
            caught_up.set()

    listener = PulsarLagListener(on_lag)
    spark.streams.addListener(listener)
    rows = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", "1000")
        .load()
    )
    query = (
        rows.writeStream.format("noop")
        .queryName("lag of an example")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    while query.isActive and not caught_up.wait(1):
        pass
    query.stop()
    query.awaitTermination()  # raises what made the query fail, if anything did
    spark.streams.removeListener(listener)


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
