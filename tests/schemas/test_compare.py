# SPDX-License-Identifier: Apache-2.0
"""Which schemas say the same of values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_spark.schemas.compare import says_the_same
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from tests.schemas.test_avro import record

FIELD = {"name": "a", "type": "int"}
RECORD: dict[str, Any] = {"type": "record", "name": "R", "fields": [FIELD]}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def avro(tree: Any, kind: SchemaType = SchemaType.AVRO, **more: str) -> SchemaInfo:
    """A schema with this text."""
    return SchemaInfo(kind, json.dumps(tree).encode(), more)


def field(**change: Any) -> SchemaInfo:
    """The record with another field."""
    return avro(RECORD | {"fields": [FIELD | change]})


def enum(name: str, *more: str) -> Any:
    """An enum of this name."""
    return {"type": "enum", "name": name, "symbols": ["A", *more]}


def union(*names: str, **more: Any) -> SchemaInfo:
    """A union of records, of which each has the same field."""
    return avro([RECORD | {"name": name} | more for name in names])


def pair(encoding: str, key: str = "STRING", value: bytes = b"") -> SchemaInfo:
    """A KEY_VALUE with a primitive key, and a value of INT32, or of AVRO."""
    size = len(value).to_bytes(4, "big")
    properties = {
        "key.schema.type": key,
        "value.schema.type": "AVRO" if value else "INT32",
    }
    if encoding:
        properties["kv.encoding.type"] = encoding
    return SchemaInfo(SchemaType.KEY_VALUE, bytes(4) + size + value, properties)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (avro(RECORD), avro(RECORD | {"name": "S", "namespace": "n", "doc": "d"})),
        (avro(RECORD), field(doc="d")),
        (avro(RECORD), SchemaInfo(4, json.dumps(RECORD, indent=2).encode())),
        (avro(NODE), avro(NODE)),
        (avro("int"), avro({"type": "int"})),
        (avro(enum("E")), avro(enum("n.E"))),
        (avro(enum("E"), SchemaType.JSON), avro(enum("F"), SchemaType.JSON)),
        (union("A"), union("B")),
        (union("A", "B"), union("A", "B", doc="d")),
        (SchemaInfo(SchemaType.STRING), SchemaInfo(SchemaType.STRING, b"null")),
        (SchemaInfo(SchemaType.AVRO, b"{"), SchemaInfo(SchemaType.AVRO, b"{")),
        (pair(""), pair("INLINE")),
        (pair("INLINE", value=b'"int"'), pair("INLINE", value=b' "int"')),
    ],
)
def test_equal(one: SchemaInfo, other: SchemaInfo):
    """Names, docs and the form of texts do not matter, nor does the version."""
    assert says_the_same(one, other)
    assert says_the_same(other, SchemaInfo(one.type, one.data, one.properties, b"8"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (avro(RECORD), avro(RECORD, SchemaType.JSON)),
        (avro(RECORD), field(type="long")),
        (avro(RECORD), field(name="b")),
        (avro(RECORD), field(default=1)),
        (field(default=1), field(default=2)),
        (avro(enum("E")), avro(enum("F"))),
        (avro(enum("E")), avro(enum("E", "B"))),
        (union("A", "B"), union("B", "A")),
        (union("A", "n.A"), union("n.A", "A")),
        (union("A", "B"), union("A", "B", aliases=["C"])),
        (avro([enum("n.E"), enum("m.E")]), avro([enum("m.E"), enum("n.E")])),
        (field(type=["null", "int"]), field(type=["int", "null"])),
        (field(type={"type": "int", "logicalType": "date"}), avro(RECORD)),
        (avro(RECORD), avro(RECORD, __AVRO_READ_OFFSET__="5")),
        (SchemaInfo(SchemaType.INT32), SchemaInfo(SchemaType.INT64)),
        (SchemaInfo(SchemaType.AVRO, b"{"), SchemaInfo(SchemaType.AVRO, b"[")),
        (pair("INLINE"), pair("SEPARATED")),
        (pair("INLINE"), pair("INLINE", key="INT32")),
        (pair("INLINE", value=b'"int"'), pair("INLINE", value=b'"long"')),
        (
            SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"a"),
            SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"b"),
        ),
    ],
)
def test_different(one: SchemaInfo, other: SchemaInfo):
    """Whatever changes what values mean, or what is read of them."""
    assert not says_the_same(one, other)
    assert not says_the_same(other, one)


def test_records_that_come_many_times():
    """A short text that stands for a billion fields is compared at once."""
    found = []
    for leaf in ("int", "int", "long"):
        tree: Any = leaf
        for level in range(30):
            again = f"N{level - 1}" if level else leaf
            tree = record(tree, again, name=f"N{level}")
        found.append(avro(tree))
    assert says_the_same(found[0], found[1])
    assert not says_the_same(found[0], found[2])
