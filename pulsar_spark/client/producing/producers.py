# SPDX-License-Identifier: Apache-2.0
"""Producers of a task's topic partitions.

Every entry is kept until its receipt comes. When a connection breaks, or a topic moves,
the producer attaches again and sends the entries without a receipt: the same bytes in
the same order, a little at first, see ``resending``. A topic that an administrator
migrated is attached at its new cluster. All of this happens in the task's own thread,
inside the calls below. Reading threads only note the receipts and refusals of entries.
The states of a producer are drawn in ``states``.

Bytes in flight are bounded for all producers of a task together, by
``pulsar.client.memoryLimitBytes``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.attaching import (
    Attacher,
    ProducerSettings,
    Resend,
)
from pulsar_spark.client.producing.resending import Resending
from pulsar_spark.client.producing.states import (
    Attachment,
    Shared,
    TopicProducer,
)
from pulsar_spark.client.requests import fan_out, tell_all
from pulsar_spark.client.schemas import schema_message
from pulsar_spark.errors import (
    InDoubtError,
    PulsarSparkError,
    SchemaError,
    SendTimeoutError,
    TransportError,
)
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode, Request
from spark_topics.client.retry import LongWait, Retry, ask_all

__all__ = ["ProducerSettings", "Producers", "Resend", "TopicProducer"]

logger = logging.getLogger("pulsar_spark.client")

#: Some entries of one producer, in order.
_Entries = tuple[TopicProducer, Sequence[SendFrame]]


class Producers:
    """The producers of a task, by topic partition. For one thread only.

    A context manager: they are closed at its end.

    Args:
        pool: The cluster's connections. Producers with exclusive access need a pool of
            their own: a broker that fences one cuts the whole connection.
        settings: How to attach and send.

    Attributes:
        reconnects: How often a producer had to attach again.
        waited_s: How long it waited to attach, and for receipts, in seconds.
    """

    def __init__(self, pool: ConnectionPool, settings: ProducerSettings) -> None:
        self._pool = pool
        self._options = pool.options
        self._settings = settings
        self._patience = pool.options.patience
        self._shared = Shared(
            is_transactional=settings.transactional, ending_s=self._patience.ending_s
        )
        self._producers: dict[str, TopicProducer] = {}
        self._attacher = Attacher(pool, settings)
        self._send_timeout_s = settings.send_timeout_s
        if self._send_timeout_s is None:
            self._send_timeout_s = self._options.operation_timeout_s
        self._away_s = max(self._patience.write_s, self._send_timeout_s)
        self._retry = pool.retry(self._away_s)
        self._looked = 0.0  # when silence was last looked for
        self.reconnects = 0
        self.waited_s = 0.0

    def __enter__(self) -> Producers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def all(self) -> Iterable[TopicProducer]:
        """All producers that were opened."""
        return self._producers.values()

    def open(
        self,
        topics: Iterable[str],
        schema: SchemaInfo | None = None,
        *,
        untyped: Iterable[str] = (),
    ) -> None:
        """Attach to topic partitions together; open producers stay open.

        Args:
            topics: Full names of topic partitions.
            schema: What their values are written with; registered if it is new.
                None for none.
            untyped: Full names of others, without a schema.

        Raises:
            PulsarSparkError: One of them refuses for good, or for too long. As with
                every error of a call, it is final: the others raise it from then on.
        """
        with self._final_errors():
            message = None if schema is None else schema_message(schema)
            schemas = dict.fromkeys(untyped) | dict.fromkeys(topics, message)
            self._open(schemas)

    def _open(self, schemas: Mapping[str, pb.Schema | None]) -> None:
        new = {
            topic: TopicProducer(
                topic,
                self._settings.name,
                self._shared,
                schema,
                self._settings.new_encryption,
            )
            for topic, schema in schemas.items()
            if topic not in self._producers
        }
        if new:
            self._producers |= new  # so that a close finds those that did attach
            retry = self._opening_retry()
            attach = self._attacher.attach
            began = time.monotonic()
            try:
                ask_all(new, lambda some: attach([new[t] for t in some], retry), retry)
            finally:
                self.waited_s += time.monotonic() - began

    def _opening_retry(self) -> Retry:
        # A name may be held by a task that was killed, for as long as a broker takes to
        # find out that its connection is dead.
        longest_s = max(
            self._options.operation_timeout_s, 2 * self._options.keep_alive_interval_s
        )
        return self._pool.retry(longest_s)

    def get(self, topic: str) -> TopicProducer:
        """Return the producer of a topic partition that was opened."""
        return self._producers[topic]

    def send(self, producer: TopicProducer, frame: SendFrame) -> None:
        """Send an entry, after waiting for room in the window.

        Raises:
            PulsarSparkError: An entry was refused for good, or a broker is silent or
                cannot be reached for too long.
        """
        self.send_all([(producer, [frame])])

    def send_all(self, entries: Iterable[_Entries]) -> None:
        """Send entries of any producers, as ``send`` does.

        Raises:
            PulsarSparkError: As ``send``.
        """
        left = deque((producer, frames) for producer, frames in entries if frames)
        admitted: list[_Entries] = []

        def admit() -> bool:
            admitted.extend(self._admit(left))
            return bool(admitted) or not left

        while left:
            next_bytes = len(left[0][1][0].data)
            room_bytes = max(self._options.memory_limit_bytes - next_bytes, 0)
            self._settings.before_send()
            self._await(admit, room_bytes, {producer for producer, _ in left})
            self._transmit(admitted)
            admitted.clear()

    def _admit(self, left: deque[_Entries]) -> Iterator[_Entries]:
        """Take the first entries, as many as there is room for, as in flight.

        At once: whatever breaks from here on knows of them.
        """
        shared = self._shared
        while left:
            producer, frames = left[0]
            if producer.left is not None:
                left.popleft()  # whoever has the rows takes them elsewhere
                continue
            if producer in shared.resending:
                return  # behind what it sends again
            count, in_flight_bytes = self._fitting(frames)
            if not count:
                return
            pending = producer.in_flight.pending
            if not pending:
                assert producer.attachment is not None
                producer.attachment.heard_at = time.monotonic()
            pending.extend(frames[:count])
            shared.in_flight_bytes = in_flight_bytes
            yield producer, frames[:count]
            if count < len(frames):
                left[0] = producer, frames[count:]
                return
            left.popleft()

    def _fitting(self, frames: Sequence[SendFrame]) -> tuple[int, int]:
        """Return how many frames fit, and the bytes in flight with these frames."""
        most_bytes = self._options.memory_limit_bytes
        in_flight_bytes = self._shared.in_flight_bytes
        for count, frame in enumerate(frames):
            size = len(frame.data)
            if in_flight_bytes and in_flight_bytes + size > most_bytes:
                return count, in_flight_bytes
            in_flight_bytes += size
        return len(frames), in_flight_bytes

    def _transmit(self, entries: Iterable[_Entries]) -> None:
        by_connection: dict[Connection, tuple[list[bytes], set[Attachment]]] = {}
        for producer, frames_of_producer in entries:
            attachment = producer.attachment
            assert attachment is not None
            connection = attachment.connection
            if connection not in by_connection:
                by_connection[connection] = [], set()
            frames, attachments = by_connection[connection]
            frames += [frame.data for frame in frames_of_producer]
            attachments.add(attachment)
        for connection, (frames, attachments) in by_connection.items():
            try:
                connection.send_all(frames)
            except PulsarSparkError as error:
                for attachment in attachments:
                    attachment.closed(error)

    def flush(self) -> None:
        """Wait until every entry is stored.

        Raises:
            PulsarSparkError: As ``send``.
            InDoubtError: Nothing tells whether a row in chunks is whole.
        """
        self._await(lambda: self._shared.in_flight_bytes == 0, 0)
        with self._final_errors():
            for producer in self._producers.values():
                if producer.chunks.are_unsettled:
                    raise producer.half_a_row()

    def close(self) -> None:
        """Detach. Entries in flight are given up, unless they were flushed.

        Where there are some, or others may want the name or the topic next, the
        broker's answer is awaited for a while: it has then dealt with all of them.
        """
        settings, producers = self._settings, self._producers.values()
        is_shared = settings.access_mode is ProducerAccessMode.SHARED
        if self._shared.in_flight_bytes or settings.name or not is_shared:
            self._ask_to_close(producers, self._patience.close_s)
        else:
            tell_all(*self._requests_to_close(producers))
        for producer in self._producers.values():
            if producer.connection is not None:
                producer.connection.detach_producer(producer.producer_id)
        self._producers.clear()

    # -- waiting, and what has to be done meanwhile --------------------------------

    @contextlib.contextmanager
    def _final_errors(self) -> Iterator[None]:
        shared = self._shared
        try:
            if shared.fatal is not None:
                raise shared.fatal
            yield
        except PulsarSparkError as error:
            with shared.changed:
                shared.fatal = shared.fatal or error
            raise

    def _await(
        self,
        is_true: Callable[[], bool],
        awaited_bytes: int,
        wanted: Collection[TopicProducer] = (),
    ) -> None:
        """Wait for a condition, asked under the lock while nothing is broken.

        Args:
            is_true: The condition.
            awaited_bytes: In flight: with more of them it is not true.
            wanted: Producers that have something to send, or will have.
        """
        shared = self._shared
        wait, in_flight_bytes = LongWait(logger), 0
        with self._final_errors():
            while True:
                began = time.monotonic()
                again: list[_Entries] = []
                with shared.changed:
                    if shared.fatal is not None:
                        raise shared.fatal
                    if shared.in_flight_bytes != in_flight_bytes:
                        in_flight_bytes = shared.in_flight_bytes
                        wait.restart()
                    is_broken = bool(self._broken(wanted))
                    if not is_broken:
                        if is_true():
                            return
                        again = self._sent_again()
                        if not again:
                            shared.awaited_bytes = awaited_bytes
                            shared.changed.wait(self._patience.write_tick_s)
                            is_broken = bool(self._broken(wanted))
                if again:
                    self._settings.before_send()
                    self._transmit(again)
                elif is_broken:
                    self._mend(wanted)
                else:
                    self._check_silence()
                    wait.tell(
                        f"No broker acknowledges any of {in_flight_bytes} bytes that"
                        " were sent",
                        self._send_timeout_s or None,
                        "pulsar.producer.sendTimeoutMs",
                    )
                self.waited_s += time.monotonic() - began

    def _broken(
        self, wanted: Collection[TopicProducer]
    ) -> dict[TopicProducer, PulsarSparkError]:
        """Return which producers are to be attached again now, and why.

        An idle one is not, until it has something to send: however often a broker lets
        go of it, it costs nothing, and fails at nothing. Under the lock.
        """
        return {
            producer: reason
            for producer, reason in self._shared.broken.items()
            if producer.in_flight or producer in wanted
        }

    def _mend(self, wanted: Collection[TopicProducer]) -> None:
        """Attach broken producers again, and resend the entries in flight."""
        shared = self._shared
        while True:
            with shared.changed:
                if shared.fatal is not None:
                    raise shared.fatal
                broken = self._broken(wanted)
                again = [
                    reason
                    for producer, reason in broken.items()
                    if not producer.count_try()
                ]
            if not broken:
                return
            self._check_patience(broken)
            if len(again) < len(broken):
                self._retry.restart()
            if again:
                # Also where others come and go, whose problems are new each time.
                self._retry.pause(again[0])
            reason = next(iter(broken.values()))
            logger.info("attaching %d producers again after: %s", len(broken), reason)
            self.reconnects += len(broken)
            self._reattach(broken)

    def _check_patience(self, broken: Mapping[TopicProducer, PulsarSparkError]) -> None:
        """Raise for producers that get no receipt, or do not attach, for too long.

        Those that wait for their turn have a limit of their own.
        """
        limit_s = self._send_timeout_s
        long_ago = time.monotonic() - self._away_s
        for producer, error in broken.items():
            trouble = producer.trouble  # a receipt may just have ended it
            is_away = trouble.tries > 1 and trouble.began <= long_ago
            is_away = is_away and trouble.queued_at is None
            if is_away or (limit_s and trouble.waited_s >= limit_s):
                raise error

    def _reattach(self, broken: Mapping[TopicProducer, PulsarSparkError]) -> None:
        # The old attachment, where it still is one, must end before the new one begins:
        # then receipts of what it stored come first.
        self._end_attachments(broken)
        by_topic = {producer.topic: producer for producer in broken}
        self._settings.before_resend()
        on_connections: dict[Connection, list[TopicProducer]] = {}
        before = {producer: producer.registration.cluster for producer in broken}
        answers = self._attacher.attach(broken, self._retry)
        for topic, answer in answers.items():
            producer = by_topic[topic]
            if answer is None:
                logger.info("%s is sealed: its rows go to other segments", topic)
            elif not isinstance(answer, PulsarSparkError):
                if before[producer] not in (None, producer.registration.cluster):
                    self._check_move(producer, answer)
                else:
                    self._check_others(producer, answer.last_sequence_id)
                _check_version(producer, answer.schema_version)
                producer.check_damaged(answer.last_sequence_id)
                self._check_doubt(producer, answer.last_sequence_id, broken[producer])
                if self._has_to_resend(producer):
                    assert producer.connection is not None
                    on_connections.setdefault(producer.connection, []).append(producer)
            elif answer.retriable:
                producer.broke(answer)
            else:
                raise answer
        for producers in on_connections.values():
            resending = Resending(max(p.trouble.tries for p in producers))
            for producer in producers:
                producer.resend(resending)

    def _end_attachments(self, producers: Iterable[TopicProducer]) -> None:
        timeout_s = self._options.operation_timeout_s
        for connection, answer in self._ask_to_close(producers, timeout_s):
            if isinstance(answer, TransportError):
                # Then nothing of what was sent there may come true unnoticed.
                connection.close(answer)

    def _ask_to_close(
        self, producers: Iterable[TopicProducer], timeout_s: float
    ) -> list[tuple[Connection, Any]]:
        """Send CLOSE_PRODUCER for attached producers; return replies and errors."""
        connections, requests = self._requests_to_close(producers)
        answers = fan_out(connections, requests, timeout_s)
        return [(connections[topic], answer) for topic, answer in answers.items()]

    def _requests_to_close(
        self, producers: Iterable[TopicProducer]
    ) -> tuple[dict[str, Connection], dict[str, Request[pb.CommandSuccess]]]:
        """Return connection and CLOSE_PRODUCER of attached producers, by topic."""
        connections = {}
        requests = {}
        for producer in producers:
            connection = producer.connection
            if connection is not None and connection.is_open:
                connections[producer.topic] = connection
                requests[producer.topic] = commands.close_producer(producer.producer_id)
        return connections, requests

    def _check_move(
        self, producer: TopicProducer, success: pb.CommandProducerSuccess
    ) -> None:
        """Raise if the unsent entries of a topic partition cannot go elsewhere.

        What is dropped anyway may be anything; what follows it may not.
        """
        topic = producer.topic
        resends = self._settings.resend is not Resend.NEVER
        if resends and producer.chunks.are_left:
            raise InDoubtError(
                "it goes on at another cluster in the middle of a row in chunks, "
                "which would be whole in neither. The task has to run again: allow "
                "that by `spark.task.maxFailures`.",
                topic_partition=topic,
                rows=1,
            )
        is_typed = producer.schema is not None
        if is_typed and success.schema_version != producer.registration.schema_version:
            raise SchemaError(
                f"{topic} goes on at another cluster, where the schema of these rows "
                "has another version than the one that they say. The task has to run "
                "again: allow that by `spark.task.maxFailures`."
            )
        first, last = producer.sent_ids
        last_known = success.last_sequence_id
        # Copies of these, or rows of somebody else: clusters make up the same names.
        if last_known > last or (last_known >= first and resends):
            raise InDoubtError(
                "it goes on at another cluster, which has had rows of a producer "
                f"{producer.registration.name} already, and would drop these as "
                "duplicates. Leave `pulsar.producer.producerName` out, and let each "
                "cluster have another `clusterName`. The task has to run again: allow "
                "that by `spark.task.maxFailures`.",
                topic_partition=topic,
                rows=producer.in_flight.rows,
            )

    def _check_others(self, producer: TopicProducer, last_known: int) -> None:
        """Raise if another producer of this name has written in the meantime.

        The broker would drop entries of this one as duplicates of the other's.
        """
        settings, name = self._settings, producer.registration.name
        if not settings.name or settings.resend is Resend.NEVER:
            return
        before = max(producer.stored.last_id, producer.registration.last_sequence_id)
        sent = {frame.highest_sequence_id for frame in producer.in_flight}
        if last_known > before and (settings.repeats_ids or last_known not in sent):
            raise InDoubtError(
                f"while its connection was away, another producer {name!r} may have "
                "written, after which the broker drops rows of this one as duplicates. "
                "A name serves one task at a time: leave `spark.speculation` off and "
                "`pulsar.producer.producerName` out, or let no two writes that run at "
                "once have one `idempotenceId`. The task has to run again: allow that "
                "by `spark.task.maxFailures`.",
                topic_partition=producer.topic,
                rows=producer.in_flight.rows,
            )

    def _check_doubt(
        self, producer: TopicProducer, last_sequence_id: int, error: PulsarSparkError
    ) -> None:
        with self._shared.changed:
            rows = producer.in_flight.rows
            in_doubt = bool(producer.in_flight) and last_sequence_id < 0
        if in_doubt and self._settings.resend is Resend.IF_DEDUPLICATED:
            raise InDoubtError(
                f"{rows} rows of a transaction were on their way when this happened: "
                f"{error.message} Without deduplication nobody can tell which of them "
                "are stored, so the transaction is aborted and the task has to run "
                "again: allow that by `spark.task.maxFailures`, or switch "
                "deduplication on, with which tasks survive this.",
                topic_partition=producer.topic,
                rows=rows,
            )

    def _has_to_resend(self, producer: TopicProducer) -> bool:
        """Return whether there is anything without a receipt to be sent again."""
        if not producer.in_flight:
            return False
        if self._settings.resend is Resend.NEVER:
            rows = producer.drop_in_flight()
            logger.warning("%s: %d rows in flight were dropped", producer.topic, rows)
            return False
        return True

    def _sent_again(self) -> list[_Entries]:
        """Take what may be sent again now. The lock is held."""
        again = [
            (member, member.sent_again()) for member in list(self._shared.resending)
        ]
        return [(producer, frames) for producer, frames in again if frames]

    def _check_silence(self) -> None:
        """Attach again where receipts stay away, and give up in the end.

        A broker drops entries without a word while a topic moves.
        """
        limit_s, now = self._send_timeout_s, time.monotonic()
        if not limit_s:
            return
        bearable_s = limit_s / self._patience.silences
        if now - self._looked < min(self._patience.write_tick_s, bearable_s):
            return
        self._looked = now
        for producer in self._producers.values():
            attachment = producer.attachment
            with self._shared.changed:
                if not producer.in_flight.pending:
                    continue
                assert attachment is not None
                assert attachment.heard_at is not None
                silent_s = now - attachment.heard_at
                trouble = producer.trouble
                is_over = (
                    trouble.silences >= self._patience.silences - 1
                    and trouble.waited_s + silent_s >= limit_s
                )
                if not is_over and silent_s < bearable_s:
                    continue
                rows = producer.in_flight.rows
                trouble.silences += 1
            if is_over:
                raise SendTimeoutError(
                    f"{producer.topic}: the broker {attachment.connection.broker} has "
                    f"acknowledged nothing for {limit_s:g} s, though {rows} rows are "
                    "on their way to it. Raise `pulsar.producer.sendTimeoutMs` if it "
                    "is only slow.",
                    topic_partition=producer.topic,
                )
            attachment.fell_silent(silent_s)


def _check_version(producer: TopicProducer, schema_version: bytes) -> None:
    """Raise if the schema was deleted, and registered under another version.

    What has no receipt says the old one.
    """
    registered = producer.registration.schema_version
    if producer.schema is not None and schema_version != registered:
        raise SchemaError(
            f"{producer.topic}: the topic's schemas were deleted while rows were "
            "written to it, so that nobody can tell which schema these have. Write "
            "them again."
        )
