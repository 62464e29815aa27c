# SPDX-License-Identifier: Apache-2.0
"""Chunked messages in streams: each one row, wherever micro-batches and ledgers end.

The topics keep nothing that is acknowledged, as is the default of a broker, and a new
ledger begins wherever a test wants one: what a query lets go of is gone at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.errors import DataLossError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import compress
from tests.broker.test_stream_faults import (
    Losses,
    backlog,
    fresh,
    ledgers,
    losses,
    restless,
    run,
    written,
)
from tests.support.driven_query import Query
from tests.support.entries import chunks
from tests.support.raw_publisher import RawPublisher
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

__all__ = ["fresh", "losses", "restless"]  # fixtures

Chunk = tuple[pb.MessageMetadata, bytes]


def number(
    value: int, pieces: int, codec: int = pb.NONE, size_bytes: int = 3000
) -> list[Chunk]:
    """The chunks of a message with this number in it."""
    payload = b"%d" % value + b" " * size_bytes
    if codec == pb.NONE:
        return chunks(payload, pieces, f"message-{value}")
    return chunks(
        compress(codec, payload),
        pieces,
        f"message-{value}",
        compression=codec,
        uncompressed_size=len(payload),
    )


def send(service_url: str, topic: str, *entries: Chunk) -> list[tuple[int, int]]:
    """Stores entries, by a producer that is there for these alone."""
    with RawPublisher(service_url, topic) as publisher:
        return [publisher.send(*entry) for entry in entries]


@pytest.fixture
def forgetful(admin: Admin, fresh: str) -> str:
    """A topic whose broker drops a ledger as soon as no subscription needs it."""
    namespace = fresh.removeprefix("persistent://").rpartition("/")[0]
    admin.set_retention(namespace, minutes=0, size_mb=0)
    return fresh


def roll(admin: Admin, topic: str) -> None:
    """Begins a new ledger, and drops those before it that nobody needs."""
    admin.unload(topic)
    admin.lookup(topic)
    admin.trim(topic)


LIMITS = {"no limit": {}, "a limit": {"maxRowsPerTrigger": "1"}}


class TestOpenMessages:
    """Micro-batches that end between the chunks of a message."""

    @pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
    @pytest.mark.parametrize("how", ["running", "restarted", "available now"])
    def test_chunks_in_two_ledgers_and_two_micro_batches(
        self,
        admin: Admin,
        service_url: str,
        forgetful: str,
        losses: Losses,
        how: str,
        limits: dict[str, str],
    ) -> None:
        """The ledger of the first chunks stays until the message is read."""
        topic = forgetful
        parts = number(1, 4)
        with Query(service_url, topic=topic, **limits) as query:

            def go_on() -> None:
                if how == "available now":
                    query.stop()
                    query.run()
                    query.run()
                    return
                query.drain()
                query.drain()  # which acknowledges the last one
                if how == "restarted":
                    query.stop()

            send(service_url, topic, *number(0, 1), *number(5, 3), parts[0])
            go_on()
            assert query.rows == {topic: [0, 5]}
            first = ledgers(admin, topic)[0]
            roll(admin, topic)
            send(service_url, topic, parts[1], *number(2, 1), parts[2])
            go_on()
            roll(admin, topic)
            assert ledgers(admin, topic)[0] == first
            send(service_url, topic, parts[3])
            go_on()
            assert query.rows == {topic: [0, 5, 2, 1]}
            assert losses.take() == []
            assert backlog(admin, topic, query.subscription) == 0

            def is_trimmed() -> bool:
                roll(admin, topic)  # brokers look for old ledgers as they begin one
                return ledgers(admin, topic)[0] > first

            await_true(is_trimmed, "the trim")

    def test_chunks_of_two_producers(
        self, admin: Admin, service_url: str, forgetful: str, losses: Losses
    ) -> None:
        """Messages that overlap in a chain, so that one is always open."""
        topic = forgetful
        with Query(service_url, topic=topic) as query:
            before = number(0, 2)
            send(service_url, topic, before[0])
            for value in range(1, 6):
                following = number(value, 2)
                send(service_url, topic, following[0], before[1])
                before = following
                query.drain()
                query.drain()
                roll(admin, topic)
            assert query.rows == {topic: list(range(5))}
            assert len(ledgers(admin, topic)) < 5
            send(service_url, topic, before[1])
            query.drain()
            assert query.rows == {topic: list(range(6))}
            assert losses.take() == []

    def test_a_producer_that_died(
        self, admin: Admin, service_url: str, forgetful: str, losses: Losses
    ) -> None:
        """What it never finished is given up, and holds nothing back for ever."""
        topic = forgetful
        expiry = "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis"
        with Query(service_url, topic=topic, **{expiry: "1500"}) as query:
            send(service_url, topic, *number(0, 1), number(1, 2)[0])
            query.drain()
            query.drain()
            assert backlog(admin, topic, query.subscription) > 0
            await_true(
                lambda: (
                    not query.trigger()
                    and backlog(admin, topic, query.subscription) == 0
                ),
                "the acknowledgement",
            )
            assert query.rows == {topic: [0]}
        assert losses.take() == []


class TestLostChunks:
    """Somebody has moved the cursor, and retention has taken the first chunks."""

    @pytest.fixture
    def query(self, admin: Admin, service_url: str, forgetful: str) -> Query:
        """It has read up to the first chunk of a message, which is gone now."""
        first, last = number(1, 2)
        query = Query(service_url, topic=forgetful)
        send(service_url, forgetful, *number(0, 1), first)
        query.run()
        admin.skip(forgetful, query.subscription)
        before = ledgers(admin, forgetful)[0]
        roll(admin, forgetful)
        await_true(lambda: ledgers(admin, forgetful)[0] > before, "the trim")
        send(service_url, forgetful, last, *number(2, 1))
        return query

    def test_it_is_an_error(self, query: Query, forgetful: str) -> None:
        """With the message's name, each time."""
        for _ in range(2):
            with pytest.raises(DataLossError, match="chunk") as caught:
                query.run()
            assert caught.value.topic_partition == forgetful
            query.ends.pop()  # so that it is planned again
        assert query.rows == {forgetful: [0]}

    def test_it_is_a_warning(
        self, query: Query, forgetful: str, losses: Losses
    ) -> None:
        """With `failOnDataLoss` false, and the rest is read."""
        query.options["failOnDataLoss"] = "false"
        query.run()
        assert query.rows == {forgetful: [0, 2]}
        (loss,) = losses.take()
        assert forgetful in loss

    def test_a_query_that_begins_there(
        self,
        query: Query,
        service_url: str,
        forgetful: str,
        losses: Losses,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """`earliest` is the first message that is there as a whole."""
        caplog.set_level(logging.WARNING, "pulsar_spark")
        later = Query(service_url, topic=forgetful)
        later.run()
        assert later.rows == {forgetful: [2]}
        assert "incomplete" in caplog.text
        assert losses.take() == []


@pytest.mark.parametrize("how", ["running", "restarted"])
def test_a_message_that_began_before_the_topic_does(
    admin: Admin,
    service_url: str,
    forgetful: str,
    losses: Losses,
    how: str,
) -> None:
    """It is no part of a query from `earliest`, wherever micro-batches end."""
    topic = forgetful
    first, *others = number(1, 4)
    send(service_url, topic, first)
    before = ledgers(admin, topic)[0]
    roll(admin, topic)
    await_true(
        lambda: admin.trim(topic) or ledgers(admin, topic)[0] > before, "the trim"
    )
    send(service_url, topic, *others, *number(2, 1))
    with Query(service_url, topic=topic, maxBytesPerTrigger="500") as query:
        while query.trigger():
            if how == "restarted":
                query.stop()
        assert query.rows == {topic: [2]}
        assert len(query.ends) > 2
    assert losses.take() == []


#: What ``written`` counts on.
COLUMNS = "__topic,__messageId"

CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")

#: Options, and whether each run ends by itself. Each codec gets some of them.
WAYS: list[tuple[dict[str, str], bool]] = [
    ({**limits, **tasks}, ends)
    for limits in ({}, {"maxRowsPerTrigger": "2"}, {"maxBytesPerTrigger": "2000"})
    for tasks in ({}, {"minPartitions": "4"}, {"maxRecordsPerPartition": "1"})
    for ends in (True, False)
]


@pytest.mark.parametrize("codec", CODECS)
def test_every_way_of_reading(
    admin: Admin, service_url: str, forgetful: str, losses: Losses, codec: str
) -> None:
    """Codecs, limits, tasks, and runs that end: each row once, in order."""
    topic = forgetful
    queries = [
        (Query(service_url, topic=topic, **options), ends)
        for options, ends in WAYS[CODECS.index(codec) :: len(CODECS)]
    ]
    wanted: list[int] = []
    for step in range(2):
        some = range(step * 8, step * 8 + 8)
        sets = {
            n: number(n, n % 4 + 1, pb.CompressionType.Value(codec), 2000) for n in some
        }
        # Two messages mix, and the last one ends in the next ledger.
        one, two = sets[some[3]], sets[some[2]]
        entries = [c for n in some[:2] for c in sets[n]]
        entries += [one[0], two[0], one[1], *two[1:], *one[2:]]
        entries += [c for n in some[4:7] for c in sets[n]]
        *held, last = sets[some[7]]
        send(service_url, topic, *entries, *held)
        wanted += [*some[:2], some[2], some[3], *some[4:7]]
        for query, ends in queries:
            query.run() if ends else query.drain()
            assert query.rows == {topic: wanted}
        roll(admin, topic)
        send(service_url, topic, last)
        wanted.append(some[7])
    for query, ends in queries:
        query.run() if ends else query.drain()
        query.stop()
        assert query.rows == {topic: wanted}
    assert losses.take() == []


def test_through_spark(
    admin: Admin,
    service_url: str,
    forgetful: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """A run that ends amid a message, in a ledger that nobody else needs."""
    topic = forgetful
    options = {"topic": topic, "maxRowsPerTrigger": "2", "minPartitions": "3"}
    first, last = number(9, 2, pb.ZSTD)
    send(service_url, topic, *number(0, 3, pb.LZ4), *number(1, 2), first)
    run(spark, service_url, tmp_path, metadataColumns=COLUMNS, **options)
    assert written(spark, tmp_path) == {topic: [0, 1]}
    roll(admin, topic)
    send(service_url, topic, last)
    run(spark, service_url, tmp_path, metadataColumns=COLUMNS, **options)
    assert written(spark, tmp_path) == {topic: [0, 1, 9]}
    assert backlog(admin, topic) == 0
