# SPDX-License-Identifier: Apache-2.0
"""Streams of the service, and what gRPC and the SDK say that went wrong."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

from spark_topics.errors import foreign_text
from ydb_spark.errors import AuthError, TransportError, YdbError
from ydb_spark.sdk import grpc, ydb
from ydb_spark.wire import statuses

#: As many answers wait for us. For more the server waits, as gRPC has no room then.
_WAITING_ANSWERS = 16

#: How often a thread that has an answer too many looks whether anybody wants it.
_LOOK_S = 0.5

#: gRPC's statuses after which the same may succeed.
_RETRIABLE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
    }
)


class _End:
    """The server ended a stream with OK."""


class Stream:
    """A stream of requests and responses.

    its own thread takes the answers, so that waiting for one can have a deadline.

    Args:
        subject: What errors say that it was for.
        is_deduplicated: Whether a repetition of its requests does no harm.
        cure: What to do where we are let in no more, as a sentence.
    """

    def __init__(
        self, subject: str, *, is_deduplicated: bool = False, cure: str = ""
    ) -> None:
        self._subject = subject
        self._is_deduplicated = is_deduplicated
        self._cure = cure
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.Queue[Any] = queue.Queue(_WAITING_ANSWERS)
        self._is_cancelled = False
        self._call: Any = None

    def open(self, channel: Any, method: str) -> None:
        """Begin. Called once, by the channel."""
        self._call = channel.start(method, iter(self._requests.get, None))
        threading.Thread(target=self._take, name=f"ydb {method}", daemon=True).start()

    def send(self, request: Any) -> None:
        """Let a request go out. It does not wait."""
        self._requests.put(request)

    def half_close(self) -> None:
        """Send no more; what was sent is still answered."""
        self._requests.put(None)

    def receive(self, timeout_s: float) -> Any:
        """Wait for the next message of the server.

        Returns:
            The message; None where none came in time.

        Raises:
            YdbError: The stream is over. A refusal is the error of its status; an end
                without one is a TransportError.
        """
        try:
            # Of a queue that has one it asks no clock.
            answer = self._answers.get(timeout_s > 0, timeout_s)
        except queue.Empty:
            return None
        if isinstance(answer, YdbError):
            raise answer
        if isinstance(answer, _End):
            raise TransportError(f"{self._subject}: the server ended the stream.")
        if answer.status not in (statuses.SUCCESS, 0) or (
            answer.status == 0 and answer.WhichOneof("server_message") is None
        ):
            raise statuses.server_error(
                answer.status,
                statuses.issues_text(answer.issues),
                self._subject,
                is_deduplicated=self._is_deduplicated,
            )
        return answer

    def cancel(self) -> None:
        """Cancel the stream at once. What was sent may be done or not."""
        self._is_cancelled = True
        self._requests.put(None)
        if self._call is not None:
            self._call.cancel()

    def _take(self) -> None:
        try:
            for answer in self._call:
                self._put(answer)
            self._put(_End())
        except Exception as error:
            code = getattr(self._call, "code", None)
            code = code() if code else None
            self._put(error_of(error, self._subject, code, self._cure))

    def _put(self, answer: Any) -> None:
        is_put = False
        while not is_put and not self._is_cancelled:
            with contextlib.suppress(queue.Full):
                self._answers.put(answer, timeout=_LOOK_S)
                is_put = True


def error_of(
    error: Exception, subject: str, code: grpc.StatusCode | None, cure: str = ""
) -> YdbError:
    """Return our error for an error of gRPC or of the SDK.

    Args:
        error: The SDK's.
        subject: What was asked for.
        code: gRPC's status, where there is one.
        cure: What to do where we are let in no more, as a sentence.
    """
    text = foreign_text(str(error))
    if code is grpc.StatusCode.UNAUTHENTICATED or isinstance(
        error, ydb.issues.Unauthenticated
    ):
        return AuthError(
            f"{subject}: the server lets nobody in like this: {text}. {cure}".rstrip(),
            status="UNAUTHENTICATED",
        )
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return AuthError(f"{subject}: {text}.", status="PERMISSION_DENIED")
    if code is not None and code is not grpc.StatusCode.OK:
        return TransportError(
            f"{subject}: {text} ({code.name}).", retriable=code in _RETRIABLE
        )
    number = int(getattr(error, "status", None) or 0)
    if number in statuses.STATUSES:
        return statuses.server_error(number, text, subject)
    # The SDK's own, such as that no endpoint can be reached just now.
    is_final = isinstance(
        error, ydb.issues.Unimplemented | ydb.issues.UnexpectedGrpcMessage
    )
    return TransportError(f"{subject}: {text}.", retriable=not is_final)
