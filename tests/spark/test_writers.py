# SPDX-License-Identifier: Apache-2.0
"""Writers as Spark makes and uses them on its driver, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pulsar_spark import PulsarDataSource
from pulsar_spark.client.producing.producers import Producers
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import (
    IdempotenceError,
    OptionError,
    QueryConflictError,
)
from pulsar_spark.sink.base_write import TaskResult
from pulsar_spark.sink.exactly_once import CommitProgress
from pulsar_spark.sink.task import WriteSummary
from spark_topics.client import retry
from spark_topics.sink.write import Task
from spark_topics.spark.writer import TaskCommit
from tests.support.fixtures import Clock
from tests.support.scripted_broker import ScriptedBroker, refuse
from tests.support.writes import Context
from tests.support.writes import _context as _context

#: Rows that name their topics.
NAMING = StructType(
    [StructField("value", StringType()), StructField("__topic", StringType())]
)
VALUES = StructType([StructField("value", StringType())])
NOWHERE = "pulsar://127.0.0.1:1"
TOPIC = "persistent://public/default/t"


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker that drops what it has, with a topic."""
    with ScriptedBroker() as broker:
        broker.deduplicates = True
        broker.add_topic(TOPIC)
        yield broker


class Write:
    """A write that drops duplicates: a stream, or a batch write.

    Args:
        broker: Where to.
        streaming: Whether it is a stream.
        idempotence_id: Its id, "" for none.
    """

    def __init__(
        self, broker: ScriptedBroker, *, streaming: bool, idempotence_id: str = ""
    ) -> None:
        options = {
            "service.url": broker.url,
            "topic": TOPIC,
            "deliveryGuarantee": "idempotent",
            **({"idempotenceId": idempotence_id} if idempotence_id else {}),
        }
        source = PulsarDataSource(options)
        make = source.streamWriter if streaming else source.writer
        self._writer = pickle.dumps(make(VALUES, overwrite=False))

    def task(
        self,
        rows: Iterable[str],
        query: str = "",
        batch_id: int = 0,
        properties: dict[str, str] | None = None,
    ) -> WriteSummary:
        """What a task does with some rows; with all that Spark tells it, or some."""
        Context.mine.context = Context(query, batch_id, 0, properties)
        writer: Any = pickle.loads(self._writer)  # noqa: S301
        batch = pa.record_batch({"value": list(rows)})
        written: WriteSummary = writer.write(iter([batch])).result.written
        return written


def names(broker: ScriptedBroker) -> list[str]:
    """The names of the producers that attached, each once."""
    return list(dict.fromkeys(b.producer_name for b in broker.bodies["PRODUCER"]))


@pytest.mark.parametrize("idempotence_id", ["", "orders"])
def test_a_stream_that_begins_anew(
    scripted: ScriptedBroker, idempotence_id: str
) -> None:
    """A new checkpoint is a new writer: none of its rows is taken for an old one.

    Also where both know of micro-batch 0 only.
    """
    stream = Write(scripted, streaming=True, idempotence_id=idempotence_id)
    assert stream.task("abcde", query="old").rows == 5
    assert stream.task("abcde", query="old").duplicate_rows == 5
    new = stream.task("stuvwxyz", query="new")
    assert (new.rows, new.duplicate_rows) == (8, 0)
    again = stream.task("stuvwxyz", query="new")
    assert (again.rows, again.duplicate_rows) == (0, 8)


def test_a_micro_batch_whose_number_is_not_told(scripted: ScriptedBroker) -> None:
    """A write with an id of its own only: by the id alone it would be a repeat."""

    def task(idempotence_id: str, **properties: str) -> WriteSummary:
        write = Write(scripted, streaming=False, idempotence_id=idempotence_id)
        return write.task("abc", properties=properties)

    in_a_stream = {"spark.sql.requireAllClusterKeysForDistribution": "false"}
    with pytest.raises(OptionError, match=r'as f"job-\{batch_id\}", or hand'):
        task("job", **in_a_stream)
    assert names(scripted) == ["job-probe"]
    assert task("", **in_a_stream).rows == 3
    for batch_id in "0", "1":
        assert task(f"job-{batch_id}", **in_a_stream).rows == 3
    assert task("job", **in_a_stream, **{"streaming.sql.batchId": "0"}).rows == 3
    assert task("other").rows == 3


