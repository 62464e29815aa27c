# SPDX-License-Identifier: Apache-2.0
"""Entries to RecordBatches: each column, the bounds, and values that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow import message_columns, sources
from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.message_id import MessageId, decode_message_id, encode_message_id
from pulsar_spark.wire.chunks import ChunkAssembler
from pulsar_spark.wire.entries import (
    Entry,
    EntryDecoder,
    StoredEntry,
    read_stored_entry,
)
from tests.support.entries import decode_entry
from tests.wire import builders, test_golden
from tests.wire.builders import U64_MAX, Outer, Sent, proto

ALL = tuple(COLUMN_TYPES)
TOPIC = "persistent://public/default/t-partition-3"
MAX_MS = (2**63 - 1) // 1000


def entry(
    data: bytes, *, entry_id: int = 3, ledger_id: int = 7, redelivery_count: int = 0
) -> Entry:
    """A decoded entry."""
    return decode_entry(
        read_stored_entry(
            ledger_id, entry_id, memoryview(data), redelivery_count=redelivery_count
        )
    )


def batch(count: int, entry_id: int = 3, size: int = 4) -> Entry:
    """A batch of payloads that say where they are."""
    sent = [Sent((b"%d.%d" % (entry_id, n)).ljust(size)) for n in range(count)]
    return entry(builders.batch(sent), entry_id=entry_id)


def builder(
    columns: Sequence[str] = ALL,
    *,
    partition: int = 3,
    max_rows: int = 1000,
    max_bytes: int = 1 << 20,
) -> RecordBatchBuilder:
    """A builder."""
    return RecordBatchBuilder(
        arrow_schema(columns),
        COLUMN_SOURCES,
        TOPIC,
        partition,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )


def record_batches(
    entries: Sequence[Entry], columns: Sequence[str] = ALL, **how: Any
) -> list[pa.RecordBatch]:
    """All RecordBatches of some entries, each found valid."""
    build = builder(columns, **how)
    found = [one for entry in entries for one in build.add(entry)]
    if build.rows:
        found.append(build.finish())
    for one in found:
        one.validate(full=True)
        assert one.schema == arrow_schema(columns)
        assert one.num_rows
    return found


def column(name: str, *entries: Entry, **how: Any) -> list[Any]:
    """The values of one column."""
    values = [
        value
        for one in record_batches(entries, [name], **how)
        for value in one.column(0).to_pylist()
    ]
    if name == "__messageId":
        positions = column("__position", *entries, **how)
        assert positions == [place_of(decode_message_id(id_)) for id_ in values]
    return values


def place_of(id_: MessageId) -> dict[str, int]:
    """What `__position` has of a message id."""
    return {
        "ledgerId": id_.ledger_id,
        "entryId": id_.entry_id,
        "batchIndex": id_.batch_index,
    }


def at(ms: int) -> datetime:
    """A time in UTC."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


# -- each column -----------------------------------------------------------------------


def test_value():
    """Null, empty and other payloads."""
    sent = [Sent(None), Sent(b""), Sent(b"\x00\xff")]
    assert column("value", entry(builders.batch(sent))) == [None, b"", b"\x00\xff"]


def test_key():
    """Text is UTF-8; a key in base64 is the bytes that it stands for."""
    keys = [None, "", "größe", b"\x00\xff"]
    found = column("__key", entry(builders.batch([Sent(key=key) for key in keys])))
    assert found == [None, b"", "größe".encode(), b"\x00\xff"]


def test_topic_and_partition():
    """The same in every row; a topic without partitions has no number."""
    assert column("__topic", batch(3)) == [TOPIC] * 3
    assert column("__partition", batch(2)) == [3, 3]
    assert column("__partition", batch(2), partition=0) == [0, 0]
    assert column("__partition", batch(2), partition=-1) == [None, None]


