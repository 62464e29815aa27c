# SPDX-License-Identifier: Apache-2.0
"""AVRO's schema texts, also such as no client of ours would register."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroType,
    Kind,
    Logical,
    nullable,
    parse_avro,
)
from pulsar_spark.schemas.info import InvalidSchemaError


def parsed(tree: Any) -> AvroType:
    """The type that a text says."""
    return parse_avro(json.dumps(tree).encode())


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record of these fields."""
    pairs = [{"name": f"f{at}", "type": one} for at, one in enumerate(fields)]
    return {"type": "record", "name": name, "fields": pairs, **more}


def test_primitives():
    """By their name, and as objects."""
    for name in [
        "null",
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "bytes",
        "string",
    ]:
        assert parsed(name).kind is parsed({"type": name}).kind is Kind(name)


def test_a_record():
    """Names, defaults and aliases as they are written; a default of null is one."""
    tree = record("int", ["null", "string"], name="a.b.R", aliases=["Old", "x.Y"])
    tree["fields"][0] |= {"default": 7, "aliases": ["g"]}
    tree["fields"][1] |= {"default": None}
    found = parsed(tree)
    assert (found.name, found.aliases) == ("a.b.R", ("a.b.Old", "x.Y"))
    first, second = found.fields
    assert (first.name, first.default, first.aliases) == ("f0", 7, ("g",))
    assert second.default is None
    assert parsed(record("int")).fields[0].default is NO_DEFAULT
    inner, has_null = nullable(second.type)
    assert (inner.kind, has_null) == (Kind.STRING, True)


def test_names_of_types():
    """A type that was named stands for itself, with and without its namespace."""
    inner = record("int", name="Value", namespace="db")
    found = parsed(record(["null", inner], ["null", "Value"], "db.Value", name="db.E"))
    types = [nullable(one.type)[0] for one in found.fields]
    assert types[0] is types[1] is types[2]
    assert types[0].name == "db.Value"


@pytest.mark.parametrize("space", ["", "db"])
@pytest.mark.parametrize(
    ("definition", "use"),
    [
        ({"name": "In", "namespace": ""}, ".In"),
        ({"name": "In", "namespace": ""}, "In"),
        ({"name": ".In"}, ".In"),
        ({"name": ".In"}, "In"),
        ({"name": ".In", "namespace": "db"}, "In"),
    ],
)
def test_names_in_no_namespace(definition: dict[str, str], use: str, space: str):
    """A leading dot says that there is none; bare names are looked for there, too."""
    fixed = {"type": "fixed", "size": 3, "aliases": [".Old"], **definition}
    found = parsed(record(fixed, use, name="Out", namespace=space))
    first, second = (one.type for one in found.fields)
    assert first is second
    assert (first.name, first.aliases) == ("In", ("Old",))


@pytest.mark.parametrize("name", ["", ".", "..."])
def test_names_of_dots_alone(name: str):
    """There is no such name."""
    with pytest.raises(InvalidSchemaError, match="a type record has no name"):
        parsed(record("int", name=name))


def test_recursion():
    """A record that is a part of itself is read; who makes columns of it refuses it."""
    found = parsed(record("string", ["null", "Node"], name="Node"))
    assert nullable(found.fields[1].type)[0] is found


@pytest.mark.parametrize(
    ("tree", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, Logical.DATE),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "long", "logicalType": "timestamp-micros"}, Logical.TIMESTAMP_MICROS),
        ({"type": "int", "logicalType": "timestamp-micros"}, None),
        ({"type": "string", "logicalType": "uuid"}, Logical.UUID),
        ({"type": "long", "logicalType": "mine"}, None),
        ({"type": "long", "logicalType": {"a": 1}}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, Logical.DECIMAL),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, None),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            None,
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": True},
            None,
        ),
    ],
)
def test_logical_types(tree: Any, logical: Logical | None):
    """Those that do not fit what they stand on are ignored, as by Java."""
    assert parsed(tree).logical is logical


@pytest.mark.parametrize(
    ("size", "precision", "fits"),
    [
        (1, 2, True),
        (1, 3, False),
        (5, 11, True),
        (5, 12, False),
        (16, 38, True),
        (8, 10**12, False),
        (2**31 - 1, 2**31 - 1, True),
        (2**29, 2**31 - 1, False),
    ],
)
def test_decimals_in_fixeds(size: int, precision: int, fits: bool):
    """A fixed has to be large enough for all numbers of that many digits."""
    tree = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal"}
    assert (parsed(tree | {"precision": precision}).logical is not None) is fits


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ("Missing", 'the type "Missing" is not defined'),
        (record("int", {"type": "array"}), "at `f1` a type array has no `items`"),
        (record({"type": "enum", "name": "E", "symbols": []}), "has no symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "has no size"),
        ({"type": "fixed", "name": "F", "size": 2**31}, "has no size"),
        ({"type": "record", "fields": []}, "a type record has no name"),
        (record(["int", ["int", "null"]]), "a union stands directly in a union"),
        (record(record("int", name="R")), 'the type "R" is defined twice'),
        ({"type": "object", "properties": {}}, "JSON Schema"),
        (7, "7 is no type"),
        ({"type": 7}, "is no type"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}],
            },
            'the field "a" comes twice',
        ),
    ],
)
def test_what_is_no_schema(tree: Any, said: str):
    """The error names the field."""
    with pytest.raises(InvalidSchemaError, match=said):
        parsed(tree)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        json.dumps(record(*["int"] * 30_000)).encode(),
        b'{"type":"array","items":' * 200 + b'"int"' + b"}" * 200,
        b" " * (9 * 2**20),
    ],
    ids=["empty", "open", "latin", "bomb", "many", "deep", "long"],
)
def test_hostile_texts(text: bytes):
    """They cost little, and end in the one error."""
    with pytest.raises(InvalidSchemaError):
        parse_avro(text)
