# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.sink.numbering`; through entries: ``test_target``."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.errors import BadRowError
from pulsar_spark.sink.numbering import (
    MOST_ROWS,
    Numbering,
    last_micro_batches,
    producer_name,
    require_numbers,
)


def encoded(values: list[bytes]) -> EncodedRows:
    """Rows as the encoder of a task makes them."""
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    return RowEncoder(batch.schema).encode(batch)


@given(
    values=st.lists(st.binary(max_size=5), min_size=1, max_size=20),
    cuts=st.sets(st.integers(1, 19)),
    asked=st.sets(st.integers(0, 19)),
)
def test_an_id_depends_on_rows_alone(
    values: list[bytes], cuts: set[int], asked: set[int]
) -> None:
    """Neither on how they come, nor on which of them are asked for."""
    whole = Numbering("id", "t", 2, -1)
    whole.begin(encoded(values), range(len(values)), 0, len(values))
    wanted = list(whole)
    assert wanted == sorted(wanted)
    assert [one >> 16 for one in wanted] == [(2 << 31) + i for i in range(len(values))]
    one = Numbering("id", "t", 2, -1)
    bounds = sorted({0, len(values)} | {cut for cut in cuts if cut < len(values)})
    for start, end in itertools.pairwise(bounds):
        one.begin(encoded(values), range(len(values)), start, end)
        for row in sorted(asked):
            if start <= row < end:
                assert [one[row], one[row]] == [wanted[row]] * 2
        one.end()


def test_names() -> None:
    """One for each 65,536 micro-batches, so that a broker remembers few."""
    names = [producer_name("id", 3, number) for number in (0, 65_535, 65_536)]
    assert names == ["id-3", "id-3", "id-3.1"]


def test_the_most_rows() -> None:
    """All sequence ids are 64 bits with a sign."""
    require_numbers(MOST_ROWS)
    with pytest.raises(BadRowError, match="2,147,483,648 rows"):
        require_numbers(MOST_ROWS + 1)


def test_the_last_micro_batches_of_writes() -> None:
    """By the names and last ids of their producers; other producers do no harm."""
    last_ids = {
        producer_name(write, task, batch_id): (batch_id % 65_536 << 47) | row << 16
        for write, task, batch_id, row in [
            ("orders-a1", 0, 7, 5),
            ("orders-a1", 11, 8, 0),
            ("orders-a1", 12, 6, 99),
            ("orders-b2", 0, 70_000, 3),
            ("orders-b2", 1, 3, 3),
            ("daily.v-2", 0, 0, 0),
        ]
    }
    last_ids |= {"orders-a1-13": -1, "somebody": 1 << 60, "standalone-0-5": 12}
    assert last_micro_batches(last_ids) == {
        "orders-a1": 8,
        "orders-b2": 70_000,
        "daily.v-2": 0,
        "standalone-0": 0,
    }
