# SPDX-License-Identifier: Apache-2.0
"""Columns that say the same in each row."""

from __future__ import annotations

import pyarrow as pa


class Repeated:
    """A value as a column of as many rows as are wanted.

    It is made once for the most rows so far: most RecordBatches are of one size, and
    Arrow takes longer to make a short column than to cut a longer one.

    Args:
        value: What each row says.
    """

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._rows = pa.repeat(value, 1)

    def rows(self, count: int) -> pa.Array:
        """Return the column of ``count`` rows."""
        if count > len(self._rows):
            self._rows = pa.repeat(self._value, count)
        return self._rows.slice(0, count)
