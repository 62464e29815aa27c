# SPDX-License-Identifier: Apache-2.0
"""The schema of written columns, and the encoder for the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pulsar_spark.arrow.values import ValueEncoder, ValueSettings
from pulsar_spark.arrow.values.avro_encoder import AvroEncoder, is_record
from pulsar_spark.arrow.values.avro_text import (
    is_bytes,
    is_text,
    record_text,
)
from pulsar_spark.arrow.values.extended import extended_text
from pulsar_spark.arrow.values.json import parsed
from pulsar_spark.arrow.values.json_encoder import JsonEncoder
from pulsar_spark.arrow.values.json_form import form_of
from pulsar_spark.arrow.values.key_value_encoder import (
    KEY,
    KeyValueEncoder,
    join_schemas,
)
from pulsar_spark.arrow.values.primitive_encoder import PrimitiveEncoder, primitive_of
from pulsar_spark.arrow.values.raw import RawEncoder
from pulsar_spark.columns import (
    OF_KAFKA,
    VALUE,
    almost,
    renamed_from_kafka,
    spelling,
)
from pulsar_spark.schemas.avro import parse_avro
from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    SchemaType,
    UnfitColumnsError,
)
from pulsar_spark.schemas.key_value import parse_key_value, with_parts

#: What a Kafka connector has its values begin with, as a property of the schema.
_OFFSET = "__AVRO_READ_OFFSET__"

_USUAL = ValueSettings()

_RECORDS = (SchemaType.AVRO, SchemaType.JSON)


def encoder_for(
    info: SchemaInfo | None,
    columns: pa.Schema,
    settings: ValueSettings = _USUAL,
    *,
    is_part: bool = False,
) -> ValueEncoder:
    """Return the encoder that turns columns into values of a schema.

    Args:
        info: The schema; None for values that are plain bytes.
        columns: The columns that a value is made of.
        settings: What the user says about values.
        is_part: Whether it is a part of a KEY_VALUE.

    Raises:
        UnfitColumnsError: The columns do not fit the schema.
        InvalidSchemaError: Values of such a schema cannot be written.
    """
    if info is None or not info.is_typed:
        return _raw_encoder(columns)
    if info.properties.get(_OFFSET, "0") != "0":
        raise InvalidSchemaError("its values begin with bytes of another system")
    if info.type == SchemaType.AVRO:
        return AvroEncoder(parse_avro(info.data), columns, is_part=is_part)
    if info.type == SchemaType.JSON:
        root = parsed(info)
        form = form_of(info, root, settings)
        return JsonEncoder(root, columns, form, is_part=is_part)
    if info.type == SchemaType.KEY_VALUE:
        pair = parse_key_value(info)
        parts = {KEY: pair.key, VALUE: pair.value}
        return KeyValueEncoder(
            columns,
            lambda name, column: encoder_for(
                parts[name], column, settings, is_part=True
            ),
            is_separated=pair.is_separated,
        )
    if is_primitive(info):
        return PrimitiveEncoder(info, columns, settings.time_zone)
    raise InvalidSchemaError(f"values of {info.type_name} cannot be written")


def is_primitive(info: SchemaInfo) -> bool:
    """Return whether the schema is that of a single number, text, date or time."""
    return any(
        info.type == primitive for primitive in SchemaType
    ) and info.type not in (
        SchemaType.NONE,
        SchemaType.KEY_VALUE,
        SchemaType.PROTOBUF,
        SchemaType.PROTOBUF_NATIVE,
        *_RECORDS,
    )


def _raw_encoder(columns: pa.Schema) -> ValueEncoder:
    if len(columns) == 1 and (is_bytes(columns[0].type) or is_text(columns[0].type)):
        return RawEncoder(columns[0].name)
    raise UnfitColumnsError(
        "without a schema the value is one column, of bytes or text"
    )


def new_schema(columns: pa.Schema, wanted: str, encoding: str) -> SchemaInfo | None:
    """Return the schema for columns on a topic that has none that fits.

    Args:
        columns: Those that make the value.
        wanted: As the option ``schemaType`` has it.
        encoding: Of a KEY_VALUE, ``INLINE`` or ``SEPARATED``.

    Returns:
        The schema, not registered; None for none.

    Raises:
        InvalidSchemaError: No such schema has these columns.
    """
    if wanted == "auto":
        _check_no_kafka(columns)
        _check_underscores(columns)
        info = _natural(columns)
    elif wanted == "bytes":
        info = None
    elif wanted in ("avro", "json"):
        info = SchemaInfo(SchemaType[wanted.upper()], record_text(_fields(columns)))
    elif wanted == "key_value":
        info = _key_value(columns, encoding)
    else:
        info = SchemaInfo(SchemaType[wanted.upper()])
    encoder_for(info, columns)
    return info


def _check_no_kafka(columns: pa.Schema) -> None:
    """Refuse rows for Kafka's sink, from which a record would be made in silence."""
    types = {field.name.casefold(): field.type for field in columns}
    if _has_bytes(types) and len(columns) > 1 and set(types) <= set(OF_KAFKA):
        raise InvalidSchemaError(
            "their columns are those of Spark's Kafka source, and would be fields of a"
            f" record. Rename {renamed_from_kafka(columns.names)}; for a record"
            " with such fields set schemaType=avro"
        )


