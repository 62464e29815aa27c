# SPDX-License-Identifier: Apache-2.0
"""The kernel in all of its forms, beside protobuf's own parser, on any bytes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import struct
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import lz4.block
import pytest
from crc32c import crc32c
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops import deliveries, fact, messages
from pulsar_spark.message_id import encode_varint
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import decompress
from spark_topics.protobuf import UNREADABLE
from tests.support import kernels
from tests.wire import builders
from tests.wire.builders import CODECS, Outer, Sent, batch_payload, proto, sized
from tests.wire.fields import fields_of_row, text_of

CASES = 3_000
GROUP = 3  # a wire type


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    """The module in one of its forms."""
    return kernels.load(request.param)


def rows_of(kernel: Any, payload: bytes, count: int) -> list[Any]:
    """What a batch of so many messages holds: its rows as Python values."""
    table = kernel.MessageTable()
    table.append_batch(memoryview(payload), count, None, 0, 40, 1)
    return [
        (
            table.batch_indexes[row],
            None if table.flags[row] & messages.IS_NULL else text_of(table.values, row),
            fields_of_row(table, row),
        )
        for row in range(table.rows)
    ]


# -- beside protobuf -------------------------------------------------------------------


class UnreadableError(Exception):
    """What protobuf's parser, or the rules of a batch, refuse."""


class GroupsError(Exception):
    """Groups, which protobuf passes over and no client sends."""


def expected(payload: bytes, count: int) -> list[Any]:
    """The same by protobuf's parser, message by message."""
    rows: list[Any] = []
    position = 0
    for number in range(count):
        if position + 4 > len(payload):
            raise UnreadableError
        start = position + 4
        end = start + struct.unpack_from(">I", payload, position)[0]
        if end > len(payload):
            raise UnreadableError
        single = pb.SingleMessageMetadata()
        try:
            single.ParseFromString(payload[start:end])
        except UNREADABLE:
            raise UnreadableError from None
        if _has_group(single):
            raise GroupsError
        position = end + single.payload_size
        if not single.HasField("payload_size") or not end <= position <= len(payload):
            raise UnreadableError
        if single.compacted_out and not single.payload_size:
            continue
        value = payload[end:position]
        is_null = single.null_value and not value
        rows.append((number, None if is_null else value, _fields(single, number)))
    if position != len(payload):
        raise UnreadableError
    return rows


def _has_group(message: Any) -> bool:
    parts = [message, *getattr(message, "properties", ())]
    return any(f.wire_type == GROUP for part in parts for f in UnknownFieldSet(part))


def _fields(single: pb.SingleMessageMetadata, number: int) -> dict[str, Any]:
    key: Any = single.partition_key if single.HasField("partition_key") else None
    if single.partition_key_b64_encoded:
        key = "base64"  # whether it is, is not the kernel's business
    return {
        "partition_key": key,
        "ordering_key": single.ordering_key
        if single.HasField("ordering_key")
        else None,
        "event_time": single.event_time or None,
        "sequence_id": single.sequence_id
        if single.HasField("sequence_id")
        else (40 + number),
        "properties": {pair.key: pair.value for pair in single.properties} or None,
    }


def damaged_batches(seed: int) -> Iterator[tuple[bytes, int]]:
    """Batches of which about half are damaged somewhere in their metadata."""
    dice = random.Random(seed)
    numbers = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1)
    texts = (b"", b"k", "größe".encode(), b"\xff\xfe", b"x" * 200)

    def field() -> bytes:
        number = dice.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 2**29 - 1))
        kind = dice.randrange(12)
        if kind < 5:
            return proto((number, dice.choice(numbers)))
        if kind < 10:
            return proto((number, dice.choice(texts)))
        tag = proto((number, 0))[:-1]
        width = 8 if kind == 10 else 4
        last = tag[-1]  # of one byte, the wire type is in its low bits
        other = bytes((last & ~7 | (1 if kind == 10 else 5),)) if len(tag) == 1 else tag
        return other + dice.randbytes(width)

    def head(value: bytes) -> bytes:
        fields = [
            proto((1, proto((1, dice.choice(texts)), (2, dice.choice(texts)))))
            for _ in range(dice.randrange(3))
        ]
        fields += [field() for _ in range(dice.randrange(3))]
        fields.append(proto((3, len(value))))
        if dice.random() < 0.3:
            dice.shuffle(fields)
        data = bytearray(b"".join(fields))
        for _ in range(dice.choice((0, 0, 0, 0, 1, 2))):
            place = dice.randrange(len(data))
            if dice.random() < 0.5:
                data[place] = dice.randrange(256)
            else:
                data[place : place + dice.randrange(3)] = dice.randbytes(
                    dice.randrange(12)
                )
        return bytes(data)

    while True:
        parts = []
        for _ in range(dice.randrange(1, 4)):
            value = dice.choice((b"", b"v", bytes(300)))
            parts += [sized(head(value)), value]
        yield b"".join(parts), len(parts) // 2


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_protobuf(kernel: Any, seed: int):
    """Any batch gives what protobuf reads in it, or is refused as protobuf does."""
    outcomes = {"rows": 0, "refused": 0}
    for case, (payload, count) in zip(
        range(CASES), damaged_batches(seed), strict=False
    ):
        try:
            wanted = expected(payload, count)
        except GroupsError:
            continue
        except UnreadableError:
            with pytest.raises(CorruptEntryError):
                rows_of(kernel, payload, count)
            outcomes["refused"] += 1
            continue
        for _, _, fields in wanted:
            if fields["partition_key"] == "base64":
                break
        else:
            assert rows_of(kernel, payload, count) == wanted, f"{seed}/{case}"
            outcomes["rows"] += len(wanted)
    assert min(outcomes.values()) > CASES // 10, outcomes


# -- by itself -------------------------------------------------------------------------


