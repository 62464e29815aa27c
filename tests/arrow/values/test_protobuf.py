# SPDX-License-Identifier: Apache-2.0
"""Schemas in protobuf to columns, and one version of them to another."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import (
    EDITION_2023,
    DescriptorProto,
    FeatureSet,
    FileDescriptorProto,
)
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import Decoded, ValueSettings
from pulsar_spark.arrow.values.protobuf import columns_of, decoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.support.protobuf_schemas import (
    REPEATED,
    REQUIRED,
    Field,
    add_map,
    as_written,
    expected,
    field,
    fill,
    info,
    message,
    message_class,
    proto_file,
    rows,
)

TYPES = [
    (Field.TYPE_DOUBLE, pa.float64()),
    (Field.TYPE_FLOAT, pa.float32()),
    (Field.TYPE_INT64, pa.int64()),
    (Field.TYPE_UINT64, pa.decimal128(20, 0)),
    (Field.TYPE_INT32, pa.int32()),
    (Field.TYPE_FIXED64, pa.decimal128(20, 0)),
    (Field.TYPE_FIXED32, pa.int64()),
    (Field.TYPE_BOOL, pa.bool_()),
    (Field.TYPE_STRING, pa.string()),
    (Field.TYPE_BYTES, pa.binary()),
    (Field.TYPE_UINT32, pa.int64()),
    ("E", pa.string()),
    (Field.TYPE_SFIXED32, pa.int32()),
    (Field.TYPE_SFIXED64, pa.int64()),
    (Field.TYPE_SINT32, pa.int32()),
    (Field.TYPE_SINT64, pa.int64()),
]


def schema_of(*fields: Any, syntax: str = "proto3", **others: Any) -> SchemaInfo:
    """A schema whose root has these fields, besides ``p.M1`` with one, ``x``."""
    inner = message(field("x", 1, Field.TYPE_INT32), name="M1")
    return info(proto_file(message(*fields, **others), inner, syntax=syntax))


def read(
    payload: str, writer: SchemaInfo, reader: SchemaInfo, **wanted: pa.DataType
) -> Decoded:
    """Decode one payload as some columns, all of them if none are named."""
    schema = pa.schema(list(wanted.items())) if wanted else columns_of(reader)
    found = decoder(writer, reader, schema, ValueSettings()).decode(
        pa.array([bytes.fromhex(payload)], pa.binary()), None
    )
    for column, one in zip(found.columns, schema, strict=True):
        assert column.type == one.type
        column.validate(full=True)
    return found


def value(
    payload: str, writer: SchemaInfo, reader: SchemaInfo, **wanted: pa.DataType
) -> Any:
    """The only column of the only row."""
    found = read(payload, writer, reader, **wanted)
    assert not found.bad, found.reason
    (column,) = found.columns
    return column[0].as_py()


def refused(writer: SchemaInfo, reader: SchemaInfo, **wanted: pa.DataType) -> str:
    """Why one cannot be read as the other."""
    with pytest.raises(InvalidSchemaError) as caught:
        read("", writer, reader, **wanted)
    return str(caught.value)


@pytest.mark.parametrize(("kind", "type_"), TYPES)
def test_types(kind: Any, type_: pa.DataType) -> None:
    """Numbers without a sign are wider ones; enums are their names."""
    given = message(field("a", 1, kind), field("b", 2, kind, REPEATED))
    add_map(given, "c", 3, Field.TYPE_STRING, kind)
    columns = columns_of(info(proto_file(given)))
    assert columns == pa.schema(
        [
            ("a", type_),
            ("b", pa.list_(pa.field("element", type_, nullable=False))),
            ("c", pa.map_(pa.string(), pa.field("value", type_, nullable=False))),
        ]
    )


def test_nullability() -> None:
    """Columns may be NULL, as a value may; what is in them, where it may be absent."""
    given = message(
        field("plain", 1, Field.TYPE_INT32),
        field("kept", 2, Field.TYPE_INT32, proto3_optional=True, oneof_index=1),
        field("one", 3, Field.TYPE_STRING, oneof_index=0),
        field("inner", 4, "M2"),
        field("many", 5, "M2", REPEATED),
        name="M1",
        oneofs=["o", "_kept"],
    )
    add_map(given, "map", 6, Field.TYPE_INT64, "M2")
    file = proto_file(message(field("a", 1, "M1")), given, message(name="M2"))
    (column,) = columns_of(info(file))
    assert column.nullable
    assert [one.name for one in column.type if one.nullable] == ["kept", "one", "inner"]
    assert not column.type.field("many").type.value_field.nullable


def test_nullability_of_proto2() -> None:
    """What has a declared default is not NULL; what is required may be missing."""
    given = message(
        field("a", 1, Field.TYPE_INT32),
        field("b", 2, Field.TYPE_INT32, default_value="7"),
        field("c", 3, Field.TYPE_INT32, REQUIRED),
        name="M1",
    )
    file = proto_file(message(field("m", 1, "M1")), given, syntax="proto2")
    (column,) = columns_of(info(file))
    assert [one.nullable for one in column.type] == [True, False, True]
    assert value("0a 00", info(file), info(file)) == {"a": None, "b": 7, "c": None}


def test_editions() -> None:
    """Each field says what it is: one with presence, and a message that is a group."""
    parts = [
        field("a", 1, "M1"),
        field("b", 2, Field.TYPE_INT32),
        field("c", 3, Field.TYPE_INT32),
    ]
    parts[0].options.features.message_encoding = FeatureSet.DELIMITED
    parts[1].options.features.field_presence = FeatureSet.IMPLICIT
    inner = message(field("x", 1, Field.TYPE_INT32), name="M1")
    file = proto_file(message(*parts), inner, syntax="editions")
    file.edition = EDITION_2023
    found = read("0b 08 07 0c", info(file), info(file))
    assert [one[0].as_py() for one in found.columns] == [{"x": 7}, 0, None]


def test_well_known_types() -> None:
    """They are messages like any other."""
    file = proto_file(DescriptorProto(name="M0"))
    file.dependency.append(TIMESTAMP_FILE.name)
    file.message_type[0].field.add(
        name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    timestamp = FileDescriptorProto.FromString(TIMESTAMP_FILE.serialized_pb)
    schema = info(file, timestamp)
    not_null = [
        pa.field("seconds", pa.int64(), nullable=False),
        pa.field("nanos", pa.int32(), nullable=False),
    ]
    assert columns_of(schema).field(0).type == pa.struct(not_null)
    found = value("0a 04 08 01 10 02", schema, schema)
    assert found == {"seconds": 1, "nanos": 2}


def test_what_is_no_column() -> None:
    """A message in itself, names that Spark cannot tell apart, and far too many."""
    node = info(
        proto_file(
            message(field("a", 1, "M1"), field("b", 2, Field.TYPE_INT32)),
            message(field("next", 1, "M1"), field("x", 2, Field.TYPE_INT32), name="M1"),
        )
    )
    with pytest.raises(InvalidSchemaError, match=r"`a.next` holds the message p.M1 ag"):
        columns_of(node)
    cases = schema_of(field("a", 1, "E"), field("A", 2, "E", json_name="other"))
    with pytest.raises(InvalidSchemaError, match="`a` and `A` differ by their case"):
        columns_of(cases)
    twins = [field("a", 1, Field.TYPE_INT32), field("A", 2, Field.TYPE_INT32)]
    inner = message(*twins, name="M1")
    within = info(proto_file(message(field("s", 1, "M1")), inner))
    with pytest.raises(InvalidSchemaError, match="`a` and `A` of `s` differ by their"):
        columns_of(within)
    # But it can be read by who knows how deep it is.
    once = pa.struct([("x", pa.int32()), ("next", pa.struct([("x", pa.int32())]))])
    found = value("0a 06 10 01 0a 02 10 02", node, node, a=once)
    assert found == {"x": 1, "next": {"x": 2}}


def test_few_messages_with_many_columns() -> None:
    """Each message has two of the next: columns double, and that has an end."""
    given = [
        message(field("a", 1, f"M{at + 1}"), field("b", 2, f"M{at + 1}"), name=f"M{at}")
        for at in range(40)
    ]
    schema = info(proto_file(*given, message(name="M40")))
    with pytest.raises(InvalidSchemaError, match="more than 20,000 columns"):
        columns_of(schema)


def test_deep_messages() -> None:
    """Columns are not nested without end, either."""
    given = [message(field("a", 1, f"M{at + 1}"), name=f"M{at}") for at in range(80)]
    schema = info(proto_file(*given, message(name="M80")))
    with pytest.raises(InvalidSchemaError, match="more than 64 deep"):
        columns_of(schema)


def test_numbers_are_the_fields() -> None:
    """A field that is renamed is the same; a name that has another number is not."""
    old = schema_of(field("a", 1, Field.TYPE_INT32), field("b", 2, Field.TYPE_INT32))
    new = schema_of(field("b", 1, Field.TYPE_INT32), field("c", 3, Field.TYPE_INT32))
    found = read("08 01 10 02", old, new)
    assert [one[0].as_py() for one in found.columns] == [1, None]


def test_what_the_writer_did_not_have() -> None:
    """It is NULL; within a message it is what the reader's schema makes of nothing."""
    parts = [
        field("x", 1, Field.TYPE_INT32),
        field("n", 2, Field.TYPE_INT32),
        field("e", 3, "E"),
        field("l", 4, Field.TYPE_INT32, REPEATED),
        field("m", 5, "M2"),
        field("s", 6, Field.TYPE_STRING),
    ]
    inner = message(*parts, name="M1")
    add_map(inner, "p", 7, Field.TYPE_STRING, Field.TYPE_STRING)
    root = message(field("a", 1, "M1"), field("b", 2, Field.TYPE_INT32))
    old = schema_of(field("a", 1, "M1"))
    new = info(proto_file(root, inner, message(name="M2")))
    found = read("0a 02 08 07", old, new)
    nothing = {"n": 0, "e": "ZERO", "l": [], "m": None, "s": "", "p": []}
    assert found.columns[0][0].as_py() == {"x": 7, **nothing}
    assert found.columns[1].null_count == 1


