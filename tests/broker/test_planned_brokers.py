# SPDX-License-Identifier: Apache-2.0
"""Tasks that know from their plan who served a topic, and may be wrong by now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import official, reading
from tests.support.waiting import join
from tests.support.writes import write_batch

if TYPE_CHECKING:
    from pulsar_spark.spark.batch import PulsarReader
    from pulsar_spark.testing.admin import Admin

ROWS = [b"%d" % i for i in range(100)]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics of each lookup from now on."""
    asked: list[list[str]] = []
    look_up = TopicLookup.brokers

    def brokers(self: TopicLookup, topics: Any) -> Any:
        asked.append(list(topics))
        return look_up(self, asked[-1])

    monkeypatch.setattr(TopicLookup, "brokers", brokers)
    return asked


@pytest.fixture
def planned(
    service_url: str, topic: str, lookups: list[list[str]]
) -> tuple[PulsarReader, list[Any]]:
    """A reader of ten parts of a topic, and what it has planned."""
    official.produce(service_url, topic, ROWS)
    reader = reading.reader_of(service_url, {"topic": topic, "minPartitions": "10"})
    parts: list[Any] = list(reader.partitions())
    assert len(parts) == 10
    lookups.clear()
    return reader, parts


def values(reader: PulsarReader, parts: list[Any]) -> list[bytes | None]:
    """The rows of some input partitions."""
    return [row.value for part in parts for row in reading.rows_of(reader, part)]


def test_no_lookup(
    planned: tuple[PulsarReader, list[Any]], lookups: list[list[str]]
) -> None:
    """As long as the plan is right, none is needed."""
    assert values(*planned) == ROWS
    assert lookups == []


def test_the_broker_gave_its_topics_away(
    service_url: str, admin: Admin, namespace: str, lookups: list[list[str]]
) -> None:
    """It refuses who has not looked up; who then does is served."""
    topic = f"persistent://{namespace}/given-away"
    admin.create_partitioned(topic, 16)
    names = sorted(f"{topic}-partition-{i}" for i in range(16))
    for name in names:
        official.produce(service_url, name, [name.encode()])
    reader = reading.reader_of(service_url, {"topic": topic})
    parts = reader.partitions()
    lookups.clear()
    admin.unload_namespace(namespace)
    assert sorted(values(reader, parts)) == [name.encode() for name in names]  # type: ignore[type-var]
    # Not for each: topics are given away in bundles, and it has some of its own there.
    assert 1 <= len(lookups) < len(names)


@pytest.mark.matrix
@pytest.mark.parametrize("kill", [False, True])
def test_the_broker_was_restarted(
    broker: Any, planned: tuple[PulsarReader, list[Any]], kill: bool
) -> None:
    """In mid-query: the tasks after that read on."""
    if not isinstance(broker, EmbeddedBroker):
        pytest.skip("a broker that is not ours is not restarted")
    reader, parts = planned
    found = values(reader, parts[:5])
    broker.restart(kill=kill)
    found += values(reader, parts[5:])
    assert found == ROWS


def test_tasks_of_many_ranges(service_url: str, admin: Admin, namespace: str) -> None:
    """The topics are given away while one of the first is read, and while rows wait."""
    topic = f"persistent://{namespace}/many"
    admin.create_partitioned(topic, 6)
    names = [f"{topic}-partition-{i}" for i in range(6)]
    for name in names:
        official.produce(service_url, name, ROWS)
    options = {"topic": topic, "maxPartitions": "1", "rowsPerArrowBatch": "10"}
    reader = reading.reader_of(service_url, options)
    (part,) = reader.partitions()
    found = []
    for number, record_batch in enumerate(reader.read(part)):
        found += [(r.topic, r.value) for r in reading.to_rows(record_batch)]
        if number in (3, 15, 29):
            admin.unload_namespace(namespace)
    assert found == [(name, value) for name in names for value in ROWS]


def write(service_url: str, topic: str, guarantee: str) -> None:
    """Writes a hundred rows to all partitions, with the brokers of earlier writes."""
    options = {
        "service.url": service_url,
        "topic": topic,
        "deliveryGuarantee": guarantee,
        # Longer than `join` waits: no write may depend on a request that expires.
        "pulsar.client.operationTimeoutMs": "600000",
    }

    thread = threading.Thread(target=write_batch, args=(options, ROWS), daemon=True)
    thread.start()
    join(thread, "the write")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_writes_after_the_broker_gave_its_topics_away(
    service_url: str, admin: Admin, namespace: str, guarantee: str
) -> None:
    """PRODUCER may come before the broker serves the topic again, and stays unheard."""
    topic = f"persistent://{namespace}/written"
    admin.create_partitioned(topic, 4)
    for _ in range(3):
        write(service_url, topic, guarantee)
        admin.unload_namespace(namespace)
    assert len(official.read_back(service_url, topic, partitions=4)) == 300


@pytest.mark.matrix
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_writes_after_the_broker_was_restarted(
    broker: Any, namespace: str, admin: Admin, service_url: str, guarantee: str
) -> None:
    """The same, where the whole broker was away."""
    if not isinstance(broker, EmbeddedBroker):
        pytest.skip("a broker that is not ours is not restarted")
    topic = f"persistent://{namespace}/written-on"
    admin.create_partitioned(topic, 4)
    for kill in (False, True):
        write(service_url, topic, guarantee)
        broker.restart(kill=kill)
    write(service_url, topic, guarantee)
    assert len(official.read_back(service_url, topic, partitions=4)) == 300
