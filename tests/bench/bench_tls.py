# SPDX-License-Identifier: Apache-2.0
"""Bytes through TLS in both directions, beside Python's ssl sockets and plain TCP.

The other side is a process of its own. What is compared is the processor's time of this
one, in which a task has decoding to do, besides.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsar_spark.options import TlsOptions
from pulsar_spark.options.tls import NETWORK
from spark_topics.client.tls import Tls
from spark_topics.client.tls_context import context as context_of
from spark_topics.client.transport import Transport, open_transport
from tests.bench.cluster import ROOT
from tests.bench.report import Case, cpu, in_turns
from tests.support.certificates import Authority, Pair
from tests.support.tls_front import server_context

_SIZE_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20
_BUFFER_BYTES = 64 << 10
_ROW_BYTES = 100


def run(repeats: int, size_bytes: int = _SIZE_BYTES) -> list[Case]:
    """What is received, then what is sent."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server = authority.issue("server")
        trusted = TlsOptions(trust_certificates_path=str(authority.certificate))
        tls = Tls(trusted, "127.0.0.1")
        return [
            *_cases(
                "receive", _receive, _receive_alone, server, tls, repeats, size_bytes
            ),
            *_cases("send", _send, _send_alone, server, tls, repeats, size_bytes),
        ]


def _cases(
    what: str,
    ours: Callable[[Transport, int], None],
    alone: Callable[[socket.socket, int], None],
    server: Pair,
    tls: Tls,
    repeats: int,
    size_bytes: int,
) -> list[Case]:
    def of_tls() -> None:
        with (
            _peer(what, size_bytes, server) as address,
            _open(address, tls) as transport,
        ):
            measured["tls"] = cpu(lambda: ours(transport, size_bytes))()

    def of_tcp() -> None:
        with _peer(what, size_bytes) as address, _open(address) as transport:
            measured["tcp"] = cpu(lambda: ours(transport, size_bytes))()

    def of_sockets() -> None:
        context = context_of(tls.options)
        with _peer(what, size_bytes, server) as address:
            host, _, port = address.rpartition(":")
            with (
                socket.create_connection((host, int(port)), 60) as plain,
                context.wrap_socket(plain, server_hostname=host) as sock,
            ):
                measured["ssl"] = cpu(lambda: alone(sock, size_bytes))()

    measured: dict[str, float] = {}

    def measure(name: str, work: Callable[[], None]) -> Callable[[], float]:
        def once() -> float:
            work()  # with handshakes and processes, which do not count
            return measured[name]

        return once

    seconds = in_turns(
        {
            "ssl": measure("ssl", of_sockets),
            "tls": measure("tls", of_tls),
            "tcp": measure("tcp", of_tcp),
        },
        max(repeats, 5),
    )
    rows = size_bytes // _ROW_BYTES
    return [
        Case(
            "tls",
            f"{what}, CPU",
            rows,
            size_bytes,
            seconds["tls"],
            "ssl sockets alone",
            seconds["ssl"],
            0.8,
        ),
        Case(
            "tls",
            f"{what}, CPU",
            rows,
            size_bytes,
            seconds["tls"],
            "plain TCP",
            seconds["tcp"],
        ),
    ]


@contextmanager
def _open(address: str, tls: Tls | None = None) -> Iterator[Transport]:
    transport = open_transport(address, 60, NETWORK, tls)
    try:
        yield transport
    finally:
        transport.shutdown()
        transport.close()


def _receive(transport: Transport, size_bytes: int) -> None:
    room = memoryview(bytearray(_BUFFER_BYTES))
    left = size_bytes
    while left > 0:
        left -= transport.receive(room, 60)


def _receive_alone(sock: socket.socket, size_bytes: int) -> None:
    room = memoryview(bytearray(_BUFFER_BYTES))
    left = size_bytes
    while left > 0:
        left -= sock.recv_into(room)


def _send(transport: Transport, size_bytes: int) -> None:
    block = os.urandom(_BLOCK_BYTES)
    for _ in range(size_bytes // _BLOCK_BYTES):
        transport.send(block)


def _send_alone(sock: socket.socket, size_bytes: int) -> None:
    block = os.urandom(_BLOCK_BYTES)
    for _ in range(size_bytes // _BLOCK_BYTES):
        sock.sendall(block)


# -- the other side --------------------------------------------------------------------


@contextmanager
def _peer(what: str, size_bytes: int, server: Pair | None = None) -> Iterator[str]:
    """A process that sends, or receives, as much as is measured."""
    command = [sys.executable, "-m", __name__, what, str(size_bytes)]
    if server is not None:
        command += [str(server.certificate), str(server.key)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _main(what: str, size_bytes: str, *pair: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("{}:{}".format(*listener.getsockname()), flush=True)
        sock, _ = listener.accept()
        if pair:
            certificate, key = map(Path, pair)
            context: ssl.SSLContext = server_context(Pair(certificate, key))
            sock = context.wrap_socket(sock, server_side=True)
        work = _send_alone if what == "receive" else _receive_alone
        work(sock, int(size_bytes))
        sock.recv(1)  # until the other side has all of it


if __name__ == "__main__":
    _main(*sys.argv[1:])
