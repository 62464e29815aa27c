# SPDX-License-Identifier: Apache-2.0
"""Columns as values in AVRO, in all forms of the kernel, read by another library."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import avro_encoder, avro_parts
from pulsar_spark.arrow.values.avro_encoder import AvroEncoder
from pulsar_spark.arrow.values.avro_text import record_text
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.schemas.avro import parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError
from tests.support import kernels

UTC = "UTC"


@pytest.fixture(params=kernels.FORMS, autouse=True, scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    """Each form of the kernel."""
    kernel = kernels.load(request.param, "avro_write")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_parts, "kernel", kernel)
        patch.setattr(avro_parts, "Part", kernel.Part)
        patch.setattr(avro_encoder, "kernel", kernel)
        patch.setattr(avro_encoder, "Part", kernel.Part)
        patch.setattr(avro_encoder, "AvroWriter", kernel.AvroWriter)
        yield kernel


def encoded(text: bytes, batch: pa.RecordBatch) -> list[bytes | None]:
    """Values of rows by a schema."""
    values = AvroEncoder(parse_avro(text), batch.schema).encode(batch.columns).values
    values.validate(full=True)
    found: list[bytes | None] = values.to_pylist()
    return found


def decoded(text: bytes, batch: pa.RecordBatch) -> list[Any]:
    """What another library reads."""
    schema = fastavro.parse_schema(json.loads(text))
    found = []
    for value in encoded(text, batch):
        source = io.BytesIO(value or b"")
        found.append(fastavro.schemaless_reader(source, schema))
        assert not source.read(), "nothing is left over"
    return found


def record(*fields: Any) -> bytes:
    """The text of a record of pairs, or of triples with a default."""
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                dict(zip(("name", "type", "default"), field, strict=False))
                for field in fields
            ],
        }
    ).encode()


# -- any rows of any types -------------------------------------------------------------

_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=9)),
    (pa.large_string(), st.text(max_size=9)),
    (pa.binary(), st.binary(max_size=9)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (
        pa.decimal128(12, 3),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    ),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
]


@st.composite
def _types(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, Any]:
    kind = draw(st.sampled_from(["leaf"] * 3 + ["list", "map", "struct"]))
    if kind == "leaf" or not depth:
        return draw(st.sampled_from(_LEAVES))
    if kind == "struct":
        parts = [draw(_fields(name, depth - 1)) for name in ("x", "y")]
        fields = [field for field, _ in parts]
        values = st.fixed_dictionaries({f.name: one for f, one in parts})
        return pa.struct(fields), values
    field, values = draw(_fields("element", depth - 1))
    if kind == "list":
        return pa.list_(field), st.lists(values, max_size=3)
    item = field.with_name("value")
    return pa.map_(pa.string(), item), st.dictionaries(
        st.text(max_size=3), values, max_size=3
    )


@st.composite
def _fields(draw: st.DrawFn, name: str, depth: int = 2) -> tuple[pa.Field, Any]:
    type_, values = draw(_types(depth))
    is_nullable = draw(st.booleans())
    return pa.field(name, type_, is_nullable), st.none() | values if is_nullable else (
        values
    )


@st.composite
def _batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    columns = [draw(_fields(name)) for name in ("a", "b", "c")]
    rows = draw(
        st.lists(st.fixed_dictionaries({f.name: v for f, v in columns}), max_size=5)
    )
    schema = pa.schema([field for field, _ in columns])
    arrays = [
        pa.array([_pairs(row[f.name], f.type) for row in rows], f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), rows


def _pairs(value: Any, type_: pa.DataType) -> Any:
    """Maps as Arrow wants them."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return [(k, _pairs(v, type_.item_type)) for k, v in value.items()]
    if pa.types.is_list(type_):
        return [_pairs(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_):
        return {f.name: _pairs(value[f.name], f.type) for f in type_}
    return value


@settings(max_examples=80, deadline=None)
@given(_batches(), st.integers(0, 5))
def test_round_trip(given_: tuple[pa.RecordBatch, list[dict[str, Any]]], cut: int):
    """What is written with our own schema comes back, from slices, too."""
    batch, rows = given_
    text = record_text(batch.schema)
    assert decoded(text, batch) == rows
    assert decoded(text, batch.slice(cut)) == rows[cut:]


# -- schemas of others -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "array", "expected"),
    [
        ("long", pa.array([1], pa.int8()), b"\2"),
        ("double", pa.array([1.5], pa.float32()), struct.pack("<d", 1.5)),
        (["long", "null"], pa.array([1, None]), b"\0\2\2"),
        (["string"], pa.array(["a"]), b"\0\2a"),
        (["null", "int", "long"], pa.array([5], pa.int64()), b"\4\x0a"),
        (
            ["null", {"type": "enum", "name": "E", "symbols": ["A"]}, "string"],
            pa.array(["A"]),
            b"\4\2A",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            pa.array(["B", "A"]),
            b"\2\0",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"ab"]), b"ab"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.array([-1, 1999], pa.timestamp("us", UTC)),
            b"\1\2",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-nanos"},
            pa.array([1], pa.timestamp("us")),
            b"\xd0\x0f",
        ),
        (
            {"type": "int", "logicalType": "time-millis"},
            pa.array([1_999_999], pa.time64("ns")),
            b"\2",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            pa.array([Decimal("-12.34"), Decimal(0), Decimal("1.28")]),
            b"\4\xfb\x2e\2\0\4\0\x80",
        ),
        (
            {
                "type": "fixed",
                "size": 20,
                "name": "D",
                "logicalType": "decimal",
                "precision": 45,
                "scale": 2,
            },
            pa.array([Decimal("-1.23")]),
            b"\xff" * 19 + b"\x85",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4},
            pa.array([Decimal("0.01")]),
            b"\2\x64",
        ),
    ],
)
def test_registered_types(type_: Any, array: pa.Array, expected: bytes):
    """Branches, units and sizes are those of the schema, whatever ours would be."""
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    found = encoded(record(("a", type_)), batch)
    assert b"".join(one or b"" for one in found) == expected


