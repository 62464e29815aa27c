# SPDX-License-Identifier: Apache-2.0
"""Rows that are read are written as they are: copies of topics with their columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pulsar_spark import PulsarDataSource
from pulsar_spark.arrow.schema import STRING_MAP
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.options import parse_common_options
from pulsar_spark.schemas.info import SchemaInfo
from tests.support import official, reading, writes
from tests.support.official import Message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

#: Only a write says these, or nobody: they are another's in a copy.
NEW = ("__topic", "__messageId", "__publishTime")

MESSAGES = [
    Message(
        f"value {i}".encode() if i % 7 else b"",
        key=None if i % 5 == 0 else f"key-{i % 11}",
        properties={"n": str(i), "ü": "é"} if i % 3 else {},
        event_time_ms=None if i % 4 == 0 else 1_760_000_000_000 + i,
        ordering_key=None if i % 2 else f"o{i}",
    )
    for i in range(200)
]


#: The columns of a table with 50 rows.
THREE: dict[str, Any] = {
    "id": [*range(50)],
    "s": [str(number) for number in range(50)],
    "third": [number / 3 for number in range(50)],
}


@pytest.fixture
def topics(admin: Admin, namespace: str) -> tuple[str, str]:
    """A source and its copy, which has the same partitions."""
    names = f"persistent://{namespace}/rows", f"persistent://{namespace}/copy"
    for name in names:
        admin.create_partitioned(name, 3)
    return names


def read(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """All rows of a topic."""
    reader = spark.read.format("pulsar").options(**options)
    return reader.option("service.url", url).option("topic", topic).load()


def rows_of(
    url: str, topic: str, leave_out: Iterable[str] = NEW, **options: str
) -> list[str]:
    """The rows of a topic but for what is new in a copy, in an order of their own.

    They are read without Spark, by which they were copied.
    """
    found = reading.read_columns(url, {"topic": topic, **options})
    for row in found:
        for column in leave_out:
            row.pop(column, None)
    return sorted(map(repr, found))


def put(url: str, topic: str, columns: dict[str, Any], **options: str) -> None:
    """Writes rows without Spark."""
    given = {"service.url": url, "topic": topic, **options}
    writes.save(PulsarDataSource(given), pa.record_batch(columns))


@pytest.mark.parametrize("columns", ["default", "all"])
def test_a_batch(
    spark: SparkSession, service_url: str, topics: tuple[str, str], columns: str
) -> None:
    """What a read gives is written, but for columns that only a read has."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    chosen = {"metadataColumns": "all"} if columns == "all" else {}
    frame = read(spark, service_url, source, **chosen)
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": copy}
    ).save()
    # With all columns, the partition of each row is among them.
    of_others = ("__partition", "__orderingKey", "__deliverAtTime")
    without = () if columns == "all" else of_others
    before, after = (
        rows_of(service_url, name, without, metadataColumns=ONLY_WRITTEN)
        for name in topics
    )
    assert len(after) == len(MESSAGES)
    assert after == before


#: What a write takes, but for the topic.
ONLY_WRITTEN = (
    "__key,__eventTime,__messageProperties,__partition,__orderingKey,__deliverAtTime"
)


