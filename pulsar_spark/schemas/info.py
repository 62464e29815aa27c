# SPDX-License-Identifier: Apache-2.0
"""A schema in the registry of a cluster."""

from __future__ import annotations

import enum
import functools
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Most bytes of a definition that are read: more than any topic has.
_MAX_BYTES = 8 * 2**20


class SchemaType(enum.IntEnum):
    """Kinds of schemas, by their number in the protocol (``Schema.Type``)."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20


@dataclass(frozen=True)
class SchemaInfo:
    """A version of a topic's schema.

    Attributes:
        type: Its number in the protocol; one that ``SchemaType`` does not know is
            of a newer broker.
        data: The definition, in a form that depends on the type.
        properties: As they were registered.
        version: The 8 bytes by which messages name it; empty for a schema that is not
            registered.
    """

    type: int
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    version: bytes = b""

    def __reduce__(self) -> tuple[Any, ...]:
        # Each task of a plan has it: of 5,000 tasks it would be most of what travels.
        packed = _packed(self.data)
        return _unpacked, (self.type, packed, dict(self.properties), self.version)

    @property
    def type_name(self) -> str:
        """Return the name of the type in Pulsar's tools."""
        try:
            return SchemaType(self.type).name
        except ValueError:
            return f"of the unknown type {self.type}"

    @property
    def name(self) -> str:
        """Return what Java's client calls it; brokers do not keep that."""
        type_name = self.type_name
        if type_name.startswith("INT") and type_name[3:].isdigit():
            return type_name
        if self.type in (SchemaType.AVRO, SchemaType.JSON):
            return ""
        return "".join(map(str.title, type_name.split("_")))

    @property
    def is_typed(self) -> bool:
        """Return whether values have a type; a deleted schema is of type NONE."""
        return self.type != SchemaType.NONE


@functools.lru_cache(maxsize=4)
def _packed(data: bytes) -> bytes:
    return zlib.compress(data)


def _unpacked(
    type_: int, packed: bytes, properties: Mapping[str, str], version: bytes
) -> SchemaInfo:
    return SchemaInfo(type_, zlib.decompress(packed), properties, version)


class InvalidSchemaError(ValueError):
    """The definition of a schema cannot be read, or not be mapped to columns.

    Its text names the field, and is a part of a sentence; who knows the topic and the
    version makes a ``SchemaError`` of it.
    """


class UnfitColumnsError(InvalidSchemaError):
    """Columns do not fit a writable schema; the text names the column."""


def not_unicode() -> InvalidSchemaError:
    """Return the error for a name that is half of a surrogate pair."""
    return InvalidSchemaError("it has a name that is not Unicode, half of a character")


def read_json(data: bytes, name: str) -> Any:
    """Read a definition that is JSON.

    Args:
        data: In UTF-8.
        name: The word for it in errors: ``text`` or ``definition``.

    Raises:
        InvalidSchemaError: It is not JSON, nested without end, or far too large.
    """
    if len(data) > _MAX_BYTES:
        raise InvalidSchemaError(f"its {name} has {len(data):,} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise InvalidSchemaError(f"its {name} is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchemaError(f"its {name} is not JSON ({error})") from None


def version_number(version: bytes) -> int | None:
    """Return the number of a version as shown by tools; None without a number."""
    return int.from_bytes(version, "big", signed=True) if len(version) == 8 else None


def version_bytes(number: int) -> bytes:
    """Return the 8 bytes by which messages name a version."""
    return number.to_bytes(8, "big", signed=True)
