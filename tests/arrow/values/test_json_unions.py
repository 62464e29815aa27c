# SPDX-License-Identifier: Apache-2.0
"""Unions in JSON: what is written is read as the same branch, or is not written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds
from pulsar_spark.arrow.values.encoders import encoder_for
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.support.random_rows import any_rows, plain

if TYPE_CHECKING:
    from random import Random

#: Marks of the owner of a schema: Java's client, and this connector by ``jsonBytes``.
JAVA, OTHER = {"__jsr310ConversionEnabled": "true"}, {"owner": "team"}

CHANCE = st.randoms(use_true_random=False)


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    """A type of a logical name."""
    return {"type": type_, "logicalType": name, **more}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """A record; each field is a type, or a type and a default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": type_[0], "default": type_[1]}
            if isinstance(type_, tuple)
            else {"name": field, "type": type_}
            for field, type_ in fields.items()
        ],
    }


INT, TEXT = pa.int32(), pa.string()
NULL_INT = (["null", "int"], None)
MOMENT, UTC = logical("long", "timestamp-micros"), pa.timestamp("us", "UTC")
DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
ENUM = {"type": "enum", "name": "E", "symbols": ["NaN", "null", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
A, B = record("A", x=NULL_INT), record("B", x=NULL_INT, y=NULL_INT)
STRICT = record("S", z="int", x="int")
TEXTS = record("T", x="string")
X, X_TEXT = pa.struct([("x", INT)]), pa.struct([("x", TEXT)])
X_Y = pa.struct([("x", INT), ("y", INT)])


def info_of(
    form: SchemaType, union: list[Any], properties: dict[str, str]
) -> SchemaInfo:
    """The schema of a record with a field ``u``."""
    return SchemaInfo(form, json.dumps(record("R", u=union)).encode(), properties)


def written_and_read(info: SchemaInfo, array: pa.Array) -> list[Any]:
    """What a read has of a column ``u`` of rows."""
    columns, said = pa.schema([("u", array.type)]), ValueSettings("base64")
    values = encoder_for(info, columns, said).encode([array]).values
    decoder = kinds.decoder(info, info, kinds.columns_of(info), said)
    found = decoder.decode(values.cast(pa.binary()), None)
    assert (list(found.bad), found.reason) == ([], "")
    return plain(found.columns[0])


#: Branches, all of which differ for AVRO.
BRANCHES = (
    *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
    *(MOMENT, DECIMAL, logical("int", "date"), logical("int", "time-millis")),
    *(ENUM, FIXED, A, B, STRICT, TEXTS),
    *({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
)

COLUMNS = (
    *(pa.bool_(), pa.int16(), INT, pa.int64(), pa.float32(), pa.float64(), TEXT),
    *(pa.binary(), UTC, pa.decimal128(10, 2), pa.date32(), pa.time64("ns")),
    *(X, X_Y, X_TEXT, pa.list_(INT), pa.map_(TEXT, INT)),
)


def kind_of(branch: Any) -> Any:
    """What may be in a union once: a name, or a type without one."""
    if isinstance(branch, dict):
        return branch.get("name", branch["type"])
    return branch


@pytest.mark.parametrize("properties", [JAVA, OTHER])
@settings(max_examples=100, deadline=None)
@given(chance=CHANCE)
def test_any_union(properties: dict[str, str], chance: Random) -> None:
    """JSON is read as AVRO is, which says the branch; or nothing is written."""
    some = chance.sample(BRANCHES, chance.randint(2, 5))
    union = list({kind_of(branch): branch for branch in some}.values())
    type_ = chance.choice(COLUMNS)
    rows = any_rows(chance, pa.schema([pa.field("u", type_, "null" in union)]), 5)[0]
    in_avro = info_of(SchemaType.AVRO, union, properties)
    try:
        expected = written_and_read(in_avro, rows)
        found = written_and_read(info_of(SchemaType.JSON, union, properties), rows)
    except (InvalidSchemaError, UnfitValueError):
        return
    assert found == expected


@pytest.mark.parametrize(
    ("union", "array", "member"),
    [
        (["int", "double"], pa.array([1.0, 1.5, -0.0, 1e20, None]), 1),
        (["double", "int"], pa.array([1, 2], INT), 1),
        (["double", "long"], pa.array([1.0, 1.5]), 0),
        (["float", "string", "int"], pa.array([1, -2], INT), 2),
        (["string", "double"], pa.array([1, 2], pa.int16()), 1),
        (["string", "long"], pa.array([1]), 1),
        (["long", "string"], pa.array(["1", "a"]), 1),
        (["double", "string"], pa.array(["1", "a", None]), 1),
        (["string", MOMENT], pa.array([0, 1], pa.int64()).cast(UTC), 1),
        (["boolean", "string"], pa.array(["true"]), 1),
        (["bytes", "string"], pa.array([b"abcd"]), 0),
        (["string", ENUM], pa.array(["B"]), 0),
        ([B, A], pa.array([{"x": 1, "y": 2}], X_Y), 0),
        ([STRICT, A], pa.array([{"x": 1}], X), 1),
        ([record("C", x="int"), TEXTS], pa.array([{"x": "1"}], X_TEXT), 1),
        ([A, {"type": "array", "items": "int"}], pa.array([[1]], pa.list_(INT)), 1),
    ],
)
def test_what_json_tells_apart(union: list[Any], array: pa.Array, member: int) -> None:
    """By its token a value is read as the branch that it was written by."""
    info = info_of(SchemaType.JSON, ["null", *union], JAVA)
    for row, value in zip(written_and_read(info, array), plain(array), strict=True):
        if value is None:
            assert row is None
            continue
        own = row.pop(f"member{member}")
        assert set(row.values()) == {None}
        if isinstance(value, int) and isinstance(own, str):
            own = int(float(own))  # of a column of integers
        assert own == value or own == {**value, "y": None}


@pytest.mark.parametrize(
    ("union", "type_", "branches"),
    [
        (["bytes", "string"], TEXT, ("string", "bytes")),
        (["string", "bytes"], pa.binary(), ("bytes", "string")),
        ([ENUM, "string"], TEXT, ("string", "enum E")),
        ([FIXED, "bytes"], pa.binary(), ("bytes", "fixed F")),
        ([MOMENT, "string"], TEXT, ("string", "long timestamp-micros")),
        ([MOMENT, "double"], pa.float64(), ("double", "long timestamp-micros")),
        (["string", DECIMAL], pa.decimal128(10, 2), ("bytes decimal", "string")),
        (["int", "long", "string"], pa.int64(), ("long", "int")),
        ([A, B], X_Y, ("record B", "record A")),
        ([record("C", x=("int", 1)), TEXTS], X, None),
        ([record("C", x=(["null", "string"], None)), A], X, ("record A", "record C")),
        ([{"type": "map", "values": "int"}, A], X, ("record A", "map<int>")),
    ],
)
def test_what_json_does_not_tell(
    union: list[Any], type_: pa.DataType, branches: tuple[str, str] | None
) -> None:
    """What would be read as another branch is an error, which names both."""
    info = info_of(SchemaType.JSON, ["null", *union], JAVA)
    columns = pa.schema([("u", type_)])
    if branches is None:
        encoder_for(info, columns)
        return
    written, read = branches
    with pytest.raises(InvalidSchemaError) as caught:
        encoder_for(info, columns)
    assert f"`u` would be {written}, and JSON" in str(caught.value)
    assert str(caught.value).endswith(f"a read takes it for {read}")


def test_texts_that_are_names_of_numbers() -> None:
    """Beside floats, NaN and the infinities cannot be texts; all others can."""
    info = info_of(SchemaType.JSON, ["null", "double", "string"], JAVA)
    encoder = encoder_for(info, pa.schema([("u", TEXT)]))
    for name in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(UnfitValueError, match="is the name of a number") as caught:
            encoder.encode([pa.array(["nan", None, name])])
        assert caught.value.row == 2


@pytest.mark.parametrize("kind", ["int", "long"])
def test_numbers_of_other_producers(kind: str) -> None:
    """A number with a point is a float of its union, whatever the order is."""
    said = ValueSettings("base64")
    for union, integer in ((["double", kind], 1), ([kind, "double"], 0)):
        info = info_of(SchemaType.JSON, union, JAVA)
        values = pa.array([b'{"u":%s}' % one for one in (b"1", b"1.0", b"-2", b"1e2")])
        decoder = kinds.decoder(info, info, kinds.columns_of(info), said)
        rows = decoder.decode(values, None).columns[0].to_pylist()
        whole, point = f"member{integer}", f"member{1 - integer}"
        assert [(row[whole], row[point]) for row in rows] == [
            *((1, None), (None, 1.0), (-2, None), (None, 100.0))
        ]
