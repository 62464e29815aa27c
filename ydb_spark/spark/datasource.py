# SPDX-License-Identifier: Apache-2.0
"""``format("ydb_topic")``: options in, readers and writers out. Runs on the driver.

What uses gRPC is imported in the processes that Spark starts for it, and not where this
is registered: that one may fork.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_topics.spark.modes import require_append
from spark_topics.spark.schema import read_schema, spark_schema, write_schema
from ydb_spark.columns import READ_COLUMNS, READ_ONLY, WRITE_COLUMNS
from ydb_spark.errors import SchemaError
from ydb_spark.system import SYSTEM

#: The column that is written only where it chooses the partition.
_GROUP = "message_group_id"
_READ_GROUP = {_GROUP: READ_COLUMNS[_GROUP]}


class YdbTopicDataSource(DataSource):
    """Topics of YDB.

    ``spark.read.format("ydb_topic").option("url", "grpcs://host:2135/database")
    .option("topic", "my-topic").load()`` gives the messages of a topic;
    docs/ydb-topics.md lists options and columns.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "ydb_topic"

    def schema(self) -> StructType:
        """Return the columns of messages."""
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
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.read import parse_read_options
        from ydb_spark.source.topic_source import TopicSource

        options = parse_read_options(self.options, KNOWN, streaming=False)
        columns = read_schema(schema, READ_COLUMNS, SYSTEM)
        return BatchReader(TopicSource(options), columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query.

        Args:
            schema: The columns wanted.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: ``schema`` has columns that messages do not have.
        """
        from spark_topics.spark.choice import stream_reader
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.read import parse_read_options
        from ydb_spark.source.topic_source import TopicSource

        options = parse_read_options(self.options, KNOWN, streaming=True)
        columns = read_schema(schema, READ_COLUMNS, SYSTEM)
        limits = {
            "maxRowsPerTrigger": options.max_rows,
            "maxBytesPerTrigger": options.max_bytes,
        }
        return stream_reader(TopicSource(options), columns, SYSTEM, limits)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Args:
            schema: The columns of the rows.
            overwrite: What ``mode("overwrite")`` asks for; topics only grow.

        Raises:
            OptionError: An option is unknown or wrong, or the mode is not append.
            SchemaError: There are columns that cannot be written.
            YdbError: The topic does not exist, or does not take what is to be written.
        """
        from spark_topics.spark.writer import BatchWriter
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.write import parse_write_options
        from ydb_spark.sink.driver import BatchWrite

        require_append(SYSTEM, overwrite=overwrite, streaming=False)
        options = parse_write_options(self.options, KNOWN, streaming=False)
        columns = _write_columns(schema, options.partitioning.required_column)
        writer = BatchWriter(BatchWrite(options), columns)
        writer.prepare()
        return writer

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query.

        Args:
            schema: The columns of the rows.
            overwrite: What ``outputMode("complete")`` asks for; topics only grow.

        Raises:
            OptionError: An option is unknown or wrong, or the mode is not append.
            SchemaError: There are columns that cannot be written.
            YdbError: The topic does not exist, or does not take what is to be written.
        """
        from spark_topics.spark.choice import stream_writer
        from ydb_spark.options.parse import KNOWN
        from ydb_spark.options.write import parse_write_options
        from ydb_spark.sink.driver import StreamWrite

        require_append(SYSTEM, overwrite=overwrite, streaming=True)
        options = parse_write_options(self.options, KNOWN, streaming=True)
        columns = _write_columns(schema, options.partitioning.required_column)
        return stream_writer(StreamWrite(options), columns, schema)


def _write_columns(schema: StructType, required: str | None) -> pa.Schema:
    """Return the columns that are written, as Arrow has them.

    Raises:
        SchemaError: There are others, or no body or two, or not what options need.
    """
    bodies = [name for name in ("data", "value") if name in schema.fieldNames()]
    if len(bodies) != 1:
        raise SchemaError(
            "These rows cannot be written to YDB: they need one column of bodies,"
            f" `data` or `value`, and have {' and '.join(bodies) or 'none'}."
        )
    return write_schema(
        schema,
        WRITE_COLUMNS,
        SYSTEM,
        required=() if required is None else (required,),
        read_only=READ_ONLY if required == _GROUP else {**READ_ONLY, **_READ_GROUP},
    )
