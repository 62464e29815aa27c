# SPDX-License-Identifier: Apache-2.0
"""Values in JSON, whose schema is AVRO's text.

Clients write JSON in their own ways, and ``json_tokens`` knows them. A field that is
absent is null, as Java leaves nulls out. Null where the writer's schema does not allow
it is the default value of the query's schema; without one it is NULL in a column, and
bad within one that may not be NULL. Fields that no one asked for are skipped, and only
have to be JSON. An empty value is NULL, like a null one.

Most values are read by Arrow's own parser, together. It knows no borders of messages,
so each is wrapped, in its own line::

    {"v":[[[[[  value  ]]]]]}

That the parser finds as many lines, and in each of these arrays one item, proves that
each value is one of JSON, and that no row is shifted. For a value could only end its
wrapper if it had five such brackets in a row, and within a text there is no line's end:
where there are five, the parser is not asked. Where anything is unusual, the values are
read one by one, and so are few, for which the parser takes longer.

A list of ``{}`` may become far more than its bytes, where a field of its items has a
long default. A value to which defaults may add much is read on its own, and measured
before it becomes columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pulsar_spark.arrow.values import Decoded, ValueSettings, avro_types
from pulsar_spark.arrow.values.added import MAX_ROW_BYTES, added
from pulsar_spark.arrow.values.json_plan import (
    FieldNode,
    field_nodes,
    is_larger,
    plan,
    record_of,
)
from pulsar_spark.arrow.values.json_scalars import Node, UnusualError
from pulsar_spark.arrow.values.json_tokens import BadTokenError, bad, load
from pulsar_spark.columns import VALUE
from pulsar_spark.schemas.avro import AvroType, Kind, Logical, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, not_unicode

#: The arrays around a value: more than any value ends together.
_ARRAYS = 5
_HEAD = b'{"v":' + _ARRAYS * b"["
_TAIL = _ARRAYS * b"]" + b"}\n"
_END = _ARRAYS * b"]"
_WHITE_SPACE = b" \t\r\n"

#: How many values are parsed together: as many as a processor's cache has room for.
_ROWS_TOGETHER = 16_384
_BYTES_TOGETHER = 4 * 2**20
_MOST_BYTES = 2**31 - 4096

#: How many are parsed again where the parser gave up on more.
_PIECE = 512

#: Up to so many values are read faster one by one: a call of the parser takes a while.
_FEW = 64

#: Values with more brackets may be nested more deeply than Python reads them. Shorter
#: ones do not have as many.
_MOST_BRACKETS = 400

#: Of a number of 128 bits.
_DECIMAL_DIGITS = 38

#: What the parser, or what is made of its arrays, raises for unusual values.
_UNUSUAL = (
    UnusualError,
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
)

#: Records without fields by which Java means a moment, a number of milliseconds.
_JAVA_MOMENTS = ("java.util.Date", "java.sql.Date", "java.sql.Timestamp")

_OFFSET = "__AVRO_READ_OFFSET__"


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a record's fields, or ``value`` for another type.

    Raises:
        InvalidSchemaError: The schema cannot be read, or a type has no column.
    """
    try:
        return avro_types.columns_of(_parsed(info))
    except UnicodeEncodeError:
        raise not_unicode() from None


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> JsonDecoder:
    """Return what makes columns of values that were written with ``writer``.

    Raises:
        InvalidSchemaError: They cannot be made.
    """
    try:
        return _decoder(writer, reader, wanted, settings)
    except UnicodeEncodeError:
        raise not_unicode() from None


