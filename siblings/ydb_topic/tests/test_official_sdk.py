# SPDX-License-Identifier: Apache-2.0
"""The official SDK works with the double as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ydb

from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.refusal import BAD_REQUEST, UNAVAILABLE
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService

DEADLINE_S = 20


@pytest.fixture
def driver(service: TopicService) -> Iterator[ydb.Driver]:
    """A driver of the SDK."""
    endpoint = f"grpc://localhost:{service.port}"
    with ydb.Driver(endpoint=endpoint, database=DATABASE) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        yield driver


def write(driver: ydb.Driver, *bodies: str, producer: str = "p") -> None:
    """Write as the SDK's own examples do."""
    with driver.topic_client.writer(
        "t", producer_id=producer, codec=ydb.TopicCodec.GZIP
    ) as writer:
        writer.write(
            [
                ydb.TopicWriterMessage(body, metadata_items={"k": b"v"})
                for body in bodies
            ]
        )
        writer.close(timeout=DEADLINE_S)


def test_writes_and_reads(service: TopicService, driver: ydb.Driver):
    """What its writer wrote its reader reads, with metadata, and commits."""
    bodies = [f"body {n}" for n in range(500)]
    write(driver, *bodies)
    assert len(service.store.stored("t")) == 500
    read: list[str] = []
    with driver.topic_client.reader("t", consumer="c") as reader:
        while len(read) < 500:
            batch = reader.receive_batch(timeout=DEADLINE_S)
            read += [message.data.decode() for message in batch.messages]
            assert batch.messages[0].metadata_items == {"k": b"v"}
            reader.commit_with_ack(batch, timeout=DEADLINE_S)
    assert read == bodies
    assert sum(service.store.find("t").consumers["c"].values()) == 500


def test_sends_again(service: TopicService, driver: ydb.Driver):
    """After a fault it sends again, and nothing is stored twice."""
    service.faults.add(Fault(At.WRITE, When.AFTER, status=UNAVAILABLE))
    write(driver, "a", "b")
    assert service.count("StreamWrite", "init_request") == 2
    assert [m.seq_no for m in service.store.stored("t")] == [1, 2]


def test_is_told_of_refusals(service: TopicService, driver: ydb.Driver):
    """What is final ends its writer."""
    service.faults.add(Fault(At.WRITE, status=BAD_REQUEST))
    with pytest.raises(ydb.issues.BadRequest):
        write(driver, "a")


def test_describes_creates_and_commits(service: TopicService, driver: ydb.Driver):
    """Its calls are answered."""
    client = driver.topic_client
    client.create_topic("new", min_active_partitions=3, consumers=["mine"])
    service.store.put("new", 1, b"a", b"b")
    client.commit_offset("new", "mine", 1, 2)
    described = client.describe_topic("new", include_stats=True)
    assert [p.partition_id for p in described.partitions] == [0, 1, 2]
    assert described.partitions[1].partition_stats.partition_end == 2
    client.drop_topic("new")
    with pytest.raises(ydb.issues.SchemeError):
        client.describe_topic("new")


def test_logs_in():
    """A user with a password gets a token, and writes with it."""
    users = {"ann": "right"}
    with TopicService(tokens={}, users=users) as service:
        service.store.create("t")
        endpoint = f"grpc://localhost:{service.port}"
        config = ydb.DriverConfig(endpoint, DATABASE)
        config.credentials = ydb.StaticCredentials(config, "ann", "right")
        with ydb.Driver(config) as driver:
            driver.wait(DEADLINE_S, fail_fast=True)
            write(driver, "a")
        assert service.logins == 1
        assert len(service.store.stored("t")) == 1
