# SPDX-License-Identifier: Apache-2.0
"""``format("tubemq")``: options in, readers and writers out. Runs on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from spark_topics.options.spec import Scope
from spark_topics.spark.datasource import TopicDataSource
from tubemq_spark.options import parse_read_options, parse_write_options
from tubemq_spark.system import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_spark.sink.write import TubeMQWrite


class TubeMQDataSource(TopicDataSource):
    """Apache InLong TubeMQ topics.

    ``spark.read.format("tubemq").option("master.rpc", "host:8715")
    .option("topic", "demo").load()`` gives ``value`` as BINARY and the columns of the
    message around it. README.md lists all options.
    """

    system = SYSTEM

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

    def batch_write(self, schema: StructType) -> tuple[TubeMQWrite, pa.Schema]:
        """See `TopicDataSource`."""
        return self._write(schema, Scope.BATCH_WRITE)

    def stream_write(self, schema: StructType) -> tuple[TubeMQWrite, pa.Schema]:
        """See `TopicDataSource`."""
        return self._write(schema, Scope.STREAM_WRITE)

    def _write(self, schema: StructType, scope: Scope) -> tuple[TubeMQWrite, pa.Schema]:
        from tubemq_spark.sink.write import TubeMQWrite
        from tubemq_spark.spark.schema import write_columns

        options = parse_write_options(self.options, scope)
        return TubeMQWrite(options), write_columns(schema, options)
