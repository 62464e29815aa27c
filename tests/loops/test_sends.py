# SPDX-License-Identifier: Apache-2.0
"""Rows to frames and receipts, in all forms of the kernel, beside protobuf's own."""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.arrow.schema import STRING_MAP, TIMESTAMP
from pulsar_spark.arrow.values import EncodedValues, ValueEncoder
from pulsar_spark.loops.sends import OddRow, Receipt, SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import decode_command, to_signed
from pulsar_spark.wire.compression import CompressionType, compress
from pulsar_spark.wire.frames import FrameReader, encode_frame, split_entry
from pulsar_spark.wire.outgoing import EntryEncoder, as_single
from tests.support import kernels
from tests.support.entries import member
from tests.support.protobuf_frames import (
    BatchCutter,
    batch_frame,
    encoder,
    frame_of,
    row_frames,
)
from tests.wire.builders import proto

NOW_MS = 1_760_000_000_123
MIB = 1 << 20
ANY_SIZE = 1 << 30
CODECS = list(CompressionType)
Found = list[SendFrame | OddRow]


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    """Each form of the kernel."""
    return kernels.load(request.param, "sends")


def packer(
    kernel: Any, like: EntryEncoder, rows: int, size: int, **further: Any
) -> Any:
    """What the fast way needs to know: the same."""
    given: dict[str, Any] = {
        "producer_id": like.producer_id,
        "producer_name": like.producer_name,
        "max_entry_bytes": like.max_entry_bytes,
        "max_rows": rows,
        "max_bytes": size,
        "max_alone_bytes": like.max_entry_bytes,
        "txn": like.txn,
        "codec": int(like.compression),
        "compress": partial(compress, like.compression),
        "now_ms": lambda: NOW_MS,
        "schema_version": like.schema_version,
        "encrypt": None if like.encryption is None else like.encryption.encrypt,
    }
    return kernel.Packer(**{**given, **further})


def messages(kernel: Any, rows: EncodedRows) -> Any:
    """Rows as this form of the kernel takes them."""
    times = hashes = None
    if rows.deliver_at_ms is not None:
        own = [-1 if t is None else t for t in rows.deliver_at_ms.to_pylist()]
        times = memoryview(struct.pack(f"{len(rows)}q", *own)).cast("q")
    if rows.entry_hashes is not None:
        own = rows.entry_hashes.to_pylist()
        hashes = memoryview(struct.pack(f"{len(rows)}H", *own)).cast("H")
    return kernel.Messages(rows.data, rows.offsets, times, hashes)


def taken(
    kernel: Any,
    one: Any,
    rows: EncodedRows,
    numbers: Sequence[int],
    ends: Sequence[int] = (),
    *,
    alone: bool = False,
    most_bytes: int = ANY_SIZE,
) -> Found:
    """What becomes of rows that come in several calls, and of what is left of them."""
    found: Found = []
    begin = 0
    of_kernel = messages(kernel, rows)
    take = one.add_alone if alone else one.add
    for end in [*ends, len(rows)]:
        while begin < end:
            frames: list[SendFrame] = []
            begin = take(of_kernel, numbers, begin, end, frames, most_bytes)
            assert sum(len(frame.data) for frame in frames[:-1]) < most_bytes
            found += frames
            found += [] if one.odd_row is None else [one.odd_row]
    rest: list[SendFrame] = []
    one.finish(rest)
    assert one.rows == 0
    return [*found, *rest, *([] if one.odd_row is None else [one.odd_row])]


def slowly(
    like: EntryEncoder,
    rows: EncodedRows,
    numbers: Sequence[int],
    shape: tuple[int, int] | None,
    base: int | None,
    next_id: int,
) -> Found:
    """The same by protobuf: in batches of so many rows and bytes; None: each alone."""
    found: Found = []
    if shape is None:
        for row in range(len(rows)):
            number = next_id + row if base is None else base + numbers[row]
            found += row_frames(like, rows, row, number, NOW_MS)
        return found
    cutter = BatchCutter(*shape)
    batches = [*cutter.add(rows, numbers, 0, len(rows)), *cutter.finish()]
    for batch in batches:
        ids = next_id, next_id + batch.rows - 1
        next_id += batch.rows
        if base is not None:
            ids = base + batch.first_row, base + batch.last_row
        frame = batch_frame(like, batch, ids, NOW_MS)
        found.append(frame or OddRow(memoryview(batch.payload), ids[0], -1))
    return found


