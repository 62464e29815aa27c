# SPDX-License-Identifier: Apache-2.0
"""Columns -> values in JSON, a column at a time.

What the official clients of Java and Python both read: NULL is written, not left out;
decimals are numbers with all their digits; days are integers. Moments, times, bytes and
NaN have the form that the owner of the schema reads: see ``json_form``.

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
from pulsar_spark.arrow.values.avro_encoder import is_nullable, is_whole
from pulsar_spark.arrow.values.avro_parts import (
    check_text,
    in_unit,
    plan,
    plan_branch,
    record_plan,
    rows_of_items,
)
from pulsar_spark.arrow.values.avro_text import is_bytes, is_text
from pulsar_spark.arrow.values.json_form import JsonForm
from pulsar_spark.arrow.values.json_tokens import exact, family, far_moment
from pulsar_spark.arrow.values.json_unions import (
    earlier_branch,
    has_floats,
    is_text_of_java,
    without_null,
)
from pulsar_spark.loops.avro_write import UNFIT, UnfitValueError
from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroType,
    Kind,
    Logical,
    nullable,
)
from pulsar_spark.schemas.info import InvalidSchemaError, UnfitColumnsError
from pulsar_spark.schemas.resolution import encode_default
from spark_topics.text import is_unicode

#: Makes the JSON text of each row; NULL stays NULL.
_Texts = Callable[[pa.Array], pa.LargeStringArray]
#: Makes it of the columns of a record.
_Join = Callable[[Sequence[pa.Array]], pa.LargeStringArray]

_OF_SPARK = JsonForm()

_TEXT = pa.large_string()
_KINDS = pa.types
_NULL = pa.scalar("null", _TEXT)
_NOTHING = pa.scalar("", _TEXT)
_QUOTE = pa.scalar('"', _TEXT)

#: What a string of JSON does not hold as it is.
_ESCAPED = r'["\\\x00-\x1f]'


class JsonEncoder:
    """Makes JSON values from columns, with the same columns as ``AvroEncoder``.

    Args:
        root: The schema.
        schema: The columns.
        form: In which form moments, times, bytes and NaN are.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Raises:
        InvalidSchemaError: The columns do not fit the schema, or no one says the form.
    """

    def __init__(
        self,
        root: AvroType,
        schema: pa.Schema,
        form: JsonForm = _OF_SPARK,
        *,
        is_part: bool = False,
    ) -> None:
        self.columns = tuple(schema.names)
        self._texts = _root(root, schema, form, is_part=is_part)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value of each row.

        Raises:
            UnfitValueError: A row does not fit the schema.
        """
        return EncodedValues(self._texts(columns).cast(pa.large_binary()))


def _root(root: AvroType, schema: pa.Schema, form: JsonForm, *, is_part: bool) -> _Join:
    fields = list(schema)
    if is_whole(root, fields, is_part=is_part):
        plan(root, fields[0].type, fields[0].name)  # for what does not fit
        texts = _plan(root, fields[0].type, fields[0].name, form)
        return lambda columns: texts(columns[0])
    record_plan(root, fields)
    if is_nullable(root, schema, is_part=is_part):
        in_record = _struct(root, pa.struct(fields), "", form)
        return lambda columns: in_record(
            pa.StructArray.from_arrays(
                columns[:1], fields=fields, mask=columns[0].is_null()
            )
        )
    return _record(root, fields, "", form)


def _record(
    type_: AvroType, fields: Sequence[pa.Field], where: str, form: JsonForm
) -> _Join:
    """Return the function that joins fields; missing columns get the default."""
    types = {field.name: field.type for field in type_.fields}
    members: list[tuple[pa.Scalar, _Texts, bool, str]] = []
    for index, field in enumerate(fields):
        path = f"{where}.{field.name}" if where else field.name
        name = json.dumps(field.name, ensure_ascii=False)
        before = pa.scalar(f"{',' if index else '{'}{name}:", _TEXT)
        _, is_nullable = nullable(types[field.name])
        texts = _plan(types[field.name], field.type, path, form)
        members.append((before, texts, is_nullable, path))
    names = {field.name for field in fields}
    ends = [
        f"{json.dumps(own.name)}:{_default(own.type, own.default, own.name, form)}"
        for own in type_.fields
        if own.name not in names
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


def _default(type_: AvroType, default: Any, where: str, form: JsonForm) -> str:
    """Return a default in the form of values; the default's type was checked before."""
    if default is NO_DEFAULT:
        return "null"
    if type_.kind is Kind.UNION:
        return _default(_branch_of(type_, default), default, where, form)
    if type_.kind in (Kind.BYTES, Kind.FIXED):
        data = default.encode("latin-1")
        if type_.logical is not Logical.DECIMAL:
            return _text_of(_bytes(type_, where, form), pa.array([data]))
        return format(exact(int.from_bytes(data, "big", signed=True), type_.scale), "f")
    members: list[tuple[str, str]] = []
    if type_.kind is Kind.RECORD:
        members = [
            (
                part.name,
                _default(part.type, default.get(part.name, part.default), *rest),
            )
            for part in type_.fields
            for rest in [(f"{where}.{part.name}", form)]
        ]
    elif type_.kind in (Kind.ARRAY, Kind.MAP):
        assert type_.items is not None
        inner = type_.items
        if type_.kind is Kind.ARRAY:
            items = [_default(inner, part, where, form) for part in default]
            return f"[{','.join(items)}]"
        members = [
            (key, _default(inner, part, where, form)) for key, part in default.items()
        ]
    else:
        return _default_of_leaf(type_, default, where, form)
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in members)}}}"


