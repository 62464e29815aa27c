# SPDX-License-Identifier: Apache-2.0
"""Columns with a single value repeated in each row."""

from __future__ import annotations

import pyarrow as pa


class Repeated:
    """A column of any length in which each row has the same value.

    The longest one so far is kept, and cut: most RecordBatches are of one size, and
    Arrow takes longer to make a short column than to cut a longer one.

    Args:
        value: The value of each row.
    """

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._rows = pa.repeat(value, 1)

    def rows(self, count: int) -> pa.Array:
        """Return the column of ``count`` rows."""
        if count > len(self._rows):
            self._rows = pa.repeat(self._value, count)
        return self._rows.slice(0, count)
