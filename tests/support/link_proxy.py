# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy on loopback that misbehaves on demand, for fault tests.

``LinkProxy`` passes bytes between clients and a broker. At any moment a test can make
it stall, slow down, cut connections now or after a random number of bytes, or refuse
connections.

No way around it: a Pulsar client asks for the address of a topic's broker and connects
there, so a proxy in front of the service URL alone could be left behind. A broker on
loopback happens to answer ``proxy_through_service_url``, which makes clients stay with
the service URL, but that is a courtesy. ``EmbeddedBroker(link=proxy)`` makes it
certain: the broker opens a second listener, the proxy's target, and tells clients of
that listener the proxy's address as its own. ``tests/broker/test_embedded_broker.py``
holds this with the official client. The broker's first listener, ``service_url``, stays
as it is, so one broker serves tests with and without faults.

::

    proxy = LinkProxy()
    with proxy, EmbeddedBroker(link=proxy) as broker:
        read(proxy.url)             # everything goes through the proxy
        write(broker.service_url)   # nothing does
"""

from __future__ import annotations

import contextlib
import queue
import random
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 64 * 1024

#: Closing a socket with this option sends RST instead of FIN.
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass
class Counters:
    """What went through a proxy so far.

    Attributes:
        accepted: Connections that clients opened.
        cut: Connections that the proxy ended.
        up_bytes: Bytes passed from clients to the broker.
        down_bytes: Bytes passed from the broker to clients.
    """

    accepted: int = 0
    cut: int = 0
    up_bytes: int = 0
    down_bytes: int = 0


@dataclass(eq=False)
class _Pipe:
    """One direction of a connection."""

    source: socket.socket
    sink: socket.socket
    up: bool
    pending: memoryview = field(default_factory=lambda: memoryview(b""))
    ended: bool = False
    not_before: float = 0.0


@dataclass(eq=False)
class _Connection:
    pipes: tuple[_Pipe, _Pipe]
    budget_bytes: int | None = None  # until the cut that cut_every asked for

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        return self.pipes[0].source, self.pipes[0].sink


class LinkProxy:
    """A proxy between clients and one broker; one thread does all the work.

    Every method may be called from any thread, and its effect is there when it returns.

    Args:
        target_host: Where the broker listens.
        target_port: Its port, 0 if it is not known yet (see ``target``).

    Attributes:
        port: Where the proxy listens; the same for its whole life.
        url: ``pulsar://127.0.0.1:<port>``.
        counters: What went through.
    """

    def __init__(self, target_host: str = LOOPBACK, target_port: int = 0) -> None:
        self.target = (target_host, target_port)
        self.counters = Counters()
        # Bound, not listening, until start: nobody else gets the port.
        self._listener = _bound(0)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: list[_Connection] = []
        self._stalled = False
        self._rate: float | None = None
        self._cut_range: tuple[int, int] | None = None
        self._random = random.Random(0)
        self._pause: float | None = None  # until a slow pipe may go on
        self._closing = False
        self._listening = False
        self._thread = threading.Thread(
            target=self._run, name="link-proxy", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Service URL of the proxy."""
        return f"pulsar://{LOOPBACK}:{self.port}"

    @property
    def broker_sides(self) -> set[int]:
        """The ports by which the broker knows the connections that are open now."""
        ports = set()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it ends just now
                ports.add(connection.sockets[1].getsockname()[1])
        return ports

    @property
    def live(self) -> int:
        """Number of connections that are open now."""
        return len(self._connections)

    # -- what a test asks for ----------------------------------------------------------

    def start(self) -> None:
        """Listen. Once after construction, and again after ``stop``: the same port."""
        self._do(self._start)

    def stop(self) -> None:
        """Cut all connections and refuse new ones, as a broker that is down does."""
        self._do(self._stop)

    def pass_through(self) -> None:
        """Behave: end stalling, slowness and random cuts."""
        self._do(self._pass_through)

    def stall(self) -> None:
        """Keep connections open and accept new ones, but pass nothing any more."""
        self._do(lambda: setattr(self, "_stalled", True))

    def slow(self, bytes_per_s: float) -> None:
        """Pass at most that much, for each connection and direction."""
        self._do(lambda: setattr(self, "_rate", bytes_per_s))

    def cut_all(self, *, reset: bool = True) -> int:
        """Close all connections now. New ones are welcome.

        Args:
            reset: With RST, as a crash does; else with FIN.

        Returns:
            How many connections were cut.
        """
        cut: list[int] = []
        self._do(lambda: cut.append(self._cut_all(reset)))
        return cut[0]

    def cut_every(self, bytes_range: tuple[int, int], seed: int = 0) -> None:
        """Cut each connection after a random number of bytes, until told otherwise.

        The count includes both directions and ends anywhere inside a frame; half of the
        cuts are RST, half FIN. Connections that are open now get a count, too.

        Args:
            bytes_range: Smallest and largest count, both included.
            seed: Of the random numbers.
        """

        def set_range() -> None:
            self._cut_range = bytes_range
            self._random.seed(seed)
            for connection in self._connections:
                connection.budget_bytes = self._random.randint(*bytes_range)

        self._do(set_range)

    def close(self) -> None:
        """End the proxy for good. Twice is once."""
        if not self._closing:
            self._do(self._close)
            join(self._thread, "the proxy")
            for one in (self._listener, self._wake_in, self._wake_out):
                one.close()

    def __enter__(self) -> LinkProxy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the proxy's thread ---------------------------------------------------------

    def _do(self, order: Callable[[], None]) -> None:
        """Run ``order`` on the proxy's thread and wait for it."""
        done = threading.Event()
        failure: list[Exception] = []

        def run() -> None:
            try:
                order()
            except Exception as error:
                failure.append(error)
            finally:
                done.set()

        self._orders.put(run)
        self._wake_in.send(b"!")
        if not done.wait(10):
            raise RuntimeError("The link proxy's thread is gone")
        if failure:
            raise failure[0]

    def _run(self) -> None:
        while not self._closing:
            for key, events in self._selector.select(self._pause):
                if key.fileobj is self._wake_out:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_out.recv(4096)
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._connections:
                    self._serve(key.data, key.fileobj, events)
            while not self._orders.empty():
                self._orders.get()()
            self._arm()

    def _arm(self) -> None:
        """Ask the selector for exactly the events that can be acted upon."""
        if self._closing:
            return
        now = time.monotonic()
        self._pause = self._next_pause(now)
        for connection in self._connections:
            wanted = dict.fromkeys(connection.sockets, 0)
            for pipe in connection.pipes if not self._stalled else ():
                if pipe.pending:
                    wanted[pipe.sink] |= selectors.EVENT_WRITE
                elif not pipe.ended and pipe.not_before <= now:
                    wanted[pipe.source] |= selectors.EVENT_READ
            for one, events in wanted.items():
                self._watch(one, events, connection)

    def _next_pause(self, now: float) -> float | None:
        # By the same clock reading as the events: a pipe that is due between two
        # readings would be neither watched nor waited for.
        if self._rate is None or self._stalled:
            return None
        pipes = (pipe for connection in self._connections for pipe in connection.pipes)
        waits = [pipe.not_before - now for pipe in pipes]
        return min((wait for wait in waits if wait > 0), default=None)

    def _watch(self, one: socket.socket, events: int, connection: _Connection) -> None:
        watched = self._selector.get_map().get(one)
        if watched is None:
            if events:
                self._selector.register(one, events, connection)
        elif not events:
            self._selector.unregister(one)
        elif watched.events != events:
            self._selector.modify(one, events, connection)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it went away again
        try:
            broker = socket.create_connection(self.target, timeout=5)
        except OSError:
            _close(client, reset=True)
            return
        for one in (client, broker):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipes = (_Pipe(client, broker, up=True), _Pipe(broker, client, up=False))
        connection = _Connection(pipes)
        if self._cut_range is not None:
            connection.budget_bytes = self._random.randint(*self._cut_range)
        self._connections.append(connection)
        self.counters.accepted += 1

    def _serve(self, connection: _Connection, ready: object, events: int) -> None:
        try:
            for pipe in connection.pipes:
                if events & selectors.EVENT_READ and pipe.source is ready:
                    self._read(connection, pipe)
                if pipe.pending:
                    self._write(connection, pipe)
        except BlockingIOError:
            return
        except OSError:  # one side broke off, so the other side sees the same
            self._drop(connection, reset=True)
            return
        drained = not any(pipe.pending for pipe in connection.pipes)
        if connection.budget_bytes == 0 and drained:
            self.counters.cut += 1
            self._drop(connection, reset=self._random.random() < 0.5)
        elif all(pipe.ended for pipe in connection.pipes):
            self._drop(connection, reset=False)

    def _read(self, connection: _Connection, pipe: _Pipe) -> None:
        if pipe.pending or pipe.ended or connection.budget_bytes == 0:
            return
        size = CHUNK_BYTES
        if self._rate is not None:
            size = max(1, min(size, int(self._rate / 20)))
        if connection.budget_bytes is not None:
            size = min(size, connection.budget_bytes)
        data = pipe.source.recv(size)
        if not data:
            pipe.ended = True
            pipe.sink.shutdown(socket.SHUT_WR)
            return
        pipe.pending = memoryview(data)
        if connection.budget_bytes is not None:
            connection.budget_bytes -= len(data)
        if self._rate is not None:
            pipe.not_before = time.monotonic() + len(data) / self._rate

    def _write(self, connection: _Connection, pipe: _Pipe) -> None:
        try:
            sent = pipe.sink.send(pipe.pending)
        except BlockingIOError:
            return
        pipe.pending = pipe.pending[sent:]
        if pipe.up:
            self.counters.up_bytes += sent
        else:
            self.counters.down_bytes += sent

    def _drop(self, connection: _Connection, *, reset: bool) -> None:
        self._connections.remove(connection)
        for one in connection.sockets:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(one)
            _close(one, reset=reset)

    def _start(self) -> None:
        if self._listening:
            return
        if self._listener.fileno() == -1:
            self._listener = _bound(self.port)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._listening = True

    def _stop(self) -> None:
        self._cut_all(reset=True)
        if self._listening:
            self._selector.unregister(self._listener)
            self._listener.close()
            # Bound again at once, without listening, so that the port stays ours while
            # connections to it are refused.
            self._listener = _bound(self.port)
            self._listening = False

    def _pass_through(self) -> None:
        self._stalled = False
        self._rate = None
        self._cut_range = None
        for connection in self._connections:
            connection.budget_bytes = None
            for pipe in connection.pipes:
                pipe.not_before = 0.0

    def _cut_all(self, reset: bool) -> int:
        connections = list(self._connections)
        for connection in connections:
            self._drop(connection, reset=reset)
        self.counters.cut += len(connections)
        return len(connections)

    def _close(self) -> None:
        self._stop()
        self._closing = True
        self._selector.close()


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    return listener


def _close(one: socket.socket, *, reset: bool) -> None:
    with contextlib.suppress(OSError):
        if reset:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    with contextlib.suppress(OSError):
        one.close()
