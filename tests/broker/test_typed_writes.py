# SPDX-License-Identifier: Apache-2.0
"""Typed writes, as the official client's typed consumers and its registry see them.

Spark writes where its types, its tasks, its errors or its streams are looked at, and no
Spark where it would add nothing; ``test_typed_round_trip.py`` has more through Spark.
"""

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
import pyarrow as pa
import pytest
from pulsar import schema as ps

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.options import parse_write_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_number
from tests.broker.test_write import given, save
from tests.support import official, reading
from tests.support.writes import write_frame

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


def orders(spark: SparkSession) -> DataFrame:
    """Rows of it, by columns in another order."""
    frame = spark.createDataFrame(
        [(ok, id_, amount, user) for id_, user, amount, ok in ORDERS],
        "ok boolean, id bigint, amount double, user string",
    )
    return frame.coalesce(1)


#: The columns of `orders` in Arrow.
COLUMNS = (
    pa.field("ok", pa.bool_()),
    pa.field("id", pa.int64()),
    pa.field("amount", pa.float64()),
    pa.field("user", pa.string()),
)

#: A further one, which is NULL of the first row.
MORE = pa.field("more", pa.int32())


def rows_of(*further: pa.Field, count: int = len(ORDERS)) -> pa.RecordBatch:
    """The first rows of `orders`, without Spark; all but the first have further 1s."""
    names = ("id", "user", "amount", "ok")
    more = {field.name: 1 for field in further}
    rows = [{**dict(zip(names, row, strict=True)), **more} for row in ORDERS[:count]]
    for field in further:
        if field.nullable:
            rows[0][field.name] = None
    return pa.RecordBatch.from_pylist(rows, pa.schema([*COLUMNS, *further]))


def column(name: str, type_: pa.DataType, *values: Any) -> pa.RecordBatch:
    """A column of rows that have no other."""
    return pa.RecordBatch.from_arrays([pa.array(values, type_)], names=[name])


def write(service_url: str, topic: str, *tasks: pa.RecordBatch, **options: str) -> None:
    """A batch write without Spark, of the rows of each task."""
    write_frame(given(service_url, topic, options), *tasks)


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


def write_error(
    service_url: str, topic: str, *tasks: pa.RecordBatch, **options: str
) -> str:
    """What a write without Spark says that must fail."""
    with pytest.raises(PulsarSparkError) as caught:
        write(service_url, topic, *tasks, **options)
    return str(caught.value)


def as_orders(values: list[Any]) -> list[tuple[Any, ...]]:
    """Records of the official client as tuples."""
    return [(one.id, one.user, one.amount, one.ok) for one in values]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_schema_of_the_official_client(
    service_url: str, topic: str, form: str
) -> None:
    """Rows that fit it use it as it is: no new version, its field order and names."""
    schema = ps.AvroSchema(Order) if form == "avro" else ps.JsonSchema(Order)
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).send(Order(id=0, user="first"))
    before = latest(service_url, topic)
    write(service_url, topic, rows_of())
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

SAMPLE_COLUMNS = pa.schema(
    [
        ("number", pa.int64()),
        ("data", pa.binary()),
        ("share", pa.float64()),
        ("small", pa.float32()),
        ("color", pa.string()),
        ("text", pa.string()),
    ]
)


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
def test_values_of_all_kinds(service_url: str, topic: str, form: str) -> None:
    """What is written by a schema of Python's is for Python what it is for us."""
    schema = (ps.AvroSchema if form == "AVRO" else ps.JsonSchema)(Sample)
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).close()
    names = SAMPLE_COLUMNS.names
    samples = [dict(zip(names, row, strict=True)) for row in SAMPLES]
    rows = pa.RecordBatch.from_pylist(samples, SAMPLE_COLUMNS)
    said = {} if form == "AVRO" else {"jsonBytes": "utf8"}
    if said:
        error = write_error(service_url, topic, rows)
        assert "`data` is of bytes" in error
        assert "set jsonBytes=base64, as Java's client does, or jsonBytes=utf8" in error
    write(service_url, topic, rows, **said)
    expected = [repr(row) for row in SAMPLES]
    found = [
        (v.number, v.data, v.share, v.small, v.color and v.color.name, v.text)
        for v in typed(service_url, topic, schema, len(SAMPLES))
    ]
    assert [*map(repr, found)] == expected
    again = reading.read_frame(service_url, {"topic": topic, **said})
    ours = again.select(names).to_pylist()
    assert [repr(tuple(row.values())) for row in ours] == expected


