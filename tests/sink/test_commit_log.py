# SPDX-License-Identifier: Apache-2.0
"""What the log of commits says, however it was cut, doubled or fought over."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.errors import CommitLogError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink.commit_log import (
    LAST_TERM,
    NO_TERM,
    Began,
    Committed,
    LogState,
    Opened,
    Partial,
    Prepared,
    Record,
    dump_marker,
    dump_probe,
    dump_record,
    load_marker,
    load_record,
    read_log,
)
from pulsar_spark.sink.tally import Tally

NUMBERS = st.integers(0, 2**63 - 1)
IDS = st.integers(0, 2**64 - 1)
TXNS = st.builds(TxnId, IDS, IDS, st.booleans())
ENTRIES = st.dictionaries(
    st.text(), st.none() | st.builds(MessageId, NUMBERS, NUMBERS), min_size=1
)
TALLIES = st.builds(Tally, NUMBERS, st.none() | IDS)
ROWS = st.none() | st.dictionaries(NUMBERS, TALLIES)
TERMS = st.just(NO_TERM) | st.tuples(NUMBERS, NUMBERS)
PREPARED = st.builds(
    Prepared,
    NUMBERS,
    st.dictionaries(NUMBERS, TXNS),
    st.text(),
    st.text(),
    NUMBERS,
    TERMS,
    ROWS,
    st.dictionaries(NUMBERS, ENTRIES),
)
COMMITTED = st.builds(Committed, NUMBERS, st.text(), TERMS, TERMS, st.none() | TALLIES)
RECORDS = st.one_of(
    st.builds(Began, st.text()),
    st.builds(Opened, NUMBERS, NUMBERS, TXNS, TERMS),
    PREPARED,
    COMMITTED,
    st.builds(replace, COMMITTED, others=st.lists(COMMITTED, max_size=2).map(tuple)),
    st.builds(
        Partial, NUMBERS, st.text(), st.frozensets(NUMBERS), NUMBERS, TERMS, TERMS, ROWS
    ),
)


# -- messages --------------------------------------------------------------------------


@given(RECORDS)
@example(
    Opened(2**63 - 1, 2**63 - 1, TxnId(2**64 - 1, 2**64 - 1), (2**63 - 1, 2**63 - 1))
)
@example(Opened(0, 0, TxnId(0, 0), (0, 0)))
def test_records_come_back(record: Record) -> None:
    """A record is the same after it was a message."""
    assert load_record(dump_record(record)) == record
    assert load_record(memoryview(dump_record(record))) == record


def test_how_records_are_written() -> None:
    """As the module's docstring shows them: other versions have to read these."""
    written = {
        Began("c0ff"): b'{"v":1,"began":"c0ff"}',
        Opened(7, 3, TxnId(0, 41)): b'{"v":1,"opened":7,"partition":3,"txn":[0,41]}',
        Committed(7, "a1"): b'{"v":1,"committed":7,"query":"a1"}',
    }
    for record, message in written.items():
        assert dump_record(record) == message
    assert dump_record(Prepared(7, {3: TxnId(0, 41)}, "a1", "c0ff", 4)) == (
        b'{"v":1,"prepared":7,"query":"a1","run":"c0ff","tasks":4,"txns":{"3":[0,41]}}'
    )
    assert dump_record(Partial(7, "a1", frozenset({3, 0}), 4, (13, 0), (12, 0))) == (
        b'{"v":1,"partial":7,"query":"a1","parts":[0,3],"tasks":4,'
        b'"term":[13,0],"of":[12,0]}'
    )
    assert dump_record(Opened(7, 3, TxnId(0, 41), (12, 0))) == (
        b'{"v":1,"opened":7,"partition":3,"txn":[0,41],"term":[12,0]}'
    )
    scalable = TxnId(0, 41, is_scalable=True)
    assert dump_record(Opened(7, 3, scalable)) == (
        b'{"v":1,"opened":7,"partition":3,"txn":[0,41,true]}'
    )
    entries = {
        3: {"segment://t/n/orders/0000-ffff-0": MessageId(12, 5)},
        4: {"segment://t/n/orders/0000-ffff-0": None, "t": MessageId(7, 0)},
    }
    decision = Prepared(7, {3: scalable, 4: A}, "a1", "c0ff", 4, entries=entries)
    fields = json.loads(dump_record(decision))
    assert fields["topics"] == ["segment://t/n/orders/0000-ffff-0", "t"]
    assert fields["entries"] == {"3": [[0, 12, 5]], "4": [[0], [1, 7, 0]]}
    assert dump_record(Prepared(7, {})) == (
        b'{"v":1,"prepared":7,"query":"","run":"","tasks":0,"txns":{}}'
    )
    assert dump_marker("a1", 7, 3) == b'[1,"a1",7,3]'


