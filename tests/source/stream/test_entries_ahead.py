# SPDX-License-Identifier: Apache-2.0
"""Limits of streams over a scripted broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.source.stream.pulsar_offsets import read_offset
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    Clock,
    all_rows,
    stored,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    Session,
    Subscription,
    batch,
    refuse,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.wire import pulsar_api_pb2 as pb

pytestmark = pytest.mark.usefixtures("short_waits")


CURSORS = [(7, 1), (8, -1), (8, 0), (9, 1), (10, -1), (10, 4)]


class Compacting(ScriptedBroker):
    """Retention has removed the first ledger, whose entries compaction has kept.

    Only readers get these; the cursors of subscriptions are behind.
    """

    def _on_subscribe(self, session: Session, body: pb.CommandSubscribe) -> None:
        super()._on_subscribe(session, body)
        if (consumer := session.consumers.get(body.consumer_id)) is None:
            return
        begin = next(p for p in self.positions(body.topic) if p[0] > LEDGER)[0], -1
        if consumer.subscription.mark_delete < begin:
            consumer.subscription.mark_delete = begin
            if body.durable:
                consumer.next_entry = self.topics[body.topic].index(
                    next(e for e in self.topics[body.topic] if e.place > begin)
                )


class TestLimits:
    @pytest.fixture
    def ledgers(self, scripted: ScriptedBroker) -> ScriptedBroker:
        """Two partitions with ledgers of different lengths; entries of two rows.

        Entries that nobody has looked at count as the average does, so a limit is exact
        only where all are of one size.
        """
        scripted.partitions[BASE] = 2
        for name, lengths in ((P0, (5, 1, 3, 7)), (P1, (5, 2, 2))):
            scripted.add_topic(name)
            for length in lengths:
                scripted.append(name, *[batch([b"a", b"b"])] * length)
                scripted.roll(name)
        return scripted

    @pytest.mark.parametrize("limit", [1, 2, 5, 9, 1000])
    def test_rows(self, ledgers: ScriptedBroker, queries: Any, limit: int) -> None:
        """No batch has more, but for an entry alone that has; none is empty."""
        query = queries(maxRowsPerTrigger=str(limit))
        query.drain()
        assert all_rows(query) == stored(ledgers)
        sizes = [len(rows) for rows in query.rows]
        assert max(sizes) <= max(limit, 2)
        assert min(sizes) >= 1
        assert len(sizes) <= 2 * len(stored(ledgers)) // limit + 2

    @pytest.mark.parametrize(("size_bytes", "together"), [(1000, 2), (4000, 1)])
    def test_bytes(
        self, two: ScriptedBroker, queries: Any, size_bytes: int, together: int
    ) -> None:
        """As stored; an entry that is larger than the limit comes alone."""
        for name in (P0, P1):
            two.add_topic(name, [single(b"." * size_bytes)] * 6)
        query = queries(maxBytesPerTrigger="2500")
        query.drain()
        assert all_rows(query) == stored(two)
        assert [len(rows) for rows in query.rows] == [together] * (12 // together)

    def test_many_partitions_are_looked_at_in_turn(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """A look costs permits and memory, so only some have one at a time."""
        scripted.partitions[BASE] = 100
        for index in range(100):
            scripted.add_topic(f"{BASE}-partition-{index}", [single(b"a")] * 9)
        query = queries(maxRowsPerTrigger="1")
        start = query.begin()
        for looked_at in (64, 100):
            query.planner.latest(start)
            assert len(scripted.permits) == looked_at

    @pytest.mark.parametrize("limit", [1, 4, 12, 15, 20])
    def test_ends_are_entries(
        self, ledgers: ScriptedBroker, queries: Any, limit: int
    ) -> None:
        """Not a number behind the end of a ledger, which brokers count wrongly."""
        query = queries(maxRowsPerTrigger=str(limit))
        query.drain()
        for tree in query.log:
            offset = read_offset(tree)
            for name, last in offset.last_read.items():
                assert last.position in [*ledgers.positions(name), (LEDGER, -1)]

    def test_once_is_without_limits(
        self, ledgers: ScriptedBroker, queries: Any
    ) -> None:
        """Trigger.Once takes all there is."""
        query = queries(maxRowsPerTrigger="1000", minRowsPerTrigger="1000")
        query.trigger(unlimited=True)
        assert sorted(query.rows[0]) == stored(ledgers)
        limited = queries(maxRowsPerTrigger="1")
        limited.trigger(unlimited=True)
        assert sorted(limited.rows[0]) == stored(ledgers)

    def test_a_minimum_is_waited_for(
        self, two: ScriptedBroker, queries: Any, clock: Clock
    ) -> None:
        """Until it is there, or for the delay since the last batch."""
        query = queries(minRowsPerTrigger="12", maxTriggerDelay="60s")
        query.trigger()
        assert query.rows == [[]]  # the first batch, which Spark wants at once
        assert not query.trigger()
        two.append(P0, single(b"b"))
        assert not query.trigger()
        two.append(P1, single(b"b"))
        assert query.trigger()
        assert len(query.rows[-1]) == 12
        two.append(P0, single(b"c"))
        clock.now += 59
        assert not query.trigger()
        clock.now += 2
        assert query.trigger()
        assert all_rows(query) == stored(two)

    def test_a_broker_that_does_not_count(
        self, ledgers: ScriptedBroker, queries: Any
    ) -> None:
        """Without its statistics the limit still holds."""
        ledgers.always("CONSUMER_STATS", refuse("MetadataError"))
        query = queries(maxRowsPerTrigger="4")
        query.drain()
        assert all_rows(query) == stored(ledgers)
        assert max(len(rows) for rows in query.rows) <= 4

    @pytest.mark.parametrize("limit", [1, 4, 9])
    @pytest.mark.parametrize("compacted", ["true", "false"])
    @pytest.mark.parametrize("cursor", CURSORS)
    def test_rows_before_a_cursor(
        self,
        ledgers: ScriptedBroker,
        queries: Any,
        cursor: tuple[int, int],
        compacted: str,
        limit: int,
    ) -> None:
        """A limit counts from the query on, wherever others have put the cursor."""
        ledgers.subscriptions[P0, "s"] = Subscription(P0, "s", True, cursor)
        query = queries(
            maxRowsPerTrigger=str(limit),
            predefinedSubscription="s",
            **{"pulsar.reader.readCompacted": compacted},
        )
        left = []
        while query.trigger():
            left.append(query.planner.progress()["backlogEntries"][BASE]["0"])
        assert all_rows(query) == stored(ledgers)
        assert max(len(rows) for rows in query.rows) <= max(limit, 2)
        assert left[-1] == 0

    @pytest.mark.parametrize("limit", [4, 9])
    @pytest.mark.parametrize("restart", [None, "kept", "named", "renamed"])
    @pytest.mark.parametrize("cursor", CURSORS)
    def test_rows_before_a_cursor_in_a_compacted_topic(
        self,
        ledgers: ScriptedBroker,
        queries: Any,
        cursor: tuple[int, int],
        restart: str | None,
        limit: int,
    ) -> None:
        """The same where others move the cursor later, and whose it is."""
        query = queries(
            maxRowsPerTrigger=str(limit), **{"pulsar.reader.readCompacted": "true"}
        )
        if restart == "renamed":
            query.options["predefinedSubscription"] = "s"
        query.trigger()
        query.trigger()
        for name in (P0, P1):
            for subscription in ledgers.durable(name):
                place = min(cursor, ledgers.positions(name)[-1])
                subscription.mark_delete = max(subscription.mark_delete, place)
        if restart is None:
            ledgers.close_consumers()
        else:
            query.kill()
        if restart == "renamed":
            del query.options["predefinedSubscription"]
        if restart == "named":
            query.options["predefinedSubscription"] = query.begin().subscription
        query.drain()
        assert all_rows(query) == stored(ledgers)
        assert max(len(rows) for rows in query.rows) <= limit

    @pytest.mark.parametrize("size", [1, 2])
    def test_what_is_left_when_all_is_read(
        self, scripted: ScriptedBroker, queries: Any, size: int
    ) -> None:
        """Nothing, whatever the estimate was."""
        scripted.add_topic(BASE, [batch([b"a"] * size)] * 5)
        scripted.roll(BASE)
        scripted.append(BASE, *[batch([b"a"] * size)] * 3)
        options = {"pulsar.reader.readCompacted": "true"}
        query = queries(maxRowsPerTrigger="500", **options)
        assert query.trigger()
        assert query.planner.progress()["backlogEntries"] == {BASE: 0}
        assert all_rows(query) == stored(scripted)

    def test_readers_of_compacted_topics(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """However many there are, few take readers, also where brokers open ledgers."""
        names = [f"{BASE}-partition-{index}" for index in range(150)]
        scripted.partitions[BASE] = len(names)
        for name in names:
            scripted.add_topic(name, [single(b"a")] * 2)
            scripted.roll(name)
            scripted.append(name, single(b"b"))
        options = {"pulsar.reader.readCompacted": "true"}
        query = queries(maxRowsPerTrigger="9", **options)
        query.trigger()
        scripted.requests.clear()
        query.trigger()
        assert scripted.requests["SUBSCRIBE"] < len(names)
        assert max(len(rows) for rows in query.rows) <= 9
        query.kill()
        query.options["maxRowsPerTrigger"] = "1000"
        query.drain()
        for name in names:
            opened = scripted.roll(name)
            for subscription in scripted.durable(name):
                subscription.mark_delete = (opened, -1)
            scripted.append(name, single(b"c"))
        scripted.requests.clear()
        query.trigger()
        assert scripted.requests["SUBSCRIBE"] < len(names)
        assert all_rows(query) == stored(scripted)

    def test_nobody_starves(self, two: ScriptedBroker, queries: Any) -> None:
        """A limit of one row goes round."""
        query = queries(maxRowsPerTrigger="1")
        for _ in range(4):
            query.trigger()
        assert {row[0] for rows in query.rows for row in rows} == {P0, P1}


class TestRowsThatCompactionHasKept:
    @pytest.fixture
    def scripted(self) -> Iterator[ScriptedBroker]:
        """A broker that has removed ledgers."""
        with Compacting() as broker:
            yield broker

    @pytest.mark.parametrize("count", [1, 70])
    def test_limit(self, scripted: ScriptedBroker, queries: Any, count: int) -> None:
        """Of ledgers that were removed: no consumer of the subscription sees them."""
        names = [f"{BASE}-partition-{index}" for index in range(count)]
        scripted.partitions[BASE] = count
        for name in names:
            scripted.add_topic(name, [single(b"a")] * 20)
            scripted.roll(name)
            scripted.append(name, *[single(b"b")] * 2)
        limit = 9 * count
        query = queries(
            maxRowsPerTrigger=str(limit), **{"pulsar.reader.readCompacted": "true"}
        )
        query.drain()
        assert all_rows(query) == sorted(stored(scripted), key=lambda row: row[0])
        assert max(len(rows) for rows in query.rows) <= limit
        # All in a ledger costs few micro-batches.
        assert len(query.rows) <= 6
