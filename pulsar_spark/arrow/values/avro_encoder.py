# SPDX-License-Identifier: Apache-2.0
"""Columns -> values in AVRO, by the schema that a topic has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.arrow.values.avro_parts import plan, record_plan
from pulsar_spark.loops import avro_write as kernel
from pulsar_spark.loops.avro_write import AvroWriter, Part
from pulsar_spark.schemas.avro import AvroType, Kind
from pulsar_spark.schemas.info import InvalidSchemaError

#: A field takes about as many bytes: room to begin with.
_USUAL_BYTES = 8


class AvroEncoder:
    """Makes values of columns.

    The columns are the fields of a record, and so are those of a single column that is
    a struct; of it a NULL is a null value, as it is of the only column of a schema that
    is no record.

    Args:
        root: The schema.
        schema: The columns.

    Raises:
        InvalidSchemaError: The columns do not fit the schema.
    """

    def __init__(self, root: AvroType, schema: pa.Schema) -> None:
        self.columns = tuple(schema.names)
        self._is_single, self._bind = _bind(root, list(schema))

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value of each row.

        Raises:
            UnfitValueError: A row does not fit the schema.
        """
        rows = len(columns[0])
        nulls, validity = None, None
        if self._is_single and columns[0].null_count:
            is_null = columns[0].is_null()
            nulls = memoryview(is_null.cast(pa.uint8()).buffers()[1]).cast("B")
            validity = columns[0].is_valid().buffers()[1]
        room = rows * _USUAL_BYTES * (1 + len(columns))
        data, ends = AvroWriter(room).write(self._bind(columns), rows, nulls)
        buffers = [validity, pa.py_buffer(ends), pa.py_buffer(data)]
        return EncodedValues(pa.Array.from_buffers(pa.large_binary(), rows, buffers))


def _bind(
    root: AvroType, fields: list[pa.Field]
) -> tuple[bool, Callable[[Sequence[pa.Array]], Part]]:
    """Return whether it is about a single column, and what makes the part."""
    if root.kind is Kind.RECORD and not is_record(fields):
        parts_of = record_plan(root, fields)
        return False, lambda columns: Part(
            kernel.RECORD, root.name, children=parts_of(columns)
        )
    if len(fields) != 1:
        raise InvalidSchemaError(f"the schema is {root}, which is a single column")
    bind = plan(root, fields[0].type, fields[0].name)
    return True, lambda columns: bind(columns[0])


def is_record(fields: Sequence[pa.Field]) -> bool:
    """Return whether there is only a struct, which is the record itself."""
    return len(fields) == 1 and bool(pa.types.is_struct(fields[0].type))
