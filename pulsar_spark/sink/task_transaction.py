# SPDX-License-Identifier: Apache-2.0
"""The transaction of a writing task."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import TransactionClient, status_of
from pulsar_spark.errors import BrokerError, PulsarSparkError, TransactionLostError
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.commit_log import NO_TERM, Opened, Term, dump_record
from pulsar_spark.sink.journal import Journal
from pulsar_spark.wire.commands import TxnAction

logger = logging.getLogger("pulsar_spark.sink")


class TaskTransaction:
    """The transaction of a task.

    Nothing may be sent in a transaction that is over: brokers take it, and keep readers
    waiting for its end, or even lose track of what was committed. So a task asks if its
    transaction is still open, before it sends and when it is done. The machine may have
    stopped it in the meantime, and the driver given it up. Scalable topics refuse what
    is sent too late: of these it need not, and cannot, ask.

    Args:
        transactions: Asks the coordinators.
        txn: An open transaction, as ``begin`` makes it.
        timeout_ms: Milliseconds after which the coordinator aborts it.

    Attributes:
        txn: Its id.
    """

    def __init__(
        self, transactions: TransactionClient, txn: TxnId, timeout_ms: int
    ) -> None:
        self.txn = txn
        self._transactions = transactions
        self._timeout_ms = timeout_ms
        self._topics: list[str] = []
        self._confirmed = time.monotonic()

    @classmethod
    def begin(
        cls,
        pool: ConnectionPool,
        timeout_ms: int,
        coordinators: int = 0,
        *,
        near: bool = False,
        is_scalable: bool = False,
    ) -> TaskTransaction:
        """Begin a transaction at a coordinator.

        Args:
            pool: The cluster's connections.
            timeout_ms: Milliseconds after which the coordinator aborts it.
            coordinators: How many there are, as the driver found out; 0 to ask.
            near: Whether a coordinator that is connected is preferred.
            is_scalable: Whether it is to write to scalable topics.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            PulsarSparkError: No coordinator begins one.
        """
        transactions = TransactionClient(
            pool,
            patience_s=pool.write_patience_s,
            count=coordinators,
            is_scalable=is_scalable,
        )
        return cls(transactions, transactions.begin(timeout_ms, near=near), timeout_ms)

    def announce(
        self, log: Journal, batch_id: int, partition: int, term: Term = NO_TERM
    ) -> None:
        """Announce the transaction to the driver, before anything is sent in it.

        Args:
            log: The stream's.
            batch_id: The micro-batch.
            partition: The input partition.
            term: Of the driver that the task works for.

        Raises:
            PulsarSparkError: The log cannot be written to.
        """
        log.append(dump_record(Opened(batch_id, partition, self.txn, term)))

    def extend(self, topics: Sequence[str]) -> None:
        """Add topic partitions. Must be over before anything is sent to them.

        Raises:
            TransactionLostError: It is over.
            PulsarSparkError: The coordinator does not answer.
        """
        self._add(topics)
        self._topics += topics

    def confirm(self, max_age_s: float = 0.0) -> None:
        """Check that the transaction is still open.

        Args:
            max_age_s: How old an earlier answer may be, in seconds, to be good enough.

        Raises:
            TransactionLostError: It is over.
            PulsarSparkError: The coordinator does not answer.
        """
        if self._topics and time.monotonic() - self._confirmed >= max_age_s:
            self._add(self._topics[:1])

    def _add(self, topics: Sequence[str]) -> None:
        try:
            self._transactions.add_partitions(self.txn, topics)
        except BrokerError as error:
            if not status_of(self.txn, error).is_closed:
                raise
            raise self.lost(error) from None
        self._confirmed = time.monotonic()

    def lost(self, error: PulsarSparkError) -> TransactionLostError:
        """Return the error of a task whose transaction a broker calls over."""
        return TransactionLostError(
            -1,
            (),
            f"{error.message} It lived longer than `transactionTimeoutMs`, "
            f"{self._timeout_ms} ms, or the task had been given up, as slower "
            "copies of a task are. Nothing that it wrote is visible. Raise "
            "`transactionTimeoutMs`, or let each task write less.",
        )

    def abort(self) -> None:
        """Take back what was written, as far as that is possible now."""
        error = self._transactions.end([self.txn], TxnAction.ABORT)[self.txn]
        if error is not None:
            logger.info("%s", error)
        is_late = status_of(self.txn, error).is_closed
        if is_late and self._topics and not self.txn.is_scalable:
            # What may have been sent after the transaction was over keeps readers away.
            try:
                self._transactions.sweep(self.txn.most, self._topics, self._timeout_ms)
            except PulsarSparkError as error:
                logger.warning("%s", error)
