# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_topics.source.parts import cut_numbers


@given(st.integers(-5, 2**62), st.integers(1, 1000), st.data())
def test_parts_are_the_range(first: int, count: int, data: st.DataObject) -> None:
    """In order, without a gap, and of nearly one size."""
    parts = data.draw(st.integers(1, count))
    found = cut_numbers(first, first + count, parts)
    assert len(found) == parts
    assert [one[0] for one in found] == [first, *(one[1] for one in found[:-1])]
    assert found[-1][1] == first + count
    sizes = [end - start for start, end in found]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
