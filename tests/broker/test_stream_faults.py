# SPDX-License-Identifier: Apache-2.0
"""Streams stay exact whatever happens to brokers, and notice it when rows are gone.

Every row carries its number, so that one that is lost, doubled or out of order shows.
Spark itself takes part where it matters; elsewhere ``Query`` does what Spark does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pyspark.errors import StreamingQueryException

from pulsar_spark.errors import DataLossError
from pulsar_spark.message_id import MessageId, encode_message_id
from pulsar_spark.source.stream import held_rows
from pulsar_spark.source.stream.subscription import Subscription
from pulsar_spark.testing.admin import Admin, AdminError
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import patience, reading
from tests.support.combinations import combinations
from tests.support.driven_query import Query
from tests.support.entries import message
from tests.support.fixtures import restless as restless
from tests.support.link_proxy import LinkProxy
from tests.support.official import client, read_back
from tests.support.raw_publisher import RawPublisher, TxnId
from tests.support.transactions import Transactions
from tests.support.waiting import (
    await_subscriptions,
    await_true,
    trim_first_ledger,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Bounds a failure, in seconds; says nothing about how long anything should take.
PATIENCE_S = 180.0
LOSS = "[PULSAR_DATA_LOSS]"

Rows = dict[str, list[int]]


@pytest.fixture(autouse=True)
def _restless(restless: None) -> None:
    """In all of these tests."""


def write(service_url: str, topic: str, numbers: range) -> list[tuple[int, int]]:
    """Publishes numbers, an entry for each; returns ``(ledger_id, entry_id)``."""
    with RawPublisher(service_url, topic) as publisher:
        return [publisher.send(*message(b"%d" % number)) for number in numbers]


def backlog(admin: Admin, topic: str, subscription: str = "") -> int:
    """Of its only subscription, or the one named."""
    subscriptions = admin.stats(topic)["subscriptions"]
    if not subscription:
        (subscription,) = [n for n, s in subscriptions.items() if s["isDurable"]]
    return int(subscriptions[subscription]["msgBacklog"])


def await_trimmed(admin: Admin, topic: str, before: int) -> None:
    """Removes the ledgers before this one, as retention would."""
    admin.set_retention(namespace_of(topic), minutes=0, size_mb=0)

    def gone() -> bool:
        admin.trim(topic)  # of no effect until the topic has heard of the policy
        return ledgers(admin, topic)[0] >= before

    await_true(gone, f"trimming {topic}", PATIENCE_S)


def namespace_of(topic: str) -> str:
    """``tenant/namespace``."""
    return topic.removeprefix("persistent://").rpartition("/")[0]


def ledgers(admin: Admin, topic: str) -> list[int]:
    """Its ledgers, in order."""
    return [one["ledgerId"] for one in admin.internal_stats(topic)["ledgers"]]


class Losses:
    """The data losses that were warned about."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self) -> list[str]:
        """Those since the last time."""
        found = [
            record.getMessage()
            for record in self._caplog.records
            if record.name.startswith("pulsar_spark") and LOSS in record.getMessage()
        ]
        self._caplog.clear()
        return found


@pytest.fixture
def losses(caplog: pytest.LogCaptureFixture) -> Losses:
    """What is warned about in this process."""
    caplog.set_level(logging.WARNING, logger="pulsar_spark")
    return Losses(caplog)


@pytest.fixture
def fresh(namespace: str) -> str:
    """A topic, in a namespace of its own."""
    return f"persistent://{namespace}/t"


def check_loss(error: DataLossError, topic: str, wanted: str, available: str) -> None:
    """The error says what is missing, and where."""
    assert (error.topic_partition, error.wanted) == (topic, wanted)
    assert error.available == available
    for part in (LOSS, topic, wanted, available):
        assert part in str(error)


