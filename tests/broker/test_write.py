# SPDX-License-Identifier: Apache-2.0
"""What the sink writes, read back by the official client and by our own reader."""

from __future__ import annotations

import base64
import itertools
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest

from pulsar_spark.arrow.hashing import boost_hash
from pulsar_spark.arrow.schema import STRING_MAP, TIMESTAMP
from pulsar_spark.errors import BadRowError, MessageTooLargeError
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.task import TaskWriter, WriteSummary
from spark_topics.sink.write import Task
from tests.support import official, reading
from tests.support.official import CODECS, Message, Row
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

#: Not only beyond ASCII, but beyond 16 bits, too.
TEXT = "größer Ünïcödé 日本語 🚀 \u0000 end"

#: Winter and summer differ there, by half hours off UTC.
TIME_ZONE = "America/St_Johns"

SCHEME = "persistent://"
DELIVERY = "__deliverAtTime"

#: Of each key the partition of seven where the Java client's JavaStringHash puts it,
#: and its Murmur3_32Hash.
JAVA_PARTITIONS = {
    "": (0, 0),
    "key-0": (3, 6),
    "key-1": (4, 6),
    "key-2": (5, 4),
    "key-3": (6, 4),
    "key-10": (2, 2),
    "polygenelubricants": (0, 3),
    "größer": (4, 6),
    "日本語": (5, 6),
    "🚀": (4, 2),
    "a🚀b": (6, 0),
    "Zürich": (0, 2),
    "AP8=": (2, 0),  # bytes 00 FF: what is hashed is the text that is sent
}


# -- writing ---------------------------------------------------------------------------


def save(frame: DataFrame, service_url: str, topic: str = "", **options: str) -> None:
    """A batch write; "_" in the name of an option stands for a dot."""
    writer = frame.write.format("pulsar").mode("append")
    writer.options(**given(service_url, topic, options)).save()


def given(service_url: str, topic: str, options: dict[str, str]) -> dict[str, str]:
    """Options by their names."""
    named = {"topic": topic} if topic else {}
    dotted = {
        f"pulsar.producer.{name.removeprefix('p_')}" if name[:2] == "p_" else name: text
        for name, text in options.items()
    }
    return {"service.url": service_url, **named, **dotted}


def write(
    service_url: str,
    topic: str,
    columns: dict[str, Sequence[Any]] | Iterable[pa.RecordBatch],
    **options: str,
) -> WriteSummary:
    """What one task does, without Spark, which is the same for all rows."""
    written = parse_write_options(given(service_url, topic, options), streaming=False)
    batches = [table(columns)] if isinstance(columns, dict) else columns
    return TaskWriter(written, Task(0), {}).write(batches)


def table(columns: dict[str, Sequence[Any]]) -> pa.RecordBatch:
    """Rows by columns, times as milliseconds; the types are Spark's."""
    arrays = []
    for name, values in columns.items():
        is_bytes = any(isinstance(value, bytes) for value in values)
        type_ = pa.binary() if is_bytes else _TYPES.get(name, pa.string())
        if type_ == TIMESTAMP:
            values = [None if ms is None else ms * 1000 for ms in values]
        arrays.append(pa.array(values, type_))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


_TYPES = {
    "__eventTime": TIMESTAMP,
    "__deliverAtTime": TIMESTAMP,
    "__messageProperties": STRING_MAP,
    "__partition": pa.int32(),
}


