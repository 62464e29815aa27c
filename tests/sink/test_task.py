# SPDX-License-Identifier: Apache-2.0
"""What a task sends, to a broker that does what a test tells it to. Without Spark."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.hashing import murmur3_32
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import (
    BadRowError,
    BrokerError,
    IdempotenceError,
    InDoubtError,
    MessageTooLargeError,
    TransactionLostError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import WriteOptions, parse_write_options
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.sink import numbering
from pulsar_spark.sink.task import TaskWriter, WriteSummary
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode, TxnAction
from spark_topics.sink.write import Task
from tests.support import patience
from tests.support.entries import members_of
from tests.support.reading import read
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    let_go,
    refuse,
    refuse_entry,
    seal,
    usual,
)
from tests.support.waiting import wait_until

TOPIC = TopicName.parse("persistent://public/default/rows")
PARTITIONS = [TOPIC.partition(number).full_name for number in range(2)]
MARKERS = "persistent://public/default/log-markers"
P = "pulsar.producer."


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker with a topic of two partitions, and transactions."""
    with ScriptedBroker() as broker:
        broker.partitions[TOPIC.full_name] = 2
        broker.partitions[COORDINATORS] = 1
        for name in PARTITIONS:
            broker.add_topic(name)
        yield broker


def options_of(broker: ScriptedBroker, **further: str) -> WriteOptions:
    """Options of a write to the topic."""
    given = {
        "service.url": broker.url,
        "topic": TOPIC.full_name,
        "deliveryGuarantee": "exactly-once",
        "pulsar.client.operationTimeoutMs": "5000",
        "pulsar.client.maxBackoffIntervalNanos": "100000000",
        **further,
    }
    return parse_write_options(given, streaming=False)


def rows_at(broker: ScriptedBroker, *topics: str) -> list[list[bytes]]:
    """The values that each of some topic partitions holds."""
    return [[row.value for row in read(broker.url, {"topics": t})] for t in topics]


def stored_at(broker: ScriptedBroker, *names: str) -> list[bytes]:
    """The values of batches that some segments hold."""
    return [
        value
        for name in names
        for entry in broker.topics.get(name, ())
        for _, value in members_of(entry.payload)
    ]


def write(
    options: WriteOptions, batches: Iterable[pa.RecordBatch], **given: Any
) -> WriteSummary:
    """What a task does with some rows."""
    return TaskWriter(options, Task(0), {TOPIC: PARTITIONS}, **given).write(batches)


def write_marked(options: WriteOptions, message: bytes) -> None:
    """A row in a transaction, with a message that is to prove its end."""
    transaction = TaskTransaction.begin(shared_pool(options.client), 60_000)
    write(
        options,
        [pa.record_batch({"value": [b"row" * 100]})],
        transaction=transaction,
        marker=(MARKERS, message),
    )


@pytest.mark.parametrize(
    "option",
    [
        *((P + "compressionType", codec) for codec in ("LZ4", "ZLIB", "ZSTD")),
        (P + "compressionType", "SNAPPY"),
        (P + "chunkMaxMessageSize", "250"),
        (P + "batchingEnabled", "false"),
    ],
    ids="=".join,
)
def test_a_proof_is_written_plainly(
    scripted: ScriptedBroker, option: tuple[str, str]
) -> None:
    """Whatever the options say of rows: a later run reads it, and knows of no codec."""
    chunking = {P + "chunkingEnabled": "true"} if "chunk" in option[0] else {}
    options = options_of(scripted, **dict([option]), **chunking)
    message = b"[1,query,0,0]" * 40
    write_marked(options, message)
    (entry,) = scripted.topics[MARKERS]
    assert entry.payload == message
    assert entry.metadata.compression == pb.CompressionType.NONE
    assert not entry.metadata.HasField("num_chunks_from_msg")
    assert entry.metadata.HasField("txnid_least_bits")


def test_chunks_without_room_are_named(scripted: ScriptedBroker) -> None:
    """The option that is too small is the one to change."""
    small = {P + "chunkingEnabled": "true", P + "chunkMaxMessageSize": "1"}
    with pytest.raises(MessageTooLargeError, match=r"Raise `pulsar.producer.chunkMax"):
        write(options_of(scripted, **small), [pa.record_batch({"value": [b"x" * 9]})])


