# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the Scala connector; those of ours are in ``test_checkpoint``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, encode_message_id
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.stream_tasks import topic_ranges
from pulsar_spark.topics import TopicName
from spark_topics.source.stream.checkpoint import batch_spans
from tests.support.checkpoints import read, refused

T2 = "persistent://public/default/t-partition-2"

places = st.builds(
    MessageId,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 2),
    st.integers(-1, 2**31 - 2),
)
topics = st.builds(
    TopicName, st.just("a"), st.sampled_from(["b", "c/d"]), st.sampled_from(["t", "ü"])
)
partitions = st.builds(lambda t, i: t.partition(i), topics, st.integers(0, 20))


def signed(message_id: MessageId) -> list[int]:
    """A serialised id as the Scala connector's checkpoints have it."""
    data = encode_message_id(message_id, java=True)
    return [byte - 256 if byte > 127 else byte for byte in data]


@pytest.mark.parametrize(
    ("message_id", "last_read"),
    [
        (MessageId(400, 5), "400:5"),
        (MessageId(400, 5, partition=2), "400:5"),
        (MessageId(400, 5, 7, 2, 100), "400:5"),
        (MessageId(400, 5, 0, 2, 1), "400:5"),
        (MessageId(400, 5, partition=2, first_chunk=MessageId(400, 1)), "400:5"),
        (MessageId(400, -1, partition=2), "400:-1"),
        (EARLIEST, "-1:-1"),
    ],
)
def test_scala_checkpoints_are_read(message_id: MessageId, last_read: str) -> None:
    """The entry of the id counts as read as a whole; the subscription is to choose."""
    text = json.dumps({T2: signed(message_id)})
    assert any(byte < 0 for byte in signed(message_id))
    assert read(text) == StreamOffset("", {T2: LastRead.parse(last_read)})


def test_a_scala_checkpoint_goes_on() -> None:
    """The first batch after moving reads what comes next, of all its topics."""
    start = read('{"topic-1":[8,11,16,101,32,1],"topic-5":[8,-112,3,16,1]}')
    one, five = (f"persistent://public/default/topic-{i}" for i in (1, 5))
    assert start.last_read == {one: LastRead(11, 101), five: LastRead(400, 1)}
    end = StreamOffset("s", {one: LastRead(11, 101), five: LastRead(400, 3)})
    assert topic_ranges(batch_spans(start, end, NOTHING_READ)) == [
        TopicRange(five, MessageId(400, 2), MessageId(400, 3))
    ]


def test_an_offset_that_the_scala_connector_wrote() -> None:
    """The index within the last batch is in it or not; the entry counts as read."""
    folder = Path(__file__).parents[2] / "golden" / "scala-checkpoint"
    offset = read((folder / "offsets" / "0").read_text().splitlines()[2])
    topic = "persistent://public/default/jarcp-7acbb1-partition-"
    assert offset == StreamOffset(
        "", {f"{topic}0": LastRead(915, 59), f"{topic}1": LastRead(916, 40)}
    )


@given(st.dictionaries(partitions.map(str), places, max_size=5))
def test_scala_checkpoints_of_any_topics(found: dict[str, MessageId]) -> None:
    """Every topic partition comes back, with the entry that was read last."""
    text = json.dumps({name: signed(place) for name, place in found.items()})
    assert read(text).last_read == {
        name: LastRead(*place.position) for name, place in found.items()
    }


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (signed(LATEST), f"{T2} stands at latest"),
        (-1, f"{T2} stands at latest"),
        ([8], "cut short"),
        ([], "needs a ledgerId"),
        ([8, 300], "300 is not a byte"),
        (signed(MessageId(400, 5, partition=1)), "is of partition 1"),
    ],
)
def test_impossible_scala_positions_are_refused(value: object, part: str) -> None:
    """``latest`` would be another place today, and damaged ids are no places."""
    assert part in refused({T2: value})
