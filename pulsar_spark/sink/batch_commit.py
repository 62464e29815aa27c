# SPDX-License-Identifier: Apache-2.0
"""The commit of a batch write: the tasks' transactions, without a log.

Pulsar cannot commit the transactions of several tasks in one step. Three rules come as
close to all or nothing as that allows:

1. Ask about each transaction before committing any. If one is over, commit none.
2. From the first commit on there is no way back: commit all, however long the
   coordinators take, for as long as the transactions live.
3. A transaction that turns out to be over by then was either committed, and the answer
   got lost, or had expired. Any entry that is visible proves the commit: see
   ``visibility``.

The first rule holds for ordinary topics. A transaction of scalable topics cannot be
asked about; its coordinator says at the third rule how it was ended.

A commit may have left out topics: see ``commit_check``. If it has left out each topic
partition that is known, nothing is visible. The rows are dropped then, as if the
transaction had expired.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import together
from pulsar_spark.client.transactions import (
    TransactionClient,
    TxnStatus,
    status_of,
)
from pulsar_spark.errors import (
    CommitInDoubtError,
    PulsarSparkError,
    ReadTimeoutError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink.commit_check import CommitCheck, sweep
from pulsar_spark.sink.commit_log import Part
from pulsar_spark.sink.visibility import Place, Visibility, find_out
from pulsar_spark.wire.commands import TxnAction
from spark_topics.client.retry import Retry
from spark_topics.text import counted, list_names

logger = logging.getLogger("pulsar_spark.sink")


_REMOVED = "The entry that would have told was removed by retention."
_NO_ENTRY = (
    "No entry is known that would tell: the broker had all of a task's rows already "
    "when they were sent again, and does not say where."
)


@dataclass
class Outcome:
    """What became of the tasks' rows, by the numbers of the tasks.

    Attributes:
        visible: Tasks whose rows are visible.
        lost: Those whose rows are not, and will never be.
        unknown: Those of which that is not known, with the reason.
        held_back: Those of ``unknown`` that open transactions hold back.
        is_looked_up: Whether entries were looked at.
    """

    visible: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    unknown: dict[int, str] = field(default_factory=dict)
    held_back: set[int] = field(default_factory=set)
    is_looked_up: bool = False


class BatchCommit:
    """Ends the transactions of a batch write. On the driver.

    Args:
        pool: The cluster's connections.
        timeout_ms: Milliseconds that these transactions live.
    """

    def __init__(self, pool: ConnectionPool, timeout_ms: int) -> None:
        self._pool = pool
        self._timeout_ms = timeout_ms
        self._transactions = TransactionClient(pool, patience_s=pool.write_patience_s)

    def commit(
        self,
        parts: Mapping[int, Part],
    ) -> None:
        """Make the rows of all tasks visible.

        Args:
            parts: What each task wrote, by its number.

        Raises:
            TransactionLostError: Transactions had expired, or a commit has left out a
                topic. Nothing is visible, unless the message says that a part of the
                rows is.
            CommitInDoubtError: Some rows may be visible, and it could not be found out
                whether all are.
            PulsarSparkError: The cluster does not answer, or refuses. Nothing is
                visible.
        """
        written = {part.txn: part.entries for part in parts.values()}
        with CommitCheck(self._pool, written, self._timeout_ms / 1000) as check:
            together(check.attach, partial(self._confirm, parts))
            outcome = self.settle(parts)
            # A look takes time, in which topics may be unloaded, or drop rows.
            left_out = check.left_out(
                (parts[task].txn for task in outcome.visible),
                is_late=outcome.is_looked_up,
            )
        tasks = {part.txn: task for task, part in parts.items()}
        if outcome.unknown:
            raise in_doubt(outcome, left_out_text(left_out, tasks))
        if outcome.lost:
            raise self._partly_lost(outcome, left_out_text(left_out, tasks))
        if left_out:
            raise left_out_error(left_out, tasks)

    def abort(self, txns: Iterable[TxnId]) -> None:
        """Take back what was not committed, as far as that is possible now.

        What stays open ends on its own. That a transaction is over is no trouble: Spark
        asks for this as well when a commit has failed.
        """
        for txn, error in self._transactions.end(txns, TxnAction.ABORT).items():
            if status_of(txn, error) is TxnStatus.UNKNOWN:
                logger.warning("%s It expires by itself.", error)

    def _confirm(self, parts: Mapping[int, Part]) -> None:
        topics = {part.txn: next(iter(part.entries)) for part in parts.values()}
        answers = self._transactions.confirm(topics)
        errors = [error for error in answers.values() if error is not None]
        if not errors:
            return
        over = [
            task
            for task, part in parts.items()
            if status_of(part.txn, answers[part.txn]).is_closed
        ]
        if not over:
            raise errors[0]
        self.abort(topics)
        raise TransactionLostError(
            -1,
            over,
            f"The transactions of {len(over)} of {len(parts)} tasks were over before "
            "the write could be committed. They live for `transactionTimeoutMs`, "
            f"{self._timeout_ms} ms, from the first row of a task to the end of the "
            "slowest one. Nothing of this write is visible. Raise "
            "`transactionTimeoutMs`, or let all tasks run at a time.",
        )

    def settle(self, parts: Mapping[int, Part]) -> Outcome:
        """Commit transactions, or find out what became of them.

        Args:
            parts: What each task wrote, by its number.
        """
        retry = self._patience()
        outcome = Outcome()
        over = []
        pending = {part.txn: task for task, part in parts.items()}
        while pending:
            again: dict[TxnId, PulsarSparkError] = {}
            for txn, error in self._transactions.end(pending, TxnAction.COMMIT).items():
                task, status = pending[txn], status_of(txn, error)
                if error is None:
                    outcome.visible.append(task)
                elif status is TxnStatus.OPPOSED:
                    outcome.lost.append(task)
                elif status is TxnStatus.OVER:
                    over.append(task)
                elif status is TxnStatus.ENDING or error.retriable:
                    again[txn] = error
                else:
                    outcome.unknown[task] = error.message
            pending = {txn: pending[txn] for txn in again}
            if pending:
                reason = next(iter(again.values()))
                try:
                    retry.pause(reason.saying(reason.message, retriable=True))
                except PulsarSparkError:
                    outcome.unknown |= {pending[t]: e.message for t, e in again.items()}
                    break
        if over:
            logger.info(
                "whether %d transactions were committed is looked up", len(over)
            )
            self._look_up({task: parts[task] for task in over}, outcome)
        return outcome

    def _look_up(self, parts: Mapping[int, Part], outcome: Outcome) -> None:
        """Find out what became of transactions that are over."""
        outcome.is_looked_up = True
        retry = self._patience()
        entries = {
            Place(part.txn, topic): entry
            for part in parts.values()
            for topic, entry in part.entries.items()
            if entry is not None
        }
        states: dict[Place, Visibility | PulsarSparkError] = {}
        pending, was_swept = entries, False
        while pending:
            turn = self._pool.retry(self._pool.options.operation_timeout_s)
            states |= find_out(self._pool, pending, turn, one_tells=True)
            if was_swept and retry.remaining_s == 0:
                break
            pending = self._sweep(states, entries)
            was_swept = True
        for task, part in parts.items():
            places = (Place(part.txn, topic) for topic in part.entries)
            looks = [states[place] for place in places if place in states]
            self._note(task, looks, outcome, is_scalable=part.txn.is_scalable)

    def _sweep(
        self,
        states: Mapping[Place, Visibility | PulsarSparkError],
        entries: Mapping[Place, MessageId],
    ) -> dict[Place, MessageId]:
        """Have topic partitions drop rows of transactions of which none are visible.

        Returns:
            The entries of which more may be known later.
        """
        decided = {p.txn for p, state in states.items() if _decides(p.txn, state)}
        failed = {
            place: state
            for place, state in states.items()
            if isinstance(state, PulsarSparkError) and place.txn not in decided
        }
        # All rows have to be held back, and not be out of sight for another reason.
        unreadable = {
            place.txn
            for place, error in failed.items()
            if not isinstance(error, ReadTimeoutError)
        }
        sweep(
            self._pool,
            [p for p in failed if p.txn not in unreadable and not p.txn.is_scalable],
        )
        return {p: entries[p] for p, error in failed.items() if error.retriable}

    def _note(
        self,
        task: int,
        states: Collection[Visibility | PulsarSparkError],
        outcome: Outcome,
        *,
        is_scalable: bool,
    ) -> None:
        """Note the state of a task's rows, by the states of entries."""
        errors = [state for state in states if isinstance(state, PulsarSparkError)]
        if Visibility.VISIBLE in states:
            outcome.visible.append(task)
        elif is_scalable and Visibility.ABORTED in states:
            outcome.lost.append(task)  # no commit leaves anything out there
        elif errors:
            outcome.unknown[task] = errors[0].message
            if all(isinstance(error, ReadTimeoutError) for error in errors):
                outcome.held_back.add(task)
        elif Visibility.REMOVED in states:  # what was removed may have been visible
            outcome.unknown[task] = _REMOVED
        elif states:
            outcome.lost.append(task)
        else:
            outcome.unknown[task] = _NO_ENTRY

    def _patience(self) -> Retry:
        # Nothing of this write is open for longer, and holds back what is looked up.
        timeout_s = self._timeout_ms / 1000 + self._pool.options.operation_timeout_s
        return self._pool.retry(timeout_s)

    def _partly_lost(self, outcome: Outcome, left_out: str) -> TransactionLostError:
        rows = "Nothing of this write is visible."
        if outcome.visible:
            rows = (
                f"The rows of the tasks {_numbers(outcome.visible)} are visible, so "
                "that to repeat the whole write stores these twice."
            )
        return TransactionLostError(
            -1,
            sorted(outcome.lost),
            f"The transactions of the tasks {_numbers(outcome.lost)} expired in the "
            f"middle of the commit. {rows}{left_out} Raise `transactionTimeoutMs`, now "
            f"{self._timeout_ms} ms.",
        )


