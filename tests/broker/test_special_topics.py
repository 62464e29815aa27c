# SPDX-License-Identifier: Apache-2.0
"""Chunks, compaction, transactions, and topics that ended or hold nothing."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest

from pulsar_spark import (
    CorruptEntryError,
    DataLossError,
    MessageId,
    decode_message_id,
    encode_message_id,
)
from pulsar_spark.source.missing.silence import Silence
from pulsar_spark.source.read import chunk_search
from tests.support import official, reading
from tests.support.entries import batch, chunks, member, message
from tests.support.official import Message
from tests.support.raw_publisher import RawError, RawPublisher
from tests.support.transactions import Transactions
from tests.support.waiting import join, trim_first_ledger

if TYPE_CHECKING:
    from pulsar_spark.testing.admin import Admin


def values(service_url: str, topic: str, **options: str) -> list[bytes | None]:
    """The payloads of a topic, read by us."""
    return [row.value for row in reading.read(service_url, {"topic": topic, **options})]


@pytest.fixture
def silences(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ranges whose reader ran out of patience and asked the broker what is left.

    A read that knows its end never does: it stops at its last row.
    """
    asked: list[str] = []
    original = Silence._is_exhausted

    def counted(self: Silence) -> bool:
        asked.append(self._range.topic_partition)
        return original(self)

    monkeypatch.setattr(Silence, "_is_exhausted", counted)
    return asked


# -- chunks ----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_official_chunks(service_url: str, topic: str, codec: str) -> None:
    """A message of several chunks is one row, at the official client's id."""
    large = [os.urandom(6 << 20), b"", os.urandom(11 << 20), b"small"]
    sent = [
        Message(v, key=f"{i}", properties={"n": str(i)}) for i, v in enumerate(large)
    ]
    with official.client(service_url) as one:
        producer = one.create_producer(
            topic, chunking_enabled=True, compression_type=official.CODECS[codec]
        )
        for each in sent:
            producer.send(
                each.value, partition_key=each.key, properties=each.properties
            )
    expected = official.read_back(service_url, topic)
    rows = reading.read(service_url, {"topic": topic})
    assert rows == expected
    assert [row.message for row in rows] == sent
    assert rows[2].message_id[1] - rows[1].message_id[1] >= 3


def test_interleaved_chunks(service_url: str, topic: str) -> None:
    """Messages of two producers whose chunks mix come whole, in order of their ends."""
    one, two = b"1" * 30_000, b"2" * 20_000
    with RawPublisher(service_url, topic) as a, RawPublisher(service_url, topic) as b:
        first, second = chunks(one, 3, "a", partition_key="k"), chunks(two, 2, "b")
        a.send(*first[0])
        b.send(*second[0])
        a.send(*first[1])
        b.send(*message(b"between"))
        b.send(*second[1])
        a.send(*first[2])
    rows = reading.read(service_url, {"topic": topic})
    assert [row.value for row in rows] == [b"between", two, one]
    assert [row.message_id[1] for row in rows] == [3, 4, 5]
    assert [row.key for row in rows] == [None, None, b"k"]
    assert rows == official.read_back(service_url, topic)


def test_many_chunked_producers(service_url: str, topic: str) -> None:
    """More open messages than are held at once lose none of them."""
    sets = [chunks(b"%d" % i * 3000, 3, f"u{i}") for i in range(6)]
    with RawPublisher(service_url, topic) as publisher:
        for part in range(3):
            for one in sets:
                publisher.send(*one[part])
    expected = [b"%d" % i * 3000 for i in range(6)]
    options = {"pulsar.reader.maxPendingChunkedMessage": "2"}
    assert values(service_url, topic, **options) == expected
    assert values(service_url, topic) == expected


