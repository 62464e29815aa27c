# SPDX-License-Identifier: Apache-2.0
"""What a decoded entry says of each of its messages, as plain Python values."""

from __future__ import annotations

import base64
from typing import Any

from pulsar_spark.loops import messages
from pulsar_spark.loops.messages import BinaryColumn, MessageTable
from pulsar_spark.wire.entries import Entry


def fields_of(entry: Entry) -> list[dict[str, Any]]:
    """By the protocol's names; None for what a message does not have.

    ``partition_key`` is str, or bytes where it came in base64 or is not UTF-8;
    ``properties`` is a dict of such, in which of a repeated key the last value counts.
    """
    rows = range(entry.first_row, entry.last_row)
    return [fields_of_row(entry.table, row) for row in rows]


def column_of(entry: Entry, name: str) -> list[Any]:
    """One of these fields of all messages."""
    return [fields[name] for fields in fields_of(entry)]


def text_of(column: BinaryColumn | None, row: int) -> bytes:
    """A row of a column of bytes."""
    assert column is not None
    return bytes(column.data[column.offsets[row] : column.offsets[row + 1]])


def fields_of_row(table: MessageTable, row: int) -> dict[str, Any]:
    """The same for a row of a table."""
    flags = table.flags[row]
    key: Any = None
    if flags & messages.KEY_IS_BASE64:
        key = base64.b64decode(text_of(table.keys, row), validate=True)
    elif flags & messages.HAS_KEY:
        key = _text(text_of(table.keys, row))
    pairs = range(table.pair_ends[row], table.pair_ends[row + 1])
    return {
        "partition_key": key,
        "ordering_key": text_of(table.ordering_keys, row)
        if flags & messages.HAS_ORDERING_KEY
        else None,
        "event_time": table.event_times[row]
        if flags & messages.HAS_EVENT_TIME
        else None,
        "sequence_id": table.sequence_ids[row],
        "properties": {
            _text(text_of(table.pair_keys, pair)): _text(
                text_of(table.pair_values, pair)
            )
            for pair in pairs
        }
        or None,
    }


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
