# SPDX-License-Identifier: Apache-2.0
"""Values of topics with a schema of type AVRO."""

from __future__ import annotations

import functools

import pyarrow as pa

from pulsar_spark.arrow.values import Decoded, ValueSettings, avro_types
from pulsar_spark.arrow.values.avro_plan import plan
from pulsar_spark.arrow.values.grown import array, is_null, view
from pulsar_spark.loops.avro import REASONS
from pulsar_spark.schemas.avro import AvroType, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, not_unicode

#: Says how many bytes stand before each value: of a registry of Kafka's, as Pulsar IO
#: passes them on.
READ_OFFSET = "__AVRO_READ_OFFSET__"


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a topic with this schema.

    Raises:
        InvalidSchemaError: It has none.
    """
    try:
        return avro_types.columns_of(_parsed(info.data))
    except UnicodeEncodeError:
        raise not_unicode() from None


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> AvroDecoder:
    """Plan how values of the writer's schema become columns of the reader's schema.

    Raises:
        InvalidSchemaError: There are no such columns, or the one cannot be read as the
            other.
    """
    del settings
    return AvroDecoder(writer, reader, wanted)


class AvroDecoder:
    """Makes columns of values that were written with a single schema.

    A value without bytes has NULL in all columns, but where the schema is of values
    that have none.

    Args:
        writer: That schema.
        reader: The schema of the columns.
        wanted: The columns.
    """

    def __init__(
        self, writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema
    ) -> None:
        self._wanted = wanted
        try:
            self._planned = plan(
                _parsed(writer.data), _parsed(reader.data), wanted, _read_offset(writer)
            )
        except UnicodeEncodeError:
            raise not_unicode() from None

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns."""
        del keys
        planned = self._planned
        bad = planned.plan.run(*view(values), is_null(values))
        columns = [
            array(column, field)
            for column, field in zip(planned.column.children, self._wanted, strict=True)
        ]
        return Decoded(columns, bad, self._reason() if bad else "")

    def _reason(self) -> str:
        """Return the reason of the first bad row."""
        source, names = self._planned.plan.source, self._planned.names
        reason = REASONS[source.error]
        if 0 <= source.field < len(names):
            return f"its field `{names[source.field]}` {reason}"
        return f"it {reason}"


def _read_offset(info: SchemaInfo) -> int:
    text = info.properties.get(READ_OFFSET, "0")
    try:
        return int(text)
    except ValueError:
        raise InvalidSchemaError(
            f"its property {READ_OFFSET} is no number, but {text!r}"
        ) from None


@functools.lru_cache(maxsize=16)
def _parsed(text: bytes) -> AvroType:
    return parse_avro(text)
