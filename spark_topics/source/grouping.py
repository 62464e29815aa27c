# SPDX-License-Identifier: Apache-2.0
"""Grouping of ranges into tasks; pure.

The ranges stay in their order, and a task has ranges that follow each other, so that
the same ranges always make the same tasks. Where the cuts are best is found by trying::

    entries     900   5   5   5   300   300   5   5
    3 tasks    [900] [5   5   5   300] [300   5   5]     none needs more than 900
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from spark_topics.source.parts import RangeSize

#: A range of a topic partition, whatever it is made of.
R = TypeVar("R")

#: What it costs to begin and to end a range, in entries: 2 ms beside some 20 µs each.
_RANGE_ENTRIES = 100


def group(
    ranges: Sequence[R],
    sizes: Sequence[RangeSize],
    *,
    max_partitions: int | None,
    max_records: int | None,
) -> list[tuple[R, ...]]:
    """Return the ranges of each task, in order.

    Args:
        ranges: All ranges, in order.
        sizes: Of the ranges.
        max_partitions: Tasks wanted at most; None for one for each range.
        max_records: Rows wanted in a task at most, which comes first; None for any
            number. A range that has more on its own is not divided here.
    """
    if max_partitions is None or max_partitions >= len(ranges):
        return [(range_,) for range_ in ranges]
    loads = [size.entries + _RANGE_ENTRIES for size in sizes]
    rows = [size.rows for size in sizes]
    most_rows = math.inf if max_records is None else max_records

    def cuts(capacity: int, at_least: int = 1) -> Iterator[int]:
        """Yield where tasks begin that take as much as ``capacity`` allows."""
        load, load_rows, tasks = 0, 0.0, 1
        yield 0
        for i in range(len(ranges)):
            load += loads[i]
            load_rows += rows[i]
            is_full = load > capacity or load_rows > most_rows
            if i and (is_full or len(ranges) - i <= at_least - tasks):
                load, load_rows, tasks = loads[i], rows[i], tasks + 1
                yield i

    # The smallest capacity that will do; all of it, where rows are what makes more.
    low, high = max(loads), sum(loads)
    while low < high:
        middle = (low + high) // 2
        if sum(1 for _ in cuts(middle)) <= max_partitions:
            high = middle
        else:
            low = middle + 1
    bounds = [*cuts(low, max_partitions), len(ranges)]
    return [tuple(ranges[start:end]) for start, end in pairwise(bounds)]
