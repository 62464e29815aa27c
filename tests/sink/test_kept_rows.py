# SPDX-License-Identifier: Apache-2.0
"""Rows on their way to a segment."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.sink.kept_rows import Kept, KeptRows


@given(st.data())
def test_what_is_left(data: st.DataObject) -> None:
    """All that was taken but the first ones, whenever these were stored."""
    kept, taken, stored = KeptRows(), list[int](), 0
    for _ in range(data.draw(st.integers(0, 6))):
        count = data.draw(st.integers(1, 20))
        first = len(taken)
        numbers = range(first, first + count)
        rows = EncodedRows(pa.array([b"%d" % n for n in numbers], pa.large_binary()))
        start = data.draw(st.integers(0, count - 1))
        end = data.draw(st.integers(start + 1, count))
        kept.keep(Kept(rows, numbers, start, end), stored)
        taken += numbers[start:end]
        stored = data.draw(st.integers(stored, len(taken)))
    left = [
        (int(value), number)
        for rows, numbers in kept.left(stored)
        for value, number in zip(rows.messages.to_pylist(), numbers, strict=True)
    ]
    assert [number for _, number in left] == taken[stored:]
    assert all(value == number for value, number in left)
