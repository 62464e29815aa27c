# SPDX-License-Identifier: Apache-2.0
"""Ranges are cut into as many parts as are wanted, and none of them is empty."""

from __future__ import annotations

import pytest

from spark_topics.options.offsets import Edge, Offsets
from tubemq_spark.errors import DataLossError
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import split_ranges
from tubemq_spark.source.ranges import Edges, PartitionRange, chosen_end, split
from tubemq_spark.wire.metadata import Partition


def range_of(start: int, end: int, partition_id: int = 0) -> PartitionRange:
    partition = Partition("t", 1, partition_id)
    return PartitionRange(
        partition, start * ENTRY_BYTES, end * ENTRY_BYTES, "b:8123", True
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 10])
def test_parts_follow_each_other_and_differ_by_one_message(parts: int):
    whole = range_of(5, 15)
    found = split(whole, parts)
    assert len(found) == parts
    ends = [one.end for one in found]
    assert [one.start for one in found] == [whole.start, *ends[:-1]]
    assert ends[-1] == whole.end
    assert {one.start % ENTRY_BYTES for one in found} == {0}
    sizes = {one.entries for one in found}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        (None, {0: 1, 1: 1, 2: 1}),
        (2, {0: 1, 1: 1, 2: 1}),
        (4, {0: 2, 1: 1, 2: 1}),
        (7, {0: 4, 1: 2, 2: 1}),
        (1000, {0: 40, 1: 20, 2: 3}),
    ],
)
def test_the_largest_are_split_until_there_are_enough(
    wanted: int | None, parts: dict[int, int]
):
    ranges = [range_of(0, 40, 0), range_of(10, 30, 1), range_of(0, 3, 2)]
    found = split_ranges(ranges, wanted)
    counts = dict.fromkeys(parts, 0)
    for one in found:
        counts[one.partition.partition_id] += 1
    assert counts == parts
    assert sum(one.entries for one in found) == 63


@pytest.mark.parametrize("end", [10, 50, 80])
def test_an_end_before_all_that_is_left_is_a_loss(end: int):
    """Where the read begins with the first message; else its start tells."""
    partition = Partition("t", 1, 0)
    ending = Offsets(Edge.LATEST, {partition: end * ENTRY_BYTES})
    edges = Edges(80 * ENTRY_BYTES, 100 * ENTRY_BYTES)

    def chosen(starting: Offsets[Partition], *, fails: bool = True) -> int:
        return chosen_end(partition, starting, ending, edges, fail_on_data_loss=fails)

    with pytest.raises(DataLossError, match="begins at 2240"):
        chosen(Offsets(Edge.EARLIEST))
    starts = (Edge.LATEST, end * ENTRY_BYTES)
    for starting in (Offsets(Edge.EARLIEST, {partition: start}) for start in starts):
        assert chosen(starting) == end * ENTRY_BYTES
    assert chosen(Offsets(Edge.EARLIEST), fails=False) == end * ENTRY_BYTES


@pytest.mark.parametrize(("end", "begin"), [(0, 0), (0, 80), (81, 80)])
def test_an_end_behind_the_first_message_that_is_left(end: int, begin: int):
    """Nothing was wanted, or there is something."""
    partition = Partition("t", 1, 0)
    ending = Offsets(Edge.LATEST, {partition: end * ENTRY_BYTES})
    edges = Edges(begin * ENTRY_BYTES, 100 * ENTRY_BYTES)
    starting: Offsets[Partition] = Offsets(Edge.EARLIEST)
    found = chosen_end(partition, starting, ending, edges, fail_on_data_loss=True)
    assert found == end * ENTRY_BYTES


def test_nothing_is_split_into_nothing():
    assert split_ranges([], 5) == []