def test_times():
    """Publish time is the entry's, event time the message's, to the millisecond."""
    sent = [Sent(event_time=1_700_000_000_123), Sent(), Sent(event_time=MAX_MS)]
    found = entry(builders.batch(sent, Outer(publish_time=1_600_000_000_001)))
    assert column("__publishTime", found) == [at(1_600_000_000_001)] * 3
    (one,) = record_batches([found], ["__eventTime"])
    ms = one.column(0).cast(pa.int64()).to_pylist()
    assert ms == [1_700_000_000_123_000, None, MAX_MS * 1000]


def test_properties():
    """Always a map; of a key that came twice the last value counts."""
    sent = [
        Sent(),
        Sent(properties=[("a", "1"), ("ä", ""), ("", "x")]),
        Sent(properties=[("a", "1"), ("b", "2"), ("a", "3")]),
    ]
    found = column("__messageProperties", entry(builders.batch(sent)))
    assert [dict(one) for one in found] == [
        {},
        {"a": "1", "ä": "", "": "x"},
        {"a": "3", "b": "2"},
    ]
    assert [len(one) for one in found] == [0, 3, 2]


def test_ordering_key():
    """Bytes; empty is not absent."""
    sent = [Sent(ordering_key=key) for key in (None, b"", b"o")]
    assert column("__orderingKey", entry(builders.batch(sent))) == [None, b"", b"o"]


def test_producer_name():
    """The entry's."""
    outer = Outer(producer_name="größe")
    assert (
        column("__producerName", entry(builders.batch([Sent()] * 2, outer)))
        == ["größe"] * 2
    )


def test_sequence_id():
    """Unsigned on the wire, signed in Spark; the entry's where a message has none."""
    numbers = [0, 5, 2**63 - 1, 2**63, U64_MAX, None]
    sent = [Sent(sequence_id=number) for number in numbers]
    found = entry(builders.batch(sent, Outer(sequence_id=9)))
    assert column("__sequenceId", found) == [0, 5, 2**63 - 1, -(2**63), -1, 9]


@pytest.mark.parametrize(
    ("version", "number"),
    [
        (None, None),
        (b"", None),
        ((5).to_bytes(8, "big"), 5),
        (b"\xff" * 8, -1),
        ((7).to_bytes(8, "big") + bytes(56), 7),
        (b"\x02", 2),
    ],
)
def test_schema_version(version: bytes | None, number: int | None):
    """Eight bytes, big-endian; of the older form of 64 the first eight."""
    extra = ((16, version),) if version is not None else ()
    outer = Outer(extra=extra)
    assert column("__schemaVersion", entry(builders.single(Sent(), outer))) == [number]


def test_redelivery_count():
    """The entry's."""
    found = entry(builders.batch([Sent()] * 2), redelivery_count=4)
    assert column("__redeliveryCount", found) == [4, 4]


@pytest.mark.parametrize(
    ("removed", "numbers"),
    [((), [38, 39, 40, 41]), ((0, 2), [39, 41]), ((3,), [38, 39, 40])],
)
def test_index(removed: tuple[int, ...], numbers: list[int]):
    """The broker numbers an entry's last message; the others count back from it."""
    sent = [Sent(removed=n in removed) for n in range(4)]
    broker = proto((1, 1_700_000_000_000), (2, 41))
    found = entry(builders.batch(sent, broker_metadata=broker))
    assert column("__index", found) == numbers
    assert column("__brokerPublishTime", found) == [at(1_700_000_000_000)] * len(
        numbers
    )
    single = entry(builders.single(Sent(), broker_metadata=broker))
    assert column("__index", single) == [41]


@pytest.mark.parametrize("broker", [None, b""])
def test_no_broker_metadata(broker: bytes | None):
    """Without it, or with nothing in it, both of its columns are null."""
    found = entry(builders.batch([Sent()] * 2, broker_metadata=broker))
    assert column("__index", found) == [None, None]
    assert column("__brokerPublishTime", found) == [None, None]


