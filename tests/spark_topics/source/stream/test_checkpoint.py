# SPDX-License-Identifier: Apache-2.0
"""Offsets of a system that has no more to keep than positions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_topics.source.stream.checkpoint import SLASHED, batch_spans
from tests.spark_topics.numbers import NAMES, CheckpointError, NumberOffset, Offset

NAME = st.builds(
    lambda topic, partition: topic if partition is None else f"{topic}/{partition}",
    st.sampled_from(["a", "b", "a-b", "a2", "a10"]),
    st.none() | st.integers(0, 12).map(str) | st.sampled_from(["1:0", "2:0", "x"]),
)
POSITIONS = st.dictionaries(NAME, st.integers(-1, 2**63).map(Offset), max_size=8)


@given(POSITIONS, POSITIONS, POSITIONS, POSITIONS)
def test_it_reads_back_what_it_wrote(
    last_read: dict[str, Offset],
    start: dict[str, Offset],
    began: dict[str, Offset],
    kept: dict[str, Offset],
) -> None:
    """Through text, whatever topic partitions are called."""
    offset = NumberOffset(last_read, start, began, kept)
    text = json.dumps(offset.to_json())
    assert NumberOffset.from_json(json.loads(text)) == offset


@given(POSITIONS, st.randoms())
def test_the_text_is_canonical(positions: dict[str, Offset], random: Any) -> None:
    """Spark compares texts: equal offsets have equal ones."""
    pairs = list(positions.items())
    random.shuffle(pairs)
    again = NumberOffset(dict(pairs)).to_json()
    assert json.dumps(again) == json.dumps(NumberOffset(positions).to_json())


def test_names_are_in_natural_order() -> None:
    """Partition 2 comes before 10; one stands alone where its topic has a value."""
    names = ["t10/0", "t2/10", "t2/2", "t2/1:0", "t2/1:10", "t2/1:9", "u", "u/0"]
    tree = NAMES.tree(dict.fromkeys(names, 0))
    assert list(tree) == ["t2", "t10", "u", "u/0"]
    assert list(tree["t2"]) == ["1:0", "1:9", "1:10", "2", "10"]
    assert dict(NAMES.flatten(tree)) == dict.fromkeys(names, 0)


def test_names_with_slashes() -> None:
    """What follows the last one is the partition."""
    values = {"orders/0": 1, "a/b/0": 2, "a/b/1": 3, "c/1:10": 4}
    tree = {"a/b": {"0": 2, "1": 3}, "c": {"1:10": 4}, "orders": {"0": 1}}
    assert SLASHED.tree(values) == tree
    assert dict(SLASHED.flatten(tree)) == values


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (7, "is not one of a Numbers stream: 7 .*not a JSON object"),
        ({}, "it has no 'v'"),
        ({"v": 2}, "version 2, but this version of numbers-spark reads version 1"),
        ({"v": 1}, "it has no 'lastRead'"),
        ({"v": 1, "lastRead": 3}, "3 is not an object by topic"),
        ({"v": 1, "lastRead": {"t": 3}}, "t: 3 is not a position"),
        ({"v": 1, "lastRead": {"t": {"0": "x"}}}, "invalid literal"),
        ({"v": 1, "lastRead": {}, "startAfter": []}, "is not an object by topic"),
    ],
)
def test_what_is_not_one_of_its_own(tree: Any, problem: str) -> None:
    """One error, of the system's own class."""
    with pytest.raises(CheckpointError, match=problem):
        NumberOffset.from_json(tree)


@dataclass(frozen=True)
class Further(NumberOffset):
    """One that keeps more."""

    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """With the note."""
        return {**super().to_json(), "note": self.note}

    @classmethod
    def fields_of(cls, tree: Any) -> dict[str, Any]:
        """With the note."""
        return {**super().fields_of(tree), "note": tree["note"]}


def test_a_system_may_keep_more() -> None:
    """Fields are added by its own class."""
    offset = Further({"t": Offset(3)}, note="n")
    assert Further.from_json(offset.to_json()) == offset
    with pytest.raises(CheckpointError, match="it has no 'note'"):
        Further.from_json(NumberOffset({}).to_json())


def test_what_a_micro_batch_reads() -> None:
    """It follows from its two offsets."""
    start = NumberOffset({"a": Offset(3), "b": Offset(5)})
    end = NumberOffset(
        {"a": Offset(4), "b": Offset(5), "c": Offset(2), "d": Offset(0)},
        {"c": Offset(1)},
    )
    spans = batch_spans(start, end, Offset(-1))
    assert [(s.topic_partition, s.after, s.last) for s in spans] == [
        ("a", 3, 4),
        ("c", 1, 2),
        ("d", -1, 0),
    ]


class _Counted(dict[str, Offset]):
    """Positions that count how often all of them are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def test_all_positions_are_compared_once() -> None:
    """Not for each topic partition: of thousands that took a minute."""
    positions = {f"t/{n}": Offset(3) for n in range(100)}
    start = NumberOffset(positions, _Counted(positions))
    end = NumberOffset({name: Offset(5) for name in positions})
    assert len(batch_spans(start, end, Offset(-1))) == len(positions)
    assert all(start.is_new(name) for name in positions)
    assert _Counted.compared == 1
