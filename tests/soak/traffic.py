# SPDX-License-Identifier: Apache-2.0
"""Rows that are known: who writes them all the time, and who sees them arrive.

A row's value is ``<partition>:<number>:<microseconds since 1970>:`` and padding, its
key one of a few of that partition. Numbers count from 0 in each partition of the
source.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import TYPE_CHECKING, Any

import pulsar

from tests.soak.site import PARTS, Site, parts
from tests.support.official import client
from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Callable

#: Rows of each partition in a second, and their size.
RATE = 60
ROW_BYTES = 100

#: Keys of the rows of one partition.
KEYS = 5

#: How often rows are sent, in seconds.
TICK_S = 0.1


def row(part: int, number: int) -> bytes:
    """The value of a row that is made now."""
    text = f"{part}:{number}:{time.time_ns() // 1000}:"
    return text.ljust(ROW_BYTES, ".").encode()


def parsed(value: bytes) -> tuple[int, int, int]:
    """Partition, number and microseconds of a row."""
    part, number, made_us, _ = value.split(b":")
    return int(part), int(number), int(made_us)


class _Thread:
    """Something that goes on until it is told to end, and keeps its failure."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        join(self._thread, self._thread.name)
        self.check()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    def _run(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Fail as it has failed, if it has."""
        if self._failure is not None:
            raise AssertionError(f"{self._thread.name} failed") from self._failure


class Feeder(_Thread):
    """Writes rows to all partitions of the source, by the official client.

    Args:
        site: Where.

    Attributes:
        sent: Rows of each partition that it was given.
        stored: Rows of each partition with a receipt.
    """

    def __init__(self, site: Site) -> None:
        super().__init__("the feeder")
        self._site = site
        self.sent = [0] * PARTS
        self.stored = [0] * PARTS
        self._refused: list[object] = []

    def _run(self) -> None:
        site = self._site
        with client(site.cluster.tls_url, **site.official("feeder")) as one:
            producers = [
                one.create_producer(
                    name,
                    producer_name=f"feeder-{index}",
                    send_timeout_millis=0,  # what is sent is sent until it is stored
                    block_if_queue_full=True,
                    batching_enabled=True,
                    batching_max_publish_delay_ms=20,
                )
                for index, name in enumerate(parts(site.source))
            ]
            due = time.monotonic()
            while not self._over.is_set():
                for part, producer in enumerate(producers):
                    self._send(part, producer, int(RATE * TICK_S))
                due = max(due + TICK_S, time.monotonic())
                self._over.wait(due - time.monotonic())
            for producer in producers:
                producer.flush()

    def _send(self, part: int, producer: pulsar.Producer, rows: int) -> None:
        def stored(result: pulsar.Result, _: object) -> None:
            if result == pulsar.Result.Ok:
                self.stored[part] += 1
            else:
                self._refused.append(result)

        for number in range(self.sent[part], self.sent[part] + rows):
            key = f"{part}-{number % KEYS}"
            producer.send_async(row(part, number), stored, partition_key=key)
            self.sent[part] += 1

    def stop(self) -> None:
        """End, when all that was sent is stored."""
        self._over.set()
        join(self._thread, "the feeder", 300)
        self.check()
        assert not self._refused, self._refused[:3]
        assert self.stored == self.sent


class Watcher(_Thread):
    """Sees each row of the sink as soon as a consumer can, by the official client.

    A message that is delivered again, as happens when a topic moves, counts once.

    Args:
        site: Where.

    Attributes:
        seen: Rows of each partition of the source.
        newest_us: When the newest row of each partition that was seen was made.
        latencies_s: Of each row, from when it was made to when it was seen.
        repeated: Rows that were seen twice.
    """

    def __init__(self, site: Site) -> None:
        super().__init__("the watcher")
        self._site = site
        self._counts = [bytearray() for _ in range(PARTS)]
        self._last: dict[str, tuple[int, int, int]] = {}
        self.seen = [0] * PARTS
        self.newest_us = [0] * PARTS
        self.latencies_s = array("f")
        self.repeated: list[str] = []
        self._listener: Callable[[float], None] | None = None

    def has_seen(self, part: int, number: int) -> bool:
        """Whether a row was seen."""
        counts = self._counts[part]
        return number < len(counts) and counts[number] > 0

    def _run(self) -> None:
        site = self._site
        with client(site.cluster.tls_url, **site.official("watcher")) as one:
            consumer = one.subscribe(
                parts(site.sink),
                "watcher",
                consumer_type=pulsar.ConsumerType.Exclusive,
                initial_position=pulsar.InitialPosition.Earliest,
            )
            while not self._over.is_set():
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                self._take(message)
                consumer.acknowledge(message)

    def _take(self, message: pulsar.Message) -> None:
        found = message.message_id()
        place = (found.ledger_id(), found.entry_id(), found.batch_index())
        name = message.topic_name()
        if place <= self._last.get(name, (-1, -1, -1)):
            return
        self._last[name] = place
        part, number, made_us = parsed(message.data())
        self.latencies_s.append(time.time() - made_us / 1e6)
        counts = self._counts[part]
        if number >= len(counts):
            counts.extend(bytes(number + 10_000 - len(counts)))
        if counts[number]:
            self.repeated.append(f"{part}:{number} at {name} {place}")
        else:
            self.seen[part] += 1
        counts[number] = min(counts[number] + 1, 255)
        self.newest_us[part] = max(self.newest_us[part], made_us)