def test_a_stream(
    spark: SparkSession, service_url: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    """From load() to start() with nothing between."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    query = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    before, after = (rows_of(service_url, name) for name in topics)
    assert after == before
    assert len(after) == len(MESSAGES)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "KEY_VALUE"])
def test_a_typed_topic(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topics: tuple[str, str],
    kind: str,
) -> None:
    """Its columns are written by the schema of the copy, which has the same one."""
    source, copy = topics
    if kind == "KEY_VALUE":
        pairs = zip(THREE["id"], THREE["s"], strict=True)
        columns: dict[str, Any] = {
            "key": [{"k": number} for number in THREE["id"]],
            "value": [{"v": number, "s": text} for number, text in pairs],
        }
    else:
        columns = THREE
    typed = {"schemaType": kind.lower()}
    put(service_url, source, columns, **typed)
    no_rows = pa.record_batch(columns).slice(0, 0)
    target = PulsarDataSource({"service.url": service_url, "topic": copy, **typed})
    writes.save(target, no_rows)
    rows = read(spark, service_url, source)
    plain = {"service.url": service_url, "topic": copy}
    rows.write.format("pulsar").mode("append").options(**plain).save()
    found = rows_of(service_url, copy)
    assert found == rows_of(service_url, source)
    assert len(found) == 50
    assert admin.schema(copy)["type"] == kind
    assert admin.schema_versions(copy) == 1


def test_a_typed_topic_into_a_new_one(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """Without a schema there, it gets one of the columns: types and rows are kept."""
    source, copy = topics
    put(service_url, source, THREE)
    rows = read(spark, service_url, source)
    rows.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": copy}
    ).save()
    found = PulsarDataSource({"service.url": service_url, "topic": copy})
    assert found.schema() == rows.schema
    assert rows_of(service_url, copy) == rows_of(service_url, source)


def test_event_times_in_milliseconds(service_url: str, topics: tuple[str, str]) -> None:
    """A column of BIGINT, as the Scala connector takes it, too."""
    source, _ = topics
    numbers = range(1, 20)
    columns = {
        "value": [str(number) for number in numbers],
        "__eventTime": [1_760_000_000_000 + number for number in numbers],
    }
    put(service_url, source, columns)
    stored = official.read_back(service_url, source, partitions=3)
    assert sorted((int(row.value or b""), row.event_time_ms) for row in stored) == [
        (i, 1_760_000_000_000 + i) for i in range(1, 20)
    ]


def test_a_copy_without_limits(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """Zeros of Java's client, and one set of options for both directions."""
    source, copy = topics
    official.produce(service_url, source, MESSAGES)
    shared = {
        "service.url": service_url,
        "pulsar.client.memoryLimitBytes": "0",
        "pulsar.producer.batchingMaxMessages": "0",
        "pulsar.producer.batchingMaxBytes": "0",
        "pulsar.reader.maxPendingChunkedMessage": "0",
        "startingOffsets": "earliest",
        "deliveryGuarantee": "at-least-once",
    }
    frame = spark.read.format("pulsar").options(**shared, topic=source).load()
    frame.write.format("pulsar").mode("append").options(**shared, topic=copy).save()
    assert rows_of(service_url, copy) == rows_of(service_url, source)


#: Schemas whose definition a write of columns would not make so.
DEFINED = {
    "AVRO": (
        '{ "type" : "record", "name": "Order", "namespace":"shop", "doc":"of a day",'
        ' "fields":[{"name":"name","type":"string","aliases":["who"]},'
        '{"name":"id","type":["null","long"],"default":null}]}'
    ),
    "JSON": (
        '{"name":"Order","type":"record","fields":'
        '[{"name":"id","type":"long"},  {"name":"name","type":["null","string"]}]}'
    ),
}


def copy(frame: DataFrame, url: str, topic: str, **options: str) -> None:
    """Writes rows."""
    writer = frame.write.format("pulsar").mode("append").options(**options)
    writer.option("service.url", url).option("topic", topic).save()


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("AVRO", "bytes"),
        ("JSON", "columns"),
        pytest.param("AVRO", "columns", marks=pytest.mark.matrix),
        pytest.param("JSON", "bytes", marks=pytest.mark.matrix),
    ],
)
def test_the_very_schema(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topics: tuple[str, str],
    kind: str,
    form: str,
) -> None:
    """The copy has the source's definition, byte for byte, and so its own readers."""
    source, target = topics
    admin.add_schema(source, kind, DEFINED[kind], {"owner": "shop"})
    never_null = [("id", pa.int64(), False), ("name", pa.string(), False)]
    others = [("__key", pa.string()), ("__messageProperties", STRING_MAP)]
    texts, properties = THREE["s"], [[("n", "m")]] * len(THREE["s"])
    rows = pa.record_batch(
        [THREE["id"], texts, texts, properties],
        schema=pa.schema([pa.field(*one) for one in (*never_null, *others)]),
    )
    writes.save(PulsarDataSource({"service.url": service_url, "topic": source}), rows)
    raw = {"allowDifferentTopicSchemas": "true"} if form == "bytes" else {}
    frame = read(spark, service_url, source, **raw)
    assert ("value" in frame.columns) is (form == "bytes")
    frame = frame.withColumn("__key", frame["__key"].cast("string"))
    copy(frame, service_url, target, schemaTopic=source)
    ours, theirs = (definition(service_url, name) for name in (target, source))
    assert ours == theirs
    assert ours.data == DEFINED[kind].encode()
    assert ours.properties == {"owner": "shop"}
    assert admin.schema_versions(source) == admin.schema_versions(target) == 1
    before, after = (
        sorted(
            (row.key, row.value, tuple(row.properties.items()))
            for row in official.read_back(service_url, name, partitions=3)
        )
        for name in topics
    )
    assert after == before
    assert len(after) == 50
    assert rows_of(service_url, target) == rows_of(service_url, source)
    # Of their own version, so that a schema that comes later changes nothing.
    shown = {"topic": target, "metadataColumns": "__schemaVersion"}
    copied = reading.read_columns(service_url, shown)
    assert {row["__schemaVersion"] for row in copied} == {0}


