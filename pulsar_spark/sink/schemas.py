# SPDX-License-Identifier: Apache-2.0
"""The choice of a topic's schema: the registered schema, or a first schema.

The schema that a topic has is a contract with its other clients. Rows that do not fit
are an error before any row; what a write may add are nullable fields for more columns.

A schema is asked for before any row, and a new one is registered before any row: what
does not fit writes nothing. Those that rows name their topics are dealt with when the
first row for a topic comes, before any is sent there.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.values import EncodedValues, ValueEncoder, ValueSettings
from pulsar_spark.arrow.values.copy_encoder import CopyEncoder
from pulsar_spark.arrow.values.encoders import (
    encoder_for,
    extended_schema,
    is_primitive,
    new_schema,
)
from pulsar_spark.arrow.values.sql_types import meaning
from pulsar_spark.arrow.values.tombstones import TombstoneEncoder
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import has_messages
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.columns import KEY, SCHEMA_VERSION, TOMBSTONE, TOPIC, VALUE, WRITE
from pulsar_spark.encryption.encryptor import encryptors
from pulsar_spark.errors import BrokerError, PulsarSparkError, SchemaError
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.options import WriteOptions
from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    Kind,
    nullable,
    parse_avro,
)
from pulsar_spark.schemas.compare import says_the_same
from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    SchemaType,
    UnfitColumnsError,
    version_number,
)
from pulsar_spark.schemas.key_value import parse_key_value
from pulsar_spark.sink.grouping import topics_of
from pulsar_spark.system import warn_once
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.refusals import has_broken_schema, lacks_schema

_AS_BYTES = (
    "To write bytes as they are, whatever the schema says, set schemaType=bytes."
)


def value_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the value: columns without a special meaning."""
    return pa.schema(
        [field for field in schema if field.name == VALUE or field.name not in WRITE]
    )


