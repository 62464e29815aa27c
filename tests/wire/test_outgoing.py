# SPDX-License-Identifier: Apache-2.0
"""Frames to send: what they say, how large they are, and that our reader reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import MessageTooLargeError
from pulsar_spark.loops.sends import Messages, Packer, SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.chunks import ChunkAssembler
from pulsar_spark.wire.commands import decode_command
from pulsar_spark.wire.compression import CompressionType, compress
from pulsar_spark.wire.entries import (
    StoredEntry,
    read_stored_entry,
)
from pulsar_spark.wire.frames import FrameReader
from pulsar_spark.wire.outgoing import EntryEncoder, as_single
from tests.support.entries import decode_entry, member
from tests.support.protobuf_frames import encoder, frame_of
from tests.wire.fields import column_of

MIB = 1 << 20
NOW_MS = 1_760_000_000_123
CODECS = list(CompressionType)


def batch(
    one: EntryEncoder, members: Sequence[bytes], ids: tuple[int, int]
) -> SendFrame | None:
    """The frame of a batch of the same producer; None if it is too large."""
    packer = Packer(
        producer_id=one.producer_id,
        producer_name=one.producer_name,
        max_entry_bytes=one.max_entry_bytes,
        max_rows=len(members),
        max_bytes=100 * MIB,
        max_alone_bytes=one.max_entry_bytes,
        txn=one.txn,
        codec=one.compression,
        compress=partial(compress, one.compression),
        now_ms=lambda: NOW_MS,
        first_number=0,
    )
    ends = [0, *accumulate(map(len, members))]
    offsets = memoryview(struct.pack(f"{len(ends)}q", *ends)).cast("q")
    rows = Messages(memoryview(b"".join(members)), offsets)
    numbers = [ids[0]] * (len(members) - 1) + [ids[1]]
    frames: list[SendFrame] = []
    packer.add(rows, numbers, 0, len(members), frames, 1)
    packer.finish(frames)
    return frames[0] if frames else None


def read(frames: Iterable[SendFrame]) -> list[tuple[pb.CommandSend, StoredEntry]]:
    """What frames say to a reader; the command is the broker's part."""
    found = []
    for number, frame in enumerate(frames):
        reader = FrameReader()
        reader.receive_data(frame.data)
        read = reader.next_frame()
        assert read is not None
        assert reader.next_frame() is None
        command = decode_command(read.command)
        assert command.type == pb.BaseCommand.SEND
        found.append((command.send, read_stored_entry(1, number, read.payload)))
    return found


def entry_bytes(stored: StoredEntry) -> int:
    """What the broker compares with its limit."""
    return stored.metadata.ByteSize() + len(stored.payload)


# -- what a frame says -----------------------------------------------------------------


def test_golden_single():
    """Not a batch: neither place counts messages."""
    metadata = pb.MessageMetadata(partition_key="k", event_time=5)
    (frame,) = encoder().single(metadata, b"value", 0, NOW_MS)
    assert (frame.sequence_id, frame.highest_sequence_id, frame.rows) == (0, 0, 1)
    assert frame.data == frame_of(
        pb.CommandSend(producer_id=3, sequence_id=0, highest_sequence_id=0),
        pb.MessageMetadata(
            producer_name="p",
            sequence_id=0,
            highest_sequence_id=0,
            publish_time=NOW_MS,
            partition_key="k",
            event_time=5,
        ),
        b"value",
    )


def test_keys_of_a_batch():
    """Those of its first row, by which brokers choose a consumer."""
    ((_, stored),) = read_batch(encoder(), key=b"\x00\xff", ordering_key=b"o")
    assert stored.metadata.partition_key == "AP8="
    assert stored.metadata.partition_key_b64_encoded
    assert stored.metadata.ordering_key == b"o"
    ((_, stored),) = read_batch(encoder(), key="")
    assert stored.metadata.HasField("partition_key")
    assert not stored.metadata.HasField("partition_key_b64_encoded")
    assert not stored.metadata.HasField("ordering_key")


def read_batch(
    encoder: EntryEncoder, **keys: Any
) -> list[tuple[pb.CommandSend, StoredEntry]]:
    """One batch of two rows, read."""
    frame = batch(encoder, [member(b"a", **keys), member(b"b")], (0, 1))
    assert frame is not None
    return read([frame])


def test_transaction():
    """Its id, which may be 0:0, stands in both places, of each kind of entry."""
    one = encoder(txn=TxnId(0, 0), chunk_bytes=100)
    frames = [*one.single(pb.MessageMetadata(), b"x" * 150, 1, NOW_MS)]
    assert len(frames) > 1
    for command, stored in [*read_batch(one), *read(frames)]:
        for part in (command, stored.metadata):
            assert part.HasField("txnid_most_bits")
            assert part.HasField("txnid_least_bits")
            assert (part.txnid_most_bits, part.txnid_least_bits) == (0, 0)


