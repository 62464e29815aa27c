# SPDX-License-Identifier: Apache-2.0
"""How large the next messages of partitions are, for limits in bytes.

A broker tells how many messages there are by offsets, and nothing of their size. So the
first of them are fetched, as many as one get brings, and not delivered. Where each
offset is a message of the partition, their sizes are exact; else the get says what an
offset takes on average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spark_topics.client.retry import Retry
from spark_topics.source.stream.admission import EntrySize
from tubemq_spark.client.brokers import BrokerPool, Consumer, Fetched
from tubemq_spark.client.masters import new_client_id
from tubemq_spark.errors import PartitionOccupiedError, TubeMQError
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.discovery import Found, group_slots, planners_of, priority_of
from tubemq_spark.wire.metadata import Partition

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 1.0


class Part(NamedTuple):
    """Offsets of a partition that are to be read.

    Attributes:
        start: First of them.
        end: After the last.
    """

    start: int
    end: int


class Sizes:
    """Looks at the next messages of partitions. For one thread.

    Args:
        pool: Of connections.
        options: How to read.
        group: Of the readers.
    """

    def __init__(self, pool: BrokerPool, options: ReadOptions, group: str) -> None:
        self._pool = pool
        self._options = options
        self._slots = group_slots(planners_of(group))
        self._seen: dict[Partition, int] = {}  # offset after what was told already

    def peek(
        self,
        parts: Mapping[Partition, Part],
        found: Found,
        on_seen: Callable[[Partition, EntrySize], None],
    ) -> dict[Partition, Sequence[EntrySize]]:
        """Return the sizes of the partitions' first messages, where known.

        Args:
            parts: What there is to read.
            found: The brokers of all of these.
            on_seen: Called with the size of each message that was not seen before.

        Raises:
            TubeMQError: A broker does not answer, or refuses.
        """
        sizes = {}
        for partition, part in parts.items():
            fetched = self._fetch(partition, part, found)
            if fetched.start == part.start:
                sizes[partition] = self._learn(partition, part, fetched, on_seen)
        return sizes

    def _learn(
        self,
        partition: Partition,
        part: Part,
        fetched: Fetched,
        on_seen: Callable[[Partition, EntrySize], None],
    ) -> Sequence[EntrySize]:
        spanned = (fetched.end - part.start) // ENTRY_BYTES
        sizes = [EntrySize(1.0, len(message.stored)) for message in fetched.messages]
        is_new = fetched.end > self._seen.get(partition, 0)
        if len(sizes) < spanned:  # others of the store lie between
            if is_new:
                total = sum(message.size_bytes for message in sizes)
                on_seen(partition, EntrySize(1.0, -(-total // spanned)))
                self._seen[partition] = fetched.end
            return ()
        already = (self._seen.get(partition, 0) - part.start) // ENTRY_BYTES
        for size in sizes[max(0, already) :]:
            on_seen(partition, size)
        self._seen[partition] = max(fetched.end, self._seen.get(partition, 0))
        return sizes[: (part.end - part.start) // ENTRY_BYTES]

    def _fetch(self, partition: Partition, part: Part, found: Found) -> Fetched:
        retry = Retry(
            _FIRST_PAUSE_S,
            _MAX_PAUSE_S,
            self._options.client.operation_timeout_s,
            "operation.timeout",
        )
        while True:
            try:
                return self._try_slots(partition, part, found)
            except PartitionOccupiedError as error:
                retry.pause(error.saying(error.message, retriable=True))
            except TubeMQError as error:
                retry.pause(error)

    def _try_slots(self, partition: Partition, part: Part, found: Found) -> Fetched:
        connection = self._pool.connection(found.brokers[partition])
        for group in self._slots:
            consumer = Consumer(
                connection,
                new_client_id(group),
                group,
                partition,
                filters=self._options.filters or (),
                token=self._pool.tokens.newest(found.token),
                renew=lambda token: self._pool.tokens.renewed(
                    token, self._slots[0], partition.topic
                ),
            )
            try:
                consumer.register(part.start, priority_of(self._options))
            except PartitionOccupiedError:
                if group == self._slots[-1]:
                    raise
                continue
            try:
                return consumer.fetch()
            finally:
                consumer.unregister()
        raise AssertionError("there is no slot")
