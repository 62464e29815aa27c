# SPDX-License-Identifier: Apache-2.0
"""Where a stream ends in a topic partition: ``endingOffsets`` and ``endingTime``.

What follows an end counts as not stored, so that each plan, each limit and the lag go
by the same ends. Nothing of them is in the checkpoint: the options say where they are,
at each start. A position never changes. The end of a time is the entry before the
first one that was published later; until there is such an entry, there is no end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.offsets import id_of_a_whole_topic
from pulsar_spark.source.plan.ranges import check_end, last_messages, unknown_topic
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.topics import TopicName, topic_of
from spark_topics.options.offsets import Edge

logger = logging.getLogger("pulsar_spark.source")

_T = TypeVar("_T")


class StreamEnds:
    """The ends of a stream.

    Args:
        options: What to read.
        positions: Asks where times are.
    """

    def __init__(self, options: ReadOptions, positions: PositionLookup) -> None:
        self._options = options
        self._positions = positions
        self._of_times: dict[str, MessageId] = {}
        self._is_told = False
        self._is_checked = False

    @property
    def has_any(self) -> bool:
        """Return whether the options name an end."""
        offsets, times = self._options.ending_offsets, self._options.ending_times
        positions = (offsets.default, *offsets.topics.values())
        return times is not None or any(p is not Edge.LATEST for p in positions)

    def check(
        self,
        read: Iterable[str],
        is_wanted: Callable[[str], bool],
        is_over: Callable[[str], bool],
    ) -> None:
        """Refuse names of what the query does not read, once: these would be no ends.

        An end may stay in the options when its topic is deleted.

        Args:
            read: Full names of all that the query reads, or has read.
            is_wanted: Returns whether the options name a topic or topic partition, or
                their pattern matches.
            is_over: Returns whether a name is of a segment that may be deleted by now.

        Raises:
            OptionError: An end has the name of something else.
        """
        if self._is_checked:
            return
        self._is_checked = True
        times = self._options.ending_times
        named = dict.fromkeys(self._options.ending_offsets.topics, "endingOffsets")
        named |= dict.fromkeys(times.topics if times else (), "endingTime")
        if not named:
            return
        # An end may be that of a whole topic, by its name from before a migration, too.
        partitions = sorted({*read})
        names = {*partitions}
        names.update(TopicName.parse(name).common_name for name in partitions)
        for name, option in named.items():
            topic = TopicName.parse(name)
            whole = topic.common_name if topic.partition_index is None else name
            if name in names or whole in names or is_over(name):
                continue
            if not is_wanted(name):
                raise unknown_topic(option, name, partitions)
            logger.warning(
                "`%s` names %s, which does not exist now: correct the name if it is "
                "not that of a deleted topic.",
                option,
                name,
            )

    def cut(
        self, lasts: Mapping[str, MessageId | None], afters: Mapping[str, LastRead]
    ) -> Mapping[str, MessageId | None]:
        """Return the last message to read of each topic partition, None for none.

        Args:
            lasts: The last messages that can be delivered, by full name.
            afters: Up to where each was read.

        Raises:
            OptionError: ``endingOffsets`` gives one message id to a partitioned topic.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        if not self.has_any:
            return lasts
        self._find_times(lasts, afters)
        ends = {name: self._end(name) for name in lasts}
        self._tell(ends, afters)
        return {
            name: last if last is None else _earlier(last, ends[name])
            for name, last in lasts.items()
        }

    def check_begins(self, begins: Mapping[str, LastRead]) -> None:
        """Report ends of which nothing is left where the query has read nothing yet.

        Args:
            begins: Where topic partitions begin that the query has not read, by full
                name.

        Raises:
            DataLossError: All rows up to an end are gone, and that is an error.
            OptionError: As `cut`.
        """
        if self._options.ending_times is not None or self._options.read_compacted:
            return
        ends = {name: self._end(name) or EARLIEST for name in begins}
        for name, end in last_messages(ends).items():
            check_end(
                name,
                end,
                begins[name].message_id,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

    def is_at_end(self, name: str, after: LastRead, last: MessageId | None) -> bool:
        """Return whether the stream has read a topic partition up to its end there.

        Args:
            name: Full name of a topic partition.
            after: Up to where it was read.
            last: The last message to read, see `cut`.
        """
        end = self._end(name)
        if end is None or not (last is None or after.has_read(last)):
            return False
        return after.position >= end.position

    def is_past(self, name: str, after: LastRead) -> bool:
        """Return whether no row after a position is of the stream.

        Whatever is stored, unlike `is_at_end`: in the middle of a batch it is not known
        which message is the last one.

        Args:
            name: Full name of a topic partition.
            after: The position.
        """
        end = self._end(name)
        return end is not None and not after < LastRead.of(end)

    def within(self, name: str, end: LastRead) -> LastRead:
        """Return the end of a micro-batch that goes no further than the stream.

        Args:
            name: Full name of a topic partition.
            end: Where the micro-batch would end.
        """
        last = self._end(name)
        return end if last is None else min(end, LastRead.of(last))

    def _end(self, name: str) -> MessageId | None:
        """Return the end of a topic partition, None where there is none."""
        if name in self._of_times:
            return self._of_times[name]
        offsets = self._options.ending_offsets
        position = _named(offsets.topics, name) or offsets.default
        if isinstance(position, MessageId) and name not in offsets.topics:
            # An id for a topic is of one of its partitions, as for starts.
            topic = TopicName.parse(name)
            if position.partition < 0:
                raise id_of_a_whole_topic(
                    "endingOffsets", topic.base.full_name, position
                )
            if topic.partition_index != position.partition:
                position = offsets.default
        if isinstance(position, Edge):
            return EARLIEST if position is Edge.EARLIEST else None
        return position

    def _find_times(
        self, lasts: Mapping[str, MessageId | None], afters: Mapping[str, LastRead]
    ) -> None:
        """Look for the ends of times in topic partitions that have news."""
        spec = self._options.ending_times
        if spec is None:
            return
        asked = {}
        for name, last in lasts.items():
            time_ms = _named(spec.topics, name)
            time_ms = spec.default_ms if time_ms is None else time_ms
            has_news = last is not None and afters[name] < LastRead.of(last)
            if time_ms is not None and has_news and name not in self._of_times:
                asked[name] = time_ms + 1
        for name, positions in self._positions.from_times(asked).items():
            if positions.is_empty:
                continue
            end = positions.before
            if end.entry_id < 0 and not self._options.read_compacted:
                # Nothing up to the time is stored, so nothing is left to read.
                end = EARLIEST
            self._of_times[name] = end

    def _tell(
        self, ends: Mapping[str, MessageId | None], afters: Mapping[str, LastRead]
    ) -> None:
        """Log once that everything is read to its end."""
        if self._is_told or not ends:
            return
        self._is_told = all(
            end is not None and not afters[name] < LastRead.of(end)
            for name, end in ends.items()
        )
        if self._is_told:
            logger.info(
                "stream: %d topic partitions are read up to their ends, so that no row"
                " comes any more. A query with trigger(availableNow=True) ends now.",
                len(ends),
            )


def _named(topics: Mapping[str, _T], name: str) -> _T | None:
    """Return the value of a topic partition, or else of the whole topic."""
    if name in topics or not topics:
        return topics.get(name)
    return topics.get(topic_of(name))


def _earlier(last: MessageId, end: MessageId | None) -> MessageId:
    if end is None or LastRead.of(last) < LastRead.of(end):
        return last
    return end
