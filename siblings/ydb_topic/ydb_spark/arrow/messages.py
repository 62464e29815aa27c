# SPDX-License-Identifier: Apache-2.0
"""Conversion of messages to columns.

Only the columns that are wanted are made: a body that no one asks for is not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from ydb_spark.errors import CorruptMessageError
from ydb_spark.wire.codecs import decode
from ydb_spark.wire.reads import MessageBatch

#: A RecordBatch is handed on when it has as many rows or bytes of bodies.
MAX_ROWS = 10_000
MAX_BYTES = 4 << 20

_MICROS = 1_000_000

#: The first second of the first year that Spark has, and of the first that it has not.
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800


class MessageColumns:
    """Collects messages of a partition, and builds RecordBatches.

    Args:
        schema: The columns wanted.
        topic: The path, as the column ``topic`` has it.
        partition: Which partition.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._topic = topic
        self._partition = partition
        self._makers = [self._maker(name) for name in schema.names]
        self._lists: list[list[Any]] = [[] for _ in schema.names]
        self._rows = 0
        self._bytes = 0

    def take(self, parts: Iterable[MessageBatch]) -> Iterator[pa.RecordBatch]:
        """Add messages; yield full RecordBatches.

        Raises:
            CorruptMessageError: A body cannot be decoded; the error says which.
        """
        for part in parts:
            for message in part.messages:
                for values, make in zip(self._lists, self._makers, strict=True):
                    values.append(make(message, part.batch))
                self._rows += 1
                if self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES:
                    yield self.finish()

    def finish(self) -> pa.RecordBatch:
        """Return the remaining rows, and start the next RecordBatch."""
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(self._lists, self._schema, strict=True)
        ]
        self._lists = [[] for _ in self._lists]
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @property
    def rows(self) -> int:
        """Return how many messages wait for `finish`."""
        return self._rows

    def _maker(self, name: str) -> Callable[[Any, Any], Any]:
        if name == "data":
            return self._body
        if name == "topic":
            return lambda message, batch: self._topic
        if name == "partition_id":
            return lambda message, batch: self._partition
        return _MAKERS[name]

    def _body(self, message: Any, batch: Any) -> bytes:
        try:
            body = decode(batch.codec, message.data)
        except CorruptMessageError as error:
            raise CorruptMessageError(
                f"{self._topic}/{self._partition}, offset {message.offset}:"
                f" {error.message}."
            ) from None
        self._bytes += len(body)
        return body


def _micros(time: Any) -> int | None:
    """Return a time in microseconds since 1970; None for none that Spark knows.

    Anyone who writes a message says what he likes.
    """
    if not _YEAR_1 <= time.seconds < _YEAR_10000:
        return None
    return int(time.seconds * _MICROS + time.nanos // 1000)


_MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "offset": lambda message, batch: message.offset,
    "seq_no": lambda message, batch: message.seq_no,
    "message_group_id": lambda message, batch: message.message_group_id or None,
    "created_at": lambda message, batch: _micros(message.created_at),
    "metadata_items": lambda message, batch: list(
        {item.key: item.value for item in message.metadata_items}.items()
    ),
    "producer_id": lambda message, batch: batch.producer_id or None,
    "written_at": lambda message, batch: _micros(batch.written_at),
    "write_session_meta": lambda message, batch: sorted(
        batch.write_session_meta.items()
    ),
    "codec": lambda message, batch: batch.codec,
}
