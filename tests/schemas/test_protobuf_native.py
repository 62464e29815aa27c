# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.type_pb2 import Type
from hypothesis import given, settings
from hypothesis import strategies as st
from pulsar.schema import ProtobufNativeSchema

from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.protobuf_native import (
    Kind,
    MessageType,
    parse_protobuf_native,
)
from tests.support.protobuf_schemas import (
    REPEATED,
    REQUIRED,
    ROOT,
    SYMBOLS,
    Field,
    add_map,
    definition,
    field,
    files,
    message,
    proto_file,
)

MAIN = proto_file(
    message(field("other", 1, "Other"), field("again", 2, "Other", REPEATED))
)
MAIN.dependency.append("other.proto")
OTHER = proto_file(
    message(field("x", 1, Field.TYPE_STRING), name="Other"), name="other.proto"
)


def parsed(*given: Any, root: str = ROOT) -> MessageType:
    """The root message of these files."""
    return parse_protobuf_native(definition(given, root))


def refused(data: bytes) -> str:
    """Why a definition is no schema."""
    with pytest.raises(InvalidSchemaError) as caught:
        parse_protobuf_native(data)
    return str(caught.value)


@pytest.mark.parametrize(
    "given",
    [[OTHER, MAIN], [MAIN, OTHER], [MAIN, OTHER, OTHER], [MAIN, OTHER, MAIN]],
    ids=["Python's order", "C++'s order", "twice", "the root twice"],
)
def test_order_of_files(given: list[Any]) -> None:
    """Clients give the files in any order, C++ some of them twice."""
    root = parsed(*given)
    first, second = root.fields
    assert first.message is second.message
    assert first.message is not None
    assert [one.name for one in first.message.fields] == ["x"]


def test_official_client() -> None:
    """What it registers is read, here of a class whose file imports others."""
    registered = ProtobufNativeSchema(Type).schema_info().schema()
    root = parse_protobuf_native(registered.encode())
    assert root.name == "google.protobuf.Type"
    names = [one.name for one in Type.DESCRIPTOR.fields]
    assert [one.name for one in root.fields] == names


def test_other_topics() -> None:
    """Two topics may have different files of one name."""
    assert parsed(proto_file(message(field("a", 1, "E")))).fields[0].name == "a"
    assert parsed(proto_file(message(field("b", 2, "E")))).fields[0].name == "b"


def test_indented() -> None:
    """Order and white space of the JSON do not matter: Python writes many lines."""
    tree = json.loads(definition([MAIN, OTHER]))
    text = json.dumps(dict(reversed(tree.items())), indent=4)
    assert parse_protobuf_native(text.encode()).name == ROOT


def test_proto3() -> None:
    """Only messages, oneofs and what is `optional` have presence."""
    given = message(
        field("plain", 1, Field.TYPE_INT32),
        field("kept", 2, Field.TYPE_INT32, proto3_optional=True, oneof_index=1),
        field("one", 3, Field.TYPE_STRING, oneof_index=0),
        field("inner", 4, "M1"),
        field("many", 5, Field.TYPE_STRING, REPEATED),
        field("state", 6, "E"),
        oneofs=["o", "_kept"],
    )
    add_map(given, "map", 7, Field.TYPE_STRING, "E")
    root = parsed(proto_file(given, message(name="M1")))
    by_name = {one.name: one for one in root.fields}
    assert [one.name for one in root.fields if one.has_presence] == [
        "kept",
        "one",
        "inner",
    ]
    assert by_name["plain"].default == 0
    assert by_name["kept"].default is None
    assert by_name["one"].oneof == "o"
    assert by_name["many"].is_repeated
    assert by_name["state"].kind is Kind.ENUM
    assert by_name["state"].symbols == SYMBOLS
    assert by_name["map"].is_map
    entry = by_name["map"].message
    assert entry is not None
    assert [one.has_presence for one in entry.fields] == [False, False]


def test_proto2() -> None:
    """What is single has presence; some fields have a default besides."""
    given = message(
        field("a", 1, Field.TYPE_INT32),
        field("b", 2, Field.TYPE_INT32, default_value="7"),
        field("c", 3, Field.TYPE_BYTES, default_value="\\001"),
        field("d", 4, "E", default_value="LESS"),
        field("e", 5, Field.TYPE_BOOL, REQUIRED),
    )
    fields = parsed(proto_file(given, syntax="proto2")).fields
    assert all(one.has_presence for one in fields)
    assert [one.default for one in fields] == [None, 7, b"\1", -3, None]


