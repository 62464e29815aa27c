# SPDX-License-Identifier: Apache-2.0
"""Typed writes, as the official client's typed consumers and its registry see them."""

from __future__ import annotations

import datetime as dt
import enum
import io
import json
import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pulsar
import pytest
from pulsar import schema as ps

from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.options import parse_write_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_number
from tests.broker.test_write import given, save
from tests.support import official, reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

pytestmark = pytest.mark.timeout(300)


class Order(ps.Record):
    """As a Python application declares it: nullable, without defaults."""

    _avro_namespace = "shop"
    id = ps.Long()
    user = ps.String()
    amount = ps.Double()
    ok = ps.Boolean()


ORDERS = [(1, "ann", 1.5, True), (2, "größe 🚀", -0.0, False), (3, None, None, False)]


# (Of a boolean this client takes NULL for False.)


def orders(spark: SparkSession, *, nullable: bool = True) -> DataFrame:
    """Rows of it, by columns in another order."""
    rows = ORDERS if nullable else ORDERS[:2]
    frame = spark.createDataFrame(
        [(ok, id_, amount, user) for id_, user, amount, ok in rows],
        "ok boolean, id bigint, amount double, user string",
    )
    return frame.coalesce(1)


def latest(service_url: str, topic: str) -> SchemaInfo | None:
    """What the registry has."""
    options = parse_write_options(given(service_url, topic, {}), streaming=False)
    return SchemaLookup(shared_pool(options.client)).latest([topic])[topic]


def versions(service_url: str, topic: str) -> set[int | None]:
    """Versions that messages say; None for none."""
    # Bytes on a typed topic are bad values, and have no version.
    options = {
        "topic": topic,
        "metadataColumns": "__schemaVersion",
        "mode": "PERMISSIVE",
    }
    reader = reading.reader_of(service_url, options)
    return {
        one
        for part in reader.partitions()
        for batch in reader.read(part)
        for one in batch["__schemaVersion"].to_pylist()
    }


def typed(service_url: str, topic: str, schema: Any, count: int) -> list[Any]:
    """Values as a typed consumer of the official client has them."""
    with official.client(service_url) as client:
        consumer = client.subscribe(
            topic,
            "all",
            schema=schema,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = [consumer.receive(20_000) for _ in range(count)]
        return [None if one.has_null_value() else one.value() for one in found]


def save_error(frame: DataFrame, service_url: str, topic: str, **options: str) -> str:
    """What a write that must fail says."""
    with pytest.raises(Exception, match="PULSAR") as caught:
        save(frame, service_url, topic, **options)
    return str(caught.value)


def as_orders(values: list[Any]) -> list[tuple[Any, ...]]:
    """Records of the official client as tuples."""
    return [(one.id, one.user, one.amount, one.ok) for one in values]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_schema_of_the_official_client(
    spark: SparkSession, service_url: str, topic: str, form: str
) -> None:
    """Rows that fit it use it as it is: no new version, its field order and names."""
    schema = ps.AvroSchema(Order) if form == "avro" else ps.JsonSchema(Order)
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).send(Order(id=0, user="first"))
    before = latest(service_url, topic)
    save(orders(spark), service_url, topic)
    assert latest(service_url, topic) == before
    assert versions(service_url, topic) == {0}
    assert as_orders(typed(service_url, topic, schema, 4))[1:] == ORDERS


class Color(enum.Enum):
    """Python's client sends the numbers in JSON, and knows names again."""

    RED = 10
    GREEN = 20


class Sample(ps.Record):
    """All kinds of fields that a Python application declares."""

    number = ps.Long()
    data = ps.Bytes()
    share = ps.Double()
    small = ps.Float()
    color = ps.CustomEnum(Color)
    text = ps.String()