@pytest.mark.parametrize(
    ("old", "new", "payload", "result"),
    [
        (Field.TYPE_INT32, Field.TYPE_INT64, "08 07", 7),
        (Field.TYPE_SINT32, Field.TYPE_INT64, "08 01", -1),  # as it was written
        (Field.TYPE_FIXED32, Field.TYPE_INT32, "0d 01 00 00 00", 1),
        (Field.TYPE_INT64, Field.TYPE_INT32, "08 07", 7),
        (Field.TYPE_INT64, Field.TYPE_UINT64, "08 07", decimal.Decimal(7)),
        (Field.TYPE_UINT64, Field.TYPE_INT64, "08 07", 7),
        (Field.TYPE_FLOAT, Field.TYPE_DOUBLE, "0d 00 00 c0 3f", 1.5),
        (Field.TYPE_INT32, Field.TYPE_DOUBLE, "08 07", 7.0),
        (Field.TYPE_STRING, Field.TYPE_BYTES, "0a 01 ff", b"\xff"),
        (Field.TYPE_BYTES, Field.TYPE_STRING, "0a 01 61", "a"),
        (Field.TYPE_INT32, "E", "08 01", "ONE"),
        ("E", Field.TYPE_INT32, "08 01", 1),
    ],
)
def test_types_that_change(old: Any, new: Any, payload: str, result: Any) -> None:
    """What was written is read by the writer's type, and then becomes the reader's."""
    writer, reader = schema_of(field("a", 1, old)), schema_of(field("b", 1, new))
    assert value(payload, writer, reader) == result
    writer = schema_of(field("a", 1, old, REPEATED, options={"packed": False}))
    reader = schema_of(field("b", 1, new, REPEATED))
    assert value(payload, writer, reader) == [result]
    writer = schema_of(field("a", 1, old))
    assert value(payload, writer, reader) == [result]


