# SPDX-License-Identifier: Apache-2.0
"""Entries: three forms of payload, what each message gets, and every kind of lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops.deliveries import Deliveries, Scanner
from pulsar_spark.loops.messages import MessageTable
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.entries import (
    Entry,
    EntryDecoder,
    StoredEntry,
    read_stored_entry,
)
from tests.support.entries import decode_entry
from tests.support.settings import range_settings
from tests.wire import builders
from tests.wire.builders import CODECS, Outer, Sent, proto
from tests.wire.fields import column_of, fields_of

ALL = MessageId(0, 0)
END = MessageId(2**62, 0)

IN_PYTHON = api_implementation.Type() == "python"


def decode(
    entry: bytes,
    *,
    max_bytes: int = 1 << 20,
    **facts: Any,
) -> Entry:
    """An entry at 7:3, as far as it can be decoded."""
    stored = read_stored_entry(7, 3, memoryview(entry), **facts)
    return decode_entry(stored, max_bytes=max_bytes)


def refused(entry: bytes, match: str, **how: Any) -> None:
    """Checks that an entry cannot be decoded, and why."""
    with pytest.raises(CorruptEntryError, match=match):
        decode(entry, **how)


def raw_batch(payload: bytes, count: int, *more: tuple[int, int | bytes]) -> bytes:
    """A batch of any bytes, said to be so many messages."""
    return builders.with_headers(Outer().metadata((11, count), *more), payload)


def numbered(count: int, removed: tuple[int, ...] = ()) -> list[Sent]:
    """Messages that are told apart by their payloads."""
    return [Sent(b"%d" % n, removed=n in removed) for n in range(count)]


# -- what the messages get -------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 100])
def test_batches(codec: int, count: int):
    """A batch gives its messages in order, whatever compressed it."""
    entry = decode(builders.batch(numbered(count), Outer(codec=codec)))
    assert entry.position == (7, 3)
    assert entry.payloads == [b"%d" % n for n in range(count)]
    assert list(entry.batch_indexes) == list(range(count))
    assert (entry.batch_size, len(entry)) == (count, count)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", [b"x" * 1000, b"", None])
def test_singles(codec: int, payload: bytes | None):
    """A single message is its payload; empty is not the same as null."""
    entry = decode(builders.single(Sent(payload), Outer(codec=codec)))
    assert entry.payloads == [payload]
    assert list(entry.batch_indexes) == [0]
    assert entry.batch_size == 0
    size = len(payload or b"")
    assert size < entry.size_bytes < size + len(entry.metadata.SerializeToString())


def test_null_and_empty_in_a_batch():
    """Null and empty are told apart in a batch, too."""
    entry = decode(builders.batch([Sent(None), Sent(b""), Sent(b"x")]))
    assert entry.payloads == [None, b"", b"x"]


SENT = [
    Sent(key="k"),
    Sent(key=""),
    Sent(key="größe"),
    Sent(key=b"\x00\xff"),
    Sent(key=b""),
    Sent(ordering_key=b"o"),
    Sent(ordering_key=b""),
    Sent(event_time=77),
    Sent(sequence_id=0),
    Sent(sequence_id=9),
    Sent(properties=[("a", "1"), ("ä", ""), ("", "x")]),
    Sent(properties=[("a", "1"), ("b", "2"), ("a", "3")]),
    Sent(),
]


def wanted(sent: Sent, outer: Outer) -> dict[str, Any]:
    """The fields of a message."""
    sequence_id = outer.sequence_id if sent.sequence_id is None else sent.sequence_id
    return {
        "partition_key": sent.key,
        "ordering_key": sent.ordering_key,
        "event_time": sent.event_time or outer.event_time or None,
        "sequence_id": sequence_id,
        "properties": dict(sent.properties) or None,
    }


def test_fields_in_a_batch():
    """Each has what it was sent with; of a property that came twice the last value."""
    outer = Outer(key="outer", sequence_id=40)
    assert fields_of(decode(builders.batch(SENT, outer))) == [
        wanted(sent, outer) for sent in SENT
    ]


@pytest.mark.parametrize(
    ("highest", "ids"),
    [
        (44, [40, 7, 42, 44]),  # by their places in the batch as it was written
        (45, [40, 7, 40, 40]),  # some ids are left out, nobody knows which
        (None, [40, 7, 40, 40]),
    ],
)
def test_sequence_ids_in_a_batch(highest: int | None, ids: list[int]):
    """A message without one of its own counts on from the entry's, if it can."""
    extra = () if highest is None else ((24, highest),)
    outer = Outer(sequence_id=40, extra=extra)
    sent = [Sent(), Sent(sequence_id=7), Sent(), Sent(removed=True), Sent()]
    entry = decode(builders.batch(sent, outer))
    assert column_of(entry, "sequence_id") == ids