def _default_of_leaf(type_: AvroType, default: Any, where: str, form: JsonForm) -> str:
    if type_.kind in (Kind.INT, Kind.LONG):  # 1.0 is one
        number = pa.array([int(default)], pa.int64())
        return _text_of(_numbers(type_, number.type, where, form), number)
    if type_.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _text_of(_floats(type_, form), pa.array([float(default)]))
    return json.dumps(default)


def _text_of(texts: _Texts, default: pa.Array) -> str:
    try:
        return str(texts(default)[0].as_py())
    except UnfitValueError as error:
        raise InvalidSchemaError(
            f"the default of `{error.where}` {error.text}"
        ) from None


def _branch_of(union: AvroType, default: Any) -> AvroType:
    """Return the first branch of which a default is a value."""
    for branch in union.branches:
        try:
            encode_default(branch, default, "")
        except InvalidSchemaError:
            continue
        return branch
    raise AssertionError(default)


def _or_null(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    return texts.fill_null(_NULL) if texts.null_count else texts


def _plan(type_: AvroType, column: pa.DataType, where: str, form: JsonForm) -> _Texts:
    """Return the function that makes texts of a column; the type was checked before."""
    type_ = without_null(type_)
    if type_.kind is Kind.UNION:
        return _branch(type_, column, where, form)
    if _KINDS.is_struct(column):
        return _struct(type_, column, where, form)
    if _KINDS.is_map(column) or _KINDS.is_list(column) or _KINDS.is_large_list(column):
        return _items(type_, column, where, form)
    if is_text(column):
        return _texts(type_, where)
    if is_bytes(column):
        return _bytes(type_, where, form)
    if type_.kind in (Kind.FLOAT, Kind.DOUBLE):
        return _floats(type_, form)
    if _KINDS.is_boolean(column) or _KINDS.is_decimal(column):
        return lambda array: array.cast(pa.string()).cast(_TEXT)
    return _numbers(type_, column, where, form)


def _branch(union: AvroType, column: pa.DataType, where: str, form: JsonForm) -> _Texts:
    """Plan the branch of a union that a column fits, if a read takes that branch."""
    number, _ = plan_branch(union, column, where)
    branch = union.branches[number]
    texts = _plan(branch, column, where, form)
    is_of_java = form.times_are_texts
    earlier = earlier_branch(union, branch, times_are_texts=is_of_java)
    if earlier is not None:
        raise UnfitColumnsError(
            f"`{where}` would be {branch}, and JSON does not say which type of"
            f" {union} a value has: a read takes it for {earlier}"
        )
    if branch.kind in (Kind.FLOAT, Kind.DOUBLE) or not has_floats(union.branches):
        return texts

    def checked(array: pa.Array) -> pa.LargeStringArray:
        made = texts(array)
        fits = pc.invert(pc.is_in(made, _NAMES))
        _check(
            fits, where, "is the name of a number, which a read takes for the number"
        )
        return made

    return checked


#: Of numbers that JSON has not, as texts.
_NAMES = pa.array(['"NaN"', '"Infinity"', '"-Infinity"'], _TEXT)


#: Logical types by their unit; all others count microseconds.
_MILLIS = {
    Logical.TIMESTAMP_MILLIS,
    Logical.LOCAL_TIMESTAMP_MILLIS,
    Logical.TIME_MILLIS,
}
_NANOS = {Logical.TIMESTAMP_NANOS, Logical.LOCAL_TIMESTAMP_NANOS}


def _numbers(
    type_: AvroType, column: pa.DataType, where: str, form: JsonForm
) -> _Texts:
    """Plan numbers, and days, moments and times in the unit of their schema."""
    divisor, factor, raw = 1, 1, pa.int64()
    if _KINDS.is_time(column):
        divisor = 1_000_000 if type_.logical in _MILLIS else 1_000
    elif _KINDS.is_timestamp(column):
        divisor = 1_000 if type_.logical in _MILLIS else 1
        factor = 1_000 if type_.logical in _NANOS else 1
    elif _KINDS.is_date(column):
        raw = pa.int32()
    as_texts: _Texts = _as_it_is
    if form.times_are_texts and is_text_of_java(type_):
        assert type_.logical is not None
        as_texts = _iso(type_.logical, where)

    def texts(array: pa.Array) -> pa.LargeStringArray:
        if _KINDS.is_time(column):
            array = array.cast(pa.time64("ns"))
        numbers = in_unit(array.cast(raw), divisor, factor)
        if factor > 1:
            is_unfit = pc.equal(numbers, pa.scalar(UNFIT, pa.int64()))
            if (row := pc.index(is_unfit, pa.scalar(True)).as_py()) >= 0:
                raise UnfitValueError(row, where, "is no number of nanoseconds")
        return as_texts(numbers)

    return texts


def _as_it_is(numbers: pa.Array) -> pa.LargeStringArray:
    return numbers.cast(_TEXT)


def _iso(logical: Logical, where: str) -> _Texts:
    """Plan numbers of a schema's unit as texts of ISO 8601."""
    unit = "ms" if logical in _MILLIS else "ns" if logical in _NANOS else "us"
    if family(logical) == "time":
        return lambda numbers: _iso_times(numbers, unit, where)
    zone = "Z" if family(logical) == "timestamp" else ""
    end = pa.scalar(f'{zone}"', _TEXT)

    def texts(numbers: pa.Int64Array) -> pa.LargeStringArray:
        is_usual = _have_four_digits(numbers, unit)
        usual = pc.if_else(is_usual, numbers, pa.scalar(0, pa.int64()))
        moments = usual.cast(pa.timestamp(unit)).cast(pa.string()).cast(_TEXT)
        moments = pc.binary_replace_slice(moments, 10, 11, "T")
        if is_usual.false_count:
            is_far = pc.invert(is_usual)
            far = [
                far_moment(moment, unit)
                for moment in numbers.filter(is_far).to_pylist()
            ]
            moments = pc.replace_with_mask(moments, is_far, pa.array(far, _TEXT))
        return pc.binary_join_element_wise(_QUOTE, moments, end, _NOTHING)

    return texts


def _have_four_digits(numbers: pa.Int64Array, unit: str) -> pa.BooleanArray:
    """Return whether the year of each moment has four digits, as most have; or NULL."""
    if unit == "ns":  # all that 64 bits hold
        return pa.repeat(pa.scalar(True), len(numbers))
    first, end = (
        pa.scalar(year * _SECONDS[unit], pa.int64()) for year in (_YEAR_0, _YEAR_10000)
    )
    have = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
    return have.fill_null(pa.scalar(True))


_SECONDS = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}

