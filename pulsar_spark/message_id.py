# SPDX-License-Identifier: Apache-2.0
"""Message ids: positions in a topic partition, as values, bytes and text.

- `MessageId`, the value every other module uses;
- bytes of the protocol's ``MessageIdData``, as in the column ``__messageId`` and in
  what every official client calls ``serialize`` or ``toByteArray``;
- text, ``ledger:entry`` or ``ledger:entry:batchIndex``, for people.

The id of a transaction, `TxnId`, is here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spark_topics.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MessageId:
    """The position of a message, or of a whole entry, in a topic partition.

    Ids have no order by themselves: whether ``batch_index`` -1, the whole entry, comes
    before or after a number depends on which end of a range it is. Compare `position`
    first.

    Attributes:
        ledger_id: Ledger of the entry, -1 before the first one.
        entry_id: Entry in the ledger, -1 before its first one.
        batch_index: Message in the entry, -1 for the whole entry.
        partition: Partition of the topic, -1 if it has none or it is not known.
        batch_size: Number of messages in the entry, 0 if it is not known.
        first_chunk: Id of the first chunk of a chunked message, whose last chunk is
            this id.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = 0
    first_chunk: MessageId | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Return the entry: ``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @classmethod
    def parse_text(cls, text: str) -> MessageId:
        """Read ``ledger:entry`` or ``ledger:entry:batchIndex``.

        Raises:
            ValueError: The text has another form, or a number is out of range.
        """
        return cls(*parse_numbers(text))


def parse_numbers(text: str) -> tuple[int, int, int]:
    """Read a ledger, an entry and a batch index as ``MessageId.parse_text`` does.

    Raises:
        ValueError: As there.
    """
    match = _ID_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{shorten(text)} is not a message id:"
            ' write "ledger:entry" or "ledger:entry:batchIndex"'
        )
    ledger, entry, index = match.groups("-1")
    ledger_id, entry_id, batch_index = int(ledger), int(entry), int(index)
    if max(ledger_id, entry_id) > _MAX_INT64 or batch_index > _MAX_INT32:
        raise ValueError(f"{shorten(text)} has a number too large for a message id")
    return ledger_id, entry_id, batch_index


_ID_TEXT = re.compile(
    r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19})(?::(-1|[0-9]{1,10}))?", re.ASCII
)

#: What every client calls earliest: before the first entry of any ledger.
EARLIEST = MessageId(-1, -1)
#: The same as the end of a range that has nothing: no entry of any ledger is before.
BEFORE_ALL = MessageId(0, -1)
#: What every client calls latest: after the last entry of any ledger.
LATEST = MessageId(_MAX_INT64, _MAX_INT64)


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """First and last position of a topic partition, as reported by its broker.

    Attributes:
        before: The entry right before the first one that the reader would get. It need
            not exist; ``ledger:-1`` is the beginning of a ledger, and EARLIEST is
            for a topic partition that does not exist yet.
        last: The last message that can be delivered now, None where there is none. A
            batch index of -1 means the whole entry.
    """

    before: MessageId
    last: MessageId | None

    @property
    def first(self) -> MessageId:
        """Return the first position that the reader may get an entry from."""
        return MessageId(self.before.ledger_id, self.before.entry_id + 1)

    @property
    def is_empty(self) -> bool:
        """Return whether the reader would get nothing now."""
        return self.last is None or self.last.position <= self.before.position


def message_after(last: MessageId) -> MessageId:
    """Return the place right after a message; nothing need be stored there.

    Args:
        last: A message of a batch, whose next one need not exist, or a whole entry.
    """
    if last.batch_index < 0:
        return entry_after(last)
    # The next entry where the index is the batch's last: readers know that.
    return MessageId(last.ledger_id, last.entry_id, last.batch_index + 1)


def entry_after(last: MessageId) -> MessageId:
    """Return the place right after the whole entry of a message."""
    return MessageId(last.ledger_id, last.entry_id + 1)


# MessageIdData on the wire, each number a varint:
#
#   08 ledgerId  10 entryId  [18 partition]  [20 batch_index]  [28 ack_set]...
#   [30 batch_size]  [3a length first_chunk_message_id]


