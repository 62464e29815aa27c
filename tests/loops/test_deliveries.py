# SPDX-License-Identifier: Apache-2.0
"""The walk over frames, in all forms of the kernel, beside protobuf's own parser."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pytest

from pulsar_spark.loops import fact
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.protobuf import UNREADABLE
from tests.support import kernels
from tests.wire import builders
from tests.wire.builders import MESSAGE, Outer, Sent, proto, varint

KIB = 1024
FACTS = {
    name.lower(): number
    for name, number in vars(fact).items()
    if name.isupper()
    if name not in ("PER_ENTRY", "KEY_IS_ENCODED", "VALUE_IS_NULL")
}
Facts = dict[str, Any]


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    """The module in one of its forms."""
    return kernels.load(request.param, "deliveries")


def scanned(
    kernel: Any,
    data: bytes,
    *,
    start: int = 0,
    end: int | None = None,
    most_frame_bytes: int = 64 * KIB,
    wanted: Sequence[int] = (1,),
    scanner: Any = None,
) -> list[Facts]:
    """What a walk finds of each entry; bytes in place of where they are."""
    scanner = kernel.Scanner() if scanner is None else scanner
    end = len(data) if end is None else end
    count = scanner.scan(memoryview(data), start, end, most_frame_bytes, wanted)
    assert start <= scanner.stop <= end
    assert count == 0 or scanner.consumer_id in wanted
    taken = data[start : scanner.stop]
    found = kernel.Deliveries(1, taken, scanner.facts(count), count)
    assert len(found) == count
    return [_readable(found, number) for number in range(count)]


def _readable(found: Any, number: int) -> Facts:
    facts = {name: found.fact(number, at) for name, at in FACTS.items()}
    data = found.data
    for name in ("key", "ordering_key", "schema_version", "broker_metadata"):
        start, end = facts.pop(name), facts.pop(f"{name}_end")
        assert start >= 0 or (start, end) == (-1, -1)
        facts[name] = None if start < 0 else data[start:end]
    end = facts.pop("end")
    facts["entry"] = data[facts.pop("start") : end]
    facts["checked"] = data[facts["checked"] : end]
    start, facts["payload"] = facts["payload"], data[facts["payload"] : end]
    facts["metadata"] = data[facts["metadata"] : start]
    return facts


def read(frame: bytes) -> Facts:
    """The same of a frame by protobuf."""
    (command_bytes,) = struct.unpack_from(">I", frame, 4)
    entry = frame[8 + command_bytes :]
    message = pb.BaseCommand.FromString(frame[8 : 8 + command_bytes]).message
    stamp, rest = None, entry
    if rest[:2] == b"\x0e\x02":
        (size,) = struct.unpack_from(">I", rest, 2)
        stamp, rest = rest[6 : 6 + size], rest[6 + size :]
        pb.BrokerEntryMetadata.FromString(stamp)
    magic, checksum, size = struct.unpack_from(">HII", rest)
    assert magic == 0x0E01
    described, payload = rest[10 : 10 + size], rest[10 + size :]
    metadata = pb.MessageMetadata.FromString(described)
    assert len(described) == size
    unpacked = metadata.uncompressed_size if metadata.compression else len(payload)
    single = pb.SingleMessageMetadata(
        payload_size=unpacked,
        sequence_id=metadata.sequence_id,
        properties=metadata.properties,
    )
    if metadata.HasField("partition_key"):
        single.partition_key = metadata.partition_key
    if metadata.HasField("ordering_key"):
        single.ordering_key = metadata.ordering_key
    if metadata.event_time:
        single.event_time = metadata.event_time
    if metadata.partition_key_b64_encoded:
        single.partition_key_b64_encoded = True
    if metadata.null_value:
        single.null_value = True
    count = metadata.num_messages_in_batch
    if not metadata.HasField("num_messages_in_batch"):
        count = 0
    gap = metadata.highest_sequence_id - metadata.sequence_id - (count - 1)
    return {
        "ledger_id": message.message_id.ledgerId,
        "entry_id": message.message_id.entryId,
        "redelivery_count": message.redelivery_count,
        "entry": entry,
        "broker_metadata": stamp,
        "checksum": checksum,
        "checked": rest[6:],
        "metadata": described,
        "payload": payload,
        "count": count,
        "codec": metadata.compression,
        "unpacked_bytes": metadata.uncompressed_size,
        "publish_time": metadata.publish_time,
        "event_time": metadata.event_time,
        "sequence_id": metadata.sequence_id,
        "sequence_step": int(gap == 0),
        "key": metadata.partition_key.encode()
        if metadata.HasField("partition_key")
        else None,
        "ordering_key": metadata.ordering_key
        if metadata.HasField("ordering_key")
        else None,
        "schema_version": metadata.schema_version
        if metadata.HasField("schema_version")
        else None,
        "marks": metadata.partition_key_b64_encoded * fact.KEY_IS_ENCODED
        | metadata.null_value * fact.VALUE_IS_NULL,
        "head_bytes": single.ByteSize(),
        "last_row": -1,
    }


@pytest.mark.parametrize("form", kernels.FORMS)
def test_which_form_it_is(form: str):
    """Who chooses between the ways to read asks for it."""
    is_compiled = kernels.load(form, "deliveries").KERNEL == "compiled"
    assert is_compiled == (form != "python")


# -- beside protobuf -------------------------------------------------------------------

NUMBERS = (0, 1, 127, 128, 2**31 - 1, 2**40, 2**63 - 1)
TEXTS = (b"", b"k", "größe".encode(), b"x" * 120)


def ordinary(dice: random.Random, sizes: Sequence[int] = (0, 1, 300)) -> bytes:
    """A frame with some of what is ordinary, in any order, some of it twice."""
    number, text = lambda: dice.choice(NUMBERS), lambda: dice.choice(TEXTS)
    pair = [proto((1, text())), proto((2, text()))]
    fields: list[tuple[int, int | bytes]] = [
        *((field, number()) for field in (2, 3, 12, 19, 22, 23, 24, 30)),
        *((field, number() & 2**31 - 1 or 1) for field in (8, 11)),
        *((field, dice.choice((0, 1, 2))) for field in (17, 25)),
        *((field, text()) for field in (1, 5, 6, 7, 14)),
        *((field, dice.choice((b"\xff", *TEXTS))) for field in (15, 16, 18)),
        (9, dice.choice((0, 127, 128, 5 << 20))),
        *((4, b"".join(dice.sample(pair, dice.randrange(3)))) for _ in range(2)),
        (32, number()),
        (99, b"\xff"),
    ]
    fields = dice.sample(fields, dice.randrange(len(fields)))
    fields += dice.sample(fields, min(len(fields), dice.choice((0, 0, 2))))
    base: list[tuple[int, int | bytes]] = [(1, b"p"), (2, number()), (3, number())]
    metadata = b"".join(proto(field) for field in base + fields)
    stamp = [proto((1, number())), proto((2, number()))]
    entry = builders.with_headers(
        metadata,
        dice.randbytes(dice.choice(sizes)),
        broker_metadata=dice.choice((None, b"".join(dice.sample(stamp, 2)))),
    )
    place = [proto((1, number())), proto((2, number())), proto((3, -1))]
    place = place[: dice.choice((2, 3))]
    dice.shuffle(place)
    body = [proto((1, 1)), proto((2, b"".join(place))), proto((3, number() % 2**31))]
    body = body[: dice.choice((2, 3))]
    dice.shuffle(body)
    return builders.frame(proto((1, MESSAGE), (MESSAGE, b"".join(body))), entry)


def test_the_same_as_protobuf(kernel: Any):
    """All that is known of an entry, wherever in the buffer it lies."""
    dice = random.Random(5)
    scanner = kernel.Scanner()
    for _ in range(60):
        frames = [ordinary(dice) for _ in range(dice.randrange(1, 40))]
        front, behind = bytes(dice.randrange(500)), bytes(dice.randrange(9))
        data = front + b"".join(frames) + behind
        end = len(data) - len(behind)
        found = scanned(kernel, data, start=len(front), end=end, scanner=scanner)
        assert found == [read(frame) for frame in frames]
        assert scanner.stop == end


def resized(frame: bytes, entry: bytes) -> bytes:
    """A frame with another entry in it."""
    command_bytes = int.from_bytes(frame[4:8], "big")
    return builders.frame(frame[8 : 8 + command_bytes], entry)


def damaged(dice: random.Random) -> Iterator[bytes]:
    """Frames with a byte that is another one, is not there, or should not be there."""
    while True:
        frame = ordinary(dice, (0, 1))
        for place in range(8, len(frame)):
            data = bytearray(frame)
            data[place] = dice.choice((0, 1, 8, 0x80, 0xFF, dice.randrange(256)))
            yield bytes(data)
        data = bytearray(frame)
        place = dice.randrange(8, len(frame))
        data[place : place + dice.choice((0, 1))] = dice.randbytes(dice.choice((0, 1)))
        command_bytes = int.from_bytes(frame[4:8], "big")
        command_bytes += (len(data) - len(frame)) * (place < 8 + command_bytes)
        sizes = struct.pack(">II", len(data) - 4, max(0, command_bytes))
        yield sizes + bytes(data[8:])


def test_what_is_damaged(kernel: Any):
    """Whatever is taken is what protobuf finds in it, and nothing that it refuses."""
    outcomes = {"taken": 0, "left": 0}
    for frame, _ in zip(damaged(random.Random(6)), range(8000), strict=False):
        found = scanned(kernel, frame + bytes(20), end=len(frame))
        outcomes["taken" if found else "left"] += 1
        if found:
            try:
                wanted = read(frame)
            except UNREADABLE as error:
                pytest.fail(f"{frame.hex()}: {error}")
            assert found == [wanted], frame.hex()
    assert min(outcomes.values()) > 1000, outcomes


def test_every_truncation(kernel: Any):
    """Of the buffer, and of what is in a frame."""
    for seed in range(4):
        frames = [ordinary(random.Random(seed), (0, 1)) for _ in range(2)]
        data = b"".join(frames)
        for end in range(len(data)):
            whole = sum(place <= end for place in accumulate(map(len, frames)))
            assert len(scanned(kernel, data, end=end)) == whole
        command_bytes = int.from_bytes(data[4:8], "big")
        payload = read(frames[0])["payload"]
        entry = frames[0][8 + command_bytes : len(frames[0]) - len(payload)]
        for size in range(len(entry)):
            # What follows in the buffer is what the entry lacks, or nothing is there.
            short = resized(frames[0], entry[:size])
            assert not scanned(kernel, short + entry[size:], end=len(short))
            assert not scanned(kernel, short)


# -- where the ordinary ends -----------------------------------------------------------


def with_metadata(metadata: bytes, **headers: Any) -> bytes:
    """A frame with such metadata."""
    return builders.message(builders.with_headers(metadata, b"value", **headers))


def described(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A frame whose metadata have such fields besides what all have."""
    return with_metadata(Outer().metadata(*fields))


