# SPDX-License-Identifier: Apache-2.0
"""Which schema columns get, and what primitives and pairs become."""

from __future__ import annotations

import datetime as dt
import json
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds, primitive
from pulsar_spark.arrow.values.encoders import encoder_for, new_schema
from pulsar_spark.arrow.values.key_value_encoder import join_schemas
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value
from tests.support.random_rows import any_rows, any_type

if TYPE_CHECKING:
    from random import Random

MOMENT = pa.timestamp("us", "UTC")


def chosen(*columns: Any, wanted: str = "auto") -> SchemaInfo | None:
    """The schema of columns."""
    return new_schema(pa.schema(columns), wanted, "INLINE")


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.bool_(), "BOOLEAN"),
        (pa.int8(), "INT8"),
        (pa.int16(), "INT16"),
        (pa.int32(), "INT32"),
        (pa.int64(), "INT64"),
        (pa.float32(), "FLOAT"),
        (pa.float64(), "DOUBLE"),
        (pa.string(), "STRING"),
        (pa.large_string(), "STRING"),
        (pa.date32(), "LOCAL_DATE"),
        (pa.time64("ns"), "LOCAL_TIME"),
        (MOMENT, "INSTANT"),
        (pa.timestamp("us"), "LOCAL_DATE_TIME"),
        (pa.list_(pa.int8()), "AVRO"),
        (pa.decimal128(10, 2), "AVRO"),
        (pa.struct([("x", pa.int8())]), "AVRO"),
    ],
)
def test_a_single_column(type_: pa.DataType, expected: str):
    """It has the primitive that holds all of its values, or a record."""
    info = chosen(("a", type_))
    assert info is not None
    assert info.type_name == expected


def test_no_schema():
    """The value of today is written as today."""
    for type_ in (pa.string(), pa.binary(), pa.large_binary()):
        assert chosen(("value", type_)) is None
        assert chosen(("value", type_), wanted="bytes") is None
    with pytest.raises(InvalidSchemaError, match="name it `value`"):
        chosen(("a", pa.binary()))
    with pytest.raises(InvalidSchemaError, match="one column, of bytes"):
        chosen(("a", pa.int8()), ("b", pa.int8()), wanted="bytes")


def test_records():
    """Several columns are one, and so are the fields of a single struct.

    All fields may be null, whatever Spark's plan says: it says NOT NULL of constants,
    and such a field could never be dropped, or be added to a topic that has rows.
    """
    fields = [pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.string())]
    expected = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": "x", "type": ["null", "int"], "default": None},
            {"name": "y", "type": ["null", "string"], "default": None},
        ],
    }
    for columns in (fields, [("value", pa.struct(fields))]):
        for wanted in ("avro", "json", "auto"):
            info = chosen(*columns, wanted=wanted)
            assert info is not None
            assert json.loads(info.data) == expected
            assert info.type_name == ("JSON" if wanted == "json" else "AVRO")


def test_names_of_parts():
    """They are the Scala connector's, so that its topics keep their schemas."""
    inner = pa.struct([("d", pa.decimal128(10, 2))])
    info = chosen(("s", inner), ("d", pa.decimal128(20, 0)), ("l", pa.list_(inner)))
    assert info is not None
    s, d, items = (field["type"][1] for field in json.loads(info.data)["fields"])
    assert (s["namespace"], s["name"]) == ("topLevelRecord", "s")
    deep = s["fields"][0]["type"][1]
    assert (deep["name"], deep["size"]) == ("topLevelRecord.s.d.fixed", 5)
    assert (d["name"], d["size"]) == ("topLevelRecord.d.fixed", 9)
    assert items["items"][1]["name"] == "l"


@pytest.mark.parametrize(
    ("type_", "name", "part"),
    [
        (pa.duration("us"), "a", "`a` has the type INTERVAL DAY TO SECOND"),
        (pa.map_(pa.int8(), pa.int8()), "a", "keys are no text"),
        (pa.int8(), "bad-name", "`bad-name` is no name"),
        (pa.struct([("é", pa.int8())]), "a", "`a.é` is no name"),
    ],
)
def test_columns_of_no_schema(type_: pa.DataType, name: str, part: str):
    """The field is named."""
    with pytest.raises(InvalidSchemaError, match=part):
        chosen((name, type_), ("b", pa.int8()))


