# SPDX-License-Identifier: Apache-2.0
"""``format("tubemq")``: options in, readers and writers out. Runs on the driver."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_topics.options.spec import Scope
from spark_topics.spark.modes import require_append
from tubemq_spark.options import parse_read_options, parse_write_options
from tubemq_spark.system import SYSTEM


class TubeMQDataSource(DataSource):
    """Apache InLong TubeMQ topics.

    ``spark.read.format("tubemq").option("master.rpc", "host:8715")
    .option("topic", "demo").load()`` gives ``value`` as BINARY and the columns of the
    message around it. docs/tubemq.md lists all options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "tubemq"

    def schema(self) -> StructType:
        """Return the columns of messages."""
        from tubemq_spark.spark.schema import default_schema

        return default_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: Messages have no such columns.
        """
        from spark_topics.spark.reader import BatchReader
        from tubemq_spark.source.tubemq_source import TubeMQSource
        from tubemq_spark.spark.schema import read_columns

        options = parse_read_options(self.options, Scope.BATCH)
        return BatchReader(TubeMQSource(options), read_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query.

        Raises:
            OptionError: An option is unknown or wrong, or limits micro-batches where
                this Spark, older than 4.2, lets no source do so.
            SchemaError: Messages have no such columns.
        """
        from spark_topics.spark.choice import stream_reader
        from tubemq_spark.source.tubemq_source import TubeMQSource
        from tubemq_spark.spark.schema import read_columns

        options = parse_read_options(self.options, Scope.STREAM)
        return stream_reader(
            TubeMQSource(options),
            read_columns(schema),
            SYSTEM,
            {
                "maxRowsPerTrigger": options.max_rows,
                "maxBytesPerTrigger": options.max_bytes,
            },
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Raises:
            OptionError: An option is unknown or wrong, or the mode is not append.
            SchemaError: There are columns that cannot be written.
            TubeMQError: The topic cannot be written to.
        """
        from spark_topics.spark.writer import BatchWriter
        from tubemq_spark.sink.write import TubeMQWrite
        from tubemq_spark.spark.schema import write_columns

        require_append(SYSTEM, overwrite=overwrite, streaming=False)
        options = parse_write_options(self.options, Scope.BATCH_WRITE)
        writer = BatchWriter(TubeMQWrite(options), write_columns(schema, options))
        writer.prepare()
        return writer

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query.

        Raises:
            OptionError: An option is unknown or wrong, or the mode is not append.
            SchemaError: There are columns that cannot be written.
            TubeMQError: The topic cannot be written to.
        """
        from spark_topics.spark.choice import stream_writer
        from tubemq_spark.sink.write import TubeMQWrite
        from tubemq_spark.spark.schema import write_columns

        require_append(SYSTEM, overwrite=overwrite, streaming=True)
        options = parse_write_options(self.options, Scope.STREAM_WRITE)
        columns = write_columns(schema, options)
        return stream_writer(TubeMQWrite(options), columns, schema)
