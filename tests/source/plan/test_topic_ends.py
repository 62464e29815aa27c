# SPDX-License-Identifier: Apache-2.0
"""Reads from time to time, each up to the ends that `end_offsets` has said."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import closing
from typing import Any, ClassVar

import pytest

from pulsar_spark import ReadOptions, end_offsets
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support import patience
from tests.support.reading import ranges_of
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    client_options,
    single,
)

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


def test_forms_of_options(scripted: ScriptedBroker) -> None:
    """They are a dict, or made by the class; the error says so of others."""
    scripted.add_topic("persistent://public/default/t", [single(b"a")])
    options = ReadOptions(service_url=scripted.url, topic="t")
    assert end_offsets(options) == end_offsets(options.as_dict())
    wrong: Any = scripted.url
    with pytest.raises(TypeError, match="as a dict or as ReadOptions, not str"):
        end_offsets(wrong)


def test_other_clusters(scripted: ScriptedBroker) -> None:
    """Which of them would answer nobody knows, and the read would refuse the ids."""
    others = {"secondary": "pulsar://other:6650"}
    options = {"pulsar.client.serviceUrlProvider": json.dumps(others)}
    with pytest.raises(
        OptionError, match=r"leave out pulsar\.client\.serviceUrlProvider"
    ):
        Reads(scripted, topic="t", **options).begin()
    assert not scripted.connections


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


class Job:
    """A job that reads from time to time, while a broker's topics come and go.

    Knows each row that was ever stored, so that it can tell what a read owes.

    Args:
        broker: Has the topics.
        seed: What the job meets.
        kind: What it reads: "pattern", "partitions" or "segments".
    """

    OPTIONS: ClassVar = {
        "pattern": {"topicsPattern": "[a-z]"},
        "partitions": {"topic": "t"},
        "segments": {"topic": SCALABLE},
    }

    def __init__(self, broker: ScriptedBroker, seed: int, kind: str) -> None:
        self.broker = broker
        self.chosen = random.Random(f"{kind} {seed}")
        self.kind = kind
        self.options = {"service.url": broker.url, **self.OPTIONS[kind]}
        self.following: dict[str, str] = {}
        self.ends: Any = None
        #: All rows at the time of the ends, and those that reads have had.
        self.owed: set[tuple[str, tuple[int, int]]] = set()
        self.seen: Counter[tuple[str, tuple[int, int]]] = Counter()
        #: Whether brokers may be unable to tell that nothing was lost, since the ends
        #: were asked for, and in the time before that.
        self.is_in_doubt = self.was_in_doubt = False
        #: Topics of which brokers know the last row, which is removed, for now.
        self.remembered: set[str] = set()
        self.segments = 1
        if kind == "partitions":
            broker.partitions[BASE] = 2
            for name in (P0, P1):
                broker.add_topic(name)
        elif kind == "pattern":
            for name in (BASE, U):
                broker.add_topic(name)
        else:
            broker.scalable = {SCALABLE: SCALABLE}
            broker.segments = [pb.ScalableTopicSegment(segment_id=0, hash_end=0xFFFF)]
            broker.add_topic(segment(0, 0xFFFF, 0))

    @property
    def stored(self) -> set[tuple[str, tuple[int, int]]]:
        """All entries that there are."""
        return {
            (name, place)
            for name in self.broker.topics
            for place in self.broker.positions(name)
        }

    def live(self, steps: int) -> None:
        """Lets things happen."""
        happenings = (self.append, self.roll, self.trim, self.come, self.go)
        for _ in range(steps):
            if self.chosen.random() < 0.3:
                self.begin_or_finish()
            else:
                self.chosen.choice(happenings)()
        for _ in range(3 if self.ends else 2):
            self.begin_or_finish()
        assert self.stored <= self.seen.keys()
        assert max(self.seen.values(), default=1) == 1

    def name(self) -> str:
        """Any topic partition that there is."""
        return self.chosen.choice(sorted(self.broker.topics))

    def append(self) -> None:
        """A batch and a single message come."""
        name, count = self.name(), self.chosen.randint(1, 2)
        if name not in {s for s, number in self.sealed}:
            self.forget(name)
            self.broker.append(name, *[batch([b"a", b"b"]), single(b"c")][:count])

    def roll(self) -> None:
        """A topic is loaded by another broker."""
        name = self.name()
        self.forget(name)
        self.broker.roll(name)

    def forget(self, name: str) -> None:
        """Lets brokers know no more which row of a topic was removed last."""
        self.is_in_doubt |= name in self.remembered
        self.remembered.discard(name)

    def trim(self) -> None:
        """Retention takes all closed ledgers."""
        name = self.name()
        before = self.stored
        self.broker.trim(name)
        removed = before - self.stored
        if removed and removed <= self.seen.keys() and not self.broker.topics[name]:
            self.remembered.add(name)
        else:
            self.is_in_doubt |= bool(removed)

    def come(self) -> None:
        """A topic, a partition, or two segments instead of one come."""
        if self.kind == "pattern" and U not in self.broker.topics:
            self.broker.add_topic(U, [single(b"a")] * self.chosen.randint(0, 2))
        elif self.kind == "partitions" and P2 not in self.broker.topics:
            self.broker.partitions[BASE] = 3
            self.broker.add_topic(P2, [single(b"a")] * self.chosen.randint(0, 2))
        elif self.kind == "segments":
            active = [s for s in self.broker.segments if s.state != 1]
            parent = self.chosen.choice(active)
            middle = (parent.hash_start + parent.hash_end) // 2
            parent.state = 1
            for start, end in (
                (parent.hash_start, middle),
                (middle + 1, parent.hash_end),
            ):
                child = pb.ScalableTopicSegment(
                    segment_id=self.segments,
                    hash_start=start,
                    hash_end=end,
                    parent_ids=[parent.segment_id],
                )
                self.broker.segments.append(child)
                self.broker.add_topic(segment(start, end, self.segments))
                self.segments += 1

    @property
    def sealed(self) -> list[tuple[str, int]]:
        """The segments that get no more rows, with their ids."""
        if self.kind != "segments":
            return []
        return [
            (segment(s.hash_start, s.hash_end, s.segment_id), s.segment_id)
            for s in self.broker.segments
            if s.state == 1
        ]

    def go(self) -> None:
        """A topic or a sealed segment is deleted."""
        if self.kind == "pattern" and U in self.broker.topics:
            self.is_in_doubt = True
            self.broker.delete_topic(U)
        elif self.sealed:
            name, number = self.chosen.choice(self.sealed)
            # Nothing is lost of a segment that the last read had at its end.
            text = self.following.get("startingOffsets", "{}")
            starts = json.loads(text).get(SCALABLE, {})
            self.is_in_doubt |= starts.get(name.rpartition("/")[2]) != "latest"
            kept = [s for s in self.broker.segments if s.segment_id != number]
            for other in kept:
                left = [parent for parent in other.parent_ids if parent != number]
                other.parent_ids[:] = left
            self.broker.segments = kept
            self.broker.delete_topic(name)

    def begin_or_finish(self) -> None:
        """Asks for the ends, or reads up to them."""
        if self.ends is None:
            self.owed = self.stored
            self.ends = end_offsets(self.options)
            self.was_in_doubt, self.is_in_doubt = self.is_in_doubt, False
            return
        try:
            found = self.rows()
        except DataLossError:
            assert self.was_in_doubt or self.is_in_doubt
            found = self.rows(failOnDataLoss="false")
            # What is still there was read all the same.
            assert self.owed & self.stored <= found | self.seen.keys()
        else:
            missing = self.owed - found - self.seen.keys()
            assert not missing & self.stored
            # A topic partition that is read from its first row begins where it does,
            # as long as the last one of these is there.
            for name in {name for name, _ in missing}:
                assert max(row for row in self.owed if row[0] == name) in found
                assert not self.has_start(name)
        assert found <= self.owed
        self.seen.update(found)
        self.following = {"startingOffsets": self.ends.following}
        self.ends = None

    def has_start(self, name: str) -> bool:
        """Whether the read goes on in a topic partition where the last one ended."""
        options = parse_read_options({**self.options, **self.following})
        return isinstance(options.starting_offsets.topics.get(name), MessageId)

    def rows(self, **more: str) -> set[tuple[str, tuple[int, int]]]:
        """What a read has."""
        given = {**self.options, **self.following, **more}
        given["endingOffsets"] = self.ends.ending
        with closing(ConnectionPool(client_options(self.broker.address))) as pool:
            ranges = ranges_of(plan_batch(pool, parse_read_options(given)))
        return {
            (range_.topic_partition, place)
            for range_ in ranges
            for place in self.broker.positions(range_.topic_partition)
            if range_.start.position <= place <= range_.end.position
        }


@pytest.mark.parametrize("kind", Job.OPTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_between_ends_and_reads(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """A read has each row that was there when its ends were asked for, or it fails.

    It fails only where rows are lost, or may be. Then `failOnDataLoss=false` has all
    that is left. No row is read twice.
    """
    patience.usual(monkeypatch, settling_s=0.0, hidden_s=0.1, delivery_s=0.1)
    Job(scripted, seed, kind).live(40)
