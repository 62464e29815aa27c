# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.options.offsets import Position
from pulsar_spark.source.plan.ranges import assign_offsets
from pulsar_spark.source.plan.starts import Start, find_starts, times_for
from pulsar_spark.topics import TopicName
from spark_topics.options.offsets import Edge
from tests.support.scripted_broker import LEDGER, ScriptedBroker, single

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_spark.client.pool import ConnectionPool

TOPIC = TopicName.parse("t")
PARTS = [TOPIC.partition(index) for index in range(2)]
P0, P1 = (topic.full_name for topic in PARTS)


@pytest.fixture
def two(scripted: ScriptedBroker) -> ScriptedBroker:
    """Two partitions: entries of the times 1000, 1001 and so on; three and five."""
    for name, count in ((P0, 3), (P1, 5)):
        entries = [single(b"a", publish_time=1000 + i) for i in range(count)]
        scripted.add_topic(name, entries)
    return scripted


def starts(
    pool: ConnectionPool,
    offsets: dict[str, Position] | None = None,
    topics: Sequence[TopicName] = PARTS,
    **given: str,
) -> dict[str, Start]:
    """Where a read with these options starts."""
    options = parse_read_options(
        {"service.url": "pulsar://unused:1", "topic": "t", **given}
    )
    lookup = PositionLookup(pool, read_compacted=options.read_compacted)
    configured = assign_offsets(options.starting_offsets, topics, option="o")
    return find_starts(lookup, options, topics, offsets or configured, {})


def firsts(found: dict[str, Start]) -> list[str]:
    """The first messages, by partition."""
    return [str(found[topic.full_name].first) for topic in PARTS]


def test_earliest(two: ScriptedBroker, pool: ConnectionPool) -> None:
    """What is stored first; the last message is known from the same answer."""
    found = starts(pool)
    assert firsts(found) == ["7:0", "7:0"]
    assert [found[name].found.last for name in (P0, P1)] == [
        MessageId(LEDGER, 2),
        MessageId(LEDGER, 4),
    ]


def test_latest(two: ScriptedBroker, pool: ConnectionPool) -> None:
    """After what can be delivered; an empty partition begins at its beginning."""
    two.add_topic(P0)
    offsets = {P0: Edge.LATEST, P1: Edge.LATEST}
    assert firsts(starts(pool, offsets)) == ["8:0", "7:5"]


def test_message_ids(two: ScriptedBroker, pool: ConnectionPool) -> None:
    """As they are; the index in an entry, too."""
    offsets = '{"t":{"0":"7:1:4","1":"7:9"}}'
    assert firsts(starts(pool, startingOffsets=offsets)) == ["7:1:4", "7:9"]


def test_times_come_before_offsets(two: ScriptedBroker, pool: ConnectionPool) -> None:
    """Where one partition has a time, the other begins with its first row."""
    found = starts(pool, startingTime='{"t-partition-1":1003}')
    assert firsts(found) == ["7:0", "7:3"]


def test_nothing_since_a_time(two: ScriptedBroker, pool: ConnectionPool) -> None:
    """An error that names the partitions, unless the end is wanted then."""
    with pytest.raises(OptionError, match=f"startingTime` in {P0}. ") as caught:
        starts(pool, startingTime="1003", startingTimeStrategy="error")
    assert P1 not in caught.value.message
    assert firsts(starts(pool, startingTime="1003")) == ["7:3", "7:3"]


def test_nothing_since_a_time_in_a_sealed_segment(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """What was published later is in the segments that followed."""
    topic = TopicName.parse("topic://public/default/x")
    old = TopicName.parse("x-partition-0")
    segments = [old, *(topic.segment(0, 0xFFFF, number) for number in (1, 2))]
    times = (1000, 1001, 1002)
    for segment, time in zip(segments, times, strict=True):
        scripted.add_topic(segment.full_name, [single(b"a", publish_time=time)])

    def since(time: int) -> dict[str, Start]:
        given = {"startingTime": str(time), "startingTimeStrategy": "error"}
        return starts(pool, topics=segments, topic="x", **given)

    firsts = [str(since(1002)[one.full_name].first) for one in segments]
    assert firsts == ["7:1", "7:1", "7:0"]
    with pytest.raises(OptionError, match=f"startingTime` in {topic}. "):
        since(1003)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"failOnDataLoss": "false"}, "8:0"),
        ({"pulsar.reader.readCompacted": "true"}, "7:1"),
    ],
)
def test_a_start_that_is_gone(
    two: ScriptedBroker, pool: ConnectionPool, options: dict[str, Any], first: str
) -> None:
    """A loss; a compacted topic reaches back further than what is stored."""
    two.add_topic(P0, [single(b"a")] * 3)
    (later,) = {two.roll(P0)}
    two.append(P0, single(b"b"))
    two.trim(P0)
    offsets = {"startingOffsets": '{"t":{"0":"7:1"}}'}
    if "pulsar.reader.readCompacted" not in options:
        with pytest.raises(DataLossError, match="no longer has 7:1") as caught:
            starts(pool, **offsets)
        assert caught.value.topic_partition == P0
    found = starts(pool, **offsets, **options)[P0]
    assert str(found.first) == first.replace("8", str(later))


@pytest.mark.parametrize(
    ("start", "happens", "is_lost"),
    [
        ("7:3", "", False),
        ("7:2", "", True),
        ("7:2:1", "", True),
        ("7:3", "it is loaded again", True),
        ("7:3", "another row comes", True),
        ("9:-1", "it is loaded again", False),
    ],
)
def test_all_is_gone(
    two: ScriptedBroker, pool: ConnectionPool, start: str, happens: str, is_lost: bool
) -> None:
    """Nothing is lost where the broker knows that nothing came after the start."""
    two.roll(P0)
    two.trim(P0)
    if happens == "it is loaded again":
        two.roll(P0)
        two.roll(P0)
    elif happens:
        two.append(P0, single(b"b"))
    offsets = {"startingOffsets": f'{{"t":{{"0":"{start}"}}}}'}
    if is_lost:
        with pytest.raises(DataLossError, match=f"no longer has {start}"):
            starts(pool, **offsets)
    else:
        assert starts(pool, **offsets)[P0].first.entry_id == 0


def test_a_partition_that_does_not_exist_yet(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Before everything there will be."""
    scripted.partitions[TOPIC.full_name] = 2
    scripted.add_topic(P0, [single(b"a")])
    found = starts(pool)[P1]
    assert (found.found.before, found.found.last) == (EARLIEST, None)


def test_times_for() -> None:
    """None without the option; a topic that is not read is an error."""
    assert times_for(None, PARTS, "startingTime") == {}
    options = parse_read_options(
        {"service.url": "pulsar://unused:1", "topic": "t", "endingTime": '{"x":5}'}
    )
    with pytest.raises(OptionError, match=r"`endingTime` names persistent://.*/x"):
        times_for(options.ending_times, PARTS, "endingTime")
