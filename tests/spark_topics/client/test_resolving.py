# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.client.resolving`: names that the system does not resolve."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from spark_topics.client import resolving
from spark_topics.client.resolving import connect_to, is_here
from spark_topics.client.transport import open_transport
from tests.spark_topics.network import NETWORK
from tests.spark_topics.numbers import TransportError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Resolver:
    """The system's resolver, which answers when it is let go.

    Attributes:
        asked: The names that it was asked for.
        may_answer: While it is not set, no name is resolved.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.found: list[str] = ["127.0.0.1"]

    def __call__(self, host: str, port: Any, *more: Any, **settings: Any) -> list[Any]:
        """Stand for ``socket.getaddrinfo``."""
        if settings.get("flags") == socket.AI_NUMERICHOST or host[0].isdigit():
            return _getaddrinfo(host, port, *more, **settings)
        self.asked.append(host)
        self.may_answer.wait(60)
        if not self.found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", (one, 0)) for one in self.found]


_getaddrinfo = socket.getaddrinfo


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    """The system's resolver for the test."""
    one = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", one)
    yield one
    one.may_answer.set()
    wait_until(lambda: not threads())


def threads() -> list[threading.Thread]:
    """Those that wait for the system."""
    return [one for one in threading.enumerate() if one.name == "resolve"]


def test_a_name_that_hangs_is_given_up(resolver: Resolver) -> None:
    """The error names host and deadline; for all tries there is one thread."""
    began = time.monotonic()
    for _ in range(5):
        with pytest.raises(TransportError) as caught:
            open_transport("broker.example:6650", 0.05, NETWORK)
    assert "the name broker.example was not resolved" in caught.value.message
    assert "within 0.05 s (`connect.timeout`)" in caught.value.message
    assert caught.value.retriable
    assert caught.value.broker == "broker.example:6650"
    assert time.monotonic() - began < 60, "it waited for the system"
    assert resolver.asked == ["broker.example"]
    assert len(threads()) == 1


def test_many_names_that_hang(resolver: Resolver) -> None:
    """No more threads than that wait; names in reach are not held up for long."""
    for number in range(2 * resolving._MOST):
        with pytest.raises(TransportError):
            open_transport(f"broker-{number}.example:6650", 0.001, NETWORK)
    assert len(threads()) == len(resolver.asked) == resolving._MOST
    with pytest.raises(TransportError, match="32 other names of hosts"):
        open_transport("one-more.example:6650", 60, NETWORK)


def test_a_name_that_takes_its_time(
    resolver: Resolver, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks meanwhile gets what one thread finds; later it is asked for anew."""
    port = listener.getsockname()[1]
    waiting: list[object] = []

    class Counted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waiting.append(self)
            return super().result(timeout)

    monkeypatch.setattr(resolving, "Future", Counted)
    for turn in (1, 2):
        resolver.may_answer.clear()
        with ThreadPoolExecutor(4) as executor:
            made = [
                executor.submit(connect_to, "broker.example", port, 60)
                for _ in range(4)
            ]
            wait_until(lambda n=turn: len(waiting) == 4 * n)  # type: ignore[misc]
            resolver.may_answer.set()
            for one in made:
                one.result(60).close()
        wait_until(lambda: not threads())
    assert resolver.asked == ["broker.example"] * 2


def test_an_address_with_a_scope() -> None:
    """It stays: without it nobody knows which link is meant."""
    link = socket.if_indextoname(1)
    (found,) = resolving._ask(f"fe80::1%{link}", socket.AI_NUMERICHOST)
    assert found in ("fe80::1%1", f"fe80::1%{link}")
    assert resolving._ask("127.0.0.1") == ["127.0.0.1"]


def test_the_first_address_does_not_answer(
    resolver: Resolver, listener: socket.socket
) -> None:
    """The next one is tried."""
    resolver.may_answer.set()
    resolver.found = ["127.0.0.2", "127.0.0.1"]
    with connect_to("broker.example", listener.getsockname()[1], 60) as sock:
        assert sock.getpeername()[0] == "127.0.0.1"
    resolver.found = ["127.0.0.2", "127.0.0.3"]
    with pytest.raises(ConnectionRefusedError):
        connect_to("broker.example", listener.getsockname()[1], 60)


def test_a_name_that_there_is_not(resolver: Resolver) -> None:
    """The system's own words are the reason, and no thread stays."""
    resolver.may_answer.set()
    resolver.found = []
    with pytest.raises(TransportError, match="Name or service not known"):
        open_transport("nowhere.example:6650", 60, NETWORK)
    wait_until(lambda: not threads())


def test_a_system_that_is_out_of_time_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is the reason, not the deadline of the one who asks."""

    def give_up(host: str, *_: Any, **settings: Any) -> list[Any]:
        if settings.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise TimeoutError(errno.ETIMEDOUT, "the system gave up")

    monkeypatch.setattr(socket, "getaddrinfo", give_up)
    with pytest.raises(TransportError, match="the system gave up") as caught:
        open_transport("slow.example:6650", 60, NETWORK)
    assert "was not resolved" not in caught.value.message
    wait_until(lambda: not threads())


def test_a_forked_child_asks_for_itself(
    resolver: Resolver, listener: socket.socket
) -> None:
    """The thread that asks is its parent's."""
    with pytest.raises(TransportError):
        open_transport("broker.example:6650", 0.001, NETWORK)
    child = os.fork()
    if not child:
        code = 1
        try:
            resolver.may_answer = threading.Event()
            resolver.may_answer.set()
            connect_to("broker.example", listener.getsockname()[1], 20).close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("", False),
        ("10.0.0.1", False),
        ("::2", False),
        ("localhost.example", False),
        ("host", False),
    ],
)
def test_this_machine(host: str, expected: bool) -> None:
    """It is known by what it is called, and without asking the system."""
    assert is_here(host) is expected