def test_index_of_a_cut_batch():
    """A cut does not renumber."""
    broker = proto((2, 41))
    found = entry(builders.batch([Sent()] * 4, broker_metadata=broker)).cut(1, 3)
    assert column("__index", found) == [39, 40]


def test_replication_and_delay():
    """Null unless the entry says so; a time may lie before 1970."""
    outer = Outer(extra=((5, "us-west"), (19, -1000)))
    found = entry(builders.single(Sent(), outer))
    assert column("__replicatedFrom", found) == ["us-west"]
    assert column("__deliverAtTime", found) == [at(-1000)]
    plain = entry(builders.single(Sent()))
    assert column("__replicatedFrom", plain) == [None]
    assert column("__deliverAtTime", plain) == [None]


# -- message ids -----------------------------------------------------------------------


@pytest.mark.parametrize("partition", [-1, 0, 3, 300])
@pytest.mark.parametrize("count", [1, 3, 200])
def test_message_ids_of_batches(partition: int, count: int):
    """The bytes that Java's toByteArray gives, for each message of a batch."""
    found = column("__messageId", batch(count), partition=partition)
    ids = [MessageId(7, 3, n, partition, count) for n in range(count)]
    assert found == [encode_message_id(one, java=True) for one in ids]
    assert [decode_message_id(data) for data in found] == ids


@pytest.mark.parametrize("partition", [-1, 3])
@pytest.mark.parametrize(
    ("ledger_id", "entry_id"), [(0, 0), (7, 3), (128, 300), (2**63 - 1, 2**63 - 1)]
)
def test_message_ids_of_singles(partition: int, ledger_id: int, entry_id: int):
    """A single message's id has no index."""
    one = entry(builders.single(Sent()), ledger_id=ledger_id, entry_id=entry_id)
    expected = MessageId(ledger_id, entry_id, partition=partition)
    assert column("__messageId", one, partition=partition) == [
        encode_message_id(expected, java=True)
    ]


def test_message_ids_keep_the_numbers_of_the_batch():
    """Removed messages and cuts leave the index and the size as they were written."""
    sent = [Sent(removed=n in (0, 2)) for n in range(6)]
    found = entry(builders.batch(sent)).cut(1, 3)
    ids = [decode_message_id(data) for data in column("__messageId", found)]
    assert [(one.batch_index, one.batch_size) for one in ids] == [(3, 6), (4, 6)]


@pytest.mark.parametrize("count", [10_000, 10_001, 2**31 - 1])
def test_message_ids_of_huge_batches(count: int):
    """How large a compacted batch says it was costs nothing."""
    payload = builders.batch_payload([Sent(), Sent()])
    metadata = Outer().metadata((11, count), (31, 1), (31, count - 1))
    found = entry(builders.with_headers(metadata, payload))
    ids = [decode_message_id(data) for data in column("__messageId", found)]
    assert [one.batch_index for one in ids] == [1, count - 1]
    assert {one.batch_size for one in ids} == {count}


def test_message_ids_of_a_large_batch():
    """A batch may really be larger than what clients make by default."""
    found = column("__messageId", batch(12_000), max_rows=20_000)
    ids = [MessageId(7, 3, n, 3, 12_000) for n in range(12_000)]
    assert found == [encode_message_id(one, java=True) for one in ids]


def test_message_id_of_chunks():
    """A chunked message's id is its last chunk's and carries the first chunk's."""
    chunks = ChunkAssembler(100, max_pending=10, expire_ms=0)
    whole = None
    for index in range(2):
        data = builders.chunk(b"x", index, 2, 2)
        whole = chunks.add(read_stored_entry(7, 10 + index, memoryview(data)))
    expected = MessageId(7, 11, partition=3, first_chunk=MessageId(7, 10, partition=3))
    assert column("__messageId", decode_entry(whole)) == [  # type: ignore[arg-type]
        encode_message_id(expected, java=True)
    ]


