# SPDX-License-Identifier: Apache-2.0
"""Scalable topics on a cluster of Pulsar 5 whose brokers come and go."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.broker_cluster import BrokerCluster, ClusterBroker
from tests.support.scalable import PULSAR_5, ScalableTopic
from tests.support.streaming import Job, Query
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = [pytest.mark.matrix, pytest.mark.slow]

#: For so long a new controller waits for registrations that the old one had, and some
#: more, in seconds.
GRACE_S = 75.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Three brokers."""
    with BrokerCluster(3, version=PULSAR_5, heap_mb=400) as started:
        yield started


@contextmanager
def paused(broker: ClusterBroker) -> Iterator[None]:
    """Stops the clock of a broker. Its connections stay open."""
    assert broker.jvm.pid is not None
    os.kill(broker.jvm.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.jvm.pid, signal.SIGCONT)


def test_a_controller_that_lives_on(cluster: BrokerCluster, tmp_path: Path) -> None:
    """The new controller is told of the query, and keeps its unread segments."""
    with closing(ScalableTopic(cluster, "paused", segments=2)) as topic:
        topic.put(0, ["0", "1"])
        options = {
            "service.url": cluster.service_url,
            "topic": topic.name,
            "startingOffsets": "earliest",
        }
        query = Query(tmp_path / "query", options)
        with Job([query], tmp_path / "log") as job:
            job.await_true(lambda: query.rows() == {0: [0, 1]}, "the first rows")
            before = topic.layout.controllers[0]
            broker = next(x for x in cluster.running if x.service_url == before)
            with paused(broker):
                await_true(
                    lambda: (
                        controller_of(cluster, "paused", broker) not in ("", before)
                    ),
                    "another controller",
                    120.0,
                    1.0,
                )
            threading.Event().wait(GRACE_S)
            assert list(topic.subscriptions) == [query.offset(0).subscription]
            topic.split(0)
            topic.put(2, ["2"])
            job.await_true(lambda: query.rows().get(2) == [2], "a row of a child")


def controller_of(cluster: BrokerCluster, name: str, gone: ClusterBroker) -> str:
    """The URL of a topic's controller, as another broker than the gone one says."""
    asked = next(broker for broker in cluster.running if broker is not gone)
    with closing(ScalableTopic(asked, name)) as topic:
        return topic.layout.controllers[0]
