# SPDX-License-Identifier: Apache-2.0
"""A streaming query that the process of a test drives as Spark would, without Spark.

::

    with Query(service_url, topic=topic) as query:
        query.drain()
    assert query.rows == {topic: [0, 1, 2]}

The topics are a real broker's. Rows are numbers, so that one that is lost, doubled or
out of order shows. What Spark itself does is in ``tests/support/streaming.py``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pulsar_spark import PulsarDataSource
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from spark_topics.spark.stream_reader import StreamReader


class Query:
    """A streaming query that this process drives as Spark would.

    Args:
        service_url: Of the broker.
        **options: Of the source; None for no such option, where there is one here.

    Attributes:
        options: Of the source; a test may change them between two runs.
        rows: The numbers read so far, by topic partition.
        sizes: How many rows each micro-batch had.
        ends: The end of each micro-batch, as the checkpoint would hold it.
    """

    def __init__(self, service_url: str, **options: str | None) -> None:
        given = {
            "service.url": service_url,
            "startingOffsets": "earliest",
            "metadataColumns": "__topic",
            "partitionDiscoveryIntervalMs": "0",
            "pollTimeoutMs": "60000",
            "pulsar.client.maxBackoffIntervalNanos": "500000000",
            **options,
        }
        self.options = {n: value for n, value in given.items() if value is not None}
        self.rows: dict[str, list[int]] = defaultdict(list)
        self.sizes: list[int] = []
        self.ends: list[str] = []
        self._reader: StreamReader | None = None
        self._rests_until = 0.0

    @property
    def subscription(self) -> str:
        """Its name."""
        return str(json.loads(self.ends[-1])["subscription"])

    def last_read(self, topic: str) -> str:
        """The position up to which a topic without partitions was read."""
        return str(json.loads(self.ends[-1])["lastRead"][topic])

    def start(self) -> StreamReader:
        """Begins, or begins again where the checkpoint says."""
        if self._reader is None:
            source = PulsarDataSource(self.options)
            reader: Any = source.streamReader(source.schema())
            self._reader = reader
        assert self._reader is not None
        return self._reader

    def stop(self) -> None:
        """Ends; the checkpoint remains."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def trigger(self) -> bool:
        """One micro-batch, unless there is nothing new; whether there was."""
        reader = self.start()
        start = json.loads(self.ends[-1]) if self.ends else reader.initialOffset()
        # After a slow plan that found nothing the source rests, and Spark asks again.
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        asked = time.monotonic()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            now = time.monotonic()
            if now - asked > 0.05:  # see `idle_rest`
                self._rests_until = now + min(4 * (now - asked), 1.0)
            return False
        if self.ends:
            reader.commit(start)
        self.ends.append(json.dumps(end))
        parts = reader.partitions(start, end)
        # All or nothing, as a sink would have it.
        batches = [list(reader.read(part)) for part in parts]
        size = 0
        for record_batch in itertools.chain.from_iterable(batches):
            size += len(record_batch)
            for row in record_batch.to_pylist():
                self.rows[row["__topic"]].append(int(row["value"]))
        self.sizes.append(size)
        return True

    def drain(self) -> int:
        """Micro-batches until nothing is new; how many there were."""
        return sum(1 for _ in iter(self.trigger, False))

    def await_rows(self, count: int) -> None:
        """Micro-batches until there are so many rows in all."""

        def have_come() -> bool:
            self.trigger()
            return sum(self.sizes) >= count

        await_true(have_come, f"row {count}")

    def run(self) -> int:
        """A run of AvailableNow; how many micro-batches it had."""
        self.start().prepareForTriggerAvailableNow()
        try:
            return self.drain()
        finally:
            self.stop()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
