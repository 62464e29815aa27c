# SPDX-License-Identifier: Apache-2.0
"""Streams stay exact when their processes are killed, at whatever moment.

Every row carries its number, so that one that is lost, doubled or out of order shows.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pulsar
import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import BrokerError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_cluster import stream_planner
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from spark_topics.source.stream.planner import StreamPlanner
from tests.support import driven_query
from tests.support.entries import batch, member, message
from tests.support.official import client, produce
from tests.support.raw_publisher import RawPublisher
from tests.support.reading import ranges_of
from tests.support.streaming import (
    Job,
    Query,
    durable_backlogs,
    end_with_parent,
    publish_numbers,
)
from tests.support.waiting import await_true, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from tests.support.link_proxy import LinkProxy

#: No pause of a reconnecting client shall make a test slow.
QUICK = {"pulsar.client.maxBackoffIntervalNanos": "500000000"}


Planner = StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]


def part(topic: str, number: int) -> str:
    """Full name of a partition."""
    return f"{topic}-partition-{number}"


def numbers(*counts: int) -> dict[int, list[int]]:
    """All rows of each partition, as ``Query.rows`` gives them."""
    return {index: list(range(count)) for index, count in enumerate(counts) if count}


def rows_up_to(offset: StreamOffset[LastRead], topic_partition: str) -> int:
    """The rows that are read, where entries are rows and all in one ledger."""
    return offset.last_read[topic_partition].entry_id + 1


# -- kills at random moments -----------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """When to kill a run.

    Attributes:
        log: The log in which a run must have written, "" for none.
        count: How many micro-batches.
        delay_s: After that.
    """

    log: str
    count: int
    delay_s: float

    def await_in(self, job: Job, query: Query) -> None:
        """Waits for it."""
        if self.log:
            before = len(getattr(query, self.log))
            wanted = before + self.count
            job.await_true(lambda: len(getattr(query, self.log)) >= wanted, str(self))
        # The fraction of a second is what makes the moment a random one.
        time.sleep(self.delay_s)


def moments(seed: int) -> list[Moment]:
    """Moments in all phases: the start of a query, and before and after each log."""
    at = random.Random(seed)
    found = [Moment("", 0, at.uniform(1, 6))]
    for log, count in (("planned", 4), ("written", 2), ("committed", 4)):
        for turn in range(count):
            # Some at once, most somewhat later.
            delay_s = at.uniform(0, 0.5) if turn % 3 else 0
            found.append(Moment(log, at.randint(1, 4), delay_s))
    at.shuffle(found)
    return found


@dataclass(frozen=True)
class Reached:
    """The newest micro-batch of each log."""

    planned: int
    written: int
    committed: int

    @classmethod
    def by(cls, query: Query) -> Reached:
        """How far a query has come."""
        logs = (query.planned, query.written, query.committed)
        return cls(*([-1, *log][-1] for log in logs))

    @property
    def phase(self) -> str:
        """What comes next in the newest micro-batch."""
        if self.committed == self.planned:
            return "committed"
        return "written" if self.written == self.planned else "planned"


class Publishing:
    """Publishes numbered rows to the partitions of a topic, in a thread.

    The first partition gets batches of 5 rows, the others single messages.

    Args:
        service_url: Of the broker.
        topic: Full name.
        parts: Number of partitions.
        first: Rows of each that are there before it begins.

    Attributes:
        counts: Rows of each partition so far.
    """

    def __init__(self, service_url: str, topic: str, parts: int, first: int) -> None:
        self.counts = [0] * parts
        self._publishers = [
            RawPublisher(service_url, part(topic, index), is_alone=True)
            for index in range(parts)
        ]
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._publish(first)

    def _publish(self, rows: int) -> None:
        """Writes so many rows to each partition."""
        for index, publisher in enumerate(self._publishers):
            until = self.counts[index] + rows
            step = 1 if index else 5
            while self.counts[index] < until:
                first = self.counts[index]
                values = [str(n).encode() for n in range(first, first + step)]
                if index:
                    publisher.send(*message(values[0]))
                else:
                    publisher.send(*batch([member(value) for value in values]))
                self.counts[index] += step

    def _run(self) -> None:
        try:
            while not self._over.wait(0.5):
                self._publish(20)
        except Exception as error:
            self._failure = error

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        join(self._thread, "the publisher")
        for publisher in self._publishers:
            publisher.close()
        assert self._failure is None, self._failure


def cursors_of(admin: Admin, topic_partition: str) -> dict[str, tuple[int, int]]:
    """What the durable cursors of a topic partition are done with, by name."""
    found = admin.internal_stats(topic_partition)["cursors"]
    durable = durable_backlogs(admin, topic_partition)
    return {
        name: MessageId.parse_text(one["markDeletePosition"]).position
        for name, one in found.items()
        if name in durable
    }


@pytest.mark.slow
@pytest.mark.soak
def test_killed_at_random_moments(
    topic: str, service_url: str, admin: Admin, tmp_path: Path
) -> None:
    """Every row once, in order; one subscription, which never ran ahead."""
    seed = 20
    names = [part(topic, index) for index in range(3)]
    admin.create_partitioned(topic, len(names))
    options = {
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": "120",
        **QUICK,
    }
    query = Query(tmp_path / "query", options)
    eager = replace(query, options={**options, "maxRowsPerTrigger": "2000"})
    when = moments(seed)
    reached = []
    with contextlib.ExitStack() as jobs:

        def following(turn: int) -> Job:
            one = query if turn < len(when) else eager
            job = Job([one], tmp_path / f"log-{turn}", waits=True)
            return jobs.enter_context(job)

        job = following(0)
        with Publishing(service_url, topic, len(names), first=1500) as publishing:
            for turn, moment in enumerate(when, 1):
                upcoming = following(turn)  # it starts its Spark meanwhile
                before = Reached.by(query)
                job.go()
                moment.await_in(job, query)
                job.kill()
                after = Reached.by(query)
                reached.append("starting" if after == before else after.phase)
                sys.stdout.write(f"{moment}: {reached[-1]}, {after}\n")
                assert query.rows() == numbers(*map(len, query.rows().values()))
                check_cursors(admin, query, names)
                job = upcoming
        assert len(reached) >= 10
        # The moments right after a log was written hit what they aim at.
        assert len(set(reached) - {"starting"}) >= 2

        everything = numbers(*publishing.counts)
        total = sum(publishing.counts)
        assert total > 4500  # some of them came meanwhile
        job.go()
        job.await_true(
            lambda: sum(map(len, eager.rows().values())) >= total, "the last row"
        )
        assert eager.rows() == everything
        subscription = eager.offset(0).subscription
        # One subscription, nothing left to acknowledge, and nothing read after all.
        for name in names:
            job.await_true(
                lambda name=name: (  # type: ignore[misc]
                    durable_backlogs(admin, name) == {subscription: 0}
                ),
                f"backlog 0 of {name}",
            )
            last = eager.offset(eager.planned[-1])
            assert cursors_of(admin, name) == {
                subscription: last.last_read[name].position
            }
        job.kill()
    assert eager.rows() == everything
    assert {eager.offset(n).subscription for n in eager.planned} == {subscription}


def check_cursors(admin: Admin, query: Query, names: list[str]) -> None:
    """Nothing but the query's subscription, and not ahead of what is committed."""
    if not query.planned:
        assert not any(cursors_of(admin, name) for name in names)
        return
    subscription = query.offset(query.planned[-1]).subscription
    for name in names:
        cursors = cursors_of(admin, name)
        assert cursors.keys() <= {subscription}
        if query.committed:
            limit = query.offset(query.committed[-1]).last_read[name].position
            assert all(cursor <= limit for cursor in cursors.values())
        else:
            assert all(entry_id == -1 for _, entry_id in cursors.values())