def test_start_at_a_chunked_row(service_url: str, topic: str) -> None:
    """The id in ``__messageId`` of a chunked row starts a read at that row."""
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"before"))
        first, second = chunks(b"1" * 9000, 3, "a"), chunks(b"2" * 9000, 2, "b")
        for chunk in (first[0], second[0], first[1], second[1], first[2]):
            publisher.send(*chunk)
        publisher.send(*message(b"after"))
    reader = reading.reader_of(service_url, {"topic": topic})
    (part,) = reader.partitions()
    (data,) = pa.Table.from_batches(list(reader.read(part))).select(["__messageId"])
    ids = data.to_pylist()
    chunked = decode_message_id(ids[2])
    assert chunked.first_chunk is not None
    assert chunked.first_chunk.entry_id == 1
    assert chunked.entry_id == 5
    assert pulsar.MessageId.deserialize(ids[2]).entry_id() == 5
    signed = [byte - 256 if byte > 127 else byte for byte in ids[2]]
    assert values(service_url, topic, startingOffsets=json.dumps({topic: signed})) == [
        b"1" * 9000,
        b"after",
    ]
    assert values(service_url, topic, endingOffsets=json.dumps({topic: signed})) == [
        b"before",
        b"2" * 9000,
        b"1" * 9000,
    ]


@pytest.mark.parametrize("by", ["producer", "reader"])
def test_official_ids_of_chunked_rows(service_url: str, topic: str, by: str) -> None:
    """They name the first chunk as well; a read starts at such a row, and ends there.

    So do the bytes and the text that ours have for them.
    """
    sent = [b"before", os.urandom(6 << 20), b"between", os.urandom(6 << 20), b"after"]
    with official.client(service_url) as one:
        producer = one.create_producer(topic, chunking_enabled=True)
        theirs = [producer.send(value) for value in sent]
        if by == "reader":
            reader = one.create_reader(topic, pulsar.MessageId.earliest)
            theirs = [reader.read_next(20_000).message_id() for _ in sent]
    ids = [decode_message_id(one.serialize()) for one in theirs]
    assert [one.first_chunk is not None for one in ids] == [
        len(value) > 1000 for value in sent
    ]
    assert ids[1].first_chunk is not None
    assert ids[1].first_chunk.position == (ids[0].ledger_id, ids[0].entry_id + 1)
    again = [decode_message_id(encode_message_id(one)) for one in ids]
    assert again == ids
    for form in (
        [byte - 256 if byte > 127 else byte for byte in theirs[3].serialize()],
        list(encode_message_id(ids[3])),
        str(ids[3]),
    ):
        offsets = json.dumps({topic: form})
        assert values(service_url, topic, startingOffsets=offsets) == sent[3:]
        assert values(service_url, topic, endingOffsets=offsets) == sent[:4]


def test_start_amid_chunks(service_url: str, topic: str) -> None:
    """A message counts where its last chunk is, whichever chunk a read starts at."""
    with RawPublisher(service_url, topic) as publisher:
        places = [publisher.send(*one) for one in chunks(b"1" * 9000, 3, "a")]
        publisher.send(*message(b"after"))
    for ledger_id, entry_id in places:
        start = json.dumps({topic: f"{ledger_id}:{entry_id}"})
        expected = [b"1" * 9000, b"after"]
        assert values(service_url, topic, startingOffsets=start) == expected
        end = json.dumps({topic: f"{ledger_id}:{entry_id}"})
        expected = [b"1" * 9000] if entry_id == places[2][1] else []
        assert values(service_url, topic, endingOffsets=end) == expected


def test_start_amid_chunks_and_wrong_clocks(service_url: str, topic: str) -> None:
    """The chunks before a start are found where publish times lead astray, too."""
    behind = {"publish_time": 1_000_000_000_000}
    first, last = chunks(b"1" * 9000, 2, "a")
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"old", **behind))
        publisher.send(*first)
        for _ in range(20):
            publisher.send(*message(b"old", **behind))
        ledger_id, entry_id = publisher.send(*last)
    start = json.dumps({topic: f"{ledger_id}:{entry_id}"})
    assert values(service_url, topic, startingOffsets=start) == [b"1" * 9000]