def encoded(
    columns: dict[str, pa.Array], values: ValueEncoder | None = None
) -> EncodedRows:
    """Rows as a task encodes them."""
    batch = pa.RecordBatch.from_arrays([*columns.values()], [*columns])
    return RowEncoder(batch.schema, values).encode(batch)


class Reversing:
    """Encrypts in a way that is always the same: it turns payloads around."""

    def __init__(self, keys: int) -> None:
        named = [pb.EncryptionKeys(key=f"k{n}", value=bytes(100)) for n in range(keys)]
        metadata = pb.MessageMetadata(encryption_keys=named, encryption_param=b"n" * 12)
        self.fields = metadata.SerializePartialToString()

    @property
    def overhead_bytes(self) -> int:
        """As long as that of AES."""
        return len(self.fields) + 16

    def encrypt(self, payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return the same for the same."""
        return self.fields, bytes(payload)[::-1] + bytes(16)


class Separated:
    """Makes keys of the column ``key``, as a schema may want it: NULL is a null key."""

    columns = ("key", "value")

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the columns as they are."""
        keys, values = (column.cast(pa.large_binary()) for column in columns)
        return EncodedValues(values, keys)


def any_rows(rng: random.Random) -> EncodedRows:
    """Rows with any columns, some of whose fields are missing or empty or long."""
    count = rng.randrange(1, 40)
    longest = rng.choice([3, 30, 200, 1000])

    def some(make: Any) -> list[Any]:
        share = rng.choice([0, 0.3, 1])
        return [make() if rng.random() <= share else None for _ in range(count)]

    def data() -> bytes:
        return rng.randbytes(rng.choice([0, 1, rng.randrange(longest)]))

    def text() -> str:
        return "".join(rng.choices("aß語😀", k=rng.randrange(rng.choice([1, longest]))))

    def time() -> int:
        return rng.randrange(1 << rng.choice([10, 20, 53, 62]))

    def pairs() -> list[tuple[str, str]]:
        return [(text(), text()) for _ in range(rng.randrange(4))]

    columns = {
        "value": pa.array(some(data), pa.binary()),
        "__key": pa.array(some(data), pa.binary())
        if rng.random() < 0.5
        else pa.array(some(text), pa.string()),
        "__orderingKey": pa.array(some(data), pa.binary()),
        "__eventTime": pa.array(some(time), TIMESTAMP),
        "__messageProperties": pa.array(some(pairs), STRING_MAP),
        "__deliverAtTime": pa.array(some(time), TIMESTAMP),
    }
    names = ["value", *rng.sample([*columns][1:], rng.randrange(6))]
    found = {name: columns[name] for name in names}
    if "__key" in found and rng.random() < 0.3:
        found["key"] = found.pop("__key")
        rows = encoded(found, Separated())
    else:
        rows = encoded(found)
    if rng.random() < 0.3:
        most = rng.choice([1, 300, 1 << 16])
        hashes = [rng.randrange(most) for _ in range(count)]
        rows = replace(rows, entry_hashes=pa.array(hashes, pa.uint16()))
    if rng.random() < 0.3:  # of an array that begins somewhere else
        first = rng.randrange(count)
        rows = rows.take(pa.array(range(first, count), pa.int64()))
    return rows


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))]
)
def test_the_same_as_protobuf(kernel: Any, seed: int):
    """Each byte of each frame, for any rows, however they are cut and numbered."""
    for case in range(150):
        rng = random.Random(1000 * seed + case)
        rows = any_rows(rng)
        like = encoder(
            producer_id=rng.choice([0, 1, 300, 2**63]),
            producer_name=rng.choice(["p", "", "名前" * rng.randrange(60)]),
            max_message_size_bytes=rng.choice([5 * MIB, 100_000, 2000, 500]),
            compression=rng.choice([*CODECS, CompressionType.NONE]),
            txn=rng.choice([None, None, TxnId(0, 0), TxnId(2**64 - 1, 1 << 40)]),
            schema_version=rng.choice([b"", bytes(7) + b"\3", b"v" * 300]),
            encryption=rng.choice([None, None, Reversing(1), Reversing(3)]),
        )
        # As ``sink.target`` has it: a batch has room for keys, and for its metadata.
        room = max(like.max_entry_bytes - like.overhead_bytes, 0)
        size = rng.choice([1, 100, room // 3])
        shape = rng.choice([None, (rng.randrange(1, 12), size), (1000, size)])
        if shape and room < (1000 if rows.entry_hashes is None else 2000):
            shape = (1, 1)
        next_id = rng.choice([0, 127, 1 << 40, 2**63 - 100])
        base = rng.choice([None, 0, 7 << 32])
        steps = [rng.choice([1, 1, 5]) for _ in range(len(rows))]
        numbers = [sum(steps[: row + 1]) for row in range(len(rows))]
        one = packer(kernel, like, *(shape or (1, 1)), first_number=base)
        one.next_sequence_id = next_id
        ends = sorted(rng.choices(range(len(rows) + 1), k=rng.randrange(4)))
        most_bytes = rng.choice([1, 300, ANY_SIZE])
        alone = shape is None
        found = taken(
            kernel, one, rows, numbers, ends, alone=alone, most_bytes=most_bytes
        )
        wanted = slowly(like, rows, numbers, shape, base, next_id)
        assert plain(found) == plain(wanted), f"{seed}/{case}"
        assert one.next_sequence_id == next_id + (len(rows) if base is None else 0)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("size", [127, 128, 16_384, 70_000, 17 * MIB])
def test_metadata_of_any_size(kernel: Any, size: int, alone: bool):
    """The same, between others that are small."""
    keys = pa.array(["k", "k" * size, "k"])
    pairs = pa.array([[], [("a", "b" * 300)], []], STRING_MAP)
    rows = encoded(
        {
            "value": pa.array([b"a", b"b" * 300, b"c"]),
            "__key": keys,
            "__orderingKey": pa.array([None, b"o" * 200, b""]),
            "__messageProperties": pairs,
        }
    )
    like = encoder(max_message_size_bytes=100 * MIB)
    shape = None if alone else (1, 100)
    one = packer(kernel, like, *(shape or (1, 1)))
    found = taken(kernel, one, rows, range(3), alone=alone)
    assert plain(found) == plain(slowly(like, rows, range(3), shape, None, 0))


def plain(found: Found) -> list[tuple[Any, ...]]:
    """Frames and odd rows, whatever module their types are of."""
    return [
        tuple(bytes(x) if isinstance(x, memoryview) else x for x in one)
        for one in found
    ]


def test_names_and_keys_of_any_size(kernel: Any):
    """There is room for both, however long each of them is beside the other."""
    for name, key in itertools.product((1, 300, 3000), (200, 300, 700, 3300, 7000)):
        like = encoder(producer_name="n" * name)
        rows = encoded(
            {"value": pa.array([b"v"] * 2), "__key": pa.array(["k" * key] * 2)}
        )
        for shape in (None, (1, 100)):
            one = packer(kernel, like, *(shape or (1, 1)))
            found = taken(kernel, one, rows, range(2), alone=shape is None)
            assert plain(found) == plain(slowly(like, rows, range(2), shape, None, 0))


def test_golden_batch(kernel: Any):
    """Command and metadata say the same; nothing is said that was not asked for."""
    rows = encoded({"value": pa.array([b"a", b"bc"])})
    one = packer(kernel, encoder(), 10, 1000)
    one.next_sequence_id = 7
    (frame,) = taken(kernel, one, rows, range(2))
    assert tuple(frame[:3]) == (7, 8, 2)
    assert frame[3].hex() == (
        "0000003a"  # so many bytes follow
        "0000000c080632080803100718023008"  # SEND
        "0e01a04c1903"  # checksum of all that follows
        "000000110a0170100718fb80b3c19c335802c00108"  # MessageMetadata
        "00000002180161"  # size, SingleMessageMetadata, value
        "0000000218026263"
    )


def test_golden_row_by_itself(kernel: Any):
    """What the row says of itself stands in the entry's metadata."""
    columns = {
        "value": pa.array([b"value"]),
        "__key": pa.array(["k"]),
        "__eventTime": pa.array([5000], TIMESTAMP),
    }
    one = packer(kernel, encoder(), 1, 1)
    (frame,) = taken(kernel, one, encoded(columns), range(1), alone=True)
    send = pb.CommandSend(producer_id=3, sequence_id=0, highest_sequence_id=0)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        highest_sequence_id=0,
        publish_time=NOW_MS,
        partition_key="k",
        event_time=5,
    )
    assert tuple(frame) == (0, 0, 1, frame_of(send, metadata, b"value"))


# -- where batches end -----------------------------------------------------------------


def rows_of(sizes: Sequence[int]) -> EncodedRows:
    """Rows whose messages have these sizes, 6 at least and 127 at most."""
    return encoded({"value": pa.array([bytes(size - 6) for size in sizes])})


def cut(kernel: Any, shape: tuple[int, int], sizes: Sequence[int]) -> list[int]:
    """How many rows each batch has."""
    one = packer(kernel, encoder(), *shape)
    return [frame[2] for frame in taken(kernel, one, rows_of(sizes), range(len(sizes)))]


def test_by_rows(kernel: Any):
    """A batch is closed by its last row, not by the first one that has no place."""
    one = packer(kernel, encoder(), 3, 1000)
    rows = messages(kernel, rows_of([10] * 7))
    frames: list[SendFrame] = []
    assert one.add(rows, range(7), 0, 6, frames, ANY_SIZE) == 6
    assert [frame.rows for frame in frames] == [3, 3]
    assert one.rows == 0
    assert one.add(rows, range(7), 6, 7, frames, ANY_SIZE) == 7
    assert (len(frames), one.rows) == (2, 1)
    assert one.finish(frames) == len(frames[2].data)
    assert one.finish(frames) == 0
    assert [frame.rows for frame in frames] == [3, 3, 1]


def test_by_bytes(kernel: Any):
    """As many rows as have room; exactly full is not too full."""
    assert cut(kernel, (1000, 100), [50, 50, 6, 88, 6, 6]) == [2, 3, 1]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_row_that_is_too_large(kernel: Any, place: int):
    """It goes alone, with nothing before it and nothing behind it."""
    sizes = [10, 10]
    sizes.insert(place, 101)
    expected = [1]
    expected[:0] = [place] if place else []
    expected += [2 - place] if place < 2 else []
    assert cut(kernel, (1000, 100), sizes) == expected


def test_numbers_of_rows_that_come_in_parts(kernel: Any):
    """A batch has those of its own rows, whatever the next part begins with."""
    one = packer(kernel, encoder(), 10, 100, first_number=100)
    frames: list[SendFrame] = []
    rows = messages(kernel, rows_of([40, 40]))
    assert one.add(rows, [5, 7], 0, 2, frames, ANY_SIZE) == 2
    assert one.add(rows, [11, 15], 0, 2, frames, ANY_SIZE) == 2
    one.finish(frames)
    found = [(f.sequence_id, f.highest_sequence_id, f.rows) for f in frames]
    assert found == [(105, 107, 2), (111, 115, 2)]


def test_what_is_left_is_a_copy(kernel: Any):
    """Rows that wait for others do not keep the whole RecordBatch in memory."""
    one = packer(kernel, encoder(), 1000, 1000)
    data = bytearray(member(b"value") * 3)
    step = len(data) // 3
    offsets = memoryview(struct.pack("4q", *range(0, 4 * step, step))).cast("q")
    rows = kernel.Messages(memoryview(data), offsets)
    assert one.add(rows, range(3), 0, 2, [], ANY_SIZE) == 2
    assert one.add(rows, range(3), 2, 3, [], ANY_SIZE) == 3
    del rows
    data.clear()  # nobody views it
    frames: list[SendFrame] = []
    one.finish(frames)
    assert frames[0].data.endswith(member(b"value") * 3)


@pytest.mark.parametrize("alone", [False, True])
def test_how_much_is_taken_at_a_time(kernel: Any, alone: bool):
    """No more once so many bytes are in frames."""
    rows = messages(kernel, rows_of([50, 50, 50]))
    for less, taken_rows in ((0, 1), (-1, 2)):
        frames: list[SendFrame] = []
        one = packer(kernel, encoder(), 1, 100)
        take = one.add_alone if alone else one.add
        take(rows, range(3), 0, 1, frames, 1)
        size = len(frames[0].data)
        frames = []
        assert take(rows, range(3), 0, 3, frames, size - less) == taken_rows
        assert len(frames) == taken_rows


# -- what is left to others ------------------------------------------------------------


@pytest.mark.parametrize("alone", [False, True])
def test_a_row_that_does_not_fit(kernel: Any, alone: bool):
    """It is handed over with its number, once, and what is behind it goes on."""
    like = encoder(max_message_size_bytes=1000)
    rows = encoded({"value": pa.array([b"a", b"b" * 600, b"c"])})
    one = packer(kernel, like, 1, 100)
    first, large, last = taken(kernel, one, rows, range(3), alone=alone)
    assert (first[0], last[0]) == (0, 2)
    message, sequence_id, delivery_time = large
    assert bytes(message) == rows.messages[1].as_py()
    assert (sequence_id, delivery_time) == (1, -1)


def test_a_row_that_fits_into_no_entry_is_all_that_is_left(kernel: Any):
    """It waits for others as any row does; then there is no frame of it."""
    one = packer(kernel, encoder(max_message_size_bytes=100), 2, 1000)
    rows = messages(kernel, rows_of([120]))
    frames: list[SendFrame] = []
    assert one.add(rows, range(1), 0, 1, frames, ANY_SIZE) == 1
    assert (one.rows, one.odd_row) == (1, None)
    assert one.finish(frames) == 0
    assert not frames
    assert len(one.odd_row.message) == 120
    assert one.finish(frames) == 0
    assert (one.rows, one.odd_row) == (0, None)


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_the_most_that_a_row_by_itself_may_have(
    kernel: Any, compression: CompressionType
):
    """Of its payload as it is sent: exactly so much is not too much."""
    like = encoder(compression=compression)
    rows = encoded({"value": pa.array([b"value" * 50])})
    size = len(compress(compression, b"value" * 50))
    for most in (size - 1, size):
        one = packer(kernel, like, 1, 1, max_alone_bytes=most)
        frames: list[SendFrame] = []
        assert one.add_alone(messages(kernel, rows), range(1), 0, 1, frames, 1) == 1
        assert len(frames) == (most == size)
        assert (one.odd_row is None) == (most == size)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x05\x18\x01",
        b"\xff\xff\xff\xff\x18\x01",
        struct.pack(">I", 2) + b"\x18\x81",
        struct.pack(">I", 3) + b"\x12\x02k",
        struct.pack(">I", 4) + b"\x18\x00\x18\x00",
        struct.pack(">I", 4) + b"\x18\x00\x12\x00",
        struct.pack(">I", 4) + b"\x18\x00\x30\x02",
        struct.pack(">I", 4) + b"\x18\x00\x40\x01",
        struct.pack(">I", 5) + b"\x18\x00\x9a\x01\x00",
        struct.pack(">I", 12) + b"\x18" + b"\xff" * 10 + b"\x01",
        struct.pack(">I", 13) + b"\x18\x00\x28" + b"\xff" * 9 + b"\x02",
    ],
)
def test_a_message_that_is_none(kernel: Any, message: bytes):
    """Nothing is made of what nobody here writes, wherever it stands."""
    good = member(b"value")
    for before, take in itertools.product((b"", good), ("add", "add_alone")):
        ends = 0, len(before), len(before) + len(message)
        offsets = memoryview(struct.pack("3q", *ends)).cast("q")
        rows = kernel.Messages(memoryview(before + message), offsets)
        one = packer(kernel, encoder(), 1, 1000)
        frames: list[SendFrame] = []
        assert getattr(one, take)(rows, range(2), 1, 2, frames, 1) == 2
        assert not frames
        assert bytes(one.odd_row.message) == message


