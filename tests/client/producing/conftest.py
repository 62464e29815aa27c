# SPDX-License-Identifier: Apache-2.0
"""Producers on the scripted broker; a test says how."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import attaching, states
from pulsar_spark.client.producing import producers as producing
from pulsar_spark.client.producing.producers import (
    Producers,
    ProducerSettings,
)
from tests.client.producing.sending import (
    NEVER_S,
    TICK_S,
    TOPIC,
)
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock


@pytest.fixture(autouse=True)
def _fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    patience.usual(monkeypatch, write_tick_s=TICK_S)


@pytest.fixture
def own_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that producers see, too: it passes in pauses, and as a test says."""
    for module in (attaching, producing, states):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def make(pool: ConnectionPool) -> Iterator[Callable[..., Producers]]:
    """Makes producers with some settings; closes them in the end."""
    made = []

    def one(at: ConnectionPool = pool, **given: Any) -> Producers:
        made.append(Producers(at, ProducerSettings(**given)))
        return made[-1]

    yield one
    for producers in made:
        producers.close()


@pytest.fixture
def attach(make: Callable[..., Producers]) -> Callable[..., Producers]:
    """Makes producers with some settings, attached to a topic."""

    def one(*at: ConnectionPool, **given: Any) -> Producers:
        producers = make(*at, **given)
        producers.open([TOPIC])
        return producers

    return one


@pytest.fixture
def narrow(scripted: ScriptedBroker) -> Iterator[Callable[[int], ConnectionPool]]:
    """Makes connections whose tasks may have so many bytes in flight."""
    with contextlib.ExitStack() as stack:
        yield lambda size: stack.enter_context(
            ConnectionPool(client_options(scripted.address, memory_limit_bytes=size))
        )


@pytest.fixture
def producers(attach: Callable[..., Producers]) -> Producers:
    """Producers as an at-least-once sink has them, attached to a topic."""
    return attach(send_timeout_s=NEVER_S)
