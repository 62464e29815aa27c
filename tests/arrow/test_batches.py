"""Where rows are cut into batches, whatever calls they come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.batches import Batch, BatchCutter
from pulsar_spark.arrow.encode import EncodedRows, RowEncoder

Keys = Sequence[str | bytes | None]


def rows_of(sizes: Sequence[int], keys: Keys | None = None) -> EncodedRows:
    """Rows whose messages have these sizes, and these keys."""
    messages = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    return EncodedRows(
        pa.array(messages, pa.large_binary()),
        keys=None if keys is None else pa.array(keys, pa.large_string()),
    )


def cut(
    cutter: BatchCutter, rows: EncodedRows, ends: Iterable[int] = (), first: int = 0
) -> list[Batch]:
    """The batches of rows that come in several calls; ``first`` is number of the first.

    What a batch holds is copied at once, as the sink does.
    """
    batches = []
    numbers = range(first, first + len(rows))
    start = 0
    for end in [*ends, len(rows)]:
        batches += [copied(b) for b in cutter.add(rows, numbers, start, end)]
        start = end
    return batches + [copied(b) for b in cutter.finish()]


def copied(batch: Batch) -> Batch:
    """The same, free of the rows."""
    return batch._replace(payload=bytes(batch.payload))


def shape(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """Rows and bytes of each."""
    return [(batch.rows, len(batch.payload)) for batch in batches]


def test_by_rows():
    """A batch is closed by its last row, not by the first one that has no place."""
    cutter = BatchCutter(3, 1000)
    rows = rows_of([10] * 7)
    assert [b.rows for b in cutter.add(rows, range(7), 0, 6)] == [3, 3]
    assert cutter.rows == 0
    assert list(cutter.add(rows, range(7), 6, 7)) == []
    assert cutter.rows == 1
    assert [b.rows for b in cutter.finish()] == [1]
    assert list(cutter.finish()) == []


def test_by_bytes():
    """As many rows as have room; exactly full is not too full."""
    cutter = BatchCutter(1000, 100)
    assert shape(cut(cutter, rows_of([50, 50, 1, 98, 1, 1]))) == [
        (2, 100),
        (3, 100),
        (1, 1),
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_row_that_is_too_large(place: int):
    """It goes alone, with nothing before it and nothing behind it."""
    sizes = [10, 10]
    sizes.insert(place, 101)
    expected = [(1, 101)]
    expected[:0] = [(place, 10 * place)] if place else []
    expected += [(2 - place, 10 * (2 - place))] if place < 2 else []
    assert shape(cut(BatchCutter(1000, 100), rows_of(sizes))) == expected


def test_numbers():
    """First and last are the numbers that the rows were given, gaps and all."""
    cutter = BatchCutter(2, 1000)
    found = list(cutter.add(rows_of([5] * 5), [3, 7, 8, 20, 21], 1, 5))
    assert [(b.first_row, b.last_row) for b in found] == [(7, 8), (20, 21)]


def test_keys_of_the_first_row():
    """Of each batch; where a row has none, its batch has none, whatever follows."""
    rows = rows_of([5] * 6, ["a", "b", None, "c", "", "d"])
    found = cut(BatchCutter(2, 1000), rows)
    assert [b.partition_key for b in found] == ["a", None, ""]
    assert not any(b.key_is_base64 for b in found)
    assert {b.ordering_key for b in found} == {None}


def test_binary_keys():
    """A key that is base64 is told; a row without key has nothing to tell."""
    schema = pa.schema(
        [("value", pa.binary()), ("__key", pa.binary()), ("__orderingKey", pa.string())]
    )
    columns = [[b"v"] * 3, [b"\x00\xff", None, b"k"], ["o", None, ""]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)],
        schema=schema,
    )
    found = cut(BatchCutter(1, 1000), RowEncoder(schema).encode(batch))
    assert [b.partition_key for b in found] == ["AP8=", None, "aw=="]
    assert [b.key_is_base64 for b in found] == [True, False, True]
    assert [b.ordering_key for b in found] == [b"o", None, b""]


def test_what_is_left_is_a_copy():
    """Rows that wait for others do not keep the whole RecordBatch in memory."""
    cutter = BatchCutter(1000, 1000)
    rows = rows_of([10] * 5)
    assert list(cutter.add(rows, range(5), 0, 3)) == []
    assert all(isinstance(part, bytes) for part in cutter._parts)


@st.composite
def grouped_rows(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Sizes of rows, and where calls end."""
    sizes = draw(st.lists(st.integers(1, 30) | st.integers(80, 120), max_size=40))
    ends = draw(st.lists(st.integers(0, len(sizes)), max_size=6))
    return sizes, sorted(ends)


@settings(deadline=None)
@given(grouped_rows(), st.integers(1, 12), st.integers(1, 110), st.integers(0, 10**12))
def test_cuts(case: tuple[list[int], list[int]], rows: int, size: int, first: int):
    """Nothing is lost or moved, limits are kept, and only the rows decide.

    A batch is as large as it may be: the next row has no place in it.
    """
    sizes, ends = case
    encoded = rows_of(sizes, [str(i) for i in range(len(sizes))])
    found = cut(BatchCutter(rows, size), encoded, ends, first)
    assert b"".join(b.payload for b in found) == b"".join(encoded.messages.to_pylist())
    row = 0
    for number, batch in enumerate(found):
        assert (batch.first_row, batch.last_row) == (
            first + row,
            first + row + batch.rows - 1,
        )
        assert batch.partition_key == str(row)
        assert 1 <= batch.rows <= rows
        assert len(batch.payload) <= size or batch.rows == 1
        row += batch.rows
        if number < len(found) - 1:
            assert batch.rows == rows or len(batch.payload) + sizes[row] > size
    assert row == len(sizes)
    assert found == cut(BatchCutter(rows, size), encoded, (), first)
    # RecordBatches of their own, as tasks get them, are cut alike.
    cutter = BatchCutter(rows, size)
    apart = []
    for start, end in zip([0, *ends], [*ends, len(sizes)], strict=True):
        part = encoded.take(pa.array(range(start, end), pa.int64()))
        numbers = range(first + start, first + end)
        apart += [copied(b) for b in cutter.add(part, numbers, 0, len(part))]
    assert [*apart, *map(copied, cutter.finish())] == found
