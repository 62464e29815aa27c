# SPDX-License-Identifier: Apache-2.0
"""Test a job against a real broker: the fixture ``pulsar_broker`` starts the broker.

pytest examples/test_orders_job.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from orders_job import totals
from pyspark.sql import SparkSession

import pulsar_spark
from pulsar_spark.testing import PulsarBroker


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the session of all tests."""
    spark = pulsar_spark.session(SparkSession.builder.master("local[2]"))
    yield spark
    spark.stop()


def test_totals(spark: SparkSession, pulsar_broker: PulsarBroker) -> None:
    """Each country has the sum of its orders, over all partitions of the topic."""
    topic = pulsar_broker.new_topic("orders", partitions=2)
    options = pulsar_broker.options(topic)
    orders = spark.createDataFrame(
        [("DE", 100), ("FR", 250), ("DE", 50)], "country STRING, cents LONG"
    )
    writer = orders.write.format("pulsar").mode("append")
    writer.options(**options, schemaType="avro").save()

    rows = totals(spark, options).collect()
    assert {row.country: row.cents for row in rows} == {"DE": 150, "FR": 250}