def test_start_amid_chunks_and_this_clock_wrong(
    service_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found with a clock so slow that the search begins behind them, too."""
    first, last = chunks(b"1" * 9000, 2, "a", publish_time=1_600_000_000_000)
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*first)
        ledger_id, entry_id = publisher.send(*last)
    clock = SimpleNamespace(time=lambda: 1_500_000_000.0, monotonic=time.monotonic)
    monkeypatch.setattr(chunk_search, "time", clock)
    start = json.dumps({topic: f"{ledger_id}:{entry_id}"})
    options = {"startingOffsets": start, "pollTimeoutMs": "60000"}
    assert values(service_url, topic, **options) == [b"1" * 9000]


def test_broken_chunk_sets(
    service_url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Chunks that were sent twice count once; sets that lack some give a warning."""
    resent, orphan, dead = (chunks(c * 9000, 3, c.decode()) for c in (b"r", b"o", b"d"))
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*dead[0])  # its producer died here
        for part in (0, 1, 1, 0, 1, 2):
            publisher.send(*resent[part])
        for part in (1, 2):
            publisher.send(*orphan[part])
        publisher.send(*dead[1])
        publisher.send(*message(b"after"))
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        assert values(service_url, topic) == [b"r" * 9000, b"after"]
    (warning,) = (r.getMessage() for r in caplog.records if topic in r.getMessage())
    assert "incomplete" in warning
    assert ":8 " in warning  # where the orphan's last chunk is


def test_chunks_across_a_trimmed_ledger(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """A chunked message whose first chunk is gone is lost, and its id says so."""
    topic = f"persistent://{namespace}/half"
    parts = chunks(b"1" * 9000, 2, "a")
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*parts[0])
    admin.unload(topic)
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*parts[1])
        publisher.send(*message(b"after"))
    reader = reading.reader_of(service_url, {"topic": topic})
    (part,) = reader.partitions()
    table = pa.Table.from_batches(list(reader.read(part)))
    assert table.column("value").to_pylist() == [b"1" * 9000, b"after"]
    data = list(table.column("__messageId")[0].as_py())
    trim_first_ledger(admin, topic)
    start = {"startingOffsets": json.dumps({topic: data})}
    with pytest.raises(DataLossError, match=topic):
        values(service_url, topic, **start)
    assert values(service_url, topic, failOnDataLoss="false", **start) == [b"after"]


def test_too_large_to_put_together(service_url: str, topic: str) -> None:
    """A chunked message beyond the memory limit is an error that names it."""
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"before"))
        for chunk in chunks(b"x" * (3 << 19), 2, "large"):
            place = publisher.send(*chunk)
    options = {"pulsar.client.memoryLimitBytes": "1m"}
    with pytest.raises(CorruptEntryError, match="memoryLimitBytes") as raised:
        values(service_url, topic, **options)
    error = raised.value
    assert error.message_id == f"{place[0]}:{place[1]}"
    assert error.topic_partition == topic
    end = json.dumps({topic: f"{place[0]}:{place[1] - 1}"})
    assert values(service_url, topic, endingOffsets=end, **options) == [b"before"]
    assert len(values(service_url, topic)) == 2


def test_reading_around_a_damaged_message(service_url: str, topic: str) -> None:
    """A payload that is not what its metadata says is an error that names it.

    The place is enough to read what lies around the message.
    """
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"before"))
        metadata, _ = message(b"x" * 100, compression=1)
        publisher.send(metadata, b"no such block")
        publisher.send(*message(b"after"))
    with pytest.raises(CorruptEntryError, match="LZ4") as raised:
        values(service_url, topic)
    assert raised.value.topic_partition == topic
    damaged = MessageId.parse_text(raised.value.message_id)
    before = f"{damaged.ledger_id}:{damaged.entry_id - 1}"
    after = f"{damaged.ledger_id}:{damaged.entry_id + 1}"
    end = {"endingOffsets": json.dumps({topic: before})}
    assert values(service_url, topic, **end) == [b"before"]
    start = {"startingOffsets": json.dumps({topic: after})}
    assert values(service_url, topic, **start) == [b"after"]