@pytest.mark.parametrize(
    ("old", "new", "payload"),
    [
        (Field.TYPE_INT64, Field.TYPE_INT32, "08 80 80 80 80 08"),
        (Field.TYPE_UINT32, Field.TYPE_INT32, "08 80 80 80 80 08"),
        (Field.TYPE_UINT64, Field.TYPE_INT64, "08 ff ff ff ff ff ff ff ff ff 01"),
        (Field.TYPE_UINT64, Field.TYPE_INT32, "08 ff ff ff ff ff ff ff ff ff 01"),
    ],
)
def test_numbers_that_do_not_fit(old: Any, new: Any, payload: str) -> None:
    """They are not cut: the value is bad."""
    writer, reader = schema_of(field("a", 1, old)), schema_of(field("b", 1, new))
    found = read(payload, writer, reader)
    assert found.bad == [0]
    assert found.reason.endswith("the number of `b` does not fit into its column")


def test_numbers_below_zero_without_sign() -> None:
    """An int64 is read as a uint64 with its sign: that was written."""
    old = schema_of(field("a", 1, Field.TYPE_INT64))
    new = schema_of(field("a", 1, Field.TYPE_UINT64))
    assert value("08 ff ff ff ff ff ff ff ff ff 01", old, new) == -1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            field("a", 1, Field.TYPE_STRING),
            field("b", 1, Field.TYPE_INT32),
            "`b` was string and is int32 now, which cannot be read as int32",
        ),
        (
            field("a", 1, Field.TYPE_INT64),
            field("a", 1, Field.TYPE_DOUBLE),
            "`a` was int64 and is double now",
        ),
        (
            field("a", 1, Field.TYPE_DOUBLE),
            field("a", 1, Field.TYPE_FLOAT),
            "`a` was double and is float now",
        ),
        (
            field("a", 1, Field.TYPE_INT32, REPEATED),
            field("a", 1, Field.TYPE_INT32),
            "`a` was repeated int32 and is int32 now",
        ),
        (
            field("a", 1, "M1"),
            field("a", 1, Field.TYPE_BYTES),
            "`a` was message and is bytes now",
        ),
    ],
)
def test_incompatible_types(old: Any, new: Any, said: str) -> None:
    """The field is named, and both types."""
    assert refused(schema_of(old), schema_of(new)).startswith(said)


