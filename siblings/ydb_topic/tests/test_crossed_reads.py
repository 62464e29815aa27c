# SPDX-License-Identifier: Apache-2.0
"""What the official SDK writes we read, row by row with metadata."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
import ydb

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from spark_topics.arrow.types import ARROW_TYPES
from spark_topics.options.offsets import Edge, Offsets
from ydb_spark.columns import READ_COLUMNS
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import ReadOptions
from ydb_spark.source.topic_cluster import Range
from ydb_spark.source.topic_source import TopicSource

DEADLINE_S = 20
BEGAN = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [(name, ARROW_TYPES[read.type]) for name, read in READ_COLUMNS.items()]
)


class FromFive(ydb.TopicReaderEvents.EventHandler):
    """Begins each partition at offset 5."""

    def on_partition_get_start_offset(
        self, event: ydb.TopicReaderEvents.OnPartitionGetStartOffsetRequest
    ) -> ydb.TopicReaderEvents.OnPartitionGetStartOffsetResponse:
        """Answer the reader."""
        return ydb.TopicReaderEvents.OnPartitionGetStartOffsetResponse(5)


def requests(service: TopicService) -> list[tuple[str, Any]]:
    """What came in streams that read: kinds and requests, in order."""
    sent = [one.request for one in service.log if one.method == "StreamRead"]
    kinds = [request.WhichOneof("client_message") for request in sent]
    return [(k, getattr(r, k)) for k, r in zip(kinds, sent, strict=True)]


def test_same_requests(service: TopicService, connection: ConnectionOptions):
    """Field by field up to the first message; where they differ, we mean to."""
    service.store.put("t", 0, *[b"%d" % n for n in range(10)])
    endpoint = f"grpc://localhost:{service.port}"
    with ydb.Driver(endpoint=endpoint, database=DATABASE) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        with driver.topic_client.reader(
            ydb.TopicReaderSelector(path="t", partitions=[0]),
            consumer=None,
            buffer_size_bytes=1000,
            event_handler=FromFive(),
        ) as theirs:
            assert theirs.receive_message(timeout=DEADLINE_S).offset == 5
    of_theirs = requests(service)
    service.log.clear()
    options = ReadOptions(connection, "t", read_buffer_bytes=1000, stats_interval_s=0)
    source = TopicSource(options)
    batches = source.read(Range(0, 5, 10), SCHEMA, streaming=False)
    assert sum(batch.num_rows for batch in batches) == 5
    of_ours = requests(service)
    names = ["init_request", "read_request", "start_partition_session_response"]
    assert [kind for kind, _ in of_theirs][:3] == names
    assert [kind for kind, _ in of_ours] == names  # all came, so no credit goes back
    (_, their_init), (_, their_credit), (_, their_start) = of_theirs[:3]
    (_, our_init), (_, our_credit), (_, our_start) = of_ours
    # They have partitions that were split told of; a range of one has no use for it.
    their_init.auto_partitioning_support = False
    assert our_init == their_init
    assert our_credit == their_credit
    assert our_start.read_offset == their_start.read_offset == 5
    assert not our_start.HasField("commit_offset")
    assert not their_start.HasField("commit_offset")


@pytest.mark.parametrize("codec", [ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP])
def test_row_by_row(
    service: TopicService, connection: ConnectionOptions, codec: ydb.TopicCodec
):
    """Body, number, producer, times and metadata arrive, in ranges of any size."""
    count = 300
    endpoint = f"grpc://localhost:{service.port}"
    with ydb.Driver(endpoint=endpoint, database=DATABASE) as driver:
        driver.wait(DEADLINE_S, fail_fast=True)
        with driver.topic_client.writer(
            "t",
            producer_id="p",
            partition_id=1,
            codec=codec,
            auto_seqno=False,
            auto_created_at=False,
        ) as writer:
            writer.write(
                [
                    ydb.TopicWriterMessage(
                        f"body {n}",
                        seqno=n + 1,
                        created_at=BEGAN + timedelta(milliseconds=n),
                        metadata_items={"n": str(n).encode()},
                    )
                    for n in range(count)
                ]
            )
    options = ReadOptions(
        connection,
        "t",
        starting=Offsets(Edge.EARLIEST),
        min_partitions=7,
        read_buffer_bytes=1000,
        stats_interval_s=0,
    )
    source = TopicSource(options)
    tasks = source.plan()
    assert len(tasks) == 7
    rows = [
        row
        for task in tasks
        for batch in source.read(task, SCHEMA, streaming=False)
        for row in batch.to_pylist()
    ]
    assert [row["data"] for row in rows] == [b"body %d" % n for n in range(count)]
    assert [row["offset"] for row in rows] == [*range(count)]
    assert [row["seq_no"] for row in rows] == [*range(1, count + 1)]
    assert [row["metadata_items"] for row in rows] == [
        [("n", str(n).encode())] for n in range(count)
    ]
    assert [row["created_at"] for row in rows] == [
        BEGAN + timedelta(milliseconds=n) for n in range(count)
    ]
    same = {"partition_id": 1, "producer_id": "p", "topic": "t", "codec": int(codec)}
    assert [{name: row[name] for name in same} for row in rows] == [same] * count
    # Nothing is read by a consumer.
    inits = service.requests("StreamRead", "init_request")
    assert {init.consumer for init in inits} == {""}
