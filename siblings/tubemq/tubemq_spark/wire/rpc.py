# SPDX-License-Identifier: Apache-2.0
"""The envelope of a call: three protobuf messages, each after its size.

::

    request  | size | RpcConnHeader | size | RequestHeader  | size | RequestBody |
    reply    | size | RpcConnHeader | size | ResponseHeader | size | body        |

``size`` is a varint, and the first message says by a flag which it is. The body of a
reply is an RspResponseBody where the status is SUCCESS and an RspExceptionBody else; an
error code of the method itself is a success here. A request always has a time limit: a
server that is given none does what it is asked, and never answers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from spark_topics.protobuf import UNREADABLE, undecodable_text
from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire import tubemq_pb2 as pb

MessageT = TypeVar("MessageT", bound=Message)

_REQUEST, _REPLY = 0, 1
_SUCCESS = 0
_PROTOCOL_VERSION = 3
_MAX_VARINT_BYTES = 5

#: What comes before the fields of an RspResponseBody.
_METHOD_TAG, _DATA_TAG = b"\x08", b"\x12"


class Service(enum.IntEnum):
    """Which part of a server answers."""

    MASTER = 1
    BROKER_READ = 2
    BROKER_WRITE = 3


@dataclass(frozen=True)
class Result:
    """A call came back.

    Attributes:
        method: Number of the method that was called.
        data: Serialized reply of it.
    """

    method: int
    data: bytes | memoryview


@dataclass(frozen=True)
class Failure:
    """A server threw an exception instead of answering.

    Attributes:
        exception: Name of its class, without packages.
        message: The text.
        is_fatal: Whether the server calls it fatal: it is starting or stopping.
    """

    exception: str
    message: str
    is_fatal: bool


def encode_request(
    method: int, service: Service, timeout_ms: int, body: Message
) -> bytes:
    """Return a call as the payload of a frame.

    Args:
        method: Its number.
        service: Who answers it.
        timeout_ms: After how many milliseconds the server need not answer any more.
        body: What the method is given.

    Raises:
        ValueError: The time limit is not above 0.
    """
    if timeout_ms <= 0:
        raise ValueError(f"A call needs a time limit above 0, not {timeout_ms}.")
    return b"".join(
        (
            _HEADERS[service],
            _delimited(
                pb.RequestBody(
                    method=method,
                    timeout=timeout_ms,
                    request=body.SerializeToString(),
                )
            ),
        )
    )


def decode_reply(payload: bytes | memoryview) -> Result | Failure:
    """Read the payload of a frame that a server sent.

    Raises:
        ProtocolError: It is not a reply.
    """
    if payload[: len(_SUCCEEDED)] == _SUCCEEDED:
        return _result(payload, len(_SUCCEEDED))
    header, position = _next(payload, 0, pb.RpcConnHeader())
    if header.flag != _REPLY:
        raise ProtocolError(f"A server sent a frame with flag {header.flag}, no reply.")
    response, position = _next(payload, position, pb.ResponseHeader())
    if not response.HasField("status"):
        raise ProtocolError("A reply has no status.")
    if response.status != _SUCCESS:
        error, _ = _next(payload, position, pb.RspExceptionBody())
        return Failure(
            error.exceptionName.rpartition(".")[2],
            error.stackTrace,
            response.status > 1,
        )
    return _result(payload, position)


def _result(payload: bytes | memoryview, offset: int) -> Result:
    ordinary = _ordinary(payload, offset)
    if ordinary is not None:
        return ordinary
    body, _ = _next(payload, offset, pb.RspResponseBody())
    if not (body.HasField("method") and body.HasField("data")):
        raise ProtocolError("A reply has no method, or no data.")
    return Result(body.method, body.data)


def _ordinary(payload: bytes | memoryview, offset: int) -> Result | None:
    """Parse an RspResponseBody in the servers' usual form; large data stay views.

    Returns:
        None if it is written in another way, which may be as good.
    """
    size, begin = _varint(payload, offset, "RspResponseBody")
    end = begin + size
    if end != len(payload) or payload[begin : begin + 1] != _METHOD_TAG:
        return None
    method, offset = payload[begin + 1 : begin + 2], begin + 2
    if (
        len(method) != 1
        or method[0] >= 0x80
        or payload[offset : offset + 1] != _DATA_TAG
    ):
        return None
    data_bytes, offset = _varint(payload, offset + 1, "RspResponseBody")
    if offset + data_bytes != end:
        return None
    return Result(method[0], memoryview(payload)[offset:])


def parse(message: MessageT, data: bytes | memoryview) -> MessageT:
    """Parse a message from bytes and return the message.

    Raises:
        ProtocolError: The bytes are no such message, or text in it is not UTF-8.
    """
    name = message.DESCRIPTOR.name
    try:
        message.ParseFromString(bytes(data))
        bad = undecodable_text(message)
    except UNREADABLE as error:
        raise ProtocolError(f"A {name} cannot be read: {error}") from None
    if bad:
        raise ProtocolError(f"A {name} has a {bad} that is not UTF-8.")
    return message


def _next(
    payload: bytes | memoryview, offset: int, message: MessageT
) -> tuple[MessageT, int]:
    size, offset = _varint(payload, offset, message.DESCRIPTOR.name)
    end = offset + size
    if end > len(payload):
        raise ProtocolError(
            f"A {message.DESCRIPTOR.name} of {size} bytes does not fit in its frame."
        )
    return parse(message, memoryview(payload)[offset:end]), end


def _varint(payload: bytes | memoryview, offset: int, name: str) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        if offset == len(payload):
            raise ProtocolError(f"A frame ends before its {name}.")
        byte = payload[offset]
        offset += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, offset
    raise ProtocolError(f"The size of a {name} is no number.")


def _delimited(message: Message) -> bytes:
    body = message.SerializeToString()
    size = len(body)
    prefix = bytearray()
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + body


#: What comes before the body of every request.
_HEADERS = {
    service: _delimited(pb.RpcConnHeader(flag=_REQUEST))
    + _delimited(
        pb.RequestHeader(serviceType=int(service), protocolVer=_PROTOCOL_VERSION)
    )
    for service in Service
}

#: How the replies begin that servers write to what succeeded.
_SUCCEEDED = _delimited(pb.RpcConnHeader(flag=_REPLY)) + _delimited(
    pb.ResponseHeader(status=_SUCCESS, protocolVer=_PROTOCOL_VERSION)
)
