# SPDX-License-Identifier: Apache-2.0
"""``format("ydb_topic")``: options in, readers and writers out. Runs on the driver.

What uses gRPC is imported in the processes that Spark starts for it, and not where this
is registered: that one may fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from spark_topics.spark.datasource import TopicDataSource
from ydb_spark.columns import READ_COLUMNS, READ_ONLY, WRITE_COLUMNS
from ydb_spark.errors import SchemaError
from ydb_spark.system import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa

    from ydb_spark.sink.driver import BatchWrite, StreamWrite
    from ydb_spark.source.topic_source import TopicSource

#: The column that is written only where it chooses the partition.
_GROUP = "message_group_id"
#: Columns that do nothing but choose the partition.
_ROUTES = ("key", "partition_id")
_READ_GROUP = {_GROUP: READ_COLUMNS[_GROUP]}


class YdbTopicDataSource(TopicDataSource):
    """Topics of YDB.

    ``spark.read.format("ydb_topic").option("url", "grpcs://host:2135/database")
    .option("topic", "my-topic").load()`` gives the messages of a topic;
    README.md lists options and columns.
    """

    system = SYSTEM

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "ydb_topic"

    def schema(self) -> StructType:
        """Return the columns of messages."""
        from spark_topics.spark.schema import spark_schema

        return spark_schema(list(READ_COLUMNS), READ_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Args:
            schema: The columns wanted.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: ``schema`` has columns that messages do not have.
        """
        from spark_topics.spark.reader import BatchReader
        from spark_topics.spark.schema import read_schema
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.read import parse_read_options
        from ydb_spark.source.topic_source import TopicSource

        options = parse_read_options(self.options, KNOWN, streaming=False)
        columns = read_schema(schema, READ_COLUMNS, SYSTEM)
        return BatchReader(TopicSource(options), columns)

    def stream_read(
        self, schema: StructType
    ) -> tuple[TopicSource, pa.Schema, dict[str, int | None]]:
        """See `TopicDataSource`."""
        from spark_topics.spark.schema import read_schema
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.read import parse_read_options
        from ydb_spark.source.topic_source import TopicSource

        options = parse_read_options(self.options, KNOWN, streaming=True)
        columns = read_schema(schema, READ_COLUMNS, SYSTEM)
        limits = {
            "maxRowsPerTrigger": options.max_rows,
            "maxBytesPerTrigger": options.max_bytes,
        }
        return TopicSource(options), columns, limits

    def batch_write(self, schema: StructType) -> tuple[BatchWrite, pa.Schema]:
        """See `TopicDataSource`."""
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.write import parse_write_options
        from ydb_spark.sink.driver import BatchWrite

        options = parse_write_options(self.options, KNOWN, streaming=False)
        columns = _write_columns(schema, options.partitioning.required_column)
        return BatchWrite(options), columns

    def stream_write(self, schema: StructType) -> tuple[StreamWrite, pa.Schema]:
        """See `TopicDataSource`."""
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.write import parse_write_options
        from ydb_spark.sink.driver import StreamWrite

        options = parse_write_options(self.options, KNOWN, streaming=True)
        columns = _write_columns(schema, options.partitioning.required_column)
        return StreamWrite(options), columns


def _write_columns(schema: StructType, required: str | None) -> pa.Schema:
    """Return the Arrow columns of the rows to write.

    Raises:
        SchemaError: There are others, or no body or two, or not what options need.
    """
    from spark_topics.spark.schema import write_schema
    from spark_topics.statistics import warn_once

    bodies = [name for name in ("data", "value") if name in schema.fieldNames()]
    if len(bodies) != 1:
        raise SchemaError(
            "These rows cannot be written to YDB: they need one column of bodies,"
            f" `data` or `value`, and have {' and '.join(bodies) or 'none'}."
        )
    columns = write_schema(
        schema,
        WRITE_COLUMNS,
        SYSTEM,
        required=() if required is None else (required,),
        read_only=READ_ONLY if required == _GROUP else {**READ_ONLY, **_READ_GROUP},
    )
    idle = [n for n in _ROUTES if n != required and n in columns.names]
    if idle:
        warn_once(
            SYSTEM.logger("spark"),
            f"These columns are ignored: {', '.join(idle)}. They are not stored, and"
            " choose the partition only where `partitioning` names them.",
        )
    for name in idle:
        columns = columns.remove(columns.get_field_index(name))
    return columns
