# SPDX-License-Identifier: Apache-2.0
"""Fixtures on the scripted broker: connections to it, a clock, nothing left open."""

from __future__ import annotations

import os
import threading
import time
from concurrent import futures
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import consumers, requests
from pulsar_spark.client.connection import Pending
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import producers
from spark_topics.client import retry
from tests.support.scripted_broker import (
    PATIENCE_S,
    ScriptedBroker,
    client_options,
    in_a_queue,
    unanswered,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now

    def time(self) -> float:
        """As ``time.time``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``, but at once."""
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that retries see."""
    one = Clock()
    monkeypatch.setattr(retry, "time", one)
    return one


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Clock:
    """Time limits of requests pass where a broker is silent on purpose, and only there.

    However short they are, and however busy the machine is: the clock, which retries
    see, too, goes on when nothing else will happen.
    """

    def wait(
        waiting: Iterable[futures.Future[Any]], timeout: float
    ) -> tuple[set[futures.Future[Any]], set[futures.Future[Any]]]:
        waiting = set(waiting)
        until = time.monotonic() + PATIENCE_S
        while left := {one for one in waiting if not one.done()}:
            if all(map(_is_left_unanswered, left)):
                clock.now += 1.01 * timeout  # never less, whatever the sum of many
                break
            assert time.monotonic() < until, "the broker is silent, and not on purpose"
            time.sleep(0.002)
        return waiting - left, left

    monkeypatch.setattr(futures, "wait", wait)
    monkeypatch.setattr(requests, "wait", wait)
    return clock


def _is_left_unanswered(request: futures.Future[Any]) -> bool:
    """Whether a broker has it, and says nothing."""
    assert isinstance(request, Pending)
    transport: Any = request.connection._transport
    try:
        port = transport._socket.getsockname()[1]
    except OSError:  # the connection ends, and the request with it
        return False
    number = port, request.request_id
    return number in unanswered and (number not in in_a_queue or request.running())


def open_files() -> int:
    """Number of files and sockets that this process has open."""
    return len(os.listdir("/dev/fd"))


def client_threads() -> set[threading.Thread]:
    """The threads that connections read with."""
    return {t for t in threading.enumerate() if t.name.startswith("pulsar-")}


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does to connections, their threads and sockets end with them."""
    files, threads = open_files(), client_threads()  # of tests before, with a broker
    yield
    wait_until(lambda: client_threads() <= threads, "the end of reading threads")
    wait_until(lambda: open_files() <= files, "the end of sockets")


@pytest.fixture(autouse=True)
def _patient_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes something waits until a busy machine has come to it."""
    for module in (consumers, producers):
        monkeypatch.setattr(module, "_CLOSE_TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker that behaves until it is told otherwise."""
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """Connections to it."""
    one = ConnectionPool(client_options(scripted.address))
    yield one
    one.close()