def test_batches_one_after_the_other(kernel: Any):
    """A table keeps what it has, also when its columns grow, and so does another."""
    table = kernel.MessageTable()
    for _ in range(2):
        for number in range(50):
            sent = [
                Sent(b"%d" % n, key=str(n), ordering_key=b"o", properties=[("n", "1")])
                for n in range(number, number + 5)
            ]
            table.append_batch(batch_payload(sent), 5, None, 7, 0, 0)
        assert (table.rows, table.pairs) == (250, 250)
        for row in range(250):
            text = b"%d" % (row // 5 + row % 5)
            assert text_of(table.values, row) == text
            fields = fields_of_row(table, row)
            assert fields["partition_key"] == text.decode()
            assert fields["ordering_key"] == b"o"
            assert fields["properties"] == {"n": "1"}
            assert fields["event_time"] == 7
        table = table.empty_like()
        assert (table.rows, table.pairs, table.any_flags) == (0, 0, 0)


def test_views_stay_as_they_are(kernel: Any):
    """What was viewed does not change when more comes, whether or not columns grow."""
    table = kernel.MessageTable()
    payload = batch_payload([Sent(b"first", key="k", event_time=5)])
    table.append_batch(payload, 1, None, 0, 0, 0)
    for _ in range(100):
        row = table.rows - 1
        views = [memoryview(table.values.data), memoryview(table.event_times)]
        before = bytes(views[0][: table.values.offsets[row + 1]]), views[1][row]
        table.append_batch(batch_payload([Sent(b"x" * 50)]), 1, None, 0, 0, 0)
        after = bytes(views[0][: len(before[0])]), views[1][row]
        assert after == before


@pytest.mark.parametrize("size", [127, 128, 16_384, 70_000, 17 << 20])
def test_metadata_of_any_size(kernel: Any, size: int):
    """Between other messages, and of values that are as large."""
    sent = [Sent(b"a"), Sent(b"v" * size, key="k" * size), Sent(b"c")]
    table = kernel.MessageTable()
    table.append_batch(batch_payload(sent), 3, None, 0, 0, 0)
    assert [table.values.offsets[row] for row in range(4)] == [0, 1, size + 1, size + 2]
    assert text_of(table.keys, 1) == b"k" * size
    assert text_of(table.values, 2) == b"c"


@pytest.mark.parametrize("text", messages.BINARY_COLUMNS)
def test_texts_that_are_not_wanted(kernel: Any, text: str):
    """A column of bytes that is not wanted is not there; nothing else differs."""
    sent = [Sent(b"v", key="k", ordering_key=b"o", properties=[("a", "b")])]
    whole, part = kernel.MessageTable(), kernel.MessageTable([text])
    for table in (whole, part, part.empty_like()):
        table.append_batch(batch_payload(sent), 1, None, 3, 4, 1)
    wanted = {
        "values": ["values"],
        "keys": ["keys"],
        "ordering_keys": ["ordering_keys"],
        "properties": ["pair_keys", "pair_values"],
    }
    for name in (name for names in wanted.values() for name in names):
        if name in wanted[text]:
            assert text_of(getattr(part, name), 0) == text_of(getattr(whole, name), 0)
        else:
            assert getattr(part, name) is None
    for name in ("rows", "pairs", "any_flags", "all_flags"):
        assert getattr(part, name) == getattr(whole, name)
    assert part.ends[1] == whole.ends[1] == len(batch_payload(sent))


def test_numbered_rows(kernel: Any):
    """Rows of a head, a varint and a tail, behind those that are kept."""
    texts = kernel.BinaryColumn(kernel.new_bytes)
    numbers = memoryview(array("i", [5, 0, 127, 128, 16383, 16384, 2**31 - 1]))
    texts.append(0, b"kept dropped", memoryview(array("i", [0, 4, 5, 12])), 2)
    texts.append_numbered(1, b"head ", numbers, 1, 7, b" tail")
    texts.append_numbered(7, b"", numbers, 0, 1, b"")
    assert [text_of(texts, row) for row in range(8)] == [
        b"kept",
        *(b"head " + encode_varint(number) + b" tail" for number in numbers[1:]),
        encode_varint(5),
    ]


def test_many_numbered_rows(kernel: Any):
    """A column grows with them, by as much as they take."""
    texts = kernel.BinaryColumn(kernel.new_bytes)
    numbers = memoryview(array("i", range(9000)))
    rows = 0
    for first, last in ((0, 1), (1, 200), (200, 9000), (0, 9000)):
        texts.append_numbered(rows, b"head ", numbers, first, last, b" tail")
        rows += last - first
    wanted = [b"head " + encode_varint(number) + b" tail" for number in numbers] * 2
    assert [text_of(texts, row) for row in range(rows)] == wanted


def test_a_bad_batch_leaves_no_trace(kernel: Any):
    """A table is as it was before what it refused, and takes more."""
    good = batch_payload([Sent(b"good", properties=[("a", "b")])])
    bad = batch_payload([Sent(b"bad", properties=[("c", "d")]), Sent()])[:-1]
    table = kernel.MessageTable()
    table.append_batch(good, 1, None, 0, 0, 0)
    with pytest.raises(CorruptEntryError, match=r"message 1 of 2 .* runs past"):
        table.append_batch(bad, 2, None, 0, 0, 0)
    assert (table.rows, table.pairs, table.any_flags) == (1, 1, 0)
    table.append_batch(good, 1, None, 0, 0, 0)
    fields = [fields_of_row(table, row) for row in range(2)]
    assert fields[0] == fields[1]
    assert fields[1]["properties"] == {"a": "b"}


def test_flags(kernel: Any):
    """What some messages have and what all have is known of the whole table."""
    table = kernel.MessageTable()
    sent = [Sent(key="a", event_time=1), Sent(key="b"), Sent(key=b"c")]
    payload = batch_payload(sent)
    table.append_batch(payload, 3, None, 0, 0, 1)
    assert table.any_flags & messages.HAS_KEY
    assert table.all_flags & messages.HAS_KEY
    assert table.any_flags & messages.KEY_IS_BASE64
    assert not table.all_flags & messages.KEY_IS_BASE64
    assert table.any_flags & messages.HAS_EVENT_TIME
    assert not table.all_flags & messages.HAS_EVENT_TIME


def pairs_of(table: Any, row: int) -> list[tuple[bytes, bytes]]:
    """The properties of a message as they are there."""
    return [
        (text_of(table.pair_keys, pair), text_of(table.pair_values, pair))
        for pair in range(table.pair_ends[row], table.pair_ends[row + 1])
    ]


@pytest.mark.parametrize(
    "names",
    [
        "",
        "a",
        "ab",
        "aba",
        "abb",
        "aaaa",
        "abcdefghijklmnop",
        "abcdefghijklmnoa",
        "abcdefghijklmnopq",
        "abcdefghijklmnopa",
        "abcdefghijklmnopqp",
        "abcdefghijklmnop" * 5,
        "abcdefghijklmnopqrstuvwxyz" * 5,
    ],
)
def test_repeated_properties(kernel: Any, names: str):
    """A name that comes twice in one message is there once, with its last value."""
    table = kernel.MessageTable()
    others = [Sent(properties=[("a", ""), ("x" * n, "")]) for n in range(2, 30)]
    pairs = [(name, str(number)) for number, name in enumerate(names)]
    sent = [*others, Sent(properties=pairs), Sent(properties=pairs), Sent()]
    table.append_batch(batch_payload(sent), len(sent), None, 0, 0, 0)
    wanted = [(key.encode(), value.encode()) for key, value in dict(pairs).items()]
    row = len(others)
    assert pairs_of(table, row) == pairs_of(table, row + 1) == wanted
    assert pairs_of(table, row + 2) == []
    assert pairs_of(table, row - 1) == [(b"a", b""), (b"x" * 29, b"")]


def test_many_properties_of_other_messages(kernel: Any):
    """Names are those of one message, whatever names the one before it has."""
    some = [(f"n{i}", str(i)) for i in range(20)]
    others = [*((f"m{i}", "") for i in range(17)), ("n5", "five")]
    again = [*some, ("n0", "again")]
    by_batches, by_entries = kernel.MessageTable(), kernel.MessageTable()
    for pairs in (some, others, again):
        sent = [Sent(properties=[("x", "")]), Sent(properties=pairs)]
        by_batches.append_batch(batch_payload(sent[1:]), 1, None, 0, 0, 0)
        assert take(by_entries, delivered(builders.single(sent[1]))) == 1
        table = kernel.MessageTable()
        table.append_batch(batch_payload(sent), 2, None, 0, 0, 0)
        wanted = [(key.encode(), value.encode()) for key, value in dict(pairs).items()]
        for each in (by_batches, by_entries, table):
            assert pairs_of(each, each.rows - 1) == wanted


def test_every_truncation(kernel: Any):
    """A batch that ends early is refused wherever it ends."""
    payload = batch_payload(
        [Sent(b"v", key="k", event_time=2**40), Sent(properties=[("a", "b")])]
    )
    for size in range(len(payload)):
        with pytest.raises(CorruptEntryError):
            rows_of(kernel, payload[:size], 2)


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
@pytest.mark.parametrize("size", [0, 1, 4, 8])
def test_wire_types_that_there_are_not(kernel: Any, kind: int, size: int):
    """They are refused, whatever follows them."""
    field = bytes((99 << 3 & 0x7F | 0x80 | kind, 99 >> 4)) + bytes(size)
    for head in (field, proto((1, field))):
        with pytest.raises(CorruptEntryError, match=r"message 0 of 1 .* damaged"):
            rows_of(kernel, sized(proto((3, 0)) + head), 1)


@pytest.mark.parametrize(
    "field",
    [b"\x00\x05", b"\x02\x00", b"\x80\x80\x80\x80\x10\x05", b"\x80" * 9 + b"\x02"],
)
def test_fields_that_there_are_not(kernel: Any, field: bytes):
    """Numbers of fields are from 1 to 2**29 - 1."""
    for head in (field, proto((1, field))):
        with pytest.raises(CorruptEntryError, match=r"message 0 of 1 .* damaged"):
            rows_of(kernel, sized(proto((3, 0)) + head), 1)
    last = b"\xf8\xff\xff\xff\x0f\x05"
    for head in (last, proto((1, last))):
        assert len(rows_of(kernel, sized(proto((3, 0)) + head), 1)) == 1


@pytest.mark.parametrize(("kind", "width"), [(1, 8), (5, 4)])
def test_fields_of_fixed_width(kernel: Any, kind: int, width: int):
    """They are passed over wherever they stand, and refused where they end early."""
    tag = bytes((99 << 3 & 0x7F | 0x80 | kind, 99 >> 4))
    field = tag + b"\xff" * width
    key, name, value = proto((2, "key")), proto((1, "a")), proto((2, "b"))
    for head in (
        field + key + proto((1, name + value)),
        key + proto((1, field + name + value)),
        key + proto((1, name + field + value)),
        key + proto((1, name + value + field)),
        key + proto((1, name + value)) + field,
    ):
        ((_, found, fields),) = rows_of(kernel, sized(proto((3, 1)) + head) + b"v", 1)
        assert (found, fields["partition_key"]) == (b"v", "key")
        assert fields["properties"] == {"a": "b"}
    for size in range(width):
        less = tag + b"\xff" * size
        for head in (key + less, proto((1, name + value + less)) + key):
            with pytest.raises(CorruptEntryError, match=r"message 0 of 1 .* damaged"):
                rows_of(kernel, sized(proto((3, 20)) + head) + bytes(20), 1)


@pytest.mark.parametrize(
    "field",
    [
        b"\x10",
        b"\x10\x80",
        b"\x12",
        b"\x12\x80",
        b"\x12\x03ab",
        b"\x98",
        b"\x28" + b"\x80" * 10 + b"\x01",
    ],
)
def test_fields_that_end_early(kernel: Any, field: bytes):
    """Nothing behind the metadata, or behind a property, is taken for their end."""
    for head in (proto((3, 4)) + field, proto((1, field), (3, 4))):
        with pytest.raises(CorruptEntryError, match=r"message 0 of 1 .* damaged"):
            rows_of(kernel, sized(head) + b"\x01" * 4, 1)


@pytest.mark.parametrize("number", [0, 127, 128, 16_383, 16_384, 2**63, 2**64 - 1])
def test_numbers_and_sizes_of_any_size(kernel: Any, number: int):
    """Up to ten bytes of a number, wherever it stands."""
    size = min(number, 20_000)
    sent = Sent(b"v", sequence_id=number, properties=[("n" * size, "v" * size)])
    ((_, value, fields),) = rows_of(kernel, batch_payload([sent]), 1)
    assert (value, fields["sequence_id"]) == (b"v", number)
    assert fields["properties"] == {"n" * size: "v" * size}


def test_numbers_in_the_place_of_bytes(kernel: Any):
    """They are passed over, as protobuf does it."""
    pair = proto((1, 5), (1, "a"), (2, 5), (2, "b"))
    head = proto((1, 5), (2, 5), (1, pair), (2, "key"), (3, 1))
    ((_, value, fields),) = rows_of(kernel, sized(head) + b"v", 1)
    assert (value, fields["partition_key"]) == (b"v", "key")
    assert fields["properties"] == {"a": "b"}


@pytest.mark.parametrize("head", [b"", proto((2, "key"))])
def test_a_message_that_does_not_say_its_size(kernel: Any, head: bytes):
    """It could end anywhere."""
    with pytest.raises(CorruptEntryError, match=r"message 0 .* not say how large"):
        rows_of(kernel, sized(head), 1)


def test_a_batch_of_nothing(kernel: Any):
    """It has no messages, and leaves none."""
    table = kernel.MessageTable()
    assert table.append_batch(b"", 0, None, 0, 0, 0) == 0
    assert (table.rows, table.pairs, table.next_position) == (0, 0, 0)
    payload = batch_payload([Sent()])
    assert table.append_batch(payload, 1, None, 0, 0, 0, 1, len(payload)) == 1
    assert (table.rows, table.next_position) == (0, len(payload))


def test_groups_are_refused(kernel: Any):
    """They left protobuf before Pulsar began: whatever holds one is no metadata."""
    for depth in (1, 20_000):
        group = b"\x9b\x06" * depth + b"\x9c\x06" * depth
        with pytest.raises(CorruptEntryError, match=r"message 0 of 1 .* damaged"):
            rows_of(kernel, sized(proto((3, 0)) + group), 1)


def test_all_places_of_retained_messages(kernel: Any):
    """Compaction's numbers are taken as they are, and number the messages' ids."""
    table = kernel.MessageTable()
    payload = batch_payload([Sent(), Sent(), Sent(sequence_id=5)])
    table.append_batch(payload, 3, [1, 4, 2**31 - 1], 0, 2**64 - 2, 1)
    assert list(table.batch_indexes[:3]) == [1, 4, 2**31 - 1]
    # Ids count on beyond 64 bits as the protocol's numbers do: from 0 again.
    assert list(table.sequence_ids[:3]) == [2**64 - 1, 2, 5]


# -- in pieces, and within limits ------------------------------------------------------


def in_pieces(
    kernel: Any, payload: bytes, count: int, most_rows: int, most_bytes: int
) -> list[Any]:
    """The tables of a batch that is taken piece by piece."""
    tables = []
    number = position = 0
    while True:
        table = tables[-1].empty_like() if tables else kernel.MessageTable()
        number = table.append_batch(
            payload, count, None, 7, 40, 1, number, position, most_rows, most_bytes
        )
        position = table.next_position
        tables.append(table)
        assert table.rows <= most_rows
        assert table.rows <= 1 or table.size_bytes(0, table.rows) <= most_bytes
        if number == count:
            return tables


@pytest.mark.parametrize("most_rows", [1, 2, 7, 1000])
@pytest.mark.parametrize("most_bytes", [0, 60, 1000, 10**6])
def test_a_batch_in_pieces(kernel: Any, most_rows: int, most_bytes: int):
    """However little a table takes at a time, the rows are those of the whole."""
    sent = [
        Sent(
            b"v" * (n * 7 % 50),
            key=str(n),
            properties=[(f"p{i % 5}", str(n)) for i in range(n % 20)],
            removed=n % 11 == 3,
            event_time=n,
        )
        for n in range(100)
    ]
    payload = batch_payload(sent)
    (whole,) = in_pieces(kernel, payload, 100, 1000, 10**9)
    wanted = [fields_of_row(whole, row) for row in range(whole.rows)]
    tables = in_pieces(kernel, payload, 100, most_rows, most_bytes)
    found = [fields_of_row(table, row) for table in tables for row in range(table.rows)]
    assert found == wanted
    indexes = [i for table in tables for i in table.batch_indexes[: table.rows]]
    assert indexes == list(whole.batch_indexes[: whole.rows])
    assert len(tables) >= (100 - 9) // most_rows


def test_damage_behind_a_piece(kernel: Any):
    """It is found where it is, and what follows the last message at the end."""
    good = batch_payload([Sent()] * 5)
    for payload, match in (
        (good[:-1], "4 of 5 .* runs past"),
        (good + b"x", "1 bytes"),
    ):
        table = kernel.MessageTable()
        assert table.append_batch(payload, 5, None, 0, 0, 0, 0, 0, 3) == 3
        place = table.next_position
        with pytest.raises(CorruptEntryError, match=match):
            table.append_batch(payload, 5, None, 0, 0, 0, 3, place, 3)
        assert table.rows == 3


def test_a_table_ends_before_too_many_properties(kernel: Any):
    """Those of all messages together are as many as one may have."""
    sent = [Sent(properties=[(str(i), "") for i in range(4)]) for _ in range(5)]
    payload = batch_payload(sent)
    table = kernel.MessageTable()
    table.max_pairs = 9
    assert table.append_batch(payload, 5, None, 0, 0, 0) == 2
    assert (table.rows, table.pairs) == (2, 8)
    another = table.empty_like()
    assert another.max_pairs == 9
    assert another.append_batch(payload, 5, None, 0, 0, 0, 2, table.next_position) == 4


def test_a_piece_that_is_exactly_full(kernel: Any):
    """As many messages as have room, by their bytes and by their properties."""
    payload = batch_payload([Sent(b"v" * 44)] * 5)  # of 50 bytes each
    for most_bytes, taken in ((99, 1), (100, 2), (101, 2)):
        table = kernel.MessageTable()
        found = table.append_batch(payload, 5, None, 0, 0, 0, 2, 100, 5, most_bytes)
        assert (found, table.rows) == (2 + taken, taken)
    payload = batch_payload([Sent(properties=[("a", ""), ("b", "")])] * 5)
    for max_pairs, taken in ((5, 2), (6, 3), (7, 3)):
        table = kernel.MessageTable()
        table.max_pairs = max_pairs
        assert table.append_batch(payload, 5, None, 0, 0, 0) == taken


def test_no_limit(kernel: Any):
    """Places in columns, and numbers of rows, are int32s: the largest is the limit."""
    array("i", [kernel.NO_LIMIT])
    with pytest.raises(OverflowError):
        array("i", [kernel.NO_LIMIT + 1])


@pytest.mark.parametrize("count", [8, 40])
def test_too_many_properties(kernel: Any, count: int):
    """A message is refused for names that differ, never for those that repeat."""
    table = kernel.MessageTable()
    table.max_pairs = count
    pairs = [(str(number), "") for number in range(count)]
    table.append_batch(batch_payload([Sent(properties=pairs * 3)]), 1, None, 0, 0, 0)
    assert table.pairs == count
    more = batch_payload([Sent(), Sent(properties=[*pairs, ("more", "")])])
    with pytest.raises(
        CorruptEntryError, match=f"1 of 2 .* {count} prop.*memoryLimitBytes"
    ):
        table.append_batch(more, 2, None, 0, 0, 0)
    assert (table.rows, table.pairs) == (1, count)


def test_too_much_metadata(kernel: Any):
    """A message may have a large value, but no more metadata than that."""
    table = kernel.MessageTable()
    payload = batch_payload([Sent(b"v" * 1000, key="k" * 50)])
    head_bytes = len(payload) - 4 - 1000
    table.max_head_bytes = head_bytes
    table.append_batch(payload, 1, None, 0, 0, 0)
    table.max_head_bytes = head_bytes - 1
    match = f"has {head_bytes} bytes.* {head_bytes - 1} allowed.*memoryLimitBytes"
    with pytest.raises(CorruptEntryError, match=match):
        table.append_batch(payload, 1, None, 0, 0, 0)
    assert table.rows == 1


# -- metadata of an entry --------------------------------------------------------------


def test_metadata_taken_apart(kernel: Any):
    """Properties apart, what repeats without end left out, all else as it was."""
    pairs = [proto((1, "a"), (2, "b")), b"", proto((1, "c" * 200), (2, "d"))]
    fixed = b"\xf9\x06" + bytes(8) + b"\xfd\x06" + bytes(4)
    others = proto((1, "producer"), (2, 5), (3, 2**63), (11, 7), (26, "uuid"))
    keys = [proto((13, proto((1, f"{n}"), (2, b"k")))) for n in range(102)]
    data = b"".join(
        (
            proto((4, pairs[0]), (7, "cluster")),
            others,
            b"\xa2\x80\x00" + b"\x00",  # properties, in more bytes than it takes
            keys[0],
            proto((7, "another")),
            *keys[1:],
            fixed,
            proto((4, pairs[2])),
        )
    )
    found, properties = kernel.split_metadata(memoryview(data))
    assert found == others + b"".join(keys[:100]) + fixed
    assert properties == b"".join(proto((1, pair)) for pair in pairs)
    metadata = pb.MessageMetadata.FromString(found)
    assert metadata.num_messages_in_batch == 7


def test_metadata_of_any_numbers_and_widths(kernel: Any):
    """Up to ten bytes of a number; and what is in a field is never taken for one."""
    properties = b"\xa2" + b"\x80" * 8 + b"\x00" + b"\x01p"
    others = proto((1, "x" * 127), (2, 127), (3, 2**64 - 1))
    others += b"\x52\x81" + b"\x80" * 8 + b"\x00x"
    others += b"\xf9\x06" + bytes(4) + proto((4, "ab"))
    others += b"\xfd\x06" + proto((4, "ab"))
    found = kernel.split_metadata(properties + others)
    assert found == (others, proto((1, "p")))


def test_all_other_fields_stay(kernel: Any):
    """Whatever their numbers are, and however often they come."""
    for number in {*range(1, 300), 2047, 2048, 2**29 - 1} - {4, 7, 13}:
        for value in (5, b"x", 2**64 - 1, b"x" * 200):
            data = proto((number, value)) * 3
            assert kernel.split_metadata(data) == (data, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abcd",
        b"\x22\xff\xff\xff\xff\x0f",
        b"\x22" + b"\xff" * 9 + b"\x01",
        b"\x09" + bytes(7),
        b"\x0d" + bytes(3),
        b"\x10",
        b"\x10" + b"\x80" * 11,
        b"\x80",
        b"\x80" * 11,
        b"\x9b\x06\x9c\x06",
    ],
)
def test_metadata_that_is_none(kernel: Any, data: bytes):
    """Whatever ends early, or holds a group, is refused."""
    with pytest.raises(CorruptEntryError, match="metadata is damaged"):
        kernel.split_metadata(proto((2, 1)) + data)


