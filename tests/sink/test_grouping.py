# SPDX-License-Identifier: Apache-2.0
"""Rows by topic, by key, and by what may share an entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.errors import BadRowError
from pulsar_spark.sink.grouping import (
    groups_by_key,
    rows_by_topic,
    runs_of_entries,
    take_numbers,
    up_to_large_rows,
    with_keys_as_bytes,
)
from pulsar_spark.topics import TopicName


def encoded(**columns: Sequence[Any] | pa.Array) -> EncodedRows:
    """Some rows; a value each where none is given."""
    count = len(next(iter(columns.values())))
    batch = pa.record_batch({"value": [b"v"] * count, **columns})
    return RowEncoder(batch.schema).encode(batch)


# -- by topic --------------------------------------------------------------------------


def test_rows_of_several_topics() -> None:
    """In the order in which the topics come first, rows in their own order."""
    rows = encoded(__topic=["b", "a", "b", "persistent://public/default/a", "b"])
    found = rows_by_topic(rows, 0)
    assert [topic.full_name for topic in found] == [
        "persistent://public/default/b",
        "persistent://public/default/a",
    ]
    assert [indices.to_pylist() for indices in found.values() if indices] == [
        [0, 2, 4],
        [1, 3],
    ]


def test_rows_of_one_topic() -> None:
    """However it is named, there is nothing to choose from."""
    rows = encoded(__topic=["a", "persistent://public/default/a", "public/default/a"])
    assert rows_by_topic(rows, 0) == {TopicName.parse("a"): None}


def test_a_row_without_a_topic() -> None:
    """It is named by its number in the task."""
    with pytest.raises(BadRowError, match=r"Row 102 of a task has no topic.*`topic`"):
        rows_by_topic(encoded(__topic=["a", "a", None]), 100)


def test_a_topic_that_is_none() -> None:
    """What the name should be is said."""
    with pytest.raises(BadRowError, match=r"`__topic` of a row: .*a/b/c/d/e"):
        rows_by_topic(encoded(__topic=["a", "a/b/c/d/e"]), 0)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_a_topic_that_is_no_text(type_: pa.DataType) -> None:
    """Spark makes a string of any bytes."""
    wide = pa.large_binary() if pa.types.is_large_string(type_) else pa.binary()
    topics = pa.array([b"a", b"caf\xe9"], wide).view(type_)
    with pytest.raises(BadRowError, match=r"`__topic` of a row: b'caf.xe9' is not"):
        rows_by_topic(encoded(__topic=topics), 0)


# -- by key ----------------------------------------------------------------------------


def pairs(rows: EncodedRows, partitions: Sequence[int]) -> list[int]:
    """The number of each row's pair; the factor gives back the partition."""
    numbers, factor = groups_by_key(pa.array(partitions, pa.int32()), rows)
    found: list[int] = numbers.to_pylist()
    assert [number // factor for number in found] == list(partitions)
    return found


def test_keys_of_a_topic_partition() -> None:
    """Rows have one number where they share both; those without a key share one."""
    rows = encoded(__key=["x", "y", "x", None, "x", None])
    found = pairs(rows, [1, 1, 1, 0, 0, 0])
    assert found[0] == found[2]
    assert found[3] == found[5]
    assert len(set(found)) == 4


def test_the_ordering_key_decides() -> None:
    """Where there is one, as at brokers and consumers."""
    rows = encoded(__key=["x", "x", "y", "y"], __orderingKey=[b"1", b"2", b"1", None])
    found = pairs(rows, [0, 0, 0, 0])
    assert found[0] == found[2]
    assert len(set(found)) == 3


def test_rows_without_keys() -> None:
    """The topic partition is all there is."""
    assert pairs(encoded(value=[b"a", b"b"]), [3, 1]) == [3, 1]


# -- numbers ---------------------------------------------------------------------------


def test_numbers_follow_their_rows() -> None:
    """Through one choice and the next."""
    indices = pa.array([4, 0, 2], pa.int64())
    once = take_numbers(range(10, 20), indices)
    assert list(once) == [14, 10, 12]
    assert list(take_numbers(once, pa.array([2, 1], pa.int64()))) == [12, 10]
    assert list(take_numbers(once, indices.slice(1, 2))) == [14, 12]


# -- what may share an entry -----------------------------------------------------------


def value_of(message: bytes) -> bytes:
    """The first byte of the value of a message with nothing else."""
    return message[4 + message[3] :][:1]


def test_rows_are_cut_after_large_ones() -> None:
    """Each piece but the last ends with one; all rows are there, in order."""
    values = [b"1", b"2" * 50, b"3", b"4", b"5" * 50, b"6"]
    found = [
        ([value_of(message) for message in rows.messages.to_pylist()], ends_large)
        for rows, ends_large in up_to_large_rows(encoded(value=values), 40)
    ]
    assert found == [
        ([b"1", b"2"], True),
        ([b"3", b"4", b"5"], True),
        ([b"6"], False),
    ]


@pytest.mark.parametrize(("values", "is_large"), [([b"a", b"b"], False), ([b""], True)])
def test_rows_that_are_all_alike(values: list[bytes], is_large: bool) -> None:
    """One piece."""
    rows = encoded(value=values)
    ((piece, ends_large),) = up_to_large_rows(rows, 0 if is_large else 1000)
    assert (len(piece), ends_large) == (len(values), is_large)
    assert is_large or piece is rows


TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("times", "batching", "expected"),
    [
        ([None] * 4, True, [(1, 4, False)]),
        ([None] * 4, False, [(1, 4, True)]),
        ([5, None, 7, None], True, [(1, 2, False), (2, 3, True), (3, 4, False)]),
        ([None, 5, 6, 7], True, [(1, 2, True), (2, 3, True), (3, 4, True)]),
    ],
    ids=["none", "no batches", "in the middle", "all"],
)
def test_rows_with_a_time_of_delivery_go_alone(
    times: list[int | None], batching: bool, expected: list[tuple[int, int, bool]]
) -> None:
    """And without batches each row does."""
    rows = encoded(__deliverAtTime=pa.array(times, TIME))
    assert list(runs_of_entries(rows, 1, 4, batching=batching)) == expected
    assert not list(runs_of_entries(rows, 4, 4, batching=batching))


def test_keys_as_bytes() -> None:
    """Only they change, and only where there are any."""
    batch = pa.record_batch({"value": ["v"], "__key": ["\xe9"]})
    found = with_keys_as_bytes(batch)
    assert found.to_pydict() == {"value": ["v"], "__key": ["\xe9".encode()]}
    alone = batch.select(["value"])
    assert with_keys_as_bytes(alone) is alone
