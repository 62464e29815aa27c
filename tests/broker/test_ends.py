# SPDX-License-Identifier: Apache-2.0
"""A batch read comes to the end that was asked for, or says that it cannot."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import EndNotReachedError
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.plan.pruning import ColumnTest, Pruning
from tests.support import patience, reading
from tests.support.combinations import combinations
from tests.support.entries import batch, member, message
from tests.support.raw_publisher import RawPublisher, TxnId
from tests.support.transactions import Transactions
from tests.support.waiting import await_true, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.testing.admin import Admin

#: Too short for anything that has to be waited for.
HASTY = {"pollTimeoutMs": "100"}


class Lab:
    """A topic whose rows are numbers, in transactions or not.

    Args:
        service_url: Of the broker.
        topic: Full name of a topic partition.

    Attributes:
        last: Where the last entry was stored, as text.
    """

    def __init__(self, service_url: str, topic: str) -> None:
        self.service_url = service_url
        self.topic = topic
        self.transactions = Transactions(service_url)
        self.last = ""

    def close(self) -> None:
        """Close the connection."""
        self.transactions.close()

    def write(self, *numbers: int, txn: TxnId | None = None) -> None:
        """Publish each number as an entry."""
        with RawPublisher(self.service_url, self.topic) as publisher:
            for number in numbers:
                at_ms = int(time.time() * 1000)
                entry = message(b"%d" % number, publish_time=at_ms)
                self.last = "{}:{}".format(*publisher.send(*entry, txn=txn))

    def begin(self) -> TxnId:
        """Open a transaction in the topic."""
        return self.transactions.begin(self.topic)

    def read(self, **options: str) -> list[int]:
        """The numbers that a read with these options has, in order."""
        given = {"topic": self.topic, "pollTimeoutMs": "60000", **options}
        found = reading.read(self.service_url, given)
        return [int(row.value or b"") for row in found]

    def until(self, kind: str, at: str = "") -> dict[str, str]:
        """An end after all that is stored now, given in this way."""
        if kind == "offsets":
            return {"endingOffsets": json.dumps({self.topic: at or self.last})}
        after_ms = 3_600_000 if kind == "time to come" else 0
        return {"endingTime": str(int(time.time() * 1000) + after_ms)}


@pytest.fixture
def lab(service_url: str, admin: Admin, topic: str) -> Iterator[Lab]:
    """Rows 0 to 2 outside of transactions."""
    with closing(Lab(service_url, topic)) as lab:
        lab.write(0, 1, 2)
        yield lab


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which brokers pass over nothing at first."""
    patience.usual(monkeypatch, hidden_s=0.3)


KINDS = ("offsets", "time", "time to come")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("short_probes")
def test_behind_an_open_transaction(lab: Lab, kind: str, caplog: Any) -> None:
    """An error after a while, or a warning at once; ``latest`` asks for neither."""
    txn = lab.begin()
    lab.write(3, txn=txn)
    held, until_held = lab.last, lab.until(kind)
    lab.write(4)
    until = lab.until(kind)
    for end, wanted in ((until_held, held), (until, lab.last)):
        with pytest.raises(EndNotReachedError) as caught:
            lab.read(**end, **HASTY)
        error = caught.value
        assert (error.topic_partition, error.retriable) == (lab.topic, True)
        option = "endingOffsets" if kind == "offsets" else "endingTime"
        for part in (lab.topic, error.wanted, error.available, option, "transaction"):
            assert part in str(error)
        if kind != "time to come":
            assert error.wanted == wanted
    assert lab.read() == lab.read(endingOffsets="latest") == [0, 1, 2]
    caplog.clear()
    assert lab.read(**until, failOnUnreachedEnd="false") == [0, 1, 2]
    (warning,) = (m for m in caplog.messages if "ends early" in m)
    assert lab.last in warning
    lab.transactions.end(txn, commit=True)
    await_true(lambda: lab.read() == [0, 1, 2, 3, 4], "the commit")
    assert lab.read(**until) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("short_probes")