def test_any_metadata_is_taken_apart_as_protobuf_does(kernel: Any):
    """Of random bytes both find the same, or neither does."""
    dice = random.Random(7)
    taken = 0
    for _ in range(CASES):
        data = b"".join(
            proto(
                (dice.choice((1, 4, 7, 8, 11, 13, 26, 31)), dice.choice((1, b"", b"x")))
            )
            for _ in range(dice.randrange(5))
        )
        data = bytearray(proto((1, "p"), (2, 1), (3, 2)) + data)
        if dice.random() < 0.5:
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            wanted = pb.MessageMetadata.FromString(bytes(data))
            found, _ = kernel.split_metadata(bytes(data))
            apart = pb.MessageMetadata.FromString(found)
        except (*UNREADABLE, CorruptEntryError):
            continue
        taken += 1
        for name in ("properties", "replicate_to", "encryption_keys"):
            wanted.ClearField(name)  # type: ignore[arg-type]
            apart.ClearField(name)  # type: ignore[arg-type]
        assert apart == wanted
    assert taken > CASES // 4


def test_size_of_an_lz4_block(kernel: Any):
    """It is what lz4 makes of it; less of a block gives less, or none."""
    dice = random.Random(3)
    for data in (
        b"",
        b"a",
        b"abc" * 1000,
        bytes(70_000),
        dice.randbytes(700),
        b"".join(dice.choice((b"abcd", b"xyz!", b"q" * 300)) for _ in range(300)),
    ):
        packed = lz4.block.compress(data, store_size=False)
        assert kernel.lz4_size(packed) == len(data)
        for size in range(len(packed)):
            assert kernel.lz4_size(packed[:size]) < max(1, len(data))


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"", -1),
        (b"\x00", 0),
        (b"\x10", -1),
        (b"\x10a", 1),
        (b"\x20a", -1),
        (b"\xf0", -1),
        (b"\xf0\xff", -1),
        (b"\xf0\x00" + bytes(14), -1),
        (b"\xf0\x00" + bytes(15), 15),
        (b"\xf0\xff\x01" + bytes(271), 271),
        (b"\x10a\x01", -1),
        (b"\x10a\x01\x00", -1),
        (b"\x10a\x01\x00\x00", 5),
        (b"\x1fa\x01", -1),
        (b"\x1fa\x01\x00", -1),
        (b"\x1fa\x01\x00\xff", -1),
        (b"\x1fa\x01\x00\xff\x02", -1),
        (b"\x1fa\x01\x00\xff\x02\x10b", 1 + 4 + 15 + 255 + 2 + 1),
        (b"\x1ea\x01\x00\x10b", 1 + 4 + 14 + 1),
    ],
)
def test_size_of_a_block_that_ends_early(kernel: Any, block: bytes, size: int):
    """-1 where more has to come: a block ends with literals."""
    assert kernel.lz4_size(block) == size


