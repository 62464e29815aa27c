# SPDX-License-Identifier: Apache-2.0
"""Messages become RecordBatches: the columns that are wanted, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import pyarrow as pa

from spark_topics.arrow.types import ARROW_TYPES
from tubemq_spark import columns
from tubemq_spark.errors import CorruptMessageError, ProtocolError
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import (
    HAS_ATTRIBUTES,
    decode_attributes,
    split_body,
)
from tubemq_spark.wire.metadata import Partition

#: Types of the columns, by name.
TYPES = {name: ARROW_TYPES[read.type] for name, read in columns.READ.items()}

#: Columns for which attributes have to be decoded.
_OF_ATTRIBUTES = {columns.MSG_TYPE, columns.MSG_TIME, columns.ATTRIBUTES}

#: Attributes are often those of the message before. So many are kept decoded, and none
#: that is longer.
_MAX_KEPT, _MAX_KEPT_BYTES = 1000, 500


class _Attributes(NamedTuple):
    """Those of a message, decoded."""

    msg_type: str | None
    msg_time: str | None
    keys: Sequence[str]
    values: Sequence[str]


_NONE = _Attributes(None, None, (), ())


class _Rows(NamedTuple):
    """Messages by the column; all columns are of one length.

    Attributes are left out where no message has any.
    """

    messages: Sequence[pb.TransferedMessage]
    values: Sequence[bytes]
    attributes: Sequence[_Attributes] | None
    offsets: Sequence[int | None]

    def only(self, numbers: Sequence[int]) -> _Rows:
        """Return some of them."""
        return _Rows(
            [self.messages[n] for n in numbers],
            [self.values[n] for n in numbers],
            self.attributes and [self.attributes[n] for n in numbers],
            [self.offsets[n] for n in numbers],
        )

    def texts(self, name: str, of: Callable[[_Attributes], str | None]) -> pa.Array:
        """Return a column of what attributes say."""
        if self.attributes is None:
            return pa.nulls(len(self.values), TYPES[name])
        return _array(name, [of(one) for one in self.attributes])


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
        self._wants_attributes = bool(filters) or not _OF_ATTRIBUTES.isdisjoint(
            schema.names
        )
        self._kept: dict[bytes, _Attributes] = {}

    def decode(
        self,
        messages: Sequence[pb.TransferedMessage],
        bodies: Sequence[bytes],
        first_offset: int | None,
    ) -> pa.RecordBatch:
        """Return the messages as rows, in order.

        Args:
            messages: Of one get.
            bodies: The stored bytes of each.
            first_offset: Of the first of them, where the others follow one by one.

        Raises:
            CorruptMessageError: The attributes of one cannot be read.
        """
        rows = _Rows(
            messages,
            *self._split(messages, bodies),
            [None] * len(messages)
            if first_offset is None
            else range(
                first_offset, first_offset + ENTRY_BYTES * len(messages), ENTRY_BYTES
            ),
        )
        if self._filters:
            kept = self._filters
            found = enumerate(rows.attributes or ())
            rows = rows.only([n for n, one in found if one.msg_type in kept])
        arrays = [self._column(field.name, rows) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(
                pa.StructArray.from_buffers(pa.struct([]), len(rows.values), [None])
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _split(
        self, messages: Sequence[pb.TransferedMessage], bodies: Sequence[bytes]
    ) -> tuple[Sequence[bytes], Sequence[_Attributes] | None]:
        """Return the values of messages, and their attributes if there are any."""
        flags = [one.flag & HAS_ATTRIBUTES for one in messages]
        if not any(flags):
            return bodies, None
        values, attributes = list(bodies), [_NONE] * len(bodies)
        known = self._kept.get
        for number, body in enumerate(bodies):
            if flags[number]:
                try:
                    text, values[number] = split_body(body)
                    if self._wants_attributes:
                        attributes[number] = known(text) or self._attributes(text)
                except ProtocolError as error:
                    raise CorruptMessageError(
                        error.message,
                        partition=str(self._partition),
                        message_id=messages[number].messageId,
                    ) from None
        return values, attributes

    def _attributes(self, text: bytes) -> _Attributes:
        msg_type, msg_time, others = decode_attributes(text)
        found = _Attributes(msg_type, msg_time, (*others.keys(),), (*others.values(),))
        if len(text) <= _MAX_KEPT_BYTES:
            if len(self._kept) == _MAX_KEPT:
                self._kept.clear()
            self._kept[text] = found
        return found

    def _column(self, name: str, rows: _Rows) -> pa.Array:
        made = _OF_ROWS.get(name)
        if made is not None:
            return made(rows)
        value: Any = {
            columns.TOPIC: self._partition.topic,
            columns.BROKER: self._partition.broker_id,
            columns.PARTITION: self._partition.partition_id,
        }[name]
        return pa.repeat(pa.scalar(value, TYPES[name]), len(rows.values))


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, TYPES[name])


def _maps(rows: _Rows) -> pa.Array:
    some = rows.attributes
    if some is None:
        none = pa.array([], pa.string())
        ends = pa.repeat(pa.scalar(0, pa.int32()), len(rows.values) + 1)
        return pa.MapArray.from_arrays(ends, none, none)
    keys = [one.keys for one in some]
    values = chain.from_iterable(one.values for one in some)
    return pa.MapArray.from_arrays(
        pa.array([0, *accumulate(map(len, keys))], pa.int32()),
        pa.array([*chain.from_iterable(keys)], pa.string()),
        pa.array([*values], pa.string()),
    )


_OF_ROWS: dict[str, Callable[[_Rows], pa.Array]] = {
    columns.VALUE: lambda rows: _array(columns.VALUE, rows.values),
    columns.MSG_TYPE: lambda rows: rows.texts(
        columns.MSG_TYPE, lambda one: one.msg_type
    ),
    columns.MSG_TIME: lambda rows: rows.texts(
        columns.MSG_TIME, lambda one: one.msg_time
    ),
    columns.ATTRIBUTES: _maps,
    columns.MESSAGE_ID: lambda rows: _array(
        columns.MESSAGE_ID, [one.messageId for one in rows.messages]
    ),
    columns.OFFSET: lambda rows: _array(columns.OFFSET, rows.offsets),
}
