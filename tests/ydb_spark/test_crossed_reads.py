# SPDX-License-Identifier: Apache-2.0
"""What the official SDK writes we read, row by row with metadata."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
import ydb

from spark_topics.arrow.types import ARROW_TYPES
from tests.support.ydb.service import DATABASE, TopicService
from ydb_spark.client.channel import close_shared
from ydb_spark.columns import READ_COLUMNS
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import Offsets, ReadOptions
from ydb_spark.source.topic_source import TopicSource

DEADLINE_S = 20
BEGAN = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=timezone.utc)
SCHEMA = pa.schema(
    [(name, ARROW_TYPES[read.type]) for name, read in READ_COLUMNS.items()]
)


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
        starting=Offsets("earliest"),
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
    close_shared()
