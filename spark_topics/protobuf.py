# SPDX-License-Identifier: Apache-2.0
"""Protobuf decoding errors, alike for all protobuf runtimes.

The protocol defines its text as UTF-8, but proto2 does not enforce it: the usual
runtime returns text that is not UTF-8 as bytes, the one in pure Python refuses the
whole message with a UnicodeDecodeError. Callers must get neither in place of a str.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf.message import DecodeError, Message

#: What parsing damaged bytes may raise. RecursionError: older runtimes in pure Python
#: follow groups to any depth.
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)


def holds_text(descriptor: Any, _seen: frozenset[str] = frozenset()) -> bool:
    """Return whether a message type has text fields, also in nested messages."""
    seen = _seen | {descriptor.full_name}
    return any(
        field.type == field.TYPE_STRING
        or (
            field.message_type is not None
            and field.message_type.full_name not in seen
            and holds_text(field.message_type, seen)
        )
        for field in descriptor.fields
    )


#: Asked of each message that holds others, of which there may be thousands.
_holds_text = functools.cache(holds_text)


def undecodable_text(message: Message) -> str:
    """Return the name of a field whose text is not UTF-8, as ``a.b``, or ""."""
    if not _holds_text(message.DESCRIPTOR):
        return ""
    for field, value in message.ListFields():
        values: Any = [value] if isinstance(value, (str, bytes, Message)) else value
        if field.type == field.TYPE_STRING:
            if not all(isinstance(text, str) for text in values):
                return str(field.name)
        elif field.message_type is not None and _holds_text(field.message_type):
            for inner in map(undecodable_text, values):
                if inner:
                    return f"{field.name}.{inner}"
    return ""
