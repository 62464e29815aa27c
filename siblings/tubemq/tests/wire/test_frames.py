# SPDX-License-Identifier: Apache-2.0
"""Frames: golden bytes, every cut of the input, limits, and what ends a stream."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siblings.tubemq.tests.wire import golden
from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire.frames import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    MAX_FRAME_BYTES,
    TOKEN,
    Frame,
    FrameReader,
    encode_frame,
)

HEADER = struct.Struct(">IiI")


def read_all(data: bytes, cuts: list[int] | None = None) -> list[Frame]:
    """Feed data in pieces and return the frames."""
    reader = FrameReader()
    frames = []
    edges = [0, *sorted(cuts or []), len(data)]
    for begin, end in itertools.pairwise(edges):
        reader.receive_data(data[begin:end])
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return frames


def chunked(serial: int, chunks: list[bytes]) -> bytes:
    """A frame that is cut as somebody else would."""
    parts = [HEADER.pack(TOKEN, serial, len(chunks))]
    for chunk in chunks:
        parts += (struct.pack(">i", len(chunk)), chunk)
    return b"".join(parts)


@pytest.mark.parametrize("data", [*golden.REPLIES, golden.SEND, golden.REGISTER])
def test_a_captured_frame_is_read_and_written_as_it_was(data: bytes):
    (frame,) = read_all(data)
    assert encode_frame(frame.serial, frame.payload) == data
    assert frame.payload == data[16:]


def test_every_cut_of_a_stream_gives_the_same_frames():
    data = b"".join(golden.REPLIES)
    whole = read_all(data)
    assert len(whole) == 3
    for cut in range(len(data) + 1):
        assert read_all(data, [cut]) == whole
    assert read_all(data, list(range(len(data)))) == whole


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
def test_chunks_are_of_the_size_that_servers_write(size: int):
    payload = bytes(i % 251 for i in range(size))
    frame = encode_frame(9, payload)
    count = -(-size // CHUNK_BYTES)
    assert HEADER.unpack_from(frame) == (TOKEN, 9, count)
    assert len(frame) == 12 + 4 * count + size
    assert read_all(frame) == [Frame(9, payload)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.data())
def test_chunks_may_be_cut_anywhere_and_be_empty(chunks: list[bytes], data):
    stream = chunked(5, chunks) + golden.SENT
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    first, second = read_all(stream, cuts)
    assert first == Frame(5, b"".join(chunks))
    assert second.payload == golden.SENT[16:]


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (HEADER.pack(0x48545450, 1, 1), "0x48545450"),
        (HEADER.pack(TOKEN, 1, 0), "0 chunks"),
        (HEADER.pack(TOKEN, 1, MAX_CHUNKS + 1), f"{MAX_CHUNKS + 1} chunks"),
        (HEADER.pack(TOKEN, 1, 2**32 - 1), "4294967295 chunks"),
        (HEADER.pack(TOKEN, 1, 1) + struct.pack(">i", -1), "-1 bytes"),
        (HEADER.pack(TOKEN, 1, 1) + struct.pack(">i", 2**31 - 1), "2147483647 bytes"),
        (b"HTTP", "0x48545450"),
        (b"\x15\x03", "0x1503"),
    ],
)
def test_what_no_server_sends_ends_the_stream(header: bytes, what: str):
    reader = FrameReader()
    reader.receive_data(golden.SENT + header)
    assert reader.next_frame() is not None
    for _ in range(2):
        with pytest.raises(ProtocolError, match=what):
            reader.next_frame()
        reader.receive_data(golden.SENT)


def test_chunks_are_limited_together():
    reader = FrameReader(max_frame_bytes=100)
    reader.receive_data(chunked(1, [bytes(60), bytes(40)]))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame.payload) == 100
    reader.receive_data(chunked(1, [bytes(60), bytes(41)]))
    with pytest.raises(ProtocolError, match="41 bytes after 60"):
        reader.next_frame()


def test_announced_bytes_take_no_memory():
    reader = FrameReader()
    tracemalloc.start()
    reader.receive_data(
        HEADER.pack(TOKEN, 1, MAX_CHUNKS) + struct.pack(">i", MAX_FRAME_BYTES)
    )
    assert reader.next_frame() is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("size", [0, MAX_CHUNKS * CHUNK_BYTES + 1])
def test_a_frame_that_servers_do_not_answer_is_not_written(size: int):
    with pytest.raises(ValueError, match=f"{size} bytes"):
        encode_frame(1, bytes(size))


@pytest.mark.parametrize("serial", [-1, 2**31])
def test_a_serial_number_is_a_number_of_java(serial: int):
    with pytest.raises(ValueError, match="serial"):
        encode_frame(serial, b"x")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_gives_frames_or_one_error(data: bytes, cuts: list[int]):
    def outcome(cuts: list[int]) -> object:
        try:
            return read_all(data, [min(cut, len(data)) for cut in cuts])
        except ProtocolError as error:
            return "chunk" in str(error)

    assert outcome(cuts) == outcome([])
