# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
from typing import Any

import pytest

from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import DataLossError, ReadTimeoutError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan import survey as module
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.survey import divide
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.source.plan.test_batch_plan import pool as pool
from tests.support.reading import ranges_of
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    cut,
    silence,
    single,
)
from tests.support.settings import range_settings
from tests.support.waiting import wait_until

TOPIC = "persistent://public/default/t"


def split(
    pool: ConnectionPool, *ranges: TopicRange, **options: str
) -> list[tuple[str, str]]:
    """Start and end of each part."""
    given: dict[str, Any] = {"service.url": "pulsar://unused:1", "topic": "t"}
    groups = divide(pool, parse_read_options(given | options), ranges)
    assert all(len(group) == 1 for group in groups)
    return [(str(part.start), str(part.end)) for (part,) in groups]


def range_of(start: str, end: str, topic: str = TOPIC) -> TopicRange:
    """A range."""
    return TopicRange(topic, MessageId.parse_text(start), MessageId.parse_text(end))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": "1"},
        {"maxPartitions": "1"},
        {
            "pulsar.reader.readCompacted": "true",
            "minPartitions": "9",
            "maxRecordsPerPartition": "1",
        },
    ],
)
def test_nobody_is_asked_in_vain(
    scripted: ScriptedBroker, pool: ConnectionPool, options: dict[str, str]
) -> None:
    """Nothing is split, and the broker hears nothing."""
    scripted.add_topic(TOPIC, [single(b"a")] * 4)
    assert split(pool, range_of("7:0", "7:3"), **options) == [("7:0", "7:3")]
    assert scripted.connections == 0


def test_one_range_in_one_ledger(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Only arithmetic: nothing is to be asked."""
    assert split(pool, range_of("7:0:3", "7:5:1"), minPartitions="2") == [
        ("7:0:3", "7:2"),
        ("7:3", "7:5:1"),
    ]
    assert scripted.connections == 0


def test_several_ledgers(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Ledgers in between are found; no part ends or starts where no entry is."""
    scripted.add_topic(TOPIC, [single(b"a")] * 3)
    ledgers = [LEDGER]
    for size in (2, 1, 3):
        ledgers.append(scripted.roll(TOPIC))
        scripted.append(TOPIC, *[single(b"b")] * size)
    a, b, c, d = ledgers
    whole = range_of(f"{a}:0", f"{d}:2")
    assert split(pool, whole, minPartitions="3") == [
        (f"{a}:0", f"{a}:2"),
        (f"{b}:0", f"{c}:0"),
        (f"{d}:0", f"{d}:2"),
    ]
    assert scripted.consumers == []
    assert scripted.requests["FLOW"] == 0


def test_rows_are_seen_in_a_few_entries(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A limit of rows is one of entries, by the median of some that are looked at."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b", b"c"])] * 8)
    whole = range_of("7:0", "7:7")
    assert split(pool, whole, maxRecordsPerPartition="12") == [
        ("7:0", "7:3"),
        ("7:4", "7:7"),
    ]
    assert scripted.requests["FLOW"] == scripted.requests["SUBSCRIBE"] == 4
    assert scripted.consumers == []


