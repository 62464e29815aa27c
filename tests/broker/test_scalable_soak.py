# SPDX-License-Identifier: Apache-2.0
"""A topic that is migrated, split and merged all the time, and its copies.

The official client writes numbers with keys. A stream of ours copies them exactly once
into another topic, which is split and merged as well. The official client's checkpoint
consumer copies them into a file. Both are killed at random, and started again::

    Java's producer --> source --> our stream   --> sink, compared row by row
                               --> Java's copy  --> file, counted

``make soak-scalable MINUTES=30`` says for how long.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.broker.test_scalable import load, put_json
from tests.support.scalable import PULSAR_5, ScalableTopic, official_client
from tests.support.streaming import COLUMNS, PLACE_AND_VALUE, Job, Query
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

MINUTES = float(os.environ.get("PULSAR_SPARK_SOAK_MINUTES", "4"))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(60 * MINUTES + 1800),
]

#: Of the official client's, in a second.
ROWS_PER_S = 400


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of Pulsar 5 that deletes nothing."""
    with EmbeddedBroker(version=PULSAR_5) as started:
        forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        path = "/admin/v2/namespaces/public/default/retention"
        put_json(started, path, forever, "POST")
        yield started


@pytest.fixture(scope="module")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the official client, which is compiled once."""
    return official_client(tmp_path_factory.mktemp("java"))


class Copier:
    """The official client's copy of a topic, which is killed and goes on."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = [*command, str(folder)]
        self._folder = folder
        folder.mkdir()
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Goes on from its last checkpoint."""
        self.starts += 1
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """As ``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def go_on(self) -> None:
        """Starts it where it has ended by itself."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    @property
    def rows(self) -> list[str]:
        """What it has received."""
        file = self._folder / "rows"
        return file.read_text().split() if file.exists() else []


def divide(topic: ScalableTopic, chosen: random.Random) -> str:
    """Splits a segment or merges two; returns which."""
    with suppress(AssertionError):  # the broker is at it itself
        return topic.divide(chosen, chosen.randint(3, 6))
    return "refused"


@contextmanager
def dividing(topics: Sequence[ScalableTopic], done: Counter[str]) -> Iterator[None]:
    """Acts on the topics every few seconds."""
    over = threading.Event()
    chosen = random.Random(11)

    def act() -> None:
        while not over.wait(chosen.uniform(1, 5)):
            done[divide(chosen.choice(topics), chosen)] += 1

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def migrate(topic: ScalableTopic) -> None:
    """Makes a scalable topic of an ordinary one, while it is written and read."""
    await_true(
        lambda: topic.ask("POST", "/migrate") == 204, "the migration", 120.0, 1.0
    )


def test_copies_of_a_topic_that_changes(
    spark: SparkSession,
    broker: EmbeddedBroker,
    java_client: list[str],
    tmp_path: Path,
) -> None:
    """Ours has each row once, and the rows of each key in their order."""
    stamp = time.monotonic_ns()
    name = f"persistent://public/default/soak-{stamp}"
    path = f"/admin/v2/persistent/public/default/soak-{stamp}/partitions"
    put_json(broker, path, 2)
    chosen, done = random.Random(7), Counter[str]()
    with ExitStack() as stack:
        source = stack.enter_context(closing(ScalableTopic(broker, f"soak-{stamp}")))
        sink = stack.enter_context(
            closing(ScalableTopic(broker, f"sink-{stamp}", segments=2))
        )
        query = Query.of_a_copy(
            *(tmp_path / "query", broker.service_url, name, sink.name, 5000)
        )
        writer = subprocess.Popen(
            [*java_client, "write", broker.service_url, name, str(ROWS_PER_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(writer.kill)
        copier = Copier(
            [*java_client, "copy", broker.service_url, source.name], tmp_path / "java"
        )
        stack.callback(copier.kill)
        # Its first row comes with the schema, without which queries would begin.
        await_true(lambda: load(spark, broker, topic=name).count() > 0, "a row")
        until = time.monotonic() + 60 * MINUTES
        migrated = False
        acts = stack.enter_context(ExitStack())
        while time.monotonic() < until:
            done["our starts"] += 1
            planned = max(query.planned, default=-1)
            with Job([query], tmp_path / f"log-{done['our starts']}") as job:
                # On a busy machine Spark takes long to start. Each start gets on.
                job.await_true(
                    lambda planned=planned: max(query.planned, default=-1) > planned,
                    "a micro-batch",
                )
                time.sleep(chosen.uniform(0, 10))
                if not migrated:
                    migrate(source)
                    migrated = True
                    acts.enter_context(dividing([source, sink], done))
                # The consumer refuses topics that were not migrated.
                copier.go_on()
                time.sleep(chosen.uniform(5, 30))
                if chosen.random() < 0.5:
                    copier.kill()
                assert job.is_running, job.output[-3000:]
        acts.close()
        out, _ = writer.communicate("end\n", timeout=120)
        acknowledged, failed = map(int, out.split())
        copier.go_on()
        finish(query, tmp_path)
        await_still(copier)
        report(spark, broker, source, sink, copier, done, (acknowledged, failed))


def finish(query: Query, folder: Path) -> None:
    """Runs our query until it has read all there is."""
    rest = replace(query, available_now=True)
    # Each generation of segments takes a micro-batch.
    patience_s = max(600.0, 60 * MINUTES)
    for number in range(2):  # what is sealed last has its children in the second
        with Job([rest], folder / f"last-{number}") as job:
            await_true(lambda job=job: not job.is_running, "its end", patience_s, 0.5)
            assert "Traceback" not in job.output.rpartition("batchId")[2]


def await_still(copier: Copier) -> None:
    """Waits until the official client receives nothing more for a while."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < 30:
        copier.go_on()
        time.sleep(1)
        if len(copier.rows) != count:
            count, since = len(copier.rows), time.monotonic()