#: Rows with the ends of what such fields hold; all of them in UTF-8.
SAMPLES = [
    (-(2**63), b"hello", math.nan, math.inf, "GREEN", 'größer\u2028\n"\\ 🚀'),
    (2**63 - 1, 'é"\0'.encode(), -0.0, -math.inf, "RED", ""),
    (0, b"", 1e300, math.nan, "RED", "NaN"),
    (None, None, None, None, None, None),
]


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
def test_values_of_all_kinds(
    spark: SparkSession, service_url: str, topic: str, form: str
) -> None:
    """What Spark writes by a schema of Python's is for Python what it is for Spark."""
    schema = (ps.AvroSchema if form == "AVRO" else ps.JsonSchema)(Sample)
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).close()
    types = "number long, data binary, share double, small float, color string"
    frame = spark.createDataFrame(SAMPLES, f"{types}, text string").coalesce(1)
    said = {} if form == "AVRO" else {"jsonBytes": "utf8"}
    if said:
        error = save_error(frame, service_url, topic)
        assert "`data` is of bytes" in error
        assert "set jsonBytes=base64, as Java's client does, or jsonBytes=utf8" in error
    save(frame, service_url, topic, **said)
    expected = [repr((*row[:4], row[4], row[5])) for row in SAMPLES]
    found = [
        (v.number, v.data, v.share, v.small, v.color and v.color.name, v.text)
        for v in typed(service_url, topic, schema, len(SAMPLES))
    ]
    assert [*map(repr, found)] == expected
    again = spark.read.format("pulsar").options(**given(service_url, topic, said))
    rows = again.load().select("number", "data", "share", "small", "color", "text")
    as_bytes = [
        (*row[:1], row[1] and bytes(row[1]), *row[2:]) for row in rows.collect()
    ]
    assert [*map(repr, as_bytes)] == expected


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_new_schema(
    spark: SparkSession, service_url: str, admin: Admin, topic: str, form: str
) -> None:
    """All tasks and partitions of a write share the version that it registers."""
    admin.create_partitioned(topic, 3)
    frame = orders(spark).repartition(3)
    save(frame, service_url, topic, schemaType=form)
    save(frame, service_url, topic)
    assert versions(service_url, topic) == {0}
    schema = ps.AvroSchema(Order) if form == "avro" else ps.JsonSchema(Order)
    if form == "avro":  # this client insists on the name of the record
        found = [
            fastavro.schemaless_reader(
                io.BytesIO(row.value), text_of(service_url, topic)
            )
            for row in official.read_back(service_url, topic, partitions=3)
        ]
        names = [(o["id"], o["user"], o["amount"], o["ok"]) for o in found]
    else:
        names = as_orders(typed(service_url, topic, schema, 6))
    assert sorted(names, key=str) == sorted(ORDERS * 2, key=str)


def text_of(service_url: str, topic: str) -> Any:
    """The registered AVRO schema, as fastavro has it."""
    info = latest(service_url, topic)
    assert info is not None
    return fastavro.parse_schema(json.loads(info.data))


def test_text(spark: SparkSession, service_url: str, topic: str) -> None:
    """On a topic of Python's StringSchema: its version, though its data is odd."""
    schema = ps.StringSchema()
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).send("first")
    frame = spark.createDataFrame([("a",), ("",), (None,), ("日本",)], "value string")
    save(frame.coalesce(1), service_url, topic)
    assert versions(service_url, topic) == {0}
    assert typed(service_url, topic, schema, 5) == ["first", "a", "", None, "日本"]


