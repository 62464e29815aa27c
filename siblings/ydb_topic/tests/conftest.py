# SPDX-License-Identifier: Apache-2.0
"""The double of the service, and a channel to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from ydb_spark.client.channel import Channel
from ydb_spark.options.connection import ConnectionOptions


@pytest.fixture(autouse=True)
def _no_wait_for_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close channels without the 0.2 s that the SDK's thread takes to end."""
    monkeypatch.setattr("ydb_spark.client.channel._STOP_S", 0)


@pytest.fixture
def service() -> Iterator[TopicService]:
    """A service with a topic ``t`` of two partitions and a consumer ``c``."""
    with TopicService() as service:
        service.store.create("t", partitions=2, codecs=(1, 2, 4), consumers=["c"])
        yield service


@pytest.fixture
def connection(service: TopicService) -> ConnectionOptions:
    """How to reach it."""
    return ConnectionOptions(url=service.endpoint, database=DATABASE)


@pytest.fixture
def channel(connection: ConnectionOptions) -> Iterator[Channel]:
    """A channel to it."""
    channel = Channel(connection)
    yield channel
    channel.close()