#: The first seconds of years that ISO 8601 writes in four digits, and of all others.
_YEAR_0, _YEAR_10000 = -62_167_219_200, 253_402_300_800


def _iso_times(numbers: pa.Int64Array, unit: str, where: str) -> pa.LargeStringArray:
    last = pa.scalar(86_400 * _SECONDS[unit] - 1, pa.int64())
    is_time = pc.and_(
        pc.greater_equal(numbers, pa.scalar(0, pa.int64())),
        pc.less_equal(numbers, last),
    )
    _check(is_time.fill_null(pa.scalar(True)), where, "is no time of a day")
    time = pa.time64("us")
    if unit == "ms":
        numbers, time = numbers.cast(pa.int32()), pa.time32("ms")
    texts = numbers.cast(time).cast(pa.string()).cast(_TEXT)
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)


#: Floats that clients, and reads of a union, take for integers without a point.
_WITHOUT_POINT = r"^-?[0-9]+$"


def _floats(type_: AvroType, form: JsonForm) -> _Texts:
    own = pa.float32() if type_.kind is Kind.FLOAT else pa.float64()
    quote = '"' if form.quotes_nan else ""
    nan, infinity, minus_infinity = (
        pa.scalar(f"{quote}{name}{quote}", _TEXT)
        for name in ("NaN", "Infinity", "-Infinity")
    )

    def texts(array: pa.Array) -> pa.LargeStringArray:
        array = array.cast(own)
        texts = array.cast(_TEXT)
        if pc.equal(pc.trunc(array), array).true_count:
            texts = pc.replace_substring_regex(texts, _WITHOUT_POINT, r"\0.0")
        is_odd = pc.invert(pc.is_finite(array)).fill_null(pa.scalar(False))
        if not is_odd.true_count:
            return texts
        is_positive = pc.greater(array, pa.scalar(0, array.type))
        infinities = pc.if_else(is_positive, infinity, minus_infinity)
        names = pc.if_else(pc.is_nan(array), nan, infinities)
        return pc.if_else(is_odd, names, texts)

    return texts