# -- kills in the first micro-batch ----------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What a job left that was killed while its queries stood in a micro-batch.

    Attributes:
        first: Queries that stood in the first one, by their topics' names.
        mid: One that stood in the fourth.
        now_ms: A time after the first ten rows of its topic, and before the others.
    """

    first: dict[str, Query]
    mid: Query
    now_ms: int


STARTS = ("latest", "empty", "by_time", "future")


@pytest.fixture(scope="module")
def held(
    service_url: str,
    admin: Admin,
    _shared_namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Held:
    """Queries of one job, which is killed when each is where it should be."""
    url, folder = service_url, tmp_path_factory.mktemp("held")
    prefix = f"persistent://{_shared_namespace}/held-{uuid.uuid4().hex[:8]}"
    latest, empty, by_time, future = (f"{prefix}-{name}" for name in STARTS)
    mid = f"{prefix}-mid"
    for name in (latest, empty, by_time, future, mid):
        admin.create_partitioned(name, 2)
    for name in (latest, by_time, future):
        # One partition with rows, one without.
        publish_numbers(url, name, [0], range(10))
    publish_numbers(url, mid, [0, 1], range(300))
    now_ms = time.time_ns() // 1_000_000
    await_true(lambda: time.time_ns() // 1_000_000 > now_ms + 1, "the clock's progress")
    publish_numbers(url, by_time, [0], range(10, 15))
    starts = {
        latest: {"startingOffsets": "latest"},
        empty: {},  # latest, by default
        by_time: {"startingTime": str(now_ms + 1)},
        future: {"startingTime": str(now_ms + 2000)},
        mid: {"startingOffsets": "earliest", "maxRowsPerTrigger": "100"},
    }
    queries = {
        name: Query(
            folder / name.rpartition("-")[2],
            {"service.url": url, "topic": name, **start, **QUICK},
            hold=3 if name == mid else 0,
        )
        for name, start in starts.items()
    }
    with Job(list(queries.values()), folder / "log") as job:
        for query in queries.values():
            job.await_true(lambda query=query: query.is_held, f"batch {query.hold}")  # type: ignore[misc]
        job.kill()
    stood_in_mid = queries.pop(mid)
    return Held(queries, stood_in_mid, now_ms)


@pytest.mark.slow
@pytest.mark.matrix
def test_killed_in_the_first_batch(
    held: Held, service_url: str, admin: Admin, spark: SparkSession
) -> None:
    """Where a query starts is settled once: what is published later is not skipped."""
    url = service_url
    for query in held.first.values():
        assert (query.planned, query.committed) == ([0], [])
    # So that the time which is still to come, if any, is past for all of these.
    await_true(
        lambda: time.time_ns() // 1_000_000 > held.now_ms + 2000, "the time to come"
    )
    latest, empty, by_time, future = held.first
    first = {latest: 10, empty: 0, by_time: 15, future: 10}
    for name, number in first.items():
        publish_numbers(url, name, [0], range(number, number + 7))
        publish_numbers(url, name, [1], range(7))
    read_from = {latest: 10, empty: 0, by_time: 10, future: 10}
    queries = {
        name: replace(query, hold=None, available_now=True)
        for name, query in held.first.items()
    }
    for name, query in queries.items():
        query.run(spark)
        published = first[name] + 7
        assert query.rows() == {
            0: list(range(read_from[name], published)),
            1: list(range(7)),
        }, name
        if name == latest:  # and once more: everything goes on from there
            publish_numbers(url, name, [0, 1], range(published, published + 3))
            query.run(spark)
            more = list(range(published, published + 3))
            assert query.rows() == {
                0: [*range(read_from[name], published), *more],
                1: [*range(7), *more],
            }
        subscription = query.offset(0).subscription
        for index in (0, 1):
            assert durable_backlogs(admin, part(name, index)) == {subscription: 0}


@pytest.mark.parametrize("option", ["startingOffsets", "startingTime"])
def test_killed_when_the_first_offsets_are_logged(
    topic: str,
    service_url: str,
    admin: Admin,
    make_planner: Callable[..., Planner],
    option: str,
) -> None:
    """The first batch has rows that came after its start, and a start is no more."""
    tomorrow = str(time.time_ns() // 1_000_000 + 86_400_000)
    value = {"startingOffsets": "latest", "startingTime": tomorrow}[option]
    admin.create_partitioned(topic, 2)
    publish_numbers(service_url, topic, [0], range(10))
    first = make_planner(topic=topic, **{option: value})
    start = first.initial()
    publish_numbers(service_url, topic, [0], range(10, 17))
    publish_numbers(service_url, topic, [1], range(7))
    logged = json.dumps(first.latest(start).to_json())
    assert not any(durable_backlogs(admin, part(topic, index)) for index in (0, 1))
    first.stop()
    publish_numbers(service_url, topic, [0], range(17, 20))
    publish_numbers(service_url, topic, [1], range(7, 10))
    second = make_planner(topic=topic, **{option: value})
    end = read_offset(json.loads(logged))
    assert second.initial().last_read != start.last_read
    ranges = ranges_of(second.ranges(second.initial(), end))
    assert [(max(r.start.entry_id, 0), r.end.entry_id) for r in ranges] == [
        (10, 16),
        (0, 6),
    ]
    for index in (0, 1):
        left = {end.subscription: 10}
        assert durable_backlogs(admin, part(topic, index)) == left
    later = second.latest(end)
    assert [rows_up_to(later, part(topic, index)) for index in (0, 1)] == [20, 10]
    for index in (0, 1):
        left = {end.subscription: 3}
        assert durable_backlogs(admin, part(topic, index)) == left
    second.stop()


@pytest.mark.matrix
def test_killed_before_the_first_batch(
    topic: str,
    service_url: str,
    admin: Admin,
    link: LinkProxy,
    tmp_path: Path,
) -> None:
    """A query that nobody has recorded leaves no subscription behind."""
    admin.create_topic(topic)
    query = Query(
        tmp_path / "query",
        {
            "service.url": link.url,
            "topic": topic,
            "startingOffsets": "earliest",
            **QUICK,
        },
    )
    # At this pace it takes a second or so from there to the offsets.
    link.slow(150)
    seen: set[str] = set()

    def is_second() -> bool:
        seen.update(admin.subscriptions(topic))
        return len(seen) > 1

    with Job([query], tmp_path / "log") as job:
        job.await_true(is_second, "a second consumer")
        link.stall()
        assert durable_backlogs(admin, topic) == {}
        job.kill()
    link.pass_through()
    link.cut_all()
    assert (query.planned, query.committed) == ([], [])
    await_true(lambda: admin.subscriptions(topic) == [], "the end of all consumers")


# -- the subscription ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.matrix
def test_killed_in_mid_batch(held: Held, admin: Admin, spark: SparkSession) -> None:
    """The backlog is what was not committed, and a restart reads just that."""
    query, topic = held.mid, held.mid.options["topic"]
    assert (query.planned, query.committed) == ([0, 1, 2, 3], [0, 1, 2])
    committed = query.offset(2)
    read = [rows_up_to(committed, part(topic, index)) for index in (0, 1)]
    assert sum(read) == 300
    for index, count in enumerate(read):
        left = {committed.subscription: 300 - count}
        assert durable_backlogs(admin, part(topic, index)) == left
    after = replace(query, hold=None, available_now=True)
    after.run(spark)
    assert after.rows() == {
        index: list(range(count, 300)) for index, count in enumerate(read)
    }
    for index in (0, 1):
        left = {committed.subscription: 0}
        assert durable_backlogs(admin, part(topic, index)) == left


@pytest.fixture
def make_planner(service_url: str) -> Iterator[Callable[..., Planner]]:
    """Makes planners with connections of their own, as other processes have."""
    pools = []

    def make(**options: str) -> StreamPlanner:
        planner, pool = planner_of({"service.url": service_url, **QUICK, **options})
        pools.append(pool)
        return planner

    yield make
    for pool in pools:
        pool.close()


def planner_of(options: dict[str, str]) -> tuple[Planner, ConnectionPool]:
    """A planner and its connections."""
    parsed = parse_read_options(options, streaming=True)
    pool = ConnectionPool(parsed.client)
    return stream_planner(pool, parsed), pool


def test_the_query_runs_twice(
    topic: str,
    service_url: str,
    admin: Admin,
    make_planner: Callable[..., Planner],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second one waits, then fails and says why; the first one does not notice."""
    admin.create_partitioned(topic, 2)
    names = [part(topic, index) for index in (0, 1)]
    publish_numbers(service_url, topic, [0, 1], range(10))
    with driven_query.Query(service_url, topic=topic) as first:
        first.drain()
        recorded = read_offset(json.loads(first.ends[-1]))
        second = make_planner(topic=topic, pollTimeoutMs="2000")
        began = time.monotonic()
        with (
            caplog.at_level(logging.WARNING, "pulsar_spark.client"),
            ThreadPoolExecutor(1) as other,
        ):
            failing = other.submit(second.latest, recorded)
            await_true(lambda: not first.trigger() and failing.done(), "the failure")
        error = failing.exception()
        assert time.monotonic() - began >= 2
        assert isinstance(error, BrokerError)
        assert error.code == "ConsumerBusy"
        text = str(error)
        assert topic in text
        assert recorded.subscription in text
        assert "running twice" in text
        assert "`predefinedSubscription`" in text
        waiting = [r for r in caplog.messages if "waiting for it to go" in r]
        assert len(waiting) == 2  # once for each partition
        publish_numbers(service_url, topic, [0, 1], range(10, 20))
        first.drain()
        assert first.rows == {name: list(range(20)) for name in names}
        for name in names:
            await_true(
                lambda name=name: (  # type: ignore[misc]
                    durable_backlogs(admin, name) == {recorded.subscription: 0}
                ),
                "backlog 0",
            )
    # Stopped, it lets the other one in.
    assert second.latest(read_offset(json.loads(first.ends[-1]))).last_read
    second.stop()


