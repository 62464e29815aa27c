# SPDX-License-Identifier: Apache-2.0
"""Schemas of type PROTOBUF_NATIVE, random ones too, and what the official runtime says.

The expected columns come from the runtime's own dynamic messages.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from pulsar_spark.schemas.info import SchemaInfo, SchemaType

Field = FieldDescriptorProto
OPTIONAL, REQUIRED, REPEATED = 1, 2, 3
ROOT = "p.M0"

#: Names of the enum of all these files, by number.
SYMBOLS = {0: "ZERO", 1: "ONE", -3: "LESS"}

NUMBERS = {
    Field.TYPE_DOUBLE: st.floats(),
    Field.TYPE_FLOAT: st.floats(width=32),
    Field.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    Field.TYPE_UINT64: st.integers(0, 2**64 - 1),
    Field.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    Field.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    Field.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    Field.TYPE_BOOL: st.booleans(),
    Field.TYPE_UINT32: st.integers(0, 2**32 - 1),
    Field.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1),
    Field.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    Field.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    Field.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1),
    Field.TYPE_ENUM: st.sampled_from([0, 1, -3]),
}
VALUES = {
    **NUMBERS,
    Field.TYPE_STRING: st.text(max_size=8),
    Field.TYPE_BYTES: st.binary(max_size=8),
}
KEYS = [
    one
    for one in VALUES
    if one
    not in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT, Field.TYPE_BYTES, Field.TYPE_ENUM)
]


def definition(files: Iterable[FileDescriptorProto], root: str = ROOT) -> bytes:
    """The ``schema_data`` that has these files."""
    files_set = FileDescriptorSet(file=files).SerializeToString()
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files_set).decode(),
            "rootMessageTypeName": root,
            "rootFileDescriptorName": "root.proto",
        }
    ).encode()


def info(*files: FileDescriptorProto, root: str = ROOT) -> SchemaInfo:
    """A schema of these files."""
    return SchemaInfo(SchemaType.PROTOBUF_NATIVE, definition(files, root))


def proto_file(
    *messages: DescriptorProto, syntax: str = "proto3", name: str = "root.proto"
) -> FileDescriptorProto:
    """A file of the package ``p``, with the enum ``p.E``."""
    file = FileDescriptorProto(
        name=name, package="p", syntax=syntax, message_type=messages
    )
    if name == "root.proto":
        symbols = file.enum_type.add(name="E")
        for number, symbol in SYMBOLS.items():
            symbols.value.add(name=symbol, number=number)
    return file


def field(
    name: str, number: int, type_: Any, label: Any = OPTIONAL, **others: Any
) -> FieldDescriptorProto:
    """A field; of a message, or of the enum, where its type is a name."""
    if isinstance(type_, str):
        others.update(type_name=f".p.{type_}")
        type_ = Field.TYPE_ENUM if type_ == "E" else Field.TYPE_MESSAGE
    return FieldDescriptorProto(
        name=name, number=number, type=type_, label=label, **others
    )


def message(
    *fields: FieldDescriptorProto, name: str = "M0", oneofs: Sequence[str] = ()
) -> DescriptorProto:
    """A message; ``oneof_index`` of its fields counts ``oneofs``."""
    found = DescriptorProto(name=name, field=fields)
    for one in oneofs:
        found.oneof_decl.add(name=one)
    return found


def add_map(to: DescriptorProto, name: str, number: int, key: Any, value: Any) -> None:
    """Add a field that is a map."""
    entry = f"{name.capitalize()}Entry"
    nested = to.nested_type.add(name=entry)
    nested.options.map_entry = True
    nested.field.extend([field("key", 1, key), field("value", 2, value)])
    to.field.append(field(name, number, f"{to.name}.{entry}", REPEATED))


def message_class(*files: FileDescriptorProto, root: str = ROOT) -> Any:
    """The runtime's class for the root."""
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(root))


def with_open_enums(file: FileDescriptorProto) -> FileDescriptorProto:
    """The file with numbers in place of enums: so the runtime keeps all of these."""
    changed = FileDescriptorProto.FromString(file.SerializeToString())
    waiting = list(changed.message_type)
    while waiting:
        one = waiting.pop()
        waiting.extend(one.nested_type)
        for each in one.field:
            if each.type == Field.TYPE_ENUM:
                each.type = Field.TYPE_INT32
                each.ClearField("type_name")
    return changed


# -- What rows are expected -----------------------------------------------------------


def expected(found: Any, enums: Descriptor) -> dict[str, Any]:
    """The row of a message of the runtime.

    Args:
        found: The message, of ``with_open_enums``.
        enums: The descriptor of the same message with its enums.
    """
    return {
        one.name: _value(found, one, enums.fields_by_name[one.name])
        for one in found.DESCRIPTOR.fields
    }


def _value(found: Any, one: FieldDescriptor, typed: FieldDescriptor) -> Any:
    if typed.message_type and typed.message_type.GetOptions().map_entry:
        of = typed.message_type.fields_by_name["value"]
        return {
            _canonical(key): _item(value, of)
            for key, value in getattr(found, one.name).items()
        }
    if is_repeated(typed):
        return [_item(item, typed) for item in getattr(found, one.name)]
    is_absent = one.has_presence and not found.HasField(one.name)
    if is_absent and (one.message_type or not one.has_default_value):
        return None
    return _item(getattr(found, one.name), typed)


def is_repeated(one: Any) -> bool:
    """Whether a field is a list."""
    if hasattr(one, "is_repeated"):
        return bool(one.is_repeated)
    return bool(one.label == FieldDescriptor.LABEL_REPEATED)


