"""The log of an exactly-once stream: what was begun, decided and done.

One topic, one JSON object a message. Tasks write the second kind, the driver the
others::

    {"v":1,"began":"c0ff"}                             a driver goes to work
    {"v":1,"opened":7,"partition":3,"txn":[0,41]}      a task of micro-batch 7 began
    {"v":1,"prepared":7,"query":"a1","run":"c0ff",
     "tasks":4,"txns":{"3":[0,41]}}                    these are to be committed
    {"v":1,"committed":7,"query":"a1"}                 they are

``prepared`` is the decision. Before it, everything of the micro-batch is aborted and
written anew; behind it, it is carried through, by whoever reads the log next. It counts
only for the driver that began last: one that was given up, and did not die, decides
nothing any more. The query is the one whose checkpoint counts micro-batches: a new
checkpoint begins at 0 again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulsar_spark.errors import CheckpointError

_VERSION = 1

#: ``(most, least)`` of a transaction's id.
Txn = tuple[int, int]


@dataclass(frozen=True)
class Began:
    """A driver goes to work on a micro-batch; none that began before may decide."""

    run: str


@dataclass(frozen=True)
class Opened:
    """A task has begun a transaction, and sent nothing in it yet."""

    batch_id: int
    partition: int
    txn: Txn


@dataclass(frozen=True)
class Prepared:
    """These transactions, by input partition, are what the micro-batch wrote.

    Attributes:
        batch_id: The micro-batch.
        txns: The transactions.
        query_id: The query that it is of.
        run: Who decides it.
        tasks: Input partitions of the micro-batch, those without rows included.
    """

    batch_id: int
    txns: Mapping[int, Txn]
    query_id: str = ""
    run: str = ""
    tasks: int = 0


@dataclass(frozen=True)
class Committed:
    """The micro-batch is visible, whole."""

    batch_id: int
    query_id: str = ""


Record = Began | Opened | Prepared | Committed


@dataclass
class LogState:
    """What a log says, read to its end.

    Attributes:
        query_id: The query that the micro-batches are of, the last one in the log.
        run: The driver that began last, "" for none.
        committed: The last micro-batch that is visible, -1 for none.
        prepared: The decision that was not carried through for sure; None for none.
        undecided: Transactions that no decision names, with their micro-batches. They
            may still be open.
    """

    query_id: str = ""
    run: str = ""
    committed: int = -1
    prepared: Prepared | None = None
    undecided: dict[Txn, int] = field(default_factory=dict)


def read_log(records: Iterable[Record]) -> LogState:
    """What the records say, in their order."""
    state = LogState()
    decided: set[Txn] = set()
    for record in records:
        match record:
            case Began():
                state.run = record.run
            case Opened():
                state.undecided[record.txn] = record.batch_id
            case Prepared() if record.run == state.run:
                _turn_to(state, record.query_id)
                state.prepared = record
                decided.update(record.txns.values())
            case Prepared():  # by one that was given up
                state.undecided |= dict.fromkeys(record.txns.values(), record.batch_id)
            case Committed():
                _turn_to(state, record.query_id)
                state.committed = max(state.committed, record.batch_id)
    # Not when they come: a message may be there twice, and the second time late.
    for txn in decided:
        state.undecided.pop(txn, None)
    if state.prepared is not None and state.prepared.batch_id <= state.committed:
        state.prepared = None
    return state


def _turn_to(state: LogState, query_id: str) -> None:
    if state.query_id != query_id:
        state.query_id, state.committed, state.prepared = query_id, -1, None


def dump_record(record: Record) -> bytes:
    """A record as a message."""
    fields: dict[str, Any]
    match record:
        case Began():
            fields = {"began": record.run}
        case Opened():
            fields = {
                "opened": record.batch_id,
                "partition": record.partition,
                "txn": record.txn,
            }
        case Prepared():
            fields = {
                "prepared": record.batch_id,
                "query": record.query_id,
                "run": record.run,
                "tasks": record.tasks,
                "txns": dict(record.txns),
            }
        case Committed():
            fields = {"committed": record.batch_id, "query": record.query_id}
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":")).encode()


def load_record(message: bytes | memoryview) -> Record:
    """A message as a record.

    Raises:
        CheckpointError: It is none, or of a later version.
    """
    text = bytes(message)
    try:
        fields = json.loads(text)
        version = fields["v"]
        if version == _VERSION:
            return _record(fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        version = None
    what = "was written by a later version" if version else "is none of ours"
    raise CheckpointError(
        f"The log of commits holds a message that {what}: {text[:200]!r}. Every "
        "exactly-once stream needs a `commitTopic` of its own, with nothing else in it."
    )


def _record(fields: dict[str, Any]) -> Record:
    if "began" in fields:
        return Began(str(fields["began"]))
    if "opened" in fields:
        return Opened(
            int(fields["opened"]), int(fields["partition"]), _txn(fields["txn"])
        )
    if "prepared" in fields:
        txns = {int(p): _txn(txn) for p, txn in fields["txns"].items()}
        return Prepared(
            int(fields["prepared"]),
            txns,
            str(fields["query"]),
            str(fields["run"]),
            int(fields["tasks"]),
        )
    return Committed(int(fields["committed"]), str(fields["query"]))


def _txn(pair: Any) -> Txn:
    most, least = pair
    return int(most), int(least)


def dump_marker(query_id: str, batch_id: int, partition: int) -> bytes:
    """What a transaction leaves in the topic of markers to prove its commit."""
    fields = [_VERSION, query_id, batch_id, partition]
    return json.dumps(fields, separators=(",", ":")).encode()


def dump_probe(name: str) -> bytes:
    """A message for the topic of markers: where it can be read, all before it can."""
    return json.dumps([_VERSION, name], separators=(",", ":")).encode()


def load_marker(message: bytes | memoryview) -> tuple[str, int, int] | None:
    """``(query_id, batch_id, partition)`` of a marker, None for a probe.

    Raises:
        CheckpointError: It is neither, or of a later version.
    """
    try:
        match json.loads(bytes(message)):
            case [1, str()]:
                return None
            case [1, str(query_id), int(batch_id), int(partition)]:
                return query_id, batch_id, partition
    except ValueError:
        pass
    raise CheckpointError(
        f"The topic of markers holds a message that is none: {bytes(message)[:200]!r}."
    )
