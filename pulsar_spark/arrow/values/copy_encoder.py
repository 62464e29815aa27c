# SPDX-License-Identifier: Apache-2.0
"""Bytes that a topic has -> values of another topic, if their schema is the same."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.columns import SCHEMA_VERSION, VALUE
from pulsar_spark.loops.avro_write import UnfitValueError


class CopyEncoder:
    """Takes values as they are, beside the version that each was written with.

    A null value is the same in all versions, and without any.

    Args:
        columns: ``value`` and ``__schemaVersion``, in any order.
        version: The only one that is taken.
    """

    def __init__(self, columns: Sequence[str], version: int) -> None:
        self.columns = tuple(columns)
        self._version = version

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the bytes of each row.

        Raises:
            UnfitValueError: A value has another version, or none.
        """
        by_name = dict(zip(self.columns, columns, strict=True))
        values, versions = by_name[VALUE], by_name[SCHEMA_VERSION]
        others = pc.fill_null(pc.not_equal(versions, self._version), True)
        others = pc.and_(others, values.is_valid())
        row = pc.index(others, True).as_py()
        if row >= 0:
            found = versions[row].as_py()
            has = "is NULL" if found is None else f"is {found}"
            raise UnfitValueError(
                row,
                SCHEMA_VERSION,
                f"{has}, and bytes of version {self._version} alone are copied, the"
                " latest of schemaTopic: read columns instead of bytes, which are"
                " written by the latest version whatever theirs was",
            )
        return EncodedValues(values.cast(pa.large_binary()))
