# SPDX-License-Identifier: Apache-2.0
"""Which partitions there are, and where they begin and end: asked of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_topics.client.retry import Retry
from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.masters import Masters, new_client_id
from tubemq_spark.errors import TransportError, TubeMQError
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.ranges import Edges, dense_partitions
from tubemq_spark.wire.messages import FLUSHED, UNFLUSHED, Token
from tubemq_spark.wire.metadata import Partition

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
    """

    brokers: Mapping[Partition, str]
    dense: frozenset[Partition]
    token: Token | None


def group_slots(group: str) -> list[str]:
    """Return the groups that a name stands for."""
    return [group, *(f"{group}-{number}" for number in range(1, SLOTS))]


def priority_of(options: ReadOptions) -> int:
    """Return what counts as there: planner and readers must mean the same."""
    return UNFLUSHED if options.read_unflushed else FLUSHED


def find_partitions(masters: Masters, options: ReadOptions, group: str) -> Found:
    """Return the partitions of the topics to read.

    Raises:
        TubeMQError: The masters do not answer, or refuse.
    """
    view = masters.readable(f"{group}-plan", options.topics)
    partitions = [
        partition
        for topic in options.topics
        for partition in view.topics[topic].partitions
    ]
    unknown = {one.broker_id for one in partitions} - view.brokers.keys()
    if unknown:
        raise TransportError(
            f"The master tells no address of broker {min(unknown)}.", retriable=True
        )
    return Found(
        {one: view.brokers[one.broker_id] for one in partitions},
        frozenset(dense_partitions(partitions)),
        view.token,
    )


def find_edges(
    pool: BrokerPool,
    found: Found,
    partitions: Iterable[Partition],
    options: ReadOptions,
    group: str,
) -> dict[Partition, Edges]:
    """Return where partitions begin and end: one question for each store.

    Raises:
        TubeMQError: A broker does not answer within ``operation.timeout``, or refuses.
    """
    first_of: dict[object, Partition] = {}
    wanted = sorted(partitions)
    for partition in wanted:
        first_of.setdefault(partition.store, partition)
    by_broker: dict[str, list[Partition]] = {}
    for partition in first_of.values():
        by_broker.setdefault(found.brokers[partition], []).append(partition)
    edges: dict[object, Edges] = {}
    for server, some in by_broker.items():
        retry = Retry(_FIRST_PAUSE_S, _MAX_PAUSE_S, options.client.operation_timeout_s)
        while True:
            try:
                answers = register_all(
                    pool,
                    server,
                    new_client_id(group),
                    group_slots(f"{group}-plan"),
                    some,
                    priority=priority_of(options),
                    token=found.token,
                )
            except TubeMQError as error:
                retry.pause(error)
            else:
                break
        for partition, answer in answers.items():
            edges[partition.store] = Edges(answer.offset, answer.end)
    return {one: edges[one.store] for one in wanted}
