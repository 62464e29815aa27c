# SPDX-License-Identifier: Apache-2.0
"""The examples of the Scala connector's README, line by line in Python.

Nothing is changed but the address of the broker, tokens and paths: each runs, or ends
in an error that names the change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from tests.support.official import Message, produce, read_back
from tests.support.pasted import checkpoints, paste, streamed, topics_of_guides

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

FULL = "persistent://public/default/"
ROWS = {
    name: [Message(f"{name}-{n}".encode(), key=f"k{n}") for n in range(5)]
    for name in ("topic1", "topic2")
}
ONE = sorted((f"k{n}", f"topic1-{n}") for n in range(5))
BOTH = sorted((f"k{n}", f"{name}-{n}") for name in ROWS for n in range(5))


@pytest.fixture
def topics(request: pytest.FixtureRequest, admin: Admin) -> Iterator[int]:
    """The README's topics, and how many partitions each has."""
    with topics_of_guides(admin, dict.fromkeys(ROWS, request.param)):
        yield request.param


def publish(service_url: str) -> None:
    """Writes the rows of both topics."""
    for name, messages in ROWS.items():
        produce(service_url, FULL + name, messages)


def run(code: str, service_url: str, **names: Any) -> dict[str, Any]:
    """Runs an example on this broker."""
    url = "pulsar://localhost:6650"
    assert url in code
    return paste(code.replace(url, service_url), **names)


STREAM = """
df = (
    spark
    .readStream
    .format("pulsar")
    .option("service.url", "pulsar://localhost:6650")
    .option({})
    .load()
)
pairs = df.selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
"""
BATCH = STREAM.replace("readStream", "read")


#: How topics are named, with what is read then.
NAMED = {
    "topic": ('"topic", "topic1"', ONE),
    "topics": ('"topics", "topic1,topic2"', BOTH),
    "pattern": ('"topicsPattern", "topic.*"', BOTH),
}


def ways(*always: str) -> pytest.MarkDecorator:
    """Each way to name topics, of both kinds; ``make test`` runs those that are given.

    The others are of ``make test-matrix``.
    """
    params = []
    for name, given in NAMED.items():
        for kind, partitions in (("whole", 0), ("partitioned", 2)):
            way = f"{name}-{kind}"
            marks = () if way in always else pytest.mark.matrix
            params.append(pytest.param(partitions, *given, id=way, marks=marks))
    names = ("topics", "option", "expected")
    return pytest.mark.parametrize(names, params, indirect=["topics"])


class TestReads:
    """By each of the three options."""

    @ways("topics-whole", "pattern-partitioned")
    def test_stream(
        self,
        spark: SparkSession,
        service_url: str,
        topics: int,
        option: str,
        expected: list[Any],
    ) -> None:
        """It begins with what is published after its start."""
        publish(service_url)
        made = run(STREAM.format(option), service_url, spark=spark)
        found = streamed(
            spark, made["pairs"], lambda: publish(service_url), len(expected)
        )
        assert found == expected

    @ways("topic-partitioned", "topics-whole", "pattern-partitioned")
    def test_batch(
        self,
        spark: SparkSession,
        service_url: str,
        topics: int,
        option: str,
        expected: list[Any],
    ) -> None:
        """All rows; with the two words for all of them, too."""
        publish(service_url)
        code = BATCH.format(option)
        words = (
            '.option("startingOffsets", "earliest").option("endingOffsets", "latest")'
        )
        for text in (code, code.replace(".load()", f"{words}.load()")):
            made = run(text, service_url, spark=spark)
            assert sorted(map(tuple, made["pairs"].collect())) == expected


def test_offsets(spark: SparkSession, service_url: str, admin: Admin) -> None:
    """As ``JsonUtils.topicOffsets`` writes them: both ends count."""
    with topics_of_guides(admin, dict.fromkeys(ROWS, 0)):
        ids = {
            name: produce(service_url, FULL + name, messages)
            for name, messages in ROWS.items()
        }

        def topic_offsets(number: int) -> str:
            signed = {
                name: [byte - 256 * (byte > 127) for byte in found[number].serialize()]
                for name, found in ids.items()
            }
            return json.dumps(signed)

        code = """
df = (
    spark
    .read
    .format("pulsar")
    .option("service.url", "pulsar://localhost:6650")
    .option("topics", "topic1,topic2")
    .option("startingOffsets", startingOffsets)
    .option("endingOffsets", endingOffsets)
    .load()
)
pairs = df.selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
"""
        ends = {"startingOffsets": topic_offsets(1), "endingOffsets": topic_offsets(3)}
        made = run(code, service_url, spark=spark, **ends)
        expected = [row for row in BOTH if row[0] in ("k1", "k2", "k3")]
        assert sorted(map(tuple, made["pairs"].collect())) == expected


