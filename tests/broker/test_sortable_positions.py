# SPDX-License-Identifier: Apache-2.0
"""``__position`` and the ends of topics, on a real broker."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from pulsar_spark import end_offsets, position_after
from tests.broker.test_write import write
from tests.support import official, reading

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


@pytest.fixture(scope="module")
def mixed(service_url: str, _shared_namespace: str) -> str:
    """300 messages alone, 300 in batches, one in chunks, and 300 in batches again."""
    topic = f"persistent://{_shared_namespace}/mixed-{uuid.uuid4().hex[:8]}"

    def put(first: int, padding: str = "", count: int = 300, **options: str) -> None:
        chosen = range(first, first + count)
        columns = {
            "value": [f"{number}{padding}" for number in chosen],
            "__key": [str(number % 7) for number in chosen],
        }
        write(service_url, topic, columns, **options)

    put(0, p_batchingEnabled="false")
    put(300)
    put(600, " " * 6_000_000, 1, p_chunkingEnabled="true")
    put(601)
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
    rows = read(spark, service_url, mixed, **options).cache()
    in_order = numbers(rows.collect())
    assert len(in_order) == (7 if compacted else 901)
    assert numbers(rows.orderBy("__position").collect()) == in_order
    newest = rows.groupBy("__key").agg(
        functions.max_by("value", "__position").alias("value")
    )
    expected = {number % 7: number for number in range(901)}
    assert sorted(numbers(newest.collect())) == sorted(expected.values())
    rows.unpersist()


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


def test_rounds_of_reads(service_url: str, admin: Admin, topic: str) -> None:
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
        given = {"topic": topic, "endingOffsets": ends.ending, **start}
        seen += numbers(reading.read_columns(service_url, given))
        following = ends.following
    given = {"topic": topic, "startingOffsets": following}
    seen += numbers(reading.read_columns(service_url, given))
    expected = [
        100 * round_ + 10 * partition + n
        for round_ in range(4)
        for partition in range(min(round_, 3))
        for n in range(5)
    ]
    assert sorted(seen) == sorted([*expected, *range(1000, 1004)])


def test_rounds_of_reads_of_what_grows(
    service_url: str, admin: Admin, topic: str
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
        given = {**pattern, **following, **ends}
        return numbers(reading.read_columns(service_url, given))

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
