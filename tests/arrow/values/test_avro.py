# SPDX-License-Identifier: Apache-2.0
"""AVRO's values as columns, beside what fastavro reads of the same bytes."""

from __future__ import annotations

import copy
import datetime as dt
import io
import json
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.arrow.values import Decoded, ValueSettings, avro_plan, grown
from pulsar_spark.arrow.values.avro import READ_OFFSET, columns_of, decoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.schemas.test_avro import record
from tests.support import kernels
from tests.support.avro_schemas import as_column, later, records, values

DAY = 86_400_000_000


@pytest.fixture(params=kernels.FORMS, scope="module", autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each form of the kernel, in the place of the one that is installed."""
    form = kernels.load(request.param, "avro")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_plan, "avro", form)
        patch.setattr(grown, "avro", form)
        yield form


def info(tree: Any, properties: dict[str, str] | None = None) -> SchemaInfo:
    """A schema as the registry has it."""
    return SchemaInfo(SchemaType.AVRO, json.dumps(tree).encode(), properties or {})


def field(type_: Any, name: str = "f0", **more: Any) -> dict[str, Any]:
    """A record of one field."""
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": type_, **more}],
    }


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    """A logical type."""
    return {
        **(kind if isinstance(kind, dict) else {"type": kind}),
        "logicalType": name,
    } | more


def written(tree: Any, *values: Any) -> pa.BinaryArray:
    """Values in AVRO; None for a null value."""
    schema = fastavro.parse_schema(copy.deepcopy(tree))
    found = []
    for value in values:
        out = io.BytesIO()
        if value is not None:
            fastavro.schemaless_writer(out, schema, value)
        found.append(None if value is None else out.getvalue())
    return pa.array(found, pa.binary())


def decoded(
    writer: Any,
    values: pa.BinaryArray | list[bytes | None],
    reader: Any = None,
    wanted: pa.Schema | None = None,
    properties: dict[str, str] | None = None,
) -> Decoded:
    """The columns of values, which are of the types that were wanted."""
    into = info(writer if reader is None else reader)
    wanted = columns_of(into) if wanted is None else wanted
    plan = decoder(info(writer, properties), into, wanted, ValueSettings())
    if isinstance(values, list):
        values = pa.array(values, pa.binary())
    found = plan.decode(values, None)
    assert [one.type for one in found.columns] == wanted.types
    for one in found.columns:
        assert len(one) == len(values)
        one.validate(full=True)
    return found


def rows(found: Decoded) -> list[tuple[Any, ...]]:
    """Rows of columns."""
    return list(zip(*(one.to_pylist() for one in found.columns), strict=True))


FIVE = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "ok", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def test_a_record():
    """Fields are columns; a null value is NULL in all of them, as is an empty one."""
    first = {"id": -(2**63), "user": "é", "amount": 1.5, "ok": True, "note": None}
    second = {"id": 300, "user": "", "amount": -0.0, "ok": False, "note": "x"}
    values = written(FIVE, first, None, second)
    expected = [tuple(first.values()), (None,) * 5, tuple(second.values())]
    assert rows(decoded(FIVE, values)) == expected
    assert rows(decoded(FIVE, values.slice(1))) == expected[1:]
    assert rows(decoded(FIVE, [*values.to_pylist(), b""])) == [*expected, (None,) * 5]
    assert rows(decoded(FIVE, values.slice(3))) == []


def test_bad_rows():
    """Others keep their values; the reason names the field of the first of them."""
    good = written(FIVE, {"id": 1, "user": "a", "amount": 2, "ok": True}).to_pylist()[0]
    bad = b"\x02\x04\xff\xff"
    found = decoded(FIVE, [good, bad, good, good[:-1], good + b"junk"])
    assert found.bad == [1, 3]
    assert found.reason == "its field `user` has text that is not UTF-8"
    row = (1, "a", 2.0, True, None)
    assert rows(found) == [row, (None,) * 5, row, (None,) * 5, row]


def test_what_is_wanted():
    """Some of the columns, in any order; others are skipped."""
    value = {"id": 7, "user": "u", "amount": 1.0, "ok": True, "note": "n"}
    values = written(FIVE, value)
    wanted = pa.schema([("note", pa.string()), ("id", pa.int64())])
    assert rows(decoded(FIVE, values, wanted=wanted)) == [("n", 7)]
    assert decoded(FIVE, values, wanted=pa.schema([])).columns == []
    with pytest.raises(InvalidSchemaError, match="no field `other`"):
        decoded(FIVE, values, wanted=pa.schema([("other", pa.string())]))


def test_names_that_are_not_unicode():
    """JSON can have them, Arrow cannot."""
    enum = {"type": "enum", "name": "E", "symbols": ["\ud800"]}
    with pytest.raises(InvalidSchemaError, match="not Unicode"):
        decoded(field(enum), [])
    with pytest.raises(InvalidSchemaError, match="not Unicode"):
        columns_of(info(field("int", "\ud800")))


def test_three_versions():
    """Messages of one topic, each read by the version that it was written with."""
    first = record("int", "string")
    second = record("int", "string", ["null", "string"])
    second["fields"][2]["default"] = None
    third = record(["null", "string"], "string", "long", "double")
    for at, name in enumerate(["f2", "f1", "f0", "score"]):
        third["fields"][at]["name"] = name
    third["fields"][0]["default"] = None
    third["fields"][3]["default"] = 1.5
    for writer, value, expected in [
        (first, "0202 61", (None, "a", 1, 1.5)),
        (second, "0402 62 02 02 6d", ("m", "b", 2, 1.5)),
        (third, "00 02 63 06 0000000000000040", (None, "c", 3, 2.0)),
    ]:
        assert rows(decoded(writer, [bytes.fromhex(value)], third)) == [expected]


def test_other_roots():
    """What is no record is one column."""
    tree = {"type": "map", "values": "int"}
    found = decoded(tree, written(tree, {"a": 1, "b": 2}, {}))
    assert rows(found) == [([("a", 1), ("b", 2)],), ([],)]


def test_bytes_of_the_official_client():
    """A record of its Record class, as it writes it."""
    names = ["i", "l", "f", "d", "b", "s", "by", "e", "arr", "m", "sub", "dflt"]
    types: list[Any] = ["int", "long", "float", "double", "boolean", "string", "bytes"]
    types.append({"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]})
    types.append({"type": "array", "items": "int"})
    types.append({"type": "map", "values": "string"})
    inner = {"type": "record", "name": "Sub", "fields": []}
    inner["fields"] = [
        {"name": "x", "type": ["null", "int"]},
        {"name": "y", "type": ["null", "string"]},
    ]
    types.append(inner)
    types.append("string")
    fields = [
        {"name": name, "type": ["null", type_]}
        for name, type_ in zip(names, types, strict=True)
    ]
    tree = {"type": "record", "name": "Example", "fields": fields}
    value = bytes.fromhex(
        "02 02 02 04 02 0000c03f 02 0000000000000440 02 01 02 04c3a9 02 0800616263"
        "02 02 02 04020400 02 02026b027600 02 0202 02027a 02 06686579"
    )
    (row,) = rows(decoded(tree, [value]))
    assert row == (
        *(1, 2, 1.5, 2.5, True, "é", b"\0abc", "GREEN", [1, 2], [("k", "v")]),
        *({"x": 1, "y": "z"}, "hey"),
    )


# -- beside fastavro -------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_same_as_fastavro(data: st.DataObject):
    """Random schemas and values, read as they are and as random later ones.

    What fastavro refuses is bad, and nothing else.
    """
    writer = data.draw(records(), "writer")
    reader = data.draw(later(writer) | st.just(writer), "reader")
    payloads = written(writer, *data.draw(st.lists(values(writer), max_size=4)))
    schemas = [fastavro.parse_schema(copy.deepcopy(one)) for one in (writer, reader)]
    expected, bad = [], []
    for row, payload in enumerate(payloads.to_pylist()):
        try:
            value = fastavro.schemaless_reader(io.BytesIO(payload), *schemas)
            expected.append(tuple(as_column(reader, value).values()))
        except (ValueError, fastavro.read.SchemaResolutionError):
            bad.append(row)
            expected.append((None,) * len(reader["fields"]))
    found = decoded(writer, payloads, reader)
    assert found.bad == bad
    if reader["fields"]:
        assert rows(found) == expected


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged(data: st.DataObject):
    """Whatever the bytes are: what is read is what a prefix of them says, or bad.

    What comes after a damaged value is not touched by it.
    """
    writer = data.draw(records(), "writer")
    reader = data.draw(later(writer) | st.just(writer), "reader")
    good = written(writer, data.draw(values(writer))).to_pylist()[0]
    payload = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload)))
        payload[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3) | st.sampled_from(HOSTILE)
        )
    (expected,) = rows(decoded(writer, [good], reader)) or [()]
    found = decoded(writer, [good, bytes(payload), good, None], reader)
    assert [row for row in found.bad if row != 1] == [
        row for row in (0, 2) if decoded(writer, [good], reader).bad
    ]
    assert bool(found.bad) is bool(found.reason)
    if reader["fields"]:
        first, second, third, last = rows(found)
        assert (first, third, last) == (expected, expected, (None,) * len(first))
        if 1 in found.bad:
            assert second == last


#: A length of any size, a long that is too long, counts above and below zero.
HOSTILE = [
    bytes.fromhex("feffffffffffffffff01"),
    bytes.fromhex("ffffffffffffffffff01"),
    bytes.fromhex("ffffffffffffffffff7f"),
    bytes.fromhex("8080808080808080808080"),
    bytes.fromhex("80808001"),
    bytes.fromhex("ffff7f"),
]


@pytest.mark.parametrize("seed", range(8))
def test_noise(seed: int):
    """Bytes that nobody wrote never raise, and take no memory to speak of."""
    chance = random.Random(seed)
    trees = [
        *("int", "long", "float", "double", "boolean", "string", "bytes", "null"),
        ["null", "string", "int"],
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "map", "values": ["null", "string"]}},
        {"type": "array", "items": {"type": "array", "items": "null"}},
        {"type": "map", "values": {"type": "array", "items": "boolean"}},
        logical("bytes", "decimal", precision=38, scale=3),
    ]
    payloads = [
        b"".join(
            chance.choice([*HOSTILE, chance.randbytes(3), b"\2", b"\0\2"])
            for _ in range(chance.randrange(8))
        )
        for _ in range(200)
    ]
    before = pa.total_allocated_bytes()
    for tree in trees:
        writer = record(tree, "int")
        wanted = pa.schema([("f1", pa.int32())])
        assert len(decoded(writer, payloads, wanted=wanted).columns) == 1
        if tree not in ("null", {"type": "array", "items": "null"}, trees[13]):
            found = decoded(writer, payloads)
            assert sum(one.nbytes for one in found.columns) < 2**20
    assert pa.total_allocated_bytes() - before < 2**24


# -- resolution ------------------------------------------------------------------------


def test_names_of_records_do_not_matter():
    """Neither at the top, nor within, nor in a union; those of enums do."""
    inner = record("int", name="x.In")
    writer = record(inner, ["null", record("string", name="U")], name="a.B")
    other = record("long", name="Other")
    reader = record(other, ["null", record("string", name="V")], name="C")
    values = written(writer, {"f0": {"f0": 3}, "f1": {"f0": "s"}})
    assert rows(decoded(writer, values, reader)) == [({"f0": 3}, {"f0": "s"})]
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    with pytest.raises(InvalidSchemaError, match="`f0` is enum E where it was written"):
        decoded(field(enum), [], field({**enum, "name": "X"}))


@pytest.mark.parametrize(
    ("writer", "number", "reader", "expected"),
    [
        ("timestamp-millis", 1, "timestamp-micros", 1000),
        ("timestamp-micros", -1, "timestamp-millis", -1),
        ("timestamp-nanos", -1, "timestamp-micros", -1),
        ("timestamp-nanos", 1999, "timestamp-micros", 1),
        ("timestamp-millis", 253402300800000, "timestamp-millis", 253402300800000000),
        ("mine", 5, "timestamp-millis", 5000),
        ("mine", 5, "timestamp-micros", 5),
    ],
)
def test_units_are_the_writers(writer: str, number: int, reader: str, expected: int):
    """A change of the unit, which brokers allow, does not move a moment."""
    from_ = field(logical("long", writer))
    into = field(logical("long", reader))
    values = written(field("long"), {"f0": number})
    (column,) = decoded(from_, values, into).columns
    assert column.type == TIMESTAMP
    assert column.cast(pa.int64()).to_pylist() == [expected]


def test_numbers_without_a_unit_stay():
    """A column of numbers has those of the reader's unit, or as they were written."""
    values = written(field("long"), {"f0": 5})
    for writer, reader, expected in [
        ("timestamp-millis", "mine", 5),
        ("local-timestamp-millis", "local-timestamp-micros", 5000),
        ("time-micros", "mine", 5),
    ]:
        found = decoded(
            field(logical("long", writer)), values, field(logical("long", reader))
        )
        assert rows(found) == [(expected,)]
    millis, micros = logical("int", "time-millis"), logical("long", "time-micros")
    assert rows(decoded(field(millis), values, field(micros))) == [(5000,)]
    date, moment = logical("int", "date"), logical("long", "timestamp-millis")
    (column,) = decoded(field(date), values, field(moment)).columns
    assert column.cast(pa.int64()).to_pylist() == [5 * DAY]
    with pytest.raises(InvalidSchemaError, match="which is no timestamp-m"):
        decoded(field(millis), values, field(moment))


def test_moments_that_no_column_holds():
    """More micros than 64 bits have."""
    most = 2**63 // 1000
    numbers = [most, most + 1, -most, -(2**63)]
    found = decoded(
        field(logical("long", "timestamp-millis")),
        written(field("long"), *[{"f0": n} for n in numbers]),
    )
    assert found.bad == [1, 3]
    assert found.reason == "its field `f0` has a number that its column cannot hold"
    (column,) = found.columns
    assert column.cast(pa.int64()).to_pylist() == [
        most * 1000,
        None,
        -most * 1000,
        None,
    ]


def decimal(precision: int, scale: int, size: int = 0) -> Any:
    """A decimal of bytes, or of a fixed."""
    kind: Any = {"type": "fixed", "name": "D", "size": size} if size else "bytes"
    return logical(kind, "decimal", precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("writer", "data", "reader", "expected"),
    [
        (decimal(10, 2), "04 fb2e", decimal(10, 2), "-12.34"),
        (decimal(10, 2), "0a 00000004d2", decimal(10, 2), "12.34"),
        (decimal(10, 2, 5), "ffffffff85", decimal(10, 2, 5), "-1.23"),
        (decimal(10, 2), "02 05", decimal(10, 4), "0.0500"),
        (decimal(10, 4), "04 01f4", decimal(10, 2), "0.05"),
        (decimal(10, 4), "04 01f5", decimal(10, 2), None),
        (decimal(10, 2), "02 7f", decimal(2, 2), None),
        (decimal(10, 2), "02 63", decimal(2, 2), "0.99"),
        (decimal(10, 2), "02 9c", decimal(2, 2), None),
        (decimal(10, 2), "02 9d", decimal(2, 2), "-0.99"),
        ("bytes", "02 05", decimal(10, 3), "0.005"),
        (decimal(10, 2), "00", decimal(10, 2), None),
        (decimal(19, 0), "10 7fffffffffffffff", decimal(19, 0), str(2**63 - 1)),
        (decimal(19, 0), "10 8000000000000000", decimal(19, 0), str(-(2**63))),
        (decimal(18, 0), "10 8000000000000000", decimal(18, 0), None),
        (decimal(38, 0), "12 00ffffffffffffffff", decimal(38, 0), str(2**64 - 1)),
        (decimal(38, 0), "12 ff0000000000000000", decimal(38, 0), str(-(2**64))),
        (decimal(38, 0), "20 7f" + "ff" * 15, decimal(38, 0), None),
        (decimal(38, 0), "40" + "ff" * 32, decimal(38, 0), "-1"),
    ],
)
def test_decimals(writer: Any, data: str, reader: Any, expected: str | None):
    """Two's complement, big endian; digits that the column has not make a bad row."""
    found = decoded(field(writer), [bytes.fromhex(data)], field(reader))
    assert found.bad == ([0] if expected is None else [])
    value = None if expected is None else Decimal(expected)
    assert rows(found) == [(value,)]


def test_decimals_are_bytes_where_the_reader_says_so():
    """And one that does not fit its fixed is no decimal, as in Java."""
    value = [bytes.fromhex("04 fb2e")]
    assert rows(decoded(field(decimal(10, 2)), value, field("bytes"))) == [(b"\xfb.",)]
    small = field(decimal(10, 2, 1))
    assert rows(decoded(small, [b"\x05"])) == [(b"\x05",)]
    with pytest.raises(InvalidSchemaError, match="decimal of 50 digits"):
        columns_of(info(field(decimal(50, 2))))


def test_null_in_a_column_that_was_nullable():
    """At the top it is NULL; deeper, where a column says that it never is, bad."""
    old, new = field(["null", "long"]), field("long")
    payloads = written(old, {"f0": None}, {"f0": 1})
    assert rows(decoded(old, payloads, new)) == [(None,), (1,)]
    old["name"] = new["name"] = "Inner"
    old, new = field(old), field(new)
    payloads = written(old, {"f0": {"f0": None}}, {"f0": {"f0": 1}})
    found = decoded(old, payloads, new)
    assert found.bad == [0]
    assert found.reason == (
        "its field `f0` has a value that the schema of the query does not allow"
    )
    assert rows(found) == [(None,), ({"f0": 1},)]


def test_values_of_a_union_one_by_one():
    """What of it can be read is; the rest is bad."""
    old, new = field(["null", "string", "int"]), field(["null", "long"])
    payloads = written(old, {"f0": None}, {"f0": "a"}, {"f0": 7})
    found = decoded(old, payloads, new)
    assert (found.bad, rows(found)) == ([1], [(None,), (None,), (7,)])
    with pytest.raises(InvalidSchemaError, match="`f0` is string where it was written"):
        decoded(field(["string"]), [], new)


def test_unions():
    """A member for each branch but null; two kinds of numbers are the wider one."""
    old = field(["null", "string", "int"])
    payloads = written(old, {"f0": None}, {"f0": "a"}, {"f0": 7})
    members = [{"member0": "a", "member1": None}, {"member0": None, "member1": 7}]
    assert rows(decoded(old, payloads)) == [(None,), *((one,) for one in members)]
    turned = field(["int", "string", "null"])
    members = [{"member0": None, "member1": "a"}, {"member0": 7, "member1": None}]
    assert rows(decoded(old, payloads, turned)) == [(None,), *((m,) for m in members)]
    wanted = pa.schema([("f0", pa.struct([("member1", pa.int32())]))])
    only = [(None,), ({"member1": None},), ({"member1": 7},)]
    assert rows(decoded(old, payloads, wanted=wanted)) == only
    wide = field(["int", "null", "long"])
    payloads = pa.array([b"\0\x0e", b"\x02", b"\4\x0e"], pa.binary())
    assert rows(decoded(wide, payloads)) == [(7,), (None,), (7,)]
    floats = field(["float", "double"])
    payloads = written(floats, {"f0": 1.5})
    assert rows(decoded(floats, payloads)) == [(1.5,)]
    assert rows(decoded(field("int"), [b"\x0e"], floats)) == [(7.0,)]


def test_what_a_union_has_not():
    """A branch above the last one, or below the first one."""
    for data in (b"\4", b"\1", bytes.fromhex("8010"), b"\x80"):
        found = decoded(field(["null", "int"]), [data])
        assert found.bad == [0]
    found = decoded(field(["null", "int"]), [b"\4"])
    assert "a union or an enum with a number that its schema does not" in found.reason


def test_enums():
    """By their symbols; one that the reader does not know is its default, or bad."""
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    values = [b"\0", b"\2", b"\4", b"\6", b"\1"]
    found = decoded(field(enum), values)
    assert (found.bad, rows(found)[:3]) == ([3, 4], [("A",), ("B",), ("C",)])
    later = {**enum, "symbols": ["Z", "C", "A"]}
    found = decoded(field(enum), values[:3], field(later))
    assert (found.bad, rows(found)) == ([1], [("A",), (None,), ("C",)])
    found = decoded(field(enum), values[:3], field({**later, "default": "Z"}))
    assert rows(found) == [("A",), ("Z",), ("C",)]


def test_fields_that_were_not_there():
    """Their default, or NULL; an alias finds the field under its old name."""
    old = field("int")
    for type_, default, expected in [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00fe", b"\xfe"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "map", "values": "string"}, {"k": "v"}, [("k", "v")]),
        (field("int", default=5), {}, {"f0": 5}),
        (logical("long", "timestamp-millis"), 1, TIMESTAMP),
        (decimal(4, 2), "\u0001\u0000", Decimal("2.56")),
        (["null", "int"], None, None),
        (["int", "null"], 3, 3),
        (["null", "int"], 3, 3),
    ]:
        new = record("int", type_)
        new["fields"][1]["default"] = default
        if type_ == field("int", default=5):
            type_["name"] = "Inner"
        if expected is TIMESTAMP:
            expected = dt.datetime.fromtimestamp(0.001, dt.timezone.utc)
        found = decoded(old, [b"\x0e", None, b"\x10"], new)
        assert rows(found) == [(7, expected), (None, None), (8, expected)]
    assert rows(decoded(old, [b"\x0e"], field("int", "g"))) == [(None,)]
    assert rows(decoded(old, [b"\x0e"], field("long", "g", aliases=["f0"]))) == [(7,)]
    assert rows(decoded(old, [b"\x0e"], field("int", "F0"))) == [(None,)]


def test_fields_that_were_not_there_deeper():
    """Without a default and never NULL there is nothing to put there."""
    old, new = field(record("int", name="I")), field(record("int", "int", name="I"))
    with pytest.raises(InvalidSchemaError, match=r"`f0\.f1` is not there where it was"):
        decoded(old, [], new)
    new = field(record("int", ["null", "int"], name="I"))
    assert rows(decoded(old, [b"\2"], new)) == [({"f0": 1, "f1": None},)]
    array = {"type": "array", "items": old}
    assert rows(decoded(array, [b"\2\2\0"], {**array, "items": new}))[0] == (
        [{"f0": {"f0": 1, "f1": None}}],
    )


def test_defaults_that_no_column_holds():
    """Only rows that need one are bad; the reason names its field."""
    moment = logical("long", "timestamp-millis")
    new = record("int", moment)
    new["fields"][1]["default"] = 2**62
    found = decoded(field("int"), [b"\x0e", None, b"\x10"], new)
    assert found.bad == [0, 2]
    assert found.reason == "its field `f1` has a number that its column cannot hold"
    assert rows(found) == [(None, None)] * 3
    wanted = columns_of(info(field("int")))
    assert rows(decoded(field("int"), [b"\x0e"], new, wanted)) == [(7,)]


def test_defaults_of_another_type():
    """Brokers accept them; they are wrong only where one is needed."""
    tree = field("int", default="xx")
    assert rows(decoded(tree, [b"\2"])) == [(1,)]
    with pytest.raises(
        InvalidSchemaError, match='the default of `f0`, "xx", is no int'
    ):
        decoded(record(), [], tree)
    wanted = pa.schema([])
    assert decoded(record(), [b""], tree, wanted).columns == []


def test_what_cannot_be_read():
    """The error names the field, and both types."""
    array = {"type": "array", "items": "int"}
    for old, new in [
        ("int", "string"),
        ("long", "int"),
        ("double", "float"),
        (array, "int"),
        (array, {"type": "map", "values": "int"}),
        (array, {"type": "array", "items": "string"}),
        (record("int", name="I"), "string"),
        ("string", record("int", name="I")),
        ("int", ["null", "string", "boolean"]),
    ]:
        with pytest.raises(
            InvalidSchemaError, match=r"`f0(\[\])?` is .* cannot be read"
        ):
            decoded(field(old), [], field(new))
    with pytest.raises(InvalidSchemaError, match="`value` is int where it was written"):
        decoded("int", [], field("int"))


# -- what a user wants -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "type_", "number", "expected"),
    [
        ("int", pa.int64(), 5, 5),
        ("int", pa.float64(), 5, 5.0),
        ("int", pa.int8(), -128, -128),
        ("int", pa.int8(), 128, None),
        ("int", pa.int16(), 2**15 - 1, 2**15 - 1),
        ("int", pa.int16(), -(2**15) - 1, None),
        ("float", pa.float64(), 1.5, 1.5),
        (decimal(4, 2), pa.decimal128(9, 2), Decimal("1.25"), Decimal("1.25")),
        ("string", pa.large_string(), "é", "é"),
        ("bytes", pa.large_binary(), b"\xff", b"\xff"),
        (
            logical("long", "local-timestamp-millis"),
            pa.timestamp("us"),
            dt.datetime(2024, 2, 29, 12, 34, 56, 123000),
            dt.datetime(2024, 2, 29, 12, 34, 56, 123000),
        ),
        (
            logical("long", "local-timestamp-micros"),
            pa.timestamp("us"),
            dt.datetime(1969, 12, 31, 23, 59, 59, 123456),
            dt.datetime(1969, 12, 31, 23, 59, 59, 123456),
        ),
        (
            logical("int", "time-millis"),
            pa.time64("us"),
            dt.time(12, 34, 56, 123000),
            dt.time(12, 34, 56, 123000),
        ),
        (
            logical("long", "time-micros"),
            pa.time64("ns"),
            dt.time(12, 34, 56, 123456),
            dt.time(12, 34, 56, 123456),
        ),
    ],
)
def test_other_types_of_columns(
    tree: Any, type_: pa.DataType, number: Any, expected: Any
):
    """Wider ones, narrower ones of ints, those without a zone, times of the day."""
    tree = field(["null", tree])
    wanted = pa.schema([("f0", type_)])
    found = decoded(tree, written(tree, {"f0": number}, {"f0": None}), wanted=wanted)
    assert rows(found) == [(expected,), (None,)]
    assert found.bad == ([0] if expected is None else [])


