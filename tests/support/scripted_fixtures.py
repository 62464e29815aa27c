# SPDX-License-Identifier: Apache-2.0
"""Fixtures on the scripted broker: connections to it, and time limits that pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import connection, requests
from pulsar_spark.client.pending import Pending
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
    from collections.abc import Iterator, Sequence

    from tests.support.fixtures import Clock


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Clock:
    """Time limits of requests pass where a broker is silent on purpose, and only there.

    However short they are, and however busy the machine is: the clock, which retries
    see, too, goes on when nothing else will happen.
    """

    def await_ends(
        requests: Sequence[Pending[Any]], timeout_s: float
    ) -> list[Pending[Any]]:
        until = time.monotonic() + PATIENCE_S
        while left := [one for one in requests if not one.done()]:
            if all(map(_is_left_unanswered, left)):
                clock.now += 1.01 * timeout_s  # never less, whatever the sum of many
                break
            assert time.monotonic() < until, "the broker is silent, and not on purpose"
            time.sleep(0.002)
        return left

    monkeypatch.setattr(connection, "await_ends", await_ends)
    monkeypatch.setattr(requests, "await_ends", await_ends)
    return clock


def _is_left_unanswered(request: Pending[Any]) -> bool:
    """Whether a broker has it, and says nothing."""
    connection: Any = request.connection
    transport = connection._transport
    try:
        port = transport._socket.getsockname()[1]
    except OSError:  # the connection ends, and the request with it
        return False
    number = port, request.request_id
    return number in unanswered and (number not in in_a_queue or request.is_queued)


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