WRITE = """
ds = (
    df
    .selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
    .{}
    .format("pulsar")
    .option("service.url", "pulsar://localhost:6650")
    .option("topic", "topic2")
    .{}()
)
"""
WRITE_BY_COLUMN = WRITE.replace('    .option("topic", "topic2")\n', "").replace(
    '("CAST(__key', '("__topic", "CAST(__key'
)


@pytest.mark.parametrize("code", [WRITE, WRITE_BY_COLUMN], ids=["option", "column"])
class TestWrites:
    """To a topic that an option names, or each row."""

    def test_stream(
        self,
        spark: SparkSession,
        service_url: str,
        admin: Admin,
        tmp_path: Path,
        code: str,
    ) -> None:
        """Spark wants a checkpoint, of the query or for all of them, and says so."""
        code = code.format("writeStream", "start")
        with topics_of_guides(admin, {"topic1": 2, "topic2": 2}):
            produce(service_url, FULL + "topic1", ROWS["topic1"])
            source = spark.readStream.format("pulsar").option("topic", "topic1")
            source = source.option("service.url", service_url)
            df = source.option("startingOffsets", "earliest").load()
            df = df.selectExpr("'topic2' AS __topic", "__key", "value")
            with pytest.raises(AnalysisException, match="checkpointLocation"):
                run(code, service_url, df=df)
            with checkpoints(spark, tmp_path):
                query = run(code, service_url, df=df)["ds"]
            try:
                query.processAllAvailable()
            finally:
                query.stop()
            assert pairs_in(service_url, "topic2") == ONE

    def test_batch(
        self,
        spark: SparkSession,
        service_url: str,
        admin: Admin,
        code: str,
    ) -> None:
        """Spark refuses its default mode for any source in Python, and names ours."""
        code = code.format("write", "save")
        with topics_of_guides(admin, {"topic1": 2, "topic2": 2}):
            produce(service_url, FULL + "topic1", ROWS["topic1"])
            source = spark.read.format("pulsar").option("topic", "topic1")
            df = source.option("service.url", service_url).load()
            df = df.selectExpr("'topic2' AS __topic", "__key", "value")
            with pytest.raises(AnalysisException, match='"Append"'):
                run(code, service_url, df=df)
            assert pairs_in(service_url, "topic2") == []
            run(code.replace(".save()", '.mode("append").save()'), service_url, df=df)
            assert pairs_in(service_url, "topic2") == ONE


def test_rows_go_back_where_they_came_from(
    spark: SparkSession, service_url: str, admin: Admin
) -> None:
    """``__topic`` of a read names a partition, and so does a write of it."""
    with topics_of_guides(admin, {"topic1": 2, "topic2": 0}):
        publish(service_url)
        code = BATCH.format('"topics", "topic1,topic2"')
        df = run(code, service_url, spark=spark)["df"]
        code = WRITE_BY_COLUMN.format('write.mode("append")', "save")
        run(code, service_url, df=df)
        assert pairs_in(service_url, "topic1") == sorted(ONE * 2)
        expected = sorted(BOTH * 2)
        again = run(BATCH.format('"topics", "topic1,topic2"'), service_url, spark=spark)
        assert sorted(map(tuple, again["pairs"].collect())) == expected


def pairs_in(service_url: str, name: str) -> list[tuple[str, str]]:
    """Keys and values in a topic with two partitions, as the official client reads."""
    rows = read_back(service_url, FULL + name, partitions=2)
    return sorted(((r.key or b"").decode(), (r.value or b"").decode()) for r in rows)


#: Each row of the README's table of options, by the values that it names.
OPTIONS = {
    "admin.url": "http://localhost:8080",
    "maxBytesPerTrigger": "1000000",
    "predefinedSubscription": "jobs",
    "pollTimeoutMs": "6000",
    "waitingForNonExistedTopic": "true",
    "failOnDataLoss": "false",
    "allowDifferentTopicSchemas": "true",
    "pulsar.client.authPluginClassName": "",
    "pulsar.admin.tlsAllowInsecureConnection": "true",
    "pulsar.reader.subscriptionName": "jobs",
}


def test_all_options_of_the_readme(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """Together, in a stream and in a batch read."""
    token = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    options = {
        **OPTIONS,
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "pulsar.client.authPluginClassName": token,
        "pulsar.client.authParams": "token:t",
    }
    produce(service_url, topic, ROWS["topic1"])
    for reader in (spark.read, spark.readStream):
        df = reader.format("pulsar").options(**options).load()
        pairs = df.selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
        found = (
            streamed(spark, pairs, lambda: None, len(ONE))
            if df.isStreaming
            else sorted(map(tuple, pairs.collect()))
        )
        assert found == ONE