def test_broker_checks_checksums(service_url: str, topic: str) -> None:
    """A broker refuses an entry with a wrong checksum: damage happens on the way."""
    from pulsar_spark.wire import pulsar_api_pb2 as pb
    from pulsar_spark.wire.frames import encode_payload_frame

    with RawPublisher(service_url, topic) as publisher:
        send = pb.CommandSend(producer_id=1, sequence_id=0)
        command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send)
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        frame = bytearray(
            encode_payload_frame(
                command.SerializeToString(), metadata.SerializeToString(), b"payload"
            )
        )
        frame[-1] ^= 1
        publisher.send_bytes(bytes(frame))
        with pytest.raises(RawError) as raised:
            publisher.receive("send_receipt")
        assert raised.value.code == 9  # ChecksumError


# -- compaction ------------------------------------------------------------------------

COMPACTED = {"pulsar.reader.readCompacted": "true"}


def official_compacted(service_url: str, topic: str) -> list[official.Row]:
    """The compacted topic, read by the official client.

    It gives an empty row without a key for each message that compaction removed from a
    batch; ours have keys.
    """
    rows = official.read_back(service_url, topic, compacted=True)
    return [row for row in rows if row.key or row.value]


def bury(service_url: str, topic: str, *keys: str, batched: bool) -> None:
    """Publish tombstones as the Java client writes them."""
    with RawPublisher(service_url, topic) as publisher:
        if batched:
            publisher.send(*batch([member(None, key=key) for key in keys]))
            return
        for key in keys:
            # Without a size the broker takes the metadata for a payload, and keeps it.
            publisher.send(*message(None, key=key, uncompressed_size=0))


def keyed(service_url: str, topic: str, rounds: int, keys: int, size: int) -> None:
    """Several values for each key, the last one the largest."""
    sent = [
        Message(b"%d" % turn, key=f"k{key}")
        for turn in range(rounds)
        for key in range(keys)
    ]
    official.produce(service_url, topic, sent, batch=size)


@pytest.mark.parametrize("size", [10, 0], ids=["batched", "unbatched"])
def test_compacted(
    service_url: str, admin: Admin, topic: str, silences: list[str], size: int
) -> None:
    """The last value of each key, at its own id; no key that ended in a tombstone."""
    keyed(service_url, topic, rounds=5, keys=4, size=size)
    bury(service_url, topic, "k1", "k3", batched=size > 0)
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert len(rows) == 22  # nothing is compacted yet
    admin.compact(topic)
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert [(row.key, row.value) for row in rows] == [(b"k0", b"4"), (b"k2", b"4")]
    assert rows == official_compacted(service_url, topic)
    assert len(reading.read(service_url, {"topic": topic})) == 22
    assert silences == []


def test_compacted_with_a_tail(
    service_url: str, admin: Admin, topic: str, silences: list[str]
) -> None:
    """What came after compaction follows as it is, as the official client gives it."""
    keyed(service_url, topic, rounds=3, keys=3, size=9)
    admin.compact(topic)
    tail = [Message(b"new", key="k0"), Message(None, key="k1"), Message(b"bare")]
    official.produce(service_url, topic, tail, batch=3)
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert [(row.key, row.value) for row in rows] == [
        (b"k0", b"2"),
        (b"k1", b"2"),
        (b"k2", b"2"),
        (b"k0", b"new"),
        (b"k1", None),
        (None, b"bare"),
    ]
    assert rows == official_compacted(service_url, topic)
    assert silences == []