def test_text_without_a_schema(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """A topic without one stays so, unless somebody says otherwise."""
    frame = spark.createDataFrame([("a",)], "value string")
    save(frame, service_url, topic)
    assert latest(service_url, topic) is None
    save(frame, service_url, topic, schemaType="string")
    info = latest(service_url, topic)
    assert info is not None
    assert (info.type, info.data) == (SchemaType.STRING, b"")
    assert versions(service_url, topic) == {None, 0}


@pytest.mark.parametrize(
    ("type_", "wanted", "value", "payload", "registered"),
    [
        ("tinyint", "auto", -2, b"\xfe", "INT8"),
        ("int", "auto", -2, b"\xff\xff\xff\xfe", "INT32"),
        ("bigint", "auto", 1, bytes(7) + b"\1", "INT64"),
        ("double", "auto", 1.5, struct.pack(">d", 1.5), "DOUBLE"),
        ("boolean", "auto", True, b"\1", "BOOLEAN"),
        ("date", "auto", dt.date(1969, 12, 31), b"\xff" * 8, "LOCAL_DATE"),
        (
            "date",
            "date",
            dt.date(2024, 2, 29),
            bytes.fromhex("0000018df2292800"),
            "DATE",
        ),
        (
            "timestamp_ntz",
            "auto",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123456),
            bytes.fromhex("0000000000004d46") + struct.pack(">q", 45296123456000),
            "LOCAL_DATE_TIME",
        ),
    ],
)
def test_primitives(
    spark: SparkSession,
    service_url: str,
    topic: str,
    type_: str,
    wanted: str,
    value: Any,
    payload: bytes,
    registered: str,
) -> None:
    """A single column becomes what it is; its NULL is a null value with a version."""
    frame = spark.createDataFrame([(value,), (None,)], f"v {type_}").coalesce(1)
    save(frame, service_url, topic, schemaType=wanted)
    info = latest(service_url, topic)
    assert info is not None
    assert info.type_name == registered
    rows = official.read_back(service_url, topic)
    assert [row.value for row in rows] == [payload, None]
    assert versions(service_url, topic) == {0}


def test_incompatible(spark: SparkSession, service_url: str, topic: str) -> None:
    """Nothing is written or registered, and the error has the cast to write.

    Brokers would pass another unit: they do not look at what numbers mean.
    """
    save(orders(spark), service_url, topic)
    for columns, part in (
        (
            ["'x' id", "1 colour"],
            "`id` is STRING, and the schema has BIGINT: write CAST",
        ),
        (["current_timestamp() id"], "`id` is TIMESTAMP, and the schema has BIGINT"),
    ):
        text = save_error(spark.range(1).selectExpr(*columns), service_url, topic)
        assert "[PULSAR_SCHEMA]" in text
        assert "AVRO, version 0, which these rows do not fit" in text
        assert part in text
    assert len(official.read_back(service_url, topic)) == len(ORDERS)
    info = latest(service_url, topic)
    assert info is not None
    assert version_number(info.version) == 0


def test_one_more_column(spark: SparkSession, service_url: str, topic: str) -> None:
    """It becomes the next version, and may be NULL, as topics want it."""
    save(orders(spark), service_url, topic)
    save(orders(spark).selectExpr("*", "nullif(1, id) more"), service_url, topic)
    assert versions(service_url, topic) == {0, 1}
    save(orders(spark), service_url, topic)  # the last version has a default for it
    assert versions(service_url, topic) == {0, 1}
    never_null = orders(spark).selectExpr("*", "nullif(1, id) more", "1 as never_null")
    save(never_null, service_url, topic)
    save(orders(spark), service_url, topic)
    assert versions(service_url, topic) == {0, 1, 2}


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
def test_a_record_of_another_client(
    spark: SparkSession, service_url: str, admin: Admin, topic: str, form: str
) -> None:
    """What was read is written without a new version; a field within it adds one."""
    admin.create_topic(topic)
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}
    field = {"name": "v", "type": ["null", inner], "default": None}
    tree = {"type": "record", "name": "W", "doc": "theirs", "fields": [field]}
    admin.add_schema(topic, form, json.dumps(tree))
    row = spark.range(1).selectExpr("named_struct('a', 7) v")
    save(row, service_url, topic)
    assert versions(service_url, topic) == {0}
    more = spark.range(1).selectExpr("named_struct('a', 7, 'more', 'x') v")
    save(more, service_url, topic)
    inner["fields"].append(
        {"name": "more", "type": ["null", "string"], "default": None}
    )
    info = latest(service_url, topic)
    assert info is not None
    assert json.loads(info.data) == tree
    read = spark.read.format("pulsar").options(**given(service_url, topic, {})).load()
    found = read.selectExpr("v.a", "v.more").collect()
    assert sorted(found, key=str) == [(7, "x"), (7, None)]


