# SPDX-License-Identifier: Apache-2.0
"""Whether two schemas say the same of values, whatever their texts look like."""

from __future__ import annotations

import json
from typing import Any

from pulsar_spark.schemas.avro import NO_DEFAULT, AvroType, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value

_TEXTS = (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)

#: Whose definition says nothing: Java and Python register different ones for STRING.
_WITHOUT_DATA = frozenset(SchemaType) - {
    *_TEXTS,
    SchemaType.KEY_VALUE,
    SchemaType.PROTOBUF_NATIVE,
}

#: Skips what precedes a value, so that it is a part of what is said of it.
_READ_OFFSET = "__AVRO_READ_OFFSET__"


def says_the_same(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Return whether both mean the same values: names of records and docs do not count.

    What cannot be read is compared byte by byte.
    """
    return one.type == other.type and _meaning(one) == _meaning(other)


def _meaning(info: SchemaInfo) -> Any:
    if info.type in _WITHOUT_DATA:
        return ()
    if info.type in _TEXTS:
        try:
            shape = _shape(parse_avro(info.data), ())
        except InvalidSchemaError:
            shape = info.data
        return shape, info.properties.get(_READ_OFFSET)
    if info.type == SchemaType.KEY_VALUE:
        try:
            parts = parse_key_value(info)
        except InvalidSchemaError:
            return info.data, info.properties
        both = parts.key, parts.value
        return parts.is_separated, [(one.type, _meaning(one)) for one in both]
    return info.data


def _shape(type_: AvroType, within: tuple[AvroType, ...]) -> Any:
    """Return a type without names and docs, as plain values that can be compared."""
    if type_ in within:
        return within.index(type_)
    inner = (*within, type_)
    return (
        type_.kind,
        type_.logical,
        (type_.precision, type_.scale, type_.size),
        type_.symbols,
        type_.default_symbol,
        type_.items and _shape(type_.items, inner),
        [_shape(one, inner) for one in type_.branches],
        [
            (
                one.name,
                _shape(one.type, inner),
                None if one.default is NO_DEFAULT else json.dumps(one.default),
            )
            for one in type_.fields
        ],
    )
