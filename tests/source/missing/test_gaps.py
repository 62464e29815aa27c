# SPDX-License-Identifier: Apache-2.0
"""Rows that a broker passes over are told apart from gaps that mean nothing."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from pulsar_spark.errors import DataLossError, ReadTimeoutError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.source.missing import gaps
from tests.support import patience
from tests.support.ranged import TOPIC, numbers, numbers_meanwhile, place
from tests.support.scripted_broker import (
    PATIENCE_S,
    Action,
    ScriptedBroker,
    numbered,
    refuse,
    silence,
    single,
    then_moves,
    usual,
)
from tests.support.waiting import wait_until

TXN = TxnId(1, 2)
ONE = {"receiver_queue_messages": 1}


@pytest.fixture(autouse=True)
def _in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    patience.usual(monkeypatch, silence_s=0.01)


@pytest.fixture(params=["at once", "at the end"])
def _looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at each gap, or one for all of them."""
    pause_s = {"at once": 0.0, "at the end": 1000.0}[request.param]
    patience.usual(monkeypatch, gaps_s=pause_s)
    if pause_s:
        monkeypatch.setattr(gaps.Gaps, "is_due", False)


def aborted(scripted: ScriptedBroker) -> Any:
    """An entry that is never delivered."""
    scripted.aborted.add(TXN)
    return single(b"aborted", txnid_most_bits=TXN.most, txnid_least_bits=TXN.least)


