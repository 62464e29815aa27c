# SPDX-License-Identifier: Apache-2.0
"""Find out why a reader waits although its range has not ended.

The broker may be slow. The end of the range may be gone, or hidden. Or only this reader
gets nothing, and a new one would get the rest: the topic has moved, and the broker did
not say so; or expiry has moved the reader past all that is left. Silence alone does not
tell which::

    the broker says                       conclusion, or next step
    nothing is left, the end is 7:5       7:9 is gone
    nothing is stored at all, or a
    segment ends before                   the ledgers tell: 7:9 is gone, or reconnect
    there is more up to 7:9               a probe from 7:6: hidden, or reconnect
"""

from __future__ import annotations

import logging
import time

from pulsar_spark.client.entry_reader import EntryReader
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.probe import is_stored
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import PulsarSparkError, ReadTimeoutError
from pulsar_spark.message_id import MessageId
from pulsar_spark.source.missing import compaction, hidden
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.topics import is_segment
from spark_topics.client.retry import LongWait

logger = logging.getLogger("pulsar_spark.source")

#: How many times in a row it must say that nothing is, without the topic moving in
#: between: a broker that has just taken over a topic may know less of it until it has
#: recovered its transactions.
_CERTAIN_AFTER = 3

#: After how many silences, one after the other, it is found out whether the broker
#: hides what is left; and then after twice as many, and so on.
_HIDDEN_AFTER = 4


class Silence:
    """Finds out why a reader gets nothing.

    Args:
        pool: The cluster's connections.
        range_: What is read.
        reader: Reads it.

    Attributes:
        lost: Why no more comes, where the end of the range is lost; else "".
    """

    def __init__(
        self, pool: ConnectionPool, range_: TopicRange, reader: EntryReader
    ) -> None:
        self._pool = pool
        self._range = range_
        self._reader = reader
        self._settings = reader.settings
        self._known_end: MessageId | None = None
        self._moves = 0
        self.lost = ""
        self.end()

    def end(self) -> None:
        """Note that something came."""
        self._began = time.monotonic()
        self._wait = LongWait(logger)
        self._exhausted = self._silences = 0
        self._look_at = _HIDDEN_AFTER
        self._may_come_back = True

    def is_final(self) -> bool:
        """Return whether nothing more comes; `lost` says whether there should be.

        Raises:
            ReadTimeoutError: Nothing came for ``poll_timeout_s``, and there is more.
            PulsarSparkError: The broker refuses for good.
        """
        self._silences += 1
        if self._moves != self._reader.reconnects:
            self._exhausted, self._moves = 0, self._reader.reconnects
        self._exhausted = self._exhausted + 1 if self._is_exhausted() else 0
        if self._exhausted >= _CERTAIN_AFTER:
            is_final = self._has_ended()
        else:
            is_final = not self._exhausted and self._is_passed_over()
        if not is_final:
            self._check_time()
        return is_final

    def _is_exhausted(self) -> bool:
        """Return whether the broker says that nothing is left to deliver."""
        positions = self._reader.positions()
        if positions is None:
            return False
        name = self._range.topic_partition
        last = readable_ends(
            self._pool,
            {name: positions.last},
            read_compacted=self._settings.consumer.read_compacted,
        )[name]
        if isinstance(last, PulsarSparkError):
            if not last.retriable:
                raise last
            return False
        self._known_end = last
        if last is None:
            return True
        taken = self._reader.position
        if taken is None:
            return last.position < self._range.start.position
        return last.position <= taken

    def _has_ended(self) -> bool:
        """Return whether nothing more comes.

        Compaction may have removed it from a topic that still reaches it. So much the
        broker must know before it says once more that nothing is left.
        """
        if self._settings.consumer.read_compacted and compaction.reaches(
            self._pool, self._range.topic_partition, self._range.end, self._settings
        ):
            return self._is_exhausted()
        # A broker says so for as long as it gives the topic away, or takes it over. Of
        # a segment it says an old end, and delivers no other while it is slow.
        is_doubtful = self._known_end is None or is_segment(self._range.topic_partition)
        if is_doubtful and self._is_stored() is not False:
            self._come_back("the broker has nothing of what is stored.")
            return False
        self.lost = f"the topic now ends at {self._known_end or 'its beginning'}"
        return True

    def _is_stored(self) -> bool | None:
        """Return whether the end is still stored; None where that is not known."""
        return is_stored(
            self._pool,
            self._range.topic_partition,
            self._range.end,
        )

    def _is_passed_over(self) -> bool:
        """Return whether the broker hides all that is left, as entry filters do."""
        if self._silences < self._look_at or self._settings.consumer.read_compacted:
            return False
        self._look_at *= 2
        start, taken = self._range.start, self._reader.position
        if taken is not None:
            start = MessageId(taken[0], taken[1] + 1)
        is_hidden = hidden.hides_all(
            self._pool,
            self._range.topic_partition,
            start,
            self._range.end,
        )
        if is_hidden:
            logger.info(
                "%s: the broker hides what is stored from %s to %s, as entry filters "
                "do.",
                self._range.topic_partition,
                start,
                self._range.end,
            )
            return True
        if is_hidden is False:
            self._come_back("the broker delivers to another reader.")
        return False

    def _come_back(self, why: str) -> None:
        self._exhausted = 0
        self._reader.come_back(why)

    def _check_time(self) -> None:
        """Raise after ``poll_timeout_s`` without an entry; change brokers at half."""
        patience_s = self._settings.poll_timeout_s
        waited_s = time.monotonic() - self._began
        if waited_s > patience_s:
            trouble = self._reader.trouble
            raise ReadTimeoutError(
                f"{self._range.topic_partition} delivered nothing for {patience_s:g} s "
                f"(`pollTimeoutMs`), though there are rows up to {self._range.end}. "
                "Look at the broker's log, or raise `pollTimeoutMs`."
                + (f" The last reason: {trouble}" if trouble else ""),
                topic_partition=self._range.topic_partition,
            )
        self._wait.tell(
            f"{self._range.topic_partition} delivers nothing, though there are rows up"
            f" to {self._range.end}. {self._reader.trouble or ''}".rstrip(),
            patience_s - waited_s,
            "pollTimeoutMs",
        )
        if self._may_come_back and waited_s > patience_s / 2:
            self._may_come_back = False
            self._come_back("the broker delivers nothing.")