EVERY: list[tuple[str, pa.DataType, list[Any]]] = [
    ("BOOLEAN", pa.bool_(), [True, False]),
    ("INT8", pa.int8(), [-128, 127]),
    ("INT16", pa.int16(), [-(2**15), 2**15 - 1]),
    ("INT32", pa.int32(), [-(2**31), 2**31 - 1]),
    ("INT64", pa.int64(), [-(2**63), 2**63 - 1]),
    ("FLOAT", pa.float32(), [1.5, float("-inf")]),
    ("DOUBLE", pa.float64(), [-0.0, 1e300]),
    ("STRING", pa.string(), ["", "é🚀"]),
    ("DATE", pa.date32(), [-1, 19_782]),
    ("LOCAL_DATE", pa.date32(), [-1, 19_782]),
    ("TIME", pa.int64(), [0, 86_399_999]),
    ("LOCAL_TIME", pa.int64(), [0, 86_399_999_999_999]),
    ("TIMESTAMP", MOMENT, [-1000, 1_709_210_096_123_000]),
    ("INSTANT", MOMENT, [-1, 1_709_210_096_123_456]),
    ("LOCAL_DATE_TIME", pa.timestamp("us"), [-1, 1_709_210_096_123_456]),
]


@pytest.mark.parametrize(("name", "type_", "values"), EVERY, ids=[e[0] for e in EVERY])
def test_primitives(name: str, type_: pa.DataType, values: list[Any]):
    """What is written is what a read of the same schema makes of it, NULL included."""
    info = SchemaInfo(SchemaType[name])
    array = pa.array([*values, None, *values], type_)
    schema = pa.schema([("v", type_)])
    for some in (array, array.slice(1)):
        encoded = encoder_for(info, schema).encode([some]).values
        wanted = primitive.columns_of(info)
        decoder = primitive.decoder(info, info, wanted, ValueSettings())
        found = decoder.decode(encoded.cast(pa.binary()), None)
        assert not found.bad
        (column,) = found.columns
        assert column.to_pylist() == some.cast(column.type).to_pylist()


@pytest.mark.parametrize(
    ("name", "number"), [("TIME", 86_399_999), ("LOCAL_TIME", 86_399_999_000_000)]
)
def test_times_of_a_day(name: str, number: int):
    """What Spark has as TIME is written as numbers are, which older ones have."""
    micros = pa.array([0, None, 86_399_999_000], pa.time64("us"))
    numbers = pa.array([0, None, number])
    found = [
        encoder_for(SchemaInfo(SchemaType[name]), pa.schema([("v", some.type)]))
        .encode([some])
        .values.to_pylist()
        for some in (micros, micros.cast(pa.time64("ns")), numbers)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0][1:] == [None, number.to_bytes(8, "big")]


def test_a_schema_that_is_asked_for():
    """By its name: the columns must fit it."""
    found = chosen(("a", pa.string()), wanted="string")
    assert found == SchemaInfo(SchemaType.STRING)
    with pytest.raises(InvalidSchemaError):
        chosen(("a", pa.int8()), wanted="string")
    with pytest.raises(InvalidSchemaError, match="of two columns, `key` and `value`"):
        chosen(("key", pa.string()), ("a", pa.int8()), wanted="key_value")


def test_primitives_that_do_not_fit():
    """A type that holds more than the schema does is refused."""
    for name, type_ in (
        ("INT8", pa.int16()),
        ("FLOAT", pa.float64()),
        ("STRING", pa.int8()),
        ("DATE", MOMENT),
        ("INSTANT", pa.timestamp("us")),
        ("PROTOBUF", pa.binary()),
        ("PROTOBUF_NATIVE", pa.binary()),
    ):
        with pytest.raises(InvalidSchemaError):
            encoder_for(SchemaInfo(SchemaType[name]), pa.schema([("v", type_)]))
    columns = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    with pytest.raises(InvalidSchemaError, match="a single column"):
        encoder_for(SchemaInfo(SchemaType.INT8), columns)


