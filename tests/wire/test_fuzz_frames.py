# SPDX-License-Identifier: Apache-2.0
"""Any bytes: frames or one ProtocolError, the same however the bytes are cut."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptEntryError, ProtocolError
from pulsar_spark.wire.commands import decode_command
from pulsar_spark.wire.frames import FrameReader, encode_payload_frame, split_entry

MAX_FRAME_BYTES = 600

# Something to damage: a MESSAGE with an entry, FLOW, PING, and a MESSAGE without one.
COMMAND = bytes.fromhex("08094a130807120f0821100518ffffffffffffffffff01")
METADATA = bytes.fromhex("0a027031100a1880d095ffbc315802c0010b")
SEEDS = (
    encode_payload_frame(COMMAND, METADATA, b"payload " * 9)
    + bytes.fromhex("0000000d00000009080b5a05080710e807")
    + bytes.fromhex("00000009000000050812920100")
    + bytes.fromhex("0000001b00000017")
    + COMMAND,
    bytes.fromhex("0000000900000005080812920100"),
    b"HTTP/1.1 400 Bad Request\r\n",
    bytes.fromhex("15030300020246"),
)


def outcome(data: bytes, pieces: list[bytes]) -> list[object]:
    """Return all that comes of a stream: frames, entries, commands, errors as text."""
    reader = FrameReader(MAX_FRAME_BYTES)
    events: list[object] = []
    try:
        for piece in pieces:
            reader.receive_data(piece)
            while (frame := reader.next_frame()) is not None:
                assert 8 + len(frame.command) + len(frame.payload) <= MAX_FRAME_BYTES
                events.append(bytes(frame.command))
                events.append(bytes(frame.payload))
                events.append(entry_of(frame.payload))
                events.append(command_of(frame.command))
            # Less than a frame is left whenever the reader asks for more.
            assert reader._end - reader._start < MAX_FRAME_BYTES
    except ProtocolError as error:
        events.append(str(error))
    return events


def entry_of(payload: memoryview) -> object:
    """Return the parts of an entry, or what is wrong with it."""
    try:
        return [part and bytes(part) for part in split_entry(payload)]
    except CorruptEntryError as error:
        return str(error)


def command_of(command: memoryview) -> object:
    """Return a command in canonical bytes, or what is wrong with it."""
    try:
        return decode_command(command).SerializeToString(deterministic=True)
    except ProtocolError as error:
        return str(error)


def check(data: bytes, cuts: list[int]) -> None:
    """Compare a stream as a whole, byte by byte, and cut at some places."""
    whole = outcome(data, [data])
    assert outcome(data, [data[i : i + 1] for i in range(len(data))]) == whole
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert outcome(data, pieces) == whole


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=4))
def test_random_bytes(data: bytes, cuts: list[int]):
    """Noise gives frames or one ProtocolError, whole, cut or byte by byte."""
    check(data, cuts)


@settings(deadline=None, max_examples=200)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 255), st.sampled_from("=+-")),
        max_size=5,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=4),
)
def test_damaged_frames(
    seed: bytes, edits: list[tuple[int, int, str]], cuts: list[int]
):
    """Bytes changed, added or lost in real frames do no worse than noise."""
    data = bytearray(seed)
    for place, value, kind in edits:
        place %= len(data)
        if kind == "=":
            data[place] = value
        elif kind == "+":
            data.insert(place, value)
        elif len(data) > 1:
            del data[place]
    check(bytes(data), cuts)


def test_many_streams_from_one_seed():
    """The same, by a seeded loop: sized frames of random commands and entries."""
    dice = random.Random(20)
    for _ in range(400):
        stream = b""
        for _ in range(dice.randrange(1, 5)):
            body = dice.randbytes(dice.randrange(1, 80))
            size = dice.choice((len(body), dice.randrange(100)))
            total = 4 + len(body) + dice.choice((0, 0, 0, 1, -1))
            stream += total.to_bytes(4, "big") + size.to_bytes(4, "big") + body
        check(stream, [dice.randrange(400) for _ in range(3)])
