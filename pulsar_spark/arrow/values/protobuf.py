# SPDX-License-Identifier: Apache-2.0
"""Values in protobuf.

With a schema of type PROTOBUF_NATIVE the fields of its message are columns::

    message Order {                              id BIGINT
      int64 id = 1;                              item STRING
      string item = 2;                 ->        state STRING: the name of the number,
      State state = 3;                               or its digits
      repeated Line lines = 4;                   lines ARRAY<STRUCT<...>>
    }

- A field that a payload does not have is NULL where protobuf knows its presence
  (``optional``, a oneof, a message, proto2) and no default is declared; it is the
  default, as 0 or "", where not. So a payload of no bytes is a row of defaults and no
  bad one: messages whose fields all have their defaults are encoded like this.
- Payloads are read as the official runtime reads them: of a field that comes twice the
  last counts, and two parts of a message are one; unknown fields are skipped, and so
  are those that are written as another type. Missing ``required`` fields are NULL.
  Three things differ: a number that a closed enum of proto2 has no name for is its
  digits, not an unknown field; a text that is not UTF-8 is bad in proto2, too; and an
  entry of a map is kept if it has unknown fields, as Java's runtime keeps it and
  Python's does not.
- What is not wanted is skipped and not looked into.

A column is the field of the reader's schema that has its name. In the writer's schema
that is the field of the same *number*: in protobuf the number is the field, and a name
may change at any time without a change of what is written. A column whose number the
writer's schema does not have is NULL. Numbers may become wider ones, and narrower ones
where each value fits; text and bytes may become each other, and one value a list of
one. An enum has the reader's names.

A schema of type PROTOBUF holds a description in AVRO, which cannot decode a payload:
numbers of fields are not in it. So its values stay bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.arrow.values import Decoded, ValueSettings, VersionDecoder
from pulsar_spark.arrow.values.protobuf_arrays import Filled, Maker
from pulsar_spark.arrow.values.protobuf_plan import Plan
from pulsar_spark.arrow.values.protobuf_types import columns_of_message
from pulsar_spark.columns import VALUE
from pulsar_spark.loops import protobuf_op as op
from pulsar_spark.loops.protobuf_values import MAX_DEPTH, Column, Level, Table
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.protobuf_native import MessageType, parse_protobuf_native

_FAULTS = {
    op.ENDS_EARLY: "it ends within a field",
    op.BAD_TAG: "a field has a tag that protobuf does not have",
    op.BAD_VARINT: "a number has more than ten bytes",
    op.TOO_DEEP: f"messages are nested more than {MAX_DEPTH} deep",
    op.NOT_TEXT: "the text of `{}` is not UTF-8",
    op.OUT_OF_RANGE: "the number of `{}` does not fit into its column",
    op.TOO_LARGE: "`{}` would take far more memory than its bytes",
}


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a topic with this schema.

    Raises:
        InvalidSchemaError: There are none.
    """
    if info.type == SchemaType.PROTOBUF:
        return pa.schema([pa.field(VALUE, pa.binary())])
    return columns_of_message(parse_protobuf_native(info.data))


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> VersionDecoder:
    """Plan how values of ``writer`` become the columns of ``wanted``.

    Raises:
        InvalidSchemaError: They cannot.
    """
    del settings
    if writer.type != reader.type:
        raise InvalidSchemaError(
            f"its type is {writer.type_name}, not {reader.type_name}"
        )
    if writer.type == SchemaType.PROTOBUF:
        return _Bytes(wanted)
    read_as = parse_protobuf_native(reader.data)
    written = read_as
    if writer.data != reader.data:
        written = parse_protobuf_native(writer.data)
    return _Messages(written, read_as, wanted)


class _Bytes:
    """Passes values through unchanged."""

    def __init__(self, wanted: pa.Schema) -> None:
        for field in wanted:
            is_bytes = pa.types.is_binary(field.type) or pa.types.is_large_binary(
                field.type
            )
            if field.name != VALUE or not is_bytes:
                raise InvalidSchemaError(
                    f"`{field.name}` cannot be {field.type}: there is only `{VALUE}`, "
                    "which is bytes"
                )
        self._wanted = wanted

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the values."""
        del keys
        return Decoded([values.cast(field.type) for field in self._wanted])


class _Messages:
    """Reads the fields of messages."""

    def __init__(
        self, writer: MessageType, reader: MessageType, wanted: pa.Schema
    ) -> None:
        self._name = writer.name
        self._plan = Plan()
        self._makers: Sequence[Maker] = self._plan.add_root(
            writer, reader, list(wanted)
        )
        self._fields = memoryview(array("q", self._plan.numbers()))

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns."""
        del keys
        count = len(values)
        validity, offsets, data = map(_view, values.buffers())
        has_nulls = values.null_count > 0
        table = self._table()
        table.read(
            data,
            offsets.cast("i") if count else memoryview(bytes(4)).cast("i"),
            validity if has_nulls else memoryview(b""),
            values.offset,
            count,
        )
        filled = Filled(table, data, count, has_nulls)
        columns = [maker.array(filled) for maker in self._makers]
        return Decoded(columns, table.bad, self._reason(table))

    def _table(self) -> Table:
        levels = [Level() for _ in range(self._plan.levels)]
        columns: list[Column] = []
        for item in self._plan.columns:
            column = Column(
                item.storage,
                item.has_presence,
                [columns[place] for place in item.inner],
                levels[item.below] if item.below else None,
            )
            columns.append(column)
            levels[item.level].add_column(column, item.further_bytes)
        return Table(self._fields, self._plan.root_fields, columns, levels)

    def _reason(self, table: Table) -> str:
        if not table.bad:
            return ""
        where = "a oneof"  # of which nothing is wanted
        if table.fault_column >= 0:
            where = self._plan.columns[table.fault_column].where
        text = _FAULTS[table.fault].format(where)
        return f"is not a message {self._name} in protobuf: {text}"


def _view(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(buffer or b"").cast("B")
