# SPDX-License-Identifier: Apache-2.0
"""Topics with schemas on a real broker, read in this process and through Spark.

The official client registers AVRO and JSON, and encodes them; what it cannot send is
registered by the admin calls and sent as raw entries. Spark is where errors, empty
topics, actions or streams are about it: types of all kinds go through it in
``test_typed_round_trip.py``.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar.schema import (
    AvroSchema,
    Double,
    JsonSchema,
    Long,
    ProtobufNativeSchema,
    Record,
    String,
    StringSchema,
)
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pulsar_spark import SchemaError
from pulsar_spark.schemas.info import version_bytes
from tests.support import official, reading
from tests.support.entries import batch, chunks, member, message
from tests.support.raw_publisher import RawPublisher
from tests.support.writes import write_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

#: Longest wait for a query to end, in seconds: the machine may be busy.
PATIENCE_S = 240


def record(*fields: Any) -> dict[str, Any]:
    """A record's schema: names and types of its fields, and defaults where given."""
    known = [
        dict(zip(("name", "type", "default"), field, strict=False)) for field in fields
    ]
    return {"type": "record", "name": "R", "fields": known}


MAIL = ("mail", ["null", "string"], None)
V1 = record(("id", "long"), ("name", "string"))
V2 = record(("id", "long"), ("name", "string"), MAIL)
V3 = record(("id", "long"), MAIL, ("name", "string", "?"), ("score", "double", 1.5))


class Json1(Record):  # type: ignore[misc]
    """The first version in JSON."""

    id = Long(required=True)
    name = String(required=True)


class Json2(Record):  # type: ignore[misc]
    """With a field more."""

    id = Long(required=True)
    name = String(required=True)
    mail = String(default=None, required_default=True)


class Json3(Record):  # type: ignore[misc]
    """In another order, and with a field more."""

    id = Long(required=True)
    mail = String(default=None, required_default=True)
    name = String(required=True)
    score = Double(default=None, required_default=True)


def load(
    spark: SparkSession, url: str, topic: str, *, schema: str = "", **options: str
) -> DataFrame:
    """A batch read, of the value's columns unless said otherwise."""
    given = {"metadataColumns": "none", "service.url": url, "topic": topic, **options}
    reader = spark.read.format("pulsar").options(**given)
    return (reader.schema(schema) if schema else reader).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Its rows."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def read(
    url: str, topic: str, columns: StructType | None = None, **options: str
) -> list[dict[str, Any]]:
    """The rows of a batch read without Spark."""
    return read_table(url, topic, columns, **options).to_pylist()


def read_table(
    url: str, topic: str, columns: StructType | None = None, **options: str
) -> pa.Table:
    """The same in Arrow, of the value's columns unless said otherwise."""
    given = {"metadataColumns": "none", "topic": topic, **options}
    return reading.read_frame(url, given, columns)


def types_of(table: pa.Table) -> str:
    """The types of its columns, as Spark shows them."""
    return from_arrow_schema(table.schema).simpleString()


def send(url: str, topic: str, *messages: tuple[bytes | None, int | None]) -> None:
    """Send values with versions of a schema, or without."""
    with RawPublisher(url, topic) as publisher:
        for value, version in messages:
            more: dict[str, Any] = {}
            if version is not None:
                more["schema_version"] = version_bytes(version)
            publisher.send(*message(value, **more))