def test_times_beyond_a_day():
    """There is no such time."""
    tree = field(logical("long", "time-micros"))
    wanted = pa.schema([("f0", pa.time64("us"))])
    payloads = written(field("long"), *[{"f0": n} for n in (DAY - 1, DAY, -1, 0)])
    assert decoded(tree, payloads, wanted=wanted).bad == [1, 2]


def test_dates_beyond_pythons():
    """A date has 32 bits."""
    tree = field(logical("int", "date"))
    (column,) = decoded(tree, written(field("int"), {"f0": 7_000_000})).columns
    assert column.cast(pa.int32()).to_pylist() == [7_000_000]


@pytest.mark.parametrize(
    ("tree", "type_"),
    [
        ("long", pa.int32()),
        ("long", pa.float64()),
        ("double", pa.float32()),
        ("long", TIMESTAMP),
        (logical("long", "timestamp-micros"), pa.timestamp("us")),
        (logical("long", "local-timestamp-micros"), TIMESTAMP),
        (logical("long", "timestamp-micros"), pa.timestamp("ms", tz="UTC")),
        (logical("int", "date"), TIMESTAMP),
        ("int", pa.date32()),
        ("int", pa.time64("us")),
        ("int", pa.string()),
        ("string", pa.binary()),
        ("bytes", pa.string()),
        ("bytes", pa.decimal128(4, 2)),
        (decimal(4, 2), pa.decimal128(9, 3)),
        (decimal(4, 2), pa.decimal128(3, 2)),
        ("boolean", pa.int32()),
        (["null", "string"], pa.int64()),
        (["null", "string", "int"], pa.string()),
        (["int", "long"], pa.int32()),
        ({"type": "array", "items": "int"}, pa.int32()),
        ({"type": "array", "items": "int"}, pa.list_(pa.string())),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32())),
        ({"type": "map", "values": "int"}, pa.list_(pa.int32())),
        (record("int", name="I"), pa.int32()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.int32()),
    ],
)
def test_types_that_cannot_be_wanted(tree: Any, type_: pa.DataType):
    """Planning says so, whatever is written."""
    said = r"`f0(\[\])?` is .*, of which there is no column of the type"
    with pytest.raises(InvalidSchemaError, match=said):
        decoded(field(tree), [], wanted=pa.schema([("f0", type_)]))


