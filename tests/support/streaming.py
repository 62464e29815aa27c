# SPDX-License-Identifier: Apache-2.0
"""Streaming queries of a process of their own, which a test may kill, and their traces.

::

    query = Query(tmp_path / "query", {"service.url": url, "topic": topic})
    with Job([query], tmp_path / "log") as job:
        job.await_true(lambda: 2 in query.committed, "batch 2")
        job.kill()
    assert query.rows() == {0: [0, 1, 2], 1: [0, 1, 2]}

A query writes its rows to JSON files in a folder, beside its checkpoint, or to a topic.
Rows are numbered from 0 in each topic partition, in their order, see
``publish_numbers``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from tests.support.official import produce
from tests.support.session import environment, start_spark
from tests.support.standing import STAND
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulsar_spark.testing.admin import Admin

ROOT = Path(__file__).parents[2]

#: What a job reads when its queries are to start.
GO = b"g"

#: What queries need of each row beside its value.
COLUMNS = "__partition,__key,__position"

#: The value that a copy has.
PLACE_AND_VALUE = (
    "concat_ws(' ', __partition, __position.ledgerId, __position.entryId,"
    " __position.batchIndex, STRING(value)) AS value"
)

#: Bounds a failure; says nothing about how long anything should take.
PATIENCE_S = 400.0


@dataclass(frozen=True)
class Query:
    """A query from a topic into JSON files, or into another topic.

    Attributes:
        folder: Holds its checkpoint and its rows.
        options: Of the source; ``metadataColumns`` is added.
        available_now: Ends by itself when it has read what there is.
        hold: The micro-batch in which it stops for ever, its offsets logged. Such a
            query writes no rows at all.
        sink: Options of the topic that the rows go to: their values are
            ``<partition>:<number>``, and their keys partitions. None for JSON files.
        shuffled: Whether the rows of a task are in another order at each attempt.
        copies: Whether rows go into the topic with their keys, and their values behind
            their places: the segment, the ledger, the entry and the number in it.
        conf: Settings of Spark. Those of the first query hold for all of a job.
    """

    folder: Path
    options: dict[str, str]
    available_now: bool = False
    hold: int | None = None
    sink: dict[str, str] | None = None
    shuffled: bool = False
    copies: bool = False
    conf: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_a_copy(
        cls,
        folder: Path,
        service_url: str,
        source: str,
        sink: str,
        rows: int,
        guarantee: str = "exactly-once",
    ) -> Query:
        """Copies a topic, so many rows in a micro-batch."""
        options = {
            "service.url": service_url,
            "topic": source,
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": str(rows),
        }
        into = {
            "service.url": service_url,
            "topic": sink,
            "deliveryGuarantee": guarantee,
        }
        return cls(folder, options, sink=into, copies=True)

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Starts it, or goes on with it."""
        loaded = (
            spark.readStream.format("pulsar")
            .options(**{"metadataColumns": COLUMNS, **self.options})
            .load()
        )
        frame = loaded.selectExpr(
            "__partition AS part",
            "CAST(CAST(value AS STRING) AS BIGINT) AS number",
        )
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        if self.sink is not None:
            rows = frame.selectExpr(
                "concat(part, ':', number) AS value", "CAST(part AS STRING) AS __key"
            )
            if self.copies:
                rows = loaded.selectExpr(PLACE_AND_VALUE, "STRING(__key) AS __key")
            if self.shuffled:
                from pyspark.sql.pandas import functions

                # It is asked for, and not used.
                vars(functions)["require_minimum_pandas_version"] = lambda: None
                rows = rows.repartition(2).mapInArrow(in_any_order, rows.schema)
            writer = rows.writeStream.options(**self.sink).option(
                "checkpointLocation", str(self.checkpoint)
            )
            if self.available_now:
                writer = writer.trigger(availableNow=True)
            return writer.format("pulsar").start()
        if self.hold is None:
            return writer.format("json").option("path", str(self._sink)).start()
        return writer.foreachBatch(self._take).start()

    def run(self, spark: SparkSession) -> None:
        """Runs it to its end, which it must have."""
        assert self.available_now
        query = self.start(spark)
        try:
            assert query.awaitTermination(int(PATIENCE_S)), "it did not end"
        finally:
            query.stop()

    def _take(self, frame: DataFrame, batch: int) -> None:
        if batch == self.hold:
            (self.folder / "held").touch()
            threading.Event().wait()
        frame.write.format("noop").mode("append").save()

    # -- what it leaves ----------------------------------------------------------------

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps its state."""
        return self.folder / "checkpoint"

    @property
    def _sink(self) -> Path:
        return self.folder / "rows"

    @property
    def is_held(self) -> bool:
        """Whether it has come to the micro-batch ``hold``."""
        return (self.folder / "held").exists()

    @property
    def planned(self) -> list[int]:
        """The micro-batches whose offsets are logged."""
        return _numbers_in(self.checkpoint / "offsets")

    @property
    def committed(self) -> list[int]:
        """The micro-batches that Spark has committed."""
        return _numbers_in(self.checkpoint / "commits")

    @property
    def written(self) -> list[int]:
        """The micro-batches whose rows count."""
        log = self._sink / "_spark_metadata"
        compacted = [int(path.stem) for path in log.glob("[0-9]*.compact")]
        return sorted([*_numbers_in(log), *compacted])

    def offset(self, batch: int) -> StreamOffset[LastRead]:
        """The end of a micro-batch, as logged."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return read_offset(json.loads(lines[2]))

    def rows(self) -> dict[int, list[int]]:
        """The numbers of each topic partition that has rows, in the order written."""
        found: dict[int, list[int]] = {}
        for name in self._files():
            for line in (self._sink / name).read_text().splitlines():
                row = json.loads(line)
                found.setdefault(row["part"], []).append(row["number"])
        return dict(sorted(found.items()))

    def _files(self) -> list[str]:
        """The files that count: those that Spark lists, in the order of the batches."""
        log = self._sink / "_spark_metadata"
        compacted = [int(path.stem) for path in log.glob("[0-9]*.compact")]
        names = [f"{max(compacted)}.compact"] if compacted else []
        names += [str(n) for n in self.written if n > max(compacted, default=-1)]
        files = []
        for name in names:
            entries = map(json.loads, (log / name).read_text().splitlines()[1:])
            # A task has one file for all its rows, and a topic partition one task.
            files += [Path(entry["path"]).name for entry in entries]
        return files


