# SPDX-License-Identifier: Apache-2.0
"""Schemas of type PROTOBUF_NATIVE as trees of messages and fields.

Their definition is JSON, with the files that protoc compiled in base64::

    {"fileDescriptorSet": "Cg0K...", "rootMessageTypeName": "package.Message",
     "rootFileDescriptorName": "message.proto"}

The files come in any order, and the same one may come twice: clients differ. The
official runtime links them, in a pool of their own, as other topics may have other
files of these names. proto2, proto3 and editions differ by what it says of each field.

Sources: "Protocol Buffers" language guides; descriptor.proto;
ProtobufNativeSchemaUtils.java, schema_protobuf.py and ProtobufNativeSchema.cc.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from pulsar_spark.schemas.info import InvalidSchemaError, read_json
from spark_topics.text import shorten

#: More than any topic has, and few enough for a plan.
_MAX_FIELDS = 20_000
_MAX_TEXT = 1024  # of names of enums and of defaults: rows may all have it


class Kind(enum.IntEnum):
    """Protobuf's types, by their number in descriptor.proto."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    GROUP = 10
    MESSAGE = 11
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18


@dataclass(eq=False)
class MessageType:
    """A message type; recursive messages share the object.

    Attributes:
        name: Its full name.
        fields: Its fields, in the order of their declaration; no extensions.
        is_map_entry: Whether it means the entries of a map.
    """

    name: str
    fields: tuple[ProtobufField, ...] = ()
    is_map_entry: bool = False


@dataclass(eq=False)
class ProtobufField:
    """A field of a message.

    Attributes:
        name: Its name.
        number: What means it in payloads.
        kind: Its type; a message that is written as a group is of kind GROUP.
        is_repeated: Whether it is a list; also a map is.
        has_presence: Whether a message knows if it has it.
        default: The value of an absent field, unless ``has_presence``, or with it but
            declared; None for none. That of an enum is a number.
        oneof: The name of the oneof that it belongs to, "" for none.
        message: Of the kinds MESSAGE and GROUP.
        symbols: Of the kind ENUM: names by their numbers, the first of several.
    """

    name: str
    number: int
    kind: Kind
    is_repeated: bool = False
    has_presence: bool = False
    default: bool | int | float | str | bytes | None = None
    oneof: str = ""
    message: MessageType | None = None
    symbols: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        """Return whether the field is a map."""
        return self.message is not None and self.message.is_map_entry


def parse_protobuf_native(data: bytes) -> MessageType:
    """Parse a definition; return the root message.

    Args:
        data: The ``schema_data`` of the registry.

    Raises:
        InvalidSchemaError: It is no such definition, or far too large.
    """
    tree = read_json(data, "definition")
    files = _files(_text(tree, "fileDescriptorSet"))
    root = _text(tree, "rootMessageTypeName")
    return _Reader().message(_linked(files, root))


def _text(tree: Any, key: str) -> str:
    text = tree.get(key) if isinstance(tree, dict) else None
    if not isinstance(text, str) or not text:
        raise InvalidSchemaError(f"its definition has no `{key}`")
    return text


def _files(text: str) -> dict[str, FileDescriptorProto]:
    """Return the files by their names."""
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise InvalidSchemaError(
            "its `fileDescriptorSet` is not a FileDescriptorSet in base64"
        ) from None
    by_name: dict[str, FileDescriptorProto] = {}
    for file in files.file:
        if by_name.setdefault(file.name, file) != file:
            raise InvalidSchemaError(
                f"there are two different files {shorten(file.name)}"
            )
    return by_name


def _linked(files: dict[str, FileDescriptorProto], root: str) -> Descriptor:
    """Return the descriptor of the root message."""
    pool = DescriptorPool()
    names = list(_in_order(files))
    candidate = ""
    try:
        for candidate in names:
            pool.AddSerializedFile(files[candidate].SerializeToString())
    except (TypeError, ValueError, DecodeError) as error:
        raise InvalidSchemaError(
            f"the file {shorten(candidate)} cannot be linked"
            f" ({shorten(str(error), 300)})"
        ) from None
    try:
        # A name that is no UTF-8, say with half of a surrogate, is not found, either.
        return pool.FindMessageTypeByName(root)
    except (KeyError, TypeError, ValueError):
        raise InvalidSchemaError(
            f"none of its files has the message {shorten(root)}"
        ) from None