def test_a_first_schema_beside_messages(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """A topic that has messages without a schema gets one only on request."""
    save(spark.range(1).selectExpr("'x' AS value"), service_url, topic)
    text = save_error(orders(spark), service_url, topic)
    assert "has messages and no schema" in text
    assert "set schemaType=avro" in text
    assert latest(service_url, topic) is None
    save(orders(spark), service_url, topic, schemaType="avro")
    assert len(official.read_back(service_url, topic)) == 1 + len(ORDERS)


def test_values_in_json_that_are_no_records(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """They are written as they are, and nothing is registered."""
    admin.create_topic(topic)
    admin.add_schema(topic, "JSON", '"int"')
    save(spark.range(1).selectExpr("7 AS value"), service_url, topic)
    assert [row.value for row in official.read_back(service_url, topic)] == [b"7"]
    assert versions(service_url, topic) == {0}


def test_bytes_and_typed_topics(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """Bytes get into a typed topic only on request."""
    save(orders(spark), service_url, topic)
    frame = spark.createDataFrame([(bytearray(b"raw"),)], "value binary")
    text = save_error(frame, service_url, topic)
    assert "has the schema AVRO, version 0" in text
    assert "schemaType=bytes" in text
    save(frame, service_url, topic, schemaType="bytes")
    assert versions(service_url, topic) == {0, None}


def test_enforcement(
    spark: SparkSession, service_url: str, admin: Admin, namespace: str
) -> None:
    """Where a schema is demanded, bytes are refused, and our own probes are not.

    Whether the option or the rows name the topic.
    """
    topic = f"persistent://{namespace}/typed"
    save(orders(spark), service_url, topic)
    admin.set_deduplication(namespace, True)
    admin.set_policy(namespace, "schemaValidationEnforced", True)
    frame = spark.createDataFrame([(bytearray(b"raw"),)], "value binary")
    text = save_error(frame, service_url, topic, schemaType="bytes")
    assert "[PULSAR_SCHEMA]" in text
    assert "SchemaValidationEnforced" in text
    naming = orders(spark).selectExpr("*", f"'{topic}' AS __topic")
    for guarantee in ("at-least-once", "idempotent", "exactly-once"):
        save(orders(spark), service_url, topic, deliveryGuarantee=guarantee)
        save(naming, service_url, None, deliveryGuarantee=guarantee)
    assert versions(service_url, topic) == {0}


def test_every_type(spark: SparkSession, service_url: str, topic: str) -> None:
    """Nested types, decimals, dates and times come back by another library."""
    frame = spark.sql(
        """select cast(-12.34 as decimal(10,2)) dec, date'2024-02-29' d,
        timestamp'2024-02-29 12:34:56.123456Z' t,
        timestamp_ntz'1969-12-31 23:59:59.5' n, cast(3 as tinyint) b,
        array(1, null) a, map('k', named_struct('x', 1.5D, 'y', cast(null as int))) m,
        named_struct('in', named_struct('z', binary('q')), 'f', float('nan')) s"""
    )
    save(frame.selectExpr("*", "cast(null as string) u"), service_url, topic)
    (row,) = official.read_back(service_url, topic)
    assert row.value is not None
    schema = text_of(service_url, topic)
    found: Any = fastavro.schemaless_reader(io.BytesIO(row.value), schema)
    utc = dt.timezone.utc
    assert found["dec"] == Decimal("-12.34")
    assert found["d"] == dt.date(2024, 2, 29)
    assert found["t"] == dt.datetime(2024, 2, 29, 12, 34, 56, 123456, utc)
    assert found["n"] == dt.datetime(1969, 12, 31, 23, 59, 59, 500000)
    assert (found["b"], found["a"]) == (3, [1, None])
    assert found["m"] == {"k": {"x": 1.5, "y": None}}
    assert found["s"]["in"] == {"z": b"q"}
    assert found["s"]["f"] != found["s"]["f"]
    assert found["u"] is None


@pytest.mark.parametrize("form", ["avro", "json"])
def test_round_trip(
    spark: SparkSession, service_url: str, topic: str, form: str
) -> None:
    """Our own reader gives the rows as they were, extremes and NULLs included."""
    row = """select {i} i, {l} l, {f} f, {d} d, {b} b, cast({n} as decimal(38,10)) n,
        {s} s, cast({s} as binary) y, {day} day, {t} t, {a} a,
        map('k', {s}, '"', null) m, named_struct('x', {l}, 'y', {a}) r"""
    rows = [
        {
            "i": "2147483647", "l": "-9223372036854775807L - 1", "f": "float(1e-3)",
            "d": "1.7976931348623157E308D", "b": "true", "s": "'größer 🚀\"'",
            "n": "'-9999999999999999999999999999.9999999999'",
            "day": "date'1582-10-15'", "t": "timestamp'9999-12-31 23:59:59.999999Z'",
            "a": "array(1, null, -1)",
        },
        {
            "i": "null", "l": "null", "f": "null", "d": "null", "b": "null",
            "s": "null", "n": "null", "day": "null", "t": "null", "a": "null",
        },
        {
            "i": "0", "l": "0L", "f": "float(0)", "d": "-0.5D", "b": "false", "s": "''",
            "n": "'0.0000000001'", "day": "date'1969-12-31'",
            "t": "timestamp'1969-12-31 23:59:59.999999Z'",
            "a": "cast(array() as array<int>)",
        },
    ]  # fmt: skip
    frame = spark.sql(" union all ".join(row.format(**one) for one in rows)).coalesce(1)
    save(frame, service_url, topic, schemaType=form)
    read = spark.read.format("pulsar").options(**given(service_url, topic, {}))
    back = read.option("metadataColumns", "none").load()
    assert back.columns == frame.columns
    assert back.select(frame.columns).collect() == frame.collect()


@pytest.mark.parametrize("kind", ["avro", "json", "instant"])
def test_ends_of_time(
    spark: SparkSession, service_url: str, topic: str, kind: str
) -> None:
    """The first and the last moment that Spark has, and days before 1582."""
    literals = ["timestamp_micros(-9223372036854775807)"]
    literals += [
        "timestamp_micros(9223372036854775807)",
        "TIMESTAMP'1500-02-28 00:00:00 UTC'",
    ]
    frame = spark.sql(f"SELECT explode(array({', '.join(literals)})) AS value")
    if kind != "instant":
        frame = frame.selectExpr("value", "CAST(value AS DATE) AS day")
    save(frame.coalesce(1), service_url, topic, schemaType=kind)
    read = spark.read.format("pulsar").options(
        **{"service.url": service_url, "topic": topic, "metadataColumns": "none"}
    )
    found = read.load()
    assert found.columns == frame.columns
    texts = [f"CAST({name} AS STRING)" for name in frame.columns]
    assert found.selectExpr(*texts).collect() == frame.selectExpr(*texts).collect()


def test_no_new_schemas(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """A namespace that lets nobody register: what fits is written, the rest named."""
    namespace = topic.rpartition("/")[0].removeprefix("persistent://")
    admin.create_topic(topic)
    fields = [{"name": "id", "type": "long"}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    admin.add_schema(topic, "AVRO", text)
    admin.set_policy(namespace, "isAllowAutoUpdateSchema", False)
    try:
        save(spark.range(2), service_url, topic)
        more = spark.range(2).selectExpr("id", "'x' AS more")
        text = save_error(more, service_url, topic)
    finally:
        admin.set_policy(namespace, "isAllowAutoUpdateSchema", True)
    assert "PULSAR_SCHEMA" in text
    assert "new: `more` STRING" in text
    assert "set-is-allow-auto-update-schema" in text
    assert versions(service_url, topic) == {0}


def test_bad_rows(spark: SparkSession, service_url: str, topic: str) -> None:
    """NULL where the schema has none names column and row; nothing is written."""
    save(orders(spark, nullable=False).filter("id = 1"), service_url, topic)
    strict = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "id", "type": "long"}],
        }
    )
    other = f"{topic}-strict"
    with official.client(service_url) as client:
        schema = ps.AvroSchema(None, schema_definition=json.loads(strict))
        client.create_producer(other, schema=schema)
    frame = spark.createDataFrame([(1,), (None,)], "id bigint").coalesce(1)
    text = save_error(frame, service_url, other)
    assert "[PULSAR_BAD_ROW] Row 1 of a task: `id` is NULL" in text
    assert official.read_back(service_url, other) == []


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_value(
    spark: SparkSession, service_url: str, topic: str, encoding: str
) -> None:
    """Keys are where the schema has them, and so they are in a second write."""
    frame = spark.createDataFrame([("k", 1), ("l", None)], "key string, value int")
    frame = frame.coalesce(1)
    first = {"schemaType": "key_value", "keyValueEncodingType": encoding}
    save(frame, service_url, topic, **first)
    save(frame, service_url, topic)
    rows = official.read_back(service_url, topic)
    one = b"\0\0\0\1"
    if encoding == "INLINE":
        expected = [(None, one + b"k" + b"\0\0\0\4" + one)]
        expected += [(None, one + b"l" + b"\xff" * 4)]
    else:
        expected = [(b"aw==", one), (b"bA==", None)]
    assert [(row.key, row.value) for row in rows] == expected * 2
    assert versions(service_url, topic) == {0}


def test_chunks(spark: SparkSession, service_url: str, topic: str) -> None:
    """Each chunk says the version."""
    size = 12 << 20
    frame = spark.createDataFrame([(1,)], "id int")
    frame = frame.selectExpr("id", f"repeat('x', {size}) as text")
    chunked = {"p_chunkingEnabled": "true", "p_batchingEnabled": "false"}
    save(frame, service_url, topic, **chunked)
    (row,) = official.read_back(service_url, topic)
    assert row.value is not None
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(row.value), text_of(service_url, topic)
    )
    assert (found["id"], len(found["text"])) == (1, size)
    assert versions(service_url, topic) == {0}


