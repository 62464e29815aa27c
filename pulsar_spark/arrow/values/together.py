# SPDX-License-Identifier: Apache-2.0
"""Types of columns that topics with different schemas make together.

The column of several topics has the narrowest type that holds each value of each of
them. A topic makes the part of such a column that its own schema has, and the fields of
a STRUCT that only other topics have are NULL::

    topic m    at STRUCT<id: INT>             ->  id, as a BIGINT
    topic n    at STRUCT<id: BIGINT, x: INT>  ->  id, x
    together   at STRUCT<id: BIGINT, x: INT>
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from pulsar_spark.schemas.info import InvalidSchemaError
from spark_topics.text import same_but_for_case

_KINDS = pa.types

#: The key, in the metadata of a field, of the unit that its numbers count.
_UNIT = b"unit"

#: How many digits integers have at most, by their width in bits.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}

#: Spark's longest decimal.
_MAX_PRECISION = 38

#: Doubles hold all integers of so many bits, floats those of half as many.
_IN_DOUBLE = 32

#: The names of fields down to one within others.
Path = tuple[str, ...]


def with_unit(field: pa.Field, unit: str) -> pa.Field:
    """Return the column of numbers that count a unit, of which the type says nothing.

    Equality of types and schemas does not look at units.
    """
    return field.with_metadata({_UNIT: unit.encode()})


def distinct(names: Iterable[str], where: str = "") -> None:
    """Check that names differ by more than their case, which Spark does not tell apart.

    Args:
        names: The names of fields.
        where: The path of names to what has the fields, "" for the columns themselves.

    Raises:
        InvalidSchemaError: Two names are equal but for their case.
    """
    if twins := same_but_for_case(names):
        first, second = twins
        within = f" of `{where}`" if where else ""
        raise InvalidSchemaError(
            f"the fields `{first}` and `{second}`{within} differ by their case only, "
            "which Spark does not tell apart"
        )


# -- the type of a column of several topics --------------------------------------------


def joined(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the narrowest type that holds all values of the types; None for none.

    The order of types decides the order of the fields of a STRUCT, and nothing else.
    All that is within the type may be NULL, as some topic may have NULL there.
    """
    try:
        return functools.reduce(_join, map(_nullable, types))
    except _ApartError:
        return None


def with_types(columns: pa.Schema, typed: pa.Schema) -> pa.Schema:
    """Return columns with the types of further columns, where the types differ.

    Types do not differ where only the places of NULLs do.
    """
    types = {field.name: field.type for field in typed}
    return pa.schema(
        [
            field
            if _nullable(types.get(field.name, field.type)) == _nullable(field.type)
            else field.with_type(types[field.name])
            for field in columns
        ]
    )


class _ApartError(Exception):
    """No type holds the values of both."""


def _nullable(type_: pa.DataType) -> pa.DataType:
    if _KINDS.is_struct(type_):
        return pa.struct([(field.name, _nullable(field.type)) for field in type_])
    if _KINDS.is_map(type_):
        return pa.map_(type_.key_type, _nullable(type_.item_type))
    if _KINDS.is_list(type_):
        return pa.list_(_nullable(type_.value_type))
    return type_


