# SPDX-License-Identifier: Apache-2.0
"""How the rows of one topic partition become entries. Nothing is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.client.producing.states import Registration, Shared, TopicProducer
from pulsar_spark.errors import IdempotenceError, MessageTooLargeError
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.target import Target
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, split_entry

TOPIC = "persistent://public/default/t-partition-0"
P = "pulsar.producer."
#: A micro-batch, and a row, in sequence ids; the rest is the digest of rows.
BATCH, ROW = 1 << 47, 1 << 16
IDEMPOTENT = {"deliveryGuarantee": "idempotent", "idempotenceId": "job"}


def target(
    last_sequence_id: int = -1,
    limit: int = 1 << 20,
    *,
    batch_id: int = 0,
    txn: TxnId | None = None,
    **options: str,
) -> Target:
    """A target whose producer attached to a broker that knew this number."""
    given = {"service.url": "pulsar://nowhere:6650", "topic": "t", **options}
    producer = TopicProducer(TOPIC, "name", Shared())
    producer.registration = Registration(
        "name", last_sequence_id, max_message_size_bytes=limit
    )
    return Target(
        producer,
        parse_write_options(given, streaming=False),
        batch_id=batch_id,
        txn=txn,
    )


def encoded(
    values: Iterable[bytes], **columns: Sequence[Any] | pa.Array
) -> EncodedRows:
    """Rows as the encoder of a task makes them."""
    batch = pa.record_batch({"value": list(values), **columns})
    return RowEncoder(batch.schema).encode(batch)


class Entry(NamedTuple):
    """What is in a frame."""

    ids: tuple[int, int]
    rows: int
    metadata: pb.MessageMetadata
    payload: bytes


def entry(frame: SendFrame) -> Entry:
    """Read a frame back."""
    reader = FrameReader()
    reader.receive_data(frame.data)
    read = reader.next_frame()
    assert read is not None
    parts = split_entry(read.payload)
    metadata = pb.MessageMetadata.FromString(bytes(parts.metadata))
    ids = frame.sequence_id, frame.highest_sequence_id
    return Entry(ids, frame.rows, metadata, bytes(parts.payload))


def entries(one: Target, rows: EncodedRows, first: int = 0) -> list[Entry]:
    """All rows, and what is left of them at the end."""
    numbers = range(first, first + len(rows))
    frames = flat(one.add(rows, numbers, 0, len(rows)), one.finish())
    return [entry(frame) for frame in frames]


def flat(*frames: Iterable[list[SendFrame]]) -> list[SendFrame]:
    """Frames that came some at a time."""
    return [frame for one in frames for some in one for frame in some]


def ids(found: Iterable[Entry]) -> list[tuple[int, int]]:
    """Lowest and highest sequence id of each entry."""
    return [one.ids for one in found]


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "known", "first"),
    [
        ({}, -1, 0),
        ({}, 41, 42),
        ({P + "initialSequenceId": "100"}, -1, 101),
        ({P + "initialSequenceId": "100"}, 150, 151),
    ],
    ids=["new", "goes on", "as told", "as told before"],
)
def test_numbers_go_up(options: dict[str, str], known: int, first: int) -> None:
    """From the last one that the broker knew, or from the option; rows have no say."""
    one = target(known, **options, **{P + "batchingMaxMessages": "2"})
    found = entries(one, encoded([b"a"] * 5), first=1000)
    assert ids(found) == [
        (first, first + 1),
        (first + 2, first + 3),
        (first + 4, first + 4),
    ]
    assert [one.rows for one in found] == [2, 2, 1]


def places(found: Iterable[Entry]) -> list[tuple[int, int]]:
    """First and last row of each entry of micro-batch 3, by sequence ids."""
    return [
        ((first - 3 * BATCH) // ROW, (last - 3 * BATCH) // ROW)
        for first, last in ids(found)
    ]


def known_id(row: int) -> int:
    """The sequence id of a row of micro-batch 3, all rows of which are ``a``."""
    if row < 0:
        return -1
    one = target(batch_id=3, **IDEMPOTENT, **{P + "batchingEnabled": "false"})
    return entries(one, encoded([b"a"] * (row + 1)))[-1].ids[0]


def test_numbers_of_a_row_that_is_written_again() -> None:
    """They follow from the micro-batch, the row, and the rows before it."""
    one = target(batch_id=3, **IDEMPOTENT)
    found = entries(one, encoded([b"a"] * 5), first=7)
    assert places(found) == [(7, 11)]
    alone = target(batch_id=3, **IDEMPOTENT, **{P + "batchingEnabled": "false"})
    again = entries(alone, encoded([b"a"] * 5), first=7)
    assert (again[0].ids[0], again[-1].ids[0]) == found[0].ids
    other = entries(target(batch_id=3, **IDEMPOTENT), encoded([b"b"] * 5), first=7)
    assert places(other) == [(7, 11)]
    assert other[0].ids[1] != found[0].ids[1]


@pytest.mark.parametrize("known", range(-1, 6))
def test_known_and_new_rows_share_no_entry(known: int) -> None:
    """The broker would drop all of it; what it knows is sent again all the same."""
    one = target(known_id(known), batch_id=3, **IDEMPOTENT)
    found = places(entries(one, encoded([b"a"] * 6)))
    split = [(0, known), (known + 1, 5)] if 0 <= known < 5 else [(0, 5)]
    assert found == split
    one.end()


def test_the_seam_may_lie_between_batches_of_rows() -> None:
    """It is cut at the first new row, also where that comes later; and only there."""
    for known, seams in ((2, [(0, 2), (3, 7)]), (3, [(0, 3), (4, 7)])):
        one = target(known_id(known), batch_id=3, **IDEMPOTENT)
        rows = encoded([b"a"] * 2)
        frames: list[SendFrame] = []
        for first in (0, 2, 4, 6):
            frames += flat(one.add(rows, range(first, first + 2), 0, 2))
        frames += flat(one.finish())
        assert places(map(entry, frames)) == seams


@given(
    rows=st.lists(st.binary(max_size=3), min_size=1, max_size=12),
    others=st.lists(st.binary(max_size=3), max_size=12),
    stored=st.integers(1, 12),
    cuts=st.sets(st.integers(1, 11)),
    batching=st.booleans(),
)
def test_other_rows_are_noticed(
    rows: list[bytes],
    others: list[bytes],
    stored: int,
    cuts: set[int],
    batching: bool,
) -> None:
    """Where the rows that are stored do not come again, however batches are cut."""
    options = {**IDEMPOTENT, P + "batchingEnabled": str(batching).lower()}
    stored = min(stored, len(rows))
    first = entries(target(batch_id=3, **options), encoded(rows[:stored]))
    one = target(first[-1].ids[1], batch_id=3, **options)
    is_same = others[:stored] == rows[:stored]
    if len(others) >= stored and not is_same:
        other = entries(target(batch_id=3, **options), encoded(others[:stored]))
        # A digest of 16 bits takes a few for the same.
        assume(other[-1].ids[1] != first[-1].ids[1])
    frames: list[SendFrame] = []
    with contextlib.nullcontext() if is_same else pytest.raises(IdempotenceError):
        for start, end in pairwise([0, *sorted(cuts), 99]):
            some = others[start:end]
            if not some:
                break
            numbers = range(start, start + len(some))
            frames += flat(one.add(encoded(some), numbers, 0, len(some)))
        one.end()
        frames += flat(one.finish())
    new = [last for _, last in places(map(entry, frames)) if last >= stored]
    assert bool(new) == (is_same and len(others) > stored)


class Attempt(NamedTuple):
    """How a task writes its rows.

    Attributes:
        rows: The rows.
        batching: Whether rows share entries.
        most: Rows of an entry.
        cuts: Where a RecordBatch ends.
    """

    rows: list[bytes]
    batching: bool
    most: int
    cuts: set[int]

    def frames(self, last_sequence_id: int) -> Iterator[SendFrame]:
        """All frames of the task; the broker knew the sequence id before."""
        options = {
            **IDEMPOTENT,
            P + "batchingEnabled": str(self.batching).lower(),
            P + "batchingMaxMessages": str(self.most),
        }
        written = target(last_sequence_id, batch_id=3, **options)
        for start, end in pairwise([0, *sorted(self.cuts), 99]):
            if batch := self.rows[start:end]:
                numbers = range(start, start + len(batch))
                yield from flat(written.add(encoded(batch), numbers, 0, len(batch)))
        written.end()
        yield from flat(written.finish())


class DeduplicatingBroker:
    """Stores entries as a topic partition that deduplicates does.

    Attributes:
        last_sequence_id: The highest that is stored.
        rows: The numbers of the rows that are stored.
    """

    def __init__(self) -> None:
        self.last_sequence_id = -1
        self.rows: list[int] = []

    def store(self, frames: Iterable[SendFrame]) -> None:
        """Store entries that are new, and drop the others."""
        for frame in frames:
            lowest, highest = frame.sequence_id, frame.highest_sequence_id
            if highest <= self.last_sequence_id:
                continue
            assert lowest > self.last_sequence_id, "part of the entry is stored"
            self.last_sequence_id = highest
            ((first, last),) = places([entry(frame)])
            self.rows += range(first, last + 1)


_ROWS = st.lists(st.binary(max_size=2), min_size=1, max_size=9)
_WAYS = st.tuples(st.booleans(), st.integers(1, 4), st.sets(st.integers(1, 11)))


@given(
    rows=_ROWS,
    further=_ROWS | st.just([]),
    ways=st.lists(_WAYS, min_size=2, max_size=3),
    stored=st.integers(0, 9),
)
def test_a_task_that_is_repeated(
    rows: list[bytes],
    further: list[bytes],
    ways: list[tuple[bool, int, set[int]]],
    stored: int,
) -> None:
    """Each row is stored once, whatever was stored and however rows are cut.

    Rows of another task, which come behind once there are fewer tasks, are refused
    where the task had come to its end: none of them is stored.
    """
    broker = DeduplicatingBroker()
    first = Attempt(rows, *ways[0])
    frames = list(first.frames(-1))
    broker.store(frames[:stored])
    for way in ways[1:]:
        broker.store(Attempt(rows, *way).frames(broker.last_sequence_id))
        assert broker.rows == list(range(len(rows)))
    if not further:
        return
    # The attempt that stored the last row.
    batching, *_ = ways[0] if stored >= len(frames) else ways[1]
    fewer = Attempt(rows + further, *ways[-1])
    if batching:
        with pytest.raises(IdempotenceError):
            broker.store(fewer.frames(broker.last_sequence_id))
        assert broker.rows == list(range(len(rows)))
    else:
        broker.store(fewer.frames(broker.last_sequence_id))
        assert broker.rows == list(range(len(rows + further)))


def test_rows_of_an_earlier_micro_batch() -> None:
    """All that the broker knows is older: nothing is in doubt."""
    one = target(2 * BATCH + 99, batch_id=3, **IDEMPOTENT)
    assert places(entries(one, encoded([b"a"] * 3))) == [(0, 2)]
    one.end()


def test_rows_of_a_later_micro_batch_are_known() -> None:
    """Then the broker would drop every row: an error says so."""
    for batch_id, known in ((3, 7), (3 * 2**16 + 3, 3 * 2**16 + 7)):
        with pytest.raises(IdempotenceError) as caught:
            target(7 * BATCH, batch_id=batch_id, **IDEMPOTENT)
        assert caught.value.batch_ids == (batch_id, known)


# -- cutting ---------------------------------------------------------------------------


def test_rows_stay_for_the_next_entry() -> None:
    """Where a RecordBatch ends has no say; and after all is cut nothing is left."""
    one = target()
    rows = encoded([b"a"] * 3)
    assert not list(one.add(rows, range(3), 0, 3))
    assert not list(one.add(rows, range(3, 6), 1, 3))
    (found,) = [entry(frame) for frame in flat(one.finish())]
    assert (found.rows, found.metadata.num_messages_in_batch) == (5, 5)
    assert not list(one.finish())


def test_a_row_with_a_time_of_delivery_goes_alone() -> None:
    """Those before it go first, so that order stays."""
    times = pa.array([None, None, 5_000_000, None], pa.timestamp("us", "UTC"))
    found = entries(target(), encoded([b"a", b"b", b"c", b"d"], __deliverAtTime=times))
    assert ids(found) == [(0, 1), (2, 2), (3, 3)]
    assert [one.metadata.deliver_at_time for one in found] == [0, 5000, 0]
    assert found[1].payload == b"c"
    assert not found[1].metadata.HasField("num_messages_in_batch")


def test_no_batches() -> None:
    """Each row is an entry, with all that it says."""
    one = target(**{P + "batchingEnabled": "false"})
    found = entries(one, encoded([b"a", b"b"], __key=["x", "y"]))
    assert ids(found) == [(0, 0), (1, 1)]
    assert [(e.payload, e.metadata.partition_key) for e in found] == [
        (b"a", "x"),
        (b"b", "y"),
    ]


def test_a_row_that_is_too_large_for_a_batch() -> None:
    """It is an entry, with all that it says, and the numbers go on."""
    limit = 200_000
    room = limit - 64 * 1024
    values = [b"a", b"x" * (room - 100), b"b"]
    found = entries(target(limit=limit), encoded(values, __key=["k"] * 3))
    assert [one.rows for one in found] == [1, 1, 1]
    assert ids(found) == [(0, 0), (1, 1), (2, 2)]
    assert found[1].metadata.partition_key == "k"


def test_a_row_in_chunks() -> None:
    """The last one completes it."""
    one = target(
        limit=200_000,
        **{P + "chunkingEnabled": "true", P + "batchingEnabled": "false"},
    )
    value = bytes(range(256)) * 2000
    found = entries(one, encoded([value]))
    assert [one.rows for one in found] == [0] * (len(found) - 1) + [1]
    assert b"".join(one.payload for one in found) == value
    assert {one.ids for one in found} == {(0, 0)}


@pytest.mark.parametrize("batching", ["true", "false"])
def test_chunks_of_a_size(batching: str) -> None:
    """No entry is larger than the option says, also where the broker takes more."""
    row_target = target(
        **{
            P + "chunkingEnabled": "true",
            P + "batchingEnabled": batching,
            P + "chunkMaxMessageSize": "1000",
        }
    )
    values = [b"a" * 300, b"b" * 300, b"c" * 300, b"d" * 300, b"x" * 5000, b"e"]
    chunks = entries(row_target, encoded(values))
    assert max(len(chunk.payload) for chunk in chunks) <= 1000
    assert sum(chunk.rows for chunk in chunks) == len(values)
    parts = [chunk.payload for chunk in chunks if chunk.metadata.num_chunks_from_msg]
    assert len(parts) >= 5
    assert b"".join(parts) == b"x" * 5000
    assert {chunk.ids for chunk in chunks if chunk.metadata.num_chunks_from_msg} == {
        (4, 4)
    }


def test_a_row_that_no_entry_can_hold() -> None:
    """What was complete before it is out by then."""
    one = target(limit=200_000)
    rows = encoded([b"a", b"x" * 200_000])
    frames = one.add(rows, range(2), 0, 2)
    (first,) = next(frames)
    assert entry(first).ids == (0, 0)
    with pytest.raises(MessageTooLargeError):
        flat(frames, one.finish())


# -- what entries say ------------------------------------------------------------------


def test_the_codec_is_the_options() -> None:
    """And so is the transaction the task's."""
    one = target(txn=TxnId(2, 9), **{P + "compressionType": "ZSTD"})
    (found,) = entries(one, encoded([b"a" * 1000]))
    assert found.metadata.compression == pb.CompressionType.ZSTD
    assert len(found.payload) < 200
    metadata = found.metadata
    assert (metadata.txnid_most_bits, metadata.txnid_least_bits) == (2, 9)


def test_an_entry_has_the_keys_of_its_first_row() -> None:
    """Brokers choose consumers by them."""
    rows = encoded([b"a", b"b"], __key=["x", "y"], __orderingKey=[b"1", b"2"])
    (found,) = entries(target(), rows)
    assert found.metadata.partition_key == "x"
    assert found.metadata.ordering_key == b"1"
    assert found.metadata.producer_name == "name"