@pytest.mark.parametrize("sent", [s for s in SENT if s.sequence_id is None])
def test_fields_of_a_single(sent: Sent):
    """A single message has them from its entry."""
    assert fields_of(decode(builders.single(sent))) == [wanted(sent, Outer())]


def test_event_time_falls_back_to_the_entry():
    """In a batch only messages without an event time get the entry's; 0 is none."""
    outer = Outer(event_time=1234)
    sent = [Sent(event_time=77), Sent(), Sent(event_time=0)]
    found = decode(builders.batch(sent, outer))
    assert column_of(found, "event_time") == [77, 1234, 1234]
    assert column_of(decode(builders.batch(sent)), "event_time") == [77, None, None]


def test_the_key_of_the_entry_is_not_the_messages():
    """Outer key and properties are the first message's: no other gets them."""
    outer = Outer(key="outer", extra=((4, proto((1, "p"), (2, "q"))), (18, b"o")))
    entry = decode(builders.batch([Sent(), Sent(key="own")], outer))
    assert column_of(entry, "partition_key") == [None, "own"]
    assert column_of(entry, "properties") == [None, None]
    assert column_of(entry, "ordering_key") == [None, None]


def test_redelivery_count():
    """It goes with the entry."""
    assert decode(builders.single(Sent()), redelivery_count=3).redelivery_count == 3
    assert decode(builders.single(Sent())).redelivery_count == 0


def test_schema_version():
    """As its producer sent it."""
    sent = builders.single(Sent(), Outer(extra=((16, b"\x00\x01"),)))
    assert decode(sent).schema_version == b"\x00\x01"
    assert decode(builders.single(Sent())).schema_version == b""


# -- headers ---------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("broker", [None, proto((1, 1_700_000_000_000), (2, 41))])
def test_headers(checksum: bool, broker: bytes | None):
    """Checksum and broker metadata may be there or not, in any combination."""
    data = builders.batch(numbered(3), checksum=checksum, broker_metadata=broker)
    entry = decode(data)
    assert entry.payloads == [b"0", b"1", b"2"]
    if broker is None:
        assert entry.broker_metadata is None
    else:
        assert entry.broker_metadata is not None
        assert entry.broker_metadata.broker_timestamp == 1_700_000_000_000
        assert entry.broker_metadata.index == 41


def test_damaged_metadata():
    """Metadata, the broker's or the producer's, that cannot be parsed is corrupt."""
    refused(builders.with_headers(b"\x0a\x7f", b"x"), "metadata is damaged")
    refused(builders.single(Sent(), broker_metadata=b"\x08"), "metadata is damaged")
    refused(raw_batch(b"\x00\x00\x00\x02\x0a\x7f", 1), "message 0 of 1 .* damaged")


def test_groups_without_end():
    """Groups in groups in groups are refused, or passed over, without a crash."""
    deep = b"\x9b\x06" * 20_000 + b"\x9c\x06" * 20_000
    refused(builders.with_headers(Outer().metadata() + deep, b"x"), "damaged")


@pytest.mark.parametrize("kind", [10, 20, 21, 22, 0])
def test_markers(kind: int):
    """A marker has no messages, whatever its payload is, and costs what one does."""
    stored = read_stored_entry(
        7, 3, memoryview(builders.single(Sent(), Outer(extra=((20, kind),))))
    )
    assert stored.is_marker
    assert stored.charged_messages == 1
    entry = decode_entry(stored)
    assert (len(entry), entry.size_bytes) == (0, 0)
    assert fields_of(entry) == []


def test_encrypted():
    """An encrypted entry is a clear error with the name of its key."""
    outer = Outer(extra=((13, proto((1, "my-key"), (2, b"secret"))),))
    refused(builders.single(Sent(), outer), "encrypted with the key 'my-key'")
    refused(builders.batch([Sent()], outer), "encrypted")


def test_permits():
    """A batch costs its messages, removed ones included; anything else costs one.

    A broker takes what the metadata says, whatever it says: seen on 4.0.7, whose
    permits grow with a count below 0.
    """

    def charged(entry: bytes) -> int:
        return read_stored_entry(7, 3, memoryview(entry)).charged_messages

    assert charged(builders.batch(numbered(5, removed=(1, 2)))) == 5
    assert charged(builders.single(Sent())) == 1
    for count in (0, -3, 2**31 - 1):
        assert charged(raw_batch(b"", count)) == count
    assert charged(builders.chunk(b"x", 0, 2, 2)) == 1