def ended(rest: bytes) -> bytes:
    """A frame whose metadata end with such bytes."""
    return with_metadata(Outer().metadata() + rest)


def padded(frame: bytes, size: int) -> bytes:
    """A frame whose metadata have so many bytes."""
    metadata = read(frame)["metadata"]
    rest = size - len(metadata)
    for content in range(rest - 1, -1, -1):
        field = proto((99, bytes(content)))
        if len(field) == rest:
            return with_metadata(metadata + field)
    raise AssertionError(size)


def commanded(body: bytes, kind: bytes = b"\x08\x09") -> bytes:
    """A frame with such a CommandMessage."""
    command = kind + b"\x4a" + varint(len(body)) + body
    return builders.frame(command, builders.single(Sent()))


def placed(place: bytes) -> bytes:
    """A frame with such a message id."""
    return commanded(b"\x08\x01" + b"\x12" + varint(len(place)) + place)


def stamped(stamp: bytes) -> bytes:
    """A frame with such broker metadata."""
    return with_metadata(Outer().metadata(), broker_metadata=stamp)


ID = b"\x12\x04\x08\x07\x10\x03"
KEY, VALUE = b"\x0a\x01k", b"\x12\x01v"
LONG = b"\x80" * 8

ORDINARY = {
    "63 bits": described((2, 2**63 - 1)),
    "a number in nine bytes": ended(b"\x10\x85" + LONG[1:] + b"\x00"),
    "a tag in two bytes": ended(b"\x90\x00\x05"),
    "nothing in two bytes": ended(b"\x60\x80\x00"),
    "a field of another time": ended(proto((2047, 1), (2047, b"x"))),
    "metadata of nothing": resized(with_metadata(b""), builders.with_headers(b"", b"")),
    "metadata of nothing behind a stamp": resized(
        with_metadata(b""), builders.with_headers(b"", b"", broker_metadata=b"")
    ),
    "a size in two bytes": ended(b"\x32\x81\x00k"),
    "a batch of one": described((11, 1)),
    "a batch of many": described((11, 2**31 - 1)),
    "an unknown codec": described((8, 2**31 - 1)),
    "5 MiB, compressed": described((8, 1), (9, 5 << 20)),
    "an encoded key, otherwise": described((6, "a2V5"), (17, 2)),
    "no encoded key": described((25, 1), (17, 1), (17, 0)),
    "no null value": described((17, 1), (25, 1), (25, 0)),
    "both": described((17, 1), (25, 1)),
    "both, the other way": described((25, 1), (17, 1)),
    "a null value, otherwise": described((25, 2)),
    "a long name": described((1, "p" * 256)),
    "a name and a cluster": described((1, "p" * 200), (5, "c" * 56)),
    "another name": described((1, "p" * 300), (1, "p")),
    "text": described((1, "ü"), (5, "ü"), (6, "ü"), (7, "ü"), (14, "ü")),
    "bytes": described((15, b"\xff"), (16, b"\xff"), (18, b"\xff"), (32, b"\xff")),
    "an empty text": described((1, ""), (5, ""), (6, ""), (18, b"")),
    "a key of 127 bytes": described((6, "k" * 127)),
    "a key of 128 bytes": described((6, "k" * 128)),
    "an ordering key of 128 bytes": described((18, b"k" * 128)),
    "times": described((12, 0), (19, 1), (22, 1), (23, 1), (30, 1), (32, 1)),
    "a pair": described((4, KEY + VALUE)),
    "a pair, the other way": described((4, VALUE + KEY)),
    "a pair without a key": described((4, VALUE)),
    "a pair without a value": described((4, KEY)),
    "a pair of nothing": described((4, b"")),
    "a pair of empty texts": described((4, b"\x0a\x00\x12\x00")),
    "two pairs": described((4, KEY + VALUE), (4, KEY + VALUE)),
    "a pair with sizes in two bytes": described((4, b"\x0a\x81\x00k")),
    "a pair of 128 bytes": described((4, proto((1, "k" * 128), (2, "v" * 200)))),
    "16 KiB of metadata": padded(described(), 16 * KIB),
    "a stamp": stamped(proto((1, 5), (2, 6))),
    "a stamp, the other way": stamped(proto((2, 5), (1, 6))),
    "a stamp of nothing": stamped(b""),
    "a stamp of 63 bits": stamped(proto((1, 2**63 - 1))),
    "a command of 128 bytes": commanded(b"\x08\x01" * 59 + ID),
    "an id first": commanded(ID + b"\x08\x01"),
    "a redelivery": commanded(b"\x08\x01" + ID + b"\x18\x07"),
    "many redeliveries": commanded(b"\x08\x01" + ID + b"\x18" + varint(2**31 - 1)),
    "the entry first": placed(b"\x10\x03\x08\x07"),
    "ids of 63 bits": placed(proto((1, 2**63 - 1), (2, 2**63 - 1))),
    "partition -1": placed(proto((1, 7), (3, -1), (2, 3))),
    "partition 0": placed(proto((3, 0), (1, 7), (2, 3))),
    "63 bits of partition": placed(b"\x08\x07\x10\x03\x18" + LONG + b"\x7f"),
    "64 bits of partition": placed(
        b"\x08\x07\x10\x03\x18" + LONG + b"\x80\x01",
    ),
    "no payload": builders.message(builders.single(Sent(b""))),
}

