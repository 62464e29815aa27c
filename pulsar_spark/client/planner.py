"""Plans a batch read: asks the cluster what there is, and fixes what to read of it."""

from __future__ import annotations

from pulsar_spark.client.discovery import find_topic_partitions
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.offsets import TimesSpec
from pulsar_spark.options import ReadOptions
from pulsar_spark.plan import (
    TopicPositions,
    TopicRange,
    assign_offsets,
    assign_times,
    check_start,
    is_after,
    list_names,
    range_between,
    start_of,
)
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
            subscription_prefix=options.subscription_role_prefix
            or options.subscription_prefix,
            read_compacted=options.read_compacted,
        )

    def plan(self) -> list[TopicRange]:
        topics = find_topic_partitions(self._topic_lookup, self._options)
        starts, found = self._starts(topics)
        ends = self._ends(topics)
        ranges = []
        for topic in topics:
            name = topic.full_name
            range_ = range_between(name, starts[name], ends.get(name), found[name].last)
            if range_ is not None:
                ranges.append(range_)
        return ranges

    def _starts(
        self, topics: list[TopicName]
    ) -> tuple[dict[str, MessageId], dict[str, TopicPositions]]:
        """The first message of each, and what the broker says of a reader there."""
        options = self._options
        times = self._times(options.starting_times, topics, "startingTime")
        offsets = assign_offsets(
            options.starting_offsets, topics, option="startingOffsets"
        )
        wanted = {
            name: start_of(offset)
            for name, offset in offsets.items()
            if name not in times
        }
        by_time = self._positions.from_times(times)
        self._check_times(by_time)
        by_id = self._positions.from_message_ids(wanted)
        starts = {name: found.first for name, found in by_time.items()}
        for name, found in by_id.items():
            starts[name] = self._start(name, wanted[name], found)
        return starts, by_time | by_id

    def _start(self, name: str, wanted: MessageId, found: TopicPositions) -> MessageId:
        if self._options.read_compacted:
            # A compacted topic reaches back further than what is stored.
            return wanted
        if wanted == EARLIEST:
            return found.first
        return check_start(
            name, wanted, found, fail_on_data_loss=self._options.fail_on_data_loss
        )

    def _check_times(self, found: dict[str, TopicPositions]) -> None:
        late = [name for name, positions in found.items() if positions.is_empty]
        if late and self._options.starting_time_strategy == "error":
            raise OptionError(
                f"Nothing was published at or after `startingTime` in "
                f"{list_names(late)}. Choose an earlier time, or set "
                "`startingTimeStrategy` to latest to read nothing of them."
            )

    def _ends(self, topics: list[TopicName]) -> dict[str, MessageId]:
        """The last message of each that does not simply go to the end."""
        options = self._options
        times = self._times(options.ending_times, topics, "endingTime")
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
        self._check_order(topics, ends)
        return ends

    def _check_order(self, topics: list[TopicName], ends: dict[str, MessageId]) -> None:
        starts = assign_offsets(
            self._options.starting_offsets, topics, option="startingOffsets"
        )
        for name, end in ends.items():
            start = starts[name]
            if isinstance(start, MessageId) and is_after(start, end):
                raise OptionError(
                    f"The read of {name} would end at {end}, before it starts at "
                    f"{start}. Correct `startingOffsets` or `endingOffsets`."
                )

    def _times(
        self, spec: TimesSpec | None, topics: list[TopicName], option: str
    ) -> dict[str, int]:
        if spec is None:
            return {}
        return assign_times(spec.topics, spec.default_ms, topics, option=option)
