"""What can go wrong when bytes are read as protobuf, whichever runtime reads them.

The protocol's text is UTF-8 by its definition, but proto2 does not insist on it: the
usual runtime gives text that is not UTF-8 as bytes, the one in pure Python refuses the
whole message with a UnicodeDecodeError. Neither must surprise who expects a str.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

#: What parsing damaged bytes may raise. RecursionError: older runtimes in pure Python
#: follow groups to any depth.
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)


def holds_text(descriptor: Any, _seen: frozenset[str] = frozenset()) -> bool:
    """Whether messages of a type have fields of text, themselves or further down."""
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


def undecodable_text(message: Message) -> str:
    """Name of a field whose text is not UTF-8, as ``a.b``; "" where there is none."""
    for field, value in message.ListFields():
        values: Any = [value] if isinstance(value, (str, bytes, Message)) else value
        if field.type == field.TYPE_STRING:
            if not all(isinstance(text, str) for text in values):
                return str(field.name)
        elif field.message_type is not None:
            for inner in map(undecodable_text, values):
                if inner:
                    return f"{field.name}.{inner}"
    return ""
