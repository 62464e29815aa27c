# SPDX-License-Identifier: Apache-2.0
"""Protobuf's types as columns.

The well-known types are messages like any other: a ``google.protobuf.Timestamp`` is a
STRUCT of seconds and nanos, as its descriptor says.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pulsar_spark.arrow.values.together import distinct
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.protobuf_native import Kind, MessageType, ProtobufField

#: Enough for any topic; a few messages, each with some fields of the next, have far
#: more columns than fields.
_MAX_COLUMNS = 20_000
_MAX_DEPTH = 64

#: By kind. Numbers without a sign take the next wider type of Spark's.
TYPES = {
    Kind.DOUBLE: pa.float64(),
    Kind.FLOAT: pa.float32(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.decimal128(20, 0),
    Kind.INT32: pa.int32(),
    Kind.FIXED64: pa.decimal128(20, 0),
    Kind.FIXED32: pa.int64(),
    Kind.BOOL: pa.bool_(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.UINT32: pa.int64(),
    Kind.ENUM: pa.string(),
    Kind.SFIXED32: pa.int32(),
    Kind.SFIXED64: pa.int64(),
    Kind.SINT32: pa.int32(),
    Kind.SINT64: pa.int64(),
}


def columns_of_message(root: MessageType) -> pa.Schema:
    """Return the columns of a message: its fields.

    All of them are nullable, as a message of Pulsar may have no value.

    Raises:
        InvalidSchemaError: A message is a part of itself, or there are two fields
            whose names are equal but for their case, or far too many.
    """
    fields = _Columns().fields(root, "", ())
    return pa.schema([field.with_nullable(True) for field in fields])


def may_be_absent(field: ProtobufField) -> bool:
    """Return whether a message may have no value of a field, not even a default."""
    return field.has_presence and field.default is None


@dataclass
class _Columns:
    """Columns of a message.

    Attributes:
        count: How many there are so far, at any depth.
    """

    count: int = 0

    def fields(
        self, message: MessageType, where: str, within: tuple[MessageType, ...]
    ) -> list[pa.Field]:
        """Return the columns of a message.

        Args:
            message: The message.
            where: The path of fields to it, for errors.
            within: The messages that it is a part of.
        """
        if message in within:
            raise InvalidSchemaError(
                f"`{where}` holds the message {message.name} again, which is a part "
                "of itself. `.schema(...)` says how deep to read, as in `next "
                "STRUCT<id: INT, next: STRUCT<id: INT>>`"
            )
        if len(within) == _MAX_DEPTH:
            raise InvalidSchemaError(
                f"at `{where}` messages are nested more than {_MAX_DEPTH} deep"
            )
        distinct((field.name for field in message.fields), where)
        inner = (*within, message)
        columns = []
        for field in message.fields:
            path = f"{where}.{field.name}" if where else field.name
            columns.append(pa.field(field.name, *self._type(field, path, inner)))
        return columns

    def _type(
        self, field: ProtobufField, where: str, within: tuple[MessageType, ...]
    ) -> tuple[pa.DataType, bool]:
        """Return the type of a field's column, and whether the column is nullable."""
        self.count += 1
        if self.count > _MAX_COLUMNS:
            raise InvalidSchemaError(f"there are more than {_MAX_COLUMNS:,} columns")
        message = field.message
        if message is None:
            type_ = TYPES[field.kind]
        else:
            type_ = pa.struct(self.fields(message, where, within))
        if not field.is_repeated:
            return type_, may_be_absent(field)
        if field.is_map:
            return pa.map_(
                type_.field(0).with_nullable(False), type_.field(1).with_nullable(False)
            ), False
        return pa.list_(pa.field("element", type_, nullable=False)), False