@pytest.mark.parametrize("mode", ["Exclusive", "ExclusiveWithFencing"])
def test_tasks_share_the_topic_of_proofs(scripted: ScriptedBroker, mode: str) -> None:
    """Though none shares a topic partition of the rows with another."""
    options = options_of(scripted, **{P + "accessMode": mode})
    write_marked(options, b"[1]")
    modes = {b.topic: b.producer_access_mode for b in scripted.bodies["PRODUCER"]}
    assert modes.pop(MARKERS) == ProducerAccessMode.SHARED
    assert set(modes.values()) == {ProducerAccessMode[_constant(mode)]}


def _constant(mode: str) -> str:
    words = {"Exclusive": "EXCLUSIVE", "ExclusiveWithFencing": "EXCLUSIVE_WITH_FENCING"}
    return words[mode]


# -- the loop --------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_row(scripted: ScriptedBroker) -> None:
    """Neither when a writer is made, nor for batches without rows."""
    writer = TaskWriter(options_of(scripted), Task(0), {TOPIC: PARTITIONS})
    assert not scripted.requests
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert writer.write([empty, empty]) == WriteSummary()
    assert not scripted.requests


def test_what_a_task_tells(scripted: ScriptedBroker) -> None:
    """Rows and bytes that are stored, and in how many topic partitions."""
    options = options_of(scripted, deliveryGuarantee="at-least-once")
    batch = pa.record_batch(
        {"value": [b"a", b"b", b"c"], "__partition": pa.array([1, 0, 1], pa.int32())}
    )
    written = write(options, [batch, batch])
    assert (written.rows, written.duplicate_rows, written.topic_partitions) == (6, 0, 2)
    assert written.size_bytes > 6
    assert not written.entries
    assert rows_at(scripted, *PARTITIONS) == [[b"b", b"b"], [b"a", b"c"] * 2]


def test_what_a_task_tells_of_a_transaction(scripted: ScriptedBroker) -> None:
    """The last entry of each topic partition and of the markers; any does for all."""
    options = options_of(scripted, deliveryGuarantee="exactly-once")
    batch = pa.record_batch(
        {"value": [b"a", b"b", b"c"], "__partition": pa.array([1, 0, 1], pa.int32())}
    )
    transaction = TaskTransaction.begin(shared_pool(options.client), 60_000)
    written = write(
        *(options, [batch, batch]), transaction=transaction, marker=(MARKERS, b"end")
    )
    last = {topic: scripted.topics[topic][-1].place for topic in written.entries}
    assert set(last) == {MARKERS, *PARTITIONS}
    assert last == {
        topic: entry and entry.position for topic, entry in written.entries.items()
    }


@pytest.mark.parametrize("guarantee", ["none", "at-least-once"])
def test_rows_are_new_under_a_name_that_was_used_before(
    scripted: ScriptedBroker, guarantee: str
) -> None:
    """Only `idempotent` has brokers drop rows, wherever numbers are to begin."""
    scripted.deduplicates = True
    options = options_of(
        scripted,
        deliveryGuarantee=guarantee,
        **{P + "producerName": "mine", P + "initialSequenceId": "0"},
    )
    for values in ([b"a", b"b"], [b"c", b"d", b"e"]):
        assert write(options, [pa.record_batch({"value": values})]).rows == len(values)
    assert rows_at(scripted, PARTITIONS[0]) == [[b"a", b"b", b"c", b"d", b"e"]]


def test_rows_that_name_their_topics(scripted: ScriptedBroker) -> None:
    """Each topic is looked up once, and asked about before anything is sent to it."""
    other = "persistent://public/default/other"
    scripted.add_topic(other)
    asked: list[tuple[list[str], int]] = []

    def check(topics: list[str], schema: SchemaInfo | None) -> None:
        assert schema is None
        asked.append((topics, scripted.requests["PRODUCER"]))

    options = replace(
        options_of(scripted, deliveryGuarantee="at-least-once"), topic=None
    )
    batch = pa.record_batch(
        {"value": [b"a", b"b", b"c"], "__topic": [other, TOPIC.full_name, "other"]}
    )
    written = write(options, [batch, batch], check_topics=check)
    assert written.rows == 6
    assert rows_at(scripted, other) == [[b"a", b"c"] * 2]
    (first, before), (second, between) = asked
    assert (first, before) == ([other], 0)
    assert (second, between) == ([PARTITIONS[0]], 1)