# -- compaction ------------------------------------------------------------------------


def test_removed_messages():
    """Compaction's gaps are passed over; the others keep their numbers."""
    entry = decode(builders.batch(numbered(5, removed=(0, 2, 4))))
    assert list(entry.batch_indexes) == [1, 3]
    assert entry.payloads == [b"1", b"3"]
    assert entry.batch_size == 5
    assert len(fields_of(entry)) == 2


def test_everything_removed():
    """A batch of which nothing is left has no messages."""
    entry = decode(builders.batch(numbered(2, removed=(0, 1))))
    assert (len(entry), entry.batch_size) == (0, 2)


@pytest.mark.parametrize("packed", [False, True])
def test_retained_indexes(packed: bool):
    """Newer brokers store only what is left, and its numbers."""
    indexes = (1, 4, 7)
    payload = builders.batch_payload([Sent(b"%d" % n) for n in indexes])
    many = [(31, bytes(indexes))] if packed else [(31, n) for n in indexes]
    entry = decode(raw_batch(payload, 9, *many))
    assert list(entry.batch_indexes) == [1, 4, 7]
    assert entry.payloads == [b"1", b"4", b"7"]
    assert entry.batch_size == 9


@pytest.mark.parametrize("indexes", [(1, 1), (3, 2), (-1, 0), (0, 9), (9, 10), (8, 2)])
def test_retained_indexes_that_lie(indexes: tuple[int, ...]):
    """They ascend, and lie within the batch."""
    payload = builders.batch_payload([Sent()] * len(indexes))
    refused(raw_batch(payload, 9, *[(31, n) for n in indexes]), "ascending order")


def test_more_retained_than_stored():
    """More numbers than messages is corrupt, and so are fewer."""
    two = builders.batch_payload([Sent()] * 2)
    refused(raw_batch(two, 9, (31, 1), (31, 2), (31, 3)), "2 of 3 .* runs past")
    refused(raw_batch(two, 9, (31, 1)), "bytes follow")


# -- lies ------------------------------------------------------------------------------


def test_wrong_checksum():
    """One changed bit anywhere behind the checksum is found."""
    entry = builders.batch(numbered(3))
    for place in range(2, len(entry)):
        damaged = bytearray(entry)
        damaged[place] ^= 4
        refused(bytes(damaged), "checksum")


def test_every_truncation():
    """A batch that ends early is corrupt wherever it ends."""
    payload = builders.batch_payload(SENT)
    for size in range(len(payload)):
        refused(raw_batch(payload[:size], len(SENT)), "runs past|damaged|promises")


def test_trailing_bytes():
    """Nothing may follow the last message of a batch."""
    payload = builders.batch_payload(numbered(2))
    refused(raw_batch(payload + b"x", 2), "1 bytes follow the last of the 2 messages")
    refused(raw_batch(payload, 1), "bytes follow")
    refused(raw_batch(b"x", 0), "bytes follow")


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 10_000, 2**31 - 1])
def test_counts_that_cannot_be(count: int):
    """A count that the payload has no room for is refused before anything is made."""
    payload = builders.batch_payload([Sent(b"")] * 3)
    refused(raw_batch(payload, count), f"promises a batch of {count} messages")


def test_an_empty_batch():
    """A batch of none has none."""
    entry = decode(raw_batch(b"", 0))
    assert len(entry) == 0


@pytest.mark.parametrize(
    "payload",
    [
        builders.sized(proto((3, 1)), 2**32 - 1) + b"x" * 9,
        builders.sized(proto((3, 1)), 40) + b"x" * 9,
        builders.sized(proto((3, 11))) + b"x" * 10,
        builders.sized(proto((3, 2**31 - 1))) + b"x" * 9,
        builders.sized(proto((3, -1))) + b"x" * 9,
        builders.sized(proto((3, -(2**31)))) + b"x" * 9,
        builders.sized(proto((3, -17))) + b"x" * 9,
    ],
)
def test_sizes_that_lie(payload: bytes):
    """Sizes beyond the end, and before the beginning, are corrupt."""
    refused(raw_batch(payload, 1), "message 0 of 1 .* (runs past|is damaged)")


