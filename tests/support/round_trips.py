# SPDX-License-Identifier: Apache-2.0
"""Counts the round trips that follow one another, however long each takes.

A request that is sent after a reply came is one round trip deeper than that reply::

    CONNECT --> CONNECTED      1
    LOOKUP a, LOOKUP b --> ... 2
    SUBSCRIBE --> SUCCESS      3

Permits and the entry that they bring count, too, and so do an entry and its receipt.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pending import Pending
from pulsar_spark.wire.protocol import Connected


class RoundTrips:
    """What was counted.

    A request is as deep as what its thread has seen before: replies that came to other
    threads, or were not looked at yet, make no difference. Entries and receipts do when
    they come early, so that a count may be too large, and the least of several is it.

    Attributes:
        depth: Round trips, one after the other, that ended so far.
        requests: How many requests, beside CONNECT, were sent.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.requests = 0
        self._seen = threading.local()  # how deep what a thread has seen is
        # The same for permits and entries, entries and receipts, by thread.
        self._streamed: dict[int, int] = {}
        self._handshakes: dict[Connection, int] = {}
        # Depth of each request, or of the end of what a thread does.
        self._depths: dict[Any, int] = {}
        # Depth of what permits or entries will bring, by connection and thread.
        self._sent: dict[tuple[int, int], int] = {}

    def patches(self) -> Iterator[Any]:
        """Yield what notes requests, replies, permits, entries and receipts."""
        yield _before(Pending, "__init__", self._asks)
        yield _before(Pending, "set_result", self._is_answered)
        yield _before(Pending, "set_exception", self._is_answered)
        yield _before(Connection, "request_all", self._requests)
        yield _before(Connection, "tell", self._requests)
        yield _before(Connection, "grant", self._sends)
        yield _before(Connection, "_deliver", self._comes)
        yield _before(Connection, "send_all", self._sends)
        yield _before(Connection, "_tell_stored", self._comes)
        yield _instead(Pending, "outcome", self._looks)
        yield _instead(Future, "result", self._looks)
        yield _instead(Future, "exception", self._looks)
        yield _instead(ThreadPoolExecutor, "submit", self._starts)

    @property
    def _here(self) -> int:
        return getattr(self._seen, "depth", 0)

    @property
    def _came(self) -> int:
        return self._streamed.get(threading.get_ident(), 0)

    def _sees(self, depth: int) -> None:
        self._seen.depth = max(self._here, depth)

    def _asks(
        self, pending: Any, connection: Connection, _: int, reply_type: type, *__: Any
    ) -> None:
        # Whoever opened a connection, nothing goes there before the handshake is over.
        handshake = self._handshakes.get(connection, 0)
        self._depths[pending] = max(self._here, self._came, handshake) + 1
        if reply_type is Connected:
            self._handshakes[connection] = self._depths[pending]

    def _is_answered(self, pending: Any, *_: Any) -> None:
        self.depth = max(self.depth, self._depths[pending])

    def _looks(self, method: Any, future: Any, *args: Any) -> Any:
        try:
            return method(future, *args)
        finally:
            if future.done():
                self._sees(self._depths.get(future, 0))

    def _starts(self, method: Any, threads: Any, work: Any, *args: Any) -> Any:
        """A thread begins with what has been seen where it was started."""
        depth = self._here

        def done() -> Any:
            self._streamed.pop(
                threading.get_ident(), None
            )  # of another with its number
            self._sees(depth)
            try:
                return work(*args)
            finally:
                self._depths[future] = max(self._here, self._came)

        future: Any = None
        is_known = threading.Event()

        def begun() -> Any:
            is_known.wait()
            return done()

        future = method(threads, begun)
        is_known.set()
        return future

    def _requests(self, connection: Connection, requests: Any) -> None:
        self.requests += len(requests) if isinstance(requests, list) else 1

    def _sends(self, connection: Connection, *_: Any) -> None:
        # No permit waits for an entry that other permits bring.
        place = id(connection), threading.get_ident()
        self._sent[place] = max(self._sent.get(place, 0), self._here + 1)

    def _comes(self, connection: Connection, what: Any) -> None:
        for (number, thread), depth in list(self._sent.items()) if what else ():
            if number == id(connection):
                self._streamed[thread] = max(self._streamed.get(thread, 0), depth)
                self.depth = max(self.depth, depth)


def _before(owner: type, name: str, note: Callable[..., None]) -> Any:
    """Return a patch that notes each call of a method before it is done."""

    def noted(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self, *args)
        return method(self, *args, **kwargs)

    return _instead(owner, name, noted)


def _instead(owner: type, name: str, act: Callable[..., Any]) -> Any:
    """Return a patch that calls something with a method and its arguments instead."""
    method = getattr(owner, name)

    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return act(method, self, *args, **kwargs)

    return mock.patch.object(owner, name, replaced)


@contextlib.contextmanager
def round_trips() -> Iterator[RoundTrips]:
    """Count those of this process within the block."""
    count = RoundTrips()
    with contextlib.ExitStack() as stack:
        for patch in count.patches():
            stack.enter_context(patch)
        yield count
