# SPDX-License-Identifier: Apache-2.0
"""Columns -> values in JSON, a column at a time.

What the official clients of Java and Python both read: NULL is written, not left out;
bytes are base64; decimals are numbers with all their digits; dates and times are
integers in the unit of the schema; NaN and the infinities are strings, as Java has
them.

Each column becomes a column of texts, and those of a record are joined row by row.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.arrow.values.avro_encoder import is_whole
from pulsar_spark.arrow.values.avro_parts import (
    check_text,
    in_unit,
    plan,
    plan_branch,
    record_plan,
    rows_of_items,
)
from pulsar_spark.arrow.values.avro_text import is_bytes, is_text
from pulsar_spark.arrow.values.json_tokens import exact
from pulsar_spark.loops.avro_write import UNFIT, UnfitValueError
from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroType,
    Kind,
    Logical,
    nullable,
)
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.resolution import encode_default

#: Makes the JSON text of each row; NULL stays NULL.
_Texts = Callable[[pa.Array], pa.LargeStringArray]

_TEXT = pa.large_string()
_KINDS = pa.types
_NULL = pa.scalar("null", _TEXT)
_NOTHING = pa.scalar("", _TEXT)
_QUOTE = pa.scalar('"', _TEXT)

#: What a string of JSON does not hold as it is.
_ESCAPED = r'["\\\x00-\x1f]'


class JsonEncoder:
    """Makes values of columns, which are what they are in ``AvroEncoder``.

    Args:
        root: The schema.
        schema: The columns.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Raises:
        InvalidSchemaError: The columns do not fit the schema.
    """

    def __init__(
        self, root: AvroType, schema: pa.Schema, *, is_part: bool = False
    ) -> None:
        self.columns = tuple(schema.names)
        fields = list(schema)
        self._texts: Callable[[Sequence[pa.Array]], pa.LargeStringArray]
        if is_whole(root, fields, is_part=is_part):
            plan(root, fields[0].type, fields[0].name)  # for what does not fit
            texts = _plan(root, fields[0].type, fields[0].name)
            self._texts = lambda columns: texts(columns[0])
        else:
            record_plan(root, fields)
            self._texts = _record(root, fields, "")

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value of each row.

        Raises:
            UnfitValueError: A row does not fit the schema.
        """
        return EncodedValues(self._texts(columns).cast(pa.large_binary()))


def _record(
    type_: AvroType, fields: Sequence[pa.Field], where: str
) -> Callable[[Sequence[pa.Array]], pa.LargeStringArray]:
    """Return what joins fields that all rows have; others have their defaults."""
    types = {field.name: field.type for field in type_.fields}
    members: list[tuple[pa.Scalar, _Texts, bool, str]] = []
    for at, field in enumerate(fields):
        path = f"{where}.{field.name}" if where else field.name
        name = json.dumps(field.name, ensure_ascii=False)
        before = pa.scalar(f"{',' if at else '{'}{name}:", _TEXT)
        _, is_nullable = nullable(types[field.name])
        texts = _plan(types[field.name], field.type, path)
        members.append((before, texts, is_nullable, path))
    names = {field.name for field in fields}
    ends = [
        f"{json.dumps(one.name)}:{_default(one.type, one.default)}"
        for one in type_.fields
        if one.name not in names
    ]
    comma = "," if ends else ""
    begin = f"{comma}{','.join(ends)}" if members else f"{{{','.join(ends)}"
    end = pa.scalar(f"{begin}}}", _TEXT)

    def join(columns: Sequence[pa.Array]) -> pa.LargeStringArray:
        parts: list[pa.Array | pa.Scalar] = []
        for column, (before, texts, is_nullable, path) in zip(
            columns, members, strict=True
        ):
            _check_null(column, path, is_nullable=is_nullable)
            parts += [before, _or_null(texts(column))]
        return pc.binary_join_element_wise(*parts, end, _NOTHING)

    return join


def _default(type_: AvroType, default: Any) -> str:
    """Return a default as a value has it; that it is one of the type is known."""
    if default is NO_DEFAULT:
        return "null"
    if type_.kind is Kind.UNION:
        return _default(_branch_of(type_, default), default)
    if type_.kind in (Kind.BYTES, Kind.FIXED):
        data = default.encode("latin-1")
        if type_.logical is not Logical.DECIMAL:
            return _quoted(data)
        return format(exact(int.from_bytes(data, "big", signed=True), type_.scale), "f")
    members: list[tuple[str, str]] = []
    if type_.kind is Kind.RECORD:
        members = [
            (one.name, _default(one.type, default.get(one.name, one.default)))
            for one in type_.fields
        ]
    elif type_.kind in (Kind.ARRAY, Kind.MAP):
        assert type_.items is not None
        if type_.kind is Kind.ARRAY:
            return f"[{','.join(_default(type_.items, one) for one in default)}]"
        members = [(key, _default(type_.items, one)) for key, one in default.items()]
    else:
        is_whole = type_.kind in (Kind.INT, Kind.LONG)  # 1.0 is one
        return json.dumps(int(default) if is_whole else default)
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in members)}}}"


