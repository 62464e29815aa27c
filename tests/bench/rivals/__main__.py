# SPDX-License-Identifier: Apache-2.0
"""Readers of Pulsar, and Spark's of Kafka, side by side: ``make bench-rivals``.

Each reads the same bytes on the same machine, brokers included, in a process of its own
that is as warm as the others. First all read a whole topic in turns. Then each follows
a topic to which rows come at a steady pace, until the broker is killed and started
again, and to the end after that. What a stream delivers is compared with what its topic
has, so rows that a producer stored twice count for nobody.

The table is printed, and saved as build/bench-rivals.json; with --save in docs/, from
where ``make generate-docs`` takes it. A rival that cannot run has a line that says why.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pulsar

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.bench import cold_job
from tests.bench.__main__ import machine
from tests.bench.bench_latency import percentile
from tests.bench.bench_sink import row_expressions
from tests.bench.cluster import ROOT, note
from tests.bench.rivals.kafka import KafkaBroker
from tests.bench.rivals.programs import FOLDER, Program, class_path_of, java_command
from tests.bench.rivals.results import Result, save, table
from tests.support.official import QUIET

_NAMESPACE = "public/rivals"
_SIZE_BYTES = 100
PARTITIONS = 2
_PER_S = 500

#: Longest wait for the first row of a stream, and for those that are still missing.
_PATIENCE_S = 120.0
#: A topic is read to its end when nothing came for so long.
_QUIET_MS = 5_000

_SCALA = "io.streamnative.connectors:pulsar-spark-connector_2.12:3.1.1.4"
_SCALA_SPARK = "org.apache.spark:spark-sql_2.12:3.1.3"
#: That of this Spark cannot deserialize the connector's functions on Java 17.
_SCALA_LIBRARY = "org.scala-lang:scala-library:2.12.18"
_KAFKA_SPARK = "4.1.1"
_KAFKA_CLIENT = "org.apache.kafka:kafka-clients:3.9.1"
_FLINK = "1.18.1"
_FLINK_CONNECTOR = "4.1.0-1.18"
_JAVA_CLIENT = "4.0.7"


class Broker(Protocol):
    """What the scenarios ask of a broker and the producers of its system."""

    @property
    def url(self) -> str:
        """What clients connect to."""

    @property
    def spark_options(self) -> Mapping[str, str]:
        """Options of Spark's jobs besides the address and the topic."""

    def create(self, topic: str) -> str:
        """Create a topic; return the name by which readers know it."""

    def send(self, topic: str, first: int, rows: int) -> None:
        """Send rows at the pace; return when the broker has them."""

    def restart(self) -> None:
        """Kill the broker and start it again."""

    def numbers(self, topic: str) -> Counter[int]:
        """Return how often the topic has each number."""


