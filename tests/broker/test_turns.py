# SPDX-License-Identifier: Apache-2.0
"""Producers that wait for a topic that others have for themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.testing.admin import Admin
from pulsar_spark.wire.commands import ProducerAccessMode
from tests.support import patience
from tests.support.official import read_back
from tests.support.waiting import await_true

ANSWER_S = 0.5  # how long an answer may take


@pytest.fixture
def make(service_url: str) -> Iterator[Callable[[], Producers]]:
    """Makes producers that wait for their turn, on a connection of their own."""
    made: list[tuple[Producers, ConnectionPool]] = []
    url = parse_service_url(service_url, "service.url")

    def one() -> Producers:
        options = ClientOptions(url, operation_timeout_s=ANSWER_S)
        pool = ConnectionPool(options)
        mode = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
        settings = ProducerSettings(access_mode=mode, send_timeout_s=120)
        made.append((Producers(pool, settings), pool))
        return made[-1][0]

    yield one
    for producers, pool in made:
        producers.close()
        pool.close()


def test_turns(
    make: Callable[[], Producers], service_url: str, admin: Admin, topic: str
) -> None:
    """Each waits for many times as long as an answer may take, and keeps its place."""
    admin.create_topic(topic)
    first, second, third = make(), make(), make()
    first.open([topic])
    with ThreadPoolExecutor(2) as executor:
        jobs = []
        for one in (second, third):
            jobs.append(executor.submit(write, one, topic, f"{len(jobs) + 2}"))
            await_true(lambda one=one: is_waiting(one, topic), "its place")
        until = time.monotonic() + 4 * ANSWER_S
        await_true(lambda: time.monotonic() > until)
        assert not any(job.done() for job in jobs)
        send(first, topic, "1")
        first.close()
        for job in jobs:
            job.result(150)
    values = [row.value for row in read_back(service_url, topic)]
    assert values == [b"1", b"2", b"3"]


def is_waiting(producers: Producers, topic: str) -> bool:
    """Whether it has been told to wait."""
    return any(
        p.topic == topic and p.trouble.queued_at is not None for p in producers.all
    )


def write(producers: Producers, topic: str, value: str) -> None:
    """Writes a row when it is its turn, and leaves."""
    producers.open([topic])
    send(producers, topic, value)
    producers.close()


def send(producers: Producers, topic: str, value: str) -> None:
    """Writes a row."""
    producer = producers.get(topic)
    producers.send(producer, producer.plain_entry(value.encode()))
    producers.flush()


def test_the_topic_moves(
    make: Callable[[], Producers],
    service_url: str,
    admin: Admin,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers forget the queue without a word: nobody waits at a place in it."""
    patience.usual(monkeypatch, turn_s=120.0, place_s=2.0)
    admin.create_topic(topic)
    first, second, third = make(), make(), make()
    first.open([topic])
    with ThreadPoolExecutor(2) as executor:
        jobs = []
        for one in (second, third):
            jobs.append(executor.submit(write, one, topic, f"{len(jobs) + 2}"))
            await_true(lambda one=one: is_waiting(one, topic), "its place")
        admin.unload(topic)
        first.close()
        for job in jobs:
            job.result(150)
    values = [row.value for row in read_back(service_url, topic)]
    assert sorted(values) == [b"2", b"3"]


def test_places_that_are_given_up(
    make: Callable[[], Producers],
    service_url: str,
    admin: Admin,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has the topic for himself who has left its queue."""
    patience.usual(monkeypatch, place_s=0.5)
    admin.create_topic(topic)
    first, second, third = make(), make(), make()
    first.open([topic])
    with ThreadPoolExecutor(2) as executor:
        jobs = [
            executor.submit(write, one, topic, value)
            for one, value in ((second, "2"), (third, "3"))
        ]
        until = time.monotonic() + 6 * ANSWER_S
        await_true(lambda: time.monotonic() > until)
        first.close()
        for job in jobs:
            job.result(150)
    values = [row.value for row in read_back(service_url, topic)]
    assert sorted(values) == [b"2", b"3"]
