# SPDX-License-Identifier: Apache-2.0
"""The log of an exactly-once stream: what was begun, decided and done.

One topic, one JSON object a message. Tasks write the second kind, the driver the
others::

    {"v":1,"began":"c0ff"}                             a driver goes to work
    {"v":1,"opened":7,"partition":3,"txn":[0,41],
     "term":[12,0]}                                    a task of micro-batch 7 began
    {"v":1,"prepared":7,"query":"a1","run":"c0ff",
     "tasks":4,"txns":{"3":[0,41]},"rows":{"3":[5,77]},
     "term":[12,0]}                                    these are to be committed
    {"v":1,"committed":7,"query":"a1","rows":[5,77],
     "term":[12,0],"of":[12,0]}                        they are
    {"v":1,"partial":7,"query":"a1","parts":[0,3],
     "tasks":4,"rows":{"0":[2,64],"3":[5,77]},
     "term":[13,0],"of":[12,0]}                        some are, the others expired

``prepared`` is the decision. Without a decision, everything of the micro-batch is
aborted and written again. With a decision, the next reader of the log carries the
commit through. A decision counts only if its driver began last: a driver that Spark
has replaced, but that still runs, decides nothing any more. ``query`` is the query
whose checkpoint numbers the micro-batches: with a new checkpoint the numbers begin at 0
again. ``rows`` is the tally of the rows (``sink.tally``): of each task in ``prepared``
and ``partial``, of the whole micro-batch in ``committed``. Earlier versions did not
write it. ``others``, of the last two kinds, has such records of other queries that used
the log before: the last record of each of the last few. The query that goes on finds
its own record.

Transactions of scalable topics have a third element in their ids, ``[0,41,true]``. Of
each task ``prepared`` names entries, by the numbers of their topic partitions or
segments in ``topics``, ledger and entry: ``"entries":{"3":[[0,12,5],[1,7,0]]}``. The
last two are left out where they are not known.

A driver's term is the position of its ``began``. A later driver always has a larger
term, even if the log was shortened in between. ``committed`` and ``partial`` say how
the decision of the term ``of`` ended. What a later term says overrides an earlier one,
so nothing that a replaced driver writes, however late, undoes anything. Records of
versions without terms get the term of the ``began`` before them: a decision if it is
of the same run, and the end of that decision; all others get the smallest term.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pulsar_spark.errors import CommitLogError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink.tally import Tally

T = TypeVar("T")

_VERSION = 1

#: Of so many other queries the log keeps how their last decision ended.
OTHER_QUERIES = 8

#: ``(ledger_id, entry_id)`` of where a driver says that it goes to work.
Term = tuple[int, int]

#: Before any other.
NO_TERM: Term = (-1, -1)

#: After any other.
LAST_TERM: Term = (1 << 64, 0)


@dataclass(frozen=True)
class Began:
    """A driver goes to work on a micro-batch; none that began before may decide.

    Attributes:
        run: The driver.
        term: The position of this record in the log; known to readers only.
    """

    run: str
    term: Term = NO_TERM


@dataclass(frozen=True)
class Opened:
    """A task of a driver began a transaction, and has sent nothing yet."""

    batch_id: int
    partition: int
    txn: TxnId
    term: Term = NO_TERM


#: By full name of a topic partition, an entry that a transaction wrote there; None
#: where no receipt named an entry.
Written = Mapping[str, MessageId | None]


class Part(NamedTuple):
    """What a task wrote.

    Attributes:
        txn: The transaction it wrote in.
        entries: Where; that may be a part of it.
    """

    txn: TxnId
    entries: Written = MappingProxyType({})


@dataclass(frozen=True)
class Prepared:
    """The transactions of a micro-batch, by input partition.

    Attributes:
        batch_id: The micro-batch.
        txns: The transactions.
        query_id: The query that it is of.
        run: Who decides it.
        tasks: Input partitions of the micro-batch, those without rows included.
        term: The driver's.
        rows: The tally of each task's rows; None if it is not known.
        entries: Where each task wrote, its marker included; that may be a part of it.
    """

    batch_id: int
    txns: Mapping[int, TxnId] = field(hash=False)  # so that decisions can be in a set
    query_id: str = ""
    run: str = ""
    tasks: int = 0
    term: Term = NO_TERM
    rows: Mapping[int, Tally] | None = field(default=None, hash=False)
    entries: Mapping[int, Written] = field(default_factory=dict, hash=False)

    def parts(self, txns: Collection[TxnId]) -> dict[int, Part]:
        """Return what tasks wrote in some of the transactions, by input partition."""
        return {
            number: Part(txn, self.entries.get(number, {}))
            for number, txn in self.txns.items()
            if txn in txns
        }


@dataclass(frozen=True)
class Committed:
    """The micro-batch is visible, whole.

    Attributes:
        batch_id: The micro-batch.
        query_id: The query that it is of.
        term: Of the driver that says so.
        of: Of the driver that decided it.
        rows: The tally of all rows; None if it is not known.
        others: How the last decisions of other queries ended.
    """

    batch_id: int
    query_id: str = ""
    term: Term = NO_TERM
    of: Term = NO_TERM
    rows: Tally | None = None
    others: tuple[Committed | Partial, ...] = ()


@dataclass(frozen=True)
class Partial:
    """Some of the micro-batch is visible; what else was decided never will be.

    Attributes:
        batch_id: The micro-batch.
        query_id: The query that it is of.
        parts: Input partitions whose rows are visible, maybe none.
        tasks: How many input partitions it had.
        term: Of the driver that says so.
        of: Of the driver that decided it.
        rows: The tally of each of these partitions; None if it is not known.
        others: How the last decisions of other queries ended.
    """

    batch_id: int
    query_id: str
    parts: frozenset[int]
    tasks: int
    term: Term = NO_TERM
    of: Term = NO_TERM
    rows: Mapping[int, Tally] | None = field(default=None, hash=False)
    others: tuple[Committed | Partial, ...] = ()


Outcome = Committed | Partial
Record = Began | Opened | Prepared | Outcome


@dataclass
class LogState:
    """The state of a log, read to its end.

    Attributes:
        query_id: The query that the micro-batches are of, the last one in the log.
        run: The driver that began last, "" for none.
        committed: The last micro-batch that is visible, -1 for none.
        prepared: The decision that was not carried through for sure; None for none.
        undecided: Transactions that no decision names, with their micro-batches. They
            may still be open.
        term: The last driver's.
        outcome: How the last decision ended of which that is known; None for none.
        others: How the last decisions of other queries ended, the latest first.
    """

    query_id: str = ""
    run: str = ""
    committed: int = -1
    prepared: Prepared | None = None
    undecided: dict[TxnId, int] = field(default_factory=dict)
    term: Term = NO_TERM
    outcome: Outcome | None = field(default=None, compare=False)
    others: tuple[Outcome, ...] = field(default=(), compare=False)


def read_log(records: Iterable[Record], up_to: Term = LAST_TERM) -> LogState:
    """Return what the records say, in their order.

    Args:
        records: The log, or its beginning.
        up_to: The last driver whose transactions and decisions are looked at. What
            later ones say of how a decision ended counts in any case.
    """
    state = LogState()
    decided: set[TxnId] = set()
    outcomes: dict[str, Outcome] = {}
    for entry in records:
        record = _with_term(entry, state)
        match record:
            case Began() if record.run != state.run:  # twice is once
                state.run, state.term = record.run, record.term
            case Opened() if record.term <= up_to:
                state.undecided[record.txn] = record.batch_id
            # As it stands there: what it decides stands there without a term, too.
            case Prepared() if entry.term > up_to:
                pass
            case Prepared() if _counts(record, state):
                _decide(state, record, outcomes)
                decided.update(record.txns.values())
            case Prepared():  # by one that was given up
                txns = record.txns.values()
                state.undecided |= dict.fromkeys(txns, record.batch_id)
            case Committed() | Partial():
                _take_in(state, record)
                for outcome in (*record.others, replace(record, others=())):
                    _remember(outcomes, outcome)
    # Not when they come: a message may be there twice, and the second time late.
    for txn in decided:
        state.undecided.pop(txn, None)
    _sum_up(state)
    outcomes.pop(state.query_id, None)
    latest = sorted(outcomes.values(), key=_when, reverse=True)
    state.others = tuple(latest[:OTHER_QUERIES])
    return state


def _with_term(record: Record, state: LogState) -> Record:
    """Return the record with its driver's term, which older versions left out.

    Such a version may have come after a later one, which was taken back.
    """
    if isinstance(record, Began | Opened | Partial) or record.term != NO_TERM:
        return record
    if isinstance(record, Prepared):
        is_known = record.run == state.run
        return replace(record, term=state.term) if is_known else record
    decided = state.prepared
    if (
        decided is not None
        and decided.term == state.term
        and (decided.query_id, decided.batch_id) == (record.query_id, record.batch_id)
    ):
        return replace(record, term=state.term, of=state.term)
    return record


def _counts(decision: Prepared, state: LogState) -> bool:
    is_known = decision.term in (state.term, NO_TERM)
    return is_known and decision.run == state.run


def _decide(
    state: LogState, decision: Prepared, outcomes: Mapping[str, Outcome]
) -> None:
    state.prepared = decision
    if state.outcome is not None and state.outcome.query_id != decision.query_id:
        state.outcome = outcomes.get(decision.query_id)


def _take_in(state: LogState, record: Outcome) -> None:
    """Apply a record, unless a later driver said or decided otherwise."""
    prepared, outcome = state.prepared, state.outcome
    is_turned = prepared is not None and record.query_id != prepared.query_id
    if is_turned and record.of < prepared.term:  # type: ignore[union-attr]
        return
    if outcome is not None:
        before, now = (outcome.term, outcome.of), (record.term, record.of)
        is_same = now == before and record.query_id == outcome.query_id
        if now < before or (is_same and record.batch_id <= outcome.batch_id):
            return
    state.outcome = record
    if is_turned:
        state.prepared = None


def _remember(outcomes: dict[str, Outcome], record: Outcome) -> None:
    """Keep the last outcome of each query; see ``_take_in`` for which that is."""
    outcome = outcomes.get(record.query_id)
    if outcome is None or _when(record) > _when(outcome):
        outcomes[record.query_id] = record


def _when(record: Outcome) -> tuple[Term, Term, int]:
    return record.term, record.of, record.batch_id


def _sum_up(state: LogState) -> None:
    prepared, outcome = state.prepared, state.outcome
    if outcome is not None:
        state.query_id = outcome.query_id
        state.committed = outcome.batch_id - isinstance(outcome, Partial)
    if prepared is None:
        return
    state.query_id = prepared.query_id
    if outcome is not None:
        if (outcome.of, outcome.batch_id) >= (prepared.term, prepared.batch_id):
            state.prepared = None
        else:
            state.committed = min(state.committed, prepared.batch_id - 1)


def dump_record(record: Record) -> bytes:
    """Return a record as a message."""
    fields = {"v": _VERSION, **_fields(record)}
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(record: Record) -> dict[str, Any]:
    fields: dict[str, Any]
    match record:
        case Began():
            fields = {"began": record.run}
        case Opened():
            fields = {
                "opened": record.batch_id,
                "partition": record.partition,
                "txn": _dumped_txn(record.txn),
            }
        case Prepared():
            fields = {
                "prepared": record.batch_id,
                "query": record.query_id,
                "run": record.run,
                "tasks": record.tasks,
                "txns": {part: _dumped_txn(txn) for part, txn in record.txns.items()},
            }
            if record.entries:
                fields |= _dumped_entries(record.entries)
        case Committed():
            fields = {"committed": record.batch_id, "query": record.query_id}
        case Partial():
            fields = {
                "partial": record.batch_id,
                "query": record.query_id,
                "parts": sorted(record.parts),
                "tasks": record.tasks,
            }
    if isinstance(record, Prepared | Outcome) and record.rows is not None:
        fields["rows"] = _dumped(record.rows)
    if not isinstance(record, Began) and record.term != NO_TERM:
        fields["term"] = record.term
    if isinstance(record, Outcome):
        fields |= _fields_of_outcome(record)
    return fields


def _fields_of_outcome(record: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if record.of != NO_TERM:
        fields["of"] = record.of
    if record.others:
        fields["others"] = [_fields(other) for other in record.others]
    return fields


def _dumped_entries(entries: Mapping[int, Written]) -> dict[str, Any]:
    topics = list(
        dict.fromkeys(topic for written in entries.values() for topic in written)
    )
    numbers = {topic: number for number, topic in enumerate(topics)}
    return {
        "topics": topics,
        "entries": {
            part: [
                [numbers[topic], *(() if entry is None else entry.position)]
                for topic, entry in written.items()
            ]
            for part, written in entries.items()
        },
    }


def _dumped_txn(txn: TxnId) -> list[int | bool]:
    # Earlier versions know pairs.
    return [txn.most, txn.least, *([True] if txn.is_scalable else [])]


def _dumped(rows: Tally | Mapping[int, Tally]) -> Any:
    if isinstance(rows, Tally):
        return [rows.rows] if rows.digest is None else [rows.rows, rows.digest]
    return {task: _dumped(rows[task]) for task in sorted(rows)}


def load_record(message: bytes | memoryview) -> Record:
    """Return a message as a record.

    Raises:
        CommitLogError: It is none, or of a later version.
    """
    text = bytes(message)
    version = None
    try:
        fields = json.loads(text)
        version = _number(fields["v"])
        if version == _VERSION:
            version = None
            return _record(fields)
    except _FOREIGN:
        pass
    what = "was written by a later version" if version else "is none of ours"
    raise CommitLogError(
        f"The log of commits holds a message that {what}: {text[:200]!r}. Every "
        "exactly-once stream needs a `commitTopic` of its own, with nothing else in it."
    )


#: What a message is met with that is something else.
_FOREIGN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def _record(fields: dict[str, Any]) -> Record:
    if "began" in fields:
        return Began(_typed(fields["began"], str))
    term, of = _term(fields, "term"), _term(fields, "of")
    if "opened" in fields:
        batch_id, partition = _number(fields["opened"]), _number(fields["partition"])
        return Opened(batch_id, partition, _txn(fields["txn"]), term)
    query_id = _typed(fields["query"], str)
    if "prepared" in fields:
        return Prepared(
            _number(fields["prepared"]),
            {_key(p): _txn(txn) for p, txn in fields["txns"].items()},
            query_id,
            _typed(fields["run"], str),
            _number(fields["tasks"]),
            term,
            _tallies(fields),
            _entries(fields),
        )
    if "partial" in fields:
        parts = frozenset(map(_number, _typed(fields["parts"], list)))
        batch_id, tasks = _number(fields["partial"]), _number(fields["tasks"])
        return Partial(
            *(batch_id, query_id, parts, tasks, term, of, _tallies(fields)),
            others=_others(fields),
        )
    rows = _tally(fields["rows"]) if "rows" in fields else None
    batch_id = _number(fields["committed"])
    return Committed(batch_id, query_id, term, of, rows, _others(fields))


def _typed(value: Any, kind: type[T]) -> T:
    """Return the value if its type is exact: True is no number."""
    if type(value) is not kind:
        raise TypeError(f"{type(value)} is not {kind}")
    return value


def _number(value: Any, limit: int = 1 << 63) -> int:
    number = _typed(value, int)
    if not 0 <= number < limit:
        raise ValueError(f"{number} is out of bounds")
    return number


def _key(text: str) -> int:
    """Return a number from an object's key, as written by ``dump_record``."""
    number = _number(int(text))
    if str(number) != text:
        raise ValueError(f"{text!r} is written in another way")
    return number


