# SPDX-License-Identifier: Apache-2.0
"""Measures each hop beside its limit: ``make bench``, or this module.

python -m tests.bench --only spark,sink --rows 4000000

The table is printed, and saved with every repeat as build/bench.json, and as a picture
build/bench.svg; with --save in docs/, from where ``make generate-docs`` takes it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from pulsar_spark import __version__, kernel
from pulsar_spark.testing.jars import DEFAULT_VERSION
from tests.bench import (
    bench_cold,
    bench_decode,
    bench_encode,
    bench_entries,
    bench_far,
    bench_far_plans,
    bench_frames,
    bench_latency,
    bench_live,
    bench_memory,
    bench_offsets,
    bench_partition,
    bench_planning,
    bench_protobuf,
    bench_recover,
    bench_sink,
    bench_small,
    bench_spark,
    bench_stream,
    bench_tasks,
    bench_tls,
    bench_typed,
    bench_values,
    bench_write,
)
from tests.bench.cluster import ROOT, Cluster, cluster, note, spark_session
from tests.bench.plot import draw
from tests.bench.report import Case, Document, table

_ALONE: dict[str, Callable[[int], list[Case]]] = {
    "tls": bench_tls.run,
    "frames": bench_frames.run,
    "entries": bench_entries.run,
    "decode": bench_decode.run,
    "values": lambda repeats: bench_values.run(repeats) + bench_protobuf.run(repeats),
    "live": bench_live.run,
    "encode": lambda repeats: (
        bench_encode.run(repeats)
        + bench_values.run_writes(repeats)
        + bench_sink.run_frames(repeats)
    ),
    "offsets": lambda repeats: _offsets(repeats),
}
#: Micro-batches in one run of a query.
_BATCHES = 12

#: Micro-batches without rows, and attempts that failed, in the life of a query.
_LIFE = 100_000, 10_000


def main() -> None:
    """Runs the hops asked for and prints the table."""
    arguments = _arguments()
    before = machine()
    cases: list[Case] = []
    try:
        _run(arguments, cases)
    finally:  # what was measured before a failure is worth seeing
        after = f"load at the end {os.getloadavg()[0]:.1f}"
        text = "\n".join(f"{key}: {value}" for key, value in before.items())
        print(f"\n{text}\n{after}, median of {arguments.repeat} repeats or more\n")
        print(table(cases))
        save(before, cases, ROOT / ("docs" if arguments.save else "build"))


def save(facts: dict[str, str], cases: list[Case], folder: Path) -> None:
    """Saves what was measured, if anything was."""
    if cases:
        Document(facts, cases).write(folder / "bench.json")
        draw(folder)
        note(f"saved {folder}/bench.json and bench.svg")


def _run(arguments: argparse.Namespace, cases: list[Case]) -> None:
    repeats = arguments.repeat
    with contextlib.ExitStack() as stack:
        broker = None
        if set(_WITH_BROKER) & set(arguments.only):
            broker = stack.enter_context(cluster())
        for hop in arguments.only:
            note(hop)
            if hop in _OWN_BROKER:
                cases += _OWN_BROKER[hop](arguments.rows, repeats)
            elif hop in _ALONE:
                cases += _ALONE[hop](repeats)
            else:
                assert broker is not None
                cases += _WITH_BROKER[hop](broker, arguments)


def _spark(broker: Cluster, arguments: argparse.Namespace) -> list[Case]:
    with spark_session() as spark:
        return bench_spark.run(broker, spark, arguments.rows, arguments.repeat)


def _typed(broker: Cluster, arguments: argparse.Namespace) -> list[Case]:
    with spark_session() as spark:
        return bench_typed.run(broker, spark, arguments.rows, arguments.repeat)


def _small(broker: Cluster, arguments: argparse.Namespace) -> list[Case]:
    with spark_session() as spark:
        return bench_small.run(broker, spark, arguments.rows, arguments.repeat)


def _stream(broker: Cluster, arguments: argparse.Namespace) -> Iterator[Case]:
    repeats = arguments.repeat
    yield from bench_stream.run_planning(broker, arguments.planning, repeats)
    with spark_session() as spark:
        yield from bench_stream.run_batches(broker, spark, _BATCHES, repeats)


def _latency(broker: Cluster, arguments: argparse.Namespace) -> list[Case]:
    with spark_session() as spark:
        return bench_latency.run(broker, spark)


def _offsets(repeats: int) -> list[Case]:
    with spark_session() as spark:
        return bench_offsets.run(spark, repeats)


def _sink(broker: Cluster, arguments: argparse.Namespace) -> Iterator[Case]:
    repeats = arguments.repeat
    with spark_session() as spark:
        yield from bench_sink.run_writes(broker, spark, arguments.rows, repeats)
        yield from bench_sink.run_batches(broker, spark, _BATCHES, repeats)
    yield from bench_recover.run(broker, *_LIFE, repeats)


_WITH_BROKER: dict[str, Callable[[Cluster, argparse.Namespace], Iterable[Case]]] = {
    "partition": lambda broker, a: bench_partition.run(broker, a.rows, a.repeat),
    "spark": _spark,
    "typed": _typed,
    "small": _small,
    "tasks": lambda broker, a: bench_tasks.run(broker, max(a.planning), a.repeat),
    "planning": lambda broker, a: bench_planning.run(broker, a.planning, a.repeat),
    "stream": _stream,
    "latency": _latency,
    "cold": lambda broker, a: bench_cold.run(broker, a.rows, a.repeat),
    "producer": lambda broker, a: bench_sink.run_producer(broker, a.rows, a.repeat),
    "write": lambda broker, a: bench_write.run(broker, a.rows, a.repeat),
    "sink": _sink,
    "memory": lambda broker, a: bench_memory.run(broker, *a.memory),
}


#: Behind a link with latency.
_OWN_BROKER: dict[str, Callable[[int, int], list[Case]]] = {
    "far": bench_far.run,
    "far-plans": bench_far_plans.run,
}


#: Along the path of a row that is read, then of one that is written.
HOPS = (*_ALONE, *_WITH_BROKER, *_OWN_BROKER)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--only", type=_hops, default=list(HOPS), help=f"some of {','.join(HOPS)}"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=2_000_000,
        help="messages of 100 bytes; of the larger ones fewer (default %(default)s)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="after one warm-up (default %(default)s)"
    )
    parser.add_argument(
        "--planning",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1, 100, 1000],
        help="numbers of topic partitions to plan (default 1,100,1000)",
    )
    parser.add_argument(
        "--memory",
        type=_few_and_many,
        default=[1_000_000, 4_000_000],
        help="few and many rows, for the memory of workers; 1000000,40000000 writes"
        " about 10 GB (default 1000000,4000000)",
    )
    parser.add_argument(
        "--save", action="store_true", help="in docs/ instead of build/"
    )
    return parser.parse_args()


def _few_and_many(text: str) -> list[int]:
    few, many = (int(part) for part in text.split(","))
    return [few, many]


def _hops(text: str) -> list[str]:
    wanted = set(text.split(","))
    if unknown := wanted - set(HOPS):
        raise argparse.ArgumentTypeError(f"no such hop: {', '.join(sorted(unknown))}")
    return [hop for hop in HOPS if hop in wanted]


def machine() -> dict[str, str]:
    """What this run runs on, by name."""
    packages = (
        "pyspark",
        "pyarrow",
        "protobuf",
        "crc32c",
        "isal",
        "lz4",
        "zstandard",
    )
    return {
        "pulsar-spark": __version__,
        "kernel": kernel,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "java": _java(),
        "broker": os.environ.get("PULSAR_SERVICE_URL") or f"embedded {DEFAULT_VERSION}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "load at the beginning": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java() -> str:
    try:
        result = subprocess.run(
            ["java", "-version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return "none"
    return next(iter(result.stderr.splitlines()), "")


if __name__ == "__main__":
    main()
