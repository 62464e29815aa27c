# SPDX-License-Identifier: Apache-2.0
"""Transactions: begun, extended and ended at their coordinators.

A cluster has some transaction coordinators. Each is a partition of one system topic,
and is where that partition is; the upper half of a transaction's id is its number.
Sending in a transaction needs no coordinator, only the id.

Scalable topics of Pulsar 5 have transactions of their own, with coordinators that are
at the same brokers under the same numbers. What is different::

    topic                       ordinary                  scalable
    ADD_PARTITION_TO_TXN        needed, and tells         not needed, and tells nothing
                                whether it is open
    sent when it is over        stored, holds up readers  refused
    END_TXN the second time     TransactionNotFound       success, for 15 minutes
    END_TXN the other way       TransactionNotFound       InvalidTxnStatus, as long
    how long after its expiry   at once                   up to a minute
    it ends

Source: CommandNewTxn and its neighbours in PulsarApi.proto, and 4.0.7's answers to
them, which tests/broker/configured/test_transactions.py holds; of scalable topics
PIP-473, and 5.0.0-M1's answers.
"""

from __future__ import annotations

import enum
import random
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pending import Pending
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out, gather_unheard, send_all
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
    #: It was ended by the other action, or has expired. Of scalable topics only.
    OPPOSED = "opposed"
    #: It was committed, was aborted or has expired: which of these is not known.
    OVER = "over"
    #: The answer says something else.
    UNKNOWN = "unknown"

    @property
    def is_closed(self) -> bool:
        """Return whether nothing may be sent in the transaction any more."""
        return self in (TxnStatus.ENDING, TxnStatus.OPPOSED, TxnStatus.OVER)


def status_of(txn: TxnId, answer: PulsarSparkError | None) -> TxnStatus:
    """Return what an answer of ``TransactionClient.end`` or ``confirm`` means.

    Args:
        txn: The transaction that was asked about.
        answer: An error, also one that ``add_partitions`` raised; None for success.
    """
    if answer is None:
        return TxnStatus.DONE
    code = answer.code if isinstance(answer, BrokerError) else ""
    if code == ENDING and txn.is_scalable:
        return TxnStatus.OPPOSED
    return _STATUSES.get(code, TxnStatus.UNKNOWN)


_STATUSES = {OVER: TxnStatus.OVER, ENDING: TxnStatus.ENDING}


class _Coordinator(NamedTuple):
    """A transaction coordinator.

    Attributes:
        number: The upper half of the ids of its transactions.
        is_scalable: Whether its transactions write to scalable topics.
    """

    number: int
    is_scalable: bool


def _coordinator(txn: TxnId) -> _Coordinator:
    return _Coordinator(txn.most, txn.is_scalable)


def coordinator_topics(count: int) -> list[str]:
    """Return the topic partitions whose brokers have the coordinators of a cluster."""
    return [_topic(number) for number in range(count)]


def _topic(number: int) -> str:
    return TopicName.parse(COORDINATORS).partition(number).full_name


