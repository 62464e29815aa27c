# SPDX-License-Identifier: Apache-2.0
"""Frames: golden bytes, every split of the input, limits, checksums and cost."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections import deque

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptEntryError, ProtocolError
from pulsar_spark.wire.frames import (
    BUFFER_BYTES,
    DEFAULT_MAX_MESSAGE_SIZE_BYTES,
    FRAME_HEADROOM_BYTES,
    Frame,
    FrameReader,
    encode_frame,
    encode_payload_frame,
    split_entry,
)
from spark_topics.client.buffers import BufferPool

MIB = 1024 * 1024
LIMIT = DEFAULT_MAX_MESSAGE_SIZE_BYTES + FRAME_HEADROOM_BYTES

# One MESSAGE: consumer 7, id 33:5, a batch of "hello" and "abc". Protocol fact sheet,
# computed with the official encoding.
COMMAND = bytes.fromhex("08094a130807120f0821100518ffffffffffffffffff01")
METADATA = bytes.fromhex("0a027031100a1880d095ffbc315802c0010b")
PAYLOAD = bytes.fromhex(
    "0000000812026b311805400a68656c6c6f0000000c0a060a01611201621803400b616263"
)
MESSAGE = bytes.fromhex(
    "0000005b00000017"
    + COMMAND.hex()
    + "0e01942cbff400000012"
    + METADATA.hex()
    + PAYLOAD.hex()
)
BROKER_PART = bytes.fromhex("0e020000000908fbd095ffbc311029")
CHECKSUM_PART = bytes.fromhex("0e01942cbff4")
SIZED_METADATA = b"\x00\x00\x00\x12" + METADATA
PONG = bytes.fromhex("000000090000000508139a0100")


def read_all(data: bytes, piece_bytes: int = 0) -> list[tuple[bytes, bytes]]:
    """Feed data in pieces and return the frames as bytes."""
    reader = FrameReader()
    step = piece_bytes or max(1, len(data))
    frames = []
    for start in range(0, len(data), step):
        reader.receive_data(data[start : start + step])
        while (frame := reader.next_frame()) is not None:
            frames.append((bytes(frame.command), bytes(frame.payload)))
    return frames


def entry(*parts: bytes) -> memoryview:
    """Return an entry as it lies in a frame."""
    return memoryview(b"".join(parts))


# -- both directions -------------------------------------------------------------------


def test_crc32c_is_castagnoli():
    """The library computes the polynomial that the protocol means."""
    assert crc32c(b"123456789") == 0xE3069283


def test_encodes_the_golden_message_to_the_byte():
    """A MESSAGE of the fact sheet is built byte for byte, checksum included."""
    assert encode_payload_frame(COMMAND, METADATA, PAYLOAD) == MESSAGE
    assert encode_payload_frame(COMMAND, METADATA, memoryview(PAYLOAD)) == MESSAGE


def test_encodes_a_simple_command():
    """A command without an entry has both sizes and nothing else."""
    assert encode_frame(bytes.fromhex("08139a0100")) == PONG


def test_reads_the_golden_message():
    """The MESSAGE comes apart into its command, metadata and payload."""
    [(command, payload)] = read_all(MESSAGE)
    assert command == COMMAND
    parts = split_entry(memoryview(payload))
    assert parts.broker_entry_metadata is None
    assert parts.metadata == METADATA
    assert parts.payload == PAYLOAD


def test_simple_command_has_an_empty_payload():
    """A frame that ends with its command has nothing to split."""
    assert read_all(PONG) == [(PONG[8:], b"")]
    assert read_all(encode_frame(b"x")) == [(b"x", b"")]


def test_every_split_of_two_frames_gives_the_same():
    """Wherever the network cuts the stream, the frames are the same."""
    stream = MESSAGE + PONG
    whole = read_all(stream)
    for cut in range(len(stream) + 1):
        reader = FrameReader()
        frames = []
        for piece in (stream[:cut], stream[cut:]):
            reader.receive_data(piece)
            while (frame := reader.next_frame()) is not None:
                frames.append((bytes(frame.command), bytes(frame.payload)))
        assert frames == whole


@pytest.mark.parametrize("piece_bytes", [1, 7, 4095, 4096, 65536, 262144])
def test_pieces_of_any_size_give_the_same(piece_bytes: int):
    """Small pieces are gathered, large ones kept: neither changes the frames."""
    payloads = [bytes([i]) * size for i, size in enumerate((0, 1, 5000, 70_000, 3))]
    stream = b"".join(encode_payload_frame(COMMAND, METADATA, p) for p in payloads)
    frames = read_all(stream * 2, piece_bytes)
    assert [
        bytes(split_entry(memoryview(p)).payload) for _, p in frames
    ] == payloads * 2


@settings(deadline=None)
@given(
    payloads=st.lists(st.binary(max_size=9000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 60_000), max_size=12),
)
def test_mixed_pieces_give_the_same(payloads: list[bytes], cuts: list[int]):
    """Large and small pieces in any order give back what was encoded."""
    stream = b"".join(encode_payload_frame(COMMAND, METADATA, p) for p in payloads)
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    reader = FrameReader()
    seen = []
    for start, end in itertools.pairwise(edges):
        reader.receive_data(memoryview(stream)[start:end])
        while (frame := reader.next_frame()) is not None:
            seen.append(bytes(split_entry(frame.payload).payload))
    assert seen == payloads


def test_no_frame_without_data():
    """An empty stream, or an empty piece, is no frame and no error."""
    reader = FrameReader()
    assert reader.next_frame() is None
    reader.receive_data(b"")
    assert reader.next_frame() is None


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5000, 65_000, 70_000, 200_000, 600_000])),
    steps=st.lists(st.integers(1, 300_000), min_size=1, max_size=12),
    held=st.lists(st.integers(0, 4), min_size=1, max_size=5),
)
def test_what_is_read_into_its_buffers(
    sizes: list[int], steps: list[int], held: list[int]
):
    """However much of a buffer is filled at a time, frames are whole and stay so.

    Also where those before them are not held any more, so that buffers are used again.
    Long streams do not come byte by byte.
    """
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    rest = memoryview(
        b"".join(encode_payload_frame(COMMAND, METADATA, p) for p in payloads)
    )
    least = len(rest) // 5000
    reader = FrameReader(new_buffer=BufferPool(BUFFER_BYTES).take)
    frames: deque[Frame] = deque()
    holds = itertools.cycle(held)
    expected = iter(payloads)

    def check_oldest() -> None:
        found = split_entry(frames.popleft().payload).payload
        assert bytes(found) == next(expected)

    for step in itertools.cycle(steps):
        if not rest:
            break
        buffer = reader.buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(rest), max(step, least))
        buffer[:size] = rest[:size]
        rest = rest[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            assert frame.payload.readonly
            frames.append(frame)
        most = next(holds)
        while len(frames) > most:
            check_oldest()
    while frames:
        check_oldest()
    assert next(expected, None) is None


# -- ownership and memory --------------------------------------------------------------


def test_a_large_frame_stays_where_it_was_read_to():
    """Nothing copies it."""
    reader = FrameReader()
    message = encode_payload_frame(COMMAND, METADATA, bytes(100_000))
    reader.receive_data(message[:20])
    assert reader.next_frame() is None
    buffer = reader.buffer()
    buffer[: len(message) - 20] = message[20:]
    reader.received(len(message) - 20)
    frame = reader.next_frame()
    assert frame is not None
    assert frame.payload.obj is buffer.obj


def test_a_frame_outlives_a_reused_input_buffer():
    """The reader copies what it is lent: a buffer can be filled again at once."""
    for size in (len(MESSAGE), 2 * MIB):
        message = encode_payload_frame(COMMAND, METADATA, b"x" * (size - 60))
        buffer = bytearray(message)
        reader = FrameReader()
        reader.receive_data(memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        frame = reader.next_frame()
        assert frame is not None
        assert split_entry(frame.payload).payload == b"x" * (size - 60)


def test_a_frame_is_immutable_and_holds_only_itself():
    """A small frame does not keep the large piece alive in which it arrived."""
    reader = FrameReader()
    reader.receive_data(MESSAGE + encode_frame(b"x" * MIB))
    frame = reader.next_frame()
    assert isinstance(frame, Frame)
    assert frame.command.readonly
    assert len(frame.payload.obj) == len(MESSAGE) - 4  # type: ignore[arg-type]


def peak_bytes(stream_piece: bytes, repeats: int, piece_bytes: int) -> int:
    """Return the peak of memory while one stream is read in pieces."""
    reader = FrameReader()
    tracemalloc.start()
    try:
        for _ in range(repeats):
            for start in range(0, len(stream_piece), piece_bytes):
                reader.receive_data(stream_piece[start : start + piece_bytes])
                while reader.next_frame() is not None:
                    pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("piece_bytes", [37, 4000, 65536])
def test_memory_of_a_long_stream_is_bounded(piece_bytes: int):
    """Used-up input is let go, also when no piece ever ends with a frame."""
    frame = encode_payload_frame(COMMAND, METADATA, b"x" * 1001)
    assert peak_bytes(frame * 50, 20, piece_bytes) < 300_000


def test_memory_of_one_large_frame_is_twice_its_size():
    """The input and the joined frame are all there is, even in tiny pieces."""
    frame = encode_payload_frame(COMMAND, METADATA, b"x" * MIB)
    assert peak_bytes(frame, 1, 29) < 2.5 * len(frame)


KIB = 1024


@pytest.mark.parametrize(
    ("body_bytes", "is_copied"), [(64 * KIB - 1, True), (64 * KIB, False)]
)
def test_what_a_held_frame_holds(body_bytes: int, is_copied: bool):
    """A small one only itself; a large one its buffer, which is not much more."""
    buffers: list[memoryview] = []

    def new_buffer(size: int) -> memoryview:
        buffers.append(memoryview(bytearray(size)))
        return buffers[-1]

    reader = FrameReader(new_buffer=new_buffer)
    reader.receive_data(encode_frame(b"x" * (body_bytes - 4)))
    frame = reader.next_frame()
    assert frame is not None
    assert (frame.command.obj is not buffers[-1].obj) == is_copied


def reader_with_rooms() -> tuple[FrameReader, list[int]]:
    """A reader, and how large the buffers were that it asked for."""
    rooms: list[int] = []

    def new_buffer(size: int) -> memoryview:
        rooms.append(size)
        return memoryview(bytearray(size))

    return FrameReader(new_buffer=new_buffer), rooms


def test_a_buffer_is_used_up_to_its_last_16_kib():
    """Less is not worth a call to the system."""
    reader, rooms = reader_with_rooms()
    assert len(reader.buffer()) == 64 * KIB
    reader.receive_data(encode_frame(bytes(48 * KIB - 8)))
    assert reader.next_frame() is not None
    assert len(reader.buffer()) == 16 * KIB
    assert rooms == [64 * KIB]
    reader.receive_data(b"\0")
    assert reader.next_frame() is None
    assert len(reader.buffer()) == 64 * KIB - 1
    assert rooms == [64 * KIB] * 2


@pytest.mark.parametrize(
    ("total", "room"), [(16 * KIB, 64 * KIB), (16 * KIB + 1, 512 * KIB)]
)
def test_buffers_are_small_while_frames_are(total: int, room: int):
    """The first frame that is larger than that brings a large one."""
    reader, rooms = reader_with_rooms()
    reader.receive_data(encode_frame(bytes(60 * KIB - 8)) + total.to_bytes(4, "big"))
    assert reader.next_frame() is not None
    assert reader.next_frame() is None
    assert len(reader.buffer()) == room - 4  # the size moves there, too
    assert rooms == [64 * KIB, room]


@pytest.mark.parametrize("come_together", [False, True])
def test_a_large_frame_behind_small_ones(come_together: bool):
    """It moves to a buffer that has room for it, and does not fill this one first."""
    reader, rooms = reader_with_rooms()
    reader.receive_data(PONG)
    assert reader.next_frame() is not None
    entries = MESSAGE * (30 * KIB // len(MESSAGE))
    reader.receive_data(entries + (100 * KIB).to_bytes(4, "big"))
    if come_together:
        assert taken(reader, 7) == entries
    while reader.next_frame() is not None:
        pass
    assert len(reader.buffer()) == 512 * KIB - 4
    assert rooms == [64 * KIB, 512 * KIB]


@pytest.mark.parametrize("piece_bytes", [1000, 100_000])
def test_room_is_earned_by_what_arrives(piece_bytes: int):
    """A size is a claim: four bytes must not make anybody reserve gigabytes."""
    rooms: list[tuple[int, int]] = []
    arrived = 4

    def new_buffer(size: int) -> memoryview:
        rooms.append((size, arrived))
        return memoryview(bytearray(size))

    reader = FrameReader(2**31, new_buffer)
    reader.receive_data((2**31 - 5).to_bytes(4, "big"))
    assert reader.next_frame() is None
    while arrived < 8 * MIB:
        room = reader.buffer()
        size = min(len(room), piece_bytes)
        room[:size] = bytes(size)
        arrived += size
        reader.received(size)
        assert reader.next_frame() is None
    for size, had in rooms:
        assert size <= max(512 * 1024, 2 * had)
    assert len(rooms) < 10


def test_a_buffer_is_filled_before_its_frame_gets_another():
    """What remains of it is as large as the room that was asked for."""
    reader, rooms = reader_with_rooms()
    reader.receive_data((4 * MIB).to_bytes(4, "big"))
    assert reader.next_frame() is None
    assert len(reader.buffer()) == 512 * KIB - 4
    reader.receive_data(bytes(496 * KIB - 4))
    assert len(reader.buffer()) == 16 * KIB
    assert rooms == [64 * KIB, 512 * KIB]


def test_bytes_before_an_error_are_not_kept():
    """A stream that is lost lets its buffer go."""
    room = bytearray(64 * KIB)
    reader = FrameReader(new_buffer=lambda size: memoryview(room)[:size])
    reader.receive_data(b"\xff" * 8)
    with pytest.raises(BufferError):
        room.clear()  # it is viewed
    with pytest.raises(ProtocolError):
        reader.next_frame()
    room.clear()


def test_bytes_after_an_error_are_not_kept():
    """A stream that is lost takes no more memory."""
    reader = FrameReader()
    reader.receive_data(b"\xff" * 8)
    with pytest.raises(ProtocolError):
        reader.next_frame()
    data = bytes(5000)
    references = sys.getrefcount(data)
    reader.receive_data(data)
    assert sys.getrefcount(data) == references


# -- frames that are read otherwise ----------------------------------------------------


def test_frames_that_are_not_begun():
    """They can be left out; what is begun is for `next_frame`."""
    reader = FrameReader()
    assert reader.unread == b""
    reader.receive_data(PONG + MESSAGE + PONG[:3])
    assert reader.unread == PONG + MESSAGE + PONG[:3]
    reader.skip(len(PONG))
    assert reader.unread == MESSAGE + PONG[:3]
    assert reader.next_frame() == (COMMAND, MESSAGE[8 + len(COMMAND) :])
    assert reader.unread == PONG[:3]
    assert reader.next_frame() is None
    assert reader.unread == PONG[:3]
    reader.receive_data(PONG[3:7])
    assert reader.unread == PONG[:7]
    assert reader.next_frame() is None
    assert isinstance(reader.unread, memoryview)
    assert reader.unread == b""
    reader.receive_data(PONG[7:] + PONG)
    assert reader.unread == b""
    assert reader.next_frame() == (PONG[8:], b"")
    assert reader.unread == PONG


def begun_reader(max_frame_bytes: int = LIMIT) -> FrameReader:
    """A reader behind its first frame."""
    reader = FrameReader(max_frame_bytes)
    reader.receive_data(PONG)
    assert reader.next_frame() is not None
    return reader


def taken(reader: FrameReader, *consumer_ids: int) -> bytes | None:
    """The frames that come together."""
    found = reader.next_deliveries(consumer_ids)
    return None if found is None else found.data


def test_ordinary_entries_come_together():
    """Those that were asked for, as far as they are there; the rest as frames."""
    reader = begun_reader()
    reader.receive_data(MESSAGE * 3 + PONG + MESSAGE[:30])
    assert taken(reader) is None
    assert taken(reader, 8) is None
    found = reader.next_deliveries({7, 8})
    assert found is not None
    assert (found.consumer_id, len(found), found.data) == (7, 3, MESSAGE * 3)
    assert [found.position(n) for n in range(3)] == [(33, 5)] * 3
    assert taken(reader, 7) is None
    assert reader.next_frame() == (PONG[8:], b"")
    # What is begun is taken as well, once the rest is there.
    assert reader.next_frame() is None
    reader.receive_data(MESSAGE[30:] + MESSAGE[:2])
    assert taken(reader, 7) == MESSAGE
    assert reader.unread == MESSAGE[:2]
    reader.receive_data(MESSAGE[2:] + PONG)
    assert reader.next_frame() == (COMMAND, MESSAGE[8 + len(COMMAND) :])
    assert reader.next_frame() == (PONG[8:], b"")
    assert reader.next_frame() is None


def test_the_first_frame_comes_alone():
    """By it one sees whether this is a broker."""
    reader = FrameReader()
    reader.receive_data(MESSAGE * 2)
    assert taken(reader, 7) is None
    assert reader.next_frame() is not None
    assert taken(reader, 7) == MESSAGE


def test_nothing_comes_together_after_an_error():
    """The stream cannot be read on."""
    reader = begun_reader()
    reader.receive_data(bytes(4) + MESSAGE)
    with pytest.raises(ProtocolError):
        reader.next_frame()
    reader.receive_data(MESSAGE)
    assert taken(reader, 7) is None
    assert reader.unread == b""


@pytest.mark.parametrize(("more", "is_taken"), [(0, True), (1, False)])
@pytest.mark.parametrize(
    ("size", "max_frame_bytes"), [(64 * KIB, LIMIT), (1000, 1000), (64 * KIB, 64 * KIB)]
)
def test_how_large_entries_are_that_come_together(
    size: int, max_frame_bytes: int, more: int, is_taken: bool
):
    """Smaller than what is not copied, and than the limit is."""
    frame = encode_payload_frame(COMMAND, METADATA, b"")
    frame = encode_payload_frame(COMMAND, METADATA, bytes(size + more - len(frame)))
    assert len(frame) == size + more
    reader = begun_reader(max_frame_bytes)
    reader.receive_data(frame)
    assert taken(reader, 7) == (frame if is_taken else None)


# -- impossible sizes ------------------------------------------------------------------


def fail(data: bytes, max_frame_bytes: int = LIMIT) -> str:
    """Return the text of the error that data leads to, and expect it to stay."""
    reader = FrameReader(max_frame_bytes)
    reader.receive_data(data)
    with pytest.raises(ProtocolError) as first:
        reader.next_frame()
    with pytest.raises(ProtocolError) as second:
        reader.next_frame()
    assert str(first.value) == str(second.value)
    return str(first.value)


def test_the_limit_counts_the_whole_frame():
    """A frame as large as the limit passes, one byte more does not."""
    assert FrameReader().max_frame_bytes == LIMIT == 5_253_120
    frame = encode_frame(b"x" * 92)
    reader = FrameReader(100)
    reader.receive_data(frame)
    assert reader.next_frame() is not None
    assert "limit of 99 bytes" in fail(frame, 99)


def test_the_limit_can_be_set_after_connecting():
    """CONNECTED tells another limit; it holds from the next frame on."""
    reader = FrameReader(100)
    reader.receive_data(PONG)
    assert reader.next_frame() is not None
    reader.max_frame_bytes = 200
    reader.receive_data(encode_frame(b"x" * 150))
    assert reader.next_frame() is not None


def test_a_frame_that_is_too_large_is_refused_by_its_first_bytes():
    """Nothing of it is waited for."""
    assert "5253121 bytes is larger" in fail((LIMIT - 3).to_bytes(4, "big"))


@pytest.mark.parametrize("total", [0, 1, 4])
def test_a_frame_too_short_for_a_command_is_refused(total: int):
    """There is no frame without a command in it."""
    assert "too short" in fail(total.to_bytes(4, "big") + bytes(total))


@pytest.mark.parametrize("command_size", [0, 6, 0xFFFFFFFF])
def test_a_command_must_fit_its_frame(command_size: int):
    """A command of no bytes, or of more than the frame has, is refused."""
    body = command_size.to_bytes(4, "big") + bytes(5)
    assert f"command of {command_size} bytes" in fail(b"\0\0\0\x09" + body)


def test_frames_before_damage_are_still_given():
    """An error comes only after all that was whole before it."""
    reader = FrameReader()
    reader.receive_data(PONG + MESSAGE + bytes(4))
    assert reader.next_frame() is not None
    assert reader.next_frame() is not None
    with pytest.raises(ProtocolError):
        reader.next_frame()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"<html><body>no</body></html>", "HTTP"),
        (b"<!DOCTYPE html>", "HTTP"),
        (bytes.fromhex("15030300020246"), "TLS"),
        (bytes.fromhex("1503010002022f"), "TLS"),
    ],
)
@pytest.mark.parametrize("max_frame_bytes", [LIMIT, 2**32])
def test_another_protocol_is_recognized(answer: bytes, kind: str, max_frame_bytes: int):
    """The wrong port is called that, whatever the limit, with a word on the cure."""
    text = fail(answer, max_frame_bytes)
    assert "not a Pulsar broker port" in text
    assert f"looks like a{'n' * (kind == 'HTTP')} {kind} server" in text
    assert "service.url" in text
    assert ("pulsar+ssl://" in text) == (kind == "TLS")


def test_another_protocol_is_recognized_only_at_the_start():
    """Later on, the same bytes are what they are: a damaged stream."""
    assert "damaged" in fail_after_pong(b"HTTP")


def fail_after_pong(data: bytes) -> str:
    """Return the text of the error that data leads to behind a good frame."""
    reader = FrameReader()
    reader.receive_data(PONG + data)
    assert reader.next_frame() is not None
    with pytest.raises(ProtocolError) as caught:
        reader.next_frame()
    return str(caught.value)


# -- entries ---------------------------------------------------------------------------


def test_broker_entry_metadata_stands_in_front():
    """The 0x0e02 part is returned apart, and the checksum does not cover it."""
    parts = split_entry(entry(BROKER_PART, CHECKSUM_PART, SIZED_METADATA, PAYLOAD))
    assert parts.broker_entry_metadata == BROKER_PART[6:]
    assert parts.metadata == METADATA
    assert parts.payload == PAYLOAD


@pytest.mark.parametrize("front", [b"", BROKER_PART])
def test_an_entry_without_checksum_is_read(front: bytes):
    """Producers may leave the checksum out; metadata then starts right away."""
    parts = split_entry(entry(front, SIZED_METADATA, PAYLOAD))
    assert parts.metadata == METADATA
    assert parts.payload == PAYLOAD


def test_an_empty_payload_is_a_payload():
    """An entry may end with its metadata."""
    assert split_entry(entry(SIZED_METADATA)).payload == b""
    assert split_entry(entry(bytes(4))) == (None, b"", b"")


def test_parts_share_the_memory_of_the_frame():
    """Splitting copies nothing."""
    data = entry(CHECKSUM_PART, SIZED_METADATA, PAYLOAD)
    parts = split_entry(data)
    assert parts.payload.obj is data.obj
    assert parts.metadata.obj is data.obj


@pytest.mark.parametrize("flipped", [2, 5, 6, 10, 40, 63])
def test_a_flipped_bit_is_found(flipped: int):
    """Checksum, size, metadata, payload: damage anywhere names both checksums."""
    data = bytearray(CHECKSUM_PART + SIZED_METADATA + PAYLOAD)
    data[flipped] ^= 0x10
    with pytest.raises(
        CorruptEntryError, match=r"checksum should be 0x[0-9a-f]{8}, but"
    ):
        split_entry(memoryview(bytes(data)))


def test_a_wrong_checksum_says_expected_and_found():
    """Both numbers are in the text, so that logs of both sides can be compared."""
    with pytest.raises(CorruptEntryError) as caught:
        split_entry(entry(b"\x0e\x01\0\0\0\0", SIZED_METADATA, PAYLOAD))
    assert caught.value.reason == (
        "its checksum should be 0x00000000, but its bytes give 0x942cbff4."
    )


def test_verification_can_be_skipped():
    """Without it, a wrong checksum is passed over."""
    data = entry(b"\x0e\x01\0\0\0\0", SIZED_METADATA, PAYLOAD)
    assert split_entry(data, verify_checksum=False).payload == PAYLOAD


def test_every_truncation_is_a_corrupt_entry():
    """An entry cut short anywhere before its payload is an error that says so."""
    whole = BROKER_PART + CHECKSUM_PART + SIZED_METADATA
    for end in range(len(whole)):
        with pytest.raises(CorruptEntryError, match=r"ends|are left"):
            split_entry(memoryview(whole[:end]), verify_checksum=False)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (b"", "ends before the size of its metadata"),
        (b"\x0e", "ends before the size of its metadata"),
        (b"\x0e\x02", "ends before the size of its broker entry metadata"),
        (BROKER_PART, "ends before the size of its metadata"),
        (b"\x0e\x01", "ends inside of its checksum"),
        (b"\x0e\x01\0\0\0", "ends inside of its checksum"),
        (b"\x0e\x01\0\0\0\0", "ends before the size of its metadata"),
        (b"\0\0\0\1", "metadata should have 1 bytes, only 0 are left"),
    ],
)
def test_where_an_entry_ends_too_early(part: bytes, problem: str):
    """The error names the part that is not whole."""
    with pytest.raises(CorruptEntryError, match=problem):
        split_entry(memoryview(part))
