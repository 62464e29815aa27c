# SPDX-License-Identifier: Apache-2.0
"""Retention takes ledgers under a read, and expiry moves it: that does not pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import DataLossError, EndOffsets, end_offsets
from tests.support import official, reading
from tests.support.entries import message
from tests.support.raw_publisher import RawPublisher
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.testing.admin import Admin

#: Rows of each ledger; the last one is still open.
ROWS = (1000, 100, 100)


@pytest.fixture
def ledgers(service_url: str, admin: Admin, namespace: str) -> str:
    """A topic of three ledgers, numbered from 0."""
    topic = f"persistent://{namespace}/ledgers"
    first = 0
    for count in ROWS:
        if first:
            admin.unload(topic)
        values = [b"%d" % number for number in range(first, first + count)]
        official.produce(service_url, topic, values, batch=0)
        first += count
    return topic


def batches(service_url: str, topic: str, **options: str) -> Iterator[list[int]]:
    """What a read takes that asks for little at a time."""
    small = {"rowsPerArrowBatch": "10", "pulsar.reader.receiverQueueSize": "5"}
    reader = reading.reader_of(service_url, {"topic": topic, **small, **options})
    (part,) = reader.partitions()
    for batch in reader.read(part):
        yield [int(row.value or b"") for row in reading.to_rows(batch)]


def take_all_but_last(admin: Admin, topic: str) -> None:
    """As retention does, at once."""
    admin.set_retention(topic.split("/", 2)[2].rpartition("/")[0], minutes=0, size_mb=0)

    def is_gone() -> bool:
        admin.trim(topic)
        return len(admin.internal_stats(topic)["ledgers"]) == 1

    await_true(is_gone, f"the trimming of {topic}")


@pytest.mark.parametrize("ending", ["in another ledger", "in one that is gone"])
def test_ledgers_that_were_not_read(
    service_url: str, admin: Admin, ledgers: str, ending: str, caplog: Any
) -> None:
    """An error that names where; or a warning, and the rows that are left."""
    options = {}
    if ending == "in one that is gone":
        at = official.read_back(service_url, ledgers)[sum(ROWS[:2]) - 1].position
        options["endingOffsets"] = f'{{"{ledgers}": {at!r}}}'.replace("'", '"')
    strict = batches(service_url, ledgers, **options)
    lenient = batches(service_url, ledgers, **options, failOnDataLoss="false")
    assert next(strict) == next(lenient) == list(range(10))
    take_all_but_last(admin, ledgers)
    with pytest.raises(DataLossError, match=ledgers):
        list(strict)
    found = [number for batch in lenient for number in batch]
    (warning,) = (m for m in caplog.messages if "PULSAR_DATA_LOSS" in m)
    assert ledgers in warning
    last = list(range(sum(ROWS[:2]), sum(ROWS))) if not options else []
    assert found[len(found) - len(last) :] == last
    assert len(found) < sum(ROWS) // 2


def test_ledgers_that_stay(service_url: str, ledgers: str) -> None:
    """Are read to the end."""
    found = [n for batch in batches(service_url, ledgers) for n in batch]
    assert found == list(range(sum(ROWS)))


@pytest.mark.parametrize("old", [90, 100])
def test_expiry(service_url: str, admin: Admin, topic: str, old: int) -> None:
    """What a reader is moved past is an error; where that is all, another one goes on.

    The next try of the task is not moved again, and has all rows.
    """
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    with RawPublisher(service_url, topic) as publisher:
        for number in range(100):
            at_ms = hour_ago_ms if number < old else hour_ago_ms + 3_600_000
            publisher.send(*message(b"%d" % number, publish_time=at_ms))
    rows = batches(service_url, topic)
    assert next(rows) == list(range(10))
    (name,) = admin.subscriptions(topic)

    def is_moved() -> bool:
        cursor = admin.internal_stats(topic)["cursors"][name]
        return str(cursor["markDeletePosition"]).endswith(f":{old - 1}")

    admin.expire(topic, name, older_than_s=60)
    await_true(is_moved, f"the expiry of {topic}")
    if old < 100:
        with pytest.raises(DataLossError, match="TTL of a namespace"):
            list(rows)
        rows = batches(service_url, topic)
        next(rows)
    assert [n for batch in rows for n in batch] == list(range(10, 100))


class TestReadsFromTimeToTime:
    """Retention takes all that a topic had before a read by `end_offsets`."""

    @pytest.fixture
    def options(self, service_url: str, namespace: str) -> dict[str, str]:
        """Of a read of a topic with rows."""
        topic = f"persistent://{namespace}/from-time-to-time"
        official.produce(service_url, topic, [b"a", b"b"], batch=2)
        return {"service.url": service_url, "topic": topic}

    def plan(self, options: dict[str, str], ends: EndOffsets, **more: str) -> int:
        """How many tasks a read up to these ends has."""
        given = {**options, "endingOffsets": ends.ending, **more}
        return len(reading.reader_of(given["service.url"], given).partitions())

    def take_all(self, admin: Admin, options: dict[str, str], *values: bytes) -> None:
        """Retention leaves nothing but these new rows."""
        admin.unload(options["topic"])
        if values:
            official.produce(options["service.url"], options["topic"], values, batch=1)
        take_all_but_last(admin, options["topic"])

    def test_what_no_read_had(self, admin: Admin, options: dict[str, str]) -> None:
        """An error, though nothing says where the first read should start."""
        ends = end_offsets(options)
        self.take_all(admin, options, b"c")
        with pytest.raises(DataLossError, match="where the read should end"):
            self.plan(options, ends)
        assert self.plan(options, ends, failOnDataLoss="false") == 0

    def test_a_topic_that_was_made_again(
        self, service_url: str, admin: Admin, options: dict[str, str]
    ) -> None:
        """The same."""
        ends = end_offsets(options)
        admin.delete(options["topic"], force=True)
        official.produce(service_url, options["topic"], [b"c"], batch=1)
        with pytest.raises(DataLossError, match="where the read should end"):
            self.plan(options, ends)

    def test_what_was_read(self, admin: Admin, options: dict[str, str]) -> None:
        """No loss as long as the broker knows that nothing came after it."""
        following = {"startingOffsets": end_offsets(options).following}
        self.take_all(admin, options)
        assert self.plan(options, end_offsets(options), **following) == 0

    def test_what_was_read_before_the_ends(
        self, admin: Admin, options: dict[str, str]
    ) -> None:
        """Nothing more was wanted."""
        ends = end_offsets(options)
        self.take_all(admin, options, b"c")
        assert self.plan(options, ends, startingOffsets=ends.following) == 0