@dataclass
class _Coordinators:
    """What a process knows of the coordinators of a cluster.

    Attributes:
        count: How many there are; 0 before that is known.
        connected: Connections to those that know of us.
    """

    count: int = 0
    connected: dict[_Coordinator, Connection] = field(default_factory=dict)


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
        is_scalable: Whether the transactions that it begins are to write to scalable
            topics.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        patience_s: float | None = None,
        count: int = 0,
        is_scalable: bool = False,
    ) -> None:
        self._is_scalable = is_scalable
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
        """Begin a transaction at a random coordinator, and return the transaction's id.

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
        number = self._any(count, near) if coordinator is None else coordinator
        while True:
            asked = _Coordinator(number, self._is_scalable)
            request = commands.new_txn(number, ttl_ms, is_scalable=self._is_scalable)
            answer = self._ask({asked: (asked, request)})[asked]
            if not isinstance(answer, PulsarSparkError):
                return _txn_id(answer, asked)
            if isinstance(answer, TransportError) and self._is_connected(asked):
                raise answer.saying(
                    f"{answer.message} This is what coordinators do that have as many "
                    "open transactions as `maxActiveTransactionsPerCoordinator` in "
                    "broker.conf allows: raise it, or have fewer tasks at a time."
                )
            retry.pause(answer)
            if coordinator is None:
                number = (number + 1) % count

    def add_partitions(self, txn: TxnId, topics: Sequence[str]) -> None:
        """Tell the coordinator which topic partitions a transaction writes to.

        Call it before anything is sent there. It may be repeated. Coordinators of
        scalable topics need not be told.

        Args:
            txn: An open transaction.
            topics: Full names of topic partitions.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            BrokerError: With the code ``TransactionNotFound`` where the transaction is
                over, ``InvalidTxnStatus`` if it is just ending.
            PulsarSparkError: The coordinator does not answer, or refuses.
        """
        if not topics or txn.is_scalable:
            return
        request = commands.add_partitions_to_txn(txn, topics)
        try:
            ask_all(
                [txn],
                lambda _: self._ask({txn: (_coordinator(txn), request)}),
                self._retry(),
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
        caller can find out. Coordinators of scalable topics tell.

        Returns:
            None for each transaction that is done: every topic partition has the marker
            that makes its rows visible, or drops them. An error for each other one:
            see ``status_of``.
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
            None for each that was still open, and for each of scalable topics, of which
            nobody can ask that; for any other an error, with the code
            ``TransactionNotFound`` or ``InvalidTxnStatus`` as in ``add_partitions``.
        """
        # Adding a topic partition that is already part of it changes nothing.
        return self._outcomes(
            {
                txn: commands.add_partitions_to_txn(txn, [topic])
                for txn, topic in topics.items()
                if not txn.is_scalable
            },
            self._retry(),
        ) | {txn: None for txn in topics if txn.is_scalable}

    def sweep(self, coordinator: int, topics: Sequence[str], ttl_ms: int) -> None:
        """Make topic partitions drop rows of ended transactions of a coordinator.

        A broker takes rows of a transaction that is over, and may not be told of an
        end. It drops such rows, and takes no more of them, when a later transaction of
        the same coordinator is committed on the topic, with or without rows.

        Args:
            coordinator: Its number.
            topics: Full names of topic partitions.
            ttl_ms: Milliseconds after which the coordinator aborts the later one.

        Raises:
            PulsarSparkError: It could not be done.
        """
        txn = self.begin(ttl_ms, coordinator=coordinator)
        self.add_partitions(txn, topics)
        error = self.end([txn], TxnAction.COMMIT)[txn]
        if error is not None:
            raise error

    def ask(self, txns: Iterable[TxnId]) -> dict[TxnId, PulsarSparkError | None]:
        """Ask about transactions whose topic partitions are not known.

        Returns:
            As ``confirm``. For those of scalable topics None says nothing.
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
            answers = self._ask(
                {txn: (_coordinator(txn), requests[txn]) for txn in pending}
            )
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

        The pool remembers the brokers of all coordinators from then on: they are looked
        up together with that of the coordinator that is asked.

        Raises:
            TransactionsOffError: It has none.
            PulsarSparkError: No coordinator answers.
        """
        count = self.count()
        coordinator = _Coordinator(self._any(count, near=True), self._is_scalable)
        ask = partial(self._connect, located=coordinator_topics(count))
        ask_all([coordinator], ask, self._retry())

    def connect(self, txns: Iterable[TxnId]) -> None:
        """Connect to the coordinators of transactions, all at once, ahead of requests.

        What fails here is tried again, and told, by the request that needs it.
        """
        self._connect(set(map(_coordinator, txns)))

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
        """Return a random coordinator's number; with ``near`` of those connected."""
        numbers = [
            coordinator.number
            for coordinator in list(self._known.connected)
            if coordinator.is_scalable is self._is_scalable
            and self._is_connected(coordinator)
        ]
        # Whatever a job seeds, they share the work.
        return random.SystemRandom().choice((near and numbers) or range(count))

    def _ask(
        self, requests: Mapping[K, tuple[_Coordinator, Request[ReplyT]]]
    ) -> dict[K, ReplyT | PulsarSparkError]:
        """Ask coordinators together, a single round.

        Args:
            requests: The coordinator, and the request.

        Returns:
            A reply or an error for each.
        """
        coordinators = {key: asked for key, (asked, _) in requests.items()}
        bodies = {key: request for key, (_, request) in requests.items()}
        opened = self._connect(set(coordinators.values()))
        connections = {key: opened[asked] for key, asked in coordinators.items()}
        sent = send_all(connections, bodies)

        def send_again(silent: list[K], _: float) -> None:
            """Ask coordinators that have moved: a broker (4.0.7) may say nothing."""
            asked = {coordinators[key] for key in silent}
            self._forget(asked)
            opened = self._connect(asked)
            moved = {
                key: connection
                for key in silent
                if isinstance(connection := opened[coordinators[key]], Connection)
                and connection != connections[key]
            }
            for key in moved:
                if isinstance(reply := sent[key], Pending):
                    reply.connection.drop(reply)
            connections.update(moved)
            sent.update(send_all(moved, bodies))

        answers = gather_unheard(
            sent,
            self._options.operation_timeout_s,
            self._options.patience.unheard_s,
            send_again,
        )
        self._forget(
            coordinators[key]
            for key, answer in answers.items()
            if isinstance(answer, BrokerError) and answer.retriable
        )
        return answers

    def _forget(self, coordinators: Iterable[_Coordinator]) -> None:
        """Look coordinators up before the next request: they may have moved."""
        for coordinator in coordinators:
            self._known.connected.pop(coordinator, None)
            self._pool.forget_brokers([_topic(coordinator.number)])

    def _connect(
        self, coordinators: Iterable[_Coordinator], *, located: Iterable[str] = ()
    ) -> dict[_Coordinator, Connection | PulsarSparkError]:
        """Return connections to the brokers of coordinators, which get loaded.

        Args:
            coordinators: The coordinators.
            located: Topic partitions to look up as well, if any is looked up.
        """
        connections: dict[_Coordinator, Connection | PulsarSparkError] = {}
        topics: dict[_Coordinator, str] = {}
        for coordinator in coordinators:
            if self._is_connected(coordinator):
                connections[coordinator] = self._known.connected[coordinator]
            else:
                topics[coordinator] = _topic(coordinator.number)
        if not topics:
            return connections
        brokers = self._lookup.likely_brokers({*topics.values(), *located})
        opened = self._pool.get_all({c: brokers[name] for c, name in topics.items()})
        replies = fan_out(
            opened,
            {
                coordinator: commands.tc_client_connect(
                    coordinator.number, is_scalable=coordinator.is_scalable
                )
                for coordinator in topics
            },
            self._options.operation_timeout_s,
        )
        for coordinator, reply in replies.items():
            connection = opened[coordinator]
            if isinstance(reply, PulsarSparkError):
                self._pool.forget_brokers([topics[coordinator]])
            if isinstance(reply, BrokerError) and reply.code == "NotAllowedError":
                connections[coordinator] = _transactions_off(
                    reply.message, is_scalable=coordinator.is_scalable
                )
            elif isinstance(reply, PulsarSparkError):
                connections[coordinator] = reply.about(
                    f"Transaction coordinator {coordinator.number}"
                )
            else:
                connections[coordinator] = connection
                if isinstance(connection, Connection):
                    self._known.connected[coordinator] = connection
        return connections

    def _is_connected(self, coordinator: _Coordinator) -> bool:
        connection = self._known.connected.get(coordinator)
        return connection is not None and connection.is_open

    def _retry(self) -> Retry:
        return self._pool.retry(self._patience_s)


def _txn_id(reply: pb.CommandNewTxnResponse, asked: _Coordinator) -> TxnId:
    if not (reply.HasField("txnid_most_bits") and reply.HasField("txnid_least_bits")):
        raise ProtocolError("NEW_TXN_RESPONSE came without a transaction id.")
    if reply.txnid_most_bits != asked.number:
        raise ProtocolError(
            f"Coordinator {asked.number} gave a transaction of {reply.txnid_most_bits}."
        )
    return TxnId(reply.txnid_most_bits, reply.txnid_least_bits, asked.is_scalable)


def _name(txn: TxnId) -> str:
    return f"Transaction {txn}"


def _transactions_off(
    reason: str, *, is_scalable: bool = False
) -> TransactionsOffError:
    if is_scalable:
        return TransactionsOffError(
            f"{reason} Set transactionCoordinatorEnabled=true and "
            "transactionCoordinatorScalableTopicsEnabled=true in broker.conf."
        )
    return TransactionsOffError(
        f"{reason} Set transactionCoordinatorEnabled=true in broker.conf and, on a "
        "cluster that was set up without transactions, run `bin/pulsar "
        "initialize-transaction-coordinator-metadata -cs <configuration store> -c "
        "<cluster>` once."
    )
