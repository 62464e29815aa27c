# SPDX-License-Identifier: Apache-2.0
"""A link with latency between clients and a broker, by a small program in C.

::

    link = DelayedLink()
    with link, EmbeddedBroker(link=link) as broker:
        link.delay(10)    # ms each way: a round trip takes 20
        read(link.url)

Bytes are delivered in order, each ``delay`` after its arrival, at more than 1 GB/s
where there is no delay. A connection itself is opened without delay. What is under way
in one direction of a connection is bounded as by a TCP window.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from pulsar_spark.testing.processes import LOOPBACK, free_ports

SOURCE = Path(__file__).with_name("delayed_link.c")

#: More than a fast link has under way, so that only the delay shows.
_WINDOW_BYTES = 256 << 20


@functools.cache
def _program() -> Path:
    """Compile the program, once in a process."""
    program = Path(tempfile.mkdtemp(prefix="delayed-link-"), "delayed_link")
    subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
    return program


class DelayedLink:
    """Passes bytes to a broker and back, later.

    Args:
        window_bytes: Most bytes under way in one direction of a connection.

    Attributes:
        url: For clients.
        target: Host and port of the broker.
    """

    def __init__(self, window_bytes: int = _WINDOW_BYTES) -> None:
        (self._port,) = free_ports(1)
        self.url = f"pulsar://{LOOPBACK}:{self._port}"
        self.target = (LOOPBACK, 0)
        self._window_bytes = window_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DelayedLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def delay(self, one_way_ms: float) -> None:
        """Begin anew with a delay; connections that are open end."""
        self.close()
        numbers = (self._port, self.target[1], int(one_way_ms * 1000))
        self._process = subprocess.Popen(
            [_program(), *map(str, (*numbers, self._window_bytes))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        """End the program and all connections."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()
