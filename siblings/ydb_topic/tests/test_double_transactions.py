# SPDX-License-Identifier: Apache-2.0
"""The official SDK writes in transactions to the double, which keeps their rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ydb

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from tests.support.waiting import await_true

DEADLINE_S = 20


@pytest.fixture
def driver(service: TopicService) -> Iterator[ydb.Driver]:
    """A driver of the SDK."""
    endpoint = f"grpc://localhost:{service.port}"
    with ydb.Driver(endpoint=endpoint, database=DATABASE) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        yield driver


def write(
    driver: ydb.Driver, tx: Any, *numbers: int, topic: str = "t", producer: str = "p"
) -> None:
    """Write messages with these numbers in a transaction, and wait for the answers."""
    writer = driver.topic_client.tx_writer(
        tx, topic, producer_id=producer, auto_seqno=False, codec=ydb.TopicCodec.RAW
    )
    for number in numbers:
        writer.write(
            ydb.TopicWriterMessage(b"%d" % number, seqno=number), timeout=DEADLINE_S
        )
    writer.flush(timeout=DEADLINE_S)


def stored(service: TopicService, topic: str = "t") -> list[int]:
    """The numbers that are stored, in order."""
    return [m.seq_no for m in service.store.stored(topic)]


def test_commit(service: TopicService, driver: ydb.Driver):
    """Nothing is there before it, and all of both topics after."""
    service.store.create("other")

    def both(tx: Any) -> None:
        write(driver, tx, 1, 2, 3)
        write(driver, tx, 7, topic="other", producer="q")
        assert stored(service) == stored(service, "other") == []

    with ydb.QuerySessionPool(driver) as pool:
        pool.retry_tx_sync(both)
    assert (stored(service), stored(service, "other")) == ([1, 2, 3], [7])


def test_rollback_and_end_of_session(service: TopicService, driver: ydb.Driver):
    """Both drop what was staged; its numbers may be used again."""
    with ydb.QuerySessionPool(driver) as pool:
        with pool.checkout() as session, session.transaction() as tx:
            tx.begin()
            write(driver, tx, 1)
            tx.rollback()
        session = pool.acquire()
        tx = session.transaction()
        tx.begin()
        write(driver, tx, 1)
        session_id = session.session_id
        service.transactions.end_session(session_id)
        with pytest.raises(ydb.issues.BadSession):
            tx.commit()
        pool.release(session)
        assert stored(service) == []
        pool.retry_tx_sync(lambda tx: write(driver, tx, 1))
    assert stored(service) == [1]
    await_true(
        lambda: not service.transactions.sessions, "the end of sessions", DEADLINE_S
    )


def test_numbers_that_are_stored(service: TopicService, driver: ydb.Driver):
    """One number that is not above the producer's aborts all of the transaction."""
    service.store.create("other")
    with ydb.QuerySessionPool(driver) as pool, pool.checkout() as session:
        tx = session.transaction()
        tx.begin()
        write(driver, tx, 5, 6)
        write(driver, tx, 1, topic="other")
        topic = service.store.find("t")
        assert topic is not None
        topic.partitions[topic.bindings["p"]].last_seq_no["p"] = 5
        with pytest.raises(ydb.issues.Aborted, match="MinSeqNo"):
            tx.commit()
    assert stored(service) == stored(service, "other") == []
