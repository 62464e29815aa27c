# SPDX-License-Identifier: Apache-2.0
"""The memory that a schema adds to its values: defaults, names of enums, wide items.

A value of one byte may become a text of many: the default of a field that its writer
did not have, or the symbol of an enum. So may an item of a list become a row of very
many columns. Rows are weighed with these before RecordBatches are cut, so that a
RecordBatch has fewer rows where each row is larger.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.schemas.avro import AvroField, AvroType, Kind, parse_avro
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value
from pulsar_spark.schemas.protobuf_native import (
    MessageType,
    ProtobufField,
    parse_protobuf_native,
)
from pulsar_spark.schemas.resolution import default_bytes

#: The most bytes that a schema may add to one row.
MAX_ROW_BYTES = 8 * 2**20

#: So many bytes are not counted for each row, and for each item of a list.
_FREE_ROW_BYTES = 256
_FREE_ITEM_BYTES = 64

#: Columns of an item of a list that are not counted, in bytes of a row of them.
_FREE_WIDTH = 256


class Added(NamedTuple):
    """What a schema adds at most.

    Attributes:
        row_bytes: To each row.
        item_bytes: To each byte of a value; an item of a list has at least one byte.
        item_width: The bytes that columns of such an item take by themselves.
    """

    row_bytes: int = 0
    item_bytes: int = 0
    item_width: int = 0

    def of(self, rows: int, size_bytes: int) -> int:
        """Return the bytes that the schema adds at most to a number of rows."""
        row_bytes = self.row_bytes if self.row_bytes > _FREE_ROW_BYTES else 0
        item_bytes = self.item_bytes if self.item_bytes > _FREE_ITEM_BYTES else 0
        wide = self.item_width // _FREE_WIDTH
        return rows * row_bytes + size_bytes * (item_bytes + wide)


def row_width(type_: pa.DataType) -> int:
    """Return the bytes that a row of this type takes at least."""
    if pa.types.is_struct(type_):
        return sum(row_width(field.type) for field in type_)
    return 16 if pa.types.is_decimal128(type_) else 8


def item_width(type_: pa.DataType) -> int:
    """Return the least bytes of the widest items in lists and maps of a type."""
    if pa.types.is_struct(type_):
        return max((item_width(field.type) for field in type_), default=0)
    if pa.types.is_map(type_):
        item = pa.struct([("key", type_.key_type), ("value", type_.item_type)])
    elif pa.types.is_list(type_):
        item = type_.value_type
    else:
        return 0
    return max(row_width(item), item_width(item))


def added(reader: SchemaInfo, wanted: pa.Schema) -> Added:
    """Return what the schema of a query adds to the values of any version.

    Args:
        reader: The schema of the query.
        wanted: The columns.

    Raises:
        InvalidSchemaError: The schema cannot be read.
    """
    if reader.type in (SchemaType.AVRO, SchemaType.JSON):
        root = parse_avro(reader.data)
        walk = AvroAdded()
        if root.kind is not Kind.RECORD:
            return walk.of_type(root)
        return _sum(
            [
                walk.of_field(field)
                for field in root.fields
                if field.name in wanted.names
            ]
        )
    if reader.type == SchemaType.PROTOBUF_NATIVE:
        message = parse_protobuf_native(reader.data)
        types = _Protobuf()
        return _sum(
            [
                types.of_field(field)
                for field in message.fields
                if field.name in wanted.names
            ]
        )
    if reader.type == SchemaType.KEY_VALUE:
        parts = parse_key_value(reader)
        return _sum(
            [
                added(part, _fields(wanted.field(name).type))
                for name, part in (("key", parts.key), ("value", parts.value))
                if name in wanted.names
            ]
        )
    return Added()


def _fields(type_: pa.DataType) -> pa.Schema:
    return pa.schema(list(type_) if pa.types.is_struct(type_) else [])


def _sum(parts: list[Added]) -> Added:
    return Added(
        sum(part.row_bytes for part in parts),
        max((part.item_bytes for part in parts), default=0),
    )


def _largest(parts: list[Added]) -> Added:
    return Added(
        max((part.row_bytes for part in parts), default=0),
        max((part.item_bytes for part in parts), default=0),
    )


def _item(part: Added) -> Added:
    return Added(0, max(part))


class AvroAdded:
    """What types of AVRO add, each looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, Added] = {}

    def of_type(self, type_: AvroType) -> Added:
        """Return the bytes that a type adds to each row that has the type."""
        added = self._known.get(id(type_))
        if added is None:
            self._known[id(type_)] = Added()  # a record in itself has no columns
            added = self._known[id(type_)] = self._of_type(type_)
        return added

    def of_field(self, field: AvroField) -> Added:
        """Return the bytes that a field adds to its record."""
        # A field is either there, or its default is.
        return _largest([Added(default_bytes(field)), self.of_type(field.type)])

    def _of_type(self, type_: AvroType) -> Added:
        if type_.kind is Kind.RECORD:
            return _sum([self.of_field(part) for part in type_.fields])
        if type_.kind is Kind.UNION:
            return _largest([self.of_type(part) for part in type_.branches])
        if type_.items is not None:
            return _item(self.of_type(type_.items))
        return Added(
            max(
                (len(part.encode("utf-8", "replace")) for part in type_.symbols),
                default=0,
            )
        )


class _Protobuf:
    """What messages add, each looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, Added] = {}

    def of_field(self, field: ProtobufField) -> Added:
        default = field.default
        texts = [default] if isinstance(default, (str, bytes)) else []
        own = Added(max(map(len, [*texts, *field.symbols.values()]), default=0))
        if field.message is not None:
            own = self._of_message(field.message)
        return _item(own) if field.is_repeated else own

    def _of_message(self, message: MessageType) -> Added:
        added = self._known.get(id(message))
        if added is None:
            self._known[id(message)] = Added()
            added = _sum([self.of_field(field) for field in message.fields])
            self._known[id(message)] = added
        return added
