# SPDX-License-Identifier: Apache-2.0
"""Codecs: the forms of other clients, sizes that lie, and damage."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
import zlib

import lz4.block
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import CompressionType, compress, decompress

CODECS = [kind for kind in CompressionType if kind]
TEXT = b"the quick brown fox, the lazy dog; " * 40
MAX = 10_000


def test_numbers_are_the_protocols():
    """Names and numbers agree with the .proto file."""
    assert {k.name: k.value for k in CompressionType} == dict(
        pb.CompressionType.items()
    )


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(9_000)])
def test_round_trip(kind: CompressionType, data: bytes):
    """What is compressed comes back, also nothing at all and through a view."""
    packed = compress(kind, memoryview(data))
    for given_as in (packed, memoryview(packed)):
        result = decompress(kind, given_as, len(data), MAX)
        assert type(result) in (bytes, type(given_as))
        assert bytes(result) == data


@settings(deadline=None)
@given(kind=st.sampled_from(CODECS), data=st.binary(max_size=3000))
def test_round_trip_of_anything(kind: CompressionType, data: bytes):
    """Also what cannot be made smaller."""
    assert decompress(kind, compress(kind, data), len(data), MAX) == data


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("size", [126, 127, 128, 129, 16_383, 16_384, 2_097_152])
def test_sizes_that_need_one_more_byte(kind: CompressionType, size: int):
    """Where the length in front of a block grows; both ways give plain bytes."""
    for data in (bytes(size), random.Random(5).randbytes(size)):
        packed = compress(kind, data)
        assert type(packed) is bytes
        assert decompress(kind, packed, size, size) == data


def test_none_is_passed_through():
    """Its size in the metadata may be missing, and is not looked at."""
    assert decompress(0, TEXT, 0, 1) is TEXT


def test_forms_on_the_wire():
    """LZ4 and Snappy are raw blocks, ZSTD is a frame, ZLIB a stream."""
    assert lz4.block.decompress(compress(1, TEXT), uncompressed_size=1400) == TEXT
    assert zlib.decompress(compress(2, TEXT)) == TEXT
    assert compress(3, TEXT)[:4] == bytes.fromhex("28b52ffd")
    assert compress(4, TEXT)[:2] == bytes.fromhex("f80a")  # 1400 as a varint
    assert len(TEXT) == 1400


def test_zlib_as_java_writes_it():
    """Java flushes the stream but does not end it: there is no trailer."""
    packer = zlib.compressobj()
    packed = packer.compress(TEXT) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(CompressionType.ZLIB, packed, len(TEXT), MAX) == TEXT


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("lie", [-1400, -1399, -1, 1, 500])
def test_a_wrong_size_is_corrupt(kind: CompressionType, lie: int):
    """The result has the size that the metadata says, or there is none."""
    packed = compress(kind, TEXT)
    with pytest.raises(
        CorruptEntryError, match=f"{kind.name}.* {len(TEXT) + lie} byte"
    ):
        decompress(kind, packed, len(TEXT) + lie, MAX)


@pytest.mark.parametrize("kind", CODECS)
def test_a_size_beyond_the_limit_is_refused_before_any_room_is_made(
    kind: CompressionType,
):
    """The error names the option that raises the limit."""
    tracemalloc.start()
    try:
        with pytest.raises(
            CorruptEntryError, match=r"pulsar\.client\.memoryLimitBytes"
        ):
            decompress(kind, compress(kind, TEXT), 10**9, 10**8)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_no_limit_is_beyond_what_a_codec_can_count():
    """A size of 2 GB is refused, not handed to a C int; one that fits is tried."""
    for size in (2**31, 2**32 - 1):
        with pytest.raises(CorruptEntryError, match=f"needs {size} bytes"):
            decompress(CompressionType.LZ4, b"\0", size, 2**40)
    with pytest.raises(CorruptEntryError, match="not have the 2147483647 bytes"):
        decompress(CompressionType.SNAPPY, b"\0", 2**31 - 1, 2**40)


def test_the_limit_itself_is_allowed():
    """A payload as large as the limit is decompressed."""
    assert decompress(1, compress(1, TEXT), len(TEXT), len(TEXT)) == TEXT


@pytest.mark.parametrize("kind", [5, 42, -1])
def test_an_unknown_codec_is_named(kind: int):
    """A newer producer's codec is an error with its number."""
    with pytest.raises(CorruptEntryError, match=f"codec number {kind},"):
        decompress(kind, TEXT, len(TEXT), MAX)


