# SPDX-License-Identifier: Apache-2.0
"""The loops over requests and their replies, of which a plan has hundreds of thousands.

A request is framed with its request id before the other fields of its body, where
the id is the first field, else after these::

    size(4) size(4) 08 type <type*8+2> n [08 number body]  or  [body <tag> number]

Replies are read by the buffer, while they are usual: SUCCESS and ACK_RESPONSE that say
no more than whose they are, and GET_LAST_MESSAGE_ID_RESPONSE::

    08 0D 6A n      [08 number]
    08 26 B2 02 n   [08 consumer 10 bits 18 bits 30 number]
    08 1E F2 01 n   [0A n id 10 number 1A n [08 ledger 10 entry]]
                         id: [08 ledger 10 entry 18 partition 20 index 30 size]

The bits, and of an id what follows its entry, may be left out. Any other frame ends the
walk and takes the path of a `Frame`, which says what is wrong with it, too. So nothing
in here may accept what that path would refuse, or read it differently.

This file runs as it is, and is compiled as ``messages.py`` is, together with
``requests.pxd``, which gives the types.

Source: BaseCommand and its messages in PulsarApi.proto; "Protocol Buffers encoding" for
their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pulsar_spark.loops.sends import Cursor
from spark_topics.loops import memory


class Reply(NamedTuple):
    """A request succeeded.

    Attributes:
        request_id: The number of the request.
        body: The content of the reply; usually the command's own message, such as a
            CommandLookupTopicResponse.
    """

    request_id: int
    body: Any


_new = tuple.__new__

#: Types of commands.
_SUCCESS = 13
_GET_LAST_MESSAGE_ID_RESPONSE = 30
_ACK_RESPONSE = 38

#: Of the first field, where that is a number.
_FIRST_TAG = 0x08

#: No reply is shorter. Those whose sizes take more than a byte are left to others.
_LEAST_BYTES = 14
_MOST_BYTES = 127

#: A number of 64 bits has as many bytes, at most.
_MOST_NUMBER_BYTES = 10

#: And what stands in a frame before the body.
_HEAD_BYTES = 32

_MAX_INT64 = 2**63 - 1
_TWO_TO_64 = 2**64
#: -1, as the wire has it.
_MINUS_ONE = 2**64 - 1
_MAX_INT32 = 2**31 - 1
_TWO_TO_32 = 2**32


def numbers(values: tuple[int, ...]) -> bytes:
    """Return the varints of numbers, one after the other.

    Args:
        values: From 0 to 2**64 - 1: tags of fields, and the numbers of the fields.
    """
    room = bytearray(_MOST_NUMBER_BYTES * len(values))
    head = memoryview(room)
    offset = 0
    for value in values:
        offset = _put(head, offset, value)
    return memory.part(head, 0, offset)


def request_frame(kind: int, body: bytes, tag: int, number: int) -> bytes:
    """Return the frame of a request.

    Args:
        kind: The number of the type of the command.
        body: The fields of the command's body, but for the request's number.
        tag: The tag of the request's number; one byte.
        number: The number of the request.
    """
    size = len(body)
    room = bytearray(_HEAD_BYTES + size + _MOST_NUMBER_BYTES)
    head = memoryview(room)
    head[8] = 0x08
    offset = _put(head, 9, kind)
    offset = _put(head, offset, kind << 3 | 2)
    offset = _put(head, offset, size + 1 + _bytes_of(number))
    if tag != _FIRST_TAG:
        memory.copy(head, offset, body, 0, size)
        offset += size
    head[offset] = tag
    offset = _put(head, offset + 1, number)
    if tag == _FIRST_TAG:
        memory.copy(head, offset, body, 0, size)
        offset += size
    _put_size(head, 0, offset - 4)
    _put_size(head, 4, offset - 8)
    return memory.part(head, 0, offset)


def _put(head: memoryview, offset: int, number: int) -> int:
    while number >= 0x80:
        head[offset] = number & 0x7F | 0x80
        number >>= 7
        offset += 1
    head[offset] = number
    return offset + 1


def _bytes_of(number: int) -> int:
    size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


def _put_size(head: memoryview, offset: int, size: int) -> None:
    head[offset] = size >> 24
    head[offset + 1] = size >> 16 & 0xFF
    head[offset + 2] = size >> 8 & 0xFF
    head[offset + 3] = size & 0xFF


def read_replies(  # noqa: C901 - a walk over frames
    data: memoryview | bytes,
    done: object,
    acknowledged: object,
    positions: Callable[..., object],
) -> tuple[list[Reply], int]:
    """Read the replies at the beginning of the bytes, while they are usual.

    Args:
        data: Frames, of which the last may not be there yet.
        done: The body of SUCCESS.
        acknowledged: That of ACK_RESPONSE.
        positions: Makes that of GET_LAST_MESSAGE_ID_RESPONSE: of the ledger and entry
            of the consumer's place, then of the ledger, entry, partition, batch index
            and batch size of the last message.

    Returns:
        The replies, and the place of the first byte after them.
    """
    replies: list[Reply] = []
    source = Cursor(data)
    total = len(data)
    begin = 0
    while total - begin >= _LEAST_BYTES:
        if data[begin] or data[begin + 1] or data[begin + 2]:
            break
        size = data[begin + 3]
        end = begin + 4 + size
        if size < _LEAST_BYTES - 4 or size > _MOST_BYTES or end > total:
            break
        if data[begin + 4] or data[begin + 5] or data[begin + 6]:
            break
        if data[begin + 7] != size - 4 or data[begin + 8] != 0x08:
            break
        kind = data[begin + 9]
        body: object = None
        if kind == _SUCCESS:
            if data[begin + 10] != 0x6A or data[begin + 11] != size - 8:
                break
            source.offset = begin + 12
            number = source.field(0x08, end)
            body = done
        elif data[begin + 12] != size - 9:
            break
        elif kind == _ACK_RESPONSE:
            if data[begin + 10] != 0xB2 or data[begin + 11] != 0x02:
                break
            source.offset = begin + 13
            source.field(0x08, end)
            _optional(source, 0x10, end, 0)
            _optional(source, 0x18, end, 0)
            number = source.field(0x30, end)
            body = acknowledged
        elif kind == _GET_LAST_MESSAGE_ID_RESPONSE:
            if data[begin + 10] != 0xF2 or data[begin + 11] != 0x01:
                break
            source.offset = begin + 13
            place_end = source.field(0x0A, end)
            if source.offset < 0 or place_end > end - source.offset:
                break
            place_end += source.offset
            ledger_id = source.field(0x08, place_end)
            entry_id = source.field(0x10, place_end)
            partition = _optional(source, 0x18, place_end, _MINUS_ONE)
            batch_index = _optional(source, 0x20, place_end, _MINUS_ONE)
            batch_size = _optional(source, 0x30, place_end, 0)
            if source.offset != place_end:
                break
            number = source.field(0x10, end)
            if source.field(0x1A, end) != end - source.offset:
                break
            before_ledger_id = source.field(0x08, end)
            before_entry_id = source.field(0x10, end)
            if source.offset != end:
                break
            body = positions(
                _signed(before_ledger_id),
                _signed(before_entry_id),
                _signed(ledger_id),
                _signed(entry_id),
                _int32(partition),
                _int32(batch_index),
                _int32(batch_size),
            )
        else:
            break
        if source.offset != end:
            break
        replies.append(_new(Reply, (number, body)))
        begin = end
    return replies, begin


def _optional(source: Cursor, tag: int, end: int, default: int) -> int:
    """Read a number if it has this tag."""
    if source.offset < 0 or source.offset >= end or source.data[source.offset] != tag:
        return default
    return source.field(tag, end)


def _signed(number: int) -> int:
    return number if number <= _MAX_INT64 else number - _TWO_TO_64


def _int32(number: int) -> int:
    """Return what a number is as an int32, of which the wire has 64 bits."""
    number &= _TWO_TO_32 - 1
    return number if number <= _MAX_INT32 else number - _TWO_TO_32
