"""A transaction whose entries nobody ever gets, for what is sent to try a topic out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pulsar_spark.client.exactly_once import TaskTransaction
from pulsar_spark.client.pool import ConnectionPool

#: As long as coordinators let it be, where nobody ends it, in milliseconds: for as long
#: it would hold back all readers.
_TTL_MS = 60_000


@contextlib.contextmanager
def aborted_transaction(
    pool: ConnectionPool, topics: Sequence[str]
) -> Iterator[TaskTransaction]:
    """Give a transaction to send in, and abort it at the end.

    Attach producers before it: that may take longer than it lives. Flush them in it:
    what is sent in a transaction that is over holds back the readers of a topic that
    never had another, so whether it is still open is asked behind all of that.

    Args:
        pool: The cluster's connections.
        topics: Full names of the topic partitions that are sent to.

    Raises:
        TransactionsOffError: The cluster has no transactions.
        TransactionLostError: It expired meanwhile. No reader is held back by it.
        PulsarSparkError: The coordinator does not answer, or refuses.
    """
    transaction = TaskTransaction(pool, _TTL_MS)
    try:
        transaction.extend(topics)
        yield transaction
        transaction.confirm()
    finally:
        transaction.abort()
