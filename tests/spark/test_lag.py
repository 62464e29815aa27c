# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.spark.lag`."""

# ruff: noqa: N802 - Spark names the methods

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pulsar_spark import PulsarLagListener
from pulsar_spark.options.offsets import topic_tree
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.spark.lag import PartitionLag, StreamLag, lag_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

T = "persistent://public/default/t"
T0, T1, T2, T10 = (f"{T}-partition-{i}" for i in (0, 1, 2, 10))
QUERY_ID = "00000000-0000-0000-0000-000000000001"
RUN_ID = "00000000-0000-0000-0000-000000000002"

END = StreamOffset("s", {T0: LastRead(12, 94), T1: LastRead(15, 3, 4)})
LATEST = {T0: "12:99", T1: "15:3:4"}
BACKLOG = {T0: 5, T1: 0}


def reported(
    backlog: dict[str, int] = BACKLOG, latest: dict[str, str] = LATEST, version: int = 1
) -> dict[str, Any]:
    """What our source reports."""
    return {
        "v": version,
        "latest": topic_tree(latest),
        "backlogEntries": topic_tree(backlog),
    }


def source(
    latest: object = None, end: object = END.to_json(), rows: int = 7
) -> dict[str, Any]:
    """A source in the JSON of a progress; a text stays as it is."""
    return {
        "description": "org.apache.spark.sql.execution.python.PythonMicroBatchStream",
        "startOffset": "null",
        "endOffset": end if isinstance(end, str) else json.dumps(end),
        "latestOffset": latest if isinstance(latest, str) else json.dumps(latest),
        "numInputRows": rows,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
    }


RATE = {**source("7", "6"), "description": "RateStreamV2[rowsPerSecond=1]"}


def progress(
    *sources: dict[str, Any], name: str | None = "orders"
) -> StreamingQueryProgress:
    """A micro-batch of a query."""
    return StreamingQueryProgress.fromJson(
        {
            "id": QUERY_ID,
            "runId": RUN_ID,
            "name": name,
            "timestamp": "2026-11-20T10:00:00.000Z",
            "batchId": 17,
            "batchDuration": 100,
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "noop", "numOutputRows": -1},
        }
    )


def lag(*backlogs: int, **changes: Any) -> StreamLag:
    """The lag of a query whose topic has these backlogs."""
    facts: dict[str, Any] = {
        "query_id": QUERY_ID,
        "run_id": RUN_ID,
        "query_name": "orders",
        "batch_id": 17,
        "timestamp": "2026-11-20T10:00:00.000Z",
        "source_index": 0,
        "input_rows": 7,
        "partitions": tuple(
            PartitionLag(f"{T}-partition-{i}", f"12:{99 - n}", "12:99", n)
            for i, n in enumerate(backlogs)
        ),
        **changes,
    }
    return StreamLag(**facts)


# -- from a progress -----------------------------------------------------------------


def test_lag_of_a_progress() -> None:
    """Every fact of a source's lag is there, the ids as texts."""
    assert lag_of(progress(source(reported()))) == [
        StreamLag(
            query_id=QUERY_ID,
            run_id=RUN_ID,
            query_name="orders",
            batch_id=17,
            timestamp="2026-11-20T10:00:00.000Z",
            source_index=0,
            input_rows=7,
            partitions=(
                PartitionLag(T0, "12:94", "12:99", 5),
                PartitionLag(T1, "15:3:4", "15:3:4", 0),
            ),
        )
    ]


def test_query_without_a_name() -> None:
    """A query that has no name is known by its id."""
    (found,) = lag_of(progress(source(reported()), name=None))
    assert found.query_name == ""
    assert str(found).startswith(f"Query {QUERY_ID}, batch 17: ")