def test_a_message_that_is_none_behind_what_could_be_some(kernel: Any):
    """Nothing is read of what stands before it in the buffer."""
    before = b"\x00\x3a\x0b" + bytes(5)
    data = before + struct.pack(">I", 2) + b"\x18\x81"
    offsets = memoryview(struct.pack("2q", len(before), len(data))).cast("q")
    rows = kernel.Messages(memoryview(data), offsets)
    for take in ("add", "add_alone"):
        frames: list[SendFrame] = []
        one = packer(kernel, encoder(), 1, 1000)
        assert getattr(one, take)(rows, range(1), 0, 1, frames, ANY_SIZE) == 1
        assert not frames
        assert one.odd_row is not None


@pytest.mark.parametrize("seed", range(3))
def test_damaged_messages(kernel: Any, seed: int):
    """Whatever their bytes are: a frame of that payload, or none. Nothing breaks."""
    rng = random.Random(seed)
    framed = 0
    for _ in range(1500):
        data = bytearray(
            member(
                rng.randbytes(rng.randrange(4)),
                key="k" * rng.randrange(3),
                properties={"a": "b"} if rng.random() < 0.5 else {},
                **({"event_time": 7} if rng.random() < 0.5 else {}),
            )
        )
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 1, 0x80, 0xFF, rng.randrange(256)]
            )
        size = rng.randrange(len(data) + 1) if rng.random() < 0.3 else len(data)
        offsets = memoryview(struct.pack("2q", 0, size)).cast("q")
        rows = kernel.Messages(memoryview(bytes(data)), offsets)
        for take in ("add", "add_alone"):
            one = packer(kernel, encoder(), 1, 1000)
            frames: list[SendFrame] = []
            getattr(one, take)(rows, range(1), 0, 1, frames, ANY_SIZE)
            assert len(frames) == (one.odd_row is None)
            framed += len(frames)
            for frame in frames:
                described, payload = entry_of(frame.data)
                assert bytes(data[:size]).endswith(payload)
                with contextlib.suppress(DecodeError, UnicodeDecodeError):
                    own, _ = as_single(memoryview(data))
                    metadata = pb.MessageMetadata.FromString(described)
                    assert metadata.partition_key == own.partition_key
                    assert metadata.ordering_key == own.ordering_key
                    if take == "add_alone":
                        assert metadata.properties == own.properties
                        assert metadata.event_time == own.event_time
                        assert metadata.null_value == own.null_value
    assert framed > 500


