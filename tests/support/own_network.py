# SPDX-License-Identifier: Apache-2.0
"""A network of its own for servers that cannot be told where to listen.

::

    test ── host:port ──▶ this process ── 127.0.0.1:port over there ──▶ server

The ports are opened before this process moves to a network namespace of its own, so
that they stay where the tests are; what it connects to afterwards is in there. Whoever
starts a server enters that namespace by ``nsenter --net=/proc/<pid>/ns/net``. The
numbers are the same on both sides: addresses that servers tell their clients hold for
all.

Its arguments are such addresses of this machine. It needs the right to make a
namespace, and prints "ready".
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import subprocess
import sys
import threading

LOOPBACK = "127.0.0.1"
CLONE_NEWNET = 0x40000000
READ_BYTES = 256 * 1024


def main(addresses: list[str]) -> None:
    """Forward connections until the process is ended."""
    hosts = [address.partition(":")[0] for address in addresses]
    ports = [int(address.partition(":")[2]) for address in addresses]
    listeners = [
        socket.create_server(where, backlog=64)
        for where in zip(hosts, ports, strict=True)
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for listener, port in zip(listeners, ports, strict=True):
        threading.Thread(target=accept, args=(listener, port)).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def accept(listener: socket.socket, port: int) -> None:
    """Take connections, each with a partner in the other network."""
    while True:
        near, _ = listener.accept()
        try:
            far = socket.create_connection((LOOPBACK, port))
        except OSError:
            # As close to a refusal as can be: a reset.
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0" + bytes(4))
            near.close()
            continue
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Send on what comes, and then its end."""
    with contextlib.suppress(OSError):
        while data := source.recv(READ_BYTES):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    # The sockets are freed with the last thread that has them.


if __name__ == "__main__":
    main(sys.argv[1:])