def test_topics_of_any_kind() -> None:
    """Topics without partitions and with misleading names; in natural order."""
    names = [T, T0, T2, T10, f"{T0}-partition-1"]
    place = dict.fromkeys(names, LastRead(1, 2))
    end = StreamOffset("s", place).to_json()
    tree = reported(dict.fromkeys(names, 3), dict.fromkeys(names, "1:5"))
    (found,) = lag_of(progress(source(tree, end)))
    assert sorted(found.partitions, key=str) == sorted(
        (PartitionLag(name, "1:2", "1:5", 3) for name in names), key=str
    )
    (found,) = lag_of(progress(source(reported({T10: 1, T2: 1, T0: 1}))))
    assert [one.topic_partition for one in found.partitions] == [T0, T2, T10]


def test_nothing_read_yet() -> None:
    """A place is empty where nothing was read, and where nothing is there."""
    tree = reported({T0: 5, T1: 0, T2: 4}, {T0: "12:99", T1: "-1:-1", T2: "12:9"})
    end = StreamOffset("s", {T0: NOTHING_READ, T1: NOTHING_READ}).to_json()
    (found,) = lag_of(progress(source(tree, end)))
    assert found.partitions == (
        PartitionLag(T0, "", "12:99", 5),
        PartitionLag(T1, "", "", 0),
        PartitionLag(T2, "", "12:9", 4),
    )
    (found,) = lag_of(progress(source(reported({T0: 0}, {}), end)))
    assert found.partitions == (PartitionLag(T0, "", "", 0),)


@pytest.mark.parametrize("end", ["null", "None", "", "5", "{", {"lastRead": None}, {}])
def test_no_end(end: object) -> None:
    """The backlog is there even where Spark shows no end of ours."""
    (found,) = lag_of(progress(source(reported(), end)))
    assert [one.last_read for one in found.partitions] == ["", ""]
    assert found.backlog_entries == 5


@pytest.mark.parametrize(
    "latest",
    [
        None,
        "None",
        "",
        "7",
        "[1]",
        "{",
        "[" * 100_000,
        "not JSON",
        {"t": {"0": 5}},
        END.to_json(),
        reported(version=2),
        {"v": 1},
        {"v": 1, "latest": {}},
        {"v": 1, "latest": [], "backlogEntries": []},
        {"v": 1, "latest": {"t": 5}, "backlogEntries": {"t": 5}},
        {"v": 1, "latest": {"t": "1:2"}, "backlogEntries": {"t": "5"}},
        {"v": 1, "latest": {"t": "1:2"}, "backlogEntries": {"t": True}},
        {"v": 1, "latest": {"t": "1:2"}, "backlogEntries": {"t": {"x": 5}}},
        {"v": 1, "latest": {"a/b": "1:2"}, "backlogEntries": {"t": 5}},
    ],
)
def test_other_sources_are_passed_over(latest: object) -> None:
    """Whatever other sources report, it is no lag of ours and no error."""
    assert lag_of(progress(source(latest))) == []


def test_sources_that_report_nothing_at_all() -> None:
    """Offsets may be None, and a query may not have had a micro-batch yet."""
    found = progress(source(reported()))
    found.sources[0].update(latestOffset=None, endOffset=None)
    assert lag_of(found) == []
    assert lag_of(progress()) == []
    assert lag_of(None) == []


def test_several_sources() -> None:
    """Each of ours has its own lag, and says which one it is."""
    second = source(reported({T2: 9}, {T2: "1:9"}), rows=3)
    found = lag_of(progress(source(reported()), RATE, second))
    assert [(one.source_index, one.input_rows) for one in found] == [(0, 7), (2, 3)]
    assert [one.backlog_entries for one in found] == [5, 9]
    assert str(found[1]).startswith("Query orders, source 2, batch 17: 3 rows, ")


# -- for people and metric systems ---------------------------------------------------