ODD = {
    "64 bits": described((2, 2**63)),
    "a number in ten bytes": ended(b"\x10\x85" + LONG + b"\x00"),
    "a number without an end": ended(b"\x10\x85"),
    "a field without a number": ended(b"\x10"),
    "half a tag": ended(b"\x90"),
    "a tag in three bytes": ended(b"\x90\x80\x00\x05"),
    "field 0": ended(b"\x00\x05"),
    "field 0 of bytes": ended(b"\x02\x00"),
    "a group": ended(b"\x9b\x06\x9c\x06"),
    "a group that could be bytes": ended(b"\x9b\x06\x00"),
    "the end of one": ended(b"\x9c\x06\x00"),
    "64 fixed bits": ended(b"\xf9\x06" + bytes(8)),
    "64 fixed bits that could be others": ended(
        b"\xf9\x06\x01\x10\x05\x10\x05\x10\x85\x00"
    ),
    "32 fixed bits": ended(b"\xfd\x06" + bytes(4)),
    "wire type 6": ended(b"\xfe\x06\x01"),
    "a text that runs past the end": ended(b"\x32\x02k"),
    "bytes that run past the end": ended(b"\x92\x01\x02k"),
    "other bytes that run past the end": ended(b"\x9a\x06\x02k"),
    "a pair that runs past the end": ended(b"\x22\x04" + KEY),
    "a batch of none": described((11, 0)),
    "a batch of too many": described((11, 2**31)),
    "a codec of 32 bits": described((8, 2**31)),
    "more than 5 MiB": described((9, (5 << 20) + 1)),
    "a long name": described((1, "p" * 257)),
    "a name and a cluster": described((1, "p" * 200), (5, "c" * 57)),
    **{f"field {n}": described((n, 1)) for n in (1, 4, 5, 6, 7, 10, 13, 14, 15, 16)},
    **{f"field {n}": described((n, 1)) for n in (18, 20, 21, 26, 27, 28, 29, 31)},
    **{
        f"bytes of field {n}": described((n, b""))
        for n in (2, 3, 8, 9, 10, 11, 12, 13, 17, 19, 22, 24, 26, 31)
    },
    **{f"no text in {n}": described((n, b"ok\xff")) for n in (1, 5, 6, 7, 14)},
    "half a letter": described((6, b"\xc3")),
    "a surrogate": described((6, b"\xed\xa0\x80")),
    "no text in a key": described((4, b"\x0a\x02k\xff")),
    "no text in a value": described((4, b"\x12\x02v\xff")),
    "a pair with two keys": described((4, KEY + KEY)),
    "a pair with two values": described((4, VALUE + KEY + VALUE)),
    "a pair with more": described((4, KEY + VALUE + b"\x18\x01")),
    "a pair with a number": described((4, b"\x08\x01")),
    "a pair whose key runs past its end": described((4, b"\x0a\x02k"), (6, "k")),
    "a pair whose value runs past its end": described((4, b"\x12\x02v"), (6, "k")),
    "a pair that ends early": described((4, KEY + b"\x12"), (6, "k")),
    "more than 16 KiB of metadata": padded(described(), 16 * KIB + 1),
    "a stamp of 64 bits": stamped(proto((1, 2**63))),
    "a stamp with more": stamped(proto((1, 5), (3, 6))),
    "a stamp that ends early": stamped(b"\x08"),
    "half a number in a stamp": stamped(b"\x10\x80"),
    "two stamps": resized(
        described(), b"\x0e\x02\0\0\0\0" + builders.single(Sent(), broker_metadata=b"")
    ),
    "another magic number": resized(described(), b"\x0f" + builders.single(Sent())[1:]),
    "another second byte": resized(
        described(), b"\x0e\x03" + builders.single(Sent())[2:]
    ),
    "another magic number behind a stamp": resized(
        described(), b"\x0e\x02\0\0\0\0\x0f" + builders.single(Sent())[1:]
    ),
    "a stamp that is larger than the entry": resized(
        described(), b"\x0e\x02\0\0\0\x0c" + proto((1, 1), (2, 2)) * 2 + b"\x08\x01\x08"
    ),
    "metadata that are larger than the entry": resized(
        described(), b"\x0e\x01" + bytes(4) + struct.pack(">I", 7) + proto((2, 1)) * 3
    ),
    "a command of 129 bytes": commanded(b"\x08\x81\x00" + b"\x08\x01" * 58 + ID),
    "no id": commanded(b"\x08\x01"),
    "two ids": commanded(b"\x08\x01" + ID + ID),
    "two ids, the first one of nothing": commanded(b"\x08\x01\x12\x00" + ID),
    "two halves of an id": commanded(
        b"\x08\x01\x12\x02\x08\x07\x12\x02\x10\x03",
    ),
    "two halves of an id, the other way": commanded(
        b"\x08\x01\x12\x02\x10\x03\x12\x02\x08\x07",
    ),
    "two ids of ledger 0": commanded(b"\x08\x01" + b"\x12\x04\x08\x00\x10\x03" * 2),
    "no consumer": commanded(ID),
    "too many redeliveries": commanded(b"\x08\x01" + ID + b"\x18" + varint(2**31)),
    "acknowledged messages": commanded(b"\x08\x01" + ID + b"\x20\x01"),
    "an epoch": commanded(b"\x08\x01" + ID + b"\x28\x01"),
    "an id that is larger than its command": commanded(b"\x08\x01\x12\x05" + ID[2:]),
    "a consumer of 64 bits": commanded(b"\x08" + varint(2**63) + ID),
    "half a consumer": commanded(ID + b"\x08"),
    "another command": commanded(b"\x08\x01" + ID, b"\x08\x0a"),
    "another field first": commanded(b"\x08\x01" + ID, b"\x10\x09"),
    "another body": builders.frame(
        proto((1, MESSAGE), (10, b"\x08\x01" + ID)), builders.single(Sent())
    ),
    "a command that goes on": builders.frame(
        proto((1, MESSAGE), (MESSAGE, b"\x08\x01" + ID)) + b"\x08\x09",
        builders.single(Sent()),
    ),
    "no ledger": placed(b"\x10\x03"),
    "no entry": placed(b"\x08\x07"),
    "a ledger of 64 bits": placed(proto((1, 2**63), (2, 3))),
    "an entry of 64 bits": placed(proto((1, 7), (2, 2**63))),
    "a place in a batch": placed(proto((1, 7), (2, 3), (4, 0))),
    "65 bits of partition": placed(b"\x08\x07\x10\x03\x18" + LONG + b"\x80\x02"),
    "eleven bytes of partition": placed(
        b"\x08\x07\x10\x03\x18" + LONG + b"\x80\x80\x01"
    ),
    "a partition that runs past the id": commanded(
        b"\x12\x05\x08\x07\x10\x03\x18\x08\x01"
    ),
    "a partition that is not there": commanded(
        b"\x12\x05\x08\x07\x10\x03\x18" + b"\x18" + b"\x08\x01"
    ),
    "an entry that runs past the id": commanded(
        b"\x12\x04\x08\x07\x10\x83\x01\x08\x01"
    ),
    "no entry at all": resized(described(), b""),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_what_is_ordinary(kernel: Any, name: str):
    """It is taken, and is what protobuf finds."""
    frame = ORDINARY[name]
    assert scanned(kernel, frame) == [read(frame)]


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_ordinary(kernel: Any, name: str):
    """It ends the walk, which goes no further than to where it begins."""
    good = described()
    scanner = kernel.Scanner()
    data = good + ODD[name] + good
    assert scanned(kernel, data, scanner=scanner) == [read(good)]
    assert scanner.stop == len(good)
    assert not scanned(kernel, ODD[name] + good, scanner=scanner)
    assert scanner.stop == 0


def test_whose_entries_are_taken(kernel: Any):
    """Those of one consumer at a time, and of those that want it only."""
    entry = builders.single(Sent())
    frames = [builders.message(entry, consumer_id=n) for n in (5, 5, 0, 2**40, 7)]
    data = b"".join(frames)
    scanner = kernel.Scanner()
    found = []
    start = 0
    for _ in range(4):
        count = scanner.scan(data, start, len(data), 64 * KIB, {0, 5, 2**40})
        found.append((count, scanner.consumer_id if count else None))
        start = scanner.stop
    assert found == [(2, 5), (1, 0), (1, 2**40), (0, None)]
    assert start == len(data) - len(frames[-1])


@pytest.mark.parametrize(("less", "count"), [(0, 1), (1, 0)])
def test_the_largest_frame(kernel: Any, less: int, count: int):
    """It is as large as it may be, its size included."""
    frame = described()
    found = scanned(kernel, frame, most_frame_bytes=len(frame) - less)
    assert len(found) == count


def test_frames_that_are_too_short(kernel: Any):
    """Whatever they say, nothing is read behind them, and no walk goes on for ever."""
    good = described()
    for size in range(8):
        for command_bytes in (0, 4, 2**32 - 1):
            sizes = struct.pack(">II", size, command_bytes)
            assert len(scanned(kernel, good + sizes + good)) == 1
    for size in (2**31, 2**32 - 4, 2**32 - 1):
        assert len(scanned(kernel, good + struct.pack(">II", size, 1) + good)) == 1
    # A command that is longer than its frame.
    data = bytearray(good)
    data[:4] = struct.pack(">I", 10)
    assert not scanned(kernel, bytes(data))
    for size in range(4):
        assert not scanned(kernel, builders.frame(b"\x08\x09\x4a"[:size]))
    body = b"\x08\x01" + ID
    for more in range(1, 20):
        command = b"\x08\x09\x4a" + varint(len(body) + more) + body
        sizes = struct.pack(">II", 4 + len(command), len(command) + more)
        assert not scanned(kernel, sizes + command)


@pytest.mark.parametrize(("more", "counts"), [(0, [32, 32, 1]), (1, [31, 32, 2])])
def test_how_many_bytes_go_together(kernel: Any, more: int, counts: list[int]):
    """256 KiB, to the byte."""
    frame = described()
    payload = bytes(8 * KIB - len(frame) + len(b"value"))

    def sized(payload: bytes) -> bytes:
        entry = builders.with_headers(Outer().metadata(), payload)
        return builders.message(entry)

    frames = [sized(payload)] * 64 + [sized(b"")]
    assert len(frames[0]) == 8 * KIB
    frames[3] = sized(payload + bytes(more))
    data = b"".join(frames)
    scanner = kernel.Scanner()
    found = []
    for _ in counts:
        start = scanner.stop
        found.append(len(scanned(kernel, data, start=start, scanner=scanner)))
    assert found == counts
    assert scanner.stop == len(data)


def test_a_frame_alone_may_be_larger(kernel: Any):
    """Than what goes together: somebody said so."""
    entry = builders.with_headers(Outer().metadata(), bytes(300 * KIB))
    frame = builders.message(entry)
    data = frame + frame
    assert len(scanned(kernel, data, most_frame_bytes=len(frame))) == 1


def test_how_many_entries_go_together(kernel: Any):
    """1024, each with its own facts."""
    entry = builders.single(Sent(b""))
    frames = [builders.message(entry, entry_id=n) for n in range(1025)]
    found = scanned(kernel, b"".join(frames))
    assert [facts["entry_id"] for facts in found] == list(range(1024))


def test_facts_are_a_copy(kernel: Any):
    """Another walk changes nothing of what the one before found."""
    scanner = kernel.Scanner()
    first, second = described((6, "first")), described((6, "second one"))
    scanner.scan(first, 0, len(first), 64 * KIB, {1})
    facts = scanner.facts(1)
    before = list(facts)
    scanner.scan(second, 0, len(second), 64 * KIB, {1})
    assert list(facts) == before
    assert len(facts) == fact.PER_ENTRY


# -- what came together ----------------------------------------------------------------


def together(kernel: Any, *rows: Facts) -> Any:
    """Entries of which no more is known than that."""
    facts = array("q", bytes(8 * fact.PER_ENTRY * len(rows)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            facts[number * fact.PER_ENTRY + FACTS[name]] = value
    return kernel.Deliveries(9, b"data", memoryview(facts), len(rows))


def at(kernel: Any, *places: tuple[int, int]) -> Any:
    """Entries at these places."""
    return together(kernel, *({"ledger_id": a, "entry_id": b} for a, b in places))


def test_entries_that_came_together(kernel: Any):
    """They are asked by their number."""
    found = at(kernel, (7, 1), (7, 2), (8, 0))
    assert (found.consumer_id, found.data, len(found)) == (9, b"data", 3)
    assert [found.position(n) for n in range(3)] == [(7, 1), (7, 2), (8, 0)]
    assert found.fact(2, fact.LEDGER_ID) == 8


FAR = (2**62, 0)


@pytest.mark.parametrize(
    ("places", "first", "after", "end", "number"),
    [
        ([(7, 1), (7, 2), (8, 0)], 0, (-1, -1), FAR, 3),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 0), FAR, 3),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 1), FAR, 0),
        ([(7, 1), (7, 2), (8, 0)], 0, (6, 9), FAR, 3),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 2), FAR, 0),
        ([(7, 1), (7, 2), (8, 0)], 1, (7, 1), FAR, 3),
        ([(7, 1), (7, 2), (8, 0)], 1, (8, 0), FAR, 1),
        ([(7, 1), (7, 2), (8, 0)], 3, (9, 9), (0, 0), 3),
        ([(7, 1), (7, 1)], 0, (7, 0), FAR, 1),
        ([(7, 2), (7, 1)], 0, (7, 0), FAR, 1),
        ([(7, 1), (6, 5)], 0, (7, 0), FAR, 1),
        ([(7, 1), (7, 9), (9, 0)], 0, (7, 0), FAR, 3),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 0), (8, 0), 2),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 0), (8, 1), 3),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 0), (7, 2), 1),
        ([(7, 1), (7, 2), (8, 0)], 0, (7, 0), (7, 99), 2),
        ([(7, 1), (7, 2), (8, 5)], 0, (7, 0), (7, 99), 2),
        ([(7, 1), (7, 5)], 0, (7, 0), (7, 3), 1),
        ([(7, 1), (9, 0)], 0, (7, 0), (8, 50), 1),
        ([(7, 50), (8, 0)], 0, (7, 0), (8, 1), 2),
    ],
)
def test_which_entries_follow(
    kernel: Any,
    places: list[tuple[int, int]],
    first: int,
    after: tuple[int, int],
    end: tuple[int, int],
    number: int,
):
    """Each is behind the one before, and all are before the end."""
    assert at(kernel, *places).following(first, after, end) == number


