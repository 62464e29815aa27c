# SPDX-License-Identifier: Apache-2.0
"""Rows on their way to a segment of a scalable topic, which may be sealed at any time.

The producer of a segment stores rows in the order in which they were taken. So a number
of stored rows tells which of them a sealed segment does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.sink.grouping import take_numbers


class KeptRows:
    """The rows that a segment was to take and may not have."""

    def __init__(self) -> None:
        self._kept: deque[Kept] = deque()
        self._forgotten = 0  # stored ones that are kept no more

    def keep(self, kept: Kept, stored: int) -> None:
        """Keep rows that the segment is to take next.

        Args:
            kept: The rows.
            stored: How many rows the segment has so far.
        """
        while self._kept and self._kept[0].size <= stored - self._forgotten:
            self._forgotten += self._kept.popleft().size
        self._kept.append(kept)

    def left(self, stored: int) -> Iterator[tuple[EncodedRows, Sequence[int]]]:
        """Yield the rows that the segment does not have, with their numbers.

        Args:
            stored: How many rows the segment has: the first ones.
        """
        skip = stored - self._forgotten
        for rows, numbers, start, end in self._kept:
            first = min(end, start + skip)
            skip -= first - start
            if first < end:
                indices = pa.array(range(first, end), pa.int64())
                yield rows.take(indices), take_numbers(numbers, indices)


class Kept(NamedTuple):
    """Some rows.

    Attributes:
        rows: Encoded rows.
        numbers: The number of each.
        start: The first that is meant.
        end: The first that is not.
    """

    rows: EncodedRows
    numbers: Sequence[int]
    start: int
    end: int

    @property
    def size(self) -> int:
        """Return how many there are."""
        return self.end - self.start
