# SPDX-License-Identifier: Apache-2.0
"""Arrow types of columns, as Spark expects them."""

from __future__ import annotations

import pyarrow as pa

from spark_topics.columns import ColumnType

#: Spark's TIMESTAMP: microseconds, the session's zone applied on display only.
TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Spark's MAP<STRING, STRING> as it appears in Arrow.
STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True))

#: Likewise MAP<STRING, BINARY>.
BINARY_MAP = pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=True))

#: Likewise the place of a message in its topic partition.
POSITION = pa.struct(
    [("ledgerId", pa.int64()), ("entryId", pa.int64()), ("batchIndex", pa.int32())]
)

#: The types of columns in Arrow.
ARROW_TYPES = {
    ColumnType.BINARY: pa.binary(),
    ColumnType.STRING: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.INT: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.TIMESTAMP: TIMESTAMP,
    ColumnType.STRING_MAP: STRING_MAP,
    ColumnType.BINARY_MAP: BINARY_MAP,
    ColumnType.POSITION: POSITION,
}
