# SPDX-License-Identifier: Apache-2.0
"""Conversion of rows to messages, by column."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tubemq_spark import columns
from tubemq_spark.errors import BadRowError
from tubemq_spark.options import WriteOptions
from tubemq_spark.wire.attributes import Body, Stored, encode_body


class Row(NamedTuple):
    """A message to send.

    Attributes:
        topic: Name of its topic.
        stored: Attributes and value.
        msg_type: What filters compare, None for none.
        msg_time: As its attributes have it, None for none.
        key: A number that chooses its partition, None for turns.
        partition: Broker and partition that the row names, None if it does not; a
            broker of None is any that has the partition.
        number: Of the row within its task, from 0.
    """

    topic: str
    stored: Stored
    msg_type: str | None
    msg_time: str | None
    key: int | None
    partition: tuple[int | None, int] | None
    number: int = 0


def rows_of(
    batch: pa.RecordBatch, options: WriteOptions, first: int = 0
) -> Iterator[Row]:
    """Yield the messages of some rows.

    Args:
        batch: The rows.
        options: How to write.
        first: Number of the first of these rows within the task.

    Raises:
        BadRowError: One cannot be a message; says which row, which column and why.
    """
    names = set(batch.schema.names)
    count = batch.num_rows

    def column(name: str | None, *, is_bytes: bool = False) -> list[Any]:
        if name is None or name not in names:
            return [None] * count
        return _values(batch, name, first, is_bytes=is_bytes)

    # Text that is not UTF-8 may be a value, and may choose a partition.
    keys = column(options.partition_key, is_bytes=True)
    fixed = options.topic[0] if options.topic else None
    topics = [fixed] * count if fixed else column(columns.TOPIC)
    rows = zip(
        topics,
        column(columns.VALUE, is_bytes=True),
        column(columns.MSG_TYPE),
        column(columns.MSG_TIME),
        column(columns.ATTRIBUTES),
        column(columns.BROKER),
        column(columns.PARTITION),
        keys,
        strict=True,
    )
    for number, row in enumerate(rows, first):
        topic, value, type_, time, attributes, broker, partition, key = row
        if not topic:
            raise BadRowError(
                f"Row {number} of its task has no topic: set the option `topic`, or "
                f"{columns.TOPIC}."
            )
        yield Row(
            topic,
            _stored(number, value, type_, time, attributes),
            type_,
            time,
            None if key is None else key_hash(key),
            None if partition is None else (broker, partition),
            number,
        )


def _values(
    batch: pa.RecordBatch, name: str, first: int, *, is_bytes: bool
) -> list[Any]:
    """Return the values of a column.

    Raises:
        BadRowError: A text is not UTF-8: Spark's strings are bytes of any kind.
    """
    column = batch.column(name)
    if is_bytes and pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise BadRowError(
            f"Row {first + _first_unreadable(column)} of its task: {name} has text "
            "that is not UTF-8. Write its base64(...), or leave the row out."
        ) from None
    return values


def _first_unreadable(column: pa.Array) -> int:
    for number, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return number
    raise AssertionError("one of them is not UTF-8")


def _stored(number: int, value: Any, type_: Any, time: Any, attributes: Any) -> Stored:
    row = f"Row {number} of its task"
    if value is None:
        raise BadRowError(
            f"{row}: {columns.VALUE} is NULL, which no message can hold. Leave the row "
            "out."
        )
    pairs = dict(attributes or ())
    if None in pairs.values():
        raise BadRowError(
            f"{row}: {columns.ATTRIBUTES} has a NULL, which cannot be written."
        )
    try:
        return encode_body(Body(value, type_, time, pairs))
    except ValueError as error:
        raise BadRowError(f"{row} cannot be a message: {error}.") from None


def key_hash(key: Any) -> int:
    """Return a hash of a key that is equal in all processes."""
    data = key if isinstance(key, bytes) else str(key).encode()
    return zlib.crc32(data)