@pytest.mark.parametrize("name", test_golden.NAMES)
def test_golden_rows(name: str):
    """Captured entries become the rows that the Java client read, ids included."""
    rows = [
        row
        for one in record_batches(test_golden.entries(name), partition=-1)
        for row in one.to_pylist()
    ]
    expected = test_golden.expected(name)
    assert len(rows) == len(expected)
    for ours, its in zip(rows, expected, strict=True):
        for field in ("value", "__key", "__orderingKey", "__messageId"):
            assert ours[field] == (its[field] and bytes.fromhex(its[field])) or (
                its[field] == "" and ours[field] == b""
            )
        for field in ("__publishTime", "__eventTime", "__brokerPublishTime"):
            assert ours[field] == (None if its[field] is None else at(its[field]))
        for field in ("__producerName", "__sequenceId", "__index"):
            assert ours[field] == its[field]
        assert dict(ours["__messageProperties"]) == its["__messageProperties"]
        assert ours["__partition"] is None
        id_ = decode_message_id(bytes.fromhex(its["__messageId"]))
        assert ours["__position"] == place_of(id_)


# -- bounds ----------------------------------------------------------------------------


def values(found: Sequence[pa.RecordBatch]) -> list[bytes]:
    """The payloads, over all RecordBatches."""
    return [value.strip() for one in found for value in one["value"].to_pylist()]


def in_order(*counts: int) -> list[bytes]:
    """The payloads that ``batch`` gives entries of so many messages."""
    return [b"%d.%d" % (n, i) for n, count in enumerate(counts) for i in range(count)]


@pytest.mark.parametrize("max_rows", [1, 2, 3, 7, 10, 100])
def test_rows(max_rows: int):
    """No RecordBatch has more rows than allowed; entries are cut; order stays."""
    counts = 5, 1, 20, 3
    entries = [batch(count, n) for n, count in enumerate(counts)]
    found = record_batches(entries, max_rows=max_rows)
    assert max(one.num_rows for one in found) <= max_rows
    assert values(found) == in_order(*counts)


def test_entries_are_not_cut_without_need():
    """An entry that does not fit any more waits for the next RecordBatch, whole."""
    entries = [batch(4, n) for n in range(5)]
    found = record_batches(entries, max_rows=10)
    assert [one.num_rows for one in found] == [8, 8, 4]


@pytest.mark.parametrize("max_bytes", [1, 500, 1500, 5000])
def test_bytes(max_bytes: int):
    """No RecordBatch has more bytes than allowed, but for one larger message alone."""
    sizes = 100, 900, 10, 2000
    entries = [batch(4, n, size) for n, size in enumerate(sizes)]
    found = record_batches(entries, max_bytes=max_bytes)
    for one in found:
        size = sum(len(value) for value in one["value"].to_pylist())
        assert size <= max_bytes or one.num_rows == 1
    assert values(found) == in_order(4, 4, 4, 4)


def test_a_huge_message():
    """A message beyond the bound is a RecordBatch of its own, among small ones."""
    small, huge = Sent(b"s" * 10), Sent(b"h" * 10_000)
    entries = [
        entry(builders.batch([small, small])),
        entry(builders.single(huge)),
        entry(builders.batch([small, huge, small])),
    ]
    found = record_batches(entries, max_bytes=1000)
    sizes = [[len(value) for value in one["value"].to_pylist()] for one in found]
    assert sizes == [[10, 10], [10_000], [10], [10_000], [10]]


@pytest.mark.parametrize("batched", [False, True])
def test_properties_count(batched: bool):
    """Bytes are not those of payloads alone: properties weigh, too."""
    heavy = Sent(b"", properties=[("p", "x" * 1000)])
    entries = [
        entry(builders.batch([heavy] * 8) if batched else builders.single(heavy))
        for _ in range(1 if batched else 8)
    ]
    found = record_batches(entries, max_bytes=2500)
    assert max(one.num_rows for one in found) == 2
    assert sum(one.num_rows for one in found) == 8


