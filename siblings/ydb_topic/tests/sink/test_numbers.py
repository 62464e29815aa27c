# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ydb_spark.errors import BadRowError, IdempotenceError
from ydb_spark.sink.numbers import producer_of, require_not_later, seq_no_of

BATCH_IDS = st.integers(0, (1 << 31) - 1)
ROWS = st.integers(0, (1 << 32) - 3)


@given(BATCH_IDS, ROWS, BATCH_IDS, ROWS)
def test_numbers_rise_as_rows_do(batch: int, row: int, batch_2: int, row_2: int):
    """First by micro-batch, then by row; from 1, and within what the service takes."""
    one, other = seq_no_of(batch, row), seq_no_of(batch_2, row_2)
    assert (one < other) is ((batch, row) < (batch_2, row_2))
    assert 1 <= one < 1 << 63
    if batch < batch_2:
        require_not_later(one, batch_2, "p")
    if batch > batch_2:
        with pytest.raises(IdempotenceError):
            require_not_later(one, batch_2, "p")


@pytest.mark.parametrize(("batch", "row"), [(1 << 31, 0), (-1, 0), (0, (1 << 32) - 2)])
def test_no_number(batch: int, row: int):
    """What has none is an error, not another row's number."""
    with pytest.raises(BadRowError):
        seq_no_of(batch, row)


def test_producers():
    """Of each task, and of each partition that rows name."""
    names = {producer_of("q", n, p) for n in range(12) for p in (None, 0, 1, 11)}
    assert len(names) == 48
