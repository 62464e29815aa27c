# SPDX-License-Identifier: Apache-2.0
"""A batch read leaves the cluster as it was: no subscription, no topic, no progress."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from pulsar_spark import DataLossError, PulsarSparkError, TopicNotFoundError
from pulsar_spark.topics import TopicName
from tests.support import official, reading
from tests.support.entries import chunks, message
from tests.support.raw_publisher import RawPublisher
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin


def cursors(admin: Admin, topic: str) -> dict[str, tuple[Any, ...]]:
    """Every subscription, durable or not, with its place and its backlog."""
    held = admin.internal_stats(topic)["cursors"]
    stats = admin.stats(topic)["subscriptions"]
    return {
        name: (
            stats[name]["msgBacklog"],
            held.get(name, {}).get("markDeletePosition"),
            held.get(name, {}).get("individuallyDeletedMessages"),
        )
        for name in stats
    }


def await_settled(admin: Admin, topic: str, before: dict[str, Any]) -> None:
    """Wait until a topic has only the subscriptions of ``before``; some end late."""
    await_true(lambda: cursors(admin, topic) == before, "the end of subscriptions")


@pytest.fixture
def used(service_url: str, topic: str) -> str:
    """A topic with 30 rows of which a durable subscription has taken seven."""
    rows = [official.Message(b"%d" % i, key=f"{i % 3}") for i in range(30)]
    with official.client(service_url) as one:
        consumer = one.subscribe(
            topic, "theirs", initial_position=pulsar.InitialPosition.Earliest
        )
        official.produce(service_url, topic, rows, batch=10)
        for _ in range(7):
            taken = consumer.receive(120_000)
        consumer.acknowledge_cumulative(taken)
        consumer.close()
    return topic


def test_every_kind_of_read(service_url: str, admin: Admin, used: str) -> None:
    """No read adds a subscription, moves the one there is, or changes its backlog."""
    with RawPublisher(service_url, used) as publisher:
        for chunk in chunks(b"chunked" * 3, 3, "u"):
            place = publisher.send(*chunk)
        publisher.send(*message(None, key="1"))
    admin.compact(used)
    before = cursors(admin, used)
    assert set(before) >= {"theirs"}
    rows = reading.read(service_url, {"topic": used})
    assert len(rows) == 32
    middle = json.dumps({used: f"{place[0]}:{place[1]}"})
    reads: list[dict[str, str]] = [
        {},
        {"startingOffsets": json.dumps({used: rows[13].position})},
        {"startingOffsets": middle},  # looks back for the chunks before it
        {"startingTime": str(rows[20].publish_time_ms)},
        {"endingTime": str(rows[20].publish_time_ms)},
        {"startingTime": str(rows[-1].publish_time_ms + 10**9)},
        {"pulsar.reader.readCompacted": "true"},
    ]
    for options in reads:
        reading.read(service_url, {"topic": used, **options})
        await_settled(admin, used, before)


def test_reads_that_stop_early(service_url: str, admin: Admin, used: str) -> None:
    """A read that fails, or that nobody finishes, leaves nothing, too."""
    with RawPublisher(service_url, used) as publisher:
        for chunk in chunks(b"x" * (2 << 20), 3, "too-large"):
            publisher.send(*chunk)
    before = cursors(admin, used)
    options = {"topic": used, "pulsar.client.memoryLimitBytes": "1m"}
    with pytest.raises(PulsarSparkError):
        reading.read(service_url, options)
    await_settled(admin, used, before)

    reader = reading.reader_of(service_url, {"topic": used, "rowsPerArrowBatch": "3"})
    (part,) = reader.partitions()
    with contextlib.closing(reader.read(part)) as record_batches:  # type: ignore[type-var]
        next(record_batches)
        assert cursors(admin, used) != before  # so this test would see a trace
    await_settled(admin, used, before)


def test_through_spark(
    spark: SparkSession, service_url: str, admin: Admin, used: str
) -> None:
    """Spark's own workers leave nothing; not where LIMIT ends the read, either."""
    before = cursors(admin, used)
    frame = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", used)
        .load()
    )
    assert frame.count() == 30
    assert len(frame.limit(2).collect()) == 2
    await_settled(admin, used, before)


def listed(admin: Admin, namespace: str) -> tuple[set[str], set[str]]:
    """All topics of a namespace, and all partitioned ones.

    Without those that the broker itself adds when it loads a topic.
    """
    listed = admin.topics(namespace), admin.partitioned_topics(namespace)
    mine, parted = (
        {n for n in names if not TopicName.parse(n).is_system_topic} for names in listed
    )
    return mine, parted


@pytest.mark.parametrize("kind", ["non-partitioned", "partitioned"])
def test_no_topic_comes_into_being(
    service_url: str, admin: Admin, namespace: str, kind: str
) -> None:
    """A topic, a partition, or a match that is missing stays missing.

    Whatever the namespace creates for clients that ask for a topic.
    """
    policy: dict[str, Any] = {"allowAutoTopicCreation": True, "topicType": kind}
    if kind == "partitioned":
        policy["defaultNumPartitions"] = 3
    admin.set_policy(namespace, "autoTopicCreation", policy)
    base = f"persistent://{namespace}"
    admin.create_topic(f"{base}/plain")
    admin.create_partitioned(f"{base}/parted", 2)
    before = listed(admin, namespace)
    for options in (
        {"topic": f"{base}/missing"},
        {"topic": f"{base}/missing-partition-0"},
        {"topic": f"{base}/parted-partition-2"},
        {"topic": f"{base}/plain-partition-0"},
        {"topics": f"{base}/plain,{base}/missing"},
        {"topicsPattern": f"{namespace}/miss.*"},
        {"topic": f"{base}/missing", "startingTime": "2024-01-01"},
    ):
        with pytest.raises(TopicNotFoundError):
            reading.plan(service_url, options)
    assert reading.plan(service_url, {"topicsPattern": f"{namespace}/.*"}) == []
    assert listed(admin, namespace) == before


def test_partitions_nobody_wrote_to(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Partitions that do not exist yet are empty, and are not created by reading.

    The broker creates a partitioned topic by itself as a number only; each partition
    comes with its first producer.
    """
    policy = {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 4,
    }
    admin.set_policy(namespace, "autoTopicCreation", policy)
    topic = f"persistent://{namespace}/lazy"
    with official.client(service_url) as one:
        producer = one.create_producer(
            topic,
            lazy_start_partitioned_producers=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition,
        )
        producer.send(b"v")
        producer.close()
    before = listed(admin, namespace)
    assert admin.partitions(topic) == 4
    assert len(before[0]) < 4
    times = {"startingTime": "2024-01-01", "endingTime": "2200-01-01"}
    for options in ({}, times):
        rows = reading.read(service_url, {"topic": topic, **options})
        assert [row.value for row in rows] == [b"v"]
    (unborn, *_) = {f"{topic}-partition-{i}" for i in range(4)} - before[0]
    assert reading.plan(service_url, {"topic": unborn}) == []
    options = {"topic": unborn, "startingOffsets": json.dumps({unborn: "3:0"})}
    with pytest.raises(DataLossError, match=unborn):
        reading.plan(service_url, options)
    assert listed(admin, namespace) == before
