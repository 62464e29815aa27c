# SPDX-License-Identifier: Apache-2.0
"""Through Spark, to the double and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService
from spark_topics.spark.choice import limits_micro_batches
from tests.support import writes
from ydb_spark import YdbTopicDataSource
from ydb_spark.errors import YdbError
from ydb_spark.wire.codecs import decode

PATIENCE_S = 120

#: Older Sparks ask a source how far it goes, and let it set no limit.
HAS_LIMITS = limits_micro_batches()

#: Older Sparks print the options of a stream's writer with its plan, but for names that
#: spark.redaction.regex matches.
SHOWS_OPTIONS = pytest.mark.skipif(
    not HAS_LIMITS, reason="this Spark shows options in plans: docs/security.md"
)


@pytest.fixture
def options(service: TopicService) -> dict[str, str]:
    """How to reach the topic ``t``."""
    return {"url": service.endpoint, "topic": "t", "statsIntervalSeconds": "0"}


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """Rows with a body that says which one it is."""
    return spark.range(0, count, 1, tasks).selectExpr(
        "concat('row ', id) AS data",
        "map('id', cast(cast(id AS string) AS binary)) AS metadata_items",
    )


def bodies(service: TopicService) -> list[str]:
    """What is stored, sorted by number."""
    found = [decode(m.codec, m.data).decode() for m in service.store.stored("t")]
    return sorted(found, key=lambda body: int(body.split()[1]))


def expected(count: int) -> list[str]:
    """What `numbers` makes."""
    return [f"row {n}" for n in range(count)]


def test_there_and_back(
    spark: SparkSession, service: TopicService, options: dict[str, str]
):
    """What is written is read, with all columns; what is read can be written."""
    numbers(spark, 1000).write.format("ydb_topic").options(**options).option(
        "codec", "gzip"
    ).option("writeSessionMeta", '{"by": "spark"}').mode("append").save()
    assert bodies(service) == expected(1000)
    frame = spark.read.format("ydb_topic").options(**options).load()
    assert dict(frame.dtypes) == {
        "data": "binary",
        "partition_id": "bigint",
        "offset": "bigint",
        "producer_id": "string",
        "seq_no": "bigint",
        "message_group_id": "string",
        "created_at": "timestamp",
        "written_at": "timestamp",
        "metadata_items": "map<string,binary>",
        "write_session_meta": "map<string,string>",
        "codec": "int",
        "topic": "string",
    }
    rows = frame.collect()
    assert len(rows) == 1000
    for row in rows:
        assert row.data.decode() == f"row {row.metadata_items['id'].decode()}"
        assert (row.codec, row.topic, row.producer_id) == (2, "t", None)
        assert row.write_session_meta == {"by": "spark"}
    places = {(row.partition_id, row.offset) for row in rows}
    assert places == {
        (number, message.offset)
        for number in (0, 1)
        for message in service.store.stored("t", number)
    }
    service.store.create("copy", 1)
    frame.drop("partition_id").write.format("ydb_topic").options(
        **{**options, "topic": "copy"}
    ).mode("append").save()
    assert len(service.store.stored("copy")) == 1000


def test_parts_of_partitions(
    spark: SparkSession, service: TopicService, options: dict[str, str]
):
    """Partitions are cut, and bounds kept."""
    service.store.put("t", 0, *[b"%d" % n for n in range(100)])
    service.store.put("t", 1, *[b"%d" % n for n in range(100, 110)])
    frame = (
        spark.read.format("ydb_topic")
        .options(**options)
        .option("minPartitions", "6")
        .option("startingOffsets", '{"0": 10, "1": 10}')
        .option("endingOffsets", '{"0": 90}')
        .load()
    )
    assert frame.rdd.getNumPartitions() == 6
    found = sorted(int(row.data) for row in frame.select("data").collect())
    assert found == [*range(10, 90)]


@pytest.mark.parametrize(
    "secrets",
    [
        {"auth.token": "hunter2"},
        {"auth.login": "ann", "auth.password": "hunter2"},
        pytest.param(
            {"auth.sakey": '{"private_key": "hunter2"}', "auth.iam.ca": "hunter2"},
            marks=SHOWS_OPTIONS,
        ),
    ],
    ids=["token", "password", "key and authority"],
)
def test_no_secret_in_a_plan(
    spark: SparkSession,
    options: dict[str, str],
    secrets: dict[str, str],
    tmp_path: Path,
):
    """Nor in what Spark says of a query that failed."""
    given = {**options, **secrets, "operationTimeoutMs": "2000"}
    frame = spark.read.format("ydb_topic").options(**given).load()
    stream = spark.readStream.format("ydb_topic").options(**given).load()
    shown = [repr(frame), repr(stream)]
    for one in (frame, stream):
        execution = one._jdf.queryExecution()
        shown += [execution.logical().toString(), execution.analyzed().toString()]
    shown.append(frame._jdf.queryExecution().toString())
    query = (
        stream.writeStream.format("ydb_topic")
        .options(**{**given, "url": "grpc://localhost:1/local"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(Exception, match="YDB_") as caught:
        query.awaitTermination(PATIENCE_S)
    shown += [str(caught.value), str(query.exception()), str(query.recentProgress)]
    assert not [text for text in shown if "hunter2" in text]


def run(frame: DataFrame, options: dict[str, str], folder: Path) -> Any:
    """Run a stream into the topic until there is no more."""
    query = (
        frame.writeStream.format("ydb_topic")
        .options(**options)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    return query


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    """A stream of two files with 500 rows each."""
    folder = tmp_path / "files"
    for part in (0, 500):
        rows = numbers(spark, part + 500, 1).where(
            sf.substring("data", 5, 9).cast("int") >= part
        )
        rows.select("data").write.mode("append").text(str(folder))
    return (
        spark.readStream.schema("data string")
        .option("maxFilesPerTrigger", 1)
        .text(str(folder))
        .withColumnRenamed("value", "data")
    )


def test_faults_in_micro_batches(
    spark: SparkSession,
    service: TopicService,
    options: dict[str, str],
    files: DataFrame,
    tmp_path: Path,
):
    """Streams that break leave nothing out and nothing twice.

    A micro-batch whose commit was lost is written again, and stored once.
    """
    options["deliveryGuarantee"] = "idempotent"
    options["maxRequestBytes"] = "500"
    for when in When:
        service.faults.add(Fault(At.WRITE, when, status=400050, skip=5))
    checkpoint = tmp_path / "checkpoint"
    run(files, options, checkpoint)
    assert bodies(service) == expected(1000)
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    sent = service.count("StreamWrite", "init_request")
    run(files, options, checkpoint)
    assert service.count("StreamWrite", "init_request") > sent
    assert bodies(service) == expected(1000)


def test_stream_with_limits_and_a_split(
    spark: SparkSession,
    service: TopicService,
    options: dict[str, str],
    tmp_path: Path,
):
    """Micro-batches are bounded, children follow, and a consumer is told."""
    service.store.put("t", 0, *[b"%d" % n for n in range(100)])
    children = service.store.split("t", 0)
    service.store.put("t", children[0], *[b"%d" % n for n in range(100, 150)])
    frame = (
        spark.readStream.format("ydb_topic")
        .options(**options)
        .option("startingOffsets", "earliest")
        .options(**({"maxRowsPerTrigger": "40"} if HAS_LIMITS else {}))
        .option("consumer", "c")
        .load()
    )
    batches: list[list[tuple[int, int]]] = []

    def keep(rows: DataFrame, batch_id: int) -> None:
        found = rows.select("partition_id", "data").collect()
        batches.append([(r.partition_id, int(r.data)) for r in found])

    # Older Sparks ask only at the beginning of a run how far it goes.
    for _ in range(1 if HAS_LIMITS else 2):
        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()
    found = [row for batch in batches for row in batch]
    assert sorted(n for _, n in found) == [*range(150)]
    if HAS_LIMITS:
        assert max(map(len, batches)) <= 40
    order = [partition for batch in batches for partition in {p for p, _ in batch}]
    assert order.index(children[0]) > max(i for i, p in enumerate(order) if p == 0)
    topic = service.store.find("t")
    assert topic is not None
    assert topic.consumers["c"].get(0) == 100
    offsets = json.loads(
        sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
        .read_text()
        .splitlines()[-1]
    )
    assert offsets["lastRead"]["t"]["0"] == "99"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"deliveryGuarantee": "exactly-once"}, "exactly-once"),
        ({"topic": "absent"}, "YDB_TOPIC_NOT_FOUND"),
        ({"codec": "lzop"}, "codec"),
        ({"urll": "x"}, "There is no option"),
    ],
)
def test_what_cannot_be_written(
    service: TopicService, options: dict[str, str], wrong: dict[str, str], match: str
):
    """The error comes before a task, and says what to change."""
    source = YdbTopicDataSource({**options, **wrong})
    with pytest.raises(YdbError, match=match):
        source.writer(StructType().add("data", "string"), overwrite=False)


def test_columns_that_cannot_be_written(spark: SparkSession, options: dict[str, str]):
    """The error of the driver's process reaches the user through Spark."""
    frame = spark.sql("SELECT 1 AS data, 2 AS other")
    with pytest.raises(Exception, match=r"YDB_SCHEMA.*`other` cannot be written"):
        frame.write.format("ydb_topic").options(**options).mode("append").save()


def test_message_groups(service: TopicService, options: dict[str, str]):
    """Each group of a column is written in its order, by a session of its own."""
    options["partitioning"] = "message_group_id"
    options["deliveryGuarantee"] = "at-least-once"
    rows = pa.record_batch(
        {
            "data": expected(60),
            "message_group_id": [f"group {number % 3}" for number in range(60)],
        }
    )
    writes.save(YdbTopicDataSource(options), rows)
    assert bodies(service) == expected(60)