def _decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> JsonDecoder:
    if writer.type != reader.type:
        raise InvalidSchemaError(
            f"{writer.type_name} cannot be read as {reader.type_name}"
        )
    theirs, own = _parsed(writer), _parsed(reader)
    codec = settings.json_bytes or "base64"
    offset = _offset(writer)
    if own.kind is not Kind.RECORD:
        other_names = [name for name in wanted.names if name != VALUE]
        if other_names:
            raise InvalidSchemaError(f"there is no field `{other_names[0]}`")
        type_ = wanted.field(0).type if len(wanted) else avro_types.column_type(own)
        node = plan(theirs, own, type_, codec, VALUE)
        item_bytes = added(reader, wanted).item_bytes
        return JsonDecoder(_of_value(node, len(wanted)), offset, item_bytes=item_bytes)
    if theirs.kind is not Kind.RECORD:
        raise InvalidSchemaError(f"{theirs} cannot be read as {own}")
    fields = [field.with_nullable(True) for field in wanted]
    columns = _of_record(field_nodes(theirs, own, fields, codec, ""))
    return JsonDecoder(columns, offset, item_bytes=added(reader, wanted).item_bytes)


def _parsed(info: SchemaInfo) -> AvroType:
    root = parse_avro(info.data)
    seen: set[int] = set()
    types = [root]
    while types:
        type_ = types.pop()
        if id(type_) in seen:
            continue
        seen.add(id(type_))
        if type_.name in _JAVA_MOMENTS and not type_.fields:
            type_.kind, type_.logical = Kind.LONG, Logical.TIMESTAMP_MILLIS
        types += [field.type for field in type_.fields]
        types += [*type_.branches, *([type_.items] if type_.items else [])]
    return root


def _offset(info: SchemaInfo) -> int:
    """Return how many bytes stand before each value."""
    text = info.properties.get(_OFFSET) or "0"
    if not text.isdecimal() or len(text) > 9:
        raise InvalidSchemaError(f"its property {_OFFSET} is no number")
    return int(text)


class _Columns(NamedTuple):
    """How values become columns.

    Attributes:
        types: Of the columns.
        read: Makes the values of a row of a token, not null.
        parsed: The type as which Arrow's parser reads a value; None if it cannot.
        finish: Makes the columns of an array of that type.
    """

    types: Sequence[pa.DataType]
    read: Callable[[Any], Sequence[Any]]
    parsed: pa.DataType | None
    finish: Callable[[pa.Array], Sequence[pa.Array]]


def _of_value(node: Node, columns: int) -> _Columns:
    return _Columns(
        [node.type] * columns,
        lambda token: [node.read(token)] * columns,
        node.parsed,
        lambda array: [node.finish(array)] * columns,
    )


def _of_record(fields: list[FieldNode]) -> _Columns:
    record = record_of(fields, pa.struct([node.field for node in fields]))

    def read(token: Any) -> Sequence[Any]:
        if not isinstance(token, dict):
            raise bad(token, "an object")
        return [node.read(token) for node in fields]

    types = [node.field.type for node in fields]
    # With the nulls of the records themselves.
    return _Columns(
        types, read, record.parsed, lambda array: record.finish(array).flatten()
    )


class _Part(NamedTuple):
    """Columns of some values, and the bad rows, numbered from 0."""

    columns: Sequence[pa.Array]
    rows: int
    bad: Sequence[int] = ()
    reason: str = ""


