"""Micro-batches that become visible whole and once: transactions, and a log of them.

Each task that has rows writes them in a transaction of its own; the driver commits
those of the tasks that Spark counts, and aborts all others. What makes many
transactions one is the log (see ``commit_log``):

1. A task begins its transaction and says so in the log, before it sends anything in it.
   Its last entry is a marker, in a topic of their own.
2. The driver writes down which transactions it is going to commit, commits them, aborts
   every other that the log names, and writes down that it is done.
3. Before each micro-batch the driver writes down that it goes to work, and reads the
   log. A decision that was not carried through is carried through now; what is
   undecided is aborted.

The order of the log settles who may decide: a driver reads its decision back before it
acts on it. If another one had gone to work before the decision came, it counts for
nobody. What decides all this, step by step, is in ``commit_protocol``; here it is done.

A coordinator says the same of a transaction that was committed and of one that has
expired: it knows neither any more. The markers tell them apart, because they are
visible exactly where their transaction was committed. A micro-batch of which a part had
expired is not lost: Spark runs it again, and tasks whose markers are there skip their
rows.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pulsar_spark import commit_protocol
from pulsar_spark.client.journal import Journal
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.retry import Retry
from pulsar_spark.client.transactions import ENDING, OVER, TransactionClient
from pulsar_spark.commit_log import (
    NO_TERM,
    Began,
    Opened,
    Record,
    Term,
    dump_marker,
    dump_probe,
    dump_record,
    load_record,
)
from pulsar_spark.commit_protocol import (
    Append,
    CutLog,
    Effect,
    End,
    ForgetMarkers,
    KeepMarkers,
    LastMarker,
    Probe,
    Progress,
    ReadLog,
    ReadMarkers,
    Steps,
    Wait,
)
from pulsar_spark.errors import (
    BrokerError,
    PulsarSparkError,
    ReadTimeoutError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.commands import TxnAction, TxnId

__all__ = ["CommitProtocol", "Progress", "TaskTransaction", "marker", "markers_topic"]

logger = logging.getLogger("pulsar_spark.client")

T = TypeVar("T")


class CommitProtocol:
    """The driver's part. Each call may come from another process.

    Args:
        pool: The cluster's connections.
        log_topic: Full name of the topic that holds the log of this stream.
    """

    def __init__(self, pool: ConnectionPool, log_topic: str) -> None:
        self._options = pool.options
        self._log = Journal(pool, log_topic)
        self._markers = Journal(pool, markers_topic(log_topic))
        self._transactions = TransactionClient(pool)

    def recover(self) -> Progress:
        """Carry out what was decided, abort what was not.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            CheckpointError: Another run of the stream went to work meanwhile.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        self._transactions.require()
        found = self._run(commit_protocol.recover(uuid.uuid4().hex))
        if found.finished is not None:
            batch_id = found.finished.batch_id
            logger.info("micro-batch %d was decided, and is finished now", batch_id)
        if found.lost:
            logger.warning(
                "micro-batch %d: the transactions of %d tasks expired before they "
                "could be committed; these tasks write their rows again, the others "
                "do not",
                batch_id,
                len(found.lost),
            )
        return found.progress

    def commit(
        self, batch_id: int, txns: Mapping[int, TxnId], progress: Progress, tasks: int
    ) -> None:
        """Make a micro-batch visible.

        Args:
            batch_id: Which one.
            txns: The transaction of each input partition that has one.
            progress: What the tasks went by.
            tasks: Number of input partitions.

        Raises:
            TransactionLostError: One of them had expired. What the others wrote is
                visible; a restart of the stream writes the rest.
            CheckpointError: Another run of the stream went to work meanwhile. Or a part
                of the micro-batch was visible, and it was cut into other parts now.
            PulsarSparkError: The cluster does not answer, or refuses; a restart of the
                stream goes on from here.
        """
        self._run(commit_protocol.commit(batch_id, txns, progress, tasks))

    def abort(self, progress: Progress | None = None) -> None:
        """Take back what was written, unless it was decided.

        Spark asks for this as well when a commit failed half-way: then there is nothing
        to take back, and the next run finishes it. Nor is it for this run to end what a
        later one writes.

        Args:
            progress: What the tasks went by. None where no task has told: then the
                transactions of the last run are left to themselves, or to the next
                run, because it may not be this one.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses. The transactions
                end by themselves then.
        """
        term = None if progress is None else progress.term
        self._run(commit_protocol.abort(term))

    def _run(self, steps: Steps[T]) -> T:
        """Do what the steps ask for, one after the other; return what they do."""
        waits: Retry | None = None
        result: Any = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration as end:
                return cast("T", end.value)
            if isinstance(effect, Wait):
                waits = waits or Retry(self._options, self._options.operation_timeout_s)
                waits.pause(_held_back(self._markers.topic))
                result = None
            else:
                result = self._do(effect)

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Append(record):
                self._log.append(dump_record(record))
            case ReadLog():
                return self._read()
            case CutLog(last):
                self._log.forget(MessageId(*last))
            case End(txns, commits):
                action = TxnAction.COMMIT if commits else TxnAction.ABORT
                return self._end([TxnId(*txn) for txn in txns], action)
            case KeepMarkers():
                self._markers.keep()
            case Probe():
                probe = dump_probe(uuid.uuid4().hex)
                self._markers.append(probe)
                return probe
            case ReadMarkers():
                return [message for _, message in self._markers.read()]
            case LastMarker():
                place = self._markers.last()
                return None if place is None else _term(place)
            case ForgetMarkers(last):
                self._markers.forget(MessageId(*last))
        return None

    def _read(self) -> list[tuple[Term, Record]]:
        entries: list[tuple[Term, Record]] = []
        for place, message in self._log.read():
            record = load_record(message)
            term = _term(place)
            if isinstance(record, Began):
                record = replace(record, term=term)
            entries.append((term, record))
        return entries

    def _end(self, txns: Sequence[TxnId], action: TxnAction) -> list[TxnId]:
        """Ends transactions; returns those that were over before.

        Raises:
            PulsarSparkError: Whether they are over is not known.
        """
        retry = Retry(self._options, self._options.operation_timeout_s)
        over = []
        while txns:
            ending = []
            for txn, error in self._transactions.end(txns, action).items():
                code = error.code if isinstance(error, BrokerError) else ""
                if code == OVER:
                    over.append(txn)
                elif code == ENDING:
                    ending.append(txn)
                elif error is not None:
                    raise error
            txns = ending
            if txns:
                retry.pause(_still_ending(txns[0]))
        return over