@settings(deadline=None, max_examples=100)
@given(
    entries=st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=6),
    max_rows=st.integers(1, 12),
    max_bytes=st.integers(1, 1000),
)
def test_bounds_of_anything(entries: list[list[int]], max_rows: int, max_bytes: int):
    """Rows come out complete and in order, in RecordBatches within the bounds."""
    payloads = [
        [b"%d.%d." % (n, i) + b"x" * size for i, size in enumerate(sizes)]
        for n, sizes in enumerate(entries)
    ]
    decoded = [entry(builders.batch([Sent(p) for p in part])) for part in payloads]
    found = record_batches(decoded, ["value"], max_rows=max_rows, max_bytes=max_bytes)
    assert values(found) == [payload for part in payloads for payload in part]
    for one in found:
        size = sum(len(value) for value in one["value"].to_pylist())
        assert one.num_rows <= max_rows
        assert size <= max_bytes or one.num_rows == 1


# -- builder ---------------------------------------------------------------------------


def test_finish_empties():
    """What was given back is not given back again."""
    build = builder()
    assert list(build.add(batch(3))) == []
    assert build.rows == 3
    assert build.finish().num_rows == 3
    assert build.rows == 0
    empty = build.finish()
    empty.validate(full=True)
    assert (empty.num_rows, empty.schema) == (0, arrow_schema(ALL))


def test_entries_without_messages():
    """Markers and emptied batches add nothing, not even an empty RecordBatch."""
    marker = entry(builders.single(Sent(), Outer(extra=((20, 21),))))
    emptied = entry(builders.batch([Sent(removed=True)] * 2))
    assert record_batches([marker, emptied]) == []
    assert values(record_batches([marker, batch(1), emptied, batch(2, 1)])) == [
        b"3.0",
        b"1.0",
        b"1.1",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        ["value", "__topic", "__messageId", "__publishTime"],
        ["__key", "__eventTime"],
        ["__sequenceId"],
        ["__messageProperties", "__orderingKey"],
    ],
)
def test_projection(columns: list[str]):
    """There are the columns that were asked for, and no others."""
    build = builder(columns)
    assert list(build.add(batch(2))) == []
    one = build.finish()
    one.validate(full=True)
    assert one.schema.names == columns
    assert one.num_rows == 2


@st.composite
def stored_entries(draw: st.DrawFn) -> list[bytes]:
    """Batches and single messages, of which some columns have nothing."""
    message = st.builds(
        Sent,
        payload=st.none() | st.binary(max_size=20),
        key=st.none() | st.text(max_size=3) | st.binary(min_size=1, max_size=3),
        ordering_key=st.none() | st.binary(max_size=3),
        event_time=st.none() | st.integers(1, 10**12),
        properties=st.lists(st.tuples(st.text(max_size=2), st.text(max_size=2))),
        removed=st.booleans(),
    )
    batches = st.builds(builders.batch, st.lists(message, min_size=1, max_size=6))
    singles = st.builds(builders.single, message)
    return draw(st.lists(batches | singles, min_size=1, max_size=12))


