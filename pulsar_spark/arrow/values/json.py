# SPDX-License-Identifier: Apache-2.0
"""Values in JSON, whose schema is AVRO's text.

Clients write JSON in their own ways, and ``json_tokens`` knows them. A field that is
absent is null, as Java leaves nulls out. Null where the writer's schema does not allow
it is the default value of the query's schema; without one it is NULL in a column, and
bad within one that may not be NULL. Fields that no one asked for are skipped, and only
have to be JSON. An empty value is NULL, like a null one.

Most values are read by the compiled loops of ``loops.json_values``. A value with an
unusual token is read on its own, as all values are where the loops are not compiled.

A list of ``{}`` may become far more than its bytes, where a field of its items has a
long default. A value to which defaults may add much is read on its own, and measured
before it becomes columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.values import Decoded, ValueSettings, avro_types
from pulsar_spark.arrow.values.added import MAX_ROW_BYTES, added
from pulsar_spark.arrow.values.avro_plan import empty_column
from pulsar_spark.arrow.values.grown import array, is_null, view
from pulsar_spark.arrow.values.json_plan import (
    FieldNode,
    field_nodes,
    is_larger,
    plan,
    record_of,
)
from pulsar_spark.arrow.values.json_scalars import Node
from pulsar_spark.arrow.values.json_tokens import BadTokenError, bad, load
from pulsar_spark.columns import VALUE
from pulsar_spark.loops import avro
from pulsar_spark.loops import json_values as kernel
from pulsar_spark.schemas.avro import AvroType, Kind, Logical, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, not_unicode

_MOST_BYTES = 2**31 - 1

#: Records without fields by which Java means a moment, a number of milliseconds.
_JAVA_MOMENTS = ("java.util.Date", "java.sql.Date", "java.sql.Timestamp")

_OFFSET = "__AVRO_READ_OFFSET__"


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a record's fields, or ``value`` for another type.

    Raises:
        InvalidSchemaError: The schema cannot be read, or a type has no column.
    """
    try:
        return avro_types.columns_of(parsed(info))
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
    theirs = parsed(writer)
    own = theirs if writer.data == reader.data else parsed(reader)
    codec = settings.json_bytes or "base64"
    offset = _offset(writer)
    if own.kind is not Kind.RECORD:
        other_names = [name for name in wanted.names if name != VALUE]
        if other_names:
            raise InvalidSchemaError(f"there is no field `{other_names[0]}`")
        type_ = wanted.field(0).type if len(wanted) else avro_types.column_type(own)
        node = plan(theirs, own, type_, codec, VALUE)
        item_bytes = added(reader, wanted).item_bytes
        return JsonDecoder(_of_value(node, len(wanted)), offset, item_bytes)
    if theirs.kind is not Kind.RECORD:
        raise InvalidSchemaError(f"{theirs} cannot be read as {own}")
    fields = [field.with_nullable(True) for field in wanted]
    columns = _of_record(field_nodes(theirs, own, fields, codec, ""))
    return JsonDecoder(columns, offset, item_bytes=added(reader, wanted).item_bytes)


def parsed(info: SchemaInfo) -> AvroType:
    """Return the type of a schema, in which moments of Java are moments.

    Raises:
        InvalidSchemaError: The schema cannot be read.
    """
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
        type: A struct of the columns.
        read: Makes the values of a row of a token, not null.
        fill: Makes the kernel's reader into a column of ``type``.
    """

    type: pa.StructType
    read: Callable[[Any], Sequence[Any]]
    fill: Callable[[avro.StructColumn], avro.Reader]


def _of_value(node: Node, columns: int) -> _Columns:
    def fill(column: avro.StructColumn) -> avro.Reader:
        if not column.children:  # there is nowhere to read a value into
            return avro.Fail()
        return avro.ReadRecord(column, [node.fill(column.children[0])])

    type_ = pa.struct([pa.field(VALUE, node.type)] * columns)
    return _Columns(type_, lambda token: [node.read(token)] * columns, fill)


def _of_record(fields: list[FieldNode]) -> _Columns:
    def read(token: Any) -> Sequence[Any]:
        if not isinstance(token, dict):
            raise bad(token, "an object")
        return [node.read(token) for node in fields]

    type_ = pa.struct([node.field for node in fields])
    return _Columns(type_, read, record_of(fields, type_).fill)


class JsonDecoder:
    """Makes the columns of a JSON schema; see ``VersionDecoder``.

    Args:
        columns: How.
        offset: How many bytes stand before each value.
        item_bytes: What defaults may add to each byte of a value, in bytes.

    Attributes:
        rows_alone: How many values were read one by one.
    """

    def __init__(self, columns: _Columns, offset: int, item_bytes: int = 0) -> None:
        self._columns = columns
        self._offset = offset
        #: Values of more bytes are measured.
        self._most_bytes = MAX_ROW_BYTES // item_bytes if item_bytes else _MOST_BYTES
        self._is_compiled = kernel.KERNEL == "compiled"
        column = empty_column(columns.type)
        assert isinstance(column, avro.StructColumn)
        self._column = column
        document = kernel.ReadDocument(column, columns.fill(column), self._most_bytes)
        self._plan = avro.Plan(document, column, offset)
        self.rows_alone = 0

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns; a value that is not JSON of the schema is a bad row."""
        del keys
        if not self._is_compiled:
            return self._one_by_one(values)
        unusual = self._plan.run(*view(values), is_null(values))
        if len(unusual) == len(values):
            return self._one_by_one(values)
        columns = [
            array(column, field)
            for column, field in zip(
                self._column.children, self._columns.type, strict=True
            )
        ]
        if not unusual:
            return Decoded(columns)
        alone = self._one_by_one(values.take(pa.array(unusual, pa.int64())))
        return Decoded(
            [
                pa.concat_arrays(list(_replaced(column, unusual, rows)))
                for column, rows in zip(columns, alone.columns, strict=True)
            ],
            [unusual[row] for row in alone.bad],
            alone.reason,
        )

    def _one_by_one(self, values: pa.BinaryArray) -> Decoded:
        self.rows_alone += len(values)
        rows: list[Sequence[Any]] = []
        bad_rows, reason = [], ""
        types = [field.type for field in self._columns.type]
        nothing = [None] * len(types)
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._row(value) or nothing if value else nothing)
            except BadTokenError as error:
                rows.append(nothing)
                reason = reason or str(error)
                bad_rows.append(row)
        columns = [
            pa.array([row[index] for row in rows], type_)
            for index, type_ in enumerate(types)
        ]
        return Decoded(columns, bad_rows, reason)

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


def _replaced(
    column: pa.Array, rows: Sequence[int], values: pa.Array
) -> Iterator[pa.Array]:
    """Yield the parts of a column, with new values for some rows.

    Args:
        column: The column.
        rows: Which rows, ascending.
        values: The value of each of these rows.
    """
    kept = taken = 0
    index = count()
    for _, group in groupby(rows, lambda row: row - next(index)):
        (first, *others) = group
        size = 1 + len(others)
        yield column.slice(kept, first - kept)
        yield values.slice(taken, size)
        kept, taken = first + size, taken + size
    yield column.slice(kept)
