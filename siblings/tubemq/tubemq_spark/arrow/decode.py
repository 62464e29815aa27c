# SPDX-License-Identifier: Apache-2.0
"""Decode messages into RecordBatches with the columns of the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_topics.arrow.repeated import Repeated
from spark_topics.arrow.types import ARROW_TYPES
from tubemq_spark import columns
from tubemq_spark.errors import CorruptMessageError, ProtocolError
from tubemq_spark.loops.messages import MessageTable, gather, progression
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.wire.attributes import decode_body
from tubemq_spark.wire.metadata import Partition

#: Types of the columns, by name.
TYPES = {name: ARROW_TYPES[read.type] for name, read in columns.READ.items()}

#: Columns for which attributes have to be looked at.
_OF_ATTRIBUTES = {columns.MSG_TYPE, columns.MSG_TIME, columns.ATTRIBUTES}

#: What a column says of a message that has nothing for it.
_NOTHING: dict[str, Any] = {
    columns.MSG_TYPE: None,
    columns.MSG_TIME: None,
    columns.ATTRIBUTES: [],
    columns.OFFSET: None,
}


class _Rows(NamedTuple):
    """Messages as rows: a message is a row."""

    messages: MessageTable
    first_offset: int | None

    def __len__(self) -> int:
        return len(self.messages)

    def bytes(self, type_: pa.DataType, bounds: Any, count: int) -> pa.Array:
        """Return what lies between some bounds in the reply, as a column."""
        nulls, *buffers = gather(self.messages.data, bounds, count, _allocate)
        return pa.Array.from_buffers(
            type_,
            count,
            [buffer if buffer is None else pa.py_buffer(buffer) for buffer in buffers],
            nulls,
        )

    def maps(self) -> pa.Array:
        """Return the column of other attributes; NULL where a message has none."""
        messages = self.messages
        return pa.MapArray.from_arrays(
            _numbers(pa.int32(), messages.pair_ends, len(self) + 1),
            self.bytes(pa.string(), messages.names, messages.pairs),
            self.bytes(pa.string(), messages.texts, messages.pairs),
        )

    def offsets(self) -> pa.Array:
        """Return the column of offsets, for consecutive offsets."""
        assert self.first_offset is not None
        offsets = progression(self.first_offset, ENTRY_BYTES, len(self), _allocate)
        return _numbers(TYPES[columns.OFFSET], offsets, len(self))

    def lacks(self, name: str) -> bool:
        """Return whether all messages lack a value for a column."""
        if name == columns.OFFSET:
            return self.first_offset is None
        return name in _OF_ATTRIBUTES and not self.messages.has_attributes


class Decoder:
    """Decodes the messages of a partition.

    Args:
        schema: The columns wanted, of those in ``TYPES``.
        partition: Whose messages they are.
        filters: Message types to keep; none for all. Brokers compare only hashes.
    """

    def __init__(
        self, schema: pa.Schema, partition: Partition, filters: Sequence[str] = ()
    ) -> None:
        self._schema = schema
        self._partition = partition
        self._same = {
            name: Repeated(pa.scalar(value, TYPES[name]))
            for name, value in {
                columns.TOPIC: partition.topic,
                columns.BROKER: partition.broker_id,
                columns.PARTITION: partition.partition_id,
                **_NOTHING,
            }.items()
        }
        self._filters = pa.array(filters, TYPES[columns.MSG_TYPE]) if filters else None
        self._wants_attributes = bool(filters) or not _OF_ATTRIBUTES.isdisjoint(
            schema.names
        )

    def decode(
        self, messages: MessageTable, first_offset: int | None
    ) -> pa.RecordBatch:
        """Return the messages as rows, in order.

        Args:
            messages: Of one get.
            first_offset: Of the first of them, where the others follow one by one.

        Raises:
            CorruptMessageError: The attributes of one cannot be read.
        """
        unreadable = messages.split(self._wants_attributes)
        if unreadable >= 0:
            raise self._corrupt(messages, unreadable)
        rows = _Rows(messages, first_offset)
        arrays = [self._column(field.name, rows) for field in self._schema]
        if self._filters is None:
            return self._batch(arrays, len(rows))
        types = self._column(columns.MSG_TYPE, rows)
        is_wanted = pc.is_in(types, value_set=self._filters)
        return self._batch(
            [array.filter(is_wanted) for array in arrays], is_wanted.true_count
        )

    def _batch(self, arrays: list[pa.Array], count: int) -> pa.RecordBatch:
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return pa.RecordBatch.from_struct_array(
            pa.StructArray.from_buffers(pa.struct([]), count, [None])
        )

    def _corrupt(self, messages: MessageTable, number: int) -> CorruptMessageError:
        message = messages[number]
        try:
            decode_body(message.stored, message.flag)
        except ProtocolError as error:
            what = error.message
        return CorruptMessageError(
            what, partition=str(self._partition), message_id=message.message_id
        )

    def _column(self, name: str, rows: _Rows) -> pa.Array:
        if name not in _OF_ROWS or rows.lacks(name):
            return self._same[name].rows(len(rows))
        return _OF_ROWS[name](rows)


def _allocate(size: int) -> memoryview:
    """Return ``size`` bytes of Arrow's memory."""
    return memoryview(pa.allocate_buffer(size)).cast("B")


def _numbers(type_: pa.DataType, numbers: Any, count: int) -> pa.Array:
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(numbers)])


_OF_ROWS: dict[str, Callable[[_Rows], pa.Array]] = {
    columns.VALUE: lambda rows: rows.bytes(
        TYPES[columns.VALUE], rows.messages.values, len(rows)
    ),
    columns.MSG_TYPE: lambda rows: rows.bytes(
        TYPES[columns.MSG_TYPE], rows.messages.types, len(rows)
    ),
    columns.MSG_TIME: lambda rows: rows.bytes(
        TYPES[columns.MSG_TIME], rows.messages.times, len(rows)
    ),
    columns.ATTRIBUTES: _Rows.maps,
    columns.MESSAGE_ID: lambda rows: _numbers(
        TYPES[columns.MESSAGE_ID], rows.messages.ids, len(rows)
    ),
    columns.OFFSET: _Rows.offsets,
}