def test_a_message_without_a_size():
    """Zeros are no message: each one says how large it is."""
    refused(raw_batch(bytes(8), 1), "message 0 .* does not say how large")
    refused(raw_batch(builders.sized(proto((2, "key"))), 1), "does not say how large")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compression_that_lies(codec: int):
    """Another size than promised, damage, and a bomb are corrupt."""
    payload = builders.batch_payload(numbered(50))
    packed = builders.compress(codec, payload)

    def entry(size: int, data: bytes = packed) -> bytes:
        more = (8, codec), (9, size), (11, 50)
        return builders.with_headers(Outer().metadata(*more), data)

    assert len(decode(entry(len(payload)))) == 50
    for size in (0, 1, len(payload) - 1, len(payload) + 1):
        refused(entry(size), "its payload")
    refused(entry(len(payload), packed[:-10]), "its payload")
    refused(entry(len(payload), b""), "its payload")
    refused(entry(2**32 - 1), "more than the .* allowed")
    bomb = bytes(100_000)
    small = entry(len(bomb), builders.compress(codec, bomb))
    refused(small, "more than the 9999 bytes", max_bytes=9999)


@pytest.mark.parametrize("codec", [5, 99, -1, 2**31 - 1])
def test_unknown_codecs(codec: int):
    """A codec of the future is a clear error."""
    metadata = Outer().metadata((8, codec), (9, 1))
    refused(builders.with_headers(metadata, b"x"), f"codec number {codec}")


# -- text that is no text --------------------------------------------------------------

NO_TEXT = b"\xff\xfe"


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("partition_key", proto((2, NO_TEXT), (3, 0))),
        ("properties", proto((1, proto((1, NO_TEXT), (2, "v"))), (3, 0))),
        ("properties", proto((1, proto((1, "k"), (2, NO_TEXT))), (3, 0))),
    ],
)
def test_text_that_is_not_utf8(name: str, head: bytes):
    """It stays the bytes it is."""
    entry = raw_batch(builders.sized(head), 1)
    (value,) = column_of(decode(entry), name)
    found = [value] if name == "partition_key" else [*value, *value.values()]
    assert NO_TEXT in found


@pytest.mark.parametrize("number", [1, 5, 6, 26])
def test_text_of_the_entry_that_is_not_utf8(number: int):
    """The same for what the entry itself says."""
    outer = Outer(extra=((number, NO_TEXT),))
    if IN_PYTHON:
        refused(builders.single(Sent(), outer), "damaged .*in field")
    else:
        assert decode(builders.single(Sent(), outer)).payloads == [b"payload"]


# -- ranges ----------------------------------------------------------------------------


def at(ledger: int, entry: int, index: int = -1) -> MessageId:
    """A message id."""
    return MessageId(ledger, entry, index)


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (ALL, END, "01234"),
        (at(7, 3), at(7, 3), "01234"),
        (at(7, 3, 0), at(7, 3, 4), "01234"),
        (at(7, 3, 2), END, "234"),
        (ALL, at(7, 3, 2), "012"),
        (at(7, 3, 1), at(7, 3, 3), "123"),
        (at(7, 3, 2), at(7, 3, 2), "2"),
        (at(7, 3, 3), at(7, 3, 2), ""),
        (at(7, 3, 5), END, ""),
        (at(7, 3, 99), END, ""),
        (ALL, at(7, 3, 99), "01234"),
        (at(7, 4), END, ""),
        (at(8, 0), END, ""),
        (ALL, at(7, 2), ""),
        (ALL, at(6, 99), ""),
        (at(7, 2, 3), at(7, 4, 0), "01234"),
        (at(6, 9, 3), at(8, 0, 0), "01234"),
        (at(-1, -1), END, "01234"),
    ],
)
def test_between(start: MessageId, end: MessageId, kept: str):
    """Both ends belong to it; their batch indexes count in their own entries only."""
    entry = decode(builders.batch(numbered(5))).between(start, end)
    assert b"".join(p or b"" for p in entry.payloads).decode() == kept
    assert [str(index) for index in entry.batch_indexes] == list(kept)


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [(0, 5, "134"), (1, 1, "1"), (2, 2, ""), (2, 3, "3"), (0, 0, ""), (4, -1, "4")],
)
def test_between_with_removed_members(first: int, last: int, kept: str):
    """The numbers of a range are those of the batch as it was written."""
    entry = decode(builders.batch(numbered(6, removed=(0, 2, 5))))
    cut = entry.between(at(7, 3, first), at(7, 3, last))
    assert b"".join(p or b"" for p in cut.payloads).decode() == kept


@pytest.mark.parametrize("index", [-1, 0, 1, 9])
def test_between_of_a_single(index: int):
    """What is no batch has no places in it: the entry counts as a whole."""
    entry = decode(builders.single(Sent()))
    assert len(entry.between(at(7, 3, index), END)) == 1
    assert len(entry.between(ALL, at(7, 3, index))) == 1
    assert len(entry.between(at(7, 4, index), END)) == 0


