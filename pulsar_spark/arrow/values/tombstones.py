# SPDX-License-Identifier: Apache-2.0
"""Rows that say of themselves whether their value is a null value.

A record whose fields are columns has no other way to be NULL as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues, ValueEncoder
from pulsar_spark.columns import TOMBSTONE, VALUE
from pulsar_spark.loops.avro_write import UnfitValueError

_FALSE = pa.scalar(False)
_ONE = pa.scalar(1, pa.int64())
_NO_ROW = pa.scalar(None, pa.int64())


class TombstoneEncoder:
    """Makes null values of rows with ``__tombstone``, and values of all other rows.

    Of a row with ``__tombstone`` the columns of the value are not looked at, but for
    the one that becomes the key of the message.

    Args:
        encoder: Makes the values of the other rows.
    """

    def __init__(self, encoder: ValueEncoder) -> None:
        self.columns = (*encoder.columns, TOMBSTONE)
        self._encoder = encoder
        self._gives_keys = getattr(encoder, "gives_keys", False)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value, and the key, of each row.

        Raises:
            UnfitValueError: A row without ``__tombstone`` cannot be encoded.
        """
        *columns, marks = columns
        is_tombstone = marks.fill_null(_FALSE)
        if not is_tombstone.true_count:
            return self._encoder.encode(columns)
        has_value = pc.invert(is_tombstone)
        if self._gives_keys:
            numbers = pa.array(range(len(marks)), pa.int64())
            rows = pc.if_else(has_value, numbers, _NO_ROW)
            value = self._encoder.columns.index(VALUE)
            columns[value] = columns[value].take(rows)
            return self._encoder.encode(columns)
        left = [column.filter(has_value) for column in columns]
        values = self._values(left, has_value)
        places = pc.subtract(pc.cumulative_sum(has_value.cast(pa.int64())), _ONE)
        return EncodedValues(values.take(pc.if_else(has_value, places, _NO_ROW)))

    def _values(
        self, columns: Sequence[pa.Array], has_value: pa.BooleanArray
    ) -> pa.LargeBinaryArray:
        """Return the values of some rows; errors name the row among all."""
        try:
            return self._encoder.encode(columns).values
        except UnfitValueError as error:
            row = error.row
            if row >= 0:
                row = pc.indices_nonzero(has_value)[row].as_py()
            raise UnfitValueError(row, error.where, error.text) from None
