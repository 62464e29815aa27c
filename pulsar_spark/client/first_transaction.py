"""Topics made ready for transactions, before several tasks write to them at once.

A broker prepares a topic at the first entry in a transaction that comes to it, and not
before. Where two come at the same time, Pulsar 4.0.7 refuses one of them, "Transaction
Buffer take first snapshot failed", lets go of all producers of the topic, and takes no
entry in a transaction there any more until the topic is unloaded. One entry ahead of
all others prevents that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.options import ClientOptions
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from pulsar_spark.wire.outgoing import EntryEncoder

#: As long as coordinators let a transaction be, where nobody ends it.
_TTL_MS = 60_000

#: What this process has done already. A topic stays ready, wherever it moves.
_ready: set[tuple[ClientOptions, str]] = set()


def prepare_for_transactions(pool: ConnectionPool, topics: Iterable[str]) -> None:
    """Sends an empty entry to each of them in a transaction that is then aborted.

    Only once in a process.

    Args:
        pool: The cluster's connections.
        topics: Full names of topic partitions.

    Raises:
        TransactionsOffError: The cluster has no transactions.
        PulsarSparkError: A topic cannot be written to.
    """
    topics = [topic for topic in topics if (pool.options, topic) not in _ready]
    if not topics:
        return
    transactions = TransactionClient(pool)
    txn = transactions.begin(_TTL_MS)
    producers = Producers(pool, ProducerSettings(transactional=True))
    try:
        transactions.add_partitions(txn, topics)
        producers.open(topics)
        for topic in topics:
            producer = producers.get(topic)
            encoder = EntryEncoder(
                producer.producer_id,
                producer.name,
                producer.max_message_size_bytes,
                txn=txn,
            )
            now_ms = time.time_ns() // 1_000_000
            for frame in encoder.single(pb.MessageMetadata(), b"", 0, now_ms):
                producers.send(producer, frame)
        producers.flush()
    finally:
        producers.close()
        transactions.end([txn], TxnAction.ABORT)
    _ready.update((pool.options, topic) for topic in topics)
