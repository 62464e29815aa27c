# SPDX-License-Identifier: Apache-2.0
"""The column ``__messageId``: what the Java client's ``MessageId.toByteArray()`` gives.

::

    ledger entry [partition] | 20 batch_index | batch_size
    head, one an entry       | of the message | tail, one an entry
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.runs import Messages, allocate, binary_array
from pulsar_spark.arrow.sources import Collector
from pulsar_spark.loops.messages import BinaryColumn
from pulsar_spark.message_id import MessageId, encode_message_id, encode_varint
from pulsar_spark.wire.entries import Entry, EntryRun


class MessageIdCollector(Collector):
    """Collects the ids of messages, written by the kernel."""

    def __init__(self, type_: pa.DataType, partition: int) -> None:
        super().__init__(type_)
        self._partition = partition
        self._rows = 0
        self._ids = BinaryColumn(allocate)

    def clear(self) -> None:
        """Drop what was collected."""
        self._ids = self._ids.empty_like(self._rows)
        self._rows = 0

    def append(self, entry: Entry) -> None:
        """Collect the ids of an entry's messages."""
        append_message_ids(self._ids, self._rows, self._partition, entry)
        self._rows += len(entry)

    def append_run(self, run: EntryRun) -> None:
        """Collect the ids of the messages of entries that were unpacked together."""
        self._ids.append_ids(
            self._rows,
            run.deliveries.facts,
            run.first,
            run.last,
            _encoded_part(partition=self._partition),
            run.table.batch_indexes,
            run.first_row,
        )
        self._rows += len(run)

    def array(self, rows: int, messages: Messages) -> pa.Array:
        """Return the ids of all rows collected."""
        del messages
        return binary_array(self._ids, 0, rows)


def append_message_ids(
    ids: BinaryColumn, rows: int, partition: int, entry: Entry
) -> None:
    """Append the ids of an entry's messages.

    Args:
        ids: The column.
        rows: How many there are in it.
        partition: Of the topic, -1 if it is not partitioned.
        entry: The entry.
    """
    head = _head(partition, entry)
    if entry.batch_size and not entry.first_chunk:
        numbers = entry.table.batch_indexes
        tail = _encoded_part(batch_size=entry.batch_size)
        first, last = entry.first_row, entry.last_row
        ids.append_numbered(rows, head + b"\x20", numbers, first, last, tail)
        return
    if entry.first_chunk:
        start = MessageId(*entry.first_chunk, partition=partition)
        end = MessageId(*entry.position, partition=partition, first_chunk=start)
        id_ = encode_message_id(end, java=True)
    else:
        id_ = head + _encoded_part(batch_size=0)
    count = len(entry)
    ids.append(rows, id_, array("i", (0, len(id_)) * count), count)


def _head(partition: int, entry: Entry) -> bytes:
    return (
        _encoded_ledger(entry.ledger_id)
        + b"\x10"
        + encode_varint(entry.entry_id)
        + _encoded_part(partition=partition)
    )


@lru_cache(maxsize=16)
def _encoded_ledger(ledger_id: int) -> bytes:
    return b"\x08" + encode_varint(ledger_id)


@lru_cache(maxsize=4096)
def _encoded_part(**field: Any) -> bytes:
    """Encode a field of a message id, to be appended to the fields before."""
    with_field = encode_message_id(MessageId(0, 0, **field), java="batch_size" in field)
    return with_field[len(encode_message_id(MessageId(0, 0))) :]
