# SPDX-License-Identifier: Apache-2.0
"""The columns of a query, checked against the columns of messages."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_topics.columns import ColumnType, Write
from spark_topics.spark import schema as shared
from tubemq_spark import columns
from tubemq_spark.errors import SchemaError
from tubemq_spark.options import WriteOptions
from tubemq_spark.system import SYSTEM

_KEY = Write(99, (ColumnType.STRING, ColumnType.BINARY, ColumnType.BIGINT), "")


def default_schema() -> StructType:
    """Return the columns of a query that names none."""
    return shared.spark_schema(columns.DEFAULT, columns.READ)


def read_columns(schema: StructType) -> pa.Schema:
    """Return the columns that a query wants.

    Raises:
        SchemaError: Messages have no such columns.
    """
    return shared.read_schema(schema, columns.READ, SYSTEM)


def write_columns(schema: StructType, options: WriteOptions) -> pa.Schema:
    """Return the columns of the rows to be written that are written.

    Raises:
        SchemaError: There is a column that cannot be written, or one is missing.
    """
    names = schema.fieldNames()
    writable = dict(columns.WRITE)
    required = [columns.VALUE]
    if options.partition_key is not None:
        if options.partition_key not in names:
            raise SchemaError(
                f"The option `partitionKey` names the column `{options.partition_key}`,"
                f" which is not there: the rows have {', '.join(names)}."
            )
        if options.partition_key in columns.READ_ONLY:
            raise SchemaError(
                f"The option `partitionKey` names the column `{options.partition_key}`,"
                " which is not written: each message gets one of its own. Copy it to a "
                "column of another name."
            )
        writable.setdefault(options.partition_key, _KEY)
    if columns.BROKER in names:
        required.append(columns.PARTITION)
    if not options.topic and columns.TOPIC not in names:
        raise SchemaError(
            f"Set the option `topic`, or give each row one in {columns.TOPIC}."
        )
    return shared.write_schema(
        schema, writable, SYSTEM, required=required, read_only=columns.READ_ONLY
    )