def entry_of(frame: bytes) -> tuple[bytes, bytes]:
    """Metadata and payload of a frame, whose checksum is right."""
    reader = FrameReader()
    reader.receive_data(frame)
    read = reader.next_frame()
    assert read is not None
    parts = split_entry(read.payload)
    return bytes(parts.metadata), bytes(parts.payload)


# -- receipts --------------------------------------------------------------------------


def receipt(producer_id: int, sequence_id: int, **further: Any) -> bytes:
    """SEND_RECEIPT, as a broker sends it."""
    body = pb.CommandSendReceipt(
        producer_id=producer_id, sequence_id=sequence_id, **further
    )
    command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=body)
    return encode_frame(command.SerializeToString())


def test_receipts(kernel: Any):
    """All of them up to what is something else, or not there yet."""
    data = b"".join(
        receipt(
            4,
            number,
            message_id=pb.MessageIdData(ledgerId=7, entryId=number, partition=1),
            highest_sequence_id=number + 9,
        )
        for number in range(100)
    )
    wanted = [(4, number, 7, number) for number in range(100)]
    for rest in (b"", b"\x00", data[:-1][-30:], encode_frame(b"\x08\x12\x92\x01\x00")):
        found, size = kernel.read_receipts(memoryview(data + rest))
        assert [*map(tuple, found)] == wanted
        assert size == len(data)