def test_what_is_charged(kernel: Any):
    """As many permits as messages, one for what is no batch; and what is in frames."""
    found = together(
        kernel,
        {"count": 0, "start": 20, "end": 50},
        {"count": 5, "start": 70, "end": 71},
        {"count": 1, "start": 100, "end": 1100},
    )
    assert [found.charged_messages(n, n + 1) for n in range(3)] == [1, 5, 1]
    assert [found.charged_bytes(n, n + 1) for n in range(3)] == [30, 1, 1000]
    assert (found.charged_messages(0, 3), found.charged_bytes(0, 3)) == (7, 1031)
    assert (found.charged_messages(1, 1), found.charged_bytes(1, 1)) == (0, 0)


def test_columns(kernel: Any):
    """One number of each entry, or the same for each of its rows."""
    found = together(
        kernel,
        {"publish_time": 5, "last_row": 13},
        {"publish_time": 6, "last_row": 13},
        {"publish_time": 7, "last_row": 14},
        {"publish_time": 2**62, "last_row": 17},
    )

    def numbers(column: memoryview) -> list[int]:
        assert column.format == "B"
        return list(column.cast("q"))

    assert numbers(found.column(fact.PUBLISH_TIME, 0, 4)) == [5, 6, 7, 2**62]
    assert numbers(found.column(fact.PUBLISH_TIME, 1, 3, 10)) == [16, 17]
    assert numbers(found.column(fact.PUBLISH_TIME, 2, 2)) == []
    for (first, last, row), wanted in {
        (0, 4, 10): [5] * 3 + [7] + [2**62] * 3,
        (0, 1, 11): [5] * 2,
        (1, 3, 13): [7],
        (2, 4, 13): [7] + [2**62] * 3,
        (1, 2, 13): [],
        (2, 2, 13): [],
        (0, 0, 10): [],
    }.items():
        assert numbers(found.repeated(fact.PUBLISH_TIME, first, last, row)) == wanted