def test_no_transaction():
    """Without one nothing is said of any."""
    for command, stored in read_batch(encoder()):
        assert not command.HasField("txnid_most_bits")
        assert not stored.metadata.HasField("txnid_most_bits")


@pytest.mark.parametrize("codec", CODECS)
def test_compressed(codec: CompressionType):
    """Of the payload alone, with its size; where nothing is compressed neither is said.

    There is no compressed nothing: some clients take it for damage.
    """
    one = encoder(compression=codec)
    values = [b"", b"same " * 100, b"x"]
    frame = batch(one, [*map(member, values)], (0, 2))
    assert frame is not None
    ((_, stored),) = read([frame])
    assert decode_entry(stored).payloads == values
    assert stored.metadata.HasField("uncompressed_size") == bool(codec)
    for value in values:
        ((_, stored),) = read(one.single(pb.MessageMetadata(), value, 0, NOW_MS))
        assert decode_entry(stored).payloads == [value]
        is_compressed = bool(codec and value)
        assert stored.metadata.HasField("compression") == is_compressed
        assert stored.metadata.HasField("uncompressed_size") == is_compressed


@pytest.mark.parametrize("codec", CODECS)
def test_a_tombstone_by_itself_has_a_size(codec: CompressionType):
    """Compaction takes a message without one for a value, of its metadata's size."""
    one = encoder(compression=codec)
    tombstone = pb.MessageMetadata(partition_key="k", null_value=True)
    ((_, stored),) = read(one.single(tombstone, b"", 0, NOW_MS))
    assert stored.metadata.HasField("uncompressed_size")
    assert stored.metadata.uncompressed_size == 0
    assert decode_entry(stored).payloads == [None]


# -- how large they are ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "most"),
    [(5 * MIB, 5_177_344), (100_000, 50_000), (10, 5)],
)
def test_headroom(limit: int, most: int):
    """Entries stay below the broker's limit by 64 KiB, or by half of a tiny one."""
    assert encoder(max_message_size_bytes=limit).max_entry_bytes == most


def largest_single(one: EntryEncoder) -> int:
    """The largest payload of an entry with these metadata, nothing compressed."""
    ((_, stored),) = read(one.single(pb.MessageMetadata(), b"", 1, NOW_MS))
    return one.max_entry_bytes - stored.metadata.ByteSize()


@pytest.mark.parametrize("limit", [5 * MIB, 1000])
def test_the_limit_of_a_single(limit: int):
    """An entry may have exactly so many bytes, metadata included, and not one more."""
    one = encoder(max_message_size_bytes=limit)
    size = largest_single(one)
    ((_, stored),) = read(one.single(pb.MessageMetadata(), b"x" * size, 1, NOW_MS))
    assert entry_bytes(stored) == one.max_entry_bytes
    with pytest.raises(MessageTooLargeError) as caught:
        list(one.single(pb.MessageMetadata(), b"x" * (size + 1), 1, NOW_MS))
    assert caught.value.size_bytes == one.max_entry_bytes + 1
    assert caught.value.limit_bytes == one.max_entry_bytes


def test_the_limit_of_a_batch():
    """Likewise, but the answer is no frame: it can be sent in another way."""
    one = encoder(max_message_size_bytes=1000)
    keys: dict[str, Any] = {"key": "k" * 50, "ordering_key": b"o" * 50}
    frame = batch(one, [member(b"x" * 200, **keys)], (1, 1))
    assert frame is not None
    ((_, stored),) = read([frame])
    most = 200 + one.max_entry_bytes - entry_bytes(stored)
    assert most > 200
    frame = batch(one, [member(b"x" * most, **keys)], (1, 1))
    assert frame is not None
    ((_, stored),) = read([frame])
    assert entry_bytes(stored) == one.max_entry_bytes
    assert batch(one, [member(b"x" * (most + 1), **keys)], (1, 1)) is None


def test_metadata_alone_are_too_large():
    """Not even chunks help then."""
    one = encoder(max_message_size_bytes=1000, chunk_bytes=1000)
    metadata = pb.MessageMetadata(partition_key="k" * 600)
    with pytest.raises(MessageTooLargeError):
        list(one.single(metadata, b"v", 1, NOW_MS))


# -- chunks ----------------------------------------------------------------------------


def test_chunks():
    """Pieces under one uuid, which the last one completes."""
    one = encoder(chunk_bytes=100)
    value = bytes(range(256))
    metadata = pb.MessageMetadata(partition_key="k")
    frames = list(one.single(metadata, value, 9, NOW_MS))
    found = read(frames)
    count = len(found)
    assert count > 2
    assert [f.rows for f in frames] == [0] * (count - 1) + [1]
    assert b"".join(stored.payload for _, stored in found) == value
    for number, (command, stored) in enumerate(found):
        assert command.is_chunk
        assert not command.HasField("num_messages")
        assert command.sequence_id == stored.metadata.sequence_id == 9
        assert stored.metadata.chunk_id == number
        assert stored.metadata.num_chunks_from_msg == count
        assert stored.metadata.total_chunk_msg_size == 256
        assert stored.metadata.uuid == "p-9"
        assert stored.metadata.partition_key == "k"
    # 28 bytes at most are numbers, and their tags, that a chunk says of itself.
    assert {len(stored.payload) for _, stored in found[:-1]} == {100 - len("p-9") - 28}


