# SPDX-License-Identifier: Apache-2.0
"""What users do, through Spark and on a real broker: the scenarios of each cell.

``tests.matrix`` runs this with the releases of a cell; by its name, ``make test`` does
not. What these releases cannot do is asked for all the same, and what says no is noted.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pyspark.sql import datasource

import pulsar_spark
from pulsar_spark.testing.jars import DEFAULT_VERSION
from tests.matrix.cells import BROKER
from tests.support import official
from tests.support.official import Message, produce
from tests.support.streaming import (
    PATIENCE_S,
    Job,
    Query,
    durable_backlogs,
    publish_numbers,
)
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.testing.embedded_broker import EmbeddedBroker

    Note = Callable[[str, object], None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    # Spark 4.0 itself leaves the sockets of its ``collect`` open.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]

PARTS = 3
GUARANTEES = ("none", "at-least-once", "idempotent", "exactly-once")

#: No pause of a reconnecting client shall make a scenario slow.
QUICK = {"pulsar.client.maxBackoffIntervalNanos": "500000000"}

#: Whether the official client waits for a row after the last transaction of a topic.
ENDS_IN_SILENCE = os.environ.get(BROKER, DEFAULT_VERSION).startswith("2.")

#: Whether this Spark lets a source limit its micro-batches.
HAS_LIMITS = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")


# -- batch reads -----------------------------------------------------------------------

COLUMNS = (
    "value",
    "__key",
    "__orderingKey",
    "__messageProperties",
    "unix_millis(__eventTime) AS event",
    "unix_millis(__publishTime) AS published",
    "__topic",
)
NAMES = "__key,__orderingKey,__messageProperties,__eventTime,__publishTime,__topic"


def read_rows(spark: SparkSession, service_url: str, topic: str) -> list[Any]:
    """Every row of a topic, with what the official client can tell of it, too."""
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "metadataColumns": NAMES})
        .option("topic", topic)
        .load()
        .selectExpr(*COLUMNS)
    )
    return [
        (
            *(None if cell is None else bytes(cell) for cell in row[:3]),
            *(row[3] or {}, *row[4:]),
        )
        for row in frame.collect()
    ]


def told(rows: list[official.Row]) -> list[Any]:
    """The same by the official client."""
    return [
        (
            *(row.value, row.key, row.ordering_key, row.properties),
            *(row.event_time_ms, row.publish_time_ms, row.topic),
        )
        for row in rows
    ]


@pytest.mark.parametrize("codec", official.CODECS)
def test_batch_read(
    spark: SparkSession,
    service_url: str,
    topic: str,
    codec: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Batches and lone messages of each codec are what was sent, with their keys."""
    sent = [
        Message(
            b"%d-" % number * 20,
            key=f"key-{number % 7}",
            properties={"number": str(number)},
            event_time_ms=1_700_000_000_000 + number,
        )
        for number in range(250)
    ]
    for batch in (50, 0):
        produce(
            *(service_url, topic, sent),
            batch=batch,
            compression_type=official.CODECS[codec],
        )
    expected = told(official.read_back(service_url, topic))
    assert len(expected) == 500
    assert read_rows(spark, service_url, topic) == expected
    # The source that Spark has found, and the one that a program registers.
    registered = pulsar_spark.use(spark.newSession())
    assert read_rows(registered, service_url, topic) == expected
    reader = spark.read.format("pulsar").option("service.url", service_url)
    empty = reader.options(topic=topic, endingTime="2020-01-01T00:00:00Z").load()
    assert empty.collect() == []
    record_property("rows", len(expected))