def _txn(numbers: Any) -> TxnId:
    most, least, *kind = _typed(numbers, list)
    if kind:
        (is_scalable,) = kind
        if is_scalable is not True:
            raise ValueError(f"{kind} is no kind of transaction")
    return TxnId(_number(most, 1 << 64), _number(least, 1 << 64), bool(kind))


def _entries(fields: dict[str, Any]) -> dict[int, Written]:
    topics = [_typed(topic, str) for topic in _typed(fields.get("topics", []), list)]
    entries: dict[int, Written] = {}
    for part, places in _typed(fields.get("entries", {}), dict).items():
        written: dict[str, MessageId | None] = {}
        for number, *place in _typed(places, list):
            topic = topics[_number(number, len(topics))]
            written[topic] = None
            if place:
                ledger_id, entry_id = map(_number, place)
                written[topic] = MessageId(ledger_id, entry_id)
        if not written:
            raise ValueError("no entries are not written")
        entries[_key(part)] = written
    return entries


def _others(fields: dict[str, Any]) -> tuple[Outcome, ...]:
    other_outcomes = map(_record, _typed(fields.get("others", []), list))
    return tuple(_outcome(other) for other in other_outcomes)


def _outcome(record: Record) -> Outcome:
    if not isinstance(record, Committed | Partial):
        raise TypeError(f"{record} says of no decision how it ended")
    return record


