# SPDX-License-Identifier: Apache-2.0
"""Encrypted messages, beside the official client: each reads what the other writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest

from pulsar_spark import PulsarDataSource
from pulsar_spark.errors import BrokerError, EncryptionError, OptionError
from tests.broker.test_write import write
from tests.support import official, reading, writes
from tests.support.key_pairs import SavedPair, ec_pair, rsa_pair
from tests.support.official import CODECS, Message

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

ACTION = "pulsar.reader.cryptoFailureAction"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> SavedPair:
    """The pair whose name is `ours`."""
    return rsa_pair().save(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> SavedPair:
    """A pair that messages are not encrypted with, of the same name."""
    return rsa_pair(1).save(tmp_path_factory.mktemp("others"), "ours")


def produce(
    service_url: str,
    topic: str,
    keys: SavedPair,
    messages: list[Message | bytes],
    **producer: Any,
) -> list[pulsar.MessageId]:
    """Messages that the official client encrypts."""
    return official.produce(
        service_url,
        topic,
        messages,
        encryption_key=keys.name,
        crypto_key_reader=keys.of_official,
        **producer,
    )


def texts(prefix: str, count: int) -> list[bytes]:
    """Values that compress well and differ."""
    return [f"{prefix}-{number} ".encode() * 50 for number in range(count)]


# -- reading ---------------------------------------------------------------------------


def test_what_the_official_client_encrypts_is_read(
    service_url: str, topic: str, keys: SavedPair
) -> None:
    """Single messages, batches and chunks, each with and without what rows may have.

    Messages and batches come with each codec, chunks without.
    """
    for codec, type_ in CODECS.items():
        given: list[Message | bytes] = [
            Message(b"with all", "key", "order", {"p": "q"}, 1_700_000_000_000),
            Message(b"", "key") if codec == "NONE" else b"-",  # see C++
            *texts(codec, 3),
        ]
        for how in ({"batching_enabled": False}, {"batch": 4}):
            produce(service_url, topic, keys, given, compression_type=type_, **how)
    large = bytes(range(256)) * 9000
    produce(
        service_url,
        topic,
        keys,
        [large + bytes(n) for n in range(3)],
        batching_enabled=False,
        chunking_enabled=True,
        compression_type=pulsar.CompressionType.NONE,
    )
    official.produce(service_url, topic, [b"not encrypted"])
    wanted = official.read_back(service_url, topic, crypto_key_reader=keys.of_official)
    rows = reading.read(service_url, {"topic": topic, **keys.for_reads})
    for number, codec in enumerate(CODECS):
        for first in (10 * number + 2, 10 * number + 7):
            found = [row.value for row in rows[first : first + 3]]
            assert found == texts(codec, 3)
    assert rows == wanted
    assert len(rows) == 10 * len(CODECS) + 4


def test_chunks(service_url: str, topic: str, keys: SavedPair) -> None:
    """Each chunk is encrypted by itself; one message is read from its end on."""
    dice = [bytes([n]) * 12_000_000 for n in range(3)]
    ids = produce(
        service_url,
        topic,
        keys,
        [b"before", *dice, b"after"],
        batching_enabled=False,
        chunking_enabled=True,
    )
    given = {"topic": topic, **keys.for_reads, "metadataColumns": reading.COLUMNS}
    values = [row.value for row in reading.read(service_url, given)]
    assert values == [b"before", *dice, b"after"]
    assert [id_.entry_id() for id_ in ids] == [0, 3, 6, 9, 10], "they are chunked"
    # The range begins within the chunks of a message: the others are looked for.
    start = json.dumps({topic: f"{ids[2].ledger_id()}:{ids[2].entry_id()}"})
    rows = reading.read(service_url, {**given, "startingOffsets": start})
    assert [row.value for row in rows] == [*dice[1:], b"after"]
    closed = {"topic": topic, "startingOffsets": start}
    assert reading.read(service_url, {**closed, ACTION: "DISCARD"}) == []
    rows = reading.read(service_url, {**closed, ACTION: "CONSUME"})
    assert [row.message_id[1] for row in rows] == [6, 7, 8, 9, 10], "chunks are rows"


def test_one_key_for_all_names(service_url: str, topic: str, keys: SavedPair) -> None:
    """A key without a name opens messages for any name."""
    produce(service_url, topic, keys, [b"v"])
    given = {"topic": topic, "encryption.privateKeys": f"file:{keys.private}"}
    assert [row.value for row in reading.read(service_url, given)] == [b"v"]


def test_without_the_key_it_fails(
    service_url: str, topic: str, keys: SavedPair, others: SavedPair
) -> None:
    """The error names the message, the names of its keys, and what to do."""
    (message_id,) = produce(service_url, topic, keys, [b"v"])
    for given, why in (
        ({}, "has no key"),
        (others.for_reads, r"no key of .* opens it"),
    ):
        with pytest.raises(EncryptionError, match=why) as raised:
            reading.read(service_url, {"topic": topic, **given})
        error = raised.value
        at = f"{message_id.ledger_id()}:{message_id.entry_id()}"
        assert (error.message_id, error.topic_partition) == (at, topic)
        assert "'ours'" in error.message
        assert "cryptoFailureAction" in error.message


def test_a_key_that_is_not_there_fails_whatever_the_action(
    service_url: str, topic: str, keys: SavedPair
) -> None:
    """A job does not lose rows because its keys were moved."""
    produce(service_url, topic, keys, [b"v"])
    given = {"encryption.privateKeys": "file:/no/such/key.pem", ACTION: "DISCARD"}
    with pytest.raises(OptionError, match=r"/no/such/key\.pem"):
        reading.read(service_url, {"topic": topic, **given})


@pytest.mark.parametrize("has_key", [False, True])
def test_discard_and_consume(
    service_url: str, topic: str, keys: SavedPair, others: SavedPair, has_key: bool
) -> None:
    """Other rows are all there; an encrypted batch is left out, or is one row."""
    official.produce(service_url, topic, [b"one"])
    produce(service_url, topic, keys, list(texts("hidden", 4)), batch=4)
    produce(service_url, topic, keys, [Message(b"single", "k")], batching_enabled=False)
    official.produce(service_url, topic, [b"two"])
    given = {"topic": topic, **(others.for_reads if has_key else {})}
    rows = reading.read(service_url, {**given, ACTION: "DISCARD"})
    assert [row.value for row in rows] == [b"one", b"two"]
    rows = reading.read(service_url, {**given, ACTION: "CONSUME"})
    sizes = [sum(map(len, texts("hidden", 4))), len(b"single") + 16]
    assert [row.value for row in rows][::3] == [b"one", b"two"]
    assert len(rows) == 4
    assert len(rows[1].value or b"") > sizes[0]
    assert len(rows[2].value or b"") == sizes[1]
    assert rows[2].key == b"k"


def test_messages_that_must_be_encrypted(
    service_url: str, topic: str, keys: SavedPair
) -> None:
    """A read refuses plain messages, or leaves them out; a write sends none."""
    produce(service_url, topic, keys, [b"one", b"two"], batch=2)
    official.produce(service_url, topic, [b"plain"])
    produce(service_url, topic, keys, [b"three"], batching_enabled=False)
    required = {"encryption.required": "true"}
    keyed = {"topic": topic, **required, **keys.for_reads}
    with pytest.raises(EncryptionError, match="is not encrypted"):
        reading.read(service_url, keyed)
    rows = reading.read(service_url, {**keyed, ACTION: "DISCARD"})
    assert [row.value for row in rows] == [b"one", b"two", b"three"]
    with pytest.raises(OptionError, match=r"encryption\.keys"):
        write(service_url, topic, {"value": [b"v"]}, **required)


def test_spark_reads_batch_and_stream(
    spark: SparkSession, service_url: str, topic: str, keys: SavedPair, tmp_path: Path
) -> None:
    """Through Spark, with parts of a topic, and left out of a stream that goes on."""
    hidden = [Message(f"{n}".encode(), f"k{n % 3}") for n in range(300)]
    produce(service_url, topic, keys, list(hidden), batch=10)
    official.produce(service_url, topic, [f"{n}".encode() for n in range(300, 340)])
    given = {"service.url": service_url, "topic": topic}
    frame = spark.read.format("pulsar").options(
        **given, **keys.for_reads, minPartitions="4"
    )
    values = {int(row.value) for row in frame.load().select("value").collect()}
    assert values == set(range(340))
    for name, options, wanted in (
        ("open", keys.for_reads, range(340)),
        ("closed", {ACTION: "DISCARD"}, range(300, 340)),
    ):
        source = spark.readStream.format("pulsar").options(
            **given, **options, startingOffsets="earliest", maxRowsPerTrigger="200"
        )
        query = (
            source.load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format("json")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
        found = spark.read.schema("value STRING").json(str(tmp_path / name)).collect()
        assert sorted(int(row.value) for row in found) == list(wanted)


# -- writing ---------------------------------------------------------------------------


def test_what_we_encrypt_the_official_client_reads(
    service_url: str, topic: str, keys: SavedPair
) -> None:
    """Batches, batches of one key and single messages with each codec, and chunks."""
    columns = {
        "value": [*texts("row", 40), b"", None],
        "__key": [f"key-{n % 4}" for n in range(42)],
    }
    large = {"value": [bytes(range(256)) * 30_000 + bytes(n) for n in range(2)]}
    for codec in CODECS:
        crypt = {**keys.for_writes, "p_compressionType": codec}
        write(service_url, topic, columns, **crypt)
        write(service_url, topic, columns, p_batcherBuilder="KEY_BASED", **crypt)
        write(service_url, topic, columns, p_batchingEnabled="false", **crypt)
    chunks = {"p_compressionType": "NONE", "p_chunkingEnabled": "true"}
    write(service_url, topic, large, **chunks, **keys.for_writes)
    with pytest.raises(EncryptionError):
        reading.read(service_url, {"topic": topic})
    rows = official.read_back(service_url, topic, crypto_key_reader=keys.of_official)
    assert rows == reading.read(service_url, {"topic": topic, **keys.for_reads})
    sent = [
        (str(key).encode(), value)
        for key, value in zip(columns["__key"], columns["value"], strict=True)
    ]
    found = [(row.key, row.value) for row in rows]
    for first in range(0, 126 * len(CODECS), 126):
        assert found[first : first + 42] == sent
        by_key = found[first + 42 : first + 84]
        assert sorted(by_key, key=repr) == sorted(sent, key=repr)
        assert found[first + 84 : first + 126] == sent
    assert [value for _, value in found[126 * len(CODECS) :]] == large["value"]


def test_for_several_recipients(
    service_url: str, topic: str, keys: SavedPair, tmp_path: Path
) -> None:
    """Each of them reads with the own key alone; the payload is not in the topic."""
    second = rsa_pair(1).save(tmp_path, "theirs")
    places = {one.name: f"file:{one.public}" for one in (keys, second)}
    write(
        service_url,
        topic,
        {"value": [b"v"]},
        **{
            "encryption.keys": "ours, theirs",
            "encryption.publicKeys": json.dumps(places),
        },
    )
    for one in (keys, second):
        rows = reading.read(service_url, {"topic": topic, **one.for_reads})
        assert [row.value for row in rows] == [b"v"]
        reader = {"crypto_key_reader": one.of_official}
        assert len(official.read_back(service_url, topic, **reader)) == 1


@pytest.mark.parametrize(
    "guarantee",
    [
        "none",
        pytest.param("at-least-once", marks=pytest.mark.matrix),
        "idempotent",
        "exactly-once",
    ],
)
def test_each_guarantee_where_encryption_is_demanded(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    topic: str,
    keys: SavedPair,
    tmp_path: Path,
    guarantee: str,
) -> None:
    """A namespace takes nothing that is not encrypted: batch writes and streams pass.

    The log of an exactly-once stream is not encrypted, and is elsewhere.
    """
    admin.set_policy(namespace, "encryptionRequired", True)
    admin.set_deduplication(namespace, True)
    sink = f"persistent://{namespace}/sink"
    options = {"deliveryGuarantee": guarantee, **keys.for_writes}
    batch = pa.record_batch({"value": [str(number) for number in range(200)]})
    target = {"service.url": service_url, "topic": sink}
    writes.save(PulsarDataSource({**target, **options}), batch)
    official.produce(service_url, topic, [f"{n}".encode() for n in range(200, 300)])
    if guarantee == "exactly-once":
        options["commitTopic"] = f"{topic}-log"
    query = (
        spark.readStream.format("pulsar")
        .options(**{"service.url": service_url, "topic": topic})
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("pulsar")
        .options(**target, **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    found = official.read_back(service_url, sink, crypto_key_reader=keys.of_official)
    assert sorted(int(row.value or b"") for row in found) == list(range(300))
    ours = reading.read(service_url, {"topic": sink, **keys.for_reads})
    assert ours == found


def test_a_topic_that_demands_encryption_says_so(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Without the options the error names them."""
    admin.set_policy(namespace, "encryptionRequired", True)
    topic = f"persistent://{namespace}/t"
    with pytest.raises(BrokerError, match=r"encryption\.keys"):
        write(service_url, topic, {"value": [b"v"]})


