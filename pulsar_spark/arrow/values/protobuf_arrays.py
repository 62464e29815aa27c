# SPDX-License-Identifier: Apache-2.0
"""Columns that the loop over protobuf has filled, as arrays of the types wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.loops.protobuf_values import Column, Table


class Filled:
    """The table of a run that has been read.

    Args:
        table: The table.
        data: The bytes of the values.
        count: How many values there were.
        has_nulls: Whether some of them were null.
    """

    def __init__(
        self, table: Table, data: memoryview, count: int, has_nulls: bool
    ) -> None:
        self._table = table
        self._data = data
        self.count = count
        self.top_validity = (
            _bits(table.valid, count) if has_nulls or table.bad else None
        )

    def rows(self, level: int) -> int:
        """Return how many rows a level has."""
        return self._table.levels[level].rows

    def column(self, place: int) -> Column:
        """Return a column of the table."""
        return self._table.columns[place]

    def texts(self, place: int, rows: int) -> list[pa.Buffer]:
        """Return the buffers of a column of bytes, but for its validity."""
        column = self.column(place)
        parts = self._table.texts(self._data, column, rows)
        return [_buffer(part) for part in parts]

    def validity(self, place: int, level: int, rows: int) -> pa.Buffer | None:
        """Return which rows a column has; None for all."""
        column = self.column(place)
        if column.has_presence:
            return _bits(column.valid, rows)
        return self.top_validity if level == 0 else None


@dataclass(frozen=True)
class Maker(ABC):
    """Makes the array of a column.

    Attributes:
        type: The array's.
        place: Of its column in the table, -1 for none.
        level: That of its rows.
    """

    type: pa.DataType
    place: int
    level: int

    @abstractmethod
    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""


@dataclass(frozen=True)
class Plain(Maker):
    """Numbers, texts and bytes.

    Attributes:
        held: The type that the table holds.
        default: What an absent one is; None for NULL, or where its bits are all 0.
    """

    held: pa.DataType
    default: Any = None

    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""
        rows = filled.rows(self.level)
        values = self._held(filled, rows)
        if self.default is not None and values.null_count:
            values = values.fill_null(pa.scalar(self.default, values.type))
            if self.level == 0 and filled.top_validity is not None:
                values = _with_validity(values, filled.top_validity)
        return values if values.type == self.type else values.cast(self.type)

    def _held(self, filled: Filled, rows: int) -> pa.Array:
        column = filled.column(self.place)
        validity = filled.validity(self.place, self.level, rows)
        if pa.types.is_boolean(self.held):
            buffers = [_bits(column.small, rows)]
        elif pa.types.is_string(self.held) or pa.types.is_binary(self.held):
            buffers = filled.texts(self.place, rows)
        elif self.held.bit_width == 32:
            buffers = [_buffer(column.words)]
        else:
            buffers = [_buffer(column.longs)]
        return pa.Array.from_buffers(self.held, rows, [validity, *buffers])


@dataclass(frozen=True)
class Symbols(Plain):
    """Numbers of an enum by their names; a number without a name by its digits.

    Attributes:
        names: The names by their numbers.
    """

    names: Mapping[int, str] = field(default_factory=dict)

    def _held(self, filled: Filled, rows: int) -> pa.Array:
        numbers = super()._held(filled, rows)
        by_number = pa.array(list(self.names), pa.int32())
        names = pa.array(list(self.names.values()), pa.string())
        texts = names.take(pc.index_in(numbers, by_number))
        if texts.null_count > numbers.null_count:
            texts = pc.coalesce(texts, numbers.cast(pa.string()))
        return texts


@dataclass(frozen=True)
class Struct(Maker):
    """Messages.

    Attributes:
        inner: Their fields.
    """

    inner: Sequence[Maker]

    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""
        rows = filled.rows(self.level)
        validity = None
        if self.place >= 0:
            validity = filled.validity(self.place, self.level, rows)
        children = [maker.array(filled) for maker in self.inner]
        return pa.Array.from_buffers(self.type, rows, [validity], children=children)


@dataclass(frozen=True)
class List(Maker):
    """Lists.

    Attributes:
        item: What they hold.
    """

    item: Maker

    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""
        rows = filled.rows(self.level)
        validity = filled.validity(self.place, self.level, rows)
        offsets = _buffer(filled.column(self.place).words)
        if pa.types.is_large_list(self.type):
            narrow = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets])
            offsets = narrow.cast(pa.int64()).buffers()[1]
        item = self.item.array(filled)
        return pa.Array.from_buffers(
            self.type, rows, [validity, offsets], children=[item]
        )


@dataclass(frozen=True)
class Map(Maker):
    """Maps, in which the last entry of a repeated key counts.

    Attributes:
        key: Of their entries.
        value: Of their entries.
    """

    key: Maker
    value: Maker

    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""
        rows = filled.rows(self.level)
        validity = filled.validity(self.place, self.level, rows)
        offsets = pa.Array.from_buffers(
            pa.int32(), rows + 1, [None, _buffer(filled.column(self.place).words)]
        )
        keys, items = self.key.array(filled), self.value.array(filled)
        kept = _last_of_each(keys, offsets)
        if kept is not None:
            offsets = _counted(kept, offsets)
            keys, items = keys.filter(kept), items.filter(kept)
        entries = pa.Array.from_buffers(
            pa.struct([self.type.key_field, self.type.item_field]),
            len(keys),
            [None],
            children=[keys, items],
        )
        return pa.Array.from_buffers(
            self.type, rows, [validity, offsets.buffers()[1]], children=[entries]
        )


@dataclass(frozen=True)
class Absent(Maker):
    """What the values were written without.

    Attributes:
        default: The value in each row; None for NULL.
        is_empty: Whether it is an empty list or map instead.
    """

    default: Any = None
    is_empty: bool = False

    def array(self, filled: Filled) -> pa.Array:
        """Return the array."""
        rows = filled.rows(self.level)
        if self.is_empty:
            return pa.nulls(rows, self.type).fill_null(pa.scalar([], self.type))
        if self.default is None:
            return pa.nulls(rows, self.type)
        return pa.repeat(pa.scalar(self.default, self.type), rows)


def _last_of_each(keys: pa.Array, offsets: pa.Int32Array) -> pa.BooleanArray | None:
    """Return which entries are the last of their key in their map; None for all."""
    rows = len(offsets) - 1
    lists = pa.Array.from_buffers(
        pa.list_(keys.type), rows, [None, offsets.buffers()[1]], children=[keys]
    )
    if (pc.max(lists.value_lengths()).as_py() or 0) < 2:
        return None
    codes = keys.dictionary_encode()
    parents = pc.multiply(pc.list_parent_indices(lists), len(codes.dictionary))
    ids = pc.add(parents, codes.indices.cast(pa.int64()))
    if pc.count_distinct(ids).as_py() == len(ids):
        return None
    numbers = pa.array(range(len(ids)), pa.int64())
    table = pa.table({"id": ids, "number": numbers})
    last = table.group_by("id").aggregate([("number", "max")])["number_max"]
    return pc.is_in(numbers, last.combine_chunks())


def _counted(kept: pa.BooleanArray, offsets: pa.Int32Array) -> pa.Int32Array:
    """Return the offsets of lists of which only some items are kept."""
    counts = pc.cumulative_sum(kept.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), counts]).take(offsets)


def _buffer(column: memoryview) -> pa.Buffer:
    return pa.py_buffer(memoryview(column))


def _bits(flags: memoryview, count: int) -> pa.Buffer:
    """Return bytes that are 0 or 1 as bits."""
    bytes_ = pa.Array.from_buffers(pa.uint8(), count, [None, _buffer(flags)])
    return bytes_.cast(pa.bool_()).buffers()[1]


def _with_validity(array: pa.Array, validity: pa.Buffer) -> pa.Array:
    assert array.offset == 0
    return pa.Array.from_buffers(
        array.type, len(array), [validity, *array.buffers()[1:]]
    )