class TopicSchemas:
    """The schemas of a write's topics.

    Args:
        pool: The cluster's connections.
        options: How to write.
        columns: All columns of the rows.

    Attributes:
        pool: The same; those to another cluster may come in their place.
        chosen: The schema of rows for each topic that was asked for, and that of
            ``schemaTopic``; None for none.
    """

    def __init__(
        self, pool: ConnectionPool, options: WriteOptions, columns: pa.Schema
    ) -> None:
        self.pool = pool
        self._options = options
        self._names = columns.names
        self._columns = value_columns(columns)
        self._settings = ValueSettings(options.json_bytes, options.time_zone)
        self._registered: dict[TopicName, SchemaInfo | None] = {}
        self.chosen: dict[TopicName, SchemaInfo | None] = {}

    def choose(self, topics: Iterable[TopicName]) -> None:
        """Choose the schema of rows for some topics.

        Raises:
            SchemaError: The rows do not fit what a topic has, or no schema at all.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        topics = list(topics)
        by_base = {topic.base.full_name for topic in topics}
        if self._options.schema_type == "bytes":
            schemas: Mapping[str, SchemaInfo | None] = dict.fromkeys(by_base)
        else:
            schemas = SchemaLookup(self.pool).latest(by_base)
        for topic in topics:
            registered = schemas[topic.base.full_name]
            if registered is not None and not registered.is_typed:
                registered = None
            self._registered[topic] = registered
            chosen = self._choice(topic, registered)
            if registered is None and self._is_guessed(chosen):
                chosen = self._first(topic, chosen)
            self.chosen[topic] = chosen

    def _is_guessed(self, chosen: SchemaInfo | None) -> bool:
        """Return whether the chosen schema was not asked for by the user."""
        options = self._options
        is_asked = options.schema_topic is not None or options.schema_type != "auto"
        return chosen is not None and not is_asked

    def _first(self, topic: TopicName, guessed: SchemaInfo | None) -> SchemaInfo | None:
        """Return the schema of a topic without schema, if empty of messages.

        Raises:
            SchemaError: It has messages without a schema, which its consumers could
                no longer read once it has one.
        """
        if not has_messages(self.pool, topic):
            return guessed
        # They may be from another task of the same write, which was the first.
        latest = SchemaLookup(self.pool).latest([topic.base.full_name])
        registered = latest[topic.base.full_name]
        if registered is not None and registered.is_typed:
            self._registered[topic] = registered
            return self._choice(topic, registered)
        assert guessed is not None
        raise SchemaError(
            f"{topic.full_name} has messages and no schema. With these columns its"
            f" schema would be {guessed.type_name}, for good, and its readers could no"
            " longer read what it has. To write such rows without a schema make one"
            f" column `{VALUE}` of them, as by to_json(struct(*)) AS {VALUE}. To give"
            " the topic this schema all the same set"
            f" schemaType={guessed.type_name.lower()}."
        )

    def is_registered(self, topic: TopicName) -> bool:
        """Return whether rows go by what the topic has."""
        return self.chosen[topic] is self._registered[topic]

    def _choice(
        self, topic: TopicName, registered: SchemaInfo | None
    ) -> SchemaInfo | None:
        schema_type = self._options.schema_type
        try:
            if self._options.schema_topic is not None:
                return self._copy(topic, registered)
            if registered is not None and schema_type != "bytes":
                return self._by_contract(topic, registered)
            encoding = self._options.key_value_encoding
            return self._checked(new_schema(self._columns, schema_type, encoding))
        except InvalidSchemaError as error:
            by = f"schemaType={schema_type}"
            if self._options.schema_topic is not None:
                by = f"the schema of {self._options.schema_topic.full_name}"
            raise SchemaError(
                f"{topic.full_name}: these rows cannot be written with {by}: {error}."
            ) from None

    def _copy(self, topic: TopicName, registered: SchemaInfo | None) -> SchemaInfo:
        """Return the schema of ``schemaTopic``, or the topic's equal schema."""
        info = replace(self._source(), version=b"")
        if registered is not None and _identity(registered) == _identity(info):
            # Brokers do not look at properties: they would register nothing.
            if not says_the_same(registered, info):
                raise SchemaError(
                    f"{topic.full_name} has the schema of schemaTopic, but "
                    f"{_other_properties(registered, info)}, which brokers take for "
                    "the same: write to another topic."
                )
            info = registered
        if not self._copies_bytes:
            self._checked(info)
        elif self._has_field_of_bytes(info):
            raise SchemaError(
                f"schemaTopic cannot tell what `{VALUE}` is: the field of this name of"
                f" {described(info)}, or all bytes of a value. Leave schemaTopic out,"
                " and write to a topic that was created with the same schema."
            )
        return info

    def _has_field_of_bytes(self, info: SchemaInfo) -> bool:
        with contextlib.suppress(InvalidSchemaError):
            column = pa.schema([self._columns.field(VALUE)])
            encoder_for(info, column, self._settings)
            return True
        return False

    def _source(self) -> SchemaInfo:
        """Return the schema of ``schemaTopic``, which is asked for once."""
        topic = self._options.schema_topic
        assert topic is not None
        if topic not in self.chosen:
            name = topic.base.full_name
            self.chosen[topic] = SchemaLookup(self.pool).latest([name])[name]
        info = self.chosen[topic]
        if info is None or not info.is_typed:
            raise SchemaError(
                f"schemaTopic names {topic.base.full_name}, which has no schema: name"
                " one that has, or leave the option out."
            )
        return info

    @property
    def _copies_bytes(self) -> bool:
        return SCHEMA_VERSION in self._columns.names

    def _checked(self, info: SchemaInfo | None) -> SchemaInfo | None:
        encoder = encoder_for(info, self._columns, self._settings)
        if getattr(encoder, "gives_keys", False) and KEY in self._names:
            raise InvalidSchemaError(
                f"the column `key` is the messages' key, and there is `{KEY}` besides: "
                f"drop `{KEY}`"
            )
        return info

    def _by_contract(self, topic: TopicName, registered: SchemaInfo) -> SchemaInfo:
        """Return the topic's schema, extended by fields for new columns.

        Raises:
            SchemaError: The rows do not fit, or such a schema cannot be written.
        """
        schema_type = self._options.schema_type
        has = f"{topic.full_name} has the schema {described(registered)}"
        if schema_type not in ("auto", registered.type_name.lower()):
            raise SchemaError(
                f"{has}, and schemaType says {schema_type}. A write does not replace"
                " the schema of a topic: leave schemaType out, or write to another"
                " topic."
            )
        info, is_raw = registered, _is_raw(self._columns)
        try:
            if not is_raw:
                info = extended_schema(registered, self._columns) or registered
            self._checked(info)
        except UnfitColumnsError as error:
            raise SchemaError(
                f"{has}, which these rows do not fit: {error}."
                + (f" {_AS_BYTES}" if is_raw else "")
            ) from None
        except InvalidSchemaError as error:
            raise SchemaError(
                f"{has}, by which these rows cannot be written: {error}. {_AS_BYTES}"
            ) from None
        return info

    def encoder(self, topic: TopicName) -> ValueEncoder:
        """Return what makes values for a topic that was asked for."""
        encoder = self._value_encoder(topic)
        return TombstoneEncoder(encoder) if TOMBSTONE in self._names else encoder

    def _value_encoder(self, topic: TopicName) -> ValueEncoder:
        if self._copies_bytes:
            version = version_number(self._source().version)
            assert version is not None
            return CopyEncoder(self._columns.names, version)
        return encoder_for(self.chosen[topic], self._columns, self._settings)

    def register(self, topic: TopicName, topic_partition: str) -> None:
        """Register the schema chosen for a topic, unless registered.

        Raises:
            SchemaError: The broker refuses it.
            PulsarSparkError: It cannot be asked.
        """
        info = self.chosen[topic]
        if info is None or self.is_registered(topic):
            return
        waits = self._options.access_mode == "WaitForExclusive"
        try:
            settings = ProducerSettings(
                waits=waits,
                follows_migration=True,
                new_encryption=encryptors(self._options.encryption, warn_once),
            )
            with Producers(self.pool, settings) as producers:
                producers.open([topic_partition], info)
        except BrokerError as error:
            raise self.explained(topic, error) from error.__cause__

    def explained(self, topic: TopicName, error: BrokerError) -> PulsarSparkError:
        """Return a broker's refusal of a schema with its cure."""
        if lacks_schema(error):
            return SchemaError(
                f"{topic.full_name} takes no values without a schema "
                "(SchemaValidationEnforced): write columns that fit its schema, or "
                "say which one they have by schemaType."
            )
        if error.code != "IncompatibleSchema" and not has_broken_schema(error):
            return error
        ours, registered = self.chosen.get(topic), self._registered.get(topic)
        text = f"{topic.full_name} refuses the schema of these rows. "
        if ours is not None and registered is not None:
            text += f"{difference(registered, ours)} "
        if _NO_UPDATES in error.server_message:
            cure = (
                "Nobody but an administrator may register schemas there"
                " (isAllowAutoUpdateSchema is false): have this one registered by"
                " `pulsar-admin schemas upload`, or new ones allowed by `pulsar-admin"
                " namespaces set-is-allow-auto-update-schema --enable`"
            )
            if registered is not None:
                cure += ", or write the columns that the topic has alone"
        elif self._options.schema_topic is not None:
            cure = (
                "Write to a topic of its own, or change the schema compatibility"
                " strategy of this one"
            )
        else:
            cure = (
                "Write the columns that the topic has alone, or change its schema"
                " compatibility strategy"
            )
        return SchemaError(f"{text}{cure}. The broker says: {_reason(error)}.")


