"""What the log of commits says, however it was cut, doubled or fought over."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from pulsar_spark.errors import CheckpointError

NUMBERS = st.integers(0, 2**63 - 1)
TXNS = st.tuples(NUMBERS, NUMBERS)
PREPARED = st.builds(
    Prepared, NUMBERS, st.dictionaries(NUMBERS, TXNS), st.text(), st.text(), NUMBERS
)
RECORDS = st.one_of(
    st.builds(Began, st.text()),
    st.builds(Opened, NUMBERS, NUMBERS, TXNS),
    PREPARED,
    st.builds(Committed, NUMBERS, st.text()),
)


# -- messages --------------------------------------------------------------------------


@given(RECORDS)
def test_records_come_back(record: Record) -> None:
    """A record is the same after it was a message."""
    assert load_record(dump_record(record)) == record
    assert load_record(memoryview(dump_record(record))) == record


def test_how_records_are_written() -> None:
    """As the module's docstring shows them: other versions have to read these."""
    written = {
        Began("c0ff"): b'{"v":1,"began":"c0ff"}',
        Opened(7, 3, (0, 41)): b'{"v":1,"opened":7,"partition":3,"txn":[0,41]}',
        Committed(7, "a1"): b'{"v":1,"committed":7,"query":"a1"}',
    }
    for record, message in written.items():
        assert dump_record(record) == message
    assert dump_record(Prepared(7, {3: (0, 41)}, "a1", "c0ff", 4)) == (
        b'{"v":1,"prepared":7,"query":"a1","run":"c0ff","tasks":4,"txns":{"3":[0,41]}}'
    )
    assert dump_marker("a1", 7, 3) == b'[1,"a1",7,3]'


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
    ],
)
def test_foreign_messages(message: bytes) -> None:
    """They are an error that shows the message and says what the log is for."""
    with pytest.raises(CheckpointError, match="is none of ours") as caught:
        load_record(message)
    assert repr(message) in str(caught.value)
    assert "`commitTopic` of its own" in str(caught.value)


@given(RECORDS)
def test_later_versions(record: Record) -> None:
    """Their messages are not guessed at."""
    fields = json.loads(dump_record(record)) | {"v": 2}
    with pytest.raises(CheckpointError, match="by a later version"):
        load_record(json.dumps(fields).encode())


@given(st.binary())
def test_any_bytes(message: bytes) -> None:
    """They are a record, or one kind of error."""
    for load in (load_record, load_marker):
        try:
            load(message)
        except CheckpointError:
            continue


@given(st.text(), NUMBERS, NUMBERS)
def test_markers_come_back(query_id: str, batch_id: int, partition: int) -> None:
    """A marker is the same after it was a message, and a probe is none."""
    marker = dump_marker(query_id, batch_id, partition)
    assert load_marker(marker) == (query_id, batch_id, partition)
    assert load_marker(memoryview(marker)) == (query_id, batch_id, partition)
    assert load_marker(dump_probe(query_id)) is None


@pytest.mark.parametrize(
    "message", [b"row", b"[]", b"[1]", b"[2]", b'[2,"a1",7,3]', b'[1,"a1",7]', b"{}"]
)
def test_foreign_markers(message: bytes) -> None:
    """They are an error that shows the message."""
    with pytest.raises(CheckpointError, match="topic of markers") as caught:
        load_marker(message)
    assert repr(message) in str(caught.value)


# -- what they say ---------------------------------------------------------------------

BEGAN = Began("run")
A, B, C = (0, 1), (0, 2), (1, 1)


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
