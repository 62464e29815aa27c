# SPDX-License-Identifier: Apache-2.0
"""Columns as input of the kernel: which AVRO type fits each column.

:func:`plan` pairs a column's type with one of AVRO's, once; what it returns turns an
array of that type into a part of ``loops.avro_write``. A type fits one that holds all
of its values, times with a coarser unit included: what is finer is cut off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values.avro_text import is_bytes, is_text
from pulsar_spark.arrow.values.sql_types import difference, sql_type_of_field
from pulsar_spark.loops import avro_write as kernel
from pulsar_spark.loops.avro_write import Part
from pulsar_spark.schemas.avro import NO_DEFAULT, AvroType, Kind, Logical
from pulsar_spark.schemas.info import InvalidSchemaError, UnfitColumnsError
from pulsar_spark.schemas.resolution import encode_default

#: Makes a part of an array; what it is given is how NULL and all else are told apart.
Bind = Callable[[pa.Array], Part]
_Bind = Callable[[pa.Array, dict[str, Any]], Part]

_KINDS = pa.types


def plan(type_: AvroType, column: pa.DataType, where: str) -> Bind:
    """Return what turns arrays of a column's type into parts.

    Args:
        type_: What the schema says.
        column: The column's type.
        where: The path of names to it, for errors.

    Raises:
        InvalidSchemaError: They do not fit.
    """
    branches = {"null_branch": -1, "value_branch": -1}
    if type_.kind is not Kind.UNION:
        bind = _plan(type_, column, where)
    else:
        kinds = [branch.kind for branch in type_.branches]
        if Kind.NULL in kinds:
            branches["null_branch"] = kinds.index(Kind.NULL)
        number, bind = plan_branch(type_, column, where)
        branches["value_branch"] = number

    def of(array: pa.Array) -> Part:
        further: dict[str, Any] = {"where": where, "first_bit": array.offset}
        if array.null_count:
            further["validity"] = memoryview(array.buffers()[0]).cast("B")
        return bind(array, {**further, **branches})

    return of


def plan_branch(type_: AvroType, column: pa.DataType, where: str) -> tuple[int, _Bind]:
    """Return the branch of a union that fits a column best, and its plan."""
    reasons: list[str] = []
    numbered = [
        (number, candidate)
        for number, candidate in enumerate(type_.branches)
        if candidate.kind is not Kind.NULL
    ]
    for number, branch in sorted(
        numbered, key=lambda pair: _CHOICE.get(pair[1].kind, 0)
    ):
        try:
            return number, _plan(branch, column, where)
        except InvalidSchemaError as error:
            reasons.append(str(error))
    if len(reasons) == 1:
        raise UnfitColumnsError(reasons[0])
    raise _misfit(type_, column, where)


#: What comes later: what takes more room, or what only some values of a column fit.
_CHOICE = {Kind.FLOAT: 1, Kind.DOUBLE: 2, Kind.ENUM: 2, Kind.FIXED: 2}


def _plan(type_: AvroType, column: pa.DataType, where: str) -> _Bind:
    if type_.kind in _NESTED:
        return _NESTED[type_.kind](type_, column, where)
    if type_.logical is Logical.DECIMAL and _fits_digits(type_, column):
        return _decimals(type_)
    for is_it, bind in _LEAVES.get((type_.kind, type_.logical), ()):
        if is_it(column):
            return bind(type_)
    raise _misfit(type_, column, where)


def _misfit(type_: AvroType, column: pa.DataType, where: str) -> InvalidSchemaError:
    return UnfitColumnsError(difference(column, type_, where))


# -- nested types ----------------------------------------------------------------------


def record_plan(
    type_: AvroType, fields: Sequence[pa.Field], where: str = ""
) -> Callable[[Sequence[pa.Array]], list[Part]]:
    """Return the function that turns columns into a record's parts, in field order.

    A field that no column has gets its default, or NULL.

    Raises:
        InvalidSchemaError: A column is no field, does not fit its field, or a field
            without a default, and never NULL, has no column.
    """
    at_column = {field.name: index for index, field in enumerate(fields)}
    field_names = {field.name for field in type_.fields}
    if new := [name for name in at_column if name not in field_names]:
        raise UnfitColumnsError(
            f"the schema has no field {', '.join(f'`{_path(where, n)}`' for n in new)}"
        )
    plans: list[tuple[int, Bind | Part]] = []
    for field in type_.fields:
        path = _path(where, field.name)
        index = at_column.get(field.name, -1)
        if index < 0:
            plans.append((index, _constant(field.type, field.default, path)))
        else:
            plans.append((index, plan(field.type, fields[index].type, path)))

    def of(columns: Sequence[pa.Array]) -> list[Part]:
        return [
            bind if isinstance(bind, Part) else bind(columns[index])
            for index, bind in plans
        ]

    return of


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _constant(type_: AvroType, default: Any, where: str) -> Part:
    if default is NO_DEFAULT:
        is_union = type_.kind is Kind.UNION
        branches = [b.kind for b in type_.branches] if is_union else [type_.kind]
        if Kind.NULL not in branches:
            raise UnfitColumnsError(
                f"`{where}` is a field of the schema without a default, and no column:"
                f" write a column `{where}` {sql_type_of_field(type_)}"
            )
        default = None
    data = encode_default(type_, default, where)
    return Part(kernel.CONSTANT, where, data=memoryview(data))


def _record(type_: AvroType, column: pa.DataType, where: str) -> _Bind:
    if not _KINDS.is_struct(column):
        raise _misfit(type_, column, where)
    parts_of = record_plan(type_, list(column), where)

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        columns = [array.field(index) for index in range(array.type.num_fields)]
        return Part(kernel.RECORD, children=parts_of(columns), **part)

    return bind


def _array(type_: AvroType, column: pa.DataType, where: str) -> _Bind:
    if not (_KINDS.is_list(column) or _KINDS.is_large_list(column)):
        raise _misfit(type_, column, where)
    assert type_.items is not None
    item = plan(type_.items, column.value_type, f"{where}[]")

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        with rows_of_items(array.offsets):
            children = [item(array.values)]
        return Part(
            kernel.ARRAY, children=children, offsets=_int64s(array.offsets), **part
        )

    return bind


def _map(type_: AvroType, column: pa.DataType, where: str) -> _Bind:
    if not (_KINDS.is_map(column) and is_text(column.key_type)):
        raise _misfit(type_, column, where)
    assert type_.items is not None
    key = plan(AvroType(Kind.STRING), column.key_type, f"{where}{{}}")
    item = plan(type_.items, column.item_type, f"{where}{{}}")

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        with rows_of_items(array.offsets):
            children = [key(array.keys), item(array.items)]
        return Part(
            kernel.MAP, children=children, offsets=_int64s(array.offsets), **part
        )

    return bind


@contextlib.contextmanager
def rows_of_items(offsets: pa.Array) -> Iterator[None]:
    """Name the row of a list in errors about an item of the list.

    Args:
        offsets: Where each list begins among the items, and the last one ends.
    """
    try:
        yield
    except kernel.UnfitValueError as error:
        row = pc.index(pc.greater(offsets.slice(1), error.row), pa.scalar(True)).as_py()
        raise kernel.UnfitValueError(row, error.where, error.text) from None


_NESTED = {Kind.RECORD: _record, Kind.ARRAY: _array, Kind.MAP: _map}


# -- leaves ----------------------------------------------------------------------------


def _numbers(type_: AvroType) -> _Bind:
    del type_
    return lambda array, part: Part(
        kernel.LONG, numbers=_int64s(array.cast(pa.int64())), **part
    )


def _times(divisor: int = 1, factor: int = 1) -> Callable[[AvroType], _Bind]:
    """Return what turns times into numbers, in another unit."""

    def make(type_: AvroType) -> _Bind:
        del type_

        def bind(array: pa.Array, part: dict[str, Any]) -> Part:
            if divisor * factor == 1:  # all numbers fit, the lowest one, too
                return Part(
                    kernel.LONG, numbers=_int64s(array.cast(pa.int64())), **part
                )
            return _numbers_of(in_unit(array, divisor, factor), part)

        return bind

    return make


def in_unit(times: pa.Array, divisor: int, factor: int = 1) -> pa.Int64Array:
    """Return times as numbers in another unit, rounded down; UNFIT beyond 64 bits."""
    numbers = times.cast(pa.int64())
    if factor > 1:
        limit = _int(((1 << 63) - 1) // factor)
        # Not abs(), which the smallest number does not have.
        fits = pc.and_(
            pc.less_equal(numbers, limit), pc.greater_equal(numbers, pc.negate(limit))
        )
        product = pc.multiply(numbers, _int(factor))
        return pc.if_else(fits, product, _int(kernel.UNFIT))
    if divisor == 1:
        return numbers
    quotient = pc.divide(numbers, _int(divisor))
    is_above = pc.greater(pc.multiply(quotient, _int(divisor)), numbers)
    return pc.if_else(is_above, pc.subtract(quotient, _int(1)), quotient)


def _numbers_of(numbers: pa.Int64Array, part: dict[str, Any]) -> Part:
    return Part(kernel.LONG, numbers=_int64s(numbers), size=0, **part)


def _int(number: int) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())


def _days_of_time(type_: AvroType) -> _Bind:
    """Return what turns times of day in nanoseconds, or microseconds, into numbers."""
    unit = 1_000_000 if type_.logical is Logical.TIME_MILLIS else 1_000

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        nanos = array.cast(pa.time64("ns"))
        return _numbers_of(in_unit(nanos, unit), part)

    return bind


def _days(type_: AvroType) -> _Bind:
    del type_
    return lambda array, part: _numbers_of(
        array.cast(pa.int32()).cast(pa.int64()), part
    )


def _symbols(type_: AvroType) -> _Bind:
    symbols = pa.array(type_.symbols, pa.string())

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        indices = pc.index_in(array.cast(pa.string()), symbols).cast(pa.int64())
        return _numbers_of(indices.fill_null(_int(kernel.UNFIT)), part)

    return bind


def _fixed(to: pa.DataType, size: int) -> Callable[[AvroType], _Bind]:
    """Return the plan of numbers of ``size`` bytes in the machine's byte order."""

    def make(type_: AvroType) -> _Bind:
        del type_

        def bind(array: pa.Array, part: dict[str, Any]) -> Part:
            data = _data(array.cast(to), size)
            return Part(kernel.FIXED, size=size, data=data, **part)

        return bind

    return make


