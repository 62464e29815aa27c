# SPDX-License-Identifier: Apache-2.0
"""Frames lie in buffers of a pool, which are used again once nothing views them."""

from __future__ import annotations

import os

import pytest

from pulsar_spark.wire.frames import BUFFER_BYTES, Frame, FrameReader
from pulsar_spark.wire.frames import encode_payload_frame as encode
from spark_topics.client.buffers import BufferPool


@pytest.mark.parametrize("is_held", [False, True])
def test_frames_in_buffers(is_held: bool):
    """Frames stay valid as long as they are held; their buffers are used again then."""
    pool = BufferPool(BUFFER_BYTES)
    reader = FrameReader(new_buffer=pool.take)
    body = os.urandom(100_000)
    stream = memoryview(encode(b"\x08\x12", b"", body) * 100)
    memories: dict[int, object] = {}  # kept, so that their ids are not given again
    frames: list[Frame] = []
    count = 0
    while stream:
        buffer = reader.buffer()
        size = min(len(buffer), len(stream), 70_000)
        buffer[:size] = stream[:size]
        memories[id(buffer.obj)] = buffer.obj
        reader.received(size)
        stream = stream[size:]
        while (frame := reader.next_frame()) is not None:
            count += 1
            assert frame.payload[-len(body) :] == body
            if is_held:
                frames.append(frame)
    assert count == 100
    assert all(frame.payload[-len(body) :] == body for frame in frames)
    if is_held:
        assert len(memories) >= 100 * len(body) // BUFFER_BYTES
    else:
        assert len(memories) <= 4