def test_a_reader_of_the_official_client(
    spark: SparkSession, service_url: str, topics: tuple[str, str]
) -> None:
    """It consumes the copy with the class that it wrote the source with."""
    from pulsar import schema

    source, target = topics

    class Order(schema.Record):
        name = schema.String(required=True)
        id = schema.Long()

    wanted = schema.AvroSchema(Order)
    with official.client(service_url) as client:
        producer = client.create_producer(source, schema=wanted)
        for number in range(20):
            producer.send(Order(name=f"n{number}", id=number))
        frame = read(spark, service_url, source, allowDifferentTopicSchemas="true")
        copy(frame, service_url, target, schemaTopic=source)
        consumer = client.subscribe(
            target,
            "s",
            schema=wanted,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = sorted(
            (consumer.receive(60_000).value() for _ in range(20)), key=lambda o: o.id
        )
    assert [(one.name, one.id) for one in found] == [(f"n{n}", n) for n in range(20)]
    assert definition(service_url, target) == definition(service_url, source)


def test_schemas_that_no_columns_have(
    spark: SparkSession, service_url: str, admin: Admin, topics: tuple[str, str]
) -> None:
    """Bytes are copied of whatever type: here of a Protobuf, tombstones included."""
    source, target = topics
    text = '{"type":"record","name":"P","fields":[{"name":"i","type":"int"}]}'
    admin.add_schema(source, "PROTOBUF", text, {"__PARSING_INFO__": "[]"})
    columns = {
        "value": [b"\x08\x01", None],
        "__key": ["a", "b"],
        "__schemaVersion": [0, 0],
    }
    put(service_url, source, columns, schemaTopic=source)
    frame = read(spark, service_url, source, metadataColumns="__key,__schemaVersion")
    frame = frame.withColumn("__key", frame["__key"].cast("string"))
    copy(frame, service_url, target, schemaTopic=source)
    assert definition(service_url, target) == definition(service_url, source)
    found = official.read_back(service_url, target, partitions=3)
    assert sorted((row.key, row.value) for row in found) == [
        (b"a", b"\x08\x01"),
        (b"b", None),
    ]


def test_bytes_of_an_earlier_version(
    spark: SparkSession, service_url: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    """They are not passed off as the latest: columns are, written anew by it."""
    source, target = topics
    texts = [str(number) for number in range(5)]
    first = {"id": [*range(5)], "__key": texts}
    for columns in (first, {**first, "name": texts}):
        put(service_url, source, columns, schemaType="avro")
    raw = read(spark, service_url, source, allowDifferentTopicSchemas="true")
    with pytest.raises(PySparkException, match=r"`__schemaVersion` is 0, and bytes of"):
        copy(raw, service_url, target, schemaTopic=source)
    query = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", target)
        .option("schemaTopic", source)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert definition(service_url, target).data == definition(service_url, source).data
    assert rows_of(service_url, target) == rows_of(service_url, source)


def definition(service_url: str, topic: str) -> SchemaInfo:
    """The latest schema of a topic, without the number of its version."""
    options = parse_common_options({"service.url": service_url})
    with ConnectionPool(options.client) as pool:
        info = SchemaLookup(pool).latest([topic])[topic]
    assert info is not None
    return replace(info, version=b"")
