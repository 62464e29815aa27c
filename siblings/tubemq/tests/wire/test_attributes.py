# SPDX-License-Identifier: Apache-2.0
"""Attributes before a value: both ways, others' habits, and damaged ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire.attributes import (
    Body,
    Stored,
    decode_body,
    encode_body,
)

TEXT = st.text(st.characters(exclude_characters=",=", exclude_categories=["Cs"]))
NAMES = TEXT.filter(lambda text: text not in ("", "$msgType$", "$msgTime$"))
TYPES = TEXT.filter(lambda text: text and text == text.strip())


def block(text: bytes, value: bytes = b"v") -> bytes:
    return len(text).to_bytes(4, "big") + text + value


@given(
    st.binary(min_size=1),
    st.none() | TYPES,
    st.sampled_from([None, "202611230506"]),
    st.dictionaries(NAMES, TEXT),
)
def test_what_is_written_is_read(
    value: bytes, type_: str | None, time: str | None, attributes: dict[str, str]
):
    body = Body(value, type_, time, attributes)
    assert decode_body(*encode_body(body)) == body


def test_the_system_comes_first():
    stored = encode_body(Body(b"v", "A", "202611230506", {"k": "1"}))
    text = b"$msgType$=A,$msgTime$=202611230506,k=1"
    assert stored == Stored(block(text), 1)


def test_a_value_alone_has_no_block():
    assert encode_body(Body(b"hi")) == Stored(b"hi", 0)
    assert decode_body(b"hi", 0) == Body(b"hi")
    # Bits that this does not know have no meaning to it.
    assert decode_body(b"hi", 0b1010) == Body(b"hi")


def test_an_empty_value_needs_attributes():
    with pytest.raises(ValueError, match="needs a value"):
        encode_body(Body(b""))
    assert decode_body(*encode_body(Body(b"", "A"))) == Body(b"", "A")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", Body(b"v")),
        (b"k=1=2", Body(b"v", attributes={"k": "1=2"})),
        (b"k=1,k=2", Body(b"v", attributes={"k": "1"})),
        (b"k", Body(b"v", attributes={"k": ""})),
        (b",k=1,", Body(b"v", attributes={"k": "1"})),
        (b"k=1,$msgType$=A", Body(b"v", "A", attributes={"k": "1"})),
        (b"$msgTime$=x", Body(b"v", None, "x")),
    ],
)
def test_what_others_write_is_read(text: bytes, expected: Body):
    assert decode_body(block(text), 1) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\5abcd",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xffv",
        block(b"\xff"),
    ],
)
def test_a_damaged_block_is_an_error(data: bytes):
    with pytest.raises(ProtocolError, match="attributes"):
        decode_body(data, 1)


@pytest.mark.parametrize(
    "body",
    [
        Body(b"v", attributes={"a,b": "1"}),
        Body(b"v", attributes={"a": "1=2"}),
        Body(b"v", attributes={"": "1"}),
        Body(b"v", attributes={"$msgType$": "1"}),
        Body(b"v", attributes={"$msgTime$": "1"}),
        Body(b"v", "a,b"),
        Body(b"v", " a"),
        Body(b"v", ""),
        Body(b"v", None, "20261123"),
        Body(b"v", None, "2026112305\uff106"),
    ],
)
def test_what_could_not_be_told_apart_again_is_refused(body: Body):
    with pytest.raises(ValueError, match=r"attribute|type|time"):
        encode_body(body)


@given(st.binary(max_size=40), st.integers(0, 3))
def test_garbage_is_a_body_or_an_error(data: bytes, flag: int):
    try:
        body = decode_body(data, flag)
    except ProtocolError:
        assert flag & 1
    else:
        assert data.endswith(body.value)
