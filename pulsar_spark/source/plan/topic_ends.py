# SPDX-License-Identifier: Apache-2.0
"""Where topics end now, for a program that reads them from time to time."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, message_after
from pulsar_spark.options import parse_read_options
from pulsar_spark.options.offsets import dump_offsets

#: The end of a topic partition without rows: before the first entry of any ledger.
_BEFORE_ALL = MessageId(0, -1)


class EndOffsets(NamedTuple):
    """The ends of topics at one moment, as JSON for options.

    Attributes:
        ending: For ``endingOffsets``: the last message of each topic partition.
        following: For ``startingOffsets`` of the next read: what follows these.
    """

    ending: str
    following: str


def end_offsets(options: dict[str, str]) -> EndOffsets:
    """Return where topics end now. Asks brokers from this process, and reads nothing.

    A read with ``endingOffsets`` set to ``ending`` has all rows up to there. The next
    one with ``startingOffsets`` set to ``following`` has those that came later: no row
    is read twice, and none is left out. What an open transaction holds back is behind
    the ends.

    Args:
        options: As for ``spark.read.format("pulsar").options(**options)``.

    Raises:
        OptionError: An option is unknown or wrong.
        TopicNotFoundError: A topic does not exist.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    # Each process of a query imports the package, and none of them needs these.
    from pulsar_spark.client.lookup import TopicLookup
    from pulsar_spark.client.pool import shared_pool
    from pulsar_spark.client.positions import PositionLookup
    from pulsar_spark.source.plan.discovery import (
        at_one_cluster,
        find_topic_partitions,
    )

    read = at_one_cluster(parse_read_options(options))
    pool = shared_pool(read.client)
    topics = find_topic_partitions(TopicLookup(pool), read)
    lookup = PositionLookup(pool)
    names = [topic.full_name for topic in topics]
    positions = lookup.from_message_ids(dict.fromkeys(names, LATEST))
    lasts = {name: positions[name].last for name in names}
    return EndOffsets(
        ending=dump_offsets(
            {name: last or _BEFORE_ALL for name, last in lasts.items()}
        ),
        following=dump_offsets(
            {
                name: EARLIEST if last is None else message_after(last)
                for name, last in lasts.items()
            }
        ),
    )
