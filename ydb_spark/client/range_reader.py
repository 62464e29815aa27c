# SPDX-License-Identifier: Apache-2.0
"""One range of one partition, read over as many streams as it takes.

A stream that breaks is opened again at the next offset, so a message comes once. Credit
goes back to the server when its messages are out of hand: what is on its way never has
more bytes than ``credit_bytes`` and one message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

from ydb_spark.client.channel import Channel, Pauses
from ydb_spark.errors import ReadTimeoutError, YdbError
from ydb_spark.wire.reads import MessageBatch, RangeSession

logger = logging.getLogger("ydb_spark.client")

#: Where nothing comes for as long, the server is asked how far it is, and after three
#: times as long there is a new stream.
_ASK_S = 5.0
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
        read_from_ms: Leaves out what was stored before, in milliseconds since 1970.

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
        read_from_ms: int | None = None,
    ) -> None:
        self._channel = channel
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
        self._timeout_s = timeout_s
        self._pauses = Pauses(timeout_s, "pollTimeoutMs")
        self.reconnects = 0
        self.waited_s = 0.0

    def batches(self) -> Generator[list[MessageBatch], None, None]:
        """Yield messages, in order. Their credit goes back when the next are asked for.

        Raises:
            DataLossError: Messages are gone.
            ReadTimeoutError: Nothing came for too long.
            YdbError: The server refuses for good.
        """
        while not self._session.is_done:
            try:
                yield from self._stream()
            except YdbError as error:
                self._pauses.pause(error)
                self.reconnects += 1
                logger.debug("reading again after: %s", error)

    def _stream(self) -> Generator[list[MessageBatch], None, None]:
        session = self._session
        stream = self._channel.stream("StreamRead", self._subject, is_deduplicated=True)
        step_s = min(_ASK_S, self._timeout_s / (_ASKS + 1))
        quiet_since = time.monotonic()
        try:
            for request in session.begin():
                stream.send(request)
            while not session.is_done:
                began = time.monotonic()
                response = stream.receive(step_s)
                self.waited_s += time.monotonic() - began
                batches: list[MessageBatch] = []
                size = 0
                if response is None:
                    requests = session.ask_how_far()
                else:
                    batches, requests, size = session.take(response)
                is_quiet = time.monotonic() - quiet_since >= _ASKS * step_s
                if is_quiet and not batches:
                    raise self._silence()
                for request in requests:
                    stream.send(request)
                if batches:
                    yield batches
                    # The time of who took them is not ours.
                    quiet_since = time.monotonic()
                    self._pauses.restart()
                if size and not session.is_done:
                    stream.send(session.give_back(size))
        finally:
            stream.cancel()

    def _silence(self) -> ReadTimeoutError:
        return ReadTimeoutError(
            f"{self._subject}: nothing comes at offset {self._session.position}.",
            topic_partition=self._session.name,
            retriable=True,
        )
