# SPDX-License-Identifier: Apache-2.0
"""Rows that are written without Spark: by a whole batch write, or in transactions."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark import PulsarDataSource
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.driver import BatchWrite
from spark_topics.sink.write import Task
from spark_topics.spark import writer as writer_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.message_id import MessageId, TxnId
    from spark_topics.spark.datasource import TopicDataSource


class Context:
    """What a task knows of itself, by thread; stands for ``TaskContext``."""

    mine = threading.local()

    def __init__(
        self,
        query: str,
        batch_id: int,
        partition: int,
        properties: dict[str, str] | None = None,
    ) -> None:
        usual = {
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": str(batch_id),
        }
        self._properties = usual if properties is None else properties
        self._partition = partition

    @classmethod
    def get(cls) -> Context:
        """The one of this thread."""
        context: Context = cls.mine.context
        return context

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        """As the real one."""
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802
        """As the real one."""
        return self._partition

    def attemptNumber(self) -> int:  # noqa: N802
        """As the real one."""
        return 0


@pytest.fixture(autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a test are threads."""
    monkeypatch.setattr(writer_module, "TaskContext", Context)


def save(
    source: TopicDataSource, rows: pa.RecordBatch, *, error: Exception | None = None
) -> None:
    """Write rows in one task as Spark does, but in this process.

    Args:
        source: Where to.
        rows: With the columns as Spark has them.
        error: What the query fails with behind these rows, if it does.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        if error is not None:
            raise error

    writer: Any = source.writer(from_arrow_schema(rows.schema), overwrite=False)
    messages = []
    Context.mine.context = Context("", 0, 0)
    try:
        with mock.patch.object(writer_module, "TaskContext", Context):
            messages.append(writer.write(batches()))
        writer.commit(messages)
    except Exception:
        writer.abort(messages)
        raise


def write_batch(
    options: Mapping[str, str],
    values: list[bytes],
    *,
    before_task: Callable[[], None] = lambda: None,
    before_commit: Callable[[], None] = lambda: None,
    has_keys: bool = True,
) -> None:
    """Write values, which may be the keys as well, in one task, and commit them."""
    write = BatchWrite(parse_write_options(options, streaming=False))
    write.prepare()
    columns = {"value": values, "__key": values} if has_keys else {"value": values}
    rows = pa.record_batch(columns)
    before_task()
    result = write.run(Task(0), iter([rows]))
    before_commit()
    write.commit([result])


def write_frame(options: Mapping[str, str], *tasks: pa.RecordBatch) -> None:
    """Write what a DataFrame would hold, in a batch write as Spark drives one.

    Args:
        options: How to write.
        *tasks: The rows of each task, by columns of the types that Spark has.

    Raises:
        PulsarSparkError: The write cannot be done; it was aborted.
    """
    source = PulsarDataSource(dict(options))
    schema = from_arrow_schema(tasks[0].schema, prefer_timestamp_ntz=True)
    write, columns = source.batch_write(schema)
    write.prepare()
    results: list[Any] = []
    try:
        for number, rows in enumerate(tasks):
            sent: BatchWrite = pickle.loads(pickle.dumps(write))  # noqa: S301 - our own
            chosen = iter([rows.select(columns.names)])
            results.append(sent.run(Task(number), chosen))
    except BaseException:
        write.abort(results)
        raise
    write.commit(results)


def write_in_transactions(
    pool: ConnectionPool, topics: Sequence[str], ttl_ms: int, tasks: int = 1
) -> dict[TxnId, dict[str, MessageId | None]]:
    """Write a row to each topic partition in a transaction of each task.

    Returns:
        Where each row is, by transaction and topic partition.
    """
    transactions = TransactionClient(pool)
    written: dict[TxnId, dict[str, MessageId | None]] = {}
    for task in range(tasks):
        txn = transactions.begin(ttl_ms)
        transactions.add_partitions(txn, topics)
        with Producers(pool, ProducerSettings(transactional=True)) as producers:
            producers.open(topics)
            for producer in map(producers.get, topics):
                producers.send(producer, producer.plain_entry(b"%d" % task, txn=txn))
            producers.flush()
            written[txn] = {p.topic: p.stored.last_message for p in producers.all}
    return written
