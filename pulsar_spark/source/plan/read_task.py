# SPDX-License-Identifier: Apache-2.0
"""The work of a read task, as sent from the driver to an executor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.options import ServiceUrl
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.topics import schema_topic

if TYPE_CHECKING:
    from pulsar_spark.source.plan.query_schema import QuerySchema


@dataclass(frozen=True)
class ReadTask:
    """Ranges of topic partitions, and where to read them.

    Attributes:
        ranges: What to read, in this order; none where a micro-batch that runs again
            no longer reads what the task had.
        brokers: Who served their topic partitions when this was planned, as the cluster
            itself answered. They save the task its lookups, and may be wrong by the
            time at which it runs.
        schema: The schema by which values are read; None where the query has them as
            bytes.
        own_schemas: The schemas of those topics of the task that are read by another
            one, by full name.
        service_url: The cluster where they are; None for that of the options.
    """

    ranges: tuple[TopicRange, ...]
    brokers: Mapping[str, BrokerAddress] = field(
        default_factory=dict, compare=False, repr=False
    )
    schema: SchemaInfo | None = None
    own_schemas: Mapping[str, SchemaInfo] = field(default_factory=dict)
    service_url: ServiceUrl | None = None

    def __str__(self) -> str:
        if not self.ranges:
            return "no topic partition"
        first, further = self.ranges[0].topic_partition, len(self.ranges) - 1
        return f"{first} and {further} more" if further else first

    def with_schema(self, schema: QuerySchema) -> ReadTask:
        """Return the task with the schemas of its topics."""
        own_schemas = {}
        if schema.others:
            own_schemas = {
                topic: info
                for topic in sorted(topics_of([self]) & schema.others.keys())
                if (info := schema.others[topic]) is not None
            }
        return replace(self, schema=schema.info, own_schemas=own_schemas)


def topics_of(tasks: Iterable[ReadTask]) -> set[str]:
    """Return the full names of the topics that tasks read."""
    names = {range_.topic_partition for task in tasks for range_ in task.ranges}
    return {schema_topic(name) for name in names}


def read_tasks(
    pool: ConnectionPool,
    groups: Iterable[Sequence[TopicRange]],
) -> list[ReadTask]:
    """Return a task for each group of ranges; arguments are those of `read_task`."""
    return [read_task(pool, group) for group in groups]


def read_task(pool: ConnectionPool, group: Sequence[TopicRange]) -> ReadTask:
    """Return the task of a group of ranges.

    Args:
        pool: Has asked for the brokers of their topic partitions.
        group: The ranges.
    """
    names = dict.fromkeys(range_.topic_partition for range_ in group)
    addresses = {name: pool.last_broker(name) for name in names}
    brokers = {
        name: address for name, address in addresses.items() if address is not None
    }
    return ReadTask(tuple(group), brokers)