def test_rows_that_name_topics(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """Each topic's own schema makes its values; a typed one takes no bytes."""
    with official.client(service_url) as client:
        for name, schema in (("a", ps.AvroSchema(Order)), ("j", ps.JsonSchema(Order))):
            client.create_producer(f"{topic}-{name}", schema=schema)
    frame = orders(spark).selectExpr(
        "*", f"concat('{topic}-', if(id % 2 = 0, 'a', 'j')) __topic"
    )
    save(frame, service_url, "")
    in_avro = typed(service_url, f"{topic}-a", ps.AvroSchema(Order), 1)
    in_json = typed(service_url, f"{topic}-j", ps.JsonSchema(Order), 2)
    assert as_orders(in_avro) == ORDERS[1:2]
    assert as_orders(in_json) == [ORDERS[0], ORDERS[2]]
    raw = spark.createDataFrame(
        [(f"{topic}-a", bytearray(b"x"))], "__topic string, value binary"
    )
    assert "schemaType=bytes" in save_error(raw, service_url, "")


def test_streams(
    spark: SparkSession, service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Exactly once, and once more by an idempotent query: one version, no row twice."""
    admin.create_partitioned(topic, 2)
    source = tmp_path / "source"
    source.mkdir()
    stream = spark.readStream.schema("id bigint, user string").json(str(source))
    (source / "one.json").write_text('{"id":1,"user":"a"}\n{"id":2}\n')
    for _ in range(2):  # the second run begins where the first has ended
        query = (
            stream.writeStream.format("pulsar")
            .options(**given(service_url, topic, {"deliveryGuarantee": "exactly-once"}))
            .option("idempotenceId", "typed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        (source / "two.json").write_text('{"id":3,"user":"c"}\n')
    schema = text_of(service_url, topic)
    found = [
        fastavro.schemaless_reader(io.BytesIO(row.value or b""), schema)
        for row in official.read_back(service_url, topic, partitions=2)
    ]
    assert sorted(one["id"] for one in found) == [1, 2, 3]
    assert versions(service_url, topic) == {0}


def test_replay(
    spark: SparkSession, service_url: str, admin: Admin, namespace: str
) -> None:
    """Rows that are written again under one id are dropped."""
    topic = f"persistent://{namespace}/typed"
    admin.set_deduplication(namespace, True)
    frame = orders(spark)
    again = {"deliveryGuarantee": "idempotent", "idempotenceId": "typed"}
    for _ in range(2):
        save(frame, service_url, topic, **again)
    assert len(official.read_back(service_url, topic)) == len(ORDERS)
    assert versions(service_url, topic) == {0}
