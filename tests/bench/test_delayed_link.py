# SPDX-License-Identifier: Apache-2.0
"""The link with latency delivers each byte, in order, and not before its time."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import threading
import time

import pytest

from tests.bench.delayed_link import DelayedLink

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def echo(listener: socket.socket) -> None:
    """Sends back what comes, of one connection after the other."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)


@pytest.mark.parametrize("window_bytes", [1 << 28, 100_000])
def test_bytes_come_whole_and_late(window_bytes: int) -> None:
    """Also where less may be under way than is sent, and after a new delay."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        DelayedLink(window_bytes) as link,
    ):
        thread = threading.Thread(target=echo, args=(listener,))
        thread.start()
        link.target = listener.getsockname()
        port = int(link.url.rpartition(":")[2])
        for delay_ms in (0, 20):
            link.delay(delay_ms)
            data = os.urandom(3_000_000)
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                sender = threading.Thread(target=client.sendall, args=(data,))
                sender.start()
                received = hashlib.sha256()
                left = len(data)
                while left:
                    part = client.recv(1 << 16)
                    assert part, f"the link ended with {left} bytes to come"
                    received.update(part)
                    left -= len(part)
                sender.join(60)
            assert received.digest() == hashlib.sha256(data).digest()
            assert time.monotonic() - began >= 2 * delay_ms / 1000
        link.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert not thread.is_alive()
