# SPDX-License-Identifier: Apache-2.0
"""Entries that try out a topic before any row is sent. No consumer ever gets them.

**Deduplication.** The protocol does not tell whether a broker deduplicates. So an entry
that is marked like the broker's own markers, which no consumer gets, is sent twice. A
broker that deduplicates drops the second one, and remembers the name of the producer:
the next time it tells without any entry.

**Transactions.** A broker prepares a topic for transactions when the first entry in one
arrives, not before. If two arrive at the same time, Pulsar 4.0.7 refuses one of them,
"Transaction Buffer take first snapshot failed", detaches all producers of the topic,
and accepts no entry in a transaction there until the topic is unloaded. One entry ahead
of all others prevents that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.errors import DeduplicationOffError, TransactionsOffError
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.topics import topic_of
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.outgoing import Encryption

#: No marker that a broker knows; it hides whatever has a type.
_MARKER_TYPE = 99


def require_deduplication(
    pool: ConnectionPool,
    topic_partition: str,
    producer_name: str,
    *,
    waits: bool = False,
    schema: SchemaInfo | None = None,
    new_encryption: Callable[[], Encryption] | None = None,
) -> None:
    """Check that the broker deduplicates entries.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name; the answer holds for all partitions of its topic.
        producer_name: Name to try it with, always the same for the same purpose.
        waits: Whether to wait for a topic that others have for themselves.
        schema: Of the rows; a topic may take no producer without one.
        new_encryption: Of the rows; a topic may take nothing without.

    Raises:
        DeduplicationOffError: It does not.
        PulsarSparkError: It cannot be asked.
    """
    transaction: TaskTransaction | None = None
    settings = ProducerSettings(
        name=producer_name,
        # Pulsar 3.0 prepares a topic for transactions as such a producer comes. Without
        # it forgets to abort there, and keeps back later rows from all consumers.
        transactional=True,
        waits=waits,
        before_resend=lambda: None if transaction is None else transaction.confirm(),
        new_encryption=new_encryption,
    )
    with Producers(pool, settings) as producers:
        producers.open([topic_partition], schema)
        producer = producers.get(topic_partition)
        if producer.registration.last_sequence_id >= 0:
            return
        with _hiding_transaction(pool, topic_partition) as transaction:
            marker = pb.MessageMetadata(marker_type=_MARKER_TYPE)
            txn = None if transaction is None else transaction.txn
            entry = producer.plain_entry(b"", metadata=marker, txn=txn)
            for _ in range(2):
                producers.send(producer, entry)
                producers.flush()
        if not producer.stored.duplicate_rows:
            raise DeduplicationOffError(topic_of(topic_partition))


@contextlib.contextmanager
def _hiding_transaction(
    pool: ConnectionPool, topic_partition: str
) -> Iterator[TaskTransaction | None]:
    """Yield a transaction that is aborted at the end, if transactions exist.

    Brokers take a marker for the end of its topic until a row follows, and readers wait
    for it; what was aborted they pass over.
    """
    with contextlib.ExitStack() as stack:
        transaction = None
        with contextlib.suppress(TransactionsOffError):
            transaction = stack.enter_context(
                aborted_transaction(pool, [topic_partition])
            )
        yield transaction


#: Topics that this process has made ready. They stay so, whichever broker has them.
_ready: set[tuple[Hashable, str]] = set()


def prepare_for_transactions(
    pool: ConnectionPool,
    topics: Iterable[str],
    *,
    may_begin: Callable[[], bool] = lambda: True,
    waits: bool = False,
    typed: Sequence[str] = (),
    schema: SchemaInfo | None = None,
    new_encryption: Callable[[], Encryption] | None = None,
) -> None:
    """Send an empty entry to each topic in a transaction that is then aborted.

    Only once in a process.

    Args:
        pool: The cluster's connections.
        topics: Full names of topic partitions.
        may_begin: Waits until a transaction may be aborted there; returns False where
            none may be.
        waits: Whether to wait for those that others have for themselves.
        typed: Those of them that have a schema.
        schema: Of the rows, as for ``require_deduplication``.
        new_encryption: In the same way.

    Raises:
        TransactionsOffError: The cluster has no transactions.
        TransactionLostError: A topic was too slow to take its entry.
        PulsarSparkError: A topic cannot be written to.
    """
    cluster = pool.options.pool_key
    topics = [topic for topic in topics if (cluster, topic) not in _ready]
    if not topics:
        return
    settings = ProducerSettings(
        transactional=True,
        waits=waits,
        before_resend=lambda: transaction.confirm(),
        new_encryption=new_encryption,
    )
    with Producers(pool, settings) as producers:
        # First, because it may take long: topics have to be loaded.
        have_schema = frozenset(typed)
        with_schema = [topic for topic in topics if topic in have_schema]
        without = [topic for topic in topics if topic not in have_schema]
        producers.open(with_schema, schema, untyped=without)
        if not may_begin():
            return
        with aborted_transaction(pool, topics) as transaction:
            for topic in topics:
                producer = producers.get(topic)
                transaction.confirm(max_age_s=pool.options.patience.confirmed_s)
                producers.send(producer, producer.plain_entry(b"", txn=transaction.txn))
            producers.flush()
    _ready.update((cluster, topic) for topic in topics)


#: How long a transaction lives that is not ended, in milliseconds: for as long it would
#: hold back all readers.
_TTL_MS = 60_000


@contextlib.contextmanager
def aborted_transaction(
    pool: ConnectionPool, topics: Sequence[str]
) -> Iterator[TaskTransaction]:
    """Yield a transaction, and abort the transaction at the end.

    Attach producers before it begins: that may take longer than it lives. Flush them
    before it ends: an entry sent in a transaction that is over would hold back the
    readers of a topic that never had another. So it is asked at the end whether the
    transaction is still open.

    Args:
        pool: The cluster's connections.
        topics: Full names of the topic partitions that are sent to.

    Raises:
        TransactionsOffError: The cluster has no transactions.
        TransactionLostError: It expired in the meantime. No reader is held back by it.
        PulsarSparkError: The coordinator does not answer, or refuses.
    """
    transaction = TaskTransaction.begin(pool, _TTL_MS, near=True)
    try:
        transaction.extend(topics)
        yield transaction
        transaction.confirm()
    finally:
        transaction.abort()
