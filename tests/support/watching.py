# SPDX-License-Identifier: Apache-2.0
"""A consumer of the official client that watches topics all the time."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pulsar

from tests.support.official import client, id_of
from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Sequence


class Watcher:
    """Takes every message of some partitioned topics as soon as it can be seen.

    A message that is delivered again, as happens when a topic moves, counts once; a
    value that is stored twice counts twice.

    Args:
        service_url: Of the broker.
        topics: Full names.
        partitions: Of each.
    """

    def __init__(
        self, service_url: str, topics: Sequence[str], partitions: int
    ) -> None:
        self._url = service_url
        self._names = {
            f"{topic}-partition-{index}": topic
            for topic in topics
            for index in range(partitions)
        }
        self._seen: dict[tuple[str, tuple[int, int, int, int]], str] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def rows(self, topic: str) -> Counter[str]:
        """How often each value was seen in a topic."""
        with self._lock:
            seen = list(self._seen.items())
        return Counter(value for (name, _), value in seen if self._names[name] == topic)

    def __enter__(self) -> Watcher:
        self._thread.start()
        assert self._ready.wait(60), "it could not subscribe"
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        join(self._thread, "watching")

    def _run(self) -> None:
        with client(self._url) as one:
            consumer = one.subscribe(
                list(self._names),
                "watcher",
                consumer_type=pulsar.ConsumerType.Exclusive,
                initial_position=pulsar.InitialPosition.Earliest,
            )
            self._ready.set()
            while not self._over.is_set():
                try:
                    message = consumer.receive(200)
                except pulsar.Timeout:
                    continue
                key = message.topic_name(), id_of(message.message_id())
                with self._lock:
                    self._seen[key] = message.data().decode()
                consumer.acknowledge(message)
