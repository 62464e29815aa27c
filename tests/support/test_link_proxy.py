# SPDX-License-Identifier: Apache-2.0
"""The proxy does to connections what a test asked for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.link_proxy import LinkProxy
from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(one: socket.socket) -> None:
            with one, contextlib.suppress(OSError):
                while data := one.recv(65536):
                    one.sendall(data)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = server.accept()
                    threading.Thread(target=serve, args=(one,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        join(thread, "accepting")


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[LinkProxy]:
    """A proxy in front of the echo server."""
    with LinkProxy(*echo) as proxy:
        yield proxy


def connect(proxy: LinkProxy) -> socket.socket:
    """A client's connection to the proxy."""
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)


def exchange(client: socket.socket, data: bytes) -> bytes:
    """Send and read until as much came back, or the connection ended."""
    sender = threading.Thread(target=_send, args=(client, data))
    sender.start()
    got = bytearray()
    with contextlib.suppress(ConnectionError):
        while len(got) < len(data) and (chunk := client.recv(65536)):
            got += chunk
    join(sender, "sending")
    return bytes(got)


def _send(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        client.sendall(data)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true within seconds."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_passes_and_counts(proxy: LinkProxy) -> None:
    """All bytes arrive in order, on many connections at once, and are counted."""
    data = bytes(range(256)) * 4096
    clients = [connect(proxy) for _ in range(4)]
    assert eventually(lambda: len(proxy.broker_sides) == 4)
    for client in clients:
        with client:
            assert exchange(client, data) == data
    assert eventually(lambda: proxy.live == 0)
    assert proxy.counters.accepted == 4
    assert proxy.counters.up_bytes == proxy.counters.down_bytes == 4 * len(data)
    assert proxy.counters.cut == 0


def test_half_closed(proxy: LinkProxy) -> None:
    """The end of one direction is passed on and leaves the other one open."""
    with connect(proxy) as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := client.recv(100):
            got += chunk
        assert got == b"last words"


def test_stall_and_resume(proxy: LinkProxy) -> None:
    """A stalled proxy accepts and keeps silent; afterwards nothing is missing."""
    with connect(proxy) as old:
        assert exchange(old, b"one") == b"one"
        proxy.stall()
        with connect(proxy) as new:
            for client in (old, new):
                client.sendall(b"two")
                client.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    client.recv(10)
                client.settimeout(60)
            proxy.pass_through()
            assert old.recv(10) == new.recv(10) == b"two"


@pytest.mark.parametrize("reset", [True, False])
def test_cut_all(proxy: LinkProxy, reset: bool) -> None:
    """Live connections end at once, with RST or FIN; a new one is served."""
    with connect(proxy) as client:
        assert exchange(client, b"x") == b"x"
        assert proxy.cut_all(reset=reset) == 1
        if reset:
            with pytest.raises(ConnectionResetError):
                client.recv(10)
        else:
            assert client.recv(10) == b""
    with connect(proxy) as client:
        assert exchange(client, b"y") == b"y"
    assert proxy.counters.cut == 1


def test_cut_every(proxy: LinkProxy) -> None:
    """Connections end after a number of bytes within the range, repeatably."""

    def lengths() -> list[int]:
        proxy.cut_every((1000, 50_000), seed=7)
        passed = []
        for _ in range(10):
            before = proxy.counters.up_bytes + proxy.counters.down_bytes
            with connect(proxy) as client:
                exchange(client, bytes(200_000))
            passed.append(proxy.counters.up_bytes + proxy.counters.down_bytes - before)
        return passed

    first = lengths()
    assert all(1000 <= length <= 50_000 for length in first)
    assert len(set(first)) > 5
    assert first == lengths()
    proxy.pass_through()
    with connect(proxy) as client:
        assert exchange(client, bytes(200_000)) == bytes(200_000)


def test_slow(proxy: LinkProxy) -> None:
    """Passing data takes no less than the rate says."""
    proxy.slow(100_000)
    began = time.monotonic()
    with connect(proxy) as client:
        assert exchange(client, bytes(30_000)) == bytes(30_000)
    assert time.monotonic() - began > 0.2


def test_stop_and_start(proxy: LinkProxy) -> None:
    """A stopped proxy refuses connections; started, it listens on the same port."""
    with connect(proxy) as client:
        assert exchange(client, b"x") == b"x"
        proxy.stop()
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.start()
    with connect(proxy) as client:
        assert exchange(client, b"y") == b"y"


def test_target_down(proxy: LinkProxy) -> None:
    """Without a target a connection is reset, and the proxy survives."""
    up = proxy.target
    with socket.create_server(("127.0.0.1", 0)) as gone:
        proxy.target = gone.getsockname()
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(10)
    proxy.target = up
    with connect(proxy) as client:
        assert exchange(client, b"y") == b"y"