def test_what_is_not_there_cannot_be_wanted():
    """Fields within fields, and branches that a union does not have."""
    inner = field(record("int", name="I"))
    wanted = pa.schema([("f0", pa.struct([("x", pa.int32())]))])
    with pytest.raises(InvalidSchemaError, match=r"it has no field `f0\.x`"):
        decoded(inner, [], wanted=wanted)
    wanted = pa.schema([("f0", pa.struct([("member2", pa.int32())]))])
    with pytest.raises(InvalidSchemaError, match=r"`f0\.member2` is not one of"):
        decoded(field(["string", "int"]), [], wanted=wanted)
    with pytest.raises(InvalidSchemaError, match="its only column is `value`"):
        decoded("int", [], wanted=pa.schema([("x", pa.int32())]))


def test_parts_of_structs():
    """In structs, in lists and in maps."""
    inner = record("int", "string", ["null", "long"], name="I")
    tree = record({"type": "array", "items": inner}, {"type": "map", "values": "I"})
    value = {"f0": 1, "f1": "a", "f2": 2}
    payloads = written(tree, {"f0": [value, {**value, "f2": None}], "f1": {"k": value}})
    part = pa.struct([("f2", pa.int64()), pa.field("f0", pa.int32(), nullable=False)])
    part = pa.struct([pa.field("f2", pa.int64()), pa.field("f0", pa.int64(), False)])
    wanted = pa.schema(
        [
            ("f1", pa.map_(pa.string(), pa.field("value", part, nullable=False))),
            ("f0", pa.list_(pa.field("element", part, nullable=False))),
        ]
    )
    part_of_value = {"f2": 2, "f0": 1}
    assert rows(decoded(tree, payloads, wanted=wanted)) == [
        ([("k", part_of_value)], [part_of_value, {"f2": None, "f0": 1}])
    ]


