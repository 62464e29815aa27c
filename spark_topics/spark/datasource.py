# SPDX-License-Identifier: Apache-2.0
"""The base of data sources of topics: streams and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_topics.errors import OptionError, TopicsError
from spark_topics.process import drives_source
from spark_topics.spark.modes import require_append
from spark_topics.spark.plain_errors import PlainErrors
from spark_topics.system import System

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_topics.sink.write import BatchWrite, StreamWrite
    from spark_topics.source.source import Source

#: Spark 4.3 hands sources in Python an empty map for a table in its catalog.
_NOTHING_CAME = (
    "(Spark does not pass the OPTIONS of a catalog table to Python data sources: name"
    " them in the query, by WITH (...) or .options(...).table(...), or use CREATE"
    " TEMPORARY VIEW ... USING, which keeps them.)"
)


class TopicDataSource(PlainErrors, DataSource):
    """A data source to which rows can be added, and nothing else.

    Attributes:
        system: Whose topics these are.
    """

    system: ClassVar[System]

    def explained(self, error: TopicsError) -> TopicsError:
        """Return an error, and what to do where no option came at all."""
        if isinstance(error, OptionError) and not self.options:
            return self.system.option_error(*error.problems, _NOTHING_CAME)
        return error

    def stream_read(
        self, schema: StructType
    ) -> tuple[Source[Any], pa.Schema, Mapping[str, object]]:
        """Return what a streaming query reads, its columns, and its limits.

        The limits are options by name, None for those that are not set.

        Args:
            schema: The columns wanted.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: ``schema`` has columns that messages do not have.
        """
        raise NotImplementedError

    def batch_write(self, schema: StructType) -> tuple[BatchWrite[Any], pa.Schema]:
        """Return how a batch query writes, and the columns that are written.

        Args:
            schema: The columns of the rows.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: There are columns that cannot be written.
        """
        raise NotImplementedError

    def stream_write(self, schema: StructType) -> tuple[StreamWrite[Any], pa.Schema]:
        """Return the write of a streaming query, and its columns."""
        raise NotImplementedError

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query.

        Spark's program for the source of a stream stops the reader at an error, also
        where there is none yet, and so hides an error of this method behind one of its
        own. There the error is for the reader to raise.

        Args:
            schema: The columns wanted: those of `schema`, or what the user asked for.

        Raises:
            OptionError: An option is unknown or wrong, or limits micro-batches where
                this Spark, older than 4.2, lets no source do so.
            SchemaError: As `stream_read` does.
        """
        from spark_topics.spark.choice import stream_reader
        from spark_topics.spark.stream_reader_base import FailedStreamReader

        try:
            return stream_reader(*self.stream_read(schema), self.system)
        except TopicsError as error:
            if not drives_source():
                raise
            return FailedStreamReader(self.explained(error))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Args:
            schema: The columns of the rows.
            overwrite: What ``mode("overwrite")`` asks for; topics only grow.

        Raises:
            OptionError: The mode is not append, or as `batch_write` does.
            SchemaError: As `batch_write` does.
            TopicsError: As ``BatchWrite.prepare`` does.
        """
        from spark_topics.spark.writer import BatchWriter

        require_append(self.system, overwrite=overwrite, streaming=False)
        writer = BatchWriter(*self.batch_write(schema))
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
            OptionError: The mode is not append, or as `stream_write` does.
            SchemaError: As `stream_write` does.
            TopicsError: As ``StreamWrite.prepare`` does.
        """
        from spark_topics.spark.choice import stream_writer

        require_append(self.system, overwrite=overwrite, streaming=True)
        return stream_writer(*self.stream_write(schema), schema)
