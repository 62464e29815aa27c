# SPDX-License-Identifier: Apache-2.0
"""A real master and broker for the tests of this folder, with all of their topics.

Starting them takes 40 seconds, most of which they wait. So it begins with the session,
beside other tests, and whoever needs them first waits for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest

from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from tubemq_spark.client import connection, opening

TOPICS = (
    # On disk as soon as it leaves the broker's memory: others wait for that a while.
    Topic("rows", stores=3, settings={"unflushThreshold": "1"}),
    Topic("placed", stores=3),
    Topic("shared", partitions=3),
    Topic("mixed", stores=2, partitions=2),
    Topic("streamed", stores=2),
    Topic("grouped", settings={"unflushThreshold": "1"}),
    Topic("written", stores=3),
    Topic("sunk", stores=2),
    Topic("killed", stores=3),
    Topic("cut", stores=2),
    Topic("cut_again", stores=2),
    Topic("cut_copy", stores=2),
    Topic("confirmed", stores=2),
    Topic("unconfirmed", stores=2, settings={"memCacheFlushIntvl": "60000"}),
    Topic("java_dense", stores=3),
    Topic("java_shared", partitions=3),
    Topic("java_sunk", stores=3),
    Topic("large", max_message_mb=3),
    Topic("torn"),
    Topic("alike"),
    Topic("kills_1x3", partitions=3),
    Topic("kills_2x2", stores=2, partitions=2),
    Topic("kills_3x1", stores=3),
    Topic("planned"),
    Topic("held"),
    Topic("rested"),
    Topic("rested_less"),
    Topic("demo", stores=3),
    Topic("demo_copy", stores=3),
)
CLUSTER_TOPICS = (
    Topic("spread", stores=2),
    Topic("moved"),
    Topic("drained"),
    Topic("followed", stores=2),
    Topic("grown_2x1"),
    Topic("grown_1x2"),
)


class Starting(NamedTuple):
    """Servers that are started in the background."""

    servers: TubeMQ
    done: Future[None]


STARTING = pytest.StashKey[Starting]()


def start() -> Starting:
    """Begin to start the servers."""
    servers = TubeMQ(TOPICS)
    executor = ThreadPoolExecutor(1)
    done = executor.submit(servers.start)
    executor.shutdown(wait=False)
    return Starting(servers, done)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin early in the process that most likely needs them.

    Of several that is the first: it has the files with slow tests.
    """
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    is_needed = any("tube" in getattr(one, "fixturenames", ()) for one in session.items)
    if is_first and is_needed and not session.config.option.collectonly:
        session.config.stash[STARTING] = start()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop them, whether somebody has used them or not."""
    starting = session.config.stash.get(STARTING, None)
    if starting is not None:
        starting.done.exception()  # has a deadline of its own
        starting.servers.stop()


@pytest.fixture(autouse=True)
def _quick_connections(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give doubles less time than real servers get."""
    if "tube" not in request.fixturenames:
        monkeypatch.setattr(connection, "_TICK_S", 0.1)
        monkeypatch.setattr(connection, "_GRACE_S", 0.1)
        monkeypatch.setattr(opening, "_PROBE_S", 0.3)


@pytest.fixture(scope="session")
def tube(request: pytest.FixtureRequest) -> TubeMQ:
    """The servers of this process."""
    stash = request.config.stash
    if STARTING not in stash:
        stash[STARTING] = start()
    servers, done = stash[STARTING]
    done.result()
    return servers


@pytest.fixture(scope="module")
def tube_cluster() -> Iterator[TubeMQ]:
    """Three masters and two brokers, for the tests of a module."""
    with TubeMQ(CLUSTER_TOPICS, masters=3, brokers=2) as servers:
        yield servers