def _decides(txn: TxnId, state: Visibility | PulsarSparkError) -> bool:
    """Return whether the state of an entry is that of the whole transaction."""
    is_aborted = txn.is_scalable and state is Visibility.ABORTED
    return is_aborted or state is Visibility.VISIBLE


def in_doubt(outcome: Outcome, left_out: str = "") -> CommitInDoubtError:
    """Return the error for an outcome of which a part is unknown.

    Args:
        outcome: What is known.
        left_out: Of the visible tasks' rows, what ``left_out_text`` says.
    """
    reason = next(iter(outcome.unknown.values()))
    return CommitInDoubtError(
        "It could not be found out whether the rows of the tasks "
        f"{_numbers(outcome.unknown)} are visible. Those of the tasks "
        f"{_numbers(outcome.visible)} are, those of the tasks "
        f"{_numbers(outcome.lost)} are not.{left_out} Look at the rows in the topic "
        "before you repeat the write: what is visible would be there twice. "
        f"{reason}",
        visible=sorted(outcome.visible),
        lost=sorted(outcome.lost),
        unknown=sorted(outcome.unknown),
    )


def left_out_error(
    places: Collection[Place],
    tasks: Mapping[TxnId, int],
    batch_id: int = -1,
    *,
    is_partial: bool = False,
) -> TransactionLostError:
    """Return the error for rows that a commit has left out.

    Args:
        places: Where.
        tasks: The number of each transaction's task.
        batch_id: The micro-batch, -1 for a batch write.
        is_partial: Whether transactions of other tasks had expired.
    """
    numbers = sorted({tasks[place.txn] for place in places})
    what = _what(batch_id)
    rest = f"all other rows of {what} are."
    if batch_id < 0:
        then = f"{rest} To repeat the write stores the others twice."
    elif is_partial:
        then = (
            "all other rows of these tasks are. Transactions of other tasks had "
            "expired: a restart writes the rows of the other tasks, and no others."
        )
    else:
        then = f"{rest} A restart goes on with the next micro-batch."
    return TransactionLostError(
        batch_id,
        numbers,
        f"{_left_out(places, tasks, batch_id)}; {then} Commits of a role that is one "
        "of `superUserRoles` in broker.conf are mended instead.",
    )


def left_out_text(places: Collection[Place], tasks: Mapping[TxnId, int]) -> str:
    """Return a batch write's sentences on left out rows; "" where there are none.

    Arguments as for ``left_out_error``.
    """
    return f" {_left_out(places, tasks)}." if places else ""


def _left_out(
    places: Collection[Place], tasks: Mapping[TxnId, int], batch_id: int = -1
) -> str:
    topics = sorted({place.topic_partition for place in places})
    numbers = _numbers({tasks[place.txn] for place in places})
    return (
        f"Pulsar left {counted(len(topics), 'topic partition')} out of the commit of "
        f"{_what(batch_id)}: {list_names(topics)}. That happens where topics are "
        f"unloaded at that moment. What the tasks {numbers} wrote there is not visible "
        "and will never be"
    )


def _what(batch_id: int) -> str:
    return "this write" if batch_id < 0 else f"micro-batch {batch_id}"


def _numbers(tasks: Iterable[int]) -> str:
    """Return numbers as text, such as ``[0-3, 7]``."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and task == runs[-1][-1] + 1:
            runs[-1][1:] = [task]
        else:
            runs.append([task])
    return f"[{', '.join('-'.join(map(str, run)) for run in runs)}]"
