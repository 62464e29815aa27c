# SPDX-License-Identifier: Apache-2.0
"""The command line on what queries of Spark leave, on a real broker."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.broker.test_command_line import parts as parts
from tests.support import driven_query, official
from tests.support.commands import Run
from tests.support.commands import run as run
from tests.support.streaming import Job, Query, durable_backlogs, publish_numbers
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.testing.embedded_broker import ExternalBroker


@pytest.fixture
def query(service_url: str, parts: str, tmp_path: Path) -> Query:
    """A query of it, from its first row on, which has not run yet."""
    return query_of(service_url, parts, tmp_path / "query")


def query_of(service_url: str, topic: str, folder: Path) -> Query:
    """A query of a topic, from its first row on."""
    options = {
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
    }
    return Query(folder, options, available_now=True)


@dataclass(frozen=True)
class Paused:
    """A query that has run once, and what it left unread: tests change neither.

    Attributes:
        query: It has read ten rows of each of two partitions.
        topic: Full name.
        since_ms: A time after them, and before five more rows of the first partition.
    """

    query: Query
    topic: str
    since_ms: float


@pytest.fixture(scope="module")
def paused(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    _shared_namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Paused:
    """A checkpoint that several tests look at."""
    topic = f"persistent://{_shared_namespace}/paused-{uuid.uuid4().hex[:8]}"
    admin.create_partitioned(topic, 2)
    publish_numbers(service_url, topic, [0, 1], range(10))
    query = query_of(service_url, topic, tmp_path_factory.mktemp("paused"))
    query.run(spark)
    since_ms = time.time() * 1000
    publish_numbers(service_url, topic, [0], range(10, 15))
    return Paused(query, topic, since_ms)


def logged(query: Query) -> dict[str, str]:
    """The files of its logs of offsets and commits."""
    folders = ("offsets", "commits")
    return {
        f"{folder}/{path.name}": path.read_text()
        for folder in folders
        for path in (query.checkpoint / folder).glob("[0-9]*")
    }


def uncommit(query: Query, *, in_sink: bool) -> int:
    """Makes the last micro-batch one that is planned and not committed.

    Args:
        query: It has ended.
        in_sink: Whether the sink has stored it: the driver died right before the end.
    """
    last = query.planned[-1]
    for folder in [query.checkpoint / "commits"] + (
        [] if in_sink else [query.folder / "rows" / "_spark_metadata"]
    ):
        (folder / str(last)).unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)
    return last


class TestCheckpoint:
    """Where a query stands, and setting it elsewhere."""

    def test_shows_what_is_unread(
        self,
        broker: EmbeddedBroker | ExternalBroker,
        admin: Admin,
        service_url: str,
        paused: Paused,
        run: Run,
    ) -> None:
        """Entries, bytes and the age of the oldest row; nothing is left behind."""
        query, parts = paused.query, paused.topic
        before = admin.subscriptions(f"{parts}-partition-0")
        command = (
            *("checkpoint", query.checkpoint, "-o", f"service.url={service_url}"),
            *("--admin-url", broker.admin_url),
        )
        code, printed = run(*command, "--json")
        assert code == 0
        found = json.loads(printed)
        assert found["lastPlannedBatch"] == found["lastCommittedBatch"]
        (source,) = found["sources"]
        assert source["subscription"] == query.offset(query.planned[-1]).subscription
        first, second = source["topicPartitions"]
        assert first["topicPartition"] == f"{parts}-partition-0"
        assert first["backlogEntries"] == 5
        assert first["backlogBytes"] > 0
        assert first["oldestUnreadMs"] >= paused.since_ms - 1000  # a client's clock
        assert second["backlogEntries"] == 0
        assert second["backlogBytes"] == 0
        assert second["oldestUnreadMs"] is None
        code, printed = run(*command)
        assert code == 0
        assert "is committed, nothing is planned" in printed
        code, printed = run("lag", *command[1:])
        assert code == 0
        assert printed.splitlines()[1].split()[0] == f"{parts}-partition-0"
        await_true(
            lambda: admin.subscriptions(f"{parts}-partition-0") == before, "the end"
        )

    def test_sets_it_back_and_forward(
        self,
        spark: SparkSession,
        admin: Admin,
        service_url: str,
        query: Query,
        parts: str,
        run: Run,
    ) -> None:
        """A restarted query goes on where it was told to, and drains its backlog."""
        publish_numbers(service_url, parts, [0, 1], range(10), batch=5)
        query.run(spark)
        before = logged(query)
        command = ("checkpoint", query.checkpoint, "-o", f"service.url={service_url}")
        code, printed = run(*command, "--set-position", "earliest")
        assert code == 0
        assert "Nothing was changed" in printed
        assert logged(query) == before
        publish_numbers(service_url, parts, [0, 1], range(10, 20), batch=5)
        wanted = json.dumps({parts: {"0": "earliest", "1": "latest"}})
        code, printed = run(*command, "--set-position", wanted, "--yes")
        assert code == 0
        assert "back" in printed
        (copies,) = query.checkpoint.glob("before-*")
        name = f"offsets/{query.planned[-1]}"
        assert (copies / name).read_text() == before[name]
        publish_numbers(service_url, parts, [0, 1], range(20, 25), batch=5)
        query.run(spark)
        assert query.rows() == {
            0: [*range(10), *range(25)],
            1: [*range(10), *range(20, 25)],
        }
        (backlog,) = durable_backlogs(admin, f"{parts}-partition-1").values()
        assert backlog == 0
        code, printed = run(*command, "--set-position", "latest")
        assert (code, "stands there already" in printed) == (0, True)

    @pytest.mark.matrix
    def test_sets_it_to_a_time_and_single_partitions(
        self,
        spark: SparkSession,
        service_url: str,
        query: Query,
        parts: str,
        run: Run,
    ) -> None:
        """What is not named stays; inside of a batch a position is exact."""
        publish_numbers(service_url, parts, [0, 1], range(4), batch=4)
        time.sleep(0.05)  # so that no clock gives two batches one time
        time_ms = int(time.time() * 1000)
        publish_numbers(service_url, parts, [0, 1], range(4, 8), batch=4)
        query.run(spark)
        command = ("checkpoint", query.checkpoint, "-o", f"service.url={service_url}")
        wanted = json.dumps({parts: {"1": time_ms}})
        assert run(*command, "--set-time", wanted, "--yes")[0] == 0
        query.run(spark)
        assert query.rows() == {0: [*range(8)], 1: [*range(8), *range(4, 8)]}
        at = query.offset(query.planned[-1]).last_read[f"{parts}-partition-0"]
        inside = f"{at.ledger_id}:{at.entry_id}:2"
        wanted = json.dumps({parts: {"0": inside}})
        assert run(*command, "--set-position", wanted, "--yes")[0] == 0
        query.run(spark)
        assert query.rows()[0] == [*range(8), 6, 7]
        gone = json.dumps({parts: {"0": "0:0"}})
        code, printed = run(*command, "--set-position", gone, "--yes")
        assert code == 1
        assert "not stored" in printed

    @pytest.mark.parametrize(
        "in_sink", [True, pytest.param(False, marks=pytest.mark.matrix)]
    )
    def test_a_micro_batch_that_was_not_committed(
        self,
        spark: SparkSession,
        service_url: str,
        query: Query,
        parts: str,
        run: Run,
        in_sink: bool,
    ) -> None:
        """It runs again without rows; the sink's log of micro-batches stays whole."""
        publish_numbers(service_url, parts, [0, 1], range(6))
        query = replace(query, options={**query.options, "maxRowsPerTrigger": "6"})
        query.run(spark)
        assert query.planned == [0, 1]
        last = uncommit(query, in_sink=in_sink)
        command = ("checkpoint", query.checkpoint, "-o", f"service.url={service_url}")
        code, printed = run(*command)
        assert f"{last} is planned and not committed" in printed
        publish_numbers(service_url, parts, [0, 1], range(6, 9))
        wanted = json.dumps({parts: {"0": "latest"}})
        code, printed = run(*command, "--set-position", wanted, "--yes")
        assert code == 0
        assert f"Micro-batch {last} was planned" in printed
        publish_numbers(service_url, parts, [0, 1], range(9, 12))
        query.run(spark)
        skipped = [*range(6 if in_sink else 3), *range(9, 12)]
        assert query.rows() == {0: skipped, 1: [*range(12)]}
        assert query.written == query.committed == [*range(query.planned[-1] + 1)]

    def test_other_rows_of_an_idempotent_stream_stay(
        self,
        spark: SparkSession,
        admin: Admin,
        namespace: str,
        service_url: str,
        parts: str,
        tmp_path: Path,
        run: Run,
    ) -> None:
        """Its sink knows rows by their task, and drops none of other partitions."""
        sink, away = (f"persistent://{namespace}/{name}" for name in ("sink", "away"))
        admin.set_deduplication(namespace, enabled=True)
        for name in (sink, away):
            admin.create_topic(name)
        checkpoint = tmp_path / "query"

        def go_on(second: str) -> None:
            """Runs the query; rows of the second partition go to another topic."""
            rows = (
                spark.readStream.format("pulsar")
                .option("service.url", service_url)
                .option("topic", parts)
                .option("startingOffsets", "earliest")
                .option("metadataColumns", "__partition")
                .load()
                .selectExpr(
                    "concat(__partition, ':', CAST(value AS STRING)) AS value",
                    f"IF(__partition = 0, '{sink}', '{second}') AS __topic",
                )
            )
            query = (
                rows.writeStream.format("pulsar")
                .option("service.url", service_url)
                .option("deliveryGuarantee", "idempotent")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(240)
            # Spark has ended the source; the broker may not have seen that yet.
            await_true(
                lambda: (
                    not any(
                        subscription["consumers"]
                        for part in range(2)
                        for subscription in admin.stats(f"{parts}-partition-{part}")[
                            "subscriptions"
                        ].values()
                    )
                ),
                "the end of the source's connections",
            )

        publish_numbers(service_url, parts, [0, 1], range(2))
        go_on(sink)
        publish_numbers(service_url, parts, [0, 1], range(2, 6))
        # As if its first task had stored its rows, and the second one none of them.
        go_on(away)
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
        command = ("checkpoint", checkpoint, "-o", f"service.url={service_url}")
        wanted = json.dumps({parts: {"0": "latest"}})
        code, printed = run(*command, "--set-position", wanted, "--yes")
        assert code == 0
        assert "Its other rows keep their tasks" in printed
        publish_numbers(service_url, parts, [0, 1], range(6, 8))
        go_on(sink)
        stored = [
            row.value.decode().split(":")
            for row in official.read_back(service_url, sink)
            if row.value is not None
        ]
        for part in ("0", "1"):
            assert [n for p, n in stored if p == part] == [*map(str, range(8))]

    def test_the_first_micro_batch_was_not_committed(
        self,
        spark: SparkSession,
        service_url: str,
        query: Query,
        parts: str,
        run: Run,
    ) -> None:
        """Then it alone says where the query begins."""
        publish_numbers(service_url, parts, [0, 1], range(6))
        query.run(spark)
        assert uncommit(query, in_sink=False) == 0
        command = ("checkpoint", query.checkpoint, "-o", f"service.url={service_url}")
        assert run(*command, "--set-position", "latest", "--yes")[0] == 0
        publish_numbers(service_url, parts, [0, 1], range(6, 8))
        query.run(spark)
        assert query.rows() == {0: [6, 7], 1: [6, 7]}

    def test_a_query_with_state(
        self,
        spark: SparkSession,
        service_url: str,
        parts: str,
        tmp_path: Path,
        run: Run,
    ) -> None:
        """Its state goes on from the micro-batch before: rows count again."""
        counts: dict[str, int] = {}

        def keep(frame: DataFrame, batch_id: int) -> None:
            counts.update({row["v"]: row["count"] for row in frame.collect()})

        def go_on() -> None:
            query = (
                spark.readStream.format("pulsar")
                .option("service.url", service_url)
                .option("topic", parts)
                .option("startingOffsets", "earliest")
                .load()
                .selectExpr("CAST(value AS STRING) AS v")
                .groupBy("v")
                .count()
                .writeStream.outputMode("update")
                .option("checkpointLocation", str(tmp_path / "counts"))
                .trigger(availableNow=True)
                .foreachBatch(keep)
                .start()
            )
            assert query.awaitTermination(240)

        publish_numbers(service_url, parts, [0, 1], range(3))
        go_on()
        assert counts == {"0": 2, "1": 2, "2": 2}
        code, printed = run(
            *("checkpoint", tmp_path / "counts", "-o", f"service.url={service_url}"),
            *("--set-position", "earliest", "--yes"),
        )
        assert code == 0
        assert "keeps state" in printed
        go_on()
        assert counts == {"0": 4, "1": 4, "2": 4}

    def test_refuses_while_the_query_runs(
        self, service_url: str, paused: Paused, tmp_path: Path, run: Run
    ) -> None:
        """Its subscription has a consumer then; afterwards it can be set."""
        query = replace(paused.query, folder=tmp_path)
        shutil.copytree(paused.query.checkpoint, query.checkpoint)
        command = ("checkpoint", query.checkpoint, "-o", f"service.url={service_url}")
        before = logged(query)
        with driven_query.Query(service_url, topic=paused.topic) as running:
            end = query.offset(query.planned[-1]).to_json()
            running.ends = [json.dumps(end)]
            assert running.trigger()
            code, printed = run(*command, "--set-position", "earliest", "--yes")
            assert code == 1
            assert "the query runs" in printed
            assert logged(query) == before
        assert run(*command, "--set-position", "earliest", "--yes")[0] == 0


class TestSubscriptions:
    """What queries leave on topics."""

    def test_deletes_what_nobody_needs(
        self,
        broker: EmbeddedBroker | ExternalBroker,
        admin: Admin,
        service_url: str,
        paused: Paused,
        run: Run,
    ) -> None:
        """Kept: connected ones, a checkpoint's, logs, and those of other programs."""
        query, parts = paused.query, paused.topic
        own = query.offset(query.planned[-1]).subscription
        first = f"{parts}-partition-0"
        left, held, batch = (f"spark-pulsar-{uuid.uuid4()}" for _ in range(3))
        scala = f"{left}--1234567-{first}"
        batch = batch.replace("spark-pulsar-", "spark-pulsar-batch-")
        for name in (left, scala, batch, "spark-pulsar-commits", "theirs"):
            admin.create_subscription(first, name)
        command = ("subscriptions", parts, "--admin-url", broker.admin_url, "--delete")
        owned = ("--checkpoint", query.checkpoint)
        with official.client(service_url) as client:
            client.subscribe(first, held, pulsar.ConsumerType.Exclusive)
            code, printed = run(*command, *owned)
            assert code == 0
            assert "add --yes" in printed
            assert admin.subscriptions(first) == sorted(
                [own, left, scala, batch, held, "spark-pulsar-commits", "theirs"]
            )
            code, printed = run(*command, "--yes")
            assert code == 2  # a paused query looks like one that is gone
            code, printed = run(*command, *owned, "--yes", "--json")
            assert code == 0
        rows = {
            one["subscription"]: one for one in json.loads(printed)["subscriptions"]
        }
        assert {name: row["outcome"] for name, row in rows.items()} == {
            own: "kept: owned",
            left: "deleted",
            scala: "deleted",
            batch: "deleted",
            held: "kept: connected",
            "spark-pulsar-commits": "kept: commit log",
        }
        assert rows[scala]["kind"] == "Scala stream"
        assert rows[scala]["backlogEntries"] == 15
        assert rows[batch]["kind"] == "Scala batch"
        assert query.checkpoint.name in rows[own]["owner"]
        left_over = [held, "spark-pulsar-commits", "theirs"]
        assert admin.subscriptions(first) == sorted([own, *left_over])
        for name in left_over:
            admin.delete_subscription(first, name)


@pytest.mark.matrix
def test_a_plot_of_what_spark_logged(
    service_url: str,
    query: Query,
    parts: str,
    tmp_path: Path,
    run: Run,
) -> None:
    """The event log, compressed as Spark has it, becomes a picture."""
    events = tmp_path / "events"
    events.mkdir()
    publish_numbers(service_url, parts, [0, 1], range(30))
    logging = replace(
        query,
        options={**query.options, "maxRowsPerTrigger": "10"},
        conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events)},
    )
    with Job([logging], tmp_path / "log") as job:
        job.await_true(lambda: len(query.committed) >= 6, "all micro-batches")
        await_true(lambda: not any(events.rglob("*.inprogress")), "the end of Spark")
    picture = tmp_path / "lag.png"
    code, printed = run(
        *("lag", query.checkpoint, "--event-log", events, "--plot", picture)
    )
    assert code == 0, printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    from pulsar_spark.cli.event_log import read_history
    from pulsar_spark.cli.spark_files import Checkpoint

    history = read_history([str(events)], Checkpoint(str(query.checkpoint)).query_id)
    left = [one.lag.backlog_entries for one in history]
    assert left[:6] == [50, 40, 30, 20, 10, 0]
    assert all(one.duration_s for one in history[:6])
