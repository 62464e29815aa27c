# SPDX-License-Identifier: Apache-2.0
"""Discovery of partitions and their edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool, Registered, register_all
from tubemq_spark.client.masters import Masters, new_client_id
from tubemq_spark.errors import PartitionOccupiedError, TransportError, TubeMQError
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.ranges import Edges, dense_partitions
from tubemq_spark.system import SYSTEM
from tubemq_spark.wire.messages import FLUSHED, UNFLUSHED, Token
from tubemq_spark.wire.metadata import Partition

logger = SYSTEM.logger("source")

#: How many groups a name stands for: one (group, partition) has one reader at a time,
#: and tasks that Spark runs twice, or has given up, must not be in each other's way.
SLOTS = 8

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.2, 2.0


@dataclass(frozen=True)
class Found:
    """The partitions of the topics of a read.

    Attributes:
        brokers: ``host:port`` of the broker of each partition.
        dense: Those that have a store to themselves.
        token: What brokers may ask for.
        closed: Those that cannot be read now, and are none of these.
    """

    brokers: Mapping[Partition, str]
    dense: frozenset[Partition]
    token: Token | None
    closed: frozenset[Partition] = frozenset()


def planners_of(group: str) -> str:
    """Return the group of planners for a group's reads."""
    return f"{group}-plan"


def readers_of(group: str) -> str:
    """Return the group of readers for a group.

    Anyone who registers moves the position of the group on the broker, and each get
    moves that further. That of the group itself belongs to others, too: to an
    application that reads by this name, and to those who look at a stream.
    """
    return f"{group}-read"


def group_slots(group: str, part: int = 0, parts: int = 1) -> list[str]:
    """Return the groups that a name means.

    Args:
        group: The name.
        part: Which of the readers of a partition asks, from 0.
        parts: How many of these there are at the same time: each has a group of its
            own, which comes first, and then those that are for anyone who needs one.
    """
    slots = [group, *(f"{group}-{number}" for number in range(1, SLOTS + parts - 1))]
    own = slots[:parts]
    return [own.pop(part), *slots[parts:], *own]


def priority_of(options: ReadOptions) -> int:
    """Return the priority that decides which data exist, for planners and readers."""
    return UNFLUSHED if options.read_unflushed else FLUSHED


def find_partitions(
    masters: Masters, options: ReadOptions, group: str, *, wait: bool = False
) -> Found:
    """Return the partitions of the topics to read.

    Args:
        masters: Of the cluster.
        options: What to read.
        group: Of the readers.
        wait: Whether to wait for those that are not open for reading: their broker is
            down or starts, or lets no one read. Else they are left out.

    Raises:
        TransportError: Some are not open in time, and ``failOnDataLoss`` is set.
        TubeMQError: The masters do not answer, or refuse.
    """
    retry = Retry(_FIRST_PAUSE_S, _MAX_PAUSE_S, options.client.operation_timeout_s)
    while True:
        view = masters.readable(planners_of(group), options.topics)
        closed = [
            known_partition
            for topic in options.topics
            for known_partition in view.topics[topic].closed
        ]
        if not (wait and closed):
            break
        error = _closed(closed)
        if not retry.remaining_s:
            if options.fail_on_data_loss:
                raise error
            logger.warning("%s Going on without.", error)
            break
        retry.pause(error)
    partitions = [
        partition
        for topic in options.topics
        for partition in view.topics[topic].partitions
    ]
    unknown = {
        known_partition.broker_id for known_partition in partitions
    } - view.brokers.keys()
    if unknown:
        raise TransportError(
            f"The master tells no address of broker {min(unknown)}.", retriable=True
        )
    return Found(
        {
            known_partition: view.brokers[known_partition.broker_id]
            for known_partition in partitions
        },
        frozenset(dense_partitions(partitions)),
        view.token,
        frozenset(closed),
    )


def is_alone(
    masters: Masters, options: ReadOptions, group: str, partition: Partition
) -> bool:
    """Return whether a partition is alone in its store, closed or not.

    Args:
        masters: Of the cluster.
        options: What to read.
        group: Of the readers.
        partition: Which one.

    Raises:
        TransportError: The master does not name it.
        TubeMQError: The masters do not answer, or refuse.
    """
    topic = masters.readable(planners_of(group), options.topics).topics[partition.topic]
    all_partitions = [*topic.partitions, *topic.closed]
    if partition not in all_partitions:
        raise TransportError(
            f"The master does not name {partition}, so that it is not known whether "
            "messages are missing there: its broker is down or starts.",
            retriable=True,
        )
    return partition in dense_partitions(all_partitions)


def _closed(partitions: Sequence[Partition]) -> TransportError:
    names = ", ".join(map(str, partitions[:10]))
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return TransportError(
        f"{names}{more} cannot be read now, says the master: the broker is down or "
        "starts, or does not accept subscribers. Wait for it, or set `failOnDataLoss` "
        "to false to read what else there is."
    )


def find_edges(
    pool: BrokerPool,
    found: Found,
    partitions: Iterable[Partition],
    options: ReadOptions,
    group: str,
) -> dict[Partition, Edges]:
    """Return the edges of partitions, with a request for each store.

    Raises:
        TubeMQError: A broker does not answer within ``operation.timeout``, or refuses.
    """
    first_of: dict[object, Partition] = {}
    in_order = sorted(partitions)
    for partition in in_order:
        first_of.setdefault(partition.store, partition)
    by_broker: dict[str, list[Partition]] = {}
    for partition in first_of.values():
        by_broker.setdefault(found.brokers[partition], []).append(partition)
    edges: dict[object, Edges] = {}
    for server, of_broker in by_broker.items():
        answers = _register_patiently(
            pool, server, of_broker, found.token, options, group
        )
        for partition, answer in answers.items():
            edges[partition.store] = Edges(answer.offset, answer.end)
    return {
        wanted_partition: edges[wanted_partition.store] for wanted_partition in in_order
    }


def _register_patiently(
    pool: BrokerPool,
    server: str,
    partitions: Sequence[Partition],
    token: Token | None,
    options: ReadOptions,
    group: str,
) -> dict[Partition, Registered]:
    """Ask a broker about partitions until a reply comes."""
    retry = Retry(
        _FIRST_PAUSE_S,
        _MAX_PAUSE_S,
        options.client.operation_timeout_s,
        "operation.timeout",
    )
    has_said = False
    while True:
        try:
            return register_all(
                pool,
                server,
                new_client_id(group),
                group_slots(planners_of(group)),
                partitions,
                priority=priority_of(options),
                token=token,
            )
        except PartitionOccupiedError as error:
            # That of a planner that was killed is free after the broker's time-out.
            if not has_said:
                logger.warning("Waiting for planners of the group: %s", error)
                has_said = True
            retry.pause(error.saying(error.message, retriable=True))
        except TubeMQError as error:
            retry.pause(error)