# -- values ----------------------------------------------------------------------------


def test_debezium():
    """A type that is used again by its name; a tombstone; bytes before each value."""
    row = record("int", "string", ["null", "double"], name="Value")
    tree = {"type": "record", "name": "Envelope", "namespace": "db", "fields": []}
    tree["fields"] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    after = {"f0": 101, "f1": "a", "f2": 1.5}
    value = {"before": None, "after": after, "op": "c", "ts_ms": 5}
    (payload,) = written(tree, value).to_pylist()
    payloads = [bytes(5) + payload, None, bytes(4), b""]
    found = decoded(tree, payloads, properties={READ_OFFSET: "5"})
    nothing = (None,) * 4
    assert rows(found) == [(None, after, "c", 5), nothing, nothing, nothing]
    assert (found.bad, found.reason) == ([2], "it ends too early")
    for odd in ("x", "-1"):
        with pytest.raises(InvalidSchemaError):
            decoded(tree, payloads, properties={READ_OFFSET: odd})


def test_columns_that_are_never_null():
    """Rows without a value do not make them so."""
    inner = record(
        *("int", "string", decimal(4, 2), "double", "boolean"),
        {"type": "array", "items": "int"},
        record("long", name="J"),
        name="I",
    )
    tree = field(["null", inner])
    found = decoded(tree, [b"\0", None, b"\2\2"])
    assert found.bad == [2]
    (column,) = found.columns
    assert column.to_pylist() == [None] * 3
    children = [column.field(at) for at in range(column.type.num_fields)]
    assert [child.null_count for child in children] == [0] * 7
    assert children[6].field(0).null_count == 0


