# SPDX-License-Identifier: Apache-2.0
"""What a write adds to the schema of a topic, and that nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds
from pulsar_spark.arrow.values.encoders import (
    encoder_for,
    extended_schema,
    new_schema,
)
from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    SchemaType,
    UnfitColumnsError,
)
from pulsar_spark.schemas.key_value import parse_key_value

if TYPE_CHECKING:
    from random import Random

MOMENT = pa.timestamp("us", "UTC")
FORMS = [SchemaType.AVRO, SchemaType.JSON]


def record(name: str, *fields: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """A record: names and types of its fields, and defaults where given."""
    parts = [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields]
    return {"type": "record", "name": name, "fields": parts, **more}


def extended(tree: Any, *columns: Any, form: SchemaType = SchemaType.AVRO) -> Any:
    """The schema with fields for more columns, which fit; None where none is added."""
    registered = SchemaInfo(form, json.dumps(tree).encode(), {"p": "q"})
    schema = pa.schema(columns)
    info = extended_schema(registered, schema)
    encoder_for(info or registered, schema, ValueSettings("base64"))
    if info is None:
        return None
    assert (info.type, info.properties) == (form, {"p": "q"})
    return json.loads(info.data)


def optional(name: str, type_: Any) -> dict[str, Any]:
    """A field that a write adds."""
    return {"name": name, "type": ["null", type_], "default": None}


@pytest.mark.parametrize("form", FORMS)
def test_more_columns(form: SchemaType):
    """They come last, and may be null, whatever Spark's plan says of them."""
    tree = record("R", ("a", "int"), namespace="shop", doc="?")
    more = pa.field("b", pa.string(), nullable=False)
    found = extended(tree, ("a", pa.int32()), more, form=form)
    assert found == tree | {"fields": [*tree["fields"], optional("b", "string")]}
    assert extended(tree, ("a", pa.int16()), form=form) is None


def test_more_fields_within():
    """In records, and those in arrays, maps and unions, wherever these are defined."""
    address = record("Address", ("street", "string"), doc="theirs")
    tree = record(
        "R",
        ("id", "long"),
        ("home", ["null", address]),
        ("work", "Address"),
        ("all", {"type": "array", "items": ["null", record("Item", ("x", "int"))]}),
        ("by", {"type": "map", "values": record("Value", ("y", "int"))}),
        namespace="shop",
    )
    text = json.dumps(tree)
    street = ("street", pa.string())
    place = pa.struct([("lat", pa.float64())])
    found = extended(
        tree,
        ("id", pa.int64()),
        ("home", pa.struct([street, ("zip", pa.string()), ("at", place)])),
        ("work", pa.struct([street, ("floor", pa.int8()), ("zip", pa.string())])),
        ("all", pa.list_(pa.struct([("x", pa.int32()), ("more", pa.int8())]))),
        ("by", pa.map_(pa.string(), pa.struct([("y", pa.int8()), ("z", MOMENT)]))),
    )
    at = record(
        "at", ("lat", ["null", "double"], None), namespace="topLevelRecord.home"
    )
    address["fields"] += [
        optional("zip", "string"),
        optional("at", at),
        optional("floor", "int"),
    ]
    items = tree["fields"][3]["type"]["items"][1]
    items["fields"].append(optional("more", "int"))
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    tree["fields"][4]["type"]["values"]["fields"].append(optional("z", moment))
    assert found == tree
    assert json.dumps(found) != text


def test_a_record_that_is_a_part_of_itself():
    """It is extended once, for all depths."""
    tree = record("Node", ("id", "int"), ("next", ["null", "Node"]))
    inner = pa.struct([("id", pa.int32()), ("more", pa.string())])
    found = extended(tree, ("id", pa.int32()), ("next", inner))
    assert found == tree | {"fields": [*tree["fields"], optional("more", "string")]}


def test_the_whole_record():
    """A single struct is the record, if no field is called so that may be one."""
    tree = record("R", ("a", ["null", "int"]))
    struct = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    whole = tree | {"fields": [*tree["fields"], optional("b", "int")]}
    assert extended(tree, ("value", struct)) == whole
    assert extended(tree, ("a", struct)) == whole


@pytest.mark.parametrize("form", FORMS)
def test_a_record_whose_only_field_is_a_record(form: SchemaType):
    """Its column is that field: what was read can be written."""
    inner = record("I", ("a", "int"), ("b", ["null", "string"]))
    column = pa.struct([("a", pa.int32()), ("b", pa.string())])
    rows = pa.array([{"a": 1, "b": "x"}, None], column)
    for more in ([], [("id", ["null", "long"], None)]):
        tree = record("W", ("v", ["null", inner]), *more)
        assert extended(tree, ("v", column), form=form) is None
        info = SchemaInfo(form, json.dumps(tree).encode())
        schema = pa.schema([("v", column)])
        values = encoder_for(info, schema).encode([rows]).values
        decoder = kinds.decoder(info, info, kinds.columns_of(info), ValueSettings())
        found = decoder.decode(values.cast(pa.binary()), None)
        assert found.columns[0].to_pylist() == rows.to_pylist()
        assert not found.bad


