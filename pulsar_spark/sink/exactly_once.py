# SPDX-License-Identifier: Apache-2.0
"""Make each micro-batch visible as a whole and once: by transactions, and their log.

Each task that has rows writes them in one transaction; the driver commits
those of the tasks that Spark counts, and aborts all others. What makes many
transactions one is the log (see ``commit_log``):

1. A task begins its transaction and logs it, before it sends anything in it. Its last
   entry is a marker, in a topic that holds nothing else.
2. The driver asks whether all these transactions are still open. It logs which of them
   it is going to commit, commits them, aborts every other one that the log names, and
   logs that it is done.
3. Before each micro-batch the driver logs that it begins, and reads the log. A decision
   that was not carried through is carried through now; what is undecided is aborted.

The order of the log settles who may decide: a driver reads its decision back before it
acts on it. If another driver had begun before the decision was logged, the decision
does not count. ``commit_protocol`` decides each step; this module takes it.

A coordinator gives the same answer about a committed transaction and an expired one: it
knows neither any more. The markers tell them apart: a marker that is visible proves
that its transaction was committed. A commit may have left out the topic of markers (see
``commit_check``): then the entries tell that the decision names, and any of them that
is visible is the proof (see ``visibility``). If some transactions of a micro-batch had
expired, it is not lost: Spark runs it again, and tasks whose rows are visible skip
them.

Tasks that write to scalable topics of Pulsar 5 have no markers: their transactions take
segments only, and the log is an ordinary topic. Their coordinators tell how a
transaction was ended, for at least 15 minutes; later the entries tell.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import together
from pulsar_spark.client.transactions import (
    ENDING,
    TransactionClient,
    TxnStatus,
    status_of,
)
from pulsar_spark.errors import (
    BrokerError,
    PulsarSparkError,
    ReadTimeoutError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink import commit_protocol
from pulsar_spark.sink.batch_commit import BatchCommit, in_doubt, left_out_error
from pulsar_spark.sink.commit_check import CommitCheck
from pulsar_spark.sink.commit_log import (
    Began,
    Outcome,
    Part,
    Partial,
    Record,
    Term,
    Written,
    dump_marker,
    dump_probe,
    dump_record,
    load_record,
    read_log,
)
from pulsar_spark.sink.commit_protocol import (
    Append,
    Check,
    CommitProgress,
    Confirm,
    CutLog,
    Effect,
    End,
    FindOut,
    ForgetMarkers,
    KeepMarkers,
    LastMarker,
    Probe,
    ReadLog,
    ReadMarkers,
    Steps,
    Wait,
)
from pulsar_spark.sink.journal import Journal
from pulsar_spark.sink.tally import Tally
from pulsar_spark.sink.visibility import Place
from pulsar_spark.wire.commands import TxnAction
from spark_topics.client.retry import Retry

__all__ = ["CommitProtocol", "CommitProgress", "marker", "markers_topic"]

logger = logging.getLogger("pulsar_spark.sink")

T = TypeVar("T")

#: How long to go on ending a transaction, in operation timeouts, at least. A broker
#: that comes back from a crash asks a client of its own what topics knew of
#: transactions. Where that gets no answer, END_TXN has none for the 30 s of its
#: timeout, and is carried out by the next attempt.
_ENDING_PATIENCE = 3

#: How many bytes of entries a decision names, which is a single message.
_NAMED_BYTES = 256 * 1024


class CommitProtocol:
    """The driver's part. Each call may come from another process.

    Args:
        pool: The cluster's connections.
        log_topic: Full name of the topic that holds the log of this stream.
        patience_s: How long to go on without any answer, in seconds; by default
            ``operation_timeout_s``.
        has_markers: Whether tasks may write markers: not to scalable topics.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        log_topic: str,
        *,
        patience_s: float | None = None,
        has_markers: bool = True,
    ) -> None:
        self._pool = pool
        self._has_markers = has_markers
        self._options = pool.options
        self._log, self._markers = (
            Journal(pool, topic, patience_s=patience_s)
            for topic in (log_topic, markers_topic(log_topic))
        )
        self._transactions = TransactionClient(pool, patience_s=patience_s)
        self._ending_s = max(
            _ENDING_PATIENCE * self._options.operation_timeout_s, patience_s or 0
        )
        self._when_done: Callable[[], object] | None = None
        self._has_decided = False  # else an earlier driver has
        self._check: CommitCheck | None = None
        self._held_back: ReadTimeoutError | None = None
        self._tasks: dict[TxnId, int] = {}
        self._left_out: list[Place] = []

    def recover(self, when_done: Callable[[], object] | None = None) -> CommitProgress:
        """Carry out what was decided, abort what was not.

        Args:
            when_done: Called, perhaps several times, once each decision of the log
                is carried out.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            TransactionLostError: What was decided is carried out, and the commit has
                left out a topic.
            CommitInDoubtError: Nothing tells what became of what was decided.
            QueryConflictError: Another run of the stream went to work in the meantime.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        with self._log:
            together(self._log.attach, self._transactions.require)
            self._when_done = when_done
            progress = self._run(
                commit_protocol.recover(uuid.uuid4().hex, has_markers=self._has_markers)
            )
        if when_done is not None:
            when_done()
        if progress.finished is not None:
            batch_id = progress.finished.batch_id
            logger.info("micro-batch %d was decided, and is finished now", batch_id)
        if progress.lost:
            logger.warning(
                "micro-batch %d: the transactions of %d tasks expired before they "
                "could be committed; these tasks write their rows again, the others "
                "do not",
                batch_id,
                len(progress.lost),
            )
        return progress.progress

    def commit(
        self,
        batch_id: int,
        txns: Mapping[int, TxnId],
        progress: CommitProgress,
        tasks: int,
        rows: Mapping[int, Tally] | None = None,
        written: Mapping[int, Written] = MappingProxyType({}),
    ) -> None:
        """Make a micro-batch visible.

        Args:
            batch_id: Which one.
            txns: The transaction of each input partition that has one.
            progress: What the tasks went by.
            tasks: Number of input partitions.
            rows: The tally of the rows of each, those included that were visible
                already; None if it is not known.
            written: Where each of these tasks wrote.

        Raises:
            TransactionLostError: One of them had expired. If that was before the
                decision, nothing is visible. Else what the others wrote is visible, and
                a restart of the stream writes the rest. Or the commit has left out a
                topic.
            QueryConflictError: Another run of the stream went to work in the meantime.
                Or a part of the micro-batch was visible, and it was cut into other
                parts now.
            PulsarSparkError: The cluster does not answer, or refuses; a restart of the
                stream goes on from here.
        """
        entries = {txn: written.get(number, {}) for number, txn in txns.items()}
        check = self._new_check(entries)
        with self._log, check:
            together(
                check.attach,
                self._log.attach,
                lambda: self._transactions.connect(txns.values()),
            )
            self._check, self._has_decided = check, True
            self._run(
                commit_protocol.commit(
                    *(batch_id, txns, progress, tasks, rows, _named(written))
                )
            )

    def _new_check(self, written: Mapping[TxnId, Written]) -> CommitCheck:
        return CommitCheck(self._pool, written, self._ending_s, self._markers.topic)

    def _append(self, record: Record) -> MessageId | None:
        """Append a record to the log.

        Raises:
            TransactionLostError: The log says now how a micro-batch ended, and rows of
                the micro-batch are lost.
        """
        message_id = self._log.append(dump_record(record))
        if isinstance(record, Outcome):
            if self._check is not None:
                self._check.forget_markers()
            if self._left_out:
                raise left_out_error(
                    *(self._left_out, self._tasks, record.batch_id),
                    is_partial=isinstance(record, Partial),
                )
        return message_id

    def _check_commits(self, parts: Mapping[int, Part], *, is_late: bool) -> None:
        """Note where rows of transactions that were committed are lost."""
        self._tasks = {part.txn: number for number, part in parts.items()}
        if self._has_decided:
            assert self._check is not None
            self._left_out = self._check.left_out(self._tasks, is_late=is_late)
            return
        # A driver that died has decided, and perhaps committed.
        written = {
            part.txn: {self._markers.topic: None, **part.entries}
            for part in parts.values()
            if part.entries
        }
        with self._new_check(written) as check:
            self._check = check
            check.attach()
            self._left_out = check.left_out(self._tasks, is_late=True)

    def abort(self, progress: CommitProgress | None = None) -> None:
        """Abort the written transactions, unless decided.

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
        with self._log:
            self._run(commit_protocol.abort(term))

    def _run(self, steps: Steps[T]) -> T:
        """Execute steps in order; return their result."""
        waits: Retry | None = None
        result: Any = None
        appended: MessageId | None = None
        while True:
            try:
                effect = steps.send(result)
            except StopIteration as end:
                return cast("T", end.value)
            if isinstance(effect, Wait):
                waits = waits or self._pool.retry(self._options.operation_timeout_s)
                result = self._has_time(waits)
            elif isinstance(effect, ReadLog):
                # Right after a record was appended, a log that ends with the record is
                # as if it had been read at that time.
                result = self._read(appended)
            else:
                result = self._do(effect)
            appended = result if isinstance(effect, Append) else None

    def _do(self, effect: Effect) -> Any:
        match effect:
            case Append(record):
                return self._append(record)
            case CutLog(last):
                self._log.forget(MessageId(*last))
            case End() | Confirm() | FindOut() | Check():
                return self._ask_coordinators(effect)
            case KeepMarkers():
                self._markers.keep()
            case Probe():
                probe = dump_probe(uuid.uuid4().hex)
                self._markers.append(probe)
                return probe
            case ReadMarkers():
                return [message for _, message in self._markers.read()]
            case LastMarker():
                marker = self._markers.last()
                return None if marker is None else marker.position
            case ForgetMarkers(last):
                self._markers.forget(MessageId(*last))
        return None

    def _ask_coordinators(self, effect: End | Confirm | FindOut | Check) -> Any:
        match effect:
            case End(txns, commits):
                action = TxnAction.COMMIT if commits else TxnAction.ABORT
                return self._end(txns, action)
            case Confirm(txns):
                return self._over(txns)
            case FindOut():
                return self._find_out(effect)
            case Check(parts, is_late):
                return self._check_commits(parts, is_late=is_late)

    def _has_time(self, waits: Retry) -> bool:
        """Wait a moment for markers that are held back, if there is time."""
        try:
            waits.pause(_held_back(self._markers.topic))
        except ReadTimeoutError as error:
            self._held_back = error
            return False
        return True

    def _read(self, up_to: MessageId | None) -> list[tuple[Term, Record]]:
        entries: list[tuple[Term, Record]] = []
        for message_id, message in self._log.read(up_to):
            record = load_record(message)
            term = message_id.position
            if isinstance(record, Began):
                record = replace(record, term=term)
            entries.append((term, record))
        if self._when_done is not None:
            state = read_log(record for _, record in entries)
            if state.prepared is None:
                self._when_done()
        return entries

    def _end(self, txns: Sequence[TxnId], action: TxnAction) -> list[TxnId]:
        """End transactions; return the transactions that had ended before.

        Raises:
            PulsarSparkError: Whether they are over is not known.
        """
        retry = self._pool.retry(self._ending_s)
        over = []
        while txns:
            again: dict[TxnId, PulsarSparkError] = {}
            for txn, error in self._transactions.end(txns, action).items():
                match status_of(txn, error):
                    case TxnStatus.DONE:
                        pass
                    case TxnStatus.OVER | TxnStatus.OPPOSED:
                        over.append(txn)
                    case TxnStatus.ENDING:
                        again[txn] = _still_ending(txn)
                    case TxnStatus.UNKNOWN:
                        assert error is not None
                        if not error.retriable:
                            raise error
                        again[txn] = error
            txns = list(again)
            if txns:
                retry.pause(again[txns[0]])
        return over

    def _over(self, txns: Sequence[TxnId]) -> list[TxnId]:
        """Return the transactions of ordinary topics that are over.

        Raises:
            PulsarSparkError: A coordinator does not answer, or refuses.
        """
        # Every task with rows has a marker, so that its topic is part of each.
        answers = self._transactions.confirm(dict.fromkeys(txns, self._markers.topic))
        over = [txn for txn in txns if status_of(txn, answers[txn]).is_closed]
        errors = [error for error in answers.values() if error is not None]
        if errors and not over:
            raise errors[0]
        return over

    def _find_out(self, effect: FindOut) -> frozenset[int]:
        """Return the input partitions whose rows are visible.

        Raises:
            CommitInDoubtError: The coordinators have forgotten the transactions, and
                the entries that would have told are gone.
            ReadTimeoutError: Markers are held back, and so are entries, or none are
                known.
        """
        if self._held_back and not all(part.entries for part in effect.parts.values()):
            raise self._held_back
        timeout_ms = 0 if effect.is_told else round(self._ending_s * 1000)
        outcome = BatchCommit(self._pool, timeout_ms).settle(effect.parts)
        if outcome.held_back and effect.is_told:
            # A marker may have been dropped, of rows that are visible later.
            reason = outcome.unknown[min(outcome.held_back)]
            raise ReadTimeoutError(reason, retriable=True)
        if outcome.unknown and not effect.is_told:
            if self._held_back and outcome.held_back == outcome.unknown.keys():
                raise self._held_back
            raise in_doubt(outcome)
        return frozenset(outcome.visible)