def _texts(type_: AvroType, where: str) -> _Texts:
    if type_.kind is not Kind.ENUM:
        return lambda array: _strings(array, where)
    symbols = pa.array(filter(is_unicode, type_.symbols), pa.string())

    def texts(array: pa.Array) -> pa.LargeStringArray:
        strings = _strings(array, where)
        is_known = pc.is_in(array.cast(pa.string()), symbols)
        _check(pc.or_(is_known, array.is_null()), where, "is no symbol of its schema")
        return strings

    return texts


def _bytes(type_: AvroType, where: str, form: JsonForm) -> _Texts:
    if not form.codec:
        raise InvalidSchemaError(
            f"`{where}` is of bytes, and the schema does not say how its clients hold"
            " them in JSON: set jsonBytes=base64, as Java's client does, or"
            " jsonBytes=utf8, as Python's"
        )
    packed = _base64 if form.codec == "base64" else lambda array: _utf8(array, where)
    if type_.kind is not Kind.FIXED:
        return packed

    def texts(array: pa.Array) -> pa.LargeStringArray:
        sizes = pc.binary_length(array)
        fits = pc.equal(sizes, pa.scalar(type_.size, sizes.type))
        fits = fits.fill_null(pa.scalar(True))
        _check(fits, where, f"does not have {type_.size} bytes")
        return packed(array)

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
    texts = [
        None if text is None else binascii.b2a_base64(text, newline=False).decode()
        for text in array.to_pylist()
    ]
    quoted = pa.array(texts, _TEXT)
    return pc.binary_join_element_wise(_QUOTE, quoted, _QUOTE, _NOTHING)


def _utf8(array: pa.Array, where: str) -> pa.LargeStringArray:
    """Return bytes as text; raise for bytes that are not UTF-8."""
    return _strings(array.cast(pa.large_binary()).view(_TEXT), where)


def _struct(type_: AvroType, column: pa.DataType, where: str, form: JsonForm) -> _Texts:
    join = _record(type_, list(column), where, form)

    def texts(array: pa.StructArray) -> pa.LargeStringArray:
        if not column.num_fields:  # all rows have the same text, which is a scalar
            return pc.if_else(array.is_valid(), join([]), pa.scalar(None, _TEXT))
        if not array.null_count:
            return join([array.field(index) for index in range(column.num_fields)])
        # A NULL may lie above anything: only what is there is looked at.
        is_there = array.is_valid()
        present_rows = array.filter(is_there)
        with rows_of_items(_offsets(is_there.cast(pa.int64()))):
            joined = join(
                [present_rows.field(index) for index in range(column.num_fields)]
            )
        nothing = pa.nulls(len(array), _TEXT)
        return pc.replace_with_mask(nothing, is_there, joined)

    return texts


def _items(type_: AvroType, column: pa.DataType, where: str, form: JsonForm) -> _Texts:
    """Plan a list, or a map, in which a name is before each item."""
    assert type_.items is not None
    is_map = _KINDS.is_map(column)
    begin, end = "{}" if is_map else "[]"
    where = f"{where}{begin}{end}"
    item = column.item_type if is_map else column.value_type
    items = _plan(type_.items, item, where, form)
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
            joined = _or_null(items(inner))
        if names:
            joined = pc.binary_join_element_wise(*names, joined, _NOTHING)
        return _joined(array, joined, begin, end)

    return texts


def _check_null(array: pa.Array, where: str, *, is_nullable: bool) -> None:
    """Raise for a NULL that the schema does not allow."""
    if array.null_count and not is_nullable:
        row = pc.index(array.is_null(), pa.scalar(True)).as_py()
        raise UnfitValueError(row, where, "is NULL, which its schema does not have")


def _as_list(array: pa.Array) -> pa.Array:
    """Return lists, or maps as lists of pairs, on the same memory.

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
    """Return the items of each list as a text; NULL for a NULL list."""
    lists = pa.LargeListArray.from_arrays(_offsets(_sizes(array)), items)
    texts = pc.binary_join(lists, pa.scalar(",", _TEXT))
    joined = pc.binary_join_element_wise(
        pa.scalar(begin, _TEXT), texts, pa.scalar(end, _TEXT), _NOTHING
    )
    if not array.null_count:
        return joined
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, _TEXT))


def _sizes(array: pa.Array) -> pa.Int64Array:
    """Return how many items each list, or map, has; 0 for NULL."""
    sizes = pc.list_value_length(_as_list(array)).cast(pa.int64())
    return sizes.fill_null(pa.scalar(0, pa.int64()))


def _offsets(sizes: pa.Int64Array) -> pa.Int64Array:
    """Return list offsets from list sizes."""
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
