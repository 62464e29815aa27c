# SPDX-License-Identifier: Apache-2.0
"""Scalable topics on a broker of Pulsar 5: reads, streams, and migrated topics."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Window, functions

import pulsar_spark
from pulsar_spark import EndOffsets
from pulsar_spark.arrow.hashing import murmur3_32
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import TransactionClient, TxnStatus, status_of
from pulsar_spark.message_id import MessageId
from pulsar_spark.options.client import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.sink.visibility import Place, Visibility, find_out
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.wire.commands import TxnAction
from tests.support import driven_query, official
from tests.support.commands import Run
from tests.support.commands import run as run
from tests.support.key_pairs import rsa_pair
from tests.support.scalable import PULSAR_5, ScalableTopic, official_client
from tests.support.streaming import Job, Query
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.matrix

#: How often a broker looks for segments to delete, and some more, in seconds.
PRUNING_S = 180.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that knows scalable topics.

    5.0.0-M1 may fence a segment for good that is sealed under the entries of a
    transaction. So it is to load such topics again.
    """
    settings = {"topicFencingTimeoutSeconds": "2"}
    with EmbeddedBroker(version=PULSAR_5, settings=settings) as started:
        yield started


def retain(broker: EmbeddedBroker, minutes: int) -> None:
    """Let the namespace of all topics here keep rows so long; -1 for ever."""
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": minutes}
    put_json(broker, "/admin/v2/namespaces/public/default/retention", retention, "POST")


def numbered(prefix: str, count: int = 5) -> list[str]:
    """Values that tell their order."""
    return [f"{prefix}{number}" for number in range(count)]


def load(spark: SparkSession, broker: EmbeddedBroker, **options: str) -> DataFrame:
    """A batch read."""
    given = {"service.url": broker.service_url, **options}
    return spark.read.format("pulsar").options(**given).load()


def values(frame: DataFrame) -> list[str]:
    """The values, in the order in which they come."""
    return [bytes(row["value"]).decode() for row in frame.select("value").collect()]