def _branch_of(union: AvroType, default: Any) -> AvroType:
    """Return the first branch of which a default is a value."""
    for one in union.branches:
        try:
            encode_default(one, default, "")
        except InvalidSchemaError:
            continue
        return one
    raise AssertionError(default)


def _quoted(data: bytes) -> str:
    return f'"{binascii.b2a_base64(data, newline=False).decode()}"'


def _or_null(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return texts.fill_null(_NULL) if texts.null_count else texts


def _plan(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    """Return the function that makes texts of a column; its type was checked before."""
    type_, _ = nullable(type_)
    if type_.kind is Kind.UNION:
        at, _ = plan_branch(type_, column, where)
        type_ = type_.branches[at]
    if _KINDS.is_struct(column):
        return _struct(type_, column, where)
    if _KINDS.is_map(column) or _KINDS.is_list(column) or _KINDS.is_large_list(column):
        return _items(type_, column, where)
    if is_text(column):
        return _texts(type_, where)
    if is_bytes(column):
        return _bytes(type_, where)
    if _KINDS.is_floating(column):
        return _floats
    if _KINDS.is_boolean(column) or _KINDS.is_decimal(column):
        return lambda array: array.cast(pa.string()).cast(_TEXT)
    return _integers(type_, column, where)


#: Logical types by their unit; all others count microseconds.
_MILLIS = {
    Logical.TIMESTAMP_MILLIS,
    Logical.LOCAL_TIMESTAMP_MILLIS,
    Logical.TIME_MILLIS,
}
_NANOS = {Logical.TIMESTAMP_NANOS, Logical.LOCAL_TIMESTAMP_NANOS}


def _integers(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    divisor, factor, raw = 1, 1, pa.int64()
    if _KINDS.is_time(column):
        divisor = 1_000_000 if type_.logical in _MILLIS else 1_000
    elif _KINDS.is_timestamp(column):
        divisor = 1_000 if type_.logical in _MILLIS else 1
        factor = 1_000 if type_.logical in _NANOS else 1
    elif _KINDS.is_date(column):
        raw = pa.int32()

    def texts(array: pa.Array) -> pa.LargeStringArray:
        if _KINDS.is_time(column):
            array = array.cast(pa.time64("ns"))
        numbers = in_unit(array.cast(raw), divisor, factor)
        if factor > 1:
            is_unfit = pc.equal(numbers, pa.scalar(UNFIT, pa.int64()))
            if (row := pc.index(is_unfit, pa.scalar(True)).as_py()) >= 0:
                raise UnfitValueError(row, where, "is no number of nanoseconds")
        return numbers.cast(_TEXT)

    return texts


def _floats(array: pa.Array) -> pa.LargeStringArray:
    texts = array.cast(_TEXT)
    is_odd = pc.invert(pc.is_finite(array)).fill_null(pa.scalar(False))
    if not is_odd.true_count:
        return texts
    names = pc.if_else(
        pc.is_nan(array),
        pa.scalar('"NaN"', _TEXT),
        pc.if_else(
            pc.greater(array, pa.scalar(0, array.type)),
            pa.scalar('"Infinity"', _TEXT),
            pa.scalar('"-Infinity"', _TEXT),
        ),
    )
    return pc.if_else(is_odd, names, texts)


def _texts(type_: AvroType, where: str) -> _Texts:
    if type_.kind is not Kind.ENUM:
        return lambda array: _strings(array, where)
    known = pa.array(type_.symbols, pa.string())

    def texts(array: pa.Array) -> pa.LargeStringArray:
        found = _strings(array, where)
        is_known = pc.is_in(array.cast(pa.string()), known)
        _check(pc.or_(is_known, array.is_null()), where, "is no symbol of its schema")
        return found

    return texts


def _bytes(type_: AvroType, where: str) -> _Texts:
    if type_.kind is not Kind.FIXED:
        return _base64

    def texts(array: pa.Array) -> pa.LargeStringArray:
        sizes = pc.binary_length(array)
        fits = pc.equal(sizes, pa.scalar(type_.size, sizes.type))
        fits = fits.fill_null(pa.scalar(True))
        _check(fits, where, f"does not have {type_.size} bytes")
        return _base64(array)

    return texts


def _check(fits: pa.BooleanArray, where: str, text: str) -> None:
    """Raise where a row does not fit."""
    if (row := pc.index(fits, pa.scalar(False)).as_py()) >= 0:
        raise UnfitValueError(row, where, text)


def _strings(array: pa.Array, where: str) -> pa.LargeStringArray:
    check_text(array, where)
    array = array.cast(_TEXT)
    has_more = pc.match_substring_regex(array, _ESCAPED).fill_null(pa.scalar(False))
    plain = pc.binary_join_element_wise(_QUOTE, array, _QUOTE, _NOTHING)
    if not has_more.true_count:
        return plain
    escaped = [
        json.dumps(text, ensure_ascii=False)
        for text in array.filter(has_more).to_pylist()
    ]
    return pc.replace_with_mask(plain, has_more, pa.array(escaped, _TEXT))


def _base64(array: pa.Array) -> pa.LargeStringArray:
    return pa.array(
        [None if one is None else _quoted(one) for one in array.to_pylist()],
        _TEXT,
    )


def _struct(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    join = _record(type_, list(column), where)

    def texts(array: pa.StructArray) -> pa.LargeStringArray:
        if not column.num_fields:  # all rows have the same text, which is a scalar
            return pc.if_else(array.is_valid(), join([]), pa.scalar(None, _TEXT))
        if not array.null_count:
            return join([array.field(at) for at in range(column.num_fields)])
        # A NULL may lie above anything: only what is there is looked at.
        is_there = array.is_valid()
        some = array.filter(is_there)
        with rows_of_items(_offsets(is_there.cast(pa.int64()))):
            found = join([some.field(at) for at in range(column.num_fields)])
        nothing = pa.nulls(len(array), _TEXT)
        return pc.replace_with_mask(nothing, is_there, found)

    return texts


def _items(type_: AvroType, column: pa.DataType, where: str) -> _Texts:
    """Plan a list, or a map, in which a name stands before each item."""
    assert type_.items is not None
    is_map = _KINDS.is_map(column)
    begin, end = "{}" if is_map else "[]"
    where = f"{where}{begin}{end}"
    items = _plan(type_.items, column.item_type if is_map else column.value_type, where)
    _, is_nullable = nullable(type_.items)

    def texts(array: pa.Array) -> pa.LargeStringArray:
        keys = inner = _as_list(array).flatten()
        if is_map:
            keys, inner = inner.field(0), inner.field(1)
        names: list[pa.Array | pa.Scalar] = []
        with rows_of_items(_offsets(_sizes(array))):
            _check_null(inner, where, is_nullable=is_nullable)
            if is_map:
                names = [_strings(keys, where), pa.scalar(":", _TEXT)]
            found = _or_null(items(inner))
        if names:
            found = pc.binary_join_element_wise(*names, found, _NOTHING)
        return _joined(array, found, begin, end)

    return texts


def _check_null(array: pa.Array, where: str, *, is_nullable: bool) -> None:
    """Raise where there is a NULL that its schema does not have."""
    if array.null_count and not is_nullable:
        row = pc.index(array.is_null(), pa.scalar(True)).as_py()
        raise UnfitValueError(row, where, "is NULL, which its schema does not have")


def _as_list(array: pa.Array) -> pa.Array:
    """Return lists, or maps as the lists of pairs that they are, on the same memory.

    A cast refuses values that have NULLs in a field without NULLs, also where these
    are below a NULL and mean nothing.
    """
    if not _KINDS.is_map(array.type):
        return array
    pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    validity_and_offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(pairs.type),
        len(array),
        validity_and_offsets,
        offset=array.offset,
        children=[pairs],
    )


def _joined(
    array: pa.Array, items: pa.LargeStringArray, begin: str, end: str
) -> pa.LargeStringArray:
    """Return the items of each list as one text; NULL where there is no list."""
    lists = pa.LargeListArray.from_arrays(_offsets(_sizes(array)), items)
    texts = pc.binary_join(lists, pa.scalar(",", _TEXT))
    found = pc.binary_join_element_wise(
        pa.scalar(begin, _TEXT), texts, pa.scalar(end, _TEXT), _NOTHING
    )
    if not array.null_count:
        return found
    return pc.if_else(array.is_valid(), found, pa.scalar(None, _TEXT))


def _sizes(array: pa.Array) -> pa.Int64Array:
    """Return how many items each list, or map, has; 0 for NULL."""
    sizes = pc.list_value_length(_as_list(array)).cast(pa.int64())
    return sizes.fill_null(pa.scalar(0, pa.int64()))


def _offsets(sizes: pa.Int64Array) -> pa.Int64Array:
    """Return where each begins that has so many, and where the last one ends."""
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
