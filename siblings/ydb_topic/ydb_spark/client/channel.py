# SPDX-License-Identifier: Apache-2.0
"""The SDK's driver: endpoints, credentials, calls and streams.

gRPC does not survive a fork: a child of a process that used it hangs, with a driver of
its own, too. Spark forks its workers before they import this, so there a driver is made
in the worker, kept for its further tasks, and closed at its end. Anyone who brings one
over a fork gets an error instead of a hang.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from spark_topics.errors import foreign_text
from ydb_spark.client.credentials import Credentials
from ydb_spark.client.diagnosis import diagnose, require_certificates
from ydb_spark.client.pauses import LAST_TRY_S, Pauses
from ydb_spark.client.stream import Stream, error_of
from ydb_spark.errors import (
    AuthError,
    ForkError,
    ProtocolError,
    TransportError,
    YdbError,
)
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.sdk import TopicServiceStub, grpc, ydb
from ydb_spark.wire import statuses

_T = TypeVar("_T", bound=Any)

#: Without one of its own a stream ends after the SDK's ten minutes.
_STREAM_LIFE_S = 7 * 24 * 60 * 60


class Channel:
    """The channel of this process to a cluster.

    Args:
        options: How.

    Raises:
        YdbError: As ``ready``.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._patience = options.patience
        self._pid = os.getpid()
        self._roots = _certificates(options)
        config = ydb.DriverConfig(
            options.endpoint,
            options.database,
            root_certificates=self._roots,
            disable_discovery=options.disable_discovery,
        )
        self._credentials = config.credentials = Credentials(options, config)
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
            YdbError: The cluster cannot be reached, or lets no one in.
        """
        self.ready()
        stream = Stream(
            subject, is_deduplicated=is_deduplicated, cure=self._credentials.cure
        )
        try:
            stream.open(self, method)
        except ydb.Error as error:
            raise error_of(error, subject, None) from None
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
        pauses = self.pauses()
        may_log_in = True
        while True:
            try:
                self.ready(pauses.remaining_s)
                return self._call_once(method, request, subject, result, pauses)
            except YdbError as error:
                if isinstance(error, AuthError) and may_log_in and self.forget_login():
                    may_log_in = False
                else:
                    pauses.pause(error)

    def pauses(self) -> Pauses:
        """Return the time budget of a call, with the pauses between tries."""
        return Pauses(self.options.operation_timeout_s, "operationTimeoutMs")

    def _call_once(
        self, method: str, request: Any, subject: str, result: _T, pauses: Pauses
    ) -> _T:
        timeout_s = max(min(self._patience.call_s, pauses.remaining_s), LAST_TRY_S)
        settings = ydb.BaseRequestSettings().with_timeout(timeout_s)
        try:
            response = self._driver(
                request, TopicServiceStub, method, settings=settings
            )
        except ydb.Error as error:
            cause = error.__context__
            code = cause.code() if isinstance(cause, grpc.Call) else None
            raise error_of(error, subject, code, self._credentials.cure) from None
        operation = response.operation
        if operation.status != statuses.SUCCESS:
            raise statuses.server_error(
                operation.status,
                statuses.issues_text(operation.issues),
                subject,
                is_deduplicated=True,  # these calls only ask, or say where one is
            )
        # A result without fields may be left out.
        if not operation.result.Unpack(result) and result.DESCRIPTOR.fields:
            raise ProtocolError(f"{subject}: the answer is of another call.")
        return result

    def token(self) -> str:
        """Return the token of here and now; "" where there is none.

        Raises:
            YdbError: It cannot be had.
        """
        return self._credentials.token()

    def forget_login(self) -> bool:
        """Make the next call log in again.

        Returns:
            Whether it will: not if there was no login, as with a token that was given.
        """
        return self._credentials.forget()

    def ready(self, timeout_s: float = math.inf) -> None:
        """Wait until the cluster is reached for the first time.

        Raises:
            TransportError: It cannot be reached.
            AuthError: It does not accept these credentials.
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
        deadline = time.monotonic() + min(timeout_s, self._patience.ready_s)
        try:
            self._await_driver(self._patience.look_s, deadline)
        except Exception as error:
            problem = self._refusal() or diagnose(self.options, self._roots)
            if problem is not None:
                raise problem from None
            self._await_longer(deadline, error)
        self._is_ready = True

    def _await_driver(self, timeout_s: float, deadline: float) -> None:
        left_s = max(deadline - time.monotonic(), 0.0)
        self._driver.wait(min(timeout_s, left_s), fail_fast=True)

    def _await_longer(self, deadline: float, first: Exception) -> None:
        try:
            self._await_driver(math.inf, deadline)
        except Exception as error:
            text = self._details or foreign_text(str(error) or str(first))
            raise self._refusal() or TransportError(
                f"{self._where} cannot be used: {text}. Look"
                " at database; where the cluster lists endpoints that cannot be reached"
                " from here, disableDiscovery=true uses the one in url alone.",
                broker=self.options.endpoint,
            ) from None

    def close(self) -> None:
        """Close the driver."""
        if os.getpid() == self._pid:
            self._driver.stop(timeout=self._patience.stop_s)

    @property
    def _where(self) -> str:
        return f"{self.options.endpoint}, database {self.options.database}"

    @property
    def _details(self) -> str:
        """Return the SDK's report on connection attempts."""
        return foreign_text(self._driver.discovery_debug_details() or "")

    def _refusal(self) -> AuthError | None:
        details = self._details
        if "unauth" not in details.lower() and "Access denied" not in details:
            return None
        return AuthError(
            f"{self._where} lets nobody in like this: {details}."
            f" {self._credentials.cure}",
            status="UNAUTHENTICATED",
        )


def _certificates(options: ConnectionOptions) -> bytes | None:
    """Return the authorities to trust, as PEM; None for a connection in plain."""
    if not options.is_encrypted:
        return None
    if options.ca is None:
        # Those that a variable of the SDK names, or else those that it brings.
        named = ydb.load_ydb_root_certificate()
        return bytes(named or ydb.default_pem.load_default_pem())  # type: ignore[no-untyped-call]
    roots = options.ca.read().encode()
    require_certificates(roots)
    return roots


_shared: dict[ConnectionOptions, Channel] = {}
_owner = os.getpid()
_lock = threading.Lock()


def shared_channel(options: ConnectionOptions) -> Channel:
    """Return the channel that tasks of this process share for these options.

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
