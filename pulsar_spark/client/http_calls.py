# SPDX-License-Identifier: Apache-2.0
"""A request by HTTP and its reply, with limits of time and size.

``urllib`` limits each read from a socket. A server that drips, or sends ``100
Continue`` without end, is read from for as long as that server likes. So the connection
is shut down at the deadline, by a timer, whatever the call is doing: a TLS handshake,
status line, headers or body.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import urllib.request
from dataclasses import dataclass
from typing import Any

from pulsar_spark.client.http_proxies import proxy_handler
from spark_topics.client.resolving import connect_to

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class HttpLimits:
    """How long a call may take, and how much may come.

    Attributes:
        connect_s: Longest wait for the name's address and a connection, in seconds.
        total_s: Longest wait for the whole of the call, in seconds.
        body_bytes: Most bytes of the reply's body.
        option: The option that raises ``connect_s``, for errors; "" for none.
    """

    connect_s: float
    total_s: float
    body_bytes: int
    option: str = ""


@dataclass(frozen=True)
class HttpReply:
    """A server's reply of any status, redirects included.

    Attributes:
        status: The status.
        body: The body.
        location: The header ``Location``, "" where there is none.
    """

    status: int
    body: bytes
    location: str


def call(
    request: urllib.request.Request, trust: ssl.SSLContext | None, limits: HttpLimits
) -> HttpReply:
    """Send a request over a separate connection, and return the reply.

    Args:
        request: The request.
        trust: Whom to trust by TLS; None where the URL is http.
        limits: How long to wait, and for how much.

    Raises:
        TimeoutError: The reply is not there in time.
        OSError: The server cannot be reached, or hangs up.
        http.client.HTTPException: What comes is no reply.
        ValueError: The body is longer than the limit.
    """
    with _Deadline(limits) as deadline:
        opener = urllib.request.OpenerDirector()  # that knows no other schemes
        opener.add_handler(proxy_handler(request.full_url))
        opener.add_handler(_Handler(trust, deadline))
        try:
            with opener.open(request, timeout=limits.total_s) as reply:
                body = _read_body(reply, limits.body_bytes)
                location = reply.headers.get("Location", "")
        except (OSError, http.client.HTTPException, ValueError):
            if deadline.is_over:
                raise TimeoutError from None
            raise
        # A body without a length ends where the connection does.
        if deadline.is_over:
            raise TimeoutError
        return HttpReply(reply.status, body, location)


class _Deadline:
    """Shuts down the connection of a call at the deadline."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()  # guards the two below, never for long
        self._connection: socket.socket | None = None
        self.is_over = False
        self._timer = threading.Timer(limits.total_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def connect(
        self, where: tuple[str, int], timeout_s: float, _: object
    ) -> socket.socket:
        """Open a connection, in the signature of ``http.client``."""
        limit_s = min(self._limits.connect_s, timeout_s)
        opened = connect_to(*where, limit_s, self._limits.option)
        # A limit of the socket's own would end about when the timer does, and sometimes
        # before: one call would have two errors for one fault.
        opened.settimeout(None)
        with self._lock:
            # Beside the socket that TLS takes over: both are one connection.
            self._connection = socket.socket(fileno=os.dup(opened.fileno()))
            if self.is_over:
                opened.close()
                raise TimeoutError
        return opened

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)


class _Handler(urllib.request.HTTPSHandler):
    """Opens connections that end at a deadline."""

    def __init__(self, trust: ssl.SSLContext | None, deadline: _Deadline) -> None:
        super().__init__(context=trust)
        self._trust = trust
        self._deadline = deadline

    http_request = urllib.request.HTTPSHandler.https_request

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._plain, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._encrypted, request, context=self._trust)

    def _plain(self, host: str, **settings: Any) -> http.client.HTTPConnection:
        return self._ending(http.client.HTTPConnection(host, **settings))

    def _encrypted(self, host: str, **settings: Any) -> http.client.HTTPConnection:
        return self._ending(http.client.HTTPSConnection(host, **settings))

    def _ending(
        self, connection: http.client.HTTPConnection
    ) -> http.client.HTTPConnection:
        connection._create_connection = self._deadline.connect  # type: ignore[attr-defined]
        return connection


def _read_body(reply: http.client.HTTPResponse, limit_bytes: int) -> bytes:
    parts, left = [], limit_bytes + 1
    while chunk := reply.read1(min(left, _PIECE_BYTES)):
        parts.append(chunk)
        left -= len(chunk)
        if left <= 0:
            raise ValueError("it is too long")
    return b"".join(parts)
