# SPDX-License-Identifier: Apache-2.0
"""Hashes of other clients, of a key and of a column."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.hashing import (
    boost_hash,
    boost_hashes,
    java_string_hash,
    java_string_hashes,
    murmur3_32,
    murmur3_32_hashes,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("key-10", -1134722995),
        ("ü", 252),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
        ("polygenelubricants", -(2**31)),
        ("\0", 0),
    ],
)
def test_java_string_hash(text: str, number: int):
    """What ``String.hashCode`` gives, over UTF-16 and with its overflow."""
    assert java_string_hash(text) == number
    (found,) = java_string_hashes(pa.array([text], pa.large_string())).to_pylist()
    assert found == number % 2**32


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21", 0x72661CF4),
        (b"\0\0\0\0", 0x2362F9DE),
        (b"\0", 0x514E28B7),
    ],
)
def test_murmur3_32(data: bytes, number: int):
    """Published values of MurmurHash3_x86_32 with seed 0."""
    assert murmur3_32(data) == number
    (of_column,) = murmur3_32_hashes(pa.array([data], pa.large_binary())).to_pylist()
    assert of_column == number


#: Partitions of a topic that has 97, where ``pulsar-client`` 3.13.0 put such keys.
CPP_PARTITIONS = {
    "a": 6,
    "ab": 86,
    "abc": 39,
    "abcd": 49,
    "abcde": 94,
    "hello": 21,
    "größer": 12,
    "日本": 20,
    "\U0001f600": 72,
    "key-10": 32,
    "k" * 33: 19,
    "x" * 200: 13,
}


@pytest.mark.parametrize(("text", "partition"), CPP_PARTITIONS.items())
def test_boost_hash(text: str, partition: int):
    """What the C++ client's ``BoostHash`` gives, which is never negative."""
    assert boost_hash(text.encode()) % 97 == partition
    (found,) = boost_hashes(pa.array([text], pa.large_string())).to_pylist()
    assert found == boost_hash(text.encode()) < 2**31


_TEXTS = st.lists(st.text(max_size=12) | st.text("ab", min_size=100, max_size=300))


@settings(deadline=None, max_examples=100)
@given(texts=_TEXTS, data=st.data())
def test_hashes_of_columns(texts: list[str], data: st.DataObject):
    """A column hashes as its keys do, whole and sliced."""
    keys = pa.array(texts, pa.large_string())
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    for part in keys, keys[start:stop]:
        own = part.to_pylist()
        java = java_string_hashes(part)
        assert java.to_pylist() == [java_string_hash(key) % 2**32 for key in own]
        murmur = murmur3_32_hashes(part)
        assert murmur.to_pylist() == [murmur3_32(key.encode()) for key in own]
        boost = boost_hashes(part)
        assert boost.to_pylist() == [boost_hash(key.encode()) for key in own]


def test_keys_of_many_units():
    """However much the keys are in total, or one of them is."""
    texts = ["ü" * n + "\U0001f600" for n in range(60)] + ["x" * 5000, "", "y"]
    hashes = [java_string_hash(text) % 2**32 for text in texts]
    keys = pa.array(texts * 50, pa.large_string())
    assert java_string_hashes(keys).to_pylist() == hashes * 50
    long = "ü" * 300_000
    keys = pa.array([*texts, long, *texts], pa.large_string())
    expected = [*hashes, java_string_hash(long) % 2**32, *hashes]
    assert java_string_hashes(keys).to_pylist() == expected


@pytest.mark.parametrize("size", [124, 127, 128, 131, 132, 133, 135, 136, 137, 4000])
def test_long_keys_by_words(size: int):
    """Keys on both sides of the size from which each is hashed by itself."""
    texts = ["x" * size, "", "y" * 7, "z" * (size - 1)]
    keys = pa.array(texts, pa.large_string())
    found = murmur3_32_hashes(keys).to_pylist()
    assert found == [murmur3_32(text.encode()) for text in texts]
    assert boost_hashes(keys).to_pylist() == [boost_hash(t.encode()) for t in texts]
