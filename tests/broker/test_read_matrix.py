# SPDX-License-Identifier: Apache-2.0
"""What our reader gives, beside what the official client gives, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest

from pulsar_spark import PulsarDataSource, decode_message_id
from pulsar_spark.spark.batch import PulsarReader
from tests.support import official, reading
from tests.support.combinations import combinations
from tests.support.entries import batch, member, message
from tests.support.official import CODECS, Message
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

#: Not only beyond ASCII, but beyond 16 bits, too.
TEXT = "größer Ünïcödé 日本語 🚀 \u0000 end"


def assorted(count: int) -> list[Message]:
    """Messages in which each part is there or not, in all combinations."""
    messages = []
    for i in range(count):
        value: bytes | None = f"{i} {TEXT} ".encode() * (i % 7)  # each seventh is empty
        if i % 11 == 5:
            value = None
        messages.append(
            Message(
                value,
                key=f"key-{i % 9} {TEXT}" if i % 2 else None,
                ordering_key=f"order-{i % 5} {TEXT}" if i % 3 == 0 else None,
                properties={f"{TEXT}{n}": f"{i}{TEXT}" for n in range(i % 4)},
                event_time_ms=1_600_000_000_000 + i if i % 5 < 3 else None,
            )
        )
    return messages


@combinations(
    codec=tuple(CODECS),
    size={"batch100": 100, "batch1": 1, "unbatched": 0},
    partitions={"": 0, "partitioned": 3},
)
def test_same_rows(
    service_url: str, admin: Admin, topic: str, codec: str, size: int, partitions: int
) -> None:
    """Every row is the official client's, in every part, and what was sent."""
    if partitions:
        admin.create_partitioned(topic, partitions)
    sent = assorted(250)
    if (codec, size) == ("ZLIB", 0):
        # The official client drops these, see the test below.
        sent = [one for one in sent if one.value]
    official.produce(
        service_url, topic, sent, batch=size, compression_type=CODECS[codec]
    )
    expected = official.read_back(service_url, topic, partitions=partitions)
    assert reading.read(service_url, {"topic": topic}) == expected
    assert len(expected) == len(sent)
    if not partitions:
        assert [row.message for row in expected] == sent
    indexes = {row.message_id[3] for row in expected}
    assert (max(indexes) > 1) if size == 100 else indexes == {0 if size else -1}


def test_empty_zlib(service_url: str, topic: str) -> None:
    """Empty and null payloads sent with ZLIB, unbatched, are rows.

    The official client stores them and cannot read them back: it takes their eight
    compressed bytes for damage.
    """
    sent = assorted(20)
    official.produce(service_url, topic, sent, compression_type=CODECS["ZLIB"])
    rows = reading.read(service_url, {"topic": topic})
    assert [row.message for row in rows] == sent


def test_message_id_bytes(service_url: str, admin: Admin, topic: str) -> None:
    """The official client and we read ``__messageId`` as the id the producer got."""
    admin.create_partitioned(topic, 2)
    ids = official.produce(service_url, topic, [b"%d" % i for i in range(40)], batch=10)
    reader = reading.reader_of(service_url, {"topic": topic})
    data = [
        value
        for part in reader.partitions()
        for record_batch in reader.read(part)
        for value in record_batch.column("__messageId").to_pylist()
    ]
    theirs = [official.id_of(pulsar.MessageId.deserialize(one)) for one in data]
    ours = [decode_message_id(one) for one in data]
    assert sorted(theirs) == sorted(official.id_of(one) for one in ids)
    assert theirs == [(*one.position, one.partition, one.batch_index) for one in ours]