class Pulsar:
    """A Pulsar broker, and the official Python client as its producer."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._admin = Admin(broker.admin_url)
        self._admin.create_namespace(_NAMESPACE, keep=True)
        self.url = broker.service_url
        self.spark_options = {"admin.url": broker.admin_url}

    def create(self, topic: str) -> str:
        """Create a partitioned topic that keeps its rows; return its name."""
        full_name = f"persistent://{_NAMESPACE}/{topic}"
        self._admin.create_partitioned(full_name, PARTITIONS)
        return full_name

    def send(self, topic: str, first: int, rows: int) -> None:
        """Send rows, batched for at most 1 ms, for as long as the broker is away."""
        client = pulsar.Client(self.url, logger=QUIET)
        producer = client.create_producer(
            topic,
            send_timeout_millis=0,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        began = time.monotonic()
        for index in range(rows):
            time.sleep(max(0.0, began + index / _PER_S - time.monotonic()))
            value = f"{first + index} {round(time.time() * 1e3)} ".ljust(100, ".")
            producer.send_async(value.encode(), lambda *_: None)
        producer.flush()
        client.close()

    def restart(self) -> None:
        """Kill the broker and start it again."""
        self._broker.restart(kill=True)

    def numbers(self, topic: str) -> Counter[int]:
        """Return how often the topic has each number, as the official client reads."""
        client = pulsar.Client(self.url, logger=QUIET)
        numbers: Counter[int] = Counter()
        for partition in client.get_topic_partitions(topic):
            reader = client.create_reader(partition, pulsar.MessageId.earliest)
            with contextlib.suppress(pulsar.Timeout):
                while True:  # has_message_available() is wrong after a restart
                    value = reader.read_next(_QUIET_MS).data()
                    numbers[int(value.split(b" ")[0])] += 1
        client.close()
        return numbers


class Kafka:
    """A Kafka broker, and its Java producer, which never stores a row twice."""

    def __init__(self, broker: KafkaBroker, program: Program) -> None:
        self._broker = broker
        self._program = program
        self._numbers: dict[str, Counter[int]] = {}
        self.url = broker.url
        self.spark_options: Mapping[str, str] = {}

    def create(self, topic: str) -> str:
        """Create a topic; return its name."""
        self._program.ask("create", self.url, topic, PARTITIONS)
        return topic

    def send(self, topic: str, first: int, rows: int) -> None:
        """Send rows, for as long as the broker is away."""
        self._program.ask("send", self.url, topic, first, rows, _PER_S)
        numbers = self._numbers.setdefault(topic, Counter())
        numbers.update(range(first, first + rows))

    def restart(self) -> None:
        """Kill the broker and start it again."""
        self._broker.restart()

    def numbers(self, topic: str) -> Counter[int]:
        """Return each number that was sent: the producer is idempotent."""
        return self._numbers[topic]


@dataclass(frozen=True)
class Rival:
    """A reader.

    Attributes:
        name: With its versions.
        system: "pulsar" or "kafka".
        command: Returns what starts it; takes a folder of its own, and its broker.
        is_spark: Whether it reads with Spark.
    """

    name: str
    system: str
    command: Callable[[str, Broker], Sequence[str]]
    is_spark: bool = False


def _python(module: str) -> Callable[[str, Broker], Sequence[str]]:
    return lambda _, __: [sys.executable, "-m", f"tests.bench.rivals.{module}"]


def _java(
    source: str, artifacts: Sequence[str]
) -> Callable[[str, Broker], Sequence[str]]:
    return lambda _, __: java_command(source, class_path_of(artifacts))


def _spark(
    kind: str, artifacts: Sequence[str]
) -> Callable[[str, Broker], Sequence[str]]:
    def command(folder: str, broker: Broker) -> Sequence[str]:
        options = (f"{name}={value}" for name, value in broker.spark_options.items())
        class_path = class_path_of(artifacts)
        return java_command("SparkProgram.java", class_path, folder, kind, *options)

    return command


def rivals() -> list[Rival]:
    """Return all readers, ours first."""
    spark_kafka = [
        f"org.apache.spark:{name}_2.13:{_KAFKA_SPARK}"
        for name in ("spark-sql", "spark-sql-kafka-0-10")
    ]
    flink = [
        f"org.apache.flink:{name}:{_FLINK}"
        for name in ("flink-streaming-java", "flink-clients", "flink-connector-base")
    ]
    flink.append(f"org.apache.flink:flink-connector-pulsar:{_FLINK_CONNECTOR}")
    facts = machine()
    return [
        Rival(
            f"pulsar-spark {facts['pulsar-spark']}, Spark {facts['pyspark']}",
            "pulsar",
            _python("own"),
            is_spark=True,
        ),
        Rival(
            f"Scala connector {_version(_SCALA)}, Spark {_version(_SCALA_SPARK)}",
            "pulsar",
            _spark("pulsar", [_SCALA_LIBRARY, _SCALA, _SCALA_SPARK]),
            is_spark=True,
        ),
        Rival(
            f"Flink {_FLINK}, connector {_FLINK_CONNECTOR}",
            "pulsar",
            _java("FlinkProgram.java", flink),
        ),
        Rival(
            f"official Java client {_JAVA_CLIENT}",
            "pulsar",
            _java(
                "ClientProgram.java",
                [f"org.apache.pulsar:pulsar-client:{_JAVA_CLIENT}"],
            ),
        ),
        Rival(
            f"official Python client {pulsar.__version__}",
            "pulsar",
            _python("python_client"),
        ),
        Rival(
            f"Kafka source of Spark {_KAFKA_SPARK}",
            "kafka",
            _spark("kafka", spark_kafka),
            is_spark=True,
        ),
    ]


def _version(artifact: str) -> str:
    return artifact.rpartition(":")[2]


@contextlib.contextmanager
def start_brokers(systems: Collection[str]) -> Iterator[dict[str, Broker]]:
    """Start a broker of each system."""
    brokers: dict[str, Broker] = {}
    with contextlib.ExitStack() as stack:
        note("starting the brokers")
        if "pulsar" in systems:
            broker = EmbeddedBroker(is_short_lived=False, log_level="warn")
            brokers["pulsar"] = Pulsar(stack.enter_context(broker))
        if "kafka" in systems:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            kafka_broker = stack.enter_context(KafkaBroker(Path(folder)))
            command = java_command("KafkaProgram.java", class_path_of([_KAFKA_CLIENT]))
            program = stack.enter_context(Program(command, "kafka-producer"))
            brokers["kafka"] = Kafka(kafka_broker, program)
        yield brokers


class _Comparison:
    """All rivals with their brokers, from the first read to the end of the streams.

    Args:
        brokers: By system.
        rivals: In the order of the table.
        rows: Of the topic that all read.
    """

    def __init__(
        self, brokers: dict[str, Broker], rivals: Sequence[Rival], rows: int
    ) -> None:
        self.results = {rival: Result(rival.name) for rival in rivals}
        self._brokers = brokers
        self._rows = rows
        self._programs: dict[Rival, Program] = {}
        self._topics: dict[str, str] = {}

    def each(self, work: Callable[[Rival], None]) -> None:
        """Do something for each rival that has not failed yet."""
        for rival, result in self.results.items():
            if result.failure:
                continue
            try:
                work(rival)
            except Exception as error:  # of a rival, which is no reason to end here
                lines = str(error).strip().splitlines() or [type(error).__name__]
                result.failure = lines[0]
                note(f"{rival.name}: {error}")

    def start(self, stack: contextlib.ExitStack, rival: Rival) -> None:
        """Start its process, which ends with the stack."""
        note(f"starting {rival.name}")
        FOLDER.mkdir(parents=True, exist_ok=True)
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER))
        program = Program(
            rival.command(folder, self._brokers[rival.system]),
            f"rival-{len(self._programs)}",
        )
        self._programs[rival] = stack.enter_context(program)

    def fill(self) -> None:
        """Fill the topic of each system with the same values, by its first rival."""
        note(f"writing {self._rows:,} rows of {_SIZE_BYTES} bytes")
        rivals = {rival.system: rival for rival in reversed(self._programs)}
        for system, rival in rivals.items():
            broker, program = self._brokers[system], self._programs[rival]
            self._topics[system] = broker.create("rivals")
            program.ask("rows", self._rows, PARTITIONS, row_expressions(_SIZE_BYTES)[0])
            program.ask("write", broker.url, self._topics[system])

    def check(self, rival: Rival) -> None:
        """Count what it reads, and warm it up."""
        words = self._brokers[rival.system].url, self._topics[rival.system]
        program = self._programs[rival]
        counted = program.ask("count", *words)
        if counted != self._rows:
            raise RuntimeError(f"it read {counted:,.0f} rows of {self._rows:,}")
        program.ask("read", *words, "value")

    def read(self, rival: Rival) -> None:
        """Read the whole topic, and add what that took to the result."""
        words = self._brokers[rival.system].url, self._topics[rival.system]
        program, result = self._programs[rival], self.results[rival]
        cpu_s = program.cpu_s
        seconds = program.ask("read", *words, "value")
        result.cpu_s.append(program.cpu_s - cpu_s)
        result.seconds.append(seconds)
        result.rows, result.size_bytes = self._rows, self._rows * _SIZE_BYTES
        note(f"{rival.name}: {self._rows / seconds:,.0f} rows/s")

    def show(self, rival: Rival, *, counts: bool) -> None:
        """Show the first rows of the topic in a new process, as a user's job does.

        Args:
            rival: Shows them, where it reads with Spark.
            counts: Whether the time goes into the result.
        """
        if not rival.is_spark:
            return
        broker, topic = self._brokers[rival.system], self._topics[rival.system]
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            command = rival.command(folder, broker)
            if rival is next(iter(self.results)):
                # Ours has no more to import than a user's job.
                command = [sys.executable, "-m", cold_job.__name__, broker.url, topic]
            began = time.monotonic()
            with Program(command, "rival-cold") as program:
                program.ask("show", broker.url, topic, cold_job.ROWS)
                seconds = time.monotonic() - began
        if counts:
            self.results[rival].first_rows_s.append(seconds)
            note(f"{rival.name}: its first rows after {seconds:.1f} s")

    def follow(self, rival: Rival, seconds: float) -> None:
        """Follow a topic while its broker is killed, and count what is delivered."""
        note(f"{rival.name}: latency, and a killed broker")
        broker, program = self._brokers[rival.system], self._programs[rival]
        result = self.results[rival]
        name = f"stream-{uuid.uuid4().hex[:8]}"
        topic = broker.create(name)
        file = FOLDER / f"{name}.txt"
        file.touch()
        program.ask("stream", broker.url, topic, file)
        broker.send(topic, 0, 1)
        if not _wait(lambda: bool(file.stat().st_size)):
            raise RuntimeError("no row came within 2 minutes")
        warm, count = 10 * _PER_S, round(seconds * _PER_S)
        broker.send(topic, 1, warm)
        broker.send(topic, warm + 1, count)
        _wait(lambda: len(_delivered(file)) > warm + count)
        lines = [[*map(int, line.split())] for line in file.read_text().splitlines()]
        latencies = sorted(got - sent for number, sent, got in lines if number > warm)
        result.latencies_ms = percentile(latencies, 50), percentile(latencies, 99)

        arguments = topic, warm + count + 1, 20 * _PER_S
        sender = threading.Thread(target=broker.send, args=arguments)
        sender.start()
        time.sleep(5)
        broker.restart()
        sender.join()
        numbers = broker.numbers(topic)
        _wait(lambda: set(_delivered(file)) >= set(numbers))
        time.sleep(5)  # for rows that come twice
        result.restarts = int(program.ask("stop"))
        delivered = _delivered(file)
        result.lost = len(set(numbers) - set(delivered))
        result.repeated = sum((delivered - numbers).values())
        note(f"lost {result.lost}, repeated {result.repeated}")


def _delivered(file: Path) -> Counter[int]:
    """Return how often each number came."""
    lines = file.read_text().split("\n")[:-1]
    return Counter(int(line.split(" ")[0]) for line in lines)


def _wait(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, and return whether it came about."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def run(
    rivals: Sequence[Rival], rows: int, repeats: int, seconds: float
) -> list[Result]:
    """Measure all; a rival that fails says why in its result."""
    with contextlib.ExitStack() as stack:
        brokers = stack.enter_context(start_brokers({rival.system for rival in rivals}))
        comparison = _Comparison(brokers, rivals, rows)
        comparison.each(partial(comparison.start, stack))
        comparison.fill()
        comparison.each(comparison.check)
        for _ in range(repeats):
            comparison.each(comparison.read)
        for number in range(repeats + 1):  # the first reads files that are cached then
            comparison.each(partial(comparison.show, counts=number > 0))
        if seconds:
            comparison.each(lambda rival: comparison.follow(rival, seconds))
        return list(comparison.results.values())


def main() -> None:
    """Measure the readers that were asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=20, help="of latency; 0 for none"
    )
    parser.add_argument(
        "--only", default="", help="words of names, with commas between"
    )
    parser.add_argument("--save", action="store_true", help="in docs/, not in build/")
    arguments = parser.parse_args()
    words = arguments.only.split(",")
    chosen = [
        rival
        for number, rival in enumerate(rivals())
        if not number or any(word in rival.name for word in words)
    ]
    before = machine()
    results = run(chosen, arguments.rows, arguments.repeat, arguments.seconds)
    print(table(results))
    folder = ROOT / ("docs" if arguments.save else "build")
    save(before, results, folder / "bench-rivals.json")


if __name__ == "__main__":
    main()
