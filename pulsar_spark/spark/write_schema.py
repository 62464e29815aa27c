"""Which columns rows must and may have to be written. Driver side."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pulsar_spark.errors import SchemaError
from pulsar_spark.options import WriteOptions

_TEXT_OR_BYTES: tuple[type[DataType], ...] = (BinaryType, StringType)
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)

#: What can be written, and the words for its types.
_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT_OR_BYTES, "binary or string"),
    "__key": (_TEXT_OR_BYTES, "string or binary"),
    "__orderingKey": (_TEXT_OR_BYTES, "binary or string"),
    "__eventTime": ((TimestampType,), "timestamp"),
    "__messageProperties": ((MapType,), "map<string,string>"),
    "__deliverAtTime": ((TimestampType,), "timestamp"),
    "__partition": (_INTEGERS, "int"),
    "__topic": ((StringType,), "string"),
}


def check_write_schema(schema: StructType, options: WriteOptions) -> None:
    """Returns if rows of this schema can be written.

    Raises:
        SchemaError: ``value`` is missing, or what says the topic is; a column is
            unknown, comes twice or has a wrong type. Lists all problems.
    """
    names = schema.fieldNames()
    problems = []
    if "value" not in names:
        problems.append("there is no column `value`")
    if options.topic is None and "__topic" not in names:
        problems.append(
            "nothing says the topic: set the option `topic`, or add `__topic`"
        )
    for field in schema.fields:
        if field.name not in _COLUMNS:
            problems.append(f"`{field.name}` cannot be written (drop it before)")
        elif not _fits(field.name, field.dataType):
            problems.append(
                f"`{field.name}` is {field.dataType.simpleString()}, not "
                f"{_COLUMNS[field.name][1]} (cast it before)"
            )
    problems += [
        f"`{name}` comes twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if problems:
        raise SchemaError(
            f"These rows cannot be written to Pulsar: {'; '.join(problems)}. Columns "
            f"that can be written are {', '.join(_COLUMNS)}."
        )


def _fits(name: str, type_: DataType) -> bool:
    if isinstance(type_, MapType):
        return (
            name == "__messageProperties"
            and isinstance(type_.keyType, StringType)
            and isinstance(type_.valueType, StringType)
        )
    return isinstance(type_, _COLUMNS[name][0])