PAIRS = pa.schema([("value", pa.int32()), ("key", pa.string())])


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_value(encoding: str):
    """Bytes are those of Java's client."""
    info = new_schema(PAIRS, "key_value", encoding)
    assert info is not None
    assert info.data == bytes(8)
    assert dict(info.properties) == {
        "kv.encoding.type": encoding,
        "key.schema.name": "String",
        "key.schema.type": "STRING",
        "key.schema.properties": "{}",
        "value.schema.name": "INT32",
        "value.schema.type": "INT32",
        "value.schema.properties": "{}",
    }
    encoder = encoder_for(info, PAIRS)
    assert encoder.columns == ("key", "value")
    keys = pa.array(["k", None, "k", "", None])
    found = encoder.encode([keys, pa.array([1, 1, None, None, None], pa.int32())])
    if encoding == "SEPARATED":
        assert found.keys is not None
        assert found.keys.to_pylist() == [b"k", None, b"k", b"", None]
        assert found.values.to_pylist() == [b"\0\0\0\1"] * 2 + [None] * 3
        return
    assert found.keys is None
    assert [value.hex() for value in found.values.to_pylist()] == [
        "000000016b0000000400000001",
        "ffffffff0000000400000001",
        "000000016bffffffff",
        "00000000ffffffff",
        "ffffffffffffffff",
    ]


def test_key_value_of_records():
    """Structs are records in AVRO, other parts what they are alone."""
    struct = pa.struct([("x", pa.int8())])
    columns = pa.schema([("key", pa.binary()), ("value", struct)])
    info = new_schema(columns, "key_value", "INLINE")
    assert info is not None
    pair = parse_key_value(info)
    assert (pair.key.type, pair.value.type) == (0, SchemaType.AVRO)
    assert not pair.is_separated
    assert json.loads(pair.value.data)["name"] == "value"
    rows = pa.array([{"x": 1}, None], struct)
    found = encoder_for(info, columns).encode([pa.array([b"k", b"l"]), rows])
    assert [value.hex() for value in found.values.to_pylist()] == [
        "000000016b000000020202",
        "000000016cffffffff",
    ]