def test_the_smallest_chunks():
    """One byte each; where there is room for none, the message is too large."""
    found = read(encoder(chunk_bytes=32).single(pb.MessageMetadata(), b"x" * 33, 9, 1))
    assert [bytes(stored.payload) for _, stored in found] == [b"x"] * 33
    with pytest.raises(MessageTooLargeError):
        list(encoder(chunk_bytes=31).single(pb.MessageMetadata(), b"x" * 33, 9, 1))


def test_no_chunks_for_what_fits():
    """One that needs no cutting is an ordinary entry, where it may be cut, too."""
    one = encoder(chunk_bytes=100)
    ((command, stored),) = read(one.single(pb.MessageMetadata(), b"x" * 100, 1, 1))
    assert not command.is_chunk
    assert not stored.metadata.HasField("uuid")
    assert len(list(one.single(pb.MessageMetadata(), b"x" * 101, 1, 1))) == 2


def test_chunks_of_a_producer_with_a_long_name():
    """Each repeats it as part of the uuid, in bytes that are no characters."""
    one = encoder(
        producer_name="日本語" * 30, max_message_size_bytes=3000, chunk_bytes=3000
    )
    found = read(one.single(pb.MessageMetadata(), bytes(5000), 1, NOW_MS))
    assert len(found) > 2
    assert all(entry_bytes(stored) <= one.max_entry_bytes for _, stored in found)


@settings(deadline=None)
@given(
    name=st.text(min_size=1, max_size=60),
    key=st.text(max_size=60),
    value=st.binary(max_size=3000) | st.integers(0, 40_000).map(bytes),
    codec=st.sampled_from(CODECS),
    chunk_bytes=st.integers(300, 3000),
    limit=st.integers(2000, 6000),
    sequence_id=st.integers(0, 2**63 - 1),
)
def test_any_message_in_chunks(
    name: str,
    key: str,
    value: bytes,
    codec: CompressionType,
    chunk_bytes: int,
    limit: int,
    sequence_id: int,
):
    """Put together they are what was sent; none is larger than it may be."""
    one = encoder(
        producer_name=name,
        compression=codec,
        chunk_bytes=chunk_bytes,
        max_message_size_bytes=limit,
    )
    metadata = pb.MessageMetadata(partition_key=key)
    frames = list(one.single(metadata, value, sequence_id, NOW_MS))
    found = read(frames)
    assert all(entry_bytes(stored) <= one.max_entry_bytes for _, stored in found)
    assert all(len(stored.payload) <= chunk_bytes for _, stored in found)
    whole = found[-1][1]
    if len(found) > 1:
        assembler = ChunkAssembler(MIB, max_pending=10, expire_ms=0)
        for _, stored in found:
            answer = assembler.add(stored)
        assert isinstance(answer, StoredEntry)
        whole = answer
    entry = decode_entry(whole)
    assert entry.payloads == [value]
    assert column_of(entry, "partition_key") == [key]
    assert column_of(entry, "sequence_id") == [sequence_id]


@settings(deadline=None)
@given(
    values=st.lists(st.binary(max_size=300), min_size=1, max_size=20),
    codec=st.sampled_from(CODECS),
    first=st.integers(0, 2**62),
    gap=st.integers(0, 5),
)
def test_any_batch(values: list[bytes], codec: CompressionType, first: int, gap: int):
    """Our reader gives what went in, and numbers rows where no number is left out."""
    last = first + len(values) - 1 + gap
    if len(values) == 1:
        last = first
    frame = batch(encoder(compression=codec), [*map(member, values)], (first, last))
    assert frame is not None
    ((command, stored),) = read([frame])
    assert (command.sequence_id, command.highest_sequence_id) == (first, last)
    entry = decode_entry(stored)
    assert entry.payloads == values
    assert entry.metadata.publish_time == NOW_MS
    has_gap = last - first >= len(values)
    ids = [first] * len(values) if has_gap else range(first, last + 1)
    assert column_of(entry, "sequence_id") == list(ids)


# -- out of a batch --------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"partition_key": "", "ordering_key": b"", "event_time": 0},
        {"partition_key": "AP8=", "partition_key_b64_encoded": True},
        {"null_value": True, "ordering_key": b"o", "event_time": 7},
        {"properties": [("a", "x"), ("ä", "x"), ("a", "")]},
    ],
)
def test_as_single(fields: dict[str, Any]):
    """A message says the same by itself as in a batch."""
    message = memoryview(member(b"value", **fields))
    metadata, payload = as_single(message)
    expected = pb.MessageMetadata(
        **{k: v for k, v in fields.items() if k != "properties"}
    )
    for key, value in fields.get("properties", ()):
        expected.properties.add(key=key, value=value)
    assert metadata == expected
    assert payload == b"value"