@pytest.mark.parametrize("encoding", ["text", "bytes"])
def test_how_keys_travel(scripted: ScriptedBroker, encoding: str) -> None:
    """Text as it is, or as bytes, as the option says; rows have the same keys."""
    unbatched = {P + "batchingEnabled": "false", P + "keyEncoding": encoding}
    rows = pa.record_batch({"value": [b"a", b"b", b"c"], "__key": ["k", "k", None]})
    write(options_of(scripted, deliveryGuarantee="at-least-once", **unbatched), [rows])
    plain = pa.record_batch({"value": [b"d"]})
    write(options_of(scripted, deliveryGuarantee="at-least-once", **unbatched), [plain])
    stored = [entry.metadata for name in PARTITIONS for entry in scripted.topics[name]]
    is_bytes = encoding == "bytes"
    keys = [
        (one.partition_key, one.partition_key_b64_encoded)
        for one in stored
        if one.HasField("partition_key")
    ]
    assert keys == [("aw==" if is_bytes else "k", is_bytes)] * 2
    found = read(scripted.url, {"topics": ",".join(PARTITIONS)})
    assert sorted(row.value for row in found if row.key == b"k") == [b"a", b"b"]
    assert sorted(row.value for row in found if row.key is None) == [b"c", b"d"]


def test_rows_do_not_wait_for_slow_ones(scripted: ScriptedBroker) -> None:
    """What is there goes out when the next batch was slow to come."""
    stored: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"a"]})
        time.sleep(0.02)
        yield pa.record_batch({"value": [b"b"]})
        wait_until(lambda: scripted.topics[PARTITIONS[0]], "the first row")
        stored.append(len(scripted.topics[PARTITIONS[0]]))

    options = options_of(
        scripted,
        deliveryGuarantee="at-least-once",
        **{P + "batchingMaxPublishDelayMicros": "10000"},
    )
    write(options, batches())
    assert stored == [1]


def test_rows_of_a_key_share_an_entry(scripted: ScriptedBroker) -> None:
    """And with no other key; rows without one share one, too."""
    options = options_of(
        scripted,
        deliveryGuarantee="at-least-once",
        **{
            P + "batcherBuilder": "KEY_BASED",
            P + "messageRoutingMode": "SinglePartition",
        },
    )
    batch = pa.record_batch(
        {
            "value": [b"1", b"2", b"3", b"4", b"5"],
            "__key": ["x", None, "x", None, "x"],
            "__partition": pa.array([0] * 5, pa.int32()),
        }
    )
    assert write(options, [batch]).rows == 5
    entries = scripted.topics[PARTITIONS[0]]
    assert {
        (entry.metadata.partition_key, entry.metadata.num_messages_in_batch)
        for entry in entries
    } == {("x", 3), ("", 2)}


#: How a scalable topic is divided, and what follows where a segment of it is sealed:
#: of each segment its entry buckets.
BUCKETS = {
    "one": ([], []),
    "several": ([0x4000, 0x8000, 0xC000], [0x8000]),
    "one, then several": ([], [0x1000, 0x2000]),
}


@pytest.mark.usefixtures("settling")
@pytest.mark.parametrize("batching", ["DEFAULT", "KEY_BASED"])
@pytest.mark.parametrize("hidden", [None, 0, 1], ids=["whole", "sealed", "late"])
@pytest.mark.parametrize("buckets", BUCKETS)
def test_entries_of_a_bucket(
    scripted: ScriptedBroker, buckets: str, batching: str, hidden: int | None
) -> None:
    """Keys of several buckets share no entry, and each entry says the hashes it has."""
    before, after = BUCKETS[buckets]
    topic = TopicName.parse("topic://public/default/keyed")
    segments = [topic.segment(0, 0xFFFF, number).full_name for number in (1, 2)]
    scripted.scalable = {topic.full_name: topic.full_name}
    scripted.segments[0].entry_bucket_splits.extend(before)
    scripted.server_version = "Pulsar Server5.0.1"
    scripted.add_topic(segments[0])
    if hidden is not None:
        sealed = seal(
            2,
            "TopicTerminatedError",
            after=3,
            stores=True,
            hidden=hidden,
            entry_bucket_splits=after,
        )
        scripted.always("SEND", sealed)
    keys = [None, *(f"k{number % 40}" for number in range(499))]
    rows = pa.record_batch(
        {
            "value": [b"%d" % number for number in range(500)],
            "__key": pa.array(keys, pa.string()),
        }
    )
    options = options_of(
        scripted,
        topic=topic.full_name,
        deliveryGuarantee="at-least-once",
        **{f"{P}batchingMaxMessages": "50", f"{P}batcherBuilder": batching},
    )
    summary = TaskWriter(options, Task(0), {topic: segments[:1]}).write(
        [rows.slice(0, 200), rows.slice(200)]
    )
    assert summary.rows == 500
    last: dict[str, int] = {}
    count = 0
    for name, splits in zip(segments, (before, after), strict=True):
        for stored in scripted.topics.get(name, ()):
            metadata = stored.metadata
            hashes = []
            for single, value in members_of(stored.payload):
                key = single.partition_key
                hashes.append(murmur3_32(key.encode()) & 0xFFFF)
                assert last.get(key, -1) < int(value)
                last[key] = int(value)
                count += 1
            assert metadata.entry_hash_min == min(hashes)
            assert metadata.entry_hash_max == max(hashes)
            assert len({bisect(splits, number) for number in hashes}) == 1
            assert len(set(hashes)) == 1 or batching == "DEFAULT"
    assert count == 500
    assert (hidden is not None) == bool(scripted.topics.get(segments[1]))


