# SPDX-License-Identifier: Apache-2.0
"""Chunks are joined, in every form of the kernel, and room is made as they come."""

from __future__ import annotations

import itertools
import struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import kernels


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """The loop in each of its forms."""
    return kernels.load(request.param, "tubemq_spark.loops.chunks")


class Allocator:
    """Notes the sizes that are asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> memoryview:
        """Return what is not zero before it is filled."""
        self.sizes.append(size)
        return memoryview(bytearray(b"\xaa") * size)


def cut(payload: bytes, size: int) -> list[bytes]:
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def written(chunks: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(one)) + one for one in chunks)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_frames_are_joined_wherever_they_are_cut(kernel: ModuleType, chunks, data):
    joiner = kernel.ChunkJoiner(1000)
    whole = written(chunks)
    for rest in (b"", b"next"):
        joiner.begin(len(chunks))
        stream = memoryview(whole + rest)
        cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=4))
        taken = 0
        for begin, end in itertools.pairwise([0, *sorted(cuts), len(stream)]):
            if joiner.chunks_left:
                taken = begin + joiner.take(stream[begin:end], 0)
        assert (taken, joiner.chunks_left) == (len(whole), 0)
        assert joiner.joined() == b"".join(chunks)


def test_room_is_a_buffer_and_grows_with_what_comes(kernel: ModuleType):
    allocator = Allocator()
    joiner = kernel.ChunkJoiner(2**24, allocator)
    payload = bytes(range(251)) * 12000
    chunks = cut(payload, 8192)
    joiner.begin(len(chunks))
    for part in cut(written(chunks), 100_000):
        assert joiner.take(memoryview(part), 0) == len(part)
    assert joiner.joined() == payload
    assert allocator.sizes == [2**20, 2**21, 2**22]
    # A small frame has what it needs, and nothing is left of the one before.
    joiner.begin(1)
    joiner.take(memoryview(written([b"small"])), 0)
    assert joiner.joined() == b"small"
    assert allocator.sizes[3:] == [5]


@pytest.mark.parametrize(("first", "length"), [(0, 101), (60, 41), (100, 1), (0, -1)])
def test_a_chunk_that_is_too_long_is_not_begun(
    kernel: ModuleType, first: int, length: int
):
    allocator = Allocator()
    joiner = kernel.ChunkJoiner(100, allocator)
    joiner.begin(2)
    head = written([bytes(first)]) + struct.pack(">i", length)
    assert joiner.take(memoryview(head), 0) == -1
    assert (joiner.size, joiner.length) == (first, length % 2**32)
    assert sum(allocator.sizes) <= 2 * 8192


def test_what_was_only_announced_has_no_memory(kernel: ModuleType):
    allocator = Allocator()
    joiner = kernel.ChunkJoiner(2**30, allocator)
    joiner.begin(3584)
    joiner.take(memoryview(struct.pack(">i", 2**29)), 0)
    assert allocator.sizes == []
    joiner.take(memoryview(b"x"), 0)
    assert allocator.sizes == [kernel.BUFFER_BYTES]


def test_frames_do_not_share_their_memory(kernel: ModuleType):
    joiner = kernel.ChunkJoiner(100)
    found = []
    for text in (b"one", b"two"):
        joiner.begin(1)
        joiner.take(memoryview(written([text])), 0)
        found.append(joiner.joined())
    assert found == [b"one", b"two"]
