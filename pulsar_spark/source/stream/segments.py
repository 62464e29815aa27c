# SPDX-License-Identifier: Apache-2.0
"""The segments of scalable topics in a stream: their order, and their end.

A stream reads each segment as an ordinary topic partition. Three things are different,
see ``wire.layout``:

- Rows of a key are in order only if a child is read after its parents: in a later
  micro-batch, because tasks of the same one run in any order.
- A sealed segment that was read to its end is *drained*. The checkpoint says so, and
  from then on it is no loss when the broker deletes the segment.
- A segment that came and went between two looks is a loss. Ids without a gap tell.

A broker deletes no segment in which a registered subscription has a backlog, and what
is acknowledged was read. A segment that goes while a registration lasts is no loss.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING

from pulsar_spark.source.plan.ranges import report_loss
from pulsar_spark.topics import TopicName, last_segments

if TYPE_CHECKING:
    from pulsar_spark.client.consumers import TopicConsumer
    from pulsar_spark.client.registrations import Registrations
    from pulsar_spark.wire.layout import Layout


class Segments:
    """The scalable topics of a stream.

    Args:
        layouts: The layout of each topic by its name, as it was seen last. The lookup
            of topics keeps them up to date.
        in_order: Whether rows of a key are read in their order.
        settling_s: How long a broker may take to know all entries of a sealed segment.
        fail_on_data_loss: Whether a loss is an error or a warning.

    Attributes:
        drained: Full names of segments that were read to their end.
    """

    def __init__(
        self,
        layouts: Mapping[str, Layout],
        *,
        in_order: bool,
        settling_s: float,
        fail_on_data_loss: bool = True,
    ) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._layouts = layouts
        self._in_order = in_order
        self._settling_s = settling_s
        self.drained: frozenset[str] = frozenset()
        self._registrations: Registrations | None = None
        # The registration that has protected each segment, or all of a topic, from the
        # last visit on.
        self._protected: dict[str, TopicConsumer | None] = {}
        # Topics whose registration had lasted when their layouts were looked at.
        self._lasting: frozenset[str] = frozenset()
        self._sealed_since: dict[str, float] = {}

    @property
    def layouts(self) -> Collection[Layout]:
        """Return the layout of each topic."""
        return self._layouts.values()

    def layout_of(self, name: str) -> Layout | None:
        """Return the layout of the topic of a topic partition or segment.

        None where the topic is not known to be a scalable one.
        """
        if not self._layouts:
            return None
        return self._layouts.get(TopicName.parse(name).scalable_name)

    def is_absent(self, name: str) -> bool:
        """Return whether a segment has left the layout of its topic."""
        layout = self.layout_of(name)
        return layout is not None and name not in layout.by_name

    def was_there(self, name: str) -> bool:
        """Return whether a name is of a segment that its topic has had."""
        layout = self.layout_of(name)
        return layout is not None and layout.is_over(name)

    def is_over(self, name: str) -> bool:
        """Return whether nothing is left to ask about: drained, and deleted."""
        return name in self.drained and self.is_absent(name)

    def protect(self, registrations: Registrations | None) -> None:
        """Register the query's subscription at each topic, where there is one.

        Raises:
            PulsarSparkError: The cluster refuses for good.
        """
        self._registrations = registrations
        if registrations is not None:
            registrations.add(self.layouts)
        topics = (layout.topic for layout in self.layouts)
        self._lasting = frozenset(filter(self._is_protected, topics))

    def note_visit(self, names: Iterable[str]) -> None:
        """Remember which registrations last while the query visits its consumers."""
        if self._layouts:
            self._protected.update({name: self._registration(name) for name in names})

    def may_be_gone(self, name: str) -> bool:
        """Return whether a segment may be deleted without loss."""
        if self.is_absent(name) and self._is_protected(name):
            self.drained |= {name}
        return name in self.drained

    def _is_protected(self, name: str) -> bool:
        """Return whether a registration has lasted since the last visit."""
        registration = self._registration(name)
        return registration is not None and registration is self._protected.get(name)

    def _registration(self, name: str) -> TopicConsumer | None:
        layout = self.layout_of(name)
        if layout is None or self._registrations is None:
            return None
        return self._registrations.current(layout.topic)

    def ending(self, names: Iterable[str]) -> list[str]:
        """Return the segments that get no more rows, and are not drained yet."""
        now_s = time.monotonic()
        self._sealed_since = {
            segment.name: self._sealed_since.get(segment.name, now_s)
            for layout in self.layouts
            for segment in layout.segments
            if segment.is_sealed and segment.name not in self.drained
        }
        return [name for name in names if name in self._sealed_since]

    def await_ends(self, names: Iterable[str]) -> None:
        """Wait until brokers know where segments end that are `ending`.

        Only a segment that was just seen sealed for the first time is waited for.
        """
        seen_s = max((self._sealed_since[name] for name in names), default=0.0)
        time.sleep(max(0.0, seen_s + self._settling_s - time.monotonic()))

    def reopen(self, names: Iterable[str]) -> None:
        """Forget that segments are drained: they have unread rows after all.

        Such as those of a topic that was deleted and made again.
        """
        self.drained -= frozenset(names)

    def waiting(self, read: Iterable[str], done: Set[str] = frozenset()) -> set[str]:
        """Return the segments that come only after others are read.

        Args:
            read: The names of all that the query reads now.
            done: Those of them in which the stream has come to its end.
        """
        waiting: set[str] = set()
        if not self._in_order:
            return waiting
        names = frozenset(read)
        for layout in self.layouts:
            for segment in layout.segments:  # parents come before their children
                parents = {layout.names.get(number, "") for number in segment.parents}
                unread = (parents & names) - self.drained - done
                if unread or parents & waiting:
                    waiting.add(segment.name)
        return waiting

    def check_unseen(self, read: Iterable[str]) -> None:
        """Report segments that were deleted before the query has seen them.

        Args:
            read: All that the query has seen, by full name.

        Raises:
            DataLossError: There are some, and that is an error.
        """
        unseen = {
            topic: ids
            for topic, ids in self.unseen(read).items()
            if topic not in self._lasting
        }
        self.note_visit(layout.topic for layout in self.layouts)
        for topic, ids in unseen.items():
            message = (
                f"{topic} had the segments {', '.join(map(str, ids))}, which were "
                "deleted before the query has read any of them. The subscription of a "
                "running query keeps the broker from that (`ackOnCommit`); while the "
                "query is stopped, only retention does."
            )
            report_loss(
                message,
                topic_partition=topic,
                wanted=str(ids[0]),
                available="",
                fail_on_data_loss=self._fail_on_data_loss,
                going_on="without them",
            )

    def unseen(self, read: Iterable[str]) -> dict[str, list[int]]:
        """Return the ids of segments that were deleted before the query has seen them.

        Args:
            read: All that the query has seen, by full name.

        Returns:
            Ids by the name of the topic; only topics that it has read.
        """
        if not self._layouts:
            return {}
        names = frozenset(read)
        latest = last_segments(names)
        unseen = {}
        for layout in self.layouts:
            last = latest.get(layout.topic, _last_migrated(layout.topic, names))
            if last >= 0 and (missing := layout.missing_after(last)):
                unseen[layout.topic] = missing
        return unseen


def _last_migrated(topic: str, names: Collection[str]) -> int:
    """Return the number of the last partition that was read before a migration.

    Migrated partitions have the first ids of segments.

    Args:
        topic: Full name of the scalable topic.
        names: Full names of all that was read.

    Returns:
        0 for a topic without partitions, -1 where nothing was read.
    """
    ordinary = TopicName.parse(TopicName.parse(topic).common_name)
    if ordinary.full_name in names:
        return 0
    read = (
        ordinary.partition(number).full_name in names for number in itertools.count()
    )
    return sum(1 for _ in itertools.takewhile(bool, read)) - 1
