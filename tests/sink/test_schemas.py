# SPDX-License-Identifier: Apache-2.0
"""With which schema rows go to a topic, with a broker that has what a test says."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.values.encoders import new_schema
from pulsar_spark.arrow.values.key_value_encoder import join_schemas
from pulsar_spark.arrow.values.sql_types import sql_type
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import BrokerError, SchemaError
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.options import parse_write_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.sink.schemas import (
    ByTopicEncoder,
    TopicSchemas,
    difference,
    value_columns,
)
from pulsar_spark.topics import TopicName
from tests.support.scripted_broker import ScriptedBroker, numbered, refuse

TOPIC = TopicName("public", "default", "t")
OTHER = TopicName("public", "default", "o")
ROWS = pa.schema([("id", pa.int64()), ("__key", pa.string()), ("name", pa.string())])
FULL = pa.schema([("id", pa.int64()), ("name", pa.string())])
BYTES = pa.schema([("value", pa.binary())])
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "name", "type": "string"}, {"name": "id", "type": "long"}],
    }
)


def schemas(pool: ConnectionPool, columns: pa.Schema, **given: str) -> TopicSchemas:
    """The schemas of a write of these columns."""
    named = {"service.url": "pulsar://127.0.0.1:1", **given}
    return TopicSchemas(pool, parse_write_options(named, streaming=False), columns)


def chosen(pool: ConnectionPool, columns: pa.Schema, **given: str) -> SchemaInfo | None:
    """The schema of rows of the topic."""
    one = schemas(pool, columns, **given)
    one.choose([TOPIC])
    return one.chosen[TOPIC]


def test_columns_of_the_value() -> None:
    """Those with a meaning of their own are no part of it, but for ``value``."""
    assert value_columns(ROWS) == FULL
    assert value_columns(BYTES) == BYTES


@pytest.mark.parametrize("type_", [pa.string(), pa.int64()])
def test_a_value_of_another_spelling(
    scripted: ScriptedBroker, pool: ConnectionPool, type_: pa.DataType
) -> None:
    """It gives no topic its first schema by mistake; a topic that has one takes it."""
    columns = pa.schema([("VALUE", type_), ("__key", pa.string())])
    with pytest.raises(SchemaError, match="`VALUE` is spelt `value`"):
        chosen(pool, columns)
    assert chosen(pool, columns, schemaType="avro")
    kind = SchemaType.STRING if type_ == pa.string() else SchemaType.INT64
    registered = scripted.add_schema(TOPIC.full_name, kind)
    assert chosen(pool, columns) == registered


class TestCopies:
    """The schema of another topic, byte for byte."""

    SOURCE = TopicName("public", "default", "s")
    COPY = pa.schema([("value", pa.binary()), ("__schemaVersion", pa.int64())])

    @pytest.mark.parametrize("columns", [FULL, COPY], ids=["columns", "bytes"])
    def test_into_a_topic_without_one(
        self, scripted: ScriptedBroker, pool: ConnectionPool, columns: pa.Schema
    ) -> None:
        """It is to be registered, its properties included."""
        text = AVRO.replace(":", " : ")
        properties = {"p": "q"}
        source = scripted.add_schema(
            self.SOURCE.full_name, SchemaType.AVRO, text, properties
        )
        one = schemas(pool, columns, schemaTopic="s")
        one.choose([TOPIC])
        assert one.chosen[TOPIC] == replace(source, version=b"")
        assert one.chosen[TOPIC].data == text.encode()
        assert not one.is_registered(TOPIC)

    def test_into_a_topic_that_has_it(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Nothing is registered, whatever the numbers of versions are."""
        scripted.add_schema(TOPIC.full_name, SchemaType.STRING, "")
        for topic in (TOPIC, self.SOURCE):
            scripted.add_schema(topic.full_name, SchemaType.AVRO, AVRO)
        one = schemas(pool, FULL, schemaTopic="s")
        one.choose([TOPIC])
        assert one.is_registered(TOPIC)

    @pytest.mark.parametrize("kind", [SchemaType.INT64, SchemaType.STRING])
    def test_types_without_a_definition(
        self, scripted: ScriptedBroker, pool: ConnectionPool, kind: SchemaType
    ) -> None:
        """Two of them are not the same for that."""
        scripted.add_schema(TOPIC.full_name, SchemaType.STRING, "")
        scripted.add_schema(self.SOURCE.full_name, kind, "")
        one = schemas(pool, self.COPY, schemaTopic="s")
        one.choose([TOPIC])
        assert one.is_registered(TOPIC) is (kind is SchemaType.STRING)
        assert one.chosen[TOPIC].type == kind

    def test_keys_elsewhere(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Brokers would take it for the same, and consumers look in the wrong place."""
        for topic, encoding in ((TOPIC, "INLINE"), (self.SOURCE, "SEPARATED")):
            pair = pa.schema([("key", pa.string()), ("value", pa.string())])
            info = new_schema(pair, "key_value", encoding)
            assert info is not None
            scripted.add_schema(
                topic.full_name, info.type, info.data.decode(), info.properties
            )
        with pytest.raises(SchemaError, match="INLINE instead of SEPARATED"):
            chosen(pool, self.COPY, schemaTopic="s")

    def test_key_value_of_other_types(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Brokers would take it for the same, and consumers its values for others."""
        found = {}
        kinds = [SchemaType.STRING, SchemaType.INT64, SchemaType.DOUBLE]
        parts = itertools.product(kinds, kinds, ["INLINE", "SEPARATED"])
        for key, value, encoding in parts:
            info = join_schemas(SchemaInfo(key), SchemaInfo(value), encoding)
            found[key, value, encoding] = info
        for ours, theirs in itertools.product(found, found):
            for topic, info in ((TOPIC, found[ours]), (self.SOURCE, found[theirs])):
                scripted.schemas[topic.full_name] = [replace(info, version=bytes(8))]
            one = schemas(pool, self.COPY, schemaTopic="s")
            if ours == theirs:
                one.choose([TOPIC])
                assert one.is_registered(TOPIC)
                continue
            with pytest.raises(
                SchemaError, match=r"has .*, but .* instead of .*, which"
            ):
                one.choose([TOPIC])

    def test_properties_that_move_values(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """An equal text is not equal values, where one begins after some bytes."""
        offset = {"__AVRO_READ_OFFSET__": "5"}
        for topic, properties in ((TOPIC, {}), (self.SOURCE, offset)):
            scripted.add_schema(topic.full_name, SchemaType.AVRO, AVRO, properties)
        with pytest.raises(SchemaError, match=r'but \{\} instead of .*OFFSET__": "5'):
            chosen(pool, self.COPY, schemaTopic="s")

    def test_there_is_none(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The error names the topic that has none."""
        with pytest.raises(SchemaError, match="public/default/s, which has no schema"):
            chosen(pool, FULL, schemaTopic="s")

    def test_rows_that_do_not_fit(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The error names whose schema it is."""
        scripted.add_schema(self.SOURCE.full_name, SchemaType.INT64, "")
        with pytest.raises(SchemaError, match=r"with the schema of persistent:.*/s: "):
            chosen(pool, FULL, schemaTopic="s")

    def test_a_field_that_is_called_like_all_bytes(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Its decoded values are not taken for whole ones."""
        text = '{"type":"record","name":"R","fields":[{"name":"value","type":"bytes"}]}'
        scripted.add_schema(self.SOURCE.full_name, SchemaType.AVRO, text)
        with pytest.raises(SchemaError, match="cannot tell what `value` is"):
            chosen(pool, self.COPY, schemaTopic="s")

    def test_rows_that_name_topics(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Each of the topics gets it."""
        scripted.add_schema(self.SOURCE.full_name, SchemaType.AVRO, AVRO)
        scripted.add_schema(OTHER.full_name, SchemaType.STRING, "")
        columns = self.COPY.append(pa.field("__topic", pa.string()))
        one = schemas(pool, columns, schemaTopic="s")
        encoder = ByTopicEncoder(one, columns, one.choose)
        names = [OTHER.full_name, TOPIC.full_name, OTHER.full_name]
        found = encoder.encode(
            [
                pa.array([b"a", b"b", b"c"]),
                pa.array([0, 0, 0], pa.int64()),
                pa.array(names),
            ]
        )
        assert found.values.to_pylist() == [b"a", b"b", b"c"]
        assert {one.chosen[topic].type for topic in (TOPIC, OTHER)} == {SchemaType.AVRO}

    @pytest.mark.parametrize("version", [0, 2, None])
    def test_bytes_of_other_versions(
        self, scripted: ScriptedBroker, pool: ConnectionPool, version: int | None
    ) -> None:
        """They are not passed off as the latest one."""
        for text in (AVRO, AVRO.replace("R", "S")):
            scripted.add_schema(self.SOURCE.full_name, SchemaType.AVRO, text)
        one = schemas(pool, self.COPY, schemaTopic="s")
        one.choose([TOPIC])
        values = pa.array([b"a", b"", None, b"b"], pa.binary())
        encoder = one.encoder(TOPIC)
        good = pa.array([1, 1, 1, 1], pa.int64())
        assert encoder.encode([values, good]).values.to_pylist() == [
            b"a",
            b"",
            None,
            b"b",
        ]
        # A null value is the same in all versions.
        other = pa.array([1, 1, version, version], pa.int64())
        with pytest.raises(UnfitValueError, match="bytes of version 1 alone") as caught:
            encoder.encode([values, other])
        assert caught.value.row == 3


def test_what_the_topic_has(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It is used as it is, and nothing is registered."""
    registered = scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    one = schemas(pool, ROWS)
    one.choose([TOPIC])
    assert one.chosen[TOPIC] == registered
    assert one.is_registered(TOPIC)
    one.register(TOPIC, TOPIC.full_name)
    assert not scripted.requests["PRODUCER"]


def test_nothing_and_what_was_deleted(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Then the columns decide; bytes and text are written as ever."""
    for _ in range(2):
        assert chosen(pool, BYTES) is None
        info = chosen(pool, ROWS)
        assert info is not None
        assert info.type == SchemaType.AVRO
        scripted.add_schema(TOPIC.full_name, SchemaType.STRING)
        scripted.delete_schema(TOPIC.full_name)


class TestATopicInUse:
    """A topic that has messages, and no schema."""

    ONE = pa.schema([("id", pa.int64())])

    @pytest.mark.parametrize("partition", [None, 1])
    @pytest.mark.parametrize(
        ("columns", "wanted"), [(FULL, "avro"), (ONE, "int64")], ids=["two", "one"]
    )
    def test_it_gets_a_schema_on_request_only(
        self,
        scripted: ScriptedBroker,
        pool: ConnectionPool,
        columns: pa.Schema,
        wanted: str,
        partition: int | None,
    ) -> None:
        """By ``auto`` its readers could no longer read what is there."""
        names = [TOPIC.full_name]
        if partition is not None:
            scripted.partitions[TOPIC.full_name] = 2
            names = [TOPIC.partition(index).full_name for index in range(2)]
        for name in names:
            scripted.add_topic(name)
        assert chosen(pool, columns)
        scripted.append(names[-1], *numbered(1, 1))
        with pytest.raises(SchemaError, match="has messages and no schema") as caught:
            chosen(pool, columns)
        assert f"set schemaType={wanted}." in caught.value.message
        assert chosen(pool, columns, schemaType=wanted)
        assert chosen(pool, BYTES) is None

    def test_a_task_of_the_same_write_was_first(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Messages that came with a schema in the meantime are no reason."""
        scripted.add_topic(TOPIC.full_name, numbered(1, 1))
        one = schemas(pool, FULL)
        asked = one._is_guessed

        def is_guessed(info: SchemaInfo | None) -> bool:
            scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
            return asked(info)

        one._is_guessed = is_guessed  # type: ignore[method-assign]
        one.choose([TOPIC])
        assert one.is_registered(TOPIC)
        assert one.chosen[TOPIC] is not None

    def test_a_role_that_may_only_produce(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """It cannot look, and gives a topic its first schema as ever."""
        scripted.add_topic(TOPIC.full_name, numbered(1, 1))
        scripted.script("SUBSCRIBE", refuse("AuthorizationError"))
        assert chosen(pool, FULL)


def test_bytes_on_request(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """The registry is not even asked."""
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    assert chosen(pool, BYTES, schemaType="bytes") is None
    assert not scripted.requests["GET_SCHEMA"]


@pytest.mark.parametrize(
    ("kind", "data", "columns"),
    [
        (SchemaType.AVRO, AVRO, BYTES),
        (SchemaType.JSON, AVRO, BYTES),
        (SchemaType.STRING, "", BYTES),
        (SchemaType.INT32, "", ROWS),
        (SchemaType.PROTOBUF_NATIVE, "{}", ROWS),
    ],
)
def test_what_cannot_be_a_next_version(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    kind: SchemaType,
    data: str,
    columns: pa.Schema,
) -> None:
    """The error names what the topic has, and how bytes get there if these are some."""
    scripted.add_schema(TOPIC.full_name, kind, data)
    with pytest.raises(SchemaError) as caught:
        chosen(pool, columns)
    text = caught.value.message
    assert f"{TOPIC.full_name} has the schema {kind.name}, version 0" in text
    is_of_columns = kind is SchemaType.INT32
    assert ("schemaType=bytes" in text) is not is_of_columns


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_the_next_version(
    scripted: ScriptedBroker, pool: ConnectionPool, kind: SchemaType
) -> None:
    """The topic's own with columns that are new, and its properties, as they are."""
    given = {"__alwaysAllowNull": "true"}
    scripted.add_schema(TOPIC.full_name, kind, AVRO, given)
    one = schemas(pool, pa.schema([*ROWS, ("more", pa.int8())]))
    one.choose([TOPIC])
    one.register(TOPIC, TOPIC.full_name)
    _, latest = scripted.schemas[TOPIC.full_name]
    assert (latest.type, latest.properties) == (kind, given)
    before = json.loads(AVRO)
    before["fields"] += [{"name": "more", "type": ["null", "int"], "default": None}]
    assert json.loads(latest.data) == before


MOMENT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
DAY, TIME = pa.date32(), pa.time64("ns")


def logical(kind: str, meaning: str, **more: Any) -> Any:
    """A type with a meaning."""
    return {"type": kind, "logicalType": meaning, **more}


#: Types of a field, of a column that means something else, and what the error says.
OTHER_MEANINGS = [
    ("long", MOMENT, "BIGINT: write unix_millis(x) or unix_micros(x), whichever"),
    ("long", LOCAL, "BIGINT: write unix_millis(CAST(x AS TIMESTAMP)) or"),
    (
        logical("long", "local-timestamp-millis"),
        MOMENT,
        (
            "TIMESTAMP_NTZ (long local-timestamp-millis in AVRO): write CAST(x AS"
            " TIMESTAMP_NTZ)"
        ),
    ),
    (
        logical("long", "local-timestamp-micros"),
        MOMENT,
        "write CAST(x AS TIMESTAMP_NTZ)",
    ),
    (logical("long", "timestamp-millis"), LOCAL, "write CAST(x AS TIMESTAMP)"),
    (
        logical("long", "timestamp-millis"),
        pa.int64(),
        (
            "TIMESTAMP (long timestamp-millis in AVRO): write timestamp_millis(x) or"
            " timestamp_micros(x), whichever"
        ),
    ),
    (logical("long", "time-micros"), MOMENT, "TIME (long time-micros in AVRO): write"),
    (logical("int", "time-millis"), DAY, "TIME (int time-millis in AVRO): write a"),
    ("int", DAY, "INT: write unix_date(x), if"),
    (logical("int", "date"), pa.int32(), "DATE (int date in AVRO): write date_from"),
    (
        logical("fixed", "decimal", name="D", size=5, precision=10, scale=2),
        pa.decimal128(10, 4),
        "DECIMAL(10, 2): write CAST(x AS DECIMAL(10, 2))",
    ),
    ("int", pa.int64(), "INT: write CAST(x AS INT)"),
    ("double", pa.int64(), "DOUBLE: write CAST(x AS DOUBLE)"),
    ("float", pa.int32(), "FLOAT: write CAST(x AS FLOAT)"),
    ("string", pa.int64(), "STRING: write CAST(x AS STRING)"),
    ({"type": "array", "items": "int"}, pa.int64(), "ARRAY<INT>"),
]


@pytest.mark.parametrize("form", [SchemaType.AVRO, SchemaType.JSON])
@pytest.mark.parametrize(("type_", "column", "said"), OTHER_MEANINGS)
def test_a_column_that_means_something_else(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    form: SchemaType,
    type_: Any,
    column: pa.DataType,
    said: str,
) -> None:
    """An error names both meanings and the cast; more columns do not change that."""
    for given in (type_, ["null", type_]):
        text = json.dumps(record_of(("x", given)))
        scripted.add_schema(TOPIC.full_name, form, text)
        for more in ([], [("more", pa.int8())]):
            with pytest.raises(SchemaError) as caught:
                chosen(pool, pa.schema([("x", column), *more]))
            assert said in caught.value.message
            assert f"`x` is {sql_type(column)}, and the schema has" in str(caught.value)
    assert not scripted.requests["PRODUCER"]


def test_fields_that_rows_leave_out(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """They stay in the schema: by their default or null, or the write is an error."""
    tree = record_of(("id", "long"), ("a", ["null", "int"], None), ("b", "int", 5))
    tree |= {"namespace": "shop", "doc": "?", "owner": "team"}
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, json.dumps(tree), {"p": "q"})
    info = chosen(pool, pa.schema([("id", pa.int64()), ("c", pa.string())]))
    assert info is not None
    more = {"name": "c", "type": ["null", "string"], "default": None}
    assert json.loads(info.data) == tree | {"fields": [*tree["fields"], more]}
    assert info.properties == {"p": "q"}
    missing = "`id` is a field of the schema without a default.* a column `id` BIGINT"
    with pytest.raises(SchemaError, match=missing):
        chosen(pool, pa.schema([("a", pa.int32()), ("c", pa.string())]))


@pytest.mark.parametrize("wanted", ["json", "string", "key_value"])
def test_another_type_than_the_topic_has(
    scripted: ScriptedBroker, pool: ConnectionPool, wanted: str
) -> None:
    """What a topic has is not replaced, whatever its compatibility would allow."""
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    with pytest.raises(SchemaError, match=f"version 0, and schemaType says {wanted}"):
        chosen(pool, FULL, schemaType=wanted)


def test_a_refusal(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """The broker's reason without its inner one, and the fields that differ."""
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    one = schemas(pool, pa.schema([*FULL, ("more", pa.int8())]))
    one.choose([TOPIC])
    reason = (
        'org.apache.avro.SchemaValidationException: Unable to read schema: \n{"type":'
        " caused by org.apache.x.Y: because"
    )
    scripted.script("PRODUCER", refuse("IncompatibleSchema", reason))
    with pytest.raises(SchemaError) as caught:
        one.register(TOPIC, TOPIC.full_name)
    text = caught.value.message
    assert (
        "refuses the schema of these rows. The rows differ from AVRO, version" in text
    )
    assert "new: `more` INT. Write the columns that the topic has alone, or" in text
    assert text.endswith("The broker says: Unable to read schema.")


def test_a_namespace_that_registers_nothing(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The cure is not the compatibility of schemas, with and without a schema."""
    reason = "Schema not found and schema auto updating is disabled."
    for is_typed in (False, True):
        if is_typed:
            scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
        one = schemas(pool, pa.schema([*ROWS, ("more", pa.int8())]))
        one.choose([TOPIC])
        scripted.script("PRODUCER", refuse("IncompatibleSchema", reason))
        with pytest.raises(SchemaError) as caught:
            one.register(TOPIC, TOPIC.full_name)
        text = caught.value.message
        assert "set-is-allow-auto-update-schema --enable" in text
        assert "pulsar-admin schemas upload" in text
        assert "compatibility" not in text
        assert ("the columns that the topic has" in text) is is_typed


def test_other_refusals(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """What is not about schemas stays as it is."""
    one = schemas(pool, ROWS)
    one.choose([TOPIC])
    scripted.script("PRODUCER", refuse("ProducerFenced"))
    with pytest.raises(BrokerError, match="ProducerFenced"):
        one.register(TOPIC, TOPIC.full_name)


def test_keys_twice(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Where the schema makes the messages' keys, rows have none besides."""
    pair = pa.schema([("key", pa.string()), ("value", pa.int32())])
    info = new_schema(pair, "key_value", "SEPARATED")
    assert info is not None
    scripted.add_schema(
        TOPIC.full_name, SchemaType.KEY_VALUE, info.data, info.properties
    )
    assert chosen(pool, pair) is not None
    with pytest.raises(SchemaError, match="there is `__key` besides"):
        chosen(pool, pa.schema([*pair, ("__key", pa.string())]))


def test_rows_that_name_topics(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Each row's value is by its topic's schema, in the order of the rows."""
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    scripted.add_schema(OTHER.full_name, SchemaType.JSON, AVRO)
    columns = pa.schema([*FULL, ("__topic", pa.string())])
    one = schemas(pool, columns)
    found: list[Any] = []

    def find(topics: Any) -> None:
        found.append(set(topics))
        one.choose(topics)

    encoder = ByTopicEncoder(one, columns, find)
    assert encoder.columns == ("id", "name", "__topic")
    topics = pa.array(["t", "o", "public/default/t"])
    rows = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), topics]
    assert encoder.encode(rows).values.to_pylist() == [
        b"\2a\2",
        b'{"id":2,"name":"b"}',
        b"\2c\6",
    ]
    assert found == [{TOPIC, OTHER}]
    rows[1] = pa.array(["a", "b", None])
    with pytest.raises(UnfitValueError) as caught:
        encoder.encode(rows)
    assert caught.value.row == 2


def test_null_values_by_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Rows with ``__tombstone`` have none, and errors name rows among all of them."""
    scripted.add_schema(TOPIC.full_name, SchemaType.AVRO, AVRO)
    scripted.add_schema(OTHER.full_name, SchemaType.JSON, AVRO)
    columns = pa.schema([*FULL, ("__topic", pa.string()), ("__tombstone", pa.bool_())])
    one = schemas(pool, columns)
    encoder = ByTopicEncoder(one, columns, one.choose)
    assert encoder.columns == ("id", "name", "__tombstone", "__topic")
    rows = [
        pa.array([1, None, 3, 4]),
        pa.array(["a", None, None, "d"]),
        pa.array([False, True, True, None]),
        pa.array(["t", "t", "o", "o"]),
    ]
    assert encoder.encode(rows).values.to_pylist() == [
        b"\2a\2",
        None,
        None,
        b'{"id":4,"name":"d"}',
    ]
    rows[1] = pa.array(["a", None, None, None])
    with pytest.raises(UnfitValueError) as caught:
        encoder.encode(rows)
    assert caught.value.row == 3


def test_topics_that_keep_keys_elsewhere(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """One has the keys of its messages, the other has them in the values."""
    pair = pa.schema([("key", pa.string()), ("value", pa.int32())])
    for topic, encoding in ((TOPIC, "SEPARATED"), (OTHER, "INLINE")):
        info = new_schema(pair, "key_value", encoding)
        assert info is not None
        scripted.add_schema(topic.full_name, info.type, info.data, info.properties)
    columns = pa.schema([*pair, ("__topic", pa.string())])
    one = schemas(pool, columns)
    encoder = ByTopicEncoder(one, columns, one.choose)
    rows = [pa.array(["a", "b", "c"]), pa.array([1, 2, 3], pa.int32())]
    found = encoder.encode([*rows, pa.array(["t", "o", "t"])])
    assert found.keys is not None
    assert found.keys.to_pylist() == [b"a", None, b"c"]
    number = b"\0\0\0\2"
    assert found.values.to_pylist() == [
        b"\0\0\0\1",
        b"\0\0\0\1b" + b"\0\0\0\4" + number,
        b"\0\0\0\3",
    ]


def test_pairs_whose_value_comes_first(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Rows that name topics have the columns in the order of the frame."""
    pair = pa.schema([("value", pa.string()), ("key", pa.string())])
    info = new_schema(pair, "key_value", "SEPARATED")
    assert info is not None
    scripted.add_schema(TOPIC.full_name, info.type, info.data, info.properties)
    columns = pa.schema([*pair, ("__topic", pa.string())])
    one = schemas(pool, columns)
    encoder = ByTopicEncoder(one, columns, one.choose)
    found = encoder.encode([pa.array(["v"]), pa.array(["k"]), pa.array(["t"])])
    assert found.keys is not None
    assert (found.values.to_pylist(), found.keys.to_pylist()) == ([b"v"], [b"k"])


def avro(text: Any, number: int = 0) -> SchemaInfo:
    """A version of a schema."""
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    return SchemaInfo(SchemaType.AVRO, data, {}, version_bytes(number))


def record_of(*fields: Any) -> Any:
    """A record: names and types of its fields, and defaults where given."""
    parts = [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields]
    return {"type": "record", "name": "R", "fields": parts}


def key_value(value: pa.DataType) -> SchemaInfo:
    """Pairs of text and something."""
    columns = pa.schema([("key", pa.string()), ("value", value)])
    info = new_schema(columns, "key_value", "INLINE")
    assert info is not None
    return replace(info, version=version_bytes(3))


ID = record_of(("id", "long"))


@pytest.mark.parametrize(
    ("registered", "ours", "said"),
    [
        (
            SchemaInfo(SchemaType.STRING, version=version_bytes(2)),
            SchemaInfo(SchemaType.INT64),
            "The topic has STRING, version 2, the rows INT64.",
        ),
        (SchemaInfo(SchemaType.INT64), SchemaInfo(SchemaType.INT64), ""),
        (avro(b"{"), avro(ID), ""),
        (
            avro("int", 7),
            avro(ID),
            (
                "The rows differ from AVRO, version 7: new: `id` BIGINT NOT NULL; "
                "gone: `value` INT."
            ),
        ),
        (
            avro(record_of(("id", "long", 5))),
            avro(record_of(("id", "long", 6))),
            (
                "The rows differ from AVRO, version 0: "
                "changed: `id` from BIGINT NOT NULL DEFAULT 5 to BIGINT NOT NULL "
                "DEFAULT 6."
            ),
        ),
        (
            avro(ID | {"doc": "?"}),
            avro(ID),
            "The rows differ from AVRO, version 0 in what is not their fields.",
        ),
        (
            key_value(pa.int32()),
            key_value(pa.int64()),
            (
                "The rows differ from KEY_VALUE, version 3: "
                "changed: `value` from INT32 to INT64."
            ),
        ),
    ],
)
def test_differences(registered: SchemaInfo, ours: SchemaInfo, said: str) -> None:
    """What a refusal adds: kinds, fields by name, or that it is something else."""
    assert difference(registered, ours) == said


def test_a_topic_that_wants_a_schema(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Bytes go to none where the cluster enforces one: what to do is said."""
    one = schemas(pool, BYTES)
    one.choose([TOPIC])
    reason = "Producers cannot connect or send message without a schema to topics"
    error = BrokerError("refused", code="IncompatibleSchema", server_message=reason)
    found = one.explained(TOPIC, error)
    assert isinstance(found, SchemaError)
    assert f"{TOPIC.full_name} takes no values without a schema" in str(found)
