# SPDX-License-Identifier: Apache-2.0
"""Columns -> the messages of rows.

Times go out as they are; the server keeps milliseconds, cut off. A time without a zone
is taken for UTC.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ydb_spark.errors import BadRowError
from ydb_spark.wire.writes import (
    MAX_METADATA_BYTES,
    MAX_METADATA_ITEMS,
    MAX_REQUEST_BYTES,
)

#: The column of bodies, by either of its names.
BODY_COLUMNS = ("data", "value")

#: Beside the body a message has its numbers, time and metadata, and a request a frame.
_MAX_BODY_BYTES = MAX_REQUEST_BYTES - 64 * 1024

_NANOS = 1_000_000_000


@dataclass(frozen=True)
class Row:
    """The message of a row, with its routing.

    Attributes:
        number: Of the row within its task, from 0.
        body: Not encoded.
        created_ns: Nanoseconds since 1970; before it, negative.
        metadata: Items, in their order; keys are unique.
        partition: Value of the column ``partition_id``, None where there is none.
        key: Value of the column ``key``, in the same way.
        group: Value of the column ``message_group_id``, in the same way.
    """

    number: int
    body: bytes
    created_ns: int
    metadata: list[tuple[str, bytes]] | None = None
    partition: int | None = None
    key: bytes | None = None
    group: str | None = None

    @property
    def created_at(self) -> dict[str, int]:
        """Return the time as a protobuf Timestamp."""
        seconds, nanos = divmod(self.created_ns, _NANOS)
        return {"seconds": seconds, "nanos": nanos}


def rows_of(batch: pa.RecordBatch, first: int) -> Iterator[Row]:
    """Yield the rows of a batch.

    Args:
        batch: Columns as Spark's writers are checked to have.
        first: Number of its first row within the task.

    Raises:
        BadRowError: A row that no message can hold.
    """
    names = batch.schema.names
    body_name = next(name for name in BODY_COLUMNS if name in names)
    bodies = _binary(batch, body_name)
    absent: list[Any] = [None] * batch.num_rows
    created = _created(batch) if "created_at" in names else absent
    metadata = _metadata(batch) if "metadata_items" in names else absent
    partitions = (
        batch.column("partition_id").to_pylist() if "partition_id" in names else absent
    )
    has_groups = "message_group_id" in names
    groups = _binary(batch, "message_group_id") if has_groups else absent
    keys = _binary(batch, "key") if "key" in names else absent
    now_ns = time.time_ns()
    rows = zip(bodies, created, metadata, partitions, keys, groups, strict=True)
    for index, (body, created_ns, items, partition, key, group) in enumerate(rows):
        number = first + index
        if body is None:
            raise BadRowError(
                f"Row {number} of its task has no {body_name}: it is null. A message"
                " may be empty, but not null; leave the row out."
            )
        if len(body) > _MAX_BODY_BYTES:
            raise BadRowError(
                f"Row {number} of its task has {len(body)} bytes of {body_name}. No"
                f" message can have more than {_MAX_BODY_BYTES}."
            )
        yield Row(
            number,
            body,
            now_ns if created_ns is None else created_ns,
            None if items is None else _checked(items, number),
            partition,
            key,
            None if group is None else _text(group, number, "a message_group_id"),
        )


def _binary(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    return list(column.to_pylist())


def _created(batch: pa.RecordBatch) -> list[int | None]:
    column = batch.column("created_at").cast(pa.timestamp("us")).cast(pa.int64())
    return [None if us is None else us * 1000 for us in column.to_pylist()]


def _metadata(batch: pa.RecordBatch) -> list[Any]:
    items = batch.column("metadata_items").cast(pa.map_(pa.binary(), pa.binary()))
    return list(items.to_pylist())


def _text(value: bytes, number: int, column: str) -> str:
    """Return what has to be text: Spark's strings are bytes of any kind.

    Raises:
        BadRowError: It is not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRowError(
            f"Row {number} of its task has {column} that is not UTF-8, which YDB takes"
            " for text alone. Write its base64(...), or leave the row out."
        ) from None


def _checked(items: list[tuple[bytes, Any]], number: int) -> list[tuple[str, bytes]]:
    if len(items) > MAX_METADATA_ITEMS:
        raise BadRowError(
            f"Row {number} of its task has {len(items)} metadata_items. No message can"
            f" have more than {MAX_METADATA_ITEMS}."
        )
    checked = []
    size = 0
    for key, value in items:
        if value is None:
            raise BadRowError(
                f"Row {number} of its task has a null value in metadata_items: it may"
                " be empty, but not null."
            )
        size += len(key) + len(value)
        checked.append((_text(key, number, "a key of metadata_items"), value))
    if size > MAX_METADATA_BYTES:
        raise BadRowError(
            f"Row {number} of its task has {size} bytes of metadata_items, keys"
            f" included. No message can have more than {MAX_METADATA_BYTES}."
        )
    return checked