def test_cut():
    """A cut keeps columns and payloads together."""
    entry = decode(builders.batch(SENT))
    cut = entry.cut(2, 5)
    assert fields_of(cut) == fields_of(entry)[2:5]
    assert list(cut.batch_indexes) == [2, 3, 4]
    assert cut.size_bytes > sum(len(p or b"") for p in cut.payloads)
    sizes = [entry.cut(n, n + 1).size_bytes for n in range(len(entry))]
    assert entry.size_bytes - len(entry) < sum(sizes) <= entry.size_bytes
    assert (cut.batch_size, cut.metadata) == (entry.batch_size, entry.metadata)
    assert len(entry.cut(0, 0)) == 0


# -- properties ------------------------------------------------------------------------

text = st.text(max_size=12)
sent = st.builds(
    Sent,
    payload=st.none() | st.binary(max_size=60),
    key=st.none() | text | st.binary(max_size=12),
    ordering_key=st.none() | st.binary(max_size=9),
    event_time=st.none() | st.integers(0, 2**64 - 1),
    sequence_id=st.none() | st.integers(0, 2**64 - 1),
    properties=st.lists(st.tuples(text, text), max_size=3),
    removed=st.booleans(),
)
outer = st.builds(
    Outer,
    producer_name=text,
    sequence_id=st.integers(0, 2**64 - 1),
    publish_time=st.integers(0, 2**64 - 1),
    key=st.none() | text,
    codec=st.sampled_from(CODECS),
)
headers = st.fixed_dictionaries(
    {
        "checksum": st.booleans(),
        "broker_metadata": st.none() | st.just(proto((1, 5), (2, 2**64 - 1))),
    }
)


@settings(deadline=None, max_examples=80)
@given(messages=st.lists(sent, max_size=8), outer=outer, headers=headers)
def test_batches_round_trip(messages: list[Sent], outer: Outer, headers: Any):
    """Whatever goes into a batch comes out, but for what compaction removed."""
    entry = decode(builders.batch(messages, outer, **headers))
    kept = [(index, one) for index, one in enumerate(messages) if not one.removed]
    assert list(entry.batch_indexes) == [index for index, _ in kept]
    assert entry.payloads == [one.payload for _, one in kept]
    assert fields_of(entry) == [wanted(one, outer) for _, one in kept]
    assert entry.metadata.producer_name == outer.producer_name
    assert entry.metadata.publish_time == outer.publish_time


@settings(deadline=None, max_examples=100)
@given(one=sent, outer=outer, headers=headers)
def test_singles_round_trip(one: Sent, outer: Outer, headers: Any):
    """Whatever goes into a single message comes out."""
    entry = decode(builders.single(one, outer, **headers))
    assert entry.payloads == [one.payload if one.payload is None else one.wire_payload]
    (found,) = fields_of(entry)
    assert found == {**wanted(one, outer), "sequence_id": outer.sequence_id}


@settings(deadline=None, max_examples=80)
@given(
    removed=st.sets(st.integers(0, 9)),
    count=st.integers(1, 10),
    start=st.integers(-1, 11),
    end=st.integers(-1, 11),
)
def test_between_is_the_plain_definition(
    removed: set[int], count: int, start: int, end: int
):
    """The messages of a range are those whose numbers lie in it."""
    entry = decode(builders.batch(numbered(count, removed=tuple(removed))))
    cut = entry.between(at(7, 3, start), at(7, 3, end))
    assert list(cut.batch_indexes) == [
        index
        for index in range(count)
        if index not in removed and start <= index and (end < 0 or index <= end)
    ]


# -- pieces ----------------------------------------------------------------------------


def stored_at(entry_id: int, data: bytes) -> StoredEntry:
    """An entry, not unpacked."""
    return read_stored_entry(7, entry_id, memoryview(data))


def test_a_large_batch_comes_in_pieces():
    """No more at a time than a table holds, each where it was in its batch."""
    decoder = EntryDecoder(table_rows=10, table_bytes=1000)
    small, large = builders.batch(numbered(4)), builders.batch(numbered(25))
    (first,) = decoder.pieces(stored_at(1, small))
    (second,) = decoder.pieces(stored_at(2, small))
    pieces = list(decoder.pieces(stored_at(3, large)))
    assert first.table is second.table
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    assert {piece.batch_size for piece in pieces} == {25}
    assert [i for piece in pieces for i in piece.batch_indexes] == list(range(25))
    payloads = [payload for piece in pieces for payload in piece.payloads]
    assert payloads == [b"%d" % n for n in range(25)]
    assert len({id(piece.table) for piece in (first, *pieces)}) == 4
    (last,) = decoder.pieces(stored_at(4, small))
    assert last.table is pieces[-1].table