# -- where memory is short -------------------------------------------------------------


class Scarce:
    """Room that is given so many times, and then not."""

    def __init__(self, kernel: Any, left: int) -> None:
        self._give = kernel.new_bytes
        self.left = left

    def __call__(self, size: int) -> memoryview:
        """Room for so many bytes, or MemoryError."""
        if not self.left:
            raise MemoryError
        self.left -= 1
        return self._give(size)  # type: ignore[no-any-return]


def test_a_table_after_a_failed_allocation(kernel: Any):
    """Wherever memory runs out, the same call again finds all as it was."""
    sent = [
        Sent(b"v" * 50, key=f"k{n}", ordering_key=b"o", properties=[("a", "b")] * 2)
        for n in range(40)
    ]
    few, many = batch_payload(sent[:2]), batch_payload(sent)
    failures = 0
    for left in itertools.count():
        scarce = Scarce(kernel, 1000)
        table = kernel.MessageTable(allocate=scarce)
        table.append_batch(few, 2, None, 0, 0, 0)
        scarce.left = left
        try:
            table.append_batch(many, 40, None, 0, 0, 0)
        except MemoryError:
            failures += 1
        else:
            break
        for again in range(2):
            assert table.rows == 2
            scarce.left = 1000 if again else left // 2
            with contextlib.suppress(MemoryError):
                table.append_batch(many, 40, None, 0, 0, 0)
                break
        assert table.rows == 42
        assert [text_of(table.keys, row) for row in range(42)] == [
            *(b"k0", b"k1"),
            *(f"k{n}".encode() for n in range(40)),
        ]
        assert [fields_of_row(table, row)["properties"] for row in range(42)] == [
            {"a": "b"}
        ] * 42
    assert failures > 10