@settings(max_examples=80, deadline=None)
@given(
    entries=stored_entries(),
    cuts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=12),
    columns=st.lists(st.sampled_from(ALL), min_size=1, unique=True),
    table_rows=st.integers(1, 20),
    table_bytes=st.integers(1, 300),
    max_rows=st.integers(1, 20),
    max_bytes=st.integers(1, 300),
)
def test_tables_do_not_show(
    entries: list[bytes],
    cuts: list[tuple[int, int]],
    columns: list[str],
    table_rows: int,
    table_bytes: int,
    max_rows: int,
    max_bytes: int,
):
    """However entries share tables, and tables RecordBatches, the rows are the same."""
    decoder = EntryDecoder(
        table=builder(columns).new_table(),
        table_rows=table_rows,
        table_bytes=table_bytes,
    )

    def decoded(pieces: Callable[[StoredEntry], Iterable[Entry]]) -> Iterator[Entry]:
        for number, (data, (first, last)) in enumerate(
            zip(entries, cuts, strict=False)
        ):
            for piece in pieces(read_stored_entry(7, number, memoryview(data))):
                size = len(piece)
                yield piece.cut(min(max(first, 0), size), min(max(last, 0), size))
                first, last = first - size, last - size

    shared = record_batches(
        list(decoded(decoder.pieces)), columns, max_rows=max_rows, max_bytes=max_bytes
    )
    apart = record_batches(
        list(decoded(lambda stored: [decode_entry(stored)])), columns
    )
    assert [row for one in shared for row in one.to_pylist()] == [
        row for one in apart for row in one.to_pylist()
    ]


def test_a_record_batch_of_one_table_is_not_copied():
    """Its values lie where the kernel wrote them."""
    decoder = EntryDecoder(table=builder(["value"]).new_table())
    entries = [
        piece
        for number in range(5)
        for piece in decoder.pieces(
            read_stored_entry(7, number, memoryview(builders.batch([Sent(b"v")] * 9)))
        )
    ]
    (one,) = record_batches(entries, ["value"])
    written = entries[0].table.values
    assert written is not None
    assert one["value"].buffers()[2].address == pa.py_buffer(written.data).address


def test_required_columns():
    """The schema of a RecordBatch is the one that was asked for, NOT NULL included."""
    schema = pa.schema(
        [
            pa.field("__topic", pa.string(), nullable=False),
            pa.field("value", pa.binary()),
        ]
    )
    build = RecordBatchBuilder(
        schema, COLUMN_SOURCES, TOPIC, 3, max_rows=10, max_bytes=1000
    )
    list(build.add(batch(2)))
    one = build.finish()
    one.validate(full=True)
    assert one.schema == schema


# -- what does not fit -----------------------------------------------------------------


def misfit(name: str, data: bytes, match: str) -> None:
    """Checks that a value in the second of three entries is told of as such."""
    for others in (batch(3, 1), entry(builders.single(Sent()), entry_id=1)):
        build = builder([name])
        list(build.add(others))
        list(build.add(entry(data, entry_id=2)))
        list(build.add(batch(2, 9)))
        with pytest.raises(CorruptEntryError, match=match) as caught:
            build.finish()
        assert caught.value.message_id == "7:2"
        assert caught.value.topic_partition == TOPIC
        assert name in caught.value.message
        assert "metadataColumns" in caught.value.message


@pytest.mark.parametrize("time_ms", [MAX_MS + 1, 2**63 - 1, 2**63, U64_MAX])
def test_times_out_of_range(time_ms: int):
    """A time that Spark cannot hold is an error that names its message."""
    sent = [Sent(), Sent(event_time=time_ms)]
    misfit("__eventTime", builders.batch(sent), "timestamp")
    outer = Outer(publish_time=time_ms)
    misfit("__publishTime", builders.single(Sent(), outer), "timestamp")
    broker = proto((1, time_ms))
    misfit(
        "__brokerPublishTime",
        builders.single(Sent(), broker_metadata=broker),
        "timestamp",
    )


@pytest.mark.parametrize("time_ms", [MAX_MS + 1, -MAX_MS - 1, 2**63 - 1, -(2**63)])
def test_delays_out_of_range(time_ms: int):
    """The same on both sides, for the one time that may be negative."""
    outer = Outer(extra=((19, time_ms),))
    misfit("__deliverAtTime", builders.single(Sent(), outer), "timestamp")


def test_indexes_out_of_range():
    """The same for the broker's index."""
    broker = proto((2, U64_MAX))
    misfit("__index", builders.single(Sent(), broker_metadata=broker), "int64")