def test_empty_values():
    """NULL, but where the schema is of values that have no bytes."""
    empty = {"type": "record", "name": "E", "fields": []}
    later = field("int", default=7)
    assert rows(decoded(empty, [b"", None, b"x"], later)) == [(7,), (None,), (7,)]
    for tree in ("int", "string", {"type": "array", "items": "int"}, field("int")):
        found = decoded(tree, [b""])
        assert (found.bad, rows(found)) == ([], [(None,)])


def test_numbers_of_too_many_bytes():
    """An int has five at most, a long ten and 64 bits."""
    cases = [
        ("int", "ffffffff0f", -(2**31)),
        ("int", "feffffff0f", 2**31 - 1),
        ("int", "8080808010", None),
        ("int", "808080808000", None),
        ("int", "8080808000", 0),
        ("long", "feffffffffffffffff01", 2**63 - 1),
        ("long", "ffffffffffffffffff01", -(2**63)),
        ("long", "80808080808080808002", None),
        ("long", "8080808080808080808000", None),
        ("long", "80808080808080808000", 0),
        ("long", "80", None),
        ("double", "", None),
    ]
    for kind, data, expected in cases:
        found = decoded(field(kind), [bytes.fromhex(data)])
        is_bad = expected is None and data != ""
        assert (found.bad, rows(found)) == ([0] * is_bad, [(expected,)]), (kind, data)
        into = field("double")
        found = decoded(field(kind), [bytes.fromhex(data)], into)
        number = None if expected is None else float(expected)
        assert (found.bad, rows(found)) == ([0] * is_bad, [(number,)]), (kind, data)
        skipped = {"type": "record", "name": "R", "fields": []}
        found = decoded(field(kind), [bytes.fromhex(data)], skipped)
        assert len(found.columns) == 0


def test_booleans_and_floats():
    """0 and 1; all that floats can be."""
    found = decoded(field("boolean"), [b"\0", b"\1", b"\2", b"\xff"])
    assert (found.bad, rows(found)[:2]) == ([2, 3], [(False,), (True,)])
    tree = record("float", "double")
    odd = [math.inf, -math.inf, -0.0, 5e-324]
    found = decoded(tree, written(tree, *[{"f0": n, "f1": n} for n in odd]))
    assert rows(found) == [(n if n != 5e-324 else 0.0, n) for n in odd]
    assert math.copysign(1, rows(found)[2][0]) == -1
    (row,) = rows(decoded(tree, written(tree, {"f0": math.nan, "f1": math.nan})))
    assert [*map(math.isnan, row)] == [True, True]


