# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import transport as module
from pulsar_spark.client.transport import Transport, open_transport
from pulsar_spark.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port where connections are accepted."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


@pytest.fixture
def ends(listener: socket.socket) -> Iterator[tuple[Transport, socket.socket]]:
    """A transport and the other end of it."""
    transport = open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60)
    peer, _ = listener.accept()
    with peer:
        yield transport, peer
    transport.shutdown()
    transport.close()


def test_bytes_pass_in_both_directions(ends: tuple[Transport, socket.socket]) -> None:
    """What one end sends, the other receives; nothing within the time is 0."""
    transport, peer = ends
    buffer = bytearray(100)
    assert transport.receive(memoryview(buffer), 0.01) == 0
    transport.send(b"up")
    assert peer.recv(10) == b"up"
    peer.sendall(b"down")
    assert transport.receive(memoryview(buffer)[10:], 60) == 4
    assert bytes(buffer).strip(b"\0") == b"down"


def test_a_peer_that_takes_nothing_is_given_up(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stands still must not hold a writer for ever."""
    monkeypatch.setattr(module, "SEND_TIMEOUT_S", 0.05)
    transport = open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60)
    peer, _ = listener.accept()
    outcome: list[TransportError] = []

    def send() -> None:
        try:
            transport.send(bytes(64 << 20))  # more than sockets take in
        except TransportError as error:
            outcome.append(error)

    thread = threading.Thread(target=send, daemon=True)
    with peer:
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "still waits for a peer that takes nothing"
    transport.shutdown()
    transport.close()
    assert "timed out" in str(outcome[0])


def test_an_end_of_the_stream_is_an_error(
    ends: tuple[Transport, socket.socket],
) -> None:
    """A broker that closes the connection is named."""
    transport, peer = ends
    peer.close()
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:\d+ closed the connection"):
        transport.receive(memoryview(bytearray(9)), 60)


def test_shutdown_wakes_who_receives(ends: tuple[Transport, socket.socket]) -> None:
    """A thread that waits for bytes comes back with an error, and does so at once."""
    transport, _ = ends
    errors: list[BaseException] = []

    def receive() -> None:
        try:
            transport.receive(memoryview(bytearray(9)), 60)
        except TransportError as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    transport.shutdown()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_a_closed_transport_gives_transport_errors(
    ends: tuple[Transport, socket.socket],
) -> None:
    """Late calls fail as any other on a broken connection."""
    transport, _ = ends
    transport.shutdown()
    transport.close()
    transport.shutdown()
    with pytest.raises(TransportError):
        transport.send(b"late")
    with pytest.raises(TransportError):
        transport.receive(memoryview(bytearray(9)), 1)


def test_nobody_listens(listener: socket.socket) -> None:
    """The error names the address, the reason and the option, and may be retried."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(TransportError, match="refused") as caught:
        open_transport(address, 60)
    assert address in str(caught.value)
    assert "service.url" in str(caught.value)
    assert caught.value.retriable
    assert caught.value.broker == address


@pytest.mark.parametrize(
    "address",
    ["a..b:6650", f"{'x' * 70}.invalid:6650", "127.0.0.1:1180591620717411303424"],
)
def test_a_name_that_cannot_be_one(address: str) -> None:
    """Names that no resolver takes, and ports, are as unreachable as others."""
    with pytest.raises(TransportError, match="cannot be reached"):
        open_transport(address, 60)


def test_an_ipv6_address_stands_in_brackets() -> None:
    """The brackets of a URL are not part of the address."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        transport = open_transport(f"[::1]:{listener.getsockname()[1]}", 60)
        listener.settimeout(60)
        peer, _ = listener.accept()
        with peer:
            transport.send(b"up")
            assert peer.recv(10) == b"up"
        transport.close()


def test_a_connection_that_is_reset_at_once(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems then refuse to set options of its socket."""
    made: list[socket.socket] = []
    connect = socket.create_connection

    class Reset(socket.socket):
        def setsockopt(self, *_: object) -> None:  # type: ignore[override]
            raise OSError(22, "Invalid argument")

    def connect_and_be_reset(*given: Any) -> socket.socket:
        made.append(Reset(fileno=connect(*given).detach()))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", connect_and_be_reset)
    with pytest.raises(TransportError, match="Invalid argument"):
        open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60)
    assert made[0].fileno() == -1
