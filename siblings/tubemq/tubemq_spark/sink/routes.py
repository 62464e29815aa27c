# SPDX-License-Identifier: Apache-2.0
"""Where messages go: the partition of each, and the broker of that."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tubemq_spark import columns
from tubemq_spark.client.masters import ClusterView, Masters, Producer
from tubemq_spark.errors import (
    BadRowError,
    MessageTooLargeError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.options import WriteOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.messages import Token
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("sink")

#: Where a master names no limit.
_DEFAULT_MAX_BYTES = 1024 * 1024

#: How long a broker that failed gets nothing that others can take, in seconds.
_BLOCKED_S = 20.0


class Routes:
    """Chooses partitions among the master's partitions. For one thread; to be closed.

    Args:
        options: How to write.
        turn: Where partitions begin to take turns.
    """

    def __init__(self, options: WriteOptions, turn: int) -> None:
        self._options = options
        self._patience = options.client.patience
        self._turn = turn
        self._masters = Masters(options.client)
        self._topics: list[str] = []
        self._producer = Producer(self._masters, self._topics)
        self._view = ClusterView({}, {}, None)
        self._seen_at = time.monotonic()
        self._has_answer = True  # of the masters, when they were asked last
        self._partitions: dict[str, tuple[Partition, ...]] = {}  # seen at any time
        self._open: dict[str, tuple[Partition, ...]] = {}  # those named last, or all
        self._blocked: dict[int, float] = {}  # until when, by broker

    @property
    def client_id(self) -> str:
        """Return the id by which brokers know who writes."""
        return self._producer.client_id

    @property
    def token(self) -> Token | None:
        """Return what brokers may ask for."""
        return self._view.token

    def server(self, partition: Partition) -> str:
        """Return ``host:port`` of the broker of a partition.

        Raises:
            TransportError: The masters have not told it.
        """
        address = self._view.brokers.get(partition.broker_id)
        if address is None:
            raise TransportError(
                f"The master tells no address of broker {partition.broker_id}.",
                retriable=True,
            )
        return address

    def close(self) -> None:
        """Let go of the masters."""
        self._producer.close()
        self._masters.close()

    # -- partitions --------------------------------------------------------------------

    def choose(self, row: Row) -> Partition:
        """Return where a row goes.

        Raises:
            BadRowError: It names a partition that its topic does not have.
            MessageTooLargeError: It is larger than a message may be.
            TopicNotPublishableError: Its topic is not open for writing.
            TubeMQError: The masters do not answer, or refuse.
        """
        if row.topic not in self._partitions:
            self._topics.append(row.topic)
            self.look()
        partitions = self._partitions[row.topic]
        self._check_size(row)
        if row.partition is not None:
            return _named(row.partition, partitions, row)
        if row.key is not None:
            return partitions[row.key % len(partitions)]
        return self._next(self._good(row.topic) or self._open[row.topic])

    def still(self, row: Row, partition: Partition) -> Partition:
        """Return where a row goes now that was to go to ``partition``.

        That is somewhere else where the master names ``partition`` no longer.
        """
        if partition in self._open[row.topic]:
            return partition
        return self.elsewhere(row, partition)

    def elsewhere(self, row: Row, partition: Partition) -> Partition:
        """Return the partition for a row that could not be sent to ``partition``.

        That is ``partition`` again where the row names it or has a key, or where no
        other broker is good.
        """
        if row.partition is not None or row.key is not None:
            return partition
        candidates = self._good(row.topic)
        return self._next(candidates) if candidates else partition

    def has_way(self, row: Row, partition: Partition) -> bool:
        """Return whether a row that could not be sent can go to a good broker."""
        return self.elsewhere(row, partition).broker_id not in self._blocked

    def block(self, partition: Partition) -> None:
        """Avoid a partition's broker for a while."""
        self._blocked[partition.broker_id] = time.monotonic() + _BLOCKED_S

    def unblock(self, partition: Partition) -> None:
        """Use a partition's broker again."""
        self._blocked.pop(partition.broker_id, None)

    def _good(self, topic: str) -> Sequence[Partition]:
        partitions = self._open[topic]
        if not self._blocked:
            return partitions
        now_s = time.monotonic()
        self._blocked = {
            broker_id: until_s
            for broker_id, until_s in self._blocked.items()
            if now_s < until_s
        }
        return [
            candidate
            for candidate in partitions
            if candidate.broker_id not in self._blocked
        ]

    def _next(self, partitions: Sequence[Partition]) -> Partition:
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def _check_size(self, row: Row) -> None:
        limit = self._view.topics[row.topic].max_message_bytes or _DEFAULT_MAX_BYTES
        size = len(row.stored.data)
        if size > limit:
            raise MessageTooLargeError(
                f"Row {row.number} of its task, for the topic {row.topic}, has {size} "
                f"bytes with its attributes, and messages may have {limit}. Raise the "
                "topic's `maxMsgSizeInMB`, or write smaller values.",
                size_bytes=size,
                limit_bytes=limit,
            )

    # -- masters -----------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look again where that was long ago. Brokers take messages without, too.

        Returns:
            Whether there is a new view.

        Raises:
            ServerError: The master refuses.
        """
        patience = self._patience
        age_s = patience.refresh_s if self._has_answer else patience.rest_s
        return self._look_after(age_s, TransportError)

    def search(self) -> None:
        """Search for other brokers, and for new addresses of known brokers.

        Masters name one that was started to producers only half a minute later. What
        they refuse in the meantime ends nothing: the brokers that are known may come
            back.
        """
        self._look_after(self._patience.search_s, TubeMQError)

    def _look_after(self, age_s: float, may_pass: type[TubeMQError]) -> bool:
        if time.monotonic() - self._seen_at <= age_s:
            return False
        try:
            self.look(timeout_s=0.0)
        except may_pass as error:
            logger.debug("going on by what is known of brokers: %s", error)
            self._seen_at = time.monotonic()
            self._has_answer = False
        return self._has_answer

    def look(self, timeout_s: float | None = None) -> None:
        """Ask the master for partitions, brokers and a fresh token.

        Args:
            timeout_s: How long to look for a master; 0 for asking each of them once,
                None for ``operation.timeout``.

        Raises:
            TopicNotPublishableError: A topic is not open for writing.
            TubeMQError: The masters do not answer, or refuse.
        """
        if all(topic in self._partitions for topic in self._topics):
            view = self._producer.view(timeout_s)
        else:
            view = self._producer.wait_for(self._options.client.operation_timeout_s)
        # What is left out now is on a broker that restarts, or that was closed by hand.
        # Rows that belong there go there; others do where nothing is named at all.
        self._view = ClusterView(
            {**self._view.brokers, **view.brokers},
            {**self._view.topics, **view.topics},
            view.token or self._view.token,
        )
        for topic in self._topics:
            named = view.topics[topic].partitions if topic in view.topics else ()
            partitions_ = tuple(sorted({*self._partitions.get(topic, ()), *named}))
            if partitions_:
                self._partitions[topic] = partitions_
                self._open[topic] = tuple(sorted(named)) or partitions_
        self._seen_at = time.monotonic()
        self._has_answer = True


def _named(
    wanted: tuple[int | None, int], partitions: Iterable[Partition], row: Row
) -> Partition:
    broker_id, partition_id = wanted
    for candidate in partitions:
        if candidate.partition_id == partition_id and broker_id in (
            None,
            candidate.broker_id,
        ):
            return candidate
    where = f" on broker {broker_id}" if broker_id is not None else ""
    raise BadRowError(
        f"Row {row.number} of its task: the topic {row.topic} has no partition "
        f"{partition_id}{where} that is open for writing, says the master, which "
        "leaves out brokers that are down or start: see that it is there, or choose "
        f"another {columns.PARTITION}."
    )