def test_send_sends_as_it_is(
    service_url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a key cannot be used, rows are sent all the same if the options say so."""
    given = {"encryption.keys": "k", "encryption.publicKeys": "file:/no/such.pem"}
    with pytest.raises(OptionError, match=r"/no/such\.pem"):
        write(service_url, topic, {"value": [b"v"]}, **given)
    write(service_url, topic, {"value": [b"v"]}, p_cryptoFailureAction="SEND", **given)
    assert "NOT encrypted" in caplog.text
    assert [r.value for r in reading.read(service_url, {"topic": topic})] == [b"v"]


def test_compaction(
    service_url: str, admin: Admin, topic: str, keys: SavedPair
) -> None:
    """Of encrypted single messages compaction keeps the last of each key."""
    columns = {
        "value": [b"a1", b"b1", b"a2", b"c1", None],
        "__key": ["a", "b", "a", "c", "c"],
    }
    write(service_url, topic, columns, p_batchingEnabled="false", **keys.for_writes)
    admin.compact(topic)
    read = {"topic": topic, "pulsar.reader.readCompacted": "true", **keys.for_reads}
    rows = reading.read(service_url, read)
    assert [(row.key, row.value) for row in rows] == [(b"b", b"b1"), (b"a", b"a2")]


def test_brokers_cannot_compact_encrypted_batches(
    service_url: str, admin: Admin, topic: str, keys: SavedPair
) -> None:
    """They say so when the topic is read, as docs/security.md has it."""
    for values in ([b"a1", b"b1"], [b"a2", b"c1"]):
        columns = {"value": values, "__key": [v.decode()[:1] for v in values]}
        write(service_url, topic, columns, **keys.for_writes)
    admin.compact(topic)
    read = {"topic": topic, "pulsar.reader.readCompacted": "true", **keys.for_reads}
    with pytest.raises(BrokerError, match="compacted Ledger"):
        reading.read(service_url, {**read, "pulsar.client.lookupTimeoutMs": "500"})
    del read["pulsar.reader.readCompacted"]
    assert len(reading.read(service_url, {"topic": topic, **keys.for_reads})) == 4


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_typed_topics(
    service_url: str, topic: str, keys: SavedPair, guarantee: str
) -> None:
    """Values are columns of AVRO, whoever encrypted them; without a key it fails."""
    rows = [{"id": n, "name": f"name {n}"} for n in range(50)]
    given = {
        "service.url": service_url,
        "topic": topic,
        "schemaType": "avro",
        "deliveryGuarantee": guarantee,
        "pulsar.producer.compressionType": "ZSTD",
        **keys.for_writes,
    }
    writes.save(PulsarDataSource(given), pa.RecordBatch.from_pylist(rows))
    reads = {"topic": topic, "metadataColumns": "none"}
    assert reading.read_columns(service_url, {**reads, **keys.for_reads}) == rows
    closed = {**reads, "cryptoFailureAction": "CONSUME"}
    with pytest.raises(EncryptionError, match="allowDifferentTopicSchemas"):
        reading.read_columns(service_url, closed)
    as_bytes = {**closed, "allowDifferentTopicSchemas": "true"}
    assert len(reading.read_columns(service_url, as_bytes)) > 0


def test_a_key_of_java(service_url: str, topic: str, tmp_path: Path) -> None:
    """A key of EC, both ways; the official client of here knows RSA only."""
    pair = ec_pair().save(tmp_path, "ec")
    write(service_url, topic, {"value": [b"v"]}, **pair.for_writes)
    rows = reading.read(service_url, {"topic": topic, **pair.for_reads})
    assert [row.value for row in rows] == [b"v"]