@pytest.mark.parametrize(
    "text",
    [
        *("80", "bf", "c0af", "c180", "c2", "c220", "e080af", "e09f80", "e0a0"),
        *("eda080", "edbfbf", "e18080c0", "f0808080", "f08fbfbf", "f48fbf"),
        *("f4908080", "f5808080", "f09f98", "ff", "c3c3", "61" * 9 + "80", "e0a020"),
        *("f0908020", "f0902080"),
    ],
)
def test_text_that_is_none(text: str):
    """Wherever in the text it stands; bytes may be what they like."""
    for data in (bytes.fromhex(text), b"12345678" + bytes.fromhex(text) + b"1234"):
        with pytest.raises(UnicodeDecodeError):
            data.decode()
        payload = bytes([2 * len(data)]) + data
        found = decoded(field("string"), [payload])
        assert (found.bad, rows(found)) == ([0], [(None,)])
        assert decoded(field("bytes"), [payload], field("string")).bad == [0]
        assert rows(decoded(field("bytes"), [payload])) == [(data,)]
        assert rows(decoded(field("string"), [payload], field("bytes"))) == [(data,)]


def test_text():
    """The first and the last of each length."""
    marks = "\0\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
    tree = field("string")
    texts = [marks, "12345678" + marks, *marks, ""]
    found = decoded(tree, written(tree, *[{"f0": one} for one in texts]))
    assert rows(found) == [(one,) for one in texts]


def test_a_key_that_comes_twice():
    """It has the last of its values, at its first place; in any row, of any length."""
    tree = field({"type": "map", "values": ["null", "int"]})
    keys = [f"{n}" for n in range(20)]
    pair = {key: f"{2 * len(key):02x}{key.encode().hex()}0202" for key in keys}
    values = [
        bytes.fromhex("06 0261 02 02  0262 00  0261 02 04  00"),
        bytes.fromhex("02 0261 02 06  02 0261 02 08  00"),
        bytes.fromhex("04 0261 02 02  0262 02 02  00"),
        bytes.fromhex("28" + "".join(pair.values()) + "02" + pair["7"] + "00"),
        bytes.fromhex("04 026102 00 0261"),
        bytes.fromhex("04 00 00 00 02 02 00"),
    ]
    found = decoded(tree, values)
    assert found.bad == [4]
    assert rows(found) == [
        ([("a", 2), ("b", None)],),
        ([("a", 4)],),
        ([("a", 1), ("b", 1)],),
        ([(key, 1) for key in keys],),
        (None,),
        ([("", 1)],),
    ]


def test_arrays_in_blocks():
    """Any number of blocks, with and without their size; wrong sizes are skipped by."""
    tree = record({"type": "array", "items": "int"}, "int")
    for data, expected in [
        ("04 02 04 02 06 00 10", [1, 2, 3]),
        ("03 04 02 04 00 10", [1, 2]),
        ("00 10", []),
        ("03 05 02 04 00 10", None),
        ("03 02 04 00 10", None),
        ("04 02 00", None),
        ("80", None),
        ("03", None),
        ("01 80", None),
        ("06 02 04", None),
        ("feffffffffffffffff01 02", None),
        ("ffffffffffffffffff01 02 02", None),
    ]:
        found = decoded(tree, [bytes.fromhex(data)])
        assert rows(found)[0][0] == expected, data
        assert bool(found.bad) is (expected is None)


def test_arrays_that_are_skipped():
    """At once where their size is given, item by item otherwise."""
    for items in ("int", ["null", "string"], "null", record("int", name="I")):
        tree = record({"type": "array", "items": items}, "int")
        wanted = pa.schema([("f1", pa.int32())])
        assert rows(decoded(tree, [b"\3\6\1\1\1\0\x10"], wanted=wanted)) == [(8,)]
        assert decoded(tree, [b"\3\x60\1\1\1\0\x10"], wanted=wanted).bad == [0]
        assert decoded(tree, [b"\3\5\1\1\1\0\x10"], wanted=wanted).bad == [0]
    tree = record({"type": "map", "values": "long"}, "int")
    payloads = written(tree, {"f0": {"a": 1, "b": 300}, "f1": 8})
    assert rows(decoded(tree, payloads, wanted=wanted)) == [(8,)]


def test_arrays_of_nothing():
    """A few, as many as there are bytes for, also where they are skipped."""
    nothing = record(name="N")
    tree = record(
        {"type": "array", "items": {"type": "array", "items": nothing}}, "int"
    )
    wanted = pa.schema([("f1", pa.int32())])
    few = bytes.fromhex("02 04 00 00 10")
    assert rows(decoded(tree, [few])) == [([[{}, {}]], 8)]
    assert rows(decoded(tree, [few], wanted=wanted)) == [(8,)]
    for many in ("02 80808001 00 00 10", "02" + "80080000" * 9 + "00 10"):
        for columns in (None, wanted):
            found = decoded(tree, [bytes.fromhex(many)], wanted=columns)
            assert found.bad == [0]
    assert found.reason == "its field `f0` has far more items than bytes"


@pytest.mark.parametrize("count", [17, 100, 1000])
def test_long_arrays_of_wide_items(count: int):
    """Short values are as good as JSON's, whatever columns their items have."""
    new = record("int", *[["null", "long"]] * 100, "string", name="New")
    for one in new["fields"][1:-1]:
        one["default"] = None
    new["fields"][-1]["default"] = "x" * 300
    tree = record({"type": "array", "items": ["null", new]})
    nulls = {"f0": [None] * count}
    found = decoded(tree, written(tree, nulls))
    assert rows(found) == [([None] * count,)]
    old = record({"type": "array", "items": ["null", record("int", name="New")]})
    found = decoded(old, written(old, {"f0": [{"f0": 1}] * count}), tree)
    (items,) = rows(found)[0]
    assert [(one["f0"], one["f1"], one["f101"]) for one in items] == [
        (1, None, "x" * 300)
    ] * count


def test_empty_payloads_where_all_is_skipped():
    """They are NULL, as with any other columns, and no bad rows."""
    inner = record("int", name="Inner")
    old, new = record(record(inner, name="B")), record(record(inner, "int", name="B"))
    new["fields"][0]["type"]["fields"][1]["default"] = 7
    wanted = pa.schema([("f0", pa.struct([("f1", pa.int32())]))])
    found = decoded(old, [b"", b"\2"], new, wanted=wanted)
    assert (rows(found), list(found.bad)) == ([(None,), ({"f1": 7},)], [])


def test_a_decimal_of_more_digits_than_a_column_has():
    """`.schema(...)` reads the unscaled number as it stands; the error says so."""
    tree = record("int", logical("bytes", "decimal", precision=50, scale=2))
    with pytest.raises(InvalidSchemaError, match="reads such a field as BINARY"):
        columns_of(info(tree))
    number = (-(10**45)).to_bytes(20, "big", signed=True)
    wanted = pa.schema([("f1", pa.binary()), ("f0", pa.int32())])
    found = decoded(tree, [b"\2" + bytes([2 * len(number)]) + number], wanted=wanted)
    assert rows(found) == [(number, 1)]