@pytest.mark.usefixtures("_looks")
class TestPassedOver:
    @pytest.mark.parametrize("is_strict", [True, False])
    def test_rows_are_lost(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        caplog: pytest.LogCaptureFixture,
        *,
        is_strict: bool,
    ) -> None:
        """All of them are stored: the first of them is named."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE, fail_on_data_loss=is_strict)

        def move() -> None:
            scripted.move_readers(TOPIC, 12)

        if is_strict:
            with pytest.raises(DataLossError, match=r"7:[345], which the broker did"):
                numbers_meanwhile(reader, 3, move)
            return
        found = numbers_meanwhile(reader, 3, move)
        assert found[-8:] == list(range(12, 20))
        assert len(found) < 15
        assert "PULSAR_DATA_LOSS" in caplog.text

    def test_into_another_ledger(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """No number of an entry shows it."""
        values = numbered(20, 1)
        scripted.add_topic(TOPIC, values[:10])
        last = scripted.roll(TOPIC)
        scripted.append(TOPIC, *values[10:])
        reader = ranged(place(0), MessageId(last, 9), reader=ONE)
        with pytest.raises(DataLossError, match="which the broker did not deliver"):
            numbers_meanwhile(reader, 3, lambda: scripted.move_readers(TOPIC, 10))

    @pytest.mark.parametrize("cut", ["cut", "close_consumers"])
    def test_the_reader_is_gone_that_saw_it(
        self, scripted: ScriptedBroker, ranged: Any, cut: str
    ) -> None:
        """So nobody can ask where it was moved to."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE, fail_on_data_loss=False)
        found: list[int] = []
        for entry in reader.entries():
            found += [struct.unpack_from(">Q", p or b"")[0] for p in entry.payloads]
            if len(found) == 3:
                scripted.move_readers(TOPIC, 12)
            elif found[-1] == 12:
                getattr(scripted, cut)()
        assert found[-8:] == list(range(12, 20))
        assert reader._has_lost

    def test_before_the_first_row(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """Moved as soon as it is there: another one begins where it should."""
        scripted.add_topic(TOPIC, numbered(20, 1))

        def then_moves(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.answer(session, command)
            broker.move_readers(TOPIC, 5)

        scripted.script("SUBSCRIBE", then_moves)
        assert numbers(ranged(place(0), place(19))) == list(range(20))


class TestNothingPassedOver:
    @pytest.mark.usefixtures("_looks")
    @pytest.mark.parametrize("queue", [1, 1000])
    @pytest.mark.parametrize("breaks", ["", "cut", "close_consumers"])
    def test_gaps_of_transactions(
        self, scripted: ScriptedBroker, ranged: Any, queue: int, breaks: str
    ) -> None:
        """Also at the beginning, and in front of what comes after a reconnect."""
        entries = numbered(30, 1)
        for at in (30, 21, 20, 11, 10, 3, 0):
            entries.insert(at, aborted(scripted))
        scripted.add_topic(TOPIC, entries)
        reader = ranged(place(0), place(36), reader={"receiver_queue_messages": queue})
        found: list[int] = []
        for entry in reader.entries():
            found += [struct.unpack_from(">Q", p or b"")[0] for p in entry.payloads]
            if breaks and found[-1] in (2, 9, 18, 29):
                getattr(scripted, breaks)()
        assert found == list(range(30))
        assert not reader._has_lost
        wait_until(lambda: not scripted.consumers)

    @pytest.mark.usefixtures("_looks")
    def test_gaps_before_a_reader_is_moved(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """The broker moves it behind what has been delivered."""
        entries = numbered(20, 1)
        entries.insert(2, aborted(scripted))
        scripted.add_topic(TOPIC, entries)
        reader = ranged(place(0), place(20), reader=ONE)
        found = numbers_meanwhile(reader, 3, lambda: scripted.move_readers(TOPIC, 3))
        assert found == list(range(20))

    def test_one_question_where_nothing_is_missing(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """That is, none: not even where a reader is moved."""
        patience.usual(monkeypatch, proof_s=PATIENCE_S)
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE)
        assert numbers_meanwhile(
            reader, 3, lambda: scripted.move_readers(TOPIC, 2)
        ) == list(range(20))
        assert scripted.requests["GET_LAST_MESSAGE_ID"] == 0
        assert scripted.requests["SUBSCRIBE"] == 1

    def test_a_range_that_begins_with_a_gap(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
    ) -> None:
        """As micro-batches do behind a transaction: it makes no other connection."""
        scripted.add_topic(TOPIC, [aborted(scripted), *numbered(5, 1)])
        assert numbers(ranged(place(0), place(5))) == list(range(5))
        assert scripted.connections == 1

    def test_behind_all_of_it(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """A reader that is moved there gets nothing: another one gets the rest."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE)
        found = numbers_meanwhile(reader, 3, lambda: scripted.move_readers(TOPIC, 20))
        assert found == list(range(20))

    def test_what_retention_took_is_told_once(
        self, scripted: ScriptedBroker, ranged: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The gap cannot be read again, and nobody waits for it."""
        values = numbered(20, 1)
        scripted.add_topic(TOPIC, values[:10])
        last = scripted.roll(TOPIC)
        scripted.append(TOPIC, *values[10:])
        reader = ranged(
            place(0), MessageId(last, 9), reader=ONE, fail_on_data_loss=False
        )
        found = numbers_meanwhile(reader, 3, lambda: scripted.trim(TOPIC))
        assert found[-10:] == list(range(10, 20))
        assert caplog.text.count("PULSAR_DATA_LOSS") == 1


def others(scripted: ScriptedBroker, action: Action, count: int = -1) -> Action:
    """Returns what does so on connections that are new from now on, so many times."""
    known, done = scripted.sessions, itertools.count()

    def act(broker: ScriptedBroker, session: Any, command: Any) -> None:
        is_other = session not in known
        (action if is_other and next(done) != count else usual)(
            broker, session, command
        )

    return act


class TestReadAgain:
    """By another reader, which meets what readers meet."""

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patience.usual(monkeypatch, gaps_s=0.0)

    def test_it_gets_nothing(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """Nobody waits for ever."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE | {"poll_timeout_s": 2.0})

        def move() -> None:
            scripted.always("FLOW", others(scripted, silence))
            scripted.move_readers(TOPIC, 12)

        with pytest.raises(ReadTimeoutError, match="delivered nothing for 2 s"):
            numbers_meanwhile(reader, 3, move)

    def test_its_topic_is_given_away(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """By a broker that says that nothing is stored."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(19), reader=ONE)

        def give_away(broker: ScriptedBroker, session: Any, command: Any) -> None:
            usual(broker, session, command)
            broker.closing.add(TOPIC)

        def move() -> None:
            scripted.always("SUBSCRIBE", others(scripted, give_away, 1))
            scripted.always("GET_LAST_MESSAGE_ID", others(scripted, then_moves))
            scripted.move_readers(TOPIC, 12)

        with pytest.raises(DataLossError, match="which the broker did not deliver"):
            numbers_meanwhile(reader, 3, move)

    def test_the_reader_cannot_be_asked(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """It was moved behind the end of its range, and its topic moves."""
        scripted.add_topic(TOPIC, numbered(20, 1))
        reader = ranged(place(0), place(10), reader=ONE)

        def move() -> None:
            # Two of a probe, then this reader's.
            moving = refuse("ServiceNotReady")
            scripted.script("SUBSCRIBE", usual, usual, moving)
            scripted.move_readers(TOPIC, 15)

        with pytest.raises(DataLossError, match="which the broker did not deliver"):
            numbers_meanwhile(reader, 3, move)

    def test_behind_the_end_of_the_range(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """Other ranges have what was passed over there."""
        entries = numbered(20, 1)
        entries.insert(3, aborted(scripted))
        scripted.add_topic(TOPIC, entries)
        reader = ranged(place(0), place(3), reader=ONE)
        found = numbers_meanwhile(reader, 3, lambda: scripted.move_readers(TOPIC, 15))
        assert found == [0, 1, 2]
        assert scripted.requests["SUBSCRIBE"] > 1
