# SPDX-License-Identifier: Apache-2.0
"""A real master and broker for the tests of this folder, with all of their topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tubemq_servers import Topic, TubeMQ

TOPICS = (
    Topic("rows", stores=3),
    Topic("placed", stores=3),
    Topic("shared", partitions=3),
    Topic("mixed", stores=2, partitions=2),
    Topic("streamed", stores=2),
    Topic("written", stores=3),
    Topic("sunk", stores=2),
    Topic("killed", stores=3),
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


@pytest.fixture(scope="session")
def tube() -> Iterator[TubeMQ]:
    """The servers of a run; up after some 40 seconds."""
    with TubeMQ(TOPICS) as servers:
        yield servers
