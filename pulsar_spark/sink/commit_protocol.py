# SPDX-License-Identifier: Apache-2.0
"""The steps of an exactly-once commit and their decisions; no broker, no clock.

``recover``, ``commit`` and ``abort`` are generators. Each value that they yield is a
step to take with the log, the markers or transactions; they are sent its result, and
return the outcome in the end. ``sink.exactly_once`` takes these steps on a cluster. The
tests take them on a model, in any order and with every kind of fault.

This holds for any number of drivers, wherever one of them was stopped:

- A decision counts between the ``began`` of its driver and any other ``began``.
  So anyone who reads the log after it knows that, and carries it out.
- A driver ends no transactions of later drivers: their terms are larger than its own.
- The log is cut only where nothing after the cut needs what was before it: right
  before the driver's own ``began``, when all of that is settled and written down, or
  right after its own decision.
- Markers are forgotten only up to one that was there before any later driver began:
  none of them belongs to a decision that a driver may still ask about.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from pulsar_spark.errors import QueryConflictError, TransactionLostError
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.commit_log import (
    NO_TERM,
    Began,
    Committed,
    LogState,
    Outcome,
    Part,
    Partial,
    Prepared,
    Record,
    Term,
    Written,
    load_marker,
    read_log,
)
from pulsar_spark.sink.tally import Tally, total

T = TypeVar("T")

#: A log of more records is cut when the next micro-batch begins. A commit cuts it
#: anyway; micro-batches without rows have none, nor have attempts that fail.
CUT_LOG_AFTER = 100

#: Markers are forgotten once in this many micro-batches: it costs some round trips.
FORGET_MARKERS_EVERY = 50

_NONE: tuple[int, ...] = ()
_NO_PARTS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CommitProgress:
    """What of a stream is visible already.

    Attributes:
        query_id: The query that counted the micro-batches.
        run: Which driver found that out, and when.
        term: That driver's, by which drivers are in order.
        committed: The last micro-batch that is visible whole, -1 for none.
        partial: The micro-batch of which some parts are visible, -1 for none.
        parts: Which, by input partition.
        tasks: How many input partitions it had.
        rows: The tally of all rows of ``committed``; None if it is not known.
        part_rows: The tally of each of ``parts``, as far as it is known.
        others: How the last decisions of other queries ended.
        before: Another query that used the log last, "" for none.
    """

    query_id: str = ""
    run: str = ""
    committed: int = -1
    partial: int = -1
    parts: frozenset[int] = frozenset()
    tasks: int = 0
    term: Term = NO_TERM
    rows: Tally | None = None
    part_rows: Mapping[int, Tally] = field(default_factory=dict, hash=False)
    others: tuple[Outcome, ...] = ()
    before: str = ""

    def of(self, query_id: str) -> CommitProgress:
        """Return this as a query sees it; a new checkpoint starts from nothing."""
        if query_id == self.query_id:
            return self
        for outcome in self.others:
            if outcome.query_id == query_id:
                progress = _progress(outcome, self.run, self.term)
                return replace(progress, before=self.query_id)
        return CommitProgress(query_id, self.run, term=self.term, before=self.query_id)

    def has(self, batch_id: int, partition: int) -> bool:
        """Return whether the rows of a task are visible already.

        Raises:
            QueryConflictError: Later micro-batches are visible already.
        """
        if batch_id < self.committed:
            raise QueryConflictError(
                f"Micro-batch {batch_id} cannot be written: the rows of micro-batch "
                f"{self.committed} of the same query are visible already. Was the "
                "checkpoint set back? Use a new one.",
                (batch_id, self.committed),
            )
        if batch_id == self.committed:
            return True
        return batch_id == self.partial and partition in self.parts

    def without_parts(self) -> CommitProgress:
        """Return what the driver needs of this: parts are the tasks' business."""
        return replace(self, parts=_NO_PARTS, part_rows={}, others=())

    def require_same_part(self, batch_id: int, partition: int, now: Tally) -> None:
        """Compare the rows of a task with its visible rows, before the task skips them.

        Args:
            batch_id: The micro-batch.
            partition: The task's input partition.
            now: The tally of its rows.

        Raises:
            QueryConflictError: Other rows are visible.
        """
        before = self.part_rows.get(partition)
        if not now.rows:
            return  # nothing is left out, as where `checkpoint` has emptied the task
        if batch_id == self.partial and before is not None and before.differs(now):
            which = f"Task {partition} of micro-batch {batch_id}"
            raise _other_rows(which, batch_id, before, now)

    def require_same_rows(self, batch_id: int, now: Tally) -> None:
        """Check that a micro-batch is the visible micro-batch, if there is any.

        Args:
            batch_id: The micro-batch.
            now: The tally of the rows of all its tasks.

        Raises:
            QueryConflictError: Other rows are visible.
        """
        before = self.rows
        if batch_id == self.committed and before is not None and before.differs(now):
            raise _other_rows(f"Micro-batch {batch_id}", batch_id, before, now)

    def require_same_cut(self, batch_id: int, tasks: int) -> None:
        """Make sure that tasks can tell which of the visible parts are theirs.

        Raises:
            QueryConflictError: The micro-batch was cut into other parts before.
        """
        if self.partial == batch_id and self.tasks != tasks:
            raise _cut_anew(batch_id, self.tasks, tasks)