def _in_order(files: dict[str, FileDescriptorProto]) -> Iterator[str]:
    """Yield file names so that imported files come first."""
    done: set[str] = set()
    for first in files:
        # What is open, from the importing file to the imported one, and what each has
        # still to import.
        open_ = {first: iter(files[first].dependency)} if first not in done else {}
        while open_:
            name, imports = next(reversed(open_.items()))
            needed = next(
                (needed_name for needed_name in imports if needed_name not in done),
                None,
            )
            if needed is None:
                done.add(name)
                del open_[name]
                yield name
            elif needed not in files:
                raise InvalidSchemaError(
                    f"the file {shorten(name)} imports {shorten(needed)}, which is not "
                    "among them"
                )
            elif needed in open_:
                raise InvalidSchemaError(
                    f"the file {shorten(needed)} imports itself, over others"
                )
            else:
                open_[needed] = iter(files[needed].dependency)


@dataclass
class _Reader:
    """A parser for a single definition.

    Attributes:
        messages: Those that are known, by their full name.
        symbols: Those of enums, by the enum's full name.
        fields: How many there were.
    """

    messages: dict[str, MessageType] = field(default_factory=dict)
    symbols: dict[str, dict[int, str]] = field(default_factory=dict)
    fields: int = 0

    def message(self, root: Descriptor) -> MessageType:
        """Return a message with all nested messages."""
        root_message = self._named(root)
        waiting = [root]
        while waiting:
            descriptor = waiting.pop()
            self.fields += len(descriptor.fields)
            if self.fields > _MAX_FIELDS:
                raise InvalidSchemaError(f"there are more than {_MAX_FIELDS:,} fields")
            inner = [
                field.message_type for field in descriptor.fields if field.message_type
            ]
            for message in inner:
                if message.full_name not in self.messages:
                    self._named(message)
                    waiting.append(message)
            self.messages[descriptor.full_name].fields = tuple(
                map(self._field, descriptor.fields)
            )
        return root_message

    def _named(self, descriptor: Descriptor) -> MessageType:
        """Return a new message, still empty: its fields may refer to the message."""
        new = MessageType(
            descriptor.full_name, is_map_entry=descriptor.GetOptions().map_entry
        )
        self.messages[descriptor.full_name] = new
        return new

    def _field(self, descriptor: FieldDescriptor) -> ProtobufField:
        within = descriptor.containing_type
        in_map = within is not None and within.GetOptions().map_entry
        result = ProtobufField(
            descriptor.name,
            descriptor.number,
            Kind(descriptor.type),
            _is_repeated(descriptor),
            descriptor.has_presence and not in_map,
        )
        if descriptor.containing_oneof:
            result.oneof = descriptor.containing_oneof.name
        if descriptor.message_type:
            result.message = self.messages[descriptor.message_type.full_name]
        elif not result.is_repeated and (
            descriptor.has_default_value or not result.has_presence
        ):
            result.default = descriptor.default_value
            _check_text(
                result.default, f"the default of the field {shorten(result.name)}"
            )
        if descriptor.enum_type:
            result.symbols = self._symbols(descriptor.enum_type)
        return result

    def _symbols(self, descriptor: EnumDescriptor) -> dict[int, str]:
        symbols = self.symbols.get(descriptor.full_name)
        if symbols is None:
            symbols = self.symbols[descriptor.full_name] = {}
            for value in descriptor.values:
                _check_text(
                    value.name, f"a name of the enum {shorten(descriptor.full_name)}"
                )
                symbols.setdefault(value.number, value.name)
        return symbols


def _check_text(text: object, what: str) -> None:
    if isinstance(text, (str, bytes)) and len(text) > _MAX_TEXT:
        raise InvalidSchemaError(f"{what} is longer than {_MAX_TEXT:,}")


def _is_repeated(descriptor: Any) -> bool:
    """Return whether a field is repeated, without a deprecation warning."""
    if hasattr(descriptor, "is_repeated"):
        return bool(descriptor.is_repeated)
    return bool(descriptor.label == FieldDescriptor.LABEL_REPEATED)
