# SPDX-License-Identifier: Apache-2.0
"""The scripted broker, for these tests, and readers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.read.range_reader import RangeReader
from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.fixtures import clock as clock
from tests.support.fixtures import restless as restless
from tests.support.ranged import TOPIC
from tests.support.scripted_broker import ScriptedBroker, client_options
from tests.support.scripted_fixtures import _patient_closes as _patient_closes
from tests.support.scripted_fixtures import pool as pool
from tests.support.scripted_fixtures import scripted as scripted
from tests.support.scripted_fixtures import unhurried as unhurried
from tests.support.settings import range_settings, reader_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_spark.message_id import MessageId


@pytest.fixture
def ranged(scripted: ScriptedBroker) -> Iterator[Callable[..., RangeReader]]:
    """Makes a reader of a range of TOPIC."""
    pools: list[ConnectionPool] = []

    def make(
        start: MessageId,
        end: MessageId,
        limits: dict[str, Any] | None = None,
        reader: dict[str, Any] | None = None,
        **settings: Any,
    ) -> RangeReader:
        pools.append(ConnectionPool(client_options(scripted.address, **(limits or {}))))
        given = range_settings(reader_settings(**(reader or {})), **settings)
        return RangeReader(pools[-1], TopicRange(TOPIC, start, end), given)

    yield make
    for one in pools:
        one.close()
