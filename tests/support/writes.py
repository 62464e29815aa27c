# SPDX-License-Identifier: Apache-2.0
"""Rows that are written without Spark: by a whole batch write, or in transactions."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark import PulsarDataSource
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.driver import BatchWrite
from spark_topics.sink.write import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.message_id import MessageId, TxnId


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
