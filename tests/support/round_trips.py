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
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from pulsar_spark.client.connection import Connection, Pending


class RoundTrips:
    """What was counted.

    Attributes:
        depth: Round trips, one after the other, that ended so far.
        requests: How many requests, beside CONNECT, were sent.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.requests = 0
        self._replies = 0  # depth of the last reply, without entries and receipts
        self._sent: dict[int, int] = {}  # depth of what permits or entries will bring

    def ended(self, depth: int) -> None:
        """Note that something came that belongs to a round trip."""
        self.depth = max(self.depth, depth)

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

    def _asks(self, pending: Any, *_: Any) -> None:
        pending.depth = self.depth + 1

    def _is_answered(self, pending: Any, *_: Any) -> None:
        self._replies = max(self._replies, pending.depth)
        self.ended(pending.depth)

    def _requests(self, connection: Connection, requests: Any) -> None:
        self.requests += len(requests) if isinstance(requests, list) else 1

    def _sends(self, connection: Connection, *_: Any) -> None:
        # No permit waits for an entry that other permits bring.
        self._sent[id(connection)] = self._replies + 1

    def _comes(self, connection: Connection, what: Any) -> None:
        if what:
            self.ended(self._sent.get(id(connection), 0))


def _before(owner: type, name: str, note: Callable[..., None]) -> Any:
    """Return a patch that notes each call of a method before it is done."""
    method = getattr(owner, name)

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self, *args)
        return method(self, *args, **kwargs)

    return mock.patch.object(owner, name, noted)


@contextlib.contextmanager
def round_trips() -> Iterator[RoundTrips]:
    """Count those of this process within the block."""
    count = RoundTrips()
    with contextlib.ExitStack() as stack:
        for patch in count.patches():
            stack.enter_context(patch)
        yield count
