# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
import resource
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ydb_spark.errors import CorruptMessageError
from ydb_spark.wire.codecs import CODECS, GZIP, RAW, UNSPECIFIED, ZSTD, decode, encoder


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
@given(body=st.binary(max_size=5000))
def test_there_and_back(codec: int, body: bytes):
    """What is encoded is decoded to the same."""
    encode = encoder(codec)
    assert decode(codec, encode(body) if encode else body) == body


def test_none_was_named():
    """Bodies of other protocols are taken as they are."""
    assert decode(UNSPECIFIED, b"\x1f\x8b") == b"\x1f\x8b"


def test_gzip_of_others():
    """Other writers have other headers, and may write several members."""
    body = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decode(GZIP, body) == b"one two"


@pytest.mark.parametrize("codec", [3, 5, 10001, -1])
def test_unknown(codec: int):
    """A codec that is not known is no body."""
    with pytest.raises(CorruptMessageError, match="cannot be decoded here"):
        decode(codec, b"x")


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
@given(data=st.data())
def test_broken(codec: int, data: st.DataObject):
    """A body that ends early, or is something else, is an error of ours."""
    encode = encoder(codec)
    assert encode is not None
    whole = encode(b"some body that is long enough to be cut" * 20)
    broken = data.draw(
        st.one_of(
            st.integers(0, len(whole) - 1).map(lambda n: whole[:n]),
            st.binary(max_size=50).filter(lambda b: b[:2] != whole[:2]),
        )
    )
    with pytest.raises(CorruptMessageError):
        decode(codec, broken)


def address_space_mib() -> int:
    """How much of it this process has taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize() >> 20


@pytest.mark.skipif(sys.platform != "linux", reason="it is asked of /proc")
@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_broken_ones_take_no_room(codec: int):
    """Not what they might have become, for each of them."""
    before = address_space_mib()
    for _ in range(20):
        with pytest.raises(CorruptMessageError):
            decode(codec, b"nonsense")
    assert address_space_mib() - before < 128


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_no_larger_than_allowed(codec: int):
    """A small body cannot become a large one."""
    encode = encoder(codec)
    assert encode is not None
    body = encode(bytes(1 << 20))
    assert len(body) < 2000
    assert len(decode(codec, body, 1 << 20)) == 1 << 20
    with pytest.raises(CorruptMessageError, match="larger than"):
        decode(codec, body, (1 << 20) - 1)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_many_members(codec: int):
    """A body of very many empty ones is done in one go over it."""
    encode = encoder(codec)
    assert encode is not None
    assert decode(codec, encode(b"") * 200_000 + encode(b"end")) == b"end"


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_rest_that_is_something_else(codec: int):
    """A body is nothing but what it is encoded as."""
    encode = encoder(codec)
    assert encode is not None
    with pytest.raises(CorruptMessageError):
        decode(codec, encode(b"body") + b"something else")


def test_raw_is_not_copied():
    """The usual case costs nothing."""
    assert encoder(RAW) is None
