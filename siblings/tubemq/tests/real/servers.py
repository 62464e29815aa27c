# SPDX-License-Identifier: Apache-2.0
"""What tests with real servers share: reads and writes that wait for busy machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from siblings.tubemq.tests.support.servers import TubeMQ
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.options import ClientOptions, ReadOptions, WriteOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender, Sent
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.wire.attributes import Stored

#: Until what was written counts as there: brokers flush every few seconds.
FLUSH_S = 300.0

#: Other work may keep the machine busy: servers answer late then, and start slowly.
PATIENCE_S = 300.0
PATIENT = {"operation.timeout": f"{PATIENCE_S * 1000:.0f}"}


def client_of(tube: TubeMQ) -> ClientOptions:
    """Return options of a client of the servers."""
    return ClientOptions(
        masters=tuple(tube.masters.split(",")), operation_timeout_s=PATIENCE_S
    )


def read(
    spark: SparkSession,
    tube: TubeMQ,
    topic: str,
    schema: str | None = None,
    **options: str,
) -> DataFrame:
    """Return the rows of a topic."""
    reader = spark.read.format("tubemq").option("master.rpc", tube.masters)
    reader = reader.options(**PATIENT)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(topic=topic, group=f"tests-{topic}", **options).load()


def write(frame: DataFrame, tube: TubeMQ, topic: str | None, **options: str) -> None:
    """Write rows, to the topics that they name where none is given."""
    writer = frame.write.format("tubemq").option("master.rpc", tube.masters)
    writer = writer.options(**PATIENT, **{"send.timeout": PATIENT["operation.timeout"]})
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).mode("append").save()


def stored(tube: TubeMQ, topic: str, *, unflushed: bool = False) -> int:
    """Return how many offsets a batch would read of all partitions, by its plan."""
    options = ReadOptions(
        client_of(tube),
        (topic,),
        group=f"tests-count-{topic}",
        read_unflushed=unflushed,
    )
    pool = BrokerPool(options.client)
    try:
        return sum(task.range.entries for task in plan_batch(pool, options))
    finally:
        pool.close()


def await_stored(tube: TubeMQ, topic: str, count: int) -> None:
    """Wait until so many messages count as there."""
    await_true(lambda: stored(tube, topic) >= count, f"the flush of {topic}", FLUSH_S)


def group_offset(tube: TubeMQ, topic: str, name: str) -> int:
    """Return where TubeMQ's own tools say that the group of a topic's tests is.

    Args:
        tube: The servers.
        topic: Which one.
        name: Of the partition, such as ``1:10000``.
    """
    broker, _, partition = name.partition(":")
    answer = tube.broker_admin(
        "admin_query_group_offset",
        f"broker{broker}",
        topicName=topic,
        groupName=f"tests-{topic}",
        partitionId=partition,
        requireRealOffset="true",
    )
    return int(answer["zkOffset"])


def send(tube: TubeMQ, topic: str, values: Iterable[bytes], **options: object) -> Sent:
    """Write messages without Spark.

    Args:
        tube: The servers.
        topic: Where to.
        values: Of the messages.
        **options: Fields of ``WriteOptions``.
    """
    client = client_of(tube)
    chosen = WriteOptions(client=client, topic=(topic,), send_timeout_s=PATIENCE_S)
    pool = BrokerPool(client)
    sender = Sender(pool, replace(chosen, **options))  # type: ignore[arg-type]
    try:
        sender.send(
            Row(topic, Stored(one, 0), None, None, None, None) for one in values
        )
        return sender.finish()
    finally:
        sender.close()
        pool.close()


def values_of(tube: TubeMQ, topic: str, **options: object) -> list[bytes]:
    """Return the messages of a topic, read without Spark.

    Args:
        tube: The servers.
        topic: To read.
        **options: Fields of ``ReadOptions``.
    """
    chosen = ReadOptions(client_of(tube), (topic,), group=f"tests-{topic}")
    chosen = replace(chosen, **options)  # type: ignore[arg-type]
    pool = BrokerPool(chosen.client)
    try:
        return [
            message.stored
            for task in plan_batch(pool, chosen)
            for piece in RangeReader(pool, task, chosen).pieces()
            for message in piece.messages
        ]
    finally:
        pool.close()