def test_bounds_after_a_failed_allocation(kernel: Any, monkeypatch: pytest.MonkeyPatch):
    """The same for what only the kernel itself sees."""
    pairs = [(f"name-{n}", "v") for n in range(40)]
    payload = batch_payload([Sent(b"v", key="k", properties=pairs)] * 40)
    give = kernel.new_bytes
    for left in range(12):
        scarce = Scarce(kernel, left)
        scarce._give = give
        table = kernel.MessageTable()
        monkeypatch.setattr(kernel, "new_bytes", scarce)
        for _ in range(2):
            with contextlib.suppress(MemoryError):
                table.append_batch(payload, 40, None, 0, 0, 0)
        monkeypatch.undo()
        rows = table.rows
        table.append_batch(payload, 40, None, 0, 0, 0)
        assert fields_of_row(table, rows + 39)["properties"] == dict(pairs)


def test_memory_that_was_used_before(kernel: Any):
    """Nothing is taken for granted of what is in it."""

    def used(size: int) -> memoryview:
        return memoryview(bytearray(b"\xff" * size))

    sent = [Sent(b"v" * n, key=str(n), properties=[("a", "b")] * 2) for n in range(40)]
    table, clean = kernel.MessageTable(allocate=used), kernel.MessageTable()
    for _ in range(2):
        for each in (table, clean):
            each.append_batch(batch_payload(sent), 40, None, 0, 0, 1)
            assert take(each, delivered(SINGLE)) == 1
        assert [row_of(table, row) for row in range(41)] == [
            row_of(clean, row) for row in range(41)
        ]
        assert table.size_bytes(0, 41) == clean.size_bytes(0, 41)
        table, clean = table.empty_like(), clean.empty_like()
    ids = kernel.BinaryColumn(used)
    ids.append_numbered(0, b"h", memoryview(array("i", [5])), 0, 1, b"t")
    assert text_of(ids, 0) == b"h\x05t"


def test_texts_after_a_failed_allocation(kernel: Any):
    """The same for a column by itself, gathered or numbered."""
    numbers = memoryview(array("i", [2**31 - 1] * 100))
    bounds = memoryview(array("i", [0, 9] * 100))
    for left in (0, 1):
        for fill in ("append", "append_numbered"):
            scarce = Scarce(kernel, 1000)
            texts = kernel.BinaryColumn(scarce)

            def take(texts: Any = texts, fill: str = fill) -> None:
                if fill == "append":
                    texts.append(0, b"some text", bounds, 100)
                else:
                    texts.append_numbered(0, b"head", numbers, 0, 100, b"tail")

            scarce.left = left
            with pytest.raises(MemoryError):
                take()
            scarce.left = 1000
            take()
            wanted = b"head" + encode_varint(2**31 - 1) + b"tail"
            assert text_of(texts, 99) == (b"some text" if fill == "append" else wanted)


# -- how much memory is taken ----------------------------------------------------------


def watched(kernel: Any) -> tuple[list[int], Any]:
    """How many bytes were asked for each time, and what gives them."""
    sizes: list[int] = []
    give = kernel.new_bytes

    def allocate(size: int) -> memoryview:
        sizes.append(size)
        return give(size)  # type: ignore[no-any-return]

    return sizes, allocate


def numbers_of(rows: int) -> list[int]:
    """Bytes of each column of numbers that has room for so many rows."""
    return [8 * rows, 8 * rows, 4 * rows, rows, 8 * (rows + 1), 4 * (rows + 1)]


#: Rows that were there when a column grew, one by one, and those that it then has.
GROWN = {0: 16, 16: 32, 32: 64, 64: 128}


@pytest.mark.parametrize("by", ["batches", "entries"])
def test_room_for_rows(kernel: Any, by: str):
    """None before there are rows; then twice as much each time there is no more."""
    sizes, allocate = watched(kernel)
    table = kernel.MessageTable([], allocate)
    assert sizes == numbers_of(0)
    assert (table.any_flags, table.all_flags, table.is_full) == (0, 0xFF, False)
    assert (table.rows, table.pairs, table.next_position) == (0, 0, 0)
    payload, came = batch_payload([Sent()]), delivered(SINGLE)
    for row in range(100):
        sizes.clear()
        if by == "batches":
            table.append_batch(payload, 1, None, 0, 0, 0)
        else:
            assert take(table, came) == 1
        assert sizes == (numbers_of(GROWN[row]) if row in GROWN else [])
    sizes.clear()
    table.append_batch(payload * 300, 300, None, 0, 0, 0)
    assert sizes == numbers_of(400)


