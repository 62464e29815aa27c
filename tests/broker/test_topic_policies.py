# SPDX-License-Identifier: Apache-2.0
"""Limits that an operator sets for one topic: its own policies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pulsar_spark.errors import BrokerError, PulsarSparkError
from tests.support import reading
from tests.support.driven_query import Query
from tests.support.waiting import await_true
from tests.support.writes import write_batch

if TYPE_CHECKING:
    from pulsar_spark.testing.admin import Admin


def write(url: str, topic: str, rows: int, size: int, **options: str) -> None:
    """Write rows of this many bytes in one task."""
    named = {f"pulsar.producer.{name}": value for name, value in options.items()}
    given = {"service.url": url, "topic": topic, **named}
    write_batch(given, [b"1" * size] * rows, has_keys=False)


def test_messages_of_a_limited_size(service_url: str, admin: Admin, topic: str) -> None:
    """Rows fit, and a batch of them does not: the error names cures that work."""
    admin.create_topic(topic)
    admin.set_topic_policy(topic, "maxMessageSize", 2000)

    def refusal(rows: int, size: int) -> str:
        try:
            write(service_url, topic, rows, size)
        except BrokerError as error:
            return str(error)
        return ""

    await_true(lambda: bool(refusal(1, 5000)), "the policy")  # brokers learn it later
    for rows, size in ((200, 100), (1, 5000)):
        text = refusal(rows, size)
        for part in (
            "PULSAR_BROKER",
            "Exceed maximum message size",
            "(`maxMessageSize`)",
            "`pulsar.producer.batchingMaxBytes`",
            "`pulsar.producer.chunkMaxMessageSize`",
        ):
            assert part in text

    def sizes() -> Counter[int]:
        rows = reading.read(service_url, {"topic": topic})
        return Counter(len(row.value or b"") for row in rows)

    before = sizes()
    chunks = {"chunkingEnabled": "true", "chunkMaxMessageSize": "1900"}
    write(service_url, topic, 200, 100, batchingMaxBytes="1000")
    write(service_url, topic, 200, 100, **chunks)
    write(service_url, topic, 3, 5000, **chunks)
    assert sizes() - before == Counter({100: 400, 5000: 3})


def test_consumers_of_a_limited_number(
    service_url: str, admin: Admin, topic: str
) -> None:
    """A batch read has one for each task; a stream needs two, as the error says."""
    admin.create_topic(topic)
    write(service_url, topic, 10, 10)
    admin.set_topic_policy(topic, "maxConsumers", 1)

    def refusal() -> str:
        query = Query(service_url, topic=topic, pollTimeoutMs="1000")
        try:
            query.run()
        except PulsarSparkError as error:
            return str(error)
        return ""

    await_true(lambda: bool(refusal()), "the policy")
    text = refusal()
    for part in (
        "Topic reached max consumers limit",
        "Raise `maxConsumers`",
        "a stream has two consumers on each topic partition",
    ):
        assert part in text
    assert len(reading.read(service_url, {"topic": topic})) == 10
    admin.set_topic_policy(topic, "maxConsumers", 2)
    await_true(lambda: not refusal(), "the policy")