#: A decision with an entry.
ENTRIES_OF = (
    b'{"v":1,"prepared":7,"query":"","run":"","tasks":1,"txns":{},'
    b'"topics":["t"],"entries":{"0":%b}}'
)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"row",
        b"\xff",
        b"{}",
        b"[]",
        b"1",
        b"null",
        b'{"v":1}',
        b'{"v":1,"opened":7}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,2,3]}',
        b'{"v":1,"opened":"x","partition":3,"txn":[1,2]}',
        b'{"v":1,"prepared":7,"txns":{}}',
        b'{"v":1,"prepared":7,"query":"","run":"","tasks":1,"txns":[1]}',
        b'{"v":1,"prepared":7,"query":"","run":"","tasks":1,"txns":{"x":[1,2]}}',
        b'{"v":1,"committed":null,"query":""}',
        b'{"v":1,"committed":7}',
        # Numbers that are none, or that no broker and no Spark has.
        b'{"v":true,"began":"a"}',
        b'{"v":1,"began":7}',
        b'{"v":1,"committed":1e999,"query":""}',
        b'{"v":1,"committed":7.0,"query":""}',
        b'{"v":1,"committed":true,"query":""}',
        b'{"v":1,"committed":-1,"query":""}',
        b'{"v":1,"committed":9223372036854775808,"query":""}',
        b'{"v":1,"committed":7,"query":7}',
        b'{"v":1,"committed":7,"query":"","term":[1]}',
        b'{"v":1,"committed":7,"query":"","of":7}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,-9e300]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,-9]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,18446744073709551616]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[18446744073709551616,1]}',
        b'{"v":1,"opened":7,"partition":3,"txn":"12"}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,2,1]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,2,false]}',
        b'{"v":1,"opened":7,"partition":3,"txn":[1,2,true,true]}',
        b'{"v":1,"prepared":7,"query":"","run":"","tasks":1,"txns":{},"entries":[]}',
        ENTRIES_OF % b"[]",
        ENTRIES_OF % b"[[0,1]]",
        ENTRIES_OF % b"[[1,1,2]]",
        ENTRIES_OF % b'[["t",1,2]]',
        ENTRIES_OF % b"[0,1,2]",
        b'{"v":1,"prepared":7,"query":"","run":"","tasks":1,"txns":{"+1":[1,2]}}',
        b'{"v":1,"partial":7,"query":"","tasks":1,"parts":"12"}',
        b'{"v":1,"committed":7,"query":"","rows":null}',
        b'{"v":1,"committed":7,"query":"","others":{}}',
        b'{"v":1,"committed":7,"query":"","others":[{"began":"a"}]}',
        b'{"v":1,"committed":7,"query":"","rows":[-1]}',
        b'{"v":1,"committed":7,"query":"","rows":{"0":[1]}}',
        b'{"v":1,"partial":7,"query":"","tasks":1,"parts":[],"rows":[1]}',
    ],
)
def test_foreign_messages(message: bytes) -> None:
    """They are an error that shows the message and says what the log is for."""
    with pytest.raises(CommitLogError, match="is none of ours") as caught:
        load_record(message)
    assert repr(message) in str(caught.value)
    assert "`commitTopic` of its own" in str(caught.value)