class TaskTransaction:
    """The transaction of one task.

    Nothing may be sent in a transaction that is over: brokers take it, and keep readers
    waiting behind it, or even lose track of what was committed. So a task asks whether
    its transaction is still open, before it sends and when it is done. The machine may
    have stopped it meanwhile, and the driver given it up.

    Args:
        pool: The cluster's connections.
        timeout_ms: Milliseconds after which the coordinator aborts it.

    Attributes:
        txn: Its id.
    """

    def __init__(self, pool: ConnectionPool, timeout_ms: int) -> None:
        self._transactions = TransactionClient(pool)
        self._timeout_ms = timeout_ms
        self.txn = self._transactions.begin(timeout_ms)
        self._topics: list[str] = []
        self._confirmed = time.monotonic()

    def announce(
        self, log: Journal, batch_id: int, partition: int, term: Term = NO_TERM
    ) -> None:
        """Tell the driver of it. Must be over before anything is sent in it.

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
        """Takes topic partitions in. Must be over before anything is sent to them.

        Raises:
            TransactionLostError: It is over.
            PulsarSparkError: The coordinator does not answer.
        """
        self._add(topics)
        self._topics += topics

    def confirm(self, max_age_s: float = 0.0) -> None:
        """Returns if it is still open.

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
            if error.code not in (OVER, ENDING):
                raise
            raise TransactionLostError(
                -1,
                (),
                f"{error.message} It lived longer than `transactionTimeoutMs`, "
                f"{self._timeout_ms} ms, or the task had been given up, as slower "
                "copies of a task are. Nothing that it wrote is visible. Raise "
                "`transactionTimeoutMs`, or let each task write less.",
            ) from None
        self._confirmed = time.monotonic()

    def abort(self) -> None:
        """Ends it without a trace, as far as that is possible now."""
        error = self._transactions.end([self.txn], TxnAction.ABORT)[self.txn]
        if error is not None:
            logger.info("%s", error)
        is_late = isinstance(error, BrokerError) and error.code in (OVER, ENDING)
        if is_late and self._topics:
            self._sweep()

    def _sweep(self) -> None:
        """Frees readers of what may have been sent after the transaction was over.

        Brokers drop that, and take no more of it, when a later one of the same
        coordinator is committed on the topic, with or without rows.
        """
        try:
            other = self._transactions.begin(
                self._timeout_ms, coordinator=self.txn.most
            )
            self._transactions.add_partitions(other, self._topics)
            self._transactions.end([other], TxnAction.COMMIT)
        except PulsarSparkError as error:
            logger.warning("%s", error)


def _term(place: MessageId) -> Term:
    return place.ledger_id, place.entry_id


def markers_topic(log_topic: str) -> str:
    """Full name of the topic of markers that goes with a log."""
    return f"{log_topic}-markers"


def marker(query_id: str, batch_id: int, partition: int) -> bytes:
    """What a task leaves in the topic of markers, as its last entry."""
    return dump_marker(query_id, batch_id, partition)


def _held_back(topic: str) -> ReadTimeoutError:
    error = ReadTimeoutError(
        f"{topic}: an open transaction holds back the last messages, so that it cannot "
        "be told what was committed. It ends by itself, in the longest case after "
        "`transactionTimeoutMs`.",
        topic_partition=topic,
    )
    error.retriable = True
    return error


def _still_ending(txn: TxnId) -> BrokerError:
    error = BrokerError(
        f"Transaction {txn.most}:{txn.least} is being ended by somebody else.",
        code=ENDING,
    )
    error.retriable = True
    return error