#: How a broker says that the policy isAllowAutoUpdateSchema is false.
_NO_UPDATES = "schema auto updating is disabled"

#: The most characters of a broker's reason, or of properties, in an error.
_REASON_SHOWN = 200

#: Names of Java's classes before a message.
_CLASSES = re.compile(r"(?:\w+\.)+[A-Z]\w*: ")


def _reason(error: BrokerError) -> str:
    """Return why a broker refuses a schema, without the names of Java's classes."""
    text = error.server_message.partition(" caused by ")[0]
    text = _CLASSES.sub("", text).replace("\\n", "\n").partition("\n")[0]
    text = text.strip(" .:")
    return text if len(text) <= _REASON_SHOWN else f"{text[:_REASON_SHOWN]}..."


def _identity(info: SchemaInfo) -> tuple[int, bytes]:
    """Return by what brokers know a schema again."""
    return info.type, info.data


def _other_properties(registered: SchemaInfo, info: SchemaInfo) -> str:
    """Return the difference of two schemas whose definitions are equal."""
    if info.type == SchemaType.KEY_VALUE:
        for has, is_ in zip(_parts(registered), _parts(info), strict=True):
            if has != is_:
                return f"{has} instead of {is_}"
    texts = [json.dumps(dict(schema.properties)) for schema in (registered, info)]
    return " instead of ".join(text[:_REASON_SHOWN] for text in texts)


def _parts(info: SchemaInfo) -> list[str]:
    """Return the facts of a KEY_VALUE schema that its definition does not have."""
    pair = parse_key_value(info)
    encoding = "SEPARATED" if pair.is_separated else "INLINE"
    return [encoding, f"key {pair.key.type_name}", f"value {pair.value.type_name}"]


