# SPDX-License-Identifier: Apache-2.0
"""A range of a partition, read over any number of streams.

A stream that breaks is opened again at the next offset, so a message comes once. Credit
goes back to the server when its messages are out of hand: what is on its way never has
more bytes than ``credit_bytes`` and one message.

Nothing in a stream tells the topic from another that was made by its name in the
meantime. So
it is described once the server has begun a stream: if it is the topic of the plan then,
it was so when the stream was opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

from ydb_spark.client.channel import Channel
from ydb_spark.client.pauses import LAST_TRY_S, Pauses
from ydb_spark.client.stream import Stream
from ydb_spark.client.stream_token import RENEW_S, StreamToken
from ydb_spark.client.topics import describe_topic
from ydb_spark.errors import DataLossError, ReadTimeoutError, YdbError
from ydb_spark.wire.reads import MessageBatch, RangeSession

logger = logging.getLogger("ydb_spark.client")

#: After `Patience.ask_s` of silence the server is asked how far it is. After so many
#: such silences there is a new stream, which is given twice the time.
_ASKS = 3


class RangeReader:
    """See the module.

    Args:
        channel: Where.
        path: Of the topic.
        partition: Which one.
        start: Offset of the first message.
        end: Offset after the last.
        credit_bytes: How much the server may send ahead.
        timeout_s: How long to go on without a message, in seconds.
        is_strict: Whether an offset without a message is an error.
        created: What tells the topic from another of its name, as ``TopicInfo`` has it;
            "" for any topic.
        read_from_ms: Leaves out what was stored before, in milliseconds since 1970.
        renew_s: How often to look for a new token, in seconds.

    Attributes:
        reconnects: How often a stream was opened again.
        waited_s: How long messages were waited for, in seconds.
    """

    def __init__(
        self,
        channel: Channel,
        path: str,
        partition: int,
        start: int,
        end: int,
        *,
        credit_bytes: int,
        timeout_s: float,
        is_strict: bool,
        created: str = "",
        read_from_ms: int | None = None,
        renew_s: float = RENEW_S,
    ) -> None:
        self._channel = channel
        self._path = path
        self._created = created
        self._is_strict = is_strict
        self._session = RangeSession(
            path,
            partition,
            start,
            end,
            credit_bytes,
            is_strict=is_strict,
            read_from_ms=read_from_ms,
        )
        self._subject = f"Reading {self._session.name} from {start} to {end - 1}"
        self._pauses = Pauses(timeout_s, "pollTimeoutMs")
        self._token = StreamToken(channel, RangeSession.token_request, renew_s)
        ask_s = channel.options.patience.ask_s
        self._first_step_s = self._step_s = min(ask_s, timeout_s / (_ASKS + 1))
        self.reconnects = 0
        self.waited_s = 0.0

    def batches(self) -> Generator[list[MessageBatch], None, None]:
        """Yield messages, in order. Their credit goes back when the next are asked for.

        Raises:
            DataLossError: Messages are gone, or the topic is another one.
            ReadTimeoutError: Nothing came for too long.
            YdbError: The server refuses for good.
        """
        self._pauses.restart()
        while not self._session.is_done:
            try:
                yield from self._stream()
            except YdbError as error:
                self._pauses.pause(self._token.after(error))
                self.reconnects += 1
                logger.debug("reading again after: %s", error)

    def _stream(self) -> Generator[list[MessageBatch], None, None]:
        session = self._session
        self._token.begin()
        stream = self._channel.stream("StreamRead", self._subject, is_deduplicated=True)
        quiet_since = time.monotonic()
        is_known = False
        try:
            for request in session.begin():
                stream.send(request)
            while not session.is_done:
                # Messages are on their way by now, and none was taken.
                if session.has_begun and not is_known:
                    self._require_same_topic()
                    is_known = True
                    continue
                batches, size = self._take(stream)
                if batches:
                    self._progressed()
                    yield batches
                    # The time of who took them is not ours.
                    quiet_since = time.monotonic()
                    self._pauses.restart()
                elif self._is_too_long(time.monotonic() - quiet_since):
                    raise self._silence()
                if size and not session.is_done:
                    stream.send(session.give_back(size))
        finally:
            stream.cancel()

    def _take(self, stream: Stream) -> tuple[list[MessageBatch], int]:
        """Receive a message of the server, if there is any.

        Returns:
            The messages in it that are wanted, and the credit that they took.
        """
        self._token.renew(stream)
        began = time.monotonic()
        left_s = max(self._pauses.remaining_s, LAST_TRY_S)
        response = stream.receive(min(self._step_s, left_s))
        self.waited_s += time.monotonic() - began
        if response is None:
            batches: list[MessageBatch] = []
            requests, size = self._session.ask_how_far(), 0
        else:
            batches, requests, size = self._session.take(response)
            if response.WhichOneof("server_message") == "update_token_response":
                self._token.answered()
        for request in requests:
            stream.send(request)
        return batches, size

    def _require_same_topic(self) -> None:
        """Check that the topic is that of the plan; if not, there is no more to read.

        Raises:
            DataLossError: It was dropped and made again, and that is an error.
            YdbError: There is no topic of that name any more, or no answer.
        """
        if not self._created:
            return
        session = self._session
        description = describe_topic(self._channel, self._path, with_offsets=False)
        if not description.is_another(self._created):
            return
        problem = (
            f"{self._subject}: {self._path} was dropped and made anew since that was"
            f" planned, and the messages from {session.position} on are gone with it."
        )
        if self._is_strict:
            raise DataLossError(
                f"{problem} failOnDataLoss=false goes on without them.",
                topic_partition=session.name,
                wanted=self._created,
                available=description.created,
            )
        logger.warning("%s", problem)
        session.is_done = True

    def _progressed(self) -> None:
        self._token.progressed()
        self._step_s = self._first_step_s

    def _is_too_long(self, quiet_s: float) -> bool:
        return quiet_s >= _ASKS * self._step_s or not self._pauses.remaining_s

    def _silence(self) -> ReadTimeoutError:
        self._step_s *= 2
        return ReadTimeoutError(
            f"{self._subject}: nothing comes at offset {self._session.position}.",
            topic_partition=self._session.name,
            retriable=True,
        )