@pytest.mark.parametrize(
    ("backlogs", "text"),
    [
        ((), "caught up with 0 topic partitions"),
        ((0, 0), "caught up with 2 topic partitions"),
        (
            (0, 5),
            (
                "5 entries behind in 1 of 2 topic partitions: "
                f"{T1} by 5 (read to 12:94 of 12:99)"
            ),
        ),
        (
            (1, 2, 0, 2),
            (
                "5 entries behind in 3 of 4 topic partitions: "
                f"{T1} by 2 (read to 12:97 of 12:99); "
                f"{T}-partition-3 by 2 (read to 12:97 of 12:99); "
                f"{T0} by 1 (read to 12:98 of 12:99)"
            ),
        ),
    ],
)
def test_summary(backlogs: tuple[int, ...], text: str) -> None:
    """One line names the query, the sum, and the worst topic partitions first."""
    assert str(lag(*backlogs)) == f"Query orders, batch 17: 7 rows, {text}"


def test_summary_of_thousands() -> None:
    """The line stays short however many topic partitions there are."""
    text = str(lag(*range(1, 5001)))
    assert "12502500 entries behind in 5000 of 5000 topic partitions" in text
    assert f"{T}-partition-4999 by 5000" in text
    assert text.endswith("; and 4997 more")
    assert len(text) < 500
    assert "\n" not in text


def test_summary_where_nothing_was_read() -> None:
    """Words stand where there is no place."""
    assert str(PartitionLag(T0, "", "12:99", 5)) == (
        f"{T0} by 5 (read to nothing of 12:99)"
    )


def test_metrics() -> None:
    """Numbers and labels have fixed names, whatever the query."""
    assert lag(1, 0, 4).metrics() == {
        "pulsar_stream_backlog_entries": 5,
        "pulsar_stream_max_partition_backlog_entries": 4,
        "pulsar_stream_topic_partitions": 3,
        "pulsar_stream_topic_partitions_behind": 2,
        "pulsar_stream_topic_partitions_held_back": 0,
        "pulsar_stream_input_rows": 7,
        "pulsar_stream_batch_id": 17,
    }
    assert lag().metrics().keys() == lag(1).metrics().keys()
    assert lag().metrics()["pulsar_stream_max_partition_backlog_entries"] == 0
    assert lag(1, source_index=2).labels() == {
        "query_id": QUERY_ID,
        "query_name": "orders",
        "source_index": "2",
    }


def test_bytes_and_age() -> None:
    """The sum and the greatest, of what is known."""
    known = PartitionLag(T0, "12:94", "12:99", 5, 400, 2.25)
    unseen = PartitionLag(T1, "12:94", "12:99", 1, 80)
    idle = PartitionLag(T2, "12:99", "12:99", 0, 0, 0.0)
    found = lag(partitions=(known, unseen, idle))
    assert (found.backlog_bytes, found.age_s) == (480, 2.25)
    assert str(found).startswith(
        "Query orders, batch 17: 7 rows, the oldest 2.2 s old, 6 entries (about 480"
        " bytes) behind in 2 of 3 topic partitions: "
    )
    metrics = found.metrics()
    assert metrics["pulsar_stream_backlog_bytes"] == 480
    assert metrics["pulsar_stream_oldest_unread_age_seconds"] == 2.25
    found = lag(partitions=(idle,))
    assert str(found).endswith(": 7 rows, caught up with 1 topic partitions")
    assert found.metrics()["pulsar_stream_oldest_unread_age_seconds"] == 0
    # Of an earlier release.
    found = lag(partitions=(known, PartitionLag(T1, "", "12:99", 1)))
    assert found.backlog_bytes is None
    assert lag(1).age_s is None


def test_labels_outlive_a_restart() -> None:
    """A new run of a query continues its series."""
    assert lag(1, run_id=str(UUID(int=9))).labels() == lag(1).labels()


# -- the listener --------------------------------------------------------------------


