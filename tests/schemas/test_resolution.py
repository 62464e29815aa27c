# SPDX-License-Identifier: Apache-2.0
"""How one schema's values are read as another's: what goes with what."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from random import Random
from typing import Any

import fastavro
import pytest

from pulsar_spark.schemas.avro import AvroType, Logical
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.resolution import (
    branch_of,
    encode_default,
    factor,
    is_readable,
    mismatch,
    source_fields,
    symbols_read,
)
from tests.schemas.test_avro import parsed, record

ENUM = {"type": "enum", "name": "a.E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


@pytest.mark.parametrize("writer", PRIMITIVES)
def test_primitives(writer: str):
    """As themselves, and as what they are promoted to."""
    for reader in PRIMITIVES:
        expected = writer == reader or (writer, reader) in PROMOTED
        assert is_readable(parsed(writer), parsed(reader)) is expected


def test_named_types():
    """Records by any name; enums and fixeds by their own, in any namespace."""
    assert is_readable(parsed(record("int", name="A")), parsed(record("int", name="B")))
    assert is_readable(parsed(ENUM), parsed({**ENUM, "name": "b.E"}))
    assert not is_readable(parsed(ENUM), parsed({**ENUM, "name": "X"}))
    assert is_readable(parsed(ENUM), parsed({**ENUM, "name": "X", "aliases": ["E"]}))
    assert not is_readable(parsed(FIXED), parsed({**FIXED, "size": 5}))
    assert not is_readable(parsed(FIXED), parsed({**FIXED, "name": "X"}))
    assert not is_readable(parsed(ENUM), parsed("string"))
    assert not is_readable(parsed("string"), parsed(ENUM))


def test_types_within_types():
    """All fields of the reader must be there, but those with a default or null."""
    array = {"type": "array", "items": "int"}
    assert is_readable(parsed(array), parsed({**array, "items": "long"}))
    assert not is_readable(parsed(array), parsed({**array, "items": "string"}))
    assert not is_readable(parsed(array), parsed({"type": "map", "values": "int"}))
    one, two = parsed(record("int")), record("int", "int")
    assert is_readable(parsed(two), one)
    assert not is_readable(one, parsed(two))
    two["fields"][1]["default"] = 7
    assert is_readable(one, parsed(two))
    assert is_readable(one, parsed(record("int", ["null", "int"])))
    assert not is_readable(one, parsed(record("string")))
    assert is_readable(parsed(record(["null", "int"])), parsed(record("int")))
    assert not is_readable(parsed(record(["null", "int"])), parsed(record("string")))


def test_records_within_themselves():
    """The question has an end, also where records come twice in one another."""
    node = record("int", ["null", "Node"], name="Node")
    assert is_readable(parsed(node), parsed(node))
    array = {"type": "array", "items": "Node"}
    tree = record(array, "int", name="Node")
    assert is_readable(parsed(tree), parsed(record(array, "long", name="Node")))
    assert not is_readable(parsed(tree), parsed(record(array, "string", name="Node")))
    other = record("int", ["null", "Node"], "string", name="Node")
    assert not is_readable(parsed(node), parsed(other))
    tree: Any = "long"
    for level in range(30):
        again = f"N{level - 1}" if level else "long"
        tree = record(tree, again, name=f"N{level}")
    assert is_readable(parsed(tree), parsed(tree))


def test_fields():
    """By their names, or by the reader's aliases; each of the writer's once."""
    writer, reader = record("int", "int", "int"), record("int", "int", "int", "int")
    for at, (name, aliases) in enumerate(
        [("a", ["f1", "f2"]), ("F2", []), ("f0", []), ("b", ["x", "f0", "f2"])]
    ):
        reader["fields"][at] |= {"name": name, "aliases": aliases}
    assert source_fields(parsed(writer), parsed(reader)) == [1, None, 0, 2]


def test_a_name_that_another_field_has_by_now():
    """An old field is the one with the alias; a new one is the field of that name."""
    old, new = parsed(record("string")), record("string", "int")
    new["fields"][0] |= {"name": "full_name", "aliases": ["f0"]}
    new["fields"][1] |= {"name": "f0", "default": 7}
    for fields in (new["fields"], new["fields"][::-1]):
        reader = parsed(new | {"fields": fields})
        assert source_fields(reader, reader) == [0, 1]
        sources = source_fields(old, reader)
        by_name = {f.name: at for f, at in zip(reader.fields, sources, strict=True)}
        assert by_name == {"full_name": 0, "f0": None}
        assert is_readable(old, reader)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a", {"a": [], "b": ["a"]}, {"a": "a"}),
        ("xy", {"y": ["x"], "z": ["y"]}, {"y": "x", "z": "y"}),
        ("wxy", {"x": ["w"], "y": ["x"], "z": ["y"]}, {"x": "w", "y": "x", "z": "y"}),
        ("ab", {"a": ["b"], "b": ["a"]}, {"a": "a", "b": "b"}),
        ("ab", {"a": ["b"], "c": ["a", "b"]}, {"a": "a", "c": "b"}),
    ],
)
def test_a_name_of_a_field_that_needs_a_value(
    old: str, new: dict[str, list[str]], expected: dict[str, str]
):
    """Such a field gives the values of its name away where others are its own."""
    writer, reader = record(*["string"] * len(old)), record(*["string"] * len(new))
    for field, name in zip(writer["fields"], old, strict=True):
        field["name"] = name
    for field, (name, aliases) in zip(reader["fields"], new.items(), strict=True):
        field |= {"name": name, "aliases": aliases}
    sources = source_fields(parsed(writer), parsed(reader))
    found = dict(zip(new, sources, strict=True))
    assert {n: old[at] for n, at in found.items() if at is not None} == expected


@pytest.mark.parametrize(
    ("writer", "branches", "expected"),
    [
        ("int", ["null", "long", "int"], 2),
        ("int", ["string", "double", "long"], 1),
        ("string", ["bytes", "string"], 1),
        ("boolean", ["int", "string"], None),
        (ENUM, ["string", {**ENUM, "name": "Other"}], None),
        (ENUM, ["string", ENUM], 1),
        (record("int", name="x.B"), [record("long", name="A")], 0),
        (
            record("int", name="B"),
            [record("int", name="A"), record("int", name="B")],
            1,
        ),
        (
            record("int", name="x.B"),
            [record("int", name="y.B"), record("int", name="x.B")],
            1,
        ),
        (
            record("int", name="x.C"),
            [record("int", name="A"), record("int", name="y.C")],
            1,
        ),
        (record("int", name="C"), [record("string", name="C")], None),
        (
            record("int", name="C"),
            [record("string", name="C"), record("int", name="D")],
            1,
        ),
    ],
)
def test_branches(writer: Any, branches: list[Any], expected: int | None):
    """The same type first, and of records that of the same name."""
    types = [parsed(one) for one in branches]
    assert branch_of(parsed(writer), types) == expected


NAMES = [f"{namespace}.{name}" for namespace in "ab" for name in "XY"]


@pytest.mark.parametrize("kind", [ENUM, FIXED, record("int")], ids=lambda k: k["type"])
def test_branches_by_names(kind: Any):
    """The one of the same name, or with the alias, whatever the others' short names."""
    random = Random(7)
    for _ in range(200):
        names = random.sample(NAMES, random.randint(2, 4))
        written = [kind | {"name": name} for name in names]
        new = [f"new.{name}" if random.random() < 0.3 else name for name in names]
        read = [
            kind | {"name": name} | ({"aliases": [old]} if name != old else {})
            for name, old in zip(new, names, strict=True)
        ]
        order = random.sample(range(len(read)), len(read))
        branches = parsed([read[at] for at in order]).branches
        for at, branch in enumerate(parsed(written).branches):
            index = branch_of(branch, branches)
            assert index is not None
            assert branches[index].name == new[at]