def test_one_entry_that_lies_does_not_make_the_plan(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Among those that are looked at, one claims billions of rows: two parts, still."""
    entries = [batch([b"a"] * 10)] * 2000
    lie = batch([b"a"] * 10)
    lie.metadata.num_messages_in_batch = 2**31 - 1
    # Compressed, so that nobody can say how many fit.
    lie.metadata.compression = pb.ZSTD
    lie.metadata.uncompressed_size = 2**32 - 1
    entries[1000] = lie
    scripted.add_topic(TOPIC, entries)
    whole = range_of("7:0", "7:1999")
    assert len(split(pool, whole, maxRecordsPerPartition="10000")) == 2


@pytest.mark.parametrize("partitions", [2, 100])
def test_the_number_of_partitions_costs_no_round_trips(
    scripted: ScriptedBroker, pool: ConnectionPool, partitions: int
) -> None:
    """Each step is asked of all at once: the broker waits until it has all of them."""
    topics = [f"{TOPIC}-partition-{index}" for index in range(partitions)]
    for topic in topics:
        scripted.add_topic(topic, [batch([b"a", b"b"])])
    scripted.answer_together(partitions, "SUBSCRIBE", "GET_LAST_MESSAGE_ID")
    ranges = [range_of("7:0", "7:0", topic) for topic in topics]
    assert len(split(pool, *ranges, maxRecordsPerPartition="2")) == partitions
    assert scripted.connections == 1


def test_a_topic_partition_that_is_gone(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """It is left whole: whoever reads it knows what that means."""
    scripted.add_topic(f"{TOPIC}2", [single(b"a")] * 4)
    gone, there = range_of("7:0", "9:3"), range_of("7:0", "7:3", f"{TOPIC}2")
    assert split(pool, gone, there, maxRecordsPerPartition="2") == [
        ("7:0", "9:3"),
        ("7:0", "7:1"),
        ("7:2", "7:3"),
    ]


def test_a_connection_that_breaks(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The look is taken again, so that the parts are the same."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b"])] * 2)
    scripted.script("FLOW", cut)
    parts = split(pool, range_of("7:0", "7:1"), maxRecordsPerPartition="2")
    assert parts == [("7:0", "7:0"), ("7:1", "7:1")]
    assert scripted.connections > 1


def test_an_entry_that_does_not_come(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """No guess, which a replay might not repeat: an error that names the place."""
    scripted.add_topic(TOPIC, [single(b"a")] * 2)
    scripted.always("FLOW", silence)
    with pytest.raises(ReadTimeoutError, match=rf"{TOPIC} at 7:0 .*pollTimeoutMs"):
        split(
            pool,
            range_of("7:0", "7:1"),
            maxRecordsPerPartition="1",
            pollTimeoutMs="50",
        )


def test_an_interrupt(
    scripted: ScriptedBroker, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is kept for others, but no reader stays on it."""

    def interrupted(*_: object) -> None:
        assert scripted.consumers
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Probes, "look", interrupted)
    scripted.add_topic(TOPIC, [single(b"a")] * 2)
    with pytest.raises(KeyboardInterrupt):
        split(pool, range_of("7:0", "7:1"), maxRecordsPerPartition="1")
    assert scripted.consumers == []
    assert len(scripted.sessions) == 1


def test_places_after_which_nothing_comes(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Nobody waits there: what can be seen elsewhere counts."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b"])] * 2)
    parts = split(pool, range_of("7:0", "7:3"), maxRecordsPerPartition="4")
    assert parts == [("7:0", "7:1"), ("7:2", "7:3")]
    assert scripted.requests["FLOW"] == 2


