# SPDX-License-Identifier: Apache-2.0
"""Bytes of a socket -> frames -> parts of entries, beside copying the same bytes."""

from __future__ import annotations

from pulsar_spark.wire.frames import BUFFER_BYTES, FrameReader, split_entry
from tests.bench.report import Case, cpu, in_turns
from tests.bench.samples import Batch, make_batches

_STREAM_BYTES = 64 << 20


def run(repeats: int) -> list[Case]:
    """Frames of a usual batch, and of one small message each."""
    return [
        _case("entries of 850 messages", make_batches(8, 100), _STREAM_BYTES, repeats),
        _case("entries of 1 message", make_batches(8, 100, rows=1), 1 << 20, repeats),
    ]


def _case(what: str, batches: list[Batch], stream_bytes: int, repeats: int) -> Case:
    frames = [batch.frame(number) for number, batch in enumerate(batches)]
    rounds = stream_bytes // sum(map(len, frames))
    stream = b"".join(frames * rounds)
    target = bytearray(BUFFER_BYTES)

    def read(verify_checksum: bool = True) -> None:
        reader = FrameReader()
        rest = memoryview(stream)
        while rest:  # as a socket would give it
            buffer = reader.buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            reader.received(size)
            while (frame := reader.next_frame()) is not None:
                split_entry(frame.payload, verify_checksum=verify_checksum)

    def copy() -> None:
        rest = memoryview(stream)
        while rest:
            size = min(len(target), len(rest))
            target[:size] = rest[:size]
            rest = rest[size:]

    seconds = in_turns({"copy": cpu(copy), "read": cpu(read)}, max(repeats, 5))
    return Case(
        "frames",
        what,
        rounds * sum(batch.rows for batch in batches),
        len(stream),
        seconds["read"],
        "memcpy",
        seconds["copy"],
    )
