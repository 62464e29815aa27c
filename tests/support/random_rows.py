# SPDX-License-Identifier: Apache-2.0
"""Rows of any types by chance, with extremes and NULLs, and how to compare them.

What is drawn comes from a ``random.Random``, so that a seed says all of it, or from
hypothesis, which has one that shrinks.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_spark.arrow.schema import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

#: Texts that encoders and parsers trip over.
TEXTS = (
    "",
    " ",
    "\u0000",
    "größer",
    "日本語 🚀",
    '"quoted" \\ and / {"v":1}',
    "line\nbreak\r\tand\u2028\u2029",
    "\x01\x1f\x7f\x80\u009f",
    "\ufeff\ufffd\uffff\U0010ffff",
    "e\u0301\u200d\u202e",
    "null",
    "NaN",
    "x" * 300,
)

BYTES = (b"", b"\0", b"\xff\xfe", b'{"a":1}', bytes(range(256)))

#: Extremes, and all else of note, of each number.
FLOATS = (0.0, -0.0, 1.5, -1e-3, math.nan, math.inf, -math.inf)
FLOATS_32 = (*FLOATS, 3.4028234663852886e38, 1.401298464324817e-45)
FLOATS_64 = (*FLOATS, 1.7976931348623157e308, 5e-324, 0.1, 1 / 3)
DAY_US = 86_400_000_000
#: Days that calendars count differently: before the year 1582, and its 15 October.
OLD_DAYS = (-171_606, -141_427)

#: Names of fields; some of them have a meaning elsewhere.
NAMES = ("a", "B_2", "_x", "value", "key", "null", "record", "member0", "type", "Ab1")


def integers(bits: int, *more: int) -> Callable[[Random], int]:
    """Numbers of so many bits, often the first and the last of them, or these."""
    top = 1 << (bits - 1)
    few = (-top, -top + 1, top - 1, 0, -1, 1, 63, 64, -64, -65, *more)

    def draw(chance: Random) -> int:
        if chance.random() < 0.6:
            return chance.choice(few)
        return chance.randint(-top, top - 1)

    return draw


def _one_of(values: tuple[Any, ...]) -> Callable[[Random], Any]:
    return lambda chance: chance.choice(values)


def _decimals(precision: int, scale: int) -> Callable[[Random], Decimal]:
    top = 10**precision - 1

    def draw(chance: Random) -> Decimal:
        number = chance.choice((top, -top, 0, 1, -1, 127, 128, -128, -129))
        if chance.random() < 0.4:
            number = chance.randint(-top, top)
        number = max(-top, min(top, number))
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -scale))

    return draw


def _times(chance: Random) -> int:
    few = (0, 1, 999, 1000, DAY_US - 1, DAY_US - 1000)
    return chance.choice((*few, chance.randint(0, DAY_US - 1))) * 1000


_moments = integers(64, *(day * DAY_US for day in OLD_DAYS))


#: Each type that is no other's parent, and what draws its values: as Spark has them in
#: Arrow, times of all kinds as numbers.
LEAVES: tuple[tuple[pa.DataType, Callable[[Random], Any]], ...] = (
    (pa.bool_(), _one_of((True, False))),
    (pa.int8(), integers(8)),
    (pa.int16(), integers(16)),
    (pa.int32(), integers(32)),
    (pa.int64(), integers(64)),
    (pa.float32(), _one_of(FLOATS_32)),
    (pa.float64(), _one_of(FLOATS_64)),
    (pa.string(), _one_of(TEXTS)),
    (pa.binary(), _one_of(BYTES)),
    (pa.date32(), integers(32, *OLD_DAYS)),
    (TIMESTAMP, _moments),
    (pa.timestamp("us"), _moments),
    (pa.time64("ns"), _times),
    (pa.decimal128(1, 0), _decimals(1, 0)),
    (pa.decimal128(10, 2), _decimals(10, 2)),
    (pa.decimal128(19, 19), _decimals(19, 19)),
    (pa.decimal128(38, 10), _decimals(38, 10)),
    (pa.decimal128(38, 0), _decimals(38, 0)),
)

_DRAWS = dict(LEAVES)


def any_type(chance: Random, depth: int = 3) -> pa.DataType:
    """A type, with others in it at most so deep."""
    kind = chance.choice(("leaf", "leaf", "list", "map", "struct")) if depth else "leaf"
    if kind == "leaf":
        return chance.choice(LEAVES)[0]
    if kind == "struct":
        return any_struct(chance, depth - 1)
    part = any_field(chance, "element" if kind == "list" else "value", depth - 1)
    return pa.list_(part) if kind == "list" else pa.map_(pa.string(), part)


def any_struct(chance: Random, depth: int = 3) -> pa.StructType:
    """A struct of a few fields."""
    names = chance.sample(NAMES, chance.randint(1, 3))
    return pa.struct([any_field(chance, name, depth) for name in names])


def any_field(chance: Random, name: str, depth: int = 3) -> pa.Field:
    """A field that may be NULL, or not."""
    return pa.field(name, any_type(chance, depth), chance.random() < 0.7)


def any_columns(chance: Random, depth: int = 3) -> pa.Schema:
    """Two columns or more: a single one may have another meaning."""
    names = [name for name in NAMES if name not in ("value", "key")]
    some = chance.sample(names, chance.randint(2, 5))
    return pa.schema([any_field(chance, name, depth) for name in some])


def any_value(chance: Random, field: pa.Field) -> Any:
    """A value of a field: times as numbers, maps as pairs."""
    if field.nullable and chance.random() < 0.25:
        return None
    type_ = field.type
    if pa.types.is_struct(type_):
        return {one.name: any_value(chance, one) for one in type_}
    if pa.types.is_list(type_):
        part = type_.value_field
        return [any_value(chance, part) for _ in range(chance.randint(0, 3))]
    if pa.types.is_map(type_):
        keys = chance.sample(TEXTS, chance.randint(0, 3))
        return [(key, any_value(chance, type_.item_field)) for key in keys]
    return _DRAWS[type_](chance)


def any_rows(chance: Random, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """So many rows."""
    arrays = [
        array([any_value(chance, field) for _ in range(rows)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values as Arrow has them, also times that Python has not."""
    return pa.array(values, _counted(type_)).cast(type_)


