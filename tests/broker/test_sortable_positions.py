# SPDX-License-Identifier: Apache-2.0
"""``__position`` and the ends of topics, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from pulsar_spark import end_offsets, position_after
from tests.support import official

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """A batch read with positions."""
    given = {
        "service.url": url,
        "topic": topic,
        "metadataColumns": "__key,__topic,__position",
        **options,
    }
    return spark.read.format("pulsar").options(**given).load()


def write(spark: SparkSession, url: str, topic: str, sql: str, **options: str) -> None:
    """A batch write of one task."""
    given = {"service.url": url, "topic": topic, **options}
    rows = spark.sql(sql).coalesce(1)
    rows.write.format("pulsar").options(**given).mode("append").save()


NUMBERS = (
    "SELECT CAST(id + {0} AS STRING) AS value, CAST((id + {0}) % 7 AS STRING) AS __key"
    " FROM range({1})"
)


@pytest.fixture
def mixed(spark: SparkSession, service_url: str, topic: str) -> str:
    """300 messages alone, 300 in batches, one in chunks, and 300 in batches again."""
    alone = {"pulsar.producer.batchingEnabled": "false"}
    write(spark, service_url, topic, NUMBERS.format(0, 300), **alone)
    write(spark, service_url, topic, NUMBERS.format(300, 300))
    large = "SELECT CONCAT('600', REPEAT(' ', 6000000)) AS value, '5' AS __key"
    chunked = {"pulsar.producer.chunkingEnabled": "true"}
    write(spark, service_url, topic, large, **chunked)
    write(spark, service_url, topic, NUMBERS.format(601, 300))
    return topic


def numbers(rows: Any) -> list[int]:
    """What rows hold, in their order."""
    return [int(row["value"].decode()) for row in rows]


@pytest.mark.parametrize("compacted", [False, True])
def test_it_sorts_as_the_topic_does(
    spark: SparkSession, service_url: str, admin: Admin, mixed: str, compacted: bool
) -> None:
    """With entries beyond 255, whose ids in bytes sort otherwise."""
    if compacted:
        admin.compact(mixed)
    options = {"pulsar.reader.readCompacted": "true"} if compacted else {}
    rows = read(spark, service_url, mixed, **options)
    in_order = numbers(rows.collect())
    assert len(in_order) == (7 if compacted else 901)
    assert numbers(rows.orderBy("__position").collect()) == in_order
    newest = rows.groupBy("__key").agg(
        functions.max_by("value", "__position").alias("value")
    )
    expected = {number % 7: number for number in range(901)}
    assert sorted(numbers(newest.collect())) == sorted(expected.values())


def test_the_next_read_begins_after_the_newest_row(
    spark: SparkSession, service_url: str, mixed: str
) -> None:
    """By Spark's own ``max``, inside of a batch as well."""
    first = read(spark, service_url, mixed).filter("CAST(value AS STRING) <= '777'")
    newest = first.filter("CAST(CAST(value AS STRING) AS INT) <= 777").agg(
        functions.max("__position").alias("newest")
    )
    (start,) = newest.select(position_after("newest")).first() or ()
    offsets = f'{{"{mixed}": "{start}"}}'
    rest = read(spark, service_url, mixed, startingOffsets=offsets).collect()
    assert numbers(rest) == list(range(778, 901))


def test_rounds_of_reads(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Each row is in one round, also those that come between plan and read."""
    admin.create_partitioned(topic, 3)
    options = {"service.url": service_url, "topic": topic}
    following = ""
    seen: list[int] = []
    for round_ in range(4):
        # The first round finds nothing, and the second one one topic partition.
        for partition in range(min(round_, 3)):
            name = f"{topic}-partition-{partition}"
            values = [b"%d" % (100 * round_ + 10 * partition + n) for n in range(5)]
            official.produce(service_url, name, values, batch=5)
        ends = end_offsets(options)
        late = b"%d" % (1000 + round_)
        official.produce(service_url, f"{topic}-partition-2", [late], batch=1)
        start = {"startingOffsets": following} if following else {}
        rows = read(spark, service_url, topic, endingOffsets=ends.ending, **start)
        seen += numbers(rows.collect())
        following = ends.following
    rest = read(spark, service_url, topic, startingOffsets=following)
    seen += numbers(rest.collect())
    expected = [
        100 * round_ + 10 * partition + n
        for round_ in range(4)
        for partition in range(min(round_, 3))
        for n in range(5)
    ]
    assert sorted(seen) == sorted([*expected, *range(1000, 1004)])


def test_rounds_of_reads_of_what_grows(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Partitions and topics that come between plan and read are in the next round."""
    name = topic.rpartition("/")[2]
    pattern = {"topicsPattern": f"{topic.rpartition('/')[0]}/{name}.*"}
    admin.create_partitioned(topic, 1)
    following: dict[str, str] = {}
    seen: list[int] = []
    sent = 0

    def send(to: str) -> None:
        nonlocal sent
        values = [b"%d" % number for number in range(sent, sent + 5)]
        official.produce(service_url, to, values, batch=5)
        sent += 5

    def read_on(**ends: str) -> list[int]:
        given = {"service.url": service_url, **pattern, **following, **ends}
        rows = spark.read.format("pulsar").options(**given).load()
        return numbers(rows.collect())

    for round_ in range(1, 4):
        before = sent
        send(f"{topic}-partition-0")
        ends = end_offsets({"service.url": service_url, **pattern})
        send(f"{topic}-partition-0")
        admin.update_partitions(topic, round_ + 1)
        send(f"{topic}-partition-{round_}")
        send(f"{topic}-of-round-{round_}")
        seen += read_on(endingOffsets=ends.ending)
        assert sorted(seen) == list(range(before + 5))
        following = {"startingOffsets": ends.following}
    assert sorted(seen + read_on()) == list(range(sent))