def test_maps_and_lists() -> None:
    """A map is no list of its entries."""
    given = message()
    add_map(given, "a", 1, Field.TYPE_STRING, Field.TYPE_INT32)
    a_map = info(proto_file(given))
    a_list = schema_of(field("a", 1, "M1", REPEATED))
    assert refused(a_map, a_list) == "`a` was a map and is repeated message now"


def test_other_schema_types() -> None:
    """What was no protobuf cannot be read as such."""
    schema = schema_of(field("a", 1, "E"))
    said = refused(SchemaInfo(SchemaType.AVRO, b"{}"), schema)
    assert said == "its type is AVRO, not PROTOBUF_NATIVE"


NUMBERS = schema_of(
    field("i", 1, Field.TYPE_INT32),
    field("u", 2, Field.TYPE_UINT64),
    field("e", 3, "E"),
    field("s", 4, Field.TYPE_STRING),
    field("f", 5, Field.TYPE_FLOAT),
    field("l", 6, Field.TYPE_STRING, REPEATED),
    field("m", 7, "M1"),
    field("r", 8, "M1", REPEATED),
)
PAYLOAD = "08 05 10 06 18 01 22 01 61 2d 00 00 c0 3f 32 01 62 3a 02 08 09"


@pytest.mark.parametrize(
    ("name", "type_", "result"),
    [
        ("i", pa.int8(), 5),
        ("i", pa.int16(), 5),
        ("i", pa.int64(), 5),
        ("i", pa.float64(), 5.0),
        ("i", pa.decimal128(10, 0), decimal.Decimal(5)),
        ("u", pa.int64(), 6),
        ("u", pa.decimal128(38, 0), decimal.Decimal(6)),
        ("e", pa.int32(), 1),
        ("e", pa.large_string(), "ONE"),
        ("s", pa.large_string(), "a"),
        ("s", pa.binary(), b"a"),
        ("s", pa.large_binary(), b"a"),
        ("f", pa.float64(), 1.5),
        ("l", pa.large_list(pa.field("element", pa.large_string())), ["b"]),
        ("m", pa.struct([("x", pa.int64())]), {"x": 9}),
        ("m", pa.struct([]), {}),
    ],
)
def test_types_that_users_want(name: str, type_: pa.DataType, result: Any) -> None:
    """Wider ones and narrower ones; the rest is skipped."""
    assert value(PAYLOAD, NUMBERS, NUMBERS, **{name: type_}) == result


@pytest.mark.parametrize(
    ("name", "type_", "said"),
    [
        ("i", pa.string(), "`i` is int32, which cannot be read as string"),
        ("i", pa.float32(), "`i` is int32, which cannot be read as float"),
        ("i", pa.decimal128(9, 0), "`i` is int32, which cannot be read as decimal"),
        ("i", pa.decimal128(20, 2), "`i` is int32, which cannot be read as decimal"),
        ("u", pa.decimal128(19, 0), "`u` is uint64, which cannot be read as decimal"),
        ("s", pa.int32(), "`s` is string, which cannot be read as int32"),
        ("s", pa.list_(pa.string()), "`s` is string, which cannot be read as list"),
        ("l", pa.string(), "`l` is repeated string, which cannot be read as string"),
        ("l", pa.list_(pa.int32()), "`l` is repeated string, which cannot be read as"),
        ("m", pa.string(), "`m` is message, which cannot be read as string"),
        ("r", pa.list_(pa.int32()), "`r` is repeated message, which cannot be read as"),
        ("m", pa.struct([("y", pa.int32())]), "`m.y` is no field of the message p.M1"),
        ("o", pa.int32(), "`o` is no field of the message p.M0"),
    ],
)
def test_types_that_cannot_be(name: str, type_: pa.DataType, said: str) -> None:
    """The error names the column."""
    assert refused(NUMBERS, NUMBERS, **{name: type_}).startswith(said)