def in_any_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task in an order that nobody can foretell."""
    import pyarrow as pa

    table = pa.Table.from_batches(list(batches))
    order = random.SystemRandom().sample(range(len(table)), len(table))
    yield from table.take(pa.array(order, pa.int64())).combine_chunks().to_batches()


def _numbers_in(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    return []


def publish_numbers(
    service_url: str, topic: str, parts: Sequence[int], numbers: range, batch: int = 0
) -> None:
    """Writes the numbers, in order, to each of these partitions of a topic.

    Args:
        service_url: Of the broker.
        topic: Full name.
        parts: Numbers of partitions.
        numbers: What to write to each of them.
        batch: Messages of one batch, 0 for none: then entries are rows.
    """
    values = [str(number).encode() for number in numbers]

    def write(part: int) -> None:
        produce(service_url, f"{topic}-partition-{part}", values, batch=batch)

    with ThreadPoolExecutor(max(1, len(parts))) as writers:
        list(writers.map(write, parts))


def durable_backlogs(admin: Admin, topic_partition: str) -> dict[str, int]:
    """The durable subscriptions of a topic partition, and the entries before each."""
    found = admin.stats(topic_partition)["subscriptions"]
    return {name: one["msgBacklog"] for name, one in found.items() if one["isDurable"]}


class Job:
    """Some queries in a Spark of their own, in a session of processes of its own.

    Args:
        queries: What it runs.
        log: File for what it prints.
        module: Another module to run; it gets one argument for each of ``queries``.
        stand: Where the commit of an exactly-once stream stands still, see
            ``tests.support.standing``; "" for nowhere.
        waits: It starts Spark, but no query before ``go``.
        patience_s: How long it is waited for, Spark's own start included.
    """

    def __init__(
        self,
        queries: Sequence[Query] | Sequence[str],
        log: Path,
        module: str = "tests.support.streaming",
        *,
        stand: str = "",
        waits: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._patience_s = patience_s
        self._queries = [_to_json(q) if isinstance(q, Query) else q for q in queries]
        self._module = module
        self._waits = waits
        self._log = log
        self._stand = stand
        self._standing = log.with_name(f"{log.name}-standing")
        self._output: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Job:
        self._output = self._log.open("ab")
        stand = {STAND: f"{self._stand}@{self._standing}"} if self._stand else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *self._queries],
            # It ends when this does, or the process that it belongs to.
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            env={**environment(), **stand},
            cwd=self._log.parent,
            start_new_session=True,
        )
        if not self._waits:
            self.go()
        return self

    def go(self) -> None:
        """Lets it start its queries."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(GO)
        self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._output is not None
        self._process.wait(60)  # killed above
        self._process.stdin.close()
        self._output.close()

    def await_true(
        self, condition: Callable[[], bool], what: str, pause: float = 0.02
    ) -> None:
        """Waits for a condition; fails the test if the process ends before.

        Args:
            condition: Asked again and again.
            what: What is to happen, for the message.
            pause: Seconds between two times.
        """

        def holds() -> bool:
            is_over = self._process is None or self._process.poll() is not None
            if condition():
                return True
            assert not is_over, f"it ended before {what}: {self.output[-3000:]}"
            return False

        await_true(holds, what, self._patience_s, pause)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def stands(self) -> bool:
        """Whether it has come to where it stands still."""
        return self._standing.exists()

    def release(self) -> None:
        """Lets it go on from there."""
        self._standing.unlink()

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kills it and everything below it, as ``kill -9``; returns when all is gone.

        Spark's Python workers make themselves process groups of their own, so it is
        the session that tells what belongs to it.
        """
        self._signal_all(signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while self._signal_all(signal.SIGKILL):
            assert time.monotonic() < deadline, "it could not be killed"
            time.sleep(0.005)

    def pause(self) -> None:
        """Stops it where it stands, as ``kill -STOP``."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal_all(signal.SIGCONT)

    def workers(self) -> list[int]:
        """The Python processes that run tasks."""
        listing = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        assert self._process is not None
        parents = {}
        for line in listing.splitlines():
            pid, parent, command = line.split(None, 2)
            if command.endswith("-m pyspark.daemon pyspark.worker"):
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(int(pid)) == self._process.pid:
                        parents[int(pid)] = int(parent)
        # What the daemons themselves come from is no daemon.
        return [pid for pid, parent in parents.items() if parent in parents]

    def _signal_all(self, number: signal.Signals) -> int:
        """Signals all processes of the session, and returns how many there are."""
        assert self._process is not None
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,stat="],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        count = 0
        for line in listing.splitlines():
            pid, state = line.split()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                is_ours = os.getsid(int(pid)) == self._process.pid
                if is_ours and not state.startswith("Z"):
                    os.kill(int(pid), number)
                    count += 1
        return count


def _to_json(query: Query) -> str:
    return json.dumps({**vars(query), "folder": str(query.folder)})


def end_with_parent() -> threading.Event:
    """Makes this process end when its standard input does; tells when it may go."""
    may_go = threading.Event()

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be in the way of an exit
            may_go.set()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return may_go


def main(*specifications: str) -> None:
    """Runs queries until they end."""
    may_go = end_with_parent()
    given: list[dict[str, Any]] = [json.loads(one) for one in specifications]
    small = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    spark = start_spark(Path.cwd(), {**small, **given[0].get("conf", {})})
    may_go.wait()
    queries = []
    for one in given:
        query = Query(**{**one, "folder": Path(one["folder"])})
        query.folder.mkdir(parents=True, exist_ok=True)
        queries.append(query.start(spark))
    for running in queries:
        running.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
