"""Whether a broker finds duplicates on a topic. Nothing in the protocol says so.

So it is tried out: an entry that says of itself that it is a marker, which brokers keep
from every consumer, is sent twice. A broker that deduplicates drops the second, and
remembers the name of its producer: the next time it tells without any entry.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import DeduplicationOffError, TransactionsOffError
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction, TxnId
from pulsar_spark.wire.outgoing import EntryEncoder

#: No marker that a broker knows; it hides whatever has a type.
_MARKER_TYPE = 99

#: Replication would carry it to other clusters.
_HERE_ONLY = "__local__"

#: Long enough for two round trips.
_TTL_MS = 60_000


def require_deduplication(
    pool: ConnectionPool, topic_partition: str, producer_name: str
) -> None:
    """Returns if the broker drops what it has already.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name; the answer holds for all partitions of its topic.
        producer_name: Name to try it with, always the same for the same purpose.

    Raises:
        DeduplicationOffError: It does not.
        PulsarSparkError: It cannot be asked.
    """
    producers = Producers(pool, ProducerSettings(name=producer_name))
    try:
        producers.open([topic_partition])
        producer = producers.get(topic_partition)
        if producer.last_sequence_id >= 0:
            return
        with _hiding_transaction(pool, topic_partition) as txn:
            encoder = EntryEncoder(
                producer.producer_id,
                producer.name,
                producer.max_message_size_bytes,
                txn=txn,
            )
            marker = pb.MessageMetadata(
                marker_type=_MARKER_TYPE, replicate_to=[_HERE_ONLY]
            )
            (frame,) = encoder.single(marker, b"", 0, time.time_ns() // 1_000_000)
            for _ in range(2):
                producers.send(producer, frame)
                producers.flush()
        if not producer.duplicate_rows:
            raise DeduplicationOffError(TopicName.parse(topic_partition).base.full_name)
    finally:
        producers.close()


@contextlib.contextmanager
def _hiding_transaction(
    pool: ConnectionPool, topic_partition: str
) -> Iterator[TxnId | None]:
    """A transaction that is aborted, where the cluster has them.

    Brokers take a marker for the end of its topic until a row follows, and readers wait
    for it; what was aborted they pass over.
    """
    transactions = TransactionClient(pool)
    try:
        txn = transactions.begin(_TTL_MS)
    except TransactionsOffError:
        yield None
        return
    try:
        transactions.add_partitions(txn, [topic_partition])
        yield txn
    finally:
        transactions.end([txn], TxnAction.ABORT)