def test_room_for_bytes(kernel: Any):
    """Likewise, of the bytes and of the places in them."""
    sizes, allocate = watched(kernel)
    column = kernel.BinaryColumn(allocate)
    assert sizes == [0, 4]
    bounds = memoryview(array("i", [0, 64]))
    for row in range(100):
        sizes.clear()
        column.append(row, bytes(64), bounds, 1)
        grown = GROWN.get(row, 0)
        assert sizes == ([4 * (grown + 1), 64 * grown] if grown else [])
    sizes.clear()
    column.append(100, bytes(100_000), memoryview(array("i", [0, 100_000])), 1)
    assert sizes == [6_400 + 100_000]


def test_room_for_numbered_rows(kernel: Any):
    """Likewise, for the largest numbers that there are; and none for no rows."""
    sizes, allocate = watched(kernel)
    column = kernel.BinaryColumn(allocate)
    numbers = memoryview(array("i", [2**31 - 1] * 100))
    for rows, first, last, grown in (
        (0, 84, 100, [4 * 17, 16 * 13]),
        (16, 50, 50, []),
        (16, 0, 1, [4 * 33, 32 * 13]),
        (17, 0, 100, [4 * 118, 117 * 13]),
    ):
        sizes.clear()
        column.append_numbered(rows, b"head", numbers, first, last, b"tail")
        assert sizes == grown
        assert column.offsets[rows + last - first] == (rows + last - first) * 13


def test_room_for_message_ids(kernel: Any):
    """Likewise, of the entries that are asked for."""
    came = delivered(builders.batch([Sent(removed=True)]), *[SINGLE] * 40)
    table = kernel.MessageTable()
    assert take(table, came) == 41
    sizes, allocate = watched(kernel)
    column = kernel.BinaryColumn(allocate)
    sizes.clear()
    column.append_ids(0, came[1], 0, 1, b"", table.batch_indexes, 0)
    assert sizes == []
    column.append_ids(0, came[1], 25, 41, b"", table.batch_indexes, 24)
    places, room = sizes
    assert places == 4 * 17
    sizes.clear()
    column.append_ids(16, came[1], 25, 41, b"", table.batch_indexes, 24)
    assert sizes == [4 * 33, 2 * room]


def test_room_for_a_batch(kernel: Any, monkeypatch: pytest.MonkeyPatch):
    """The same of what only the kernel itself sees, kept for the next batch."""
    give = kernel.new_bytes
    sizes, allocate = watched(kernel)
    monkeypatch.setattr(kernel, "new_bytes", allocate)
    table = kernel.MessageTable([], give)
    assert sizes == [0]

    def grown(sent: list[Sent], *further: int) -> list[int]:
        sizes.clear()
        payload = batch_payload(sent)
        table.append_batch(payload, len(sent), None, 0, 0, 0, *further)
        return [*sizes]

    assert grown([Sent()] * 5, 0, 0, 1) == [8] * 3
    assert grown([Sent()] * 5, 1, table.next_position) == [8 * 4] * 3
    assert grown([Sent()] * 4) == []
    many = [Sent(properties=[(str(n), "") for n in range(40)])]
    assert grown(many) == [8 * 16] * 2 + [8 * 32] * 2 + [8 * 64] * 2
    assert grown(many) == []
    table = kernel.MessageTable([], give)
    sizes.clear()
    assert take(table, delivered(SINGLE)) == 1
    assert sizes == [8] * 3


def test_room_of_a_table_like_another(kernel: Any):
    """For as many rows and bytes, and an eighth more; but not for very many bytes."""
    sizes, allocate = watched(kernel)
    table = kernel.MessageTable(["values"], allocate)
    table.append_batch(batch_payload([Sent(b"v" * 10)] * 80), 80, None, 0, 0, 0)
    sizes.clear()
    another = table.empty_like()
    assert sizes == [*numbers_of(0), *numbers_of(90), 900, 4 * 91]
    sizes.clear()
    another.append_batch(batch_payload([Sent(b"v" * 10)] * 90), 90, None, 0, 0, 0)
    assert sizes == []
    column = kernel.BinaryColumn(allocate)
    size = 9 << 20
    column.append(0, bytes(size), memoryview(array("i", [0, size])), 1)
    sizes.clear()
    column.empty_like(1)
    assert sizes == [8 << 20, 4 * 2]


# -- whole entries ---------------------------------------------------------------------


def delivered(*entries: bytes) -> tuple[bytes, memoryview]:
    """Entries as they come together, and what is known of them."""
    data = b"".join(builders.message(one, entry_id=n) for n, one in enumerate(entries))
    scanner = deliveries.Scanner()
    count = scanner.scan(data, 0, len(data), 1 << 20, {1})
    assert count == len(entries)
    return data, scanner.facts(count)


def last_rows(facts: memoryview) -> list[int]:
    """Where the rows of each entry end; -1 where nothing says that."""
    return list(facts[fact.LAST_ROW :: fact.PER_ENTRY])


def unpack(codec: int, payload: memoryview, size: int) -> Any:
    """As a reader does it."""
    assert codec
    try:
        return decompress(codec, payload, size, 1 << 20)
    except CorruptEntryError:
        return None


def take(
    table: Any,
    came: tuple[bytes, memoryview],
    first: int = 0,
    last: int | None = None,
    *,
    rows: int = 1000,
    size: int = 1 << 20,
) -> int:
    """Append entries; returns the first one that was not taken."""
    data, facts = came
    last = len(facts) // fact.PER_ENTRY if last is None else last
    found: int = table.append_entries(
        data, facts, first, last, rows, size, crc32c, unpack
    )
    return found


def row_of(table: Any, row: int) -> tuple[Any, ...]:
    """A row: its place in the batch, its value, and the fields of the message."""
    is_null = table.flags[row] & messages.IS_NULL
    value = None if is_null else text_of(table.values, row)
    return table.batch_indexes[row], value, fields_of_row(table, row)


def wanted_row(sent: Sent, index: int, sequence_id: int) -> tuple[Any, ...]:
    """The same of what was sent."""
    fields = {
        "partition_key": sent.key,
        "ordering_key": sent.ordering_key,
        "event_time": sent.event_time or None,
        "sequence_id": sequence_id,
        "properties": dict(sent.properties) or None,
    }
    return index, sent.payload, fields


#: Of each kind one.
KINDS = [
    Sent(b"value"),
    Sent(b""),
    Sent(None),
    Sent(key="key"),
    Sent(key=""),
    Sent(key=b"\x00\xff"),
    Sent(ordering_key=b"order"),
    Sent(ordering_key=b""),
    Sent(event_time=77),
    Sent(properties=[("a", "1"), ("ü", "2"), ("a", "3"), ("", "")]),
    Sent(properties=[(str(n % 30), str(n)) for n in range(70)]),
    Sent(b"all", key="k", ordering_key=b"o", event_time=2**62, properties=[("p", "q")]),
]


