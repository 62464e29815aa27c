# SPDX-License-Identifier: Apache-2.0
"""Topics with schemas through the data source, in this process: a scripted broker.

How schemas are found, kept and read is tested where that is done:
`tests.source.plan.test_query_schema`, `tests.source.stream.test_stream_schema` and
`tests.source.read.test_value_decoders`.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark import PulsarDataSource, SchemaError
from pulsar_spark.arrow.values import ValueRun, ValueSettings
from pulsar_spark.arrow.values.by_schema import SchemaDecoder
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
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


def record(*fields: Any) -> str:
    """The text of a record's schema: names and types, and defaults where given."""
    known = [
        dict(zip(("name", "type", "default"), field, strict=False)) for field in fields
    ]
    return json.dumps({"type": "record", "name": "R", "fields": known})


V1 = record(("id", "long"), ("name", "string"))
V2 = record(("id", "long"), ("name", "string"), ("mail", ["null", "string"], None))
#: A message of each: 1 a, 2 b with mail m.
ROWS = [bytes.fromhex("020261"), bytes.fromhex("04026202026d")]


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


class TestColumns:
    """Which columns a query has."""

    def test_of_a_record(self, broker: ScriptedBroker) -> None:
        """The fields of the latest version, nullable, before the metadata columns."""
        for text in (V1, V2):
            broker.add_schema(TOPIC, SchemaType.AVRO, text)
        _, schema = load(broker, metadataColumns="__key")
        assert schema.simpleString() == (
            "struct<id:bigint,name:string,mail:string,__key:binary>"
        )
        assert all(field.nullable for field in schema)

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


class TestChosen:
    """The user's own columns."""

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

    def test_versions_that_are_not_kept(self) -> None:
        """A producer that makes versions up costs no memory for each of them."""
        info = SchemaInfo(SchemaType.INT32)
        wanted = pa.schema([("value", pa.int32())])
        made = SchemaDecoder(info, wanted, ValueSettings(), lambda _: None)
        value = pa.array([b"\0\0\0\1"], pa.binary())
        for at in range(200):
            for version in (version_bytes(5 + at), bytes(9 + at), bytes(at % 8)):
                assert list(made.decode(ValueRun(value, version)).bad) == [0]
        assert len(made._decoders) == 100

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

    def test_permissive(self, broker: ScriptedBroker) -> None:
        """NULL, and the bytes in a column of their own; other rows are as they are."""
        self.topic(broker)
        rows = read(broker, mode="PERMISSIVE", metadataColumns="__topic")
        assert list(rows[0]) == ["value", "__topic", "_corrupt_record"]
        assert values(rows) == [1, None, 2, None, None, None, None, 3]
        bad = [row["_corrupt_record"] for row in rows]
        assert bad == [None, b"bad!!", None, None, None, None, b"\xff", None]

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
        """Two topics: one of V1, and one of this schema."""
        broker.add_schema(TOPIC, SchemaType.AVRO, V1)
        broker.append(TOPIC, sent(ROWS[0], 0))
        broker.add_topic(OTHER)
        broker.add_schema(OTHER, kind, data)

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


class Query:
    """A stream without Spark, which keeps its checkpoint."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.offset: str | None = None

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Starts it, or goes on; reads what there is, and stops."""
        options = {"startingOffsets": "earliest", **options}
        made, schema = load(self.broker, **options)
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


class TestStreams:
    """A stream keeps the schema that it began with."""

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
