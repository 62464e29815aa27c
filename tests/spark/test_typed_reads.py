# SPDX-License-Identifier: Apache-2.0
"""Topics with schemas through the data source, in this process: a scripted broker."""

from __future__ import annotations

import json
import logging
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark import PulsarDataSource, SchemaError
from pulsar_spark.arrow.values import ValueRun, ValueSettings
from pulsar_spark.arrow.values.by_schema import SchemaDecoder
from pulsar_spark.errors import CorruptEntryError, TopicNotFoundError
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from spark_topics import statistics
from tests.support.scripted_broker import ScriptedBroker, batch, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_topics.spark.stream_reader import StreamReader

TOPIC = "persistent://public/default/t"
OTHER = "persistent://public/default/u"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker with an empty topic ``t``."""
    with ScriptedBroker() as one:
        one.add_topic(TOPIC)
        yield one


def record(*fields: Any, name: str = "R") -> str:
    """The text of a record's schema: names and types, and defaults where given."""
    known = [
        dict(zip(("name", "type", "default"), field, strict=False)) for field in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": known})


V1 = record(("id", "long"), ("name", "string"))
V2 = record(("id", "long"), ("name", "string"), ("mail", ["null", "string"], None))
V3 = record(
    ("id", "long"),
    ("mail", ["null", "string"], None),
    ("name", "string", "?"),
    ("score", "double", 1.5),
)
#: A message of each: 1 a, 2 b with mail m, 3 c of score 2.
ROWS = [
    bytes.fromhex("020261"),
    bytes.fromhex("04026202026d"),
    bytes.fromhex("060002630000000000000040"),
]


def sent(value: bytes | None, version: int | None, **more: Any) -> Any:
    """A message of a version of the schema, or of none; without a value a tombstone."""
    if version is not None:
        more["schema_version"] = version_bytes(version)
    if value is None:
        more["null_value"] = True
    return single(value or b"", **more)


def source(broker: ScriptedBroker, **options: str) -> PulsarDataSource:
    """A data source as Spark makes it."""
    given = {"service.url": broker.url, "metadataColumns": "none", "topic": "t"}
    given |= options
    return PulsarDataSource({k: v for k, v in given.items() if v != "-"})


def load(broker: ScriptedBroker, *columns: pa.Field, **options: str) -> Any:
    """The data source after ``load()``, and its columns; or those given."""
    made = source(broker, **options)
    if columns:
        return made, from_arrow_schema(pa.schema(columns))
    schema = made.schema()
    return pickle.loads(pickle.dumps(made)), schema  # noqa: S301 - as Spark does


def read(
    broker: ScriptedBroker, *columns: pa.Field, **options: str
) -> list[dict[str, Any]]:
    """The rows of a batch read; each RecordBatch has the schema promised."""
    made, schema = load(broker, *columns, **options)
    reader: Any = made.reader(schema)
    rows = []
    for part in reader.partitions():
        for found in reader.read(pickle.loads(pickle.dumps(part))):  # noqa: S301
            assert found.schema == reader._schema
            found.validate(full=True)
            rows += found.to_pylist()
    return rows


def values(rows: list[dict[str, Any]]) -> list[Any]:
    """The column ``value``."""
    return [row["value"] for row in rows]


def three_versions(broker: ScriptedBroker) -> None:
    """A topic whose messages are of three versions, in turn."""
    for text in (V1, V2, V3):
        broker.add_schema(TOPIC, SchemaType.AVRO, text)
    broker.append(TOPIC, *[sent(row, at) for at, row in enumerate(ROWS)] * 2)


class TestColumns:
    """Which columns a query has."""

    def test_of_a_record(self, broker: ScriptedBroker) -> None:
        """The fields of the latest version, nullable, before the metadata columns."""
        three_versions(broker)
        _, schema = load(broker, metadataColumns="__key")
        assert schema.simpleString() == (
            "struct<id:bigint,mail:string,name:string,score:double,__key:binary>"
        )
        assert all(field.nullable for field in schema)

    def test_of_protobuf_that_is_not_native(
        self,
        broker: ScriptedBroker,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Bytes, with a warning; without one where bytes were asked for."""
        monkeypatch.setattr(statistics, "_warnings", set())
        broker.add_schema(TOPIC, SchemaType.PROTOBUF, V1)
        broker.append(TOPIC, sent(b"\x08\x01", 0))
        with caplog.at_level(logging.WARNING):
            columns = pa.field("value", pa.binary())
            assert values(read(broker, columns)) == [b"\x08\x01"]
            assert "PROTOBUF" not in caplog.text
            assert values(read(broker)) == [b"\x08\x01"]
        assert "PROTOBUF_NATIVE" in caplog.text

    @pytest.mark.parametrize("is_deleted", [True, False])
    def test_of_no_schema(self, broker: ScriptedBroker, is_deleted: bool) -> None:
        """Bytes, also where the schema was deleted; asking registers nothing."""
        if is_deleted:
            broker.add_schema(TOPIC, SchemaType.AVRO, V1)
            broker.delete_schema(TOPIC)
        before = dict(broker.schemas)
        broker.append(TOPIC, sent(b"a", None), sent(b"b", 0))
        assert values(read(broker)) == [b"a", b"b"]
        assert broker.schemas == before
        for body in broker.bodies["SUBSCRIBE"]:
            assert not body.HasField("schema")

    def test_of_a_topic_that_is_waited_for(self, broker: ScriptedBroker) -> None:
        """Loading does not wait; a schema that it could not know of is an error."""
        made, schema = load(broker, topic="u", waitingForNonExistedTopic="true")
        assert schema.simpleString() == "struct<value:binary>"
        broker.add_topic(OTHER)
        assert made.reader(schema).partitions() == []
        broker.add_schema(OTHER, SchemaType.AVRO, V1)
        with pytest.raises(SchemaError, match="Load the query again"):
            made.reader(schema).partitions()

    def test_of_an_absent_topic(self, broker: ScriptedBroker) -> None:
        """It is reported as ever, when the read is planned."""
        made, schema = load(broker, topic="none")
        assert schema.simpleString() == "struct<value:binary>"
        with pytest.raises(TopicNotFoundError, match="none"):
            made.reader(schema).partitions()

    def test_of_a_pinned_version(self, broker: ScriptedBroker) -> None:
        """All messages become its columns, those of later versions, too."""
        three_versions(broker)
        rows = read(broker, schemaVersion="0")
        assert rows[:3] == [
            {"id": 1, "name": "a"},
            {"id": 2, "name": "b"},
            {"id": 3, "name": "c"},
        ]
        with pytest.raises(SchemaError, match=r"`schemaVersion` is 7.*no such version"):
            read(broker, schemaVersion="7")

    def test_of_partitions(self, broker: ScriptedBroker) -> None:
        """A partition has its topic's schema; the topic alone is asked about."""
        broker.partitions[OTHER] = 2
        for at in range(2):
            broker.add_topic(f"{OTHER}-partition-{at}", [sent(b"\0\0\0\7", 0)])
        broker.add_schema(OTHER, SchemaType.INT32)
        assert values(read(broker, topic="u")) == [7, 7]
        assert values(read(broker, topic="u-partition-1")) == [7]
        asked = [body.topic for body in broker.bodies["GET_SCHEMA"]]
        assert set(asked) == {OTHER}

    def test_of_a_pattern(self, broker: ScriptedBroker) -> None:
        """All topics that match are asked."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        broker.append(TOPIC, sent(b"\0\0\0\7", 0))
        assert values(read(broker, topic="-", topicsPattern="public/default/.*")) == [7]

    def test_names_that_are_taken(self, broker: ScriptedBroker) -> None:
        """A field cannot be called like a column of every topic; others can be had."""
        broker.add_schema(
            TOPIC, SchemaType.AVRO, record(("__KEY", "string"), ("id", "long"))
        )
        broker.append(TOPIC, sent(bytes.fromhex("027802"), 0, partition_key="k"))
        with pytest.raises(SchemaError, match=r"`__KEY` is the name of a column"):
            load(broker)
        rows = read(broker, pa.field("id", pa.int64()), pa.field("__key", pa.binary()))
        assert rows == [{"id": 1, "__key": b"k"}]

    def test_names_that_differ_by_case(self, broker: ScriptedBroker) -> None:
        """The error names the topic, the version and the fields, and a cure."""
        broker.add_schema(TOPIC, SchemaType.AVRO, record(("a", "int"), ("A", "int")))
        with pytest.raises(SchemaError) as caught:
            load(broker)
        for part in (TOPIC, "version 0", "`a` and `A`", 'schema("value BINARY")'):
            assert part in caught.value.message


class TestChosen:
    """The user's own columns."""

    def test_a_subset_in_another_order(self, broker: ScriptedBroker) -> None:
        """The rest is not looked at."""
        three_versions(broker)
        rows = read(broker, pa.field("name", pa.string()), pa.field("id", pa.int64()))
        assert rows[1] == {"name": "b", "id": 2}
        assert list(rows[0]) == ["name", "id"]

    def test_bytes_on_request(self, broker: ScriptedBroker) -> None:
        """Nothing is decoded, and nothing is asked but which columns there are."""
        three_versions(broker)
        rows = read(broker, pa.field("value", pa.binary()))
        assert values(rows) == ROWS * 2
        assert broker.requests["GET_SCHEMA"] == 1

    def test_metadata_only(self, broker: ScriptedBroker) -> None:
        """Values may be anything."""
        three_versions(broker)
        rows = read(broker, pa.field("__schemaVersion", pa.int64()))
        assert [row["__schemaVersion"] for row in rows] == [0, 1, 2] * 2

    def test_bytes_that_are_ambiguous(self, broker: ScriptedBroker) -> None:
        """A field called value, of bytes, and the whole value."""
        broker.add_schema(TOPIC, SchemaType.AVRO, record(("value", "bytes")))
        broker.append(TOPIC, sent(b"\x02a", 0))
        assert values(read(broker)) == [b"a"]
        with pytest.raises(SchemaError, match="ambiguous"):
            read(broker, pa.field("value", pa.binary()))
        rows = read(broker, allowDifferentTopicSchemas="true")
        assert rows == [{"value": b"\x02a", "__schemaVersion": 0}]

    @pytest.mark.parametrize(
        ("field", "text"),
        [
            (pa.field("valu", pa.binary()), "there is no column `valu`"),
            (pa.field("Value", pa.binary()), "there is no column `Value` (it is spelt"),
            (pa.field("__KEY", pa.binary()), "`__KEY` (it is spelt `__key`)"),
            (pa.field("value", pa.string()), "`value` is BINARY, not STRING"),
        ],
    )
    def test_of_no_schema(
        self, broker: ScriptedBroker, field: pa.Field, text: str
    ) -> None:
        """A topic without one has bytes only."""
        good = [] if field.name == "value" else [pa.field("value", pa.binary())]
        with pytest.raises(SchemaError) as caught:
            read(broker, field, *good)
        assert text in caught.value.message
        assert ";" not in caught.value.message  # nothing is said of what is right
        assert "Choose among the columns value, __key" in caught.value.message

    @pytest.mark.parametrize(
        "field", [pa.field("nome", pa.string()), pa.field("name", pa.int32())]
    )
    def test_what_the_schema_cannot_give(
        self, broker: ScriptedBroker, field: pa.Field
    ) -> None:
        """The columns that there are, and the topic and its version, are named."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        with pytest.raises(SchemaError) as caught:
            read(broker, field)
        for part in (field.name, TOPIC, "version 0", "`id` BIGINT, `name` STRING"):
            assert part in caught.value.message

    def test_two_fields_of_one_name(self, broker: ScriptedBroker) -> None:
        """Within a struct no column says which is which."""
        inner = {
            "type": "record",
            "name": "S",
            "fields": [{"name": "a", "type": "int"}],
        }
        broker.add_schema(TOPIC, SchemaType.AVRO, record(("s", inner)))
        twins = pa.struct([pa.field("a", pa.int32()), pa.field("a", pa.int32())])
        for type_, where in ((twins, "s"), (pa.list_(twins), "s[]")):
            with pytest.raises(SchemaError) as caught:
                read(broker, pa.field("s", type_))
            assert f"`{where}` has two fields of one name" in caught.value.message


class TestVersions:
    """Each message is read with the schema that it was written with."""

    def test_three_in_turn(self, broker: ScriptedBroker) -> None:
        """Into the latest; one request for each version and task."""
        three_versions(broker)
        expected = [
            {"id": 1, "mail": None, "name": "a", "score": 1.5},
            {"id": 2, "mail": "m", "name": "b", "score": 1.5},
            {"id": 3, "mail": None, "name": "c", "score": 2.0},
        ]
        assert read(broker) == expected * 2
        assert broker.requests["GET_SCHEMA"] == 1 + 3

    def test_topics_count_by_themselves(self, broker: ScriptedBroker) -> None:
        """In one task, too: version 0 of one is not version 0 of the other."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.add_schema(TOPIC, SchemaType.AVRO, V2)
        broker.add_topic(OTHER, [sent(ROWS[1], 0)])
        broker.add_schema(OTHER, SchemaType.AVRO, V2)
        broker.append(TOPIC, sent(ROWS[0], 0), sent(ROWS[1], 1))
        rows = read(broker, topic="-", topics="t,u", maxPartitions="1")
        assert [row["mail"] for row in rows] == [None, "m", "m"]

    @pytest.mark.parametrize(
        ("version", "text"),
        [
            (None, "it was sent without a schema"),
            (b"", "it was sent without a schema"),
            (b"\1", "by 1 bytes, and not by 8"),
            (bytes(64), "by 64 bytes, and not by 8"),
            (version_bytes(99), "version 99 is not known to the cluster"),
        ],
    )
    def test_none_that_is_known(
        self, broker: ScriptedBroker, version: bytes | None, text: str
    ) -> None:
        """Never a guess; the message is named, and no broker is asked in vain."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        more = {} if version is None else {"schema_version": version}
        broker.append(TOPIC, sent(ROWS[0], 0), single(ROWS[0], **more))
        with pytest.raises(CorruptEntryError) as caught:
            read(broker)
        error = caught.value
        assert text in error.message
        assert (error.topic_partition, error.message_id) == (TOPIC, "7:1")
        assert "PERMISSIVE" in error.message
        assert broker.connections <= 3
        rows = read(broker, mode="PERMISSIVE")
        assert [row["_corrupt_record"] for row in rows] == [None, ROWS[0]]

    def test_versions_without_end(self, broker: ScriptedBroker) -> None:
        """A producer that makes them up does not cost a request for each message."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        broker.append(TOPIC, *(sent(b"\0\0\0\1", 5 + at) for at in range(150)))
        assert read(broker, mode="DROPMALFORMED") == []
        assert broker.requests["GET_SCHEMA"] == 1 + 100

    def test_versions_that_are_not_kept(self) -> None:
        """Nor memory: only what the cluster was asked for is kept."""
        info = SchemaInfo(SchemaType.INT32)
        wanted = pa.schema([("value", pa.int32())])
        made = SchemaDecoder(info, wanted, ValueSettings(), lambda _: None)
        value = pa.array([b"\0\0\0\1"], pa.binary())
        for at in range(200):
            for version in (version_bytes(5 + at), bytes(9 + at), bytes(at % 8)):
                assert list(made.decode(ValueRun(value, version)).bad) == [0]
        assert len(made._decoders) == 100

    def test_a_schema_that_was_deleted(self, broker: ScriptedBroker) -> None:
        """Messages from before cannot be read any more, what came later can."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        broker.delete_schema(TOPIC)
        broker.add_schema(TOPIC, SchemaType.INT32)
        broker.append(
            TOPIC,
            sent(b"\0\0\0\1", 0),
            sent(b"\0\0\0\2", 1),
            sent(b"\0\0\0\3", 2),
        )
        assert values(read(broker, mode="PERMISSIVE")) == [None, None, 3]

    def test_a_topic_that_was_created_again(self, broker: ScriptedBroker) -> None:
        """Its version 0 is another schema, in the same process."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        broker.append(TOPIC, sent(b"\0\0\0\1", 0))
        assert values(read(broker)) == [1]
        broker.delete_topic(TOPIC)
        del broker.schemas[TOPIC]
        broker.add_topic(TOPIC, [sent(b"text", 0)])
        broker.add_schema(TOPIC, SchemaType.STRING)
        assert values(read(broker)) == ["text"]

    def test_one_that_cannot_be_read_as_the_query(self, broker: ScriptedBroker) -> None:
        """It is named, with its type; other messages are read."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.add_schema(TOPIC, SchemaType.STRING)
        broker.append(TOPIC, sent(ROWS[0], 0), sent(b"text", 1))
        with pytest.raises(CorruptEntryError, match=r"version 1, STRING, cannot be"):
            read(broker, schemaVersion="0")


class TestModes:
    """What becomes of values that are not what their schema says."""

    def topic(self, broker: ScriptedBroker) -> None:
        """Batches with a bad value, a tombstone and an empty one."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        version = {"schema_version": version_bytes(0)}
        broker.append(
            TOPIC,
            batch([b"\0\0\0\1", b"bad!!", b"\0\0\0\2"], **version),
            sent(None, 0),
            sent(None, None),
            sent(b"", 0),
            batch([b"\xff", b"\0\0\0\3"], **version),
        )

    def test_failfast(self, broker: ScriptedBroker) -> None:
        """The default: the first bad message is an error."""
        self.topic(broker)
        with pytest.raises(CorruptEntryError) as caught:
            read(broker)
        for part in (TOPIC, "7:0", "of version 0: ", "`mode` to PERMISSIVE"):
            assert part in caught.value.message

    def test_permissive(self, broker: ScriptedBroker) -> None:
        """NULL, and the bytes in a column of their own; other rows are as they are."""
        self.topic(broker)
        rows = read(broker, mode="PERMISSIVE", metadataColumns="__topic")
        assert list(rows[0]) == ["value", "__topic", "_corrupt_record"]
        assert values(rows) == [1, None, 2, None, None, None, None, 3]
        bad = [row["_corrupt_record"] for row in rows]
        assert bad == [None, b"bad!!", None, None, None, None, b"\xff", None]

    def test_dropmalformed(
        self, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Such rows are not there, and the first of them is logged."""
        self.topic(broker)
        with caplog.at_level(logging.WARNING):
            rows = read(broker, mode="dropmalformed")
        assert values(rows) == [1, 2, None, None, None, 3]
        (line,) = [r for r in caplog.records if "rows are left out" in r.getMessage()]
        assert "7:0" in line.getMessage()

    @pytest.mark.parametrize("name", ["_corrupt_record", "bad"])
    def test_a_column_of_text(self, broker: ScriptedBroker, name: str) -> None:
        """A user's own schema may name it, and have it as text."""
        self.topic(broker)
        columns = pa.field(name, pa.string()), pa.field("value", pa.int32())
        given = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": name}
        rows = read(broker, *columns, **given)
        assert [row[name] for row in rows if row[name]] == ["bad!!", "\ufffd"]
        assert values(rows)[0] == 1

    def test_without_the_column(self, broker: ScriptedBroker) -> None:
        """A user's own schema need not name it."""
        self.topic(broker)
        rows = read(broker, pa.field("value", pa.int32()), mode="PERMISSIVE")
        assert values(rows) == [1, None, 2, None, None, None, None, 3]

    def test_a_field_of_that_name(self, broker: ScriptedBroker) -> None:
        """The option gives the column another one."""
        text = record(("_corrupt_record", "string"))
        broker.add_schema(TOPIC, SchemaType.AVRO, text)
        broker.append(TOPIC, sent(b"\x02a", 0))
        with pytest.raises(SchemaError, match="columnNameOfCorruptRecord"):
            read(broker, mode="PERMISSIVE")
        given = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"}
        assert read(broker, **given) == [{"_corrupt_record": "a", "bad": None}]

    def test_a_field_of_almost_that_name(self, broker: ScriptedBroker) -> None:
        """Spark does not tell them apart; the type of the field does not matter."""
        broker.add_schema(TOPIC, SchemaType.AVRO, record(("Bad", "int")))
        broker.append(TOPIC, sent(b"\x02", 0))
        for name, mode in (
            ("bad", "PERMISSIVE"),
            ("Bad", "PERMISSIVE"),
            ("Bad", "FAILFAST"),
        ):
            with pytest.raises(SchemaError, match="columnNameOfCorruptRecord"):
                read(broker, mode=mode, columnNameOfCorruptRecord=name)
        assert read(broker, columnNameOfCorruptRecord="bad") == [{"Bad": 1}]

    def test_bytes_are_never_bad(self, broker: ScriptedBroker) -> None:
        """There is nothing that they could not be."""
        broker.append(TOPIC, sent(b"a", None))
        assert read(broker, mode="PERMISSIVE") == [{"value": b"a"}]


class TestSeveralTopics:
    """They are read together, each by its own schema."""

    def two(self, broker: ScriptedBroker, kind: SchemaType, data: str) -> None:
        """Two topics: one of V1, and one of this schema, if of any."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 0))
        broker.add_topic(OTHER)
        if kind is not SchemaType.NONE:
            broker.add_schema(OTHER, kind, data)

    def test_equal_ones(self, broker: ScriptedBroker) -> None:
        """Names of records, white space and docs do not matter."""
        other = json.dumps(json.loads(V1) | {"name": "S", "doc": "new"}, indent=4)
        self.two(broker, SchemaType.AVRO, other)
        assert len(read(broker, topic="-", topics="t,u")) == 1

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            (SchemaType.AVRO, ROWS[1]),
            (SchemaType.JSON, b'{"id": 2, "name": "b", "mail": "m"}'),
        ],
        ids=["AVRO", "JSON"],
    )
    def test_further_columns(
        self, broker: ScriptedBroker, kind: SchemaType, payload: bytes
    ) -> None:
        """A column that a topic does not have is NULL in its rows."""
        self.two(broker, kind, V2)
        broker.append(OTHER, sent(payload, 0))
        assert read(broker, topic="-", topics="t,u") == [
            {"id": 1, "name": "a", "mail": None},
            {"id": 2, "name": "b", "mail": "m"},
        ]
        chosen = [pa.field("mail", pa.string()), pa.field("id", pa.int64())]
        assert read(broker, *chosen, topic="-", topics="t,u") == [
            {"mail": None, "id": 1},
            {"mail": "m", "id": 2},
        ]

    def test_in_a_stream(self, broker: ScriptedBroker) -> None:
        """Also after a restart, and with a topic that came later."""
        self.two(broker, SchemaType.JSON, V2)
        options = {"topic": "-", "topics": "t,u"}
        query = Query(broker)
        assert query.run(**options) == [{"id": 1, "name": "a", "mail": None}]
        broker.append(OTHER, sent(b'{"id": 2, "name": "b", "mail": "m"}', 0))
        assert query.run(**options) == [{"id": 2, "name": "b", "mail": "m"}]
        later = f"{OTHER}2"
        broker.add_topic(later)
        broker.add_schema(later, SchemaType.JSON, V1)
        broker.append(later, sent(b'{"id": 3, "name": "c"}', 0))
        options["topics"] = "t,u,u2"
        assert query.run(**options) == [{"id": 3, "name": "c", "mail": None}]

    @pytest.mark.parametrize(
        ("kind", "data", "said"),
        [
            (SchemaType.STRING, "", "no column in common"),
            (SchemaType.AVRO, record(("id", "string")), "`id` differs"),
            (SchemaType.NONE, "", "has no schema"),
        ],
    )
    def test_different_ones(
        self, broker: ScriptedBroker, kind: SchemaType, data: str, said: str
    ) -> None:
        """The topics are named, and how to read them as bytes."""
        self.two(broker, kind, data)
        with pytest.raises(SchemaError) as caught:
            load(broker, topic="-", topics="t,u")
        for part in (TOPIC, OTHER, said, "`allowDifferentTopicSchemas`"):
            assert part in caught.value.message
        rows = read(broker, topic="-", topics="t,u", allowDifferentTopicSchemas="true")
        assert rows == [{"value": ROWS[0], "__schemaVersion": 0}]

    def test_one_that_does_not_exist(self, broker: ScriptedBroker) -> None:
        """It has no other schema: what is wrong with it is said as ever."""
        broker.add_schema(TOPIC, SchemaType.INT32)
        with pytest.raises(TopicNotFoundError, match="none"):
            read(broker, topic="-", topics="t,none")


class Query:
    """A stream without Spark, which keeps its checkpoint."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.offset: str | None = None

    def run(self, *columns: pa.Field, **options: str) -> list[dict[str, Any]]:
        """Starts it, or goes on; reads what there is, and stops."""
        options = {"startingOffsets": "earliest", **options}
        made, schema = load(self.broker, *columns, **options)
        reader: StreamReader = made.streamReader(schema)
        try:
            if self.offset is None:
                self.offset = json.dumps(reader.initialOffset())
            return self.batch(reader)
        finally:
            reader.stop()

    def batch(self, reader: StreamReader) -> list[dict[str, Any]]:
        """One micro-batch."""
        assert self.offset is not None
        start = json.loads(self.offset)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        self.offset = json.dumps(end)
        rows = []
        for part in reader.partitions(start, end) if end != start else ():
            for found in reader.read(part):
                assert found.schema == reader._schema
                rows += found.to_pylist()
        reader.commit(end)
        return rows

    @property
    def pin(self) -> Any:
        """The schema that the checkpoint names."""
        assert self.offset is not None
        return json.loads(self.offset).get("schema")


class TestStreams:
    """A stream keeps the schema that it began with."""

    def moved_on(self, broker: ScriptedBroker) -> Query:
        """A stream that began with V1, and is stopped while the topic moves on."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 0))
        query = Query(broker)
        assert query.run() == [{"id": 1, "name": "a"}]
        broker.add_schema(TOPIC, SchemaType.AVRO, V2)
        broker.append(TOPIC, sent(ROWS[1], 1))
        return query

    def test_a_restart(self, broker: ScriptedBroker) -> None:
        """The checkpoint names the version; with the same columns it goes on."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        query = Query(broker)
        assert query.run() == []
        broker.append(TOPIC, sent(ROWS[0], 0))
        assert query.run() == [{"id": 1, "name": "a"}]
        pin = query.pin
        assert (pin["type"], pin["topic"], pin["version"]) == ("AVRO", TOPIC, 0)
        broker.append(TOPIC, sent(ROWS[0], 0))
        assert len(query.run()) == 1
        assert query.pin == pin

    def test_a_topic_that_moved_on(self, broker: ScriptedBroker) -> None:
        """The error says what changed, and both ways out."""
        query = self.moved_on(broker)
        with pytest.raises(SchemaError) as caught:
            query.run()
        for part in (
            "began with version 0",
            TOPIC,
            "version 1",
            "`mail` STRING is new",
            "Set `schemaVersion` 0 to go on",
            "new checkpoint location",
            "`schemaVersion` to latest",
        ):
            assert part in caught.value.message

    def test_going_on_with_the_columns_it_began_with(
        self, broker: ScriptedBroker
    ) -> None:
        """By the version, for as long as it is set."""
        query = self.moved_on(broker)
        assert query.run(schemaVersion="0") == [{"id": 2, "name": "b"}]
        assert query.pin["version"] == 0
        broker.append(TOPIC, sent(ROWS[0], 0))
        assert query.run(schemaVersion="0") == [{"id": 1, "name": "a"}]

    def test_going_on_with_new_columns(self, broker: ScriptedBroker) -> None:
        """On purpose; from then on the checkpoint has these."""
        query = self.moved_on(broker)
        assert query.run(schemaVersion="latest") == [
            {"id": 2, "name": "b", "mail": "m"}
        ]
        assert query.pin["version"] == 1
        broker.append(TOPIC, sent(ROWS[0], 0))
        assert query.run() == [{"id": 1, "name": "a", "mail": None}]

    def test_going_on_with_a_schema_given(self, broker: ScriptedBroker) -> None:
        """A query that names its columns goes on, also with ones that came later."""
        query = self.moved_on(broker)
        assert query.run(pa.field("id", pa.int64())) == [{"id": 2}]
        assert query.pin["version"] == 0
        broker.append(TOPIC, sent(ROWS[1], 1))
        assert query.run(pa.field("mail", pa.string())) == [{"mail": "m"}]
        assert query.pin["version"] == 1

    def test_bytes_on_request_have_no_schema(self, broker: ScriptedBroker) -> None:
        """Whatever the topic has."""
        query = self.moved_on(broker)
        assert query.run(pa.field("value", pa.binary())) == [{"value": ROWS[1]}]
        assert query.pin is None

    def test_a_first_micro_batch_that_runs_again(self, broker: ScriptedBroker) -> None:
        """It has the schema that its end names: the start is looked up anew."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 0))
        query = Query(broker)
        query.run()
        end = json.loads(query.offset or "")
        broker.add_schema(TOPIC, SchemaType.AVRO, V2)
        made, schema = load(
            broker,
            pa.field("id", pa.int64()),
            pa.field("name", pa.string()),
            startingOffsets="earliest",
        )
        reader = made.streamReader(schema)
        start = reader.initialOffset()
        assert start["schema"]["version"] == 1
        (part,) = reader.partitions(start, end)
        assert part.value.schema.version == version_bytes(0)
        reader.stop()

    def test_checkpoints_without_a_schema(self, broker: ScriptedBroker) -> None:
        """They are of older versions: the query takes the schema of now."""
        query = self.moved_on(broker)
        old = json.loads(query.offset or "")
        del old["schema"]
        query.offset = json.dumps(old)
        assert query.run() == [{"id": 2, "name": "b", "mail": "m"}]
        assert query.pin["version"] == 1

    def test_a_schema_that_comes_later(self, broker: ScriptedBroker) -> None:
        """A query that began with bytes does not silently get other columns."""
        broker.append(TOPIC, sent(b"a", None))
        query = Query(broker)
        assert query.run() == [{"value": b"a"}]
        assert query.pin == {"type": "NONE"}
        broker.add_schema(TOPIC, SchemaType.STRING)
        broker.append(TOPIC, sent(b"b", 0))
        with pytest.raises(SchemaError, match="`value` was BINARY and is STRING"):
            query.run()
        assert query.run(pa.field("value", pa.binary())) == [{"value": b"b"}]

    def test_a_schema_that_is_no_longer_known(self, broker: ScriptedBroker) -> None:
        """The same text by another number is the same schema; else it is an error."""
        query = self.moved_on(broker)
        broker.delete_schema(TOPIC)
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 3))
        rows = query.run(mode="DROPMALFORMED")
        assert rows == [{"id": 1, "name": "a"}]
        broker.delete_schema(TOPIC)
        broker.add_schema(TOPIC, SchemaType.AVRO, V3)
        with pytest.raises(SchemaError, match="does not know any more"):
            query.run()

    def test_a_change_while_it_runs(
        self, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It goes on in its columns, and says once what changed."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 0))
        query = Query(broker)
        given = {"startingOffsets": "earliest", "partitionDiscoveryIntervalMs": "0"}
        made, schema = load(broker, **given)
        reader = made.streamReader(schema)
        query.offset = json.dumps(reader.initialOffset())
        assert query.batch(reader) == [{"id": 1, "name": "a"}]
        assert "has moved on" not in caplog.text
        broker.add_schema(TOPIC, SchemaType.AVRO, V2)
        for _ in range(3):
            broker.append(TOPIC, sent(ROWS[1], 1))
            assert query.batch(reader) == [{"id": 2, "name": "b"}]
        lines = [r.getMessage() for r in caplog.records if "moved on" in r.getMessage()]
        assert len(lines) == 1
        assert "`mail` STRING is new" in lines[0]
        reader.stop()