def _tallies(fields: dict[str, Any]) -> dict[int, Tally] | None:
    if "rows" not in fields:
        return None
    return {_key(task): _tally(tally) for task, tally in fields["rows"].items()}


def _tally(numbers: Any) -> Tally:
    rows, *digests = _typed(numbers, list)
    if not digests:
        return Tally(_number(rows))
    (digest,) = digests
    return Tally(_number(rows), _number(digest, 1 << 64))


def _term(fields: dict[str, Any], name: str) -> Term:
    if name not in fields:
        return NO_TERM
    ledger_id, entry_id = _typed(fields[name], list)
    return _number(ledger_id), _number(entry_id)


def dump_marker(query_id: str, batch_id: int, partition: int) -> bytes:
    """Return the marker by which a transaction proves its commit."""
    fields = [_VERSION, query_id, batch_id, partition]
    return json.dumps(fields, separators=(",", ":")).encode()


def dump_probe(name: str) -> bytes:
    """Return a probe for the topic of markers: all messages before are readable."""
    return json.dumps([_VERSION, name], separators=(",", ":")).encode()


def load_marker(message: bytes | memoryview) -> tuple[str, int, int] | None:
    """``(query_id, batch_id, partition)`` of a marker, None for a probe.

    Raises:
        CommitLogError: It is neither, or of a later version.
    """
    try:
        fields = _typed(json.loads(bytes(message)), list)
        if _number(fields[0]) == _VERSION:
            if len(fields) == 2:
                _typed(fields[1], str)
                return None
            _, query_id, batch_id, partition = fields
            return _typed(query_id, str), _number(batch_id), _number(partition)
    except (*_FOREIGN, IndexError):
        pass
    raise CommitLogError(
        "The topic of markers holds a message that is none: "
        f"{bytes(message)[:200]!r}. No other exactly-once stream may have this topic as"
        " its log of commits."
    )