def test_the_holder_is_stopped(
    topic: str,
    service_url: str,
    admin: Admin,
    make_planner: Callable[..., Planner],
    tmp_path: Path,
) -> None:
    """One that does not answer loses the subscription; back again, it cannot go on."""
    admin.create_topic(topic)
    produce(service_url, topic, [b"row"] * 10)
    first = make_planner(topic=topic, startingOffsets="earliest")
    end = first.latest(first.initial())
    first.stop()
    given = {"service.url": service_url, "topic": topic, "pollTimeoutMs": "4000"}
    specification = json.dumps({"options": {**given, **QUICK}, "end": end.to_json()})
    log = tmp_path / "log"
    with Job([specification], log, "tests.broker.test_stream_kills") as holder:
        holder.await_true(lambda: "holding" in holder.output, "the first one")
        assert durable_backlogs(admin, topic) == {end.subscription: 0}
        holder.pause()
        ours = make_planner(topic=topic)
        assert ours.latest(end) is end
        produce(service_url, topic, [b"row"])
        # Not at once: a plan that took long is followed by a rest.
        await_true(lambda: ours.latest(end) is not end, "the new row")
        later = ours.latest(end)
        holder.resume()
        holder.await_true(lambda: "running twice" in holder.output, "its end")
        assert ours.latest(later) is later
        assert durable_backlogs(admin, topic) == {end.subscription: 0}
        ours.stop()