def test_chunked_read(
    spark: SparkSession,
    service_url: str,
    topic: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Messages that are larger than an entry are whole."""
    sent = [os.urandom(6_000_000), b"small", os.urandom(11_000_000)]
    produce(*(service_url, topic, sent), chunking_enabled=True, batching_enabled=False)
    assert [row[0] for row in read_rows(spark, service_url, topic)] == sent
    record_property("rows", len(sent))


def test_partitioned_read(
    spark: SparkSession,
    service_url: str,
    topic: str,
    admin: Admin,
    record_property: Callable[[str, object], None],
) -> None:
    """Each partition is whole and in its order, split among several tasks, too."""
    admin.create_partitioned(topic, PARTS)
    publish_numbers(service_url, topic, range(PARTS), range(400), batch=20)
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "topic": topic})
        .options(metadataColumns="__partition", minPartitions="7")
        .load()
    )
    found: dict[int, list[int]] = {}
    for row in frame.collect():
        found.setdefault(row["__partition"], []).append(int(row["value"]))
    assert found == {part: list(range(400)) for part in range(PARTS)}
    record_property("rows", PARTS * 400)


def test_filters(
    spark: SparkSession,
    service_url: str,
    topic: str,
    record_property: Callable[[str, object], None],
    lacks: Note,
) -> None:
    """Filters leave out no row that passes them."""
    produce(service_url, topic, [b"%d" % number for number in range(100)])
    setting = "spark.sql.python.filterPushdown.enabled"
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": service_url, "topic": topic})
        .options(filterPushdown="true", metadataColumns="__topic")
    )
    spark.conf.set(setting, "true")
    try:
        if not hasattr(datasource, "Filter"):
            with pytest.raises(Exception, match=r"needs Spark 4\.1") as refused:
                frame.load().collect()
            lacks("filters of a query (`filterPushdown`)", sentence(refused.value))
            return
        assert frame.load().where(f"__topic = '{topic}'").count() == 100
        record_property("rows", 100)
    finally:
        spark.conf.unset(setting)


# -- values with a schema --------------------------------------------------------------


def test_typed_values(
    spark: SparkSession,
    service_url: str,
    topic: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Columns that were written as AVRO and as JSON are read as the same columns."""
    rows = spark.range(300).selectExpr(
        "id",
        "concat('name ', id) AS name",
        "id / 4 AS share",
        "id % 3 = 0 AS flag",
        "array(id, id + 1) AS list",
        "named_struct('a', id, 'b', cast(id AS STRING)) AS pair",
        "timestamp_millis(1700000000000 + id) AS at",
    )
    expected = sorted(map(str, rows.collect()))
    for kind in ("avro", "json"):
        where = {"service.url": service_url, "topic": f"{topic}-{kind}"}
        rows.write.format("pulsar").mode("append").options(
            **where, schemaType=kind
        ).save()
        found = spark.read.format("pulsar").options(**where).load()
        found = found.select(*rows.columns)
        assert found.dtypes == rows.dtypes
        assert sorted(map(str, found.collect())) == expected
    # A single column without a time zone: Pulsar's LOCAL_DATE_TIME.
    local = spark.sql("SELECT timestamp_ntz'2024-02-29 12:34:56' AS value")
    where = {"service.url": service_url, "topic": f"{topic}-local"}
    local.write.format("pulsar").mode("append").options(
        **where, schemaType="auto"
    ).save()
    found = spark.read.format("pulsar").options(**where).load().select("value")
    assert found.dtypes == local.dtypes
    assert found.collect() == local.collect()
    record_property("rows", 2 * len(expected) + 1)


# -- streams ---------------------------------------------------------------------------


def source_options(service_url: str, topic: str, limit: int = 0) -> dict[str, str]:
    """Options of a stream, its micro-batches limited where Spark can do that."""
    limits = {"maxRowsPerTrigger": str(limit)} if limit and HAS_LIMITS else {}
    return {
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        **limits,
        **QUICK,
    }


def test_stream_goes_on(
    spark: SparkSession,
    service_url: str,
    topic: str,
    admin: Admin,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    lacks: Note,
) -> None:
    """``AvailableNow`` reads what is there, and the next one what came since."""
    admin.create_partitioned(topic, PARTS)
    query = Query(
        tmp_path / "query", source_options(service_url, topic, 300), available_now=True
    )
    counts = (200, 200, 500, 505)  # once nothing is new
    before = 0
    for count in counts:
        publish_numbers(service_url, topic, range(PARTS), range(before, count), batch=5)
        before = count
        query.run(spark)
        assert query.rows() == {part: list(range(count)) for part in range(PARTS)}
    record_property("rows", PARTS * before)
    last = query.offset(query.committed[-1])
    if not HAS_LIMITS:
        left = durable_backlogs(admin, f"{topic}-partition-0")
        assert 0 <= left[last.subscription] <= 5
        lacks("the last acknowledgement of `availableNow`", "the next run makes it")
        return
    for part in range(PARTS):
        name = f"{topic}-partition-{part}"
        await_true(
            lambda name=name: (  # type: ignore[misc]
                durable_backlogs(admin, name) == {last.subscription: 0}
            ),
            f"no backlog in {name}",
        )


def test_limits(
    spark: SparkSession,
    service_url: str,
    topic: str,
    admin: Admin,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    lacks: Note,
) -> None:
    """Micro-batches are no larger than ``maxRowsPerTrigger``."""
    admin.create_partitioned(topic, 1)
    publish_numbers(service_url, topic, [0], range(100))
    options = {**source_options(service_url, topic), "maxRowsPerTrigger": "30"}
    query = Query(tmp_path / "query", options, available_now=True)
    if HAS_LIMITS:
        query.run(spark)
        assert query.rows() == {0: list(range(100))}
        assert len(query.committed) == 4
        record_property("rows", 100)
        return
    with pytest.raises(Exception, match=r"since 4\.2") as refused:
        query.run(spark)
    lacks("limits of micro-batches (`maxRowsPerTrigger`)", sentence(refused.value))


def test_lag(
    spark: SparkSession,
    service_url: str,
    topic: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    lacks: Note,
) -> None:
    """The progress of a query tells how far it is behind."""
    from pulsar_spark.spark.lag import lag_of

    produce(service_url, topic, [b"%d" % number for number in range(50)])
    frame = (
        spark.readStream.format("pulsar")
        .options(**source_options(service_url, topic))
        .load()
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        await_true(
            lambda: sum(one["numInputRows"] for one in query.recentProgress) == 50,
            "its progress",
        )
        lags = [lag for one in query.recentProgress for lag in lag_of(one)]
    finally:
        query.stop()
    if hasattr(datasource.DataSourceStreamReader, "reportLatestOffset"):
        assert lags[0].backlog_entries == 0
        record_property("rows", 50)
    else:
        assert not lags
        lacks("lag of a stream", "`latestOffset` of a progress is null")


def run_to_the_end(query: StreamingQuery) -> None:
    """Wait for the end of a query that reads what is available."""
    try:
        assert query.awaitTermination(int(PATIENCE_S)), "it did not end"
    finally:
        query.stop()


# -- writes ----------------------------------------------------------------------------


def sink_options(service_url: str, topic: str, guarantee: str) -> dict[str, str]:
    """Options of a write."""
    return {
        "service.url": service_url,
        "topic": topic,
        "deliveryGuarantee": guarantee,
        **QUICK,
    }


def everything_in(service_url: str, topic: str) -> list[official.Row]:
    """What is in a partitioned topic, read by the official client."""
    return official.read_back(
        service_url, topic, partitions=PARTS, ends_in_silence=ENDS_IN_SILENCE
    )


def stored(service_url: str, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    """What is in a partitioned topic: keys and values."""
    rows = everything_in(service_url, topic)
    return Counter((row.key, row.value) for row in rows)


@pytest.fixture
def once_each(namespace: str, admin: Admin) -> str:
    """A partitioned topic whose broker finds duplicates."""
    admin.set_deduplication(namespace, enabled=True)
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    return topic


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_batch_write(
    spark: SparkSession,
    service_url: str,
    once_each: str,
    guarantee: str,
    record_property: Callable[[str, object], None],
) -> None:
    """Each row of a batch write is stored once, with its key."""
    rows = spark.range(3000).selectExpr(
        "CAST(id AS STRING) AS value", "CONCAT('k', id % 11) AS __key"
    )
    options = sink_options(service_url, once_each, guarantee)
    rows.repartition(3).write.format("pulsar").mode("append").options(**options).save()
    found = stored(service_url, once_each)
    assert found == Counter((b"k%d" % (n % 11), b"%d" % n) for n in range(3000))
    record_property("rows", 3000)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_stream_write(
    spark: SparkSession,
    service_url: str,
    topic: str,
    admin: Admin,
    once_each: str,
    guarantee: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Each row of a stream from topic to topic is stored once, after a restart, too."""
    admin.create_partitioned(topic, PARTS)
    query = Query(
        tmp_path / "query",
        source_options(service_url, topic, 600),
        available_now=True,
        sink=sink_options(service_url, once_each, guarantee),
    )
    before = 0
    for count in (300, 500):
        publish_numbers(service_url, topic, range(PARTS), range(before, count))
        before = count
        query.run(spark)
        expected = Counter(f"{p}:{n}" for p in range(PARTS) for n in range(count))
        assert Counter(values_in(service_url, once_each)) == expected
    record_property("rows", PARTS * before)


def values_in(service_url: str, topic: str) -> list[str]:
    """The values of a partitioned topic, each partition in its order."""
    rows = everything_in(service_url, topic)
    return [(row.value or b"").decode() for row in rows]


def test_times_and_maps_of_a_stream(
    spark: SparkSession,
    service_url: str,
    topic: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """A stream writes all kinds of columns, times to the microsecond."""
    source, sink = f"{topic}-source", f"{topic}-sink"
    produce(service_url, source, [b"%d" % number for number in range(200)])
    parsed = (
        "CAST(CAST(value AS STRING) AS BIGINT) AS id",
        "map('id', CAST(value AS STRING)) AS __messageProperties",
        # Over both changes of a zone's clock, an hour apart.
        "timestamp_micros(1698500000000001 + 3600000000 * INT(STRING(value))) AS at",
        "CAST(CAST(value AS STRING) AS DECIMAL(20, 3)) AS amount",
        "CAST(NULL AS STRING) AS nothing",
        "array(named_struct('raw', value)) AS list",
    )

    def of(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*parsed)

    query = (
        of(
            spark.readStream.format("pulsar")
            .options(**source_options(service_url, source))
            .load()
        )
        .writeStream.format("pulsar")
        .options(**sink_options(service_url, sink, "at-least-once"), schemaType="avro")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    run_to_the_end(query)
    where = {"service.url": service_url, "metadataColumns": "__messageProperties"}
    read = spark.read.format("pulsar").options(**where)
    plain = {"service.url": service_url, "topic": source}
    expected = of(spark.read.format("pulsar").options(**plain).load())
    found = read.option("topic", sink).load().select(*expected.columns)
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))
    record_property("rows", 200)


# -- kills and restarts ----------------------------------------------------------------


def test_kills_and_restarts(
    service_url: str,
    topic: str,
    admin: Admin,
    broker: EmbeddedBroker,
    once_each: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Workers, the driver and the broker are killed in mid-stream: every row once.

    One query writes files, one a topic that drops duplicates, and one a topic by
    transactions.
    """
    source, once = f"{topic}-source", f"{topic}-once"
    for name in (source, once):
        admin.create_partitioned(name, PARTS)
    publish_numbers(service_url, source, range(PARTS), range(100))
    options = source_options(service_url, source, 90)
    files = Query(tmp_path / "files", options, conf={"spark.master": "local[2,8]"})
    same = replace(
        files,
        folder=tmp_path / "same",
        sink=sink_options(service_url, once_each, "idempotent"),
    )
    both = replace(
        files,
        folder=tmp_path / "once",
        sink=sink_options(service_url, once, "exactly-once"),
    )
    queries = [files, same, both]

    count = 100

    def publish_more() -> None:
        nonlocal count
        numbers = range(count, count + 50)
        publish_numbers(service_url, source, range(PARTS), numbers)
        count = numbers.stop

    def grows(job: Job, log: str, before: int) -> None:
        job.await_true(lambda: len(getattr(both, log)) > before, f"more {log}")

    with Job(queries, tmp_path / "log-1") as job:
        grows(job, "committed", 0)
        killed = 0
        while killed < 3:
            planned = len(both.planned)
            publish_more()
            grows(job, "planned", planned)
            for worker in job.workers()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
            grows(job, "committed", planned)
        planned = len(both.planned)
        publish_more()
        grows(job, "planned", planned)
        job.kill()
    with Job(queries, tmp_path / "log-2") as job:
        publish_more()
        grows(job, "committed", len(both.committed))
        publish_more()
        broker.restart(kill=True)
        publish_more()
        everything = Counter(f"{p}:{n}" for p in range(PARTS) for n in range(count))
        await_all(job, service_url, [once_each, once], everything)
        job.await_true(
            lambda: sum(map(len, files.rows().values())) >= PARTS * count, "all files"
        )
    in_order = {part: list(range(count)) for part in range(PARTS)}
    assert files.rows() == in_order
    for name in (once_each, once):
        by_part: dict[int, list[int]] = {}
        for value in values_in(service_url, name):
            part, number = value.split(":")
            by_part.setdefault(int(part), []).append(int(number))
        assert by_part == in_order
    record_property("rows", 3 * PARTS * count)


def await_all(
    job: Job, service_url: str, topics: list[str], expected: Counter[str]
) -> None:
    """Wait until all rows can be read; each look is a read of the whole topic."""
    for name in topics:
        deadline = time.monotonic() + PATIENCE_S
        found: Counter[str] = Counter()
        while not found >= expected:
            assert time.monotonic() < deadline, job.output[-3000:]
            time.sleep(1)
            with suppress(pulsar.Timeout):  # 3.0 may need as long after a kill
                found = Counter(values_in(service_url, name))


def sentence(error: Exception) -> str:
    """The sentence of ours in what Spark says."""
    text = " ".join(str(error).split())
    begin = text.find("[PULSAR_")
    found = text[begin:] if begin >= 0 else text
    return found.partition("Use Spark")[0].partition(" JVM stacktrace")[0].strip()[:240]