def test_maps_of_proto2() -> None:
    """A part of an entry that is not there has its default, so it is always there."""
    given = message()
    add_map(given, "m", 1, Field.TYPE_STRING, Field.TYPE_INT32)
    (only,) = parsed(proto_file(given, syntax="proto2")).fields
    assert only.message is not None
    assert [one.default for one in only.message.fields] == ["", 0]


def test_extensions() -> None:
    """What other files add to a message is no field of it."""
    given = message(field("a", 1, Field.TYPE_INT32))
    given.extension_range.add(start=100, end=200)
    file = proto_file(given, syntax="proto2")
    extension = field("x", 100, Field.TYPE_INT32)
    extension.extendee = ".p.M0"
    file.extension.append(extension)
    assert [one.name for one in parsed(file).fields] == ["a"]


def test_a_message_in_itself() -> None:
    """It is the same object, so whoever walks it has to look out."""
    root = parsed(proto_file(message(field("next", 1, "M0"))))
    assert root.fields[0].message is root


def test_first_of_several_names() -> None:
    """A number of an enum may have more names; the first one counts."""
    file = proto_file(message(field("a", 1, "E")))
    file.enum_type[0].options.allow_alias = True
    file.enum_type[0].value.add(name="UNO", number=1)
    assert parsed(file).fields[0].symbols == SYMBOLS


def with_(**changes: Any) -> bytes:
    """A definition with other entries; None for none."""
    tree = {**json.loads(definition([MAIN, OTHER])), **changes}
    return json.dumps({k: v for k, v in tree.items() if v is not None}).encode()


LONG = proto_file(message(field("a", 1, "E")))
LONG.enum_type[0].value[1].name = "N" * 2000
CYCLE = proto_file(message(), name="other.proto")
CYCLE.dependency.append("root.proto")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "its definition is not JSON"),
        (b"\xff", "its definition is not JSON"),
        (b"[" * 100_000, "its definition is nested too deeply"),
        (b"[]", "its definition has no `fileDescriptorSet`"),
        (b" " * (8 * 2**20 + 1), "its definition has 8,388,609 bytes"),
        (
            with_(rootMessageTypeName=None),
            "its definition has no `rootMessageTypeName`",
        ),
        (with_(rootMessageTypeName=7), "its definition has no `rootMessageTypeName`"),
        (with_(fileDescriptorSet="?"), "is not a FileDescriptorSet in base64"),
        (with_(fileDescriptorSet="é"), "is not a FileDescriptorSet in base64"),
        (with_(fileDescriptorSet="AAAA"), "is not a FileDescriptorSet in base64"),
        (with_(rootMessageTypeName="p.No"), 'none of its files has the message "p.No"'),
        (with_(rootMessageTypeName="p.E"), 'none of its files has the message "p.E"'),
        (with_(rootMessageTypeName="\ud800"), "none of its files has the message"),
        (definition([MAIN]), 'imports "other.proto", which is not among them'),
        (definition([MAIN, CYCLE]), 'the file "root.proto" imports itself'),
        (definition([OTHER, CYCLE]), 'there are two different files "other.proto"'),
        (
            definition([proto_file(message(field("a", 1, "No")))]),
            'the file "root.proto" cannot be linked',
        ),
        (
            definition([proto_file(message(field("a", 0, Field.TYPE_INT32)))]),
            'the file "root.proto" cannot be linked',
        ),
        (definition([LONG]), 'a name of the enum "p.E" is longer than 1,024'),
    ],
)
def test_what_is_none(data: bytes, said: str) -> None:
    """Each has one error, which says what is wrong."""
    assert said in refused(data)


def test_many_fields() -> None:
    """There may be as many as anyone has, and not many more."""
    given = [
        message(
            *[field(f"f{n}", n, Field.TYPE_INT32) for n in range(1, 5001)],
            field("next", 18_000, f"M{at + 1}"),
            name=f"M{at}",
        )
        for at in range(4)
    ]
    file = proto_file(*given, message(name="M4"))
    assert refused(definition([file])) == "there are more than 20,000 fields"


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_definitions(data: st.DataObject) -> None:
    """Whatever a client registers, there is a message or this error."""
    whole = bytearray(FileDescriptorSet(file=[data.draw(files())]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.integers(at, min(len(whole), at + 5)))
        whole[at:end] = data.draw(st.binary(max_size=5))
    tree = {
        "fileDescriptorSet": base64.b64encode(whole).decode(),
        "rootMessageTypeName": ROOT,
    }
    with contextlib.suppress(InvalidSchemaError):
        assert parse_protobuf_native(json.dumps(tree).encode()).name == ROOT
