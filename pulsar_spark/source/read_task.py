# SPDX-License-Identifier: Apache-2.0
"""What one task reads, as it travels from the driver to an executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.options import ServiceUrl
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.source.ranges import TopicRange


@dataclass(frozen=True)
class ReadTask:
    """Some ranges, and where to read them.

    Attributes:
        ranges: What to read, in this order; none where a micro-batch that runs again
            no longer reads what the task had.
        brokers: Who served their topic partitions when this was planned, as the cluster
            itself answered. They save the task its lookups, and may be wrong by the
            time at which it runs.
        schema: The schema whose columns the query has; None where it has the values as
            bytes.
        service_url: The cluster where they are; None for that of the options.
    """

    ranges: tuple[TopicRange, ...]
    brokers: Mapping[str, BrokerAddress] = field(
        default_factory=dict, compare=False, repr=False
    )
    schema: SchemaInfo | None = None
    service_url: ServiceUrl | None = None

    def __str__(self) -> str:
        if not self.ranges:
            return "no topic partition"
        first, others = self.ranges[0].topic_partition, len(self.ranges) - 1
        return f"{first} and {others} more" if others else first


def read_tasks(
    pool: ConnectionPool,
    groups: Iterable[Sequence[TopicRange]],
    schema: SchemaInfo | None = None,
) -> list[ReadTask]:
    """Return a task for each group of ranges.

    Args:
        pool: Has asked for the brokers of their topic partitions.
        groups: The ranges of each task.
        schema: As in ReadTask.
    """
    tasks = []
    for group in groups:
        names = dict.fromkeys(range_.topic_partition for range_ in group)
        found = {name: pool.last_broker(name) for name in names}
        brokers = {name: one for name, one in found.items() if one is not None}
        tasks.append(ReadTask(tuple(group), brokers, schema))
    return tasks
