# SPDX-License-Identifier: Apache-2.0
"""The Scala connector beside ours: ``make bench-peer PEER_JAR=<its jar>``.

Both read the same topic of the same broker in turns, each in its own Spark: ours in
that of the virtual environment, the other one in a JVM of its own with the Spark that
it was made for. Its jar is not ours to bring along: it is to be there already. The
table is saved as build/bench-peer.json, with --save in docs/, from where the picture of
``make bench`` takes the rival's bars.

Ends with 1, and says so, where the jar, Maven or a JDK is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulsar_spark import PulsarDataSource
from tests.bench import records
from tests.bench.__main__ import machine
from tests.bench.bench_cold import cold_read
from tests.bench.bench_decode import COLUMNS
from tests.bench.bench_sink import (
    new_topic,
    row_expressions,
    rows_to_write,
    save,
    sink_options,
)
from tests.bench.bench_small import SIZES, EntrySize
from tests.bench.bench_spark import read, to_noop
from tests.bench.bench_typed import read_records, topic_of_records
from tests.bench.cluster import ROOT, Cluster, Topic, cluster, note, spark_session
from tests.bench.plot import draw
from tests.bench.report import Case, Document, Measure, in_turns, table, wall
from tests.bench.rivals.programs import Program, class_path_of, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RIVAL = "Scala connector"

#: What we must reach of it.
_READ_TARGETS = {"six columns": 2.2, "value only": 3.0}
_COLD_TARGET = 1.0
_TYPED_TARGETS = {"AVRO": 2.5, "JSON": 1.0}

_PARTITIONS = 2
_SIZE_BYTES = 100


class _Write(NamedTuple):
    """A way to write that both have.

    Attributes:
        name: What the table calls it.
        target: How many times as fast ours should be.
        partitions: Of the topic.
        max_rows: No more, where each is slow.
        options: Of both.
    """

    name: str
    target: float
    partitions: int
    max_rows: int
    options: dict[str, str]


_BATCHING = "pulsar.producer.batching"
_TENS = {_BATCHING + "MaxMessages": "10"}
#: Batches by key are not among them: the other one cannot be told to make them.
_WRITES = (
    _Write("default batches", 2.0, 2, 4_000_000, {}),
    _Write("unbatched", 1.25, 2, 200_000, {_BATCHING + "Enabled": "false"}),
    _Write("batches of 10", 1.25, 2, 1_000_000, _TENS),
    _Write("batches of 10, 100 partitions", 1.25, 100, 1_000_000, _TENS),
)

_SPARK = "org.apache.spark:spark-sql_2.13:3.4.1"
#: What the Pulsar client within the connector's jar expects beside it.
_JACKSON = "com.fasterxml.jackson.core:jackson-annotations:2.17.2"


@contextlib.contextmanager
def _rival(jar: Path) -> Iterator[Program]:
    """The other connector in a JVM of its own.

    Args:
        jar: The connector with what it needs besides Spark.
    """
    class_path = os.pathsep.join([str(jar), class_path_of([_SPARK, _JACKSON])])
    with tempfile.TemporaryDirectory() as folder:
        command = java_command("SparkProgram.java", class_path, folder, "pulsar")
        with Program(command, "peer") as program:
            yield program


def run(broker: Cluster, jar: Path, rows: int, repeats: int) -> Iterator[Case]:
    """First reads, reads and writes: ours, each beside that of the other one."""
    topic = broker.topic(rows, _SIZE_BYTES, _PARTITIONS)
    yield from _cold(broker, jar, topic, repeats)
    with _rival(jar) as peer, spark_session() as spark:
        spark.dataSource.register(PulsarDataSource)
        counted = peer.ask("count", broker.service_url, topic.name)
        assert counted == topic.rows, f"{counted} rows of {topic.rows}"
        measures: dict[str, Measure] = {}
        for name, columns in COLUMNS.items():
            words = "read", broker.service_url, topic.name, ",".join(columns)
            measures[f"peer {name}"] = partial(peer.ask, *words)
            load = partial(read, broker, spark, topic, name)
            measures[name] = wall(partial(to_noop, load))
        note("both read")
        seconds = in_turns(measures, repeats)
        for name, target in _READ_TARGETS.items():
            yield _case(
                topic, f"100 B, {name}", seconds[name], seconds[f"peer {name}"], target
            )
        for kind, target in _TYPED_TARGETS.items():
            yield _typed(broker, peer, spark, kind, target, rows, repeats)
        for size in SIZES:
            yield from _small(broker, peer, spark, size, rows, repeats)
        for write in _WRITES:
            yield _write(broker, peer, spark, write, topic.rows, repeats)


def _write(
    broker: Cluster,
    peer: Program,
    spark: SparkSession,
    write: _Write,
    rows: int,
    repeats: int,
) -> Case:
    note(f"both write {write.name}")
    rows = min(rows, write.max_rows)
    expressions = row_expressions(_SIZE_BYTES)
    peer.ask("rows", rows, _PARTITIONS, *expressions)
    with broker.further_namespace() as namespace:
        frame = rows_to_write(spark, rows, _SIZE_BYTES).cache()
        assert frame.count() == rows
        own, other = (new_topic(broker, namespace, write.partitions) for _ in "ab")
        # Without the former it fails once its client's memory is full.
        given = {"pulsar.producer.blockIfQueueFull": "true"} | write.options
        words = [f"{name}={value}" for name, value in given.items()]
        options = sink_options(broker, own) | write.options
        seconds = in_turns(
            {
                "peer": partial(peer.ask, "write", broker.service_url, other, *words),
                "ours": wall(partial(save, frame, "pulsar", options)),
            },
            repeats,
        )
        frame.unpersist()
    return Case(
        "peer",
        f"100 B, at-least-once, {write.name}",
        rows,
        rows * _SIZE_BYTES,
        seconds["ours"],
        _RIVAL,
        seconds["peer"],
        write.target,
    )


def _typed(
    broker: Cluster,
    peer: Program,
    spark: SparkSession,
    kind: str,
    target: float,
    rows: int,
    repeats: int,
) -> Case:
    topic = topic_of_records(broker, kind, rows)
    note(f"both read records in {kind}")
    load = partial(read_records, broker, spark, topic)
    words = "read", broker.service_url, topic.name, ",".join(records.ARROW.names)
    measures: dict[str, Measure] = {
        "peer": partial(peer.ask, *words),
        "ours": wall(partial(to_noop, load)),
    }
    seconds = in_turns(measures, repeats)
    what = f"{kind}, 5 columns of {topic.size_bytes} B"
    return _case(topic, what, seconds["ours"], seconds["peer"], target)


def _small(
    broker: Cluster,
    peer: Program,
    spark: SparkSession,
    size: EntrySize,
    rows: int,
    repeats: int,
) -> Iterator[Case]:
    topic = size.topic(broker, rows)
    note(f"both read {size.name}")
    columns = ",".join(COLUMNS["six columns"])
    load = partial(read, broker, spark, topic, "six columns")
    words = "read", broker.service_url, topic.name, columns
    measures: dict[str, Measure] = {
        "peer": partial(peer.ask, *words),
        "ours": wall(partial(to_noop, load)),
    }
    seconds = in_turns(measures, repeats)
    yield _case(topic, size.name, seconds["ours"], seconds["peer"], size.to_peer)


def _cold(broker: Cluster, jar: Path, topic: Topic, repeats: int) -> Iterator[Case]:
    note("both read in fresh processes")
    columns = ",".join(COLUMNS["six columns"])
    ours, others = [], []
    for _ in range(repeats):
        began = time.monotonic()
        with _rival(jar) as peer:
            seconds = peer.ask("read", broker.service_url, topic.name, columns)
            others.append((time.monotonic() - began, seconds))
        ours.append(cold_read(broker, topic))
    for number, what in enumerate(("from its process on", "its read")):
        yield _case(
            topic,
            f"cold, 100 B, six columns, {what}",
            [both[number] for both in ours],
            [both[number] for both in others],
            _COLD_TARGET,
        )


def _case(
    topic: Topic, what: str, ours: list[float], other: list[float], target: float
) -> Case:
    return Case(
        "peer", what, topic.rows, topic.value_bytes, ours, _RIVAL, other, target
    )


def main() -> None:
    """Runs both and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jar", type=Path, default=os.environ.get("PEER_JAR"), help="or $PEER_JAR"
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="in docs/, not in build/")
    arguments = parser.parse_args()
    if not arguments.jar or not arguments.jar.is_file():
        sys.exit("No jar of the Scala connector: make bench-peer PEER_JAR=<its jar>")
    for program in ("mvn", "java", "javac"):
        if not shutil.which(program):
            sys.exit(f"No {program}: its Spark needs Maven and a JDK 17.")
    with _rival(arguments.jar):  # downloads and compiles, which are not to be counted
        pass
    before = {**machine(), "beside": arguments.jar.name}
    with cluster() as broker:
        repeats = arguments.repeat
        cases = [*run(broker, arguments.jar, arguments.rows, repeats)]
    print(table(cases))
    folder = ROOT / ("docs" if arguments.save else "build")
    Document(before, cases).write(folder / "bench-peer.json")
    if (folder / "bench.json").exists():
        draw(folder)


if __name__ == "__main__":
    main()
