"""Topics made ready for transactions, before several tasks write to them at once.

A broker prepares a topic at the first entry in a transaction that comes to it, and not
before. Where two come at the same time, Pulsar 4.0.7 refuses one of them, "Transaction
Buffer take first snapshot failed", lets go of all producers of the topic, and takes no
entry in a transaction there any more until the topic is unloaded. One entry ahead of
all others prevents that.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_spark.client.aborted_transaction import aborted_transaction
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producers import Producers, ProducerSettings
from pulsar_spark.options import ClientOptions

#: Seconds of sending after which the transaction is asked about again.
_CONFIRMED_S = 1.0

#: What this process has done already. A topic stays ready, wherever it moves.
_ready: set[tuple[ClientOptions, str]] = set()


def prepare_for_transactions(
    pool: ConnectionPool, topics: Iterable[str], *, waits: bool = False
) -> None:
    """Sends an empty entry to each of them in a transaction that is then aborted.

    Only once in a process.

    Args:
        pool: The cluster's connections.
        topics: Full names of topic partitions.
        waits: Whether to wait for those that others have for themselves.

    Raises:
        TransactionsOffError: The cluster has no transactions.
        TransactionLostError: A topic was too slow to take its entry.
        PulsarSparkError: A topic cannot be written to.
    """
    topics = [topic for topic in topics if (pool.options, topic) not in _ready]
    if not topics:
        return
    settings = ProducerSettings(
        transactional=True,
        waits=waits,
        before_resend=lambda: transaction.confirm(),
    )
    producers = Producers(pool, settings)
    try:
        # First, because it may take long: topics have to be loaded.
        producers.open(topics)
        with aborted_transaction(pool, topics) as transaction:
            for topic in topics:
                producer = producers.get(topic)
                transaction.confirm(max_age_s=_CONFIRMED_S)
                producers.send(producer, producer.plain_entry(b"", txn=transaction.txn))
            producers.flush()
    finally:
        producers.close()
    _ready.update((pool.options, topic) for topic in topics)
