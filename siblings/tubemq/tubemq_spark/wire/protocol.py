# SPDX-License-Identifier: Apache-2.0
"""A connection as a value: bytes in, events out, nothing blocks.

Requests get serial numbers, and replies find them. A server answers the requests of a
connection one after another, but not each of them: one that it cannot read, or whose
time is over when it is its turn, is passed over in silence. So each has a deadline, and
a reply to one that no one waits for is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from spark_topics.loops.memory import new_bytes
from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire.frames import MAX_FRAME_BYTES, FrameReader, encode_frame
from tubemq_spark.wire.messages import SUCCESS, Request
from tubemq_spark.wire.rpc import Failure, decode_reply, encode_request, parse

_SERIALS = 2**31


@dataclass(frozen=True, slots=True)
class Reply:
    """A request was answered, perhaps by an error code.

    Attributes:
        serial: Which one.
        body: The reply's own message, or its bytes, by the type that was asked for.
    """

    serial: int
    body: Message | memoryview


@dataclass(frozen=True, slots=True)
class Thrown:
    """A request ended in an exception of the server.

    Attributes:
        serial: Which one.
        failure: The text.
    """

    serial: int
    failure: Failure


Event = Reply | Thrown


class ClientProtocol:
    """The client's side of a connection.

    Args:
        first_serial: Where serial numbers begin; they start over after 2**31 - 1.
        max_frame_bytes: Most bytes that a reply may have.
        new_buffer: As `FrameReader`.

    Attributes:
        frames: How many have come whole, be they for someone or not.
    """

    def __init__(
        self,
        first_serial: int = 1,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        new_buffer: Callable[[int], memoryview] = new_bytes,
    ) -> None:
        self.frames = 0
        self._reader = FrameReader(max_frame_bytes, new_buffer)
        self._serial = first_serial - 1
        self._waiting: dict[int, tuple[Request[Any], float]] = {}
        self._failure: ProtocolError | None = None

    def request(
        self, request: Request[Any], timeout_ms: int, deadline: float
    ) -> tuple[int, bytes]:
        """Return the serial number of a request and the frame to send.

        Args:
            request: What to ask.
            timeout_ms: After how many milliseconds the server need not answer it.
            deadline: When to give it up, on the caller's clock.
        """
        while (serial := (self._serial + 1) % _SERIALS) in self._waiting:
            self._serial = serial
        self._serial = serial
        payload = encode_request(
            request.method, request.service, timeout_ms, request.body
        )
        frame = encode_frame(serial, payload)
        self._waiting[serial] = request, deadline
        return serial, frame

    def forget(self, serial: int) -> bool:
        """Stop waiting for a reply; return whether the reply was expected."""
        return self._waiting.pop(serial, None) is not None

    def expired(self, now: float) -> list[int]:
        """Forget the requests whose deadline is over, and return their numbers."""
        # In the order they were sent in, but each may have its own deadline.
        late = [n for n, (_, deadline) in self._waiting.items() if deadline <= now]
        for serial in late:
            del self._waiting[serial]
        return late

    @property
    def waiting(self) -> int:
        """Return how many requests have no answer yet."""
        return len(self._waiting)

    def receive_data(self, data: bytes | memoryview) -> Iterator[Event]:
        """Take bytes that have arrived.

        Yields:
            What they mean, in order.

        Raises:
            ProtocolError: No TubeMQ server sends this. The connection is of no more
                use: every later call raises the same.
        """
        if self._failure is not None:
            raise self._failure
        self._reader.receive_data(data)
        return self._events()

    def _events(self) -> Iterator[Event]:
        try:
            while (frame := self._reader.next_frame()) is not None:
                self.frames += 1
                if (event := self._event(frame.serial, frame.payload)) is not None:
                    yield event
        except ProtocolError as error:
            self._failure = error
            raise

    def _event(self, serial: int, payload: bytes | memoryview) -> Event | None:
        outcome = decode_reply(payload)
        if serial not in self._waiting:
            return None
        request, _ = self._waiting[serial]
        if isinstance(outcome, Failure):
            del self._waiting[serial]
            return Thrown(serial, outcome)
        if outcome.method != request.method:
            raise ProtocolError(
                f"Method {request.method} ({request.name}) was answered by method "
                f"{outcome.method}."
            )
        body = memoryview(outcome.data)
        if request.reply_type is not memoryview:
            body = parse(request.reply_type(), body)
            check(body, request)
        del self._waiting[serial]
        return Reply(serial, body)


def check(body: Any, request: Request[Any]) -> None:
    """Check that a reply has the required fields.

    Raises:
        ProtocolError: It does not.
    """
    if not body.HasField("errCode"):
        raise ProtocolError(f"The answer to {request.name} has no errCode.")
    if body.errCode != SUCCESS:
        return
    for name in request.needs:
        if not body.HasField(name):
            raise ProtocolError(f"The answer to {request.name} has no {name}.")