class TestRetention:
    """Rows that were removed while the query was stopped."""

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize("cause", ["not acknowledged", "subscription deleted"])
    def test_rows_are_gone(
        self,
        admin: Admin,
        service_url: str,
        fresh: str,
        losses: Losses,
        cause: str,
        fails: bool,
    ) -> None:
        """An error with both positions, or one warning and all that is left."""
        acks = str(cause != "not acknowledged")
        query = Query(service_url, topic=fresh, ackOnCommit=acks)
        lost = write(service_url, fresh, range(30))
        query.options["maxRowsPerTrigger"] = "7"
        query.run()
        assert query.rows == {fresh: list(range(30))}
        write(service_url, fresh, range(30, 60))
        admin.unload(fresh)
        left = write(service_url, fresh, range(60, 90))
        if acks == "True":
            await_subscriptions(admin, fresh, query.subscription)
            admin.delete_subscription(fresh, query.subscription)
        trim_first_ledger(admin, fresh)

        wanted = f"{lost[0][0]}:30"
        query.options["failOnDataLoss"] = str(fails)
        if fails:
            for _ in range(2):  # and again
                with pytest.raises(DataLossError) as caught:
                    query.run()
                check_loss(caught.value, fresh, wanted, f"{left[0][0]}:0")
            assert query.rows == {fresh: list(range(30))}
            query.options["failOnDataLoss"] = "False"
        assert losses.take() == []
        query.run()
        expected = [*range(30), *range(60, 90)]
        assert query.rows == {fresh: expected}
        (loss,) = losses.take()
        assert fresh in loss
        assert wanted in loss
        assert f"{left[0][0]}:0" in loss

        query.options["failOnDataLoss"] = "True"
        for at in (90, 95):
            write(service_url, fresh, range(at, at + 5))
            query.run()
        assert query.rows == {fresh: [*expected, *range(90, 100)]}
        assert losses.take() == []
        if acks == "True":
            assert backlog(admin, fresh) == 0

    @pytest.mark.parametrize("fails", [True, False])
    def test_expiry_took_rows(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses, fails: bool
    ) -> None:
        """The cursor was moved into a later ledger, and those before it removed."""
        query = Query(service_url, topic=fresh, failOnDataLoss=str(fails))
        (first, _), *_ = write(service_url, fresh, range(10))
        query.run()
        write(service_url, fresh, range(10, 20))
        admin.unload(fresh)
        (second, _), *_ = write(service_url, fresh, range(20, 30))
        admin.skip(fresh, query.subscription, 15)
        assert backlog(admin, fresh) == 5
        trim_first_ledger(admin, fresh)
        if fails:
            with pytest.raises(DataLossError) as caught:
                query.run()
            check_loss(caught.value, fresh, f"{first}:10", f"{second}:0")
            return
        query.run()
        # Also those that are expired, but still there.
        assert query.rows == {fresh: [*range(10), *range(20, 30)]}
        assert len(losses.take()) == 1
        write(service_url, fresh, range(30, 35))
        query.run()
        assert query.rows == {fresh: [*range(10), *range(20, 35)]}
        assert losses.take() == []
        assert backlog(admin, fresh) == 0

    @pytest.mark.parametrize("fails", [True, False])
    @pytest.mark.parametrize("how", ["skipped", "expired"])
    def test_everything_expired(
        self,
        admin: Admin,
        service_url: str,
        fresh: str,
        losses: Losses,
        how: str,
        fails: bool,
    ) -> None:
        """The whole backlog is removed: the next ledger begins, and is empty."""
        query = Query(
            service_url, topic=fresh, failOnDataLoss=str(fails), maxRowsPerTrigger="3"
        )
        (first, _), *_ = write(service_url, fresh, range(10))
        query.trigger()
        query.trigger()
        query.trigger()
        query.stop()
        assert query.rows == {fresh: list(range(9))}
        if how == "skipped":
            admin.skip(fresh, query.subscription)
        else:

            def expired() -> bool:
                with contextlib.suppress(AdminError):  # nothing is old enough yet
                    admin.expire(fresh, query.subscription, 1)
                return backlog(admin, fresh) == 0

            await_true(expired, "expiry")
        admin.unload(fresh)
        trim_first_ledger(admin, fresh)
        if fails:
            with pytest.raises(DataLossError) as caught:
                query.run()
            check_loss(caught.value, fresh, f"{first}:9", "")
            return
        write(service_url, fresh, range(10, 15))
        query.run()
        assert query.rows == {fresh: [*range(9), *range(10, 15)]}
        assert len(losses.take()) == 1
        assert query.run() == 0
        assert losses.take() == []

    def test_expired_rows_that_are_stored_are_read(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """A cursor that was moved is no loss as long as retention keeps the rows."""
        query = Query(service_url, topic=fresh)
        write(service_url, fresh, range(10))
        query.run()
        write(service_url, fresh, range(10, 20))
        admin.unload(fresh)
        write(service_url, fresh, range(20, 30))
        admin.skip(fresh, query.subscription)
        assert backlog(admin, fresh) == 0
        query.run()
        admin.unload(fresh)
        write(service_url, fresh, range(30, 40))
        query.run()
        assert query.rows == {fresh: list(range(40))}
        assert losses.take() == []


class TestNoFalseAlarms:
    """Ledgers that were read may go."""

    def test_a_trim_that_ends_where_the_query_stands(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """Stopped at the end of a ledger, which is then removed as a whole."""
        query = Query(service_url, topic=fresh)
        write(service_url, fresh, range(10))
        for at in range(10, 40, 10):
            query.run()
            query.run()
            admin.unload(fresh)
            (ledger, _), *_ = write(service_url, fresh, range(at, at + 10))
            await_trimmed(admin, fresh, ledger)
            if at == 20:
                admin.unload(fresh)
        query.run()
        assert query.rows == {fresh: list(range(40))}
        assert losses.take() == []
        assert backlog(admin, fresh) == 0

    def test_a_topic_that_is_empty_since(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """All was read and removed; nothing was published when the query came back."""
        query = Query(service_url, topic=fresh)
        write(service_url, fresh, range(10))
        query.run()
        admin.unload(fresh)
        # A broker may lose the first acknowledgement of a subscription in an unload
        # that follows at once. It is repeated; until then nothing can be removed.
        assert query.run() <= 1
        trim_first_ledger(admin, fresh)
        assert query.run() <= 1
        assert query.run() == 0
        write(service_url, fresh, range(10, 20))
        query.run()
        assert query.rows == {fresh: list(range(20))}
        assert losses.take() == []

    @pytest.mark.parametrize("start", ["earliest", "latest"])
    @pytest.mark.parametrize("acknowledges", ["true", "false"])
    def test_partitions_that_never_had_a_row(
        self,
        admin: Admin,
        service_url: str,
        fresh: str,
        losses: Losses,
        acknowledges: str,
        start: str,
    ) -> None:
        """Their empty ledger goes with each unload, and nothing that was in it."""
        admin.create_partitioned(fresh, 2)
        busy, idle = (f"{fresh}-partition-{index}" for index in range(2))
        query = Query(
            service_url, topic=fresh, startingOffsets=start, ackOnCommit=acknowledges
        )
        query.trigger()
        write(service_url, busy, range(3))
        query.drain()
        for at in (3, 6):
            admin.unload(idle)
            write(service_url, busy, range(at, at + 3))
            query.drain()
        query.stop()
        for at in (9, 12):
            query.run()
            admin.unload(idle)
            write(service_url, busy, range(at, at + 3))
            query.run()
        with query:
            query.drain()
            admin.unload(idle)
            write(service_url, idle, range(3))
            query.drain()
        admin.unload(idle)
        write(service_url, idle, range(3, 5))
        query.run()
        assert query.rows == {busy: list(range(15)), idle: list(range(5))}
        assert losses.take() == []

    def test_a_start_in_an_empty_ledger(
        self, admin: Admin, service_url: str, fresh: str
    ) -> None:
        """Means all rows that follow, before and after the ledger is gone."""
        admin.create_topic(fresh)
        (ledger,) = ledgers(admin, fresh)
        options = {
            "topic": fresh,
            "startingOffsets": json.dumps({fresh: f"{ledger}:-1"}),
        }
        with Query(service_url, ackOnCommit="false", **options) as query:
            assert not query.trigger()
            rows: list[int]
            for rows in ([], [0, 1, 2]):
                for _ in range(2):
                    found = reading.read(service_url, options)
                    assert [int(row.value or b"") for row in found] == rows
                    admin.unload(fresh)
                assert query.trigger() == bool(rows)
                if not rows:
                    write(service_url, fresh, range(3))
            assert query.rows == {fresh: rows}

    @pytest.mark.parametrize("knows", ["the query", "the broker"])
    def test_a_partition_that_was_empty_and_lost_rows(
        self, admin: Admin, service_url: str, fresh: str, knows: str
    ) -> None:
        """That the query's position is in an empty ledger excuses no loss that shows.

        Either the query saw the rows, or the topic's last position is still theirs.
        """
        limits = {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "10m"}
        query = Query(service_url, topic=fresh, ackOnCommit="false", **limits)
        admin.create_topic(fresh)
        with query:
            begin = query.start().initialOffset()
            query.ends.append(json.dumps(begin))
            assert not query.trigger()
            write(service_url, fresh, range(5))
            if knows == "the query":
                assert not query.trigger()  # too few for a micro-batch
            else:
                query.stop()
            (first,) = ledgers(admin, fresh)
            admin.unload(fresh)
            trim_first_ledger(admin, fresh)
            if knows == "the query":
                write(service_url, fresh, range(5, 6))
            with pytest.raises(DataLossError, match=f"no longer has {first}:0"):
                query.trigger()

    @pytest.mark.parametrize("limit", ["", "4"])
    def test_a_running_query_and_many_unloads(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses, limit: str
    ) -> None:
        """Each time the ledgers that are read are removed."""
        admin.set_retention(namespace_of(fresh), minutes=0, size_mb=0)
        options = {"maxRowsPerTrigger": limit} if limit else {}
        with Query(service_url, topic=fresh, **options) as query:
            seen = set()
            for at in range(0, 60, 5):
                write(service_url, fresh, range(at, at + 5))
                query.trigger()
                admin.unload(fresh)
                query.trigger()
                admin.trim(fresh)
                seen.update(ledgers(admin, fresh))
            query.drain()
            assert query.rows == {fresh: list(range(60))}
            await_true(lambda: not query.trigger() and backlog(admin, fresh) == 0)
        assert losses.take() == []
        assert len(seen) >= 12
        assert len(ledgers(admin, fresh)) < 8


@pytest.fixture(scope="module")
def small() -> Iterator[EmbeddedBroker]:
    """A broker that begins a new ledger after ten entries, and may be killed."""
    settings = {
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        # Cursors are written down at once, not every ten seconds: ledgers go sooner.
        "managedLedgerDefaultMarkDeleteRateLimit": "1000",
    }
    with LinkProxy() as link, EmbeddedBroker(settings=settings, link=link) as broker:
        yield broker


@pytest.fixture
def rolling(small: EmbeddedBroker) -> str:
    """A topic there whose ledgers go as soon as they are acknowledged."""
    namespace = f"public/rolling-{uuid.uuid4().hex[:8]}"
    Admin(small.admin_url).create_namespace(namespace)
    return f"persistent://{namespace}/t"


class TestRollover:
    """Ledgers of ten entries, without retention."""

    @pytest.mark.parametrize(
        "limit",
        ["", "4", *(pytest.param(n, marks=pytest.mark.matrix) for n in ("1", "25"))],
    )
    def test_a_running_query(
        self,
        small: EmbeddedBroker,
        rolling: str,
        losses: Losses,
        monkeypatch: pytest.MonkeyPatch,
        limit: str,
    ) -> None:
        """Exact, however batches and ledgers end; the backlog is never misjudged."""
        counted: list[int] = []
        waiting = Subscription.waiting

        def count(one: Subscription, topics: Any) -> dict[str, int]:
            found = waiting(one, topics)
            counted.extend(found.values())
            return found

        monkeypatch.setattr(Subscription, "waiting", count)
        admin = Admin(small.admin_url)
        options = {"maxRowsPerTrigger": limit} if limit else {}
        seen = set()
        with Query(small.service_url, topic=rolling, **options) as query:
            write(small.service_url, rolling, range(4))
            query.trigger()
            written = 4
            for size in (6, 10, 3, 7, 20, 1, 13, 26, 10):
                numbers = range(written, written + size)
                places = write(small.service_url, rolling, numbers)
                seen.update(ledger for ledger, _ in places)
                written += size
                for _ in range(3):
                    query.trigger()
                    counted.append(backlog(admin, rolling))
            query.drain()
            assert query.rows == {rolling: list(range(written))}
            await_true(lambda: not query.trigger() and backlog(admin, rolling) == 0)
        assert losses.take() == []
        assert len(seen) >= written // 10
        assert min(counted) >= 0
        assert max(counted) <= written
        await_trimmed(admin, rolling, sorted(seen)[-2])

    @pytest.mark.parametrize("stops", [False, True], ids=["runs on", "stops each time"])
    def test_a_limit_is_used_up_across_ledgers(
        self,
        small: EmbeddedBroker,
        rolling: str,
        losses: Losses,
        *,
        stops: bool,
    ) -> None:
        """A backlog of small ledgers drains in as few micro-batches as of one large."""
        admin = Admin(small.admin_url)
        query = Query(small.service_url, topic=rolling, maxRowsPerTrigger="25")
        write(small.service_url, rolling, range(3))
        query.run()
        sizes: list[int] = []
        read = 3
        places = write(small.service_url, rolling, range(3, 90))
        assert len({ledger for ledger, _ in places}) >= 8
        with query:
            while query.trigger():
                sizes.append(len(query.rows[rolling]) - read)
                read += sizes[-1]
                if stops:
                    query.stop()
        assert sizes == [25, 25, 25, 12]
        query.run()
        assert query.rows == {rolling: list(range(90))}
        assert backlog(admin, rolling) == 0
        assert losses.take() == []

    def test_a_query_that_stops_again_and_again(
        self, small: EmbeddedBroker, rolling: str, losses: Losses
    ) -> None:
        """At ends of ledgers and elsewhere; what it has read is removed meanwhile."""
        admin = Admin(small.admin_url)
        query = Query(small.service_url, topic=rolling, maxRowsPerTrigger="6")
        # A subscription must be there before the first ledger is closed.
        write(small.service_url, rolling, range(4))
        query.run()
        written = 4
        for size in (6, 10, 10, 5, 5, 20, 9, 1, 12):
            write(small.service_url, rolling, range(written, written + size))
            written += size
            query.run()
            assert query.rows == {rolling: list(range(written))}
            assert backlog(admin, rolling) == 0
            if size == 5:
                admin.unload(rolling)
        assert losses.take() == []

    @pytest.mark.parametrize("fails", [True, False])
    def test_rows_expire_before_a_slow_query(
        self, small: EmbeddedBroker, rolling: str, losses: Losses, fails: bool
    ) -> None:
        """The cursor is moved to where a ledger begins: not by the query, so a loss."""
        admin = Admin(small.admin_url)
        options = {"maxRowsPerTrigger": "6", "failOnDataLoss": str(fails)}
        with Query(small.service_url, topic=rolling, **options) as query:
            (first, _), *_ = write(small.service_url, rolling, range(9))
            query.trigger()
            write(small.service_url, rolling, range(9, 10))
            admin.skip(rolling, query.subscription)
            (second, _), *_ = write(small.service_url, rolling, range(10, 15))
            await_trimmed(admin, rolling, second)
            if fails:
                with pytest.raises(DataLossError) as caught:
                    query.trigger()
                check_loss(caught.value, rolling, f"{first}:6", f"{second}:0")
                return
            query.drain()
            assert query.rows == {rolling: [*range(6), *range(10, 15)]}
            assert len(losses.take()) == 1


class TestGaps:
    """Numbers of entries that no row has."""

    def test_transactions(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """Markers and aborted rows are passed by; what commits late is read."""
        write(service_url, fresh, range(1000, 1003))  # before the query
        with (
            Transactions(service_url) as transactions,
            RawPublisher(service_url, fresh) as publisher,
        ):

            def send(numbers: range, txn: TxnId | None = None) -> None:
                for number in numbers:
                    publisher.send(*message(b"%d" % number), txn=txn)

            opened = transactions.begin(fresh)
            send(range(2), opened)
            query = Query(
                service_url,
                topic=fresh,
                startingOffsets="latest",
                maxRowsPerTrigger="3",
            )
            with query:
                query.trigger()
                send(range(2, 4))
                query.drain()
                assert query.rows == {}  # all of that waits for the transaction
                transactions.end(opened, commit=True)
                await_true(lambda: query.drain() > 0, "commit", PATIENCE_S)
                query.drain()
                assert query.rows == {fresh: list(range(4))}
                written = 4
                for commit in (True, False, True, False):
                    txn = transactions.begin(fresh)
                    send(range(written, written + 4), txn)
                    if not commit:
                        transactions.end(txn, commit=False)
                        continue
                    written += 4
                    transactions.end(txn, commit=True)
                    query.drain()
                await_true(
                    lambda: (
                        not query.trigger() and query.rows[fresh][-1:] == [written - 1]
                    ),
                    "the last commit",
                    PATIENCE_S,
                )
            assert query.rows == {fresh: list(range(written))}
            admin.unload(fresh)
        write(service_url, fresh, range(written, written + 5))
        query.run()
        assert query.rows == {fresh: list(range(written + 5))}
        assert losses.take() == []
        assert backlog(admin, fresh) == 0

    def test_compaction(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """Entries that compaction took away are neither lost nor waited for."""
        options = {"pulsar.reader.readCompacted": "true", "maxRowsPerTrigger": "4"}
        query = Query(service_url, topic=fresh, **options)

        def send(numbers: range) -> list[tuple[int, int]]:
            with RawPublisher(service_url, fresh) as publisher:
                return [
                    publisher.send(*message(b"%d" % number, key=str(number % 5)))
                    for number in numbers
                ]

        send(range(20))
        admin.compact(fresh)
        query.run()
        assert query.rows == {fresh: list(range(15, 20))}
        send(range(20, 32))
        query.run()
        assert query.rows == {fresh: list(range(15, 32))}
        send(range(32, 60))
        admin.unload(fresh)
        (ledger, _), *_ = send(range(60, 63))
        admin.compact(fresh)
        query.run()
        # The last one of each key; 3 and 4 have theirs in the ledger before.
        assert query.rows == {fresh: [*range(15, 32), *range(58, 63)]}
        admin.set_retention(namespace_of(fresh), minutes=0, size_mb=0)
        admin.unload(fresh)
        send(range(63, 65))
        await_trimmed(admin, fresh, ledger)
        send(range(65, 70))
        with query:
            query.drain()
            send(range(70, 75))
            query.drain()
        assert query.rows == {fresh: [*range(15, 32), *range(58, 75)]}
        assert losses.take() == []

    def test_the_limit_where_compaction_has_kept_rows(
        self, admin: Admin, service_url: str, fresh: str
    ) -> None:
        """It holds in each micro-batch, also where the ledgers were removed."""

        def send(numbers: range) -> int:
            with RawPublisher(service_url, fresh) as publisher:
                sent = [
                    publisher.send(*message(b"%d" % number, key=str(number)))
                    for number in numbers
                ]
            return sent[0][0]

        send(range(60))
        admin.unload(fresh)
        send(range(60, 63))
        admin.compact(fresh)
        admin.set_retention(namespace_of(fresh), minutes=0, size_mb=0)
        admin.unload(fresh)
        await_trimmed(admin, fresh, send(range(63, 65)))
        options = {"pulsar.reader.readCompacted": "true", "maxRowsPerTrigger": "10"}
        with Query(service_url, topic=fresh, **options) as query:
            query.drain()
        assert query.rows == {fresh: [*range(65)]}
        assert max(query.sizes) <= 10


def options_for(kind: str, namespace: str) -> tuple[dict[str, str], str, str]:
    """Options that read topics ``a`` and ``b``, and a topic partition of each."""
    a, b = f"persistent://{namespace}/a", f"persistent://{namespace}/b"
    if kind == "pattern":
        return {"topicsPattern": f"{namespace}/[ab]"}, a, b
    if kind == "partitioned":
        return {"topics": f"{a},{b}"}, f"{a}-partition-0", b
    return {"topics": f"{a},{b}"}, a, b


class TestDeletion:
    """Topic ``a`` is deleted and ``b`` stays."""

    @combinations(
        kind=("plain", "pattern", "partitioned"),
        state=("running", "stopped"),
        fails={"fails": True, "goes on": False},
    )
    def test_deleted_and_created_again(
        self,
        admin: Admin,
        service_url: str,
        namespace: str,
        losses: Losses,
        kind: str,
        state: str,
        fails: bool,
    ) -> None:
        """An error that names it, or one warning; later it is read from its first."""
        options, a, b = options_for(kind, namespace)
        whole = a.removesuffix("-partition-0")
        is_partitioned = whole != a
        if is_partitioned:
            admin.create_partitioned(whole, 2)
        places = write(service_url, a, range(10))
        write(service_url, b, range(10))
        query = Query(service_url, failOnDataLoss=str(fails), **options)

        def step() -> None:
            if state == "running":
                query.drain()
            else:
                query.run()

        with query:
            step()
            assert query.rows == {a: list(range(10)), b: list(range(10))}
            admin.delete(whole, partitioned=is_partitioned)
            write(service_url, b, range(10, 15))
            if fails:
                with pytest.raises(DataLossError) as caught:
                    step()
                assert caught.value.topic_partition == a
                assert caught.value.wanted == f"{places[0][0]}:10"
                assert f"{LOSS} {a} is gone" in str(caught.value)
                return
            step()
            step()
            assert query.rows[b] == list(range(15))
            lost = losses.take()
            assert sorted(loss.split()[1] for loss in lost) == sorted(
                [a, f"{whole}-partition-1"] if is_partitioned else [a]
            )
            if is_partitioned:
                admin.create_partitioned(whole, 2)
            write(service_url, a, range(10, 20))
            write(service_url, b, range(15, 20))
            step()
            step()
            assert query.rows == {a: list(range(20)), b: list(range(20))}
            write(service_url, a, range(20, 25))
            step()
            assert query.rows == {a: list(range(25)), b: list(range(20))}
            assert losses.take() == []
        query.run()
        assert backlog(admin, a) == backlog(admin, b) == 0

    @combinations(
        kind=("plain", "pattern", "partitioned"),
        state=("running", "stopped"),
        fails={"fails": True, "goes on": False},
    )
    def test_replaced_while_nobody_looked(
        self,
        admin: Admin,
        service_url: str,
        namespace: str,
        losses: Losses,
        kind: str,
        state: str,
        fails: bool,
    ) -> None:
        """The new topic is not taken for the old one, though it has as many rows."""
        options, a, b = options_for(kind, namespace)
        whole = a.removesuffix("-partition-0")
        is_partitioned = whole != a
        if is_partitioned:
            admin.create_partitioned(whole, 2)
        places = write(service_url, a, range(10))
        write(service_url, b, range(10))
        query = Query(service_url, failOnDataLoss=str(fails), **options)
        query.drain() if state == "running" else query.run()
        with query:
            admin.delete(whole, partitioned=is_partitioned)
            if is_partitioned:
                admin.create_partitioned(whole, 2)
            new = write(service_url, a, range(10, 30))
            write(service_url, b, range(10, 15))
            if fails:
                for _ in range(2):
                    with pytest.raises(DataLossError) as caught:
                        query.drain() if state == "running" else query.run()
                    check_loss(caught.value, a, f"{places[0][0]}:10", f"{new[0][0]}:0")
                    query.stop()
                return
            query.drain() if state == "running" else query.run()
            query.drain()
            assert query.rows == {a: list(range(30)), b: list(range(15))}
            # The other partition never had a row, so it has lost none.
            assert [loss.split()[1] for loss in losses.take()] == [a]

    @pytest.mark.parametrize("fails", [True, False])
    def test_replaced_between_planning_and_reading(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses, fails: bool
    ) -> None:
        """A task does not end quietly where a newer topic has none of its rows."""
        write(service_url, fresh, range(10))
        query = Query(service_url, topic=fresh, failOnDataLoss=str(fails))
        with query:
            query.trigger()
            write(service_url, fresh, range(10, 20))
            reader = query.start()
            start = json.loads(query.ends[-1])
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            (part,) = reader.partitions(start, end)
            admin.delete(fresh)
            write(service_url, fresh, range(20, 50))
            if fails:
                with pytest.raises(DataLossError) as caught:
                    list(reader.read(part))
                assert caught.value.topic_partition == fresh
            else:
                assert list(reader.read(part)) == []
                assert [loss.split()[1] for loss in losses.take()] == [fresh]


class TestUnreached:
    """Places that the topic has never come to, and those that look like it."""

    def stand_at(self, query: Query, topic: str, place: str) -> None:
        """Makes it a query that has read up to there."""
        offset = {"v": 1, "subscription": "s", "lastRead": {topic: place}}
        query.ends = [json.dumps(offset)]

    @pytest.mark.parametrize("place", ["900000:41", "900000:-1"])
    @pytest.mark.parametrize("kind", ["rows", "no rows", "an open transaction"])
    def test_the_checkpoint_is_of_another_topic(
        self, admin: Admin, service_url: str, fresh: str, kind: str, place: str
    ) -> None:
        """An error with both places, each time, and rows that come change nothing."""
        query = Query(service_url, topic=fresh)
        if kind == "no rows":
            admin.create_topic(fresh)
        else:
            write(service_url, fresh, range(5))
        if kind == "an open transaction":
            with Transactions(service_url) as transactions:
                txn = transactions.begin(fresh)
                with RawPublisher(service_url, fresh) as publisher:
                    publisher.send(*message(b"5"), txn=txn)
        self.stand_at(query, fresh, place)
        for _ in range(2):
            with pytest.raises(DataLossError) as caught:
                query.run()
            assert caught.value.topic_partition == fresh
            end = f"ends at {caught.value.available}"
            for part in (LOSS, fresh, place, end, "checkpoint"):
                assert part in str(caught.value)
            assert admin.subscriptions(fresh) == []
            write(service_url, fresh, range(5, 6))

    def test_a_start_with_a_slip(self, service_url: str, fresh: str) -> None:
        """Behind the last row but one it is no start."""
        ((ledger, _), *_) = write(service_url, fresh, range(5))
        for entry, is_fine in ((5, True), (6, False), (999, False)):
            starts = json.dumps({fresh: f"{ledger}:{entry}"})
            with Query(service_url, topic=fresh, startingOffsets=starts) as query:
                if is_fine:
                    assert not query.trigger()
                    continue
                with pytest.raises(DataLossError, match=f"ends at {ledger}:4"):
                    query.trigger()

    def test_what_lies_behind_an_open_transaction(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """It was stored, so a start there has been reached, though not delivered."""
        write(service_url, fresh, range(2))
        with Transactions(service_url) as transactions:
            txn = transactions.begin(fresh)
            with RawPublisher(service_url, fresh) as publisher:
                publisher.send(*message(b"2"), txn=txn)
                ledger, entry = publisher.send(*message(b"3"))
                publisher.send(*message(b"4"))
            starts = json.dumps({fresh: f"{ledger}:{entry + 1}"})
            with (
                Query(service_url, topic=fresh, startingOffsets=starts) as query,
                Query(service_url, topic=fresh, startingOffsets="latest") as latest,
            ):
                assert not query.trigger()
                assert not latest.trigger()
                admin.unload(fresh)
                assert not query.trigger()
                transactions.end(txn, commit=True)
                await_true(query.trigger, "the rest")
                assert query.rows == {fresh: [4]}
                latest.drain()
                assert latest.rows == {fresh: [2, 3, 4]}
        assert losses.take() == []

    def test_all_that_was_read_is_gone(
        self, admin: Admin, service_url: str, fresh: str, losses: Losses
    ) -> None:
        """An empty topic, unloaded again and again."""
        query = Query(service_url, topic=fresh)
        write(service_url, fresh, range(5))
        query.run()
        assert query.run() == 0
        admin.unload(fresh)
        trim_first_ledger(admin, fresh)
        for _ in range(3):
            assert query.run() <= 1  # a place in the next ledger is news
            admin.unload(fresh)
        write(service_url, fresh, range(5, 9))
        query.run()
        assert query.rows == {fresh: list(range(9))}
        assert losses.take() == []


def test_runs_without_rows_from_a_checkpoint_of_the_scala_connector(
    admin: Admin, service_url: str, fresh: str
) -> None:
    """They leave no subscription; the first one with rows leaves one, and keeps it."""
    place = write(service_url, fresh, range(5))[-1]
    data = encode_message_id(MessageId(*place), java=True)
    query = Query(service_url, topic=fresh)
    query.ends = [json.dumps({fresh: [b - 256 if b > 127 else b for b in data]})]
    for _ in range(3):
        assert query.run() == 0
    assert admin.subscriptions(fresh) == []
    for at in (5, 8):
        write(service_url, fresh, range(at, at + 3))
        assert query.run() == 1
        assert query.run() == 0
        await_subscriptions(admin, fresh, query.subscription)
        assert backlog(admin, fresh) == 0
    assert query.rows == {fresh: list(range(5, 11))}


#: A client that notices and mends breaks soon.
BRISK = {
    "pulsar.client.maxBackoffIntervalNanos": "500000000",
    "pulsar.client.connectionTimeoutMs": "2000",
    "pulsar.client.keepAliveIntervalSeconds": "1",
    "partitionDiscoveryIntervalMs": "1000",
}
PARTITIONS = 3


def begin(
    spark: SparkSession, url: str, folder: Path, trigger: dict[str, Any], **given: str
) -> StreamingQuery:
    """A query from Pulsar into files; ``folder`` has its checkpoint, too."""
    options = {"service.url": url, "startingOffsets": "earliest", **BRISK, **given}
    return (
        spark.readStream.format("pulsar")
        .options(**options)
        .load()
        .selectExpr(
            "__topic AS topic",
            "CAST(CAST(value AS STRING) AS BIGINT) AS number",
            "hex(__messageId) AS id",
        )
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def run(spark: SparkSession, url: str, folder: Path, **options: str) -> None:
    """A run of AvailableNow."""
    query = begin(spark, url, folder, {"availableNow": True}, **options)
    assert query.awaitTermination(int(PATIENCE_S))


def written(spark: SparkSession, folder: Path) -> dict[str, list[int]]:
    """The numbers by topic partition, sorted: files have no order."""
    found: Rows = defaultdict(list)
    rows = spark.read.parquet(str(folder / "rows")).collect()
    assert len({row.id + row.topic for row in rows}) == len(rows)
    for row in rows:
        found[row.topic].append(row.number)
    return {topic: sorted(numbers) for topic, numbers in found.items()}


@contextlib.contextmanager
def publishing(service_url: str, topic: str) -> Iterator[None]:
    """Publishes batches all the time, without duplicates in the end, until it ends."""
    over = threading.Event()
    numbers = itertools.count()

    def run() -> None:
        with client(service_url) as one:
            producer = one.create_producer(
                topic,
                batching_max_messages=5,
                block_if_queue_full=True,
                send_timeout_millis=0,
                message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            )
            # Slower than any machine reads: what is left at the end is soon read.
            while not over.wait(0.25):
                for number in itertools.islice(numbers, 20):
                    # Some bulk, so that connections have something to break on.
                    producer.send_async(b"%0200d" % number, lambda *_: None)
            producer.flush()
            producer.close()

    with ThreadPoolExecutor(1) as executor:
        thread = executor.submit(run)
        try:
            yield
        finally:
            over.set()
        thread.result(PATIENCE_S)


def stored(service_url: str, topic: str) -> dict[str, list[int]]:
    """What is really in the topic, by the official client."""
    found: Rows = defaultdict(list)
    for row in read_back(service_url, topic, partitions=PARTITIONS):
        assert row.value is not None
        found[row.topic].append(int(row.value))
    return dict(found)


class Running:
    """A query that runs while rows are published and something goes wrong."""

    def __init__(
        self, spark: SparkSession, service_url: str, admin: Admin, query: StreamingQuery
    ) -> None:
        self._spark = spark
        self._service_url = service_url
        self._admin = admin
        self._query = query

    @property
    def batches(self) -> int:
        """Micro-batches so far."""
        return (
            int(self._query.lastProgress["batchId"]) if self._query.lastProgress else 0
        )

    def check_alive(self) -> None:
        """It has not failed."""
        assert self._query.exception() is None
        assert self._query.isActive

    def await_batches(self, more: int) -> None:
        """Lets some micro-batches pass."""
        goal = self.batches + more
        await_true(lambda: self.batches >= goal, f"batch {goal}", PATIENCE_S)
        self.check_alive()

    def finish(self, topic: str, folder: Path) -> None:
        """All that is stored is read, once, and all acknowledgements arrive."""
        expected = stored(self._service_url, topic)
        assert len(expected) == PARTITIONS
        self._query.processAllAvailable()
        self.check_alive()
        names = [f"{topic}-partition-{index}" for index in range(PARTITIONS)]

        def backlogs() -> list[int]:
            found = [backlog(self._admin, name) for name in names]
            assert min(found) >= 0
            return found

        await_true(lambda: not any(backlogs()), "acknowledging", PATIENCE_S)
        self.check_alive()
        found = written(self._spark, folder)
        # In a topic the numbers ascend, but for what a producer had to send again.
        assert found == {name: sorted(ns) for name, ns in expected.items()}


@contextlib.contextmanager
def running(
    spark: SparkSession, url: str, broker: Any, topic: str, folder: Path
) -> Iterator[Running]:
    """A query in small micro-batches; at the end it is checked, and stopped."""
    admin = Admin(broker.admin_url)
    admin.create_partitioned(topic, PARTITIONS)
    with publishing(broker.service_url, topic):
        query = begin(
            spark,
            url,
            folder,
            {"processingTime": "0 seconds"},
            topic=topic,
            maxRowsPerTrigger="500",
        )
        try:
            one = Running(spark, broker.service_url, admin, query)
            one.await_batches(2)
            yield one
        except BaseException:
            query.stop()
            raise
    try:
        one.finish(topic, folder)
    finally:
        query.stop()


class TestRunningInSpark:
    """Faults while rows are published all the time."""

    @pytest.mark.soak
    def test_partitions_are_unloaded(
        self,
        broker: EmbeddedBroker,
        admin: Admin,
        spark: SparkSession,
        topic: str,
        tmp_path: Path,
    ) -> None:
        """Again and again, at any moment of a micro-batch."""
        with running(spark, broker.service_url, broker, topic, tmp_path) as one:
            for _ in range(6):
                for index in range(PARTITIONS):
                    admin.unload(f"{topic}-partition-{index}")
                one.await_batches(1)

    @pytest.mark.soak
    def test_the_link_breaks_and_stalls(
        self,
        broker: EmbeddedBroker,
        link: LinkProxy,
        spark: SparkSession,
        topic: str,
        tmp_path: Path,
    ) -> None:
        """Connections are cut at random bytes, all at once, and fall silent."""
        with running(spark, link.url, broker, topic, tmp_path) as one:
            cut = link.counters.cut
            link.cut_every((2_000, 60_000), seed=5)
            await_true(lambda: link.counters.cut > cut + 40, "cuts", PATIENCE_S)
            one.check_alive()
            link.pass_through()
            for _ in range(5):
                one.await_batches(1)
                link.cut_all()
            one.await_batches(1)
            accepted = link.counters.accepted
            link.stall()
            await_true(
                lambda: link.counters.accepted > accepted + 1, "giving up", PATIENCE_S
            )
            link.pass_through()
            one.await_batches(2)

    def test_partitions_are_unloaded_and_the_broker_is_killed(
        self, small: EmbeddedBroker, spark: SparkSession, tmp_path: Path
    ) -> None:
        """It is started again, on the same ports; its ledgers are small."""
        namespace = f"public/killed-{uuid.uuid4().hex[:8]}"
        admin = Admin(small.admin_url)
        admin.create_namespace(namespace, keep=True)
        topic = f"persistent://{namespace}/t"
        with running(spark, small.service_url, small, topic, tmp_path) as one:
            for index in range(PARTITIONS):
                admin.unload(f"{topic}-partition-{index}")
            one.await_batches(1)
            small.restart(kill=True)
            one.await_batches(3)


class TestStoppedInSpark:
    """What a user sees of rows that are gone."""

    def test_retention(
        self,
        admin: Admin,
        service_url: str,
        fresh: str,
        spark: SparkSession,
        tmp_path: Path,
    ) -> None:
        """The query fails and says why, until it is told to go on."""
        options = {"topic": fresh}
        (first, _), *_ = write(service_url, fresh, range(10))
        run(spark, service_url, tmp_path, **options)
        await_true(lambda: len(admin.subscriptions(fresh)) == 1, "the end of readers")
        (subscription,) = admin.subscriptions(fresh)
        admin.delete_subscription(fresh, subscription)
        write(service_url, fresh, range(10, 20))
        admin.unload(fresh)
        (second, _), *_ = write(service_url, fresh, range(20, 30))
        await_trimmed(admin, fresh, second)
        with pytest.raises(StreamingQueryException) as caught:
            run(spark, service_url, tmp_path, **options)
        for part in (LOSS, fresh, f"{first}:10", f"{second}:0", "failOnDataLoss"):
            assert part in str(caught.value)
        run(spark, service_url, tmp_path, failOnDataLoss="false", **options)
        expected = [*range(10), *range(20, 30)]
        assert written(spark, tmp_path) == {fresh: expected}
        await_true(lambda: backlog(admin, fresh) == 0, "acknowledging", PATIENCE_S)

    @pytest.mark.parametrize(
        "fails", [pytest.param("true", marks=pytest.mark.matrix), "false"]
    )
    def test_a_topic_is_deleted_under_a_running_query(
        self,
        admin: Admin,
        service_url: str,
        namespace: str,
        spark: SparkSession,
        tmp_path: Path,
        fails: str,
    ) -> None:
        """It fails, or goes on with the others and with the topic made anew."""
        a, b = f"persistent://{namespace}/a", f"persistent://{namespace}/b"
        write(service_url, a, range(10))
        write(service_url, b, range(10))
        query = begin(
            spark,
            service_url,
            tmp_path,
            {"processingTime": "0 seconds"},
            topics=f"{a},{b}",
            failOnDataLoss=fails,
        )
        try:
            query.processAllAvailable()
            admin.delete(a)
            if fails == "true":
                with pytest.raises(StreamingQueryException) as caught:
                    query.awaitTermination(int(PATIENCE_S))
                assert f"{LOSS} {a} is gone" in str(caught.value)
                return
            write(service_url, b, range(10, 20))
            query.processAllAvailable()
            write(service_url, a, range(20, 30))

            def is_read() -> bool:
                query.processAllAvailable()
                return written(spark, tmp_path)[a][-1] == 29

            await_true(is_read, "the new topic", PATIENCE_S, pause=0.5)
            assert written(spark, tmp_path) == {
                a: [*range(10), *range(20, 30)],
                b: list(range(20)),
            }
            assert query.exception() is None
        finally:
            query.stop()


class TestHeldBack:
    """Rows that are stored behind an open transaction, which nobody can read yet."""

    def held(self, query: Query) -> Any:
        """What the query reports of them for the progress."""
        return (query.start().reportLatestOffset() or {}).get("heldBack")

    @pytest.mark.parametrize(
        "acknowledges", ["true", pytest.param("false", marks=pytest.mark.matrix)]
    )
    @pytest.mark.parametrize("rows_before", [0, 3])
    def test_a_running_query(
        self,
        admin: Admin,
        service_url: str,
        fresh: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        acknowledges: str,
        rows_before: int,
    ) -> None:
        """Warns once, with both places, and says no more when all is read."""
        patience.usual(monkeypatch, quiet_s=0.0, hidden_s=0.3)
        admin.create_topic(fresh)
        write(service_url, fresh, range(rows_before))
        with (
            Transactions(service_url) as transactions,
            Query(service_url, topic=fresh, ackOnCommit=acknowledges) as query,
        ):
            query.drain()
            for first in (rows_before, rows_before + 3):
                txn = transactions.begin(fresh)
                with RawPublisher(service_url, fresh) as publisher:
                    publisher.send(*message(b"%d" % first), txn=txn)
                    publisher.send(*message(b"%d" % (first + 1)))
                    last = "{}:{}".format(
                        *publisher.send(*message(b"%d" % (first + 2)))
                    )
                for _ in range(3):
                    assert not query.trigger()
                    assert self.held(query) == {fresh: last}
                (warning,) = (m for m in caplog.messages if "holds back" in m)
                assert fresh in warning
                assert last in warning
                transactions.end(txn, commit=True)
                await_true(query.trigger, "the commit", PATIENCE_S)
                query.drain()
                await_true(
                    lambda: not query.trigger() and self.held(query) is None,
                    "the mark to be passed over",
                    PATIENCE_S,
                )
                assert query.rows == {fresh: list(range(first + 3))}
                assert len([m for m in caplog.messages if "holds back" in m]) == 1
                caplog.clear()

    @pytest.mark.parametrize("ends", ["committed", "aborted", "open"])
    def test_available_now(
        self,
        service_url: str,
        fresh: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        ends: str,
    ) -> None:
        """Says at its end, each time, that rows are left; marks are none."""
        if ends == "open":
            patience.usual(monkeypatch, hidden_s=0.3)
        write(service_url, fresh, range(3))
        query = Query(service_url, topic=fresh)
        with Transactions(service_url) as transactions:
            txn = transactions.begin(fresh)
            with RawPublisher(service_url, fresh) as publisher:
                publisher.send(*message(b"3"), txn=txn)
                if ends != "open":
                    transactions.end(txn, commit=ends == "committed")
            rows = list(range(4 if ends == "committed" else 3))
            await_true(
                lambda: len(reading.read(service_url, {"topic": fresh})) == len(rows),
                "the end of the transaction",
                PATIENCE_S,
            )
            for _ in range(2):
                query.run()
                assert query.rows == {fresh: rows}
                warnings = [m for m in caplog.messages if "This run ends" in m]
                assert len(warnings) == (ends == "open")
                caplog.clear()

    def test_no_request_more(
        self,
        service_url: str,
        fresh: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Nothing is asked of a query that reads, or has been idle for seconds."""
        asked: list[str] = []

        def held(_: object, afters: Iterable[str], waiting: object) -> dict[str, Any]:
            asked.extend(afters)
            return {}

        monkeypatch.setattr(held_rows.HeldRows, "_held", held)
        with Query(service_url, topic=fresh) as query:
            for at in range(0, 9, 3):
                write(service_url, fresh, range(at, at + 3))
                query.drain()
                assert not query.trigger()
        assert asked == []