def test_a_segment_that_is_sealed_before_the_first_receipt(
    scripted: ScriptedBroker,
) -> None:
    """What an earlier task stored there under a chosen name is not taken for new."""
    topic = TopicName.parse("topic://public/default/named")
    segments = [topic.segment(0, 0xFFFF, number).full_name for number in (1, 2)]
    scripted.scalable = {topic.full_name: topic.full_name}
    scripted.add_topic(segments[0])
    options = options_of(
        scripted,
        topic=topic.full_name,
        deliveryGuarantee="at-least-once",
        **{f"{P}producerName": "mine"},
    )
    rows = [pa.record_batch({"value": [b"a", b"b", b"c"]})]
    TaskWriter(options, Task(0), {topic: segments[:1]}).write(rows)
    sealed = seal(2, "TopicTerminatedError", after=0, stores=False)
    scripted.always("SEND", sealed)
    written = TaskWriter(options, Task(0, batch_id=1), {topic: segments[:1]}).write(
        rows
    )
    assert written.rows == 3
    (stored,) = scripted.topics[segments[1]]
    assert [value for _, value in members_of(stored.payload)] == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("settling")
def test_rows_that_name_a_segment_which_is_split(scripted: ScriptedBroker) -> None:
    """They go on to its children, those on their way and later ones, in a retry, too.

    A segment that was sealed before the write began stays an error.
    """
    topic = TopicName.parse("topic://public/default/named")
    segments = [topic.segment(0, 0xFFFF, number).full_name for number in (1, 2)]
    scripted.scalable = {topic.full_name: topic.full_name}
    scripted.server_version = "Pulsar Server5.0.1"
    scripted.add_topic(segments[0])
    sealed = seal(2, "TopicTerminatedError", after=3, stores=False)
    scripted.always("SEND", sealed)
    options = options_of(
        scripted,
        topic=topic.full_name,
        deliveryGuarantee="at-least-once",
        **{f"{P}batchingMaxMessages": "10"},
    )
    values = [b"%03d" % number for number in range(100)]
    rows = pa.record_batch(
        {
            "value": values,
            "__key": ["k"] * 100,
            "__partition": pa.array([1] * 100, pa.int32()),
        }
    )
    known = {topic: segments[:1]}
    batches = [rows.slice(0, 50), rows.slice(50)]
    assert TaskWriter(options, Task(0), known).write(batches).rows == 100
    assert stored_at(scripted, *segments) == values
    assert scripted.topics[segments[1]]
    assert TaskWriter(options, Task(0), known).write([rows]).rows == 100
    with pytest.raises(BadRowError, match="__partition is 1, which is no active"):
        TaskWriter(options, Task(0), {topic: segments[1:]}).write([rows])


@pytest.mark.parametrize("version", ["Scripted 1.0", "Pulsar Server5.0.0-M1"])
def test_entries_of_a_broker_that_knows_no_buckets(
    scripted: ScriptedBroker, version: str
) -> None:
    """They say nothing of hashes."""
    topic = TopicName.parse("topic://public/default/keyed")
    segment = topic.segment(0, 0xFFFF, 1).full_name
    scripted.scalable = {topic.full_name: topic.full_name}
    scripted.server_version = version
    scripted.add_topic(segment)
    options = options_of(
        scripted, topic=topic.full_name, deliveryGuarantee="at-least-once"
    )
    rows = pa.record_batch({"value": [b"a", b"b"], "__key": ["k", "l"]})
    TaskWriter(options, Task(0), {topic: [segment]}).write([rows])
    (stored,) = scripted.topics[segment]
    assert stored.messages == 2
    assert not stored.metadata.HasField("entry_hash_min")