def test_receipts_that_are_not_there_yet(kernel: Any):
    """Nothing is read behind what has come."""
    place = pb.MessageIdData(ledgerId=2**40, entryId=300)
    one = receipt(4, 2**33, message_id=place, highest_sequence_id=2**33)
    for size in range(len(one)):
        found, end = kernel.read_receipts(one + one[:size])
        assert (len(found), end) == (1, len(one))


PLACE = proto((1, 6), (2, 7), (3, 1))


@pytest.mark.parametrize(
    "body",
    [
        proto((1, 2**63)),
        proto((1, 2**40), (2, 2**40)),
        proto((2, 5), (3, PLACE), (4, 9)),
        proto((1, 4), (3, PLACE), (4, 9)),
        proto((1, 4), (2, 5), (4, 9)),
        proto((1, 4), (2, 5), (3, b""), (4, 9)),
        proto((1, 4), (2, 5), (3, proto((1, 6), (3, 1))), (4, 9)),
        proto((1, 4), (2, 5), (3, proto((2, 7), (3, 1))), (4, 9)),
        proto((1, 4), (2, 5), (3, proto((1, 6))), (2, 7)),
        proto((1, 4), (2, 5), (3, PLACE + proto((4, 0)))),
        proto((1, 4), (2, 5), (3, PLACE + proto((4, 0))), (4, 9)),
        proto((1, 4), (2, 5), (3, PLACE), (5, 9)),
        proto((1, 4), (2, 5), (3, PLACE), (4, 9), (5, 1)),
        proto((1, 4), (2, 5), (3, PLACE), (4, 9))[:-1] + b"\x89",
        proto((1, 4), (2, 5), (3, PLACE))[:-1] + b"\x81",
    ],
)
def test_unusual_receipts(kernel: Any, body: bytes):
    """What lacks a field, or has one more, is left to others."""
    one = receipt(4, 5, message_id=pb.MessageIdData(ledgerId=6, entryId=7))
    unusual = encode_frame(proto((1, 7), (7, body)))
    for rest in (b"", one):
        assert kernel.read_receipts(unusual + rest) == ([], 0)
        found, end = kernel.read_receipts(one + unusual + rest)
        assert (len(found), end) == (1, len(one))


