# SPDX-License-Identifier: Apache-2.0
"""Messages become RecordBatches: the columns that are wanted, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_topics.arrow.types import ARROW_TYPES
from tubemq_spark import columns
from tubemq_spark.errors import CorruptMessageError, ProtocolError
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import HAS_ATTRIBUTES, Body, decode_body
from tubemq_spark.wire.metadata import Partition

#: Types of the columns, by name.
TYPES = {name: ARROW_TYPES[read.type] for name, read in columns.READ.items()}

_Row = tuple[int, int | None, Body]


class Decoder:
    """Decodes the messages of one partition.

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
        self._filters = frozenset(filters)

    def decode(
        self, messages: Sequence[pb.TransferedMessage], first_offset: int | None
    ) -> pa.RecordBatch:
        """Return the messages as rows, in order.

        Args:
            messages: Of one get.
            first_offset: Of the first of them, where the others follow one by one.

        Raises:
            CorruptMessageError: The attributes of one cannot be read.
        """
        rows = [
            (
                message.messageId,
                None if first_offset is None else first_offset + ENTRY_BYTES * number,
                self._body(message),
            )
            for number, message in enumerate(messages)
        ]
        if self._filters:
            rows = [row for row in rows if row[2].msg_type in self._filters]
        arrays = [self._column(field.name, rows) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(
                pa.StructArray.from_buffers(pa.struct([]), len(rows), [None])
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _body(self, message: pb.TransferedMessage) -> Body:
        if not message.flag & HAS_ATTRIBUTES:
            return Body(message.payLoadData)
        try:
            return decode_body(message.payLoadData, message.flag)
        except ProtocolError as error:
            raise CorruptMessageError(
                error.message,
                partition=str(self._partition),
                message_id=message.messageId,
            ) from None

    def _column(self, name: str, rows: list[_Row]) -> pa.Array:
        made = _OF_ROWS.get(name)
        if made is not None:
            return pa.array([made(row) for row in rows], TYPES[name])
        value: Any = {
            columns.TOPIC: self._partition.topic,
            columns.BROKER: self._partition.broker_id,
            columns.PARTITION: self._partition.partition_id,
        }[name]
        return pa.repeat(pa.scalar(value, TYPES[name]), len(rows))


_OF_ROWS: dict[str, Callable[[_Row], Any]] = {
    columns.VALUE: lambda row: row[2].value,
    columns.MSG_TYPE: lambda row: row[2].msg_type,
    columns.MSG_TIME: lambda row: row[2].msg_time,
    columns.ATTRIBUTES: lambda row: list(row[2].attributes.items()),
    columns.MESSAGE_ID: lambda row: row[0],
    columns.OFFSET: lambda row: row[1],
}