def _item(value: Any, typed: FieldDescriptor) -> Any:
    if typed.message_type:
        return expected(value, typed.message_type)
    if typed.enum_type:
        return SYMBOLS.get(value, str(value))
    return _canonical(value)


def _canonical(value: Any) -> Any:
    """What compares as its bits do."""
    return struct.pack("d", value) if isinstance(value, float) else value


def rows(
    columns: Sequence[pa.Array], schema: pa.Schema, count: int
) -> list[dict[str, Any]]:
    """The rows of decoded columns, as ``expected`` has them."""
    found: list[dict[str, Any]] = [{} for _ in range(count)]
    for column, one in zip(columns, schema, strict=True):
        assert column.type == one.type
        column.validate(full=True)
        for row, value in zip(found, column.to_pylist(), strict=True):
            row[one.name] = _row(value, one.type)
    return found


def _row(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {one.name: _row(value[one.name], one.type) for one in type_}
    if pa.types.is_map(type_):
        found = {_row(k, type_.key_type): _row(v, type_.item_type) for k, v in value}
        assert len(found) == len(value)
        return found
    if pa.types.is_list(type_):
        return [_row(one, type_.value_type) for one in value]
    return int(value) if isinstance(value, Decimal) else _canonical(value)


# -- Random ones ----------------------------------------------------------------------


@st.composite
def files(draw: st.DrawFn) -> FileDescriptorProto:
    """A file with one to three messages, each with some fields of the next ones."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    count = draw(st.integers(1, 3))
    messages = [_random_message(draw, number, count, syntax) for number in range(count)]
    return proto_file(*messages, syntax=syntax)


def _random_message(
    draw: st.DrawFn, number: int, count: int, syntax: str
) -> DescriptorProto:
    found = message(name=f"M{number}")
    numbers = draw(
        st.lists(
            st.integers(1, 20) | st.sampled_from([2**11, 2**16, 2**29 - 1]),
            max_size=6,
            unique=True,
        )
    )
    inner = [f"M{one}" for one in range(number + 1, count)]
    types = [*VALUES, *inner, *inner, *inner]
    for at, one in enumerate(numbers):
        name, type_ = f"f{at}", draw(st.sampled_from(types))
        shape = draw(st.sampled_from(["plain", "plain", "repeated", "map", "oneof"]))
        if type_ == Field.TYPE_ENUM:
            type_ = "E"
        if shape == "map":
            add_map(found, name, one, draw(st.sampled_from(KEYS)), type_)
        elif shape == "repeated":
            new = found.field.add()
            new.CopyFrom(field(name, one, type_, REPEATED))
            if new.type in NUMBERS:
                new.options.packed = draw(st.booleans())
        elif syntax == "proto2" and type_ in inner and draw(st.booleans()):
            # A group has the name of its message, and a message of its own.
            label = draw(st.sampled_from([OPTIONAL, REPEATED]))
            nested = found.nested_type.add(name=f"G{at}")
            nested.field.append(field("inner", 3, type_))
            new = found.field.add()
            new.CopyFrom(field(f"g{at}", one, f"M{number}.G{at}", label))
            new.type = Field.TYPE_GROUP
        elif shape == "oneof":
            found.field.append(field(name, one, type_, oneof_index=0))
        else:
            found.field.append(field(name, one, type_))
    if any(one.HasField("oneof_index") for one in found.field):
        found.oneof_decl.add(name="o")
    if syntax == "proto3":
        _add_presence(draw, found)
    return found


def _add_presence(draw: st.DrawFn, found: DescriptorProto) -> None:
    for one in found.field:
        if (
            one.label == OPTIONAL
            and not one.HasField("oneof_index")
            and draw(st.booleans())
        ):
            one.proto3_optional = True
            one.oneof_index = len(found.oneof_decl)
            found.oneof_decl.add(name=f"_{one.name}")


def fill(draw: st.DrawFn, found: Any) -> None:
    """Give fields of a message of the runtime random values."""
    for one in found.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        at = getattr(found, one.name)
        if one.message_type and one.message_type.GetOptions().map_entry:
            key = VALUES[one.message_type.fields_by_name["key"].type]
            of = one.message_type.fields_by_name["value"]
            for each in draw(st.lists(key, max_size=3)):
                if of.message_type:
                    fill(draw, at[each])
                else:
                    at[each] = draw(VALUES[of.type])
        elif is_repeated(one):
            for _ in range(draw(st.integers(0, 3))):
                if one.message_type:
                    fill(draw, at.add())
                else:
                    at.append(draw(VALUES[one.type]))
        elif one.message_type:
            at.SetInParent()
            fill(draw, at)
        else:
            setattr(found, one.name, draw(VALUES[one.type]))


def payloads(draw: st.DrawFn, class_: Any) -> bytes:
    """The bytes of one random message, or of a few: they are one, too."""
    parts = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        found = class_()
        fill(draw, found)
        parts.append(found.SerializePartialToString())
    return b"".join(parts)


def mutated(draw: st.DrawFn, payload: bytes) -> bytes:
    """A payload with some bytes changed, added, taken away or repeated."""
    found = bytearray(payload)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found)))
        end = draw(st.integers(at, min(len(found), at + 4)))
        with_ = draw(
            st.binary(max_size=3)
            | st.sampled_from([b"\xff" * 9, b"\x80\x80\x00", bytes(found[:20])])
        )
        found[at:end] = with_
    return bytes(found)