def test_a_query_stops_after_its_topic_has_moved(
    topic: str, service_url: str, admin: Admin, make_planner: Callable[..., Planner]
) -> None:
    """The subscription that is to be deleted then is found where the topic is now."""
    admin.create_partitioned(topic, 2)
    publish_numbers(service_url, topic, [0, 1], range(5))
    query = make_planner(
        topic=topic, startingOffsets="earliest", deleteSubscriptionOnStop="true"
    )
    start = query.initial()
    query.ranges(start, query.latest(start))
    names = [part(topic, index) for index in (0, 1)]
    assert all(durable_backlogs(admin, name) for name in names)
    admin.unload(topic)
    query.stop()
    assert not any(durable_backlogs(admin, name) for name in names)


def test_the_subscription_is_shared(
    topic: str,
    service_url: str,
    admin: Admin,
    make_planner: Callable[..., Planner],
) -> None:
    """That is an error at once, which says why and what to do."""
    admin.create_topic(topic)
    planner = make_planner(
        topic=topic, predefinedSubscription="ours", pollTimeoutMs="10000"
    )
    start = planner.initial()
    end = StreamOffset(start.subscription, start.last_read, start.start_after)
    with client(service_url) as official:
        official.subscribe(topic, "ours", consumer_type=pulsar.ConsumerType.Shared)
        with pytest.raises(BrokerError, match="is shared by its consumers") as caught:
            planner.ranges(start, end)
    text = str(caught.value)
    assert topic in text
    assert "subscription ours" in text
    assert "Stop the other consumers" in text
    assert "`predefinedSubscription`" in text
    assert not caught.value.retriable
    # They are gone: so it may have it.
    assert not planner.ranges(start, end)
    assert planner.latest(end).subscription == "ours"
    planner.stop()


def main(specification: str) -> None:
    """Holds the subscription of a stream, as its driver does."""
    end_with_parent()
    given = json.loads(specification)
    planner, _ = planner_of(given["options"])
    end = read_offset(given["end"])
    planner.latest(end)
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    while True:
        planner.latest(end)
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
