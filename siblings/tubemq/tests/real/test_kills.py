# SPDX-License-Identifier: Apache-2.0
"""Streams in a Spark of their own: all is killed inside of a micro-batch.

``maxRowsPerTrigger`` cuts what is stored into micro-batches. A task of one is held in
the middle of its rows; then a Python worker dies, or the broker, or all of Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from siblings.tubemq.tests.real.servers import (
    FLUSH_S,
    send,
    values_of,
)
from siblings.tubemq.tests.support.servers import TubeMQ
from tests.support.streaming import Job, Query
from tests.support.waiting import await_true

pytestmark = [pytest.mark.slow, pytest.mark.soak]

#: Far more than the buffers hold between a broker and the task that reads.
COUNT, PADDING = 240, b"." * 100_000

#: Of a job, of which minutes are Spark's where the machine is busy; and of its queries:
#: far less, so that one that waits in vain ends, and says for what.
PATIENCE_S, DEADLINE_MS = 900.0, "120000"
MODULE = "siblings.tubemq.tests.real.job"


def specification(
    tube: TubeMQ, query: Query, topic: str, sink: dict[str, str] | None
) -> str:
    servers = {"master.rpc": tube.masters, "operation.timeout": DEADLINE_MS}
    options = {
        **servers,
        "topic": topic,
        "group": f"tests-{query.folder.name}",
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": str(COUNT // 2),
    }
    if sink is not None:
        sink = {**servers, **sink}
    return json.dumps({"folder": str(query.folder), "options": options, "sink": sink})


class Held:
    """A query whose tasks stand in the middle of their rows while this is entered.

    Args:
        job: Of the query.
        query: That is to stand.
        give: Writes rows for it, while it may take none yet.
    """

    def __init__(self, job: Job, query: Query, give: Callable[[], None]) -> None:
        self._job = job
        self._give = give
        self._hold, self._held = query.folder / "hold", query.folder / "held"

    def __enter__(self) -> None:
        # Whoever stood here last must have gone on: it would not say that it stands.
        self._held.unlink(missing_ok=True)
        self._hold.touch()
        self._give()
        self._job.await_true(self._held.exists, "a task in the middle of its rows")

    def __exit__(self, *_: object) -> None:
        self._hold.unlink()


def job(folder: Path, query: str) -> Job:
    return Job([query], folder / "log", MODULE, patience_s=PATIENCE_S)


def kill_workers(job: Job) -> None:
    """Kill the Python processes that run tasks."""
    workers = job.workers()
    assert workers
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def give(tube: TubeMQ, topic: str, part: int) -> None:
    """Write the next rows, which are several micro-batches, to the disk."""
    rows = range(part * COUNT, (part + 1) * COUNT)
    send(tube, topic, (b"%d %s" % (n, PADDING) for n in rows), confirm_flush=True)


def numbers(query: Query) -> Counter[int]:
    return Counter(number for part in query.rows().values() for number in part)


def test_a_stream_into_files_has_each_row_once(tube: TubeMQ, tmp_path: Path):
    query = Query(tmp_path / "files", {})
    query.folder.mkdir()
    given = specification(tube, query, "cut", None)

    def held(running: Job, part: int) -> Held:
        return Held(running, query, lambda: give(tube, "cut", part))

    def await_rows(running: Job, parts: int, after: str) -> None:
        running.await_true(
            lambda: len(numbers(query)) == parts * COUNT, f"all rows after {after}"
        )

    with job(tmp_path, given) as running:
        with held(running, 0):
            kill_workers(running)
        await_rows(running, 1, "the kill of tasks")
        with held(running, 1):
            tube.stop_broker(kill=True)
            tube.start_broker()
        await_rows(running, 2, "the kill of the broker")
        with held(running, 2):
            tube.stop_broker()
            tube.start_broker()
        await_rows(running, 3, "the restart of the broker")
        with held(running, 3):
            running.kill()
    assert len(numbers(query)) < 4 * COUNT
    with job(tmp_path, given) as running:
        await_rows(running, 4, "the kill of the driver")
    found = numbers(query)
    assert sorted(found) == list(range(4 * COUNT))
    assert set(found.values()) == {1}


def test_a_stream_into_a_topic_loses_nothing(tube: TubeMQ, tmp_path: Path):
    """At least once, with ``confirm.flush``: also over a broker that is killed."""
    query = Query(tmp_path / "topic", {})
    query.folder.mkdir()
    sink = {
        "topic": "cut_copy",
        "confirm.flush": "true",
        "send.timeout": DEADLINE_MS,
    }
    given = specification(tube, query, "cut_again", sink)

    def held(running: Job, part: int) -> Held:
        return Held(running, query, lambda: give(tube, "cut_again", part))

    def copied() -> set[int]:
        return {int(value) for value in values_of(tube, "cut_copy")}

    def await_rows(running: Job, parts: int, after: str) -> None:
        running.await_true(
            lambda: copied() >= set(range(parts * COUNT)),
            f"all rows after {after}",
            pause=1.0,
        )

    with job(tmp_path, given) as running:
        with held(running, 0):
            tube.stop_broker(kill=True)
            tube.start_broker()
        await_rows(running, 1, "the kill of the broker")
        with held(running, 1):
            kill_workers(running)
        await_rows(running, 2, "the kill of tasks")
        with held(running, 2):
            running.kill()
    assert len(copied()) < 3 * COUNT
    with job(tmp_path, given) as running:
        await_rows(running, 3, "the kill of the driver")
    assert copied() == set(range(3 * COUNT))


@pytest.mark.parametrize("confirms", [True, False])
def test_what_was_confirmed_outlives_a_broker_that_is_killed(
    tube: TubeMQ, confirms: bool
):
    """And without confirmation the last seconds are lost, as the documents say."""
    topic = "confirmed" if confirms else "unconfirmed"
    send(tube, topic, (b"%d" % n for n in range(300)), confirm_flush=confirms)
    tube.stop_broker(kill=True)
    tube.start_broker()
    await_true(lambda: tube.is_live(topic), "the topic", FLUSH_S)
    found = {int(value) for value in values_of(tube, topic, read_unflushed=True)}
    if confirms:
        assert found == set(range(300))
    else:
        assert len(found) < 300