def test_order_and_defaults():
    """Fields are in the schema's order; what no column has gets its default."""
    text = record(
        ("z", "bytes", "\u00ff"),  # a byte for each character, not UTF-8
        ("b", "string"),
        ("n", ["null", "int"]),
        ("m", {"type": "map", "values": "int"}, {"k": 1}),
        ("l", {"type": "array", "items": "string"}, ["x"]),
        ("u", ["null", "string"], "other branch"),
        ("a", "int"),
    )
    batch = pa.RecordBatch.from_pydict({"a": pa.array([7], pa.int32()), "b": ["x"]})
    (row,) = decoded(text, batch)
    assert row == {
        "z": b"\xff",
        "b": "x",
        "n": None,
        "m": {"k": 1},
        "l": ["x"],
        "u": "other branch",
        "a": 7,
    }


@pytest.mark.parametrize(
    ("type_", "array", "part"),
    [
        ("int", pa.array([1]), "BIGINT, and the schema has INT: write CAST(a AS INT)"),
        ("string", pa.array([1]), "the schema has STRING"),
        (["null", "int", "string"], pa.array([1.5]), "has INT or STRING: write"),
        (
            {"type": "array", "items": "int"},
            pa.array([["x"]]),
            "`a[]` is STRING, and the schema has INT: write CAST(... AS INT)",
        ),
        (
            {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal",
             "precision": 10, "scale": 2},
            pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
            "DECIMAL(10, 2)",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 1},
            pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
            "the schema has DECIMAL(10, 1): write CAST(a AS",
        ),
        ("long", pa.array([1], pa.timestamp("us", UTC)), "BIGINT: write unix_millis"),
        (["null", "int"], pa.array(["x"]), "`a` is STRING, and the schema has INT"),
        ({"type": "array", "items": "int"}, pa.array([1]), "has ARRAY<INT>"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 1},
            pa.array([1]),
            "`a` is BIGINT, and the schema has DECIMAL(10, 1)",
        ),
        ({"type": "map", "values": "int"}, pa.array([1]), "MAP<STRING, INT>"),
        ({"type": "record", "name": "S", "fields": []}, pa.array([1]), "STRUCT<>"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(type_: Any, array: pa.Array, part: str):
    """Both are named."""
    schema = pa.schema([("a", array.type)])
    with pytest.raises(InvalidSchemaError) as caught:
        AvroEncoder(parse_avro(record(("a", type_))), schema)
    assert part in str(caught.value)


def test_columns_of_a_schema_that_is_no_record():
    """It is for one column, and it is said which type that has."""
    columns = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    with pytest.raises(InvalidSchemaError, match="schema is INT and no record"):
        AvroEncoder(parse_avro(b'"int"'), columns)


def test_fields_that_do_not_fit():
    """A column must be a field; a field without one needs a default, which is right."""
    columns = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    for fields, part in (
        ([("a", "int")], "no field `b`"),
        ([("a", "int"), ("b", "int"), ("c", "int")], "`c` is a field of the schema"),
        ([("a", "int"), ("b", "int"), ("c", "int", "xx")], "`c`, .*, is no int"),
    ):
        with pytest.raises(InvalidSchemaError, match=part):
            AvroEncoder(parse_avro(record(*fields)), columns)


@pytest.mark.parametrize(
    ("type_", "array", "row", "part"),
    [
        ("int", pa.array([1, None], pa.int32()), 1, "`a` is NULL"),
        (
            {"type": "array", "items": "int"},
            pa.array([[1], [2, None]], pa.list_(pa.int32())),
            1,
            "`a[]` is NULL",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            pa.array(["A", "A", "C"]),
            2,
            "does not fit",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            pa.array([b"ab", b"abc"]),
            1,
            "has 3 bytes, not 2",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            pa.array([1, 1 << 60], pa.timestamp("us", UTC)),
            1,
            "does not fit",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            pa.array([1, -(1 << 63)], pa.timestamp("us", UTC)),
            1,
            "does not fit",
        ),
        (
            "string",
            pa.array([b"a", b"\xff"]).view(pa.string()),
            1,
            "not text in UTF-8",
        ),
    ],
)
def test_bad_values(kernel: Any, type_: Any, array: pa.Array, row: int, part: str):
    """The row and the field are named."""
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    errors = (UnfitValueError, kernel.UnfitValueError)
    with pytest.raises(errors) as caught:
        encoded(record(("a", type_)), batch)
    assert caught.value.row == row
    assert part in str(caught.value)


def test_null_values():
    """A struct that is NULL is a null value, and so is the only column of an int."""
    struct_ = pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))
    batch = pa.RecordBatch.from_arrays([struct_], names=["s"])
    assert encoded(record(("x", "int")), batch) == [b"\2", None]
    batch = pa.RecordBatch.from_arrays([pa.array([5, None])], names=["value"])
    assert encoded(b'"long"', batch) == [b"\x0a", None]


