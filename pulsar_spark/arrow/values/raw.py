# SPDX-License-Identifier: Apache-2.0
"""Values as plain bytes, for any schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.arrow.values import Decoded, EncodedValues, ValueRun
from pulsar_spark.columns import VALUE


class RawDecoder:
    """Gives values as a single BINARY column, without a copy."""

    columns = (VALUE,)
    by_version = False
    needs_keys = False

    def added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return 0: bytes stay unchanged."""
        del rows, size_bytes
        return 0

    def decode(self, run: ValueRun) -> Decoded:
        """Return the values."""
        return Decoded((run.values,))


class RawEncoder:
    """Takes values from a single column of bytes or text.

    Args:
        column: Its name.
    """

    def __init__(self, column: str = VALUE) -> None:
        self.columns = (column,)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the bytes of each row."""
        (values,) = columns
        return EncodedValues(values.cast(pa.large_binary()))