def test_three_versions_in_turn(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """AVRO by three producers in turn, and an untyped one: each as it was written."""
    with official.client(service_url) as one:
        senders = [
            one.create_producer(topic, schema=AvroSchema(None, schema_definition=text))
            for text in (V1, V2, V3)
        ]
        for at in range(3):
            senders[0].send({"id": 3 * at, "name": "a"})
            senders[1].send({"id": 3 * at + 1, "name": "b", "mail": "m"})
            senders[2].send({"id": 3 * at + 2, "mail": None, "name": "c", "score": 2.0})
    assert admin.schema_versions(topic) == 3
    frame = load(spark, service_url, topic)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,mail:string,name:string,score:double>"
    )
    expected = [
        {"id": at, "mail": mail, "name": name, "score": score}
        for at, (mail, name, score) in enumerate(
            [(None, "a", 1.5), ("m", "b", 1.5), (None, "c", 2.0)] * 3
        )
    ]
    assert rows(frame) == expected
    first = read(service_url, topic, schemaVersion="0")
    assert first == [{"id": at, "name": "abc"[at % 3]} for at in range(9)]
    some = StructType().add("score", "double").add("id", "long")
    assert read(service_url, topic, some)[2] == {"score": 2.0, "id": 2}
    raw = read(service_url, topic, StructType().add("value", "binary"))
    assert raw[0] == {"value": bytes.fromhex("000261")}

    # And one that says nothing of its schema, and a tombstone that does.
    send(service_url, topic, (b"\x08\x02z", None), (None, 2))
    with pytest.raises(
        PySparkException, match=r"PULSAR_CORRUPT_MESSAGE.*without a sch"
    ):
        load(spark, service_url, topic).collect()
    nothing = dict.fromkeys(("id", "mail", "name", "score"))
    found = read(service_url, topic, mode="PERMISSIVE")
    assert found[9:] == [
        {**nothing, "_corrupt_record": b"\x08\x02z"},
        {**nothing, "_corrupt_record": None},
    ]
    found = read(service_url, topic, mode="DROPMALFORMED")
    assert found == [*expected, nothing]


def test_three_versions_in_json(service_url: str, topic: str) -> None:
    """As the official client writes it, over several lines."""
    with official.client(service_url) as one:
        senders = [
            one.create_producer(topic, schema=JsonSchema(kind))
            for kind in (Json1, Json2, Json3)
        ]
        for at in range(2):
            senders[0].send(Json1(id=at, name="größer"))
            senders[1].send(Json2(id=at, name="b", mail="m"))
            senders[2].send(Json3(id=at, name="c", score=2.0))
    assert read(service_url, topic) == [
        {"id": at, "mail": mail, "name": name, "score": score}
        for at in range(2)
        for mail, name, score in (
            (None, "größer", None),
            ("m", "b", None),
            (None, "c", 2.0),
        )
    ]


@pytest.mark.parametrize(
    ("kind", "payload", "type_", "value"),
    [
        ("INT8", b"\xfe", "tinyint", -2),
        ("INT64", bytes(7) + b"\7", "bigint", 7),
        ("DOUBLE", bytes.fromhex("3ff8000000000000"), "double", 1.5),
        ("BOOLEAN", b"\1", "boolean", True),
        ("STRING", "é".encode(), "string", "é"),
        (
            "LOCAL_DATE",
            bytes.fromhex("0000000000004d46"),
            "date",
            dt.date(2024, 2, 29),
        ),
    ],
)
def test_primitive_schemas(
    service_url: str,
    admin: Admin,
    topic: str,
    kind: str,
    payload: bytes,
    type_: str,
    value: Any,
) -> None:
    """One column, with the type of the schema."""
    admin.create_topic(topic)
    admin.add_schema(topic, kind, "")
    send(service_url, topic, (payload, 0), (None, 0))
    found = read_table(service_url, topic)
    assert types_of(found) == f"struct<value:{type_}>"
    assert found.to_pylist() == [{"value": value}, {"value": None}]


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@pytest.mark.parametrize("use", [".In", "In"])
@pytest.mark.parametrize(
    "definition", [{"namespace": "", "name": "In"}, {"name": ".In"}]
)
def test_names_in_no_namespace(
    service_url: str,
    admin: Admin,
    topic: str,
    definition: dict[str, str],
    use: str,
    kind: str,
) -> None:
    """Brokers register them, as Java reads them; values are written, and read."""
    inner = {**record(("a", "int")), **definition}
    outer = {**record(("first", inner), ("second", use)), "namespace": "db"}
    admin.add_schema(topic, kind, json.dumps(outer))
    written = [{"first": {"a": 1}, "second": {"a": 2}}]
    struct = pa.struct([("a", pa.int32())])
    columns = pa.schema([("first", struct), ("second", struct)])
    options = {"service.url": service_url, "topic": topic}
    write_frame(options, pa.RecordBatch.from_pylist(written, columns))
    assert read(service_url, topic) == written
    assert admin.schema_versions(topic) == 1


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_value(service_url: str, admin: Admin, topic: str, encoding: str) -> None:
    """A key in the payload, or as the message's; NULLs of all kinds."""
    admin.create_topic(topic)
    admin.add_schema(
        topic,
        "KEY_VALUE",
        '{"key":"","value":""}',
        {
            "key.schema.name": "String",
            "key.schema.type": "STRING",
            "key.schema.properties": "{}",
            "value.schema.name": "INT32",
            "value.schema.type": "INT32",
            "value.schema.properties": "{}",
            "kv.encoding.type": encoding,
        },
    )
    version = {"schema_version": version_bytes(0)}
    with RawPublisher(service_url, topic) as publisher:
        if encoding == "INLINE":
            for frame in (
                "00000001 6b 00000004 00000001",
                "ffffffff 00000004 00000001",
                "00000001 6b ffffffff",
            ):
                publisher.send(*message(bytes.fromhex(frame), **version))
        else:
            publisher.send(*message(b"\0\0\0\1", key=b"k", **version))
            publisher.send(*message(b"\0\0\0\1", null_partition_key=True, **version))
            publisher.send(*message(None, key=b"k", **version))
    found = read_table(service_url, topic)
    assert types_of(found) == "struct<key:string,value:int>"
    assert found.to_pylist() == [
        {"key": "k", "value": 1},
        {"key": None, "value": 1},
        {"key": "k", "value": None},
    ]


