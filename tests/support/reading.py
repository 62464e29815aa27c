# SPDX-License-Identifier: Apache-2.0
"""Topics read by our batch reader as Spark drives it, but in this process.

Spark's own part is the same for all topics, so most tests leave it out and are fast;
``tests/spark`` and a part of ``tests/broker`` go all the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_spark import PulsarDataSource, decode_message_id
from pulsar_spark.source.plan.read_task import ReadTask
from tests.support.official import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
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
    source = PulsarDataSource({"service.url": service_url, **options})
    reader: Any = source.reader(schema or source.schema())
    return [
        row
        for part in reader.partitions()
        for record_batch in reader.read(part)
        for row in record_batch.to_pylist()
    ]


def rows_of(reader: PulsarReader, partition: Any) -> list[Row]:
    """The rows of one input partition; each RecordBatch has the schema promised."""
    rows = []
    for record_batch in reader.read(partition):
        assert record_batch.schema == reader._schema
        record_batch.validate(full=True)
        rows += to_rows(record_batch)
    return rows


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
