# SPDX-License-Identifier: Apache-2.0
"""Exactly the messages of a range of offsets, across broken connections.

A message comes without its offset, so that a range is cut by where gets start and end::

    start                              E                 end of the get
      |  get  |  get  |      get       |                 |
                      | m  m  m  m  m  |  m  m     m     |
                                       '- what a get from E brings: if it is cut

Where a get brought as many messages as its offsets span, each has one of them, and the
cut is arithmetic. Else other partitions of the store lie between, or messages that a
filter left out, and the broker is asked what comes from E on.

Brokers move a reader without an error: to the first offset that is left after
retention, or to the end where the log was rolled back. So where a get started is
compared with if it had to; where that differs, the reader registers again, and the
answer says what is left.

While a get is decoded, the next ones are under way.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool, Consumer, Fetched, Registered
from tubemq_spark.client.heart import Heart
from tubemq_spark.client.masters import Masters
from tubemq_spark.errors import (
    CallTimeoutError,
    CorruptMessageError,
    DataLossError,
    PartitionOccupiedError,
    ReadTimeoutError,
    TubeMQError,
)
from tubemq_spark.loops.messages import Message, MessageTable
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.discovery import is_alone, priority_of
from tubemq_spark.source.ranges import Edges, loss, report
from tubemq_spark.source.registrar import Registrar
from tubemq_spark.wire import codes
from tubemq_spark.wire.checksums import crc32
from tubemq_spark.wire.messages import BROKER_DEFAULT, FLUSHED, UNFLUSHED

#: Gets that are under way while one is looked at, or half as many: enough that the
#: broker does not wait for us. They bring about so many bytes together, or one larger
#: message.
_GETS_AHEAD = 8
_BYTES_AHEAD = 4 * 1024 * 1024

#: The largest stored message, in bytes, that a broker surely reads from its memory: it
#: passes over those of more than its largest message and 10 KiB, as 2.4.0 does, and no
#: broker has a smaller limit than 1 MiB.
MOST_IN_MEMORY = 1 << 20


class Piece(NamedTuple):
    """Some messages of a range, in order.

    Attributes:
        messages: At least one, none of them damaged.
        first_offset: Of the first, where each of the others has the next; None where
            offsets are not known.
    """

    messages: MessageTable
    first_offset: int | None


class RangeReader:
    """Reads a range, a single time. For one thread.

    Args:
        pool: The connections.
        task: What to read.
        options: How to read.

    Attributes:
        reconnects: How often it registered again.
    """

    def __init__(self, pool: BrokerPool, task: ReadTask, options: ReadOptions) -> None:
        self.reconnects = 0
        self._task = task
        self._range = task.range
        self._options = options
        self._waited_s = 0.0
        self._position = task.range.start
        self._end = task.range.end
        patience = options.client.patience
        self._registrar = Registrar(
            pool,
            task.range.broker,
            task.range.partition,
            task.group,
            priority=priority_of(options),
            filters=options.filters or (),
            token=task.token,
            part=task.part,
            parts=task.parts,
            patience=patience,
        )
        self._gets_ahead = _GETS_AHEAD
        self._consumer: Consumer | None = None
        self._heart: Heart | None = None
        self._retry = Retry(
            patience.first_pause_s,
            patience.max_pause_s,
            options.client.operation_timeout_s,
            "operation.timeout",
        )
        self._heard_at = time.monotonic()

    @property
    def waited_s(self) -> float:
        """Return the time spent waiting for brokers, in seconds."""
        return self._waited_s + self._registrar.waited_s

    def pieces(self) -> Iterator[Piece]:
        """Yield the messages of the range.

        Raises:
            DataLossError: Rows are gone, and ``failOnDataLoss`` is set.
            CorruptMessageError: A message is damaged.
            ReadTimeoutError: Nothing comes, though there is more.
            PartitionOccupiedError: Others read it, as many as may.
            TubeMQError: The broker does not answer, or refuses.
        """
        try:
            while self._position < self._end:
                try:
                    piece = self._next()
                except TubeMQError as error:
                    self._again(error)
                    continue
                if piece is not None:
                    yield piece
                    # How long they were looked at is nobody's silence.
                    self._heard_at = time.monotonic()
                self._retry.restart()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the partition, wherever this is."""
        if self._heart is not None:
            self._heart.stop()
        consumer, self._consumer, self._heart = self._consumer, None, None
        if consumer is not None:
            self._registrar.let_go(consumer)

    def _again(self, error: TubeMQError) -> None:
        """Wait for another try, which begins with a registration."""
        began = time.monotonic()
        self.close()
        if isinstance(error, CallTimeoutError):
            # Too much was under way for the time of one call.
            self._gets_ahead = max(1, self._gets_ahead // 2)
        self._retry.pause(error)
        self.reconnects += 1
        self._waited_s += time.monotonic() - began

    # -- registrations -----------------------------------------------------------------

    def _registered(self) -> Consumer:
        if self._heart is not None and self._heart.failure is not None:
            raise self._heart.failure
        if self._consumer is None:
            self._consumer, answer = self._registrar.register(self._position)
            self._check_registered(answer)
            self._heart = Heart(self._consumer)
        return self._consumer

    def _check_registered(self, answer: Registered) -> None:
        if answer.offset != self._position:
            edges = Edges(answer.offset, max(answer.end, answer.offset))
            self._report(loss(self._range.partition, self._position, edges))
            # Go on elsewhere, for lack of what is here: never back.
            self._position = max(self._position, answer.offset)
        if answer.end < self._end:
            # Ends are of a plan: the log has been rolled back since.
            self._report(loss(self._range.partition, self._end, Edges(0, answer.end)))
            self._end = max(answer.end, self._position)

    def _report(self, error: DataLossError) -> None:
        report(error, fail_on_data_loss=self._options.fail_on_data_loss)

    # -- gets --------------------------------------------------------------------------

    def _next(self) -> Piece | None:
        consumer = self._registered()
        if self._position >= self._end:
            return None
        fetched = self._fetch(consumer)
        if fetched.start not in (None, self._position) or fetched.end < self._position:
            raise self._torn(fetched)
        if fetched.end == self._position and not fetched.messages:
            self._rest(fetched)
            return None
        if fetched.start is None and not self._is_believed(consumer, fetched):
            return None
        piece = self._piece(fetched.messages, fetched.end)
        self._prefetch(consumer, fetched.end, piece)
        # Only now: what fails before is read again.
        self._position = fetched.end
        self._heard_at = time.monotonic()
        return piece

    def _is_believed(self, consumer: Consumer, fetched: Fetched) -> bool:
        """Return whether a get began at the right place that does not tell its start.

        Of what a broker has in memory, a part without our messages is such a get. The
        broker may have moved the reader before, past what retention has taken: what is
        there now was there then.
        """
        position, priority = self._position, priority_of(self._options)
        try:
            self._check_registered(consumer.register(position, priority))
            if self._position == position and fetched.end < self._end:
                consumer.register(fetched.end, priority)
        except PartitionOccupiedError:  # it had been dropped: begin in another group
            raise self._changed() from None
        return self._position == position

    def _piece(self, messages: MessageTable, end: int) -> Piece | None:
        """Return the wanted part of a get that ended at ``end``.

        It may bring nothing at all and go on all the same: others of the store lie
        there.
        """
        spanned = (end - self._position) // ENTRY_BYTES
        if len(messages) > spanned:
            raise self._changed()
        is_whole = len(messages) == spanned
        if end > self._end:
            spanned = (self._end - self._position) // ENTRY_BYTES
            messages.keep(spanned if is_whole else self._cut(messages, end))
        self._look_for_holes(spanned, len(messages))
        if not messages:
            return None
        self._check(messages)
        return Piece(messages, self._position if is_whole else None)

    def _prefetch(self, consumer: Consumer, end: int, piece: Piece | None) -> None:
        """Keep gets in flight behind a get that ended at ``end``.

        Only as many as the range may need, each as long as that one, and fewer where
        messages are large: all are to come within the time of one call.
        """
        needed = -(-(self._end - end) // max(ENTRY_BYTES, end - self._position))
        size_bytes = piece.messages.size_bytes() if piece else 0
        few = max(1, _BYTES_AHEAD // max(1, size_bytes))
        consumer.prefetch(min(needed, self._gets_ahead, few))

    def _fetch(self, consumer: Consumer) -> Fetched:
        began = time.monotonic()
        try:
            return consumer.fetch()
        finally:
            self._waited_s += time.monotonic() - began

    def _rest(self, fetched: Fetched) -> None:
        """Wait a little: there is nothing at the moment, which is never the end."""
        silence_s = time.monotonic() - self._heard_at
        if silence_s > self._options.read_timeout_s:
            raise ReadTimeoutError(
                f"The broker {self._range.broker} has brought nothing of "
                f"{self._range.partition} for {silence_s:.0f} s at offset "
                f"{self._position}, and there is more up to {self._end}. Look at its "
                "log, or raise `read.timeout`.",
                topic_partition=str(self._range.partition),
            )
        if fetched.code == codes.SERVER_CONSUME_SPEED_LIMIT:
            self._pause(max(fetched.pause_s, self._options.not_found_pause_s))
        else:
            self._pause(self._options.not_found_pause_s)

    def _pause(self, pause_s: float) -> None:
        time.sleep(pause_s)
        self._waited_s += pause_s

    def _torn(self, fetched: Fetched) -> TubeMQError:
        """Return what to raise where a broker's numbers do not fit: try again."""
        return ReadTimeoutError(
            f"The broker {self._range.broker} moved the reader of "
            f"{self._range.partition} from offset {self._position} by a get from "
            f"{fetched.start} to {fetched.end} with {len(fetched.messages)} messages.",
            topic_partition=str(self._range.partition),
            retriable=True,
        )

    def _look_for_holes(self, spanned: int, found: int) -> None:
        """Check that each offset of a dense partition has a message."""
        if found >= spanned or self._options.filters or not self._is_dense:
            return
        end = self._position + spanned * ENTRY_BYTES
        self._report(
            DataLossError(
                f"Of {spanned} messages of {self._range.partition} from offset "
                f"{self._position} on the broker delivers {found}: data of others is "
                f"deleted, or their attributes cannot be read. Start after {end}, or "
                "set `failOnDataLoss` to false to go on without them.",
                topic_partition=str(self._range.partition),
                wanted=str(self._position),
                available=str(end),
            )
        )

    @functools.cached_property
    def _is_dense(self) -> bool:
        """Return whether each offset of the range is a message of the partition.

        Others may have been added to the store since the plan looked. Who writes to
        them has heard of them from a master, and wrote before the range had its end:
        what a master says now is true of all of it.
        """
        if not self._range.is_dense:
            return False
        try:
            with Masters(self._options.client) as masters:
                return is_alone(
                    masters, self._options, self._task.group, self._range.partition
                )
        except TubeMQError:
            if self._options.fail_on_data_loss:
                raise
            return True  # what is not known is warned about

    # -- the cut -----------------------------------------------------------------------

    def _cut(self, messages: MessageTable, end: int) -> int:
        """Return how many of the messages of a get that ended at ``end`` are wanted.

        All that begin at the end of the range are read again, to see which they are.
        """
        if not messages:
            return 0
        mine = list(messages)
        tail = self._read_again(end, self._priority_of_cut(mine))
        if not tail:
            return len(messages)
        # Ids are unique within a get.
        ids = [message.message_id for message in mine]
        first = tail[0].message_id
        cut = ids.index(first) if first in ids else len(mine)
        if mine[cut:] != tail[: len(mine) - cut]:
            raise self._changed()
        return cut

    def _priority_of_cut(self, messages: Sequence[Message]) -> int:
        """Return from where the messages of a get are read again."""
        if self._options.read_unflushed:
            return UNFLUSHED
        if any(len(message.stored) > MOST_IN_MEMORY for message in messages):
            return FLUSHED  # memory may pass over it: wait until the disk counts it
        # What is read lies on the disk; by default brokers wait for nothing more there.
        return BROKER_DEFAULT

    def _read_again(self, end: int, priority: int) -> list[Message]:
        """Return the messages from the end of the range to ``end`` at least."""
        consumer = self._registered()
        try:
            answer = consumer.register(self._end, priority)
        except PartitionOccupiedError:  # it had been dropped: begin in another group
            raise self._changed() from None
        if answer.offset != self._end:
            raise self._changed()
        tail: list[Message] = []
        position = self._end
        deadline = time.monotonic() + self._options.read_timeout_s
        while position < end:
            fetched = self._fetch(consumer)
            if fetched.start not in (None, position) or fetched.end < position:
                raise self._changed()
            tail += fetched.messages
            if fetched.end == position:
                if time.monotonic() > deadline:
                    raise self._changed()
                self._pause(self._options.not_found_pause_s)
            position = fetched.end
        return tail

    def _changed(self) -> TubeMQError:
        return ReadTimeoutError(
            f"What the broker {self._range.broker} has of {self._range.partition} "
            f"around offset {self._end} changed while it was read.",
            topic_partition=str(self._range.partition),
            retriable=True,
        )

    def _check(self, messages: MessageTable) -> None:
        """See that no message is damaged."""
        damaged = messages.first_damaged(crc32)
        if damaged >= 0:
            raise CorruptMessageError(
                "its checksum is wrong.",
                partition=str(self._range.partition),
                message_id=messages.message_id(damaged),
            )
