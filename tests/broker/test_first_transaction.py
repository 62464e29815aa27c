# SPDX-License-Identifier: Apache-2.0
"""Several tasks may be the first to write to a topic in transactions, at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings, Resend
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.sink.probes import prepare_for_transactions
from pulsar_spark.testing.admin import Admin
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from pulsar_spark.wire.outgoing import EntryEncoder
from tests.bench.publish import client_options

#: Without preparation about one pair of three meets the broker's race.
_ROUNDS = 12


@pytest.fixture
def pools(service_url: str) -> Iterator[list[ConnectionPool]]:
    """Two that share no connection."""
    pools = [ConnectionPool(client_options(service_url)) for _ in range(2)]
    yield pools
    for pool in pools:
        pool.close()


def test_first_entries_at_once(
    pools: list[ConnectionPool], admin: Admin, namespace: str
) -> None:
    """Two transactions whose first entries come at the same time are both taken."""
    for number in range(_ROUNDS):
        topic = f"persistent://{namespace}/first-{number}"
        admin.create_topic(topic)
        prepare_for_transactions(pools[0], [topic])
        _both(pools, topic)


def _both(pools: list[ConnectionPool], topic: str) -> None:
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(lambda pool: _send(pool, topic, barrier), pools))


def _send(pool: ConnectionPool, topic: str, barrier: threading.Barrier) -> None:
    transactions = TransactionClient(pool)
    txn = transactions.begin(60_000)
    transactions.add_partitions(txn, [topic])
    settings = ProducerSettings(transactional=True, resend=Resend.IF_DEDUPLICATED)
    producers = Producers(pool, settings)
    try:
        producers.open([topic])
        producer = producers.get(topic)
        encoder = EntryEncoder(
            producer.producer_id,
            producer.registration.name,
            producer.registration.max_message_size_bytes,
            txn=txn,
        )
        now_ms = time.time_ns() // 1_000_000
        (frame,) = encoder.single(pb.MessageMetadata(), b"x", 0, now_ms)
        barrier.wait(60)  # for the others
        producers.send(producer, frame)
        producers.flush()
        assert producer.stored.rows == 1
    finally:
        producers.close()
        assert transactions.end([txn], TxnAction.COMMIT) == {txn: None}
