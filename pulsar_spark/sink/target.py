# SPDX-License-Identifier: Apache-2.0
"""A topic partition of a writing task: rows are cut, numbered and framed.

Frames are made by ``loops.sends`` and sent by ``sink.task``. An entry holds as many
rows as fit; a row that is too large for a batch goes alone, in chunks where these are
allowed.

With ``deliveryGuarantee=idempotent`` a row has the same number whenever it is written,
and the broker drops what it has already. With any other guarantee numbers just go up.
How rows are numbered, and how a repetition with other rows is noticed: ``numbering``.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.client.producing.states import TopicProducer
from pulsar_spark.loops.sends import Packer, SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import DeliveryGuarantee, WriteOptions
from pulsar_spark.sink.grouping import runs_of_entries
from pulsar_spark.sink.numbering import Numbering
from pulsar_spark.wire.compression import CompressionType, compress
from pulsar_spark.wire.outgoing import SENT_TOGETHER_BYTES, as_single

#: How far behind the sequence ids of other tasks under a chosen name one may begin:
#: there is room for 2^31 tasks.
_MOST_AHEAD = 1 << 32


class Target:
    """A topic partition that rows go to.

    Args:
        producer: Its producer, which has attached.
        options: How to write.
        batch_id: The micro-batch; 0 in a batch query.
        txn: The transaction to write in, None for none.

    Raises:
        IdempotenceError: The broker has rows of a later micro-batch under this id.

    Attributes:
        producer: As given.
    """

    def __init__(
        self,
        producer: TopicProducer,
        options: WriteOptions,
        *,
        batch_id: int = 0,
        txn: TxnId | None = None,
    ) -> None:
        self.producer = producer
        registration = producer.registration
        self._batching = options.batching_enabled
        codec = CompressionType[options.compression_type]
        self._encoder = producer.encoder(
            txn=txn,
            compression=codec,
            chunk_bytes=_chunk_bytes(options, registration.max_message_size_bytes),
        )
        self._numbering: Numbering | None = None
        if options.guarantee is DeliveryGuarantee.IDEMPOTENT:
            self._numbering = Numbering(
                options.idempotence_id or "",
                producer.topic,
                batch_id,
                registration.last_sequence_id,
            )
        max_bytes = self._encoder.max_entry_bytes
        # A batch is no larger than a chunk: a topic's own limit holds for both.
        chunk_bytes = self._encoder.chunk_bytes or max_bytes
        encryption = self._encoder.encryption
        self._packer = Packer(
            producer_id=producer.producer_id,
            producer_name=registration.name,
            max_entry_bytes=max_bytes,
            max_rows=options.batching_max_messages if self._batching else 1,
            # The first row's keys stand in the entry's metadata, too, and what cannot
            # be compressed grows a little: a batch of several rows must fit all the
            # same.
            max_bytes=min(
                options.batching_max_bytes,
                max(0, max_bytes - self._encoder.overhead_bytes) // 3,
                chunk_bytes,
            ),
            max_alone_bytes=chunk_bytes,
            txn=None if txn is None else (txn.most, txn.least),
            codec=codec,
            compress=partial(compress, codec),
            now_ms=_now_ms,
            first_number=None if self._numbering is None else 0,
            schema_version=registration.schema_version,
            encrypt=None if encryption is None else encryption.encrypt,
        )
        self._packer.next_sequence_id = registration.last_sequence_id + 1
        if options.initial_sequence_id is not None:
            # Not below what the broker has: it would drop these rows as duplicates.
            self._packer.next_sequence_id = max(
                options.initial_sequence_id + 1, self._packer.next_sequence_id
            )
        elif options.producer_name is not None:
            # Another task under this name may write while a connection is away. Which
            # of the two the broker has entries of shows by their sequence ids.
            self._packer.next_sequence_id += secrets.randbelow(_MOST_AHEAD)

    def add(
        self,
        rows: EncodedRows,
        numbers: Sequence[int],
        start: int,
        end: int,
        *,
        is_whole: bool = False,
    ) -> Iterator[list[SendFrame]]:
        """Take rows; yield the frames of completed entries in groups.

        Args:
            rows: Encoded rows.
            numbers: The number of each of them in the task, ascending.
            start: The first of them to take.
            end: The first of them not to take.
            is_whole: Whether no further rows may share an entry with these.

        Raises:
            MessageTooLargeError: A row fits into no entry.
            IdempotenceError: The broker has other rows of this task.
        """
        # All rows are sent, also those that the broker has: what it knows of may only
        # be on its way to storage, and could still fail. But no entry holds some that
        # it has and some that it has not, or it would drop all of them.
        packer, packed = self._packer, rows.packed
        number, is_seam = start, False
        if self._numbering is not None:
            number, is_seam = self._numbering.begin(rows, numbers, start, end)
            numbers = self._numbering
        runs = runs_of_entries(rows, number, end, batching=self._batching)
        if start < number:
            of_known = runs_of_entries(rows, start, number, batching=self._batching)
            runs = itertools.chain(of_known, runs)
        for begin, stop, is_alone in runs:
            if is_alone or (begin == number and is_seam):
                yield from self.finish()
            take = packer.add_alone if is_alone else packer.add
            while begin < stop:
                frames: list[SendFrame] = []
                begin = take(packed, numbers, begin, stop, frames, SENT_TOGETHER_BYTES)
                if is_whole and begin == end and packer.odd_row is None:
                    packer.finish(frames)
                if frames:
                    yield frames
                if packer.odd_row is not None:
                    yield from self._odd_row()
        if self._numbering is not None:
            self._numbering.end()

    def end(self) -> None:
        """Note that there are no more rows.

        Raises:
            IdempotenceError: The broker has more rows of this task.
        """
        if self._numbering is not None and (bits := self._numbering.end_bits()):
            self._packer.mark_last(bits)

    def finish(self) -> Iterator[list[SendFrame]]:
        """Yield the frame of the rows that no entry holds yet.

        Several if it is a single row that has to be cut.

        Raises:
            MessageTooLargeError: The one row that is left fits into no entry.
        """
        frames: list[SendFrame] = []
        self._packer.finish(frames)
        if frames:
            yield frames
        if self._packer.odd_row is not None:
            yield from self._odd_row()

    def _odd_row(self) -> Iterator[list[SendFrame]]:
        """Yield the frames of a row that is no ordinary entry."""
        assert self._packer.odd_row is not None
        message, sequence_id, delivery_time = self._packer.odd_row
        metadata, payload = as_single(message)
        if delivery_time >= 0:
            metadata.deliver_at_time = delivery_time
        # Of a large row one chunk at a time: there must not be two of it.
        for frame in self._encoder.single(metadata, payload, sequence_id, _now_ms()):
            yield [frame]


def _chunk_bytes(options: WriteOptions, limit_bytes: int) -> int:
    if not options.chunking_enabled:
        return 0
    size_bytes = options.chunk_max_message_size
    return size_bytes if size_bytes > 0 else limit_bytes


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