def encode_message_id(message_id: MessageId, *, java: bool = False) -> bytes:
    """Write a message id in a form that every official client can read.

    The official clients agree on all fields but one: where the batch size is not known
    or the message is alone, C++ (and so Python) leaves ``batch_size`` out, while
    Java writes a zero.

    Args:
        message_id: The id to write.
        java: Write the very bytes of Java's ``toByteArray`` instead of C++'s
            ``serialize``; it only matters where the bytes are compared.
    """
    out = bytearray(b"\x08")
    out += encode_varint(message_id.ledger_id)
    out.append(0x10)
    out += encode_varint(message_id.entry_id)
    if message_id.partition >= 0:
        out.append(0x18)
        out += encode_varint(message_id.partition)
    if message_id.batch_index >= 0:
        out.append(0x20)
        out += encode_varint(message_id.batch_index)
    if message_id.batch_size > 0 or java:
        out.append(0x30)
        out += encode_varint(message_id.batch_size)
    if message_id.first_chunk is not None:
        first_chunk = encode_message_id(message_id.first_chunk, java=java)
        out.append(0x3A)
        out += encode_varint(len(first_chunk))
        out += first_chunk
    return bytes(out)


def decode_message_id(data: bytes) -> MessageId:
    """Read the protocol's ``MessageIdData``.

    Fields this package has no use for, such as ``ack_set``, are skipped.

    Raises:
        TypeError: These are no bytes.
        ValueError: The bytes are cut short, malformed, or name no possible position.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            "decode_message_id takes bytes, as the column __messageId has them, not"
            f" {type(data).__name__}"
        )
    return _decode(bytes(data), nested=False)


def _decode(data: bytes, *, nested: bool) -> MessageId:
    numbers: dict[int, int] = {}
    first_chunk: MessageId | None = None
    for number, value in _fields(data):
        if number in _NUMBER_FIELDS:
            if not isinstance(value, int):
                raise ValueError(
                    f"{_NUMBER_FIELDS[number]} of a message id is no number"
                )
            numbers[number] = value
        # A first chunk has no first chunk: not following deeper bounds the recursion.
        elif number == 7 and not nested:
            if not isinstance(value, bytes):
                raise ValueError("first_chunk_message_id of a message id is no message")
            first_chunk = _decode(value, nested=True)
    if 1 not in numbers or 2 not in numbers:
        raise ValueError("a message id needs a ledgerId and an entryId")
    return MessageId(
        ledger_id=_signed(numbers[1], 1),
        entry_id=_signed(numbers[2], 2),
        partition=_signed32(numbers.get(3, -1), 3),
        batch_index=_signed32(numbers.get(4, -1), 4),
        batch_size=max(0, _signed32(numbers.get(6, 0), 6)),
        first_chunk=first_chunk,
    )


_NUMBER_FIELDS = {
    1: "ledgerId",
    2: "entryId",
    3: "partition",
    4: "batch_index",
    6: "batch_size",
}


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Walk over the fields of a protobuf message: number and raw value."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 2**29:
            raise ValueError(f"a message id cannot have a field {number}")
        if wire_type == 0:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire_type == 2:
            size, position = _read_varint(data, position)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"a message id cannot have wire type {wire_type}")
        if size > len(data) - position:
            raise ValueError(f"a message id is cut short in field {number}")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            raise ValueError("a message id is cut short in a number")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, offset
    raise ValueError("a number of a message id is longer than 64 bits")


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def encode_varint(value: int) -> bytes:
    """Encode a number as a varint: 7 bits a byte, lowest first, the top bit for more.

    Args:
        value: At most 64 bits; -1 travels as 2^64-1.
    """
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int, number: int) -> int:
    """Read a 64-bit number, of which no field has values below -1."""
    if value > _MAX_INT64:
        value -= 2**64
    if value < -1:
        raise ValueError(f"{_NUMBER_FIELDS[number]} of a message id cannot be {value}")
    return value


def _signed32(value: int, number: int) -> int:
    # Some writers give a negative int32 five bytes instead of the official ten.
    if _MAX_INT32 < value < 2**32:
        value -= 2**32
    value = _signed(value, number)
    if value > _MAX_INT32:
        raise ValueError(f"{_NUMBER_FIELDS[number]} of a message id cannot be {value}")
    return value


class TxnId(NamedTuple):
    """The id of a transaction. 0:0 is valid.

    Attributes:
        most: Number of the coordinator.
        least: Number of the transaction at that coordinator.
        is_scalable: Whether it writes to scalable topics of Pulsar 5, which have
            coordinators, and so numbers, of their own.
    """

    most: int
    least: int
    is_scalable: bool = False

    def __str__(self) -> str:
        return f"{self.most}:{self.least}"
