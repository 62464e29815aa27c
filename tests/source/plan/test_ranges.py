# SPDX-License-Identifier: Apache-2.0
"""What to read of which topic partition: positions, losses, and ranges."""

from __future__ import annotations

import logging
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, TopicPositions
from pulsar_spark.options.offsets import OffsetsSpec, Position
from pulsar_spark.source.plan.ranges import (
    TopicRange,
    assign_offsets,
    assign_times,
    check_start,
    is_after,
    range_between,
    start_of,
)
from pulsar_spark.topics import TopicName
from spark_topics.options.offsets import Edge
from spark_topics.text import list_names

PREFIX = "persistent://public/default/"
PLAIN = TopicName.parse("plain")
PARTS = [TopicName.parse("parts").partition(n) for n in range(3)]
TOPICS = [PLAIN, *PARTS]
OPTION = "startingOffsets"


def assigned(
    topics: dict[str, Position], default: Edge = Edge.EARLIEST
) -> list[Position]:
    """The positions of TOPICS, in their order."""
    spec = OffsetsSpec(default, {PREFIX + name: at for name, at in topics.items()})
    found = assign_offsets(spec, TOPICS, option=OPTION)
    assert list(found) == [topic.full_name for topic in TOPICS]
    return list(found.values())


A, B = MessageId(5, 1), MessageId(6, 2, 3)
EARLY, LATE = Edge.EARLIEST, Edge.LATEST

# -- positions of topics ---------------------------------------------------------------


@pytest.mark.parametrize("default", [EARLY, LATE])
def test_default(default: Edge):
    """What is not named gets the default."""
    assert assigned({}, default) == [default] * 4


def test_names():
    """A topic partition is named as such, a plain topic by its name."""
    assert assigned({"plain": A, "parts-partition-1": B}) == [A, EARLY, B, EARLY]


def test_a_word_for_all_partitions():
    """A word for a partitioned topic counts for its partitions, and for no other."""
    assert assigned({"parts": LATE}) == [EARLY, LATE, LATE, LATE]


@pytest.mark.parametrize("turned", [False, True])
def test_the_longer_name_wins(turned: bool):
    """A partition's own position beats its topic's, in whatever order they come."""
    topics: dict[str, Position] = {"parts": LATE, "parts-partition-2": A}
    if turned:
        topics = dict(reversed(topics.items()))
    assert assigned(topics) == [EARLY, LATE, LATE, A]


@pytest.mark.parametrize("index", range(3))
def test_an_id_knows_its_partition(index: int):
    """An id for a partitioned topic counts for the partition that it carries."""
    with_partition = MessageId(5, 1, partition=index)
    expected: list[Position] = [EARLY] * 4
    expected[1 + index] = with_partition
    assert assigned({"parts": with_partition}) == expected


@pytest.mark.parametrize("partition", [-1, 3])
def test_an_id_for_several_partitions(partition: int):
    """An id that belongs to none of them is an error that says how to write it."""
    one = MessageId(5, 1, partition=partition)
    with pytest.raises(
        OptionError, match=r'parts, which has 3 .*\{"0":"5:1"\}'
    ) as caught:
        assigned({"parts": one})
    assert f"`{OPTION}`" in caught.value.message


@pytest.mark.parametrize("name", ["other", "parts-partition-3", "plain-partition-0"])
def test_an_unknown_name(name: str):
    """A name that is not read is an error with those that are."""
    with pytest.raises(
        OptionError, match="not among the topics that are read"
    ) as caught:
        assigned({name: A})
    assert PREFIX + name in caught.value.message
    assert PLAIN.full_name in caught.value.message


def test_a_single_partition_is_read():
    """Where only one partition is read, its topic's name stands for that one alone."""
    spec = OffsetsSpec(EARLY, {PREFIX + "parts": LATE})
    assert assign_offsets(spec, PARTS[1:2], option=OPTION) == {PARTS[1].full_name: LATE}


def test_times():
    """Times are assigned likewise; where there is no default some have none."""
    times = {PREFIX + "parts": 7, PREFIX + "parts-partition-0": 8}
    named = {PARTS[0].full_name: 8, PARTS[1].full_name: 7, PARTS[2].full_name: 7}
    assert assign_times(times, None, TOPICS, option="startingTime") == named
    assert assign_times(times, 0, TOPICS, option="startingTime") == {
        PLAIN.full_name: 0,
        **named,
    }
    assert assign_times({}, None, TOPICS, option="startingTime") == {}
    with pytest.raises(OptionError, match=r"`startingTime` names .*other"):
        assign_times({PREFIX + "other": 7}, None, TOPICS, option="startingTime")