def _counted(type_: pa.DataType) -> pa.DataType:
    """The type with times as numbers."""
    if pa.types.is_struct(type_):
        return pa.struct([one.with_type(_counted(one.type)) for one in type_])
    if pa.types.is_list(type_):
        part = type_.value_field
        return pa.list_(part.with_type(_counted(part.type)))
    if pa.types.is_map(type_):
        part = type_.item_field
        return pa.map_(pa.string(), part.with_type(_counted(part.type)))
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.int64()
    return type_


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """What a column holds, so that equal is the same: NaN as such, -0.0 as no 0.0.

    Times are numbers, times of the day in microseconds; maps keep their order.
    """
    if isinstance(column, pa.ChunkedArray):
        return [one for chunk in column.chunks for one in plain(chunk)]
    type_, valid = column.type, column.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        parts = [plain(one) for one in column.flatten()]
        rows = [
            {field.name: part[at] for field, part in zip(type_, parts, strict=True)}
            for at in range(len(column))
        ]
        return [row if one else None for row, one in zip(rows, valid, strict=True)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        ends, items = column.offsets.to_pylist(), plain(column.values)
        found = [items[begin:end] for begin, end in itertools.pairwise(ends)]
        return [row if one else None for row, one in zip(found, valid, strict=True)]
    if pa.types.is_map(type_):
        keys, items = plain(column.keys), plain(column.items)
        pairs = list(zip(keys, items, strict=True))
        ends = column.offsets.to_pylist()
        found = [pairs[begin:end] for begin, end in itertools.pairwise(ends)]
        return [row if one else None for row, one in zip(found, valid, strict=True)]
    if pa.types.is_time64(type_):
        column = column.cast(pa.time64("ns"))
        nanos = column.cast(pa.int64()).to_pylist()
        return [None if one is None else one // 1000 for one in nanos]
    values: list[Any] = column.cast(_counted(type_)).to_pylist()
    if pa.types.is_floating(type_):
        return [None if one is None else repr(one) for one in values]
    return values


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of all columns, as ``plain`` has them."""
    columns = [plain(column) for column in table.columns]
    return [
        dict(zip(table.column_names, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
