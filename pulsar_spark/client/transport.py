# SPDX-License-Identifier: Apache-2.0
"""TCP to a server; the one place where the system's errors become ours.

TLS belongs here, too: `open_transport` is where a wrapped socket would be made.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from typing import Protocol

from pulsar_spark.errors import TransportError

#: A peer that takes nothing for this long is as good as gone, in seconds.
SEND_TIMEOUT_S = 60.0


class Transport(Protocol):
    """A stream of bytes in both directions."""

    def send(self, data: bytes) -> None:
        """Send all of it. Raises TransportError."""

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive into the buffer; return how much, 0 after ``timeout_s``.

        Raises:
            TransportError: The connection broke, or the other side closed it.
        """

    def shutdown(self) -> None:
        """End both directions; threads inside of the calls above come back."""

    def close(self) -> None:
        """Free the socket, silently. Only when no other thread is inside."""


class TcpTransport:
    """A plain TCP connection.

    Args:
        sock: A connected socket.
        peer: ``host:port``, for messages.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._socket = sock
        self._peer = peer
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Reading and writing happen in different threads with different limits, and
        # a socket object has but one timeout: so the receiver waits in poll.
        sock.settimeout(SEND_TIMEOUT_S)
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        with _as_transport_error(self._peer):
            self._socket.sendall(data)

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """See `Transport`."""
        with _as_transport_error(self._peer):
            if not self._readable.poll(timeout_s * 1000):
                return 0
            size = self._socket.recv_into(buffer)
        if not size:
            raise TransportError(
                f"The broker {self._peer} closed the connection.", broker=self._peer
            )
        return size

    def shutdown(self) -> None:
        """End both directions; other threads inside come back."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. No other thread may be inside."""
        # Apart from shutdown: the system gives the number of a closed socket to the
        # next one at once, so a thread still inside of a call could reach that one.
        self._socket.close()


def open_transport(address: str, timeout_s: float) -> Transport:
    """Connect to ``host:port``.

    Raises:
        TransportError: The name does not resolve, nobody listens, or there is no
            answer within ``timeout_s`` seconds.
    """
    host, _, port = address.rpartition(":")
    try:
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        try:
            return TcpTransport(sock, address)
        except BaseException:  # macOS refuses options of a socket that was reset
            sock.close()
            raise
    except (OSError, ValueError, OverflowError) as error:  # no host, or no port
        raise TransportError(
            f"The broker {address} cannot be reached: {_reason(error)}. Check "
            "`service.url` and the address that the broker advertises, and that it is "
            "up and can be reached from where Spark's tasks run.",
            broker=address,
        ) from error


@contextlib.contextmanager
def _as_transport_error(peer: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: the socket is closed already
        raise TransportError(
            f"The connection to the broker {peer} failed: {_reason(error)}.",
            broker=peer,
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