# -- every column ----------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A row, as it goes into a DataFrame.

    Attributes:
        value, key, ordering_key: Text or bytes.
        event_us, deliver_ms: Since 1970.
    """

    value: str | bytes | None
    key: str | bytes | None
    ordering_key: str | bytes | None
    event_us: int | None
    properties: dict[str, str] | None
    deliver_ms: int | None
    partition: int | None


def assorted(count: int, *, binary: bool) -> list[Sent]:
    """Rows in which each part is there or not, in all combinations."""
    rows = []
    for i in range(count):
        value = "" if i % 7 == 0 else f"{i} {TEXT}"
        row = Sent(
            value=None if i % 11 == 5 else value,
            key=f"key-{i % 9} {TEXT}" if i % 2 else None,
            ordering_key=f"order-{i % 5} {TEXT}" if i % 3 == 0 else None,
            # Finer than a millisecond: dropped. Summer, winter and the hour between.
            event_us=(1_667_712_000_000 + i * 60_000) * 1000 + i % 1000
            if i % 5 < 3
            else None,
            properties={f"{TEXT}{n}": f"{i}{TEXT}" for n in range(i % 4)} or None,
            deliver_ms=1_600_000_000_000 + i if i % 13 == 0 else None,
            partition=i % 3 if i % 17 < 5 else None,
        )
        rows.append(_in_binary(row, i) if binary else row)
    return rows


def _in_binary(row: Sent, i: int) -> Sent:
    def data(text: str | bytes | None) -> bytes | None:
        assert not isinstance(text, bytes)
        return text.encode() + bytes([0, 0xFF, i % 256]) if text else as_bytes(text)

    # An ordering key that is not text is beyond the official client for Python.
    order = as_bytes(row.ordering_key)
    return replace(row, value=data(row.value), key=data(row.key), ordering_key=order)


def frame_of(spark: SparkSession, rows: Sequence[Sent], *, binary: bool) -> DataFrame:
    """One partition of rows, its columns in no special order."""
    bytes_ = "binary" if binary else "string"
    frame = spark.createDataFrame(
        [
            (r.properties, r.partition, r.event_us, r.value, r.deliver_ms, *keys_of(r))
            for r in rows
        ],
        "__messageProperties map<string,string>, __partition int, event bigint,"
        f" value {bytes_}, deliver bigint, __orderingKey {bytes_}, __key {bytes_}",
    )
    return frame.coalesce(1).selectExpr(
        "__messageProperties",
        "cast(__partition as smallint) __partition",
        "timestamp_micros(event) __eventTime",
        "value",
        "timestamp_millis(deliver) __deliverAtTime",
        "__orderingKey",
        "__key",
    )


def keys_of(row: Sent) -> tuple[Any, Any]:
    """Ordering key and key."""
    return row.ordering_key, row.key


def read_columns(service_url: str, topic: str, columns: str) -> list[dict[str, Any]]:
    """These metadata columns of all rows, by our reader."""
    options = {"topic": topic, "metadataColumns": columns}
    reader = reading.reader_of(service_url, options)
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def as_bytes(text: str | bytes | None) -> bytes | None:
    """Text in UTF-8."""
    return text.encode() if isinstance(text, str) else text


def read_by_both(service_url: str, topic: str, partitions: int = 0) -> list[Row]:
    """What our reader gives, once it is what the official client gives.

    That one shows a binary key as the base64 that is sent.
    """
    ours = reading.read(service_url, {"topic": topic})
    theirs = official.read_back(service_url, topic, partitions=partitions)
    shown = [
        replace(row, key=_shown_key(row.key, other.key))
        for row, other in zip(ours, theirs, strict=True)
    ]
    assert shown == theirs
    return ours


def _shown_key(ours: bytes | None, theirs: bytes | None) -> bytes | None:
    in_base64 = base64.b64encode(ours or b"")
    return in_base64 if theirs == in_base64 else ours or None


def batch_of(rows: Sequence[Sent], *, binary: bool) -> pa.RecordBatch:
    """The rows of `frame_of` as Spark hands them over."""
    type_ = pa.binary() if binary else pa.string()
    columns: list[tuple[str, pa.DataType, list[Any]]] = [
        ("__messageProperties", STRING_MAP, [r.properties for r in rows]),
        ("__partition", pa.int16(), [r.partition for r in rows]),
        ("__eventTime", TIMESTAMP, [r.event_us for r in rows]),
        ("value", type_, [r.value for r in rows]),
        (DELIVERY, TIMESTAMP, [r.deliver_ms and r.deliver_ms * 1000 for r in rows]),
        ("__orderingKey", type_, [r.ordering_key for r in rows]),
        ("__key", type_, [r.key for r in rows]),
    ]
    return pa.record_batch({name: pa.array(found, t) for name, t, found in columns})


@pytest.mark.parametrize("batching", ["true", "false"])
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_every_column(
    service_url: str, admin: Admin, topic: str, *, binary: bool, batching: str
) -> None:
    """All that rows say comes back; NULL as nothing."""
    admin.create_partitioned(topic, 3)
    sent = assorted(300, binary=binary)
    rows = batch_of(sent, binary=binary)
    write(service_url, topic, [rows], p_batchingEnabled=batching)
    check_columns(service_url, topic, sent)


@pytest.mark.parametrize(
    ("binary", "batching"), [(False, "true"), (True, "false")], ids=["text", "binary"]
)
def test_every_column_through_spark(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topic: str,
    *,
    binary: bool,
    batching: str,
) -> None:
    """The same, also in another time zone."""
    admin.create_partitioned(topic, 3)
    sent = assorted(300, binary=binary)
    session_time_zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    try:
        frame = frame_of(spark, sent, binary=binary)
        save(frame, service_url, topic, p_batchingEnabled=batching)
    finally:
        spark.conf.set("spark.sql.session.timeZone", session_time_zone)
    check_columns(service_url, topic, sent)


def check_columns(service_url: str, topic: str, sent: list[Sent]) -> None:
    """The topic of three partitions has these rows, whole and in order."""
    rows = read_by_both(service_url, topic, 3)
    # Of a partition, rows come in the order in which they were written.
    by_partition: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row.topic].append(row)
    found = []
    for one in sent:
        for name, waiting in by_partition.items():
            if waiting and _matches(waiting[0], one, name):
                found.append(waiting.pop(0))
                break
        else:
            pytest.fail(f"{one} is none of {[w[:1] for w in by_partition.values()]}")
    assert len(found) == len(rows)
    times = [
        row["__deliverAtTime"] for row in read_columns(service_url, topic, DELIVERY)
    ]
    delivery_ms = [round(time.timestamp() * 1000) for time in times if time]
    assert sorted(delivery_ms) == [one.deliver_ms for one in sent if one.deliver_ms]


def _matches(row: Row, one: Sent, name: str) -> bool:
    in_partition = int(name[-1])
    return (
        row.value == as_bytes(one.value)
        and row.key == as_bytes(one.key)
        and row.ordering_key == as_bytes(one.ordering_key)
        and row.properties == (one.properties or {})
        and row.event_time_ms == (one.event_us and one.event_us // 1000)
        and one.partition in (None, in_partition)
    )


@pytest.mark.parametrize("batching", ["true", "false"])
def test_times_at_their_edges(service_url: str, topic: str, batching: str) -> None:
    """Rounded down to the millisecond; the first one of 1970 is none to every client.

    The last one is the last of the year 9999, where Python's times end.
    """
    given = [0, 999, 1000, 1999, 1_699_999_999_999_999, 253_402_300_799_999_999, None]
    times = pa.array(given, TIMESTAMP)
    columns = [pa.array(map(str, given)), times, times]
    rows = pa.RecordBatch.from_arrays(columns, names=["value", "__eventTime", DELIVERY])
    write(service_url, topic, [rows], p_batchingEnabled=batching)
    kept = [us and (us // 1000 or None) for us in given[1:]]
    expected = [None, *kept]
    assert [row.event_time_ms for row in read_by_both(service_url, topic)] == expected
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    for name in ("__eventTime", DELIVERY):
        found = [row[name] for row in read_columns(service_url, topic, name)]
        found_us = [at and (at - epoch) // timedelta(microseconds=1) for at in found]
        assert found_us == [ms and ms * 1000 for ms in expected], name


# -- codecs and batches ----------------------------------------------------------------


def values_of(rows: Iterable[Row]) -> list[bytes | None]:
    """Their payloads."""
    return [row.value for row in rows]


@pytest.mark.parametrize("batching", ["true", "false"])
@pytest.mark.parametrize("codec", CODECS)
def test_codecs(service_url: str, topic: str, codec: str, batching: str) -> None:
    """Both clients read each codec, empty payloads and tombstones included."""
    values = [None, "", *(f"{i} {TEXT}" * (i % 50) for i in range(100))]
    keys = [f"key-{i % 9}" for i in range(len(values))]
    written = write(
        service_url,
        topic,
        {"value": values, "__key": keys},
        p_compressionType=codec,
        p_batchingEnabled=batching,
        topicAutoCreation="true",
    )
    rows = read_by_both(service_url, topic)
    assert values_of(rows) == [as_bytes(value) for value in values]
    assert [row.key for row in rows] == [as_bytes(key) for key in keys]
    assert written.rows == len(values)
    assert (len(entries_of(rows)) == 1) == (batching == "true")


def entries_of(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows by the entries that hold them."""
    groups = itertools.groupby(rows, lambda row: (row.topic, *row.message_id[:2]))
    return [list(group) for _, group in groups]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"p_batchingMaxMessages": "7"}, [7, 7, 7, 4]),
        ({"p_batchingMaxMessages": "1"}, [1] * 25),
        # Each row takes 4 bytes, 3 of metadata (18 nn nn) and 200: 4 have room.
        ({"p_batchingMaxBytes": "828"}, [4, 4, 4, 4, 4, 4, 1]),
        ({"p_batchingMaxBytes": "827"}, [3, 3, 3, 3, 3, 3, 3, 3, 1]),
        ({"p_batchingMaxBytes": "100"}, [1] * 25),
    ],
    ids=str,
)
def test_batches(
    service_url: str, topic: str, options: dict[str, str], sizes: list[int]
) -> None:
    """They are closed by rows and by bytes, whatever RecordBatches rows come in."""
    values = [f"{i:0200}" for i in range(25)]
    batches = [table({"value": values[:9]}), table({"value": values[9:]})]
    write(
        service_url,
        topic,
        batches,
        topicAutoCreation="true",
        p_batchingMaxPublishDelayMicros="60000000",
        **options,
    )
    rows = read_by_both(service_url, topic)
    assert values_of(rows) == [value.encode() for value in values]
    entries = entries_of(rows)
    assert [len(entry) for entry in entries] == sizes
    for entry in entries:
        assert [row.message_id[3] for row in entry] == list(range(len(entry)))


