"""The columns of a topic as Spark types, and what users may ask for. Driver side."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.errors import SchemaError

#: Columns that every message has a value for. The others may be NULL.
_NEVER_NULL = frozenset(
    {
        "__topic",
        "__messageId",
        "__publishTime",
        "__messageProperties",
        "__producerName",
        "__sequenceId",
        "__redeliveryCount",
    }
)


def spark_schema(columns: Sequence[str]) -> StructType:
    """The Spark schema with these columns."""
    return from_arrow_schema(arrow_schema(columns))


def checked_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects its RecordBatches.

    Args:
        schema: Any choice of a topic's columns in any order.

    Raises:
        SchemaError: A column does not exist, has another type, comes twice, or is
            declared NOT NULL though messages may lack it; or there is no column at all.
            Lists all problems.
    """
    known = spark_schema(list(COLUMN_TYPES))
    problems = [] if schema.fields else ["it has no column"]
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in COLUMN_TYPES:
            problems.append(f"there is no column `{field.name}`")
        elif field.dataType != known[field.name].dataType:
            problems.append(
                f"`{field.name}` is {known[field.name].dataType.simpleString()}, not "
                f"{field.dataType.simpleString()} (cast it after reading)"
            )
        elif not field.nullable and field.name not in _NEVER_NULL:
            problems.append(f"`{field.name}` may be NULL, so it cannot be NOT NULL")
    problems += [
        f"`{name}` comes twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if problems:
        raise SchemaError(
            f"The schema asked for does not fit a Pulsar topic: {'; '.join(problems)}. "
            f"Choose among the columns {', '.join(COLUMN_TYPES)}."
        )
    return pa.schema(
        [pa.field(f.name, COLUMN_TYPES[f.name], f.nullable) for f in schema.fields]
    )
