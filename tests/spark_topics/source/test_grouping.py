# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from itertools import accumulate

import pytest

from spark_topics.source.grouping import _RANGE_ENTRIES, group
from spark_topics.source.parts import RangeSize


def ranges_of(count: int) -> list[str]:
    """Return a range of each topic; what a range is, grouping does not ask."""
    return [f"topic {number}" for number in range(count)]


def grouped(
    entries: list[int],
    most: int | None,
    max_records: int | None = None,
    rows_per_entry: float = 1.0,
) -> list[list[int]]:
    """The entries of the ranges of each task. Together they are all, in order."""
    ranges = ranges_of(len(entries))
    groups = group(
        ranges,
        [RangeSize(count, rows_per_entry) for count in entries],
        max_partitions=most,
        max_records=max_records,
    )
    assert [range_ for some in groups for range_ in some] == ranges
    ends = list(accumulate(map(len, groups)))
    return [entries[i - len(some) : i] for i, some in zip(ends, groups, strict=True)]


@pytest.mark.parametrize("most", [None, 3, 4, 1000])
def test_as_many_as_there_are(most: int | None) -> None:
    """Without a limit, or with one that is not reached, each range is a task."""
    assert grouped([1, 2, 3], most) == [[1], [2], [3]]
    assert grouped([], most) == []


@pytest.mark.parametrize(
    ("entries", "most", "found"),
    [
        ([10, 10, 10, 10], 2, [[10, 10], [10, 10]]),
        ([10, 10, 10, 10], 1, [[10, 10, 10, 10]]),
        ([10, 10, 10], 2, [[10, 10], [10]]),
        # What a range costs beside its entries counts, too.
        ([0, 0, 0, 0, 300], 2, [[0, 0, 0, 0], [300]]),
        ([900, 5, 5, 5, 300, 300, 5, 5], 3, [[900], [5, 5, 5, 300], [300, 5, 5]]),
        # One that is large by itself leaves no task without work.
        ([9000, 1, 1, 1], 3, [[9000], [1, 1], [1]]),
    ],
)
def test_even_shares(entries: list[int], most: int, found: list[list[int]]) -> None:
    """The largest task is as small as it can be."""
    assert grouped(entries, most) == found


@pytest.mark.parametrize(
    ("most", "max_records", "found"),
    [
        (1, 20, [[10, 10], [10, 10], [10]]),
        (1, 5, [[10]] * 5),
        (2, 1000, [[10, 10, 10], [10, 10]]),
        (4, 20, [[10, 10], [10], [10], [10]]),
    ],
)
def test_max_records_comes_first(
    most: int, max_records: int, found: list[list[int]]
) -> None:
    """No task has more rows than wanted because ranges are put together."""
    assert grouped([10] * 5, most, max_records) == found


def test_rows_are_counted() -> None:
    """Not entries, where the rows of an entry are known."""
    assert grouped([10] * 4, 1, 40, 2.0) == [[10, 10], [10, 10]]


@pytest.mark.parametrize("seed", range(20))
def test_no_better_cuts(seed: int) -> None:
    """Compared with all ways to cut a few ranges; never more tasks than wanted."""
    rng = random.Random(seed)
    entries = [rng.choice([0, 1, 50, 2000]) + rng.randrange(300) for _ in range(9)]
    most = rng.randrange(1, 9)
    found = grouped(entries, most)
    assert len(found) == most

    def load(some: list[int]) -> int:
        return sum(some) + len(some) * _RANGE_ENTRIES

    def best(start: int, tasks: int) -> int:
        if tasks == 1:
            return load(entries[start:])
        return min(
            max(load(entries[start:end]), best(end, tasks - 1))
            for end in range(start + 1, len(entries) - tasks + 2)
        )

    assert max(map(load, found)) == best(0, most)


def test_many_ranges() -> None:
    """A plan of a hundred thousand is cut, and each task has its share."""
    found = grouped([10] * 100_000, 200)
    assert {len(some) for some in found} == {500}
