# SPDX-License-Identifier: Apache-2.0
"""``format("pulsar")``: options in, readers and writers out. Runs on the driver."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.requirements import require_packages
from pulsar_spark.spark.other_source import warn_of_other_source
from pulsar_spark.system import PULSAR
from spark_topics import releases
from spark_topics.spark.datasource import TopicDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pulsar_spark.options import ReadOptions
    from pulsar_spark.sink.driver import BatchWrite, StreamWrite
    from pulsar_spark.source.plan.query_schema import QuerySchema
    from pulsar_spark.source.pulsar_source import PulsarSource

logger = logging.getLogger("pulsar_spark.spark")

_NAME = "pulsar"

#: One that no source of the JVM has.
_OWN_NAME = "pulsar-py"


class PulsarDataSource(TopicDataSource):
    """Apache Pulsar topics.

    ``spark.read.format("pulsar").option("service.url", "pulsar://host:6650")
    .option("topic", "my-topic").load()`` gives the columns of the topic's schema, or
    ``value`` as BINARY without one, and the metadata columns that ``metadataColumns``
    names. docs/options.md lists all options.
    """

    system = PULSAR

    def __init__(self, options: dict[str, str]) -> None:
        require_packages()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``.

        Spark asks for it when the source is registered: where a jar has the name, too,
        a warning says so.
        """
        warn_of_other_source(_NAME, _OWN_NAME)
        return _NAME

    #: The topics' schema, once it was asked for: Spark carries this object to where
    #: readers are made, and asks only where the user gives no schema.
    _found: QuerySchema | None = None

    def schema(self) -> StructType:
        """Return the columns of the topics' schema and the metadata columns asked for.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: The topics have no columns, or ones that do not go together.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        from pulsar_spark.source.plan.query_schema import value_columns_of
        from pulsar_spark.source.pulsar_source import load_schema
        from pulsar_spark.spark.schema import schema_of_values

        options = self._options_of_either_kind()
        self._found = load_schema(options)
        return schema_of_values(value_columns_of(self._found), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Args:
            schema: The columns wanted: the above, or what the user asked for.

        Raises:
            OptionError: An option is unknown or wrong.
            SchemaError: ``schema`` has columns that a topic does not have.
        """
        from pulsar_spark.options import parse_read_options
        from pulsar_spark.source.read.kernel_notice import warn_of_slow_kernel
        from pulsar_spark.spark.batch import PulsarReader

        options = parse_read_options(self.options)
        warn_of_slow_kernel()
        if options.filter_pushdown is None:
            return PulsarReader(options, schema, self._found)
        if not hasattr(datasource, "Filter"):
            raise OptionError(
                "`filterPushdown` needs Spark "
                f"{releases.text(releases.SPARK_WITH_FILTERS)} or newer, and this is "
                f"{pyspark.__version__}: it shows its filters to no Python source."
            )
        # Whoever defines pushFilters cannot be read without Spark's own setting.
        from pulsar_spark.spark.pushdown import PulsarPushdownReader

        return PulsarPushdownReader(options, schema, self._found)

    def stream_read(
        self, schema: StructType
    ) -> tuple[PulsarSource, pa.Schema, dict[str, int | None]]:
        """See `TopicDataSource`."""
        from pulsar_spark.options import parse_read_options
        from pulsar_spark.source.pulsar_source import PulsarSource
        from pulsar_spark.source.read.kernel_notice import warn_of_slow_kernel
        from pulsar_spark.spark.schema import checked_arrow_schema

        options = parse_read_options(self.options, streaming=True)
        warn_of_slow_kernel()
        columns = checked_arrow_schema(schema, options)
        limits = {
            "maxRowsPerTrigger": options.max_rows_per_trigger,
            "maxBytesPerTrigger": options.max_bytes_per_trigger,
            "minRowsPerTrigger": options.min_rows_per_trigger,
        }
        return PulsarSource(options, columns, self._found), columns, limits

    def batch_write(self, schema: StructType) -> tuple[BatchWrite, pa.Schema]:
        """See `TopicDataSource`."""
        from pulsar_spark.options import parse_write_options
        from pulsar_spark.sink.driver import BatchWrite
        from pulsar_spark.spark.schema import write_columns

        options = parse_write_options(self.options, streaming=False)
        columns = write_columns(schema, options)
        return BatchWrite(options, columns), columns

    def stream_write(self, schema: StructType) -> tuple[StreamWrite, pa.Schema]:
        """See `TopicDataSource`."""
        from pulsar_spark.options import parse_write_options
        from pulsar_spark.sink.driver import StreamWrite
        from pulsar_spark.spark.schema import write_columns

        options = parse_write_options(self.options, streaming=True)
        columns = write_columns(schema, options)
        return StreamWrite(options, columns), columns

    def _options_of_either_kind(self) -> ReadOptions:
        """Return options of a batch or a stream: Spark does not say which comes."""
        from pulsar_spark.options import parse_read_options
        from spark_topics.options.of_table import options_of_table

        of_table = options_of_table(self.options)
        if of_table is None:
            options: Mapping[str, str] = self.options
        else:
            options = of_table
            logger.warning(
                "Spark keeps the OPTIONS of this table from sources in Python. Name"
                " them in each query, by WITH (...) or .options(...).table(...), or use"
                " CREATE TEMPORARY VIEW ... USING, which keeps them."
            )
        errors = []
        for streaming in (False, True):
            try:
                return parse_read_options(options, streaming=streaming, quiet=True)
            except OptionError as error:
                errors.append(error)
        raise _of_either_kind(*errors)


def _of_either_kind(batch: OptionError, stream: OptionError) -> OptionError:
    """Return the error of options that neither a batch read nor a stream can have."""
    return OptionError(
        *(problem for problem in batch.problems if problem in stream.problems),
        *(
            f"In a {kind}: {problem}"
            for kind, error, other in (
                ("batch read", batch, stream),
                ("stream", stream, batch),
            )
            for problem in error.problems
            if problem not in other.problems
        ),
    )


class PulsarPyDataSource(PulsarDataSource):
    """``format("pulsar-py")``: the same source by a name that no jar has.

    With it the Scala connector and this package run side by side.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return _OWN_NAME