@pytest.mark.parametrize("key", ["a", "a$==", "ä===", "AAA", "=AAA", b"\xff\xfe"])
def test_bad_base64(key: str | bytes):
    """A key that is marked as base64 and is none is an error, no other key."""
    bad = builders.sized(proto((2, key), (3, 0), (6, 1)))
    good = builders.batch_payload([Sent(), Sent(key=b"k")])
    data = builders.with_headers(Outer().metadata((11, 3)), good + bad)
    misfit("__key", data, "does not fit binary")
    assert column("value", entry(data)) == [b"payload", b"payload", b""]
    if isinstance(key, str):
        metadata = Outer().metadata((6, key), (17, 1))
        misfit("__key", builders.with_headers(metadata, b"x"), "does not fit binary")


NO_TEXT = b"\xff\xfe"


@pytest.mark.skipif(
    api_implementation.Type() == "python", reason="its parser refuses the entry"
)
class TestTextThatIsNotUtf8:
    """The usual protobuf runtime lets such text pass; Arrow, and we, do not."""

    def test_entry(self):
        """Names of producers and clusters."""
        for number, name in ((1, "__producerName"), (5, "__replicatedFrom")):
            outer = Outer(extra=((number, NO_TEXT),))
            misfit(name, builders.single(Sent(), outer), "utf8")

    @pytest.mark.parametrize("pair", [("k", NO_TEXT), (NO_TEXT, "v")])
    def test_properties(self, pair: tuple[Any, Any]):
        """Keys and values; the message is the right one among others with some."""
        good = (4, proto((1, "a"), (2, "b")))
        bad = (4, proto((1, pair[0]), (2, pair[1])))
        data = builders.with_headers(Outer().metadata(good, bad), b"x")
        misfit("__messageProperties", data, "UTF8")

    def test_keys(self):
        """A key is bytes in Spark, so it is kept as it is."""
        metadata = Outer().metadata((6, NO_TEXT))
        found = entry(builders.with_headers(metadata, b"x"))
        assert column("__key", found) == [NO_TEXT]


@pytest.mark.parametrize(
    "error", [pa.lib.ArrowMemoryError, pa.lib.ArrowCancelled, MemoryError]
)
@pytest.mark.parametrize("name", ["__eventTime", "__redeliveryCount"])
def test_no_message_is_to_blame(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    """Where memory is short, or a user interrupts, that is what is said."""

    def fail(*_: Any) -> None:
        raise error("malloc of size 64 failed")

    build = builder([name])
    list(build.add(batch(3, 1)))
    for module, function in ((message_columns, "_times"), (sources, "_arrow")):
        monkeypatch.setattr(module, function, fail)
    with pytest.raises(error, match="malloc"):
        build.finish()


def test_a_full_record_batch_does_not_wait_for_the_next_entry():
    """What comes next may be as large: both together are more than was asked for."""
    build = builder(["value"], max_rows=10, max_bytes=1000)
    (rows,) = build.add(batch(10))
    assert (rows.num_rows, build.rows) == (10, 0)
    (large,) = build.add(entry(builders.single(Sent(b"v" * 2000))))
    assert (large.num_rows, build.rows) == (1, 0)


def test_long_names_count_for_each_row_that_repeats_them():
    """An entry of few bytes may become gigabytes by the name of its producer."""
    outer = Outer(producer_name="p" * 5000, extra=((5, "c" * 5000),))
    data = builders.batch([Sent(b"x")] * 50, outer)
    for columns, most in (
        (["__producerName", "__replicatedFrom"], 2),
        (["__producerName"], 4),
        (["value"], 50),
    ):
        found = record_batches([entry(data)], columns, max_bytes=20_000)
        assert max(one.num_rows for one in found) <= most
        assert sum(one.num_rows for one in found) == 50
    short = builders.batch([Sent(b"x")] * 50, Outer(producer_name="p" * 100))
    assert len(record_batches([entry(short)], ["__producerName"], max_bytes=900)) == 1