ROOTS: list[tuple[Any, pa.DataType, list[Any], list[str]]] = [
    ("int", pa.int32(), [1, -1], ["1", "-1"]),
    ("string", pa.string(), ['a"', ""], ['"a\\""', '""']),
    (["null", "string"], pa.string(), ["x", "y"], ['"x"', '"y"']),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [[1], []], ["[1]", "[]"]),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        pa.string(),
        ["A", "B"],
        ['"A"', '"B"'],
    ),
]


@pytest.mark.parametrize(("root", "type_", "values", "texts"), ROOTS)
def test_values_in_json_that_are_no_records(
    root: Any, type_: pa.DataType, values: list[Any], texts: list[str]
):
    """They are written as they are, NULL as a null value, also as parts of a pair."""
    info = SchemaInfo(SchemaType.JSON, json.dumps(root).encode())
    for name in ("value", "a"):
        schema = pa.schema([(name, type_)])
        assert extended_schema(info, schema) is None
        found = encoder_for(info, schema).encode([pa.array([*values, None], type_)])
        expected = [*(text.encode() for text in texts), None]
        assert found.values.to_pylist() == expected
    two = pa.schema([("a", type_), ("b", type_)])
    for call in (encoder_for, extended_schema):
        with pytest.raises(UnfitColumnsError, match="no record: write a single column"):
            call(info, two)


def pair_of(key: SchemaInfo, value: SchemaInfo, *, no_key: int) -> SchemaInfo:
    """A pair as Java, or C++, whose primitives have another size, registers it."""
    size = no_key if not key.data else len(key.data)
    parts = size.to_bytes(4, "big", signed=True) + key.data
    properties = {
        "key.schema.type": key.type_name,
        "key.schema.properties": "{}",
        "value.schema.type": value.type_name,
        "kv.encoding.type": "SEPARATED",
        "theirs": "?",
    }
    data = parts + len(value.data).to_bytes(4, "big") + value.data
    return SchemaInfo(SchemaType.KEY_VALUE, data, properties)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("no_key", [0, -1])
def test_parts_of_a_pair(form: SchemaType, no_key: int):
    """Each record gets fields; sizes and properties stay as they are.

    But for the keys of messages, which have to stay what they are.
    """
    tree = record("V", ("value", ["null", "int"]), ("id", "int"), doc="theirs")
    value = SchemaInfo(form, json.dumps(tree).encode())
    text = SchemaInfo(SchemaType.STRING)
    registered = pair_of(text, value, no_key=no_key)
    struct = pa.struct([("id", pa.int32()), ("w", pa.int8())])
    columns = pa.schema([("key", pa.string()), ("value", struct)])
    info = extended_schema(registered, columns)
    assert info is not None
    encoder_for(info, columns)
    assert info.properties == registered.properties
    assert info.data[:4] == registered.data[:4]
    found = parse_key_value(info)
    fields = [*tree["fields"], optional("w", "int")]
    assert json.loads(found.value.data) == tree | {"fields": fields}
    fitting = pa.schema([("key", pa.string()), ("value", pa.struct([struct[0]]))])
    assert extended_schema(registered, fitting) is None
    keys = pair_of(value, text, no_key=no_key)
    columns = pa.schema([("key", struct), ("value", pa.string())])
    with pytest.raises(UnfitColumnsError, match="the same keys would be other bytes"):
        extended_schema(keys, columns)
    inline = replace(keys, properties={**keys.properties, "kv.encoding.type": "INLINE"})
    info = extended_schema(inline, columns)
    assert info is not None
    assert json.loads(parse_key_value(info).key.data) == tree | {"fields": fields}


def test_names_that_differ_by_case():
    """A read with Spark would not tell the fields apart, at any depth."""
    tree = record("R", ("a", ["null", record("I", ("x", ["null", "int"]))]))
    for columns in ([("A", pa.int8())], [("a", pa.struct([("X", pa.int8())]))]):
        with pytest.raises(InvalidSchemaError, match="differ by their case only"):
            extended(tree, *columns, ("b", pa.int8()))


# -- any schema and any columns --------------------------------------------------------

#: Types of fields, with one of a column that has the same meaning.
LEAVES: list[tuple[Any, pa.DataType]] = [
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("string", pa.string()),
    ("bytes", pa.binary()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT),
    ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        pa.decimal128(9, 2),
    ),
]

