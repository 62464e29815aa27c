# SPDX-License-Identifier: Apache-2.0
"""Streams into topics stay exact when their processes are killed, at whatever moment.

Every row carries its number, so that one that is lost, doubled or out of order shows.
A consumer of the official client watches the sinks all the time. Each run has a query
of either guarantee, so that a kill is one for both.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import official
from tests.support.streaming import PATIENCE_S, Job, Query, publish_numbers
from tests.support.waiting import await_true
from tests.support.watching import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: No pause of a reconnecting client shall make a test slow.
QUICK = {"pulsar.client.maxBackoffIntervalNanos": "500000000"}

#: Partitions of the sources and of the sinks.
PARTS = 3


def part(topic: str, number: int) -> str:
    """Full name of a partition."""
    return f"{topic}-partition-{number}"


@dataclass(frozen=True)
class Topics:
    """A source, and a sink for each guarantee.

    Attributes:
        service_url: Of the broker.
        source: With numbered rows.
        same: For the idempotent query: its broker finds duplicates.
        once: For the exactly-once query.
        count: Rows in each partition of the source.
    """

    service_url: str
    source: str
    same: str
    once: str
    count: int

    def make(self, admin: Admin) -> None:
        """Creates them."""
        for name in (self.source, self.same, self.once):
            admin.create_partitioned(name, PARTS)
        publish_numbers(self.service_url, self.source, range(PARTS), range(self.count))

    def queries(self, folder: Path, rows: int, **conf: str) -> tuple[Query, Query]:
        """The queries, with so many rows in a micro-batch.

        The exactly-once one is behind a shuffle, its rows in another order each time.
        """
        options = {
            "service.url": self.service_url,
            "topic": self.source,
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": str(rows),
            **QUICK,
        }
        sink = {"service.url": self.service_url, **QUICK}
        same = {**sink, "topic": self.same, "deliveryGuarantee": "idempotent"}
        once = {**sink, "topic": self.once, "deliveryGuarantee": "exactly-once"}
        return (
            Query(folder / "same", options, sink=same, conf=conf),
            Query(folder / "once", options, sink=once, shuffled=True),
        )

    @property
    def everything(self) -> Counter[str]:
        """The values of all rows, once each."""
        return Counter(f"{p}:{n}" for p in range(PARTS) for n in range(self.count))

    def await_all(self, job: Job, watcher: Watcher) -> None:
        """Waits until all rows were seen."""
        for name in (self.same, self.once):
            job.await_true(
                lambda name=name: watcher.rows(name) >= self.everything,  # type: ignore[misc]
                f"the last row of {name}",
            )

    def check(self, watcher: Watcher) -> None:
        """Each row was seen once, and stands in its place where that is promised."""
        for name in (self.same, self.once):
            assert watcher.rows(name) == self.everything
        in_order = {p: list(range(self.count)) for p in range(PARTS)}
        assert stored(self.service_url, self.same) == in_order
        in_any_order = stored(self.service_url, self.once)
        assert in_any_order != in_order
        assert {p: sorted(some) for p, some in in_any_order.items()} == in_order


def stored(service_url: str, topic: str) -> dict[int, list[int]]:
    """Numbers of the rows that can be read, by partition of the source, in order."""
    found: dict[int, list[int]] = {}
    for row in official.read_back(service_url, topic, partitions=PARTS):
        assert row.value is not None
        source, number = row.value.decode().split(":")
        found.setdefault(int(source), []).append(int(number))
    return dict(sorted(found.items()))


@pytest.fixture
def topics(
    topic: str, service_url: str, admin: Admin, namespace: str
) -> Callable[[int], Topics]:
    """Makes topics with so many rows in each partition of the source."""

    def make(count: int) -> Topics:
        admin.set_deduplication(namespace, enabled=True)
        same = f"persistent://{namespace}/same"
        made = Topics(service_url, f"{topic}-source", same, f"{topic}-once", count)
        made.make(admin)
        return made

    return make


def run(
    queries: Sequence[Query], log: Path, act: Callable[[Job], None], stand: str = ""
) -> None:
    """Runs queries until something is done, and kills them.

    Spark waits 10 s for a Python process to come up, and gives up otherwise. A busy
    machine may need longer; it is one crash more then.
    """
    for attempt in range(6):
        with Job(queries, log.with_name(f"{log.name}-{attempt}"), stand=stand) as job:
            try:
                act(job)
            except AssertionError:
                if "Python worker failed to connect back" not in job.output:
                    raise
            else:
                job.kill()
                return
    raise AssertionError("this machine is too busy")


def await_batches(
    job: Job, query: Query, count: int, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Waits until a query has committed so many more, or has no more to commit."""
    wanted = len(query.committed) + count
    job.await_true(
        lambda: len(query.committed) >= wanted or is_over(), f"{count} batches"
    )


