# SPDX-License-Identifier: Apache-2.0
"""Columns -> values in AVRO, by the schema that a topic has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from pulsar_spark.arrow.values import EncodedValues
from pulsar_spark.arrow.values.avro_parts import plan, record_plan
from pulsar_spark.arrow.values.sql_types import sql_type_of_field
from pulsar_spark.columns import VALUE
from pulsar_spark.loops import avro_write as kernel
from pulsar_spark.loops.avro_write import AvroWriter, Part
from pulsar_spark.schemas.avro import AvroType, Kind
from pulsar_spark.schemas.info import UnfitColumnsError

#: A field takes about as many bytes: room to begin with.
_USUAL_BYTES = 8


class AvroEncoder:
    """Makes values of columns.

    The columns are the fields of a record, and so are those of a single column that is
    the whole record. NULL in a single column is a null value, unless the column has the
    name of a field other than ``value``.

    Args:
        root: The schema.
        schema: The columns.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Raises:
        InvalidSchemaError: The columns do not fit the schema.
    """

    def __init__(
        self, root: AvroType, schema: pa.Schema, *, is_part: bool = False
    ) -> None:
        self.columns = tuple(schema.names)
        self._is_single = is_nullable(root, schema, is_part=is_part)
        self._bind = _bind(root, list(schema), is_part=is_part)

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
    root: AvroType, fields: list[pa.Field], *, is_part: bool
) -> Callable[[Sequence[pa.Array]], Part]:
    if not is_whole(root, fields, is_part=is_part):
        parts_of = record_plan(root, fields)
        return lambda columns: Part(
            kernel.RECORD, root.name, children=parts_of(columns)
        )
    bind = plan(root, fields[0].type, fields[0].name)
    return lambda columns: bind(columns[0])


def is_nullable(root: AvroType, columns: pa.Schema, *, is_part: bool) -> bool:
    """Return whether NULL in a single column is a null value.

    That is so for the whole value, and for what stands for the value by the column's
    name: ``value``, or the part of a KEY_VALUE. Another column may be a field alone.

    Args:
        root: The schema.
        columns: Those of the value.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Raises:
        UnfitColumnsError: The schema is no record, and there are several columns.
    """
    is_value = is_part or columns.names == [VALUE]
    return is_value or is_whole(root, list(columns), is_part=is_part)


def is_record(fields: Sequence[pa.Field]) -> bool:
    """Return whether there is only a struct."""
    return len(fields) == 1 and bool(pa.types.is_struct(fields[0].type))


def is_whole(root: AvroType, fields: Sequence[pa.Field], *, is_part: bool) -> bool:
    """Return whether a single column is the whole value, and not a field of a record.

    A column that is called like a field is that field; only else a struct is the record
    itself. A struct cannot be a field that holds no record.

    Args:
        root: The schema.
        fields: The columns.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Raises:
        UnfitColumnsError: The schema is no record, and there are several columns.
    """
    if root.kind is not Kind.RECORD:
        if len(fields) != 1:
            raise UnfitColumnsError(
                f"the schema is {sql_type_of_field(root)} and no record: write"
                " a single column"
            )
        return True
    if not is_record(fields):
        return False
    of_name = [field.type for field in root.fields if field.name == fields[0].name]
    return is_part or not any(_holds_record(type_) for type_ in of_name)


def _holds_record(type_: AvroType) -> bool:
    return any(branch.kind is Kind.RECORD for branch in (type_, *type_.branches))
