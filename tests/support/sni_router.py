# SPDX-License-Identifier: Apache-2.0
"""A proxy that routes TLS by the name in its first message (SNI), and opens nothing.

It has no certificate, and passes bytes on as they are: what Envoy, HAProxy or Apache
Traffic Server do in front of brokers (PIP-60)::

    with SniRouter({"broker-0.test": ("127.0.0.1", 6651)}) as router:
        connect by way of router.url
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK_BYTES = 64 * 1024
_PATIENCE_S = 60.0


class SniRouter:
    """The proxy.

    Args:
        routes: Where connections go on to, by the name that they are for.

    Attributes:
        url: ``pulsar+ssl://127.0.0.1:<port>``.
        names: The name of each connection so far; "" where there was none.
    """

    def __init__(self, routes: Mapping[str, tuple[str, int]]) -> None:
        self.routes = dict(routes)
        self.names: list[str] = []
        router = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                router._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"pulsar+ssl://127.0.0.1:{self._server.server_address[1]}"
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> SniRouter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(_PATIENCE_S)

    def _serve(self, client: socket.socket) -> None:
        hello = _first_record(client)
        name = server_name(hello)
        self.names.append(name)
        if name not in self.routes:
            return
        with (
            contextlib.suppress(OSError),
            socket.create_connection(self.routes[name], _PATIENCE_S) as broker,
        ):
            broker.settimeout(None)
            both = {client, broker}
            self._sockets |= both
            broker.sendall(hello)
            back = threading.Thread(target=_pass_on, args=(broker, client), daemon=True)
            back.start()
            _pass_on(client, broker)
            back.join(_PATIENCE_S)
            self._sockets -= both


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(_CHUNK_BYTES):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _first_record(client: socket.socket) -> bytes:
    data = b""
    size = 5
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
        if len(data) == 5:
            size = 5 + int.from_bytes(data[3:], "big")
    return data


def server_name(record: bytes) -> str:
    """Return the name in a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3), or "".

    ::

        22 3 1 | size | 1 | size | version | random | session | ciphers | compression |
        1+2+2    1+3           2         32       1+n       2+n       1+n
        size | type | size | ...           of type 0: size | 0 | size | name
        2      2      2                               2      1   2
    """
    at = 5 + 4 + 2 + 32
    for width in (1, 2, 1):
        at += width + int.from_bytes(record[at : at + width], "big")
    at += 2
    while at + 4 <= len(record):
        kind = int.from_bytes(record[at : at + 2], "big")
        size = int.from_bytes(record[at + 2 : at + 4], "big")
        if kind == 0:
            return record[at + 9 : at + 4 + size].decode("ascii")
        at += 4 + size
    return ""