def test_other_clients_forms(service_url: str, topic: str) -> None:
    """Forms that only other clients write are read as the official client reads them.

    A binary key, in base64 on the wire, gives its bytes; an empty key is not a missing
    one; what a batch's own metadata says of its first message is nobody else's.
    """
    time_ms = 1_650_000_000_123
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"plain", key="k", event_time=time_ms))
        publisher.send(*message(b"binary", key=b"\x00\xff\x80"))
        publisher.send(*message(b"empty key", key=""))
        publisher.send(*message(b"null key", null_partition_key=True))
        publisher.send(*message(None, key="tombstone"))
        publisher.send(*message(b"", key="empty"))
        publisher.send(*message(b"bare"), checksum=False)
        members = [
            member(
                b"first", key=b"\xfe", event_time=time_ms, ordering_key="ö".encode()
            ),
            member(None, key="second"),
            member(b"", properties={"a": "", "": "b"}),
        ]
        publisher.send(
            *batch(members, partition_key="/g==", partition_key_b64_encoded=True)
        )
        publisher.send(*batch(members[1:], compression=2), checksum=False)
    rows = reading.read(service_url, {"topic": topic})
    theirs = official.read_back(service_url, topic)
    # The official client shows base64 as it is, and cannot tell an empty key.
    keys: dict[int, Any] = {1: b"\x00\xff\x80", 2: b"", 7: b"\xfe"}
    for number, (row, other) in enumerate(zip(rows, theirs, strict=True)):
        key = keys.get(number, other.key)
        assert row.key == key
        assert row.ordering_key == other.ordering_key
        for part in ("message_id", "value", "properties", "event_time_ms", "topic"):
            assert getattr(row, part) == getattr(other, part), (number, part)
    assert rows[1].key == b"\x00\xff\x80"
    assert rows[8].event_time_ms is None
    assert [row.value for row in rows[-2:]] == [None, b""]


def test_java_zlib(service_url: str, topic: str) -> None:
    """A ZLIB payload that was flushed but never ended, as Java's is, is read."""
    import zlib

    value = TEXT.encode() * 100
    packer = zlib.compressobj()
    payload = packer.compress(value) + packer.flush(zlib.Z_SYNC_FLUSH)
    with RawPublisher(service_url, topic) as publisher:
        metadata, _ = message(value, compression=2)
        publisher.send(metadata, payload)
    assert [row.value for row in reading.read(service_url, {"topic": topic})] == [value]


def test_all_columns(service_url: str, topic: str) -> None:
    """The further columns hold what the producer wrote, or NULL."""
    with RawPublisher(service_url, topic, producer_name="größer") as publisher:
        metadata, payload = message(
            b"v",
            sequence_id=7,
            publish_time=1_700_000_000_001,
            schema_version=(3).to_bytes(8, "big"),
            replicated_from="far",
            deliver_at_time=1_700_000_000_002,
        )
        publisher.send(metadata, payload)
        publisher.send(*batch([member(b"a", sequence_id=2**63), member(b"b")]))
    reader = reading.reader_of(service_url, {"topic": topic, "metadataColumns": "all"})
    (part,) = reader.partitions()
    rows = pa.Table.from_batches(list(reader.read(part))).to_pylist()
    assert [row["value"] for row in rows] == [b"v", b"a", b"b"]
    first, second, third = rows
    assert {row["__producerName"] for row in rows} == {"größer"}
    assert first["__sequenceId"] == 7
    assert second["__sequenceId"] == -(2**63)  # BIGINT has a sign
    assert third["__sequenceId"] == 1  # its entry's
    assert round(first["__publishTime"].timestamp() * 1000) == 1_700_000_000_001
    assert round(first["__deliverAtTime"].timestamp() * 1000) == 1_700_000_000_002
    assert first["__schemaVersion"] == 3
    assert first["__replicatedFrom"] == "far"
    assert first["__redeliveryCount"] == 0
    for name in ("__partition", "__brokerPublishTime", "__index", "__orderingKey"):
        assert first[name] is None
    for name in ("__schemaVersion", "__replicatedFrom", "__deliverAtTime"):
        assert second[name] is None