def test_pieces_of_one_message():
    """The least that a table holds."""
    decoder = EntryDecoder(table_rows=1)
    for entry_id in (1, 2):
        pieces = list(decoder.pieces(stored_at(entry_id, builders.batch(numbered(3)))))
        assert [piece.payloads for piece in pieces] == [[b"0"], [b"1"], [b"2"]]


def test_pieces_are_made_one_by_one():
    """What is damaged far behind costs what is before it nothing."""
    payload = builders.batch_payload(numbered(25))[:-1]
    pieces = EntryDecoder(table_rows=10).pieces(stored_at(3, raw_batch(payload, 25)))
    assert len(next(pieces)) == len(next(pieces)) == 10
    with pytest.raises(CorruptEntryError, match=r"24 of 25 .* runs past"):
        next(pieces)


def tables_of(decoder: EntryDecoder, *payload_bytes: int) -> int:
    """Into how many tables entries go that take so many bytes each."""
    tables = []
    for number, size in enumerate(payload_bytes):
        overhead = len(builders.batch_payload([Sent(b"v" * size)])) - size
        data = builders.batch([Sent(b"v" * (size - overhead))])
        tables += [piece.table for piece in decoder.pieces(stored_at(number, data))]
    assert len(tables) == len(payload_bytes)
    return len({id(table) for table in tables})


@pytest.mark.parametrize(("last_bytes", "tables"), [(500, 1), (501, 2)])
def test_a_table_is_filled_to_the_byte(last_bytes: int, tables: int):
    """A new one begins where the next entry would be too much."""
    assert tables_of(EntryDecoder(table_bytes=1000), 500, last_bytes) == tables


def usual_decoder() -> EntryDecoder:
    """One as reads with default options have."""
    usual = range_settings()
    return EntryDecoder(table_rows=usual.table_rows, table_bytes=usual.table_bytes)


def test_a_table_is_filled_to_the_row():
    """Also by entries of one message."""
    decoder = EntryDecoder(table_rows=2)
    found = [
        piece.table
        for number in range(4)
        for piece in decoder.pieces(stored_at(number, builders.single(Sent())))
    ]
    assert found[0] is found[1]
    assert found[2] is found[3]
    assert found[1] is not found[2]


@pytest.mark.parametrize(("more", "tables"), [(0, 1), (1, 2)])
def test_a_table_has_four_mebibytes(more: int, tables: int):
    """Where the options say nothing: a few entries of the default batch size."""
    assert tables_of(usual_decoder(), 1 << 20, (3 << 20) + more) == tables


@pytest.mark.parametrize(("more", "tables"), [(0, 1), (1, 2)])
def test_a_table_has_ten_thousand_rows(more: int, tables: int):
    """Where the options say nothing."""
    decoder = usual_decoder()
    found = [
        piece.table
        for count in (5000, 5000 + more)
        for piece in decoder.pieces(stored_at(1, builders.batch([Sent()] * count)))
    ]
    assert len({id(table) for table in found}) == tables


def test_an_entry_without_messages_is_one_piece():
    """A marker, an empty batch, and one of which compaction left nothing."""
    for data in (
        builders.single(Sent(), Outer(extra=((20, 10),))),
        raw_batch(b"", 0),
        builders.batch(numbered(25, removed=tuple(range(25)))),
    ):
        (piece,) = EntryDecoder(table_rows=10).pieces(stored_at(3, data))
        assert len(piece) == 0


def test_no_table_holds_more_than_its_columns_can_say():
    """Places in them are numbers of 32 bits, whatever a table was to hold."""
    decoder = EntryDecoder(table_rows=10**12, table_bytes=10**12, max_table_bytes=1000)
    small = builders.batch([Sent(b"v" * 594)])
    tables = [
        piece.table
        for number in range(3)
        for piece in decoder.pieces(stored_at(number, small))
    ]
    assert len({id(table) for table in tables}) == 3
    fits = builders.batch([Sent(b"v" * 993)])
    assert len(builders.batch_payload([Sent(b"v" * 993)])) == 1000
    assert len(list(decoder.pieces(stored_at(3, fits)))) == 1
    for data in (
        builders.batch([Sent(b"v" * 500)] * 2),
        builders.single(Sent(b"v" * 1000)),
    ):
        with pytest.raises(CorruptEntryError, match="more than a row can have: 1000"):
            list(decoder.pieces(stored_at(4, data)))