def test_rows_that_a_replay_could_not_number(scripted: ScriptedBroker) -> None:
    """A topic and its partitions by name, in one idempotent write: an error."""
    scripted.deduplicates = True
    options = options_of(scripted, deliveryGuarantee="idempotent", idempotenceId="job")
    batch = pa.record_batch(
        {"value": [b"a", b"b"], "__topic": [PARTITIONS[0], TOPIC.full_name]}
    )
    with pytest.raises(BadRowError, match="they would not be numbered in order"):
        write(replace(options, topic=None), [batch])
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_a_replay_is_cut_alike(scripted: ScriptedBroker) -> None:
    """However slowly rows come, and in whatever batches: the broker drops them all."""
    scripted.deduplicates = True
    options = options_of(
        scripted,
        deliveryGuarantee="idempotent",
        idempotenceId="job",
        **{P + "batchingMaxPublishDelayMicros": "1", P + "batchingMaxMessages": "3"},
    )
    values = [b"%d" % n for n in range(10)]
    whole = [pa.record_batch({"value": values})]
    assert write(options, whole).rows == 10
    pieces = [pa.record_batch({"value": [value]}) for value in values]
    again = write(options, pieces)
    assert (again.rows, again.duplicate_rows) == (0, 10)


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "idempotent"])
def test_a_task_that_is_repeated(scripted: ScriptedBroker, guarantee: str) -> None:
    """What its first attempt stored is there twice, unless brokers drop it."""
    scripted.deduplicates = guarantee == "idempotent"
    given = {"idempotenceId": "job"} if guarantee == "idempotent" else {}
    every = {P + "batchingMaxMessages": "1"}
    options = options_of(scripted, deliveryGuarantee=guarantee, **given, **every)

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"a", b"b"]})
        wait_until(lambda: scripted.topics[PARTITIONS[0]], "the first row")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(options, failing())
    write(options, [pa.record_batch({"value": [b"a", b"b"]})])
    wait_until(lambda: not scripted.producers, "the end of producers")
    stored = [row for rows in rows_at(scripted, *PARTITIONS) for row in rows]
    assert stored.count(b"a") == (1 if guarantee == "idempotent" else 2)


_CHOSEN = {P + "producerName": "name", "deliveryGuarantee": "at-least-once"}
_REPEATED = {"idempotenceId": "name", "deliveryGuarantee": "idempotent"}
#: Options by which two tasks have producers of one name.
NAMED = {
    "named": _CHOSEN,
    "numbered": {**_CHOSEN, P + "initialSequenceId": "7"},
    "idempotent": _REPEATED,
    "in another order": _REPEATED,
}


@settings(max_examples=60, deadline=None)
@given(
    how=st.sampled_from(sorted(NAMED)),
    rows=st.integers(1, 12),
    others=st.integers(1, 12),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    broken=st.integers(1, 12),
    stores=st.booleans(),
    deduplicates=st.booleans(),
    splits=st.booleans(),
)
def test_a_name_that_another_task_takes_while_a_connection_is_away(
    how: str,
    rows: int,
    others: int,
    sizes: tuple[int, int],
    broken: int,
    stores: bool,
    deduplicates: bool,
    splits: bool,
) -> None:
    """Another, which dies. Where the broker would drop rows as its, this one fails.

    So it does where the topic partition is a segment, which is then split, and no
    PRODUCER_SUCCESS comes any more.
    """
    is_same = NAMED[how] is _REPEATED
    is_scalable = splits and not is_same
    domain = "topic" if is_scalable else "persistent"
    topic = TopicName.parse(f"{domain}://public/default/named")
    segments = [topic.segment(0, 0xFFFF, number).full_name for number in (1, 2)]
    names = segments if is_scalable else [topic.full_name]
    mine = [b"mine%d" % number for number in range(rows)]
    theirs = mine if is_same else [b"theirs%d" % number for number in range(others)]
    theirs = theirs[::-1] if how == "in another order" else theirs
    broken_at: list[int] = []
    given = NAMED[how]
    with ScriptedBroker() as broker:
        broker.deduplicates = deduplicates or is_same
        broker.scalable = {name: name for name in [topic.full_name] if is_scalable}
        broker.add_topic(names[0])

        def run(values: list[bytes], size: int, task: int, *, nested: bool) -> None:
            # On connections of its own: that of the other one waits for it.
            options = options_of(
                broker,
                topic=topic.full_name,
                **given,
                **{P + "batchingMaxMessages": str(size)},
                **{"pulsar.client.operationTimeoutMs": "20000" if nested else "5000"},
            )

            def batches() -> Iterator[pa.RecordBatch]:
                yield pa.record_batch({"value": values})
                if nested:
                    raise ZeroDivisionError

            waits = replace(options.client.patience, settling_s=0.0)
            options = replace(options, client=replace(options.client, patience=waits))
            TaskWriter(options, Task(task), {topic: names[:1]}).write(batches())

        def take(broker: ScriptedBroker, session: Session, command: Any) -> None:
            with contextlib.suppress(ZeroDivisionError, IdempotenceError):
                number = 0 if is_same else 1
                run(theirs, sizes[1], number, nested=True)
            if is_scalable:
                broker.replace_segment(names[0], 2)
            usual(broker, session, command)

        def breaks(broker: ScriptedBroker, session: Session, command: Any) -> None:
            broker.script("PRODUCER", take)
            broken_at.append(broken)
            if stores:
                usual(broker, session, command)
            broker.hang_up(session)

        broker.script("SEND", *[usual] * (broken - 1), breaks)
        try:
            run(mine, sizes[0], 0, nested=False)
        except (InDoubtError, IdempotenceError):
            assert broken_at, "no other task had the name"
            return
    count = Counter(stored_at(broker, *names))
    assert count.keys() >= set(mine)
    if how == "idempotent":
        assert set(count.values()) == {1}