def _named(written: Mapping[int, Written]) -> Mapping[int, Written]:
    """Return the entries of tasks that a decision names."""
    by_use = {number: [*w.items()][::-1] for number, w in written.items()}
    for entries in by_use.values():
        # Known entries tell more. Segments that were sealed are before others.
        entries.sort(key=lambda entry: entry[1] is None)
    named: dict[int, dict[str, MessageId | None]] = {}
    topics: set[str] = set()
    size_bytes = 0
    # In turn, an entry of each task: one is enough to prove a commit.
    for turn in range(max(map(len, by_use.values()), default=0)):
        for number, entries in by_use.items():
            for topic, entry in entries[turn : turn + 1]:
                # As the log gives the id back.
                message_id = entry and MessageId(*entry.position)
                size_bytes += len(f"{message_id and message_id.position}") + 8
                size_bytes += 0 if topic in topics else len(topic) + 4
                if size_bytes > _NAMED_BYTES:
                    return named
                topics.add(topic)
                named.setdefault(number, {})[topic] = message_id
    return named


def markers_topic(log_topic: str) -> str:
    """Return the full name of the topic of markers that goes with a log."""
    return f"{log_topic}-markers"


def marker(query_id: str, batch_id: int, partition: int) -> bytes:
    """Return a task's last entry in the topic of markers."""
    return dump_marker(query_id, batch_id, partition)


def _held_back(topic: str) -> ReadTimeoutError:
    return ReadTimeoutError(
        f"{topic}: an open transaction holds back the last messages, so that it cannot "
        "be told what was committed. It ends by itself, in the longest case after "
        "`transactionTimeoutMs`.",
        topic_partition=topic,
        retriable=True,
    )


def _still_ending(txn: TxnId) -> BrokerError:
    return BrokerError(
        f"Transaction {txn} is being ended by somebody else.",
        code=ENDING,
        retriable=True,
    )
