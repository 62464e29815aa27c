# SPDX-License-Identifier: Apache-2.0
"""What our sink writes the official SDK reads, and both writers ask for the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
import ydb

from siblings.ydb_topic.tests.sink.tables import bodies, table, writer
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from ydb_spark.client.channel import Channel
from ydb_spark.options.write import Partitioning
from ydb_spark.wire.codecs import CODECS, ZSTD, decode

DEADLINE_S = 20
BEGAN = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=timezone.utc)


@pytest.fixture
def driver(service: TopicService) -> Iterator[ydb.Driver]:
    """A driver of the SDK."""
    endpoint = f"grpc://localhost:{service.port}"
    with ydb.Driver(endpoint=endpoint, database=DATABASE) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        yield driver


def read(driver: ydb.Driver, count: int) -> list[Any]:
    """Messages as the SDK's reader gives them."""
    messages: list[Any] = []
    decoders = {ZSTD: lambda body: decode(ZSTD, body)}
    with driver.topic_client.reader("t", consumer="c", decoders=decoders) as reader:
        while len(messages) < count:
            batch = reader.receive_batch(timeout=DEADLINE_S)
            messages += batch.messages
            reader.commit_with_ack(batch, timeout=DEADLINE_S)
    return messages


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_row_by_row(
    service: TopicService, channel: Channel, driver: ydb.Driver, codec: int
):
    """Body, number, producer, times and metadata arrive."""
    count = 300
    times = [BEGAN + timedelta(milliseconds=n) for n in range(count)]
    metadata = [[("n", str(n).encode()), ("empty", b"")] for n in range(count)]
    rows = table(
        bodies(count),
        created_at=pa.array(times, pa.timestamp("us", "UTC")),
        metadata_items=pa.array(metadata, pa.map_(pa.string(), pa.binary())),
    )
    writer(
        channel,
        4,
        batch_id=2,
        id_="q",
        codec=codec,
        max_request_bytes=3000,
        session_meta=(("from", "spark"),),
    ).write([rows])
    messages = read(driver, count)
    assert [m.data for m in messages] == bodies(count)
    assert [m.seqno for m in messages] == [(2 << 32) + n for n in range(1, count + 1)]
    assert {m.producer_id for m in messages} == {"q/4"}
    assert {m.message_group_id for m in messages} == {"q/4"}
    assert [m.created_at.replace(tzinfo=timezone.utc) for m in messages] == times
    assert [m.metadata_items for m in messages] == [dict(one) for one in metadata]
    assert [m.offset for m in messages] == [*range(count)]


def test_a_group_that_both_write_to(
    service: TopicService, channel: Channel, driver: ydb.Driver
):
    """By turns, as one group: one partition, one order, numbers that go on."""
    rows = bodies(40)
    for first in range(0, 40, 20):
        theirs = rows[first : first + 10]
        with driver.topic_client.writer("t", producer_id="g") as sdk:
            sdk.write(theirs)
        ours = rows[first + 10 : first + 20]
        writer(channel, partitioning=Partitioning.MESSAGE_GROUP_ID).write(
            [table(ours, message_group_id=pa.array(["g"] * 10))]
        )
    messages = read(driver, 40)
    assert [m.data for m in messages] == rows
    assert {(m.producer_id, m.message_group_id) for m in messages} == {("g", "g")}
    assert [m.seqno for m in messages] == [*range(1, 41)]
    assert len({m.partition_id for m in messages}) == 1


def test_same_requests(service: TopicService, channel: Channel, driver: ydb.Driver):
    """Field by field, for the same rows; where they differ, we mean to."""
    rows = bodies(3)
    with driver.topic_client.writer(
        "t",
        producer_id="p",
        codec=ydb.TopicCodec.RAW,
        auto_seqno=False,
        auto_created_at=False,
    ) as theirs:
        theirs.write(
            [
                ydb.TopicWriterMessage(
                    body, seqno=n, created_at=BEGAN, metadata_items={"k": b"v"}
                )
                for n, body in enumerate(rows, 1)
            ]
        )
    with_theirs = {
        kind: service.requests("StreamWrite", kind)
        for kind in ("init_request", "write_request")
    }
    service.log.clear()
    ours = table(
        rows,
        created_at=pa.array([BEGAN] * 3, pa.timestamp("us", "UTC")),
        metadata_items=pa.array([[("k", b"v")]] * 3, pa.map_(pa.string(), pa.binary())),
    )
    writer(channel, 0, id_="p").write([ours])
    (our_init,) = service.requests("StreamWrite", "init_request")
    (their_init,) = with_theirs["init_request"]
    assert our_init.producer_id == "p/0"
    our_init.producer_id = our_init.message_group_id = "p"
    assert our_init == their_init
    ours_sent = [
        m
        for request in service.requests("StreamWrite", "write_request")
        for m in request.messages
    ]
    theirs_sent = [m for r in with_theirs["write_request"] for m in r.messages]
    assert ours_sent == theirs_sent
    codecs = {r.codec for r in with_theirs["write_request"]}
    assert codecs == {r.codec for r in service.requests("StreamWrite", "write_request")}
