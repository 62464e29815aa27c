# SPDX-License-Identifier: Apache-2.0
"""The double of the service, and a channel to it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import ydb

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from ydb_spark.client.channel import Channel, close_shared
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.patience import Patience

# The SDK looks for endpoints in a thread, and draws from the module ``random``. A
# property test of the same process would fail: Hypothesis takes that for a strategy's.
for module in (ydb.pool, ydb.resolver, ydb.retries):
    module.random = random.Random()


@pytest.fixture(autouse=True)
def _shared_channels() -> Iterator[None]:
    """Close what a test shares: an open channel looks for its service for ever."""
    yield
    close_shared()


@pytest.fixture
def service() -> Iterator[TopicService]:
    """A service with a topic ``t`` of two partitions and a consumer ``c``."""
    with TopicService() as service:
        service.store.create("t", partitions=2, codecs=(1, 2, 4), consumers=["c"])
        yield service


@pytest.fixture
def patience() -> Patience:
    """The usual waits; a test may have others as its parameter.

    But closing a channel does not wait for the thread of the SDK, which takes 0.2 s.
    """
    return Patience(stop_s=0)


@pytest.fixture
def connection(service: TopicService, patience: Patience) -> ConnectionOptions:
    """How to reach it."""
    return ConnectionOptions(url=service.endpoint, database=DATABASE, patience=patience)


@pytest.fixture
def channel(connection: ConnectionOptions) -> Iterator[Channel]:
    """A channel to it."""
    channel = Channel(connection)
    yield channel
    channel.close()