@given(RECORDS)
def test_later_versions(record: Record) -> None:
    """Their messages are not guessed at."""
    fields = json.loads(dump_record(record)) | {"v": 2}
    with pytest.raises(CommitLogError, match="by a later version"):
        load_record(json.dumps(fields).encode())


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 1 << 63, 1 << 64, 10**400, 7.0, -9e300, math.inf])
    | st.floats()
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner)
    ),
    max_leaves=5,
)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A record or a marker of which something was exchanged for anything at all."""
    fields = json.loads(draw(st.builds(dump_record, RECORDS)))
    if draw(st.booleans()):
        fields = [1, "q", 7, 3][: draw(st.integers(0, 4))]
        if fields:
            fields[draw(st.integers(0, len(fields) - 1))] = draw(JSON)
    else:
        fields[draw(st.sampled_from(sorted(fields)))] = draw(JSON)
    return json.dumps(fields).encode()


@given(st.binary() | st.builds(lambda one: json.dumps(one).encode(), JSON) | hostile())
@example(b"[" * 100_000)
@example(b'{"v":' * 100_000)
@example(b"1" * 10_000)
@example(b'[1,"q",' + b"9" * 10_000 + b",3]")
def test_any_bytes(message: bytes) -> None:
    """They are something that can be written again, or one kind of error."""
    for load in (load_record, load_marker):
        try:
            found = load(message)
        except CommitLogError:
            continue
        if load is load_record:
            assert load_record(dump_record(found)) == found  # type: ignore[arg-type]
        elif found is not None:
            assert load_marker(dump_marker(*found)) == found  # type: ignore[misc]


@given(st.text(), NUMBERS, NUMBERS)
def test_markers_come_back(query_id: str, batch_id: int, partition: int) -> None:
    """A marker is the same after it was a message, and a probe is none."""
    marker = dump_marker(query_id, batch_id, partition)
    assert load_marker(marker) == (query_id, batch_id, partition)
    assert load_marker(memoryview(marker)) == (query_id, batch_id, partition)
    assert load_marker(dump_probe(query_id)) is None


@pytest.mark.parametrize(
    "message",
    [
        b"row",
        b"[]",
        b"[1]",
        b"[2]",
        b'[2,"a1",7,3]',
        b'[1,"a1",7]',
        b"{}",
        b'[true,"a1",7,3]',
        b'[1.0,"a1",7,3]',
        b'[1,"a1",true,3]',
        b'[1,"a1",7,-3]',
        b"[1,7]",
    ],
)
def test_foreign_markers(message: bytes) -> None:
    """They are an error that shows the message, and what may be wrong."""
    with pytest.raises(CommitLogError, match="topic of markers") as caught:
        load_marker(message)
    assert repr(message) in str(caught.value)
    assert "No other exactly-once stream may have this topic" in str(caught.value)


# -- what they say ---------------------------------------------------------------------

BEGAN = Began("run")
A, B, C = TxnId(0, 1), TxnId(0, 2), TxnId(1, 1)


def decision(batch_id: int, *txns: tuple[int, int], run: str = "run") -> Prepared:
    """A decision of the query "q"."""
    return Prepared(batch_id, dict(enumerate(txns)), "q", run, len(txns))


def test_every_prefix_of_a_log() -> None:
    """What is to be done after a crash behind each of the records."""
    one = decision(7, A, C)
    other = decision(8, B)
    log = [
        (Committed(6, "q"), LogState("q", "", 6)),
        (BEGAN, LogState("q", "run", 6)),
        (Opened(7, 0, A), LogState("q", "run", 6, None, {A: 7})),
        (Opened(7, 0, B), LogState("q", "run", 6, None, {A: 7, B: 7})),
        (Opened(7, 1, C), LogState("q", "run", 6, None, {A: 7, B: 7, C: 7})),
        (one, LogState("q", "run", 6, one, {B: 7})),
        (Committed(7, "q"), LogState("q", "run", 7, None, {B: 7})),
        (Began("next"), LogState("q", "next", 7, None, {B: 7})),
        (Opened(8, 0, B), LogState("q", "next", 7, None, {B: 8})),
        # Whoever began before decides nothing.
        (other, LogState("q", "next", 7, None, {B: 8})),
        (Committed(8, "q"), LogState("q", "next", 8, None, {B: 8})),
    ]
    assert read_log([]) == LogState()
    for count in range(1, len(log) + 1):
        records = [record for record, _ in log[:count]]
        assert read_log(records) == log[count - 1][1], records[-1]


def test_messages_that_come_twice() -> None:
    """A producer that lost a receipt sends again, and late."""
    one = decision(7, A)
    assert read_log([BEGAN, one, Opened(7, 0, A)]).undecided == {}
    late = [BEGAN, one, Committed(7, "q"), Began("next"), one]
    assert read_log(late) == LogState("q", "next", 7)
    assert read_log([Committed(7, "q"), one]) == LogState("q", "", 7, None, {A: 7})
    assert read_log([BEGAN, one, Committed(7, "q"), one]).prepared is None


def test_a_second_decision_about_a_micro_batch() -> None:
    """It is about what the first one could not commit, and so it stands."""
    first, second = decision(7, A, B), decision(7, C)
    state = read_log([BEGAN, first, Began("next"), decision(7, C, run="next")])
    assert state.prepared == decision(7, C, run="next")
    assert state.undecided == {}
    assert read_log([BEGAN, first, second]).prepared == second


def test_a_new_checkpoint() -> None:
    """Its micro-batches begin at 0 again, and count by themselves."""
    log: list[Record] = [Committed(41, "old"), BEGAN, decision(0, A)]
    assert read_log(log) == LogState("q", "run", -1, decision(0, A))
    assert read_log([*log, Committed(0, "q")]) == LogState("q", "run", 0)


def test_what_is_committed_stays_so() -> None:
    """Also when an earlier record of it comes for the second time."""
    assert read_log([Committed(7, "q"), Committed(6, "q")]).committed == 7
    term = (4, 0)
    log = [Committed(7, "q", term, term), Committed(6, "q", (3, 0), (3, 0))]
    assert read_log(log).committed == 7


def test_a_driver_of_the_old_checkpoint_comes_late() -> None:
    """What it says of its micro-batches does not bring its query back."""
    old, new = (2, 0), (5, 0)
    late = Committed(41, "old", old, old)
    decided = Prepared(0, {0: A}, "q", "run", 1, new)
    done = Committed(0, "q", new, new)
    began = Began("run", new)
    assert read_log([began, decided, late]).prepared == decided
    for log in ([done, late], [late, done], [began, decided, late, done]):
        state = read_log(log)
        assert (state.query_id, state.committed, state.prepared) == ("q", 0, None)


def test_an_earlier_driver_knows_less() -> None:
    """What it says of a micro-batch does not end a later decision about it."""
    old, new = (2, 0), (5, 0)
    began, decided = Began("run", new), Prepared(7, {0: A}, "q", "run", 1, new)
    late = Committed(7, "q", old, old)
    for log in ([late, began, decided], [began, decided, late]):
        state = read_log(log)
        assert (state.committed, state.prepared) == (6, decided)


def test_a_decision_that_ended_in_part() -> None:
    """Nothing is left to be carried out; a later decision is."""
    old, new = (2, 0), (5, 0)
    first: list[Record] = [Began("a", old), Prepared(7, {0: A, 1: B}, "q", "a", 2, old)]
    part = Partial(7, "q", frozenset({0}), 2, new, old)
    state = read_log([*first, part])
    assert (state.committed, state.prepared, state.outcome) == (6, None, part)
    assert state.undecided == {}
    second: list[Record] = [Began("b", new), Prepared(7, {1: C}, "q", "b", 2, new)]
    assert read_log([*first, *second, part]).prepared == second[1]
    assert read_log([*first, part, *second]).prepared == second[1]


def test_a_driver_of_an_earlier_version_comes_later() -> None:
    """Its records have no terms, and yet they are of the driver that began last."""
    new, old, newest = (2, 0), (5, 0), (8, 0)
    log: list[Record] = [Began("new", new), Committed(7, "q", new, new)]
    log += [Began("old", old), decision(8, A, run="old")]
    for last in ([], [Began("newest", newest)]):
        state = read_log([*log, *last])
        assert state.committed == 7
        assert state.prepared is not None
        assert (state.prepared.batch_id, state.prepared.term) == (8, old)
        settled = Committed(8, "q", newest, state.prepared.term)
        after = read_log([*log, *last, settled])
        assert (after.committed, after.prepared) == (8, None)
    done = read_log([*log, Committed(8, "q"), Began("newest", newest)])
    assert (done.committed, done.prepared) == (8, None)
    # One that was given up meanwhile may know less than those behind it.
    part = Partial(8, "q", frozenset(), 1, newest, old)
    late = read_log([*log, Began("newest", newest), part, Committed(8, "q")])
    assert (late.committed, late.outcome) == (7, part)


def test_what_is_of_later_drivers() -> None:
    """It is left out where one asks who is before them."""
    old, new = (2, 0), (5, 0)
    log: list[Record] = [
        Began("a", old),
        Opened(7, 0, A, old),
        Began("b", new),
        Opened(7, 0, B, new),
        Opened(7, 1, C, old),
        Prepared(7, {0: B}, "q", "b", 1, new),
    ]
    state = read_log(log, old)
    assert state.undecided.keys() == {A, C}
    assert state.prepared is None
    assert read_log(log).undecided.keys() == {A, C}


def test_a_later_query_is_done() -> None:
    """An earlier driver is told so, though the decision is none that it looks at."""
    old, new = (2, 0), (5, 0)
    log: list[Record] = [
        Began("a", old),
        Prepared(7, {0: A}, "old", "a", 1, old),
        Began("b", new),
        Prepared(0, {0: B}, "new", "b", 1, new),
        Committed(0, "new", new, new),
    ]
    for up_to in (old, new):
        state = read_log(log, up_to)
        assert (state.query_id, state.committed, state.prepared) == ("new", 0, None)


def test_the_rest_of_a_part() -> None:
    """Once it is written and committed, the micro-batch is visible whole."""
    old, new = (2, 0), (5, 0)
    log: list[Record] = [
        Began("a", old),
        Prepared(7, {0: A, 1: B}, "q", "a", 2, old),
        Partial(7, "q", frozenset({0}), 2, old, old),
        Began("b", new),
        Prepared(7, {1: C}, "q", "b", 2, new),
        Committed(7, "q", new, new),
    ]
    state = read_log(log)
    assert (state.committed, state.prepared, state.outcome) == (7, None, log[-1])


def test_terms_without_a_place() -> None:
    """They are before and behind whatever a message id can hold."""
    assert NO_TERM < (0, 0)
    assert LAST_TERM > (2**64 - 1, 2**64 - 1)


def test_a_decision_in_a_set() -> None:
    """It is found there, though its transactions are in a dict."""
    assert decision(7, A, B) in {decision(7, A, B)}
    assert decision(7, A, B) not in {decision(7, A, C)}


@given(st.lists(st.sampled_from("bBoOpPc"), max_size=30))
def test_no_transaction_is_forgotten(letters: list[str]) -> None:
    """Each that the log names is decided, and counts, or it is undecided."""
    log: list[Record] = []
    for number, letter in enumerate(letters):
        run = "run" if letter.islower() else "other"
        match letter.lower():
            case "b":
                log.append(Began(run))
            case "o":
                log.append(Opened(number, 0, (0, number)))
            case "p":
                opened = [r.txn for r in log if isinstance(r, Opened)][-2:]
                log.append(decision(number, *opened, run=run))
            case _:
                log.append(Committed(number, "q"))
    state = read_log(log)
    counting, run = set(), ""
    for record in log:
        if isinstance(record, Began):
            run = record.run
        if isinstance(record, Prepared) and record.run == run:
            counting |= set(record.txns.values())
    named = {record.txn for record in log if isinstance(record, Opened)}
    assert state.undecided.keys() == named - counting
    if state.prepared is not None:
        assert state.prepared.batch_id > state.committed
        assert state.prepared in log