@combinations(kind=KINDS, commit={"committed": True, "aborted": False})
def test_the_transaction_ends_meanwhile(
    lab: Lab, kind: str, commit: bool, caplog: Any
) -> None:
    """The read waits, and has all rows up to its end."""
    txn = lab.begin()
    lab.write(3, txn=txn)
    lab.write(4, 5)
    until = lab.until(kind)
    rows: list[int] = []
    thread = threading.Thread(target=lambda: rows.extend(lab.read(**until)))
    thread.start()
    await_true(lambda: any("waits up to" in m for m in caplog.messages), "a wait")
    lab.transactions.end(txn, commit=commit)
    join(thread, "the read")
    assert rows == [0, 1, 2, 3, 4, 5] if commit else [0, 1, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("commit", [True, False])
def test_markers_and_aborted_rows_at_the_end(
    lab: Lab, admin: Admin, kind: str, commit: bool, caplog: Any
) -> None:
    """Nobody gets these, so nobody waits for them, in this ledger or the last one."""
    txn = lab.begin()
    lab.write(3, 4, txn=txn)
    lab.transactions.end(txn, commit=commit)
    rows = [0, 1, 2, 3, 4] if commit else [0, 1, 2]
    await_true(lambda: lab.read() == rows, "the end of the transaction")
    marker = admin.internal_stats(lab.topic)["lastConfirmedEntry"]
    for _ in range(2):
        assert lab.read(**lab.until(kind, marker), **HASTY) == rows
        assert caplog.messages == []
        admin.unload(lab.topic)


def test_behind_the_end_of_the_topic(lab: Lab, caplog: Any) -> None:
    """An error at once, or a warning; a place in a ledger that is read is none."""
    ledger, _, entry = lab.last.partition(":")
    for far in (f"{ledger}:{int(entry) + 1}", f"{int(ledger) + 10**6}:0"):
        until = lab.until("offsets", far)
        with pytest.raises(EndNotReachedError, match=f"{lab.topic} ends at") as caught:
            lab.read(**until)
        assert (caught.value.wanted, caught.value.available) == (far, lab.last)
        caplog.clear()
        assert lab.read(**until, failOnUnreachedEnd="false") == [0, 1, 2]
        (warning,) = caplog.messages
        assert f"{lab.last} instead of {far}" in warning
    assert lab.read(**lab.until("offsets", f"{lab.last}:7")) == [0, 1, 2]


def test_ends_that_are_no_row(lab: Lab, admin: Admin) -> None:
    """Behind the last entry of a ledger, and before the first one of the next."""
    ledger = lab.last.partition(":")[0]
    admin.unload(lab.topic)
    assert lab.read(**lab.until("time"), **HASTY) == [0, 1, 2]
    lab.write(3)
    later = lab.last.partition(":")[0]
    for end in (f"{ledger}:999", f"{later}:-1"):
        assert lab.read(**lab.until("offsets", end), **HASTY) == [0, 1, 2]
    txn = lab.begin()
    lab.write(4, txn=txn)
    admin.unload(lab.topic)
    lab.write(5)
    end = lab.until("offsets", f"{lab.last.partition(':')[0]}:-1")
    with pytest.raises(EndNotReachedError):
        lab.read(**end, **HASTY)
    lab.transactions.end(txn, commit=False)


@pytest.mark.usefixtures("short_probes")
@pytest.mark.parametrize("chosen", ["topic", "topicsPattern"])
def test_partitions(service_url: str, admin: Admin, topic: str, chosen: str) -> None:
    """Only those that the read wants; a partition without a row has reached its end."""
    admin.create_partitioned(topic, 3)
    options = {"service.url": service_url, chosen: topic, **HASTY}
    names = [f"{topic}-partition-{index}" for index in range(2)]
    with closing(Lab(service_url, names[0])) as held:
        held.write(0)
        with RawPublisher(service_url, names[1]) as publisher:
            publisher.send(*message(b"7", publish_time=int(time.time() * 1000)))
        txn = held.begin()
        held.write(1, txn=txn)
        options |= held.until("time")
        with pytest.raises(EndNotReachedError, match=held.topic):
            reading.plan(service_url, options)
        found = reading.plan(service_url, {**options, "failOnUnreachedEnd": "false"})
        assert [range_.topic_partition for range_ in found] == names
        parsed = parse_read_options(options)
        with ConnectionPool(parsed.client) as pool:
            pruning = Pruning((ColumnTest("__partition", "gt", 0),))
            ranges = reading.ranges_of(plan_batch(pool, parsed, pruning))
        assert [range_.topic_partition for range_ in ranges] == names[1:]
        held.transactions.end(txn, commit=True)


def test_a_partition_without_a_row(service_url: str, admin: Admin, topic: str) -> None:
    """Has reached every time, and no position."""
    admin.create_partitioned(topic, 1)
    name = f"{topic}-partition-0"
    for _ in range(2):
        for time_ms in (1, 2**42):
            until = {"endingTime": str(time_ms), **HASTY}
            assert reading.read(service_url, {"topic": topic, **until}) == []
        until = {"endingOffsets": json.dumps({name: f"{10**9}:0"}), **HASTY}
        with pytest.raises(EndNotReachedError, match=f"{name} ends at"):
            reading.read(service_url, {"topic": topic, **until})
        admin.unload(topic)


def test_compacted(service_url: str, admin: Admin, topic: str) -> None:
    """An end that compaction has removed is reached."""
    rows = [("a", b"1"), ("b", b"1"), ("a", None)]
    with RawPublisher(service_url, topic) as publisher:
        for key, value in rows:
            at_ms = int(time.time() * 1000)
            entry = batch([member(value, key=key)], publish_time=at_ms)
            last = "{}:{}".format(*publisher.send(*entry))
    admin.compact(topic)
    options = {"topic": topic, "pulsar.reader.readCompacted": "true", **HASTY}
    for _ in range(2):
        for end in (
            {"endingOffsets": json.dumps({topic: last})},
            {"endingTime": str(int(time.time() * 1000))},
        ):
            found = reading.read(service_url, {**options, **end})
            assert [row.key for row in found] == [b"b"]
        admin.unload(topic)