def test_damaged_entries_count(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Whoever reads a damaged entry says so, not who looks at it."""
    damaged = single(b"a")
    frame = type(damaged)(damaged.metadata, damaged.payload, 1, is_damaged=True)
    scripted.add_topic(TOPIC, [frame] * 2)
    parts = split(pool, range_of("7:0", "7:1"), maxRecordsPerPartition="1")
    assert parts == [("7:0", "7:0"), ("7:1", "7:1")]


@pytest.mark.parametrize("is_start_known", [False, True])
def test_a_part_whose_ledger_is_gone(
    scripted: ScriptedBroker, pool: ConnectionPool, is_start_known: bool
) -> None:
    """A ledger that had the part's start was not read to its end, but is lost."""
    scripted.add_topic(TOPIC, [single(b"a")] * 4)
    following = scripted.roll(TOPIC)
    scripted.append(TOPIC, single(b"b"))
    scripted.trim(TOPIC)
    part = TopicRange(
        TOPIC, MessageId(LEDGER, 2), MessageId(following, 0), is_start_known
    )
    settings = range_settings(is_protected=True)
    entries = RangeReader(pool, part, settings).entries()
    if is_start_known:
        with pytest.raises(DataLossError, match="no longer has 7:2"):
            list(entries)
    else:
        assert [entry.position for entry in entries] == [(following, 0)]


def test_batch_plans_are_split(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """The plan of a batch read has the parts."""
    scripted.add_topic(TOPIC, [single(b"a")] * 4)
    options = parse_read_options(
        {"service.url": "pulsar://unused:1", "topic": "t", "minPartitions": "2"}
    )
    found = plan_batch(pool, options)
    assert [(str(r.start), str(r.end)) for r in ranges_of(found)] == [
        ("7:0", "7:1"),
        ("7:2", "7:3"),
    ]


class TestRangesTogether:
    """``maxPartitions``, alone and with the other two."""

    TOPICS = tuple(f"{TOPIC}-partition-{i}" for i in range(6))

    @pytest.fixture
    def counted(self, scripted: ScriptedBroker) -> ScriptedBroker:
        """Topic partitions of 1, 2, 3... entries of two rows, in two ledgers."""
        for count, name in enumerate(self.TOPICS, 1):
            scripted.add_topic(name, [batch([b"a", b"b"])] * count)
            scripted.roll(name)
            scripted.append(name, *[batch([b"a", b"b"])] * count)
        return scripted

    def plan(
        self, broker: ScriptedBroker, pool: ConnectionPool, **options: str
    ) -> list[list[int]]:
        """The number of a topic partition for each range of each task."""
        ranges = []
        for name in self.TOPICS:
            places = broker.positions(name)
            start, end = MessageId(*places[0]), MessageId(*places[-1])
            ranges.append(TopicRange(name, start, end))
        given = {"service.url": "pulsar://unused:1", "topic": "t", **options}
        tasks = divide(pool, parse_read_options(given), ranges)
        parts = [part for task in tasks for part in task]
        for range_ in ranges:
            mine = [one for one in parts if one.partition == range_.partition]
            assert mine[0].start == range_.start
            assert mine[-1].end == range_.end
        return [[part.partition for part in task] for task in tasks]

    @pytest.mark.parametrize(
        ("options", "found"),
        [
            ({"maxPartitions": "6"}, [[0], [1], [2], [3], [4], [5]]),
            ({"maxPartitions": "3"}, [[0, 1], [2, 3], [4, 5]]),
            ({"maxPartitions": "1"}, [[0, 1, 2, 3, 4, 5]]),
            (
                {"maxPartitions": "2", "minPartitions": "2"},
                [[0, 1, 2], [3, 4, 5]],
            ),
            # The largest ones are cut, and nothing is put together.
            (
                {"maxPartitions": "8", "minPartitions": "8"},
                [[0], [1], [2], [3], [4], [4], [5], [5]],
            ),
            # 42 entries of two rows in parts of 5, then all together.
            (
                {"maxPartitions": "1", "maxRecordsPerPartition": "1000"},
                [[0, 1, 2, 3, 4, 5]],
            ),
            (
                {"maxPartitions": "2", "maxRecordsPerPartition": "24"},
                [[0, 1, 2], [3], [4], [5]],
            ),
            (
                {"maxPartitions": "2", "pulsar.reader.readCompacted": "true"},
                [[0, 1, 2], [3, 4, 5]],
            ),
        ],
    )
    def test_together(
        self,
        counted: ScriptedBroker,
        pool: ConnectionPool,
        options: dict[str, str],
        found: list[list[int]],
    ) -> None:
        """Ranges that follow each other; a limit on rows comes first."""
        assert self.plan(counted, pool, **options) == found
        wait_until(lambda: not counted.consumers)

    def test_what_is_asked(self, counted: ScriptedBroker, pool: ConnectionPool) -> None:
        """How many entries a range has is asked across ledgers; rows are not."""
        self.plan(counted, pool, maxPartitions="3")
        assert counted.requests["GET_LAST_MESSAGE_ID"] > 0
        assert counted.requests["FLOW"] == 0
        counted.requests.clear()
        for name in self.TOPICS:
            counted.trim(name)
        self.plan(counted, pool, maxPartitions="3")
        assert not counted.requests

    def test_again(self, counted: ScriptedBroker, pool: ConnectionPool) -> None:
        """A micro-batch that is planned again is divided alike, whatever was added."""
        options = {"maxPartitions": "4", "maxRecordsPerPartition": "7"}
        ranges = [
            TopicRange(name, MessageId(*at[0]), MessageId(*at[-1]))
            for name in self.TOPICS
            if (at := counted.positions(name))
        ]
        given = {"service.url": "pulsar://unused:1", "topic": "t", **options}
        first = divide(pool, parse_read_options(given), ranges)
        for name in self.TOPICS:
            counted.append(name, *[batch([b"a", b"b"])] * 9)
        assert divide(pool, parse_read_options(given), ranges) == first


def test_plans_name_the_brokers(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """What was looked up to plan travels with each task, for its own topics."""
    scripted.partitions[TOPIC] = 3
    for i in range(3):
        scripted.add_topic(f"{TOPIC}-partition-{i}", [single(b"a")])
    options = parse_read_options(
        {"service.url": "pulsar://unused:1", "topic": "t", "maxPartitions": "2"}
    )
    tasks = plan_batch(pool, options)
    assert [[range_.partition for range_ in one.ranges] for one in tasks] == [
        [0, 1],
        [2],
    ]
    for task in tasks:
        names = {range_.topic_partition for range_ in task.ranges}
        assert task.brokers == dict.fromkeys(names, BrokerAddress(scripted.address))
    assert str(tasks[0]) == f"{TOPIC}-partition-0 and 1 more"
    assert str(tasks[1]) == f"{TOPIC}-partition-2"
    copy = pickle.loads(pickle.dumps(tasks[0]))  # noqa: S301 - our own
    assert (copy.ranges, copy.brokers) == (tasks[0].ranges, tasks[0].brokers)