def _is_raw(columns: pa.Schema) -> bool:
    """Return whether the rows are bytes or text, which is no record's."""
    try:
        encoder_for(None, columns)
    except InvalidSchemaError:
        return False
    return bool(columns.names == [VALUE])


def described(info: SchemaInfo) -> str:
    """Return the description of a schema in a sentence."""
    number = version_number(info.version)
    return info.type_name if number is None else f"{info.type_name}, version {number}"


def difference(registered: SchemaInfo, ours: SchemaInfo) -> str:
    """Return the differences between the rows' and the topic's schema, as sentences."""
    if registered.type != ours.type:
        return f"The topic has {described(registered)}, the rows {described(ours)}."
    if is_primitive(ours):
        return ""
    try:
        old, new = _fields_of(registered), _fields_of(ours)
    except InvalidSchemaError:
        return ""
    parts = [f"new: `{n}` {new[n]}" for n in new if n not in old]
    parts += [f"gone: `{n}` {old[n]}" for n in old if n not in new]
    parts += [
        f"changed: `{n}` from {old[n]} to {new[n]}"
        for n in new
        if n in old and old[n] != new[n]
    ]
    listed = f": {'; '.join(parts)}" if parts else " in what is not their fields"
    return f"The rows differ from {described(registered)}{listed}."


def _fields_of(info: SchemaInfo) -> dict[str, str]:
    if info.type == SchemaType.KEY_VALUE:
        pair = parse_key_value(info)
        return {
            f"{part}.{name}" if name else part: text
            for part, schema in (("key", pair.key), ("value", pair.value))
            for name, text in _fields_of_part(schema).items()
        }
    return {name or VALUE: text for name, text in _fields_of_part(info).items()}


def _fields_of_part(info: SchemaInfo) -> dict[str, str]:
    """Return the fields of a record; other schemas have a field without a name."""
    if info.type not in (SchemaType.AVRO, SchemaType.JSON):
        return {"": info.type_name}
    root: AvroType = parse_avro(info.data)
    if root.kind is not Kind.RECORD:
        return {"": meaning(root)}
    return {field.name: _said(field) for field in root.fields}


def _said(field: AvroField) -> str:
    type_, is_nullable = nullable(field.type)
    text = meaning(type_) + ("" if is_nullable else " NOT NULL")
    if field.default is None or field.default is NO_DEFAULT:
        return text
    return f"{text} DEFAULT {json.dumps(field.default)}"


class ByTopicEncoder:
    """Encodes rows that name their topics, each by its topic's schema.

    Args:
        schemas: Of the topics.
        columns: All columns of the rows.
        find: Called with the topics of some rows before anything is made of them.
    """

    def __init__(
        self,
        schemas: TopicSchemas,
        columns: pa.Schema,
        find: Callable[[Iterable[TopicName]], None],
    ) -> None:
        self._schemas = schemas
        self._find = find
        self._rows = 0
        self._encoders: dict[TopicName, ValueEncoder] = {}
        marks = [TOMBSTONE] if TOMBSTONE in columns.names else []
        self.columns = (*value_columns(columns).names, *marks, TOPIC)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the value, and the key, of each row."""
        *columns, topics = columns
        by_topic = topics_of(topics, self._rows)
        self._rows += len(topics)
        self._find(by_topic)
        parts = []
        for topic, indices in by_topic.items():
            if topic not in self._encoders:
                self._encoders[topic] = self._schemas.encoder(topic)
            encoder = self._encoders[topic]
            if indices is None:
                return self._encode(encoder, columns, None)
            taken = [column.take(indices) for column in columns]
            parts.append(self._encode(encoder, taken, indices))
        order = pa.concat_arrays([i for i in by_topic.values() if i is not None])
        places = pc.sort_indices(order)
        values = pa.concat_arrays([part.values for part in parts]).take(places)
        if all(part.keys is None for part in parts):
            return EncodedValues(values)
        keys = [
            pa.nulls(len(part.values), pa.large_binary())
            if part.keys is None
            else part.keys
            for part in parts
        ]
        return EncodedValues(values, pa.concat_arrays(keys).take(places))

    def _encode(
        self,
        encoder: ValueEncoder,
        columns: Sequence[pa.Array],
        indices: pa.Int64Array | None,
    ) -> EncodedValues:
        by_name = dict(zip(self.columns, columns, strict=False))
        try:
            return encoder.encode([by_name[name] for name in encoder.columns])
        except UnfitValueError as error:
            row = error.row
            if indices is not None and row >= 0:
                row = indices[row].as_py()
            raise UnfitValueError(row, error.where, error.text) from None
