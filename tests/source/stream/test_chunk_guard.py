# SPDX-License-Identifier: Apache-2.0
"""Micro-batches end outside of messages in chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.options import patience as waits
from pulsar_spark.source.stream import chunk_guard as guard_module
from pulsar_spark.source.stream import subscription as subscription_module
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.source.stream.queries import (
    BASE,
    CRASHES,
    P0,
    P1,
    Clock,
    Query,
    all_rows,
    id_of,
    stored,
)
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    Session,
    batch,
    refuse,
    silence,
    single,
    usual,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


def piece(uuid: str, index: int, count: int = 2) -> Any:
    """A chunk."""
    return single(
        b"x",
        uuid=uuid,
        chunk_id=index,
        num_chunks_from_msg=count,
        total_chunk_msg_size=count,
    )


class TestChunks:
    """The acknowledgement stops where a message begins that is not finished."""

    @pytest.fixture
    def hasty_looks(self, short_waits: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """For queries that begin after this: a look ends soon."""
        patience.usual(monkeypatch, look_s=0.1)

    @pytest.fixture
    def query(self, scripted: ScriptedBroker, queries: Any) -> Query:
        """It reads one topic."""
        scripted.add_topic(BASE, [single(b"a")])
        one: Query = queries()
        one.drain()
        return one

    def acknowledged(self, query: Query, *entries: Any) -> tuple[int, int]:
        """Where the cursor stands once these have come, and are read."""
        query.broker.append(BASE, *entries)
        query.drain()
        (subscription,) = query.broker.durable(BASE)
        return subscription.mark_delete

    def test_not_into_an_open_message(self, query: Query) -> None:
        """But up to the last end before it."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 5)

    def test_open_messages_in_a_chain(self, query: Query) -> None:
        """It follows one micro-batch behind, where one is always open."""
        assert self.acknowledged(query, piece("0", 0)) == (LEDGER, 0)
        for n in range(1, 20):
            entries = piece(f"{n}", 0), piece(f"{n - 1}", 1)
            assert self.acknowledged(query, *entries) == (LEDGER, 2 * n - 1)

    def test_the_first_chunks_of_a_topic(self, query: Query) -> None:
        """One at an end makes it look further back; its own message may be whole."""
        entries = piece("u", 0), piece("v", 0), piece("v", 1)
        assert self.acknowledged(query, *entries) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    def test_chunks_behind_the_end_do_not_count(self, query: Query) -> None:
        """They may come with what is looked at, and belong to a later micro-batch."""
        assert self.acknowledged(query, piece("u", 0), piece("u", 1)) == (LEDGER, 2)
        rows = batch([b"b"] * 50)
        query.broker.append(BASE, rows, piece("v", 0), single(b"b"))
        query.trigger()
        query.broker.append(BASE, piece("v", 1))
        query.planner.latest(query.begin())
        assert query.broker.durable(BASE)[0].mark_delete == (LEDGER, 2)
        assert self.acknowledged(query) == (LEDGER, 6)

    def test_across_ledgers(self, query: Query) -> None:
        """The chunks may be at the end of a ledger, and rows in the next."""
        assert self.acknowledged(query, piece("u", 0, 3)) == (LEDGER, 0)
        for ledger_id in (8, 9):
            assert query.broker.roll(BASE) == ledger_id
            assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1, 3)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 2, 3)) == (9, 2)

    @pytest.mark.parametrize("end", ["killed", "stopped"])
    def test_after_a_restart(self, query: Query, end: str) -> None:
        """The checkpoint says that the topic has such messages."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("v", 0), single(b"b")) == (LEDGER, 0)
        assert query.log[-1]["chunked"] == [BASE]
        query.kill() if end == "killed" else query.stop()
        assert self.acknowledged(query) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("v", 1)) == (LEDGER, 6)

    @pytest.mark.parametrize("end", ["killed", "still there"])
    def test_a_topic_that_is_said_to_be_empty(self, query: Query, end: str) -> None:
        """For now: the query is ahead of its cursor, and its topic was ever so long."""
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        if end == "killed":
            query.kill()
        query.broker.closing.add(BASE)
        for _ in range(3):
            assert not query.trigger()
        asked = query.broker.requests["SUBSCRIBE"]
        assert not query.trigger()
        assert query.broker.requests["SUBSCRIBE"] == asked  # once is enough
        query.broker.closing.clear()
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    @pytest.mark.parametrize("crash", CRASHES)
    def test_after_a_crash(self, query: Query, crash: str) -> None:
        """Also where the process that comes next has a micro-batch to run again."""
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 0)
        query.broker.append(BASE, single(b"b"))
        query.trigger(crash)
        assert self.acknowledged(query) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 4)

    @pytest.mark.parametrize("limit", ["1", "2", "3"])
    def test_with_limits(
        self, scripted: ScriptedBroker, queries: Any, limit: str
    ) -> None:
        """Ends are wherever rows are enough; what the driver looks at tells, too."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        scripted.append(BASE, *[piece(n, 0) for n in "uv"], single(b"b"))
        query = queries(maxRowsPerTrigger=limit)
        assert self.acknowledged(query) <= (LEDGER, 2)
        assert self.acknowledged(query, piece("v", 1)) <= (LEDGER, 2)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 7)
        assert all_rows(query) == stored(scripted)

    def test_limits_far_ahead_of_an_open_message(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next entries are looked at there, not those since the message began."""
        query.stop()
        query.options["maxRowsPerTrigger"] = "40"
        monkeypatch.setattr(guard_module._History, "limit", lambda *_: id_of(0))
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        done = len(query.rows)
        granted = query.broker.permits[BASE]
        assert self.acknowledged(query, *[single(b"b")] * 400) == (LEDGER, 0)
        batches = len(query.rows) - done
        assert all_rows(query) == stored(query.broker)
        each = subscription_module._LOOK_PERMITS + guard_module._WINDOW
        assert query.broker.permits[BASE] - granted <= (batches + 1) * each

    @pytest.mark.parametrize("where", ["the guard", "a look ahead"])
    def test_an_interrupt(
        self, query: Query, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        """It leaves no reader behind, but for the subscription's own."""
        query.stop()
        query.options["maxRowsPerTrigger"] = "1"
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        query.broker.append(BASE, *[single(b"b")] * 3)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        if where == "the guard":
            monkeypatch.setattr(guard_module, "_read_all", interrupted)
        else:
            monkeypatch.setattr(subscription_module._Member, "pass_by", interrupted)
        with pytest.raises(KeyboardInterrupt):
            query.drain()
        wait_until(
            lambda: [c.subscription.durable for c in query.broker.consumers] == [True]
        )

    def test_available_now(self, query: Query) -> None:
        """A run leaves an open message to the next one."""
        query.broker.append(BASE, piece("u", 0))
        query.stop()
        for _ in range(2):
            query.planner.fix_target()
            assert self.acknowledged(query) == (LEDGER, 0)
            query.stop()
        query.broker.append(BASE, piece("u", 1))
        query.planner.fix_target()
        assert self.acknowledged(query) == (LEDGER, 2)

    @pytest.mark.parametrize("expires", [True, False])
    def test_a_message_that_is_never_finished(
        self, query: Query, monkeypatch: pytest.MonkeyPatch, expires: bool
    ) -> None:
        """It holds the acknowledgement for as long as the option says."""
        query.stop()
        expiry = "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis"
        query.options[expiry] = "60000" if expires else "0"
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        clock.now += 59
        assert self.acknowledged(query, piece("v", 0)) == (LEDGER, 0)
        clock.now += 2
        assert self.acknowledged(query) == (LEDGER, 1 if expires else 0)
        clock.now += 1e6
        assert self.acknowledged(query) == (LEDGER, 2 if expires else 0)

    def test_one_that_was_never_finished_and_many_rows(self, query: Query) -> None:
        """It is not looked for behind more than 32 entries."""
        assert self.acknowledged(query, piece("u", 0)) == (LEDGER, 0)
        for n in range(2, 33):
            assert self.acknowledged(query, single(b"b")) == (LEDGER, 0), n
        assert self.acknowledged(query, single(b"b")) == (LEDGER, 33)

    def test_batches_cost_more_permits(self, query: Query) -> None:
        """They are granted until all that is looked at has come."""
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, piece("u", 0), *rows) == (LEDGER, 6)
        assert self.acknowledged(query, piece("v", 0), *rows, piece("w", 0)) == (
            LEDGER,
            6,
        )

    def test_a_damaged_entry_is_no_chunk(self, query: Query) -> None:
        """Whoever reads it says so."""
        bad = replace(single(b"b"), is_damaged=True)
        assert self.acknowledged(query, piece("u", 0), bad, bad) == (LEDGER, 3)
        assert self.acknowledged(query, piece("v", 0)) == (LEDGER, 3)
        assert self.acknowledged(query, bad) == (LEDGER, 3)

    def test_a_look_that_fails_is_repeated(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """Nothing is acknowledged unseen, and nobody is told of a refusal."""

        def only_readers(broker: ScriptedBroker, session: Session, c: Any) -> None:
            refused = usual if c.subscribe.durable else refuse("ServiceNotReady")
            refused(broker, session, c)

        scripted.append(BASE, single(b"b"))
        query.trigger()
        scripted.always("SUBSCRIBE", only_readers)
        assert not query.trigger()
        assert scripted.durable(BASE)[0].mark_delete == (LEDGER, 0)
        scripted.always("SUBSCRIBE", usual)
        assert self.acknowledged(query) == (LEDGER, 1)

    @pytest.mark.parametrize("how", ["the topic moves", "the connection breaks"])
    def test_a_look_that_breaks_off_is_repeated(self, query: Query, how: str) -> None:
        """A reader that has not read its entries does not say that nothing is open."""
        broken: list[pb.CommandFlow] = []

        def break_off(broker: ScriptedBroker, session: Session, c: Any) -> None:
            broken.append(c.flow)
            if how == "the topic moves":
                broker.close_consumers(BASE)
            else:
                session.cut()

        query.broker.script("FLOW", break_off)
        assert self.acknowledged(query, single(b"b"), piece("u", 0)) == (LEDGER, 0)
        assert len(broken) == 1
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 3)

    def test_entries_that_come_slowly(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are waited for as long as some come."""
        query.broker.read_entries = 1
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        query.broker.always("FLOW", clock.delaying(waits.USUAL.look_s - 0.1))
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, *rows, piece("u", 0)) == (LEDGER, 0)
        assert self.acknowledged(query, piece("u", 1)) == (LEDGER, 7)

    def test_entries_that_come_before_anybody_waits(
        self, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They were heard, too."""
        query.broker.read_entries = 1
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        query.broker.always("FLOW", clock.delaying(waits.USUAL.look_s - 0.1))
        ask = guard_module._Reader.ask_for_entries

        def ask_and_let_come(reader: Any) -> None:
            before = reader.reached
            ask(reader)
            wait_until(lambda: reader.reached != before or not reader.is_waiting)

        monkeypatch.setattr(guard_module._Reader, "ask_for_entries", ask_and_let_come)
        rows = [batch([b"b"] * 50)] * 5
        assert self.acknowledged(query, *rows, piece("u", 0)) == (LEDGER, 0)

    def test_a_topic_partition_that_delivers_nothing(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It does not keep others from being looked at."""
        scripted.read_entries = 1
        clock = Clock()
        monkeypatch.setattr(guard_module, "time", clock)
        ask = guard_module._Reader.ask_for_entries
        others: list[Any] = []

        def ask_once_more(reader: Any) -> None:
            if reader.topic == P1:
                others.append(reader)
            elif others:
                others.clear()
            else:  # nobody else is waited for
                clock.now += waits.USUAL.look_s / 4
            ask(reader)

        monkeypatch.setattr(guard_module._Reader, "ask_for_entries", ask_once_more)
        scripted.partitions[BASE] = 2
        for name in (P0, P1):
            scripted.add_topic(name, [single(b"a"), piece("w", 0), piece("w", 1)])
        query = queries()
        query.drain()

        def nothing_of_the_first(broker: Any, session: Session, c: Any) -> None:
            consumer = session.consumers[c.flow.consumer_id]
            if consumer.topic != P0:
                usual(broker, session, c)

        scripted.always("FLOW", nothing_of_the_first)
        scripted.append(P0, single(b"b"))
        scripted.append(P1, *[batch([b"b"] * 50)] * 5, piece("u", 0))
        query.drain()
        stand = {name: scripted.durable(name)[0].mark_delete for name in (P0, P1)}
        assert stand == {P0: (LEDGER, 3), P1: (LEDGER, 2)}

    @pytest.mark.usefixtures("hasty_looks")
    def test_ends_at_which_nothing_is_delivered(self, query: Query) -> None:
        """What does not come is not waited for long."""
        query.broker.append(BASE, single(b"b"))
        query.trigger()
        query.broker.always("FLOW", silence)
        assert self.acknowledged(query) == (LEDGER, 1)

    def test_many_topic_partitions(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """64 are looked at in one visit, in turn; and all once one has chunks."""
        scripted.partitions[BASE] = 150
        names = [f"{BASE}-partition-{index}" for index in range(150)]
        for name in names:
            scripted.add_topic(name, [single(b"a")])
        query = queries(lagAgeIntervalMs="0")
        query.drain()
        assert len(scripted.permits) == 64
        for name in names:
            scripted.append(name, single(b"b"))
        query.drain()
        assert len(scripted.permits) == 128
        for name in names:
            scripted.append(name, piece("u", 0))
        query.drain()
        held = {name for name in names if scripted.durable(name)[0].mark_delete[1] < 2}
        assert len(held) == 64
        for name in names:
            scripted.append(name, piece("v", 0))
        query.drain()
        stand = {name: scripted.durable(name)[0].mark_delete[1] for name in names}
        assert stand == {name: 1 if name in held else 2 for name in names}
