# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic and their Arrow types, in Spark's order and form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.columns import READ, ColumnType

#: Spark's TIMESTAMP: microseconds, the session's zone applied on display only.
TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Spark's MAP<STRING, STRING> as it appears in Arrow.
STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True))

#: The types of columns in Arrow.
ARROW_TYPES = {
    ColumnType.BINARY: pa.binary(),
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.TIMESTAMP: TIMESTAMP,
    ColumnType.STRING_MAP: STRING_MAP,
}

#: Every column that a read of a topic without a schema can give, by name.
COLUMN_TYPES: dict[str, pa.DataType] = {
    name: ARROW_TYPES[read.type] for name, read in READ.items()
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a RecordBatch with these columns, all of them nullable."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
