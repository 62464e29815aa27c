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
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, UnfitColumnsError

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
        UnfitColumnsError: There are other columns, or they do not fit.
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
            raise UnfitColumnsError(
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


#: What says in a schema's properties where keys are.
_ENCODING = "kv.encoding.type"


def join_schemas(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """Return the KEY_VALUE schema of two parts."""
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
