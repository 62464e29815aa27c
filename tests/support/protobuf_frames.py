# SPDX-License-Identifier: Apache-2.0
"""Rows -> SEND frames, row by row and with protobuf's own runtime.

Slow and plain: what ``loops.sends`` makes has to be the same, byte by byte.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.checksums import crc32c
from pulsar_spark.errors import MessageTooLargeError
from pulsar_spark.loops.sends import OddRow, SendFrame
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import compress
from pulsar_spark.wire.frames import encode_payload_frame
from pulsar_spark.wire.outgoing import EntryEncoder, as_single


class Batch(NamedTuple):
    """Rows that go into one entry.

    Attributes:
        payload: The messages, each after its metadata.
        rows: How many.
        first_row, last_row: Their numbers, see ``BatchCutter.add``.
        partition_key: Of the first row, None for none.
        key_is_base64: Whether that is bytes, see ``EncodedRows``.
        ordering_key: Of the first row, None for none.
        hashes: The lowest and highest hash of a key; None where rows have no hashes.
    """

    payload: bytes | memoryview
    rows: int
    first_row: int
    last_row: int
    partition_key: str | None
    key_is_base64: bool
    ordering_key: bytes | None
    hashes: tuple[int, int] | None


class BatchCutter:
    """Cuts the rows of one topic partition into batches.

    Args:
        max_rows: Most rows of a batch.
        max_bytes: Most bytes of a batch, unless its one row is larger.
    """

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._parts: list[bytes | memoryview] = []
        self._rows = 0
        self._size_bytes = 0
        self._first: tuple[int, str | None, bool, bytes | None] = 0, None, False, None
        self._last_row = 0
        self._hashes: list[int] = []

    @property
    def rows(self) -> int:
        """Rows that are not in a batch yet."""
        return self._rows

    def add(
        self, rows: EncodedRows, numbers: Sequence[int], start: int, end: int
    ) -> Iterator[Batch]:
        """Add rows; yield the batches that they complete.

        Args:
            rows: Encoded rows.
            numbers: The number of each of them, ascending.
            start: The first of them to take.
            end: The first of them not to take.
        """
        offsets, data = rows.offsets, rows.data
        while start < end:
            # As many as have room. There is one more offset than there are rows.
            stop = min(start + self._max_rows - self._rows, end)
            limit = offsets[start] + self._max_bytes - self._size_bytes
            stop = bisect.bisect_right(offsets, limit, start, stop + 1) - 1
            if not self._rows:
                stop = max(stop, start + 1)  # a row that is too large goes alone
                self._first = numbers[start], *_keys(rows, start)
            if stop > start:
                self._parts.append(data[offsets[start] : offsets[stop]])
                self._size_bytes += len(self._parts[-1])
                self._rows += stop - start
                self._last_row = numbers[stop - 1]
                if rows.entry_hashes is not None:
                    self._hashes += rows.entry_hashes[start:stop].to_pylist()
                start = stop
            if start < end or self._rows == self._max_rows:
                yield self._cut()
        # What is left must not keep all of these rows in memory.
        self._parts = [bytes(part) for part in self._parts]

    def finish(self) -> Iterator[Batch]:
        """Yield what is left."""
        if self._rows:
            yield self._cut()

    def _cut(self) -> Batch:
        payload = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        first_row, key, is_base64, order = self._first
        keys = key, is_base64, order
        hashes = (min(self._hashes), max(self._hashes)) if self._hashes else None
        batch = Batch(payload, self._rows, first_row, self._last_row, *keys, hashes)
        self._parts, self._rows, self._size_bytes, self._hashes = [], 0, 0, []
        return batch


def _keys(rows: EncodedRows, at: int) -> tuple[str | None, bool, bytes | None]:
    key = None if rows.keys is None else rows.keys[at].as_py()
    order = None if rows.ordering_keys is None else rows.ordering_keys[at].as_py()
    return key, rows.keys_are_base64 and key is not None, order


def batch_frame(
    encoder: EntryEncoder, batch: Batch, sequence_ids: tuple[int, int], now_ms: int
) -> SendFrame | None:
    """The frame of a batch, or None if it is too large for an entry."""
    lowest, highest = sequence_ids
    metadata = pb.MessageMetadata(
        producer_name=encoder.producer_name,
        sequence_id=lowest,
        highest_sequence_id=highest,
        publish_time=now_ms,
        num_messages_in_batch=batch.rows,
        partition_key=batch.partition_key,
        partition_key_b64_encoded=batch.key_is_base64 or None,
        ordering_key=batch.ordering_key,
        schema_version=encoder.schema_version or None,
    )
    if batch.hashes is not None:
        metadata.entry_hash_min, metadata.entry_hash_max = batch.hashes
    send = pb.CommandSend(
        producer_id=encoder.producer_id,
        sequence_id=lowest,
        highest_sequence_id=highest,
        num_messages=batch.rows,
    )
    body = batch.payload
    if encoder.compression:
        metadata.compression = encoder.compression
        metadata.uncompressed_size = len(body)
        body = compress(encoder.compression, body)
    if encoder.txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = encoder.txn[:2]
        send.txnid_most_bits, send.txnid_least_bits = encoder.txn[:2]
    if encoder.encryption is not None:
        fields, body = encoder.encryption.encrypt(body)
        metadata.MergeFromString(fields)
    if metadata.ByteSize() + len(body) > encoder.max_entry_bytes:
        return None
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send)
    data = encode_payload_frame(
        command.SerializeToString(), metadata.SerializeToString(), body
    )
    return SendFrame(lowest, highest, batch.rows, data)


def row_frames(
    encoder: EntryEncoder, rows: EncodedRows, row: int, sequence_id: int, now_ms: int
) -> list[SendFrame | OddRow]:
    """The frame of a row by itself, or those of its chunks; else the row."""
    message = rows.data[rows.offsets[row] : rows.offsets[row + 1]]
    metadata, payload = as_single(message)
    time = None if rows.deliver_at_ms is None else rows.deliver_at_ms[row].as_py()
    if time is not None:
        metadata.deliver_at_time = time
    try:
        return [*encoder.single(metadata, payload, sequence_id, now_ms)]
    except MessageTooLargeError:
        return [OddRow(message, sequence_id, -1 if time is None else time)]


def encoder(**changes: Any) -> EntryEncoder:
    """An encoder of the producer 3, ``p``, with changes."""
    settings: dict[str, Any] = {
        "producer_id": 3,
        "producer_name": "p",
        "max_message_size_bytes": 5 << 20,
    }
    return EntryEncoder(**{**settings, **changes})


def frame_of(send: pb.CommandSend, metadata: pb.MessageMetadata, body: bytes) -> bytes:
    """A SEND, laid out by hand."""
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    described = metadata.SerializeToString()
    summed = struct.pack(">I", len(described)) + described + body
    rest = struct.pack(">I", len(command)) + command
    rest += b"\x0e\x01" + struct.pack(">I", crc32c(summed)) + summed
    return struct.pack(">I", len(rest)) + rest