@pytest.mark.parametrize("wanted", ["auto", "avro", "json"])
@settings(max_examples=40, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_null_of_a_single_column(wanted: str, chance: Random):
    """It is a null value, also where `value` becomes the field of a record."""
    type_ = any_type(chance, 2)
    if wanted == "auto" and pa.types.is_binary(type_):
        type_ = pa.int8()
    columns = pa.schema([pa.field("value", type_)])
    (column,) = any_rows(chance, columns, 5)
    info = new_schema(columns, wanted, "INLINE")
    values = encoder_for(info, columns).encode([column]).values
    assert values.is_valid().to_pylist() == column.is_valid().to_pylist()
    left = encoder_for(info, columns).encode([column.drop_null()]).values
    assert values.drop_null().to_pylist() == left.to_pylist()


@pytest.mark.parametrize("form", [SchemaType.AVRO, SchemaType.JSON])
def test_null_of_a_field(form: SchemaType):
    """`value` alone may be NULL where its field may not; another field stays one."""
    tree = {"type": "record", "name": "R"}
    for name, type_, is_null_value in (
        ("value", "int", True),
        ("value", ["null", "int"], True),
        ("id", ["null", "int"], False),
    ):
        text = json.dumps(tree | {"fields": [{"name": name, "type": type_}]}).encode()
        columns = pa.schema([(name, pa.int32())])
        column = pa.array([1, None, 2], pa.int32())
        found = encoder_for(SchemaInfo(form, text), columns).encode([column]).values
        assert (found.null_count == 1) == is_null_value


@pytest.mark.parametrize("wanted", ["auto", "avro", "json"])
def test_a_struct_in_a_struct_of_its_name(wanted: str):
    """It is written as a field, and read as such."""
    inner = pa.struct([("a", pa.int32())])
    columns = pa.schema([("s", pa.struct([("s", inner)]))])
    info = new_schema(columns, wanted, "INLINE")
    assert info is not None
    column = pa.array([{"s": {"a": 1}}, {"s": None}], columns[0].type)
    values = encoder_for(info, columns).encode([column]).values.cast(pa.binary())
    assert kinds.columns_of(info) == columns
    found = kinds.decoder(info, info, columns, ValueSettings()).decode(values, None)
    assert found.columns[0].to_pylist() == column.to_pylist()


def test_key_value_and_other_columns():
    """Only these two make a pair, and they must fit their parts."""
    text = SchemaInfo(SchemaType.STRING)
    info = join_schemas(text, text, "INLINE")
    for columns, part in (
        ([("a", pa.string()), ("value", pa.string())], "`key` and `value`"),
        ([("key", pa.string()), ("value", pa.int8())], "`value` is TINYINT"),
    ):
        with pytest.raises(InvalidSchemaError, match=part):
            encoder_for(info, pa.schema(columns))


def test_values_of_another_system():
    """Where payloads begin with bytes that are not AVRO's, ours would not be read."""
    info = chosen(("a", pa.int8()), ("b", pa.int8()))
    assert info is not None
    prefixed = SchemaInfo(info.type, info.data, {"__AVRO_READ_OFFSET__": "5"})
    with pytest.raises(InvalidSchemaError, match="another system"):
        encoder_for(prefixed, pa.schema([("a", pa.int8()), ("b", pa.int8())]))


def test_names_that_differ_by_case():
    """Fields of which a read would have to refuse both get no schema."""
    for wanted in ("auto", "avro", "json"):
        with pytest.raises(InvalidSchemaError, match="`id` and `ID` differ by their"):
            chosen(("id", pa.int8()), ("ID", pa.int8()), wanted=wanted)


@pytest.mark.parametrize("name", ["INSTANT", "LOCAL_DATE_TIME"])
def test_the_first_and_the_last_moment(name: str):
    """What the natural schema holds are all of Spark's, and nothing beyond."""
    zone = "UTC" if name == "INSTANT" else None
    type_ = pa.timestamp("us", zone)
    ends = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 0, None]
    info = SchemaInfo(SchemaType[name])
    schema = pa.schema([("value", type_)])
    moments = pa.array(ends, pa.int64()).view(type_)
    values = encoder_for(info, schema).encode([moments]).values.to_pylist()
    before, after = bytearray(values[0]), bytearray(values[2])
    size = 4 if name == "INSTANT" else 8  # of the nanoseconds
    for value, step in ((before, -1000), (after, 1000)):
        nanos = int.from_bytes(value[-size:], "big") + step
        value[-size:] = nanos.to_bytes(size, "big")
    array = pa.array([*values, bytes(before), bytes(after)], pa.binary())
    found = kinds.decoder(info, info, schema, ValueSettings()).decode(array, None)
    assert found.columns[0].cast(pa.int64()).to_pylist() == [*ends, None, None]
    assert found.bad == [6, 7]


TEXT, BYTES = pa.string(), pa.binary()
HEADERS = pa.list_(pa.struct([("key", TEXT), ("value", BYTES)]))


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ((("key", TEXT), ("value", TEXT)), "Rename key to __key; for a record"),
        ((("value", BYTES), ("topic", TEXT)), "Rename topic to __topic; for"),
        ((("KEY", TEXT), ("VALUE", TEXT)), "KEY to __key, VALUE to value; for"),
        ((("Value", BYTES), ("TimestampType", TEXT)), "to value, drop TimestampType"),
        (
            (("key", BYTES), ("value", BYTES), ("headers", HEADERS), ("offset", TEXT)),
            (
                r"key to __key, headers to __messageProperties \(MAP<STRING, STRING>\),"
                r" drop offset; for a record with such fields set schemaType=avro$"
            ),
        ),
    ],
)
def test_columns_of_kafka(columns: tuple[Any, ...], part: str):
    """From rows for Kafka's sink no record is made in silence, but if asked for."""
    with pytest.raises(InvalidSchemaError, match=part):
        chosen(*columns)
    info = chosen(*columns, wanted="avro")
    assert info is not None
    assert info.type == SchemaType.AVRO