def test_a_new_schema(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """All tasks and partitions of a write share the version that it registers."""
    admin.create_partitioned(topic, 3)
    frame = orders(spark).repartition(3)
    save(frame, service_url, topic, schemaType="avro")
    save(frame, service_url, topic)
    assert versions(service_url, topic) == {0}
    schema = text_of(service_url, topic)  # the client insists on the record's name
    found = [
        fastavro.schemaless_reader(io.BytesIO(row.value or b""), schema)
        for row in official.read_back(service_url, topic, partitions=3)
    ]
    fields = [(o["id"], o["user"], o["amount"], o["ok"]) for o in found]
    assert sorted(fields, key=str) == sorted(ORDERS * 2, key=str)


def test_a_new_schema_in_json(service_url: str, admin: Admin, topic: str) -> None:
    """The same, and the official client takes it for that of its own record."""
    admin.create_partitioned(topic, 3)
    rows = rows_of()
    tasks = [rows.slice(at, 1) for at in range(rows.num_rows)]
    write(service_url, topic, *tasks, schemaType="json")
    write(service_url, topic, *tasks)
    assert versions(service_url, topic) == {0}
    found = as_orders(typed(service_url, topic, ps.JsonSchema(Order), 6))
    assert sorted(found, key=str) == sorted(ORDERS * 2, key=str)


def text_of(service_url: str, topic: str) -> Any:
    """The registered AVRO schema, as fastavro has it."""
    info = latest(service_url, topic)
    assert info is not None
    return fastavro.parse_schema(json.loads(info.data))


def test_text(service_url: str, topic: str) -> None:
    """On a topic of Python's StringSchema: its version, though its data is odd."""
    schema = ps.StringSchema()
    with official.client(service_url) as client:
        client.create_producer(topic, schema=schema).send("first")
    write(service_url, topic, column("value", pa.string(), "a", "", None, "日本"))
    assert versions(service_url, topic) == {0}
    assert typed(service_url, topic, schema, 5) == ["first", "a", "", None, "日本"]


def test_text_without_a_schema(service_url: str, topic: str) -> None:
    """A topic without one stays so, unless somebody says otherwise."""
    rows = column("value", pa.string(), "a")
    write(service_url, topic, rows)
    assert latest(service_url, topic) is None
    write(service_url, topic, rows, schemaType="string")
    info = latest(service_url, topic)
    assert info is not None
    assert (info.type, info.data) == (SchemaType.STRING, b"")
    assert versions(service_url, topic) == {None, 0}


@pytest.mark.parametrize(
    ("type_", "wanted", "value", "payload", "registered"),
    [
        (pa.int8(), "auto", -2, b"\xfe", "INT8"),
        (pa.int32(), "auto", -2, b"\xff\xff\xff\xfe", "INT32"),
        (pa.int64(), "auto", 1, bytes(7) + b"\1", "INT64"),
        (pa.float64(), "auto", 1.5, struct.pack(">d", 1.5), "DOUBLE"),
        (pa.bool_(), "auto", True, b"\1", "BOOLEAN"),
        (pa.date32(), "auto", dt.date(1969, 12, 31), b"\xff" * 8, "LOCAL_DATE"),
        (
            pa.date32(),
            "date",
            dt.date(2024, 2, 29),
            bytes.fromhex("0000018df2292800"),
            "DATE",
        ),
        (
            pa.timestamp("us"),
            "auto",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123456),
            bytes.fromhex("0000000000004d46") + struct.pack(">q", 45296123456000),
            "LOCAL_DATE_TIME",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else None,
)
def test_primitives(
    service_url: str,
    topic: str,
    type_: pa.DataType,
    wanted: str,
    value: Any,
    payload: bytes,
    registered: str,
) -> None:
    """A single column becomes what it is; its NULL is a null value with a version."""
    write(service_url, topic, column("v", type_, value, None), schemaType=wanted)
    info = latest(service_url, topic)
    assert info is not None
    assert info.type_name == registered
    rows = official.read_back(service_url, topic)
    assert [row.value for row in rows] == [payload, None]
    assert versions(service_url, topic) == {0}


def test_incompatible(service_url: str, topic: str) -> None:
    """Nothing is written or registered, and the error has the cast to write.

    Brokers would pass another unit: they do not look at what numbers mean.
    """
    write(service_url, topic, rows_of())
    two = pa.record_batch({"id": pa.array(["x"]), "colour": pa.array([1], pa.int32())})
    for rows, part in (
        (two, "`id` is STRING, and the schema has BIGINT: write CAST"),
        (column("id", TIMESTAMP, 0), "`id` is TIMESTAMP, and the schema has BIGINT"),
    ):
        text = write_error(service_url, topic, rows)
        assert "[PULSAR_SCHEMA]" in text
        assert "AVRO, version 0, which these rows do not fit" in text
        assert part in text
    assert len(official.read_back(service_url, topic)) == len(ORDERS)
    info = latest(service_url, topic)
    assert info is not None
    assert version_number(info.version) == 0


def test_one_more_column(service_url: str, topic: str) -> None:
    """It becomes the next version, and may be NULL, as topics want it."""
    write(service_url, topic, rows_of())
    write(service_url, topic, rows_of(MORE))
    assert versions(service_url, topic) == {0, 1}
    write(service_url, topic, rows_of())  # the last version has a default for it
    assert versions(service_url, topic) == {0, 1}
    never_null = pa.field("never_null", pa.int32(), nullable=False)
    write(service_url, topic, rows_of(MORE, never_null))
    write(service_url, topic, rows_of())
    assert versions(service_url, topic) == {0, 1, 2}


@pytest.mark.parametrize("form", ["AVRO", "JSON"])
def test_a_record_of_another_client(
    service_url: str, admin: Admin, topic: str, form: str
) -> None:
    """What was read is written without a new version; a field within it adds one."""
    admin.create_topic(topic)
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}
    field = {"name": "v", "type": ["null", inner], "default": None}
    tree = {"type": "record", "name": "W", "doc": "theirs", "fields": [field]}
    admin.add_schema(topic, form, json.dumps(tree))
    number = pa.field("a", pa.int32(), nullable=False)
    write(service_url, topic, column("v", pa.struct([number]), {"a": 7}))
    assert versions(service_url, topic) == {0}
    both = pa.struct([number, pa.field("more", pa.string(), nullable=False)])
    write(service_url, topic, column("v", both, {"a": 7, "more": "x"}))
    inner["fields"].append(
        {"name": "more", "type": ["null", "string"], "default": None}
    )
    info = latest(service_url, topic)
    assert info is not None
    assert json.loads(info.data) == tree
    found = reading.read_frame(service_url, {"topic": topic})["v"].to_pylist()
    assert found == [{"a": 7, "more": None}, {"a": 7, "more": "x"}]


def test_a_first_schema_beside_messages(service_url: str, topic: str) -> None:
    """A topic that has messages without a schema gets one only on request."""
    write(service_url, topic, column("value", pa.string(), "x"))
    text = write_error(service_url, topic, rows_of())
    assert "has messages and no schema" in text
    assert "set schemaType=avro" in text
    assert latest(service_url, topic) is None
    write(service_url, topic, rows_of(), schemaType="avro")
    assert len(official.read_back(service_url, topic)) == 1 + len(ORDERS)


def test_values_in_json_that_are_no_records(
    service_url: str, admin: Admin, topic: str
) -> None:
    """They are written as they are, and nothing is registered."""
    admin.create_topic(topic)
    admin.add_schema(topic, "JSON", '"int"')
    write(service_url, topic, column("value", pa.int32(), 7))
    assert [row.value for row in official.read_back(service_url, topic)] == [b"7"]
    assert versions(service_url, topic) == {0}


def test_bytes_and_typed_topics(service_url: str, topic: str) -> None:
    """Bytes get into a typed topic only on request."""
    write(service_url, topic, rows_of())
    raw = column("value", pa.binary(), b"raw")
    text = write_error(service_url, topic, raw)
    assert "has the schema AVRO, version 0" in text
    assert "schemaType=bytes" in text
    write(service_url, topic, raw, schemaType="bytes")
    assert versions(service_url, topic) == {0, None}


def test_enforcement(service_url: str, admin: Admin, namespace: str) -> None:
    """Where a schema is demanded, bytes are refused, and our own probes are not.

    Whether the option or the rows name the topic.
    """
    topic = f"persistent://{namespace}/typed"
    write(service_url, topic, rows_of())
    admin.set_deduplication(namespace, True)
    admin.set_policy(namespace, "schemaValidationEnforced", True)
    raw = column("value", pa.binary(), b"raw")
    text = write_error(service_url, topic, raw, schemaType="bytes")
    assert "[PULSAR_SCHEMA]" in text
    assert "takes no values without a schema (SchemaValidationEnforced)" in text
    rows = rows_of()
    naming = rows.append_column("__topic", pa.array([topic] * len(rows)))
    for guarantee in ("at-least-once", "idempotent", "exactly-once"):
        write(service_url, topic, rows, deliveryGuarantee=guarantee)
        settings = given(service_url, topic, {"deliveryGuarantee": guarantee})
        del settings["topic"]
        write_frame(settings, naming)
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


def test_no_new_schemas(service_url: str, admin: Admin, topic: str) -> None:
    """A namespace that lets nobody register: what fits is written, the rest named."""
    namespace = topic.rpartition("/")[0].removeprefix("persistent://")
    admin.create_topic(topic)
    fields = [{"name": "id", "type": "long"}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    admin.add_schema(topic, "AVRO", text)
    admin.set_policy(namespace, "isAllowAutoUpdateSchema", False)
    admin.unload(topic)  # so that the topic knows
    try:
        write(service_url, topic, column("id", pa.int64(), 0, 1))
        more = pa.record_batch({"id": [0, 1], "more": ["x", "x"]})
        text = write_error(service_url, topic, more)
    finally:
        admin.set_policy(namespace, "isAllowAutoUpdateSchema", True)
    assert "PULSAR_SCHEMA" in text
    assert "new: `more` STRING" in text
    assert "set-is-allow-auto-update-schema" in text
    assert versions(service_url, topic) == {0}


def test_bad_rows(spark: SparkSession, service_url: str, topic: str) -> None:
    """NULL where the schema has none names column and row; nothing is written."""
    write(service_url, topic, rows_of(count=1))
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
def test_key_value(service_url: str, topic: str, encoding: str) -> None:
    """Keys are where the schema has them, and so they are in a second write."""
    pair = {"key": ["k", "l"], "value": pa.array([1, None], pa.int32())}
    first = {"schemaType": "key_value", "keyValueEncodingType": encoding}
    write(service_url, topic, pa.record_batch(pair), **first)
    write(service_url, topic, pa.record_batch(pair))
    rows = official.read_back(service_url, topic)
    one = b"\0\0\0\1"
    if encoding == "INLINE":
        expected = [(None, one + b"k" + b"\0\0\0\4" + one)]
        expected += [(None, one + b"l" + b"\xff" * 4)]
    else:
        expected = [(b"aw==", one), (b"bA==", None)]
    assert [(row.key, row.value) for row in rows] == expected * 2
    assert versions(service_url, topic) == {0}


def test_chunks(service_url: str, topic: str) -> None:
    """Each chunk says the version."""
    size = 12 << 20
    large = {"id": pa.array([1], pa.int32()), "text": ["x" * size]}
    chunked = {"p_chunkingEnabled": "true", "p_batchingEnabled": "false"}
    write(service_url, topic, pa.record_batch(large), **chunked)
    (row,) = official.read_back(service_url, topic)
    assert row.value is not None
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(row.value), text_of(service_url, topic)
    )
    assert (found["id"], len(found["text"])) == (1, size)
    assert versions(service_url, topic) == {0}


def test_rows_that_name_topics(service_url: str, topic: str) -> None:
    """Each topic's own schema makes its values; a typed one takes no bytes."""
    with official.client(service_url) as client:
        for name, schema in (("a", ps.AvroSchema(Order)), ("j", ps.JsonSchema(Order))):
            client.create_producer(f"{topic}-{name}", schema=schema)
    named = [f"{topic}-{name}" for name in "jaj"]
    rows = pa.record_batch(
        {
            **dict(zip(rows_of().schema.names, rows_of().columns, strict=True)),
            "__topic": named,
        }
    )
    write(service_url, "", rows)
    in_avro = typed(service_url, f"{topic}-a", ps.AvroSchema(Order), 1)
    in_json = typed(service_url, f"{topic}-j", ps.JsonSchema(Order), 2)
    assert as_orders(in_avro) == ORDERS[1:2]
    assert as_orders(in_json) == [ORDERS[0], ORDERS[2]]
    raw = pa.record_batch({"__topic": named[1:2], "value": [b"x"]})
    assert "schemaType=bytes" in write_error(service_url, "", raw)


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


def test_replay(service_url: str, admin: Admin, namespace: str) -> None:
    """Rows that are written again under one id are dropped."""
    topic = f"persistent://{namespace}/typed"
    admin.set_deduplication(namespace, True)
    again = {"deliveryGuarantee": "idempotent", "idempotenceId": "typed"}
    for _ in range(2):
        write(service_url, topic, rows_of(), **again)
    assert len(official.read_back(service_url, topic)) == len(ORDERS)
    assert versions(service_url, topic) == {0}