# -- the whole process -----------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """When to kill a run.

    Attributes:
        stand: Where the exactly-once query stands still in its next micro-batch but
            one, "" for nowhere.
        delay_s: How long after its first new micro-batch otherwise.
    """

    stand: str = ""
    delay_s: float = 0.0


STEPS = (
    "before prepared",
    "after prepared",
    "after first end",
    "after ends",
    "before committed",
    "after committed",
    "after forgotten",
)


def every_moment(seed: int) -> list[Moment]:
    """Between every two steps of a commit, and at random."""
    at = random.Random(seed)
    found = [Moment(stand) for stand in STEPS]
    found += [Moment(delay_s=at.uniform(0, 1.5)) for _ in range(4)]
    at.shuffle(found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(
            [Moment("after first end")], id="done-by-half", marks=pytest.mark.matrix
        ),
        pytest.param(every_moment(seed=5), id="everywhere", marks=pytest.mark.soak),
    ],
)
def test_killed_at_every_step_and_at_random(
    topics: Callable[[int], Topics],
    admin: Admin,
    tmp_path: Path,
    moments: list[Moment],
) -> None:
    """Every row once, under either guarantee; those of a batch appear at its commit."""
    made = topics(90 * (len(moments) + 1))
    same, once = made.queries(tmp_path, 90)
    with Watcher(made.service_url, [made.same, made.once], PARTS) as watcher:
        for turn, moment in enumerate(moments):
            began = time.monotonic()
            batch = len(once.committed) + 1

            def act(job: Job, moment: Moment = moment, batch: int = batch) -> None:
                if moment.stand:
                    job.await_true(lambda: job.stands, str(moment))
                    check_standing(watcher, made.once, once, batch, moment.stand)
                else:
                    job.await_true(lambda: len(once.committed) >= batch, "a batch")
                    time.sleep(moment.delay_s)

            # Entries are cut anew each time.
            size = str([1000, 7, 20, 13][turn % 4])
            sink = {**(same.sink or {}), "pulsar.producer.batchingMaxMessages": size}
            stand = moment.stand and f"{moment.stand}:{batch}"
            both = [replace(same, sink=sink), once]
            run(both, tmp_path / f"log-{turn}", act, stand)
            sys.stdout.write(
                f"{moment} {time.monotonic() - began:.1f} s,"
                f" {len(same.committed)} and {len(once.committed)} committed\n"
            )
            if turn % 4 == 1:  # everybody looks its topics up anew
                for name in (made.source, made.same, made.once):
                    admin.unload(part(name, turn % PARTS))
        eager = [
            replace(one, options={**one.options, "maxRowsPerTrigger": "3000"})
            for one in (same, once)
        ]
        run(eager, tmp_path / "log-last", lambda job: made.await_all(job, watcher))
        made.check(watcher)


def check_standing(
    watcher: Watcher, topic: str, query: Query, batch: int, step: str
) -> None:
    """What can be seen while the commit of a micro-batch stands still."""
    before = rows_before(query, batch)
    after = rows_before(query, batch + 1)
    assert before < after
    if step in ("before prepared", "after prepared"):
        await_true(lambda: watcher.rows(topic) >= before, "the rows before", PATIENCE_S)
        assert watcher.rows(topic) == before
    elif step == "after first end":
        assert watcher.rows(topic) <= after
    else:
        await_true(lambda: watcher.rows(topic) >= after, "its rows", PATIENCE_S)
        assert watcher.rows(topic) == after


def rows_before(query: Query, batch: int) -> Counter[str]:
    """The rows of the micro-batches before this one: entries are rows there."""
    if not batch:
        return Counter()
    last_read = query.offset(batch - 1).last_read
    return Counter(
        f"{topic.rpartition('-')[2]}:{number}"
        for topic, last in last_read.items()
        for number in range(last.entry_id + 1)
    )


# -- a part of it ----------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.slow
def test_workers_are_killed(topics: Callable[[int], Topics], tmp_path: Path) -> None:
    """Spark tries their tasks again, and nothing shows."""
    made = topics(240)
    at = random.Random(7)
    both = made.queries(tmp_path, 90, **{"spark.master": "local[2,4]"})

    with Watcher(made.service_url, [made.same, made.once], PARTS) as watcher:

        def act(job: Job) -> None:
            killed = 0
            while killed < 3:
                await_batches(job, both[1], 1)
                time.sleep(at.uniform(0, 0.3))
                for worker in at.sample(job.workers(), 1):
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                        killed += 1
            sys.stdout.write(f"{killed} workers killed\n")
            made.await_all(job, watcher)

        run(both, tmp_path / "log", act)
        made.check(watcher)


@pytest.mark.soak
@pytest.mark.slow
def test_a_run_is_stopped_and_overtaken(
    topics: Callable[[int], Topics], tmp_path: Path
) -> None:
    """When it goes on it cannot commit what the next run has written meanwhile."""
    made = topics(300)
    _, once = made.queries(tmp_path, 90)
    with (
        Watcher(made.service_url, [made.once], PARTS) as watcher,
        Job([once], tmp_path / "log-old", stand="before prepared:1") as old,
    ):
        old.await_true(lambda: old.stands, "the commit of batch 1")
        old.pause()
        run(
            [once],
            tmp_path / "log-new",
            lambda job: job.await_true(
                lambda: watcher.rows(made.once) >= made.everything, "the last row"
            ),
        )
        old.resume()
        old.release()
        await_true(lambda: "running twice" in old.output, "its end", PATIENCE_S)
        assert watcher.rows(made.once) == made.everything


@pytest.mark.slow
@pytest.mark.soak
def test_the_broker_is_killed(tmp_path: Path) -> None:
    """Queries go on, or are started again; with deduplication everywhere."""
    settings = {"brokerDeduplicationEnabled": "true"}
    with EmbeddedBroker(tmp_path / "broker", settings, progress=None) as broker:
        names = (f"persistent://public/default/{n}" for n in ("from", "same", "once"))
        made = Topics(broker.service_url, *names, count=600)
        admin = Admin(broker.admin_url)
        # A ledger ends with its broker, and goes when nobody asks for it any more.
        admin.set_retention("public/default", minutes=-1, size_mb=-1)
        made.make(admin)
        both = made.queries(tmp_path, 90)
        with Watcher(made.service_url, [made.same, made.once], PARTS) as watcher:
            with Job(both, tmp_path / "log") as job:
                await_batches(job, both[1], 1)
                broker.restart(kill=True)
                with suppress(AssertionError):  # a query may have failed
                    made.await_all(job, watcher)
            run(both, tmp_path / "log-2", lambda job: made.await_all(job, watcher))
            made.check(watcher)
