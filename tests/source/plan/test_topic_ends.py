# SPDX-License-Identifier: Apache-2.0
"""Reads from time to time, each up to the ends that `end_offsets` has said."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from pulsar_spark import end_offsets
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import DataLossError
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support import patience
from tests.support.reading import ranges_of
from tests.support.scripted_broker import LEDGER, ScriptedBroker, client_options, single

BASE = "persistent://public/default/t"
P0, P1, P2 = (f"{BASE}-partition-{number}" for number in range(3))
SCALABLE = "topic://public/default/s"
U = "persistent://public/default/u"


class Reads:
    """Reads of a broker's topics from time to time.

    Attributes:
        seen: Each entry that any of them has read, in order.
    """

    def __init__(self, broker: ScriptedBroker, **options: str) -> None:
        self._broker = broker
        self._options = {"service.url": broker.url, **options}
        self._following: dict[str, str] = {}
        self.seen: list[tuple[str, int]] = []

    def plan(self, **ends: str) -> None:
        """Plans a read, and takes note of what it would read."""
        given = {**self._options, **self._following, **ends}
        with closing(ConnectionPool(client_options(self._broker.address))) as pool:
            ranges = ranges_of(plan_batch(pool, parse_read_options(given)))
        self.seen += [
            (range_.topic_partition.rpartition("/")[2], entry)
            for range_ in ranges
            for entry in range(range_.start.entry_id, range_.end.entry_id + 1)
        ]

    def begin(self) -> Any:
        """Asks for the ends."""
        return end_offsets(self._options)

    def finish(self, ends: Any) -> None:
        """Reads up to these ends."""
        self.plan(endingOffsets=ends.ending)
        self._following = {"startingOffsets": ends.following}


def entries(name: str, count: int) -> list[tuple[str, int]]:
    """The first entries of a topic partition."""
    return [(name, number) for number in range(count)]


def test_a_partition_that_is_added_before_the_plan(scripted: ScriptedBroker) -> None:
    """All of its rows are in the next read."""
    scripted.partitions[BASE] = 1
    scripted.add_topic(P0, [single(b"a")] * 3)
    reads = Reads(scripted, topic="t")
    ends = reads.begin()
    scripted.partitions[BASE] = 2
    scripted.add_topic(P1, [single(b"b")] * 4)
    scripted.append(P0, single(b"a"))
    reads.finish(ends)
    assert reads.seen == entries("t-partition-0", 3)
    reads.finish(reads.begin())
    reads.plan()
    assert sorted(reads.seen) == [
        *entries("t-partition-0", 4),
        *entries("t-partition-1", 4),
    ]


def test_a_topic_that_matches_before_the_plan(scripted: ScriptedBroker) -> None:
    """All of its rows are in the next read."""
    scripted.add_topic(BASE, [single(b"a")] * 3)
    reads = Reads(scripted, topicsPattern="[a-z]")
    ends = reads.begin()
    scripted.add_topic(U, [single(b"b")] * 4)
    reads.finish(ends)
    assert reads.seen == entries("t", 3)
    reads.finish(reads.begin())
    assert reads.seen == entries("t", 3) + entries("u", 4)


def test_there_is_nothing_yet(scripted: ScriptedBroker) -> None:
    """All rows are in the next read."""
    scripted.add_topic(BASE)
    reads = Reads(scripted, topic="t")
    ends = reads.begin()
    scripted.append(BASE, single(b"a"))
    reads.finish(ends)
    assert reads.seen == []
    reads.plan()
    assert reads.seen == entries("t", 1)


def segment(start: int, end: int, number: int) -> str:
    """The full name of a segment."""
    return TopicName.parse(SCALABLE).segment(start, end, number).full_name


class TestSegments:
    """A scalable topic that is divided between two reads."""

    WHOLE = segment(0, 0xFFFF, 0)
    LEFT = segment(0, 0x7FFF, 1)
    RIGHT = segment(0x8000, 0xFFFF, 2)

    @pytest.fixture
    def broker(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> ScriptedBroker:
        """There is one segment yet."""
        patience.usual(monkeypatch, settling_s=0.0, hidden_s=0.1, delivery_s=0.1)
        scripted.scalable = {SCALABLE: SCALABLE}
        scripted.segments = [pb.ScalableTopicSegment(segment_id=0, hash_end=0xFFFF)]
        scripted.add_topic(self.WHOLE, [single(b"a")] * 3)
        return scripted

    def split(self, broker: ScriptedBroker) -> None:
        """The segment is sealed, and has children with rows."""
        broker.segments[0].state = 1
        for number, (name, start, end) in enumerate(
            ((self.LEFT, 0, 0x7FFF), (self.RIGHT, 0x8000, 0xFFFF)), 1
        ):
            broker.add_topic(name, [single(b"b")] * number)
            broker.segments.append(
                pb.ScalableTopicSegment(
                    segment_id=number, hash_start=start, hash_end=end, parent_ids=[0]
                )
            )

    def delete(self, broker: ScriptedBroker) -> None:
        """A broker deletes the sealed segment."""
        del broker.segments[0]
        for one in broker.segments:
            del one.parent_ids[:]
        broker.delete_topic(self.WHOLE)

    CHILDREN = (*entries("0000-7fff-1", 1), *entries("8000-ffff-2", 2))

    def test_a_split_before_the_plan(self, broker: ScriptedBroker) -> None:
        """The children are in the next read."""
        reads = Reads(broker, topic=SCALABLE)
        ends = reads.begin()
        broker.append(self.WHOLE, single(b"a"))
        self.split(broker)
        reads.finish(ends)
        assert reads.seen == entries("0000-ffff-0", 3)
        reads.finish(reads.begin())
        assert reads.seen == [*entries("0000-ffff-0", 4), *self.CHILDREN]
        # All of it was read. So it is no loss that it is deleted.
        self.delete(broker)
        broker.append(self.LEFT, single(b"b"))
        reads.finish(reads.begin())
        assert reads.seen[-1] == ("0000-7fff-1", 1)
        assert len(reads.seen) == 8

    def test_a_segment_that_is_deleted_unread(
        self, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An error, until `failOnDataLoss` is set to false for once."""
        reads = Reads(broker, topic=SCALABLE)
        reads.finish(reads.begin())
        broker.append(self.WHOLE, single(b"a"))
        self.split(broker)
        self.delete(broker)
        for _ in range(2):
            with pytest.raises(DataLossError, match=f"{self.WHOLE} is gone"):
                reads.finish(reads.begin())
        ends = reads.begin()
        reads.plan(endingOffsets=ends.ending, failOnDataLoss="false")
        assert reads.seen == [*entries("0000-ffff-0", 3), *self.CHILDREN]
        assert "[PULSAR_DATA_LOSS]" in caplog.text

    def test_what_follows_a_sealed_segment(self, broker: ScriptedBroker) -> None:
        """Nothing, unless an open transaction may still add rows to it."""
        self.split(broker)
        (segments,) = json.loads(end_offsets(self.options(broker)).following).values()
        assert segments["0000-ffff-0"] == "latest"
        assert segments["8000-ffff-2"] == f"{LEDGER}:2"
        broker.transactions[TxnId(0, 9)] = [self.WHOLE]
        broker.append(self.WHOLE, single(b"a", txnid_most_bits=0, txnid_least_bits=9))
        (segments,) = json.loads(end_offsets(self.options(broker)).following).values()
        assert segments["0000-ffff-0"] == f"{LEDGER}:3"

    def options(self, broker: ScriptedBroker) -> dict[str, str]:
        """Of a read of the topic."""
        return {"service.url": broker.url, "topic": SCALABLE}
