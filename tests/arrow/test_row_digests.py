# SPDX-License-Identifier: Apache-2.0
"""A digest of rows: what changes it, and what does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.row_digests import digest_of

TYPE = pa.schema(
    [
        ("number", pa.int64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("items", pa.list_(pa.list_(pa.string()))),
        ("map", pa.map_(pa.string(), pa.int16())),
        ("amount", pa.decimal128(20, 2)),
    ]
)
TEXTS = st.none() | st.text(max_size=20)
ROWS = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "text": TEXTS,
        "data": st.none() | st.binary(max_size=40),
        "pair": st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | st.integers(-9, 9), "b": TEXTS},
        ),
        "items": st.none()
        | st.lists(st.none() | st.lists(TEXTS, max_size=3), max_size=3),
        "map": st.none()
        | st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9)).map(
            lambda entries: list(entries.items())
        ),
        "amount": st.none() | st.sampled_from([Decimal("1.50"), Decimal("-2.00")]),
    }
)


def digest(rows: list[dict[str, Any]], before: int = 0, after: int = 0) -> int:
    """Of rows that are a slice of others."""
    batch = pa.RecordBatch.from_pylist([*rows[:before], *rows, *rows[:after]], TYPE)
    batch = batch.slice(len(rows[:before]), len(rows))
    return digest_of(batch.columns, len(rows))


@given(rows=st.lists(ROWS, max_size=6), random=st.randoms(), cut=st.integers(0, 6))
def test_order_and_batches_do_not_count(
    rows: list[dict[str, Any]], random: Any, cut: int
) -> None:
    """Nor where in its buffers a column begins."""
    expected = digest(rows)
    assert digest(rows, before=3, after=2) == expected
    assert (digest(rows[:cut]) + digest(rows[cut:])) % 2**64 == expected
    shuffled = random.sample(rows, len(rows))
    assert digest(shuffled) == expected


@given(rows=st.lists(ROWS, min_size=1, max_size=4), other=ROWS)
def test_other_rows_have_another_one(
    rows: list[dict[str, Any]], other: dict[str, Any]
) -> None:
    """Whatever the column in which they differ."""
    for name, value in other.items():
        changed = [{**rows[0], name: value}, *rows[1:]]
        assert (digest(changed) == digest(rows)) == (changed == rows)


def test_cells_that_change_places() -> None:
    """Between rows, and between columns."""
    rows = [("a", "b"), ("b", "a"), (None, "a"), ("a", None)]
    digests = set()
    for first, second in rows:
        columns = [pa.array([first], pa.string()), pa.array([second], pa.string())]
        digests.add(digest_of(columns, 1))
    assert len(digests) == len(rows)
    one = [pa.array(["a", "b"]), pa.array([1, 2])]
    crossed = [pa.array(["a", "b"]), pa.array([2, 1])]
    assert digest_of(one, 2) != digest_of(crossed, 2)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
    ],
)
def test_forms_of_a_type(kind: pa.DataType, other: pa.DataType) -> None:
    """Spark's settings choose between them."""
    values = [["x", "y"], [], None] if pa.types.is_nested(kind) else ["x", "", None]
    arrays = [pa.array(values, one) for one in (kind, other)]
    found = {digest_of([one], 3) for one in arrays}
    assert len(found) == 1


def test_times_count_and_fractions_do_not() -> None:
    """A sum of fractions has other last digits when it is made again."""
    times = [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)]
    kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()]
    for kind in kinds:
        first, second = (digest_of([pa.array([t], kind)], 1) for t in times)
        assert first != second
    assert digest_of([pa.array([0.1])], 1) == digest_of([pa.array([0.3])], 1)
    assert digest_of([pa.nulls(1)], 1) == digest_of([], 1)
    assert digest_of([], 0) == 0