def test_receipts_whose_sizes_do_not_fit(kernel: Any):
    """A byte of the sizes and the type that is another makes no receipt of it."""
    one = receipt(4, 5, message_id=pb.MessageIdData(ledgerId=6, entryId=7))
    for place in range(12):
        for byte in {0, 1, 7, 8, 0x3A, 0x80, 0xFF, one[place] - 1, one[place] + 1}:
            if byte in (-1, one[place]):
                continue
            data = one[:place] + bytes((byte,)) + one[place + 1 :]
            assert kernel.read_receipts(data + one) == ([], 0), (place, byte)


def test_places_of_receipts(kernel: Any):
    """They are below 0 from 63 bits on."""
    for number in (0, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1):
        place = pb.MessageIdData(ledgerId=number, entryId=number)
        ((_, _, *found),), _ = kernel.read_receipts(receipt(1, 2, message_id=place))
        assert found == [to_signed(number)] * 2


@settings(deadline=None)
@given(
    ids=st.tuples(*[st.sampled_from([0, 1, 127, 128, 2**32, 2**63, 2**64 - 1])] * 5),
    has_partition=st.booleans(),
    has_highest=st.booleans(),
)
@pytest.mark.parametrize("form", kernels.FORMS)
def test_any_receipt(
    form: str, ids: tuple[int, ...], has_partition: bool, has_highest: bool
):
    """The numbers that protobuf finds."""
    place = pb.MessageIdData(ledgerId=ids[2], entryId=ids[3])
    if has_partition:
        place.partition = 3
    further = {"highest_sequence_id": ids[4]} if has_highest else {}
    data = receipt(ids[0], ids[1], message_id=place, **further)
    found, size = kernels.load(form, "sends").read_receipts(data)
    wanted = (ids[0], ids[1], to_signed(ids[2]), to_signed(ids[3]))
    assert [*map(tuple, found)] == [wanted]
    assert size == len(data)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_receipts(kernel: Any, seed: int):
    """What is taken for a receipt is one, and says what protobuf says."""
    rng = random.Random(seed)
    taken_ones = 0
    for _ in range(4000):
        place = pb.MessageIdData(ledgerId=rng.randrange(300), entryId=rng.randrange(9))
        data = bytearray(
            receipt(rng.randrange(300), rng.randrange(300), message_id=place)
        )
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 7, 8, 0x10, 0x80, rng.randrange(256)]
            )
        found, size = kernel.read_receipts(bytes(data))
        assert (size == len(data)) == bool(found)
        if found:
            taken_ones += 1
            assert [*map(tuple, found)] == [by_protobuf(bytes(data))]
    assert taken_ones > 500


def by_protobuf(data: bytes) -> Receipt:
    """The receipt that a frame is."""
    reader = FrameReader()
    reader.receive_data(data)
    frame = reader.next_frame()
    assert frame is not None
    assert not frame.payload
    command = decode_command(frame.command)
    assert command.type == pb.BaseCommand.SEND_RECEIPT
    body = command.send_receipt
    place = body.message_id
    return Receipt(
        body.producer_id,
        body.sequence_id,
        to_signed(place.ledgerId),
        to_signed(place.entryId),
    )
