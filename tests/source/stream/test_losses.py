# SPDX-License-Identifier: Apache-2.0
"""Rows, positions and topics that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.errors import (
    DataLossError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.entries_ahead import EntriesAhead
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    Query,
    Row,
    all_rows,
    at,
    id_of,
    stored,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    Session,
    Subscription,
    single,
    usual,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")


class TestUnreached:
    """Places that the topic has never come to: it is not the one that was read."""

    @pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}])
    @pytest.mark.parametrize(
        "read", [at(41, 900000), at(-1, 900000), at(5), at(2, 900000, 1)]
    )
    def test_it_is_an_error_that_names_both(
        self,
        two: ScriptedBroker,
        queries: Any,
        read: LastRead,
        limits: dict[str, str],
    ) -> None:
        """Each time, and nothing is left behind; new rows change nothing."""
        query = queries(**limits)
        start = StreamOffset("s", {P0: at(4), P1: read})
        for _ in range(2):
            with pytest.raises(DataLossError) as caught:
                query.planner.latest(start)
            assert caught.value.topic_partition == P1
            for text_ in (str(read), "7:4", "checkpoint", "startingOffsets"):
                assert text_ in caught.value.message
            query.kill()
            wait_until(lambda: two.durable(P1) == [], "the end of the subscription")

    def test_a_start_with_a_slip(self, two: ScriptedBroker, queries: Any) -> None:
        """They are checked before anything is recorded."""
        query = queries(startingOffsets=f'{{"t":{{"0":"{LEDGER}:44"}}}}')
        with pytest.raises(DataLossError, match=r"7:43.*ends at 7:4.*startingOffsets"):
            query.trigger()
        assert two.durable(P0) == []

    @pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}])
    def test_it_goes_on_with_what_there_is(
        self,
        two: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        limits: dict[str, str],
    ) -> None:
        """With `failOnDataLoss` false: one warning, and all rows of the topic."""
        query = queries(failOnDataLoss="false", **limits)
        start = StreamOffset("s", {P0: at(4), P1: at(41, 900000)})
        seen: list[Row] = []
        for _ in range(3):
            while (end := query.planner.latest(start)) is not start:
                for range_ in query.ranges(start, end):
                    seen += query.read(range_)
                start = read_offset(end.to_json())
            query.kill()
            two.append(P1, single(b"b"))
        assert seen == [(P1, LEDGER, n, 0) for n in range(7)]
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == 1

    def test_an_accepted_one_is_over(self, two: ScriptedBroker, queries: Any) -> None:
        """Also where nothing was to be read yet: the next run is told where it is."""
        two.add_topic(P1)
        start = StreamOffset("s", {P0: at(4), P1: at(41, 900000)})
        query = queries(failOnDataLoss="false")
        accepted = query.planner.latest(start)
        assert query.ranges(start, accepted) == []
        query.kill()
        query = queries()
        start = query.planner.offset(accepted.to_json())
        assert query.planner.latest(start) is start
        two.append(P1, single(b"b"))
        (range_,) = query.ranges(start, query.planner.latest(start))
        assert [row[0] for row in query.read(range_)] == [P1]

    def test_what_was_read_and_removed_was_reached(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """Nothing is left that could be read, and nothing is wrong."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries()
        query.drain()
        scripted.roll(BASE)
        scripted.trim(BASE)
        query.kill()
        for _ in range(3):
            assert not query.trigger()
        asked = scripted.requests["SUBSCRIBE"]
        assert not query.trigger()
        assert scripted.requests["SUBSCRIBE"] == asked  # once is enough
        scripted.append(BASE, single(b"b"))
        query.drain()
        assert len(all_rows(query)) == 6

    def test_what_a_broker_shows_later_was_reached(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """While it recovers transactions, less can be read than was read before."""

        def earlier(broker: ScriptedBroker, session: Session, command: Any) -> None:
            consumer = session.consumers[command.getLastMessageId.consumer_id]
            kept = broker.topics[consumer.topic]
            broker.topics[consumer.topic] = kept[:2]
            usual(broker, session, command)
            broker.topics[consumer.topic] = kept

        query = queries()
        query.drain()
        query.kill()
        two.script("GET_LAST_MESSAGE_ID", earlier, earlier)
        assert not query.trigger()
        two.append(P0, single(b"b"))
        query.drain()
        assert all_rows(query) == stored(two)


class TestLoss:
    #: Whether the subscription was there, where it stands, how many of the topic's
    #: ledgers (7: entries 0 to 4, 8: likewise) are removed, up to where the query has
    #: read; what it reads next, or None where that is a loss.
    CASES = (
        # Nothing was removed: rows are read by id, wherever the cursor is.
        (True, (7, 2), 0, at(2), (7, 3)),
        (True, (8, 1), 0, at(2), (7, 3)),
        (True, (7, 0), 0, at(2), (7, 3)),
        (True, (8, -1), 0, at(4), (8, 0)),
        (False, None, 0, at(2), (7, 3)),
        (False, None, 0, at(4), (8, 0)),
        # The ledger was read to its end, so brokers may remove it.
        (True, (7, 4), 1, at(4), (8, 0)),
        (True, (8, -1), 1, at(4), (8, 0)),
        (True, (7, 4), 1, at(2, 8), (8, 3)),
        # So it looks where 4.2.4 has expired it to its end: docs/guarantees.md says so.
        (True, (8, -1), 1, at(2), (8, 0)),
        # Rows to come went with it.
        (True, (7, 4), 1, at(2), None),
        (True, (8, 1), 1, at(2), None),
        (True, (8, 1), 1, at(4), None),
        (False, None, 1, at(2), None),
        # Nobody can tell whether 7:4 was the last one.
        (False, None, 1, at(4), None),
        (False, None, 1, at(2, 8), (8, 3)),
    )

    def prepare(
        self,
        broker: ScriptedBroker,
        is_there: bool,
        cursor: tuple[int, int] | None,
        trimmed: int,
    ) -> None:
        """A topic and a subscription in such a state."""
        broker.add_topic(BASE, [single(b"a")] * 5)
        assert broker.roll(BASE) == 8
        broker.append(BASE, *[single(b"a")] * 5)
        broker.trim(BASE, ledgers=trimmed)
        if is_there:
            assert cursor is not None
            broker.subscriptions[BASE, "s"] = Subscription(BASE, "s", True, cursor)

    @pytest.mark.parametrize("fail", ["true", "false"])
    @pytest.mark.parametrize(("is_there", "cursor", "trimmed", "read", "next_"), CASES)
    def test_after_a_restart(
        self,
        scripted: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        fail: str,
        is_there: bool,
        cursor: tuple[int, int] | None,
        trimmed: int,
        read: LastRead,
        next_: tuple[int, int] | None,
    ) -> None:
        """Lost is what the topic does not reach back to, unless it was all read."""
        self.prepare(scripted, is_there, cursor, trimmed)
        query = queries(failOnDataLoss=fail)
        start = StreamOffset("s", {BASE: read})
        if next_ is None and fail == "true":
            for _ in range(2):
                with pytest.raises(DataLossError) as caught:
                    query.planner.latest(start)
                assert caught.value.topic_partition == BASE
                assert "failOnDataLoss" in caught.value.message
                # Failing does not make it look as if it had been there.
                query.kill()
                assert bool(scripted.durable(BASE)) == is_there
            return
        end = query.planner.latest(start)
        (range_,) = query.ranges(start, end)
        first, *_, last = query.read(range_)
        assert first == (BASE, *(next_ or (8, 0)), 0)
        assert last == (BASE, 8, 4, 0)
        for _ in range(2):
            assert query.planner.latest(end) is end
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == (next_ is None)

    def test_the_end_says_where_it_goes_on(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """So the batch is the same after a crash."""
        self.prepare(scripted, True, (8, 1), 1)
        query = queries(failOnDataLoss="false")
        start = StreamOffset("s", {BASE: at(2)})
        end = read_offset(query.planner.latest(start).to_json())
        assert end.start_after == {BASE: at(-1, 8)}
        query.kill()
        wanted = [TopicRange(BASE, id_of(0, 8), id_of(4, 8))]
        assert query.ranges(start, end) == wanted

    @pytest.mark.parametrize("read", [4, 3])
    def test_the_broker_knows_the_last_row(
        self, scripted: ScriptedBroker, queries: Any, read: int
    ) -> None:
        """That it was read is known without a subscription, too."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        scripted.roll(BASE)
        scripted.trim(BASE)
        query = queries(ackOnCommit="false")
        start = StreamOffset("s", {BASE: at(read)})
        if read == 3:
            with pytest.raises(DataLossError, match="no longer has 7:4"):
                query.planner.latest(start)
            return
        query.planner.latest(start)

    def test_ledgers_removed_while_it_runs(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """After all of them were read: no loss, and nothing is read twice."""
        query = queries()
        for _ in range(4):
            query.drain()
            wanted = stored(two)
            for name in (P0, P1):
                two.roll(name)
                two.trim(name)
                two.append(name, *[single(b"b")] * 2)
            two.close_consumers()
        assert wanted
        query.drain()
        assert sorted(query.rows[-1]) == stored(two)
        assert sum(map(len, query.rows)) == 10 + 4 * 4

    def test_expiry_while_it_runs(self, scripted: ScriptedBroker, queries: Any) -> None:
        """Rows that the query has seen ahead of it, and that go with their ledger."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries(maxRowsPerTrigger="2")
        query.trigger()
        query.trigger()
        scripted.roll(BASE)
        scripted.append(BASE, single(b"b"))
        scripted.trim(BASE)
        assert scripted.durable(BASE)[0].mark_delete == (8, -1)
        with pytest.raises(DataLossError, match="7:4"):
            query.trigger()
        # The subscription was there before: it is not deleted.
        assert len(scripted.durable(BASE)) == 1

    def test_a_cursor_ahead_protects_nothing(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """Rows between, which are still stored, may go at any later time."""
        self.prepare(scripted, True, (8, 1), 0)
        query = queries(maxRowsPerTrigger="2", predefinedSubscription="s")
        query.trigger()
        start = query.begin()
        end = query.planner.latest(start, unlimited=True)
        # So a task that does not find them says so.
        scripted.trim(BASE)
        (range_,) = query.ranges(start, end)
        assert range_.is_start_known
        with pytest.raises(DataLossError, match="7:2"):
            query.planner.latest(start)

    def test_a_cursor_ahead_is_looked_at_once(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """While nothing moves, all that may change is what is stored."""
        self.prepare(scripted, True, (8, 1), 0)
        query = queries(predefinedSubscription="s")
        start = StreamOffset("s", {BASE: at(2)})
        query.planner.latest(start)
        scripted.requests.clear()
        query.planner.latest(start)
        assert scripted.requests["SUBSCRIBE"] == 1
        query.planner.latest(StreamOffset("s", {BASE: at(3)}))
        scripted.trim(BASE)
        with pytest.raises(DataLossError, match="7:4"):
            query.planner.latest(StreamOffset("s", {BASE: at(3)}))

    @pytest.mark.parametrize("read", [4, 2])
    def test_a_cursor_that_a_broker_moves_over_aborted_rows(
        self, scripted: ScriptedBroker, queries: Any, read: int
    ) -> None:
        """What it has passed over is nothing to lose."""
        scripted.aborted.add(TxnId(1, 5))
        hidden = single(b"h", txnid_most_bits=1, txnid_least_bits=5)
        scripted.add_topic(BASE, [single(b"a")] * 5 + [hidden] * 3)
        scripted.roll(BASE)
        scripted.append(BASE, single(b"b"))
        scripted.subscriptions[BASE, "s"] = Subscription(BASE, "s", True, (7, 7))
        query = queries()
        start = StreamOffset("s", {BASE: at(read)})
        query.planner.latest(start)
        scripted.trim(BASE)
        if read == 2:
            with pytest.raises(DataLossError, match="7:3"):
                query.planner.latest(start)
            return
        (range_,) = query.ranges(start, query.planner.latest(start))
        assert not range_.is_start_known

    def test_expiry_beyond_the_target_of_a_run(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """The run would not read those rows, but the next one would."""
        scripted.add_topic(BASE, [single(b"a")] * 5)
        query = queries()
        query.planner.fix_target()
        query.drain()
        scripted.append(BASE, *[single(b"b")] * 2)
        assert not query.trigger()
        scripted.roll(BASE)
        scripted.append(BASE, single(b"c"))
        scripted.trim(BASE)
        with pytest.raises(DataLossError, match="7:5"):
            query.trigger()

    def test_a_compacted_topic_reaches_back_further(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """What was removed is still there in its compacted form."""
        self.prepare(scripted, True, (8, 1), 1)
        query = queries(**{"pulsar.reader.readCompacted": "true"})
        start = StreamOffset("s", {BASE: at(2)})
        (range_,) = query.ranges(start, query.planner.latest(start))
        assert range_.start == id_of(3)


class TestGone:
    @pytest.fixture
    def query(self, scripted: ScriptedBroker, queries: Any) -> Query:
        """It has read two topics."""
        for name in ("a", "b"):
            scripted.add_topic(
                f"persistent://public/default/{name}", [single(b"a")] * 3
            )
        one: Query = queries(topics="a,b", failOnDataLoss="false")
        del one.options["topic"]
        one.drain()
        return one

    A, B = (f"persistent://public/default/{name}" for name in "ab")

    @pytest.mark.parametrize("interval_ms", ["0", "3600000"])
    def test_it_leaves_with_one_warning(
        self,
        scripted: ScriptedBroker,
        query: Query,
        caplog: pytest.LogCaptureFixture,
        interval_ms: str,
    ) -> None:
        """The other goes on, whether topics are looked for meanwhile or not."""
        query.kill()
        query.options["partitionDiscoveryIntervalMs"] = interval_ms
        assert not query.trigger()
        scripted.delete_topic(self.A)
        for _ in range(3):
            scripted.append(self.B, single(b"b"))
            query.drain()
            assert len(query.rows[-1]) == 1
        assert list(query.begin().last_read) == [self.B]
        warned = [r for r in caplog.records if "PULSAR_DATA_LOSS" in r.getMessage()]
        assert len(warned) == 1
        assert self.A in warned[0].getMessage()

    def test_while_the_target_is_fixed(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """`availableNow` goes on without it, too."""
        query.kill()
        scripted.append(self.B, *[single(b"b")] * 3)
        query.options["maxRowsPerTrigger"] = "1"
        query.planner.fix_target()
        scripted.delete_topic(self.A)
        query.drain()
        assert [row[0] for row in all_rows(query)] == [self.A] * 3 + [self.B] * 6

    def test_it_is_an_error_that_names_it(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """With `failOnDataLoss`, every time."""
        query.kill()
        query.options["failOnDataLoss"] = "true"
        scripted.delete_topic(self.A)
        for _ in range(2):
            with pytest.raises(DataLossError, match=self.A):
                query.trigger()
            query.kill()

    def test_it_is_read_anew_when_it_comes_back(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """From its first row on."""
        scripted.delete_topic(self.A)
        query.drain()
        scripted.add_topic(self.A, [single(b"b")] * 2)
        query.drain()
        assert query.rows[-1] == [
            (self.A, *place, 0) for place in scripted.positions(self.A)
        ]

    def test_it_comes_back_between_two_looks(
        self, scripted: ScriptedBroker, query: Query
    ) -> None:
        """What was in it is lost, which is known by its new ledgers."""
        scripted.delete_topic(self.A)
        scripted.add_topic(self.A, [single(b"b")] * 2)
        query.drain()
        assert query.rows[-1] == [
            (self.A, *place, 0) for place in scripted.positions(self.A)
        ]

    @pytest.mark.parametrize("fails", [True, False])
    def test_while_a_micro_batch_is_planned(
        self,
        scripted: ScriptedBroker,
        query: Query,
        monkeypatch: pytest.MonkeyPatch,
        fails: bool,
    ) -> None:
        """Right before the driver asks where its next ledger ends."""
        query.kill()
        query.options["failOnDataLoss"] = str(fails)
        query.options["maxRowsPerTrigger"] = "2"
        for topic in (self.A, self.B):
            scripted.append(topic, *[single(b"b")] * 3)
            scripted.roll(topic)
            scripted.append(topic, single(b"c"))
        query.trigger()
        ends = EntriesAhead.ends

        def gone(entries: EntriesAhead, shares: Any) -> Any:
            if self.A in scripted.topics:
                scripted.delete_topic(self.A)
            return ends(entries, shares)

        monkeypatch.setattr(EntriesAhead, "ends", gone)
        query.trigger()
        assert self.A not in scripted.topics
        if fails:
            with pytest.raises(DataLossError, match=self.A):
                query.drain()
            return
        query.drain()
        last = [row for rows in query.rows for row in rows if row[0] == self.B]
        assert last[-4:] == stored(scripted)[-4:]

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize("when", ["it is found", "the target is fixed"])
    def test_before_the_first_question_about_it(
        self, scripted: ScriptedBroker, query: Query, fails: bool, when: str
    ) -> None:
        """A new topic that goes while the driver asks where it begins."""
        query.kill()
        query.options["failOnDataLoss"] = str(fails)
        query.options["topics"] = "a,b,c"
        scripted.append(self.B, single(b"b"))
        late_one = "persistent://public/default/c"
        scripted.add_topic(late_one, [single(b"c")])

        def gone(broker: ScriptedBroker, session: Session, command: Any) -> None:
            if late_one in broker.topics:
                broker.delete_topic(late_one)
            usual(broker, session, command)

        scripted.script("LOOKUP", *[gone] * 3)
        if when != "it is found":
            if fails:
                with pytest.raises(DataLossError, match=late_one):
                    query.planner.fix_target()
                return
            query.planner.fix_target()
        if fails:
            with pytest.raises(DataLossError, match=late_one):
                query.drain()
            return
        query.drain()
        assert query.rows[-1] == [(self.B, LEDGER, 3, 0)]
