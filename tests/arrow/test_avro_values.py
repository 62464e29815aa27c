# SPDX-License-Identifier: Apache-2.0
"""AVRO's values as columns, beside what fastavro reads of the same bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pulsar_spark.arrow.values import Decoded, ValueSettings
from pulsar_spark.arrow.values.avro import columns_of, decoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.schemas.test_avro import record


def info(tree: Any, **properties: str) -> SchemaInfo:
    """A schema as the registry has it."""
    return SchemaInfo(SchemaType.AVRO, json.dumps(tree).encode(), properties)


def written(tree: Any, *values: Any) -> pa.BinaryArray:
    """Values in AVRO; None for a null value."""
    schema = fastavro.parse_schema(tree)
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
    **properties: str,
) -> Decoded:
    """The columns of values, which are of the types that were wanted."""
    into = info(writer if reader is None else reader)
    wanted = columns_of(into) if wanted is None else wanted
    plan = decoder(info(writer, **properties), into, wanted, ValueSettings())
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
