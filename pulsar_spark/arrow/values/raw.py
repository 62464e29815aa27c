# SPDX-License-Identifier: Apache-2.0
"""Values as they are: bytes, whatever their schema says."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.arrow.values import Decoded, ValueRun
from pulsar_spark.columns import VALUE


class RawDecoder:
    """Gives values as one column of type BINARY, not copied."""

    columns = (VALUE,)
    by_version = False
    needs_keys = False

    def decode(self, run: ValueRun) -> Decoded:
        """Return the values."""
        return Decoded((run.values,))


class RawEncoder:
    """Takes values from one column of bytes or text."""

    columns = (VALUE,)

    def accepts(self, schema: pa.Schema) -> bool:
        """Return whether there is a column ``value`` of bytes or text."""
        at = schema.get_field_index(VALUE)
        return at >= 0 and _is_bytes(schema.field(at).type)

    def encode(self, columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
        """Return the bytes of each row."""
        (values,) = columns
        return values.cast(pa.large_binary())


def _is_bytes(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_string(type_)
        or kinds.is_large_string(type_)
    )
