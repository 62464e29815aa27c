# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.http_calls`: no server makes a call last longer."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.http_calls import HttpLimits, call
from spark_topics.client import resolving
from tests.support.certificates import Authority
from tests.support.fixtures import open_files
from tests.support.tls_front import server_context

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = HttpLimits(connect_s=60, total_s=0.5, body_bytes=1000)
HEAD = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Accepts one connection at a time, and does what a test says with each.

    Args:
        serve: Called with each connection, and with an event that ends the server.
    """

    def __init__(self, serve: Callable[[socket.socket, threading.Event], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    self._serve(connection, self._over)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


def dripping(piece: bytes, *first: bytes) -> Callable[..., None]:
    """A server that sends something, and then pieces without end."""

    def serve(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        for data in first:
            connection.sendall(data)
        while not over.wait(0.02):
            connection.sendall(piece)

    return serve


@pytest.mark.parametrize(
    "serve",
    [
        dripping(b"x", b"HTTP/1.1 "),
        dripping(b"X-Header: x\r\n", HEAD),
        dripping(b"x", HEAD, b"X-Header: "),
        dripping(b"HTTP/1.1 100 Continue\r\n\r\n"),
        dripping(b"x", HEAD, b"Content-Length: 900\r\n\r\n"),
        dripping(b"1\r\nx\r\n", HEAD, b"Transfer-Encoding: chunked\r\n\r\n"),
        dripping(b"x", HEAD, b"\r\n"),
        dripping(b""),
    ],
    ids=[
        "status",
        "headers",
        "a header",
        "100 Continue",
        "body",
        "chunks",
        "body without a length",
        "silence",
    ],
)
def test_a_server_that_drips(serve: Callable[..., None]) -> None:
    """The call ends at its deadline, and leaves no thread and no file open."""
    with Server(serve) as server:
        threads, files = threading.active_count(), open_files()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                call(urllib.request.Request(f"http://{server.address}"), None, LIMITS)
        assert threading.active_count() == threads
        assert open_files() <= files + 1  # the connection that the server still has


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the server's certificate."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("begins", [True, False])
def test_tls_that_drips(authority: Authority, begins: bool) -> None:
    """A handshake without end, and a reply without end behind a handshake."""
    context = server_context(authority.issue("server"))

    def serve(connection: socket.socket, over: threading.Event) -> None:
        if begins:
            with context.wrap_socket(connection, server_side=True) as wrapped:
                dripping(b"x", HEAD)(wrapped, over)
        else:  # a record of TLS that says it is long
            dripping(b"\0", b"\x16\x03\x03\x40\x00")(connection, over)

    trust = ssl.create_default_context(cafile=str(authority.certificate))
    with Server(serve) as server, pytest.raises(TimeoutError):
        call(urllib.request.Request(f"https://{server.address}"), trust, LIMITS)


def test_a_name_that_nobody_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver belongs to the time for a connection; the option is named."""
    over = threading.Event()

    def ask(_host: str, flags: int = 0) -> list[str]:
        if flags:
            raise socket.gaierror
        over.wait(60)
        return []

    monkeypatch.setattr(resolving, "_ask", ask)
    limits = HttpLimits(0.1, 60, 1000, option="`some.option`")
    try:
        with pytest.raises(OSError, match="`some\\.option`") as caught:
            call(urllib.request.Request("http://a.test"), None, limits)
        cause = getattr(caught.value, "reason", caught.value)
        assert isinstance(cause, TimeoutError)
    finally:
        over.set()


@pytest.mark.parametrize(
    ("size", "fits"), [(0, True), (999, True), (1000, True), (1001, False)]
)
@pytest.mark.parametrize("has_length", [True, False])
def test_the_size_of_a_body(size: int, fits: bool, has_length: bool) -> None:
    """As many bytes as the limit, however they come; not one more."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        length = b"Content-Length: %d\r\n" % size if has_length else b""
        connection.sendall(HEAD + length + b"\r\n" + b"x" * size)

    limits = HttpLimits(60, 60, 1000)
    with Server(serve) as server:
        request = urllib.request.Request(f"http://{server.address}")
        if fits:
            assert call(request, None, limits).body == b"x" * size
        else:
            with pytest.raises(ValueError, match="too long"):
                call(request, None, limits)


@pytest.mark.parametrize("status", [200, 204, 307, 404, 500])
def test_every_status_is_a_reply(status: int) -> None:
    """Nothing is followed, and nothing is raised."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        head = b"HTTP/1.1 %d X\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head % status)

    limits = HttpLimits(60, 60, 1000)
    with Server(serve) as server:
        reply = call(urllib.request.Request(f"http://{server.address}"), None, limits)
    assert (reply.status, reply.body, reply.location) == (status, b"", "/there")