def test_what_must_be_nullable() -> None:
    """A struct has no place for a field that may be absent, unless it is nullable."""
    inner = message(field("x", 1, Field.TYPE_INT32), name="M1")
    file = proto_file(message(field("m", 1, "M1")), inner, syntax="proto2")
    strict = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    said = refused(info(file), info(file), m=strict)
    assert said == "`m.x` may be absent, so its column must be nullable"


def test_defaults_and_nulls() -> None:
    """A declared default is not that of a null value, nor of a bad one."""
    schema = schema_of(
        field("n", 1, Field.TYPE_INT32, default_value="7"),
        field("e", 2, "E", default_value="LESS"),
        field("s", 3, Field.TYPE_STRING, default_value="x"),
        syntax="proto2",
    )
    columns = columns_of(schema)
    values = [b"", None, b"\x08\x01\x10\x01\x1a\x00", b"\x08", b"\x08\x02"]
    found = decoder(schema, schema, columns, ValueSettings()).decode(
        pa.array(values, pa.binary()), None
    )
    assert found.bad == [3]
    assert rows(found.columns, columns, 5) == [
        {"n": 7, "e": "LESS", "s": "x"},
        {"n": None, "e": None, "s": None},
        {"n": 1, "e": "ONE", "s": ""},
        {"n": None, "e": None, "s": None},
        {"n": 2, "e": "LESS", "s": "x"},
    ]


def test_no_values() -> None:
    """A run may be empty, or have nothing but nulls."""
    plan = decoder(NUMBERS, NUMBERS, columns_of(NUMBERS), ValueSettings())
    for values in ([], [None, None]):
        found = plan.decode(pa.array(values, pa.binary()), None)
        assert not found.bad
        assert [one.null_count for one in found.columns] == [len(values)] * 8


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_fields_that_come_and_go(data: st.DataObject) -> None:
    """Values of one version are read as another like the runtime reads them.

    It gives defaults where columns are NULL, as the writer did not have the field.
    """
    kinds = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=8))
    all_ = [field(f"f{at}", at + 1, kind) for at, (kind, _) in enumerate(kinds)]
    subsets = st.lists(st.sampled_from(all_), unique_by=lambda one: one.number)
    old, new = data.draw(subsets), data.draw(subsets)
    for one in new:
        one.name = f"new_{one.number}"
    files = [proto_file(message(*fields)) for fields in (old, new)]
    classes = [message_class(as_written(file)) for file in files]
    written = classes[0]()
    fill(data.draw, written)
    payload = written.SerializeToString()
    wanted = expected(
        classes[1].FromString(payload), message_class(files[1]).DESCRIPTOR
    )
    known = {one.number for one in old}
    for one in new:
        if one.number not in known:
            wanted[one.name] = None
    columns = columns_of(info(files[1]))
    found = read(payload.hex(), info(files[0]), info(files[1]))
    assert rows(found.columns, columns, 1) == [wanted]


def test_protobuf_that_is_not_native() -> None:
    """Its registered text does not say how to read it, so its values stay bytes."""
    schema = SchemaInfo(SchemaType.PROTOBUF, b'{"type":"record","name":"R"}')
    assert columns_of(schema) == pa.schema([("value", pa.binary())])
    assert value("08", schema, schema) == b"\x08"
    assert value("08", schema, schema, value=pa.large_binary()) == b"\x08"
    assert refused(schema, schema, a=pa.binary()).startswith("`a` cannot be binary")
    assert refused(schema, schema, value=pa.int32()).startswith("`value` cannot be int")


def test_a_message_within_itself() -> None:
    """As deep as the columns say; the rest is skipped, as of `Struct`."""
    described = FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(described)
    described.name = "root.proto"
    schema = info(described, root="google.protobuf.Struct")
    with pytest.raises(InvalidSchemaError, match=r"says how deep to read"):
        columns_of(schema)
    inner = pa.struct([("number_value", pa.float64()), ("string_value", pa.string())])
    listed = pa.struct([("values", pa.list_(inner))])
    value = pa.struct([*inner, ("list_value", listed)])
    wanted = pa.schema([("fields", pa.map_(pa.string(), value))])
    sent = struct_pb2.Struct()
    sent.update({"a": 1.5, "b": ["x", [2.5]]})
    plan = decoder(schema, schema, wanted, ValueSettings())
    found = plan.decode(pa.array([sent.SerializeToString()], pa.binary()), None)
    assert not len(found.bad)
    (row,) = found.columns[0].to_pylist()
    fields = dict(row)
    assert fields["a"]["number_value"] == 1.5
    assert [one["string_value"] for one in fields["b"]["list_value"]["values"]] == [
        "x",
        None,
    ]
