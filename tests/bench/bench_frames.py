"""Bytes of a socket -> frames -> parts of entries, beside copying the same bytes."""

from __future__ import annotations

from pulsar_spark.client.transport import RECEIVE_BYTES
from pulsar_spark.wire.frames import FrameReader, split_entry
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
    pieces = [
        stream[start : start + RECEIVE_BYTES]
        for start in range(0, len(stream), RECEIVE_BYTES)
    ]
    target = bytearray(RECEIVE_BYTES)

    def read(verify_checksum: bool = True) -> None:
        reader = FrameReader()
        for piece in pieces:
            reader.receive_data(piece)
            while (frame := reader.next_frame()) is not None:
                split_entry(frame.payload, verify_checksum=verify_checksum)

    def copy() -> None:
        for piece in pieces:
            target[: len(piece)] = piece

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
