# SPDX-License-Identifier: Apache-2.0
"""What a row costs where brokers have a core for themselves: ``make bench-pinned``.

Brokers run on one core. The processes that read or write run on another core, the JVM
and the Python workers of Spark among them, and only their processor time counts. Each
job has two sizes, and the difference of both times is divided by the difference of
their rows: the time to start, to plan and to connect is in both. The smaller job runs
once before them and does not count, since Spark ends Python workers that are idle for
a minute. All jobs run in turns, after a round that warms up.

*Hand-over* is the time of Spark alone: a Python source has its RecordBatches ready, and
a Python sink drops all rows.

The table is printed, and saved as build/bench-pinned.json; with --save in docs/, from
where ``make generate-docs`` takes the table. The line of a rival that cannot run says
why.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.bench.__main__ import machine
from tests.bench.bench_sink import row_expressions
from tests.bench.cluster import ROOT, note
from tests.bench.rivals.__main__ import (
    PARTITIONS,
    Broker,
    Rival,
    rivals,
    start_brokers,
)
from tests.bench.rivals.costs import Cost, table, us_of_a_row
from tests.bench.rivals.programs import FOLDER, CpuTimes, Program, on_core
from tests.bench.rivals.results import save

#: Rows of the larger job for each of the smaller one.
_TIMES = 4


@dataclass(frozen=True)
class Values:
    """Values of one size.

    Attributes:
        name: What the table calls them.
        size_bytes: Of each.
        fewer: By how much fewer of them are read and written than of the smallest.
    """

    name: str
    size_bytes: int
    fewer: int


_VALUES = (Values("100 B", 100, 1), Values("1 KiB", 1024, 8))


@dataclass(frozen=True)
class _Job:
    """A read or a write.

    Attributes:
        url: Of the broker.
        topic: To read or to write.
        rows: How many.
        size_bytes: Of each value.
    """

    url: str
    topic: str
    rows: int
    size_bytes: int


#: Words of a command.
Words = Callable[[_Job], Sequence[object]]


@dataclass(frozen=True)
class _Line:
    """A line of the table.

    Attributes:
        name: Of the line.
        rival: The processes that read and write.
        read: The command to read.
        write: The command to write rows; None for a line of reads only.
        rows: The last word of the command that makes those rows, by the values' size.
        has_broker: Whether a broker takes part.
    """

    name: str
    rival: Rival
    read: Words
    write: Words | None
    rows: Callable[[int], object] = lambda size_bytes: row_expressions(size_bytes)[0]
    has_broker: bool = True


def _read(job: _Job) -> Sequence[object]:
    return "read", job.url, job.topic, "value"


def _write(job: _Job) -> Sequence[object]:
    return "write", job.url, job.topic


def _ready(columns: str) -> Words:
    return lambda job: ("ready", columns, job.rows, PARTITIONS, job.size_bytes)


def _lines() -> Iterator[_Line]:
    """Return all readers and writers, ours first."""
    own, scala, _, java_client, python_client, kafka = rivals()
    yield _Line(
        own.name, own, lambda job: (*_read(job), "metadataColumns=none"), _write
    )
    hand_over = "Spark's hand-over alone"
    yield _Line(
        hand_over, own, _ready("value only"), lambda _: ("drop",), has_broker=False
    )
    yield _Line("pulsar-spark, six columns", own, _read, None)
    yield _Line(
        f"{hand_over}, six columns", own, _ready("six columns"), None, has_broker=False
    )
    # This release cannot write here: Spark 3.1.3 refuses an option as topic, and
    # with a column for the topic, two tasks that upload the schema at once fail.
    yield _Line(scala.name, scala, _read, None)
    for client in (java_client, python_client):
        yield _Line(client.name, client, _read, _write, lambda size_bytes: size_bytes)
    yield _Line(kafka.name.replace("source", "source and sink"), kafka, _read, _write)


class _Comparison:
    """All lines with values of one size.

    Args:
        brokers: By system.
        lines: Of the table.
        values: To read and to write.
        rows: Of the smaller job.
    """

    def __init__(
        self,
        brokers: dict[str, Broker],
        lines: Sequence[_Line],
        values: Values,
        rows: int,
    ) -> None:
        self.costs = {line: Cost(values.name, line.name) for line in lines}
        self._brokers = brokers
        self._values = values
        self._rows = rows // values.fewer, rows // values.fewer * _TIMES
        self._programs: dict[Rival, Program] = {}
        self._filled: dict[tuple[str, int], str] = {}

    def each(self, work: Callable[[_Line], None]) -> None:
        """Do some work for each line that has not failed yet."""
        for line, cost in self.costs.items():
            if cost.failure:
                continue
            try:
                work(line)
            except Exception as error:  # of a rival, which is no reason to end here
                lines = str(error).strip().splitlines() or [type(error).__name__]
                cost.failure = lines[0]
                note(f"{line.name}: {error}")

    def start(self, stack: contextlib.ExitStack, core: int, line: _Line) -> None:
        """Start the process of a line on a core, unless the process runs already."""
        rival = line.rival
        if rival in self._programs:
            return
        note(f"starting {rival.name}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER))
        command = rival.command(folder, self._brokers[rival.system])
        with on_core(core):
            program = Program(command, f"pinned-{len(self._programs)}")
        self._programs[rival] = stack.enter_context(program)

    def fill(self) -> None:
        """Fill a topic for each size of job on each system, by the first rival."""
        firsts = {line.rival.system: line for line in reversed(self.costs)}
        for system, line in firsts.items():
            for rows in self._rows:
                note(f"writing {rows:,} rows of {self._values.name} to {system}")
                topic = self._topic(system, f"read-{rows}")
                self._filled[system, rows] = topic
                self._give(line, rows)
                self._ask(line, _write, topic, rows)

    def check(self, line: _Line) -> None:
        """Count the rows of each topic to read."""
        if line.has_broker:
            for rows in self._rows:
                self._count(line, self._filled[line.rival.system, rows], rows)

    def _topic(self, system: str, name: str) -> str:
        """Create a topic; return its name."""
        return self._brokers[system].create(f"pinned-{self._values.size_bytes}-{name}")

    def _give(self, line: _Line, rows: int) -> None:
        """Make the rows to write in the process of a line."""
        last = line.rows(self._values.size_bytes)
        made = self._programs[line.rival].ask("rows", rows, PARTITIONS, last)
        assert made == rows, f"{made} rows of {rows}"

    def _count(self, line: _Line, topic: str, rows: int) -> None:
        """Count the rows of a topic, which has so many."""
        url = self._brokers[line.rival.system].url
        counted = self._programs[line.rival].ask("count", url, topic)
        if counted != rows:
            raise RuntimeError(f"counted {counted:,.0f} rows of {rows:,}")

    def _ask(self, line: _Line, words: Words, topic: str, rows: int) -> CpuTimes:
        """Run a job in the process of a line; return the processor time."""
        program = self._programs[line.rival]
        url = self._brokers[line.rival.system].url
        job = _Job(url, topic, rows, self._values.size_bytes)
        before = program.cpu_times
        program.ask(*words(job))
        after = program.cpu_times
        return CpuTimes(after.jvm_s - before.jvm_s, after.python_s - before.python_s)

    def read(self, line: _Line) -> None:
        """Read both topics, and add the time of a row to the costs."""
        _, few, many = (
            self._ask(line, line.read, self._filled[line.rival.system, rows], rows)
            for rows in (self._rows[0], *self._rows)
        )
        us = us_of_a_row(few, many, self._rows[1] - self._rows[0])
        self.costs[line].read_us.append(us)
        note(f"{line.name} reads: {us[0]:.2f} + {us[1]:.2f} us/row")

    def write(self, line: _Line) -> None:
        """Write twice to a new topic, and add the time of a row to the costs."""
        if line.write is None:
            return
        topic = self._topic(line.rival.system, uuid.uuid4().hex[:8])
        jobs = self._rows[0], *self._rows
        taken = []
        for rows in jobs:
            self._give(line, rows)
            taken.append(self._ask(line, line.write, topic, rows))
        if line.has_broker:
            self._count(line, topic, sum(jobs))
        us = us_of_a_row(taken[1], taken[2], self._rows[1] - self._rows[0])
        self.costs[line].write_us.append(us)
        note(f"{line.name} writes: {us[0]:.2f} + {us[1]:.2f} us/row")

    def forget(self) -> None:
        """Forget the round that was a warm-up."""
        for cost in self.costs.values():
            cost.read_us.clear()
            cost.write_us.clear()


def run(
    brokers: dict[str, Broker],
    lines: Sequence[_Line],
    values: Values,
    rows: int,
    repeats: int,
    core: int,
) -> Iterator[list[Cost]]:
    """Measure all lines; the cost of a rival that fails says why.

    Yields:
        All costs, after each round.
    """
    with contextlib.ExitStack() as stack:
        comparison = _Comparison(brokers, lines, values, rows)
        comparison.each(lambda line: comparison.start(stack, core, line))
        comparison.fill()
        comparison.each(comparison.check)
        for repeat in range(-1, repeats):
            comparison.each(comparison.read)
            comparison.each(comparison.write)
            if repeat < 0:
                comparison.forget()
            else:
                yield list(comparison.costs.values())


def main() -> None:
    """Measure the chosen lines, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help=f"of one job; {_TIMES} x the other"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--only", default="", help="words of names, with commas between"
    )
    parser.add_argument("--save", action="store_true", help="in docs/, not in build/")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("Brokers and readers need a core each.")
    words = arguments.only.split(",")
    lines = [line for line in _lines() if any(word in line.name for word in words)]
    rows = arguments.rows
    facts = {**machine(), "jobs of": f"{rows:,} and {rows * _TIMES:,} rows"}
    file = ROOT / ("docs" if arguments.save else "build") / "bench-pinned.json"
    costs: list[Cost] = []
    with contextlib.ExitStack() as stack:
        with on_core(cores[0]):
            systems = {line.rival.system for line in lines}
            brokers = stack.enter_context(start_brokers(systems))
        for values in _VALUES:
            before = costs
            for some in run(brokers, lines, values, rows, arguments.repeat, cores[1]):
                costs = before + some
                facts["load at the end"] = f"{os.getloadavg()[0]:.1f}"
                save(facts, costs, file)
    print(table(costs))


if __name__ == "__main__":
    main()
