# SPDX-License-Identifier: Apache-2.0
"""Bytes of a topic as values of another topic with the same schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.columns import SCHEMA_VERSION, VALUE
from pulsar_spark.loops.avro_write import UnfitValueError


class CopyEncoder:
    """Passes values through unchanged, with the schema version of each value.

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
        differing = pc.fill_null(pc.not_equal(versions, self._version), True)
        differing = pc.and_(differing, values.is_valid())
        row = pc.index(differing, True).as_py()
        if row >= 0:
            version = versions[row].as_py()
            has = "is NULL" if version is None else f"is {version}"
            raise UnfitValueError(
                row,
                SCHEMA_VERSION,
                f"{has}, and bytes of version {self._version} alone are copied, the"
                " latest of schemaTopic: read columns instead of bytes, which are"
                " written by the latest version whatever theirs was",
            )
        return EncodedValues(values.cast(pa.large_binary()))