# -- what is to be done, with its result -----------------------------------------------


@dataclass(frozen=True)
class Append:
    """Append a record to the log. No result."""

    record: Record


@dataclass(frozen=True)
class ReadLog:
    """Read the log. Result: each record with its position, in order."""


@dataclass(frozen=True)
class CutLog:
    """Forget the log up to and including a position. No result."""

    last: Term


@dataclass(frozen=True)
class End:
    """End transactions. Result: those that were over before, whichever way."""

    txns: tuple[TxnId, ...]
    commits: bool


@dataclass(frozen=True)
class Confirm:
    """Ask whether transactions of ordinary topics are open. Result: those that are not.

    Of scalable topics that cannot be asked.
    """

    txns: tuple[TxnId, ...]


@dataclass(frozen=True)
class FindOut:
    """Find out by entries how transactions ended that are over.

    Result: the input partitions whose rows are visible. Where nothing tells, it fails,
    unless the markers have told already that there are none.
    """

    parts: Mapping[int, Part]
    is_told: bool = False


@dataclass(frozen=True)
class Check:
    """Make sure that commits have left no topic partition out. No result.

    Where they have, and it cannot be mended, the driver fails once the log says how the
    micro-batch ended.
    """

    parts: Mapping[int, Part]
    is_late: bool


@dataclass(frozen=True)
class KeepMarkers:
    """Create a subscription so that markers are kept from here on. No result."""


@dataclass(frozen=True)
class Probe:
    """Append a message to the markers. Result: it."""


@dataclass(frozen=True)
class ReadMarkers:
    """Read the markers. Result: all messages that no open transaction holds back."""


@dataclass(frozen=True)
class LastMarker:
    """Find the last marker. Result: its position, None where there is none."""


@dataclass(frozen=True)
class ForgetMarkers:
    """Forget the markers up to and including a position. No result."""

    last: Term


@dataclass(frozen=True)
class Wait:
    """Wait a moment, as markers are held back. Result: whether there was time."""


Effect = (
    Append
    | ReadLog
    | CutLog
    | End
    | Confirm
    | FindOut
    | Check
    | KeepMarkers
    | Probe
    | ReadMarkers
    | LastMarker
    | ForgetMarkers
    | Wait
)
Entries = Sequence[tuple[Term, Record]]
Steps = Generator[Effect, Any, T]


# -- the steps -------------------------------------------------------------------------


@dataclass(frozen=True)
class Recovered:
    """What ``recover`` found.

    Attributes:
        progress: What is visible.
        finished: The decision that it had to carry out, None for none.
        lost: Input partitions of that one whose rows did not become visible.
    """

    progress: CommitProgress
    finished: Prepared | None = None
    lost: tuple[int, ...] = ()


def recover(run: str, *, has_markers: bool = True) -> Steps[Recovered]:
    """Go to work: carry out what was decided, abort what was not.

    Args:
        run: A name that no driver had before.
        has_markers: Whether tasks may write markers.

    Raises:
        QueryConflictError: Another driver went to work in the meantime.
    """
    entries, position = yield from _begin(run)
    term = entries[position][0]
    state = read_log((record for _, record in entries), term)
    yield from _end(state)
    if has_markers:
        # Before there is one. Also behind micro-batches that went to a scalable topic.
        yield KeepMarkers()
    outcome, lost = state.outcome, _NONE
    if state.prepared is not None:
        outcome, lost = yield from _settle(state.prepared, state, term)
        yield Append(outcome)
        if _has_markers(state.prepared):
            yield from _forget_markers(term)
    if position and len(entries) > CUT_LOG_AFTER:
        if outcome is not None and outcome is state.outcome:
            yield Append(replace(outcome, term=term, others=state.others))
        yield CutLog(entries[position - 1][0])
    progress = replace(_progress(outcome, run, term), others=state.others)
    return Recovered(progress, state.prepared, lost)


