# SPDX-License-Identifier: Apache-2.0
"""In how many parts ranges are cut, so that tasks are many, or none too large: pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Parts of a plan that ``max_records`` asks for, at most. Spark's driver holds a task
#: for each, and the row counts in entries may be wrong.
MAX_PARTS = 100_000


@dataclass(frozen=True, slots=True)
class RangeSize:
    """How much a range holds.

    Attributes:
        entries: Its entries.
        rows_per_entry: Rows of an entry, most often; less than 1 for chunks.
    """

    entries: int
    rows_per_entry: float = 1.0

    @property
    def rows(self) -> float:
        """Return the estimated number of rows."""
        return self.entries * self.rows_per_entry

    def cut(self, parts: int) -> list[RangeSize]:
        """Return the sizes of the parts that such a range is cut into."""
        ends = [self.entries * i // parts for i in range(parts + 1)]
        return [
            RangeSize(end - start, self.rows_per_entry) for start, end in pairwise(ends)
        ]


def count_parts(
    sizes: Sequence[RangeSize],
    *,
    min_partitions: int | None,
    max_records: int | None,
) -> list[int]:
    """Return the number of parts for each range: between 1 and its entries.

    First each range is cut so that no part has more than ``max_records`` rows, as
    estimated from its rows per entry, but into ``MAX_PARTS`` in total at most. Then the
    one with the largest parts gets one more until there are ``min_partitions`` in
    total. Spark's KafkaOffsetRangeCalculator does the same, except for its rounding:
    here the total is met if there are enough entries.

    Args:
        sizes: Of the ranges.
        min_partitions: Parts wanted in total; None for any number.
        max_records: Rows wanted in a part at most, at least 1; None for any number.
    """
    parts = [1] * len(sizes)
    if max_records is not None:
        for i, size in enumerate(sizes):
            most = max(1, math.floor(max_records / size.rows_per_entry))
            parts[i] = max(1, math.ceil(size.entries / most))
        if (total := sum(parts)) > MAX_PARTS:
            parts = [max(1, count * MAX_PARTS // total) for count in parts]
    divisible = [
        (-size.rows / parts[i], i)
        for i, size in enumerate(sizes)
        if parts[i] < size.entries
    ]
    heapq.heapify(divisible)
    for _ in range((min_partitions or 0) - sum(parts)):
        if not divisible:
            break
        _, i = heapq.heappop(divisible)
        parts[i] += 1
        if parts[i] < sizes[i].entries:
            heapq.heappush(divisible, (-sizes[i].rows / parts[i], i))
    return parts


def cut_numbers(first: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut a range of numbers into parts whose sizes differ by at most 1.

    Args:
        first: Its first number.
        end: The number after its last one.
        parts: At least 1, and no more than there are numbers.

    Returns:
        The same of each part, in order.
    """
    count = end - first
    return [*pairwise(first + count * i // parts for i in range(parts + 1))]