def test_compressing_with_an_unknown_codec_is_our_mistake():
    """There is no entry to blame."""
    with pytest.raises(ValueError, match="not a valid CompressionType"):
        compress(5, TEXT)


@pytest.mark.parametrize("kind", CODECS)
def test_every_truncation_is_corrupt(kind: CompressionType):
    """A payload cut short gives no bytes, unless nothing of its content is missing."""
    packed = compress(kind, TEXT)
    for end in range(len(packed)):
        try:
            assert decompress(kind, packed[:end], len(TEXT), MAX) == TEXT
        except CorruptEntryError:
            continue
        # Only zlib's trailer may be missing: Java leaves it out.
        assert kind == CompressionType.ZLIB
        assert len(packed) - end <= 6


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(CODECS),
    data=st.binary(max_size=200),
    size=st.integers(0, 300),
)
def test_garbage_has_the_size_or_is_corrupt(
    kind: CompressionType, data: bytes, size: int
):
    """Any bytes give a result of exactly that size, or CorruptEntryError."""
    with contextlib.suppress(CorruptEntryError):
        assert len(decompress(kind, data, size, MAX)) == size


def test_snappy_never_shows_foreign_memory():
    """A block shorter than the metadata says is refused, not padded."""
    short = pa.Codec("snappy").compress(b"abc", asbytes=True)
    with pytest.raises(CorruptEntryError):
        decompress(CompressionType.SNAPPY, short, 5000, MAX)


def test_a_snappy_block_says_its_size_in_five_bytes_at_most():
    """One of 256 MB needs them all; what is longer is none."""
    five = b"\x80\x80\x80\x80\x01"
    with pytest.raises(CorruptEntryError, match="be decompressed with SNAPPY to the 2"):
        decompress(CompressionType.SNAPPY, five, 1 << 28, 1 << 28)
    with pytest.raises(CorruptEntryError, match="does not have the 0 bytes"):
        decompress(CompressionType.SNAPPY, b"\x80" * 5 + b"\0", 0, 1 << 28)


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("said", [1000, 5 << 20])
def test_a_bomb_is_not_inflated(kind: CompressionType, said: int):
    """What becomes larger than its metadata says is refused on the way there."""
    bomb = compress(kind, bytes(48 << 20))
    decompress(kind, compress(kind, TEXT), len(TEXT), MAX)  # imports the codec
    tracemalloc.start()
    try:
        with pytest.raises(CorruptEntryError):
            decompress(kind, bomb, said, said)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * said + (1 << 20)


LARGE = random.Random(5).randbytes(3 << 20) + bytes(range(256)) * (3 << 12)


@pytest.mark.parametrize("kind", CODECS)
def test_large_payloads(kind: CompressionType):
    """They take other ways, which tell other sizes and damage as well."""
    packed = compress(kind, LARGE)
    result = decompress(kind, packed, len(LARGE), len(LARGE))
    assert type(result) in (bytes, memoryview)
    assert result == LARGE
    for size in (len(LARGE) - 1, len(LARGE) + 1, 5 << 20):
        with pytest.raises(CorruptEntryError, match="its payload"):
            decompress(kind, packed, size, 2 * len(LARGE))
    for cut in (packed[:-10], packed[: len(packed) // 2], b""):
        with pytest.raises(CorruptEntryError, match="its payload"):
            decompress(kind, cut, len(LARGE), len(LARGE))


def test_large_payloads_without_a_trailer():
    """Java flushes zlib and leaves out its trailer."""
    packer = zlib.compressobj()
    packed = packer.compress(LARGE) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(CompressionType.ZLIB, packed, len(LARGE), len(LARGE)) == LARGE


def test_large_payloads_behind_blocks_of_nothing():
    """What comes of some input may be nothing, and yet there is more behind it."""
    packer = zlib.compressobj()
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    nothing = b"\0\0\0\xff\xff" * 40_000
    packed = head + nothing + packer.compress(LARGE) + packer.flush()
    assert decompress(CompressionType.ZLIB, packed, len(LARGE), len(LARGE)) == LARGE


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZLIB])
def test_large_payloads_are_held_once(kind: CompressionType):
    """And not twice, as these two codecs' own libraries do."""
    packed = compress(kind, LARGE)
    tracemalloc.start()
    try:
        decompress(kind, packed, len(LARGE), len(LARGE))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.75 * len(LARGE)
