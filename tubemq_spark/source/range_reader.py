# SPDX-License-Identifier: Apache-2.0
"""The messages of one range of offsets, exactly, across broken connections.

A message comes without its offset, so that a range is cut by where gets start and end::

    start                              E                 end of the get
      |  get  |  get  |      get       |                 |
                      | m  m  m  m  m  |  m  m     m     |
                                       '- what a get from E brings: where it is cut

Where a get brought as many messages as its offsets span, each has one of them, and the
cut is arithmetic. Else other partitions of the store lie between, or messages that a
filter left out, and the broker is asked what comes from E on.

Brokers move a reader without an error: to the first offset that is left after
retention, or to the end where the log was rolled back. So where a get started is
compared with where it had to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool, Consumer, Fetched, Registered
from tubemq_spark.client.masters import Masters, new_client_id
from tubemq_spark.errors import (
    CorruptMessageError,
    DataLossError,
    PartitionOccupiedError,
    ReadTimeoutError,
    TubeMQError,
)
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.discovery import (
    find_partitions,
    group_slots,
    priority_of,
)
from tubemq_spark.source.ranges import Edges, loss, report
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire import codes
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import checksum
from tubemq_spark.wire.messages import BROKER_DEFAULT, UNFLUSHED, Token

logger = SYSTEM.logger("source")

#: A registration that nobody uses is dropped by the broker after 30 s.
_OCCUPIED_S = 35.0

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0


class Piece(NamedTuple):
    """Some messages of a range, in order.

    Attributes:
        messages: At least one.
        first_offset: Of the first, where each of the others has the next; None where
            offsets are not known.
    """

    messages: Sequence[pb.TransferedMessage]
    first_offset: int | None


class RangeReader:
    """Reads one range, once.

    Args:
        pool: Of connections.
        task: What to read.
        options: How.

    Attributes:
        reconnects: How often it registered again.
        waited_s: How long it waited for a broker, in seconds.
    """

    def __init__(self, pool: BrokerPool, task: ReadTask, options: ReadOptions) -> None:
        self.reconnects = 0
        self.waited_s = 0.0
        self._pool = pool
        self._task = task
        self._range = task.range
        self._options = options
        self._priority = priority_of(options)
        self._client_id = new_client_id(task.group)
        self._position = task.range.start
        self._end = task.range.end
        self._slots = group_slots(task.group)
        self._slot = 0
        self._has_said_occupied = False
        self._consumer: Consumer | None = None
        self._retry = Retry(
            _FIRST_PAUSE_S,
            _MAX_PAUSE_S,
            options.client.operation_timeout_s,
            "operation.timeout",
        )
        self._heard_at = time.monotonic()

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
                self._retry.restart()
                if piece is not None and piece.messages:
                    self._check(piece.messages)
                    yield piece
        finally:
            self._let_go()

    def _again(self, error: TubeMQError) -> None:
        """Wait for another try, which begins with a registration."""
        began = time.monotonic()
        self._let_go()
        self._retry.pause(error)
        self.reconnects += 1
        self.waited_s += time.monotonic() - began

    def _let_go(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.unregister()

    # -- registrations -----------------------------------------------------------------

    def _registered(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._register()
        return self._consumer

    def _register(self) -> Consumer:
        deadline = time.monotonic() + _OCCUPIED_S
        while True:
            try:
                consumer, answer = self._try_slots(self._position, self._priority)
                break
            except PartitionOccupiedError as error:
                if time.monotonic() > deadline:
                    raise
                if not self._has_said_occupied:
                    self._has_said_occupied = True
                    logger.warning(
                        "Waiting up to %g s for other readers: %s", _OCCUPIED_S, error
                    )
                self._pause(1.0)
        try:
            self._check_registered(answer)
        except BaseException:
            consumer.unregister()
            raise
        return consumer

    def _try_slots(self, offset: int, priority: int) -> tuple[Consumer, Registered]:
        """Register in the first group that nobody uses."""
        connection = self._pool.connection(self._range.broker)
        for number in range(len(self._slots)):
            slot = (self._slot + number) % len(self._slots)
            consumer = Consumer(
                connection,
                self._client_id,
                self._slots[slot],
                self._range.partition,
                filters=self._options.filters or (),
                token=self._pool.tokens.newest(self._task.token),
                renew=self._renewed,
            )
            try:
                answer = consumer.register(offset, priority)
            except PartitionOccupiedError:
                if number == len(self._slots) - 1:
                    raise
            else:
                self._slot = slot
                return consumer, answer
        raise AssertionError("there is no slot")

    def _renewed(self, token: Token | None) -> Token | None:
        group, topic = f"{self._task.group}-plan", self._range.partition.topic
        return self._pool.tokens.renewed(token, group, topic)

    def _check_registered(self, answer: Registered) -> None:
        if answer.offset != self._position:
            self._lose(Edges(answer.offset, max(answer.end, answer.offset)))
            self._move(answer.offset)
        if answer.end < self._end:
            # Ends are of a plan: the log has been rolled back since.
            if self._options.fail_on_data_loss:
                raise loss(self._range.partition, self._end, Edges(0, answer.end))
            self._end = max(answer.end, self._position)

    def _lose(self, edges: Edges) -> None:
        error = loss(self._range.partition, self._position, edges)
        report(error, fail_on_data_loss=self._options.fail_on_data_loss)

    def _move(self, offset: int) -> None:
        """Go on elsewhere, for lack of what is here: never back."""
        self._position = max(self._position, offset)

    # -- gets --------------------------------------------------------------------------

    def _next(self) -> Piece | None:
        consumer = self._registered()
        if self._position >= self._end:
            return None
        fetched = self._fetch(consumer)
        if fetched.start is None:
            self._rest(fetched)
            return None
        if not self._is_in_place(fetched.start):
            return None
        piece = self._piece(fetched, fetched.start)
        # Only now: what fails before is read again.
        self._position = fetched.end
        self._heard_at = time.monotonic()
        return piece

    def _is_in_place(self, start: int) -> bool:
        """Return whether a get started where it had to, or may be used all the same."""
        if start == self._position:
            return True
        self._lose(Edges(start, max(start, self._end)))
        if start < self._position:  # the same again: register anew
            self._let_go()
            return False
        self._move(start)
        return self._position < self._end

    def _piece(self, fetched: Fetched, start: int) -> Piece:
        messages = fetched.messages
        spanned = (fetched.end - start) // ENTRY_BYTES
        if len(messages) > spanned:
            raise self._torn(fetched)
        is_whole = len(messages) == spanned
        if not is_whole and self._range.is_dense and not self._options.filters:
            self._report_holes(fetched, spanned)
        if fetched.end > self._end:
            if is_whole:
                messages = messages[: (self._end - start) // ENTRY_BYTES]
            else:
                messages = messages[: self._cut(messages, fetched.end)]
        return Piece(messages, start if is_whole else None)

    def _fetch(self, consumer: Consumer) -> Fetched:
        began = time.monotonic()
        try:
            return consumer.fetch()
        finally:
            self.waited_s += time.monotonic() - began

    def _rest(self, fetched: Fetched) -> None:
        """Deal with a get that brought nothing: never the end by itself."""
        if fetched.end > self._position:
            # Nothing of this partition was there; other ones of the store were.
            self._position = fetched.end
            self._heard_at = time.monotonic()
            return
        if fetched.end < self._position:
            raise self._torn(fetched)
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
        self.waited_s += pause_s

    def _torn(self, fetched: Fetched) -> TubeMQError:
        """Return what to raise where a broker's numbers do not fit: try again."""
        return ReadTimeoutError(
            f"The broker {self._range.broker} moved the reader of "
            f"{self._range.partition} from offset {self._position} to {fetched.end} "
            f"with {len(fetched.messages)} messages.",
            topic_partition=str(self._range.partition),
            retriable=True,
        )

    def _report_holes(self, fetched: Fetched, spanned: int) -> None:
        if not self._options.fail_on_data_loss or not self._is_alone():
            return
        raise DataLossError(
            f"Of {spanned} messages of {self._range.partition} from offset "
            f"{fetched.start} on the broker delivers {len(fetched.messages)}: data of "
            "others is deleted, or their attributes cannot be read. Start after "
            f"{fetched.end}, or set `failOnDataLoss` to false to go on without them.",
            topic_partition=str(self._range.partition),
            wanted=str(fetched.start),
            available=str(fetched.end),
        )

    def _is_alone(self) -> bool:
        """Return whether the store still has no other partition than this one."""
        with Masters(self._options.client) as masters:
            found = find_partitions(masters, self._options, self._task.group)
        is_dense = self._range.partition in found.dense
        self._range = replace(self._range, is_dense=is_dense)
        return is_dense

    # -- the cut -----------------------------------------------------------------------

    def _cut(self, messages: Sequence[pb.TransferedMessage], end: int) -> int:
        """Return how many of the messages of a get that ended at ``end`` are wanted.

        All that begin at the end of the range are read again, to see which they are.
        """
        if not messages:
            return 0
        tail = self._read_again(end)
        if not tail:
            return len(messages)
        # Ids are unique within a get.
        ids = [one.messageId for one in messages]
        try:
            cut = ids.index(tail[0].messageId)
        except ValueError:
            cut = len(messages)
        for mine, again in zip(messages[cut:], tail, strict=False):
            if mine != again:
                raise self._changed()
        if len(tail) < len(messages) - cut:
            raise self._changed()
        return cut

    def _read_again(self, end: int) -> list[pb.TransferedMessage]:
        """Return the messages from the end of the range to ``end`` at least."""
        # What is read lies on the disk; by default brokers wait for nothing more there.
        priority = UNFLUSHED if self._options.read_unflushed else BROKER_DEFAULT
        consumer = self._registered()
        answer = consumer.register(self._end, priority)
        if answer.offset != self._end:
            raise self._changed()
        tail: list[pb.TransferedMessage] = []
        position = self._end
        deadline = time.monotonic() + self._options.read_timeout_s
        while position < end:
            fetched = self._fetch(consumer)
            if fetched.start is not None and fetched.start != position:
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
            f"after offset {self._end} changed while it was read.",
            topic_partition=str(self._range.partition),
            retriable=True,
        )

    def _check(self, messages: Sequence[pb.TransferedMessage]) -> None:
        for one in messages:
            if checksum(one.payLoadData) != one.checkSum:
                raise CorruptMessageError(
                    "its checksum is wrong.",
                    partition=str(self._range.partition),
                    message_id=one.messageId,
                )