def test_no_rows_and_many_bytes():
    """Room is made as it is needed."""
    batch = pa.RecordBatch.from_pydict({"a": pa.array([], pa.string())})
    assert encoded(record(("a", "string")), batch) == []
    batch = pa.RecordBatch.from_pydict({"a": ["x" * 100_000, "y" * 300_000]})
    sizes = [len(one or b"") for one in encoded(record(("a", "string")), batch)]
    assert sizes == [100_003, 300_003]


TEXTS = pa.array([b"a", b"b", b"\xff"]).view(pa.string())


#: Arrays with an item that is no text, each with the row of the item.
BAD_ITEMS = [
    (pa.ListArray.from_arrays([0, 1, 1, 3], TEXTS), 2),
    (pa.ListArray.from_arrays([0, 1, 1, 3], TEXTS).slice(1), 1),
    (
        pa.ListArray.from_arrays(
            [0, 2, 3], pa.ListArray.from_arrays([0, 1, 2, 3], TEXTS)
        ),
        1,
    ),
    (pa.MapArray.from_arrays([0, 0, 2, 3], TEXTS, TEXTS), 2),
    (
        pa.MapArray.from_arrays([0, 2, 3, 3], pa.array(["a", "b", "c"]), TEXTS),
        1,
    ),
    (
        pa.ListArray.from_arrays(
            [0, 2, 3],
            pa.StructArray.from_arrays(
                [TEXTS], ["x"], mask=pa.array([True, False, False])
            ),
        ),
        1,
    ),
]