class TestReads:
    @pytest.fixture
    def topic(self, broker: EmbeddedBroker) -> Iterator[ScalableTopic]:
        """Two segments, of which the first is split, and the last child empty."""
        name = f"read-{time.monotonic_ns()}"
        with closing(ScalableTopic(broker, name, segments=2)) as topic:
            topic.put(0, numbered("a"))
            topic.put(1, numbered("b"))
            topic.split(0)
            topic.put(2, numbered("c"))
            yield topic

    def test_all_segments(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """Sealed and active ones, parents first, by any form of the name."""
        columns = {"metadataColumns": "__topic,__partition"}
        frame = load(spark, broker, topic=topic.name, **columns)
        assert values(frame) == numbered("a") + numbered("b") + numbered("c")
        places = {(row["__topic"], row["__partition"]) for row in frame.collect()}
        assert places == {(topic.name, number) for number in range(3)}
        local_name = topic.name.removeprefix("topic://public/default/")
        for name in (local_name, f"persistent://public/default/{local_name}"):
            assert load(spark, broker, topic=name).count() == 15
        for pattern in (f"{local_name[:-1]}.", topic.name[:-1] + "."):
            assert load(spark, broker, topicsPattern=pattern).count() == 15

    def test_parts(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """By position from time to time, by segment, and divided among tasks."""
        options = {"service.url": broker.service_url, "topic": topic.name}
        ends = pulsar_spark.end_offsets(options)
        topic.put(2, numbered("d"))
        before = load(spark, broker, topic=topic.name, endingOffsets=ends.ending)
        assert values(before) == numbered("a") + numbered("b") + numbered("c")
        after = load(spark, broker, topic=topic.name, startingOffsets=ends.following)
        assert values(after) == numbered("d")
        following = json.loads(ends.following)[topic.name]
        offsets = json.dumps({topic.name: {"8000-ffff-1": following["8000-ffff-1"]}})
        rest = load(spark, broker, topic=topic.name, startingOffsets=offsets)
        assert values(rest) == numbered("a") + numbered("c") + numbered("d")
        frame = load(
            spark,
            broker,
            topic=topic.name,
            metadataColumns="__topic,__partition",
        )
        assert values(frame.where("__partition = 1")) == numbered("b")
        assert frame.where(f"__topic = '{topic.name}'").count() == 20
        divided = load(spark, broker, topic=topic.name, maxRecordsPerPartition="2")
        assert sorted(values(divided)) == sorted(values(frame))

    @pytest.mark.slow
    def test_from_time_to_time(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """Across a split and the deletion of what was split, each row once."""
        retain(broker, 0)
        options = {"service.url": broker.service_url, "topic": topic.name}

        def ends_of(segment_id: int) -> tuple[EndOffsets, str]:
            ends = pulsar_spark.end_offsets(options)
            key = topic.layout.names[segment_id].rpartition("/")[2]
            return ends, json.loads(ends.following)[topic.name][key]

        first, start = ends_of(1)
        assert start != "latest"
        topic.put(1, numbered("d"))
        topic.split(1)
        topic.put(4, numbered("e"))
        rows = load(spark, broker, topic=topic.name, endingOffsets=first.ending)
        assert values(rows) == numbered("a") + numbered("b") + numbered("c")
        second, start = ends_of(1)
        assert start == "latest"
        given = {"startingOffsets": first.following, "endingOffsets": second.ending}
        rows = load(spark, broker, topic=topic.name, **given)
        assert values(rows) == numbered("d") + numbered("e")
        await_true(
            lambda: not {0, 1} & topic.layout.names.keys(),
            "the end of the segments",
            2 * PRUNING_S,
        )
        topic.put(4, numbered("f"))
        given = {"startingOffsets": second.following}
        assert values(load(spark, broker, topic=topic.name, **given)) == numbered("f")
        given = {"startingOffsets": first.following}
        with pytest.raises(PySparkException, match="PULSAR_DATA_LOSS"):
            load(spark, broker, topic=topic.name, **given).count()
        given["failOnDataLoss"] = "false"
        rows = load(spark, broker, topic=topic.name, **given)
        assert values(rows) == numbered("e") + numbered("f")
        # Nor does a first read up to ends that name what is gone pass over that.
        given = {"endingOffsets": second.ending}
        with pytest.raises(PySparkException, match="PULSAR_DATA_LOSS"):
            load(spark, broker, topic=topic.name, **given).count()

    @pytest.mark.parametrize("compacted", ["false", "true"])
    def test_more_rows_are_seen_each_time(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        compacted: str,
    ) -> None:
        """The broker's own word for the end of a segment stays what it was first."""
        given = {"topic": topic.name, "pulsar.reader.readCompacted": compacted}
        for count in range(3, 6):
            topic.put(3, numbered("e"))
            assert load(spark, broker, **given).count() == 5 * (count + 1)

    def test_names_that_are_wrong(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """One sentence says what to change."""
        for name, sentence in (
            ("topic://public/default/nowhere", "does not exist"),
            (f"{topic.name}/0000-7fff-0", "is not a topic name"),
            (topic.layout.names[0], f"name the topic, {topic.name}"),
        ):
            with pytest.raises(PySparkException, match=sentence):
                load(spark, broker, topic=name).count()


class Copy:
    """What a stream has read: rows by micro-batch, over all its runs."""

    def __init__(
        self, spark: SparkSession, broker: EmbeddedBroker, folder: Path, topic: str
    ) -> None:
        self._spark = spark
        self._options = {
            "service.url": broker.service_url,
            "topic": topic,
            "startingOffsets": "earliest",
            "partitionDiscoveryIntervalMs": "500",
        }
        self._checkpoint = str(folder / "checkpoint")
        self.batches: dict[int, list[str]] = {}
        self.is_waiting = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    @property
    def rows(self) -> list[str]:
        """All rows, in order."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @contextmanager
    def running(self, **options: str) -> Iterator[StreamingQuery]:
        """Runs the query."""
        query = (
            self._spark.readStream.format("pulsar")
            .options(**{**self._options, **options})
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._checkpoint)
            .start()
        )
        try:
            yield query
        finally:
            query.stop()

    def run_to_the_end(self, **options: str) -> None:
        """Reads what is stored now."""
        query = (
            self._spark.readStream.format("pulsar")
            .options(**{**self._options, **options})
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(180)

    def await_rows(self, query: StreamingQuery, count: int) -> None:
        """Waits for so many rows."""

        def have_come() -> bool:
            assert query.exception() is None, query.exception()
            return len(self.rows) >= count

        await_true(have_come, f"{count} rows")

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        rows = values(frame)
        if not self.may_go_on.is_set():
            self.is_waiting.set()
            assert self.may_go_on.wait(2 * PRUNING_S)
        self.batches[batch_id] = rows


class TestStreams:
    @pytest.fixture
    def topic(self, broker: EmbeddedBroker) -> Iterator[ScalableTopic]:
        """Two segments, which nothing but subscriptions keeps."""
        retain(broker, 0)
        name = f"stream-{time.monotonic_ns()}"
        with closing(ScalableTopic(broker, name, segments=2)) as topic:
            yield topic

    @pytest.fixture
    def copy(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        tmp_path: Path,
        topic: ScalableTopic,
    ) -> Copy:
        """A stream of the topic."""
        return Copy(spark, broker, tmp_path, topic.name)

    def test_a_running_stream_goes_on_with_the_children(
        self, topic: ScalableTopic, copy: Copy
    ) -> None:
        """Of a split, and of a merge of what was split."""
        topic.put(0, numbered("a"))
        with copy.running() as query:
            copy.await_rows(query, 5)
            topic.split(0)
            topic.put(2, numbered("b"))
            topic.put(3, numbered("c"))
            copy.await_rows(query, 15)
            topic.merge(2, 3)
            topic.put(4, numbered("d"))
            copy.await_rows(query, 20)
            topic.put(4, numbered("e"))
            copy.await_rows(query, 25)
        assert sorted(copy.rows) == sorted(
            row for prefix in "abcde" for row in numbered(prefix)
        )
        assert copy.rows[:5] == numbered("a")
        assert copy.rows[-10:] == numbered("d") + numbered("e")

    @pytest.mark.parametrize("order", ["true", "false"])
    def test_children_come_after_their_parents(
        self, topic: ScalableTopic, copy: Copy, order: str
    ) -> None:
        """In later micro-batches, with limits, unless no order is asked for."""
        topic.put(0, numbered("a", 9))
        topic.split(0)
        topic.put(2, numbered("b"))
        topic.put(3, numbered("c"))
        topic.merge(2, 3)
        topic.put(4, numbered("d"))
        limit = {} if order == "false" else {"maxRowsPerTrigger": "4"}
        copy.run_to_the_end(orderByKey=order, **limit)
        rows = [
            (row, number) for number, b in sorted(copy.batches.items()) for row in b
        ]
        assert len(rows) == 24
        batches = {p: {n for row, n in rows if row[0] == p} for p in "abcd"}
        if order == "true":
            assert max(batches["a"]) < min(batches["b"] | batches["c"])
            assert max(batches["b"] | batches["c"]) < min(batches["d"])
        else:
            assert set().union(*batches.values()) == {0}

    def test_sealed_segments_without_rows(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        copy: Copy,
    ) -> None:
        """Reads and streams pass them, when the broker has loaded them again."""
        admin = Admin(broker.admin_url)
        for number, prefix in enumerate("ab", 1):
            empty = topic.layout.active[-1].segment_id
            topic.split(empty)
            topic.put(empty + 1, numbered(prefix))
            admin.unload_namespace("public/default")
            # What the stream has acknowledged may be gone.
            rows = values(load(spark, broker, topic=topic.name))
            assert rows[-5:] == numbered(prefix)
            copy.run_to_the_end()
            assert len(copy.rows) == 5 * number
        with copy.running() as query:
            topic.split(topic.layout.active[-1].segment_id)
            topic.put(topic.layout.active[-1].segment_id, numbered("c"))
            admin.unload_namespace("public/default")
            copy.await_rows(query, 15)

    def test_nothing_is_left_out_by_a_restart(
        self, topic: ScalableTopic, copy: Copy
    ) -> None:
        """Whatever became of the segments meanwhile."""
        topic.put(0, numbered("a"))
        copy.run_to_the_end()
        topic.put(0, numbered("b"))
        topic.split(0)
        topic.put(2, numbered("c"))
        topic.merge(2, 3)
        topic.put(4, numbered("d"))
        copy.run_to_the_end(startingOffsets="latest")
        assert copy.rows == [row for prefix in "abcd" for row in numbered(prefix)]
        copy.run_to_the_end()
        assert len(copy.rows) == 20

    def test_a_cursor_that_was_moved(self, broker: EmbeddedBroker) -> None:
        """Here by another run: rows that are stored are read, and so are children."""
        retain(broker, -1)
        name = f"moved-{time.monotonic_ns()}"
        with closing(ScalableTopic(broker, name, segments=1)) as topic:
            options = {"topics": topic.name, "predefinedSubscription": "s"}
            one, other = (
                driven_query.Query(broker.service_url, **options) for _ in range(2)
            )
            topic.put(0, ["0", "1", "2"])
            one.run()
            topic.put(0, ["3", "4", "5", "6"])
            other.run()
            one.run()
            topic.split(0)
            topic.put(1, ["7"])
            topic.put(2, ["8"])
            one.run()
        assert one.rows == {topic.name: [*range(9)]}

    def test_the_registration_ends_with_the_subscription(
        self, topic: ScalableTopic, copy: Copy
    ) -> None:
        """At once, not when the broker gives a query up that it hears no more of."""
        with copy.running(deleteSubscriptionOnStop="true") as query:
            topic.put(0, numbered("a"))
            copy.await_rows(query, 5)
            assert len(topic.subscriptions) == 1
        await_true(lambda: not topic.subscriptions, "the end of the registration", 20.0)

    @pytest.mark.slow
    def test_segments_are_kept_until_they_are_read(
        self, topic: ScalableTopic, copy: Copy
    ) -> None:
        """However long a micro-batch takes; and deleted then, which is no loss."""
        topic.put(0, numbered("a"))
        with copy.running() as query:
            copy.await_rows(query, 5)
            copy.may_go_on.clear()
            topic.put(1, ["0"])
            await_true(copy.is_waiting.is_set, "a micro-batch that takes long")
            topic.put(0, numbered("b"))
            topic.split(0)
            topic.put(2, numbered("c"))
            time.sleep(PRUNING_S)
            assert 0 in topic.layout.names
            copy.may_go_on.set()
            copy.await_rows(query, 16)
            await_true(
                lambda: 0 not in topic.layout.names, "the end of the segment", 300.0
            )
            topic.put(2, numbered("d"))
            copy.await_rows(query, 21)
        copy.run_to_the_end()
        assert sorted(copy.rows) == sorted(
            ["0", *(row for prefix in "abcd" for row in numbered(prefix))]
        )

    def test_the_command_line(
        self,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        copy: Copy,
        tmp_path: Path,
        run: Run,
    ) -> None:
        """Lag counts segments that the stream has not seen; left cursors are found."""
        topic.put(0, numbered("a"))
        copy.run_to_the_end()
        topic.put(0, numbered("b", 2))
        topic.split(0)
        for segment_id in (2, 3):
            topic.put(segment_id, numbered("c", 2 + segment_id))
        checkpoint = tmp_path / "checkpoint"
        cluster = ("-o", f"service.url={broker.service_url}", "--json")
        code, printed = run("lag", checkpoint, *cluster)
        assert code == 0
        assert json.loads(printed)["backlogEntries"] == 11
        code, printed = run("checkpoint", checkpoint, *cluster)
        (source,) = json.loads(printed)["sources"]
        backlogs = [row["backlogEntries"] for row in source["topicPartitions"]]
        assert backlogs == [2, 0, 4, 5]
        command = ("subscriptions", topic.name, "--admin-url", broker.admin_url)
        command += ("--json", "--delete", "--yes")
        await_true(
            lambda: not any(one["consumers"] for one in topic.subscriptions.values()),
            "that the broker gives the query up",
            120.0,
        )
        for arguments, outcome in (
            (("--checkpoint", checkpoint), "kept: owned"),
            (("--name", source["subscription"]), "deleted"),
        ):
            code, printed = run(*command, *arguments)
            assert code == 0
            rows = json.loads(printed)["subscriptions"]
            assert {row["outcome"] for row in rows} == {outcome}
        code, printed = run(*command, "--name", source["subscription"])
        assert not json.loads(printed)["subscriptions"]
        assert not topic.subscriptions

    @pytest.mark.slow
    def test_a_segment_that_is_lost(self, topic: ScalableTopic, copy: Copy) -> None:
        """Without a subscription nothing keeps it, and that is never silent."""
        topic.put(0, numbered("a"))
        copy.run_to_the_end(ackOnCommit="false")
        topic.put(0, numbered("b"))
        topic.split(0)
        await_true(lambda: 0 not in topic.layout.names, "the end of the segment", 300.0)
        with pytest.raises(PySparkException, match="PULSAR_DATA_LOSS"):
            copy.run_to_the_end(ackOnCommit="false")


def write(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic: str,
    rows: int,
    *,
    first: int = 0,
    tasks: int = 2,
    **options: str,
) -> None:
    """Writes numbers, with one of a few keys each."""
    given = {"service.url": broker.service_url, "topic": topic, **options}
    (
        spark.range(first, first + rows, 1, tasks)
        .selectExpr("CAST(id AS STRING) AS value", "CAST(id % 50 AS STRING) AS __key")
        .write.format("pulsar")
        .mode("append")
        .options(**given)
        .save()
    )


def ancestors(parents: dict[int, frozenset[int]], segment_id: int) -> set[int]:
    """The segments whose rows are older than those of a segment."""
    older: set[int] = set()
    waiting = [segment_id]
    while waiting:
        more = parents[waiting.pop()] - older
        older |= more
        waiting += more
    return older


@contextmanager
def dividing(topic: ScalableTopic, period_s: float = 0.5) -> Iterator[None]:
    """Splits and merges segments all the time."""
    over = threading.Event()

    def divide() -> None:
        chosen = random.Random(7)
        while not over.wait(period_s):
            topic.divide(chosen)

    with ThreadPoolExecutor(1) as executor:
        divider = executor.submit(divide)
        try:
            yield
        finally:
            over.set()
        divider.result(60)


@contextmanager
def killed(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Ends a process in the end, whatever happens."""
    with process:
        try:
            yield
        finally:
            process.kill()


#: Where the copy is killed; "" for anywhere.
STEPS = ("after prepared", "", "after first end", "", "after ends", "before committed")


class TestWrites:
    @pytest.fixture
    def topic(self, broker: EmbeddedBroker) -> Iterator[ScalableTopic]:
        """Two segments, of which none is ever deleted."""
        retain(broker, -1)
        name = f"write-{time.monotonic_ns()}"
        with closing(ScalableTopic(broker, name, segments=2)) as topic:
            yield topic

    def test_segments_that_split_and_merge_meanwhile(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """Each row is stored, where its key belongs, and in order by key.

        Twice only where the broker does not deliver the end of a sealed segment.
        """
        rows = 400_000
        with dividing(topic):
            # Slowly enough for a few splits.
            write(
                spark,
                broker,
                topic.name,
                rows,
                **{"pulsar.producer.batchingMaxMessages": "20"},
            )
        numbers = self.numbers_in_order(spark, broker, topic, rows)
        assert len(set(numbers)) == rows

    def numbers_in_order(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        rows: int,
    ) -> list[int]:
        """The numbers that `write` wrote, each key where it belongs and in order."""
        layout = topic.layout
        assert len(layout.segments) > 4
        frame = load(
            spark, broker, topic=topic.name, metadataColumns="__key,__partition"
        )
        last: dict[tuple[bytes, bool], int] = {}
        seen: set[int] = set()
        numbers: list[int] = []
        by_id = {one.segment_id: one for one in layout.segments}
        # In the order of segments, and of rows in these: parents come first.
        for row in frame.collect():
            number = int(bytes(row["value"]).split()[-1])
            key = bytes(row["__key"])
            segment = by_id[row["__partition"]]
            digest = murmur3_32(key) >> 16
            assert segment.hash_start <= digest <= segment.hash_end
            numbers.append(number)
            if number in seen:
                continue
            seen.add(number)
            writer = key, number >= rows // 2
            assert last.get(writer, -1) < number
            last[writer] = number
        return numbers

    def test_once_whatever_splits_and_merges(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """Each row is stored once, and in order by key."""
        rows = 400_000
        with dividing(topic):
            write(
                spark,
                broker,
                topic.name,
                rows,
                deliveryGuarantee="exactly-once",
                **{"pulsar.producer.batchingMaxMessages": "200"},
            )
        assert sorted(self.numbers_in_order(spark, broker, topic, rows)) == list(
            range(rows)
        )

    @pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
    def test_encrypted_typed_rows_in_chunks(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        tmp_path: Path,
        guarantee: str,
    ) -> None:
        """All features of entries together, while segments split and merge.

        At least once, 5.0.0-M1 may not deliver the end of a sealed segment.
        """
        count = 6000
        keys = rsa_pair().save(tmp_path, "ours")
        # Digests, for they compress badly: a row in a hundred takes some six chunks.
        parts = "sequence(1, IF(id % 100 = 7, 300, 1))"
        texts = f"array_join(transform({parts}, i -> sha2(STRING(i + id), 256)), '')"
        rows = spark.range(0, count, 1, 2).selectExpr(
            "id", f"{texts} AS text", "STRING(id % 50) AS __key"
        )
        options = {
            "service.url": broker.service_url,
            "topic": topic.name,
            "schemaType": "AVRO",
            "deliveryGuarantee": guarantee,
            "pulsar.producer.compressionType": "ZSTD",
            "pulsar.producer.chunkingEnabled": "true",
            "pulsar.producer.chunkMaxMessageSize": "2000",
            "pulsar.producer.batchingMaxMessages": "3",
            **keys.for_writes,
        }
        topic.split(1)
        with dividing(topic, 0.3):
            rows.write.format("pulsar").options(**options).mode("append").save()
        assert len(topic.layout.segments) > 4
        columns = {"metadataColumns": "__key,__partition", **keys.for_reads}
        frame = load(spark, broker, topic=topic.name, **columns)
        if guarantee == "at-least-once":
            frame = frame.dropDuplicates(["id"])
        found = frame.selectExpr(
            "count(*) AS count",
            "count(DISTINCT id) AS ids",
            f"count_if(text = {texts} AND STRING(__key) = STRING(id % 50)) AS right",
        ).first()
        assert found is not None
        assert found.asDict() == {"count": count, "ids": count, "right": count}
        if guarantee == "at-least-once":
            return
        of_a_task = functions.expr(f"id < {count // 2}")
        by_key = Window.partitionBy("__key", of_a_task).orderBy("id")
        ordered = load(spark, broker, topic=topic.name, **columns).withColumn(
            "before", functions.lag("__partition").over(by_key)
        )
        parents = {one.segment_id: one.parents for one in topic.layout.segments}
        for row in ordered.where("before <> __partition").distinct().collect():
            assert row["before"] in ancestors(parents, row["__partition"])

    def test_a_failed_write_leaves_nothing(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """What its tasks have written is aborted, also in sealed segments."""
        rows = spark.sql(
            "SELECT 'x' AS value, CAST(NULL AS INT) AS __partition "
            "UNION ALL SELECT 'x', IF(id < 3000, NULL, 99) FROM RANGE(3001)"
        ).coalesce(1)
        writer = rows.write.format("pulsar").mode("append")
        writer = writer.option("service.url", broker.service_url)
        writer = writer.option("deliveryGuarantee", "exactly-once")
        topic.split(0)
        with pytest.raises(PySparkException, match="no active segment"):
            writer.option("topic", topic.name).save()
        assert load(spark, broker, topic=topic.name).count() == 0
        write(spark, broker, topic.name, 10, deliveryGuarantee="exactly-once")
        assert load(spark, broker, topic=topic.name).count() == 10

    @pytest.mark.slow
    @pytest.mark.parametrize("guarantee", ["exactly-once", "idempotent"])
    def test_a_copy_that_is_killed(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        tmp_path: Path,
        guarantee: str,
    ) -> None:
        """Each row once in another topic, in order by key, though both are divided."""
        rows = 20_000
        local_name = f"source-{time.monotonic_ns()}"
        with closing(ScalableTopic(broker, local_name, segments=1)) as source:
            query = Query.of_a_copy(
                *(tmp_path / "query", broker.service_url, source.name, topic.name),
                *(3000, guarantee),
            )
            with dividing(topic, 1.0), dividing(source, 1.0):
                for turn, step in enumerate(STEPS):
                    first = turn * rows
                    write(spark, broker, source.name, rows, first=first, tasks=1)
                    batch = len(query.committed) + 1
                    stand = step and f"{step}:{batch}"
                    log = tmp_path / f"log-{turn}"
                    with Job([query], log, stand=stand) as job:
                        # Killed there, or in the midst of some micro-batch.
                        job.await_true(
                            lambda batch=batch, job=job, stand=stand: (
                                job.stands if stand else len(query.committed) > batch
                            ),
                            step or "some micro-batches",
                        )
            all_rows = rows * len(STEPS)
            with Job([query], tmp_path / "log") as job:
                job.await_true(
                    lambda: load(spark, broker, topic=topic.name).count() >= all_rows,
                    "all rows",
                    5.0,
                )
        numbers = self.numbers_in_order(spark, broker, topic, 2 * all_rows)
        assert sorted(numbers) == list(range(all_rows))

    def test_beside_the_official_client(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        tmp_path: Path,
    ) -> None:
        """Each key has one segment, whoever writes; the official consumer reads all."""
        client = official_client(tmp_path)
        topic.split(0)
        topic.split(1)
        producer = subprocess.Popen(
            [*client, "write", broker.service_url, topic.name, "400"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with killed(producer):
            await_true(
                lambda: load(spark, broker, topic=topic.name).count() > 400, "rows"
            )
            printed, _ = producer.communicate("end\n", timeout=120)
        theirs, failed = map(int, printed.split())
        assert not failed
        rows = spark.sql(
            "SELECT CONCAT('k', id % 50) AS __key, STRING(id) AS value FROM RANGE(1000)"
        )
        options = {"service.url": broker.service_url, "topic": topic.name}
        rows.write.format("pulsar").mode("append").options(**options).save()
        columns = "__key,__partition"
        stored = load(
            spark, broker, topic=topic.name, metadataColumns=columns
        ).withColumn("value", functions.expr("BINARY(value)"))
        assert Counter(values(stored)) == Counter(
            str(number) for count in (theirs, 1000) for number in range(count)
        )
        places = stored.select("__key", "__partition").distinct().collect()
        assert len(places) == 50
        assert len({row["__partition"] for row in places}) == 4
        read = tmp_path / "rows"
        consumer = subprocess.Popen(
            [*client, "copy", broker.service_url, topic.name, str(tmp_path)]
        )
        with killed(consumer):
            await_true(
                lambda: (
                    read.exists()
                    and Counter(read.read_text().split()) == Counter(values(stored))
                ),
                "all rows",
            )

    def test_a_named_segment(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """By its id, if it is active."""

        def write_to(segment_id: int) -> None:
            rows = spark.sql(f"SELECT 'x' AS value, {segment_id} AS __partition")
            writer = rows.write.format("pulsar").mode("append")
            writer.option("service.url", broker.service_url).option(
                "topic", topic.name
            ).save()

        topic.split(0)
        write_to(3)
        with pytest.raises(PySparkException, match="no active segment"):
            write_to(0)
        frame = load(spark, broker, topic=topic.name, metadataColumns="__partition")
        assert [row["__partition"] for row in frame.collect()] == [3]

    def test_idempotent_writes_are_repeated(
        self, spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic
    ) -> None:
        """Each row is stored once, though its segment is another one by then."""
        rows = 100_000
        options = {"deliveryGuarantee": "idempotent", "idempotenceId": topic.name[-9:]}
        with dividing(topic):
            for tasks in (2, 3):
                write(spark, broker, topic.name, rows, tasks=tasks, **options)
            with pytest.raises(PySparkException, match="PULSAR_IDEMPOTENCE"):
                write(spark, broker, topic.name, rows + 1, **options)
        numbers = self.numbers_in_order(spark, broker, topic, rows)
        assert sorted(numbers) == list(range(rows))

    def test_an_idempotent_stream(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        topic: ScalableTopic,
        tmp_path: Path,
    ) -> None:
        """It goes on after a restart; its last micro-batch may be repeated."""
        options = {"service.url": broker.service_url, "topic": topic.name}
        options["deliveryGuarantee"] = "idempotent"
        options["checkpointLocation"] = str(tmp_path / "checkpoint")
        with dividing(topic):
            for last in (2, 5, 8):
                query = start_numbers(spark, options)
                await_true(lambda: _batch_of(query) >= last, f"micro-batch {last}")  # noqa: B023
                query.stop()
                # As if Spark had not got to know that it was committed.
                commits = tmp_path / "checkpoint" / "commits"
                newest = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
                for path in (newest, newest.with_name(f".{newest.name}.crc")):
                    path.unlink(missing_ok=True)
        numbers = [
            int(value) for value in values(load(spark, broker, topic=topic.name))
        ]
        assert len(numbers) >= 8000
        assert sorted(numbers) == list(range(len(numbers)))


def start_numbers(
    spark: SparkSession, options: dict[str, str], *, once: bool = False
) -> StreamingQuery:
    """A stream that writes all numbers from 0 on, or the next thousand."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000)
    writer = (
        rows.load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("pulsar")
        .options(**options)
    )
    return (writer.trigger(once=True) if once else writer).start()


def _batch_of(query: StreamingQuery) -> int:
    """The last micro-batch that is done; -1 for none."""
    if query.exception() is not None:
        raise query.exception()
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


@pytest.fixture(scope="class")
def forgetful() -> Iterator[EmbeddedBroker]:
    """A broker whose coordinators forget at once how transactions were ended."""
    settings = {
        "transactionCoordinatorScalableTopicsGcRetentionSeconds": "1",
        "transactionCoordinatorScalableTopicsGcIntervalSeconds": "1",
    }
    with EmbeddedBroker(version=PULSAR_5, settings=settings) as started:
        yield started


class TestTransactions:
    def test_what_became_of_an_entry(self, forgetful: EmbeddedBroker) -> None:
        """The segment tells it when the coordinator does not any more."""
        options = ClientOptions(
            service_url=parse_service_url(forgetful.service_url, "service.url")
        )
        name = f"txn-{time.monotonic_ns()}"
        with (
            closing(ScalableTopic(forgetful, name, segments=1)) as topic,
            closing(ConnectionPool(options)) as pool,
        ):
            segment = topic.layout.names[0]
            client = TransactionClient(pool, is_scalable=True)
            entries: dict[TxnAction, dict[Place, MessageId]] = {}
            with Producers(pool, ProducerSettings(transactional=True)) as producers:
                producers.open([segment])
                producer = producers.get(segment)
                for action in TxnAction:
                    txn = client.begin(60_000)
                    producers.send(producer, producer.plain_entry(b"row", txn=txn))
                    producers.flush()
                    assert producer.stored.last_message is not None
                    place = Place(txn, segment)
                    entries[action] = {place: producer.stored.last_message}
                    other = next(one for one in TxnAction if one is not action)
                    for asked, status in [
                        (action, TxnStatus.DONE),
                        (action, TxnStatus.DONE),
                        (other, TxnStatus.OPPOSED),
                    ]:
                        answer = client.end([txn], asked)[txn]
                        # On a busy machine that is late.
                        assert status_of(txn, answer) in (status, TxnStatus.OVER)
                    await_true(
                        lambda txn=txn, action=action: (
                            status_of(txn, client.end([txn], action)[txn])
                            is TxnStatus.OVER
                        ),
                        "that it is forgotten",
                        pause=0.5,
                    )
            for _ in range(2):  # also when it is sealed
                for action, seen in [
                    (TxnAction.COMMIT, Visibility.VISIBLE),
                    (TxnAction.ABORT, Visibility.ABORTED),
                ]:
                    retry = pool.retry(30.0)
                    found = find_out(pool, entries[action], retry)
                    assert [*found.values()] == [seen]
                if not topic.layout.segments[0].is_sealed:
                    topic.split(0)


class TestMigration:
    @pytest.mark.parametrize("partitions", [0, 2])
    def test_a_stream_and_reads_go_on(
        self,
        spark: SparkSession,
        broker: EmbeddedBroker,
        tmp_path: Path,
        partitions: int,
    ) -> None:
        """By the old name and by the new one; so do writes."""
        local_name = f"moved-{time.monotonic_ns()}"
        old_name = f"persistent://public/default/{local_name}"
        if partitions:
            path = f"/admin/v2/persistent/public/default/{local_name}/partitions"
            put_json(broker, path, partitions)
        with official.client(broker.service_url) as client:
            producer = client.create_producer(old_name)
            for value in numbered("a", 10):
                producer.send(value.encode())
            producer.close()
        copy = Copy(spark, broker, tmp_path, old_name)
        with (
            closing(ScalableTopic(broker, local_name)) as topic,
            copy.running() as query,
        ):
            copy.await_rows(query, 10)
            assert topic.ask("POST", "/migrate") == 204
            active = [s.segment_id for s in topic.layout.segments if not s.is_sealed]
            topic.put(active[0], numbered("b"))
            copy.await_rows(query, 15)
            topic.put(active[-1], numbered("c"))
            copy.await_rows(query, 20)
        assert sorted(copy.rows) == sorted(
            numbered("a", 10) + numbered("b") + numbered("c")
        )
        copy.run_to_the_end()
        assert len(copy.rows) == 20
        for name in (old_name, topic.name):
            assert load(spark, broker, topic=name).count() == 20
        for count, name in enumerate((old_name, topic.name), 3):
            write(spark, broker, name, 10)
            assert load(spark, broker, topic=name).count() == 10 * count
        if partitions:
            with pytest.raises(PySparkException, match="Name the whole topic"):
                load(spark, broker, topic=f"{old_name}-partition-1").count()

    def test_partitions_without_rows(
        self, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
    ) -> None:
        """They are passed, when the broker has loaded the old topic again."""
        local_name = f"moved-{time.monotonic_ns()}"
        name = f"persistent://public/default/{local_name}"
        path = f"/admin/v2/persistent/public/default/{local_name}/partitions"
        put_json(broker, path, 3)
        official.produce(broker.service_url, f"{name}-partition-1", [b"0", b"1"])
        with closing(ScalableTopic(broker, local_name)) as topic:
            assert topic.ask("POST", "/migrate") == 204
            Admin(broker.admin_url).unload_namespace("public/default")
            write(
                spark,
                broker,
                name,
                5,
                deliveryGuarantee="idempotent",
                idempotenceId=local_name,
            )
            assert load(spark, broker, topic=name).count() == 7
            copy = Copy(spark, broker, tmp_path, name)
            copy.run_to_the_end()
            copy.run_to_the_end()  # what is sealed has its children in the second
            assert len(copy.rows) == 7

    def test_idempotent_writes_from_before(
        self, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
    ) -> None:
        """What they wrote is known: it is not written again; a stream goes on."""
        put_json(
            broker, "/admin/v2/namespaces/public/default/deduplication", True, "POST"
        )
        local_name = f"moved-{time.monotonic_ns()}"
        name = f"persistent://public/default/{local_name}"
        path = f"/admin/v2/persistent/public/default/{local_name}/partitions"
        put_json(broker, path, 2)
        batch = {"deliveryGuarantee": "idempotent", "idempotenceId": local_name}
        stream = {"deliveryGuarantee": "idempotent", "service.url": broker.service_url}
        stream |= {"topic": name, "checkpointLocation": str(tmp_path / "checkpoint")}
        write(spark, broker, name, 10, **batch)
        start_numbers(spark, stream, once=True).awaitTermination(60)
        with closing(ScalableTopic(broker, local_name)) as topic:
            assert topic.ask("POST", "/migrate") == 204
            with pytest.raises(PySparkException, match="had rows of micro-batch 0"):
                write(spark, broker, name, 10, **batch)
            for _ in range(2):
                write(spark, broker, name, 10, **batch | {"idempotenceId": "new"})
            start_numbers(spark, stream, once=True).awaitTermination(60)
            topic.split(topic.layout.active[0].segment_id)
        numbers = [int(value) for value in values(load(spark, broker, topic=name))]
        assert sorted(numbers) == sorted([*range(10), *range(10), *range(2000)])


def put_json(
    broker: EmbeddedBroker, path: str, value: Any, method: str = "PUT"
) -> None:
    """Makes a call of the admin REST."""
    request = urllib.request.Request(
        broker.admin_url + path, json.dumps(value).encode(), method=method
    )
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request):
        pass