def test_compacted_away(
    service_url: str, admin: Admin, topic: str, silences: list[str]
) -> None:
    """A compacted topic that only has tombstones is empty, at once."""
    keyed(service_url, topic, rounds=2, keys=2, size=0)
    bury(service_url, topic, "k0", "k1", batched=False)
    admin.compact(topic)
    assert reading.read(service_url, {"topic": topic, **COMPACTED}) == []
    assert silences == []


def test_kept_tombstones(service_url: str, admin: Admin, topic: str) -> None:
    """A tombstone that the broker keeps is a row with a NULL value, as elsewhere.

    4.0 keeps those that C++ producers, and so the official Python one, send unbatched.
    """
    keyed(service_url, topic, rounds=2, keys=2, size=0)
    official.produce(service_url, topic, [Message(None, key="k0")])
    admin.compact(topic)
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert rows == official.read_back(service_url, topic, compacted=True)
    assert [(r.key, r.value) for r in rows if r.value] == [(b"k1", b"1")]


@pytest.mark.parametrize("size", [10, 0], ids=["batched", "unbatched"])
def test_compacted_between_plan_and_read(
    service_url: str, admin: Admin, topic: str, silences: list[str], size: int
) -> None:
    """A plan whose last entries compaction removes ends without a long wait."""
    keyed(service_url, topic, rounds=5, keys=4, size=size)
    bury(service_url, topic, "k3", batched=size > 0)
    reader = reading.reader_of(service_url, {"topic": topic, **COMPACTED})
    (part,) = reader.partitions()
    admin.compact(topic)
    rows = reading.rows_of(reader, part)
    assert [(row.key, row.value) for row in rows] == [
        (b"k0", b"4"),
        (b"k1", b"4"),
        (b"k2", b"4"),
    ]
    assert len(silences) <= 5


def test_compaction_runs_meanwhile(service_url: str, admin: Admin, topic: str) -> None:
    """While compaction runs, a read still ends each key with its last value."""
    keyed(service_url, topic, rounds=40, keys=5, size=0)
    compaction = threading.Thread(target=admin.compact, args=[topic])
    compaction.start()
    try:
        while compaction.is_alive():
            rows = reading.read(service_url, {"topic": topic, **COMPACTED})
            last = {row.key: row.value for row in rows}
            assert last == {b"k%d" % key: b"39" for key in range(5)}
    finally:
        join(compaction, "the compaction")
    assert len(reading.read(service_url, {"topic": topic, **COMPACTED})) == 5


def test_compacted_while_written(service_url: str, admin: Admin, topic: str) -> None:
    """Rows that come after the plan, and their compaction, end the read as well."""
    keyed(service_url, topic, rounds=2, keys=3, size=0)
    reader = reading.reader_of(service_url, {"topic": topic, **COMPACTED})
    (part,) = reader.partitions()
    keyed(service_url, topic, rounds=2, keys=3, size=0)
    admin.compact(topic)
    # The rows planned are gone, for newer ones of the same keys that are not in it.
    assert reading.rows_of(reader, part) == []
    assert len(reading.read(service_url, {"topic": topic, **COMPACTED})) == 3


@pytest.mark.parametrize("again", ["", "empty", "with rows"])
def test_a_compacted_topic_is_deleted_after_planning(
    service_url: str, admin: Admin, topic: str, again: str
) -> None:
    """That is no work of compaction, also where a topic of that name is made again."""
    keyed(service_url, topic, rounds=2, keys=3, size=0)
    admin.compact(topic)
    reader = reading.reader_of(service_url, {"topic": topic, **COMPACTED})
    (part,) = reader.partitions()
    admin.delete(topic)
    if again == "empty":
        admin.create_topic(topic)
    if again == "with rows":
        keyed(service_url, topic, rounds=2, keys=3, size=0)
    with pytest.raises(DataLossError, match=topic):
        reading.rows_of(reader, part)


