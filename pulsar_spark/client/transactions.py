# SPDX-License-Identifier: Apache-2.0
"""Transactions: begun, extended and ended at their coordinators.

A cluster has some transaction coordinators. Each is a partition of one system topic,
and is where that partition is; the upper half of a transaction's id is its number.
Sending in a transaction needs no coordinator, only the id.

Source: CommandNewTxn and its neighbours in PulsarApi.proto, and 4.0.7's answers to
them, which tests/broker/test_transactions.py holds.
"""

from __future__ import annotations

import enum
import random
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import (
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TransactionsOffError,
    TransportError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ReplyT, Request, TxnAction
from spark_topics.client.retry import Retry, ask_all
from spark_topics.text import list_names

K = TypeVar("K")

#: The code for a transaction that is over, whichever way.
OVER = "TransactionNotFound"
#: The code for one that is just being ended, by this action or the other.
ENDING = "InvalidTxnStatus"

#: The topic whose partitions are the coordinators.
COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


class TxnStatus(enum.Enum):
    """What a coordinator's answer says of a transaction, see ``status_of``."""

    #: What was asked for was done.
    DONE = "done"
    #: It is just being ended, by the same action or the other.
    ENDING = "ending"
    #: It was committed, was aborted or has expired: which of these is not known.
    OVER = "over"
    #: The answer says something else.
    UNKNOWN = "unknown"

    @property
    def is_closed(self) -> bool:
        """Return whether nothing may be sent in the transaction any more."""
        return self in (TxnStatus.ENDING, TxnStatus.OVER)


def status_of(answer: PulsarSparkError | None) -> TxnStatus:
    """Return what an answer of ``TransactionClient.end`` or ``confirm`` means.

    Args:
        answer: An error, also one that ``add_partitions`` raised; None for success.
    """
    if answer is None:
        return TxnStatus.DONE
    code = answer.code if isinstance(answer, BrokerError) else ""
    return _STATUSES.get(code, TxnStatus.UNKNOWN)


_STATUSES = {OVER: TxnStatus.OVER, ENDING: TxnStatus.ENDING}


@dataclass
class _Coordinators:
    """The coordinators of a cluster, as far as this process knows them.

    Attributes:
        count: How many there are; 0 before that is known.
        connected: Connections to those that know of us, by number.
    """

    count: int = 0
    connected: dict[int, Connection] = field(default_factory=dict)


#: What all clients of a pool share: each coordinator is connected to once.
_of_pools: weakref.WeakKeyDictionary[ConnectionPool, _Coordinators] = (
    weakref.WeakKeyDictionary()
)


class TransactionClient:
    """Begins, extends and ends transactions. Safe to use from several threads.

    Coordinators that are moving, busy or gone are looked up and asked again. Silence
    uses up the time for that, too.

    Args:
        pool: The cluster's connections.
        patience_s: How long to go on without any answer, in seconds; by default
            ``operation_timeout_s``, as always where transactions are to be ended.
        count: How many coordinators there are, where another process has found out; 0
            where that is not known.
    """

    def __init__(
        self, pool: ConnectionPool, *, patience_s: float | None = None, count: int = 0
    ) -> None:
        self._pool = pool
        self._options = pool.options
        usual_s = self._options.operation_timeout_s
        self._patience_s = usual_s if patience_s is None else patience_s
        self._lookup = TopicLookup(pool)
        self._known = _of_pools.setdefault(pool, _Coordinators())
        self._known.count = self._known.count or count

    def begin(
        self, ttl_ms: int, *, coordinator: int | None = None, near: bool = False
    ) -> TxnId:
        """Begin a transaction at a random coordinator, and return its id.

        If a coordinator dies before it answers, the transaction that it was asked for
        may be open, too; it has touched nothing, and ends on its own.

        Args:
            ttl_ms: Milliseconds after which the coordinator aborts it; at least 100.
            coordinator: Number of the one to ask, and no other.
            near: Whether to ask one that is connected, if there is any.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            PulsarSparkError: No coordinator gives one.
        """
        retry = self._retry()
        count = self.count()
        tc_id = self._any(count, near) if coordinator is None else coordinator
        while True:
            request = commands.new_txn(tc_id, ttl_ms)
            answer = self._ask({tc_id: (tc_id, request)})[tc_id]
            if not isinstance(answer, PulsarSparkError):
                return _txn_id(answer, tc_id)
            if isinstance(answer, TransportError) and self._is_connected(tc_id):
                raise answer.saying(
                    f"{answer.message} This is what coordinators do that have as many "
                    "open transactions as `maxActiveTransactionsPerCoordinator` in "
                    "broker.conf allows: raise it, or have fewer tasks at a time."
                )
            retry.pause(answer)
            if coordinator is None:
                tc_id = (tc_id + 1) % count

    def add_partitions(self, txn: TxnId, topics: Sequence[str]) -> None:
        """Tell the coordinator which topic partitions a transaction writes to.

        Call it before anything is sent there. It may be repeated.

        Args:
            txn: An open transaction.
            topics: Full names of topic partitions.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            BrokerError: With the code ``TransactionNotFound`` where the transaction is
                over, ``InvalidTxnStatus`` if it is just ending.
            PulsarSparkError: The coordinator does not answer, or refuses.
        """
        if not topics:
            return
        request = commands.add_partitions_to_txn(txn, topics)
        try:
            ask_all(
                [txn], lambda _: self._ask({txn: (txn.most, request)}), self._retry()
            )
        except PulsarSparkError as error:
            raise error.about(f"{_name(txn)}, {list_names(topics)}") from None

    def end(
        self, txns: Iterable[TxnId], action: TxnAction
    ) -> dict[TxnId, PulsarSparkError | None]:
        """Commit or abort transactions, all at once.

        Where an answer is lost with its connection the request is repeated. If it had
        been done it meets ``TransactionNotFound`` then; so it does when the transaction
        had been ended the other way, or had expired. Which of these it was, only the
        caller can find out.

        Returns:
            None for each transaction that is done: every topic partition has the marker
            that makes its rows visible, or drops them. An error for each other one:
            most often a BrokerError with the code ``TransactionNotFound`` (over,
            whichever way) or ``InvalidTxnStatus`` (just being ended, by the same action
            or the other).
        """
        return self._outcomes(
            {txn: commands.end_txn(txn, action) for txn in txns},
            self._pool.retry(self._options.operation_timeout_s),
        )

    def confirm(
        self, topics: Mapping[TxnId, str]
    ) -> dict[TxnId, PulsarSparkError | None]:
        """Ask whether transactions are still open, all at once.

        Args:
            topics: For each transaction, the full name of a topic partition of it.

        Returns:
            None for each that was still open; for any other an error, with the code
            ``TransactionNotFound`` or ``InvalidTxnStatus`` as in ``add_partitions``.
        """
        # Adding a topic partition that is already part of it changes nothing.
        return self._outcomes(
            {
                txn: commands.add_partitions_to_txn(txn, [topic])
                for txn, topic in topics.items()
            },
            self._retry(),
        )

    def ask(self, txns: Iterable[TxnId]) -> dict[TxnId, PulsarSparkError | None]:
        """Ask about transactions whose topic partitions are not known.

        Returns:
            As ``confirm``.
        """
        # No request asks this. But adding nothing is refused where they are over.
        return self._outcomes(
            {txn: commands.add_partitions_to_txn(txn, []) for txn in txns},
            self._retry(),
        )

    def _outcomes(
        self, requests: Mapping[TxnId, Request[Any]], retry: Retry
    ) -> dict[TxnId, PulsarSparkError | None]:
        """Send each request, again where that may help; return None for a success."""
        outcomes: dict[TxnId, PulsarSparkError | None] = {}
        pending = list(requests)
        while pending:
            answers = self._ask({txn: (txn.most, requests[txn]) for txn in pending})
            failed: dict[TxnId, PulsarSparkError] = {}
            for txn, answer in answers.items():
                outcomes[txn] = None
                if isinstance(answer, PulsarSparkError):
                    outcomes[txn] = error = answer.about(_name(txn))
                    if error.retriable:
                        failed[txn] = error
            if len(failed) < len(pending):
                retry.restart()
            pending = list(failed)
            if pending:
                try:
                    retry.pause(failed[pending[0]])
                except PulsarSparkError:
                    break  # it is among the outcomes
        return outcomes

    def require(self) -> None:
        """Make sure that the cluster has transactions.

        Raises:
            TransactionsOffError: It has none.
            PulsarSparkError: No coordinator answers.
        """
        ask_all([self._any(self.count(), near=True)], self._connect, self._retry())

    def connect(self, txns: Iterable[TxnId]) -> None:
        """Connect to the coordinators of transactions, all at once, before they matter.

        What fails here is tried again, and told, by the request that needs it.
        """
        self._connect({txn.most for txn in txns})

    def count(self) -> int:
        """Return how many coordinators the cluster has.

        Raises:
            TransactionsOffError: It has none.
            PulsarSparkError: The cluster does not answer.
        """
        if not self._known.count:
            counts = self._lookup.partition_counts([COORDINATORS])
            self._known.count = counts[COORDINATORS] or 0
        if not self._known.count:
            raise _transactions_off("The cluster has no transaction coordinators.")
        return self._known.count

    def _any(self, count: int, near: bool) -> int:
        """Return the number of a random coordinator; ``near``: of a connected one."""
        numbers = [n for n in list(self._known.connected) if self._is_connected(n)]
        # Whatever a job seeds, they share the work.
        return random.SystemRandom().choice((near and numbers) or range(count))

    def _ask(
        self, requests: Mapping[K, tuple[int, Request[ReplyT]]]
    ) -> dict[K, ReplyT | PulsarSparkError]:
        """Ask coordinators together, a single round.

        Args:
            requests: Number of the coordinator, and the request.

        Returns:
            A reply or an error for each.
        """
        connections = self._connect({tc_id for tc_id, _ in requests.values()})
        answers = fan_out(
            {key: connections[tc_id] for key, (tc_id, _) in requests.items()},
            {key: request for key, (_, request) in requests.items()},
            self._options.operation_timeout_s,
        )
        for key, answer in answers.items():
            if isinstance(answer, BrokerError) and answer.retriable:
                self._known.connected.pop(requests[key][0], None)  # it may have moved
        return answers

    def _connect(
        self, tc_ids: Iterable[int]
    ) -> dict[int, Connection | PulsarSparkError]:
        """Return connections to the brokers of coordinators, which get loaded."""
        connections: dict[int, Connection | PulsarSparkError] = {}
        topics: dict[str, int] = {}
        for tc_id in tc_ids:
            if self._is_connected(tc_id):
                connections[tc_id] = self._known.connected[tc_id]
            else:
                name = TopicName.parse(COORDINATORS).partition(tc_id).full_name
                topics[name] = tc_id
        if not topics:
            return connections
        opened = self._pool.get_all(self._lookup.brokers(topics))
        replies = fan_out(
            opened,
            {
                topic: commands.tc_client_connect(tc_id)
                for topic, tc_id in topics.items()
            },
            self._options.operation_timeout_s,
        )
        for topic, reply in replies.items():
            tc_id, connection = topics[topic], opened[topic]
            if isinstance(reply, BrokerError) and reply.code == "NotAllowedError":
                connections[tc_id] = _transactions_off(reply.message)
            elif isinstance(reply, PulsarSparkError):
                connections[tc_id] = reply.about(f"Transaction coordinator {tc_id}")
            else:
                connections[tc_id] = connection
                if isinstance(connection, Connection):
                    self._known.connected[tc_id] = connection
        return connections

    def _is_connected(self, tc_id: int) -> bool:
        connection = self._known.connected.get(tc_id)
        return connection is not None and connection.is_open

    def _retry(self) -> Retry:
        return self._pool.retry(self._patience_s)


def _txn_id(reply: pb.CommandNewTxnResponse, tc_id: int) -> TxnId:
    if not (reply.HasField("txnid_most_bits") and reply.HasField("txnid_least_bits")):
        raise ProtocolError("NEW_TXN_RESPONSE came without a transaction id.")
    if reply.txnid_most_bits != tc_id:
        raise ProtocolError(
            f"Coordinator {tc_id} gave a transaction of {reply.txnid_most_bits}."
        )
    return TxnId(reply.txnid_most_bits, reply.txnid_least_bits)


def _name(txn: TxnId) -> str:
    return f"Transaction {txn}"


def _transactions_off(reason: str) -> TransactionsOffError:
    return TransactionsOffError(
        f"{reason} Set transactionCoordinatorEnabled=true in broker.conf and, on a "
        "cluster that was set up without transactions, run `bin/pulsar "
        "initialize-transaction-coordinator-metadata -cs <configuration store> -c "
        "<cluster>` once."
    )
