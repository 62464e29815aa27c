# SPDX-License-Identifier: Apache-2.0
"""Defaults of AVRO's schemas as bytes: what a field gets that the rows do not have.

Implements "Schema Declaration", "Records" (defaults) and "Binary Encoding" of the
Apache Avro specification 1.11.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pulsar_spark.schemas.avro import AvroType, Kind
from pulsar_spark.schemas.info import InvalidSchemaError


def default_bytes(type_: AvroType, default: Any, where: str) -> bytes:
    """Return a default as a value has it.

    Args:
        type_: The field's.
        default: As JSON has it. Of a union it is of the first branch, or, as brokers
            let pass, of any other.
        where: The path to the field, for errors.

    Raises:
        InvalidSchemaError: It is not of that type. Brokers do not look.
    """
    try:
        return _encode(type_, default)
    except (
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
        struct.error,
        OverflowError,
    ):
        raise InvalidSchemaError(
            f"`{where}` is not among the columns, and its default is none of its type"
        ) from None


def long_bytes(number: int) -> bytes:
    """Return a long as AVRO writes it."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(number)
    left = number << 1 if number >= 0 else -(number << 1) - 1
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _encode(type_: AvroType, default: Any) -> bytes:
    if type_.kind in _SIMPLE:
        return _SIMPLE[type_.kind](default)
    if type_.kind is Kind.UNION:
        return _union(type_, default)
    if type_.kind is Kind.RECORD:
        return b"".join(
            _encode(one.type, default.get(one.name, one.default))
            for one in type_.fields
        )
    if type_.kind is Kind.ENUM:
        return long_bytes(type_.symbols.index(default))
    if type_.kind is Kind.FIXED:
        found = _latin(default)
        if len(found) != type_.size:
            raise ValueError(default)
        return found
    assert type_.items is not None
    if type_.kind is Kind.ARRAY and isinstance(default, list):
        items = [_encode(type_.items, one) for one in default]
    elif type_.kind is Kind.MAP:
        items = [_text(k) + _encode(type_.items, v) for k, v in default.items()]
    else:
        raise TypeError(default)
    return (long_bytes(len(items)) if items else b"") + b"".join(items) + b"\0"


def _union(type_: AvroType, default: Any) -> bytes:
    for branch, one in enumerate(type_.branches):
        try:
            return long_bytes(branch) + _encode(one, default)
        except (TypeError, ValueError, KeyError, AttributeError, struct.error):
            continue
    raise ValueError(default)


def _null(default: Any) -> bytes:
    if default is not None:
        raise TypeError(default)
    return b""


def _boolean(default: Any) -> bytes:
    if not isinstance(default, bool):
        raise TypeError(default)
    return bytes((default,))


def _integer(default: Any) -> bytes:
    if isinstance(default, bool) or not isinstance(default, int):
        raise TypeError(default)
    return long_bytes(default)


def _floating(form: str) -> Callable[[Any], bytes]:
    def encode(default: Any) -> bytes:
        if isinstance(default, (bool, str)):
            raise TypeError(default)
        return struct.pack(form, default)

    return encode


def _latin(default: Any) -> bytes:
    """Return bytes, each of which a character stands for: not UTF-8."""
    if not isinstance(default, str):
        raise TypeError(default)
    return default.encode("latin-1")


def _text(default: Any) -> bytes:
    if not isinstance(default, str):
        raise TypeError(default)
    found = default.encode()
    return long_bytes(len(found)) + found


def _bytes(default: Any) -> bytes:
    found = _latin(default)
    return long_bytes(len(found)) + found


_SIMPLE: dict[Kind, Callable[[Any], bytes]] = {
    Kind.NULL: _null,
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer,
    Kind.LONG: _integer,
    Kind.FLOAT: _floating("<f"),
    Kind.DOUBLE: _floating("<d"),
    Kind.BYTES: _bytes,
    Kind.STRING: _text,
}
