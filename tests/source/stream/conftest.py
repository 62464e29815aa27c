# SPDX-License-Identifier: Apache-2.0
"""Queries over a scripted broker, and time that a test lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_topics.source.stream import batch_ends, idle_rest, planner, topic_set
from tests.source.stream.queries import (
    BASE,
    P0,
    P1,
    Clock,
    Query,
)
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def short_waits(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The scripted broker forgets at once, and what it sends is waited for.

    And a query that is asked once looks, unless time passes as a test says.
    """
    patience.usual(
        monkeypatch, forget_s=0.0, acknowledge_s=60.0, look_s=60.0, settling_s=0.0
    )
    if "clock" not in request.fixturenames:
        request.getfixturevalue("restless")


@pytest.fixture
def two(scripted: ScriptedBroker) -> ScriptedBroker:
    """A topic of two partitions, with 5 entries each."""
    scripted.partitions[BASE] = 2
    for name in (P0, P1):
        scripted.add_topic(name, [single(b"a")] * 5)
    return scripted


@pytest.fixture
def queries(scripted: ScriptedBroker) -> Iterator[Any]:
    """Makes queries that end with the test."""
    made: list[Query] = []

    def one(**options: str) -> Query:
        made.append(Query(scripted, **{"startingOffsets": "earliest", **options}))
        return made[-1]

    yield one
    for query in made:
        query.kill()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The planner's."""
    one = Clock()
    for module in (planner, topic_set, batch_ends, idle_rest):
        monkeypatch.setattr(module, "time", one)
    return one
