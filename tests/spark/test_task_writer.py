"""What a task sends, to a broker that does what a test tells it to. Without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.client.exactly_once import TaskTransaction
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.options import WriteOptions, parse_write_options
from pulsar_spark.spark.task_writer import Task, TaskWriter, Written
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode
from tests.client.scripted_broker import ScriptedBroker

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
        "pulsar.client.operationTimeoutMs": "5000",
        "pulsar.client.maxBackoffIntervalNanos": "100000000",
        **further,
    }
    return parse_write_options(given, streaming=False)


def write(
    options: WriteOptions, batches: Iterable[pa.RecordBatch], **given: Any
) -> Written:
    """What a task does with some rows."""
    return TaskWriter(options, Task(0), {TOPIC: PARTITIONS}, **given).write(batches)


def write_marked(options: WriteOptions, message: bytes) -> None:
    """A row in a transaction, with a message that is to prove its end."""
    transaction = TaskTransaction(shared_pool(options.client), 60_000)
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
        (P + "chunkMaxMessageSize", "1"),
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