def test_a_chunked_message_is_let_go_while_it_is_unpacked():
    """What it was, compressed, is not held beside what it became."""
    packed = bytearray(builders.compress(builders.ZSTD, b"v" * 1000))
    stored = stored_at(3, builders.single(Sent(b"v" * 1000), Outer(codec=3)))
    stored = replace(stored, payload=memoryview(packed), first_chunk=(7, 1))
    pieces = EntryDecoder().pieces(stored)
    del stored
    piece = next(pieces)
    packed.clear()  # refused while anybody has a view of it
    assert piece.payloads == [b"v" * 1000]


# -- large metadata --------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 3000])
def test_many_properties_of_a_single(count: int):
    """As many as there are, of each name the last, however large the metadata is."""
    pairs = [(f"name-{n % (count - 3)}", str(n)) for n in range(count)]
    stored = stored_at(3, builders.single(Sent(b"v", key="k", properties=pairs)))
    assert bool(stored.properties) == (count == 3000)
    assert (len(stored.metadata.properties) == 0) == (count == 3000)
    (fields,) = fields_of(decode_entry(stored))
    assert fields["properties"] == dict(pairs)
    assert fields["partition_key"] == "k"


def test_large_metadata_that_is_none():
    """It is corrupt as small metadata is."""
    data = Outer().metadata() + b"\x22\x00" * 10_000
    assert len(decode(builders.with_headers(data, b"x"))) == 1
    refused(builders.with_headers(data + b"\x22\x05", b"x"), "metadata is damaged")


def test_limits_of_metadata_grow_with_the_memory_limit():
    """And what any frame may hold is always taken."""
    few, many = MessageTable(), MessageTable()
    EntryDecoder(1 << 20, few)
    EntryDecoder(1 << 30, many)
    assert (few.max_head_bytes, few.max_pairs) == ((5 << 20) + (1 << 16), 1 << 16)
    assert (many.max_head_bytes, many.max_pairs) == (1 << 28, 1 << 22)
    EntryDecoder(1 << 40, many)
    assert many.max_head_bytes == many.max_pairs == 2**31 - 1


@pytest.mark.parametrize(("count", "is_chunk"), [(0, False), (1, False), (2, True)])
def test_chunks(count: int, is_chunk: bool):
    """A message that was cut into one piece is whole."""
    stored = stored_at(3, builders.chunk(b"x", 0, count, 1))
    assert stored.position == (7, 3)
    assert stored.is_chunk == is_chunk


# -- what an entry says of its rows ----------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (builders.single(Sent()), 1),
        (builders.batch(numbered(5)), 5),
        (raw_batch(b"x" * 60, 2**31 - 1), 10),
        (raw_batch(b"x" * 60, 3), 3),
        (raw_batch(b"", 2**31 - 1), 1),
        (raw_batch(b"x" * 60, 0), 1),
        (raw_batch(b"x" * 60, -5), 1),
        (raw_batch(b"x" * 60, 2**31 - 1, (8, 3), (9, 600)), 100),
        (raw_batch(b"x" * 6, 2**31 - 1, (8, 3), (9, 2**32 - 1)), 1 << 15),
        (builders.chunk(b"x", 0, 4, 4), 0.25),
        (builders.chunk(b"x", 0, 2, 2), 0.5),
    ],
)
def test_likely_rows(data: bytes, rows: float):
    """As many as its bytes can hold at most, whatever it says."""
    assert stored_at(3, data).likely_rows == rows


# -- entries that came together --------------------------------------------------------


def together(*entries: bytes, redelivery_count: int | None = None) -> Deliveries:
    """Entries at 7:0 and so on, as they come together."""
    frames = []
    for number, entry in enumerate(entries):
        place = proto((1, 7), (2, number))
        body = (1, 1), (2, place), (3, redelivery_count)
        frames.append(builders.frame(builders.command(builders.MESSAGE, *body), entry))
    data, scanner = b"".join(frames), Scanner()
    count = scanner.scan(data, 0, len(data), 1 << 20, {1})
    assert count == len(entries)
    return Deliveries(1, data, scanner.facts(count), count)


STAMP = proto((1, 5), (2, 41))


def some_entries() -> list[bytes]:
    """Of some kinds; the third one has no messages left."""
    return [
        builders.batch(numbered(3)),
        builders.single(Sent(b"one", key="k"), broker_metadata=STAMP),
        builders.batch(numbered(2, removed=(0, 1))),
        builders.single(Sent(None), Outer(producer_name="other")),
        builders.batch(numbered(4, removed=(1,)), Outer(codec=builders.ZSTD)),
    ]


