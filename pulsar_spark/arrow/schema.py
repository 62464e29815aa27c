# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic and their Arrow types, in Spark's order and form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pulsar_spark.columns import READ
from spark_topics.arrow.types import ARROW_TYPES as ARROW_TYPES
from spark_topics.arrow.types import STRING_MAP as STRING_MAP
from spark_topics.arrow.types import TIMESTAMP as TIMESTAMP

#: Every column that a read of a topic without a schema can give, by name.
COLUMN_TYPES: dict[str, pa.DataType] = {
    name: ARROW_TYPES[read.type] for name, read in READ.items()
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a RecordBatch of the given columns, all nullable."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
