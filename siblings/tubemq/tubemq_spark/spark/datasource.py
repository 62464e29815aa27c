# SPDX-License-Identifier: Apache-2.0
"""``format("tubemq")``: options in, readers and writers out. Runs on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from spark_topics.options.spec import Scope
from spark_topics.spark.datasource import TopicDataSource
from tubemq_spark.options import parse_read_options, parse_write_options
from tubemq_spark.system import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_spark.sink.write import TubeMQWrite
    from tubemq_spark.source.tubemq_source import TubeMQSource


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

    def stream_read(
        self, schema: StructType
    ) -> tuple[TubeMQSource, pa.Schema, dict[str, int | None]]:
        """See `TopicDataSource`."""
        from tubemq_spark.source.tubemq_source import TubeMQSource
        from tubemq_spark.spark.schema import read_columns

        options = parse_read_options(self.options, Scope.STREAM)
        limits = {
            "maxRowsPerTrigger": options.max_rows,
            "maxBytesPerTrigger": options.max_bytes,
        }
        return TubeMQSource(options), read_columns(schema), limits

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