def test_protobuf(service_url: str, topic: str) -> None:
    """Of the official client's: fields by the descriptor, with their defaults."""
    sent = [
        Timestamp(seconds=-(2**63), nanos=2**31 - 1),
        Timestamp(),
        Timestamp(nanos=7),
    ]
    with official.client(service_url) as one:
        producer = one.create_producer(topic, schema=ProtobufNativeSchema(Timestamp))
        for moment in sent:
            producer.send(moment)
    send(service_url, topic, (b"\x08", 0), (None, 0))
    found = read_table(service_url, topic, mode="PERMISSIVE")
    assert types_of(found) == (
        "struct<seconds:bigint,nanos:int,_corrupt_record:binary>"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        *((moment.seconds, moment.nanos, None) for moment in sent),
        (None, None, b"\x08"),
        (None, None, None),
    ]


def test_reading_an_empty_topic_gives_it_no_schema(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """A typed producer can still come."""
    admin.create_topic(topic)
    assert rows(load(spark, service_url, topic)) == []
    assert admin.schema_versions(topic) == 0
    with official.client(service_url) as one:
        one.create_producer(topic, schema=StringSchema()).send("a")
    assert read(service_url, topic) == [{"value": "a"}]


def test_bytes_first_and_a_schema_later(service_url: str, topic: str) -> None:
    """Rows from before have no version, and are never guessed."""
    official.produce(service_url, topic, [b"\x02\x02a"])
    with official.client(service_url) as one:
        schema = AvroSchema(None, schema_definition=V1)
        one.create_producer(topic, schema=schema).send({"id": 2, "name": "b"})
    found = read(service_url, topic, mode="PERMISSIVE")
    assert [(row["id"], row["_corrupt_record"]) for row in found] == [
        (None, b"\x02\x02a"),
        (2, None),
    ]


def test_a_schema_that_was_deleted(service_url: str, admin: Admin, topic: str) -> None:
    """The topic has bytes again; with a new schema, old messages are bad."""
    admin.create_topic(topic)
    admin.add_schema(topic, "INT32", "")
    send(service_url, topic, (b"\0\0\0\7", 0))
    admin.delete_schema(topic)
    assert read(service_url, topic) == [{"value": b"\0\0\0\7"}]
    version = admin.add_schema(topic, "INT32", "")
    send(service_url, topic, (b"\0\0\0\x08", version))
    found = read(service_url, topic, mode="PERMISSIVE")
    assert [row["value"] for row in found] == [None, 8]


def test_versions_that_nobody_knows(service_url: str, admin: Admin, topic: str) -> None:
    """Of any size: the broker is not asked by what would end the connection."""
    admin.create_topic(topic)
    admin.add_schema(topic, "INT32", "")
    with RawPublisher(service_url, topic) as publisher:
        for version in (b"\1", b"", bytes(8), version_bytes(99)):
            publisher.send(*message(b"\0\0\0\7", schema_version=version))
    found = read(service_url, topic, mode="PERMISSIVE")
    assert [row["value"] for row in found] == [None, None, 7, None]


def test_partitions_have_one_schema(service_url: str, admin: Admin, topic: str) -> None:
    """Registered with the topic, whichever partition a message is in."""
    admin.create_partitioned(topic, 3)
    with official.client(service_url) as one:
        router = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        sender = one.create_producer(
            topic,
            schema=AvroSchema(None, schema_definition=V1),
            message_routing_mode=router,
        )
        for at in range(6):
            sender.send({"id": at, "name": "n"})
    found = read(service_url, topic)
    assert sorted(row["id"] for row in found) == list(range(6))
    alone = read(service_url, f"{topic}-partition-1")
    assert 0 < len(alone) < 6


#: A record, and its next version, where a field has another name.
NAMED = record(("id", "long"), ("name", "string", ""))
RENAMED = {
    **record(("id", "long")),
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "title", "type": "string", "aliases": ["name"], "default": "?"},
    ],
}
MAIL_FIRST = record(("mail", "string", ""), ("id", "long"), ("name", "string", ""))
TITLED = record(("title", "string", "?"), ("id", "int"))


