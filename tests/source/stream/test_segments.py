# SPDX-License-Identifier: Apache-2.0
"""The order of segments in a stream, and what is known of those that are gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.source.stream.segments import Segments
from pulsar_spark.wire.layout import Layout, Segment

TOPIC = "topic://t/ns/x"
LEGACY = "persistent://t/ns/x-partition-0"


def name(number: int) -> str:
    """The name of a segment; here all have the same hashes."""
    return f"segment://t/ns/x/0000-ffff-{number}"


def segment(number: int, *parents: int, sealed: bool = False) -> Segment:
    """A segment."""
    return Segment(number, name(number), 0, 0xFFFF, sealed, frozenset(parents))


def known(*segments: Segment, in_order: bool = True) -> Segments:
    """What a stream knows of a topic with these segments."""
    return Segments({TOPIC: Layout(TOPIC, 1, segments)}, in_order=in_order)


def lineage() -> tuple[Segment, ...]:
    """A split, and a merge of the children."""
    return (
        segment(0, sealed=True),
        segment(1, 0, sealed=True),
        segment(2, 0, sealed=True),
        segment(3, 1, 2),
        segment(4),
    )


ALL = {name(number) for number in range(5)}


def read(*names: str) -> dict[str, None]:
    """Statuses of what is read."""
    return dict.fromkeys(names)


@pytest.mark.parametrize(
    ("drained", "waiting"),
    [
        ((), {1, 2, 3}),
        ((0,), {3}),
        ((0, 1), {3}),
        ((0, 1, 2), set()),
        ((1, 2), {1, 2, 3}),  # 3 waits for what they wait for
    ],
)
def test_children_wait(drained: tuple[int, ...], waiting: set[int]) -> None:
    """Until all that they come from was read."""
    segments = known(*lineage())
    segments.drained = frozenset(map(name, drained))
    assert segments.waiting(read(*ALL)) == {name(number) for number in waiting}


def test_nothing_waits_where_no_order_is_asked_for() -> None:
    """All segments are read at once."""
    assert known(*lineage(), in_order=False).waiting(read(*ALL)) == set()


def test_parents_that_are_not_read_hold_nothing_back() -> None:
    """They are gone, and what that means was said."""
    assert known(*lineage()).waiting(read(name(3), name(4))) == set()


def test_a_migrated_topic() -> None:
    """Its partitions are the parents of its segments."""
    legacy = replace(segment(0, sealed=True), name=LEGACY)
    segments = known(legacy, segment(1, 0))
    assert segments.waiting(read(LEGACY, name(1))) == {name(1)}
    assert segments.ending([LEGACY, name(1)]) == [LEGACY]
    assert not segments.is_absent(LEGACY)
    assert segments.is_absent("persistent://t/ns/x-partition-1")
    assert not segments.is_absent("persistent://t/ns/other")


def test_what_is_over() -> None:
    """Drained and deleted; either alone is something else."""
    segments = known(segment(1), segment(2, sealed=True))
    segments.drained = frozenset({name(0), name(2)})
    over = [number for number in range(4) if segments.is_over(name(number))]
    assert over == [0]
    assert segments.is_absent(name(3))
    assert segments.ending(ALL) == []


@pytest.mark.parametrize(
    ("read", "unseen"),
    [([2], [3]), ([3], []), ([0, 1], [2, 3]), ([4], []), ([], [])],
)
def test_segments_that_came_and_went(read: list[int], unseen: list[int]) -> None:
    """Their numbers are missing between what was read and what there is."""
    segments = known(segment(1), segment(4))
    found = segments.unseen([*map(name, read), "persistent://t/ns/other"])
    assert found == ({TOPIC: unseen} if unseen else {})


@given(st.data())
def test_each_plan_goes_on(data: st.DataObject) -> None:
    """Whatever the lineage, something can be read until all is drained, in order."""
    count = data.draw(st.integers(1, 12))
    segments = [
        segment(
            number,
            *data.draw(st.sets(st.integers(0, number - 1), max_size=2))
            if number
            else (),
        )
        for number in range(count)
    ]
    stream = known(*segments)
    names = read(*(one.name for one in segments))
    order: list[str] = []
    while len(order) < count:
        ready = [
            one
            for one in names
            if one not in order and one not in stream.waiting(names)
        ]
        assert ready
        drained = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True))
        order += drained
        stream.drained |= set(drained)
    for one in segments:
        for parent in one.parents:
            assert order.index(name(parent)) < order.index(one.name)
