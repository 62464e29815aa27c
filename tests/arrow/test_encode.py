# SPDX-License-Identifier: Apache-2.0
"""RecordBatches to messages: each column, all forms of rows, values that do not fit."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import STRING_MAP, TIMESTAMP, arrow_schema
from pulsar_spark.errors import BadRowError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.entries import StoredEntry
from pulsar_spark.wire.outgoing import as_single
from tests.support.entries import decode_entry, member

TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__key": pa.string(),
    "__orderingKey": pa.binary(),
    "__eventTime": TIMESTAMP,
    "__messageProperties": STRING_MAP,
    "__deliverAtTime": TIMESTAMP,
    "__partition": pa.int32(),
    "__topic": pa.string(),
}

#: Whose varints have 1, 5, 6 and 7 bytes, on both sides of each border.
EVENT_MS = [0, 1, 127, 128, 16_383, 16_384, (1 << 28) - 1, (1 << 35) - 1, 1 << 35]
EVENT_MS += [1_760_000_000_123, (1 << 42) - 1, 1 << 42, (1 << 63) // 1000 - 1]

Row = dict[str, Any]


def record_batch(rows: Sequence[Row], **types: pa.DataType) -> pa.RecordBatch:
    """A batch of the columns that the first row has."""
    names = list(rows[0]) if rows else list(types)
    schema = pa.schema([(name, types.get(name, TYPES[name])) for name in names])
    arrays = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoded(batch: pa.RecordBatch, **limits: int) -> EncodedRows:
    """A batch, encoded and found valid."""
    rows = RowEncoder(batch.schema, **limits).encode(batch)
    assert len(rows) == batch.num_rows
    assert rows.messages.type == pa.large_binary()
    rows.messages.validate(full=True)
    return rows


def expected(row: Row) -> bytes:
    """The message of a row as protobuf writes it."""
    value, time = row["value"], row.get("__eventTime")
    return member(
        value.encode() if isinstance(value, str) else value,
        key=row.get("__key"),
        properties=row.get("__messageProperties") or (),
        event_time=None if time is None else time // 1000,
        ordering_key=row.get("__orderingKey"),
    )


def check(rows: Sequence[Row], **types: pa.DataType) -> EncodedRows:
    """Holds the encoded rows against protobuf; returns them."""
    found = encoded(record_batch(rows, **types))
    assert found.messages.to_pylist() == [expected(row) for row in rows]
    return found


# -- each column -----------------------------------------------------------------------


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_value(type_: pa.DataType):
    """NULL is a tombstone, nothing is a payload of no bytes."""
    values = [None, b"", b"\x00\xff", b"x" * 127, b"x" * 128, b"x" * 16_384]
    check([{"value": value} for value in values], value=type_)
    check([{"value": None}], value=type_)
    check([{"value": b""}], value=type_)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_value_of_text(type_: pa.DataType):
    """Text travels as UTF-8."""
    check([{"value": "größe"}, {"value": None}], value=type_)


@pytest.mark.parametrize("size", [1 << 14, (1 << 21) - 1, 1 << 21])
def test_large_values(size: int):
    """Sizes whose varints are long, among small ones, with a word of six bytes or not.

    Only few rows pay for the size of a large one.
    """
    rows = [{"value": b"x" * n} for n in (size, 5, size + 1, 200)]
    check(rows)
    check([{**row, "__eventTime": 1_760_000_000_000_000} for row in rows])
    for row, time in zip(rows, [5, None, 1_760_000_000_000_000, None], strict=True):
        row["__eventTime"] = time
    check(rows)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_key(type_: pa.DataType):
    """Text as it is; an empty key is a key."""
    keys = [None, "", "k", "größe", "x" * 200]
    rows = check([{"value": b"v", "__key": key} for key in keys], __key=type_)
    assert rows.keys.to_pylist() == keys
    assert not rows.keys_are_base64
    rows = check([{"value": b"v", "__key": None}] * 2, __key=type_)
    assert rows.keys.to_pylist() == [None, None]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_binary_key(type_: pa.DataType):
    """Base64, told by a flag that rows without key do not have."""
    for keys in (
        [None, b"", b"k", b"\x00\xff", b"x" * 200],
        [b"k", b"kk", b"kkk"],
        [None, None],
    ):
        rows = check([{"value": b"v", "__key": key} for key in keys], __key=type_)
        texts = [None if k is None else base64.b64encode(k).decode() for k in keys]
        assert rows.keys.to_pylist() == texts
        assert rows.keys_are_base64


def test_ordering_key():
    """Bytes, or the UTF-8 of text."""
    keys = [None, b"", b"\x00\xff", b"x" * 200]
    rows = check([{"value": b"v", "__orderingKey": key} for key in keys])
    assert rows.ordering_keys.to_pylist() == keys
    texts = record_batch(
        [{"value": b"v", "__orderingKey": "ä"}], __orderingKey=pa.string()
    )
    assert encoded(texts).ordering_keys.to_pylist() == ["ä".encode()]


@pytest.mark.parametrize("ms", EVENT_MS)
def test_event_time(ms: int):
    """Rounded down to the millisecond, whatever its varint takes, beside any other."""
    us = [None, ms * 1000, ms * 1000 + 999, 1_760_000_000_000_999, None]
    for times in (us, us[1:4], us[:1], us[1:3]):
        check([{"value": b"v", "__eventTime": time} for time in times])
    check([{"value": None, "__key": "k", "__eventTime": time} for time in us])
    without_zone = {"__eventTime": pa.timestamp("us")}
    check([{"value": b"v", "__eventTime": time} for time in us], **without_zone)


def test_properties():
    """Pairs in their order; neither NULL nor an empty map is a field."""
    maps = [None, [], [("a", "1")], [("ä", ""), ("", "x" * 200), ("b", "2")], []]
    check([{"value": b"v", "__messageProperties": pairs} for pairs in maps])
    check([{"value": b"v", "__messageProperties": pairs} for pairs in maps[:2]])
    large = pa.map_(pa.large_string(), pa.large_string())
    rows = [{"value": b"v", "__messageProperties": pairs} for pairs in maps]
    check(rows, __messageProperties=large)


def test_properties_below_a_null():
    """What lies below a map that is NULL is not there, not even a NULL in it."""
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), ["a", "b", "c", "d"], ["1", "2", None, "4"]
    )
    offsets, (_, entries) = maps.buffers()[1], (None, maps.values)
    mask = pa.py_buffer(bytes([0b101]))
    nulled = pa.Array.from_buffers(STRING_MAP, 3, [mask, offsets], children=[entries])
    assert nulled.to_pylist() == [[("a", "1")], None, [("d", "4")]]
    rows = [
        {"value": b"v", "__messageProperties": pairs} for pairs in nulled.to_pylist()
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * 3), nulled], ["value", "__messageProperties"]
    )
    assert encoded(batch).messages.to_pylist() == [expected(row) for row in rows]


def test_columns_beside_the_messages():
    """Where and when rows go is given back, not put into the messages."""
    rows = [
        {"value": b"v", "__deliverAtTime": us, "__partition": number, "__topic": topic}
        for us, number, topic in ((1999, 3, "a"), (None, None, None))
    ]
    for type_ in (pa.int8(), pa.int32(), pa.int64(), pa.uint64()):
        found = check(rows, __partition=type_)
        assert found.deliver_at_ms.to_pylist() == [1, None]
        assert found.partitions.to_pylist() == [3, None]
        assert found.partitions.type == pa.int32()
        assert found.topics.to_pylist() == ["a", None]


def test_absent_columns():
    """A column that is not there is None, not a column of NULLs."""
    found = check([{"value": b"v"}])
    assert found.keys is found.ordering_keys is found.deliver_at_ms is None
    assert found.topics is found.partitions is None


# -- all of it -------------------------------------------------------------------------

_TEXTS = st.none() | st.sampled_from(["", "k", "ü" * 64, "x" * 127, "x" * 130])
_BYTES = st.none() | st.sampled_from([b"", b"\xff", b"y" * 127, b"y" * 16_384])
_TIMES = st.none() | st.builds(
    lambda ms, us: min(ms * 1000 + us, 2**63 - 1),
    st.sampled_from(EVENT_MS) | st.integers(0, (1 << 63) // 1000 - 1),
    st.integers(0, 999),
)
_PAIRS = st.tuples(_TEXTS.filter(lambda t: t is not None), st.text(max_size=4))
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "value": _BYTES | st.binary(max_size=300),
    "__key": _TEXTS | st.text(max_size=5),
    "__orderingKey": _BYTES,
    "__eventTime": _TIMES,
    "__messageProperties": st.none() | st.lists(_PAIRS, max_size=3),
}


@st.composite
def rows_of_some_columns(draw: Any) -> list[Row]:
    """Rows with a value and any of the other columns, in any order."""
    others = draw(st.sets(st.sampled_from(sorted(COLUMNS.keys() - {"value"}))))
    names = draw(st.permutations(["value", *sorted(others)]))
    rows = st.fixed_dictionaries({name: COLUMNS[name] for name in names})
    # dictionaries compare by content, but their order is the schema's
    return [{n: row[n] for n in names} for row in draw(st.lists(rows, min_size=1))]


@settings(deadline=None, max_examples=80)
@given(rows=rows_of_some_columns(), data=st.data())
def test_any_rows(rows: list[Row], data: st.DataObject):
    """The bytes are protobuf's, of whole batches and of their slices."""
    batch = record_batch(rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    for first, last in ((0, len(rows)), (start, stop)):
        found = encoded(batch.slice(first, last - first))
        assert found.messages.to_pylist() == [expected(r) for r in rows[first:last]]


def test_many_rows_at_once():
    """The same with a thousand rows of every column, some NULL."""
    rng = random.Random(7)
    rows = [
        {
            "__eventTime": rng.choice([None, *(ms * 1000 for ms in EVENT_MS)]),
            "value": rng.choice([None, rng.randbytes(rng.randrange(400))]),
            "__key": rng.choice([None, rng.randbytes(rng.randrange(200))]),
            "__messageProperties": rng.choice([None, [("n", "1" * rng.randrange(99))]]),
            "__orderingKey": rng.choice([None, rng.randbytes(rng.randrange(200))]),
        }
        for _ in range(1000)
    ]
    check(rows, __key=pa.binary())
    batch = record_batch(rows, __key=pa.binary())
    for start, stop in ((1, 1000), (500, 501), (13, 700), (999, 1000)):
        found = encoded(batch[start:stop]).messages.to_pylist()
        assert found == [expected(row) for row in rows[start:stop]]


def test_readers_give_the_rows_back():
    """Our own reader decodes any run of rows, as a batch, to what they were."""
    rows = [
        {
            "value": None if n % 7 == 0 else b"v" * n,
            "__key": None if n % 5 == 0 else b"%d" % n,
            "__eventTime": None if n % 3 == 0 else 1_760_000_000_000_000 + n * 1000,
            "__messageProperties": [] if n % 4 == 0 else [("n", str(n)), ("m", "")],
            "__orderingKey": None if n % 2 == 0 else b"\xff%d" % n,
        }
        for n in range(200)
    ]
    batch = record_batch(rows, __key=pa.binary())
    found = encoded(batch)
    for start, stop in ((0, 200), (17, 90), (199, 200)):
        payload = found.data[found.offsets[start] : found.offsets[stop]]
        metadata = pb.MessageMetadata(
            producer_name="p", num_messages_in_batch=stop - start
        )
        builder = RecordBatchBuilder(
            arrow_schema(batch.schema.names),
            COLUMN_SOURCES,
            "t",
            0,
            max_rows=1000,
            max_bytes=1 << 20,
        )
        assert not list(builder.add(decode_entry(StoredEntry(1, 2, metadata, payload))))
        assert builder.finish().to_pylist() == batch[start:stop].to_pylist()


def test_no_rows():
    """A batch of no rows is no messages."""
    found = encoded(record_batch([], **TYPES))
    assert found.messages.to_pylist() == []
    assert list(found.offsets) == [0]
    assert bytes(found.data[: found.offsets[0]]) == b""
    no_offsets = [None, None, pa.py_buffer(b"")]
    messages = pa.Array.from_buffers(pa.large_binary(), 0, no_offsets)
    assert list(EncodedRows(messages).offsets) == [0]


# -- rows apart ------------------------------------------------------------------------


def test_offsets_cut_the_data():
    """Messages lie in their order, without gaps, also of taken and sliced rows."""
    rows = [{"value": b"v" * n, "__key": str(n)} for n in range(20)]
    found = check(rows)
    indices = pa.array([3, 1, 19, 3])
    taken = found.take(indices)
    sliced = EncodedRows(found.messages.slice(5, 7))
    for some, numbers in (
        (found, range(20)),
        (taken, indices.to_pylist()),
        (sliced, range(5, 12)),
    ):
        cut = [bytes(some.data[start:stop]) for start, stop in pairwise(some.offsets)]
        assert cut == [expected(rows[number]) for number in numbers]
    assert taken.keys.to_pylist() == ["3", "1", "19", "3"]
    assert taken.topics is None


def test_take_takes_every_column():
    """Rows stay together, and what holds for all of them stays."""
    row = {
        "value": b"v",
        "__key": b"k",
        "__orderingKey": b"o",
        "__deliverAtTime": 5000,
        "__partition": 1,
        "__topic": "t",
    }
    empty = {**dict.fromkeys(row), "value": b"w"}
    found = encoded(record_batch([row, empty], __key=pa.binary()))
    taken = found.take(pa.array([1, 0, 0]))
    assert taken.keys_are_base64
    for name in ("keys", "ordering_keys", "deliver_at_ms", "partitions", "topics"):
        own = getattr(found, name).to_pylist()
        assert getattr(taken, name).to_pylist() == [own[1], own[0], own[0]]
        assert own[1] is None
        assert own[0] is not None


def single(rows: EncodedRows, row: int) -> tuple[pb.MessageMetadata, memoryview]:
    """What a row says of itself, and its value."""
    return as_single(rows.data[rows.offsets[row] : rows.offsets[row + 1]])


def test_row_as_single():
    """An entry of its own says of the row what its place in a batch would."""
    rows = [
        {
            "value": b"v",
            "__key": b"\xff",
            "__orderingKey": b"o",
            "__eventTime": 1_760_000_000_000_000,
            "__messageProperties": [("a", "1"), ("b", "")],
        },
        dict.fromkeys(
            ("value", "__key", "__orderingKey", "__eventTime", "__messageProperties")
        ),
    ]
    found = encoded(record_batch(rows, __key=pa.binary()))
    metadata, payload = single(found, 0)
    assert bytes(payload) == b"v"
    assert metadata == pb.MessageMetadata(
        properties=[pb.KeyValue(key="a", value="1"), pb.KeyValue(key="b", value="")],
        partition_key="/w==",
        partition_key_b64_encoded=True,
        ordering_key=b"o",
        event_time=1_760_000_000_000,
    )
    metadata, payload = single(found, 1)
    assert bytes(payload) == b""
    assert metadata == pb.MessageMetadata(null_value=True)


def test_row_as_single_of_rows_that_moved():
    """Of taken rows, too, and with keys that are there but empty."""
    rows = [{"value": b"%d" % n, "__key": ""} for n in range(5)]
    found = check(rows).take(pa.array([4, 2]))
    metadata, payload = single(found, 1)
    assert bytes(payload) == b"2"
    assert metadata == pb.MessageMetadata(partition_key="")


# -- what does not fit -----------------------------------------------------------------


def refused(
    match: str, *rows: Row, max_size_bytes: int = 2**30, **types: pa.DataType
) -> None:
    """Checks that the rows are refused, also behind good ones and in a slice."""
    batch = record_batch(rows, **types)
    for part in (batch, batch.slice(len(rows) - 1)):
        with pytest.raises(BadRowError, match=match):
            RowEncoder(batch.schema, max_size_bytes=max_size_bytes).encode(part)


@pytest.mark.parametrize("name", ["__eventTime", "__deliverAtTime"])
@pytest.mark.parametrize(
    ("us", "text"),
    [(-1, "1969-12-31 23:59:59.999999"), (-(2**63), "")],
)
def test_times_before_1970(name: str, us: int, text: str):
    """Pulsar's times are unsigned: the column and the time are named."""
    good = {"value": b"v", name: 1_760_000_000_000_000}
    refused(f"{name} is .*{text}.*1970", good, {"value": b"v", name: us})


def test_event_times_in_milliseconds():
    """Integers are milliseconds since 1970, as they are sent."""
    times = [0, 1, 1_760_000_000_123, None]
    of_type = {
        type_: encoded(
            record_batch(
                [{"value": b"v", "__eventTime": t} for t in times_of],
                __eventTime=type_,
            )
        ).messages
        for type_, times_of in (
            (pa.int64(), times),
            (TIMESTAMP, [None if t is None else t * 1000 for t in times]),
        )
    }
    assert of_type[pa.int64()].equals(of_type[TIMESTAMP])
    batch = record_batch([{"value": b"v", "__eventTime": -1}], __eventTime=pa.int64())
    with pytest.raises(BadRowError, match=r"1969-12-31 23:59:59\.999, but"):
        encoded(batch)


@pytest.mark.parametrize("pairs", [[("a", None)], [("a", "1"), ("b", None)]])
def test_null_property(pairs: list[tuple[str, str | None]]):
    """A property without value is refused with its name."""
    good = {"value": b"v", "__messageProperties": [("a", "1")]}
    bad = {"value": b"v", "__messageProperties": pairs}
    refused(f"None at '{pairs[-1][0]}'", good, bad)


def not_utf8(type_: pa.DataType) -> pa.Array:
    """A good text, then bytes that Spark's casts let pass as text."""
    return pa.array([b"good", b"\xff\xfe"], pa.binary()).view(type_)


def test_key_that_is_not_utf8():
    """The text is shown as bytes."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * 2), not_utf8(pa.string())], ["value", "__key"]
    )
    for part in (batch, batch[1:]):
        with pytest.raises(BadRowError, match=r"__key holds b'\\xff\\xfe'"):
            RowEncoder(batch.schema).encode(part)
    assert len(encoded(batch[:1])) == 1


@pytest.mark.parametrize("bad_keys", [True, False])
def test_properties_that_are_not_utf8(bad_keys: bool):
    """Neither key nor value of a property."""
    good, bad = pa.array(["a", "b"]), not_utf8(pa.string())
    pairs = (bad, good) if bad_keys else (good, bad)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), *pairs)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * 2), maps], ["value", "__messageProperties"]
    )
    for part in (batch, batch[1:]):
        with pytest.raises(BadRowError, match="__messageProperties holds"):
            RowEncoder(batch.schema).encode(part)
    assert len(encoded(batch[:1])) == 1


def test_value_that_is_not_utf8():
    """A value is bytes to Pulsar, so it is sent as it is."""
    batch = pa.RecordBatch.from_arrays([not_utf8(pa.string())], ["value"])
    assert single(encoded(batch), 1)[1] == b"\xff\xfe"


@pytest.mark.parametrize("partition", [2**31, -(2**31) - 1])
def test_partition_out_of_range(partition: int):
    """A number that no partition can have is refused."""
    refused(
        str(partition),
        {"value": b"v", "__partition": 0},
        {"value": b"v", "__partition": partition},
        __partition=pa.int64(),
    )


@pytest.mark.parametrize("name", ["value", "__key", "__orderingKey"])
def test_sizes_without_bound(name: str):
    """What our arithmetic has no room for is refused, not cut."""
    limit = {"max_size_bytes": 100}
    types = {"value": pa.string(), "__orderingKey": pa.string()}
    good = {"value": b"x" * 100, name: "x" * 80}
    encoded(record_batch([good], **types), **limit)
    refused("101 bytes", good, {**good, name: "x" * 101}, **limit, **types)


def test_sizes_without_bound_in_total():
    """Nor metadata of which each part is small enough."""
    row = {"value": b"", "__key": "x" * 47, "__orderingKey": b"x" * 47}
    rows = encoded(record_batch([row]), max_size_bytes=100)
    assert rows.messages[0].as_py()[:4] == b"\0\0\0\x64"
    refused("101 bytes", row, {**row, "__key": "x" * 48}, max_size_bytes=100)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("__key", pa.string())]),
        pa.schema([("value", pa.int64())]),
        pa.schema([("value", pa.binary()), ("__eventTime", pa.timestamp("ms"))]),
        pa.schema([("value", pa.binary()), ("__messageProperties", pa.string())]),
        pa.schema([("value", pa.binary()), ("__partition", pa.string())]),
    ],
)
def test_wrong_types(schema: pa.Schema):
    """A schema that nobody checked before is our own mistake."""
    with pytest.raises(AssertionError):
        RowEncoder(schema)