def test_projection(service_url: str, topic: str) -> None:
    """A schema of some columns in another order gives these in that order."""
    official.produce(service_url, topic, assorted(20), batch=10)
    expected = official.read_back(service_url, topic)
    source = PulsarDataSource({"service.url": service_url, "topic": topic})
    whole = source.schema()
    from pyspark.sql.types import StructType

    reader = source.reader(StructType([whole["__key"], whole["value"]]))
    assert isinstance(reader, PulsarReader)
    (part,) = reader.partitions()
    table = pa.Table.from_batches(list(reader.read(part)))
    assert table.column_names == ["__key", "value"]
    assert table.column("value").to_pylist() == [row.value for row in expected]
    assert table.column("__key").to_pylist() == [row.key for row in expected]


@pytest.mark.parametrize(("rows", "size"), [(7, "4m"), (10_000, "2k")])
def test_record_batches_are_bounded(
    service_url: str, topic: str, rows: int, size: str
) -> None:
    """RecordBatches respect the limits of rows and bytes, whatever an entry holds."""
    sent = [b"%05d" % i * 20 for i in range(500)]
    official.produce(service_url, topic, sent, batch=100)
    options = {
        "topic": topic,
        "rowsPerArrowBatch": str(rows),
        "bytesPerArrowBatch": size,
    }
    reader = reading.reader_of(service_url, options)
    (part,) = reader.partitions()
    record_batches = list(reader.read(part))
    values = [one.column("value").to_pylist() for one in record_batches]
    assert [value for some in values for value in some] == sent
    limit = min(rows, 2048 // 100)
    assert all(len(some) <= limit for some in values)
    assert len(values) < 4 * len(sent) / limit


def spark_rows(
    spark: SparkSession, service_url: str, topics: Iterable[str]
) -> list[official.Row]:
    """Topics through Spark, in its own order."""
    frame = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topics", ",".join(topics))
        .option("metadataColumns", reading.COLUMNS)
        .load()
    )
    times = {
        name: frame[name].cast("double").alias(name)
        for name in ("__publishTime", "__eventTime")
    }
    rows = frame.select(*(times.get(name, name) for name in frame.columns)).collect()
    binary = ("value", "__key", "__messageId", "__orderingKey")
    found = [row.asDict() for row in rows]
    return [
        reading.row_of(
            {
                k: bytes(v) if k in binary and v is not None else v
                for k, v in row.items()
            }
        )
        for row in found
    ]


def test_through_spark(
    spark: SparkSession, service_url: str, admin: Admin, topic: str
) -> None:
    """Spark shows the official client's rows of all layouts, in every part."""
    layouts = (("ZSTD", 100, 3), ("LZ4", 0, 0), ("SNAPPY", 1, 0))
    sent, topics, expected = assorted(250), [], []
    for codec, size, partitions in layouts:
        topics.append(name := f"{topic}-{codec}")
        if partitions:
            admin.create_partitioned(name, partitions)
        official.produce(
            service_url, name, sent, batch=size, compression_type=CODECS[codec]
        )
        theirs = official.read_back(service_url, name, partitions=partitions)
        assert len(theirs) == len(sent)
        expected += theirs

    def place(row: official.Row) -> tuple[Any, ...]:
        return row.topic, row.message_id

    rows = spark_rows(spark, service_url, topics)
    assert sorted(rows, key=place) == sorted(expected, key=place)


def test_default_columns_in_spark(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """Without options a row is ``value`` and the Scala connector's six columns."""
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"v", key=b"\xff", properties={"a": TEXT}))
        publisher.send(*message(None))
    frame = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .load()
    )
    assert frame.dtypes == [
        ("value", "binary"),
        ("__key", "binary"),
        ("__topic", "string"),
        ("__messageId", "binary"),
        ("__publishTime", "timestamp"),
        ("__eventTime", "timestamp"),
        ("__messageProperties", "map<string,string>"),
    ]
    first, second = frame.collect()
    assert first["value"] == b"v"
    assert first["__key"] == b"\xff"
    assert first["__topic"] == topic
    assert first["__messageProperties"] == {"a": TEXT}
    assert (second["value"], second["__key"]) == (None, None)
    assert second["__messageProperties"] == {}
    assert frame.where("value is null").count() == 1
