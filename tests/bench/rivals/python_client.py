# SPDX-License-Identifier: Apache-2.0
"""The official Python client, as a program of ``programs``.

A Reader and a thread for each topic partition; one producer for all of them. "rows" is
given the size of the values to write instead of expressions.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pulsar

from tests.support.official import QUIET

#: How many values are written in turns.
_VALUES = 1000


def main() -> None:
    """Obey the commands of standard input until it ends."""
    stop = threading.Event()
    lock = threading.Lock()
    given: tuple[int, int] | None = None
    with ThreadPoolExecutor(64) as threads:
        for line in sys.stdin:
            name, *words = line.rstrip("\n").split("\t")
            began = time.perf_counter()
            answer: float | None = None
            if name in ("read", "count"):
                client = pulsar.Client(words[0], logger=QUIET)
                partitions = client.get_topic_partitions(words[1])
                rows = sum(threads.map(partial(_count, client), partitions))
                answer = rows if name == "count" else None
                client.close()
            elif name == "rows":
                given = int(words[0]), int(words[2])
                answer = given[0]
            elif name == "write":
                assert given is not None
                _write(words[0], words[1], *given)
            elif name == "stream":
                url, topic, file = words
                client = pulsar.Client(url, logger=QUIET)
                for partition in client.get_topic_partitions(topic):
                    threads.submit(_stream, client, partition, file, lock, stop)
            else:
                assert name == "stop", name
                answer = 0
                stop.set()
            seconds = time.perf_counter() - began
            print("reply", seconds if answer is None else answer, flush=True)
        stop.set()


def _count(client: pulsar.Client, topic: str) -> int:
    """Return the rows of a topic partition."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    rows = 0
    while reader.has_message_available():
        rows += len(reader.read_next().data()) > 0
    reader.close()
    return rows


def _write(url: str, topic: str, rows: int, size_bytes: int) -> None:
    """Send so many values, and wait until all are stored."""
    values = [os.urandom(size_bytes) for _ in range(_VALUES)]
    failures = []

    def on_receipt(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    client = pulsar.Client(url, logger=QUIET)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        block_if_queue_full=True,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for number in range(rows):
        producer.send_async(values[number % _VALUES], on_receipt)
    producer.flush()
    client.close()
    if failures:
        raise RuntimeError(f"{len(failures)} of {rows} rows failed: {failures[0]}")


def _stream(
    client: pulsar.Client,
    topic: str,
    path: str,
    lock: threading.Lock,
    stop: threading.Event,
) -> None:
    """Append a line for each row until told to stop."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while not stop.is_set():
        try:
            message = reader.read_next(timeout_millis=1000)
        except pulsar.Timeout:
            continue
        words = message.data().decode().split(" ")
        with lock, open(path, "a") as file:
            file.write(f"{words[0]} {words[1]} {round(time.time() * 1e3)}\n")


if __name__ == "__main__":
    main()
