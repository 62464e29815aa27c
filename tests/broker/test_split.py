# SPDX-License-Identifier: Apache-2.0
"""Topic partitions that several tasks read: every row once, whatever is cut where."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import PulsarDataSource
from pulsar_spark.source.plan.ranges import TopicRange
from tests.support import official, reading
from tests.support.entries import batch, chunks, member, message
from tests.support.official import Row
from tests.support.raw_publisher import RawPublisher
from tests.support.transactions import Transactions
from tests.support.waiting import await_subscriptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin


def publish(service_url: str, admin: Admin, topic: str) -> list[Row]:
    """Rows of every kind, in five ledgers.

    Batches, chunks that mix and that span two ledgers, a transaction that was aborted
    and one that was not, at the end of ledgers, where their markers follow.
    """
    admin.create_topic(topic)
    large = chunks(b"l" * 9_000, 3, "large")
    small = chunks(b"s" * 6_000, 2, "small")
    with RawPublisher(service_url, topic) as one:
        for number in range(6):
            one.send(*batch([member(b"%d.%d" % (number, i)) for i in range(5)]))
        one.send(*large[0])
        one.send(*small[0])
        one.send(*message(b"between"))
        one.send(*small[1])
    admin.unload(topic)
    with RawPublisher(service_url, topic) as one:
        one.send(*message(b"again"))
        one.send(*large[1])
        one.send(*large[2])
    admin.unload(topic)
    with Transactions(service_url) as coordinator:
        for commit in (False, True):
            txn = coordinator.begin(topic)
            with RawPublisher(service_url, topic) as one:
                for i in range(4):
                    one.send(
                        *message(
                            b"txn %d" % i,
                            txnid_most_bits=txn.most,
                            txnid_least_bits=txn.least,
                        )
                    )
            coordinator.end(txn, commit=commit)
            admin.unload(topic)
    official.produce(service_url, topic, [b"%d" % i for i in range(40)], batch=4)
    return official.read_back(service_url, topic)


HINTS: list[dict[str, str]] = [
    {"minPartitions": "2"},
    {"minPartitions": "7"},
    {"minPartitions": "1000"},
    {"maxRecordsPerPartition": "1"},
    {"maxRecordsPerPartition": "10"},
    {"maxRecordsPerPartition": "25", "minPartitions": "6"},
]


def test_batch_reads(service_url: str, admin: Admin, topic: str) -> None:
    """Rows of all parts together are those of the range, exact at both ends."""
    rows = publish(service_url, admin, topic)
    rng = random.Random(6)
    ends = [(0, len(rows) - 1)] + [
        (min(pair), max(pair))
        for pair in (rng.sample(range(len(rows)), 2) for _ in range(4))
    ]
    for hint in HINTS:
        for first, last in ends:
            reader = reading.reader_of(
                service_url,
                {
                    "topic": topic,
                    "startingOffsets": json.dumps({topic: rows[first].position}),
                    "endingOffsets": json.dumps({topic: rows[last].position}),
                    **hint,
                },
            )
            parts = [reading.rows_of(reader, part) for part in reader.partitions()]
            got = [row for part in parts for row in part]
            assert got == rows[first : last + 1], (hint, first, last)
    await_subscriptions(admin, topic)


def test_the_number_of_parts(service_url: str, topic: str) -> None:
    """As many as asked for, even; no more rows in a part than wanted."""
    official.produce(service_url, topic, [b"%d" % i for i in range(100)], batch=5)

    def sizes(**hint: str) -> list[int]:
        reader = reading.reader_of(service_url, {"topic": topic, **hint})
        return [len(reading.rows_of(reader, part)) for part in reader.partitions()]

    assert sizes() == [100]
    assert sizes(minPartitions="1") == [100]
    assert sizes(minPartitions="3") == [30, 35, 35]
    assert sizes(minPartitions="99") == [5] * 20
    assert sizes(maxRecordsPerPartition="100") == [100]
    assert sizes(maxRecordsPerPartition="99") == [50, 50]
    assert sizes(maxRecordsPerPartition="25") == [25] * 4
    assert sizes(maxRecordsPerPartition="1") == [5] * 20
    assert sizes(maxRecordsPerPartition="50", minPartitions="4") == [25] * 4


def test_the_larger_is_split(service_url: str, admin: Admin, topic: str) -> None:
    """What counts are rows: few entries of many rows are split, not many of few."""
    admin.create_partitioned(topic, 2)
    many, few = f"{topic}-partition-0", f"{topic}-partition-1"
    official.produce(service_url, many, [b""] * 30)
    official.produce(service_url, few, [b""] * 400, batch=50)
    planned = reading.plan(service_url, {"topic": topic, "minPartitions": "4"})
    assert [range_.topic_partition for range_ in planned] == [many, few, few, few]


def test_compacted_topics_are_not_split(
    service_url: str, admin: Admin, topic: str
) -> None:
    """A compacted read stays as it is."""
    keyed = [official.Message(b"%d" % i, key=f"{i % 3}") for i in range(9)]
    official.produce(service_url, topic, keyed)
    admin.compact(topic)
    options = {"topic": topic, "pulsar.reader.readCompacted": "true"}
    split = options | {"minPartitions": "4", "maxRecordsPerPartition": "1"}
    assert len(reading.plan(service_url, split)) == 1
    rows = reading.read(service_url, split)
    assert rows == reading.read(service_url, options)
    assert [row.value for row in rows] == [b"6", b"7", b"8"]


def test_micro_batches(service_url: str, admin: Admin, topic: str) -> None:
    """Parts of a micro-batch are the same whenever it is planned, and its rows are."""
    publish(service_url, admin, topic)
    options = {
        "service.url": service_url,
        "topic": topic,
        "metadataColumns": reading.COLUMNS,
        "startingOffsets": "earliest",
        "ackOnCommit": "false",
    }

    def reader_of(**hint: str) -> Any:
        source = PulsarDataSource(options | hint)
        return source.streamReader(source.schema())

    whole = reader_of()
    start = whole.initialOffset()
    end = whole.latestOffset(start, whole.getDefaultReadLimit())
    rows = [r for part in whole.partitions(start, end) for r in _rows(whole, part)]
    for hint in HINTS:
        planned: list[list[TopicRange]] = []
        for _ in range(2):
            reader = reader_of(**hint)
            parts = reader.partitions(start, end)
            planned.append([part.value for part in parts])
            reader.stop()
        assert len(planned[0]) > 1
        assert planned[0] == planned[1]
        assert [row for part in parts for row in _rows(reader, part)] == rows
    whole.stop()


def _rows(reader: Any, part: Any) -> list[Row]:
    return [row for one in reader.read(part) for row in reading.to_rows(one)]


@pytest.mark.parametrize("hint", [{"minPartitions": "4"}])
def test_through_spark(
    spark: SparkSession, service_url: str, topic: str, hint: dict[str, str]
) -> None:
    """Spark has a task for each part."""
    official.produce(service_url, topic, [b"%d" % i for i in range(100)])
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "topic": topic, **hint})
        .load()
    )
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