@pytest.mark.parametrize("codec", CODECS)
def test_entries_of_one_message(kernel: Any, codec: int):
    """Each has all that it was sent with, and the size that it had in a batch."""
    outer = Outer(codec=codec, sequence_id=2**40)
    extra = (5, "cluster"), (7, "c"), (16, b"v"), (19, 5), (99, b"x"), (100, 2**62)
    odd = Outer(codec=codec, sequence_id=2**40, extra=extra)
    entries = [builders.single(sent, each) for sent in KINDS for each in (outer, odd)]
    came = delivered(*entries)
    table = kernel.MessageTable()
    assert take(table, came) == len(entries)
    assert not table.is_full
    rows = [wanted_row(sent, 0, 2**40) for sent in KINDS for _ in range(2)]
    assert [row_of(table, row) for row in range(table.rows)] == rows
    assert last_rows(came[1]) == list(range(1, len(rows) + 1))
    batch = kernel.MessageTable()
    for sent in KINDS:
        for _ in range(2):
            # In a batch it would say its own id.
            one = replace(sent, sequence_id=2**40)
            pairs = list(dict(sent.properties).items())
            if len(pairs) == len(sent.properties):
                batch.append_batch(batch_payload([one]), 1, None, 0, 0, 0)
                row = batch.rows - 1
                at = KINDS.index(sent) * 2
                assert table.size_bytes(at, at + 1) == batch.size_bytes(row, row + 1)
    for flags in ("any_flags", "all_flags"):
        found = [table.flags[row] for row in range(table.rows)]
        fold = functools.reduce(
            lambda a, b: a | b if flags == "any_flags" else a & b, found
        )
        assert getattr(table, flags) == fold


@pytest.mark.parametrize("codec", CODECS)
def test_entries_of_several_messages(kernel: Any, codec: int):
    """One after the other, between those of one message, and from anywhere on."""
    outer = Outer(codec=codec, sequence_id=40, event_time=5, extra=((24, 51),))
    gaps = Outer(codec=codec, sequence_id=40)
    sent = [replace(one, event_time=one.event_time or 5) for one in KINDS]
    came = delivered(
        builders.single(Sent(b"not this")),
        builders.batch(KINDS, outer),
        builders.single(Sent(b"between")),
        builders.batch([Sent(b"a"), Sent(removed=True), Sent(b"c")], gaps),
        builders.batch([Sent(removed=True)], gaps),
        builders.single(Sent(b"nor this")),
    )
    table = kernel.MessageTable()
    assert take(table, came, 1, 5) == 5
    count = len(KINDS)
    assert [row_of(table, row) for row in range(table.rows)] == [
        *(wanted_row(one, n, 40 + n) for n, one in enumerate(sent)),
        wanted_row(Sent(b"between"), 0, 5),
        wanted_row(Sent(b"a"), 0, 40),
        wanted_row(Sent(b"c"), 2, 40),
    ]
    assert last_rows(came[1]) == [-1, count, count + 1, count + 3, count + 3, -1]


def test_properties_of_messages_one_after_the_other(kernel: Any):
    """Each message has its own, whatever names another has."""
    pairs = [[(str(n % (1 + row)), str(row)) for n in range(40)] for row in range(40)]
    came = delivered(*(builders.single(Sent(properties=one)) for one in pairs))
    table = kernel.MessageTable()
    assert take(table, came) == 40
    found = [fields_of_row(table, row)["properties"] for row in range(40)]
    assert found == [dict(one) for one in pairs]
    assert table.pairs == table.pair_ends[40] == sum(map(len, found))


def test_a_null_value_that_is_none(kernel: Any):
    """What has a value is not null, whatever it says."""
    came = delivered(
        builders.single(Sent(b"v"), Outer(extra=((25, 1),))),
        builders.single(Sent(b""), Outer(extra=((25, 1),))),
        builders.single(Sent(b"v", key="k"), Outer(extra=((25, 1), (17, 1)))),
        builders.single(Sent(b""), Outer(extra=((17, 1),))),
    )
    table = kernel.MessageTable()
    assert take(table, came) == 4
    flags = table.flags
    assert [bool(flags[row] & messages.IS_NULL) for row in range(4)] == [0, 1, 0, 0]
    encoded = messages.KEY_IS_BASE64
    assert [bool(flags[row] & encoded) for row in range(4)] == [0, 0, 1, 0]


def test_keys_that_are_not_there(kernel: Any):
    """They are empty, whatever keys the entry before has."""
    whole = Sent(key="key", ordering_key=b"order")
    came = delivered(builders.single(whole), builders.single(Sent()))
    table = kernel.MessageTable()
    assert take(table, came) == 2
    assert [text_of(table.keys, row) for row in range(2)] == [b"key", b""]
    assert [text_of(table.ordering_keys, row) for row in range(2)] == [b"order", b""]


BATCH = builders.batch([Sent(b"v" * 44)] * 4)  # of 50 bytes each
SINGLE = builders.single(Sent(b"v" * 42))  # likewise


@pytest.mark.parametrize(
    ("limits", "taken", "is_full"),
    [
        ({"rows": 6, "size": 10**6}, 3, False),
        ({"rows": 5, "size": 10**6}, 2, True),
        ({"rows": 4, "size": 10**6}, 1, True),
        ({"rows": 3, "size": 10**6}, 0, False),
        ({"rows": 99, "size": 300}, 3, False),
        ({"rows": 99, "size": 299}, 2, True),
        ({"rows": 99, "size": 250}, 2, True),
        ({"rows": 99, "size": 249}, 1, True),
        ({"rows": 99, "size": 200}, 1, True),
        ({"rows": 99, "size": 199}, 0, False),
    ],
)
@pytest.mark.parametrize("codec", [0, 1])
def test_entries_until_a_table_is_full(
    kernel: Any, codec: int, limits: dict[str, int], taken: int, is_full: bool
):
    """By its rows and by its bytes; what no table has room for is another matter."""
    outer = Outer(codec=codec)
    batch = builders.batch([Sent(b"v" * 44)] * 4, outer)
    one = builders.single(Sent(b"v" * 42), outer)
    came = delivered(batch, one, one)
    table = kernel.MessageTable()
    assert take(table, came, **limits) == taken
    assert table.is_full == is_full
    assert table.size_bytes(0, table.rows) == [0, 200, 250, 300][taken]
    # Nothing is taken for a reason of before.
    another = table.empty_like()
    assert not another.is_full
    assert take(another, came, 1) == 3


def test_an_entry_that_is_larger_than_a_table(kernel: Any):
    """It is no reason for another table, wherever it comes."""
    small, large = builders.single(Sent()), builders.batch([Sent()] * 9)
    for limits in ({"rows": 8}, {"size": 100}):
        table = kernel.MessageTable()
        assert take(table, delivered(small, large), **limits) == 1
        assert not table.is_full


def test_a_table_that_is_full_with_one_row(kernel: Any):
    """It takes no second one."""
    table = kernel.MessageTable()
    assert take(table, delivered(SINGLE, SINGLE), rows=1) == 1
    assert (table.rows, table.is_full) == (1, True)


def test_a_batch_that_cannot_have_so_many_messages(kernel: Any):
    """It is damaged, which is no reason for another table."""
    table = kernel.MessageTable()
    two = builders.batch([Sent()] * 2)
    assert take(table, delivered(two, lying((11, 3), payload=bytes(17))), rows=4) == 1
    assert (table.rows, table.is_full) == (2, False)


def test_a_batch_with_too_many_properties_for_a_table(kernel: Any):
    """It is left to who takes it in pieces, and nothing of it is in the table."""
    sent = [Sent(key="k", properties=[(str(n), "") for n in range(4)])] * 3
    came = delivered(builders.single(Sent(b"first")), builders.batch(sent))
    table = kernel.MessageTable()
    table.max_pairs = 9
    assert take(table, came) == 1
    assert (table.rows, table.pairs, table.any_flags, table.is_full) == (1, 0, 0, False)
    assert row_of(table, 0) == wanted_row(Sent(b"first"), 0, 5)
    assert last_rows(came[1]) == [1, -1]


def test_what_a_table_is_full_of_is_asked_each_time(kernel: Any):
    """Once it had no room, and then what came was damaged."""
    table = kernel.MessageTable()
    came = delivered(BATCH, BATCH, builders.single(Sent())[:-1] + b"?")
    assert take(table, came, rows=4) == 1
    assert table.is_full
    assert take(table, came, 2) == 2
    assert not table.is_full