def test_entries_in_a_run():
    """Each is what it is by itself, but for the table that it is in."""
    entries = some_entries()
    came = together(*entries, redelivery_count=2)
    run = EntryDecoder().take(came, 0, 5)
    assert run is not None
    assert (run.first, run.last, run.first_row, run.last_row) == (0, 5, 0, 8)
    assert [run.end_of(number) for number in range(5)] == [3, 4, 4, 5, 8]
    assert len(run) == 8
    assert len(run.entries) == 4
    alone = [
        decode_entry(
            read_stored_entry(7, number, memoryview(entry), redelivery_count=2)
        )
        for number, entry in enumerate(entries)
    ]
    assert run.size_bytes == sum(one.size_bytes for one in alone)
    for number, wanted in enumerate(alone):
        found = run.entry(number)
        assert found.table is run.table
        assert len(found) == len(wanted)
        assert fields_of(found) == fields_of(wanted)
        for name in (
            *("position", "metadata", "batch_size", "payloads", "broker_metadata"),
            *("redelivery_count", "first_chunk", "size_bytes", "batch_indexes"),
        ):
            assert getattr(found, name) == getattr(wanted, name)
    assert run.entry(1).broker_metadata is not None
    assert run.entries == [run.entry(number) for number in (0, 1, 3, 4)]


def test_a_part_of_a_run():
    """It has the rows of its entries."""
    run = EntryDecoder().take(together(*some_entries()), 0, 5)
    assert run is not None
    for first, last, rows in (
        (0, 5, (0, 8)),
        (0, 1, (0, 3)),
        (1, 2, (3, 4)),
        (1, 4, (3, 5)),
        (2, 3, (4, 4)),
        (4, 5, (5, 8)),
    ):
        part = run.part(first, last)
        assert (part.first_row, part.last_row) == rows
        assert len(part) == rows[1] - rows[0]
        assert part.size_bytes == run.table.size_bytes(*rows)
        assert part.entries == [
            entry for entry in run.entries if first <= entry.entry_id < last
        ]
        assert part.part(first, last) == part


def test_runs_fill_tables():
    """One after the other; each run is in one table."""
    came = together(*[builders.batch(numbered(4))] * 6)
    decoder = EntryDecoder(table_rows=10)
    runs = []
    first = 0
    while first < 6:
        run = decoder.take(came, first, 6 if first else 1)
        assert run is not None
        runs.append(run)
        first = run.last
    assert [(run.first, run.last, run.first_row, run.last_row) for run in runs] == [
        (0, 1, 0, 4),
        (1, 2, 4, 8),
        (2, 4, 0, 8),
        (4, 6, 0, 8),
    ]
    assert runs[0].table is runs[1].table
    assert len({id(run.table) for run in runs}) == 3
    # What comes by itself goes on in the last table, if it has room.
    (entry,) = decoder.pieces(stored_at(9, builders.batch(numbered(2))))
    assert entry.table is runs[-1].table
    assert (entry.first_row, entry.last_row) == (8, 10)


def test_a_run_fills_a_table_to_the_byte():
    """As entries by themselves do."""
    size = len(builders.batch_payload([Sent(b"v" * 100)]))
    came = together(*[builders.batch([Sent(b"v" * 100)])] * 5)
    for table_bytes, last in ((3 * size, 3), (3 * size - 1, 2)):
        run = EntryDecoder(table_bytes=table_bytes).take(came, 0, 5)
        assert run is not None
        assert run.last == last


@pytest.mark.parametrize(
    "entry",
    [
        builders.batch(numbered(11)),
        builders.batch(numbered(2))[:-1] + b"?",
        builders.single(Sent(bytes(70_000)), Outer(codec=builders.ZSTD)),
        raw_batch(builders.batch_payload(numbered(2)), 3),
    ],
)
def test_entries_that_are_taken_by_themselves(entry: bytes):
    """One that no table has room for, or that somebody has to say more about."""
    small = builders.batch(numbered(4))
    came = together(small, entry, small)
    decoder = EntryDecoder(max_bytes=60_000, table_rows=10)
    run = decoder.take(came, 0, 3)
    assert run is not None
    assert run.last == 1
    assert decoder.take(came, 1, 3) is None
    following = decoder.take(came, 2, 3)
    assert following is not None
    assert following.table is run.table
    assert following.first_row == 4
    assert EntryDecoder(max_bytes=60_000, table_rows=10).take(came, 1, 3) is None


def test_the_largest_payload_of_a_run():
    """It is what the memory limit allows, as for an entry by itself."""
    came = together(builders.single(Sent(bytes(5000)), Outer(codec=builders.ZSTD)))
    assert EntryDecoder(max_bytes=5000).take(came, 0, 1) is not None
    assert EntryDecoder(max_bytes=4999).take(came, 0, 1) is None
