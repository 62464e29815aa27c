# SPDX-License-Identifier: Apache-2.0
"""Positions of topic partitions that were deleted since: which of them are a loss."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.errors import DataLossError
from pulsar_spark.message_id import MessageId, encode_message_id
from pulsar_spark.options import parse_read_options
from pulsar_spark.options.read import ReadOptions
from pulsar_spark.source.plan.gone import without_gone
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.layout import Layout, Segment

TOPIC = TopicName.parse("topic://public/default/s")
ORDINARY = "persistent://public/default/s"
LEFT, RIGHT = (
    TOPIC.segment(start, start + 0x7FFF, number).full_name
    for number, start in ((2, 0), (3, 0x8000))
)
DELETED = TOPIC.segment(0, 0xFFFF, 1).full_name
NEVER = TOPIC.segment(0, 0xFFFF, 4).full_name


def options(starts: Any = None, ends: Any = None, **given: str) -> ReadOptions:
    """Options with these positions."""
    named = {"startingOffsets": starts, "endingOffsets": ends}
    texts = {name: json.dumps(value) for name, value in named.items() if value}
    given = {"topic": str(TOPIC), **given, **texts}
    if "topicsPattern" in given:
        del given["topic"]
    return parse_read_options({"service.url": "pulsar://h", **given})


def left_of(read: ReadOptions, *names: str) -> tuple[set[str], set[str]]:
    """Names of starts and ends that stay, where these and a divided topic are left."""
    segments = tuple(
        Segment(TopicName.parse(name).partition_index or 0, name, 0, 1, False, parents)
        for name, parents in ((LEFT, frozenset({1})), (RIGHT, frozenset({1})))
    )
    layouts = {str(TOPIC): Layout(str(TOPIC), 1, segments)}
    topics = [TopicName.parse(name) for name in (LEFT, RIGHT, *names)]
    kept = without_gone(read, topics, layouts)
    return set(kept.starting_offsets.topics), set(kept.ending_offsets.topics)


def names(*given: str) -> set[str]:
    """Full names."""
    return {TopicName.parse(name).full_name for name in given}


@pytest.mark.parametrize("start", ["7:4", "7:4:1", "earliest"])
def test_what_came_after_a_place_is_lost(
    start: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error with a cure; or one warning, and the place is forgotten."""
    starts = {DELETED: start, LEFT: "8:1"}
    with pytest.raises(DataLossError, match="without it in this read") as caught:
        left_of(options(starts))
    error = caught.value
    assert (error.topic_partition, error.wanted) == (DELETED, start)
    assert left_of(options(starts, failOnDataLoss="false"))[0] == {LEFT}
    (message,) = caplog.messages
    assert message.startswith(f"[PULSAR_DATA_LOSS] {DELETED} is gone")


def test_what_was_read_to_its_end_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing could follow."""
    read = options({DELETED: "latest", LEFT: "8:1"})
    assert left_of(read)[0] == {LEFT}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("start", "end", "is_lost"),
    [
        ("7:4", "7:3", False),  # there was nothing to read, and it goes right after
        ("7:4", "7:4", True),
        ("7:4:1", "7:4:0", False),
        ("7:4", None, True),
        ("7:4", "0:-1", True),  # nobody can tell what had come since
        ("earliest", "0:-1", False),  # there was nothing
        ("earliest", "7:3", True),
        ("latest", "7:3", False),
        (None, "7:3", True),
        (None, "0:-1", False),
        (None, "earliest", False),
    ],
)
def test_ends(start: str | None, end: str | None, is_lost: bool) -> None:
    """An end of what is gone is forgotten, too."""
    ends = {LEFT: "8:1", **({DELETED: end} if end else {})}
    read = options({DELETED: start} if start else None, ends)
    if is_lost:
        with pytest.raises(DataLossError):
            left_of(read)
    else:
        assert left_of(read) == (set(), {LEFT})


@pytest.mark.parametrize("name", [ORDINARY, str(TOPIC), "*"])
def test_an_end_of_what_was_read_before(name: str) -> None:
    """It is none of a read that has a word for all of the topic."""
    ends = {DELETED: "7:3", LEFT: "8:1"}
    assert left_of(options({name: "latest", LEFT: "8:0"}, ends))[1] == {LEFT}
    with pytest.raises(DataLossError, match=r"ends at 7:3.* the rows up to") as caught:
        left_of(options({name: "earliest"}, ends))
    error = caught.value
    assert (error.topic_partition, error.wanted) == (DELETED, "7:3")


@pytest.mark.parametrize(
    "name",
    [
        NEVER,
        TOPIC.segment(0, 0xFFFF, 2).full_name,
        TopicName.parse("topic://public/default/r").segment(0, 9, 0).full_name,
        f"{ORDINARY}-partition-3",
        "persistent://public/default/t-partition-0",
        "persistent://public/default/other",
    ],
)
def test_mistakes_stay(name: str) -> None:
    """They are refused with the other names that are not read."""
    read = options({name: "7:4"}, {name: "7:9"})
    assert left_of(read) == ({name}, {name})


@pytest.mark.parametrize(
    ("name", "position"),
    [
        (f"{ORDINARY}-partition-1", "7:4"),
        (ORDINARY, "7:4"),
        (
            ORDINARY,
            list(encode_message_id(MessageId(7, 4, partition=1))),
        ),
    ],
)
def test_names_from_before_a_migration(name: str, position: Any) -> None:
    """They were those of segments."""
    with pytest.raises(DataLossError):
        left_of(options({name: position}))
    assert left_of(options({name: "latest", LEFT: "8:1"}))[0] >= {LEFT}


def test_a_word_for_all_segments_stays() -> None:
    """It is about those that there are."""
    for name in (ORDINARY, str(TOPIC)):
        assert left_of(options({name: "earliest"})) == (names(name), set())


def test_topics_of_a_pattern(caplog: pytest.LogCaptureFixture) -> None:
    """A topic with a start has been there; an end alone may be misspelt."""
    pattern = {"topicsPattern": "[a-z]"}
    start = options({"u": "7:4", "t": "7:4"}, {"u": "7:9"}, **pattern)
    with pytest.raises(DataLossError, match="default/u is gone"):
        left_of(start, ORDINARY.replace("/s", "/t"))
    again = options({"u": "7:4"}, {"u": "7:9"}, failOnDataLoss="false", **pattern)
    assert left_of(again) == (set(), set())
    assert len(caplog.messages) == 1
    empty = options({"u-partition-2": "earliest"}, **pattern)
    assert left_of(empty) == (set(), set())
    assert left_of(options(None, {"u": "7:9"}, **pattern)) == (set(), names("u"))
    # Where nothing else is read, the end of a misspelt name does no harm.
    bounded = options(None, {"u": "7:9", "*": "earliest"}, **pattern)
    with pytest.raises(DataLossError, match=r"default/u is gone.*misspelt"):
        left_of(bounded)
    assert left_of(replace(bounded, fail_on_data_loss=False)) == (set(), set())
    empty = options(None, {"u": "0:-1", "*": "earliest"}, **pattern)
    assert left_of(empty) == (set(), set())
    others = options({"other": "7:4"}, **pattern)
    assert left_of(others) == (names("other"), set())
