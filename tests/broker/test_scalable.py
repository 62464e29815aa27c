# SPDX-License-Identifier: Apache-2.0
"""A topic that an operator migrates to a scalable topic, on a broker of Pulsar 5."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import official
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.matrix

PULSAR_5 = "5.0.0-M1"
TOPIC = "persistent://public/default/moved"
ERROR = r"PULSAR_SCALABLE_TOPIC.*topic://public/default/moved"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that knows scalable topics."""
    with EmbeddedBroker(version=PULSAR_5) as started:
        yield started


def migrate(broker: EmbeddedBroker, query: str = "") -> int:
    """Asks for the migration as an operator does; returns the HTTP status."""
    path = f"/admin/v2/scalable/public/default/moved/migrate{query}"
    request = urllib.request.Request(broker.admin_url + path, b"", method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_migrated_topic_is_never_quiet(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A batch, a stream and a write end with an error that names the new topic."""

    def write() -> None:
        rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("pulsar").mode("append").options(**options).save()

    def load() -> DataFrame:
        return spark.read.format("pulsar").options(**options).load()

    options = {"service.url": broker.service_url, "topic": TOPIC}
    with official.client(broker.service_url) as client:
        producer = client.create_producer(TOPIC)
        for number in range(10):
            producer.send(str(number).encode())
        producer.close()
    write()
    assert load().count() == 20
    stream = (
        spark.readStream.format("pulsar")
        .options(**options, startingOffsets="earliest")
        .option("partitionDiscoveryIntervalMs", "500")
        .load()
    )
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        await_true(
            lambda: sum(one.numInputRows for one in query.recentProgress) == 20,
            "the rows of the stream",
        )
        assert migrate(broker) == 409  # the stream is attached, as the docs say
        assert migrate(broker, "?force=true") == 204
        with pytest.raises(PySparkException, match=ERROR):
            query.awaitTermination(120)
    finally:
        query.stop()
    with pytest.raises(PySparkException, match=ERROR):
        load().count()
    with pytest.raises(PySparkException, match=ERROR):
        write()
