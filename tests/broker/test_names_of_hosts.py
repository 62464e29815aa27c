# SPDX-License-Identifier: Apache-2.0
"""Names of hosts that the system's resolver never answers for, on driver and executors.

Where Spark runs Python for these tests, such names end in ``.hangs.test``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.test_write import save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "broker.hangs.test"


def test_the_next_host_is_tried(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """As where the first one is down: what is written and read is all there."""
    _, _, there = service_url.partition("://")
    url = f"pulsar://{HOST}:6650,{there}"
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    quick = {"pulsar.client.connectionTimeoutMs": "300"}
    save(rows, url, topic, **quick)
    given = {"service.url": url, "topic": topic, "minPartitions": "2", **quick}
    found = spark.read.format("pulsar").options(**given).load().select("value")
    assert sorted(int(row.value) for row in found.collect()) == list(range(100))


def test_no_other_host(spark: SparkSession, topic: str) -> None:
    """The error comes in time, and names the host and the limit."""
    url = f"pulsar://{HOST}:6650"
    given = {"service.url": url, "topic": topic}
    given["pulsar.client.connectionTimeoutMs"] = "1000"
    given["pulsar.client.lookupTimeoutMs"] = "1500"
    with pytest.raises(Exception, match="PULSAR_CONNECTION") as caught:
        spark.read.format("pulsar").options(**given).load().collect()
    said = f"the name {HOST} was not resolved to an address within 1 s"
    assert f"{said} (`pulsar.client.connectionTimeoutMs`)" in str(caught.value)
