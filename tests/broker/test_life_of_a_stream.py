# SPDX-License-Identifier: Apache-2.0
"""Streams that are stopped, fail, and go on with other topics and other options.

Chance draws the events of a life. Whatever they are, each row is in the sink once.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors.exceptions.base import PySparkException

from tests.support import official
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

SINK_PARTITIONS = 2
#: Topics of the stream, with their partitions; 0 for a topic without.
TOPICS = {"a": 0, "b": 2, "c": 3}
#: Ways in which a micro-batch is cut into tasks.
SPLITS: tuple[dict[str, str], ...] = (
    {},
    {"minPartitions": "8"},
    {"maxPartitions": "2"},
    {"maxPartitions": "1"},
)
FAILURE = "no good"
#: A short life with a failure, a repeat, a move, and topics that leave and return.
SHORT = 29201
SEEDS = [SHORT, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(40))]


class Life:
    """A stream from several topics into a sink, and what happens to both.

    Args:
        spark: A session.
        service_url: Of the broker.
        admin: Of the broker.
        namespace: An empty namespace.
        checkpoint: Folder of the query's checkpoint, not there yet.
        guarantee: ``deliveryGuarantee`` of the sink.
        rng: Draws the events.

    Attributes:
        sent: The rows that the sink must have, each once.
        journal: The events, for the message of a failure.
    """

    def __init__(
        self,
        spark: SparkSession,
        service_url: str,
        admin: Admin,
        namespace: str,
        checkpoint: Path,
        guarantee: str,
        rng: random.Random,
    ) -> None:
        self._spark = spark
        self._service_url = service_url
        self._admin = admin
        self._checkpoint = checkpoint
        self._guarantee = guarantee
        self._rng = rng
        self._topics = {
            f"persistent://{namespace}/{name}": partitions
            for name, partitions in TOPICS.items()
        }
        for topic, partitions in self._topics.items():
            if partitions:
                admin.create_partitioned(topic, partitions)
            else:
                admin.create_topic(topic)
        self._sink = f"persistent://{namespace}/sink"
        admin.create_partitioned(self._sink, SINK_PARTITIONS)
        self._named: set[str] = set()
        self._split = rng.choice(SPLITS)
        self._next_row = 0
        self.sent: Counter[str] = Counter()
        self.journal: list[Any] = []

    def go_on(self) -> None:
        """Let one event happen."""
        events: dict[Callable[[], None], int] = {
            self.produce: 4,
            self.write_in_transactions: 1,
            self.run: 4,
            self.forget_commit: 2,
            self.unload: 1,
        }
        (event,) = self._rng.choices(list(events), list(events.values()))
        event()

    def produce(self) -> None:
        """Write rows to a topic partition, batched or not."""
        partition = self._rng.choice(self._partitions())
        rows = self._new_rows()
        batch = self._rng.choice([0, 1, 5])
        self.journal.append(("produce", partition, rows, batch))
        official.produce(
            self._service_url, partition, [row.encode() for row in rows], batch=batch
        )
        self.sent.update(rows)

    def write_in_transactions(self) -> None:
        """Write rows that are committed or aborted."""
        topic = self._rng.choice(list(self._topics))
        rows = self._new_rows()
        is_aborted = self._rng.random() < 0.4
        self.journal.append(("transactions", topic, rows, is_aborted))
        frame = self._spark.createDataFrame([(row,) for row in rows], "value STRING")
        options = {"topic": topic, "deliveryGuarantee": "exactly-once"}
        write = (
            self._failing(frame.repartition(2), rows[-1] if is_aborted else "none")
            .write.format("pulsar")
            .mode("append")
            .options(**{"service.url": self._service_url, **options})
            .option("transactionTimeoutMs", "5000")
        )
        if is_aborted:
            with pytest.raises(PySparkException, match=FAILURE):
                write.save()
        else:
            write.save()
            self.sent.update(rows)

    def unload(self) -> None:
        """Let the broker open a topic partition anew."""
        partition = self._rng.choice(self._partitions())
        self.journal.append(("unload", partition))
        self._admin.unload(partition)

    def forget_commit(self) -> None:
        """Make Spark repeat the last micro-batch, as after a crash in its commit."""
        offsets, commits = (self._last_number(log) for log in ("offsets", "commits"))
        if commits is None or commits != offsets:
            return
        self.journal.append(("forget the commit of", commits))
        folder = self._checkpoint / "commits"
        (folder / str(commits)).unlink()
        (folder / f".{commits}.crc").unlink(missing_ok=True)

    def run(self, *, is_last: bool = False) -> None:
        """Run the stream, with options that chance draws; it may fail at a row."""
        rng = self._rng
        topics = list(self._topics)
        if not is_last and rng.random() < 0.5:
            topics = rng.sample(topics, rng.randint(1, len(topics)))
        self._named |= set(topics)
        options = {
            "topics": ",".join(topics),
            "startingOffsets": "earliest",
            "failOnDataLoss": str(self._named <= set(topics)).lower(),
            "ackOnCommit": rng.choice(["true", "false"]),
            # An idempotent sink needs the same tasks in a repeat.
            **(self._split if self._guarantee == "idempotent" else rng.choice(SPLITS)),
        }
        if options["ackOnCommit"] == "true":
            options["deleteSubscriptionOnStop"] = rng.choice(["true", "false"])
        if rng.random() < 0.5:
            options["maxRowsPerTrigger"] = rng.choice(["5", "20"])
        bad = "none"
        if not is_last and rng.random() < 0.3 and self._next_row:
            bad = str(rng.randrange(self._next_row))
        self.journal.append(("run", options, f"bad row: {bad}"))
        rows = (
            self._spark.readStream.format("pulsar")
            .options(**{"service.url": self._service_url, **options})
            .load()
            .selectExpr("CAST(value AS STRING) AS value")
        )
        query = (
            self._failing(rows, bad)
            .writeStream.format("pulsar")
            .option("service.url", self._service_url)
            .option("topic", self._sink)
            .option("deliveryGuarantee", self._guarantee)
            .option("idempotenceId", "life")
            .option("transactionTimeoutMs", "20000")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(180), "the query has not ended"
        except PySparkException as error:
            if bad == "none" or FAILURE not in str(error):
                raise

    def stored(self) -> Counter[str]:
        """The rows that the sink has."""
        rows = official.read_back(
            self._service_url, self._sink, partitions=SINK_PARTITIONS
        )
        return Counter((row.value or b"").decode() for row in rows)

    def _partitions(self) -> list[str]:
        return [
            f"{topic}-partition-{index}" if partitions else topic
            for topic, partitions in self._topics.items()
            for index in range(partitions or 1)
        ]

    def _new_rows(self) -> list[str]:
        first = self._next_row
        self._next_row += self._rng.randint(1, 12)
        return [str(row) for row in range(first, self._next_row)]

    def _failing(self, rows: DataFrame, bad: str) -> DataFrame:
        return rows.selectExpr(
            f"IF(value = '{bad}', raise_error('{FAILURE}'), value) AS value"
        )

    def _last_number(self, log: str) -> int | None:
        folder = self._checkpoint / log
        return max((int(file.name) for file in folder.glob("[0-9]*")), default=None)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("guarantee", ["exactly-once", "idempotent"])
def test_each_row_is_there_once(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    tmp_path: Path,
    guarantee: str,
    seed: int,
) -> None:
    """Across failures, repeats, other topics, other options, and moves of topics."""
    if guarantee == "idempotent":
        admin.set_deduplication(namespace, enabled=True)
    rng = random.Random(seed)
    life = Life(
        spark, service_url, admin, namespace, tmp_path / "checkpoint", guarantee, rng
    )
    life.produce()
    for _ in range(rng.randint(6, 16)):
        life.go_on()

    def has_all() -> bool:
        life.run(is_last=True)
        return life.stored() >= life.sent

    # A task that was killed leaves its transaction open until the time-out: rows behind
    # such a transaction come with a later run.
    with contextlib.suppress(AssertionError):
        await_true(has_all, "all rows")
    stored = life.stored()
    if seed == SHORT:
        runs = [event[1:] for event in life.journal if event[0] == "run"]
        assert any(bad != "bad row: none" for _, bad in runs)
        assert any(options["failOnDataLoss"] == "false" for options, _ in runs)
        assert {"unload", "forget the commit of"} <= {one[0] for one in life.journal}
    journal = "\n".join(map(str, life.journal))
    assert stored == life.sent, (
        f"missing: {life.sent - stored}, too many: {stored - life.sent}, after\n"
        f"{journal}"
    )