def test_listener_logs_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Without a function each lag is one INFO line."""
    caplog.set_level(logging.INFO, "pulsar_spark.lag")
    event = QueryProgressEvent(progress(source(reported()), RATE))
    PulsarLagListener().onQueryProgress(event)
    assert [(record.levelname, record.name) for record in caplog.records] == [
        ("INFO", "pulsar_spark.lag")
    ]
    assert caplog.messages == [str(lag_of(event.progress)[0])]


def test_listener_calls_the_function(caplog: pytest.LogCaptureFixture) -> None:
    """With a function the lag goes there, and nothing to the log."""
    caplog.set_level(logging.DEBUG)
    found: list[StreamLag] = []
    event = QueryProgressEvent(progress(source(reported())))
    PulsarLagListener(found.append).onQueryProgress(event)
    assert found == lag_of(event.progress)
    assert caplog.messages == []


def test_an_error_of_the_function_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is not raised, names the query, and the next source has its turn."""
    called: list[int] = []

    def failing(found: StreamLag) -> None:
        called.append(found.source_index)
        raise OSError("no route to metrics")

    event = QueryProgressEvent(progress(source(reported()), source(reported())))
    PulsarLagListener(failing).onQueryProgress(event)
    assert called == [0, 1]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "no route to metrics" in caplog.text
    assert "Query orders, source 1, batch 17" in caplog.messages[1]


def test_what_travels() -> None:
    """Spark Connect sends listeners to the server; a lag may go anywhere."""
    dumped = cloudpickle.dumps(PulsarLagListener(print))  # type: ignore[no-untyped-call]
    copy = cloudpickle.loads(dumped)
    assert isinstance(copy, PulsarLagListener)
    assert pickle.loads(pickle.dumps(lag(1, 2))) == lag(1, 2)  # noqa: S301 - our own


# -- in Spark ------------------------------------------------------------------------


class Progresses(StreamingQueryListener):
    """Waits for micro-batches, in the order in which Spark tells its listeners.

    Only for those of one query: what an earlier one did may be told late.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seen = threading.Semaphore(0)

    def onQueryStarted(self, event: object) -> None:
        """Nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a micro-batch."""
        if event.progress.name == self._name:
            self.seen.release()

    def onQueryTerminated(self, event: object) -> None:
        """Nothing."""


def run(
    spark: SparkSession, stream: str, folder: Path, micro_batches: int, name: str
) -> tuple[list[StreamLag], list[StreamLag]]:
    """What the listener gave in some micro-batches of a stream, and the last one's.

    The query has a name of its own.
    """
    found: list[StreamLag] = []
    # Ours first: when the other one has heard of a micro-batch, ours has, too.
    listeners = PulsarLagListener(found.append), Progresses(name)
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format(stream)
            .load()
            .writeStream.format("noop")
            .queryName(name)
            .option("checkpointLocation", str(folder))
            .start()
        )
        try:
            for _ in range(micro_batches):
                assert listeners[1].seen.acquire(timeout=300)
            assert query.exception() is None
            return found, lag_of(query.lastProgress)
        finally:
            query.stop()
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)


def test_spark_passes_over_other_sources(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that reads from elsewhere runs on, and has no lag."""
    assert run(spark, "rate", tmp_path, 2, "not ours") == ([], [])
    assert caplog.messages == []


@pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2),
    reason="Spark 4.1 does not ask Python sources for their latest offset",
)
def test_what_a_python_source_reports_arrives(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The texts of a progress are what a source written in Python returns."""
    end, latest = END.to_json(), reported()

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:
            return {"v": 1, "subscription": "s", "lastRead": {}}

        def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
            return end

        def reportLatestOffset(self) -> dict[str, Any]:
            return latest

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return iter([(1,), (2,)])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "lag_test"

        def schema(self) -> str:
            return "value INT"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Source)
    lags, last = run(spark, "lag_test", tmp_path, 1, "lagging")
    found = lags[0]
    assert found.query_name == "lagging"
    assert (found.batch_id, found.source_index, found.input_rows) == (0, 0, 2)
    assert found.partitions == (
        PartitionLag(T0, "12:94", "12:99", 5),
        PartitionLag(T1, "15:3:4", "15:3:4", 0),
    )
    # Without a listener it is the same.
    assert [one.partitions for one in last] == [found.partitions]
