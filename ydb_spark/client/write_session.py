# SPDX-License-Identifier: Apache-2.0
"""One producer that writes to one partition, whatever happens to its streams.

::

    open -> init, last_seq_no
    send -> requests go out, answers are paired as they come
    a stream that breaks: pause, init again, what is not answered goes out again
    close -> half-close, and the rest of the answers

Messages with a producer are stored once: what the server has, by ``last_seq_no`` or an
answer ``skipped``, is not stored again. Without one a repetition is another message.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ydb_spark.client.channel import LAST_TRY_S, Channel, Pauses, Stream
from ydb_spark.errors import (
    AuthError,
    ProtocolError,
    SendTimeoutError,
    TakenOverError,
    YdbError,
)
from ydb_spark.wire.writes import (
    Acked,
    Unacked,
    init_request,
    token_request,
    write_message,
)

logger = logging.getLogger("ydb_spark.client")

#: How often to look whether there is a new token.
RENEW_S = 60.0

#: How long to wait before a producer is taken back, once: from and to, in seconds. As
#: two attempts of a task wait differently long, one of them is done meanwhile, or has
#: ended the other for good.
_TAKE_BACK_S = (0.5, 3.0)


@dataclass(frozen=True)
class SessionSettings:
    """What a session is for.

    Attributes:
        path: Of the topic.
        producer_id: "" for none.
        partition: None where the server chooses.
        session_meta: What comes with each batch that a reader gets.
        timeout_s: How long to wait for an answer, and to go on without one, in seconds.
        renew_s: How often to look for a new token.
    """

    path: str
    producer_id: str = ""
    partition: int | None = None
    session_meta: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    renew_s: float = RENEW_S


class WriteSession:
    """See the module.

    Args:
        channel: Where.
        settings: What for.
        explain: Makes a better error of one, where that takes another question.

    Attributes:
        acked: How messages were answered.
        reconnects: How often a stream was opened again.
        partition: Where it writes, once it is open.
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
        self._token = ""
        self._look_at = 0.0
        self._is_renewing = False
        self._may_renew_by_opening = True
        self._may_take_back = True
        self._has_half_closed = False
        self.acked = Acked()
        self.reconnects = 0
        self.partition: int | None = None
        self.codecs: tuple[int, ...] = ()
        self.last_seq_no = 0
        self.waited_s = 0.0

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
        while self._stream is None:
            try:
                self._open_once()
            except YdbError as error:
                self._after(error)

    def send(self, request: Any) -> None:
        """Send a request, and take what answers are there.

        Args:
            request: A ``WriteRequest``, with rising numbers.

        Raises:
            YdbError: The session is refused for good, or there is no answer.
        """
        self.open()  # which sends what is not answered, and this is not yet
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

    # -- One stream -------------------------------------------------------------------

    def _open_once(self) -> None:
        settings = self._settings
        stream = self._channel.stream(
            "StreamWrite", self.subject, is_deduplicated=bool(settings.producer_id)
        )
        self._token = self._channel.token()
        self._look_at = time.monotonic() + settings.renew_s
        self._is_renewing = False
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
        is_first = self.partition is None
        self.partition = begun.partition_id
        self.codecs = tuple(begun.supported_codecs.codecs)
        if is_first:
            self.last_seq_no = begun.last_seq_no
        if self._settings.producer_id:
            # What was sent and not answered before the stream broke, and is there.
            self.acked.written += self._unacked.drop_stored(begun.last_seq_no)

    def _wait_once(self) -> None:
        self.open()
        if not self._unacked:  # the server had all that a broken stream left open
            return
        try:
            # In steps, because tokens have to be looked after, too.
            left_s = max(self._pauses.remaining_s, LAST_TRY_S)
            step_s = min(left_s, self._settings.renew_s)
            if not self._take(step_s):
                if not self._pauses.remaining_s:
                    raise self._silence()
                self._renew_token()
        except YdbError as error:
            self._after(error)

    def _take(self, timeout_s: float) -> bool:
        """Take one message of the server; return whether there was one."""
        assert self._stream is not None
        response = self._stream.receive(timeout_s)
        if response is None:
            return False
        kind = response.WhichOneof("server_message")
        if kind == "write_response":
            try:
                acked = self._unacked.take(response.write_response)
            except ProtocolError as error:
                raise error.about(self.subject) from None
            self.acked.add(acked)
            if acked.messages:
                self._pauses.restart()
                self._may_renew_by_opening = True
        elif kind == "update_token_response":
            self._is_renewing = False
        # Newer servers may say more.
        return True

    def _renew_token(self) -> None:
        if time.monotonic() < self._look_at or self._is_renewing:
            return
        self._look_at = time.monotonic() + self._settings.renew_s
        token = self._channel.token()
        if token and token != self._token and not self._has_half_closed:
            assert self._stream is not None
            self._token = token
            self._is_renewing = True
            self._stream.send(token_request(token))

    def _after(self, error: YdbError) -> None:
        """End the stream, and pause before another one, or give up."""
        self.cancel()
        error = self._explain(error)
        if isinstance(error, AuthError) and self._may_renew_by_opening and self._token:
            # A token that has run out: the next stream begins with one of then.
            self._may_renew_by_opening = False
            error = error.saying(error.message, retriable=True)
        if isinstance(error, TakenOverError) and self._may_take_back:
            self._may_take_back = False
            logger.warning(
                "%s: another session of the producer began. It is taken back, once.",
                self.subject,
            )
            time.sleep(min(random.uniform(*_TAKE_BACK_S), self._pauses.remaining_s))
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
