# SPDX-License-Identifier: Apache-2.0
"""A broker that numbers entries and keeps its own time, and shows both to readers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.admin import Admin
from tests.support import official, reading
from tests.support.entries import batch, chunks, member, message
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from pulsar_spark.testing.embedded_broker import EmbeddedBroker

TOPIC = "persistent://public/default/numbered"


@pytest.fixture(scope="module")
def numbering(configured: EmbeddedBroker) -> str:
    """Service URL of such a broker."""
    admin = Admin(configured.admin_url)
    admin.set_retention("public/default", minutes=-1, size_mb=-1)
    return configured.service_url


def test_index_and_broker_time(numbering: str) -> None:
    """Each message has the broker's time and its own number, batched or not.

    A chunked message has the number of its last chunk. The official client reads the
    same rows. Times in options are the broker's: producers' clocks may be wrong.
    """
    old_ms = 1_000_000_000_000  # a producer whose clock is far behind
    before_ms = time.time_ns() // 1_000_000
    with RawPublisher(numbering, TOPIC) as publisher:
        publisher.send(*message(b"0", publish_time=old_ms))
        members = [member(b"%d" % i) for i in (1, 2, 3)]
        publisher.send(*batch(members, publish_time=old_ms))
        publisher.send(*batch([member(b"4")], compression=3))
        for chunk in chunks(b"6" * 100, 2, "u", publish_time=old_ms):
            publisher.send(*chunk)
        publisher.send(*message(b"7"), checksum=False)
    after_ms = time.time_ns() // 1_000_000

    shown = {"topic": TOPIC, "metadataColumns": "all"}
    rows = reading.read_columns(numbering, shown)
    assert [row["__index"] for row in rows] == [0, 1, 2, 3, 4, 6, 7]
    assert all(row["value"].decode()[0] == str(row["__index"]) for row in rows)
    for row in rows:
        broker_ms = row["__brokerPublishTime"].timestamp() * 1000
        assert before_ms <= broker_ms <= after_ms
    assert rows[0]["__publishTime"].timestamp() * 1000 == old_ms
    assert reading.read(numbering, {"topic": TOPIC}) == official.read_back(
        numbering, TOPIC
    )
    late = reading.read_columns(numbering, {**shown, "startingTime": str(before_ms)})
    assert len(late) == len(rows)
    assert reading.read_columns(numbering, {**shown, "endingTime": str(old_ms)}) == []