#: By type of a field, those of columns that it holds all values of, if not its own.
WIDER = {
    "int": [pa.int8(), pa.int16()],
    "long": [pa.int8(), pa.int16(), pa.int32()],
    "float": [pa.int8(), pa.int16()],
    "double": [pa.int8(), pa.int16(), pa.int32(), pa.float32()],
    # A read gives these as numbers.
    "local-timestamp-micros": [pa.int8(), pa.int16(), pa.int32(), pa.int64()],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_type_in_every_field(form: SchemaType):
    """A column fits a field of the same meaning, and wider numbers; nothing else."""
    columns = [column for _, column in LEAVES]
    for (type_, same), column in product(LEAVES, [*columns, pa.int8(), pa.int16()]):
        name = type_ if isinstance(type_, str) else type_["logicalType"]
        wider = WIDER.get(name, [])
        is_fitting = column == same or column in wider
        try:
            found = extended(record("R", ("x", type_)), ("x", column), form=form)
        except UnfitColumnsError:
            assert not is_fitting, (type_, column)
            continue
        assert found is None
        assert is_fitting, (type_, column)


def any_type(chance: Random, depth: int, names: list[str]) -> tuple[Any, pa.DataType]:
    """A type of a field and that of a column, which may have more, or other, fields."""
    kind = chance.randrange(6) if depth else 5
    if kind == 0:
        return any_record(chance, depth - 1, names)
    if kind == 1:
        items, column = any_type(chance, depth - 1, names)
        return {"type": "array", "items": items, "theirs": 1}, pa.list_(column)
    if kind == 2:
        items, column = any_type(chance, depth - 1, names)
        return {"type": "map", "values": items}, pa.map_(pa.string(), column)
    if kind == 3:
        type_, column = any_type(chance, 0, names)
        return chance.choice([["null", type_], [type_, "null"]]), column
    type_, column = chance.choice(LEAVES)
    if chance.random() < 0.05:
        column = chance.choice(LEAVES)[1]
    return type_, column


def any_record(
    chance: Random, depth: int, names: list[str]
) -> tuple[Any, pa.StructType]:
    """A record and columns for most of its fields, and for some that it has not."""
    name = f"R{len(names)}"
    names.append(name)
    fields, columns = [], []
    for index in range(chance.randint(1, 3)):
        type_, column = any_type(chance, depth, names)
        field = {"name": f"f{index}", "type": type_, "doc": "theirs"}
        if isinstance(type_, list) and type_[0] == "null":
            field["default"] = None
        fields.append(field)
        if chance.random() < 0.9:
            columns.append(pa.field(field["name"], column))
    for index in range(chance.choice([0, 0, 1, 2])):
        _, column = any_type(chance, depth, [])
        columns.append(pa.field(f"g{index}", column, nullable=chance.random() < 0.5))
    chance.shuffle(columns)
    more = {"namespace": "shop", "aliases": ["Old"]} if chance.random() < 0.5 else {}
    return {"type": "record", "name": name, "fields": fields, **more}, pa.struct(
        columns
    )


def without_more(before: Any, after: Any) -> Any:
    """The schema after a write without the fields that a write may add."""
    if isinstance(before, list) and isinstance(after, list):
        return [without_more(*pair) for pair in zip(before, after, strict=True)]
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    if "fields" in before:
        count = len(before["fields"])
        for field in after["fields"][count:]:
            assert field == optional(field["name"], field["type"][1])
        after = after | {"fields": after["fields"][:count]}
    return {name: without_more(before.get(name), part) for name, part in after.items()}


@pytest.mark.parametrize("form", [*FORMS, SchemaType.KEY_VALUE])
@settings(max_examples=150, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_all_that_was_registered_stays(form: SchemaType, chance: Random):
    """But for nullable fields; rows fit what comes out, or are an error."""
    tree, struct = any_record(chance, 2, [])
    registered = SchemaInfo(SchemaType.AVRO, json.dumps(tree).encode())
    columns = pa.schema(list(struct))
    if form is SchemaType.KEY_VALUE:
        text = SchemaInfo(SchemaType.STRING)
        registered = pair_of(text, registered, no_key=0)
        columns = pa.schema([("key", pa.string()), ("value", struct)])
    elif not len(columns):
        return
    info = extended_schema(registered, columns) or registered
    assert info.properties == registered.properties
    after = info.data
    if form is SchemaType.KEY_VALUE:
        after = parse_key_value(info).value.data
    assert without_more(tree, json.loads(after)) == tree
    try:
        encoder_for(info, columns)
        reason = ""
    except UnfitColumnsError as error:
        reason = str(error)
    assert "has no field" not in reason


def test_a_first_schema_is_no_contract_to_itself():
    """The columns of a first write fit the schema that it registered."""
    struct = pa.struct([pa.field("value", pa.int64(), nullable=False)])
    columns = pa.schema([("value", struct)])
    info = new_schema(columns, "avro", "INLINE")
    assert info is not None
    assert extended_schema(info, columns) is None