@pytest.mark.parametrize(("array", "row"), BAD_ITEMS)
def test_rows_of_bad_items(kernel: Any, array: pa.Array, row: int):
    """An error names the row, not the item."""
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    with pytest.raises((UnfitValueError, kernel.UnfitValueError)) as caught:
        encoded(record_text(batch.schema), batch)
    assert caught.value.row == row


@pytest.mark.parametrize("first", [0, 1, 9])
def test_bits_of_many_rows(first: int):
    """Each row has its own, wherever a slice begins."""
    pattern = [(at * at) % 7 < 3 for at in range(80)]
    flags = [None if at % 5 == 3 else one for at, one in enumerate(pattern)]
    array = pa.array(flags, pa.bool_()).slice(first)
    batch = pa.RecordBatch.from_arrays(
        [array, pa.array(pattern).slice(first)], ["a", "b"]
    )
    text = record(("a", ["null", "boolean"]), ("b", "boolean"))
    expected = zip(flags[first:], pattern[first:], strict=True)
    assert [(row["a"], row["b"]) for row in decoded(text, batch)] == list(expected)


def test_a_row_of_many_longs():
    """There is room for each, and for what follows, however little there was."""
    for numbers in ([-(2**63)] * 3000, [0] * 3000, [2**62, 1] * 1500):
        array = pa.array([numbers, numbers[:7]], pa.list_(pa.int64()))
        text = record(("a", {"type": "array", "items": "long"}))
        found = decoded(text, pa.RecordBatch.from_arrays([array], ["a"]))
        assert [row["a"] for row in found] == [numbers, numbers[:7]]


@pytest.mark.parametrize("size", [0, 16, 17, 20])
def test_the_largest_decimals(size: int):
    """Their sign is their first bit, also where they fill their bytes; 0 is for any."""
    numbers = [10**38 - 1, 2**120, 2**120 - 1, 2**119, 2**63, 128, 127, 1, 0]
    decimals = [Decimal(one) for number in numbers for one in (number, -number)]
    array = pa.array(decimals, pa.decimal128(38, 0))
    type_ = {"logicalType": "decimal", "precision": 38, "scale": 0, "type": "bytes"}
    if size:
        type_ |= {"type": "fixed", "name": "F", "size": size}
    found = encoded(record(("a", type_)), pa.RecordBatch.from_arrays([array], ["a"]))
    for value, decimal in zip(found, decimals, strict=True):
        data = value[0 if size else 1 :]
        assert int.from_bytes(data, "big", signed=True) == decimal
        if size:
            assert len(data) == size
        else:
            most = -int(decimal) - 1 if decimal < 0 else int(decimal)
            assert len(data) == value[0] // 2 == most.bit_length() // 8 + 1


def test_fixeds_of_no_bytes():
    """They have no size, as others have."""
    type_ = {"type": "fixed", "name": "F", "size": 0}
    batch = pa.RecordBatch.from_arrays([pa.array([b"", b""])], ["a"])
    assert encoded(record(("a", type_), ("b", "int", 1)), batch) == [b"\2", b"\2"]


def test_the_first_moment():
    """It is the number that stands for none elsewhere; in nanoseconds there is none."""
    for array in (pa.array([-(2**63)], pa.timestamp("us", zone)) for zone in (UTC, "")):
        local = "" if array.type.tz else "local-"
        for unit, fits in (("micros", True), ("nanos", False)):
            type_ = {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
            batch = pa.RecordBatch.from_arrays([array], names=["a"])
            if fits:
                assert encoded(record(("a", type_)), batch) == [b"\xff" * 9 + b"\1"]
                continue
            with pytest.raises(Exception, match="does not fit the type"):
                encoded(record(("a", type_)), batch)


def test_members_of_a_union():
    """The struct that a read makes of a union is none of its types."""
    members = pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    schema = pa.schema([("a", members), ("b", pa.int32())])
    text = record(("a", ["null", "int", "string"]), ("b", "int"))
    with pytest.raises(
        InvalidSchemaError, match="`a` is STRUCT<member0: INT, member1: STRING>, and"
    ):
        AvroEncoder(parse_avro(text), schema)