def test_list_names():
    """A list in a message ends after five."""
    assert list_names(["a", "b"]) == "a, b"
    assert list_names("abcde") == "a, b, c, d, e"
    assert list_names("abcdef") == "a, b, c, d, e and 1 more"
    assert list_names("abcdefg") == "a, b, c, d, e and 2 more"


# -- losses ----------------------------------------------------------------------------


def positions(
    before: tuple[int, int], last: tuple[int, int] | None = (99, 0)
) -> TopicPositions:
    """What a broker says."""
    return TopicPositions(MessageId(*before), last and MessageId(*last))


@pytest.mark.parametrize(
    ("wanted", "before"),
    [
        (MessageId(5, 3), (5, 2)),  # right there
        (MessageId(5, 0), (5, -1)),  # the first entry of a ledger
        (MessageId(5, 3, 4), (5, 2)),  # inside of a batch
        (MessageId(5, 9), (5, 2)),  # entries in between are no messages
        (MessageId(7, 0), (5, 7)),  # the ledger before was closed
        (MessageId(6, 0), (5, 7)),  # a ledger that never was, after one that is
        (LATEST, (5, 7)),
        (EARLIEST, (5, 7)),
        (EARLIEST, (-1, -1)),
        (MessageId(5, 3, first_chunk=MessageId(5, 1)), (5, 0)),
    ],
)
@pytest.mark.parametrize("fail", [True, False])
def test_no_false_alarm(
    wanted: MessageId,
    before: tuple[int, int],
    fail: bool,
    caplog: pytest.LogCaptureFixture,
):
    """A gap in the numbers is no loss; the start stays what it was."""
    for last in ((99, 0), None, before):
        found = positions(before, last)
        assert check_start("t", wanted, found, fail_on_data_loss=fail) == wanted
    assert not caplog.records


@pytest.mark.parametrize(
    ("wanted", "before"),
    [
        (MessageId(5, 3), (5, 3)),
        (MessageId(5, 3, 1), (5, 3)),
        (MessageId(5, 3), (7, -1)),
        (MessageId(0, 0), (0, 0)),
        (MessageId(5, 3, first_chunk=MessageId(5, 1)), (5, 1)),
    ],
)
def test_loss(
    wanted: MessageId, before: tuple[int, int], caplog: pytest.LogCaptureFixture
):
    """A start that is gone is an error with all facts, or a warning with the same."""
    found = positions(before)
    first = MessageId(before[0], before[1] + 1)
    with pytest.raises(DataLossError, match="failOnDataLoss") as caught:
        check_start("my-topic", wanted, found, fail_on_data_loss=True)
    error = caught.value
    assert (error.topic_partition, error.wanted) == ("my-topic", str(wanted))
    assert error.available == str(first)
    for part in ("my-topic", f" {wanted},", str(first)):
        assert part in error.message
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        assert check_start("my-topic", wanted, found, fail_on_data_loss=False) == first
    assert "PULSAR_DATA_LOSS" in caplog.text
    assert str(first) in caplog.text


def test_a_later_ledger_under_protection(caplog: pytest.LogCaptureFixture):
    """A subscription kept all: a ledger that is gone had been read to its end."""
    wanted, found = MessageId(5, 3), positions((7, -1))
    for fail in (True, False):
        assert check_start(
            "t", wanted, found, fail_on_data_loss=fail, is_protected=True
        ) == MessageId(7, 0)
    assert not caplog.records


@pytest.mark.parametrize(
    ("wanted", "before"),
    [
        (MessageId(5, 3), (7, 0)),  # entries of a ledger that is there
        (MessageId(5, 3), (7, 2)),
        (MessageId(5, 3), (5, 3)),
        (MessageId(5, -1), (5, -1)),
        (MessageId(7, 3), (9, 4)),
    ],
)
def test_loss_in_spite_of_protection(wanted: MessageId, before: tuple[int, int]):
    """Entries that are gone from a ledger that is there were not read."""
    with pytest.raises(DataLossError):
        check_start(
            "t", wanted, positions(before), fail_on_data_loss=True, is_protected=True
        )


@pytest.mark.parametrize("before", [(9, -1), (-1, -1)])
def test_loss_of_everything(before: tuple[int, int]):
    """Where nothing is left, or there never was a topic, nothing is available."""
    found = positions(before, None)
    with pytest.raises(DataLossError, match="it is empty") as caught:
        check_start("t", MessageId(5, 3), found, fail_on_data_loss=True)
    assert caught.value.available == ""


@pytest.mark.parametrize(
    ("before", "last", "empty"),
    [
        ((5, 2), None, True),
        ((5, 2), (5, 2), True),
        ((5, 2), (5, 1), True),
        ((5, 2), (5, 3), False),
        ((5, -1), (5, 0), False),
        ((-1, -1), (0, 0), False),
    ],
)
def test_is_empty(before: tuple[int, int], last: tuple[int, int] | None, empty: bool):
    """A reader gets nothing where the last message is not after its place."""
    assert positions(before, last).is_empty == empty