def commit(
    batch_id: int,
    txns: Mapping[int, TxnId],
    progress: CommitProgress,
    tasks: int,
    rows: Mapping[int, Tally] | None = None,
    entries: Mapping[int, Written] = MappingProxyType({}),
) -> Steps[None]:
    """Make a micro-batch visible. Arguments and errors as for ``CommitProtocol``."""
    progress.require_same_cut(batch_id, tasks)
    term = progress.term
    yield from _require_open(batch_id, txns, progress.run)
    query_id = progress.query_id
    decision = Prepared(
        *(batch_id, txns, query_id, progress.run, tasks, term, rows, entries)
    )
    yield Append(decision)
    log: Entries = yield ReadLog()
    positions, records = zip(*log, strict=True)
    if decision not in records:  # whoever took over is done with it
        raise _taken_over(batch_id)
    index = records.index(decision)
    state = read_log(records[: index + 1])
    if state.prepared != decision:
        raise _taken_over(batch_id)
    _, lost = yield from _carry_out(decision, term)
    yield from _end_undecided(log, term)
    if lost:
        raise TransactionLostError(batch_id, lost)
    tally = total(rows)
    yield Append(Committed(batch_id, query_id, term, term, tally, state.others))
    yield CutLog(positions[index])
    since = max(progress.committed, 0)
    is_time = batch_id // FORGET_MARKERS_EVERY != since // FORGET_MARKERS_EVERY
    if is_time and _has_markers(decision):
        yield from _forget_markers(term)


def _require_open(batch_id: int, txns: Mapping[int, TxnId], run: str) -> Steps[None]:
    """Require that no transaction has expired before the decision to commit them.

    Raises:
        TransactionLostError: Some have expired.
        QueryConflictError: Another driver went to work, and aborted them.
    """
    ordinary = tuple(txn for txn in txns.values() if not txn.is_scalable)
    if not ordinary:
        return
    over: Collection[TxnId] = yield Confirm(ordinary)
    if not over:
        return
    entries: Entries = yield ReadLog()
    runs = [record.run for _, record in entries if isinstance(record, Began)]
    if runs[-1:] != [run]:
        raise _taken_over(batch_id)
    lost = sorted(number for number, txn in txns.items() if txn in over)
    raise TransactionLostError(batch_id, lost, _nothing_committed(batch_id, len(lost)))


def abort(term: Term | None) -> Steps[None]:
    """Abort the transactions of this and earlier drivers, unless decided.

    Args:
        term: The driver's. None if it is not known: then only what those before the
            last one wrote.
    """
    entries: Entries = yield ReadLog()
    if term is None:
        ledger_id, entry_id = read_log(record for _, record in entries).term
        term = ledger_id, entry_id - 1
    yield from _end_undecided(entries, term)


def _begin(run: str) -> Steps[tuple[Entries, int]]:
    """Record the start of a driver; return the log and the record's position."""
    for _ in range(2):
        yield Append(Began(run))
        entries: Entries = yield ReadLog()
        runs = [
            record.run if isinstance(record, Began) else None for _, record in entries
        ]
        if run in runs:
            return entries, runs.index(run)
        if any(runs):
            break
        # Nothing kept the log before it was read for the first time; or another driver
        # came and is done. Either way it is as if this one had not begun yet.
    raise _taken_over()


def _end_undecided(entries: Entries, term: Term) -> Steps[None]:
    """Abort what no decision names, but nothing of later drivers."""
    yield from _end(read_log((record for _, record in entries), term))


def _end(state: LogState) -> Steps[None]:
    if state.undecided:
        yield End(tuple(state.undecided), commits=False)


def _settle(
    decision: Prepared, state: LogState, term: Term
) -> Steps[tuple[Outcome, tuple[int, ...]]]:
    """Carry out an earlier driver's decision: return the outcome, and lost tasks."""
    visible, lost = yield from _carry_out(decision, term)
    batch_id, query_id, of = decision.batch_id, decision.query_id, decision.term
    if not lost:
        tally = total(decision.rows)
        return Committed(batch_id, query_id, term, of, tally, state.others), _NONE
    outcome = state.outcome
    if isinstance(outcome, Partial) and outcome.batch_id == batch_id:
        visible |= outcome.parts
    rows = decision.rows
    if rows is not None:
        rows = {part: rows[part] for part in visible if part in rows}
    return (
        Partial(
            *(batch_id, query_id, visible, decision.tasks, term, of, rows),
            others=state.others,
        ),
        lost,
    )