def test_topics_read_together(
    spark: SparkSession,
    service_url: str,
    namespace: str,
    tmp_path: Path,
) -> None:
    """AVRO with aliases, in another order and with a narrower type, and JSON.

    The topic of aliases is not the first by name: its values are found by them all the
    same. A stream goes on with all of them, and with a topic that comes later.
    """
    first, renamed, in_json, later = (
        f"persistent://{namespace}/{name}" for name in ("a", "b", "c", "d")
    )
    publish(service_url, first, TITLED, [{"title": "t1", "id": 1}])
    publish(service_url, renamed, NAMED, [{"id": 2, "name": "old"}])
    publish(service_url, renamed, RENAMED, [{"id": 3, "title": "new"}])
    publish_json(service_url, in_json, V2, [{"id": 4, "name": "b", "mail": "m"}])
    expected = [
        {"title": "t1", "id": 1, "name": None, "mail": None},
        {"title": "old", "id": 2, "name": None, "mail": None},
        {"title": "new", "id": 3, "name": None, "mail": None},
        {"title": None, "id": 4, "name": "b", "mail": "m"},
    ]
    given = {"topics": f"{first},{renamed},{in_json}", "metadataColumns": "none"}
    reader = spark.read.format("pulsar").option("service.url", service_url)
    frame = reader.options(**given).load()
    assert frame.dtypes == [
        ("title", "string"),
        ("id", "bigint"),
        ("name", "string"),
        ("mail", "string"),
    ]
    assert sorted(rows(frame), key=lambda row: row["id"]) == expected
    some = StructType().add("id", "long").add("title", "string")
    chosen = reading.read_frame(service_url, given, some)["title"].to_pylist()
    assert sorted(title or "" for title in chosen) == ["", "new", "old", "t1"]

    stream = Stream(spark, service_url, first, tmp_path)
    del given["metadataColumns"]
    stream.given = {"topics": given["topics"]}
    assert sorted(stream.run(), key=lambda row: row["id"]) == expected
    publish(service_url, later, V1, [{"id": 5, "name": "late"}])
    publish(service_url, renamed, NAMED, [{"id": 6, "name": "again"}])
    stream.given = {"topics": f"{given['topics']},{later}"}
    assert sorted(stream.run(), key=lambda row: row["id"]) == [
        {"title": None, "id": 5, "name": "late", "mail": None},
        {"title": "again", "id": 6, "name": None, "mail": None},
    ]


def test_the_first_topic_is_left_out_for_good(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    tmp_path: Path,
) -> None:
    """A stream goes on with a topic of the same schema, though the first's is deleted.

    A new topic that is the first by name does not stop the stream either.
    """
    stream = Stream(spark, service_url, "", tmp_path)
    leave_out_the_first(stream, admin, namespace, is_schema_deleted=True)