def test_symbols():
    """By their text; what the reader does not know is its default, if it has one."""
    reader = {**ENUM, "symbols": ["C", "B"]}
    assert symbols_read(parsed(ENUM), parsed(reader)) == [None, "B"]
    reader["default"] = "C"
    assert symbols_read(parsed(ENUM), parsed(reader)) == ["C", "B"]


def test_units():
    """The writer's number times this is in the unit; without one it is the reader's."""

    def of(kind: str, name: str = "") -> AvroType:
        return parsed({"type": kind, "logicalType": name})

    plain, millis = of("long"), of("long", "timestamp-millis")
    micros, nanos = of("long", "timestamp-micros"), of("long", "timestamp-nanos")
    day, time = of("int", "date"), of("int", "time-millis")
    for writer, reader, unit, expected in [
        (millis, micros, Logical.TIMESTAMP_MICROS, 1000),
        (millis, plain, None, 1),
        (plain, plain, None, 1),
        (plain, millis, Logical.TIMESTAMP_MICROS, 1000),
        (plain, micros, Logical.TIMESTAMP_MICROS, 1),
        (nanos, micros, Logical.LOCAL_TIMESTAMP_MICROS, Fraction(1, 1000)),
        (day, millis, Logical.TIMESTAMP_MILLIS, 86_400_000),
        (time, of("long", "time-micros"), Logical.TIME_MICROS, 1000),
    ]:
        assert factor(writer, reader, unit, "x") == expected
    with pytest.raises(InvalidSchemaError, match="`x` is int time-millis where"):
        factor(time, millis, Logical.TIMESTAMP_MILLIS, "x")


