# SPDX-License-Identifier: Apache-2.0
"""Topics read by our batch reader as Spark drives it, but in this process.

Spark's own part is the same for all topics, so most tests leave it out and are fast;
``tests/spark`` and a part of ``tests/broker`` go all the way.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_spark import PulsarDataSource, decode_message_id
from pulsar_spark.source.plan.read_task import ReadTask
from tests.support.official import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from pulsar_spark.source.plan.ranges import TopicRange
    from pulsar_spark.spark.batch import PulsarReader


#: What fills a Row.
COLUMNS = (
    "__key,__topic,__messageId,__publishTime,__eventTime,__messageProperties,"
    "__orderingKey"
)


def reader_of(service_url: str, options: dict[str, str]) -> PulsarReader:
    """The batch reader for these options; ``service.url`` is added."""
    source = PulsarDataSource(
        {"service.url": service_url, "metadataColumns": COLUMNS, **options}
    )
    reader: Any = source.reader(source.schema())
    return reader  # type: ignore[no-any-return]


def plan(service_url: str, options: dict[str, str]) -> list[TopicRange]:
    """What a read with these options would cover."""
    tasks = [part.value for part in reader_of(service_url, options).partitions()]
    assert all(isinstance(one, ReadTask) for one in tasks)
    return ranges_of(tasks)


def ranges_of(tasks: Iterable[ReadTask]) -> list[TopicRange]:
    """All that some tasks read, in order."""
    return [range_ for task in tasks for range_ in task.ranges]


def read(service_url: str, options: dict[str, str]) -> list[Row]:
    """Plan, then read one partition after the other."""
    reader = reader_of(service_url, options)
    return [row for part in reader.partitions() for row in rows_of(reader, part)]


def read_columns(
    service_url: str, options: dict[str, str], schema: StructType | None = None
) -> list[dict[str, Any]]:
    """The rows of a read, by column name; ``schema`` is what the query asks for."""
    rows: list[dict[str, Any]] = read_frame(service_url, options, schema).to_pylist()
    return rows


def rows_of(reader: PulsarReader, partition: Any) -> list[Row]:
    """The rows of one input partition; each RecordBatch has the schema promised."""
    rows = []
    for record_batch in reader.read(partition):
        assert record_batch.schema == reader._schema
        record_batch.validate(full=True)
        rows += to_rows(record_batch)
    return rows


def read_frame(
    service_url: str,
    options: dict[str, str],
    columns: StructType | None = None,
) -> pa.Table:
    """Read what a DataFrame would hold, in the order of its input partitions.

    Args:
        service_url: Where the topics are.
        options: How to read.
        columns: Those that a user asks for; None for those that the topics have.

    Raises:
        PulsarSparkError: The read cannot be done.
    """
    source: Any = PulsarDataSource({"service.url": service_url, **options})
    if columns is None:
        columns = source.schema()
        source = _as_sent(source)
    reader = source.reader(columns)
    return _read(_as_sent(reader), reader.partitions())


def read_stream(
    service_url: str, options: dict[str, str], offset: str
) -> tuple[pa.Table, str]:
    """Read what there is by now, in a micro-batch of a stream that starts and stops.

    Args:
        service_url: Where the topics are.
        options: How to read.
        offset: Where the last micro-batch has ended; "" for none.

    Returns:
        The new rows, and where they end.
    """
    source: Any = PulsarDataSource({"service.url": service_url, **options})
    columns = source.schema()
    reader = _as_sent(source).streamReader(columns)
    sent = _as_sent(reader)
    try:
        reader.prepareForTriggerAvailableNow()
        start = json.loads(offset) if offset else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        partitions = [] if start == end else reader.partitions(start, end)
        rows = _read(sent, partitions)
        reader.commit(end)
    finally:
        reader.stop()
    return rows, json.dumps(end)


def _read(reader: Any, partitions: Iterable[Any]) -> pa.Table:
    """The rows of input partitions; each RecordBatch has the schema promised."""
    batches = [batch for part in partitions for batch in reader.read(_as_sent(part))]
    for batch in batches:
        assert batch.schema == reader._schema
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=reader._schema)


def _as_sent(part: Any) -> Any:
    """A copy, as Spark sends it to another process."""
    return pickle.loads(pickle.dumps(part))  # noqa: S301 - our own


def to_rows(record_batch: pa.RecordBatch) -> list[Row]:
    """A RecordBatch with the columns of ``COLUMNS`` as rows."""
    return [
        row_of(
            {
                **row,
                "__publishTime": row["__publishTime"].timestamp(),
                "__eventTime": row["__eventTime"] and row["__eventTime"].timestamp(),
                "__messageProperties": dict(row["__messageProperties"]),
            }
        )
        for row in record_batch.to_pylist()
    ]


def row_of(row: dict[str, Any]) -> Row:
    """A row by column name, its times as seconds since 1970."""
    message_id = decode_message_id(row["__messageId"])
    event_time = row["__eventTime"]
    return Row(
        message_id=(
            *message_id.position,
            message_id.partition,
            message_id.batch_index,
        ),
        value=row["value"],
        key=row["__key"],
        ordering_key=row["__orderingKey"],
        properties=row["__messageProperties"],
        event_time_ms=None if event_time is None else round(event_time * 1000),
        publish_time_ms=round(row["__publishTime"] * 1000),
        topic=row["__topic"],
    )