def test_the_first_topic_is_left_out_and_its_schema_is_kept(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """The same, whatever became of its schema."""
    stream = StreamHere(service_url)
    leave_out_the_first(stream, admin, namespace, is_schema_deleted=False)


def leave_out_the_first(
    stream: Stream | StreamHere,
    admin: Admin,
    namespace: str,
    *,
    is_schema_deleted: bool,
) -> None:
    """Run a stream of several topics across the end of the first."""
    service_url = stream.url
    new, gone, stays = (f"persistent://{namespace}/{name}" for name in "abc")
    for number, name in enumerate((gone, stays)):
        publish(service_url, name, V1, [{"id": number, "name": "n"}])
    stream.given = {"topicsPattern": f"{namespace}/.*", "failOnDataLoss": "false"}
    assert sorted(row["id"] for row in stream.run()) == [0, 1]
    if is_schema_deleted:
        admin.delete_schema(gone)
    admin.delete(gone)
    for number in (2, 3):
        publish(service_url, stays, V1, [{"id": number, "name": "n"}])
        assert stream.run() == [{"id": number, "name": "n"}]
        stream.given["failOnDataLoss"] = "true"
    publish(service_url, new, MAIL_FIRST, [{"mail": "m", "id": 4, "name": "n"}])
    for number in (4, 5):
        assert stream.run() == [{"mail": "m", "id": number, "name": "n"}]
        publish(service_url, new, MAIL_FIRST, [{"mail": "m", "id": 5, "name": "n"}])


def test_topics_with_different_schemas(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """They are named, unless bytes are asked for."""
    names = [f"persistent://{namespace}/{name}" for name in "ab"]
    for name, kind in zip(names, ("INT32", "STRING"), strict=True):
        admin.create_topic(name)
        admin.add_schema(name, kind, "")
        send(service_url, name, (b"abcd", 0))
    given = {"metadataColumns": "none", "topics": ",".join(names)}
    with pytest.raises(SchemaError) as caught:
        reading.read_frame(service_url, given)
    for part in ("PULSAR_SCHEMA", *names, "`value` differs", "INT in", "STRING in"):
        assert part in str(caught.value)
    given["allowDifferentTopicSchemas"] = "true"
    assert (
        reading.read_frame(service_url, given).to_pylist()
        == [{"value": b"abcd", "__schemaVersion": 0}] * 2
    )


class Stream:
    """A query that reads what there is, with one checkpoint."""

    def __init__(self, spark: SparkSession, url: str, topic: str, folder: Path) -> None:
        self.spark, self.url, self.topic = spark, url, topic
        self.folder = folder
        self.given = {"topic": topic}
        self.seen: list[dict[str, Any]] = []

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Starts it, or goes on, until it has read all; returns the new rows."""
        given = {
            "service.url": self.url,
            "metadataColumns": "none",
            "startingOffsets": "earliest",
            **self.given,
        }
        frame = self.spark.readStream.format("pulsar").options(**given, **options)
        self.seen = []
        query = (
            frame.load()
            .writeStream.foreachBatch(lambda batch, _: self.seen.extend(rows(batch)))
            .option("checkpointLocation", str(self.folder))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S), "it did not end"
        finally:
            query.stop()
        return self.seen


class StreamHere:
    """The same without Spark."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.given: dict[str, str] = {}
        self.offset = ""

    def run(self) -> list[dict[str, Any]]:
        """Starts it, or goes on, until it has read all; returns the new rows."""
        options = {"metadataColumns": "none", "startingOffsets": "earliest"}
        found, self.offset = reading.read_stream(
            self.url, {**options, **self.given}, self.offset
        )
        return found.to_pylist()


def publish(url: str, topic: str, text: Any, messages: Iterable[Any]) -> None:
    """Send records with this schema."""
    with official.client(url) as one:
        schema = AvroSchema(None, schema_definition=text)
        sender = one.create_producer(topic, schema=schema)
        for one_message in messages:
            sender.send(one_message)


def publish_json(url: str, topic: str, text: Any, messages: Iterable[Any]) -> None:
    """Send records in JSON with the schema that has the same fields."""
    kind = Json1 if text is V1 else Json2
    with official.client(url) as one:
        sender = one.create_producer(topic, schema=JsonSchema(kind))
        for one_message in messages:
            sender.send(kind(**one_message))


@pytest.mark.parametrize(
    ("kind", "publish"),
    [
        ("AVRO", publish),
        pytest.param("JSON", publish_json, marks=pytest.mark.matrix),
    ],
)
def test_a_stream_across_a_change(
    spark: SparkSession,
    service_url: str,
    topic: str,
    tmp_path: Path,
    kind: str,
    publish: Callable[..., None],
) -> None:
    """It keeps the columns that it began with, until it is told to take others."""
    stream = Stream(spark, service_url, topic, tmp_path)
    publish(service_url, topic, V1, [{"id": 1, "name": "a"}])
    assert stream.run() == [{"id": 1, "name": "a"}]
    publish(service_url, topic, V2, [{"id": 3, "name": "b", "mail": "m"}])
    with pytest.raises(PySparkException) as caught:
        stream.run()
    for part in ("PULSAR_SCHEMA", "`mail` STRING is new", "`schemaVersion` 0"):
        assert part in str(caught.value)
    assert stream.run(schemaVersion="0") == [{"id": 3, "name": "b"}]
    publish(service_url, topic, V2, [{"id": 4, "name": "b", "mail": "m"}])
    publish(service_url, topic, V1, [{"id": 5, "name": "a"}])
    assert stream.run(schemaVersion="latest") == [
        {"id": 4, "name": "b", "mail": "m"},
        {"id": 5, "name": "a", "mail": None},
    ]
    if kind == "AVRO":
        evolves_on(stream)
    offsets = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
    pin = json.loads(offsets.read_text().splitlines()[-1])["schema"]
    version = 2 if kind == "AVRO" else 1
    assert (pin["type"], pin["topic"], pin["version"]) == (kind, topic, version)


def evolves_on(stream: Stream) -> None:
    """With ``schemaEvolution`` the next start takes the column that was added."""
    publish(
        stream.url,
        stream.topic,
        V3,
        [{"id": 6, "mail": "m", "name": "c", "score": 2.0}],
    )
    with pytest.raises(PySparkException, match="set `schemaEvolution` to additive"):
        stream.run()
    expected = {"id": 6, "mail": "m", "name": "c", "score": 2.0}
    assert stream.run(schemaEvolution="additive") == [expected]


def publish_good_and_bad(service_url: str, topic: str) -> None:
    """Values in a batch, alone and in chunks, with all kinds of versions."""
    known = {"schema_version": version_bytes(0)}
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(
            *batch(
                [
                    member(b"\2\2a", key="good"),
                    member(b"\xff", key="bad"),
                    member(b"\6\2a"),
                    member(None),
                    member(b""),
                ],
                **known,
            )
        )
        publisher.send(*message(b"\x08\2a", schema_version=version_bytes(7)))
        publisher.send(*message(b"\x0a\2a"))
        publisher.send(*message(b"\x0c\2a", schema_version=b"\1\2"))
        for value, uuid in (
            (b"\x0e\xd0\x0f" + b"x" * 1000, "u1"),
            (b"\xff" * 999, "u2"),
        ):
            for piece in chunks(value, 3, uuid, **known):
                publisher.send(*piece)


GOOD = [1, 3, None, None, 7]
ALL = [1, None, 3, None, None, None, None, None, 7, None]
BAD = [b"\xff", b"\x08\2a", b"\x0a\2a", b"\x0c\2a", b"\xff" * 999]


@pytest.mark.parametrize(
    "mode", [pytest.param("DROPMALFORMED", marks=pytest.mark.matrix), "PERMISSIVE"]
)
def test_bad_values_in_all_layouts(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topic: str,
    tmp_path: Path,
    mode: str,
) -> None:
    """Counted alike, whatever columns are asked for, in a read and in a stream."""
    admin.create_topic(topic)
    admin.add_schema(topic, "AVRO", json.dumps(record(("id", "int"), ("s", "string"))))
    publish_good_and_bad(service_url, topic)
    expected = GOOD if mode == "DROPMALFORMED" else ALL
    frame = load(spark, service_url, topic, mode=mode, metadataColumns="__key")
    assert [row.id for row in frame.collect()] == expected
    assert frame.count() == len(expected)
    assert frame.select("__key").where("__key IS NULL").count() == len(expected) - (
        1 if mode == "DROPMALFORMED" else 2
    )
    some = StructType().add("_corrupt_record", "binary").add("__key", "binary")
    table = read_table(service_url, topic, some.add("id", "integer"), mode=mode)
    assert table["id"].to_pylist() == expected
    bad = table["_corrupt_record"].drop_null().to_pylist()
    assert bad == ([] if mode == "DROPMALFORMED" else BAD)
    found: list[int | None] = []
    options = {
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": "2",
        "mode": mode,
    }
    for _ in range(2):  # the second one finds nothing more
        query = (
            spark.readStream.format("pulsar")
            .options(**options)
            .load()
            .writeStream.foreachBatch(
                lambda one, _: found.extend(row.id for row in one.collect())
            )
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
    assert found == expected