@pytest.mark.parametrize("keys", [["k2"], ["k0", "k1", "k2"]], ids=["one", "all"])
def test_compacted_and_trimmed_after_planning(
    service_url: str, admin: Admin, namespace: str, keys: list[str]
) -> None:
    """The end is gone: what compaction has kept of before it shows why, if anything."""
    topic = f"persistent://{namespace}/compacted-and-trimmed"
    keyed(service_url, topic, rounds=2, keys=3, size=0)
    reader = reading.reader_of(service_url, {"topic": topic, **COMPACTED})
    (part,) = reader.partitions()
    admin.unload(topic)
    official.produce(service_url, topic, [Message(b"new", key=key) for key in keys])
    admin.compact(topic)
    trim_first_ledger(admin, topic)
    if len(keys) == 1:
        rows = reading.rows_of(reader, part)
        assert [(row.key, row.value) for row in rows] == [(b"k0", b"1"), (b"k1", b"1")]
    else:
        with pytest.raises(DataLossError, match=topic):
            reading.rows_of(reader, part)


@pytest.mark.parametrize("size", [7, 0], ids=["batched", "unbatched"])
def test_parts_of_a_compacted_topic(
    service_url: str, admin: Admin, topic: str, size: int
) -> None:
    """Starts and ends cut a compacted topic where they cut the whole one."""
    keyed(service_url, topic, rounds=3, keys=7, size=size)
    everything = reading.read(service_url, {"topic": topic})
    admin.compact(topic)
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert len(rows) == 7
    for start, end in ((0, 20), (15, 20), (16, 18), (3, 14), (0, 3), (18, 18)):
        options = {
            "topic": topic,
            "startingOffsets": json.dumps({topic: everything[start].position}),
            "endingOffsets": json.dumps({topic: everything[end].position}),
            **COMPACTED,
        }
        expected = [row for row in everything[start : end + 1] if row in rows]
        assert reading.read(service_url, options) == expected


def test_compacted_from_a_time(service_url: str, admin: Admin, topic: str) -> None:
    """A compacted topic can be read from a time on, and up to one."""
    base_ms = 1_700_000_000_000
    with RawPublisher(service_url, topic) as publisher:
        for i in range(9):
            entry = message(b"%d" % i, key=f"k{i % 4}", publish_time=base_ms + 1000 * i)
            publisher.send(*entry)
    admin.compact(topic)  # leaves 5, 6, 7 and 8
    start = {"startingTime": str(base_ms + 5500)}
    assert values(service_url, topic, **COMPACTED, **start) == [b"6", b"7", b"8"]
    start = {"startingTime": str(base_ms + 1000)}
    assert values(service_url, topic, **COMPACTED, **start) == [b"5", b"6", b"7", b"8"]
    end = {"endingTime": str(base_ms + 6999)}
    assert values(service_url, topic, **COMPACTED, **end) == [b"5", b"6"]
    end = {"endingTime": str(base_ms + 2000)}
    assert values(service_url, topic, **COMPACTED, **end) == []


def test_compacted_up_to_a_time_between_ledgers(
    service_url: str, admin: Admin, topic: str, silences: list[str]
) -> None:
    """The end is right before a ledger, where no entry is."""
    base_ms = 1_700_000_000_000
    for ledger in range(2):
        with RawPublisher(service_url, topic) as publisher:
            for i in range(4):
                time_ms = base_ms + 10_000 * ledger + i
                entry = message(b"%d" % i, key=f"k{i + ledger}", publish_time=time_ms)
                publisher.send(*entry)
        admin.unload(topic)
    admin.compact(topic)  # leaves the first row, and those of the second ledger
    end = {"endingTime": str(base_ms + 5_000)}
    assert values(service_url, topic, **COMPACTED, **end) == [b"0"]
    assert silences == []