def _check_underscores(columns: pa.Schema) -> None:
    """Refuse a column that is meant as one of ours: it would be a field for good.

    Only next to bytes or text as `value`: other rows are records, of any names.
    """
    if not _has_bytes({field.name: field.type for field in columns}):
        return
    for name in columns.names:
        if meant := almost(name):
            raise InvalidSchemaError(
                f"`{name}` is spelt `{meant}`; for a record with a field `{name}` set"
                " schemaType=avro"
            )


def _has_bytes(types: Mapping[str, pa.DataType]) -> bool:
    """Return whether there is a column `value` of bytes or text."""
    return VALUE in types and (is_text(types[VALUE]) or is_bytes(types[VALUE]))


def extended_schema(
    registered: SchemaInfo, columns: pa.Schema, *, is_part: bool = False
) -> SchemaInfo | None:
    """Return the topic's schema with nullable fields for columns without a field.

    All else stays as it is registered. That the columns fit the schema is not checked.

    Args:
        registered: What the topic has.
        columns: Those that make the value.
        is_part: Whether it is a part of a KEY_VALUE.

    Returns:
        The schema, not registered; None where nothing is to be added.

    Raises:
        InvalidSchemaError: The schema cannot be read, or cannot have such a field, as
            the keys of messages cannot.
    """
    if registered.type in _RECORDS:
        text = extended_text(registered.data, columns, is_part=is_part)
        return None if text is None else replace(registered, data=text, version=b"")
    if registered.type != SchemaType.KEY_VALUE or set(columns.names) != {KEY, VALUE}:
        return None
    pair = parse_key_value(registered)
    key, value = (
        extended_schema(part, pa.schema([columns.field(name)]), is_part=True)
        for name, part in ((KEY, pair.key), (VALUE, pair.value))
    )
    if key is not None and pair.is_separated:
        raise UnfitColumnsError(
            "`key` has fields that the schema has not, and with these the same keys"
            " would be other bytes: messages from before would not be compacted with"
            " new ones, nor be in the same partition. Leave the fields out, or write to"
            " another topic"
        )
    if key is None and value is None:
        return None
    return with_parts(
        registered,
        None if key is None else key.data,
        None if value is None else value.data,
    )


def _natural(columns: pa.Schema) -> SchemaInfo | None:
    """Return the schema of columns where no option names a schema.

    Bytes or text in ``value`` are none. To give a topic its first schema is for good,
    and changes what all who read it see: so what has always been written without one
    is, until ``schemaType=string`` says otherwise.
    """
    if columns.names == [VALUE] and (
        is_text(columns[0].type) or is_bytes(columns[0].type)
    ):
        return None
    if len(columns) == 1 and is_bytes(columns[0].type):
        raise InvalidSchemaError(f"`{columns[0].name}` is bytes: name it `{VALUE}`")
    if len(columns) == 1 and spelling(columns[0].name) == VALUE:
        raise InvalidSchemaError(
            f"`{columns[0].name}` is spelt `{VALUE}`; for a schema of its own name it"
            " otherwise, or set schemaType"
        )
    if len(columns) == 1 and not is_record(list(columns)):
        kind = primitive_of(columns[0].type)
        if kind is not None:
            return SchemaInfo(kind)
    return SchemaInfo(SchemaType.AVRO, record_text(_fields(columns)))


def _fields(columns: pa.Schema) -> pa.Schema:
    """Return the fields of a new record.

    A STRUCT within one of the same name would be taken for the field of that name.
    """
    if not is_record(list(columns)):
        return columns
    (column,) = columns
    is_twice = any(
        field.name == column.name and is_record([field]) for field in column.type
    )
    return columns if is_twice else pa.schema(list(column.type))


def _key_value(columns: pa.Schema, encoding: str) -> SchemaInfo:
    if set(columns.names) != {KEY, VALUE}:
        raise InvalidSchemaError("a KEY_VALUE is of two columns, `key` and `value`")
    parts: Sequence[SchemaInfo] = [_part(columns.field(name)) for name in (KEY, VALUE)]
    return join_schemas(parts[0], parts[1], encoding)


def _part(field: pa.Field) -> SchemaInfo:
    if is_bytes(field.type):
        return SchemaInfo(SchemaType.NONE)
    if kind := primitive_of(field.type):
        return SchemaInfo(kind)
    name = field.name
    fields = list(field.type) if pa.types.is_struct(field.type) else [field]
    return SchemaInfo(SchemaType.AVRO, record_text(pa.schema(fields), name))
