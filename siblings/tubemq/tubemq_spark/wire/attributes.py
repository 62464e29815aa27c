# SPDX-License-Identifier: Apache-2.0
"""The stored bytes of a message: optional attributes, then the value.

::

    flag bit 0 clear   | value |
    flag bit 0 set     | size 4 | attributes | value |

Attributes are UTF-8 text, ``k=v,k2=v2``. Two keys belong to the system and come first:
``$msgType$``, by which readers filter, and ``$msgTime$``, twelve digits of a minute in
the producer's own zone, which no one stores.

Brokers look into this when they deliver, not when they store: a message whose bytes do
not have this form is acknowledged, and never delivered.

Source: InLong 2.4, Message and MessageFlagUtils.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tubemq_spark.errors import ProtocolError
from tubemq_spark.loops.messages import HAS_ATTRIBUTES

MSG_TYPE = "$msgType$"
MSG_TIME = "$msgTime$"

_SIZE = struct.Struct(">i")
_MSG_TIME_DIGITS = 12


class Stored(NamedTuple):
    """A message in the form that brokers store.

    Attributes:
        data: Attributes and value.
        flag: Whether there are attributes, in bit 0.
    """

    data: bytes
    flag: int


class Body(NamedTuple):
    """What a message says.

    Attributes:
        value: Its value.
        msg_type: Its type, None if it has none.
        msg_time: Its time as it is stored, None if it has none.
        attributes: Its other attributes.
    """

    value: bytes
    msg_type: str | None = None
    msg_time: str | None = None
    attributes: Mapping[str, str] = {}


def attributes_problem(
    attributes: Mapping[str, str], msg_type: str | None, msg_time: str | None
) -> str:
    """Return why attributes are invalid, "" if valid."""
    for key, value in attributes.items():
        if key in (MSG_TYPE, MSG_TIME):
            return f"the attribute {key!r} belongs to the system"
        if not key:
            return "an attribute has no name"
        for text in (key, value):
            if "," in text or "=" in text:
                return f"the attribute {key!r} has a comma or an equals sign in it"
    if msg_type is not None:
        if not msg_type or msg_type != msg_type.strip():
            return "the message type is empty, or begins or ends with a space"
        if "," in msg_type or "=" in msg_type:
            return f"the message type {msg_type!r} has a comma or an equals sign in it"
    if msg_time is not None and not (
        len(msg_time) == _MSG_TIME_DIGITS and msg_time.isascii() and msg_time.isdigit()
    ):
        return f"the message time {msg_time!r} is not twelve digits, yyyyMMddHHmm"
    return ""


def encode_body(body: Body) -> Stored:
    """Return the stored form of a message.

    Raises:
        ValueError: Its attributes cannot be told apart again, or there are no bytes at
            all, which brokers refuse.
    """
    problem = attributes_problem(body.attributes, body.msg_type, body.msg_time)
    if problem:
        raise ValueError(problem)
    pairs = []
    if body.msg_type is not None:
        pairs.append(f"{MSG_TYPE}={body.msg_type}")
    if body.msg_time is not None:
        pairs.append(f"{MSG_TIME}={body.msg_time}")
    pairs += [f"{key}={value}" for key, value in body.attributes.items()]
    if not pairs:
        if not body.value:
            raise ValueError("a message without attributes needs a value")
        return Stored(body.value, 0)
    text = ",".join(pairs).encode()
    return Stored(_SIZE.pack(len(text)) + text + body.value, HAS_ATTRIBUTES)


def decode_body(data: bytes, flag: int) -> Body:
    """Read the stored bytes of a message.

    Raises:
        ProtocolError: They do not have the form that the flag promises.
    """
    if not flag & HAS_ATTRIBUTES:
        return Body(data)
    text, value = split_body(data)
    return Body(value, *decode_attributes(text))


def split_body(data: bytes) -> tuple[bytes, bytes]:
    """Return a message's attributes, undecoded, and its value.

    Raises:
        ProtocolError: They do not fit into its bytes.
    """
    if len(data) < _SIZE.size:
        raise ProtocolError(f"Its attributes need 4 bytes at least, of {len(data)}.")
    (size,) = _SIZE.unpack_from(data)
    end = _SIZE.size + size
    if not _SIZE.size <= end <= len(data):
        raise ProtocolError(f"Its attributes have {size} bytes, of {len(data)}.")
    return data[_SIZE.size : end], data[end:]


def decode_attributes(
    text: bytes,
) -> tuple[str | None, str | None, Mapping[str, str]]:
    """Return type, time and further attributes, as in `Body`.

    Of equal keys the first one holds, and values end where the next pair begins, so
    that they may have equals signs in them.

    Raises:
        ProtocolError: The text is not UTF-8.
    """
    try:
        pairs = text.decode().split(",")
    except UnicodeDecodeError:
        raise ProtocolError("Its attributes are not UTF-8.") from None
    decoded: dict[str, str] = {}
    for pair in pairs:
        if pair:
            key, _, attribute = pair.partition("=")
            decoded.setdefault(key, attribute)
    return decoded.pop(MSG_TYPE, None), decoded.pop(MSG_TIME, None), decoded
