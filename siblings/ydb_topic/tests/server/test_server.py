# SPDX-License-Identifier: Apache-2.0
"""What any server of topics must do with us, the double or the one of YDB_ENDPOINT."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import ydb

from siblings.ydb_topic.tests.sink.tables import OPTIONS, bodies, table
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from spark_topics.options.offsets import Edge, Offsets
from ydb_spark.client.channel import Channel, shared_channel
from ydb_spark.client.topics import describe_topic
from ydb_spark.errors import DataLossError, IdempotenceError, TopicNotFoundError
from ydb_spark.options.connection import ConnectionOptions, Secret
from ydb_spark.options.read import ReadOptions
from ydb_spark.options.write import Partitioning
from ydb_spark.sink.task import TaskWriter
from ydb_spark.source.topic_cluster import Range
from ydb_spark.source.topic_source import TopicSource
from ydb_spark.wire.codecs import CODECS

DEADLINE_S = 60
SCHEMA = pa.schema([("data", pa.binary()), ("seq_no", pa.int64())])


@pytest.fixture(scope="module")
def place() -> Iterator[ConnectionOptions]:
    """How to reach the server; YDB_TOKEN is a token for it."""
    url = os.environ.get("YDB_ENDPOINT")
    if url is not None:
        token = os.environ.get("YDB_TOKEN")
        database = urlsplit(url).path or os.environ["YDB_DATABASE"]
        yield ConnectionOptions(url, database, Secret(token) if token else None)
    else:
        with TopicService() as service:
            yield ConnectionOptions(service.endpoint, DATABASE)


@pytest.fixture(scope="module")
def client(place: ConnectionOptions) -> Iterator[ydb.TopicClient]:
    """What makes topics."""
    token = place.token.read() if place.token else None
    credentials = ydb.AccessTokenCredentials(token) if token else None
    with ydb.Driver(
        endpoint=place.endpoint,
        database=place.database,
        credentials=credentials or ydb.AnonymousCredentials(),
    ) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        yield driver.topic_client


def create(client: ydb.TopicClient, path: str) -> None:
    """Make a topic with two partitions and all codecs that we write."""
    client.create_topic(
        path, min_active_partitions=2, supported_codecs=[*CODECS.values()]
    )


@pytest.fixture
def topic(place: ConnectionOptions, client: ydb.TopicClient) -> Iterator[str]:
    """A fresh one."""
    path = f"{place.database}/pulsar-spark-test-{uuid.uuid4()}"
    create(client, path)
    yield path
    client.drop_topic(path)


def writer(
    place: ConnectionOptions,
    topic: str,
    id_: str | None,
    batch_id: int = 0,
    **more: int,
) -> TaskWriter:
    """The writer of task 0."""
    options = replace(OPTIONS, topic=topic, send_timeout_s=DEADLINE_S, **more)  # type: ignore[arg-type]
    channel: Channel = shared_channel(place)
    return TaskWriter(lambda: channel, options, 0, batch_id=batch_id, id_=id_)


def source_of(place: ConnectionOptions, topic: str) -> TopicSource:
    """All that is in a topic."""
    return TopicSource(
        ReadOptions(place, topic, starting=Offsets(Edge.EARLIEST), stats_interval_s=0)
    )


def read(
    place: ConnectionOptions, topic: str, tasks: Sequence[Range] | None = None
) -> list[bytes]:
    """All bodies, by partition and in order, or those of a plan."""
    source = source_of(place, topic)
    return [
        row["data"]
        for task in (source.plan() if tasks is None else tasks)
        for batch in source.read(task, SCHEMA, streaming=False)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_there_and_back(place: ConnectionOptions, topic: str, codec: int):
    """In every codec."""
    rows = bodies(1000)
    summary = writer(place, topic, "id", codec=codec).write([table(rows)])
    assert (summary.written, summary.skipped) == (1000, 0)
    assert read(place, topic) == rows


def test_again(place: ConnectionOptions, topic: str):
    """A repetition is skipped, a later micro-batch goes on, an earlier is refused."""
    rows = bodies(100)
    writer(place, topic, "id", 1).write([table(rows[:60])])
    again = writer(place, topic, "id", 1).write([table(rows)])
    assert (again.written, again.skipped) == (40, 60)
    writer(place, topic, "id", 2).write([table([b"later"])])
    assert read(place, topic) == [*rows, b"later"]
    with pytest.raises(IdempotenceError):
        writer(place, topic, "id", 1).write([table(rows)])


def test_by_partition(place: ConnectionOptions, topic: str):
    """Rows go where they say."""
    numbers = sorted(
        describe_topic(shared_channel(place), topic, with_offsets=True).partitions
    )
    rows = table(bodies(10), partition_id=pa.array(numbers * 5, pa.int64()))
    by_id = replace(OPTIONS, topic=topic, partitioning=Partitioning.PARTITION_ID)
    TaskWriter(lambda: shared_channel(place), by_id, 0, id_="id").write([rows])
    assert read(place, topic) == [*bodies(10)[::2], *bodies(10)[1::2]]


def test_by_group(place: ConnectionOptions, topic: str):
    """Each group goes on in the partition where it began, and in its order."""
    options = replace(OPTIONS, topic=topic, partitioning=Partitioning.MESSAGE_GROUP_ID)
    groups = [f"g{n % 5}" for n in range(50)]
    for part in ("first", "later"):
        rows = [f"{group} {part} {n:02}".encode() for n, group in enumerate(groups)]
        TaskWriter(lambda: shared_channel(place), options, 0).write(
            [table(rows, message_group_id=pa.array(groups))]
        )
    found = read(place, topic)
    for group in set(groups):
        ours = [body for body in found if body.startswith(group.encode())]
        assert ours == sorted(ours)
        assert len(ours) == 20


def test_made_anew(place: ConnectionOptions, client: ydb.TopicClient, topic: str):
    """Neither reads nor writes take a topic for the one of its name before."""
    writer(place, topic, None).write([table(bodies(10))])
    tasks = source_of(place, topic).plan()

    def batches() -> Iterator[pa.RecordBatch]:
        yield table([b"before"])
        deadline = time.monotonic() + DEADLINE_S
        while b"before" not in read(place, topic):
            assert time.monotonic() < deadline, "the row is not stored"
        client.drop_topic(topic)
        create(client, topic)
        writer(place, topic, "id").write([table(bodies(20))])
        yield table([b"after"])

    # What ends a stream of the old one may say that there is none.
    with pytest.raises((DataLossError, TopicNotFoundError)):
        writer(place, topic, None).write(batches())
    with pytest.raises(DataLossError):
        read(place, topic, tasks)


def test_no_topic(place: ConnectionOptions):
    """The error says what may be wrong."""
    with pytest.raises(TopicNotFoundError):
        describe_topic(shared_channel(place), "absent/topic", with_offsets=False)
