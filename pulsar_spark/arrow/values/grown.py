# SPDX-License-Identifier: Apache-2.0
"""Columns filled by the kernel as Arrow arrays, and Arrow arrays for the kernel."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.loops import avro

_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def view(values: pa.BinaryArray) -> tuple[memoryview, memoryview]:
    """Return the bytes of values, the offset of each value, and the end of the last."""
    _, offsets, data = values.buffers()
    if not len(values):
        return memoryview(b""), memoryview(bytes(4)).cast("i")
    places = memoryview(offsets).cast("B").cast("i")
    places = places[values.offset : values.offset + len(values) + 1]
    return memoryview(data or b"").cast("B"), places


def is_null(values: pa.Array) -> memoryview | None:
    """Return a byte for each value, 1 if it is NULL; None where none is."""
    if not values.null_count:
        return None
    return memoryview(values.is_null().cast(pa.uint8()).buffers()[1]).cast("B")


def array(column: avro.Column, field: pa.Field) -> pa.Array:
    """Return a column as an array, which views the column's memory where possible.

    Args:
        column: The column.
        field: Its type. If it cannot be NULL, no row says it is: what belongs to a
            NULL of a struct around it is 0 or empty.
    """
    valid = None
    if column.has_nulls and field.nullable:
        valid = bits(column.nulls, column.rows, inverted=True)
    return _array(column, field.type, valid)


def _array(
    column: avro.Column, type_: pa.DataType, valid: pa.Buffer | None
) -> pa.Array:
    rows = column.rows
    if isinstance(column, avro.StructColumn):
        children = [
            array(child, type_.field(index))
            for index, child in enumerate(column.children)
        ]
        return pa.Array.from_buffers(type_, rows, [valid], children=children)
    if isinstance(column, avro.ListColumn):
        return _lists(column, type_, valid)
    if isinstance(column, avro.BytesColumn):
        small = _LARGE.get(type_, type_)
        buffers = [valid, _buffer(column.offsets), _buffer(column.data)]
        return pa.Array.from_buffers(small, rows, buffers).cast(type_)
    if isinstance(column, avro.FixedColumn):
        data = bits(column.data, rows) if column.width == 1 else _buffer(column.data)
        return pa.Array.from_buffers(type_, rows, [valid, data])
    assert isinstance(column, avro.LongColumn)
    numbers = pa.Array.from_buffers(pa.int64(), rows, [valid, _buffer(column.values)])
    if type_ == pa.time64("ns"):
        return numbers.view(pa.time64("us")).cast(type_)
    if type_.bit_width == 64:
        return numbers.view(type_)
    if pa.types.is_date32(type_):
        return numbers.cast(pa.int32(), safe=False).view(type_)
    return numbers.cast(type_, safe=False)  # the kernel knows the limits


def _lists(
    column: avro.ListColumn, type_: pa.DataType, valid: pa.Buffer | None
) -> pa.Array:
    """Return lists, or maps in which the last value of a repeated key counts."""
    if not pa.types.is_map(type_):
        items = array(column.items, type_.value_field)
        buffers = [valid, _buffer(column.offsets)]
        return pa.Array.from_buffers(type_, column.rows, buffers, children=[items])
    pair = pa.struct([type_.key_field, type_.item_field])
    items = array(column.items, pa.field("entries", pair, nullable=False))
    offsets = _buffer(column.offsets)
    if column.has_twins:
        items, offsets = _without_twins(items, column)
    buffers = [valid, offsets]
    return pa.Array.from_buffers(type_, column.rows, buffers, children=[items])


def _without_twins(
    items: pa.StructArray, column: avro.ListColumn
) -> tuple[pa.StructArray, pa.Buffer]:
    """Return items and offsets; a repeated key keeps its first place and last value."""
    bounds = memoryview(column.offsets)[: column.rows + 1].tolist()
    keys = items.field(0).to_pylist()
    kept: list[int] = []
    offsets = [0]
    for begin, end in itertools.pairwise(bounds):
        kept += {keys[index]: index for index in range(begin, end)}.values()
        offsets.append(len(kept))
    return items.take(pa.array(kept, pa.int64())), pa.array(
        offsets, pa.int32()
    ).buffers()[1]


def bits(data: Any, rows: int, inverted: bool = False) -> pa.Buffer:
    """Return a byte a row, 0 or 1, as a bit a row."""
    numbers = pa.Array.from_buffers(pa.uint8(), rows, [None, _buffer(data)])
    flags = numbers.cast(pa.bool_())
    return (pc.invert(flags) if inverted else flags).buffers()[1]


def _buffer(column: Any) -> pa.Buffer:
    return pa.py_buffer(memoryview(column))
