"""Whether a broker finds duplicates on a topic. Nothing in the protocol says so.

So it is tried out: an entry that says of itself that it is a marker, which brokers keep
from every consumer, is sent twice. A broker that deduplicates drops the second, and
remembers the name of its producer: the next time it tells without any entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pulsar_spark.client.aborted_transaction import aborted_transaction
from pulsar_spark.client.exactly_once import TaskTransaction
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producers import Producers, ProducerSettings
from pulsar_spark.errors import DeduplicationOffError, TransactionsOffError
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb

#: No marker that a broker knows; it hides whatever has a type.
_MARKER_TYPE = 99

#: Replication would carry it to other clusters.
_HERE_ONLY = "__local__"


def require_deduplication(
    pool: ConnectionPool,
    topic_partition: str,
    producer_name: str,
    *,
    waits: bool = False,
) -> None:
    """Returns if the broker drops what it has already.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name; the answer holds for all partitions of its topic.
        producer_name: Name to try it with, always the same for the same purpose.
        waits: Whether to wait for a topic that others have for themselves.

    Raises:
        DeduplicationOffError: It does not.
        PulsarSparkError: It cannot be asked.
    """
    transaction: TaskTransaction | None = None
    settings = ProducerSettings(
        name=producer_name,
        waits=waits,
        before_resend=lambda: None if transaction is None else transaction.confirm(),
    )
    producers = Producers(pool, settings)
    try:
        producers.open([topic_partition])
        producer = producers.get(topic_partition)
        if producer.last_sequence_id >= 0:
            return
        with _hiding_transaction(pool, topic_partition) as transaction:
            marker = pb.MessageMetadata(
                marker_type=_MARKER_TYPE, replicate_to=[_HERE_ONLY]
            )
            txn = None if transaction is None else transaction.txn
            entry = producer.plain_entry(b"", metadata=marker, txn=txn)
            for _ in range(2):
                producers.send(producer, entry)
                producers.flush()
        if not producer.duplicate_rows:
            raise DeduplicationOffError(TopicName.parse(topic_partition).base.full_name)
    finally:
        producers.close()


@contextlib.contextmanager
def _hiding_transaction(
    pool: ConnectionPool, topic_partition: str
) -> Iterator[TaskTransaction | None]:
    """A transaction that is aborted, where the cluster has them.

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
