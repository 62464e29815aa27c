# SPDX-License-Identifier: Apache-2.0
"""A producer that writes to a partition, across broken streams.

::

    open -> init, last_seq_no
    send -> requests go out, answers are paired as they come
    a stream that breaks: pause, init again, what is not answered goes out again
    close -> half-close, and the rest of the answers

Messages with a producer are stored once: what the server has, by ``last_seq_no`` or an
answer ``skipped``, is not stored again. Without one a repetition is another message.

A group is a producer, too, but not ours alone: its numbers go on from where another
writer left them. Of what had no answer when a stream broke no one knows whose numbers
the server has; so it is numbered again, and stored again rather than left out. In the
same way if it skips a message, because another client has used its number in the
meantime.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ydb_spark.client.channel import Channel
from ydb_spark.client.pauses import LAST_TRY_S, Pauses
from ydb_spark.client.stream import Stream
from ydb_spark.client.stream_token import RENEW_S, StreamToken
from ydb_spark.errors import (
    DataLossError,
    ProtocolError,
    SendTimeoutError,
    ServerError,
    TakenOverError,
    YdbError,
)
from ydb_spark.wire.writes import (
    Acked,
    Unacked,
    init_request,
    number,
    token_request,
    write_message,
)

logger = logging.getLogger("ydb_spark.client")


@dataclass(frozen=True)
class SessionSettings:
    """What a session is for.

    Attributes:
        path: Of the topic.
        producer_id: "" for none.
        is_group: Whether others write as that producer, too.
        partition: None where the server chooses.
        session_meta: What comes with each batch that a reader gets.
        timeout_s: How long to wait for an answer, and to go on without one, in seconds.
        renew_s: How often to look for a new token.
    """

    path: str
    producer_id: str = ""
    is_group: bool = False
    partition: int | None = None
    session_meta: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    renew_s: float = RENEW_S

    @property
    def is_deduplicated(self) -> bool:
        """Return whether the server deduplicates by sequence numbers."""
        return bool(self.producer_id) and not self.is_group


class WriteSession:
    """See the module.

    Args:
        channel: Where.
        settings: What for.
        explain: Makes a better error of one, where that takes another question.

    Attributes:
        acked: How messages were answered.
        reconnects: How often a stream was opened again.
        partition: If it writes, once it is open.
        partitions: Where the server says that it stored rows.
        last_seq_no: The server's highest number at the first opening.
        waited_s: How long answers were waited for, in seconds.
    """

    def __init__(
        self,
        channel: Channel,
        settings: SessionSettings,
        explain: Callable[[YdbError], YdbError] = lambda error: error,
    ) -> None:
        self._channel = channel
        self._settings = settings
        self._explain = explain
        self._pauses = Pauses(settings.timeout_s, "sendTimeoutMs")
        self._unacked = Unacked()
        self._stream: Stream | None = None
        self._session_id = ""
        self._token = StreamToken(channel, token_request, settings.renew_s)
        self._may_take_back = True
        self._left_at = time.monotonic()
        self._has_half_closed = False
        self.acked = Acked()
        self.reconnects = 0
        self.partition: int | None = None
        self.partitions: set[int] = set()
        self.codecs: tuple[int, ...] = ()
        self.last_seq_no = 0
        self.waited_s = 0.0
        self._last_number = 0

    @property
    def unacked_bytes(self) -> int:
        """Return the size of what was sent and is not answered."""
        return self._unacked.size_bytes

    @property
    def subject(self) -> str:
        """Return what errors say that this is."""
        settings = self._settings
        partition = self.partition if settings.partition is None else settings.partition
        where = settings.path if partition is None else f"{settings.path}/{partition}"
        by = f" as {settings.producer_id}" if settings.producer_id else ""
        session = f", session {self._session_id}" if self._session_id else ""
        return f"Writing to {where}{by}{session}"

    def open(self) -> None:
        """Open the session, and try again while that may help.

        Raises:
            YdbError: It is refused for good, or for ``timeout_s``.
        """
        with self._on_our_time():
            self._open()

    def send(self, request: Any) -> None:
        """Send a request, and take what answers are there.

        Args:
            request: A ``WriteRequest``, with rising numbers; those of a group are set
                here.

        Raises:
            YdbError: The session is refused for good, or there is no answer.
        """
        with self._on_our_time():
            self._open()  # which sends what is not answered, and this is not yet
            if self._settings.is_group:
                self._last_number = number(request.messages, self._last_number)
            self._unacked.add(request)
            try:
                assert self._stream is not None
                self._stream.send(write_message(request))
                self._renew_token()
                while self._take(0.0):
                    pass
            except YdbError as error:
                self._after(error)

    def wait(self, most_bytes: int) -> None:
        """Wait until no more than that is unanswered.

        Raises:
            SendTimeoutError: No answer came for too long.
            YdbError: The session is refused for good.
        """
        began = time.monotonic()
        try:
            with self._on_our_time():
                while self._unacked and (
                    self._unacked.size_bytes > most_bytes or not most_bytes
                ):
                    self._wait_once()
        finally:
            self.waited_s += time.monotonic() - began

    def close(self) -> None:
        """Wait for all answers, and end the session.

        Raises:
            YdbError: As ``wait``.
        """
        if self._stream is not None and not self._has_half_closed:
            self._has_half_closed = True
            self._stream.half_close()
        self.wait(0)
        self.cancel()

    def cancel(self) -> None:
        """End the session now. What was not answered may be stored or not."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    @contextmanager
    def _on_our_time(self) -> Iterator[None]:
        """Leave out of the deadline what passed since the last call of this."""
        self._pauses.extend(time.monotonic() - self._left_at)
        try:
            yield
        finally:
            self._left_at = time.monotonic()

    # -- One stream -------------------------------------------------------------------

    def _open(self) -> None:
        while self._stream is None:
            try:
                self._open_once()
            except YdbError as error:
                self._after(error)

    def _open_once(self) -> None:
        settings = self._settings
        self._token.begin()
        stream = self._channel.stream(
            "StreamWrite", self.subject, is_deduplicated=settings.is_deduplicated
        )
        try:
            stream.send(
                init_request(
                    settings.path,
                    settings.producer_id,
                    settings.partition,
                    settings.session_meta,
                )
            )
            response = stream.receive(max(self._pauses.remaining_s, LAST_TRY_S))
            if response is None:
                raise self._silence()
            self._begin(response)
            for request in self._unacked.requests():
                stream.send(write_message(request))
            if self._has_half_closed:
                stream.half_close()
        except BaseException:
            stream.cancel()
            raise
        self._stream = stream

    def _begin(self, response: Any) -> None:
        if response.WhichOneof("server_message") != "init_response":
            raise ProtocolError(
                f"{self.subject}: the first answer is not that to init."
            )
        begun = response.init_response
        self._session_id = begun.session_id
        partition = self._settings.partition
        if partition is not None and begun.partition_id != partition:
            raise ProtocolError(
                f"{self.subject}: the server began partition {begun.partition_id}."
            )
        is_first = self.partition is None
        self.partition = begun.partition_id
        self.codecs = tuple(begun.supported_codecs.codecs)
        if is_first:
            self.last_seq_no = begun.last_seq_no
        if self._settings.is_group:
            self._last_number = self._unacked.number(begun.last_seq_no)
        elif self._settings.producer_id:
            self._require_known(begun.last_seq_no)
            # What was sent and not answered before the stream broke, and is there.
            stored = self._unacked.drop_stored(begun.last_seq_no)
            self.acked.written += stored
            if stored:
                self.partitions.add(begun.partition_id)

    def _require_known(self, last_seq_no: int) -> None:
        """Check that the server still has the rows that were acknowledged."""
        last_known = max(self._unacked.last_answered, self.last_seq_no)
        if last_seq_no >= last_known:
            return
        path = self._settings.path
        raise DataLossError(
            f"{self.subject}: {path} had rows up to number {last_known} of this"
            f" producer, and now has rows up to {last_seq_no}. The topic was dropped"
            " and made anew while it was written to, and rows are gone with it. Run"
            " the write again.",
            topic_partition=f"{path}/{self.partition}",
            wanted=str(last_known),
            available=str(last_seq_no),
        )

    def _wait_once(self) -> None:
        self._open()
        if not self._unacked:  # the server had all that a broken stream left open
            return
        try:
            # In steps, because tokens have to be looked after, too.
            left_s = max(self._pauses.remaining_s, LAST_TRY_S)
            step_s = min(left_s, self._settings.renew_s)
            if not self._take(step_s):
                self._renew_token()
                self._require_time()
        except YdbError as error:
            self._after(error)

    def _take(self, timeout_s: float) -> bool:
        """Receive a message of the server; return whether there was any."""
        assert self._stream is not None
        response = self._stream.receive(timeout_s)
        if response is None:
            return False
        kind = response.WhichOneof("server_message")
        if kind == "write_response" and response.write_response.acks:
            self._take_acks(response.write_response)
            return True
        if kind == "update_token_response":
            self._token.answered()
        # Newer servers may say more. Whoever only talks is silent to us.
        self._require_time()
        return True

    def _take_acks(self, response: Any) -> None:
        partition = self._settings.partition
        if partition is not None and response.partition_id != partition:
            raise ProtocolError(
                f"{self.subject}: the server stored rows in partition "
                f"{response.partition_id}."
            )
        if self._settings.is_group:
            self._require_numbers(response)
        try:
            acked = self._unacked.take(response)
            if acked.written_in_tx:
                raise ProtocolError("The server keeps rows for a transaction.")
            if acked.skipped and not self._settings.is_deduplicated:
                raise ProtocolError("The server skips rows whose numbers are new.")
        except ProtocolError as error:
            raise error.about(self.subject) from None
        self.acked.add(acked)
        self.partitions.add(response.partition_id)
        self._pauses.restart()
        self._token.progressed()

    def _require_numbers(self, response: Any) -> None:
        """Check that no other writer used the numbers of a group.

        Raises:
            ServerError: They were, and nothing of the response is taken: another stream
                begins with others.
        """
        if any(ack.HasField("skipped") for ack in response.acks):
            raise ServerError(
                f"{self.subject}: the server left rows out, because somebody else has"
                " used their numbers in this message group. Let no other program write"
                " to it meanwhile.",
                status="ALREADY_WRITTEN",
                retriable=True,
            )

    def _require_time(self) -> None:
        if not self._pauses.remaining_s:
            raise self._silence()

    def _renew_token(self) -> None:
        if not self._has_half_closed:
            assert self._stream is not None
            self._token.renew(self._stream)

    def _after(self, error: YdbError) -> None:
        """End the stream; pause before the next, or give up."""
        self.cancel()
        error = self._explain(error)
        error = self._token.after(error)
        if isinstance(error, TakenOverError) and self._may_take_back:
            self._may_take_back = False
            logger.warning(
                "%s: another session of the producer began. It is taken back, once.",
                self.subject,
            )
            shortest_s, longest_s = self._channel.options.patience.take_back_s
            pause_s = random.SystemRandom().uniform(shortest_s, longest_s)
            time.sleep(min(pause_s, self._pauses.remaining_s))
            error = error.saying(error.message, retriable=True)
        self._pauses.pause(error)
        self.reconnects += 1
        logger.debug("opening again after: %s", error)

    def _silence(self) -> SendTimeoutError:
        return SendTimeoutError(
            f"{self.subject}: {len(self._unacked)} rows have no answer after"
            f" {self._settings.timeout_s:g} s, and may be stored or not. Look at the"
            " server and at the topic's write quota, or raise `sendTimeoutMs`."
        )