@pytest.mark.parametrize(
    ("name", "meant"), [("_key", "__key"), ("_EVENTTIME", "__eventTime")]
)
def test_an_underscore_too_few(name: str, meant: str):
    """It is no field of a topic's first schema by mistake, but if asked for."""
    with pytest.raises(InvalidSchemaError, match=f"`{name}` is spelt `{meant}`"):
        chosen(("value", TEXT), (name, TEXT))
    assert chosen(("value", TEXT), (name, TEXT), wanted="avro")
    record = chosen(("value", pa.float64()), (name, TEXT))
    assert record is not None
    assert record.type == SchemaType.AVRO


@pytest.mark.parametrize(
    "columns",
    [
        (("key", TEXT), ("value", pa.int64())),
        (("key", TEXT), ("value", TEXT), ("colour", TEXT)),
        (("key", TEXT), ("partition", pa.int32())),
    ],
)
def test_records_beside_kafka(columns: tuple[Any, ...]):
    """Rows that Kafka's sink would not take are records."""
    info = chosen(*columns)
    assert info is not None
    assert info.type == SchemaType.AVRO


ZONES = ["America/New_York", "Asia/Tokyo", "Africa/Cairo", "Africa/Monrovia"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("kind", [SchemaType.DATE, SchemaType.TIME])
def test_days_and_times_in_a_zone(kind: SchemaType, zone: str) -> None:
    """What is written in a zone and read there is the same, whatever its clock."""
    if kind is SchemaType.DATE:
        held = pa.array([*range(-20_000, 25_000), None], pa.date32())
    else:
        millis = pa.array([*range(0, 86_400_000, 7_001), 86_399_999, None], pa.int64())
        held = pc.multiply(millis, 1000).cast(pa.time64("us"))
    info, columns = SchemaInfo(kind), pa.schema([("value", held.type)])
    settings = ValueSettings(time_zone=zone)
    values = encoder_for(info, columns, settings).encode([held]).values
    decoder = kinds.decoder(info, info, columns, settings)
    assert decoder.decode(values.cast(pa.binary()), None).columns[0] == held


def test_a_time_in_a_zone_is_that_of_java() -> None:
    """As ``Time.valueOf("12:00:00").getTime()`` in a JVM of that zone."""
    info = SchemaInfo(SchemaType.TIME)
    columns = pa.schema([("value", pa.time64("us"))])
    noon = pa.array([dt.time(12)], pa.time64("us"))
    for zone, hour in (("UTC", 12), ("America/New_York", 17), ("Asia/Tokyo", 3)):
        settings = ValueSettings(time_zone=zone)
        (value,) = (
            encoder_for(info, columns, settings).encode([noon]).values.to_pylist()
        )
        assert value == struct.pack(">q", hour * 3_600_000)
    millis = pa.schema([("value", pa.int64())])
    encoder = encoder_for(info, millis, ValueSettings(time_zone="Asia/Tokyo"))
    (value,) = encoder.encode([pa.array([5])]).values.to_pylist()
    assert value == struct.pack(">q", 5)


@pytest.mark.parametrize("kind", ["avro", "json"])
@pytest.mark.parametrize("is_list", [False, True])
def test_names_within_a_struct_that_differ_by_case(kind: str, is_list: bool) -> None:
    """A read with Spark would not tell the fields apart, at any depth."""
    struct = pa.struct([("a", pa.int32()), ("A", pa.string())])
    column = pa.list_(struct) if is_list else struct
    with pytest.raises(InvalidSchemaError, match=r"`s.*\.a` and `s.*\.A` differ by"):
        new_schema(pa.schema([("s", column), ("t", pa.int8())]), kind, "INLINE")