def _booleans(type_: AvroType) -> _Bind:
    del type_

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        bits = array.buffers()[1]
        return Part(kernel.BOOLEAN, data=memoryview(bits or b"").cast("B"), **part)

    return bind


def _texts(type_: AvroType) -> _Bind:
    del type_

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        check_text(array, part["where"])
        return _variable(array.cast(pa.large_binary()), part)

    return bind


def check_text(texts: pa.Array, where: str) -> None:
    """Raise for text that is not UTF-8: Spark's strings may hold any bytes.

    Raises:
        UnfitValueError: One is not.
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        for row, text in enumerate(texts.cast(pa.large_binary()).to_pylist()):
            try:
                str(text or b"", "utf-8")
            except UnicodeDecodeError:
                raise kernel.UnfitValueError(
                    row, where, f"holds {text[:100]!r}, which is not text in UTF-8"
                ) from None
        raise


def _bytes(type_: AvroType) -> _Bind:
    size = type_.size if type_.kind is Kind.FIXED else -1
    return lambda array, part: _variable(
        array.cast(pa.large_binary()), {**part, "size": size}
    )


def _variable(array: pa.LargeBinaryArray, part: dict[str, Any]) -> Part:
    offsets = pa.Array.from_buffers(
        pa.int64(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset
    )
    data = memoryview(array.buffers()[2] or b"").cast("B")
    if not len(array):
        return Part(kernel.BYTES, data=data, **part)
    return Part(kernel.BYTES, offsets=_int64s(offsets), data=data, **part)


def _decimals(type_: AvroType) -> _Bind:
    kind = kernel.DECIMAL_BYTES
    if type_.kind is Kind.FIXED:
        kind = kernel.DECIMAL_FIXED

    def bind(array: pa.Array, part: dict[str, Any]) -> Part:
        if array.type.scale != type_.scale:
            array = array.cast(pa.decimal128(type_.precision, type_.scale))
        return Part(kind, size=type_.size, data=_data(array, 16), **part)

    return bind


def _data(array: pa.Array, size: int) -> memoryview:
    view = memoryview(array.buffers()[1] or b"").cast("B")
    return view[array.offset * size :]


def _int64s(numbers: pa.Array) -> memoryview:
    """Return a view of 64-bit numbers, from the first number on."""
    if numbers.type != pa.int64():
        numbers = numbers.cast(pa.int64())
    view = memoryview(numbers.buffers()[1] or b"").cast("B")
    return view[numbers.offset * 8 : (numbers.offset + len(numbers)) * 8].cast("q")


def _is_integer(column: pa.DataType) -> bool:
    return bool(_KINDS.is_signed_integer(column))


def _is_small_integer(column: pa.DataType) -> bool:
    return _is_integer(column) and column.bit_width < 64


def _is_time(column: pa.DataType) -> bool:
    return bool(_KINDS.is_timestamp(column)) and column.tz is not None


def _is_local_time(column: pa.DataType) -> bool:
    return bool(_KINDS.is_timestamp(column)) and column.tz is None


def is_exact_float(column: pa.DataType) -> bool:
    """Return whether a FLOAT holds all of a column's values."""
    return bool(
        _KINDS.is_float32(column) or (_is_integer(column) and column.bit_width <= 16)
    )


