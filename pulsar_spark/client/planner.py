"""Plans a batch read: asks the cluster what there is, and fixes what to read of it."""

from __future__ import annotations

from pulsar_spark.client.discovery import find_topic_partitions
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.starts import find_starts, times_for
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.offsets import Position
from pulsar_spark.options import ReadOptions
from pulsar_spark.plan import TopicRange, assign_offsets, is_after, range_between
from pulsar_spark.topics import TopicName


def plan_batch(pool: ConnectionPool, options: ReadOptions) -> list[TopicRange]:
    """One range for each topic partition that has rows to read, in order of topics.

    Both ends are fixed here, once; rows that arrive later are not in them.

    Raises:
        OptionError: Offsets or times do not fit the topics.
        TopicNotFoundError: A topic does not exist.
        DataLossError: A start is no longer there, and ``failOnDataLoss`` is set.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    return _BatchPlanner(pool, options).plan()


class _BatchPlanner:
    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._options = options
        self._topic_lookup = TopicLookup(pool)
        self._positions = PositionLookup(
            pool,
            subscription_prefix=options.reader_subscription_prefix,
            read_compacted=options.read_compacted,
        )

    def plan(self) -> list[TopicRange]:
        topics = find_topic_partitions(self._topic_lookup, self._options)
        offsets = assign_offsets(
            self._options.starting_offsets, topics, option="startingOffsets"
        )
        starts = find_starts(self._positions, self._options, topics, offsets)
        ends = self._ends(topics)
        _check_order(offsets, ends)
        ranges = []
        for topic in topics:
            name = topic.full_name
            first, found = starts[name]
            range_ = range_between(name, first, ends.get(name), found.last)
            if range_ is not None:
                ranges.append(range_)
        return ranges

    def _ends(self, topics: list[TopicName]) -> dict[str, MessageId]:
        """The last message of each that does not simply go to the end."""
        options = self._options
        times = times_for(options.ending_times, topics, "endingTime")
        # Whatever was published at that time belongs to the read: the end lies before
        # the first entry of the next millisecond.
        following = {name: time_ms + 1 for name, time_ms in times.items()}
        ends = {
            name: found.before
            for name, found in self._positions.from_times(following).items()
        }
        offsets = assign_offsets(options.ending_offsets, topics, option="endingOffsets")
        for name, offset in offsets.items():
            if isinstance(offset, MessageId) and name not in times:
                ends[name] = offset
        return ends


def _check_order(offsets: dict[str, Position], ends: dict[str, MessageId]) -> None:
    for name, end in ends.items():
        start = offsets[name]
        if isinstance(start, MessageId) and is_after(start, end):
            raise OptionError(
                f"The read of {name} would end at {end}, before it starts at {start}."
                " Correct `startingOffsets` or `endingOffsets`."
            )
