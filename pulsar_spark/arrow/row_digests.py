# SPDX-License-Identifier: Apache-2.0
"""A digest of rows in which their order does not count.

Numbers with a fraction are left out: a sum of them behind a shuffle differs in its last
digits when Spark makes the same row again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.loops import digests

_KINDS = pa.types
_NOTHING = memoryview(b"")

#: A row takes microseconds where the loops are not compiled, as long as its write.
HAS_DIGESTS = digests.KERNEL == "compiled"


def digest_of(columns: Sequence[pa.Array], rows: int) -> int:
    """Return the sum of the digests of rows: 64 bits.

    Args:
        columns: The columns of the rows.
        rows: How many there are.
    """
    return digests.total(_digests(columns, rows))


def _digests(columns: Sequence[pa.Array], rows: int) -> memoryview:
    digests = memoryview(bytearray(8 * rows)).cast("Q") if rows else _NOTHING.cast("Q")
    if rows:
        for column in columns:
            _add(digests, column)
    return digests


def _add(found: memoryview, column: pa.Array) -> None:
    """Add a column to the digests of its rows."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.type.storage_type
    if _KINDS.is_floating(kind) or _KINDS.is_null(kind):
        return
    if _KINDS.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif _KINDS.is_string(kind) or _KINDS.is_binary(kind):
        column = column.cast(pa.large_binary())
    validity, first_bit = _validity(column)
    if _KINDS.is_struct(kind):
        digests.add_fixed(found, validity, first_bit, _NOTHING, 0)
        for child in column.flatten():
            _add(found, child)
    elif _KINDS.is_list(kind) or _KINDS.is_large_list(kind) or _KINDS.is_map(kind):
        _add_items(found, column, validity, first_bit)
    elif _KINDS.is_large_binary(column.type) or _KINDS.is_large_string(column.type):
        _, offsets, data = column.buffers()
        first = memoryview(offsets).cast("B").cast("q")[column.offset :]
        digests.add_bytes(found, validity, first_bit, first, _bytes(data))
    else:
        width = column.type.bit_width // 8
        data = _bytes(column.buffers()[1])[column.offset * width :]
        digests.add_fixed(found, validity, first_bit, data, width)


def _add_items(
    found: memoryview, column: pa.Array, validity: memoryview, first_bit: int
) -> None:
    offsets = column.offsets.cast(pa.int64())
    first = offsets[0].as_py()
    count = offsets[-1].as_py() - first
    if _KINDS.is_map(column.type):
        parts = [column.keys, column.items]
    else:
        parts = [column.values]
    items = _digests([part.slice(first, count) for part in parts], count)
    places = memoryview(offsets.buffers()[1]).cast("B").cast("q")[offsets.offset :]
    if first:
        places = memoryview(bytes(pa.compute.subtract(offsets, first).buffers()[1]))
        places = places.cast("q")
    digests.add_items(found, validity, first_bit, places, items)


def _validity(column: pa.Array) -> tuple[memoryview, int]:
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return _NOTHING, 0
    return memoryview(bits).cast("B"), column.offset


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return _NOTHING if buffer is None else memoryview(buffer).cast("B")
