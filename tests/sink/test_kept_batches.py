# SPDX-License-Identifier: Apache-2.0
"""RecordBatches that may have to be written again."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.sink.kept_batches import KeptBatches


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    """Numbered rows, so many to a batch."""
    numbers, columns = itertools.count(), pa.schema([("value", pa.binary())])
    return [
        pa.record_batch([[b"%d" % next(numbers) for _ in range(size)]], columns)
        for size in sizes
    ]


@given(
    sizes=st.lists(st.integers(0, 50), max_size=8),
    stops=st.lists(st.integers(0, 8), max_size=4),
    in_memory_bytes=st.integers(0, 2000),
)
def test_all_rows_each_time(
    sizes: list[int], stops: list[int], in_memory_bytes: int
) -> None:
    """However far the attempts before came, in memory or in a file."""
    rows = batches(sizes)
    kept = KeptBatches(iter(rows), in_memory_bytes)
    for stop in stops:
        assert list(itertools.islice(kept, stop)) == rows[:stop]
        kept = kept.again()
    assert list(kept) == rows
    kept.close()


def test_few_rows_need_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor may have no room for any."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    kept = KeptBatches(batches([5, 5]))
    assert len(list(kept)) == 2
    assert len(list(kept.again())) == 2
