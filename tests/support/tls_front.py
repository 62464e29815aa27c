# SPDX-License-Identifier: Apache-2.0
"""A server in this process that ends TLS, and passes what was in it on as plain text.

In front of a scripted broker it makes that one a broker with TLS; in front of several,
by the name that a client asks for, it is what a proxy does that routes by SNI::

    with ScriptedBroker() as broker, TlsFront(broker.address, server) as front:
        connect(front.address, tls_client_options(front.address, ...))
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from tests.support.waiting import join

if TYPE_CHECKING:
    from tests.support.certificates import Authority, Pair

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


def server_context(server: Pair, clients: Authority | None = None) -> ssl.SSLContext:
    """What a server begins with.

    Args:
        server: What it shows.
        clients: Who must have signed its clients; None: nobody is asked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    if clients is not None:
        context.load_verify_locations(clients.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsFront:
    """The server; a thread for each connection.

    Args:
        target: ``host:port`` that connections go on to.
        context: What it shows and asks for; see `server_context`.

    Attributes:
        address: ``host:port``.
        url: The same with ``pulsar+ssl://``.
        names: The names that clients asked for; None where they did not.
        failures: Handshakes that failed.
        accepted: Connections so far.
    """

    def __init__(self, target: str, context: ssl.SSLContext) -> None:
        self.target = target
        self.context = context
        self.names: list[str | None] = []
        self.failures: list[Exception] = []
        self.accepted = 0
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"{LOOPBACK}:{self.port}"
        self.url = f"pulsar+ssl://{self.address}"
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> TlsFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, and wait until it has ended."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            join(thread, "a TLS front")

    def cut(self) -> None:
        """End all connections without TLS's farewell."""
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, run: object, *given: object) -> None:
        thread = threading.Thread(
            target=run,  # type: ignore[arg-type]
            args=given,
            name="tls-front",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._start(self._serve, sock)

    def _serve(self, plain: socket.socket) -> None:
        sock: socket.socket = plain
        with contextlib.ExitStack() as stack:
            try:
                self.context.sni_callback = self._note_name
                sock.settimeout(60)
                sock = self.context.wrap_socket(plain, server_side=True)
                stack.enter_context(sock)
            except (OSError, ValueError) as error:
                self.failures.append(error)
                plain.close()
                return
            try:
                host, _, port = self.target.rpartition(":")
                broker = socket.create_connection((host, int(port)), 60)
            except OSError:
                return
            stack.enter_context(broker)
            self._sockets |= {sock, broker}
            try:
                with contextlib.suppress(OSError, ValueError):  # it was closed
                    self._pump(sock, broker)
            finally:
                self._sockets -= {sock, broker}

    def _note_name(self, _: object, name: str | None, __: object) -> None:
        self.names.append(name)

    def _pump(self, client: ssl.SSLSocket, broker: socket.socket) -> None:
        client.settimeout(60)
        while True:
            ready: list[socket.socket] = [client] if client.pending() else []
            if not ready:
                ready, _, _ = select.select([client, broker], [], [])
            for one in ready:
                data = one.recv(CHUNK_BYTES)
                if not data:
                    with contextlib.suppress(OSError):
                        client.unwrap()
                    return
                (broker if one is client else client).sendall(data)
