# SPDX-License-Identifier: Apache-2.0
"""The SDK's driver: endpoints, credentials, calls and streams.

gRPC does not survive a fork: a child of a process that used it hangs, with a driver of
its own, too. Spark forks its workers before they import this, so there a driver is made
in the worker, kept for its further tasks, and closed at its end. Whoever brings one
over a fork gets an error instead of a hang.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc
import ydb

from spark_topics.client.retry import Retry
from spark_topics.errors import foreign_text
from ydb_spark.errors import (
    AuthError,
    ForkError,
    OptionError,
    ServerError,
    TlsError,
    TransportError,
    YdbError,
)
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.wire import statuses
from ydb_spark.wire.stubs import TopicServiceStub

logger = logging.getLogger("ydb_spark.client")

_T = TypeVar("_T")

#: Without one of its own a stream ends after the SDK's ten minutes.
_STREAM_LIFE_S = 7 * 24 * 60 * 60

#: How long the first answer of the cluster may take.
_READY_S = 10.0

#: How long a call waits for one answer.
_CALL_S = 20.0

#: What is tried at the very end of the time has as long.
LAST_TRY_S = 1.0

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


class Pauses:
    """The time for one operation, and the pauses between its tries.

    They begin at 50 ms, or at half a second where the server is overloaded, and double
    up to 10 s.

    Args:
        timeout_s: How long to go on without progress.
        option: The option that sets it.
    """

    def __init__(self, timeout_s: float, option: str) -> None:
        self._fast = Retry(0.05, 10.0, timeout_s, option)
        self._slow = Retry(0.5, 10.0, timeout_s, option)

    @property
    def remaining_s(self) -> float:
        """Return what is left of the time, in seconds."""
        return self._fast.remaining_s

    def restart(self) -> None:
        """Begin again with all of it: there was progress."""
        self._fast.restart()
        self._slow.restart()

    def pause(self, error: YdbError) -> None:
        """Wait before the next try.

        Raises:
            YdbError: ``error``, where it is final or the time is over.
        """
        is_slow = isinstance(error, ServerError) and error.is_slow
        (self._slow if is_slow else self._fast).pause(error)


class _End:
    """The server ended a stream with OK."""


class Stream:
    """One stream of requests and answers.

    A thread of its own takes the answers, so that waiting for one can have a deadline.

    Args:
        subject: What errors say that it was for.
        is_deduplicated: Whether a repetition of its requests does no harm.
    """

    def __init__(self, subject: str, *, is_deduplicated: bool) -> None:
        self._subject = subject
        self._is_deduplicated = is_deduplicated
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call: Any = None

    def open(self, channel: Channel, method: str) -> None:
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
            answer = self._answers.get(timeout=max(timeout_s, 0.0))
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
        """End it now. What was sent may be done or not."""
        self._requests.put(None)
        if self._call is not None:
            self._call.cancel()

    def _take(self) -> None:
        try:
            for answer in self._call:
                self._answers.put(answer)
            self._answers.put(_End())
        except Exception as error:
            code = getattr(self._call, "code", None)
            self._answers.put(_error_of(error, self._subject, code() if code else None))


class Channel:
    """One cluster, as this process reaches it.

    Args:
        options: How.

    Raises:
        YdbError: As ``ready``.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._pid = os.getpid()
        self._credentials: Any = None
        config = ydb.DriverConfig(
            options.endpoint,
            options.database,
            root_certificates=_certificates(options),
            disable_discovery=options.disable_discovery,
        )
        self._credentials = config.credentials = _credentials(options, config)
        self._driver = ydb.Driver(config)
        self._is_ready = False

    def stream(
        self, method: str, subject: str, *, is_deduplicated: bool = False
    ) -> Stream:
        """Open a stream of the topic service.

        Args:
            method: ``StreamWrite`` or ``StreamRead``.
            subject: What errors say that it is for.
            is_deduplicated: Whether a repetition of its requests does no harm.

        Raises:
            YdbError: The cluster cannot be reached, or lets nobody in.
        """
        self.ready()
        stream = Stream(subject, is_deduplicated=is_deduplicated)
        try:
            stream.open(self, method)
        except ydb.Error as error:
            raise _error_of(error, subject, None) from None
        return stream

    def start(self, method: str, requests: Iterator[Any]) -> Any:
        """Begin a call of the SDK's driver that is a stream."""
        settings = ydb.BaseRequestSettings().with_timeout(_STREAM_LIFE_S)
        return self._driver(requests, TopicServiceStub, method, settings=settings)

    def call(self, method: str, request: Any, subject: str, result: _T) -> _T:
        """Call the topic service, and again while that may help.

        Args:
            method: Of the service.
            request: Its request.
            subject: What errors say that it is for.
            result: A message to put the result into.

        Raises:
            YdbError: It is refused, or no answer came within ``operationTimeoutMs``.
        """
        pauses = Pauses(self.options.operation_timeout_s, "operationTimeoutMs")
        while True:
            try:
                self.ready(pauses.remaining_s)
                return self._call_once(method, request, subject, result, pauses)
            except YdbError as error:
                pauses.pause(error)

    def _call_once(
        self, method: str, request: Any, subject: str, result: _T, pauses: Pauses
    ) -> _T:
        timeout_s = max(min(_CALL_S, pauses.remaining_s), LAST_TRY_S)
        settings = ydb.BaseRequestSettings().with_timeout(timeout_s)
        try:
            response = self._driver(
                request, TopicServiceStub, method, settings=settings
            )
        except ydb.Error as error:
            cause = error.__context__
            code = cause.code() if isinstance(cause, grpc.Call) else None
            raise _error_of(error, subject, code) from None
        operation = response.operation
        if operation.status != statuses.SUCCESS:
            raise statuses.server_error(
                operation.status,
                statuses.issues_text(operation.issues),
                subject,
                is_deduplicated=True,  # these calls only ask, or say where one is
            )
        operation.result.Unpack(result)
        return result

    def token(self) -> str:
        """Return the token of here and now; "" where there is none.

        Raises:
            YdbError: It cannot be had.
        """
        if self._credentials is None:
            return ""
        try:
            return str(self._credentials.get_auth_token())
        except ydb.Error as error:
            raise self._login_error(error) from None

    def ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until the cluster was reached, the first time.

        Raises:
            TransportError: It cannot be.
            AuthError: It lets nobody in who comes like this.
            ForkError: This process was forked from the one that made this.
        """
        if os.getpid() != self._pid:
            raise ForkError(
                "This process was forked from one that had used gRPC, which would hang"
                " here. Do nothing with topics of YDB in a process that forks others:"
                " Spark's workers do, each by itself."
            )
        if self._is_ready:
            return
        self.token()
        try:
            self._driver.wait(min(timeout_s, _READY_S), fail_fast=True)
        except Exception as error:
            raise self._unreachable(error) from None
        self._is_ready = True

    def close(self) -> None:
        """Close the driver."""
        if os.getpid() == self._pid:
            self._driver.stop(timeout=5)

    def _unreachable(self, error: Exception) -> YdbError:
        details = foreign_text(self._driver.discovery_debug_details() or str(error))
        where = f"{self.options.endpoint}, database {self.options.database}"
        if "unauth" in details.lower() or "Access denied" in details:
            return AuthError(
                f"{where} lets nobody in with this token: {details}.",
                status="UNAUTHORIZED",
            )
        if self.options.is_encrypted and _is_of_tls(details):
            return TlsError(
                f"{where}: no safe connection: {details}. ca names the authorities that"
                " the server's certificate may be of.",
                broker=self.options.endpoint,
            )
        return TransportError(
            f"{where} cannot be reached: {details}.", broker=self.options.endpoint
        )

    def _login_error(self, error: ydb.Error) -> YdbError:
        text = foreign_text(str(error))
        where = f"Logging in to {self.options.endpoint}"
        if any(word in text.lower() for word in ("unauth", "400020", "password")):
            return AuthError(f"{where} is refused: {text}", status="UNAUTHORIZED")
        return TransportError(
            f"{where} did not work: {text}", broker=self.options.endpoint
        )


def _is_of_tls(text: str) -> bool:
    return any(word in text for word in ("SSL", "TLS", "certificate", "Handshak"))


def _certificates(options: ConnectionOptions) -> bytes | None:
    if not options.is_encrypted:
        return None
    if options.ca is not None:
        return options.ca.read().encode()
    return bytes(ydb.load_ydb_root_certificate())


class _Token(ydb.Credentials):
    """A token, read anew where it is given by a file or variable."""

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._secret = options.token

    def auth_metadata(self) -> list[tuple[str, str]]:
        assert self._secret is not None
        return [("x-ydb-auth-ticket", self._secret.read())]


def _credentials(options: ConnectionOptions, config: ydb.DriverConfig) -> Any:
    """Return the SDK's credentials; None for nobody's."""
    if options.token is not None:
        return _Token(options)
    if options.login is not None:
        assert options.password is not None
        return ydb.StaticCredentials(  # type: ignore[no-untyped-call]
            config, options.login, options.password.read()
        )
    if options.sakey is not None:
        return _service_account(options.sakey.read())
    if options.use_metadata:
        return ydb.iam.MetadataUrlCredentials()
    if options.use_env:
        return ydb.credentials_from_env_variables()
    return None


def _service_account(key: str) -> Any:
    try:
        return ydb.iam.ServiceAccountCredentials.from_content(key)
    except Exception as error:  # its text may show the key
        raise OptionError(
            f"auth.sakey cannot be used: {type(error).__name__}. It must be the JSON of"
            " a service account's authorized key, and needs the extra ydb[yc]:"
            " pip install 'ydb[yc]'."
        ) from None


def _error_of(error: Exception, subject: str, code: grpc.StatusCode | None) -> YdbError:
    """Return our error for one of gRPC or of the SDK."""
    text = foreign_text(str(error))
    if code is grpc.StatusCode.UNAUTHENTICATED or isinstance(
        error, ydb.issues.Unauthenticated
    ):
        return AuthError(
            f"{subject}: the server lets nobody in with this token: {text}.",
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


_shared: dict[ConnectionOptions, Channel] = {}
_owner = os.getpid()
_lock = threading.Lock()


def shared_channel(options: ConnectionOptions) -> Channel:
    """Return the channel that all tasks of this process use with these options.

    Raises:
        ForkError: The process that this one was forked from has one.
    """
    global _owner
    if _owner != os.getpid():
        if _shared:
            next(iter(_shared.values())).ready()
        _owner = os.getpid()
    with _lock:
        channel = _shared.get(options)
        if channel is None:
            channel = _shared[options] = Channel(options)
        return channel


def close_shared() -> None:
    """Close all channels of this process."""
    with _lock:
        channels = list(_shared.values())
        _shared.clear()
    for channel in channels:
        channel.close()


atexit.register(close_shared)