def test_compacted_after_trimming(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """What compaction kept is read though the ledger it came from is gone."""
    topic = f"persistent://{namespace}/kept"
    keyed(service_url, topic, rounds=3, keys=3, size=0)
    admin.compact(topic)
    admin.unload(topic)
    official.produce(service_url, topic, [Message(b"new", key="k9")])
    trim_first_ledger(admin, topic)
    expected = [(b"k0", b"2"), (b"k1", b"2"), (b"k2", b"2"), (b"k9", b"new")]
    rows = reading.read(service_url, {"topic": topic, **COMPACTED})
    assert [(row.key, row.value) for row in rows] == expected
    assert rows == official_compacted(service_url, topic)


# -- transactions ----------------------------------------------------------------------


def test_transactions(service_url: str, topic: str, silences: list[str]) -> None:
    """Committed rows are rows, aborted ones never, and an open one caps the end."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):

        def send(value: bytes, **txn: Any) -> str:
            place = publisher.send(*batch([member(value), member(value)]), **txn)
            return json.dumps({topic: f"{place[0]}:{place[1]}"})

        committed, aborted, left_open = (transactions.begin(topic) for _ in range(3))
        send(b"plain")
        send(b"committed", txn=committed)
        send(b"aborted", txn=aborted)
        transactions.end(committed, commit=True)
        transactions.end(aborted, commit=False)
        assert values(service_url, topic) == [b"plain"] * 2 + [b"committed"] * 2

        send(b"second")
        at_open = send(b"open", txn=left_open)
        send(b"behind")
        visible = [b"plain"] * 2 + [b"committed"] * 2 + [b"second"] * 2
        everything = [*visible, b"open", b"open", b"behind", b"behind"]
        assert values(service_url, topic) == visible
        assert values(service_url, topic, startingOffsets=at_open) == []
        cut = {"endingOffsets": at_open, "failOnUnreachedEnd": "false"}
        assert values(service_url, topic, **cut) == visible
        reader = reading.reader_of(service_url, {"topic": topic})
        (part,) = reader.partitions()

        transactions.end(left_open, commit=True)
        assert [row.value for row in reading.rows_of(reader, part)] == visible
        assert values(service_url, topic, startingOffsets=at_open) == everything[6:]
        assert values(service_url, topic) == everything
        rows = official.read_back(service_url, topic)
        assert reading.read(service_url, {"topic": topic}) == rows
    assert silences == []


def test_marker_tail(service_url: str, topic: str, silences: list[str]) -> None:
    """A topic that ends in markers and aborted rows ends at its last row, at once."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):
        publisher.send(*message(b"row"))
        for _ in range(5):
            txn = transactions.begin(topic)
            publisher.send(*message(b"aborted"), txn=txn)
            transactions.end(txn, commit=False)
    assert values(service_url, topic) == [b"row"]
    assert silences == []


def test_only_aborted_rows(service_url: str, admin: Admin, topic: str) -> None:
    """A topic in which everything was aborted has no rows and needs no task."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):
        txn = transactions.begin(topic)
        publisher.send(*message(b"aborted"), txn=txn)
        assert reading.plan(service_url, {"topic": topic}) == []  # still open
        transactions.end(txn, commit=False)
        assert reading.plan(service_url, {"topic": topic}) == []
        admin.unload(topic)
        assert reading.plan(service_url, {"topic": topic}) == []
        last = publisher_of_next(service_url, topic)
    assert values(service_url, topic) == [b"next"]
    assert last[1] == 0


def publisher_of_next(service_url: str, topic: str) -> tuple[int, int]:
    """Publish ``next`` with a producer of its own."""
    with RawPublisher(service_url, topic) as publisher:
        return publisher.send(*message(b"next"))


def test_transaction_over_partitions(
    service_url: str, admin: Admin, topic: str
) -> None:
    """A transaction over two partitions shows in both, or in none."""
    admin.create_partitioned(topic, 2)
    names = [f"{topic}-partition-{i}" for i in range(2)]
    with Transactions(service_url) as transactions:
        txn = transactions.begin(*names)
        for name in names:
            with RawPublisher(service_url, name) as publisher:
                publisher.send(*message(name[-1].encode()), txn=txn)
        assert reading.plan(service_url, {"topic": topic}) == []
        transactions.end(txn, commit=True)
    assert values(service_url, topic) == [b"0", b"1"]


def test_aborted_between_plan_and_read(service_url: str, topic: str) -> None:
    """A start at rows that are aborted is where the next ones are."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):
        txn = transactions.begin(topic)
        ledger_id, entry_id = publisher.send(*message(b"aborted"), txn=txn)
        transactions.end(txn, commit=False)
        publisher.send(*message(b"row"))
    start = json.dumps({topic: f"{ledger_id}:{entry_id}"})
    assert values(service_url, topic, startingOffsets=start) == [b"row"]


# -- topics that ended, or hold nothing ------------------------------------------------


def test_terminated(
    service_url: str, admin: Admin, topic: str, silences: list[str]
) -> None:
    """A topic that was ended for good is read to its end."""
    sent = [b"%d" % i for i in range(25)]
    official.produce(service_url, topic, sent, batch=10)
    admin.terminate(topic)
    assert values(service_url, topic) == sent
    admin.unload(topic)
    assert values(service_url, topic) == sent
    assert silences == []


def test_terminated_empty(service_url: str, admin: Admin, topic: str) -> None:
    """A topic that ended before its first row has none, also when loaded again."""
    admin.create_topic(topic)
    admin.terminate(topic)
    for _ in range(2):
        for options in (
            {},
            COMPACTED,
            {"startingTime": "2024-01-01"},
            {"endingTime": "2024-01-01"},
        ):
            assert reading.plan(service_url, {"topic": topic, **options}) == []
        admin.unload(topic)


def test_empty(service_url: str, admin: Admin, topic: str) -> None:
    """A topic that has no rows costs no task; a range may begin in it all the same."""
    admin.create_topic(topic)
    assert reading.plan(service_url, {"topic": topic}) == []
    admin.unload(topic)
    assert reading.plan(service_url, {"topic": topic}) == []
    assert reading.plan(service_url, {"topic": topic, **COMPACTED}) == []


def test_all_trimmed(service_url: str, admin: Admin, namespace: str) -> None:
    """A topic whose rows were all removed is as empty as one that never had any."""
    topic = f"persistent://{namespace}/trimmed"
    official.produce(service_url, topic, [b"gone"] * 5)
    admin.unload(topic)
    admin.lookup(topic)  # loads it again, and its next ledger is open
    trim_first_ledger(admin, topic)
    assert admin.internal_stats(topic)["numberOfEntries"] == 0
    for options in ({}, COMPACTED, {"startingTime": "2024-01-01"}):
        assert reading.plan(service_url, {"topic": topic, **options}) == []


def test_topic_with_a_schema(service_url: str, topic: str) -> None:
    """A topic with a schema gives its columns, and the schema's version."""
    with official.client(service_url) as one:
        producer = one.create_producer(topic, schema=pulsar.schema.StringSchema())
        producer.send("größer")
        producer.close()
    options = {"topic": topic, "metadataColumns": "__schemaVersion"}
    reader = reading.reader_of(service_url, options)
    (part,) = reader.partitions()
    (row,) = pa.Table.from_batches(list(reader.read(part))).to_pylist()
    assert row == {"value": "größer", "__schemaVersion": 0}


def test_some_partitions_have_rows(service_url: str, admin: Admin, topic: str) -> None:
    """Only partitions with rows become tasks, whatever their number."""
    admin.create_partitioned(topic, 12)
    for index in (2, 10):
        name = f"{topic}-partition-{index}"
        official.produce(service_url, name, [b"%d" % index] * 3, batch=3)
    ranges = reading.plan(service_url, {"topic": topic})
    assert [one.partition for one in ranges] == [2, 10]
    rows = reading.read(service_url, {"topic": topic})
    assert [(row.value, row.message_id[2]) for row in rows] == [
        *[(b"2", 2)] * 3,
        *[(b"10", 10)] * 3,
    ]