def test_a_record_that_is_a_part_of_itself():
    """It has no column, but is skipped beside others; without an end it is bad."""
    node = record("int", ["null", "Node"], name="Node")
    tree = record(node, "int", name="Top")
    with pytest.raises(InvalidSchemaError, match="part of itself"):
        columns_of(info(tree))
    wanted = pa.schema([("f1", pa.int32())])
    flat = pa.schema([("f0", pa.struct([("f0", pa.int32())]))])
    deep = pa.schema(
        [("f0", pa.struct([("f0", pa.int32()), ("f1", flat.field("f0").type)]))]
    )
    value = b"\2\2\4\2\6\0\x10"
    into = pa.schema([("f1", pa.int32())])
    assert rows(decoded(tree, [value], wanted=into)) == [(8,)]
    assert rows(decoded(tree, [value], wanted=flat)) == [({"f0": 1},)]
    two = {"f0": 1, "f1": {"f0": 2}}  # the third is left out
    assert rows(decoded(tree, [value], wanted=deep)) == [(two,)]
    endless = b"\2\2" * 5000
    for columns in (wanted, flat):
        found = decoded(tree, [endless + b"\2\0\x10", value], wanted=columns)
        assert found.bad == [0]
    assert found.reason == "its field `f0` is nested too deeply"
    forever = record(record("Node", name="Node"), "int", name="Top")
    assert decoded(forever, [b"\x10"], wanted=wanted).bad == [0]


def test_records_of_nothing_within_each_other():
    """Skipped at once, however many a short text makes of them."""
    tree: Any = "null"
    for level in range(30):
        again = f"N{level - 1}" if level else "null"
        tree = record(tree, again, name=f"N{level}")
    wanted = pa.schema([("f1", pa.int32())])
    top = record(tree, "int", name="Top")
    assert rows(decoded(top, [b"\x10"], wanted=wanted)) == [(8,)]


def test_bad_rows_leave_nothing():
    """Whatever they had filled before they went wrong, at all depths."""
    inner = record("string", ["null", "int"], name="I")
    tree = record(
        {"type": "array", "items": ["null", inner]},
        {"type": "map", "values": {"type": "array", "items": "I"}},
        ["null", "I", "string"],
        {"type": "array", "items": {"type": "array", "items": "boolean"}},
        decimal(9, 0),
    )
    value = {
        "f0": [{"f0": "ab", "f1": None}, None, {"f0": "", "f1": 3}],
        "f1": {"k": [{"f0": "cd", "f1": 1}], "": []},
        "f2": {"f0": "x", "f1": None},
        "f3": [[], [True, False]],
        "f4": Decimal(7),
    }
    (good,) = written(tree, value).to_pylist()
    (expected,) = rows(decoded(tree, [good]))
    assert expected[0] == value["f0"]
    payloads = []
    for size in range(1, len(good)):
        payloads += [good[:size], good]
    found = decoded(tree, payloads)
    assert found.bad == [*range(0, len(payloads), 2)]
    assert rows(found) == [(None,) * 5, expected] * (len(good) - 1)


def test_many_rows():
    """Columns grow; what was made before stays as it is."""
    tree = record("long", ["null", "string"], {"type": "array", "items": "int"})
    plan = decoder(info(tree), info(tree), columns_of(info(tree)), ValueSettings())
    values = [
        {"f0": n, "f1": None if n % 3 else "x" * n, "f2": [*range(n % 5)]}
        for n in range(500)
    ]
    payloads = written(tree, *values)
    first = plan.decode(payloads, None)
    second = plan.decode(payloads.slice(100, 7), None)
    assert rows(first) == [tuple(one.values()) for one in values]
    assert rows(second) == rows(first)[100:107]


def test_scales_of_billions():
    """Brokers take them for compatible; a power of ten so large is not computed."""
    one = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    many = {**one, "precision": 2**31 - 1, "scale": 2**31 - 1}
    with pytest.raises(InvalidSchemaError, match=r"`f0` has 2,147,483,647 digits"):
        decoded(field(many), [], field(one))


def test_fixeds_of_no_bytes_within_each_other():
    """Skipped at once, like records of nothing."""
    tree: Any = {"type": "fixed", "name": "F", "size": 0}
    for level in range(30):
        again = f"N{level - 1}" if level else "F"
        tree = record(tree, again, name=f"N{level}")
    wanted = pa.schema([("f1", pa.int32())])
    top = record(tree, "int", name="Top")
    assert rows(decoded(top, [b"\x10"], wanted=wanted)) == [(8,)]


def bad_reasons(tree: Any, *values: str, **more: Any) -> list[str]:
    """What is wrong with each of these values; "" for nothing."""
    found = []
    for value in values:
        data = bytes.fromhex(value)
        # What follows it belongs to another value, and would be taken for more of it.
        result = decoded(tree, [data, b"\0" * 20], **more)
        found.append(result.reason if 0 in result.bad else "")
    return found


FIXED = {"type": "fixed", "name": "F", "size": 3}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
LOCAL = logical("long", "timestamp-millis")
CUT: list[tuple[Any, str]] = [
    ("boolean", "01"),
    ("int", "ac02"),
    ("long", "ac02"),
    (LOCAL, "ac02"),
    ("float", "0000803f"),
    ("double", "000000000000f03f"),
    ("bytes", "046162"),
    ("string", "046162"),
    (FIXED, "616263"),
    (ENUM, "02"),
    ({"type": "array", "items": "int"}, "02ac0200"),
    ({"type": "array", "items": "int"}, "0104ac0200"),
    ({"type": "map", "values": "boolean"}, "0202610100"),
    (["null", "int"], "02ac02"),
    (logical("bytes", "decimal", precision=4, scale=2), "04012c"),
    (logical(FIXED, "decimal", precision=4, scale=2), "00012c"),
    (record("int", "boolean", name="S"), "ac0201"),
]


@pytest.mark.parametrize(("type_", "value"), CUT)
def test_values_that_are_cut(type_: Any, value: str):
    """They do not go on in the next one, read or skipped, nor in another type."""
    cuts = [value[:at] for at in range(0, len(value), 2)]
    ends = ["its field `f1` ends too early"] * len(cuts)
    tree = record("int", type_, "int")
    rest = pa.schema([("f2", pa.int32())])
    for wanted in (None, rest):
        found = bad_reasons(tree, *[f"02{one}" for one in cuts], wanted=wanted)
        assert found == ends
        whole = decoded(tree, [bytes.fromhex(f"02{value}0a")], wanted=wanted)
        assert whole.columns[-1].to_pylist() == [5]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("float", "double", "0000803f", 1.0),
        ("int", "double", "ac02", 150.0),
        ("long", "float", "ac02", 150.0),
        ("int", "long", "ac02", 150),
    ],
)
def test_where_wider_numbers_end(writer: str, reader: str, value: str, expected: Any):
    """What follows is read from there; the number itself may not be cut."""
    old, new = record(writer, "int"), record(reader, "int")
    data = bytes.fromhex(value)
    assert rows(decoded(old, [data + b"\x0a"], new)) == [(expected, 5)]
    for at in range(len(data)):
        assert decoded(old, [data[:at], data], new).reason.endswith("ends too early")