def _join(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    if _KINDS.is_struct(one) and _KINDS.is_struct(other):
        return _join_structs(one, other)
    if _KINDS.is_map(one) and _KINDS.is_map(other):
        return pa.map_(
            _join(one.key_type, other.key_type), _join(one.item_type, other.item_type)
        )
    if _KINDS.is_list(one) and _KINDS.is_list(other):
        return pa.list_(_join(one.value_type, other.value_type))
    return _join_numbers(one, other)


def _join_structs(one: pa.StructType, other: pa.StructType) -> pa.StructType:
    types = {field.name: field.type for field in one}
    for field in other:
        own = types.get(field.name, field.type)
        types[field.name] = _join(own, field.type)
    if same_but_for_case(types):
        raise _ApartError
    return pa.struct(list(types.items()))


def _join_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    both = (one, other)
    integer_bits = max(
        (type_.bit_width for type_ in both if _KINDS.is_signed_integer(type_)),
        default=0,
    )
    if all(_KINDS.is_signed_integer(type_) for type_ in both):
        return max(both, key=lambda type_: type_.bit_width)
    if all(_is_float(type_) or _KINDS.is_signed_integer(type_) for type_ in both):
        if integer_bits > _IN_DOUBLE:
            raise _ApartError
        is_double = integer_bits > _IN_DOUBLE // 2 or pa.float64() in both
        return pa.float64() if is_double else pa.float32()
    decimals = [_as_decimal(type_) for type_ in both]
    scale = max(type_.scale for type_ in decimals)
    whole = max(type_.precision - type_.scale for type_ in decimals)
    if whole + scale > _MAX_PRECISION:
        raise _ApartError
    return pa.decimal128(whole + scale, scale)


def _is_float(type_: pa.DataType) -> bool:
    return type_ in (pa.float32(), pa.float64())


def _as_decimal(type_: pa.DataType) -> pa.Decimal128Type:
    if _KINDS.is_decimal128(type_):
        return type_
    if _KINDS.is_signed_integer(type_):
        return pa.decimal128(_DIGITS[type_.bit_width], 0)
    raise _ApartError


def units(own: pa.Field, wanted: pa.DataType, where: str = "") -> dict[str, str]:
    """Return the units of numbers that stay numbers in a column of the wanted type.

    Args:
        own: The column that a topic's schema makes.
        wanted: The type.
        where: The path of names to it; "" for the name of the field.

    Returns:
        The unit of each path that has one.
    """
    where = where or own.name
    by_path: dict[str, str] = {}
    for field, part, name in _within_both(own.type, wanted):
        by_path |= units(field, part.type, where + name)
    if own.metadata and _UNIT in own.metadata and not _KINDS.is_temporal(wanted):
        by_path[where] = own.metadata[_UNIT].decode()
    return by_path


def takes_nulls(wanted: pa.DataType, own: pa.DataType) -> bool:
    """Return whether what may be NULL within ``own`` may be NULL in ``wanted``."""
    return all(
        (part.nullable or not field.nullable) and takes_nulls(part.type, field.type)
        for field, part, _ in _within_both(own, wanted)
    )


def _within_both(
    own: pa.DataType, wanted: pa.DataType
) -> Iterator[tuple[pa.Field, pa.Field, str]]:
    """Yield the parts directly within both types, and how paths name the parts."""
    if _KINDS.is_struct(own) and _KINDS.is_struct(wanted):
        for field in wanted:
            index = own.get_field_index(field.name)
            if index >= 0:
                yield own.field(index), field, f".{field.name}"
    elif _KINDS.is_list(own) and _KINDS.is_list(wanted):
        yield own.value_field, wanted.value_field, "[]"
    elif _KINDS.is_map(own) and _KINDS.is_map(wanted):
        yield own.item_field, wanted.item_field, "{}"


# -- the part of a column that a topic has ---------------------------------------------


def part_of(wanted: pa.DataType, own: pa.DataType) -> pa.DataType:
    """Return the type without the fields of structs that ``own`` lacks.

    A field that may not be NULL stays, as do the fields of a struct of which ``own``
    has none: a decoder says that they cannot be made.
    """
    if _KINDS.is_struct(wanted) and _KINDS.is_struct(own):
        kept = []
        for field in wanted:
            index = own.get_field_index(field.name)
            if index >= 0:
                part = part_of(field.type, own.field(index).type)
                kept.append(field.with_type(part))
            elif not field.nullable:
                kept.append(field)
        return pa.struct(kept) if kept or not own.num_fields else wanted
    if _KINDS.is_list(wanted) and _KINDS.is_list(own):
        item = wanted.value_field
        return pa.list_(item.with_type(part_of(item.type, own.value_type)))
    if _KINDS.is_map(wanted) and _KINDS.is_map(own):
        item = wanted.item_field
        item = item.with_type(part_of(item.type, own.item_type))
        return pa.map_(wanted.key_field, item)
    return wanted


def paths(columns: Iterable[pa.Field]) -> set[Path]:
    """Return the path of each column, and of each field of a struct at any depth."""
    return {
        (field.name, *path) for field in columns for path in ((), *_paths(field.type))
    }


def _paths(type_: pa.DataType) -> set[Path]:
    if _KINDS.is_struct(type_):
        return paths(type_)
    if _KINDS.is_list(type_):
        return _paths(type_.value_type)
    return _paths(type_.item_type) if _KINDS.is_map(type_) else set()


def completed(part: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array of a part of a type as an array of the type.

    Args:
        part: Of a type that ``part_of`` has made of ``type_``.
        type_: The type; the fields that the part lacks are NULL.
    """
    if part.type == type_:
        return part
    if _KINDS.is_struct(type_):
        children = [
            pa.nulls(len(part), field.type)
            if (index := part.type.get_field_index(field.name)) < 0
            else completed(part.field(index), field.type)
            for field in type_
        ]
        mask = part.is_null() if part.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if _KINDS.is_list(type_):
        items = completed(part.values, type_.value_type)
    else:
        entries = [part.keys, completed(part.items, type_.item_type)]
        fields = [type_.key_field, type_.item_field]
        items = pa.StructArray.from_arrays(entries, fields=fields)
    return pa.Array.from_buffers(
        type_, len(part), part.buffers()[:2], offset=part.offset, children=[items]
    )
