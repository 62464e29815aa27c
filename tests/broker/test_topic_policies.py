# SPDX-License-Identifier: Apache-2.0
"""Limits that an operator sets for one topic: its own policies."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

#: Longest wait for a query to end, in seconds: the machine may be busy.
PATIENCE_S = 240


def write(
    spark: SparkSession, url: str, topic: str, rows: int, size: int, **options: str
) -> None:
    """Write rows of this many bytes in one task."""
    frame = spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {size}) AS value")
    named = {f"pulsar.producer.{name}": value for name, value in options.items()}
    given = {"service.url": url, "topic": topic, **named}
    frame.write.format("pulsar").options(**given).mode("append").save()


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """Read all that there is."""
    given = {"service.url": url, "topic": topic, **options}
    return spark.read.format("pulsar").options(**given).load()


def test_messages_of_a_limited_size(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Rows fit, and a batch of them does not: the error names cures that work."""
    admin.create_topic(topic)
    admin.set_topic_policy(topic, "maxMessageSize", 2000)

    def is_refused(rows: int, size: int) -> str:
        try:
            write(spark, service_url, topic, rows, size)
        except PySparkException as error:
            return str(error)
        return ""

    await_true(lambda: is_refused(1, 5000), "the policy")  # brokers learn it later
    for rows, size in ((200, 100), (1, 5000)):
        said = is_refused(rows, size)
        for part in (
            "PULSAR_BROKER",
            "Exceed maximum message size",
            "(`maxMessageSize`)",
            "`pulsar.producer.batchingMaxBytes`",
            "`pulsar.producer.chunkMaxMessageSize`",
        ):
            assert part in said
    before = read(spark, service_url, topic).count()
    chunks = {"chunkingEnabled": "true", "chunkMaxMessageSize": "1900"}
    write(spark, service_url, topic, 200, 100, batchingMaxBytes="1000")
    write(spark, service_url, topic, 200, 100, **chunks)
    write(spark, service_url, topic, 3, 5000, **chunks)
    after = read(spark, service_url, topic)
    assert after.count() == before + 403
    assert after.where("length(value) = 5000").count() >= 3


def test_consumers_of_a_limited_number(
    spark: SparkSession, service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """A batch read has one for each task; a stream needs two, as the error says."""
    admin.create_topic(topic)
    write(spark, service_url, topic, 10, 10)
    admin.set_topic_policy(topic, "maxConsumers", 1)

    def stream() -> str:
        given = {"startingOffsets": "earliest", "pollTimeoutMs": "5000"}
        frame = spark.readStream.format("pulsar").option("service.url", service_url)
        query = (
            frame.options(topic=topic, **given)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / uuid.uuid4().hex))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S), "it did not end"
        except PySparkException as error:
            return str(error)
        finally:
            query.stop()
        return ""

    await_true(stream, "the policy")
    said = stream()
    for part in (
        "Topic reached max consumers limit",
        "Raise `maxConsumers`",
        "a stream has two consumers on each topic partition",
    ):
        assert part in said
    assert read(spark, service_url, topic).count() == 10
    admin.set_topic_policy(topic, "maxConsumers", 2)
    await_true(lambda: not stream(), "the policy")