@pytest.mark.parametrize("type_", ["bytes", "string", {"type": "map", "values": "int"}])
@pytest.mark.parametrize("size", ["01", "ffffffff0f", "ffffffffffffffffff01"])
def test_sizes_below_zero(type_: Any, size: str):
    """They are named, and are not taken for others."""
    start = "02" if isinstance(type_, dict) else ""
    tree = record(type_, "int")
    for wanted in (None, pa.schema([("f1", pa.int32())])):
        (said,) = bad_reasons(tree, f"{start}{size}616161616161", wanted=wanted)
        assert said == "its field `f0` has a length below zero"


def test_blocks_that_lie():
    """The size of a skipped block may end with the value, and not behind."""
    tree = record({"type": "array", "items": "int"}, "int")
    wanted = pa.schema([("f1", pa.int32())])
    said = bad_reasons(tree, "0104ac020002", "0106ac0200", "0108ac0200", wanted=wanted)
    early = "its field `f1` ends too early"
    assert said == ["", early.replace("f1", "f0"), early.replace("f1", "f0")]
    assert bad_reasons(tree, "0101ac020002", wanted=wanted) == [
        "its field `f0` has a length below zero"
    ]


def test_numbers_that_do_not_end():
    """More than ten bytes are too many, fewer end too early."""
    long, early = "has a number of more bytes than it may have", "ends too early"
    said = bad_reasons(field("long"), "ff" * 9, "ff" * 10, "ff" * 11, "ff" * 9 + "02")
    assert said == [f"its field `f0` {one}" for one in (early, long, long, long)]


def test_many_branches():
    """The number of one may take two bytes."""
    enums = [{"type": "enum", "name": f"E{at}", "symbols": ["A"]} for at in range(70)]
    tree = record(enums, "int")
    found = decoded(tree, [b"\x7e\0\2", b"\x80\1\0\4", b"\x8a\1\0\6", b"\x8c\1\0\6"])
    assert found.bad == [3]
    members, numbers = (column.to_pylist()[:3] for column in found.columns)
    assert numbers == [1, 2, 3]
    assert [[n for n, one in row.items() if one] for row in members] == [
        ["member63"],
        ["member64"],
        ["member69"],
    ]


def test_items_of_all_arrays_count():
    """However many arrays they are in, and whatever came before the value."""
    inner = {"type": "array", "items": record(name="N")}
    tree = record({"type": "array", "items": inner}, "int")
    wanted = pa.schema([("f1", pa.int32())])
    # 8 for each of 35 bytes are 280: the 16 arrays, and 16 times 16 items, or 17.
    few, many = ("20" + one * 16 + "000a" for one in ("2000", "2200"))
    for columns in (None, wanted):
        found = decoded(
            tree, [bytes.fromhex(one) for one in (few, many, few)], wanted=columns
        )
        assert list(found.bad) == [1]
        assert found.reason == "its field `f0` has far more items than bytes"


def test_how_deep_records_are_skipped(kernel: Any):
    """As deep as any, also beside others; less deep on Python's own stack."""
    tree = record({"type": "array", "items": "Node"}, name="Node")
    top = record(tree, "int", name="Top")
    wanted = pa.schema([("f1", pa.int32())])
    depth = 999 if kernel.KERNEL == "compiled" else 99
    deepest = "02" * depth + "00" * (depth + 1)
    deeper = "02" * 1000 + "00" * 1001
    beside = "04" + "00" + "02" * 999 + "00" * 1000 + "00"
    found = bad_reasons(
        top, f"{deepest}0a", f"{deeper}0a", f"{beside}0a", wanted=wanted
    )
    assert found == ["", *["its field `f0` is nested too deeply"] * 2]


def test_bad_items_leave_no_nulls():
    """An item in the place of a NULL of a bad row is what it is."""
    tree = record({"type": "array", "items": ["null", "int"]}, "boolean")
    values = [bytes.fromhex(one) for one in ("0600000000 07", "0602020204020600 01")]
    found = decoded(tree, values)
    assert found.bad == [0]
    assert rows(found)[1] == ([1, 2, 3], True)


@pytest.mark.parametrize("precision", [4, 18, 19, 30, 38])
def test_the_largest_decimals(precision: int):
    """All digits are nines; one more is no number of the column."""
    tree = field(logical("bytes", "decimal", precision=precision, scale=0))
    limit = 10**precision
    values = []
    for number in (limit - 1, 1 - limit, limit, -limit):
        data = number.to_bytes(17, "big", signed=True)
        small = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        values += [bytes([2 * len(one)]) + one for one in (data, small)]
    found = decoded(tree, values)
    assert found.bad == [4, 5, 6, 7]
    assert [int(one) for (one,) in rows(found)[:4]] == [limit - 1] * 2 + [1 - limit] * 2


@pytest.fixture
def small_columns(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns have place for 2,001 bytes or items, where Arrow's have 2 GiB."""

    class SmallBytesColumn(kernel.BytesColumn):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(2001)

    class SmallListColumn(kernel.ListColumn):  # type: ignore[misc]
        def __init__(self, items: Any) -> None:
            super().__init__(items, 2001)

    monkeypatch.setattr(kernel, "BytesColumn", SmallBytesColumn)
    monkeypatch.setattr(kernel, "ListColumn", SmallListColumn)


@pytest.mark.usefixtures("small_columns")
@pytest.mark.parametrize(
    ("type_", "large", "small"),
    [
        ("bytes", "d00f" + "61" * 1000, "0261"),
        ("string", "d00f" + "61" * 1000, "0261"),
        ({"type": "enum", "name": "E", "symbols": ["A" * 1000, "B"]}, "00", "02"),
        ({"type": "array", "items": "boolean"}, "d00f" + "01" * 1000 + "00", "020100"),
    ],
)
def test_columns_of_too_much(type_: Any, large: str, small: str):
    """What no column of Arrow can have is bad; what still has a place there is read."""
    values = [bytes.fromhex(one) for one in (large, large, large, small)]
    found = decoded(field(type_), values)
    assert found.bad == [2]
    assert found.reason == "its field `f0` makes a column of more than 2 GiB"
    sizes = [value if value is None else len(value) for (value,) in rows(found)]
    assert sizes == [1000, 1000, None, 1]


@pytest.mark.usefixtures("small_columns")
def test_columns_of_too_many_fixeds():
    """As above; here there is a place for two of them."""
    fixed = {"type": "fixed", "name": "F", "size": 1000}
    found = decoded(field(fixed), [b"a" * 1000] * 3)
    assert found.bad == [2]
    assert found.reason == "its field `f0` makes a column of more than 2 GiB"
