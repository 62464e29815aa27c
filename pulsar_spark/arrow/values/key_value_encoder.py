# SPDX-License-Identifier: Apache-2.0
"""The columns ``key`` and ``value`` -> values of a KEY_VALUE schema.

::

    INLINE     size(4) key size(4) value    a size of -1, and nothing, for NULL
    SEPARATED  value                        and the key as bytes, where messages have it
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues, ValueEncoder
from pulsar_spark.arrow.values.primitive_encoder import size_bytes
from pulsar_spark.columns import VALUE
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType

KEY = "key"

_BINARY = pa.large_binary()
_EMPTY = pa.scalar(b"", _BINARY)


class KeyValueEncoder:
    """Makes values, and keys, of two columns.

    Args:
        schema: The columns.
        encoder_of: Makes the encoder of a part: ``key`` or ``value``, and its column.
        is_separated: Whether keys are the messages' own.

    Raises:
        InvalidSchemaError: There are other columns, or they do not fit.
    """

    columns = (KEY, VALUE)

    def __init__(
        self,
        schema: pa.Schema,
        encoder_of: Callable[[str, pa.Schema], ValueEncoder],
        *,
        is_separated: bool,
    ) -> None:
        if set(schema.names) != set(self.columns):
            raise InvalidSchemaError(
                "the schema is KEY_VALUE, whose columns are `key` and `value`"
            )
        self.gives_keys = is_separated
        self._key = encoder_of(KEY, pa.schema([schema.field(KEY)]))
        self._value = encoder_of(VALUE, pa.schema([schema.field(VALUE)]))

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value, and the key, of each row.

        Raises:
            UnfitValueError: A row does not fit the schema.
        """
        keys = self._key.encode(columns[:1]).values
        values = self._value.encode(columns[1:]).values
        if self.gives_keys:
            return EncodedValues(values, keys)
        joined = pc.binary_join_element_wise(
            size_bytes(keys),
            keys.fill_null(_EMPTY),
            size_bytes(values),
            values.fill_null(_EMPTY),
            _EMPTY,
        )
        return EncodedValues(joined)


#: What says in a schema's properties where keys are, and the two words for it.
_ENCODING = "kv.encoding.type"
INLINE, SEPARATED = "INLINE", "SEPARATED"


def join_schemas(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """Return the schema whose parts are these two."""
    data = b"".join(
        struct.pack(">i", len(part.data)) + part.data for part in (key, value)
    )
    properties = {_ENCODING: encoding}
    for name, part in ((KEY, key), (VALUE, value)):
        properties |= {
            f"{name}.schema.name": part.name if part.type else "Bytes",
            f"{name}.schema.type": "BYTES" if not part.type else part.type_name,
            f"{name}.schema.properties": json.dumps(dict(part.properties)),
        }
    return SchemaInfo(SchemaType.KEY_VALUE, data, properties)


def split_schema(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo, bool]:
    """Return the schemas of key and value, and whether keys are the messages' own.

    Raises:
        InvalidSchemaError: It is not laid out as one of these.
    """
    encoding = info.properties.get(_ENCODING) or INLINE
    if encoding not in (INLINE, SEPARATED):
        raise InvalidSchemaError(f"its {_ENCODING} is {encoding[:40]!r}")
    parts, at = [], 0
    for name in (KEY, VALUE):
        size = int.from_bytes(info.data[at : at + 4], "big", signed=True)
        if len(info.data) < at + 4 + max(size, 0):
            raise InvalidSchemaError("its definition ends early")
        data = info.data[at + 4 : at + 4 + max(size, 0)]
        at += 4 + max(size, 0)
        parts.append(_part(name, data, info))
    return parts[0], parts[1], encoding == SEPARATED


def _part(name: str, data: bytes, info: SchemaInfo) -> SchemaInfo:
    word = info.properties.get(f"{name}.schema.type") or "BYTES"
    if word == "BYTES":
        return SchemaInfo(SchemaType.NONE)
    try:
        type_ = SchemaType[word]
        properties = json.loads(info.properties.get(f"{name}.schema.properties", "{}"))
    except (KeyError, ValueError):
        raise InvalidSchemaError(f"its `{name}` has no type that there is") from None
    return SchemaInfo(type_, data, properties if isinstance(properties, dict) else {})
