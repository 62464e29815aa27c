# SPDX-License-Identifier: Apache-2.0
"""KEY_VALUE schemas: the schemas of key and value, and where keys are stored.

The definition of both is one::

    size(4) definition of the key  size(4) definition of the value

Sizes are big-endian; a primitive type has none, which Java writes as a size of 0 and
C++ as -1. Which types they are, and whether keys stand before values or are those of
the messages, is in the properties.

Source: KeyValueSchemaInfo in the Java client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from spark_topics.text import shorten

_ENCODING = "kv.encoding.type"

#: Types by the names that properties have; BYTES is no schema.
_TYPES = {"BYTES": SchemaType.NONE, **SchemaType.__members__}


@dataclass(frozen=True)
class KeyValueInfo:
    """What a KEY_VALUE schema consists of.

    Attributes:
        key: The key's schema.
        value: The value's.
        is_separated: Whether the key is that of the message (SEPARATED); if not, the
            payload holds both (INLINE).
    """

    key: SchemaInfo
    value: SchemaInfo
    is_separated: bool


def parse_key_value(info: SchemaInfo) -> KeyValueInfo:
    """Read a KEY_VALUE schema.

    Raises:
        InvalidSchemaError: It is none, or one of its parts is a KEY_VALUE again.
    """
    if info.type != SchemaType.KEY_VALUE:
        raise InvalidSchemaError(f"{info.type_name} is no KEY_VALUE")
    encoding = info.properties.get(_ENCODING) or "INLINE"
    if encoding not in ("INLINE", "SEPARATED"):
        raise InvalidSchemaError(
            f"its property {_ENCODING} is {shorten(encoding)}, not INLINE or SEPARATED"
        )
    key, rest = _split(info.data, "key")
    value, _ = _split(rest, "value")
    return KeyValueInfo(
        _part(info, "key", key), _part(info, "value", value), encoding == "SEPARATED"
    )


def with_parts(info: SchemaInfo, key: bytes | None, value: bytes | None) -> SchemaInfo:
    """Return a KEY_VALUE schema with other definitions of key or value.

    Args:
        info: The schema.
        key: The key's definition; None for the one that it has.
        value: The value's.

    Returns:
        The schema, not registered; all else, also how sizes are written, is the same.
    """
    key_size = len(_split(info.data, "key")[0]) + 4
    parts = [info.data[:key_size], info.data[key_size:]]
    for index, data in enumerate((key, value)):
        if data is not None:
            parts[index] = len(data).to_bytes(4, "big") + data
    return replace(info, data=b"".join(parts), version=b"")


def _split(data: bytes, name: str) -> tuple[bytes, bytes]:
    """Return a definition, and the bytes that follow."""
    size = int.from_bytes(data[:4], "big", signed=True)
    end = 4 + max(size, 0)
    if len(data) < end or size < -1:
        raise InvalidSchemaError(f"the definition of its {name} is cut")
    return data[4:end], data[end:]


def _part(info: SchemaInfo, name: str, data: bytes) -> SchemaInfo:
    type_name = info.properties.get(f"{name}.schema.type") or "BYTES"
    type_ = _TYPES.get(type_name)
    if type_ is None:
        raise InvalidSchemaError(f"the type of its {name} is {shorten(type_name)}")
    if type_ is SchemaType.KEY_VALUE:
        raise InvalidSchemaError(f"its {name} is a KEY_VALUE again")
    return SchemaInfo(type_, data, _properties(info, name), info.version)


def _properties(info: SchemaInfo, name: str) -> Mapping[str, str]:
    key = f"{name}.schema.properties"
    text = info.properties.get(key) or "{}"
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise InvalidSchemaError(f"its property {key} is no object of JSON")
    return {key: value for key, value in tree.items() if isinstance(value, str)}