def report(
    spark: SparkSession,
    broker: EmbeddedBroker,
    source: ScalableTopic,
    sink: ScalableTopic,
    copier: Copier,
    done: Counter[str],
    writer: tuple[int, int],
) -> None:
    """Compares the copies with the source, and prints what was seen."""
    sent = rows_of(spark, broker, source, PLACE_AND_VALUE)
    ours = rows_of(spark, broker, sink, "STRING(value) AS value")
    theirs = [(str(int(value) % 50), value) for value in copier.rows]
    plain = [(key.removeprefix("k"), row.split()[-1]) for key, row in sent]
    table = {
        "minutes": MINUTES,
        "acts": dict(done),
        "acknowledged and failed sends": writer,
        "rows in the source": len(sent),
        "of these sent twice by the official producer": len(plain) - len(set(plain)),
        "ours": differences(sent, ours),
        "the official checkpoint consumer": {
            "starts": copier.starts,
            **differences(plain, theirs),
        },
    }
    sys.stdout.write(f"\n{json.dumps(table, indent=2)}\n")
    assert len({value for _, value in plain}) >= writer[0]
    assert differences(sent, ours) == {"lost": 0, "repeated": 0, "out of order": 0}


def rows_of(
    spark: SparkSession, broker: EmbeddedBroker, topic: ScalableTopic, value: str
) -> list[tuple[str, str]]:
    """The keys and values of a topic, parents before their children."""
    frame = load(spark, broker, topic=topic.name, metadataColumns=COLUMNS)
    rows = frame.selectExpr("STRING(__key) AS name", value).collect()
    return [(row["name"], row["value"]) for row in rows]


def differences(
    source: list[tuple[str, str]], copy: list[tuple[str, str]]
) -> dict[str, int]:
    """How often a row lacks, is there once more, or comes behind a later one."""
    sent, had = Counter(source), Counter(copy)
    places: dict[tuple[str, str], int] = {}
    for place, row in enumerate(source):
        places.setdefault(row, place)
    last: dict[str, int] = defaultdict(lambda: -1)
    misplaced = 0
    seen: set[tuple[str, str]] = set()
    for row in copy:
        if row in seen or row not in places:
            continue
        seen.add(row)
        misplaced += places[row] < last[row[0]]
        last[row[0]] = max(last[row[0]], places[row])
    return {
        "lost": (sent - had).total(),
        "repeated": (had - sent).total(),
        "out of order": misplaced,
    }
