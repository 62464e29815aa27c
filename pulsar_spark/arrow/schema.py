"""The columns of a topic and their Arrow types, in Spark's order and form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

#: Spark's TIMESTAMP: microseconds, the session's zone applied on display only.
TIMESTAMP = pa.timestamp("us", tz="UTC")

#: Spark's MAP<STRING, STRING> as it appears in Arrow.
STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True))

#: Every column that a topic without a schema has, by name.
COLUMN_TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__key": pa.binary(),
    "__topic": pa.string(),
    "__messageId": pa.binary(),
    "__publishTime": TIMESTAMP,
    "__eventTime": TIMESTAMP,
    "__messageProperties": STRING_MAP,
    "__partition": pa.int32(),
    "__orderingKey": pa.binary(),
    "__producerName": pa.string(),
    "__sequenceId": pa.int64(),
    "__schemaVersion": pa.int64(),
    "__redeliveryCount": pa.int32(),
    "__brokerPublishTime": TIMESTAMP,
    "__index": pa.int64(),
    "__replicatedFrom": pa.string(),
    "__deliverAtTime": TIMESTAMP,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of a RecordBatch with these columns, all of them nullable."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
