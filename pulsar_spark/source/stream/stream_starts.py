# SPDX-License-Identifier: Apache-2.0
"""Where a new stream starts: by the options, or by a predefined subscription."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import AskAgainError, PulsarSparkError
from pulsar_spark.message_id import EARLIEST
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.discovery import find_topic_partitions
from pulsar_spark.source.plan.gone import without_gone
from pulsar_spark.source.plan.ranges import assign_offsets, last_messages
from pulsar_spark.source.plan.starts import find_starts, times_for
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.query_subscription import QuerySubscription
from pulsar_spark.source.stream.subscription import Subscription
from pulsar_spark.topics import TopicName
from spark_topics.client.retry import ask_all


def stream_starts(
    pool: ConnectionPool, options: ReadOptions, subscription: QuerySubscription
) -> dict[str, LastRead]:
    """Return the position after which each topic partition of a new query starts.

    Args:
        pool: The cluster's connections.
        options: What to read.
        subscription: Stands at the start, where the options say so.
    """
    # Less patient than a query that has begun: a wrong address is to show soon.
    lookup = TopicLookup(pool)
    topics = find_topic_partitions(lookup, options)
    if not options.start_at_subscription:
        options = without_gone(options, topics, lookup.layouts)
        return _configured(pool, options, topics)
    consumers = subscription.existing()
    positions = PositionLookup(pool, read_compacted=options.read_compacted)
    try:
        return ask_all(
            [topic.full_name for topic in topics],
            partial(_cursors, consumers, positions),
            pool.patience(options.poll_timeout_s),
        )
    finally:
        consumers.close()


def _configured(
    pool: ConnectionPool, options: ReadOptions, topics: Sequence[TopicName]
) -> dict[str, LastRead]:
    """Return what ``startingOffsets`` and ``startingTime`` say."""
    offsets = assign_offsets(options.starting_offsets, topics, option="startingOffsets")
    ends = assign_offsets(options.ending_offsets, topics, option="endingOffsets")
    # Only to refuse names that are not read, while somebody looks.
    times_for(options.ending_times, topics, "endingTime")
    lookup = PositionLookup(pool, read_compacted=options.read_compacted)
    starts = find_starts(lookup, options, topics, offsets, last_messages(ends))
    return {
        topic.full_name: LastRead.before(starts[topic.full_name].first)
        for topic in topics
    }


def _cursors(
    consumers: Subscription, positions: PositionLookup, names: list[str]
) -> dict[str, LastRead | PulsarSparkError]:
    """Return the position of a subscription in each topic, exact to the message."""
    statuses = consumers.visit(dict.fromkeys(names, NOTHING_READ))
    present = {name: status for name, status in statuses.items() if status is not None}
    cursors: dict[str, LastRead | PulsarSparkError] = {
        name: status.cursor for name, status in present.items()
    }
    # What was acknowledged may have been removed, with nothing that was not.
    for name, first in positions.from_message_ids(
        dict.fromkeys(present, EARLIEST), absent_ok=True
    ).items():
        cursors[name] = max(present[name].cursor, LastRead.of(first.before))
    waiting = {
        name: status.cursor
        for name, status in present.items()
        if status.last is not None and not status.cursor.has_read(status.last)
    }
    ahead = consumers.look(waiting)
    for name in waiting:
        if not ahead.get(name):
            # Whatever of it was acknowledged would be read again.
            cursors[name] = AskAgainError(
                f"{name}: the entry at which the subscription {consumers.subscription} "
                "stands did not come, so that it is not known where in it to start."
            )
        elif (index := ahead[name][0].first_index) > 0:
            cursors[name] = LastRead(*ahead[name][0].position, index - 1)
    return cursors