def test_start_of():
    """A word needs a look at the beginning, an id at itself."""
    assert start_of(A) == A
    assert start_of(EARLY) == EARLIEST


# -- ranges ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "after"),
    [
        ((5, 3), (5, 3), False),
        ((5, 3), (5, 2), True),
        ((5, 3), (4, 9), True),
        ((5, 3), (6, 0), False),
        ((5, 3, 2), (5, 3), False),
        ((5, 3, 2), (5, 3, 2), False),
        ((5, 3, 3), (5, 3, 2), True),
        ((5, 3), (5, 3, 0), False),
        ((5, 4, 0), (5, 3, 9), True),
    ],
)
def test_is_after(start: tuple[int, ...], end: tuple[int, ...], after: bool):
    """Places are compared first; -1 reaches to the far side of the entry."""
    assert is_after(MessageId(*start), MessageId(*end)) == after


@pytest.mark.parametrize(
    ("end", "last", "found"),
    [
        (None, (9, 0), (9, 0)),
        (None, (9, 0, 4), (9, 0, 4)),
        ((7, 0), (9, 0), (7, 0)),
        ((9, 0, 2), (9, 0), (9, 0, 2)),
        ((9, 0), (9, 0, 4), (9, 0, 4)),
        ((9, 0, 9), (9, 0, 4), (9, 0, 4)),
        ((9, 0, 3), (9, 0, 4), (9, 0, 3)),
        ((10, 0), (9, 0, 4), (9, 0, 4)),
        ((5, 3, 1), (9, 0), (5, 3, 1)),
    ],
)
def test_range_between(
    end: tuple[int, ...] | None, last: tuple[int, ...], found: tuple[int, ...]
):
    """A range ends at its end, or at the last message where that comes first."""
    start = MessageId(5, 3, 1)
    range_ = range_between("t", start, end and MessageId(*end), MessageId(*last))
    assert range_ == TopicRange("t", start, MessageId(*found))


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (None, None),
        ((9, 0), None),
        (None, (5, 2)),
        (None, (5, 3, 0)),
        ((5, 3, 0), (9, 0)),
        ((5, 2), (9, 0)),
        ((-1, -1), (9, 0)),
    ],
)
def test_nothing_to_read(end: tuple[int, ...] | None, last: tuple[int, ...] | None):
    """Where nothing can be between the ends there is no range, so no task."""
    start = MessageId(5, 3, 1)
    ends = end and MessageId(*end), last and MessageId(*last)
    assert range_between("t", start, *ends) is None


def test_partition():
    """A range knows the number of its partition, and nothing else by itself."""
    assert not TopicRange(PLAIN.full_name, A, B).is_start_known
    assert TopicRange(PARTS[2].full_name, A, B).partition == 2
    assert TopicRange(PLAIN.full_name, A, B).partition == -1


def test_ranges_travel():
    """A range goes to executors."""
    range_ = TopicRange(PARTS[2].full_name, A, B)
    assert pickle.loads(pickle.dumps(range_)) == range_  # noqa: S301


ids = st.builds(MessageId, st.integers(0, 2), st.integers(0, 2), st.integers(-1, 3))

#: Every message of a small topic; each entry is a batch of four.
MESSAGES = [
    (ledger, entry, n) for ledger in range(3) for entry in range(3) for n in range(4)
]


def within(start: MessageId, end: MessageId | None) -> list[tuple[int, int, int]]:
    """The messages of MESSAGES from a start to an end, by the plain definition."""
    low = (*start.position, max(start.batch_index, 0))
    high = (9, 9, 9)
    if end is not None:
        high = (*end.position, 9 if end.batch_index < 0 else end.batch_index)
    return [message for message in MESSAGES if low <= message <= high]


@settings(max_examples=300)
@given(start=ids, end=st.none() | ids, last=st.none() | ids)
def test_ranges_are_the_plain_definition(
    start: MessageId, end: MessageId | None, last: MessageId | None
):
    """A range has the messages from start to end that there are; none: no range."""
    expected = []
    if last is not None:
        there = set(within(MessageId(0, 0), last))
        expected = [message for message in within(start, end) if message in there]
    range_ = range_between("t", start, end, last)
    found = [] if range_ is None else within(range_.start, range_.end)
    assert found == expected
    assert (range_ is None) == (not expected)


def test_where_the_read_began_makes_no_other_range() -> None:
    """Plans are compared by what they read."""
    start, end = MessageId(3, 4), MessageId(5, 6)
    assert TopicRange("t", start, end, begins_at=start) == TopicRange("t", start, end)
