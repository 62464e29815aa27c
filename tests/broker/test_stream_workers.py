# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.streaming import Query, publish_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from tests.support.link_proxy import LinkProxy

PARTITIONS = 2
BATCHES = 5


def test_workers_keep_their_connections(
    spark: SparkSession,
    link: LinkProxy,
    service_url: str,
    admin: Admin,
    topic: str,
    tmp_path: Path,
) -> None:
    """Tasks of later micro-batches use the connections of earlier ones."""
    admin.create_partitioned(topic, PARTITIONS)
    publish_numbers(service_url, topic, range(PARTITIONS), range(5 * BATCHES))
    options = {
        "service.url": link.url,
        "topic": topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": "10",
    }
    query = Query(tmp_path, options, available_now=True)
    before = link.counters.accepted
    query.run(spark)
    assert len(query.committed) == BATCHES
    numbers = list(range(5 * BATCHES))
    assert query.rows() == dict.fromkeys(range(PARTITIONS), numbers)
    opened = link.counters.accepted - before
    # A process has one to the service URL and one to the broker's own address. There
    # are the driver's and those of two task slots; a new one for each task would be 10.
    assert 0 < opened <= 2 * (1 + 2)
