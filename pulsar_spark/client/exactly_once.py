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
nobody.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_spark.client.journal import Journal
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.retry import Retry
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.commit_log import (
    Began,
    Committed,
    LogState,
    Opened,
    Prepared,
    Record,
    dump_marker,
    dump_probe,
    dump_record,
    load_marker,
    load_record,
    read_log,
)
from pulsar_spark.errors import (
    BrokerError,
    CheckpointError,
    PulsarSparkError,
    ReadTimeoutError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.commands import TxnAction, TxnId

logger = logging.getLogger("pulsar_spark.client")

#: A transaction that another END_TXN is just ending.
_ENDING = "InvalidTxnStatus"
#: One that is over, whichever way.
_OVER = "TransactionNotFound"

#: Markers are forgotten once in so many micro-batches: it costs some round trips.
_FORGET_MARKERS_EVERY = 50


@dataclass(frozen=True)
class Progress:
    """What of a stream is visible already.

    Attributes:
        query_id: The query that counted the micro-batches.
        run: Which driver found that out, and when.
        committed: The last micro-batch that is visible whole, -1 for none.
        partial: The micro-batch of which some parts are visible, -1 for none.
        parts: Which, by input partition.
        tasks: How many input partitions it had.
    """

    query_id: str = ""
    run: str = ""
    committed: int = -1
    partial: int = -1
    parts: frozenset[int] = frozenset()
    tasks: int = 0

    def of(self, query_id: str) -> Progress:
        """What it means to a query: one with a new checkpoint begins at 0 again."""
        if query_id == self.query_id:
            return self
        return Progress(query_id, self.run)

    def has(self, batch_id: int, partition: int) -> bool:
        """Whether the rows of a task are visible already.

        Raises:
            CheckpointError: Later micro-batches are visible already.
        """
        if batch_id < self.committed:
            raise CheckpointError(
                f"Micro-batch {batch_id} cannot be written: the rows of micro-batch "
                f"{self.committed} of the same query are visible already. Was the "
                "checkpoint set back? Use a new one."
            )
        if batch_id == self.committed:
            return True
        return batch_id == self.partial and partition in self.parts


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
        """Carries out what was decided, aborts what was not.

        Raises:
            TransactionsOffError: The cluster has no transactions.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        self._transactions.require()
        run = uuid.uuid4().hex
        self._log.append(dump_record(Began(run)))
        state = self._state()
        self._abort(state.undecided)
        if state.committed < 0:
            self._markers.keep()  # before there is one
        progress = Progress(state.query_id, run, state.committed)
        if state.prepared is None:
            return progress
        decision = state.prepared
        batch_id = decision.batch_id
        logger.info("micro-batch %d was decided, and is finished now", batch_id)
        lost = self._carry_out(decision)
        if not lost:
            self._log.append(dump_record(Committed(batch_id, decision.query_id)))
            return replace(progress, committed=batch_id)
        logger.warning(
            "micro-batch %d: the transactions of %d tasks expired before they could be "
            "committed; these tasks write their rows again, the others do not",
            batch_id,
            len(lost),
        )
        parts = self._visible(decision)
        if not parts:
            return progress
        return replace(progress, partial=batch_id, parts=parts, tasks=decision.tasks)

    def commit(
        self, batch_id: int, txns: Mapping[int, TxnId], progress: Progress, tasks: int
    ) -> None:
        """Makes a micro-batch visible.

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
        if progress.partial == batch_id and progress.tasks != tasks:
            raise _cut_anew(batch_id, progress.tasks, tasks)
        decision = Prepared(batch_id, txns, progress.query_id, progress.run, tasks)
        self._log.append(dump_record(decision))
        places, records = zip(*self._read(), strict=True)
        if decision not in records:  # whoever took over is done with it
            raise _taken_over(batch_id)
        # What came behind the decision is the next one's business.
        at = records.index(decision)
        state = read_log(records[: at + 1])
        if state.prepared != decision:
            raise _taken_over(batch_id)
        lost = self._carry_out(decision)
        self._abort(state.undecided)
        if lost:
            raise TransactionLostError(batch_id, lost)
        self._log.append(dump_record(Committed(batch_id, decision.query_id)))
        self._log.forget(places[at])
        if batch_id % _FORGET_MARKERS_EVERY == 0:
            self._markers.forget_all()

    def abort(self) -> None:
        """Takes back what was written, unless it was decided.

        Spark asks for this as well when a commit failed half-way: then there is nothing
        to take back, and the next run finishes it.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses. The transactions
                end by themselves then.
        """
        self._abort(self._state().undecided)

    def _read(self) -> list[tuple[MessageId, Record]]:
        return [(place, load_record(message)) for place, message in self._log.read()]

    def _state(self) -> LogState:
        return read_log(record for _, record in self._read())

    def _abort(self, txns: Iterable[tuple[int, int]]) -> None:
        """Aborts what may still be open; that it is over already is as good."""
        self._end([TxnId(*txn) for txn in txns], TxnAction.ABORT)

    def _carry_out(self, decision: Prepared) -> list[int]:
        """Commits; returns the input partitions whose rows did not become visible."""
        txns = {TxnId(*txn): p for p, txn in decision.txns.items()}
        over = self._end(list(txns), TxnAction.COMMIT)
        if not over:
            return []
        visible = self._visible(decision)
        return sorted({txns[txn] for txn in over} - visible)

    def _visible(self, decision: Prepared) -> frozenset[int]:
        """Input partitions of a micro-batch whose markers can be read."""
        probe = dump_probe(uuid.uuid4().hex)
        self._markers.append(probe)
        retry = Retry(self._options, self._options.operation_timeout_s)
        while True:
            # Nothing may be open that could hold it back: tasks of a run before may
            # still come up with transactions.
            self._abort(self._state().undecided)
            messages = [message for _, message in self._markers.read()]
            if probe in messages:
                break
            retry.pause(_held_back(self._markers.topic))
        markers = filter(None, map(load_marker, messages))
        wanted = decision.query_id, decision.batch_id
        return frozenset(marker[2] for marker in markers if marker[:2] == wanted)

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
                if code == _OVER:
                    over.append(txn)
                elif code == _ENDING:
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

    def announce(self, log: Journal, batch_id: int, partition: int) -> None:
        """Tells the driver of it. Must be over before anything is sent in it.

        Raises:
            PulsarSparkError: The log cannot be written to.
        """
        log.append(dump_record(Opened(batch_id, partition, self.txn)))

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
            if error.code not in (_OVER, _ENDING):
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
        is_late = isinstance(error, BrokerError) and error.code in (_OVER, _ENDING)
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


def markers_topic(log_topic: str) -> str:
    """Full name of the topic of markers that goes with a log."""
    return f"{log_topic}-markers"


def marker(query_id: str, batch_id: int, partition: int) -> bytes:
    """What a task leaves in the topic of markers, as its last entry."""
    return dump_marker(query_id, batch_id, partition)


def _taken_over(batch_id: int) -> CheckpointError:
    return CheckpointError(
        f"Another run of this query went to work while micro-batch {batch_id} was "
        "written: what this one wrote is not made visible. Is the query running twice? "
        "Different queries need an `idempotenceId` each, and a `commitTopic` each."
    )


def _cut_anew(batch_id: int, before: int, now: int) -> CheckpointError:
    return CheckpointError(
        f"A part of micro-batch {batch_id} is visible, the rows of some of its "
        f"{before} tasks. Now it was cut into {now} tasks: which rows are missing "
        "cannot be told. Run it with the settings it had, those that say how many "
        "partitions the source and shuffles have."
    )


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
        code=_ENDING,
    )
    error.retriable = True
    return error