def is_exact_double(column: pa.DataType) -> bool:
    """Return whether a DOUBLE holds all of a column's values."""
    return bool(
        _KINDS.is_float32(column)
        or _KINDS.is_float64(column)
        or _is_small_integer(column)
    )


_Leaf = tuple[Callable[[pa.DataType], bool], Callable[[AvroType], _Bind]]
_LONGS: tuple[_Leaf, ...] = ((_is_integer, _numbers),)

#: What fits each of AVRO's types: a check of the column's, and what makes the plan.
_LEAVES: dict[tuple[Kind, Logical | None], tuple[_Leaf, ...]] = {
    (Kind.BOOLEAN, None): ((_KINDS.is_boolean, _booleans),),
    (Kind.INT, None): ((_is_small_integer, _numbers),),
    (Kind.INT, Logical.DATE): ((_KINDS.is_date32, _days),),
    (Kind.INT, Logical.TIME_MILLIS): (
        (_is_small_integer, _numbers),
        (_KINDS.is_time64, _days_of_time),
    ),
    (Kind.LONG, None): _LONGS,
    (Kind.LONG, Logical.TIME_MICROS): (
        *_LONGS,
        (_KINDS.is_time64, _days_of_time),
    ),
    (Kind.LONG, Logical.TIMESTAMP_MILLIS): ((_is_time, _times(1000)),),
    (Kind.LONG, Logical.TIMESTAMP_MICROS): ((_is_time, _times()),),
    (Kind.LONG, Logical.TIMESTAMP_NANOS): (
        *_LONGS,
        (_is_time, _times(factor=1000)),
    ),
    (Kind.LONG, Logical.LOCAL_TIMESTAMP_MILLIS): (
        *_LONGS,
        (_is_local_time, _times(1000)),
    ),
    (Kind.LONG, Logical.LOCAL_TIMESTAMP_MICROS): (
        *_LONGS,
        (_is_local_time, _times()),
    ),
    (Kind.LONG, Logical.LOCAL_TIMESTAMP_NANOS): (
        *_LONGS,
        (_is_local_time, _times(factor=1000)),
    ),
    (Kind.FLOAT, None): ((is_exact_float, _fixed(pa.float32(), 4)),),
    (Kind.DOUBLE, None): ((is_exact_double, _fixed(pa.float64(), 8)),),
    (Kind.STRING, None): ((is_text, _texts),),
    (Kind.STRING, Logical.UUID): ((is_text, _texts),),
    (Kind.ENUM, None): ((is_text, _symbols),),
    (Kind.BYTES, None): ((is_bytes, _bytes),),
    (Kind.FIXED, None): ((is_bytes, _bytes),),
}


def _fits_digits(type_: AvroType, column: pa.DataType) -> bool:
    if not _KINDS.is_decimal128(column):
        return False
    whole = column.precision - column.scale
    has_room = type_.scale >= column.scale and type_.precision - type_.scale >= whole
    return has_room and (type_.scale == column.scale or type_.precision <= 38)