def test_rows_do_not_wait_for_a_slow_source(service_url: str, topic: str) -> None:
    """Where Spark had none for longer than the delay, those before go out at once."""
    rows = table({"value": ["0", "1", "2"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        yield rows
        time.sleep(0.3)
        yield rows

    write(service_url, topic, batches(), p_batchingMaxPublishDelayMicros="200000")
    entries = entries_of(read_by_both(service_url, topic))
    assert sum(map(len, entries)) == 9
    # The machine may stall between the first two; never between the last two.
    assert len(entries[-1]) == 3


@pytest.mark.parametrize("batching", ["true", "false"])
def test_the_order_of_rows(
    service_url: str, admin: Admin, topic: str, batching: str
) -> None:
    """Within a topic partition rows of a task come in their own, however routed."""
    admin.create_partitioned(topic, 3)
    count = 3000
    columns: dict[str, list[Any]] = {
        "value": [str(i) for i in range(count)],
        "__key": [f"k{i % 7}" if i % 2 else None for i in range(count)],
        "__partition": [i % 3 if i % 5 == 0 else None for i in range(count)],
        "__deliverAtTime": [1 if i % 11 == 0 else None for i in range(count)],
    }
    rows = table(columns)
    batches = [rows.slice(start, 700) for start in range(0, count, 700)]
    write(service_url, topic, batches, p_batchingEnabled=batching)
    found = partitions_of(service_url, topic)
    assert sum(map(len, found.values())) == count
    for number, part in found.items():
        numbers = [int(value or b"") for value in values_of(part)]
        assert numbers == sorted(numbers), number


@pytest.mark.parametrize("ordering", [False, True], ids=["key", "orderingKey"])
def test_key_based_batches(service_url: str, topic: str, *, ordering: bool) -> None:
    """Each entry has one key, by which consumers share a topic; the order is kept."""
    keys = [None if i % 7 == 6 else f"k{i % 7}" for i in range(210)]
    columns: dict[str, list[Any]] = {"value": [str(i) for i in range(210)]}
    columns["__orderingKey" if ordering else "__key"] = keys
    options = {"p_batcherBuilder": "KEY_BASED", "topicAutoCreation": "true"}
    write(service_url, topic, columns, **options)
    rows = read_by_both(service_url, topic)
    assert len(rows) == 210
    by_key = defaultdict(list)
    for entry in entries_of(rows):
        (key,) = {row.ordering_key if ordering else row.key for row in entry}
        by_key[key] += values_of(entry)
    assert len(entries_of(rows)) == 7
    for i in range(7):
        key = as_bytes(keys[i])
        assert by_key[key] == [str(n).encode() for n in range(i, 210, 7)]


def test_key_shared(service_url: str, topic: str) -> None:
    """Consumers that share a topic by key each get all rows of theirs.

    Also of keys that are bytes, and where some rows cannot be in a batch.
    """
    owners: dict[str, set[int]] = defaultdict(set)
    received = [0, 0]
    with official.client(service_url) as client:
        for number in range(2):

            def take(_: Any, message: pulsar.Message, by: int = number) -> None:
                owners[message.partition_key()].add(by)
                received[by] += 1

            client.subscribe(
                topic, "s", pulsar.ConsumerType.KeyShared, message_listener=take
            )
        columns: dict[str, list[Any]] = {
            "value": [str(i) for i in range(400)],
            "__key": [bytes([0xFF, i % 20]) for i in range(400)],
            "__deliverAtTime": [1 if i // 20 % 5 == 0 else None for i in range(400)],
        }
        write(service_url, topic, columns, p_batcherBuilder="KEY_BASED")
        await_true(lambda: sum(received) == 400, "the last row")
    assert len(owners) == 20
    assert {len(owner) for owner in owners.values()} == {1}
    assert all(received)


# -- where rows go ---------------------------------------------------------------------


def partitions_of(service_url: str, topic: str) -> dict[int, list[Row]]:
    """Rows of our reader, by partition."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in reading.read(service_url, {"topic": topic}):
        found[int(row.topic.rpartition("-")[2])].append(row)
    return found


@pytest.mark.parametrize("scheme", ["JavaStringHash", "Murmur3_32Hash"])
def test_keys_to_partitions(
    service_url: str, admin: Admin, topic: str, scheme: str
) -> None:
    """Consumers of a partition find the keys there that the Java client puts there."""
    admin.create_partitioned(topic, 7)
    at = ["JavaStringHash", "Murmur3_32Hash"].index(scheme)
    write(
        service_url,
        topic,
        {"value": list(JAVA_PARTITIONS), "__key": list(JAVA_PARTITIONS)},
        p_hashingScheme=scheme,
    )
    write(
        service_url,
        topic,
        {"value": ["AP8="], "__key": [b"\x00\xff"]},
        p_hashingScheme=scheme,
    )
    rows = official.read_back(service_url, topic, partitions=7)
    found = {(row.value, int(row.topic[-1])) for row in rows}
    assert found == {(key.encode(), p[at]) for key, p in JAVA_PARTITIONS.items()}


def test_keys_to_the_partitions_of_cpp(
    service_url: str, admin: Admin, topic: str
) -> None:
    """With BoostHash a key is where the C++ client puts it, and those around it."""
    keys = [f"{'x' * (n % 40)}{n}" for n in range(1000)]
    keys += ["größer", "日本", "\U0001f600", "\0", " "]
    found = []
    for name in topic, f"{topic}-ours":
        admin.create_partitioned(name, 7)
        if name == topic:
            official.produce(
                service_url, name, [Message(b"v", key=key) for key in keys]
            )
        else:
            columns = {"value": ["v"] * len(keys), "__key": keys}
            write(service_url, name, columns, p_hashingScheme="BoostHash")
        rows = official.read_back(service_url, name, partitions=7)
        found.append({row.key: int(row.topic[-1]) for row in rows})
    theirs, ours = found
    assert len(ours) == len(keys)
    assert ours == theirs


def test_an_empty_key_by_boost_hash(service_url: str, admin: Admin, topic: str) -> None:
    """It is a key, as for C++; Python's client leaves it out, and takes turns."""
    admin.create_partitioned(topic, 7)
    columns = {"value": ["v"] * 20, "__key": [""] * 20}
    write(service_url, topic, columns, p_hashingScheme="BoostHash")
    (partition,) = partitions_of(service_url, topic)
    assert partition == boost_hash(b"") % 7


def test_key_encoding(service_url: str, admin: Admin, topic: str) -> None:
    """Text keys as bytes: on the wire they are base64, and chosen by that."""
    admin.create_partitioned(topic, 3)
    keys = ["größer", "", None, "k"]
    columns = {"value": ["v"] * 4, "__key": keys}
    write(service_url, topic, columns, p_keyEncoding="bytes")
    theirs = official.read_back(service_url, topic, partitions=3)
    expected = {base64.b64encode(k.encode()) for k in keys if k} | {None}
    assert {row.key for row in theirs} == expected
    ours = reading.read(service_url, {"topic": topic})
    found = Counter(row.key for row in ours)
    assert found == Counter(None if key is None else key.encode() for key in keys)


def test_rows_without_keys(service_url: str, admin: Admin, topic: str) -> None:
    """Round robin goes on after each full batch; or one partition takes all."""
    admin.create_partitioned(topic, 3)
    columns = {"value": [str(i) for i in range(60)]}
    write(service_url, topic, columns, p_batchingMaxMessages="10")
    found = partitions_of(service_url, topic)
    assert {p: len(rows) for p, rows in found.items()} == {0: 20, 1: 20, 2: 20}
    assert all(len(entry) == 10 for p in found for entry in entries_of(found[p]))
    write(service_url, topic, columns, p_messageRoutingMode="SinglePartition")
    after = partitions_of(service_url, topic)
    assert sorted(len(rows) for rows in after.values()) == [20, 20, 80]


def test_partition_column(service_url: str, admin: Admin, topic: str) -> None:
    """It decides; where it is NULL the key does."""
    admin.create_partitioned(topic, 7)
    columns: dict[str, list[Any]] = {
        "value": ["0", "6", "key", "6"],
        "__key": ["key-2"] * 4,
        "__partition": [0, 6, None, 6],
    }
    write(service_url, topic, columns)
    found = partitions_of(service_url, topic)
    assert {p: values_of(rows) for p, rows in found.items()} == {
        0: [b"0"],
        6: [b"6", b"6"],
        5: [b"key"],
    }


def test_topics_of_rows(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Each row goes to its topic, which may be a partition; the option wins over it."""
    names = [f"{topic}-{n}" for n in range(3)]
    short = names[0].removeprefix(SCHEME)
    parted = names[2]
    admin.create_topic(names[0])
    admin.create_topic(names[1])
    admin.create_partitioned(parted, 3)
    names.append(f"{parted}-partition-1")
    rows = [(f"{i}", names[i % 4], f"k{i % 5}") for i in range(200)]
    # One topic by two names is one topic.
    rows[::8] = [(value, short, key) for value, _, key in rows[::8]]
    frame = spark.createDataFrame(rows, "value string, __topic string, __key string")
    save(frame.coalesce(1), service_url)
    for name, also in (names[0], short), (names[1], ""):
        found = values_of(read_by_both(service_url, name))
        assert found == [v.encode() for v, named, _ in rows if named in (name, also)]
    parts = partitions_of(service_url, parted)
    assert sum(map(len, parts.values())) == 100
    assert {int(row.value or b"") for row in parts[1]} >= set(range(3, 200, 4))
    # Once more, all to one topic.
    save(frame.coalesce(1), service_url, names[0])
    assert len(reading.read(service_url, {"topic": names[0]})) == 250


@pytest.mark.parametrize("type_", ["partitioned", "non-partitioned"])
def test_auto_creation(
    service_url: str, admin: Admin, namespace: str, type_: str
) -> None:
    """The broker's policy says with how many partitions; both clients find the rows."""
    policy: dict[str, Any] = {"allowAutoTopicCreation": True, "topicType": type_}
    partitions = 0
    if type_ == "partitioned":
        partitions = policy["defaultNumPartitions"] = 3
    admin.set_policy(namespace, "autoTopicCreation", policy)
    topic = f"persistent://{namespace}/new"
    columns = {"value": [str(i) for i in range(30)]}
    write(
        service_url, topic, columns, topicAutoCreation="true", p_batchingMaxMessages="5"
    )
    assert admin.partitions(topic) == partitions
    assert len(read_by_both(service_url, topic, partitions)) == 30
    topics = {row.topic for row in reading.read(service_url, {"topic": topic})}
    assert len(topics) == max(1, partitions)


# -- large rows ------------------------------------------------------------------------

LARGE = 12 << 20


def test_chunks(service_url: str, topic: str) -> None:
    """A row that no entry holds comes back whole, between small ones."""
    value = bytes(range(256)) * (LARGE // 256)
    columns = {"value": [b"before", value, b"behind"], "__key": ["k"] * 3}
    options = {"p_chunkingEnabled": "true", "topicAutoCreation": "true"}
    written = write(service_url, topic, columns, **options)
    assert written.rows == 3
    rows = read_by_both(service_url, topic)
    assert values_of(rows) == columns["value"]
    assert {row.key for row in rows} == {b"k"}
    assert rows[2].message_id[:2] > rows[1].message_id[:2]
    assert rows[1].message_id[1] == rows[0].message_id[1] + 3  # the last chunk's


@pytest.mark.parametrize("batching", ["true", "false"])
def test_small_chunks(
    service_url: str, topic: str, admin: Admin, batching: str
) -> None:
    """As small as was asked for; compressed before they are cut."""
    options = {
        "p_chunkingEnabled": "true",
        "p_chunkMaxMessageSize": "1000",
        "p_batchingEnabled": batching,
        "p_compressionType": "ZSTD",
        "topicAutoCreation": "true",
    }
    values = [b"x" * 10_000, bytes(range(256)) * 2, official_noise(5000)]
    write(service_url, topic, {"value": values}, **options)
    assert values_of(read_by_both(service_url, topic)) == values
    entries = admin.internal_stats(topic)["entriesAddedCounter"]
    assert 1 + 1 + 5 <= entries <= 1 + 1 + 6


def official_noise(size: int) -> bytes:
    """What no codec makes smaller."""
    import random

    return random.Random(size).randbytes(size)


def test_the_limit_of_a_row(service_url: str, topic: str) -> None:
    """To the byte: what may be is stored, what may not names size and limit.

    Of the rows behind it none is sent.
    """
    options = {
        "p_producerName": "largest",
        "p_batchingMaxMessages": "1",
        "topicAutoCreation": "true",
    }
    limit = (5 << 20) - (64 << 10)
    with pytest.raises(MessageTooLargeError) as caught:
        write(service_url, topic, {"value": [b"x" * limit]}, **options)
    assert caught.value.limit_bytes == limit
    room = 2 * limit - caught.value.size_bytes
    fitting = [b"x" * (room - 1), b"x" * room]
    columns = {"value": [*fitting, b"x" * (room + 1), b"behind", b"behind"]}
    with pytest.raises(MessageTooLargeError) as caught:
        write(service_url, topic, columns, **options)
    assert caught.value.size_bytes == limit + 1
    for part in (topic, str(limit + 1), str(limit), "chunkingEnabled"):
        assert part in caught.value.message
    assert values_of(read_by_both(service_url, topic)) == fitting


def test_a_large_key(service_url: str, topic: str) -> None:
    """It stands in an entry twice, in front of its row and of all; both rows arrive."""
    limit = (5 << 20) - (64 << 10)
    keys = ["k" * (limit // 2 - 24), "l"]
    options = {"p_batchingMaxBytes": "4m", "topicAutoCreation": "true"}
    write(service_url, topic, {"value": ["a", "b"], "__key": keys}, **options)
    rows = read_by_both(service_url, topic)
    assert [(row.key, row.value) for row in rows] == [
        (keys[0].encode(), b"a"),
        (b"l", b"b"),
    ]


# -- producers -------------------------------------------------------------------------


def test_what_statistics_show(service_url: str, admin: Admin, topic: str) -> None:
    """Name, properties and access mode while a task writes; ids in the messages."""
    publishers = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield table({"value": ["0", "1", "2"]})
        publishers.extend(admin.stats(topic)["publishers"])
        yield table({"value": ["3", "4", "5"]})

    write(
        service_url,
        topic,
        batches(),
        topicAutoCreation="true",
        p_producerName="größer",
        p_initialSequenceId="41",
        p_properties='{"team": "ü", "a": "b"}',
        p_accessMode="Exclusive",
        p_batchingMaxMessages="4",
    )
    (publisher,) = publishers
    assert publisher["producerName"] == "größer"
    assert publisher["metadata"] == {"team": "ü", "a": "b"}
    assert publisher["accessMode"] == "Exclusive"
    assert publisher["clientVersion"].startswith("pulsar-spark")
    assert admin.stats(topic)["publishers"] == []
    found = read_columns(service_url, topic, "__producerName,__sequenceId")
    assert [row["__sequenceId"] for row in found] == list(range(42, 48))
    assert {row["__producerName"] for row in found} == {"größer"}


def test_guarantee_none(service_url: str, topic: str) -> None:
    """Without a fault, rows that nobody waits for are there, too."""
    columns = {"value": [str(number) for number in range(1000)]}
    options = {"deliveryGuarantee": "none", "topicAutoCreation": "true"}
    write(service_url, topic, columns, **options)
    values = Counter(values_of(read_by_both(service_url, topic)))
    assert values == Counter(str(i).encode() for i in range(1000))


# -- through Spark ---------------------------------------------------------------------


def test_no_rows(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Neither rows nor producers: the topic stays as it is."""
    admin.create_topic(topic)
    frame = spark.createDataFrame([], "value binary, __key string")
    save(frame, service_url, topic)
    assert admin.internal_stats(topic)["entriesAddedCounter"] == 0


@pytest.mark.parametrize("by", ["foreachBatch", "sink"])
def test_stream(
    spark: SparkSession, service_url: str, topic: str, tmp_path: Path, by: str
) -> None:
    """A stream into the sink, or a batch write of each micro-batch: each row is there.

    A second run of the query adds the new rows.
    """
    for number in range(2):
        lines = "".join(f"{number} {i} {TEXT[:15]}\n" for i in range(100))
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text(lines)
        rows = spark.readStream.text(str(tmp_path / "in"))
        stream = rows.writeStream.option("checkpointLocation", str(tmp_path / "to"))
        if by == "sink":
            options = given(service_url, topic, {"topicAutoCreation": "true"})
            stream = stream.format("pulsar").options(**options)
        else:
            stream = stream.foreachBatch(
                lambda frame, _: save(
                    frame, service_url, topic, topicAutoCreation="true"
                )
            )
        query = stream.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None
    values = values_of(read_by_both(service_url, topic))
    assert len(values) == 200
    assert values[:100] == [f"0 {i} {TEXT[:15]}".encode() for i in range(100)]


def test_a_topic_and_its_partition(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Rows that name both go through one producer, so that none counts as a duplicate.

    Where rows are numbered, their order would be lost: this is refused.
    """
    admin.set_deduplication(namespace, enabled=True)
    topic = f"persistent://{namespace}/both"
    admin.create_partitioned(topic, 2)
    partitions = [f"{topic}-partition-{index}" for index in range(2)]
    names = [topic, *partitions, topic.removeprefix(SCHEME)]
    columns = {
        "value": [str(i) for i in range(100)],
        "__topic": [names[i % 4] for i in range(100)],
    }
    options = {"p_batchingMaxMessages": "5"}
    written = write(service_url, "", columns, **options)
    assert (written.rows, written.duplicate_rows) == (100, 0)
    values = Counter(values_of(reading.read(service_url, {"topic": topic})))
    assert values == Counter(str(i).encode() for i in range(100))
    options |= {"deliveryGuarantee": "idempotent", "idempotenceId": "both"}
    with pytest.raises(BadRowError, match="`__partition`"):
        write(service_url, "", columns, **options)
