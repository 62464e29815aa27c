# SPDX-License-Identifier: Apache-2.0
"""Where topics end now, for a program that reads them from time to time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pulsar_spark.builders import ReadOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import (
    BEFORE_ALL,
    EARLIEST,
    LATEST,
    MessageId,
    entry_after,
)
from pulsar_spark.options import parse_read_options
from pulsar_spark.options.failover import NAME as FAILOVER
from pulsar_spark.options.offsets import Position, dump_offsets
from spark_topics.options.offsets import Edge

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.client.positions import PositionLookup


class EndOffsets(NamedTuple):
    """The ends of topics at one moment, as JSON for options.

    Attributes:
        ending: For ``endingOffsets``: the last message of each topic partition, and
            nothing of others.
        following: For ``startingOffsets`` of the next read: what follows these. Other
            topic partitions start at their first row.
    """

    ending: str
    following: str


def end_offsets(options: Mapping[str, str] | ReadOptions) -> EndOffsets:
    """Return where topics end now. Asks brokers from this process, and reads nothing.

    A read with ``endingOffsets`` set to ``ending`` has all rows up to there. The next
    one with ``startingOffsets`` set to ``following`` has those that came later: no row
    is read twice, and none is left out. Partitions, topics and segments that are made
    in between are read by the next one. What an open transaction holds back is behind
    the ends. If rows that follow are deleted before they are read, the next read fails
    with PULSAR_DATA_LOSS.

    Args:
        options: As for ``spark.read.format("pulsar").options(**options)``, or
            `ReadOptions`.

    Raises:
        OptionError: An option is unknown or wrong; or other clusters are named, whose
            message ids are others.
        TopicNotFoundError: A topic does not exist.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if isinstance(options, ReadOptions):
        options = options.as_dict()
    if not isinstance(options, Mapping):
        raise TypeError(
            "end_offsets takes options as a dict or as ReadOptions, not"
            f" {type(options).__name__}"
        )
    # Each process of a query imports the package, and none of them needs these.
    from pulsar_spark.client.lookup import TopicLookup
    from pulsar_spark.client.pool import shared_pool
    from pulsar_spark.client.positions import PositionLookup
    from pulsar_spark.source.plan.discovery import find_topic_partitions

    read = parse_read_options(options)
    if read.client.failover is not None:
        raise OptionError(
            f"Ends of topics are message ids, which are others in each cluster: leave "
            f"out {FAILOVER}, also where these ends are read."
        )
    pool = shared_pool(read.client)
    topic_lookup, lookup = TopicLookup(pool), PositionLookup(pool)
    names = [topic.full_name for topic in find_topic_partitions(topic_lookup, read)]
    positions = lookup.from_message_ids(dict.fromkeys(names, LATEST))
    lasts = {name: positions[name].last for name in names}
    sealed = {
        segment.name
        for layout in topic_lookup.layouts.values()
        for segment in layout.segments
        if segment.is_sealed
    }
    over = _ended(pool, lookup, {n: lasts[n] for n in names if n in sealed})
    return EndOffsets(
        ending=dump_offsets(
            {name: last or BEFORE_ALL for name, last in lasts.items()},
            unnamed=Edge.EARLIEST,
        ),
        following=dump_offsets(
            {name: _following(last, name in over) for name, last in lasts.items()}
        ),
    )


def _following(last: MessageId | None, is_over: bool) -> Position:
    """Return where the next read starts."""
    if is_over:
        # A broker may delete the segment now, and nothing is lost.
        return Edge.LATEST
    # The last message is that of a whole entry. Where the entry is removed, the broker
    # can still tell that nothing had come after it.
    return EARLIEST if last is None else entry_after(last)


def _ended(
    pool: ConnectionPool, lookup: PositionLookup, lasts: Mapping[str, MessageId | None]
) -> set[str]:
    """Return the sealed segments in which nothing will ever follow.

    Args:
        pool: The cluster's connections.
        lookup: Asks brokers where they end.
        lasts: The last message of each sealed segment, by full name.
    """
    from pulsar_spark.source.plan.held_back import nothing_follows

    if not lasts:
        return set()
    # A broker may still be taking note of the last entries, see `segment_ends`.
    time.sleep(pool.options.patience.settling_s)
    afters = {name: last or EARLIEST for name, last in lasts.items()}
    return nothing_follows(pool, lookup, afters)
