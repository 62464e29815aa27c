# SPDX-License-Identifier: Apache-2.0
"""Which module makes columns of which kind of schema."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa

from pulsar_spark.arrow.values import SchemaKind, ValueSettings, VersionDecoder
from pulsar_spark.arrow.values.together import part_of
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a topic with this schema.

    Raises:
        InvalidSchemaError: There are none.
    """
    return _module(info).columns_of(info)


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> VersionDecoder:
    """Return what makes the columns ``wanted`` of values written with ``writer``.

    Raises:
        InvalidSchemaError: They cannot be made.
    """
    module = _module(writer)
    if module is not _module(reader):
        raise InvalidSchemaError(
            f"{writer.type_name} cannot be read as {reader.type_name}"
        )
    return module.decoder(writer, reader, wanted, settings)


def own_columns(info: SchemaInfo, wanted: pa.Schema) -> pa.Schema:
    """Return the columns among ``wanted`` that a topic with this schema has.

    Of a struct these are the fields that the topic has; see ``together.part_of``. All
    of them where a schema has columns only for who names them: a record that is a part
    of itself has.
    """
    try:
        types = {field.name: field.type for field in columns_of(info)}
    except InvalidSchemaError:
        return wanted
    return pa.schema(
        [
            field.with_type(part_of(field.type, types[field.name]))
            for field in wanted
            if field.name in types
        ]
    )


def needs_keys(info: SchemaInfo, wanted: pa.Schema) -> bool:
    """Return whether a column may be made of the messages' keys.

    Each version of a KEY_VALUE schema says again where its keys are.
    """
    return info.type == SchemaType.KEY_VALUE and "key" in wanted.names


# Modules are imported when there is a topic that needs them.


def _primitive() -> SchemaKind:
    from pulsar_spark.arrow.values import primitive

    return primitive


def _json() -> SchemaKind:
    from pulsar_spark.arrow.values import json

    return json


@functools.cache
def _key_value() -> SchemaKind:
    from pulsar_spark.arrow.values.key_value import KeyValue

    return KeyValue(columns_of, decoder)  # a part is of any kind


def _avro() -> SchemaKind:
    from pulsar_spark.arrow.values import avro

    module: SchemaKind = avro
    return module


def _protobuf() -> SchemaKind:
    from pulsar_spark.arrow.values import protobuf

    module: SchemaKind = protobuf
    return module


#: All types but the primitive ones.
_OTHERS: dict[SchemaType, Callable[[], SchemaKind]] = {
    SchemaType.AVRO: _avro,
    SchemaType.JSON: _json,
    SchemaType.KEY_VALUE: _key_value,
    SchemaType.PROTOBUF: _protobuf,
    SchemaType.PROTOBUF_NATIVE: _protobuf,
}


def _module(info: SchemaInfo) -> SchemaKind:
    try:
        kind = SchemaType(info.type)
    except ValueError:
        raise InvalidSchemaError(
            f"a schema {info.type_name} cannot be read by this version of the connector"
        ) from None
    return _OTHERS.get(kind, _primitive)()