def test_a_topic_that_grows_before_a_task_is_repeated(scripted: ScriptedBroker) -> None:
    """Keys move to other partitions, whose brokers do not know these rows."""
    scripted.deduplicates = True
    options = options_of(scripted, deliveryGuarantee="idempotent", idempotenceId="job")
    keys = [f"key-{n}" for n in range(20)]
    rows = pa.record_batch({"value": [b"a"] * 20, "__key": keys})
    more = [*PARTITIONS, TOPIC.partition(2).full_name]
    scripted.add_topic(more[2])
    first = TaskWriter(options, Task(0), {TOPIC: PARTITIONS}).write([rows])
    again = TaskWriter(options, Task(0), {TOPIC: PARTITIONS}).write([rows])
    assert (first.rows, again.rows) == (20, 0)
    with pytest.raises(IdempotenceError, match="the partitions and the schema of"):
        TaskWriter(options, Task(0), {TOPIC: more}).write([rows])


def test_more_rows_than_there_are_numbers(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error before a row takes the number of the next micro-batch's first."""
    scripted.deduplicates = True
    monkeypatch.setattr(numbering, "MOST_ROWS", 4)
    options = options_of(scripted, deliveryGuarantee="idempotent", idempotenceId="job")

    def run(batch_id: int, *values: bytes) -> WriteSummary:
        batches = [pa.record_batch({"value": [value]}) for value in values]
        task = Task(0, batch_id=batch_id)
        return TaskWriter(options, task, {TOPIC: PARTITIONS[:1]}).write(batches)

    for _ in range(2):
        with pytest.raises(BadRowError, match="more than 4 rows in one micro-batch"):
            run(0, b"a", b"b", b"c", b"d", b"no number")
    assert run(0, b"a", b"b", b"c", b"d").rows <= 4
    assert run(1, b"e", b"f").rows == 2
    assert rows_at(scripted, PARTITIONS[0]) == [[b"a", b"b", b"c", b"d", b"e", b"f"]]


def test_many_micro_batches(scripted: ScriptedBroker) -> None:
    """Their numbers begin anew under another name, whatever number Spark gives."""
    scripted.deduplicates = True
    options = options_of(scripted, deliveryGuarantee="idempotent", idempotenceId="job")
    rows = [pa.record_batch({"value": [b"a"]})]
    targets = {TOPIC: PARTITIONS[:1]}
    numbers = (0xFFFF, 0x10000, (1 << 63) - 1)
    for batch_id in numbers:
        for stored in (1, 0):
            task = Task(0, batch_id=batch_id)
            assert TaskWriter(options, task, targets).write(rows).rows == stored
    found = scripted.topics[PARTITIONS[0]]
    assert [entry.metadata.producer_name for entry in found] == [
        "job-0",
        "job-0.1",
        f"job-0.{(1 << 47) - 1}",
    ]
    assert [entry.metadata.sequence_id >> 47 for entry in found] == [0xFFFF, 0, 0xFFFF]


@pytest.mark.parametrize("batching", ["true", "false"])
def test_a_task_with_other_rows(scripted: ScriptedBroker, batching: str) -> None:
    """It fails, and nothing is dropped or stored twice; the same ones add the rest."""
    scripted.deduplicates = True
    options = options_of(
        scripted,
        deliveryGuarantee="idempotent",
        idempotenceId="job",
        **{P + "batchingEnabled": batching, P + "batchingMaxMessages": "3"},
    )

    def run(text: str, size: int = 4, targets: int = 1) -> WriteSummary:
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        batches = [pa.record_batch({"value": [c.encode() for c in p]}) for p in parts]
        task = Task(0, batch_id=5)
        return TaskWriter(options, task, {TOPIC: PARTITIONS[:targets]}).write(batches)

    assert run("abcdefgh").rows == 8
    before = rows_at(scripted, PARTITIONS[0])
    for other in (
        "abcdefg",  # fewer
        "abcdefxhij",
        "bacdefghij",
        "ijklmnopqr",
        "cdefghij",
    ):
        for size in (1, 3, 100):
            with pytest.raises(IdempotenceError, match="has written other rows"):
                run(other, size)
    assert rows_at(scripted, PARTITIONS[0]) == before
    for size in (1, 3, 100):
        assert run("abcdefgh", size).duplicate_rows == 8
    if batching == "true":  # its last row said that there are no more
        with pytest.raises(IdempotenceError, match="has written other rows"):
            run("abcdefghij", 7)
        assert rows_at(scripted, PARTITIONS[0]) == before
        return
    assert run("abcdefghij", 7).rows == 2
    stored = [row for rows in rows_at(scripted, PARTITIONS[0]) for row in rows]
    assert b"".join(stored) == b"abcdefghij"


def test_other_rows_where_rows_name_topics(scripted: ScriptedBroker) -> None:
    """Each topic partition is looked at for itself."""
    scripted.deduplicates = True
    options = options_of(
        scripted,
        deliveryGuarantee="idempotent",
        idempotenceId="job",
        **{P + "batchingEnabled": "false"},
    )
    options = replace(options, topic=None)
    names = [TOPIC.partition(number).full_name for number in (0, 1)]

    def run(first: str, second: str) -> WriteSummary:
        values = [c.encode() for pair in zip(first, second, strict=True) for c in pair]
        columns = {"value": values, "__topic": names * len(first)}
        return TaskWriter(options, Task(0), {}).write([pa.record_batch(columns)])

    assert run("abcd", "efgh").rows == 8
    assert run("abcd", "efgh").duplicate_rows == 8
    with pytest.raises(IdempotenceError) as caught:
        run("abcdxx", "efghxx"[::-1])
    assert caught.value.topic_partition == names[1]
    assert run("abcdxx", "efghyy").rows == 4


# -- transactions that are over --------------------------------------------------------


def write_in_transaction(
    broker: ScriptedBroker, batches: Iterable[pa.RecordBatch], **further: str
) -> WriteSummary:
    """What a task of a batch write does, its transaction aborted where it fails."""
    options = options_of(broker, **further)
    transaction = TaskTransaction.begin(shared_pool(options.client), 60_000)
    try:
        return write(options, batches, transaction=transaction)
    except BaseException:
        transaction.abort()
        raise


def two_batches(between: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """A row, and another once something has happened."""
    yield pa.record_batch({"value": [b"a"]})
    between()
    yield pa.record_batch({"value": [b"b"]})


def test_a_transaction_that_expires_in_a_task(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed before anything else is sent; cause and cure are named."""
    patience.usual(monkeypatch, confirmed_s=0.0)

    def expire() -> None:
        scripted.expire(*scripted.transactions)

    with pytest.raises(TransactionLostError) as caught:
        write_in_transaction(scripted, two_batches(expire))
    text = str(caught.value)
    assert "[PULSAR_TRANSACTION_LOST] Transaction 0:0" in text
    assert "Raise `transactionTimeoutMs`" in text
    assert "60000 ms" in text
    # What may have been sent too late holds nobody back: a later transaction ended.
    assert scripted.ended == [(TxnId(0, 1), TxnAction.COMMIT)]


def test_a_refusal_that_an_expiry_is_behind(scripted: ScriptedBroker) -> None:
    """The broker only says that it does not take the row."""

    def ended(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.expire(*broker.transactions)
        refuse_entry("NotAllowedError", "has been ended")(broker, session, c)

    scripted.script("SEND", ended)
    with pytest.raises(TransactionLostError, match="transactionTimeoutMs"):
        write_in_transaction(scripted, two_batches(lambda: None))


def test_a_refusal_that_has_another_reason(scripted: ScriptedBroker) -> None:
    """The broker's own words are shown."""
    scripted.script("SEND", refuse_entry("NotAllowedError", "too late for that"))
    with pytest.raises(BrokerError, match="too late for that"):
        write_in_transaction(scripted, two_batches(lambda: None))


# -- a broker that closes a topic, as it does when it cannot recover what of its
# -- transactions was aborted within half a minute -------------------------------------


@pytest.mark.parametrize("where", ["idle", "in flight"])
def test_a_topic_that_is_closed_under_a_transaction(
    scripted: ScriptedBroker, where: str
) -> None:
    """The task comes back when the topic does; each row is there once."""
    scripted.deduplicates = True

    def close() -> None:
        wait_until(lambda: scripted.topics[PARTITIONS[0]], "the first row")
        scripted.script("PRODUCER", *[refuse("ServiceNotReady")] * 3)
        if where == "idle":
            scripted.close_producers()
        else:
            scripted.script("SEND", let_go)

    to_one = {
        P + "batchingMaxMessages": "1",
        P + "messageRoutingMode": "SinglePartition",
    }
    written = write_in_transaction(scripted, two_batches(close), **to_one)
    assert (written.rows, len(scripted.topics[PARTITIONS[0]])) == (2, 2)
    assert scripted.transactions, "it is for the driver to end"


def test_a_topic_that_is_closed_over_rows_in_flight(scripted: ScriptedBroker) -> None:
    """Without deduplication nobody can tell of them: the transaction is aborted."""
    scripted.script("SEND", let_go)
    with pytest.raises(InDoubtError):
        write_in_transaction(scripted, two_batches(lambda: None))
    assert scripted.ended == [(TxnId(0, 0), TxnAction.ABORT)]
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_a_topic_of_proofs_that_is_closed(scripted: ScriptedBroker) -> None:
    """A proof is sent again without doubt: twice is as good as once."""

    def unload(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        producer = session.producers[c.send.producer_id]
        assert producer is not None
        (let_go if producer.topic == MARKERS else usual)(broker, session, c)

    scripted.script("SEND", usual, unload)
    write_marked(options_of(scripted), b"[1]")
    assert [entry.payload for entry in scripted.topics[MARKERS]] == [b"[1]"]


# -- rows that are too large -----------------------------------------------------------


@pytest.mark.parametrize(
    "further",
    [
        {},
        {P + "batchingMaxBytes": "10000000"},
        {P + "batchingEnabled": "false"},
        {P + "chunkingEnabled": "true"},
    ],
    ids=lambda further: "-".join(further.values()),
)
@pytest.mark.parametrize("above", ["payload", "metadata"])
def test_nothing_behind_a_row_that_is_too_large(
    scripted: ScriptedBroker, above: str, further: dict[str, str]
) -> None:
    """Also where batches may be larger than any entry, and where metadata tips it."""
    scripted.max_message_size = 200_000
    limit = 200_000 - 64 * 1024
    size = limit + 1 if above == "payload" else limit - 10
    value, text = b"x" * size, "b"
    if P + "chunkingEnabled" in further:  # metadata cannot be cut
        value, text = b"x", "b" * size
    batch = pa.record_batch(
        {
            "value": [b"before", value, b"behind"],
            "__partition": pa.array([1, 1, 0], pa.int32()),
            "__messageProperties": pa.array(
                [[], [("a", text)], []], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    options = options_of(scripted, deliveryGuarantee="at-least-once", **further)
    with pytest.raises(MessageTooLargeError):
        write(options, [batch])
    assert not scripted.topics[PARTITIONS[0]], "what is behind it was sent"


@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_large_rows_among_small_ones(scripted: ScriptedBroker, codec: str) -> None:
    """All of them arrive, in order."""
    scripted.max_message_size = 200_000
    size = 100_000 if codec == "NONE" else 1_000_000
    values = [b"%d" % n + b"." * (size if n % 3 == 1 else 0) for n in range(10)]
    options = options_of(
        scripted,
        deliveryGuarantee="at-least-once",
        **{
            P + "compressionType": codec,
            P + "messageRoutingMode": "SinglePartition",
        },
    )
    written = write(options, [pa.record_batch({"value": values})])
    assert written.rows == 10
    assert [
        row.value for row in read(scripted.url, {"topics": PARTITIONS[0]})
    ] == values