class JsonDecoder:
    """Makes the columns of a JSON schema; see ``VersionDecoder``.

    Args:
        columns: How.
        offset: How many bytes stand before each value.
        few: This many values are read one by one at once.
        item_bytes: What defaults may add to each byte of a value, in bytes.

    Attributes:
        rows_together: How many values were read together.
        rows_alone: How many one by one.
    """

    def __init__(
        self, columns: _Columns, offset: int, few: int = _FEW, item_bytes: int = 0
    ) -> None:
        self._columns = columns
        self._offset = offset
        self._few = few
        #: Values of more bytes are measured.
        self._most_bytes = MAX_ROW_BYTES // item_bytes if item_bytes else _MOST_BYTES
        self._unsafe_number = _unsafe_number(columns.parsed)
        self.rows_together = self.rows_alone = 0

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns; a value that is not JSON of the schema is a bad row."""
        del keys
        present = pc.greater(pc.binary_length(values), 0).fill_null(False)
        rows = pc.indices_nonzero(present)
        is_whole = len(rows) == len(values)
        present_values = values if is_whole else values.filter(present)
        part = _joined(list(self._parts(present_values)), self._columns.types)
        columns, bad_rows = part.columns, part.bad
        if not is_whole:
            numbers = pc.cumulative_sum(present.cast(pa.int32()))
            places = pc.if_else(present, pc.subtract(numbers, 1), None)
            columns = [column.take(places) for column in columns]
            bad_rows = [rows[row].as_py() for row in bad_rows]
        return Decoded(columns, bad_rows, part.reason)

    def _parts(self, values: pa.BinaryArray) -> Iterator[_Part]:
        start = 0
        while start < len(values):
            count = min(_ROWS_TOGETHER, len(values) - start)
            while count > 1 and _size(values.slice(start, count)) > _BYTES_TOGETHER:
                count //= 2
            yield from self._pieces(values.slice(start, count))
            start += count

    def _pieces(self, values: pa.BinaryArray) -> Iterator[_Part]:
        """Yield the columns of values: of all, or in pieces if the parser gives up."""
        part = self._together(values)
        if part is not None:
            yield part
        elif len(values) <= _PIECE or self.rows_alone > self.rows_together:
            yield self._one_by_one(values)
        else:
            for start in range(0, len(values), _PIECE):
                piece = values.slice(start, _PIECE)
                yield self._together(piece) or self._one_by_one(piece)

    def _together(self, values: pa.BinaryArray) -> _Part | None:
        """Return the columns of values; None if they must be read singly."""
        if self._columns.parsed is None or len(values) <= self._few:
            return None
        try:
            columns = self._columns.finish(self._parse(values))
        except _UNUSUAL:
            return None
        self.rows_together += len(values)
        return _Part(columns, len(values))

    def _parse(self, values: pa.BinaryArray) -> pa.Array:
        """Parse values with Arrow; no value is NULL or empty.

        Raises:
            UnusualError: One of them could mislead it.
            pa.ArrowInvalid: One of them is not of the type.
        """
        if self._offset:
            values = pc.binary_slice(values, self._offset)
        values.cast(pa.string())  # or raises: it must be UTF-8
        count = len(values)
        if pc.max(pc.binary_length(values)).as_py() > self._most_bytes:
            raise UnusualError
        _, offsets, data = values.buffers()
        first, last = _bounds(values, offsets)
        if last - first > _MOST_BYTES - count * len(_HEAD + _TAIL):
            raise UnusualError
        if _END in bytes(memoryview(data)[first:last]).translate(None, _WHITE_SPACE):
            raise UnusualError
        _check_depth(values)
        if self._unsafe_number:
            is_unsafe = pc.match_substring_regex(values, self._unsafe_number)
            if pc.any(is_unsafe).as_py():
                raise UnusualError
        lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)
        lines = _HEAD + pc.binary_join(lists, _TAIL + _HEAD)[0].as_py() + _TAIL
        return _unwrapped(_parse_lines(lines, self._columns.parsed), count)

    def _one_by_one(self, values: pa.BinaryArray) -> _Part:
        self.rows_alone += len(values)
        rows: list[Sequence[Any]] = []
        bad_rows, reason = [], ""
        nothing = [None] * len(self._columns.types)
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._row(value) or nothing)
            except BadTokenError as error:
                rows.append(nothing)
                reason = reason or str(error)
                bad_rows.append(row)
        columns = [
            pa.array([row[index] for row in rows], type_)
            for index, type_ in enumerate(self._columns.types)
        ]
        return _Part(columns, len(values), bad_rows, reason)

    def _row(self, value: bytes) -> Sequence[Any] | None:
        """Return a row; None for null."""
        try:
            text = value[self._offset :].decode()
        except UnicodeDecodeError:
            raise BadTokenError("it is not UTF-8") from None
        token = load(text)
        if token is None:
            return None
        row = self._columns.read(token)
        if len(value) > self._most_bytes and is_larger(
            row, len(value) + MAX_ROW_BYTES // 8, len(value) + MAX_ROW_BYTES
        ):
            raise BadTokenError(
                "the defaults of fields that its items do not have would add more than "
                f"{MAX_ROW_BYTES:,} bytes to it"
            )
        return row


def _bounds(values: pa.BinaryArray, offsets: pa.Buffer) -> tuple[int, int]:
    """Return where the values begin and end in their buffer."""
    (first,) = struct.unpack_from("=i", offsets, 4 * values.offset)
    (last,) = struct.unpack_from("=i", offsets, 4 * (values.offset + len(values)))
    return first, last


def _size(values: pa.BinaryArray) -> int:
    first, last = _bounds(values, values.buffers()[1])
    return last - first


def _check_depth(values: pa.BinaryArray) -> None:
    """Raise if a value may be nested too deeply for the reader of single values."""
    if pc.max(pc.binary_length(values)).as_py() <= 2 * _MOST_BRACKETS:
        return
    brackets = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
    if pc.max(brackets).as_py() > _MOST_BRACKETS:
        raise UnusualError


def _unsafe_number(type_: pa.DataType | None) -> str:
    """Return a pattern of values that may hold a number unsafe as a decimal.

    Arrow's parser does not check a decimal before it moves the point: by an exponent
    below -38 it reads memory that is not its own, and of digits that leave 128 bits it
    makes another number (apache/arrow#50964). Arrow reads decimals in quotes, too,
    where a number may begin with a point, and JSON may spell its characters by their
    codes. Another text may match, too, and only costs time.

    Args:
        type_: As which the parser reads values; None if it does not.

    Returns:
        A regular expression; "" where no part of the type is a decimal.
    """
    scale = -1 if type_ is None else _largest_scale(type_)
    if scale < 0:
        return ""
    start, end = "(?:^|[^0-9A-Za-z._+-])", "(?:[^0-9A-Za-z._+-]|$)"
    unsafe = [
        rf"{start}[+-]?[0-9]*\.?[0-9]*[eE][+-]?[0-9]+{end}",
        rf"(?:^|[^0-9.])0*[1-9][0-9]{{{_DECIMAL_DIGITS - scale},}}",
        rf"\.[0-9]{{{_DECIMAL_DIGITS + 1},}}",
        r"\\u00(?:2[bBdDeE]|3[0-9]|[46]5)",  # of + - . 0 to 9 E e
    ]
    return "|".join(unsafe)


def _largest_scale(type_: pa.DataType) -> int:
    """Return the largest scale of a type's decimals; -1 where no part is a decimal."""
    if pa.types.is_decimal(type_):
        return int(type_.scale)
    fields = [type_.field(index) for index in range(type_.num_fields)]
    return max((_largest_scale(field.type) for field in fields), default=-1)


def _parse_lines(lines: bytes, type_: pa.DataType) -> pa.ChunkedArray:
    for _ in range(_ARRAYS):
        type_ = pa.list_(type_)
    table = pyarrow.json.read_json(
        pa.BufferReader(lines),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", type_)]),
            unexpected_field_behavior="ignore",
        ),
    )
    return table.column(0)


def _unwrapped(column: pa.ChunkedArray, count: int) -> pa.Array:
    """Return the values inside arrays; each array must hold a single value."""
    if column.num_chunks != 1 or len(column) != count:
        raise UnusualError
    array = column.chunk(0)
    for _ in range(_ARRAYS):
        least_most = pc.min_max(pc.list_value_length(array)).as_py()
        if array.null_count or least_most != {"min": 1, "max": 1}:
            raise UnusualError
        array = array.flatten()
    return array


def _joined(parts: list[_Part], types: Sequence[pa.DataType]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    columns: list[list[pa.Array]] = [[pa.array([], item)] for item in types]
    bad_rows: list[int] = []
    reason, rows = "", 0
    for part in parts:
        for column, array in zip(columns, part.columns, strict=True):
            column.append(array)
        bad_rows += [rows + row for row in part.bad]
        reason = reason or part.reason
        rows += part.rows
    return _Part([pa.concat_arrays(item) for item in columns], rows, bad_rows, reason)
