# SPDX-License-Identifier: Apache-2.0
"""Bytes of message ids at their limits, and positions of readers."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.message_id import (
    EARLIEST,
    MessageId,
    TopicPositions,
    decode_message_id,
    encode_message_id,
    encode_varint,
)


def varint(value: int) -> bytes:
    """Return any number as a varint, however large."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def data_of(**numbers: int) -> bytes:
    """Return the bytes of a message id with these numbers."""
    tags = {"ledger": 8, "entry": 16, "partition": 24, "index": 32, "size": 48}
    fields = {"ledger": 1, "entry": 2} | numbers
    return b"".join(bytes([tags[name]]) + varint(n) for name, n in fields.items())


@pytest.mark.parametrize("value", [0, 1, 126, 127, 128, 129, 2**14, 2**64 - 1])
def test_varint(value: int) -> None:
    """Seven bits a byte."""
    assert encode_varint(value) == varint(value)


def test_the_largest_number() -> None:
    """A varint may have ten bytes, and 64 bits."""
    assert decode_message_id(data_of(ledger=2**63 - 1)).ledger_id == 2**63 - 1
    assert decode_message_id(data_of(ledger=2**64 - 1)).ledger_id == -1
    for too_large in (2**64, 2**70, 2**77):
        with pytest.raises(ValueError, match="longer than 64 bits"):
            decode_message_id(data_of(ledger=too_large))


@pytest.mark.parametrize("java", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_size_of_a_batch_is_kept(size: int, java: bool) -> None:
    """Also of a batch of one message."""
    message_id = MessageId(1, 2, 0, batch_size=size)
    assert decode_message_id(encode_message_id(message_id, java=java)) == message_id


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ledger", "ledgerId"),
        ("entry", "entryId"),
        ("partition", "partition"),
        ("index", "batch_index"),
        ("size", "batch_size"),
    ],
)
def test_a_number_below_minus_one(name: str, field: str) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=f"^{field} of a message id cannot be -2$"):
        decode_message_id(data_of(**{name: 2**64 - 2}))


@pytest.mark.parametrize("wrong", ["12:3", 5, [8, 1], None])
def test_what_is_no_bytes(wrong: Any) -> None:
    """The error says what is taken; any form of bytes is."""
    with pytest.raises(TypeError, match=f"takes bytes.*not {type(wrong).__name__}"):
        decode_message_id(wrong)
    data = encode_message_id(MessageId(1, 2))
    assert decode_message_id(memoryview(bytearray(data))) == MessageId(1, 2)


def test_positions_of_a_reader() -> None:
    """The first entry it may get follows the one before it."""
    before = MessageId(3, 4)
    assert TopicPositions(before, None).first == MessageId(3, 5)
    assert TopicPositions(EARLIEST, None).is_empty
    assert TopicPositions(before, None).is_empty is True
    assert TopicPositions(before, MessageId(3, 4, batch_index=9)).is_empty is True
    assert TopicPositions(before, MessageId(2, 9)).is_empty is True
    assert TopicPositions(before, MessageId(3, 5)).is_empty is False