def lying(*fields: tuple[int, int], payload: bytes) -> bytes:
    """An entry with a checksum that is right, and metadata that are not."""
    return builders.with_headers(Outer().metadata(*fields), payload)


TWO = builders.batch_payload([Sent(b"a"), Sent(b"b")])
DAMAGED = {
    "a wrong checksum": builders.batch([Sent()])[:-1] + b"?",
    "a wrong checksum of one": builders.single(Sent())[:-1] + b"?",
    "too many messages": lying((11, 3), payload=TWO[:17]),
    "a message too few": lying((11, 3), payload=TWO),
    "a message too many": lying((11, 1), payload=TWO),
    "no codec": lying((8, 9), (9, 3), payload=b"abc"),
    "no LZ4": lying((8, 1), (9, 90), payload=b"abc"),
    "no LZ4 in a batch": lying((8, 1), (9, 90), (11, 2), payload=b"abc"),
    "a batch that is none": lying(
        (8, 2), (9, 60), (11, 2), payload=builders.compress(2, bytes(60))
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_entries_up_to_what_is_damaged(kernel: Any, name: str):
    """It is left to who says why, and nothing of it is in the table."""
    one = Sent(b"v", key="k", properties=[("a", "b")])
    good = builders.batch([one, one])
    came = delivered(good, DAMAGED[name], good)
    table = kernel.MessageTable()
    assert take(table, came) == 1
    assert (table.rows, table.pairs, table.is_full) == (2, 2, False)
    assert take(table, came, 2) == 3
    assert [row_of(table, row) for row in range(4)] == [
        wanted_row(one, row % 2, 5) for row in range(4)
    ]
    assert last_rows(came[1]) == [2, -1, 4]


def test_messages_that_take_six_bytes(kernel: Any):
    """Less a message cannot have: a batch of more is none."""
    least = builders.sized(proto((3, 0)))
    assert len(least) == 6
    for codec in (0, 1):
        sizes = (8, codec or None), (9, 18 if codec else None)
        metadata = Outer().metadata((11, 3), *sizes)
        payload = builders.compress(codec, least * 3)
        came = delivered(builders.with_headers(metadata, payload))
        table = kernel.MessageTable()
        assert take(table, came) == 1
        assert [row_of(table, row)[1] for row in range(3)] == [b""] * 3


def test_a_checksum_is_of_what_is_behind_it(kernel: Any):
    """Up to the end of the entry, whatever stands before."""
    asked: list[bytes] = []
    entries = [builders.single(Sent(b"%d" % n), broker_metadata=b"") for n in range(3)]
    data, facts = delivered(*entries)

    def checksum(part: memoryview) -> int:
        asked.append(bytes(part))
        return crc32c(part)

    table = kernel.MessageTable()
    assert table.append_entries(data, facts, 0, 3, 9, 999, checksum, unpack) == 3
    assert asked == [entry[12:] for entry in entries]


@pytest.mark.parametrize("codec", [0, 1])
def test_an_entry_with_too_much_metadata(kernel: Any, codec: int):
    """It is left to who says why; the most that it may have it may have."""
    sent = Sent(b"v", key="k", properties=[(f"name {n}", "v") for n in range(5)] * 2)
    came = delivered(builders.single(sent, Outer(codec=codec)))
    head_bytes = came[1][fact.HEAD_BYTES]
    for max_head_bytes, max_pairs, taken in (
        (head_bytes, 5, 1),
        (head_bytes - 1, 5, 0),
        (head_bytes, 4, 0),
    ):
        table = kernel.MessageTable()
        table.max_head_bytes, table.max_pairs = max_head_bytes, max_pairs
        assert take(table, came) == taken
        assert (table.rows, table.pairs) == (taken, 5 * taken)


@pytest.mark.parametrize("text", messages.BINARY_COLUMNS)
def test_entries_of_which_not_all_is_wanted(kernel: Any, text: str):
    """A column that is not wanted is not there."""
    sent = Sent(b"v", key="k", ordering_key=b"o", properties=[("a", "b")])
    came = delivered(builders.single(sent), builders.batch([sent]))
    table = kernel.MessageTable([text])
    assert take(table, came) == 2
    texts = {"values": b"v", "keys": b"k", "ordering_keys": b"o", "pair_keys": b"a"}
    texts["pair_values"] = b"b"
    for name, value in texts.items():
        column = getattr(table, name)
        if name == text or (text == "properties" and name.startswith("pair_")):
            assert [text_of(column, row) for row in range(2)] == [value] * 2
        else:
            assert column is None


# -- message ids -----------------------------------------------------------------------


@pytest.mark.parametrize("partition", [b"", proto((3, 0)), proto((3, 2**31 - 1))])
def test_message_ids(kernel: Any, partition: bytes):
    """As Java writes them: the place in a batch only where there is one."""
    entries = [
        builders.single(Sent()),
        builders.batch([Sent(removed=n % 3 == 1) for n in range(300)]),
        builders.batch([Sent(removed=True)]),
        builders.batch([Sent()]),
        builders.single(Sent()),
    ]
    places = [(0, 0), (127, 128), (7, 5), (2**40, 16384), (2**63 - 1, 2**63 - 1)]
    data = b"".join(
        builders.message(one, ledger_id=a, entry_id=b)
        for one, (a, b) in zip(entries, places, strict=True)
    )
    scanner = deliveries.Scanner()
    assert scanner.scan(data, 0, len(data), 1 << 20, {1}) == 5
    facts = scanner.facts(5)
    table = kernel.MessageTable()
    table.append_batch(batch_payload([Sent()] * 3), 3, None, 0, 0, 0)
    assert take(table, (data, facts)) == 5
    ids = []
    for (ledger_id, entry_id), size in zip(places, (0, 300, 1, 1, 0), strict=True):
        for index in range(max(1, size)):
            if (size != 300 or index % 3 != 1) and ledger_id != 7:
                ids.append(
                    proto((1, ledger_id), (2, entry_id))
                    + partition
                    + (proto((4, index)) if size else b"")
                    + proto((6, size))
                )
    column = kernel.BinaryColumn(kernel.new_bytes)
    column.append(0, b"kept dropped", memoryview(array("i", [0, 4, 5, 12])), 2)
    column.append_ids(1, facts, 0, 5, partition, table.batch_indexes, 3)
    assert [text_of(column, row) for row in range(len(ids) + 1)] == [b"kept", *ids]
    # Some of them, behind others; and none.
    column.append_ids(2, facts, 3, 5, partition, table.batch_indexes, 204)
    column.append_ids(4, facts, 2, 3, partition, table.batch_indexes, 204)
    column.append_ids(4, facts, 1, 1, partition, table.batch_indexes, 4)
    found = [text_of(column, row) for row in range(4)]
    assert found == [b"kept", ids[0], *ids[-2:]]


def test_the_largest_message_ids(kernel: Any):
    """There is room for them, whatever their partition adds."""
    most = 2**63 - 1
    partition = proto((3, 2**31 - 1))
    entry = builders.batch([Sent()] * 300)
    data = builders.message(entry, ledger_id=most, entry_id=most)
    scanner = deliveries.Scanner()
    assert scanner.scan(data, 0, len(data), 1 << 20, {1}) == 1
    facts = scanner.facts(1)
    table = kernel.MessageTable()
    assert take(table, (data, facts)) == 1
    column = kernel.BinaryColumn(kernel.new_bytes)
    column.append_ids(0, facts, 0, 1, partition, table.batch_indexes, 0)
    head = proto((1, most), (2, most)) + partition
    wanted = [head + proto((4, index), (6, 300)) for index in range(300)]
    assert [text_of(column, row) for row in range(300)] == wanted
