# SPDX-License-Identifier: Apache-2.0
"""Fixtures on the scripted broker: connections to it, and time limits that pass."""

from __future__ import annotations

import time
from concurrent import futures
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import requests
from pulsar_spark.client.connection import Pending
from pulsar_spark.client.pool import ConnectionPool
from tests.support import patience
from tests.support.scripted_broker import (
    PATIENCE_S,
    ScriptedBroker,
    client_options,
    in_a_queue,
    unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.fixtures import Clock


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


@pytest.fixture(autouse=True)
def _patient_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes something waits until a busy machine has come to it."""
    patience.usual(monkeypatch, close_s=PATIENCE_S)


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