def _carry_out(
    decision: Prepared, term: Term
) -> Steps[tuple[frozenset[int], tuple[int, ...]]]:
    """Commit what was decided.

    Returns:
        The input partitions whose rows are visible, and those whose rows are lost. If
        this is the second decision about the micro-batch, the visible ones may include
        some of the first.
    """
    partitions = frozenset(decision.txns)
    over: Iterable[TxnId] = yield End(tuple(decision.txns.values()), commits=True)
    parts = decision.parts(frozenset(over))
    visible, is_told = _NO_PARTS, False
    if not all(part.txn.is_scalable for part in parts.values()):
        visible, is_told = yield from _visible(decision, term)
    # A commit may have left out the topic of markers: a marker is held back then, or
    # was dropped.
    unseen = {p: part for p, part in parts.items() if p not in visible}
    open_parts = {
        p: part for p, part in unseen.items() if part.txn.is_scalable or not is_told
    }
    unlikely = {
        p: part for p, part in unseen.items() if part.entries and p not in open_parts
    }
    if unlikely:
        visible |= yield FindOut(unlikely, is_told=True)
    if open_parts:
        visible |= yield FindOut(open_parts)
    lost = parts.keys() - visible
    committed = {txn for p, txn in decision.txns.items() if p not in lost}
    yield Check(decision.parts(committed), is_late=bool(parts))
    return visible | (partitions - lost), tuple(sorted(lost))


def _has_markers(decision: Prepared) -> bool:
    """Return whether tasks of a micro-batch wrote markers: not to scalable topics."""
    return not all(txn.is_scalable for txn in decision.txns.values())


def _visible(decision: Prepared, term: Term) -> Steps[tuple[frozenset[int], bool]]:
    """Return the input partitions of a micro-batch whose markers can be read.

    And whether these are all markers: none is held back.
    """
    probe = yield Probe()
    while True:
        # Nothing may be open that could hold it back: tasks of a run before may
        # still come up with transactions.
        entries: Entries = yield ReadLog()
        yield from _end_undecided(entries, term)
        messages: Sequence[bytes] = yield ReadMarkers()
        if is_all := probe in messages:
            break
        has_time: bool = yield Wait()
        if not has_time:
            break
    markers = filter(None, map(load_marker, messages))
    micro_batch = decision.query_id, decision.batch_id
    visible = (marker[2] for marker in markers if marker[:2] == micro_batch)
    return frozenset(visible), is_all


def _forget_markers(term: Term) -> Steps[None]:
    """Forget the markers; all that was decided is settled, and that is in the log."""
    last: Term | None = yield LastMarker()
    # Of a later driver none had been there, if that has not even begun now.
    entries: Entries = yield ReadLog()
    is_overtaken = any(
        isinstance(record, Began) and position > term for position, record in entries
    )
    if last is not None and not is_overtaken:
        yield ForgetMarkers(last)


def _progress(outcome: Outcome | None, run: str, term: Term) -> CommitProgress:
    match outcome:
        case Committed(batch_id, query_id):
            return CommitProgress(query_id, run, batch_id, term=term, rows=outcome.rows)
        case Partial(batch_id, query_id, parts, tasks):
            partial = batch_id if parts else -1
            return CommitProgress(
                *(query_id, run, batch_id - 1, partial, parts, tasks, term),
                part_rows=outcome.rows or {},
            )
    return CommitProgress("", run, term=term)


def _taken_over(batch_id: int | None = None) -> QueryConflictError:
    which = "a micro-batch" if batch_id is None else f"micro-batch {batch_id}"
    return QueryConflictError(
        f"Another run of this query went to work while {which} was "
        "written: what this one wrote is not made visible. Is the query running twice? "
        "Different queries need an `idempotenceId` each, and a `commitTopic` each."
    )


def _nothing_committed(batch_id: int, tasks: int) -> str:
    return (
        f"The transactions of {tasks} tasks were over before micro-batch {batch_id} "
        "could be committed. They live for `transactionTimeoutMs`, from the first row "
        "of a task to the end of the slowest one. Nothing was committed, and nothing "
        "is lost or doubled: start the query again. Raise `transactionTimeoutMs`, or "
        "let all tasks run at a time."
    )


def _cut_anew(batch_id: int, before: int, now: int) -> QueryConflictError:
    return QueryConflictError(
        f"A part of micro-batch {batch_id} is visible, the rows of some of its "
        f"{before} tasks. Now it was cut into {now} tasks: which rows are missing "
        "cannot be told. Run it with the settings it had, those that say how many "
        "partitions the source and shuffles have.",
        (batch_id, batch_id),
    )


def _other_rows(
    which: str, batch_id: int, before: Tally, now: Tally
) -> QueryConflictError:
    return QueryConflictError(
        f"{which} is visible already, with {before}. Now it has other rows, {now}, "
        "and none of them were written. Most likely the checkpoint was set back by one "
        "micro-batch, as by a backup or by the loss of its newest file, so that Spark "
        "planned this number anew. Or the source or the query gives other rows when it "
        "is repeated. To go on from this checkpoint, set another `idempotenceId` or "
        "`commitTopic`. That begins a new log: this micro-batch is written as it is "
        "now, and those of its rows that are visible already are there twice.",
        (batch_id, batch_id),
    )