@pytest.mark.parametrize(
    ("name", "micros"),
    [
        ("timestamp-millis", 1000),
        ("timestamp-micros", 1),
        ("timestamp-nanos", Fraction(1, 1000)),
        ("local-timestamp-millis", 1000),
        ("local-timestamp-micros", 1),
        ("local-timestamp-nanos", Fraction(1, 1000)),
    ],
)
def test_micros_of_each_unit(name: str, micros: Any):
    """With a zone and without."""
    one = parsed({"type": "long", "logicalType": name})
    assert factor(one, one, Logical.TIMESTAMP_MICROS, "x") == micros


def test_what_does_not_go_together():
    """The error names the field, and both types."""
    error = mismatch(parsed("int"), parsed(ENUM), "a.b")
    assert str(error) == (
        "`a.b` is int where it was written, which cannot be read as enum a.E"
    )


INNER = record("int", ["null", "string"], name="I")
INNER["fields"][0]["default"] = 5


@pytest.mark.parametrize(
    ("tree", "default", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("int", 7.0, 7),
        ("int", 63, 63),
        ("int", 64, 64),
        ("int", -64, -64),
        ("int", -65, -65),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 1.5, 1.5),
        ("double", 3, 3.0),
        ("string", "é", "é"),
        ("bytes", "\u00ff\0", b"\xff\0"),
        (FIXED, "\u00ff123", b"\xff123"),
        (ENUM, "B", "B"),
        ({"type": "array", "items": "int"}, [1, 300], [1, 300]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": ["null", "int"]}, {"a": None}, {"a": None}),
        ({"type": "map", "values": "int"}, {}, {}),
        (INNER, {"f1": "a"}, {"f0": 5, "f1": "a"}),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["null", "int"], 5, 5),
    ],
)
def test_defaults(tree: Any, default: Any, expected: Any):
    """They are what fastavro reads of what they become."""
    data = encode_default(parsed(tree), default, "x")
    schema = fastavro.parse_schema(json.loads(json.dumps(tree)))
    out = io.BytesIO(data)
    assert fastavro.schemaless_reader(out, schema, None) == expected
    assert out.read() == b""


@pytest.mark.parametrize(
    ("tree", "default"),
    [
        ("int", "xx"),
        ("int", ""),
        ("null", ""),
        ("boolean", ""),
        ("int", True),
        ("int", 2**31),
        ("int", 1.5),
        ("int", float("inf")),
        ("int", None),
        ("long", -(2**63) - 1),
        ("long", [1]),
        ("float", "1.5"),
        ("float", 1e300),
        ("double", True),
        ("boolean", 1),
        ("string", 7),
        ("string", "\ud800"),
        ("bytes", "\u0100"),
        (FIXED, "123"),
        (ENUM, "C"),
        (ENUM, ["A"]),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "array", "items": "int"}, ["a"]),
        ({"type": "map", "values": "int"}, []),
        (INNER, {}),
        (INNER, [1]),
        (["null", "int"], "a"),
        ([], None),
        (record("Node", name="Node"), {}),
    ],
)
def test_defaults_of_another_type(tree: Any, default: Any):
    """The error names the field, and the default."""
    with pytest.raises(InvalidSchemaError, match=r"the default of `a\.b`, .* is no "):
        encode_default(parsed(tree), default, "a.b")


def test_a_default_without_end():
    """Fields that it leaves out have their own: a few records can be far too many."""
    tree: Any = record(name="N0")
    for level in range(1, 30):
        tree = record(tree, f"N{level - 1}", name=f"N{level}")
        for one in tree["fields"]:
            one["default"] = {}
    said = "the default of `x` holds more than 100,000 values"
    for type_ in (tree, ["null", tree]):
        with pytest.raises(InvalidSchemaError, match=said):
            encode_default(parsed(type_), {}, "x")