@pytest.mark.parametrize("query", ["", "foreach"])
def test_a_batch_write_that_is_repeated(scripted: ScriptedBroker, query: str) -> None:
    """It goes by its id alone, also within a stream; without an id it is a new one."""
    for expected in [(3, 0), (0, 3)]:
        write = Write(scripted, streaming=False, idempotence_id="job")
        written = write.task("abc", query=query)
        assert (written.rows, written.duplicate_rows) == expected
    for _ in range(2):
        assert Write(scripted, streaming=False).task("abc", query=query).rows == 3


def test_a_checkpoint_that_was_set_back(scripted: ScriptedBroker) -> None:
    """Later micro-batches of the same query are there: its rows would be dropped."""
    stream = Write(scripted, streaming=True, idempotence_id="orders")
    stream.task("abc", query="q", batch_id=7)
    with pytest.raises(IdempotenceError, match="Was the checkpoint set back") as caught:
        stream.task("abc", query="q", batch_id=3)
    assert caught.value.batch_ids == (3, 7)


def test_few_names_are_left_on_a_topic(scripted: ScriptedBroker) -> None:
    """Brokers remember some thousand: a write adds one a task, and no other."""
    for _ in range(3):
        Write(scripted, streaming=False).task("abc")
    Write(scripted, streaming=True).task("abc", query="q")
    probes = [name for name in names(scripted) if name.endswith("-probe")]
    assert probes == ["spark-pulsar-probe"]
    assert len(names(scripted)) == 1 + 4


def test_a_log_of_commits_needs_a_place() -> None:
    """Where only rows name topics there is none to put it beside: one is asked for."""
    options = {
        "service.url": NOWHERE,
        "deliveryGuarantee": "exactly-once",
        "idempotenceId": "orders",
    }
    with pytest.raises(OptionError) as caught:
        PulsarDataSource(options).streamWriter(NAMING, overwrite=False)
    assert "needs commitTopic, the full name of a topic" in str(caught.value)


@pytest.mark.parametrize("guarantee", ["exactly-once", "idempotent"])
def test_a_topic_that_another_write_has_for_itself(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """What is tried out before waits for as long as the tasks would have waited."""
    monkeypatch.setattr(retry, "time", Clock())
    monkeypatch.setattr(
        Producers, "_opening_retry", lambda self: self._pool.retry(0.05)
    )
    scripted.partitions[COORDINATORS] = 1
    busy = refuse("ProducerBusy", "Topic has an existing exclusive producer: a-1")
    scripted.script("PRODUCER", busy, busy, busy)
    options = {
        "service.url": scripted.url,
        "topic": TOPIC,
        "deliveryGuarantee": guarantee,
        "pulsar.producer.accessMode": "WaitForExclusive",
    }
    PulsarDataSource(options).writer(VALUES, overwrite=False)
    assert scripted.requests["PRODUCER"] == 4


def test_visible_parts_that_are_cut_anew(scripted: ScriptedBroker) -> None:
    """Nothing was written, but the rows of tasks that are gone are missing."""
    scripted.partitions[COORDINATORS] = 1
    options = {
        "service.url": scripted.url,
        "topic": TOPIC,
        "deliveryGuarantee": "exactly-once",
        "idempotenceId": "orders",
    }
    writer: Any = PulsarDataSource(options).streamWriter(VALUES, overwrite=False)
    # Four tasks wrote micro-batch 7; of the rows of 0 and 1 it is known that they are
    # visible. Now it has two, and each of them takes its rows for these.
    progress = CommitProgress("q", "run", 6, 7, tasks=4)
    messages = [
        TaskCommit(TaskResult(Task(n), WriteSummary(duplicate_rows=8), None, progress))
        for n in (0, 1)
    ]
    with pytest.raises(QueryConflictError, match=r"4 tasks\. Now it was cut into 2"):
        writer.commit(messages, 7)
    writer.commit(messages, 8)
    writer.commit([], 8)
